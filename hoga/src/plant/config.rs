//! `[feed]` and `[groups]`: the tick plant.

use std::path::PathBuf;

use hoga_feed::groups::Shows;
use hoga_feed::sources::Mapping;
use serde::{Deserialize, Serialize};

/// `[feed]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Feed {
    /// Whether `hoga up` has a tick plant, as with `--feed`.
    pub enabled: bool,
    /// Where trades come from.
    pub source: Source,
    /// With an exchange's name: its markets, as it spells them.
    pub pairs: Vec<String>,
    /// With `capture`: the recording. Lines are `RECEIVE_TIME: MESSAGE`.
    pub file: PathBuf,
    /// With `capture`: times the recorded speed; 0: as fast as it goes.
    pub speed: u32,
    /// With `websocket`: where to, `ws://…` or `wss://…`; with an exchange's name: instead of its own address.
    pub websocket: String,
    /// With `websocket`: text messages that are sent after each connection.
    pub subscribe: Vec<String>,
    /// With `websocket`, and with `capture` of another exchange: where in a message things are (see the guide).
    pub mapping: Option<toml::Table>,
    /// With `simulator`: of everything that is random.
    pub seed: u64,
    /// With `simulator`: how many symbols.
    pub symbols: u32,
    /// With `simulator`: milliseconds between two trades of a symbol.
    pub interval_ms: u64,
    /// With `simulator`: symbols with an interval of their own, as `{ number = 3, interval_ms = 1 }`.
    pub hot: Vec<HotSymbol>,
    /// With `simulator`: a burst begins every so many milliseconds; 0: there are none.
    pub burst_every_ms: u64,
    /// With `simulator`: how long a burst lasts.
    pub burst_ms: u64,
    /// With `simulator`: how many times as often symbols trade in a burst.
    pub burst_factor: u32,
    /// Lanes: partitions of the topic, channels on Redis. Fixed once the spool exists.
    pub lanes: u32,
    /// What the spool keeps of each lane, in MiB, as far as the bus has taken it.
    pub spool_mib: u64,
    /// Ticks that may wait for the bus; with as many the spool is full and takes no more.
    pub most_waiting: u64,
    /// What carries ticks to processors: `inproc` (all in one process), `kafka`, `redis` (Pub/Sub).
    pub bus: Bus,
    /// With `bus = "redis"`: the server.
    pub redis: String,
    /// With `bus = "redis"`: what is in front of channels' names.
    pub prefix: String,
    /// With `bus = "redis"`: where processors read what Pub/Sub has lost: `spool` (the feed's own, over HTTP) or `kafka`.
    pub behind: Behind,
    /// With `behind = "spool"`: the address of the feed's process, `http://host:port`.
    pub url: String,
    /// With Kafka: how long the producer lets ticks gather, in milliseconds.
    pub linger_ms: u64,
    /// An experiment, with `bus = "kafka"`: what the broker confirms, `all`, `1` or `0`. Anything but `all` may lose ticks, and the order monitor shows it.
    pub acks: Acks,
    /// An experiment, with `bus = "kafka"`: ticks have no key and go to any partition. Order is lost, and the order monitor shows it.
    pub keyless: bool,
}

/// What a broker confirms.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Acks {
    /// That all replicas in sync have it.
    #[serde(rename = "all")]
    All,
    /// That the leader has it.
    #[serde(rename = "1")]
    Leader,
    /// Nothing.
    #[serde(rename = "0")]
    None,
}

/// Where trades come from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A made-up market, seeded.
    Simulator,
    /// A recording.
    Capture,
    /// Binance, live.
    Binance,
    /// Upbit, live.
    Upbit,
    /// Kraken, live.
    Kraken,
    /// Bitstamp, live.
    Bitstamp,
    /// Any WebSocket, with a mapping.
    Websocket,
    /// The exchange's own trades; in the same process.
    Trades,
}

/// A symbol of the simulator with an interval of its own.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HotSymbol {
    /// Which, from 0.
    pub number: u32,
    /// Milliseconds between two of its trades.
    pub interval_ms: u64,
}

