//! What the client tells while it works: its log lines, delivered messages, statistics.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaErrorCode;

use super::fault::Broken;
use super::stats::KafkaStats;
use crate::wait::WaitPoint;

/// Topics that one log can write to.
pub(super) const MAX_TOPICS: usize = 1024;

/// What a client says again and again while brokers are away, once for each connection, request and group.
const REPEATED: [&str; 3] = ["REQTMOUT", "METADATAUPDATE", "SESSTMOUT"];
/// So long one line of a kind is enough.
const QUIET: Duration = Duration::from_secs(60);

/// When each kind of [`REPEATED`] was last told, over all clients of the process.
struct Told(Mutex<[Option<Instant>; REPEATED.len()]>);

static TOLD: Told = Told(Mutex::new([None; REPEATED.len()]));

impl Told {
    /// Whether a line is one more of a kind that was told within [`QUIET`].
    fn is_repeated(&self, facility: &str, now: Instant) -> bool {
        let Some(kind) = REPEATED.iter().position(|kind| *kind == facility) else { return false };
        let last = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner)[kind];
        if last.is_some_and(|last| now.saturating_duration_since(last) < QUIET) {
            return true;
        }
        *last = Some(now);
        false
    }
}

/// Sends the client's log lines on; the level is that of syslog. Lost connections are its errors, and nobody's: they pass, and it says so often.
pub(super) fn log_line(level: i32, facility: &str, text: &str) {
    // A broker that is away is told at each attempt, several times a second and for each connection: whoever waits for it says so once. What
    // comes of it (requests and sessions that time out) is told once a minute.
    if facility == "FAIL" || TOLD.is_repeated(facility, Instant::now()) {
        tracing::debug!(target: "kafka", facility, "{text}");
        return;
    }
    match level {
        ..=2 => tracing::error!(target: "kafka", facility, "{text}"),
        3 | 4 => tracing::warn!(target: "kafka", facility, "{text}"),
        5 | 6 => tracing::info!(target: "kafka", facility, "{text}"),
        _ => tracing::debug!(target: "kafka", facility, "{text}"),
    }
}

/// For clients that only ask and read.
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        log_line(level as i32, fac, log_message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", %error, "{reason}");
    }
}

impl ConsumerContext for Quiet {}

/// What became of the messages of one partition. Counters of messages since the log was opened.
pub(super) struct Sent {
    pub(super) appended: AtomicU64,
    pub(super) acknowledged: AtomicU64,
    /// The offset that the next acknowledged message must have; -1 while unknown.
    pub(super) next: AtomicI64,
    /// The offset behind the last acknowledged message; -1 while there is none.
    pub(super) end: AtomicI64,
}

/// What became of the messages of one topic.
pub(super) struct SentTopic {
    pub(super) name: String,
    /// Whether nobody else may write it.
    pub(super) sole: AtomicBool,
    pub(super) partitions: Vec<Sent>,
}

impl SentTopic {
    pub(super) fn new(name: &str, partitions: u32, sole: bool) -> SentTopic {
        let sent = |_| Sent {
            appended: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            next: AtomicI64::new(-1),
            end: AtomicI64::new(-1),
        };
        SentTopic {
            name: name.into(),
            sole: AtomicBool::new(sole),
            partitions: (0..partitions).map(sent).collect(),
        }
    }
}

/// Where delivery reports go. A message carries its topic's place in `topics` and its partition, so that a report needs no lookup, no
/// lock and no memory.
pub(super) struct Deliveries {
    topics: Box<[OnceLock<Arc<SentTopic>>]>,
    /// Messages that were acknowledged, of all partitions.
    pub(super) acknowledged: AtomicU64,
    pub(super) broken: OnceLock<Broken>,
    pub(super) closed: AtomicBool,
    /// Woken when messages were acknowledged, when the log breaks and when it is closed.
    pub(super) progress: WaitPoint,
    /// Woken when it is closed.
    pub(super) closing: WaitPoint,
    pub(super) stats: Mutex<KafkaStats>,
}

/// A message's topic and partition in the word that comes back with its report.
pub(super) fn tag(topic: usize, partition: u32) -> usize {
    topic << 16 | partition as usize
}

impl Deliveries {
    pub(super) fn new() -> Deliveries {
        Deliveries {
            topics: (0..MAX_TOPICS).map(|_| OnceLock::new()).collect(),
            acknowledged: AtomicU64::new(0),
            broken: OnceLock::new(),
            closed: AtomicBool::new(false),
            progress: WaitPoint::new(),
            closing: WaitPoint::new(),
            stats: Mutex::new(KafkaStats::default()),
        }
    }

