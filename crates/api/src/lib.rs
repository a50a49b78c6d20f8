//! The gateway: Binance-compatible REST, streams and WebSocket API, the native endpoints, and the console.
//!
//! **Architecture invariant:** nothing here decides about money or orders. The gateway checks form (parameters, signatures, limits),
//! hands a [`hoga_core::command::Body`] to the engine, and writes what comes back. It keeps no state that a restart would miss.

pub mod catalog;
pub mod error;
pub mod hub;
pub mod json;
pub mod params;
pub mod streams;
pub mod ws;
