//! Several engines on one replicated journal: who leads, what survives, what is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hoga_core::command::Body;
use hoga_core::ids::{Seq, Timestamp};
use hoga_engine::{
    Engine, EngineConfig, EngineError, FaultKind, Lost, Replication, ReplyTo, Role, Space, Standby,
    SubmitError,
};
use hoga_log::LogError;
use hoga_log::event_log::{EventLog, GroupOffset, Maintenance, MemoryLog, Message, StoredMessage, TopicSpec};
use hoga_log::journal::Durability;
use hoga_log::storage::SimStorage;

use crate::support::{
    Got, LONG, Replies, config, digest, flow, settle, setup, submit_all, topics, wait_until,
};

const TOPIC: &str = "engine.commands.0";

// ---- one node's way to the log ------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq)]
enum Line {
    Open,
    /// Every call fails: the log is away for this node.
    Cut,
    /// Calls stand still, as in a process that was stopped, and go on afterwards.
    Paused,
    /// Messages are appended, but nothing comes back.
    Deaf,
}

/// A log that several nodes share, as one of them sees it.
struct Link {
    log: Arc<MemoryLog>,
    line: Mutex<Line>,
    changed: Condvar,
}

impl Link {
    fn to(log: &Arc<MemoryLog>) -> Arc<Link> {
        Arc::new(Link { log: log.clone(), line: Mutex::new(Line::Open), changed: Condvar::new() })
    }

    fn set(&self, line: Line) {
        *self.line.lock().unwrap() = line;
        self.changed.notify_all();
    }

    fn pass(&self, reading: bool) -> Result<(), LogError> {
        let line = self.line.lock().unwrap();
        let line = self.changed.wait_while(line, |line| *line == Line::Paused).unwrap();
        if *line == Line::Cut || (reading && *line == Line::Deaf) {
            let reason = "cut".into();
            return Err(LogError::Unavailable { servers: "memory".into(), doing: "asking", reason });
        }
        Ok(())
    }
}

impl EventLog for Link {
    fn create_topic(&self, spec: &TopicSpec) -> Result<(), LogError> {
        self.pass(false)?;
        self.log.create_topic(spec)
    }
    fn append(&self, topic: &str, messages: &[Message<'_>]) -> Result<(), LogError> {
        self.pass(false)?;
        self.log.append(topic, messages)
    }
    fn partition_of(&self, topic: &str, key: &[u8]) -> Result<u32, LogError> {
        self.log.partition_of(topic, key)
    }
    fn tail(&self, topic: &str, partition: u32) -> Result<Option<StoredMessage>, LogError> {
        self.pass(true)?;
        self.log.tail(topic, partition)
    }
    fn read(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        max: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        self.pass(true)?;
        self.log.read(topic, partition, offset, max, out)
    }
    fn start_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        self.pass(true)?;
        self.log.start_offset(topic, partition)
    }
    fn end_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        self.pass(true)?;
        self.log.end_offset(topic, partition)
    }
    fn wait_for(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        timeout: Duration,
    ) -> Result<bool, LogError> {
        self.pass(true)?;
        self.log.wait_for(topic, partition, offset, timeout)
    }
    fn commit(&self, group: &str, topic: &str, partition: u32, offset: u64) -> Result<(), LogError> {
        self.log.commit(group, topic, partition, offset)
    }
    fn committed(&self, group: &str, topic: &str, partition: u32) -> Result<Option<u64>, LogError> {
        self.log.committed(group, topic, partition)
    }
    fn sync(&self) -> Result<(), LogError> {
        self.log.sync()
    }
    fn topics(&self) -> Vec<TopicSpec> {
        self.log.topics()
    }
    fn groups(&self) -> Vec<GroupOffset> {
        EventLog::groups(&*self.log)
    }
    fn forget_group(&self, group: &str, topic: &str) -> Result<bool, LogError> {
        self.log.forget_group(group, topic)
    }
    fn maintain(&self) -> Result<Maintenance, LogError> {
        self.log.maintain()
    }
}

// ---- nodes --------------------------------------------------------------------------------------------------------------------------

/// A machine: its disk, its own event log, its way to the shared one.
struct Machine {
    name: &'static str,
    disk: SimStorage,
    events: Arc<dyn EventLog>,
    link: Arc<Link>,
    durability: Durability,
}

