//! The read models as the configuration says: on which database, and how their groups get messages.

use std::sync::Arc;
use std::time::Duration;

use hoga_store::{Database, Identity, PostgresConfig, StoreError, Stores, StoresConfig};

use crate::config::{Config, LogBackend, StoreBackend};
use crate::logs::Bus;

/// Where the tables are.
fn database(config: &Config) -> Database {
    let store = &config.store;
    match store.backend {
        StoreBackend::Sqlite => Database::Sqlite { dir: config.store_dir() },
        StoreBackend::Postgres => Database::Postgres(PostgresConfig {
            connect_timeout: Duration::from_millis(store.connect_timeout_ms),
            statement_timeout: Duration::from_millis(store.statement_timeout_ms),
            schema_prefix: schema_prefix(&config.kafka.prefix),
            ..PostgresConfig::new(&store.url)
        }),
    }
}

/// Users and keys: in the data folder, or on PostgreSQL, where a standby finds them too.
pub fn identity(config: &Config) -> Result<Identity, StoreError> {
    match config.store.backend {
        StoreBackend::Sqlite => Identity::open(&config.data.dir.join("identity.db")),
        StoreBackend::Postgres => Identity::open_on(&database(config)),
    }
}

/// Opens them; no group is started.
pub fn open(config: &Config, bus: &Bus) -> Result<Stores, StoreError> {
    let store = &config.store;
    let mut settings = StoresConfig::on(database(config));
    settings.batch = store.batch;
    settings.linger = Duration::from_millis(store.linger_ms);
    settings.readers = store.readers;
    // On Kafka members of a group may run anywhere.
    settings.shared = config.event_log.backend == LogBackend::Kafka;
    settings.source = source(config);
    Stores::open_with(settings, Arc::clone(&bus.log))
}

/// The systems that share a Kafka cluster may share a database too.
fn schema_prefix(prefix: &str) -> String {
    prefix.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(feature = "kafka")]
fn source(config: &Config) -> Option<hoga_store::SourceFactory> {
    use hoga_log::consumer::Source;
    use hoga_log::kafka::{KafkaSource, Membership, Protocol};
    if config.event_log.backend == LogBackend::Embedded {
        return None;
    }
    let (kafka, settings) = (crate::logs::kafka_config(config), config.kafka.clone());
    Some(Arc::new(move |group, topics| {
        let mut membership = Membership::new(&kafka, group.as_str(), topics);
        if settings.group_protocol == "consumer" {
            membership.protocol = Protocol::Consumer;
        }
        if !settings.instance.is_empty() {
            membership.instance_id = Some(format!("{}-{}", settings.instance, group.as_str()));
        }
        Ok(Box::new(KafkaSource::new(&kafka, &membership)?) as Box<dyn Source>)
    }))
}

#[cfg(not(feature = "kafka"))]
fn source(_: &Config) -> Option<hoga_store::SourceFactory> {
    None
}
