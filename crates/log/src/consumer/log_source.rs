//! One member that owns all partitions: for a log in this process, and for one over the network without membership.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Change, Control, Run, Source, TopicPartition};
use crate::error::LogError;
use crate::event_log::EventLog;

/// With several partitions one is waited for after the other, for so long each.
const TURN: Duration = Duration::from_millis(5);

struct Lane {
    place: TopicPartition,
    next: u64,
    committed: Option<u64>,
    registered: bool,
    paused: bool,
}

/// The one member of its group in a log: all partitions of its topics are its own from the first poll to the end.
///
/// Two of them for one group, in one process or two, would each read everything: whoever starts groups starts each once.
pub struct LogSource {
    log: Arc<dyn EventLog>,
    group: String,
    lanes: Vec<Lane>,
    assigned: bool,
    turn: usize,
}

impl LogSource {
    /// A member for all partitions of these topics. Registers the group, so that retention and compaction wait for it from now on; where
    /// the log's servers are away, with the first poll that reaches them.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], and what committing can meet except [`LogError::Unavailable`].
    pub fn new(log: Arc<dyn EventLog>, group: &str, topics: &[&str]) -> Result<LogSource, LogError> {
        let specs = log.topics();
        let mut lanes = Vec::new();
        for topic in topics {
            let spec = specs.iter().find(|spec| spec.name == *topic);
            let spec = spec.ok_or_else(|| LogError::NoTopic { topic: (*topic).into() })?;
            let topic: Arc<str> = Arc::from(*topic);
            lanes.extend((0..spec.partitions).map(|partition| Lane {
                place: TopicPartition { topic: topic.clone(), partition },
                next: 0,
                committed: None,
                registered: false,
                paused: false,
            }));
        }
        let mut source = LogSource { log, group: group.into(), lanes, assigned: false, turn: 0 };
        match source.register() {
            Err(fault) if !fault.is_transient() => Err(fault),
            _ => Ok(source),
        }
    }

    fn register(&mut self) -> Result<(), LogError> {
        for lane in self.lanes.iter_mut().filter(|lane| !lane.registered) {
            let (topic, partition) = (&lane.place.topic, lane.place.partition);
            self.log.commit(&self.group, topic, partition, 0)?;
            lane.committed = self.log.committed(&self.group, topic, partition)?;
            let first = self.log.start_offset(topic, partition)?;
            lane.next = first.max(lane.committed.unwrap_or(0));
            lane.registered = true;
        }
        Ok(())
    }

    fn lane(&mut self, place: &TopicPartition) -> Result<&mut Lane, LogError> {
        let group = &self.group;
        let lane = self.lanes.iter_mut().find(|lane| lane.place == *place);
        lane.ok_or_else(|| LogError::Config(format!("group {group} does not own {place}")))
    }

    /// Takes each partition in turn, beginning with another one each time: first an equal share of each, then what is left.
    fn read(&mut self, max_messages: usize, out: &mut Vec<Run>) -> Result<(), LogError> {
        let (before, count) = (out.len(), self.lanes.len());
        let mut left = max_messages;
        for share in [max_messages.div_ceil(count.max(1)), max_messages] {
            for at in 0..count {
                let lane = &mut self.lanes[(self.turn + at) % count];
                if lane.paused || left == 0 {
                    continue;
                }
                let mut messages = Vec::new();
                let (topic, partition) = (&lane.place.topic, lane.place.partition);
                let next = self.log.read(topic, partition, lane.next, share.min(left), &mut messages)?;
                if next <= lane.next && messages.is_empty() {
                    continue;
                }
                lane.next = next;
                left -= messages.len();
                match out[before..].iter_mut().find(|run| run.place == lane.place) {
                    Some(run) => {
                        run.messages.append(&mut messages);
                        run.next = next;
                    }
                    None => out.push(Run { place: lane.place.clone(), messages, next }),
                }
            }
        }
        self.turn = (self.turn + 1) % count.max(1);
        Ok(())
    }
}

impl Source for LogSource {
    fn group(&self) -> &str {
        &self.group
    }

    fn poll(
        &mut self,
        timeout: Duration,
        max_messages: usize,
        out: &mut Vec<Run>,
        change: &mut dyn FnMut(&mut dyn Control, Change),
    ) -> Result<(), LogError> {
        let deadline = Instant::now() + timeout;
        if !self.assigned {
            self.register()?;
            self.assigned = true;
            let places = self.lanes.iter().map(|lane| lane.place.clone()).collect();
            change(self, Change::Assigned(places));
        }
        let before = out.len();
        loop {
            self.read(max_messages, out)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if out.len() > before || left.is_zero() {
                return Ok(());
            }
            let reading = self.lanes.iter().filter(|lane| !lane.paused).count();
            let Some(lane) = self.lanes.iter().filter(|lane| !lane.paused).nth(self.turn % reading.max(1))
            else {
                // Whoever paused everything wants to be back after this time and not before.
                std::thread::sleep(left);
                return Ok(());
            };
            let time = if reading == 1 { left } else { left.min(TURN) };
            self.log.wait_for(&lane.place.topic, lane.place.partition, lane.next, time)?;
        }
    }

    fn control(&mut self) -> &mut dyn Control {
        self
    }

    fn leave(&mut self, _: Duration) -> Result<(), LogError> {
        Ok(())
    }
}

impl Control for LogSource {
    fn start_at(&mut self, place: &TopicPartition, offset: u64) -> Result<(), LogError> {
        self.lane(place)?.next = offset;
        Ok(())
    }

    fn pause(&mut self, place: &TopicPartition) -> Result<(), LogError> {
        self.lane(place)?.paused = true;
        Ok(())
    }

    fn resume(&mut self, place: &TopicPartition) -> Result<(), LogError> {
        self.lane(place)?.paused = false;
        Ok(())
    }

    fn commit(&mut self, offsets: &[(TopicPartition, u64)]) -> Result<(), LogError> {
        for (place, offset) in offsets {
            let committed = self.lane(place)?.committed;
            if committed.is_some_and(|committed| *offset < committed) {
                let text = format!("group {}: {place} is committed beyond {offset} already", self.group);
                return Err(LogError::Config(text));
            }
            self.log.commit(&self.group, &place.topic, place.partition, *offset)?;
            self.lane(place)?.committed = Some(*offset);
        }
        Ok(())
    }

    fn committed(&mut self, place: &TopicPartition) -> Result<Option<u64>, LogError> {
        Ok(self.lane(place)?.committed)
    }

    fn ends(&mut self, place: &TopicPartition) -> Result<(u64, u64), LogError> {
        let (topic, partition) = (&place.topic, place.partition);
        Ok((self.log.start_offset(topic, partition)?, self.log.end_offset(topic, partition)?))
    }
}
