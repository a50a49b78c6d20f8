//! hoga-sim
