//! Candles: trades folded by period.
//!
//! The fold is by (event time, trade id), never by arrival: open is the price of the lowest, close of the highest such key, and all
//! else is a sum, a maximum or a minimum. So the order in which ticks arrive does not matter, three 1m candles merge into exactly the
//! 3m candle, and a tick that comes late changes its own period and nothing else; it raises that candle's `revision`.
//!
//! Only periods with trades are folded and kept. A period without trades is flat at the close before it, with volume zero, and is
//! made by [`filled`] when candles are read: so a late tick cannot leave stale flat candles behind.

use crate::event::Trade;
use crate::ids::{Timestamp, TradeId};
use crate::money::{Amount, Price, Qty, SCALE};
use crate::order::Side;
use std::collections::VecDeque;

/// Microseconds of one second.
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// The epoch was a Thursday: the Monday before it is three days earlier.
const FIRST_MONDAY: i64 = -3 * DAY;

/// The length of a candle. Periods begin at whole multiples since the epoch, UTC; weeks begin on Monday 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interval {
    /// One second.
    S1,
    /// One minute.
    M1,
    /// Three minutes.
    M3,
    /// Five minutes.
    M5,
    /// A quarter of an hour.
    M15,
    /// Half an hour.
    M30,
    /// One hour.
    H1,
    /// Four hours.
    H4,
    /// One day.
    D1,
    /// One week, from Monday.
    W1,
}

impl Interval {
    /// All of them, shortest first.
    pub const ALL: [Interval; 10] = [
        Interval::S1,
        Interval::M1,
        Interval::M3,
        Interval::M5,
        Interval::M15,
        Interval::M30,
        Interval::H1,
        Interval::H4,
        Interval::D1,
        Interval::W1,
    ];

    /// As the API spells it: `1s`, `1m`, … `1w`.
    pub fn as_str(self) -> &'static str {
        match self {
            Interval::S1 => "1s",
            Interval::M1 => "1m",
            Interval::M3 => "3m",
            Interval::M5 => "5m",
            Interval::M15 => "15m",
            Interval::M30 => "30m",
            Interval::H1 => "1h",
            Interval::H4 => "4h",
            Interval::D1 => "1d",
            Interval::W1 => "1w",
        }
    }

    /// From the API's spelling.
    pub fn parse(text: &str) -> Option<Interval> {
        Interval::ALL.into_iter().find(|interval| interval.as_str() == text)
    }

    /// The length in microseconds.
    pub fn micros(self) -> i64 {
        match self {
            Interval::S1 => SECOND,
            Interval::M1 => 60 * SECOND,
            Interval::M3 => 180 * SECOND,
            Interval::M5 => 300 * SECOND,
            Interval::M15 => 900 * SECOND,
            Interval::M30 => 1800 * SECOND,
            Interval::H1 => 3600 * SECOND,
            Interval::H4 => 4 * 3600 * SECOND,
            Interval::D1 => DAY,
            Interval::W1 => 7 * DAY,
        }
    }

    /// The start of the period that holds `time`.
    pub fn floor(self, time: Timestamp) -> Timestamp {
        let origin = if self == Interval::W1 { FIRST_MONDAY } else { 0 };
        let since = time.0.saturating_sub(origin);
        Timestamp(time.0.saturating_sub(since.rem_euclid(self.micros())))
    }

    /// The start of the period after the one that holds `time`.
    pub fn next(self, time: Timestamp) -> Timestamp {
        Timestamp(self.floor(time).0.saturating_add(self.micros()))
    }
}

/// A trade as market data sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// When it happened, at the exchange.
    pub time: Timestamp,
    /// Its number in its market.
    pub id: TradeId,
    /// At what price.
    pub price: Price,
    /// How much of the base asset; not negative.
    pub qty: Qty,
    /// How much of the quote asset; not negative.
    pub quote: Amount,
    /// Which side took.
    pub taker_side: Side,
}

impl Tick {
    /// The tick of a trade that happened at `time`.
    pub fn of(trade: &Trade, time: Timestamp) -> Tick {
        Tick {
            time,
            id: trade.id,
            price: trade.price,
            qty: trade.qty,
            quote: trade.quote,
            taker_side: trade.taker_side,
        }
    }
}

