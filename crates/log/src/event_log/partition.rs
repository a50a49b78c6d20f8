//! One partition: a journal whose record `n` is the message at offset `n` − 1, and an index for reading it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use hoga_core::ids::Seq;

use super::embedded::{Consumed, EmbeddedConfig};
use super::{Message, StoredMessage, message};
use crate::error::LogError;
use crate::journal::scan::{Depth, segments};
use crate::journal::walk::{Found, Place, Window, body, look};
use crate::journal::{Batch, Durability, Journal, JournalConfig, Tuning, remove_before};
use crate::ring::Cursor;
use crate::segment::{BLOCK, RECORD_HEADER, Records, SegmentHeader, file_name};
use crate::storage::{Storage, StorageFile};

/// Records of one call are written in pieces of about this size.
const PIECE: usize = 1 << 20;
/// One read returns about this much at most.
const READ_LIMIT: usize = 4 << 20;
/// A mark is kept for each so many bytes of a segment that were read.
const MARK_EVERY: u64 = 16 << 10;
/// Windows that are kept for the next reader.
const WINDOWS: usize = 4;

/// A segment that can be read.
pub(super) struct Segment<S: Storage> {
    pub(super) index: u64,
    pub(super) header: SegmentHeader,
    pub(super) file: S::File,
    pub(super) path: PathBuf,
    /// Places of batches, in order, some distance apart: where a read can start. Readers add them as they go.
    marks: Mutex<Vec<Place>>,
}

impl<S: Storage> Segment<S> {
    pub(super) fn open(storage: &S, path: PathBuf, header: SegmentHeader) -> Result<Segment<S>, LogError> {
        let file = storage.open(&path).map_err(LogError::io("opening", &path))?;
        Ok(Segment { index: header.index, header, file, path, marks: Mutex::default() })
    }

    pub(super) fn start(&self) -> Place {
        Place {
            segment: self.index,
            offset: BLOCK as u64,
            next: self.header.base,
            chain: self.header.chain,
            holes: self.header.compacted.is_some(),
        }
    }

    /// The nearest known place at or before a record.
    fn place_for(&self, seq: u64) -> Place {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let after = marks.partition_point(|mark| mark.next <= seq);
        after.checked_sub(1).map_or_else(|| self.start(), |at| marks[at])
    }

    fn mark(&self, place: &Place) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let last = marks.last().map_or(BLOCK as u64, |mark| mark.offset);
        if place.offset >= last + MARK_EVERY {
            marks.push(*place);
        }
    }

    pub(super) fn damaged(&self, place: &Place, what: &str) -> LogError {
        LogError::Damaged {
            path: self.path.clone(),
            offset: place.offset,
            expected: place.next,
            what: what.into(),
        }
    }
}

struct Writer<S: Storage> {
    journal: Journal<S>,
    batch: Batch,
}

/// A partition.
pub(super) struct Partition<S: Storage> {
    storage: S,
    pub(super) dir: PathBuf,
    durability: Durability,
    writer: Mutex<Writer<S>>,
    /// Started segments by index; the last one is written.
    segments: RwLock<Vec<Arc<Segment<S>>>>,
    /// The offset after the last message.
    pub(super) end: Cursor,
    windows: Mutex<Vec<Window>>,
    /// One maintenance at a time.
    pub(super) maintenance: Mutex<()>,
}

impl<S: Storage> Partition<S> {
    pub(super) fn open(storage: S, dir: &Path, config: &EmbeddedConfig) -> Result<Partition<S>, LogError> {
        storage.create_dir(dir).map_err(LogError::io("creating", dir))?;
        super::compact::clean_up(&storage, dir)?;
        let journal_config = JournalConfig {
            dir: dir.to_path_buf(),
            segment_bytes: config.segment_bytes,
            durability: config.durability,
        };
        let tuning = Tuning { depth: Depth::Tail, prefill: false };
        let (journal, recovery) =
            Journal::open_tuned(storage.clone(), journal_config, tuning, &mut |_, _| {})?;
        let mut readable = Vec::new();
        for file in segments(&storage, dir)? {
            if let Ok(header) = file.header {
                readable.push(Arc::new(Segment::open(&storage, file.path, header)?));
            }
        }
        Ok(Partition {
            storage,
            dir: dir.to_path_buf(),
            durability: config.durability,
            writer: Mutex::new(Writer { journal, batch: Batch::new() }),
            segments: RwLock::new(readable),
            end: Cursor::new(recovery.last.0),
            windows: Mutex::default(),
            maintenance: Mutex::default(),
        })
    }

