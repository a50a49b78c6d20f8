//! Starting and stopping an engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoga_core::exchange::Exchange;
use hoga_core::ids::Seq;
use hoga_log::event_log::EventLog;
use hoga_log::journal::{Batch, Durability, Journal, JournalConfig, JournalReader};
use hoga_log::ring;
use hoga_log::storage::{Disk, Storage};

use crate::Subscriber;
use crate::batch::{Demand, Outcome, Supply, circulation, empty_batch};
use crate::config::{Clock, EngineConfig};
use crate::error::EngineError;
use crate::fault::{Fault, FaultKind};
use crate::follower::{Follower, Marks};
use crate::gate::Gate;
use crate::handle::EngineHandle;
use crate::journaler::Journaler;
use crate::matcher::{ChainMark, Matcher};
use crate::pace::Pace;
use crate::publisher::Publisher;
use crate::shadow::{Shadow, SnapshotWriter};
use crate::shared::{Intake, Shared};
use crate::snapshot::{Restored, SnapshotDir};

/// How long an orderly end may take.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Chain marks between matcher and shadow; when more wait, marks are left out.
const MARKS: usize = 1_024;

/// A running engine. Dropping it ends it in order.
pub struct Engine {
    pub(crate) handle: EngineHandle,
    started: Started,
    threads: Vec<JoinHandle<()>>,
    /// Closed when the last thread has ended.
    ended: Receiver<()>,
}

/// How an engine came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The snapshot it started from; `Seq(0)` for none.
    pub snapshot: Seq,
    /// Commands replayed from the journal after that.
    pub replayed: u64,
    /// Messages that the topics lacked and that were published again.
    pub republished: u64,
    /// Bytes of a torn, never acknowledged batch that were cut off the journal's end.
    pub cut_bytes: u64,
    /// The state's digest.
    pub digest: u128,
    /// How long it took.
    pub took: Duration,
}

/// What a start has rebuilt.
pub(crate) struct Recovered<S: Storage> {
    pub follower: Follower<S>,
    pub journal: Journal<S>,
    pub snapshots: SnapshotDir<S>,
    pub started: Started,
}

/// What a matcher needs beside a state. Dropping it unused closes the intake and ends the journal's writer and the gate.
pub(crate) struct Matching {
    intake: Intake,
    clock: Arc<dyn Clock>,
    durability: Durability,
    rest: Duration,
    journal: Supply<Batch>,
    gate: Supply<Outcome>,
    marks: SyncSender<ChainMark>,
    /// Dropped when the last thread ends.
    pub end: SyncSender<()>,
}

/// An engine whose journal nobody writes yet and that does not match yet.
pub(crate) struct Assembled<S: Storage> {
    pub engine: Engine,
    pub matching: Matching,
    pub journal: Journal<S>,
    pub batches: Demand<Batch>,
    pub gather: Duration,
}

impl Engine {
    /// Starts on the disk: takes the newest usable snapshot, replays the rest of the journal, publishes what the topics lack, and opens.
    ///
    /// Errors: see [`EngineError`]; nothing is running then. Damage before the journal's tail, a journal that ends before a snapshot or a
    /// topic, and topics that belong to another journal are refused.
    pub fn start(
        config: EngineConfig,
        log: Arc<dyn EventLog>,
        subscribers: Vec<Box<dyn Subscriber>>,
    ) -> Result<Engine, EngineError> {
        Engine::start_on(Disk, config, log, subscribers)
    }

    /// As [`Engine::start`], on any storage.
    pub fn start_on<S: Storage>(
        storage: S,
        config: EngineConfig,
        log: Arc<dyn EventLog>,
        subscribers: Vec<Box<dyn Subscriber>>,
    ) -> Result<Engine, EngineError> {
        check(&config)?;
        let recovered = recover(&storage, &config, log.clone())?;
        let exchange = recovered.follower.exchange.clone();
        let assembled = Engine::assemble(storage, config, log, subscribers, recovered)?;
        let Assembled { mut engine, matching, journal, batches, gather, .. } = assembled;
        let shared = engine.handle.shared.clone();
        let journaler = Journaler { shared, journal, batches, pace: Pace::new(gather) };
        engine.spawn("journal", matching.end.clone(), move || journaler.run())?;
        engine.lead(matching, exchange)?;
        Ok(engine)
    }

