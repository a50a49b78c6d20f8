//! What a read model is: the fold of a group's messages into rows.

use std::sync::Arc;
use std::time::Duration;

use hoga_core::event::EventRecord;
use hoga_core::ids::MarketId;
use hoga_log::event_log::EventLog;

use crate::error::StoreError;
use crate::sql::{Reader, Tx, Writer};
use crate::triggers::Sending;
use crate::{Fired, Group};

/// What became of a message that a model was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It is in the gathered batch.
    Done,
    /// The market's definition has to come first, from another partition. Nothing was gathered.
    NeedsMarket(MarketId),
    /// It means nothing here; it goes to the dead letters. Nothing was gathered.
    Unusable(&'static str),
}

/// A partition that a member owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    /// The topic, one of [`Group::topics`].
    pub(crate) topic: &'static str,
    /// The partition.
    pub(crate) partition: u32,
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The partition.
    pub(crate) of: Owned,
    /// The message's number in it.
    pub(crate) number: u64,
    /// Its offset.
    pub(crate) offset: u64,
}

/// Where what follows from a commit goes.
#[derive(Clone)]
pub(crate) struct Outside {
    /// The event log that consumers read.
    pub(crate) log: Arc<dyn EventLog>,
    /// The orders of alerts.
    pub(crate) sending: Arc<Sending>,
}

/// A read model: gathers in memory what a batch of messages brings about, then writes it at once.
///
/// A member of the group has the state of the partitions that it owns and of no others.
///
/// Law: after [`Model::load`] from what [`Model::flush`] wrote, a model behaves as the one that wrote it; so a batch that was gathered and
/// never committed can be gathered again by a newly loaded model with the same result.
pub(crate) trait Model: Default + Send + 'static {
    /// The group.
    const GROUP: Group;

    /// Whether a commit has to be on disk when it returns, since what follows from it cannot be taken back.
    const DURABLE: bool = false;

    /// The longest that messages may gather, where that is less than the configuration says.
    const LINGER: Option<Duration> = None;

    /// Gives the way for what follows from a commit. A model that builds new tables has none: all that was done already.
    fn connect(&mut self, outside: &Outside) {
        let _ = outside;
    }

    /// Called before the messages of a batch, when they have been read already and nothing is gathered: learns what others have
    /// written that the messages may meet.
    fn prepare(&mut self, reader: &Reader<'_>) -> Result<(), StoreError> {
        let _ = reader;
        Ok(())
    }

    /// Does what follows from what is committed and was not done yet. Called before a batch and after its commit; what fails is done
    /// with a later call, also by another member.
    fn follow_up(&mut self, writer: &mut Writer) -> Result<(), StoreError> {
        let _ = writer;
        Ok(())
    }

    /// Takes the next message of `alert.fired`.
    fn alert(&mut self, from: Delivery, fired: &Fired) -> Result<Applied, StoreError> {
        let _ = (from, fired);
        Ok(Applied::Unusable("nobody here reads fired alerts"))
    }

    /// Adds the state of these partitions after the last committed batch.
    fn load(&mut self, reader: &Reader<'_>, owned: &[Owned]) -> Result<(), StoreError>;

    /// Forgets the state of these partitions. Nothing is gathered at that time.
    fn forget(&mut self, lost: &[Owned]);

    /// Reads again what other members of the group may have written since [`Model::load`]; called when a message needs something from
    /// another partition.
    fn refresh(&mut self, reader: &Reader<'_>) -> Result<(), StoreError> {
        let _ = reader;
        Ok(())
    }

    /// Takes the next message. Touches memory only.
    fn apply(&mut self, from: Delivery, record: &EventRecord) -> Result<Applied, StoreError>;

    /// Writes what was gathered since the last call.
    fn flush(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError>;
}
