//! The disk, behind a trait as small as the log needs, so that a test can crash it at every operation.

mod disk;
mod priority;
mod sim;

use std::io;
use std::path::Path;

pub use disk::{Disk, DiskFile};
pub use priority::{IoPriority, set_io_priority};
pub use sim::{SimFile, SimStorage};

/// A file system.
///
/// Law: after a crash, a file has what was in it at its last successful [`StorageFile::sync`]; writes after that may be
/// there, missing, or torn, in any combination. A file that was created, renamed or removed is sure to be so only after
/// [`Storage::sync_dir`] of its folder. After a failed write or sync nothing is known about the file.
pub trait Storage: Send + Sync + Clone + 'static {
    /// An open file.
    type File: StorageFile;
    /// Holds a folder for one process; released when dropped.
    type Lock: Send + Sync + 'static;
    /// Whether slow preparation may run on a thread of its own. A simulated disk says no, so that a run is repeatable.
    const BACKGROUND: bool;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Self::File>;
    /// Opens an existing file for reading only.
    fn open_read(&self, path: &Path) -> io::Result<Self::File> {
        self.open(path)
    }
    /// Creates a file that must not exist, for reading and writing.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Creates a folder and those above it; durable when it returns.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Names of the files and folders in a folder, in byte order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Renames, replacing what was at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in the folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Whether there is a file or folder.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Takes the folder for this process; `None` when another one has it.
    fn lock(&self, dir: &Path) -> io::Result<Option<Self::Lock>>;
}

/// An open file. Positions and lengths are bytes.
pub trait StorageFile: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`. A short write is an error.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads at `offset`; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Makes the contents written before durable, and of the metadata what is needed to read them.
    fn sync(&self) -> io::Result<()>;
    /// Starts to write a range to the disk, so that a later sync finds little to do. Promises nothing; a storage may do nothing.
    fn start_write_back(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }
    /// Makes the file at least `len` bytes long, with disk space behind them; new bytes read as zero. A full disk is
    /// found here and not at a later write.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// The length.
    fn len(&self) -> io::Result<u64>;
    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts the file off at `len`.
    fn truncate(&self, len: u64) -> io::Result<()>;
}

/// Reads a whole small file, at most `limit` bytes.
///
/// # Errors
/// The system's, and `InvalidData` when the file is larger.
pub fn read_small<S: Storage>(storage: &S, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = storage.open(path)?;
    let len = file.len()?;
    if len > limit {
        let text = format!("{} has {len} bytes, more than the {limit} that it may have", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut bytes = vec![0; len as usize];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Replaces a small file so that after a crash it has either the old or the new contents: written beside it, synced,
/// renamed, folder synced.
///
/// # Errors
/// The system's.
pub fn replace_small<S: Storage>(storage: &S, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    if storage.exists(&temporary)? {
        storage.remove(&temporary)?;
    }
    let file = storage.create(&temporary)?;
    file.write_at(0, bytes)?;
    file.sync()?;
    storage.rename(&temporary, &dir.join(name))?;
    storage.sync_dir(dir)
}
