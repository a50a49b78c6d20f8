//! Reading a journal, also while it is written.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use hoga_core::ids::Seq;

use super::scan::{SegmentFile, segments};
use super::walk::{Found, Place, Window, body, look};
use crate::error::LogError;
use crate::segment::{BLOCK, BatchHeader, HeaderFault, Records, SegmentHeader, file_name};
use crate::storage::Storage;

/// Follows a journal from a given record on, across segments. It takes no lock and may run beside the writer, in the same
/// process or in another one; it reads only up to the record that it is told is durable.
pub struct JournalReader<S: Storage> {
    storage: S,
    dir: PathBuf,
    /// The open segment; none before the journal has one.
    segment: Option<(S::File, SegmentHeader)>,
    place: Place,
    window: Window,
    /// The batch that is being handed out, and how much of it was.
    current: Option<(BatchHeader, usize)>,
    /// The record that comes next.
    next: u64,
}

impl<S: Storage> JournalReader<S> {
    /// A reader that starts at record `from` (0 and 1 both mean the first there ever was). The journal need not exist yet.
    ///
    /// # Errors
    /// [`LogError::Removed`] when `from` is no longer kept; [`LogError::Io`].
    pub fn open(storage: S, dir: impl Into<PathBuf>, from: Seq) -> Result<JournalReader<S>, LogError> {
        let mut reader = JournalReader {
            storage,
            dir: dir.into(),
            segment: None,
            place: Place { segment: 1, offset: 0, next: 1, chain: 0, holes: false },
            window: Window::new(16 << 10, 1 << 20),
            current: None,
            next: from.0.max(1),
        };
        if reader.storage.exists(&reader.dir).map_err(LogError::io("looking for", &reader.dir))? {
            reader.find()?;
        }
        Ok(reader)
    }

    /// The record that the next read starts with.
    pub fn position(&self) -> Seq {
        Seq(self.next)
    }

    /// Hands over records in order, up to and with `upto` (which must be durable, or at least written) and at most `max`
    /// of them, or until `f` breaks; the record at which it breaks counts as read. Returns the last one read so far (the
    /// one before the start, when none was).
    ///
    /// # Errors
    /// [`LogError::Damaged`] when a record up to `upto` is not there or not what was written; [`LogError::Removed`] when
    /// retention has overtaken the reader; [`LogError::Io`].
    pub fn read(
        &mut self,
        upto: Seq,
        max: usize,
        mut f: impl FnMut(Seq, &[u8]) -> ControlFlow<()>,
    ) -> Result<Seq, LogError> {
        let mut left = max;
        while left > 0 && self.next <= upto.0 {
            let (batch, mut at) = match self.current.take() {
                Some(current) => current,
                None => (self.next_batch()?, 0),
            };
            let bytes = body(&self.window, &batch);
            let mut records = Records::new(bytes.get(at..).unwrap_or_default());
            let mut stop = false;
            while left > 0 && !stop && self.next <= upto.0 {
                let Some(record) = records.next() else { break };
                let (seq, payload) = record.map_err(|what| self.damaged(batch.offset, what))?;
                at = batch.body - records.rest().len();
                if seq < self.next {
                    continue;
                }
                if seq > batch.last || (seq != self.next && !self.place.holes) {
                    return Err(self.damaged(batch.offset, "a record in the batch has another sequence"));
                }
                left -= 1;
                self.next = seq + 1;
                stop = f(Seq(seq), payload).is_break();
            }
            if at < batch.body {
                if left > 0 && !stop && self.next <= upto.0 {
                    return Err(self.damaged(batch.offset, "the batch there ends before its records do"));
                }
                self.current = Some((batch, at));
            } else {
                self.next = self.next.max(batch.last + 1);
            }
            if stop {
                break;
            }
        }
        Ok(Seq(self.next - 1))
    }

    /// The next batch that has a record from `next` on, in the window.
    fn next_batch(&mut self) -> Result<BatchHeader, LogError> {
        loop {
            if self.segment.is_none() {
                self.find()?;
            }
            let Some((file, header)) = &self.segment else {
                return Err(self.damaged(0, "no segment of the journal has it"));
            };
            let path = self.dir.join(file_name(self.place.segment));
            match look(file, &mut self.window, &self.place).map_err(LogError::io("reading", &path))? {
                Found::Batch(batch) => {
                    self.place.pass(&batch);
                    if batch.last >= self.next {
                        return Ok(batch);
                    }
                }
                Found::Nothing => {
                    let (next, chain) = match header.compacted {
                        Some(compacted) if compacted.bytes == self.place.offset => {
                            (compacted.end + 1, compacted.end_chain)
                        }
                        Some(_) => {
                            return Err(self.damaged(self.place.offset, "the segment is shorter than it was"));
                        }
                        None => (self.place.next, self.place.chain),
                    };
                    self.next = self.next.max(next);
                    self.cross(next, chain)?;
                }
                Found::Unfinished(what) | Found::Wrong(what) => {
                    return Err(self.damaged(self.place.offset, what));
                }
            }
        }
    }

    /// Finds the segment that has record `next`.
    fn find(&mut self) -> Result<(), LogError> {
        let files = segments(&self.storage, &self.dir)?;
        let started: Vec<(&SegmentFile, SegmentHeader)> =
            files.iter().filter_map(|file| Some((file, *file.header.as_ref().ok()?))).collect();
        let Some((_, oldest)) = started.first() else {
            // Nothing was written yet; a broken header is found when the record is asked for.
            return Ok(());
        };
        if oldest.base > self.next {
            return Err(self.removed(oldest.base));
        }
        match started.iter().rev().find(|(_, header)| header.base <= self.next) {
            Some((file, header)) => self.enter(file, *header),
            None => Ok(()),
        }
    }

    fn enter(&mut self, file: &SegmentFile, header: SegmentHeader) -> Result<(), LogError> {
        let handle = match self.storage.open_read(&file.path) {
            Ok(handle) => handle,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(self.removed(header.base + 1));
            }
            Err(error) => return Err(LogError::io("opening", &file.path)(error)),
        };
        self.segment = Some((handle, header));
        self.place = Place {
            segment: file.index,
            offset: BLOCK as u64,
            next: header.base,
            chain: header.chain,
            holes: header.compacted.is_some(),
        };
        self.window.forget();
        Ok(())
    }

    /// Goes on to the segment that starts with record `next`.
    fn cross(&mut self, next: u64, chain: u64) -> Result<(), LogError> {
        let files = segments(&self.storage, &self.dir)?;
        let here = self.place.segment;
        let Some(file) = files.iter().find(|file| file.index > here) else {
            return Err(self.damaged(self.place.offset, "nothing is there, and no later segment has it"));
        };
        match file.header {
            Ok(header) if header.base == next && header.chain == chain => self.enter(file, header),
            Ok(header) if header.base > next && file.index > here + 1 => Err(self.removed(header.base)),
            Err(HeaderFault::Zero) => {
                Err(self
                    .damaged(self.place.offset, "nothing is there, and the next segment was never written"))
            }
            _ => Err(self
                .damaged(self.place.offset, "nothing is there, and the next segment does not continue it")),
        }
    }

    fn damaged(&self, offset: u64, what: &str) -> LogError {
        LogError::Damaged {
            path: self.dir.join(file_name(self.place.segment)),
            offset,
            expected: self.next,
            what: what.into(),
        }
    }

    fn removed(&self, first: u64) -> LogError {
        LogError::Removed { path: self.dir.clone(), wanted: self.next, first }
    }

    /// Bytes that the reader holds.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.window.memory()
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
