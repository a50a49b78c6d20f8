//! The law of [`EventLog`] as a suite that runs against every implementation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hoga_core::ids::Timestamp;

use super::{Cleanup, EventLog, Message, StoredMessage, TopicSpec, partition_for};
use crate::error::LogError;

const LONG: Duration = Duration::from_secs(20);

/// What an implementation promises beyond the common law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantees {
    /// Cleaning up is done by [`EventLog::maintain`] and waits for registered groups. Kafka's brokers clean up when they see fit, and
    /// do not know which groups there are.
    pub cleanup_waits: bool,
}

impl Guarantees {
    /// The whole law.
    pub const FULL: Guarantees = Guarantees { cleanup_waits: true };
    /// What Apache Kafka promises.
    pub const KAFKA: Guarantees = Guarantees { cleanup_waits: false };
}

/// Runs the whole suite. `make` gives a new, empty log at each call.
///
/// # Panics
/// When the implementation breaks the law.
pub fn run<L: EventLog + 'static>(make: impl Fn() -> L) {
    run_with(Guarantees::FULL, make);
}

/// Runs the suite as far as the implementation promises. `make` gives a new, empty log at each call.
///
/// # Panics
/// When the implementation breaks the law.
pub fn run_with<L: EventLog + 'static>(guarantees: Guarantees, make: impl Fn() -> L) {
    topics_are_made_once(&make());
    partitions_follow_the_key(&make());
    reading_gives_back_what_was_appended(&make());
    unknown_places_are_errors(&make());
    tails_are_found(&make());
    commits_never_go_down(&make());
    limits_are_kept(&make());
    waiting_ends_when_something_comes(Arc::new(make()));
    writers_and_readers_run_together(Arc::new(make()));
    appends_keep_their_order(Arc::new(make()));
    sync_makes_visible(&make());
    if guarantees.cleanup_waits {
        retention_waits_for_groups(&make());
        compaction_keeps_the_last_of_each_key(&make());
        compaction_waits_for_groups(&make());
    }
}

/// What a publisher relies on after a start, with a log that finds again what another one wrote: `open` opens the same log each time,
/// empty at first. The end is found, appending goes on behind it, and offsets and commits stay.
///
/// # Panics
/// When the implementation breaks the law.
pub fn reopening<L: EventLog>(open: impl Fn() -> L) {
    const PARTITIONS: u32 = 3;
    let spec = TopicSpec::delete("t", PARTITIONS, 1 << 30);
    let mut counts = [0u64; PARTITIONS as usize];
    for round in 0..3u64 {
        let log = open();
        log.create_topic(&spec).unwrap();
        for (partition, count) in counts.iter().enumerate() {
            let partition = partition as u32;
            let tail = log.tail("t", partition).unwrap();
            assert_eq!(tail.as_ref().map(|found| found.offset + 1).unwrap_or(0), *count);
            if let Some(tail) = tail {
                assert_eq!(tail.value, Some((count - 1).to_le_bytes().to_vec()), "the message's own number");
            }
            assert_eq!(log.end_offset("t", partition).unwrap(), *count);
            let committed = (round > 0).then_some(round);
            assert_eq!(log.committed("g", "t", partition).unwrap(), committed);
        }
        for key in 0..200u64 {
            let key = key.to_le_bytes();
            let count = &mut counts[log.partition_of("t", &key).unwrap() as usize];
            log.append("t", &[message(&key, &count.to_le_bytes(), round as i64)]).unwrap();
            *count += 1;
        }
        for partition in 0..PARTITIONS {
            log.commit("g", "t", partition, round + 1).unwrap();
        }
        log.sync().unwrap();
        for (partition, count) in counts.iter().enumerate() {
            let found = read_all(&log, "t", partition as u32, 0);
            let numbers = found
                .iter()
                .map(|found| u64::from_le_bytes(found.value.clone().unwrap().try_into().unwrap()));
            assert!(numbers.eq(0..*count), "round {round}: none lost, doubled or moved");
        }
    }
}

