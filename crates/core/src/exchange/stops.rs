//! Conditional orders: waiting, and being triggered.
//!
//! STOP_LOSS buys and TAKE_PROFIT sells wait for the price to rise to their stop price, STOP_LOSS sells and TAKE_PROFIT buys for it to
//! fall to it. After every step that traded, the highest and the lowest price of that step decide what is reached. What is reached leaves
//! the waiting orders at once and joins a queue: first the rises, lowest stop price first, then the falls, highest stop price first, equal
//! stop prices by age. The queue is worked off in its order; each order is a step of its own, and what that step triggers joins the end.
//! A cascade ends, because each order is triggered at most once and none is added meanwhile: it has at most as many steps as orders waited.

use super::Exchange;
use super::emit::Emitter;
use super::matching::Taker;
use crate::event::Execution;
use crate::ids::ClientId;
use crate::money::{Amount, Qty};
use crate::order::{OrderType, Side};

/// On which side of the book of stops an order waits: selling for a rise, buying for a fall.
pub(super) fn waits_on(order_type: OrderType, side: Side) -> Side {
    match order_type {
        OrderType::TakeProfit | OrderType::TakeProfitLimit => side,
        _ => side.opposite(),
    }
}

/// Whether prices between `low` and `high` reach a stop price.
pub(super) fn is_reached(waits: Side, stop: i64, low: i64, high: i64) -> bool {
    match waits {
        Side::Sell => high >= stop,
        Side::Buy => low <= stop,
    }
}

impl Exchange {
    /// Moves the orders that prices between `low` and `high` reach from the waiting ones to the queue.
    pub(super) fn queue_triggered(&mut self, at: usize, low: i64, high: i64) {
        let stops = &mut self.markets[at].stops;
        if stops.is_empty() {
            return;
        }
        for waits in [Side::Sell, Side::Buy] {
            while let Some(front) = stops.front(waits) {
                if !is_reached(waits, front.price, low, high) {
                    break;
                }
                stops.remove(front.slot);
                self.scratch.triggered.push_back(front.handle);
            }
        }
    }

    /// Works the queue off.
    pub(super) fn run_triggered(&mut self, emit: &mut Emitter<'_>) {
        while let Some(handle) = self.scratch.triggered.pop_front() {
            self.run_stop(handle, emit);
        }
    }

    fn run_stop(&mut self, handle: u32, emit: &mut Emitter<'_>) {
        self.orders.wake(handle, emit.time, &mut self.accounts);
        let record = self.orders.get(handle);
        let (order, held) = (record.order, record.held);
        let at = usize::from(order.request.market.0);
        let mut taker = Taker::new(order, held, Some(handle));
        self.emit_order(Execution::Triggered, &taker.order, None, ClientId::NONE, Qty::ZERO, emit);
        if order.request.order_type.has_price() {
            self.run_limit(at, &mut taker, emit);
        } else {
            if order.request.side == Side::Buy {
                self.top_up(at, &mut taker);
            }
            self.run_market(at, &mut taker, emit);
        }
    }

    /// Adds to the hold of a triggered market buy what the book asks beyond it, as far as free funds go.
    fn top_up(&mut self, at: usize, taker: &mut Taker) {
        let request = &taker.order.request;
        let limit = self.market_limit(at, request.side);
        let survey = self.survey(at, request, limit, taker.left_qty, taker.left_quote);
        let quote = self.instruments[at].quote;
        let short = survey.cost - i128::from(taker.held.0);
        if short > 0 {
            let free = self.accounts.balance(request.account, quote).free;
            let more = Amount(i64::try_from(short).unwrap_or(i64::MAX)).min(free);
            if more.0 > 0 {
                self.accounts.hold(request.account, quote, more);
                taker.held = super::accounts::sound(taker.held.checked_add(more));
            }
        }
        taker.left_quote = taker.held.0;
    }
}
