//! Questions to the market database.

use std::ops::ControlFlow;

use hoga_core::folds::candle::{Candle, Interval, filled};
use hoga_core::folds::ticker::{Ticker24h, WINDOW_SECONDS};
use hoga_core::ids::{MarketId, OrderId, Seq, Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;

use super::{AggregateTrade, Aggregator, seconds};
use crate::cells::{Cells, lowest_where};
use crate::error::StoreError;
use crate::sql::{ReadPool, Reader, values};
use crate::{DeadLetter, MAX_ROWS, place};

/// A trade as everybody may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarketTrade {
    /// Its number in its market.
    pub id: TradeId,
    /// When.
    pub time: Timestamp,
    /// The price.
    pub price: Price,
    /// Base quantity.
    pub qty: Qty,
    /// Quote amount.
    pub quote: Amount,
    /// Which side took.
    pub taker_side: Side,
    /// The buying order.
    pub buy_order: OrderId,
    /// The selling order.
    pub sell_order: OrderId,
}

impl MarketTrade {
    /// The order that took.
    pub fn taker_order(&self) -> OrderId {
        match self.taker_side {
            Side::Buy => self.buy_order,
            Side::Sell => self.sell_order,
        }
    }
}

/// A trade and the number of its aggregate.
pub(super) struct Numbered {
    pub(super) trade: MarketTrade,
    pub(super) aggregate: u64,
}

/// Which aggregate trades are asked for (Binance's `aggTrades`). All given bounds hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TradeQuery {
    /// From this aggregate on.
    pub from_id: Option<u64>,
    /// At this time or later.
    pub start: Option<Timestamp>,
    /// At this time or earlier.
    pub end: Option<Timestamp>,
    /// At most so many; no more than [`MAX_ROWS`] in any case.
    pub limit: usize,
}

/// Which candles are asked for (Binance's `klines`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CandleQuery {
    /// Opening at this time or later.
    pub start: Option<Timestamp>,
    /// Opening at this time or earlier.
    pub end: Option<Timestamp>,
    /// At most so many; no more than [`MAX_ROWS`] in any case.
    pub limit: usize,
}

/// Where a market stands, for whoever goes on from there with the events after it (streams after a restart).
#[derive(Clone, Debug)]
pub struct MarketResume {
    /// The market.
    pub market: MarketId,
    /// Its last trade.
    pub last: MarketTrade,
    /// The aggregate that the last trade is in, as far as it has come.
    pub aggregate: AggregateTrade,
    /// Numbers the next aggregates.
    pub aggregator: Aggregator,
    /// The latest candle with trades of each interval, in the order of [`Interval::ALL`].
    pub candles: Vec<(Interval, Candle)>,
    /// The 24-hour ticker.
    pub ticker: Ticker24h,
}

/// Trades and candles of all markets, as far as `market-data-service` has come. Cheap to clone; each call blocks on the disk, so call it
/// from a thread that may wait.
#[derive(Clone)]
pub struct MarketData {
    pub(crate) pool: ReadPool,
}

const TRADE_COLUMNS: &str = "id, time, price, qty, quote, taker_buys, buy_order, sell_order, aggregate";

const CANDLE_COLUMNS: &str = "open_time, open, high, low, close, volume, quote_volume, trades, taker_base, taker_quote, \
    first_trade, last_trade, first_time, last_time, revision";

impl MarketData {
    /// The latest trades, ascending.
    pub fn recent_trades(&self, market: MarketId, limit: usize) -> Result<Vec<MarketTrade>, StoreError> {
        self.pool.read("reading trades", |reader| {
            let Some(last) = last_trade(reader, market)? else { return Ok(Vec::new()) };
            let limit = limit.min(MAX_ROWS) as u64;
            let from = (last.trade.id.0 + 1).saturating_sub(limit);
            self.trades(reader, market, TradeId(from), limit as usize)
        })
    }

    /// The trades from number `from` on, ascending.
    pub fn trades_from(
        &self,
        market: MarketId,
        from: TradeId,
        limit: usize,
    ) -> Result<Vec<MarketTrade>, StoreError> {
        self.pool.read("reading trades", |reader| self.trades(reader, market, from, limit.min(MAX_ROWS)))
    }

