//! The power is cut at every storage operation of a run, and again during the recovery. Afterwards everything acknowledged is there, the
//! state is exactly that of the commands that are there, and no topic has a hole, a repeat, or another event than the journal gives.

use std::sync::Arc;

use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::{Event, EventRecord};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{Seq, Timestamp};
use hoga_engine::{Engine, EngineConfig, EngineError, LIFECYCLE, PROJECTION, Space, TRADES};
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog};
use hoga_log::storage::SimStorage;

use crate::support::{
    Got, HandClock, Random, Replies, config, digest, flow, setup, submit_all, topics, wait_until,
};

const NOW: i64 = 1_700_000_000_000_000;

/// What the commands give without an engine.
struct Model {
    bodies: Vec<Body>,
    /// The digest after so many commands.
    digests: Vec<u128>,
    events: Vec<EventRecord>,
}

fn model() -> Model {
    let mut bodies = setup();
    bodies.extend(flow(42, 150));
    let (mut exchange, mut events) = (Exchange::new(), Vec::new());
    let mut digests = vec![exchange.digest()];
    for (index, body) in bodies.iter().enumerate() {
        let (seq, time) = (Seq(index as u64 + 1), Timestamp(NOW));
        let command = Command { seq, time, rules: RULES_VERSION, deadline: Timestamp(0), body: *body };
        let _ = exchange.apply(&command, &mut events);
        digests.push(exchange.digest());
    }
    Model { bodies, digests, events }
}

impl Model {
    /// The events of a topic after so many commands.
    fn topic(&self, name: &str, upto: Seq) -> Vec<EventRecord> {
        let events = self.events.iter().filter(|event| event.seq <= upto);
        let wanted = |event: &&EventRecord| match (&event.event, name) {
            (Event::Level(_), _) => false,
            (Event::Trade(_), _) => name == TRADES,
            (Event::Order(_), PROJECTION) => true,
            _ => name == LIFECYCLE,
        };
        events.filter(wanted).copied().collect()
    }
}

fn open(disk: &SimStorage, config: &EngineConfig) -> Result<(Engine, Arc<dyn EventLog>), EngineError> {
    let topics = EmbeddedConfig { segment_bytes: 16 << 10, ..EmbeddedConfig::default() };
    let log: Arc<dyn EventLog> = Arc::new(EmbeddedLog::open_on(disk.clone(), "/topics", topics)?);
    Ok((Engine::start_on(disk.clone(), config.clone(), log.clone(), Vec::new())?, log))
}

/// Runs until the disk stops or all commands are answered; returns the last acknowledged command.
fn run(disk: &SimStorage, config: &EngineConfig, model: &Model, acked_before: Seq) -> Seq {
    let Ok((engine, _log)) = open(disk, config) else { return acked_before };
    let (handle, replies) = (engine.handle(), Replies::new());
    let from = handle.positions().applied.seq().0 as usize;
    let mut random = Random(from as u64);
    let (mut submitted, mut next) = (0, from);
    while next < model.bodies.len() {
        // Sometimes one command to a sync, sometimes several.
        let until = (next + 1 + random.below(4) as usize).min(model.bodies.len());
        let taken = submit_all(&handle, &replies, next as u64, &model.bodies[next..until]);
        submitted += taken;
        let stopped = replies.wait(submitted).iter().any(|(_, got)| matches!(got, Got::Lost(_)));
        if stopped || taken < until - next {
            break;
        }
        next = until;
    }
    let acked = replies.last_acked().max(acked_before);
    if next == model.bodies.len() {
        wait_until("published", || handle.positions().applied.covers(acked) || handle.fault().is_some());
    }
    let _ = engine.shutdown();
    acked
}

/// Starts once more and compares. The error says what is wrong.
fn check(disk: &SimStorage, config: &EngineConfig, model: &Model, acked: Seq) -> Result<(), String> {
    let (engine, log) = open(disk, config).map_err(|error| format!("does not start: {error}"))?;
    let recovered = engine.handle().positions().applied.seq();
    if recovered < acked {
        return Err(format!("command {acked} was acknowledged, the journal has {recovered}"));
    }
    if digest(&engine.handle()) != model.digests[recovered.0 as usize] {
        return Err(format!("the state after {recovered} is another one"));
    }
    for ((name, _), events) in topics(&*log) {
        if events != model.topic(&name, recovered) {
            return Err(format!("topic {name} after {recovered} has other events"));
        }
    }
    engine.shutdown().map_err(|error| error.to_string())
}

fn settings() -> EngineConfig {
    let mut config = config();
    config.clock = HandClock::at(NOW);
    config.segment_bytes = 16 << 10;
    config.snapshot_every = 15;
    // Compaction would leave holes on purpose; with every snapshot kept the whole journal stays, and nothing is compacted that soon.
    config.snapshots_kept = 2;
    config
}

/// How many operations a run takes.
fn operations(config: &EngineConfig, model: &Model) -> u64 {
    let disk = SimStorage::new();
    assert_eq!(run(&disk, config, model, Seq(0)), Seq(model.bodies.len() as u64));
    check(&disk, config, model, Seq(model.bodies.len() as u64)).unwrap();
    disk.operations()
}

#[test]
fn a_power_cut_at_every_operation_loses_nothing_acknowledged() {
    let (model, config) = (model(), settings());
    let total = operations(&config, &model);
    assert!(total > 200, "{total} operations are too few to mean anything");
    for stop in 0..=total {
        let disk = SimStorage::new();
        disk.stop_at(stop);
        let acked = run(&disk, &config, &model, Seq(0));
        disk.crash(stop);
        // The second cut comes during the recovery, or soon after it.
        let second = Random(stop).below(60);
        disk.stop_at(disk.operations() + second);
        let acked = run(&disk, &config, &model, acked);
        disk.crash(stop + 1);
        if let Err(error) = check(&disk, &config, &model, acked) {
            panic!("cut at operation {stop} of {total}, then {second} later: {error}");
        }
    }
}

#[test]
fn a_disk_that_lies_about_syncs_is_caught() {
    let (model, config) = (model(), settings());
    let total = operations(&config, &model);
    type Lie = fn(&SimStorage);
    let lies: [(&str, Lie); 2] =
        [("files", |disk| disk.lie_about_files()), ("folders", |disk| disk.lie_about_dirs())];
    for (what, lie) in lies {
        let caught = (0..total).step_by(9).any(|stop| {
            let disk = SimStorage::new();
            lie(&disk);
            disk.stop_at(stop);
            let acked = run(&disk, &config, &model, Seq(0));
            disk.crash(stop);
            check(&disk, &config, &model, acked).is_err()
        });
        assert!(
            caught,
            "without real syncs of {what} something acknowledged must be missing after some power cut"
        );
    }
}