impl Machine {
    fn new(name: &'static str, shared: &Arc<MemoryLog>) -> Machine {
        let (disk, events) = (SimStorage::new(), Arc::new(MemoryLog::new()));
        Machine { name, disk, events, link: Link::to(shared), durability: Durability::Write }
    }

    fn replication(&self) -> Replication {
        let mut replication = Replication::new(self.link.clone(), TOPIC, self.name);
        replication.lease = Duration::from_millis(400);
        replication.heartbeat = Duration::from_millis(50);
        replication
    }

    fn config(&self) -> EngineConfig {
        let mut config = config();
        config.durability = self.durability;
        config
    }

    fn start(&self) -> Standby {
        self.try_start().expect("the standby starts")
    }

    fn try_start(&self) -> Result<Standby, EngineError> {
        let (replication, events) = (self.replication(), self.events.clone());
        Standby::start_on(self.disk.clone(), self.config(), replication, events, Vec::new())
    }

    fn lead(&self) -> Engine {
        lead(&mut self.start())
    }
}

fn lead(standby: &mut Standby) -> Engine {
    standby.wait_leadership(LONG).expect("no fault").expect("it leads in the end")
}

fn memory() -> Arc<MemoryLog> {
    Arc::new(MemoryLog::new())
}

fn outcomes(got: &[(u64, Got)]) -> usize {
    got.iter().filter(|(_, got)| matches!(got, Got::Reply { .. })).count()
}

/// What each acknowledged tag was answered: its command's place.
fn acknowledged(replies: &Replies) -> Vec<(u64, Seq)> {
    let seqs = replies.now().into_iter().filter_map(|(tag, got)| match got {
        Got::Reply { seq, .. } => Some((tag, seq)),
        Got::Lost(_) => None,
    });
    seqs.collect()
}

// ---- tests --------------------------------------------------------------------------------------------------------------------------

#[test]
fn a_second_engine_on_one_shard_follows_and_has_the_same_state() {
    let shared = memory();
    let (a, b) = (Machine::new("a", &shared), Machine::new("b", &shared));
    let leader = a.lead();
    let mut standby = b.start();
    let (handle, replies) = (leader.handle(), Replies::new());
    let bodies = [setup(), flow(1, 3_000)].concat();
    assert_eq!(submit_all(&handle, &replies, 0, &bodies), bodies.len());
    replies.wait(bodies.len());
    let last = Seq(bodies.len() as u64);
    settle(&handle, last);
    settle(&standby.handle(), last);
    assert_eq!(digest(&handle), digest(&standby.handle()));
    assert_eq!(topics(&*a.events), topics(&*b.events), "what it publishes is the same");
    // The leader lives, so the other one stays what it is, for longer than a lease, and takes nothing.
    assert!(standby.wait_leadership(Duration::from_millis(1_000)).unwrap().is_none());
    assert_eq!((handle.replica().role, standby.status().role), (Role::Leader, Role::Standby));
    let refused = standby.handle().submit(Body::CreateAccount, Timestamp(0), ReplyTo::none());
    assert_eq!(refused, Err(SubmitError::Busy));
    let metrics = handle.metrics();
    let read_back = metrics.stages.iter().find(|stage| stage.stage == "read-back").unwrap();
    assert!(read_back.count > 0 && read_back.p50 > 0, "{read_back:?}");
    assert_eq!((metrics.replica.epoch, metrics.replica.in_flight), (1, 0));
    standby.shutdown().unwrap();
    leader.shutdown().unwrap();
}

#[test]
fn a_leader_that_leaves_in_order_is_followed_at_once() {
    let shared = memory();
    let (a, b) = (Machine::new("a", &shared), Machine::new("b", &shared));
    let leader = a.lead();
    let mut standby = b.start();
    let replies = Replies::new();
    let before = setup();
    submit_all(&leader.handle(), &replies, 0, &before);
    leader.shutdown().unwrap();
    assert_eq!(outcomes(&replies.wait(before.len())), before.len(), "all is answered before it leaves");
    let begun = Instant::now();
    let leader = lead(&mut standby);
    assert!(begun.elapsed() < Duration::from_millis(350), "no lease is waited for: {:?}", begun.elapsed());
    let after = flow(2, 300);
    submit_all(&leader.handle(), &replies, 100, &after);
    let got = replies.wait(before.len() + after.len());
    assert_eq!(outcomes(&got), before.len() + after.len());
    // The first one comes back and follows.
    let back = a.start();
    let last = Seq((before.len() + after.len()) as u64);
    settle(&back.handle(), last);
    assert_eq!(digest(&back.handle()), digest(&leader.handle()));
    assert_eq!(leader.handle().replica().epoch, 2);
}

