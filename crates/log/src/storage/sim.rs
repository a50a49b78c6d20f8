//! A disk in memory that can be crashed.
//!
//! It keeps for each file what is durable and, in order, what was written since. [`SimStorage::crash`] throws away what
//! memory would lose: each sector written since the last sync is kept, dropped, torn in the middle or left as noise, as
//! the seed says; names that were created, renamed or removed since the folder's last sync may be as before.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Storage, StorageFile};

/// What a device promises to write as one.
const SECTOR: usize = 512;

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimStorage {
    shared: Arc<Mutex<World>>,
}

/// An open file of [`SimStorage`].
pub struct SimFile {
    storage: SimStorage,
    inode: u64,
    /// Files opened before a crash belong to a process that is dead.
    life: u64,
}

#[derive(Default)]
struct World {
    life: u64,
    next_inode: u64,
    inodes: BTreeMap<u64, Inode>,
    /// Names as the running system sees them.
    names: BTreeMap<PathBuf, u64>,
    /// Names as they are on the disk.
    durable_names: BTreeMap<PathBuf, u64>,
    dirs: Vec<PathBuf>,
    operations: u64,
    faults: Faults,
}

#[derive(Default)]
struct Faults {
    /// The machine stops before the operation of this number.
    stop_at: Option<u64>,
    fail_sync_in: Option<u64>,
    fail_write_in: Option<u64>,
    lies_about_files: bool,
    lies_about_dirs: bool,
    space: Option<u64>,
}

#[derive(Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Sector numbers written since the last sync; lengths changed since.
    dirty: std::collections::BTreeSet<usize>,
}

/// SplitMix64: a seeded sequence without state worth speaking of.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn stopped() -> io::Error {
    io::Error::other("the simulated machine has stopped")
}

impl World {
    /// Counts one operation that changes the disk; fails from the chosen one on.
    fn step(&mut self) -> io::Result<()> {
        if self.faults.stop_at.is_some_and(|at| self.operations >= at) {
            return Err(stopped());
        }
        self.operations += 1;
        Ok(())
    }

    fn used(&self) -> u64 {
        self.inodes.values().map(|inode| inode.bytes.len() as u64).sum()
    }

