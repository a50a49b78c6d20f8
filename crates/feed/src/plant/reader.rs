//! A reader: from the bus into the queues of loops. It decodes nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hoga_log::LogError;
use hoga_log::ring::{Full, Sender};

use super::stats::Shared;
use super::{Delivery, Input};
use crate::bus::Bus;

/// How long a reader waits for a message before it looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(50);
/// The pause of a reader all of whose queues are full. Work for a loop of a millisecond is there then.
const FULL: Duration = Duration::from_micros(200);
/// The pause before a bus that is away is asked again.
const AWAY: Duration = Duration::from_millis(100);

/// A lane and what was read of it and found no room.
pub(super) struct Lane {
    number: u32,
    next: u64,
    waiting: VecDeque<Delivery>,
}

impl Lane {
    pub(super) fn new(number: u32, next: u64) -> Lane {
        Lane { number, next, waiting: VecDeque::new() }
    }
}

pub(super) struct Reader<S: Send> {
    pub(super) bus: Arc<dyn Bus>,
    pub(super) max: usize,
    pub(super) lanes: Vec<Lane>,
    pub(super) loops: Vec<Sender<Input<S>>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) stats: Arc<Shared>,
}

impl<S: Send> Reader<S> {
    /// Reads until it is told to stop. A bus that is away is waited for.
    pub(super) fn run(mut self) -> Result<(), LogError> {
        let mut places = Vec::with_capacity(self.lanes.len());
        let mut read = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let (mut some, mut full, mut away) = (false, false, false);
            for at in 0..self.lanes.len() {
                if !self.lanes[at].waiting.is_empty() && !self.deliver(at) {
                    full = true;
                    continue;
                }
                let lane = &mut self.lanes[at];
                read.clear();
                match self.bus.read(lane.number, lane.next, self.max, &mut read) {
                    Ok(next) => lane.next = next,
                    Err(fault) if fault.is_transient() => away = true,
                    Err(fault) => return Err(fault),
                }
                if !read.is_empty() {
                    some = true;
                    let (lane_number, now) = (lane.number, Instant::now());
                    let deliveries = read.drain(..).map(|message| Delivery::new(lane_number, now, message));
                    lane.waiting.extend(deliveries);
                    full |= !self.deliver(at);
                }
            }
            if full {
                self.stats.reader_waited();
                std::thread::sleep(FULL);
            } else if away {
                std::thread::sleep(AWAY);
            } else if !some {
                places.clear();
                places.extend(self.lanes.iter().map(|lane| (lane.number, lane.next)));
                match self.bus.wait(&places, WAIT) {
                    Ok(()) => {}
                    Err(fault) if fault.is_transient() => std::thread::sleep(AWAY),
                    Err(fault) => return Err(fault),
                }
            }
        }
        Ok(())
    }

    /// Puts what waits of a lane into the queue of its loop; false when it is full.
    fn deliver(&mut self, at: usize) -> bool {
        let lane = &mut self.lanes[at];
        let queue = &self.loops[lane.number as usize % self.loops.len()];
        while let Some(delivery) = lane.waiting.pop_front() {
            if let Err(Full(back)) = queue.try_send(Input::Tick(delivery)) {
                if let Input::Tick(delivery) = back {
                    lane.waiting.push_front(delivery);
                }
                return false;
            }
        }
        true
    }
}
