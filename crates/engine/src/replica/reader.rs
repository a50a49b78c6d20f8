//! The reader: follows the topic, on leader and standby alike, and writes the local journal from what counts. It also claims the lead.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hoga_core::ids::Seq;
use hoga_log::LogError;
use hoga_log::event_log::StoredMessage;
use hoga_log::journal::Journal;
use hoga_log::segment::crc32c;
use hoga_log::storage::Storage;

use super::fence::{Refusal, Verdict};
use super::message::{self, Content, Envelope};
use super::place::Place;
use super::writer::append;
use super::{ReplicaError, Replication};
use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::fault::FaultKind;
use crate::metrics::{Pulse, Recorder};
use crate::position::{Acked, Durable, Matched, Received, Space};
use crate::shared::Shared;

const THREAD: &str = "replica-reader";

/// Messages of one read.
const READ: usize = 256;

/// How long it waits before it asks a log that was away again.
const AGAIN: Duration = Duration::from_millis(50);

/// How often the place in the topic is kept; a restart reads at most so much again.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// A claim that has not come back after so many leases is sent again.
const CLAIM_LEASES: u32 = 8;

pub(crate) struct Reader<S: Storage> {
    pub shared: Arc<Shared>,
    pub storage: S,
    pub config: EngineConfig,
    pub replication: Replication,
    pub instance: u64,
    pub journal: Journal<S>,
    pub place: Place,
    /// Since when the leader has not been heard although the log answered.
    pub quiet: Instant,
    /// When a claim was sent that has not come back.
    pub claimed: Option<Instant>,
    /// When the place was last kept, and which one.
    pub kept: (Instant, u64),
    /// Whether this run leads. Its own, since the seat also ends when another thread stops the engine.
    pub leads: bool,
}

/// Why it stops.
enum Stop {
    /// In order.
    Done,
    Fault(FaultKind, String),
}

impl From<LogError> for Stop {
    fn from(error: LogError) -> Stop {
        Stop::Fault(FaultKind::Journal, error.to_string())
    }
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Stop {
        Stop::Fault(FaultKind::Journal, error.to_string())
    }
}

fn fault(error: &dyn std::fmt::Display) -> Stop {
    Stop::Fault(FaultKind::Replica, error.to_string())
}

/// What it measures.
struct Delays {
    read_back: Recorder,
    sync: Recorder,
    pulse: Pulse,
}

impl Delays {
    fn flush(&mut self, shared: &Shared) {
        let recorders =
            &mut [(&mut self.read_back, &shared.metrics.read_back), (&mut self.sync, &shared.metrics.sync)];
        self.pulse.flush(shared.nanos(), recorders);
    }

    fn touch(&mut self, now: u64, shared: &Shared) {
        let recorders =
            &mut [(&mut self.read_back, &shared.metrics.read_back), (&mut self.sync, &shared.metrics.sync)];
        self.pulse.touch(now, recorders);
    }
}

impl<S: Storage> Reader<S> {
    /// Runs until the writer has ended and all it sent is read back, or the engine stops.
    pub fn run(mut self) {
        let mut delays =
            Delays { read_back: Recorder::new(), sync: Recorder::new(), pulse: Pulse::default() };
        let mut messages = Vec::with_capacity(READ);
        let stop = loop {
            if self.shared.faults.stopped() {
                return;
            }
            if let Err(stop) = self.round(&mut messages, &mut delays) {
                break stop;
            }
        };
        let end = match stop {
            Stop::Done => self.keep().and_then(|()| self.journal.close().map_err(Stop::from)),
            stop @ Stop::Fault(..) => Err(stop),
        };
        if let Err(Stop::Fault(kind, text)) = end {
            self.shared.stop(kind, THREAD, text);
        }
        self.shared.seat.end();
    }

    /// Waits for messages and takes them, or sees to the silence.
    fn round(&mut self, messages: &mut Vec<StoredMessage>, delays: &mut Delays) -> Result<(), Stop> {
        let seat = &self.shared.seat;
        // A resignation is the last that is read of an engine that led.
        if seat.written.load(Ordering::SeqCst) && !seat.resigned.load(Ordering::SeqCst) {
            return Err(Stop::Done);
        }
        let Replication { log, topic, heartbeat, .. } = &self.replication;
        match log.wait_for(topic, 0, self.place.offset, *heartbeat) {
            Ok(true) => {
                messages.clear();
                match log.read(topic, 0, self.place.offset, READ, messages) {
                    Ok(next) => return self.take(messages, next, delays),
                    Err(error) => return self.away(error),
                }
            }
            Ok(false) => {}
            Err(error) => return self.away(error),
        }
        delays.flush(&self.shared);
        self.journal.seal()?;
        if self.leads {
            return Ok(());
        }
        self.watch()
    }

