//! The process with the exchange in it: `hoga up` (all roles) and `hoga run --role exchange …`.
//!
//! Composition only: opens the parts in the order in which they need each other, says `ready`, and takes them down in the opposite order.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hoga_api::hub::{Hub, HubConfig, MarketHistory, MarketTrade, TRADES_KEPT};
use hoga_api::{
    EnginePort, Pipeline, Server, ServerError, Services, SharedCatalog, latency_of_stores, observe_stores,
};
use hoga_core::ids::{Seq, Timestamp};
use hoga_engine::{
    Clock, Engine, EngineConfig, EngineError, EngineHandle, Partitions, Subscriber, SystemClock,
};
use hoga_log::LogError;
use hoga_log::journal::Durability;
use hoga_log::lag::{LagMonitor, LagOptions};
use hoga_log::relay::{Relay, RelayState};
use hoga_store::{Group, StoreError, Stores};

use crate::cli::Up;
use crate::config::{Config, Durability as Chosen, LogBackend};
use crate::logs::{Declare, Logs, topics};
use crate::maintenance::Maintenance;
use crate::market;
use crate::plant::{Plant, Trades, Wanted};
use crate::process::{RunGuard, Signals, lock, start_logging};
use crate::replay::Recording;
use crate::replicated::Replicated;
use crate::run::until;
use crate::{End, coded, print, read_models};

/// Runs the exchange, and these consumer groups beside it, until a signal or a fault ends it. With a recording, that is fed instead of the
/// simulated market.
pub fn run(flags: &Up, groups: &[Group], recording: Option<Recording>) -> Result<(), End> {
    let mut config = configuration(flags)?;
    start_logging(&config)?;
    let begun = Instant::now();
    let signals = Signals::listen()?;
    let Some(system) = System::start(&mut config, groups, &signals)? else { return Ok(()) };
    let url = format!("http://{}", system.server.local_addr());
    let run_file = RunGuard::write(&config.data.dir, &url, &config.api.admin_token)?;
    let started = system.engine.started();
    tracing::info!(
        snapshot = started.snapshot.0,
        replayed = started.replayed,
        republished = started.republished,
        cut_bytes = started.cut_bytes,
        digest = format!("{:032x}", started.digest),
        milliseconds = begun.elapsed().as_millis() as u64,
        "started"
    );
    let replaying = recording.is_some();
    let exit_with_flow = recording.as_ref().is_some_and(|r| r.exit);
    // Before `ready`, which promises that nothing that can fail at the start is left.
    let mut flow = match Flow::start(&config, &system, recording) {
        Ok(flow) => flow,
        Err(end) => {
            drop(run_file);
            return Err(system.stop().map_or_else(End::Fault, |()| end));
        }
    };
    print(format_args!("ready {url}"))?;
    if config.market.enabled && !replaying {
        welcome(&url, &config.data.dir);
    }
    let fault = loop {
        if let Some(fault) = system.fault(Duration::from_millis(250)) {
            break Some(fault);
        }
        if signals.raised() {
            break None;
        }
        if let Some(error) = flow.failed() {
            break Some(error);
        }
        if exit_with_flow && flow.finished() {
            break None;
        }
    };
    drop(run_file);
    let flow_end = flow.stop();
    let end = system.stop();
    match (fault, end, flow_end) {
        (Some(fault), _, _) => Err(End::Fault(fault)),
        (None, Err(error), _) => Err(End::Fault(error)),
        (None, Ok(()), Err(error)) => Err(End::Bad(error)),
        (None, Ok(()), Ok(())) => Ok(()),
    }
}

/// The configuration with the command line's flags in it.
pub fn configuration(flags: &Up) -> Result<Config, End> {
    let mut config = Config::load(flags.config.as_deref(), std::env::vars())?;
    if let Some(dir) = &flags.data {
        config.data.dir = dir.clone();
    }
    if let Some(port) = flags.port {
        let host = config.api.listen.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host).to_owned();
        config.api.listen = format!("{host}:{port}");
    }
    if flags.no_market {
        config.market.enabled = false;
    }
    config.feed.enabled |= flags.feed;
    Ok(config)
}

