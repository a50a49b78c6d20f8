//! The event log in segment files.
//!
//! ```text
//! lock
//! topics/<name>/spec                  what the topic is
//! topics/<name>/<partition>/*.seg     its messages, in the journal's format
//! groups/*.seg                        commits of consumer groups
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use super::groups::Groups;
use super::partition::Partition;
use super::{
    Cleanup, EventLog, GroupOffset, Maintenance, Message, StoredMessage, TopicSpec, check_group,
    check_messages, compact, partition_for,
};
use crate::error::LogError;
use crate::journal::Durability;
use crate::segment::crc32c;
use crate::storage::{Disk, Storage, read_small, replace_small};

/// How an [`EmbeddedLog`] is kept.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Length of a segment file, 4 KiB to 1 GiB. Retention and compaction work on whole segments.
    pub segment_bytes: u64,
    /// `Write` (the default): an append survives the end of the process, and a power cut after a sync; the publisher
    /// appends again what is lost. `Sync`: each append is synced.
    pub durability: Durability,
    /// Whether retention and compaction may remove what a registered group has not consumed.
    pub retention_ignores_groups: bool,
    /// How long compaction keeps a tombstone, counted in the times of the messages.
    pub tombstone_keep: Duration,
    /// About the most keys that one compaction holds in memory.
    pub compact_keys: usize,
    /// After about so many commits of consumer groups, those that newer ones replace are removed from the disk.
    pub fold_commits: u64,
}

impl Default for EmbeddedConfig {
    fn default() -> EmbeddedConfig {
        EmbeddedConfig {
            segment_bytes: 16 << 20,
            durability: Durability::Write,
            retention_ignores_groups: false,
            tombstone_keep: Duration::from_secs(24 * 3600),
            compact_keys: 1 << 20,
            fold_commits: 1000,
        }
    }
}

struct Topic<S: Storage> {
    spec: TopicSpec,
    partitions: Vec<Partition<S>>,
}

/// An [`EventLog`] in segment files.
pub struct EmbeddedLog<S: Storage = Disk> {
    storage: S,
    dir: PathBuf,
    config: EmbeddedConfig,
    topics: RwLock<BTreeMap<String, Arc<Topic<S>>>>,
    /// One creation at a time; reading goes on meanwhile.
    creating: Mutex<()>,
    groups: Groups<S>,
    _lock: S::Lock,
}

impl EmbeddedLog<Disk> {
    /// Opens the log in a folder of the real disk, or makes a new one.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::Locked`], [`LogError::Config`], [`LogError::Io`].
    pub fn open(dir: impl Into<PathBuf>, config: EmbeddedConfig) -> Result<EmbeddedLog<Disk>, LogError> {
        EmbeddedLog::open_on(Disk, dir, config)
    }
}

impl<S: Storage> EmbeddedLog<S> {
    /// Opens the log in a folder of some storage, or makes a new one.
    ///
    /// # Errors
    /// As [`EmbeddedLog::open`].
    pub fn open_on(
        storage: S,
        dir: impl Into<PathBuf>,
        config: EmbeddedConfig,
    ) -> Result<EmbeddedLog<S>, LogError> {
        let dir = dir.into();
        let topics_dir = dir.join("topics");
        storage.create_dir(&topics_dir).map_err(LogError::io("creating", &topics_dir))?;
        let lock = storage.lock(&dir).map_err(LogError::io("locking", &dir))?;
        let lock = lock.ok_or_else(|| LogError::Locked { path: dir.clone() })?;
        let groups = Groups::open(storage.clone(), &dir.join("groups"), config.fold_commits)?;
        let mut topics = BTreeMap::new();
        for name in storage.list(&topics_dir).map_err(LogError::io("listing", &topics_dir))? {
            // A topic exists once its specification does; a folder without one is a creation that did not finish.
            let topic_dir = topics_dir.join(&name);
            if let Some(spec) = read_spec(&storage, &topic_dir, &name)? {
                // The process that wrote it may have been killed before it was durable, and messages are about to depend on it.
                storage.sync_dir(&topic_dir).map_err(LogError::io("syncing", &topic_dir))?;
                topics.insert(name, Arc::new(open_topic(&storage, &dir, spec, &config)?));
            }
        }
        let topics = RwLock::new(topics);
        Ok(EmbeddedLog { storage, dir, config, topics, creating: Mutex::default(), groups, _lock: lock })
    }

