//! The desk: follows the caches of both groups, shows one of them, and moves traffic to the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoga_log::LogError;

use super::board::lock;
use super::view::{Shows, View};
use super::{Difference, GroupName, Health, Rule, Switch, Switched};
use crate::cache::{Active, CacheError, Contents, Entry, GroupCache, Status};

/// How the groups are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeskConfig {
    /// When traffic moves by itself.
    pub rule: Rule,
    /// Which outputs are shown.
    pub shows: Shows,
    /// A leader that has said nothing for so long is gone (200 ms; members say how they are doing every 40).
    pub silent: Duration,
    /// How often the groups are looked at (10 ms).
    pub look_every: Duration,
    /// For so long after its start a desk waits for the first word of the shown group's leader before it takes the group for dead (1 s): who starts both at once
    /// does not want to see traffic move.
    pub grace: Duration,
}

impl Default for DeskConfig {
    fn default() -> DeskConfig {
        DeskConfig {
            rule: Rule::default(),
            shows: Shows::Active,
            silent: Duration::from_millis(200),
            look_every: Duration::from_millis(10),
            grace: Duration::from_secs(1),
        }
    }
}

/// What is known of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupInfo {
    /// How it is doing.
    pub health: Health,
    /// What its leader said last, while there is one.
    pub status: Option<Status>,
    /// Whether its cache is followed.
    pub connected: bool,
    /// Outputs that were compared with the other group's since its leader began, and those that only one group had.
    pub compared: (u64, u64),
}

/// What a follower knows of its group.
#[derive(Default)]
struct Followed {
    connected: bool,
    status: Option<(Instant, Status)>,
    /// The epoch of the last leader that was heard.
    epoch: u64,
}

struct Inner {
    config: DeskConfig,
    caches: [Arc<dyn GroupCache>; 2],
    view: Arc<View>,
    followed: [Mutex<Followed>; 2],
    switch: Mutex<Switch>,
    /// The version of what is shown.
    version: Mutex<u64>,
    switched: Mutex<Vec<Switched>>,
    /// Whether a group is being compared anew, until it is found equal or not.
    comparing: AtomicBool,
    stop: AtomicBool,
}

/// A running desk. Stops when it is dropped.
pub struct Desk {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

/// Changes of the shown group that are remembered.
const REMEMBERED: usize = 100;
/// The pause before a cache that is away is asked again.
const AWAY: Duration = Duration::from_millis(50);
/// How long a follower waits for a write before it looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(50);

impl Desk {
    /// Begins to follow both caches, which may be away. The group shown is the one that they name, A where they name none.
    ///
    /// # Errors
    /// [`LogError::Io`] when a thread cannot be started.
    pub fn start(caches: [Arc<dyn GroupCache>; 2], config: DeskConfig) -> Result<Desk, LogError> {
        let named = caches.iter().filter_map(|cache| active_in(&cache.read().ok()?));
        let active = named.max_by_key(|active| active.version);
        let (version, active) = active.map_or((0, GroupName::A), |active| (active.version, active.group));
        let inner = Arc::new(Inner {
            view: Arc::new(View::new(active, config.shows)),
            followed: Default::default(),
            switch: Mutex::new(Switch::new(config.rule, active)),
            version: Mutex::new(version),
            switched: Mutex::default(),
            comparing: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            caches,
            config,
        });
        let mut desk = Desk { inner: inner.clone(), threads: Vec::new() };
        let mut spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            let started = std::thread::Builder::new().name(name).spawn(work);
            started
                .map(|thread| desk.threads.push(thread))
                .map_err(LogError::io("starting a thread", "desk".as_ref()))
        };
        for group in GroupName::BOTH {
            let inner = inner.clone();
            spawn(format!("follow-{}", group.as_str()), Box::new(move || inner.follow(group)))?;
        }
        spawn("desk".into(), Box::new(move || inner.watch()))?;
        Ok(desk)
    }

    /// What readers see.
    pub fn view(&self) -> &Arc<View> {
        &self.inner.view
    }

    /// The group that is shown.
    pub fn active(&self) -> GroupName {
        lock(&self.inner.switch).active()
    }

    /// Switches since the start, whoever made them.
    pub fn switches(&self) -> u64 {
        lock(&self.inner.switch).count()
    }

    /// What is known of a group.
    pub fn group(&self, group: GroupName) -> GroupInfo {
        let health = self.inner.health(group, Instant::now());
        let followed = lock(&self.inner.followed[group.index()]);
        let status = followed.status.as_ref().filter(|_| health.leader.is_some());
        GroupInfo {
            status: status.map(|(_, status)| status.clone()),
            connected: followed.connected,
            compared: self.inner.view.with_differ(|differ| differ.counts()),
            health,
        }
    }

    /// All that is in a group's cache, read now.
    ///
    /// # Errors
    /// As [`GroupCache::read`].
    pub fn contents(&self, group: GroupName) -> Result<Contents, CacheError> {
        self.inner.caches[group.index()].read()
    }

    /// The first difference of each symbol in which the groups differ.
    pub fn diff(&self) -> Vec<Difference> {
        self.inner.view.with_differ(|differ| differ.differences())
    }

    /// Changes of the shown group, the latest 100, oldest first.
    pub fn switched(&self) -> Vec<Switched> {
        lock(&self.inner.switched).clone()
    }

