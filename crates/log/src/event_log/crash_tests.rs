//! Power cuts under the event log, at every operation of a run with appends, commits, retention and compaction.

use std::collections::BTreeMap;
use std::time::Duration;

use hoga_core::ids::Timestamp;

use super::*;
use crate::storage::SimStorage;

fn config() -> EmbeddedConfig {
    EmbeddedConfig {
        segment_bytes: 4096,
        tombstone_keep: Duration::from_micros(40),
        ..EmbeddedConfig::default()
    }
}

fn open(storage: &SimStorage) -> Result<EmbeddedLog<SimStorage>, LogError> {
    EmbeddedLog::open_on(storage.clone(), "/log", config())
}

/// Message `number` of either topic is a function of its number, as the publisher's messages are.
fn key(number: u64) -> [u8; 1] {
    [(number * number % 13) as u8]
}

fn value(number: u64) -> Option<Vec<u8>> {
    (number % 7 != 3).then(|| [&number.to_le_bytes()[..], &[number as u8; 60]].concat())
}

#[derive(Default)]
struct Told {
    appended: u64,
    synced: u64,
    committed: u64,
}

const TOPICS: [&str; 2] = ["events", "latest"];

/// Goes on where the tails say, as the publisher does, and up to `last`.
fn publish(log: &dyn EventLog, last: u64, told: &mut Told) -> Result<(), LogError> {
    log.create_topic(&TopicSpec::delete("events", 1, 8192))?;
    log.create_topic(&TopicSpec::compact("latest", 1))?;
    for topic in TOPICS {
        log.commit("group", topic, 0, 0)?;
    }
    let mut from: Vec<u64> = Vec::new();
    for topic in TOPICS {
        from.push(log.tail(topic, 0)?.map_or(0, |tail| tail.offset + 1));
    }
    let mut number = *from.iter().min().unwrap();
    while number < last {
        let to = (number + 1 + number % 5).min(last);
        for (topic, from) in TOPICS.iter().zip(&from) {
            let values: Vec<([u8; 1], Option<Vec<u8>>, i64)> =
                (number.max(*from)..to).map(|number| (key(number), value(number), number as i64)).collect();
            let messages: Vec<Message<'_>> = values
                .iter()
                .map(|(key, value, time)| Message { key, value: value.as_deref(), time: Timestamp(*time) })
                .collect();
            told.appended = told.appended.max(to);
            log.append(topic, &messages)?;
        }
        number = to;
        // Maintenance also while the newest messages are not durable.
        if number % 20 > 14 {
            log.commit("group", "latest", 0, number.saturating_sub(3))?;
            log.maintain()?;
        }
        if number % 20 < 5 {
            log.commit("group", "events", 0, number.saturating_sub(2))?;
            log.sync()?;
            (told.synced, told.committed) = (number, number.saturating_sub(2));
            log.maintain()?;
        }
    }
    Ok(())
}

fn run(storage: &SimStorage, told: &mut Told) -> Result<(), LogError> {
    publish(&open(storage)?, 90, told)?;
    publish(&open(storage)?, 180, told)
}

/// Opens after a crash, and checks what must be there.
fn check(storage: &SimStorage, told: &Told) -> Result<(), String> {
    let log = open(storage).map_err(|error| format!("refused to start: {error}"))?;
    let text = |error: LogError| error.to_string();
    let mut ends = Vec::new();
    for topic in TOPICS {
        let Ok(end) = log.end_offset(topic, 0) else {
            if told.synced > 0 {
                return Err(format!("topic {topic} is gone"));
            }
            continue;
        };
        if end < told.synced || end > told.appended {
            return Err(format!("{topic} ends at {end}: {} synced, {} appended", told.synced, told.appended));
        }
        ends.push(end);
        let (mut offset, mut out) = (0, Vec::new());
        while offset < end {
            offset = log.read(topic, 0, offset, 50, &mut out).map_err(text)?;
        }
        for found in &out {
            let number = found.offset;
            if found.key != key(number) || found.value != value(number) || found.time.0 != number as i64 {
                return Err(format!("{topic} has another message at {number}"));
            }
        }
        let complete = match topic {
            "events" => {
                let start = log.start_offset(topic, 0).map_err(text)?;
                start <= told.committed && out.iter().map(|found| found.offset).eq(start..end)
            }
            _ => has_latest(&out, end),
        };
        if !complete {
            return Err(format!("{topic} lacks messages before {end}"));
        }
    }
    if told.synced > 0 {
        let committed = log.committed("group", "events", 0).map_err(text)?;
        if committed.is_none_or(|committed| committed < told.committed || committed > told.appended) {
            return Err(format!("{committed:?} committed, but {} was", told.committed));
        }
    }
    Ok(())
}

