//! The exchange's state as bytes, and back.
//!
//! Layout, little-endian, with the codec's field forms: version; position, time, chain, last order; assets (name, deposited, withdrawn);
//! markets (definition, last trade and price, update id); accounts (balances that are not zero, recent references); withdrawals (last
//! number, open ones by number); then per market four lists of orders: bids, asks, waiting for a fall, waiting for a rise, each as they
//! would trade, so that a list's order is the priority. What follows from the rest is not written: holds, counters, totals, indexes.
//!
//! Equal states have equal bytes: nothing depends on where things lie in memory. Decoding is total: bytes that are cut, foreign or
//! contradict themselves give an error, and what decodes keeps the exchange's invariants.

use rustc_hash::FxHashMap;

use super::accounts::{Account, Recent};
use super::stops::waits_on;
use super::transfers::Withdrawal;
use super::{Exchange, Flow, Market};
use crate::book::{Book, NO_SLOT};
use crate::codec::{DecodeError, Reader, VERSION, Writer};
use crate::event::TransferKind;
use crate::ids::{AccountId, AssetId, MarketId, OrderId, Seq, Timestamp, TradeId, WithdrawalId};
use crate::instrument::{Instrument, Name};
use crate::money::{Amount, Price, Qty, notional};
use crate::order::{NewOrder, Order, OrderStatus, OrderType, Side, StpMode, TimeInForce};

/// Bytes collected before they are handed on.
const PART: usize = 64 * 1024;

mod flag {
    pub(super) const FILLED: u8 = 1;
    pub(super) const PREVENTED: u8 = 2;
    pub(super) const UPDATED: u8 = 4;
    pub(super) const WORKED_LATER: u8 = 8;
    pub(super) const WORKING: u8 = 16;
    pub(super) const ALL: u8 = 31;
}

impl Exchange {
    /// Appends the whole state. Equal states give equal bytes.
    pub fn encode_snapshot(&self, out: &mut Vec<u8>) {
        self.encode_parts(&mut |part| out.append(part));
    }

    /// Writes the state in parts: `sink` takes the bytes out of the buffer that it is given.
    pub(super) fn encode_parts(&self, sink: &mut dyn FnMut(&mut Vec<u8>)) {
        let mut buffer = Vec::with_capacity(PART + 1024);
        self.encode_head(&mut Writer::new(&mut buffer));
        for account in self.accounts.iter() {
            encode_account(account, &mut Writer::new(&mut buffer));
            if buffer.len() >= PART {
                sink(&mut buffer);
            }
        }
        let mut w = Writer::new(&mut buffer);
        w.u64(self.withdrawals.last);
        let open = self.withdrawals.sorted();
        w.u32(open.len() as u32);
        for Withdrawal { id, account, asset, amount, reference } in &open {
            w.u64(id.0);
            w.u32(account.0);
            w.u16(asset.0);
            w.i64(amount.0);
            w.text(reference.as_str());
        }
        for market in &self.markets {
            for (book, side) in lists(market) {
                let count: u32 = book.levels(side).map(|level| level.orders).sum();
                Writer::new(&mut buffer).u32(count);
                for resting in book.walk(side) {
                    encode_order(&self.orders.get(resting.handle).order, &mut Writer::new(&mut buffer));
                    if buffer.len() >= PART {
                        sink(&mut buffer);
                    }
                }
            }
        }
        sink(&mut buffer);
    }

    fn encode_head(&self, w: &mut Writer<'_>) {
        w.u8(VERSION);
        w.u64(self.position.0);
        w.i64(self.time.0);
        w.u64(self.chain);
        w.u64(self.last_order);
        w.u16(self.assets.len() as u16);
        for (name, flow) in self.assets.iter().zip(&self.flows) {
            w.text(name.as_str());
            w.i128(flow.deposited);
            w.i128(flow.withdrawn);
        }
        w.u16(self.markets.len() as u16);
        for (instrument, market) in self.instruments.iter().zip(&self.markets) {
            w.instrument(instrument);
            w.u64(market.last_trade.0);
            w.i64(market.last_price.0);
            w.u64(market.update_id);
        }
        w.u32(self.accounts.iter().len() as u32);
    }

