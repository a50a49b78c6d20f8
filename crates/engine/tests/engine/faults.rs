//! A fault stops everything, says what and where, and leaves nobody waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hoga_core::command::Body;
use hoga_core::event::EventRecord;
use hoga_core::ids::{Seq, Timestamp};
use hoga_core::order::Side;
use hoga_engine::{
    Engine, EngineError, Fault, FaultKind, Lost, Reply, ReplySink, ReplyTo, Space, SubmitError, Subscriber,
};
use hoga_log::LogError;
use hoga_log::event_log::{EventLog, GroupOffset, Maintenance, MemoryLog, Message, StoredMessage, TopicSpec};
use hoga_log::storage::SimStorage;

use crate::support::{
    Got, HeldDisk, LONG, Replies, config, digest, flow, limit, settle, setup, start, submit_all, topics,
};

fn memory() -> Arc<dyn EventLog> {
    Arc::new(MemoryLog::new())
}

/// After a fault: the handle says so everywhere, and shutdown gives the fault back.
fn check_stopped(engine: Engine, kind: FaultKind) -> Fault {
    let fault = engine.wait_fault(LONG).expect("a fault");
    assert_eq!(fault.kind, kind, "{fault}");
    let handle = engine.handle();
    let replies = Replies::new();
    assert_eq!(
        handle.submit(Body::CreateAccount, Timestamp(0), ReplyTo::new(replies, 0)),
        Err(SubmitError::Stopped)
    );
    assert_eq!(handle.fault(), Some(fault.clone()));
    assert!(!handle.running());
    match engine.shutdown() {
        Err(EngineError::Fault(again)) => assert_eq!(again, fault),
        other => panic!("{other:?}"),
    }
    assert_eq!(handle.query(|_| ()).err(), Some(SubmitError::Stopped));
    fault
}

#[test]
fn a_failed_write_or_sync_stops_the_engine_and_the_restart_has_all_that_was_acknowledged() {
    for (sync, after) in [(true, 0), (true, 1), (true, 5), (false, 0), (false, 3), (false, 11)] {
        let (disk, log) = (SimStorage::new(), memory());
        let engine = start(&disk, &config(), &log);
        let (handle, replies) = (engine.handle(), Replies::new());
        let before = setup();
        submit_all(&handle, &replies, 0, &before);
        replies.wait(before.len());
        settle(&handle, Seq(before.len() as u64));
        if sync {
            disk.fail_sync_in(after)
        } else {
            disk.fail_write_in(after)
        }
        // One by one until it stops, so that there are several syncs.
        let mut submitted = before.len();
        for body in flow(1, 200) {
            let taken = submit_all(&handle, &replies, submitted as u64, &[body]);
            submitted += taken;
            if taken == 0 || !matches!(replies.wait(submitted).last(), Some((_, Got::Reply { .. }))) {
                break;
            }
        }
        assert!(submitted < before.len() + 200, "the fault came");
        let got = replies.wait(submitted);
        assert!(matches!(got.last(), Some((_, Got::Lost(Lost::Unknown)))), "{:?}", got.last());
        let fault = check_stopped(engine, FaultKind::Journal);
        assert!(fault.to_string().contains("/engine/journal"), "names the file: {fault}");
        let acked = replies.last_acked();
        assert_eq!(handle.positions().acked.seq(), acked);
        assert!(handle.positions().durable.covers(acked));
        // The machine goes on, or loses power.
        disk.crash(7);
        let engine = start(&disk, &config(), &log);
        assert!(engine.handle().positions().applied.covers(acked), "acknowledged and gone");
        engine.shutdown().unwrap();
        topics(&*log);
    }
}

