//! `bench outage`: what clients notice of a server that is away. The same load, in alternating pairs: with the server there, and with it
//! stopped.

use std::time::Duration;

use serde_json::json;

use crate::fleet::{Fleet, Shape};
use crate::load::{self, Outcome, Plan, Transport};
use crate::orders::{self, BenchError};
use crate::probe;
use crate::process::cpu_seconds;
use crate::report::{Latency, Report, round1};

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Apache Kafka.
    Kafka,
    /// PostgreSQL.
    Postgres,
}

/// The flags of `bench outage`.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is taken away.
    pub what: Away,
    /// Requests a second.
    pub rate: f64,
    /// Counted seconds of each half.
    pub seconds: f64,
    /// Pairs.
    pub pairs: u32,
}

const WARMUP: Duration = Duration::from_secs(2);

/// Runs the pairs; one object for the halves with the server, one for those without.
pub fn run(options: &Options) -> Result<Vec<Report>, BenchError> {
    let name = if options.what == Away::Kafka { "kafka" } else { "postgres" };
    eprintln!(
        "bench outage: {name} away, {} pairs of {} s each at {}/s, the consumer groups in processes of their own",
        options.pairs, options.seconds, options.rate
    );
    let fleet = Fleet::start(&Shape::default())?;
    let admin = fleet.admin()?;
    let plan = Plan {
        address: fleet.address(),
        transport: Transport::Ws,
        rate: options.rate,
        warmup: WARMUP,
        counted: Duration::from_secs_f64(options.seconds),
        accounts: orders::accounts(&admin, 100)?,
        symbols: orders::symbols(&admin, 10)?,
        connections: 8,
        prefix: String::new(),
    };
    let service = if options.what == Away::Kafka { &fleet.kafka } else { &fleet.postgres };
    let (mut there, mut away, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=options.pairs {
        let with = half(Plan { prefix: format!("{pair}a"), ..plan.clone() }, &fleet)?;
        service.down()?;
        let without = half(Plan { prefix: format!("{pair}b"), ..plan.clone() }, &fleet);
        service.up()?;
        let without = without?;
        let lag = fleet.wait_current()?;
        let ratio = without.p99 / with.p99;
        eprintln!(
            "bench outage: pair {pair}: p99 {:.1} ms with, {:.1} ms without ({ratio:.2}×); current {:.1} s after its return",
            with.p99 / 1e6,
            without.p99 / 1e6,
            lag.as_secs_f64()
        );
        ratios.push(ratio);
        there.push(with);
        away.push(without);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = (ratios[ratios.len() / 2] * 100.0).round() / 100.0;
    let mut reports = Vec::new();
    for (state, halves) in [("there", there), ("away", away)] {
        reports.push(report(options, name, state, halves, ratio));
    }
    fleet.stop()?;
    Ok(reports)
}

/// One half of a pair.
struct Half {
    outcome: Outcome,
    p99: f64,
    disk: probe::Disk,
    cpu: f64,
}

fn half(plan: Plan, fleet: &Fleet) -> Result<Half, BenchError> {
    let cpu = cpu_seconds("self");
    let probe = probe::start(fleet.folder())?;
    let outcome = load::run(&plan)?;
    let disk = probe.finish()?;
    let p99 = outcome.latency.value_at_quantile(0.99) as f64;
    Ok(Half { outcome, p99, disk, cpu: cpu_seconds("self") - cpu })
}

/// The half with the median p99 stands for all.
fn report(options: &Options, name: &str, state: &str, mut halves: Vec<Half>, ratio: f64) -> Report {
    halves.sort_by(|a, b| a.p99.total_cmp(&b.p99));
    let errors = halves.iter().map(|half| half.outcome.errors).sum();
    let first_error = halves.iter().find_map(|half| half.outcome.first_error.clone());
    let half = &halves[halves.len() / 2];
    let mut report = Report::new(
        "outage",
        json!({
            "what": name, "state": state, "rate": options.rate, "seconds": options.seconds, "pairs": options.pairs,
            "durability": "sync", "transport": "ws",
        }),
    );
    report.warmup_s = WARMUP.as_secs_f64();
    report.seconds = options.seconds;
    report.target_per_s = Some(options.rate);
    report.achieved_per_s = round1(half.outcome.answered as f64 / options.seconds);
    report.errors = errors;
    report.latency = Latency::of_ns(&half.outcome.latency);
    report.cpu_client_s = round1(half.cpu);
    report.left_out = "a network: all processes and servers share this machine".to_owned();
    half.disk.report(&mut report);
    report.set("durability", "sync");
    report.set("p99_ratio", ratio);
    if let Some(error) = first_error {
        report.set("first_error", error);
    }
    report
}
