//! `hoga run`: some roles in this process. With the exchange among them it is `hoga up` with fewer groups; without, consumer groups alone,
//! with an operator's door beside them.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use hoga_api::{Asked, OpsServer, Page, Pipeline, ServerError, TickPlant, observe_stores};
use hoga_feed::groups::GroupName;
use hoga_log::LogError;
use hoga_log::lag::{LagMonitor, LagOptions};
use hoga_store::{Group, StoreError, Stores};
use serde_json::{Value, json};

use crate::cli::{GroupLetter, Role, Run};
use crate::config::Config;
use crate::exchange::ExchangePort;
use crate::logs::{Bus, topics};
use crate::plant::{Plant, Wanted};
use crate::process::{RunGuard, Signals, lock, start_logging};
use crate::{End, coded, print, read_models, up};

/// How long the process looks before it tells again that it waits for Kafka or the database.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at what is not there yet, and at signals and faults.
const LOOK: Duration = Duration::from_millis(250);

/// Runs the roles until a signal or a fault ends them.
pub fn run(flags: &Run) -> Result<(), End> {
    let groups: Vec<Group> = flags.role.iter().filter_map(|role| role.group()).collect();
    let wanted = wanted(flags)?;
    if flags.role.contains(&Role::Exchange) {
        if wanted != Wanted::default() {
            return Err(End::Usage(
                "the exchange and parts of the tick plant in one process are `hoga up --feed`; otherwise give each a process".into(),
            ));
        }
        return up::run(&flags.up, &groups, None);
    }
    let mut config = up::configuration(&flags.up)?;
    start_logging(&config)?;
    let signals = Signals::listen()?;
    let Some(process) = Process::start(&mut config, &groups, &wanted, &signals)? else { return Ok(()) };
    let url = format!("http://{}", process.ops.local_addr());
    let run_file = RunGuard::write(&config.data.dir, &url, &config.api.admin_token)?;
    print(format_args!("ready {url}"))?;
    let fault = loop {
        if signals.raised() {
            break None;
        }
        if let Some(fault) = process.fault() {
            break Some(fault);
        }
        std::thread::park_timeout(LOOK);
    };
    drop(run_file);
    process.stop();
    fault.map_or(Ok(()), |fault| Err(End::Fault(fault)))
}

/// Which parts of the tick plant the roles name.
fn wanted(flags: &Run) -> Result<Wanted, End> {
    let has = |role| flags.role.contains(&role);
    let members = flags.group.iter().map(|letter| match letter {
        GroupLetter::A => GroupName::A,
        GroupLetter::B => GroupName::B,
    });
    let mut members: Vec<GroupName> = members.collect();
    members.sort_unstable();
    members.dedup();
    if has(Role::Processor) == members.is_empty() {
        return Err(End::Usage(
            "the role processor needs its group, and only it has one: --role processor --group a".into(),
        ));
    }
    Ok(Wanted { feed: has(Role::Feed), members, desk: has(Role::Quotes) })
}

/// The running parts.
struct Process {
    consumers: Option<Consumers>,
    plant: Option<Plant>,
    ops: OpsServer,
    _lock: File,
}

/// Consumer groups, and what they read and write.
struct Consumers {
    bus: Bus,
    stores: Arc<Stores>,
    groups: Vec<Group>,
    lag: LagMonitor,
}

impl Process {
    /// Waits for what is away; `None` when a signal came first.
    fn start(
        config: &mut Config,
        groups: &[Group],
        wanted: &Wanted,
        signals: &Signals,
    ) -> Result<Option<Process>, End> {
        let lock = lock(&config.data.dir)?;
        let mut consumers = None;
        if !groups.is_empty() {
            match Consumers::start(config, groups, signals)? {
                Some(started) => consumers = Some(started),
                None => return Ok(None),
            }
        }
        let mut plant = None;
        if *wanted != Wanted::default() {
            match Plant::start(config, wanted, None, signals) {
                Ok(Some(started)) => plant = Some(started),
                other => {
                    if let Some(consumers) = consumers {
                        consumers.stop();
                    }
                    return other.map(|_| None);
                }
            }
        }
        if config.api.admin_token.is_empty() {
            config.api.admin_token = up::token()?;
        }
        let ops = ops(config, consumers.as_ref(), plant.as_ref())?;
        Ok(Some(Process { consumers, plant, ops, _lock: lock }))
    }

    /// A part that has stopped by itself.
    fn fault(&self) -> Option<String> {
        let consumers = self.consumers.as_ref().and_then(Consumers::fault);
        consumers.or_else(|| self.plant.as_ref().and_then(Plant::fault))
    }

    /// Ends in order.
    fn stop(self) {
        drop(self.ops);
        if let Some(plant) = self.plant {
            plant.stop();
        }
        if let Some(consumers) = self.consumers {
            consumers.stop();
        }
    }
}

