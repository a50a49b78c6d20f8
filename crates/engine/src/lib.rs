//! hoga-engine
