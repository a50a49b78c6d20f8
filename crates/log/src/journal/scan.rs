//! Recovery's reading: walks all segments, and decides whether the end is clean, torn or damaged.

use std::path::{Path, PathBuf};

use super::walk::{Evidence, Found, Place, Window, evidence, look};
use crate::error::LogError;
use crate::segment::{BLOCK, BatchHeader, HeaderFault, SegmentHeader, file_name, parse_file_name};
use crate::storage::{Storage, StorageFile};

/// A segment file and its first block.
pub(crate) struct SegmentFile {
    pub(crate) index: u64,
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    pub(crate) header: Result<SegmentHeader, HeaderFault>,
}

/// Lists the segments of a folder by index, with their headers.
pub(crate) fn segments<S: Storage>(storage: &S, dir: &Path) -> Result<Vec<SegmentFile>, LogError> {
    let names = storage.list(dir).map_err(LogError::io("listing", dir))?;
    let mut indices: Vec<u64> = names.iter().filter_map(|name| parse_file_name(name)).collect();
    indices.sort_unstable();
    let mut found = Vec::with_capacity(indices.len());
    for index in indices {
        let path = dir.join(file_name(index));
        let file = match storage.open(&path) {
            Ok(file) => file,
            // Retention may remove it while a reader lists.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(LogError::io("opening", &path)(error)),
        };
        let mut block = [0; BLOCK];
        let read = file.read_at(0, &mut block).map_err(LogError::io("reading", &path))?;
        let header = SegmentHeader::decode(&block[..read]);
        let header = match header {
            Ok(header) if header.index != index => Err(HeaderFault::Impossible),
            other => other,
        };
        let len = file.len().map_err(LogError::io("measuring", &path))?;
        found.push(SegmentFile { index, path, len, header });
    }
    Ok(found)
}

/// How much recovery reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Every segment that has a record from this sequence on.
    From(u64),
    /// Only what is not known to be durable: segments before are checked when they are read.
    Tail,
}

/// What stands at the end of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing follows.
    Clean,
    /// What follows was never durable and may be cut; so many bytes.
    Torn(u64),
    /// What follows was durable once.
    Damaged(String),
}

/// Decides what the end of a walk is. This is the whole law of recovery; its test goes through every combination.
///
/// `found` is what stands where record `expected` should be, `later` is what was found behind it, in this segment and in
/// all later ones.
pub(crate) fn decide(found: &Found, expected: u64, later: Evidence, later_bytes: u64) -> End {
    let durable_once = later.synced_through >= expected;
    match found {
        // Never called with a batch that belongs there; were it so, cutting it would be wrong.
        Found::Batch(_) => End::Damaged("a batch was left out".into()),
        // No tear moves a whole batch, so this is damage whatever comes later.
        Found::Wrong(what) => End::Damaged((*what).into()),
        Found::Unfinished(what) if durable_once => End::Damaged(format!(
            "{what}, and a later batch says that everything up to {} was durable",
            later.synced_through
        )),
        Found::Nothing if durable_once => End::Damaged(format!(
            "nothing is there, and a later batch says that everything up to {} was durable",
            later.synced_through
        )),
        Found::Unfinished(_) => End::Torn(later_bytes.max(1)),
        Found::Nothing if later_bytes > 0 => End::Torn(later_bytes),
        Found::Nothing => End::Clean,
    }
}

/// The result of a walk through a log.
pub(crate) struct Scan {
    /// First sequence in the log.
    pub(crate) first: u64,
    /// Where the walk ended: the place of the next batch.
    pub(crate) place: Place,
    /// Whether the segment of `place` has its header.
    pub(crate) started: bool,
    /// Whether that segment is a compacted one, to which nothing is appended.
    pub(crate) compacted: bool,
    /// What is at the end.
    pub(crate) end: End,
    /// The last sequence that some batch says was durable.
    pub(crate) synced_through: u64,
    /// All segments, also those after the end.
    pub(crate) files: Vec<SegmentFile>,
}

impl Scan {
    /// The error of a damaged end.
    pub(crate) fn damage(&self, dir: &Path) -> Option<LogError> {
        match &self.end {
            End::Damaged(what) => Some(LogError::Damaged {
                path: dir.join(file_name(self.place.segment)),
                offset: self.place.offset,
                expected: self.place.next,
                what: what.clone(),
            }),
            _ => None,
        }
    }
}

/// Called for each batch: its header, its records.
pub(crate) type OnBatch<'a> = &'a mut dyn FnMut(&BatchHeader, &[u8]);

/// Walks the log in `dir`.
pub(crate) fn scan<S: Storage>(
    storage: &S,
    dir: &Path,
    depth: Depth,
    on_batch: OnBatch<'_>,
) -> Result<Scan, LogError> {
    let files = segments(storage, dir)?;
    let bases = || files.iter().filter_map(|file| file.header.as_ref().ok());
    let mut synced_through = bases().map(|header| header.synced_through).max().unwrap_or(0);
    let from = match depth {
        Depth::From(seq) => seq,
        Depth::Tail => synced_through + 1,
    };
    // The last segment that starts at or before `from`; all before it need not be read.
    let start =
        files.iter().rposition(|file| file.header.as_ref().is_ok_and(|h| h.base <= from)).unwrap_or(0);
    let first = files.first().and_then(|file| file.header.as_ref().ok()).map_or(1, |header| header.base);
    let mut walk = Walk { storage, files: &files, at: start, synced_through };
    let (place, started, found) = walk.run(on_batch)?;
    synced_through = walk.synced_through;
    let (later, later_bytes) = walk.later(&place, started)?;
    let first_is_lost = files.first().is_some_and(|file| file.header.is_err() && file.index > 1);
    let mut end = decide(&found, place.next, later, later_bytes);
    if first_is_lost {
        // Segments are removed only after the next one was durable, so the oldest one cannot be a tear.
        end = End::Damaged("the header of the oldest segment does not hold".into());
    }
    let compacted = started && files[walk.at].header.is_ok_and(|header| header.compacted.is_some());
    Ok(Scan { first, place, started, compacted, end, synced_through, files })
}

