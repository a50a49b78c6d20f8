//! The event log on Apache Kafka. Why this client and how the log's law maps to Kafka: `docs/adr/0008-kafka-client.md`.

mod admin;
mod config;
mod context;
mod fault;
mod groups;
mod log;
mod loose;
mod member;
mod native;
mod reach;
mod readers;
mod stats;
pub mod topics;

pub use config::KafkaConfig;
pub use log::KafkaLog;
pub use loose::{Acks, LooseProducer};
pub use member::{KafkaSource, Membership, Protocol};
pub use stats::KafkaStats;