    /// The log cannot be asked: silence means nothing then.
    fn away(&mut self, error: LogError) -> Result<(), Stop> {
        self.quiet = Instant::now();
        if !error.is_transient() {
            return Err(fault(&error));
        }
        if self.shared.seat.reachable.swap(false, Ordering::Relaxed) {
            tracing::warn!(%error, "the replicated journal cannot be reached; nothing is answered until it is back");
        }
        std::thread::sleep(AGAIN);
        Ok(())
    }

    /// A standby that has read everything: claims the lead when nobody has it.
    fn watch(&mut self) -> Result<(), Stop> {
        let asked = Instant::now();
        let Replication { log, topic, lease, .. } = &self.replication;
        let lease = *lease;
        let end = match log.end_offset(topic, 0) {
            Ok(end) => end,
            Err(error) => return self.away(error),
        };
        if !self.shared.seat.reachable.swap(true, Ordering::Relaxed) || asked.elapsed() > lease / 2 {
            // It was away, or nearly so: the leader gets a whole lease to be heard again. (A broker answers the requests of a connection in
            // order, so behind a fetch that waits for messages the answer takes half a second and says nothing.)
            self.quiet = Instant::now();
        }
        if end > self.place.offset {
            return Ok(());
        }
        self.claimed = self.claimed.filter(|since| since.elapsed() < lease * CLAIM_LEASES);
        let fence = &self.place.fence;
        if self.claimed.is_some() || !(fence.vacant || self.quiet.elapsed() >= lease) {
            return Ok(());
        }
        let next = self.journal.last().next();
        if fence.epoch > 0 && next != fence.next {
            let topic = topic.clone();
            let reason = format!("its next command is {}, the journal's is {next}", fence.next);
            return Err(fault(&ReplicaError::Foreign { topic, reason }));
        }
        let body = Content::Claim { read_to: self.place.offset, next, node: &self.replication.node };
        let claim = Envelope { epoch: fence.epoch + 1, instance: self.instance, body };
        let mut bytes = Vec::new();
        claim.encode(&mut bytes);
        tracing::info!(epoch = claim.epoch, next = next.0, "claims the lead");
        match append(&self.replication, self.config.clock.now(), &bytes) {
            Ok(()) => self.claimed = Some(Instant::now()),
            Err(error) => return self.away(error),
        }
        Ok(())
    }

    /// Takes messages in order: what counts goes to the journal, then to the disk, then the cursors move.
    fn take(&mut self, messages: &[StoredMessage], next: u64, delays: &mut Delays) -> Result<(), Stop> {
        let mut done = false;
        for stored in messages {
            let bytes = stored.value.as_deref().unwrap_or_default();
            let envelope = message::decode(bytes).map_err(|reason| {
                let topic = self.replication.topic.clone();
                fault(&ReplicaError::Message { topic, offset: stored.offset, reason })
            })?;
            done |= self.pass(stored.offset, &envelope, delays)?;
            self.place.offset = stored.offset + 1;
            self.place.witness = crc32c(bytes);
        }
        self.place.offset = self.place.offset.max(next);
        self.publish(delays)?;
        self.shared.seat.offset.store(self.place.offset, Ordering::Relaxed);
        if done {
            return Err(Stop::Done);
        }
        if self.kept.0.elapsed() >= KEEP_EVERY && self.kept.1 != self.place.offset {
            self.keep()?;
        }
        Ok(())
    }

