mod crash;
mod damage;
mod live;
mod working;

use std::ops::ControlFlow;
use std::path::Path;

use hoga_core::ids::Seq;

use super::*;
use crate::storage::SimStorage;

const DIR: &str = "/journal";

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn config(segment_bytes: u64) -> JournalConfig {
    JournalConfig { segment_bytes, ..JournalConfig::new(DIR) }
}

/// The payload of a record: a function of its number, of varying length.
fn payload(seq: u64) -> Vec<u8> {
    let length = (seq * 37 % 90) as usize;
    let mut bytes = vec![seq as u8; length];
    bytes.extend_from_slice(&seq.to_le_bytes());
    bytes
}

fn append(journal: &mut Journal<SimStorage>, count: u64) -> Result<(), LogError> {
    append_with(journal, count, payload)
}

fn append_with(
    journal: &mut Journal<SimStorage>,
    count: u64,
    payload: impl Fn(u64) -> Vec<u8>,
) -> Result<(), LogError> {
    let mut batch = Batch::new();
    for _ in 0..count {
        let seq = Seq(journal.last().0 + u64::from(batch.count()) + 1);
        batch.push(seq, &payload(seq.0));
    }
    journal.append(batch.first(), batch.count(), batch.records())
}

/// Reads and checks all records from `from` to `last`.
fn check(storage: &SimStorage, from: u64, last: u64) {
    let mut reader = JournalReader::open(storage.clone(), DIR, Seq(from)).unwrap();
    let mut next = from;
    let read = reader.read(Seq(last), usize::MAX, |seq, bytes| {
        assert_eq!((seq.0, bytes), (next, &payload(next)[..]));
        next += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(read.unwrap(), Seq(last));
    assert_eq!(next, last + 1);
}

/// A journal with some synced batches; its disk.
fn sample(segment_bytes: u64, batches: &[u64]) -> SimStorage {
    let storage = SimStorage::new();
    let (mut journal, _) = Journal::open(storage.clone(), config(segment_bytes)).unwrap();
    for count in batches {
        append(&mut journal, *count).unwrap();
        journal.sync().unwrap();
    }
    storage
}

fn files(storage: &SimStorage) -> Vec<std::path::PathBuf> {
    scan::segments(storage, dir()).unwrap().into_iter().map(|file| file.path).collect()
}
