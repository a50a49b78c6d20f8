//! What can go wrong in a read model, and what the operator does about it.

use std::path::PathBuf;

use hoga_core::ids::{AccountId, MarketId, Seq};
use hoga_log::LogError;

use crate::Group;

/// A fault of a read model. A group with a fault has stopped: nothing of the batch in which it happened is in its database, and it goes
/// on from there when it is started again.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused something.
    #[error(
        "{}: {doing}: {source}; nothing of this step was stored, check the disk and the file and start again",
        file.display()
    )]
    Database {
        /// Which database.
        file: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The database's words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database was made by another version.
    #[error(
        "{}: made with schema {found}, this build needs {wanted}; move the file away and it is rebuilt from the event log",
        file.display()
    )]
    Schema {
        /// Which database.
        file: PathBuf,
        /// Version in the file.
        found: i64,
        /// Version of this build.
        wanted: i64,
    },
    /// A stored value is outside what its column can mean.
    #[error(
        "{}: {what} holds {value}, which means nothing; the file is damaged or was edited: move it away and it is rebuilt from the event log",
        file.display()
    )]
    Damaged {
        /// Which database.
        file: PathBuf,
        /// Which column.
        what: &'static str,
        /// What is in it.
        value: i64,
    },
    /// A file or folder could not be made or opened.
    #[error("{}: {doing}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's words.
        source: std::io::Error,
    },
    /// The event log refused something.
    #[error("group {}: event log: {source}", group.as_str())]
    Log {
        /// Whose reading.
        group: Group,
        /// The log's words.
        #[source]
        source: LogError,
    },
    /// The log begins later than what this database needs next.
    #[error(
        "group {}: {topic}/{partition} is needed from offset {needed}, but the log's first is {first}; put back a database that reaches offset {first}, or the older segments of the log",
        group.as_str()
    )]
    Trimmed {
        /// Whose reading.
        group: Group,
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// The offset that the database needs next.
        needed: u64,
        /// The first offset that the log has.
        first: u64,
    },
    /// Messages are missing.
    #[error(
        "group {}: {topic}/{partition} offset {offset}: message number {got} where {expected} was due; the log has lost messages, the group has stopped",
        group.as_str()
    )]
    Gap {
        /// Whose reading.
        group: Group,
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Where it was noticed.
        offset: u64,
        /// The number that was due.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// A message with the right number, or a repeated one, tells of another place in the journal than it can.
    #[error(
        "group {}: {topic}/{partition} offset {offset}: message number {number} is of command {got}, which does not fit command {last} seen before; this is another log than the database was made from, or it mixes two: put the right log back, or move the database away to rebuild it",
        group.as_str()
    )]
    StepBack {
        /// Whose reading.
        group: Group,
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Where it was noticed.
        offset: u64,
        /// The message's number.
        number: u64,
        /// Its command.
        got: Seq,
        /// The last command seen before.
        last: Seq,
    },
    /// An order event of a market whose definition never came.
    #[error(
        "group {}: command {seq} names market {market}, which no earlier message of the log defines; the log is not complete",
        group.as_str()
    )]
    UnknownMarket {
        /// Whose reading.
        group: Group,
        /// The market.
        market: MarketId,
        /// The command.
        seq: Seq,
    },
    /// A sum left the range of 64 bits.
    #[error("group {}: command {seq}: {what} left the range of 64 bits", group.as_str())]
    Overflow {
        /// Whose reading.
        group: Group,
        /// Which sum.
        what: &'static str,
        /// The command.
        seq: Seq,
    },
    /// An audit was asked for at a command that the ledger has not reached.
    #[error("the ledger has applied command {applied}, an audit at {asked} has to wait for it")]
    NotReached {
        /// What was asked for.
        asked: Seq,
        /// What is applied.
        applied: Seq,
    },
    /// The account is taken by another user, or another unique rule of `identity.db` would be broken.
    #[error("{0}")]
    Taken(Taken),
}

impl StoreError {
    /// Every code that [`StoreError::code`] gives of its own; each has its entry in `docs/reference/errors.md`.
    pub const CODES: &'static [&'static str] = &[
        "store-database",
        "store-schema",
        "store-damaged",
        "store-file",
        "store-trimmed",
        "store-gap",
        "store-step-back",
        "store-unknown-market",
        "store-overflow",
        "store-not-reached",
        "store-taken",
    ];

    /// A stable name of the kind of fault.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Database { .. } => "store-database",
            StoreError::Schema { .. } => "store-schema",
            StoreError::Damaged { .. } => "store-damaged",
            StoreError::File { .. } => "store-file",
            StoreError::Log { source, .. } => source.code(),
            StoreError::Trimmed { .. } => "store-trimmed",
            StoreError::Gap { .. } => "store-gap",
            StoreError::StepBack { .. } => "store-step-back",
            StoreError::UnknownMarket { .. } => "store-unknown-market",
            StoreError::Overflow { .. } => "store-overflow",
            StoreError::NotReached { .. } => "store-not-reached",
            StoreError::Taken(_) => "store-taken",
        }
    }
}

/// Which unique rule of the identity database a new entry would break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Taken {
    /// The user name is taken.
    #[error("user name {0} is taken")]
    UserName(String),
    /// The account belongs to a user already.
    #[error("account {0} belongs to a user already")]
    Account(AccountId),
    /// The API key exists.
    #[error("API key {0} exists already")]
    ApiKey(String),
}

/// Turns SQLite's errors into ours with the file and the step.
pub(crate) trait InFile<T> {
    /// Adds which file and what was being done.
    fn doing(self, file: &std::path::Path, doing: &'static str) -> Result<T, StoreError>;
}

impl<T> InFile<T> for Result<T, rusqlite::Error> {
    fn doing(self, file: &std::path::Path, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Database { file: file.to_path_buf(), doing, source: source.into() })
    }
}
