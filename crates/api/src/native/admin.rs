//! The operator's endpoints.

use std::collections::BTreeMap;

use hoga_core::command::Body;
use hoga_core::ids::{Timestamp, WithdrawalId};
use hoga_core::instrument::TradingState;
use hoga_core::money::Amount;
use hoga_store::{EngineView, Group, StoreError};
use serde_json::{Value, json};

use super::funds::{shown, transfer};
use super::{blocking, keys, users};
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::names;
use crate::orders;
use crate::reply::{ask, execute};

/// How long an audit waits for the ledger.
const AUDIT_WAIT: std::time::Duration = std::time::Duration::from_secs(60);

/// `POST /api/v1/admin/accounts`: account, deposits and an HMAC key in one.
pub(super) async fn account(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let catalog = app.catalog();
    let deposits: BTreeMap<String, Value> = match call.params.optional("deposits")? {
        None => BTreeMap::new(),
        Some(text) => serde_json::from_str(text).map_err(|_| ApiError::not_valid("deposits"))?,
    };
    call.params.all_read()?;
    let mut amounts = Vec::with_capacity(deposits.len());
    for (asset, amount) in &deposits {
        let amount = match amount {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(ApiError::not_valid("deposits")),
        };
        let asset = catalog.find_asset(asset).ok_or_else(|| ApiError::not_valid("deposits"))?;
        let amount =
            Amount::parse(&amount).ok().filter(|a| a.0 > 0).ok_or_else(|| ApiError::not_valid("deposits"))?;
        amounts.push((asset, amount));
    }
    let account = users::new_account(app).await?;
    for (asset, amount) in amounts {
        let reference = names::client_id();
        transfer(app, Body::Deposit { account, asset, amount, reference }, Timestamp(0)).await?;
    }
    let (key, secret) = keys::add(app, account, None, "hoga key new".into(), call.now).await?;
    Ok(super::json(&json!({ "account": account.0, "key": key, "secret": secret })).with_status(201))
}

/// `POST /api/v1/admin/withdrawals/settle` and `…/release`.
pub(super) async fn end_withdrawal(call: &Call<'_>) -> Result<Reply, ApiError> {
    call.params.mandatory("id")?;
    let id = call.params.integer("id")?.ok_or_else(|| ApiError::mandatory("id"))?;
    call.params.all_read()?;
    let id = WithdrawalId(id);
    let body = match call.route {
        crate::routes::Route::AdminSettle => Body::SettleWithdrawal { id },
        _ => Body::ReleaseWithdrawal { id },
    };
    let app = &call.peer.app;
    let done = transfer(app, body, Timestamp(0)).await?;
    Ok(super::json(&shown(&app.catalog(), &done)))
}

/// `GET /api/v1/admin/audit`: the ledger is added up and compared with the engine at one command, while trading goes on.
pub(super) async fn audit(call: &Call<'_>) -> Result<Reply, ApiError> {
    call.params.all_read()?;
    let app = &call.peer.app;
    let view = ask(app.engine(), EngineView::capture).await?;
    let stores = app.stores().clone();
    let (at, totals) = (view.at, view.totals.clone());
    let report = blocking(move || stores.audit(&view, AUDIT_WAIT))
        .await?
        .map_err(|error| ApiError::new(-1007, error.to_string()).with_status(503))?;
    let catalog = app.catalog();
    let text = |units: i128| {
        let sign = if units < 0 { "-" } else { "" };
        let units = units.unsigned_abs();
        format!("{sign}{}.{:08}", units / 100_000_000, units % 100_000_000)
    };
    let assets: serde_json::Map<String, Value> = totals
        .iter()
        .map(|(asset, t)| {
            let value = json!({
                "free": text(t.free), "locked": text(t.locked),
                "deposited": text(t.deposited), "withdrawn": text(t.withdrawn),
            });
            (catalog.asset(*asset).to_owned(), value)
        })
        .collect();
    let differences: Vec<String> = report.differences.iter().take(1000).map(|d| format!("{d:?}")).collect();
    Ok(super::json(&json!({
        "clean": report.is_clean(),
        "at": at.0,
        "entries": report.entries,
        "balances": report.accounts,
        "assets": assets,
        "differences": differences,
        "text": report.to_string(),
    })))
}

/// `GET /api/v1/admin/tables`: what each group's tables say of the others'.
pub(super) async fn tables(call: &Call<'_>) -> Result<Reply, ApiError> {
    call.params.all_read()?;
    let stores = call.peer.app.stores().clone();
    let report = blocking(move || stores.verify()).await?.map_err(store_fault)?;
    Ok(super::json(&json!({
        "clean": report.clean(),
        "checks": report.checks,
        "differences": report.differences,
    })))
}

/// `POST /api/v1/admin/rebuild`: answers when the new tables are in use.
pub(super) async fn rebuild(call: &Call<'_>) -> Result<Reply, ApiError> {
    let name = call.params.mandatory("group")?.to_owned();
    call.params.all_read()?;
    let group = Group::from_name(&name).ok_or_else(|| ApiError::not_valid("group"))?;
    let stores = call.peer.app.stores().clone();
    let built = blocking(move || stores.rebuild(group)).await?.map_err(store_fault)?;
    let first: Vec<Value> = built
        .first_offsets
        .iter()
        .map(|(topic, partition, offset)| json!({ "topic": topic, "partition": partition, "offset": offset }))
        .collect();
    Ok(super::json(&json!({
        "group": name,
        "messages": built.messages,
        "seconds": built.took.as_secs_f64(),
        "stopped_for_seconds": built.stopped_for.as_secs_f64(),
        "first_offsets": first,
    })))
}

/// A read model's fault, for the operator: with its code and its whole text.
fn store_fault(error: StoreError) -> ApiError {
    ApiError::new(-1000, format!("[{}] {error}", error.code())).with_status(503)
}

/// `GET /api/v1/admin/digest`.
pub(super) async fn digest(call: &Call<'_>) -> Result<Reply, ApiError> {
    call.params.all_read()?;
    let (seq, digest, chain) =
        ask(call.peer.app.engine(), |exchange| (exchange.position(), exchange.digest(), exchange.chain()))
            .await?;
    Ok(super::json(
        &json!({ "seq": seq.0, "digest": format!("{digest:032x}"), "chain": format!("{chain:016x}") }),
    ))
}

/// `POST /api/v1/admin/markets/state`.
pub(super) async fn market_state(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let catalog = app.catalog();
    let instrument = orders::market(&call.params, &catalog)?;
    let state =
        TradingState::parse(call.params.mandatory("state")?).ok_or_else(|| ApiError::not_valid("state"))?;
    call.params.all_read()?;
    let outcome =
        execute(app.engine(), Body::SetState { market: instrument.id, state }, Timestamp(0)).await?;
    outcome.result.map_err(|reason| ApiError::from_reject(reason, false))?;
    Ok(super::json(&json!({ "symbol": instrument.symbol.as_str(), "state": state.as_str() })))
}