/// What somebody who has just started it wants to know next. On standard error: standard output is for programs.
fn welcome(url: &str, data: &Path) {
    let data = data.display();
    eprintln!("  console and API    {url}");
    eprintln!("  a key for a bot    hoga key new --data {data} --deposit BTC=10 --deposit USDT=1000000");
    eprintln!(
        "  recorded orders    hoga replay orders.csv.gz --data OTHER_FOLDER   (instead of this simulated market)"
    );
    eprintln!("  stop               Ctrl-C; the next start goes on where this one ended");
}

/// The operator's token of this run.
pub fn token() -> Result<String, End> {
    hoga_api::random_secret()
        .map_err(|e| End::Start(format!("[no-randomness] the operating system gives no random bytes: {e}")))
}

/// The running parts.
pub struct System {
    logs: Logs,
    replicated: Option<Replicated>,
    relay: Option<Relay>,
    declare: Option<Declare>,
    engine: Engine,
    stores: Arc<Stores>,
    hub: Hub,
    server: Server,
    maintenance: Maintenance,
    plant: Option<Plant>,
    tap: market::Tap,
    /// Why the consumer groups of this process could not be started, when that is found out later.
    late: Arc<Mutex<Option<String>>>,
    _lag: LagMonitor,
    _lock: File,
}

impl System {
    /// Opens everything in order. As a standby this takes as long as there is another leader; `None` when a signal came before it leads.
    fn start(config: &mut Config, groups: &[Group], signals: &Signals) -> Result<Option<System>, End> {
        let dir = config.data.dir.clone();
        let lock = lock(&dir)?;
        let logs = Logs::open(config)?;
        let opened = until(signals, "the database", StoreError::is_transient, || {
            Ok((read_models::open(config, &logs.bus)?, read_models::identity(config)?))
        });
        let Some((stores, identity)) = opened.map_err(coded(StoreError::code))? else { return Ok(None) };
        let stores = Arc::new(stores);
        let (hub, feed) = Hub::start(HubConfig::default()).map_err(thread)?;
        let catalog = SharedCatalog::default();
        let tap = market::Tap::default();
        let subscribers: Vec<Box<dyn Subscriber>> =
            vec![catalog.subscriber(), Box::new(feed), Box::new(tap.clone())];
        let settings = engine_config(config, &stores);
        let replicated = Replicated::open(config)?;
        let engine = match &replicated {
            None => {
                Engine::start(settings, logs.local.clone(), subscribers).map_err(coded(EngineError::code))?
            }
            Some(replicated) => {
                // A standby has its candles and tickers before it leads, so that a takeover need not wait for them.
                let follow = || {
                    hub.prime(histories(&stores, &hub).map_err(coded(StoreError::code))?);
                    Ok(())
                };
                match replicated.lead(settings, logs.local.clone(), subscribers, signals, follow)? {
                    Some(engine) => engine,
                    None => return Ok(None),
                }
            }
        };
        market::define(&engine.handle())?;
        let relay = logs.relay(config)?;
        // Of nodes that share a journal the fence lets only one publish; their events are the same.
        if let Some(relay) = relay.as_ref().filter(|_| replicated.is_none()) {
            refuse_foreign(relay)?;
        }
        let late = Arc::new(Mutex::new(None));
        stores.connect(Arc::new(EnginePort::new(engine.handle(), &stores)));
        let declare = start_groups(config, &logs, &stores, groups, &late)?;
        let listener = hub.clone();
        stores
            .listen(Box::new(move |notification| listener.notice(notification)))
            .map_err(coded(StoreError::code))?;
        if replicated.is_none() {
            hub.prime(histories(&stores, &hub).map_err(coded(StoreError::code))?);
        }
        if config.api.admin_token.is_empty() {
            config.api.admin_token = token()?;
        }
        let lag = LagMonitor::start(
            vec![logs.bus.log.clone()],
            observe_stores(&stores),
            LagOptions::default(),
            Duration::from_secs(1),
        )
        .map_err(coded(LogError::code))?;
        let plant = match config.feed.enabled {
            false => None,
            true => match Plant::start(config, &Wanted::all(), Some(own_trades(&logs, &hub)), signals)? {
                Some(plant) => Some(plant),
                None => return Ok(None),
            },
        };
        let services = Services {
            engine: engine.handle(),
            stores: stores.clone(),
            identity,
            hub: hub.clone(),
            catalog,
            pipeline: Pipeline {
                latency: latency_of_stores(&stores),
                relay: relay.as_ref().map(Relay::watch),
                ..Pipeline::new(lag.watch())
            },
            plant: plant.as_ref().map(Plant::view),
        };
        let server = Server::start(config.api.clone(), services).map_err(coded(ServerError::code))?;
        let maintenance = Maintenance::start(logs.local.clone()).map_err(thread)?;
        Ok(Some(System {
            logs,
            replicated,
            relay,
            declare,
            engine,
            stores,
            hub,
            server,
            maintenance,
            plant,
            tap,
            late,
            _lag: lag,
            _lock: lock,
        }))
    }

