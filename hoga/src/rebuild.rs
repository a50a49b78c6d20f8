//! `hoga rebuild`: a group's tables made anew from the event log.

use std::path::Path;

use hoga_lab::admin::{Admin, RUN_FILE};
use hoga_store::StoreError;
use serde_json::json;

use crate::cli::Rebuild;
use crate::config::{Config, LogBackend};
use crate::logs::{Bus, Logs, topics};
use crate::process::lock;
use crate::{End, coded, print, read_models};

/// Asks the system that runs on the data folder, or does it here when none does.
pub fn run(flags: &Rebuild) -> Result<(), End> {
    let group = flags
        .group
        .group()
        .ok_or_else(|| End::Usage("the exchange has no tables of its own; name a consumer group".into()))?;
    let mut config = Config::load(flags.config.as_deref(), std::env::vars())?;
    if let Some(dir) = &flags.data {
        config.data.dir.clone_from(dir);
    }
    if running(&config.data.dir) {
        let answer = Admin::of(&config.data.dir)?
            .post("/api/v1/admin/rebuild", &json!({ "group": group.as_str() }))?;
        return print(format_args!("{answer}"));
    }
    // On Kafka the groups run elsewhere: this process only reads the log and swaps tables in the database.
    let remote = config.event_log.backend == LogBackend::Kafka;
    let _lock = if remote { None } else { Some(lock(&config.data.dir)?) };
    let bus = if remote { Bus::remote(&config)? } else { Logs::open(&config)?.bus };
    if remote {
        for spec in topics(&config) {
            bus.log.create_topic(&spec).map_err(coded(hoga_log::LogError::code))?;
        }
    }
    let stores = read_models::open(&config, &bus).map_err(coded(StoreError::code))?;
    let built = stores.rebuild(group);
    bus.close();
    let built = built.map_err(|error| End::Bad(format!("[{}] {error}", error.code())))?;
    print(format_args!(
        "{}: rebuilt from {} messages in {:.1} s; the group stood still for {} ms",
        group.as_str(),
        built.messages,
        built.took.as_secs_f64(),
        built.stopped_for.as_millis()
    ))
}

fn running(data: &Path) -> bool {
    data.join(RUN_FILE).exists()
}
