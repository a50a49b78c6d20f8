//! hoga-store