/// Many small appends without waiting for any of them, from two threads to several partitions.
fn appends_keep_their_order<L: EventLog + 'static>(log: Arc<L>) {
    const PARTITIONS: u32 = 4;
    const EACH: u64 = 4000;
    log.create_topic(&TopicSpec::delete("t", PARTITIONS, 1 << 30)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..EACH {
                    let key = [writer as u8, (number % 64) as u8];
                    log.append("t", &[message(&key, &number.to_le_bytes(), number as i64)]).unwrap();
                }
                log.sync().unwrap();
            });
        }
    });
    let mut last: BTreeMap<(u32, u8), u64> = BTreeMap::new();
    let mut count = 0;
    for partition in 0..PARTITIONS {
        let found = read_all(&*log, "t", partition, 0);
        assert!(found.iter().map(|found| found.offset).eq(0..found.len() as u64), "no holes");
        count += found.len() as u64;
        for found in found {
            assert_eq!(partition_for(&found.key, PARTITIONS), partition);
            let number = u64::from_le_bytes(found.value.unwrap().try_into().unwrap());
            let before = last.insert((partition, found.key[0]), number);
            assert!(before.is_none_or(|before| before < number), "a writer's order within a partition");
        }
    }
    assert_eq!(count, 2 * EACH);
}

/// After a sync, every way of looking sees what was appended before it.
fn sync_makes_visible(log: &dyn EventLog) {
    log.create_topic(&TopicSpec::delete("t", 1, 1 << 30)).unwrap();
    let mut out = Vec::new();
    for number in 0..60u64 {
        log.append("t", &[message(b"k", &number.to_le_bytes(), 7)]).unwrap();
        log.sync().unwrap();
        out.clear();
        match number % 4 {
            0 => assert_eq!(log.end_offset("t", 0).unwrap(), number + 1),
            1 => assert_eq!(log.tail("t", 0).unwrap().unwrap().offset, number),
            2 => {
                assert_eq!(log.read("t", 0, number, 10, &mut out).unwrap(), number + 1);
                assert_eq!(out[0].value, Some(number.to_le_bytes().to_vec()));
            }
            _ => assert!(log.wait_for("t", 0, number, Duration::ZERO).unwrap()),
        }
        assert_eq!(log.read("t", 0, number + 1, 10, &mut out).unwrap(), number + 1, "the end, at once");
    }
}

fn message<'a>(key: &'a [u8], value: &'a [u8], time: i64) -> Message<'a> {
    Message { key, value: Some(value), time: Timestamp(time) }
}

/// Reads a partition from `offset` to its end, in steps of an odd size.
fn read_all(log: &dyn EventLog, topic: &str, partition: u32, mut offset: u64) -> Vec<StoredMessage> {
    let end = log.end_offset(topic, partition).unwrap();
    let mut out = Vec::new();
    while offset < end {
        let before = out.len();
        let next = log.read(topic, partition, offset, 7, &mut out).unwrap();
        assert!(next > offset, "a read before the end moves on");
        assert!(out.len() - before <= 7);
        assert!(out[before..].iter().all(|found| found.offset >= offset && found.offset < next));
        offset = next;
    }
    assert_eq!(offset, end);
    assert!(out.is_sorted_by(|a, b| a.offset < b.offset));
    out
}

fn topics_are_made_once(log: &dyn EventLog) {
    let spec = TopicSpec::delete("trade.completed", 3, 1 << 20);
    log.create_topic(&spec).unwrap();
    log.create_topic(&spec).unwrap();
    log.create_topic(&TopicSpec::compact("order.projection", 1)).unwrap();
    for different in [
        TopicSpec::delete("trade.completed", 4, 1 << 20),
        TopicSpec::delete("trade.completed", 3, 1 << 21),
        TopicSpec::compact("trade.completed", 3),
    ] {
        assert!(matches!(log.create_topic(&different), Err(LogError::SpecDiffers { .. })));
    }
    for bad in ["", "..", ".a", "a/b", "A", "ä", &"a".repeat(101)] {
        assert!(matches!(log.create_topic(&TopicSpec::compact(bad, 1)), Err(LogError::Config(_))), "{bad}");
    }
    assert!(log.create_topic(&TopicSpec::compact("none", 0)).is_err());
    assert!(log.create_topic(&TopicSpec::compact("many", 1025)).is_err());
    let names: Vec<String> = log.topics().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["order.projection", "trade.completed"]);
}

