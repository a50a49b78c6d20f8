//! What readers of the hub see: plain values.

use hoga_core::event::Trade;
use hoga_core::folds::candle::{Candle, Interval, Tick};
use hoga_core::ids::{MarketId, OrderId, Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;

/// The best bid and ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookTicker {
    /// The last depth update that is contained.
    pub update_id: u64,
    /// Highest bid and its total; `None` without bids.
    pub bid: Option<(Price, Qty)>,
    /// Lowest ask and its total; `None` without asks.
    pub ask: Option<(Price, Qty)>,
}

/// A trade as the market sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarketTrade {
    /// Its number in its market.
    pub id: TradeId,
    /// When it happened.
    pub time: Timestamp,
    /// The resting order's price.
    pub price: Price,
    /// Base quantity.
    pub qty: Qty,
    /// Quote amount.
    pub quote: Amount,
    /// Which side took; the buyer was the maker when this is [`Side::Sell`].
    pub taker_side: Side,
    /// The order that took: trades of one taker order at one price and time form an aggregate trade.
    pub taker_order: OrderId,
}

impl MarketTrade {
    /// From the engine's event.
    pub fn of(trade: &Trade, time: Timestamp) -> MarketTrade {
        let taker_order = match trade.taker_side {
            Side::Buy => trade.buy_order,
            Side::Sell => trade.sell_order,
        };
        MarketTrade {
            id: trade.id,
            time,
            price: trade.price,
            qty: trade.qty,
            quote: trade.quote,
            taker_side: trade.taker_side,
            taker_order,
        }
    }

    /// Whether both belong to one aggregate trade, `next` being the trade after `self`.
    pub fn joins(&self, next: &MarketTrade) -> bool {
        self.taker_order == next.taker_order
            && self.price == next.price
            && self.time == next.time
            && self.taker_side == next.taker_side
            && self.id.0 + 1 == next.id.0
    }

    pub(crate) fn tick(&self) -> Tick {
        Tick {
            time: self.time,
            id: self.id,
            price: self.price,
            qty: self.qty,
            quote: self.quote,
            taker_side: self.taker_side,
        }
    }
}

/// What a market's read model knows from before the start, all as of one trade.
#[derive(Clone, Debug, Default)]
pub struct MarketHistory {
    /// Which market.
    pub market: MarketId,
    /// The last trade that everything below contains.
    pub through: TradeId,
    /// The latest trades, ascending, at most [`super::TRADES_KEPT`].
    pub trades: Vec<MarketTrade>,
    /// The 1s candles with trades of the last 24 hours (some more do no harm), ascending: for the rolling ticker.
    pub seconds: Vec<Candle>,
    /// The latest candles with trades of each interval, ascending within each: one is enough, it is taken as running.
    pub candles: Vec<(Interval, Candle)>,
}
