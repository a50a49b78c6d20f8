//! The 24-hour ticker: a true rolling window, not a calendar day.
//!
//! The window moves in steps of one second: it holds the second of `now` and the 86,399 seconds before it. Only seconds with trades
//! take room (96 bytes, and 16 for each second that may still become the highest or lowest).

use crate::folds::candle::{Candle, Interval, Tick, average_price};
use crate::ids::{Timestamp, TradeId};
use crate::money::{Amount, Price, Qty};
use std::collections::VecDeque;

/// Seconds of the window.
pub const WINDOW_SECONDS: i64 = 86_400;

const SECOND: i64 = 1_000_000;

/// What the ticker shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickerValues {
    /// First price in the window; the last price when nothing traded in it.
    pub open: Price,
    /// Highest price in the window.
    pub high: Price,
    /// Lowest price in the window.
    pub low: Price,
    /// Last price, even when that trade left the window.
    pub last: Price,
    /// Quantity of the last trade.
    pub last_qty: Qty,
    /// Price of the last trade before the window; zero when there was none.
    pub previous_close: Price,
    /// Base quantity traded in the window.
    pub volume: Qty,
    /// Quote amount traded in the window.
    pub quote_volume: Amount,
    /// Trades in the window.
    pub trades: u64,
    /// First trade in the window; 0 when there is none.
    pub first_id: TradeId,
    /// Last trade in the window; 0 when there is none.
    pub last_id: TradeId,
    /// Start of the window.
    pub open_time: Timestamp,
    /// End of the window: the moment that was asked for.
    pub close_time: Timestamp,
    /// Average price weighted by quantity, cut to 10⁻⁸; zero when nothing traded.
    pub weighted_avg: Price,
    /// `last − open`.
    pub change: Price,
    /// `change ÷ open` in thousandths of a percent, rounded half away from zero.
    pub percent: i64,
}

/// The trades of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Second {
    second: i64,
    first: (u32, TradeId),
    last: (u32, TradeId),
    open: Price,
    close: Price,
    volume: i128,
    quote: i128,
    trades: u64,
}

/// Folds the ticks of one market into the 24-hour ticker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticker24h {
    seconds: VecDeque<Second>,
    /// Seconds whose price is above that of all later ones, oldest first: the first is the highest of the window.
    highs: VecDeque<(i64, Price)>,
    /// The same for the lowest.
    lows: VecDeque<(i64, Price)>,
    volume: i128,
    quote: i128,
    trades: u64,
    last: Option<Last>,
    /// The trade before the window.
    previous: Option<(Timestamp, TradeId, Price)>,
    /// First second of the window as far as it has moved. It never goes back.
    start: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    time: Timestamp,
    id: TradeId,
    price: Price,
    qty: Qty,
}

impl Ticker24h {
    /// An empty ticker.
    pub fn new() -> Ticker24h {
        Ticker24h::default()
    }

    /// Takes one trade; arrival order does not matter. A tick before the window changes at most `previous_close` (and returns false).
    pub fn apply(&mut self, tick: &Tick) -> bool {
        self.add_second(&Candle::of(Interval::S1.floor(tick.time), tick), tick.qty)
    }

    /// Takes the trades of one second at once: how a ticker is rebuilt from stored 1s candles. `last_qty` is the quantity of the candle's
    /// last trade.
    pub fn add_second(&mut self, candle: &Candle, last_qty: Qty) -> bool {
        if candle.trades == 0 {
            return false;
        }
        let second = candle.last_time.0.div_euclid(SECOND);
        let last = Last { time: candle.last_time, id: candle.last_trade, price: candle.close, qty: last_qty };
        if self.last.is_none_or(|l| (l.time, l.id) <= (last.time, last.id)) {
            self.last = Some(last);
        }
        self.advance(second);
        if self.start.is_some_and(|start| second < start) {
            self.remember_previous(last.time, last.id, last.price);
            return false;
        }
        let micros = |time: Timestamp| time.0.rem_euclid(SECOND) as u32;
        self.insert(Second {
            second,
            first: (micros(candle.first_time), candle.first_trade),
            last: (micros(candle.last_time), candle.last_trade),
            open: candle.open,
            close: candle.close,
            volume: i128::from(candle.volume.0),
            quote: i128::from(candle.quote_volume.0),
            trades: candle.trades,
        });
        push_extreme(&mut self.highs, second, candle.high, |kept, new| kept > new);
        push_extreme(&mut self.lows, second, candle.low, |kept, new| kept < new);
        true
    }

