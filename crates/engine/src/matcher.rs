//! The matcher: the one thread that gives commands their place and time and applies them. It knows nothing of files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use hoga_core::codec;
use hoga_core::command::{Command, RULES_VERSION};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{Seq, Timestamp};
use hoga_log::journal::{Batch, Durability};

use crate::batch::{MAX_COMMANDS, Outcome, Pending, Supply};
use crate::config::Clock;
use crate::metrics::{Pulse, Recorder};
use crate::position::{Durable, Matched, Received, Space};
use crate::shared::{Inbound, Intake, Shared};

/// The matcher's chain after a command: the shadow compares its own with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainMark {
    pub seq: Seq,
    pub chain: u64,
}

/// A batch of this size is worth its wake-up.
const GATHERED: usize = 32;

/// The matcher and what it works with. When it ends, the intake closes first, then the queues to the journal and the gate, which end
/// once they have worked these off.
pub(crate) struct Matcher {
    pub shared: Arc<Shared>,
    pub intake: Intake,
    pub exchange: Exchange,
    pub clock: Arc<dyn Clock>,
    pub durability: Durability,
    /// How long it lets commands come together while a sync is under way.
    pub rest: Duration,
    pub journal: Supply<Batch>,
    pub gate: Supply<Outcome>,
    pub marks: SyncSender<ChainMark>,
}

/// Recorders of the matcher's stages.
struct Delays {
    queue: Recorder,
    matching: Recorder,
    pulse: Pulse,
}

impl Matcher {
    /// Runs until the intake is closed and the ring is empty, or the engine stops.
    pub fn run(mut self) {
        let mut commands: Vec<Command> = Vec::with_capacity(MAX_COMMANDS);
        let mut delays =
            Delays { queue: Recorder::new(), matching: Recorder::new(), pulse: Pulse::default() };
        loop {
            if self.shared.faults.stopped() {
                return;
            }
            // Closing the intake puts a message into the ring, so a matcher that sleeps here sees it.
            let closed = self.shared.intake_closed();
            let sleep = if closed { Duration::ZERO } else { delays.pulse.sleep() };
            if !self.intake.ring().wait(sleep) {
                if closed {
                    return;
                }
                delays.flush(&self.shared);
                continue;
            }
            self.gather(commands.len());
            // Waits when the journal or the gate is behind: the queues' rule is that the matcher waits and the ring fills.
            let Some(mut batch) = self.journal.take() else { return };
            let Some(mut outcome) = self.gate.take() else { return };
            commands.clear();
            self.sequence(&mut commands, &mut batch, &mut outcome, &mut delays);
            let Some(last) = commands.last().map(|command| command.seq) else {
                self.journal.keep(batch);
                self.gate.keep(outcome);
                continue;
            };
            // The journal writes while this thread matches.
            self.shared.received.advance(Received::at(last));
            if !self.journal.hand_over(batch) {
                return;
            }
            self.shared.journal_bell.ring();
            self.apply(&commands, &mut outcome, &mut delays);
            if !self.hand_to_gate(commands[0].seq, last, outcome) {
                return;
            }
        }
    }

    /// While a sync is under way, whatever is handed to the journal waits for its end anyway: under load the matcher then lets a few
    /// commands come together instead of waking up for each.
    fn gather(&self, before: usize) {
        if !self.rest.is_zero()
            && (1..GATHERED).contains(&before)
            && self.shared.syncing.load(Ordering::Relaxed)
        {
            std::thread::sleep(self.rest);
        }
    }

    /// Takes commands from the ring: each gets its place and the batch's time, and is encoded.
    fn sequence(
        &mut self,
        commands: &mut Vec<Command>,
        batch: &mut Batch,
        outcome: &mut Outcome,
        delays: &mut Delays,
    ) {
        // A clock that steps back is held: time in the journal never decreases.
        let time: Timestamp = self.clock.now().max(self.exchange.time());
        let taken = self.shared.nanos();
        let mut seq = self.exchange.position();
        outcome.time = time;
        self.intake.ring().drain(MAX_COMMANDS, |inbound| {
            let Inbound::Order(mut order) = inbound else { return };
            seq = seq.next();
            let command =
                Command { seq, time, rules: RULES_VERSION, deadline: order.deadline, body: order.body };
            batch.push_with(seq, |bytes| codec::encode_command(&command, bytes));
            commands.push(command);
            order.reply.take();
            delays.queue.record(taken.saturating_sub(order.received));
            let (reply, received) = (order.reply, order.received);
            outcome.pending.push(Pending { seq, outcome: Ok(()), reply, events: 0..0, received });
        });
    }

    fn apply(&mut self, commands: &[Command], outcome: &mut Outcome, delays: &mut Delays) {
        let Outcome { pending, events, .. } = outcome;
        let mut rejected = 0;
        for (command, pending) in commands.iter().zip(pending.iter_mut()) {
            let start = events.len();
            pending.outcome = self.exchange.apply(command, events);
            rejected += u64::from(pending.outcome.is_err());
            if pending.reply.is_none() {
                // The shadow makes these events again for everybody else.
                events.truncate(start);
            }
            pending.events = start..events.len();
        }
        let now = self.shared.nanos();
        for pending in pending.iter() {
            delays.matching.record(now.saturating_sub(pending.received));
        }
        delays.touch(now, &self.shared);
        let metrics = &self.shared.metrics;
        metrics.commands.fetch_add(commands.len() as u64, Ordering::Relaxed);
        metrics.rejected.fetch_add(rejected, Ordering::Relaxed);
        metrics.batches.fetch_add(1, Ordering::Relaxed);
    }

    fn hand_to_gate(&mut self, first: Seq, last: Seq, outcome: Outcome) -> bool {
        // When the shadow is far behind and this queue is full, the mark is left out: the chain runs over all events, so the next mark
        // proves these too.
        let _ = self.marks.try_send(ChainMark { seq: last, chain: self.exchange.chain() });
        self.shared.matched.advance(Matched::at(last));
        if !self.gate.hand_over(outcome) {
            return false;
        }
        // Mostly the sync takes longer than the matching, and its end wakes the gate. Only when it was quicker must this thread do it.
        let durable: Durable = self.shared.durable.get();
        if durable.covers(first) || self.durability == Durability::None {
            self.shared.gate_bell.ring();
        }
        true
    }
}

impl Delays {
    fn touch(&mut self, now: u64, shared: &Shared) {
        let Delays { queue, matching, pulse } = self;
        pulse.touch(now, &mut [(queue, &shared.metrics.queue), (matching, &shared.metrics.matching)]);
    }

    fn flush(&mut self, shared: &Shared) {
        let Delays { queue, matching, pulse } = self;
        pulse.flush(
            shared.nanos(),
            &mut [(queue, &shared.metrics.queue), (matching, &shared.metrics.matching)],
        );
    }
}
