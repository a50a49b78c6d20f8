//! The book of one market: price levels, and in each the orders in the order of their arrival. Whole numbers only; it knows nothing of
//! accounts, fees or order types.
//!
//! An order is a 32-byte node in a slab, linked to its neighbours of the same price; what else is known of it lies with the caller under
//! the node's `handle`. A level holds its first and last order and the total. Each side is a `ladder` of levels. An order is found by id
//! through a `table` of eight bytes an entry. Nothing is allocated once the slabs have grown to the largest size of the book so far.
//!
//! The conditional orders of a market wait in a second book, by trigger price: what waits for a fall lies on the buying side (the highest
//! trigger is the best), what waits for a rise on the selling side.
//!
//! **Invariants:** orders of one level are linked in the order of arrival; a level's total is the sum of its orders' quantities and fits an
//! `i64`; no level is empty; each id is in the book once; prices are not negative and quantities positive. Whether the book is crossed is the
//! caller's affair: [`Book::add`] and [`Book::modify`] match first and never leave it crossed.

mod ladder;
pub(crate) mod table;

use crate::order::Side;
use ladder::Ladder;
pub(crate) use table::NO_SLOT;
use table::{Table, sequence_hash};

/// Where an order lies in the book; valid until the order leaves it.
pub type Slot = u32;

/// An order as it rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resting {
    /// Where it lies.
    pub slot: Slot,
    /// Its id.
    pub id: u64,
    /// What the caller gave.
    pub handle: u32,
    /// Its side.
    pub side: Side,
    /// Its price.
    pub price: i64,
    /// What is left of it.
    pub qty: i64,
}

/// All orders at one price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelView {
    /// The price.
    pub price: i64,
    /// The sum of the quantities.
    pub total: i64,
    /// How many orders.
    pub orders: u32,
}

/// A match: the taker is the order that is being added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The resting order.
    pub maker: u64,
    /// Its price, at which they trade.
    pub price: i64,
    /// How much.
    pub qty: i64,
}

/// Why an order cannot rest or be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// An order with this id is in the book: cancel it first or take another id.
    #[error("order {0} is in the book already")]
    DuplicateId(u64),
    /// The level's total would not fit.
    #[error("the total at price {0} would not fit 64 bits")]
    LevelFull(i64),
    /// A negative price, or a quantity that is not positive.
    #[error("price {price} or quantity {qty} is out of range")]
    OutOfRange {
        /// The price.
        price: i64,
        /// The quantity.
        qty: i64,
    },
    /// No order with this id, or it is on the other side.
    #[error("no order {0} in the book on that side")]
    UnknownId(u64),
}

#[derive(Clone, Copy, Debug)]
struct Node {
    id: u64,
    qty: i64,
    previous: u32,
    /// The next order of the level; in a free node the next free one.
    next: u32,
    level: u32,
    handle: u32,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    price: i64,
    total: i64,
    /// The oldest order; in a free level the next free one.
    head: u32,
    tail: u32,
    orders: u32,
    side: Side,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Book {
    nodes: Vec<Node>,
    free_node: u32,
    levels: Vec<Level>,
    free_level: u32,
    /// By side.
    ladders: [Ladder; 2],
    /// Levels by a hash of side and price, as far as they were used lately: most orders join a level that is there, and find it here
    /// without a search. A hint is checked against the level itself, so that it need not be kept up to date.
    hints: Box<[u32; HINTS]>,
    index: Table,
    len: usize,
    /// The sum of all quantities. While it fits an `i64`, every level's total does, and no level has to be looked at.
    volume: i128,
}

impl Default for Book {
    fn default() -> Book {
        Book::new()
    }
}

const HINTS: usize = 512;

/// Where the hint of a side and price lies.
#[inline]
fn hint_of(side: Side, price: i64) -> usize {
    let hash = (price as u64).wrapping_add(side as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (u64::BITS - HINTS.ilog2())) as usize
}

/// A key that grows towards the better price.
#[inline]
fn key_of(side: Side, price: i64) -> i64 {
    // `price` for the buying side, `!price` for the selling side, without a branch: sides alternate at random.
    price ^ -(side as i64)
}

impl Book {
    /// An empty book.
    pub fn new() -> Book {
        Book {
            nodes: Vec::new(),
            free_node: NO_SLOT,
            levels: Vec::new(),
            free_level: NO_SLOT,
            ladders: [Ladder::new(), Ladder::new()],
            hints: Box::new([NO_SLOT; HINTS]),
            index: Table::with_room(512),
            len: 0,
            volume: 0,
        }
    }

