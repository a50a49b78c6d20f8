//! The command journal on a replicated Kafka topic: this process is a standby until it leads.

use std::sync::Arc;

use hoga_engine::{Engine, EngineConfig, Subscriber};
use hoga_log::event_log::EventLog;

use crate::End;
use crate::config::{Config, JournalPlace};
use crate::process::Signals;

#[cfg(feature = "kafka")]
mod kafka {
    use std::time::{Duration, Instant};

    use hoga_engine::{EngineError, Replication, Standby};
    use hoga_log::LogError;
    use hoga_log::kafka::{KafkaConfig, KafkaLog};

    use super::*;
    use crate::{coded, print};

    /// The topic's client, and how the topic is used.
    pub struct Replicated {
        log: Arc<KafkaLog>,
        replication: Replication,
    }

    /// Between two looks at signals while this process is a standby or waits for Kafka.
    const LOOK: Duration = Duration::from_millis(200);
    /// While Kafka is away this is said so often.
    const TELL: Duration = Duration::from_secs(10);
    /// How long leaving Kafka may take.
    const CLOSE: Duration = Duration::from_secs(2);

    impl Replicated {
        /// `None` when the journal is on this machine's disk.
        pub fn open(config: &Config) -> Result<Option<Replicated>, End> {
            if config.engine.journal == JournalPlace::Local {
                return Ok(None);
            }
            // A batch of commands is one message already: to wait for more would only be a delay.
            let settings = KafkaConfig { linger: Duration::ZERO, ..crate::logs::kafka_config(config) };
            let log = Arc::new(KafkaLog::open(settings).map_err(coded(LogError::code))?);
            let topic = format!("engine.commands.{}", config.engine.shard);
            let mut replication = Replication::new(log.clone(), topic, node(config));
            replication.lease = Duration::from_millis(config.engine.lease_ms);
            replication.heartbeat = (replication.lease / 5).max(Duration::from_millis(20));
            Ok(Some(Replicated { log, replication }))
        }

        /// Follows the topic until this process leads; `None` when a signal came first. `follow` is done once it follows.
        pub fn lead(
            &self,
            config: EngineConfig,
            log: Arc<dyn EventLog>,
            subscribers: Vec<Box<dyn Subscriber>>,
            signals: &Signals,
            follow: impl FnOnce() -> Result<(), End>,
        ) -> Result<Option<Engine>, End> {
            if !self.wait_for_kafka(signals)? {
                return Ok(None);
            }
            let standby = Standby::start(config, self.replication.clone(), log, subscribers);
            let mut standby = standby.map_err(coded(EngineError::code))?;
            let started = standby.started();
            tracing::info!(
                topic = self.replication.topic,
                node = self.replication.node,
                snapshot = started.snapshot.0,
                replayed = started.replayed,
                "following the replicated journal"
            );
            follow()?;
            print(format_args!("standby {}", self.replication.node))?;
            while !signals.raised() {
                if let Some(engine) = standby.wait_leadership(LOOK).map_err(coded(EngineError::code))? {
                    tracing::info!(epoch = standby.status().epoch, "this node leads");
                    return Ok(Some(engine));
                }
            }
            standby.shutdown().map_err(coded(EngineError::code))?;
            self.log.close(CLOSE);
            Ok(None)
        }

        /// Makes the topic or looks at it, as soon as Kafka answers; false when a signal came first.
        fn wait_for_kafka(&self, signals: &Signals) -> Result<bool, End> {
            let spec = hoga_log::event_log::TopicSpec::delete(&self.replication.topic, 1, u64::MAX);
            let mut told: Option<Instant> = None;
            while !signals.raised() {
                match self.log.create_topic(&spec).and_then(|()| self.log.share_topic(&spec.name)) {
                    Ok(()) => return Ok(true),
                    Err(error) if error.is_transient() => {
                        if told.is_none_or(|told| told.elapsed() > TELL) {
                            tracing::warn!(%error, "waiting for Kafka: commands have to be on a replicated topic");
                            told = Some(Instant::now());
                        }
                        std::thread::park_timeout(LOOK);
                    }
                    Err(error) => return Err(coded(LogError::code)(error)),
                }
            }
            Ok(false)
        }

        /// Leaves Kafka.
        pub fn close(&self) {
            self.log.close(CLOSE);
        }
    }

    /// What this node is called: as configured, or the host's name and the process number.
    fn node(config: &Config) -> String {
        if !config.engine.node.is_empty() {
            return config.engine.node.clone();
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}-{}", std::process::id())
    }
}

#[cfg(feature = "kafka")]
pub use kafka::Replicated;

/// Never there in a build without Kafka.
#[cfg(not(feature = "kafka"))]
pub enum Replicated {}

#[cfg(not(feature = "kafka"))]
impl Replicated {
    /// `None`: the configuration was refused when it names Kafka.
    pub fn open(config: &Config) -> Result<Option<Replicated>, End> {
        debug_assert_eq!(config.engine.journal, JournalPlace::Local);
        Ok(None)
    }

    /// Never called.
    pub fn lead(
        &self,
        _: EngineConfig,
        _: Arc<dyn EventLog>,
        _: Vec<Box<dyn Subscriber>>,
        _: &Signals,
        _: impl FnOnce() -> Result<(), End>,
    ) -> Result<Option<Engine>, End> {
        match *self {}
    }

    /// Never called.
    pub fn close(&self) {
        match *self {}
    }
}
