//! Telling a group's thread to stop, or to look at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::wait::WaitPoint;

/// Held by a group's thread and by whoever directs it.
pub struct Signal {
    stopped: AtomicBool,
    nudged: AtomicBool,
    point: WaitPoint,
}

impl Default for Signal {
    fn default() -> Signal {
        Signal::new()
    }
}

impl Signal {
    /// One that says: go on.
    pub fn new() -> Signal {
        Signal { stopped: AtomicBool::new(false), nudged: AtomicBool::new(false), point: WaitPoint::new() }
    }

    /// Tells the group to finish what it has in hand, commit, and leave. Cannot be taken back.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.point.wake();
    }

    /// Whether the group is to stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends the group's present wait for more messages to share a batch: somebody waits for the result.
    pub fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.point.wake();
    }

    /// Waits until the time is over or the group is to stop; true when it is to stop.
    pub fn wait(&self, time: Duration) -> bool {
        self.point.wait(time, || self.is_stopped())
    }

    /// Waits until the time is over, somebody nudges, or the group is to stop.
    pub fn linger(&self, time: Duration) {
        self.point.wait(time, || self.is_stopped() || self.nudged.load(Ordering::Acquire));
        self.nudged.store(false, Ordering::Release);
    }
}
