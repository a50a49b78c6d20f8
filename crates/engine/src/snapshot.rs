//! Snapshots: the state after a command, in one file, so that a start replays only the rest of the journal.
//!
//! ```text
//! magic 8 │ version u32 │ topics u32 │ seq u64 │ time i64 │ chain u64 │ digest u128 │ body length u64
//! topics: name length u8, name, partitions u32, one counter u64 each
//! body: the core's encoding of the exchange
//! CRC-32C u32 of everything before
//! ```
//! Little-endian. Written under a temporary name, synced, renamed, folder synced: a file with its final name is whole.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hoga_core::exchange::Exchange;
use hoga_core::ids::Seq;
use hoga_log::segment::crc32c;
use hoga_log::storage::{Storage, StorageFile};

use crate::error::EngineError;
use crate::publisher::Counters;

const MAGIC: &[u8; 8] = b"HOGASNAP";
const VERSION: u32 = 1;
const DIGEST_AT: usize = 8 + 4 + 4 + 8 + 8 + 8;
const HEADER: usize = DIGEST_AT + 16 + 8;
const PREFIX: &str = "snapshot-";
const SUFFIX: &str = ".snap";
const TEMPORARY: &str = ".tmp";

/// Bytes between two syncs while a snapshot is written: small, so that the journal's syncs never wait behind much.
const CHUNK: usize = 64 << 10;

/// A snapshot in memory, ready to be written.
pub(crate) struct Encoded {
    pub seq: Seq,
    pub bytes: Vec<u8>,
    /// Where the core's encoding begins.
    body_at: usize,
}

/// A snapshot that was read back.
pub(crate) struct Restored {
    pub seq: Seq,
    pub exchange: Exchange,
    pub digest: u128,
    pub counters: Vec<(String, Vec<u64>)>,
}

/// Encodes the state and the topics' counters. Digest and checksum are added by [`seal`], off the shadow's thread.
pub(crate) fn encode(exchange: &Exchange, counters: &Counters, room: usize) -> Encoded {
    let mut bytes = Vec::with_capacity(room);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(counters.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&exchange.position().0.to_le_bytes());
    bytes.extend_from_slice(&exchange.time().0.to_le_bytes());
    bytes.extend_from_slice(&exchange.chain().to_le_bytes());
    bytes.extend_from_slice(&0_u128.to_le_bytes());
    let length_at = bytes.len();
    bytes.extend_from_slice(&0_u64.to_le_bytes());
    for (name, counters) in counters {
        bytes.push(name.len() as u8); // the three topics' names are short constants
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(counters.len() as u32).to_le_bytes());
        counters.iter().for_each(|counter| bytes.extend_from_slice(&counter.to_le_bytes()));
    }
    let body_at = bytes.len();
    exchange.encode_snapshot(&mut bytes);
    let body = (bytes.len() - body_at) as u64;
    bytes[length_at..length_at + 8].copy_from_slice(&body.to_le_bytes());
    Encoded { seq: exchange.position(), bytes, body_at }
}

/// Adds the digest and the checksum.
pub(crate) fn seal(encoded: &mut Encoded) {
    let digest = Exchange::digest_of(&encoded.bytes[encoded.body_at..]);
    encoded.bytes[DIGEST_AT..DIGEST_AT + 16].copy_from_slice(&digest.to_le_bytes());
    let crc = crc32c(&encoded.bytes);
    encoded.bytes.extend_from_slice(&crc.to_le_bytes());
}

/// Reads bytes front to back; every length is checked before it is used.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

/// Reads a snapshot and checks it: checksum, length, and the digest of the state that it gives. The error says what is wrong.
pub(crate) fn decode(bytes: &[u8]) -> Result<Restored, String> {
    let Some((content, crc)) = bytes.split_last_chunk::<4>().filter(|(content, _)| content.len() >= HEADER)
    else {
        return Err("it is too short".to_owned());
    };
    if crc32c(content) != u32::from_le_bytes(*crc) {
        return Err("its checksum does not match".to_owned());
    }
    let mut cursor = Cursor { rest: content };
    if cursor.take(8)? != MAGIC {
        return Err("it is not a snapshot".to_owned());
    }
    let version = cursor.u32()?;
    if version != VERSION {
        return Err(format!("its version {version} is not known to this build (it reads {VERSION})"));
    }
    let topics = cursor.u32()?;
    let (seq, time, chain) = (Seq(cursor.u64()?), cursor.u64()? as i64, cursor.u64()?);
    let digest = u128::from_le_bytes(cursor.array()?);
    let body = cursor.u64()?;
    let mut counters = Vec::new();
    for _ in 0..topics {
        let [name] = cursor.array()?;
        let name =
            std::str::from_utf8(cursor.take(name.into())?).map_err(|_| "a topic's name is not a text")?;
        let partitions = cursor.u32()?;
        let numbers: Result<Vec<u64>, String> = (0..partitions).map(|_| cursor.u64()).collect();
        counters.push((name.to_owned(), numbers?));
    }
    if cursor.rest.len() as u64 != body {
        return Err(format!("its body has {} bytes, not {body}", cursor.rest.len()));
    }
    let exchange = Exchange::decode_snapshot(cursor.rest).map_err(|error| error.to_string())?;
    if exchange.position() != seq || exchange.time().0 != time || exchange.chain() != chain {
        return Err("its header and its body contradict each other".to_owned());
    }
    if exchange.digest() != digest {
        return Err(format!("its state has digest {:032x}, not {digest:032x}", exchange.digest()));
    }
    Ok(Restored { seq, exchange, digest, counters })
}

