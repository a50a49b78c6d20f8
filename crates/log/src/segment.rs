//! The format of a segment file, shared by the journal and the event log.
//!
//! All numbers are little-endian; all checksums are CRC-32C. A file is named by its index, `00000001.seg`, and is
//! allocated to its full length with zeros before it is used, so that writing never changes its length.
//!
//! ```text
//! block 0      segment header (64 bytes, then zeros): magic, crc, version, flags, index, base sequence, chain, synced_through, …
//! block 1…     batches, each starting at a multiple of 512 bytes (the least that a device writes as one, so that writing
//!              one batch cannot tear the one before)
//!
//! batch        header (64 bytes), then records, then zeros up to the next block
//!   0  magic u32            4  crc u32 of bytes 8..64
//!   8  segment index u64   16  offset in the file u32     20  length of the records u32
//!  24  first sequence u64  32  count u32                  36  crc u32 of the records
//!  40  synced_through u64  48  chain u64                  56  last sequence u64
//! record       crc u32 of the rest, length of the payload u32, sequence u64, payload
//! ```
//!
//! *Index* and *offset* say where the batch belongs, so a block that a device wrote elsewhere is recognised. *Chain* ties
//! each batch to all before it. *Synced_through* is the last sequence that was durable when the batch was written: a hole
//! in front of a batch is a torn, never acknowledged tail only when no later batch says that the hole was once durable.

use crate::error::LogError;

/// Alignment of batches, in bytes.
pub const BLOCK: usize = 512;
/// Length of a batch header and of the meaningful part of a segment header.
pub const HEADER: usize = 64;
/// Length of a record's header.
pub const RECORD_HEADER: usize = 16;
/// Longest payload of one record.
pub const MAX_RECORD: usize = 1 << 20;
/// Longest body (all records with their headers) of one batch.
pub const MAX_BODY: usize = 4 << 20;
/// Shortest and longest segment that may be configured.
pub const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 30;

const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"HgB1");
const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"HgS1");
const VERSION: u16 = 1;
const FLAG_COMPACTED: u16 = 1;

/// CRC-32C (Castagnoli).
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The length that a batch with this body takes in the file.
pub fn padded(body: usize) -> usize {
    (HEADER + body).next_multiple_of(BLOCK)
}

/// The name of a segment file.
pub fn file_name(index: u64) -> String {
    format!("{index:08}.seg")
}

/// The index in the name of a segment file; `None` for any other file.
pub fn parse_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    if digits.len() < 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let index = digits.parse().ok()?;
    (file_name(index) == name).then_some(index)
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// All zero: never written.
    Zero,
    /// Neither zero nor a header, or its checksum does not hold.
    Broken,
    /// The checksum holds, but a field cannot be (a newer version, a length over the limits).
    Impossible,
}

/// The first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Index of the segment, as in its name.
    pub index: u64,
    /// The sequence of its first record.
    pub base: u64,
    /// The chain value with which its first batch starts.
    pub chain: u64,
    /// The last durable sequence when it was started.
    pub synced_through: u64,
    /// Set when the segment was written by compaction.
    pub compacted: Option<Compacted>,
}

/// What a compacted segment knows about the segments it stands for. It was complete and synced before it got its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The last sequence that was in them; the next segment starts after it.
    pub end: u64,
    /// The chain value after them.
    pub end_chain: u64,
    /// The length of the compacted file.
    pub bytes: u64,
}

