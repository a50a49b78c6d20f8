//! How each kind of field is written.

use crate::event::{Balance, OrderEvent, Trade, Transfer};
use crate::ids::{AccountId, AssetId, ClientId, MarketId};
use crate::instrument::Instrument;
use crate::money::Amount;
use crate::order::{NewOrder, Order, OrderRef};

/// Appends fields to a buffer. Snapshots use it too.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

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

    pub(super) fn transfer_request(
        &mut self,
        account: AccountId,
        asset: AssetId,
        amount: Amount,
        reference: &ClientId,
    ) {
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

    pub(super) fn order_event(&mut self, event: &OrderEvent) {
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

    pub(super) fn trade(&mut self, trade: &Trade) {
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