/// What traded in one period. Sums stop at the highest value (92 thousand million whole units) instead of wrapping.
///
/// **Invariant:** `low ≤ open, close ≤ high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candle {
    /// Start of the period.
    pub open_time: Timestamp,
    /// Price of the first trade by (time, id).
    pub open: Price,
    /// Highest price.
    pub high: Price,
    /// Lowest price.
    pub low: Price,
    /// Price of the last trade by (time, id).
    pub close: Price,
    /// Sum of the base quantities.
    pub volume: Qty,
    /// Sum of the quote amounts.
    pub quote_volume: Amount,
    /// Number of trades; 0 in a flat candle.
    pub trades: u64,
    /// The part of `volume` whose taker bought.
    pub taker_base: Qty,
    /// The part of `quote_volume` whose taker bought.
    pub taker_quote: Amount,
    /// First trade by (time, id); 0 in a flat candle.
    pub first_trade: TradeId,
    /// Last trade by (time, id); 0 in a flat candle.
    pub last_trade: TradeId,
    /// When the first trade happened; 0 in a flat candle.
    pub first_time: Timestamp,
    /// When the last trade happened; 0 in a flat candle.
    pub last_time: Timestamp,
    /// How often it changed after it had been told as closed.
    pub revision: u32,
}

impl Candle {
    /// The candle of one trade.
    pub fn of(open_time: Timestamp, tick: &Tick) -> Candle {
        let bought = tick.taker_side == Side::Buy;
        Candle {
            open_time,
            open: tick.price,
            high: tick.price,
            low: tick.price,
            close: tick.price,
            volume: tick.qty,
            quote_volume: tick.quote,
            trades: 1,
            taker_base: if bought { tick.qty } else { Qty::ZERO },
            taker_quote: if bought { tick.quote } else { Amount::ZERO },
            first_trade: tick.id,
            last_trade: tick.id,
            first_time: tick.time,
            last_time: tick.time,
            revision: 0,
        }
    }

    /// The candle of a period without trades: all prices are the close before it, everything else is zero.
    pub fn flat(open_time: Timestamp, previous_close: Price) -> Candle {
        Candle {
            open_time,
            open: previous_close,
            high: previous_close,
            low: previous_close,
            close: previous_close,
            volume: Qty::ZERO,
            quote_volume: Amount::ZERO,
            trades: 0,
            taker_base: Qty::ZERO,
            taker_quote: Amount::ZERO,
            first_trade: TradeId(0),
            last_trade: TradeId(0),
            first_time: Timestamp(0),
            last_time: Timestamp(0),
            revision: 0,
        }
    }

    /// Takes one more trade of the same period, in whatever order trades arrive.
    pub fn add(&mut self, tick: &Tick) {
        let revision = self.revision;
        *self = self.merge(&Candle::of(self.open_time, tick));
        self.revision = revision;
    }

    /// The candle of both periods; it begins where `self` begins. A flat candle adds nothing. Revisions add up: they count changes of
    /// what was told, not of what is in it.
    pub fn merge(&self, later: &Candle) -> Candle {
        let revision = self.revision.saturating_add(later.revision);
        if later.trades == 0 {
            return Candle { revision, ..*self };
        }
        if self.trades == 0 {
            return Candle { open_time: self.open_time, revision, ..*later };
        }
        let first = if later.first_key() < self.first_key() { later } else { self };
        let last = if later.last_key() < self.last_key() { self } else { later };
        Candle {
            open_time: self.open_time,
            open: first.open,
            high: self.high.max(later.high),
            low: self.low.min(later.low),
            close: last.close,
            volume: Qty(self.volume.0.saturating_add(later.volume.0)),
            quote_volume: Amount(self.quote_volume.0.saturating_add(later.quote_volume.0)),
            trades: self.trades.saturating_add(later.trades),
            taker_base: Qty(self.taker_base.0.saturating_add(later.taker_base.0)),
            taker_quote: Amount(self.taker_quote.0.saturating_add(later.taker_quote.0)),
            first_trade: first.first_trade,
            last_trade: last.last_trade,
            first_time: first.first_time,
            last_time: last.last_time,
            revision,
        }
    }

    /// Average price weighted by quantity, **cut** to a multiple of `step`, as Kraken publishes it; zero when nothing traded.
    pub fn vwap(&self, step: Price) -> Price {
        average_price(i128::from(self.quote_volume.0), i128::from(self.volume.0), step)
    }

