//! The stage: servers, processes and a reader.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hoga_core::folds::candle::Interval;
use hoga_feed::Symbol;
use hoga_feed::cache::{GroupCache, RedisCache, RedisCacheConfig};
use hoga_feed::groups::{Desk, DeskConfig, GroupName};

use super::reader::{Reader, Seen};
use super::{check, wait};
use crate::admin::Admin;
use crate::orders::BenchError;
use crate::process::{Server, TempDir};
use crate::services::{Service, free_ports};

/// How long anything may take that should be there soon.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// How a stage is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    /// `redis` or `kafka`.
    pub bus: &'static str,
    /// `redis` or `zookeeper`.
    pub lease: &'static str,
    /// The lease's length in milliseconds.
    pub lease_ms: u64,
    /// Members of A and of B.
    pub members: [usize; 2],
}

/// A member's process.
pub(crate) struct Processor {
    pub group: GroupName,
    pub server: Server,
    data: PathBuf,
}

/// Everything that plays.
pub(crate) struct Stage {
    pub redis: [Service; 2],
    pub kafka: Option<Service>,
    pub zookeeper: Option<Service>,
    pub feed: Option<Server>,
    pub processors: Vec<Processor>,
    pub desk: Arc<Desk>,
    pub reader: Reader,
    folder: TempDir,
    port: u16,
    made: usize,
}

impl Stage {
    pub(crate) fn start(set: Set) -> Result<Stage, BenchError> {
        let redis = [Service::redis()?, Service::redis()?];
        let kafka = (set.bus == "kafka").then(|| Service::kafka(1)).transpose()?;
        let zookeeper = (set.lease == "zookeeper").then(Service::zookeeper).transpose()?;
        let folder = TempDir::new("plant")?;
        let port = free_ports(&[0])?;
        let caches = cache_of(&redis)?;
        let desk = Arc::new(Desk::start(caches, DeskConfig::default())?);
        let reader = Reader::start(desk.view());
        let mut stage = Stage {
            redis,
            kafka,
            zookeeper,
            feed: None,
            processors: Vec::new(),
            desk,
            reader,
            folder,
            port,
            made: 0,
        };
        for (name, interval) in [("running", 100), ("quiet", 100_000_000)] {
            std::fs::write(stage.config(name), stage.text(&set, interval))?;
        }
        stage.feed("running")?;
        for (group, count) in GroupName::BOTH.into_iter().zip(set.members) {
            for _ in 0..count {
                stage.add(group)?;
            }
        }
        let groups: Vec<GroupName> =
            GroupName::BOTH.into_iter().filter(|g| set.members[*g as usize] > 0).collect();
        wait("leaders of the groups", LONG, || {
            let leads = |group: &GroupName| stage.desk.group(*group).health.leader.is_some();
            (groups.iter().all(leads) && stage.reader.look().quotes > 1000).then_some(())
        })?;
        Ok(stage)
    }

    fn config(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.toml"))
    }

    fn text(&self, set: &Set, interval: u64) -> String {
        let service = |service: &Option<Service>| {
            service.as_ref().map_or("127.0.0.1:1".to_owned(), |s| s.address().to_owned())
        };
        format!(
            "[feed]\nbus = \"{}\"\nredis = \"{}\"\nurl = \"http://127.0.0.1:{}\"\ninterval_ms = {interval}\nlanes = 3\n\
             [kafka]\nbootstrap = \"{}\"\n\
             [groups]\ncache = \"redis\"\nredis_a = \"{}\"\nredis_b = \"{}\"\nlease = \"{}\"\nlease_ms = {}\nzookeeper = \"{}\"\n\
             [telemetry]\nlog = \"warn\"\n",
            set.bus,
            self.redis[1].address(),
            self.port,
            service(&self.kafka),
            self.redis[0].address(),
            self.redis[1].address(),
            set.lease,
            set.lease_ms,
            service(&self.zookeeper),
        )
    }

    /// Starts the feed with this configuration.
    pub(crate) fn feed(&mut self, config: &str) -> Result<(), BenchError> {
        let (config, port) = (self.config(config), self.port.to_string());
        let arguments = ["--config", &text_of(&config), "--port", &port];
        self.feed = Some(Server::start_roles(&["feed"], &self.folder.path().join("feed"), &arguments)?);
        Ok(())
    }

    /// Adds a member of a group.
    pub(crate) fn add(&mut self, group: GroupName) -> Result<(), BenchError> {
        self.made += 1;
        let data = self.folder.path().join(format!("member-{}", self.made));
        let config = text_of(&self.config("running"));
        let arguments = ["--config", &config, "--group", group.as_str()];
        let server = Server::start_roles(&["processor"], &data, &arguments)?;
        self.processors.push(Processor { group, server, data });
        Ok(())
    }

