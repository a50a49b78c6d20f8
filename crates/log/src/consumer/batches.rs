//! The loop of a group that handles many messages at a time: one thread, one handler, one transaction of the handler's own per call.

use std::time::{Duration, Instant};

use super::{
    BatchHandler, Change, Control, GroupFault, GroupState, HandlerError, Observer, Offer, PlaceProgress, Run,
    Signal, Source, Start, TopicPartition,
};
use crate::error::LogError;

/// How a group works that handles many messages at a time.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// The most new messages of one call (4096). What the handler did not take before comes on top, see `window`.
    pub max_messages: usize,
    /// The most messages of one partition that wait in memory (8192): at this many the partition is paused until the handler took half.
    pub window: usize,
    /// The longest wait for messages; then the handler gets an empty call (50 ms).
    pub idle: Duration,
    /// After a batch smaller than half of `max_messages`, so long is waited for others to share the next one (none). [`Signal::nudge`]
    /// ends it.
    pub linger: Duration,
    /// How often what was handled is made safe and committed (500 ms).
    pub commit_every: Duration,
    /// The first and the longest pause before something that failed is tried again (100 ms, 5 s).
    pub backoff: (Duration, Duration),
    /// How often the observer is told where the partitions stand (200 ms).
    pub observe_every: Duration,
    /// How long leaving the group may take (5 s).
    pub leave_within: Duration,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions {
            max_messages: 4096,
            window: 8192,
            idle: Duration::from_millis(50),
            linger: Duration::ZERO,
            commit_every: Duration::from_millis(500),
            backoff: (Duration::from_millis(100), Duration::from_secs(5)),
            observe_every: Duration::from_millis(200),
            leave_within: Duration::from_secs(5),
        }
    }
}

/// While something is to be tried again, the group's membership is kept alive in steps of this.
const STEP: Duration = Duration::from_millis(20);

struct Lane {
    place: TopicPartition,
    /// Read and not taken yet.
    waiting: Option<Run>,
    handled: u64,
    committed: Option<u64>,
    ends: (u64, u64),
    paused: bool,
    /// What the handler and the log said: where to begin, what is committed, and the ends.
    begins: Option<(u64, Option<u64>, (u64, u64))>,
    /// Whether the log gives messages from there on.
    started: bool,
}

impl Lane {
    fn waits(&self) -> usize {
        self.waiting.as_ref().map_or(0, |run| run.messages.len())
    }
}

struct Batches<'a> {
    handler: &'a mut dyn BatchHandler,
    options: &'a BatchOptions,
    observer: &'a dyn Observer,
    lanes: Vec<Lane>,
    fault: Option<HandlerError>,
    log_fault: Option<LogError>,
    /// When to try again, and the pause that led there.
    again: Option<(Instant, Duration)>,
    pause: Duration,
    state: GroupState,
    committed: Instant,
    observed: Option<Instant>,
}

/// Runs a group until it is told to stop or cannot go on. Blocks; to be called on a thread of its own.
///
/// What the handler did not take is offered again in front of newer messages. [`HandlerError::Later`] brings the same messages again after a
/// pause, while the membership stays alive. When partitions go, and at the end, what was handled is made safe and committed first.
///
/// # Errors
/// [`GroupFault`]: the handler's [`HandlerError::Stop`], or a fault of the log that does not pass by itself.
pub fn run_batches(
    mut source: Box<dyn Source>,
    handler: &mut dyn BatchHandler,
    options: &BatchOptions,
    signal: &Signal,
    observer: &dyn Observer,
) -> Result<(), GroupFault> {
    let mut batches = Batches {
        handler,
        options,
        observer,
        lanes: Vec::new(),
        fault: None,
        log_fault: None,
        again: None,
        pause: Duration::ZERO,
        state: GroupState::Joining,
        committed: Instant::now(),
        observed: None,
    };
    observer.state(&GroupState::Joining);
    while !signal.is_stopped() && !batches.is_over() {
        batches.step(source.as_mut(), signal);
    }
    batches.make_safe(source.control());
    batches.observe(source.control());
    if let Err(fault) = source.leave(options.leave_within) {
        tracing::warn!(group = source.group(), %fault, "the group was not left in order");
    }
    let group = source.group().to_owned();
    let fault = match (batches.fault.take(), batches.log_fault.take()) {
        (Some(HandlerError::Stop(source) | HandlerError::Later(source)), _) => {
            Some(GroupFault::Handler { group, source })
        }
        (None, Some(source)) => Some(GroupFault::Log { group, source }),
        (None, None) => None,
    };
    batches.set_state(GroupState::Stopped { fault: fault.as_ref().map(ToString::to_string) });
    fault.map_or(Ok(()), Err)
}

