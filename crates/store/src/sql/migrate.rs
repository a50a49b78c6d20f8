//! Makes and changes the tables of a model, step by step.
//!
//! A step is a `.sql` file in `migrations/{sqlite,postgres}/{common or model}/NNNN_name.sql`. Steps only move forward; a database that is
//! ahead of this build is refused. The tables of the first releases had version 1 on SQLite and another layout, which cannot be carried
//! over (it does not know the partition of a ledger entry): such a file is set aside as `NAME.db.v1`, and the model is built anew from
//! the event log.

use super::{Connection, Database, Place, sqlite};
use crate::error::StoreError;

/// One step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// The version that the tables have after it.
    pub(crate) version: i64,
    /// What it does.
    pub(crate) sql: &'static str,
}

/// The version of the layout that is set aside.
const OLD_LAYOUT: i64 = 1;

macro_rules! steps {
    ($database:literal, $model:literal, $($version:literal => $file:literal),*) => {
        vec![$(Migration {
            version: $version,
            sql: include_str!(concat!("../../migrations/", $database, "/", $model, "/", $file, ".sql")),
        }),*]
    };
}

/// The steps of a model, those that all have first. Users and keys are no model: they have no place in a log.
pub(crate) fn migrations(model: &str, sqlite: bool) -> Vec<Migration> {
    if model == "identity" {
        return match sqlite {
            true => steps!("sqlite", "identity", 1 => "0001_tables", 2 => "0002_changes"),
            false => steps!("postgres", "identity", 2 => "0002_tables"),
        };
    }
    let mut all = match sqlite {
        true => steps!("sqlite", "common", 2 => "0002_places"),
        false => steps!("postgres", "common", 2 => "0002_places"),
    };
    all.extend(match (model, sqlite) {
        ("accounts", true) => steps!("sqlite", "accounts", 2 => "0002_tables"),
        ("accounts", false) => steps!("postgres", "accounts", 2 => "0002_tables"),
        ("orders", true) => steps!("sqlite", "orders", 2 => "0002_tables"),
        ("orders", false) => steps!("postgres", "orders", 2 => "0002_tables"),
        ("market", true) => steps!("sqlite", "market", 2 => "0002_tables"),
        ("market", false) => steps!("postgres", "market", 2 => "0002_tables"),
        ("notifications", true) => steps!("sqlite", "notifications", 2 => "0002_tables"),
        ("notifications", false) => steps!("postgres", "notifications", 2 => "0002_tables"),
        ("triggers", true) => steps!("sqlite", "triggers", 2 => "0002_tables"),
        ("triggers", false) => steps!("postgres", "triggers", 2 => "0002_tables"),
        _ => Vec::new(),
    });
    all.sort_by_key(|step| step.version);
    all
}

/// Brings the tables to the newest version. Two processes may do it at once: the second one finds it done.
pub(super) fn migrate(connection: &mut Connection, steps: &[Migration]) -> Result<(), StoreError> {
    let wanted = steps.iter().map(|step| step.version).max().unwrap_or(0);
    if version(connection)? == wanted {
        return Ok(());
    }
    begin(connection)?;
    let done = run(connection, steps, wanted);
    let ended = connection.end(done.is_ok());
    done.and(ended)
}

fn run(connection: &mut Connection, steps: &[Migration], wanted: i64) -> Result<(), StoreError> {
    let found = version(connection)?;
    if found > wanted {
        let database = match connection {
            Connection::Sqlite(session) => session.label().to_string(),
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.label().to_string(),
        };
        return Err(StoreError::Schema { database, found, wanted });
    }
    for step in steps.iter().filter(|step| step.version > found) {
        connection.script(step.sql, "migrating the tables")?;
    }
    match connection {
        Connection::Sqlite(session) => {
            session.script(&format!("PRAGMA user_version = {wanted}"), "noting the schema version")
        }
        #[cfg(feature = "postgres")]
        Connection::Postgres(session) => {
            let sql = format!("DELETE FROM schema_version; INSERT INTO schema_version VALUES ({wanted})");
            session.script(&sql, "noting the schema version")
        }
    }
}

fn begin(connection: &mut Connection) -> Result<(), StoreError> {
    connection.begin(true)?;
    match connection {
        Connection::Sqlite(_) => Ok(()),
        #[cfg(feature = "postgres")]
        Connection::Postgres(session) => {
            // The lock is of the database, whatever the group: making schemas and tables at once can conflict. It goes with the
            // transaction.
            let schema = session.schema().to_owned();
            let sql = format!(
                "SELECT pg_advisory_xact_lock(4845393321); CREATE SCHEMA IF NOT EXISTS {schema};
                 CREATE TABLE IF NOT EXISTS {schema}.schema_version (version int8 NOT NULL)"
            );
            session.script(&sql, "making the schema")
        }
    }
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    match connection {
        Connection::Sqlite(session) => session.version(),
        #[cfg(feature = "postgres")]
        Connection::Postgres(session) => {
            let there = "SELECT 1 FROM information_schema.tables WHERE table_schema = CAST(?1 AS text) AND table_name = 'schema_version'";
            let reader = connection.reader();
            if reader.first(there, &[session.schema().into()], |_| Ok(()))?.is_none() {
                return Ok(0);
            }
            let version = reader.first("SELECT version FROM schema_version", &[], |cells| cells.int())?;
            Ok(version.unwrap_or(0))
        }
    }
}

/// Sets a SQLite file of the old layout aside, with the files that belong to it.
pub(crate) fn set_old_layout_aside(place: &Place) -> Result<(), StoreError> {
    let Some(path) = place.path().filter(|path| path.exists()) else { return Ok(()) };
    if !matches!(place.database, Database::Sqlite { .. }) {
        return Ok(());
    }
    let session = sqlite::Session::writer(place)?;
    if session.version()? != OLD_LAYOUT {
        return Ok(());
    }
    // The last connection that closes brings everything into the one file.
    drop(session);
    for ending in ["", "-wal", "-shm"] {
        let from = path.with_extension(format!("db{ending}"));
        let to = path.with_extension(format!("db.v1{ending}"));
        if from.exists() {
            std::fs::rename(&from, &to).map_err(|source| StoreError::File {
                path: from.clone(),
                doing: "setting a database of the old layout aside",
                source,
            })?;
        }
    }
    tracing::warn!(
        file = %path.display(),
        "made by an older release with another layout: set aside as .db.v1 and built anew from the event log"
    );
    Ok(())
}
