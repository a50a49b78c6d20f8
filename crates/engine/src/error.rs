//! Errors of starting, stopping and calling an engine.

use std::path::PathBuf;
use std::time::Duration;

use hoga_core::ids::Seq;
use hoga_log::LogError;

use crate::fault::Fault;
use crate::replica::ReplicaError;

/// Why a command or a query was not taken. Nothing has happened and no reply will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full. The sender may try again a little later.
    #[error("the engine is busy: its queue is full; try again")]
    Busy,
    /// The engine is stopping or has stopped.
    #[error("the engine has stopped and takes nothing more")]
    Stopped,
}

/// Why an engine does not start or did not end in order.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The journal or the event log could not be opened, read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The replicated journal cannot be followed.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// A file or folder could not be used.
    #[error("cannot {action} {path}: {source}; check the folder's permissions and the disk")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A setting that cannot work.
    #[error("engine setting {setting}: {reason}")]
    Config {
        /// Which.
        setting: &'static str,
        /// Why not.
        reason: String,
    },
    /// All snapshots are damaged and the journal no longer reaches back to the first command.
    #[error(
        "no usable snapshot in {dir} and the journal begins at command {first}: state cannot be rebuilt; restore the folder from a copy"
    )]
    NoStart {
        /// Where snapshots are.
        dir: PathBuf,
        /// The oldest command in the journal.
        first: Seq,
    },
    /// The journal ends before a position that is known to have been durable.
    #[error(
        "the journal ends at command {journal}, but {witness} holds command {needed}: acknowledged commands are missing from the journal; \
         restore the journal from a copy (a power cut can do this when the durability mode is weaker than sync)"
    )]
    JournalBehind {
        /// Where the journal ends.
        journal: Seq,
        /// What knows of a later command.
        witness: String,
        /// That command.
        needed: Seq,
    },
    /// A topic lacks messages that can no longer be made again.
    #[error(
        "topic {topic} partition {partition} ends at message {tail}, but messages are only known from {from} on: restore the topic's files, \
         or an older snapshot together with its journal"
    )]
    TopicHole {
        /// Which topic.
        topic: &'static str,
        /// Which partition.
        partition: u32,
        /// The number of its last message.
        tail: u64,
        /// The first number that can be made again.
        from: u64,
    },
    /// A topic holds something else than the journal says.
    #[error(
        "topic {topic} partition {partition}: {reason}; the topic does not belong to this journal: restore both from the same copy"
    )]
    TopicForeign {
        /// Which topic.
        topic: &'static str,
        /// Which partition.
        partition: u32,
        /// What differs.
        reason: String,
    },
    /// A record of the journal passes its checksum but is not a command of this build.
    #[error("journal record {seq} cannot be read: {reason}; use the build that wrote it")]
    Record {
        /// Which.
        seq: Seq,
        /// Why not.
        reason: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The engine had stopped by a fault.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The engine did not end in time; everything acknowledged is in the journal all the same.
    #[error(
        "the engine did not end within {0:?}; everything acknowledged is in the journal, the next start takes longer"
    )]
    ShutdownTimeout(Duration),
}

impl EngineError {
    /// Every code that [`EngineError::code`] gives of its own; each has its entry in `docs/reference/errors.md`.
    pub const CODES: &'static [&'static str] = &[
        "engine-io",
        "engine-config",
        "engine-no-start",
        "engine-journal-behind",
        "engine-topic-hole",
        "engine-topic-foreign",
        "engine-record",
        "engine-thread",
        "engine-shutdown-timeout",
    ];

    /// A stable name of the kind of fault.
    pub fn code(&self) -> &'static str {
        match self {
            EngineError::Log(error) => error.code(),
            EngineError::Replica(error) => error.code(),
            EngineError::Io { .. } => "engine-io",
            EngineError::Config { .. } => "engine-config",
            EngineError::NoStart { .. } => "engine-no-start",
            EngineError::JournalBehind { .. } => "engine-journal-behind",
            EngineError::TopicHole { .. } => "engine-topic-hole",
            EngineError::TopicForeign { .. } => "engine-topic-foreign",
            EngineError::Record { .. } => "engine-record",
            EngineError::Thread(_) => "engine-thread",
            EngineError::Fault(fault) => fault.kind.code(),
            EngineError::ShutdownTimeout(_) => "engine-shutdown-timeout",
        }
    }
}
