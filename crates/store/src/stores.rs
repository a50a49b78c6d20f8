//! All read models of one database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use hoga_core::ids::Seq;
use hoga_log::LogError;
use hoga_log::consumer::{BatchOptions, GroupFault, LogSource, Signal, Source, run_batches};
use hoga_log::event_log::EventLog;
use hoga_log::lag::LatencyReport;
use hoga_log::storage::{IoPriority, set_io_priority};

use crate::accounts::{AccountModel, Accounts};
use crate::audit::{AuditReport, EngineView};
use crate::database::lock;
use crate::error::StoreError;
use crate::handler::Handler;
use crate::market::{MarketData, MarketModel};
use crate::model::{Model, Outside};
use crate::notifications::{Listener, NotificationModel, Notifications, tail};
use crate::orders::{OrderModel, Orders};
use crate::progress::{End, GroupPosition, Progress};
use crate::sql::{self, Database, ReadPool, WritePool, Writer, make_dir, set_old_layout_aside};
use crate::triggers::{Alerts, CommandPort, Sender, Sending, TriggerModel};
use crate::{Group, place};

/// Gives a member of a group its messages: the group, and its topics.
pub type SourceFactory = Arc<dyn Fn(Group, &[&str]) -> Result<Box<dyn Source>, LogError> + Send + Sync>;

/// Where the read models are and how they work. The defaults suit a small machine.
#[derive(Clone)]
pub struct StoresConfig {
    /// Where the tables are.
    pub database: Database,
    /// How a member of a group gets its messages; without one it is the only member and reads all partitions from the log.
    pub source: Option<SourceFactory>,
    /// Whether groups, or other members of them, may run in other processes: then positions are read from the database, and who waits for
    /// a group that does not run here waits for that (false).
    pub shared: bool,
    /// The most messages in one transaction (4096).
    pub batch: usize,
    /// How long messages may gather before a small batch is written, unless somebody waits for them (200 ms). Each transaction writes
    /// every page that it touched: ten times smaller ones write three times as much.
    pub linger: Duration,
    /// How often what is stored is synced to disk and told to the log (1 s).
    pub sync_every: Duration,
    /// Read connections per group (4).
    pub readers: usize,
    /// How long a question may wait for one of them (5 s).
    pub reader_wait: Duration,
    /// How much less of the processor the groups get than other threads: the nice value of their threads, 0 to 19 (5).
    pub nice: i32,
}

impl StoresConfig {
    /// The defaults, in SQLite files in a folder.
    pub fn new(dir: impl Into<PathBuf>) -> StoresConfig {
        StoresConfig::on(Database::Sqlite { dir: dir.into() })
    }

    /// The defaults on a database.
    pub fn on(database: Database) -> StoresConfig {
        StoresConfig {
            database,
            source: None,
            shared: false,
            batch: 4096,
            linger: Duration::from_millis(200),
            sync_every: Duration::from_secs(1),
            readers: 4,
            reader_wait: Duration::from_secs(5),
            nice: 5,
        }
    }

    /// Where the tables of a group are.
    pub(crate) fn tables(&self, group: Group) -> sql::Place {
        sql::Place { database: self.database.clone(), file: group.model().into(), schema: group.schema() }
    }
}

/// The read models: their consumers and their read handles.
pub struct Stores {
    pub(crate) config: StoresConfig,
    pub(crate) log: Arc<dyn EventLog>,
    progress: [Arc<Progress>; Group::ALL.len()],
    accounts: Accounts,
    orders: Orders,
    market: MarketData,
    notifications: Notifications,
    alerts: Alerts,
    port: Mutex<Option<Arc<dyn CommandPort>>>,
    sending: Arc<Sending>,
    sender: Mutex<Option<JoinHandle<()>>>,
    listeners: Mutex<Vec<JoinHandle<()>>>,
    unheard: Arc<AtomicBool>,
    threads: Mutex<Vec<(Group, JoinHandle<()>)>>,
}

impl Stores {
    /// Opens (or makes) the databases with the default settings. Nothing is consumed before [`Stores::start`].
    pub fn open(dir: &Path, log: Arc<dyn EventLog>) -> Result<Stores, StoreError> {
        Stores::open_with(StoresConfig::new(dir), log)
    }

