//! How a relay goes: told by its thread, read by everybody else.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;

use crate::error::LogError;
use crate::event_log::EventLog;

/// How often the oldest message of a partition that is behind is read for its age.
const AGE_EVERY: Duration = Duration::from_secs(1);

/// What a relay is doing.
#[derive(Clone, Debug)]
pub enum RelayState {
    /// It opens the log on the other side, or waits before it tries again, because of this fault.
    Connecting(Option<Arc<LogError>>),
    /// The servers do not answer now.
    Waiting(Arc<LogError>),
    /// The other side has messages that the local log has not got again since its power cut; they come when the journal is replayed.
    Ahead,
    /// It carries messages that have been there for a while.
    CatchingUp,
    /// It carries messages as they come.
    Current,
    /// It ended because it was told to.
    Ended,
    /// It ended with this fault. Nothing more is carried until the process starts again.
    Stopped(Arc<LogError>),
}

impl RelayState {
    /// A word for it, as in `/metrics`.
    pub fn as_str(&self) -> &'static str {
        match self {
            RelayState::Connecting(_) => "connecting",
            RelayState::Waiting(_) => "waiting",
            RelayState::Ahead => "ahead",
            RelayState::CatchingUp => "catching_up",
            RelayState::Current => "current",
            RelayState::Ended => "ended",
            RelayState::Stopped(_) => "stopped",
        }
    }

    /// All words of [`RelayState::as_str`].
    pub const ALL: [&'static str; 7] =
        ["connecting", "waiting", "ahead", "catching_up", "current", "ended", "stopped"];

    /// The fault behind it, if there is one.
    pub fn fault(&self) -> Option<&LogError> {
        match self {
            RelayState::Connecting(fault) => fault.as_deref(),
            RelayState::Waiting(fault) | RelayState::Stopped(fault) => Some(fault),
            _ => None,
        }
    }
}

impl fmt::Display for RelayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self.fault() {
            Some(fault) => write!(f, " ({fault})"),
            None => Ok(()),
        }
    }
}

/// Where a relay is in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayPlace {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: u32,
    /// End of the local partition.
    pub end: u64,
    /// The next offset to be sent.
    pub relayed: u64,
    /// Everything before this offset is acknowledged by the other side.
    pub confirmed: u64,
    /// Messages that are not acknowledged yet.
    pub lag: u64,
    /// How old the oldest of them is, by the clock of this machine; zero without lag.
    pub age: Duration,
    /// When the oldest of them happened.
    pub oldest: Option<Timestamp>,
    /// Messages that were no longer in the local log when the other side had none at all: it begins behind them.
    pub skipped: u64,
}

/// What a relay has done since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Messages handed to the other side.
    pub messages: u64,
    /// Times that the log on the other side was opened again.
    pub reconnects: u64,
    /// Partitions whose last message was compared with the local one.
    pub verified: u64,
    /// Times that messages were waited for until they were acknowledged.
    pub confirms: u64,
    /// Times that a foreign history was met.
    pub foreign: u64,
}

/// How a relay goes.
#[derive(Clone, Debug)]
pub struct RelayStatus {
    /// What it is doing.
    pub state: RelayState,
    /// By topic and partition.
    pub places: Vec<RelayPlace>,
    /// What it has done.
    pub counters: RelayCounters,
}

impl RelayStatus {
    /// Messages of all partitions that are not acknowledged yet.
    pub fn lag(&self) -> u64 {
        self.places.iter().map(|place| place.lag).sum()
    }

    /// The age of the oldest of them.
    pub fn age(&self) -> Duration {
        self.places.iter().map(|place| place.age).max().unwrap_or_default()
    }
}

type Close = Box<dyn FnOnce(Duration) + Send>;

struct Inner {
    state: RelayState,
    places: Vec<RelayPlace>,
    counters: RelayCounters,
    /// Until when the relay may carry on what was there; set by the one who stops it.
    stop: Option<Instant>,
    ended: bool,
    drained: bool,
    close: Option<Close>,
    probes: Vec<Probe>,
}

