//! The configuration: one TOML file, every key with a default, environment overrides.
//!
//! `HOGA__API__LISTEN=0.0.0.0:80` overrides `listen` in `[api]`: two underscores between the parts. An unknown key is an error,
//! in the file and in the environment, so that a typing mistake cannot pass for a setting.

use std::path::{Path, PathBuf};

use hoga_api::config::ApiConfig;
use serde::{Deserialize, Serialize};

/// The whole configuration.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where data is kept and how.
    pub data: Data,
    /// HTTP and WebSocket: addresses, limits, sessions.
    pub api: ApiConfig,
    /// Matching and the journal.
    pub engine: Engine,
    /// The event log: topics, and where they are.
    pub event_log: EventLog,
    /// Apache Kafka, where something of the above is there.
    pub kafka: Kafka,
    /// The read models' database.
    pub store: Store,
    /// Where the exchange is, for `stop-trigger` in a process without it.
    pub exchange: Exchange,
    /// The market that `hoga up` simulates.
    pub market: Market,
    /// Ticks from outside: where they come from and what carries them.
    pub feed: crate::plant::config::Feed,
    /// What is made of ticks, by two groups of processors.
    pub groups: crate::plant::config::Groups,
    /// Logging.
    pub telemetry: Telemetry,
}

/// `[data]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// The folder for everything that lasts. Created when missing. One running system per folder.
    pub dir: PathBuf,
}

/// `[engine]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// When an answer may leave: `sync` (on stable storage; the default), `write` (in the operating system's hands: survives a crash of the
    /// process, not of the machine), `none` (survives nothing).
    pub durability: Durability,
    /// Slots of the inbound ring, a power of two.
    pub ring: usize,
    /// Slots that only cancels may use.
    pub ring_reserve: usize,
    /// Size of a journal segment in MiB.
    pub segment_mib: u64,
    /// Commands between two snapshots.
    pub snapshot_every: u64,
    /// Whether the journal is kept from its first command on, for audits that replay all of it. Otherwise segments go that neither the kept
    /// snapshots nor a read model need.
    pub keep_journal: bool,
    /// Where a command must be before its answer: `local` (this machine's disk, see `durability`) or `kafka` (a replicated topic, from
    /// which a standby takes over).
    pub journal: JournalPlace,
    /// With `journal = "kafka"`: the number of the shard; its commands are in the topic `engine.commands.N`.
    pub shard: u16,
    /// With `journal = "kafka"`: the name of this node, different on each; empty takes the host's name and the process number.
    pub node: String,
    /// With `journal = "kafka"`: a standby takes over after the leader's silence of this many milliseconds.
    pub lease_ms: u64,
}

/// Where a command must be before its answer leaves.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalPlace {
    /// On this machine's disk.
    Local,
    /// On a replicated Kafka topic.
    Kafka,
}

/// When an answer may leave.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// After fdatasync.
    Sync,
    /// After write.
    Write,
    /// At once.
    None,
}

/// `[event_log]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventLog {
    /// Where consumers read: `embedded` (segment files, in this process) or `kafka`. With Kafka the segment files are still written first:
    /// they are what waits while Kafka is away.
    pub backend: LogBackend,
    /// Partitions of each topic. Fixed once the topic exists.
    pub partitions: u32,
    /// What a topic with `cleanup = delete` keeps, in MiB, as far as every group has read it.
    pub retention_mib: u64,
    /// Size of a segment in MiB.
    pub segment_mib: u64,
}

/// Where consumers read.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogBackend {
    /// Segment files in the data folder, one process.
    Embedded,
    /// Apache Kafka; groups may run in processes of their own.
    Kafka,
}