    fn writer(&self) -> MutexGuard<'_, Writer<S>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn segments(&self) -> Vec<Arc<Segment<S>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn append<'a>(&self, messages: impl Iterator<Item = &'a Message<'a>>) -> Result<(), LogError> {
        let mut writer = self.writer();
        for message in messages {
            let full = writer.batch.len() + RECORD_HEADER + message::encoded_len(message) > PIECE;
            if full && !writer.batch.is_empty() {
                self.write(&mut writer)?;
            }
            let seq = Seq(writer.journal.last().0 + u64::from(writer.batch.count()) + 1);
            writer.batch.push_with(seq, |bytes| message::encode(message, bytes));
        }
        self.write(&mut writer)?;
        if self.durability == Durability::Sync {
            writer.journal.sync()?;
        }
        self.publish(writer.journal.last().0);
        Ok(())
    }

    /// Hands the batch to the file.
    fn write(&self, writer: &mut Writer<S>) -> Result<(), LogError> {
        let Writer { journal, batch } = writer;
        if batch.is_empty() {
            return Ok(());
        }
        let result =
            journal.append(batch.first(), batch.count(), batch.records()).and_then(|()| journal.flush());
        batch.clear();
        result?;
        let Some(place) = journal.location() else { return Ok(()) };
        let known =
            self.segments.read().unwrap_or_else(PoisonError::into_inner).last().map(|last| last.index);
        if known != Some(place.segment) {
            let header = SegmentHeader {
                index: place.segment,
                base: place.next,
                chain: place.chain,
                synced_through: 0,
                compacted: None,
            };
            let segment = Segment::open(&self.storage, self.dir.join(file_name(place.segment)), header)?;
            self.segments.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(segment));
        }
        // What was written is visible even if a later piece of the same call fails.
        if self.durability != Durability::Sync {
            self.publish(journal.last().0);
        }
        Ok(())
    }

    fn publish(&self, end: u64) {
        self.end.advance(end);
    }

    /// Down to the device.
    pub(super) fn sync(&self) -> Result<u64, LogError> {
        Ok(self.writer().journal.sync_device()?.0)
    }

    pub(super) fn start_offset(&self) -> u64 {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.first().map_or(0, |segment| segment.header.base - 1)
    }

    /// The last message. Neither retention nor compaction ever removes it.
    pub(super) fn tail(&self) -> Result<Option<StoredMessage>, LogError> {
        let mut found = Vec::new();
        if let Some(offset) = self.end.get().checked_sub(1) {
            self.read(offset, 1, &mut found)?;
        }
        Ok(found.pop())
    }

    pub(super) fn read(
        &self,
        offset: u64,
        max_messages: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        // The end first: what was written before it was published is then certainly in the list of segments.
        let end = self.end.get();
        let all = self.segments();
        let Some(first) = all.first() else { return Ok(offset) };
        let mut next = (offset + 1).max(first.header.base);
        if next > end {
            return Ok(offset.max(next - 1));
        }
        let mut window = self.windows.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut window = window.take().unwrap_or_else(|| Window::new(16 << 10, 1 << 20));
        let at = all.partition_point(|segment| segment.header.base <= next).saturating_sub(1);
        let mut task = Read { next, end, left: max_messages, bytes: 0 };
        for (segment, at) in all[at..].iter().zip(at..) {
            window.forget();
            let following = all.get(at + 1).map(|following| following.header);
            task.segment(&**segment, following, &mut window, out)?;
            if task.is_done() {
                break;
            }
        }
        next = task.next;
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() < WINDOWS {
            windows.push(window);
        }
        Ok(next - 1)
    }

    /// Removes the oldest segments while the partition is larger than `retention_bytes` and all their messages were
    /// consumed. Returns how many went, and whether some were held back.
    pub(super) fn retain(
        &self,
        retention_bytes: u64,
        consumed: &Consumed<'_, S>,
    ) -> Result<(u64, bool), LogError> {
        let _one = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = consumed.limit();
        let all = self.segments();
        let mut sizes = Vec::with_capacity(all.len());
        for segment in &all {
            sizes.push(segment.file.len().map_err(LogError::io("measuring", &segment.path))?);
        }
        let mut bytes = sizes.iter().sum::<u64>();
        let (mut gone, mut held) = (0, false);
        while bytes > retention_bytes && gone + 1 < all.len() {
            if all[gone + 1].header.base - 1 > limit {
                held = true;
                break;
            }
            bytes -= sizes[gone];
            gone += 1;
        }
        if gone > 0 {
            // A tail that a power cut might take must not be all that is left.
            self.sync()?;
            consumed.sync()?;
            self.segments.write().unwrap_or_else(PoisonError::into_inner).drain(..gone);
            remove_before(&self.storage, &self.dir, Seq(all[gone].header.base))?;
        }
        Ok((gone as u64, held))
    }

    /// Puts one compacted segment in the place of those that it stands for.
    pub(super) fn replace(&self, through: u64, with: Segment<S>) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        let from = segments.partition_point(|segment| segment.header.base < with.header.base);
        let to = segments.partition_point(|segment| segment.index <= through);
        segments.splice(from..to, [Arc::new(with)]);
    }

    pub(super) fn storage(&self) -> &S {
        &self.storage
    }
}

