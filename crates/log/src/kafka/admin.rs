//! Topics as the cluster has them: asking, making, never altering.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::Consumer as _;
use rdkafka::types::RDKafkaErrorCode;

use super::config::KafkaConfig;
use super::context::Quiet;
use super::fault;
use super::native::Handle;
use crate::error::LogError;
use crate::event_log::{Cleanup, MAX_MESSAGE, TopicSpec};

/// A topic as it is on the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) partitions: u32,
    pub(super) replication: i16,
    pub(super) cleanup: String,
    /// -1 is without limit, as in Kafka.
    pub(super) retention_bytes: i64,
    pub(super) retention_ms: i64,
    pub(super) min_insync: i16,
}

/// What Kafka calls the retention of a topic: -1 is without limit.
fn kafka_bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).ok().filter(|bytes| *bytes < i64::MAX).unwrap_or(-1)
}

impl Found {
    /// What a topic of this specification is to be.
    pub(super) fn wanted(config: &KafkaConfig, spec: &TopicSpec) -> Found {
        let (cleanup, retention_bytes, retention_ms) = match spec.cleanup {
            Cleanup::Delete { retention_bytes } => {
                ("delete", kafka_bytes(retention_bytes), config.retention_ms)
            }
            Cleanup::Compact => ("compact", -1, -1),
        };
        Found {
            partitions: spec.partitions,
            replication: config.replication,
            cleanup: cleanup.into(),
            retention_bytes,
            retention_ms,
            min_insync: config.min_insync,
        }
    }

    /// The specification that this is, as far as there is one.
    pub(super) fn spec(&self, name: &str) -> TopicSpec {
        match self.cleanup.as_str() {
            "compact" => TopicSpec::compact(name, self.partitions),
            _ => TopicSpec::delete(
                name,
                self.partitions,
                u64::try_from(self.retention_bytes).unwrap_or(u64::MAX),
            ),
        }
    }

    /// What differs from what is wanted: the existing side and the wanted side, in words. `None` when nothing does.
    pub(super) fn differs(&self, wanted: &Found) -> Option<(String, String)> {
        let mut sides = (Vec::new(), Vec::new());
        let mut compare = |name: &str, here: String, there: String| {
            if here != there {
                sides.0.push(format!("{name} = {here}"));
                sides.1.push(format!("{name} = {there}"));
            }
        };
        compare("partitions", self.partitions.to_string(), wanted.partitions.to_string());
        compare("replication", self.replication.to_string(), wanted.replication.to_string());
        compare("cleanup.policy", self.cleanup.clone(), wanted.cleanup.clone());
        compare("min.insync.replicas", self.min_insync.to_string(), wanted.min_insync.to_string());
        // The retention of a compacted topic does nothing.
        if wanted.cleanup != "compact" {
            compare("retention.bytes", self.retention_bytes.to_string(), wanted.retention_bytes.to_string());
            compare("retention.ms", self.retention_ms.to_string(), wanted.retention_ms.to_string());
        }
        (!sides.0.is_empty()).then(|| (sides.0.join(", "), sides.1.join(", ")))
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread; `None` when it takes too long or `stop` says so.
fn block_on<T>(future: impl Future<Output = T>, timeout: Duration, stop: &dyn Fn() -> bool) -> Option<T> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let deadline = Instant::now() + timeout;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stop() {
            return None;
        }
        std::thread::park_timeout(left.min(Duration::from_millis(50)));
    }
}

/// Lets go of something that may take its time, so that the caller need not wait.
pub(super) fn drop_elsewhere<T: Send + 'static>(value: T) {
    // When no thread can be started it is dropped here and now, with the closure.
    drop(std::thread::Builder::new().name("kafka-drop".into()).spawn(move || drop(value)));
}

/// Asks and changes; made for a few calls and dropped.
pub(super) struct Admin<'a> {
    config: &'a KafkaConfig,
    client: Option<AdminClient<Quiet>>,
    stop: &'a dyn Fn() -> bool,
}