/// `[kafka]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kafka {
    /// Brokers to begin with, `host:port,host:port`.
    pub bootstrap: String,
    /// Put before each topic's and group's name, so that several systems can share a cluster.
    pub prefix: String,
    /// Replicas of each topic. Fixed once the topic exists.
    pub replication: u16,
    /// Replicas that must have a message before it counts. Fixed once the topic exists.
    pub min_insync: u16,
    /// How long topics with `cleanup = delete` keep messages, in hours; 0 for ever. Fixed once the topic exists.
    pub retention_hours: u32,
    /// How long the producer lets messages gather, in milliseconds.
    pub linger_ms: u64,
    /// What the producer may hold that is not acknowledged, in MiB; then publishing waits.
    pub queue_mib: u32,
    /// `classic` (cooperative-sticky) or `consumer` (KIP-848; refused with a client library in which it does not work).
    pub group_protocol: String,
    /// A member that is silent for this many milliseconds loses its partitions.
    pub session_ms: u64,
    /// Milliseconds between two signs of life.
    pub heartbeat_ms: u64,
    /// Static membership: the name of this process in its groups, different on each; empty for none. A restart within the session's time
    /// then moves no partitions.
    pub instance: String,
}

/// `[store]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `sqlite` (files in the data folder) or `postgres`.
    pub backend: StoreBackend,
    /// With `sqlite`: the folder of the files; empty for `store` in the data folder.
    pub dir: PathBuf,
    /// With `postgres`: `postgres://user@host:port/database`. A password may come from `HOGA__STORE__URL`.
    pub url: String,
    /// Most messages in one transaction.
    pub batch: usize,
    /// How long messages may gather before a small batch is written, in milliseconds.
    pub linger_ms: u64,
    /// Read connections of each group's tables.
    pub readers: usize,
    /// How long a connection may take to be made, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a statement may take, in milliseconds.
    pub statement_timeout_ms: u64,
}

/// The read models' database.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreBackend {
    /// A file for each group, in the data folder.
    Sqlite,
    /// A schema for each group, in one PostgreSQL database.
    Postgres,
}

/// `[exchange]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exchange {
    /// Its address, `http://host:port`: where `stop-trigger` places the orders of alerts, when it runs in a process without the exchange.
    pub url: String,
    /// The exchange's `api.admin_token`, which has to be set there for this. May come from `HOGA__EXCHANGE__TOKEN`.
    pub token: String,
}

/// `[market]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Market {
    /// Whether simulated makers and takers trade.
    pub enabled: bool,
    /// Seed of the simulated flow.
    pub seed: u64,
    /// Orders and cancels a second over all symbols.
    pub rate: u32,
}

/// `[telemetry]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// What is logged: `error`, `warn`, `info`, `debug`, or per module as in `info,hoga_engine=debug`.
    pub log: String,
    /// One JSON object a line instead of text.
    pub json: bool,
}

impl Default for Data {
    fn default() -> Data {
        Data { dir: PathBuf::from("data") }
    }
}

impl Default for Engine {
    fn default() -> Engine {
        Engine {
            durability: Durability::Sync,
            ring: 16_384,
            ring_reserve: 1_024,
            segment_mib: 64,
            snapshot_every: 2_000_000,
            keep_journal: false,
            journal: JournalPlace::Local,
            shard: 0,
            node: String::new(),
            lease_ms: 1_500,
        }
    }
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog { backend: LogBackend::Embedded, partitions: 1, retention_mib: 4_096, segment_mib: 64 }
    }
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange { url: "http://127.0.0.1:8080".into(), token: String::new() }
    }
}

impl Default for Kafka {
    fn default() -> Kafka {
        Kafka {
            bootstrap: "127.0.0.1:9092".into(),
            prefix: String::new(),
            replication: 1,
            min_insync: 1,
            retention_hours: 0,
            linger_ms: 5,
            queue_mib: 64,
            group_protocol: "classic".into(),
            session_ms: 10_000,
            heartbeat_ms: 3_000,
            instance: String::new(),
        }
    }
}

impl Default for Store {
    fn default() -> Store {
        Store {
            backend: StoreBackend::Sqlite,
            dir: PathBuf::new(),
            url: "postgres://hoga@127.0.0.1:5432/hoga".into(),
            batch: 4_096,
            linger_ms: 200,
            readers: 4,
            connect_timeout_ms: 5_000,
            statement_timeout_ms: 30_000,
        }
    }
}

impl Default for Market {
    fn default() -> Market {
        Market { enabled: true, seed: 7, rate: 150 }
    }
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry { log: "info".into(), json: false }
    }
}

