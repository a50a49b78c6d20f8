//! A restart gives the same state, the same events under the same numbers, and refuses what does not fit together.

use std::sync::Arc;

use hoga_core::event::EventRecord;
use hoga_core::ids::Seq;
use hoga_engine::{Engine, EngineConfig, EngineError, LIFECYCLE, PROJECTION, Partitions, Space, TRADES};
use hoga_log::event_log::{EventLog, MemoryLog, Message};
use hoga_log::storage::{Disk, SimStorage, Storage};

use crate::support::{Random, Replies, config, digest, flow, settle, setup, start, submit_all, topics};

fn memory() -> Arc<dyn EventLog> {
    Arc::new(MemoryLog::new())
}

fn start_error<S: Storage>(storage: &S, config: &EngineConfig, log: &Arc<dyn EventLog>) -> EngineError {
    match Engine::start_on(storage.clone(), config.clone(), log.clone(), Vec::new()) {
        Ok(engine) => panic!("started at {:?}", engine.handle().positions()),
        Err(error) => error,
    }
}

/// A copy of a log's topics in which each partition has only its first messages, as `keep` says of its length.
fn cut(log: &dyn EventLog, mut keep: impl FnMut(&str, usize) -> usize) -> Arc<dyn EventLog> {
    let copy = MemoryLog::new();
    for spec in log.topics() {
        copy.create_topic(&spec).unwrap();
        for partition in 0..spec.partitions {
            let mut messages = Vec::new();
            let mut offset = 0;
            let end = log.end_offset(&spec.name, partition).unwrap();
            while offset < end {
                offset = log.read(&spec.name, partition, offset, usize::MAX, &mut messages).unwrap();
            }
            messages.truncate(keep(&spec.name, messages.len()));
            for message in &messages {
                let message =
                    Message { key: &message.key, value: message.value.as_deref(), time: message.time };
                copy.append(&spec.name, &[message]).unwrap();
            }
        }
    }
    Arc::new(copy)
}

#[test]
fn a_restart_gives_the_same_state_and_goes_on_with_the_next_numbers() {
    for final_snapshot in [false, true] {
        let (disk, log) = (SimStorage::new(), memory());
        let mut config = config();
        config.final_snapshot = final_snapshot;
        config.partitions = Partitions { trades: 2, lifecycle: 3, projection: 4 };
        let mut expected = 0;
        let mut before = None;
        for round in 0..4 {
            let engine = start(&disk, &config, &log);
            let handle = engine.handle();
            assert_eq!(engine.started().replayed, if final_snapshot { 0 } else { expected });
            assert_eq!(engine.started().republished, 0);
            if let Some(before) = before {
                assert_eq!(engine.started().digest, before);
                assert_eq!(digest(&handle), before);
            }
            let mut bodies = if round == 0 { setup() } else { Vec::new() };
            bodies.extend(flow(round, 1_200));
            let replies = Replies::new();
            submit_all(&handle, &replies, 0, &bodies);
            replies.wait(bodies.len());
            expected += bodies.len() as u64;
            before = Some(digest(&handle));
            assert_eq!(handle.positions().applied.seq(), Seq(expected));
            engine.shutdown().unwrap();
            topics(&*log);
        }
        // The same commands without any restart give the same topics.
        let (other_disk, other_log) = (SimStorage::new(), memory());
        let engine = start(&other_disk, &config, &other_log);
        let replies = Replies::new();
        let mut bodies = setup();
        (0..4).for_each(|round| bodies.extend(flow(round, 1_200)));
        submit_all(&engine.handle(), &replies, 0, &bodies);
        replies.wait(bodies.len());
        engine.shutdown().unwrap();
        let timeless = |log: &dyn EventLog| -> Vec<Vec<(Seq, u32)>> {
            let places =
                |events: &Vec<EventRecord>| events.iter().map(|event| (event.seq, event.index)).collect();
            topics(log).values().map(places).collect()
        };
        assert_eq!(timeless(&*log), timeless(&*other_log));
    }
}

#[test]
fn what_a_topic_lacks_is_published_again_and_nothing_twice() {
    let (disk, log) = (SimStorage::new(), memory());
    let mut config = config();
    config.partitions = Partitions { trades: 1, lifecycle: 2, projection: 3 };
    let engine = start(&disk, &config, &log);
    let replies = Replies::new();
    let mut bodies = setup();
    bodies.extend(flow(3, 800));
    submit_all(&engine.handle(), &replies, 0, &bodies);
    replies.wait(bodies.len());
    engine.shutdown().unwrap();
    let whole = topics(&*log);
    let mut random = Random(5);
    for round in 0..60 {
        // Round 0 has nothing, round 1 everything, the others end anywhere, each partition for itself.
        let mut lacking = 0;
        let cut_log = cut(&*log, |_, len| {
            let keep = match round {
                0 => 0,
                1 => len,
                _ => random.below(len as u64 + 1) as usize,
            };
            lacking += (len - keep) as u64;
            keep
        });
        let engine = start(&disk, &config, &cut_log);
        assert_eq!(engine.started().republished, lacking);
        engine.shutdown().unwrap();
        assert_eq!(topics(&*cut_log), whole);
    }
}

