//! Own orders, trades and balances.

use hoga_core::ids::{OrderId, Timestamp, TradeId};
use hoga_core::order::Side;
use hoga_store::{FillQuery, Group, OrderQuery};

use super::query;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::orders;
use crate::params::Params;
use crate::reads::read;
use crate::render;
use crate::reply::ask;

/// The longest span of `startTime` to `endTime` (Binance: 24 hours), in microseconds.
const LONGEST_SPAN: i64 = 24 * 3600 * 1_000_000;

/// `GET /api/v3/order`.
pub(super) async fn query_order(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let app = &call.peer.app;
    let catalog = app.catalog();
    let market = orders::market(&call.params, &catalog)?.id;
    let (reference, must_be) = orders::order_ref(&call.params, "orderId", "origClientOrderId")?;
    call.params.all_read()?;
    let order = query::order(app, principal.account, market, reference, must_be).await?;
    let mut out = Vec::with_capacity(512);
    render::order(&mut out, &catalog, &order);
    Ok(Reply::json(out))
}

/// `GET /api/v3/openOrders`.
pub(super) async fn open_orders(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let app = &call.peer.app;
    let catalog = app.catalog();
    let market = match call.params.optional_symbol()? {
        None => {
            call.charge(74)?;
            None
        }
        Some(symbol) => Some(catalog.find(symbol).ok_or_else(ApiError::bad_symbol)?.id),
    };
    call.params.all_read()?;
    let account = principal.account;
    let orders = ask(app.engine(), move |exchange| exchange.open_orders(account, market)).await?;
    let mut out = Vec::with_capacity(512);
    render::order_list(&mut out, &catalog, &orders);
    Ok(Reply::json(out))
}

/// `startTime` and `endTime`, not further apart than allowed.
fn span(params: &Params<'_>) -> Result<(Option<Timestamp>, Option<Timestamp>), ApiError> {
    let start = params.time("startTime")?;
    let end = params.time("endTime")?;
    if let (Some(start), Some(end)) = (start, end) {
        if start > end {
            return Err(ApiError::not_valid("endTime"));
        }
        if end - start > LONGEST_SPAN {
            return Err(ApiError::new(-1127, "More than 24 hours between startTime and endTime."));
        }
    }
    // A bound in whole milliseconds contains the whole of its last millisecond.
    Ok((start.map(Timestamp), end.map(|end| Timestamp(if end % 1000 == 0 { end + 999 } else { end }))))
}

/// `GET /api/v3/allOrders`.
pub(super) async fn all_orders(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let app = &call.peer.app;
    let catalog = app.catalog();
    let market = orders::market(&call.params, &catalog)?.id;
    let from_id = call.params.integer("orderId")?.map(OrderId);
    let (start, end) = span(&call.params)?;
    let limit = call.params.limit(500, 1000)?;
    call.params.all_read()?;
    let query = OrderQuery { from_id, start, end, limit };
    let account = principal.account;
    let found = read(app, Group::Orders, move |s| s.orders().all_orders(account, market, &query)).await?;
    let mut out = Vec::with_capacity(512);
    render::order_list(&mut out, &catalog, &found);
    Ok(Reply::json(out))
}

/// `GET /api/v3/account`.
pub(super) async fn account(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let omit_zero = call.params.boolean("omitZeroBalances")?.unwrap_or(false);
    call.params.all_read()?;
    let app = &call.peer.app;
    let balances = query::balances(app, principal.account).await?;
    let mut out = Vec::with_capacity(1024);
    let time = call.now.millis();
    query::write_account(&mut out, &app.catalog(), principal.account, &balances, omit_zero, time);
    Ok(Reply::json(out))
}

/// `GET /api/v3/myTrades`.
pub(super) async fn my_trades(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let app = &call.peer.app;
    let catalog = app.catalog();
    let instrument = orders::market(&call.params, &catalog)?;
    let order = call.params.integer("orderId")?.map(OrderId);
    let from_id = call.params.integer("fromId")?.map(TradeId);
    let (start, end) = span(&call.params)?;
    let limit = call.params.limit(500, 1000)?;
    call.params.all_read()?;
    let timed = start.is_some() || end.is_some();
    if timed && (order.is_some() || from_id.is_some()) {
        return Err(ApiError::bad_combination());
    }
    let query = FillQuery { order, from_id, start, end, limit };
    let (account, market) = (principal.account, instrument.id);
    let fills = read(app, Group::Orders, move |s| s.orders().my_trades(account, market, &query)).await?;
    let mut out = Vec::with_capacity(512);
    out.push(b'[');
    for (i, fill) in fills.iter().enumerate() {
        render::plain(
            &mut out,
            if i == 0 { "{\"symbol\":" } else { ",{\"symbol\":" },
            instrument.symbol.as_str(),
        );
        render::int(&mut out, ",\"id\":", fill.trade.0);
        render::int(&mut out, ",\"orderId\":", fill.order.0);
        render::units(&mut out, ",\"orderListId\":-1,\"price\":", fill.price.0);
        render::units(&mut out, ",\"qty\":", fill.qty.0);
        render::units(&mut out, ",\"quoteQty\":", fill.quote.0);
        render::units(&mut out, ",\"commission\":", fill.fee.0);
        let fee_asset = if fill.side == Side::Buy { instrument.base } else { instrument.quote };
        render::plain(&mut out, ",\"commissionAsset\":", catalog.asset(fee_asset));
        render::int(&mut out, ",\"time\":", fill.time.millis());
        render::boolean(&mut out, ",\"isBuyer\":", fill.side == Side::Buy);
        render::boolean(&mut out, ",\"isMaker\":", fill.maker);
        render::put(&mut out, ",\"isBestMatch\":true}");
    }
    out.push(b']');
    Ok(Reply::json(out))
}

/// `GET /api/v3/rateLimit/order`.
pub(super) fn order_limits(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    call.params.all_read()?;
    let limits = call.peer.app.limits();
    let counts = limits.orders(&limits.account(principal.account, call.now), call.now);
    let mut out = vec![b'['];
    limits.write_orders(&mut out, Some(counts));
    out.push(b']');
    Ok(Reply::json(out))
}

/// `GET /sapi/v1/asset/tradeFee`.
pub(super) fn trade_fees(call: &Call<'_>) -> Result<Reply, ApiError> {
    call.principal()?;
    let catalog = call.peer.app.catalog();
    let only = match call.params.optional_symbol()? {
        Some(symbol) => Some(catalog.find(symbol).ok_or_else(ApiError::bad_symbol)?.id),
        None => None,
    };
    call.params.all_read()?;
    let mut out = vec![b'['];
    for instrument in catalog.instruments().iter().filter(|i| only.is_none_or(|only| only == i.id)) {
        let begin = if out.len() == 1 { "{\"symbol\":" } else { ",{\"symbol\":" };
        render::plain(&mut out, begin, instrument.symbol.as_str());
        render::rate(&mut out, ",\"makerCommission\":", instrument.maker_fee_ppm);
        render::rate(&mut out, ",\"takerCommission\":", instrument.taker_fee_ppm);
        out.push(b'}');
    }
    out.push(b']');
    Ok(Reply::json(out))
}
