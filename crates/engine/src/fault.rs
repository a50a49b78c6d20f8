//! Faults: what stops an engine, and how everybody learns of it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Writing, syncing or reading the journal failed.
    Journal,
    /// Appending to the event log or syncing it failed.
    EventLog,
    /// Writing a snapshot failed.
    Snapshot,
    /// The shadow's replica came to other events than the matcher: a broken invariant.
    Diverged,
    /// A thread of the engine panicked: a broken invariant.
    Panic,
    /// Another engine has taken over this shard.
    Fenced,
    /// The replicated journal cannot be followed or written.
    Replica,
}

impl FaultKind {
    /// A stable code for the reference of errors.
    pub fn code(self) -> &'static str {
        match self {
            FaultKind::Journal => "engine-journal",
            FaultKind::EventLog => "engine-event-log",
            FaultKind::Snapshot => "engine-snapshot",
            FaultKind::Diverged => "engine-diverged",
            FaultKind::Panic => "engine-panic",
            FaultKind::Fenced => "engine-fenced",
            FaultKind::Replica => "engine-replica",
        }
    }

    /// What the operator does.
    fn remedy(self) -> &'static str {
        match self {
            FaultKind::Journal | FaultKind::EventLog | FaultKind::Snapshot => {
                "the engine has stopped and nothing more is acknowledged; check the disk (space, health, permissions), then start again: \
                 everything acknowledged is recovered from the journal"
            }
            FaultKind::Fenced => {
                "another engine leads this shard; this one has stopped, and answers that it still owed are unknown: ask the new leader; \
                 start this one again and it follows as a standby"
            }
            FaultKind::Replica => {
                "the engine has stopped and nothing more is acknowledged; what the topic holds is what happened: see to what the message \
                 names, then start again"
            }
            FaultKind::Diverged | FaultKind::Panic => {
                "the engine has stopped; this is a defect of the program or of the memory: keep the data folder, run `hoga journal verify` \
                 and report it"
            }
        }
    }
}

/// What stopped the engine: final, the engine does not go on after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// The thread that found it.
    pub thread: &'static str,
    /// What happened, to which file.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}; {}", self.kind.code(), self.thread, self.detail, self.kind.remedy())
    }
}

impl std::error::Error for Fault {}

/// Holds the first fault. Later ones are consequences and are only logged.
#[derive(Debug, Default)]
pub(crate) struct FaultCell {
    stopped: AtomicBool,
    first: Mutex<Option<Fault>>,
    changed: Condvar,
}

impl FaultCell {
    /// Stops the engine.
    pub fn raise(&self, fault: Fault) {
        tracing::error!(code = fault.kind.code(), thread = fault.thread, "{fault}");
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = Some(fault);
        }
        self.stopped.store(true, Ordering::SeqCst);
        drop(first);
        self.changed.notify_all();
    }

    /// Whether the engine has stopped by a fault.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// The first fault.
    pub fn get(&self) -> Option<Fault> {
        if !self.stopped() {
            return None;
        }
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until there is a fault, at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Fault> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, _) = self
            .changed
            .wait_timeout_while(first, timeout, |fault| fault.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        first.clone()
    }
}
