//! `bench orders`: signed orders through the public API at a planned rate, durable, with the read models on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::admin::{Account, Admin, AdminError};
use crate::load::{self, LoadError, Outcome, Plan, Symbol, Transport};
use crate::probe;
use crate::process::{ProcessError, Server, TempDir, cpu_seconds};
use crate::report::{Latency, Report, round1};
use crate::services::Service;

/// The flags of `bench orders`.
#[derive(Clone, Debug)]
pub struct Options {
    /// How orders travel.
    pub transport: Transport,
    /// Requests a second.
    pub rate: f64,
    /// Counted seconds.
    pub seconds: f64,
    /// `sync`, `write` or `none`.
    pub durability: String,
    /// Accounts with a key each.
    pub accounts: usize,
    /// Markets; fewer when the system has fewer.
    pub symbols: usize,
    /// Connections.
    pub connections: usize,
    /// Whether consumers read from Kafka (a broker is started for it) instead of the embedded log.
    pub kafka: bool,
    /// Whether the read models are on PostgreSQL (a server is started for it) instead of SQLite.
    pub postgres: bool,
}

/// Why a bench could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The server.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Its operator interface.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Files.
    #[error("bench: {0}")]
    Io(#[from] std::io::Error),
    /// Something else that is not as it must be.
    #[error("bench: {0}")]
    Unfit(String),
}

const WARMUP: Duration = Duration::from_secs(3);

/// Runs it once.
pub fn run(options: &Options) -> Result<Report, BenchError> {
    let data = TempDir::new("bench-orders")?;
    eprintln!(
        "bench orders: {:?} at {}/s, durability {}, {} s and {} s of warm-up",
        options.transport,
        options.rate,
        options.durability,
        options.seconds,
        WARMUP.as_secs()
    );
    let kafka = options.kafka.then(|| Service::kafka(1)).transpose()?;
    let postgres = options.postgres.then(Service::postgres).transpose()?;
    let mut text = format!("[engine]\ndurability = \"{}\"\n", options.durability);
    if let Some(kafka) = &kafka {
        text.push_str(&format!(
            "[event_log]\nbackend = \"kafka\"\n[kafka]\nbootstrap = \"{}\"\n",
            kafka.address()
        ));
    }
    if let Some(postgres) = &postgres {
        text.push_str(&format!("[store]\nbackend = \"postgres\"\nurl = \"{}\"\n", postgres.address()));
    }
    let config = data.path().join("bench.toml");
    std::fs::write(&config, text)?;
    let config = config.to_string_lossy().into_owned();
    let folder = data.path().join("data");
    let server = Server::start(&folder, &["--no-market", "--config", &config])?;
    let admin = Admin::of(&folder)?;
    let symbols = symbols(&admin, options.symbols)?;
    let accounts = accounts(&admin, options.accounts)?;
    let plan = Plan {
        address: server.address().to_owned(),
        transport: options.transport,
        rate: options.rate,
        warmup: WARMUP,
        counted: Duration::from_secs_f64(options.seconds),
        accounts,
        symbols,
        connections: options.connections,
        prefix: "o".into(),
    };
    let (server_cpu, client_cpu) = (server.cpu_seconds(), cpu_seconds("self"));
    let probe = probe::start(data.path())?;
    let outcome = load::run(&plan)?;
    let disk = probe.finish()?;
    let cpu = (server.cpu_seconds() - server_cpu, cpu_seconds("self") - client_cpu);
    let (lag, drain) = drained(&admin)?;
    let mut report = report(options, &plan, &outcome);
    (report.cpu_server_s, report.cpu_client_s) = (round1(cpu.0), round1(cpu.1));
    report.rss_mib = round1(server.peak_rss_mib());
    disk.report(&mut report);
    report.set("projection_lag_s", lag);
    report.set("drain_s", drain);
    server.terminate(Duration::from_secs(10))?;
    Ok(report)
}

fn report(options: &Options, plan: &Plan, outcome: &Outcome) -> Report {
    let transport = if options.transport == Transport::Ws { "ws" } else { "http" };
    let mut report = Report::new(
        "orders",
        json!({
            "transport": transport, "rate": options.rate, "seconds": options.seconds,
            "durability": options.durability, "accounts": plan.accounts.len(),
            "symbols": plan.symbols.len(), "connections": options.connections,
            "event_log": if options.kafka { "kafka" } else { "embedded" },
            "store": if options.postgres { "postgres" } else { "sqlite" },
            "mix": "of 10: 5 new resting, 4 cancels of older ones, 1 crossing IOC; HMAC-signed",
        }),
    );
    report.warmup_s = WARMUP.as_secs_f64();
    report.seconds = options.seconds;
    report.target_per_s = Some(options.rate);
    report.achieved_per_s = round1(outcome.answered as f64 / options.seconds);
    report.errors = outcome.errors;
    report.latency = Latency::of_ns(&outcome.latency);
    report.left_out = "TLS and a real network: generator and server share 2 cores over loopback".to_owned();
    if outcome.send_lag_p99 > 5_000_000 {
        report
            .left_out
            .push_str("; the generator was the limit (it sent more than 5 ms late at the 99th percentile)");
    }
    report.set("durability", options.durability.clone());
    let depth = Latency::of_ns(&outcome.depth);
    report.set("depth_p50_us", json!(depth.p50_us));
    report.set("depth_p99_us", json!(depth.p99_us));
    report.set("rejected", outcome.rejected);
    report.set("send_lag_p99_us", outcome.send_lag_p99 / 1000);
    if let Some(error) = &outcome.first_error {
        report.set("first_error", error.clone());
    }
    report
}

