use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use hoga_core::ids::Timestamp;

use super::testing::{Group, at, wait_until};
use super::*;
use crate::event_log::{EventLog, MemoryLog, Message, TopicSpec};

/// What a database would hold: what was taken of each partition, and where it stands.
#[derive(Default)]
struct Store {
    taken: Mutex<BTreeMap<TopicPartition, Vec<u64>>>,
    away: AtomicBool,
    broken: AtomicBool,
    /// The most messages that a call takes of one partition.
    most: AtomicUsize,
    calls: AtomicUsize,
    largest: AtomicUsize,
    /// Partitions that were said to be ours.
    assigned: AtomicUsize,
}

struct Handler {
    store: Arc<Store>,
    owned: Vec<TopicPartition>,
    keeps_offsets: bool,
}

impl Handler {
    fn check(&self) -> Result<(), HandlerError> {
        if self.store.broken.load(Ordering::SeqCst) {
            return Err(HandlerError::Stop("broken".into()));
        }
        match self.store.away.load(Ordering::SeqCst) {
            true => Err(HandlerError::Later("the database is away".into())),
            false => Ok(()),
        }
    }
}

impl BatchHandler for Handler {
    fn assigned(&mut self, places: &[TopicPartition]) -> Result<Vec<Start>, HandlerError> {
        self.check()?;
        self.store.assigned.fetch_add(places.len(), Ordering::SeqCst);
        self.owned.extend(places.iter().cloned());
        let taken = self.store.taken.lock().unwrap();
        let start = |place| match taken.get(place) {
            Some(offsets) if self.keeps_offsets => Start::At(offsets.last().map_or(0, |last| last + 1)),
            _ => Start::Committed,
        };
        Ok(places.iter().map(start).collect())
    }

    fn revoked(&mut self, places: &[TopicPartition]) {
        self.owned.retain(|place| !places.contains(place));
    }

