//! The gateway: Binance-compatible REST, streams and WebSocket API, the native endpoints, and the console.
//!
//! **Architecture invariant:** nothing here decides about money or orders. The gateway checks form (parameters, signatures, limits),
//! hands a [`hoga_core::command::Body`] to the engine, and writes what comes back. It keeps no state that a restart would miss.

mod app;
mod auth;
pub mod catalog;
pub mod config;
mod connections;
mod console;
mod dispatch;
pub mod error;
mod http;
pub mod hub;
pub mod json;
mod limits;
mod metrics;
mod names;
mod native;
pub mod ops;
mod orders;
pub mod params;
mod pipeline;
mod plant;
mod port;
mod reads;
mod render;
mod reply;
mod rest;
pub mod routes;
pub mod server;
mod session;
pub mod streams;
mod upgrade;
pub mod ws;
mod wsapi;

pub use app::Services;
pub use catalog::SharedCatalog;
pub use config::{ApiConfig, LimitsConfig};
pub use names::secret as random_secret;
pub use ops::{Asked, OpsServer, Page, Pages};
pub use pipeline::{LatencyOf, Pipeline, latency_of_stores, observe_stores};
pub use plant::TickPlant;
pub use port::EnginePort;
pub use server::{Server, ServerError};
