//! `lab faults`: real servers taken away, hung and killed under load, and afterwards every table looked through.
//!
//! A fleet of processes (the exchange, five consumer groups, Kafka, PostgreSQL) serves a client that trades without pause and remembers
//! what it was told. After each fault nothing may be lost, doubled or out of order: every acknowledged order and cancel is there once, the
//! read models agree with each other and with the engine, and no group has stopped.

mod disk_full;
mod scenarios;
mod takeover;

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fleet::{Fleet, Shape};
use crate::orders::{self, BenchError};
use crate::trader::{Background, PATIENCE, Ran, Trader};

pub use scenarios::{ALL, Scenario};

/// Requests a second of the client.
const RATE: f64 = 500.0;
/// While a database or Kafka is away answers go on; a silence longer than this is a failure. Far above the longest flush of a busy disk, and
/// below every outage.
const SILENCE: Duration = Duration::from_secs(8);

/// The flags of `lab faults`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which scenarios; empty for all.
    pub names: Vec<String>,
    /// How long a server is away, in the scenarios that take one away.
    pub outage: Duration,
}

/// Runs the scenarios one after the other; the number of checks passed. The first failure ends it.
pub fn run(options: &Options) -> Result<u64, BenchError> {
    let chosen = chosen(&options.names)?;
    let mut checks = 0;
    for shape in [1, 3] {
        let of_shape: Vec<&Scenario> = chosen.iter().copied().filter(|s| s.nodes == shape).collect();
        if of_shape.is_empty() {
            continue;
        }
        eprintln!(
            "faults: starting a fleet: {shape} Kafka node(s), PostgreSQL, the exchange and five consumer groups"
        );
        let mut stage = Stage::start(shape, options.outage)?;
        for scenario in of_shape {
            let begun = Instant::now();
            checks += stage.play(scenario)?;
            eprintln!(
                "faults: {}: {} ({:.1} s)",
                scenario.name,
                scenario.told,
                begun.elapsed().as_secs_f64()
            );
        }
        stage.end()?;
    }
    let wanted = |what: &str| options.names.is_empty() || options.names.iter().any(|name| name == what);
    if wanted(DISK_FULL) {
        let begun = Instant::now();
        match disk_full::run()? {
            Some(passed) => {
                checks += passed;
                eprintln!(
                    "faults: {DISK_FULL}: the exchange stopped, and with more room nothing acknowledged was lost ({:.1} s)",
                    begun.elapsed().as_secs_f64()
                );
            }
            None => eprintln!("SKIP {DISK_FULL}: a small file system cannot be mounted here (it takes root)"),
        }
    }
    if wanted(TAKEOVER) {
        let begun = Instant::now();
        checks += takeover::run()?;
        eprintln!(
            "faults: {TAKEOVER}: a leader killed and one held up were replaced, nothing acknowledged is lost ({:.1} s)",
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(checks)
}

/// The scenario with two nodes of the exchange, which needs a fleet of its own.
const TAKEOVER: &str = "takeover";
/// The scenario with a small disk.
const DISK_FULL: &str = "disk-full";

fn chosen(names: &[String]) -> Result<Vec<&'static Scenario>, BenchError> {
    if names.is_empty() {
        return Ok(ALL.iter().collect());
    }
    names
        .iter()
        .filter(|name| ![TAKEOVER, DISK_FULL].contains(&name.as_str()))
        .map(|name| {
            ALL.iter().find(|s| s.name == name).ok_or_else(|| {
                let known: Vec<&str> = ALL.iter().map(|s| s.name).collect();
                BenchError::Unfit(format!(
                    "there is no fault named {name}: {}, {DISK_FULL}, {TAKEOVER}",
                    known.join(", ")
                ))
            })
        })
        .collect()
}

/// A fleet under load.
pub struct Stage {
    fleet: Fleet,
    trader: Option<Trader>,
    outage: Duration,
}

impl Stage {
    fn start(nodes: u16, outage: Duration) -> Result<Stage, BenchError> {
        let fleet = Fleet::start(&Shape { nodes, ..Shape::default() })?;
        let admin = fleet.admin()?;
        let trader = Trader::new(orders::accounts(&admin, 8)?, orders::symbols(&admin, 4)?);
        Ok(Stage { fleet, trader: Some(trader), outage })
    }

    fn end(self) -> Result<(), BenchError> {
        self.fleet.stop()
    }

    /// Load, fault, recovery, checks.
    fn play(&mut self, scenario: &Scenario) -> Result<u64, BenchError> {
        let named = |error: BenchError| BenchError::Unfit(format!("{}: {error}", scenario.name));
        let load = self.load()?;
        std::thread::sleep(Duration::from_secs(1)); // the load runs before the fault
        let played = (scenario.play)(self);
        std::thread::sleep(Duration::from_secs(1)); // and after it
        let ran = self.end_load(load)?;
        played.map_err(named)?;
        self.fleet.check_alive().map_err(named)?;
        if ran.answered == 0 {
            return Err(named(BenchError::Unfit("the client got no answer at all".into())));
        }
        if scenario.answers_go_on && (ran.longest_silence > SILENCE || ran.broken > 0) {
            return Err(named(BenchError::Unfit(format!(
                "answers stopped for {:?}, {} connections broke: {ran:?}",
                ran.longest_silence, ran.broken
            ))));
        }
        let caught_up = self.fleet.wait_current().map_err(named)?;
        let checks = self.check().map_err(named)?;
        eprintln!(
            "faults: {}: {} answers, longest silence {} ms, current {} ms after the load, {checks} checks",
            scenario.name,
            ran.answered,
            ran.longest_silence.as_millis(),
            caught_up.as_millis()
        );
        Ok(checks)
    }

    fn load(&mut self) -> Result<Background, BenchError> {
        let trader = self.trader.take().ok_or_else(|| BenchError::Unfit("the client is gone".into()))?;
        let data = self.fleet.data();
        // Where the exchange is now: it has another port after a restart.
        let address = move || {
            crate::admin::Admin::of(&data)
                .map(|admin| admin.url().trim_start_matches("http://").to_owned())
                .unwrap_or_default()
        };
        Ok(Background::start(trader, RATE, PATIENCE, address)?)
    }

    fn end_load(&mut self, load: Background) -> Result<Ran, BenchError> {
        let (trader, ran) = load.stop()?;
        self.trader = Some(trader);
        Ok(ran)
    }

    /// Nothing lost, nothing doubled, nothing out of order.
    fn check(&mut self) -> Result<u64, BenchError> {
        let admin = self.fleet.admin()?;
        let trader = self.trader.as_mut().ok_or_else(|| BenchError::Unfit("the client is gone".into()))?;
        let mut checks = trader.check(&admin)?;
        let audit = admin.audit()?;
        if audit["clean"] != true {
            return Err(BenchError::Unfit(format!("the audit is not clean: {audit}")));
        }
        let tables = admin.get("/api/v1/admin/tables")?;
        if tables["clean"] != true {
            return Err(BenchError::Unfit(format!("the tables do not agree: {tables}")));
        }
        checks += 1 + tables["checks"].as_u64().unwrap_or(0);
        let status = admin.get("/api/v1/admin/status")?;
        for (group, state) in status["groups"].as_object().into_iter().flatten() {
            for (what, value) in [("fault", Value::Null), ("dead_letters", Value::from(0))] {
                if state[what] != value && !state[what].is_null() {
                    return Err(BenchError::Unfit(format!("{group}: {what} is {}", state[what])));
                }
                checks += 1;
            }
        }
        Ok(checks)
    }
}