    /// Reads what [`Exchange::encode_snapshot`] wrote.
    pub fn decode_snapshot(bytes: &[u8]) -> Result<Exchange, DecodeError> {
        let mut r = Reader::new(bytes);
        let mut exchange = Exchange::new();
        exchange.decode_head(&mut r)?;
        exchange.decode_accounts(&mut r)?;
        let mut held = FxHashMap::default();
        exchange.decode_withdrawals(&mut r, &mut held)?;
        let mut ids = Vec::new();
        for at in 0..exchange.markets.len() {
            for list in 0..4 {
                exchange.decode_orders(at, list, &mut r, &mut ids, &mut held)?;
            }
            let book = &exchange.markets[at].book;
            if let (Some(bid), Some(ask)) = (book.best(Side::Buy), book.best(Side::Sell))
                && bid >= ask
            {
                return Err(r.inconsistent("a book that is crossed"));
            }
        }
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(r.inconsistent("two orders with one id"));
        }
        for (_, handle) in ids {
            exchange.orders.link(handle, &mut exchange.accounts);
        }
        exchange.check_ledger(&r, &held)?;
        r.finish()?;
        Ok(exchange)
    }

    fn decode_head(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        r.version()?;
        self.position = Seq(r.u64("position")?);
        self.time = Timestamp(r.i64("time")?);
        self.chain = r.u64("chain")?;
        self.last_order = r.u64("last order")?;
        for _ in 0..r.u16("assets")? {
            let name = r.name("asset")?;
            let flow = Flow { deposited: r.i128("deposited")?, withdrawn: r.i128("withdrawn")? };
            if name == Name::default() || flow.withdrawn < 0 || flow.deposited < flow.withdrawn {
                return Err(r.inconsistent("an asset"));
            }
            self.assets.push(name);
            self.flows.push(flow);
        }
        for number in 0..r.u16("markets")? {
            let instrument = r.instrument()?;
            let known = |asset: AssetId| usize::from(asset.0) < self.assets.len();
            if instrument.id.0 != number
                || !instrument.check()
                || !known(instrument.base)
                || !known(instrument.quote)
            {
                return Err(r.inconsistent("a market's definition"));
            }
            let mut market = Market::new();
            market.last_trade = TradeId(r.u64("last trade")?);
            market.last_price = Price(r.i64("last price")?);
            market.update_id = r.u64("update id")?;
            self.instruments.push(instrument);
            self.markets.push(market);
        }
        Ok(())
    }

    fn decode_accounts(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let count = r.u32("accounts")?;
        if count == 0 {
            return Err(r.inconsistent("no account of the exchange"));
        }
        for number in 0..count {
            let id = AccountId(number);
            if number > 0 {
                // Grows with what is read: a wrong count ends at the end of the bytes.
                self.accounts.open();
            }
            let mut last: Option<AssetId> = None;
            for _ in 0..r.u16("balances")? {
                let asset = AssetId(r.u16("asset")?);
                let balance = r.balance()?;
                let ascending = last.is_none_or(|last| last < asset);
                if !ascending
                    || usize::from(asset.0) >= self.assets.len()
                    || balance.free.0 < 0
                    || balance.locked.0 < 0
                {
                    return Err(r.inconsistent("a balance"));
                }
                last = Some(asset);
                self.accounts.restore(id, asset, balance);
            }
            for _ in 0..r.u8("references")? {
                let recent = decode_recent(r)?;
                let account = self.accounts.of_mut(id);
                if account.recent.len() == super::RECENT_REFERENCES || recent.reference.is_none() {
                    return Err(r.inconsistent("references of an account"));
                }
                account.remember(recent);
            }
        }
        Ok(())
    }

    fn decode_withdrawals(&mut self, r: &mut Reader<'_>, held: &mut Held) -> Result<(), DecodeError> {
        self.withdrawals.last = r.u64("last withdrawal")?;
        let mut last = 0;
        for _ in 0..r.u32("withdrawals")? {
            let withdrawal = Withdrawal {
                id: WithdrawalId(r.u64("withdrawal")?),
                account: AccountId(r.u32("account")?),
                asset: AssetId(r.u16("asset")?),
                amount: Amount(r.i64("amount")?),
                reference: r.client_id("reference")?,
            };
            let Withdrawal { id, account, asset, amount, .. } = withdrawal;
            let known = self.accounts.client(account).is_some() && usize::from(asset.0) < self.assets.len();
            if id.0 <= last || id.0 > self.withdrawals.last || !known || amount.0 <= 0 {
                return Err(r.inconsistent("a withdrawal"));
            }
            last = id.0;
            *held.entry((account, asset)).or_default() += i128::from(amount.0);
            self.withdrawals.add(withdrawal);
        }
        Ok(())
    }

    /// One of the four lists of a market, in the order in which the orders would trade.
    fn decode_orders(
        &mut self,
        at: usize,
        list: usize,
        r: &mut Reader<'_>,
        ids: &mut Vec<(u64, u32)>,
        held: &mut Held,
    ) -> Result<(), DecodeError> {
        let waiting = list >= 2;
        let list_side = [Side::Buy, Side::Sell][list % 2];
        for _ in 0..r.u32("orders")? {
            let order = decode_order(r, MarketId(at as u16))?;
            let Order { id, request, .. } = order;
            let side = if waiting { waits_on(request.order_type, request.side) } else { request.side };
            let left =
                request.qty.0.checked_sub(order.filled.0).and_then(|l| l.checked_sub(order.prevented.0));
            let valid = left.is_some_and(|left| left > 0)
                && id.0 > 0
                && id.0 <= self.last_order
                && side == list_side
                && waiting != order.working
                && self.accounts.client(request.account).is_some()
                && self.orders.by_client(request.account, &request.client_id).is_none();
            let (Some(left), true) = (left, valid) else {
                return Err(r.inconsistent("an open order"));
            };
            let Instrument { price_tick, lot_step, .. } = self.instruments[at];
            let exact = request.price.0 % price_tick.0 == 0
                && request.stop_price.0 % price_tick.0 == 0
                && left % lot_step.0 == 0;
            if !exact {
                return Err(r.inconsistent("an order's steps"));
            }
            let price = if request.order_type.has_price() { request.price } else { request.stop_price };
            let amount = match request.side {
                Side::Buy => notional(price, Qty(left)).ok_or_else(|| r.inconsistent("an order's cost"))?,
                Side::Sell => Amount(left),
            };
            let asset = self.held_asset(at, request.side);
            *held.entry((request.account, asset)).or_default() += i128::from(amount.0);
            let handle = self.orders.insert(&order, amount, NO_SLOT, &mut self.accounts);
            let market = &mut self.markets[at];
            let (book, level) = if waiting {
                (&mut market.stops, request.stop_price)
            } else {
                (&mut market.book, request.price)
            };
            let sorted = book.worst(side).is_none_or(|worst| match side {
                Side::Buy => level.0 <= worst,
                Side::Sell => level.0 >= worst,
            });
            if !sorted || level.0 <= 0 || book.find(id.0).is_some() {
                return Err(r.inconsistent("the order of orders"));
            }
            let (slot, _) = book
                .rest(id.0, side, level.0, left, handle)
                .map_err(|_| r.inconsistent("a level's total"))?;
            self.orders.get_mut(handle).slot = slot;
            ids.push((id.0, handle));
        }
        Ok(())
    }

    /// That holds explain what is locked, and that balances add up to what flowed in and out.
    fn check_ledger(&self, r: &Reader<'_>, held: &Held) -> Result<(), DecodeError> {
        let mut explained = 0_usize;
        let mut sums = vec![0_i128; self.assets.len()];
        for (number, account) in self.accounts.iter().enumerate() {
            for holding in &account.holdings {
                let locked = held.get(&(AccountId(number as u32), holding.asset)).copied().unwrap_or(0);
                if locked != i128::from(holding.balance.locked.0) {
                    return Err(r.inconsistent("what an account has locked"));
                }
                explained += usize::from(locked != 0);
                sums[usize::from(holding.asset.0)] += i128::from(holding.balance.free.0) + locked;
            }
        }
        let supply = |flow: &Flow| flow.deposited.checked_sub(flow.withdrawn);
        let adds_up = sums
            .iter()
            .zip(&self.flows)
            .all(|(sum, flow)| supply(flow) == Some(*sum) && *sum <= i128::from(i64::MAX));
        if explained != held.len() || !adds_up {
            return Err(r.inconsistent("the sums of an asset"));
        }
        Ok(())
    }
}

