//! The tick plant: outside prices from their sources to latest values, candles and events, in order.
//!
//! ```text
//! source ─► gateway (numbers, spool) ─► bus: market.ticks, one lane per loop ─► reader ─► loop ─► cache, monitor
//! ```
//!
//! A *lane* is a partition of the bus. A symbol belongs to one lane, a lane to one loop: so what happens to a symbol happens in order,
//! without a lock.

pub mod bus;
pub mod cache;
pub mod detect;
pub mod feeder;
pub mod gateway;
pub mod groups;
pub mod monitor;
pub mod plant;
pub mod sockets;
pub mod sources;
pub mod state;
mod symbol;
#[cfg(test)]
mod testing;
mod tick;

pub use symbol::{Symbol, SymbolError};
pub use tick::{DecodeError, FeedTick, MAX_ENCODED};
