//! Where the cluster is and how it is used.

use std::time::Duration;

use rdkafka::ClientConfig;

use crate::error::LogError;

/// How this process uses a Kafka cluster. Everything has a default but the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaConfig {
    /// Brokers to ask first, as `host:port`, separated by commas. One that answers is enough.
    pub bootstrap: String,
    /// How this process calls itself in the brokers' logs and quotas.
    pub client_id: String,
    /// Stands before the names of all topics and groups, so that several installations can share a cluster.
    pub topic_prefix: String,
    /// Copies of each partition. 3 for data that must survive a broker.
    pub replication: i16,
    /// Copies that must have a message before it counts as written; 2 with a replication of 3.
    pub min_insync: i16,
    /// How long messages of topics with cleanup `delete` stay, in milliseconds; -1 for ever (their size limits them then).
    pub retention_ms: i64,
    /// How long a message waits for others to share its batch.
    pub linger: Duration,
    /// Largest batch, in bytes before compression.
    pub batch_bytes: u32,
    /// Messages that may wait to be acknowledged. When there are as many, `append` waits.
    pub queue_messages: u32,
    /// Bytes that may wait to be acknowledged. When there are as many, `append` waits.
    pub queue_bytes: u64,
    /// Bytes of one answer of a broker for a partition. A reader keeps up to four ahead.
    pub fetch_bytes: u32,
    /// How long a call that needs an answer waits for it before it fails with [`LogError::Unavailable`].
    pub request_timeout: Duration,
    /// After this silence a member of a group is given up, and its partitions go to others.
    pub session_timeout: Duration,
    /// How often a member of a group says that it is alive; a third of the session.
    pub heartbeat: Duration,
    /// Further settings of librdkafka, as they are: security, compression. They win over the ones above.
    pub extra: Vec<(String, String)>,
}

impl KafkaConfig {
    /// The defaults, for the brokers at `bootstrap`.
    pub fn new(bootstrap: &str) -> KafkaConfig {
        KafkaConfig {
            bootstrap: bootstrap.into(),
            client_id: "hoga".into(),
            topic_prefix: String::new(),
            replication: 1,
            min_insync: 1,
            retention_ms: -1,
            linger: Duration::from_millis(5),
            batch_bytes: 256 << 10,
            queue_messages: 100_000,
            queue_bytes: 64 << 20,
            fetch_bytes: 4 << 20,
            request_timeout: Duration::from_secs(10),
            session_timeout: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            extra: Vec::new(),
        }
    }

    /// Checks what can be checked without the cluster.
    ///
    /// # Errors
    /// [`LogError::Config`].
    pub fn check(&self) -> Result<(), LogError> {
        let fault = |text: String| Err(LogError::Config(text));
        if self.bootstrap.trim().is_empty() {
            return fault("kafka: no brokers are named (bootstrap = \"host:port,…\")".into());
        }
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-')
        };
        if self.topic_prefix.len() > 100 || !self.topic_prefix.bytes().all(allowed) {
            return fault(format!(
                "kafka: {:?} is not a prefix of topics: up to 100 characters of a-z, 0-9, '.', '_', '-'",
                self.topic_prefix
            ));
        }
        if self.replication < 1 || self.min_insync < 1 || self.min_insync > self.replication {
            return fault(format!(
                "kafka: replication = {} and min_insync = {} do not fit: 1 or more, and min_insync not above replication",
                self.replication, self.min_insync
            ));
        }
        if self.queue_messages == 0 || self.queue_bytes < 4 << 20 || self.batch_bytes == 0 {
            return fault(
                "kafka: a queue needs 1 message or more and 4 MiB or more, a batch 1 byte or more".into(),
            );
        }
        if self.request_timeout.is_zero() || self.heartbeat * 2 > self.session_timeout {
            return fault(
                "kafka: request_timeout must not be 0, and heartbeat at most half of session_timeout".into(),
            );
        }
        Ok(())
    }

    /// The name on the cluster of a topic.
    pub fn topic_name(&self, topic: &str) -> String {
        format!("{}{topic}", self.topic_prefix)
    }

    /// The name on the cluster of a group.
    pub fn group_name(&self, group: &str) -> String {
        format!("{}{group}", self.topic_prefix)
    }

    /// What every client of this process is made with: address, name, patience with sockets, and quiet logs.
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("client.id", &self.client_id)
            // A broker that is away is asked again soon: the default grows to 10 s, longer than its restart.
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            .set("retry.backoff.max.ms", "500")
            // A broker that hangs (machine gone, process stopped) is given up after this, and the next one is tried.
            .set("socket.timeout.ms", "10000")
            .set("socket.connection.setup.timeout.ms", "5000")
            .set("socket.keepalive.enable", "true")
            .set("socket.nagle.disable", "true")
            .set("topic.metadata.refresh.interval.ms", "30000")
            .set("metadata.max.age.ms", "90000")
            // Idle connections that are closed are no event.
            .set("log.connection.close", "false");
        config
    }

    /// Adds the operator's own settings. To be called last.
    pub fn finish(&self, config: &mut ClientConfig) {
        for (name, value) in &self.extra {
            config.set(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert!(KafkaConfig::new("127.0.0.1:9092").check().is_ok());
        let spoil: [fn(&mut KafkaConfig); 7] = [
            |config| config.bootstrap = " ".into(),
            |config| config.topic_prefix = "A/".into(),
            |config| config.replication = 0,
            |config| config.min_insync = 2,
            |config| config.queue_bytes = 100,
            |config| config.request_timeout = Duration::ZERO,
            |config| config.heartbeat = Duration::from_secs(6),
        ];
        for change in spoil {
            let mut config = KafkaConfig::new("127.0.0.1:9092");
            change(&mut config);
            assert!(matches!(config.check(), Err(LogError::Config(_))), "{config:?}");
        }
    }

    #[test]
    fn names_carry_the_prefix() {
        let config = KafkaConfig { topic_prefix: "a.".into(), ..KafkaConfig::new("x:1") };
        assert_eq!((config.topic_name("t"), config.group_name("g")), ("a.t".into(), "a.g".into()));
    }
}
