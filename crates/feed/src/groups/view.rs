//! What readers see: the quotes and candles of the group that is shown, without a step back.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hoga_core::folds::candle::Interval;
use rustc_hash::FxHashMap;

use super::{Differ, GroupName};
use crate::cache::{Quote, SymbolCandle};
use crate::detect::{DetectedEvent, EventKind};
use crate::symbol::Symbol;

/// Quotes of each symbol and group that are kept, for a switch: what the other group has put out meanwhile is shown then.
const KEPT: usize = 64;
/// Candles of each interval and symbol that are kept for the same reason.
const CANDLES: usize = 3;
/// Detected events by which a repetition is known.
const EVENTS: usize = 4096;
/// Updates that may wait for one subscriber.
const WAITING: usize = 65_536;

/// Which outputs are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shows {
    /// Those of the active group.
    #[default]
    Active,
    /// Of each place whichever group's comes first. Candles are those of the active group.
    First,
}

/// Counters of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewStats {
    /// Quotes that were shown.
    pub shown: u64,
    /// Numbers that no quote shown stood for: a reader that counts them sees as many missing.
    pub gaps: u64,
    /// Quotes of the shown group that were below what was shown, and were not: how often readers were kept from a step back.
    pub below: u64,
    /// Subscribers that were cut off because they did not read.
    pub cut_off: u64,
    /// Detected events, each once.
    pub events: u64,
}

/// What a subscriber gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// A quote. Of a symbol they rise by (epoch, seq).
    Quote(Arc<Quote>),
    /// A candle.
    Candle(SymbolCandle),
}

#[derive(Default)]
struct Group {
    quotes: FxHashMap<Symbol, VecDeque<Arc<Quote>>>,
    candles: Candles,
}

/// The newest candles by symbol and interval, in time.
#[derive(Default)]
struct Candles(FxHashMap<(Symbol, Interval), VecDeque<SymbolCandle>>);

impl Candles {
    /// Puts one in its place; false when it is older than all that are kept.
    fn put(&mut self, candle: SymbolCandle) -> bool {
        let kept = self.0.entry(candle.key()).or_default();
        let open_time = candle.change.candle.open_time;
        match kept.iter().position(|other| other.change.candle.open_time >= open_time) {
            Some(at) if kept[at].change.candle.open_time == open_time => kept[at] = candle,
            Some(0) if kept.len() == CANDLES => return false,
            Some(at) => kept.insert(at, candle),
            None => kept.push_back(candle),
        }
        if kept.len() > CANDLES {
            kept.pop_front();
        }
        true
    }

    fn at(&self, candle: &SymbolCandle) -> Option<&SymbolCandle> {
        let open_time = candle.change.candle.open_time;
        self.0.get(&candle.key())?.iter().find(|other| other.change.candle.open_time == open_time)
    }
}

struct Inner {
    active: GroupName,
    shows: Shows,
    groups: [Group; 2],
    /// The last quote that was shown of each symbol.
    shown: FxHashMap<Symbol, Arc<Quote>>,
    shown_candles: Candles,
    subscribers: Vec<SyncSender<Update>>,
    event_subscribers: Vec<SyncSender<DetectedEvent>>,
    events: VecDeque<(Symbol, u32, u64, EventKind)>,
    differ: Differ,
    stats: ViewStats,
}

/// What both groups' followers write and readers read. A follower takes its lock once a write.
pub struct View {
    inner: Mutex<Inner>,
}

fn place(quote: &Quote) -> (u32, u64) {
    (quote.output.mark.epoch, quote.output.mark.seq)
}

/// Sends to all; those that have gone are forgotten. How many were cut off because they did not read.
fn tell<T: Clone>(subscribers: &mut Vec<SyncSender<T>>, what: &T) -> u64 {
    let mut cut_off = 0;
    subscribers.retain(|to| match to.try_send(what.clone()) {
        Ok(()) => true,
        Err(TrySendError::Full(_)) => {
            cut_off += 1;
            false
        }
        Err(TrySendError::Disconnected(_)) => false,
    });
    cut_off
}

