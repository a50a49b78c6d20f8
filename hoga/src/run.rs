//! `hoga run`: some roles in this process. With the exchange among them it is `hoga up` with fewer groups; without, consumer groups alone,
//! with an operator's door beside them.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use hoga_api::{OpsServer, Page, ServerError, observe_stores};
use hoga_log::LogError;
use hoga_log::lag::{LagMonitor, LagOptions};
use hoga_store::{Group, StoreError, Stores};
use serde_json::json;

use crate::cli::{Role, Run};
use crate::config::Config;
use crate::exchange::ExchangePort;
use crate::logs::{Bus, topics};
use crate::process::{RunGuard, Signals, lock, start_logging};
use crate::{End, coded, print, read_models, up};

/// How long the process looks before it tells again that it waits for Kafka or the database.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at what is not there yet, and at signals and faults.
const LOOK: Duration = Duration::from_millis(250);

/// Runs the roles until a signal or a fault ends them.
pub fn run(flags: &Run) -> Result<(), End> {
    let groups: Vec<Group> = flags.role.iter().filter_map(|role| role.group()).collect();
    if flags.role.contains(&Role::Exchange) {
        return up::run(&flags.up, &groups, None);
    }
    let mut config = up::configuration(&flags.up)?;
    start_logging(&config)?;
    let signals = Signals::listen()?;
    let Some(process) = Process::start(&mut config, &groups, &signals)? else { return Ok(()) };
    let url = format!("http://{}", process.ops.local_addr());
    let run_file = RunGuard::write(&config.data.dir, &url, &config.api.admin_token)?;
    print(format_args!("ready {url}"))?;
    let fault = loop {
        if signals.raised() {
            break None;
        }
        if let Some(fault) = process.fault(&groups) {
            break Some(fault);
        }
        std::thread::park_timeout(LOOK);
    };
    drop(run_file);
    process.stop();
    fault.map_or(Ok(()), |fault| Err(End::Fault(fault)))
}

/// The running parts.
struct Process {
    bus: Bus,
    stores: Arc<Stores>,
    ops: OpsServer,
    _lag: LagMonitor,
    _lock: File,
}

impl Process {
    /// Waits for what is away; `None` when a signal came first.
    fn start(config: &mut Config, groups: &[Group], signals: &Signals) -> Result<Option<Process>, End> {
        let lock = lock(&config.data.dir)?;
        let bus = Bus::remote(config)?;
        let specs = topics(config);
        let made = until(signals, "Kafka", LogError::is_transient, || {
            specs.iter().try_for_each(|topic| bus.log.create_topic(topic))
        });
        if made.map_err(coded(LogError::code))?.is_none() {
            bus.close();
            return Ok(None);
        }
        let opened = until(signals, "the database", StoreError::is_transient, || {
            let stores = read_models::open(config, &bus)?;
            stores.connect(Arc::new(ExchangePort::new(config)));
            stores.start_only(groups)?;
            Ok(stores)
        });
        let Some(stores) = opened.map_err(coded(StoreError::code))? else {
            bus.close();
            return Ok(None);
        };
        let stores = Arc::new(stores);
        let lag = LagMonitor::start(
            vec![Arc::clone(&bus.log)],
            observe_stores(&stores),
            LagOptions::default(),
            Duration::from_secs(1),
        );
        let lag = lag.map_err(coded(LogError::code))?;
        if config.api.admin_token.is_empty() {
            config.api.admin_token = up::token()?;
        }
        let ops = ops(config, &stores, groups, &lag)?;
        Ok(Some(Process { bus, stores, ops, _lag: lag, _lock: lock }))
    }

    /// A group that has stopped by itself.
    fn fault(&self, groups: &[Group]) -> Option<String> {
        groups.iter().find_map(|group| {
            let fault = self.stores.position(*group).fault?;
            Some(format!("[{}] {fault}", fault.code()))
        })
    }

    /// Ends in order: batches are finished, offsets committed, the groups left.
    fn stop(self) {
        drop(self.ops);
        self.stores.shutdown();
        self.bus.close();
    }
}

/// Does what may need something that is away now, until it works; `None` when a signal came first.
pub fn until<T, E: std::fmt::Display>(
    signals: &Signals,
    what: &str,
    transient: impl Fn(&E) -> bool,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<Option<T>, E> {
    let mut told: Option<std::time::Instant> = None;
    while !signals.raised() {
        match work() {
            Ok(done) => return Ok(Some(done)),
            Err(error) if transient(&error) => {
                if told.is_none_or(|told| told.elapsed() > PATIENCE) {
                    tracing::warn!(%error, "waiting for {what}");
                    told = Some(std::time::Instant::now());
                }
                std::thread::park_timeout(LOOK);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Health, metrics and positions.
fn ops(config: &Config, stores: &Arc<Stores>, groups: &[Group], lag: &LagMonitor) -> Result<OpsServer, End> {
    let (stores, groups) = (Arc::downgrade(stores), groups.to_vec());
    let pipeline = hoga_api::Pipeline::new(lag.watch());
    let token = config.api.admin_token.clone();
    let page = |status, content_type, body: String| Some(Page { status, content_type, body });
    let pages = move |path: &str, given: Option<&str>| {
        let stores = stores.upgrade()?;
        match path {
            "/metrics" => {
                let mut out = String::with_capacity(4096);
                pipeline.metrics(&mut out);
                page(200, "text/plain; version=0.0.4", out)
            }
            "/api/v1/health" | "/api/v1/ready" => {
                let stopped: Vec<&str> =
                    groups.iter().filter(|g| !stores.position(**g).running).map(|g| g.as_str()).collect();
                let status = if stopped.is_empty() { 200 } else { 503 };
                page(
                    status,
                    "application/json",
                    json!({ "ready": stopped.is_empty(), "stopped": stopped }).to_string(),
                )
            }
            "/api/v1/admin/lag" if given == Some(token.as_str()) => {
                page(200, "application/json", pipeline.json().to_string())
            }
            "/api/v1/admin/lag" => {
                page(401, "text/plain", "the operator's token is missing or wrong\n".into())
            }
            _ => None,
        }
    };
    OpsServer::start(&config.api.listen, Arc::new(pages)).map_err(coded(ServerError::code))
}