/// A read on its way through the segments. `next` and `end` are sequences: offset + 1.
struct Read {
    next: u64,
    end: u64,
    left: usize,
    bytes: usize,
}

impl Read {
    fn is_done(&self) -> bool {
        self.left == 0 || self.next > self.end || self.bytes >= READ_LIMIT
    }

    fn segment<S: Storage>(
        &mut self,
        segment: &Segment<S>,
        following: Option<SegmentHeader>,
        window: &mut Window,
        out: &mut Vec<StoredMessage>,
    ) -> Result<(), LogError> {
        let mut place = segment.place_for(self.next);
        while !self.is_done() {
            segment.mark(&place);
            match look(&segment.file, window, &place).map_err(LogError::io("reading", &segment.path))? {
                Found::Batch(batch) => {
                    let here = place;
                    place.pass(&batch);
                    if batch.last < self.next {
                        continue;
                    }
                    self.records(segment, &here, body(window, &batch), out)?;
                    if self.left > 0 {
                        self.next = self.next.max(batch.last + 1);
                    }
                }
                Found::Nothing => {
                    let (next, chain, whole) = match segment.header.compacted {
                        Some(compacted) => {
                            (compacted.end + 1, compacted.end_chain, compacted.bytes == place.offset)
                        }
                        None => (place.next, place.chain, true),
                    };
                    let continued =
                        following.is_some_and(|header| header.base == next && header.chain == chain);
                    if !whole || !continued {
                        return Err(segment
                            .damaged(&place, "nothing is there, and the next segment does not continue it"));
                    }
                    self.next = self.next.max(next);
                    return Ok(());
                }
                Found::Unfinished(what) | Found::Wrong(what) => return Err(segment.damaged(&place, what)),
            }
        }
        Ok(())
    }

    fn records<S: Storage>(
        &mut self,
        segment: &Segment<S>,
        place: &Place,
        bytes: &[u8],
        out: &mut Vec<StoredMessage>,
    ) -> Result<(), LogError> {
        for record in Records::new(bytes) {
            let (seq, payload) = record.map_err(|what| segment.damaged(place, what))?;
            if seq < self.next {
                continue;
            }
            if seq > self.end || self.left == 0 {
                break;
            }
            let found = message::decode(payload)
                .ok_or_else(|| segment.damaged(place, "a record in it is not a message of the event log"))?;
            out.push(StoredMessage::new(seq - 1, &found));
            self.next = seq + 1;
            self.left -= 1;
            self.bytes += payload.len();
        }
        Ok(())
    }
}
