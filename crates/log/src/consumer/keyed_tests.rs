use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use super::dead_letters::{self, Fate};
use super::testing::{Group, at, wait_until};
use super::*;
use crate::event_log::{EventLog, StoredMessage};

type Key = Vec<u8>;

/// What all members did. A message's first byte says what is done with it: 255 is unusable, 200 fails for ever, 100 blocks until it is
/// released, 1 to 9 fails so often and then works, 0 works.
#[derive(Default)]
struct Sink {
    /// Per key, the offsets that were handled or given up, in the order in which that happened.
    done: Mutex<BTreeMap<Key, Vec<u64>>>,
    tries: Mutex<BTreeMap<(TopicPartition, u64), u8>>,
    busy: Mutex<HashSet<(usize, Key)>>,
    blocked: AtomicBool,
    released: AtomicBool,
    away: AtomicBool,
}

impl Sink {
    fn count(&self) -> usize {
        self.done.lock().unwrap().values().map(|list| list.iter().collect::<BTreeSet<_>>().len()).sum()
    }
}

struct Handler {
    sink: Arc<Sink>,
    member: usize,
}

impl KeyedHandler for Handler {
    fn handle(&self, place: &TopicPartition, message: &StoredMessage) -> Result<(), KeyedError> {
        let busy = (self.member, message.key.clone());
        assert!(self.sink.busy.lock().unwrap().insert(busy.clone()), "two messages of a key at once");
        let result = self.decide(place, message);
        if matches!(result, Ok(()) | Err(KeyedError::Unusable(_))) {
            self.sink.done.lock().unwrap().entry(message.key.clone()).or_default().push(message.offset);
        }
        self.sink.busy.lock().unwrap().remove(&busy);
        result
    }
}

impl Handler {
    fn decide(&self, place: &TopicPartition, message: &StoredMessage) -> Result<(), KeyedError> {
        if self.sink.away.load(Ordering::SeqCst) {
            return Err(KeyedError::Away("the mail server is away".into()));
        }
        match message.value.as_ref().unwrap()[0] {
            255 => Err(KeyedError::Unusable("it means nothing".into())),
            200 => Err(KeyedError::Failed("it fails for ever".into())),
            100 => {
                self.sink.blocked.store(true, Ordering::SeqCst);
                wait_until("released", || self.sink.released.load(Ordering::SeqCst));
                Ok(())
            }
            fails => {
                let mut tries = self.sink.tries.lock().unwrap();
                let tried = tries.entry((place.clone(), message.offset)).or_default();
                *tried += 1;
                if *tried <= fails { Err(KeyedError::Failed("it fails for now".into())) } else { Ok(()) }
            }
        }
    }
}

#[derive(Default)]
struct Watch {
    most: Mutex<usize>,
    reasons: Mutex<BTreeSet<String>>,
}

impl Observer for Watch {
    fn progress(&self, places: &[PlaceProgress]) {
        let mut most = self.most.lock().unwrap();
        *most = places.iter().map(|place| place.waiting).max().unwrap_or(0).max(*most);
    }

    fn state(&self, state: &GroupState) {
        if let GroupState::Waiting { reason } = state {
            self.reasons.lock().unwrap().insert(reason.clone());
        }
    }
}

struct Running {
    signal: Arc<Signal>,
    watch: Arc<Watch>,
    thread: JoinHandle<Result<(), GroupFault>>,
}

impl Running {
    fn stop(self) -> Result<(), GroupFault> {
        self.signal.stop();
        self.thread.join().unwrap()
    }
}

fn quick(log: &Arc<dyn EventLog>) -> KeyedOptions {
    KeyedOptions {
        window: 64,
        max_messages: 16,
        attempts: 4,
        backoff: (Duration::from_millis(1), Duration::from_millis(4)),
        dead_letters: Some(log.clone()),
        idle: Duration::from_millis(1),
        commit_every: Duration::from_millis(1),
        observe_every: Duration::ZERO,
        ..KeyedOptions::default()
    }
}

fn start(source: Box<dyn Source>, member: usize, sink: &Arc<Sink>, options: KeyedOptions) -> Running {
    let (signal, watch) = (Arc::new(Signal::new()), Arc::new(Watch::default()));
    let handler: Arc<dyn KeyedHandler> = Arc::new(Handler { sink: sink.clone(), member });
    let (theirs, observer) = (signal.clone(), watch.clone() as Arc<dyn Observer>);
    let thread = spawn(move || run_keyed(source, &handler, &options, &theirs, &observer));
    Running { signal, watch, thread }
}

