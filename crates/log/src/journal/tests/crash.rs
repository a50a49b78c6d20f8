//! Power cuts at every operation, and failing disks: what was acknowledged is there, or the journal says that it is not.

use super::*;

/// What the outside world was told before the power went.
#[derive(Default)]
struct Told {
    acknowledged: u64,
    appended: u64,
    /// Highest sequence before which everything may have been removed.
    removable: u64,
}

/// A run that touches everything: group commits of several sizes, segments, retention, a restart.
fn run(storage: &SimStorage, durability: Durability, told: &mut Told) -> Result<(), LogError> {
    let config = JournalConfig { durability, ..config(4096) };
    for start in 0..2 {
        let (mut journal, recovery) = Journal::open(storage.clone(), config.clone())?;
        // What is recovered may be acted on, so it counts as acknowledged.
        told.acknowledged = recovery.last.0;
        for round in 0..9u64 {
            append(&mut journal, 1 + round * 5 % 11)?;
            told.appended = journal.last().0;
            if round % 3 == 1 {
                journal.flush()?;
            }
            append(&mut journal, 2)?;
            told.appended = journal.last().0;
            let synced = journal.sync()?;
            match durability {
                Durability::Sync => told.acknowledged = synced.0,
                _ if round % 4 == 3 => told.acknowledged = journal.sync_device()?.0,
                _ => {}
            }
            if round == 6 {
                told.removable = told.acknowledged / 2;
                remove_before(storage, dir(), Seq(told.removable))?;
            }
            if round % 4 == 2 {
                journal.seal()?;
            }
        }
        if start == 1 {
            journal.close()?;
            told.acknowledged = told.appended;
        }
    }
    Ok(())
}

/// Starts after a crash, and says what is wrong.
fn check_recovered(storage: &SimStorage, told: &Told) -> Result<u64, String> {
    let (mut journal, recovery) =
        Journal::open(storage.clone(), config(4096)).map_err(|error| format!("refused to start: {error}"))?;
    let (first, last) = (recovery.first.0, recovery.last.0);
    if last < told.acknowledged {
        return Err(format!("{} was acknowledged, {last} is the last one", told.acknowledged));
    }
    if last > told.appended {
        return Err(format!("{} was the last one appended, {last} is there", told.appended));
    }
    if first > told.removable.max(1) {
        return Err(format!("{first} is the first one, but only what is before {} may go", told.removable));
    }
    let mut next = first;
    let mut reader =
        JournalReader::open(storage.clone(), DIR, Seq(first)).map_err(|error| error.to_string())?;
    reader
        .read(Seq(last), usize::MAX, |seq, bytes| {
            assert_eq!((seq.0, bytes), (next, &payload(next)[..]));
            next += 1;
            ControlFlow::Continue(())
        })
        .map_err(|error| format!("reading after the start: {error}"))?;
    if next != last + 1 {
        return Err(format!("{} is the last one that could be read, not {last}", next - 1));
    }
    // The journal goes on, and a second crash right after takes nothing.
    append(&mut journal, 3).map_err(|error| error.to_string())?;
    journal.sync().map_err(|error| error.to_string())?;
    Ok(last + 3)
}

/// Crashes a run before each of its operations, with several outcomes each; returns the failures.
fn crash_everywhere(durability: Durability, prepare: impl Fn(&SimStorage), seeds: u64) -> Vec<String> {
    let whole = SimStorage::new();
    run(&whole, durability, &mut Told::default()).unwrap();
    let mut failures = Vec::new();
    for operation in 0..=whole.operations() {
        for seed in 0..seeds {
            let storage = SimStorage::new();
            prepare(&storage);
            storage.stop_at(operation);
            let mut told = Told::default();
            let finished = run(&storage, durability, &mut told).is_ok();
            assert_eq!(finished, operation == whole.operations(), "operation {operation}");
            let seed = seed * 1_000_003 + operation * 2;
            // Every other time the process is killed first, and only then, after a restart, the power goes.
            if seed % 2 == 0 {
                storage.crash(seed)
            } else {
                storage.kill()
            }
            let mut result = check_recovered(&storage, &told);
            if let Ok(last) = result {
                storage.crash(seed + 1);
                result = check_recovered(&storage, &Told { acknowledged: last, appended: last, ..told });
            }
            if let Err(failure) = result {
                failures.push(format!("operation {operation}, seed {seed}: {failure}"));
            }
        }
    }
    failures
}

