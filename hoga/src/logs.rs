//! Which event logs a process has: the one that the engine publishes to, and the one that consumers read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hoga_log::LogError;
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog, TopicSpec};
use hoga_log::relay::Relay;
#[cfg(feature = "kafka")]
use hoga_log::{
    kafka::{KafkaConfig, KafkaLog},
    relay::{RelayOptions, Remote},
};

use hoga_store::{FIRED, NOTIFICATION};

use crate::config::{Config, LogBackend};
use crate::{End, coded};

/// How long leaving Kafka may take, for each of what is left.
#[cfg(feature = "kafka")]
const CLOSE: Duration = Duration::from_secs(2);

/// What consumers read.
pub struct Bus {
    /// The log.
    pub log: Arc<dyn EventLog>,
    #[cfg(feature = "kafka")]
    kafka: Option<Arc<KafkaLog>>,
}

impl Bus {
    /// Kafka, for a process without the exchange.
    pub fn remote(config: &Config) -> Result<Bus, End> {
        match config.event_log.backend {
            LogBackend::Embedded => Err(End::Usage(
                "a role in a process of its own needs event_log.backend = \"kafka\": the embedded event log is in one process. \
                 Use `hoga up`, or set the backend"
                    .into(),
            )),
            LogBackend::Kafka => Bus::kafka(config),
        }
    }

    /// Nothing is asked of the cluster yet: it may be away.
    #[cfg(feature = "kafka")]
    fn kafka(config: &Config) -> Result<Bus, End> {
        let log = Arc::new(KafkaLog::open(kafka_config(config)).map_err(coded(LogError::code))?);
        // Each member of `stop-trigger` writes to all partitions of the one, and those of the other change hands.
        for topic in [FIRED, NOTIFICATION] {
            log.share_topic(topic).map_err(coded(LogError::code))?;
        }
        Ok(Bus { log: log.clone(), kafka: Some(log) })
    }

    #[cfg(not(feature = "kafka"))]
    fn kafka(_: &Config) -> Result<Bus, End> {
        Err(End::Usage("this build is without Kafka: build it with default features".into()))
    }