    fn topic(&self, topic: &str) -> Result<Arc<Topic<S>>, LogError> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.get(topic).cloned().ok_or_else(|| LogError::NoTopic { topic: topic.into() })
    }

    fn all(&self) -> Vec<Arc<Topic<S>>> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl<S: Storage> Topic<S> {
    fn partition(&self, partition: u32) -> Result<&Partition<S>, LogError> {
        self.partitions.get(partition as usize).ok_or_else(|| LogError::NoPartition {
            topic: self.spec.name.clone(),
            partition,
            partitions: self.spec.partitions,
        })
    }
}

/// What the groups of a partition have consumed, as its maintenance asks.
pub(super) struct Consumed<'a, S: Storage> {
    groups: &'a Groups<S>,
    topic: &'a str,
    partition: u32,
    ignored: bool,
}

impl<S: Storage> Consumed<'_, S> {
    /// The offset before which messages may go. Asked under the partition's lock of maintenance, so that every group that
    /// is registered by then counts.
    pub(super) fn limit(&self) -> u64 {
        let lowest = if self.ignored { None } else { self.groups.lowest(self.topic, self.partition) };
        lowest.unwrap_or(u64::MAX)
    }

    /// Makes the commits durable behind [`Consumed::limit`]: a power cut must not take a group back to messages that have
    /// gone since.
    pub(super) fn sync(&self) -> Result<(), LogError> {
        self.groups.sync()
    }
}

fn open_topic<S: Storage>(
    storage: &S,
    dir: &Path,
    spec: TopicSpec,
    config: &EmbeddedConfig,
) -> Result<Topic<S>, LogError> {
    let topic_dir = dir.join("topics").join(&spec.name);
    let mut partitions = Vec::with_capacity(spec.partitions as usize);
    for number in 0..spec.partitions {
        partitions.push(Partition::open(storage.clone(), &topic_dir.join(format!("{number:04}")), config)?);
    }
    Ok(Topic { spec, partitions })
}

fn encode_spec(spec: &TopicSpec) -> String {
    let cleanup = match spec.cleanup {
        Cleanup::Delete { retention_bytes } => format!("delete {retention_bytes}"),
        Cleanup::Compact => "compact".into(),
    };
    let text =
        format!("hoga-topic 1\nname {}\npartitions {}\ncleanup {cleanup}\n", spec.name, spec.partitions);
    format!("{text}crc {:08x}\n", crc32c(text.as_bytes()))
}

fn decode_spec(text: &str) -> Option<TopicSpec> {
    let (body, crc) = text.split_at(text.rfind("crc ")?);
    if u32::from_str_radix(crc.strip_prefix("crc ")?.trim_end(), 16).ok()? != crc32c(body.as_bytes()) {
        return None;
    }
    let mut lines = body.strip_prefix("hoga-topic 1\n")?.lines();
    let name = lines.next()?.strip_prefix("name ")?.to_string();
    let partitions = lines.next()?.strip_prefix("partitions ")?.parse().ok()?;
    let cleanup = match lines.next()?.strip_prefix("cleanup ")? {
        "compact" => Cleanup::Compact,
        delete => Cleanup::Delete { retention_bytes: delete.strip_prefix("delete ")?.parse().ok()? },
    };
    Some(TopicSpec { name, partitions, cleanup })
}

fn read_spec<S: Storage>(storage: &S, dir: &Path, name: &str) -> Result<Option<TopicSpec>, LogError> {
    let path = dir.join("spec");
    if !storage.exists(&path).map_err(LogError::io("looking for", &path))? {
        return Ok(None);
    }
    let bytes = read_small(storage, &path, 4096).map_err(LogError::io("reading", &path))?;
    let spec = std::str::from_utf8(&bytes).ok().and_then(decode_spec);
    let spec = spec.filter(|spec| spec.name == name && spec.check().is_ok());
    match spec {
        Some(spec) => Ok(Some(spec)),
        None => Err(LogError::Damaged {
            path,
            offset: 0,
            expected: 0,
            what: "the specification of the topic there is not what was written".into(),
        }),
    }
}

impl<S: Storage> EventLog for EmbeddedLog<S> {
    fn create_topic(&self, spec: &TopicSpec) -> Result<(), LogError> {
        spec.check()?;
        let _one = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(existing) = self.topic(&spec.name) {
            return if existing.spec == *spec { Ok(()) } else { Err(existing.spec.differs(spec)) };
        }
        let topic = open_topic(&self.storage, &self.dir, spec.clone(), &self.config)?;
        let dir = self.dir.join("topics").join(&spec.name);
        replace_small(&self.storage, &dir, "spec", encode_spec(spec).as_bytes())
            .map_err(LogError::io("writing the specification in", &dir))?;
        self.topics
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(spec.name.clone(), Arc::new(topic));
        Ok(())
    }

