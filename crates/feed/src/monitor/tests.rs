use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// All numbers seen, as a set.
#[derive(Default)]
struct Naive {
    epoch: u32,
    seen: BTreeSet<u64>,
    lost_before: u64,
    counts: Counts,
}

impl Naive {
    fn number(&mut self, epoch: u32, seq: u64) -> &'static str {
        self.counts.ticks += 1;
        if epoch < self.epoch {
            self.counts.steps_back += 1;
            return "back";
        }
        if epoch > self.epoch {
            self.lost_before += self.missing();
            self.seen.clear();
            self.epoch = epoch;
        }
        let highest = self.seen.last().copied().unwrap_or(0);
        if self.seen.contains(&seq) {
            self.counts.duplicates += 1;
            "duplicate"
        } else if seq < highest {
            self.seen.insert(seq);
            self.counts.violations += 1;
            "late"
        } else {
            self.seen.insert(seq);
            "new"
        }
    }

    fn missing(&self) -> u64 {
        self.seen.last().copied().unwrap_or(0) - self.seen.len() as u64
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::New { .. } => "new",
        Verdict::Late => "late",
        Verdict::Duplicate => "duplicate",
        Verdict::StepBack => "back",
    }
}

proptest! {
    #[test]
    fn it_says_what_the_set_of_all_numbers_says(
        numbers in proptest::collection::vec((0..20u32, 1..60u64), 1..300),
        takeover in 0..300usize,
    ) {
        let (mut order, mut naive) = (SymbolOrder::new(), Naive::default());
        for (at, (epoch, seq)) in numbers.into_iter().enumerate() {
            // Mostly the same epoch, now and then a higher one, and one that comes from before.
            let epoch = if epoch == 0 { naive.epoch + 1 } else { naive.epoch - u32::from(epoch == 1 && naive.epoch > 0) };
            if at == takeover {
                let mut bytes = Vec::new();
                order.encode(&mut bytes);
                bytes.extend_from_slice(b"more");
                let mut rest = bytes.as_slice();
                let again = SymbolOrder::decode(&mut rest).unwrap();
                prop_assert_eq!(rest, b"more");
                prop_assert_eq!(&again, &order);
                order = again;
            }
            prop_assert_eq!(word(order.number(epoch, seq)), naive.number(epoch, seq));
            prop_assert_eq!(order.counts().lost(), naive.lost_before + naive.missing());
            let counts = Counts { gaps: order.counts().gaps, ..naive.counts };
            prop_assert_eq!(order.counts(), &counts);
            prop_assert_eq!(order.is_stale(), naive.missing() > 0);
            let highest = naive.seen.last().copied().unwrap_or(0);
            let missing: Vec<u64> = order.missing().flat_map(|(first, last)| first..=last).collect();
            let expected: Vec<u64> = (1..=highest).filter(|seq| !naive.seen.contains(seq)).collect();
            prop_assert_eq!(missing, expected);
        }
    }

    #[test]
    fn damaged_states_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        let _ = SymbolOrder::decode(&mut bytes.as_slice());
        let mut order = SymbolOrder::new();
        for seq in [3, 9, 20] {
            order.number(1, seq);
        }
        let mut good = Vec::new();
        order.encode(&mut good);
        for cut in 0..good.len() {
            prop_assert!(SymbolOrder::decode(&mut &good[..cut]).is_err());
        }
        if let Some(byte) = bytes.first() {
            let at = bytes.len() % good.len();
            good[at] ^= byte;
            let _ = SymbolOrder::decode(&mut good.as_slice());
        }
    }
}

#[test]
fn a_gap_counts_numbers_and_a_number_seen_before_is_no_violation() {
    let mut order = SymbolOrder::new();
    assert_eq!(order.number(1, 1), Verdict::New { skipped: 0 });
    assert_eq!(order.number(1, 5), Verdict::New { skipped: 3 });
    assert_eq!(order.number(1, 1), Verdict::Duplicate);
    assert_eq!(order.number(1, 3), Verdict::Late);
    assert_eq!(order.number(1, 3), Verdict::Duplicate);
    let counts = order.counts();
    assert_eq!((counts.gaps, counts.violations, counts.duplicates, counts.lost()), (3, 1, 2, 2));
    assert_eq!(order.missing().collect::<Vec<_>>(), [(2, 2), (4, 4)]);
}

#[test]
fn what_it_remembers_is_bounded_and_the_newest() {
    let mut order = SymbolOrder::new();
    let ranges = SymbolOrder::RANGES as u64;
    for n in 1..=2 * ranges {
        order.number(1, 2 * n);
    }
    assert_eq!(order.missing().count() as u64, ranges);
    assert_eq!(order.counts().lost(), 2 * ranges);
    assert_eq!(order.number(1, 1), Verdict::Duplicate, "forgotten");
    assert_eq!(order.number(1, 4 * ranges - 1), Verdict::Late);
}
