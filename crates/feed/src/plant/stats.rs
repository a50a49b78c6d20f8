//! Figures of a plant, written by its threads without locks on the way of a tick.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Figures of one loop since the start; `queue` and `away` are those of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopStats {
    /// Whether it is for hot symbols.
    pub hot: bool,
    /// Ticks handled.
    pub ticks: u64,
    /// Nanoseconds in which it did not wait: over the time that passed, its utilisation.
    pub busy_ns: u64,
    /// The part of the last second in which it did not wait, in thousandths.
    pub load: u32,
    /// Calls of the handler: fewer than ticks when ticks had to wait.
    pub calls: u64,
    /// Ticks that wait in its queue.
    pub queue: u64,
    /// The longest wait of a tick between reader and handler in the last second or two, in nanoseconds.
    pub delay_max_ns: u64,
    /// Symbols of its lanes that are away on a loop of their own.
    pub away: u64,
    /// Moves of symbols to a loop of their own.
    pub moved: u64,
    /// Moves of symbols back.
    pub returned: u64,
}

/// Figures of a plant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlantStats {
    /// Each loop: those of lanes first, then those for hot symbols.
    pub loops: Vec<LoopStats>,
    /// For each lane the offset behind the last tick that its loop has taken.
    pub lanes: Vec<u64>,
    /// Messages that were no ticks.
    pub bad: u64,
    /// How often a reader found the queues of all its lanes' loops full.
    pub waited: u64,
}

/// What a loop may be busy before another is wanted, in thousandths: above it waiting grows faster than load (a queue at 70 % holds 2.3 times
/// what it serves at once, at 90 % nine times).
const COMFORTABLE: u32 = 600;

/// How many loops the load of the last second asks for, with each busy for at most 60 % of its time: at least 1, and no more than lanes, among which they
/// are divided.
pub fn recommended_loops(stats: &PlantStats) -> u32 {
    let load: u32 = stats.loops.iter().map(|one| one.load).sum();
    load.div_ceil(COMFORTABLE).clamp(1, (stats.lanes.len() as u32).max(1))
}

#[derive(Default)]
pub(super) struct LoopCells {
    pub(super) ticks: AtomicU64,
    pub(super) busy_ns: AtomicU64,
    pub(super) load: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) queue: AtomicU64,
    pub(super) delay_max_ns: AtomicU64,
    pub(super) delay_last_ns: AtomicU64,
    pub(super) away: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) returned: AtomicU64,
}

pub(super) struct Shared {
    homes: usize,
    pub(super) loops: Vec<LoopCells>,
    lanes: Vec<AtomicU64>,
    pub(super) bad: AtomicU64,
    waited: AtomicU64,
    /// Ticks that their lane's loop has passed on, or keeps for a symbol that is on its way back.
    in_flight: AtomicU64,
    readers_gone: AtomicBool,
    homes_gone: AtomicUsize,
}

impl Shared {
    pub(super) fn new(lanes: u32, homes: usize, loops: usize) -> Shared {
        Shared {
            homes,
            loops: (0..loops).map(|_| LoopCells::default()).collect(),
            lanes: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            bad: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            readers_gone: AtomicBool::new(false),
            homes_gone: AtomicUsize::new(0),
        }
    }

    pub(super) fn reader_waited(&self) {
        self.waited.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn readers_are_gone(&self) {
        self.readers_gone.store(true, Ordering::Release);
    }

    pub(super) fn home_is_gone(&self) {
        self.homes_gone.fetch_add(1, Ordering::Release);
    }

    /// Whether nothing more will come to this loop.
    pub(super) fn no_more_for(&self, number: usize) -> bool {
        if number < self.homes {
            self.readers_gone.load(Ordering::Acquire)
        } else {
            self.homes_gone.load(Ordering::Acquire) == self.homes
        }
    }

    pub(super) fn lane_at(&self, lane: u32, next: u64) {
        self.lanes[lane as usize].store(next, Ordering::Release);
    }

    pub(super) fn lanes(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.load(Ordering::Acquire)).collect()
    }

    pub(super) fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn more_in_flight(&self, count: u64) {
        self.in_flight.fetch_add(count, Ordering::AcqRel);
    }

    pub(super) fn fewer_in_flight(&self, count: u64) {
        self.in_flight.fetch_sub(count, Ordering::AcqRel);
    }

    pub(super) fn handled(&self, offsets: &[u64]) -> bool {
        // The lanes first: what they have passed on was counted before.
        let reached =
            offsets.iter().zip(&self.lanes).all(|(wanted, lane)| lane.load(Ordering::Acquire) >= *wanted);
        reached && self.in_flight.load(Ordering::Acquire) == 0
    }

    pub(super) fn read(&self) -> PlantStats {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let of = |(number, cells): (usize, &LoopCells)| LoopStats {
            hot: number >= self.homes,
            ticks: get(&cells.ticks),
            busy_ns: get(&cells.busy_ns),
            load: u32::try_from(get(&cells.load)).unwrap_or(u32::MAX),
            calls: get(&cells.calls),
            queue: get(&cells.queue),
            delay_max_ns: get(&cells.delay_max_ns).max(get(&cells.delay_last_ns)),
            away: get(&cells.away),
            moved: get(&cells.moved),
            returned: get(&cells.returned),
        };
        PlantStats {
            loops: self.loops.iter().enumerate().map(of).collect(),
            lanes: self.lanes(),
            bad: get(&self.bad),
            waited: get(&self.waited),
        }
    }
}
