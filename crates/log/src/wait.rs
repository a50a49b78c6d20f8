//! Adaptive waiting: look a few times, then sleep until woken.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{AtomicU32, Condvar, Mutex, Ordering, SPINS, fence};

/// A place where threads wait for a condition that other threads make true.
///
/// The number of looks adapts: where looking paid off, the next waiter looks longer; where it did not, shorter. A waker
/// pays one fence and one load when nobody sleeps.
pub(crate) struct WaitPoint {
    sleepers: AtomicU32,
    spins: AtomicU32,
    lock: Mutex<()>,
    condvar: Condvar,
}

impl WaitPoint {
    pub(crate) fn new() -> WaitPoint {
        WaitPoint {
            sleepers: AtomicU32::new(0),
            spins: AtomicU32::new(*SPINS.end()),
            lock: Mutex::new(()),
            condvar: Condvar::new(),
        }
    }

    /// Waits until `ready` says true or the time is over; returns what `ready` said last.
    ///
    /// `ready` must read with at least Acquire ordering what the other side wrote before [`WaitPoint::wake`].
    pub(crate) fn wait(&self, timeout: Duration, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        let budget = self.spins.load(Ordering::Relaxed);
        for _ in 0..budget {
            std::hint::spin_loop();
            if ready() {
                self.spins.store((budget * 2).min(*SPINS.end()), Ordering::Relaxed);
                return true;
            }
        }
        self.spins.store((budget / 2).max(*SPINS.start()), Ordering::Relaxed);
        let deadline = Instant::now().checked_add(timeout);
        // Announced before the last look: either the waker sees a sleeper, or this look sees its write.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = loop {
            if ready() {
                break true;
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                break false;
            }
            guard = self.condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    /// Wakes all sleepers, after the caller made their condition true.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Taking the lock orders this wake after the sleeper's last look.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.condvar.notify_all();
        }
    }
}
