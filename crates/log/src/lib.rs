//! hoga-log
