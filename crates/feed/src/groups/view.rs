//! What readers see: the outputs of the group that is shown, without a step back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::{Differ, GroupName};
use crate::detect::{DetectedEvent, EventKind};
use crate::state::Output;
use crate::symbol::Symbol;

/// Outputs of each symbol and group that are kept, for a switch: what the other group has put out meanwhile is shown then.
const KEPT: usize = 64;
/// Detected events by which a repetition is known.
const EVENTS: usize = 4096;
/// Outputs that may wait for one subscriber.
const WAITING: usize = 65_536;

/// Counters of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewStats {
    /// Outputs that were shown.
    pub shown: u64,
    /// Switches after which the new group no longer had all that had not been shown: outputs that no reader saw, though later ones of the
    /// symbol hold their values.
    pub skipped: u64,
    /// Subscribers that were cut off because they did not read.
    pub cut_off: u64,
    /// Detected events, each once.
    pub events: u64,
}

#[derive(Default)]
struct Board {
    outputs: FxHashMap<Symbol, VecDeque<Arc<Output>>>,
}

struct Inner {
    active: GroupName,
    boards: [Board; 2],
    /// The last output that was shown of each symbol.
    shown: FxHashMap<Symbol, Arc<Output>>,
    subscribers: Vec<SyncSender<Arc<Output>>>,
    event_subscribers: Vec<SyncSender<DetectedEvent>>,
    events: VecDeque<(Symbol, u32, u64, EventKind)>,
    differ: Differ,
    stats: ViewStats,
}

