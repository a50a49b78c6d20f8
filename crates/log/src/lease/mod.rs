//! Leases: which of several candidates leads, and in which epoch.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod local;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::time::{Duration, Instant};

pub use local::{LocalLease, LocalLeases};
#[cfg(feature = "redis")]
pub use redis::RedisLease;
#[cfg(feature = "zookeeper")]
pub use zookeeper::ZooKeeperLease;

/// What a candidate that leads holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Rises from leader to leader: the fencing token that goes with every write.
    pub epoch: u64,
    /// Until then nobody else is told that they lead.
    pub until: Instant,
}

/// Why a lease could not be asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// The service does not answer now.
    #[error("{service} does not answer: {reason}. It is asked again")]
    Away {
        /// Which.
        service: String,
        /// Why.
        reason: String,
    },
    /// An impossible setting.
    #[error("the lease: {0}")]
    Config(String),
}

impl LeaseError {
    /// Every code that [`code`](LeaseError::code) gives.
    pub const CODES: &'static [&'static str] = &["lease-away", "lease-config"];

    /// A stable name of the kind of fault.
    pub fn code(&self) -> &'static str {
        match self {
            LeaseError::Away { .. } => "lease-away",
            LeaseError::Config(_) => "lease-config",
        }
    }
}

/// One candidate for one lease.
///
/// **Law** (the suite in [`conformance`] checks it on every implementation): epochs strictly rise from leader to leader, also over restarts of candidates and
/// of the service. Who leads keeps the epoch while it renews. Until [`Held::until`] has passed nobody else is told that they lead. After a leader has been
/// silent for the lease's length another gets it; after it resigned, at once. Who resigns and asks again is a candidate like any other, and leads in a new epoch only.
///
/// A lease is no mutual exclusion: a leader that was paused believes that it leads until it looks at a clock. Whoever writes as the leader has the epoch compared
/// where it writes (fencing: M. Kleppmann, "How to do distributed locking", 2016).
pub trait Lease: Send {
    /// Asks for the lease, or renews it. None: somebody else leads, or nobody yet. It waits for the service for a third of the lease's length at most.
    ///
    /// # Errors
    /// [`LeaseError::Away`]: nothing is known now; a leader remains one until [`Held::until`], and longer where its writes are fenced.
    fn poll(&mut self) -> Result<Option<Held>, LeaseError>;

    /// Gives it up, so that others need not wait for its end.
    fn resign(&mut self);

    /// How long it lasts when it is not renewed.
    fn ttl(&self) -> Duration;
}
