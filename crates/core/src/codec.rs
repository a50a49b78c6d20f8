//! The binary form of commands and events: what the journal, the event log and snapshots hold.
//!
//! Little-endian, fixed field widths, texts with a length byte in front; the first byte is [`VERSION`]. Every value has exactly one
//! encoding, so equal bytes mean equal values. Decoding is total: any bytes give a value or a [`DecodeError`], never a panic, and bytes
//! left over are an error, so a record cannot hide anything. Encoding allocates nothing beyond the output buffer.
//!
//! A field is added by raising [`VERSION`] and keeping the old branch: a newer build must read old journals.

use crate::command::{Body, Command};
use crate::event::{
    Balance, Event, EventRecord, Execution, Fill, Level, OrderEvent, Reject, Rejection, Trade, Transfer,
    TransferKind,
};
use crate::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Seq, Timestamp, TradeId, WithdrawalId};
use crate::instrument::{Instrument, Name, TradingState};
use crate::money::{Amount, Price, Qty};
use crate::order::{NewOrder, Order, OrderRef, OrderStatus, OrderType, Side, StpMode, TimeInForce};

/// The version of the format that this build writes.
pub const VERSION: u8 = 1;

/// Why bytes are not a value of the format. `at` counts bytes from the start of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written by another version of the format.
    #[error(
        "format version {found} is not known to this build (it reads {VERSION}): use the build that wrote it"
    )]
    Version {
        /// The version byte.
        found: u8,
    },
    /// The bytes end inside a field.
    #[error("record ends inside {field} at byte {at}")]
    Truncated {
        /// Which field.
        field: &'static str,
        /// Where the field begins.
        at: usize,
    },
    /// A code that the field does not have.
    #[error("{field} has no code {code} (byte {at})")]
    UnknownCode {
        /// Which field.
        field: &'static str,
        /// The code.
        code: u8,
        /// Where.
        at: usize,
    },
    /// A text that is too long or has a character that is not allowed.
    #[error("{field} at byte {at} is not a valid text")]
    BadText {
        /// Which field.
        field: &'static str,
        /// Where.
        at: usize,
    },
    /// The value ended before the bytes did.
    #[error("{extra} bytes left over at byte {at}")]
    Trailing {
        /// How many.
        extra: usize,
        /// Where they begin.
        at: usize,
    },
    /// The fields are well formed, but contradict each other. Used by snapshots.
    #[error("contradiction in {what} (before byte {at})")]
    Inconsistent {
        /// What contradicts.
        what: &'static str,
        /// How far reading had come.
        at: usize,
    },
}

/// Appends a command.
pub fn encode_command(command: &Command, out: &mut Vec<u8>) {
    out.reserve(160);
    let mut w = Writer::new(out);
    w.u8(VERSION);
    w.u64(command.seq.0);
    w.i64(command.time.0);
    w.u16(command.rules);
    w.i64(command.deadline.0);
    write_body(&mut w, &command.body);
}

/// Reads a command; the bytes must hold exactly one.
pub fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
    let mut r = Reader::new(bytes);
    r.version()?;
    let command = Command {
        seq: Seq(r.u64("seq")?),
        time: Timestamp(r.i64("time")?),
        rules: r.u16("rules")?,
        deadline: Timestamp(r.i64("deadline")?),
        body: read_body(&mut r)?,
    };
    r.finish()?;
    Ok(command)
}

/// Appends an event with its number in its topic and partition.
pub fn encode_event(record: &EventRecord, number: u64, out: &mut Vec<u8>) {
    out.reserve(384);
    let mut w = Writer::new(out);
    w.u8(VERSION);
    w.u64(number);
    w.u64(record.seq.0);
    w.u32(record.index);
    w.i64(record.time.0);
    write_event(&mut w, &record.event);
}

