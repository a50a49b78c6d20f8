//! Recovery's reading: walks all segments, and decides whether the end is clean, torn or damaged.

use std::path::{Path, PathBuf};
use std::time::Duration;

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
        let file = match storage.open_read(&path) {
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

/// An incomplete batch beside a writer may be one that is just being written: so often, with this pause, it is looked at
/// again.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Walks the log in `dir`, which nobody writes meanwhile.
pub(crate) fn scan<S: Storage>(
    storage: &S,
    dir: &Path,
    depth: Depth,
    on_batch: OnBatch<'_>,
) -> Result<Scan, LogError> {
    scan_where(storage, dir, depth, false, on_batch)
}

/// Walks the whole log in `dir`, also while a writer appends to it. What it says of the end is so for what had been
/// written at some moment of the walk.
///
/// # Errors
/// [`LogError::Io`], also of kind `NotFound` when retention removes a segment before it is read: then begin again.
pub(crate) fn scan_live<S: Storage>(
    storage: &S,
    dir: &Path,
    on_batch: OnBatch<'_>,
) -> Result<Scan, LogError> {
    scan_where(storage, dir, Depth::From(0), true, on_batch)
}

fn scan_where<S: Storage>(
    storage: &S,
    dir: &Path,
    depth: Depth,
    live: bool,
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
    let first_is_lost = files.first().is_some_and(|file| file.header.is_err() && file.index > 1);
    let mut walk = Walk { storage, files, at: start, synced_through };
    let (mut place, mut started, found) = walk.run(None, on_batch)?;
    let later = walk.later(&place, started)?;
    let mut end = decide(&found, place.next, later.evidence, later.bytes);
    if live && !first_is_lost {
        (place, started, end) = walk.follow(dir, (place, started, found), later, on_batch)?;
    }
    synced_through = walk.synced_through;
    if first_is_lost {
        // Segments are removed only after the next one was durable, so the oldest one cannot be a tear.
        end = End::Damaged("the header of the oldest segment does not hold".into());
    }
    let files = walk.files;
    let compacted = started && files[walk.at].header.is_ok_and(|header| header.compacted.is_some());
    Ok(Scan { first, place, started, compacted, end, synced_through, files })
}

/// What comes after the end of a walk.
struct Later {
    evidence: Evidence,
    /// How much of it is not zero.
    bytes: u64,
    /// Segment and byte behind the last of it.
    end: (u64, u64),
}

/// Where a walk ended, whether that segment has its header, and what is there.
type Ended = (Place, bool, Found);

struct Walk<'a, S: Storage> {
    storage: &'a S,
    files: Vec<SegmentFile>,
    at: usize,
    synced_through: u64,
}

impl<S: Storage> Walk<'_, S> {
    fn open(&self, file: &SegmentFile) -> Result<S::File, LogError> {
        self.storage.open_read(&file.path).map_err(LogError::io("opening", &file.path))
    }

    /// Walks to the end, from the beginning or from where an earlier walk ended.
    fn run(&mut self, resume: Option<Place>, on_batch: OnBatch<'_>) -> Result<Ended, LogError> {
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
        let mut from = resume.unwrap_or_else(|| first_place(&header));
        loop {
            let (place, found) = self.segment(&header, from, &mut window, on_batch)?;
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
                    from = first_place(&header);
                }
                Ok(following) if following.base == next_seq => {
                    let place = Place { segment: file.index, offset: 0, next: next_seq, chain, holes: false };
                    let what = "the segment there does not continue the chain (it is from another history)";
                    return Ok((place, false, Found::Wrong(what)));
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

    /// Walks one segment from a place in it.
    fn segment(
        &mut self,
        header: &SegmentHeader,
        mut place: Place,
        window: &mut Window,
        on_batch: OnBatch<'_>,
    ) -> Result<(Place, Found), LogError> {
        let file = &self.files[self.at];
        let handle = self.open(file)?;
        window.forget();
        self.synced_through = self.synced_through.max(header.synced_through);
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
    fn later(&self, place: &Place, started: bool) -> Result<Later, LogError> {
        let mut later = Evidence::default();
        let (mut bytes, mut end) = (0, (0, 0));
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
            if found.end > from {
                end = (file.index, found.end);
            }
        }
        Ok(Later { evidence: later, bytes, end })
    }

    /// Beside a writer, what was found at the end and what was found behind it are from different moments: a batch that
    /// was not there at first is no hole. So the end is looked at again after what is behind it: what is still not there
    /// then was missing all the time. Once the walk is past everything that was found behind, the log was clean at that
    /// moment; it need not catch up with the writer.
    fn follow(
        &mut self,
        dir: &Path,
        ended: Ended,
        mut later: Later,
        on_batch: OnBatch<'_>,
    ) -> Result<(Place, bool, End), LogError> {
        let (mut place, mut started, mut found) = ended;
        let mut looks = 0;
        loop {
            let end = decide(&found, place.next, later.evidence, later.bytes);
            if end == End::Clean || matches!(found, Found::Wrong(_)) {
                return Ok((place, started, end));
            }
            self.list_again(dir, &place)?;
            // Without a header nothing of the log was read yet.
            let again = self.run(started.then_some(place), on_batch)?;
            let moved = again.0 != place;
            (place, started, found) = again;
            if (place.segment, place.offset) >= later.end && !matches!(found, Found::Wrong(_)) {
                return Ok((place, started, End::Clean));
            }
            if !moved {
                let end = decide(&found, place.next, later.evidence, later.bytes);
                if matches!(end, End::Damaged(_)) || looks == LOOKS {
                    return Ok((place, started, end));
                }
                looks += 1;
                if S::BACKGROUND {
                    std::thread::sleep(PAUSE);
                }
            }
            later = self.later(&place, started)?;
        }
    }

    /// Takes over the segments that have come since, and the headers that have been written since.
    fn list_again(&mut self, dir: &Path, place: &Place) -> Result<(), LogError> {
        let mut now = segments(self.storage, dir)?;
        now.retain(|file| file.index >= place.segment);
        if now.first().is_none_or(|file| file.index != place.segment) {
            let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(LogError::io("reading", &dir.join(file_name(place.segment)))(gone));
        }
        self.files.truncate(self.at);
        self.files.append(&mut now);
        Ok(())
    }
}

fn first_place(header: &SegmentHeader) -> Place {
    Place {
        segment: header.index,
        offset: BLOCK as u64,
        next: header.base,
        chain: header.chain,
        holes: header.compacted.is_some(),
    }
}

fn bad_header(fault: HeaderFault) -> Found {
    match fault {
        HeaderFault::Zero => Found::Nothing,
        HeaderFault::Broken => Found::Unfinished("the checksum of the segment header does not hold"),
        HeaderFault::Impossible => Found::Wrong("the segment header there belongs to another file"),
    }
}
