//! Clients that lost all their brokers find them again.
//!
//! Since 2.10, librdkafka forgets brokers that the cluster's metadata does not name. A broker that just went on after it hung is fenced for a
//! moment and answers with metadata that name none at all, itself included: then the client has nobody left to ask, and is silent for ever
//! (confluentinc/librdkafka#5301, open; its own `rebootstrap` does not begin, since those brokers count as removed and not as down). So
//! whoever owns a client asks for metadata now and then, and when no answer comes the configured brokers are named to it once more.

use std::ffi::CString;
use std::ptr;
use std::time::{Duration, Instant};

use rdkafka::bindings as sys;

use super::config::KafkaConfig;

/// How often a client is asked that has given no other sign of a broker.
const EVERY: Duration = Duration::from_secs(1);
/// How long the answer may take. It blocks the thread that asks.
const PATIENCE_MS: i32 = 400;

pub(super) struct Reach {
    brokers: CString,
    heard: Instant,
}

impl Reach {
    pub(super) fn new(config: &KafkaConfig) -> Reach {
        // Names with a zero byte are refused when the client is made.
        Reach { brokers: CString::new(config.bootstrap.as_str()).unwrap_or_default(), heard: Instant::now() }
    }

    /// A broker has just been heard.
    pub(super) fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// Once a second, unless a broker was heard: asks for metadata, and names the brokers again when no answer comes.
    pub(super) fn keep(&mut self, client: *mut sys::rd_kafka_t) {
        if self.heard.elapsed() < EVERY {
            return;
        }
        self.heard();
        let mut metadata = ptr::null();
        // SAFETY: the caller's client lives; the answer is written when there is no error, and is destroyed here; the names are terminated.
        unsafe {
            let code = sys::rd_kafka_metadata(client, 0, ptr::null_mut(), &raw mut metadata, PATIENCE_MS);
            if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                sys::rd_kafka_metadata_destroy(metadata);
            } else {
                // Those that it has already are not added twice.
                sys::rd_kafka_brokers_add(client, self.brokers.as_ptr());
            }
        }
    }
}
