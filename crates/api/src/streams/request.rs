//! Requests on a stream connection: `SUBSCRIBE`, `UNSUBSCRIBE`, `LIST_SUBSCRIPTIONS`, `SET_PROPERTY`, `GET_PROPERTY` (Binance, "Live
//! Subscribing/Unsubscribing to streams").

use serde::Deserialize;
use serde_json::Value;

use crate::json::{write_int, write_string};

/// What is asked for. The variants' spelling is part of an error text, so they are derived, not matched by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Method {
    Subscribe,
    Unsubscribe,
    ListSubscriptions,
    SetProperty,
    GetProperty,
}

#[derive(Debug, Deserialize)]
struct Wire {
    method: Method,
    params: Option<Vec<Value>>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
}

/// Tells `null` (a valid id) from a missing member.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// An id of the client, answered with its JSON type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Null,
    Number(i64),
    Text(String),
}

impl Id {
    /// A 64-bit signed integer, a text of at most 36 characters, or null.
    fn of(value: &Value) -> Option<Id> {
        match value {
            Value::Null => Some(Id::Null),
            Value::Number(number) => number.as_i64().map(Id::Number),
            // Documented as alphanumeric; UUIDs with hyphens are sent by real clients.
            Value::String(text) if text.len() <= 36 => Some(Id::Text(text.clone())),
            _ => None,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Id::Null => out.extend_from_slice(b"null"),
            Id::Number(number) => write_int(out, *number),
            Id::Text(text) => write_string(out, text),
        }
    }
}

/// A refused request: code and text as documented under "Error Messages", where `id` is known it is sent along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u8,
    pub(super) message: String,
    pub(super) id: Option<Id>,
}

impl Refusal {
    pub(super) fn new(code: u8, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into(), id: None }
    }

    /// `{"error":{"code":…,"msg":…},"id":…}`, the form in which Binance's stream server sends them.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(&b"{\"error\":{\"code\":"[..]);
        write_int(&mut out, self.code);
        out.extend_from_slice(b",\"msg\":");
        write_string(&mut out, &self.message);
        out.push(b'}');
        if let Some(id) = &self.id {
            out.extend_from_slice(b",\"id\":");
            id.write(&mut out);
        }
        out.push(b'}');
        out
    }
}

/// A request whose form is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) params: Vec<Value>,
    pub(super) id: Id,
}

impl Request {
    /// Reads a message.
    pub(super) fn parse(text: &str) -> Result<Request, Refusal> {
        let wire: Wire = serde_json::from_str(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Refusal::new(2, format!("Invalid request: {error}")),
            _ => Refusal::new(3, format!("Invalid JSON: {error}")),
        })?;
        let id = wire
            .id
            .as_ref()
            .and_then(Id::of)
            .ok_or_else(|| Refusal::new(2, "Invalid request: request ID must be an unsigned integer"))?;
        Ok(Request { method: wire.method, params: wire.params.unwrap_or_default(), id })
    }

    /// The stream names of `SUBSCRIBE` and `UNSUBSCRIBE`.
    pub(super) fn names(&self) -> Result<Vec<&str>, Refusal> {
        self.params
            .iter()
            .map(|param| param.as_str().ok_or_else(|| Refusal::new(2, "Invalid request: invalid stream")))
            .collect()
    }

    /// The one property there is; with its value for `SET_PROPERTY`.
    pub(super) fn property(&self) -> Result<Option<bool>, Refusal> {
        let expected = if self.method == Method::SetProperty { 2 } else { 1 };
        if self.params.len() > expected {
            return Err(Refusal::new(2, "Invalid request: too many parameters"));
        }
        let name = self
            .params
            .first()
            .and_then(Value::as_str)
            .ok_or_else(|| Refusal::new(2, "Invalid request: property name must be a string"))?;
        if name != "combined" {
            return Err(Refusal::new(0, "Unknown property"));
        }
        if expected == 1 {
            return Ok(None);
        }
        match self.params.get(1) {
            Some(Value::Bool(value)) => Ok(Some(*value)),
            _ => Err(Refusal::new(1, "Invalid value type: expected Boolean")),
        }
    }
}

/// `{"result":…,"id":…}` with the result as JSON.
pub(super) fn answer(result: &[u8], id: &Id) -> Vec<u8> {
    let mut out = Vec::from(&b"{\"result\":"[..]);
    out.extend_from_slice(result);
    out.extend_from_slice(b",\"id\":");
    id.write(&mut out);
    out.push(b'}');
    out
}