#[test]
fn topics_ahead_of_the_journal_or_of_another_journal_are_refused() {
    let (disk, log) = (SimStorage::new(), memory());
    let engine = start(&disk, &config(), &log);
    let replies = Replies::new();
    let mut bodies = setup();
    bodies.extend(flow(3, 200));
    submit_all(&engine.handle(), &replies, 0, &bodies);
    replies.wait(bodies.len());
    engine.shutdown().unwrap();

    // The topics of a longer run, the journal of a shorter one.
    let short = SimStorage::new();
    let other = memory();
    let engine = start(&short, &config(), &other);
    let replies = Replies::new();
    submit_all(&engine.handle(), &replies, 0, &setup());
    replies.wait(setup().len());
    engine.shutdown().unwrap();
    let error = start_error(&short, &config(), &log);
    assert!(matches!(error, EngineError::JournalBehind { .. } | EngineError::TopicForeign { .. }), "{error}");

    // A topic whose last message is not what the journal gives.
    let foreign = MemoryLog::new();
    for spec in log.topics() {
        foreign.create_topic(&spec).unwrap();
    }
    foreign
        .append(
            LIFECYCLE,
            &[Message { key: b"\0\0\0\0", value: Some(b"nonsense"), time: Default::default() }],
        )
        .unwrap();
    let foreign: Arc<dyn EventLog> = Arc::new(foreign);
    let error = start_error(&disk, &config(), &foreign);
    assert!(matches!(error, EngineError::TopicForeign { topic: LIFECYCLE, partition: 0, .. }), "{error}");

    // Partitions that were changed after the topic was made.
    let mut config = config();
    config.partitions.trades = 5;
    let error = start_error(&disk, &config, &log);
    assert!(matches!(error, EngineError::Log(_)), "{error}");
    assert!(error.to_string().contains(TRADES), "{error}");
}

#[test]
fn a_topic_of_other_events_with_the_same_number_is_refused() {
    let build = |seed| {
        let (disk, log) = (SimStorage::new(), memory());
        let engine = start(&disk, &config(), &log);
        let replies = Replies::new();
        let mut bodies = setup();
        bodies.extend(flow(seed, 300));
        submit_all(&engine.handle(), &replies, 0, &bodies);
        replies.wait(bodies.len());
        engine.shutdown().unwrap();
        (disk, log)
    };
    let (disk, _) = build(1);
    let (_, log) = build(2);
    // So short that the journal is not behind it.
    let log = cut(&*log, |topic, len| if topic == PROJECTION { 40 } else { len.min(20) });
    let error = start_error(&disk, &config(), &log);
    assert!(matches!(error, EngineError::TopicForeign { .. }), "{error}");
}

#[test]
fn a_folder_has_one_engine() {
    let dir = std::env::temp_dir().join(format!("hoga-engine-lock-{}", std::process::id()));
    let mut config = config();
    config.dir = dir.clone();
    let engine = start(&Disk, &config, &memory());
    let replies = Replies::new();
    submit_all(&engine.handle(), &replies, 0, &setup());
    replies.wait(setup().len());
    let error = start_error(&Disk, &config, &memory());
    assert!(matches!(error, EngineError::Log(hoga_log::LogError::Locked { .. })), "{error}");
    let before = digest(&engine.handle());
    engine.shutdown().unwrap();
    // And the real disk gives back what was put there.
    let engine = start(&Disk, &config, &memory());
    assert_eq!(engine.started().digest, before);
    engine.shutdown().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let (disk, log) = (SimStorage::new(), memory());
    type Change = fn(&mut EngineConfig);
    let changes: [(&str, Change); 5] = [
        ("ring_capacity", |config| config.ring_capacity = 1_000),
        ("ring_reserve", |config| config.ring_reserve = 4_096),
        ("snapshots_kept", |config| config.snapshots_kept = 0),
        ("query_capacity", |config| config.query_capacity = 0),
        ("partitions", |config| config.partitions.trades = 0),
    ];
    for (name, change) in changes {
        let mut config = config();
        change(&mut config);
        let error = start_error(&disk, &config, &log);
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
}

#[test]
fn a_missing_first_segment_is_refused() {
    let (disk, log) = (SimStorage::new(), memory());
    let mut config = config();
    config.segment_bytes = 16 << 10;
    let engine = start(&disk, &config, &log);
    let (handle, replies) = (engine.handle(), Replies::new());
    let mut bodies = setup();
    bodies.extend(flow(1, 1_000));
    submit_all(&handle, &replies, 0, &bodies);
    replies.wait(bodies.len());
    settle(&handle, Seq(bodies.len() as u64));
    engine.shutdown().unwrap();
    let dir = config.journal_dir();
    let names = disk.list(&dir).unwrap();
    let first = names.iter().find(|name| name.ends_with(segment_suffix(&names))).unwrap();
    disk.remove(&dir.join(first)).unwrap();
    let error = start_error(&disk, &config, &log);
    assert!(matches!(error, EngineError::NoStart { .. } | EngineError::Log(_)), "{error}");
}

/// The ending that most names in the journal's folder share: that of its segments.
fn segment_suffix(names: &[String]) -> &str {
    names.iter().filter_map(|name| name.rfind('.').map(|at| &name[at..])).next_back().unwrap_or("")
}
