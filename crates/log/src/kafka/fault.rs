//! What the client reports, as faults of the log.

use std::path::PathBuf;

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use crate::error::LogError;

/// Names the brokers in faults.
pub(super) fn unavailable(servers: &str, doing: &'static str, reason: impl Into<String>) -> LogError {
    LogError::Unavailable { servers: format!("Kafka at {servers}"), doing, reason: reason.into() }
}

/// A code of the client. Only what an operator has to change is an error of the configuration; everything else may pass: brokers
/// start, elect and move leaders, and say so in many ways.
pub(super) fn from_code(servers: &str, doing: &'static str, code: RDKafkaErrorCode) -> LogError {
    match code {
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::GroupAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed
        | RDKafkaErrorCode::SaslAuthenticationFailed
        | RDKafkaErrorCode::UnsupportedVersion
        | RDKafkaErrorCode::InvalidArgument
        | RDKafkaErrorCode::InvalidConfig
        | RDKafkaErrorCode::InvalidReplicationFactor
        | RDKafkaErrorCode::PolicyViolation => {
            LogError::Config(format!("Kafka at {servers}: {doing}: {code}"))
        }
        code => unavailable(servers, doing, code.to_string()),
    }
}

/// An error of the client's Rust face.
pub(super) fn from_client(servers: &str, doing: &'static str, error: &KafkaError) -> LogError {
    match error {
        KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) | KafkaError::Nul(_) => {
            LogError::Config(format!("Kafka at {servers}: {doing}: {error}"))
        }
        error => match error.rdkafka_error_code() {
            Some(code) => from_code(servers, doing, code),
            None => unavailable(servers, doing, error.to_string()),
        },
    }
}

/// The first thing that went wrong for good. Everything that is written afterwards fails with it.
#[derive(Clone, Debug)]
pub(super) enum Broken {
    /// A message could not be written: what follows it would leave a hole.
    Failed(String),
    /// Somebody else wrote between two of our messages.
    Foreign { topic: String, partition: u32, reason: String },
}

impl Broken {
    pub(super) fn error(&self, servers: &str) -> LogError {
        match self.clone() {
            Broken::Failed(reason) => {
                LogError::Poisoned { path: PathBuf::from(format!("kafka://{servers}")), reason }
            }
            Broken::Foreign { topic, partition, reason } => LogError::Foreign { topic, partition, reason },
        }
    }
}