#[test]
fn a_leader_that_is_cut_off_under_load_is_replaced_and_nothing_acknowledged_is_lost() {
    for seed in 0..4 {
        let shared = memory();
        let machines = [Machine::new("a", &shared), Machine::new("b", &shared), Machine::new("c", &shared)];
        let mut leader = machines[0].lead();
        let mut standbys = vec![(1, machines[1].start()), (2, machines[2].start())];
        let replies = Replies::new();
        let before = setup();
        submit_all(&leader.handle(), &replies, 0, &before);
        replies.wait(before.len());
        // A client that keeps on sending.
        let (stop, handle) = (Arc::new(AtomicBool::new(false)), leader.handle());
        let client = std::thread::spawn({
            let (stop, replies) = (stop.clone(), replies.clone());
            move || {
                for (tag, body) in (1_000..).zip(flow(seed, 200_000)) {
                    if stop.load(Ordering::SeqCst) || submit_all(&handle, &replies, tag, &[body]) == 0 {
                        break;
                    }
                }
            }
        });
        wait_until("load", || replies.last_acked().0 > 500 + 300 * seed);
        // Deaf is the hardest: what it sends still arrives, and it knows nothing of it.
        machines[0].link.set(if seed % 2 == 0 { Line::Cut } else { Line::Deaf });
        let cut = Instant::now();
        if seed % 2 == 1 {
            // Its heartbeats would keep the lead; it is stopped altogether a little later.
            std::thread::sleep(Duration::from_millis(20));
            machines[0].link.set(Line::Cut);
        }
        let (new, mut next) = loop {
            let won = standbys.iter_mut().find_map(|(index, standby)| {
                let engine = standby.wait_leadership(Duration::from_millis(20)).unwrap();
                engine.map(|engine| (*index, engine))
            });
            if let Some(won) = won {
                break won;
            }
            assert!(cut.elapsed() < LONG, "nobody takes over");
        };
        let taken = cut.elapsed();
        let news = Replies::new();
        submit_all(&next.handle(), &news, 0, &[Body::CreateAccount]);
        assert_eq!(outcomes(&news.wait(1)), 1);
        assert!(taken < Duration::from_secs(3), "took over after {taken:?}");
        let answered = acknowledged(&replies);
        // The old one wakes up, finds that it is fenced, and tells everybody whom it still owed an answer.
        machines[0].link.set(Line::Open);
        let fault = leader.wait_fault(LONG).expect("it stops");
        assert_eq!(fault.kind, FaultKind::Fenced, "{fault}");
        stop.store(true, Ordering::SeqCst);
        client.join().unwrap();
        assert!(matches!(leader.shutdown(), Err(EngineError::Fault(_))));
        assert_eq!(acknowledged(&replies), answered, "an answer after the takeover would be false");
        // Everything acknowledged is where the reply said.
        let position = next.handle().positions().durable.seq();
        assert!(answered.iter().all(|(_, seq)| *seq < position), "acknowledged and lost");
        // The old one comes back as a standby, reads what it had sent late as refused, and has the same state.
        let old = machines[0].start();
        let (_, third) = standbys.iter_mut().find(|(index, _)| *index != new).unwrap();
        for handle in [old.handle(), third.handle()] {
            settle(&handle, position);
            assert_eq!(digest(&handle), digest(&next.handle()));
        }
        // And every acknowledged command has the events that its reply showed.
        let events = topics(&*machines[new].events);
        assert_eq!(events, topics(&*machines[0].events));
        leader = next;
        drop((old, standbys));
        next = leader;
        next.shutdown().unwrap();
    }
}

