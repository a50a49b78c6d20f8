//! One thin layer over two databases, SQLite in a file and PostgreSQL: what a read model needs, and no more.
//!
//! - A model describes the rows that it writes once ([`Table`]) and gathers them in columns ([`Rows`]). SQLite takes them with one prepared
//!   statement, PostgreSQL with one `INSERT … SELECT FROM unnest(…)` per table and batch.
//! - Questions are one SQL text for both, with parameters `?1`, `?2`, …; PostgreSQL gets them as `$1`, `$2`. `INDEXED BY name`, which only
//!   SQLite knows, is taken out. All numbers are 64 bits.
//! - Tables are made by migrations: `.sql` files per database and model.
//! - On PostgreSQL each group has a schema of its own, which its connections have as their search path.
//!
//! A connection that is lost makes [`StoreError::Unavailable`]; the next use connects again.

mod migrate;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
mod sqlite;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cells::Cells;
use crate::error::StoreError;

pub(crate) use migrate::{migrations, set_old_layout_aside};
pub(crate) use pool::{ReadPool, WritePool};
pub(crate) use rows::{Kind, Rows, Table, Value, values};

/// Where read models are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// One SQLite file per group.
    Sqlite {
        /// The folder of the files; made when it is not there.
        dir: PathBuf,
    },
    /// One schema per group in a PostgreSQL database.
    Postgres(PostgresConfig),
}

/// How to reach PostgreSQL.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// `postgres://user@host:port/database`.
    pub url: String,
    /// Put before the name of each group's schema; empty by default.
    pub schema_prefix: String,
    /// Longest time to connect (5 s).
    pub connect_timeout: Duration,
    /// Longest time of one statement (30 s); the server gives up after it.
    pub statement_timeout: Duration,
    /// Longest time without an answer of the server's machine before a connection counts as lost (10 s).
    pub network_timeout: Duration,
}

impl PostgresConfig {
    /// The defaults for an address.
    pub fn new(url: impl Into<String>) -> PostgresConfig {
        PostgresConfig {
            url: url.into(),
            schema_prefix: String::new(),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            network_timeout: Duration::from_secs(10),
        }
    }
}

impl std::fmt::Debug for PostgresConfig {
    /// Without the address: it may have a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresConfig").field("schema_prefix", &self.schema_prefix).finish_non_exhaustive()
    }
}

/// The tables of one group in a [`Database`].
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) database: Database,
    /// The file's name without its ending, for SQLite.
    pub(crate) file: String,
    /// The schema, for PostgreSQL, without the prefix.
    pub(crate) schema: String,
}

impl Place {
    /// The file with SQLite.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match &self.database {
            Database::Sqlite { dir } => Some(dir.join(format!("{}.db", self.file))),
            Database::Postgres(_) => None,
        }
    }

    /// The tables beside these in which they are built anew.
    pub(crate) fn next(&self) -> Place {
        Place {
            database: self.database.clone(),
            file: format!("{}.next", self.file),
            schema: format!("{}_next", self.schema),
        }
    }
}

/// How safe a commit is when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Safety {
    /// SQLite: `synchronous = NORMAL`, never damaged, the last transactions may be lost in a power cut.
    Rebuildable,
    /// SQLite: `synchronous = FULL`, on disk when the commit returns. PostgreSQL is always so.
    Durable,
}

pub(crate) enum Connection {
    Sqlite(sqlite::Session),
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Session>),
}

/// The one writing connection of a group.
pub(crate) struct Writer {
    connection: Connection,
    /// Rows written since it was opened.
    rows: u64,
}

impl Writer {
    /// Opens the tables for writing, and makes or migrates them.
    pub(crate) fn open(place: &Place, model: &str) -> Result<Writer, StoreError> {
        let mut connection = match &place.database {
            Database::Sqlite { .. } => Connection::Sqlite(sqlite::Session::writer(place)?),
            #[cfg(feature = "postgres")]
            Database::Postgres(config) => {
                Connection::Postgres(Box::new(postgres::Session::open(config, place, false)?))
            }
            #[cfg(not(feature = "postgres"))]
            Database::Postgres(_) => return Err(StoreError::NotBuilt),
        };
        migrate::migrate(
            &mut connection,
            &migrations(model, matches!(place.database, Database::Sqlite { .. })),
        )?;
        Ok(Writer { connection, rows: 0 })
    }

