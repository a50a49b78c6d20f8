//! Placing and cancelling.

use hoga_core::command::Body;
use hoga_core::ids::{AccountId, MarketId, Timestamp};

use crate::app::App;
use crate::dispatch::{Call, Principal};
use crate::error::ApiError;
use crate::http::Reply;
use crate::orders::{self, Cancel, CancelNames, Place};
use crate::render;
use crate::reply::{Outcome, ask, execute};

/// `POST /api/v3/order`.
pub(super) async fn new_order(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let app = &call.peer.app;
    let catalog = app.catalog();
    let place = orders::place(&call.params, &catalog, principal.account, app.default_stp())?;
    call.params.all_read()?;
    call.count_order(principal.account)?;
    let body = placed(app, &place, principal.deadline).await?;
    Ok(Reply::json(body))
}

async fn placed(app: &App, place: &Place, deadline: Timestamp) -> Result<Vec<u8>, ApiError> {
    let outcome = execute(app.engine(), Body::Place(place.order), deadline).await?;
    outcome.result.map_err(|reason| ApiError::from_reject(reason, false))?;
    let mut body = Vec::with_capacity(512);
    render::placed(&mut body, &app.catalog(), &outcome.events, place.resp);
    Ok(body)
}

/// `POST /api/v3/order/test`: everything that can be said without the engine.
pub(super) fn test_order(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let app = &call.peer.app;
    let catalog = app.catalog();
    let place = orders::place(&call.params, &catalog, principal.account, app.default_stp())?;
    let with_rates = call.params.boolean("computeCommissionRates")?.unwrap_or(false);
    call.params.all_read()?;
    if !with_rates {
        return Ok(Reply::json(b"{}".to_vec()));
    }
    call.charge(19)?;
    let instrument = catalog.instrument(place.order.market).ok_or_else(ApiError::bad_symbol)?;
    let mut out = Vec::new();
    for (key, maker, taker) in [
        ("{\"standardCommissionForOrder\":", instrument.maker_fee_ppm, instrument.taker_fee_ppm),
        (",\"specialCommissionForOrder\":", 0, 0),
        (",\"taxCommissionForOrder\":", 0, 0),
    ] {
        render::put(&mut out, key);
        render::rate(&mut out, "{\"maker\":", maker);
        render::rate(&mut out, ",\"taker\":", taker);
        out.push(b'}');
    }
    render::put(
        &mut out,
        ",\"discount\":{\"enabledForAccount\":false,\"enabledForSymbol\":false,\"discountAsset\":\"\",\"discount\":\"0.00000000\"}}",
    );
    Ok(Reply::json(out))
}

/// `DELETE /api/v3/order`.
pub(super) async fn cancel_order(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let app = &call.peer.app;
    let catalog = app.catalog();
    let cancel = orders::cancel(&call.params, &catalog, CancelNames::CANCEL)?;
    call.params.all_read()?;
    let outcome = cancelled(app, &principal, &cancel).await?;
    let mut body = Vec::with_capacity(512);
    render::all_canceled(&mut body, &catalog, &outcome.events);
    Ok(Reply::json(body))
}

/// Checks what a cancel demands, then cancels. Between the two the order may change; then the engine's answer is the one that counts.
pub(crate) async fn cancelled(
    app: &App,
    principal: &Principal,
    cancel: &Cancel,
) -> Result<Outcome, ApiError> {
    check_demands(app, principal.account, cancel).await?;
    let body = Body::Cancel {
        account: principal.account,
        market: cancel.market,
        order: cancel.order,
        cancel_id: cancel.cancel_id,
    };
    let outcome = execute(app.engine(), body, principal.deadline).await?;
    match outcome.result {
        Ok(()) => Ok(outcome),
        Err(reason) => Err(ApiError::from_reject(reason, true)),
    }
}

/// Checks `cancelRestrictions`, and that both ids name the same order.
pub(crate) async fn check_demands(app: &App, account: AccountId, cancel: &Cancel) -> Result<(), ApiError> {
    if cancel.must_be.is_none() && cancel.only.is_none() {
        return Ok(());
    }
    let (market, reference) = (cancel.market, cancel.order);
    let order = ask(app.engine(), move |e| e.order(account, market, &reference)).await?;
    let order = order.ok_or_else(ApiError::unknown_order)?;
    if cancel.must_be.is_some_and(|id| id != order.request.client_id) {
        return Err(ApiError::unknown_order());
    }
    if cancel.only.is_some_and(|status| status != order.status) {
        return Err(ApiError::new(-2011, "Order was not canceled due to cancel restrictions."));
    }
    Ok(())
}