#[test]
fn a_leader_that_stood_still_is_fenced_and_its_late_commands_are_refused() {
    let shared = memory();
    let (a, b) = (Machine::new("a", &shared), Machine::new("b", &shared));
    let leader = a.lead();
    let mut standby = b.start();
    let (handle, replies) = (leader.handle(), Replies::new());
    let before = setup();
    submit_all(&handle, &replies, 0, &before);
    replies.wait(before.len());
    a.link.set(Line::Paused);
    let late = flow(3, 50);
    submit_all(&handle, &replies, 100, &late);
    let next = lead(&mut standby);
    let end = shared.end_offset(TOPIC, 0).unwrap();
    a.link.set(Line::Open);
    let fault = leader.wait_fault(LONG).expect("it stops");
    assert_eq!(fault.kind, FaultKind::Fenced);
    let got = replies.wait(before.len() + late.len());
    let lost = got.iter().filter(|(_, got)| matches!(got, Got::Lost(_))).count();
    assert_eq!(lost, late.len(), "no false success");
    assert!(got.iter().any(|(_, got)| *got == Got::Lost(Lost::Unknown)));
    drop(leader);
    assert!(shared.end_offset(TOPIC, 0).unwrap() > end, "its late messages did arrive");
    let news = Replies::new();
    submit_all(&next.handle(), &news, 0, &[Body::CreateAccount]);
    let first = Seq(before.len() as u64 + 1);
    assert!(matches!(news.wait(1)[0].1, Got::Reply { seq, .. } if seq == first), "they count nowhere");
    wait_until("late messages are refused", || next.handle().replica().refused > 0);
    // Back again it follows, without having had to take anything away.
    let back = a.start();
    settle(&back.handle(), first);
    assert_eq!(digest(&back.handle()), digest(&next.handle()));
}

#[test]
fn while_the_log_is_away_nothing_is_answered_and_afterwards_everything_is_in_order() {
    let shared = memory();
    let (a, b) = (Machine::new("a", &shared), Machine::new("b", &shared));
    let leader = a.lead();
    let mut standby = b.start();
    let (handle, replies) = (leader.handle(), Replies::new());
    let before = setup();
    submit_all(&handle, &replies, 0, &before);
    replies.wait(before.len());
    settle(&handle, Seq(before.len() as u64));
    for link in [&a.link, &b.link] {
        link.set(Line::Cut);
    }
    // Until it is full: then it is busy, and says so at once.
    let mut taken = before.len() as u64;
    let full = Instant::now();
    loop {
        match handle.submit(Body::CreateAccount, Timestamp(0), ReplyTo::new(replies.clone(), taken)) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error, SubmitError::Busy);
                // The matcher may still be making room.
                if full.elapsed() > Duration::from_millis(1_200) {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }
    assert_eq!(replies.now().len(), before.len(), "no answer without the log");
    assert_eq!(
        handle.query(|exchange| exchange.position()).unwrap().wait(LONG),
        Ok(Seq(before.len() as u64))
    );
    // Longer than three leases, and nobody has claimed: silence means nothing while the log is away.
    assert!(standby.wait_leadership(Duration::ZERO).unwrap().is_none());
    assert!(!standby.status().reachable);
    a.link.set(Line::Open);
    b.link.set(Line::Open);
    let got = replies.wait(taken as usize);
    let tags: Vec<u64> = got.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, (0..taken).collect::<Vec<_>>(), "all, once, in order");
    assert_eq!(outcomes(&got), taken as usize);
    assert_eq!(leader.fault(), None);
    settle(&standby.handle(), Seq(taken));
    assert_eq!(digest(&standby.handle()), digest(&handle));
    assert_eq!(handle.replica().epoch, 1);
}

#[test]
fn a_leader_that_must_end_while_the_log_is_away_tells_that_the_outcome_is_unknown() {
    let shared = memory();
    let a = Machine::new("a", &shared);
    let (leader, replies) = (a.lead(), Replies::new());
    a.link.set(Line::Cut);
    submit_all(&leader.handle(), &replies, 0, &setup());
    match leader.shutdown() {
        Err(EngineError::ShutdownTimeout(_)) => {}
        other => panic!("{other:?}"),
    }
    let got = replies.wait(setup().len());
    assert_eq!(outcomes(&got), 0);
    drop(got);
    a.link.set(Line::Open);
    // Nothing of it was sent afterwards.
    wait_until("the folder is free", || a.try_start().is_ok());
    assert_eq!(a.lead().handle().positions().durable.seq(), Seq(0));
}

