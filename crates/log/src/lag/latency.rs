//! How long it takes from one end to the other: quantiles over the last minute, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;

/// Eight steps to each doubling, from 1 µs to about 2.4 hours: a value is known to within 9 %.
const STEPS: usize = 8;
const DOUBLINGS: usize = 33;
const BUCKETS: usize = STEPS * DOUBLINGS;
/// Time is cut into slots; the newest ones are reported.
const SLOTS: usize = 7;
const SLOT: Duration = Duration::from_secs(10);

struct Slot {
    /// Which stretch of time it holds.
    number: AtomicU64,
    counts: [AtomicU64; BUCKETS],
    max: AtomicU64,
}

/// A histogram of delays over the last minute. Recording is two atomic additions; any thread may record and read.
pub struct Latency {
    origin: Instant,
    slots: [Slot; SLOTS],
    /// Since the start: how many, and their sum in microseconds.
    count: AtomicU64,
    sum: AtomicU64,
}

/// What a [`Latency`] holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyReport {
    /// How many in the last minute.
    pub count: u64,
    /// Half are at most this.
    pub p50: Duration,
    /// 99 of 100 are at most this.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// How many since the start of the process.
    pub total: u64,
    /// Their sum.
    pub sum: Duration,
}

impl Default for Latency {
    fn default() -> Latency {
        let slot = |_| Slot {
            number: AtomicU64::new(u64::MAX),
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            max: AtomicU64::new(0),
        };
        Latency {
            origin: Instant::now(),
            slots: std::array::from_fn(slot),
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }
}

/// The bucket of a delay in microseconds.
fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let doubling = 63 - micros.leading_zeros() as usize;
    // The three bits behind the highest one.
    let step = if doubling >= 3 { (micros >> (doubling - 3)) & 7 } else { (micros << (3 - doubling)) & 7 };
    (doubling * STEPS + step as usize).min(BUCKETS - 1)
}

/// The longest delay of a bucket, in microseconds.
fn ceiling(bucket: usize) -> u64 {
    let (doubling, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    (((8 + step + 1) << doubling) / 8).max(1)
}

impl Latency {
    /// An empty one.
    pub fn new() -> Latency {
        Latency::default()
    }

    /// Records `count` messages that took this long.
    pub fn record(&self, delay: Duration, count: u64) {
        self.record_at(self.origin.elapsed(), delay, count);
    }

    fn record_at(&self, now: Duration, delay: Duration, count: u64) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        let number = (now.as_nanos() / SLOT.as_nanos()) as u64;
        let slot = &self.slots[(number % SLOTS as u64) as usize];
        let holds = slot.number.load(Ordering::Relaxed);
        if holds != number
            && slot.number.compare_exchange(holds, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // Another thread may record into the old counts meanwhile; a few delays of a minute ago do no harm.
            slot.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
            slot.max.store(0, Ordering::Relaxed);
        }
        slot.counts[bucket(micros)].fetch_add(count, Ordering::Relaxed);
        slot.max.fetch_max(micros, Ordering::Relaxed);
        self.count.fetch_add(count, Ordering::Relaxed);
        self.sum.fetch_add(micros.saturating_mul(count), Ordering::Relaxed);
    }

    /// The last minute.
    pub fn report(&self) -> LatencyReport {
        self.report_at(self.origin.elapsed())
    }

    fn report_at(&self, now: Duration) -> LatencyReport {
        let number = (now.as_nanos() / SLOT.as_nanos()) as u64;
        let mut counts = [0u64; BUCKETS];
        let mut max = 0;
        for slot in &self.slots {
            let holds = slot.number.load(Ordering::Relaxed);
            if holds == u64::MAX || holds + SLOTS as u64 <= number {
                continue;
            }
            for (sum, count) in counts.iter_mut().zip(&slot.counts) {
                *sum += count.load(Ordering::Relaxed);
            }
            max = max.max(slot.max.load(Ordering::Relaxed));
        }
        let count: u64 = counts.iter().sum();
        let quantile = |share: f64| {
            let wanted = ((count as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            Duration::from_micros(found.map_or(0, ceiling).min(max))
        };
        LatencyReport {
            count,
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: Duration::from_micros(max),
            total: self.count.load(Ordering::Relaxed),
            sum: Duration::from_micros(self.sum.load(Ordering::Relaxed)),
        }
    }
}

/// The times of the messages of a batch that is not committed yet. Noting one costs a push; what happens to the batch decides what
/// becomes of them.
#[derive(Debug, Default)]
pub struct Delays {
    times: Vec<Timestamp>,
}

/// More messages than this in one batch are not noted.
const NOTED: usize = 1 << 16;

impl Delays {
    /// Notes a message of the batch, with the time of the command behind it.
    pub fn note(&mut self, time: Timestamp) {
        if self.times.len() < NOTED {
            self.times.push(time);
        }
    }

    /// The batch is committed: its messages took until now, by the clock of this machine.
    pub fn committed(&mut self, latency: &Latency) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        // Messages of one command have one time.
        for group in self.times.chunk_by(|a, b| a == b) {
            let micros = now.saturating_sub(group[0].0).max(0) as u64;
            latency.record(Duration::from_micros(micros), group.len() as u64);
        }
        self.times.clear();
    }

    /// The batch came to nothing.
    pub fn failed(&mut self) {
        self.times.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_delay_is_at_most_its_buckets_ceiling_and_close_to_it() {
        for micros in (1..100_000).chain((0..43).map(|bits| 1u64 << bits)) {
            let ceiling = ceiling(bucket(micros));
            let last = bucket(micros) == BUCKETS - 1;
            assert!(
                last || (micros <= ceiling && ceiling as f64 <= micros as f64 * 1.126 + 1.0),
                "{micros} {ceiling}"
            );
        }
    }

    #[test]
    fn quantiles_are_of_the_last_minute() {
        let latency = Latency::new();
        let ms = Duration::from_millis;
        latency.record_at(Duration::from_secs(1), ms(5000), 10);
        latency.record_at(Duration::from_secs(100), ms(10), 98);
        latency.record_at(Duration::from_secs(110), ms(200), 2);
        let report = latency.report_at(Duration::from_secs(111));
        assert_eq!((report.count, report.total, report.max), (100, 110, ms(200)));
        assert!(report.p50 >= ms(10) && report.p50 < ms(12), "{report:?}");
        assert_eq!(report.p99, ms(200));
        let later = latency.report_at(Duration::from_secs(300));
        assert_eq!((later.count, later.p99, later.total), (0, Duration::ZERO, 110));
    }

    #[test]
    fn a_batch_counts_when_it_is_committed() {
        let (latency, mut delays) = (Latency::new(), Delays::default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
        delays.note(Timestamp(now));
        delays.failed();
        for _ in 0..3 {
            delays.note(Timestamp(now - 2_000_000));
        }
        assert_eq!(latency.report().count, 0);
        delays.committed(&latency);
        let report = latency.report();
        assert!(report.count == 3 && report.p50 >= Duration::from_secs(2), "{report:?}");
        delays.committed(&latency);
        assert_eq!(latency.report().count, 3);
        // A clock that went back.
        delays.note(Timestamp(now + 60_000_000));
        delays.committed(&latency);
        assert_eq!(latency.report().count, 4);
    }
}
