//! What a group tells about itself while it works, and why it ended.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::TopicPartition;
use crate::error::LogError;

/// What a group is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// It asks for its partitions.
    Joining,
    /// It reads and handles.
    Running,
    /// Something it needs is away; it is tried again and nothing is lost.
    Waiting {
        /// What, in the words of the fault.
        reason: String,
    },
    /// Its partitions change.
    Rebalancing,
    /// It has stopped.
    Stopped {
        /// Why, when it was not told to.
        fault: Option<String>,
    },
}

/// Where a member stands in a partition that it owns. Offsets are those of the next message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceProgress {
    /// The partition.
    pub place: TopicPartition,
    /// Everything before it was handled.
    pub handled: u64,
    /// Everything before it is committed; `None` when nothing is.
    pub committed: Option<u64>,
    /// The first and the end offset in the log, as last known; equal to `handled` while unknown.
    pub ends: (u64, u64),
    /// Messages of it that wait in memory.
    pub waiting: usize,
    /// Whether reading it is paused until those are fewer.
    pub paused: bool,
}

/// Told by the runtime what monitoring needs. Called on the group's threads: to be quick. Every method may stay as it is.
pub trait Observer: Send + Sync {
    /// The group does something else than before.
    fn state(&self, state: &GroupState) {
        let _ = state;
    }

    /// These partitions came to this member.
    fn assigned(&self, places: &[TopicPartition]) {
        let _ = places;
    }

    /// These went; `lost` when they were gone before it could commit.
    fn revoked(&self, places: &[TopicPartition], lost: bool) {
        let _ = (places, lost);
    }

    /// So many messages were handled by one call, which took so long.
    fn handled(&self, messages: usize, took: Duration) {
        let _ = (messages, took);
    }

    /// Where each owned partition stands; a few times a second.
    fn progress(&self, places: &[PlaceProgress]) {
        let _ = places;
    }

    /// A message, or what a handler was asked, is to be tried again after the pause.
    fn retried(&self, reason: &str, pause: Duration) {
        let _ = (reason, pause);
    }

    /// A message went to the dead letters.
    fn died(&self, place: &TopicPartition, offset: u64, reason: &str) {
        let _ = (place, offset, reason);
    }
}

/// Nobody watches.
impl Observer for () {}

/// Why a group ended that was not told to. What it had committed stays; everything after comes again when it starts again.
#[derive(Debug)]
pub enum GroupFault {
    /// The log cannot be used as the group needs it.
    Log {
        /// The group.
        group: String,
        /// The log's fault.
        source: LogError,
    },
    /// The group's handler cannot go on.
    Handler {
        /// The group.
        group: String,
        /// The handler's fault.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl GroupFault {
    /// Every code that [`GroupFault::code`] gives of its own; each has its entry in `docs/reference/errors.md`.
    pub const CODES: &'static [&'static str] = &["group-handler"];

    /// A stable name of the kind of fault.
    pub fn code(&self) -> &'static str {
        match self {
            GroupFault::Log { source, .. } => source.code(),
            GroupFault::Handler { .. } => "group-handler",
        }
    }
}

impl fmt::Display for GroupFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupFault::Log { group, source } => write!(f, "group {group} has stopped: {source}"),
            GroupFault::Handler { group, source } => write!(f, "group {group} has stopped: {source}"),
        }
    }
}

impl Error for GroupFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            GroupFault::Log { source, .. } => Some(source),
            GroupFault::Handler { source, .. } => Some(source.as_ref()),
        }
    }
}