    /// Aggregate trades, ascending. With `from_id` or `start`: the first ones from there; else the latest ones.
    pub fn aggregate_trades(
        &self,
        market: MarketId,
        query: &TradeQuery,
    ) -> Result<Vec<AggregateTrade>, StoreError> {
        let limit = query.limit.min(MAX_ROWS) as u64;
        self.pool.read("reading aggregate trades", |reader| {
            let Some(last) = last_trade(reader, market)? else { return Ok(Vec::new()) };
            let end = last.trade.id.0;
            let mut low = query.from_id.unwrap_or(1).max(1);
            let mut high = last.aggregate;
            if let Some(start) = query.start {
                let trade = first_trade_where(reader, market, end, |found| found.trade.time >= start)?;
                low = low.max(aggregate_of(reader, market, trade)?.unwrap_or(high + 1));
            }
            if let Some(until) = query.end {
                let trade = first_trade_where(reader, market, end, |found| found.trade.time > until)?;
                high = aggregate_of(reader, market, trade)?.map_or(high, |past| past - 1);
            }
            if query.from_id.is_some() || query.start.is_some() {
                high = high.min(low.saturating_add(limit).saturating_sub(1));
            } else {
                low = low.max((high + 1).saturating_sub(limit));
            }
            if low > high || limit == 0 {
                return Ok(Vec::new());
            }
            let from = first_trade_where(reader, market, end, |found| found.aggregate >= low)?;
            self.aggregate(reader, market, from, high)
        })
    }

    /// Candles, ascending and without holes: a period without trades after the first trade is flat at the close before it, up to the
    /// period that holds `now`. With `start`: the first ones from there; else the latest ones. The latest candle is as far as this group
    /// has come.
    pub fn candles(
        &self,
        market: MarketId,
        interval: Interval,
        query: &CandleQuery,
        now: Timestamp,
    ) -> Result<Vec<Candle>, StoreError> {
        let limit = query.limit.min(MAX_ROWS) as i64;
        self.pool.read("reading candles", |reader| {
            let Some(latest) = last_candle(reader, market, interval)? else { return Ok(Vec::new()) };
            let sql = "SELECT min(open_time) FROM candles WHERE market = ?1 AND seconds = ?2";
            let key = values![market.0, seconds(interval)];
            let oldest = reader.first(sql, key, |cells| cells.time())?.unwrap_or(latest.open_time);
            let mut low = oldest;
            let mut high = interval.floor(now).max(latest.open_time);
            if let Some(end) = query.end {
                high = high.min(interval.floor(end));
            }
            let span = (limit - 1).saturating_mul(interval.micros());
            if let Some(start) = query.start {
                let floor = interval.floor(start);
                low = low.max(if floor == start { floor } else { interval.next(start) });
                high = high.min(Timestamp(low.0.saturating_add(span)));
            } else {
                low = low.max(Timestamp(high.0.saturating_sub(span)));
            }
            if low > high || limit == 0 {
                return Ok(Vec::new());
            }
            let known = candles_between(reader, market, interval, low, high)?;
            let sql = "SELECT close FROM candles WHERE market = ?1 AND seconds = ?2 AND open_time < ?3
                       ORDER BY open_time DESC LIMIT 1";
            let key = values![market.0, seconds(interval), low.0];
            let before = reader.first(sql, key, |cells| cells.int().map(Price))?;
            Ok(filled(known, interval, low, interval.next(high), before).collect())
        })
    }

    /// The 1s candles with trades that open at `from` or later, ascending: what a rolling 24-hour ticker is made of.
    pub fn traded_seconds(&self, market: MarketId, from: Timestamp) -> Result<Vec<Candle>, StoreError> {
        self.pool.read("reading the candles of a day", |reader| {
            candles_between(reader, market, Interval::S1, from, Timestamp(i64::MAX))
        })
    }

