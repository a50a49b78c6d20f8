//! The price levels of one side in order of price: a two-level sorted array with the best price at the end.
//!
//! Prices are kept as keys that grow towards the best (see [`super::key_of`]). Levels sit in chunks of up to [`CHUNK`] neighbouring keys;
//! a directory lists the chunks, worst first. Nearly all changes happen near the touch, that is at the end of the last chunk, where an
//! insertion moves a handful of entries. Far from the touch an insertion moves at most one chunk, however many levels lie between: a
//! market that moves by tens of thousands of ticks costs what a quiet one does.
//!
//! **Invariants:** keys ascend strictly within a chunk and over chunks; no chunk is empty; the directory holds each chunk's first key.

/// Levels in one chunk.
const CHUNK: usize = 64;

/// A chunk this small is joined to its neighbour, if both fit well below [`CHUNK`].
const SMALL: usize = CHUNK / 8;

/// Moves of up to this many entries are done in a loop: a call would cost more than it moves.
const SHORT: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: i64,
    level: u32,
}

#[derive(Clone, Debug)]
struct Chunk {
    len: usize,
    entries: [Entry; CHUNK],
}

impl Chunk {
    const EMPTY: Chunk = Chunk { len: 0, entries: [Entry { key: 0, level: 0 }; CHUNK] };

    #[inline]
    fn live(&self) -> &[Entry] {
        &self.entries[..self.len]
    }

