//! Proofs on the data folder of a stopped system.

use std::ops::ControlFlow;
use std::path::Path;

use hoga_core::codec;
use hoga_core::exchange::Exchange;
use hoga_core::ids::Seq;
use hoga_engine::{LIFECYCLE, PROJECTION, TRADES};
use hoga_lab::crash::Offline;
use hoga_log::LogError;
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog};
use hoga_log::journal::JournalReader;
use hoga_log::storage::Disk;

use crate::process::lock;
use crate::{End, print};

/// `hoga group forget`.
pub fn forget_group(group: &str, data: &Path) -> Result<(), End> {
    if !data.join("log").is_dir() {
        return Err(End::Usage(format!(
            "{}: no event log there; name the data folder with --data",
            data.display()
        )));
    }
    let _lock = lock(data)?;
    let coded = |error: LogError| End::Bad(format!("[{}] {error}", error.code()));
    let log = EmbeddedLog::open(data.join("log"), EmbeddedConfig::default()).map_err(coded)?;
    let mut topics = Vec::new();
    for topic in log.topics() {
        if log.forget_group(group, &topic.name).map_err(coded)? {
            topics.push(topic.name);
        }
    }
    log.sync().map_err(coded)?;
    if topics.is_empty() {
        return Err(End::Bad(format!(
            "group {group} is not registered in the event log of {}",
            data.display()
        )));
    }
    print(format_args!("group {group} is forgotten on {}", topics.join(", ")))
}

/// What the engine publishes. Consumers have topics of their own beside these.
const ENGINE: [&str; 3] = [TRADES, LIFECYCLE, PROJECTION];

/// A stopped system.
pub struct Stopped;

impl Offline for Stopped {
    /// In the engine's topics a message's number is its offset plus one, always: then none is missing and none was used twice.
    fn check_topics(&self, data: &Path) -> Result<u64, String> {
        let log =
            EmbeddedLog::open(data.join("log"), EmbeddedConfig::default()).map_err(|e| e.to_string())?;
        let mut messages = Vec::new();
        let mut count = 0;
        let topics: Vec<_> =
            log.topics().into_iter().filter(|topic| ENGINE.contains(&topic.name.as_str())).collect();
        if topics.len() != ENGINE.len() {
            return Err(format!("of the topics {ENGINE:?} only these are there: {topics:?}"));
        }
        for topic in topics {
            for partition in 0..topic.partitions {
                let mut next = 0;
                loop {
                    messages.clear();
                    let after = log
                        .read(&topic.name, partition, next, 10_000, &mut messages)
                        .map_err(|e| e.to_string())?;
                    for message in &messages {
                        let value = message.value.as_deref().unwrap_or_default();
                        let place = format!("{}/{partition} offset {}", topic.name, message.offset);
                        let (number, _) = codec::decode_event(value).map_err(|e| format!("{place}: {e}"))?;
                        if number != message.offset + 1 {
                            return Err(format!(
                                "{place}: event number {number}, expected {}",
                                message.offset + 1
                            ));
                        }
                        count += 1;
                    }
                    if after == next {
                        break;
                    }
                    next = after;
                }
            }
        }
        Ok(count)
    }

    fn replay_digest(&self, data: &Path, seq: u64) -> Result<String, String> {
        let mut reader = JournalReader::open(Disk, data.join("engine").join("journal"), Seq(1))
            .map_err(|e| e.to_string())?;
        let mut exchange = Exchange::new();
        let mut events = Vec::new();
        let mut failed = None;
        reader
            .read(Seq(seq), usize::MAX, |_, payload| {
                match codec::decode_command(payload) {
                    Ok(command) => {
                        events.clear();
                        // A reject is an answer like any other: replay gives it again.
                        let _ = exchange.apply(&command, &mut events);
                        ControlFlow::Continue(())
                    }
                    Err(error) => {
                        failed = Some(error.to_string());
                        ControlFlow::Break(())
                    }
                }
            })
            .map_err(|e| e.to_string())?;
        if let Some(error) = failed {
            return Err(error);
        }
        if exchange.position() != Seq(seq) {
            return Err(format!("the journal ends at command {}, expected {seq}", exchange.position()));
        }
        Ok(format!("{:032x}", exchange.digest()))
    }
}