impl SegmentHeader {
    /// Writes the header into the first [`HEADER`] bytes of `into`.
    pub fn encode(&self, into: &mut [u8]) {
        let compacted = self.compacted.unwrap_or(Compacted { end: 0, end_chain: 0, bytes: 0 });
        let flags = if self.compacted.is_some() { FLAG_COMPACTED } else { 0 };
        into[0..4].copy_from_slice(&SEGMENT_MAGIC.to_le_bytes());
        into[8..10].copy_from_slice(&VERSION.to_le_bytes());
        into[10..12].copy_from_slice(&flags.to_le_bytes());
        // Below 2^32 segments: at one second each that is more than a century.
        into[12..16].copy_from_slice(&(self.index as u32).to_le_bytes());
        into[16..24].copy_from_slice(&self.base.to_le_bytes());
        into[24..32].copy_from_slice(&self.chain.to_le_bytes());
        into[32..40].copy_from_slice(&self.synced_through.to_le_bytes());
        into[40..48].copy_from_slice(&compacted.end.to_le_bytes());
        into[48..56].copy_from_slice(&compacted.end_chain.to_le_bytes());
        into[56..64].copy_from_slice(&compacted.bytes.to_le_bytes());
        let crc = crc32c(&into[8..HEADER]);
        into[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderFault> {
        let Some(bytes) = bytes.get(..HEADER) else { return Err(HeaderFault::Zero) };
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(HeaderFault::Zero);
        }
        if u32_at(bytes, 0) != SEGMENT_MAGIC || u32_at(bytes, 4) != crc32c(&bytes[8..HEADER]) {
            return Err(HeaderFault::Broken);
        }
        let (version, flags) = (u32_at(bytes, 8) as u16, (u32_at(bytes, 8) >> 16) as u16);
        if version != VERSION || flags & !FLAG_COMPACTED != 0 {
            return Err(HeaderFault::Impossible);
        }
        let compacted =
            Compacted { end: u64_at(bytes, 40), end_chain: u64_at(bytes, 48), bytes: u64_at(bytes, 56) };
        Ok(SegmentHeader {
            index: u64::from(u32_at(bytes, 12)),
            base: u64_at(bytes, 16),
            chain: u64_at(bytes, 24),
            synced_through: u64_at(bytes, 32),
            compacted: (flags & FLAG_COMPACTED != 0).then_some(compacted),
        })
    }
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Index of the segment it belongs to.
    pub segment: u64,
    /// Where in the file it belongs.
    pub offset: u64,
    /// Length of its records.
    pub body: usize,
    /// Checksum of its records.
    pub body_crc: u32,
    /// Sequence of its first record; of the next record to come when it has none (a seal).
    pub first: u64,
    /// Sequence of its last record; `first` − 1 when it has none.
    pub last: u64,
    /// Number of records.
    pub count: u32,
    /// The last sequence that was durable when it was written.
    pub synced_through: u64,
    /// Chain value of the batches before it.
    pub chain: u64,
    /// Checksum of this header; filled in by encode and decode.
    pub crc: u32,
}

impl BatchHeader {
    /// Writes the header into the first [`HEADER`] bytes of `into`, and fills in its checksum.
    pub fn encode(&mut self, into: &mut [u8]) {
        into[0..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
        into[8..16].copy_from_slice(&self.segment.to_le_bytes());
        into[16..20].copy_from_slice(&(self.offset as u32).to_le_bytes());
        into[20..24].copy_from_slice(&(self.body as u32).to_le_bytes());
        into[24..32].copy_from_slice(&self.first.to_le_bytes());
        into[32..36].copy_from_slice(&self.count.to_le_bytes());
        into[36..40].copy_from_slice(&self.body_crc.to_le_bytes());
        into[40..48].copy_from_slice(&self.synced_through.to_le_bytes());
        into[48..56].copy_from_slice(&self.chain.to_le_bytes());
        into[56..64].copy_from_slice(&self.last.to_le_bytes());
        self.crc = crc32c(&into[8..HEADER]);
        into[4..8].copy_from_slice(&self.crc.to_le_bytes());
    }

    /// Reads a header. Lengths in it are within the limits of the format.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn decode(bytes: &[u8]) -> Result<BatchHeader, HeaderFault> {
        let Some(bytes) = bytes.get(..HEADER) else { return Err(HeaderFault::Zero) };
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(HeaderFault::Zero);
        }
        let crc = u32_at(bytes, 4);
        if u32_at(bytes, 0) != BATCH_MAGIC || crc != crc32c(&bytes[8..HEADER]) {
            return Err(HeaderFault::Broken);
        }
        let header = BatchHeader {
            segment: u64_at(bytes, 8),
            offset: u64::from(u32_at(bytes, 16)),
            body: u32_at(bytes, 20) as usize,
            first: u64_at(bytes, 24),
            count: u32_at(bytes, 32),
            body_crc: u32_at(bytes, 36),
            synced_through: u64_at(bytes, 40),
            chain: u64_at(bytes, 48),
            last: u64_at(bytes, 56),
            crc,
        };
        let span = header.last.wrapping_sub(header.first).wrapping_add(1);
        let possible = header.body <= MAX_BODY
            && header.first > 0
            && header.last != u64::MAX
            && header.last >= header.first - 1
            && u64::from(header.count) <= span
            && header.count as usize <= header.body / RECORD_HEADER;
        if possible { Ok(header) } else { Err(HeaderFault::Impossible) }
    }

