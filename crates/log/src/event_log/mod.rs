//! The event log: topics in partitions, read by consumer groups at their own pace.

mod compact;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod embedded;
mod groups;
mod memory;
mod message;
mod partition;

use std::time::Duration;

use hoga_core::ids::Timestamp;

use crate::error::LogError;

pub use embedded::{EmbeddedConfig, EmbeddedLog};
pub use memory::MemoryLog;

/// What happens to old messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// The oldest messages of a partition go when it is larger than this, but never one that a registered group has not
    /// yet consumed.
    Delete {
        /// Bytes that a partition may have.
        retention_bytes: u64,
    },
    /// Of each key the last message stays, and every message that a registered group has not yet consumed. Offsets do not
    /// change.
    Compact,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// Its name: 1 to 100 characters of `[a-z0-9._-]`, the first one a letter or digit.
    pub name: String,
    /// Number of partitions, from 1 to 1024.
    pub partitions: u32,
    /// What happens to old messages.
    pub cleanup: Cleanup,
}

impl TopicSpec {
    /// A topic whose old messages are deleted.
    pub fn delete(name: &str, partitions: u32, retention_bytes: u64) -> TopicSpec {
        TopicSpec { name: name.into(), partitions, cleanup: Cleanup::Delete { retention_bytes } }
    }

    /// A topic that keeps the last message of each key.
    pub fn compact(name: &str, partitions: u32) -> TopicSpec {
        TopicSpec { name: name.into(), partitions, cleanup: Cleanup::Compact }
    }

    /// Checks name and number of partitions.
    ///
    /// # Errors
    /// [`LogError::Config`].
    pub fn check(&self) -> Result<(), LogError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let starts = self.name.bytes().next().is_some_and(allowed);
        let rest = self.name.bytes().all(|byte| allowed(byte) || matches!(byte, b'.' | b'_' | b'-'));
        if !starts || !rest || self.name.len() > 100 {
            let text = format!(
                "{:?} is not a topic name: 1 to 100 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
                self.name
            );
            return Err(LogError::Config(text));
        }
        if !(1..=1024).contains(&self.partitions) {
            let text = format!("topic {} cannot have {} partitions: 1 to 1024", self.name, self.partitions);
            return Err(LogError::Config(text));
        }
        Ok(())
    }

    fn text(&self) -> String {
        match self.cleanup {
            Cleanup::Delete { retention_bytes } => {
                format!(
                    "{} partitions, cleanup = delete, retention_bytes = {retention_bytes}",
                    self.partitions
                )
            }
            Cleanup::Compact => format!("{} partitions, cleanup = compact", self.partitions),
        }
    }

    fn differs(&self, wanted: &TopicSpec) -> LogError {
        LogError::SpecDiffers { topic: self.name.clone(), existing: self.text(), wanted: wanted.text() }
    }
}

/// A message to be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Messages of one key are in one partition, in order.
    pub key: &'a [u8],
    /// The contents; `None` is a tombstone: in a compacted topic it deletes the key.
    pub value: Option<&'a [u8]>,
    /// When it happened.
    pub time: Timestamp,
}

/// A message in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its place in the partition, from 0.
    pub offset: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// Its contents; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// When it happened.
    pub time: Timestamp,
}

/// Longest key and value of a message together, in bytes.
pub const MAX_MESSAGE: usize = crate::segment::MAX_RECORD - 64;

/// Topics, partitions and consumer groups.
///
/// **Law** (the suite in `event_log::conformance` checks it on every implementation):
/// - The messages of one partition have offsets from 0, growing, without holes when they are written. Retention removes
///   from the front; compaction leaves holes; neither changes an offset.
/// - A message's partition is a pure function of its key and the number of partitions ([`partition_for`]).
/// - One caller's appends keep their order within a partition. An append is visible to readers at the latest when the next
///   [`EventLog::sync`] returns (on this machine: when it returns itself), and may be lost by a crash or a power cut until
///   then; then what is lost is an end: no message before one that is found is missing. Whoever appends must be able to
///   append again what the tail lacks. A log over the network takes messages into a bounded queue and lets `append` wait
///   while that is full, so that the rate is not bound to a round trip.
/// - A read returns only messages that were appended, in order of offset, each at most once.
/// - A committed offset is the next one to read. It never goes down. A group is registered for a partition from its first
///   commit on (commit 0 to register before reading), and retention and compaction then wait for it: of what comes at or
///   after the lowest committed offset of the partition's registered groups, no message goes. So a group that is behind
///   reads every message from its offset on that was there when it registered or came later, those that newer ones of
///   their key have replaced and tombstones included.
/// - A failed write poisons the partition: later appends fail.
pub trait EventLog: Send + Sync {
    /// Makes a topic; does nothing when it is there with the same specification.
    ///
    /// # Errors
    /// [`LogError::SpecDiffers`], [`LogError::Config`], [`LogError::Io`].
    fn create_topic(&self, spec: &TopicSpec) -> Result<(), LogError>;

