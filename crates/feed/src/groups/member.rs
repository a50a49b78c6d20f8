//! A member of a group: it works on all ticks, and while it leads it writes what came of them to the group's cache.
//!
//! A standby does the same work and writes nothing, so it takes over with everything it knows. Who leads, a lease decides; that no one else writes
//! is not left to the lease but to the cache, which compares the epoch at every write. So a leader writes on while the lease's service is
//! away, and one that was paused is refused.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoga_log::LogError;
use hoga_log::lease::Lease;

use super::GroupName;
use super::board::{Board, lock};
use super::processor::{Detecting, Folding, Tamper, now};
use crate::bus::Bus;
use crate::cache::{CacheError, GroupCache, MemberNote, Status};
use crate::detect::DetectConfig;
use crate::monitor::{Counts, Delays, SymbolOrder};
use crate::plant::{Plant, PlantConfig, PlantFault, PlantStats, recommended_loops};
use crate::state::StateConfig;
use crate::symbol::Symbol;

/// How a member works.
#[derive(Clone)]
pub struct MemberConfig {
    /// Its group.
    pub group: GroupName,
    /// Its name, different for each member.
    pub node: String,
    /// Readers and loops that fold ticks.
    pub plant: PlantConfig,
    /// Readers and loops that look for events; none: nobody does.
    pub heavy: Option<PlantConfig>,
    /// What is made of ticks.
    pub state: StateConfig,
    /// What is an event.
    pub detect: DetectConfig,
    /// How often candles are written (1 s): off the loops, and a few with each write, so that the end of a minute costs no more than any second and no quote waits
    /// for all of them.
    pub candles_every: Duration,
    /// How often it says how it is doing (40 ms). Whoever shows the group takes its leader for gone after some of them.
    pub status_every: Duration,
    /// Another version of the processor, for tests.
    pub tamper: Option<Tamper>,
}

impl MemberConfig {
    /// Defaults, with so many loops.
    pub fn new(group: GroupName, node: &str, loops: u32) -> MemberConfig {
        MemberConfig {
            group,
            node: node.into(),
            plant: PlantConfig::new(loops),
            heavy: Some(PlantConfig { hot: None, ..PlantConfig::new(1) }),
            state: StateConfig::default(),
            detect: DetectConfig::default(),
            candles_every: Duration::from_secs(1),
            status_every: Duration::from_millis(40),
            tamper: None,
        }
    }
}

/// Most quotes of one write.
const WRITE: usize = 512;
/// Most candles of one write: those of a second go out in many, so that no quote waits for all of them.
const CANDLES: usize = 64;
/// The pause after a cache that is away.
const AWAY: Duration = Duration::from_millis(50);
/// How often it is looked how far the bus has come, and whether loops run.
const LOOK: Duration = Duration::from_millis(100);
/// Pauses between two beginnings after faults double up to 100 ms × 2⁷.
const FAULTS: u32 = 7;
/// How often a member that does not lead says that it is there.
const ANNOUNCE: Duration = Duration::from_millis(500);

/// What a member is doing now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberStatus {
    /// The epoch in which it leads; none: it follows.
    pub leads: Option<u64>,
    /// Writes that were refused because a leader of a higher epoch had written.
    pub refused: u64,
    /// Writes that the cache has taken.
    pub written: u64,
    /// Whether the cache took the last one.
    pub cache_is_there: bool,
    /// Whether the lease's service answered the last time.
    pub lease_is_there: bool,
    /// How often it has rebuilt itself.
    pub rebuilt: u64,
    /// What it tells of itself.
    pub status: Status,
}

/// The plants of a member and what they have to reach.
struct Works {
    plant: Option<Plant>,
    heavy: Option<Plant>,
    /// Ends of the lanes when it began: until then it builds itself up.
    builds_to: Option<Vec<u64>>,
    /// Ends of the lanes at a moment, until they are handled.
    to_reach: Option<(Instant, Vec<u64>)>,
    behind: u64,
    behind_for: Duration,
    rebuilt: u64,
    fault: Option<String>,
    /// Ends by themselves in a row, and when it may begin anew after the last.
    faults: u32,
    not_before: Option<Instant>,
}

