//! Committed offsets of consumer groups: a small journal of commits, folded into a map.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hoga_core::ids::Seq;

use crate::error::LogError;
use crate::journal::{Batch, Durability, Journal, JournalConfig, JournalReader, remove_before};
use crate::storage::Storage;

/// Group, topic, partition.
pub(super) type Key = (String, String, u32);

const COMMIT: u8 = 1;
const FORGET: u8 = 2;
const SEGMENT_BYTES: u64 = 1 << 20;

pub(super) struct Groups<S: Storage> {
    storage: S,
    dir: PathBuf,
    /// After so many commits (more when there are many groups) the whole map is written again and the old ones are removed.
    fold_every: u64,
    state: Mutex<State<S>>,
}

struct State<S: Storage> {
    journal: Journal<S>,
    offsets: BTreeMap<Key, u64>,
    since_fold: u64,
    batch: Batch,
}

fn encode(kind: u8, key: &Key, offset: u64, into: &mut Vec<u8>) {
    into.push(kind);
    // Names are checked before: at most 100 bytes.
    into.push(key.0.len() as u8);
    into.push(key.1.len() as u8);
    into.extend_from_slice(&key.2.to_le_bytes());
    into.extend_from_slice(&offset.to_le_bytes());
    into.extend_from_slice(key.0.as_bytes());
    into.extend_from_slice(key.1.as_bytes());
}

fn decode(bytes: &[u8]) -> Option<(u8, Key, u64)> {
    let (head, names) = bytes.split_at_checked(15)?;
    let partition = u32::from_le_bytes(head[3..7].try_into().ok()?);
    let offset = u64::from_le_bytes(head[7..15].try_into().ok()?);
    let (group, topic) = names.split_at_checked(head[1] as usize)?;
    if topic.len() != head[2] as usize {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some((head[0], (text(group)?, text(topic)?, partition), offset))
}

impl<S: Storage> State<S> {
    fn apply(&mut self, kind: u8, key: Key, offset: u64) -> bool {
        match kind {
            COMMIT => {
                let committed = self.offsets.entry(key).or_insert(offset);
                *committed = (*committed).max(offset);
                true
            }
            FORGET => {
                self.offsets.remove(&key);
                true
            }
            _ => false,
        }
    }

    fn push(&mut self, kind: u8, key: &Key, offset: u64) {
        let seq = Seq(self.journal.last().0 + u64::from(self.batch.count()) + 1);
        self.batch.push_with(seq, |bytes| encode(kind, key, offset, bytes));
    }

    fn write(&mut self) -> Result<(), LogError> {
        let batch = &self.batch;
        let result = if batch.is_empty() {
            Ok(())
        } else {
            self.since_fold += u64::from(batch.count());
            self.journal
                .append(batch.first(), batch.count(), batch.records())
                .and_then(|()| self.journal.flush())
        };
        self.batch.clear();
        result
    }
}

impl<S: Storage> Groups<S> {
    pub(super) fn open(storage: S, dir: &Path, fold_every: u64) -> Result<Groups<S>, LogError> {
        let config = JournalConfig {
            dir: dir.to_path_buf(),
            segment_bytes: SEGMENT_BYTES,
            durability: Durability::Write,
        };
        let (journal, recovery) = Journal::open(storage.clone(), config)?;
        let mut state = State { journal, offsets: BTreeMap::new(), since_fold: 0, batch: Batch::new() };
        let mut reader = JournalReader::open(storage.clone(), dir, recovery.first)?;
        let mut bad = None;
        reader.read(recovery.last, usize::MAX, |seq, payload| {
            let known = decode(payload).is_some_and(|(kind, key, offset)| state.apply(kind, key, offset));
            if known {
                return ControlFlow::Continue(());
            }
            bad = Some(seq);
            ControlFlow::Break(())
        })?;
        if let Some(seq) = bad {
            return Err(LogError::Damaged {
                path: dir.to_path_buf(),
                offset: 0,
                expected: seq.0,
                what: "the record there is not a commit of a consumer group (was it written by a newer version?)"
                    .into(),
            });
        }
        state.since_fold = recovery.last.0 + 1 - recovery.first.0;
        Ok(Groups { storage, dir: dir.to_path_buf(), fold_every, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn commit(&self, key: Key, offset: u64) -> Result<(), LogError> {
        let mut state = self.state();
        if state.offsets.get(&key).is_some_and(|committed| *committed >= offset) {
            return Ok(());
        }
        state.push(COMMIT, &key, offset);
        state.write()?;
        state.apply(COMMIT, key, offset);
        if state.since_fold > self.fold_every + 4 * state.offsets.len() as u64 {
            self.fold(&mut state)?;
        }
        Ok(())
    }

    /// Removes the commits of a group on a topic.
    pub(super) fn forget(&self, group: &str, topic: &str) -> Result<bool, LogError> {
        let mut state = self.state();
        let keys: Vec<Key> =
            state.offsets.keys().filter(|key| key.0 == group && key.1 == topic).cloned().collect();
        for key in &keys {
            state.push(FORGET, key, 0);
        }
        state.write()?;
        for key in &keys {
            state.offsets.remove(key);
        }
        Ok(!keys.is_empty())
    }

    /// Writes the whole map again, and removes what it makes superfluous once it is durable.
    fn fold(&self, state: &mut State<S>) -> Result<(), LogError> {
        let first = state.journal.last().next();
        for (key, offset) in state.offsets.clone() {
            state.push(COMMIT, &key, offset);
            if state.batch.len() > 1 << 20 {
                state.write()?;
            }
        }
        state.write()?;
        state.since_fold = 0;
        state.journal.sync_device()?;
        remove_before(&self.storage, &self.dir, first)?;
        Ok(())
    }

    pub(super) fn get(&self, key: &Key) -> Option<u64> {
        self.state().offsets.get(key).copied()
    }

    /// The lowest offset that a group has committed on a partition; `None` when no group is registered there.
    pub(super) fn lowest(&self, topic: &str, partition: u32) -> Option<u64> {
        let state = self.state();
        let there = state.offsets.iter().filter(|(key, _)| key.1 == topic && key.2 == partition);
        there.map(|(_, offset)| *offset).min()
    }

    pub(super) fn all(&self) -> BTreeMap<Key, u64> {
        self.state().offsets.clone()
    }

    pub(super) fn sync(&self) -> Result<(), LogError> {
        self.state().journal.sync_device().map(|_| ())
    }
}
