//! The checks that an order passes before anything changes.
//!
//! Order of the checks: the order's shape, PRICE_FILTER, LOT_SIZE or MARKET_LOT_SIZE, PERCENT_PRICE_BY_SIDE, NOTIONAL, MAX_NUM_ORDERS and
//! MAX_NUM_ALGO_ORDERS, client id, MAX_POSITION, trigger already reached, post-only would match, balance. The reference of
//! PERCENT_PRICE_BY_SIDE and of a market order's NOTIONAL is the last trade's price, else the best price on the other side; without either
//! they pass.

use super::{Exchange, Market};
use crate::event::Reject;
use crate::ids::AccountId;
use crate::instrument::Instrument;
use crate::money::{Amount, Price, Qty, affordable, notional};
use crate::order::{NewOrder, OrderType, Side, TimeInForce};

/// The price that filters measure against.
pub(super) fn reference(market: &Market, side: Side) -> Option<Price> {
    market.last_price().or_else(|| market.book.best(side.opposite()).map(Price))
}

pub(super) fn check_price(instrument: &Instrument, price: Price) -> Result<(), Reject> {
    let in_range = price.0 > 0 && price >= instrument.price_min && price <= instrument.price_max;
    if in_range && price.0 % instrument.price_tick.0 == 0 { Ok(()) } else { Err(Reject::PriceFilter) }
}

pub(super) fn check_lot(instrument: &Instrument, qty: Qty) -> Result<(), Reject> {
    let in_range = qty.0 > 0 && qty >= instrument.lot_min && qty <= instrument.lot_max;
    if in_range && qty.0 % instrument.lot_step.0 == 0 { Ok(()) } else { Err(Reject::LotSize) }
}

fn check_market_lot(instrument: &Instrument, qty: Qty) -> Result<(), Reject> {
    check_lot(instrument, qty)?;
    if qty <= instrument.market_lot_max { Ok(()) } else { Err(Reject::MarketLotSize) }
}

pub(super) fn check_percent(
    instrument: &Instrument,
    price: Price,
    reference: Option<Price>,
) -> Result<(), Reject> {
    let Some(reference) = reference else { return Ok(()) };
    let hundredfold = i128::from(price.0) * 100;
    let bound = |percent: u32| i128::from(reference.0) * i128::from(percent);
    let above = instrument.percent_up != 0 && hundredfold > bound(instrument.percent_up);
    let below = instrument.percent_down != 0 && hundredfold < bound(instrument.percent_down);
    if above || below { Err(Reject::PercentPrice) } else { Ok(()) }
}

fn check_notional(instrument: &Instrument, amount: Option<Amount>) -> Result<(), Reject> {
    match amount {
        Some(amount) if amount >= instrument.notional_min && amount <= instrument.notional_max => Ok(()),
        _ => Err(Reject::Notional),
    }
}

/// NOTIONAL of a limit price and quantity; also that their product fits.
pub(super) fn check_limit_notional(instrument: &Instrument, price: Price, qty: Qty) -> Result<(), Reject> {
    check_notional(instrument, notional(price, qty))
}

/// Whether the fields fit the type.
fn check_shape(request: &NewOrder) -> Result<(), Reject> {
    let conditional = request.order_type.is_conditional();
    let unused = (!request.order_type.has_price() && request.price.0 != 0)
        || (!conditional && request.stop_price.0 != 0)
        || request.iceberg_qty.0 != 0
        || request.trailing_delta != 0;
    let quantities = match request.order_type {
        OrderType::Market => (request.qty.0 == 0) != (request.quote_qty.0 == 0),
        _ => request.quote_qty.0 == 0,
    };
    let negative = request.qty.0 < 0 || request.quote_qty.0 < 0;
    match () {
        _ if unused => Err(Reject::InvalidOrder),
        _ if negative => Err(Reject::LotSize),
        _ if request.order_type == OrderType::Market && request.qty.0 == 0 && request.quote_qty.0 == 0 => {
            Err(Reject::LotSize)
        }
        _ if !quantities => Err(Reject::InvalidOrder),
        _ => Ok(()),
    }
}

/// Whether an order of this type can stay open after its first step.
pub(super) fn can_rest(request: &NewOrder) -> bool {
    match request.order_type {
        OrderType::Market => false,
        OrderType::LimitMaker => true,
        OrderType::Limit => request.tif == TimeInForce::Gtc,
        _ => true,
    }
}

