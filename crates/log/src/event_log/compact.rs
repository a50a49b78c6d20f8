//! Compaction of a partition: of each key the last message stays.
//!
//! Only full segments take part whose messages every registered group has consumed. They are made durable first, so a
//! power cut that takes the newest messages cannot take a key whose older message was removed for their sake. A compacted segment is written beside the log, synced, and
//! then renamed over the last of those that it stands for; the others are removed after that. A crash in between leaves
//! both, and opening removes the older ones ([`clean_up`]).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::embedded::{Consumed, EmbeddedConfig};
use super::message;
use super::partition::{Partition, Segment};
use crate::error::LogError;
use crate::journal::Batch;
use crate::journal::scan::segments;
use crate::journal::walk::{Found, Window, body, look};
use crate::segment::{
    BLOCK, BatchHeader, Compacted, HEADER, Records, SegmentHeader, crc32c, file_name, padded,
};
use crate::storage::{Storage, StorageFile};

const UNFINISHED: &str = ".compacting";
/// Records of a compacted segment are in batches of about this size.
const BATCH: usize = 128 << 10;

/// Removes what a compaction that did not finish has left: half-written files, and segments for which a compacted one
/// stands.
pub(super) fn clean_up<S: Storage>(storage: &S, dir: &Path) -> Result<(), LogError> {
    let mut doomed: Vec<PathBuf> = Vec::new();
    for name in storage.list(dir).map_err(LogError::io("listing", dir))? {
        if name.ends_with(UNFINISHED) {
            doomed.push(dir.join(name));
        }
    }
    let files = segments(storage, dir)?;
    let compacted =
        files.iter().filter_map(|file| file.header.ok().filter(|header| header.compacted.is_some()));
    let covered: Vec<(u64, u64)> = compacted.map(|header| (header.index, header.base)).collect();
    for file in &files {
        let base = file.header.map_or(0, |header| header.base);
        if covered.iter().any(|(index, from)| file.index < *index && base >= *from) {
            doomed.push(file.path.clone());
        }
    }
    if !doomed.is_empty() {
        // A killed process may have renamed without the sync; what stands for the others must be durable before they go.
        storage.sync_dir(dir).map_err(LogError::io("syncing", dir))?;
    }
    for path in doomed {
        storage.remove(&path).map_err(LogError::io("removing", &path))?;
        storage.sync_dir(dir).map_err(LogError::io("syncing", dir))?;
    }
    Ok(())
}

