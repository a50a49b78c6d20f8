//! Looking at a journal from outside: what `hoga journal verify|dump|stats` print. Nothing here writes or locks, files are
//! opened for reading only, and a writer may go on meanwhile.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use hoga_core::ids::Seq;

use super::scan::{End, Scan, scan_live, segments};
use super::walk::{Found, Place, Window, body, look};
use crate::error::LogError;
use crate::segment::{BLOCK, BatchHeader, RECORD_HEADER, Records, file_name, padded};
use crate::storage::Storage;

/// What is to be thought of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every batch is what was written, and nothing follows.
    Clean,
    /// The end was never synced and is incomplete; the next start cuts it. Usual after a power cut.
    Torn,
    /// Something that was durable is lost; a start refuses.
    Damaged,
}

impl Verdict {
    /// The name used in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Clean => "clean",
            Verdict::Torn => "torn",
            Verdict::Damaged => "damaged",
        }
    }

    /// Exit code of a command that verifies: 0 clean, 3 torn, 4 damaged.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Clean => 0,
            Verdict::Torn => 3,
            Verdict::Damaged => 4,
        }
    }
}

/// One segment, as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Index, as in its name.
    pub index: u64,
    /// The file.
    pub path: PathBuf,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Sequence of its first record; 0 when it has no readable header.
    pub first: u64,
    /// Sequence of its last record; `first` − 1 when it has none.
    pub last: u64,
    /// Batches that are what was written, seals included.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes in use, padding included.
    pub used_bytes: u64,
    /// Whether compaction wrote it.
    pub compacted: bool,
}

/// The answer of [`verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The folder.
    pub dir: PathBuf,
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// First record.
    pub first: u64,
    /// Last record that is what was written; `first` − 1 when there is none.
    pub last: u64,
    /// The last record of which some batch says that it was durable.
    pub synced_through: u64,
    /// All segments in order.
    pub segments: Vec<SegmentReport>,
    /// The chain value behind the last record: two journals with the same value have the same contents.
    pub chain: u64,
    /// Bytes behind the last record that the next start will cut.
    pub torn_bytes: u64,
    /// Of torn or damaged journals: where (file, byte) and what.
    pub problem: Option<Problem>,
}

/// Where a journal ends other than cleanly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Byte in the file.
    pub offset: u64,
    /// The record that should be there.
    pub expected: u64,
    /// What is there, and what to do.
    pub text: String,
}

/// So often a walk begins again when retention removed a segment before it was read.
const WALKS: u32 = 10;

