//! The journal: one writer appends records that are numbered without holes; readers follow.
//!
//! **Law.**
//! - Records go to the disk in the order: write the batch, sync, then say so. [`Journal::sync`] returns only when
//!   everything that was appended before is as durable as [`Durability`] promises.
//! - After a failed write or sync the journal is poisoned: every later call fails. Nothing is tried again, because after
//!   a failed sync the system may have dropped the pages and a second sync would succeed for nothing.
//! - Opening finds every record that was ever synced, or refuses. A torn end that was never synced is cut.
//! - What cannot be told from a tear: damage that hits only the last batch, after it was synced and before anything was
//!   written behind it. [`Journal::seal`] narrows that; only a second copy closes it.

pub mod inspect;
mod prepare;
mod reader;
pub(crate) mod scan;
pub(crate) mod walk;

use std::path::{Path, PathBuf};

use hoga_core::ids::Seq;

pub use inspect::{DumpRecord, Report, SegmentReport, Stats, Verdict, dump, stats, verify};
pub use reader::JournalReader;

pub use crate::segment::Batch;

use self::prepare::{Preparer, Spare, make};
use self::scan::{Depth, End, OnBatch, Scan, scan};
use self::walk::Place;
use crate::error::LogError;
use crate::segment::{
    BLOCK, BatchHeader, HEADER, HeaderFault, MAX_BODY, SEGMENT_BYTES, SegmentHeader, check_offer, crc32c,
    file_name, padded,
};
use crate::storage::{Storage, StorageFile};

/// What [`Journal::sync`] waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The device says that it is stored: survives a power cut. The default.
    #[default]
    Sync,
    /// The system has it: survives the end of the process, not a power cut.
    Write,
    /// As `Write` for the journal; whoever answers does not wait for it at all.
    None,
}

impl Durability {
    /// The name used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Write => "write",
            Durability::None => "none",
        }
    }

    /// The mode of that name.
    pub fn parse(text: &str) -> Option<Durability> {
        [Durability::Sync, Durability::Write, Durability::None].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// Bytes after which an unsynced journal asks for what it wrote to be written back.
const WRITE_BACK: u64 = 1 << 20;

/// How a journal is kept.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Its folder; created when it is missing. One journal to a folder.
    pub dir: PathBuf,
    /// Length of a segment file, 4 KiB to 1 GiB. A larger batch gets a larger segment.
    pub segment_bytes: u64,
    /// What a sync waits for.
    pub durability: Durability,
}

impl JournalConfig {
    /// The default: 64 MiB segments, synced.
    pub fn new(dir: impl Into<PathBuf>) -> JournalConfig {
        JournalConfig { dir: dir.into(), segment_bytes: 64 << 20, durability: Durability::Sync }
    }
}

/// What opening found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// First record that is kept; 1 in a new journal.
    pub first: Seq,
    /// Last record; `first` − 1 when there is none. It is durable.
    pub last: Seq,
    /// Bytes of a torn, never synced end that were cut off.
    pub cut_bytes: u64,
}

/// Settings that only this crate varies.
#[derive(Clone, Copy)]
pub(crate) struct Tuning {
    /// How much of the old segments is read at the start.
    pub(crate) depth: Depth,
    /// Whether the next segment is filled with zeros ahead.
    pub(crate) prefill: bool,
}

struct Active<S: Storage> {
    index: u64,
    file: S::File,
    len: u64,
    /// Where the next batch goes; 0 while the segment has no header.
    offset: u64,
    /// Whether something was written since the last sync.
    dirty: bool,
}

/// The writer of a journal.
pub struct Journal<S: Storage> {
    config: JournalConfig,
    active: Active<S>,
    /// Full segments that a weaker mode left unsynced.
    behind: Vec<S::File>,
    chain: u64,
    /// Room for a segment header and a batch header, then the records that wait to be written.
    buffer: Vec<u8>,
    pending: u32,
    /// Last record appended, written to the file, and known to be on the device.
    appended: u64,
    written: u64,
    synced: u64,
    /// Whether the last batch in the file says that everything before it is durable.
    sealed: bool,
    poison: Option<String>,
    preparer: Preparer<S>,
    /// Where the last batch with records was written since the start.
    location: Option<Place>,
    _lock: S::Lock,
}

const FRONT: usize = BLOCK + HEADER;

impl<S: Storage> Journal<S> {
    /// Opens the journal, or makes a new one. Reads and checks all of it.
    ///
    /// # Errors
    /// [`LogError::Damaged`] when something that was once durable is not there any more; [`LogError::Locked`] when another
    /// process has it; [`LogError::Config`]; [`LogError::Io`].
    pub fn open(storage: S, config: JournalConfig) -> Result<(Journal<S>, Recovery), LogError> {
        Self::open_from(storage, config, Seq(0))
    }

