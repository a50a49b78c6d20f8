//! The event log in memory: for tests, and for a process whose events need not outlive it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use super::{
    Cleanup, EventLog, GroupOffset, Maintenance, Message, StoredMessage, TopicSpec, check_group,
    check_messages, partition_for,
};
use crate::error::LogError;
use crate::ring::Cursor;

/// An [`EventLog`] in memory.
#[derive(Default)]
pub struct MemoryLog {
    topics: RwLock<BTreeMap<String, Arc<Topic>>>,
    groups: Mutex<BTreeMap<(String, String, u32), u64>>,
}

struct Topic {
    spec: TopicSpec,
    partitions: Vec<Partition>,
}

struct Partition {
    messages: Mutex<Messages>,
    end: Cursor,
}

#[derive(Default)]
struct Messages {
    start: u64,
    /// By offset; with holes once compacted.
    list: VecDeque<StoredMessage>,
    bytes: u64,
    /// The last message, which stays known when it was removed.
    last: Option<StoredMessage>,
}

fn size(message: &StoredMessage) -> u64 {
    (message.key.len() + message.value.as_ref().map_or(0, Vec::len) + 24) as u64
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> MemoryLog {
        MemoryLog::default()
    }

    fn topic(&self, topic: &str) -> Result<Arc<Topic>, LogError> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.get(topic).cloned().ok_or_else(|| LogError::NoTopic { topic: topic.into() })
    }

    fn groups(&self) -> MutexGuard<'_, BTreeMap<(String, String, u32), u64>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Topic {
    fn partition(&self, partition: u32) -> Result<&Partition, LogError> {
        self.partitions.get(partition as usize).ok_or_else(|| LogError::NoPartition {
            topic: self.spec.name.clone(),
            partition,
            partitions: self.spec.partitions,
        })
    }
}

impl Partition {
    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: &Message<'_>) {
        let mut messages = self.messages();
        let stored = StoredMessage {
            offset: self.end.get(),
            key: message.key.to_vec(),
            value: message.value.map(<[u8]>::to_vec),
            time: message.time,
        };
        messages.bytes += size(&stored);
        messages.last = Some(stored.clone());
        messages.list.push_back(stored);
        self.end.advance(self.end.get() + 1);
    }
}

impl Messages {
    /// Removes from the front while there is too much and the limit allows; says how many went and whether it had to
    /// stop early.
    fn retain(&mut self, retention_bytes: u64, limit: u64) -> (u64, bool) {
        let mut removed = 0;
        while self.bytes > retention_bytes {
            let Some(front) = self.list.front() else { break };
            if front.offset >= limit {
                return (removed, true);
            }
            self.start = front.offset + 1;
            self.bytes -= size(front);
            self.list.pop_front();
            removed += 1;
        }
        (removed, false)
    }

    /// Of the messages before `limit`, keeps the last of each key; tombstones too, since a slow reader has to see them.
    /// Says how many went and whether the limit kept some.
    fn compact(&mut self, limit: u64) -> (u64, bool) {
        let before = self.list.len();
        let mut held = false;
        let last: HashMap<Vec<u8>, u64> =
            self.list.iter().map(|message| (message.key.clone(), message.offset)).collect();
        self.list.retain(|message| {
            let replaced = last.get(&message.key) != Some(&message.offset);
            let wanted = message.offset >= limit;
            held |= replaced && wanted;
            !replaced || wanted
        });
        self.bytes = self.list.iter().map(size).sum();
        ((before - self.list.len()) as u64, held)
    }
}

impl EventLog for MemoryLog {
    fn create_topic(&self, spec: &TopicSpec) -> Result<(), LogError> {
        spec.check()?;
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(existing) = topics.get(&spec.name) {
            return if existing.spec == *spec { Ok(()) } else { Err(existing.spec.differs(spec)) };
        }
        let partition = |_| Partition { messages: Mutex::default(), end: Cursor::new(0) };
        let partitions = (0..spec.partitions).map(partition).collect();
        topics.insert(spec.name.clone(), Arc::new(Topic { spec: spec.clone(), partitions }));
        Ok(())
    }

