//! The SQLite side: one file per group in WAL mode, one writer, read-only connections beside it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::{ToSql, ToSqlOutput};
use rusqlite::{Connection, OpenFlags, Statement};

use super::rows::{Data, Rows, Value, pieces};
use super::{Place, Safety, label};
use crate::cells::Cells;
use crate::error::StoreError;

/// A connection to one file.
pub(crate) struct Session {
    conn: Connection,
    label: Arc<str>,
}

/// The log of 16,384 pages (64 MiB) lets a hot page be written many times before it is copied into the database once.
const WRITER_PRAGMAS: &str =
    "PRAGMA journal_mode = WAL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768;
    PRAGMA wal_autocheckpoint = 16384; PRAGMA journal_size_limit = 67108864; PRAGMA foreign_keys = OFF;";

const READER_PRAGMAS: &str = "PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY;";

impl Session {
    /// Opens (and makes, when it is new) the file for its one writer.
    pub(super) fn writer(place: &Place) -> Result<Session, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let session = Session::open(place, flags, WRITER_PRAGMAS)?;
        session.set_safety(Safety::Rebuildable)?;
        Ok(session)
    }

    /// Opens an existing file for questions.
    pub(super) fn reader(place: &Place) -> Result<Session, StoreError> {
        Session::open(place, OpenFlags::SQLITE_OPEN_READ_ONLY, READER_PRAGMAS)
    }

    fn open(place: &Place, flags: OpenFlags, pragmas: &str) -> Result<Session, StoreError> {
        let label = label(place);
        let path = place.path().expect("the place of a SQLite session has a file");
        let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let conn = conn.map_err(|error| fault(&label, "opening the database", error))?;
        let session = Session { conn, label };
        session.of("setting the busy timeout", session.conn.busy_timeout(Duration::from_secs(5)))?;
        session.of("setting up the connection", session.conn.execute_batch(pragmas))?;
        session.conn.set_prepared_statement_cache_capacity(64);
        Ok(session)
    }

    fn of<T>(&self, doing: &'static str, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| fault(&self.label, doing, error))
    }

    pub(super) fn label(&self) -> &Arc<str> {
        &self.label
    }

    pub(super) fn set_safety(&self, safety: Safety) -> Result<(), StoreError> {
        let pragma = match safety {
            Safety::Rebuildable => "PRAGMA synchronous = NORMAL",
            Safety::Durable => "PRAGMA synchronous = FULL",
        };
        self.of("setting the durability", self.conn.execute_batch(pragma))
    }

    /// The version of the tables; 0 in a new file.
    pub(super) fn version(&self) -> Result<i64, StoreError> {
        let version = self.conn.query_row("PRAGMA user_version", [], |row| row.get(0));
        self.of("reading the schema version", version)
    }

    pub(super) fn begin(&self, write: bool) -> Result<(), StoreError> {
        let sql = if write { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.of("beginning a transaction", self.conn.execute_batch(sql))
    }

    pub(super) fn end(&self, commit: bool) -> Result<(), StoreError> {
        if self.conn.is_autocommit() {
            return Ok(());
        }
        let result = self.conn.execute_batch(if commit { "COMMIT" } else { "ROLLBACK" });
        if commit && result.is_err() {
            // A refused commit leaves the transaction open; nothing of it is to stay.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        self.of("committing a batch", result)
    }

    pub(super) fn script(&self, sql: &str, doing: &'static str) -> Result<(), StoreError> {
        self.of(doing, self.conn.execute_batch(sql))
    }

    pub(super) fn write(&self, rows: &Rows) -> Result<(), StoreError> {
        let table = rows.table;
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
        let places: Vec<String> = (1..=names.len()).map(|at| format!("?{at}")).collect();
        let sql = format!(
            "INSERT INTO {} ({}) VALUES ({}) {}",
            table.name,
            names.join(", "),
            places.join(", "),
            table.conflict
        );
        let insert = self.conn.prepare_cached(&sql);
        let mut insert = self.of("preparing to store rows", insert)?;
        let write = write_rows(&mut insert, rows);
        self.of("storing rows", write)
    }

    pub(super) fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        let statement = self.conn.prepare_cached(sql);
        let mut statement = self.of("preparing a statement", statement)?;
        let touched = statement.execute(rusqlite::params_from_iter(values));
        self.of("running a statement", touched).map(|rows| rows as u64)
    }

    pub(super) fn each(
        &self,
        sql: &str,
        values: &[Value<'_>],
        take: &mut dyn FnMut(&mut Cells<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let statement = self.conn.prepare_cached(sql);
        let mut statement = self.of("preparing a query", statement)?;
        let rows = statement.query(rusqlite::params_from_iter(values));
        let mut rows = self.of("running a query", rows)?;
        loop {
            let row = rows.next();
            let Some(row) = self.of("reading a row", row)? else { return Ok(()) };
            if take(&mut Cells::sqlite(row, &self.label))?.is_break() {
                return Ok(());
            }
        }
    }
}

fn files(path: &Path) -> [PathBuf; 3] {
    ["db", "db-wal", "db-shm"].map(|ending| path.with_extension(ending))
}

pub(super) fn remove(place: &Place) -> Result<(), StoreError> {
    let path = place.path().expect("the place of SQLite tables has a file");
    for file in files(&path) {
        match std::fs::remove_file(&file) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::File { path: file, doing: "removing what a rebuild left", source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// The new file is whole and synced before its name changes: all of its log is in it.
pub(super) fn swap(live: &Place, next: &Place) -> Result<(), StoreError> {
    let new = Session::writer(next)?;
    new.set_safety(Safety::Durable)?;
    new.script("PRAGMA wal_checkpoint(TRUNCATE)", "bringing the new tables into one file")?;
    drop(new);
    // The old file takes in its own log, so that none is left beside the new one.
    let old = Session::writer(live)?;
    old.script("PRAGMA wal_checkpoint(TRUNCATE)", "closing the old tables")?;
    drop(old);
    let [from, ..] = files(&next.path().expect("the place of SQLite tables has a file"));
    let [to, log, shared] = files(&live.path().expect("the place of SQLite tables has a file"));
    for beside in [log, shared] {
        if beside.exists() {
            let source = std::io::Error::other("another process has the file open; stop it first");
            return Err(StoreError::File { path: beside, doing: "swapping the tables", source });
        }
    }
    let of = |source| StoreError::File { path: to.clone(), doing: "swapping the tables", source };
    std::fs::rename(&from, &to).map_err(of)?;
    let dir = to.parent().unwrap_or(Path::new("."));
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(of)
}

fn write_rows(insert: &mut Statement<'_>, rows: &Rows) -> rusqlite::Result<()> {
    let mut texts: Vec<_> = rows
        .columns
        .iter()
        .map(|column| match column {
            Data::Text(text, ends) => Some(pieces(text, ends)),
            _ => None,
        })
        .collect();
    for at in 0..rows.len() {
        for (number, column) in rows.columns.iter().enumerate() {
            let parameter = number + 1;
            match column {
                Data::Int(values) => insert.raw_bind_parameter(parameter, values[at])?,
                Data::MaybeInt(values) => insert.raw_bind_parameter(parameter, values[at])?,
                Data::Text(..) => {
                    let text = texts[number].as_mut().and_then(Iterator::next).unwrap_or_default();
                    insert.raw_bind_parameter(parameter, text)?;
                }
                Data::MaybeBytes(values) => insert.raw_bind_parameter(parameter, values[at].as_deref())?,
            }
        }
        insert.raw_execute()?;
    }
    Ok(())
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::from(rusqlite::types::Null),
            Value::Int(value) => ToSqlOutput::from(*value),
            Value::Text(text) => ToSqlOutput::from(*text),
            Value::Bytes(bytes) => ToSqlOutput::from(*bytes),
        })
    }
}

/// SQLite's error as ours. A file that another connection holds is free again later.
fn fault(label: &Arc<str>, doing: &'static str, error: rusqlite::Error) -> StoreError {
    let busy = [rusqlite::ErrorCode::DatabaseBusy, rusqlite::ErrorCode::DatabaseLocked];
    if error.sqlite_error_code().is_some_and(|code| busy.contains(&code)) {
        return StoreError::Unavailable { database: label.to_string(), doing, reason: error.to_string() };
    }
    StoreError::Database { database: label.to_string(), doing, source: error.into() }
}
