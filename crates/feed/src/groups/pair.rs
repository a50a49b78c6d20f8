//! Both groups in one process, and the traffic switch between them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoga_core::ids::Timestamp;
use hoga_log::LogError;
use hoga_log::event_log::EventLog;

use super::processor::{Processor, Tamper};
use super::view::View;
use super::{Difference, GroupName, Health, Rule, Switch, Switched};
use crate::detect::DetectConfig;
use crate::plant::{Plant, PlantConfig, PlantFault, PlantStats};
use crate::state::StateConfig;

/// How the groups work.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Readers and loops of each group.
    pub plant: PlantConfig,
    /// What is made of ticks.
    pub state: StateConfig,
    /// What is an event.
    pub detect: DetectConfig,
    /// When traffic moves by itself.
    pub rule: Rule,
    /// How often the groups are looked at (20 ms).
    pub look_every: Duration,
}

impl PairConfig {
    /// Defaults over this topic with so many loops in each group.
    pub fn new(topic: &str, loops: u32) -> PairConfig {
        PairConfig {
            plant: PlantConfig::new(topic, loops),
            state: StateConfig::default(),
            detect: DetectConfig::default(),
            rule: Rule::default(),
            look_every: Duration::from_millis(20),
        }
    }
}

/// One group.
struct Member {
    plant: Option<Plant>,
    /// Grows with each start: the epoch of its leader.
    epoch: u64,
    /// Ends of the lanes at a moment, until they are handled.
    to_reach: Option<(Instant, Vec<u64>)>,
    health: Health,
    /// Ends of the lanes when it was started again: it is being rebuilt until it has handled them.
    rebuilds_to: Option<Vec<u64>>,
}

struct Shared {
    log: Arc<dyn EventLog>,
    config: PairConfig,
    lanes: u32,
    view: Arc<View>,
    members: Mutex<[Member; 2]>,
    switch: Mutex<Switch>,
    switched: Mutex<Vec<Switched>>,
    tampers: [Option<Tamper>; 2],
    stop: AtomicBool,
}

/// Two running groups. Stops when it is dropped.
pub struct Pair {
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
}

/// Changes of the shown group that are remembered.
const REMEMBERED: usize = 100;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pair {
    /// Starts both groups from the beginning of the log; A is shown.
    ///
    /// # Errors
    /// As [`Plant::start`].
    pub fn start(log: &Arc<dyn EventLog>, config: PairConfig) -> Result<Pair, LogError> {
        Pair::start_with(log, config, [None, None])
    }

    pub(super) fn start_with(
        log: &Arc<dyn EventLog>,
        config: PairConfig,
        tampers: [Option<Tamper>; 2],
    ) -> Result<Pair, LogError> {
        let topics = log.topics();
        let spec = topics.iter().find(|topic| topic.name == config.plant.topic);
        let lanes = spec.ok_or_else(|| LogError::NoTopic { topic: config.plant.topic.clone() })?.partitions;
        let member =
            || Member { plant: None, epoch: 0, to_reach: None, health: Health::default(), rebuilds_to: None };
        let shared = Arc::new(Shared {
            log: log.clone(),
            lanes,
            view: Arc::new(View::new()),
            members: Mutex::new([member(), member()]),
            switch: Mutex::new(Switch::new(config.rule)),
            switched: Mutex::default(),
            tampers,
            stop: AtomicBool::new(false),
            config,
        });
        for group in GroupName::BOTH {
            shared.begin(group)?;
        }
        let watching = shared.clone();
        let thread = std::thread::Builder::new().name("group-watch".into());
        let watch = thread.spawn(move || {
            while !watching.stop.load(Ordering::Acquire) {
                watching.look();
                std::thread::park_timeout(watching.config.look_every);
            }
        });
        let watch = watch.map_err(LogError::io("starting a thread", "group-watch".as_ref()))?;
        Ok(Pair { shared, watch: Some(watch) })
    }

    /// What readers see.
    pub fn view(&self) -> &Arc<View> {
        &self.shared.view
    }

    /// The group that is shown.
    pub fn active(&self) -> GroupName {
        lock(&self.shared.switch).active()
    }

    /// How a group is doing.
    pub fn health(&self, group: GroupName) -> Health {
        self.shared.look();
        lock(&self.shared.members)[group.index()].health.clone()
    }

    /// Figures of a group's loops; `None` while it does not run.
    pub fn stats(&self, group: GroupName) -> Option<PlantStats> {
        lock(&self.shared.members)[group.index()].plant.as_ref().map(Plant::stats)
    }

    /// The first difference of each symbol in which the groups differ.
    pub fn diff(&self) -> Vec<Difference> {
        self.shared.view.with_differ(|differ| differ.differences())
    }

    /// Changes of the shown group, the latest 100, oldest first.
    pub fn switched(&self) -> Vec<Switched> {
        lock(&self.shared.switched).clone()
    }

    /// Moves traffic by command, see [`Switch::command`].
    ///
    /// # Errors
    /// Why the group may not be shown.
    pub fn command(&self, to: GroupName, force: bool) -> Result<Option<Switched>, String> {
        let (group, other) = (self.health(to), self.health(to.other()));
        let done = lock(&self.shared.switch).command(to, &group, &other, force)?;
        if let Some(switched) = &done {
            self.shared.show(switched);
        }
        Ok(done)
    }

    /// Stops a group and builds it anew from the log. It is not shown before it has caught up, if the other one can be.
    ///
    /// # Errors
    /// As [`Plant::start`].
    pub fn rebuild(&self, group: GroupName) -> Result<(), LogError> {
        let old = {
            let mut members = lock(&self.shared.members);
            let member = &mut members[group.index()];
            member.health = Health { rebuilding: true, ..Health::default() };
            member.plant.take()
        };
        self.shared.look();
        if let Some(Err(fault)) = old.map(Plant::stop) {
            tracing::warn!(%group, %fault, "the group that is rebuilt had failed");
        }
        self.shared.view.forget(group);
        self.shared.begin(group)
    }

    /// Stops both groups.
    ///
    /// # Errors
    /// [`PlantFault`]: what ended a group before.
    pub fn stop(mut self) -> Result<(), PlantFault> {
        self.end()
    }

    fn end(&mut self) -> Result<(), PlantFault> {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            // It has nothing that could fail; should it panic, the groups are stopped all the same.
            let _ = watch.join();
        }
        let plants: Vec<Plant> =
            lock(&self.shared.members).iter_mut().filter_map(|member| member.plant.take()).collect();
        let mut result = Ok(());
        for plant in plants {
            result = result.and(plant.stop());
        }
        result
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Err(fault) = self.end() {
            tracing::error!(%fault, "the groups");
        }
    }
}

