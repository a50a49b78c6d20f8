//! `market-data-service`: trades, the aggregate that each belongs to, and candles of all intervals.
//!
//! Trades and aggregates are numbered in the order of time, so neither times nor aggregates need an index: both are found by bisection
//! over the trade numbers. Of the candles, each period that a batch touched is written once, when the batch ends.

mod aggregate;
mod reads;

use std::path::Path;

use hoga_core::event::{Event, EventRecord, Trade};
use hoga_core::folds::candle::{Candle, Interval, Tick};
use hoga_core::ids::{MarketId, Timestamp};
use hoga_core::order::Side;
use rusqlite::{Connection, Statement, Transaction, params};
use rustc_hash::FxHashMap;

use crate::Group;
use crate::consumer::{Applied, Model};
use crate::error::{InFile, StoreError};

pub use aggregate::{AggregateTrade, Aggregator};
pub use reads::{CandleQuery, MarketData, MarketResume, MarketTrade, TradeQuery};

const SCHEMA: &str = "
CREATE TABLE trades (
    market INTEGER NOT NULL, id INTEGER NOT NULL, time INTEGER NOT NULL, price INTEGER NOT NULL, qty INTEGER NOT NULL,
    quote INTEGER NOT NULL, taker_buys INTEGER NOT NULL, buy_order INTEGER NOT NULL, sell_order INTEGER NOT NULL,
    aggregate INTEGER NOT NULL,
    PRIMARY KEY (market, id)
) WITHOUT ROWID;
CREATE TABLE candles (
    market INTEGER NOT NULL, seconds INTEGER NOT NULL, open_time INTEGER NOT NULL,
    open INTEGER NOT NULL, high INTEGER NOT NULL, low INTEGER NOT NULL, close INTEGER NOT NULL,
    volume INTEGER NOT NULL, quote_volume INTEGER NOT NULL, trades INTEGER NOT NULL,
    taker_base INTEGER NOT NULL, taker_quote INTEGER NOT NULL, first_trade INTEGER NOT NULL, last_trade INTEGER NOT NULL,
    first_time INTEGER NOT NULL, last_time INTEGER NOT NULL, revision INTEGER NOT NULL,
    PRIMARY KEY (market, seconds, open_time)
) WITHOUT ROWID;";

const INSERT_TRADE: &str =
    "INSERT INTO trades (market, id, time, price, qty, quote, taker_buys, buy_order, sell_order, aggregate)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const REPLACE_CANDLE: &str = "INSERT OR REPLACE INTO candles (market, seconds, open_time, open, high, low, close, volume, quote_volume,
    trades, taker_base, taker_quote, first_trade, last_trade, first_time, last_time, revision)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

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
    last: Option<(hoga_core::ids::TradeId, Timestamp)>,
    aggregator: Aggregator,
    running: [Option<Running>; Interval::ALL.len()],
}

/// What has to be known between batches, and the batch being gathered.
#[derive(Default)]
pub(crate) struct MarketModel {
    markets: FxHashMap<MarketId, Market>,
    trades: Vec<Folded>,
    finished: Vec<(MarketId, Interval, Candle)>,
}

impl MarketModel {
    fn fold(&mut self, trade: &Trade, time: Timestamp) -> Applied {
        let market = self.markets.entry(trade.market).or_default();
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
    const SCHEMA: &'static str = SCHEMA;
    const SCHEMA_VERSION: i64 = 1;

    fn load(conn: &Connection, path: &Path) -> Result<MarketModel, StoreError> {
        let mut model = MarketModel::default();
        for market in reads::markets(conn, path)? {
            let Some(last) = reads::last_trade(conn, path, market)? else { continue };
            let mut state = Market {
                last: Some((last.trade.id, last.trade.time)),
                aggregator: Aggregator::resume(last.aggregate, &last.trade),
                ..Market::default()
            };
            for (interval, slot) in Interval::ALL.into_iter().zip(&mut state.running) {
                let candle = reads::last_candle(conn, path, market, interval)?;
                *slot = candle.map(|candle| Running { candle, changed: false });
            }
            model.markets.insert(market, state);
        }
        Ok(model)
    }

    fn apply(&mut self, record: &EventRecord) -> Result<Applied, StoreError> {
        match &record.event {
            Event::Trade(trade) => Ok(self.fold(trade, record.time)),
            _ => Ok(Applied::Unusable("not a trade")),
        }
    }

    fn flush(&mut self, tx: &Transaction<'_>, path: &Path) -> Result<(), StoreError> {
        self.trades.sort_unstable_by_key(|folded| (folded.trade.market, folded.trade.id));
        let mut insert = tx.prepare_cached(INSERT_TRADE).doing(path, "preparing to store trades")?;
        for Folded { time, trade, aggregate } in self.trades.drain(..) {
            insert
                .execute(params![
                    trade.market.0,
                    trade.id.0 as i64,
                    time.0,
                    trade.price.0,
                    trade.qty.0,
                    trade.quote.0,
                    trade.taker_side == Side::Buy,
                    trade.buy_order.0 as i64,
                    trade.sell_order.0 as i64,
                    aggregate as i64,
                ])
                .doing(path, "storing a trade")?;
        }
        for (market, state) in &mut self.markets {
            for (interval, slot) in Interval::ALL.into_iter().zip(&mut state.running) {
                if let Some(running) = slot.as_mut().filter(|running| running.changed) {
                    running.changed = false;
                    self.finished.push((*market, interval, running.candle));
                }
            }
        }
        self.finished
            .sort_unstable_by_key(|(market, interval, candle)| (*market, *interval, candle.open_time));
        let mut replace = tx.prepare_cached(REPLACE_CANDLE).doing(path, "preparing to store candles")?;
        for (market, interval, candle) in self.finished.drain(..) {
            store_candle(&mut replace, path, market, interval, &candle)?;
        }
        Ok(())
    }
}

fn store_candle(
    replace: &mut Statement<'_>,
    path: &Path,
    market: MarketId,
    interval: Interval,
    candle: &Candle,
) -> Result<(), StoreError> {
    replace
        .execute(params![
            market.0,
            seconds(interval),
            candle.open_time.0,
            candle.open.0,
            candle.high.0,
            candle.low.0,
            candle.close.0,
            candle.volume.0,
            candle.quote_volume.0,
            candle.trades as i64,
            candle.taker_base.0,
            candle.taker_quote.0,
            candle.first_trade.0 as i64,
            candle.last_trade.0 as i64,
            candle.first_time.0,
            candle.last_time.0,
            candle.revision,
        ])
        .doing(path, "storing a candle")?;
    Ok(())
}