    fn inode(&mut self, inode: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&inode).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Inode {
    /// Makes the file `len` long; bytes that come in are zero.
    fn resize(&mut self, len: usize) {
        let (from, to) = (self.bytes.len().min(len), self.bytes.len().max(len));
        self.bytes.resize(len, 0);
        if from != to {
            self.touch(from, to);
        }
    }

    fn touch(&mut self, from: usize, to: usize) {
        self.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
    }

    /// Makes durable what was written since the last sync, and only that: what a failed sync dropped stays dropped.
    fn keep(&mut self) {
        self.durable.resize(self.bytes.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            let from = (sector * SECTOR).min(self.bytes.len());
            let to = (from + SECTOR).min(self.bytes.len());
            self.durable[from..to].copy_from_slice(&self.bytes[from..to]);
        }
    }

    /// What is found after a crash.
    fn crash(&mut self, seed: &mut u64) {
        // The length is metadata: old or new, never something between.
        let mut after = self.durable.clone();
        if random(seed).is_multiple_of(2) {
            after.resize(self.bytes.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            let from = sector * SECTOR;
            let to = (from + SECTOR).min(after.len());
            if from >= to {
                continue;
            }
            let new: Vec<u8> = (from..to).map(|at| self.bytes.get(at).copied().unwrap_or(0)).collect();
            match random(seed) % 8 {
                0..=2 => {}
                3..=5 => after[from..to].copy_from_slice(&new),
                6 => {
                    let cut = random(seed) as usize % (to - from);
                    after[from..from + cut].copy_from_slice(&new[..cut]);
                }
                _ => after[from..to].iter_mut().for_each(|byte| *byte = random(seed) as u8),
            }
        }
        self.bytes.clone_from(&after);
        self.durable = after;
    }
}

impl SimStorage {
    /// An empty disk.
    pub fn new() -> SimStorage {
        SimStorage::default()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operations so far that changed the disk (create, write, allocate, sync, rename, remove, …).
    pub fn operations(&self) -> u64 {
        self.world().operations
    }

    /// The machine stops before the operation with this number: that one and all later ones fail.
    pub fn stop_at(&self, operation: u64) {
        self.world().faults.stop_at = Some(operation);
    }

    /// The sync after `syncs` more syncs fails, and loses what it should have kept, as Linux does.
    pub fn fail_sync_in(&self, syncs: u64) {
        self.world().faults.fail_sync_in = Some(syncs);
    }

    /// The write after `writes` more writes fails half-way.
    pub fn fail_write_in(&self, writes: u64) {
        self.world().faults.fail_write_in = Some(writes);
    }

    /// From now on syncs of files say that all is well and do nothing: the disk that the crash test must catch.
    pub fn lie_about_files(&self) {
        self.world().faults.lies_about_files = true;
    }

    /// The same for syncs of folders.
    pub fn lie_about_dirs(&self) {
        self.world().faults.lies_about_dirs = true;
    }

    /// The disk has room for this many bytes.
    pub fn limit_space(&self, bytes: u64) {
        self.world().faults.space = Some(bytes);
    }

    /// Ends the process and lets another one start: nothing is lost, not even what was never synced. All faults that were
    /// ordered are off afterwards, and files that were open are dead.
    pub fn kill(&self) {
        let mut world = self.world();
        world.life += 1;
        world.faults = Faults::default();
    }

    /// Cuts the power and starts the machine again: what was not synced is kept, lost, torn or noise, as `seed` says.
    /// All faults that were ordered are off afterwards, and files that were open are dead.
    pub fn crash(&self, mut seed: u64) {
        let mut world = self.world();
        world.life += 1;
        world.faults = Faults::default();
        // Each changed name is either as before or as after.
        let mut names = world.durable_names.clone();
        let mut changed: Vec<PathBuf> =
            world.names.keys().chain(world.durable_names.keys()).cloned().collect();
        changed.sort_unstable();
        changed.dedup();
        for path in changed {
            if world.names.get(&path) != world.durable_names.get(&path) && random(&mut seed).is_multiple_of(2)
            {
                match world.names.get(&path).copied() {
                    Some(inode) => names.insert(path, inode),
                    None => names.remove(&path),
                };
            }
        }
        // Inodes without a name are gone.
        world.inodes.retain(|inode, _| names.values().any(|named| named == inode));
        world.names.clone_from(&names);
        world.durable_names = names;
        for inode in world.inodes.values_mut() {
            inode.crash(&mut seed);
        }
    }

    /// The bytes of a file as the running system sees them, for tests that damage it.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world();
        world.names.get(path).and_then(|inode| world.inodes.get(inode)).map(|inode| inode.bytes.clone())
    }

    /// Puts bytes into a file, durable at once, for tests that damage it.
    pub fn set_bytes(&self, path: &Path, bytes: Vec<u8>) {
        let mut world = self.world();
        let inode = match world.names.get(path).copied() {
            Some(inode) => inode,
            None => {
                world.next_inode += 1;
                let inode = world.next_inode;
                world.names.insert(path.to_path_buf(), inode);
                inode
            }
        };
        world.durable_names.insert(path.to_path_buf(), inode);
        let contents = Inode { durable: bytes.clone(), bytes, dirty: Default::default() };
        world.inodes.insert(inode, contents);
    }
}

impl Storage for SimStorage {
    type File = SimFile;
    type Lock = ();
    const BACKGROUND: bool = false;

    fn open(&self, path: &Path) -> io::Result<SimFile> {
        let world = self.world();
        let inode = *world.names.get(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(SimFile { storage: self.clone(), inode, life: world.life })
    }

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let mut world = self.world();
        world.step()?;
        if world.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        world.next_inode += 1;
        let inode = world.next_inode;
        world.inodes.insert(inode, Inode::default());
        world.names.insert(path.to_path_buf(), inode);
        Ok(SimFile { storage: self.clone(), inode, life: world.life })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        for dir in path.ancestors() {
            if !world.dirs.iter().any(|known| known == dir) {
                world.dirs.push(dir.to_path_buf());
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.world();
        let children = world.names.keys().chain(world.dirs.iter()).filter(|path| path.parent() == Some(dir));
        let mut names: Vec<String> =
            children.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        let inode = world.names.remove(from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        world.names.insert(to.to_path_buf(), inode);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        // The inode stays for those who have it open, and for a crash that brings the name back.
        world.names.remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        if world.faults.lies_about_dirs {
            return Ok(());
        }
        world.durable_names.retain(|path, _| path.parent() != Some(dir));
        let now: Vec<(PathBuf, u64)> = world
            .names
            .iter()
            .filter(|(path, _)| path.parent() == Some(dir))
            .map(|(path, inode)| (path.clone(), *inode))
            .collect();
        world.durable_names.extend(now);
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let world = self.world();
        Ok(world.names.contains_key(path) || world.dirs.iter().any(|dir| dir == path))
    }

    fn lock(&self, _dir: &Path) -> io::Result<Option<()>> {
        Ok(Some(()))
    }
}

impl SimFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.storage.world();
        if world.life == self.life { Ok(world) } else { Err(stopped()) }
    }

    fn check_space(world: &World, inode: u64, len: u64) -> io::Result<()> {
        let now = world.inodes.get(&inode).map_or(0, |inode| inode.bytes.len() as u64);
        match world.faults.space {
            Some(space) if len > now && world.used() + (len - now) > space => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }
}

impl StorageFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut world = self.world()?;
        let at = offset as usize;
        let stop = world.step().is_err();
        let fail = match &mut world.faults.fail_write_in {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        if stop {
            return Err(stopped());
        }
        Self::check_space(&world, self.inode, offset + bytes.len() as u64)?;
        // A write that fails leaves a part behind.
        let bytes = if fail { &bytes[..bytes.len() / 2] } else { bytes };
        let inode = world.inode(self.inode)?;
        if inode.bytes.len() < at + bytes.len() {
            inode.resize(at + bytes.len());
        }
        inode.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        inode.touch(at, at + bytes.len());
        if fail { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut world = self.world()?;
        let inode = world.inode(self.inode)?;
        let from = (offset as usize).min(inode.bytes.len());
        let count = into.len().min(inode.bytes.len() - from);
        into[..count].copy_from_slice(&inode.bytes[from..from + count]);
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.world()?;
        world.step()?;
        let fail = match &mut world.faults.fail_sync_in {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        let lies = world.faults.lies_about_files;
        let inode = world.inode(self.inode)?;
        if fail {
            // Linux marks the pages clean: a second sync would succeed and keep nothing.
            inode.dirty.clear();
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if !lies {
            inode.keep();
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut world = self.world()?;
        world.step()?;
        Self::check_space(&world, self.inode, len)?;
        let inode = world.inode(self.inode)?;
        if inode.bytes.len() < len as usize {
            inode.resize(len as usize);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut world = self.world()?;
        Ok(world.inode(self.inode)?.bytes.len() as u64)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut world = self.world()?;
        world.step()?;
        world.inode(self.inode)?.resize(len as usize);
        Ok(())
    }
}