    fn first_key(&self) -> (Timestamp, TradeId) {
        (self.first_time, self.first_trade)
    }

    fn last_key(&self) -> (Timestamp, TradeId) {
        (self.last_time, self.last_trade)
    }
}

/// `quote ÷ volume`, cut to a multiple of `step`; zero when the volume or the step is not positive.
pub(crate) fn average_price(quote: i128, volume: i128, step: Price) -> Price {
    if volume <= 0 || step.0 <= 0 {
        return Price::ZERO;
    }
    let price = quote.saturating_mul(i128::from(SCALE)) / volume;
    let price = price - price.rem_euclid(i128::from(step.0));
    Price(i64::try_from(price).unwrap_or(i64::MAX))
}

/// What a tick did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives for a moment on the stack; boxing would allocate per trade
pub enum Update {
    /// The running candle took it.
    Updated(Candle),
    /// It began a new period.
    Opened {
        /// The new running candle.
        candle: Candle,
        /// The last candle before it, unless [`CandleFold::seal`] had told it as closed already. Periods between the two are flat.
        closed: Option<Candle>,
    },
    /// It came late: this closed candle changed (or a period without trades now has one), and its `revision` is one higher. The running
    /// candle is untouched, so a live chart is not to be fed with this.
    Revised(Candle),
    /// Its period is older than all candles kept here. Nothing changed: load that candle, [`Candle::add`] the tick, raise its revision.
    TooOld {
        /// Start of the period.
        open_time: Timestamp,
    },
}

/// Folds the ticks of one market into the candles of one interval. Keeps the latest candles, so that late ticks can revise them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandleFold {
    interval: Interval,
    keep: usize,
    /// Candles with trades, oldest first.
    candles: VecDeque<Candle>,
    /// Periods that begin before this have been told as closed.
    sealed: Timestamp,
    /// A candle that began before this may have been dropped.
    horizon: Timestamp,
}

impl CandleFold {
    /// An empty fold that keeps the latest `keep` candles with trades (at least one).
    pub fn new(interval: Interval, keep: usize) -> CandleFold {
        let start = Timestamp(i64::MIN);
        CandleFold { interval, keep: keep.max(1), candles: VecDeque::new(), sealed: start, horizon: start }
    }

    /// Goes on from stored candles with trades, oldest first; the last of them is taken as still running. Ticks older than the first of
    /// them are [`Update::TooOld`].
    pub fn resume(interval: Interval, keep: usize, stored: impl IntoIterator<Item = Candle>) -> CandleFold {
        let mut fold = CandleFold::new(interval, keep);
        for candle in stored.into_iter().filter(|candle| candle.trades > 0) {
            if fold.candles.is_empty() {
                fold.horizon = candle.open_time;
            }
            fold.sealed = fold.sealed.max(candle.open_time);
            fold.push(candle);
        }
        fold
    }

    /// The interval.
    pub fn interval(&self) -> Interval {
        self.interval
    }

    /// The latest candle with trades; running, unless its period is over.
    pub fn latest(&self) -> Option<&Candle> {
        self.candles.back()
    }

    /// The candles kept, oldest first, without flat ones.
    pub fn kept(&self) -> impl DoubleEndedIterator<Item = &Candle> {
        self.candles.iter()
    }

    /// The candle of the period that holds `now`: the running one, or a flat one when nothing has traded in it yet. `None` before the
    /// first trade.
    pub fn at(&self, now: Timestamp) -> Option<Candle> {
        let open_time = self.interval.floor(now);
        let latest = self.candles.back()?;
        if latest.open_time >= open_time {
            Some(*latest)
        } else {
            Some(Candle::flat(open_time, latest.close))
        }
    }

    /// Time has reached `now`: periods that ended are closed, and a tick that still comes for them revises. Returns the candle with trades
    /// that was closed by this, if any; flat ones between it and `now` follow from [`CandleFold::at`].
    pub fn seal(&mut self, now: Timestamp) -> Option<Candle> {
        let open_time = self.interval.floor(now);
        let closed =
            self.candles.back().copied().filter(|c| c.open_time >= self.sealed && c.open_time < open_time);
        self.sealed = self.sealed.max(open_time);
        closed
    }

