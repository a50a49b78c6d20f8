//! Delays in a small histogram: one for each symbol of thousands.

/// Parts of an octave.
const PARTS: u64 = 4;
/// Everything up to this many microseconds is one bucket.
const FLOOR: u64 = 16;
/// Up to 16 µs × 2²⁶, eighteen minutes; what is longer is in the last.
const BUCKETS: usize = 26 * PARTS as usize + 1;

/// Counts of delays: buckets a quarter of an octave wide, so a percentile is at most a fifth too high. 420 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    counts: [u32; BUCKETS],
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { counts: [0; BUCKETS] }
    }
}

impl Delays {
    /// Counts a delay in microseconds. One below zero (the source's clock is ahead) counts as none.
    pub fn record(&mut self, micros: i64) {
        let count = &mut self.counts[bucket(micros.max(0) as u64)];
        *count = count.saturating_add(1);
    }

    /// The delay in microseconds that this part of all (0 to 1) is not above, rounded up to its bucket; `None` when there are none.
    pub fn at(&self, part: f64) -> Option<u64> {
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        if total == 0 {
            return None;
        }
        let wanted = ((part * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        });
        Some(upper(found.unwrap_or(BUCKETS - 1)))
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Delays) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for count in self.counts {
            out.extend_from_slice(&count.to_le_bytes());
        }
    }

    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Delays> {
        let mut delays = Delays::default();
        for count in &mut delays.counts {
            *count = u32::from_le_bytes(super::take(bytes)?);
        }
        Some(delays)
    }
}

fn bucket(micros: u64) -> usize {
    if micros <= FLOOR {
        return 0;
    }
    // Above the floor: the octave, and in which quarter of it. A bucket holds what is above its lower edge, up to and with its upper one.
    let above = micros - 1;
    let octave = u64::from(above.ilog2() - FLOOR.ilog2());
    let part = (above >> (above.ilog2() - PARTS.ilog2())) & (PARTS - 1);
    ((octave * PARTS + part + 1) as usize).min(BUCKETS - 1)
}

/// The highest delay of a bucket.
fn upper(bucket: usize) -> u64 {
    let Some(above) = (bucket as u64).checked_sub(1) else { return FLOOR };
    let (octave, part) = (above / PARTS, above % PARTS);
    (FLOOR << octave) / PARTS * (PARTS + part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_delay_is_in_a_bucket_that_reaches_a_fifth_above_it(micros in FLOOR..(FLOOR << 26)) {
            let upper = upper(bucket(micros));
            prop_assert!(upper >= micros && upper - micros <= micros / 4 + 4, "{micros}: {upper}");
        }

        #[test]
        fn percentiles_are_those_of_all_delays_rounded_up(mut delays in proptest::collection::vec(0..10_000_000i64, 1..200)) {
            let mut found = Delays::default();
            for delay in &delays {
                found.record(*delay);
            }
            delays.sort_unstable();
            for part in [0.5, 0.9, 0.99, 1.0] {
                let exact = delays[((part * delays.len() as f64).ceil() as usize).max(1) - 1] as u64;
                prop_assert_eq!(found.at(part), Some(upper(bucket(exact))));
            }
        }
    }

    #[test]
    fn the_edges_hold() {
        assert_eq!(Delays::default().at(0.5), None);
        let mut delays = Delays::default();
        for micros in [-5, 0, 16] {
            delays.record(micros);
        }
        assert_eq!(delays.at(1.0), Some(16));
        delays.record(i64::MAX);
        assert_eq!(delays.at(1.0), Some(FLOOR << 26));
        assert_eq!((bucket(17), upper(1)), (1, 20));
        assert_eq!((bucket(20), bucket(21), bucket(32), bucket(33)), (1, 2, 4, 5));
    }
}
