//! The durable parts of Hoga: the ring between threads, the journal of commands and the event log.
//!
//! - [`ring`]: a bounded queue from many producers to one consumer, and [`ring::Cursor`], a position that threads wait
//!   for.
//! - [`storage`]: the small trait behind which the disk sits, so that a test can crash it.
//! - [`segment`]: the format of a segment file: batches of records with checksums, shared by journal and event log.
//! - [`journal`]: one writer, group commit, recovery, readers that follow, and the functions behind
//!   `hoga journal verify|dump|stats`.
//! - [`event_log`]: topics, partitions and offsets; in memory, in segment files, or on Apache Kafka.
//! - [`relay`]: carries a local event log to one over the network.
//! - [`lease`]: which of several candidates leads, and in which epoch.
//! - [`lag`]: how far groups are behind, why, and when that will be over.
//! - [`consumer`]: what reads them: groups with members, order by key, commits, dead letters.
//!
//! **Architecture invariants:** nothing in this crate knows what a command or an event is (payloads are bytes). No
//! failed write or sync is ever tried again. No length that was read from a file is believed before it was bounded.

pub mod consumer;
mod error;
pub mod event_log;
pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod lag;
pub mod lease;
#[cfg(all(test, feature = "model"))]
mod model;
pub mod relay;
pub mod ring;
#[cfg(test)]
mod ring_tests;
pub mod segment;
pub mod storage;
mod sync;
mod wait;

pub use error::LogError;
