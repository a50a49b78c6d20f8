//! Real servers for a measurement or a fault: Apache Kafka, PostgreSQL, Redis and ZooKeeper, started by the project's own scripts with data of their own on
//! free ports, and gone afterwards.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::interrupt::in_use;
use crate::orders::BenchError;
use crate::process::TempDir;

/// A server with its data in a temporary folder. It is stopped and its data removed when this is dropped.
pub struct Service {
    script: PathBuf,
    variables: Vec<(String, String)>,
    address: String,
    _data: TempDir,
}

impl Service {
    /// Kafka: one node, or a cluster of several that replicates everything.
    pub fn kafka(nodes: u16) -> Result<Service, BenchError> {
        // As the script counts: a node takes two ports, the next node's are ten further.
        let wanted: Vec<u16> = (0..nodes).flat_map(|n| [10 * n, 10 * n + 1]).collect();
        let base = free_ports(&wanted)?;
        let brokers: Vec<String> = (0..nodes).map(|n| format!("127.0.0.1:{}", base + 10 * n)).collect();
        let variables = [
            ("KAFKA_NODES", nodes.to_string()),
            ("KAFKA_PORT", base.to_string()),
            ("KAFKA_CONTROLLER_PORT", (base + 1).to_string()),
            ("KAFKA_HEAP", if nodes == 1 { "512m".to_owned() } else { "256m".to_owned() }),
        ];
        Service::start("kafka", &variables, brokers.join(","))
    }

    /// PostgreSQL; its address is a URL.
    pub fn postgres() -> Result<Service, BenchError> {
        let port = free_ports(&[0])?;
        let url = format!("postgres://hoga@127.0.0.1:{port}/hoga");
        Service::start("postgres", &[("POSTGRES_PORT", port.to_string())], url)
    }

    /// Redis, one server; its address is a URL.
    pub fn redis() -> Result<Service, BenchError> {
        let port = free_ports(&[0])?;
        Service::start("redis", &[("REDIS_PORTS", port.to_string())], format!("redis://127.0.0.1:{port}"))
    }

    /// ZooKeeper, one server with ticks of 200 ms, so that sessions may be short.
    pub fn zookeeper() -> Result<Service, BenchError> {
        let port = free_ports(&[0])?;
        let variables = [("ZOOKEEPER_PORT", port.to_string()), ("ZOOKEEPER_TICK", "200".to_owned())];
        Service::start("zookeeper", &variables, format!("127.0.0.1:{port}"))
    }

    fn start(name: &str, variables: &[(&str, String)], address: String) -> Result<Service, BenchError> {
        let script = scripts()?.join(format!("{name}.sh"));
        let data = TempDir::new(name)?;
        let mut variables: Vec<(String, String)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        variables.push(("HOGA_WORK".to_owned(), data.path().display().to_string()));
        let service = Service { script, variables, address, _data: data };
        service.run(&["up"])?;
        Ok(service)
    }

    /// Where clients reach it: `host:port,…` of Kafka, the URL of PostgreSQL.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Starts it again; returns when it answers.
    pub fn up(&self) -> Result<(), BenchError> {
        self.run(&["up"])
    }

    /// Stops it in order.
    pub fn down(&self) -> Result<(), BenchError> {
        self.run(&["down"])
    }

    /// SIGKILL: the crash.
    pub fn kill(&self) -> Result<(), BenchError> {
        self.run(&["kill"])
    }

    /// One of the script's actions, such as `kill 2` for a node of a cluster.
    pub fn run(&self, arguments: &[&str]) -> Result<(), BenchError> {
        let status = self.command(arguments).stdout(Stdio::null()).status()?;
        self.track();
        if status.success() {
            return Ok(());
        }
        Err(BenchError::Unfit(format!(
            "{} {} failed; its words are above",
            self.script.display(),
            arguments.join(" ")
        )))
    }

    /// The output of one of the script's actions.
    pub fn output(&self, arguments: &[&str]) -> Result<String, BenchError> {
        let output = self.command(arguments).stderr(Stdio::inherit()).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(BenchError::Unfit(format!(
            "{} {} failed; its words are above",
            self.script.display(),
            arguments.join(" ")
        )))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.script);
        command.args(arguments).envs(self.variables.iter().cloned()).stdin(Stdio::null());
        command
    }

    /// Its processes are ended too when somebody interrupts the lab.
    fn track(&self) {
        for pid in pid_files(self._data.path()) {
            in_use().process(pid);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let pids = pid_files(self._data.path());
        if let Err(error) = self.run(&["wipe"]) {
            eprintln!("lab: {error}");
        }
        for pid in pids {
            in_use().process_ended(pid);
        }
    }
}

/// The process numbers in the `pid` files below a folder.
fn pid_files(folder: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut pids = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Ok(text) = std::fs::read_to_string(path.join("pid")) {
                pids.extend(text.split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok()));
            }
            // A cluster has a folder for each node.
            if !path.join("data").exists() {
                pids.extend(pid_files(&path));
            }
        }
    }
    pids
}

/// The folder of the scripts: `HOGA_SCRIPTS`, or `scripts/services` of the working folder or one above it.
fn scripts() -> Result<PathBuf, BenchError> {
    if let Some(folder) = std::env::var_os("HOGA_SCRIPTS") {
        return Ok(PathBuf::from(folder));
    }
    let here = std::env::current_dir()?;
    here.ancestors().map(|folder| folder.join("scripts/services")).find(|folder| folder.is_dir()).ok_or_else(|| {
        BenchError::Unfit(
            "the scripts that start servers are not here: run this in a checkout of Hoga, or name their folder in HOGA_SCRIPTS"
                .into(),
        )
    })
}

/// A port from which on the ones at these distances are free now.
pub(crate) fn free_ports(distances: &[u16]) -> Result<u16, BenchError> {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let free = |n: &u16| {
            first.checked_add(*n).is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        };
        if distances.iter().all(free) {
            return Ok(first);
        }
    }
    Err(BenchError::Unfit("no free ports beside each other".into()))
}
