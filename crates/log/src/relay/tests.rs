use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use hoga_core::ids::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::event_log::{
    EmbeddedConfig, EmbeddedLog, GroupOffset, Maintenance, MemoryLog, Message, StoredMessage, TopicSpec,
    partition_for,
};
use crate::storage::SimStorage;

const TOPIC: &str = "t";
const PATIENCE: Duration = Duration::from_secs(20);

/// What the next call of the log on the other side meets.
#[derive(Clone, Copy, Debug)]
enum Step {
    Fine,
    /// No answer, and nothing happened.
    Away,
    /// An append that took this many of its messages before the servers went away.
    Partly(usize),
    /// The producer is fenced: of what was on its way, this many arrived, and the rest is lost.
    Poison(usize),
    /// Everything on its way arrived, but the acknowledgement was lost with the connection.
    AckLost,
}

#[derive(Default)]
struct Cluster {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    partitions: Vec<Vec<StoredMessage>>,
    script: VecDeque<Step>,
    opened: u32,
    /// Syncs wait until their connection is closed.
    hang: bool,
    /// What arrives from an earlier connection just before the next append.
    late: Vec<StoredMessage>,
}

/// One connection to a [`Cluster`], as a producer of Kafka is one: in order, without repetition, with messages on their way.
struct Connection {
    cluster: Arc<Cluster>,
    on_the_way: Mutex<Vec<StoredMessage>>,
    poisoned: Mutex<bool>,
    closed: Arc<Mutex<bool>>,
}

impl Cluster {
    fn new(partitions: usize, script: &[Step]) -> Arc<Cluster> {
        let cluster = Cluster::default();
        let mut state = cluster.lock();
        state.partitions = vec![Vec::new(); partitions];
        state.script = script.iter().copied().collect();
        drop(state);
        Arc::new(cluster)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connector(self: &Arc<Cluster>) -> Connect {
        let cluster = self.clone();
        Box::new(move || {
            cluster.lock().opened += 1;
            let closed = Arc::new(Mutex::new(false));
            let connection = Connection {
                cluster: cluster.clone(),
                on_the_way: Mutex::default(),
                poisoned: Mutex::new(false),
                closed: closed.clone(),
            };
            let freed = cluster.clone();
            let close = Box::new(move |_| {
                let _state = freed.lock();
                *closed.lock().unwrap() = true;
                freed.freed.notify_all();
            });
            Ok(Remote { log: Arc::new(connection), close })
        })
    }

    fn values(&self, partition: usize) -> Vec<Vec<u8>> {
        self.lock().partitions[partition].iter().map(|m| m.value.clone().unwrap()).collect()
    }

    fn count(&self) -> usize {
        self.lock().partitions.iter().map(Vec::len).sum()
    }
}

impl State {
    fn land(&mut self, message: StoredMessage) {
        let count = self.partitions.len() as u32;
        let partition = &mut self.partitions[partition_for(&message.key, count) as usize];
        let offset = partition.len() as u64;
        partition.push(StoredMessage { offset, ..message });
    }
}

impl Connection {
    fn away() -> LogError {
        LogError::Unavailable { servers: "test".into(), doing: "asking", reason: "nobody answers".into() }
    }

    fn poison() -> LogError {
        LogError::Poisoned { path: "test".into(), reason: "fenced".into() }
    }

    /// The next step of the script; faults of the connection take effect here.
    fn step(&self) -> Result<(std::sync::MutexGuard<'_, State>, Option<usize>), LogError> {
        let mut state = self.cluster.lock();
        if *self.poisoned.lock().unwrap() {
            return Err(Connection::poison());
        }
        let mut on_the_way = self.on_the_way.lock().unwrap();
        match state.script.pop_front().unwrap_or(Step::Fine) {
            Step::Fine => Ok((state, None)),
            Step::Away => Err(Connection::away()),
            Step::Partly(count) => Ok((state, Some(count))),
            Step::Poison(count) => {
                let count = count.min(on_the_way.len());
                on_the_way.drain(..count).for_each(|message| state.land(message));
                on_the_way.clear();
                *self.poisoned.lock().unwrap() = true;
                Err(Connection::poison())
            }
            Step::AckLost => {
                on_the_way.drain(..).for_each(|message| state.land(message));
                *self.poisoned.lock().unwrap() = true;
                Err(LogError::Closed { doing: "waiting for acknowledgements" })
            }
        }
    }
}

impl EventLog for Connection {
    fn create_topic(&self, _spec: &TopicSpec) -> Result<(), LogError> {
        self.step().map(|_| ())
    }

