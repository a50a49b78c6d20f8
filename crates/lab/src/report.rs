//! What a bench prints: one JSON object a condition, or the same as a table.

use std::io::Write;
use std::process::Command;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// One condition's result. The field names are a contract with other programs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The bench.
    pub name: &'static str,
    /// The flags in force.
    pub condition: Map<String, Value>,
    /// The source's commit, or "unknown" outside a checkout.
    pub commit: String,
    /// cpu, cores, memory, kernel.
    pub machine: Value,
    /// Seconds of load that were not counted.
    pub warmup_s: f64,
    /// Seconds that were counted.
    pub seconds: f64,
    /// The planned rate; null when it runs flat out.
    pub target_per_s: Option<f64>,
    /// The rate reached.
    pub achieved_per_s: f64,
    /// Answers that were errors, and answers that never came.
    pub errors: u64,
    /// Latency percentiles in microseconds from the planned send time; null where a bench has none.
    #[serde(flatten)]
    pub latency: Latency,
    /// Processor seconds of the server in the counted time.
    pub cpu_server_s: f64,
    /// Processor seconds of the load generator in the counted time.
    pub cpu_client_s: f64,
    /// The server's resident memory at its highest.
    pub rss_mib: f64,
    /// What the figure does not contain.
    pub left_out: String,
    /// Fields of this bench alone.
    #[serde(flatten)]
    pub own: Map<String, Value>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    /// Median.
    pub p50_us: Option<f64>,
    /// 95 %.
    pub p95_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// 99.9 %.
    pub p999_us: Option<f64>,
    /// Highest.
    pub max_us: Option<f64>,
}

impl Latency {
    /// From a histogram of nanoseconds.
    pub fn of_ns(histogram: &Histogram<u64>) -> Latency {
        let at = |q: f64| Some(round1(histogram.value_at_quantile(q) as f64 / 1000.0));
        if histogram.is_empty() {
            return Latency::default();
        }
        Latency {
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: Some(round1(histogram.max() as f64 / 1000.0)),
        }
    }
}

/// One decimal place.
pub fn round1(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// A histogram of nanoseconds up to two minutes, three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000_000, 3).expect("the bounds are valid")
}

impl Report {
    /// An empty report of a bench under the given flags.
    pub fn new(name: &'static str, condition: Value) -> Report {
        Report {
            name,
            condition: condition.as_object().cloned().unwrap_or_default(),
            commit: commit(),
            machine: machine(),
            warmup_s: 0.0,
            seconds: 0.0,
            target_per_s: None,
            achieved_per_s: 0.0,
            errors: 0,
            latency: Latency::default(),
            cpu_server_s: 0.0,
            cpu_client_s: 0.0,
            rss_mib: 0.0,
            left_out: String::new(),
            own: Map::new(),
        }
    }

    /// Sets a field of this bench alone.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.own.insert(name.to_owned(), value.into());
    }

    /// Prints the report as its JSON line, or as a table for people.
    pub fn print(&self, json: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let value = serde_json::to_value(self).unwrap_or(Value::Null);
        if json {
            return writeln!(out, "{value}");
        }
        writeln!(out, "{} {}", self.name, Value::Object(self.condition.clone()))?;
        for (name, value) in value.as_object().into_iter().flatten() {
            if name != "name" && name != "condition" && !value.is_null() {
                writeln!(out, "  {name:<22} {}", value.as_str().map_or(value.to_string(), str::to_owned))?;
            }
        }
        writeln!(out)
    }
}

fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split(':').nth(1))
            .map(|v| v.trim().to_owned())
            .unwrap_or_default()
    };
    let memory_kib: u64 =
        field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").trim().parse().unwrap_or(0);
    json!({
        "cpu": field(&read("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": format!("{} MiB", memory_kib / 1024),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}
