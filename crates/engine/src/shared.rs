//! What the engine's threads and handles share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hoga_core::command::Body;
use hoga_core::ids::{Seq, Timestamp};
use hoga_log::ring;

use crate::bell::Bell;
use crate::fault::{Fault, FaultCell, FaultKind};
use crate::handle::Query;
use crate::metrics::Metrics;
use crate::position::{Acked, Applied, Cursor, Durable, Matched, Positions, Received};
use crate::replica::seat::Seat;
use crate::reply::ReplyTo;

/// A command on its way to the matcher.
pub(crate) struct Order {
    pub body: Body,
    pub deadline: Timestamp,
    pub reply: ReplyTo,
    /// When it was handed in, in the engine's nanoseconds.
    pub received: u64,
}

/// What the inbound ring carries.
#[allow(clippy::large_enum_variant)] // slots of the ring are preallocated; boxing would allocate per command
pub(crate) enum Inbound {
    /// A command.
    Order(Order),
    /// Nothing: wakes the matcher so that it sees the closed intake.
    Wake,
}

/// What the engine's threads and handles share.
pub(crate) struct Shared {
    pub ring: ring::Sender<Inbound>,
    pub queries: SyncSender<Query>,
    pub received: Cursor<Received>,
    pub matched: Cursor<Matched>,
    pub durable: Cursor<Durable>,
    pub acked: Cursor<Acked>,
    pub applied: Cursor<Applied>,
    /// Rung by the matcher for the journal's thread.
    pub journal_bell: Bell,
    /// Rung for the gate: by the journal's thread when more is durable, by the matcher when what it matched is durable already.
    pub gate_bell: Bell,
    /// Rung for the shadow: by the gate, by queries, by a finished snapshot.
    pub shadow_bell: Bell,
    pub faults: FaultCell,
    /// What this engine is to its shard.
    pub seat: Seat,
    pub metrics: Metrics,
    /// Whether a sync is under way: a hint for the matcher's pace.
    pub syncing: AtomicBool,
    /// When the last sync ended, in the engine's nanoseconds.
    pub synced_at: AtomicU64,
    /// Set to ask the shadow for a snapshot.
    pub snapshot_wanted: AtomicBool,
    /// Set when the gate has given its last reply.
    pub gate_done: AtomicBool,
    closing: AtomicBool,
    /// The ring's receiver after the matcher has ended: commands that were pushed at the last moment are told from here.
    orphans: Mutex<Option<ring::Receiver<Inbound>>>,
    epoch: Instant,
}

impl Shared {
    /// At a recovered position: everything up to it is durable, answered and applied.
    pub fn new(at: Seq, ring: ring::Sender<Inbound>, queries: SyncSender<Query>) -> Shared {
        Shared {
            ring,
            queries,
            received: Cursor::new(at),
            matched: Cursor::new(at),
            durable: Cursor::new(at),
            acked: Cursor::new(at),
            applied: Cursor::new(at),
            journal_bell: Bell::default(),
            gate_bell: Bell::default(),
            shadow_bell: Bell::default(),
            faults: FaultCell::default(),
            seat: Seat::default(),
            metrics: Metrics::default(),
            syncing: AtomicBool::new(false),
            synced_at: AtomicU64::new(0),
            snapshot_wanted: AtomicBool::new(false),
            gate_done: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            orphans: Mutex::new(None),
            epoch: Instant::now(),
        }
    }

    /// Nanoseconds since the engine started, from the monotonic clock.
    pub fn nanos(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Whether nothing more is taken.
    pub fn intake_closed(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Takes nothing more. What is in the ring is still served, unless the engine stopped by a fault.
    pub fn close_intake(&self) {
        self.closing.store(true, Ordering::SeqCst);
        // When the ring is full the matcher is not asleep at it.
        let _ = self.ring.try_send_reserved(Inbound::Wake);
    }

    /// Stops everything: what waits for a reply is told that it is lost, and nothing more is published.
    pub fn stop(&self, kind: FaultKind, thread: &'static str, detail: String) {
        self.closing.store(true, Ordering::SeqCst);
        self.faults.raise(Fault { kind, thread, detail });
        self.seat.end();
        self.close_intake();
        self.ring_all();
    }

    /// Wakes the threads that sleep at a bell.
    pub fn ring_all(&self) {
        self.journal_bell.ring();
        self.gate_bell.ring();
        self.shadow_bell.ring();
    }

    /// Empties the ring after the matcher has ended; dropping a command tells its sender.
    pub fn drop_orphans(&self) {
        if let Some(ring) = self.orphans.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            while ring.drain(usize::MAX, drop) > 0 {}
        }
    }

    /// All positions, from the last stage to the first.
    pub fn positions(&self) -> Positions {
        let applied = self.applied.get();
        let acked = self.acked.get();
        let durable = self.durable.get();
        let matched = self.matched.get();
        Positions { received: self.received.get(), matched, durable, acked, applied }
    }
}

/// The matcher's end of the inbound ring. When the matcher ends, in whatever way, the intake closes, and what still is in the ring, or
/// comes at the last moment, is told that it was not taken.
pub(crate) struct Intake {
    ring: Option<ring::Receiver<Inbound>>,
    shared: Arc<Shared>,
}

impl Intake {
    pub fn new(ring: ring::Receiver<Inbound>, shared: Arc<Shared>) -> Intake {
        Intake { ring: Some(ring), shared }
    }

    /// The ring. It is there until the matcher ends.
    pub fn ring(&mut self) -> &mut ring::Receiver<Inbound> {
        self.ring
            .as_mut()
            .unwrap_or_else(|| unreachable!("the ring is given away only when the intake is dropped"))
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.shared.close_intake();
        *self.shared.orphans.lock().unwrap_or_else(PoisonError::into_inner) = self.ring.take();
        fence(Ordering::SeqCst);
        self.shared.drop_orphans();
    }
}
