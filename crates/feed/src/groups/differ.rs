//! The check of a new version: the outputs of both groups, symbol by symbol and number by number.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::GroupName;
use crate::symbol::Symbol;

/// What is compared of one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Epoch of the tick after which it was made.
    pub epoch: u32,
    /// Number of that tick.
    pub seq: u64,
    /// The latest price, in 10⁻⁸.
    pub last: i64,
    /// A hash over the running candles.
    pub candles: u64,
    /// A hash over everything that was put out.
    pub hash: u64,
}

/// In what two outputs differ: the first that does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The latest prices.
    Last,
    /// The candles.
    Candles,
    /// Something else that is put out.
    Output,
}

impl DifferenceKind {
    /// `last`, `candles` or `output`.
    pub fn as_str(self) -> &'static str {
        match self {
            DifferenceKind::Last => "last",
            DifferenceKind::Candles => "candles",
            DifferenceKind::Output => "output",
        }
    }
}

/// The first output of a symbol in which the groups differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Of which symbol.
    pub symbol: Symbol,
    /// In what.
    pub kind: DifferenceKind,
    /// What A put out.
    pub a: Mark,
    /// What B put out.
    pub b: Mark,
}

/// The marks of a symbol that wait for the other group's.
#[derive(Debug, Default)]
struct Pair {
    waiting: [VecDeque<Mark>; 2],
    difference: Option<(DifferenceKind, Mark, Mark)>,
    compared: u64,
}

/// Compares outputs as they come.
///
/// **Bounded:** of each symbol at most [`Differ::KEPT`] marks of one group wait for the other's; the oldest goes then, and is counted. A group that
/// merges ticks under load puts out fewer marks: what only one of them has put out is skipped, not taken for a difference.
#[derive(Debug, Default)]
pub struct Differ {
    pairs: FxHashMap<Symbol, Pair>,
    skipped: u64,
}

impl Differ {
    /// Marks of one symbol and group that wait.
    pub const KEPT: usize = 256;

    /// One that has seen nothing.
    pub fn new() -> Differ {
        Differ::default()
    }

    /// Takes an output of a group. Outputs of a symbol and group come in rising order; others are ignored.
    pub fn take(&mut self, group: GroupName, symbol: Symbol, mark: Mark) {
        let pair = self.pairs.entry(symbol).or_default();
        let (mine, theirs) = (group.index(), group.other().index());
        if pair.waiting[mine].back().is_some_and(|last| place(last) >= place(&mark)) {
            return;
        }
        while let Some(other) = pair.waiting[theirs].front() {
            if place(other) < place(&mark) {
                // This group has nothing at that place.
                pair.waiting[theirs].pop_front();
                self.skipped += 1;
            } else if place(other) > place(&mark) {
                self.skipped += 1;
                return;
            } else {
                let other = *other;
                pair.waiting[theirs].pop_front();
                pair.compared += 1;
                if pair.difference.is_none() {
                    let (a, b) = if group == GroupName::A { (mark, other) } else { (other, mark) };
                    pair.difference = differs(&a, &b).map(|kind| (kind, a, b));
                }
                return;
            }
        }
        if pair.waiting[mine].len() == Differ::KEPT {
            pair.waiting[mine].pop_front();
            self.skipped += 1;
        }
        pair.waiting[mine].push_back(mark);
    }

    /// The first difference of each symbol that has one, by symbol.
    pub fn differences(&self) -> Vec<Difference> {
        let mut found: Vec<Difference> = self
            .pairs
            .iter()
            .filter_map(|(symbol, pair)| {
                let (kind, a, b) = pair.difference?;
                Some(Difference { symbol: *symbol, kind, a, b })
            })
            .collect();
        found.sort_by_key(|difference| difference.symbol);
        found
    }

    /// In how many symbols the groups differ.
    pub fn differing(&self) -> u64 {
        self.pairs.values().filter(|pair| pair.difference.is_some()).count() as u64
    }

    /// Symbols that either group has put out.
    pub fn symbols(&self) -> usize {
        self.pairs.len()
    }

    /// Outputs that were compared, and those that only one group had.
    pub fn counts(&self) -> (u64, u64) {
        (self.pairs.values().map(|pair| pair.compared).sum(), self.skipped)
    }

    /// Forgets all, as when a group has been rebuilt.
    pub fn clear(&mut self) {
        self.pairs.clear();
        self.skipped = 0;
    }
}

fn place(mark: &Mark) -> (u32, u64) {
    (mark.epoch, mark.seq)
}

fn differs(a: &Mark, b: &Mark) -> Option<DifferenceKind> {
    if a.last != b.last {
        Some(DifferenceKind::Last)
    } else if a.candles != b.candles {
        Some(DifferenceKind::Candles)
    } else if a.hash != b.hash {
        Some(DifferenceKind::Output)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seq: u64) -> Mark {
        Mark { epoch: 1, seq, last: seq as i64 * 10, candles: seq ^ 7, hash: seq * 31 }
    }

    fn symbol(name: &str) -> Symbol {
        Symbol::parse(name).unwrap()
    }

    #[test]
    fn equal_groups_have_no_difference_however_far_apart_they_are() {
        for ahead in [0, 1, 7, Differ::KEPT as u64 - 1] {
            let mut differ = Differ::new();
            for seq in 1..=1000 + ahead {
                if seq <= 1000 {
                    differ.take(GroupName::A, symbol("X"), mark(seq));
                }
                if seq > ahead {
                    differ.take(GroupName::B, symbol("X"), mark(seq - ahead));
                }
            }
            assert_eq!(differ.differences(), []);
            assert_eq!(differ.counts(), (1000, 0));
        }
    }

    #[test]
    fn the_first_difference_is_named_by_symbol_number_and_kind() {
        let mut differ = Differ::new();
        for seq in 1..=100 {
            for name in ["X", "Y", "Z"] {
                differ.take(GroupName::A, symbol(name), mark(seq));
                let mut of_b = mark(seq);
                match (name, seq) {
                    ("Y", 40..) => of_b.candles += 1,
                    ("Z", 77) => of_b.last += 1,
                    ("Z", 90..) => of_b.hash += 1,
                    _ => {}
                }
                differ.take(GroupName::B, symbol(name), of_b);
            }
        }
        let found = differ.differences();
        let found: Vec<_> = found.iter().map(|d| (d.symbol.as_str(), d.kind, d.a.seq, d.b.seq)).collect();
        assert_eq!(found, [("Y", DifferenceKind::Candles, 40, 40), ("Z", DifferenceKind::Last, 77, 77)]);
    }

    #[test]
    fn what_only_one_group_has_put_out_is_no_difference() {
        let mut differ = Differ::new();
        // B merges three ticks at a time.
        for seq in 1..=99 {
            differ.take(GroupName::A, symbol("X"), mark(seq));
            if seq % 3 == 0 {
                differ.take(GroupName::B, symbol("X"), mark(seq));
            }
        }
        assert_eq!((differ.differences(), differ.counts()), (vec![], (33, 66)));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut differ = Differ::new();
        for seq in 1..=10 * Differ::KEPT as u64 {
            differ.take(GroupName::A, symbol("X"), mark(seq));
        }
        assert_eq!(differ.pairs[&symbol("X")].waiting[0].len(), Differ::KEPT);
        assert_eq!(differ.counts(), (0, 9 * Differ::KEPT as u64));
    }
}