    /// The place of the member that leads a group.
    pub(crate) fn leader(&self, group: GroupName) -> Result<usize, BenchError> {
        let (at, _) = wait("a leader", LONG, || {
            let epoch = self.desk.group(group).health.leader?;
            self.processors.iter().position(|processor| {
                processor.group == group
                    && processor.status().is_ok_and(|member| member["epoch"].as_u64() == Some(epoch))
            })
        })?;
        Ok(at)
    }

    /// Waits until as many members of a group are there and have caught up.
    pub(crate) fn members(&self, group: GroupName, count: usize) -> Result<(), BenchError> {
        wait("members that have caught up", LONG, || {
            let ready = self.processors.iter().filter(|processor| {
                processor.group == group
                    && processor
                        .status()
                        .is_ok_and(|m| m["status"]["rebuilding"] == false && m["lease_connected"] == true)
            });
            (ready.count() == count).then_some(())
        })?;
        Ok(())
    }

    /// Ends the flow and checks that the reader has seen all of it, in order; what it saw.
    pub(crate) fn finish(mut self, checks: &mut u64) -> Result<Seen, BenchError> {
        if let Some(feed) = self.feed.take() {
            let (took, code) = feed.terminate(LONG)?;
            check(checks, code == Some(0) && took < Duration::from_secs(5), || {
                format!("the feed ended with {code:?} after {took:?}")
            })?;
        }
        let given = self.given()?;
        // The spool is there for those who have not read all of it.
        self.feed("quiet")?;
        let places = || self.reader.look().places;
        let done = wait("the last number of each symbol", LONG, || {
            let seen = places();
            given
                .iter()
                .all(|(symbol, seq)| seen.get(symbol).is_some_and(|(_, last)| last == seq))
                .then_some(())
        });
        if let Err(error) = done {
            let seen = places();
            let missing: Vec<String> = given
                .iter()
                .filter(|(symbol, seq)| seen.get(symbol).is_none_or(|(_, last)| last != *seq))
                .map(|(symbol, seq)| format!("{symbol} {seq} (seen {:?})", seen.get(symbol)))
                .take(5)
                .collect();
            return Err(BenchError::Unfit(format!("{error}: {}", missing.join(", "))));
        }
        let trades = |symbol: &Symbol| -> u64 {
            let candles = self.desk.view().candles(*symbol, Interval::D1);
            candles.iter().map(|candle| candle.change.candle.trades).sum()
        };
        wait("candles that hold every tick once", LONG, || {
            given.iter().all(|(symbol, seq)| trades(symbol) == *seq).then_some(())
        })?;
        let seen = self.reader.look();
        check(checks, (seen.gaps, seen.back, seen.again) == (0, 0, 0), || {
            format!(
                "the reader saw {} numbers missing, {} steps back, {} numbers again",
                seen.gaps, seen.back, seen.again
            )
        })?;
        *checks += 2 * given.len() as u64;
        check(checks, self.desk.diff().is_empty(), || format!("the groups differ: {:?}", self.desk.diff()))?;
        for processor in &self.processors {
            let member = processor.status()?;
            let status = &member["status"];
            let wrong = ["violations", "duplicates", "lost", "steps_back", "bad"]
                .iter()
                .any(|name| status[*name] != 0);
            check(checks, !wrong, || format!("a member saw something out of order: {status}"))?;
        }
        Ok(seen)
    }

    /// The last number of each symbol, as the feed has saved them.
    fn given(&self) -> Result<BTreeMap<Symbol, u64>, BenchError> {
        let text = std::fs::read_to_string(self.folder.path().join("feed/feed/numbers"))?;
        let parse = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["symbol", name, seq, _] => Some((Symbol::parse(name).ok()?, seq.parse().ok()?)),
                _ => None,
            }
        };
        let given: BTreeMap<Symbol, u64> = text.lines().filter_map(parse).collect();
        if given.is_empty() {
            return Err(BenchError::Unfit("the feed has saved no numbers".into()));
        }
        Ok(given)
    }
}

impl Processor {
    /// Its member, as its page says.
    pub(crate) fn status(&self) -> Result<serde_json::Value, BenchError> {
        let plant = Admin::of(&self.data)?.get("/api/v1/plant")?;
        Ok(plant["members"][0].clone())
    }
}

fn text_of(path: &std::path::Path) -> String {
    path.display().to_string()
}

fn cache_of(redis: &[Service; 2]) -> Result<[Arc<dyn GroupCache>; 2], BenchError> {
    let open = |group: GroupName| {
        let config =
            RedisCacheConfig::new(redis[group as usize].address(), &format!("hoga:{}", group.as_str()));
        let cache = RedisCache::open(config).map_err(|error| BenchError::Unfit(error.to_string()))?;
        Ok::<_, BenchError>(Arc::new(cache) as Arc<dyn GroupCache>)
    };
    Ok([open(GroupName::A)?, open(GroupName::B)?])
}
