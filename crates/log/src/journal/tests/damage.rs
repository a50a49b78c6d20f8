//! Recovery's decisions: torn ends are cut, damage is refused, nothing panics.

use proptest::prelude::*;

use super::scan::decide;
use super::walk::{Evidence, Found};
use super::*;
use crate::segment::{HEADER, RECORD_HEADER, padded};

/// Every combination of what can stand at the end and what can come later.
#[test]
fn the_decision_table() {
    const EXPECTED: u64 = 10;
    let unfinished = Found::Unfinished("x");
    let wrong = Found::Wrong("x");
    // What is there; what a later batch says was durable (0: no later batch); bytes behind; the decision.
    let table: [(Found, u64, u64, &str); 18] = [
        (Found::Nothing, 0, 0, "clean"),
        (Found::Nothing, 0, 700, "torn"),
        (Found::Nothing, 9, 0, "clean"),
        (Found::Nothing, 9, 700, "torn"),
        (Found::Nothing, 10, 700, "damaged"),
        (Found::Nothing, 11, 700, "damaged"),
        (unfinished, 0, 0, "torn"),
        (unfinished, 0, 700, "torn"),
        (unfinished, 9, 0, "torn"),
        (unfinished, 9, 700, "torn"),
        (unfinished, 10, 700, "damaged"),
        (unfinished, 11, 700, "damaged"),
        (wrong, 0, 0, "damaged"),
        (wrong, 0, 700, "damaged"),
        (wrong, 9, 0, "damaged"),
        (wrong, 9, 700, "damaged"),
        (wrong, 10, 700, "damaged"),
        (wrong, 11, 700, "damaged"),
    ];
    for (found, synced_through, bytes, expected) in table {
        let decision = match decide(&found, EXPECTED, Evidence { synced_through, end: 0 }, bytes) {
            End::Clean => "clean",
            End::Torn(_) => "torn",
            End::Damaged(_) => "damaged",
        };
        assert_eq!(decision, expected, "{found:?}, later {synced_through}, {bytes} bytes");
    }
}

