//! Hoga as several processes: the exchange and each consumer group alone, with Kafka between them and PostgreSQL behind.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::Admin;
use crate::orders::BenchError;
use crate::process::{Server, TempDir};
use crate::services::{Service, free_ports};

/// The consumer groups, each of which runs in a process of its own.
pub const GROUPS: [&str; 5] =
    ["account-service", "market-data-service", "notification-service", "order-projection", "stop-trigger"];

/// The operator's token of all processes.
const TOKEN: &str = "operator-of-the-fleet";

/// How long the groups may take to become current again: many times what they need.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a fleet is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Kafka's nodes; with three, everything is replicated and two must have a message.
    pub nodes: u16,
    /// Partitions of each topic.
    pub partitions: u32,
    /// Further lines of the configuration.
    pub extra: String,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { nodes: 1, partitions: 2, extra: String::new() }
    }
}

/// The processes and their servers.
pub struct Fleet {
    /// Kafka.
    pub kafka: Service,
    /// PostgreSQL.
    pub postgres: Service,
    /// The exchange; none while it is down.
    pub exchange: Option<Server>,
    groups: Vec<Option<Server>>,
    folder: TempDir,
    config: String,
    /// The exchange's: the same after a restart, since `stop-trigger` places orders there.
    port: String,
}

impl Fleet {
    /// Starts everything.
    pub fn start(shape: &Shape) -> Result<Fleet, BenchError> {
        let (kafka, postgres) = (Service::kafka(shape.nodes)?, Service::postgres()?);
        let folder = TempDir::new("fleet")?;
        let path = folder.path().join("hoga.toml");
        let port = free_ports(&[0])?;
        let insync = if shape.nodes > 1 { 2 } else { 1 };
        let text = format!(
            "[event_log]\nbackend = \"kafka\"\npartitions = {}\n[kafka]\nbootstrap = \"{}\"\nreplication = {}\nmin_insync = {insync}\n\
             session_ms = 6000\nheartbeat_ms = 1000\n[store]\nbackend = \"postgres\"\nurl = \"{}\"\n\
             [api]\nadmin_token = \"{TOKEN}\"\n[exchange]\nurl = \"http://127.0.0.1:{port}\"\ntoken = \"{TOKEN}\"\n{}\n",
            shape.partitions,
            kafka.address(),
            shape.nodes,
            postgres.address(),
            shape.extra,
        );
        std::fs::write(&path, text)?;
        let config = path.to_string_lossy().into_owned();
        let groups = GROUPS.iter().map(|_| None).collect();
        let mut fleet =
            Fleet { kafka, postgres, exchange: None, groups, folder, config, port: port.to_string() };
        fleet.start_exchange()?;
        for group in GROUPS {
            fleet.start_group(group)?;
        }
        Ok(fleet)
    }

    /// The exchange's data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("exchange")
    }

    /// The configuration of all processes.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// Where temporary things of a scenario may be.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the exchange.
    pub fn start_exchange(&mut self) -> Result<(), BenchError> {
        let arguments = ["--no-market", "--config", &self.config, "--port", &self.port];
        self.exchange = Some(Server::start_roles(&["exchange"], &self.data(), &arguments)?);
        Ok(())
    }

    /// SIGKILL to the exchange.
    pub fn kill_exchange(&mut self) -> Result<(), BenchError> {
        Ok(self.exchange.take().map_or(Ok(()), Server::kill)?)
    }

    /// Starts a group's process.
    pub fn start_group(&mut self, group: &str) -> Result<(), BenchError> {
        let at = place(group)?;
        let data = self.folder.path().join(group);
        self.groups[at] = Some(Server::start_roles(&[group], &data, &["--config", &self.config])?);
        Ok(())
    }

    /// SIGKILL to a group's process.
    pub fn kill_group(&mut self, group: &str) -> Result<(), BenchError> {
        Ok(self.groups[place(group)?].take().map_or(Ok(()), Server::kill)?)
    }

    /// SIGTERM to a group's process; it must end in order and in time.
    pub fn stop_group(&mut self, group: &str) -> Result<(), BenchError> {
        match self.groups[place(group)?].take() {
            None => Ok(()),
            Some(server) => in_order(group, server),
        }
    }

    /// The operator's view of the exchange.
    pub fn admin(&self) -> Result<Admin, BenchError> {
        Ok(Admin::of(&self.data())?)
    }

    /// `host:port` of the exchange.
    pub fn address(&self) -> String {
        self.exchange.as_ref().map_or_else(String::new, |server| server.address().to_owned())
    }

    /// Waits until everything that was accepted is in every group's tables.
    pub fn wait_current(&self) -> Result<Duration, BenchError> {
        let begun = Instant::now();
        let mut last = Value::Null;
        while begun.elapsed() < PATIENCE {
            // While PostgreSQL comes back, positions cannot be read.
            if let Ok(status) = self.admin()?.get("/api/v1/admin/status") {
                if is_current(&status) {
                    return Ok(begun.elapsed());
                }
                last = status;
            }
            std::thread::sleep(Duration::from_millis(50)); // asked again: nobody tells us
        }
        Err(BenchError::Unfit(format!("the groups are not current after {PATIENCE:?}: {last}")))
    }

    /// Every process still runs.
    pub fn check_alive(&mut self) -> Result<(), BenchError> {
        for (name, server) in GROUPS.iter().zip(&mut self.groups) {
            if server.as_mut().is_some_and(|server| !server.is_running()) {
                return Err(BenchError::Unfit(format!(
                    "the process of {name} has ended; its last words are above"
                )));
            }
        }
        if self.exchange.as_mut().is_some_and(|server| !server.is_running()) {
            return Err(BenchError::Unfit("the exchange has ended; its last words are above".into()));
        }
        Ok(())
    }

    /// Ends all processes in order.
    pub fn stop(mut self) -> Result<(), BenchError> {
        for group in GROUPS {
            self.stop_group(group)?;
        }
        self.exchange.take().map_or(Ok(()), |server| in_order("exchange", server))
    }
}

fn place(group: &str) -> Result<usize, BenchError> {
    GROUPS
        .iter()
        .position(|name| *name == group)
        .ok_or_else(|| BenchError::Unfit(format!("there is no group {group}")))
}

fn in_order(name: &str, server: Server) -> Result<(), BenchError> {
    match server.terminate(Duration::from_secs(15))? {
        (_, Some(0)) => Ok(()),
        (_, code) => Err(BenchError::Unfit(format!("{name} did not end in order: exit code {code:?}"))),
    }
}

/// The shadow has published everything, the relay has it on Kafka, and no group is behind.
fn is_current(status: &Value) -> bool {
    let engine = &status["engine"];
    let published =
        engine["applied"] == engine["acked"] && status["relay"]["lag_records"].as_u64().unwrap_or(0) == 0;
    let groups = status["groups"].as_object();
    published
        && groups.is_some_and(|groups| {
            groups.len() == GROUPS.len() && groups.values().all(|group| group["lag_records"] == 0)
        })
}