/// Reads an event and its number; the bytes must hold exactly one.
pub fn decode_event(bytes: &[u8]) -> Result<(u64, EventRecord), DecodeError> {
    let mut r = Reader::new(bytes);
    r.version()?;
    let number = r.u64("number")?;
    let record = EventRecord {
        seq: Seq(r.u64("seq")?),
        index: r.u32("index")?,
        time: Timestamp(r.i64("time")?),
        event: read_event(&mut r)?,
    };
    r.finish()?;
    Ok((number, record))
}

fn write_body(w: &mut Writer<'_>, body: &Body) {
    match body {
        Body::AddAsset { id, name } => {
            w.u8(1);
            w.u16(id.0);
            w.text(name.as_str());
        }
        Body::SetInstrument(instrument) => {
            w.u8(2);
            w.instrument(instrument);
        }
        Body::SetState { market, state } => {
            w.u8(3);
            w.u16(market.0);
            w.u8(*state as u8);
        }
        Body::CreateAccount => w.u8(4),
        Body::Deposit { account, asset, amount, reference } => {
            w.u8(5);
            w.transfer_request(*account, *asset, *amount, reference);
        }
        Body::Withdraw { account, asset, amount, reference } => {
            w.u8(6);
            w.transfer_request(*account, *asset, *amount, reference);
        }
        Body::SettleWithdrawal { id } => {
            w.u8(7);
            w.u64(id.0);
        }
        Body::ReleaseWithdrawal { id } => {
            w.u8(8);
            w.u64(id.0);
        }
        Body::Place(order) => {
            w.u8(9);
            w.new_order(order);
        }
        Body::Cancel { account, market, order, cancel_id } => {
            w.u8(10);
            w.u32(account.0);
            w.u16(market.0);
            w.order_ref(order);
            w.text(cancel_id.as_str());
        }
        Body::CancelAll { account, market } => {
            w.u8(11);
            w.u32(account.0);
            w.optional_market(*market);
        }
        Body::Modify { account, market, order, price, qty } => {
            w.u8(12);
            w.u32(account.0);
            w.u16(market.0);
            w.order_ref(order);
            w.i64(price.0);
            w.i64(qty.0);
        }
    }
}

fn read_body(r: &mut Reader<'_>) -> Result<Body, DecodeError> {
    let at = r.at();
    Ok(match r.u8("command")? {
        1 => Body::AddAsset { id: AssetId(r.u16("asset")?), name: r.name("asset name")? },
        2 => Body::SetInstrument(r.instrument()?),
        3 => Body::SetState {
            market: MarketId(r.u16("market")?),
            state: r.coded("trading state", TradingState::from_code)?,
        },
        4 => Body::CreateAccount,
        5 => {
            let (account, asset, amount, reference) = r.transfer_request()?;
            Body::Deposit { account, asset, amount, reference }
        }
        6 => {
            let (account, asset, amount, reference) = r.transfer_request()?;
            Body::Withdraw { account, asset, amount, reference }
        }
        7 => Body::SettleWithdrawal { id: WithdrawalId(r.u64("withdrawal")?) },
        8 => Body::ReleaseWithdrawal { id: WithdrawalId(r.u64("withdrawal")?) },
        9 => Body::Place(r.new_order()?),
        10 => Body::Cancel {
            account: AccountId(r.u32("account")?),
            market: MarketId(r.u16("market")?),
            order: r.order_ref()?,
            cancel_id: r.client_id("cancel id")?,
        },
        11 => Body::CancelAll { account: AccountId(r.u32("account")?), market: r.optional_market()? },
        12 => Body::Modify {
            account: AccountId(r.u32("account")?),
            market: MarketId(r.u16("market")?),
            order: r.order_ref()?,
            price: Price(r.i64("price")?),
            qty: Qty(r.i64("quantity")?),
        },
        code => return Err(DecodeError::UnknownCode { field: "command", code, at }),
    })
}