/// What carries ticks.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bus {
    /// The spool itself, in one process.
    Inproc,
    /// Apache Kafka.
    Kafka,
    /// Redis Pub/Sub.
    Redis,
}

/// What is behind Pub/Sub.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Behind {
    /// The feed's spool.
    Spool,
    /// Apache Kafka.
    Kafka,
}

/// `[groups]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Groups {
    /// The name of this process among members, different on each; empty takes the host's name and the process number.
    pub node: String,
    /// Loops of a member that fold ticks.
    pub loops: u32,
    /// Threads of a member that read the bus.
    pub readers: u32,
    /// Whether events are looked for, on a loop of their own.
    pub detect: bool,
    /// Weight of the newest value in the moving averages, in thousandths.
    pub alpha: u32,
    /// A price this far from its average is a spike, in thousandths.
    pub spike: u32,
    /// A quantity this many times its average is a surge, in thousandths.
    pub surge: u32,
    /// Intervals of candles.
    pub intervals: Vec<String>,
    /// The share of a loop from which a symbol gets a loop of its own, in thousandths; 0: never.
    pub hot: u32,
    /// Where the latest of each symbol is: `memory` (all in one process) or `redis`.
    pub cache: Cache,
    /// With `cache = "redis"`: the server of group A.
    pub redis_a: String,
    /// With `cache = "redis"`: the server of group B.
    pub redis_b: String,
    /// With `cache = "redis"`: what is in front of keys.
    pub prefix: String,
    /// Who leads a group: `local` (members in one process), `redis` (in the group's own cache) or `zookeeper`.
    pub lease: Lease,
    /// A standby takes over after the leader's silence of this many milliseconds.
    pub lease_ms: u64,
    /// With `lease = "zookeeper"`: its servers, `host:port,host:port`.
    pub zookeeper: String,
    /// What is shown: `active` (the group that traffic is on) or `first` (whichever group is first).
    pub shows: Shows,
    /// A leader that has been silent for so many milliseconds is gone for those who show it.
    pub silent_ms: u64,
    /// A group that has been behind for so many milliseconds is not shown.
    pub behind_ms: u64,
}

/// Where the latest of each symbol is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// In this process.
    Memory,
    /// On Redis, one server for each group.
    Redis,
}

/// Who leads.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lease {
    /// Within this process.
    Local,
    /// In the group's cache.
    Redis,
    /// Apache ZooKeeper.
    Zookeeper,
}

impl Default for Feed {
    fn default() -> Feed {
        Feed {
            enabled: false,
            source: Source::Simulator,
            pairs: Vec::new(),
            file: PathBuf::new(),
            speed: 1,
            websocket: String::new(),
            subscribe: Vec::new(),
            mapping: None,
            seed: 1,
            symbols: 202,
            interval_ms: 100,
            hot: Vec::new(),
            burst_every_ms: 0,
            burst_ms: 0,
            burst_factor: 10,
            lanes: 6,
            spool_mib: 256,
            most_waiting: 50_000_000,
            bus: Bus::Inproc,
            redis: "redis://127.0.0.1:6379".into(),
            prefix: "hoga".into(),
            behind: Behind::Spool,
            url: "http://127.0.0.1:8081".into(),
            linger_ms: 1,
            acks: Acks::All,
            keyless: false,
        }
    }
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            node: String::new(),
            loops: 2,
            readers: 2,
            detect: true,
            alpha: 100,
            spike: 20,
            surge: 10_000,
            intervals: ["1m", "5m", "1h", "1d"].map(str::to_owned).into(),
            hot: 250,
            cache: Cache::Memory,
            redis_a: "redis://127.0.0.1:6379".into(),
            redis_b: "redis://127.0.0.1:6380".into(),
            prefix: "hoga".into(),
            lease: Lease::Local,
            lease_ms: 600,
            zookeeper: "127.0.0.1:2181".into(),
            shows: Shows::Active,
            silent_ms: 200,
            behind_ms: 1_000,
        }
    }
}