    /// Folds one tick. Every tick is to be given once: duplicates are dropped before, by their sequence.
    pub fn apply(&mut self, tick: &Tick) -> Update {
        let open_time = self.interval.floor(tick.time);
        if let Some(latest) = self.candles.back_mut()
            && latest.open_time == open_time
            && open_time >= self.sealed
        {
            latest.add(tick);
            return Update::Updated(*latest);
        }
        if open_time < self.sealed {
            return self.revise(open_time, tick);
        }
        let closed = self.seal(tick.time);
        let candle = Candle::of(open_time, tick);
        self.push(candle);
        Update::Opened { candle, closed }
    }

    fn push(&mut self, candle: Candle) {
        self.candles.push_back(candle);
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.candles.len() > self.keep
            && let Some(dropped) = self.candles.pop_front()
        {
            self.horizon = self.interval.next(dropped.open_time);
        }
    }

    fn revise(&mut self, open_time: Timestamp, tick: &Tick) -> Update {
        if open_time < self.horizon {
            return Update::TooOld { open_time };
        }
        match self.candles.binary_search_by_key(&open_time, |candle| candle.open_time) {
            Ok(at) => {
                let candle = &mut self.candles[at];
                candle.add(tick);
                candle.revision = candle.revision.saturating_add(1);
                Update::Revised(*candle)
            }
            Err(at) => {
                let candle = Candle { revision: 1, ..Candle::of(open_time, tick) };
                self.candles.insert(at, candle);
                self.shrink();
                Update::Revised(candle)
            }
        }
    }
}

/// Every period from the one that holds `from` up to, not including, the one that holds `until`, oldest first and without a hole: the given
/// candles (oldest first, all of this interval), and flat ones where there is none. `previous` is the close before the first of them;
/// without it the first candle given begins the sequence.
pub fn filled<I: IntoIterator<Item = Candle>>(
    candles: I,
    interval: Interval,
    from: Timestamp,
    until: Timestamp,
    previous: Option<Price>,
) -> Filled<I::IntoIter> {
    let (next, until) = (interval.floor(from), interval.floor(until));
    let (mut candles, mut close) = (candles.into_iter(), previous);
    let pending = candles.find(|candle| {
        let reached = candle.open_time >= next;
        if !reached {
            close = Some(candle.close);
        }
        reached
    });
    Filled { candles, interval, next, until, close, pending }
}

/// See [`filled`].
#[derive(Clone, Debug)]
pub struct Filled<I> {
    candles: I,
    interval: Interval,
    next: Timestamp,
    until: Timestamp,
    close: Option<Price>,
    pending: Option<Candle>,
}

impl<I: Iterator<Item = Candle>> Iterator for Filled<I> {
    type Item = Candle;

    fn next(&mut self) -> Option<Candle> {
        if self.close.is_none() {
            self.next = self.pending.as_ref()?.open_time;
        }
        if self.next >= self.until {
            return None;
        }
        let candle = match self.pending {
            Some(candle) if candle.open_time <= self.next => {
                self.pending = self.candles.next();
                candle
            }
            _ => Candle::flat(self.next, self.close?),
        };
        self.close = Some(candle.close);
        self.next = self.interval.next(self.next);
        Some(candle)
    }
}

/// Candles of a longer interval from candles of a shorter one that divides it, oldest first. Flat candles may be there or not.
pub fn rollup<I: IntoIterator<Item = Candle>>(parts: I, interval: Interval) -> Rollup<I::IntoIter> {
    Rollup { parts: parts.into_iter(), interval, open: None }
}

/// See [`rollup`].
#[derive(Clone, Debug)]
pub struct Rollup<I> {
    parts: I,
    interval: Interval,
    open: Option<Candle>,
}

impl<I: Iterator<Item = Candle>> Iterator for Rollup<I> {
    type Item = Candle;

    fn next(&mut self) -> Option<Candle> {
        for part in self.parts.by_ref() {
            let open_time = self.interval.floor(part.open_time);
            match &mut self.open {
                Some(open) if open.open_time == open_time => *open = open.merge(&part),
                open => {
                    if let Some(done) = open.replace(Candle { open_time, ..part }) {
                        return Some(done);
                    }
                }
            }
        }
        self.open.take()
    }
}
