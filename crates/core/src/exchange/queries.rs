//! Questions that change nothing.

use super::Exchange;
use crate::event::Balance;
use crate::ids::{AccountId, AssetId, MarketId, Seq, Timestamp, TradeId};
use crate::instrument::{Instrument, Name};
use crate::money::{Price, Qty};
use crate::order::{Order, OrderRef, Side};

/// The best levels of a market.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// The number of the last depth update that is contained.
    pub update_id: u64,
    /// Price and total, best (highest) first.
    pub bids: Vec<(Price, Qty)>,
    /// Price and total, best (lowest) first.
    pub asks: Vec<(Price, Qty)>,
}

/// The sums of an asset over all accounts, with the exchange's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Free to use.
    pub free: i128,
    /// Held for open orders and withdrawals.
    pub locked: i128,
    /// All deposits so far.
    pub deposited: i128,
    /// All settled withdrawals so far.
    pub withdrawn: i128,
}

impl Exchange {
    /// The place of the last command applied; 0 before the first.
    pub fn position(&self) -> Seq {
        self.position
    }

    /// The time of the last command applied.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// A running hash over all events so far. Equal chains at equal positions mean equal events.
    pub fn chain(&self) -> u64 {
        self.chain
    }

    /// The assets' names, by number.
    pub fn assets(&self) -> &[Name] {
        &self.assets
    }

    /// The markets, by number; their `state` is the current one.
    pub fn instruments(&self) -> &[Instrument] {
        &self.instruments
    }

    /// How many accounts clients have: they are numbered 1 to this.
    pub fn account_count(&self) -> u32 {
        self.accounts.clients()
    }

    /// What an account has of an asset; `None` when there is no such account or asset.
    pub fn balance(&self, account: AccountId, asset: AssetId) -> Option<Balance> {
        if usize::from(asset.0) >= self.assets.len() {
            return None;
        }
        self.accounts.get(account).map(|account| account.balance(asset))
    }

    /// An open order.
    pub fn order(&self, account: AccountId, market: MarketId, order: &OrderRef) -> Option<Order> {
        self.find_order(account, market, order).map(|handle| self.orders.get(handle).order)
    }

    /// The open orders of an account in one market or in all, by ascending id.
    pub fn open_orders(&self, account: AccountId, market: Option<MarketId>) -> Vec<Order> {
        let orders = self.orders.of(&self.accounts, account).map(|handle| self.orders.get(handle).order);
        orders.filter(|order| market.is_none_or(|market| market == order.request.market)).collect()
    }

    /// How many orders are open, with those that wait for their trigger.
    pub fn open_order_count(&self) -> usize {
        self.orders.len()
    }

    /// Up to `limit` levels of each side, best first. Empty for an unknown market.
    pub fn depth(&self, market: MarketId, limit: usize) -> Depth {
        let Some(market) = self.markets.get(usize::from(market.0)) else {
            return Depth::default();
        };
        let side = |side: Side| {
            market.book.levels(side).take(limit).map(|l| (Price(l.price), Qty(l.total))).collect::<Vec<_>>()
        };
        Depth { update_id: market.update_id, bids: side(Side::Buy), asks: side(Side::Sell) }
    }

    /// Number and price of a market's last trade.
    pub fn last_trade(&self, market: MarketId) -> Option<(TradeId, Price)> {
        let market = self.markets.get(usize::from(market.0))?;
        market.last_price().map(|price| (market.last_trade, price))
    }

    /// The sums of an asset over all accounts; all zero for an unknown asset. Walks all accounts.
    pub fn totals(&self, asset: AssetId) -> Totals {
        let Some(flow) = self.flows.get(usize::from(asset.0)) else {
            return Totals::default();
        };
        let mut totals = Totals { deposited: flow.deposited, withdrawn: flow.withdrawn, ..Totals::default() };
        for account in self.accounts.iter() {
            let balance = account.balance(asset);
            totals.free += i128::from(balance.free.0);
            totals.locked += i128::from(balance.locked.0);
        }
        totals
    }
}