fn write_event(w: &mut Writer<'_>, event: &Event) {
    match event {
        Event::AssetAdded { id, name } => {
            w.u8(1);
            w.u16(id.0);
            w.text(name.as_str());
        }
        Event::InstrumentSet(instrument) => {
            w.u8(2);
            w.instrument(instrument);
        }
        Event::StateSet { market, state } => {
            w.u8(3);
            w.u16(market.0);
            w.u8(*state as u8);
        }
        Event::AccountCreated { account } => {
            w.u8(4);
            w.u32(account.0);
        }
        Event::Transfer(transfer) => {
            w.u8(5);
            w.transfer(transfer);
        }
        Event::Order(event) => {
            w.u8(6);
            w.order_event(event);
        }
        Event::Trade(trade) => {
            w.u8(7);
            w.trade(trade);
        }
        Event::Level(level) => {
            w.u8(8);
            w.u16(level.market.0);
            w.u8(level.side as u8);
            w.i64(level.price.0);
            w.i64(level.qty.0);
            w.u64(level.update_id);
        }
        Event::Rejected(rejection) => {
            w.u8(9);
            w.u32(rejection.account.0);
            w.optional_market(rejection.market);
            w.text(rejection.client_id.as_str());
            w.u8(rejection.reason as u8);
        }
    }
}

fn read_event(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let at = r.at();
    Ok(match r.u8("event")? {
        1 => Event::AssetAdded { id: AssetId(r.u16("asset")?), name: r.name("asset name")? },
        2 => Event::InstrumentSet(r.instrument()?),
        3 => Event::StateSet {
            market: MarketId(r.u16("market")?),
            state: r.coded("trading state", TradingState::from_code)?,
        },
        4 => Event::AccountCreated { account: AccountId(r.u32("account")?) },
        5 => Event::Transfer(r.transfer()?),
        6 => Event::Order(r.order_event()?),
        7 => Event::Trade(r.trade()?),
        8 => Event::Level(Level {
            market: MarketId(r.u16("market")?),
            side: r.coded("side", Side::from_code)?,
            price: Price(r.i64("price")?),
            qty: Qty(r.i64("quantity")?),
            update_id: r.u64("update id")?,
        }),
        9 => Event::Rejected(Rejection {
            account: AccountId(r.u32("account")?),
            market: r.optional_market()?,
            client_id: r.client_id("client id")?,
            reason: r.coded("reject", Reject::from_code)?,
        }),
        code => return Err(DecodeError::UnknownCode { field: "event", code, at }),
    })
}

/// Appends fields to a buffer. Snapshots use it too.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