fn partitions_follow_the_key(log: &dyn EventLog) {
    // Stored messages depend on these.
    for (key, expected) in [(&b""[..], 3), (b"a", 1), (b"\0\0", 4), (b"\x01\0", 3), (b"BTCUSDT", 2)] {
        assert_eq!(partition_for(key, 5), expected, "{key:?}");
    }
    log.create_topic(&TopicSpec::delete("t", 5, 1 << 20)).unwrap();
    let mut seen = [0u32; 5];
    for key in 0..500u32 {
        let partition = log.partition_of("t", &key.to_le_bytes()).unwrap();
        assert_eq!(partition, partition_for(&key.to_le_bytes(), 5));
        seen[partition as usize] += 1;
    }
    assert!(seen.iter().all(|count| (60..140).contains(count)), "keys spread: {seen:?}");
}

fn reading_gives_back_what_was_appended(log: &dyn EventLog) {
    log.create_topic(&TopicSpec::delete("t", 3, 1 << 30)).unwrap();
    let mut expected: BTreeMap<u32, Vec<StoredMessage>> = BTreeMap::new();
    let mut number = 0u64;
    for size in [1usize, 2, 0, 50, 1, 300] {
        let texts: Vec<([u8; 4], String)> = (0..size)
            .map(|_| {
                number += 1;
                ((number as u32 % 17).to_le_bytes(), "v".repeat((number % 90) as usize) + &number.to_string())
            })
            .collect();
        let messages: Vec<Message<'_>> = texts
            .iter()
            .map(|(key, text)| Message {
                key,
                value: (text.len() % 10 != 3).then_some(text.as_bytes()),
                time: Timestamp(-5 + text.len() as i64),
            })
            .collect();
        log.append("t", &messages).unwrap();
        for message in &messages {
            let list = expected.entry(partition_for(message.key, 3)).or_default();
            let offset = list.len() as u64;
            list.push(StoredMessage {
                offset,
                key: message.key.to_vec(),
                value: message.value.map(<[u8]>::to_vec),
                time: message.time,
            });
        }
    }
    log.sync().unwrap();
    for partition in 0..3 {
        let expected = &expected[&partition];
        assert_eq!(log.start_offset("t", partition).unwrap(), 0);
        assert_eq!(log.end_offset("t", partition).unwrap(), expected.len() as u64);
        assert_eq!(read_all(log, "t", partition, 0), *expected);
        for from in 0..expected.len() as u64 {
            let mut out = Vec::new();
            let next = log.read("t", partition, from, 1, &mut out).unwrap();
            assert_eq!((next, &out[..]), (from + 1, &expected[from as usize..=from as usize]));
        }
        let mut none = Vec::new();
        let end = expected.len() as u64;
        assert_eq!(log.read("t", partition, end, 10, &mut none).unwrap(), end);
        assert_eq!(log.read("t", partition, end + 5, 10, &mut none).unwrap(), end + 5);
        assert!(none.is_empty());
    }
}