    /// What ends the process: a fault of the engine, or a topic that is not as declared.
    fn fault(&self, wait: Duration) -> Option<String> {
        if let Some(fault) = self.engine.wait_fault(wait) {
            return Some(format!("[{}] {fault}", fault.kind.code()));
        }
        let late = self.late.lock().unwrap_or_else(|e| e.into_inner()).take();
        late.or_else(|| self.plant.as_ref().and_then(Plant::fault))
    }

    /// The engine's handle, for whoever feeds it.
    pub fn engine(&self) -> EngineHandle {
        self.engine.handle()
    }

    /// Ends in order: no new requests, answers out, journal synced, read models committed.
    fn stop(self) -> Result<(), String> {
        self.hub.shutdown();
        self.server.shutdown();
        if let Some(plant) = self.plant {
            plant.stop();
        }
        let engine = self.engine.shutdown().map_err(|e| e.to_string());
        if let Some(declare) = self.declare {
            declare.stop();
        }
        self.stores.shutdown();
        if let Some(relay) = self.relay
            && !relay.stop(DRAIN)
        {
            tracing::info!("what Kafka has not acknowledged stays in the outbox; the next start sends it");
        }
        self.maintenance.stop();
        self.logs.bus.close();
        if let Some(replicated) = self.replicated {
            replicated.close();
        }
        engine
    }
}

/// How long the end waits for Kafka to acknowledge what is on its way.
const DRAIN: Duration = Duration::from_secs(2);

