//! Consumer groups: who reads which partition, in which order, and up to where everything is done.
//!
//! A [`Source`] gives a member of a group its partitions and their messages: all of them where the log is in this process, what the
//! group's coordinator assigns where it is on Kafka. A [`BatchHandler`] is what a group does with them. The runtime between the two
//! keeps the promises that every consumer relies on:
//!
//! - messages of a key are handled in order, one at a time;
//! - an offset is committed only when everything before it is done, never lower than before, never of a partition that has moved away;
//! - what waits in memory is bounded: a partition whose window is full is paused;
//! - a message that cannot be handled goes to the dead letters with its reason, place, attempts and bytes, and later ones go on.

mod batches;
#[cfg(test)]
mod batches_tests;
pub mod dead_letters;
mod keyed;
#[cfg(test)]
mod keyed_tests;
mod log_source;
mod observe;
mod signal;
#[cfg(test)]
mod testing;
mod tracker;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::LogError;
use crate::event_log::StoredMessage;

pub use batches::{BatchOptions, run_batches};
pub use keyed::{KeyedError, KeyedHandler, KeyedOptions, run_keyed};
pub use log_source::LogSource;
pub use observe::{GroupFault, GroupState, Observer, PlaceProgress};
pub use signal::Signal;
pub use tracker::Tracker;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition, from 0.
    pub partition: u32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// Messages of one partition, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Of which partition.
    pub place: TopicPartition,
    /// The messages. Empty when compaction or a transaction marker took all that was read over; then `next` tells how far.
    pub messages: Vec<StoredMessage>,
    /// The offset to read next: behind the last message, or behind holes after it.
    pub next: u64,
}

/// What happened to a member's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// These are the member's from now on. [`Source::start_at`] says where to begin before any message of them comes.
    Assigned(Vec<TopicPartition>),
    /// These go to another member: still owned while the change is handled, so that it can finish and commit.
    Revoked(Vec<TopicPartition>),
    /// These have gone to another member already: nothing of them may be committed any more.
    Lost(Vec<TopicPartition>),
}

/// One member's view of its group.
///
/// **Law**: messages of a partition come in order, without repetition, from where [`Source::start_at`] said, and only between its
/// assignment and its revocation. [`Source::commit`] refuses nothing silently: an offset below the committed one or of a partition
/// that is not owned is an error of the caller ([`LogError::Config`]).
pub trait Source: Send {
    /// The group.
    fn group(&self) -> &str;

    /// Waits up to `timeout` for messages and adds runs of at most `max_messages` together to `out`. Calls `change` for each change of
    /// the assignment, before any message that follows it; a partition that is being revoked is taken away when `change` returns, and none
    /// of its messages are in `out` then.
    ///
    /// # Errors
    /// [`LogError::Unavailable`] while the servers cannot be reached, and what reading can meet. What is in `out` all the same is valid.
    fn poll(
        &mut self,
        timeout: Duration,
        max_messages: usize,
        out: &mut Vec<Run>,
        change: &mut dyn FnMut(&mut dyn Control, Change),
    ) -> Result<(), LogError>;

    /// What can be done with the assignment between two polls.
    fn control(&mut self) -> &mut dyn Control;

    /// Leaves the group. Ends within `timeout` whatever the servers do.
    ///
    /// # Errors
    /// [`LogError::Unavailable`] when the group could not be left in order; its members then notice after the session's time.
    fn leave(&mut self, timeout: Duration) -> Result<(), LogError>;
}

/// What a member does with the partitions that it owns.
pub trait Control {
    /// Reads on from this offset. To be called once for each newly assigned partition; later it goes back or forth.
    ///
    /// # Errors
    /// [`LogError::Config`] when the partition is not owned.
    fn start_at(&mut self, place: &TopicPartition, offset: u64) -> Result<(), LogError>;

    /// Gives no more messages of the partition until [`Control::resume`].
    ///
    /// # Errors
    /// [`LogError::Config`] when the partition is not owned.
    fn pause(&mut self, place: &TopicPartition) -> Result<(), LogError>;

    /// Goes on where [`Control::pause`] stopped.
    ///
    /// # Errors
    /// [`LogError::Config`] when the partition is not owned.
    fn resume(&mut self, place: &TopicPartition) -> Result<(), LogError>;

    /// Says that everything before these offsets is done. Durable with the log's own guarantee when it returns.
    ///
    /// # Errors
    /// [`LogError::Config`] for a lower offset or one of a partition that is not owned; [`LogError::Unavailable`].
    fn commit(&mut self, offsets: &[(TopicPartition, u64)]) -> Result<(), LogError>;

    /// The group's committed offset of a partition.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    fn committed(&mut self, place: &TopicPartition) -> Result<Option<u64>, LogError>;

    /// First and end offset of a partition, as far as known.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    fn ends(&mut self, place: &TopicPartition) -> Result<(u64, u64), LogError>;
}

/// Where a newly assigned partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this offset: the handler keeps offsets with its results.
    At(u64),
    /// At the group's committed offset, or at the first one there is.
    Committed,
}

/// Messages offered to a [`BatchHandler`].
#[derive(Debug)]
pub struct Offer {
    /// The run.
    pub run: Run,
    /// How many of its messages the handler took; set by it. What it did not take is offered again, before anything newer of the
    /// partition.
    pub taken: usize,
}

/// What a group does with its messages, many at a time, in one transaction of its own. One thread calls it.
pub trait BatchHandler: Send {
    /// These partitions are ours: where to start each, in the same order.
    ///
    /// # Errors
    /// See [`HandlerError`].
    fn assigned(&mut self, places: &[TopicPartition]) -> Result<Vec<Start>, HandlerError>;

    /// These partitions are not ours any more: what is in memory of them is forgotten. What was handled before is safe already, see
    /// [`BatchHandler::safe`].
    fn revoked(&mut self, places: &[TopicPartition]);

    /// Handles the offered messages: all that it takes of this call, or nothing. An empty call is a chance for work that waits.
    ///
    /// # Errors
    /// See [`HandlerError`]. After an error everything of the call is offered again.
    fn handle(&mut self, offers: &mut [Offer]) -> Result<(), HandlerError>;

    /// Positions that may be committed: what is before them would survive a power cut. With `now`, makes it so first. Also called after
    /// [`BatchHandler::handle`] failed: then what failed is not among it. Positions of partitions that are not owned are passed over.
    ///
    /// # Errors
    /// See [`HandlerError`].
    fn safe(&mut self, now: bool) -> Result<Vec<(TopicPartition, u64)>, HandlerError>;
}

/// Why a handler did not do what it was asked.
#[derive(Debug)]
pub enum HandlerError {
    /// It may work later with nothing changed (a database that is away): it is tried again after a pause that grows. Nothing else of the
    /// group goes on meanwhile.
    Later(Box<dyn std::error::Error + Send + Sync>),
    /// It will never work: the group stops with this fault.
    Stop(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandlerError::Later(error) | HandlerError::Stop(error) => error.fmt(f),
        }
    }
}
