//! A bell: how one thread sleeps until any of several others has something for it.
//!
//! The waiting is adaptive: a very short spin, since a hand-over that comes at once is cheaper without a system call, then the thread parks.
//! Spinning is kept to a few microseconds because on two cores the spinning thread takes the core from the one it waits for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

const QUIET: u32 = 0;
const RUNG: u32 = 1;
const PARKED: u32 = 2;

/// Pauses before parking: about one to three microseconds.
const SPINS: u32 = 48;

/// One sleeper, any number of ringers. A ring is never lost: one that comes before the wait ends the wait at once.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: AtomicU32,
    sleeper: OnceLock<Thread>,
}

impl Bell {
    /// Names the calling thread as the one that will wait. Called once, before the first wait.
    pub fn attach(&self) {
        assert!(self.sleeper.set(std::thread::current()).is_ok(), "a bell has one sleeper");
    }

    /// Wakes the sleeper, or keeps it from falling asleep. Whatever was written before is visible to it.
    pub fn ring(&self) {
        if self.state.swap(RUNG, Ordering::SeqCst) == PARKED
            && let Some(thread) = self.sleeper.get()
        {
            thread.unpark();
        }
    }

    /// Waits for a ring since the last wait, for at most `timeout`. Whether it rang.
    pub fn wait(&self, timeout: Duration) -> bool {
        debug_assert_eq!(self.sleeper.get().map(Thread::id), Some(std::thread::current().id()));
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == RUNG {
                break;
            }
            std::hint::spin_loop();
        }
        if self.state.compare_exchange(QUIET, PARKED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            let start = Instant::now();
            // Parking may end for no reason, so the state decides.
            while self.state.load(Ordering::SeqCst) == PARKED {
                let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                    break;
                };
                std::thread::park_timeout(left);
            }
        }
        self.state.swap(QUIET, Ordering::SeqCst) == RUNG
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_ring_before_the_wait_is_kept_and_one_wait_takes_it() {
        let bell = Bell::default();
        bell.attach();
        bell.ring();
        bell.ring();
        assert!(bell.wait(Duration::from_secs(60)));
        assert!(!bell.wait(Duration::from_millis(1)), "taken by the first wait");
    }

    #[test]
    fn no_ring_is_lost_between_threads() {
        let (bell, count) = (Arc::new(Bell::default()), Arc::new(AtomicU64::new(0)));
        bell.attach();
        let ringers: Vec<_> = (0..2)
            .map(|_| {
                let (bell, count) = (bell.clone(), count.clone());
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        count.fetch_add(1, Ordering::SeqCst);
                        bell.ring();
                    }
                })
            })
            .collect();
        while count.load(Ordering::SeqCst) < 40_000 {
            assert!(bell.wait(Duration::from_secs(20)), "a ring was lost");
        }
        ringers.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