/// The oldest message of a partition, when last looked at.
#[derive(Clone, Copy)]
struct Probe {
    at: Instant,
    offset: u64,
    time: Timestamp,
}

/// Between the relay's thread and those who ask.
pub(super) struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new(places: Vec<RelayPlace>) -> Shared {
        let inner = Inner {
            state: RelayState::Connecting(None),
            places,
            counters: RelayCounters::default(),
            stop: None,
            ended: false,
            drained: false,
            close: None,
            probes: Vec::new(),
        };
        Shared { inner: Mutex::new(inner), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_state(&self, state: RelayState) {
        self.lock().state = state;
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut RelayCounters)) {
        count(&mut self.lock().counters);
    }

    /// Tells where the lanes are.
    pub(super) fn report(&self, lanes: impl Iterator<Item = (u64, u64, u64)>) {
        let mut inner = self.lock();
        for (place, (relayed, confirmed, skipped)) in inner.places.iter_mut().zip(lanes) {
            (place.relayed, place.confirmed, place.skipped) = (relayed, confirmed, skipped);
        }
    }

    pub(super) fn stop(&self, until: Instant) {
        self.lock().stop = Some(until);
        self.changed.notify_all();
    }

    /// Until when the relay may go on, once it was told to stop.
    pub(super) fn stopping(&self) -> Option<Instant> {
        self.lock().stop
    }

    /// Sleeps, unless the relay is told to stop meanwhile.
    pub(super) fn pause(&self, time: Duration) {
        let inner = self.lock();
        let unstopped = |inner: &mut Inner| inner.stop.is_none();
        drop(self.changed.wait_timeout_while(inner, time, unstopped).unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn end(&self, state: RelayState, drained: bool) {
        let mut inner = self.lock();
        (inner.state, inner.ended, inner.drained) = (state, true, drained);
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    pub(super) fn drained(&self) -> bool {
        self.lock().drained
    }

    pub(super) fn wait_ended(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let inner = self.lock();
        let running = |inner: &mut Inner| !inner.ended;
        let (inner, _) =
            self.changed.wait_timeout_while(inner, left, running).unwrap_or_else(PoisonError::into_inner);
        inner.ended
    }

    pub(super) fn set_close(&self, close: Close) {
        self.lock().close = Some(close);
    }

    /// Whoever takes it closes the log.
    pub(super) fn take_close(&self) -> Option<Close> {
        self.lock().close.take()
    }

    pub(super) fn status(&self, local: &dyn EventLog) -> RelayStatus {
        let (state, mut places, counters, mut probes) = {
            let inner = self.lock();
            (inner.state.clone(), inner.places.clone(), inner.counters, inner.probes.clone())
        };
        let now = Instant::now();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        probes.resize(places.len(), Probe { at: now, offset: u64::MAX, time: Timestamp(0) });
        let mut found = Vec::new();
        for (place, probe) in places.iter_mut().zip(&mut probes) {
            place.end =
                local.end_offset(&place.topic, place.partition).unwrap_or(place.end).max(place.confirmed);
            place.lag = place.end - place.confirmed;
            if place.lag == 0 {
                continue;
            }
            let stale = probe.offset == u64::MAX || now.duration_since(probe.at) >= AGE_EVERY;
            if probe.offset != place.confirmed && stale {
                found.clear();
                let read = local.read(&place.topic, place.partition, place.confirmed, 1, &mut found);
                if let (Ok(_), Some(oldest)) = (read, found.first()) {
                    *probe = Probe { at: now, offset: place.confirmed, time: oldest.time };
                }
            }
            if probe.offset != u64::MAX {
                place.oldest = Some(probe.time);
                place.age = Duration::from_micros(clock.saturating_sub(probe.time.0).max(0) as u64);
            }
        }
        self.lock().probes = probes;
        RelayStatus { state, places, counters }
    }
}