    fn append(&self, topic: &str, messages: &[Message<'_>]) -> Result<(), LogError> {
        let topic = self.topic(topic)?;
        check_messages(messages)?;
        if messages.is_empty() {
            return Ok(());
        }
        if topic.spec.partitions == 1 {
            return topic.partition(0)?.append(messages.iter());
        }
        let mut routed: Vec<(u32, u32)> = (0u32..)
            .zip(messages)
            .map(|(at, message)| (partition_for(message.key, topic.spec.partitions), at))
            .collect();
        routed.sort_unstable();
        for group in routed.chunk_by(|a, b| a.0 == b.0) {
            topic.partition(group[0].0)?.append(group.iter().map(|(_, at)| &messages[*at as usize]))?;
        }
        Ok(())
    }

    fn partition_of(&self, topic: &str, key: &[u8]) -> Result<u32, LogError> {
        Ok(partition_for(key, self.topic(topic)?.spec.partitions))
    }

    fn tail(&self, topic: &str, partition: u32) -> Result<Option<StoredMessage>, LogError> {
        self.topic(topic)?.partition(partition)?.tail()
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        max_messages: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        self.topic(topic)?.partition(partition)?.read(offset, max_messages, out)
    }

    fn start_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        Ok(self.topic(topic)?.partition(partition)?.start_offset())
    }

    fn end_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        Ok(self.topic(topic)?.partition(partition)?.end.get())
    }

    fn wait_for(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        timeout: Duration,
    ) -> Result<bool, LogError> {
        Ok(self.topic(topic)?.partition(partition)?.end.wait_beyond(offset, timeout) > offset)
    }

    fn commit(&self, group: &str, topic: &str, partition: u32, offset: u64) -> Result<(), LogError> {
        check_group(group)?;
        let found = self.topic(topic)?;
        let found = found.partition(partition)?;
        let key = (group.into(), topic.into(), partition);
        // A maintenance that runs does not know a group that registers now, so registering waits for its end.
        let registers = self.groups.get(&key).is_none();
        let _quiet = registers.then(|| found.maintenance.lock().unwrap_or_else(PoisonError::into_inner));
        self.groups.commit(key, offset)
    }

    fn committed(&self, group: &str, topic: &str, partition: u32) -> Result<Option<u64>, LogError> {
        self.topic(topic)?.partition(partition)?;
        Ok(self.groups.get(&(group.into(), topic.into(), partition)))
    }

    fn sync(&self) -> Result<(), LogError> {
        for topic in self.all() {
            for partition in &topic.partitions {
                partition.sync()?;
            }
        }
        // Commits last, so that a commit is never more durable than the messages that it speaks of.
        self.groups.sync()
    }

    fn topics(&self) -> Vec<TopicSpec> {
        self.all().iter().map(|topic| topic.spec.clone()).collect()
    }

    fn groups(&self) -> Vec<GroupOffset> {
        let offset = |((group, topic, partition), offset): ((String, String, u32), u64)| {
            let end = self.end_offset(&topic, partition).unwrap_or(offset);
            GroupOffset { group, topic, partition, offset, end }
        };
        self.groups.all().into_iter().map(offset).collect()
    }

    fn forget_group(&self, group: &str, topic: &str) -> Result<bool, LogError> {
        self.groups.forget(group, topic)
    }

    fn maintain(&self) -> Result<Maintenance, LogError> {
        let mut done = Maintenance::default();
        for topic in self.all() {
            for (number, partition) in (0u32..).zip(&topic.partitions) {
                let consumed = Consumed {
                    groups: &self.groups,
                    topic: &topic.spec.name,
                    partition: number,
                    ignored: self.config.retention_ignores_groups,
                };
                let held = match topic.spec.cleanup {
                    Cleanup::Delete { retention_bytes } => {
                        let (removed, held) = partition.retain(retention_bytes, &consumed)?;
                        done.removed += removed;
                        held
                    }
                    Cleanup::Compact => {
                        let (compacted, held) = compact::compact(partition, &consumed, &self.config)?;
                        done.compacted += compacted;
                        held
                    }
                };
                done.held += u64::from(held);
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
#[path = "embedded_tests.rs"]
mod tests;