    fn handle(&mut self, offers: &mut [Offer]) -> Result<(), HandlerError> {
        self.check()?;
        let mut taken = self.store.taken.lock().unwrap();
        let most = self.store.most.load(Ordering::SeqCst);
        for offer in offers {
            assert!(self.owned.contains(&offer.run.place), "{} is not ours", offer.run.place);
            let count = if most == 0 { offer.run.messages.len() } else { most.min(offer.run.messages.len()) };
            self.store.largest.fetch_max(offer.run.messages.len(), Ordering::SeqCst);
            let list = taken.entry(offer.run.place.clone()).or_default();
            list.extend(offer.run.messages[..count].iter().map(|message| message.offset));
            offer.taken = count;
        }
        self.store.calls.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn safe(&mut self, _: bool) -> Result<Vec<(TopicPartition, u64)>, HandlerError> {
        self.check()?;
        let taken = self.store.taken.lock().unwrap();
        // Of all partitions that it ever had: what may be committed is the runtime's business.
        Ok(taken.iter().filter_map(|(place, offsets)| Some((place.clone(), offsets.last()? + 1))).collect())
    }
}

fn quick() -> BatchOptions {
    BatchOptions {
        max_messages: 100,
        window: 100,
        idle: Duration::from_millis(1),
        commit_every: Duration::from_millis(2),
        backoff: (Duration::from_millis(1), Duration::from_millis(8)),
        observe_every: Duration::from_millis(1),
        ..BatchOptions::default()
    }
}

struct Running {
    signal: Arc<Signal>,
    thread: JoinHandle<Result<(), GroupFault>>,
}

impl Running {
    fn stop(self) -> Result<(), GroupFault> {
        self.signal.stop();
        self.thread.join().unwrap()
    }
}

fn start(source: Box<dyn Source>, store: &Arc<Store>, keeps_offsets: bool, options: BatchOptions) -> Running {
    let signal = Arc::new(Signal::new());
    let (theirs, store) = (signal.clone(), store.clone());
    let thread = spawn(move || {
        let mut handler = Handler { store, owned: Vec::new(), keeps_offsets };
        run_batches(source, &mut handler, &options, &theirs, &())
    });
    Running { signal, thread }
}

fn append(log: &MemoryLog, topic: &str, count: usize) {
    for n in 0..count {
        let (key, value) = (n.to_le_bytes(), b"v");
        log.append(topic, &[Message { key: &key, value: Some(value), time: Timestamp(1) }]).unwrap();
    }
}

#[test]
fn a_group_reads_all_topics_in_order_and_goes_on_where_it_committed() {
    let log = Arc::new(MemoryLog::new());
    log.create_topic(&TopicSpec::delete("a", 3, u64::MAX)).unwrap();
    log.create_topic(&TopicSpec::compact("b", 1)).unwrap();
    let store = Arc::new(Store::default());
    let mut expected = 0;
    for _ in 0..3 {
        append(&log, "a", 1000);
        append(&log, "b", 10);
        expected += 1010;
        let source = LogSource::new(log.clone(), "g", &["a", "b"]).unwrap();
        assert!(log.committed("g", "a", 2).unwrap().is_some(), "retention waits from the registration on");
        let running = start(Box::new(source), &store, false, quick());
        wait_until("everything is taken", || {
            store.taken.lock().unwrap().values().map(Vec::len).sum::<usize>() == expected
        });
        running.stop().unwrap();
    }
    for (place, offsets) in &*store.taken.lock().unwrap() {
        let end = log.end_offset(&place.topic, place.partition).unwrap();
        assert_eq!(*offsets, (0..end).collect::<Vec<_>>(), "{place}: each once, in order");
        assert_eq!(log.committed("g", &place.topic, place.partition).unwrap(), Some(end));
    }
}

#[test]
fn what_compaction_took_is_passed_and_committed() {
    let log = Arc::new(MemoryLog::new());
    log.create_topic(&TopicSpec::compact("b", 1)).unwrap();
    for _ in 0..10 {
        log.append("b", &[Message { key: b"k", value: Some(b"v"), time: Timestamp(1) }]).unwrap();
    }
    log.maintain().unwrap();
    let store = Arc::new(Store::default());
    let running = start(Box::new(LogSource::new(log.clone(), "g", &["b"]).unwrap()), &store, false, quick());
    wait_until("committed", || log.committed("g", "b", 0).unwrap() == Some(10));
    running.stop().unwrap();
    assert_eq!(store.taken.lock().unwrap().values().next().unwrap(), &[9]);
}

#[test]
fn what_is_not_taken_is_offered_again_and_waits_in_bounded_memory() {
    let group = Group::new(1);
    (0..2000u32).for_each(|n| group.append(&n.to_le_bytes(), b"v"));
    let store = Arc::new(Store { most: AtomicUsize::new(7), ..Store::default() });
    let running = start(group.member(0), &store, false, quick());
    wait_until("everything is committed", || group.is_done());
    running.stop().unwrap();
    assert_eq!(store.taken.lock().unwrap()[&at(0)], (0..2000).collect::<Vec<_>>());
    let (largest, options) = (store.largest.load(Ordering::SeqCst), quick());
    assert!(largest <= options.window + options.max_messages, "{largest} messages waited");
}

#[test]
fn a_database_that_is_away_is_waited_for_and_nothing_is_lost_or_doubled() {
    let group = Group::new(2);
    let store = Arc::new(Store { away: AtomicBool::new(true), ..Store::default() });
    let running = start(group.member(0), &store, true, quick());
    for round in 0..3u32 {
        store.away.store(true, Ordering::SeqCst);
        (0..500u32).for_each(|n| group.append(&(n + round).to_le_bytes(), b"v"));
        store.away.store(false, Ordering::SeqCst);
        wait_until("everything is committed", || group.is_done());
    }
    group.set_away(true);
    group.append(b"one more", b"v");
    group.set_away(false);
    wait_until("everything is committed", || group.is_done());
    running.stop().unwrap();
    for (place, offsets) in &*store.taken.lock().unwrap() {
        let end = group.log.end_offset("t", place.partition).unwrap();
        assert_eq!(*offsets, (0..end).collect::<Vec<_>>(), "{place}");
    }
    assert_eq!(group.violations(), Vec::<String>::new());
}

#[test]
fn a_log_that_cannot_begin_where_it_is_told_is_told_again_and_the_handler_asked_once() {
    for keeps_offsets in [true, false] {
        let group = Group::new(3);
        (0..300u32).for_each(|n| group.append(&n.to_le_bytes(), b"v"));
        group.refuse_starts(4);
        let store = Arc::new(Store::default());
        let running = start(group.member(0), &store, keeps_offsets, quick());
        wait_until("everything is committed", || group.is_done());
        running.stop().unwrap();
        assert_eq!(store.assigned.load(Ordering::SeqCst), 3, "each partition once");
        for (place, offsets) in &*store.taken.lock().unwrap() {
            let end = group.log.end_offset("t", place.partition).unwrap();
            assert_eq!(*offsets, (0..end).collect::<Vec<_>>(), "{place}: each once, in order");
        }
        assert_eq!(group.violations(), Vec::<String>::new());
    }
}

#[test]
fn a_handler_that_cannot_go_on_ends_the_group_with_its_fault() {
    let group = Group::new(1);
    let store = Arc::new(Store { broken: AtomicBool::new(true), ..Store::default() });
    let fault = start(group.member(0), &store, false, quick()).thread.join().unwrap().unwrap_err();
    assert_eq!((fault.code(), fault.to_string().as_str()), ("group-handler", "group g has stopped: broken"));
}

#[test]
fn f3_offsets_of_a_partition_that_was_lost_are_not_committed() {
    let group = Group::new(3);
    let (first, second) = (Arc::new(Store::default()), Arc::new(Store::default()));
    (0..300u32).for_each(|n| group.append(&n.to_le_bytes(), b"v"));
    // Nothing is committed before partition 2 has gone: the store still holds its offsets.
    let options = BatchOptions { commit_every: Duration::from_secs(3600), ..quick() };
    let running = start(group.member(0), &first, false, options);
    wait_until("all is taken", || first.taken.lock().unwrap().values().map(Vec::len).sum::<usize>() == 300);
    group.take(2, 1);
    wait_until("the member was told", || group.knows_losses());
    running.stop().unwrap();
    assert_eq!(group.committed(2), None, "its new owner has not committed, and the old one must not");
    assert!(group.committed(0).is_some() && group.committed(1).is_some());
    let other = start(group.member(1), &second, false, quick());
    wait_until("the new owner takes it from the start", || group.committed(2).is_some());
    other.stop().unwrap();
    assert_eq!(second.taken.lock().unwrap()[&at(2)], first.taken.lock().unwrap()[&at(2)]);
    assert_eq!(group.violations(), Vec::<String>::new());
}

#[test]
fn f6_partitions_that_move_orderly_repeat_nothing() {
    let group = Group::new(4);
    let store = Arc::new(Store::default());
    // Commits come only with revocations and the end.
    let options = BatchOptions { commit_every: Duration::from_secs(3600), ..quick() };
    let members: Vec<Running> =
        (0..2).map(|id| start(group.member(id), &store, false, options.clone())).collect();
    for n in 0..4000u32 {
        group.append(&n.to_le_bytes(), b"v");
        if n % 50 == 0 {
            wait_until("no partition moves", || group.is_settled());
            group.give(n / 50 % 4, (n / 200 % 2) as usize);
        }
    }
    wait_until("all is taken", || store.taken.lock().unwrap().values().map(Vec::len).sum::<usize>() >= 4000);
    wait_until("no partition moves", || group.is_settled());
    members.into_iter().for_each(|member| member.stop().unwrap());
    for (place, offsets) in &*store.taken.lock().unwrap() {
        let end = group.log.end_offset("t", place.partition).unwrap();
        assert_eq!(*offsets, (0..end).collect::<Vec<_>>(), "{place}: each once, in order, whoever owned it");
        assert_eq!(group.committed(place.partition), Some(end));
        let history = group.history(place.partition);
        assert!(history.is_sorted_by_key(|(_, offset)| *offset) && history.len() > 2, "{history:?}");
    }
    assert_eq!(group.violations(), Vec::<String>::new());
}