    /// Everything but what writes the journal and the matcher.
    pub(crate) fn assemble<S: Storage>(
        storage: S,
        config: EngineConfig,
        log: Arc<dyn EventLog>,
        mut subscribers: Vec<Box<dyn Subscriber>>,
        recovered: Recovered<S>,
    ) -> Result<Assembled<S>, EngineError> {
        let Recovered { follower, journal, snapshots, started } = recovered;
        for subscriber in &mut subscribers {
            subscriber.on_start(&follower.exchange);
        }
        let (ring, inbound) = ring::channel(config.ring_capacity, config.ring_reserve);
        let (ask, queries) = mpsc::sync_channel(config.query_capacity);
        let (mark, marks) = mpsc::sync_channel(MARKS);
        let (to_journal, batches) = circulation(empty_batch);
        let (to_gate, outcomes) = circulation(Outcome::empty);
        let shared = Arc::new(Shared::new(follower.exchange.position(), ring, ask));
        let (end, ended) = mpsc::sync_channel(1);
        let matching = Matching {
            intake: Intake::new(inbound, shared.clone()),
            clock: config.clock.clone(),
            durability: config.durability,
            rest: config.gather / 4,
            journal: to_journal,
            gate: to_gate,
            marks: mark,
            end: end.clone(),
        };
        let gate = Gate { shared: shared.clone(), outcomes, durability: config.durability };
        let writer =
            SnapshotWriter::start(shared.clone(), config.clone(), storage, snapshots, log, started.snapshot)?;
        let gather = config.gather;
        let pace = Pace::new(gather);
        let shadow = Shadow {
            shared: shared.clone(),
            config,
            follower,
            marks: Marks::new(marks),
            queries,
            subscribers,
            snapshots: writer,
            pace,
            head: None,
        };
        // On an error the engine is dropped, and with it what already runs ends.
        let handle = EngineHandle { shared: shared.clone() };
        let mut engine = Engine { handle, started, threads: Vec::new(), ended };
        engine.spawn("shadow", end.clone(), move || shadow.run())?;
        engine.spawn("gate", end, move || gate.run())?;
        Ok(Assembled { engine, matching, journal, batches, gather })
    }

    /// Starts the matcher, from a state that holds everything before.
    pub(crate) fn lead(&mut self, matching: Matching, exchange: Exchange) -> Result<(), EngineError> {
        let Matching { intake, clock, durability, rest, journal, gate, marks, end } = matching;
        let shared = self.handle.shared.clone();
        let matcher = Matcher { shared, intake, exchange, clock, durability, rest, journal, gate, marks };
        self.spawn("matcher", end, move || matcher.run())
    }

    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        end: SyncSender<()>,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), EngineError> {
        let shared = self.handle.shared.clone();
        let body = move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                shared.stop(
                    FaultKind::Panic,
                    name,
                    text.unwrap_or_else(|| "a panic without a text".to_owned()),
                );
            }
            // Its queues are closed now; whoever sleeps must see it.
            shared.ring_all();
            drop(end);
        };
        let thread =
            std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(EngineError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// A handle for commands, queries and positions.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// How it came up.
    pub fn started(&self) -> Started {
        self.started
    }

    /// What stopped the engine, if something has.
    pub fn fault(&self) -> Option<Fault> {
        self.handle.fault()
    }

    /// Waits until the engine is stopped by a fault, at most `timeout`.
    pub fn wait_fault(&self, timeout: Duration) -> Option<Fault> {
        self.handle.shared.faults.wait(timeout)
    }

    /// Ends in order: takes nothing more, serves what was taken, syncs, answers, publishes, writes a last snapshot where the configuration
    /// says so, and joins the threads. Errors: the fault that had stopped the engine, or a timeout of five seconds.
    pub fn shutdown(mut self) -> Result<(), EngineError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), EngineError> {
        self.handle.shared.close_intake();
        // Nothing is ever sent: the channel closes when the last thread drops its end.
        match self.ended.recv_timeout(SHUTDOWN) {
            Err(RecvTimeoutError::Timeout) if !self.threads.is_empty() => {
                if self.handle.shared.seat.replicated() {
                    // A log that is away confirms nothing: who waits is told that the outcome is unknown, and nothing more is sent.
                    let text = "what was sent was not confirmed before the engine was to end".to_owned();
                    self.handle.shared.stop(FaultKind::Replica, "shutdown", text);
                }
                self.threads.clear(); // they are left to themselves
                return Err(EngineError::ShutdownTimeout(SHUTDOWN));
            }
            _ => {}
        }
        for thread in self.threads.drain(..) {
            // The thread's own catch has turned a panic into a fault.
            let _ = thread.join();
        }
        self.fault().map_or(Ok(()), |fault| Err(EngineError::Fault(fault)))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.threads.is_empty()
            && let Err(error) = self.end()
        {
            tracing::error!("engine dropped: {error}");
        }
    }
}