/// `DELETE /api/v3/openOrders`.
pub(super) async fn cancel_all(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let catalog = call.peer.app.catalog();
    let market = orders::market(&call.params, &catalog)?.id;
    call.params.all_read()?;
    Ok(Reply::json(all_cancelled(&call.peer.app, &principal, market).await?))
}

/// Cancels all open orders of a market; -2011 when there are none, as Binance says.
pub(crate) async fn all_cancelled(
    app: &App,
    principal: &Principal,
    market: MarketId,
) -> Result<Vec<u8>, ApiError> {
    let body = Body::CancelAll { account: principal.account, market: Some(market) };
    let outcome = execute(app.engine(), body, principal.deadline).await?;
    outcome.result.map_err(|reason| ApiError::from_reject(reason, true))?;
    let mut out = Vec::with_capacity(1024);
    out.push(b'[');
    if render::all_canceled(&mut out, &app.catalog(), &outcome.events) == 0 {
        return Err(ApiError::unknown_order());
    }
    out.push(b']');
    Ok(out)
}

/// `POST /api/v3/order/cancelReplace`.
pub(super) async fn cancel_replace(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let app = &call.peer.app;
    let replace = Replace::read(&call.params, app, &principal)?;
    call.params.all_read()?;
    call.count_order(principal.account)?;
    let (status, body) = replace.run(app, &principal).await?;
    Ok(Reply::json(body).with_status(status))
}

/// A cancel and the order that takes its place: two commands, since the core has no single one for it.
pub(crate) struct Replace {
    cancel: Cancel,
    place: Place,
    stop_on_failure: bool,
}

impl Replace {
    /// Reads the parameters.
    pub fn read(
        params: &crate::params::Params<'_>,
        app: &App,
        principal: &Principal,
    ) -> Result<Replace, ApiError> {
        let catalog = app.catalog();
        let place = orders::place(params, &catalog, principal.account, app.default_stp())?;
        let stop_on_failure = match params.mandatory("cancelReplaceMode")? {
            "STOP_ON_FAILURE" => true,
            "ALLOW_FAILURE" => false,
            _ => return Err(ApiError::not_valid("cancelReplaceMode")),
        };
        params.optional("orderRateLimitExceededMode")?;
        let cancel = orders::cancel(params, &catalog, CancelNames::CANCEL_REPLACE)?;
        Ok(Replace { cancel, place, stop_on_failure })
    }

    /// Does both, and gives the status and the answer; a failure of either is an error with `data`.
    pub async fn run(&self, app: &App, principal: &Principal) -> Result<(u16, Vec<u8>), ApiError> {
        let catalog = app.catalog();
        let cancelled = cancelled(app, principal, &self.cancel).await.map(|outcome| {
            let mut out = Vec::with_capacity(512);
            render::all_canceled(&mut out, &catalog, &outcome.events);
            out
        });
        let placed = match (&cancelled, self.stop_on_failure) {
            (Err(_), true) => None,
            _ => Some(placed(app, &self.place, principal.deadline).await),
        };
        let word = |ok: bool| if ok { "SUCCESS" } else { "FAILURE" };
        let mut out = Vec::with_capacity(1024);
        render::plain(&mut out, "{\"cancelResult\":", word(cancelled.is_ok()));
        render::plain(
            &mut out,
            ",\"newOrderResult\":",
            placed.as_ref().map_or("NOT_ATTEMPTED", |placed| word(placed.is_ok())),
        );
        let part = |out: &mut Vec<u8>, key: &str, part: Option<&Result<Vec<u8>, ApiError>>| {
            render::put(out, key);
            match part {
                Some(Ok(body)) => out.extend_from_slice(body),
                Some(Err(error)) => error.write_json(out),
                None => render::put(out, "null"),
            }
        };
        part(&mut out, ",\"cancelResponse\":", Some(&cancelled));
        part(&mut out, ",\"newOrderResponse\":", placed.as_ref());
        out.push(b'}');
        let (code, msg, status) = match (cancelled.is_ok(), placed.is_some_and(|placed| placed.is_ok())) {
            (true, true) => return Ok((200, out)),
            (false, false) => (-2022, "Order cancel-replace failed.", 400),
            _ => (-2021, "Order cancel-replace partially failed.", 409),
        };
        let mut error = ApiError::new(code, msg).with_status(status);
        error.data = Some(String::from_utf8_lossy(&out).into_owned());
        Err(error)
    }
}
