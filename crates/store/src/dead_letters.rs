//! Messages that a group could not use: kept with the reason, the place and the bytes, so that nothing is swallowed.

use hoga_core::ids::Timestamp;

use crate::MAX_ROWS;
use crate::error::StoreError;
use crate::sql::{Kind, ReadPool, Reader, Rows, Table, Tx, values};

static DEAD_LETTERS: Table = Table {
    name: "dead_letters",
    columns: &[
        ("topic", Kind::Text),
        ("partition", Kind::Int),
        ("place", Kind::Int),
        ("time", Kind::Int),
        ("reason", Kind::Text),
        ("message_key", Kind::MaybeBytes),
        ("value", Kind::MaybeBytes),
    ],
    conflict: "ON CONFLICT (topic, partition, place) DO NOTHING",
};

/// A message that a group could not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it came from.
    pub topic: String,
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// The message's time.
    pub time: Timestamp,
    /// Why it could not be used.
    pub reason: String,
    /// Its key.
    pub key: Vec<u8>,
    /// Its bytes; `None` for a message without a value.
    pub value: Option<Vec<u8>>,
}

/// Stores dead letters.
pub(crate) fn store(tx: &mut Tx<'_>, letters: &[DeadLetter]) -> Result<(), StoreError> {
    let mut rows = Rows::new(&DEAD_LETTERS);
    for letter in letters {
        rows.text(&letter.topic).ints([i64::from(letter.partition), letter.offset as i64, letter.time.0]);
        // PostgreSQL's text has no zero bytes.
        rows.text(&letter.reason.replace('\0', " ")).bytes(Some(&letter.key)).bytes(letter.value.as_deref());
    }
    tx.write(&rows)
}

/// How many there are.
pub(crate) fn count(reader: &Reader<'_>) -> Result<u64, StoreError> {
    Ok(reader.first("SELECT count(*) FROM dead_letters", &[], |cells| cells.unsigned())?.unwrap_or(0))
}

/// The latest ones, latest first.
pub(crate) fn list(pool: &ReadPool, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
    pool.read("reading dead letters", |reader| {
        let sql = "SELECT topic, partition, place, time, reason, message_key, value FROM dead_letters
                   ORDER BY time DESC, topic, partition, place DESC LIMIT ?1";
        reader.all(sql, values![limit.min(MAX_ROWS)], |cells| {
            Ok(DeadLetter {
                topic: cells.text()?,
                partition: cells.small("partition")?,
                offset: cells.unsigned()?,
                time: cells.time()?,
                reason: cells.text()?,
                key: cells.bytes()?.unwrap_or_default(),
                value: cells.bytes()?,
            })
        })
    })
}