#[test]
fn commands_in_every_stage_are_told_when_the_engine_stops() {
    let (disk, log) = (HeldDisk::new(), memory());
    let engine = start(&disk, &config(), &log);
    let (handle, replies) = (engine.handle(), Replies::new());
    submit_all(&handle, &replies, 0, &setup());
    replies.wait(setup().len());
    let base = setup().len();
    disk.hold();
    // Some at the journal, some at the gate, some in the ring behind a matcher without buffers.
    // Full for good is when nothing was taken for a while: a matcher that is only slow would go on taking.
    let mut accepted = 0;
    let mut last_taken = Instant::now();
    while last_taken.elapsed() < Duration::from_millis(300) {
        let reply = ReplyTo::new(replies.clone(), 1_000 + accepted);
        match handle.submit(limit(1, Side::Buy, 100, 1, "a"), Timestamp(0), reply) {
            Ok(()) => (accepted, last_taken) = (accepted + 1, Instant::now()),
            Err(_) => std::thread::yield_now(),
        }
    }
    disk.sim.fail_sync_in(0);
    disk.release();
    let got = replies.wait(base + accepted as usize);
    assert!(got[base..].iter().all(|(_, got)| matches!(got, Got::Lost(_))));
    let not_taken = got.iter().filter(|(_, got)| *got == Got::Lost(Lost::NotTaken)).count();
    let unknown = got.iter().filter(|(_, got)| *got == Got::Lost(Lost::Unknown)).count();
    assert!(not_taken > 0 && unknown > 0, "{not_taken} {unknown}");
    check_stopped(engine, FaultKind::Journal);
}

struct PanickingSink;

impl ReplySink for PanickingSink {
    fn reply(&self, _: u64, _: &Reply<'_>) {
        panic!("the sink is broken");
    }
    fn lost(&self, _: u64, _: Lost) {}
}

struct PanickingSubscriber;

impl Subscriber for PanickingSubscriber {
    fn on_events(&mut self, _: &[EventRecord]) {
        panic!("the subscriber is broken");
    }
}

#[test]
fn a_panic_in_any_thread_stops_the_engine() {
    // The gate's thread, by a sink.
    let (disk, log) = (SimStorage::new(), memory());
    let engine = start(&disk, &config(), &log);
    engine
        .handle()
        .submit(Body::CreateAccount, Timestamp(0), ReplyTo::new(Arc::new(PanickingSink), 0))
        .unwrap();
    let fault = check_stopped(engine, FaultKind::Panic);
    assert_eq!((fault.thread, fault.detail.as_str()), ("gate", "the sink is broken"));
    // The shadow's, by a subscriber; by a query.
    let engine =
        Engine::start_on(disk.clone(), config(), log.clone(), vec![Box::new(PanickingSubscriber)]).unwrap();
    let replies = Replies::new();
    submit_all(&engine.handle(), &replies, 0, &setup());
    let fault = check_stopped(engine, FaultKind::Panic);
    assert_eq!(fault.thread, "shadow");
    let engine = start(&disk, &config(), &log);
    engine
        .handle()
        .query(|_| panic!("the query is broken"))
        .map(|ticket: hoga_engine::QueryTicket<()>| drop(ticket))
        .unwrap();
    let fault = check_stopped(engine, FaultKind::Panic);
    assert_eq!((fault.thread, fault.detail.as_str()), ("shadow", "the query is broken"));
    start(&disk, &config(), &log).shutdown().unwrap();
}

/// A log that fails on demand.
struct FailingLog {
    inner: MemoryLog,
    appends_left: AtomicU64,
    sync_fails: AtomicBool,
}

fn broken() -> LogError {
    LogError::Poisoned { path: "/topics".into(), reason: "the test says so".into() }
}

