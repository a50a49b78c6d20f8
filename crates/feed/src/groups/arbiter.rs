//! Whichever comes first: two streams of the same numbered outputs become one.

use rustc_hash::FxHashMap;

use super::GroupName;
use crate::symbol::Symbol;

/// Lets the first of each output through and drops the second: for readers of latest values, where a newer output stands for all before it.
///
/// **Law:** what is let through of a symbol only rises by (epoch, seq), whatever the two groups send and in which order, and the highest that
/// either has sent was let through.
#[derive(Debug, Default)]
pub struct Arbiter {
    last: FxHashMap<Symbol, (u32, u64)>,
    first: [u64; 2],
    dropped: u64,
}

impl Arbiter {
    /// One that has seen nothing.
    pub fn new() -> Arbiter {
        Arbiter::default()
    }

    /// Whether this output is newer than all before it of its symbol.
    pub fn take(&mut self, from: GroupName, symbol: Symbol, epoch: u32, seq: u64) -> bool {
        let last = self.last.entry(symbol).or_default();
        if (epoch, seq) <= *last {
            self.dropped += 1;
            return false;
        }
        *last = (epoch, seq);
        self.first[from.index()] += 1;
        true
    }

    /// How often a group's output was the first.
    pub fn first(&self, group: GroupName) -> u64 {
        self.first[group.index()]
    }

    /// Outputs that came second, or late.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Two groups send parts of the same numbers, each rising, mixed in any way.
        #[test]
        fn what_comes_out_only_rises_and_ends_at_the_highest(
            sent in proptest::collection::vec((any::<bool>(), 0..3usize, 1..4u64), 1..300),
        ) {
            let symbols = ["A", "B", "C"].map(|name| Symbol::parse(name).unwrap());
            let mut arbiter = Arbiter::new();
            let mut next = [[0u64; 3]; 2];
            let mut out: [Vec<u64>; 3] = Default::default();
            for (of_b, symbol, step) in &sent {
                let group = if *of_b { GroupName::B } else { GroupName::A };
                let seq = &mut next[group.index()][*symbol];
                *seq += step;
                if arbiter.take(group, symbols[*symbol], 1, *seq) {
                    out[*symbol].push(*seq);
                }
            }
            for (symbol, out) in out.iter().enumerate() {
                prop_assert!(out.is_sorted_by(|a, b| a < b));
                prop_assert_eq!(out.last().copied().unwrap_or(0), next[0][symbol].max(next[1][symbol]));
            }
            let through = arbiter.first(GroupName::A) + arbiter.first(GroupName::B);
            prop_assert_eq!(through + arbiter.dropped(), sent.len() as u64);
        }
    }

    #[test]
    fn a_higher_epoch_begins_anew_and_a_lower_one_is_dropped() {
        let (mut arbiter, symbol) = (Arbiter::new(), Symbol::parse("A").unwrap());
        assert!(arbiter.take(GroupName::A, symbol, 1, 100));
        assert!(arbiter.take(GroupName::B, symbol, 2, 1));
        assert!(!arbiter.take(GroupName::A, symbol, 1, 101));
        assert!(!arbiter.take(GroupName::A, symbol, 2, 1));
    }
}
