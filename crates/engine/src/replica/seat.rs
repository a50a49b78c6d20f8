//! Whether this engine leads, and how its replication stands: shared by its threads, read by operators.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What an engine is to its shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Its journal is not replicated.
    #[default]
    Alone,
    /// It follows the topic, answers queries, and refuses commands as busy.
    Standby,
    /// It takes commands.
    Leader,
    /// It has led or followed, and has ended.
    Ended,
}

impl Role {
    /// Its name for operators.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Alone => "alone",
            Role::Standby => "standby",
            Role::Leader => "leader",
            Role::Ended => "ended",
        }
    }
}

/// How the replication of a journal stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// What this engine is.
    pub role: Role,
    /// The newest epoch that was read; 0 before the first.
    pub epoch: u64,
    /// The offset behind the last message that was read and is in the local journal.
    pub offset: u64,
    /// Batches that were sent and not yet read back.
    pub in_flight: u64,
    /// Messages of others than the leader that were refused, since the start.
    pub refused: u64,
    /// Whether the log answered when it was last asked.
    pub reachable: bool,
}

const ALONE: u8 = 0;
const STANDBY: u8 = 1;
const LEADER: u8 = 2;
const ENDED: u8 = 3;

#[derive(Debug, Default)]
pub(crate) struct Seat {
    role: AtomicU8,
    pub epoch: AtomicU64,
    pub offset: AtomicU64,
    pub in_flight: AtomicU64,
    pub refused: AtomicU64,
    pub reachable: AtomicBool,
    /// The writer has sent the last it will send; and whether that was a resignation, which the reader then waits for.
    pub written: AtomicBool,
    pub resigned: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Seat {
    pub fn role(&self) -> Role {
        match self.role.load(Ordering::SeqCst) {
            ALONE => Role::Alone,
            STANDBY => Role::Standby,
            LEADER => Role::Leader,
            _ => Role::Ended,
        }
    }

    /// Whether commands must be refused because another engine leads.
    pub fn refuses(&self) -> bool {
        self.role.load(Ordering::Relaxed) == STANDBY
    }

    pub fn leads(&self) -> bool {
        self.role.load(Ordering::SeqCst) == LEADER
    }

    pub fn replicated(&self) -> bool {
        self.role.load(Ordering::Relaxed) != ALONE
    }

    pub fn follow(&self) {
        self.set(STANDBY);
    }

    pub fn lead(&self) {
        self.set(LEADER);
    }

    /// For good.
    pub fn end(&self) {
        if self.replicated() {
            self.set(ENDED);
        }
    }

    fn set(&self, role: u8) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.role.store(role, Ordering::SeqCst);
        drop(guard);
        self.changed.notify_all();
    }

    /// Waits while it is a standby, at most `timeout`.
    pub fn wait_change(&self, timeout: Duration) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |_: &mut ()| self.role.load(Ordering::SeqCst) == STANDBY;
        let _ = self.changed.wait_timeout_while(guard, timeout, waits);
    }

    pub fn status(&self) -> ReplicaStatus {
        ReplicaStatus {
            role: self.role(),
            epoch: self.epoch.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            reachable: self.reachable.load(Ordering::Relaxed),
        }
    }
}