struct Walk<'a, S: Storage> {
    storage: &'a S,
    files: &'a [SegmentFile],
    at: usize,
    synced_through: u64,
}

impl<S: Storage> Walk<'_, S> {
    fn open(&self, file: &SegmentFile) -> Result<S::File, LogError> {
        self.storage.open(&file.path).map_err(LogError::io("opening", &file.path))
    }

    /// Walks to the end; returns where it is, whether that segment has its header, and what is there.
    fn run(&mut self, on_batch: OnBatch<'_>) -> Result<(Place, bool, Found), LogError> {
        let fresh = Place { segment: 1, offset: 0, next: 1, chain: 0, holes: false };
        let Some(file) = self.files.get(self.at) else { return Ok((fresh, false, Found::Nothing)) };
        let mut header = match file.header {
            Ok(header) => header,
            Err(fault) => {
                let place = Place { segment: file.index, ..fresh };
                return Ok((place, false, bad_header(fault)));
            }
        };
        let mut window = Window::new(16 << 10, 1 << 20);
        let mut next = header.base;
        loop {
            let (place, found) = self.segment(&header, next, &mut window, on_batch)?;
            if found != Found::Nothing {
                return Ok((place, true, found));
            }
            let (next_seq, chain) = match header.compacted {
                Some(compacted) => (compacted.end + 1, compacted.end_chain),
                None => (place.next, place.chain),
            };
            let whole = header.compacted.is_none_or(|compacted| compacted.bytes == place.offset);
            if !whole {
                return Ok((place, true, Found::Wrong("the compacted segment is shorter than it was")));
            }
            let Some(file) = self.files.get(self.at + 1) else { return Ok((place, true, Found::Nothing)) };
            match file.header {
                Ok(following) if following.base == next_seq && following.chain == chain => {
                    self.at += 1;
                    header = following;
                    next = next_seq;
                }
                Ok(following) if following.base == next_seq => {
                    let place = Place { segment: file.index, offset: 0, next, chain, holes: false };
                    let what = "the segment there does not continue the chain (it is from another history)";
                    return Ok((Place { next: next_seq, ..place }, false, Found::Wrong(what)));
                }
                Err(HeaderFault::Impossible) => {
                    let place = Place { segment: file.index, offset: 0, next: next_seq, chain, holes: false };
                    return Ok((
                        place,
                        false,
                        Found::Wrong("the segment header there belongs to another file"),
                    ));
                }
                // Either the log ends here, or it was torn here; what comes later says which.
                _ => return Ok((Place { next: next_seq, chain, ..place }, true, Found::Nothing)),
            }
        }
    }

    /// Walks one segment.
    fn segment(
        &mut self,
        header: &SegmentHeader,
        next: u64,
        window: &mut Window,
        on_batch: OnBatch<'_>,
    ) -> Result<(Place, Found), LogError> {
        let file = &self.files[self.at];
        let handle = self.open(file)?;
        window.forget();
        self.synced_through = self.synced_through.max(header.synced_through);
        let mut place = Place {
            segment: file.index,
            offset: BLOCK as u64,
            next,
            chain: header.chain,
            holes: header.compacted.is_some(),
        };
        loop {
            match look(&handle, window, &place).map_err(LogError::io("reading", &file.path))? {
                Found::Batch(batch) => {
                    on_batch(&batch, super::walk::body(window, &batch));
                    self.synced_through = self.synced_through.max(batch.synced_through);
                    place.pass(&batch);
                }
                other => return Ok((place, other)),
            }
        }
    }

    /// What comes after the end of the walk.
    fn later(&self, place: &Place, started: bool) -> Result<(Evidence, u64), LogError> {
        let mut later = Evidence::default();
        let mut bytes = 0;
        for file in self.files.iter().filter(|file| file.index >= place.segment) {
            let handle = self.open(file)?;
            let here = file.index == place.segment;
            let from = if here { place.offset } else { 0 };
            let found = evidence(&handle, file.index, from).map_err(LogError::io("reading", &file.path))?;
            later.synced_through = later.synced_through.max(found.synced_through);
            if (!here || !started)
                && let Ok(header) = &file.header
            {
                later.synced_through = later.synced_through.max(header.synced_through);
            }
            bytes += found.end.saturating_sub(from);
        }
        Ok((later, bytes))
    }
}

fn bad_header(fault: HeaderFault) -> Found {
    match fault {
        HeaderFault::Zero => Found::Nothing,
        HeaderFault::Broken => Found::Unfinished("the checksum of the segment header does not hold"),
        HeaderFault::Impossible => Found::Wrong("the segment header there belongs to another file"),
    }
}