    fn append(&self, _topic: &str, messages: &[Message<'_>]) -> Result<(), LogError> {
        let (mut state, partly) = self.step()?;
        let late = std::mem::take(&mut state.late);
        let foreign = !late.is_empty();
        late.into_iter().for_each(|message| state.land(message));
        let mut on_the_way = self.on_the_way.lock().unwrap();
        for message in &messages[..partly.unwrap_or(messages.len()).min(messages.len())] {
            on_the_way.push(StoredMessage {
                offset: 0,
                key: message.key.to_vec(),
                value: message.value.map(<[u8]>::to_vec),
                time: message.time,
            });
        }
        if foreign {
            // As it is noticed on Kafka: after the fact, by the offset of the acknowledgement.
            on_the_way.drain(..).for_each(|message| state.land(message));
            *self.poisoned.lock().unwrap() = true;
            return Err(LogError::Foreign {
                topic: TOPIC.into(),
                partition: 0,
                reason: "other offset".into(),
            });
        }
        partly.map_or(Ok(()), |_| Err(Connection::away()))
    }

    fn partition_of(&self, _topic: &str, key: &[u8]) -> Result<u32, LogError> {
        Ok(partition_for(key, self.cluster.lock().partitions.len() as u32))
    }

    fn tail(&self, _topic: &str, partition: u32) -> Result<Option<StoredMessage>, LogError> {
        let (state, _) = self.step()?;
        Ok(state.partitions[partition as usize].last().cloned())
    }

    fn read(&self, _: &str, _: u32, _: u64, _: usize, _: &mut Vec<StoredMessage>) -> Result<u64, LogError> {
        panic!("the relay does not read the other side")
    }

    fn start_offset(&self, _topic: &str, _partition: u32) -> Result<u64, LogError> {
        Ok(0)
    }

    fn end_offset(&self, _topic: &str, partition: u32) -> Result<u64, LogError> {
        Ok(self.cluster.lock().partitions[partition as usize].len() as u64)
    }

    fn wait_for(&self, _: &str, _: u32, _: u64, _: Duration) -> Result<bool, LogError> {
        panic!("the relay does not wait for messages of the other side")
    }

    fn commit(&self, _: &str, _: &str, _: u32, _: u64) -> Result<(), LogError> {
        panic!("the relay has no group on the other side")
    }

    fn committed(&self, _: &str, _: &str, _: u32) -> Result<Option<u64>, LogError> {
        Ok(None)
    }

    fn sync(&self) -> Result<(), LogError> {
        let (mut state, partly) = self.step()?;
        if partly.is_some() {
            return Err(Connection::away());
        }
        while state.hang {
            if *self.closed.lock().unwrap() {
                return Err(LogError::Closed { doing: "waiting for acknowledgements" });
            }
            state = self.cluster.freed.wait(state).unwrap();
        }
        self.on_the_way.lock().unwrap().drain(..).for_each(|message| state.land(message));
        Ok(())
    }

    fn topics(&self) -> Vec<TopicSpec> {
        Vec::new()
    }

    fn groups(&self) -> Vec<GroupOffset> {
        Vec::new()
    }

    fn forget_group(&self, _group: &str, _topic: &str) -> Result<bool, LogError> {
        Ok(false)
    }

    fn maintain(&self) -> Result<Maintenance, LogError> {
        Ok(Maintenance::default())
    }
}

/// A value: its number in the partition, and the key.
fn number_of(value: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(value.get(..8)?.try_into().ok()?))
}

fn options() -> RelayOptions {
    RelayOptions {
        batch: 3,
        confirm_messages: 7,
        confirm_every: Duration::from_millis(2),
        backoff: (Duration::from_millis(1), Duration::from_millis(4)),
        look_every: Duration::from_millis(1),
        ..RelayOptions::new(number_of)
    }
}

/// Publishes as the engine does: each message with its number in its partition.
fn publish(log: &dyn EventLog, keys: impl IntoIterator<Item = u16>) {
    for key in keys {
        let key = key.to_le_bytes();
        let partition = log.partition_of(TOPIC, &key).unwrap();
        let number = log.end_offset(TOPIC, partition).unwrap() + 1;
        let mut value = number.to_le_bytes().to_vec();
        value.extend_from_slice(&key);
        let message = Message { key: &key, value: Some(&value), time: Timestamp(number as i64) };
        log.append(TOPIC, &[message]).unwrap();
    }
}

fn memory(partitions: u32) -> Arc<MemoryLog> {
    let log = MemoryLog::new();
    log.create_topic(&TopicSpec::delete(TOPIC, partitions, u64::MAX)).unwrap();
    Arc::new(log)
}

fn values(log: &dyn EventLog, partition: u32) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    log.read(TOPIC, partition, 0, usize::MAX, &mut found).unwrap();
    found.into_iter().map(|message| message.value.unwrap()).collect()
}