    /// The latest candle with trades of each interval.
    pub fn latest_candles(&self, market: MarketId) -> Result<Vec<(Interval, Candle)>, StoreError> {
        self.pool.read("reading the latest candles", |reader| {
            let mut candles = Vec::new();
            for interval in Interval::ALL {
                let latest = last_candle(reader, market, interval)?;
                candles.extend(latest.map(|candle| (interval, candle)));
            }
            Ok(candles)
        })
    }

    /// Where all markets that have traded stand, and the last command of which everything is in here.
    pub fn resume(&self) -> Result<(Seq, Vec<MarketResume>), StoreError> {
        self.pool.read("reading where the markets stand", |reader| {
            let mut all = Vec::new();
            for market in markets(reader)? {
                let Some(last) = last_trade(reader, market)? else { continue };
                let end = last.trade.id.0;
                let from = first_trade_where(reader, market, end, |found| found.aggregate >= last.aggregate)?;
                let mut aggregate = AggregateTrade::of(last.aggregate, &last.trade);
                if let Some(whole) = self.aggregate(reader, market, from, last.aggregate)?.pop() {
                    aggregate = whole;
                }
                let mut candles = Vec::new();
                for interval in Interval::ALL {
                    let latest = last_candle(reader, market, interval)?;
                    candles.extend(latest.map(|candle| (interval, candle)));
                }
                all.push(MarketResume {
                    market,
                    last: last.trade,
                    aggregate,
                    aggregator: Aggregator::resume(last.aggregate, &last.trade),
                    candles,
                    ticker: ticker(reader, market, &last.trade)?,
                });
            }
            Ok((place::applied(reader)?, all))
        })
    }