impl Shared {
    fn begin(&self, group: GroupName) -> Result<(), LogError> {
        let ends = self.ends()?;
        let plant = Plant::start(&self.log, &self.config.plant, &[], |_| Processor {
            group,
            state: self.config.state.clone(),
            detect: self.config.detect,
            view: self.view.clone(),
            tamper: self.tampers[group.index()],
            outputs: Vec::new(),
            now: Timestamp(0),
        })?;
        let mut members = lock(&self.members);
        let member = &mut members[group.index()];
        member.epoch += 1;
        member.plant = Some(plant);
        member.rebuilds_to = Some(ends);
        member.to_reach = None;
        Ok(())
    }

    fn ends(&self) -> Result<Vec<u64>, LogError> {
        (0..self.lanes).map(|lane| self.log.end_offset(&self.config.plant.topic, lane)).collect()
    }

    /// Looks at both groups, and moves traffic when it must.
    fn look(&self) {
        // A log that does not tell its ends now will soon; what is known of the groups stays.
        let ends = self.ends().ok();
        let differs = self.view.with_differ(|differ| differ.differences().len() as u64);
        let mut members = lock(&self.members);
        let now = Instant::now();
        for group in GroupName::BOTH {
            let stale = self.view.stale_symbols(group);
            members[group.index()].look(now, ends.as_deref(), stale, differs);
        }
        let [a, b] = &*members;
        let switched = lock(&self.switch).look(now, &a.health, &b.health);
        drop(members);
        if let Some(switched) = switched {
            self.show(&switched);
        }
    }

    fn show(&self, switched: &Switched) {
        self.view.switch(switched.to);
        tracing::info!(from = %switched.from, to = %switched.to, reason = switched.reason, automatic = switched.automatic, "another group is shown");
        let mut all = lock(&self.switched);
        if all.len() == REMEMBERED {
            all.remove(0);
        }
        all.push(switched.clone());
    }
}

impl Member {
    fn look(&mut self, now: Instant, ends: Option<&[u64]>, stale: u64, differs: u64) {
        let running = self.plant.as_ref().filter(|plant| plant.is_running());
        let Some(plant) = running else {
            self.health =
                Health { rebuilding: self.health.rebuilding && self.plant.is_none(), ..Health::default() };
            return;
        };
        if let Some(to) = &self.rebuilds_to
            && plant.wait_handled(to, Duration::ZERO)
        {
            self.rebuilds_to = None;
        }
        if let Some(ends) = ends {
            let lanes = plant.lanes();
            self.health.behind = ends.iter().zip(&lanes).map(|(end, lane)| end.saturating_sub(*lane)).sum();
            let reached = |ends: &[u64]| ends.iter().zip(&lanes).all(|(end, lane)| lane >= end);
            if self.to_reach.as_ref().is_none_or(|(_, ends)| reached(ends)) {
                self.to_reach = (self.health.behind > 0).then(|| (now, ends.to_vec()));
            }
        }
        let behind_for =
            self.to_reach.as_ref().map_or(Duration::ZERO, |(since, _)| now.saturating_duration_since(*since));
        self.health = Health {
            leader: Some(self.epoch),
            behind: self.health.behind,
            behind_for,
            stale,
            differs,
            rebuilding: self.rebuilds_to.is_some(),
        };
    }
}
