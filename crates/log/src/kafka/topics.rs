//! Topics for operators: how many partitions a rate needs, measured here and now; what is on the cluster; making what is missing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;

use super::admin::{Admin, Found};
use super::config::KafkaConfig;
use super::log::KafkaLog;
use crate::error::LogError;
use crate::event_log::{EventLog as _, MAX_MESSAGE, Message, TopicSpec};

/// How a topic is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a message's value.
    pub message_bytes: usize,
    /// Messages per second that must be written and read.
    pub target: u64,
    /// How long each of the two measurements takes.
    pub time: Duration,
}

/// How many partitions a topic needs, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The answer, at least 1.
    pub partitions: u32,
    /// Messages per second that must be written and read (T).
    pub target: u64,
    /// Bytes of a message's value.
    pub message_bytes: usize,
    /// Measured: messages per second that one partition takes from a producer with this configuration (p).
    pub producer: f64,
    /// Measured: messages per second that one consumer reads from one partition (c).
    pub consumer: f64,
    /// Copies of each partition during the measurement.
    pub replication: i16,
    /// The reasoning in words.
    pub text: String,
}

/// Partitions for a target when one takes `producer` and gives `consumer` messages per second.
fn partitions(target: u64, producer: f64, consumer: f64) -> u32 {
    let by = |rate: f64| (target as f64 / rate.max(1.0)).ceil();
    by(producer).max(by(consumer)).clamp(1.0, 1024.0) as u32
}

/// Measures on a topic of one partition, which is deleted afterwards, what a producer and a consumer of this configuration reach, and
/// gives N = max(⌈T / p⌉, ⌈T / c⌉).
///
/// The consumer does nothing with the messages: what a real one does is measured where it is, and N is at least T over that.
///
/// # Errors
/// [`LogError::Config`] for an impossible shape; [`LogError::Unavailable`] and what writing can meet.
pub fn plan(config: &KafkaConfig, shape: Shape) -> Result<Plan, LogError> {
    if shape.target == 0 || shape.time.is_zero() || !(1..=MAX_MESSAGE - 8).contains(&shape.message_bytes) {
        return Err(LogError::Config(format!(
            "a plan needs a target above 0, a time above 0, and messages of 1 to {} bytes",
            MAX_MESSAGE - 8
        )));
    }
    let log = KafkaLog::open(config.clone())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    let topic = format!("plan-{now}-{}", std::process::id());
    log.create_topic(&TopicSpec::delete(&topic, 1, 8 << 30))?;
    let measured = measure(&log, &topic, shape);
    let deleted = log.delete_topic(&topic);
    let (producer, consumer) = measured?;
    deleted?;
    let partitions = partitions(shape.target, producer, consumer);
    let text = format!(
        "T = {} messages/s of {} bytes. Measured on one partition with {} copies: p = {producer:.0} messages/s written, c = {consumer:.0} \
         messages/s read. N = max(ceil(T / p), ceil(T / c)) = max({:.2}, {:.2}) rounded up = {partitions}. Partitions are fixed once the \
         topic is made: leave room for growth, and remember that a consumer's own work per message may make c smaller.",
        shape.target,
        shape.message_bytes,
        config.replication,
        shape.target as f64 / producer.max(1.0),
        shape.target as f64 / consumer.max(1.0),
    );
    Ok(Plan {
        partitions,
        target: shape.target,
        message_bytes: shape.message_bytes,
        producer,
        consumer,
        replication: config.replication,
        text,
    })
}

