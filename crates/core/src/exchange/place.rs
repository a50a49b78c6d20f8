//! New orders, cancels and modifications.

use super::accounts::sound;
use super::emit::Emitter;
use super::filters::{check_limit_notional, check_lot, check_percent, check_price, reference, would_match};
use super::matching::{NO_CAP, Taker};
use super::stops::waits_on;
use super::{Exchange, is_client};
use crate::book::NO_SLOT;
use crate::event::{Execution, Reject};
use crate::ids::{AccountId, ClientId, MarketId, OrderId, Timestamp};
use crate::instrument::TradingState;
use crate::money::{Amount, Price, Qty, notional};
use crate::order::{NewOrder, Order, OrderRef, OrderStatus, OrderType, Side};

impl Exchange {
    pub(super) fn place(&mut self, request: &NewOrder, emit: &mut Emitter<'_>) -> Result<(), Reject> {
        let at = self.market(request.market)?;
        is_client(&self.accounts, request.account)?;
        if self.instruments[at].state != TradingState::Open {
            return Err(Reject::MarketClosed);
        }
        self.check_new(at, request)?;
        let held = self.hold_for(at, request)?;
        let asset = self.held_asset(at, request.side);
        if self.accounts.balance(request.account, asset).free < held {
            return Err(Reject::InsufficientBalance);
        }
        self.accounts.hold(request.account, asset, held);
        self.last_order += 1;
        let working = !request.order_type.is_conditional();
        let order = Order {
            id: OrderId(self.last_order),
            request: *request,
            status: OrderStatus::New,
            working,
            filled: Qty::ZERO,
            filled_quote: Amount::ZERO,
            prevented: Qty::ZERO,
            list_id: 0,
            created: emit.time,
            updated: emit.time,
            working_since: if working { emit.time } else { Timestamp(0) },
        };
        self.emit_order(Execution::New, &order, None, ClientId::NONE, Qty::ZERO, emit);
        if !working {
            self.wait_for_trigger(at, &order, held);
            return Ok(());
        }
        let mut taker = Taker::new(order, held, None);
        if request.order_type == OrderType::Market {
            self.run_market(at, &mut taker, emit);
        } else {
            self.run_limit(at, &mut taker, emit);
        }
        self.run_triggered(emit);
        Ok(())
    }

    /// What the account has to lock for a new order.
    fn hold_for(&self, at: usize, request: &NewOrder) -> Result<Amount, Reject> {
        let market = request.order_type == OrderType::Market;
        match request.side {
            Side::Buy if market && request.quote_qty.0 != 0 => Ok(request.quote_qty),
            Side::Sell if !market || request.qty.0 != 0 => Ok(Amount(request.qty.0)),
            Side::Buy if !market => {
                let price = if request.order_type.has_price() { request.price } else { request.stop_price };
                notional(price, request.qty).ok_or(Reject::Notional)
            }
            side => {
                let (qty, quote) = match request.quote_qty.0 {
                    0 => (request.qty.0, NO_CAP),
                    quote => (NO_CAP, quote),
                };
                let survey = self.survey(at, request, self.market_limit(at, side), qty, quote);
                let needed = if side == Side::Buy { survey.cost } else { survey.qty };
                i64::try_from(needed).map(Amount).map_err(|_| Reject::InsufficientBalance)
            }
        }
    }

    fn wait_for_trigger(&mut self, at: usize, order: &Order, held: Amount) {
        let NewOrder { order_type, side, stop_price, qty, .. } = order.request;
        let handle = self.orders.add(order, held, NO_SLOT, &mut self.accounts);
        let waits = waits_on(order_type, side);
        let Ok((slot, _)) = self.markets[at].stops.rest(order.id.0, waits, stop_price.0, qty.0, handle)
        else {
            panic!("a level that had room refused an order: the book of stops is broken");
        };
        self.orders.get_mut(handle).slot = slot;
    }

    /// The open order that a command names.
    pub(super) fn find_order(&self, account: AccountId, market: MarketId, order: &OrderRef) -> Option<u32> {
        let state = self.markets.get(usize::from(market.0))?;
        let handle = match order {
            OrderRef::Client(client) => self.orders.by_client(account, client)?,
            OrderRef::Id(id) => match state.book.find(id.0) {
                Some(slot) => state.book.handle(slot),
                None => state.stops.handle(state.stops.find(id.0)?),
            },
        };
        let request = &self.orders.get(handle).order.request;
        (request.account == account && request.market == market).then_some(handle)
    }

    pub(super) fn cancel(
        &mut self,
        account: AccountId,
        market: MarketId,
        order: &OrderRef,
        cancel_id: &ClientId,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        let at = self.market(market)?;
        is_client(&self.accounts, account)?;
        if !takes_cancels(self.instruments[at].state) {
            return Err(Reject::MarketClosed);
        }
        let handle = self.find_order(account, market, order).ok_or(Reject::UnknownOrder)?;
        self.take_back(handle, cancel_id, emit);
        self.emit_levels(emit);
        Ok(())
    }

    /// Takes an open order out of the book or the waiting ones.
    fn take_back(&mut self, handle: u32, cancel_id: &ClientId, emit: &mut Emitter<'_>) {
        let record = self.orders.get_mut(handle);
        record.order.status = OrderStatus::Canceled;
        record.order.updated = emit.time;
        let (order, held, slot) = (record.order, record.held, record.slot);
        let request = order.request;
        let at = usize::from(request.market.0);
        if order.working {
            let total = self.markets[at].book.remove(slot);
            self.touch(request.market, request.side, request.price.0, total);
        } else {
            self.markets[at].stops.remove(slot);
        }
        let asset = self.held_asset(at, request.side);
        self.accounts.release(request.account, asset, held);
        self.emit_order(Execution::Canceled, &order, None, *cancel_id, Qty::ZERO, emit);
        self.orders.remove(handle, &mut self.accounts);
    }

