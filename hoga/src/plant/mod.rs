//! The tick plant of a process: the parts that its roles name, put together as the configuration says.

pub mod commands;
pub mod config;
#[cfg(feature = "kafka")]
mod loose;
mod spool;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hoga_api::{Page, TickPlant};
use hoga_core::folds::candle::Interval;
use hoga_core::ids::Timestamp;
use hoga_feed::bus::{Bus, LogBus, Published};
use hoga_feed::cache::{GroupCache, MemoryCache};
use hoga_feed::detect::{DetectConfig, DetectedEvent};
use hoga_feed::feeder::Feeder;
use hoga_feed::gateway::{Gateway, GatewayConfig};
use hoga_feed::groups::{Desk, DeskConfig, GroupName, Member, MemberConfig, Rule};
use hoga_feed::plant::{Hot, PlantConfig};
use hoga_feed::sources::{
    Burst, Capture, Completed, Format, HotSymbol, Simulator, SimulatorConfig, Source, Speed, Start, SymbolOf,
    TRADE_COMPLETED, WebSocketConfig, WebSocketSource,
};
use hoga_feed::state::StateConfig;
use hoga_log::LogError;
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog, Message, TopicSpec};
use hoga_log::lease::{Lease, LeaseError, LocalLeases};
use hoga_log::relay::{Relay, RelayState};

use crate::config::Config;
use crate::maintenance::Maintenance;
use crate::process::Signals;
use crate::run::until;
use crate::{End, coded};

/// The topic of ticks.
pub const TICKS: &str = "market.ticks";
/// The topic of detected events.
pub const EVENTS: &str = "market.events";
/// How long the end waits for Kafka to acknowledge what is on its way.
const DRAIN: Duration = Duration::from_secs(2);

/// Which parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The feed.
    pub feed: bool,
    /// A member of each of these groups.
    pub members: Vec<GroupName>,
    /// What shows the groups.
    pub desk: bool,
}

impl Wanted {
    /// All of them.
    pub fn all() -> Wanted {
        Wanted { feed: true, members: GroupName::BOTH.into(), desk: true }
    }

    fn is_one_process(&self) -> bool {
        *self == Wanted::all()
    }
}

/// What carries ticks from the spool to a bus outside of this process.
enum Carrier {
    Kafka(Arc<Relay>),
    /// An experiment that breaks order or loses.
    #[cfg(feature = "kafka")]
    Loose(loose::Loose),
    #[cfg(feature = "redis")]
    Redis(Arc<hoga_feed::bus::Publisher>),
}

/// The running parts. They end in order by [`Plant::stop`].
pub struct Plant {
    feeder: Option<Arc<Feeder>>,
    carriers: Vec<Carrier>,
    spool: Option<Arc<dyn Bus>>,
    /// The log of ticks that members read, or that is behind what they read.
    log: Option<Arc<dyn Bus>>,
    members: Vec<(GroupName, Arc<Member>)>,
    desk: Option<Arc<Desk>>,
    events: Option<EventWriter>,
    /// Of the spool.
    maintenance: Option<Maintenance>,
    #[cfg(feature = "kafka")]
    kafka: Option<Arc<hoga_log::kafka::KafkaLog>>,
    ports: Vec<u16>,
}

