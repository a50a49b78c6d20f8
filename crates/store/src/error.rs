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
        "{database}: {doing}: {source}; nothing of this step was stored, check the database and its disk and start again"
    )]
    Database {
        /// Which database.
        database: String,
        /// What was being done.
        doing: &'static str,
        /// The database's words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database does not answer now. Nothing is wrong with what is stored: the group waits and goes on when it is back.
    #[error(
        "{database}: {doing}: {reason}. It is tried again; check that the database runs and can be reached"
    )]
    Unavailable {
        /// Which database.
        database: String,
        /// What was being done.
        doing: &'static str,
        /// What came of it.
        reason: String,
    },
    /// PostgreSQL is asked for, and this build has none.
    #[error(
        "read models on PostgreSQL are asked for, but this build was made without the feature `postgres`; use SQLite or another build"
    )]
    NotBuilt,
    /// The database was made by another version.
    #[error(
        "{database}: made with schema {found} by a newer build, this one knows {wanted}; run that build; a read model (never users and keys) may also be moved away (its schema dropped), and is built anew from the event log"
    )]
    Schema {
        /// Which database.
        database: String,
        /// Version in the file.
        found: i64,
        /// Version of this build.
        wanted: i64,
    },
    /// A stored value is outside what its column can mean.
    #[error(
        "{database}: {what} holds {value}, which means nothing; the table is damaged or was edited: rebuild the group from the event log"
    )]
    Damaged {
        /// Which database.
        database: String,
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
    /// Another member of the group has written a partition that this one took for its own.
    #[error(
        "group {}: {topic}/{partition} was written by another member meanwhile; nothing of this batch was stored, the group reads again where it stands",
        group.as_str()
    )]
    Moved {
        /// Whose reading.
        group: Group,
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
    },
    /// Another process consumes into this SQLite file.
    #[error("group {}: another process writes {database}: two groups of one name need PostgreSQL; stop one of them", group.as_str())]
    Claimed {
        /// Whose.
        group: Group,
        /// The file.
        database: String,
    },
    /// The log has lost what a rebuild would begin with.
    #[error(
        "group {}: a rebuild needs {topic}/{partition} from offset 0, but the first offset that it can have is {first}; the tables stay as they are: put back the older segments of the log, or raise its retention before the next start from nothing",
        group.as_str()
    )]
    RebuildTrimmed {
        /// Whose.
        group: Group,
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// The first offset that the log has.
        first: u64,
    },
    /// The tables have what is nowhere else.
    #[error(
        "group {}: its tables have users' alerts, which are nowhere else and do not come from the event log: nothing was changed. Restore a backup of them",
        group.as_str()
    )]
    NotRebuildable {
        /// Whose.
        group: Group,
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
        "store-unavailable",
        "store-not-built",
        "store-schema",
        "store-damaged",
        "store-file",
        "store-trimmed",
        "store-gap",
        "store-moved",
        "store-claimed",
        "store-rebuild-trimmed",
        "store-not-rebuildable",
        "store-step-back",
        "store-unknown-market",
        "store-overflow",
        "store-not-reached",
        "store-taken",
    ];

    /// Whether the same call may work a moment later, with nothing changed here.
    pub fn is_transient(&self) -> bool {
        match self {
            StoreError::Unavailable { .. } | StoreError::Moved { .. } => true,
            StoreError::Log { source, .. } => source.is_transient(),
            _ => false,
        }
    }

    /// A stable name of the kind of fault.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Database { .. } => "store-database",
            StoreError::Unavailable { .. } => "store-unavailable",
            StoreError::NotBuilt => "store-not-built",
            StoreError::Schema { .. } => "store-schema",
            StoreError::Damaged { .. } => "store-damaged",
            StoreError::File { .. } => "store-file",
            StoreError::Log { source, .. } => source.code(),
            StoreError::Trimmed { .. } => "store-trimmed",
            StoreError::Gap { .. } => "store-gap",
            StoreError::Moved { .. } => "store-moved",
            StoreError::Claimed { .. } => "store-claimed",
            StoreError::RebuildTrimmed { .. } => "store-rebuild-trimmed",
            StoreError::NotRebuildable { .. } => "store-not-rebuildable",
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