impl Exchange {
    /// All checks but the balance, which needs the hold.
    pub(super) fn check_new(&self, at: usize, request: &NewOrder) -> Result<(), Reject> {
        let instrument = &self.instruments[at];
        let market = &self.markets[at];
        check_shape(request)?;
        if request.order_type.has_price() {
            check_price(instrument, request.price)?;
        }
        if request.order_type.is_conditional() {
            check_price(instrument, request.stop_price)?;
        }
        if request.order_type == OrderType::Market {
            check_market(instrument, market, request)?;
        } else if request.order_type.has_price() {
            check_lot(instrument, request.qty)?;
            check_percent(instrument, request.price, reference(market, request.side))?;
            check_limit_notional(instrument, request.price, request.qty)?;
        } else {
            check_market_lot(instrument, request.qty)?;
            check_limit_notional(instrument, request.stop_price, request.qty)?;
        }
        self.check_counts(instrument, request)?;
        if self.orders.by_client(request.account, &request.client_id).is_some() {
            return Err(Reject::DuplicateClientId);
        }
        if request.side == Side::Buy {
            let wanted = match request.quote_qty.0 {
                0 => request.qty,
                _ => estimate(instrument, market, request),
            };
            self.check_position(instrument, request.account, wanted)?;
        }
        check_placement(market, request)
    }

    fn check_counts(&self, instrument: &Instrument, request: &NewOrder) -> Result<(), Reject> {
        if !can_rest(request) {
            return Ok(());
        }
        let count = self.accounts.of(request.account).count(request.market);
        if count.open >= instrument.max_orders {
            return Err(Reject::MaxOrders);
        }
        if request.order_type.is_conditional() && count.waiting >= instrument.max_algo_orders {
            return Err(Reject::MaxAlgoOrders);
        }
        Ok(())
    }

    /// MAX_POSITION: what the account has of the base asset, plus what its open orders in this market would buy, plus `more`.
    pub(super) fn check_position(
        &self,
        instrument: &Instrument,
        account: AccountId,
        more: Qty,
    ) -> Result<(), Reject> {
        if instrument.max_position.0 == 0 {
            return Ok(());
        }
        let balance = self.accounts.balance(account, instrument.base);
        let mut position = i128::from(balance.free.0) + i128::from(balance.locked.0) + i128::from(more.0);
        for handle in self.orders.of(&self.accounts, account) {
            let order = &self.orders.get(handle).order;
            if order.request.market == instrument.id && order.request.side == Side::Buy {
                position += i128::from(order.request.qty.0 - order.filled.0 - order.prevented.0);
            }
        }
        if position > i128::from(instrument.max_position.0) { Err(Reject::MaxPosition) } else { Ok(()) }
    }
}

/// What a market order by quote amount gets at the best price.
fn estimate(instrument: &Instrument, market: &Market, request: &NewOrder) -> Qty {
    let best = market.book.best(request.side.opposite());
    best.and_then(|best| affordable(request.quote_qty, Price(best), instrument.lot_step)).unwrap_or(Qty::ZERO)
}

fn check_market(instrument: &Instrument, market: &Market, request: &NewOrder) -> Result<(), Reject> {
    if request.quote_qty.0 == 0 {
        check_market_lot(instrument, request.qty)?;
        return match reference(market, request.side) {
            Some(reference) => check_limit_notional(instrument, reference, request.qty),
            None => Ok(()),
        };
    }
    check_notional(instrument, Some(request.quote_qty))?;
    match market.book.best(request.side.opposite()) {
        Some(best) => match affordable(request.quote_qty, Price(best), instrument.lot_step) {
            Some(qty) => check_market_lot(instrument, qty),
            None => Err(Reject::MarketLotSize),
        },
        None => Ok(()),
    }
}

/// Whether a trigger would be reached at once, a post-only order would trade, or a level's total would not fit.
fn check_placement(market: &Market, request: &NewOrder) -> Result<(), Reject> {
    let NewOrder { side, order_type, price, stop_price, qty, .. } = *request;
    if order_type.is_conditional() {
        let waits = super::stops::waits_on(order_type, side);
        if let Some(last) = market.last_price()
            && super::stops::is_reached(waits, stop_price.0, last.0, last.0)
        {
            return Err(Reject::StopWouldTrigger);
        }
        let room = market.stops.has_room(waits, stop_price.0, qty.0);
        return if room { Ok(()) } else { Err(Reject::InvalidAmount) };
    }
    if order_type == OrderType::LimitMaker && would_match(market, side, price) {
        return Err(Reject::WouldMatch);
    }
    if order_type.has_price() && !market.book.has_room(side, price.0, qty.0) {
        return Err(Reject::InvalidAmount);
    }
    Ok(())
}

/// Whether a limit order would trade at once.
pub(super) fn would_match(market: &Market, side: Side, price: Price) -> bool {
    match (side, market.book.best(side.opposite())) {
        (Side::Buy, Some(ask)) => ask <= price.0,
        (Side::Sell, Some(bid)) => bid >= price.0,
        (_, None) => false,
    }
}
