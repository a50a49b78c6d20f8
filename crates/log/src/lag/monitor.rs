//! A thread that looks at all groups once a second.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;

use super::{GroupLag, LagBoard, LagOptions, Place, Sample};
use crate::error::LogError;
use crate::event_log::{EventLog, GroupOffset, StoredMessage};

/// A place that a group has told itself: newer than what it has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Which partition.
    pub place: Place,
    /// The next offset that the group reads.
    pub consumed: u64,
}

/// Adds the places of the groups of this process.
pub type Observe = Box<dyn FnMut(&mut Vec<Observed>) + Send>;

#[derive(Default)]
struct State {
    groups: Arc<Vec<GroupLag>>,
    rounds: u64,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches the lag of all groups of one or several logs. Ends when dropped.
pub struct LagMonitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Reads what a [`LagMonitor`] found last.
#[derive(Clone)]
pub struct LagWatch {
    shared: Arc<Shared>,
}

struct Watcher {
    logs: Vec<Arc<dyn EventLog>>,
    observe: Observe,
    every: Duration,
    board: LagBoard,
    origin: Instant,
    /// The oldest unread message of each partition that is behind: its offset and time.
    oldest: BTreeMap<Place, (u64, Timestamp)>,
    names: BTreeMap<String, Arc<str>>,
    found: Vec<StoredMessage>,
}

impl LagMonitor {
    /// Starts watching: the groups registered in the logs, and those that `observe` adds (their places win over the committed ones).
    /// Each round asks every partition for its ends, and reads one message of each that is behind and has moved.
    ///
    /// # Errors
    /// [`LogError::Io`] when no thread can be started.
    pub fn start(
        logs: Vec<Arc<dyn EventLog>>,
        observe: Observe,
        options: LagOptions,
        every: Duration,
    ) -> Result<LagMonitor, LogError> {
        let shared = Arc::new(Shared::default());
        let mut watcher = Watcher {
            logs,
            observe,
            every,
            board: LagBoard::new(options),
            origin: Instant::now(),
            oldest: BTreeMap::new(),
            names: BTreeMap::new(),
            found: Vec::new(),
        };
        let theirs = shared.clone();
        let thread = Builder::new().name("lag".into()).spawn(move || watcher.run(&theirs)).map_err(
            LogError::io("starting the thread that watches the groups in", std::path::Path::new("/")),
        )?;
        Ok(LagMonitor { shared, thread: Some(thread) })
    }

    /// A handle for those who want to read it.
    pub fn watch(&self) -> LagWatch {
        LagWatch { shared: self.shared.clone() }
    }
}

impl Drop for LagMonitor {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        // A log whose servers hang may hold a round for a while; nothing waits for it.
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}

impl LagWatch {
    /// All groups, by name and topic, as of the last round.
    pub fn groups(&self) -> Arc<Vec<GroupLag>> {
        self.shared.lock().groups.clone()
    }

    /// Waits until a whole round was made after this call; false when that took longer than `timeout`.
    pub fn wait_round(&self, timeout: Duration) -> bool {
        let state = self.shared.lock();
        let wanted = state.rounds + 2;
        let early = |state: &mut State| state.rounds < wanted && !state.stop;
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, timeout, early)
            .unwrap_or_else(PoisonError::into_inner);
        state.rounds >= wanted
    }
}

impl Watcher {
    fn run(&mut self, shared: &Shared) {
        loop {
            let begun = Instant::now();
            let groups = Arc::new(self.round());
            let mut state = shared.lock();
            state.groups = groups;
            state.rounds += 1;
            shared.changed.notify_all();
            let left = self.every.saturating_sub(begun.elapsed());
            let running = |state: &mut State| !state.stop;
            let (state, _) = shared
                .changed
                .wait_timeout_while(state, left, running)
                .unwrap_or_else(PoisonError::into_inner);
            if state.stop {
                return;
            }
        }
    }

    fn name(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        let name: Arc<str> = text.into();
        self.names.insert(text.into(), name.clone());
        name
    }

    fn round(&mut self) -> Vec<GroupLag> {
        // Where the groups are is asked before where the partitions end, so that the lag is never less than it is.
        let mut observed = Vec::new();
        (self.observe)(&mut observed);
        let mut places: BTreeMap<Place, (u64, usize)> = BTreeMap::new();
        for at in 0..self.logs.len() {
            for GroupOffset { group, topic, partition, offset, .. } in self.logs[at].groups() {
                let place = Place { group: self.name(&group), topic: self.name(&topic), partition };
                let known = places.entry(place).or_insert((offset, at));
                // The same group in two logs: it reads from the later one (see `start`).
                *known = (offset, at);
            }
        }
        for Observed { place, consumed } in observed {
            let log = places.get(&place).map_or(self.logs.len().saturating_sub(1), |(_, log)| *log);
            places.insert(place, (consumed, log));
        }
        self.oldest.retain(|place, _| places.contains_key(place));
        for (place, (consumed, log)) in places {
            let log = self.logs[log].clone();
            let ends = log
                .start_offset(&place.topic, place.partition)
                .and_then(|start| Ok((start, log.end_offset(&place.topic, place.partition)?)));
            // A log that does not answer now, or has no such topic any more: nothing is known, so nothing is said.
            let Ok((start, end)) = ends else { continue };
            let consumed = consumed.min(end);
            let age = if consumed < end { self.age(&*log, &place, consumed.max(start)) } else { None };
            self.board.feed(&place, Sample { at: self.origin.elapsed(), start, end, consumed, age });
        }
        self.board.turn(self.origin.elapsed())
    }

    /// The age of the message at `offset`, or of the first one behind it.
    fn age(&mut self, log: &dyn EventLog, place: &Place, offset: u64) -> Option<Duration> {
        let known = self.oldest.get(place).filter(|(at, _)| *at == offset).map(|(_, time)| *time);
        let time = match known {
            Some(time) => time,
            None => {
                self.found.clear();
                log.read(&place.topic, place.partition, offset, 1, &mut self.found).ok()?;
                let time = self.found.first()?.time;
                self.oldest.insert(place.clone(), (offset, time));
                time
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        Some(Duration::from_micros(now.saturating_sub(time.0).max(0) as u64))
    }
}