impl Plant {
    /// Starts the parts. Waits for Kafka where it is needed and away; `None` when a signal came first.
    pub fn start(
        config: &Config,
        wanted: &Wanted,
        trades: Option<Trades>,
        signals: &Signals,
    ) -> Result<Option<Plant>, End> {
        check(config, wanted)?;
        let mut plant = Plant {
            feeder: None,
            carriers: Vec::new(),
            spool: None,
            log: None,
            members: Vec::new(),
            desk: None,
            events: None,
            maintenance: None,
            #[cfg(feature = "kafka")]
            kafka: None,
            ports: ports(config),
        };
        let mut spool_log = None;
        if wanted.feed {
            spool_log = Some(plant.start_feed(config, trades)?);
        }
        let caches = caches(config)?;
        if !wanted.members.is_empty() {
            let Some(bus) = plant.bus(config, signals)? else { return Ok(None) };
            let leases = LocalLeases::new();
            for group in &wanted.members {
                let cache = caches[*group as usize].clone();
                let lease = lease(config, *group, &leases)?;
                let member = Member::start(&bus, cache, lease, member(config, *group));
                plant.members.push((*group, Arc::new(member.map_err(coded(LogError::code))?)));
            }
        }
        if wanted.desk {
            let desk = Arc::new(Desk::start(caches, desk_config(config)).map_err(coded(LogError::code))?);
            let log = match spool_log {
                Some(log) => Some(log),
                None => plant.events_on_kafka(config, signals)?,
            };
            if let Some(log) = log {
                plant.events = Some(EventWriter::start(log, &desk)?);
            }
            plant.desk = Some(desk);
        }
        Ok(Some(plant))
    }

    /// For `GET /api/v1/plant` and metrics.
    pub fn view(&self) -> TickPlant {
        type Told = (hoga_feed::feeder::FeedStatus, Option<Published>);
        let published: Arc<dyn Fn() -> Option<Published> + Send + Sync> = match self.carriers.last() {
            None => Arc::new(|| None),
            Some(Carrier::Kafka(relay)) => {
                let relay = Arc::downgrade(relay);
                Arc::new(move || {
                    let status = relay.upgrade()?.status();
                    let connected = matches!(status.state, RelayState::Current | RelayState::CatchingUp);
                    Some(Published { ticks: status.counters.messages, waiting: status.lag(), connected })
                })
            }
            #[cfg(feature = "kafka")]
            Some(Carrier::Loose(loose)) => {
                let told = loose.told();
                Arc::new(move || Some(told()))
            }
            #[cfg(feature = "redis")]
            Some(Carrier::Redis(publisher)) => {
                let publisher = Arc::downgrade(publisher);
                Arc::new(move || {
                    let stats = publisher.upgrade()?.stats();
                    Some(Published { ticks: stats.ticks, waiting: stats.waiting, connected: stats.connected })
                })
            }
        };
        let feed = self.feeder.as_ref().map(|feeder| {
            let feeder = Arc::downgrade(feeder);
            let told = move || -> Told {
                let status = feeder.upgrade().map(|feeder| feeder.status()).unwrap_or_default();
                (status, published())
            };
            Arc::new(told) as Arc<dyn Fn() -> Told + Send + Sync>
        });
        TickPlant {
            feed,
            members: self.members.clone(),
            desk: self.desk.clone(),
            log: self.log.clone(),
            ports: self.ports.clone(),
        }
    }

    /// Pages that only this process has: the feed's spool.
    pub fn pages(&self) -> impl Fn(&str) -> Option<Page> + Send + Sync + use<> {
        let spool = self.spool.clone();
        move |path| spool::page(&**spool.as_ref()?, path)
    }

    /// What has ended by itself and ends the process.
    pub fn fault(&self) -> Option<String> {
        if let Some(fault) = self.feeder.as_ref().and_then(|feeder| feeder.status().fault) {
            return Some(fault);
        }
        self.carriers.iter().find_map(|carrier| match carrier {
            Carrier::Kafka(relay) => match relay.status().state {
                RelayState::Stopped(fault) => Some(format!("[{}] {fault}", fault.code())),
                _ => None,
            },
            #[cfg(feature = "kafka")]
            Carrier::Loose(_) => None,
            #[cfg(feature = "redis")]
            Carrier::Redis(_) => None,
        })
    }

