//! The hub's thread: folds what comes, and tells at the right time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use hoga_core::ids::{MarketId, Timestamp};

use super::feed::Input;
use super::market::{Address, Market, Outbox, WantedOfAll};
use super::topic::{AllKind, Topic, Urgency};
use super::{Shared, wall_clock};
use crate::ws::Wakers;

/// The step of the fast topics.
const FAST: i64 = 100_000;
/// The step of the slow topics.
const SLOW: i64 = 1_000_000;

/// The longest pause between flushes; see [`Runner::pause`].
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Owned by the thread; a test drives it by hand.
pub(super) struct Runner {
    shared: Arc<Shared>,
    inputs: Vec<Input>,
    /// Markets that changed since the last flush, and a mark for each market whether it is among them.
    touched: Vec<MarketId>,
    is_touched: Vec<bool>,
    outbox: Outbox,
    wakers: Wakers,
    /// The arrays of `!ticker@arr` and `!miniTicker@arr` in the making.
    arrays: [Vec<u8>; AllKind::COUNT],
    next_fast: Timestamp,
    /// Those who wait until everything before is folded.
    done: Vec<SyncSender<()>>,
}

impl Drop for Runner {
    /// However the thread ends, the engine must not wait for it.
    fn drop(&mut self) {
        self.shared.intake.close();
    }
}

impl Runner {
    pub(super) fn new(shared: Arc<Shared>) -> Runner {
        Runner {
            shared,
            inputs: Vec::new(),
            touched: Vec::new(),
            is_touched: Vec::new(),
            outbox: Outbox::default(),
            wakers: Wakers::default(),
            arrays: Default::default(),
            next_fast: Timestamp(0),
            done: Vec::new(),
        }
    }

    /// Until the intake is closed and empty.
    pub(super) fn run(mut self) {
        let mut flush_at = Instant::now();
        loop {
            let now = wall_clock();
            let until_tick = Duration::from_micros((self.next_fast.0 - now.0).clamp(0, FAST) as u64);
            let until_flush = flush_at.saturating_duration_since(Instant::now());
            let timeout = if self.touched.is_empty() { until_tick } else { until_tick.min(until_flush) };
            let closed = self.take(timeout);
            if Instant::now() >= flush_at || closed {
                let spent = self.flush(wall_clock());
                flush_at = Instant::now() + Self::pause(spent);
            }
            self.tick(wall_clock());
            if closed {
                return;
            }
        }
    }

    /// How long to wait after a flush that took `spent`: flushes to many clients become fewer and larger, and take a third of the thread at
    /// most; with few clients there is no pause to speak of.
    fn pause(spent: Duration) -> Duration {
        (spent * 2).min(LONGEST_PAUSE)
    }

    /// Takes in what waits. True when no more will come.
    pub(super) fn take(&mut self, timeout: Duration) -> bool {
        let mut inputs = std::mem::take(&mut self.inputs);
        let (seq, closed) = self.shared.intake.take(&mut inputs, timeout);
        if !inputs.is_empty() {
            self.shared.counters.events.fetch_add(inputs.len() as u64, Ordering::Relaxed);
            self.fold(&mut inputs);
            self.shared.taken.store(seq.0, Ordering::Release);
            for done in self.done.drain(..) {
                // Nobody waits any more when this fails.
                let _ = done.send(());
            }
        }
        self.inputs = inputs;
        closed
    }

    fn fold(&mut self, inputs: &mut Vec<Input>) {
        let mut inputs = inputs.drain(..).peekable();
        while let Some(input) = inputs.next() {
            let Some(market) = Self::market_of(&input) else {
                self.fold_other(input);
                continue;
            };
            self.touch(market);
            let Some(market) = self.shared.market(market) else {
                tracing::error!(?market, "an event of a market that the hub does not know");
                continue;
            };
            // One lock for a run of events of the same market.
            let mut state = market.lock();
            let mut next = Some(input);
            while let Some(input) = next {
                let id = Self::market_of(&input);
                match input {
                    Input::Level(level) => state.level(&level),
                    Input::Trade(_, trade) => state.trade(&trade),
                    Input::State(_, trading) => state.set_state(trading),
                    Input::History(history) => state.history(*history),
                    Input::Market(_) | Input::Private(..) | Input::Done(_) => {}
                }
                next = inputs.next_if(|next| Self::market_of(next) == id);
            }
        }
    }

    /// The market whose state an input changes.
    fn market_of(input: &Input) -> Option<MarketId> {
        match input {
            Input::Level(level) => Some(level.market),
            Input::Trade(market, _) | Input::State(market, _) => Some(*market),
            Input::History(history) => Some(history.market),
            Input::Market(_) | Input::Private(..) | Input::Done(_) => None,
        }
    }

