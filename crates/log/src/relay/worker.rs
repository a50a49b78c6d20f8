//! The relay's thread.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::status::{RelayPlace, RelayState, Shared};
use super::{Connect, RELAY_GROUP, RelayOptions, Remote};
use crate::error::LogError;
use crate::event_log::{Cleanup, EventLog, Message, StoredMessage, TopicSpec};

/// How long a log that failed may take to close before another is opened.
const CLOSE: Duration = Duration::from_secs(1);

/// One partition.
pub(super) struct Lane {
    topic: Arc<str>,
    partition: u32,
    compact: bool,
    /// The next local offset to be sent.
    next: u64,
    /// Everything before this is acknowledged.
    confirmed: u64,
    /// What was committed in the local log.
    committed: u64,
    skipped: u64,
    stage: Stage,
}

enum Stage {
    /// Where the other side ends is to be asked.
    Unknown,
    /// It ends with this message, of this local offset; to be compared as soon as the local log has it.
    Check(Box<StoredMessage>, u64),
    /// Messages go from `next` on.
    Ready,
}

impl Lane {
    pub(super) fn new(spec: &TopicSpec, partition: u32, confirmed: u64) -> Lane {
        Lane {
            topic: spec.name.as_str().into(),
            partition,
            compact: spec.cleanup == Cleanup::Compact,
            next: confirmed,
            confirmed,
            committed: confirmed,
            skipped: 0,
            stage: Stage::Unknown,
        }
    }

    pub(super) fn place(&self) -> RelayPlace {
        RelayPlace {
            topic: self.topic.clone(),
            partition: self.partition,
            end: 0,
            relayed: self.next,
            confirmed: self.confirmed,
            lag: 0,
            age: Duration::ZERO,
            oldest: None,
            skipped: 0,
        }
    }

    fn foreign(&self, reason: String) -> Fault {
        Fault::Remote(LogError::Foreign { topic: self.topic.to_string(), partition: self.partition, reason })
    }
}

/// Which of the two logs failed.
enum Fault {
    Local(LogError),
    Remote(LogError),
}

pub(super) struct Worker {
    local: Arc<dyn EventLog>,
    connect: Connect,
    specs: Vec<TopicSpec>,
    lanes: Vec<Lane>,
    options: RelayOptions,
    shared: Arc<Shared>,
    /// Messages handed over and not acknowledged, and when the first of them was.
    unconfirmed: u64,
    since: Instant,
    /// How long the last confirmation took.
    took: Duration,
    /// The lane that moved last: where the next message is most likely.
    warm: usize,
    pause: Duration,
    /// Where the local partitions ended when the relay was told to stop.
    targets: Option<Vec<u64>>,
    buffer: Vec<StoredMessage>,
}

impl Worker {
    pub(super) fn new(
        local: Arc<dyn EventLog>,
        connect: Connect,
        specs: Vec<TopicSpec>,
        lanes: Vec<Lane>,
        options: RelayOptions,
        shared: Arc<Shared>,
    ) -> Worker {
        let pause = options.backoff.0;
        Worker {
            local,
            connect,
            specs,
            lanes,
            options,
            shared,
            unconfirmed: 0,
            since: Instant::now(),
            took: Duration::ZERO,
            warm: 0,
            pause,
            targets: None,
            buffer: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        let mut foreign: Option<Instant> = None;
        let mut connected_before = false;
        loop {
            if self.shared.stopping().is_some_and(|until| Instant::now() >= until) {
                return self.shared.end(RelayState::Ended, false);
            }
            let fault = match (self.connect)() {
                Ok(Remote { log, close }) => {
                    self.shared.set_close(close);
                    if std::mem::replace(&mut connected_before, true) {
                        self.shared.count(|counters| counters.reconnects += 1);
                    }
                    let result = self.session(&*log);
                    let stopping = self.shared.stopping();
                    if let Some(close) = self.shared.take_close() {
                        let left = |until: Instant| until.saturating_duration_since(Instant::now());
                        close(stopping.map_or(CLOSE, left).min(CLOSE));
                    }
                    match result {
                        Ok(drained) => return self.shared.end(RelayState::Ended, drained),
                        Err(Fault::Local(fault)) => return self.give_up(fault),
                        Err(Fault::Remote(fault)) => fault,
                    }
                }
                Err(fault) => fault,
            };
            match &fault {
                LogError::Foreign { .. } => {
                    self.shared.count(|counters| counters.foreign += 1);
                    let now = Instant::now();
                    let again =
                        foreign.is_some_and(|at| now.duration_since(at) < self.options.foreign_within);
                    if again {
                        return self.give_up(fault);
                    }
                    foreign = Some(now);
                }
                // Retention of the local log ran past what the other side has; no waiting brings it back.
                LogError::Removed { .. } => return self.give_up(fault),
                _ => {}
            }
            tracing::warn!(code = fault.code(), %fault, "the relay lost the log on the other side and opens it again");
            self.shared.set_state(RelayState::Connecting(Some(Arc::new(fault))));
            self.rest();
        }
    }

    fn give_up(&self, fault: LogError) {
        tracing::error!(code = fault.code(), %fault, "the relay has stopped; what is in the local log stays there");
        self.shared.end(RelayState::Stopped(Arc::new(fault)), false);
    }

    /// A pause that grows until something works again.
    fn rest(&mut self) {
        match self.shared.stopping() {
            // The stopper is waiting: what works only later does not work in time.
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                std::thread::sleep(left.min(self.options.backoff.0));
            }
            None => self.shared.pause(self.pause),
        }
        self.pause = (self.pause * 2).min(self.options.backoff.1);
    }

