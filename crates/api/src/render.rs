//! Answers and events in Binance's form, written straight into a buffer: text decimals with eight places, times in milliseconds.

use hoga_core::event::{Balance, Event, EventRecord, Execution, OrderEvent, Transfer, TransferKind};
use hoga_core::ids::{OrderId, Timestamp};
use hoga_core::money::{Price, Qty};
use hoga_core::order::{Order, OrderStatus, OrderType, TimeInForce};

use crate::catalog::Catalog;
use crate::json::{write_int, write_string, write_units};
use crate::orders::RespType;

/// Appends a piece of JSON as it is.
pub(crate) fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Appends `key` (with its quotes, colon and comma) and an integer.
pub(crate) fn int(out: &mut Vec<u8>, key: &str, value: impl itoa::Integer) {
    put(out, key);
    write_int(out, value);
}

/// Appends `key` and a decimal.
pub(crate) fn units(out: &mut Vec<u8>, key: &str, value: i64) {
    put(out, key);
    write_units(out, value);
}

/// Appends `key` and a text that needs no escapes (symbols, client ids and enums cannot hold any).
pub(crate) fn plain(out: &mut Vec<u8>, key: &str, value: &str) {
    put(out, key);
    out.push(b'"');
    put(out, value);
    out.push(b'"');
}

/// Appends `key` and `true` or `false`.
pub(crate) fn boolean(out: &mut Vec<u8>, key: &str, value: bool) {
    put(out, key);
    put(out, if value { "true" } else { "false" });
}

/// `-1` for an order that belongs to no list.
fn list_id(order: &Order) -> i64 {
    if order.list_id == 0 { -1 } else { i64::try_from(order.list_id).unwrap_or(-1) }
}

/// The part of the answer that every form of a new order has.
fn order_head(out: &mut Vec<u8>, catalog: &Catalog, order: &Order, client_id: &str, time: Timestamp) {
    plain(out, "{\"symbol\":", catalog.symbol(order.request.market));
    int(out, ",\"orderId\":", order.id.0);
    int(out, ",\"orderListId\":", list_id(order));
    plain(out, ",\"clientOrderId\":", client_id);
    int(out, ",\"transactTime\":", time.millis());
}

/// The fields that a new order's and a cancel's answer share.
fn order_state(out: &mut Vec<u8>, order: &Order) {
    let request = &order.request;
    units(out, ",\"price\":", request.price.0);
    units(out, ",\"origQty\":", order_qty(order).0);
    units(out, ",\"executedQty\":", order.filled.0);
    units(out, ",\"origQuoteOrderQty\":", request.quote_qty.0);
    units(out, ",\"cummulativeQuoteQty\":", order.filled_quote.0);
    plain(out, ",\"status\":", order.status.as_str());
    plain(out, ",\"timeInForce\":", request.tif.as_str());
    plain(out, ",\"type\":", request.order_type.as_str());
    plain(out, ",\"side\":", request.side.as_str());
    if request.order_type.is_conditional() {
        units(out, ",\"stopPrice\":", request.stop_price.0);
    }
    if order.prevented.0 > 0 {
        units(out, ",\"preventedQuantity\":", order.prevented.0);
    }
    if let Some(reason) = expiry_reason(order) {
        plain(out, ",\"expiryReason\":", reason);
    }
}

/// A market order by quote amount has no quantity of its own: Binance shows what it has traded.
fn order_qty(order: &Order) -> Qty {
    if order.request.qty == Qty::ZERO { order.filled } else { order.request.qty }
}

/// Why an order expired (user-data-stream.md, Order Expiry Reason); follows from its kind.
fn expiry_reason(order: &Order) -> Option<&'static str> {
    if order.status != OrderStatus::Expired {
        return None;
    }
    Some(match (order.request.order_type.has_price(), order.request.tif) {
        (true, TimeInForce::Ioc) => "UNFILLED_IOC_QUANTITY_EXPIRED",
        (true, TimeInForce::Fok) => "UNFILLED_FOK_ORDER_EXPIRED",
        (true, TimeInForce::Gtc) => "REJECTED",
        (false, _) => "INSUFFICIENT_LIQUIDITY",
    })
}