fn until(what: &str, relay: &Relay, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: {:?}", relay.status());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn start(local: &Arc<MemoryLog>, cluster: &Arc<Cluster>) -> Relay {
    Relay::start(local.clone(), cluster.connector(), &[TOPIC], options()).unwrap()
}

#[test]
fn carries_what_is_there_and_what_comes() {
    let local = memory(3);
    publish(&*local, 0..100);
    let cluster = Cluster::new(3, &[]);
    let relay = start(&local, &cluster);
    until("what was there", &relay, || relay.status().lag() == 0);
    publish(&*local, 0..50);
    until("what came", &relay, || relay.status().lag() == 0 && cluster.count() == 150);
    let status = relay.status();
    assert!(matches!(status.state, RelayState::Current), "{status:?}");
    assert_eq!(status.counters.messages, 150);
    assert_eq!(status.age(), Duration::ZERO);
    for partition in 0..3 {
        assert_eq!(cluster.values(partition as usize), values(&*local, partition));
        let committed = local.committed(RELAY_GROUP, TOPIC, partition).unwrap();
        assert_eq!(committed, Some(local.end_offset(TOPIC, partition).unwrap()));
    }
    publish(&*local, 0..20);
    assert!(relay.stop(PATIENCE), "what was there at the stop is carried over");
    assert_eq!(cluster.count(), 170);
}

#[test]
fn servers_that_are_away_are_waited_for_and_the_lag_is_seen() {
    let local = memory(1);
    publish(&*local, 0..10);
    let cluster = Cluster::new(1, &[Step::Away; 20]);
    let relay = start(&local, &cluster);
    until("it says so", &relay, || matches!(relay.status().state, RelayState::Waiting(_)));
    let status = relay.status();
    assert_eq!((status.lag(), status.places[0].oldest), (10, Some(Timestamp(1))));
    assert!(status.age() > Duration::from_secs(3600), "the first message is of 1970");
    until("it goes on", &relay, || relay.status().lag() == 0);
    assert_eq!(cluster.lock().opened, 1, "the same log is used on");
}

#[test]
fn a_log_that_failed_is_opened_again_and_its_end_compared() {
    let local = memory(1);
    publish(&*local, 0..9);
    // create, tail, append ×3, then a sync of which two messages arrive.
    let mut script = vec![Step::Fine; 5];
    script.push(Step::Poison(2));
    let cluster = Cluster::new(1, &script);
    let relay = start(&local, &cluster);
    until("everything arrives", &relay, || relay.status().lag() == 0);
    let counters = relay.status().counters;
    assert_eq!((counters.reconnects, counters.verified), (1, 1));
    assert_eq!(cluster.values(0), values(&*local, 0));
}

#[test]
fn another_history_ends_the_relay_and_writes_nothing() {
    let local = memory(1);
    publish(&*local, 0..5);
    let cluster = Cluster::new(1, &[]);
    let mut other = 3u64.to_le_bytes().to_vec();
    other.extend_from_slice(b"other");
    let foreign = StoredMessage { offset: 0, key: vec![1], value: Some(other), time: Timestamp(1) };
    cluster.lock().land(foreign);
    let relay = start(&local, &cluster);
    until("it stops", &relay, || matches!(relay.status().state, RelayState::Stopped(_)));
    let status = relay.status();
    assert_eq!(status.state.fault().unwrap().code(), "log-foreign-writer");
    assert_eq!(status.counters.foreign, 2, "once more was tried");
    assert_eq!(cluster.count(), 1, "nothing was written");
    assert!(!relay.stop(PATIENCE));
}

#[test]
fn a_topic_made_anew_is_noticed() {
    let local = memory(1);
    publish(&*local, 0..5);
    let relay = start(&local, &Cluster::new(1, &[]));
    until("it arrives", &relay, || relay.status().lag() == 0);
    assert!(relay.stop(PATIENCE));
    let anew = Cluster::new(1, &[]);
    let relay = start(&local, &anew);
    until("it stops", &relay, || matches!(relay.status().state, RelayState::Stopped(_)));
    assert_eq!(anew.count(), 0);
}

