//! The order of syncs and removals in maintenance: a power cut at every operation of one, where the newest messages or
//! commits were not durable before. Each test fails without one line of what it is about.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use hoga_core::ids::Timestamp;

use super::*;
use crate::journal::scan::segments;
use crate::storage::{SimStorage, Storage};

const SEEDS: u64 = 12;

type Log = EmbeddedLog<SimStorage>;

fn open(storage: &SimStorage) -> Result<Log, String> {
    let config = EmbeddedConfig { segment_bytes: 4096, ..EmbeddedConfig::default() };
    EmbeddedLog::open_on(storage.clone(), "/log", config)
        .map_err(|error| format!("refused to start: {error}"))
}

/// Appends the messages of these offsets, a few at a time; the key of each is its offset modulo `keys`.
fn append(log: &Log, offsets: Range<u64>, keys: u64) {
    for number in offsets {
        let key = (number % keys).to_le_bytes();
        let value = [number as u8; 60];
        let message = Message { key: &key, value: Some(&value), time: Timestamp(number as i64) };
        log.append("t", &[message]).unwrap();
    }
}

/// The offsets that are there, from `from` on, and the end.
fn offsets(log: &Log, from: u64) -> Result<(Vec<u64>, u64), String> {
    let end = log.end_offset("t", 0).map_err(|error| error.to_string())?;
    let (mut offset, mut out) = (from, Vec::new());
    while offset < end {
        offset = log.read("t", 0, offset, 100, &mut out).map_err(|error| error.to_string())?;
    }
    Ok((out.into_iter().map(|found| found.offset).collect(), end))
}

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}

/// Cuts the power at every operation of a maintenance and after it, and checks what the next start finds.
fn cut_in_maintenance(
    build: impl Fn(&SimStorage) -> Log,
    check: impl Fn(&SimStorage, &Log) -> Result<(), String>,
) {
    let storage = SimStorage::new();
    let log = build(&storage);
    let from = storage.operations();
    let done = log.maintain().unwrap();
    assert!(done.removed + done.compacted > 0, "the maintenance has something to do: {done:?}");
    check(&storage, &log).unwrap();
    drop(log);
    for operation in from..=storage.operations() {
        for seed in 0..SEEDS {
            let storage = SimStorage::new();
            let log = build(&storage);
            storage.stop_at(operation);
            drop(log.maintain());
            drop(log);
            storage.crash(seed * 7919 + operation);
            let result = open(&storage).and_then(|log| check(&storage, &log));
            assert_eq!(result, Ok(()), "power cut at operation {operation}, seed {seed}");
        }
    }
}

/// Every started segment begins behind the one before it, and nothing half-written is left.
fn no_leftovers(storage: &SimStorage) -> Result<(), String> {
    let dir = Path::new("/log/topics/t/0000");
    let names = storage.list(dir).map_err(|error| error.to_string())?;
    ensure(names.iter().all(|name| name.ends_with(".seg")), || format!("{names:?} are left"))?;
    let files = segments(storage, dir).map_err(|error| error.to_string())?;
    let headers: Vec<_> = files.iter().filter_map(|file| file.header.ok()).collect();
    let follow = |pair: &[crate::segment::SegmentHeader]| {
        pair[0].base < pair[1].base
            && pair[0].compacted.is_none_or(|compacted| compacted.end + 1 == pair[1].base)
    };
    ensure(headers.windows(2).all(follow), || format!("replaced segments are left: {headers:?}"))
}

fn with_topic(storage: &SimStorage, spec: &TopicSpec) -> Log {
    let log = open(storage).unwrap();
    log.create_topic(spec).unwrap();
    log
}

/// The sync before compaction: what is removed for the sake of a newer message goes only once that one is durable. There
/// are so many keys that the first compacted segment is in place while those that replace its messages are still read.
#[test]
fn compaction_removes_nothing_for_the_sake_of_what_a_power_cut_takes() {
    const KEYS: u64 = 80;
    cut_in_maintenance(
        |storage| {
            let log = with_topic(storage, &TopicSpec::compact("t", 1));
            append(&log, 0..KEYS, KEYS);
            log.sync().unwrap();
            append(&log, KEYS..2 * KEYS + 10, KEYS);
            log
        },
        |storage, log| {
            let (found, end) = offsets(log, 0)?;
            ensure(end >= KEYS, || format!("ends at {end}, and {KEYS} were synced"))?;
            let latest: BTreeMap<u64, u64> = (0..end).map(|number| (number % KEYS, number)).collect();
            let lost: Vec<&u64> = latest.values().filter(|number| !found.contains(number)).collect();
            ensure(lost.is_empty(), || format!("the last messages {lost:?} of their keys are lost"))?;
            no_leftovers(storage)
        },
    );
}