#[test]
fn a_crash_between_append_and_read_back_loses_only_what_was_not_acknowledged_or_nothing() {
    for seed in 0..2 {
        let shared = memory();
        let (mut a, b) = (Machine::new("a", &shared), Machine::new("b", &shared));
        // The power goes, so the machine's own disk must be synced for it to come back without a copy.
        a.durability = Durability::Sync;
        let (leader, replies) = (a.lead(), Replies::new());
        let handle = leader.handle();
        let before = setup();
        submit_all(&handle, &replies, 0, &before);
        replies.wait(before.len());
        // From here on it sends and does not read: what arrives counts, although nobody is told.
        a.link.set(Line::Deaf);
        let sent = flow(seed, 100);
        submit_all(&handle, &replies, 100, &sent);
        let all = Seq((before.len() + sent.len()) as u64);
        wait_until("matched", || handle.positions().matched.covers(all));
        assert_eq!(replies.now().len(), before.len(), "not read back, not acknowledged");
        // The machine is gone: the disk keeps what was synced, or a part of the rest.
        a.link.set(Line::Cut);
        let disk = a.disk.clone();
        drop(leader);
        disk.crash(seed);
        let mut other = b.start();
        let next = lead(&mut other);
        let position = next.handle().positions().durable.seq();
        assert!(position >= Seq(before.len() as u64) && position <= all);
        a.link.set(Line::Open);
        match a.try_start() {
            Ok(back) => {
                settle(&back.handle(), position);
                assert_eq!(digest(&back.handle()), digest(&next.handle()));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn folders_that_do_not_belong_to_the_topic_are_refused() {
    let code = |result: Result<Standby, EngineError>| match result {
        Ok(_) => panic!("it started"),
        Err(error) => error.code(),
    };
    let shared = memory();
    let (a, b) = (Machine::new("a", &shared), Machine::new("b", &shared));
    let (leader, replies) = (a.lead(), Replies::new());
    submit_all(&leader.handle(), &replies, 0, &setup());
    replies.wait(setup().len());
    leader.shutdown().unwrap();
    // A journal of its own.
    let engine = Engine::start_on(b.disk.clone(), b.config(), b.events.clone(), Vec::new()).unwrap();
    let own = Replies::new();
    submit_all(&engine.handle(), &own, 0, &setup());
    own.wait(setup().len());
    engine.shutdown().unwrap();
    assert_eq!(code(b.try_start()), "engine-replica-foreign");
    // Another topic, as after the log was made anew.
    let anew = memory();
    let moved = Machine { link: Link::to(&anew), ..a };
    assert_eq!(code(moved.try_start()), "engine-replica-foreign");
    // With a new topic its journal goes on there, and a machine without it learns that it needs a copy.
    let bring = Machine { link: Link::to(&anew), ..b };
    let leader = bring.lead();
    let next = Replies::new();
    submit_all(&leader.handle(), &next, 0, &[Body::CreateAccount]);
    assert!(matches!(next.wait(1)[0].1, Got::Reply { seq, .. } if seq == Seq(setup().len() as u64 + 1)));
    let c = Machine::new("c", &anew);
    let mut late = c.start();
    match late.wait_leadership(LONG) {
        Err(EngineError::Fault(fault)) => {
            assert_eq!(fault.kind, FaultKind::Replica);
            assert!(fault.detail.contains(&format!("command is {}", setup().len() + 1)), "{fault}");
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let machine = Machine::new("a", &memory());
    let refused = |change: &dyn Fn(&mut EngineConfig, &mut Replication)| {
        let (mut config, mut replication) = (machine.config(), machine.replication());
        change(&mut config, &mut replication);
        let (disk, events) = (machine.disk.clone(), machine.events.clone());
        match Standby::start_on(disk, config, replication, events, Vec::new()) {
            Err(EngineError::Config { setting, .. }) => setting,
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    assert_eq!(refused(&|config, _| config.durability = Durability::None), "durability");
    assert_eq!(refused(&|_, replication| replication.node.clear()), "node");
    assert_eq!(refused(&|_, replication| replication.heartbeat = replication.lease / 2), "heartbeat");
}