/// What orders and withdrawals hold, to be compared with what is locked.
type Held = FxHashMap<(AccountId, AssetId), i128>;

/// The four lists of a market.
fn lists(market: &Market) -> [(&Book, Side); 4] {
    let Market { book, stops, .. } = market;
    [(book, Side::Buy), (book, Side::Sell), (stops, Side::Buy), (stops, Side::Sell)]
}

fn encode_account(account: &Account, w: &mut Writer<'_>) {
    let holdings = || account.holdings.iter().filter(|h| h.balance.free.0 != 0 || h.balance.locked.0 != 0);
    w.u16(holdings().count() as u16);
    for holding in holdings() {
        w.u16(holding.asset.0);
        w.balance(&holding.balance);
    }
    w.u8(account.recent.len() as u8);
    for recent in &account.recent {
        w.u8(recent.kind as u8);
        w.u16(recent.asset.0);
        w.i64(recent.amount.0);
        w.u64(recent.withdrawal.0);
        w.text(recent.reference.as_str());
    }
}

fn decode_recent(r: &mut Reader<'_>) -> Result<Recent, DecodeError> {
    Ok(Recent {
        kind: r.coded("transfer kind", TransferKind::from_code)?,
        asset: AssetId(r.u16("asset")?),
        amount: Amount(r.i64("amount")?),
        withdrawal: WithdrawalId(r.u64("withdrawal")?),
        reference: r.client_id("reference")?,
    })
}

