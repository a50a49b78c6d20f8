//! What the gateway allows, each with its default. Every bound is here on purpose: an open port meets clients that are slow, broken or
//! hostile, and none of them may cost more than its share.

use std::time::Duration;

use hoga_core::order::StpMode;
use serde::{Deserialize, Serialize};

/// The gateway's settings (section `[api]` of the configuration file).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// Address to listen on. Default `127.0.0.1:8080`; port 0 takes a free one.
    pub listen: String,
    /// Threads of the network runtime. Default 2.
    pub threads: usize,
    /// Open connections altogether. A new one takes the place of the oldest that never said anything; where there is none it is closed at
    /// once. Default 8,192; less where the system's limit of open files is lower.
    pub max_connections: usize,
    /// Open connections of one address, with the same rule. Default 2,048: a load generator and a screen full of tests fit.
    pub max_connections_per_ip: usize,
    /// Time in which a request's head must have come completely; also how long a connection may stay silent between two requests.
    /// Milliseconds, default 20,000: longer than the 15 s after which aiohttp gives up an idle connection by itself.
    pub header_timeout_ms: u64,
    /// Time in which a request's body must have come. Milliseconds, default 10,000.
    pub body_timeout_ms: u64,
    /// Time in which a request must be answered; afterwards -1007. Milliseconds, default 10,000 as at Binance.
    pub request_timeout_ms: u64,
    /// Longest request head (request line and headers) in bytes. Default 16,384; at least 8,192.
    pub max_head_bytes: usize,
    /// Most headers of a request. Default 64.
    pub max_headers: usize,
    /// Longest path and query in bytes. Default 8,192.
    pub max_uri_bytes: usize,
    /// Longest body in bytes. Default 16,384: the longest order is a few hundred.
    pub max_body_bytes: usize,
    /// Time that open connections get at shutdown. Milliseconds, default 2,000.
    pub shutdown_grace_ms: u64,
    /// Origins whose pages may open WebSockets, beside the server's own; for example `https://desk.example`. Default none. Programs
    /// send no Origin and are not concerned.
    pub allowed_origins: Vec<String>,
    /// Self-trade prevention of orders that name none. Default `EXPIRE_MAKER`, Binance's own default.
    pub default_stp: String,
    /// Whether anybody may sign up and deposit: on for paper trading. Default true.
    pub open_signup: bool,
    /// Token for the operator's endpoints (`Authorization: Bearer …`); they are closed when it is empty. Default empty.
    pub admin_token: String,
    /// Life of a login in seconds. Default 43,200 (12 h).
    pub session_seconds: u64,
    /// How long a query of the read models waits for what the engine has acknowledged. Milliseconds, default 1,000.
    pub read_wait_ms: u64,
    /// Bytes that may wait to be sent on one WebSocket API connection; a client that lets more pile up is cut off. Default 4 MiB.
    pub ws_api_queue_bytes: usize,
    /// Requests of one WebSocket API connection that may be unanswered; more are refused as busy. Default 16,384.
    pub ws_api_in_flight: usize,
    /// Request weights and order counts.
    pub limits: LimitsConfig,
}

/// Request weights and order counts (section `[api.limits]`); 0 switches one off. The defaults are for a machine of one's own; the figures
/// of Binance are 6,000, 100 and 200,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Weight per minute and address. Default 100,000,000.
    pub request_weight_1m: u64,
    /// New orders per ten seconds and account. Default 10,000,000.
    pub orders_10s: u64,
    /// New orders per day and account. Default 4,000,000,000.
    pub orders_1d: u64,
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig { request_weight_1m: 100_000_000, orders_10s: 10_000_000, orders_1d: 4_000_000_000 }
    }
}

impl Default for ApiConfig {
    fn default() -> ApiConfig {
        ApiConfig {
            listen: "127.0.0.1:8080".into(),
            threads: 2,
            max_connections: 8_192,
            max_connections_per_ip: 2_048,
            header_timeout_ms: 20_000,
            body_timeout_ms: 10_000,
            request_timeout_ms: 10_000,
            max_head_bytes: 16_384,
            max_headers: 64,
            max_uri_bytes: 8_192,
            max_body_bytes: 16_384,
            shutdown_grace_ms: 2_000,
            allowed_origins: Vec::new(),
            default_stp: StpMode::ExpireMaker.as_str().into(),
            open_signup: true,
            admin_token: String::new(),
            session_seconds: 43_200,
            read_wait_ms: 1_000,
            ws_api_queue_bytes: 4 << 20,
            ws_api_in_flight: 16_384,
            limits: LimitsConfig::default(),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("api.{key} is {value}: {reason}")]
pub struct ConfigError {
    /// Which setting.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub reason: &'static str,
}

impl ApiConfig {
    /// Checks what the types cannot.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fail =
            |key, value: &dyn ToString, reason| Err(ConfigError { key, value: value.to_string(), reason });
        if self.stp().is_none() {
            return fail(
                "default_stp",
                &self.default_stp,
                "use NONE, EXPIRE_TAKER, EXPIRE_MAKER, EXPIRE_BOTH or DECREMENT",
            );
        }
        if self.max_head_bytes < 8_192 {
            return fail("max_head_bytes", &self.max_head_bytes, "use at least 8192");
        }
        if self.threads == 0 || self.max_connections == 0 || self.max_connections_per_ip == 0 {
            return fail("threads, max_connections, max_connections_per_ip", &0, "use at least 1");
        }
        if self.ws_api_in_flight == 0 || self.ws_api_in_flight > 65_536 {
            return fail("ws_api_in_flight", &self.ws_api_in_flight, "use 1 to 65536");
        }
        Ok(())
    }

    /// Self-trade prevention of orders that name none; `None` when the setting is not one of the modes.
    pub fn stp(&self) -> Option<StpMode> {
        StpMode::parse(&self.default_stp)
    }

    pub(crate) fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms)
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    pub(crate) fn shutdown_grace(&self) -> Duration {
        Duration::from_millis(self.shutdown_grace_ms)
    }

    pub(crate) fn read_wait(&self) -> Duration {
        Duration::from_millis(self.read_wait_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_mistakes_are_named() {
        ApiConfig::default().check().unwrap();
        let wrong = ApiConfig { default_stp: "SOMETIMES".into(), ..ApiConfig::default() };
        let text = wrong.check().unwrap_err().to_string();
        assert!(text.starts_with("api.default_stp is SOMETIMES"), "{text}");
    }
}
