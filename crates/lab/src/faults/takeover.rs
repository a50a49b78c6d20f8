//! The exchange on two nodes: the command journal is on Kafka, one node leads, the other follows and takes over.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::admin::Admin;
use crate::orders::{self, BenchError};
use crate::process::{Server, TempDir};
use crate::services::Service;
use crate::trader::{Background, Trader};

/// Requests a second of the client.
const RATE: f64 = 500.0;
/// After so long without an answer the client asks the other node.
const IMPATIENT: Duration = Duration::from_millis(300);
/// Orders are answered again within this time of the leader's death.
const WITHIN: Duration = Duration::from_secs(3);
/// How long a leader that was held up may take to notice that it has been replaced.
const FENCED: Duration = Duration::from_secs(20);

/// Kills the leader, then holds up the next one until it has been replaced; the number of checks.
pub fn run() -> Result<u64, BenchError> {
    eprintln!(
        "faults: takeover: Kafka, PostgreSQL, two nodes of the exchange, a process with the read models"
    );
    let pair = Pair::start()?;
    let first = pair.node("a", true)?;
    let second = pair.node("b", false)?;
    let groups = ["account-service", "market-data-service", "order-projection"];
    let models =
        Server::start_roles(&groups, &pair.folder.path().join("models"), &["--config", &pair.config])?;
    let admin = Admin::of(&pair.data("a"))?;
    let trader = Trader::new(orders::accounts(&admin, 8)?, orders::symbols(&admin, 4)?);
    let load = pair.load(trader)?;
    more(&load, 500)?;

    let before = load.acknowledged();
    let begun = Instant::now();
    first.kill()?;
    let taken = again(&load, before, begun)?;
    eprintln!("faults: takeover: leader killed, answers again after {} ms", taken.as_millis());
    more(&load, 500)?;

    // The killed node comes back as a standby, and the one that leads now is held up, as by a pause of its machine.
    let third = pair.node("a", false)?;
    second.signal(Signal::STOP)?;
    let (before, begun) = (load.acknowledged(), Instant::now());
    let held = again(&load, before, begun)?;
    eprintln!("faults: takeover: leader held up, answers again after {} ms", held.as_millis());
    second.signal(Signal::CONT)?;
    let code = second.ended(FENCED)?;
    if code != Some(5) {
        return Err(BenchError::Unfit(format!(
            "the replaced leader ended with {code:?}, not with a fault (5)"
        )));
    }
    more(&load, 500)?;
    let (mut trader, ran) = load.stop()?;
    for (what, time) in [("killed", taken), ("held up", held)] {
        if time > WITHIN {
            return Err(BenchError::Unfit(format!(
                "after the leader was {what}, answers came again after {time:?}"
            )));
        }
    }
    let admin = Admin::of(&pair.data("a"))?;
    pair.current(&admin)?;
    let mut checks = trader.check(&admin)?;
    for path in ["/api/v1/admin/audit", "/api/v1/admin/tables"] {
        let report = admin.get(path)?;
        if report["clean"] != true {
            return Err(BenchError::Unfit(format!("takeover: {path} is not clean: {report}")));
        }
        checks += report["checks"].as_u64().unwrap_or(1);
    }
    eprintln!("faults: takeover: {} answers, {checks} checks", ran.answered);
    for server in [third, models] {
        server.terminate(Duration::from_secs(15))?;
    }
    Ok(checks)
}

/// What both nodes share.
struct Pair {
    kafka: Service,
    postgres: Service,
    folder: TempDir,
    config: String,
}

impl Pair {
    fn start() -> Result<Pair, BenchError> {
        let (kafka, postgres) = (Service::kafka(1)?, Service::postgres()?);
        let folder = TempDir::new("takeover")?;
        let path = folder.path().join("hoga.toml");
        let text = format!(
            "[engine]\njournal = \"kafka\"\n[event_log]\nbackend = \"kafka\"\n[kafka]\nbootstrap = \"{}\"\n\
             session_ms = 6000\nheartbeat_ms = 1000\n[store]\nbackend = \"postgres\"\nurl = \"{}\"\n",
            kafka.address(),
            postgres.address()
        );
        std::fs::write(&path, text)?;
        let config = path.to_string_lossy().into_owned();
        Ok(Pair { kafka, postgres, folder, config })
    }

    fn data(&self, node: &str) -> PathBuf {
        self.folder.path().join(node)
    }

    fn node(&self, name: &str, leads: bool) -> Result<Server, BenchError> {
        let arguments = ["--no-market", "--config", &self.config];
        // What an earlier life of the node left must not pass for a node that serves.
        let _ = std::fs::remove_file(self.data(name).join(crate::admin::RUN_FILE)); // not there at its first start
        Ok(if leads {
            Server::start_roles(&["exchange"], &self.data(name), &arguments)?
        } else {
            Server::start_standby(&self.data(name), &arguments)?
        })
    }

    /// A client that finds the node that serves.
    fn load(&self, trader: Trader) -> Result<Background, BenchError> {
        let nodes = [self.data("a"), self.data("b")];
        let mut turn = 0;
        let address = move || {
            turn += 1;
            Admin::of(&nodes[turn % 2])
                .map(|admin| admin.url().trim_start_matches("http://").to_owned())
                .unwrap_or_default()
        };
        Ok(Background::start(trader, RATE, IMPATIENT, address)?)
    }

    /// Waits until the read models have everything.
    fn current(&self, admin: &Admin) -> Result<(), BenchError> {
        let begun = Instant::now();
        loop {
            let status = admin.get("/api/v1/admin/status")?;
            let lag = |group: &str| status["groups"][group]["lag_records"].as_u64();
            let behind = ["account-service", "market-data-service", "order-projection"]
                .iter()
                .any(|g| lag(g) != Some(0));
            let published = status["engine"]["applied"] == status["engine"]["acked"]
                && status["relay"]["lag_records"].as_u64() == Some(0);
            if published && !behind {
                return Ok(());
            }
            if begun.elapsed() > Duration::from_secs(60) {
                let servers = format!("{} and {}", self.kafka.address(), self.postgres.address());
                return Err(BenchError::Unfit(format!(
                    "the read models are not current ({servers}): {status}"
                )));
            }
            std::thread::sleep(Duration::from_millis(50)); // asked again: nobody tells us
        }
    }
}

/// Waits for this many more answers.
fn more(load: &Background, count: u64) -> Result<(), BenchError> {
    let (from, begun) = (load.acknowledged(), Instant::now());
    while load.acknowledged() < from + count {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(BenchError::Unfit("the client is not answered".into()));
        }
        std::thread::sleep(Duration::from_millis(5)); // a counter is looked at
    }
    Ok(())
}

/// How long until the client is answered again. What was on its way when the leader died may still arrive: so many answers do not count.
fn again(load: &Background, before: u64, begun: Instant) -> Result<Duration, BenchError> {
    let under_way = 64;
    while load.acknowledged() <= before + under_way {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(BenchError::Unfit("nobody took over within a minute".into()));
        }
        std::thread::sleep(Duration::from_millis(1)); // a counter is looked at
    }
    Ok(begun.elapsed())
}