    fn append(&self, topic: &str, messages: &[Message<'_>]) -> Result<(), LogError> {
        let topic = self.topic(topic)?;
        check_messages(messages)?;
        for message in messages {
            topic.partition(partition_for(message.key, topic.spec.partitions))?.push(message);
        }
        Ok(())
    }

    fn partition_of(&self, topic: &str, key: &[u8]) -> Result<u32, LogError> {
        Ok(partition_for(key, self.topic(topic)?.spec.partitions))
    }

    fn tail(&self, topic: &str, partition: u32) -> Result<Option<StoredMessage>, LogError> {
        Ok(self.topic(topic)?.partition(partition)?.messages().last.clone())
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        max_messages: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        let topic = self.topic(topic)?;
        let partition = topic.partition(partition)?;
        let messages = partition.messages();
        let from = messages.list.partition_point(|message| message.offset < offset);
        let before = out.len();
        out.extend(messages.list.iter().skip(from).take(max_messages).cloned());
        let added = out.len() - before;
        if from + added == messages.list.len() {
            return Ok(partition.end.get().max(offset));
        }
        Ok(out[before..].last().map_or(offset, |message| message.offset + 1))
    }

    fn start_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        Ok(self.topic(topic)?.partition(partition)?.messages().start)
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
        self.topic(topic)?.partition(partition)?;
        let mut groups = self.groups();
        let committed = groups.entry((group.into(), topic.into(), partition)).or_insert(offset);
        *committed = (*committed).max(offset);
        Ok(())
    }

    fn committed(&self, group: &str, topic: &str, partition: u32) -> Result<Option<u64>, LogError> {
        self.topic(topic)?.partition(partition)?;
        Ok(self.groups().get(&(group.into(), topic.into(), partition)).copied())
    }

    fn sync(&self) -> Result<(), LogError> {
        Ok(())
    }

    fn topics(&self) -> Vec<TopicSpec> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.values().map(|topic| topic.spec.clone()).collect()
    }

    fn groups(&self) -> Vec<GroupOffset> {
        let groups = MemoryLog::groups(self).clone();
        let offset = |((group, topic, partition), offset): ((String, String, u32), u64)| {
            let end = self.end_offset(&topic, partition).unwrap_or(offset);
            GroupOffset { group, topic, partition, offset, end }
        };
        groups.into_iter().map(offset).collect()
    }

    fn forget_group(&self, group: &str, topic: &str) -> Result<bool, LogError> {
        let mut groups = MemoryLog::groups(self);
        let before = groups.len();
        groups.retain(|key, _| !(key.0 == group && key.1 == topic));
        Ok(groups.len() < before)
    }

    fn maintain(&self) -> Result<Maintenance, LogError> {
        let topics: Vec<Arc<Topic>> =
            self.topics.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut done = Maintenance::default();
        for topic in topics {
            for (number, partition) in topic.partitions.iter().enumerate() {
                // Until the partition is done nobody registers, so that nothing goes that a new group was promised.
                let groups = MemoryLog::groups(self);
                let mut messages = partition.messages();
                let of_partition =
                    |key: &(String, String, u32)| key.1 == topic.spec.name && key.2 as usize == number;
                let offsets = groups.iter().filter(|(key, _)| of_partition(key)).map(|(_, offset)| *offset);
                let limit = offsets.min().unwrap_or(u64::MAX);
                let held = match topic.spec.cleanup {
                    Cleanup::Delete { retention_bytes } => {
                        let (removed, held) = messages.retain(retention_bytes, limit);
                        done.removed += removed;
                        held
                    }
                    Cleanup::Compact => {
                        let (compacted, held) = messages.compact(limit);
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
