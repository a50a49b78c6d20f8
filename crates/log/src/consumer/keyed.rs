//! The loop of a group that handles one message at a time, on several threads: in order by key, whatever the number of partitions.
//!
//! One thread polls, tracks and commits; workers handle. A key always goes to the same worker, so its messages are handled in order and one at a
//! time. **Queues**: what was read of a partition and is not finished is bounded by `window`; at that many the partition is paused. Nothing else is
//! queued, so that bounds the workers' queues too.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::worker::{Shared, Work, Worker};
use super::{
    Change, Control, GroupFault, GroupState, Observer, PlaceProgress, Run, Signal, Source, TopicPartition,
    Tracker,
};
use crate::error::LogError;
use crate::event_log::{EventLog, StoredMessage};

/// What a group does with its messages, one at a time. Several threads call it, never two with messages of one key.
pub trait KeyedHandler: Send + Sync {
    /// Handles a message. It may come again, after a crash or when its partition moves: the result must be the same then.
    ///
    /// # Errors
    /// See [`KeyedError`].
    fn handle(&self, place: &TopicPartition, message: &StoredMessage) -> Result<(), KeyedError>;
}

/// Why a message was not handled.
#[derive(Debug)]
pub enum KeyedError {
    /// What handling needs is away: tried again until it is back. Not the message's fault, so nothing is counted.
    Away(Box<dyn std::error::Error + Send + Sync>),
    /// It failed, and may work another time: tried again up to the limit, then it goes to the dead letters.
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// It will never work: it goes to the dead letters at once.
    Unusable(Box<dyn std::error::Error + Send + Sync>),
    /// The group cannot go on and stops with this fault.
    Stop(Box<dyn std::error::Error + Send + Sync>),
}

/// How a group works that handles one message at a time.
#[derive(Clone)]
pub struct KeyedOptions {
    /// Threads that handle, 1 to 256 (4). Keys are spread over them.
    pub workers: usize,
    /// The most unfinished messages of one partition in memory, finished ones behind an unfinished one among them (4096).
    pub window: usize,
    /// The most messages of one poll (1024).
    pub max_messages: usize,
    /// How often a message is tried before it goes to the dead letters (5).
    pub attempts: u32,
    /// The first and the longest pause of a key before its message is tried again; each is twice the one before (100 ms, 5 s).
    pub backoff: (Duration, Duration),
    /// Where dead letters go; without, a message that cannot be handled stops the group.
    pub dead_letters: Option<Arc<dyn EventLog>>,
    /// The longest wait for messages (20 ms).
    pub idle: Duration,
    /// How often what is done is committed (500 ms).
    pub commit_every: Duration,
    /// How long a partition that goes waits for messages of it that are being handled (5 s). It goes then, and they come again.
    pub finish_within: Duration,
    /// How often the observer is told where the partitions stand (200 ms).
    pub observe_every: Duration,
    /// How long leaving the group may take (5 s).
    pub leave_within: Duration,
}

impl Default for KeyedOptions {
    fn default() -> KeyedOptions {
        KeyedOptions {
            workers: 4,
            window: 4096,
            max_messages: 1024,
            attempts: 5,
            backoff: (Duration::from_millis(100), Duration::from_secs(5)),
            dead_letters: None,
            idle: Duration::from_millis(20),
            commit_every: Duration::from_millis(500),
            finish_within: Duration::from_secs(5),
            observe_every: Duration::from_millis(200),
            leave_within: Duration::from_secs(5),
        }
    }
}

/// A partition as the workers see it, for as long as it is assigned. After it went, and came again perhaps, what is still finished under the
/// old one counts for nothing.
pub(super) struct Ticket {
    pub(super) place: TopicPartition,
    /// It goes or has gone: what was not begun is not begun any more.
    ending: AtomicBool,
    /// Messages that are being handled.
    in_work: AtomicUsize,
    /// Finished ones since they were last looked at. One lock a message, held by nobody else but once a poll: so each finished message counts
    /// at once when the partition goes.
    finished: Mutex<Vec<u64>>,
    count: AtomicUsize,
}

impl Ticket {
    /// Begins a message; false when the partition goes.
    pub(super) fn begin(&self) -> bool {
        self.in_work.fetch_add(1, Ordering::SeqCst);
        let ending = self.ending.load(Ordering::SeqCst);
        if ending {
            self.in_work.fetch_sub(1, Ordering::SeqCst);
        }
        !ending
    }