/// What is written by the writer's thread and read by others.
#[derive(Default)]
struct Told {
    refused: AtomicU64,
    written: AtomicU64,
    cache_is_there: AtomicBool,
    lease_is_there: AtomicBool,
    /// The epoch in which it leads; 0: it follows. What the lease says.
    holds: AtomicU64,
    /// The epoch that the cache refused.
    fenced: AtomicU64,
    /// In which it writes.
    leads: AtomicU64,
    delays: Mutex<Delays>,
}

type Work = Box<dyn FnOnce() + Send>;

struct Inner {
    config: MemberConfig,
    bus: Arc<dyn Bus>,
    cache: Arc<dyn GroupCache>,
    board: Arc<Board>,
    works: Mutex<Works>,
    told: Told,
    rebuild: AtomicBool,
    stop: AtomicBool,
}

/// A running member. Stops when it is dropped; its lease is given up then, so that a standby need not wait.
pub struct Member {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Member {
    /// Begins at the front of the bus. It asks for the lease once it has caught up.
    ///
    /// # Errors
    /// As [`Plant::start`].
    pub fn start(
        bus: &Arc<dyn Bus>,
        cache: Arc<dyn GroupCache>,
        lease: Box<dyn Lease>,
        config: MemberConfig,
    ) -> Result<Member, LogError> {
        let name = format!("member-{}", config.group.as_str());
        let inner = Arc::new(Inner {
            config,
            bus: bus.clone(),
            cache,
            board: Arc::new(Board::default()),
            works: Mutex::new(Works {
                plant: None,
                heavy: None,
                builds_to: None,
                to_reach: None,
                behind: 0,
                behind_for: Duration::ZERO,
                rebuilt: 0,
                fault: None,
                faults: 0,
                not_before: None,
            }),
            told: Told::default(),
            rebuild: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        inner.begin(&mut lock(&inner.works))?;
        let mut member = Member { inner: inner.clone(), threads: Vec::new() };
        let mut spawn = |what: &str, work: Work| {
            let started = std::thread::Builder::new().name(format!("{name}-{what}")).spawn(work);
            started
                .map(|thread| member.threads.push(thread))
                .map_err(LogError::io("starting a thread", what.as_ref()))
        };
        let (of_lease, of_watch) = (inner.clone(), inner.clone());
        spawn("lease", Box::new(move || of_lease.campaign(lease)))?;
        spawn("watch", Box::new(move || of_watch.watch()))?;
        spawn("writer", Box::new(move || inner.write()))?;
        Ok(member)
    }

    /// What it is doing.
    pub fn status(&self) -> MemberStatus {
        let (told, inner) = (&self.inner.told, &self.inner);
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let rebuilt = lock(&inner.works).rebuilt;
        MemberStatus {
            leads: Some(get(&told.leads)).filter(|epoch| *epoch > 0),
            refused: get(&told.refused),
            written: get(&told.written),
            cache_is_there: told.cache_is_there.load(Ordering::Relaxed),
            lease_is_there: told.lease_is_there.load(Ordering::Relaxed),
            rebuilt,
            status: inner.status(get(&told.leads)),
        }
    }

    /// Figures of its loops; none while it begins anew.
    pub fn plant(&self) -> Option<PlantStats> {
        lock(&self.inner.works).plant.as_ref().map(Plant::stats)
    }

    /// Figures of its heavy loops; none while it begins anew, or has none.
    pub fn heavy(&self) -> Option<PlantStats> {
        lock(&self.inner.works).heavy.as_ref().map(Plant::stats)
    }

    /// What happened to the numbers of each symbol, by symbol.
    pub fn monitor(&self) -> Vec<(Symbol, SymbolOrder)> {
        let all = self.inner.board.symbols();
        all.into_iter().map(|(symbol, state)| (symbol, lock(&state).order().clone())).collect()
    }

    /// The state of a symbol, for a look: while `f` runs, its loop waits.
    pub fn with_symbol<T>(
        &self,
        symbol: Symbol,
        f: impl FnOnce(&mut crate::state::SymbolState) -> T,
    ) -> Option<T> {
        let state = self.inner.board.symbol(symbol)?;
        let mut state = lock(&state);
        Some(f(&mut state))
    }

    /// Lets go of everything and builds it anew from the front of the bus. It gives up the lead for that.
    pub fn rebuild(&self) {
        self.inner.rebuild.store(true, Ordering::Release);
    }

    /// What ended its loops, when they ended by themselves. It begins anew then.
    pub fn fault(&self) -> Option<String> {
        lock(&self.inner.works).fault.clone()
    }

    /// Waits until everything up to these offsets has been handled, or the time is over; says whether it was.
    pub fn wait_handled(&self, offsets: &[u64], timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let handled = |works: &Works| {
                let fold =
                    works.plant.as_ref().is_some_and(|plant| plant.wait_handled(offsets, Duration::ZERO));
                let heavy = self.inner.config.heavy.is_none()
                    || works.heavy.as_ref().is_some_and(|plant| plant.wait_handled(offsets, Duration::ZERO));
                fold && heavy
            };
            if handled(&lock(&self.inner.works)) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        for thread in &self.threads {
            thread.thread().unpark();
        }
        for thread in self.threads.drain(..) {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
        if let Err(fault) = self.inner.end(&mut lock(&self.inner.works)) {
            tracing::warn!(group = %self.inner.config.group, %fault, "a member's loops had failed");
        }
    }
}

impl Inner {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Starts the plants at the front of the bus.
    fn begin(&self, works: &mut Works) -> Result<(), LogError> {
        let lanes = 0..self.bus.lanes();
        let from = lanes.clone().map(|lane| self.bus.start(lane)).collect::<Result<Vec<_>, _>>()?;
        let ends = lanes.map(|lane| self.bus.end(lane)).collect::<Result<Vec<_>, _>>()?;
        let trimmed = from.iter().any(|offset| *offset > 0);
        let folding = |_| Folding {
            group: self.config.group,
            state: self.config.state.clone(),
            board: self.board.clone(),
            trimmed,
            tamper: self.config.tamper,
            outputs: Vec::new(),
            now: now(),
        };
        let detecting = |_| Detecting { detect: self.config.detect, board: self.board.clone() };
        works.plant = Some(Plant::start(&self.bus, &self.config.plant, &from, folding)?);
        if let Some(heavy) = &self.config.heavy {
            works.heavy = Some(Plant::start(&self.bus, heavy, &from, detecting)?);
        }
        (works.builds_to, works.to_reach) = (Some(ends), None);
        Ok(())
    }

    fn end(&self, works: &mut Works) -> Result<(), PlantFault> {
        let ended = works.plant.take().map_or(Ok(()), Plant::stop);
        ended.and(works.heavy.take().map_or(Ok(()), Plant::stop))
    }

    /// Keeps asking for the lease, unless it cannot lead now.
    fn campaign(&self, mut lease: Box<dyn Lease>) {
        // The epoch that the lease gave last; 0: none, or it was given up.
        let (mut held, mut rebuilt) = (0, 0);
        while !self.stopped() {
            let (able, now_rebuilt) = {
                let works = lock(&self.works);
                (works.builds_to.is_none(), works.rebuilt)
            };
            let anew = std::mem::replace(&mut rebuilt, now_rebuilt) != now_rebuilt;
            let fenced = self.told.fenced.load(Ordering::Acquire);
            if held > 0 && (!able || anew || fenced >= held) {
                self.told.holds.store(0, Ordering::Release);
                lease.resign();
                held = 0;
            }
            if able {
                match lease.poll() {
                    Ok(given) => {
                        self.told.lease_is_there.store(true, Ordering::Relaxed);
                        held = given.map_or(0, |given| given.epoch);
                        self.told.holds.store(if held > fenced { held } else { 0 }, Ordering::Release);
                    }
                    // Whoever led goes on: should another have come to lead, the cache refuses us.
                    Err(error) => {
                        if self.told.lease_is_there.swap(false, Ordering::Relaxed) {
                            tracing::warn!(group = %self.config.group, %error, "the lease cannot be asked for");
                        }
                    }
                }
            }
            // A standby finds out early enough to lead within a fraction of the lease's length.
            std::thread::park_timeout((lease.ttl() / 8).clamp(Duration::from_millis(5), LOOK));
        }
        lease.resign();
    }

    /// Looks at the bus and the loops, and rebuilds when that is asked for or they have ended.
    fn watch(&self) {
        while !self.stopped() {
            std::thread::park_timeout(LOOK);
            // A bus that does not tell its ends now will soon; what is known stays.
            let ends =
                (0..self.bus.lanes()).map(|lane| self.bus.end(lane)).collect::<Result<Vec<_>, _>>().ok();
            let works = &mut *lock(&self.works);
            let runs = |plant: &Option<Plant>| plant.as_ref().is_some_and(Plant::is_running);
            let broken = !runs(&works.plant) || (self.config.heavy.is_some() && !runs(&works.heavy));
            let waits = works.not_before.is_some_and(|at| Instant::now() < at);
            if (self.rebuild.swap(false, Ordering::AcqRel) || (broken && !waits)) && !self.stopped() {
                self.rebuild_now(works);
            }
            works.look(Instant::now(), ends);
        }
    }

    fn rebuild_now(&self, works: &mut Works) {
        // It must not lead meanwhile: the lease is given up at the next look.
        works.builds_to.get_or_insert_default();
        if let Err(fault) = self.end(works) {
            tracing::error!(group = %self.config.group, node = self.config.node, %fault, "the loops ended: they begin anew");
            works.fault = Some(fault.to_string());
            // What broke them may be met again on the way: not at once for ever.
            works.faults += 1;
            let pause = LOOK * 2u32.saturating_pow(works.faults.min(FAULTS));
            works.not_before = Some(Instant::now() + pause);
        }
        self.board.clear();
        match self.begin(works) {
            Ok(()) => works.rebuilt += 1,
            // Tried again at the next look.
            Err(error) => tracing::warn!(%error, "the group cannot be rebuilt yet"),
        }
    }

    /// Writes while it leads.
    fn write(&self) {
        let config = &self.config;
        let (mut leads, mut rebuilds) = (0, None);
        let long_ago = || Instant::now().checked_sub(Duration::from_secs(60));
        let (mut told, mut candles, mut announced) = (long_ago(), long_ago(), long_ago());
        let (mut owed, mut away) = (Vec::new(), false);
        let due = |at: Option<Instant>, every: Duration| at.is_none_or(|at| at.elapsed() >= every);
        while !self.stopped() {
            let holds = self.told.holds.load(Ordering::Acquire);
            if holds != leads {
                if leads > 0 && self.told.fenced.load(Ordering::Acquire) < leads {
                    self.last_write(leads);
                }
                if holds > 0 {
                    self.board.all_dirty();
                    (told, candles) = (long_ago(), long_ago());
                    owed.clear();
                    tracing::info!(group = %config.group, node = config.node, epoch = holds, "this member leads its group");
                } else {
                    tracing::info!(group = %config.group, node = config.node, epoch = leads, "this member follows");
                }
                leads = holds;
                self.told.leads.store(leads, Ordering::Relaxed);
            }
            if due(announced, ANNOUNCE) {
                announced = Some(Instant::now());
                let note = MemberNote { leads: leads > 0, status: self.status(leads) };
                // Where it cannot be said now it is said again in half a second.
                let there = self.cache.announce(&note).is_ok();
                self.told.cache_is_there.store(there, Ordering::Relaxed);
            }
            if leads == 0 {
                self.board.discard();
                std::thread::park_timeout(Duration::from_millis(10));
                continue;
            }
            if owed.is_empty() && due(candles, config.candles_every) {
                owed = self.board.candle_keys();
                candles = Some(Instant::now());
            }
            let mut batch = self.board.take(WRITE, &mut owed, CANDLES);
            if due(told, config.status_every) {
                batch.status = Some(self.status(leads));
            }
            if batch.is_empty() {
                self.board.wait(Duration::from_millis(5));
                continue;
            }
            match self.cache.write(leads, &batch) {
                Ok(written) => {
                    self.written(&batch);
                    // It may have come back without its memory: symbols that are quiet now must be there too.
                    if std::mem::take(&mut away) {
                        self.board.all_dirty();
                    }
                    if batch.status.is_some() {
                        told = Some(Instant::now());
                    }
                    if rebuilds.replace(written.rebuilds).is_some_and(|before| before < written.rebuilds) {
                        tracing::info!(group = %config.group, "somebody asked this group to rebuild itself");
                        self.rebuild.store(true, Ordering::Release);
                    }
                }
                Err(CacheError::Fenced { mine, highest }) => {
                    tracing::warn!(group = %config.group, node = config.node, mine, highest, "a newer leader has written: this one follows");
                    self.told.refused.fetch_add(1, Ordering::Relaxed);
                    self.told.fenced.fetch_max(highest, Ordering::AcqRel);
                    // The lease's thread finds out by itself; until then nothing is written.
                    let _ = self.told.holds.compare_exchange(leads, 0, Ordering::AcqRel, Ordering::Acquire);
                }
                Err(error) => {
                    if self.told.cache_is_there.swap(false, Ordering::Relaxed) {
                        tracing::warn!(group = %config.group, %error, "nothing can be written: the latest of each symbol is kept");
                    }
                    away = true;
                    batch.status = None;
                    self.board.give_back(batch);
                    std::thread::park_timeout(AWAY);
                }
            }
        }
    }

    /// What is left when the lead is lost is offered once more: where nobody has followed yet readers have it, and where somebody has the cache refuses it. So
    /// a leader that was held up is always seen to have been one.
    fn last_write(&self, epoch: u64) {
        let mut owed = self.board.candle_keys();
        let mut batch = self.board.take(WRITE, &mut owed, WRITE);
        batch.status = Some(self.status(epoch));
        match self.cache.write(epoch, &batch) {
            Ok(_) => self.written(&batch),
            Err(CacheError::Fenced { .. }) => _ = self.told.refused.fetch_add(1, Ordering::Relaxed),
            // Nobody waits for it.
            Err(error) => tracing::info!(%error, "the last write of this leader was not taken"),
        }
    }

    fn written(&self, batch: &crate::cache::Batch) {
        self.told.written.fetch_add(1, Ordering::Relaxed);
        self.told.cache_is_there.store(true, Ordering::Relaxed);
        let mut delays = lock(&self.told.delays);
        for read in batch.quotes.iter().filter_map(|quote| quote.read) {
            delays.record(i64::try_from(read.elapsed().as_micros()).unwrap_or(i64::MAX));
        }
    }

    fn status(&self, epoch: u64) -> Status {
        let counts: Counts = self.board.counts();
        let works = lock(&self.works);
        let delays = lock(&self.told.delays);
        Status {
            node: self.config.node.clone(),
            epoch,
            behind: works.behind,
            behind_ms: u64::try_from(works.behind_for.as_millis()).unwrap_or(u64::MAX),
            stale: self.board.stale_symbols(),
            rebuilding: works.builds_to.is_some(),
            ticks: counts.ticks,
            violations: counts.violations,
            duplicates: counts.duplicates,
            gaps: counts.gaps,
            lost: counts.lost(),
            steps_back: counts.steps_back,
            bad: self.board.bad_messages(),
            written_p50_us: delays.at(0.5).unwrap_or(0),
            written_p99_us: delays.at(0.99).unwrap_or(0),
            loops_wanted: works.plant.as_ref().map_or(0, |plant| recommended_loops(&plant.stats())),
        }
    }
}

impl Works {
    fn look(&mut self, now: Instant, ends: Option<Vec<u64>>) {
        let (Some(plant), Some(ends)) = (&self.plant, ends) else { return };
        let lanes = plant.lanes();
        let reached = |ends: &[u64]| ends.iter().zip(&lanes).all(|(end, lane)| lane >= end);
        if self.builds_to.as_deref().is_some_and(reached) {
            self.builds_to = None;
        }
        self.behind = ends.iter().zip(&lanes).map(|(end, lane)| end.saturating_sub(*lane)).sum();
        if self.to_reach.as_ref().is_none_or(|(_, ends)| reached(ends)) {
            self.to_reach = (self.behind > 0).then_some((now, ends));
        }
        let since = self.to_reach.as_ref().map(|(since, _)| *since);
        self.behind_for = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    }
}