#[test]
fn f1_four_is_in_work_when_the_partition_goes_and_four_is_committed() {
    let group = Group::new(1);
    let log: Arc<dyn EventLog> = group.log.clone();
    let sink = Arc::new(Sink::default());
    let mut workers = BTreeSet::new();
    let mut keys =
        (0u32..).map(|n| n.to_le_bytes()).filter(|key| workers.insert(super::keyed::worker_of(key, 64)));
    for offset in 0..8 {
        group.append(&keys.next().unwrap(), &[if offset == 4 { 100 } else { 0 }]);
    }
    let options = KeyedOptions { workers: 64, finish_within: Duration::from_millis(30), ..quick(&log) };
    let options = KeyedOptions { commit_every: Duration::from_secs(3600), ..options };
    let first = start(group.member(0), 0, &sink, options.clone());
    wait_until("all but 4 are done", || sink.count() == 7 && sink.blocked.load(Ordering::SeqCst));
    group.give(0, 1);
    wait_until("the partition has gone", || group.committed(0).is_some());
    assert_eq!(group.committed(0), Some(4), "4 is the next one");
    let second = start(group.member(1), 1, &sink, options);
    wait_until("5 to 7 come again", || {
        sink.done.lock().unwrap().values().filter(|list| list.len() == 2).count() == 3
    });
    sink.released.store(true, Ordering::SeqCst);
    wait_until("4 is done", || sink.count() == 8);
    first.stop().unwrap();
    second.stop().unwrap();
    assert_eq!(group.committed(0), Some(8));
    assert_eq!(group.history(0), [(0, 4), (1, 8)], "what the first finished too late is not committed by it");
    assert_eq!(group.violations(), Vec::<String>::new());
}

#[test]
fn a_key_that_fails_waits_in_order_and_others_go_on_until_it_dies() {
    let group = Group::new(1);
    let log: Arc<dyn EventLog> = group.log.clone();
    let sink = Arc::new(Sink::default());
    // 0: works after two; 1: behind it; 2: fails for ever; 3: behind it; 4: unusable; 5: another key.
    for (key, what) in [("a", 2), ("a", 0), ("b", 200), ("b", 0), ("c", 255), ("d", 0)] {
        group.append(key.as_bytes(), &[what]);
    }
    let running = start(group.member(0), 0, &sink, KeyedOptions { workers: 1, ..quick(&log) });
    wait_until("everything is committed", || group.committed(0) == Some(6));
    running.stop().unwrap();
    let done = sink.done.lock().unwrap();
    assert_eq!((&done[&b"a"[..]], &done[&b"b"[..]], &done[&b"d"[..]]), (&vec![0, 1], &vec![3], &vec![5]));
    let letters = dead_letters::list(log.as_ref(), "t", false).unwrap();
    let facts: BTreeSet<_> = letters
        .iter()
        .map(|filed| (filed.letter.offset, filed.letter.attempts, filed.letter.reason.as_str()))
        .collect();
    assert_eq!(facts, BTreeSet::from([(2, 4, "it fails for ever"), (4, 1, "it means nothing")]));
    let letter = &letters.iter().find(|filed| filed.letter.offset == 4).unwrap().letter;
    assert_eq!(
        (&letter.key[..], letter.value.as_deref(), letter.group.as_str()),
        (&b"c"[..], Some(&[255][..]), "g")
    );
}

#[test]
fn what_is_away_is_waited_for_and_kills_no_message() {
    let group = Group::new(2);
    let log: Arc<dyn EventLog> = group.log.clone();
    let sink = Arc::new(Sink { away: AtomicBool::new(true), ..Sink::default() });
    (0..100u32).for_each(|n| group.append(&n.to_le_bytes(), &[0]));
    let running = start(group.member(0), 0, &sink, quick(&log));
    let reasons = || running.watch.reasons.lock().unwrap().clone();
    wait_until("it says why it waits", || reasons().contains("the mail server is away"));
    sink.away.store(false, Ordering::SeqCst);
    wait_until("everything is committed", || group.is_done());
    running.stop().unwrap();
    assert_eq!(sink.count(), 100);
    assert_eq!(dead_letters::list(log.as_ref(), "t", true).unwrap(), []);
}

