//! One market: its folds, its topics, and what they say when.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use hoga_core::event::Level;
use hoga_core::exchange::Depth;
use hoga_core::folds::candle::{Candle, CandleFold, Interval, Update};
use hoga_core::folds::depth::{DepthBook, DiffBuilder};
use hoga_core::folds::ticker::{Ticker24h, TickerValues};
use hoga_core::ids::{MarketId, Timestamp, TradeId};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Price, Qty};
use hoga_core::order::Side;

use super::TRADES_KEPT;
use super::encode;
use super::topic::{AllKind, Form, Kind, Levels, Speed, Topic, Urgency};
use super::view::{BookTicker, MarketHistory, MarketTrade};
use crate::ws::Outbound;

/// Candles with trades that each interval keeps, so that a late trade can revise the last ones.
const CANDLES_KEPT: usize = 4;

/// A candle is told as closed this long after its period ended: trades of its last moment are still on their way from the engine.
const CLOSE_GRACE_MICROS: i64 = 100_000;

/// A market. Its state and the subscriptions to its topics change under one lock, so that a snapshot taken after a subscription never
/// misses a change that the subscription does not bring.
pub(super) struct Market {
    pub(super) symbol: Name,
    state: Mutex<MarketState>,
    topics: [Topic; Kind::COUNT],
}

pub(super) struct MarketState {
    pub(super) instrument: Instrument,
    book: DepthBook,
    /// The book missed an update: it is not to be shown.
    stale: bool,
    /// Changes since the last message, for each speed that somebody wants.
    diffs: [Option<DiffBuilder>; Speed::ALL.len()],
    /// The last depth update that each partial topic has shown.
    partial_shown: [u64; Speed::ALL.len() * Levels::ALL.len()],
    /// The best bid and ask last told, with update number 0.
    best_shown: BookTicker,
    /// The latest trades.
    trades: VecDeque<MarketTrade>,
    /// Trades since the last flush.
    untold: Vec<MarketTrade>,
    last_trade: Option<(TradeId, Price)>,
    /// Folds contain the trades up to here; an earlier one is not folded again.
    folded: TradeId,
    ticker: Ticker24h,
    ticker_shown: Option<(TickerValues, BookTicker)>,
    candles: [CandleFold; Interval::ALL.len()],
    /// Start of the candle that each active kline topic tells as running.
    running: [Option<Timestamp>; Interval::ALL.len()],
    candle_shown: [Option<Candle>; Interval::ALL.len()],
    /// Closed candles that a late trade changed.
    revised: Vec<(Interval, Candle)>,
}

/// To whom a message goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Address {
    Market(Kind),
    All(AllKind),
}

/// Messages that a market has to send: encoded under its lock, sent without it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    items: Vec<(Address, Urgency, Range<usize>)>,
}

impl Outbox {
    fn put(&mut self, address: Address, urgency: Urgency, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.items.push((address, urgency, start..self.bytes.len()));
    }

    /// Hands every message to `send` and is empty afterwards.
    pub(super) fn drain(&mut self, mut send: impl FnMut(Address, Urgency, &[u8])) {
        for (address, urgency, range) in self.items.drain(..) {
            send(address, urgency, &self.bytes[range]);
        }
        self.bytes.clear();
    }
}

/// Which of the topics over all markets somebody wants.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WantedOfAll {
    pub(super) ticker: bool,
    pub(super) mini: bool,
    pub(super) book: bool,
    /// A new subscriber waits for all values.
    pub(super) fresh: bool,
}

