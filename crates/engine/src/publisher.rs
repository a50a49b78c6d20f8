//! The publisher: decides which topics an event goes to, gives it its number there, and appends.
//!
//! A number counts the messages of one topic **and partition** from 1 without holes. It is a pure function of the journal, so an event has
//! the same number whenever it is published, and publishing again after a crash cannot double anything: the last message of each partition
//! tells where to go on.

use hoga_core::codec;
use hoga_core::event::{Event, EventRecord, Reject};
use hoga_core::ids::{AccountId, EXCHANGE_ACCOUNT, Seq, Timestamp};
use hoga_log::LogError;
use hoga_log::event_log::{Cleanup, EventLog, Message, TopicSpec, partition_for};

use crate::config::EngineConfig;
use crate::error::EngineError;

/// Trades, keyed by market (u16, little-endian).
pub const TRADES: &str = "trade.completed";
/// Everything that happened to accounts and orders, keyed by account (u32, little-endian).
pub const LIFECYCLE: &str = "order.lifecycle";
/// The latest state of each order, keyed by order (u64, little-endian); compacted.
pub const PROJECTION: &str = "order.projection";

/// Numbers given out so far, of each partition of each topic.
pub(crate) type Counters = Vec<(&'static str, Vec<u64>)>;

/// The publisher of one engine.
pub(crate) struct Publisher {
    topics: [Topic; 3],
}

struct Topic {
    name: &'static str,
    /// Numbers given out, by partition.
    counters: Vec<u64>,
    /// The last message that was there at the start, by partition.
    tails: Vec<Tail>,
    /// Encoded messages that are not appended yet, one after the other: key, value, key, value, …
    waiting: Vec<u8>,
    marks: Vec<Mark>,
}

#[derive(Clone, Default)]
struct Tail {
    number: u64,
    /// The command behind it.
    seq: Seq,
    /// The message's bytes; equal bytes are expected when its number comes up again. Empty once checked.
    value: Vec<u8>,
}

/// Where a waiting message is.
#[derive(Clone, Copy)]
struct Mark {
    key: usize,
    value: usize,
    end: usize,
    time: Timestamp,
}

/// A topic's key: at most eight bytes.
#[derive(Clone, Copy)]
struct Key {
    bytes: [u8; 8],
    len: usize,
}

impl Key {
    fn new(bytes: &[u8]) -> Key {
        let mut key = Key { bytes: [0; 8], len: bytes.len() };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        key
    }

    fn account(account: AccountId) -> Key {
        Key::new(&account.0.to_le_bytes())
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Publisher {
    /// Makes the topics where they are missing, and reads where each partition ends.
    pub fn open(config: &EngineConfig, log: &dyn EventLog) -> Result<Publisher, EngineError> {
        let partitions = &config.partitions;
        let keep = || Cleanup::Delete { retention_bytes: config.topic_retention_bytes };
        let topics = [
            Topic::open(TRADES, partitions.trades, keep(), log)?,
            Topic::open(LIFECYCLE, partitions.lifecycle, keep(), log)?,
            Topic::open(PROJECTION, partitions.projection, Cleanup::Compact, log)?,
        ];
        Ok(Publisher { topics })
    }

    /// Starts counting at a snapshot's counters, or at nothing.
    pub fn resume(&mut self, counters: Option<&[(String, Vec<u64>)]>) -> Result<(), EngineError> {
        for topic in &mut self.topics {
            topic.counters.iter_mut().for_each(|counter| *counter = 0);
            let Some(counters) = counters else { continue };
            let found = counters.iter().find(|(name, _)| name == topic.name).map(|(_, counters)| counters);
            match found {
                Some(found) if found.len() == topic.counters.len() => topic.counters.clone_from(found),
                _ => {
                    let reason = format!(
                        "it has {} partitions, the snapshot counts {}",
                        topic.counters.len(),
                        found.map_or(0, Vec::len)
                    );
                    return Err(EngineError::TopicForeign { topic: topic.name, partition: 0, reason });
                }
            }
        }
        Ok(())
    }

    /// The numbers given out so far.
    pub fn counters(&self) -> Counters {
        self.topics.iter().map(|topic| (topic.name, topic.counters.clone())).collect()
    }

    /// Numbers an event and keeps it for the next [`Publisher::flush`], unless it was in the topic at the start.
    pub fn add(&mut self, record: &EventRecord) -> Result<(), EngineError> {
        let [trades, lifecycle, projection] = &mut self.topics;
        match &record.event {
            Event::Trade(trade) => trades.add(Key::new(&trade.market.0.to_le_bytes()), record),
            Event::Order(order) => {
                lifecycle.add(Key::account(order.order.request.account), record)?;
                projection.add(Key::new(&order.order.id.0.to_le_bytes()), record)
            }
            Event::Transfer(transfer) => lifecycle.add(Key::account(transfer.account), record),
            Event::AccountCreated { account } => lifecycle.add(Key::account(*account), record),
            // An account that does not exist has no partition of its own.
            Event::Rejected(rejection) if rejection.reason == Reject::UnknownAccount => {
                lifecycle.add(Key::account(EXCHANGE_ACCOUNT), record)
            }
            Event::Rejected(rejection) => lifecycle.add(Key::account(rejection.account), record),
            Event::AssetAdded { .. } | Event::InstrumentSet(_) | Event::StateSet { .. } => {
                lifecycle.add(Key::account(EXCHANGE_ACCOUNT), record)
            }
            Event::Level(_) => Ok(()), // market data only: it follows from the rest
        }
    }

    /// Appends what was added; returns how many messages.
    pub fn flush(&mut self, log: &dyn EventLog) -> Result<u64, LogError> {
        let mut count = 0;
        for topic in &mut self.topics {
            count += topic.flush(log)?;
        }
        Ok(count)
    }

    /// After the whole journal was replayed, to `journal`: no topic may be ahead of it.
    pub fn check_not_ahead(&self, journal: Seq) -> Result<(), EngineError> {
        for topic in &self.topics {
            for (partition, (tail, counter)) in topic.tails.iter().zip(&topic.counters).enumerate() {
                if tail.number > *counter {
                    let witness =
                        format!("message {} of topic {} partition {partition}", tail.number, topic.name);
                    return Err(EngineError::JournalBehind { journal, witness, needed: tail.seq });
                }
            }
        }
        Ok(())
    }

    /// Where a topic ends before these counters: messages that a replay from there would not make again.
    pub fn hole(&self, counters: &[(String, Vec<u64>)]) -> Option<EngineError> {
        for topic in &self.topics {
            let counters = counters
                .iter()
                .find(|(name, _)| name == topic.name)
                .map_or(&[][..], |(_, counters)| counters);
            for (partition, (tail, counter)) in topic.tails.iter().zip(counters).enumerate() {
                if tail.number < *counter {
                    let (tail, from) = (tail.number, *counter + 1);
                    return Some(EngineError::TopicHole {
                        topic: topic.name,
                        partition: partition as u32,
                        tail,
                        from,
                    });
                }
            }
        }
        None
    }
}

impl Topic {
    fn open(
        name: &'static str,
        partitions: u32,
        cleanup: Cleanup,
        log: &dyn EventLog,
    ) -> Result<Topic, EngineError> {
        log.create_topic(&TopicSpec { name: name.to_owned(), partitions, cleanup })?;
        let mut tails = Vec::with_capacity(partitions as usize);
        for partition in 0..partitions {
            let tail = match log.tail(name, partition)?.and_then(|message| message.value) {
                None => Tail::default(),
                Some(value) => {
                    let (number, record) =
                        codec::decode_event(&value).map_err(|error| EngineError::TopicForeign {
                            topic: name,
                            partition,
                            reason: format!("its last message is not an event: {error}"),
                        })?;
                    Tail { number, seq: record.seq, value }
                }
            };
            tails.push(tail);
        }
        let counters = vec![0; partitions as usize];
        Ok(Topic { name, counters, tails, waiting: Vec::new(), marks: Vec::new() })
    }

    fn add(&mut self, key: Key, record: &EventRecord) -> Result<(), EngineError> {
        let partitions = self.counters.len() as u32;
        let partition = if partitions == 1 { 0 } else { partition_for(key.as_slice(), partitions) as usize };
        self.counters[partition] += 1;
        let number = self.counters[partition];
        let start = self.waiting.len();
        if number < self.tails[partition].number {
            return Ok(());
        }
        self.waiting.extend_from_slice(key.as_slice());
        let value = self.waiting.len();
        codec::encode_event(record, number, &mut self.waiting);
        if number == self.tails[partition].number {
            let tail = std::mem::take(&mut self.tails[partition].value);
            let same = self.waiting[value..] == tail[..];
            self.waiting.truncate(start);
            if !same {
                let reason =
                    format!("message {number} differs from what the journal gives (command {})", record.seq);
                return Err(EngineError::TopicForeign {
                    topic: self.name,
                    partition: partition as u32,
                    reason,
                });
            }
            return Ok(());
        }
        self.marks.push(Mark { key: start, value, end: self.waiting.len(), time: record.time });
        Ok(())
    }

    fn flush(&mut self, log: &dyn EventLog) -> Result<u64, LogError> {
        if self.marks.is_empty() {
            return Ok(0);
        }
        let waiting = &self.waiting;
        let message = |mark: &Mark| Message {
            key: &waiting[mark.key..mark.value],
            value: Some(&waiting[mark.value..mark.end]),
            time: mark.time,
        };
        let messages: Vec<Message<'_>> = self.marks.iter().map(message).collect();
        log.append(self.name, &messages)?;
        let count = messages.len() as u64;
        self.marks.clear();
        self.waiting.clear();
        Ok(count)
    }
}
