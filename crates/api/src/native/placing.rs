//! The operator's door for orders: how `stop-trigger` in a process of its own places those of fired alerts.

use std::sync::{Arc, PoisonError};

use hoga_core::codec::decode_command;
use hoga_core::command::{Body, Command};
use hoga_core::ids::AccountId;
use hoga_core::order::NewOrder;
use hoga_store::{Answer, CommandPort, Unanswered};
use serde_json::json;

use super::blocking;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::orders;
use crate::port::EnginePort;

/// `POST /api/v1/admin/orders`: places an order of any account. `command` is the order in the core's encoding, as hexadecimal digits;
/// without it `account` and the parameters of `POST /api/v3/order` say what it is. An order with the same `newClientOrderId` that the
/// account has or had in the market is the answer to a repeated request, so a caller whose answer was lost asks again.
///
/// The answer has `status` `PLACED` with `orderId` and `repeated`, or `REFUSED` with the engine's `reason`. 503 (-1007): whether it was
/// placed is not known now; ask again.
pub(super) async fn order(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let order = match call.params.optional("command")? {
        Some(text) => decoded(text).ok_or_else(|| ApiError::not_valid("command"))?,
        None => {
            call.params.mandatory("account")?;
            let account = call.params.integer("account")?.and_then(|account| u32::try_from(account).ok());
            let account = AccountId(account.ok_or_else(|| ApiError::not_valid("account"))?);
            // Without a name a repeated request could not be known.
            call.params.mandatory("newClientOrderId")?;
            orders::place(&call.params, &app.catalog(), account, app.default_stp())?.order
        }
    };
    call.params.all_read()?;
    if order.client_id.is_none() {
        return Err(ApiError::mandatory("newClientOrderId"));
    }
    let permit = app.reading.try_begin()?;
    let port = EnginePort::new(app.engine().clone(), app.stores());
    let placing = Arc::clone(&app.placing);
    let answer = blocking(move || {
        let _permit = permit;
        let _one = placing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = port.find(order.account, order.market, &order.client_id)?;
        match known {
            Some(id) => Ok((Answer::Placed(id), true)),
            None => port.place(&order).map(|answer| (answer, false)),
        }
    });
    match answer.await? {
        Ok((Answer::Placed(id), repeated)) => {
            Ok(super::json(&json!({ "status": "PLACED", "orderId": id.0, "repeated": repeated })))
        }
        Ok((Answer::Refused(reason), _)) => {
            Ok(super::json(&json!({ "status": "REFUSED", "reason": reason.as_str() })))
        }
        Err(Unanswered(reason)) => Err(ApiError::new(-1007, reason).with_status(503)),
    }
}

/// An order from the hexadecimal digits of its command.
fn decoded(text: &str) -> Option<NewOrder> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
    match decode_command(&bytes) {
        Ok(Command { body: Body::Place(order), .. }) if rest.is_empty() => Some(order),
        _ => None,
    }
}
