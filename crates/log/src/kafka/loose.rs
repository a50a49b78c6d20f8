//! A producer that breaks the event log's law on purpose: to see what a setting does to order and loss before production shows it.

use std::time::Duration;

use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::config::KafkaConfig;
use super::fault;
use crate::error::LogError;

/// What the broker is asked to confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Nothing: a message counts as sent once it is in the socket.
    None,
    /// That the partition's leader has it.
    Leader,
    /// That all replicas in sync have it.
    All,
}

impl Acks {
    /// `0`, `1` or `all`: the client library's words.
    pub fn as_str(self) -> &'static str {
        match self {
            Acks::None => "0",
            Acks::Leader => "1",
            Acks::All => "all",
        }
    }
}

/// Sends without numbers of its own (no idempotence) and without looking back.
pub struct LooseProducer {
    producer: BaseProducer,
    bootstrap: String,
    prefix: String,
}

impl LooseProducer {
    /// Makes the client; a broker may be away.
    ///
    /// # Errors
    /// [`LogError::Config`].
    pub fn open(config: &KafkaConfig, acks: Acks) -> Result<LooseProducer, LogError> {
        let mut client = config.client();
        client
            .set("acks", acks.as_str())
            .set("enable.idempotence", "false")
            .set("message.timeout.ms", "30000")
            .set("linger.ms", (config.linger.as_micros() as f64 / 1000.0).to_string());
        config.finish(&mut client);
        let producer = client.create();
        let producer =
            producer.map_err(|error| fault::from_client(&config.bootstrap, "making a client", &error))?;
        Ok(LooseProducer {
            producer,
            bootstrap: config.bootstrap.clone(),
            prefix: config.topic_prefix.clone(),
        })
    }

    /// Puts a message into the client's queue, for this partition or the one that the client chooses by the key; without a key, any.
    ///
    /// # Errors
    /// [`LogError::Unavailable`] when the queue is full.
    pub fn send(
        &self,
        topic: &str,
        partition: Option<u32>,
        key: Option<&[u8]>,
        value: &[u8],
    ) -> Result<(), LogError> {
        let topic = format!("{}{topic}", self.prefix);
        let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic).payload(value);
        record.key = key;
        record.partition = partition.map(|partition| partition as i32);
        let sent = self.producer.send(record);
        self.producer.poll(Duration::ZERO);
        sent.map_err(|(error, _)| LogError::Unavailable {
            servers: self.bootstrap.clone(),
            doing: "sending a message",
            reason: error.to_string(),
        })
    }

    /// Waits until the client's queue is empty; what that means is what `acks` says.
    ///
    /// # Errors
    /// [`LogError::Unavailable`] when the time is over.
    pub fn flush(&self, timeout: Duration) -> Result<(), LogError> {
        self.producer.flush(timeout).map_err(|error| LogError::Unavailable {
            servers: self.bootstrap.clone(),
            doing: "waiting for messages to be sent",
            reason: error.to_string(),
        })
    }
}