impl View {
    pub(super) fn new(active: GroupName, shows: Shows) -> View {
        View {
            inner: Mutex::new(Inner {
                active,
                shows,
                groups: Default::default(),
                shown: FxHashMap::default(),
                shown_candles: Candles::default(),
                subscribers: Vec::new(),
                event_subscribers: Vec::new(),
                events: VecDeque::new(),
                differ: Differ::new(),
                stats: ViewStats::default(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes quotes and candles that a group has written.
    pub(super) fn take(&self, group: GroupName, quotes: Vec<Quote>, candles: &[SymbolCandle]) {
        let inner = &mut *self.lock();
        for quote in quotes {
            let symbol = quote.output.symbol;
            for mark in quote.passed.iter().chain([&quote.output.mark]) {
                inner.differ.take(group, symbol, *mark);
            }
            let quote = Arc::new(quote);
            let kept = inner.groups[group.index()].quotes.entry(symbol).or_default();
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(quote.clone());
            if inner.active == group || inner.shows == Shows::First {
                inner.show(quote, inner.active == group);
            }
        }
        for candle in candles {
            if inner.groups[group.index()].candles.put(*candle) && inner.active == group {
                inner.show_candle(*candle);
            }
        }
    }

    /// Shows another group from now on, and at once what it has put out beyond what was shown.
    pub(super) fn switch(&self, to: GroupName) {
        let inner = &mut *self.lock();
        if inner.active == to {
            return;
        }
        inner.active = to;
        let group = &inner.groups[to.index()];
        let mut missed: Vec<Arc<Quote>> = Vec::new();
        for (symbol, kept) in &group.quotes {
            let shown = inner.shown.get(symbol).map(|quote| place(quote));
            missed
                .extend(kept.iter().filter(|quote| shown.is_none_or(|shown| place(quote) > shown)).cloned());
        }
        let candles: Vec<SymbolCandle> = group.candles.0.values().flatten().copied().collect();
        for quote in missed {
            inner.show(quote, true);
        }
        for candle in candles {
            inner.show_candle(candle);
        }
    }

    /// A detected event of either group: the first is told, the second is known.
    pub(super) fn event(&self, event: DetectedEvent) {
        let inner = &mut *self.lock();
        let name = (event.symbol, event.epoch, event.seq, event.kind);
        if inner.events.contains(&name) {
            return;
        }
        if inner.events.len() == EVENTS {
            inner.events.pop_front();
        }
        inner.events.push_back(name);
        inner.stats.events += 1;
        inner.stats.cut_off += tell(&mut inner.event_subscribers, &event);
    }

    pub(super) fn with_differ<T>(&self, f: impl FnOnce(&mut Differ) -> T) -> T {
        f(&mut self.lock().differ)
    }

    /// The last quote that was shown of a symbol.
    pub fn latest(&self, symbol: Symbol) -> Option<Arc<Quote>> {
        self.lock().shown.get(&symbol).cloned()
    }

    /// The last quote that was shown of each symbol, by symbol.
    pub fn all(&self) -> Vec<Arc<Quote>> {
        let mut all: Vec<_> = self.lock().shown.values().cloned().collect();
        all.sort_by_key(|quote| quote.output.symbol);
        all
    }

    /// The newest candles that were shown of a symbol and interval, at most three, oldest first.
    pub fn candles(&self, symbol: Symbol, interval: Interval) -> Vec<SymbolCandle> {
        self.lock().shown_candles.0.get(&(symbol, interval)).into_iter().flatten().copied().collect()
    }

    /// Everything that is shown from now on. A subscriber that lets 65,536 updates wait is cut off.
    pub fn subscribe(&self) -> Receiver<Update> {
        let (sender, receiver) = sync_channel(WAITING);
        self.lock().subscribers.push(sender);
        receiver
    }

    /// Every event that is detected from now on, once. The same limit.
    pub fn subscribe_events(&self) -> Receiver<DetectedEvent> {
        let (sender, receiver) = sync_channel(WAITING);
        self.lock().event_subscribers.push(sender);
        receiver
    }

    /// Counters.
    pub fn stats(&self) -> ViewStats {
        self.lock().stats
    }
}

impl Inner {
    fn show(&mut self, quote: Arc<Quote>, of_active: bool) {
        let symbol = quote.output.symbol;
        if let Some(shown) = self.shown.get(&symbol) {
            if place(&quote) < place(shown) {
                self.stats.below += u64::from(of_active);
                return;
            }
            // An equal place is a late tick that changed something below it: it is shown, unless it is the very same state or comes from the
            // other group.
            let same = shown.output.mark == quote.output.mark && shown.output.stale == quote.output.stale;
            if place(&quote) == place(shown) && (same || !of_active) {
                return;
            }
            if shown.output.mark.epoch == quote.output.mark.epoch {
                self.stats.gaps += quote.output.first.saturating_sub(shown.output.mark.seq + 1);
            }
        }
        self.stats.shown += 1;
        self.stats.cut_off += tell(&mut self.subscribers, &Update::Quote(quote.clone()));
        self.shown.insert(symbol, quote);
    }

    fn show_candle(&mut self, candle: SymbolCandle) {
        // The same, or of a group that is behind.
        let known = self.shown_candles.at(&candle);
        if known
            .is_some_and(|shown| *shown == candle || candle.change.candle.trades < shown.change.candle.trades)
        {
            return;
        }
        if self.shown_candles.put(candle) {
            self.stats.cut_off += tell(&mut self.subscribers, &Update::Candle(candle));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{StateConfig, SymbolState};
    use crate::testing::tick;

    /// What a group puts out after each of so many ticks.
    fn quotes(ticks: std::ops::RangeInclusive<u64>) -> Vec<Quote> {
        let first = tick("A", 1);
        let mut state = SymbolState::new(first.symbol, &StateConfig::default());
        let mut all = Vec::new();
        for seq in 1..=*ticks.end() {
            let tick = tick("A", seq);
            state.take(&tick, tick.received);
            let mut output = state.output().unwrap();
            output.candles.clear();
            all.push(Quote { output, passed: Vec::new(), read: None });
        }
        all.split_off(*ticks.start() as usize - 1)
    }

    fn seqs(reader: &Receiver<Update>) -> Vec<u64> {
        let seq = |update| match update {
            Update::Quote(quote) => quote.output.mark.seq,
            Update::Candle(_) => panic!("no candle was written"),
        };
        reader.try_iter().map(seq).collect()
    }

    #[test]
    fn a_group_that_is_behind_shows_nothing_below_what_was_shown() {
        let view = View::new(GroupName::A, Shows::Active);
        let reader = view.subscribe();
        view.take(GroupName::A, quotes(1..=10), &[]);
        view.take(GroupName::B, quotes(1..=4), &[]);
        view.switch(GroupName::B);
        view.take(GroupName::B, quotes(5..=12), &[]);
        assert_eq!(seqs(&reader), (1..=12).collect::<Vec<_>>());
        assert_eq!((view.stats().below, view.stats().gaps), (5, 0), "5 to 9; 10 is what was shown");
    }

    #[test]
    fn whichever_comes_first_is_shown_where_that_is_asked_for() {
        let view = View::new(GroupName::A, Shows::First);
        let reader = view.subscribe();
        view.take(GroupName::B, quotes(1..=3), &[]);
        view.take(GroupName::A, quotes(1..=5), &[]);
        view.take(GroupName::B, quotes(4..=9), &[]);
        assert_eq!(seqs(&reader), (1..=9).collect::<Vec<_>>());
    }

    #[test]
    fn what_the_other_group_had_no_longer_is_counted_as_a_gap() {
        let view = View::new(GroupName::A, Shows::Active);
        view.take(GroupName::A, quotes(1..=1), &[]);
        view.take(GroupName::B, quotes(1..=200), &[]);
        view.switch(GroupName::B);
        // Its last 64 quotes are 137 to 200.
        assert_eq!((view.stats().shown, view.stats().gaps), (65, 135));
    }

    #[test]
    fn only_subscribers_that_do_not_read_are_cut_off() {
        let view = View::new(GroupName::A, Shows::Active);
        drop(view.subscribe());
        let lazy = view.subscribe();
        view.take(GroupName::A, quotes(1..=1), &[]);
        assert_eq!(view.stats().cut_off, 0, "one has only gone");
        let quote = &quotes(1..=1)[0];
        for seq in 2..=WAITING as u64 + 1 {
            let mut quote = quote.clone();
            quote.output.mark.seq = seq;
            view.take(GroupName::A, vec![quote], &[]);
        }
        assert_eq!(view.stats().cut_off, 1);
        assert_eq!(lazy.iter().count(), WAITING, "what was sent before is there");
    }
}
