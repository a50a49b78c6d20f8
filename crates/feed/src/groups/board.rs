//! What a member of a group knows: the state of each symbol, and what of it has not been written to the group's cache.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hoga_core::folds::candle::Interval;
use hoga_core::ids::Timestamp;
use rustc_hash::FxHashMap;

use crate::cache::{Batch, PASSED, Quote, SymbolCandle};
use crate::detect::DetectedEvent;
use crate::monitor::Counts;
use crate::state::{Output, SymbolState};
use crate::symbol::Symbol;

/// Events that a member keeps, to write them when it takes the lead.
const EVENTS: usize = 1024;

/// The state of a symbol. Its loop locks it once for the ticks that it has at once; whoever looks at it does so for moments.
pub(super) type Shared = Arc<Mutex<SymbolState>>;

/// A candle: of which symbol and interval, and when it opened.
pub(super) type CandleKey = (Symbol, Interval, Timestamp);

#[derive(Default)]
struct Dirty {
    quotes: FxHashMap<Symbol, Quote>,
    /// By open time too: several of an interval may change in between.
    candles: FxHashMap<CandleKey, SymbolCandle>,
    /// The last ones; those at the end are not written.
    events: VecDeque<DetectedEvent>,
    unwritten: usize,
}

/// Shared by the loops of a member and its writer.
///
/// **Bounded** by the number of symbols: what has not been written of a symbol is merged with what comes.
#[derive(Default)]
pub(super) struct Board {
    symbols: Mutex<FxHashMap<Symbol, Shared>>,
    dirty: Mutex<Dirty>,
    bell: Condvar,
    stale: AtomicI64,
    bad: AtomicU64,
    ticks: AtomicU64,
    violations: AtomicU64,
    duplicates: AtomicU64,
    gaps: AtomicU64,
    steps_back: AtomicU64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts an older quote of the same symbol into a newer one that stands for both.
fn absorb(newer: &mut Quote, older: Quote) {
    let same = older.output.mark.epoch == newer.output.mark.epoch;
    newer.output.first = if same { newer.output.first.min(older.output.first) } else { 1 };
    let mut passed = older.passed;
    passed.push(older.output.mark);
    passed.append(&mut newer.passed);
    passed.drain(..passed.len().saturating_sub(PASSED));
    newer.passed = passed;
    newer.read = older.read.or(newer.read);
}

impl Board {
    /// Makes a symbol known.
    pub(super) fn open(&self, symbol: Symbol, state: SymbolState) -> Shared {
        let shared = Arc::new(Mutex::new(state));
        lock(&self.symbols).insert(symbol, shared.clone());
        shared
    }

    /// Forgets everything but the counters.
    pub(super) fn clear(&self) {
        lock(&self.symbols).clear();
        *lock(&self.dirty) = Dirty::default();
        self.stale.store(0, Ordering::Relaxed);
    }

