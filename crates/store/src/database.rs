//! One SQLite file: a writer's connection and a small pool of read-only ones.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::{InFile, StoreError};

/// Tables that every read model has. `places` is where the group stands per partition; `applied` has one row: the last command of which
/// everything in this group's topic is in the database.
pub(crate) const COMMON_SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS places (
    topic TEXT NOT NULL, partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL, number INTEGER NOT NULL, seq INTEGER NOT NULL, idx INTEGER NOT NULL, time INTEGER NOT NULL,
    undecoded INTEGER NOT NULL, repeated INTEGER NOT NULL, compacted INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS applied (only INTEGER PRIMARY KEY CHECK (only = 1), seq INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS dead_letters (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL, place INTEGER NOT NULL, time INTEGER NOT NULL,
    reason TEXT NOT NULL, message_key BLOB NOT NULL, value BLOB
);";

/// How safe a commit is when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Safety {
    /// `synchronous = NORMAL`: never damaged, the last transactions may be lost in a power cut.
    Rebuildable,
    /// `synchronous = FULL`: on disk when the commit returns.
    Durable,
}

/// Opens (and makes, when it is new) a database for its one writer.
pub(crate) fn open_writer(
    path: &Path,
    version: i64,
    schemas: &[&str],
    safety: Safety,
) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).doing(path, "opening the database")?;
    conn.busy_timeout(Duration::from_secs(5)).doing(path, "setting the busy timeout")?;
    // The log of 16,384 pages (64 MiB) lets a hot page be written many times before it is copied into the database once.
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768;
        PRAGMA wal_autocheckpoint = 16384; PRAGMA journal_size_limit = 67108864; PRAGMA foreign_keys = OFF;";
    conn.execute_batch(pragmas).doing(path, "setting up the connection")?;
    set_safety(&conn, path, safety)?;
    let found: i64 = conn
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .doing(path, "reading the schema version")?;
    if found == 0 {
        let mut all = String::from("BEGIN IMMEDIATE;");
        for schema in schemas {
            all.push_str(schema);
        }
        all.push_str(&format!("PRAGMA user_version = {version}; COMMIT;"));
        conn.execute_batch(&all).doing(path, "creating the tables")?;
    } else if found != version {
        return Err(StoreError::Schema { file: path.to_path_buf(), found, wanted: version });
    }
    Ok(conn)
}

/// Sets what the next commits promise.
pub(crate) fn set_safety(conn: &Connection, path: &Path, safety: Safety) -> Result<(), StoreError> {
    let pragma = match safety {
        Safety::Rebuildable => "PRAGMA synchronous = NORMAL",
        Safety::Durable => "PRAGMA synchronous = FULL",
    };
    conn.execute_batch(pragma).doing(path, "setting the durability")
}

/// Locks a mutex; a thread that panicked while holding one of ours left nothing half done (each holds plain values, replaced whole).
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    returned: Condvar,
}

/// A fixed number of read-only connections. A read waits for a free one; the number bounds how much of the machine questions can take.
/// Readers see the last committed transaction and never block the writer.
#[derive(Clone)]
pub(crate) struct ReadPool(Arc<Pool>);

impl ReadPool {
    /// Opens `count` (at least 1) connections to an existing database.
    pub(crate) fn open(path: &Path, count: usize) -> Result<ReadPool, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut idle = Vec::with_capacity(count.max(1));
        for _ in 0..count.max(1) {
            let conn = Connection::open_with_flags(path, flags).doing(path, "opening a read connection")?;
            conn.busy_timeout(Duration::from_secs(5)).doing(path, "setting the busy timeout")?;
            conn.execute_batch("PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY;")
                .doing(path, "setting up a read connection")?;
            conn.set_prepared_statement_cache_capacity(64);
            idle.push(conn);
        }
        Ok(ReadPool(Arc::new(Pool {
            path: path.to_path_buf(),
            idle: Mutex::new(idle),
            returned: Condvar::new(),
        })))
    }

    /// The database file.
    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Runs a read in one transaction: all its queries see the same state.
    pub(crate) fn read<T>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let lease = Lease { pool: &self.0, conn: Some(self.take()) };
        let conn = lease.conn();
        let tx = conn.unchecked_transaction().doing(self.path(), doing)?;
        let result = read(&tx);
        // Nothing was written: ending the transaction only lets the snapshot go.
        tx.finish().doing(self.path(), doing)?;
        result
    }

    fn take(&self) -> Connection {
        let mut idle = lock(&self.0.idle);
        loop {
            if let Some(conn) = idle.pop() {
                return conn;
            }
            idle = self.0.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A borrowed connection; goes back to the pool even when the read panics.
struct Lease<'a> {
    pool: &'a Pool,
    conn: Option<Connection>,
}

impl Lease<'_> {
    fn conn(&self) -> &Connection {
        self.conn.as_ref().expect("the connection is only taken out when the lease is dropped")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            lock(&self.pool.idle).push(conn);
            self.pool.returned.notify_one();
        }
    }
}
