//! `hoga topics`: the topics on Kafka, measured, made and checked.

use std::time::Duration;

use hoga_log::LogError;
use hoga_log::kafka::topics::{self as kafka, Shape, State, TopicState};
use serde_json::json;

use crate::cli::Topics;
use crate::config::Config;
use crate::logs::{kafka_config, topics};
use crate::{End, coded, print};

/// How long each side is measured.
const MEASURE: Duration = Duration::from_secs(5);

/// Runs the command.
pub fn run(command: &Topics) -> Result<(), End> {
    let path = match command {
        Topics::Plan { config, .. } | Topics::Apply { config } | Topics::Check { config } => config,
    };
    let config = Config::load(path.as_deref(), std::env::vars())?;
    let cluster = kafka_config(&config);
    let failed = coded(LogError::code);
    match command {
        Topics::Plan { rate, bytes, json, .. } => {
            let shape = Shape { message_bytes: *bytes as usize, target: rate.ceil() as u64, time: MEASURE };
            let plan = kafka::plan(&cluster, shape).map_err(failed)?;
            if *json {
                let value = json!({
                    "partitions": plan.partitions, "target_per_s": plan.target, "bytes": plan.message_bytes,
                    "producer_per_s": plan.producer, "consumer_per_s": plan.consumer, "replication": plan.replication,
                });
                return print(format_args!("{value}"));
            }
            print(format_args!("{}", plan.text.trim_end()))
        }
        Topics::Apply { .. } => {
            let (states, made) = kafka::apply(&cluster, &topics(&config)).map_err(failed)?;
            for name in made {
                print(format_args!("made {name}"))?;
            }
            report(&states)
        }
        Topics::Check { .. } => report(&kafka::check(&cluster, &topics(&config)).map_err(failed)?),
    }
}

fn report(states: &[TopicState]) -> Result<(), End> {
    let mut wrong = 0;
    for state in states {
        let text = match &state.state {
            State::Missing => "missing: `hoga topics apply` makes it".to_owned(),
            State::AsDeclared => "as declared".to_owned(),
            State::Differs { existing, declared } => {
                format!("differs: it has {existing}, declared is {declared}")
            }
        };
        wrong += usize::from(state.state != State::AsDeclared);
        print(format_args!("{:<20} {text}", state.topic))?;
    }
    match wrong {
        0 => Ok(()),
        n => Err(End::Bad(format!(
            "{n} topics are not as declared. What is there is never changed from here: change the configuration, or the topic \
             with the cluster's own tools"
        ))),
    }
}