    /// Ends in order: no more trades, what is in the spool on its way as far as there is time, leases given up.
    pub fn stop(self) {
        drop(self.feeder);
        if let Some(maintenance) = self.maintenance {
            maintenance.stop();
        }
        for carrier in self.carriers {
            match carrier {
                Carrier::Kafka(relay) => {
                    let drained = Arc::into_inner(relay).is_some_and(|relay| relay.stop(DRAIN));
                    if !drained {
                        tracing::info!(
                            "ticks that Kafka has not acknowledged stay in the spool; the next start sends them"
                        );
                    }
                }
                #[cfg(feature = "kafka")]
                Carrier::Loose(loose) => drop(loose),
                #[cfg(feature = "redis")]
                Carrier::Redis(publisher) => drop(publisher),
            }
        }
        drop(self.members);
        drop(self.events);
        drop(self.desk);
        #[cfg(feature = "kafka")]
        if let Some(kafka) = self.kafka
            && !kafka.close(DRAIN)
        {
            tracing::warn!(
                "Kafka could not be left in order within {DRAIN:?}; the process ends all the same"
            );
        }
    }

    fn start_feed(&mut self, config: &Config, trades: Option<Trades>) -> Result<Arc<dyn EventLog>, End> {
        let (feed, folder) = (&config.feed, config.data.dir.join("feed"));
        let settings = EmbeddedConfig { segment_bytes: 16 << 20, ..EmbeddedConfig::default() };
        let log = EmbeddedLog::open(folder.join("log"), settings).map_err(coded(LogError::code))?;
        let log: Arc<dyn EventLog> = Arc::new(log);
        let (source, rising_ids) = source(config, trades)?;
        let gateway = GatewayConfig {
            topic: TICKS.into(),
            rising_ids,
            retention: feed.spool_mib << 20,
            most_waiting: feed.most_waiting,
            ..GatewayConfig::new(feed.lanes, &folder.join("numbers"))
        };
        let gateway = Gateway::open(log.clone(), gateway).map_err(coded(LogError::code))?;
        self.spool = Some(Arc::new(LogBus::new(log.clone(), TICKS).map_err(coded(LogError::code))?));
        self.log.clone_from(&self.spool);
        #[cfg_attr(not(feature = "redis"), expect(unused_mut, reason = "only a publisher wants to know"))]
        let mut came: Box<dyn Fn() + Send> = Box::new(|| ());
        match feed.bus {
            config::Bus::Inproc => {}
            #[cfg(feature = "kafka")]
            config::Bus::Kafka if feed.keyless || feed.acks != config::Acks::All => {
                self.carriers.push(Carrier::Loose(loose::Loose::start(config, log.clone())?));
            }
            config::Bus::Kafka => self.carriers.push(Carrier::Kafka(Arc::new(relay(config, &log)?))),
            #[cfg(feature = "redis")]
            config::Bus::Redis => {
                let publisher =
                    hoga_feed::bus::Publisher::start(log.clone(), TICKS, &feed.redis, &feed.prefix);
                let publisher = Arc::new(publisher.map_err(coded(LogError::code))?);
                let nudged = Arc::downgrade(&publisher);
                came = Box::new(move || {
                    if let Some(publisher) = nudged.upgrade() {
                        publisher.nudge();
                    }
                });
                // Kafka may be behind Pub/Sub: the fast way and the sure one.
                if feed.behind == config::Behind::Kafka {
                    self.carriers.push(Carrier::Kafka(Arc::new(relay(config, &log)?)));
                }
                self.carriers.push(Carrier::Redis(publisher));
            }
            #[cfg(not(feature = "redis"))]
            config::Bus::Redis => return Err(End::Usage("this build is without Redis".into())),
        }
        let feeder = Feeder::start(gateway, source, came).map_err(coded(LogError::code))?;
        self.feeder = Some(Arc::new(feeder));
        let maintenance = Maintenance::start(log.clone());
        self.maintenance = Some(
            maintenance
                .map_err(|error| End::Start(format!("[threads] a thread cannot be started: {error}")))?,
        );
        Ok(log)
    }

