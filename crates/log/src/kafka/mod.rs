//! The event log on Apache Kafka. Why this client and how the log's law maps to Kafka: `docs/adr/0008-kafka-client.md`.

mod config;

pub use config::KafkaConfig;
