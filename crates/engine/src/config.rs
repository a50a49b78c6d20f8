//! How an engine is set up.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hoga_core::ids::{Seq, Timestamp};
use hoga_log::journal::Durability;

/// Where the sequencer's time comes from. It may step back; the sequencer then holds its own time until the clock has caught up.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        Timestamp(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

/// Tells the oldest command that somebody outside the engine still needs in the journal; segments before it may go.
pub type RetainFloor = Arc<dyn Fn() -> Seq + Send + Sync>;

/// Partitions of the three topics. They are fixed when a topic is first made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// Of `trade.completed`.
    pub trades: u32,
    /// Of `order.lifecycle`.
    pub lifecycle: u32,
    /// Of `order.projection`.
    pub projection: u32,
}

impl Default for Partitions {
    fn default() -> Partitions {
        Partitions { trades: 1, lifecycle: 1, projection: 1 }
    }
}

/// How an engine is set up. Make one with [`EngineConfig::new`] and change what should differ.
#[derive(Clone)]
pub struct EngineConfig {
    /// The engine's folder; it holds `journal/` and `snapshots/` and is made when missing.
    pub dir: PathBuf,
    /// What an answer promises. Default: on stable storage.
    pub durability: Durability,
    /// Under load, the least time from the beginning of one sync to the next, and of one piece of publishing to the next: what arrives
    /// meanwhile is served together. It is the most that it adds to a delay; zero switches it off. Default 500 µs.
    pub gather: Duration,
    /// Slots of the inbound ring; a power of two. Default 16,384.
    pub ring_capacity: usize,
    /// Slots of the ring that only cancels may use. Default 1,024.
    pub ring_reserve: usize,
    /// Size of a journal segment in bytes. Default 64 MiB.
    pub segment_bytes: u64,
    /// Commands between two snapshots; 0 for none. Default 1,000,000.
    pub snapshot_every: u64,
    /// Snapshots that are kept, at least 1. Default 2.
    pub snapshots_kept: usize,
    /// Bytes a second at which a snapshot is written, so that the journal's syncs do not wait behind it; 0 for no limit. Default 4 MiB.
    pub snapshot_rate: u64,
    /// Whether an orderly shutdown ends with a snapshot, for a quick next start. Default true.
    pub final_snapshot: bool,
    /// Queries that may wait; more are refused as busy. Default 4,096.
    pub query_capacity: usize,
    /// Partitions of the topics.
    pub partitions: Partitions,
    /// Bytes that each partition of `trade.completed` and `order.lifecycle` keeps at least. Default: no limit.
    pub topic_retention_bytes: u64,
    /// See [`RetainFloor`]. Default: nobody outside needs the journal.
    pub retain_floor: Option<RetainFloor>,
    /// The sequencer's clock. Default: the system's.
    pub clock: Arc<dyn Clock>,
}

impl EngineConfig {
    /// The defaults, in a folder.
    pub fn new(dir: impl Into<PathBuf>) -> EngineConfig {
        EngineConfig {
            dir: dir.into(),
            durability: Durability::Sync,
            gather: Duration::from_micros(500),
            ring_capacity: 16_384,
            ring_reserve: 1_024,
            segment_bytes: 64 << 20,
            snapshot_every: 1_000_000,
            snapshots_kept: 2,
            snapshot_rate: 4 << 20,
            final_snapshot: true,
            query_capacity: 4_096,
            partitions: Partitions::default(),
            topic_retention_bytes: u64::MAX,
            retain_floor: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// Where the journal's segments are.
    pub fn journal_dir(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Where the snapshots are.
    pub fn snapshot_dir(&self) -> PathBuf {
        self.dir.join("snapshots")
    }
}

impl fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineConfig")
            .field("dir", &self.dir)
            .field("durability", &self.durability)
            .field("ring_capacity", &self.ring_capacity)
            .field("ring_reserve", &self.ring_reserve)
            .field("segment_bytes", &self.segment_bytes)
            .field("snapshot_every", &self.snapshot_every)
            .field("snapshots_kept", &self.snapshots_kept)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}
