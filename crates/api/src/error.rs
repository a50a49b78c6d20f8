//! Errors as Binance documents them: an HTTP status, a code and a text. Clients match on code **and** text, so both are kept to the
//! letter (errors.md of binance-spot-api-docs, 2026-07).

use std::borrow::Cow;

use hoga_core::event::Reject;
use hoga_store::StoreError;

/// An answer that is an error. It becomes `{"code":…,"msg":…}` over REST and `{"id":…,"status":…,"error":{…}}` over the WebSocket API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status, also the `status` of the WebSocket API.
    pub status: u16,
    /// Binance's code; negative.
    pub code: i32,
    /// Binance's text.
    pub msg: Cow<'static, str>,
    /// Seconds after which the client may try again (`Retry-After`), for 429 and for a database that is away.
    pub retry_after: Option<u64>,
    /// A JSON object for the field `data` (cancelReplace).
    pub data: Option<String>,
}

impl ApiError {
    /// An error with its documented code and text; the status follows from the code.
    pub fn new(code: i32, msg: impl Into<Cow<'static, str>>) -> ApiError {
        let status = match code {
            -1000 => 500,
            -1001 | -1008 | -1016 => 503,
            -1007 => 504,
            -1003 | -1015 => 429,
            -1002 | -2014 | -2015 => 401,
            _ => 400,
        };
        ApiError { status, code, msg: msg.into(), retry_after: None, data: None }
    }

    /// The same error under another HTTP status.
    pub fn with_status(mut self, status: u16) -> ApiError {
        self.status = status;
        self
    }

    /// -1000: the fault is ours; details go to the log, not to the client.
    pub fn internal(what: &dyn std::fmt::Display) -> ApiError {
        tracing::error!(error = %what, "request failed inside the server");
        ApiError::new(-1000, "An unknown error occurred while processing the request.")
    }

    /// -1008: a bounded queue is full.
    pub fn busy() -> ApiError {
        ApiError::new(
            -1008,
            "Server is currently overloaded with other requests. Please try again in a few minutes.",
        )
    }

    /// -1001: what would answer is not reachable now, and is again by itself. Orders, cancels and questions about the present do without.
    pub fn unavailable(what: &dyn std::fmt::Display) -> ApiError {
        tracing::debug!(error = %what, "a request needs a database that is away");
        let mut error = ApiError::new(
            -1001,
            "Internal error; unable to process your request. Please try again. (The database is not reachable now; orders are taken.)",
        );
        error.retry_after = Some(1);
        error
    }

    /// What a client reads when a read model or the store of users and keys failed.
    pub fn of_store(error: &StoreError) -> ApiError {
        if error.is_transient() { ApiError::unavailable(error) } else { ApiError::internal(error) }
    }

    /// -1007: no answer in time; what became of the request is unknown.
    pub fn timeout() -> ApiError {
        ApiError::new(
            -1007,
            "Timeout waiting for response from backend server. Send status unknown; execution status unknown.",
        )
    }

    /// -1003: too much request weight in this minute.
    pub fn too_much_weight(limit: u64, retry_after: u64) -> ApiError {
        let mut error = ApiError::new(
            -1003,
            format!(
                "Too much request weight used; current limit is {limit} request weight per 1 MINUTE. Please use WebSocket Streams for live updates to avoid polling the API."
            ),
        );
        error.retry_after = Some(retry_after);
        error
    }

    /// -1015: too many orders in an interval, for example `10 SECOND`.
    pub fn too_many_orders(limit: u64, interval: &str, retry_after: u64) -> ApiError {
        let mut error = ApiError::new(
            -1015,
            format!("Too many new orders; current limit is {limit} orders per {interval}."),
        );
        error.retry_after = Some(retry_after);
        error
    }

    /// -1021: too old, or the deadline passed before matching.
    pub fn outside_window() -> ApiError {
        ApiError::new(-1021, "Timestamp for this request is outside of the recvWindow.")
    }

    /// -1021: from the future.
    pub fn ahead_of_server() -> ApiError {
        ApiError::new(-1021, "Timestamp for this request was 1000ms ahead of the server's time.")
    }

    /// -1022.
    pub fn bad_signature() -> ApiError {
        ApiError::new(-1022, "Signature for this request is not valid.")
    }

    /// -1100 with the legal range.
    pub fn illegal(name: &str, range: &str) -> ApiError {
        ApiError::new(
            -1100,
            format!("Illegal characters found in parameter '{name}'; legal range is '{range}'."),
        )
    }

    /// -1101.
    pub fn duplicate_values() -> ApiError {
        ApiError::new(-1101, "Duplicate values for a parameter detected.")
    }

    /// -1101: more parameters than any endpoint takes.
    pub fn too_many_parameters(expected: usize, received: usize) -> ApiError {
        ApiError::new(-1101, format!("Too many parameters; expected '{expected}' and received '{received}'."))
    }

    /// -1102.
    pub fn mandatory(name: &str) -> ApiError {
        ApiError::new(
            -1102,
            format!("Mandatory parameter '{name}' was not sent, was empty/null, or malformed."),
        )
    }

    /// -1102 for a choice of two.
    pub fn either(first: &str, second: &str) -> ApiError {
        ApiError::new(-1102, format!("Param '{first}' or '{second}' must be sent, but both were empty/null!"))
    }

    /// -1104.
    pub fn unread(read: usize, sent: usize) -> ApiError {
        ApiError::new(
            -1104,
            format!("Not all sent parameters were read; read '{read}' parameter(s) but was sent '{sent}'."),
        )
    }

    /// -1105.
    pub fn empty(name: &str) -> ApiError {
        ApiError::new(-1105, format!("Parameter '{name}' was empty."))
    }

