//! The shadow: follows the journal behind the gate, publishes, feeds subscribers, answers queries and takes snapshots. Whatever is slow
//! happens here, on a replica, and never holds up the market. By comparing its event chain with the matcher's it proves, while the system
//! runs, that the journal gives the same events again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use hoga_core::ids::Seq;
use hoga_log::event_log::EventLog;
use hoga_log::journal;
use hoga_log::storage::Storage;
use hoga_log::storage::{IoPriority, set_io_priority};

use crate::Subscriber;
use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::fault::FaultKind;
use crate::follower::{CHUNK, Follower, Marks};
use crate::handle::Query;
use crate::metrics::{Pulse, Recorder};
use crate::pace::Pace;
use crate::position::{Applied, Space};
use crate::shared::Shared;
use crate::snapshot::{self, Encoded, SnapshotDir};

/// The name of its thread, as faults tell it.
const THREAD: &str = "shadow";

/// Queries that are answered before the next commands are looked at.
const QUERIES_PER_ROUND: usize = 64;

/// The shadow and what it works with.
pub(crate) struct Shadow<S: Storage> {
    pub shared: Arc<Shared>,
    pub config: EngineConfig,
    pub follower: Follower<S>,
    pub marks: Marks,
    pub queries: Receiver<Query>,
    pub subscribers: Vec<Box<dyn Subscriber>>,
    pub snapshots: SnapshotWriter,
    pub pace: Pace,
    /// The query that waits for the replica to catch up.
    pub head: Option<Query>,
}

impl<S: Storage> Shadow<S> {
    /// Runs until the gate has ended and everything is applied, or the engine stops.
    pub fn run(mut self) {
        self.shared.shadow_bell.attach();
        let (mut publish, mut pulse) = (Recorder::new(), Pulse::default());
        loop {
            if self.shared.faults.stopped() {
                return;
            }
            // Read before the position, so that "done" is final.
            let done = self.shared.gate_done.load(Ordering::SeqCst);
            // In the mode without durability the gate does not wait for the journal, but what is not written cannot be read.
            let acked = self.shared.acked.get().seq();
            let readable = acked.min(self.shared.durable.get().seq());
            let behind = readable.0.saturating_sub(self.follower.exchange.position().0);
            if self.rests(behind) {
                continue;
            }
            let behind = behind > 0;
            if behind && !self.step(readable, &mut publish, &mut pulse) {
                return;
            }
            self.snapshot_when_due();
            let answered = self.answer();
            if behind || answered {
                continue;
            }
            if done && readable == acked {
                break;
            }
            if !self.shared.shadow_bell.wait(pulse.sleep()) {
                pulse.flush(self.shared.nanos(), &mut [(&mut publish, &self.shared.metrics.publish)]);
            }
        }
        let position = self.follower.exchange.position();
        if self.config.final_snapshot && self.snapshots.last < position {
            self.snapshots.wait_idle();
            self.snapshot();
        }
    }

    /// Under load, lets more come together before the next piece of publishing. Whether it has rested.
    fn rests(&mut self, behind: u64) -> bool {
        let now = self.shared.nanos();
        let rest = self.pace.rest(now);
        if behind == 0 || behind >= CHUNK as u64 || rest.is_zero() {
            if behind > 0 {
                self.pace.begin(now, behind);
            }
            return false;
        }
        std::thread::sleep(rest);
        true
    }

    /// Applies, publishes and shows the next commands. `false`: the engine has stopped.
    fn step(&mut self, upto: Seq, publish: &mut Recorder, pulse: &mut Pulse) -> bool {
        match self.follower.advance(upto, Some(&mut self.marks)) {
            Ok(messages) => self.shared.metrics.messages.fetch_add(messages, Ordering::Relaxed),
            Err(error) => {
                let (kind, detail) = error.fault();
                self.shared.stop(kind, THREAD, detail);
                return false;
            }
        };
        for subscriber in &mut self.subscribers {
            subscriber.on_events(self.follower.events());
        }
        let exchange = &self.follower.exchange;
        self.shared.applied.advance(Applied::at(exchange.position()));
        self.shared.metrics.chain_checks.store(self.marks.compared, Ordering::Relaxed);
        let delay = self.config.clock.now().0.saturating_sub(exchange.time().0).max(0) as u64;
        publish.record(delay.saturating_mul(1_000));
        pulse.touch(self.shared.nanos(), &mut [(publish, &self.shared.metrics.publish)]);
        true
    }

    /// Answers queries whose time has come. Whether there were any.
    fn answer(&mut self) -> bool {
        let mut count = 0;
        while count < QUERIES_PER_ROUND {
            let Some(query) = self.head.take().or_else(|| self.queries.try_recv().ok()) else { break };
            if query.since.seq() > self.follower.exchange.position() {
                self.head = Some(query);
                break;
            }
            (query.run)(&self.follower.exchange);
            count += 1;
        }
        self.shared.metrics.queries.fetch_add(count as u64, Ordering::Relaxed);
        count > 0
    }