/// The answer to a new order, from the events of its command.
pub fn placed(out: &mut Vec<u8>, catalog: &Catalog, events: &[EventRecord], resp: RespType) {
    let Some(id) = events.iter().find_map(|e| match &e.event {
        Event::Order(o) if o.execution == Execution::New => Some(o.order.id),
        _ => None,
    }) else {
        // A repeated or unexpected reply: nothing to show but that it was taken.
        put(out, "{}");
        return;
    };
    let own = |e: &'_ EventRecord| match e.event {
        Event::Order(o) if o.order.id == id => Some((e.time, o)),
        _ => None,
    };
    let Some((time, last)) = events.iter().rev().find_map(own) else { return };
    let order = &last.order;
    order_head(out, catalog, order, order.request.client_id.as_str(), time);
    if resp != RespType::Ack {
        order_state(out, order);
        int(out, ",\"workingTime\":", working_time(order));
        plain(out, ",\"selfTradePreventionMode\":", order.request.stp.as_str());
    }
    if resp == RespType::Full {
        put(out, ",\"fills\":[");
        let mut first = true;
        for fill in events.iter().filter_map(|e| fill_of(e, id)) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            units(out, "{\"price\":", fill.price.0);
            units(out, ",\"qty\":", fill.qty.0);
            units(out, ",\"commission\":", fill.fee.0);
            plain(out, ",\"commissionAsset\":", catalog.asset(fill.fee_asset));
            int(out, ",\"tradeId\":", fill.trade.0);
            out.push(b'}');
        }
        out.push(b']');
    }
    out.push(b'}');
}

fn fill_of(record: &EventRecord, id: OrderId) -> Option<&hoga_core::event::Fill> {
    match &record.event {
        Event::Order(o) if o.order.id == id => o.fill.as_ref(),
        _ => None,
    }
}

fn working_time(order: &Order) -> i64 {
    if order.working_since.0 == 0 { -1 } else { order.working_since.millis() }
}

/// The answer to a cancel: one cancelled order.
pub fn canceled(out: &mut Vec<u8>, catalog: &Catalog, time: Timestamp, event: &OrderEvent) {
    let order = &event.order;
    let cancel_id = if event.cancel_id.is_none() { order.request.client_id } else { event.cancel_id };
    plain(out, "{\"symbol\":", catalog.symbol(order.request.market));
    plain(out, ",\"origClientOrderId\":", order.request.client_id.as_str());
    int(out, ",\"orderId\":", order.id.0);
    int(out, ",\"orderListId\":", list_id(order));
    plain(out, ",\"clientOrderId\":", cancel_id.as_str());
    int(out, ",\"transactTime\":", time.millis());
    order_state(out, order);
    plain(out, ",\"selfTradePreventionMode\":", order.request.stp.as_str());
    out.push(b'}');
}

/// All cancels among the events of one command, separated by commas; gives their number.
pub fn all_canceled(out: &mut Vec<u8>, catalog: &Catalog, events: &[EventRecord]) -> usize {
    let mut count = 0;
    for record in events {
        if let Event::Order(event) = &record.event
            && event.execution == Execution::Canceled
        {
            if count > 0 {
                out.push(b',');
            }
            canceled(out, catalog, record.time, event);
            count += 1;
        }
    }
    count
}

