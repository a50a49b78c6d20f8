//! The ring: a bounded queue from many producers to one consumer; and the cursor: a position to wait for.
//!
//! **Queue rule:** when the ring is full, [`Sender::try_send`] gives the message back at once (the caller rejects). The
//! last `reserve` slots are only for [`Sender::try_send_reserved`], so that cancels are let in when orders are refused.

use std::mem::MaybeUninit;
use std::time::Duration;

use super::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering, UnsafeCell};
use super::wait::WaitPoint;

/// Two cache lines, since processors fetch them in pairs: the producers' and the consumer's counters do not share one.
#[repr(align(128))]
struct Padded<T>(T);

struct Slot<T> {
    /// Position + 1 of the message inside, once it is completely written. Positions never repeat, so a slot's former
    /// message cannot be taken for the next one.
    filled: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct Shared<T> {
    /// Next position to be claimed by a producer.
    tail: Padded<AtomicUsize>,
    /// Next position to be read by the consumer; everything below is free again.
    head: Padded<AtomicUsize>,
    slots: Box<[Slot<T>]>,
    reserve: usize,
    senders: AtomicUsize,
    receiver_gone: AtomicBool,
    point: WaitPoint,
}

// SAFETY: a slot is written by the one producer that claimed its position, and read by the one consumer after `filled`
// was published with Release; so a `T` only ever moves from thread to thread.
unsafe impl<T: Send> Send for Shared<T> {}
unsafe impl<T: Send> Sync for Shared<T> {}

/// The message that found no free slot, given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// Makes a ring of `capacity` slots, of which the last `reserve` are kept for [`Sender::try_send_reserved`].
///
/// # Panics
/// When `capacity` is not a power of two, or `reserve` is not below it.
pub fn channel<T: Send>(capacity: usize, reserve: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity.is_power_of_two(), "ring capacity {capacity} is not a power of two");
    assert!(reserve < capacity, "ring reserve {reserve} leaves nothing of {capacity} slots");
    let slot = |_| Slot { filled: AtomicUsize::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) };
    let shared = Arc::new(Shared {
        tail: Padded(AtomicUsize::new(0)),
        head: Padded(AtomicUsize::new(0)),
        slots: (0..capacity).map(slot).collect(),
        reserve,
        senders: AtomicUsize::new(1),
        receiver_gone: AtomicBool::new(false),
        point: WaitPoint::new(),
    });
    (Sender { shared: shared.clone() }, Receiver { shared, head: 0 })
}

/// The producers' end; cloned for each producer.
pub struct Sender<T: Send> {
    shared: Arc<Shared<T>>,
}

impl<T: Send> Sender<T> {
    /// Puts a message in unless that would use one of the reserved slots.
    ///
    /// # Errors
    /// Gives the message back when fewer than `reserve` + 1 slots are free, or when the receiver is gone.
    pub fn try_send(&self, value: T) -> Result<(), Full<T>> {
        let shared = &*self.shared;
        shared.push(value, shared.slots.len() - shared.reserve)
    }

    /// Puts a message in, using the reserved slots if need be.
    ///
    /// # Errors
    /// Gives the message back when no slot is free, or when the receiver is gone.
    pub fn try_send_reserved(&self, value: T) -> Result<(), Full<T>> {
        let shared = &*self.shared;
        shared.push(value, shared.slots.len())
    }

    /// Whether the receiver is gone, so that nothing will be accepted any more.
    pub fn is_closed(&self) -> bool {
        self.shared.receiver_gone.load(Ordering::Acquire)
    }

    /// Messages in the ring now (a moving figure).
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether the ring is empty now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All slots, the reserved ones included.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }
}

impl<T: Send> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender { shared: self.shared.clone() }
    }
}

impl<T: Send> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.point.wake();
        }
    }
}

impl<T> Shared<T> {
    fn push(&self, value: T, limit: usize) -> Result<(), Full<T>> {
        if self.receiver_gone.load(Ordering::Acquire) {
            return Err(Full(value));
        }
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            // An old head makes the ring look fuller than it is, never emptier. With the exchange below succeeding,
            // `tail` was current, so at most `limit` messages are in the ring after this one.
            let head = self.head.0.load(Ordering::Acquire);
            let used = tail.wrapping_sub(head);
            if used > self.slots.len() {
                // `tail` is older than `head`: look again.
                tail = self.tail.0.load(Ordering::Relaxed);
                continue;
            }
            if used >= limit {
                return Err(Full(value));
            }
            let next = tail.wrapping_add(1);
            match self.tail.0.compare_exchange_weak(tail, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(current) => tail = current,
            }
        }
        let slot = &self.slots[tail & (self.slots.len() - 1)];
        // SAFETY: this producer alone claimed position `tail`; the consumer released the slot (head, Acquire above) and
        // will not look inside before `filled` says so.
        slot.value.with_mut(|cell| unsafe { (*cell).write(value) });
        slot.filled.store(tail.wrapping_add(1), Ordering::Release);
        self.point.wake();
        Ok(())
    }

    fn len(&self) -> usize {
        let head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Relaxed);
        tail.wrapping_sub(head).min(self.slots.len())
    }

    fn is_filled(&self, position: usize) -> bool {
        let slot = &self.slots[position & (self.slots.len() - 1)];
        slot.filled.load(Ordering::Acquire) == position.wrapping_add(1)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let mut position = self.head.0.load(Ordering::Relaxed);
        while self.is_filled(position) {
            let index = position & (self.slots.len() - 1);
            // SAFETY: filled and not read; nobody else has access any more.
            self.slots[index].value.with_mut(|cell| unsafe { (*cell).assume_init_drop() });
            position = position.wrapping_add(1);
        }
    }
}

