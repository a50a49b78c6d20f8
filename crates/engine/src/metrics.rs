//! Counters and delays of every stage. Each histogram is filled by one thread that owns it, and added to a shared window about ten times a
//! second, so that recording costs an array increment and reading never disturbs a stage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::position::{Positions, Space};
use crate::replica::ReplicaStatus;

/// How often a thread publishes what it measured.
pub(crate) const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// How long a window of delays is; what is shown covers the last one to two of them.
const WINDOW: Duration = Duration::from_secs(10);

/// Finest and longest delay that is told apart: about a microsecond, 100 seconds. Two digits.
const FINEST: u64 = 1_024;
const LONGEST: u64 = 100_000_000_000;

/// Delays of one stage over the last 10 to 20 seconds, in nanoseconds, and totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// What is measured; see [`EngineMetrics`].
    pub stage: &'static str,
    /// Measurements since the start.
    pub count: u64,
    /// Their sum since the start.
    pub sum: u64,
    /// Median.
    pub p50: u64,
    /// 90 of 100 are at most this.
    pub p90: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1,000.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// A moment's counters and delays. Counters run from the start of the process.
#[derive(Clone, Debug, Default)]
pub struct EngineMetrics {
    /// How far each stage has come.
    pub positions: Positions,
    /// Commands in the inbound ring.
    pub inbound_depth: u64,
    /// Commands received and not yet durable.
    pub journal_depth: u64,
    /// Commands matched and not yet answered.
    pub gate_depth: u64,
    /// Commands answered and not yet applied by the shadow: the publisher's lag.
    pub shadow_depth: u64,
    /// Commands taken.
    pub commands: u64,
    /// Of these, refused by the rules.
    pub rejected: u64,
    /// Commands not taken because the ring was full.
    pub busy: u64,
    /// Queries answered.
    pub queries: u64,
    /// Queries not taken because their queue was full.
    pub busy_queries: u64,
    /// Batches the matcher handed on.
    pub batches: u64,
    /// Syncs of the journal.
    pub syncs: u64,
    /// Bytes of journal records.
    pub journal_bytes: u64,
    /// Messages appended to the event log.
    pub messages: u64,
    /// Times the shadow's chain was compared with the matcher's, and was equal.
    pub chain_checks: u64,
    /// Snapshots written.
    pub snapshots: u64,
    /// The command up to which the newest snapshot holds.
    pub snapshot_seq: u64,
    /// Size of the newest snapshot in bytes.
    pub snapshot_bytes: u64,
    /// How long the shadow stood still to encode the newest snapshot, in nanoseconds. The market does not stand still.
    pub snapshot_pause: u64,
    /// Delays by stage. From the moment a command is handed in until it is: `queue` taken by the sequencer, `match` applied, `durable`
    /// synced, `ack` answered. `publish`: from its time stamp until the shadow has published it (per batch, its last command). `sync`: one
    /// sync of the journal. `read-back`: from sending a batch to the replicated journal until it is read back; empty without one.
    pub stages: Vec<Latency>,
    /// How the replication of the journal stands.
    pub replica: ReplicaStatus,
}

/// Counters that the threads add to, and the published delays.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub rejected: AtomicU64,
    pub busy: AtomicU64,
    pub commands: AtomicU64,
    pub queries: AtomicU64,
    pub busy_queries: AtomicU64,
    pub batches: AtomicU64,
    pub syncs: AtomicU64,
    pub journal_bytes: AtomicU64,
    pub messages: AtomicU64,
    pub chain_checks: AtomicU64,
    pub snapshots: AtomicU64,
    pub snapshot_seq: AtomicU64,
    pub snapshot_bytes: AtomicU64,
    pub snapshot_pause: AtomicU64,
    pub queue: Stage,
    pub matching: Stage,
    pub durable: Stage,
    pub ack: Stage,
    pub publish: Stage,
    pub sync: Stage,
    pub read_back: Stage,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let zero = || AtomicU64::new(0);
        Metrics {
            rejected: zero(),
            busy: zero(),
            commands: zero(),
            queries: zero(),
            busy_queries: zero(),
            batches: zero(),
            syncs: zero(),
            journal_bytes: zero(),
            messages: zero(),
            chain_checks: zero(),
            snapshots: zero(),
            snapshot_seq: zero(),
            snapshot_bytes: zero(),
            snapshot_pause: zero(),
            queue: Stage::new("queue"),
            matching: Stage::new("match"),
            durable: Stage::new("durable"),
            ack: Stage::new("ack"),
            publish: Stage::new("publish"),
            sync: Stage::new("sync"),
            read_back: Stage::new("read-back"),
        }
    }
}

