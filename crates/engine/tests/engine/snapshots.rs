//! Snapshots: taken while the market runs, used at the start, checked, and never trusted when damaged.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hoga_core::ids::Seq;
use hoga_engine::{Engine, EngineConfig, EngineError, Space};
use hoga_log::event_log::{EventLog, MemoryLog};
use hoga_log::journal;
use hoga_log::storage::{SimStorage, Storage};

use crate::support::{Replies, config, digest, flow, settle, setup, start, submit_all, topics, wait_until};

fn memory() -> Arc<dyn EventLog> {
    Arc::new(MemoryLog::new())
}

fn snapshots(disk: &SimStorage, config: &EngineConfig) -> Vec<PathBuf> {
    let dir = config.snapshot_dir();
    disk.list(&dir)
        .unwrap()
        .into_iter()
        .filter(|name| name.ends_with(".snap"))
        .map(|name| dir.join(name))
        .collect()
}

/// Runs commands in pieces, with a snapshot after each; returns the digest at the end and how many commands there were.
fn run_with_snapshots(
    disk: &SimStorage,
    config: &EngineConfig,
    log: &Arc<dyn EventLog>,
    pieces: u64,
) -> (u128, u64) {
    let mut config = config.clone();
    config.snapshot_every = 1;
    let engine = start(disk, &config, log);
    let (handle, replies) = (engine.handle(), Replies::new());
    let mut count = 0;
    for piece in 0..pieces {
        let mut bodies = if piece == 0 { setup() } else { Vec::new() };
        bodies.extend(flow(piece, 300));
        submit_all(&handle, &replies, 0, &bodies);
        count += bodies.len();
        replies.wait(count);
        settle(&handle, Seq(count as u64));
        let snapshots = handle.metrics().snapshots;
        // One may have been begun before the piece was whole: so at least two more, the last one of a later state.
        submit_all(&handle, &replies, 0, &flow(100 + piece, 1));
        count += 1;
        replies.wait(count);
        wait_until("a snapshot", || handle.metrics().snapshots > snapshots);
    }
    let digest = digest(&handle);
    engine.shutdown().unwrap();
    (digest, count as u64)
}

#[test]
fn snapshot_and_tail_equal_the_full_replay() {
    let (disk, log) = (SimStorage::new(), memory());
    let mut config = config();
    config.snapshots_kept = 1_000; // keep all, and with them the whole journal
    let (expected, count) = run_with_snapshots(&disk, &config, &log, 4);
    let whole = topics(&*log);
    let mut found = snapshots(&disk, &config);
    assert!(found.len() >= 4, "{found:?}");
    // From the newest to the oldest, and at last from none.
    loop {
        let engine = start(&disk, &config, &log);
        assert_eq!(engine.started().digest, expected);
        assert_eq!(engine.started().snapshot.0 + engine.started().replayed, count);
        assert_eq!(engine.started().snapshot == Seq(0), found.is_empty());
        engine.shutdown().unwrap();
        assert_eq!(topics(&*log), whole);
        let Some(newest) = found.pop() else { break };
        disk.remove(&newest).unwrap();
    }
}

#[test]
fn a_damaged_snapshot_is_set_aside_and_an_older_one_is_used() {
    let (disk, log) = (SimStorage::new(), memory());
    let config = config();
    let (expected, count) = run_with_snapshots(&disk, &config, &log, 4);
    let found = snapshots(&disk, &config);
    assert_eq!(found.len(), 2, "two are kept: {found:?}");
    let good = disk.bytes(&found[1]).unwrap();
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 6] = [
        ("a flipped bit in the middle", |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }),
        ("a flipped bit in the header", |bytes| bytes[20] ^= 0x80),
        ("a flipped bit in the checksum", |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("cut off", |bytes| bytes.truncate(bytes.len() - 1)),
        ("empty", Vec::clear),
        ("longer", |bytes| bytes.push(0)),
    ];
    for (what, damage) in damages {
        let mut bytes = good.clone();
        damage(&mut bytes);
        disk.set_bytes(&found[1], bytes);
        let engine = start(&disk, &config, &log);
        let started = engine.started();
        assert_eq!(started.digest, expected, "{what}");
        assert!(started.replayed > 0 && started.snapshot > Seq(0), "{what}: {started:?}");
        assert_eq!(started.snapshot.0 + started.replayed, count);
        engine.shutdown().unwrap();
        assert_eq!(snapshots(&disk, &config), found[..1], "{what}: set aside");
        disk.set_bytes(&found[1], good.clone());
    }
    // Both damaged, and the journal no longer begins at the first command.
    for path in &found {
        disk.set_bytes(path, b"HOGASNAP".to_vec());
    }
    let error = Engine::start_on(disk.clone(), config.clone(), log.clone(), Vec::new()).err().unwrap();
    let kept_all = matches!(journal::first(&disk, &config.journal_dir()), Ok(Some(Seq(1))));
    assert!(!kept_all, "this test needs a journal that lost its beginning");
    assert!(matches!(error, EngineError::NoStart { .. }), "{error}");
}