    /// Opens the topics of dead letters and replays that are there: on Kafka a topic is known only once it was opened.
    pub fn know_letters(&self, topics: &[TopicSpec]) -> Result<(), LogError> {
        #[cfg(feature = "kafka")]
        if let Some(kafka) = &self.kafka {
            use hoga_log::consumer::dead_letters::{dead_letter_topic, retry_topic};
            let letters = topics.iter().map(|spec| dead_letter_topic(&spec.name));
            for name in letters.chain(hoga_store::Group::ALL.map(|group| retry_topic(group.as_str()))) {
                match kafka.open_topic(&name).and_then(|_| kafka.share_topic(&name)) {
                    Ok(()) | Err(LogError::NoTopic { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let _ = topics; // nothing to open in a build without Kafka
        Ok(())
    }

    /// Leaves Kafka, within a bounded time whatever the brokers do.
    pub fn close(&self) {
        #[cfg(feature = "kafka")]
        if let Some(kafka) = &self.kafka
            && !kafka.close(CLOSE)
        {
            tracing::warn!(
                "Kafka could not be left in order within {CLOSE:?}; the process ends all the same"
            );
        }
    }
}

/// The event logs of a process with the exchange in it.
pub struct Logs {
    /// Segment files in the data folder, where the engine publishes: never away.
    pub local: Arc<dyn EventLog>,
    /// What consumers read: the same, or Kafka.
    pub bus: Bus,
}

impl Logs {
    /// Opens what the configuration says.
    pub fn open(config: &Config) -> Result<Logs, End> {
        let segment_bytes = config.event_log.segment_mib << 20;
        let log = EmbeddedLog::open(
            config.data.dir.join("log"),
            EmbeddedConfig { segment_bytes, ..EmbeddedConfig::default() },
        );
        let local: Arc<dyn EventLog> = Arc::new(log.map_err(coded(LogError::code))?);
        let bus = match config.event_log.backend {
            LogBackend::Embedded => Bus {
                log: Arc::clone(&local),
                #[cfg(feature = "kafka")]
                kafka: None,
            },
            LogBackend::Kafka => Bus::kafka(config)?,
        };
        Ok(Logs { local, bus })
    }

    /// Starts the relay, where consumers read from Kafka. The topics must exist locally.
    #[cfg(feature = "kafka")]
    pub fn relay(&self, config: &Config) -> Result<Option<Relay>, End> {
        if config.event_log.backend == LogBackend::Embedded {
            return Ok(None);
        }
        let kafka = kafka_config(config);
        let connect = move || {
            let log = Arc::new(KafkaLog::open(kafka.clone())?);
            let closer = Arc::clone(&log);
            Ok(Remote { log, close: Box::new(move |timeout| _ = closer.close(timeout)) })
        };
        let number_of = |value: &[u8]| hoga_core::codec::decode_event(value).ok().map(|(number, _)| number);
        let topics = [hoga_engine::TRADES, hoga_engine::LIFECYCLE, hoga_engine::PROJECTION];
        let relay =
            Relay::start(Arc::clone(&self.local), Box::new(connect), &topics, RelayOptions::new(number_of));
        relay.map(Some).map_err(coded(LogError::code))
    }

    /// Starts the relay: there is none in this build.
    #[cfg(not(feature = "kafka"))]
    pub fn relay(&self, _: &Config) -> Result<Option<Relay>, End> {
        Ok(None)
    }
}

/// The library's view of `[kafka]`.
#[cfg(feature = "kafka")]
pub fn kafka_config(config: &Config) -> KafkaConfig {
    let kafka = &config.kafka;
    let mut settings = KafkaConfig::new(&kafka.bootstrap);
    settings.topic_prefix.clone_from(&kafka.prefix);
    settings.replication = i16::try_from(kafka.replication).unwrap_or(i16::MAX);
    settings.min_insync = i16::try_from(kafka.min_insync).unwrap_or(i16::MAX);
    settings.retention_ms = match kafka.retention_hours {
        0 => -1,
        hours => i64::from(hours) * 3_600_000,
    };
    settings.linger = Duration::from_millis(kafka.linger_ms);
    settings.queue_bytes = u64::from(kafka.queue_mib) << 20;
    settings.session_timeout = Duration::from_millis(kafka.session_ms);
    settings.heartbeat = Duration::from_millis(kafka.heartbeat_ms);
    settings
}

/// The topics as the configuration declares them, as they are made locally.
pub fn topics(config: &Config) -> Vec<TopicSpec> {
    let (partitions, retention) = (config.event_log.partitions, config.event_log.retention_mib << 20);
    vec![
        TopicSpec::delete(hoga_engine::TRADES, partitions, retention),
        TopicSpec::delete(hoga_engine::LIFECYCLE, partitions, retention),
        TopicSpec::compact(hoga_engine::PROJECTION, partitions),
        // Keyed by account as the orders' lifecycle is, with as many partitions: one of each has all of an account.
        TopicSpec::delete(FIRED, partitions, retention),
        TopicSpec::delete(NOTIFICATION, partitions, retention),
    ]
}

/// Makes topics on a thread of its own, however long Kafka is away, and then does what needs them.
pub struct Declare {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Declare {
    /// Begins. `then` is called once, when all topics are there; a topic that differs from its declaration is told to `differs`.
    pub fn start(
        log: Arc<dyn EventLog>,
        topics: Vec<TopicSpec>,
        then: impl FnOnce() + Send + 'static,
        differs: impl FnOnce(LogError) + Send + 'static,
    ) -> std::io::Result<Declare> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("topics".into()).spawn(move || {
            let mut told = false;
            while !seen.load(Ordering::Relaxed) {
                match topics.iter().try_for_each(|topic| log.create_topic(topic)) {
                    Ok(()) => return then(),
                    Err(error) if error.is_transient() => {
                        if !told {
                            tracing::warn!(%error, "the topics cannot be looked at yet");
                            told = true;
                        }
                        std::thread::park_timeout(Duration::from_millis(500)); // asked again: nobody tells us when it is back
                    }
                    Err(error) => return differs(error),
                }
            }
        })?;
        Ok(Declare { stop, thread })
    }

    /// Ends it. A call to Kafka that is under way is waited for: it has its own limit.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the thread that makes topics panicked");
        }
    }
}
