//! Alerts and notifications.

use std::borrow::Cow;
use std::sync::Arc;

use hoga_core::alert::Condition;
use hoga_core::event::Event;
use hoga_core::ids::{AccountId, ClientId};
use hoga_core::money::Price;
use hoga_core::order::NewOrder;
use hoga_store::{
    Alert, AlertState, Cause, Created, Group, Kind, MAX_ARMED, MAX_ROWS, NewAlert, Notification,
    NotificationQuery, StoreError, Stores,
};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::catalog::Catalog;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::orders;
use crate::params::Params;
use crate::reply::ask;

/// Asks the notifications' or the alerts' database, off the network threads and bounded like all reads.
async fn stored<R: Send + 'static>(
    app: &Arc<App>,
    question: impl FnOnce(&Stores) -> Result<R, StoreError> + Send + 'static,
) -> Result<R, ApiError> {
    let permit = app.reading.try_begin()?;
    let stores = Arc::clone(app.stores());
    let answer = super::blocking(move || {
        let _permit = permit;
        question(&stores)
    });
    answer.await?.map_err(|error| ApiError::internal(&error))
}

/// `GET /api/v1/notifications`: the latest ones first, or with `after` the next ones behind that number, ascending.
pub(super) async fn notifications(call: &Call<'_>) -> Result<Reply, ApiError> {
    let account = call.principal()?.account;
    let kind = match call.params.optional("kind")? {
        None => None,
        Some(text) => Some(Kind::parse(text).ok_or_else(|| ApiError::not_valid("kind"))?),
    };
    let after = call.params.integer("after")?;
    let limit = call.params.limit(100, MAX_ROWS)?;
    call.params.all_read()?;
    let app = &call.peer.app;
    // What was acknowledged before this call is in: the engine's replica publishes what the group reads.
    ask(app.engine(), |_| ()).await?;
    let wait = app.config().read_wait();
    let query = NotificationQuery { account, kind, after, limit };
    let list = stored(app, move |stores| {
        stores.wait_current(Group::Notifications, wait);
        stores.notifications().list(&query)
    })
    .await?;
    let catalog = app.catalog();
    Ok(super::json(&list.iter().map(|n| notification(&catalog, n)).collect()))
}

/// A notification as clients read it: the fields of its kind beside `id`, `kind` and `time`.
pub(crate) fn notification(catalog: &Catalog, n: &Notification) -> Value {
    let mut value = json!({ "id": n.id, "kind": n.kind.as_str(), "time": n.time.millis() });
    let fields = match &n.cause {
        Cause::Event(record) => event(catalog, &record.event),
        Cause::Alert(fired) => json!({
            "alertId": fired.alert,
            "symbol": catalog.symbol(fired.market),
            "condition": fired.condition.as_str(),
            "level": fired.level.to_string(),
            "price": fired.price.to_string(),
            "tradeId": fired.trade.0,
            "withOrder": fired.has_order,
        }),
    };
    if let (Value::Object(value), Value::Object(fields)) = (&mut value, fields) {
        value.extend(fields);
    }
    value
}

fn event(catalog: &Catalog, event: &Event) -> Value {
    match event {
        Event::Order(event) => {
            let (order, request) = (&event.order, &event.order.request);
            let mut value = json!({
                "symbol": catalog.symbol(request.market),
                "orderId": order.id.0,
                "clientOrderId": request.client_id.as_str(),
                "side": request.side.as_str(),
                "type": request.order_type.as_str(),
                "status": order.status.as_str(),
                "origQty": request.qty.to_string(),
                "executedQty": order.filled.to_string(),
            });
            if let Some(fill) = &event.fill {
                value["price"] = json!(fill.price.to_string());
                value["qty"] = json!(fill.qty.to_string());
                value["quoteQty"] = json!(fill.quote.to_string());
                value["commission"] = json!(fill.fee.to_string());
                value["commissionAsset"] = json!(catalog.asset(fill.fee_asset));
                value["tradeId"] = json!(fill.trade.0);
                value["isMaker"] = json!(fill.maker);
            }
            value
        }
        Event::Transfer(t) => json!({
            "step": t.kind.as_str(),
            "asset": catalog.asset(t.asset),
            "amount": t.amount.to_string(),
            "reference": t.reference.as_str(),
            "withdrawal": t.withdrawal.0,
        }),
        Event::Rejected(r) => json!({
            "symbol": r.market.map(|market| catalog.symbol(market)),
            "clientOrderId": r.client_id.as_str(),
            "reason": r.reason.as_str(),
        }),
        // Nobody is told of the others.
        _ => Value::Object(Map::new()),
    }
}