    /// The ticker at `now`. Time does not go back: an earlier `now` than that of the newest trade or call gives the later window.
    pub fn at(&mut self, now: Timestamp) -> TickerValues {
        let end = self
            .last
            .map_or(now.0.div_euclid(SECOND), |l| now.0.div_euclid(SECOND).max(l.time.0.div_euclid(SECOND)));
        self.advance(end);
        let start = self.start.unwrap_or(end - WINDOW_SECONDS + 1);
        let mut values = TickerValues {
            open_time: Timestamp(start.saturating_mul(SECOND)),
            close_time: Timestamp(now.0.max((start + WINDOW_SECONDS - 1).saturating_mul(SECOND))),
            previous_close: self.previous.map_or(Price::ZERO, |(_, _, price)| price),
            ..TickerValues::default()
        };
        let Some(last) = self.last else { return values };
        values.last = last.price;
        values.last_qty = last.qty;
        values.open = self.seconds.front().map_or(last.price, |second| second.open);
        values.high = self.highs.front().map_or(last.price, |(_, price)| *price);
        values.low = self.lows.front().map_or(last.price, |(_, price)| *price);
        values.volume = Qty(i64::try_from(self.volume).unwrap_or(i64::MAX));
        values.quote_volume = Amount(i64::try_from(self.quote).unwrap_or(i64::MAX));
        values.trades = self.trades;
        values.first_id = self.seconds.front().map_or(TradeId(0), |second| second.first.1);
        values.last_id = self.seconds.back().map_or(TradeId(0), |second| second.last.1);
        values.weighted_avg = average_price(self.quote, self.volume, Price(1));
        values.change = Price(values.last.0.saturating_sub(values.open.0));
        values.percent = percent(values.change, values.open);
        values
    }

    /// Moves the window so that it ends with second `end`.
    fn advance(&mut self, end: i64) {
        let start = end.saturating_sub(WINDOW_SECONDS - 1);
        if self.start.is_some_and(|current| current >= start) {
            return;
        }
        self.start = Some(start);
        while self.seconds.front().is_some_and(|second| second.second < start) {
            let Some(gone) = self.seconds.pop_front() else { break };
            self.volume -= gone.volume;
            self.quote -= gone.quote;
            self.trades -= gone.trades;
            let time = Timestamp(gone.second * SECOND + i64::from(gone.last.0));
            self.remember_previous(time, gone.last.1, gone.close);
        }
        for extremes in [&mut self.highs, &mut self.lows] {
            while extremes.front().is_some_and(|(second, _)| *second < start) {
                extremes.pop_front();
            }
        }
    }

    fn remember_previous(&mut self, time: Timestamp, id: TradeId, price: Price) {
        if self.previous.is_none_or(|(t, i, _)| (t, i) <= (time, id)) {
            self.previous = Some((time, id, price));
        }
    }

    fn insert(&mut self, new: Second) {
        self.volume += new.volume;
        self.quote += new.quote;
        self.trades += new.trades;
        // Almost always the newest second: look there first.
        let at = match self.seconds.back() {
            Some(back) if back.second == new.second => Ok(self.seconds.len() - 1),
            Some(back) if back.second > new.second => {
                self.seconds.binary_search_by_key(&new.second, |s| s.second)
            }
            _ => Err(self.seconds.len()),
        };
        match at {
            Err(at) => self.seconds.insert(at, new),
            Ok(at) => {
                let second = &mut self.seconds[at];
                if new.first < second.first {
                    (second.first, second.open) = (new.first, new.open);
                }
                if new.last >= second.last {
                    (second.last, second.close) = (new.last, new.close);
                }
                second.volume += new.volume;
                second.quote += new.quote;
                second.trades += new.trades;
            }
        }
    }
}

/// Keeps `queue` so that each price `beats` all later ones: the first is then the extreme of the window, found without a search.
fn push_extreme(
    queue: &mut VecDeque<(i64, Price)>,
    second: i64,
    price: Price,
    beats: impl Fn(Price, Price) -> bool,
) {
    // Where the new entry would stand; entries from there on are of the same second or later (only after a late tick).
    let mut at = queue.partition_point(|(s, _)| *s < second);
    if queue.get(at).is_some_and(|(_, later)| *later == price || beats(*later, price)) {
        return;
    }
    if queue.get(at).is_some_and(|(s, _)| *s == second) {
        queue.remove(at);
    }
    while at > 0 && !beats(queue[at - 1].1, price) {
        at -= 1;
        queue.remove(at);
    }
    queue.insert(at, (second, price));
}

/// `change ÷ open` in thousandths of a percent, rounded half away from zero; zero when `open` is not positive.
fn percent(change: Price, open: Price) -> i64 {
    if open.0 <= 0 {
        return 0;
    }
    let (change, open) = (i128::from(change.0) * 100_000, i128::from(open.0));
    let half = if change < 0 { -open / 2 } else { open / 2 };
    i64::try_from((change + half) / open).unwrap_or(i64::MAX)
}