impl Metrics {
    /// Everything at this moment.
    pub fn snapshot(&self, positions: Positions) -> EngineMetrics {
        let between = |later: u64, earlier: u64| later.saturating_sub(earlier);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stages = [
            &self.queue,
            &self.matching,
            &self.durable,
            &self.ack,
            &self.publish,
            &self.sync,
            &self.read_back,
        ];
        EngineMetrics {
            positions,
            inbound_depth: 0,
            journal_depth: between(positions.received.seq().0, positions.durable.seq().0),
            gate_depth: between(positions.matched.seq().0, positions.acked.seq().0),
            shadow_depth: between(positions.acked.seq().0, positions.applied.seq().0),
            commands: get(&self.commands),
            rejected: get(&self.rejected),
            busy: get(&self.busy),
            queries: get(&self.queries),
            busy_queries: get(&self.busy_queries),
            batches: get(&self.batches),
            syncs: get(&self.syncs),
            journal_bytes: get(&self.journal_bytes),
            messages: get(&self.messages),
            chain_checks: get(&self.chain_checks),
            snapshots: get(&self.snapshots),
            snapshot_seq: get(&self.snapshot_seq),
            snapshot_bytes: get(&self.snapshot_bytes),
            snapshot_pause: get(&self.snapshot_pause),
            stages: stages.into_iter().map(Stage::latency).collect(),
            replica: ReplicaStatus::default(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    // The bounds are constants that the library takes: this cannot fail for any input.
    Histogram::new_with_bounds(FINEST, LONGEST, 2)
        .unwrap_or_else(|_| unreachable!("constant histogram bounds"))
}

/// The published delays of one stage.
#[derive(Debug)]
pub(crate) struct Stage {
    name: &'static str,
    windows: Mutex<Windows>,
}

#[derive(Debug)]
struct Windows {
    current: Histogram<u64>,
    previous: Histogram<u64>,
    /// When the current window began, in the engine's nanoseconds.
    since: u64,
    count: u64,
    sum: u64,
}

impl Stage {
    fn new(name: &'static str) -> Stage {
        let windows = Windows { current: histogram(), previous: histogram(), since: 0, count: 0, sum: 0 };
        Stage { name, windows: Mutex::new(windows) }
    }

    fn latency(&self) -> Latency {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut both = windows.current.clone();
        // Both have the same bounds, so adding cannot fail.
        let _ = both.add(&windows.previous);
        Latency {
            stage: self.name,
            count: windows.count,
            sum: windows.sum,
            p50: both.value_at_quantile(0.5),
            p90: both.value_at_quantile(0.9),
            p99: both.value_at_quantile(0.99),
            p999: both.value_at_quantile(0.999),
            max: both.max(),
        }
    }
}

/// A thread's own histogram of one stage.
#[derive(Debug)]
pub(crate) struct Recorder {
    local: Histogram<u64>,
    sum: u64,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder { local: histogram(), sum: 0 }
    }

    /// One measurement, in nanoseconds.
    pub fn record(&mut self, nanos: u64) {
        self.local.saturating_record(nanos);
        self.sum += nanos;
    }

    /// Adds what was recorded to the stage. `now` in the engine's nanoseconds.
    fn publish(&mut self, stage: &Stage, now: u64) {
        if self.local.is_empty() {
            return;
        }
        let mut windows = stage.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_sub(windows.since) > WINDOW.as_nanos() as u64 {
            let windows = &mut *windows;
            std::mem::swap(&mut windows.current, &mut windows.previous);
            windows.current.reset();
            windows.since = now;
        }
        let _ = windows.current.add(&self.local); // the same bounds: cannot fail
        windows.count += self.local.len();
        windows.sum = windows.sum.wrapping_add(self.sum);
        drop(windows);
        self.local.reset();
        self.sum = 0;
    }
}

/// Decides when a thread publishes its recorders: at most ten times a second, and soon after it has gone idle.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    published: u64,
    dirty: bool,
}

impl Pulse {
    /// Something was recorded at `now`; publishes when it is time.
    pub fn touch(&mut self, now: u64, recorders: &mut [(&mut Recorder, &Stage)]) {
        self.dirty = true;
        if now.saturating_sub(self.published) >= PUBLISH_EVERY.as_nanos() as u64 {
            self.flush(now, recorders);
        }
    }

    /// Publishes what there is.
    pub fn flush(&mut self, now: u64, recorders: &mut [(&mut Recorder, &Stage)]) {
        if !std::mem::take(&mut self.dirty) {
            return;
        }
        self.published = now;
        for (recorder, stage) in recorders {
            recorder.publish(stage, now);
        }
    }

    /// How long the thread may sleep: until it must publish, or for long.
    pub fn sleep(&self) -> Duration {
        if self.dirty { PUBLISH_EVERY } else { Duration::from_secs(60) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_published_in_windows() {
        let metrics = Metrics::default();
        let (mut recorder, mut pulse) = (Recorder::new(), Pulse::default());
        let second = 1_000_000_000;
        for (now, expected_p50, expected_count) in
            [(second, 1_000_000, 10), (2 * second, 1_000_000, 20), (13 * second, 1_000_000, 30)]
        {
            (0..10).for_each(|_| recorder.record(1_000_000));
            pulse.touch(now, &mut [(&mut recorder, &metrics.ack)]);
            let shown = metrics.snapshot(Positions::default()).stages[3];
            assert_eq!((shown.stage, shown.count), ("ack", expected_count));
            assert!(shown.p50.abs_diff(expected_p50) < expected_p50 / 50, "{shown:?}");
            assert_eq!(shown.sum, expected_count * 1_000_000);
        }
        assert_eq!(pulse.sleep(), Duration::from_secs(60), "nothing is left to publish");
        recorder.record(5);
        pulse.touch(13 * second + 1, &mut [(&mut recorder, &metrics.ack)]);
        assert_eq!(pulse.sleep(), PUBLISH_EVERY);
    }
}
