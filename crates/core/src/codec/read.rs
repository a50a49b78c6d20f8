//! How each kind of field is read, and checked.

use super::{DecodeError, VERSION};
use crate::event::{Balance, Execution, Fill, OrderEvent, Trade, Transfer, TransferKind};
use crate::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Timestamp, TradeId, WithdrawalId};
use crate::instrument::{Instrument, Name, TradingState};
use crate::money::{Amount, Price, Qty};
use crate::order::{NewOrder, Order, OrderRef, OrderStatus, OrderType, Side, StpMode, TimeInForce};

/// Reads fields from bytes. Snapshots use it too.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, length: bytes.len() }
    }

    /// How many bytes were read.
    pub(crate) fn at(&self) -> usize {
        self.length - self.rest.len()
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

    pub(super) fn transfer_request(&mut self) -> Result<(AccountId, AssetId, Amount, ClientId), DecodeError> {
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

    pub(super) fn order_event(&mut self) -> Result<OrderEvent, DecodeError> {
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

    pub(super) fn trade(&mut self) -> Result<Trade, DecodeError> {
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
