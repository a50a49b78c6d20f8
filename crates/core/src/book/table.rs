//! An open-addressing table from hashes to slots of a slab.
//!
//! The table holds no keys: whoever looks up compares against the slab itself. An entry is eight bytes, so one cache line answers most
//! look-ups. Removal shifts entries back instead of leaving tombstones, so the cost does not depend on history; the table allocates only
//! when it grows, and never iterates in hash order where order could be seen.

/// A slot number that no slab reaches.
pub(crate) const NO_SLOT: u32 = u32::MAX;

const EMPTY: Entry = Entry { hash: 0, slot: NO_SLOT };

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    slot: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    entries: Box<[Entry]>,
    len: usize,
}

/// The hash of a number that is given out in sequence: eight neighbours share one cache line of the table, and the lines are spread, so
/// that old numbers do not meet long runs of young ones.
#[inline]
pub(crate) fn sequence_hash(id: u64) -> u32 {
    let line = (id >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((line >> 32) as u32) << 3 | (id & 7) as u32
}

/// Mixes two words; for keys that are not numbers in sequence.
#[inline]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

impl Table {
    const START: usize = 64;

    pub(crate) fn new() -> Table {
        Table::with_room(Self::START / 2)
    }

    /// A table that takes so many slots (rounded up to a power of two) before it grows.
    pub(crate) fn with_room(slots: usize) -> Table {
        Table { entries: vec![EMPTY; (slots * 2).next_power_of_two()].into_boxed_slice(), len: 0 }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    /// The slot with this hash for which `is` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        loop {
            let entry = self.entries[at];
            if entry.slot == NO_SLOT {
                return None;
            }
            if entry.hash == hash && is(entry.slot) {
                return Some(entry.slot);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a slot; the caller knows that it is not there.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        debug_assert_ne!(slot, NO_SLOT);
        // At most half full: probes stay short even where neighbours cluster.
        if (self.len + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.put(Entry { hash, slot });
        self.len += 1;
    }

    /// The place for a new slot with this hash, or the slot for which `is` holds. The place is valid until the table changes.
    #[inline]
    pub(crate) fn vacancy(&mut self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Result<usize, u32> {
        if (self.len + 1) * 2 > self.entries.len() {
            self.grow();
        }
        let mask = self.mask();
        let mut at = hash as usize & mask;
        loop {
            let entry = self.entries[at];
            if entry.slot == NO_SLOT {
                return Ok(at);
            }
            if entry.hash == hash && is(entry.slot) {
                return Err(entry.slot);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a slot at the place that [`Table::vacancy`] gave.
    #[inline]
    pub(crate) fn fill(&mut self, at: usize, hash: u32, slot: u32) {
        debug_assert!(self.entries[at].slot == NO_SLOT);
        self.entries[at] = Entry { hash, slot };
        self.len += 1;
    }

    /// Finds and removes.
    #[inline]
    pub(crate) fn take(&mut self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        loop {
            let entry = self.entries[at];
            if entry.slot == NO_SLOT {
                return None;
            }
            if entry.hash == hash && is(entry.slot) {
                self.close_gap(at);
                self.len -= 1;
                return Some(entry.slot);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn put(&mut self, entry: Entry) {
        let mask = self.mask();
        let mut at = entry.hash as usize & mask;
        while self.entries[at].slot != NO_SLOT {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        let doubled = vec![EMPTY; self.entries.len() * 2].into_boxed_slice();
        let old = std::mem::replace(&mut self.entries, doubled);
        for entry in old.iter().filter(|entry| entry.slot != NO_SLOT) {
            self.put(*entry);
        }
    }

    /// Removes a slot that is there.
    ///
    /// # Panics
    /// When it is not there: the table and its slab disagree, which is a broken invariant.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        while self.entries[at].slot != slot {
            assert!(self.entries[at].slot != NO_SLOT, "table lost a slot");
            at = (at + 1) & mask;
        }
        self.close_gap(at);
        self.len -= 1;
    }

    /// Moves later entries of the run back over the hole, so that each stays reachable from its home.
    #[inline]
    fn close_gap(&mut self, mut hole: usize) {
        let mask = self.mask();
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.slot == NO_SLOT {
                break;
            }
            let home = entry.hash as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn agrees_with_a_map_over_random_changes() {
        let mut table = Table::new();
        let mut model: HashMap<u64, u32> = HashMap::new();
        let mut ids: Vec<u64> = Vec::new();
        let mut state = 7_u64;
        let mut next = 0_u64;
        for round in 0..200_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let dice = (state >> 33) as usize;
            if ids.len() < 10 || (dice % 100 < 50 && ids.len() < 3000) {
                next += 1 + (dice as u64 >> 20) % 3;
                table.insert(sequence_hash(next), round);
                model.insert(next, round);
                ids.push(next);
            } else {
                let id = ids.swap_remove(dice % ids.len());
                let slot = model.remove(&id).unwrap();
                table.remove(sequence_hash(id), slot);
                assert_eq!(table.find(sequence_hash(id), |s| s == slot), None);
            }
        }
        assert_eq!(table.len(), model.len());
        for (id, slot) in &model {
            assert_eq!(table.find(sequence_hash(*id), |s| s == *slot), Some(*slot));
        }
    }
}