    /// Counts what a call of a symbol's ticks has changed.
    pub(super) fn count(&self, before: &Counts, after: &Counts) {
        self.ticks.fetch_add(after.ticks - before.ticks, Ordering::Relaxed);
        // Mostly that is all.
        for (cell, more) in [
            (&self.violations, after.violations - before.violations),
            (&self.duplicates, after.duplicates - before.duplicates),
            (&self.gaps, after.gaps - before.gaps),
            (&self.steps_back, after.steps_back - before.steps_back),
        ] {
            if more > 0 {
                cell.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        // The violations first: they are never above the gaps then.
        let violations = get(&self.violations);
        Counts {
            ticks: get(&self.ticks),
            violations,
            duplicates: get(&self.duplicates),
            gaps: get(&self.gaps).max(violations),
            steps_back: get(&self.steps_back),
        }
    }

    pub(super) fn stale(&self, more: i64) {
        self.stale.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn stale_symbols(&self) -> u64 {
        self.stale.load(Ordering::Relaxed).max(0) as u64
    }

    /// Counts a message that is no tick; how many there were.
    pub(super) fn bad(&self) -> u64 {
        self.bad.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn bad_messages(&self) -> u64 {
        self.bad.load(Ordering::Relaxed)
    }

    /// All symbols with their states.
    pub(super) fn symbols(&self) -> Vec<(Symbol, Shared)> {
        let mut all: Vec<_> =
            lock(&self.symbols).iter().map(|(symbol, state)| (*symbol, state.clone())).collect();
        all.sort_by_key(|(symbol, _)| *symbol);
        all
    }

    pub(super) fn symbol(&self, symbol: Symbol) -> Option<Shared> {
        lock(&self.symbols).get(&symbol).cloned()
    }

    /// Takes the outputs of a loop's batch; `read` is when the oldest tick in it was read.
    pub(super) fn offer(&self, outputs: &mut Vec<Output>, read: Option<Instant>) {
        let mut dirty = lock(&self.dirty);
        for output in outputs.drain(..) {
            dirty.put(output, read);
        }
        drop(dirty);
        self.bell.notify_one();
    }

    /// Takes a detected event.
    pub(super) fn event(&self, event: DetectedEvent) {
        let mut dirty = lock(&self.dirty);
        if dirty.events.len() == EVENTS {
            dirty.events.pop_front();
        }
        dirty.events.push_back(event);
        dirty.unwritten = (dirty.unwritten + 1).min(EVENTS);
        drop(dirty);
        self.bell.notify_one();
    }

    /// Everything is to be written: this member takes the lead, and what the one before has written is not known.
    pub(super) fn all_dirty(&self) {
        let snapshots: Vec<Output> =
            self.symbols().iter().filter_map(|(_, state)| lock(state).snapshot()).collect();
        let mut dirty = lock(&self.dirty);
        for output in snapshots {
            // What came meanwhile is in it, or newer.
            dirty.put_older(output);
        }
        dirty.unwritten = dirty.events.len();
    }

    /// What was not written is another's to write.
    pub(super) fn discard(&self) {
        let mut dirty = lock(&self.dirty);
        dirty.quotes.clear();
        dirty.candles.clear();
        dirty.unwritten = 0;
    }

    /// Waits until there is a quote or an event to be written, or the time is over.
    pub(super) fn wait(&self, timeout: Duration) {
        let nothing = |dirty: &mut Dirty| dirty.quotes.is_empty() && dirty.unwritten == 0;
        let dirty = lock(&self.dirty);
        // A poisoned lock would be a panic while putting a quote into a map: there is none.
        drop(self.bell.wait_timeout_while(dirty, timeout, nothing));
    }

    /// Which candles have not been written.
    pub(super) fn candle_keys(&self) -> Vec<CandleKey> {
        let mut keys: Vec<CandleKey> = lock(&self.dirty).candles.keys().copied().collect();
        // In time, so that the running candle of an interval is the last of it; taken from the end.
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys
    }

    /// Up to `most` quotes, up to `candles` of those that are owed, and the events.
    pub(super) fn take(&self, most: usize, owed: &mut Vec<CandleKey>, candles: usize) -> Batch {
        let mut dirty = lock(&self.dirty);
        let mut batch = Batch::default();
        if dirty.quotes.len() <= most {
            batch.quotes = dirty.quotes.drain().map(|(_, quote)| quote).collect();
        } else {
            let some: Vec<Symbol> = dirty.quotes.keys().take(most).copied().collect();
            batch.quotes = some.iter().filter_map(|symbol| dirty.quotes.remove(symbol)).collect();
        }
        let from = owed.len().saturating_sub(candles);
        batch.candles = owed.drain(from..).rev().filter_map(|key| dirty.candles.remove(&key)).collect();
        let unwritten = std::mem::take(&mut dirty.unwritten);
        batch.events.extend(dirty.events.iter().skip(dirty.events.len() - unwritten));
        batch
    }

    /// A batch that could not be written.
    pub(super) fn give_back(&self, batch: Batch) {
        let mut dirty = lock(&self.dirty);
        for quote in batch.quotes {
            dirty.put_quote_older(quote);
        }
        for candle in batch.candles {
            let key = (candle.symbol, candle.change.interval, candle.change.candle.open_time);
            dirty.candles.entry(key).or_insert(candle);
        }
        dirty.unwritten = (dirty.unwritten + batch.events.len()).min(dirty.events.len());
    }
}

impl Dirty {
    fn put(&mut self, mut output: Output, read: Option<Instant>) {
        let symbol = output.symbol;
        for change in output.candles.drain(..) {
            let key = (symbol, change.interval, change.candle.open_time);
            let before = self.candles.insert(key, SymbolCandle { symbol, change });
            if before.is_some_and(|before| before.change.closed)
                && let Some(candle) = self.candles.get_mut(&key)
            {
                candle.change.closed = true;
            }
        }
        let mut quote = Quote { output, passed: Vec::new(), read };
        match self.quotes.entry(symbol) {
            std::collections::hash_map::Entry::Vacant(entry) => _ = entry.insert(quote),
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                absorb(&mut quote, entry.get().clone());
                entry.insert(quote);
            }
        }
    }

    /// An output that is not newer than what is there.
    fn put_older(&mut self, mut output: Output) {
        let symbol = output.symbol;
        for change in output.candles.drain(..) {
            let key = (symbol, change.interval, change.candle.open_time);
            self.candles.entry(key).or_insert(SymbolCandle { symbol, change });
        }
        self.put_quote_older(Quote { output, passed: Vec::new(), read: None });
    }

    fn put_quote_older(&mut self, quote: Quote) {
        match self.quotes.entry(quote.output.symbol) {
            std::collections::hash_map::Entry::Vacant(entry) => _ = entry.insert(quote),
            std::collections::hash_map::Entry::Occupied(mut entry) => absorb(entry.get_mut(), quote),
        }
    }
}
