//! The way of an event from the engine to those who read it, as an operator sees it: lag of the groups with a verdict, the relay to
//! Kafka, and how long it takes from a command to its result in a read model.

use std::fmt::Write;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hoga_log::lag::{
    GroupLag, LagReport, LagWatch, LatencyReport, Observe, Observed, Place, Verdict, render,
};
use hoga_log::relay::{RelayState, RelayStatus, RelayWatch};
use hoga_store::{Group, Stores};
use serde_json::{Value, json};

/// How long it takes from a command to a group's result; `None` for a group that does not measure it.
pub type LatencyOf = Arc<dyn Fn(&str) -> Option<LatencyReport> + Send + Sync>;

/// What is watched of a pipeline.
#[derive(Clone)]
pub struct Pipeline {
    /// The lag of all groups.
    pub lag: LagWatch,
    /// The relay, where there is one.
    pub relay: Option<RelayWatch>,
    /// From the command's time to a group's result.
    pub latency: LatencyOf,
}

impl Pipeline {
    /// Without a relay, and without latencies.
    pub fn new(lag: LagWatch) -> Pipeline {
        Pipeline { lag, relay: None, latency: Arc::new(|_| None) }
    }

    /// As `GET /api/v1/pipeline` and `GET /api/v1/admin/lag` give it. Times are in seconds, rates in messages per second; a time that
    /// never comes is null.
    pub fn json(&self) -> Value {
        let groups: Vec<Value> = self.lag.groups().iter().map(|group| self.group(group)).collect();
        json!({ "groups": groups, "relay": self.relay_json() })
    }

    /// How the relay stands; null where there is none.
    pub fn relay_json(&self) -> Value {
        self.relay.as_ref().map_or(Value::Null, |relay| relay_json(&relay.status()))
    }

    /// The table of `hoga lag`.
    pub fn table(&self) -> String {
        let mut out = render(&self.lag.groups(), &*self.latency);
        if let Some(relay) = &self.relay {
            let status = relay.status();
            let (lag, age) = (status.lag(), status.age().as_secs_f64());
            let _ = writeln!(
                out,
                "\nrelay: {}; {lag} messages not acknowledged, the oldest {age:.1} s old",
                status.state
            );
        }
        out
    }

    /// Writes it in Prometheus' text format.
    pub fn metrics(&self, out: &mut String) {
        let groups = self.lag.groups();
        lag_metrics(out, &groups);
        self.latency_metrics(out, &groups);
        if let Some(relay) = &self.relay {
            relay_metrics(out, &relay.status());
        }
    }

    fn group(&self, group: &GroupLag) -> Value {
        let mut value = report_json(&group.total);
        value["group"] = json!(&*group.group);
        value["topic"] = json!(&*group.topic);
        value["skewed_partition"] = json!(group.skewed);
        value["history"] = json!(group.history);
        value["latency"] = match (self.latency)(&group.group) {
            Some(latency) if latency.count > 0 => json!({
                "count": latency.count,
                "p50_s": latency.p50.as_secs_f64(),
                "p99_s": latency.p99.as_secs_f64(),
                "max_s": latency.max.as_secs_f64(),
            }),
            _ => Value::Null,
        };
        let partition = |partition: &hoga_log::lag::PartitionLag| {
            let mut value = report_json(&partition.report);
            value["partition"] = json!(partition.partition);
            value["end"] = json!(partition.end);
            value["consumed"] = json!(partition.consumed);
            value
        };
        value["partitions"] = group.partitions.iter().map(partition).collect();
        value
    }

    fn latency_metrics(&self, out: &mut String, groups: &[GroupLag]) {
        let mut seen: Vec<&str> = groups.iter().map(|group| &*group.group).collect();
        seen.dedup();
        let known: Vec<(&str, LatencyReport)> =
            seen.into_iter().filter_map(|group| Some((group, (self.latency)(group)?))).collect();
        if known.is_empty() {
            return;
        }
        out.push_str(
            "# HELP hoga_consumer_latency_seconds From a command's time to its result in the group's read model; quantiles of the last minute.\n\
             # TYPE hoga_consumer_latency_seconds summary\n",
        );
        for (group, latency) in known {
            for (quantile, value) in [("0.5", latency.p50), ("0.99", latency.p99), ("1", latency.max)] {
                let value = value.as_secs_f64();
                let _ = writeln!(
                    out,
                    "hoga_consumer_latency_seconds{{group=\"{group}\",quantile=\"{quantile}\"}} {value}"
                );
            }
            let (sum, count) = (latency.sum.as_secs_f64(), latency.total);
            let _ = writeln!(out, "hoga_consumer_latency_seconds_sum{{group=\"{group}\"}} {sum}");
            let _ = writeln!(out, "hoga_consumer_latency_seconds_count{{group=\"{group}\"}} {count}");
        }
    }
}