/// Why a configuration is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "[config-read] cannot read the configuration {path}: {source}. Check the path given with --config"
    )]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML or has keys or values that do not fit.
    #[error("[config-invalid] {origin}: {message}. `hoga config show` lists every key with its default")]
    Invalid {
        /// Which file or variable.
        origin: String,
        /// What is wrong.
        message: String,
    },
}

impl Config {
    /// Reads the file, if one is given, and applies the environment's overrides.
    pub fn load(
        path: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Config, ConfigError> {
        let mut table = match path {
            None => toml::Table::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
                text.parse::<toml::Table>().map_err(|e| ConfigError::Invalid {
                    origin: path.display().to_string(),
                    message: e.to_string().trim_end().to_owned(),
                })?
            }
        };
        let mut overrides: Vec<(String, String)> =
            environment.filter(|(name, _)| name.starts_with("HOGA__")).collect();
        overrides.sort();
        for (name, value) in &overrides {
            apply(&mut table, name, value)?;
        }
        let origin = match (path, overrides.is_empty()) {
            (Some(path), true) => path.display().to_string(),
            (Some(path), false) => format!("{} with HOGA__… variables", path.display()),
            (None, _) => "HOGA__… variables".to_owned(),
        };
        let config: Config = table
            .try_into()
            // The whole text, not only the message: it is what names the key.
            .map_err(|e: toml::de::Error| ConfigError::Invalid {
                origin,
                message: one_line(&e.to_string()),
            })?;
        config.check()?;
        Ok(config)
    }

    /// The folder of the read models' files.
    pub fn store_dir(&self) -> PathBuf {
        if self.store.dir.as_os_str().is_empty() {
            self.data.dir.join("store")
        } else {
            self.store.dir.clone()
        }
    }