    /// What members read.
    fn bus(&mut self, config: &Config, signals: &Signals) -> Result<Option<Arc<dyn Bus>>, End> {
        let feed = &config.feed;
        match (feed.bus, self.spool.clone()) {
            (config::Bus::Inproc, Some(spool)) => {
                self.log = Some(spool.clone());
                Ok(self.log.clone())
            }
            (config::Bus::Inproc, None) => Err(End::Usage(
                "feed.bus = \"inproc\" needs the feed in the same process: run it with --role feed too, or set feed.bus to \"kafka\" or \"redis\"".into(),
            )),
            (config::Bus::Kafka, _) => {
                self.log = self.kafka_bus(config, signals)?;
                Ok(self.log.clone())
            }
            (config::Bus::Redis, spool) => {
                let behind: Option<Arc<dyn Bus>> = match (feed.behind, spool) {
                    (_, Some(spool)) => Some(spool),
                    (config::Behind::Kafka, None) => self.kafka_bus(config, signals)?,
                    (config::Behind::Spool, None) => {
                        let connect = || spool::SpoolClient::connect(&feed.url);
                        let client = until(signals, "the feed", LogError::is_transient, connect);
                        client.map_err(coded(LogError::code))?.map(|client| Arc::new(client) as Arc<dyn Bus>)
                    }
                };
                self.log.clone_from(&behind);
                match behind {
                    None => Ok(None),
                    Some(behind) => redis_bus(config, behind).map(Some),
                }
            }
        }
    }

    #[cfg(feature = "kafka")]
    fn open_kafka(
        &mut self,
        config: &Config,
        topic: &TopicSpec,
        signals: &Signals,
    ) -> Result<Option<Arc<dyn EventLog>>, End> {
        if self.kafka.is_none() {
            let log = hoga_log::kafka::KafkaLog::open(kafka_config(config)).map_err(coded(LogError::code))?;
            self.kafka = Some(Arc::new(log));
        }
        let Some(kafka) = &self.kafka else { return Ok(None) };
        let made = until(signals, "Kafka", LogError::is_transient, || kafka.create_topic(topic));
        Ok(made.map_err(coded(LogError::code))?.map(|()| kafka.clone() as Arc<dyn EventLog>))
    }

    #[cfg(feature = "kafka")]
    fn kafka_bus(&mut self, config: &Config, signals: &Signals) -> Result<Option<Arc<dyn Bus>>, End> {
        let topic = TopicSpec::delete(TICKS, config.feed.lanes, config.feed.spool_mib << 20);
        let Some(log) = self.open_kafka(config, &topic, signals)? else { return Ok(None) };
        Ok(Some(Arc::new(LogBus::new(log, TICKS).map_err(coded(LogError::code))?)))
    }

    #[cfg(not(feature = "kafka"))]
    fn kafka_bus(&mut self, _: &Config, _: &Signals) -> Result<Option<Arc<dyn Bus>>, End> {
        Err(End::Usage("this build is without Kafka: build it with default features".into()))
    }

    /// Where events go in a process without the feed: Kafka, where ticks are there too.
    #[cfg(feature = "kafka")]
    fn events_on_kafka(
        &mut self,
        config: &Config,
        signals: &Signals,
    ) -> Result<Option<Arc<dyn EventLog>>, End> {
        if config.feed.bus != config::Bus::Kafka {
            return Ok(None);
        }
        let log = self.open_kafka(config, &TopicSpec::delete(EVENTS, 1, 64 << 20), signals)?;
        if let (Some(kafka), Some(_)) = (&self.kafka, &log) {
            // Another desk may write it too: an event is known by what it names.
            kafka.share_topic(EVENTS).map_err(coded(LogError::code))?;
        }
        Ok(log)
    }

    #[cfg(not(feature = "kafka"))]
    fn events_on_kafka(&mut self, _: &Config, _: &Signals) -> Result<Option<Arc<dyn EventLog>>, End> {
        Ok(None)
    }
}

/// What cannot work together.
fn check(config: &Config, wanted: &Wanted) -> Result<(), End> {
    let parts = "the roles feed, processor (of both groups) and quotes";
    let shares = !wanted.members.is_empty() || wanted.desk;
    if shares && !wanted.is_one_process() && config.groups.cache == config::Cache::Memory {
        return Err(End::Usage(format!(
            "groups.cache = \"memory\" needs {parts} in one process, as in `hoga up --feed`. Set it to \"redis\" for several"
        )));
    }
    Ok(())
}