    /// As [`Journal::open`], but leaves segments unread that end before `from`: for a start from a snapshot. A reader
    /// checks what it reads all the same.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_from(
        storage: S,
        config: JournalConfig,
        from: Seq,
    ) -> Result<(Journal<S>, Recovery), LogError> {
        let tuning = Tuning { depth: Depth::From(from.0), prefill: true };
        Self::open_tuned(storage, config, tuning, &mut |_, _| {})
    }

    pub(crate) fn open_tuned(
        storage: S,
        config: JournalConfig,
        tuning: Tuning,
        on_batch: OnBatch<'_>,
    ) -> Result<(Journal<S>, Recovery), LogError> {
        if !SEGMENT_BYTES.contains(&config.segment_bytes) {
            let text = format!(
                "a segment of {} bytes is not possible: choose {} to {} bytes",
                config.segment_bytes,
                SEGMENT_BYTES.start(),
                SEGMENT_BYTES.end()
            );
            return Err(LogError::Config(text));
        }
        let dir = config.dir.clone();
        storage.create_dir(&dir).map_err(LogError::io("creating", &dir))?;
        let lock = storage.lock(&dir).map_err(LogError::io("locking", &dir))?;
        let lock = lock.ok_or_else(|| LogError::Locked { path: dir.clone() })?;
        let scan = scan(&storage, &dir, tuning.depth, on_batch)?;
        if let Some(error) = scan.damage(&dir) {
            return Err(error);
        }
        // Without syncs there is nothing that zeros would make quicker.
        let prefill = tuning.prefill && config.durability == Durability::Sync;
        let mut preparer = Preparer::new(storage.clone(), dir.clone(), config.segment_bytes, prefill);
        let active =
            settle(&storage, &config, &scan, &mut preparer).map_err(LogError::io("recovering", &dir))?;
        let last = scan.place.next - 1;
        let cut_bytes = if let End::Torn(bytes) = scan.end { bytes } else { 0 };
        let recovery = Recovery { first: Seq(scan.first), last: Seq(last), cut_bytes };
        let mut buffer = Vec::with_capacity(FRONT + (64 << 10));
        buffer.resize(FRONT, 0);
        let journal = Journal {
            config,
            active,
            behind: Vec::new(),
            chain: scan.place.chain,
            buffer,
            pending: 0,
            appended: last,
            written: last,
            synced: last,
            sealed: scan.synced_through >= last,
            poison: None,
            preparer,
            location: None,
            _lock: lock,
        };
        Ok((journal, recovery))
    }

    /// Adds records, as [`Batch`] makes them, behind the last one. They are kept in memory until [`Journal::sync`] (or
    /// [`Journal::flush`], or until a few MiB wait): everything that waits goes into one batch, one write, one sync.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`], [`LogError::Malformed`] and [`LogError::TooLarge`] are the caller's bugs and leave the
    /// journal as it was; [`LogError::Io`] and [`LogError::Poisoned`] end it.
    pub fn append(&mut self, first: Seq, count: u32, records: &[u8]) -> Result<(), LogError> {
        self.check_alive()?;
        if first.0 != self.appended + 1 {
            return Err(LogError::OutOfOrder { last: self.appended, got: first.0 });
        }
        let last = check_offer(first.0, count, records, false)?;
        if self.buffer.len() - FRONT + records.len() > MAX_BODY {
            self.flush()?;
        }
        self.buffer.extend_from_slice(records);
        self.pending += count;
        self.appended = last;
        Ok(())
    }

    /// Writes what waits to the file, without a sync: readers can see it, a power cut can lose it.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Poisoned`]: the journal has ended.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.check_alive()?;
        if self.pending == 0 {
            return Ok(());
        }
        self.write_batch().map_err(|error| self.fail(error))
    }

    /// Makes everything that was appended as durable as the configured mode promises; returns the last record.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Poisoned`]: the journal has ended, and nothing since the last successful sync may
    /// be acknowledged.
    pub fn sync(&mut self) -> Result<Seq, LogError> {
        self.flush()?;
        if self.config.durability == Durability::Sync {
            self.sync_device()?;
        }
        Ok(Seq(self.written))
    }

    /// As [`Journal::sync`], but down to the device whatever the mode.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn sync_device(&mut self) -> Result<Seq, LogError> {
        self.flush()?;
        self.sync_files().map_err(|error| self.fail(error))?;
        Ok(Seq(self.written))
    }

    /// Writes an empty batch that says that everything before it is durable, unless one is there already. Called when
    /// there is nothing else to do, it makes damage to the last batch recognisable as damage. It needs no sync itself.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Poisoned`]: the journal has ended.
    pub fn seal(&mut self) -> Result<(), LogError> {
        self.check_alive()?;
        // A seal alone never starts a segment, so that each segment has a record.
        let fits = self.active.offset + BLOCK as u64 <= self.active.len && self.active.offset > 0;
        if self.sealed || self.pending > 0 || self.synced < self.written || !fits {
            return Ok(());
        }
        self.write_batch().map_err(|error| self.fail(error))
    }

    /// Syncs down to the device, seals, and ends the journal in order.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn close(mut self) -> Result<(), LogError> {
        self.sync_device()?;
        self.seal()?;
        self.sync_device()?;
        Ok(())
    }

    /// The last record that was appended.
    pub fn last(&self) -> Seq {
        Seq(self.appended)
    }

    /// The last record that the device has confirmed.
    pub fn synced(&self) -> Seq {
        Seq(self.synced)
    }

    /// How it is kept.
    pub fn config(&self) -> &JournalConfig {
        &self.config
    }

    /// Where the last batch with records was written since the start.
    pub(crate) fn location(&self) -> Option<Place> {
        self.location
    }

    fn check_alive(&self) -> Result<(), LogError> {
        match &self.poison {
            Some(reason) => Err(LogError::Poisoned { path: self.config.dir.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: std::io::Error) -> LogError {
        let path = self.config.dir.join(file_name(self.active.index));
        self.poison = Some(format!("{}: {error}", path.display()));
        LogError::Io { action: "writing", path, source: error }
    }

    /// Writes the waiting records as one batch (an empty one when none wait), in one write.
    fn write_batch(&mut self) -> std::io::Result<()> {
        let body = self.buffer.len() - FRONT;
        let length = padded(body) as u64;
        if self.active.offset.max(BLOCK as u64) + length > self.active.len {
            self.roll(length)?;
        }
        let starts = self.active.offset == 0;
        let offset = self.active.offset.max(BLOCK as u64);
        let mut batch = BatchHeader {
            segment: self.active.index,
            offset,
            body,
            body_crc: crc32c(&self.buffer[FRONT..]),
            first: self.written + 1,
            last: self.appended,
            count: self.pending,
            synced_through: self.synced,
            chain: self.chain,
            crc: 0,
        };
        batch.encode(&mut self.buffer[BLOCK..FRONT]);
        self.buffer.resize(BLOCK + length as usize, 0);
        let from = if starts {
            let base = self.written + 1;
            let header = SegmentHeader {
                index: self.active.index,
                base,
                chain: self.chain,
                synced_through: self.synced,
                compacted: None,
            };
            header.encode(&mut self.buffer[..HEADER]);
            0
        } else {
            BLOCK
        };
        // Set first, so that after a failed write nobody takes the file for synced.
        self.active.dirty = true;
        let result = self.active.file.write_at(offset - (BLOCK - from) as u64, &self.buffer[from..]);
        self.buffer.truncate(FRONT);
        result?;
        if self.pending > 0 {
            self.location = Some(Place {
                segment: self.active.index,
                offset,
                next: batch.first,
                chain: batch.chain,
                holes: false,
            });
        }
        self.sealed = self.synced >= self.appended;
        // What is not synced now is written back as it comes, so that the sync which makes it durable later is not one long flush that
        // everybody else's syncs wait behind. Only a hint: what matters is the sync.
        let end = offset + length;
        if self.config.durability != Durability::Sync && offset / WRITE_BACK != end / WRITE_BACK {
            let start = (offset / WRITE_BACK).saturating_sub(1) * WRITE_BACK;
            self.active.file.start_write_back(start, end - start)?;
        }
        self.active.offset = end;
        self.chain = batch.link();
        self.written = self.appended;
        self.pending = 0;
        if !self.preparer.is_busy() && self.active.offset > self.active.len / 2 {
            self.preparer.start(self.active.index + 1);
        }
        Ok(())
    }

    /// Goes on to the next segment.
    fn roll(&mut self, length: u64) -> std::io::Result<()> {
        let least = BLOCK as u64 + length;
        if self.active.offset == 0 {
            // The segment is still empty and too small for this one batch.
            self.active.file.allocate(least)?;
            self.active.file.sync()?;
            self.active.len = least;
            return Ok(());
        }
        let next = self.preparer.take(self.active.index + 1, least)?;
        let active = Active { index: next.index, file: next.file, len: next.len, offset: 0, dirty: false };
        let old = std::mem::replace(&mut self.active, active);
        if old.dirty {
            match self.config.durability {
                // What is in the old segment must not be less durable than what comes in the new one.
                Durability::Sync => {
                    old.file.sync()?;
                    self.synced = self.written;
                }
                Durability::Write | Durability::None => self.behind.push(old.file),
            }
        }
        Ok(())
    }

    fn sync_files(&mut self) -> std::io::Result<()> {
        for file in self.behind.drain(..) {
            file.sync()?;
        }
        if self.active.dirty {
            self.active.file.sync()?;
            self.active.dirty = false;
        }
        self.synced = self.written;
        Ok(())
    }
}

/// Makes the disk agree with what recovery decided: removes what comes after the end, and makes durable what is kept
/// (after a killed process it may only be in the system's memory).
fn settle<S: Storage>(
    storage: &S,
    config: &JournalConfig,
    scan: &Scan,
    preparer: &mut Preparer<S>,
) -> std::io::Result<Active<S>> {
    let dir = &config.dir;
    let place = &scan.place;
    let torn = matches!(scan.end, End::Torn(_));
    let spare = scan.files.iter().find(|file| file.index == place.segment + 1);
    let mut adopted = None;
    // Later segments first, and the torn place last: until it is overwritten, a crash in between changes no decision.
    for file in scan.files.iter().rev().filter(|file| file.index > place.segment) {
        let reusable = !torn && file.header == Err(HeaderFault::Zero) && file.len == config.segment_bytes;
        if reusable && spare.is_some_and(|spare| spare.index == file.index) {
            adopted = Some(Spare { index: file.index, file: storage.open(&file.path)?, len: file.len });
        } else {
            storage.remove(&file.path)?;
            storage.sync_dir(dir)?;
        }
    }
    for file in scan.files.iter().filter(|file| file.index < place.segment) {
        // Segments whose end is not known to be durable.
        let next_base = scan.files.iter().find(|later| later.index > file.index).map(|later| later.header);
        if let Some(Ok(next)) = next_base
            && next.base > scan.synced_through + 1
        {
            storage.open(&file.path)?.sync()?;
        }
    }
    storage.sync_dir(dir)?;
    let Some(file) = scan.files.iter().find(|file| file.index == place.segment) else {
        let made = make(storage, dir, place.segment, config.segment_bytes, false, &Default::default())?;
        return Ok(Active { index: made.index, file: made.file, len: made.len, offset: 0, dirty: false });
    };
    let handle = storage.open(&file.path)?;
    if scan.compacted {
        // Nothing is appended to a compacted segment.
        handle.sync()?;
        let next = match adopted {
            Some(spare) => spare,
            None => make(storage, dir, place.segment + 1, config.segment_bytes, false, &Default::default())?,
        };
        return Ok(Active { index: next.index, file: next.file, len: next.len, offset: 0, dirty: false });
    }
    let offset = if scan.started { place.offset } else { 0 };
    if torn {
        handle.truncate(offset)?;
    }
    let len = file.len.max(config.segment_bytes).min(*SEGMENT_BYTES.end());
    handle.allocate(len)?;
    handle.sync()?;
    if let Some(spare) = adopted {
        preparer.adopt(spare);
    }
    Ok(Active { index: place.segment, file: handle, len, offset, dirty: false })
}

/// Removes whole segments whose records are all before `seq`, which must be durable. The newest segment stays. Returns
/// how many were removed. Safe beside a writer and readers: a reader that is still there gets [`LogError::Removed`].
///
/// # Errors
/// [`LogError::Io`].
pub fn remove_before<S: Storage>(storage: &S, dir: &Path, seq: Seq) -> Result<usize, LogError> {
    let files = scan::segments(storage, dir)?;
    let mut removed = 0;
    for pair in files.windows(2) {
        let Ok(next) = &pair[1].header else { break };
        if next.base > seq.0 {
            break;
        }
        storage.remove(&pair[0].path).map_err(LogError::io("removing", &pair[0].path))?;
        // One at a time, so that a crash cannot leave a hole.
        storage.sync_dir(dir).map_err(LogError::io("syncing", dir))?;
        removed += 1;
    }
    Ok(removed)
}

/// The first record that is kept and the last segment's first record, from the headers alone; `None` when nothing was
/// written yet.
///
/// # Errors
/// [`LogError::Io`].
pub fn first<S: Storage>(storage: &S, dir: &Path) -> Result<Option<Seq>, LogError> {
    let files = scan::segments(storage, dir)?;
    Ok(files.first().and_then(|file| file.header.as_ref().ok()).map(|header| Seq(header.base)))
}

#[cfg(test)]
mod tests;
