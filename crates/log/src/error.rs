//! What can go wrong, and what the operator does about it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A fault of the journal or of the event log. Each text says what happened, to what, and what to do next.
#[derive(Debug, Error)]
pub enum LogError {
    /// The operating system refused an operation.
    #[error("{action} {path}: {source}. Check the disk (space, permissions, health), then start again")]
    Io {
        /// What was tried, as a verb in its -ing form.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// An earlier write or sync failed, so what is on the disk is unknown; nothing more is accepted.
    #[error(
        "the log in {path} stopped after a failed write or sync ({reason}). What is on the disk is unknown until it is \
         read again: end the process, check the disk, then start again"
    )]
    Poisoned {
        /// The folder of the log.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// Bytes that were once durable are no longer what was written.
    #[error(
        "{path} is damaged at byte {offset}, before the end of what was durable: record {expected} is expected there, but \
         {what}. Do not delete anything: restore the file from a backup or a standby, or run `hoga journal verify` to see \
         what is left"
    )]
    Damaged {
        /// The segment file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// The sequence that should be there; 0 when it is unknown.
        expected: u64,
        /// What was found.
        what: String,
    },
    /// Another process has the folder open.
    #[error(
        "{path} is in use by another process. Stop it first; two writers would destroy each other's records"
    )]
    Locked {
        /// The folder of the log.
        path: PathBuf,
    },
    /// The caller appended a record that does not follow the last one.
    #[error("record {got} cannot follow record {last}: a log has no holes. This is a bug in the caller")]
    OutOfOrder {
        /// The last sequence in the log.
        last: u64,
        /// The sequence that was offered.
        got: u64,
    },
    /// Records that are not what they should be, offered by the caller.
    #[error("the batch from record {first} is malformed: {what}. This is a bug in the caller")]
    Malformed {
        /// First sequence of the batch.
        first: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A record or message is longer than the format allows.
    #[error("a record of {bytes} bytes is over the limit of {limit} bytes. Send less in one message")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The largest size.
        limit: u64,
    },
    /// The wanted records were removed by retention.
    #[error(
        "record {wanted} is no longer in {path}; the first one is {first}. Start from a newer snapshot, or keep more \
         segments"
    )]
    Removed {
        /// The folder of the log.
        path: PathBuf,
        /// The sequence that was asked for.
        wanted: u64,
        /// The first one that is still there.
        first: u64,
    },
    /// There is no such topic.
    #[error("there is no topic {topic}. Create it first")]
    NoTopic {
        /// Its name.
        topic: String,
    },
    /// There is no such partition.
    #[error("topic {topic} has {partitions} partitions, so there is no partition {partition}")]
    NoPartition {
        /// Topic name.
        topic: String,
        /// What was asked for.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// A topic exists with another specification.
    #[error(
        "topic {topic} exists as {existing}, not as {wanted}. Use another name, or change the configuration back"
    )]
    SpecDiffers {
        /// Topic name.
        topic: String,
        /// What is stored.
        existing: String,
        /// What was asked for.
        wanted: String,
    },
    /// The servers behind the log do not answer now. Nothing is wrong with the data: what waits goes on when they are back.
    #[error("{servers}: {doing}: {reason}. It is tried again; check that the servers run and can be reached")]
    Unavailable {
        /// Which servers.
        servers: String,
        /// What was tried, as a verb in its -ing form.
        doing: &'static str,
        /// Their answer, or that there was none.
        reason: String,
    },
    /// The log was closed while the call waited.
    #[error("the log was closed while {doing}. What was not confirmed may or may not be there")]
    Closed {
        /// What the call was doing.
        doing: &'static str,
    },
    /// Somebody else writes where only one may.
    #[error(
        "topic {topic} partition {partition}: {reason}. Another process writes this topic: find out which one is the right \
         one and stop the other; nothing more is written from here"
    )]
    Foreign {
        /// Topic name.
        topic: String,
        /// Partition.
        partition: u32,
        /// What was found.
        reason: String,
    },
    /// A setting cannot work.
    #[error("{0}. Change the configuration")]
    Config(String),
}

impl LogError {
    /// Every code that [`LogError::code`] gives of its own; each has its entry in `docs/reference/errors.md`.
    pub const CODES: &'static [&'static str] = &[
        "log-io",
        "log-poisoned",
        "log-damaged",
        "log-locked",
        "log-out-of-order",
        "log-malformed",
        "log-too-large",
        "log-removed",
        "log-no-topic",
        "log-no-partition",
        "log-topic-differs",
        "log-unavailable",
        "log-closed",
        "log-foreign-writer",
        "log-config",
    ];

    /// A stable name of the kind of fault.
    pub fn code(&self) -> &'static str {
        match self {
            LogError::Io { .. } => "log-io",
            LogError::Poisoned { .. } => "log-poisoned",
            LogError::Damaged { .. } => "log-damaged",
            LogError::Locked { .. } => "log-locked",
            LogError::OutOfOrder { .. } => "log-out-of-order",
            LogError::Malformed { .. } => "log-malformed",
            LogError::TooLarge { .. } => "log-too-large",
            LogError::Removed { .. } => "log-removed",
            LogError::NoTopic { .. } => "log-no-topic",
            LogError::NoPartition { .. } => "log-no-partition",
            LogError::SpecDiffers { .. } => "log-topic-differs",
            LogError::Unavailable { .. } => "log-unavailable",
            LogError::Closed { .. } => "log-closed",
            LogError::Foreign { .. } => "log-foreign-writer",
            LogError::Config(_) => "log-config",
        }
    }
}

impl LogError {
    /// Whether the same call may work a moment later, with nothing changed here.
    pub fn is_transient(&self) -> bool {
        matches!(self, LogError::Unavailable { .. })
    }

    /// Wraps a system error with what was tried on what.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError + use<> {
        let path = path.to_path_buf();
        move |source| LogError::Io { action, path, source }
    }
}
