//! Where a group stands in a partition, and the check that each message is the one that is due.

use hoga_core::event::EventRecord;
use hoga_core::ids::{Seq, Timestamp};

use crate::Group;
use crate::error::StoreError;
use crate::sql::{Reader, Tx, values};

/// Where a group stands in one partition of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The topic.
    pub topic: &'static str,
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
    /// Everything that the partition has of commands up to this one is applied.
    pub complete: Seq,
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
                topic: self.topic.to_owned(),
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
                topic: self.topic.to_owned(),
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
            topic: self.topic.to_owned(),
            partition: self.partition,
            offset,
            number,
            got: record.seq,
            last: self.seq,
        }
    }
}

const COLUMNS: &str =
    "partition, next_offset, number, seq, idx, time, undecoded, repeated, compacted, complete";

/// The stored places of a group, by topic in the group's order and by partition.
pub(crate) fn load(reader: &Reader<'_>, group: Group) -> Result<Vec<Place>, StoreError> {
    let mut all = Vec::new();
    for topic in group.topics() {
        let sql = format!("SELECT {COLUMNS} FROM places WHERE topic = ?1 ORDER BY partition");
        all.extend(reader.all(&sql, values![*topic], |cells| {
            Ok(Place {
                topic,
                partition: cells.small("partition")?,
                next_offset: cells.unsigned()?,
                number: cells.unsigned()?,
                seq: Seq(cells.unsigned()?),
                index: cells.small("idx")?,
                time: cells.time()?,
                unknown: cells.unsigned()?,
                repeated: cells.unsigned()?,
                compacted: cells.unsigned()?,
                complete: Seq(cells.unsigned()?),
            })
        })?);
    }
    Ok(all)
}

/// Makes the row of a place that has none.
pub(crate) fn begin(tx: &mut Tx<'_>, place: &Place) -> Result<(), StoreError> {
    let sql = "INSERT INTO places (topic, partition, next_offset, number, seq, idx, time, undecoded, repeated, compacted, complete)
               VALUES (?1, ?2, 0, 0, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (topic, partition) DO NOTHING";
    tx.execute(sql, values![place.topic, place.partition]).map(|_| ())
}

/// Stores a place in the transaction of what it stands for, if the stored one is still at `before`: when it is not, another member of the
/// group has written this partition, and nothing of the transaction may stay.
pub(crate) fn store(tx: &mut Tx<'_>, group: Group, place: &Place, before: u64) -> Result<(), StoreError> {
    let sql = "UPDATE places SET next_offset = ?3, number = ?4, seq = ?5, idx = ?6, time = ?7, undecoded = ?8, repeated = ?9,
               compacted = ?10, complete = ?11 WHERE topic = ?1 AND partition = ?2 AND next_offset = ?12";
    let values = values![
        place.topic,
        place.partition,
        place.next_offset,
        place.number,
        place.seq.0,
        place.index,
        place.time.0,
        place.unknown,
        place.repeated,
        place.compacted,
        place.complete.0,
        before,
    ];
    if tx.execute(sql, values)? == 1 {
        return Ok(());
    }
    Err(StoreError::Moved { group, topic: place.topic.to_owned(), partition: place.partition })
}

/// The last command of which everything in the group's topics is in the database. What is no direct work of the engine counts for
/// nothing here.
pub(crate) fn applied(reader: &Reader<'_>) -> Result<Seq, StoreError> {
    let applied = reader.first(
        "SELECT coalesce(min(complete), 0) FROM places WHERE topic <> ?1",
        values![crate::FIRED],
        |cells| cells.unsigned(),
    )?;
    Ok(Seq(applied.unwrap_or(0)))
}