impl Market {
    pub(super) fn new(instrument: Instrument, depth: Depth) -> Market {
        let first = u32::from(instrument.id.0) * Kind::COUNT as u32;
        Market {
            symbol: instrument.symbol,
            state: Mutex::new(MarketState::new(instrument, depth)),
            topics: std::array::from_fn(|kind| Topic::new(first + kind as u32)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, MarketState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn topic(&self, kind: Kind) -> &Topic {
        &self.topics[kind.index()]
    }

    fn is_active(&self, kind: Kind) -> bool {
        self.topic(kind).is_active()
    }

    pub(super) fn subscribe(&self, kind: Kind, form: &Form, client: &Outbound) {
        let mut state = self.lock();
        self.topic(kind).add(form, client);
        match kind {
            Kind::Depth(speed) => {
                let after = state.book.update_id();
                state.diffs[speed as usize].get_or_insert_with(|| DiffBuilder::after(after));
            }
            Kind::Kline(interval) => state.candle_shown[interval as usize] = None,
            _ => {}
        }
    }

    pub(super) fn unsubscribe(&self, kind: Kind, form: &Form, client: &Outbound) -> bool {
        let _state = self.lock();
        self.topic(kind).remove(form, client)
    }

    /// What is told with every batch.
    pub(super) fn flush(&self, now: Timestamp, all: WantedOfAll, out: &mut Outbox) {
        let mut state = self.lock();
        let symbol = self.symbol.as_str();
        self.tell_trades(&mut state, now, out);
        self.tell_diff(&mut state, Speed::Realtime, now, out);
        self.tell_partial(&mut state, Speed::Realtime, out);
        for (interval, candle) in std::mem::take(&mut state.revised) {
            if self.is_active(Kind::Kline(interval)) {
                out.put(Address::Market(Kind::Kline(interval)), Urgency::Final, |out| {
                    encode::kline(out, now, symbol, interval, &candle, true);
                });
            }
        }
        self.tell_best(&mut state, all.book, out);
    }

    fn tell_best(&self, state: &mut MarketState, all: bool, out: &mut Outbox) {
        let active = self.is_active(Kind::BookTicker);
        if !(active || all) || state.stale {
            return;
        }
        let book = state.book_ticker();
        let best = BookTicker { update_id: 0, ..book };
        let changed = std::mem::replace(&mut state.best_shown, best) != best;
        let symbol = self.symbol.as_str();
        let fresh = self.topic(Kind::BookTicker).take_fresh();
        for (wanted, address) in [
            (active && (changed || fresh), Address::Market(Kind::BookTicker)),
            (all && changed, Address::All(AllKind::BookTicker)),
        ] {
            if wanted {
                out.put(address, Urgency::Latest, |out| encode::book_ticker(out, symbol, &book));
            }
        }
    }

    fn tell_trades(&self, state: &mut MarketState, now: Timestamp, out: &mut Outbox) {
        let (single, joined) = (self.is_active(Kind::Trade), self.is_active(Kind::AggTrade));
        let trades = &state.untold;
        let symbol = self.symbol.as_str();
        if single {
            for trade in trades {
                out.put(Address::Market(Kind::Trade), Urgency::Strict, |out| {
                    encode::trade(out, now, symbol, trade);
                });
            }
        }
        if joined {
            for group in trades.chunk_by(|a, b| a.joins(b)) {
                out.put(Address::Market(Kind::AggTrade), Urgency::Strict, |out| {
                    encode::agg_trade(out, now, symbol, group);
                });
            }
        }
        state.untold.clear();
    }

    fn tell_diff(&self, state: &mut MarketState, speed: Speed, now: Timestamp, out: &mut Outbox) {
        let kind = Kind::Depth(speed);
        let slot = &mut state.diffs[speed as usize];
        if !self.is_active(kind) {
            *slot = None;
            return;
        }
        if let Some(diff) = slot.as_mut().and_then(DiffBuilder::take) {
            out.put(Address::Market(kind), Urgency::Strict, |out| {
                encode::depth(out, now, self.symbol.as_str(), &diff);
            });
        }
    }

    fn tell_partial(&self, state: &mut MarketState, speed: Speed, out: &mut Outbox) {
        for levels in Levels::ALL {
            let kind = Kind::Partial(levels, speed);
            if !self.is_active(kind) || state.stale {
                continue;
            }
            let update_id = state.book.update_id();
            let shown = &mut state.partial_shown[speed as usize * Levels::ALL.len() + levels as usize];
            let fresh = self.topic(kind).take_fresh();
            if std::mem::replace(shown, update_id) == update_id && !fresh {
                continue;
            }
            out.put(Address::Market(kind), Urgency::Latest, |out| {
                encode::partial_depth(out, &state.book, levels.count());
            });
        }
    }

    /// What is told every 100 ms, and the current value of quiet topics to those who are new.
    pub(super) fn tick_fast(&self, now: Timestamp, out: &mut Outbox) {
        let mut state = self.lock();
        self.tell_best(&mut state, false, out);
        self.tell_partial(&mut state, Speed::Realtime, out);
        self.tell_diff(&mut state, Speed::Fast, now, out);
        self.tell_partial(&mut state, Speed::Fast, out);
        for interval in Interval::ALL {
            self.tell_closed(&mut state, interval, now, out);
            if self.topic(Kind::Kline(interval)).take_fresh() {
                self.tell_running(&mut state, interval, now, out);
            }
        }
    }

    /// What is told every second. `even`: it is the other second, in which the longer candles are told.
    pub(super) fn tick_slow(&self, now: Timestamp, even: bool, all: WantedOfAll, out: &mut Outbox) {
        let mut state = self.lock();
        self.tell_diff(&mut state, Speed::Slow, now, out);
        self.tell_partial(&mut state, Speed::Slow, out);
        for interval in Interval::ALL {
            if even || interval == Interval::S1 {
                self.tell_running(&mut state, interval, now, out);
            }
        }
        self.tell_tickers(&mut state, now, all, out);
    }

    /// Tells the candles whose period ended, and begins the next.
    fn tell_closed(&self, state: &mut MarketState, interval: Interval, now: Timestamp, out: &mut Outbox) {
        let kind = Kind::Kline(interval);
        let at = interval as usize;
        if !self.is_active(kind) {
            state.running[at] = None;
            return;
        }
        let settled = Timestamp(now.0 - CLOSE_GRACE_MICROS);
        let open_time = interval.floor(settled);
        let running = *state.running[at].get_or_insert(open_time);
        if running >= open_time {
            return;
        }
        state.running[at] = Some(open_time);
        state.candle_shown[at] = None;
        let fold = &mut state.candles[at];
        if let Some(candle) = candle_at(fold, running) {
            fold.seal(settled);
            out.put(Address::Market(kind), Urgency::Final, |out| {
                encode::kline(out, now, self.symbol.as_str(), interval, &candle, true);
            });
        }
    }

    /// Tells the running candle when it changed.
    fn tell_running(&self, state: &mut MarketState, interval: Interval, now: Timestamp, out: &mut Outbox) {
        let kind = Kind::Kline(interval);
        let at = interval as usize;
        if !self.is_active(kind) {
            return;
        }
        let settled = interval.floor(Timestamp(now.0 - CLOSE_GRACE_MICROS));
        let running = *state.running[at].get_or_insert(settled);
        let Some(candle) = candle_at(&state.candles[at], running) else { return };
        if state.candle_shown[at] == Some(candle) {
            return;
        }
        state.candle_shown[at] = Some(candle);
        out.put(Address::Market(kind), Urgency::Latest, |out| {
            encode::kline(out, now, self.symbol.as_str(), interval, &candle, false);
        });
    }

    fn tell_tickers(&self, state: &mut MarketState, now: Timestamp, all: WantedOfAll, out: &mut Outbox) {
        let (full, mini) = (self.is_active(Kind::Ticker), self.is_active(Kind::MiniTicker));
        if !(full || mini || all.ticker || all.mini) {
            state.ticker_shown = None;
            return;
        }
        let values = state.ticker.at(now);
        let book = state.book_ticker();
        // The window's edges and the book's update number move all the time: that alone is no change.
        let unmoved = TickerValues { open_time: Timestamp(0), close_time: Timestamp(0), ..values };
        let shown = Some((unmoved, BookTicker { update_id: 0, ..book }));
        let changed = state.ticker_shown != shown;
        state.ticker_shown = shown;
        let full_now = full && (self.topic(Kind::Ticker).take_fresh() | changed);
        let mini_now = mini && (self.topic(Kind::MiniTicker).take_fresh() | changed);
        let symbol = self.symbol.as_str();
        for (wanted, address) in [
            (full_now, Address::Market(Kind::Ticker)),
            (all.ticker && (changed || all.fresh), Address::All(AllKind::Ticker)),
        ] {
            if wanted {
                out.put(address, Urgency::Latest, |out| encode::ticker(out, now, symbol, &values, &book));
            }
        }
        for (wanted, address) in [
            (mini_now, Address::Market(Kind::MiniTicker)),
            (all.mini && (changed || all.fresh), Address::All(AllKind::MiniTicker)),
        ] {
            if wanted {
                out.put(address, Urgency::Latest, |out| encode::mini_ticker(out, now, symbol, &values));
            }
        }
    }
}

/// The candle of the period that begins at `open_time`: with its trades, or flat at the close before it. `None` before the first trade.
fn candle_at(fold: &CandleFold, open_time: Timestamp) -> Option<Candle> {
    let latest = fold.kept().rev().find(|candle| candle.open_time <= open_time)?;
    if latest.open_time == open_time { Some(*latest) } else { Some(Candle::flat(open_time, latest.close)) }
}

impl MarketState {
    fn new(instrument: Instrument, depth: Depth) -> MarketState {
        MarketState {
            instrument,
            book: DepthBook::from_snapshot(depth.update_id, depth.bids, depth.asks),
            stale: false,
            diffs: Default::default(),
            partial_shown: Default::default(),
            best_shown: BookTicker::default(),
            trades: VecDeque::new(),
            untold: Vec::new(),
            last_trade: None,
            folded: TradeId(0),
            ticker: Ticker24h::new(),
            ticker_shown: None,
            candles: Interval::ALL.map(|interval| CandleFold::new(interval, CANDLES_KEPT)),
            running: Default::default(),
            candle_shown: Default::default(),
            revised: Vec::new(),
        }
    }

    pub(super) fn set_state(&mut self, state: TradingState) {
        self.instrument.state = state;
    }

    pub(super) fn level(&mut self, level: &Level) {
        if self.stale {
            return;
        }
        if let Err(error) = self.book.apply(level) {
            // The engine's events have no holes, so this is a broken invariant of the engine or of the hand-over.
            tracing::error!(market = %self.instrument.id, %error, "the hub's book is not shown any more; restart the server");
            self.stale = true;
            self.diffs = Default::default();
            return;
        }
        for slot in &mut self.diffs {
            if slot.as_mut().is_some_and(|diff| diff.add(level).is_err()) {
                *slot = None;
            }
        }
    }

    pub(super) fn trade(&mut self, trade: &MarketTrade) {
        if self.trades.back().is_some_and(|last| last.id >= trade.id) {
            return;
        }
        if self.trades.len() == TRADES_KEPT {
            self.trades.pop_front();
        }
        self.trades.push_back(*trade);
        self.untold.push(*trade);
        self.last_trade = Some((trade.id, trade.price));
        self.fold(trade);
    }

    fn fold(&mut self, trade: &MarketTrade) {
        if trade.id <= self.folded {
            return;
        }
        self.folded = trade.id;
        let tick = trade.tick();
        self.ticker.apply(&tick);
        for fold in &mut self.candles {
            let interval = fold.interval();
            if let Update::Revised(candle) = fold.apply(&tick) {
                self.revised.push((interval, candle));
            }
        }
    }

    /// Starts the folds anew from what the read models know, then folds what came since.
    pub(super) fn history(&mut self, history: MarketHistory) {
        let live: Vec<MarketTrade> =
            self.trades.iter().filter(|trade| trade.id > history.through).copied().collect();
        let MarketHistory { trades, seconds, candles, through, .. } = history;
        self.ticker = Ticker24h::new();
        let counted = seconds.last().map_or(TradeId(0), |second| second.last_trade);
        // Of the quantities of the seconds' last trades only that of the very last is ever shown.
        let last_qty = trades.iter().rfind(|trade| trade.id == counted).map_or(Qty::ZERO, |trade| trade.qty);
        for second in &seconds {
            self.ticker.add_second(second, last_qty);
        }
        // A market that has been quiet for longer than the window: the last price outlives it.
        for trade in trades.iter().filter(|trade| trade.id > counted) {
            self.ticker.apply(&trade.tick());
        }
        for fold in &mut self.candles {
            let of_interval = candles.iter().filter(|(interval, _)| *interval == fold.interval());
            *fold = CandleFold::resume(fold.interval(), CANDLES_KEPT, of_interval.map(|(_, candle)| *candle));
        }
        let skip = (trades.len() + live.len()).saturating_sub(TRADES_KEPT);
        self.trades = trades.into_iter().chain(live.iter().copied()).skip(skip).collect();
        if let Some(last) = self.trades.back() {
            self.last_trade = Some((last.id, last.price));
        }
        self.folded = through;
        for trade in &live {
            self.fold(trade);
        }
    }

    pub(super) fn depth(&self, limit: usize) -> Option<Depth> {
        let side = |side| self.book.levels(side).take(limit).collect();
        (!self.stale).then(|| Depth {
            update_id: self.book.update_id(),
            bids: side(Side::Buy),
            asks: side(Side::Sell),
        })
    }

    pub(super) fn book_ticker(&self) -> BookTicker {
        BookTicker {
            update_id: self.book.update_id(),
            bid: self.book.best(Side::Buy),
            ask: self.book.best(Side::Sell),
        }
    }

    pub(super) fn ticker(&mut self, now: Timestamp) -> TickerValues {
        self.ticker.at(now)
    }

    pub(super) fn last_trade(&self) -> Option<(TradeId, Price)> {
        self.last_trade
    }

    pub(super) fn trades(&self, limit: usize) -> Vec<MarketTrade> {
        self.trades.range(self.trades.len().saturating_sub(limit)..).copied().collect()
    }

    pub(super) fn open_candle(&self, interval: Interval, now: Timestamp) -> Option<Candle> {
        self.candles[interval as usize].at(now)
    }

    pub(super) fn id(&self) -> MarketId {
        self.instrument.id
    }
}