    /// Ends one that was begun; `finished` with its offset when it needs no more.
    pub(super) fn end(&self, finished: Option<u64>) {
        if let Some(offset) = finished {
            self.finished.lock().unwrap_or_else(PoisonError::into_inner).push(offset);
            self.count.fetch_add(1, Ordering::Release);
        }
        self.in_work.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }
}

struct Lane {
    ticket: Arc<Ticket>,
    /// `None` until it is known where to begin.
    tracker: Option<Tracker>,
    committed: Option<u64>,
    ends: (u64, u64),
    paused: bool,
}

impl Lane {
    /// Counts what was finished.
    fn collect(&mut self) {
        let Some(tracker) = &mut self.tracker else { return };
        if self.ticket.count.swap(0, Ordering::AcqRel) > 0 {
            let finished =
                std::mem::take(&mut *self.ticket.finished.lock().unwrap_or_else(PoisonError::into_inner));
            finished.into_iter().for_each(|offset| tracker.done(offset));
        }
    }

    fn open(&self) -> usize {
        self.tracker.as_ref().map_or(0, Tracker::open)
    }
}

struct Keyed<'a> {
    options: &'a KeyedOptions,
    observer: &'a dyn Observer,
    shared: Arc<Shared>,
    queues: Vec<Sender<Work>>,
    lanes: Vec<Lane>,
    fault: Option<LogError>,
    state: GroupState,
    again: Instant,
    committed: Instant,
    observed: Option<Instant>,
}

/// Runs a group until it is told to stop or cannot go on. Blocks; to be called on a thread of its own.
///
/// A message that fails parks its key: later messages of the key wait behind it, other keys go on. When it has failed too often it goes to the
/// dead letters and its key goes on. For replays (`dead_letters::replay`) the source reads the topic `<group>.retry` as well.
///
/// # Errors
/// [`GroupFault`]: a handler's [`KeyedError::Stop`], a message that cannot be handled and has nowhere to go, or a fault of the log that does not
/// pass by itself.
pub fn run_keyed(
    mut source: Box<dyn Source>,
    handler: &Arc<dyn KeyedHandler>,
    options: &KeyedOptions,
    signal: &Signal,
    observer: &Arc<dyn Observer>,
) -> Result<(), GroupFault> {
    let group = source.group().to_owned();
    let shared = Arc::new(Shared::new(&group, handler.clone(), options.clone(), observer.clone()));
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut queues = Vec::new();
    for number in 0..options.workers.clamp(1, 256) {
        let (queue, work): (Sender<Work>, Receiver<Work>) = channel();
        let worker = Worker::new(shared.clone(), work);
        let spawned = Builder::new().name(format!("{group}-{number}")).spawn(move || worker.run());
        let thread = spawned.map_err(|source| {
            let source = LogError::Io { action: "starting a thread of", path: group.clone().into(), source };
            GroupFault::Log { group: group.clone(), source }
        })?;
        threads.push(thread);
        queues.push(queue);
    }
    let now = Instant::now();
    let mut keyed = Keyed {
        options,
        observer: observer.as_ref(),
        shared,
        queues,
        lanes: Vec::new(),
        fault: None,
        state: GroupState::Joining,
        again: now,
        committed: now,
        observed: None,
    };
    observer.state(&GroupState::Joining);
    while !signal.is_stopped() && keyed.fault.is_none() && !keyed.shared.is_stopped() {
        if threads.iter().any(JoinHandle::is_finished) {
            keyed.shared.stop("a worker has panicked".into());
        }
        keyed.step(source.as_mut(), signal);
    }
    keyed.finish(source.control(), None);
    keyed.observe(source.control());
    if let Err(fault) = source.leave(options.leave_within) {
        tracing::warn!(group, %fault, "the group was not left in order");
    }
    keyed.queues.clear();
    // A handler that does not come back is left behind: what it still does counts for nothing.
    let _ = threads.into_iter().filter(JoinHandle::is_finished).map(JoinHandle::join).collect::<Vec<_>>();
    let fault = match (keyed.shared.fault(), keyed.fault.take()) {
        (Some(source), _) => Some(GroupFault::Handler { group, source }),
        (None, Some(source)) => Some(GroupFault::Log { group, source }),
        (None, None) => None,
    };
    keyed.set_state(GroupState::Stopped { fault: fault.as_ref().map(ToString::to_string) });
    fault.map_or(Ok(()), Err)
}

