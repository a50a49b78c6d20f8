//! The engine: takes commands, gives each its place and time, matches them, makes them durable, answers, and publishes what happened.
//!
//! ```text
//!  submit ─► ring ─► matcher ─┬─► journal (write, sync) ─► durable ─┐
//!                             └─► apply ─────────────────► matched ─┴─► gate ─► replies ─► acked
//!                                                                                            │
//!        topics, subscribers, queries, snapshots ◄── applied ◄── shadow (reads the journal) ◄┘
//! ```
//!
//! **The order of things:** write → sync → publish the cursor → answer → release. Nothing leaves the engine, neither a reply nor an event,
//! before the command behind it is durable.
//!
//! **Architecture invariants:** there is one matching thread and no lock on its path. The journal's thread knows nothing of orders, and the
//! matcher nothing of files. The shadow learns of a command only through the journal, never through memory, so that what it publishes is by
//! construction what a restart would publish. Every queue is bounded. No thread of the engine waits for a client.
//!
//! **Queues and what they do when full:** the inbound ring refuses orders and keeps its last slots for cancels; when the journal or the gate
//! is behind, the matcher waits and the ring fills; queries are refused; chain marks are left out, since the next one proves the same; a
//! snapshot that is due waits until the one before is written.
//!
//! **Memory:** the matcher, the journal's thread and the gate allocate nothing per command: their buffers are made at the start and go
//! round. Exceptions: a command with more than about a thousand events (its buffer is cut back afterwards), growth of the state itself, and
//! a new journal segment. The shadow allocates per batch of messages, per query and per snapshot.

mod batch;
mod bell;
mod config;
mod engine;
mod error;
mod fault;
mod follower;
mod gate;
mod handle;
mod journaler;
mod matcher;
mod metrics;
mod pace;
mod position;
mod publisher;
mod replica;
mod reply;
mod shadow;
mod shared;
mod snapshot;

pub use config::{Clock, EngineConfig, Partitions, RetainFloor, SystemClock};
pub use engine::{Engine, Started};
pub use error::{EngineError, SubmitError};
pub use fault::{Fault, FaultKind};
pub use handle::{EngineHandle, QueryFn, QueryTicket};
pub use metrics::{EngineMetrics, Latency};
pub use position::{Acked, Applied, Durable, Matched, Positions, Received, Space};
pub use publisher::{LIFECYCLE, PROJECTION, TRADES};
pub use replica::{ReplicaError, ReplicaStatus, Replication, Role, Standby};
pub use reply::{Lost, Reply, ReplySink, ReplyTo};

use hoga_core::event::EventRecord;
use hoga_core::exchange::Exchange;

/// Takes events as the shadow applies them. Called on the shadow's thread, in order, with durable events only, each once per run of the
/// process. Must be quick, or hand over to a bounded queue: while it works the shadow publishes nothing.
pub trait Subscriber: Send {
    /// Called once, before anything else, with the state that the following events change.
    fn on_start(&mut self, exchange: &Exchange) {
        let _ = exchange;
    }

    /// Events, of one or more whole commands.
    fn on_events(&mut self, events: &[EventRecord]);
}
