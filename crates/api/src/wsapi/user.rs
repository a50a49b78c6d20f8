//! The user data stream: private events of an account on a connection.

use std::sync::Arc;

use hoga_core::event::{Event, EventRecord};
use hoga_core::ids::{AccountId, Timestamp};
use hoga_store::Notification;
use serde_json::json;

use super::pending::Shared;
use crate::error::ApiError;
use crate::hub::{AccountSink, AccountSubscription};
use crate::native::alerts;
use crate::render::{self, int, put};
use crate::ws::{CloseCode, Frame, Outbound};

/// Subscriptions of one connection at a time (Binance).
const MAX_ACTIVE: usize = 1_000;
/// Subscriptions of one connection in its life (Binance).
const MAX_EVER: u64 = 65_535;

struct Active {
    number: u64,
    account: AccountId,
    by_session: bool,
    _subscription: AccountSubscription,
}

/// The subscriptions of one connection; dropping them ends them.
#[derive(Default)]
pub(super) struct Subscriptions {
    ever: u64,
    active: Vec<Active>,
}

impl Subscriptions {
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// The number of the next subscription; an account can be subscribed to once.
    pub fn next(&mut self, account: AccountId) -> Result<u64, ApiError> {
        if self.active.iter().any(|a| a.account == account) {
            return Err(ApiError::new(-2035, "User Data Stream subscription already active."));
        }
        if self.ever >= MAX_EVER || self.active.len() >= MAX_ACTIVE {
            return Err(ApiError::new(-2042, "Maximum subscription ID reached for this connection."));
        }
        self.ever += 1;
        Ok(self.ever - 1)
    }

    /// Begins a subscription. `key` or `expires` say until when it is good.
    pub fn begin(
        &mut self,
        shared: &Arc<Shared>,
        number: u64,
        account: AccountId,
        key: Option<String>,
        expires: Option<u64>,
        by_session: bool,
    ) {
        let sink = UserSink { shared: Arc::clone(shared), number, key, expires };
        let subscription = shared.peer.app.hub().subscribe_account(account, Arc::new(sink));
        self.active.push(Active { number, account, by_session, _subscription: subscription });
    }

    /// Ends one or (`None`) all; gives their numbers.
    pub fn end(&mut self, wanted: Option<u64>) -> Result<Vec<u64>, ApiError> {
        let ended = self.take(|a| wanted.is_none_or(|number| a.number == number));
        if ended.is_empty() && wanted.is_some() {
            return Err(ApiError::new(-2036, "User Data Stream subscription not active."));
        }
        Ok(ended)
    }

    /// Ends those that came with the connection's login.
    pub fn end_session(&mut self) -> Vec<u64> {
        self.take(|a| a.by_session)
    }

    fn take(&mut self, which: impl Fn(&Active) -> bool) -> Vec<u64> {
        let ended = self.active.iter().filter(|a| which(a)).map(|a| a.number).collect();
        self.active.retain(|a| !which(a));
        ended
    }

    /// Writes `[{"subscriptionId":0},…]`.
    pub fn write_list(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (i, active) in self.active.iter().enumerate() {
            int(out, if i == 0 { "{\"subscriptionId\":" } else { ",{\"subscriptionId\":" }, active.number);
            out.push(b'}');
        }
        out.push(b']');
    }
}

/// Tells that a subscription has ended.
pub(super) fn terminated(out: &Outbound, number: u64, now: Timestamp) {
    let mut text = Vec::new();
    int(&mut text, "{\"subscriptionId\":", number);
    int(&mut text, ",\"event\":{\"e\":\"eventStreamTerminated\",\"E\":", now.millis());
    put(&mut text, "}}");
    out.send_text(&text);
}

/// Writes an account's events to a connection. Called on the hub's thread.
struct UserSink {
    shared: Arc<Shared>,
    number: u64,
    key: Option<String>,
    expires: Option<u64>,
}

impl UserSink {
    /// Whether the key or login that opened the subscription is still good: a revoked key must not go on listening.
    fn good(&self, now: Timestamp) -> bool {
        let seconds = u64::try_from(now.millis() / 1000).unwrap_or(0);
        self.expires.is_none_or(|expires| seconds < expires)
            && self.key.as_ref().is_none_or(|key| self.shared.peer.app.identity().key(key).is_some())
    }

    fn send(&self, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let mut text = Vec::with_capacity(768);
        int(&mut text, "{\"subscriptionId\":", self.number);
        put(&mut text, ",\"event\":");
        if write(&mut text) {
            text.push(b'}');
            self.shared.out.send(Frame::text(&text));
        }
    }
}

impl AccountSink for UserSink {
    fn event(&self, record: &EventRecord) {
        if !self.good(record.time) {
            self.shared.out.close(CloseCode::POLICY, "the key or login of a subscription is no longer good");
            return;
        }
        let catalog = self.shared.peer.app.catalog();
        match &record.event {
            Event::Order(event) => {
                self.send(|out| {
                    render::execution_report(out, &catalog, record, event);
                    true
                });
                let Some(instrument) = catalog.instrument(event.order.request.market) else { return };
                let balances = [
                    (catalog.asset(instrument.base), event.base),
                    (catalog.asset(instrument.quote), event.quote),
                ];
                self.send(|out| {
                    render::account_position(out, record.time, &balances);
                    true
                });
            }
            Event::Transfer(transfer) if !transfer.repeated => {
                self.send(|out| render::balance_update(out, &catalog, record.time, transfer));
                self.send(|out| {
                    let balances = [(catalog.asset(transfer.asset), transfer.balance)];
                    render::account_position(out, record.time, &balances);
                    true
                });
            }
            _ => {}
        }
    }

    fn notice(&self, notification: &Notification) {
        let app = &self.shared.peer.app;
        let now = app.now();
        if !self.good(now) {
            self.shared.out.close(CloseCode::POLICY, "the key or login of a subscription is no longer good");
            return;
        }
        // Nested: clients take an unknown event with an `id` of its own for the answer to one of their requests (ccxt does).
        let notification = alerts::notification(&app.catalog(), notification);
        let value = json!({ "e": "notification", "E": now.millis(), "notification": notification });
        self.send(|out| {
            put(out, &value.to_string());
            true
        });
    }
}
