//! Counters of the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::error::ApiError;
use crate::routes::{ROUTES, Route};

/// Status classes that are counted apart: 2xx, 4xx, 429, 5xx.
const CLASSES: [&str; 4] = ["2xx", "4xx", "429", "5xx"];

/// Counters of requests; they only grow.
#[derive(Debug)]
pub struct Metrics {
    http: Vec<[AtomicU64; CLASSES.len()]>,
    /// Requests of the WebSocket API.
    pub ws_requests: AtomicU64,
    /// Those that were answered with an error.
    pub ws_errors: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            http: ROUTES.iter().map(|_| Default::default()).collect(),
            ws_requests: AtomicU64::new(0),
            ws_errors: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// Counts an answer.
    pub fn count_http(&self, route: Route, status: u16) {
        let class = match status {
            0..400 => 0,
            429 | 418 => 2,
            400..500 => 1,
            _ => 3,
        };
        self.http[route as usize][class].fetch_add(1, Ordering::Relaxed);
    }

    /// Writes them in Prometheus' text format; routes that were never asked are left out.
    pub fn write(&self, out: &mut String) {
        use std::fmt::Write;
        out.push_str("# HELP hoga_http_requests_total Answered HTTP requests.\n# TYPE hoga_http_requests_total counter\n");
        for (spec, counts) in ROUTES.iter().zip(&self.http) {
            for (class, count) in CLASSES.iter().zip(counts) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let _ = writeln!(
                        out,
                        "hoga_http_requests_total{{method=\"{}\",path=\"{}\",status=\"{class}\"}} {count}",
                        spec.method, spec.path
                    );
                }
            }
        }
        for (name, help, value) in [
            ("hoga_ws_api_requests_total", "Requests of the WebSocket API.", &self.ws_requests),
            ("hoga_ws_api_errors_total", "Those answered with an error.", &self.ws_errors),
        ] {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
        }
    }
}

/// A bounded number of things under way.
#[derive(Clone, Debug)]
pub struct Bound {
    now: Arc<AtomicUsize>,
    max: usize,
}

/// One of them; ends when dropped.
#[derive(Debug)]
pub struct UnderWay(Arc<AtomicUsize>);

impl Bound {
    /// At most `max` at a time.
    pub fn new(max: usize) -> Bound {
        Bound { now: Arc::default(), max }
    }

    /// Begins one; -1008 when there are too many.
    pub fn try_begin(&self) -> Result<UnderWay, ApiError> {
        if self.now.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.now.fetch_sub(1, Ordering::Relaxed);
            return Err(ApiError::busy());
        }
        Ok(UnderWay(Arc::clone(&self.now)))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_route_and_class() {
        let metrics = Metrics::default();
        for status in [200, 201, 400, 401, 429, 500] {
            metrics.count_http(Route::NewOrder, status);
        }
        let mut out = String::new();
        metrics.write(&mut out);
        for line in [
            "hoga_http_requests_total{method=\"POST\",path=\"/api/v3/order\",status=\"2xx\"} 2",
            "hoga_http_requests_total{method=\"POST\",path=\"/api/v3/order\",status=\"429\"} 1",
            "hoga_ws_api_requests_total 0",
        ] {
            assert!(out.contains(line), "{out}");
        }
    }

    #[test]
    fn a_bound_is_kept_and_given_back() {
        let bound = Bound::new(2);
        let one = bound.try_begin().unwrap();
        let two = bound.try_begin().unwrap();
        assert_eq!(bound.try_begin().unwrap_err().code, -1008);
        drop((one, two));
        assert!(bound.try_begin().is_ok());
    }
}