#[cfg(feature = "kafka")]
fn kafka_config(config: &Config) -> hoga_log::kafka::KafkaConfig {
    let mut settings = crate::logs::kafka_config(config);
    settings.linger = Duration::from_millis(config.feed.linger_ms);
    settings
}

#[cfg(feature = "kafka")]
fn relay(config: &Config, log: &Arc<dyn EventLog>) -> Result<Relay, End> {
    let kafka = kafka_config(config);
    let connect = move || hoga_log::kafka::KafkaLog::open(kafka.clone()).map(hoga_log::relay::Remote::kafka);
    let options = hoga_log::relay::RelayOptions {
        look_every: Duration::from_millis(1),
        ..hoga_log::relay::RelayOptions::new(hoga_feed::FeedTick::place_of)
    };
    Relay::start(log.clone(), Box::new(connect), &[TICKS], options).map_err(coded(LogError::code))
}

#[cfg(not(feature = "kafka"))]
fn relay(_: &Config, _: &Arc<dyn EventLog>) -> Result<Relay, End> {
    Err(End::Usage("this build is without Kafka: build it with default features".into()))
}

#[cfg(feature = "redis")]
fn redis_bus(config: &Config, behind: Arc<dyn Bus>) -> Result<Arc<dyn Bus>, End> {
    let settings = hoga_feed::bus::RedisBusConfig {
        url: config.feed.redis.clone(),
        prefix: config.feed.prefix.clone(),
        connections: config.groups.readers,
    };
    let bus = hoga_feed::bus::RedisBus::start(&settings, behind).map_err(coded(LogError::code))?;
    Ok(Arc::new(bus))
}

#[cfg(not(feature = "redis"))]
fn redis_bus(_: &Config, _: Arc<dyn Bus>) -> Result<Arc<dyn Bus>, End> {
    Err(End::Usage("this build is without Redis: build it with default features".into()))
}

fn caches(config: &Config) -> Result<[Arc<dyn GroupCache>; 2], End> {
    let groups = &config.groups;
    match groups.cache {
        config::Cache::Memory => Ok([Arc::new(MemoryCache::new()), Arc::new(MemoryCache::new())]),
        #[cfg(feature = "redis")]
        config::Cache::Redis => {
            let open = |url: &str, group: GroupName| {
                let prefix = format!("{}:{}", groups.prefix, group.as_str());
                let settings = hoga_feed::cache::RedisCacheConfig::new(url, &prefix);
                let cache = hoga_feed::cache::RedisCache::open(settings);
                cache.map(|cache| Arc::new(cache) as Arc<dyn GroupCache>)
            };
            let fault = |error: hoga_feed::cache::CacheError| End::Usage(error.to_string());
            let a = open(&groups.redis_a, GroupName::A).map_err(fault)?;
            Ok([a, open(&groups.redis_b, GroupName::B).map_err(fault)?])
        }
        #[cfg(not(feature = "redis"))]
        config::Cache::Redis => Err(End::Usage("this build is without Redis".into())),
    }
}

fn node(config: &Config, group: GroupName) -> String {
    if config.groups.node.is_empty() {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        return format!("{host}-{}-{}", std::process::id(), group.as_str());
    }
    format!("{}-{}", config.groups.node, group.as_str())
}