    /// What types cannot say.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fail =
            |origin: &str, message: String| Err(ConfigError::Invalid { origin: origin.to_owned(), message });
        if !self.engine.ring.is_power_of_two() || self.engine.ring < 64 {
            return fail("engine.ring", format!("{} is not a power of two of at least 64", self.engine.ring));
        }
        if self.engine.ring_reserve * 2 > self.engine.ring {
            return fail("engine.ring_reserve", "must be at most half of engine.ring".into());
        }
        for (name, mib) in [
            ("engine.segment_mib", self.engine.segment_mib),
            ("event_log.segment_mib", self.event_log.segment_mib),
        ] {
            if !(1..=1024).contains(&mib) {
                return fail(name, format!("{mib} is not within 1 to 1024"));
            }
        }
        if !(1..=256).contains(&self.event_log.partitions) {
            return fail(
                "event_log.partitions",
                format!("{} is not within 1 to 256", self.event_log.partitions),
            );
        }
        let kafka = &self.kafka;
        if kafka.replication == 0 || kafka.min_insync == 0 || kafka.min_insync > kafka.replication {
            return fail("kafka.min_insync", "must be from 1 to kafka.replication".into());
        }
        if kafka.heartbeat_ms == 0 || kafka.heartbeat_ms * 3 > kafka.session_ms {
            return fail(
                "kafka.heartbeat_ms",
                "must be above 0 and at most a third of kafka.session_ms".into(),
            );
        }
        if !["classic", "consumer"].contains(&kafka.group_protocol.as_str()) {
            let message = format!("{:?} is neither \"classic\" nor \"consumer\"", kafka.group_protocol);
            return fail("kafka.group_protocol", message);
        }
        if kafka.bootstrap.trim().is_empty() || kafka.queue_mib == 0 {
            return fail("kafka", "bootstrap must name a broker, queue_mib must be above 0".into());
        }
        if !(1..=100_000).contains(&self.store.batch) || !(1..=256).contains(&self.store.readers) {
            return fail("store", "batch is from 1 to 100000, readers from 1 to 256".into());
        }
        if self.store.connect_timeout_ms == 0 || self.store.statement_timeout_ms == 0 {
            return fail("store", "timeouts must be above 0".into());
        }
        if !(300..=60_000).contains(&self.engine.lease_ms) {
            return fail("engine.lease_ms", format!("{} is not within 300 to 60000", self.engine.lease_ms));
        }
        if !cfg!(feature = "kafka")
            && (self.event_log.backend == LogBackend::Kafka || self.engine.journal == JournalPlace::Kafka)
        {
            return fail(
                "event_log.backend",
                "this build is without Kafka: build it with default features".into(),
            );
        }
        if !cfg!(feature = "postgres") && self.store.backend == StoreBackend::Postgres {
            let message = "this build is without PostgreSQL: build it with default features";
            return fail("store.backend", message.into());
        }
        if self.market.rate > 100_000 {
            return fail("market.rate", format!("{} is over 100000", self.market.rate));
        }
        if let Err((key, message)) = self.feed.check().and_then(|()| self.groups.check()) {
            return fail(key, message);
        }
        if let Err(error) = self.api.check() {
            return fail("api", error.to_string());
        }
        Ok(())
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Sets one `HOGA__A__B=value` in the table. A value that reads as TOML is taken as such, anything else as text.
fn apply(table: &mut toml::Table, name: &str, value: &str) -> Result<(), ConfigError> {
    let parts: Vec<String> = name["HOGA__".len()..].split("__").map(str::to_lowercase).collect();
    let parsed = format!("v = {value}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut t| t.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let mut at = table;
    let (last, path) = parts.split_last().expect("split gives at least one part");
    for part in path {
        let entry = at.entry(part.clone()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        at = entry.as_table_mut().ok_or_else(|| ConfigError::Invalid {
            origin: name.to_owned(),
            message: format!("'{part}' is a value, not a section"),
        })?;
    }
    at.insert(last.clone(), parsed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::load(None, pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())))
    }

    #[test]
    fn defaults_are_valid_and_survive_a_round_trip() {
        let config = load(&[]).unwrap();
        let text = toml::to_string(&config).unwrap();
        let again: Config = toml::from_str(&text).unwrap();
        assert_eq!(toml::to_string(&again).unwrap(), text);
    }

    #[test]
    fn the_environment_overrides() {
        let config = load(&[
            ("HOGA__API__LISTEN", "0.0.0.0:1"),
            ("HOGA__ENGINE__RING", "1024"),
            ("HOGA__ENGINE__RING_RESERVE", "64"),
            ("HOGA__ENGINE__DURABILITY", "write"),
            ("HOGA__MARKET__ENABLED", "false"),
            ("HOGA__API__ALLOWED_ORIGINS", "[\"https://a.example\"]"),
            ("OTHER", "1"),
        ])
        .unwrap();
        assert_eq!(config.api.listen, "0.0.0.0:1");
        assert_eq!(config.engine.ring, 1024);
        assert_eq!(config.engine.durability, Durability::Write);
        assert!(!config.market.enabled);
        assert_eq!(config.api.allowed_origins, ["https://a.example"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (pair, part) in [
            (("HOGA__ENGINE__RNG", "1024"), "rng"),
            (("HOGA__ENGINE__RING", "1000"), "power of two"),
            (("HOGA__ENGINE__RING", "lots"), "lots"),
            (("HOGA__ENGINE__RING", "lots"), "engine.ring"),
            (("HOGA__ENGINE__DURABILITY", "maybe"), "maybe"),
            (("HOGA__ENGINE__DURABILITY", "maybe"), "engine.durability"),
            (("HOGA__API__LIMITS__RIN", "1"), "api.limits"),
            (("HOGA__EVENT_LOG__PARTITIONS", "0"), "partitions"),
            (("HOGA__KAFKA__MIN_INSYNC", "2"), "kafka.min_insync"),
            (("HOGA__KAFKA__HEARTBEAT_MS", "9000"), "kafka.heartbeat_ms"),
            (("HOGA__KAFKA__GROUP_PROTOCOL", "eager"), "eager"),
            (("HOGA__STORE__READERS", "0"), "store"),
            (("HOGA__ENGINE__LEASE_MS", "1"), "engine.lease_ms"),
            (("HOGA__FEED__LANES", "0"), "feed.lanes"),
            (("HOGA__FEED__BUS", "pigeon"), "feed.bus"),
            (("HOGA__GROUPS__INTERVALS", "[\"7m\"]"), "7m"),
            (("HOGA__GROUPS__LEASE", "redis"), "groups.lease"),
        ] {
            let error = load(&[pair]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert!(error.contains("[config-invalid]"), "{error}");
        }
    }
}
