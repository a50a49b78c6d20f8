//! `market-data-service`: trades, the aggregate that each belongs to, and candles of all intervals.
//!
//! Trades and aggregates are numbered in the order of time, so neither times nor aggregates need an index: both are found by bisection
//! over the trade numbers. Of the candles, each period that a batch touched is written once, when the batch ends.

mod aggregate;
mod reads;

use hoga_core::event::{Event, EventRecord, Trade};
use hoga_core::folds::candle::{Candle, Interval, Tick};
use hoga_core::ids::{MarketId, Timestamp};
use hoga_core::order::Side;
use rustc_hash::FxHashMap;

use crate::Group;
use crate::error::StoreError;
use crate::model::{Applied, Delivery, Model, Owned};
use crate::sql::{Kind, Reader, Rows, Table, Tx, values};

pub use aggregate::{AggregateTrade, Aggregator};
pub use reads::{CandleQuery, MarketData, MarketResume, MarketTrade, TradeQuery};

static MARKETS: Table = Table {
    name: "markets",
    columns: &[("market", Kind::Int), ("partition", Kind::Int)],
    conflict: "ON CONFLICT (market) DO NOTHING",
};

static TRADES: Table = Table {
    name: "trades",
    columns: &[
        ("market", Kind::Int),
        ("id", Kind::Int),
        ("time", Kind::Int),
        ("price", Kind::Int),
        ("qty", Kind::Int),
        ("quote", Kind::Int),
        ("taker_buys", Kind::Int),
        ("buy_order", Kind::Int),
        ("sell_order", Kind::Int),
        ("aggregate", Kind::Int),
    ],
    conflict: "",
};

static CANDLES: Table = Table {
    name: "candles",
    columns: &[
        ("market", Kind::Int),
        ("seconds", Kind::Int),
        ("open_time", Kind::Int),
        ("open", Kind::Int),
        ("high", Kind::Int),
        ("low", Kind::Int),
        ("close", Kind::Int),
        ("volume", Kind::Int),
        ("quote_volume", Kind::Int),
        ("trades", Kind::Int),
        ("taker_base", Kind::Int),
        ("taker_quote", Kind::Int),
        ("first_trade", Kind::Int),
        ("last_trade", Kind::Int),
        ("first_time", Kind::Int),
        ("last_time", Kind::Int),
        ("revision", Kind::Int),
    ],
    conflict: "ON CONFLICT (market, seconds, open_time) DO UPDATE SET open = excluded.open, high = excluded.high, low = excluded.low,
        close = excluded.close, volume = excluded.volume, quote_volume = excluded.quote_volume, trades = excluded.trades,
        taker_base = excluded.taker_base, taker_quote = excluded.taker_quote, first_trade = excluded.first_trade,
        last_trade = excluded.last_trade, first_time = excluded.first_time, last_time = excluded.last_time,
        revision = excluded.revision",
};

/// How an interval is written in the table: its length in seconds.
fn seconds(interval: Interval) -> i64 {
    interval.micros() / 1_000_000
}

struct Folded {
    time: Timestamp,
    trade: Trade,
    aggregate: u64,
}

#[derive(Clone, Copy)]
struct Running {
    candle: Candle,
    /// Whether the batch changed it.
    changed: bool,
}

/// One market between batches: the running candles and where its numbering stands.
#[derive(Default)]
struct Market {
    partition: u32,
    /// Whether the table of markets has it.
    known: bool,
    last: Option<(hoga_core::ids::TradeId, Timestamp)>,
    aggregator: Aggregator,
    running: [Option<Running>; Interval::ALL.len()],
}

/// What has to be known between batches, and the batch being gathered.
pub(crate) struct MarketModel {
    markets: FxHashMap<MarketId, Market>,
    trades: Vec<Folded>,
    finished: Vec<(MarketId, Interval, Candle)>,
    trade_rows: Rows,
    candle_rows: Rows,
}

impl Default for MarketModel {
    fn default() -> MarketModel {
        MarketModel {
            markets: FxHashMap::default(),
            trades: Vec::new(),
            finished: Vec::new(),
            trade_rows: Rows::new(&TRADES),
            candle_rows: Rows::new(&CANDLES),
        }
    }
}

