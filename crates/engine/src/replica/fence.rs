//! Which messages of the topic count: a pure function of the topic, the same on every node.
//!
//! - A **claim** is valid when it asks for the epoch after the current one, and its sender had read everything that counted so far: no
//!   message of the leader stands between the offset that the claim names and the claim. So a claim that was long under way is void when the
//!   leader was heard meanwhile, and of several claims the first one in the topic wins.
//! - A message of a **leader** counts when it carries the current epoch and comes from the run that claimed it. Behind a valid claim nothing of
//!   an earlier epoch counts: its sender learns that it is no longer the leader by reading the claim.
//! - A **batch** counts when it also goes on exactly where the last one ended.

use hoga_core::ids::Seq;

use super::message::{Content, Envelope};

/// What has been decided up to some offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    /// The current epoch; 0 before the first claim.
    pub epoch: u64,
    /// The run that leads it.
    pub leader: u64,
    /// Nobody leads: there was no claim yet, or the leader has resigned.
    pub vacant: bool,
    /// The offset behind the last message that counted.
    pub heard: u64,
    /// The next command.
    pub next: Seq,
}

/// What a message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its commands count.
    Commands,
    /// Its sender leads from here on.
    Leads,
    /// The leader lives.
    Alive,
    /// The leader has left.
    Vacant,
    /// It does not count, and why.
    Refused(Refusal),
}

/// Why a message does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Of an earlier epoch, or of somebody who never led.
    Stale,
    /// A claim that came second, or that the leader was heard before.
    Void,
    /// Commands that stand before it already.
    Repeat,
    /// Commands that do not follow the last ones.
    Gap,
}

impl Fence {
    /// At the beginning of a topic.
    pub fn new() -> Fence {
        Fence { epoch: 0, leader: 0, vacant: true, heard: 0, next: Seq(1) }
    }

    /// Takes the next message, in order of offset.
    pub fn pass(&mut self, offset: u64, message: &Envelope<'_>) -> Verdict {
        if let Content::Claim { read_to, next, .. } = message.body {
            let first = self.epoch == 0;
            if message.epoch != self.epoch + 1 || read_to < self.heard || !(first || next == self.next) {
                return Verdict::Refused(Refusal::Void);
            }
            *self = Fence {
                epoch: message.epoch,
                leader: message.instance,
                vacant: false,
                heard: offset + 1,
                // The first leader may bring a journal with it that was not replicated before.
                next,
            };
            return Verdict::Leads;
        }
        if self.vacant || message.epoch != self.epoch || message.instance != self.leader {
            return Verdict::Refused(Refusal::Stale);
        }
        let verdict = match message.body {
            Content::Batch { first, count, .. } => {
                let end = Seq(first.0 + u64::from(count));
                if end <= self.next {
                    return Verdict::Refused(Refusal::Repeat);
                }
                if first != self.next {
                    return Verdict::Refused(Refusal::Gap);
                }
                self.next = end;
                Verdict::Commands
            }
            Content::Resign { .. } => {
                self.vacant = true;
                Verdict::Vacant
            }
            Content::Heartbeat { .. } | Content::Claim { .. } => Verdict::Alive,
        };
        self.heard = offset + 1;
        verdict
    }
}

#[cfg(test)]
#[path = "fence_tests.rs"]
mod tests;
