//! The PostgreSQL side: a schema per group, prepared statements, whole batches as arrays.
//!
//! `synchronous_commit` is the server's business and on by default: a commit that returned is durable.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::Arc;

use bytes::BytesMut;
use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls, Statement};

use super::rows::{Data, Kind, Rows, Value, pieces};
use super::{Place, PostgresConfig, label};
use crate::cells::Cells;
use crate::error::StoreError;

/// A connection with its prepared statements; made anew after it was lost.
pub(crate) struct Session {
    config: Config,
    schema: String,
    label: Arc<str>,
    live: RefCell<Option<Live>>,
}

struct Live {
    client: Client,
    /// By the text as the crate writes it, or for writing by the table's name.
    statements: HashMap<String, Statement>,
}

impl Live {
    fn statement(&mut self, key: &str, sql: impl FnOnce() -> String) -> Result<Statement, postgres::Error> {
        if let Some(statement) = self.statements.get(key) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&sql())?;
        self.statements.insert(key.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl Session {
    /// Connects. The schema need not be there yet.
    pub(super) fn open(config: &PostgresConfig, place: &Place, reader: bool) -> Result<Session, StoreError> {
        let label = label(place);
        let schema = format!("{}{}", config.schema_prefix, place.schema);
        let mut options = Config::from_str(&config.url).map_err(|error| StoreError::Database {
            database: label.to_string(),
            doing: "reading the address in the configuration",
            source: error.into(),
        })?;
        let mut settings = options.get_options().unwrap_or_default().to_owned();
        settings.push_str(&format!(
            " -c search_path={schema} -c statement_timeout={} -c idle_in_transaction_session_timeout=60000",
            config.statement_timeout.as_millis()
        ));
        options
            .options(&settings)
            .application_name(&format!("hoga {schema}{}", if reader { " (reads)" } else { "" }))
            .connect_timeout(config.connect_timeout)
            .tcp_user_timeout(config.network_timeout)
            .keepalives_idle(config.network_timeout);
        let session = Session { config: options, schema, label, live: RefCell::new(None) };
        session.with("connecting", |_| Ok(()))?;
        Ok(session)
    }

    pub(super) fn label(&self) -> &Arc<str> {
        &self.label
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// Runs something on the connection, which is made first when there is none; lets it go when it is lost.
    fn with<T>(
        &self,
        doing: &'static str,
        run: impl FnOnce(&mut Live) -> Result<T, postgres::Error>,
    ) -> Result<T, StoreError> {
        let mut slot = self.live.borrow_mut();
        if slot.as_ref().is_none_or(|live| live.client.is_closed()) {
            let client =
                self.config.connect(NoTls).map_err(|error| fault(&self.label, "connecting", &error))?;
            *slot = Some(Live { client, statements: HashMap::new() });
        }
        let live = slot.as_mut().expect("made just now when there was none");
        let result = run(live).map_err(|error| fault(&self.label, doing, &error));
        if live.client.is_closed() {
            *slot = None;
        }
        result
    }

    /// As [`Session::with`] within a transaction: a connection that was lost since its beginning is not replaced by another one.
    fn within<T>(
        &self,
        doing: &'static str,
        run: impl FnOnce(&mut Live) -> Result<T, postgres::Error>,
    ) -> Result<T, StoreError> {
        if self.live.borrow().as_ref().is_none_or(|live| live.client.is_closed()) {
            return Err(StoreError::Unavailable {
                database: self.label.to_string(),
                doing,
                reason: "the connection was lost".into(),
            });
        }
        self.with(doing, run)
    }

    pub(super) fn begin(&self, write: bool) -> Result<(), StoreError> {
        // Reads of one question see one state; a batch only appends to its own group's tables.
        let sql = if write { "BEGIN" } else { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" };
        let begin = || self.with("beginning a transaction", |live| live.client.batch_execute(sql));
        let used_before = self.live.borrow().is_some();
        match begin() {
            // A connection that was lost while it was idle is noticed only now; nothing has been done on it.
            Err(StoreError::Unavailable { .. }) if used_before => {
                *self.live.borrow_mut() = None;
                begin()
            }
            other => other,
        }
    }

    pub(super) fn end(&self, commit: bool) -> Result<(), StoreError> {
        let sql = if commit { "COMMIT" } else { "ROLLBACK" };
        self.within("ending a transaction", |live| live.client.batch_execute(sql))
    }

    pub(super) fn script(&self, sql: &str, doing: &'static str) -> Result<(), StoreError> {
        self.with(doing, |live| live.client.batch_execute(sql))
    }

    pub(super) fn write(&self, rows: &Rows) -> Result<(), StoreError> {
        let texts: Vec<Vec<&str>> = rows
            .columns
            .iter()
            .filter_map(|column| match column {
                Data::Text(text, ends) => Some(pieces(text, ends).collect()),
                _ => None,
            })
            .collect();
        let mut texts = texts.iter();
        let columns: Vec<&(dyn ToSql + Sync)> = rows
            .columns
            .iter()
            .map(|column| -> &(dyn ToSql + Sync) {
                match column {
                    Data::Int(values) => values,
                    Data::MaybeInt(values) => values,
                    Data::Text(..) => texts.next().expect("one list per column of texts"),
                    Data::MaybeBytes(values) => values,
                }
            })
            .collect();
        self.within("storing rows", |live| {
            let insert = live.statement(rows.table.name, || insert_sql(rows))?;
            live.client.execute(&insert, &columns).map(|_| ())
        })
    }

    pub(super) fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        self.within("running a statement", |live| {
            let statement = live.statement(sql, || dialect(sql))?;
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
            live.client.execute(&statement, &values)
        })
    }

    pub(super) fn each(
        &self,
        sql: &str,
        values: &[Value<'_>],
        take: &mut dyn FnMut(&mut Cells<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        self.with("running a query", |live| {
            let statement = live.statement(sql, || dialect(sql))?;
            let mut rows = live.client.query_raw(&statement, values)?;
            while let Some(row) = rows.next()? {
                match take(&mut Cells::postgres(&row, &self.label)) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => break,
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(()))
        })?
    }
}

pub(super) fn remove(config: &PostgresConfig, place: &Place) -> Result<(), StoreError> {
    let session = Session::open(config, place, false)?;
    let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", session.schema);
    session.script(&sql, "removing what a rebuild left")
}

/// Both renames are one transaction: whoever begins a question sees the tables before or after it.
pub(super) fn swap(config: &PostgresConfig, live: &Place, next: &Place) -> Result<(), StoreError> {
    let session = Session::open(config, live, false)?;
    let (live, prefix, next) = (&session.schema, &config.schema_prefix, &next.schema);
    let sql = format!(
        "DROP SCHEMA IF EXISTS {live}_old CASCADE; BEGIN; SELECT pg_advisory_xact_lock(4845393321);
         ALTER SCHEMA {live} RENAME TO {live}_old; ALTER SCHEMA {prefix}{next} RENAME TO {live}; COMMIT;
         DROP SCHEMA {live}_old CASCADE"
    );
    session.script(&sql, "swapping the tables")
}

fn insert_sql(rows: &Rows) -> String {
    let table = rows.table;
    let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    let arrays: Vec<String> = table
        .columns
        .iter()
        .enumerate()
        .map(|(at, (_, kind))| {
            let kind = match kind {
                Kind::Int | Kind::MaybeInt => "int8",
                Kind::Text => "text",
                Kind::MaybeBytes => "bytea",
            };
            format!("${}::{kind}[]", at + 1)
        })
        .collect();
    format!(
        "INSERT INTO {} ({}) SELECT * FROM unnest({}) {}",
        table.name,
        names.join(", "),
        arrays.join(", "),
        table.conflict
    )
}

/// The SQL of this crate as PostgreSQL has it: `?1` becomes `$1`, and `INDEXED BY name` goes.
fn dialect(sql: &str) -> String {
    let mut text = sql.replace('?', "$");
    while let Some(at) = text.find("INDEXED BY ") {
        let rest = &text[at + "INDEXED BY ".len()..];
        let name = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        text.replace_range(at..at + "INDEXED BY ".len() + name, "");
    }
    text
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match *self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(value) if *ty == Type::INT4 => i32::try_from(value)?.to_sql(ty, out),
            Value::Int(value) => value.to_sql(ty, out),
            Value::Text(text) => text.to_sql(ty, out),
            Value::Bytes(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        [Type::INT8, Type::INT4, Type::TEXT, Type::BYTEA].contains(ty)
    }

    to_sql_checked!();
}

/// PostgreSQL's error as ours: what passes by itself (connection, resources, conflicts, shutdown and timeouts) is
/// [`StoreError::Unavailable`].
fn fault(label: &Arc<str>, doing: &'static str, error: &postgres::Error) -> StoreError {
    let passes = |state: &SqlState| {
        let code = state.code();
        ["08", "53", "40"].contains(&&code[..2])
            || code.starts_with("57P")
            || [&SqlState::LOCK_NOT_AVAILABLE, &SqlState::QUERY_CANCELED].contains(&state)
            || code == "25P03"
    };
    let database = label.to_string();
    match error.as_db_error() {
        Some(said) if !passes(said.code()) => {
            let text = format!("{} (SQLSTATE {})", said.message(), said.code().code());
            StoreError::Database { database, doing, source: text.into() }
        }
        Some(said) => StoreError::Unavailable {
            database,
            doing,
            reason: format!("{} (SQLSTATE {})", said.message(), said.code().code()),
        },
        // Without words of the server: connecting failed, or the connection broke. What the client itself refuses is our error.
        None => {
            let ours = std::error::Error::source(error)
                .is_some_and(|cause| cause.downcast_ref::<std::io::Error>().is_none());
            let reason = match std::error::Error::source(error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            if ours && !error.is_closed() {
                return StoreError::Database { database, doing, source: reason.into() };
            }
            StoreError::Unavailable { database, doing, reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::dialect;

    #[test]
    fn statements_are_rewritten() {
        let sql = "SELECT a FROM orders INDEXED BY orders_by_owner WHERE a = ?1 AND b = ?12";
        assert_eq!(dialect(sql), "SELECT a FROM orders  WHERE a = $1 AND b = $12");
        assert_eq!(dialect("FROM t INDEXED BY x"), "FROM t ");
    }
}