#[allow(dead_code)] // the snapshot uses the widths that records do not
impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Writer<'a> {
        Writer { out }
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.out.push(u8::from(value));
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn i128(&mut self, value: i128) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A text of at most 255 bytes: its length, then its bytes. All texts of the core are far shorter.
    pub(crate) fn text(&mut self, text: &str) {
        debug_assert!(text.len() <= usize::from(u8::MAX));
        self.out.push(text.len() as u8);
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn optional_market(&mut self, market: Option<MarketId>) {
        self.bool(market.is_some());
        if let Some(market) = market {
            self.u16(market.0);
        }
    }

    pub(crate) fn order_ref(&mut self, order: &OrderRef) {
        match order {
            OrderRef::Id(id) => {
                self.u8(0);
                self.u64(id.0);
            }
            OrderRef::Client(id) => {
                self.u8(1);
                self.text(id.as_str());
            }
        }
    }

    fn transfer_request(&mut self, account: AccountId, asset: AssetId, amount: Amount, reference: &ClientId) {
        self.u32(account.0);
        self.u16(asset.0);
        self.i64(amount.0);
        self.text(reference.as_str());
    }

    pub(crate) fn balance(&mut self, balance: &Balance) {
        self.i64(balance.free.0);
        self.i64(balance.locked.0);
    }

    pub(crate) fn instrument(&mut self, i: &Instrument) {
        self.u16(i.id.0);
        self.text(i.symbol.as_str());
        self.u16(i.base.0);
        self.u16(i.quote.0);
        self.u8(i.state as u8);
        for price in [i.price_tick, i.price_min, i.price_max] {
            self.i64(price.0);
        }
        for qty in [i.lot_step, i.lot_min, i.lot_max, i.market_lot_max] {
            self.i64(qty.0);
        }
        self.i64(i.notional_min.0);
        self.i64(i.notional_max.0);
        for number in [i.percent_up, i.percent_down, i.market_band_bps, i.max_orders, i.max_algo_orders] {
            self.u32(number);
        }
        self.i64(i.max_position.0);
        self.u32(i.maker_fee_ppm);
        self.u32(i.taker_fee_ppm);
    }

    pub(crate) fn new_order(&mut self, order: &NewOrder) {
        self.u32(order.account.0);
        self.u16(order.market.0);
        for code in [order.side as u8, order.order_type as u8, order.tif as u8, order.stp as u8] {
            self.u8(code);
        }
        self.i64(order.price.0);
        self.i64(order.stop_price.0);
        self.i64(order.qty.0);
        self.i64(order.quote_qty.0);
        self.i64(order.iceberg_qty.0);
        self.u32(order.trailing_delta);
        self.text(order.client_id.as_str());
    }

    pub(crate) fn order(&mut self, order: &Order) {
        self.u64(order.id.0);
        self.new_order(&order.request);
        self.u8(order.status as u8);
        self.bool(order.working);
        self.i64(order.filled.0);
        self.i64(order.filled_quote.0);
        self.i64(order.prevented.0);
        self.u64(order.list_id);
        for time in [order.created, order.updated, order.working_since] {
            self.i64(time.0);
        }
    }

    pub(crate) fn transfer(&mut self, transfer: &Transfer) {
        self.u8(transfer.kind as u8);
        self.transfer_request(transfer.account, transfer.asset, transfer.amount, &transfer.reference);
        self.u64(transfer.withdrawal.0);
        self.balance(&transfer.balance);
        self.bool(transfer.repeated);
    }

    fn order_event(&mut self, event: &OrderEvent) {
        self.u8(event.execution as u8);
        self.order(&event.order);
        self.bool(event.fill.is_some());
        if let Some(fill) = &event.fill {
            self.u64(fill.trade.0);
            self.i64(fill.price.0);
            self.i64(fill.qty.0);
            self.i64(fill.quote.0);
            self.i64(fill.fee.0);
            self.u16(fill.fee_asset.0);
            self.bool(fill.maker);
            self.u64(fill.counter_order.0);
            self.u32(fill.counter_account.0);
        }
        self.text(event.cancel_id.as_str());
        self.i64(event.prevented.0);
        self.balance(&event.base);
        self.balance(&event.quote);
    }

    fn trade(&mut self, trade: &Trade) {
        self.u16(trade.market.0);
        self.u64(trade.id.0);
        self.i64(trade.price.0);
        self.i64(trade.qty.0);
        self.i64(trade.quote.0);
        self.u64(trade.buy_order.0);
        self.u64(trade.sell_order.0);
        self.u32(trade.buyer.0);
        self.u32(trade.seller.0);
        self.u8(trade.taker_side as u8);
        self.i64(trade.buyer_fee.0);
        self.i64(trade.seller_fee.0);
    }
}

/// Reads fields from bytes. Snapshots use it too.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