#[test]
fn the_journal_is_kept_back_to_the_oldest_snapshot_and_to_what_others_need() {
    for needed in [u64::MAX, 1, 600] {
        let (disk, log) = (SimStorage::new(), memory());
        let floor = Arc::new(AtomicU64::new(needed));
        let mut config = config();
        config.segment_bytes = 16 << 10;
        config.retain_floor = Some(Arc::new(move || Seq(floor.load(Ordering::SeqCst))));
        run_with_snapshots(&disk, &config, &log, 4);
        let first = journal::first(&disk, &config.journal_dir()).unwrap().unwrap();
        let oldest = snapshots(&disk, &config)[0].to_string_lossy().into_owned();
        let oldest: u64 = oldest.trim_end_matches(".snap").rsplit('-').next().unwrap().parse().unwrap();
        assert!(first.0 <= oldest + 1, "the journal goes on from the oldest snapshot");
        assert!(first.0 <= needed, "somebody still needs {needed}, the journal begins at {first}");
        assert_eq!(first.0 == 1, needed == 1, "what nobody needs is removed: the journal begins at {first}");
    }
}

#[test]
fn a_journal_that_ends_before_the_snapshot_is_refused() {
    let (disk, log) = (SimStorage::new(), memory());
    let mut config = config();
    config.final_snapshot = true;
    let engine = start(&disk, &config, &log);
    let replies = Replies::new();
    submit_all(&engine.handle(), &replies, 0, &setup());
    replies.wait(setup().len());
    engine.shutdown().unwrap();
    let dir = config.journal_dir();
    for name in disk.list(&dir).unwrap() {
        disk.remove(&dir.join(name)).unwrap();
    }
    let error = Engine::start_on(disk.clone(), config, memory(), Vec::new()).err().unwrap();
    assert!(matches!(error, EngineError::JournalBehind { journal: Seq(0), .. }), "{error}");
}

#[test]
fn a_topic_that_lost_more_than_the_newest_snapshot_allows_is_filled_from_an_older_one() {
    let (disk, log) = (SimStorage::new(), memory());
    let mut config = config();
    config.snapshots_kept = 1_000;
    let (expected, count) = run_with_snapshots(&disk, &config, &log, 3);
    let whole = topics(&*log);
    // Empty topics: only a replay from the first command fills them.
    let empty = memory();
    let engine = start(&disk, &config, &empty);
    assert_eq!((engine.started().snapshot, engine.started().replayed), (Seq(0), count));
    assert_eq!(engine.started().digest, expected);
    assert!(engine.handle().positions().applied.covers(Seq(count)));
    engine.shutdown().unwrap();
    assert_eq!(topics(&*empty), whole);
    // And where the journal has lost its beginning, the hole is told.
    let (disk, log) = (SimStorage::new(), memory());
    config.snapshots_kept = 1;
    config.segment_bytes = 16 << 10;
    run_with_snapshots(&disk, &config, &log, 3);
    let error = Engine::start_on(disk, config, memory(), Vec::new()).err().unwrap();
    assert!(matches!(error, EngineError::TopicHole { tail: 0, .. }), "{error}");
}

#[test]
fn a_snapshot_can_be_asked_for() {
    let (disk, log) = (SimStorage::new(), memory());
    let config = config();
    let engine = start(&disk, &config, &log);
    let (handle, replies) = (engine.handle(), Replies::new());
    submit_all(&handle, &replies, 0, &setup());
    replies.wait(setup().len());
    settle(&handle, Seq(setup().len() as u64));
    handle.request_snapshot();
    wait_until("a snapshot", || handle.metrics().snapshots == 1);
    assert_eq!(handle.metrics().snapshot_seq, setup().len() as u64);
    assert!(handle.metrics().snapshot_bytes > 0);
    let before = digest(&handle);
    engine.shutdown().unwrap();
    let engine = start(&disk, &config, &log);
    assert_eq!((engine.started().replayed, engine.started().digest), (0, before));
    engine.shutdown().unwrap();
}