/// Calls `f` with each record of a segment.
fn walk<S: Storage>(
    segment: &Segment<S>,
    mut f: impl FnMut(u64, &[u8], &super::Message<'_>) -> Result<(), LogError>,
) -> Result<(u64, u64), LogError> {
    let mut window = Window::new(16 << 10, 1 << 20);
    let mut place = segment.start();
    loop {
        match look(&segment.file, &mut window, &place).map_err(LogError::io("reading", &segment.path))? {
            Found::Batch(batch) => {
                for record in Records::new(body(&window, &batch)) {
                    let (seq, payload) = record.map_err(|what| segment.damaged(&place, what))?;
                    let found = message::decode(payload).ok_or_else(|| {
                        segment.damaged(&place, "a record is not a message of the event log")
                    })?;
                    f(seq, payload, &found)?;
                }
                place.pass(&batch);
            }
            Found::Nothing => {
                return match segment.header.compacted {
                    Some(compacted) if compacted.bytes != place.offset => {
                        Err(segment.damaged(&place, "the segment is shorter than it was"))
                    }
                    Some(compacted) => Ok((compacted.end, compacted.end_chain)),
                    None => Ok((place.next - 1, place.chain)),
                };
            }
            Found::Unfinished(what) | Found::Wrong(what) => return Err(segment.damaged(&place, what)),
        }
    }
}

/// Bytes of full segments that are compacted, and that are not yet.
#[derive(Clone, Copy, Default)]
struct Bytes {
    clean: u64,
    dirty: u64,
}

impl Bytes {
    fn add<S: Storage>(&mut self, segment: &Segment<S>) -> Result<(), LogError> {
        let bytes = segment.file.len().map_err(LogError::io("measuring", &segment.path))?;
        *(if segment.header.compacted.is_some() { &mut self.clean } else { &mut self.dirty }) += bytes;
        Ok(())
    }

    fn is_due(self) -> bool {
        self.dirty > 0 && self.dirty >= self.clean
    }
}

/// Compacts what the groups have consumed of a partition when at least half of the bytes of its full segments have come
/// since the last time. Returns how many messages went, and whether more is due that a group has not consumed.
pub(super) fn compact<S: Storage>(
    partition: &Partition<S>,
    consumed: &Consumed<'_, S>,
    config: &EmbeddedConfig,
) -> Result<(u64, bool), LogError> {
    let _one = partition.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = consumed.limit();
    let mut all = partition.segments();
    let mut free = Bytes::default();
    // The last one is still written.
    let full = all.len().saturating_sub(1);
    let count = all.iter().skip(1).take_while(|following| following.header.base - 1 <= limit).count();
    for segment in &all[..count] {
        free.add(segment)?;
    }
    let mut whole = free;
    for segment in &all[count..full] {
        whole.add(segment)?;
    }
    let held = count < full && whole.is_due();
    if !free.is_due() {
        return Ok((0, held));
    }
    all.truncate(count);
    partition.sync()?;
    consumed.sync()?;
    // The last offset of each key in the part that is new; bounded, at segment borders.
    let mut last: HashMap<Vec<u8>, u64> = HashMap::new();
    let (mut newest, mut through) = (i64::MIN, None);
    for segment in all.iter().filter(|segment| segment.header.compacted.is_none()) {
        if through.is_some() && last.len() >= config.compact_keys {
            break;
        }
        walk(segment, |seq, _, found| {
            newest = newest.max(found.time.0);
            match last.get_mut(found.key) {
                Some(at) => *at = seq,
                None => drop(last.insert(found.key.to_vec(), seq)),
            }
            Ok(())
        })?;
        through = Some(segment.index);
    }
    let Some(through) = through else { return Ok((0, held)) };
    let keep = i64::try_from(config.tombstone_keep.as_micros()).unwrap_or(i64::MAX);
    let rule = Rule { last, tombstones_before: newest.saturating_sub(keep) };
    let mut removed = 0;
    let mut run: Vec<Arc<Segment<S>>> = Vec::new();
    let mut output: Option<Output<S>> = None;
    for segment in all.into_iter().filter(|segment| segment.index <= through) {
        let mut out = match output.take() {
            Some(out) => out,
            None => Output::create(partition.storage(), &partition.dir, &segment.header)?,
        };
        let (end, end_chain) = walk(&segment, |seq, payload, found| {
            if rule.keeps(seq, found, segment.header.compacted.is_some()) {
                return out.push(seq, payload);
            }
            removed += 1;
            Ok(())
        })?;
        let is_last = segment.index == through;
        run.push(segment);
        if is_last || out.offset + out.batch.len() as u64 >= config.segment_bytes / 2 {
            out.finish(partition, &run, end, end_chain)?;
            run.clear();
        } else {
            output = Some(out);
        }
    }
    Ok((removed, held))
}

struct Rule {
    last: HashMap<Vec<u8>, u64>,
    tombstones_before: i64,
}

impl Rule {
    /// Whether a message stays. A tombstone stays at first, so that every reader that is not very far behind sees it; it
    /// goes when it has been through one compaction and is old enough.
    fn keeps(&self, seq: u64, found: &super::Message<'_>, was_compacted: bool) -> bool {
        if self.last.get(found.key).is_some_and(|last| *last > seq) {
            return false;
        }
        !(found.value.is_none() && was_compacted && found.time.0 < self.tombstones_before)
    }
}

/// A compacted segment that is being written.
struct Output<'a, S: Storage> {
    storage: &'a S,
    dir: &'a Path,
    path: PathBuf,
    file: S::File,
    /// Index and base of the first segment; the chain starts anew from that one's.
    first: SegmentHeader,
    /// The final index is only known at the end, but each batch says it; so it is written then.
    batches: Vec<(BatchHeader, u64)>,
    batch: Batch,
    offset: u64,
}