fn lease(config: &Config, group: GroupName, local: &LocalLeases) -> Result<Box<dyn Lease>, End> {
    let (groups, ttl) = (&config.groups, Duration::from_millis(config.groups.lease_ms));
    let fault = |error: LeaseError| End::Usage(format!("[{}] {error}", error.code()));
    match groups.lease {
        config::Lease::Local => Ok(Box::new(local.candidate(group.as_str(), ttl))),
        #[cfg(feature = "redis")]
        config::Lease::Redis => {
            let url = if group == GroupName::A { &groups.redis_a } else { &groups.redis_b };
            let name = format!("{}:{}:lease", groups.prefix, group.as_str());
            let lease = hoga_log::lease::RedisLease::new(url, &name, &node(config, group), ttl);
            Ok(Box::new(lease.map_err(fault)?))
        }
        #[cfg(feature = "zookeeper")]
        config::Lease::Zookeeper => {
            let path = format!("/{}/group-{}", groups.prefix, group.as_str());
            let lease =
                hoga_log::lease::ZooKeeperLease::new(&groups.zookeeper, &path, &node(config, group), ttl);
            Ok(Box::new(lease.map_err(fault)?))
        }
        #[cfg(not(all(feature = "redis", feature = "zookeeper")))]
        _ => {
            let _ = fault; // a configuration that this build refuses
            Err(End::Usage("this build is without that service".into()))
        }
    }
}

fn member(config: &Config, group: GroupName) -> MemberConfig {
    let groups = &config.groups;
    let node = node(config, group);
    let hot = (groups.hot > 0).then(|| {
        let back_below = groups.hot * 2 / 5;
        Hot { move_above: groups.hot.max(1), back_below, ..Hot::default() }
    });
    let plant = PlantConfig { readers: groups.readers, hot, ..PlantConfig::new(groups.loops) };
    let intervals = groups.intervals.iter().filter_map(|text| Interval::parse(text)).collect();
    let detect = DetectConfig {
        alpha: groups.alpha,
        spike: groups.spike,
        surge: groups.surge,
        ..DetectConfig::default()
    };
    let defaults = MemberConfig::new(group, &node, groups.loops);
    MemberConfig {
        plant,
        heavy: defaults.heavy.clone().filter(|_| groups.detect),
        state: StateConfig { intervals, ..StateConfig::default() },
        detect,
        ..defaults
    }
}

fn desk_config(config: &Config) -> DeskConfig {
    let groups = &config.groups;
    DeskConfig {
        rule: Rule { behind_for: Duration::from_millis(groups.behind_ms), ..Rule::default() },
        shows: groups.shows,
        silent: Duration::from_millis(groups.silent_ms),
        ..DeskConfig::default()
    }
}

/// The source that is configured, and whether ids of a symbol's trades rise.
fn source(config: &Config, trades: Option<Trades>) -> Result<(Box<dyn Source>, bool), End> {
    let feed = &config.feed;
    let usage = |error: &dyn std::fmt::Display| End::Usage(error.to_string());
    let mapping = feed.mapping().map_err(|error| usage(&error))?;
    let live = |settings: WebSocketConfig| -> Result<(Box<dyn Source>, bool), End> {
        let url = if feed.websocket.is_empty() { settings.url.clone() } else { feed.websocket.clone() };
        let (settings, rising) = (WebSocketConfig { url, ..settings.clone() }, settings.format.rising_ids());
        let source = WebSocketSource::start(settings).map_err(|error| usage(&error))?;
        Ok((Box::new(source), rising))
    };
    match feed.source {
        config::Source::Simulator => Ok((Box::new(simulator(config)?), true)),
        config::Source::Binance => live(WebSocketConfig::binance(&feed.pairs)),
        config::Source::Upbit => live(WebSocketConfig::upbit(&feed.pairs)),
        config::Source::Kraken => live(WebSocketConfig::kraken(&feed.pairs)),
        config::Source::Bitstamp => live(WebSocketConfig::bitstamp(&feed.pairs)),
        config::Source::Websocket => {
            let mapping = mapping.ok_or_else(|| usage(&"feed.mapping is missing"))?;
            let format = Format::Mapping(Box::new(mapping));
            live(WebSocketConfig::new(&feed.websocket, feed.subscribe.clone(), format))
        }
        config::Source::Capture => {
            let speed = if feed.speed == 0 { Speed::Max } else { Speed::Times(feed.speed) };
            let format = mapping.map(|mapping| Format::Mapping(Box::new(mapping)));
            let capture = Capture::open(&feed.file, format, speed).map_err(|error| usage(&error))?;
            let rising = capture.format().rising_ids();
            Ok((Box::new(capture), rising))
        }
        config::Source::Trades => {
            let trades = trades.ok_or_else(|| {
                usage(&"feed.source = \"trades\" needs the exchange in the same process: `hoga up --feed`")
            })?;
            // From the oldest on: what the spool has already is known by its ids.
            let opened = Completed::open(trades.log, TRADE_COMPLETED, Start::Oldest, trades.symbol_of);
            Ok((Box::new(opened.map_err(coded(LogError::code))?), true))
        }
    }
}

