//! Messages that a group could not use: kept with the reason, the place and the bytes, so that nothing is swallowed.

use hoga_core::ids::Timestamp;
use rusqlite::{Connection, params};
use std::path::Path;

use crate::MAX_ROWS;
use crate::cells::collect;
use crate::database::ReadPool;
use crate::error::{InFile, StoreError};

/// A message that a group could not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Number in this database, from 1.
    pub id: u64,
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

/// Stores a dead letter (its `id` is given by the database).
pub(crate) fn store(conn: &Connection, path: &Path, letter: &DeadLetter) -> Result<(), StoreError> {
    let sql = "INSERT INTO dead_letters (topic, partition, place, time, reason, message_key, value)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let mut insert = conn.prepare_cached(sql).doing(path, "preparing to store a dead letter")?;
    insert
        .execute(params![
            letter.topic,
            letter.partition,
            letter.offset as i64,
            letter.time.0,
            letter.reason,
            letter.key,
            letter.value
        ])
        .doing(path, "storing a dead letter")?;
    Ok(())
}

/// How many there are.
pub(crate) fn count(conn: &Connection, path: &Path) -> Result<u64, StoreError> {
    let count: i64 = conn
        .query_row("SELECT count(*) FROM dead_letters", [], |row| row.get(0))
        .doing(path, "counting the dead letters")?;
    Ok(count as u64)
}

/// The latest ones, latest first.
pub(crate) fn list(pool: &ReadPool, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
    pool.read("reading dead letters", |conn| {
        let sql = "SELECT id, topic, partition, place, time, reason, message_key, value FROM dead_letters
                   ORDER BY id DESC LIMIT ?1";
        let mut statement = conn.prepare_cached(sql).doing(pool.path(), "preparing a query")?;
        collect(&mut statement, [limit.min(MAX_ROWS) as i64], pool.path(), |cells| {
            Ok(DeadLetter {
                id: cells.unsigned()?,
                topic: cells.get()?,
                partition: cells.small("partition")?,
                offset: cells.unsigned()?,
                time: cells.time()?,
                reason: cells.get()?,
                key: cells.get()?,
                value: cells.get()?,
            })
        })
    })
}
