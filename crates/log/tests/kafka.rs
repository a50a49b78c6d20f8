//! The event log on a real Kafka: `HOGA_TEST_KAFKA=127.0.0.1:19092 cargo test -p hoga-log --features kafka,conformance --test kafka`.
#![cfg(all(feature = "kafka", feature = "conformance"))]

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;
use hoga_log::LogError;
use hoga_log::event_log::conformance::{self, Guarantees};
use hoga_log::event_log::{EventLog, Message, TopicSpec};
use hoga_log::kafka::{KafkaConfig, KafkaLog};

/// The brokers to test with; `None` says so on the terminal, past the test runner that would swallow it.
fn brokers() -> Option<String> {
    match std::env::var("HOGA_TEST_KAFKA") {
        Ok(brokers) if !brokers.is_empty() => Some(brokers),
        _ => {
            let text = "SKIP kafka: HOGA_TEST_KAFKA is not set (scripts/services/kafka.sh up)\n";
            std::io::stderr().write_all(text.as_bytes()).unwrap();
            None
        }
    }
}

/// Names of topics and groups that nobody else has.
fn fresh_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    format!("t{now}-{}-{}.", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn config(brokers: &str) -> KafkaConfig {
    KafkaConfig { topic_prefix: fresh_prefix(), ..KafkaConfig::new(brokers) }
}

fn message<'a>(key: &'a [u8], value: &'a [u8]) -> Message<'a> {
    Message { key, value: Some(value), time: Timestamp(1_700_000_000_123_456) }
}

#[test]
fn kafka_conforms() {
    let Some(brokers) = brokers() else { return };
    conformance::run_with(Guarantees::KAFKA, || KafkaLog::open(config(&brokers)).unwrap());
}

#[test]
fn a_log_on_kafka_goes_on_after_a_restart() {
    let Some(brokers) = brokers() else { return };
    let config = config(&brokers);
    conformance::reopening(|| KafkaLog::open(config.clone()).unwrap());
}

#[test]
fn another_writer_is_noticed() {
    let Some(brokers) = brokers() else { return };
    let config = config(&brokers);
    let (ours, other) = (KafkaLog::open(config.clone()).unwrap(), KafkaLog::open(config).unwrap());
    let spec = TopicSpec::delete("t", 1, 1 << 30);
    for log in [&ours, &other] {
        log.create_topic(&spec).unwrap();
    }
    ours.append("t", &[message(b"k", b"1")]).unwrap();
    ours.sync().unwrap();
    assert_eq!(ours.acknowledged("t", 0).unwrap(), Some(0));
    other.append("t", &[message(b"k", b"2")]).unwrap();
    other.sync().unwrap();
    assert_eq!(other.acknowledged("t", 0).unwrap(), Some(1), "it saw nothing before, so it suspects nothing");
    ours.append("t", &[message(b"k", b"3")]).unwrap();
    let error = ours.sync().unwrap_err();
    assert!(matches!(error, LogError::Foreign { partition: 0, .. }), "{error}");
    let error = ours.append("t", &[message(b"k", b"4")]).unwrap_err();
    assert!(matches!(error, LogError::Foreign { .. }), "{error}");
    // One that looked for the tail knows what is to come.
    let late = KafkaLog::open(other.config().clone()).unwrap();
    assert_eq!(late.tail("t", 0).unwrap().unwrap().offset, 2);
    other.share_topic("t").unwrap();
    other.append("t", &[message(b"k", b"5")]).unwrap();
    other.sync().unwrap();
    late.append("t", &[message(b"k", b"6")]).unwrap();
    assert!(matches!(late.sync(), Err(LogError::Foreign { .. })));
}

#[test]
fn dead_letters_have_many_writers() {
    let Some(brokers) = brokers() else { return };
    let config = config(&brokers);
    let logs = [KafkaLog::open(config.clone()).unwrap(), KafkaLog::open(config).unwrap()];
    for round in 0..10u8 {
        for log in &logs {
            log.create_topic(&TopicSpec::delete("t.dlt", 1, 1 << 30)).unwrap();
            log.append("t.dlt", &[message(b"k", &[round])]).unwrap();
            log.sync().unwrap();
        }
    }
    assert_eq!(logs[0].end_offset("t.dlt", 0).unwrap(), 20);
}

#[test]
fn a_topic_that_differs_is_named_and_left_alone() {
    let Some(brokers) = brokers() else { return };
    let config = config(&brokers);
    let log = KafkaLog::open(config.clone()).unwrap();
    log.create_topic(&TopicSpec::delete("t", 2, 1 << 30)).unwrap();
    let longer = KafkaLog::open(KafkaConfig { retention_ms: 1000, ..config.clone() }).unwrap();
    let error = longer.create_topic(&TopicSpec::delete("t", 3, 1 << 30)).unwrap_err();
    let LogError::SpecDiffers { existing, wanted, .. } = error else { panic!("{error}") };
    assert_eq!(existing, "partitions = 2, retention.ms = -1");
    assert_eq!(wanted, "partitions = 3, retention.ms = 1000");
    let reader = KafkaLog::open(config).unwrap();
    assert_eq!(reader.open_topic("t").unwrap(), TopicSpec::delete("t", 2, 1 << 30));
    assert!(matches!(reader.open_topic("u"), Err(LogError::NoTopic { .. })));
    let many = KafkaConfig { replication: 30, ..reader.config().clone() };
    let error = KafkaLog::open(many).unwrap().create_topic(&TopicSpec::compact("v", 1)).unwrap_err();
    assert!(matches!(error, LogError::Config(_)), "{error}");
}

#[test]
fn times_tombstones_and_empty_values_come_back() {
    let Some(brokers) = brokers() else { return };
    let log = KafkaLog::open(config(&brokers)).unwrap();
    log.create_topic(&TopicSpec::compact("t", 1)).unwrap();
    let times =
        [i64::MIN, -1, 0, 1, 999, 1_000, 1_700_000_000_123_456, 4_000_000_000_000_001, i64::MAX / 1000];
    for (number, time) in times.into_iter().enumerate() {
        let key = vec![7; number];
        let value = [&b""[..], b"x"][number % 2];
        let value = (number % 3 != 2).then_some(value);
        log.append("t", &[Message { key: &key, value, time: Timestamp(time) }]).unwrap();
    }
    log.sync().unwrap();
    let mut found = Vec::new();
    log.read("t", 0, 0, 100, &mut found).unwrap();
    for (number, (found, time)) in found.iter().zip(times).enumerate() {
        let value = [&b""[..], b"x"][number % 2];
        assert_eq!((found.time, found.key.len()), (Timestamp(time), number));
        assert_eq!(found.value.as_deref(), (number % 3 != 2).then_some(value));
    }
    assert_eq!(found.len(), times.len());
}

#[test]
fn a_small_queue_holds_back_but_loses_nothing() {
    let Some(brokers) = brokers() else { return };
    let config = KafkaConfig { queue_messages: 10, linger: Duration::ZERO, ..config(&brokers) };
    let log = KafkaLog::open(config).unwrap();
    log.create_topic(&TopicSpec::delete("t", 2, 1 << 30)).unwrap();
    for number in 0..3000u64 {
        log.append("t", &[message(&number.to_le_bytes(), &number.to_le_bytes())]).unwrap();
        assert!(log.stats().queued <= 11);
    }
    log.sync().unwrap();
    let ends: u64 = (0..2).map(|partition| log.end_offset("t", partition).unwrap()).sum();
    assert_eq!((ends, log.stats().queued, log.stats().acknowledged), (3000, 0, 3000));
}

#[test]
fn a_closed_log_ends_its_callers() {
    let Some(brokers) = brokers() else { return };
    let log = KafkaLog::open(config(&brokers)).unwrap();
    log.create_topic(&TopicSpec::delete("t", 1, 1 << 30)).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.wait_for("t", 0, 0, Duration::from_secs(60)));
        let begun = Instant::now();
        assert!(log.close(Duration::from_secs(5)), "with brokers that answer all is let go of");
        match waiter.join().unwrap() {
            Err(LogError::Closed { .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(2));
    });
    assert!(matches!(log.append("t", &[message(b"k", b"v")]), Err(LogError::Closed { .. })));
    assert!(matches!(log.sync(), Err(LogError::Closed { .. })));
    assert!(log.topics().is_empty());
    assert!(log.close(Duration::ZERO), "closing twice does nothing");
}