impl Consumers {
    /// Waits for what is away; `None` when a signal came first.
    fn start(config: &Config, groups: &[Group], signals: &Signals) -> Result<Option<Consumers>, End> {
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
        Ok(Some(Consumers { bus, stores, groups: groups.to_vec(), lag }))
    }

    /// A group that has stopped by itself.
    fn fault(&self) -> Option<String> {
        self.groups.iter().find_map(|group| {
            let fault = self.stores.position(*group).fault?;
            Some(format!("[{}] {fault}", fault.code()))
        })
    }

    /// Ends in order: batches are finished, offsets committed, the groups left.
    fn stop(self) {
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

/// Health, metrics, positions, and what there is of the tick plant.
fn ops(config: &Config, consumers: Option<&Consumers>, plant: Option<&Plant>) -> Result<OpsServer, End> {
    let watched = consumers.map(|consumers| {
        let pipeline = Pipeline::new(consumers.lag.watch());
        (Arc::downgrade(&consumers.stores), consumers.groups.clone(), pipeline)
    });
    let (view, spool) = (plant.map(Plant::view), plant.map(Plant::pages));
    let token = config.api.admin_token.clone();
    let pages = move |asked: &Asked| {
        if asked.path.contains("/admin/") && asked.token.as_deref() != Some(token.as_str()) {
            return Some(text(401, "the operator's token is missing or wrong\n".into()));
        }
        if let Some(page) = view.as_ref().and_then(|view| plant_page(view, asked)) {
            return Some(page);
        }
        match asked.path.as_str() {
            _ if asked.post => None,
            "/metrics" => {
                let mut out = String::with_capacity(4096);
                if let Some((_, _, pipeline)) = &watched {
                    pipeline.metrics(&mut out);
                }
                if let Some(view) = &view {
                    view.metrics(&mut out);
                }
                Some(Page { status: 200, content_type: "text/plain; version=0.0.4", body: out.into_bytes() })
            }
            "/api/v1/health" | "/api/v1/ready" => {
                let mut stopped = Vec::new();
                if let Some((stores, groups, _)) = &watched {
                    let stores = stores.upgrade()?;
                    let ended = groups.iter().filter(|group| !stores.position(**group).running);
                    stopped.extend(ended.map(|group| group.as_str()));
                }
                let status = if stopped.is_empty() { 200 } else { 503 };
                Some(json_page(status, &json!({ "ready": stopped.is_empty(), "stopped": stopped })))
            }
            "/api/v1/admin/lag" => watched.as_ref().map(|(_, _, pipeline)| json_page(200, &pipeline.json())),
            path => spool.as_ref().and_then(|spool| spool(path)),
        }
    };
    OpsServer::start(&config.api.listen, Arc::new(pages)).map_err(coded(ServerError::code))
}

fn json_page(status: u16, value: &Value) -> Page {
    Page { status, content_type: "application/json", body: value.to_string().into_bytes() }
}

fn text(status: u16, text: String) -> Page {
    Page { status, content_type: "text/plain", body: text.into_bytes() }
}

/// The tick plant's pages; `None` when it has none of this path.
fn plant_page(view: &TickPlant, asked: &Asked) -> Option<Page> {
    let parameter = |name: &str| {
        let pairs = asked.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let done = |done: Result<Value, String>| match done {
        Ok(value) => json_page(200, &value),
        Err(reason) => text(409, format!("{reason}\n")),
    };
    if asked.post {
        return match asked.path.as_str() {
            "/api/v1/admin/plant/switch" => {
                let force = parameter("force") == Some("true");
                Some(
                    parameter("to").map_or_else(
                        || text(400, "to is missing\n".into()),
                        |to| done(view.switch(to, force)),
                    ),
                )
            }
            "/api/v1/admin/plant/rebuild" => {
                Some(parameter("group").map_or_else(
                    || text(400, "group is missing\n".into()),
                    |group| done(view.rebuild(group)),
                ))
            }
            _ => None,
        };
    }
    match asked.path.as_str() {
        "/api/v1/plant" => Some(json_page(200, &view.json())),
        "/api/v1/plant/monitor" => Some(json_page(200, &view.monitor())),
        "/api/v1/plant/diff" => Some(json_page(200, &view.diff())),
        "/api/v1/plant/quotes" => Some(json_page(200, &view.quotes())),
        path => {
            if let Some(symbol) = path.strip_prefix("/api/v1/plant/explain/") {
                return Some(done(view.explain(symbol)));
            }
            let symbol = path.strip_prefix("/api/v1/plant/quotes/")?;
            Some(
                view.quote(symbol)
                    .map_or_else(|| text(404, "no such symbol\n".into()), |quote| json_page(200, &quote)),
            )
        }
    }
}
