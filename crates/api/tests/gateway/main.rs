//! The gateway over real sockets, with a real engine and real read models.

mod hostile;
mod native;
mod rest;
mod rules;
mod support;
mod ws_api;
