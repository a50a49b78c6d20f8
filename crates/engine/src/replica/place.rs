//! Where a node is in the topic: a small file beside its journal, so that a start reads on from there instead of from the first message.
//!
//! It is written after the journal was synced up to it, so the journal never ends before it; what was read since is read again, and commands
//! that the journal has are passed over.

use std::path::Path;

use hoga_core::ids::Seq;
use hoga_log::event_log::{EventLog, StoredMessage};
use hoga_log::segment::crc32c;
use hoga_log::storage::{Storage, read_small, replace_small};

use super::fence::Fence;
use super::message::{self, Content};
use super::{ReplicaError, Replication};
use crate::error::EngineError;

const NAME: &str = "replica";
const MAGIC: &[u8; 8] = b"HOGAREPL";
const VERSION: u32 = 1;
const LEN: usize = 8 + 4 + 4 + 6 * 8 + 4 + 4;

/// A place in the topic, and what was decided up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The offset to read next.
    pub offset: u64,
    pub fence: Fence,
    /// Checksum of the message before it; 0 at the beginning.
    pub witness: u32,
}

impl Place {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.fence.vacant).to_le_bytes());
        let Fence { epoch, leader, heard, next, .. } = self.fence;
        for number in [self.offset, epoch, leader, heard, next.0, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.witness.to_le_bytes());
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Place> {
        let (content, crc) = bytes.split_last_chunk::<4>()?;
        let fits = bytes.len() == LEN && content.starts_with(MAGIC);
        if !fits || crc32c(content) != u32::from_le_bytes(*crc) {
            return None;
        }
        let u32_at = |at: usize| content[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let u64_at = |at: usize| content[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        if u32_at(8)? != VERSION {
            return None;
        }
        let fence = Fence {
            epoch: u64_at(24)?,
            leader: u64_at(32)?,
            vacant: u32_at(12)? != 0,
            heard: u64_at(40)?,
            next: Seq(u64_at(48)?),
        };
        Some(Place { offset: u64_at(16)?, fence, witness: u32_at(64)? })
    }

    /// Writes it; the journal must be synced up to it.
    pub fn write<S: Storage>(&self, storage: &S, dir: &Path) -> Result<(), EngineError> {
        let path = dir.join(NAME);
        replace_small(storage, dir, NAME, &self.encode()).map_err(|source| EngineError::Io {
            action: "write",
            path,
            source,
        })
    }
}

/// Finds where to go on: checks that the node's folder belongs to the topic and that the topic still has what comes next.
pub(crate) fn find<S: Storage>(
    storage: &S,
    dir: &Path,
    replication: &Replication,
    last: Seq,
) -> Result<Place, EngineError> {
    let Replication { log, topic, .. } = replication;
    let foreign = |reason: String| ReplicaError::Foreign { topic: topic.clone(), reason };
    let start = log.start_offset(topic, 0)?;
    let end = log.end_offset(topic, 0)?;
    let path = dir.join(NAME);
    let io = |source| EngineError::Io { action: "read", path: path.clone(), source };
    if !storage.exists(&path).map_err(io)? {
        if last > Seq(0) && end > 0 {
            let reason = format!(
                "the topic has {end} messages, and the journal has {last} commands but no place in the topic (file {})",
                path.display()
            );
            return Err(foreign(reason).into());
        }
        if start > 0 {
            let first = first_command(&**log, topic, start)?;
            return Err(ReplicaError::Behind { topic: topic.clone(), start, first, needed: Seq(1) }.into());
        }
        let place = Place { offset: 0, fence: Fence::new(), witness: 0 };
        place.write(storage, dir)?;
        return Ok(place);
    }
    let bytes = read_small(storage, &path, 4_096).map_err(io)?;
    let place = Place::decode(&bytes).ok_or_else(|| foreign(format!("{} is damaged", path.display())))?;
    if place.offset > end {
        let reason = format!("it ends at offset {end}, and this node has read up to {}", place.offset);
        return Err(foreign(reason).into());
    }
    if place.fence.epoch > 0 && last.next() < place.fence.next {
        let reason = format!(
            "the journal ends at command {last}, and this node's place in the topic is behind command {}",
            place.fence.next.0 - 1
        );
        return Err(foreign(reason).into());
    }
    if place.offset < start {
        let first = first_command(&**log, topic, start)?;
        return Err(ReplicaError::Behind { topic: topic.clone(), start, first, needed: last.next() }.into());
    }
    if place.offset > start {
        let before = read_one(&**log, topic, place.offset - 1)?;
        let witness = before.and_then(|message| message.value).map_or(0, |value| crc32c(&value));
        if witness != place.witness {
            let reason = format!("the message at offset {} is another one", place.offset - 1);
            return Err(foreign(reason).into());
        }
    }
    Ok(place)
}

fn read_one(log: &dyn EventLog, topic: &str, offset: u64) -> Result<Option<StoredMessage>, EngineError> {
    let mut found = Vec::new();
    log.read(topic, 0, offset, 1, &mut found)?;
    Ok(found.pop().filter(|message| message.offset == offset))
}

/// The first command that can be had from an offset on.
fn first_command(log: &dyn EventLog, topic: &str, offset: u64) -> Result<Seq, EngineError> {
    let message = read_one(log, topic, offset)?;
    let envelope = message.as_ref().and_then(|message| message.value.as_deref());
    let envelope = envelope.and_then(|bytes| message::decode(bytes).ok());
    Ok(envelope.map_or(Seq(0), |envelope| match envelope.body {
        Content::Batch { first, .. } => first,
        Content::Claim { next, .. } | Content::Heartbeat { next } | Content::Resign { next } => next,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_damage_is_found() {
        let fence = Fence { epoch: 3, leader: 9, vacant: true, heard: 70, next: Seq(80) };
        let place = Place { offset: 71, fence, witness: 5 };
        let mut bytes = place.encode();
        assert_eq!(bytes.len(), LEN);
        assert_eq!(Place::decode(&bytes), Some(place));
        for bit in 0..LEN * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Place::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