/// Whether the last message of each key is there; an old tombstone may be gone.
fn has_latest(out: &[StoredMessage], end: u64) -> bool {
    let mut latest: BTreeMap<[u8; 1], u64> = BTreeMap::new();
    for number in 0..end {
        latest.insert(key(number), number);
    }
    let there = |number: &u64| out.iter().any(|found| found.offset == *number);
    latest.iter().all(|(key, number)| {
        let gone = !out.iter().any(|found| found.key == key);
        there(number) || (gone && value(*number).is_none() && number + 40 < end)
    })
}

fn crash_everywhere(prepare: impl Fn(&SimStorage), step: usize, seeds: u64) -> Vec<String> {
    let whole = SimStorage::new();
    let mut told = Told::default();
    run(&whole, &mut told).unwrap();
    assert_eq!(told.appended, 180);
    let mut failures = Vec::new();
    for operation in (0..=whole.operations()).step_by(step) {
        for seed in 0..seeds {
            let storage = SimStorage::new();
            prepare(&storage);
            storage.stop_at(operation);
            let mut told = Told::default();
            drop(run(&storage, &mut told));
            if (seed + operation) % 3 == 0 {
                storage.kill()
            } else {
                storage.crash(seed * 7919 + operation)
            }
            let mut result = check(&storage, &told);
            if result.is_ok() {
                // The publisher appends again what is missing, and nothing twice.
                let log = open(&storage).unwrap();
                publish(&log, 250, &mut told).unwrap();
                log.sync().unwrap();
                drop(log);
                (told.synced, told.appended) = (250, 250);
                storage.crash(seed);
                result = check(&storage, &told);
            }
            if let Err(failure) = result {
                failures.push(format!("operation {operation}, seed {seed}: {failure}"));
            }
        }
    }
    failures
}

#[test]
fn what_was_synced_survives_a_crash_at_every_operation() {
    let failures = crash_everywhere(|_| {}, 1, 2);
    assert!(failures.is_empty(), "{} failures, first: {}", failures.len(), failures[0]);
}

#[test]
fn without_syncs_the_crash_test_fails() {
    assert!(!crash_everywhere(SimStorage::lie_about_files, 17, 2).is_empty());
    assert!(!crash_everywhere(SimStorage::lie_about_dirs, 17, 2).is_empty());
}

/// Compaction really happens in the run above, and old tombstones go.
#[test]
fn the_run_compacts_and_retains() {
    let storage = SimStorage::new();
    run(&storage, &mut Told::default()).unwrap();
    let log = open(&storage).unwrap();
    assert!(log.start_offset("events", 0).unwrap() > 60);
    let mut out = Vec::new();
    let mut offset = 0;
    while offset < 180 {
        offset = log.read("latest", 0, offset, 1000, &mut out).unwrap();
    }
    assert!(out.len() < 120, "{}", out.len());
    let old = out.iter().filter(|found| found.offset < 60).count();
    assert!(old < 13, "{old}");
}

#[test]
fn a_failed_write_poisons_the_partition_and_the_readers_go_on() {
    let storage = SimStorage::new();
    let log = open(&storage).unwrap();
    log.create_topic(&TopicSpec::delete("t", 1, 1 << 20)).unwrap();
    let message = Message { key: b"k", value: Some(b"v"), time: Timestamp(1) };
    log.append("t", &[message; 3]).unwrap();
    storage.fail_write_in(0);
    assert!(matches!(log.append("t", &[message]), Err(LogError::Io { .. })));
    assert!(matches!(log.append("t", &[message]), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.sync(), Err(LogError::Poisoned { .. })));
    let mut out = Vec::new();
    assert_eq!(log.read("t", 0, 0, 10, &mut out).unwrap(), 3);
    assert_eq!((out.len(), log.end_offset("t", 0).unwrap()), (3, 3));
}