impl Feed {
    /// The mapping, if one is given.
    pub fn mapping(&self) -> Result<Option<Mapping>, String> {
        let parsed = self.mapping.clone().map(toml::Table::try_into::<Mapping>).transpose();
        parsed.map_err(|error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// What types cannot say: the key and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !(1..=1024).contains(&self.lanes) {
            return Err(("feed.lanes", format!("{} is not within 1 to 1024", self.lanes)));
        }
        if !(1..=1_000_000).contains(&self.symbols) || self.interval_ms == 0 {
            return Err(("feed.symbols", "1 to 1000000 symbols, with an interval above 0".into()));
        }
        if self.spool_mib == 0 || self.most_waiting == 0 {
            return Err(("feed.spool_mib", "the spool needs room for something".into()));
        }
        let live = matches!(self.source, Source::Binance | Source::Upbit | Source::Kraken | Source::Bitstamp);
        if live && self.pairs.is_empty() {
            return Err(("feed.pairs", "an exchange's feed needs at least one market".into()));
        }
        if self.source == Source::Capture && self.file.as_os_str().is_empty() {
            return Err(("feed.file", "a recording's file is needed".into()));
        }
        if self.source == Source::Websocket && (self.websocket.is_empty() || self.mapping.is_none()) {
            return Err(("feed.websocket", "an address and [feed.mapping] are needed".into()));
        }
        if let Err(error) = self.mapping() {
            return Err(("feed.mapping", error));
        }
        if (self.keyless || self.acks != Acks::All) && self.bus != Bus::Kafka {
            return Err(("feed.acks", "experiments with acks and keys need bus = \"kafka\"".into()));
        }
        if self.prefix.is_empty() {
            return Err(("feed.prefix", "must not be empty".into()));
        }
        if !cfg!(feature = "redis") && self.bus == Bus::Redis {
            return Err(("feed.bus", "this build is without Redis: build it with default features".into()));
        }
        if !cfg!(feature = "kafka") && (self.bus == Bus::Kafka || self.behind == Behind::Kafka) {
            return Err(("feed.bus", "this build is without Kafka: build it with default features".into()));
        }
        Ok(())
    }
}

impl Groups {
    /// What types cannot say: the key and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !(1..=256).contains(&self.loops) || !(1..=256).contains(&self.readers) {
            return Err(("groups.loops", "loops and readers are from 1 to 256".into()));
        }
        if !(1..=1000).contains(&self.alpha) {
            return Err(("groups.alpha", format!("{} is not within 1 to 1000 thousandths", self.alpha)));
        }
        if let Some(wrong) =
            self.intervals.iter().find(|text| hoga_core::folds::candle::Interval::parse(text).is_none())
        {
            return Err((
                "groups.intervals",
                format!("{wrong:?} is no interval: 1s, 1m, 3m, 5m, 15m, 30m, 1h, 4h, 1d, 1w"),
            ));
        }
        if self.intervals.is_empty() {
            return Err(("groups.intervals", "at least one interval is needed".into()));
        }
        if !(30..=60_000).contains(&self.lease_ms) {
            return Err(("groups.lease_ms", format!("{} is not within 30 to 60000", self.lease_ms)));
        }
        if self.silent_ms < 20 {
            return Err(("groups.silent_ms", format!("{} is below 20", self.silent_ms)));
        }
        if self.cache == Cache::Memory && self.lease == Lease::Redis {
            return Err(("groups.lease", "a lease in the group's cache needs cache = \"redis\"".into()));
        }
        if !cfg!(feature = "redis") && (self.cache == Cache::Redis || self.lease == Lease::Redis) {
            return Err((
                "groups.cache",
                "this build is without Redis: build it with default features".into(),
            ));
        }
        if !cfg!(feature = "zookeeper") && self.lease == Lease::Zookeeper {
            return Err((
                "groups.lease",
                "this build is without ZooKeeper: build it with default features".into(),
            ));
        }
        Ok(())
    }
}