/// The consumer's end; there is one.
pub struct Receiver<T: Send> {
    shared: Arc<Shared<T>>,
    head: usize,
}

/// Publishes the consumer's position on every way out, also when the caller's function panics.
struct Release<'a, T: Send> {
    receiver: &'a mut Receiver<T>,
}

impl<T: Send> Drop for Release<'_, T> {
    fn drop(&mut self) {
        self.receiver.shared.head.0.store(self.receiver.head, Ordering::Release);
    }
}

impl<T: Send> Receiver<T> {
    /// Hands over up to `max` waiting messages in order, without waiting; returns how many.
    pub fn drain(&mut self, max: usize, mut f: impl FnMut(T)) -> usize {
        /// Slots are given back in small groups: producers read this counter, and each store takes its line from them.
        const GROUP: usize = 16;
        let release = Release { receiver: self };
        let mut count = 0;
        while count < max {
            let receiver = &mut *release.receiver;
            let shared = &*receiver.shared;
            if !shared.is_filled(receiver.head) {
                break;
            }
            let slot = &shared.slots[receiver.head & (shared.slots.len() - 1)];
            // SAFETY: `filled` (Acquire) says that the message is complete; head moves on, so it is read once.
            let value = slot.value.with_mut(|cell| unsafe { (*cell).assume_init_read() });
            receiver.head = receiver.head.wrapping_add(1);
            count += 1;
            if count % GROUP == 0 {
                shared.head.0.store(receiver.head, Ordering::Release);
            }
            f(value);
        }
        drop(release);
        count
    }

    /// Waits until a message is there, all senders are gone or the time is over; says whether a message is there.
    ///
    /// When all senders are gone it returns at once, so a loop around it must look at [`Receiver::is_closed`].
    pub fn wait(&mut self, timeout: Duration) -> bool {
        let (shared, head) = (&*self.shared, self.head);
        shared.point.wait(timeout, || shared.is_filled(head) || shared.senders.load(Ordering::Acquire) == 0);
        shared.is_filled(head)
    }

    /// Whether all senders are gone (messages may still be inside).
    pub fn is_closed(&self) -> bool {
        self.shared.senders.load(Ordering::Acquire) == 0
    }

    /// Messages in the ring now (a moving figure).
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether the ring is empty now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All slots, the reserved ones included.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }
}

impl<T: Send> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receiver_gone.store(true, Ordering::Release);
    }
}

const OPEN: u64 = 0;
const CLOSED: u64 = 1;
const POISONED: u64 = 2;

struct CursorShared {
    value: AtomicU64,
    state: AtomicU64,
    point: WaitPoint,
}

/// A position that only grows, and that threads can wait for. Clones share the position.
///
/// Closing says that it will not grow any more because the work is done; poisoning says that it stopped because of a
/// fault. Both wake every waiter.
#[derive(Clone)]
pub struct Cursor {
    shared: Arc<CursorShared>,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor::new(0)
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("value", &self.get())
            .field("closed", &self.is_closed())
            .field("poisoned", &self.is_poisoned())
            .finish()
    }
}

impl Cursor {
    /// A cursor at `value`.
    pub fn new(value: u64) -> Cursor {
        let shared = CursorShared {
            value: AtomicU64::new(value),
            state: AtomicU64::new(OPEN),
            point: WaitPoint::new(),
        };
        Cursor { shared: Arc::new(shared) }
    }

    /// Moves the cursor up to `value` and wakes the waiters; a lower value changes nothing. What the caller wrote before
    /// is visible to whoever sees the new position. A poisoned cursor is frozen: it does not move any more.
    pub fn advance(&self, value: u64) {
        if self.is_poisoned() {
            return;
        }
        self.shared.value.fetch_max(value, Ordering::AcqRel);
        self.shared.point.wake();
    }

    /// The position now.
    pub fn get(&self) -> u64 {
        self.shared.value.load(Ordering::Acquire)
    }

    /// Waits until the position is above `value`, the cursor is closed or poisoned, or the time is over; returns the
    /// position then.
    pub fn wait_beyond(&self, value: u64, timeout: Duration) -> u64 {
        self.shared
            .point
            .wait(timeout, || self.get() > value || self.shared.state.load(Ordering::Acquire) != OPEN);
        self.get()
    }

    /// Says that the work is done. A poisoned cursor stays poisoned.
    pub fn close(&self) {
        self.shared.state.fetch_max(CLOSED, Ordering::AcqRel);
        self.shared.point.wake();
    }

    /// Freezes the cursor because of a fault.
    pub fn poison(&self) {
        self.shared.state.fetch_max(POISONED, Ordering::AcqRel);
        self.shared.point.wake();
    }

    /// Whether the cursor was closed or poisoned.
    pub fn is_closed(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) != OPEN
    }

    /// Whether the cursor was poisoned.
    pub fn is_poisoned(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) == POISONED
    }
}