/// `POST /api/v1/alerts`.
pub(super) async fn create(call: &Call<'_>) -> Result<Reply, ApiError> {
    let account = call.principal()?.account;
    let app = &call.peer.app;
    let catalog = app.catalog();
    let instrument = orders::market(&call.params, &catalog)?;
    let condition = Condition::parse(call.params.mandatory("condition")?)
        .ok_or_else(|| ApiError::not_valid("condition"))?;
    let level = Price(call.params.mandatory_decimal("price")?);
    if level.0 <= 0 {
        return Err(ApiError::not_valid("price"));
    }
    let client_id = call.params.client_id("clientId")?.unwrap_or(ClientId::NONE);
    let order = match call.params.optional("order")? {
        None => None,
        Some(text) => Some(conditional_order(text, app, &catalog, account)?),
    };
    call.params.all_read()?;
    let new = NewAlert { account, client_id, market: instrument.id, condition, level, order };
    let now = app.now();
    match stored(app, move |stores| stores.alerts().create(&new, now)).await? {
        Created::New(alert) => Ok(super::json(&shown(&catalog, &alert)).with_status(201)),
        Created::Known(alert) if same(&alert.request, &new) => Ok(super::json(&shown(&catalog, &alert))),
        Created::Known(_) => Err(ApiError::not_valid("clientId")),
        Created::TooMany => {
            let text = format!("Too many armed alerts; the limit is {MAX_ARMED}. Take one back first.");
            Err(ApiError::new(-1130, text))
        }
    }
}

/// Whether a repeated request asks for the same. The gateway may have made up the order's own client id, which is replaced anyway.
fn same(known: &NewAlert, asked: &NewAlert) -> bool {
    let plain = |alert: &NewAlert| NewAlert {
        order: alert.order.map(|order| NewOrder { client_id: ClientId::NONE, ..order }),
        ..*alert
    };
    plain(known) == plain(asked)
}

/// Reads an order by the rules of `POST /api/v3/order`, from a JSON object.
fn conditional_order(
    text: &str,
    app: &App,
    catalog: &Catalog,
    account: AccountId,
) -> Result<NewOrder, ApiError> {
    let fields: Map<String, Value> = serde_json::from_str(text).map_err(|_| ApiError::not_valid("order"))?;
    let mut params = Params::new();
    for (name, value) in &fields {
        let value = match value {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            Value::Number(number) => Cow::Owned(number.to_string()),
            Value::Null => continue,
            _ => return Err(ApiError::not_valid("order")),
        };
        params.add(Cow::Borrowed(name), value)?;
    }
    // Its client id derives from the alert and the trade that fires it.
    params.refuse("newClientOrderId")?;
    let place = orders::place(&params, catalog, account, app.default_stp())?;
    params.all_read()?;
    Ok(place.order)
}

/// `GET /api/v1/alerts`: latest first.
pub(super) async fn list(call: &Call<'_>) -> Result<Reply, ApiError> {
    let account = call.principal()?.account;
    let state = match call.params.optional("status")? {
        None => None,
        Some(text) => Some(AlertState::parse(text).ok_or_else(|| ApiError::not_valid("status"))?),
    };
    let limit = call.params.limit(100, MAX_ROWS)?;
    call.params.all_read()?;
    let app = &call.peer.app;
    let list = stored(app, move |stores| stores.alerts().list(account, state, limit)).await?;
    let catalog = app.catalog();
    Ok(super::json(&list.iter().map(|alert| shown(&catalog, alert)).collect()))
}

/// `DELETE /api/v1/alerts/{id}`: an armed alert never fires after the answer; one that has fired stays as it is, and the answer says so.
pub(super) async fn cancel(call: &Call<'_>) -> Result<Reply, ApiError> {
    let account = call.principal()?.account;
    call.params.all_read()?;
    let id: u64 = call.id.parse().map_err(|_| ApiError::illegal("id", "^[0-9]{1,20}$"))?;
    let app = &call.peer.app;
    let now = app.now();
    match stored(app, move |stores| stores.alerts().cancel(account, id, now)).await? {
        Some(alert) if alert.state == AlertState::Canceled => Ok(super::json(&shown(&app.catalog(), &alert))),
        Some(alert) => {
            let text = format!("The alert is not armed any more: {}.", alert.state.as_str());
            Err(ApiError::new(-2011, text).with_status(409))
        }
        None => Err(ApiError::new(-2013, "Alert does not exist.").with_status(404)),
    }
}

/// An alert as clients read it.
fn shown(catalog: &Catalog, alert: &Alert) -> Value {
    let request = &alert.request;
    let order = request.order.map(|order| {
        let mut value = json!({
            "symbol": catalog.symbol(order.market),
            "side": order.side.as_str(),
            "type": order.order_type.as_str(),
            "timeInForce": order.tif.as_str(),
            "quantity": order.qty.to_string(),
            "price": order.price.to_string(),
            "clientOrderId": alert.order_client_id.map(|id| id.as_str().to_owned()),
            "orderId": alert.order_id.map(|id| id.0),
            "refusal": alert.refusal,
        });
        if order.quote_qty.0 != 0 {
            value["quoteOrderQty"] = json!(order.quote_qty.to_string());
        }
        if order.order_type.is_conditional() {
            value["stopPrice"] = json!(order.stop_price.to_string());
        }
        value
    });
    let fired = alert.fired.map(|fired| {
        json!({
            "price": fired.price.to_string(),
            "tradeId": fired.trade.0,
            "time": fired.time.millis(),
        })
    });
    json!({
        "id": alert.id,
        "clientId": request.client_id.as_str(),
        "symbol": catalog.symbol(request.market),
        "condition": request.condition.as_str(),
        "price": request.level.to_string(),
        "status": alert.state.as_str(),
        "created": alert.created.millis(),
        "changed": alert.changed.millis(),
        "fired": fired,
        "order": order,
    })
}