    /// Opens (or makes) the databases.
    pub fn open_with(config: StoresConfig, log: Arc<dyn EventLog>) -> Result<Stores, StoreError> {
        if let Database::Sqlite { dir } = &config.database {
            make_dir(dir)?;
        }
        let accounts = Accounts { pool: open_model::<AccountModel>(&config)? };
        let orders = Orders { pool: open_model::<OrderModel>(&config)? };
        let market = MarketData { pool: open_model::<MarketModel>(&config)? };
        let notifications = Notifications { pool: open_model::<NotificationModel>(&config)? };
        let alerts = Alerts {
            pool: open_model::<TriggerModel>(&config)?,
            writes: WritePool::new(config.tables(Group::Triggers), config.readers, config.reader_wait),
            log: Arc::clone(&log),
        };
        let stores = Stores {
            config,
            log,
            notifications,
            alerts,
            port: Mutex::default(),
            sending: Arc::default(),
            sender: Mutex::default(),
            listeners: Mutex::default(),
            unheard: Arc::default(),
            progress: Default::default(),
            accounts,
            orders,
            market,
            threads: Mutex::new(Vec::new()),
        };
        for group in Group::ALL {
            stores.read_position(group)?;
        }
        Ok(stores)
    }

    /// Starts the groups that do not run: all of them at first, later those that have stopped with a fault. The topics must exist. Fails
    /// with [`StoreError::Trimmed`] when the log begins later than a database needs.
    pub fn start(&self) -> Result<(), StoreError> {
        self.start_only(&Group::ALL)
    }

    /// As [`Stores::start`], for some of the groups: each runs alone.
    pub fn start_only(&self, groups: &[Group]) -> Result<(), StoreError> {
        groups.iter().try_for_each(|group| match group {
            Group::Accounts => self.start_group::<AccountModel>(),
            Group::Orders => self.start_group::<OrderModel>(),
            Group::Market => self.start_group::<MarketModel>(),
            Group::Notifications => self.start_group::<NotificationModel>(),
            Group::Triggers => {
                self.start_sender()?;
                self.start_group::<TriggerModel>()
            }
        })
    }

    /// How orders of alerts get to the engine. Without it they wait in the tables. Takes effect when `stop-trigger` is started next.
    pub fn connect(&self, port: Arc<dyn CommandPort>) {
        *lock(&self.port) = Some(port);
    }

    /// Hands every notification that comes from now on, from whatever process, to a listener, on a thread of its own that ends with
    /// [`Stores::shutdown`].
    ///
    /// # Errors
    /// [`StoreError::File`] when the thread cannot be started.
    pub fn listen(&self, listener: Listener) -> Result<(), StoreError> {
        let (log, stop) = (Arc::clone(&self.log), Arc::clone(&self.unheard));
        let thread =
            Builder::new().name("notify-tail".into()).spawn(move || tail::run(&log, &listener, &stop));
        lock(&self.listeners).push(thread.map_err(no_thread)?);
        Ok(())
    }

    /// Starts the thread that sends the orders of alerts, when it does not run and there is a way for them.
    fn start_sender(&self) -> Result<(), StoreError> {
        let mut sender = lock(&self.sender);
        let Some(port) = lock(&self.port).clone().filter(|_| sender.is_none()) else { return Ok(()) };
        self.sending.begin();
        let work = Sender { alerts: self.alerts.clone(), port, sending: Arc::clone(&self.sending) };
        let thread = Builder::new().name("alert-orders".into()).spawn(move || work.run());
        *sender = Some(thread.map_err(no_thread)?);
        Ok(())
    }

    /// Balances and ledger.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Orders and fills.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Trades and candles.
    pub fn market(&self) -> &MarketData {
        &self.market
    }

    /// What users were told.
    pub fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Alerts: to make, to take back, to read.
    pub fn alerts(&self) -> &Alerts {
        &self.alerts
    }

    /// How far each group has come.
    pub fn positions(&self) -> Vec<GroupPosition> {
        Group::ALL.into_iter().map(|group| self.position(group)).collect()
    }