    /// Appends messages, each to the partition of its key, in order.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::TooLarge`] (then nothing was appended), [`LogError::Io`],
    /// [`LogError::Poisoned`], [`LogError::Foreign`], [`LogError::Closed`].
    fn append(&self, topic: &str, messages: &[Message<'_>]) -> Result<(), LogError>;

    /// The partition of a key.
    ///
    /// # Errors
    /// [`LogError::NoTopic`].
    fn partition_of(&self, topic: &str, key: &[u8]) -> Result<u32, LogError>;

    /// The last message of a partition: how a publisher finds where to go on. `None` when nothing was ever appended.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`], [`LogError::Damaged`], [`LogError::Io`].
    fn tail(&self, topic: &str, partition: u32) -> Result<Option<StoredMessage>, LogError>;

    /// Adds up to `max_messages` messages from `offset` on to `out`, and returns the offset to read next. A call returns
    /// fewer when the end is reached or a few MiB were read; when it adds none, the returned offset says whether that is
    /// the end. An offset before the start reads from the start.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`], [`LogError::Damaged`], [`LogError::Io`].
    fn read(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        max_messages: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError>;

    /// The lowest offset that may still be there.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`].
    fn start_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError>;

    /// The offset that the next message will get.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`].
    fn end_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError>;

    /// Waits until the end is beyond `offset`, or the time is over; says whether it is.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`].
    fn wait_for(&self, topic: &str, partition: u32, offset: u64, timeout: Duration)
    -> Result<bool, LogError>;

    /// For who follows the end: waits up to `timeout` for something at `offset`, adds what is there as [`EventLog::read`] does, and returns the offset to read
    /// next. A log over the network need not ask its servers: what was appended a moment ago may come with a later call.
    ///
    /// # Errors
    /// As [`EventLog::read`].
    fn follow(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        max_messages: usize,
        timeout: Duration,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        if !timeout.is_zero() && !self.wait_for(topic, partition, offset, timeout)? || max_messages == 0 {
            return Ok(offset);
        }
        self.read(topic, partition, offset, max_messages, out)
    }

    /// Says that a group has consumed everything before `offset`. A lower offset than before changes nothing. It survives
    /// the end of the process at once, and a power cut after [`EventLog::sync`].
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`], [`LogError::Config`] for an impossible group name,
    /// [`LogError::Io`], [`LogError::Poisoned`].
    fn commit(&self, group: &str, topic: &str, partition: u32, offset: u64) -> Result<(), LogError>;

    /// What a group has committed; `None` when it is not registered.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`].
    fn committed(&self, group: &str, topic: &str, partition: u32) -> Result<Option<u64>, LogError>;

    /// Makes everything durable that was appended or committed before.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Poisoned`].
    fn sync(&self) -> Result<(), LogError>;

    /// All topics, by name.
    fn topics(&self) -> Vec<TopicSpec>;

    /// All committed offsets, by group, topic and partition.
    fn groups(&self) -> Vec<GroupOffset>;

    /// Removes a group's commits on a topic, so that retention and compaction do not wait for it any
    /// more. True when there were any.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Poisoned`].
    fn forget_group(&self, group: &str, topic: &str) -> Result<bool, LogError>;

    /// Removes and compacts what the topics' cleanup says. Slow; called now and then from a thread that may be slow.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Damaged`], [`LogError::Poisoned`].
    fn maintain(&self) -> Result<Maintenance, LogError>;
}

/// What a call of [`EventLog::maintain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// Messages or, where they are not counted, segments that retention removed.
    pub removed: u64,
    /// Messages that compaction removed.
    pub compacted: u64,
    /// Partitions of which more would have gone if some group were not behind.
    pub held: u64,
}

/// A group's place in a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupOffset {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The next offset to read.
    pub offset: u64,
    /// The end of the partition now; `end` − `offset` is the lag in messages.
    pub end: u64,
}

/// The partition of a key: FNV-1a (64 bits) over the key, finished with the mixer of SplitMix64, modulo the number of
/// partitions. **This never changes**: stored messages depend on it.
pub fn partition_for(key: &[u8], partitions: u32) -> u32 {
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for byte in key {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^= hash >> 31;
    (hash % u64::from(partitions.max(1))) as u32
}

pub(crate) fn check_group(group: &str) -> Result<(), LogError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=100).contains(&group.len()) && group.bytes().all(allowed) {
        return Ok(());
    }
    Err(LogError::Config(format!(
        "{group:?} is not a group name: 1 to 100 characters of a-z, A-Z, 0-9, '.', '_', '-'"
    )))
}

pub(crate) fn check_messages(messages: &[Message<'_>]) -> Result<(), LogError> {
    for message in messages {
        let bytes = message.key.len() + message.value.map_or(0, <[u8]>::len);
        if bytes > MAX_MESSAGE {
            return Err(LogError::TooLarge { bytes: bytes as u64, limit: MAX_MESSAGE as u64 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod order_tests;
