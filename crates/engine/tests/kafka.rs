//! The replicated journal on a real Kafka, with a leader in a process of its own that is killed or stopped:
//! `HOGA_TEST_KAFKA=127.0.0.1:19092 cargo test -p hoga-engine --features kafka --test kafka`.
//! Figures: the same with `-- --ignored figures --nocapture`.
#![cfg(feature = "kafka")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::codec;
use hoga_core::command::Body;
use hoga_core::ids::{ClientId, Seq, Timestamp};
use hoga_core::order::Side;
use hoga_engine::{
    Engine, EngineConfig, EngineHandle, FaultKind, Lost, Replication, Reply, ReplySink, ReplyTo, Space,
    Standby, SubmitError,
};
use hoga_log::event_log::{EventLog, MemoryLog};
use hoga_log::journal::{Durability, JournalReader};
use hoga_log::kafka::{KafkaConfig, KafkaLog};
use hoga_log::storage::Disk;

#[path = "engine/support.rs"]
#[allow(dead_code, unused_imports)] // shared with the other tests
mod support;

use support::{LONG, digest, limit, settle, setup};

const TOPIC: &str = "engine.commands.0";
/// Set for the process that leads.
const NODE: &str = "HOGA_TEST_NODE";
const PREFIX: &str = "HOGA_TEST_PREFIX";

