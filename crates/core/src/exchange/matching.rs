//! One order meets the book: fills, self-trade prevention, and what becomes of the rest.

use super::accounts::sound;
use super::emit::Emitter;
use super::{Exchange, Touch};
use crate::book::{NO_SLOT, Resting};
use crate::event::{Event, Execution, Fill, Level, OrderEvent, Trade};
use crate::ids::{AssetId, ClientId, EXCHANGE_ACCOUNT, TradeId};
use crate::instrument::Instrument;
use crate::money::{Amount, Price, Qty, affordable, fee, notional};
use crate::order::{NewOrder, Order, OrderStatus, OrderType, Side, StpMode, TimeInForce};

/// No cap. Never multiplied: a step takes the smaller of the caps and what rests.
pub(super) const NO_CAP: i64 = i64::MAX;

/// The order that meets the book.
#[derive(Clone, Debug)]
pub(super) struct Taker {
    pub(super) order: Order,
    /// What its owner has locked for it.
    pub(super) held: Amount,
    /// Its record among the open orders, when it was open before this step (modified or triggered).
    seat: Option<u32>,
    /// What it may still trade of the base asset.
    pub(super) left_qty: i64,
    /// What it may still spend (buy) or receive (sell) of the quote asset.
    pub(super) left_quote: i64,
    /// Lowest and highest price of the step's trades.
    low: i64,
    high: i64,
}

impl Taker {
    pub(super) fn new(order: Order, held: Amount, seat: Option<u32>) -> Taker {
        let request = &order.request;
        let (left_qty, left_quote) = match request.quote_qty.0 {
            0 => (request.qty.0 - order.filled.0 - order.prevented.0, NO_CAP),
            quote => (NO_CAP, quote),
        };
        Taker { order, held, seat, left_qty, left_quote, low: i64::MAX, high: i64::MIN }
    }

    fn by_quote(&self) -> bool {
        self.order.request.quote_qty.0 != 0
    }
}

/// Why an order stopped meeting the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It traded whole.
    Filled,
    /// Nothing within its limit is left.
    Exhausted,
    /// Its amount does not cover one more step, or its sums would not fit.
    Spent,
    /// Self-trade prevention ended it.
    Prevented,
}

/// What the book would give an order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Survey {
    /// Base quantity that would trade.
    pub(super) qty: i128,
    /// Quote amount that would trade.
    pub(super) cost: i128,
    /// Whether an own order would end or reduce it.
    pub(super) prevented: bool,
}

/// The market's rules that a fill needs.
#[derive(Clone, Copy)]
struct Terms {
    base: AssetId,
    quote: AssetId,
    maker_ppm: u32,
    taker_ppm: u32,
    step: Qty,
}

impl Terms {
    fn of(instrument: &Instrument) -> Terms {
        Terms {
            base: instrument.base,
            quote: instrument.quote,
            maker_ppm: instrument.maker_fee_ppm,
            taker_ppm: instrument.taker_fee_ppm,
            step: instrument.lot_step,
        }
    }
}

/// One trade.
struct Deal {
    id: TradeId,
    price: Price,
    qty: Qty,
    quote: Amount,
    buyer_fee: Amount,
    seller_fee: Amount,
    taker_side: Side,
}

impl Deal {
    /// The buyer's and the seller's of what the taker and the maker have.
    fn sides<T>(&self, taker: T, maker: T) -> (T, T) {
        match self.taker_side {
            Side::Buy => (taker, maker),
            Side::Sell => (maker, taker),
        }
    }

    /// The trade as one of its orders sees it.
    fn fill(&self, order: &Order, counter: &Order, terms: &Terms) -> Fill {
        let (fee, fee_asset) = match order.request.side {
            Side::Buy => (self.buyer_fee, terms.base),
            Side::Sell => (self.seller_fee, terms.quote),
        };
        Fill {
            trade: self.id,
            price: self.price,
            qty: self.qty,
            quote: self.quote,
            fee,
            fee_asset,
            maker: order.request.side != self.taker_side,
            counter_order: counter.id,
            counter_account: counter.request.account,
        }
    }
}