pub(crate) fn check(config: &EngineConfig) -> Result<(), EngineError> {
    let refuse = |setting, reason: &str| Err(EngineError::Config { setting, reason: reason.to_owned() });
    if !config.ring_capacity.is_power_of_two() {
        return refuse("ring_capacity", "must be a power of two");
    }
    if config.ring_reserve >= config.ring_capacity {
        return refuse("ring_reserve", "must be less than ring_capacity");
    }
    if config.snapshots_kept == 0 || config.query_capacity == 0 {
        return refuse("snapshots_kept, query_capacity", "must be at least 1");
    }
    let partitions = &config.partitions;
    if partitions.trades == 0 || partitions.lifecycle == 0 || partitions.projection == 0 {
        return refuse("partitions", "must be at least 1");
    }
    Ok(())
}

/// Rebuilds the state: newest usable snapshot, then the rest of the journal, publishing what the topics lack.
pub(crate) fn recover<S: Storage>(
    storage: &S,
    config: &EngineConfig,
    log: Arc<dyn EventLog>,
) -> Result<Recovered<S>, EngineError> {
    let start = Instant::now();
    let snapshots = SnapshotDir::open(storage.clone(), config.snapshot_dir())?;
    let journal_config = JournalConfig {
        dir: config.journal_dir(),
        segment_bytes: config.segment_bytes,
        durability: config.durability,
    };
    // What lies before the newest snapshot need not be read again; should an older one be used, the replay checks what it reads.
    let newest = snapshots.list()?.last().map_or(Seq(0), |seq| seq.next());
    let (journal, recovery) = Journal::open_from(storage.clone(), journal_config, newest)?;
    let mut publisher = Publisher::open(config, &*log)?;
    let base = choose(&snapshots, &publisher, recovery.first, recovery.last)?;
    let (snapshot, exchange, digest) = match base {
        Some(restored) => {
            publisher.resume(Some(&restored.counters))?;
            (restored.seq, restored.exchange, Some(restored.digest))
        }
        None => {
            publisher.resume(None)?;
            (Seq(0), Exchange::new(), None)
        }
    };
    let reader = JournalReader::open(storage.clone(), config.journal_dir(), snapshot.next())?;
    let mut follower = Follower::new(exchange, publisher, log, reader);
    let mut republished = 0;
    while follower.exchange.position() < recovery.last {
        let before = follower.exchange.position();
        republished += follower.advance(recovery.last, None)?;
        if follower.exchange.position() == before {
            let reason = format!("the journal ends there, it was expected to end at {}", recovery.last);
            return Err(EngineError::Record { seq: before.next(), reason });
        }
    }
    follower.publisher.check_not_ahead(recovery.last)?;
    let replayed = recovery.last.0 - snapshot.0;
    // The snapshot's was checked against its state just now; only a state that has moved on needs a new one.
    let digest = digest.filter(|_| replayed == 0).unwrap_or_else(|| follower.exchange.digest());
    let started = Started {
        snapshot,
        replayed,
        republished,
        cut_bytes: recovery.cut_bytes,
        digest,
        took: start.elapsed(),
    };
    tracing::info!(
        position = recovery.last.0,
        snapshot = snapshot.0,
        replayed = started.replayed,
        republished,
        cut_bytes = recovery.cut_bytes,
        digest = format!("{:032x}", started.digest),
        took_ms = started.took.as_millis() as u64,
        "engine recovered"
    );
    Ok(Recovered { follower, journal, snapshots, started })
}

/// The newest snapshot that is whole, that the journal reaches and goes on from, and after which no topic has a hole. `None`: start from
/// the journal's first command.
fn choose<S: Storage>(
    snapshots: &SnapshotDir<S>,
    publisher: &Publisher,
    first: Seq,
    last: Seq,
) -> Result<Option<Restored>, EngineError> {
    let mut refused = None;
    for seq in snapshots.list()?.into_iter().rev() {
        let restored = match snapshots.read(seq) {
            Ok(restored) => restored,
            Err(reason) => {
                tracing::warn!(
                    snapshot = seq.0,
                    reason,
                    "snapshot is damaged; it is set aside and an older one is used"
                );
                snapshots.set_aside(seq)?;
                continue;
            }
        };
        if last < seq {
            let witness = format!("the snapshot in {}", snapshots.path().display());
            return Err(EngineError::JournalBehind { journal: last, witness, needed: seq });
        }
        if first > seq.next() {
            // An older one needs even earlier commands.
            break;
        }
        match publisher.hole(&restored.counters) {
            None => return Ok(Some(restored)),
            Some(hole) => {
                tracing::warn!(snapshot = seq.0, "{hole}; an older snapshot is used");
                refused = Some(hole);
            }
        }
    }
    if first > Seq(1) {
        let dir = snapshots.path().to_path_buf();
        return Err(refused.unwrap_or(EngineError::NoStart { dir, first }));
    }
    Ok(None)
}
