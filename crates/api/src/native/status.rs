//! Health, positions and metrics.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use hoga_engine::Space;
use hoga_store::GroupPosition;
use serde_json::{Map, Value, json};

use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::routes;

/// `GET /api/v1/health`: 503 once a fault has stopped the engine.
pub(super) fn health(call: &Call<'_>) -> Reply {
    match call.peer.app.engine().fault() {
        None => super::json(&json!({ "status": "ok" })),
        Some(fault) => {
            super::json(&json!({ "status": "fault", "fault": fault.to_string() })).with_status(503)
        }
    }
}

/// Where the groups stand. Off the network threads: where they run elsewhere, the database is asked.
async fn positions(call: &Call<'_>) -> Result<Vec<GroupPosition>, ApiError> {
    let stores = call.peer.app.stores().clone();
    super::blocking(move || stores.positions()).await
}

/// `GET /api/v1/ready`: whether orders are taken and no read model of this process has stopped.
pub(super) async fn ready(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let groups = positions(call).await?;
    let stopped: Vec<&str> = groups.iter().filter(|g| g.fault.is_some()).map(|g| g.group.as_str()).collect();
    let ready = app.engine().running() && stopped.is_empty();
    let body = json!({ "ready": ready, "engine": app.engine().running(), "stopped": stopped });
    Ok(super::json(&body).with_status(if ready { 200 } else { 503 }))
}

/// `GET /api/v1/admin/status`.
pub(super) async fn status(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let p = app.engine().positions();
    let groups: Map<String, Value> = positions(call)
        .await?
        .iter()
        .map(|g| {
            let value = json!({
                "running": g.running,
                "applied": g.applied.0,
                "lag_records": g.lag,
                "lag_s": g.lag_time.as_secs_f64(),
                "produced_per_s": g.produced_per_second,
                "consumed_per_s": g.consumed_per_second,
                "drain_s": g.drain.map(|d| d.as_secs_f64()),
                "messages": g.messages,
                "dead_letters": g.dead_letters,
                "fault": g.fault.as_ref().map(|f| f.to_string()),
            });
            (g.group.as_str().to_owned(), value)
        })
        .collect();
    Ok(super::json(&json!({
        "engine": {
            "received": p.received.seq().0,
            "matched": p.matched.seq().0,
            "durable": p.durable.seq().0,
            "acked": p.acked.seq().0,
            "applied": p.applied.seq().0,
            "running": app.engine().running(),
        },
        "groups": groups,
        "relay": app.pipeline().relay_json(),
        "connections": app.connections().open.load(Ordering::Relaxed),
        "stream_clients": app.hub().client_count(),
    })))
}

/// `GET /api/v1/pipeline`.
pub(super) fn pipeline(call: &Call<'_>) -> Reply {
    super::json(&call.peer.app.pipeline().json())
}

/// `GET /api/v1/admin/lag`: the same, or the table of `hoga lag`.
pub(super) fn lag(call: &Call<'_>) -> Result<Reply, ApiError> {
    match call.params.optional("format")? {
        None | Some("json") => Ok(pipeline(call)),
        Some("table") => Ok(Reply::text("text/plain; charset=utf-8", call.peer.app.pipeline().table())),
        Some(_) => Err(ApiError::not_valid("format")),
    }
}

/// `GET /openapi.json`.
pub(super) fn open_api() -> Reply {
    Reply::text("application/json", routes::open_api(env!("CARGO_PKG_VERSION")))
}

/// One family of metrics.
fn family(out: &mut String, name: &str, kind: &str, help: &str, samples: &[(String, f64)]) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

/// `GET /metrics`.
pub(super) async fn metrics(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let mut out = String::with_capacity(8192);
    engine(&mut out, call);
    groups(&mut out, &positions(call).await?);
    call.peer.app.pipeline().metrics(&mut out);
    if let Some(plant) = call.peer.app.plant() {
        plant.metrics(&mut out);
    }
    let c = app.connections();
    let n = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed) as f64;
    let plain = |value: f64| vec![(String::new(), value)];
    family(
        &mut out,
        "hoga_connections_open",
        "gauge",
        "Open connections.",
        &plain(c.open.load(Ordering::Relaxed) as f64),
    );
    family(&mut out, "hoga_connections_total", "counter", "Connections taken.", &plain(n(&c.accepted)));
    let refused = [
        ("{why=\"total\"}".to_owned(), n(&c.refused_total)),
        ("{why=\"address\"}".to_owned(), n(&c.refused_address)),
        ("{why=\"silent\"}".to_owned(), n(&c.cut_silent)),
    ];
    family(
        &mut out,
        "hoga_connections_refused_total",
        "counter",
        "Connections closed at once by a bound, and silent ones that gave way to a new one.",
        &refused,
    );
    let h = app.hub().counters();
    for (name, help, value) in [
        ("hoga_hub_events_total", "Events folded by the market-data hub.", &h.events),
        ("hoga_hub_flushes_total", "Times that the hub told its subscribers.", &h.flushes),
        ("hoga_hub_messages_total", "Messages encoded, once per topic and form.", &h.encoded),
        ("hoga_hub_deliveries_total", "Messages put into clients' queues.", &h.deliveries),
    ] {
        family(&mut out, name, "counter", help, &plain(n(value)));
    }
    family(
        &mut out,
        "hoga_hub_fanout_seconds_total",
        "counter",
        "Time spent telling subscribers.",
        &plain(n(&h.fanout_micros) / 1e6),
    );
    family(
        &mut out,
        "hoga_stream_clients",
        "gauge",
        "Clients of market streams.",
        &plain(app.hub().client_count() as f64),
    );
    app.metrics.write(&mut out);
    Ok(Reply::text("text/plain; version=0.0.4", out))
}

