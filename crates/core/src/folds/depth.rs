//! Depth: copies of a book by price level, as streams carry them.
//!
//! Quantities are absolute: a level says what the total at a price now is, zero that it is gone. Update numbers have no holes, so a copy
//! knows when it missed something ([`DepthError::Gap`]), and repeating an update changes nothing.
//!
//! [`DepthBook`] is the copy, [`DiffBuilder`] gathers level changes into the messages of a diff stream (`U`, `u`, `pu`), and
//! [`DepthSync`] is the client's side of it: buffer, snapshot, go on, and ask for a snapshot again after a gap.

use crate::event::Level;
use crate::money::{Price, Qty};
use crate::order::Side;
use std::collections::{BTreeMap, VecDeque};

/// Why a copy is not to be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DepthError {
    /// Updates are missing.
    #[error("depth update {expected} is missing, {got} came: take a new snapshot")]
    Gap {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// The best bid is not below the best ask: a change was lost.
    #[error("the copy is crossed at update {update_id}: take a new snapshot")]
    Crossed {
        /// The update after which it was.
        update_id: u64,
    },
}

/// Whether an update changed the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was the next one.
    Yes,
    /// It was seen before, and dropped.
    Duplicate,
}

/// A book by price level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DepthBook {
    bids: BTreeMap<Price, Qty>,
    asks: BTreeMap<Price, Qty>,
    update_id: u64,
}

impl DepthBook {
    /// An empty book before update 1.
    pub fn new() -> DepthBook {
        DepthBook::default()
    }

    /// The book of a snapshot. Levels in any order; those with zero quantity are left out.
    pub fn from_snapshot(
        update_id: u64,
        bids: impl IntoIterator<Item = (Price, Qty)>,
        asks: impl IntoIterator<Item = (Price, Qty)>,
    ) -> DepthBook {
        let some = |(_, qty): &(Price, Qty)| qty.0 > 0;
        DepthBook {
            bids: bids.into_iter().filter(some).collect(),
            asks: asks.into_iter().filter(some).collect(),
            update_id,
        }
    }

    /// Number of the last update in it.
    pub fn update_id(&self) -> u64 {
        self.update_id
    }

    /// Sets the total at a price; zero (or less) removes the level. Leaves the update number alone.
    pub fn set(&mut self, side: Side, price: Price, qty: Qty) {
        let levels = match side {
            Side::Buy => &mut self.bids,
            Side::Sell => &mut self.asks,
        };
        if qty.0 > 0 {
            levels.insert(price, qty);
        } else {
            levels.remove(&price);
        }
    }

    /// Takes the engine's next level change.
    pub fn apply(&mut self, level: &Level) -> Result<Applied, DepthError> {
        let expected = self.update_id + 1;
        if level.update_id < expected {
            return Ok(Applied::Duplicate);
        }
        if level.update_id > expected {
            return Err(DepthError::Gap { expected, got: level.update_id });
        }
        self.set(level.side, level.price, level.qty);
        self.update_id = level.update_id;
        Ok(Applied::Yes)
    }

    /// Takes a message of a diff stream: one whose last update is in the copy is dropped, one that begins beyond the next is a gap. After
    /// an error the book is as before, except for [`DepthError::Crossed`].
    pub fn apply_diff(&mut self, diff: &DepthDiff) -> Result<Applied, DepthError> {
        let expected = self.update_id + 1;
        if diff.last < expected {
            return Ok(Applied::Duplicate);
        }
        if diff.first > expected {
            return Err(DepthError::Gap { expected, got: diff.first });
        }
        for (side, levels) in [(Side::Buy, &diff.bids), (Side::Sell, &diff.asks)] {
            for (price, qty) in levels {
                self.set(side, *price, *qty);
            }
        }
        self.update_id = diff.last;
        if self.is_crossed() { Err(DepthError::Crossed { update_id: diff.last }) } else { Ok(Applied::Yes) }
    }

    /// The levels of a side, best first.
    pub fn levels(&self, side: Side) -> Levels<'_> {
        match side {
            Side::Buy => Levels::Bids(self.bids.iter().rev()),
            Side::Sell => Levels::Asks(self.asks.iter()),
        }
    }

    /// The best level of a side.
    pub fn best(&self, side: Side) -> Option<(Price, Qty)> {
        self.levels(side).next()
    }

    /// The total at a price; zero when there is no such level.
    pub fn qty(&self, side: Side, price: Price) -> Qty {
        let levels = match side {
            Side::Buy => &self.bids,
            Side::Sell => &self.asks,
        };
        levels.get(&price).copied().unwrap_or(Qty::ZERO)
    }

    /// How many levels a side has.
    pub fn len(&self, side: Side) -> usize {
        match side {
            Side::Buy => self.bids.len(),
            Side::Sell => self.asks.len(),
        }
    }

    /// Whether there are no levels at all.
    pub fn is_empty(&self) -> bool {
        self.bids.is_empty() && self.asks.is_empty()
    }

    /// Whether the best bid is not below the best ask.
    pub fn is_crossed(&self) -> bool {
        match (self.best(Side::Buy), self.best(Side::Sell)) {
            (Some((bid, _)), Some((ask, _))) => bid >= ask,
            _ => false,
        }
    }

    /// Keeps the best `most` levels of each side. Feeds with a fixed number of levels (Kraken) do not say when a level falls off the end.
    pub fn truncate(&mut self, most: usize) {
        while self.bids.len() > most {
            self.bids.pop_first();
        }
        while self.asks.len() > most {
            self.asks.pop_last();
        }
    }
}