    /// How many orders rest.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none rests.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn ladder(&self, side: Side) -> &Ladder {
        &self.ladders[side as usize]
    }

    #[inline]
    fn ladder_mut(&mut self, side: Side) -> &mut Ladder {
        &mut self.ladders[side as usize]
    }

    /// The order with this id.
    #[inline]
    pub fn find(&self, id: u64) -> Option<Slot> {
        self.index.find(sequence_hash(id), |slot| self.nodes[slot as usize].id == id)
    }

    /// The order in a slot.
    ///
    /// # Panics
    /// May panic, or show another order, when the slot's order has left the book.
    #[inline]
    pub fn get(&self, slot: Slot) -> Resting {
        let node = &self.nodes[slot as usize];
        let level = &self.levels[node.level as usize];
        Resting {
            slot,
            id: node.id,
            handle: node.handle,
            side: level.side,
            price: level.price,
            qty: node.qty,
        }
    }

    /// What the caller gave with the order in a slot; cheaper than [`Book::get`].
    #[inline]
    pub fn handle(&self, slot: Slot) -> u32 {
        self.nodes[slot as usize].handle
    }

    /// The best price of a side.
    #[inline]
    pub fn best(&self, side: Side) -> Option<i64> {
        // The key of a side is its own inverse.
        self.ladder(side).best().map(|(key, _)| key_of(side, key))
    }

    /// The worst price of a side.
    pub fn worst(&self, side: Side) -> Option<i64> {
        self.ladder(side).worst().map(|key| key_of(side, key))
    }

    /// The order that trades next on a side: the oldest at the best price.
    #[inline]
    pub fn front(&self, side: Side) -> Option<Resting> {
        let (_, level) = self.ladder(side).best()?;
        Some(self.get(self.levels[level as usize].head))
    }

    /// The total at a price; zero when nothing rests there.
    #[inline]
    pub fn total_at(&self, side: Side, price: i64) -> i64 {
        self.ladder(side).find(key_of(side, price)).map_or(0, |level| self.levels[level as usize].total)
    }

    /// Whether a level's total still fits when `qty` more rests at a price.
    #[inline]
    pub fn has_room(&self, side: Side, price: i64, qty: i64) -> bool {
        self.volume + i128::from(qty) <= i128::from(i64::MAX)
            || self.total_at(side, price).checked_add(qty).is_some()
    }

    /// How many prices of a side have orders.
    pub fn level_count(&self, side: Side) -> usize {
        self.ladder(side).len()
    }