    /// Takes a topic in; `None` when there is no room.
    pub(super) fn add(&self, topic: &Arc<SentTopic>) -> Option<usize> {
        self.topics.iter().position(|slot| slot.set(topic.clone()).is_ok())
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = &Arc<SentTopic>> {
        self.topics.iter().map_while(OnceLock::get)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn break_with(&self, broken: Broken) {
        if !self.is_closed() && self.broken.set(broken).is_ok() {
            let broken = self.broken.get();
            tracing::error!(target: "kafka", ?broken, "the log takes no more messages");
        }
    }

    /// One thread calls it, in the order of acknowledgement within a partition.
    pub(super) fn delivered(&self, tag: usize, error: Option<RDKafkaErrorCode>, offset: i64) {
        let (number, partition) = (tag >> 16, tag & 0xFFFF);
        let topic =
            self.topics[number].get().expect("a message carries the number of a topic that was added");
        if let Some(error) = error {
            self.break_with(Broken::Failed(format!("a message to {}/{partition}: {error}", topic.name)));
            return;
        }
        let sent = &topic.partitions[partition];
        let expected = sent.next.load(Ordering::Relaxed);
        // A message that a retry found written already has no offset in its report: the client counts its batch from -1001 then, which
        // comes out below what is expected, as no real offset can.
        let offset = if offset < expected { expected } else { offset };
        if offset >= 0 {
            if expected >= 0 && offset != expected && topic.sole.load(Ordering::Relaxed) {
                let reason = format!("offset {offset} was acknowledged where {expected} was to come");
                self.break_with(Broken::Foreign {
                    topic: topic.name.clone(),
                    partition: partition as u32,
                    reason,
                });
            }
            sent.next.store(offset + 1, Ordering::Relaxed);
            sent.end.store(offset + 1, Ordering::Release);
        }
        sent.acknowledged.store(sent.acknowledged.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.acknowledged.store(self.acknowledged.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The producer's context. Its reports come here only while it is destroyed; before, `Reports` takes them.
pub(super) struct Producing(pub(super) Arc<Deliveries>);

impl ClientContext for Producing {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        log_line(level as i32, fac, log_message);
    }

    fn stats(&self, statistics: Statistics) {
        self.0.stats.lock().unwrap_or_else(PoisonError::into_inner).take(&statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", %error, "{reason}");
    }
}

impl ProducerContext for Producing {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, tag: usize) {
        match result {
            Ok(message) => self.0.delivered(tag, None, message.offset()),
            Err((error, _)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                self.0.delivered(tag, Some(code), -1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_topic(sole: bool) -> (Deliveries, Arc<SentTopic>) {
        let deliveries = Deliveries::new();
        let topic = Arc::new(SentTopic::new("t", 3, sole));
        assert_eq!(deliveries.add(&topic), Some(0));
        (deliveries, topic)
    }

    #[test]
    fn what_is_said_again_and_again_is_told_once_a_minute() {
        let (told, now) = (Told(Mutex::default()), Instant::now());
        for (facility, after, repeated) in [
            ("REQTMOUT", Duration::ZERO, false),
            ("REQTMOUT", Duration::ZERO, true),
            ("SESSTMOUT", Duration::ZERO, false),
            ("REQTMOUT", QUIET - Duration::from_nanos(1), true),
            ("REQTMOUT", QUIET, false),
            ("REQTMOUT", QUIET, true),
            ("MAXPOLL", QUIET, false),
            ("MAXPOLL", QUIET, false),
        ] {
            assert_eq!(told.is_repeated(facility, now + after), repeated, "{facility} after {after:?}");
        }
    }

    #[test]
    fn a_jump_of_offsets_tells_of_another_writer() {
        let (deliveries, topic) = one_topic(true);
        for offset in [7, 8, -1001, 0, 11] {
            deliveries.delivered(tag(0, 2), None, offset);
        }
        assert!(deliveries.broken.get().is_none());
        assert_eq!(topic.partitions[2].end.load(Ordering::Relaxed), 12);
        deliveries.delivered(tag(0, 2), None, 13);
        assert!(matches!(deliveries.broken.get(), Some(Broken::Foreign { partition: 2, .. })));
        let (deliveries, _) = one_topic(false);
        for offset in [7, 9, 30] {
            deliveries.delivered(tag(0, 0), None, offset);
        }
        assert!(deliveries.broken.get().is_none());
    }

    #[test]
    fn a_message_that_failed_breaks_the_log_but_not_one_that_was_purged_by_closing() {
        let error = RDKafkaErrorCode::MessageSizeTooLarge;
        let (deliveries, topic) = one_topic(true);
        deliveries.delivered(tag(0, 1), Some(error), -1);
        assert!(matches!(deliveries.broken.get(), Some(Broken::Failed(_))));
        assert_eq!(topic.partitions[1].acknowledged.load(Ordering::Relaxed), 0);
        let (deliveries, _) = one_topic(true);
        deliveries.closed.store(true, Ordering::Release);
        deliveries.delivered(tag(0, 1), Some(error), -1);
        assert!(deliveries.broken.get().is_none());
    }
}
