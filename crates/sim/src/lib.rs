//! Order flow for Hoga: readers of recordings, and seeded models that make flow where there is no recording.
//!
//! - [`bitstamp`]: an order-by-order capture of a real exchange, as steps that can be replayed.
//! - [`consensus`]: the messages of the `me-consensus` benchmark.
//! - [`market`]: the assets and instruments of the built-in market.
//! - [`flow`]: the model behind it: makers, takers, trends and news, driven by the real book.
//! - [`mixed`]: the mixed commands of `hoga bench match`.
//!
//! Everything is a function of its input and its seed. Floating point is used inside the models only: what comes out are whole ticks and
//! steps.

pub mod bitstamp;
pub mod consensus;
pub mod flow;
pub mod market;
pub mod mixed;
pub mod recording;
pub mod rng;
