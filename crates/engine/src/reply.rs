//! How the outcome of a command comes back to whoever sent it.

use std::fmt;
use std::sync::Arc;

use hoga_core::event::{EventRecord, Reject};
use hoga_core::ids::{Seq, Timestamp};

/// The outcome of a command. It exists only after the command is durable.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The command's place in the journal.
    pub seq: Seq,
    /// The command's time.
    pub time: Timestamp,
    /// `Err`: it was refused and changed nothing; `events` then holds the one `Rejected` event.
    pub outcome: Result<(), Reject>,
    /// The command's events, in order.
    pub events: &'a [EventRecord],
}

/// Why there will be no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The engine stopped before it took the command: it has not happened and never will.
    NotTaken,
    /// The engine stopped while the command was on its way to stable storage: whether it happened shows after the restart. The client must
    /// ask by its client id.
    Unknown,
}

/// Takes replies. One sink serves many commands, told apart by their tag.
pub trait ReplySink: Send + Sync {
    /// The outcome of the command with this tag. Called on the gate's thread: must not block, and must be quick, since all other replies
    /// wait behind it. Called at most once per command, in the order of the commands.
    fn reply(&self, tag: u64, reply: &Reply<'_>);

    /// There will be no reply. Called instead of [`ReplySink::reply`], on any thread; must not block.
    fn lost(&self, tag: u64, why: Lost);
}

/// Where a command's reply goes. Each one that was accepted by `submit` is answered exactly once: dropping it unanswered, however that
/// comes about, tells the sink that the reply is lost.
pub struct ReplyTo {
    sink: Option<Arc<dyn ReplySink>>,
    tag: u64,
    taken: bool,
}

impl ReplyTo {
    /// To a sink, under a tag that the caller chooses.
    pub fn new(sink: Arc<dyn ReplySink>, tag: u64) -> ReplyTo {
        ReplyTo { sink: Some(sink), tag, taken: false }
    }

    /// Nobody waits for it.
    pub fn none() -> ReplyTo {
        ReplyTo { sink: None, tag: 0, taken: false }
    }

    /// Whether nobody waits for it.
    pub fn is_none(&self) -> bool {
        self.sink.is_none()
    }

    /// The command got its place: from here on a lost reply means an unknown outcome.
    pub(crate) fn take(&mut self) {
        self.taken = true;
    }

    /// Gives the reply.
    pub(crate) fn answer(mut self, reply: &Reply<'_>) {
        if let Some(sink) = self.sink.take() {
            sink.reply(self.tag, reply);
        }
    }

    /// The caller was told in another way (the error of `submit`).
    pub(crate) fn defuse(mut self) {
        self.sink = None;
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            sink.lost(self.tag, if self.taken { Lost::Unknown } else { Lost::NotTaken });
        }
    }
}

impl fmt::Debug for ReplyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyTo").field("tag", &self.tag).field("waiting", &self.sink.is_some()).finish()
    }
}