    /// The chain value after this batch.
    pub fn link(&self) -> u64 {
        // The header's checksum covers the chain before it and the checksum of the records.
        let mut z = self.chain ^ (u64::from(self.crc) << 32 | u64::from(self.body_crc));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Collects records for one append. Reused, it allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    first: u64,
    last: u64,
    count: u32,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// An empty batch with room for `bytes` bytes of records and their headers.
    pub fn with_capacity(bytes: usize) -> Batch {
        Batch { bytes: Vec::with_capacity(bytes), ..Batch::default() }
    }

    /// Adds a record.
    ///
    /// # Panics
    /// When the payload is longer than [`MAX_RECORD`], or the sequence does not grow: both are bugs in the caller.
    pub fn push(&mut self, seq: hoga_core::ids::Seq, payload: &[u8]) {
        self.push_with(seq, |bytes| bytes.extend_from_slice(payload));
    }

    /// Adds a record whose payload `write` appends to the bytes it is given (it must only append).
    ///
    /// # Panics
    /// As [`Batch::push`].
    pub fn push_with(&mut self, seq: hoga_core::ids::Seq, write: impl FnOnce(&mut Vec<u8>)) {
        let seq = seq.0;
        assert!(seq > self.last, "record {seq} pushed after record {}", self.last);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER]);
        write(&mut self.bytes);
        let payload = self.bytes.len() - start - RECORD_HEADER;
        assert!(payload <= MAX_RECORD, "record {seq} has {payload} bytes, more than {MAX_RECORD}");
        let record = &mut self.bytes[start..];
        record[4..8].copy_from_slice(&(payload as u32).to_le_bytes());
        record[8..16].copy_from_slice(&seq.to_le_bytes());
        let crc = crc32c(&record[4..]);
        record[0..4].copy_from_slice(&crc.to_le_bytes());
        if self.count == 0 {
            self.first = seq;
        }
        self.last = seq;
        self.count += 1;
    }

    /// The records, ready for [`crate::journal::Journal::append`].
    pub fn records(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of records.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sequence of the first record; 0 when there is none.
    pub fn first(&self) -> hoga_core::ids::Seq {
        hoga_core::ids::Seq(if self.count == 0 { 0 } else { self.first })
    }

    /// Sequence of the last record; 0 when there is none.
    pub fn last(&self) -> hoga_core::ids::Seq {
        hoga_core::ids::Seq(if self.count == 0 { 0 } else { self.last })
    }

    /// Length of the records with their headers, in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Makes it empty, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.first, self.last, self.count) = (0, 0, 0);
    }
}

/// Walks the records of a body. Ends after the first error.
pub struct Records<'a> {
    rest: &'a [u8],
    check: bool,
}

impl<'a> Records<'a> {
    /// Walks and checks the checksum of each record.
    pub fn new(body: &'a [u8]) -> Records<'a> {
        Records { rest: body, check: true }
    }

    /// Walks without looking at the checksums of the records.
    pub fn unchecked(body: &'a [u8]) -> Records<'a> {
        Records { rest: body, check: false }
    }

    /// What has not been walked yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self) -> Result<(u64, &'a [u8]), &'static str> {
        let rest = self.rest;
        if rest.len() < RECORD_HEADER {
            return Err("a record is cut off in its header");
        }
        let payload = u32_at(rest, 4) as usize;
        if payload > MAX_RECORD || payload > rest.len() - RECORD_HEADER {
            return Err("a record's length is beyond its batch");
        }
        let (record, after) = rest.split_at(RECORD_HEADER + payload);
        if self.check && u32_at(record, 0) != crc32c(&record[4..]) {
            return Err("a record's checksum does not hold");
        }
        self.rest = after;
        Ok((u64_at(record, 8), &record[RECORD_HEADER..]))
    }
}

impl<'a> Iterator for Records<'a> {
    /// Sequence and payload, or what is wrong.
    type Item = Result<(u64, &'a [u8]), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.take();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

/// Checks that a body offered by a caller is `count` well-formed records with sequences from `first` on without holes
/// (with holes, but growing, when `holes`); returns the last sequence.
pub(crate) fn check_offer(first: u64, count: u32, body: &[u8], holes: bool) -> Result<u64, LogError> {
    let malformed = |what| LogError::Malformed { first, what };
    if body.len() > MAX_BODY {
        return Err(LogError::TooLarge { bytes: body.len() as u64, limit: MAX_BODY as u64 });
    }
    let (mut next, mut seen) = (first, 0u32);
    for record in Records::unchecked(body) {
        let (seq, _) = record.map_err(malformed)?;
        if seq != next && !(holes && seq > next) {
            return Err(malformed("a record has the wrong sequence"));
        }
        next = seq.checked_add(1).ok_or_else(|| malformed("a record has the last of all sequences"))?;
        seen += 1;
    }
    if seen != count || count == 0 {
        return Err(malformed("the number of records is not what was said"));
    }
    Ok(next - 1)
}
