//! Buses: how ticks get from the feed's spool to processors.
//!
//! Three of them, one face. In process: the spool itself. Apache Kafka: a log of the same lanes, filled by the relay. Redis Pub/Sub: a channel
//! for each lane, which may lose messages, with one of the two others behind it from which what was lost is read.

#[cfg(test)]
mod conformance;
mod log;
#[cfg(feature = "redis")]
mod redis;

use std::time::Duration;

use hoga_log::LogError;
use hoga_log::event_log::StoredMessage;

pub use log::LogBus;
#[cfg(feature = "redis")]
pub use redis::{Publisher, PublisherStats, RedisBus, RedisBusConfig, RedisBusStats};

/// What a bus has taken of the spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Ticks taken since the start.
    pub ticks: u64,
    /// Ticks of the spool that wait.
    pub waiting: u64,
    /// Whether the last was taken.
    pub connected: bool,
}

/// Where ticks are read.
///
/// **Law:** a lane's messages have offsets that rise without holes as they were written. A read gives them in the order of offsets, each once and
/// none left out, whatever the carrier lost; only the front may be gone ([`Bus::start`]). Keys are not carried by every bus, values are.
pub trait Bus: Send + Sync {
    /// How many lanes there are; fixed.
    fn lanes(&self) -> u32;

    /// The lowest offset of a lane that may still be read.
    ///
    /// # Errors
    /// [`LogError`].
    fn start(&self, lane: u32) -> Result<u64, LogError>;

    /// The offset behind a lane's last message.
    ///
    /// # Errors
    /// [`LogError`].
    fn end(&self, lane: u32) -> Result<u64, LogError>;

    /// Adds up to `most` messages of a lane from `from` on to `out` and returns the offset to read next. It does not wait for messages.
    ///
    /// # Errors
    /// [`LogError`]; those that may pass ([`LogError::is_transient`]) change nothing.
    fn read(&self, lane: u32, from: u64, most: usize, out: &mut Vec<StoredMessage>) -> Result<u64, LogError>;

    /// Waits until one of these lanes may have something at or behind the offset beside it, or the time is over. It may return early.
    ///
    /// # Errors
    /// [`LogError`].
    fn wait(&self, places: &[(u32, u64)], timeout: Duration) -> Result<(), LogError>;
}