    /// Moves traffic by command, see [`Switch::command`].
    ///
    /// # Errors
    /// Why the group may not be shown.
    pub fn command(&self, to: GroupName, force: bool) -> Result<Option<Switched>, String> {
        let now = Instant::now();
        let (group, other) = (self.inner.health(to, now), self.inner.health(to.other(), now));
        let done = lock(&self.inner.switch).command(to, &group, &other, force)?;
        if let Some(switched) = &done {
            self.inner.show(switched);
        }
        Ok(done)
    }

    /// Asks a group to rebuild itself from the bus.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn rebuild(&self, group: GroupName) -> Result<(), CacheError> {
        self.inner.caches[group.index()].ask_rebuild()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // One that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

fn active_in(contents: &Contents) -> Option<Active> {
    contents.entries.iter().find_map(|entry| match entry {
        Entry::Active(active) => Some(*active),
        _ => None,
    })
}

impl Inner {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Keeps up with the cache of a group.
    fn follow(&self, group: GroupName) {
        let mut told = false;
        while !self.stopped() {
            if let Err(error) = self.follow_once(group) {
                if !told {
                    tracing::warn!(%group, %error, "the cache of the group is not followed now");
                    told = true;
                }
                if std::mem::take(&mut lock(&self.followed[group.index()]).connected) {
                    told = false;
                }
                std::thread::park_timeout(AWAY);
            }
        }
    }

    fn follow_once(&self, group: GroupName) -> Result<(), CacheError> {
        let cache = &self.caches[group.index()];
        // Subscribed first, and then read: nothing is between the two.
        let mut subscription = cache.subscribe()?;
        let mut entries = cache.read()?.entries;
        lock(&self.followed[group.index()]).connected = true;
        while !self.stopped() {
            self.take(group, std::mem::take(&mut entries));
            subscription.next(WAIT, &mut entries)?;
        }
        Ok(())
    }

    fn take(&self, group: GroupName, entries: Vec<Entry>) {
        let (mut quotes, mut candles) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                Entry::Quote(quote) => quotes.push(quote),
                Entry::Candle(candle) => candles.push(candle),
                Entry::Event(event) => self.view.event(event),
                Entry::Status(status) => self.heard(group, status),
                Entry::Active(active) => self.adopt(active),
            }
        }
        if !quotes.is_empty() || !candles.is_empty() {
            self.view.take(group, quotes, &candles);
        }
    }

    fn heard(&self, group: GroupName, status: Status) {
        let mut followed = lock(&self.followed[group.index()]);
        if status.epoch != followed.epoch {
            followed.epoch = status.epoch;
            // Another leader, perhaps of another version: what was different before says nothing of it.
            self.view.with_differ(super::Differ::clear);
            self.comparing.store(true, Ordering::Relaxed);
        }
        followed.status = Some((Instant::now(), status));
    }

    /// Another desk has switched.
    fn adopt(&self, active: Active) {
        let mut version = lock(&self.version);
        if active.version <= *version {
            return;
        }
        *version = active.version;
        let switched = lock(&self.switch).adopt(active.group);
        drop(version);
        if let Some(switched) = switched {
            self.view.switch(switched.to);
            self.remember(&switched);
        }
    }

    fn health(&self, group: GroupName, now: Instant) -> Health {
        let followed = lock(&self.followed[group.index()]);
        let heard = followed.status.as_ref();
        let Some((_, status)) =
            heard.filter(|(at, _)| now.saturating_duration_since(*at) < self.config.silent)
        else {
            return Health::default();
        };
        Health {
            leader: Some(status.epoch),
            behind: status.behind,
            behind_for: Duration::from_millis(status.behind_ms),
            stale: status.stale,
            differs: self.view.with_differ(|differ| differ.differing()),
            rebuilding: status.rebuilding,
        }
    }

    /// Looks at both groups, and moves traffic when it must.
    fn watch(&self) {
        let begun = Instant::now();
        while !self.stopped() {
            std::thread::park_timeout(self.config.look_every);
            let now = Instant::now();
            let shown = lock(&self.switch).active();
            if now - begun < self.config.grace && lock(&self.followed[shown.index()]).epoch == 0 {
                continue;
            }
            let [a, b] = GroupName::BOTH.map(|group| self.health(group, now));
            let switched = lock(&self.switch).look(now, &a, &b);
            if let Some(switched) = switched {
                self.show(&switched);
            }
            if self.comparing.load(Ordering::Relaxed) && a.leader.is_some() && b.leader.is_some() {
                let (symbols, (compared, _), differs) = self
                    .view
                    .with_differ(|differ| (differ.symbols() as u64, differ.counts(), differ.differing()));
                if differs > 0 || (symbols > 0 && compared >= 3 * symbols) {
                    self.comparing.store(false, Ordering::Relaxed);
                    tracing::info!(compared, differs, equal = differs == 0, "the groups were compared");
                }
            }
        }
    }

    fn show(&self, switched: &Switched) {
        self.view.switch(switched.to);
        let active = {
            let mut version = lock(&self.version);
            *version += 1;
            Active { version: *version, group: switched.to }
        };
        // In both, so that either alone tells it. One that is away hears of the next one.
        for cache in &self.caches {
            if let Err(error) = cache.set_active(active) {
                tracing::warn!(%error, "a cache does not know which group is shown");
            }
        }
        self.remember(switched);
    }

    fn remember(&self, switched: &Switched) {
        tracing::info!(from = %switched.from, to = %switched.to, reason = switched.reason, automatic = switched.automatic, "another group is shown");
        let mut all = lock(&self.switched);
        if all.len() == REMEMBERED {
            all.remove(0);
        }
        all.push(switched.clone());
    }
}