#[test]
fn messages_of_a_predecessor_that_arrive_late_are_explained_once() {
    let local = memory(1);
    publish(&*local, 0..9);
    let cluster = Cluster::new(1, &[]);
    {
        let mut state = cluster.lock();
        let mut all = Vec::new();
        local.read(TOPIC, 0, 0, 4, &mut all).unwrap();
        state.land(all[0].clone());
        state.late = all[1..].to_vec();
    }
    let relay = start(&local, &cluster);
    until("it goes on", &relay, || relay.status().lag() == 0);
    let status = relay.status();
    assert_eq!(status.counters.foreign, 1);
    let mut numbers: Vec<u64> = cluster.values(0).iter().map(|value| number_of(value).unwrap()).collect();
    // The late ones stand twice, as equal repeats that a reader drops by their number; none is missing or out of turn.
    let repeats = numbers.len() - 9;
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (1..=9).collect::<Vec<_>>());
    assert_eq!(repeats, 3);
}

#[test]
fn a_local_log_that_lost_its_end_is_waited_for() {
    let before = memory(1);
    publish(&*before, 0..10);
    let cluster = Cluster::new(1, &[]);
    let relay = start(&before, &cluster);
    until("it arrives", &relay, || relay.status().lag() == 0);
    assert!(relay.stop(PATIENCE));
    // After the power cut seven messages are left, then the journal's replay publishes the others again.
    let after = memory(1);
    publish(&*after, 0..7);
    let relay = start(&after, &cluster);
    until("it waits", &relay, || matches!(relay.status().state, RelayState::Ahead));
    assert_eq!(cluster.count(), 10);
    publish(&*after, 7..12);
    until("it goes on", &relay, || relay.status().lag() == 0 && cluster.count() == 12);
    assert_eq!(cluster.values(0), values(&*after, 0));
}