/// Messages per second written to and read from a topic of one partition.
fn measure(log: &KafkaLog, topic: &str, shape: Shape) -> Result<(f64, f64), LogError> {
    const TOGETHER: usize = 100;
    let value = vec![b'x'; shape.message_bytes];
    let message = Message { key: b"k", value: Some(&value), time: Timestamp(0) };
    let batch = [message; TOGETHER];
    // Connections, metadata and the producer's number come first, outside the time.
    log.append(topic, &batch)?;
    log.sync()?;
    let begun = Instant::now();
    let mut written = 0u64;
    while begun.elapsed() < shape.time {
        log.append(topic, &batch)?;
        written += TOGETHER as u64;
    }
    log.sync()?;
    let producer = written as f64 / begun.elapsed().as_secs_f64();

    let (mut next, mut found) = (0, Vec::new());
    next = log.read(topic, 0, next, 1, &mut found)?;
    let begun = Instant::now();
    let first = next;
    while begun.elapsed() < shape.time {
        found.clear();
        let before = next;
        next = log.read(topic, 0, next, 10_000, &mut found)?;
        if next == before {
            break;
        }
    }
    let consumer = (next - first) as f64 / begun.elapsed().as_secs_f64().max(1e-9);
    Ok((producer, consumer))
}

/// How a topic on the cluster compares with what is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not there.
    Missing,
    /// It is as declared.
    AsDeclared,
    /// It is there, but not as declared.
    Differs {
        /// What is there, of what differs.
        existing: String,
        /// What is declared, of what differs.
        declared: String,
    },
}

/// A declared topic and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicState {
    /// Its name, without the prefix.
    pub topic: String,
    /// How it is.
    pub state: State,
}

/// Compares declared topics with the cluster. Changes nothing.
///
/// # Errors
/// [`LogError::Config`], [`LogError::Unavailable`].
pub fn check(config: &KafkaConfig, specs: &[TopicSpec]) -> Result<Vec<TopicState>, LogError> {
    let log = KafkaLog::open(config.clone())?;
    let never = || false;
    let admin = Admin::new(config, &never)?;
    let handle = log.question_handle()?;
    let mut states = Vec::with_capacity(specs.len());
    for spec in specs {
        spec.check()?;
        let state = match admin.find(&handle, &config.topic_name(&spec.name))? {
            None => State::Missing,
            Some(found) => match found.differs(&Found::wanted(config, spec)) {
                None => State::AsDeclared,
                Some((existing, declared)) => State::Differs { existing, declared },
            },
        };
        states.push(TopicState { topic: spec.name.clone(), state });
    }
    Ok(states)
}

/// Makes the declared topics that are missing, and nothing else: what differs stays as it is. Gives the states afterwards, and the names
/// of those that were made.
///
/// # Errors
/// [`LogError::Config`], [`LogError::Unavailable`].
pub fn apply(config: &KafkaConfig, specs: &[TopicSpec]) -> Result<(Vec<TopicState>, Vec<String>), LogError> {
    let log = KafkaLog::open(config.clone())?;
    let mut made = Vec::new();
    for (spec, before) in specs.iter().zip(check(config, specs)?) {
        if before.state == State::Missing {
            log.create_topic(spec)?;
            made.push(spec.name.clone());
        }
    }
    Ok((check(config, specs)?, made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_follow_from_the_slower_side() {
        assert_eq!(partitions(100, 100.0, 1000.0), 1);
        assert_eq!(partitions(101, 100.0, 1000.0), 2);
        assert_eq!(partitions(1_000_000, 400_000.0, 190_000.0), 6);
        assert_eq!(partitions(1, 1e9, 1e9), 1);
        assert_eq!(partitions(u64::MAX, 0.0, 1.0), 1024);
    }

    #[test]
    fn impossible_shapes_are_refused_without_a_cluster() {
        let config = KafkaConfig::new("127.0.0.1:1");
        let good = Shape { message_bytes: 100, target: 10, time: Duration::from_secs(1) };
        for bad in [
            Shape { message_bytes: 0, ..good },
            Shape { message_bytes: MAX_MESSAGE, ..good },
            Shape { target: 0, ..good },
            Shape { time: Duration::ZERO, ..good },
        ] {
            assert!(matches!(plan(&config, bad), Err(LogError::Config(_))), "{bad:?}");
        }
    }
}
