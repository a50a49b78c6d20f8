//! The SQLite file of users and keys. It is no read model, and stays SQLite whatever the read models are on.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::{InFile, StoreError};
use crate::sql::Safety;

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
    conn.execute_batch(crate::sql::SQLITE_PRAGMAS).doing(path, "setting up the connection")?;
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
        return Err(StoreError::Schema { database: path.display().to_string(), found, wanted: version });
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