fn unknown_places_are_errors(log: &dyn EventLog) {
    log.create_topic(&TopicSpec::delete("t", 2, 1 << 20)).unwrap();
    let mut out = Vec::new();
    let no_topic = |error: LogError| assert!(matches!(error, LogError::NoTopic { .. }), "{error}");
    let no_partition = |error: LogError| assert!(matches!(error, LogError::NoPartition { .. }), "{error}");
    no_topic(log.append("x", &[]).unwrap_err());
    no_topic(log.read("x", 0, 0, 1, &mut out).unwrap_err());
    no_topic(log.tail("x", 0).unwrap_err());
    no_topic(log.end_offset("x", 0).unwrap_err());
    no_topic(log.commit("g", "x", 0, 1).unwrap_err());
    no_partition(log.read("t", 2, 0, 1, &mut out).unwrap_err());
    no_partition(log.tail("t", 2).unwrap_err());
    no_partition(log.start_offset("t", 2).unwrap_err());
    no_partition(log.wait_for("t", 2, 0, Duration::ZERO).unwrap_err());
    no_partition(log.commit("g", "t", 2, 1).unwrap_err());
    no_partition(log.committed("g", "t", 2).unwrap_err());
    assert!(matches!(log.commit("", "t", 0, 1), Err(LogError::Config(_))));
    assert!(matches!(log.commit("a b", "t", 0, 1), Err(LogError::Config(_))));
    assert!(log.groups().is_empty());
}

fn tails_are_found(log: &dyn EventLog) {
    log.create_topic(&TopicSpec::delete("t", 1, 1 << 20)).unwrap();
    assert_eq!(log.tail("t", 0).unwrap(), None);
    for number in 0..40i64 {
        let text = number.to_string();
        log.append("t", &[message(b"k", b"x", 0), message(b"k", text.as_bytes(), number)]).unwrap();
        log.sync().unwrap();
        let tail = log.tail("t", 0).unwrap().unwrap();
        assert_eq!(
            (tail.offset, tail.value, tail.time),
            (number as u64 * 2 + 1, Some(text.into_bytes()), Timestamp(number))
        );
    }
}

fn commits_never_go_down(log: &dyn EventLog) {
    log.create_topic(&TopicSpec::delete("t", 2, 1 << 20)).unwrap();
    assert_eq!(log.committed("g", "t", 0).unwrap(), None);
    log.commit("g", "t", 0, 0).unwrap();
    assert_eq!(log.committed("g", "t", 0).unwrap(), Some(0));
    for (offset, expected) in [(5, 5), (3, 5), (5, 5), (9, 9), (0, 9)] {
        log.commit("g", "t", 0, offset).unwrap();
        assert_eq!(log.committed("g", "t", 0).unwrap(), Some(expected));
    }
    assert_eq!(log.committed("g", "t", 1).unwrap(), None);
    log.commit("h", "t", 1, 4).unwrap();
    let groups: Vec<(String, u32, u64)> =
        log.groups().into_iter().map(|found| (found.group, found.partition, found.offset)).collect();
    assert_eq!(groups, [("g".to_string(), 0, 9), ("h".to_string(), 1, 4)]);
    assert!(log.forget_group("g", "t").unwrap());
    assert!(!log.forget_group("g", "t").unwrap());
    assert_eq!(log.committed("g", "t", 0).unwrap(), None);
}

fn limits_are_kept(log: &dyn EventLog) {
    log.create_topic(&TopicSpec::delete("t", 1, 1 << 30)).unwrap();
    let large = vec![7; super::MAX_MESSAGE - 1];
    log.append("t", &[message(b"k", &large, 0)]).unwrap();
    let error = log.append("t", &[message(b"k", b"small", 0), message(b"kk", &large, 0)]).unwrap_err();
    assert!(matches!(error, LogError::TooLarge { .. }));
    log.sync().unwrap();
    assert_eq!(log.end_offset("t", 0).unwrap(), 1, "nothing of a refused append is there");
    let many = vec![message(b"k", &large, 1); 9];
    log.append("t", &many).unwrap();
    log.sync().unwrap();
    assert_eq!(read_all(log, "t", 0, 0).len(), 10);
    assert_eq!(log.tail("t", 0).unwrap().unwrap().value.unwrap(), large);
}

