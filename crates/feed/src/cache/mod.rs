//! The latest-value cache of a group: what its leader writes and readers take.
//!
//! It holds the last quote of each symbol, the running candle of each interval, the last detected events, and how the leader is doing. Whoever
//! subscribes gets every write from then on, too.

#[cfg(test)]
mod conformance;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod wire;

use std::time::{Duration, Instant};

use hoga_core::folds::candle::Interval;

use crate::detect::DetectedEvent;
use crate::groups::{GroupName, Mark};
use crate::state::{CandleChange, Output};
use crate::symbol::Symbol;

pub use memory::MemoryCache;
#[cfg(feature = "redis")]
pub use redis::{RedisCache, RedisCacheConfig};

/// Detected events that a cache keeps.
pub const EVENTS: usize = 4096;
/// Marks that a quote carries of outputs that it stands for.
pub const PASSED: usize = 64;

/// What is told of a symbol: its last output without candles, which come apart and less often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The output; its candles are empty.
    pub output: Output,
    /// Marks of outputs that were replaced by this one before they were written, the latest [`PASSED`], oldest first: for the comparison of groups.
    pub passed: Vec<Mark>,
    /// When the oldest tick in it was read from the bus; for figures, and not written.
    pub read: Option<Instant>,
}

/// A candle of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolCandle {
    /// Of which symbol.
    pub symbol: Symbol,
    /// The candle.
    pub change: CandleChange,
}

impl SymbolCandle {
    /// What a newer one of replaces.
    pub fn key(&self) -> (Symbol, Interval) {
        (self.symbol, self.change.interval)
    }
}

/// How a group's leader is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Status {
    /// Its name.
    pub node: String,
    /// Its epoch.
    pub epoch: u64,
    /// Messages of the bus that it has not handled.
    pub behind: u64,
    /// How old the oldest of them is, in milliseconds.
    pub behind_ms: u64,
    /// Symbols with an open gap.
    pub stale: u64,
    /// Whether it builds itself anew and must not be shown.
    pub rebuilding: bool,
    /// Ticks handled.
    pub ticks: u64,
    /// Numbers that came after a higher one.
    pub violations: u64,
    /// Numbers that came again.
    pub duplicates: u64,
    /// Numbers that were left out when a higher one came.
    pub gaps: u64,
    /// Numbers that have not come.
    pub lost: u64,
    /// Ticks of an epoch that was left behind.
    pub steps_back: u64,
    /// Messages that were no ticks.
    pub bad: u64,
    /// Time from reading a tick to its acknowledged write: the 50th percentile in microseconds.
    pub written_p50_us: u64,
    /// And the 99th.
    pub written_p99_us: u64,
    /// Loops that its load asks for, see [`crate::plant::recommended_loops`].
    pub loops_wanted: u32,
}

/// What a member says of itself, whether it leads or not. It is there for [`NOTE_LASTS`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct MemberNote {
    /// Whether it leads.
    pub leads: bool,
    /// How it is doing.
    pub status: Status,
}

/// Which group is shown. The highest version counts, wherever it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Grows with each switch.
    pub version: u64,
    /// The group.
    pub group: GroupName,
}

/// What is written at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Quotes, each symbol once.
    pub quotes: Vec<Quote>,
    /// Candles that changed.
    pub candles: Vec<SymbolCandle>,
    /// Detected events.
    pub events: Vec<DetectedEvent>,
    /// How the leader is doing, when it is time to say so.
    pub status: Option<Status>,
}

impl Batch {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.quotes.is_empty() && self.candles.is_empty() && self.events.is_empty() && self.status.is_none()
    }
}

/// What a write brings back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// How often somebody has asked this group to rebuild itself.
    pub rebuilds: u64,
}

/// Something that was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A quote.
    Quote(Quote),
    /// A candle.
    Candle(SymbolCandle),
    /// A detected event.
    Event(DetectedEvent),
    /// How the leader is doing.
    Status(Status),
    /// Another group is shown.
    Active(Active),
}

/// All that is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Quotes, candles, the last [`EVENTS`] events (oldest first), the status while its leader lives, and which group is shown.
    pub entries: Vec<Entry>,
    /// The members that are there, by name.
    pub members: Vec<MemberNote>,
    /// The highest epoch that has written.
    pub epoch: u64,
    /// Writes of lower epochs that were refused.
    pub refused: u64,
}

/// Why a cache does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// A leader of a higher epoch has written.
    #[error("epoch {mine} may not write any more: a leader of epoch {highest} has written")]
    Fenced {
        /// The writer's epoch.
        mine: u64,
        /// The highest one.
        highest: u64,
    },
    /// It does not answer now.
    #[error("the cache {place} does not answer: {reason}. It is tried again")]
    Away {
        /// Which.
        place: String,
        /// Why.
        reason: String,
    },
    /// Something else than ours is there.
    #[error(
        "the cache {place} holds something that this build cannot read: {reason}. Give it a prefix of its own"
    )]
    Foreign {
        /// Which.
        place: String,
        /// What.
        reason: String,
    },
    /// An impossible setting.
    #[error("the cache {place}: {reason}")]
    Config {
        /// Which.
        place: String,
        /// Why.
        reason: String,
    },
}

/// The cache of one group.
///
/// **Law:** a write of an epoch below the highest that has written changes nothing, is counted, and is told to its writer; the comparison and the write
/// are one step. What was written is what is read, quotes and candles by the last write of each; subscribers get writes in their order. A status
/// is there only as long as it is renewed ([`STATUS_LASTS`]).
pub trait GroupCache: Send + Sync {
    /// Writes as the leader of this epoch.
    ///
    /// # Errors
    /// [`CacheError::Fenced`], [`CacheError::Away`]: then it may have been written or not; everything in it may be written again.
    fn write(&self, epoch: u64, batch: &Batch) -> Result<Written, CacheError>;

    /// All that is there.
    ///
    /// # Errors
    /// [`CacheError::Away`], [`CacheError::Foreign`].
    fn read(&self) -> Result<Contents, CacheError>;

    /// Everything that is written from now on.
    ///
    /// # Errors
    /// [`CacheError::Away`].
    fn subscribe(&self) -> Result<Box<dyn Subscription>, CacheError>;

    /// Says that a member is there. Not fenced: it says nothing of ticks.
    ///
    /// # Errors
    /// [`CacheError::Away`].
    fn announce(&self, note: &MemberNote) -> Result<(), CacheError>;

    /// Says which group is shown, unless a higher version is there; what is there then.
    ///
    /// # Errors
    /// [`CacheError::Away`].
    fn set_active(&self, active: Active) -> Result<Active, CacheError>;

    /// Asks the group's leader to rebuild itself from the bus.
    ///
    /// # Errors
    /// [`CacheError::Away`].
    fn ask_rebuild(&self) -> Result<(), CacheError>;
}

/// A status that was not renewed for so long is no longer there.
pub const STATUS_LASTS: Duration = Duration::from_millis(1000);

/// A member that has not said that it is there for so long is not.
pub const NOTE_LASTS: Duration = Duration::from_millis(3000);

/// What a subscriber reads.
pub trait Subscription: Send {
    /// Waits for the next write and adds what is in it to `out`; nothing when the time is over.
    ///
    /// # Errors
    /// [`CacheError`]: the subscription is over, and what is written until the next one is missing in it.
    fn next(&mut self, timeout: Duration, out: &mut Vec<Entry>) -> Result<(), CacheError>;
}