impl EventLog for FailingLog {
    fn create_topic(&self, spec: &TopicSpec) -> Result<(), LogError> {
        self.inner.create_topic(spec)
    }
    fn append(&self, topic: &str, messages: &[Message<'_>]) -> Result<(), LogError> {
        if self.appends_left.load(Ordering::SeqCst) == 0 {
            return Err(broken());
        }
        self.appends_left.fetch_sub(1, Ordering::SeqCst);
        self.inner.append(topic, messages)
    }
    fn partition_of(&self, topic: &str, key: &[u8]) -> Result<u32, LogError> {
        self.inner.partition_of(topic, key)
    }
    fn tail(&self, topic: &str, partition: u32) -> Result<Option<StoredMessage>, LogError> {
        self.inner.tail(topic, partition)
    }
    fn read(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        max: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        self.inner.read(topic, partition, offset, max, out)
    }
    fn start_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        self.inner.start_offset(topic, partition)
    }
    fn end_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        self.inner.end_offset(topic, partition)
    }
    fn wait_for(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        timeout: Duration,
    ) -> Result<bool, LogError> {
        self.inner.wait_for(topic, partition, offset, timeout)
    }
    fn commit(&self, group: &str, topic: &str, partition: u32, offset: u64) -> Result<(), LogError> {
        self.inner.commit(group, topic, partition, offset)
    }
    fn committed(&self, group: &str, topic: &str, partition: u32) -> Result<Option<u64>, LogError> {
        self.inner.committed(group, topic, partition)
    }
    fn sync(&self) -> Result<(), LogError> {
        if self.sync_fails.load(Ordering::SeqCst) { Err(broken()) } else { self.inner.sync() }
    }
    fn topics(&self) -> Vec<TopicSpec> {
        self.inner.topics()
    }
    fn groups(&self) -> Vec<GroupOffset> {
        self.inner.groups()
    }
    fn forget_group(&self, group: &str, topic: &str) -> Result<bool, LogError> {
        self.inner.forget_group(group, topic)
    }
    fn maintain(&self) -> Result<Maintenance, LogError> {
        self.inner.maintain()
    }
}

#[test]
fn a_failing_event_log_stops_the_engine_and_the_restart_publishes_the_rest() {
    for appends in [0, 1, 4, 7] {
        let disk = SimStorage::new();
        let failing = Arc::new(FailingLog {
            inner: MemoryLog::new(),
            appends_left: AtomicU64::new(appends),
            sync_fails: AtomicBool::new(false),
        });
        let log: Arc<dyn EventLog> = failing.clone();
        let engine = start(&disk, &config(), &log);
        let replies = Replies::new();
        let mut bodies = setup();
        bodies.extend(flow(3, 300));
        for (index, body) in bodies.iter().enumerate() {
            if submit_all(&engine.handle(), &replies, 0, &[*body]) == 0 {
                break;
            }
            // One by one, so that there are many appends.
            settle(&engine.handle(), Seq(index as u64 + 1));
        }
        check_stopped(engine, FaultKind::EventLog);
        failing.appends_left.store(u64::MAX, Ordering::SeqCst);
        let engine = start(&disk, &config(), &log);
        assert!(engine.started().republished > 0);
        let last = engine.handle().positions().applied.seq();
        assert!(last >= replies.last_acked());
        engine.shutdown().unwrap();
        // The same journal published at one go.
        let other: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        start(&disk, &config(), &other).shutdown().unwrap();
        assert_eq!(topics(&*log), topics(&*other));
    }
}

#[test]
fn a_snapshot_is_not_written_when_the_topics_cannot_be_made_durable() {
    let disk = SimStorage::new();
    let failing = Arc::new(FailingLog {
        inner: MemoryLog::new(),
        appends_left: AtomicU64::new(u64::MAX),
        sync_fails: AtomicBool::new(true),
    });
    let log: Arc<dyn EventLog> = failing.clone();
    let mut config = config();
    config.final_snapshot = true;
    let engine = start(&disk, &config, &log);
    let replies = Replies::new();
    submit_all(&engine.handle(), &replies, 0, &setup());
    replies.wait(setup().len());
    let before = digest(&engine.handle());
    assert!(matches!(engine.shutdown(), Err(EngineError::Fault(Fault { kind: FaultKind::Snapshot, .. }))));
    failing.sync_fails.store(false, Ordering::SeqCst);
    let engine = start(&disk, &config, &log);
    assert_eq!((engine.started().snapshot, engine.started().digest), (Seq(0), before));
    engine.shutdown().unwrap();
}