    /// Takes one message. True: it is this engine's own resignation.
    fn pass(&mut self, offset: u64, envelope: &Envelope<'_>, delays: &mut Delays) -> Result<bool, Stop> {
        let own = envelope.instance == self.instance;
        let leads = self.leads;
        match self.place.fence.pass(offset, envelope) {
            Verdict::Commands => {
                let Content::Batch { first, count, sent, records } = envelope.body else { return Ok(false) };
                self.append(first, count, records)?;
                if own {
                    delays.read_back.record(self.shared.nanos().saturating_sub(sent));
                } else {
                    self.quiet = Instant::now();
                }
            }
            Verdict::Alive => self.quiet = Instant::now(),
            Verdict::Vacant => return Ok(own),
            Verdict::Leads => {
                let Content::Claim { node, .. } = envelope.body else { return Ok(false) };
                let epoch = envelope.epoch;
                if leads {
                    let text = format!("{node} has claimed epoch {epoch} at offset {offset}");
                    return Err(Stop::Fault(FaultKind::Fenced, text));
                }
                self.quiet = Instant::now();
                self.claimed = None;
                // Before it may lead, everything before the claim is in the journal and passed on.
                self.publish(delays)?;
                let (next, wanted) = (self.journal.last().next(), self.place.fence.next);
                if next < wanted {
                    // Only a first leader with a journal of its own begins elsewhere than where the topic stands.
                    let topic = self.replication.topic.clone();
                    return Err(fault(&ReplicaError::Behind {
                        topic,
                        start: offset,
                        first: wanted,
                        needed: next,
                    }));
                }
                if own && next != wanted {
                    let topic = self.replication.topic.clone();
                    let reason = format!("its next command is {wanted}, the journal's is {next}");
                    return Err(fault(&ReplicaError::Foreign { topic, reason }));
                }
                self.shared.seat.epoch.store(epoch, Ordering::SeqCst);
                if own {
                    tracing::info!(epoch, offset, next = next.0, "leads");
                    self.leads = true;
                    self.shared.seat.lead();
                    self.shared.journal_bell.ring();
                } else {
                    tracing::info!(epoch, offset, leader = node, "follows");
                }
            }
            Verdict::Refused(refusal) => {
                if own && matches!(envelope.body, Content::Claim { .. }) {
                    self.claimed = None;
                } else if own && leads && refusal == Refusal::Gap {
                    let text =
                        format!("a batch of this engine at offset {offset} does not follow the last one");
                    return Err(Stop::Fault(FaultKind::Replica, text));
                } else if !own && refusal != Refusal::Void {
                    self.shared.seat.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(false)
    }

    fn append(&mut self, first: Seq, count: u32, records: &[u8]) -> Result<(), Stop> {
        let last = Seq(first.0 + u64::from(count) - 1);
        let have = self.journal.last();
        if last <= have {
            return Ok(()); // read again after a start
        }
        if first != have.next() {
            let topic = self.replication.topic.clone();
            let reason =
                format!("commands {first} to {last} do not follow the journal's last command {have}");
            return Err(fault(&ReplicaError::Foreign { topic, reason }));
        }
        self.journal.append(first, count, records)?;
        self.shared.metrics.journal_bytes.fetch_add(records.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Write → sync → publish the cursors → wake the gate and the shadow.
    fn publish(&mut self, delays: &mut Delays) -> Result<(), Stop> {
        let shared = &*self.shared;
        if self.journal.last() <= shared.durable.get().seq() {
            return Ok(());
        }
        let start = shared.nanos();
        let through = self.journal.sync()?;
        let end = shared.nanos();
        shared.synced_at.store(end, Ordering::Relaxed);
        if self.leads {
            shared.durable.advance(Durable::at(through));
            // The writer may wait for room.
            shared.journal_bell.ring();
        } else {
            // Nobody waits for an answer here: matcher and gate do nothing until this engine leads, and their cursors are moved for them.
            shared.received.advance(Received::at(through));
            shared.matched.advance(Matched::at(through));
            shared.durable.advance(Durable::at(through));
            shared.acked.advance(Acked::at(through));
            shared.shadow_bell.ring();
        }
        shared.gate_bell.ring();
        shared.metrics.syncs.fetch_add(1, Ordering::Relaxed);
        delays.sync.record(end - start);
        delays.touch(end, shared);
        Ok(())
    }

    /// Keeps the place, once the journal is on the device up to it.
    fn keep(&mut self) -> Result<(), Stop> {
        self.journal.sync_device()?;
        self.place.write(&self.storage, &self.config.dir)?;
        self.kept = (Instant::now(), self.place.offset);
        Ok(())
    }
}