/// The exchange's own trades.
pub struct Trades {
    /// Where they are.
    pub log: Arc<dyn EventLog>,
    /// The symbol of a market.
    pub symbol_of: SymbolOf,
}

fn simulator(config: &Config) -> Result<Simulator, End> {
    let feed = &config.feed;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let start = Timestamp(i64::try_from(now).unwrap_or(i64::MAX));
    let millis = Duration::from_millis;
    let hot = feed.hot.iter();
    let settings = SimulatorConfig {
        seed: feed.seed,
        symbols: feed.symbols,
        interval: millis(feed.interval_ms),
        hot: hot.map(|hot| HotSymbol { number: hot.number, interval: millis(hot.interval_ms) }).collect(),
        burst: (feed.burst_every_ms > 0).then(|| Burst {
            every: millis(feed.burst_every_ms),
            lasts: millis(feed.burst_ms),
            factor: feed.burst_factor,
        }),
        start,
        // Above those of every earlier start: a symbol trades less often than once a microsecond.
        first_id: start.0.unsigned_abs(),
        most: None,
    };
    Simulator::new(settings).map_err(|error| End::Usage(error.to_string()))
}

/// Ports of what is connected to, for their sockets' queues.
fn ports(config: &Config) -> Vec<u16> {
    let port = |address: &str| address.rsplit(':').next()?.trim_end_matches('/').parse::<u16>().ok();
    let mut all = Vec::new();
    if config.feed.bus == config::Bus::Kafka {
        all.extend(config.kafka.bootstrap.split(',').filter_map(port));
    }
    if config.feed.bus == config::Bus::Redis {
        all.extend(port(&config.feed.redis));
    }
    if config.groups.cache == config::Cache::Redis {
        all.extend([&config.groups.redis_a, &config.groups.redis_b].into_iter().filter_map(|url| port(url)));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Writes what the desk tells of events to their topic.
struct EventWriter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EventWriter {
    fn start(log: Arc<dyn EventLog>, desk: &Desk) -> Result<EventWriter, End> {
        log.create_topic(&TopicSpec::delete(EVENTS, 1, 64 << 20)).map_err(coded(LogError::code))?;
        let events = desk.view().subscribe_events();
        // What the last ones were: an event that is there already is not written again.
        let mut known = Vec::new();
        let end = log.end_offset(EVENTS, 0).map_err(coded(LogError::code))?;
        let _ =
            log.read(EVENTS, 0, end.saturating_sub(4096), 4096, &mut known).map_err(coded(LogError::code))?;
        let mut known: std::collections::HashSet<Vec<u8>> =
            known.into_iter().filter_map(|message| message.value).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut write = move |event: &DetectedEvent| {
            let mut value = Vec::new();
            event.write_json(&mut value);
            if known.remove(&value) {
                return Ok(());
            }
            let message = Message { key: event.symbol.as_bytes(), value: Some(&value), time: event.time };
            log.append(EVENTS, &[message])
        };
        let thread = std::thread::Builder::new().name("market-events".into()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                match events.recv_timeout(Duration::from_millis(100)) {
                    Ok(event) => {
                        if let Err(error) = write(&event) {
                            tracing::error!(%error, "a detected event could not be written to {EVENTS}");
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        let thread =
            thread.map_err(|error| End::Start(format!("[threads] a thread cannot be started: {error}")))?;
        Ok(EventWriter { stop, thread: Some(thread) })
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