impl<'a> Admin<'a> {
    pub(super) fn new(config: &'a KafkaConfig, stop: &'a dyn Fn() -> bool) -> Result<Admin<'a>, LogError> {
        let mut settings = config.client();
        config.finish(&mut settings);
        let client = settings
            .create_with_context(Quiet)
            .map_err(|error| fault::from_client(&config.bootstrap, "making a client", &error))?;
        Ok(Admin { config, client: Some(client), stop })
    }

    fn client(&self) -> &AdminClient<Quiet> {
        self.client.as_ref().expect("it is only taken when dropped")
    }

    fn options(&self) -> AdminOptions {
        let timeout = self.config.request_timeout;
        AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout))
    }

    fn wait<T>(
        &self,
        doing: &'static str,
        future: impl Future<Output = rdkafka::error::KafkaResult<T>>,
    ) -> Result<T, LogError> {
        let timeout = self.config.request_timeout + Duration::from_secs(1);
        match block_on(future, timeout, self.stop) {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(fault::from_client(&self.config.bootstrap, doing, &error)),
            None if (self.stop)() => Err(LogError::Closed { doing }),
            None => Err(fault::unavailable(&self.config.bootstrap, doing, "no answer in time")),
        }
    }

    /// Makes a topic; true when it was made now, false when it is there already.
    pub(super) fn create(&self, name: &str, wanted: &Found) -> Result<bool, LogError> {
        const DOING: &str = "making a topic";
        let (retention_bytes, retention_ms, min_insync) = (
            wanted.retention_bytes.to_string(),
            wanted.retention_ms.to_string(),
            wanted.min_insync.to_string(),
        );
        // Room for a message's header and the batch around it.
        let max_bytes = (MAX_MESSAGE + (64 << 10)).to_string();
        // Retention and compaction never touch the segment that is being written: it must be small beside the retention.
        let segment = match u64::try_from(wanted.retention_bytes) {
            Ok(bytes) => (bytes / 8).clamp(16 << 20, 1 << 30).to_string(),
            Err(_) => (256 << 20).to_string(),
        };
        let mut topic = NewTopic::new(
            name,
            wanted.partitions as i32,
            TopicReplication::Fixed(i32::from(wanted.replication)),
        )
        .set("cleanup.policy", &wanted.cleanup)
        .set("min.insync.replicas", &min_insync)
        .set("max.message.bytes", &max_bytes)
        .set("segment.bytes", &segment);
        if wanted.cleanup == "delete" {
            topic = topic.set("retention.bytes", &retention_bytes).set("retention.ms", &retention_ms);
        }
        let results = self.wait(DOING, self.client().create_topics([&topic], &self.options()))?;
        match results.into_iter().next() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(false),
            Some(Err((_, code))) => Err(fault::from_code(&self.config.bootstrap, DOING, code)),
            None => Err(fault::unavailable(&self.config.bootstrap, DOING, "no answer")),
        }
    }

    /// Deletes a topic; true when it was there.
    pub(super) fn delete(&self, name: &str) -> Result<bool, LogError> {
        const DOING: &str = "deleting a topic";
        let results = self.wait(DOING, self.client().delete_topics(&[name], &self.options()))?;
        match results.into_iter().next() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, RDKafkaErrorCode::UnknownTopicOrPartition))) => Ok(false),
            Some(Err((_, code))) => Err(fault::from_code(&self.config.bootstrap, DOING, code)),
            None => Err(fault::unavailable(&self.config.bootstrap, DOING, "no answer")),
        }
    }

    fn settings(&self, name: &str) -> Result<BTreeMap<String, String>, LogError> {
        const DOING: &str = "asking for a topic's settings";
        let specifier = [ResourceSpecifier::Topic(name)];
        let results = self.wait(DOING, self.client().describe_configs(&specifier, &self.options()))?;
        match results.into_iter().next() {
            Some(Ok(resource)) => Ok(resource
                .entries
                .into_iter()
                .filter_map(|entry| Some((entry.name, entry.value?)))
                .collect()),
            Some(Err(code)) => Err(fault::from_code(&self.config.bootstrap, DOING, code)),
            None => Err(fault::unavailable(&self.config.bootstrap, DOING, "no answer")),
        }
    }

    /// The settings of a topic that is there. A broker that has not heard of it yet answers with none at all, and is asked again.
    fn known_settings(&self, name: &str) -> Result<BTreeMap<String, String>, LogError> {
        let deadline = Instant::now() + self.config.request_timeout;
        loop {
            let settings = self.settings(name)?;
            if settings.contains_key("cleanup.policy") {
                return Ok(settings);
            }
            if Instant::now() >= deadline || (self.stop)() {
                let reason = format!("the broker that was asked does not know the settings of topic {name}");
                return Err(fault::unavailable(
                    &self.config.bootstrap,
                    "asking for a topic's settings",
                    reason,
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A topic as it is; `None` when there is none of the name. Waits until each partition has a leader.
    pub(super) fn find(&self, handle: &Handle, name: &str) -> Result<Option<Found>, LogError> {
        let Some((partitions, replication)) = shape(self.config, handle, name, self.stop)? else {
            return Ok(None);
        };
        let settings = self.known_settings(name)?;
        let text = |key: &str| settings.get(key).cloned().unwrap_or_default();
        let number = |key: &str| text(key).parse::<i64>().unwrap_or(-1);
        Ok(Some(Found {
            partitions,
            replication,
            cleanup: text("cleanup.policy"),
            retention_bytes: number("retention.bytes"),
            retention_ms: number("retention.ms"),
            min_insync: i16::try_from(number("min.insync.replicas")).unwrap_or(-1),
        }))
    }
}

impl Drop for Admin<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop_elsewhere(client);
        }
    }
}

/// Partitions and copies of a topic, once all its partitions have leaders; `None` when there is no such topic.
pub(super) fn shape(
    config: &KafkaConfig,
    handle: &Handle,
    name: &str,
    stop: &dyn Fn() -> bool,
) -> Result<Option<(u32, i16)>, LogError> {
    const DOING: &str = "asking for a topic";
    const PAUSE: Duration = Duration::from_millis(20);
    let deadline = Instant::now() + config.request_timeout;
    loop {
        if stop() {
            return Err(LogError::Closed { doing: DOING });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let question = left.clamp(Duration::from_millis(1), Duration::from_secs(2));
        let reason = match handle.consumer.fetch_metadata(Some(name), question) {
            Ok(metadata) => {
                let topic = metadata.topics().iter().find(|topic| topic.name() == name);
                match topic.map(|topic| (topic, topic.error().map(RDKafkaErrorCode::from))) {
                    None | Some((_, Some(RDKafkaErrorCode::UnknownTopicOrPartition))) => return Ok(None),
                    Some((topic, None)) if topic.partitions().iter().all(|one| one.leader() >= 0) => {
                        let copies = topic.partitions().iter().map(|one| one.replicas().len()).min();
                        let copies = i16::try_from(copies.unwrap_or(0)).unwrap_or(i16::MAX);
                        return Ok(Some((topic.partitions().len() as u32, copies)));
                    }
                    Some((_, None)) => "a partition has no leader".to_owned(),
                    Some((_, Some(RDKafkaErrorCode::LeaderNotAvailable))) => {
                        "a partition has no leader".to_owned()
                    }
                    Some((_, Some(code))) => return Err(fault::from_code(&config.bootstrap, DOING, code)),
                }
            }
            Err(error) => error.to_string(),
        };
        if left <= PAUSE {
            return Err(fault::unavailable(&config.bootstrap, DOING, reason));
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let config = KafkaConfig::new("x:1");
        let spec = TopicSpec::delete("t", 3, 1 << 30);
        let wanted = Found::wanted(&config, &spec);
        assert_eq!(wanted.differs(&wanted), None);
        assert_eq!(wanted.spec("t"), spec);
        let other = Found { partitions: 2, min_insync: 2, ..wanted.clone() };
        let (here, there) = other.differs(&wanted).unwrap();
        assert_eq!(here, "partitions = 2, min.insync.replicas = 2");
        assert_eq!(there, "partitions = 3, min.insync.replicas = 1");
        let compact = Found::wanted(&config, &TopicSpec::compact("t", 1));
        assert_eq!(Found { retention_ms: 5, ..compact.clone() }.differs(&compact), None);
        assert_eq!(compact.spec("t"), TopicSpec::compact("t", 1));
        let unlimited = TopicSpec::delete("t", 1, u64::MAX);
        assert_eq!(Found::wanted(&config, &unlimited).spec("t"), unlimited);
    }

    #[test]
    fn waiting_for_an_answer_ends() {
        let never = || std::future::pending::<()>();
        assert_eq!(block_on(never(), Duration::from_millis(20), &|| false), None);
        assert_eq!(block_on(never(), Duration::from_secs(3600), &|| true), None);
        assert_eq!(block_on(async { 5 }, Duration::ZERO, &|| true), Some(5));
    }
}