/// The first `count` markets, with prices and quantities that their filters take.
pub fn symbols(admin: &Admin, count: usize) -> Result<Vec<Symbol>, BenchError> {
    let info = admin.get("/api/v3/exchangeInfo")?;
    let unfit = |what: &str| BenchError::Unfit(format!("exchangeInfo: {what}"));
    let listed = info["symbols"].as_array().ok_or_else(|| unfit("no symbols"))?;
    let mut symbols = Vec::new();
    for symbol in listed.iter().take(count) {
        let filter = |kind: &str, field: &str| {
            symbol["filters"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|f| f["filterType"] == kind)
                .and_then(|f| f[field].as_str())
                .and_then(|v| hoga_core::money::parse_units(v).ok())
                .ok_or_else(|| unfit(&format!("no {field} in {kind}")))
        };
        let tick = filter("PRICE_FILTER", "tickSize")?;
        let step = filter("LOT_SIZE", "stepSize")?;
        let smallest = filter("LOT_SIZE", "minQty")?;
        let notional = filter("NOTIONAL", "minNotional")?;
        // Far enough from the lowest price for the probes, and of a size that needs few units.
        let middle = 20_000 * tick + filter("PRICE_FILTER", "minPrice")?;
        let needed = i128::from(notional) * i128::from(hoga_core::money::SCALE) * 2 / i128::from(middle);
        let needed = i64::try_from(needed).map_err(|_| unfit("a notional out of range"))?;
        let qty = (needed.max(smallest) / step + 1) * step;
        let name = symbol["symbol"].as_str().ok_or_else(|| unfit("a symbol without a name"))?.to_owned();
        symbols.push(Symbol { name, tick, middle, qty });
    }
    if symbols.is_empty() {
        return Err(unfit("no symbols"));
    }
    Ok(symbols)
}

/// Paper accounts with plenty of every asset.
pub fn accounts(admin: &Admin, count: usize) -> Result<Vec<Account>, BenchError> {
    let info = admin.get("/api/v3/exchangeInfo")?;
    let mut assets: Vec<String> = info["symbols"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|s| [&s["baseAsset"], &s["quoteAsset"]])
        .filter_map(|a| a.as_str().map(str::to_owned))
        .collect();
    assets.sort();
    assets.dedup();
    // All deposits of one asset together must stay below 92,233,720,368 whole units.
    let deposits: Vec<(String, String)> = assets.into_iter().map(|a| (a, "10000000".to_owned())).collect();
    // Several at a time: each waits for the disk, not for the processor.
    let workers = 8.min(count.max(1));
    let mut made = Vec::with_capacity(count);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|w| {
                let (admin, deposits) = (admin.clone(), &deposits);
                let share = count / workers + usize::from(w < count % workers);
                scope
                    .spawn(move || (0..share).map(|_| admin.account(deposits)).collect::<Result<Vec<_>, _>>())
            })
            .collect();
        for handle in handles {
            let part = handle.join().map_err(|_| BenchError::Unfit("making accounts panicked".into()))?;
            made.extend(part?);
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(made)
}

/// How far the slowest read model is behind when the load ends, and how long it takes to catch up, in seconds.
fn drained(admin: &Admin) -> Result<(f64, f64), BenchError> {
    let begun = Instant::now();
    let mut first = None;
    loop {
        let status = admin.get("/api/v1/admin/status")?;
        let groups = status["groups"].as_object().cloned().unwrap_or_default();
        let most = |field: &str| groups.values().filter_map(|g| g[field].as_f64()).fold(0.0_f64, f64::max);
        let lag = most("lag_s");
        first.get_or_insert(lag);
        let applied = status["engine"]["applied"] == status["engine"]["acked"]
            && status["relay"]["lag_records"].as_u64().unwrap_or(0) == 0;
        if applied && most("lag_records") == 0.0 {
            return Ok((round1(first.unwrap_or(0.0)), round1(begun.elapsed().as_secs_f64())));
        }
        if begun.elapsed() > Duration::from_secs(600) {
            return Err(BenchError::Unfit(format!(
                "the read models did not catch up in 10 minutes: {status}"
            )));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The highest rate that holds p99 under `bound_us` with no error, by halving the interval between a rate that holds and one that
/// does not; every try is reported.
pub fn highest(options: &Options, from: f64, to: f64, bound_us: f64) -> Result<Vec<Report>, BenchError> {
    let (mut holds, mut fails) = (from, to);
    let mut reports = Vec::new();
    let mut rate = from;
    for _ in 0..7 {
        let mut report = run(&Options { rate, ..options.clone() })?;
        let kept_up = report.achieved_per_s >= rate * 0.98;
        let held = report.errors == 0 && kept_up && report.latency.p99_us.is_some_and(|p| p < bound_us);
        report.set("held", Value::Bool(held));
        reports.push(report);
        if held {
            holds = rate;
        } else {
            fails = rate;
        }
        if fails - holds < from * 0.1 {
            break;
        }
        rate = (holds + fails) / 2.0;
    }
    Ok(reports)
}