impl Keyed<'_> {
    fn set_state(&mut self, state: GroupState) {
        if self.state != state {
            self.observer.state(&state);
            self.state = state;
        }
    }

    fn failed(&mut self, fault: LogError) {
        if fault.is_transient() {
            self.again = Instant::now() + self.options.backoff.0;
            self.set_state(GroupState::Waiting { reason: fault.to_string() });
        } else {
            self.fault.get_or_insert(fault);
        }
    }

    fn step(&mut self, source: &mut dyn Source, signal: &Signal) {
        let mut timeout = self.options.idle;
        if self.lanes.iter().any(|lane| lane.paused && lane.tracker.is_some()) {
            // Something waits for room: that comes from the workers, not from the log.
            let half = self.options.window / 2;
            let lanes = &self.lanes;
            self.shared.progress.wait(timeout.min(Duration::from_millis(5)), || {
                let has_room = |lane: &Lane| lane.open() <= half + lane.ticket.count.load(Ordering::Acquire);
                lanes.iter().any(|lane| lane.paused && has_room(lane))
            });
            timeout = Duration::ZERO;
        }
        let mut runs = Vec::new();
        let polled = source.poll(timeout, self.options.max_messages, &mut runs, &mut |control, change| {
            self.changed(control, change);
        });
        self.hand_out(runs);
        self.lanes.iter_mut().for_each(Lane::collect);
        match polled {
            Ok(()) => match self.shared.trouble() {
                Some(reason) => self.set_state(GroupState::Waiting { reason }),
                None if !self.lanes.is_empty() => self.set_state(GroupState::Running),
                None => {}
            },
            Err(fault) => {
                self.failed(fault);
                signal.wait(self.options.backoff.0.min(Duration::from_millis(100)));
            }
        }
        if Instant::now() >= self.again {
            self.start_lanes(source.control());
        }
        self.settle(source.control());
        if self.committed.elapsed() >= self.options.commit_every {
            self.commit(source.control());
        }
        if self.observed.is_none_or(|at| at.elapsed() >= self.options.observe_every) {
            self.observe(source.control());
        }
    }

    /// Gives each message to the worker of its key.
    fn hand_out(&mut self, runs: Vec<Run>) {
        for run in runs {
            let lane = self.lanes.iter_mut().find(|lane| lane.ticket.place == run.place);
            let Some(lane) = lane else { continue };
            let Some(tracker) = &mut lane.tracker else { continue };
            let mut shares: Vec<Vec<StoredMessage>> = vec![Vec::new(); self.queues.len()];
            for message in run.messages {
                tracker.read(message.offset);
                shares[worker_of(&message.key, self.queues.len())].push(message);
            }
            tracker.pass(run.next);
            for (queue, messages) in self.queues.iter().zip(shares) {
                if !messages.is_empty() && queue.send(Work { ticket: lane.ticket.clone(), messages }).is_err()
                {
                    self.shared.stop("a worker has ended".into());
                }
            }
        }
    }

    fn changed(&mut self, control: &mut dyn Control, change: Change) {
        match change {
            Change::Assigned(places) => {
                self.observer.assigned(&places);
                for place in places {
                    let ticket = Ticket {
                        place,
                        ending: AtomicBool::new(false),
                        in_work: AtomicUsize::new(0),
                        finished: Mutex::default(),
                        count: AtomicUsize::new(0),
                    };
                    self.lanes.push(Lane {
                        ticket: Arc::new(ticket),
                        tracker: None,
                        committed: None,
                        ends: (0, 0),
                        paused: false,
                    });
                }
                self.start_lanes(control);
                self.settle(control);
            }
            Change::Revoked(places) => {
                self.set_state(GroupState::Rebalancing);
                self.finish(control, Some(&places));
                self.lanes.retain(|lane| !places.contains(&lane.ticket.place));
                self.observer.revoked(&places, false);
            }
            Change::Lost(places) => {
                self.set_state(GroupState::Rebalancing);
                for lane in self.lanes.iter().filter(|lane| places.contains(&lane.ticket.place)) {
                    lane.ticket.ending.store(true, Ordering::SeqCst);
                }
                self.lanes.retain(|lane| !places.contains(&lane.ticket.place));
                self.observer.revoked(&places, true);
            }
        }
    }

    /// Begins nothing more of these partitions (of all), waits for what is in work, and commits.
    fn finish(&mut self, control: &mut dyn Control, places: Option<&[TopicPartition]>) {
        let mut going: Vec<Arc<Ticket>> = self.lanes.iter().map(|lane| lane.ticket.clone()).collect();
        going.retain(|ticket| places.is_none_or(|places| places.contains(&ticket.place)));
        going.iter().for_each(|ticket| ticket.ending.store(true, Ordering::SeqCst));
        let idle = || going.iter().all(|ticket| ticket.in_work.load(Ordering::SeqCst) == 0);
        if !self.shared.progress.wait(self.options.finish_within, idle) {
            tracing::warn!(
                group = self.shared.group,
                "messages in work were not finished in time; they come again"
            );
        }
        self.lanes.iter_mut().for_each(Lane::collect);
        self.commit(control);
    }

    fn start_lanes(&mut self, control: &mut dyn Control) {
        for at in 0..self.lanes.len() {
            if self.lanes[at].tracker.is_some() {
                continue;
            }
            let place = self.lanes[at].ticket.place.clone();
            let begun = control.committed(&place).and_then(|committed| {
                let ends = control.ends(&place)?;
                let start = committed.unwrap_or(0).max(ends.0);
                control.start_at(&place, start)?;
                Ok((committed, ends, start))
            });
            match begun {
                Ok((committed, ends, start)) => {
                    let lane = &mut self.lanes[at];
                    (lane.committed, lane.ends, lane.tracker) = (committed, ends, Some(Tracker::new(start)));
                }
                Err(fault) => return self.failed(fault),
            }
        }
    }

    fn settle(&mut self, control: &mut dyn Control) {
        for at in 0..self.lanes.len() {
            let lane = &self.lanes[at];
            // With the messages of one more poll the window must not be passed.
            let limit = if lane.paused { self.options.window / 2 } else { self.room() };
            let pause = lane.tracker.is_none() || lane.open() > limit;
            if pause == lane.paused {
                continue;
            }
            let place = &lane.ticket.place;
            match if pause { control.pause(place) } else { control.resume(place) } {
                Ok(()) => self.lanes[at].paused = pause,
                Err(fault) => self.failed(fault),
            }
        }
    }

    fn room(&self) -> usize {
        self.options.window.saturating_sub(self.options.max_messages).max(self.options.window / 2)
    }

    /// Commits up to the first unfinished message of each partition: only upwards.
    fn commit(&mut self, control: &mut dyn Control) {
        self.committed = Instant::now();
        let higher = |lane: &Lane| {
            let position = lane.tracker.as_ref()?.position();
            lane.committed
                .is_none_or(|committed| position > committed)
                .then(|| (lane.ticket.place.clone(), position))
        };
        let offsets: Vec<(TopicPartition, u64)> = self.lanes.iter().filter_map(higher).collect();
        if offsets.is_empty() {
            return;
        }
        match control.commit(&offsets) {
            Ok(()) => {
                for (place, offset) in offsets {
                    let lane = self.lanes.iter_mut().find(|lane| lane.ticket.place == place);
                    lane.expect("the offsets were made of the lanes").committed = Some(offset);
                }
            }
            Err(fault) => self.failed(fault),
        }
    }

    fn observe(&mut self, control: &mut dyn Control) {
        self.observed = Some(Instant::now());
        let mut all = Vec::with_capacity(self.lanes.len());
        for lane in &mut self.lanes {
            if let Ok(ends) = control.ends(&lane.ticket.place) {
                lane.ends = ends;
            }
            let handled = lane.tracker.as_ref().map_or(0, Tracker::position);
            all.push(PlaceProgress {
                place: lane.ticket.place.clone(),
                handled,
                committed: lane.committed,
                ends: (lane.ends.0, lane.ends.1.max(handled)),
                waiting: lane.open(),
                paused: lane.paused,
            });
        }
        self.observer.progress(&all);
    }
}

/// The worker of a key. Not by [`crate::event_log::partition_for`]: keys of one partition would meet at few workers.
pub(super) fn worker_of(key: &[u8], workers: usize) -> usize {
    let mut hash = 0x9E37_79B9_7F4A_7C15u64;
    for byte in key {
        hash = (hash.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x517C_C1B7_2722_0A95);
    }
    (((hash >> 32) * workers as u64) >> 32) as usize
}
