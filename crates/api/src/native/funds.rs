//! Paper money, balances, and orders by number.

use hoga_core::command::Body;
use hoga_core::event::{Event, Transfer};
use hoga_core::ids::{AccountId, AssetId, OrderId, Timestamp};
use hoga_core::money::Amount;
use hoga_core::order::OrderRef;
use hoga_store::Group;
use serde_json::json;

use crate::app::App;
use crate::catalog::Catalog;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::names;
use crate::reads::read;
use crate::render;
use crate::reply::{ask, execute};
use crate::rest::query;

/// Submits a command about money and gives its transfer.
pub(super) async fn transfer(app: &App, body: Body, deadline: Timestamp) -> Result<Transfer, ApiError> {
    let outcome = execute(app.engine(), body, deadline).await?;
    outcome.result.map_err(|reason| ApiError::from_reject(reason, false))?;
    let transfer = outcome.events.iter().find_map(|e| match e.event {
        Event::Transfer(transfer) => Some(transfer),
        _ => None,
    });
    transfer.ok_or_else(|| ApiError::internal(&"the engine moved money without saying how"))
}

/// A transfer as JSON.
pub(super) fn shown(catalog: &Catalog, t: &Transfer) -> serde_json::Value {
    json!({
        "kind": t.kind.as_str(),
        "account": t.account.0,
        "asset": catalog.asset(t.asset),
        "amount": t.amount.to_string(),
        "reference": t.reference.as_str(),
        "withdrawal": t.withdrawal.0,
        "free": t.balance.free.to_string(),
        "locked": t.balance.locked.to_string(),
        "repeated": t.repeated,
    })
}

struct Request {
    account: AccountId,
    asset: AssetId,
    amount: Amount,
    reference: hoga_core::ids::ClientId,
    settle: bool,
    deadline: Timestamp,
}

fn request(call: &Call<'_>) -> Result<Request, ApiError> {
    if !call.peer.app.config().open_signup {
        return Err(ApiError::new(-1002, "You are not authorized to execute this request."));
    }
    let principal = call.principal()?;
    let asset = call.params.mandatory("asset")?;
    let asset = call.peer.app.catalog().find_asset(asset).ok_or_else(|| ApiError::not_valid("asset"))?;
    let amount = Amount(call.params.mandatory_decimal("amount")?);
    let reference = call.params.client_id("reference")?.unwrap_or_else(names::client_id);
    let settle = call.params.boolean("settle")?.unwrap_or(true);
    call.params.all_read()?;
    Ok(Request { account: principal.account, asset, amount, reference, settle, deadline: principal.deadline })
}

/// `POST /api/v1/deposits`.
pub(super) async fn deposit(call: &Call<'_>) -> Result<Reply, ApiError> {
    let Request { account, asset, amount, reference, deadline, .. } = request(call)?;
    let app = &call.peer.app;
    let done = transfer(app, Body::Deposit { account, asset, amount, reference }, deadline).await?;
    Ok(super::json(&shown(&app.catalog(), &done)))
}

/// `POST /api/v1/withdrawals`: locks the amount, and for paper money lets it leave at once unless `settle` is false.
pub(super) async fn withdraw(call: &Call<'_>) -> Result<Reply, ApiError> {
    let Request { account, asset, amount, reference, settle, deadline } = request(call)?;
    let app = &call.peer.app;
    let mut done = transfer(app, Body::Withdraw { account, asset, amount, reference }, deadline).await?;
    if settle && !done.repeated {
        done = transfer(app, Body::SettleWithdrawal { id: done.withdrawal }, Timestamp(0)).await?;
    }
    Ok(super::json(&shown(&app.catalog(), &done)))
}

/// `GET /api/v1/balances`.
pub(super) async fn balances(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    call.params.all_read()?;
    let app = &call.peer.app;
    let balances = query::balances(app, principal.account).await?;
    let mut out = Vec::with_capacity(512);
    query::write_balances(&mut out, &app.catalog(), &balances, false);
    Ok(Reply::json(out))
}

/// `GET /api/v1/orders/{id}`.
pub(super) async fn order_by_id(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    call.params.all_read()?;
    let id: u64 = call.id.parse().map_err(|_| ApiError::illegal("id", "^[0-9]{1,20}$"))?;
    let (account, id) = (principal.account, OrderId(id));
    let app = &call.peer.app;
    let open = ask(app.engine(), move |exchange| {
        exchange.instruments().iter().find_map(|i| exchange.order(account, i.id, &OrderRef::Id(id)))
    })
    .await?;
    let order = match open {
        Some(order) => order,
        None => read(app, Group::Orders, move |stores| stores.orders().order_by_id(account, id))
            .await?
            .ok_or_else(ApiError::no_such_order)?,
    };
    let mut out = Vec::with_capacity(512);
    render::order(&mut out, &app.catalog(), &order);
    Ok(Reply::json(out))
}
