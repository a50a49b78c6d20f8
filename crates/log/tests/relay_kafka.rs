//! The relay to a real Kafka: `HOGA_TEST_KAFKA=127.0.0.1:19092 cargo test -p hoga-log --features kafka --test relay_kafka`.
#![cfg(feature = "kafka")]

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;
use hoga_log::event_log::{EventLog, MemoryLog, Message, StoredMessage, TopicSpec};
use hoga_log::kafka::{KafkaConfig, KafkaLog};
use hoga_log::relay::{Connect, Relay, RelayOptions, RelayState, Remote};

const TOPIC: &str = "t";
const PATIENCE: Duration = Duration::from_secs(60);

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

fn config(brokers: &str, name: &str) -> KafkaConfig {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    KafkaConfig { topic_prefix: format!("{name}{now}-{}.", std::process::id()), ..KafkaConfig::new(brokers) }
}

fn connect(config: &KafkaConfig) -> Connect {
    let config = config.clone();
    Box::new(move || Ok(Remote::kafka(KafkaLog::open(config.clone())?)))
}

fn number_of(value: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(value.get(..8)?.try_into().ok()?))
}

fn local() -> Arc<MemoryLog> {
    let log = MemoryLog::new();
    log.create_topic(&TopicSpec::delete(TOPIC, 3, 1 << 40)).unwrap();
    Arc::new(log)
}

/// Publishes as the engine does: each message with its number in its partition.
fn publish(log: &MemoryLog, count: u64) {
    let body = [7u8; 192];
    let mut numbers: Vec<u64> = (0..3).map(|p| log.end_offset(TOPIC, p).unwrap()).collect();
    for at in 0..count {
        let key = (at % 97).to_le_bytes();
        let number = &mut numbers[log.partition_of(TOPIC, &key).unwrap() as usize];
        *number += 1;
        let value = [number.to_le_bytes().as_slice(), &body].concat();
        let time = Timestamp(1_700_000_000_000_001 + at as i64);
        log.append(TOPIC, &[Message { key: &key, value: Some(&value), time }]).unwrap();
    }
}

fn all(log: &dyn EventLog, partition: u32) -> Vec<StoredMessage> {
    let (mut found, mut next) = (Vec::new(), 0);
    let end = log.end_offset(TOPIC, partition).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while next < end {
        assert!(Instant::now() < deadline, "read {next} of {end}");
        next = log.read(TOPIC, partition, next, 10_000, &mut found).unwrap();
    }
    found
}

fn until(what: &str, relay: &Relay, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: {:?}", relay.status());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_message_arrives_once_through_restarts_at_any_moment() {
    let Some(brokers) = brokers() else { return };
    let config = config(&brokers, "relay");
    let local = local();
    for round in 0..5u64 {
        publish(&local, 4_000);
        let relay =
            Relay::start(local.clone(), connect(&config), &[TOPIC], RelayOptions::new(number_of)).unwrap();
        if round % 2 == 0 {
            // Somewhere in the middle, with messages on their way.
            until("some are on their way", &relay, || relay.status().counters.messages > 200 * round);
            relay.stop(Duration::from_millis(10));
        } else {
            until("all are acknowledged", &relay, || relay.status().lag() == 0);
            assert!(matches!(relay.status().state, RelayState::Current | RelayState::CatchingUp));
            assert!(relay.stop(PATIENCE));
        }
    }
    let relay =
        Relay::start(local.clone(), connect(&config), &[TOPIC], RelayOptions::new(number_of)).unwrap();
    until("all are acknowledged", &relay, || relay.status().lag() == 0);
    assert!(relay.stop(PATIENCE));
    let kafka = KafkaLog::open(config).unwrap();
    kafka.open_topic(TOPIC).unwrap();
    for partition in 0..3 {
        let (ours, theirs) = (all(&*local, partition), all(&kafka, partition));
        // What a killed relay had on its way may arrive after the next one looked: then equal repeats stand there, which readers drop by
        // their number. Each message comes for the first time in its turn, and none is another one.
        let mut due = 0;
        for message in &theirs {
            let number = number_of(message.value.as_ref().unwrap()).unwrap();
            let wanted = &ours[number as usize - 1];
            assert_eq!(
                (&message.key, &message.value, message.time),
                (&wanted.key, &wanted.value, wanted.time)
            );
            assert!(number <= due + 1, "message {number} after {due}");
            due = due.max(number);
        }
        assert_eq!(due, ours.len() as u64);
    }
}

#[test]
fn a_relay_with_nobody_there_waits_and_stops_in_time() {
    if brokers().is_none() {
        return;
    }
    let config = config("127.0.0.1:1", "nobody");
    let local = local();
    publish(&local, 100);
    let relay = Relay::start(local, connect(&config), &[TOPIC], RelayOptions::new(number_of)).unwrap();
    until("it says why it waits", &relay, || relay.status().state.fault().is_some());
    assert_eq!(relay.status().lag(), 100);
    let begun = Instant::now();
    assert!(!relay.stop(Duration::from_millis(800)));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// A figure: `HOGA_TEST_KAFKA=… cargo test -p hoga-log --release --features kafka --test relay_kafka rate -- --ignored --nocapture`.
#[test]
#[ignore = "prints a figure"]
fn rate() {
    let Some(brokers) = brokers() else { return };
    const COUNT: u64 = 1_000_000;
    let config = config(&brokers, "rate");
    let local = local();
    publish(&local, COUNT);
    let begun = Instant::now();
    let relay = Relay::start(local, connect(&config), &[TOPIC], RelayOptions::new(number_of)).unwrap();
    until("all are acknowledged", &relay, || relay.status().lag() == 0);
    let seconds = begun.elapsed().as_secs_f64();
    writeln!(std::io::stdout(), "{:.0} messages of 200 B a second to Kafka", COUNT as f64 / seconds).unwrap();
}