    /// What is committed.
    pub(crate) fn reader(&self) -> Reader<'_> {
        self.connection.reader()
    }

    /// Rows handed to the database since it was opened, those that changed nothing included.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// What the next commits promise.
    pub(crate) fn set_safety(&self, safety: Safety) -> Result<(), StoreError> {
        match &self.connection {
            Connection::Sqlite(session) => session.set_safety(safety),
            #[cfg(feature = "postgres")]
            Connection::Postgres(_) => Ok(()),
        }
    }

    /// Whether every commit is on stable storage when it returns.
    pub(crate) fn is_always_durable(&self) -> bool {
        match &self.connection {
            Connection::Sqlite(_) => false,
            #[cfg(feature = "postgres")]
            Connection::Postgres(_) => true,
        }
    }

    /// Begins a transaction; dropped without [`Tx::commit`], it leaves nothing.
    pub(crate) fn begin(&mut self) -> Result<Tx<'_>, StoreError> {
        self.connection.begin(true)?;
        Ok(Tx { connection: &mut self.connection, rows: &mut self.rows, open: true })
    }
}

impl Connection {
    fn reader(&self) -> Reader<'_> {
        Reader { connection: self }
    }

    fn begin(&mut self, write: bool) -> Result<(), StoreError> {
        match self {
            Connection::Sqlite(session) => session.begin(write),
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.begin(write),
        }
    }

    fn end(&mut self, commit: bool) -> Result<(), StoreError> {
        match self {
            Connection::Sqlite(session) => session.end(commit),
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.end(commit),
        }
    }

    fn script(&mut self, sql: &str, doing: &'static str) -> Result<(), StoreError> {
        match self {
            Connection::Sqlite(session) => session.script(sql, doing),
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.script(sql, doing),
        }
    }
}

/// A transaction of the one who writes.
pub(crate) struct Tx<'a> {
    connection: &'a mut Connection,
    rows: &'a mut u64,
    open: bool,
}

impl Tx<'_> {
    /// Writes all rows at once.
    pub(crate) fn write(&mut self, rows: &Rows) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        *self.rows += rows.len() as u64;
        match &mut *self.connection {
            Connection::Sqlite(session) => session.write(rows),
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.write(rows),
        }
    }

    /// Runs one statement; the number of rows that it touched.
    pub(crate) fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        match &mut *self.connection {
            Connection::Sqlite(session) => session.execute(sql, values),
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.execute(sql, values),
        }
    }

    /// What the transaction sees: its own changes too.
    pub(crate) fn reader(&self) -> Reader<'_> {
        self.connection.reader()
    }

    /// Makes everything of the transaction visible at once.
    pub(crate) fn commit(mut self) -> Result<(), StoreError> {
        self.open = false;
        self.connection.end(true)
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if self.open
            && let Err(error) = self.connection.end(false)
        {
            // A lost connection has rolled back by itself.
            tracing::debug!(%error, "rolling back");
        }
    }
}

/// Asks questions within one connection.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    connection: &'a Connection,
}

impl Reader<'_> {
    /// Gives each row of a question to `take`, until it says that it has enough.
    pub(crate) fn each(
        &self,
        sql: &str,
        values: &[Value<'_>],
        take: &mut dyn FnMut(&mut Cells<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        match self.connection {
            Connection::Sqlite(session) => session.each(sql, values, take),
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.each(sql, values, take),
        }
    }

    /// All rows as values.
    pub(crate) fn all<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        mut value: impl FnMut(&mut Cells<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::new();
        self.each(sql, values, &mut |cells| {
            all.push(value(cells)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    /// The first row as a value, if there is one.
    pub(crate) fn first<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        mut value: impl FnMut(&mut Cells<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let mut found = None;
        self.each(sql, values, &mut |cells| {
            found = Some(value(cells)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

/// What a place is called in errors.
fn label(place: &Place) -> Arc<str> {
    match &place.database {
        Database::Sqlite { dir } => dir.join(format!("{}.db", place.file)).display().to_string().into(),
        Database::Postgres(config) => {
            format!("PostgreSQL schema {}{}", config.schema_prefix, place.schema).into()
        }
    }
}

/// Removes tables that a rebuild left.
pub(crate) fn remove(place: &Place) -> Result<(), StoreError> {
    match &place.database {
        Database::Sqlite { .. } => sqlite::remove(place),
        #[cfg(feature = "postgres")]
        Database::Postgres(config) => postgres::remove(config, place),
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => Err(StoreError::NotBuilt),
    }
}

/// Puts the tables of `next` in the place of those of `live`, at once. Nobody has them open here.
pub(crate) fn swap(live: &Place, next: &Place) -> Result<(), StoreError> {
    match &live.database {
        Database::Sqlite { .. } => sqlite::swap(live, next),
        #[cfg(feature = "postgres")]
        Database::Postgres(config) => postgres::swap(config, live, next),
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => Err(StoreError::NotBuilt),
    }
}

/// Makes the folder of the files.
pub(crate) fn make_dir(dir: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(dir).map_err(|source| StoreError::File {
        path: dir.to_path_buf(),
        doing: "making the folder of the read models",
        source,
    })
}