fn say(text: std::fmt::Arguments<'_>) {
    // Past the test runner, which would swallow it.
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

fn brokers() -> Option<String> {
    let brokers = std::env::var("HOGA_TEST_KAFKA").ok().filter(|brokers| !brokers.is_empty());
    if brokers.is_none() {
        say(format_args!("SKIP kafka: HOGA_TEST_KAFKA is not set (scripts/services/kafka.sh up)"));
    }
    brokers
}

fn fresh() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    format!("r{now}-{}-{}.", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("hoga-{}", fresh()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn kafka(brokers: &str, prefix: &str) -> Arc<KafkaLog> {
    let config =
        KafkaConfig { topic_prefix: prefix.into(), linger: Duration::ZERO, ..KafkaConfig::new(brokers) };
    let log = KafkaLog::open(config).unwrap();
    log.share_topic(TOPIC).unwrap();
    Arc::new(log)
}

fn config(dir: &Path) -> EngineConfig {
    let mut config = EngineConfig::new(dir);
    config.durability = Durability::Write;
    config.final_snapshot = false;
    config
}

fn standby(dir: &Path, log: Arc<dyn EventLog>, node: &str) -> Standby {
    let replication = Replication::new(log, TOPIC, node);
    Standby::start(config(dir), replication, Arc::new(MemoryLog::new()), Vec::new()).unwrap()
}

fn order(tag: u64) -> Body {
    let side = if tag.is_multiple_of(2) { Side::Buy } else { Side::Sell };
    limit(1 + (tag % 4) as u32, side, 10_000 + (tag % 7) as i64, 1 + (tag % 9) as i64, &format!("t-{tag}"))
}

/// Writes a line for each answer, before the next one is given: what is in the pipe was acknowledged.
struct Printer;

impl ReplySink for Printer {
    fn reply(&self, tag: u64, reply: &Reply<'_>) {
        let _ = std::io::stdout().write_all(format!("\nack {tag} {}\n", reply.seq.0).as_bytes());
    }
    fn lost(&self, tag: u64, why: Lost) {
        let _ = std::io::stdout().write_all(format!("\nlost {tag} {why:?}\n").as_bytes());
    }
}

/// The leader's process: leads, and sends itself orders until it is stopped. Does nothing as a test of its own.
#[test]
fn node() {
    let (Ok(dir), Ok(prefix)) = (std::env::var(NODE), std::env::var(PREFIX)) else { return };
    let brokers = std::env::var("HOGA_TEST_KAFKA").unwrap();
    let mut standby = standby(Path::new(&dir), kafka(&brokers, &prefix), "child");
    let engine = standby.wait_leadership(LONG).unwrap().expect("leads");
    let (handle, printer) = (engine.handle(), Arc::new(Printer));
    let bodies = setup().into_iter().chain((0..).map(order));
    for (tag, body) in (0u64..).zip(bodies) {
        let reply = || ReplyTo::new(printer.clone(), tag);
        loop {
            match handle.submit(body, Timestamp(0), reply()) {
                Ok(()) => break,
                Err(SubmitError::Busy) => std::thread::sleep(Duration::from_millis(1)),
                Err(SubmitError::Stopped) => {
                    let fault = engine.wait_fault(LONG).expect("a fault");
                    let text = format!("\nfault {}\n", fault.kind.code());
                    std::io::stdout().write_all(text.as_bytes()).unwrap();
                    return;
                }
            }
        }
        // About two thousand a second.
        if tag.is_multiple_of(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What the leader's process has said.
#[derive(Default)]
struct Said {
    acknowledged: Vec<(u64, Seq)>,
    lost: usize,
    fault: Option<String>,
}

struct Leader {
    child: Child,
    said: Arc<Mutex<Said>>,
    listener: Option<std::thread::JoinHandle<()>>,
}

impl Leader {
    fn start(dir: &Path, prefix: &str) -> Leader {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "node", "--nocapture"])
            .env(NODE, dir)
            .env(PREFIX, prefix)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(Said::default()));
        let (out, into) = (BufReader::new(child.stdout.take().unwrap()), said.clone());
        let listener = std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                let mut said = into.lock().unwrap();
                match words[..] {
                    // Each line was one write to the pipe, which is not cut in two by a kill.
                    ["ack", tag, seq] => {
                        said.acknowledged.push((tag.parse().unwrap(), Seq(seq.parse().unwrap())));
                    }
                    ["lost", ..] => said.lost += 1,
                    ["fault", code] => said.fault = Some(code.to_owned()),
                    _ => {}
                }
            }
        });
        Leader { child, said, listener: Some(listener) }
    }

    fn acknowledged(&self) -> usize {
        self.said.lock().unwrap().acknowledged.len()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child that was not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Until all it has said was heard.
    fn wait(&mut self) -> std::sync::MutexGuard<'_, Said> {
        self.child.wait().unwrap();
        self.listener.take().unwrap().join().unwrap();
        self.said.lock().unwrap()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "never came about: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends orders until one is answered.
fn first_answer(handle: &EngineHandle) {
    let replies = support::Replies::new();
    handle.submit(Body::CreateAccount, Timestamp(0), ReplyTo::new(replies.clone(), 0)).unwrap();
    assert!(matches!(replies.wait(1)[0].1, support::Got::Reply { .. }));
}

/// Checks in a node's journal that every acknowledged order is where its answer said.
fn check_nothing_lost(dir: &Path, last: Seq, acknowledged: &[(u64, Seq)]) {
    let first = setup().len() as u64;
    let mut reader = JournalReader::open(Disk, config(dir).journal_dir(), Seq(1)).unwrap();
    let mut names = vec![ClientId::NONE];
    let read = reader.read(last, usize::MAX, |_, bytes| {
        names.push(match codec::decode_command(bytes).unwrap().body {
            Body::Place(order) => order.client_id,
            _ => ClientId::NONE,
        });
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(read.unwrap(), last);
    for (tag, seq) in acknowledged.iter().filter(|(tag, _)| *tag >= first) {
        let expected = ClientId::new(&format!("t-{}", tag - first)).unwrap();
        assert_eq!(names.get(seq.0 as usize), Some(&expected), "acknowledged as {seq} and lost");
    }
}

#[test]
fn a_killed_leader_is_replaced_within_three_seconds_and_nothing_acknowledged_is_lost() {
    let Some(brokers) = brokers() else { return };
    let mut times = Vec::new();
    for _ in 0..3 {
        let (prefix, ours, theirs) = (fresh(), Folder::new(), Folder::new());
        let mut leader = Leader::start(&theirs.0, &prefix);
        wait_until("load", || leader.acknowledged() > 100);
        let log = kafka(&brokers, &prefix);
        let mut standby = standby(&ours.0, log.clone(), "parent");
        wait_until("the standby follows", || standby.handle().positions().applied.seq().0 > 1_000);
        leader.signal(libc::SIGKILL);
        let killed = Instant::now();
        let engine = standby.wait_leadership(LONG).unwrap().expect("it leads");
        first_answer(&engine.handle());
        let took = killed.elapsed();
        times.push(took);
        let said = leader.wait();
        let last = engine.handle().positions().durable.seq();
        check_nothing_lost(&ours.0, last, &said.acknowledged);
        say(format_args!(
            "kafka takeover: killed under load, {} acknowledged, 0 lost, first answer after {} ms",
            said.acknowledged.len(),
            took.as_millis()
        ));
        engine.shutdown().unwrap();
        log.delete_topic(TOPIC).unwrap();
    }
    assert!(times.iter().all(|took| *took < Duration::from_secs(3)), "{times:?}");
}

#[test]
fn a_leader_that_was_stopped_and_goes_on_is_fenced_and_acknowledges_nothing_more() {
    let Some(brokers) = brokers() else { return };
    let (prefix, ours, theirs) = (fresh(), Folder::new(), Folder::new());
    let mut leader = Leader::start(&theirs.0, &prefix);
    wait_until("load", || leader.acknowledged() > 500);
    let log = kafka(&brokers, &prefix);
    let mut standby = standby(&ours.0, log.clone(), "parent");
    wait_until("the standby follows", || standby.handle().positions().applied.seq().0 > 500);
    leader.signal(libc::SIGSTOP);
    let engine = standby.wait_leadership(LONG).unwrap().expect("it leads");
    first_answer(&engine.handle());
    leader.signal(libc::SIGCONT);
    let said = leader.wait();
    assert_eq!(said.fault.as_deref(), Some(FaultKind::Fenced.code()));
    let last = engine.handle().positions().durable.seq();
    check_nothing_lost(&ours.0, last, &said.acknowledged);
    say(format_args!(
        "kafka fencing: stopped and continued, {} acknowledged, 0 lost, {} told unknown or not taken",
        said.acknowledged.len(),
        said.lost
    ));
    drop(said);
    // Its folder follows again.
    let again = kafka(&brokers, &prefix);
    let back = self::standby(&theirs.0, again, "child");
    settle(&back.handle(), last);
    assert_eq!(digest(&back.handle()), digest(&engine.handle()));
    drop(back);
    engine.shutdown().unwrap();
    log.delete_topic(TOPIC).unwrap();
}

#[test]
fn while_kafka_stands_still_nothing_is_answered_and_nobody_takes_over() {
    let Some(brokers) = brokers() else { return };
    // The broker's process, for a test that may stop it.
    let Some(pid) = std::env::var("HOGA_TEST_KAFKA_PID").ok().and_then(|pid| pid.parse::<i32>().ok()) else {
        say(format_args!("SKIP kafka outage: HOGA_TEST_KAFKA_PID is not set (the broker's process id)"));
        return;
    };
    // SAFETY: a signal to the process that the caller named.
    let signal = |signal: i32| assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "no process {pid}");
    let (prefix, ours, theirs) = (fresh(), Folder::new(), Folder::new());
    let engine = standby(&theirs.0, kafka(&brokers, &prefix), "a").wait_leadership(LONG).unwrap().unwrap();
    let mut other = standby(&ours.0, kafka(&brokers, &prefix), "b");
    let (handle, replies, before) = (engine.handle(), support::Replies::new(), setup());
    support::submit_all(&handle, &replies, 0, &before);
    replies.wait(before.len());
    settle(&handle, Seq(before.len() as u64));
    signal(libc::SIGSTOP);
    let orders: Vec<Body> = (0..500).map(order).collect();
    support::submit_all(&handle, &replies, 100, &orders);
    // Twice the lease and more.
    let led = other.wait_leadership(Duration::from_secs(4));
    let (answered, queried) = (replies.now().len(), handle.query(|_| ()).unwrap().wait(LONG));
    signal(libc::SIGCONT);
    assert!(led.unwrap().is_none(), "silence of a log that is away is no silence of the leader");
    assert_eq!((answered, queried), (before.len(), Ok(())));
    let got = replies.wait(before.len() + orders.len());
    let tags: Vec<u64> = got[before.len()..].iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, (100..600).collect::<Vec<_>>(), "all, once, in order");
    assert!(got.iter().all(|(_, got)| matches!(got, support::Got::Reply { .. })));
    settle(&other.handle(), Seq(got.len() as u64));
    assert_eq!((handle.replica().epoch, digest(&handle)), (1, digest(&other.handle())));
}

// ---- figures ------------------------------------------------------------------------------------------------------------------------

/// Delays from submit to reply, in microseconds.
struct Delays {
    begun: Instant,
    sent: Vec<AtomicU64>,
    got: Mutex<Vec<u64>>,
}

impl ReplySink for Delays {
    fn reply(&self, tag: u64, _: &Reply<'_>) {
        let now = self.begun.elapsed().as_micros() as u64;
        self.got.lock().unwrap().push(now - self.sent[tag as usize].load(Ordering::Relaxed));
    }
    fn lost(&self, tag: u64, why: Lost) {
        panic!("{tag}: {why:?}");
    }
}

fn measure(name: &str, engine: &Engine, rate: u64) {
    let handle = engine.handle();
    let replies = support::Replies::new();
    let before = setup();
    support::submit_all(&handle, &replies, 0, &before);
    replies.wait(before.len());
    let count = rate * 5;
    let sink = Arc::new(Delays {
        begun: Instant::now(),
        sent: (0..count).map(|_| AtomicU64::new(0)).collect(),
        got: Mutex::new(Vec::with_capacity(count as usize)),
    });
    for tag in 0..count {
        // An open loop: the time that counts is when it was due.
        let due = tag * 1_000_000 / rate;
        while let Some(early) = Duration::from_micros(due).checked_sub(sink.begun.elapsed()) {
            std::thread::sleep(early);
        }
        sink.sent[tag as usize].store(due, Ordering::Relaxed);
        handle.submit(order(tag), Timestamp(0), ReplyTo::new(sink.clone(), tag)).unwrap();
    }
    wait_until("all answered", || sink.got.lock().unwrap().len() as u64 == count);
    let mut got = sink.got.lock().unwrap();
    got.sort_unstable();
    let at = |share: f64| got[((got.len() - 1) as f64 * share) as usize];
    let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
    say(format_args!("{name}: {rate} orders/s, submit to reply p50 {p50} µs, p99 {p99} µs, max {max} µs"));
}

#[test]
#[ignore = "figures"]
fn figures() {
    for rate in [1_000, 5_000] {
        for durability in [Durability::Write, Durability::Sync] {
            let folder = Folder::new();
            let config = EngineConfig { durability, ..config(&folder.0) };
            let engine = Engine::start(config, Arc::new(MemoryLog::new()), Vec::new()).unwrap();
            measure(&format!("one machine, {}", durability.as_str()), &engine, rate);
        }
        let folder = Folder::new();
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        let engine = standby(&folder.0, log, "a").wait_leadership(LONG).unwrap().unwrap();
        measure("replicated in memory", &engine, rate);
        let Some(brokers) = brokers() else { continue };
        let folder = Folder::new();
        let log = kafka(&brokers, &fresh());
        let engine = standby(&folder.0, log.clone(), "a").wait_leadership(LONG).unwrap().unwrap();
        measure("replicated on kafka", &engine, rate);
        let read_back = engine.handle().metrics().stages.into_iter().find(|stage| stage.stage == "read-back");
        let (p50, p99) = read_back.map_or((0, 0), |stage| (stage.p50 / 1_000, stage.p99 / 1_000));
        say(format_args!("  of that, read back p50 {p50} µs, p99 {p99} µs"));
        engine.shutdown().unwrap();
        log.delete_topic(TOPIC).unwrap();
    }
}