fn encode_order(order: &Order, w: &mut Writer<'_>) {
    let request = &order.request;
    let set = |condition: bool, flag: u8| if condition { flag } else { 0 };
    let flags = set(order.filled.0 != 0, flag::FILLED)
        | set(order.prevented.0 != 0, flag::PREVENTED)
        | set(order.updated != order.created, flag::UPDATED)
        | set(order.working && order.working_since != order.created, flag::WORKED_LATER)
        | set(order.working, flag::WORKING);
    w.u8(flags);
    w.u64(order.id.0);
    w.u32(request.account.0);
    for code in [request.side as u8, request.order_type as u8, request.tif as u8, request.stp as u8] {
        w.u8(code);
    }
    if request.order_type.has_price() {
        w.i64(request.price.0);
    }
    if request.order_type.is_conditional() {
        w.i64(request.stop_price.0);
    }
    w.i64(request.qty.0);
    w.text(request.client_id.as_str());
    w.i64(order.created.0);
    if flags & flag::FILLED != 0 {
        w.i64(order.filled.0);
        w.i64(order.filled_quote.0);
    }
    if flags & flag::PREVENTED != 0 {
        w.i64(order.prevented.0);
    }
    if flags & flag::UPDATED != 0 {
        w.i64(order.updated.0);
    }
    if flags & flag::WORKED_LATER != 0 {
        w.i64(order.working_since.0);
    }
}

fn decode_order(r: &mut Reader<'_>, market: MarketId) -> Result<Order, DecodeError> {
    let flags = r.u8("flags")?;
    if flags & !flag::ALL != 0 {
        return Err(r.inconsistent("an order's flags"));
    }
    let has = |flag: u8| flags & flag != 0;
    let id = OrderId(r.u64("order id")?);
    let account = AccountId(r.u32("account")?);
    let side = r.coded("side", Side::from_code)?;
    let order_type = r.coded("order type", OrderType::from_code)?;
    let tif = r.coded("time in force", TimeInForce::from_code)?;
    let stp = r.coded("self-trade prevention", StpMode::from_code)?;
    let price = if order_type.has_price() { Price(r.i64("price")?) } else { Price::ZERO };
    let stop_price = if order_type.is_conditional() { Price(r.i64("stop price")?) } else { Price::ZERO };
    let request = NewOrder {
        account,
        market,
        side,
        order_type,
        tif,
        price,
        stop_price,
        qty: Qty(r.i64("quantity")?),
        quote_qty: Amount::ZERO,
        iceberg_qty: Qty::ZERO,
        trailing_delta: 0,
        stp,
        client_id: r.client_id("client id")?,
    };
    let created = Timestamp(r.i64("created")?);
    let (filled, filled_quote) = match has(flag::FILLED) {
        true => (Qty(r.i64("filled")?), Amount(r.i64("filled quote")?)),
        false => (Qty::ZERO, Amount::ZERO),
    };
    let prevented = if has(flag::PREVENTED) { Qty(r.i64("prevented")?) } else { Qty::ZERO };
    let updated = if has(flag::UPDATED) { Timestamp(r.i64("updated")?) } else { created };
    let working = has(flag::WORKING);
    let working_since = match (working, has(flag::WORKED_LATER)) {
        (true, true) => Timestamp(r.i64("working since")?),
        (true, false) => created,
        (false, false) => Timestamp(0),
        (false, true) => return Err(r.inconsistent("an order's flags")),
    };
    let bad_rest = if working { !order_type.has_price() } else { !order_type.is_conditional() };
    let bad_price =
        (order_type.has_price() && price.0 <= 0) || (order_type.is_conditional() && stop_price.0 <= 0);
    if bad_rest || bad_price || filled.0 < 0 || filled_quote.0 < 0 || prevented.0 < 0 {
        return Err(r.inconsistent("an open order"));
    }
    let status = if filled.0 > 0 { OrderStatus::PartiallyFilled } else { OrderStatus::New };
    Ok(Order {
        id,
        request,
        status,
        working,
        filled,
        filled_quote,
        prevented,
        list_id: 0,
        created,
        updated,
        working_since,
    })
}