    /// Takes a snapshot when enough has happened since the last one, or when somebody asked; never while one is being written.
    fn snapshot_when_due(&mut self) {
        if !self.snapshots.idle() {
            return;
        }
        let since = self.follower.exchange.position().0 - self.snapshots.last.0;
        let due = self.config.snapshot_every > 0 && since >= self.config.snapshot_every;
        let wanted = self.shared.snapshot_wanted.swap(false, Ordering::SeqCst);
        if since > 0 && (due || wanted) {
            self.snapshot();
        }
    }

    /// Encodes the state in one go, and hands it to the thread that writes it.
    fn snapshot(&mut self) {
        let start = self.shared.nanos();
        let room = self.shared.metrics.snapshot_bytes.load(Ordering::Relaxed) as usize;
        // On a thread that yields to all others: the shadow stands still meanwhile anyway, and the market must not feel it.
        let (exchange, counters) = (&self.follower.exchange, self.follower.publisher.counters());
        let encode = || {
            step_back();
            snapshot::encode(exchange, &counters, room + room / 8)
        };
        let encoded = std::thread::scope(|scope| match scope.spawn(encode).join() {
            Ok(encoded) => encoded,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        self.shared.metrics.snapshot_pause.store(self.shared.nanos() - start, Ordering::Relaxed);
        self.snapshots.write(encoded);
    }
}

/// The shadow's end of the thread that writes snapshots. Ends that thread, and waits for it, when dropped.
pub(crate) struct SnapshotWriter {
    /// The command of the newest snapshot that was begun.
    last: Seq,
    busy: Arc<AtomicBool>,
    finished: Receiver<()>,
    queue: Option<SyncSender<Encoded>>,
    thread: Option<JoinHandle<()>>,
}

impl SnapshotWriter {
    /// Starts the thread. `last`: the command of the newest snapshot there is.
    pub fn start<S: Storage>(
        shared: Arc<Shared>,
        config: EngineConfig,
        storage: S,
        dir: SnapshotDir<S>,
        log: Arc<dyn EventLog>,
        last: Seq,
    ) -> Result<SnapshotWriter, EngineError> {
        let (queue, waiting) = mpsc::sync_channel::<Encoded>(1);
        let (finish, finished) = mpsc::sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let busy_here = busy.clone();
        let run = move || {
            step_back();
            while let Ok(encoded) = waiting.recv() {
                if let Err(error) = write(&shared, &config, &storage, &dir, &*log, encoded) {
                    shared.stop(FaultKind::Snapshot, "snapshots", error.to_string());
                }
                busy_here.store(false, Ordering::SeqCst);
                shared.shadow_bell.ring();
                let _ = finish.try_send(());
            }
        };
        let thread = std::thread::Builder::new()
            .name("snapshots".to_owned())
            .spawn(run)
            .map_err(EngineError::Thread)?;
        Ok(SnapshotWriter { last, busy, finished, queue: Some(queue), thread: Some(thread) })
    }

    /// Whether the last snapshot is written.
    fn idle(&self) -> bool {
        !self.busy.load(Ordering::SeqCst)
    }

    /// Waits until the last snapshot is written.
    fn wait_idle(&self) {
        while !self.idle() {
            if self.finished.recv().is_err() {
                return;
            }
        }
    }

    fn write(&mut self, encoded: Encoded) {
        self.last = encoded.seq;
        self.busy.store(true, Ordering::SeqCst);
        if let Some(queue) = &self.queue {
            // One place, and the thread is idle.
            let _ = queue.try_send(encoded);
        }
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The calling thread's work can wait, for the disk and for the processor. Where that is refused, it only competes more.
fn step_back() {
    if let Err(error) = set_io_priority(IoPriority::Last) {
        tracing::debug!(%error, "snapshots compete with the journal for the disk");
    }
    // On Linux this is of the calling thread alone.
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!(%error, "snapshots compete with the market for the processor");
    }
}

/// Writes one snapshot, removes those that are too many and the journal before the oldest one that is kept.
fn write<S: Storage>(
    shared: &Shared,
    config: &EngineConfig,
    storage: &S,
    dir: &SnapshotDir<S>,
    log: &dyn EventLog,
    mut encoded: Encoded,
) -> Result<(), EngineError> {
    // First the topics: a start from this snapshot makes only later messages again.
    log.sync()?;
    snapshot::seal(&mut encoded);
    dir.write(&encoded, config.snapshot_rate, || shared.intake_closed())?;
    let metrics = &shared.metrics;
    metrics.snapshot_seq.store(encoded.seq.0, Ordering::Relaxed);
    metrics.snapshot_bytes.store(encoded.bytes.len() as u64, Ordering::Relaxed);
    drop(encoded);
    // Only when as many snapshots are there as are to be kept may the journal lose its beginning.
    if let Some(oldest) = dir.prune(config.snapshots_kept)? {
        let floor = config.retain_floor.as_ref().map_or(Seq(u64::MAX), |floor| floor());
        journal::remove_before(storage, &config.journal_dir(), oldest.next().min(floor))?;
    }
    // Counted last: whoever sees the count sees everything above done.
    metrics.snapshots.fetch_add(1, Ordering::SeqCst);
    Ok(())
}