/// Whether a resting price is within an order's limit.
#[inline]
fn reaches(side: Side, limit: i64, price: i64) -> bool {
    match side {
        Side::Buy => price <= limit,
        Side::Sell => price >= limit,
    }
}

/// The next fill's quantity: what both have, cut to what the remaining quote amount covers, on the lot step.
#[inline]
fn bite(left_qty: i64, left_quote: i64, price: i64, there: i64, step: Qty) -> i64 {
    let qty = left_qty.min(there);
    if left_quote == NO_CAP || notional(Price(price), Qty(qty)).is_some_and(|cost| cost.0 <= left_quote) {
        return qty;
    }
    affordable(Amount(left_quote), Price(price), step).map_or(0, |covered| covered.0.min(qty))
}

/// A product that the buyer's hold covers, and so fits.
#[inline]
fn covered(price: i64, qty: i64) -> Amount {
    sound(notional(Price(price), Qty(qty)))
}

impl Exchange {
    /// Writes an order event with its owner's balances.
    #[inline]
    pub(super) fn emit_order(
        &self,
        execution: Execution,
        order: &Order,
        fill: Option<Fill>,
        cancel_id: ClientId,
        prevented: Qty,
        emit: &mut Emitter<'_>,
    ) {
        let instrument = &self.instruments[usize::from(order.request.market.0)];
        let account = self.accounts.of(order.request.account);
        let (base, quote) = (account.balance(instrument.base), account.balance(instrument.quote));
        emit.emit(Event::Order(OrderEvent {
            execution,
            order: *order,
            fill,
            cancel_id,
            prevented,
            base,
            quote,
        }));
    }

    /// The asset that an order of this side locks.
    pub(super) fn held_asset(&self, at: usize, side: Side) -> AssetId {
        match side {
            Side::Buy => self.instruments[at].quote,
            Side::Sell => self.instruments[at].base,
        }
    }

    /// How far a market order may go: the band around the best price of now.
    pub(super) fn market_limit(&self, at: usize, side: Side) -> i64 {
        let best = self.markets[at].book.best(side.opposite());
        let bps = self.instruments[at].market_band_bps;
        match (side, best) {
            (Side::Buy, Some(best)) if bps != 0 => {
                let limit = i128::from(best) * (10_000 + i128::from(bps)) / 10_000;
                i64::try_from(limit).unwrap_or(i64::MAX)
            }
            (Side::Sell, Some(best)) if bps != 0 => {
                let limit = (i128::from(best) * (10_000 - i128::from(bps)) + 9_999).max(0) / 10_000;
                i64::try_from(limit).unwrap_or(0)
            }
            (Side::Buy, _) => i64::MAX,
            (Side::Sell, _) => 0,
        }
    }

    /// Walks the book as [`Exchange::match_taker`] would, without changing anything.
    pub(super) fn survey(
        &self,
        at: usize,
        request: &NewOrder,
        limit: i64,
        mut left_qty: i64,
        mut left_quote: i64,
    ) -> Survey {
        let step = self.instruments[at].lot_step;
        let by_quote = request.quote_qty.0 != 0;
        let mut survey = Survey::default();
        for maker in self.markets[at].book.walk(request.side.opposite()) {
            if left_qty == 0 || !reaches(request.side, limit, maker.price) {
                break;
            }
            let own = request.stp != StpMode::None
                && self.orders.get(maker.handle).order.request.account == request.account;
            if own && request.stp == StpMode::ExpireMaker {
                continue;
            }
            if own && request.stp != StpMode::Decrement {
                survey.prevented = true;
                break;
            }
            let qty = bite(left_qty, left_quote, maker.price, maker.qty, step);
            if qty == 0 {
                break;
            }
            let cost = i128::from(maker.price) * i128::from(qty) / i128::from(crate::money::SCALE);
            if left_qty != NO_CAP {
                left_qty -= qty;
            }
            if left_quote != NO_CAP {
                left_quote -= covered(maker.price, qty).0;
            }
            if own {
                survey.prevented = true;
            } else {
                survey.qty += i128::from(qty);
                survey.cost += cost;
            }
            if by_quote && bite(NO_CAP - 1, left_quote, maker.price, step.0, step) == 0 {
                break;
            }
        }
        survey
    }