#[allow(dead_code)] // the snapshot uses the widths that records do not
impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, length: bytes.len() }
    }

    /// How many bytes were read.
    pub(crate) fn at(&self) -> usize {
        self.length - self.rest.len()
    }

    /// How many bytes are left. A count of things that follow may not be believed beyond what this allows: check before allocating.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The error for well-formed fields that contradict each other.
    pub(crate) fn inconsistent(&self, what: &'static str) -> DecodeError {
        DecodeError::Inconsistent { what, at: self.at() }
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(DecodeError::Truncated { field, at: self.at() }),
        }
    }

    /// The version byte; only [`VERSION`] is known so far.
    pub(crate) fn version(&mut self) -> Result<(), DecodeError> {
        match self.u8("version")? {
            VERSION => Ok(()),
            found => Err(DecodeError::Version { found }),
        }
    }

    /// That nothing is left.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing { extra: self.rest.len(), at: self.at() })
        }
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.take::<1>(field).map(|[byte]| byte)
    }

    pub(crate) fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        self.coded(field, |code| match code {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        })
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.take(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.take(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.take(field).map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.take(field).map(i64::from_le_bytes)
    }

    pub(crate) fn i128(&mut self, field: &'static str) -> Result<i128, DecodeError> {
        self.take(field).map(i128::from_le_bytes)
    }

    /// A code of one byte, by the type's own table.
    pub(crate) fn coded<T>(
        &mut self,
        field: &'static str,
        from_code: impl FnOnce(u8) -> Option<T>,
    ) -> Result<T, DecodeError> {
        let at = self.at();
        let code = self.u8(field)?;
        from_code(code).ok_or(DecodeError::UnknownCode { field, code, at })
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let at = self.at();
        let length = usize::from(self.u8(field)?);
        let (head, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated { field, at })?;
        self.rest = rest;
        std::str::from_utf8(head).map_err(|_| DecodeError::BadText { field, at })
    }

    /// A client id or none.
    pub(crate) fn client_id(&mut self, field: &'static str) -> Result<ClientId, DecodeError> {
        let at = self.at();
        match self.text(field)? {
            "" => Ok(ClientId::NONE),
            text => ClientId::new(text).ok_or(DecodeError::BadText { field, at }),
        }
    }

    /// A name or the empty one (a default value, never a checked name).
    pub(crate) fn name(&mut self, field: &'static str) -> Result<Name, DecodeError> {
        let at = self.at();
        match self.text(field)? {
            "" => Ok(Name::default()),
            text => Name::new(text).ok_or(DecodeError::BadText { field, at }),
        }
    }

    pub(crate) fn optional_market(&mut self) -> Result<Option<MarketId>, DecodeError> {
        Ok(if self.bool("market")? { Some(MarketId(self.u16("market")?)) } else { None })
    }

    pub(crate) fn order_ref(&mut self) -> Result<OrderRef, DecodeError> {
        let at = self.at();
        match self.u8("order reference")? {
            0 => Ok(OrderRef::Id(OrderId(self.u64("order id")?))),
            1 => Ok(OrderRef::Client(self.client_id("client id")?)),
            code => Err(DecodeError::UnknownCode { field: "order reference", code, at }),
        }
    }

    fn transfer_request(&mut self) -> Result<(AccountId, AssetId, Amount, ClientId), DecodeError> {
        Ok((
            AccountId(self.u32("account")?),
            AssetId(self.u16("asset")?),
            Amount(self.i64("amount")?),
            self.client_id("reference")?,
        ))
    }

    pub(crate) fn balance(&mut self) -> Result<Balance, DecodeError> {
        Ok(Balance { free: Amount(self.i64("free")?), locked: Amount(self.i64("locked")?) })
    }

    pub(crate) fn instrument(&mut self) -> Result<Instrument, DecodeError> {
        Ok(Instrument {
            id: MarketId(self.u16("market")?),
            symbol: self.name("symbol")?,
            base: AssetId(self.u16("base asset")?),
            quote: AssetId(self.u16("quote asset")?),
            state: self.coded("trading state", TradingState::from_code)?,
            price_tick: Price(self.i64("price tick")?),
            price_min: Price(self.i64("lowest price")?),
            price_max: Price(self.i64("highest price")?),
            lot_step: Qty(self.i64("lot step")?),
            lot_min: Qty(self.i64("lowest quantity")?),
            lot_max: Qty(self.i64("highest quantity")?),
            market_lot_max: Qty(self.i64("highest market quantity")?),
            notional_min: Amount(self.i64("lowest notional")?),
            notional_max: Amount(self.i64("highest notional")?),
            percent_up: self.u32("percent up")?,
            percent_down: self.u32("percent down")?,
            market_band_bps: self.u32("market band")?,
            max_orders: self.u32("most orders")?,
            max_algo_orders: self.u32("most conditional orders")?,
            max_position: Qty(self.i64("highest position")?),
            maker_fee_ppm: self.u32("maker fee")?,
            taker_fee_ppm: self.u32("taker fee")?,
        })
    }

    pub(crate) fn new_order(&mut self) -> Result<NewOrder, DecodeError> {
        let (account, market) = (AccountId(self.u32("account")?), MarketId(self.u16("market")?));
        let side = self.coded("side", Side::from_code)?;
        let order_type = self.coded("order type", OrderType::from_code)?;
        let tif = self.coded("time in force", TimeInForce::from_code)?;
        let stp = self.coded("self-trade prevention", StpMode::from_code)?;
        Ok(NewOrder {
            account,
            market,
            side,
            order_type,
            tif,
            price: Price(self.i64("price")?),
            stop_price: Price(self.i64("stop price")?),
            qty: Qty(self.i64("quantity")?),
            quote_qty: Amount(self.i64("quote quantity")?),
            iceberg_qty: Qty(self.i64("iceberg quantity")?),
            trailing_delta: self.u32("trailing delta")?,
            stp,
            client_id: self.client_id("client id")?,
        })
    }

    pub(crate) fn order(&mut self) -> Result<Order, DecodeError> {
        Ok(Order {
            id: OrderId(self.u64("order id")?),
            request: self.new_order()?,
            status: self.coded("order status", OrderStatus::from_code)?,
            working: self.bool("working")?,
            filled: Qty(self.i64("filled quantity")?),
            filled_quote: Amount(self.i64("filled amount")?),
            prevented: Qty(self.i64("prevented quantity")?),
            list_id: self.u64("order list")?,
            created: Timestamp(self.i64("created")?),
            updated: Timestamp(self.i64("updated")?),
            working_since: Timestamp(self.i64("working since")?),
        })
    }

    pub(crate) fn transfer(&mut self) -> Result<Transfer, DecodeError> {
        let kind = self.coded("transfer kind", TransferKind::from_code)?;
        let (account, asset, amount, reference) = self.transfer_request()?;
        Ok(Transfer {
            kind,
            account,
            asset,
            amount,
            reference,
            withdrawal: WithdrawalId(self.u64("withdrawal")?),
            balance: self.balance()?,
            repeated: self.bool("repeated")?,
        })
    }

    fn order_event(&mut self) -> Result<OrderEvent, DecodeError> {
        let execution = self.coded("execution", Execution::from_code)?;
        let order = self.order()?;
        let fill = if self.bool("fill")? { Some(self.fill()?) } else { None };
        Ok(OrderEvent {
            execution,
            order,
            fill,
            cancel_id: self.client_id("cancel id")?,
            prevented: Qty(self.i64("prevented quantity")?),
            base: self.balance()?,
            quote: self.balance()?,
        })
    }

    fn fill(&mut self) -> Result<Fill, DecodeError> {
        Ok(Fill {
            trade: TradeId(self.u64("trade")?),
            price: Price(self.i64("price")?),
            qty: Qty(self.i64("quantity")?),
            quote: Amount(self.i64("quote amount")?),
            fee: Amount(self.i64("fee")?),
            fee_asset: AssetId(self.u16("fee asset")?),
            maker: self.bool("maker")?,
            counter_order: OrderId(self.u64("counter order")?),
            counter_account: AccountId(self.u32("counter account")?),
        })
    }

    fn trade(&mut self) -> Result<Trade, DecodeError> {
        Ok(Trade {
            market: MarketId(self.u16("market")?),
            id: TradeId(self.u64("trade")?),
            price: Price(self.i64("price")?),
            qty: Qty(self.i64("quantity")?),
            quote: Amount(self.i64("quote amount")?),
            buy_order: OrderId(self.u64("buy order")?),
            sell_order: OrderId(self.u64("sell order")?),
            buyer: AccountId(self.u32("buyer")?),
            seller: AccountId(self.u32("seller")?),
            taker_side: self.coded("taker side", Side::from_code)?,
            buyer_fee: Amount(self.i64("buyer fee")?),
            seller_fee: Amount(self.i64("seller fee")?),
        })
    }
}
