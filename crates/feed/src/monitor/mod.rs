//! The order monitor: what happened to the numbers of a symbol on their way.
//!
//! It is always on: a tick in order costs a comparison and an addition, and no memory. What is out of order costs a look into the ranges of
//! missing numbers.

mod delay;
pub mod explain;

use std::collections::BTreeMap;

pub use delay::Delays;

use hoga_core::ids::Timestamp;

use crate::tick::FeedTick;

/// What a tick is, beside those before it of its symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Above all numbers seen, with so many numbers left out below it.
    New {
        /// Numbers between the highest before and this one.
        skipped: u64,
    },
    /// A number that was missing, below the highest seen: out of order. It fills its gap.
    Late,
    /// A number that was seen before.
    Duplicate,
    /// Of an epoch that was left behind. It is not counted among the numbers of the present one.
    StepBack,
}

/// Counters of one symbol, over all its epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ticks seen, whatever they were.
    pub ticks: u64,
    /// Numbers that came after a higher one.
    pub violations: u64,
    /// Numbers that came again.
    pub duplicates: u64,
    /// Numbers that were left out when a higher one came, whether they came later or not.
    pub gaps: u64,
    /// Ticks of an epoch that was left behind.
    pub steps_back: u64,
}

impl Counts {
    /// Numbers that have not come: gaps − violations.
    pub fn lost(&self) -> u64 {
        self.gaps - self.violations
    }

    /// The sum.
    pub fn add(&mut self, other: &Counts) {
        self.ticks += other.ticks;
        self.violations += other.violations;
        self.duplicates += other.duplicates;
        self.gaps += other.gaps;
        self.steps_back += other.steps_back;
    }
}

/// Follows the numbers of one symbol.
///
/// **Law** (against the set of all numbers seen): a number below the highest is a violation the first time and a duplicate every other time; a
/// gap counts missing numbers, not holes; `lost` is what has not come. A higher epoch begins at number 1 and keeps the counters; what the old one
/// still missed stays lost.
///
/// **Bounded:** it remembers at most [`SymbolOrder::RANGES`] ranges of missing numbers, the newest. A number of a range that was forgotten is
/// taken for a duplicate if it comes: nobody can tell any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolOrder {
    epoch: u32,
    highest: u64,
    /// First and last number of each range that is missing.
    missing: BTreeMap<u64, u64>,
    counts: Counts,
    delays: Delays,
}

/// Why bytes are no state of a symbol's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these {0} bytes are no state of an order monitor of this version")]
pub struct StateError(pub usize);

const VERSION: u8 = 1;

impl SymbolOrder {
    /// Ranges of missing numbers that are remembered.
    pub const RANGES: usize = 1024;

    /// One that has seen nothing.
    pub fn new() -> SymbolOrder {
        SymbolOrder::default()
    }

    /// Begins below this number as if all before it had been seen: they are not there to be read. Only for one that has seen nothing.
    pub fn begin_at(&mut self, epoch: u32, seq: u64) {
        if *self == SymbolOrder::default() {
            (self.epoch, self.highest) = (epoch, seq.saturating_sub(1));
        }
    }

    /// Takes a tick that is handled at `now`: what it is. The delay is from the source's time of the trade.
    pub fn take(&mut self, tick: &FeedTick, now: Timestamp) -> Verdict {
        self.delays.record(now.0.saturating_sub(tick.tick.time.0));
        self.number(tick.epoch, tick.seq)
    }

    /// The same for the number alone.
    pub fn number(&mut self, epoch: u32, seq: u64) -> Verdict {
        self.counts.ticks += 1;
        if epoch != self.epoch {
            if epoch < self.epoch {
                self.counts.steps_back += 1;
                return Verdict::StepBack;
            }
            self.epoch = epoch;
            self.highest = 0;
            self.missing.clear();
        }
        if seq > self.highest {
            let skipped = seq - self.highest - 1;
            if skipped > 0 {
                self.counts.gaps += skipped;
                self.missing.insert(self.highest + 1, seq - 1);
                if self.missing.len() > SymbolOrder::RANGES {
                    self.missing.pop_first();
                }
            }
            self.highest = seq;
            return Verdict::New { skipped };
        }
        let range = self.missing.range(..=seq).next_back().map(|(first, last)| (*first, *last));
        match range {
            Some((first, last)) if seq <= last => {
                self.missing.remove(&first);
                if first < seq {
                    self.missing.insert(first, seq - 1);
                }
                if seq < last {
                    self.missing.insert(seq + 1, last);
                    if self.missing.len() > SymbolOrder::RANGES {
                        self.missing.pop_first();
                    }
                }
                self.counts.violations += 1;
                Verdict::Late
            }
            _ => {
                self.counts.duplicates += 1;
                Verdict::Duplicate
            }
        }
    }

    /// Whether numbers of this epoch are missing: what is made of the ticks is not complete.
    pub fn is_stale(&self) -> bool {
        !self.missing.is_empty()
    }

    /// The ranges of numbers that are missing, first and last, the lowest first.
    pub fn missing(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.missing.iter().map(|(first, last)| (*first, *last))
    }

    /// Epoch and highest number.
    pub fn place(&self) -> (u32, u64) {
        (self.epoch, self.highest)
    }

    /// The counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Delays from the source to this monitor.
    pub fn delays(&self) -> &Delays {
        &self.delays
    }

    /// Adds its bytes to `out`, from which another process goes on after a takeover.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        let counts = &self.counts;
        let words = [
            self.highest,
            counts.ticks,
            counts.violations,
            counts.duplicates,
            counts.gaps,
            counts.steps_back,
        ];
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        self.delays.encode(out);
        out.extend_from_slice(&(self.missing.len() as u32).to_le_bytes());
        for (first, last) in &self.missing {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&last.to_le_bytes());
        }
    }

    /// Reads what [`SymbolOrder::encode`] wrote, from the front of `bytes`, and takes it off them.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn decode(bytes: &mut &[u8]) -> Result<SymbolOrder, StateError> {
        let fault = StateError(bytes.len());
        let mut rest = *bytes;
        let order = decode(&mut rest).ok_or(fault)?;
        *bytes = rest;
        Ok(order)
    }
}

fn decode(bytes: &mut &[u8]) -> Option<SymbolOrder> {
    if take::<1>(bytes)? != [VERSION] {
        return None;
    }
    let epoch = u32::from_le_bytes(take(bytes)?);
    let mut word = || Some(u64::from_le_bytes(take(bytes)?));
    let highest = word()?;
    let counts = Counts {
        ticks: word()?,
        violations: word()?,
        duplicates: word()?,
        gaps: word()?,
        steps_back: word()?,
    };
    let delays = Delays::decode(bytes)?;
    let count = u32::from_le_bytes(take(bytes)?) as usize;
    if count > SymbolOrder::RANGES || counts.violations > counts.gaps {
        return None;
    }
    let mut missing = BTreeMap::new();
    let mut behind = 0;
    for _ in 0..count {
        let (first, last) = (u64::from_le_bytes(take(bytes)?), u64::from_le_bytes(take(bytes)?));
        if first <= behind || last < first || last >= highest {
            return None;
        }
        missing.insert(first, last);
        behind = last;
    }
    Some(SymbolOrder { epoch, highest, missing, counts, delays })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests;
