//! What the matcher hands on (to the journal a [`hoga_log::journal::Batch`], to the gate an [`Outcome`]), in buffers that go round between two threads and are never freed in steady state.

use std::sync::mpsc::{self, Receiver, SyncSender};

use hoga_core::event::{EventRecord, Reject};
use hoga_core::ids::{Seq, Timestamp};

use hoga_log::journal::Batch;

use crate::reply::ReplyTo;

/// The most commands in one batch. Small enough that the journal gets the first of a burst while the last is still being taken.
pub(crate) const MAX_COMMANDS: usize = 256;

/// Buffers between the matcher and the journal, and between the matcher and the gate: the bound of both queues. When all are under way
/// the matcher waits, and the inbound ring fills up behind it.
pub(crate) const BUFFERS: usize = 128;

/// More than the longest record of the journal with its header: a SetInstrument.
const LONGEST_RECORD: usize = 256;

/// Events that a recycled buffer may keep room for. One command that sweeps a deep book makes more; its buffer is freed afterwards.
const MAX_KEPT_EVENTS: usize = 1_024;

/// A matched command that waits to be durable.
pub(crate) struct Pending {
    pub seq: Seq,
    pub outcome: Result<(), Reject>,
    pub reply: ReplyTo,
    /// Its events in the outcome's `events`; none when nobody waits for the reply.
    pub events: std::ops::Range<usize>,
    /// When it was handed in, in the engine's nanoseconds.
    pub received: u64,
}

/// Matched commands on their way to the gate: those of one batch of the journal.
pub(crate) struct Outcome {
    /// The time of all its commands.
    pub time: Timestamp,
    pub pending: Vec<Pending>,
    pub events: Vec<EventRecord>,
}

impl Outcome {
    /// An empty one with room for as many commands as it may get, and for their events.
    pub fn empty() -> Outcome {
        let (pending, events) = (Vec::with_capacity(MAX_COMMANDS), Vec::with_capacity(MAX_KEPT_EVENTS));
        Outcome { time: Timestamp(0), pending, events }
    }

    /// Empties it and keeps its room, within bounds.
    pub fn clear(&mut self) {
        self.pending.clear();
        self.events.clear();
        self.events.shrink_to(MAX_KEPT_EVENTS);
    }
}

/// The matcher's end of a loop of buffers.
pub(crate) struct Supply<T> {
    full: SyncSender<T>,
    free: Receiver<T>,
    /// Buffers at hand. The last one that came back is used first, so that only as many buffers grow to their working size as are really
    /// under way at once.
    at_hand: Vec<T>,
}

/// The other end.
pub(crate) struct Demand<T> {
    pub full: Receiver<T>,
    pub free: SyncSender<T>,
}

/// A batch for the journal with room for as many commands as it may get.
pub(crate) fn empty_batch() -> Batch {
    Batch::with_capacity(MAX_COMMANDS * LONGEST_RECORD)
}

/// A loop of [`BUFFERS`] buffers. Their room is asked for here, once; the system gives memory only to what is used.
pub(crate) fn circulation<T>(make: impl Fn() -> T) -> (Supply<T>, Demand<T>) {
    let (to_user, from_maker) = mpsc::sync_channel(BUFFERS);
    let (to_maker, from_user) = mpsc::sync_channel(BUFFERS);
    for _ in 0..BUFFERS {
        // The channel was made with this many places and its receiver lives.
        let _ = to_maker.try_send(make());
    }
    (
        Supply { full: to_user, free: from_user, at_hand: Vec::with_capacity(BUFFERS) },
        Demand { full: from_maker, free: to_maker },
    )
}

impl<T> Supply<T> {
    /// An empty buffer; waits until the other side gives one back. `None`: the other side has ended.
    pub fn take(&mut self) -> Option<T> {
        self.at_hand.extend(self.free.try_iter());
        self.at_hand.pop().or_else(|| self.free.recv().ok())
    }

    /// Puts an unused buffer back.
    pub fn keep(&mut self, buffer: T) {
        self.at_hand.push(buffer);
    }

    /// Hands a buffer over. Never waits: there are as many places as buffers. `false`: the other side has ended.
    pub fn hand_over(&self, buffer: T) -> bool {
        self.full.try_send(buffer).is_ok()
    }
}

impl<T> Demand<T> {
    /// Gives an empty buffer back.
    pub fn give_back(&self, buffer: T) {
        // When the matcher has ended there is nobody to use it.
        let _ = self.free.try_send(buffer);
    }
}
