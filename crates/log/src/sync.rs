//! The primitives under the ring, behind names that a model checker can take the place of.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use std::sync::{Arc, Condvar, Mutex};

/// The most and the fewest times a waiter looks before it sleeps. One look with a pause is some tens of nanoseconds, so
/// this is a few microseconds: less than a sleep and a wake cost, and nothing that an idle system would notice.
pub(crate) const SPINS: std::ops::RangeInclusive<u32> = 4..=128;

/// A cell without a lock; who may look inside when is the ring's affair.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer for writing; the caller has exclusive access.
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
