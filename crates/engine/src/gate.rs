//! The gate: gives each reply once its command is matched **and** durable, in order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;

use hoga_log::journal::Durability;

use crate::batch::{Demand, Outcome};
use crate::metrics::{Pulse, Recorder};
use crate::position::{Acked, Space};
use crate::reply::Reply;
use crate::shared::Shared;

/// The gate and what it works with.
pub(crate) struct Gate {
    pub shared: Arc<Shared>,
    pub outcomes: Demand<Outcome>,
    pub durability: Durability,
}

impl Gate {
    /// Runs until the matcher has ended and everything is answered, or the engine stops: then what waits is lost.
    pub fn run(self) {
        self.shared.gate_bell.attach();
        self.serve();
        self.shared.gate_done.store(true, Ordering::SeqCst);
        self.shared.shadow_bell.ring();
    }

    fn serve(&self) {
        let shared = &*self.shared;
        let (mut durable, mut ack, mut pulse) = (Recorder::new(), Recorder::new(), Pulse::default());
        loop {
            if shared.faults.stopped() {
                return;
            }
            let mut outcome = match self.outcomes.full.try_recv() {
                Ok(outcome) => outcome,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    if !shared.gate_bell.wait(pulse.sleep()) {
                        let now = shared.nanos();
                        pulse.flush(
                            now,
                            &mut [(&mut durable, &shared.metrics.durable), (&mut ack, &shared.metrics.ack)],
                        );
                    }
                    continue;
                }
            };
            let Some(last) = outcome.pending.last().map(|pending| pending.seq) else { continue };
            while self.durability != Durability::None && !shared.durable.get().covers(last) {
                if shared.faults.stopped() {
                    return; // dropping the outcome tells everybody who waits
                }
                shared.gate_bell.wait(pulse.sleep());
            }
            // First, so that whoever has a reply and asks a query is shown what the reply says.
            shared.acked.advance(Acked::at(last));
            let synced = shared.synced_at.load(Ordering::Relaxed);
            let Outcome { time, pending, events } = &mut outcome;
            for pending in pending.drain(..) {
                durable.record(synced.saturating_sub(pending.received));
                let events = &events[pending.events];
                pending.reply.answer(&Reply {
                    seq: pending.seq,
                    time: *time,
                    outcome: pending.outcome,
                    events,
                });
                ack.record(shared.nanos().saturating_sub(pending.received));
            }
            shared.shadow_bell.ring();
            outcome.clear();
            self.outcomes.give_back(outcome);
            let now = shared.nanos();
            pulse.touch(now, &mut [(&mut durable, &shared.metrics.durable), (&mut ack, &shared.metrics.ack)]);
        }
    }
}
