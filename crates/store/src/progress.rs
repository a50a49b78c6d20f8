//! How far a group has come: told by its thread, read by everybody else.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::{Seq, Timestamp};
use hoga_log::consumer::{GroupState, Observer, Signal};
use hoga_log::lag::Latency;

use crate::Group;
use crate::database::lock;
use crate::error::StoreError;
use crate::place::Place;

/// Rates are measured over this time.
const RATE_WINDOW: Duration = Duration::from_secs(10);
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// How far a group has come, and how fast it goes on.
#[derive(Clone, Debug)]
pub struct GroupPosition {
    /// The group.
    pub group: Group,
    /// Whether its thread runs.
    pub running: bool,
    /// The last command of which everything in the group's topic is applied and can be read.
    pub applied: Seq,
    /// Messages in the log that are not applied yet.
    pub lag: u64,
    /// How old the last applied message was when this was asked for; zero without lag. By the clock of this machine.
    pub lag_time: Duration,
    /// Messages that came into the log per second, over the last ten seconds.
    pub produced_per_second: f64,
    /// Messages applied per second, over the last ten seconds.
    pub consumed_per_second: f64,
    /// When the lag will be gone if both rates stay as they are; `None` when it does not shrink, zero without lag.
    pub drain: Option<Duration>,
    /// Messages applied since the start of the process.
    pub messages: u64,
    /// Rows written since the start of the process: several messages of one order in a batch are one row.
    pub rows: u64,
    /// Transactions since the start of the process.
    pub batches: u64,
    /// Messages in the dead-letter table.
    pub dead_letters: u64,
    /// Where it stands per partition, with counts of repeated and compacted messages.
    pub places: Vec<Place>,
    /// What it waits for, when something that it needs is away: it goes on by itself.
    pub waiting: Option<String>,
    /// Why it has stopped, if it has.
    pub fault: Option<Arc<StoreError>>,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    consumed: u64,
    produced: u64,
}

#[derive(Default)]
struct State {
    places: Vec<Place>,
    applied: Seq,
    messages: u64,
    rows: u64,
    batches: u64,
    dead_letters: u64,
    fault: Option<Arc<StoreError>>,
    running: bool,
    /// What the group waits for.
    reason: Option<String>,
    /// How its thread is told things.
    signal: Option<Arc<Signal>>,
    /// When the database was last asked.
    read: Option<Instant>,
    waiting: usize,
    samples: VecDeque<Sample>,
}

/// What a finished batch reports.
pub(crate) struct Report<'a> {
    pub(crate) places: &'a [Place],
    pub(crate) applied: Seq,
    pub(crate) messages: u64,
    pub(crate) rows: u64,
    pub(crate) dead_letters: u64,
    /// Sum of the end offsets as last seen.
    pub(crate) produced: u64,
}

/// Shared between a group's thread and those who ask.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
    /// Something was applied, or the group stopped.
    moved: Condvar,
    /// From a command's time to its result.
    latency: Latency,
}

/// The end of a partition in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) topic: &'static str,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
}

impl End {
    /// The place in this partition.
    pub(crate) fn place<'a>(&self, places: &'a [Place]) -> Option<&'a Place> {
        places.iter().find(|place| place.topic == self.topic && place.partition == self.partition)
    }

    /// Whether a place in this partition is at the end.
    pub(crate) fn is_reached(&self, places: &[Place]) -> bool {
        self.offset == 0 || self.place(places).is_some_and(|place| place.next_offset >= self.offset)
    }
}

impl Observer for Progress {
    fn state(&self, state: &GroupState) {
        let reason = match state {
            GroupState::Waiting { reason } => Some(reason.clone()),
            _ => None,
        };
        lock(&self.state).reason = reason;
    }
}

fn consumed(places: &[Place]) -> u64 {
    places.iter().map(|place| place.next_offset).sum()
}

impl Progress {
    /// What the database says, while no group of this process says more.
    pub(crate) fn read(&self, places: &[Place], applied: Seq, dead_letters: u64) {
        let mut state = lock(&self.state);
        state.places = places.to_vec();
        (state.applied, state.dead_letters) = (applied, dead_letters);
        state.read = Some(Instant::now());
        self.moved.notify_all();
    }

    /// Whether what the database says was read within this time.
    pub(crate) fn is_fresh(&self, within: Duration) -> bool {
        lock(&self.state).read.is_some_and(|at| at.elapsed() < within)
    }

    /// The group is about to start; false when it runs already.
    pub(crate) fn start(&self, signal: Arc<Signal>) -> bool {
        let mut state = lock(&self.state);
        if state.running {
            return false;
        }
        (state.running, state.fault, state.signal, state.reason) = (true, None, Some(signal), None);
        state.samples.clear();
        true
    }

    /// The group has its partitions.
    pub(crate) fn begin(&self, places: &[Place], applied: Seq, dead_letters: u64) {
        let mut state = lock(&self.state);
        state.places = places.to_vec();
        (state.applied, state.dead_letters) = (applied, dead_letters);
        self.moved.notify_all();
    }

