//! The command journal on a replicated topic: one leader, any number of standbys, and a takeover that loses nothing acknowledged.
//!
//! ```text
//!  leader    matcher ─► writer ─► topic (all replicas) ─┬─► reader ─► journal ─► durable ─► gate ─► replies
//!                                                       │
//!  standby                                              └─► reader ─► journal ─► shadow (market data, topics, queries, snapshots)
//! ```
//!
//! **The law here:** a command counts when it was **read back** from the topic and no higher epoch was claimed before it. The journal on a
//! node's own disk is written only from what was read back, on leader and standby alike, so it never holds what the topic does not, and a
//! leader that was cut off comes back without having to take anything away. The topic's order decides who leads; clocks only decide when
//! somebody tries. The rules are a pure state machine ([`fence`]), tested under random interleavings.
//!
//! **What the log must promise beyond [`EventLog`]'s law:** what a reader was given is never lost. Kafka does so with `acks=all`: consumers
//! are given only what all in-sync replicas have. The log must allow several writers of this topic (`KafkaLog::share_topic`), and keep the
//! topic without limit: a node can only follow from a message that is still there.
//!
//! **Silence:** a standby claims when the leader was not heard for [`Replication::lease`], counted only while the log itself answers. When the
//! log is away nobody claims, no answer goes out, the ring fills, and orders are refused as busy; queries go on.
//!
//! **Bounds:** 64 batches are under way at most; then the matcher waits. One read is at most 256 messages.

pub(crate) mod fence;
pub(crate) mod message;
mod place;
pub(crate) mod reader;
pub(crate) mod seat;
mod standby;
pub(crate) mod writer;

use std::sync::Arc;
use std::time::Duration;

use hoga_core::ids::Seq;
use hoga_log::LogError;
use hoga_log::event_log::EventLog;

pub use seat::{ReplicaStatus, Role};
pub use standby::Standby;

/// How a shard's journal is replicated. Make one with [`Replication::new`] and change what should differ.
#[derive(Clone)]
pub struct Replication {
    /// The log that the nodes of a shard share. It must allow several writers of the topic.
    pub log: Arc<dyn EventLog>,
    /// The shard's topic, for example `engine.commands.0`. Made with one partition and no limit when it is missing.
    pub topic: String,
    /// How this node calls itself to operators, at most 100 bytes. Two nodes of one name do no harm: runs are told apart by themselves.
    pub node: String,
    /// After this silence a standby claims the lead. Default 1.5 s. It should be longer than the log's longest pause.
    pub lease: Duration,
    /// How often an idle leader says that it lives; less than half of the lease. Default 200 ms.
    pub heartbeat: Duration,
}

impl Replication {
    /// The defaults, for a topic of a log.
    pub fn new(log: Arc<dyn EventLog>, topic: impl Into<String>, node: impl Into<String>) -> Replication {
        Replication {
            log,
            topic: topic.into(),
            node: node.into(),
            lease: Duration::from_millis(1_500),
            heartbeat: Duration::from_millis(200),
        }
    }
}

/// Why a node cannot follow a replicated journal.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The log could not be asked.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The topic no longer has what this node needs next.
    #[error(
        "topic {topic} begins at offset {start}, where the next command is {first}, but this node needs command {needed} next: copy the \
         engine folder of another node while that is stopped, or a snapshot and journal that reach command {first}"
    )]
    Behind {
        /// The topic.
        topic: String,
        /// Its first offset.
        start: u64,
        /// The first command that can be had.
        first: Seq,
        /// The command that is needed.
        needed: Seq,
    },
    /// The local journal and the topic contradict each other.
    #[error(
        "topic {topic}: {reason}; the engine folder does not belong to this topic: put the right ones together, or move the folder away \
         and start without it, so that it is rebuilt from the topic"
    )]
    Foreign {
        /// The topic.
        topic: String,
        /// What differs.
        reason: String,
    },
    /// A message that this build cannot read.
    #[error("topic {topic} offset {offset} cannot be read: {reason}; use the build that wrote it")]
    Message {
        /// The topic.
        topic: String,
        /// Where.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
}

impl ReplicaError {
    /// Every code that [`ReplicaError::code`] gives of its own.
    pub const CODES: &'static [&'static str] =
        &["engine-replica-behind", "engine-replica-foreign", "engine-replica-message"];

    /// A stable name of the kind of fault.
    pub fn code(&self) -> &'static str {
        match self {
            ReplicaError::Log(error) => error.code(),
            ReplicaError::Behind { .. } => "engine-replica-behind",
            ReplicaError::Foreign { .. } => "engine-replica-foreign",
            ReplicaError::Message { .. } => "engine-replica-message",
        }
    }
}
