//! `hoga up`: all roles in one process.
//!
//! Composition only: opens the parts in the order in which they need each other, says `ready`, and takes them down in the opposite order.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoga_api::hub::{Hub, HubConfig, MarketHistory, MarketTrade, TRADES_KEPT};
use hoga_api::{Server, ServerError, Services, SharedCatalog};
use hoga_core::ids::{Seq, Timestamp};
use hoga_engine::{Clock, Engine, EngineConfig, EngineError, EngineHandle, Partitions, SystemClock};
use hoga_lab::admin::{RUN_FILE, RunFile};
use hoga_log::LogError;
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog};
use hoga_log::journal::Durability;
use hoga_log::storage::{IoPriority, set_io_priority};
use hoga_store::{Identity, StoreError, Stores};

use crate::cli::Up;
use crate::config::{Config, Durability as Wanted};
use crate::market;
use crate::replay::Recording;
use crate::{End, print};

/// How often the event log's old segments are looked at.
const MAINTENANCE: Duration = Duration::from_secs(10);

/// Runs the system until a signal or a fault ends it. With a recording, that is fed instead of the simulated market.
pub fn run(flags: &Up, recording: Option<Recording>) -> Result<(), End> {
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
        let services =
            Services { engine: engine.handle(), stores: stores.clone(), identity, hub: hub.clone(), catalog };
        let server = Server::start(config.api.clone(), services).map_err(coded(ServerError::code))?;
        let maintenance = Maintenance::start(log).map_err(thread)?;
        Ok(System { engine, stores, hub, server, maintenance, tap, _lock: lock })
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

/// One running system per data folder.
fn lock(dir: &Path) -> Result<File, End> {
    let fail = |what: String| End::Start(format!("[data-folder] data folder {}: {what}", dir.display()));
    std::fs::create_dir_all(dir)
        .map_err(|e| fail(format!("cannot be made: {e}. Choose another with --data")))?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("lock"))
        .map_err(|e| fail(format!("cannot be written: {e}. Check its permissions")))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        fail("another hoga runs on it. Stop that one, or choose another folder with --data".into())
    })?;
    Ok(file)
}

/// `run.json` with the address and the operator's token, there while the system runs.
struct RunGuard(PathBuf);

impl RunGuard {
    fn write(dir: &Path, url: &str, token: &str) -> Result<RunGuard, End> {
        let path = dir.join(RUN_FILE);
        let run = RunFile { url: url.to_owned(), admin_token: token.to_owned(), pid: std::process::id() };
        let fail = |e: &dyn std::fmt::Display| {
            End::Start(format!("[run-file] cannot write {}: {e}", path.display()))
        };
        let text = serde_json::to_string(&run).map_err(|e| fail(&e))?;
        // Readable by its owner only, from the first moment on: it holds the operator's token.
        let temporary = dir.join("run.json.new");
        let _ = std::fs::remove_file(&temporary); // left by a crash, or not there
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|e| fail(&e))?;
        std::io::Write::write_all(&mut file, text.as_bytes()).map_err(|e| fail(&e))?;
        std::fs::rename(&temporary, &path).map_err(|e| fail(&e))?;
        Ok(RunGuard(path))
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the run file could not be removed");
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals(Arc<AtomicBool>);

impl Signals {
    fn listen() -> Result<Signals, End> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            // A second signal ends the process at once: an operator who insists is obeyed.
            signal_hook::flag::register_conditional_shutdown(signal, 5, Arc::clone(&flag))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
                .map_err(|e| End::Start(format!("[signals] cannot listen for signals: {e}")))?;
        }
        Ok(Signals(flag))
    }

    fn raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Old segments of the event log go, and compacted topics are compacted, on a thread of their own.
struct Maintenance {
    stop: Arc<(std::sync::Mutex<bool>, std::sync::Condvar)>,
    thread: JoinHandle<()>,
}

impl Maintenance {
    fn start(log: Arc<dyn EventLog>) -> std::io::Result<Maintenance> {
        let stop = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("log-maintenance".into()).spawn(move || {
            if let Err(error) = set_io_priority(IoPriority::Last) {
                tracing::debug!(%error, "the event log's maintenance competes with the journal for the disk");
            }
            let (stopped, bell) = &*seen;
            let mut held = false;
            loop {
                let guard = stopped.lock().unwrap_or_else(|e| e.into_inner());
                let (guard, _) =
                    bell.wait_timeout_while(guard, MAINTENANCE, |s| !*s).unwrap_or_else(|e| e.into_inner());
                if *guard {
                    return;
                }
                drop(guard);
                match log.maintain() {
                    // Told when it begins and when it is over, not every ten seconds.
                    Ok(done) if (done.held > 0) != held => {
                        held = done.held > 0;
                        if held {
                            tracing::warn!(
                                partitions = done.held,
                                "the event log keeps more than its retention: a group has not consumed it yet"
                            );
                        } else {
                            tracing::info!("the event log is within its retention again");
                        }
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::error!(%error, "the event log's maintenance failed; old segments stay until it works again");
                    }
                }
            }
        })?;
        Ok(Maintenance { stop, thread })
    }

    fn stop(self) {
        *self.stop.0.lock().unwrap_or_else(|e| e.into_inner()) = true;
        self.stop.1.notify_all();
        if self.thread.join().is_err() {
            tracing::error!("the event log's maintenance panicked");
        }
    }
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

fn start_logging(config: &Config) -> Result<(), End> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.telemetry.log)
        .map_err(|e| End::Usage(format!("telemetry.log = \"{}\": {e}", config.telemetry.log)))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Set twice only by tests in one process; the first one stays.
    let _ = if config.telemetry.json { builder.json().try_init() } else { builder.try_init() };
    Ok(())
}