    /// A step of an order with a limit price.
    pub(super) fn run_limit(&mut self, at: usize, taker: &mut Taker, emit: &mut Emitter<'_>) {
        let request = taker.order.request;
        let tif = if request.order_type == OrderType::LimitMaker { TimeInForce::Gtc } else { request.tif };
        if tif == TimeInForce::Fok {
            let survey = self.survey(at, &request, request.price.0, taker.left_qty, taker.left_quote);
            // A part that self-trade prevention takes away does not trade, so the order is not filled.
            let prevented = survey.prevented && request.stp == StpMode::Decrement;
            if survey.qty != i128::from(taker.left_qty) || prevented {
                self.end_taker(taker, Execution::Expired, OrderStatus::Expired, Qty::ZERO, emit);
                return;
            }
        }
        match self.match_taker(at, taker, request.price.0, emit) {
            End::Filled | End::Prevented => {}
            end => {
                let rests = end == End::Exhausted && tif == TimeInForce::Gtc && self.rest_taker(at, taker);
                if !rests {
                    self.end_taker(taker, Execution::Expired, OrderStatus::Expired, Qty::ZERO, emit);
                }
            }
        }
        self.close_step(at, taker, emit);
    }

    /// A step of a market order.
    pub(super) fn run_market(&mut self, at: usize, taker: &mut Taker, emit: &mut Emitter<'_>) {
        let limit = self.market_limit(at, taker.order.request.side);
        match self.match_taker(at, taker, limit, emit) {
            End::Filled | End::Prevented => {}
            End::Exhausted | End::Spent => {
                self.end_taker(taker, Execution::Expired, OrderStatus::Expired, Qty::ZERO, emit);
            }
        }
        self.close_step(at, taker, emit);
    }

    fn match_taker(&mut self, at: usize, taker: &mut Taker, limit: i64, emit: &mut Emitter<'_>) -> End {
        let Order { request: NewOrder { side, stp, account, .. }, .. } = taker.order;
        let terms = Terms::of(&self.instruments[at]);
        loop {
            let Some(maker) = self.markets[at].book.front(side.opposite()) else {
                return End::Exhausted;
            };
            if !reaches(side, limit, maker.price) {
                return End::Exhausted;
            }
            let own = stp != StpMode::None && self.orders.get(maker.handle).order.request.account == account;
            if own && stp != StpMode::Decrement {
                if stp != StpMode::ExpireTaker {
                    self.prevent_maker(at, &maker, maker.qty, emit);
                }
                if stp != StpMode::ExpireMaker {
                    let rest = if taker.left_qty == NO_CAP { 0 } else { taker.left_qty };
                    self.prevent_taker(taker, rest, true, emit);
                    return End::Prevented;
                }
                continue;
            }
            // What prevention takes away costs nothing, so a budget does not bound it; an amount that the order asks for does.
            let cap = if own && !taker.by_quote() { NO_CAP } else { taker.left_quote };
            let qty = bite(taker.left_qty, cap, maker.price, maker.qty, terms.step);
            if qty == 0 {
                return End::Spent;
            }
            // An order that is modified again and again can trade more than an `i64` counts: it ends there.
            if !own && taker.order.filled_quote.checked_add(covered(maker.price, qty)).is_none() {
                return End::Spent;
            }
            if own {
                if self.decrement(at, taker, &maker, qty, emit) {
                    return End::Prevented;
                }
            } else if self.fill(at, taker, &maker, qty, &terms, emit) {
                return End::Filled;
            }
        }
    }