#[test]
fn stops_in_time_while_the_other_side_hangs() {
    let local = memory(1);
    publish(&*local, 0..10);
    let cluster = Cluster::new(1, &[]);
    cluster.lock().hang = true;
    let relay = start(&local, &cluster);
    until("it waits for acknowledgements", &relay, || relay.status().counters.messages > 0);
    let begun = Instant::now();
    assert!(!relay.stop(Duration::from_millis(400)));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn stops_in_time_even_if_closing_hangs() {
    let local = memory(1);
    publish(&*local, 0..10);
    let cluster = Cluster::new(1, &[]);
    cluster.lock().hang = true;
    let mut inner = cluster.connector();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let mut held = Some(held);
    let connect: Connect = Box::new(move || {
        let remote = inner()?;
        let held = held.take();
        let close = Box::new(move |_: Duration| {
            // Until the end of the test.
            if let Some(held) = held {
                held.recv().unwrap_err();
            }
        });
        Ok(Remote { log: remote.log, close })
    });
    let relay = Relay::start(local, connect, &[TOPIC], options()).unwrap();
    let begun = Instant::now();
    assert!(!relay.stop(Duration::from_millis(300)));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(hold);
}

#[test]
fn retention_and_compaction_wait_for_the_relay_and_then_go_on() {
    let config = EmbeddedConfig { segment_bytes: 4096, ..EmbeddedConfig::default() };
    let local = Arc::new(EmbeddedLog::open_on(SimStorage::new(), "/log", config).unwrap());
    local.create_topic(&TopicSpec::delete(TOPIC, 1, 4096)).unwrap();
    let cluster = Cluster::new(1, &[Step::Away; 30]);
    let slow = RelayOptions { backoff: (Duration::from_millis(20), Duration::from_millis(20)), ..options() };
    let relay = Relay::start(local.clone(), cluster.connector(), &[TOPIC], slow.clone()).unwrap();
    publish(&*local, (0..2000).map(|at| at % 7));
    assert_eq!(local.maintain().unwrap().removed, 0, "nothing has arrived yet");
    until("it arrives", &relay, || relay.status().lag() == 0);
    assert!(relay.stop(PATIENCE));
    assert!(local.maintain().unwrap().removed > 0);
    assert!(local.start_offset(TOPIC, 0).unwrap() > 0);
    // The message that the other side ends with is still known, and what comes later follows it.
    let relay = Relay::start(local.clone(), cluster.connector(), &[TOPIC], slow).unwrap();
    publish(&*local, 0..5);
    until("it goes on", &relay, || relay.status().lag() == 0 && cluster.count() == 2005);
    let numbers: Vec<u64> = cluster.values(0).iter().map(|value| number_of(value).unwrap()).collect();
    assert_eq!(numbers, (1..=2005).collect::<Vec<_>>());
}

#[test]
fn a_hole_is_never_carried_over() {
    let config =
        EmbeddedConfig { segment_bytes: 4096, retention_ignores_groups: true, ..EmbeddedConfig::default() };
    let local = Arc::new(EmbeddedLog::open_on(SimStorage::new(), "/log", config).unwrap());
    local.create_topic(&TopicSpec::delete(TOPIC, 1, 4096)).unwrap();
    publish(&*local, 0..10);
    let cluster = Cluster::new(1, &[]);
    let relay = Relay::start(local.clone(), cluster.connector(), &[TOPIC], options()).unwrap();
    until("it arrives", &relay, || relay.status().lag() == 0);
    assert!(relay.stop(PATIENCE));
    publish(&*local, 0..1000);
    assert!(local.maintain().unwrap().removed > 0);
    let relay = Relay::start(local.clone(), cluster.connector(), &[TOPIC], options()).unwrap();
    until("it stops", &relay, || matches!(relay.status().state, RelayState::Stopped(_)));
    assert_eq!(relay.status().state.fault().unwrap().code(), "log-removed");
    assert_eq!(cluster.count(), 10);
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => Just(Step::Fine),
        1 => Just(Step::Away),
        1 => (0usize..4).prop_map(Step::Partly),
        1 => (0usize..8).prop_map(Step::Poison),
        1 => Just(Step::AckLost),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever each call meets, and wherever the process ends: the other side holds a beginning of the local log, at last all of
    /// it, and nothing twice.
    #[test]
    fn the_other_side_is_always_a_beginning_of_the_local_log(
        script in proptest::collection::vec(step(), 0..60),
        lives in proptest::collection::vec((0u16..40, 0u64..6), 1..6),
    ) {
        let local = memory(3);
        let cluster = Cluster::new(3, &script);
        for (count, milliseconds) in lives {
            publish(&*local, 0..count);
            let relay = start(&local, &cluster);
            publish(&*local, 0..count);
            std::thread::sleep(Duration::from_millis(milliseconds));
            let shared = relay.shared.clone();
            relay.stop(Duration::from_millis(milliseconds));
            // A thread that outlived the stop ends at its next look; two relays at once are not what is tested here.
            prop_assert!(shared.wait_ended(Instant::now() + PATIENCE));
            for partition in 0..3 {
                let there = cluster.values(partition as usize);
                prop_assert!(values(&*local, partition).starts_with(&there));
            }
        }
        let relay = start(&local, &cluster);
        until("everything arrives", &relay, || relay.status().lag() == 0);
        for partition in 0..3 {
            prop_assert_eq!(cluster.values(partition as usize), values(&*local, partition));
        }
        prop_assert!(relay.stop(PATIENCE));
    }
}

/// A figure, not a check: `cargo test -p hoga-log --release relay_rate -- --ignored --nocapture`.
#[test]
#[ignore = "prints a figure"]
fn relay_rate() {
    const COUNT: u64 = 1_000_000;
    let (local, remote) = (memory(8), Arc::new(MemoryLog::new()));
    let body = [7u8; 192];
    let mut numbers = [0u64; 8];
    for at in 0..COUNT {
        let key = (at % 997).to_le_bytes();
        let number = &mut numbers[partition_for(&key, 8) as usize];
        *number += 1;
        let value = [number.to_le_bytes().as_slice(), &body].concat();
        local.append(TOPIC, &[Message { key: &key, value: Some(&value), time: Timestamp(1) }]).unwrap();
    }
    let other = remote.clone();
    let begun = Instant::now();
    let connect: Connect = Box::new(move || Ok(Remote::open_ended(other.clone())));
    let relay = Relay::start(local, connect, &[TOPIC], RelayOptions::new(number_of)).unwrap();
    until("all", &relay, || relay.status().lag() == 0);
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!((0..8).map(|p| remote.end_offset(TOPIC, p).unwrap()).sum::<u64>(), COUNT);
    use std::io::Write;
    writeln!(std::io::stdout(), "{:.0} messages/s", COUNT as f64 / seconds).unwrap();
}