fn waiting_ends_when_something_comes<L: EventLog + 'static>(log: Arc<L>) {
    log.create_topic(&TopicSpec::delete("t", 1, 1 << 20)).unwrap();
    assert!(!log.wait_for("t", 0, 0, Duration::from_millis(1)).unwrap());
    let waiter = std::thread::spawn({
        let log = log.clone();
        move || log.wait_for("t", 0, 0, LONG).unwrap()
    });
    log.append("t", &[message(b"k", b"v", 1)]).unwrap();
    assert!(waiter.join().unwrap());
    assert!(log.wait_for("t", 0, 0, Duration::ZERO).unwrap());
    assert!(!log.wait_for("t", 0, 1, Duration::ZERO).unwrap());
}

fn writers_and_readers_run_together<L: EventLog + 'static>(log: Arc<L>) {
    const WRITERS: u64 = 2;
    const EACH: u64 = 1500;
    log.create_topic(&TopicSpec::delete("t", 1, 1 << 30)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let log = &log;
            scope.spawn(move || {
                for start in (0..EACH).step_by(3) {
                    let texts: Vec<[u8; 8]> = (start..start + 3).map(u64::to_le_bytes).collect();
                    let key = writer.to_le_bytes();
                    let messages: Vec<_> = texts.iter().map(|text| message(&key, text, 0)).collect();
                    log.append("t", &messages).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut offset, mut next) = (0, [0u64; WRITERS as usize]);
                while offset < WRITERS * EACH {
                    assert!(log.wait_for("t", 0, offset, LONG).unwrap());
                    let mut out = Vec::new();
                    offset = log.read("t", 0, offset, 64, &mut out).unwrap();
                    for found in out {
                        let writer = u64::from_le_bytes(found.key.try_into().unwrap()) as usize;
                        let number = u64::from_le_bytes(found.value.unwrap().try_into().unwrap());
                        assert_eq!(number, next[writer], "each writer's order is kept");
                        next[writer] += 1;
                    }
                }
                assert_eq!(next, [EACH; WRITERS as usize]);
            });
        }
    });
}

fn retention_waits_for_groups(log: &dyn EventLog) {
    log.create_topic(&TopicSpec::delete("t", 1, 40_000)).unwrap();
    log.commit("slow", "t", 0, 0).unwrap();
    let text = [9; 500];
    for number in 0..400 {
        log.append("t", &[message(b"k", &text, number)]).unwrap();
    }
    let done = log.maintain().unwrap();
    assert_eq!((done.removed, done.held), (0, 1), "the slow group holds everything");
    assert_eq!(read_all(log, "t", 0, 0).len(), 400);
    log.commit("slow", "t", 0, 100).unwrap();
    log.maintain().unwrap();
    let start = log.start_offset("t", 0).unwrap();
    assert!(start > 0 && start <= 100, "only what it consumed may go: {start}");
    log.commit("slow", "t", 0, 400).unwrap();
    log.maintain().unwrap();
    let start = log.start_offset("t", 0).unwrap();
    assert!(start > 100 && start < 400, "{start}");
    let rest = read_all(log, "t", 0, 0);
    assert_eq!(rest.first().unwrap().offset, start, "a read before the start begins there");
    assert_eq!(rest.len() as u64, 400 - start);
    assert_eq!(log.tail("t", 0).unwrap().unwrap().offset, 399);
    assert_eq!(log.maintain().unwrap().held, 0);
}

