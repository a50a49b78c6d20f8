//! hoga-api
