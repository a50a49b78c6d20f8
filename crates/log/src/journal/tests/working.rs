//! The journal at work: order, group commit, segments, readers, retention.

use std::time::Duration;

use super::*;
use crate::ring::Cursor;
use crate::storage::Disk;

#[test]
fn a_new_journal_is_empty_and_starts_at_one() {
    let storage = SimStorage::new();
    let (mut journal, recovery) = Journal::open(storage.clone(), config(4096)).unwrap();
    assert_eq!(recovery, Recovery { first: Seq(1), last: Seq(0), cut_bytes: 0 });
    assert_eq!(journal.sync().unwrap(), Seq(0));
    drop(journal);
    let (_, recovery) = Journal::open(storage.clone(), config(4096)).unwrap();
    assert_eq!(recovery, Recovery { first: Seq(1), last: Seq(0), cut_bytes: 0 });
    assert_eq!(verify(&storage, dir()).unwrap().verdict, Verdict::Clean);
}

#[test]
fn records_come_back_in_order_over_many_segments_and_starts() {
    let storage = SimStorage::new();
    let mut last = 0;
    for start in 0..5u64 {
        let (mut journal, recovery) = Journal::open(storage.clone(), config(4096)).unwrap();
        assert_eq!((recovery.last, recovery.cut_bytes), (Seq(last), 0));
        for count in 1..12 {
            append(&mut journal, count).unwrap();
            append(&mut journal, 1).unwrap();
            last += count + 1;
            assert_eq!(journal.sync().unwrap(), Seq(last));
        }
        if start % 2 == 0 {
            journal.close().unwrap();
        }
    }
    for from in [1, 2, 17, last / 2, last] {
        check(&storage, from, last);
    }
    let report = verify(&storage, dir()).unwrap();
    assert_eq!((report.verdict, report.first, report.last), (Verdict::Clean, 1, last));
    assert!(report.segments.len() > 5);
    let stats = stats(&storage, dir()).unwrap();
    assert_eq!((stats.records, stats.batches, stats.largest_batch), (last, 55, 12));
    assert_eq!(stats.payload_bytes, (1..=last).map(|seq| payload(seq).len() as u64).sum::<u64>());
    let mut next = 5;
    dump(&storage, dir(), Seq(5), |record| {
        assert_eq!((record.seq, record.payload), (Seq(next), &payload(next)[..]));
        next += 1;
        if next > last - 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!(next, last - 2);
}

#[test]
fn everything_that_waits_is_one_write_and_one_sync() {
    let storage = SimStorage::new();
    let (mut journal, _) = Journal::open(storage.clone(), config(1 << 20)).unwrap();
    append(&mut journal, 1).unwrap();
    journal.sync().unwrap();
    let before = storage.operations();
    for _ in 0..50 {
        append(&mut journal, 3).unwrap();
    }
    assert_eq!(storage.operations(), before);
    journal.sync().unwrap();
    assert_eq!(storage.operations(), before + 2);
    assert_eq!(journal.sync().unwrap(), Seq(151));
    assert_eq!(storage.operations(), before + 2, "nothing to sync, nothing done");
}

#[test]
fn what_is_not_next_is_refused_and_changes_nothing() {
    let storage = SimStorage::new();
    let (mut journal, _) = Journal::open(storage.clone(), config(4096)).unwrap();
    append(&mut journal, 2).unwrap();
    let mut batch = Batch::new();
    batch.push(Seq(5), b"x");
    let error = journal.append(batch.first(), 1, batch.records()).unwrap_err();
    assert!(matches!(error, LogError::OutOfOrder { last: 2, got: 5 }));
    for (count, bytes) in
        [(1, &batch.records()[..10]), (2, batch.records()), (0, &[][..]), (1, batch.records())]
    {
        let error = journal.append(Seq(3), count, bytes).unwrap_err();
        assert!(matches!(error, LogError::Malformed { .. }), "{error}");
    }
    append(&mut journal, 1).unwrap();
    assert_eq!(journal.sync().unwrap(), Seq(3));
    check(&storage, 1, 3);
}

#[test]
fn a_batch_larger_than_a_segment_gets_a_larger_segment() {
    let storage = SimStorage::new();
    let large = |seq: u64| if seq.is_multiple_of(3) { vec![1; 50_000] } else { payload(seq) };
    let (mut journal, _) = Journal::open(storage.clone(), config(4096)).unwrap();
    for _ in 0..7 {
        append_with(&mut journal, 1, large).unwrap();
        journal.sync().unwrap();
    }
    append_with(&mut journal, 60, |_| vec![2; 65_000]).unwrap();
    append_with(&mut journal, 60, |_| vec![2; 65_000]).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let (_, recovery) = Journal::open(storage.clone(), config(4096)).unwrap();
    assert_eq!(recovery.last, Seq(127));
    let mut reader = JournalReader::open(storage, DIR, Seq(1)).unwrap();
    let mut bytes = 0;
    reader
        .read(Seq(127), usize::MAX, |_, payload| {
            bytes += payload.len();
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(bytes > 120 * 65_000);
}

#[test]
fn a_reader_stops_where_it_is_told() {
    let storage = sample(4096, &[10, 10, 10, 40, 10]);
    let mut reader = JournalReader::open(storage, DIR, Seq(0)).unwrap();
    let mut seen = Vec::new();
    let mut read = |reader: &mut JournalReader<SimStorage>, upto, max, stop: u64| {
        seen.clear();
        let last = reader.read(Seq(upto), max, |seq, bytes| {
            assert_eq!(bytes, payload(seq.0));
            seen.push(seq.0);
            if seq.0 == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (last.unwrap().0, seen.first().copied().unwrap_or(0), seen.len())
    };
    assert_eq!(read(&mut reader, 0, 10, 0), (0, 0, 0));
    assert_eq!(read(&mut reader, 3, 10, 0), (3, 1, 3));
    assert_eq!(read(&mut reader, 3, 10, 0), (3, 0, 0));
    assert_eq!(read(&mut reader, 80, 4, 0), (7, 4, 4));
    assert_eq!(read(&mut reader, 80, 100, 9), (9, 8, 2));
    assert_eq!(read(&mut reader, 80, 0, 0), (9, 0, 0));
    assert_eq!(read(&mut reader, 80, 1000, 0), (80, 10, 71));
    assert_eq!(reader.position(), Seq(81));
    let error = reader.read(Seq(81), 1, |_, _| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, LogError::Damaged { expected: 81, .. }), "{error}");
}

#[test]
fn retention_removes_whole_segments_and_readers_are_told() {
    let storage = sample(4096, &[30; 20]);
    let mut behind = JournalReader::open(storage.clone(), DIR, Seq(1)).unwrap();
    behind.read(Seq(5), 5, |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(remove_before(&storage, dir(), Seq(1)).unwrap(), 0);
    assert!(remove_before(&storage, dir(), Seq(300)).unwrap() > 2);
    let kept = first(&storage, dir()).unwrap().unwrap().0;
    assert!(kept > 200 && kept <= 300, "{kept}");
    check(&storage, kept, 600);
    check(&storage, 300, 600);
    let error = behind.read(Seq(600), usize::MAX, |_, _| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, LogError::Removed { first, .. } if first == kept), "{error}");
    let error = JournalReader::open(storage.clone(), DIR, Seq(1)).err().unwrap();
    assert!(matches!(error, LogError::Removed { wanted: 1, .. }), "{error}");
    let (mut journal, recovery) = Journal::open(storage.clone(), config(4096)).unwrap();
    assert_eq!((recovery.first, recovery.last), (Seq(kept), Seq(600)));
    append(&mut journal, 1).unwrap();
    journal.sync().unwrap();
    // The newest segment stays, whatever is asked.
    remove_before(&storage, dir(), Seq(10_000)).unwrap();
    drop(journal);
    let (_, recovery) = Journal::open(storage, config(4096)).unwrap();
    assert_eq!(recovery.last, Seq(601));
}

#[test]
fn opening_from_a_snapshot_leaves_older_segments_unread() {
    let storage = sample(4096, &[30; 20]);
    let path = files(&storage)[1].clone();
    let mut bytes = storage.bytes(&path).unwrap();
    bytes[1500] ^= 1;
    storage.set_bytes(&path, bytes);
    assert!(matches!(Journal::open(storage.clone(), config(4096)), Err(LogError::Damaged { .. })));
    let (_, recovery) = Journal::open_from(storage.clone(), config(4096), Seq(500)).unwrap();
    assert_eq!((recovery.first, recovery.last), (Seq(1), Seq(600)));
    check(&storage, 500, 600);
}

#[test]
fn weaker_modes_say_only_what_is_so() {
    let storage = SimStorage::new();
    let weak = JournalConfig { durability: Durability::Write, ..config(4096) };
    let (mut journal, _) = Journal::open(storage.clone(), weak.clone()).unwrap();
    for _ in 0..30 {
        append(&mut journal, 9).unwrap();
        journal.sync().unwrap();
    }
    assert_eq!((journal.last(), journal.synced()), (Seq(270), Seq(0)));
    assert_eq!(journal.sync_device().unwrap(), Seq(270));
    assert_eq!(journal.synced(), Seq(270));
    append(&mut journal, 1).unwrap();
    journal.sync().unwrap();
    storage.crash(3);
    let (_, recovery) = Journal::open(storage.clone(), weak).unwrap();
    assert!((270..=271).contains(&recovery.last.0));
    check(&storage, 1, recovery.last.0);
}

#[test]
fn one_folder_has_one_writer_on_the_disk_and_a_reader_follows_it() {
    let root = std::env::temp_dir().join(format!("hoga-journal-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&root));
    let config = JournalConfig { segment_bytes: 64 << 10, ..JournalConfig::new(&root) };
    let (mut journal, _) = Journal::open(Disk, config.clone()).unwrap();
    assert!(matches!(Journal::open(Disk, config.clone()), Err(LogError::Locked { .. })));
    const LAST: u64 = 6000;
    let durable = Cursor::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reader = JournalReader::open(Disk, &root, Seq(1)).unwrap();
            let mut next = 1;
            while next <= LAST {
                let upto = durable.wait_beyond(next - 1, Duration::from_secs(20));
                assert!(upto >= next, "the writer goes on");
                reader
                    .read(Seq(upto), 1000, |seq, bytes| {
                        assert_eq!((seq.0, bytes), (next, &payload(next)[..]));
                        next += 1;
                        ControlFlow::Continue(())
                    })
                    .unwrap();
            }
        });
        let mut batch = Batch::new();
        while journal.last().0 < LAST {
            batch.clear();
            for seq in journal.last().0 + 1..=journal.last().0 + 20 {
                batch.push(Seq(seq), &payload(seq));
            }
            journal.append(batch.first(), batch.count(), batch.records()).unwrap();
            durable.advance(journal.sync().unwrap().0);
        }
    });
    journal.close().unwrap();
    let (_, recovery) = Journal::open(Disk, config).unwrap();
    assert_eq!((recovery.last, recovery.cut_bytes), (Seq(LAST), 0));
    assert_eq!(verify(&Disk, &root).unwrap().verdict, Verdict::Clean);
    std::fs::remove_dir_all(&root).unwrap();
}