fn compaction_keeps_the_last_of_each_key(log: &dyn EventLog) {
    let spec = TopicSpec::compact("t", 1);
    assert_eq!(spec.cleanup, Cleanup::Compact);
    log.create_topic(&spec).unwrap();
    let mut latest: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)> = BTreeMap::new();
    let mut number = 0u64;
    for round in 0..6 {
        for _ in 0..300 {
            let key = (number * number % 37).to_le_bytes();
            let text = [number as u8; 100];
            let value = (number % 11 != 5).then_some(&text[..]);
            log.append("t", &[Message { key: &key, value, time: Timestamp(number as i64) }]).unwrap();
            latest.insert(key.to_vec(), (number, value.map(<[u8]>::to_vec)));
            number += 1;
        }
        log.maintain().unwrap();
        assert_eq!(log.end_offset("t", 0).unwrap(), number);
        let left = read_all(log, "t", 0, 0);
        let mut seen: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)> = BTreeMap::new();
        for found in &left {
            seen.insert(found.key.clone(), (found.offset, found.value.clone()));
        }
        assert_eq!(seen, latest, "round {round}: the last of each key, at its offset");
        assert!(
            (left.len() as u64) < number.max(301),
            "round {round}: something went: {} of {number}",
            left.len()
        );
        assert_eq!(log.tail("t", 0).unwrap().unwrap().offset, number - 1);
        for found in left.iter().step_by(17) {
            let mut one = Vec::new();
            let next = log.read("t", 0, found.offset, 1, &mut one).unwrap();
            assert_eq!((&one[0], next > found.offset), (found, true));
        }
    }
}

fn compaction_waits_for_groups(log: &dyn EventLog) {
    const COUNT: u64 = 500;
    for name in ["t", "other"] {
        log.create_topic(&TopicSpec::compact(name, 1)).unwrap();
    }
    log.commit("slow", "t", 0, 0).unwrap();
    log.commit("fast", "t", 0, 0).unwrap();
    // What is committed elsewhere holds nothing here.
    log.commit("elsewhere", "other", 0, 0).unwrap();
    let text = [5; 200];
    let add = |count: u64, from: u64| {
        for number in from..from + count {
            let value = (number % 9 != 4).then_some(&text[..]);
            let key = [(number % 5) as u8];
            log.append("t", &[Message { key: &key, value, time: Timestamp(number as i64) }]).unwrap();
        }
    };
    // Every message from the group's offset on is there, without holes.
    let complete = |from: u64, end: u64| {
        let offsets = read_all(log, "t", 0, from).into_iter().map(|found| found.offset);
        assert!(offsets.eq(from..end), "a group at {from} has lost messages");
    };
    add(COUNT, 0);
    log.commit("fast", "t", 0, COUNT).unwrap();
    let done = log.maintain().unwrap();
    assert_eq!((done.compacted, done.held), (0, 1), "the slow group holds everything");
    complete(0, COUNT);
    let mut before = COUNT as usize;
    for consumed in [170, 400] {
        log.commit("slow", "t", 0, consumed).unwrap();
        let done = log.maintain().unwrap();
        complete(consumed, COUNT);
        let left = read_all(log, "t", 0, 0);
        assert!(done.compacted > 0, "what every group has consumed is compacted");
        assert_eq!(left.len() as u64 + done.compacted, before as u64);
        before = left.len();
    }
    log.commit("slow", "t", 0, COUNT).unwrap();
    add(COUNT, COUNT);
    // One that comes later counts from its first commit on, and no longer once it is forgotten.
    log.commit("late", "t", 0, COUNT).unwrap();
    for group in ["slow", "fast"] {
        log.commit(group, "t", 0, 2 * COUNT).unwrap();
    }
    log.maintain().unwrap();
    complete(COUNT, 2 * COUNT);
    assert!(log.forget_group("late", "t").unwrap());
    // An implementation may do a part at each call.
    let mut compacted = 0;
    loop {
        let done = log.maintain().unwrap();
        assert_eq!(done.held, 0);
        if done.compacted == 0 {
            break;
        }
        compacted += done.compacted;
    }
    assert!(compacted > 200, "nothing holds any more, but only {compacted} went");
    let left = read_all(log, "t", 0, 0);
    let last: BTreeMap<Vec<u8>, u64> = left.into_iter().map(|found| (found.key, found.offset)).collect();
    assert!(last.into_values().eq(2 * COUNT - 5..2 * COUNT), "the last of each key");
}
