//! hoga-lab