/// An order as queries show it.
pub fn order(out: &mut Vec<u8>, catalog: &Catalog, order: &Order) {
    let request = &order.request;
    plain(out, "{\"symbol\":", catalog.symbol(request.market));
    int(out, ",\"orderId\":", order.id.0);
    int(out, ",\"orderListId\":", list_id(order));
    plain(out, ",\"clientOrderId\":", request.client_id.as_str());
    units(out, ",\"price\":", request.price.0);
    units(out, ",\"origQty\":", order_qty(order).0);
    units(out, ",\"executedQty\":", order.filled.0);
    units(out, ",\"cummulativeQuoteQty\":", order.filled_quote.0);
    plain(out, ",\"status\":", order.status.as_str());
    plain(out, ",\"timeInForce\":", request.tif.as_str());
    plain(out, ",\"type\":", request.order_type.as_str());
    plain(out, ",\"side\":", request.side.as_str());
    units(out, ",\"stopPrice\":", request.stop_price.0);
    units(out, ",\"icebergQty\":", request.iceberg_qty.0);
    int(out, ",\"time\":", order.created.millis());
    int(out, ",\"updateTime\":", order.updated.millis());
    boolean(out, ",\"isWorking\":", order.working);
    int(out, ",\"workingTime\":", working_time(order));
    units(out, ",\"origQuoteOrderQty\":", request.quote_qty.0);
    plain(out, ",\"selfTradePreventionMode\":", request.stp.as_str());
    if order.prevented.0 > 0 {
        units(out, ",\"preventedQuantity\":", order.prevented.0);
    }
    if let Some(reason) = expiry_reason(order) {
        plain(out, ",\"expiryReason\":", reason);
    }
    out.push(b'}');
}

/// A list of orders.
pub fn order_list(out: &mut Vec<u8>, catalog: &Catalog, orders: &[Order]) {
    out.push(b'[');
    for (i, one) in orders.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        order(out, catalog, one);
    }
    out.push(b']');
}

/// `executionReport` of the user data stream: one thing that happened to one order.
pub fn execution_report(out: &mut Vec<u8>, catalog: &Catalog, record: &EventRecord, event: &OrderEvent) {
    let order = &event.order;
    let request = &order.request;
    let canceled = event.execution == Execution::Canceled && !event.cancel_id.is_none();
    let (client, original) = if canceled {
        (event.cancel_id.as_str(), request.client_id.as_str())
    } else {
        (request.client_id.as_str(), "")
    };
    // Binance reports a triggered conditional order as NEW again.
    let execution = match event.execution {
        Execution::Triggered => Execution::New,
        other => other,
    };
    let fill = event.fill;
    int(out, "{\"e\":\"executionReport\",\"E\":", record.time.millis());
    plain(out, ",\"s\":", catalog.symbol(request.market));
    plain(out, ",\"c\":", client);
    plain(out, ",\"S\":", request.side.as_str());
    plain(out, ",\"o\":", request.order_type.as_str());
    plain(out, ",\"f\":", request.tif.as_str());
    units(out, ",\"q\":", order_qty(order).0);
    units(out, ",\"p\":", request.price.0);
    units(out, ",\"P\":", request.stop_price.0);
    units(out, ",\"F\":", request.iceberg_qty.0);
    int(out, ",\"g\":", list_id(order));
    plain(out, ",\"C\":", original);
    plain(out, ",\"x\":", execution.as_str());
    plain(out, ",\"X\":", order.status.as_str());
    put(out, ",\"r\":\"NONE\"");
    int(out, ",\"i\":", order.id.0);
    units(out, ",\"l\":", fill.map_or(0, |f| f.qty.0));
    units(out, ",\"z\":", order.filled.0);
    units(out, ",\"L\":", fill.map_or(0, |f| f.price.0));
    match fill {
        Some(fill) => {
            units(out, ",\"n\":", fill.fee.0);
            plain(out, ",\"N\":", catalog.asset(fill.fee_asset));
        }
        None => put(out, ",\"n\":\"0\",\"N\":null"),
    }
    int(out, ",\"T\":", record.time.millis());
    int(out, ",\"t\":", fill.map_or(-1, |f| i64::try_from(f.trade.0).unwrap_or(-1)));
    int(out, ",\"I\":", execution_id(record));
    boolean(out, ",\"w\":", order.working && order.status.is_open());
    boolean(out, ",\"m\":", fill.is_some_and(|f| f.maker));
    put(out, ",\"M\":false");
    int(out, ",\"O\":", order.created.millis());
    units(out, ",\"Z\":", order.filled_quote.0);
    units(out, ",\"Y\":", fill.map_or(0, |f| f.quote.0));
    units(out, ",\"Q\":", request.quote_qty.0);
    if order.working_since.0 != 0 {
        int(out, ",\"W\":", order.working_since.millis());
    }
    plain(out, ",\"V\":", request.stp.as_str());
    if order.prevented.0 > 0 {
        units(out, ",\"A\":", order.prevented.0);
        units(out, ",\"B\":", event.prevented.0);
    }
    if let Some(reason) = expiry_reason(order) {
        plain(out, ",\"eR\":", reason);
    }
    out.push(b'}');
}