    /// Trades `qty` with a resting order. Returns whether the taker is filled.
    fn fill(
        &mut self,
        at: usize,
        taker: &mut Taker,
        resting: &Resting,
        qty: i64,
        terms: &Terms,
        emit: &mut Emitter<'_>,
    ) -> bool {
        let side = taker.order.request.side;
        let price = resting.price;
        let market = &mut self.markets[at];
        market.last_trade = TradeId(market.last_trade.0 + 1);
        market.last_price = Price(price);
        let quote = covered(price, qty);
        let ppm = |ours: Side| if side == ours { terms.taker_ppm } else { terms.maker_ppm };
        let deal = Deal {
            id: market.last_trade,
            price: Price(price),
            qty: Qty(qty),
            quote,
            buyer_fee: fee(Amount(qty), ppm(Side::Buy)),
            seller_fee: fee(quote, ppm(Side::Sell)),
            taker_side: side,
        };
        let total = market.book.take(resting.slot, qty);
        self.touch(taker.order.request.market, side.opposite(), price, total);

        let record = self.orders.get_mut(resting.handle);
        record_fill(&mut record.order, &deal, emit);
        record.held = match side {
            Side::Buy => sound(record.held.checked_sub(Amount(qty))),
            Side::Sell => sound(record.held.checked_sub(quote)),
        };
        let maker_filled = qty == resting.qty;
        if maker_filled {
            record.order.status = OrderStatus::Filled;
        }
        let maker = record.order;

        self.settle(&taker.order, &maker, &deal, terms);
        record_fill(&mut taker.order, &deal, emit);
        taker.low = taker.low.min(price);
        taker.high = taker.high.max(price);
        let filled = self.reduce_taker(at, taker, &deal, terms);
        if maker_filled {
            self.orders.remove(resting.handle, &mut self.accounts);
        }
        self.emit_fill(&taker.order, &maker, &deal, terms, emit);
        if filled && let Some(handle) = taker.seat.take() {
            self.orders.remove(handle, &mut self.accounts);
        }
        filled
    }

    /// Moves the money: each side gets what the other gave, less its fee.
    fn settle(&mut self, taker: &Order, maker: &Order, deal: &Deal, terms: &Terms) {
        let (buyer, seller) = deal.sides(taker.request.account, maker.request.account);
        let Deal { qty, quote, buyer_fee, seller_fee, .. } = *deal;
        self.accounts.spend(buyer, terms.quote, quote);
        self.accounts.credit(buyer, terms.base, Amount(qty.0 - buyer_fee.0));
        self.accounts.spend(seller, terms.base, Amount(qty.0));
        self.accounts.credit(seller, terms.quote, Amount(quote.0 - seller_fee.0));
        self.accounts.credit(EXCHANGE_ACCOUNT, terms.base, buyer_fee);
        self.accounts.credit(EXCHANGE_ACCOUNT, terms.quote, seller_fee);
    }

    fn emit_fill(&self, taker: &Order, maker: &Order, deal: &Deal, terms: &Terms, emit: &mut Emitter<'_>) {
        let (buyer, seller) = deal.sides(taker.request.account, maker.request.account);
        let (buy_order, sell_order) = deal.sides(taker.id, maker.id);
        emit.emit(Event::Trade(Trade {
            market: taker.request.market,
            id: deal.id,
            price: deal.price,
            qty: deal.qty,
            quote: deal.quote,
            buy_order,
            sell_order,
            buyer,
            seller,
            taker_side: deal.taker_side,
            buyer_fee: deal.buyer_fee,
            seller_fee: deal.seller_fee,
        }));
        for (order, counter) in [(maker, taker), (taker, maker)] {
            let fill = Some(deal.fill(order, counter, terms));
            self.emit_order(Execution::Trade, order, fill, ClientId::NONE, Qty::ZERO, emit);
        }
    }