#[test]
fn memory_is_bounded_while_one_message_holds_everything_up() {
    let group = Group::new(1);
    let log: Arc<dyn EventLog> = group.log.clone();
    let sink = Arc::new(Sink::default());
    group.append(b"slow", &[100]);
    (0..5000u32).for_each(|n| group.append(&n.to_le_bytes(), &[0]));
    let options = KeyedOptions { workers: 8, ..quick(&log) };
    let running = start(group.member(0), 0, &sink, options.clone());
    wait_until("it is full", || *running.watch.most.lock().unwrap() > options.window / 2);
    sink.released.store(true, Ordering::SeqCst);
    wait_until("everything is committed", || group.is_done());
    let most = *running.watch.most.lock().unwrap();
    running.stop().unwrap();
    assert!(most <= options.window, "{most} messages in memory");
}

#[test]
fn a_group_without_dead_letters_stops_in_front_of_what_it_cannot_handle() {
    let group = Group::new(1);
    let log: Arc<dyn EventLog> = group.log.clone();
    let sink = Arc::new(Sink::default());
    for what in [0, 255, 0] {
        group.append(b"k", &[what]);
    }
    let options = KeyedOptions { dead_letters: None, ..quick(&log) };
    let fault = start(group.member(0), 0, &sink, options).thread.join().unwrap().unwrap_err();
    assert!(fault.to_string().contains("t/0 offset 1: it means nothing"), "{fault}");
    assert_eq!(group.committed(0), Some(1));
}

#[test]
fn a_letter_that_is_replayed_comes_to_its_group_again() {
    let group = Group::new(1);
    let log: Arc<dyn EventLog> = group.log.clone();
    let sink = Arc::new(Sink::default());
    let retry = dead_letters::make_retry_topic(log.as_ref(), "g").unwrap();
    group.append(b"k", &[200]);
    let source = LogSource::new(log.clone(), "g", &["t", &retry]).unwrap();
    let running = start(Box::new(source), 0, &sink, quick(&log));
    let open = || dead_letters::list(log.as_ref(), "t", false).unwrap();
    wait_until("it died", || open().len() == 1);
    let number = open()[0].number;
    assert_eq!(dead_letters::replay(log.as_ref(), "t", number).unwrap().fate, Fate::Replayed);
    // It fails again, at its new place.
    wait_until("it died again", || dead_letters::list(log.as_ref(), &retry, false).unwrap().len() == 1);
    wait_until("the replay is committed", || log.committed("g", &retry, 0).unwrap() == Some(1));
    running.stop().unwrap();
    assert_eq!(open(), []);
}

/// Splitmix64: the same seed gives the same run of choices.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % bound
    }
}

#[test]
fn keys_stay_in_order_and_nothing_is_lost_whatever_fails_and_moves() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let group = Group::new(3);
        let log: Arc<dyn EventLog> = group.log.clone();
        let sink = Arc::new(Sink::default());
        let members: Vec<Running> =
            (0..2).map(|member| start(group.member(member), member, &sink, quick(&log))).collect();
        let mut by_key: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
        let mut dead = BTreeSet::new();
        let mut total = 0;
        for _ in 0..1500 {
            let key = random.below(40).to_le_bytes().to_vec();
            let what = match random.below(50) {
                0 => 255,
                few @ 1..=3 => few as u8,
                _ => 0,
            };
            let partition = log.partition_of("t", &key).unwrap();
            let offset = log.end_offset("t", partition).unwrap();
            group.append(&key, &[what]);
            by_key.entry(key).or_default().push(offset);
            total += 1;
            if what == 255 {
                dead.insert((at(partition), offset));
            }
            match random.below(60) {
                0 => group.give(random.below(3) as u32, random.below(2) as usize),
                1 => group.take(random.below(3) as u32, random.below(2) as usize),
                2 => wait_until("no partition moves", || group.is_settled()),
                _ => {}
            }
        }
        wait_until("everything is committed", || group.is_done());
        members.into_iter().for_each(|member| member.stop().unwrap());
        assert_eq!(group.violations(), Vec::<String>::new(), "seed {seed}");
        assert_eq!(sink.count(), total, "seed {seed}: each message was handled or given up");
        for (key, offsets) in &by_key {
            let mut reached = 0;
            for offset in &sink.done.lock().unwrap()[key] {
                let index = offsets.iter().position(|known| known == offset).unwrap();
                assert!(index <= reached, "seed {seed}: {key:?} skipped to {offset}");
                reached = reached.max(index + 1);
            }
        }
        let letters = dead_letters::list(log.as_ref(), "t", false).unwrap();
        let letters: BTreeSet<_> =
            letters.into_iter().map(|filed| (filed.letter.place, filed.letter.offset)).collect();
        assert_eq!(letters, dead, "seed {seed}");
        for partition in 0..3 {
            assert!(group.history(partition).is_sorted_by_key(|(_, offset)| *offset), "seed {seed}");
        }
    }
}