    /// All of an account's orders, oldest first. In all markets, those that take no cancels are passed over. The levels come at the end,
    /// by market, side and price. Without open orders nothing happens, and that is no reject.
    pub(super) fn cancel_all(
        &mut self,
        account: AccountId,
        market: Option<MarketId>,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        if let Some(market) = market {
            let at = self.market(market)?;
            is_client(&self.accounts, account)?;
            if !takes_cancels(self.instruments[at].state) {
                return Err(Reject::MarketClosed);
            }
        }
        is_client(&self.accounts, account)?;
        let mut at = Some(self.accounts.of(account).first).filter(|first| *first != NO_SLOT);
        while let Some(handle) = at {
            at = self.orders.next(handle);
            let place = self.orders.get(handle).order.request.market;
            let state = self.instruments[usize::from(place.0)].state;
            if market.is_none_or(|market| market == place) && takes_cancels(state) {
                self.take_back(handle, &ClientId::NONE, emit);
            }
        }
        let touched = &mut self.scratch.touched;
        touched.sort_unstable_by_key(|touch| (touch.market, touch.side as u8, touch.price));
        touched.dedup_by_key(|touch| (touch.market, touch.side, touch.price));
        for touch in touched {
            let book = &self.markets[usize::from(touch.market.0)].book;
            touch.total = book.total_at(touch.side, touch.price);
        }
        self.emit_levels(emit);
        Ok(())
    }

    pub(super) fn modify(
        &mut self,
        account: AccountId,
        market: MarketId,
        order: &OrderRef,
        price: Price,
        qty: Qty,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        let at = self.market(market)?;
        is_client(&self.accounts, account)?;
        if self.instruments[at].state != TradingState::Open {
            return Err(Reject::MarketClosed);
        }
        let handle = self.find_order(account, market, order).ok_or(Reject::UnknownOrder)?;
        let (new_held, done) = self.check_modify(at, handle, price, qty)?;
        let record = self.orders.get_mut(handle);
        let (old, held, slot) = (record.order.request, record.held, record.slot);
        record.held = new_held;
        let order = &mut record.order;
        order.request.price = price;
        order.request.qty = qty;
        order.updated = emit.time;
        let keeps_place = price == old.price && qty < old.qty;
        if !keeps_place {
            order.working_since = emit.time;
        }
        let order = *order;
        let asset = self.held_asset(at, old.side);
        if new_held > held {
            self.accounts.hold(account, asset, Amount(new_held.0 - held.0));
        } else {
            self.accounts.release(account, asset, Amount(held.0 - new_held.0));
        }
        let book = &mut self.markets[at].book;
        let total = if keeps_place { book.take(slot, old.qty.0 - qty.0) } else { book.remove(slot) };
        debug_assert!(qty.0 > done);
        self.touch(market, old.side, old.price.0, total);
        self.emit_order(Execution::Replaced, &order, None, ClientId::NONE, Qty::ZERO, emit);
        if keeps_place {
            self.emit_levels(emit);
        } else {
            let mut taker = Taker::new(order, new_held, Some(handle));
            self.run_limit(at, &mut taker, emit);
            self.run_triggered(emit);
        }
        Ok(())
    }

    /// Whether an open order can get this price and quantity: what it would hold, and what of it is done.
    fn check_modify(&self, at: usize, handle: u32, price: Price, qty: Qty) -> Result<(Amount, i64), Reject> {
        let instrument = &self.instruments[at];
        let market = &self.markets[at];
        let record = self.orders.get(handle);
        let Order { request: old, filled, prevented, working, .. } = record.order;
        let done = filled.0 + prevented.0;
        if !working {
            return Err(Reject::InvalidModify);
        }
        check_price(instrument, price)?;
        check_lot(instrument, qty)?;
        if qty.0 <= done {
            return Err(Reject::InvalidModify);
        }
        if price != old.price {
            check_percent(instrument, price, reference(market, old.side))?;
        }
        check_limit_notional(instrument, price, qty)?;
        if old.side == Side::Buy && qty > old.qty {
            self.check_position(instrument, old.account, Qty(qty.0 - old.qty.0))?;
        }
        if old.order_type == OrderType::LimitMaker && would_match(market, old.side, price) {
            return Err(Reject::WouldMatch);
        }
        let left = qty.0 - done;
        let leaving = if price == old.price { old.qty.0 - done } else { 0 };
        if left > leaving && !market.book.has_room(old.side, price.0, left - leaving) {
            return Err(Reject::InvalidAmount);
        }
        let held = match old.side {
            Side::Buy => sound(notional(price, Qty(left))),
            Side::Sell => Amount(left),
        };
        let asset = self.held_asset(at, old.side);
        let more = Amount(held.0.saturating_sub(record.held.0));
        if self.accounts.balance(old.account, asset).free < more {
            return Err(Reject::InsufficientBalance);
        }
        Ok((held, done))
    }
}

fn takes_cancels(state: TradingState) -> bool {
    matches!(state, TradingState::Open | TradingState::CancelOnly)
}