    fn fold_other(&mut self, input: Input) {
        match input {
            Input::Market(definition) => {
                let (instrument, depth) = *definition;
                let mut markets =
                    self.shared.markets.write().unwrap_or_else(|poisoned| poisoned.into_inner());
                let at = usize::from(instrument.id.0);
                if let Some(market) = markets.by_id.get(at) {
                    // Limits and fees change; number and symbol do not.
                    market.lock().instrument = instrument;
                } else if at == markets.by_id.len() {
                    markets.by_id.push(Arc::new(Market::new(instrument, depth)));
                    markets.by_symbol.insert(instrument.symbol, instrument.id);
                } else {
                    tracing::error!(market = %instrument.id, "markets before this one are missing");
                }
            }
            Input::Private(account, record) => self.shared.accounts.deliver(account, &record),
            Input::Done(done) => self.done.push(done),
            Input::Level(_) | Input::Trade(..) | Input::State(..) | Input::History(_) => {}
        }
    }

    fn touch(&mut self, market: MarketId) {
        let at = usize::from(market.0);
        if self.is_touched.len() <= at {
            self.is_touched.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.is_touched[at], true) {
            self.touched.push(market);
        }
    }

    fn all(&self, kind: AllKind) -> &Topic {
        &self.shared.all[kind.index()]
    }

    /// Tells what is told in real time. Gives the time it took.
    pub(super) fn flush(&mut self, now: Timestamp) -> Duration {
        if self.touched.is_empty() {
            return Duration::ZERO;
        }
        let began = Instant::now();
        let all = WantedOfAll { book: self.all(AllKind::BookTicker).is_active(), ..WantedOfAll::default() };
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            self.is_touched[usize::from(id.0)] = false;
            if let Some(market) = self.shared.market(id) {
                market.flush(now, all, &mut self.outbox);
                self.send(&market);
            }
        }
        self.touched = touched;
        self.finish(began)
    }

    /// Tells what is told by the clock, when its time has come.
    pub(super) fn tick(&mut self, now: Timestamp) {
        // A clock that was set back must not silence the topics until it has caught up.
        if now < self.next_fast && self.next_fast.0 - now.0 <= FAST {
            return;
        }
        let began = Instant::now();
        let before = Timestamp(self.next_fast.0 - FAST);
        self.next_fast = Timestamp(now.0.div_euclid(FAST) * FAST + FAST);
        let slow = before.0.div_euclid(SLOW) != now.0.div_euclid(SLOW);
        let even = before.0.div_euclid(2 * SLOW) != now.0.div_euclid(2 * SLOW);
        let (ticker, mini) = (self.all(AllKind::Ticker), self.all(AllKind::MiniTicker));
        let all = WantedOfAll {
            ticker: slow && ticker.is_active(),
            mini: slow && mini.is_active(),
            book: false,
            fresh: slow && (ticker.take_fresh() | mini.take_fresh()),
        };
        let markets =
            self.shared.markets.read().unwrap_or_else(|poisoned| poisoned.into_inner()).by_id.clone();
        for market in &markets {
            market.tick_fast(now, &mut self.outbox);
            if slow {
                market.tick_slow(now, even, all, &mut self.outbox);
            }
            self.send(market);
        }
        self.send_arrays();
        self.finish(began);
    }

    /// Puts the messages of one market into the clients' queues.
    fn send(&mut self, market: &Market) {
        let (wakers, arrays, shared) = (&mut self.wakers, &mut self.arrays, &self.shared);
        let (mut encoded, mut deliveries) = (0, 0);
        self.outbox.drain(|address, urgency, body| {
            encoded += 1;
            deliveries += match address {
                Address::Market(kind) => market.topic(kind).publish(body, urgency, wakers),
                Address::All(AllKind::BookTicker) => {
                    shared.all[AllKind::BookTicker.index()].publish(body, Urgency::Strict, wakers)
                }
                Address::All(kind) => {
                    let array = &mut arrays[kind.index()];
                    array.push(if array.is_empty() { b'[' } else { b',' });
                    array.extend_from_slice(body);
                    0
                }
            };
        });
        self.count(encoded, deliveries);
    }

    fn send_arrays(&mut self) {
        for (topic, array) in self.shared.all.iter().zip(&mut self.arrays) {
            if !array.is_empty() {
                array.push(b']');
                let deliveries = topic.publish(array, Urgency::Strict, &mut self.wakers);
                array.clear();
                self.shared.counters.deliveries.fetch_add(deliveries, Ordering::Relaxed);
            }
        }
    }

    fn count(&self, encoded: u64, deliveries: u64) {
        self.shared.counters.encoded.fetch_add(encoded, Ordering::Relaxed);
        self.shared.counters.deliveries.fetch_add(deliveries, Ordering::Relaxed);
    }

    /// Wakes every client that got something, once.
    fn finish(&mut self, began: Instant) -> Duration {
        self.wakers.wake_all();
        let spent = began.elapsed();
        let counters = &self.shared.counters;
        counters.flushes.fetch_add(1, Ordering::Relaxed);
        counters.fanout_micros.fetch_add(u64::try_from(spent.as_micros()).unwrap_or(0), Ordering::Relaxed);
        spent
    }
}