/// The sync of the folder behind the renaming, and the removal of what was replaced: several segments become one.
#[test]
fn a_compacted_segment_has_its_name_before_the_others_lose_theirs() {
    cut_in_maintenance(
        |storage| {
            let log = with_topic(storage, &TopicSpec::compact("t", 1));
            // One key twice, so that something goes; all others are only in the segments that are replaced.
            append(&log, 0..2, 1);
            append(&log, 2..50, 50);
            log.sync().unwrap();
            log
        },
        |storage, log| {
            let (found, end) = offsets(log, 0)?;
            ensure(end == 50, || format!("ends at {end}"))?;
            let lost: Vec<u64> = (1..50).filter(|number| !found.contains(number)).collect();
            ensure(lost.is_empty(), || format!("{lost:?} are lost"))?;
            no_leftovers(storage)
        },
    );
}

/// The sync before retention removes: what is left must not be only what a power cut takes.
#[test]
fn retention_leaves_something_durable() {
    cut_in_maintenance(
        |storage| {
            let log = with_topic(storage, &TopicSpec::delete("t", 1, 8192));
            append(&log, 0..20, 7);
            log.sync().unwrap();
            append(&log, 20..90, 7);
            log
        },
        |_, log| {
            let (found, end) = offsets(log, 0)?;
            let start = log.start_offset("t", 0).map_err(|error| error.to_string())?;
            ensure(end >= 20, || format!("ends at {end}, and 20 were synced"))?;
            ensure(found.iter().copied().eq(start..end), || {
                format!("{found:?} are there of {start} to {end}")
            })
        },
    );
}

/// The sync of commits before retention and compaction: a power cut takes no group back to where messages have gone.
#[test]
fn no_group_goes_back_to_where_messages_have_gone() {
    for spec in [TopicSpec::delete("t", 1, 8192), TopicSpec::compact("t", 1)] {
        cut_in_maintenance(
            |storage| {
                let log = with_topic(storage, &spec);
                append(&log, 0..90, 7);
                log.commit("group", "t", 0, 10).unwrap();
                log.sync().unwrap();
                log.commit("group", "t", 0, 80).unwrap();
                log
            },
            |_, log| {
                let committed = log.committed("group", "t", 0).map_err(|error| error.to_string())?;
                let Some(from) = committed else { return Err("the group is gone".into()) };
                let (found, end) = offsets(log, from)?;
                ensure(end == 90 && found.iter().copied().eq(from..end), || {
                    format!("the group is at {from} and finds {found:?} up to {end}")
                })
            },
        );
    }
}

/// The sync in the fold of commits: the old ones go only once the new ones are durable.
#[test]
fn a_fold_of_commits_loses_none_in_a_power_cut() {
    let first = Path::new("/log/groups/00000001.seg");
    // Commits until the first segment of commits is removed or the machine stops.
    let run = |storage: &SimStorage, stop: Option<u64>| {
        let log = with_topic(storage, &TopicSpec::compact("t", 1));
        log.commit("rare", "t", 0, 7).unwrap();
        log.sync().unwrap();
        if let Some(stop) = stop {
            storage.stop_at(stop);
        }
        let mut offset = 0;
        while storage.exists(first).unwrap() && log.commit("busy", "t", 0, offset).is_ok() {
            offset += 1;
            assert!(offset < 20_000, "commits are never folded");
        }
    };
    let storage = SimStorage::new();
    run(&storage, None);
    let last = storage.operations();
    for operation in last - 5..=last {
        for seed in 0..SEEDS {
            let storage = SimStorage::new();
            run(&storage, Some(operation));
            storage.crash(seed);
            let committed = open(&storage)
                .and_then(|log| log.committed("rare", "t", 0).map_err(|error| error.to_string()));
            assert_eq!(committed, Ok(Some(7)), "power cut at operation {operation}, seed {seed}");
        }
    }
}
