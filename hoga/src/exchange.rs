//! The way of alerts' orders to an exchange in another process.

use std::time::Duration;

use hoga_core::codec::encode_command;
use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::Reject;
use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId, Seq, Timestamp};
use hoga_core::order::NewOrder;
use hoga_lab::admin::Admin;
use hoga_store::{Answer, CommandPort, Unanswered};
use serde_json::{Value, json};

use crate::config::Config;

/// How long an answer may take: longer than the exchange itself waits for what it looks up.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The exchange's operator interface. It looks for an order with the same client id before it places one, so asking again is safe.
pub struct ExchangePort(Admin);

impl ExchangePort {
    /// To the exchange of `[exchange]`.
    pub fn new(config: &Config) -> ExchangePort {
        ExchangePort(Admin::at(&config.exchange.url, &config.exchange.token, TIMEOUT))
    }
}

impl CommandPort for ExchangePort {
    fn place(&self, order: &NewOrder) -> Result<Answer, Unanswered> {
        let command = Command {
            seq: Seq(0),
            time: Timestamp(0),
            rules: RULES_VERSION,
            deadline: Timestamp(0),
            body: Body::Place(*order),
        };
        let mut bytes = Vec::new();
        encode_command(&command, &mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let answer = self.0.post("/api/v1/admin/orders", &json!({ "command": hex }));
        let answer = answer.map_err(|error| Unanswered(error.to_string()))?;
        let read = match answer["status"].as_str() {
            Some("PLACED") => answer["orderId"].as_u64().map(|id| Answer::Placed(OrderId(id))),
            Some("REFUSED") => answer["reason"].as_str().and_then(Reject::parse).map(Answer::Refused),
            _ => None,
        };
        read.ok_or_else(|| {
            Unanswered(format!("the exchange's answer means nothing: {}", Value::to_string(&answer)))
        })
    }

    /// Nothing: the exchange looks for itself when the order is sent again.
    fn find(&self, _: AccountId, _: MarketId, _: &ClientId) -> Result<Option<OrderId>, Unanswered> {
        Ok(None)
    }
}
