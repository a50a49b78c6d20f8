//! Reading partitions: a pool of readers, so that whoever reads on finds what was fetched ahead.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::config::KafkaConfig;
use super::context::{Deliveries, Quiet};
use super::fault;
use super::native::{Got, Handle, Reader};
use crate::error::LogError;
use crate::event_log::StoredMessage;

/// Readers that are kept for the next call.
const IDLE: usize = 64;
/// Of one partition: as many callers can read it in turns without seeking.
const IDLE_OF_PARTITION: usize = 3;
/// How long one that nobody uses goes on fetching.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// How long a call sleeps before it looks whether the log was closed.
const SLICE: Duration = Duration::from_millis(50);
/// How long one question to the brokers may block a thread, closed or not.
const QUESTION: Duration = Duration::from_secs(2);
/// Bytes after which a read returns.
const READ_BYTES: usize = 4 << 20;

/// A partition as it is named on the cluster.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) topic: &'a Arc<str>,
    pub(super) partition: u32,
}

pub(super) struct Readers {
    config: KafkaConfig,
    deliveries: Arc<Deliveries>,
    /// Grows when one partition is read by several callers at once: a client can read it only once.
    handles: Mutex<Vec<Arc<Handle>>>,
    /// With the time of their last use, the oldest first.
    idle: Mutex<VecDeque<(Instant, Reader)>>,
}

impl Readers {
    pub(super) fn new(config: &KafkaConfig, deliveries: &Arc<Deliveries>) -> Result<Readers, LogError> {
        let readers = Readers {
            config: config.clone(),
            deliveries: deliveries.clone(),
            handles: Mutex::default(),
            idle: Mutex::default(),
        };
        let first = readers.new_handle()?;
        readers.handles.lock().unwrap_or_else(PoisonError::into_inner).push(first);
        Ok(readers)
    }