/// A number for one execution: the command's place and the event's place in it, so it grows and never repeats.
fn execution_id(record: &EventRecord) -> u64 {
    record.seq.0.saturating_mul(1 << 16).saturating_add(u64::from(record.index.min(0xffff)))
}

/// `outboundAccountPosition`: the balances that an order's event changed.
pub fn account_position(out: &mut Vec<u8>, time: Timestamp, balances: &[(&str, Balance)]) {
    int(out, "{\"e\":\"outboundAccountPosition\",\"E\":", time.millis());
    int(out, ",\"u\":", time.millis());
    put(out, ",\"B\":[");
    for (i, (asset, balance)) in balances.iter().enumerate() {
        plain(out, if i == 0 { "{\"a\":" } else { ",{\"a\":" }, asset);
        units(out, ",\"f\":", balance.free.0);
        units(out, ",\"l\":", balance.locked.0);
        out.push(b'}');
    }
    put(out, "]}");
}

/// `balanceUpdate`: a deposit, or a withdrawal that leaves; `None` for steps that only lock or release.
pub fn balance_update(out: &mut Vec<u8>, catalog: &Catalog, time: Timestamp, transfer: &Transfer) -> bool {
    let delta = match transfer.kind {
        TransferKind::Deposit => transfer.amount.0,
        TransferKind::WithdrawalSettled => -transfer.amount.0,
        TransferKind::WithdrawalRequested | TransferKind::WithdrawalReleased => return false,
    };
    int(out, "{\"e\":\"balanceUpdate\",\"E\":", time.millis());
    plain(out, ",\"a\":", catalog.asset(transfer.asset));
    units(out, ",\"d\":", delta);
    int(out, ",\"T\":", time.millis());
    out.push(b'}');
    true
}

/// A list of `[price, quantity]`.
pub fn levels(out: &mut Vec<u8>, levels: &[(Price, Qty)]) {
    out.push(b'[');
    for (i, (price, qty)) in levels.iter().enumerate() {
        put(out, if i == 0 { "[" } else { ",[" });
        write_units(out, price.0);
        units(out, ",", qty.0);
        out.push(b']');
    }
    out.push(b']');
}

