//! Makes the next segment ready before it is needed, so that going on to it costs no more than any other write.
//!
//! A file that grows makes each sync wait for the file system's own journal as well; a reserved but never written extent
//! does so when it is first written. Measured on ext4 on a busy 2-core machine, commits of 1.5 KB, runs alternating: mean
//! 586 µs where the file grows, 581 µs into reserved space, 405 µs over zeros. So a segment is filled with zeros, a piece
//! at a time with a sync after each, on a thread of its own, while its predecessor is in use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::segment::file_name;
use crate::storage::{IoPriority, Storage, StorageFile, set_io_priority};

/// Zeros are written in pieces of this size, with a pause after each: a commit beside it waits little for the device, and
/// 25 MB/s are still far more than commands come in.
const PIECE: usize = 256 << 10;
const PAUSE: Duration = Duration::from_millis(10);

/// A segment that is ready.
pub(crate) struct Spare<S: Storage> {
    pub(crate) index: u64,
    pub(crate) file: S::File,
    pub(crate) len: u64,
}

type Task<S> = JoinHandle<io::Result<Spare<S>>>;

/// At most one segment in preparation or ready.
pub(crate) struct Preparer<S: Storage> {
    storage: S,
    dir: PathBuf,
    bytes: u64,
    prefill: bool,
    stop: Arc<AtomicBool>,
    task: Option<Task<S>>,
    ready: Option<io::Result<Spare<S>>>,
}

impl<S: Storage> Preparer<S> {
    pub(crate) fn new(storage: S, dir: PathBuf, bytes: u64, prefill: bool) -> Preparer<S> {
        let stop = Arc::new(AtomicBool::new(false));
        Preparer { storage, dir, bytes, prefill, stop, task: None, ready: None }
    }

    /// Whether a segment is ready or being made.
    pub(crate) fn is_busy(&self) -> bool {
        self.task.is_some() || self.ready.is_some()
    }

    /// Takes over a segment that an earlier run made.
    pub(crate) fn adopt(&mut self, spare: Spare<S>) {
        self.ready = Some(Ok(spare));
    }

    /// Starts making segment `index`; at once where the storage has no background. What goes wrong is told when the segment
    /// is needed: until then the journal can go on.
    pub(crate) fn start(&mut self, index: u64) {
        let (storage, dir, bytes) = (self.storage.clone(), self.dir.clone(), self.bytes);
        let prefill = self.prefill && S::BACKGROUND;
        let stop = self.stop.clone();
        if !S::BACKGROUND {
            self.ready = Some(make(&storage, &dir, index, bytes, false, &stop));
            return;
        }
        let work = move || {
            // Where that is refused, the preparation only competes more with the journal's own syncs.
            let _ = set_io_priority(IoPriority::Last);
            make(&storage, &dir, index, bytes, prefill, &stop)
        };
        match std::thread::Builder::new().name("journal-prepare".into()).spawn(work) {
            Ok(task) => self.task = Some(task),
            Err(error) => self.ready = Some(Err(error)),
        }
    }

    /// The segment `index` with room for `least` bytes: the one that is ready, or a new one.
    pub(crate) fn take(&mut self, index: u64, least: u64) -> io::Result<Spare<S>> {
        if let Some(task) = self.task.take() {
            // Space is reserved first, so a segment that is needed early is used as it is.
            self.stop.store(true, Ordering::Relaxed);
            task.thread().unpark();
            let panicked = |_| Err(io::Error::other("the thread that prepares segments has panicked"));
            self.ready = Some(task.join().unwrap_or_else(panicked));
            self.stop.store(false, Ordering::Relaxed);
        }
        let spare = match self.ready.take() {
            Some(Ok(spare)) if spare.index == index => spare,
            // There may be room by now; a new file has no data that a second attempt could lose.
            Some(Err(error)) if error.kind() != io::ErrorKind::StorageFull => return Err(error),
            _ => {
                let bytes = self.bytes.max(least);
                make(&self.storage, &self.dir, index, bytes, false, &AtomicBool::new(false))?
            }
        };
        if spare.len >= least {
            return Ok(spare);
        }
        spare.file.allocate(least)?;
        spare.file.sync()?;
        Ok(Spare { len: least, ..spare })
    }
}

impl<S: Storage> Drop for Preparer<S> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(task) = self.task.take() {
            task.thread().unpark();
            // What it made is found, or made again, at the next start.
            drop(task.join());
        }
    }
}

/// Makes an empty segment with disk space behind all of it; its name and its length are durable when it returns.
pub(crate) fn make<S: Storage>(
    storage: &S,
    dir: &Path,
    index: u64,
    bytes: u64,
    prefill: bool,
    stop: &AtomicBool,
) -> io::Result<Spare<S>> {
    let path = dir.join(file_name(index));
    if storage.exists(&path)? {
        storage.remove(&path)?;
    }
    let file = storage.create(&path)?;
    file.allocate(bytes)?;
    if prefill {
        let zeros = vec![0; PIECE];
        let mut at = 0;
        while at < bytes && !stop.load(Ordering::Relaxed) {
            let len = (bytes - at).min(PIECE as u64);
            file.write_at(at, &zeros[..len as usize])?;
            file.sync()?;
            at += len;
            std::thread::park_timeout(PAUSE);
        }
    }
    file.sync()?;
    storage.sync_dir(dir)?;
    Ok(Spare { index, file, len: bytes })
}