fn engine(out: &mut String, call: &Call<'_>) {
    let m = call.peer.app.engine().metrics();
    let p = m.positions;
    let labelled = |key: &str, pairs: &[(&str, u64)]| -> Vec<(String, f64)> {
        pairs.iter().map(|(label, value)| (format!("{{{key}=\"{label}\"}}"), *value as f64)).collect()
    };
    let positions = [
        ("received", p.received.seq().0),
        ("matched", p.matched.seq().0),
        ("durable", p.durable.seq().0),
        ("acked", p.acked.seq().0),
        ("applied", p.applied.seq().0),
    ];
    family(
        out,
        "hoga_engine_position",
        "counter",
        "Last command past a stage.",
        &labelled("stage", &positions),
    );
    let depths = [
        ("inbound", m.inbound_depth),
        ("journal", m.journal_depth),
        ("gate", m.gate_depth),
        ("shadow", m.shadow_depth),
    ];
    family(out, "hoga_engine_queue", "gauge", "Commands waiting for a stage.", &labelled("stage", &depths));
    for (name, help, value) in [
        ("hoga_engine_commands_total", "Commands taken.", m.commands),
        ("hoga_engine_rejected_total", "Commands refused by the rules.", m.rejected),
        ("hoga_engine_busy_total", "Commands not taken because the ring was full.", m.busy),
        ("hoga_engine_queries_total", "Queries answered.", m.queries),
        ("hoga_engine_queries_busy_total", "Queries not taken because their queue was full.", m.busy_queries),
        ("hoga_engine_batches_total", "Batches of the matcher.", m.batches),
        ("hoga_journal_syncs_total", "Syncs of the journal.", m.syncs),
        ("hoga_journal_bytes_total", "Bytes of journal records.", m.journal_bytes),
        ("hoga_event_log_messages_total", "Messages appended to the event log.", m.messages),
        (
            "hoga_engine_chain_checks_total",
            "Times the replica's chain equalled the matcher's.",
            m.chain_checks,
        ),
        ("hoga_snapshots_total", "Snapshots written.", m.snapshots),
    ] {
        family(out, name, "counter", help, &[(String::new(), value as f64)]);
    }
    let _ = writeln!(
        out,
        "# HELP hoga_engine_delay_seconds Delay from hand-over to a stage.\n# TYPE hoga_engine_delay_seconds summary"
    );
    for stage in &m.stages {
        for (quantile, nanos) in [
            ("0.5", stage.p50),
            ("0.9", stage.p90),
            ("0.99", stage.p99),
            ("0.999", stage.p999),
            ("1", stage.max),
        ] {
            let _ = writeln!(
                out,
                "hoga_engine_delay_seconds{{stage=\"{}\",quantile=\"{quantile}\"}} {}",
                stage.stage,
                nanos as f64 / 1e9
            );
        }
        let _ = writeln!(
            out,
            "hoga_engine_delay_seconds_sum{{stage=\"{}\"}} {}",
            stage.stage,
            stage.sum as f64 / 1e9
        );
        let _ = writeln!(out, "hoga_engine_delay_seconds_count{{stage=\"{}\"}} {}", stage.stage, stage.count);
    }
}

fn groups(out: &mut String, groups: &[GroupPosition]) {
    let of = |value: &dyn Fn(&GroupPosition) -> f64| -> Vec<(String, f64)> {
        groups.iter().map(|g| (format!("{{group=\"{}\"}}", g.group.as_str()), value(g))).collect()
    };
    for (name, kind, help, samples) in [
        (
            "hoga_consumer_running",
            "gauge",
            "Whether the group runs.",
            of(&|g| f64::from(u8::from(g.running))),
        ),
        ("hoga_consumer_messages_total", "counter", "Messages consumed.", of(&|g| g.messages as f64)),
        (
            "hoga_consumer_dead_letters_total",
            "counter",
            "Messages that could not be used.",
            of(&|g| g.dead_letters as f64),
        ),
    ] {
        family(out, name, kind, help, &samples);
    }
}