impl Batches<'_> {
    fn is_over(&self) -> bool {
        self.fault.is_some() || self.log_fault.is_some()
    }

    fn set_state(&mut self, state: GroupState) {
        if self.state != state {
            self.observer.state(&state);
            self.state = state;
        }
    }

    /// One poll and one call of the handler.
    fn step(&mut self, source: &mut dyn Source, signal: &Signal) {
        let waiting = self.lanes.iter().any(|lane| lane.waiting.is_some());
        let timeout = match self.again {
            Some((at, _)) => at.saturating_duration_since(Instant::now()).min(STEP),
            // What was not taken may be taken once more has come, or some time has passed.
            None if waiting => self.options.idle.min(STEP),
            None => self.options.idle,
        };
        let mut runs = Vec::new();
        let polled = source.poll(timeout, self.options.max_messages, &mut runs, &mut |control, change| {
            self.changed(control, change);
        });
        self.keep(runs);
        match polled {
            Ok(()) if self.again.is_none() && !self.lanes.is_empty() => self.set_state(GroupState::Running),
            Ok(()) => {}
            Err(fault) => {
                self.failed(fault);
                signal.wait(self.options.backoff.0);
            }
        }
        if self.is_over() {
            return;
        }
        if self.again.is_some_and(|(at, _)| Instant::now() >= at) {
            self.again = None;
            self.start_lanes(source.control());
        }
        if self.again.is_none() && !self.is_over() {
            let handled = self.handle();
            let small = handled > 0 && handled < self.options.max_messages / 2;
            if small && !self.options.linger.is_zero() {
                signal.linger(self.options.linger);
            }
        }
        self.settle(source.control());
        if self.again.is_none() && self.committed.elapsed() >= self.options.commit_every {
            self.make_safe(source.control());
        }
        if self.observed.is_none_or(|at| at.elapsed() >= self.options.observe_every) {
            self.observe(source.control());
        }
    }

    /// Puts what was read behind what waits.
    fn keep(&mut self, runs: Vec<Run>) {
        for mut run in runs {
            // Of a partition that has not begun nothing is wanted; it comes when it has.
            let lane = self.lanes.iter_mut().find(|lane| lane.started && lane.place == run.place);
            let Some(lane) = lane else { continue };
            match &mut lane.waiting {
                Some(waiting) => {
                    waiting.messages.append(&mut run.messages);
                    waiting.next = run.next;
                }
                None => lane.waiting = Some(run),
            }
        }
    }

    /// Offers everything that waits; says how many messages were taken.
    fn handle(&mut self) -> usize {
        let runs = self.lanes.iter_mut().filter_map(|lane| lane.waiting.take());
        let mut offers: Vec<Offer> = runs.map(|run| Offer { run, taken: 0 }).collect();
        let begun = Instant::now();
        let result = self.handler.handle(&mut offers);
        let mut taken = 0;
        for mut offer in offers {
            if result.is_err() {
                offer.taken = 0;
            } else {
                offer.taken = offer.taken.min(offer.run.messages.len());
                taken += offer.taken;
            }
            let lane = self.lanes.iter_mut().find(|lane| lane.place == offer.run.place);
            let lane = lane.expect("offers are made of lanes, and none goes while they are handled");
            if result.is_ok() && offer.taken == offer.run.messages.len() {
                lane.handled = offer.run.next;
            } else {
                lane.handled =
                    offer.run.messages.get(offer.taken).map_or(lane.handled, |message| message.offset);
                offer.run.messages.drain(..offer.taken);
                lane.waiting = Some(offer.run);
            }
        }
        match result {
            Ok(()) => self.pause = Duration::ZERO,
            Err(error) => self.later(error),
        }
        if taken > 0 {
            self.observer.handled(taken, begun.elapsed());
        }
        taken
    }

    /// Plans to try again, or ends the group.
    fn later(&mut self, error: HandlerError) {
        let HandlerError::Later(reason) = error else {
            self.fault = Some(error);
            return;
        };
        let (first, longest) = self.options.backoff;
        self.pause = if self.pause.is_zero() { first } else { (self.pause * 2).min(longest) };
        self.again = Some((Instant::now() + self.pause, self.pause));
        let reason = reason.to_string();
        self.observer.retried(&reason, self.pause);
        self.set_state(GroupState::Waiting { reason });
    }

    fn failed(&mut self, fault: LogError) {
        if fault.is_transient() {
            self.set_state(GroupState::Waiting { reason: fault.to_string() });
        } else {
            self.log_fault = Some(fault);
        }
    }

    /// Pauses what waits too long or must wait, and resumes what need not.
    fn settle(&mut self, control: &mut dyn Control) {
        for at in 0..self.lanes.len() {
            let lane = &self.lanes[at];
            let full = if lane.paused { self.options.window / 2 } else { self.options.window };
            let pause = self.again.is_some() || !lane.started || lane.waits() >= full.max(1);
            if pause == lane.paused {
                continue;
            }
            let result = if pause { control.pause(&lane.place) } else { control.resume(&lane.place) };
            match result {
                Ok(()) => self.lanes[at].paused = pause,
                Err(fault) => self.failed(fault),
            }
        }
    }

    fn changed(&mut self, control: &mut dyn Control, change: Change) {
        match change {
            Change::Assigned(places) => {
                self.observer.assigned(&places);
                for place in places {
                    let lane = Lane {
                        place,
                        waiting: None,
                        handled: 0,
                        committed: None,
                        ends: (0, 0),
                        paused: false,
                        begins: None,
                        started: false,
                    };
                    self.lanes.push(lane);
                }
                self.start_lanes(control);
                self.settle(control);
            }
            Change::Revoked(places) => {
                self.set_state(GroupState::Rebalancing);
                if !self.is_over() {
                    self.make_safe(control);
                }
                self.forget(&places, false);
            }
            Change::Lost(places) => {
                self.set_state(GroupState::Rebalancing);
                self.forget(&places, true);
            }
        }
    }

    fn forget(&mut self, places: &[TopicPartition], lost: bool) {
        self.lanes.retain(|lane| !places.contains(&lane.place));
        self.handler.revoked(places);
        self.observer.revoked(places, lost);
    }

    /// Asks where new partitions begin, and has the log begin there. Where one or the other cannot be done now, they stay paused and it is
    /// tried again: nothing else would ever start them.
    fn start_lanes(&mut self, control: &mut dyn Control) {
        if let Err(error) = self.ask_starts(control) {
            return self.later(error);
        }
        for lane in self.lanes.iter_mut().filter(|lane| !lane.started) {
            let Some((offset, committed, ends)) = lane.begins else { continue };
            match control.start_at(&lane.place, offset) {
                Ok(()) => {
                    (lane.handled, lane.committed, lane.ends) = (offset, committed, ends);
                    lane.started = true;
                }
                Err(fault) if fault.is_transient() => {
                    return self.later(HandlerError::Later(Box::new(fault)));
                }
                Err(fault) => return self.failed(fault),
            }
        }
    }

    /// Asks the log and then the handler, which loads its state, where partitions begin; each answers once.
    fn ask_starts(&mut self, control: &mut dyn Control) -> Result<(), HandlerError> {
        let new: Vec<TopicPartition> =
            self.lanes.iter().filter(|lane| lane.begins.is_none()).map(|lane| lane.place.clone()).collect();
        if new.is_empty() {
            return Ok(());
        }
        // What the log knows is asked first: the handler loads its state once.
        let mut known = Vec::with_capacity(new.len());
        for place in &new {
            match control.committed(place).and_then(|committed| Ok((committed, control.ends(place)?))) {
                Ok(answer) => known.push(answer),
                Err(fault) if fault.is_transient() => return Err(HandlerError::Later(Box::new(fault))),
                Err(fault) => {
                    self.failed(fault);
                    return Ok(());
                }
            }
        }
        let starts = self.handler.assigned(&new)?;
        let new = self.lanes.iter_mut().filter(|lane| lane.begins.is_none());
        for ((lane, (committed, ends)), start) in new.zip(known).zip(starts) {
            let offset = match start {
                Start::At(offset) => offset,
                Start::Committed => committed.unwrap_or(0).max(ends.0),
            };
            lane.begins = Some((offset, committed, ends));
        }
        Ok(())
    }

    /// Has the handler make safe what it did, and commits that: of owned partitions, and only upwards.
    fn make_safe(&mut self, control: &mut dyn Control) {
        self.committed = Instant::now();
        let safe = match self.handler.safe(true) {
            Ok(safe) => safe,
            Err(error) if self.is_over() => {
                tracing::warn!(%error, "what was handled last could not be made safe; it comes again");
                return;
            }
            Err(error) => return self.later(error),
        };
        let mut offsets = safe;
        offsets.retain(|(place, offset)| {
            let lane = self.lanes.iter().find(|lane| lane.place == *place && lane.started);
            lane.is_some_and(|lane| lane.committed.is_none_or(|committed| *offset > committed))
        });
        if offsets.is_empty() {
            return;
        }
        match control.commit(&offsets) {
            Ok(()) => {
                for (place, offset) in offsets {
                    if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.place == place) {
                        lane.committed = Some(offset);
                    }
                }
            }
            Err(fault) if self.is_over() => {
                tracing::warn!(%fault, "what was handled last could not be committed; it comes again");
            }
            Err(fault) => self.failed(fault),
        }
    }

    fn observe(&mut self, control: &mut dyn Control) {
        self.observed = Some(Instant::now());
        let mut all = Vec::with_capacity(self.lanes.len());
        for lane in &mut self.lanes {
            if let Ok(ends) = control.ends(&lane.place) {
                lane.ends = ends;
            }
            all.push(PlaceProgress {
                place: lane.place.clone(),
                handled: lane.handled,
                committed: lane.committed,
                ends: (lane.ends.0, lane.ends.1.max(lane.handled)),
                waiting: lane.waits(),
                paused: lane.paused,
            });
        }
        self.observer.progress(&all);
    }
}