    /// Opens a gap; the chunk is not full.
    #[inline]
    fn insert(&mut self, at: usize, entry: Entry) {
        let len = self.len;
        let tail = &mut self.entries[at..=len];
        if tail.len() <= SHORT {
            for to in (1..tail.len()).rev() {
                tail[to] = tail[to - 1];
            }
        } else {
            tail.copy_within(..len - at, 1);
        }
        tail[0] = entry;
        self.len += 1;
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        let tail = &mut self.entries[at..self.len];
        if tail.len() <= SHORT {
            for from in 1..tail.len() {
                tail[from - 1] = tail[from];
            }
        } else {
            tail.copy_within(1.., 0);
        }
        self.len -= 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Listed {
    first: i64,
    chunk: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    directory: Vec<Listed>,
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    best: Option<(i64, u32)>,
    len: usize,
}

/// Where a key is, or where it would go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    listed: usize,
    at: usize,
}

impl Ladder {
    pub(super) fn new() -> Ladder {
        Ladder { directory: Vec::new(), chunks: Vec::new(), free: Vec::new(), best: None, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Key and level of the best price.
    #[inline]
    pub(super) fn best(&self) -> Option<(i64, u32)> {
        self.best
    }

    /// The key of the worst price.
    pub(super) fn worst(&self) -> Option<i64> {
        self.directory.first().map(|listed| listed.first)
    }

    /// The level with this key, or the place to insert it.
    #[inline]
    pub(super) fn find(&self, key: i64) -> Result<u32, Place> {
        if let Some((best, level)) = self.best {
            if key == best {
                return Ok(level);
            }
            if key > best {
                let listed = self.directory.len() - 1;
                return Err(Place { listed, at: self.chunks[self.directory[listed].chunk as usize].len });
            }
        }
        let place = self.place(key);
        match self.directory.get(place.listed) {
            Some(listed) => {
                let live = self.chunks[listed.chunk as usize].live();
                live.get(place.at)
                    .filter(|entry| entry.key == key)
                    .map_or(Err(place), |entry| Ok(entry.level))
            }
            None => Err(place),
        }
    }

    /// The place of the first key that is not below `key`, in the chunk whose range covers it.
    #[inline]
    fn place(&self, key: i64) -> Place {
        let Some(last) = self.directory.len().checked_sub(1) else {
            return Place { listed: 0, at: 0 };
        };
        let listed = if self.directory[last].first <= key {
            last
        } else {
            self.directory.partition_point(|listed| listed.first <= key).saturating_sub(1)
        };
        let live = self.chunks[self.directory[listed].chunk as usize].live();
        // Near the touch the key is among the last few: count those that are not below it, which the processor does without guessing.
        let near = live.len().saturating_sub(SHORT);
        let mut at =
            live.len() - live[near..].iter().map(|entry| usize::from(entry.key >= key)).sum::<usize>();
        if at == near && near > 0 {
            at = live[..near].partition_point(|entry| entry.key < key);
        }
        Place { listed, at }
    }

    /// Puts a level at the place that [`Ladder::find`] gave for its key.
    pub(super) fn insert(&mut self, place: Place, key: i64, level: u32) {
        self.len += 1;
        if self.best.is_none_or(|(best, _)| key > best) {
            self.best = Some((key, level));
        }
        let Place { mut listed, mut at } = place;
        if self.directory.is_empty() {
            let chunk = self.take_chunk();
            self.directory.push(Listed { first: key, chunk });
        } else if self.chunks[self.directory[listed].chunk as usize].len == CHUNK {
            let kept = self.split(listed, at);
            if at > kept || (at == kept && kept == CHUNK) {
                listed += 1;
                at -= kept;
            }
        }
        let listed = &mut self.directory[listed];
        self.chunks[listed.chunk as usize].insert(at, Entry { key, level });
        if at == 0 {
            listed.first = key;
        }
    }

    /// Makes room in a full chunk; returns how many entries stay in it. At the best end nothing moves: a market that runs away leaves full
    /// chunks behind.
    fn split(&mut self, listed: usize, at: usize) -> usize {
        let kept = if at == CHUNK && listed + 1 == self.directory.len() { CHUNK } else { CHUNK / 2 };
        let fresh = self.take_chunk();
        let old = self.directory[listed].chunk as usize;
        let entries = self.chunks[old].entries;
        let target = &mut self.chunks[fresh as usize];
        target.entries[..CHUNK - kept].copy_from_slice(&entries[kept..]);
        target.len = CHUNK - kept;
        // The first key of a chunk that is still empty is set by the insertion that follows.
        let first = entries.get(kept).map_or(i64::MAX, |entry| entry.key);
        self.chunks[old].len = kept;
        self.directory.insert(listed + 1, Listed { first, chunk: fresh });
        kept
    }

    fn take_chunk(&mut self) -> u32 {
        if let Some(chunk) = self.free.pop() {
            return chunk;
        }
        // Chunks that come free must find room in the list without an allocation.
        self.free.reserve(self.chunks.len() + 1);
        self.chunks.push(Chunk::EMPTY);
        (self.chunks.len() - 1) as u32
    }

    /// Takes the level with this key out.
    ///
    /// # Panics
    /// When there is none: the book lost track of a level.
    pub(super) fn remove(&mut self, key: i64) {
        let last = self.directory.len() - 1;
        let is_best = self.best.is_some_and(|(best, _)| best == key);
        let Place { listed, at } = if is_best {
            Place { listed: last, at: self.chunks[self.directory[last].chunk as usize].len - 1 }
        } else {
            self.place(key)
        };
        let index = self.directory[listed].chunk as usize;
        let chunk = &mut self.chunks[index];
        assert!(chunk.live().get(at).is_some_and(|entry| entry.key == key), "ladder lost a level");
        chunk.remove(at);
        self.len -= 1;
        if chunk.len == 0 {
            self.free.push(index as u32);
            self.directory.remove(listed);
        } else {
            if at == 0 {
                self.directory[listed].first = chunk.entries[0].key;
            }
            if self.chunks[index].len <= SMALL && self.directory.len() > 1 {
                self.join(listed);
            }
        }
        if is_best {
            let last = self.directory.last().and_then(|l| self.chunks[l.chunk as usize].live().last());
            self.best = last.map(|entry| (entry.key, entry.level));
        }
    }

    /// Joins a small chunk with the better one beside it, or the worse one, when the two fill at most three quarters of a chunk.
    fn join(&mut self, listed: usize) {
        let fits = |a: &Listed, b: &Listed| {
            self.chunks[a.chunk as usize].len + self.chunks[b.chunk as usize].len <= CHUNK * 3 / 4
        };
        let worse = if listed + 1 < self.directory.len()
            && fits(&self.directory[listed], &self.directory[listed + 1])
        {
            listed
        } else if listed > 0 && fits(&self.directory[listed - 1], &self.directory[listed]) {
            listed - 1
        } else {
            return;
        };
        let gone = self.directory.remove(worse + 1).chunk as usize;
        let stays = self.directory[worse].chunk as usize;
        let Chunk { len: moved, entries } = self.chunks[gone];
        let target = &mut self.chunks[stays];
        target.entries[target.len..target.len + moved].copy_from_slice(&entries[..moved]);
        target.len += moved;
        self.chunks[gone].len = 0;
        self.free.push(gone as u32);
    }

    /// The levels from the best to the worst.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let chunks = self.directory.iter().rev().map(|listed| &self.chunks[listed.chunk as usize]);
        chunks.flat_map(|chunk| chunk.live().iter().rev().map(|entry| entry.level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_a_map_near_and_far_from_the_touch() {
        for (seed, spread) in [(1_u64, 40_u64), (2, 400), (3, 4000), (4, 40_000)] {
            let mut ladder = Ladder::new();
            let mut model: BTreeMap<i64, u32> = BTreeMap::new();
            let mut state = seed;
            for round in 0..60_000_u32 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = ((state >> 33) % spread) as i64 + i64::from(round) / 100;
                match ladder.find(key) {
                    Ok(level) => {
                        assert_eq!(model.remove(&key), Some(level));
                        ladder.remove(key);
                    }
                    Err(place) => {
                        assert_eq!(model.insert(key, round), None);
                        ladder.insert(place, key, round);
                    }
                }
                assert_eq!(ladder.best(), model.last_key_value().map(|(k, l)| (*k, *l)));
                if round % 1000 == 0 {
                    assert!(ladder.iter().eq(model.values().rev().copied()));
                }
            }
            assert_eq!(ladder.len(), model.len());
            while let Some((key, _)) = ladder.best() {
                ladder.remove(key);
            }
            assert!(ladder.directory.is_empty());
        }
    }
}
