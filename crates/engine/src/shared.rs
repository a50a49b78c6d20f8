//! What the engine's threads and handles share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hoga_core::command::Body;
use hoga_core::ids::{Seq, Timestamp};
use hoga_log::ring;

use crate::bell::Bell;
use crate::fault::{Fault, FaultCell, FaultKind};
use crate::metrics::Metrics;
use crate::position::{Acked, Applied, Cursor, Durable, Matched, Positions, Received};
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
    pub metrics: Metrics,
    /// Set when the gate has given its last reply.
    pub gate_done: AtomicBool,
    closing: AtomicBool,
    /// The ring's receiver after the matcher has ended: commands that were pushed at the last moment are told from here.
    orphans: Mutex<Option<ring::Receiver<Inbound>>>,
    epoch: Instant,
}

impl Shared {
    /// At a recovered position: everything up to it is durable, answered and applied.
    pub fn new(at: Seq) -> Shared {
        Shared {
            received: Cursor::new(at),
            matched: Cursor::new(at),
            durable: Cursor::new(at),
            acked: Cursor::new(at),
            applied: Cursor::new(at),
            journal_bell: Bell::default(),
            gate_bell: Bell::default(),
            shadow_bell: Bell::default(),
            faults: FaultCell::default(),
            metrics: Metrics::default(),
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
    }

    /// Stops everything: no reply, no event and no stream message leaves after this.
    pub fn stop(&self, kind: FaultKind, thread: &'static str, detail: String) {
        self.close_intake();
        self.faults.raise(Fault { kind, thread, detail });
        self.ring_all();
    }

    /// Wakes the threads that sleep at a bell.
    pub fn ring_all(&self) {
        self.journal_bell.ring();
        self.gate_bell.ring();
        self.shadow_bell.ring();
    }

    /// The matcher's last act: whatever still is in the ring, or comes late, is told that it was not taken.
    pub fn leave_orphans(&self, ring: ring::Receiver<Inbound>) {
        self.close_intake();
        *self.orphans.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.drop_orphans();
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
