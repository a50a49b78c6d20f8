use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::event_log::{MemoryLog, conformance};
use crate::storage::SimStorage;

fn small() -> EmbeddedConfig {
    EmbeddedConfig { segment_bytes: 16 << 10, ..EmbeddedConfig::default() }
}

/// A folder of its own for each call, removed at the end of the process by the caller.
fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("hoga-log-{name}-{}-{number}", std::process::id()));
    drop(std::fs::remove_dir_all(&dir));
    dir
}

#[test]
fn memory_conforms() {
    conformance::run(MemoryLog::new);
}

#[test]
fn embedded_conforms_on_the_simulated_disk() {
    conformance::run(|| EmbeddedLog::open_on(SimStorage::new(), "/log", small()).unwrap());
}

#[test]
fn embedded_conforms_on_the_disk() {
    let root = scratch("conformance");
    let next = AtomicU64::new(0);
    conformance::run(|| {
        let dir = root.join(next.fetch_add(1, Ordering::Relaxed).to_string());
        EmbeddedLog::open(dir, small()).unwrap()
    });
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn embedded_conforms_when_few_keys_fit_into_memory_and_appends_are_synced() {
    let config = EmbeddedConfig { compact_keys: 5, durability: Durability::Sync, ..small() };
    conformance::run(|| EmbeddedLog::open_on(SimStorage::new(), "/log", config.clone()).unwrap());
}

#[test]
fn an_embedded_log_goes_on_after_a_restart() {
    let storage = SimStorage::new();
    conformance::reopening(|| EmbeddedLog::open_on(storage.clone(), "/log", small()).unwrap());
}

fn message<'a>(key: &'a [u8], value: &'a [u8]) -> Message<'a> {
    Message { key, value: Some(value), time: hoga_core::ids::Timestamp(1) }
}

#[test]
fn a_restart_finds_everything() {
    let dir = scratch("restart");
    let spec = TopicSpec::delete("orders", 3, 1 << 30);
    let mut expected = Vec::new();
    for round in 0..4u64 {
        let log = EmbeddedLog::open(&dir, small()).unwrap();
        assert!(matches!(EmbeddedLog::open(&dir, small()), Err(LogError::Locked { .. })));
        log.create_topic(&spec).unwrap();
        for number in 0..400u64 {
            let text = format!("{round}/{number}/{}", "x".repeat(100));
            log.append("orders", &[message(&number.to_le_bytes(), text.as_bytes())]).unwrap();
        }
        for partition in 0..3 {
            let end = log.end_offset("orders", partition).unwrap();
            log.commit("reader", "orders", partition, end - 1).unwrap();
            log.commit(&format!("round-{round}"), "orders", partition, round).unwrap();
        }
        let all = |log: &EmbeddedLog| -> Vec<Vec<StoredMessage>> {
            let read = |partition| {
                let mut out = Vec::new();
                let end = log.end_offset("orders", partition).unwrap();
                let mut offset = 0;
                while offset < end {
                    offset = log.read("orders", partition, offset, 100, &mut out).unwrap();
                }
                out
            };
            (0..3).map(read).collect()
        };
        let before = all(&log);
        assert_eq!(before.iter().map(Vec::len).sum::<usize>() as u64, (round + 1) * 400);
        let (groups, topics) = (EventLog::groups(&log), log.topics());
        assert_eq!(groups.len() as u64, 3 * (round + 2));
        drop(log);
        let log = EmbeddedLog::open(&dir, small()).unwrap();
        assert_eq!((EventLog::groups(&log), log.topics()), (groups, topics));
        assert!(all(&log) == before);
        assert!(
            round == 0 || before.iter().zip(&expected).all(|(now, then): (_, &Vec<_>)| now.starts_with(then))
        );
        expected = before;
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn many_commits_take_little_space() {
    let storage = SimStorage::new();
    let log = EmbeddedLog::open_on(storage.clone(), "/log", small()).unwrap();
    log.create_topic(&TopicSpec::compact("t", 2)).unwrap();
    for offset in 0..9000 {
        log.commit("a", "t", 0, offset).unwrap();
        log.commit("b", "t", 1, offset / 2).unwrap();
    }
    drop(log);
    let files = storage.list(Path::new("/log/groups")).unwrap();
    assert!(files.len() <= 4, "{files:?}");
    let log = EmbeddedLog::open_on(storage, "/log", small()).unwrap();
    assert_eq!(log.committed("a", "t", 0).unwrap(), Some(8999));
    assert_eq!(log.committed("b", "t", 1).unwrap(), Some(4499));
    assert_eq!(log.committed("a", "t", 1).unwrap(), None);
}

#[test]
fn retention_can_be_told_not_to_wait() {
    let config = EmbeddedConfig { retention_ignores_groups: true, ..small() };
    let log = EmbeddedLog::open_on(SimStorage::new(), "/log", config).unwrap();
    log.create_topic(&TopicSpec::delete("t", 1, 20_000)).unwrap();
    log.commit("gone", "t", 0, 0).unwrap();
    for _ in 0..300 {
        log.append("t", &[message(b"k", &[1; 400])]).unwrap();
    }
    let done = log.maintain().unwrap();
    assert!(done.removed > 5 && done.held == 0);
    assert!(log.start_offset("t", 0).unwrap() > 100);
}

#[test]
fn a_damaged_specification_or_segment_is_refused() {
    let storage = SimStorage::new();
    let log = EmbeddedLog::open_on(storage.clone(), "/log", small()).unwrap();
    log.create_topic(&TopicSpec::compact("t", 1)).unwrap();
    for _ in 0..200 {
        log.append("t", &[message(b"k", &[1; 300])]).unwrap();
    }
    log.sync().unwrap();
    log.append("t", &[message(b"k", b"x")]).unwrap();
    drop(log);
    for (path, at) in [("/log/topics/t/spec", 20), ("/log/topics/t/0000/00000006.seg", 1300)] {
        let path = Path::new(path);
        let bytes = storage.bytes(path).unwrap();
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        storage.set_bytes(path, damaged);
        let result = EmbeddedLog::open_on(storage.clone(), "/log", small());
        match result {
            Err(error) => assert!(matches!(error, LogError::Damaged { .. }), "{error}"),
            // A segment that was durable long ago is checked when it is read.
            Ok(log) => {
                let mut out = Vec::new();
                let mut offset = 0;
                let error = loop {
                    match log.read("t", 0, offset, 50, &mut out) {
                        Ok(next) => offset = next,
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, LogError::Damaged { .. }), "{error}");
            }
        }
        storage.set_bytes(path, bytes);
    }
    EmbeddedLog::open_on(storage, "/log", small()).unwrap();
}

#[test]
fn specifications_come_back() {
    for spec in [TopicSpec::compact("a.b-c_9", 1024), TopicSpec::delete("x", 1, u64::MAX)] {
        assert_eq!(decode_spec(&encode_spec(&spec)), Some(spec.clone()));
        assert_eq!(decode_spec(&encode_spec(&spec).replace('x', "y")).is_some(), spec.name != "x");
    }
    for bad in ["", "crc ", "hoga-topic 1\ncrc 00000000\n", "crc zz"] {
        assert_eq!(decode_spec(bad), None);
    }
}

/// A group that registers while a maintenance runs, which does not know it, is registered when that has ended.
#[test]
fn registering_waits_for_a_maintenance_that_runs() {
    let storage = SimStorage::new();
    let log = EmbeddedLog::open_on(storage, "/log", small()).unwrap();
    log.create_topic(&TopicSpec::compact("t", 1)).unwrap();
    log.commit("known", "t", 0, 0).unwrap();
    let topic = log.topic("t").unwrap();
    let maintenance = topic.partition(0).unwrap().maintenance.lock().unwrap();
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let log = &log;
        scope.spawn(move || {
            log.commit("known", "t", 0, 1).unwrap();
            tell.send("known").unwrap();
            log.commit("new", "t", 0, 0).unwrap();
            tell.send("new").unwrap();
        });
        assert_eq!(told.recv(), Ok("known"), "a registered group does not wait");
        assert!(told.recv_timeout(Duration::from_millis(30)).is_err());
        assert_eq!(log.committed("new", "t", 0).unwrap(), None);
        drop(maintenance);
        assert_eq!(told.recv(), Ok("new"));
    });
}
