//! The process with the exchange in it: `hoga up` (all roles) and `hoga run --role exchange …`.
//!
//! Composition only: opens the parts in the order in which they need each other, says `ready`, and takes them down in the opposite order.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_api::hub::{Hub, HubConfig, MarketHistory, MarketTrade, TRADES_KEPT};
use hoga_api::{Pipeline, Server, ServerError, Services, SharedCatalog, latency_of_stores, observe_stores};
use hoga_core::ids::{Seq, Timestamp};
use hoga_engine::{Clock, Engine, EngineConfig, EngineError, EngineHandle, Partitions, SystemClock};
use hoga_log::LogError;
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog};
use hoga_log::journal::Durability;
use hoga_log::lag::{LagMonitor, LagOptions};
use hoga_store::{Identity, StoreError, Stores};

use crate::cli::Up;
use crate::config::{Config, Durability as Wanted};
use crate::maintenance::Maintenance;
use crate::market;
use crate::process::{RunGuard, Signals, lock, start_logging};
use crate::replay::Recording;
use crate::{End, print};

/// Runs the exchange, and these consumer groups beside it, until a signal or a fault ends it. With a recording, that is fed instead of the
/// simulated market.
pub fn run(flags: &Up, recording: Option<Recording>) -> Result<(), End> {
    let mut config = configuration(flags)?;
    start_logging(&config)?;
    let begun = Instant::now();
    let signals = Signals::listen()?;
    let system = System::start(&mut config)?;
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
        if let Some(fault) = system.engine.wait_fault(Duration::from_millis(250)) {
            break Some(format!("[{}] {fault}", fault.kind.code()));
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

/// The running parts.
pub struct System {
    engine: Engine,
    stores: Arc<Stores>,
    hub: Hub,
    server: Server,
    maintenance: Maintenance,
    tap: market::Tap,
    _lag: LagMonitor,
    _lock: File,
}

impl System {
    fn start(config: &mut Config) -> Result<System, End> {
        let dir = config.data.dir.clone();
        let lock = lock(&dir)?;
        let log = EmbeddedLog::open(
            dir.join("log"),
            EmbeddedConfig { segment_bytes: config.event_log.segment_mib << 20, ..EmbeddedConfig::default() },
        )
        .map_err(coded(LogError::code))?;
        let log: Arc<dyn EventLog> = Arc::new(log);
        let stores =
            Arc::new(Stores::open(&dir.join("store"), log.clone()).map_err(coded(StoreError::code))?);
        let identity = Identity::open(&dir.join("identity.db")).map_err(coded(StoreError::code))?;
        let (hub, feed) = Hub::start(HubConfig::default()).map_err(thread)?;
        let catalog = SharedCatalog::default();
        let tap = market::Tap::default();
        let engine = Engine::start(
            engine_config(config, &stores),
            log.clone(),
            vec![catalog.subscriber(), Box::new(feed), Box::new(tap.clone())],
        )
        .map_err(coded(EngineError::code))?;
        market::define(&engine.handle())?;
        stores.start().map_err(coded(StoreError::code))?;
        hub.prime(histories(&stores, &hub).map_err(coded(StoreError::code))?);
        if config.api.admin_token.is_empty() {
            config.api.admin_token = hoga_api::random_secret().map_err(|e| {
                End::Start(format!("[no-randomness] the operating system gives no random bytes: {e}"))
            })?;
        }
        let lag = LagMonitor::start(
            vec![log.clone()],
            observe_stores(&stores),
            LagOptions::default(),
            Duration::from_secs(1),
        )
        .map_err(coded(LogError::code))?;
        let services = Services {
            engine: engine.handle(),
            stores: stores.clone(),
            identity,
            hub: hub.clone(),
            catalog,
            pipeline: Pipeline { latency: latency_of_stores(&stores), ..Pipeline::new(lag.watch()) },
        };
        let server = Server::start(config.api.clone(), services).map_err(coded(ServerError::code))?;
        let maintenance = Maintenance::start(log).map_err(thread)?;
        Ok(System { engine, stores, hub, server, maintenance, tap, _lag: lag, _lock: lock })
    }

    /// The engine's handle, for whoever feeds it.
    pub fn engine(&self) -> EngineHandle {
        self.engine.handle()
    }

    /// Ends in order: no new requests, answers out, journal synced, read models committed.
    fn stop(self) -> Result<(), String> {
        self.hub.shutdown();
        self.server.shutdown();
        let engine = self.engine.shutdown().map_err(|e| e.to_string());
        self.stores.shutdown();
        self.maintenance.stop();
        engine
    }
}

/// A fault at the start, with its code in front.
fn coded<E: std::fmt::Display>(code: impl Fn(&E) -> &'static str) -> impl Fn(E) -> End {
    move |error| End::Start(format!("[{}] {error}", code(&error)))
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
        Wanted::Sync => Durability::Sync,
        Wanted::Write => Durability::Write,
        Wanted::None => Durability::None,
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
    engine.retain_floor = Some(Arc::new(move || {
        let Some(stores) = weak.upgrade().filter(|_| !keep) else { return Seq(0) };
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
