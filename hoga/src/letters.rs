//! `hoga dlt`: messages that a consumer group could not handle.

use std::fs::File;
use std::sync::Arc;

use hoga_log::LogError;
use hoga_log::consumer::dead_letters::{self, Filed};
use hoga_log::event_log::EventLog;
use serde_json::{Value, json};

use crate::cli::{Dlt, DltFlags};
use crate::config::{Config, LogBackend};
use crate::logs::{Bus, Logs, topics};
use crate::process::lock;
use crate::{End, coded, print};

/// Runs the command.
pub fn run(command: &Dlt) -> Result<(), End> {
    match command {
        Dlt::List(flags) => {
            let desk = Desk::open(flags)?;
            for topic in desk.topics() {
                for filed in dead_letters::list(&*desk.log, &topic, false).map_err(refused)? {
                    print(format_args!(
                        "{}",
                        if flags.json { in_json(&topic, &filed).to_string() } else { line(&topic, &filed) }
                    ))?;
                }
            }
            Ok(())
        }
        Dlt::Show { id, flags } => {
            let (topic, number) = parse(id)?;
            let desk = Desk::open(flags)?;
            let filed = dead_letters::show(&*desk.log, &topic, number).map_err(refused)?;
            if flags.json {
                return print(format_args!("{}", in_json(&topic, &filed)));
            }
            print(format_args!("{}", line(&topic, &filed)))?;
            print(format_args!("key    {}", hex(&filed.letter.key)))?;
            print(format_args!(
                "value  {}",
                filed.letter.value.as_deref().map_or("none (a tombstone)".into(), hex)
            ))
        }
        Dlt::Replay { ids, flags } => each(ids, flags, "handed to its group again", dead_letters::replay),
        Dlt::Drop { ids, flags } => each(ids, flags, "dropped", dead_letters::drop_letter),
    }
}

fn each(
    ids: &[String],
    flags: &DltFlags,
    done: &str,
    act: fn(&dyn EventLog, &str, u64) -> Result<Filed, LogError>,
) -> Result<(), End> {
    let parsed: Vec<(String, u64)> = ids.iter().map(|id| parse(id)).collect::<Result<_, _>>()?;
    let desk = Desk::open(flags)?;
    for (id, (topic, number)) in ids.iter().zip(&parsed) {
        let filed = act(&*desk.log, topic, *number).map_err(refused)?;
        print(format_args!("{id}: {done} ({})", filed.letter.group))?;
    }
    Ok(())
}

/// Where the letters are.
struct Desk {
    log: Arc<dyn EventLog>,
    bus: Bus,
    config: Config,
    _lock: Option<File>,
}

impl Desk {
    /// On Kafka at any time; in the data folder only while nothing runs on it.
    fn open(flags: &DltFlags) -> Result<Desk, End> {
        let mut config = Config::load(flags.config.as_deref(), std::env::vars())?;
        if let Some(dir) = &flags.data {
            config.data.dir.clone_from(dir);
        }
        if config.event_log.backend == LogBackend::Kafka {
            let bus = Bus::remote(&config)?;
            bus.know_letters(&topics(&config)).map_err(refused)?;
            return Ok(Desk { log: Arc::clone(&bus.log), bus, config, _lock: None });
        }
        let lock = lock(&config.data.dir)?;
        let bus = Logs::open(&config)?.bus;
        Ok(Desk { log: Arc::clone(&bus.log), bus, config, _lock: Some(lock) })
    }

    fn topics(&self) -> Vec<String> {
        topics(&self.config).into_iter().map(|spec| spec.name).collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.bus.close();
    }
}

/// `order.lifecycle.dlt:17`: the topic of the letters, and the number in it.
fn parse(id: &str) -> Result<(String, u64), End> {
    let parsed = id
        .split_once(':')
        .and_then(|(topic, number)| Some((topic.strip_suffix(".dlt")?.to_owned(), number.parse().ok()?)));
    parsed.ok_or_else(|| {
        End::Usage(format!(
            "{id}: expected an id as `hoga dlt list` prints it, for example order.lifecycle.dlt:17"
        ))
    })
}

fn refused(error: LogError) -> End {
    match error {
        LogError::Config(text) => End::Bad(text),
        other => coded(LogError::code)(other),
    }
}

fn line(topic: &str, filed: &Filed) -> String {
    let letter = &filed.letter;
    format!(
        "{topic}.dlt:{}  {:?}  group {}  {} offset {}  tried {}×  {} bytes  {}",
        filed.number,
        filed.fate,
        letter.group,
        letter.place,
        letter.offset,
        letter.attempts,
        letter.value.as_ref().map_or(0, Vec::len),
        letter.reason
    )
}

fn in_json(topic: &str, filed: &Filed) -> Value {
    let letter = &filed.letter;
    json!({
        "id": format!("{topic}.dlt:{}", filed.number),
        "fate": format!("{:?}", filed.fate).to_lowercase(),
        "group": letter.group,
        "topic": &*letter.place.topic,
        "partition": letter.place.partition,
        "offset": letter.offset,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "time_us": letter.time.0,
        "died_us": letter.died.0,
        "key": hex(&letter.key),
        "value": letter.value.as_deref().map(hex),
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