    /// Messages that this group could not use, latest first.
    pub fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        crate::dead_letters::list(&self.pool, limit)
    }

    fn trades(
        &self,
        reader: &Reader<'_>,
        market: MarketId,
        from: TradeId,
        limit: usize,
    ) -> Result<Vec<MarketTrade>, StoreError> {
        let sql =
            format!("SELECT {TRADE_COLUMNS} FROM trades WHERE market = ?1 AND id >= ?2 ORDER BY id LIMIT ?3");
        let params = values![market.0, number(from.0), limit];
        reader.all(&sql, params, |cells| Ok(read_trade(cells)?.trade))
    }

    /// The aggregates from trade `from` to aggregate `last`.
    fn aggregate(
        &self,
        reader: &Reader<'_>,
        market: MarketId,
        from: u64,
        last: u64,
    ) -> Result<Vec<AggregateTrade>, StoreError> {
        let sql = format!("SELECT {TRADE_COLUMNS} FROM trades WHERE market = ?1 AND id >= ?2 ORDER BY id");
        let mut all: Vec<AggregateTrade> = Vec::new();
        reader.each(&sql, values![market.0, number(from)], &mut |cells| {
            let Numbered { trade, aggregate } = read_trade(cells)?;
            if aggregate > last {
                return Ok(ControlFlow::Break(()));
            }
            match all.last_mut() {
                Some(running) if running.id == aggregate => running.add(&trade),
                _ => all.push(AggregateTrade::of(aggregate, &trade)),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }
}

/// A number of the API as the databases have it: numbers above the highest one are beyond everything that is stored.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The markets that have traded, ascending.
pub(super) fn markets(reader: &Reader<'_>) -> Result<Vec<MarketId>, StoreError> {
    let sql = "SELECT market FROM trades WHERE market > ?1 ORDER BY market LIMIT 1";
    let mut all = Vec::new();
    let mut after = -1_i64;
    while let Some(market) = reader.first(sql, values![after], |cells| cells.small("market"))? {
        all.push(MarketId(market));
        after = i64::from(market);
    }
    Ok(all)
}

/// The market's last trade.
pub(super) fn last_trade(reader: &Reader<'_>, market: MarketId) -> Result<Option<Numbered>, StoreError> {
    let sql = format!("SELECT {TRADE_COLUMNS} FROM trades WHERE market = ?1 ORDER BY id DESC LIMIT 1");
    reader.first(&sql, values![market.0], read_trade)
}

/// The latest candle with trades.
pub(super) fn last_candle(
    reader: &Reader<'_>,
    market: MarketId,
    interval: Interval,
) -> Result<Option<Candle>, StoreError> {
    let sql = format!(
        "SELECT {CANDLE_COLUMNS} FROM candles WHERE market = ?1 AND seconds = ?2 ORDER BY open_time DESC LIMIT 1"
    );
    reader.first(&sql, values![market.0, seconds(interval)], read_candle)
}

fn candles_between(
    reader: &Reader<'_>,
    market: MarketId,
    interval: Interval,
    low: Timestamp,
    high: Timestamp,
) -> Result<Vec<Candle>, StoreError> {
    let sql = format!(
        "SELECT {CANDLE_COLUMNS} FROM candles WHERE market = ?1 AND seconds = ?2 AND open_time BETWEEN ?3 AND ?4 ORDER BY open_time"
    );
    reader.all(&sql, values![market.0, seconds(interval), low.0, high.0], read_candle)
}

/// The first trade number up to `last` (else `last + 1`) for which `reached` holds, which it does for all trades after such a one.
fn first_trade_where(
    reader: &Reader<'_>,
    market: MarketId,
    last: u64,
    reached: impl Fn(&Numbered) -> bool,
) -> Result<u64, StoreError> {
    let sql =
        format!("SELECT {TRADE_COLUMNS} FROM trades WHERE market = ?1 AND id >= ?2 ORDER BY id LIMIT 1");
    lowest_where(1, last, |id| {
        let found = reader.first(&sql, values![market.0, number(id)], read_trade)?;
        Ok(found.is_none_or(|found| reached(&found)))
    })
}

/// The aggregate of trade `id`, or of the first one after it.
fn aggregate_of(reader: &Reader<'_>, market: MarketId, id: u64) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT aggregate FROM trades WHERE market = ?1 AND id >= ?2 ORDER BY id LIMIT 1";
    reader.first(sql, values![market.0, number(id)], |cells| cells.unsigned())
}

/// The 24-hour ticker from the stored 1s candles: those of the window that ends with the last trade, and the one before it.
fn ticker(reader: &Reader<'_>, market: MarketId, last: &MarketTrade) -> Result<Ticker24h, StoreError> {
    let start = Timestamp(Interval::S1.floor(last.time).0 - WINDOW_SECONDS * 1_000_000);
    let sql = "SELECT coalesce(max(open_time), ?3) FROM candles WHERE market = ?1 AND seconds = ?2 AND open_time <= ?3";
    let key = values![market.0, seconds(Interval::S1), start.0];
    let from = reader.first(sql, key, |cells| cells.time())?.unwrap_or(start);
    let mut ticker = Ticker24h::new();
    for candle in candles_between(reader, market, Interval::S1, from, last.time)? {
        // The quantity of the last trade is shown only of the very last second.
        ticker.add_second(&candle, last.qty);
    }
    Ok(ticker)
}

fn read_trade(cells: &mut Cells<'_>) -> Result<Numbered, StoreError> {
    let trade = MarketTrade {
        id: TradeId(cells.unsigned()?),
        time: cells.time()?,
        price: Price(cells.int()?),
        qty: Qty(cells.int()?),
        quote: Amount(cells.int()?),
        taker_side: if cells.flag()? { Side::Buy } else { Side::Sell },
        buy_order: OrderId(cells.unsigned()?),
        sell_order: OrderId(cells.unsigned()?),
    };
    Ok(Numbered { trade, aggregate: cells.unsigned()? })
}

fn read_candle(cells: &mut Cells<'_>) -> Result<Candle, StoreError> {
    Ok(Candle {
        open_time: cells.time()?,
        open: Price(cells.int()?),
        high: Price(cells.int()?),
        low: Price(cells.int()?),
        close: Price(cells.int()?),
        volume: Qty(cells.int()?),
        quote_volume: Amount(cells.int()?),
        trades: cells.unsigned()?,
        taker_base: Qty(cells.int()?),
        taker_quote: Amount(cells.int()?),
        first_trade: TradeId(cells.unsigned()?),
        last_trade: TradeId(cells.unsigned()?),
        first_time: cells.time()?,
        last_time: cells.time()?,
        revision: cells.small("revision")?,
    })
}
