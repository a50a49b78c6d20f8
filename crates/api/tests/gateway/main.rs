//! The gateway over real sockets, with a real engine and real read models.

mod alerts;
mod hostile;
mod native;
mod outage;
#[path = "../../../store/src/tests/proxy.rs"]
mod proxy;
mod rest;
mod rules;
mod support;
mod ws_api;