    /// The partitions that the member still has.
    pub(crate) fn owned(&self, places: &[Place]) {
        lock(&self.state).places = places.to_vec();
    }

    /// A batch is committed.
    pub(crate) fn report(&self, report: &Report<'_>) {
        let mut state = lock(&self.state);
        state.places.clear();
        state.places.extend_from_slice(report.places);
        state.applied = report.applied;
        state.messages += report.messages;
        state.rows += report.rows;
        state.batches += 1;
        state.dead_letters += report.dead_letters;
        let consumed = consumed(report.places);
        state.sample(consumed, report.produced);
        if state.waiting > 0
            && let Some(signal) = &state.signal
        {
            signal.nudge();
        }
        self.moved.notify_all();
    }

    /// Nothing came: the rates go on all the same.
    pub(crate) fn idle(&self, produced: u64) {
        let mut state = lock(&self.state);
        let consumed = consumed(&state.places);
        state.sample(consumed, produced);
    }

    /// The group's thread ends.
    pub(crate) fn end(&self, fault: Option<Arc<StoreError>>) {
        let mut state = lock(&self.state);
        state.running = false;
        state.fault = fault;
        self.moved.notify_all();
    }

    pub(crate) fn stop(&self) {
        if let Some(signal) = &lock(&self.state).signal {
            signal.stop();
        }
    }

    pub(crate) fn running(&self) -> bool {
        lock(&self.state).running
    }

    pub(crate) fn latency(&self) -> &Latency {
        &self.latency
    }

    pub(crate) fn applied(&self) -> Seq {
        lock(&self.state).applied
    }

    /// Waits until `reached` holds for (applied, places); false when the time is over or the group has stopped before.
    pub(crate) fn wait(&self, timeout: Duration, reached: impl Fn(Seq, &[Place]) -> bool) -> bool {
        let mut state = lock(&self.state);
        if reached(state.applied, &state.places) {
            return true;
        }
        state.waiting += 1;
        if let Some(signal) = &state.signal {
            signal.nudge();
        }
        let on_its_way = |state: &mut State| {
            state.running && state.fault.is_none() && !reached(state.applied, &state.places)
        };
        let (mut state, _) =
            self.moved.wait_timeout_while(state, timeout, on_its_way).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        reached(state.applied, &state.places)
    }

    /// The position, given the end offsets of the partitions now.
    pub(crate) fn position(&self, group: Group, ends: &[End]) -> GroupPosition {
        let mut state = lock(&self.state);
        let done = consumed(&state.places);
        let end: u64 = ends.iter().map(|end| end.offset).sum();
        if !ends.is_empty() {
            state.sample(done, end);
        }
        let lag = ends
            .iter()
            .map(|end| {
                end.offset.saturating_sub(end.place(&state.places).map_or(0, |place| place.next_offset))
            })
            .sum();
        let (consumed_per_second, produced_per_second) = state.rates();
        GroupPosition {
            group,
            running: state.running,
            applied: state.applied,
            lag,
            lag_time: if lag == 0 { Duration::ZERO } else { age(&state.places) },
            produced_per_second,
            consumed_per_second,
            drain: drain(lag, consumed_per_second - produced_per_second),
            messages: state.messages,
            rows: state.rows,
            batches: state.batches,
            dead_letters: state.dead_letters,
            places: state.places.clone(),
            waiting: state.reason.clone(),
            fault: state.fault.clone(),
        }
    }
}

impl State {
    fn sample(&mut self, consumed: u64, produced: u64) {
        let at = Instant::now();
        if self.samples.back().is_some_and(|last| at - last.at < SAMPLE_EVERY) {
            return;
        }
        self.samples.push_back(Sample { at, consumed, produced });
        while self.samples.len() > 2 && at - self.samples[1].at >= RATE_WINDOW {
            self.samples.pop_front();
        }
    }

    /// Consumption and production, in messages per second.
    fn rates(&self) -> (f64, f64) {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return (0.0, 0.0);
        };
        let seconds = (last.at - first.at).as_secs_f64();
        if seconds <= 0.0 {
            return (0.0, 0.0);
        }
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        (rate(first.consumed, last.consumed), rate(first.produced, last.produced))
    }
}

fn drain(lag: u64, net_per_second: f64) -> Option<Duration> {
    if lag == 0 {
        return Some(Duration::ZERO);
    }
    (net_per_second > 0.0).then(|| Duration::try_from_secs_f64(lag as f64 / net_per_second).ok()).flatten()
}

/// The age of the last applied message of the partition that is furthest behind.
fn age(places: &[Place]) -> Duration {
    let oldest = places.iter().map(|place| place.time).filter(|time| *time > Timestamp(0)).min();
    oldest.map_or(Duration::ZERO, |time| Duration::from_micros((now().0 - time.0).max(0) as u64))
}

/// The clock of this machine.
pub(crate) fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64))
}
