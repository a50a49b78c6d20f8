//! Questions about orders and balances that REST and the WebSocket API share.

use std::sync::Arc;

use hoga_core::event::Balance;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId};
use hoga_core::order::{Order, OrderRef};
use hoga_store::Group;

use crate::app::App;
use crate::catalog::Catalog;
use crate::error::ApiError;
use crate::reads::read;
use crate::render;
use crate::reply::ask;

/// One order: from the engine while it is open, else from the read model. `must_be`: the client id that it must have.
pub(crate) async fn order(
    app: &Arc<App>,
    account: AccountId,
    market: MarketId,
    reference: OrderRef,
    must_be: Option<ClientId>,
) -> Result<Order, ApiError> {
    let open = ask(app.engine(), move |e| e.order(account, market, &reference)).await?;
    let order = match open {
        Some(order) => order,
        None => read(app, Group::Orders, move |stores| stores.orders().order(account, market, &reference))
            .await?
            .ok_or_else(ApiError::no_such_order)?,
    };
    if must_be.is_some_and(|id| id != order.request.client_id) {
        return Err(ApiError::no_such_order());
    }
    Ok(order)
}

/// All balances of an account.
pub(crate) async fn balances(app: &App, account: AccountId) -> Result<Vec<(AssetId, Balance)>, ApiError> {
    ask(app.engine(), move |exchange| {
        (0..exchange.assets().len())
            .filter_map(|i| u16::try_from(i).ok().map(AssetId))
            .filter_map(|asset| exchange.balance(account, asset).map(|balance| (asset, balance)))
            .collect()
    })
    .await
}

/// Writes the answer of `GET /api/v3/account`.
pub(crate) fn write_account(
    out: &mut Vec<u8>,
    catalog: &Catalog,
    account: AccountId,
    balances: &[(AssetId, Balance)],
    omit_zero: bool,
    time_ms: i64,
) {
    // The account's rates are per market; the first market's stand here, as clients only show them.
    let (maker, taker) = catalog.instruments().first().map_or((0, 0), |i| (i.maker_fee_ppm, i.taker_fee_ppm));
    render::int(out, "{\"makerCommission\":", maker / 100);
    render::int(out, ",\"takerCommission\":", taker / 100);
    render::put(out, ",\"buyerCommission\":0,\"sellerCommission\":0,\"commissionRates\":{");
    render::rate(out, "\"maker\":", maker);
    render::rate(out, ",\"taker\":", taker);
    render::put(
        out,
        ",\"buyer\":\"0.00000000\",\"seller\":\"0.00000000\"},\"canTrade\":true,\"canWithdraw\":true,\"canDeposit\":true,\"brokered\":false,\
         \"requireSelfTradePrevention\":false,\"preventSor\":false",
    );
    render::int(out, ",\"updateTime\":", time_ms);
    render::put(out, ",\"accountType\":\"SPOT\",\"balances\":");
    write_balances(out, catalog, balances, omit_zero);
    render::int(out, ",\"permissions\":[\"SPOT\"],\"uid\":", account.0);
    out.push(b'}');
}

/// Writes `[{"asset","free","locked"},…]`.
pub(crate) fn write_balances(
    out: &mut Vec<u8>,
    catalog: &Catalog,
    balances: &[(AssetId, Balance)],
    omit_zero: bool,
) {
    out.push(b'[');
    let mut first = true;
    for (asset, balance) in balances {
        if omit_zero && *balance == Balance::default() {
            continue;
        }
        let begin = if std::mem::take(&mut first) { "{\"asset\":" } else { ",{\"asset\":" };
        render::plain(out, begin, catalog.asset(*asset));
        render::units(out, ",\"free\":", balance.free.0);
        render::units(out, ",\"locked\":", balance.locked.0);
        out.push(b'}');
    }
    out.push(b']');
}
