//! A naive exchange to compare with: one list of open orders that is searched from end to end, wide integers, and holds computed from
//! the orders whenever they are asked for. Slow, obvious, and written from the documentation, not from the code.

use hoga_core::command::Body;
use hoga_core::event::{Execution, Reject};
use hoga_core::instrument::{Instrument, TradingState};
use hoga_core::order::{NewOrder, OrderRef, OrderStatus, OrderType, Side, StpMode, TimeInForce};
use std::collections::{BTreeMap, BTreeSet};

const UNIT: i128 = 100_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOrder {
    pub id: u64,
    pub request: NewOrder,
    pub filled: i128,
    pub filled_quote: i128,
    pub prevented: i128,
    pub waiting: bool,
    /// Its turn within its price: the larger, the later.
    turn: u64,
}

impl ModelOrder {
    fn left(&self) -> i128 {
        i128::from(self.request.qty.0) - self.filled - self.prevented
    }

    fn price(&self) -> i128 {
        i128::from(self.request.price.0)
    }

    fn hold(&self) -> i128 {
        match self.request.side {
            Side::Sell => self.left(),
            Side::Buy if self.request.order_type.has_price() => self.price() * self.left() / UNIT,
            Side::Buy => i128::from(self.request.stop_price.0) * self.left() / UNIT,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTrade {
    pub market: u16,
    pub maker: u64,
    pub taker: u64,
    pub price: i128,
    pub qty: i128,
    pub buyer_fee: i128,
    pub seller_fee: i128,
}

/// What happened to an order: id, execution, status, filled, prevented in total.
pub type Note = (u64, Execution, OrderStatus, i128, i128);

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub trades: Vec<ModelTrade>,
    pub notes: Vec<Note>,
}

#[derive(Clone, Debug)]
struct ModelWithdrawal {
    id: u64,
    account: u32,
    asset: u16,
    amount: i128,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub instruments: Vec<Instrument>,
    pub open: Vec<ModelOrder>,
    /// Free and locked together.
    funds: BTreeMap<(u32, u16), i128>,
    withdrawals: Vec<ModelWithdrawal>,
    last_withdrawal: u64,
    references: BTreeSet<(u32, bool, String)>,
    pub accounts: u32,
    assets: u16,
    pub last_id: u64,
    turn: u64,
    last_price: BTreeMap<u16, i128>,
}

/// A matching run of one order.
struct Run {
    order: ModelOrder,
    left: Option<i128>,
    quote: Option<i128>,
    ended: bool,
}

impl Model {
    pub fn funds(&self, account: u32, asset: u16) -> i128 {
        self.funds.get(&(account, asset)).copied().unwrap_or(0)
    }

    pub fn locked(&self, account: u32, asset: u16) -> i128 {
        let orders: i128 = self
            .open
            .iter()
            .filter(|o| o.request.account.0 == account && self.held_asset(&o.request) == asset)
            .map(ModelOrder::hold)
            .sum();
        let leaving: i128 = self
            .withdrawals
            .iter()
            .filter(|w| w.account == account && w.asset == asset)
            .map(|w| w.amount)
            .sum();
        orders + leaving
    }

    fn free(&self, account: u32, asset: u16) -> i128 {
        self.funds(account, asset) - self.locked(account, asset)
    }

    fn held_asset(&self, request: &NewOrder) -> u16 {
        let instrument = &self.instruments[usize::from(request.market.0)];
        match request.side {
            Side::Buy => instrument.quote.0,
            Side::Sell => instrument.base.0,
        }
    }

    /// The order on `side` that trades next.
    fn best(&self, market: u16, side: Side) -> Option<usize> {
        let rank = |o: &ModelOrder| match side {
            Side::Buy => (-o.price(), o.turn),
            Side::Sell => (o.price(), o.turn),
        };
        (0..self.open.len())
            .filter(|i| {
                let o = &self.open[*i];
                !o.waiting && o.request.market.0 == market && o.request.side == side
            })
            .min_by_key(|i| rank(&self.open[*i]))
    }

    fn best_price(&self, market: u16, side: Side) -> Option<i128> {
        self.best(market, side).map(|i| self.open[i].price())
    }

    fn reference(&self, request: &NewOrder) -> Option<i128> {
        let market = request.market.0;
        self.last_price.get(&market).copied().or_else(|| self.best_price(market, request.side.opposite()))
    }

    pub fn levels(&self, market: u16, side: Side) -> Vec<(i128, i128)> {
        let mut levels: BTreeMap<i128, i128> = BTreeMap::new();
        for o in &self.open {
            if !o.waiting && o.request.market.0 == market && o.request.side == side {
                *levels.entry(o.price()).or_default() += o.left();
            }
        }
        match side {
            Side::Buy => levels.into_iter().rev().collect(),
            Side::Sell => levels.into_iter().collect(),
        }
    }

    pub fn apply(&mut self, body: &Body) -> Result<Outcome, Reject> {
        let mut out = Outcome::default();
        match body {
            Body::AddAsset { .. } => self.assets += 1,
            Body::CreateAccount => self.accounts += 1,
            Body::SetInstrument(i) => match self.instruments.get_mut(usize::from(i.id.0)) {
                Some(old) => *old = *i,
                None => self.instruments.push(*i),
            },
            Body::SetState { market, state } => {
                self.market(market.0)?;
                self.instruments[usize::from(market.0)].state = *state;
            }
            Body::Deposit { account, asset, amount, reference } => {
                self.check_transfer(account.0, asset.0, amount.0)?;
                if self.is_new(account.0, false, reference.as_str()) {
                    *self.funds.entry((account.0, asset.0)).or_default() += i128::from(amount.0);
                }
            }
            Body::Withdraw { account, asset, amount, reference } => {
                self.check_transfer(account.0, asset.0, amount.0)?;
                let known = self.references.contains(&(account.0, true, reference.as_str().to_owned()));
                if !known {
                    if self.free(account.0, asset.0) < i128::from(amount.0) {
                        return Err(Reject::InsufficientBalance);
                    }
                    self.is_new(account.0, true, reference.as_str());
                    self.last_withdrawal += 1;
                    self.withdrawals.push(ModelWithdrawal {
                        id: self.last_withdrawal,
                        account: account.0,
                        asset: asset.0,
                        amount: i128::from(amount.0),
                    });
                }
            }
            Body::SettleWithdrawal { id } => {
                let w = self.take_withdrawal(id.0)?;
                *self.funds.get_mut(&(w.account, w.asset)).unwrap() -= w.amount;
            }
            Body::ReleaseWithdrawal { id } => {
                self.take_withdrawal(id.0)?;
            }
            Body::Place(request) => self.place(request, &mut out)?,
            Body::Cancel { account, market, order, .. } => {
                self.market(market.0)?;
                self.account(account.0)?;
                self.takes_cancels(market.0)?;
                let i = self.find(account.0, market.0, order)?;
                self.cancel(i, &mut out);
            }
            Body::CancelAll { account, market } => {
                self.cancel_all(account.0, market.map(|m| m.0), &mut out)?
            }
            Body::Modify { account, market, order, price, qty } => {
                self.modify(account.0, market.0, order, price.0, qty.0, &mut out)?;
            }
        }
        Ok(out)
    }

    fn market(&self, market: u16) -> Result<(), Reject> {
        if usize::from(market) < self.instruments.len() { Ok(()) } else { Err(Reject::UnknownMarket) }
    }

    fn account(&self, account: u32) -> Result<(), Reject> {
        if (1..=self.accounts).contains(&account) { Ok(()) } else { Err(Reject::UnknownAccount) }
    }

    fn takes_cancels(&self, market: u16) -> Result<(), Reject> {
        match self.instruments[usize::from(market)].state {
            TradingState::Open | TradingState::CancelOnly => Ok(()),
            _ => Err(Reject::MarketClosed),
        }
    }

    fn check_transfer(&self, account: u32, asset: u16, amount: i64) -> Result<(), Reject> {
        self.account(account)?;
        if asset >= self.assets {
            return Err(Reject::UnknownAsset);
        }
        if amount <= 0 { Err(Reject::InvalidAmount) } else { Ok(()) }
    }

    fn is_new(&mut self, account: u32, leaving: bool, reference: &str) -> bool {
        reference.is_empty() || self.references.insert((account, leaving, reference.to_owned()))
    }

    fn take_withdrawal(&mut self, id: u64) -> Result<ModelWithdrawal, Reject> {
        let at = self.withdrawals.iter().position(|w| w.id == id).ok_or(Reject::UnknownWithdrawal)?;
        Ok(self.withdrawals.remove(at))
    }

    fn find(&self, account: u32, market: u16, order: &OrderRef) -> Result<usize, Reject> {
        let is = |o: &ModelOrder| match order {
            OrderRef::Id(id) => o.id == id.0,
            OrderRef::Client(client) => !client.is_none() && o.request.client_id == *client,
        };
        self.open
            .iter()
            .position(|o| o.request.account.0 == account && o.request.market.0 == market && is(o))
            .ok_or(Reject::UnknownOrder)
    }

    fn cancel(&mut self, i: usize, out: &mut Outcome) {
        let o = self.open.remove(i);
        out.notes.push((o.id, Execution::Canceled, OrderStatus::Canceled, o.filled, o.prevented));
    }

    fn cancel_all(&mut self, account: u32, market: Option<u16>, out: &mut Outcome) -> Result<(), Reject> {
        if let Some(market) = market {
            self.market(market)?;
            self.account(account)?;
            self.takes_cancels(market)?;
        }
        self.account(account)?;
        let mut ids: Vec<u64> = self
            .open
            .iter()
            .filter(|o| {
                let m = o.request.market.0;
                o.request.account.0 == account
                    && market.is_none_or(|market| market == m)
                    && self.takes_cancels(m).is_ok()
            })
            .map(|o| o.id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            let i = self.open.iter().position(|o| o.id == id).unwrap();
            self.cancel(i, out);
        }
        Ok(())
    }

    fn crosses(&self, request: &NewOrder, price: i128) -> bool {
        match (request.side, self.best_price(request.market.0, request.side.opposite())) {
            (_, None) => false,
            (Side::Buy, Some(best)) => best <= price,
            (Side::Sell, Some(best)) => best >= price,
        }
    }

    fn check_price(i: &Instrument, price: i64) -> Result<(), Reject> {
        let good =
            price > 0 && (i.price_min.0..=i.price_max.0).contains(&price) && price % i.price_tick.0 == 0;
        if good { Ok(()) } else { Err(Reject::PriceFilter) }
    }

    fn check_lot(i: &Instrument, qty: i64, market: bool) -> Result<(), Reject> {
        let good = qty > 0 && (i.lot_min.0..=i.lot_max.0).contains(&qty) && qty % i.lot_step.0 == 0;
        match good {
            false => Err(Reject::LotSize),
            true if market && qty > i.market_lot_max.0 => Err(Reject::MarketLotSize),
            true => Ok(()),
        }
    }

    fn check_notional(i: &Instrument, amount: i128) -> Result<(), Reject> {
        let good = amount >= i128::from(i.notional_min.0) && amount <= i128::from(i.notional_max.0);
        if good { Ok(()) } else { Err(Reject::Notional) }
    }

    fn check_percent(&self, i: &Instrument, request: &NewOrder, price: i64) -> Result<(), Reject> {
        let Some(reference) = self.reference(request) else { return Ok(()) };
        let price = i128::from(price) * 100;
        let high = i.percent_up != 0 && price > reference * i128::from(i.percent_up);
        let low = i.percent_down != 0 && price < reference * i128::from(i.percent_down);
        if high || low { Err(Reject::PercentPrice) } else { Ok(()) }
    }

    fn check_position(&self, i: &Instrument, account: u32, more: i128) -> Result<(), Reject> {
        if i.max_position.0 == 0 {
            return Ok(());
        }
        let buying: i128 = self
            .open
            .iter()
            .filter(|o| {
                o.request.account.0 == account && o.request.market == i.id && o.request.side == Side::Buy
            })
            .map(ModelOrder::left)
            .sum();
        let position = self.funds(account, i.base.0) + buying + more;
        if position > i128::from(i.max_position.0) { Err(Reject::MaxPosition) } else { Ok(()) }
    }

    fn check(&self, r: &NewOrder) -> Result<(), Reject> {
        let i = &self.instruments[usize::from(r.market.0)];
        let market = r.order_type == OrderType::Market;
        let conditional = r.order_type.is_conditional();
        if (!r.order_type.has_price() && r.price.0 != 0) || (!conditional && r.stop_price.0 != 0) {
            return Err(Reject::InvalidOrder);
        }
        if r.iceberg_qty.0 != 0 || r.trailing_delta != 0 {
            return Err(Reject::InvalidOrder);
        }
        if r.qty.0 < 0 || r.quote_qty.0 < 0 || (market && r.qty.0 == 0 && r.quote_qty.0 == 0) {
            return Err(Reject::LotSize);
        }
        if r.quote_qty.0 != 0 && (!market || r.qty.0 != 0) {
            return Err(Reject::InvalidOrder);
        }
        if r.order_type.has_price() {
            Self::check_price(i, r.price.0)?;
        }
        if conditional {
            Self::check_price(i, r.stop_price.0)?;
        }
        let cost = |price: i128, qty: i64| price * i128::from(qty) / UNIT;
        let best = self.best_price(r.market.0, r.side.opposite());
        let covered = |best: i128| {
            let qty = i128::from(r.quote_qty.0) * UNIT / best;
            qty - qty % i128::from(i.lot_step.0)
        };
        if market && r.quote_qty.0 == 0 {
            Self::check_lot(i, r.qty.0, true)?;
            if let Some(reference) = self.reference(r) {
                Self::check_notional(i, cost(reference, r.qty.0))?;
            }
        } else if market {
            Self::check_notional(i, i128::from(r.quote_qty.0))?;
            if let Some(best) = best {
                Self::check_lot(i, i64::try_from(covered(best)).unwrap(), true)?;
            }
        } else if r.order_type.has_price() {
            Self::check_lot(i, r.qty.0, false)?;
            self.check_percent(i, r, r.price.0)?;
            Self::check_notional(i, cost(i128::from(r.price.0), r.qty.0))?;
        } else {
            Self::check_lot(i, r.qty.0, true)?;
            Self::check_notional(i, cost(i128::from(r.stop_price.0), r.qty.0))?;
        }
        self.check_counts(i, r)?;
        let same = |o: &&ModelOrder| {
            o.request.account == r.account && !r.client_id.is_none() && o.request.client_id == r.client_id
        };
        if self.open.iter().any(|o| same(&o)) {
            return Err(Reject::DuplicateClientId);
        }
        if r.side == Side::Buy {
            let more = if r.quote_qty.0 == 0 { i128::from(r.qty.0) } else { best.map_or(0, covered) };
            self.check_position(i, r.account.0, more)?;
        }
        if conditional
            && let Some(last) = self.last_price.get(&r.market.0)
            && Self::reached(r, *last, *last)
        {
            return Err(Reject::StopWouldTrigger);
        }
        if r.order_type == OrderType::LimitMaker && self.crosses(r, i128::from(r.price.0)) {
            return Err(Reject::WouldMatch);
        }
        Ok(())
    }

    fn check_counts(&self, i: &Instrument, r: &NewOrder) -> Result<(), Reject> {
        let conditional = r.order_type.is_conditional();
        let rests = conditional
            || r.order_type == OrderType::LimitMaker
            || (r.order_type == OrderType::Limit && r.tif == TimeInForce::Gtc);
        let mine =
            || self.open.iter().filter(|o| o.request.account == r.account && o.request.market == r.market);
        if rests && mine().count() >= i.max_orders as usize {
            return Err(Reject::MaxOrders);
        }
        if conditional && mine().filter(|o| o.waiting).count() >= i.max_algo_orders as usize {
            return Err(Reject::MaxAlgoOrders);
        }
        Ok(())
    }

    fn rises(r: &NewOrder) -> bool {
        let loss = matches!(r.order_type, OrderType::StopLoss | OrderType::StopLossLimit);
        loss == (r.side == Side::Buy)
    }

    fn reached(r: &NewOrder, low: i128, high: i128) -> bool {
        let stop = i128::from(r.stop_price.0);
        if Self::rises(r) { high >= stop } else { low <= stop }
    }

    fn place(&mut self, r: &NewOrder, out: &mut Outcome) -> Result<(), Reject> {
        self.market(r.market.0)?;
        self.account(r.account.0)?;
        if self.instruments[usize::from(r.market.0)].state != TradingState::Open {
            return Err(Reject::MarketClosed);
        }
        self.check(r)?;
        let waiting = r.order_type.is_conditional();
        let order = ModelOrder {
            id: self.last_id + 1,
            request: *r,
            filled: 0,
            filled_quote: 0,
            prevented: 0,
            waiting,
            turn: 0,
        };
        let free = self.free(r.account.0, self.held_asset(r));
        let needed = if r.order_type != OrderType::Market {
            order.hold()
        } else if r.quote_qty.0 != 0 && r.side == Side::Buy {
            i128::from(r.quote_qty.0)
        } else if r.side == Side::Sell && r.quote_qty.0 == 0 {
            i128::from(r.qty.0)
        } else {
            // What it would cost is what it costs in a copy of the world where money is no object.
            let mut copy = self.clone();
            let mut copied = Outcome::default();
            let mut run = copy.run(order.clone(), None);
            copy.meet(&mut run, copy.limit(r), &mut copied);
            if r.side == Side::Buy { run.order.filled_quote } else { run.order.filled }
        };
        if needed > free {
            return Err(Reject::InsufficientBalance);
        }
        self.last_id += 1;
        out.notes.push((order.id, Execution::New, OrderStatus::New, 0, 0));
        if waiting {
            self.turn += 1;
            self.open.push(ModelOrder { turn: self.turn, ..order });
            return Ok(());
        }
        let mut queue = Vec::new();
        self.step(order, None, out, &mut queue);
        self.work_off(queue, out);
        Ok(())
    }

    fn work_off(&mut self, mut queue: Vec<ModelOrder>, out: &mut Outcome) {
        while !queue.is_empty() {
            let order = queue.remove(0);
            out.notes.push((order.id, Execution::Triggered, OrderStatus::New, 0, 0));
            let r = order.request;
            let mut budget = None;
            if r.side == Side::Buy && !r.order_type.has_price() {
                // Orders that wait in the queue still hold.
                let queued: i128 = queue
                    .iter()
                    .filter(|o| {
                        o.request.account == r.account && self.held_asset(&o.request) == self.held_asset(&r)
                    })
                    .map(ModelOrder::hold)
                    .sum();
                budget = Some(self.free(r.account.0, self.held_asset(&r)) - queued);
            }
            self.step(order, budget, out, &mut queue);
        }
    }

    fn limit(&self, r: &NewOrder) -> i128 {
        if r.order_type.has_price() {
            return i128::from(r.price.0);
        }
        let bps = i128::from(self.instruments[usize::from(r.market.0)].market_band_bps);
        let best = self.best_price(r.market.0, r.side.opposite());
        match (r.side, best) {
            (Side::Buy, Some(best)) if bps != 0 => (best * (10_000 + bps)).div_euclid(10_000),
            (Side::Sell, Some(best)) if bps != 0 => -((-best * (10_000 - bps)).div_euclid(10_000)),
            (Side::Buy, _) => i128::MAX,
            (Side::Sell, _) => 0,
        }
    }

    fn run(&self, order: ModelOrder, budget: Option<i128>) -> Run {
        let quote = i128::from(order.request.quote_qty.0);
        let by_quote = quote != 0;
        let left = (!by_quote).then(|| order.left());
        Run { order, left, quote: if by_quote { Some(quote) } else { budget }, ended: false }
    }

    /// One order meets the book; what its trades trigger joins the queue.
    fn step(
        &mut self,
        order: ModelOrder,
        budget: Option<i128>,
        out: &mut Outcome,
        queue: &mut Vec<ModelOrder>,
    ) {
        let r = order.request;
        let before = out.trades.len();
        let limit = self.limit(&r);
        let mut run = self.run(order, budget);
        let fok =
            r.order_type != OrderType::LimitMaker && r.tif == TimeInForce::Fok && r.order_type.has_price();
        if fok {
            let mut copy = self.clone();
            let mut copied = Outcome::default();
            let mut trial = copy.run(run.order.clone(), None);
            copy.meet(&mut trial, limit, &mut copied);
            if trial.order.filled - run.order.filled != run.order.left() {
                run.ended = true;
                let o = &run.order;
                out.notes.push((o.id, Execution::Expired, OrderStatus::Expired, o.filled, o.prevented));
            }
        }
        if !run.ended {
            self.meet(&mut run, limit, out);
        }
        if !run.ended {
            let immediate = r.order_type != OrderType::LimitMaker && r.tif != TimeInForce::Gtc;
            if !r.order_type.has_price() || immediate {
                let o = &run.order;
                out.notes.push((o.id, Execution::Expired, OrderStatus::Expired, o.filled, o.prevented));
            } else {
                self.turn += 1;
                run.order.turn = self.turn;
                run.order.waiting = false;
                self.open.push(run.order);
            }
        }
        let prices: Vec<i128> = out.trades[before..].iter().map(|t| t.price).collect();
        if let (Some(low), Some(high)) = (prices.iter().min(), prices.iter().max()) {
            self.trigger(r.market.0, *low, *high, queue);
        }
    }

    fn trigger(&mut self, market: u16, low: i128, high: i128, queue: &mut Vec<ModelOrder>) {
        let (mut reached, kept): (Vec<ModelOrder>, Vec<ModelOrder>) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|o| o.waiting && o.request.market.0 == market && Self::reached(&o.request, low, high));
        self.open = kept;
        reached.sort_by_key(|o| {
            let stop = i128::from(o.request.stop_price.0);
            if Self::rises(&o.request) { (0, stop, o.turn) } else { (1, -stop, o.turn) }
        });
        queue.extend(reached);
    }

    /// Matches until nothing more can trade; sets `ended` when the order is filled or prevented.
    fn meet(&mut self, run: &mut Run, limit: i128, out: &mut Outcome) {
        let r = run.order.request;
        let i = self.instruments[usize::from(r.market.0)];
        let step = i128::from(i.lot_step.0);
        while let Some(at) = self.best(r.market.0, r.side.opposite()) {
            let price = self.open[at].price();
            let reaches = if r.side == Side::Buy { price <= limit } else { price >= limit };
            if !reaches {
                return;
            }
            let own = self.open[at].request.account == r.account && r.stp != StpMode::None;
            if own && r.stp != StpMode::Decrement {
                if r.stp != StpMode::ExpireTaker {
                    let mut maker = self.open.remove(at);
                    maker.prevented += maker.left();
                    let status = OrderStatus::ExpiredInMatch;
                    out.notes.push((
                        maker.id,
                        Execution::TradePrevention,
                        status,
                        maker.filled,
                        maker.prevented,
                    ));
                }
                if r.stp != StpMode::ExpireMaker {
                    run.order.prevented += run.left.unwrap_or(0);
                    self.prevented(run, true, out);
                    return;
                }
                continue;
            }
            let mut qty = self.open[at].left();
            if let Some(left) = run.left {
                qty = qty.min(left);
            }
            let by_quote = r.quote_qty.0 != 0;
            if let Some(quote) = run.quote
                && (by_quote || !own)
            {
                let covered = quote.max(0) * UNIT / price;
                if covered < qty {
                    qty = covered - covered % step;
                }
            }
            if qty == 0 {
                return;
            }
            let cost = price * qty / UNIT;
            run.left = run.left.map(|left| left - qty);
            if by_quote || !own {
                run.quote = run.quote.map(|quote| quote - cost);
            }
            let done = run.left == Some(0) || (by_quote && run.quote.unwrap() < price * step / UNIT);
            if own {
                let maker = &mut self.open[at];
                maker.prevented += qty;
                let status = match maker.left() {
                    0 => OrderStatus::ExpiredInMatch,
                    _ if maker.filled > 0 => OrderStatus::PartiallyFilled,
                    _ => OrderStatus::New,
                };
                let note = (maker.id, Execution::TradePrevention, status, maker.filled, maker.prevented);
                out.notes.push(note);
                if maker.left() == 0 {
                    self.open.remove(at);
                }
                run.order.prevented += qty;
                self.prevented(run, done, out);
                if done {
                    return;
                }
                continue;
            }
            self.trade(run, at, qty, cost, &i, done, out);
            if done {
                run.ended = true;
                return;
            }
        }
    }

    fn prevented(&self, run: &mut Run, ends: bool, out: &mut Outcome) {
        let o = &run.order;
        let status = match ends {
            true => OrderStatus::ExpiredInMatch,
            false if o.filled > 0 => OrderStatus::PartiallyFilled,
            false => OrderStatus::New,
        };
        out.notes.push((o.id, Execution::TradePrevention, status, o.filled, o.prevented));
        run.ended = ends;
    }

    #[allow(clippy::too_many_arguments)] // a model may be plain
    fn trade(
        &mut self,
        run: &mut Run,
        at: usize,
        qty: i128,
        cost: i128,
        i: &Instrument,
        done: bool,
        out: &mut Outcome,
    ) {
        let r = run.order.request;
        let price = self.open[at].price();
        let maker_account = self.open[at].request.account.0;
        let (buyer, seller) = match r.side {
            Side::Buy => (r.account.0, maker_account),
            Side::Sell => (maker_account, r.account.0),
        };
        let up = |amount: i128, ppm: u32| {
            let product = amount * i128::from(ppm);
            product / 1_000_000 + i128::from(product % 1_000_000 != 0)
        };
        let (buyer_ppm, seller_ppm) = match r.side {
            Side::Buy => (i.taker_fee_ppm, i.maker_fee_ppm),
            Side::Sell => (i.maker_fee_ppm, i.taker_fee_ppm),
        };
        let (buyer_fee, seller_fee) = (up(qty, buyer_ppm), up(cost, seller_ppm));
        let mut pay = |account: u32, asset: u16, amount: i128| {
            *self.funds.entry((account, asset)).or_default() += amount;
        };
        pay(buyer, i.quote.0, -cost);
        pay(seller, i.quote.0, cost - seller_fee);
        pay(seller, i.base.0, -qty);
        pay(buyer, i.base.0, qty - buyer_fee);
        pay(0, i.quote.0, seller_fee);
        pay(0, i.base.0, buyer_fee);
        let maker = &mut self.open[at];
        maker.filled += qty;
        maker.filled_quote += cost;
        run.order.filled += qty;
        run.order.filled_quote += cost;
        out.trades.push(ModelTrade {
            market: r.market.0,
            maker: maker.id,
            taker: run.order.id,
            price,
            qty,
            buyer_fee,
            seller_fee,
        });
        let status = |whole: bool| if whole { OrderStatus::Filled } else { OrderStatus::PartiallyFilled };
        let whole = maker.left() == 0;
        out.notes.push((maker.id, Execution::Trade, status(whole), maker.filled, maker.prevented));
        let o = &run.order;
        out.notes.push((o.id, Execution::Trade, status(done), o.filled, o.prevented));
        if whole {
            self.open.remove(at);
        }
        self.last_price.insert(r.market.0, price);
    }

    fn modify(
        &mut self,
        account: u32,
        market: u16,
        order: &OrderRef,
        price: i64,
        qty: i64,
        out: &mut Outcome,
    ) -> Result<(), Reject> {
        self.market(market)?;
        self.account(account)?;
        let i = self.instruments[usize::from(market)];
        if i.state != TradingState::Open {
            return Err(Reject::MarketClosed);
        }
        let at = self.find(account, market, order)?;
        let old = self.open[at].clone();
        if old.waiting {
            return Err(Reject::InvalidModify);
        }
        Self::check_price(&i, price)?;
        Self::check_lot(&i, qty, false)?;
        if i128::from(qty) <= old.filled + old.prevented {
            return Err(Reject::InvalidModify);
        }
        if price != old.request.price.0 {
            self.check_percent(&i, &old.request, price)?;
        }
        Self::check_notional(&i, i128::from(price) * i128::from(qty) / UNIT)?;
        if old.request.side == Side::Buy && qty > old.request.qty.0 {
            self.check_position(&i, account, i128::from(qty - old.request.qty.0))?;
        }
        if old.request.order_type == OrderType::LimitMaker && self.crosses(&old.request, i128::from(price)) {
            return Err(Reject::WouldMatch);
        }
        let mut new = old.clone();
        new.request.price.0 = price;
        new.request.qty.0 = qty;
        if new.hold() - old.hold() > self.free(account, self.held_asset(&old.request)) {
            return Err(Reject::InsufficientBalance);
        }
        let status = if new.filled > 0 { OrderStatus::PartiallyFilled } else { OrderStatus::New };
        out.notes.push((new.id, Execution::Replaced, status, new.filled, new.prevented));
        if price == old.request.price.0 && qty < old.request.qty.0 {
            self.open[at] = new;
            return Ok(());
        }
        self.open.remove(at);
        let mut queue = Vec::new();
        self.step(new, None, out, &mut queue);
        self.work_off(queue, out);
        Ok(())
    }
}
