//! Aggregate trades: consecutive trades of one taking order at one price and one time count as one (Binance Spot documentation,
//! "Compressed/Aggregate trades list").

use hoga_core::event::Trade;
use hoga_core::ids::{OrderId, Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;

use super::reads::MarketTrade;

/// Trades that one taking order made at one price and one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregateTrade {
    /// Its number in its market, from 1 without holes.
    pub id: u64,
    /// The price.
    pub price: Price,
    /// Sum of the base quantities.
    pub qty: Qty,
    /// Sum of the quote amounts.
    pub quote: Amount,
    /// First trade in it.
    pub first: TradeId,
    /// Last trade in it.
    pub last: TradeId,
    /// When.
    pub time: Timestamp,
    /// Which side took.
    pub taker_side: Side,
}

impl AggregateTrade {
    /// The aggregate `id` that begins with this trade.
    pub fn of(id: u64, trade: &MarketTrade) -> AggregateTrade {
        AggregateTrade {
            id,
            price: trade.price,
            qty: trade.qty,
            quote: trade.quote,
            first: trade.id,
            last: trade.id,
            time: trade.time,
            taker_side: trade.taker_side,
        }
    }

    /// Takes the next trade of the same aggregate. Sums stop at the highest value.
    pub fn add(&mut self, trade: &MarketTrade) {
        self.qty = Qty(self.qty.0.saturating_add(trade.qty.0));
        self.quote = Amount(self.quote.0.saturating_add(trade.quote.0));
        self.last = trade.id;
    }
}

/// Numbers the aggregates of one market. One rule for what is stored and for what is streamed, so that both give one trade the same
/// aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aggregator {
    last_id: u64,
    taker: OrderId,
    price: Price,
    time: Timestamp,
}

impl Aggregator {
    /// Goes on after the market's last trade, which was in aggregate `last_id`.
    pub fn resume(last_id: u64, last: &MarketTrade) -> Aggregator {
        Aggregator { last_id, taker: last.taker_order(), price: last.price, time: last.time }
    }

    /// The number of the aggregate that the market's next trade is in: that of the trade before it, or one more.
    pub fn number(&mut self, trade: &Trade, time: Timestamp) -> u64 {
        let taker = match trade.taker_side {
            Side::Buy => trade.buy_order,
            Side::Sell => trade.sell_order,
        };
        if self.last_id == 0 || (taker, trade.price, time) != (self.taker, self.price, self.time) {
            *self = Aggregator { last_id: self.last_id + 1, taker, price: trade.price, time };
        }
        self.last_id
    }
}