/// Repeats a walk that retention has overtaken.
fn beside_retention<T>(mut walk: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
    let mut walks = 0;
    loop {
        walks += 1;
        match walk() {
            Err(LogError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound && walks < WALKS => {}
            other => return other,
        }
    }
}

/// Reads the whole journal and checks every checksum, sequence, place and chain value. A writer may go on meanwhile: the
/// verdict is on what had been written at some moment during the call.
///
/// # Errors
/// [`LogError::Io`] only: damage is a verdict.
pub fn verify<S: Storage>(storage: &S, dir: &Path) -> Result<Report, LogError> {
    beside_retention(|| verify_once(storage, dir))
}

fn verify_once<S: Storage>(storage: &S, dir: &Path) -> Result<Report, LogError> {
    let mut counts: Vec<(u64, BatchHeader, u64, u64)> = Vec::new();
    let mut bad_record: Option<(Place, &'static str)> = None;
    let scan = scan_live(storage, dir, &mut |batch, body| {
        let fault = Records::new(body).find_map(|record| record.err());
        if let (Some(what), None) = (fault, &bad_record) {
            let place = Place {
                segment: batch.segment,
                offset: batch.offset,
                next: batch.first,
                chain: 0,
                holes: false,
            };
            bad_record = Some((place, what));
        }
        match counts.last_mut() {
            Some(last) if last.0 == batch.segment => {
                (last.1, last.2, last.3) = (*batch, last.2 + 1, last.3 + u64::from(batch.count));
            }
            _ => counts.push((batch.segment, *batch, 1, u64::from(batch.count))),
        }
    })?;
    let segments = scan.files.iter().map(|file| segment_report(file, &counts)).collect();
    let mut report = Report {
        dir: dir.to_path_buf(),
        verdict: Verdict::Clean,
        first: scan.first,
        last: scan.place.next - 1,
        synced_through: scan.synced_through,
        segments,
        chain: scan.place.chain,
        torn_bytes: 0,
        problem: None,
    };
    conclude(&mut report, &scan, bad_record);
    Ok(report)
}

fn segment_report(file: &super::scan::SegmentFile, counts: &[(u64, BatchHeader, u64, u64)]) -> SegmentReport {
    let header = file.header.as_ref().ok();
    let first = header.map_or(0, |header| header.base);
    let count = counts.iter().find(|count| count.0 == file.index);
    SegmentReport {
        index: file.index,
        path: file.path.clone(),
        file_bytes: file.len,
        first,
        last: count.map_or(first.saturating_sub(1), |count| count.1.last),
        batches: count.map_or(0, |count| count.2),
        records: count.map_or(0, |count| count.3),
        used_bytes: count.map_or(0, |count| count.1.offset + padded(count.1.body) as u64),
        compacted: header.is_some_and(|header| header.compacted.is_some()),
    }
}

fn conclude(report: &mut Report, scan: &Scan, bad_record: Option<(Place, &'static str)>) {
    let problem = |place: &Place, text: String| Problem {
        path: report.dir.join(file_name(place.segment)),
        offset: place.offset,
        expected: place.next,
        text,
    };
    if let Some((place, what)) = bad_record {
        report.problem = Some(problem(
            &place,
            format!("{what}, though its batch is what was written: it was damaged before it was written"),
        ));
        report.verdict = Verdict::Damaged;
        return;
    }
    match &scan.end {
        End::Clean => {}
        End::Torn(bytes) => {
            let text = format!("{bytes} bytes from here on were never synced; the next start cuts them");
            report.problem = Some(problem(&scan.place, text));
            report.torn_bytes = *bytes;
            report.verdict = Verdict::Torn;
        }
        End::Damaged(what) => {
            let text =
                format!("{what}. Restore this file from a backup or a standby; a start refuses until then");
            report.problem = Some(problem(&scan.place, text));
            report.verdict = Verdict::Damaged;
        }
    }
}

/// A record as [`dump`] hands it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpRecord<'a> {
    /// Its sequence.
    pub seq: Seq,
    /// Index of its segment.
    pub segment: u64,
    /// Where its batch starts in the file, in bytes.
    pub batch_offset: u64,
    /// First sequence of its batch, which tells batches apart.
    pub batch_first: u64,
    /// The last durable sequence when its batch was written.
    pub synced_through: u64,
    /// The bytes.
    pub payload: &'a [u8],
}

/// Hands over the records from `from` on until the end or until `f` breaks. It goes as far as the journal is readable;
/// [`verify`] says why it ends where it ends.
///
/// # Errors
/// [`LogError::Removed`] when `from` is before the first record that is kept, or retention overtakes the call;
/// [`LogError::Io`].
pub fn dump<S: Storage>(
    storage: &S,
    dir: &Path,
    from: Seq,
    mut f: impl FnMut(DumpRecord<'_>) -> ControlFlow<()>,
) -> Result<(), LogError> {
    let files = segments(storage, dir)?;
    let readable = |at: usize| files.get(at).and_then(|file| Some((file, *file.header.as_ref().ok()?)));
    let Some((_, oldest)) = readable(0) else { return Ok(()) };
    if from.0.max(1) < oldest.base {
        return Err(LogError::Removed { path: dir.to_path_buf(), wanted: from.0, first: oldest.base });
    }
    let start =
        files.iter().rposition(|file| file.header.is_ok_and(|header| header.base <= from.0)).unwrap_or(0);
    let mut window = Window::new(16 << 10, 1 << 20);
    let mut at = start;
    while let Some((file, header)) = readable(at) {
        let handle = match storage.open_read(&file.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let first = super::first(storage, dir)?.map_or(0, |first| first.0);
                return Err(LogError::Removed {
                    path: dir.to_path_buf(),
                    wanted: header.base.max(from.0),
                    first,
                });
            }
            other => other.map_err(LogError::io("opening", &file.path))?,
        };
        window.forget();
        let mut place = Place {
            segment: file.index,
            offset: BLOCK as u64,
            next: header.base,
            chain: header.chain,
            holes: header.compacted.is_some(),
        };
        while let Found::Batch(batch) =
            look(&handle, &mut window, &place).map_err(LogError::io("reading", &file.path))?
        {
            for (seq, payload) in Records::new(body(&window, &batch)).flatten() {
                let record = DumpRecord {
                    seq: Seq(seq),
                    segment: file.index,
                    batch_offset: batch.offset,
                    batch_first: batch.first,
                    synced_through: batch.synced_through,
                    payload,
                };
                if seq >= from.0 && f(record).is_break() {
                    return Ok(());
                }
            }
            place.pass(&batch);
        }
        let next = header.compacted.map_or(place.next, |compacted| compacted.end + 1);
        match readable(at + 1) {
            Some((_, following)) if following.base == next => at += 1,
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// The answer of [`stats`]. Sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// First record; last record (`first` − 1 when there is none).
    pub first: u64,
    /// Last record.
    pub last: u64,
    /// Segment files.
    pub segments: u64,
    /// Length of all files.
    pub file_bytes: u64,
    /// Records.
    pub records: u64,
    /// Batches with records: each was one write.
    pub batches: u64,
    /// Empty batches, written when idle.
    pub seals: u64,
    /// Payloads.
    pub payload_bytes: u64,
    /// Headers of records and batches.
    pub header_bytes: u64,
    /// Padding up to full blocks.
    pub padding_bytes: u64,
    /// The longest payload.
    pub longest_record: u64,
    /// The most records in one batch.
    pub largest_batch: u64,
    /// Batches by size: entry `i` counts those of 2^i up to 2^(i+1) − 1 records.
    pub batches_by_size: Vec<u64>,
}

/// Counts what is in a journal, as far as it is readable. A writer may go on meanwhile.
///
/// # Errors
/// [`LogError::Io`].
pub fn stats<S: Storage>(storage: &S, dir: &Path) -> Result<Stats, LogError> {
    beside_retention(|| stats_once(storage, dir))
}

fn stats_once<S: Storage>(storage: &S, dir: &Path) -> Result<Stats, LogError> {
    let mut stats = Stats::default();
    let scan = scan_live(storage, dir, &mut |batch, body| {
        let headers = crate::segment::HEADER + batch.count as usize * RECORD_HEADER;
        stats.header_bytes += headers as u64;
        stats.padding_bytes += (padded(batch.body) - crate::segment::HEADER - batch.body) as u64;
        if batch.count == 0 {
            stats.seals += 1;
            return;
        }
        stats.batches += 1;
        stats.records += u64::from(batch.count);
        stats.largest_batch = stats.largest_batch.max(u64::from(batch.count));
        let bucket = batch.count.ilog2() as usize;
        if stats.batches_by_size.len() <= bucket {
            stats.batches_by_size.resize(bucket + 1, 0);
        }
        stats.batches_by_size[bucket] += 1;
        for (_, payload) in Records::unchecked(body).flatten() {
            stats.payload_bytes += payload.len() as u64;
            stats.longest_record = stats.longest_record.max(payload.len() as u64);
        }
    })?;
    (stats.first, stats.last) = (scan.first, scan.place.next - 1);
    stats.segments = scan.files.len() as u64;
    stats.file_bytes = scan.files.iter().map(|file| file.len).sum();
    Ok(stats)
}