    /// Takes a fill from what the taker may still do and holds; returns whether it is filled. A limit buy's better price is released at once.
    /// An order by quote amount is filled when the rest of the amount does not cover one lot step at this price.
    fn reduce_taker(&mut self, at: usize, taker: &mut Taker, deal: &Deal, terms: &Terms) -> bool {
        let Deal { price: Price(price), qty: Qty(qty), quote, .. } = *deal;
        if taker.left_qty != NO_CAP {
            taker.left_qty -= qty;
        }
        if taker.left_quote != NO_CAP {
            taker.left_quote -= quote.0;
        }
        let request = taker.order.request;
        let used = match request.side {
            Side::Sell => Amount(qty),
            Side::Buy if request.order_type.has_price() => covered(request.price.0, qty),
            Side::Buy => quote,
        };
        taker.held = sound(taker.held.checked_sub(used));
        if request.side == Side::Buy {
            self.accounts.release(request.account, terms.quote, Amount(used.0 - quote.0));
        }
        let filled = taker.left_qty == 0
            || (taker.by_quote() && bite(NO_CAP - 1, taker.left_quote, price, terms.step.0, terms.step) == 0);
        if filled {
            taker.order.status = OrderStatus::Filled;
            self.release_taker(at, taker);
        }
        filled
    }

    fn release_taker(&mut self, at: usize, taker: &mut Taker) {
        let request = &taker.order.request;
        let asset = self.held_asset(at, request.side);
        self.accounts.release(request.account, asset, taker.held);
        taker.held = Amount::ZERO;
    }

    /// Ends a taker that did not trade whole.
    fn end_taker(
        &mut self,
        taker: &mut Taker,
        execution: Execution,
        status: OrderStatus,
        prevented: Qty,
        emit: &mut Emitter<'_>,
    ) {
        taker.order.status = status;
        taker.order.updated = emit.time;
        self.release_taker(usize::from(taker.order.request.market.0), taker);
        self.emit_order(execution, &taker.order, None, ClientId::NONE, prevented, emit);
        if let Some(handle) = taker.seat.take() {
            self.orders.remove(handle, &mut self.accounts);
        }
    }

    /// Puts what is left into the book. False when the level's total, or what the order will have traded in all, would not fit an `i64`.
    fn rest_taker(&mut self, at: usize, taker: &mut Taker) -> bool {
        let Order { id, request, .. } = taker.order;
        let rest = notional(request.price, Qty(taker.left_qty));
        let countable = rest.and_then(|rest| rest.checked_add(taker.order.filled_quote)).is_some();
        let room = self.markets[at].book.has_room(request.side, request.price.0, taker.left_qty);
        if !room || !countable {
            return false;
        }
        let handle = match taker.seat {
            Some(handle) => {
                let record = self.orders.get_mut(handle);
                record.order = taker.order;
                record.held = taker.held;
                handle
            }
            None => self.orders.add(&taker.order, taker.held, NO_SLOT, &mut self.accounts),
        };
        let rested = self.markets[at].book.rest(id.0, request.side, request.price.0, taker.left_qty, handle);
        let Ok((slot, total)) = rested else {
            panic!("a level that had room refused an order: the book is broken");
        };
        self.orders.get_mut(handle).slot = slot;
        self.touch(request.market, request.side, request.price.0, total);
        true
    }

