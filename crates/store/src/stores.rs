//! All read models of one folder.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use hoga_core::ids::Seq;
use hoga_log::event_log::EventLog;
use hoga_log::lag::LatencyReport;
use hoga_log::storage::{IoPriority, set_io_priority};

use crate::Group;
use crate::accounts::{AccountModel, Accounts};
use crate::audit::{AuditReport, EngineView};
use crate::consumer::{Consumer, Model, Pace};
use crate::database::{COMMON_SCHEMA, ReadPool, Safety, lock, open_writer};
use crate::error::StoreError;
use crate::market::{MarketData, MarketModel};
use crate::orders::{OrderModel, Orders};
use crate::place;
use crate::progress::{GroupPosition, Progress};

/// Where the read models are and how they work. The defaults suit a small machine.
#[derive(Clone, Debug)]
pub struct StoresConfig {
    /// The folder of the databases; made when it is not there.
    pub dir: PathBuf,
    /// The most messages in one transaction (4096).
    pub batch: usize,
    /// How long messages may gather before a small batch is written, unless somebody waits for them (200 ms). Each transaction writes
    /// every page that it touched: ten times smaller ones write three times as much.
    pub linger: Duration,
    /// How often what is stored is synced to disk and told to the log (1 s).
    pub sync_every: Duration,
    /// Read connections per database (4).
    pub readers: usize,
    /// How much less of the processor the groups get than other threads: the nice value of their threads, 0 to 19 (5).
    pub nice: i32,
}

impl StoresConfig {
    /// The defaults in a folder.
    pub fn new(dir: impl Into<PathBuf>) -> StoresConfig {
        StoresConfig {
            dir: dir.into(),
            batch: 4096,
            linger: Duration::from_millis(200),
            sync_every: Duration::from_secs(1),
            readers: 4,
            nice: 5,
        }
    }
}

/// The read models: their consumers and their read handles.
pub struct Stores {
    config: StoresConfig,
    log: Arc<dyn EventLog>,
    progress: [Arc<Progress>; 3],
    accounts: Accounts,
    orders: Orders,
    market: MarketData,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Stores {
    /// Opens (or makes) the databases with the default settings. Nothing is consumed before [`Stores::start`].
    pub fn open(dir: &Path, log: Arc<dyn EventLog>) -> Result<Stores, StoreError> {
        Stores::open_with(StoresConfig::new(dir), log)
    }

    /// Opens (or makes) the databases.
    pub fn open_with(config: StoresConfig, log: Arc<dyn EventLog>) -> Result<Stores, StoreError> {
        std::fs::create_dir_all(&config.dir).map_err(|source| StoreError::File {
            path: config.dir.clone(),
            doing: "making the folder of the read models",
            source,
        })?;
        let accounts = Accounts { pool: open_model::<AccountModel>(&config)? };
        let orders = Orders { pool: open_model::<OrderModel>(&config)? };
        let market = MarketData { pool: open_model::<MarketModel>(&config)? };
        let stores = Stores {
            config,
            log,
            progress: Default::default(),
            accounts,
            orders,
            market,
            threads: Mutex::new(Vec::new()),
        };
        for group in Group::ALL {
            let pool = stores.pool(group);
            let (places, applied, letters) = pool.read("reading where the group stands", |conn| {
                let places = place::load(conn, pool.path(), group.topic())?;
                let letters = crate::dead_letters::count(conn, pool.path())?;
                Ok((places, place::applied(conn, pool.path())?, letters))
            })?;
            stores.progress_of(group).opened(&places, applied, letters);
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
        })
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

    /// How far each group has come.
    pub fn positions(&self) -> Vec<GroupPosition> {
        Group::ALL.into_iter().map(|group| self.position(group)).collect()
    }

    /// How far a group has come.
    pub fn position(&self, group: Group) -> GroupPosition {
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
        self.progress_of(group).applied()
    }

    /// Waits until everything that command `seq` put into the group's topic can be read; false when the time is over or the group has
    /// stopped before. A command that puts nothing there is passed only with the next one that does: where it is not known to have put
    /// something there, use [`Stores::wait_current`].
    pub fn wait_applied(&self, group: Group, seq: Seq, timeout: Duration) -> bool {
        self.progress_of(group).wait(timeout, |applied, _| applied >= seq)
    }

    /// Waits until everything that is in the group's topic now can be read; false when the time is over or the group has stopped before.
    pub fn wait_current(&self, group: Group, timeout: Duration) -> bool {
        let Ok(ends) = self.ends(group) else { return false };
        self.progress_of(group).wait(timeout, |_, places| {
            places.len() == ends.len()
                && places.iter().zip(&ends).all(|(place, end)| place.next_offset >= *end)
        })
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
        for progress in &self.progress {
            progress.stop();
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        let since = Instant::now();
        for thread in threads {
            // A group that panicked has said so itself.
            let _ = thread.join();
        }
        tracing::info!(milliseconds = since.elapsed().as_millis() as u64, "read models stopped");
    }

    fn ends(&self, group: Group) -> Result<Vec<u64>, hoga_log::LogError> {
        let topic = group.topic();
        let spec = self.log.topics().into_iter().find(|spec| spec.name == topic);
        let partitions = spec.map_or(0, |spec| spec.partitions);
        (0..partitions).map(|partition| self.log.end_offset(topic, partition)).collect()
    }

    fn pool(&self, group: Group) -> &ReadPool {
        match group {
            Group::Accounts => &self.accounts.pool,
            Group::Orders => &self.orders.pool,
            Group::Market => &self.market.pool,
        }
    }

    fn progress_of(&self, group: Group) -> &Arc<Progress> {
        match group {
            Group::Accounts => &self.progress[0],
            Group::Orders => &self.progress[1],
            Group::Market => &self.progress[2],
        }
    }

    fn start_group<M: Model>(&self) -> Result<(), StoreError> {
        let progress = self.progress_of(M::GROUP);
        let mut threads = lock(&self.threads);
        if progress.running() {
            return Ok(());
        }
        let path = self.config.dir.join(M::GROUP.file_name());
        let conn = writer::<M>(&path)?;
        let pace = Pace {
            batch: self.config.batch.max(1),
            linger: self.config.linger,
            sync_every: self.config.sync_every,
        };
        let consumer = Consumer::<M>::load(conn, path.clone(), self.log.clone(), progress.clone(), pace)?;
        let nice = self.config.nice.clamp(0, 19);
        let work = move || {
            // On Linux this is of the calling thread alone. Where it is refused, the group only competes more.
            if let Err(error) = rustix::process::setpriority_process(None, nice) {
                tracing::debug!(%error, "the group's thread keeps its priority");
            }
            if let Err(error) = set_io_priority(IoPriority::Last) {
                tracing::debug!(%error, "the group's writes compete with the journal's");
            }
            consumer.run();
        };
        let thread = Builder::new().name(M::GROUP.as_str().chars().take(15).collect()).spawn(work).map_err(
            |source| {
                progress.end(None);
                StoreError::File { path, doing: "starting the group's thread", source }
            },
        )?;
        threads.push(thread);
        Ok(())
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn writer<M: Model>(path: &Path) -> Result<rusqlite::Connection, StoreError> {
    open_writer(path, M::SCHEMA_VERSION, &[COMMON_SCHEMA, M::SCHEMA], Safety::Rebuildable)
}

/// Makes the tables when they are not there, and opens the read connections.
fn open_model<M: Model>(config: &StoresConfig) -> Result<ReadPool, StoreError> {
    let path = config.dir.join(M::GROUP.file_name());
    let _writer = writer::<M>(&path)?;
    ReadPool::open(&path, config.readers)
}