#[test]
fn what_was_acknowledged_survives_a_crash_at_every_operation() {
    for durability in [Durability::Sync, Durability::Write, Durability::None] {
        let failures = crash_everywhere(durability, |_| {}, 40);
        assert!(failures.is_empty(), "{durability:?}: {} failures, first: {}", failures.len(), failures[0]);
    }
}

/// The test above must be able to fail: a journal whose syncs do nothing loses what it acknowledged.
#[test]
fn a_journal_without_its_sync_fails_the_crash_test() {
    let failures = crash_everywhere(Durability::Sync, SimStorage::lie_about_files, 4);
    assert!(failures.iter().any(|failure| failure.contains("was acknowledged")), "{}", failures.len());
    let failures = crash_everywhere(Durability::Sync, SimStorage::lie_about_dirs, 4);
    assert!(failures.iter().any(|failure| failure.contains("was acknowledged")), "{}", failures.len());
}

/// The same seed gives the same disk.
#[test]
fn a_crash_is_repeatable() {
    let disk = |seed| {
        let storage = SimStorage::new();
        storage.stop_at(25);
        run(&storage, Durability::Sync, &mut Told::default()).unwrap_err();
        storage.crash(seed);
        files(&storage).iter().map(|path| storage.bytes(path).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(disk(7), disk(7));
    assert!((0..20).any(|seed| disk(seed) != disk(7)));
}

fn poisoned(journal: &mut Journal<SimStorage>) {
    let error = append(journal, 1).unwrap_err();
    assert!(matches!(error, LogError::Poisoned { .. }), "{error}");
    assert!(matches!(journal.flush(), Err(LogError::Poisoned { .. })));
    assert!(matches!(journal.sync(), Err(LogError::Poisoned { .. })));
    assert!(matches!(journal.sync_device(), Err(LogError::Poisoned { .. })));
    assert!(matches!(journal.seal(), Err(LogError::Poisoned { .. })));
}

#[test]
fn a_failed_sync_ends_the_journal_and_nothing_is_tried_again() {
    for syncs in 0..8 {
        let storage = SimStorage::new();
        let (mut journal, _) = Journal::open(storage.clone(), config(4096)).unwrap();
        storage.fail_sync_in(syncs);
        let mut acknowledged = 0;
        let error = loop {
            append(&mut journal, 7).unwrap();
            match journal.sync() {
                Ok(seq) => acknowledged = seq.0,
                Err(error) => break error,
            }
        };
        let text = error.to_string();
        assert!(matches!(error, LogError::Io { .. }) && text.contains("seg"), "{text}");
        let operations = storage.operations();
        poisoned(&mut journal);
        assert_eq!(storage.operations(), operations, "not one operation more");
        assert_eq!(journal.synced().0, acknowledged);
        drop(journal);
        for seed in 0..20 {
            storage.crash(seed);
            let appended = acknowledged + 7 + 3 * seed;
            let told = Told { acknowledged, appended, removable: 0 };
            check_recovered(&storage, &told).unwrap();
        }
    }
}

#[test]
fn a_failed_or_short_write_ends_the_journal() {
    for writes in 0..6 {
        let storage = SimStorage::new();
        let (mut journal, _) = Journal::open(storage.clone(), config(4096)).unwrap();
        storage.fail_write_in(writes);
        let mut acknowledged = 0;
        while let Ok(seq) = append(&mut journal, 7).and_then(|()| journal.sync()) {
            acknowledged = seq.0;
        }
        poisoned(&mut journal);
        drop(journal);
        storage.crash(writes);
        check_recovered(&storage, &Told { acknowledged, appended: acknowledged + 7, removable: 0 }).unwrap();
    }
}

#[test]
fn a_full_disk_is_a_fault_and_takes_nothing() {
    let storage = SimStorage::new();
    storage.limit_space(3 * 4096);
    let (mut journal, _) = Journal::open(storage.clone(), config(4096)).unwrap();
    let mut acknowledged = 0;
    let error = loop {
        match append(&mut journal, 7).and_then(|()| journal.sync()) {
            Ok(seq) => acknowledged = seq.0,
            Err(error) => break error,
        }
    };
    match &error {
        LogError::Io { source, .. } => assert_eq!(source.kind(), std::io::ErrorKind::StorageFull),
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains("space"));
    poisoned(&mut journal);
    drop(journal);
    assert!(acknowledged >= 7 * 9, "three full segments: {acknowledged}");
    storage.crash(1);
    let appended = acknowledged + 7;
    check_recovered(&storage, &Told { acknowledged, appended, removable: 0 }).unwrap();
}