    /// The levels of a side, best first.
    pub fn levels(&self, side: Side) -> impl Iterator<Item = LevelView> + '_ {
        self.ladder(side).iter().map(|level| {
            let level = &self.levels[level as usize];
            LevelView { price: level.price, total: level.total, orders: level.orders }
        })
    }

    /// The orders of a side as they would trade.
    pub fn walk(&self, side: Side) -> impl Iterator<Item = Resting> + '_ {
        self.ladder(side).iter().flat_map(move |level| {
            let mut at = self.levels[level as usize].head;
            std::iter::from_fn(move || {
                (at != NO_SLOT).then(|| {
                    let resting = self.get(at);
                    at = self.nodes[at as usize].next;
                    resting
                })
            })
        })
    }

    /// Puts an order to the back of its level, without matching. Returns its place and the level's new total.
    ///
    /// The caller has made sure that no order with this id is in the book, the price is not negative and the quantity positive.
    #[inline]
    pub fn rest(
        &mut self,
        id: u64,
        side: Side,
        price: i64,
        qty: i64,
        handle: u32,
    ) -> Result<(Slot, i64), BookError> {
        debug_assert!(price >= 0 && qty > 0 && self.find(id).is_none());
        let slot = self.take_node(id, handle);
        match self.attach(slot, side, price, qty) {
            Ok(total) => {
                self.index.insert(sequence_hash(id), slot);
                Ok((slot, total))
            }
            Err(error) => {
                self.free_node(slot);
                Err(error)
            }
        }
    }

    /// A node that is in no level yet.
    #[inline]
    fn take_node(&mut self, id: u64, handle: u32) -> Slot {
        let node = Node { id, qty: 0, previous: NO_SLOT, next: NO_SLOT, level: NO_SLOT, handle };
        self.len += 1;
        if self.free_node == NO_SLOT {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let slot = self.free_node;
            self.free_node = self.nodes[slot as usize].next;
            self.nodes[slot as usize] = node;
            slot
        }
    }

    #[inline]
    fn free_node(&mut self, slot: Slot) {
        self.nodes[slot as usize].next = self.free_node;
        self.free_node = slot;
        self.len -= 1;
    }

    /// The level of a price; a new one when there is none.
    #[inline]
    fn level_for(&mut self, side: Side, price: i64) -> u32 {
        let at = hint_of(side, price);
        let hint = self.hints[at];
        if let Some(level) = self.levels.get(hint as usize)
            && (level.price, level.side) == (price, side)
            && level.orders > 0
        {
            return hint;
        }
        let key = key_of(side, price);
        let index = match self.ladder(side).find(key) {
            Ok(level) => level,
            Err(place) => {
                let level = self.take_level(side, price);
                self.ladder_mut(side).insert(place, key, level);
                level
            }
        };
        self.hints[at] = index;
        index
    }

    /// Links a node to the back of a level. Returns the level's new total.
    #[inline]
    fn attach(&mut self, slot: Slot, side: Side, price: i64, qty: i64) -> Result<i64, BookError> {
        let index = self.level_for(side, price);
        let level = &mut self.levels[index as usize];
        // A level that was just made has room for any quantity, so none is left behind empty.
        let Some(total) = level.total.checked_add(qty) else {
            return Err(BookError::LevelFull(price));
        };
        level.total = total;
        level.orders += 1;
        let previous = std::mem::replace(&mut level.tail, slot);
        if previous == NO_SLOT {
            level.head = slot;
        } else {
            self.nodes[previous as usize].next = slot;
        }
        let node = &mut self.nodes[slot as usize];
        node.qty = qty;
        node.level = index;
        node.previous = previous;
        node.next = NO_SLOT;
        self.volume += i128::from(qty);
        Ok(total)
    }

    #[inline]
    fn take_level(&mut self, side: Side, price: i64) -> u32 {
        let level = Level { price, total: 0, head: NO_SLOT, tail: NO_SLOT, orders: 0, side };
        if self.free_level == NO_SLOT {
            self.levels.push(level);
            (self.levels.len() - 1) as u32
        } else {
            let index = self.free_level;
            self.free_level = self.levels[index as usize].head;
            self.levels[index as usize] = level;
            index
        }
    }

    /// Takes a part of an order away, in its place; the order leaves when nothing is left. Returns the level's new total.
    ///
    /// # Panics
    /// When the order has less than `qty`.
    #[inline]
    pub fn take(&mut self, slot: Slot, qty: i64) -> i64 {
        let node = &mut self.nodes[slot as usize];
        assert!(qty > 0 && qty <= node.qty, "more taken from an order than it has");
        if node.qty == qty {
            return self.remove(slot);
        }
        node.qty -= qty;
        self.volume -= i128::from(qty);
        let level = &mut self.levels[node.level as usize];
        level.total -= qty;
        level.total
    }

    /// Takes an order out. Returns the level's new total.
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> i64 {
        self.index.remove(sequence_hash(self.nodes[slot as usize].id), slot);
        let total = self.detach(slot);
        self.free_node(slot);
        total
    }

    /// Unlinks a node from its level, which goes when it is empty. Returns the level's new total.
    #[inline]
    fn detach(&mut self, slot: Slot) -> i64 {
        let Node { qty, previous, next, level: index, .. } = self.nodes[slot as usize];
        self.volume -= i128::from(qty);
        let level = &mut self.levels[index as usize];
        level.total -= qty;
        level.orders -= 1;
        let (total, side, price) = (level.total, level.side, level.price);
        if level.orders == 0 {
            level.head = self.free_level;
            self.free_level = index;
            self.ladder_mut(side).remove(key_of(side, price));
            return total;
        }
        if previous == NO_SLOT {
            level.head = next;
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next == NO_SLOT {
            level.tail = previous;
        } else {
            self.nodes[next as usize].previous = previous;
        }
        total
    }

    /// Matches a limit order against the other side and returns what is left of it; nothing rests.
    #[inline]
    fn cross(&mut self, side: Side, price: i64, mut qty: i64, on_match: &mut impl FnMut(Match)) -> i64 {
        let other = side.opposite();
        let limit = key_of(other, price);
        while qty > 0 {
            let Some((key, level)) = self.ladder(other).best() else { break };
            // On the other side's scale a better price is a greater key: reachable is what is at least as good for us as our limit.
            if key < limit {
                break;
            }
            let Level { head, price, .. } = self.levels[level as usize];
            let Node { id: maker, qty: there, .. } = self.nodes[head as usize];
            let traded = qty.min(there);
            self.take(head, traded);
            qty -= traded;
            on_match(Match { maker, price, qty: traded });
        }
        qty
    }

    /// Adds a limit order: trades what it can, then rests the remainder, or drops it when `immediate`. Returns the remainder. Accounts,
    /// self-trade prevention and the like are the [`crate::exchange::Exchange`]'s; this is price and time alone.
    pub fn add(
        &mut self,
        id: u64,
        side: Side,
        price: i64,
        qty: i64,
        immediate: bool,
        mut on_match: impl FnMut(Match),
    ) -> Result<i64, BookError> {
        if price < 0 || qty <= 0 {
            return Err(BookError::OutOfRange { price, qty });
        }
        let hash = sequence_hash(id);
        let Ok(vacancy) = self.index.vacancy(hash, |slot| self.nodes[slot as usize].id == id) else {
            return Err(BookError::DuplicateId(id));
        };
        // Checked before anything trades, so that a refused order changes nothing.
        if !self.has_room(side, price, qty) {
            return Err(BookError::LevelFull(price));
        }
        let left = self.cross(side, price, qty, &mut on_match);
        if left == 0 || immediate {
            return Ok(left);
        }
        if left == qty {
            // Nothing traded, so the index is as it was.
            let slot = self.take_node(id, NO_SLOT);
            self.attach(slot, side, price, left)?;
            self.index.fill(vacancy, hash, slot);
        } else {
            self.rest(id, side, price, left, NO_SLOT)?;
        }
        Ok(left)
    }

    /// Takes an order out by its id; returns what it was.
    pub fn cancel(&mut self, id: u64) -> Result<Resting, BookError> {
        let is = |slot: u32| self.nodes[slot as usize].id == id;
        let slot = self.index.take(sequence_hash(id), is).ok_or(BookError::UnknownId(id))?;
        let resting = self.get(slot);
        self.detach(slot);
        self.free_node(slot);
        Ok(resting)
    }

    /// Gives an order a new price and remaining quantity: cancel and add in one, so it loses its place and trades when it crosses. Returns
    /// the remainder, which rests.
    pub fn modify(
        &mut self,
        id: u64,
        price: i64,
        qty: i64,
        mut on_match: impl FnMut(Match),
    ) -> Result<i64, BookError> {
        if price < 0 || qty <= 0 {
            return Err(BookError::OutOfRange { price, qty });
        }
        let slot = self.find(id).ok_or(BookError::UnknownId(id))?;
        let old = self.get(slot);
        let own = if old.price == price { old.qty } else { 0 };
        if qty > own && !self.has_room(old.side, price, qty - own) {
            return Err(BookError::LevelFull(price));
        }
        // While it is out of its level it keeps its node and its place in the index.
        self.detach(slot);
        let left = self.cross(old.side, price, qty, &mut on_match);
        if left > 0 {
            self.attach(slot, old.side, price, left)?;
        } else {
            self.index.remove(sequence_hash(id), slot);
            self.free_node(slot);
        }
        Ok(left)
    }
}
