//! Sends the orders of fired alerts to the engine, each placed at most once.
//!
//! An order's client id derives from the alert and the trade that fired it. Before an order is sent this is noted; after a crash, or an
//! answer that did not come, it is first asked whether an order with that client id exists or existed, and only else sent again.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hoga_core::event::Reject;
use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId};
use hoga_core::order::NewOrder;

use super::alerts::{Alert, AlertState, Alerts};
use crate::Fired;
use crate::error::StoreError;

/// Orders that are looked at in one round.
const ROUND: usize = 256;
/// Pauses between rounds while the engine or the database is away.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Without a ring, a round so often: what a member that is gone has left is seen too.
const IDLE: Duration = Duration::from_secs(1);

/// What the engine made of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It took it.
    Placed(OrderId),
    /// It refused it: nothing was placed.
    Refused(Reject),
}

/// The engine cannot be asked now, or its answer did not come; it is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered(pub String);

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The way to the engine.
pub trait CommandPort: Send + Sync {
    /// Places an order and waits for its durable outcome.
    ///
    /// # Errors
    /// [`Unanswered`]: whether it was placed is not known. It must not be under way any more when [`CommandPort::find`] is asked next.
    fn place(&self, order: &NewOrder) -> Result<Answer, Unanswered>;

    /// The order of an account in a market that has, or had, this client id, whatever became of it.
    ///
    /// # Errors
    /// [`Unanswered`] when that is not known: orders of the past may not have reached where they are looked up.
    fn find(
        &self,
        account: AccountId,
        market: MarketId,
        client_id: &ClientId,
    ) -> Result<Option<OrderId>, Unanswered>;
}

/// What the sender and the group share: the partitions whose alerts are ours, and the bell.
#[derive(Default)]
pub(crate) struct Sending {
    state: Mutex<State>,
    ring: Condvar,
}

#[derive(Default)]
struct State {
    rung: bool,
    stop: bool,
    parts: BTreeSet<u32>,
}

impl Sending {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There may be orders to send.
    pub(crate) fn ring(&self) {
        self.state().rung = true;
        self.ring.notify_all();
    }

    /// The partitions that this member of the group owns now.
    pub(crate) fn own(&self, parts: &BTreeSet<u32>) {
        self.state().parts.clone_from(parts);
        self.ring();
    }

    /// Before the thread is started.
    pub(crate) fn begin(&self) {
        self.state().stop = false;
    }

    pub(crate) fn stop(&self) {
        self.state().stop = true;
        self.ring();
    }

    fn stopping(&self) -> bool {
        self.state().stop
    }

    fn owns(&self, part: u32) -> bool {
        self.state().parts.contains(&part)
    }

    fn wait(&self, time: Duration) {
        let quiet = |state: &mut State| !state.rung && !state.stop;
        let waited = self.ring.wait_timeout_while(self.state(), time, quiet);
        waited.unwrap_or_else(PoisonError::into_inner).0.rung = false;
    }
}

/// The client id of the order that a trade fired: the alert and a hash of the trade's place. At most 36 characters.
pub fn order_client_id(fired: &Fired) -> ClientId {
    let mut hash = 0xCBF2_9CE4_8422_2325u64; // FNV-1a
    let fields = [u64::from(fired.partition), fired.offset, fired.trade.0];
    for byte in fields.iter().flat_map(|field| field.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    let text = format!("trig-{}-{:010x}", fired.alert, hash >> 24);
    ClientId::new(&text).expect("5 + at most 20 + 1 + 10 characters, all allowed")
}

/// The sender's thread.
pub(crate) struct Sender {
    pub(crate) alerts: Alerts,
    pub(crate) port: Arc<dyn CommandPort>,
    pub(crate) sending: Arc<Sending>,
}

impl Sender {
    /// Works until it is told to stop.
    pub(crate) fn run(self) {
        let mut pause = PAUSE.0;
        while !self.sending.stopping() {
            match self.round() {
                Ok(true) => pause = PAUSE.0,
                Ok(false) => {
                    pause = PAUSE.0;
                    self.sending.wait(IDLE);
                }
                Err(error) => {
                    tracing::warn!(error, "orders of alerts wait");
                    self.sending.wait(pause);
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    /// Sends what waits; whether there was anything. An account's orders go in the order of its alerts: behind one that is unanswered
    /// its others wait.
    fn round(&self) -> Result<bool, String> {
        let text = |error: StoreError| error.to_string();
        let parts = self.sending.state().parts.clone();
        let mut held = BTreeSet::new();
        let (mut unanswered, mut any) = (None, false);
        for part in parts {
            for alert in self.alerts.unsent(part, ROUND).map_err(text)? {
                // Another member may have the partition by now, and sends itself.
                if self.sending.stopping() || !self.sending.owns(part) {
                    return Ok(true);
                }
                any = true;
                if held.contains(&alert.request.account) {
                    continue;
                }
                if let Err(error) = self.send(&alert).map_err(text)? {
                    held.insert(alert.request.account);
                    unanswered = Some(error);
                }
            }
        }
        unanswered.map_or(Ok(any), |error| Err(error.to_string()))
    }

    fn send(&self, alert: &Alert) -> Result<Result<(), Unanswered>, StoreError> {
        let (Some(fired), Some(mut order)) = (alert.fired.as_ref(), alert.request.order) else {
            return Ok(Ok(()));
        };
        order.client_id = order_client_id(fired);
        let note = |state, id: Option<OrderId>, refusal: &str| {
            self.alerts.mark_order(alert, state, &order.client_id, id, refusal)
        };
        let find = || self.port.find(order.account, order.market, &order.client_id);
        if alert.state == AlertState::Sent {
            match find() {
                Err(error) => return Ok(Err(error)),
                Ok(Some(id)) => return note(AlertState::Done, Some(id), "").map(Ok),
                Ok(None) => {}
            }
        } else {
            note(AlertState::Sent, None, "")?;
        }
        match self.port.place(&order) {
            Err(error) => Ok(Err(error)),
            Ok(Answer::Placed(id)) => note(AlertState::Done, Some(id), "").map(Ok),
            // Nobody else has this name for an order: it is ours.
            Ok(Answer::Refused(Reject::DuplicateClientId)) => match find() {
                Err(error) => Ok(Err(error)),
                Ok(found) => note(AlertState::Done, found, "").map(Ok),
            },
            Ok(Answer::Refused(reason)) => note(AlertState::Failed, None, reason.as_str()).map(Ok),
        }
    }
}