/// The levels of one side, best first.
#[derive(Clone, Debug)]
pub enum Levels<'a> {
    /// Highest first.
    Bids(std::iter::Rev<std::collections::btree_map::Iter<'a, Price, Qty>>),
    /// Lowest first.
    Asks(std::collections::btree_map::Iter<'a, Price, Qty>),
}

impl Iterator for Levels<'_> {
    type Item = (Price, Qty);

    fn next(&mut self) -> Option<(Price, Qty)> {
        let level = match self {
            Levels::Bids(levels) => levels.next(),
            Levels::Asks(levels) => levels.next(),
        };
        level.map(|(price, qty)| (*price, *qty))
    }
}

/// One message of a diff stream: the changes of updates `first` to `last`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DepthDiff {
    /// First update in it (`U`).
    pub first: u64,
    /// Last update in it (`u`).
    pub last: u64,
    /// Last update of the message before (`pu`); 0 when this is the first.
    pub previous: u64,
    /// New totals of bid levels, best first; zero for a level that is gone.
    pub bids: Vec<(Price, Qty)>,
    /// New totals of ask levels, best first.
    pub asks: Vec<(Price, Qty)>,
}

/// Gathers level changes into diffs. When a level changes several times before a diff is taken, only its last total is told.
#[derive(Clone, Debug, Default)]
pub struct DiffBuilder {
    bids: BTreeMap<Price, Qty>,
    asks: BTreeMap<Price, Qty>,
    first: u64,
    last: u64,
    previous: u64,
}

impl DiffBuilder {
    /// Begins after update `update_id`.
    pub fn after(update_id: u64) -> DiffBuilder {
        DiffBuilder { last: update_id, previous: update_id, ..DiffBuilder::default() }
    }

    /// Takes the next level change. A gap is refused: then the builder has to begin anew.
    pub fn add(&mut self, level: &Level) -> Result<Applied, DepthError> {
        let expected = self.last + 1;
        if level.update_id < expected {
            return Ok(Applied::Duplicate);
        }
        if level.update_id > expected {
            return Err(DepthError::Gap { expected, got: level.update_id });
        }
        if self.is_empty() {
            self.first = level.update_id;
        }
        self.last = level.update_id;
        match level.side {
            Side::Buy => self.bids.insert(level.price, level.qty),
            Side::Sell => self.asks.insert(level.price, level.qty),
        };
        Ok(Applied::Yes)
    }

    /// Whether nothing changed since the last diff.
    pub fn is_empty(&self) -> bool {
        self.bids.is_empty() && self.asks.is_empty()
    }

    /// The diff since the last one, when something changed.
    pub fn take(&mut self) -> Option<DepthDiff> {
        if self.is_empty() {
            return None;
        }
        let diff = DepthDiff {
            first: self.first,
            last: self.last,
            previous: self.previous,
            bids: std::mem::take(&mut self.bids).into_iter().rev().collect(),
            asks: std::mem::take(&mut self.asks).into_iter().collect(),
        };
        self.previous = self.last;
        Some(diff)
    }
}

/// The most diffs that wait for a snapshot; when more come the oldest is dropped, which the snapshot then shows as a gap.
pub const MOST_BUFFERED: usize = 1000;

/// A client's copy of a book from a diff stream and snapshots (Binance, "How to manage a local order book correctly").
#[derive(Clone, Debug, Default)]
pub struct DepthSync {
    book: Option<DepthBook>,
    waiting: VecDeque<DepthDiff>,
}

impl DepthSync {
    /// Without a snapshot yet.
    pub fn new() -> DepthSync {
        DepthSync::default()
    }

    /// The copy, while it is good.
    pub fn book(&self) -> Option<&DepthBook> {
        self.book.as_ref()
    }

    /// Whether a snapshot has to be fetched.
    pub fn needs_snapshot(&self) -> bool {
        self.book.is_none()
    }

    /// Takes the stream's next message: applied when there is a copy, else kept for the snapshot. After an error the copy is gone, and the
    /// message waits for the next snapshot.
    pub fn on_diff(&mut self, diff: DepthDiff) -> Result<(), DepthError> {
        let result = match &mut self.book {
            Some(book) => book.apply_diff(&diff).map(|_| ()),
            None => {
                self.wait(diff);
                return Ok(());
            }
        };
        if result.is_err() {
            self.book = None;
            self.wait(diff);
        }
        result
    }

    /// Takes a snapshot, drops what it already has, and applies the rest. An error says that the snapshot is too old (or contradicts the
    /// stream): fetch another one.
    pub fn on_snapshot(&mut self, mut snapshot: DepthBook) -> Result<(), DepthError> {
        self.waiting.retain(|diff| diff.last > snapshot.update_id());
        for diff in &self.waiting {
            snapshot.apply_diff(diff)?;
        }
        self.waiting.clear();
        self.book = Some(snapshot);
        Ok(())
    }

    fn wait(&mut self, diff: DepthDiff) {
        if self.waiting.len() == MOST_BUFFERED {
            self.waiting.pop_front();
        }
        self.waiting.push_back(diff);
    }
}
