//! An idle engine sleeps. A test binary of its own, since it measures the threads of this process by their names.

use std::sync::Arc;
use std::time::Duration;

use hoga_core::command::Body;
use hoga_core::ids::{Seq, Timestamp};
use hoga_engine::{Engine, EngineConfig, ReplyTo, Space};
use hoga_log::event_log::MemoryLog;
use hoga_log::storage::SimStorage;

/// Processor time in nanoseconds and number of turns on a processor of the engine's threads so far.
fn used() -> (u64, u64) {
    let (mut nanos, mut turns) = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(name) = std::fs::read_to_string(task.path().join("comm")) else { continue };
        if ["matcher", "journal", "gate", "shadow", "snapshots"].contains(&name.trim_end()) {
            let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap();
            let mut fields = stat.split_whitespace().map(|field| field.parse::<u64>().unwrap());
            nanos += fields.next().unwrap();
            turns += fields.nth(1).unwrap();
        }
    }
    (nanos, turns)
}

#[test]
fn an_idle_engine_uses_next_to_no_processor_time() {
    let mut config = EngineConfig::new("/engine");
    config.final_snapshot = false;
    let engine = Engine::start_on(SimStorage::new(), config, Arc::new(MemoryLog::new()), Vec::new()).unwrap();
    // Not fresh from the start: the threads have worked, and have measurements to publish.
    for _ in 0..100 {
        engine.handle().submit(Body::CreateAccount, Timestamp(0), ReplyTo::none()).unwrap();
    }
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while engine.handle().positions().applied.seq() < Seq(100) {
        assert!(std::time::Instant::now() < deadline, "the engine works");
        std::thread::yield_now();
    }
    // This is a measurement over time: there is no condition to wait for.
    let second = Duration::from_secs(1);
    std::thread::sleep(second / 2);
    let before = used();
    assert!(before.0 > 0 && before.1 > 0, "the threads are found by their names: {before:?}");
    std::thread::sleep(second);
    let after = used();
    let (nanos, turns) = (after.0 - before.0, after.1 - before.1);
    assert!(nanos < second.as_nanos() as u64 / 50, "{nanos} ns of one second");
    assert!(turns < 20, "{turns} wake-ups in one second");
    engine.shutdown().unwrap();
}
