//! The way in: commands, queries, positions.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{self, RecvTimeoutError, TrySendError};
use std::time::Duration;

use hoga_core::command::Body;
use hoga_core::exchange::Exchange;
use hoga_core::ids::Timestamp;

use crate::error::SubmitError;
use crate::fault::Fault;
use crate::metrics::EngineMetrics;
use crate::position::{Acked, Positions};
use crate::replica::ReplicaStatus;
use crate::reply::ReplyTo;
use crate::shared::{Inbound, Order, Shared};

/// A question to the shadow's replica.
pub type QueryFn = Box<dyn FnOnce(&Exchange) + Send>;

/// A query on its way to the shadow.
pub(crate) struct Query {
    /// What had been acknowledged when it was asked: it is answered from a state that has all of that.
    pub since: Acked,
    /// The question.
    pub run: QueryFn,
}

/// A handle to a running engine. Cheap to clone; one per connection or task is fine.
#[derive(Clone)]
pub struct EngineHandle {
    pub(crate) shared: Arc<Shared>,
}

impl EngineHandle {
    /// Hands a command to the engine. Never blocks.
    ///
    /// `deadline`: the command is rejected when the sequencer takes it later than this; `Timestamp(0)` for none. After `Ok` the reply comes
    /// exactly once, as an outcome or as lost. Errors: `Busy` when the ring is full (the last slots are kept for cancels) or while this engine
    /// is a standby, `Stopped`.
    pub fn submit(&self, body: Body, deadline: Timestamp, reply: ReplyTo) -> Result<(), SubmitError> {
        if self.shared.intake_closed() {
            reply.defuse();
            return Err(SubmitError::Stopped);
        }
        if self.shared.seat.refuses() {
            reply.defuse();
            self.shared.metrics.busy.fetch_add(1, Ordering::Relaxed);
            return Err(SubmitError::Busy);
        }
        let cancel = body.is_cancel();
        let order = Inbound::Order(Order { body, deadline, reply, received: self.shared.nanos() });
        let sent =
            if cancel { self.shared.ring.try_send_reserved(order) } else { self.shared.ring.try_send(order) };
        match sent {
            Ok(()) => {
                // The matcher closes the intake and then empties the ring for the last time. Either it sees this command there, or this
                // fence makes the closed intake visible here, and whoever comes last empties the ring.
                fence(Ordering::SeqCst);
                if self.shared.intake_closed() {
                    self.shared.drop_orphans();
                }
                Ok(())
            }
            Err(full) => {
                if let Inbound::Order(order) = full.0 {
                    order.reply.defuse();
                }
                self.shared.metrics.busy.fetch_add(1, Ordering::Relaxed);
                Err(SubmitError::Busy)
            }
        }
    }

    /// Asks the shadow's replica: the question runs there once everything that was acknowledged at this call has been applied, so that a
    /// client reads its own writes. Must be quick. Never blocks; the result comes through the ticket.
    pub fn query<R: Send + 'static>(
        &self,
        ask: impl FnOnce(&Exchange) -> R + Send + 'static,
    ) -> Result<QueryTicket<R>, SubmitError> {
        let (answer, ticket) = mpsc::sync_channel(1);
        self.query_with(Box::new(move |exchange| {
            // A caller that no longer waits has dropped the ticket, and the answer with it.
            let _ = answer.try_send(ask(exchange));
        }))?;
        Ok(QueryTicket { ticket })
    }

    /// As [`EngineHandle::query`], for callers that bring their own way back: the function sends the result itself. It is dropped without
    /// being run when the engine stops.
    pub fn query_with(&self, run: QueryFn) -> Result<(), SubmitError> {
        let query = Query { since: self.shared.acked.get(), run };
        match self.shared.queries.try_send(query) {
            Ok(()) => {
                self.shared.shadow_bell.ring();
                Ok(())
            }
            Err(TrySendError::Full(_)) => {
                self.shared.metrics.busy_queries.fetch_add(1, Ordering::Relaxed);
                Err(SubmitError::Busy)
            }
            Err(TrySendError::Disconnected(_)) => Err(SubmitError::Stopped),
        }
    }

    /// How far each stage has come.
    pub fn positions(&self) -> Positions {
        self.shared.positions()
    }

    /// Asks for a snapshot now, beside those that the configuration asks for. Returns at once; `metrics().snapshots` counts those that are
    /// written. While one is being written the wish waits for its end.
    pub fn request_snapshot(&self) {
        self.shared.snapshot_wanted.store(true, Ordering::SeqCst);
        self.shared.shadow_bell.ring();
    }

    /// What stopped the engine, if something has.
    pub fn fault(&self) -> Option<Fault> {
        self.shared.faults.get()
    }

    /// Whether the engine takes commands.
    pub fn running(&self) -> bool {
        !self.shared.intake_closed()
    }

    /// What this engine is to its shard, and how its replication stands.
    pub fn replica(&self) -> ReplicaStatus {
        self.shared.seat.status()
    }

    /// Counters, queue depths and delays. The delays are published by the engine's threads about ten times a second.
    pub fn metrics(&self) -> EngineMetrics {
        let mut metrics = self.shared.metrics.snapshot(self.shared.positions());
        metrics.replica = self.replica();
        metrics.inbound_depth = self.shared.ring.len() as u64;
        metrics
    }
}

/// The answer to a query, on its way.
#[derive(Debug)]
pub struct QueryTicket<R> {
    ticket: mpsc::Receiver<R>,
}

impl<R> QueryTicket<R> {
    /// Waits for the answer. `Busy`: not within `timeout`; `Stopped`: the engine stopped before.
    pub fn wait(self, timeout: Duration) -> Result<R, SubmitError> {
        self.ticket.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => SubmitError::Busy,
            RecvTimeoutError::Disconnected => SubmitError::Stopped,
        })
    }
}