    /// How far a group has come.
    pub fn position(&self, group: Group) -> GroupPosition {
        self.look(group);
        // Without its topic there is nothing to be behind of.
        let ends = self.ends(group).unwrap_or_default();
        self.progress_of(group).position(group, &ends)
    }

    /// How long it took in the last minute from a command's time until its result could be read, of each message of the group.
    pub fn latency(&self, group: Group) -> LatencyReport {
        self.progress_of(group).latency().report()
    }

    /// The last command of which everything in the group's topic can be read; cheaper than [`Stores::position`].
    pub fn applied(&self, group: Group) -> Seq {
        self.look(group);
        self.progress_of(group).applied()
    }

    /// Waits until everything that command `seq` put into the group's topic can be read; false when the time is over or the group has
    /// stopped before. A command that puts nothing there is passed only with the next one that does: where it is not known to have put
    /// something there, use [`Stores::wait_current`].
    pub fn wait_applied(&self, group: Group, seq: Seq, timeout: Duration) -> bool {
        self.wait(group, timeout, |applied, _| applied >= seq)
    }

    /// Waits until everything that is in the group's topic now can be read; false when the time is over or the group has stopped before.
    pub fn wait_current(&self, group: Group, timeout: Duration) -> bool {
        let Ok(ends) = self.ends(group) else { return false };
        self.wait(group, timeout, |_, places| ends.iter().all(|end| end.is_reached(places)))
    }

    /// Waits for what the group of this process says, or for what the database says where it may run elsewhere.
    fn wait(&self, group: Group, timeout: Duration, reached: impl Fn(Seq, &[place::Place]) -> bool) -> bool {
        let progress = self.progress_of(group);
        if !self.config.shared {
            return progress.wait(timeout, reached);
        }
        let deadline = Instant::now() + timeout;
        loop {
            self.look(group);
            // Ends at once when it is reached, and otherwise waits one turn even where no group runs here.
            if progress.wait(LOOK_EVERY, &reached) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if !progress.running() {
                std::thread::sleep(LOOK_EVERY.min(left));
            }
        }
    }

    /// Where groups may run elsewhere, asks the database where this one stands, but not more often than it is worth.
    fn look(&self, group: Group) {
        if self.config.shared
            && !self.progress_of(group).is_fresh(LOOK_EVERY)
            && let Err(error) = self.read_position(group)
        {
            tracing::debug!(group = group.as_str(), %error, "where the group stands is not known now");
        }
    }

    fn read_position(&self, group: Group) -> Result<(), StoreError> {
        let (places, applied, letters) =
            self.pool(group).read("reading where the group stands", |reader| {
                let letters = crate::dead_letters::count(reader)?;
                Ok((place::load(reader, group)?, place::applied(reader)?, letters))
            })?;
        self.progress_of(group).read(&places, applied, letters);
        Ok(())
    }

    /// Compares the ledger with the engine's view. Everything up to the view's command must be in the log (the view was taken by a follower
    /// that publishes before it answers, or the engine has stopped). Waits until the ledger has it; [`StoreError::NotReached`] when that
    /// takes longer than `timeout` or the group has stopped. Trading may go on meanwhile.
    pub fn audit(&self, engine: &EngineView, timeout: Duration) -> Result<AuditReport, StoreError> {
        if !self.wait_current(Group::Accounts, timeout) {
            return Err(StoreError::NotReached { asked: engine.at, applied: self.applied(Group::Accounts) });
        }
        Ok(self.accounts.audit_reached(engine.at)?.compare(engine))
    }