    /// Self-trade prevention takes `qty` from a resting order.
    fn prevent_maker(&mut self, at: usize, maker: &Resting, qty: i64, emit: &mut Emitter<'_>) {
        let total = self.markets[at].book.take(maker.slot, qty);
        let asset = self.held_asset(at, maker.side);
        let record = self.orders.get_mut(maker.handle);
        let freed = match maker.side {
            Side::Buy => covered(maker.price, qty),
            Side::Sell => Amount(qty),
        };
        record.held = sound(record.held.checked_sub(freed));
        record.order.prevented = Qty(record.order.prevented.0 + qty);
        record.order.updated = emit.time;
        let gone = qty == maker.qty;
        if gone {
            record.order.status = OrderStatus::ExpiredInMatch;
        }
        let order = record.order;
        self.touch(order.request.market, maker.side, maker.price, total);
        self.accounts.release(order.request.account, asset, freed);
        self.emit_order(Execution::TradePrevention, &order, None, ClientId::NONE, Qty(qty), emit);
        if gone {
            self.orders.remove(maker.handle, &mut self.accounts);
        }
    }

    /// Self-trade prevention takes `qty` from the taker and ends it when `ends`.
    fn prevent_taker(&mut self, taker: &mut Taker, qty: i64, ends: bool, emit: &mut Emitter<'_>) {
        taker.order.prevented = Qty(taker.order.prevented.0 + qty);
        taker.order.updated = emit.time;
        if ends {
            let status = OrderStatus::ExpiredInMatch;
            self.end_taker(taker, Execution::TradePrevention, status, Qty(qty), emit);
        } else {
            self.emit_order(Execution::TradePrevention, &taker.order, None, ClientId::NONE, Qty(qty), emit);
        }
    }

    /// STP mode DECREMENT: takes `qty` from both. Returns whether the taker has ended.
    fn decrement(
        &mut self,
        at: usize,
        taker: &mut Taker,
        maker: &Resting,
        qty: i64,
        emit: &mut Emitter<'_>,
    ) -> bool {
        self.prevent_maker(at, maker, qty, emit);
        let request = taker.order.request;
        if taker.left_qty != NO_CAP {
            taker.left_qty -= qty;
        }
        if taker.by_quote() {
            taker.left_quote -= covered(maker.price, qty).0;
        }
        // A market order holds what it will trade, and releases the rest at its end; a limit order holds all of its rest.
        if request.order_type.has_price() {
            let freed = match request.side {
                Side::Buy => covered(request.price.0, qty),
                Side::Sell => Amount(qty),
            };
            taker.held = sound(taker.held.checked_sub(freed));
            let asset = self.held_asset(at, request.side);
            self.accounts.release(request.account, asset, freed);
        }
        let step = self.instruments[at].lot_step;
        let spent = taker.by_quote() && bite(NO_CAP - 1, taker.left_quote, maker.price, step.0, step) == 0;
        let ends = taker.left_qty == 0 || spent;
        self.prevent_taker(taker, qty, ends, emit);
        ends
    }

    /// Ends a step: writes the levels that changed and queues the conditional orders that its trades reached.
    pub(super) fn close_step(&mut self, at: usize, taker: &Taker, emit: &mut Emitter<'_>) {
        self.emit_levels(emit);
        if taker.low <= taker.high {
            self.queue_triggered(at, taker.low, taker.high);
        }
    }

    /// Writes the levels that changed, once each, in the order of the first change.
    pub(super) fn emit_levels(&mut self, emit: &mut Emitter<'_>) {
        for at in 0..self.scratch.touched.len() {
            let Touch { market, side, price, total } = self.scratch.touched[at];
            let state = &mut self.markets[usize::from(market.0)];
            state.update_id += 1;
            let update_id = state.update_id;
            emit.emit(Event::Level(Level { market, side, price: Price(price), qty: Qty(total), update_id }));
        }
        self.scratch.touched.clear();
    }
}

fn record_fill(order: &mut Order, deal: &Deal, emit: &Emitter<'_>) {
    order.filled = Qty(order.filled.0 + deal.qty.0);
    order.filled_quote = sound(order.filled_quote.checked_add(deal.quote));
    order.status = OrderStatus::PartiallyFilled;
    order.updated = emit.time;
}
