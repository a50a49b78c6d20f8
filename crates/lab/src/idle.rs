//! `bench idle`: what the whole system costs when nothing happens.

use std::time::Duration;

use serde_json::json;

use crate::orders::BenchError;
use crate::process::{Server, TempDir};
use crate::report::{Report, round1};

/// Starts a system without the simulated market, leaves it alone, and reads its processor time.
pub fn run(seconds: f64) -> Result<Report, BenchError> {
    eprintln!("bench idle: {seconds} s of nothing");
    let data = TempDir::new("bench-idle")?;
    let server = Server::start(&data.path().join("data"), &["--no-market"])?;
    std::thread::sleep(Duration::from_secs(2)); // the start's own work is not idleness
    let before = server.cpu_seconds();
    std::thread::sleep(Duration::from_secs_f64(seconds)); // the measurement itself
    let used = server.cpu_seconds() - before;
    let mut report = Report::new("idle", json!({ "seconds": seconds }));
    report.warmup_s = 2.0;
    report.seconds = seconds;
    report.cpu_server_s = used;
    report.rss_mib = round1(server.peak_rss_mib());
    report.left_out = "clients: nobody is connected".to_owned();
    report.set("cpu_percent", (used / seconds * 10_000.0).round() / 100.0);
    server.terminate(Duration::from_secs(10))?;
    Ok(report)
}