    fn new_handle(&self) -> Result<Arc<Handle>, LogError> {
        let mut client = self.config.client();
        client
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "true")
            .set("allow.auto.create.topics", "false")
            .set("check.crcs", "true")
            // What is fetched ahead of one reader is bounded: four answers of the broker, so that it fetches while others are read (one alone
            // made reading a fifth slower). A full queue is looked at again soon, the default is a second.
            .set("queued.max.messages.kbytes", (self.config.fetch_bytes / 256).max(1).to_string())
            .set("fetch.message.max.bytes", self.config.fetch_bytes.max(1 << 20).to_string())
            .set("fetch.queue.backoff.ms", "5")
            .set("fetch.error.backoff.ms", "100")
            // A broker answers a fetch at once when there is something. When there is nothing it holds it back for as long, and a reader
            // that starts meanwhile waits for the answer to the others' fetch.
            .set("fetch.wait.max.ms", "20");
        self.config.finish(&mut client);
        let consumer = client
            .create_with_context(Quiet)
            .map_err(|error| fault::from_client(&self.config.bootstrap, "making a client", &error))?;
        Ok(Arc::new(Handle::new(consumer, &self.config)))
    }

    /// The client for questions.
    pub(super) fn handle(&self) -> Arc<Handle> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)[0].clone()
    }

    /// What is to be done for the clients now and then, and for readers that nobody uses.
    pub(super) fn serve(&self) {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for handle in handles {
            handle.serve();
        }
        let old = |(used, _): &mut (Instant, Reader)| used.elapsed() > IDLE_TIME;
        loop {
            // The reader is dropped outside the lock.
            let mut idle = self.idle();
            let reader = idle.front_mut().is_some_and(old).then(|| idle.pop_front());
            drop(idle);
            if reader.is_none() {
                break;
            }
        }
    }

    fn unavailable(&self, doing: &'static str, reason: &str) -> LogError {
        fault::unavailable(&self.config.bootstrap, doing, reason)
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<(Instant, Reader)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, place: Place<'_>, offset: u64) -> Result<Reader, LogError> {
        let mut idle = self.idle();
        let of_place = |reader: &Reader| reader.partition == place.partition && reader.topic == *place.topic;
        if let Some(index) = idle.iter().rposition(|(_, reader)| of_place(reader) && reader.next() == offset)
        {
            return Ok(idle.remove(index).expect("the index was found just now").1);
        }
        if idle.iter().filter(|(_, reader)| of_place(reader)).count() >= IDLE_OF_PARTITION {
            let index = idle.iter().position(|(_, reader)| of_place(reader)).expect("there are several");
            let (_, mut reader) = idle.remove(index).expect("the index was found just now");
            drop(idle);
            reader.go_to(offset);
            return Ok(reader);
        }
        drop(idle);
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in handles.iter() {
            if let Some(reader) = Reader::start(handle, place.topic, place.partition, offset) {
                return Ok(reader);
            }
        }
        let handle = self.new_handle()?;
        handles.push(handle.clone());
        drop(handles);
        Reader::start(&handle, place.topic, place.partition, offset)
            .ok_or_else(|| LogError::Config(format!("Kafka refuses to read topic {}", place.topic)))
    }

    fn give_back(&self, reader: Reader) {
        let mut idle = self.idle();
        idle.push_back((Instant::now(), reader));
        let oldest = (idle.len() > IDLE).then(|| idle.pop_front());
        drop(idle);
        drop(oldest);
    }

    fn check_open(&self, doing: &'static str) -> Result<(), LogError> {
        if self.deliveries.is_closed() { Err(LogError::Closed { doing }) } else { Ok(()) }
    }

    /// First offset and end of a partition, from its leader.
    pub(super) fn ends(&self, place: Place<'_>, doing: &'static str) -> Result<(u64, u64), LogError> {
        self.ends_within(place, doing, self.config.request_timeout)
    }

    fn ends_within(
        &self,
        place: Place<'_>,
        doing: &'static str,
        timeout: Duration,
    ) -> Result<(u64, u64), LogError> {
        let deadline = Instant::now() + timeout;
        let handle = self.handle();
        loop {
            self.check_open(doing)?;
            let left = deadline.saturating_duration_since(Instant::now());
            let question = left.min(QUESTION).max(Duration::from_millis(1));
            match handle.consumer.fetch_watermarks(place.topic, place.partition as i32, question) {
                Ok((low, high)) => return Ok((low.max(0) as u64, high.max(0) as u64)),
                Err(error) if left <= QUESTION => {
                    return Err(fault::from_client(&self.config.bootstrap, doing, &error));
                }
                // An answer that came early: it is not asked again at once.
                Err(KafkaError::MetadataFetch(code)) if code != RDKafkaErrorCode::OperationTimedOut => {
                    std::thread::sleep(SLICE);
                }
                Err(_) => {}
            }
        }
    }

    /// See [`crate::event_log::EventLog::read`].
    pub(super) fn read(
        &self,
        place: Place<'_>,
        offset: u64,
        max_messages: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        if max_messages == 0 {
            return Ok(offset);
        }
        let mut reader = self.take(place, offset)?;
        let result = self.read_from(&mut reader, place, offset, max_messages, out);
        if result.is_ok() {
            self.give_back(reader);
        }
        result
    }

    fn read_from(
        &self,
        reader: &mut Reader,
        place: Place<'_>,
        offset: u64,
        max_messages: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        const DOING: &str = "reading a partition";
        let deadline = Instant::now() + self.config.request_timeout;
        let (before, mut bytes) = (out.len(), 0);
        let mut trouble = None;
        loop {
            while out.len() - before < max_messages && bytes < READ_BYTES {
                let Some(message) = reader.ready.pop_front() else { break };
                bytes += message.key.len() + message.value.as_ref().map_or(0, Vec::len);
                out.push(message);
            }
            let added = out.len() - before;
            if added == max_messages || bytes >= READ_BYTES {
                return Ok(reader.next());
            }
            let wait = if added > 0 || reader.at_end { Duration::ZERO } else { SLICE };
            match reader.fill(wait, max_messages - added) {
                Got::Messages => continue,
                _ if added > 0 => return Ok(reader.next()),
                Got::Trouble(code) => trouble = Some(code),
                Got::Nothing | Got::End(_) | Got::OutOfRange => {}
            }
            // Nothing there, as it seems: the leader is asked, since what was appended before this call must be found, even when it
            // is still on its way here.
            let (low, high) = match self.ends(place, DOING) {
                Ok(ends) => ends,
                Err(error) => {
                    return match trouble {
                        Some(code) => Err(fault::from_code(&self.config.bootstrap, DOING, code)),
                        None => Err(error),
                    };
                }
            };
            if high <= reader.next() {
                return Ok(reader.next().max(offset));
            }
            if reader.next() < low {
                reader.go_to(low);
            }
            reader.at_end = false;
            self.check_open(DOING)?;
            if Instant::now() >= deadline {
                return Err(self.unavailable(DOING, "the leader of the partition gives no messages"));
            }
        }
    }

    /// See [`crate::event_log::EventLog::follow`]: what has been fetched, without a question to the leader.
    pub(super) fn follow(
        &self,
        place: Place<'_>,
        offset: u64,
        max_messages: usize,
        timeout: Duration,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        const DOING: &str = "following a partition";
        self.check_open(DOING)?;
        let deadline = Instant::now().checked_add(timeout);
        let mut reader = self.take(place, offset)?;
        let mut bytes = 0;
        loop {
            let before = out.len();
            while out.len() - before < max_messages && bytes < READ_BYTES {
                let Some(message) = reader.ready.pop_front() else { break };
                bytes += message.key.len() + message.value.as_ref().map_or(0, Vec::len);
                out.push(message);
            }
            let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
            let found = out.len() > before || (max_messages == 0 && !reader.ready.is_empty());
            // The client counts in milliseconds: less than one would be none, and a spin.
            let wait = match (found || left.is_zero(), left.min(SLICE)) {
                (true, _) => Duration::ZERO,
                (false, left) => left.max(Duration::from_millis(1)),
            };
            if found && (max_messages == 0 || !reader.ready.is_empty() || out.len() - before == max_messages)
            {
                break;
            }
            match reader.fill(wait, max_messages.max(1)) {
                Got::Messages if !found => continue,
                // What came just now is for the next call.
                _ if found => break,
                Got::Messages | Got::Nothing | Got::End(_) => {}
                Got::Trouble(code) if wait.is_zero() => {
                    return Err(fault::from_code(&self.config.bootstrap, DOING, code));
                }
                Got::Trouble(_) => std::thread::sleep(wait),
                Got::OutOfRange => {
                    let (low, high) = self.ends_within(place, DOING, QUESTION)?;
                    if high < offset {
                        std::thread::sleep(left.min(SLICE));
                    }
                    reader.go_to(offset.max(low));
                }
            }
            if left.is_zero() || self.deliveries.is_closed() {
                break;
            }
        }
        let next = reader.next();
        self.give_back(reader);
        self.check_open(DOING)?;
        Ok(next.max(offset))
    }

    /// See [`crate::event_log::EventLog::wait_for`].
    pub(super) fn wait_for(
        &self,
        place: Place<'_>,
        offset: u64,
        timeout: Duration,
    ) -> Result<bool, LogError> {
        const DOING: &str = "waiting for messages";
        self.check_open(DOING)?;
        let deadline = Instant::now().checked_add(timeout);
        let mut reader = self.take(place, offset)?;
        let mut asked = false;
        let result = loop {
            if reader.next() > offset || !reader.ready.is_empty() {
                break Ok(true);
            }
            if self.deliveries.is_closed() {
                break Err(LogError::Closed { doing: DOING });
            }
            let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                // What was appended before this call counts, even if it is still on its way here.
                if asked || reader.at_end && timeout > SLICE {
                    break Ok(false);
                }
                break match self.ends_within(place, DOING, QUESTION) {
                    Ok((_, high)) => Ok(high > offset),
                    Err(LogError::Unavailable { .. }) => Ok(false),
                    Err(error) => Err(error),
                };
            }
            match reader.fill(left.min(SLICE), 64) {
                Got::Messages | Got::Nothing | Got::End(_) => {}
                Got::Trouble(_) => std::thread::sleep(left.min(SLICE)),
                Got::OutOfRange => {
                    asked = true;
                    match self.ends_within(place, DOING, left.min(QUESTION)) {
                        Ok((low, high)) if low > offset || high > offset => break Ok(true),
                        Ok(_) | Err(LogError::Unavailable { .. }) => {
                            std::thread::sleep(left.min(SLICE));
                            reader.go_to(offset);
                        }
                        Err(error) => break Err(error),
                    }
                }
            }
        };
        self.give_back(reader);
        result
    }

    /// The last message of a partition, and the end behind it.
    pub(super) fn tail(&self, place: Place<'_>) -> Result<(Option<StoredMessage>, u64), LogError> {
        let (low, high) = self.ends(place, "looking for the last message")?;
        if high == 0 {
            return Ok((None, 0));
        }
        // Compaction may have removed what was at the last offsets: further back in growing steps.
        let mut from = high;
        let mut back = 1u64;
        while from > low {
            from = high.saturating_sub(back).max(low);
            if let Some(last) = self.last_before(place, from, high)? {
                return Ok((Some(last), high));
            }
            back = back.saturating_mul(8);
        }
        Err(LogError::Removed {
            path: format!("kafka:{}/{}", place.topic, place.partition).into(),
            wanted: high - 1,
            first: high,
        })
    }

    /// The last message from an offset on and before the end; the end may grow meanwhile.
    fn last_before(&self, place: Place<'_>, from: u64, high: u64) -> Result<Option<StoredMessage>, LogError> {
        let (mut next, mut last, mut found) = (from, None, Vec::new());
        while next < high {
            let before = next;
            next = self.read(place, next, 64, &mut found)?;
            last = found.drain(..).rfind(|message| message.offset < high).or(last);
            if next == before {
                break;
            }
        }
        Ok(last)
    }
}