    /// Stops all groups: each finishes its batch, syncs its database and tells the log. Returns when they have ended. Reads still work.
    pub fn shutdown(&self) {
        let since = Instant::now();
        self.unheard.store(true, Ordering::Relaxed);
        self.stop_only(&Group::ALL);
        for thread in std::mem::take(&mut *lock(&self.listeners)) {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
        tracing::info!(milliseconds = since.elapsed().as_millis() as u64, "read models stopped");
    }

    /// As [`Stores::shutdown`], for some of the groups; the others do not notice.
    pub fn stop_only(&self, groups: &[Group]) {
        for group in groups {
            self.progress_of(*group).stop();
        }
        if groups.contains(&Group::Triggers) {
            self.sending.stop();
            if let Some(sender) = lock(&self.sender).take() {
                // An order on its way is waited for: the engine answers it or has stopped.
                let _ = sender.join();
            }
        }
        let mut threads = lock(&self.threads);
        let (ending, others) =
            std::mem::take(&mut *threads).into_iter().partition(|(group, _)| groups.contains(group));
        *threads = others;
        drop(threads);
        let ending: Vec<(Group, JoinHandle<()>)> = ending;
        for (_, thread) in ending {
            // A group that panicked has said so itself.
            let _ = thread.join();
        }
    }

    /// The ends of all partitions that the group reads.
    pub(crate) fn ends(&self, group: Group) -> Result<Vec<End>, LogError> {
        let specs = self.log.topics();
        let mut ends = Vec::new();
        for topic in group.topics() {
            let partitions = specs.iter().find(|spec| spec.name == *topic).map_or(0, |spec| spec.partitions);
            for partition in 0..partitions {
                ends.push(End { topic, partition, offset: self.log.end_offset(topic, partition)? });
            }
        }
        Ok(ends)
    }

    /// Reads where a group stands that does not run here.
    pub(crate) fn reload(&self, group: Group) -> Result<(), StoreError> {
        if self.is_running(group) { Ok(()) } else { self.read_position(group) }
    }

    pub(crate) fn is_running(&self, group: Group) -> bool {
        self.progress_of(group).running()
    }

    pub(crate) fn pool(&self, group: Group) -> &ReadPool {
        match group {
            Group::Accounts => &self.accounts.pool,
            Group::Orders => &self.orders.pool,
            Group::Market => &self.market.pool,
            Group::Notifications => &self.notifications.pool,
            Group::Triggers => &self.alerts.pool,
        }
    }

    fn progress_of(&self, group: Group) -> &Arc<Progress> {
        &self.progress[group.index()]
    }

    fn start_group<M: Model>(&self) -> Result<(), StoreError> {
        let progress = self.progress_of(M::GROUP).clone();
        let mut threads = lock(&self.threads);
        let signal = Arc::new(Signal::new());
        if !progress.start(signal.clone()) {
            return Ok(());
        }
        match self.spawn_group::<M>(progress.clone(), signal) {
            Ok(thread) => {
                threads.retain(|(_, thread)| !thread.is_finished());
                threads.push((M::GROUP, thread));
                Ok(())
            }
            Err(error) => {
                progress.end(None);
                Err(error)
            }
        }
    }

    fn spawn_group<M: Model>(
        &self,
        progress: Arc<Progress>,
        signal: Arc<Signal>,
    ) -> Result<JoinHandle<()>, StoreError> {
        let tables = self.config.tables(M::GROUP);
        let claim = claim::<M>(&tables)?;
        self.check_start::<M>()?;
        let sending = Arc::clone(&self.sending);
        let outside = Outside { log: Arc::clone(&self.log), sending: Arc::clone(&self.sending) };
        let mut handler = Handler::<M>::new(&tables, self.log.clone(), progress.clone(), Some(outside))?;
        let source = match &self.config.source {
            Some(factory) => factory(M::GROUP, M::GROUP.topics()),
            None => LogSource::new(self.log.clone(), M::GROUP.as_str(), M::GROUP.topics())
                .map(|source| Box::new(source) as Box<dyn Source>),
        };
        let source = source.map_err(|source| StoreError::Log { group: M::GROUP, source })?;
        let options = BatchOptions {
            max_messages: self.config.batch.max(1),
            linger: M::LINGER.map_or(self.config.linger, |most| most.min(self.config.linger)),
            commit_every: self.config.sync_every,
            ..BatchOptions::default()
        };
        let nice = self.config.nice.clamp(0, 19);
        let work = move || {
            // On Linux this is of the calling thread alone. Where it is refused, the group only competes more.
            if let Err(error) = rustix::process::setpriority_process(None, nice) {
                tracing::debug!(%error, "the group's thread keeps its priority");
            }
            if let Err(error) = set_io_priority(IoPriority::Last) {
                tracing::debug!(%error, "the group's writes compete with the journal's");
            }
            let ended = run_batches(source, &mut handler, &options, &signal, &*progress);
            // The writer's connection is closed and the file free before anybody can start the group again.
            drop(handler);
            drop(claim);
            if M::GROUP == Group::Triggers {
                // Whoever gets the partitions next sends their orders.
                sending.own(&BTreeSet::new());
            }
            let fault = ended.err().map(|fault| Arc::new(store_error(M::GROUP, fault)));
            if let Some(fault) = &fault {
                tracing::error!(group = M::GROUP.as_str(), %fault, "consumer group stopped");
            }
            progress.end(fault);
        };
        let name = M::GROUP.as_str().chars().take(15).collect();
        Builder::new().name(name).spawn(work).map_err(|source| StoreError::File {
            path: tables.path().unwrap_or_default(),
            doing: "starting the group's thread",
            source,
        })
    }

    /// What would stop the group at once is told to whoever starts it.
    fn check_start<M: Model>(&self) -> Result<(), StoreError> {
        let stored =
            self.pool(M::GROUP).read("reading where the group stands", |r| place::load(r, M::GROUP))?;
        let log = |source| StoreError::Log { group: M::GROUP, source };
        let specs = self.log.topics();
        for topic in M::GROUP.topics() {
            let spec = specs.iter().find(|spec| spec.name == *topic);
            let spec = spec.ok_or_else(|| log(LogError::NoTopic { topic: (*topic).to_owned() }))?;
            if spec.cleanup == hoga_log::event_log::Cleanup::Compact {
                continue;
            }
            for partition in 0..spec.partitions {
                let known = stored.iter().find(|place| place.topic == *topic && place.partition == partition);
                let needed = known.map_or(0, |place| place.next_offset);
                let first = match self.log.start_offset(topic, partition) {
                    Ok(first) => first,
                    // The group finds out itself when it can.
                    Err(fault) if fault.is_transient() => continue,
                    Err(fault) => return Err(log(fault)),
                };
                if first > needed {
                    let topic = (*topic).to_owned();
                    return Err(StoreError::Trimmed { group: M::GROUP, topic, partition, needed, first });
                }
            }
        }
        Ok(())
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn no_thread(source: std::io::Error) -> StoreError {
    StoreError::File { path: PathBuf::new(), doing: "starting a thread", source }
}

/// While nobody is told by a group of this process, the database is asked at most so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The runtime's fault as ours: what the handler said is one already.
fn store_error(group: Group, fault: GroupFault) -> StoreError {
    match fault {
        GroupFault::Log { source, .. } => StoreError::Log { group, source },
        GroupFault::Handler { source, .. } => match source.downcast::<StoreError>() {
            Ok(error) => *error,
            Err(source) => {
                StoreError::Database { database: group.as_str().into(), doing: "handling messages", source }
            }
        },
    }
}

/// Keeps other processes from writing a SQLite file; gone with the process. On PostgreSQL the places do that, row by row.
pub(crate) fn claim<M: Model>(tables: &sql::Place) -> Result<Option<std::fs::File>, StoreError> {
    let Some(path) = tables.path() else { return Ok(None) };
    let path = path.with_extension("lock");
    let of = |doing| {
        let path = path.clone();
        move |source| StoreError::File { path, doing, source }
    };
    let file = std::fs::File::create(&path).map_err(of("making the lock file of a read model"))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let database = tables.path().unwrap_or_default().display().to_string();
            Err(StoreError::Claimed { group: M::GROUP, database })
        }
        Err(errno) => Err(of("locking a read model")(errno.into())),
    }
}

/// Makes the tables when they are not there, and a pool of read connections.
fn open_model<M: Model>(config: &StoresConfig) -> Result<ReadPool, StoreError> {
    let tables = config.tables(M::GROUP);
    set_old_layout_aside(&tables)?;
    let _writer = Writer::open(&tables, M::GROUP.model())?;
    Ok(ReadPool::new(tables, config.readers, config.reader_wait))
}