/// Another history on Kafka is found within moments where Kafka answers, and refused here. Where it does not answer, this does not wait for
/// it: the relay stops when it finds one later, and says so.
fn refuse_foreign(relay: &Relay) -> Result<(), End> {
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        match relay.status().state {
            RelayState::Stopped(fault) => return Err(End::Start(format!("[{}] {fault}", fault.code()))),
            // The engine has published all that its journal gives before the relay was started.
            RelayState::Ahead => {
                return Err(End::Start(
                    "[log-foreign-writer] the topics on Kafka have messages that this data folder's journal does not give: they are of \
                     another exchange, or the folder was restored from an old copy. Stop the other one or give this one a \
                     kafka.prefix of its own; put the newer folder back"
                        .into(),
                ));
            }
            RelayState::CatchingUp | RelayState::Current | RelayState::Ended => return Ok(()),
            RelayState::Connecting(_) | RelayState::Waiting(_) => {}
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    Ok(())
}

/// Starts the consumer groups of this process: at once where their log is here, and as soon as the topics are there where it is on Kafka.
fn start_groups(
    config: &Config,
    logs: &Logs,
    stores: &Arc<Stores>,
    groups: &[Group],
    late: &Arc<Mutex<Option<String>>>,
) -> Result<Option<Declare>, End> {
    if config.event_log.backend == LogBackend::Embedded {
        // The engine has made its own; these are there too now, or they are as they were.
        topics(config)
            .iter()
            .try_for_each(|topic| logs.bus.log.create_topic(topic))
            .map_err(coded(LogError::code))?;
        stores.start_only(groups).map_err(coded(StoreError::code))?;
        return Ok(None);
    }
    let (stores, groups) = (Arc::downgrade(stores), groups.to_vec());
    let (differs, fails) = (Arc::clone(late), Arc::clone(late));
    let tell = |late: &Mutex<Option<String>>, code: &str, error: &dyn std::fmt::Display| {
        *late.lock().unwrap_or_else(|e| e.into_inner()) = Some(format!("[{code}] {error}"));
    };
    let declare = Declare::start(
        Arc::clone(&logs.bus.log),
        topics(config),
        move || {
            let Some(stores) = stores.upgrade() else { return };
            if let Err(error) = stores.start_only(&groups) {
                tell(&fails, error.code(), &error);
            }
        },
        move |error| tell(&differs, error.code(), &error),
    );
    declare.map(Some).map_err(thread)
}

/// The exchange's own trades as a source of ticks.
fn own_trades(logs: &Logs, hub: &Hub) -> Trades {
    let hub = hub.clone();
    let symbol_of = move |market| hoga_feed::Symbol::parse(hub.instrument(market)?.symbol.as_str()).ok();
    Trades { log: Arc::clone(&logs.local), symbol_of: Box::new(symbol_of) }
}

fn thread(error: std::io::Error) -> End {
    End::Start(format!(
        "[threads] a thread cannot be started: {error}. Check the limits on processes and memory"
    ))
}

fn engine_config(config: &Config, stores: &Arc<Stores>) -> EngineConfig {
    let partitions = config.event_log.partitions;
    let mut engine = EngineConfig::new(config.data.dir.join("engine"));
    engine.durability = match config.engine.durability {
        Chosen::Sync => Durability::Sync,
        Chosen::Write => Durability::Write,
        Chosen::None => Durability::None,
    };
    engine.ring_capacity = config.engine.ring;
    engine.ring_reserve = config.engine.ring_reserve;
    engine.segment_bytes = config.engine.segment_mib << 20;
    engine.snapshot_every = config.engine.snapshot_every;
    engine.partitions = Partitions { trades: partitions, lifecycle: partitions, projection: partitions };
    engine.topic_retention_bytes = config.event_log.retention_mib << 20;
    // The journal is kept back to the last command that some group has not consumed. A group without lag needs nothing of it.
    let weak = Arc::downgrade(stores);
    let keep = config.engine.keep_journal;
    // On Kafka the outbox keeps what is not acknowledged, and Kafka the rest.
    let remote = config.event_log.backend == LogBackend::Kafka;
    engine.retain_floor = Some(Arc::new(move || {
        let Some(stores) = weak.upgrade().filter(|_| !keep) else { return Seq(0) };
        if remote {
            return Seq(u64::MAX);
        }
        let behind = stores.positions().into_iter().filter(|p| p.lag > 0 || p.fault.is_some());
        behind.map(|p| p.applied).min().unwrap_or(Seq(u64::MAX))
    }));
    engine
}

/// What the read models know of each market, for tickers and candles that go on after a restart.
fn histories(stores: &Stores, hub: &Hub) -> Result<Vec<MarketHistory>, StoreError> {
    // The hub folds what comes after `through`, so whatever the group had not read yet must be in before.
    stores.wait_current(hoga_store::Group::Market, Duration::from_secs(30));
    let day_ago = Timestamp(SystemClock.now().0 - 86_400_000_000 - 60_000_000);
    let mut histories = Vec::new();
    for instrument in hub.instruments() {
        let market = instrument.id;
        let trades: Vec<MarketTrade> = stores
            .market()
            .recent_trades(market, TRADES_KEPT)?
            .into_iter()
            .map(|t| MarketTrade {
                id: t.id,
                time: t.time,
                price: t.price,
                qty: t.qty,
                quote: t.quote,
                taker_side: t.taker_side,
                taker_order: t.taker_order(),
            })
            .collect();
        let Some(last) = trades.last() else { continue };
        histories.push(MarketHistory {
            market,
            through: last.id,
            seconds: stores.market().traded_seconds(market, day_ago)?,
            candles: stores.market().latest_candles(market)?,
            trades,
        });
    }
    Ok(histories)
}

/// Whatever feeds orders from inside: the simulated market, a recording, or nothing.
struct Flow(Option<market::Feeder>);

impl Flow {
    fn start(config: &Config, system: &System, recording: Option<Recording>) -> Result<Flow, End> {
        let engine = system.engine();
        Ok(Flow(match recording {
            Some(recording) => Some(recording.feed(engine)?),
            None if config.market.enabled => {
                Some(market::simulate(engine, &system.tap, &config.market, &config.data.dir)?)
            }
            None => None,
        }))
    }

    fn finished(&self) -> bool {
        self.0.as_ref().is_none_or(market::Feeder::finished)
    }

    fn failed(&mut self) -> Option<String> {
        let feeder = self.0.take()?;
        if !feeder.finished() {
            self.0 = Some(feeder);
            return None;
        }
        feeder.stop().err()
    }

    fn stop(self) -> Result<(), String> {
        self.0.map_or(Ok(()), market::Feeder::stop)
    }
}