/// One market of `exchangeInfo`.
pub fn instrument(
    out: &mut Vec<u8>,
    catalog: &Catalog,
    i: &hoga_core::instrument::Instrument,
    default_stp: &str,
    with_sets: bool,
) {
    plain(out, "{\"symbol\":", i.symbol.as_str());
    plain(out, ",\"status\":", i.state.as_str());
    plain(out, ",\"baseAsset\":", catalog.asset(i.base));
    put(out, ",\"baseAssetPrecision\":8");
    plain(out, ",\"quoteAsset\":", catalog.asset(i.quote));
    put(
        out,
        ",\"quotePrecision\":8,\"quoteAssetPrecision\":8,\"baseCommissionPrecision\":8,\"quoteCommissionPrecision\":8,\"orderTypes\":[",
    );
    let types = [
        OrderType::Limit,
        OrderType::LimitMaker,
        OrderType::Market,
        OrderType::StopLoss,
        OrderType::StopLossLimit,
        OrderType::TakeProfit,
        OrderType::TakeProfitLimit,
    ];
    for (n, order_type) in types.iter().enumerate() {
        plain(out, if n == 0 { "" } else { "," }, order_type.as_str());
    }
    put(
        out,
        "],\"icebergAllowed\":false,\"ocoAllowed\":false,\"otoAllowed\":false,\"opoAllowed\":false,\"quoteOrderQtyMarketAllowed\":true,\
         \"allowTrailingStop\":false,\"cancelReplaceAllowed\":true,\"amendAllowed\":false,\"pegInstructionsAllowed\":false,\
         \"isSpotTradingAllowed\":true,\"isMarginTradingAllowed\":false,\"filters\":[",
    );
    filters(out, i);
    put(out, "],\"permissions\":[],\"permissionSets\":");
    put(out, if with_sets { "[[\"SPOT\"]]" } else { "[]" });
    plain(out, ",\"defaultSelfTradePreventionMode\":", default_stp);
    put(
        out,
        ",\"allowedSelfTradePreventionModes\":[\"NONE\",\"EXPIRE_TAKER\",\"EXPIRE_MAKER\",\"EXPIRE_BOTH\",\"DECREMENT\"]}",
    );
}

fn filters(out: &mut Vec<u8>, i: &hoga_core::instrument::Instrument) {
    units(out, "{\"filterType\":\"PRICE_FILTER\",\"minPrice\":", i.price_min.0);
    units(out, ",\"maxPrice\":", i.price_max.0);
    units(out, ",\"tickSize\":", i.price_tick.0);
    units(out, "},{\"filterType\":\"LOT_SIZE\",\"minQty\":", i.lot_min.0);
    units(out, ",\"maxQty\":", i.lot_max.0);
    units(out, ",\"stepSize\":", i.lot_step.0);
    units(out, "},{\"filterType\":\"MARKET_LOT_SIZE\",\"minQty\":", i.lot_min.0);
    units(out, ",\"maxQty\":", i.market_lot_max.0);
    units(out, ",\"stepSize\":", i.lot_step.0);
    units(out, "},{\"filterType\":\"NOTIONAL\",\"minNotional\":", i.notional_min.0);
    put(out, ",\"applyMinToMarket\":true");
    units(out, ",\"maxNotional\":", i.notional_max.0);
    put(out, ",\"applyMaxToMarket\":true,\"avgPriceMins\":0}");
    if i.percent_up > 0 || i.percent_down > 0 {
        // 0 switches a side off: 1000 and 0 let every price through.
        let up = i64::from(if i.percent_up == 0 { 100_000 } else { i.percent_up }) * 1_000_000;
        let down = i64::from(i.percent_down) * 1_000_000;
        units(out, ",{\"filterType\":\"PERCENT_PRICE_BY_SIDE\",\"bidMultiplierUp\":", up);
        units(out, ",\"bidMultiplierDown\":", down);
        units(out, ",\"askMultiplierUp\":", up);
        units(out, ",\"askMultiplierDown\":", down);
        put(out, ",\"avgPriceMins\":0}");
    }
    int(out, ",{\"filterType\":\"MAX_NUM_ORDERS\",\"maxNumOrders\":", i.max_orders);
    int(out, "},{\"filterType\":\"MAX_NUM_ALGO_ORDERS\",\"maxNumAlgoOrders\":", i.max_algo_orders);
    out.push(b'}');
    if i.max_position.0 > 0 {
        units(out, ",{\"filterType\":\"MAX_POSITION\",\"maxPosition\":", i.max_position.0);
        out.push(b'}');
    }
}

/// A rate in parts per million as a decimal with eight places.
pub fn rate(out: &mut Vec<u8>, key: &str, ppm: u32) {
    units(out, key, i64::from(ppm) * 100);
}

/// `{"key":"value"}` pairs of free text, for native answers.
pub fn text(out: &mut Vec<u8>, key: &str, value: &str) {
    put(out, key);
    write_string(out, value);
}