impl<'a, S: Storage> Output<'a, S> {
    fn create(storage: &'a S, dir: &'a Path, first: &SegmentHeader) -> Result<Output<'a, S>, LogError> {
        let path = dir.join(format!("{:08}{UNFINISHED}", first.index));
        let file = storage.create(&path).map_err(LogError::io("creating", &path))?;
        let batches = Vec::new();
        Ok(Output {
            storage,
            dir,
            path,
            file,
            first: *first,
            batches,
            batch: Batch::new(),
            offset: BLOCK as u64,
        })
    }

    fn push(&mut self, seq: u64, payload: &[u8]) -> Result<(), LogError> {
        if self.batch.len() + payload.len() > BATCH && !self.batch.is_empty() {
            self.write()?;
        }
        self.batch.push(hoga_core::ids::Seq(seq), payload);
        Ok(())
    }

    /// Writes the records; their header follows at the end.
    fn write(&mut self) -> Result<(), LogError> {
        let body = self.batch.records();
        let header = BatchHeader {
            segment: 0,
            offset: self.offset,
            body: body.len(),
            body_crc: crc32c(body),
            first: self.batch.first().0,
            last: self.batch.last().0,
            count: self.batch.count(),
            synced_through: 0,
            chain: 0,
            crc: 0,
        };
        let mut bytes = vec![0; padded(body.len())];
        bytes[HEADER..HEADER + body.len()].copy_from_slice(body);
        self.file.write_at(self.offset, &bytes).map_err(LogError::io("writing", &self.path))?;
        self.batches.push((header, self.offset));
        self.offset += bytes.len() as u64;
        self.batch.clear();
        Ok(())
    }

    /// Completes the file and puts it in the place of the segments of `run`.
    fn finish(
        mut self,
        partition: &Partition<S>,
        run: &[Arc<Segment<S>>],
        end: u64,
        end_chain: u64,
    ) -> Result<(), LogError> {
        if !self.batch.is_empty() {
            self.write()?;
        }
        let index = run.last().map_or(self.first.index, |segment| segment.index);
        let mut chain = self.first.chain;
        let mut block = [0; HEADER];
        let failed = |action, path: &Path| LogError::io(action, path);
        for (header, offset) in &mut self.batches {
            header.segment = index;
            header.chain = chain;
            header.encode(&mut block);
            chain = header.link();
            self.file.write_at(*offset, &block).map_err(failed("writing", &self.path))?;
        }
        let header = SegmentHeader {
            index,
            base: self.first.base,
            chain: self.first.chain,
            synced_through: end,
            compacted: Some(Compacted { end, end_chain, bytes: self.offset }),
        };
        let mut first_block = [0; BLOCK];
        header.encode(&mut first_block);
        self.file.write_at(0, &first_block).map_err(failed("writing", &self.path))?;
        self.file.sync().map_err(failed("syncing", &self.path))?;
        let target = self.dir.join(file_name(index));
        self.storage.rename(&self.path, &target).map_err(failed("renaming", &self.path))?;
        self.storage.sync_dir(self.dir).map_err(failed("syncing", self.dir))?;
        partition.replace(index, Segment::open(self.storage, target, header)?);
        for segment in run.iter().filter(|segment| segment.index != index) {
            self.storage.remove(&segment.path).map_err(failed("removing", &segment.path))?;
            self.storage.sync_dir(self.dir).map_err(failed("syncing", self.dir))?;
        }
        Ok(())
    }
}