impl MarketModel {
    fn fold(&mut self, partition: u32, trade: &Trade, time: Timestamp) -> Applied {
        let new = || Market { partition, ..Market::default() };
        let market = self.markets.entry(trade.market).or_insert_with(new);
        if market.last.is_some_and(|(id, at)| trade.id <= id || time < at) {
            return Applied::Unusable(
                "a trade with a number or a time before that of the last one in its market",
            );
        }
        market.last = Some((trade.id, time));
        let aggregate = market.aggregator.number(trade, time);
        self.trades.push(Folded { time, trade: *trade, aggregate });
        let tick = Tick::of(trade, time);
        for (interval, slot) in Interval::ALL.into_iter().zip(&mut market.running) {
            let open_time = interval.floor(time);
            match slot {
                Some(running) if running.candle.open_time == open_time => {
                    running.candle.add(&tick);
                    running.changed = true;
                }
                _ => {
                    let next = Running { candle: Candle::of(open_time, &tick), changed: true };
                    if let Some(before) = slot.replace(next).filter(|before| before.changed) {
                        self.finished.push((trade.market, interval, before.candle));
                    }
                }
            }
        }
        Applied::Done
    }
}

impl Model for MarketModel {
    const GROUP: Group = Group::Market;

    fn load(&mut self, reader: &Reader<'_>, owned: &[Owned]) -> Result<(), StoreError> {
        for partition in owned.iter().map(|owned| owned.partition) {
            let sql = "SELECT market FROM markets WHERE partition = ?1 ORDER BY market";
            let markets =
                reader.all(sql, values![partition], |cells| Ok(MarketId(cells.small("market")?)))?;
            for market in markets {
                let Some(last) = reads::last_trade(reader, market)? else { continue };
                let mut state = Market {
                    partition,
                    known: true,
                    last: Some((last.trade.id, last.trade.time)),
                    aggregator: Aggregator::resume(last.aggregate, &last.trade),
                    ..Market::default()
                };
                for (interval, slot) in Interval::ALL.into_iter().zip(&mut state.running) {
                    let candle = reads::last_candle(reader, market, interval)?;
                    *slot = candle.map(|candle| Running { candle, changed: false });
                }
                self.markets.insert(market, state);
            }
        }
        Ok(())
    }

    fn forget(&mut self, lost: &[Owned]) {
        self.markets.retain(|_, market| lost.iter().all(|owned| owned.partition != market.partition));
    }

    fn apply(&mut self, from: Delivery, record: &EventRecord) -> Result<Applied, StoreError> {
        match &record.event {
            Event::Trade(trade) => Ok(self.fold(from.of.partition, trade, record.time)),
            _ => Ok(Applied::Unusable("not a trade")),
        }
    }

    fn flush(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        self.trades.sort_unstable_by_key(|folded| (folded.trade.market, folded.trade.id));
        for Folded { time, trade, aggregate } in self.trades.drain(..) {
            self.trade_rows
                .ints([i64::from(trade.market.0), trade.id.0 as i64, time.0])
                .ints([trade.price.0, trade.qty.0, trade.quote.0, i64::from(trade.taker_side == Side::Buy)])
                .ints([trade.buy_order.0 as i64, trade.sell_order.0 as i64, aggregate as i64]);
        }
        let mut markets = Rows::new(&MARKETS);
        for (market, state) in &mut self.markets {
            if !std::mem::replace(&mut state.known, true) {
                markets.ints([i64::from(market.0), i64::from(state.partition)]);
            }
            for (interval, slot) in Interval::ALL.into_iter().zip(&mut state.running) {
                if let Some(running) = slot.as_mut().filter(|running| running.changed) {
                    running.changed = false;
                    self.finished.push((*market, interval, running.candle));
                }
            }
        }
        self.finished
            .sort_unstable_by_key(|(market, interval, candle)| (*market, *interval, candle.open_time));
        for (market, interval, candle) in self.finished.drain(..) {
            self.candle_rows
                .ints([i64::from(market.0), seconds(interval), candle.open_time.0])
                .ints([candle.open.0, candle.high.0, candle.low.0, candle.close.0])
                .ints([candle.volume.0, candle.quote_volume.0, candle.trades as i64])
                .ints([candle.taker_base.0, candle.taker_quote.0])
                .ints([candle.first_trade.0 as i64, candle.last_trade.0 as i64])
                .ints([candle.first_time.0, candle.last_time.0, i64::from(candle.revision)]);
        }
        for rows in [&markets, &self.trade_rows, &self.candle_rows] {
            tx.write(rows)?;
        }
        self.trade_rows.clear();
        self.candle_rows.clear();
        Ok(())
    }
}
