//! Where a group stands in a partition, and the check that each message is the one that is due.

use std::path::Path;

use hoga_core::event::EventRecord;
use hoga_core::ids::{Seq, Timestamp};
use rusqlite::{Connection, Transaction, params};

use crate::Group;
use crate::cells::{collect, first};
use crate::error::{InFile, StoreError};

/// Where a group stands in one partition of its topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The partition.
    pub partition: u32,
    /// The offset to read next.
    pub next_offset: u64,
    /// The number of the last message taken; 0 before the first.
    pub number: u64,
    /// The command of that message.
    pub seq: Seq,
    /// Its number among the command's events.
    pub index: u32,
    /// The command's time.
    pub time: Timestamp,
    /// Messages since then whose number nobody knows: they could not be decoded, or compaction removed them. The next number may be higher
    /// by so many.
    pub unknown: u64,
    /// Messages dropped because their number had been seen.
    pub repeated: u64,
    /// Messages that compaction removed before this group read them.
    pub compacted: u64,
}

/// Whether a message is to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// It is the next one.
    Next,
    /// It was seen before.
    Repeated,
}

impl Place {
    /// Notes that the next message of the partition is at `offset`. Compaction leaves holes; elsewhere a hole means lost messages.
    pub(crate) fn reach(&mut self, group: Group, compact: bool, offset: u64) -> Result<(), StoreError> {
        let skipped = offset.saturating_sub(self.next_offset);
        if skipped > 0 && !compact {
            return Err(StoreError::Trimmed {
                group,
                topic: group.topic().to_owned(),
                partition: self.partition,
                needed: self.next_offset,
                first: offset,
            });
        }
        self.unknown += skipped;
        self.compacted += skipped;
        Ok(())
    }

    /// Checks the number and the place of a decoded message, and takes it when it is the next one.
    pub(crate) fn take(
        &mut self,
        group: Group,
        offset: u64,
        number: u64,
        record: &EventRecord,
    ) -> Result<Due, StoreError> {
        let (here, last) = ((record.seq, record.index), (self.seq, self.index));
        let due = if number <= self.number { Due::Repeated } else { Due::Next };
        let in_order = match due {
            Due::Next => self.number == 0 || here > last,
            Due::Repeated if number == self.number => here == last,
            Due::Repeated => here < last,
        };
        if due == Due::Next && number - self.number - 1 > self.unknown {
            return Err(StoreError::Gap {
                group,
                topic: group.topic().to_owned(),
                partition: self.partition,
                offset,
                expected: self.number + 1,
                got: number,
            });
        }
        if !in_order {
            return Err(self.step_back(group, offset, number, record));
        }
        match due {
            Due::Repeated => self.repeated += 1,
            Due::Next => {
                (self.number, self.seq, self.index, self.time) =
                    (number, record.seq, record.index, record.time);
                self.unknown = 0;
            }
        }
        Ok(due)
    }

    /// The error for a message just before this place that was never taken.
    pub(crate) fn foreign(&self, group: Group, number: u64, record: &EventRecord) -> StoreError {
        self.step_back(group, self.next_offset.saturating_sub(1), number, record)
    }

    fn step_back(&self, group: Group, offset: u64, number: u64, record: &EventRecord) -> StoreError {
        StoreError::StepBack {
            group,
            topic: group.topic().to_owned(),
            partition: self.partition,
            offset,
            number,
            got: record.seq,
            last: self.seq,
        }
    }
}

/// The stored places of a topic.
pub(crate) fn load(conn: &Connection, path: &Path, topic: &str) -> Result<Vec<Place>, StoreError> {
    let sql =
        "SELECT partition, next_offset, number, seq, idx, time, undecoded, repeated, compacted FROM places
               WHERE topic = ?1 ORDER BY partition";
    let mut statement = conn.prepare_cached(sql).doing(path, "preparing to read the offsets")?;
    collect(&mut statement, [topic], path, |cells| {
        Ok(Place {
            partition: cells.small("partition")?,
            next_offset: cells.unsigned()?,
            number: cells.unsigned()?,
            seq: Seq(cells.unsigned()?),
            index: cells.small("idx")?,
            time: cells.time()?,
            unknown: cells.unsigned()?,
            repeated: cells.unsigned()?,
            compacted: cells.unsigned()?,
        })
    })
}

/// Stores the places of a topic and the applied command, in the transaction of what they stand for.
pub(crate) fn store(
    tx: &Transaction<'_>,
    path: &Path,
    topic: &str,
    places: &[Place],
    applied: Seq,
) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO places (topic, partition, next_offset, number, seq, idx, time, undecoded, repeated, compacted)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let mut replace = tx.prepare_cached(sql).doing(path, "preparing to store the offsets")?;
    for place in places {
        replace
            .execute(params![
                topic,
                place.partition,
                place.next_offset as i64,
                place.number as i64,
                place.seq.0 as i64,
                place.index,
                place.time.0,
                place.unknown as i64,
                place.repeated as i64,
                place.compacted as i64,
            ])
            .doing(path, "storing the offsets")?;
    }
    let sql = "INSERT OR REPLACE INTO applied (only, seq) VALUES (1, ?1)";
    let mut replace = tx.prepare_cached(sql).doing(path, "preparing to store the position")?;
    replace.execute([applied.0 as i64]).doing(path, "storing the position")?;
    Ok(())
}

/// The last command of which everything in the group's topic is in the database.
pub(crate) fn applied(conn: &Connection, path: &Path) -> Result<Seq, StoreError> {
    let sql = "SELECT seq FROM applied";
    let mut statement = conn.prepare_cached(sql).doing(path, "preparing to read the position")?;
    Ok(Seq(first(&mut statement, [], path, |cells| cells.unsigned())?.unwrap_or(0)))
}