    /// -1106.
    pub fn not_required(name: &str) -> ApiError {
        ApiError::new(-1106, format!("Parameter '{name}' sent when not required."))
    }

    /// -1108.
    pub fn overflowed(name: &str) -> ApiError {
        ApiError::new(-1108, format!("Parameter '{name}' overflowed."))
    }

    /// -1111.
    pub fn too_precise(name: &str) -> ApiError {
        ApiError::new(-1111, format!("Parameter '{name}' has too much precision."))
    }

    /// -1121.
    pub fn bad_symbol() -> ApiError {
        ApiError::new(-1121, "Invalid symbol.")
    }

    /// -1128.
    pub fn bad_combination() -> ApiError {
        ApiError::new(-1128, "Combination of optional parameters invalid.")
    }

    /// -1130.
    pub fn not_valid(name: &str) -> ApiError {
        ApiError::new(-1130, format!("Data sent for parameter '{name}' is not valid."))
    }

    /// -2010 with one of the documented texts.
    pub fn order_rejected(msg: &'static str) -> ApiError {
        ApiError::new(-2010, msg)
    }

    /// -2011.
    pub fn unknown_order() -> ApiError {
        ApiError::new(-2011, "Unknown order sent.")
    }

    /// -2013.
    pub fn no_such_order() -> ApiError {
        ApiError::new(-2013, "Order does not exist.")
    }

    /// -2014.
    pub fn bad_key_format() -> ApiError {
        ApiError::new(-2014, "API-key format invalid.")
    }

    /// -2015.
    pub fn bad_key() -> ApiError {
        ApiError::new(-2015, "Invalid API-key, IP, or permissions for action.")
    }

    /// What a client reads when the core refused its command. `cancel` tells a cancel from a new order, since they use different codes.
    pub fn from_reject(reason: Reject, cancel: bool) -> ApiError {
        let filter = |text: &'static str| ApiError::new(-1013, text);
        match reason {
            Reject::DeadlinePassed => ApiError::outside_window(),
            Reject::UnknownMarket => ApiError::bad_symbol(),
            Reject::UnknownAsset => ApiError::not_valid("asset"),
            Reject::UnknownAccount => ApiError::order_rejected("This action is disabled on this account."),
            Reject::UnknownOrder => ApiError::unknown_order(),
            Reject::UnknownWithdrawal => ApiError::not_valid("withdrawalId"),
            Reject::DuplicateClientId => ApiError::order_rejected("Duplicate order sent."),
            Reject::InsufficientBalance => {
                ApiError::order_rejected("Account has insufficient balance for requested action.")
            }
            Reject::WouldMatch => ApiError::order_rejected("Order would immediately match and take."),
            Reject::StopWouldTrigger => ApiError::order_rejected("Stop price would trigger immediately."),
            Reject::MarketClosed if cancel => ApiError::new(-2011, "Market is closed."),
            Reject::MarketClosed => ApiError::order_rejected("Market is closed."),
            Reject::NoLiquidity => {
                ApiError::order_rejected("Order book liquidity is less than symbol minimum quantity.")
            }
            Reject::PriceFilter => filter("Filter failure: PRICE_FILTER"),
            Reject::LotSize => filter("Filter failure: LOT_SIZE"),
            Reject::MarketLotSize => filter("Filter failure: MARKET_LOT_SIZE"),
            Reject::Notional => filter("Filter failure: NOTIONAL"),
            Reject::PercentPrice => filter("Filter failure: PERCENT_PRICE_BY_SIDE"),
            Reject::MaxOrders => filter("Filter failure: MAX_NUM_ORDERS"),
            Reject::MaxAlgoOrders => filter("Filter failure: MAX_NUM_ALGO_ORDERS"),
            Reject::MaxPosition => filter("Filter failure: MAX_POSITION"),
            Reject::InvalidAmount => ApiError::not_valid("amount"),
            Reject::InvalidOrder => ApiError::new(-1014, "Unsupported order combination."),
            Reject::InvalidDefinition => ApiError::new(-1013, "The request is rejected by the API."),
            Reject::InvalidModify => {
                ApiError::new(-2038, "The requested action would change no state; rejecting.")
            }
        }
    }

    /// Writes `{"code":…,"msg":…}`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"code\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.code).as_bytes());
        out.extend_from_slice(b",\"msg\":");
        crate::json::write_string(out, &self.msg);
        if let Some(data) = &self.data {
            out.extend_from_slice(b",\"data\":");
            out.extend_from_slice(data.as_bytes());
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_status_a_code_and_a_text() {
        for (error, status, body) in [
            (ApiError::bad_symbol(), 400, r#"{"code":-1121,"msg":"Invalid symbol."}"#),
            (
                ApiError::bad_key(),
                401,
                r#"{"code":-2015,"msg":"Invalid API-key, IP, or permissions for action."}"#,
            ),
            (
                ApiError::too_many_orders(50, "10 SECOND", 3),
                429,
                r#"{"code":-1015,"msg":"Too many new orders; current limit is 50 orders per 10 SECOND."}"#,
            ),
            (
                ApiError::from_reject(Reject::LotSize, false),
                400,
                r#"{"code":-1013,"msg":"Filter failure: LOT_SIZE"}"#,
            ),
            (
                ApiError::illegal("price", "^a\"b$"),
                400,
                r#"{"code":-1100,"msg":"Illegal characters found in parameter 'price'; legal range is '^a\"b$'."}"#,
            ),
        ] {
            let mut out = Vec::new();
            error.write_json(&mut out);
            assert_eq!(error.status, status);
            assert_eq!(String::from_utf8(out).unwrap(), body);
        }
    }
}