    /// Relays to one log until it fails (an error) or the relay is told to stop: whether everything was acknowledged then.
    fn session(&mut self, remote: &dyn EventLog) -> Result<bool, Fault> {
        self.unconfirmed = 0;
        for lane in &mut self.lanes {
            lane.stage = Stage::Unknown;
        }
        let mut prepared = false;
        let mut idle = Duration::ZERO;
        loop {
            if let Some(until) = self.shared.stopping() {
                let targets = match &self.targets {
                    Some(targets) => targets,
                    None => self.targets.insert(self.ends()?),
                };
                let drained = self.lanes.iter().zip(targets).all(|(lane, end)| lane.confirmed >= *end);
                if drained || Instant::now() >= until {
                    return Ok(drained);
                }
            }
            let result = if prepared { self.round(remote) } else { self.prepare(remote).map(|()| true) };
            match result {
                Ok(moved) => {
                    prepared = true;
                    if moved {
                        idle = Duration::ZERO;
                        continue;
                    }
                    idle = (idle * 2).clamp(Duration::from_millis(1), self.options.look_every);
                    let lane = &self.lanes[self.warm];
                    let from = lane.next;
                    self.local.wait_for(&lane.topic, lane.partition, from, idle).map_err(Fault::Local)?;
                }
                Err(Fault::Remote(fault)) if fault.is_transient() => {
                    tracing::debug!(%fault, "the relay waits");
                    self.shared.set_state(RelayState::Waiting(Arc::new(fault)));
                    self.rest();
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    fn ends(&self) -> Result<Vec<u64>, Fault> {
        let end = |lane: &Lane| self.local.end_offset(&lane.topic, lane.partition);
        self.lanes.iter().map(end).collect::<Result<_, _>>().map_err(Fault::Local)
    }

    fn prepare(&self, remote: &dyn EventLog) -> Result<(), Fault> {
        self.specs.iter().try_for_each(|spec| remote.create_topic(spec)).map_err(Fault::Remote)
    }

    /// One turn of every partition, and a confirmation where it is due; whether anything moved.
    fn round(&mut self, remote: &dyn EventLog) -> Result<bool, Fault> {
        if self.unconfirmed > 0 && self.lanes.iter().any(|lane| matches!(lane.stage, Stage::Unknown)) {
            // How much of a failed append was taken is known once nothing is on its way any more.
            self.confirm(remote)?;
        }
        let (mut moved, mut behind, mut ahead) = (0, false, false);
        for at in 0..self.lanes.len() {
            if matches!(self.lanes[at].stage, Stage::Unknown) {
                self.attach(remote, at)?;
            }
            if matches!(self.lanes[at].stage, Stage::Check(..)) && self.check(at)?.is_break() {
                ahead = true;
                continue;
            }
            let count = self.send(remote, at)?;
            if count > 0 {
                self.warm = at;
            }
            behind |= count >= self.options.batch as u64;
            moved += count;
        }
        // A confirmation drains what is on its way, so it is made rarely where it takes long: a tenth of the time at most.
        let interval = self.options.confirm_every.max(self.took * 10).min(self.options.confirm_every * 10);
        let due = self.unconfirmed >= self.options.confirm_messages || self.since.elapsed() >= interval;
        if self.unconfirmed > 0 && (due || moved == 0) {
            self.confirm(remote)?;
        }
        self.pause = self.options.backoff.0;
        self.tell();
        self.shared.set_state(match (ahead, behind) {
            (true, _) => RelayState::Ahead,
            (false, true) => RelayState::CatchingUp,
            (false, false) => RelayState::Current,
        });
        Ok(moved > 0)
    }

    fn tell(&self) {
        self.shared.report(self.lanes.iter().map(|lane| (lane.next, lane.confirmed, lane.skipped)));
    }

    /// Asks where the other side ends.
    fn attach(&mut self, remote: &dyn EventLog, at: usize) -> Result<(), Fault> {
        let lane = &mut self.lanes[at];
        let tail = remote.tail(&lane.topic, lane.partition).map_err(Fault::Remote)?;
        let Some(tail) = tail else {
            let start = self.local.start_offset(&lane.topic, lane.partition).map_err(Fault::Local)?;
            let end = remote.end_offset(&lane.topic, lane.partition).map_err(Fault::Remote)?;
            if end > 0 {
                // Its retention took everything, the last message too: what was acknowledged is all that is known.
                (lane.next, lane.confirmed, lane.stage) = (lane.committed, lane.committed, Stage::Ready);
                return Ok(());
            }
            if lane.committed > 0 {
                return Err(lane.foreign(format!(
                    "it is empty, but {} messages were acknowledged there before: the topic was made anew, or it is another \
                     cluster (if that is meant, `hoga group forget {RELAY_GROUP}`)",
                    lane.committed
                )));
            }
            if start > 0 && !lane.compact {
                tracing::warn!(topic = %lane.topic, partition = lane.partition, first = start,
                    "the local log begins later than the empty topic on the other side: earlier messages are missing there");
            }
            (lane.next, lane.skipped, lane.stage) = (start, start, Stage::Ready);
            return Ok(());
        };
        let number = tail.value.as_deref().and_then(self.options.number_of).filter(|number| *number > 0);
        let Some(number) = number else {
            return Err(lane.foreign(format!("its last message, at offset {}, has no number", tail.offset)));
        };
        lane.stage = Stage::Check(Box::new(tail), number - 1);
        Ok(())
    }

    /// Compares the last message of the other side with the local one; breaks while the local log does not have it.
    fn check(&mut self, at: usize) -> Result<ControlFlow<()>, Fault> {
        let lane = &mut self.lanes[at];
        let Stage::Check(tail, offset) = &lane.stage else { return Ok(ControlFlow::Continue(())) };
        let offset = *offset;
        let end = self.local.end_offset(&lane.topic, lane.partition).map_err(Fault::Local)?;
        if end <= offset {
            return Ok(ControlFlow::Break(()));
        }
        self.buffer.clear();
        self.local.read(&lane.topic, lane.partition, offset, 1, &mut self.buffer).map_err(Fault::Local)?;
        let found = self.buffer.first().filter(|found| found.offset == offset);
        match found {
            Some(found) if found.key == tail.key && found.value == tail.value => {}
            Some(_) => {
                let reason = format!("message {} there is not the local one: another history", offset + 1);
                return Err(lane.foreign(reason));
            }
            // It was acknowledged before, and retention or compaction has taken it since.
            None => {}
        }
        let start = self.local.start_offset(&lane.topic, lane.partition).map_err(Fault::Local)?;
        if start > offset + 1 && !lane.compact {
            return Err(Fault::Remote(LogError::Removed {
                path: format!("{}/{}", lane.topic, lane.partition).into(),
                wanted: offset + 2,
                first: start + 1,
            }));
        }
        lane.next = offset + 1;
        lane.confirmed = offset + 1;
        lane.stage = Stage::Ready;
        self.shared.count(|counters| counters.verified += 1);
        self.commit(at)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Hands over the next messages of a partition; says how many.
    fn send(&mut self, remote: &dyn EventLog, at: usize) -> Result<u64, Fault> {
        let lane = &mut self.lanes[at];
        if self.local.end_offset(&lane.topic, lane.partition).map_err(Fault::Local)? <= lane.next {
            return Ok(0);
        }
        self.buffer.clear();
        let next = self
            .local
            .read(&lane.topic, lane.partition, lane.next, self.options.batch, &mut self.buffer)
            .map_err(Fault::Local)?;
        if self.buffer.first().is_some_and(|first| first.offset > lane.next) && !lane.compact {
            return Err(Fault::Remote(LogError::Removed {
                path: format!("{}/{}", lane.topic, lane.partition).into(),
                wanted: lane.next + 1,
                first: self.buffer[0].offset + 1,
            }));
        }
        // One allocation a batch: the messages borrow the buffer.
        let messages: Vec<Message<'_>> = self
            .buffer
            .iter()
            .map(|found| Message { key: &found.key, value: found.value.as_deref(), time: found.time })
            .collect();
        if self.unconfirmed == 0 {
            self.since = Instant::now();
        }
        // Counted before the call: one that fails may have taken some.
        self.unconfirmed += messages.len() as u64;
        if let Err(fault) = remote.append(&lane.topic, &messages) {
            lane.stage = Stage::Unknown;
            return Err(Fault::Remote(fault));
        }
        lane.next = next;
        let count = messages.len() as u64;
        self.shared.count(|counters| counters.messages += count);
        Ok(count)
    }

    /// Waits until everything that was handed over is acknowledged, and tells the local log.
    fn confirm(&mut self, remote: &dyn EventLog) -> Result<(), Fault> {
        let begun = Instant::now();
        remote.sync().map_err(Fault::Remote)?;
        self.took = begun.elapsed();
        self.unconfirmed = 0;
        self.shared.count(|counters| counters.confirms += 1);
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            if matches!(lane.stage, Stage::Ready) {
                lane.confirmed = lane.next;
                self.commit(at)?;
            }
        }
        Ok(())
    }

    fn commit(&mut self, at: usize) -> Result<(), Fault> {
        let lane = &mut self.lanes[at];
        if lane.confirmed > lane.committed {
            self.local
                .commit(RELAY_GROUP, &lane.topic, lane.partition, lane.confirmed)
                .map_err(Fault::Local)?;
            lane.committed = lane.confirmed;
        }
        Ok(())
    }
}
