//! The real disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Storage, StorageFile};

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

/// An open file of [`Disk`].
#[derive(Debug)]
pub struct DiskFile {
    file: File,
}

/// An advisory lock on the file `lock` of a folder; the system releases it when the process ends in whatever way.
#[derive(Debug)]
pub struct DiskLock {
    _file: File,
}

impl Storage for Disk {
    type File = DiskFile;
    type Lock = DiskLock;
    const BACKGROUND: bool = true;

    fn open(&self, path: &Path) -> io::Result<DiskFile> {
        Ok(DiskFile { file: OpenOptions::new().read(true).write(true).open(path)? })
    }

    fn open_read(&self, path: &Path) -> io::Result<DiskFile> {
        Ok(DiskFile { file: File::open(path)? })
    }

    fn create(&self, path: &Path) -> io::Result<DiskFile> {
        Ok(DiskFile { file: OpenOptions::new().read(true).write(true).create_new(true).open(path)? })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if path.is_dir() {
            // A process that was killed may have made it without the sync. Where the parent cannot be read, it is not ours.
            return match self.sync_dir(parent) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                other => other,
            };
        }
        self.create_dir(parent)?;
        match std::fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        self.sync_dir(parent)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            // A name that is not text is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<DiskLock>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(dir.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(DiskLock { _file: file })),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl StorageFile for DiskFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: flushes the size too when it changed, but not the times.
        self.file.sync_data()
    }

    fn start_write_back(&self, offset: u64, len: u64) -> io::Result<()> {
        let (offset, len) = (offset as libc::off64_t, len as libc::off64_t);
        // SAFETY: the call takes a descriptor that is open as long as `self`, and three integers.
        match unsafe {
            libc::sync_file_range(self.file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.file.metadata()?.len() >= len {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // Some file systems cannot reserve space. There the length is set, and a full disk is found when writing.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.file.set_len(len),
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}
