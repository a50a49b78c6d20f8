//! Walking the batches of a segment: the one place that reads them, for recovery, readers and inspection alike.

use std::io;

use crate::segment::{BLOCK, BatchHeader, HEADER, HeaderFault, crc32c, padded};
use crate::storage::StorageFile;

/// A piece of a file in memory. Its length is bounded by the chunk and by the longest batch.
pub(crate) struct Window {
    bytes: Vec<u8>,
    start: u64,
    len: usize,
    chunk: usize,
    least: usize,
    most: usize,
}

impl Window {
    /// A window that reads `chunk` bytes at first, and up to `most` where a file is read through.
    pub(crate) fn new(chunk: usize, most: usize) -> Window {
        Window { bytes: Vec::new(), start: 0, len: 0, chunk, least: chunk, most: most.max(chunk) }
    }

    /// Bytes that it holds.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Forgets what was read, because the file may have changed or is another one. Pieces are small again: whoever follows
    /// the end of a file must not read a large piece of zeros each time.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
        self.chunk = self.least;
    }

    /// The bytes from `offset` on that are in memory.
    fn held(&self, offset: u64) -> &[u8] {
        match offset.checked_sub(self.start) {
            Some(from) if from <= self.len as u64 => &self.bytes[from as usize..self.len],
            _ => &[],
        }
    }

    /// Bytes from `offset` on: at least `want`, unless the file ends before. Says whether it had to read.
    pub(crate) fn fill<F: StorageFile>(
        &mut self,
        file: &F,
        offset: u64,
        want: usize,
    ) -> io::Result<(&[u8], bool)> {
        if self.held(offset).len() >= want {
            return Ok((self.held(offset), false));
        }
        // Reading on where the last piece ended is reading through: larger pieces pay.
        let through = self.len > 0 && offset > self.start && offset <= self.start + self.len as u64;
        self.chunk = if through { (self.chunk * 2).min(self.most) } else { self.chunk };
        let len = want.max(self.chunk);
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.len = 0;
        self.len = file.read_at(offset, &mut self.bytes[..len])?;
        self.start = offset;
        Ok((&self.bytes[..self.len], true))
    }
}

/// Where a walk is, and what must come there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the segment.
    pub(crate) segment: u64,
    /// Offset of the next batch.
    pub(crate) offset: u64,
    /// Sequence that must come next.
    pub(crate) next: u64,
    /// Chain value that must come next.
    pub(crate) chain: u64,
    /// Whether sequences may be left out (in a compacted segment).
    pub(crate) holes: bool,
}

impl Place {
    /// Moves behind a batch.
    pub(crate) fn pass(&mut self, batch: &BatchHeader) {
        self.offset += padded(batch.body) as u64;
        self.next = batch.last + 1;
        self.chain = batch.link();
    }
}

/// What is found at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The batch that belongs there; its records are in the window.
    Batch(BatchHeader),
    /// Nothing was written there, or the file ends.
    Nothing,
    /// Something that a write which did not finish can leave behind.
    Unfinished(&'static str),
    /// Something that no unfinished write can leave behind.
    Wrong(&'static str),
}

/// Looks at the batch at `place`. When what is in memory does not hold it, the file is read again, since a writer may
/// have gone on.
pub(crate) fn look<F: StorageFile>(file: &F, window: &mut Window, place: &Place) -> io::Result<Found> {
    let (found, fresh) = look_once(file, window, place)?;
    if fresh || matches!(found, Found::Batch(_)) {
        return Ok(found);
    }
    window.forget();
    Ok(look_once(file, window, place)?.0)
}

fn look_once<F: StorageFile>(file: &F, window: &mut Window, place: &Place) -> io::Result<(Found, bool)> {
    let (bytes, read) = window.fill(file, place.offset, HEADER)?;
    let header = match BatchHeader::decode(bytes) {
        Ok(header) => header,
        Err(HeaderFault::Zero) => return Ok((Found::Nothing, read)),
        Err(HeaderFault::Broken) => {
            return Ok((Found::Unfinished("the checksum of the batch header does not hold"), read));
        }
        Err(HeaderFault::Impossible) => {
            return Ok((Found::Wrong("the batch header has a valid checksum and an impossible field"), read));
        }
    };
    if let Err(what) = check_place(&header, place) {
        return Ok((Found::Wrong(what), read));
    }
    let total = HEADER + header.body;
    let (bytes, read_body) = window.fill(file, place.offset, total)?;
    let fresh = read || read_body;
    let Some(body) = bytes.get(HEADER..total) else {
        return Ok((Found::Unfinished("the file ends inside the batch"), fresh));
    };
    if crc32c(body) != header.body_crc {
        return Ok((Found::Unfinished("the checksum of the batch's records does not hold"), fresh));
    }
    Ok((Found::Batch(header), fresh))
}

fn check_place(header: &BatchHeader, place: &Place) -> Result<(), &'static str> {
    if header.segment != place.segment || header.offset != place.offset {
        return Err(
            "a batch that belongs to another place is there (misdirected write, or files were exchanged)",
        );
    }
    if header.first != place.next && !(place.holes && header.first > place.next) {
        return Err("the batch there starts with another sequence");
    }
    if header.chain != place.chain {
        return Err("the batch there does not continue the chain (it is from another history)");
    }
    let span = header.last - (header.first - 1);
    if !place.holes && u64::from(header.count) != span {
        return Err("the batch there has holes");
    }
    if header.synced_through >= header.first {
        return Err("the batch there says that it was durable before it was written");
    }
    Ok(())
}

/// The records of the batch that [`look`] found.
pub(crate) fn body<'a>(window: &'a Window, batch: &BatchHeader) -> &'a [u8] {
    let held = window.held(batch.offset);
    held.get(HEADER..HEADER + batch.body).unwrap_or_default()
}

/// What the rest of a segment says about what was durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// The highest `synced_through` in any batch header that is at its place.
    pub(crate) synced_through: u64,
    /// The end of the last block that is not zero; 0 when all are.
    pub(crate) end: u64,
}

/// Looks through a segment from `from` (a multiple of the block) to its end, batch or not.
pub(crate) fn evidence<F: StorageFile>(file: &F, segment: u64, from: u64) -> io::Result<Evidence> {
    const CHUNK: u64 = 1 << 20;
    let len = file.len()?.saturating_sub(from).min(CHUNK);
    let mut bytes = vec![0; (len as usize).next_multiple_of(BLOCK).max(BLOCK)];
    let mut found = Evidence::default();
    let mut offset = from;
    loop {
        let len = file.read_at(offset, &mut bytes)?;
        for (number, block) in bytes[..len].chunks(BLOCK).enumerate() {
            // OR over the whole block compiles to vector instructions; most blocks of a fresh segment are zero.
            if block.iter().fold(0, |all, byte| all | byte) == 0 {
                continue;
            }
            let at = offset + (number * BLOCK) as u64;
            found.end = at + block.len() as u64;
            if let Ok(header) = BatchHeader::decode(block)
                && header.segment == segment
                && header.offset == at
            {
                found.synced_through = found.synced_through.max(header.synced_through);
            }
        }
        if len < bytes.len() {
            return Ok(found);
        }
        offset += len as u64;
    }
}