/// The last record of the batches that are complete in the first `cut` bytes of the first segment.
fn complete_in(golden: &SimStorage, cut: usize) -> u64 {
    let mut bodies: Vec<(usize, usize, u64)> = Vec::new();
    dump(golden, dir(), Seq(1), |record| {
        let (offset, length) = (record.batch_offset as usize, RECORD_HEADER + record.payload.len());
        match bodies.last_mut() {
            Some(last) if last.0 == offset => (last.1, last.2) = (last.1 + length, record.seq.0),
            _ => bodies.push((offset, length, record.seq.0)),
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    bodies
        .iter()
        .filter(|(at, body, _)| at + HEADER + body <= cut)
        .map(|(_, _, last)| *last)
        .max()
        .unwrap_or(0)
}

#[test]
fn cut_at_every_byte() {
    let golden = sample(8192, &[3, 1, 5, 2]);
    let path = files(&golden)[0].clone();
    let bytes = golden.bytes(&path).unwrap();
    let used = verify(&golden, dir()).unwrap().segments[0].used_bytes as usize;
    for cut in 0..=used {
        let expected = complete_in(&golden, cut);
        let mut zeroed = bytes.clone();
        zeroed[cut..].fill(0);
        for contents in [bytes[..cut].to_vec(), zeroed] {
            // A cut through zeros changes nothing, so that one may leave more than was complete.
            let same = contents.len() == bytes.len() && contents == bytes;
            let storage = SimStorage::new();
            storage.set_bytes(&path, contents);
            let (mut journal, recovery) = Journal::open(storage.clone(), config(8192)).unwrap();
            let last = recovery.last.0;
            assert!(
                last == expected || same || last > expected && last <= 11,
                "cut at {cut}: {last}, {expected}"
            );
            check(&storage, 1, last);
            append(&mut journal, 4).unwrap();
            journal.sync().unwrap();
            drop(journal);
            let (_, recovery) = Journal::open(storage.clone(), config(8192)).unwrap();
            assert_eq!((recovery.last.0, recovery.cut_bytes), (last + 4, 0), "cut at {cut}");
            check(&storage, 1, last + 4);
        }
    }
}

/// A closed journal over several segments, the last of which has its seal.
fn sealed() -> (SimStorage, u64) {
    let storage = SimStorage::new();
    let (mut journal, _) = Journal::open(storage.clone(), config(4096)).unwrap();
    for count in [2, 7, 1, 20, 3, 30, 4, 9] {
        append(&mut journal, count).unwrap();
        journal.sync().unwrap();
    }
    let last = journal.last().0;
    journal.close().unwrap();
    assert_eq!(verify(&storage, dir()).unwrap().synced_through, last, "sealed");
    (storage, last)
}

#[test]
fn flip_every_bit() {
    let (storage, last) = sealed();
    let (mut detected, mut slack) = (0, 0);
    for path in files(&storage) {
        let original = storage.bytes(&path).unwrap();
        for at in 0..original.len() {
            for bit in 0..8 {
                let mut bytes = original.clone();
                bytes[at] ^= 1 << bit;
                storage.set_bytes(&path, bytes);
                let report = verify(&storage, dir()).unwrap();
                let place = format!("{} byte {at} bit {bit}", path.display());
                match report.verdict {
                    Verdict::Damaged => detected += 1,
                    // Padding, unused space or the seal itself: every record is there.
                    _ => slack += 1,
                }
                assert!(report.verdict == Verdict::Damaged || report.last == last, "{place}");
                if bit == at % 8 {
                    check_start(&storage, report.verdict, last, &place);
                }
            }
        }
        storage.set_bytes(&path, original);
    }
    assert!(detected > 8 * 4000 && slack > 0, "{detected} detected, {slack} in slack");
}

/// Starts on a copy of the disk: refused exactly when verify says damaged, and otherwise everything is there.
fn check_start(storage: &SimStorage, verdict: Verdict, last: u64, place: &str) {
    let copy = SimStorage::new();
    for path in files(storage) {
        copy.set_bytes(&path, storage.bytes(&path).unwrap());
    }
    match Journal::open(copy.clone(), config(4096)) {
        Ok((_, recovery)) => {
            assert!(verdict != Verdict::Damaged, "{place}");
            assert_eq!(recovery.last.0, last, "{place}");
            check(&copy, 1, last);
        }
        Err(LogError::Damaged { .. }) => assert_eq!(verdict, Verdict::Damaged, "{place}"),
        Err(other) => panic!("{place}: {other}"),
    }
}

/// Starts with some files put in the place of others, and expects a refusal.
fn refuse(name: &str, change: impl FnOnce(&SimStorage)) {
    let (storage, _) = sealed();
    change(&storage);
    assert_eq!(verify(&storage, dir()).unwrap().verdict, Verdict::Damaged, "{name}");
    match Journal::open(storage, config(4096)) {
        Err(error @ LogError::Damaged { .. }) => {
            let text = error.to_string();
            assert!(text.contains(".seg") && text.contains("byte") && text.contains("backup"), "{text}");
        }
        Err(error) => panic!("{name}: {error}"),
        Ok(_) => panic!("{name}: started"),
    }
}

fn swap(storage: &SimStorage, path: &Path, a: usize, b: usize, length: usize) {
    let mut bytes = storage.bytes(path).unwrap();
    let (first, second) = (bytes[a..a + length].to_vec(), bytes[b..b + length].to_vec());
    bytes[a..a + length].copy_from_slice(&second);
    bytes[b..b + length].copy_from_slice(&first);
    storage.set_bytes(path, bytes);
}

#[test]
fn exchanged_and_missing_parts_are_refused() {
    let (sample, _) = sealed();
    let paths = files(&sample);
    assert!(paths.len() >= 3);
    refuse("segments exchanged", |storage| {
        let (a, b) = (storage.bytes(&paths[0]).unwrap(), storage.bytes(&paths[1]).unwrap());
        storage.set_bytes(&paths[0], b);
        storage.set_bytes(&paths[1], a);
    });
    refuse("a segment twice", |storage| {
        storage.set_bytes(&paths[1], storage.bytes(&paths[0]).unwrap());
    });
    refuse("a segment missing", |storage| storage.remove(&paths[1]).unwrap());
    refuse("a segment empty", |storage| storage.set_bytes(&paths[1], Vec::new()));
    refuse("a segment zeroed", |storage| storage.set_bytes(&paths[1], vec![0; 4096]));
    refuse("a segment cut off", |storage| {
        storage.set_bytes(&paths[0], storage.bytes(&paths[0]).unwrap()[..1024].to_vec());
    });
    refuse("blocks exchanged", |storage| swap(storage, &paths[0], 512, 1024, 512));
    refuse("a batch at another place", |storage| {
        let mut bytes = storage.bytes(&paths[0]).unwrap();
        bytes.copy_within(512..1024, 1024);
        storage.set_bytes(&paths[0], bytes);
    });
    refuse("records exchanged", |storage| {
        // The first batch: records 1 and 2 have the same header length; their sequences are exchanged.
        let first = 512 + HEADER + 8;
        let second = first + RECORD_HEADER + payload(1).len();
        swap(storage, &paths[0], first, second, 8);
    });
    let other = SimStorage::new();
    let (mut journal, _) = Journal::open(other.clone(), config(4096)).unwrap();
    for count in [2, 7, 1, 20, 3, 30, 4, 9] {
        append_with(&mut journal, count, |seq| payload(seq).iter().map(|byte| byte ^ 1).collect()).unwrap();
        journal.sync().unwrap();
    }
    journal.close().unwrap();
    refuse("a segment of another history", |storage| {
        storage.set_bytes(&paths[1], other.bytes(&paths[1]).unwrap());
    });
    refuse("a batch of another history", |storage| {
        let mut bytes = storage.bytes(&paths[0]).unwrap();
        bytes[512..1024].copy_from_slice(&other.bytes(&paths[0]).unwrap()[512..1024]);
        storage.set_bytes(&paths[0], bytes);
    });
}

#[test]
fn damage_to_the_last_batch_is_a_tear_without_a_seal_and_damage_with_one() {
    let damage = |storage: &SimStorage| {
        let path = files(storage)[0].clone();
        let mut bytes = storage.bytes(&path).unwrap();
        let at = 512 + padded(payload(1).len() + RECORD_HEADER) + HEADER + 20;
        bytes[at] ^= 4;
        storage.set_bytes(&path, bytes);
    };
    let storage = sample(4096, &[1, 1]);
    damage(&storage);
    let (_, recovery) = Journal::open(storage, config(4096)).unwrap();
    assert_eq!(recovery.last, Seq(1), "the limit that is documented");
    let storage = SimStorage::new();
    let (mut journal, _) = Journal::open(storage.clone(), config(4096)).unwrap();
    for _ in 0..2 {
        append(&mut journal, 1).unwrap();
        journal.sync().unwrap();
    }
    journal.seal().unwrap();
    drop(journal);
    damage(&storage);
    assert!(matches!(Journal::open(storage, config(4096)), Err(LogError::Damaged { expected: 2, .. })));
}

/// Does everything that reads with these files; only the results differ.
fn read_everything(segments: &[Vec<u8>]) {
    let storage = SimStorage::new();
    for (index, bytes) in (1..).zip(segments) {
        storage.set_bytes(&dir().join(file_name(index)), bytes.clone());
    }
    let report = verify(&storage, dir()).unwrap();
    stats(&storage, dir()).unwrap();
    drop(dump(&storage, dir(), Seq(1), |_| ControlFlow::Continue(())));
    if let Ok(mut reader) = JournalReader::open(storage.clone(), DIR, Seq(1)) {
        drop(reader.read(Seq(u64::MAX), 10_000, |_, payload| {
            assert!(payload.len() <= crate::segment::MAX_RECORD);
            ControlFlow::Continue(())
        }));
        assert!(reader.memory() <= (1 << 20) + padded(crate::segment::MAX_BODY));
    }
    match Journal::open(storage.clone(), config(4096)) {
        Ok((mut journal, recovery)) => {
            assert_ne!(report.verdict, Verdict::Damaged);
            append(&mut journal, 1).unwrap();
            assert_eq!(journal.sync().unwrap(), recovery.last.next());
        }
        Err(error) => assert!(report.verdict == Verdict::Damaged, "{error}"),
    }
}

/// Makes the header at each changed place valid again, so that the reader believes it.
fn mend(bytes: &mut [u8], block: usize) {
    if let Some(header) = bytes.get_mut(block * 512..block * 512 + HEADER) {
        let crc = crate::segment::crc32c(&header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_panic(segments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5000), 0..3)) {
        read_everything(&segments);
    }

    #[test]
    fn any_change_of_a_journal_is_read_without_panic(
        changes in prop::collection::vec((0usize..12_288, any::<u8>()), 1..6),
        mended in any::<bool>(),
    ) {
        let (storage, _) = sealed();
        let mut segments: Vec<Vec<u8>> =
            files(&storage).iter().take(3).map(|path| storage.bytes(path).unwrap()).collect();
        for (at, byte) in changes {
            let (segment, at) = (at / 4096 % segments.len(), at % 4096);
            // Half of the changes go to headers, where the lengths are.
            let at = if byte % 2 == 0 { at / 512 * 512 + at % HEADER } else { at };
            segments[segment][at] = byte;
            if mended {
                mend(&mut segments[segment], at / 512);
            }
        }
        read_everything(&segments);
    }
}