/// What both groups write and readers read. A loop takes its lock once a batch.
pub struct View {
    inner: Mutex<Inner>,
    stale: [AtomicI64; 2],
    bad: [AtomicU64; 2],
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

fn place(output: &Output) -> (u32, u64) {
    (output.mark.epoch, output.mark.seq)
}

impl View {
    pub(super) fn new() -> View {
        View {
            inner: Mutex::new(Inner {
                active: GroupName::A,
                boards: Default::default(),
                shown: FxHashMap::default(),
                subscribers: Vec::new(),
                event_subscribers: Vec::new(),
                events: VecDeque::new(),
                differ: Differ::new(),
                stats: ViewStats::default(),
            }),
            stale: Default::default(),
            bad: Default::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the outputs of a group's batch.
    pub(super) fn offer(&self, group: GroupName, outputs: &mut Vec<Output>) {
        let mut inner = self.lock();
        for output in outputs.drain(..) {
            let output = Arc::new(output);
            inner.differ.take(group, output.symbol, output.mark);
            let kept = inner.boards[group.index()].outputs.entry(output.symbol).or_default();
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(output.clone());
            if inner.active == group {
                inner.show(output);
            }
        }
    }

    /// Shows another group from now on, and at once what it has put out beyond what was shown.
    pub(super) fn switch(&self, to: GroupName) {
        let mut inner = self.lock();
        if inner.active == to {
            return;
        }
        inner.active = to;
        let (mut missed, mut skipped) = (Vec::new(), 0);
        for (symbol, kept) in &inner.boards[to.index()].outputs {
            let shown = inner.shown.get(symbol).map(|output| place(output));
            let newer = kept.iter().filter(|output| shown.is_none_or(|shown| place(output) > shown));
            let newer: Vec<_> = newer.cloned().collect();
            skipped += u64::from(newer.len() == KEPT);
            missed.extend(newer);
        }
        inner.stats.skipped += skipped;
        for output in missed {
            inner.show(output);
        }
    }

    /// A detected event of either group: the first is told, the second is known.
    pub(super) fn event(&self, _: GroupName, event: DetectedEvent) {
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

    pub(super) fn stale(&self, group: GroupName, more: i64) {
        self.stale[group.index()].fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn stale_symbols(&self, group: GroupName) -> u64 {
        self.stale[group.index()].load(Ordering::Relaxed).max(0) as u64
    }

    pub(super) fn bad(&self, group: GroupName, lane: u32, offset: u64, reason: &str) {
        // The first only: a log full of such messages must not fill another one. The counter has them all.
        if self.bad[group.index()].fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%group, lane, offset, reason, "a message of the topic is no tick");
        }
    }

    /// Messages that a group could not read.
    pub fn bad_messages(&self, group: GroupName) -> u64 {
        self.bad[group.index()].load(Ordering::Relaxed)
    }

    pub(super) fn with_differ<T>(&self, f: impl FnOnce(&mut Differ) -> T) -> T {
        f(&mut self.lock().differ)
    }

    /// Forgets what a group has put out: it is rebuilt.
    pub(super) fn forget(&self, group: GroupName) {
        let mut inner = self.lock();
        inner.boards[group.index()].outputs.clear();
        inner.differ.clear();
        self.stale[group.index()].store(0, Ordering::Relaxed);
    }

    /// The last output that was shown of a symbol.
    pub fn latest(&self, symbol: Symbol) -> Option<Arc<Output>> {
        self.lock().shown.get(&symbol).cloned()
    }

    /// The last output that was shown of each symbol, by symbol.
    pub fn all(&self) -> Vec<Arc<Output>> {
        let mut all: Vec<_> = self.lock().shown.values().cloned().collect();
        all.sort_by_key(|output| output.symbol);
        all
    }

    /// Every output that is shown from now on. Of a symbol they rise by (epoch, seq). A subscriber that lets 65,536 of them wait is cut off.
    pub fn subscribe(&self) -> Receiver<Arc<Output>> {
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
    fn show(&mut self, output: Arc<Output>) {
        if self.shown.get(&output.symbol).is_some_and(|shown| place(&output) < place(shown)) {
            return;
        }
        // An equal place is a late tick that changed something below it: it is shown, unless it is the very same state.
        if self
            .shown
            .get(&output.symbol)
            .is_some_and(|shown| shown.mark == output.mark && shown.stale == output.stale)
        {
            return;
        }
        self.stats.shown += 1;
        self.stats.cut_off += tell(&mut self.subscribers, &output);
        self.shown.insert(output.symbol, output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{StateConfig, SymbolState};
    use crate::testing::tick;

    /// What a group puts out after each of so many ticks.
    fn outputs(ticks: std::ops::RangeInclusive<u64>) -> Vec<Output> {
        let first = tick("A", 1);
        let mut state = SymbolState::new(first.symbol, &StateConfig::default());
        let mut all = Vec::new();
        for seq in 1..=*ticks.end() {
            let tick = tick("A", seq);
            state.take(&tick, tick.received);
            all.push(state.output().unwrap());
        }
        all.split_off(*ticks.start() as usize - 1)
    }

    #[test]
    fn a_group_that_is_behind_shows_nothing_below_what_was_shown() {
        let view = View::new();
        let reader = view.subscribe();
        view.offer(GroupName::A, &mut outputs(1..=10));
        view.offer(GroupName::B, &mut outputs(1..=4));
        view.switch(GroupName::B);
        view.offer(GroupName::B, &mut outputs(5..=12));
        let seen: Vec<u64> = reader.try_iter().map(|output| output.mark.seq).collect();
        assert_eq!(seen, (1..=12).collect::<Vec<_>>());
    }

    #[test]
    fn only_subscribers_that_do_not_read_are_cut_off() {
        let view = View::new();
        drop(view.subscribe());
        let lazy = view.subscribe();
        view.offer(GroupName::A, &mut outputs(1..=1));
        assert_eq!(view.stats().cut_off, 0, "one has only gone");
        for seq in 2..=WAITING as u64 + 1 {
            let mut output = outputs(1..=1);
            output[0].mark.seq = seq;
            view.offer(GroupName::A, &mut output);
        }
        assert_eq!(view.stats().cut_off, 1);
        assert_eq!(lazy.iter().count(), WAITING, "what was sent before is there");
    }
}