/// How long the groups of these read models take, for [`Pipeline::latency`].
pub fn latency_of_stores(stores: &Arc<Stores>) -> LatencyOf {
    let stores: Weak<Stores> = Arc::downgrade(stores);
    Arc::new(move |name| {
        let group = Group::ALL.into_iter().find(|group| group.as_str() == name)?;
        Some(stores.upgrade()?.latency(group))
    })
}

/// Where the groups of these read models are, for [`hoga_log::lag::LagMonitor`]: newer than what they commit to the log now and then.
pub fn observe_stores(stores: &Arc<Stores>) -> Observe {
    let stores: Weak<Stores> = Arc::downgrade(stores);
    Box::new(move |out| {
        let Some(stores) = stores.upgrade() else { return };
        for position in stores.positions() {
            let (group, topic) = (Arc::from(position.group.as_str()), Arc::from(position.group.topic()));
            out.extend(position.places.iter().map(|place| Observed {
                place: Place {
                    group: Arc::clone(&group),
                    topic: Arc::clone(&topic),
                    partition: place.partition,
                },
                consumed: place.next_offset,
            }));
        }
    })
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

fn report_json(report: &LagReport) -> Value {
    let (drain, after) = match report.verdict {
        Verdict::CatchingUp { drain } => (Some(drain), false),
        Verdict::Surge { drain, after } => (Some(drain), after),
        _ => (None, false),
    };
    json!({
        "lag_records": report.records,
        "age_s": seconds(report.age),
        "behind_s": report.behind.as_secs_f64(),
        "production_per_s": report.production,
        "consumption_per_s": report.consumption,
        "usual_production_per_s": report.usual_production,
        "usual_consumption_per_s": report.usual_consumption,
        "trend": report.trend.as_str(),
        "drain_s": seconds(report.drain),
        "drain_if_stopped_s": seconds(report.drain_alone),
        "verdict": report.verdict.as_str(),
        "verdict_text": report.verdict.to_string(),
        "verdict_drain_s": seconds(drain),
        "verdict_after_surge": after,
        "lost": report.lost,
    })
}

fn relay_json(status: &RelayStatus) -> Value {
    let places: Vec<Value> = status
        .places
        .iter()
        .map(|place| {
            json!({
                "topic": &*place.topic,
                "partition": place.partition,
                "end": place.end,
                "relayed": place.relayed,
                "confirmed": place.confirmed,
                "lag_records": place.lag,
                "age_s": place.age.as_secs_f64(),
                "skipped": place.skipped,
            })
        })
        .collect();
    json!({
        "state": status.state.as_str(),
        "fault": status.state.fault().map(ToString::to_string),
        "lag_records": status.lag(),
        "age_s": status.age().as_secs_f64(),
        "messages": status.counters.messages,
        "reconnects": status.counters.reconnects,
        "verified": status.counters.verified,
        "partitions": places,
    })
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A time that never comes is infinite.
fn ever(time: Option<Duration>) -> f64 {
    seconds(time).unwrap_or(f64::INFINITY)
}

fn lag_metrics(out: &mut String, groups: &[GroupLag]) {
    type Of = fn(&LagReport) -> Option<f64>;
    let families: [(&str, &str, Of); 8] = [
        ("hoga_consumer_lag_records", "Messages not yet consumed.", |r| Some(r.records as f64)),
        (
            "hoga_consumer_lag_age_seconds",
            "Age of the oldest message not yet consumed, where it is known.",
            |r| seconds(r.age),
        ),
        (
            "hoga_consumer_lag_behind_seconds",
            "Time since the partition's end passed the group's place; at least this.",
            |r| Some(r.behind.as_secs_f64()),
        ),
        ("hoga_consumer_production_rate", "Messages appended a second, over ten seconds.", |r| {
            Some(r.production)
        }),
        ("hoga_consumer_consumption_rate", "Messages consumed a second, over ten seconds.", |r| {
            Some(r.consumption)
        }),
        (
            "hoga_consumer_drain_seconds",
            "Lag divided by (consumption - production); +Inf where it does not drain.",
            |r| Some(ever(r.drain)),
        ),
        (
            "hoga_consumer_drain_if_stopped_seconds",
            "Lag divided by consumption, as if production stopped; +Inf without consumption.",
            |r| Some(ever(r.drain_alone)),
        ),
        ("hoga_consumer_lost_records", "Messages that retention took before the group read them.", |r| {
            Some(r.lost as f64)
        }),
    ];
    for (name, help, of) in families {
        head(out, name, "gauge", help);
        for group in groups {
            for partition in &group.partitions {
                let Some(value) = of(&partition.report) else { continue };
                // As the format spells it.
                let value = if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() };
                let (name_of, topic, number) = (&group.group, &group.topic, partition.partition);
                let _ = writeln!(
                    out,
                    "{name}{{group=\"{name_of}\",topic=\"{topic}\",partition=\"{number}\"}} {value}"
                );
            }
        }
    }
    let name = "hoga_consumer_lag_verdict";
    head(out, name, "gauge", "1 for what to think of the group's lag, 0 for the other words.");
    for group in groups {
        for word in Verdict::ALL {
            let holds = u8::from(group.total.verdict.as_str() == word);
            let (name_of, topic) = (&group.group, &group.topic);
            let _ =
                writeln!(out, "{name}{{group=\"{name_of}\",topic=\"{topic}\",verdict=\"{word}\"}} {holds}");
        }
    }
}

fn relay_metrics(out: &mut String, status: &RelayStatus) {
    head(out, "hoga_relay_state", "gauge", "1 for what the relay is doing, 0 for the other words.");
    for word in RelayState::ALL {
        let holds = u8::from(status.state.as_str() == word);
        let _ = writeln!(out, "hoga_relay_state{{state=\"{word}\"}} {holds}");
    }
    head(out, "hoga_relay_lag_records", "gauge", "Messages that the other side has not acknowledged.");
    for place in &status.places {
        let (topic, partition, lag) = (&place.topic, place.partition, place.lag);
        let _ = writeln!(out, "hoga_relay_lag_records{{topic=\"{topic}\",partition=\"{partition}\"}} {lag}");
    }
    head(out, "hoga_relay_lag_age_seconds", "gauge", "Age of the oldest of them.");
    for place in &status.places {
        let (topic, partition, age) = (&place.topic, place.partition, place.age.as_secs_f64());
        let _ =
            writeln!(out, "hoga_relay_lag_age_seconds{{topic=\"{topic}\",partition=\"{partition}\"}} {age}");
    }
    let c = &status.counters;
    for (name, help, value) in [
        ("hoga_relay_messages_total", "Messages handed to the other side.", c.messages),
        (
            "hoga_relay_reconnects_total",
            "Times that the log on the other side was opened again.",
            c.reconnects,
        ),
        ("hoga_relay_verified_total", "Partitions whose last message was compared.", c.verified),
        ("hoga_relay_confirms_total", "Times that acknowledgements were waited for.", c.confirms),
        ("hoga_relay_foreign_total", "Times that a foreign history was met.", c.foreign),
    ] {
        head(out, name, "counter", help);
        let _ = writeln!(out, "{name} {value}");
    }
}

#[cfg(test)]
mod tests {
    use hoga_log::event_log::{EventLog, MemoryLog, TopicSpec};
    use hoga_log::lag::{LagMonitor, LagOptions};
    use hoga_log::relay::{Relay, RelayOptions, Remote};

    use super::*;

    #[test]
    fn the_relay_is_in_table_json_and_metrics() {
        let local = Arc::new(MemoryLog::new());
        local.create_topic(&TopicSpec::delete("t", 1, u64::MAX)).unwrap();
        let connect = Box::new(|| Ok(Remote::open_ended(Arc::new(MemoryLog::new()))));
        let relay = Relay::start(local.clone(), connect, &["t"], RelayOptions::new(|_| None)).unwrap();
        let monitor =
            LagMonitor::start(vec![local], Box::new(|_| {}), LagOptions::default(), Duration::from_millis(1))
                .unwrap();
        let pipeline = Pipeline { relay: Some(relay.watch()), ..Pipeline::new(monitor.watch()) };
        assert!(monitor.watch().wait_round(Duration::from_secs(20)));
        let mut metrics = String::new();
        pipeline.metrics(&mut metrics);
        let lines = [
            "hoga_relay_lag_records{topic=\"t\",partition=\"0\"} 0",
            "hoga_consumer_lag_records{group=\"relay\",topic=\"t\",partition=\"0\"} 0",
            "hoga_consumer_lag_verdict{group=\"relay\",topic=\"t\",verdict=\"keeping_up\"} 1",
        ];
        for line in lines {
            assert!(metrics.contains(line), "{metrics}");
        }
        let json = pipeline.json();
        assert_eq!(json["groups"][0]["group"], "relay", "{json}");
        assert_eq!(json["relay"]["lag_records"], 0, "{json}");
        let table = pipeline.table();
        assert!(table.contains("keeping up") && table.contains("relay: "), "{table}");
    }
}
