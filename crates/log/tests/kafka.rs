//! The event log on a real Kafka: `HOGA_TEST_KAFKA=127.0.0.1:19092 cargo test -p hoga-log --features kafka,conformance --test kafka`.
#![cfg(all(feature = "kafka", feature = "conformance"))]

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;
use hoga_log::LogError;
use hoga_log::event_log::conformance::{self, Guarantees};
use hoga_log::event_log::{EventLog, Message, TopicSpec};
use hoga_log::kafka::topics::{self, Shape, State};
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

#[test]
fn topics_are_checked_and_only_missing_ones_are_made() {
    let Some(brokers) = brokers() else { return };
    let config = config(&brokers);
    let declared =
        [TopicSpec::delete("a", 2, 1 << 30), TopicSpec::compact("b", 1), TopicSpec::compact("c", 4)];
    let states = |states: Vec<topics::TopicState>| -> Vec<State> {
        states.into_iter().map(|topic| topic.state).collect()
    };
    KafkaLog::open(config.clone()).unwrap().create_topic(&TopicSpec::delete("c", 3, 1 << 30)).unwrap();
    let found = states(topics::check(&config, &declared).unwrap());
    assert_eq!(found[..2], [State::Missing, State::Missing]);
    let State::Differs { existing, declared: wanted } = &found[2] else { panic!("{found:?}") };
    assert_eq!(existing, "partitions = 3, cleanup.policy = delete");
    assert_eq!(wanted, "partitions = 4, cleanup.policy = compact");
    let (after, made) = topics::apply(&config, &declared).unwrap();
    assert_eq!(made, ["a", "b"]);
    let after = states(after);
    assert_eq!(after[..2], [State::AsDeclared, State::AsDeclared]);
    assert_eq!(after[2], found[2], "what differs is left alone");
    let (again, made) = topics::apply(&config, &declared).unwrap();
    assert_eq!((states(again), made), (after, Vec::new()));
}

#[test]
fn a_plan_is_measured_and_leaves_nothing_behind() {
    let Some(brokers) = brokers() else { return };
    let config = config(&brokers);
    let time = Duration::from_millis(300);
    let shape = Shape { message_bytes: 200, target: 10_000_000_000, time };
    let plan = topics::plan(&config, shape).unwrap();
    assert!(plan.producer > 1000.0 && plan.consumer > 1000.0, "{}", plan.text);
    assert_eq!(plan.partitions, 1024, "no partition takes as much as ten million a second: {}", plan.text);
    let small = topics::plan(&config, Shape { target: 10, ..shape }).unwrap();
    assert_eq!(small.partitions, 1, "{}", small.text);
}

/// A figure, not a check: `HOGA_TEST_KAFKA=… cargo test --release … --test kafka speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let Some(brokers) = brokers() else { return };
    for _ in 0..3 {
        let shape = Shape { message_bytes: 200, target: 1_000_000, time: Duration::from_secs(4) };
        let plan = topics::plan(&config(&brokers), shape).unwrap();
        let line = format!("written {:.0}/s, read {:.0}/s\n", plan.producer, plan.consumer);
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

/// Messages that retention has removed: reading begins at the start, and the end stays known.
#[test]
fn reading_begins_where_the_log_begins() {
    let Some(brokers) = brokers() else { return };
    let log = KafkaLog::open(config(&brokers)).unwrap();
    log.create_topic(&TopicSpec::delete("t", 1, 1 << 30)).unwrap();
    for number in 0..100u64 {
        log.append("t", &[message(b"k", &number.to_le_bytes())]).unwrap();
    }
    log.sync().unwrap();
    let mut found = Vec::new();
    assert_eq!(log.read("t", 0, 0, 10, &mut found).unwrap(), 10);
    remove_before(log.config(), "t", 60);
    assert_eq!(log.start_offset("t", 0).unwrap(), 60);
    for from in [0, 59, 60, 70] {
        found.clear();
        log.read("t", 0, from, 5, &mut found).unwrap();
        assert_eq!(found[0].offset, from.max(60), "from {from}");
    }
    assert!(log.wait_for("t", 0, 3, Duration::ZERO).unwrap());
    assert_eq!(log.tail("t", 0).unwrap().unwrap().offset, 99);
    remove_before(log.config(), "t", 100);
    let error = log.tail("t", 0).unwrap_err();
    assert!(matches!(error, LogError::Removed { wanted: 99, first: 100, .. }), "{error}");
    found.clear();
    assert_eq!(log.read("t", 0, 0, 5, &mut found).unwrap(), 100);
    assert!(found.is_empty());
}

/// Has the broker remove the messages before an offset, as retention does.
fn remove_before(config: &KafkaConfig, topic: &str, offset: i64) {
    use rdkafka::admin::{AdminClient, AdminOptions};
    use rdkafka::client::DefaultClientContext;
    let admin: AdminClient<DefaultClientContext> = config.client().create().unwrap();
    let mut places = rdkafka::TopicPartitionList::new();
    let offset = rdkafka::Offset::Offset(offset);
    places.add_partition_offset(&config.topic_name(topic), 0, offset).unwrap();
    let mut answer = std::pin::pin!(admin.delete_records(&places, &AdminOptions::new()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let begun = Instant::now();
    loop {
        match std::future::Future::poll(answer.as_mut(), &mut context) {
            std::task::Poll::Ready(result) => break drop(result.unwrap()),
            std::task::Poll::Pending => std::thread::sleep(Duration::from_millis(2)),
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