fn file_name(seq: Seq) -> String {
    format!("{PREFIX}{:020}{SUFFIX}", seq.0)
}

fn parse_name(name: &str) -> Option<Seq> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    if digits.len() == 20 { digits.parse().ok().map(Seq) } else { None }
}

/// A folder of snapshots.
#[derive(Clone)]
pub(crate) struct SnapshotDir<S: Storage> {
    storage: S,
    dir: PathBuf,
}

impl<S: Storage> SnapshotDir<S> {
    /// Opens the folder, makes it where it is missing, and removes what an interrupted write left.
    pub fn open(storage: S, dir: PathBuf) -> Result<SnapshotDir<S>, EngineError> {
        storage.create_dir(&dir).map_err(io("create the folder", &dir))?;
        let snapshots = SnapshotDir { storage, dir };
        for name in snapshots.names()? {
            if name.starts_with(PREFIX) && name.ends_with(TEMPORARY) {
                snapshots.remove(&name)?;
            }
        }
        Ok(snapshots)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    fn names(&self) -> Result<Vec<String>, EngineError> {
        self.storage.list(&self.dir).map_err(io("list the folder", &self.dir))
    }

    fn remove(&self, name: &str) -> Result<(), EngineError> {
        let path = self.dir.join(name);
        self.storage.remove(&path).map_err(io("remove", &path))
    }

    /// The snapshots by their names, oldest first.
    pub fn list(&self) -> Result<Vec<Seq>, EngineError> {
        let mut found: Vec<Seq> = self.names()?.iter().filter_map(|name| parse_name(name)).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Renames a damaged one, so that it no longer counts as a snapshot and is still there to be looked at.
    pub fn set_aside(&self, seq: Seq) -> Result<(), EngineError> {
        let path = self.dir.join(file_name(seq));
        let aside = self.dir.join(format!("{}.damaged", file_name(seq)));
        self.storage.rename(&path, &aside).map_err(io("rename", &path))?;
        self.storage.sync_dir(&self.dir).map_err(io("sync the folder", &self.dir))
    }

    /// Reads and checks one. The error says what is wrong with it.
    pub fn read(&self, seq: Seq) -> Result<Restored, String> {
        let path = self.dir.join(file_name(seq));
        let read = || -> std::io::Result<Vec<u8>> {
            let file = self.storage.open(&path)?;
            let mut bytes = vec![0; usize::try_from(file.len()?).map_err(std::io::Error::other)?];
            let mut at = 0;
            while at < bytes.len() {
                match file.read_at(at as u64, &mut bytes[at..])? {
                    0 => break,
                    count => at += count,
                }
            }
            bytes.truncate(at);
            Ok(bytes)
        };
        let restored = decode(&read().map_err(|error| error.to_string())?)?;
        if restored.seq != seq {
            return Err(format!("it holds command {}, its name says {seq}", restored.seq));
        }
        Ok(restored)
    }

    /// Writes one, at most `rate` bytes a second (0: no limit) as long as `hurry` does not say otherwise.
    pub fn write(&self, encoded: &Encoded, rate: u64, hurry: impl Fn() -> bool) -> Result<(), EngineError> {
        let path = self.dir.join(file_name(encoded.seq));
        let temporary = self.dir.join(format!("{}{TEMPORARY}", file_name(encoded.seq)));
        if self.storage.exists(&temporary).map_err(io("look for", &temporary))? {
            self.storage.remove(&temporary).map_err(io("remove", &temporary))?;
        }
        let file = self.storage.create(&temporary).map_err(io("create", &temporary))?;
        file.allocate(encoded.bytes.len() as u64).map_err(io("reserve space for", &temporary))?;
        let start = Instant::now();
        for (index, chunk) in encoded.bytes.chunks(CHUNK).enumerate() {
            let offset = (index * CHUNK) as u64;
            file.write_at(offset, chunk).map_err(io("write", &temporary))?;
            if hurry() {
                continue;
            }
            // Synced piece by piece: one large sync at the end would hold up the journal's.
            file.start_write_back(offset, chunk.len() as u64).map_err(io("write back", &temporary))?;
            let written = offset + chunk.len() as u64;
            if let Some(due) = written.saturating_mul(1_000_000).checked_div(rate).map(Duration::from_micros)
                && let Some(early) = due.checked_sub(start.elapsed())
            {
                std::thread::sleep(early);
            }
        }
        file.sync().map_err(io("sync", &temporary))?;
        self.storage.rename(&temporary, &path).map_err(io("rename", &temporary))?;
        self.storage.sync_dir(&self.dir).map_err(io("sync the folder", &self.dir))
    }

    /// Removes all but the newest `keep`; returns the oldest that is kept once there are `keep` of them.
    pub fn prune(&self, keep: usize) -> Result<Option<Seq>, EngineError> {
        let found = self.list()?;
        let keep = keep.max(1);
        let Some(surplus) = found.len().checked_sub(keep) else { return Ok(None) };
        for seq in &found[..surplus] {
            self.remove(&file_name(*seq))?;
        }
        if surplus > 0 {
            self.storage.sync_dir(&self.dir).map_err(io("sync the folder", &self.dir))?;
        }
        Ok(found.get(surplus).copied())
    }
}

fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> EngineError + 'a {
    move |source| EngineError::Io { action, path: path.to_path_buf(), source }
}
