//! An event log as a bus: in process (memory, embedded) and Apache Kafka.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hoga_log::LogError;
use hoga_log::event_log::{EventLog, StoredMessage};

use super::Bus;

/// How long one lane of several is waited for before the next is looked at.
const SLICE: Duration = Duration::from_millis(1);

/// A topic of an event log, whose partitions are the lanes.
pub struct LogBus {
    log: Arc<dyn EventLog>,
    topic: String,
    lanes: u32,
    turn: AtomicUsize,
}

impl LogBus {
    /// The topic must be there.
    ///
    /// # Errors
    /// [`LogError::NoTopic`].
    pub fn new(log: Arc<dyn EventLog>, topic: &str) -> Result<LogBus, LogError> {
        let spec = log.topics().into_iter().find(|spec| spec.name == topic);
        let lanes = spec.ok_or_else(|| LogError::NoTopic { topic: topic.into() })?.partitions;
        Ok(LogBus { log, topic: topic.into(), lanes, turn: AtomicUsize::new(0) })
    }
}

impl Bus for LogBus {
    fn lanes(&self) -> u32 {
        self.lanes
    }

    fn start(&self, lane: u32) -> Result<u64, LogError> {
        self.log.start_offset(&self.topic, lane)
    }

    fn end(&self, lane: u32) -> Result<u64, LogError> {
        self.log.end_offset(&self.topic, lane)
    }

    fn read(&self, lane: u32, from: u64, most: usize, out: &mut Vec<StoredMessage>) -> Result<u64, LogError> {
        self.log.follow(&self.topic, lane, from, most, Duration::ZERO, out)
    }

    fn wait(&self, places: &[(u32, u64)], timeout: Duration) -> Result<(), LogError> {
        // A log tells of one partition at a time: each in turn, so that none is found late more often than the others.
        let (at, timeout) = match places.len() {
            0 => return Ok(()),
            1 => (0, timeout),
            some => (self.turn.fetch_add(1, Ordering::Relaxed) % some, timeout.min(SLICE)),
        };
        let (lane, next) = places[at];
        self.log.follow(&self.topic, lane, next, 0, timeout, &mut Vec::new()).map(drop)
    }
}
