//! Builds a read model anew from the event log, beside the one that is in use, and puts it in its place.
//!
//! The new tables are filled by a member of their own, which has nothing to do with the group's membership or its commits. While it
//! catches up, the group goes on; only for the swap does it stop. Questions see the old tables or the new ones. A rebuild that is
//! interrupted leaves the tables in use as they are, and the next one begins by removing what it left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_log::LogError;
use hoga_log::consumer::{BatchHandler, HandlerError, Offer, Run, TopicPartition};
use hoga_log::event_log::Cleanup;

use crate::accounts::AccountModel;
use crate::error::StoreError;
use crate::handler::Handler;
use crate::market::MarketModel;
use crate::model::Model;
use crate::notifications::NotificationModel;
use crate::orders::OrderModel;
use crate::place::Place;
use crate::progress::Progress;
use crate::sql;
use crate::{Group, Stores, place};

/// What a rebuild did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The group.
    pub group: Group,
    /// Messages that were read.
    pub messages: u64,
    /// How long it took in all.
    pub took: Duration,
    /// For how long the group stood still for the swap.
    pub stopped_for: Duration,
    /// The offset with which each partition began: 0, or where a compacted one begins now.
    pub first_offsets: Vec<(String, u32, u64)>,
}

/// Messages of one partition that are read at once.
const SHARE: usize = 8192;

impl Stores {
    /// Builds a group's tables anew from the log's first offset and puts them in the place of the present ones. The group may run, here or
    /// nowhere; it goes on meanwhile, and stands still for the moment of the swap. Blocks until it is done.
    ///
    /// # Errors
    /// [`StoreError::RebuildTrimmed`] when the log has lost the beginning of a topic that is not compacted: nothing is changed then. What
    /// reading and writing can meet: the tables in use stay. [`StoreError::NotRebuildable`] for `stop-trigger`.
    pub fn rebuild(&self, group: Group) -> Result<Rebuilt, StoreError> {
        match group {
            Group::Accounts => self.rebuild_model::<AccountModel>(),
            Group::Orders => self.rebuild_model::<OrderModel>(),
            Group::Market => self.rebuild_model::<MarketModel>(),
            Group::Notifications => self.rebuild_model::<NotificationModel>(),
            // Users' alerts are in these tables and nowhere else.
            Group::Triggers => Err(StoreError::NotRebuildable { group }),
        }
    }

    fn rebuild_model<M: Model>(&self) -> Result<Rebuilt, StoreError> {
        let group = M::GROUP;
        let begun = Instant::now();
        let holder = format!("{}.rebuild", group.as_str());
        let first_offsets = self.hold_log(group, &holder)?;
        let built = self.build_and_swap::<M>(begun, first_offsets);
        for topic in group.topics() {
            if let Err(error) = self.log.forget_group(&holder, topic) {
                tracing::warn!(group = holder, topic, %error, "the log still waits for a rebuild that has ended");
            }
        }
        built
    }

    /// Keeps the log from dropping anything meanwhile, and looks that it has everything.
    fn hold_log(&self, group: Group, holder: &str) -> Result<Vec<(String, u32, u64)>, StoreError> {
        let of = |source: LogError| StoreError::Log { group, source };
        let specs = self.log.topics();
        let mut all = Vec::new();
        for topic in group.topics() {
            let spec = specs.iter().find(|spec| spec.name == *topic);
            let spec = spec.ok_or_else(|| of(LogError::NoTopic { topic: (*topic).to_owned() }))?;
            for partition in 0..spec.partitions {
                self.log.commit(holder, topic, partition, 0).map_err(of)?;
                let first = self.log.start_offset(topic, partition).map_err(of)?;
                if first > 0 && spec.cleanup != Cleanup::Compact {
                    for topic in group.topics() {
                        self.log.forget_group(holder, topic).map_err(of)?;
                    }
                    return Err(StoreError::RebuildTrimmed {
                        group,
                        topic: (*topic).to_owned(),
                        partition,
                        first,
                    });
                }
                all.push(((*topic).to_owned(), partition, first));
            }
        }
        Ok(all)
    }

    fn build_and_swap<M: Model>(
        &self,
        begun: Instant,
        first_offsets: Vec<(String, u32, u64)>,
    ) -> Result<Rebuilt, StoreError> {
        let group = M::GROUP;
        let tables = self.config.tables(group);
        let next = tables.next();
        sql::remove(&next)?;
        // Only one rebuild at a time writes these.
        let claim = crate::stores::claim::<M>(&next)?;
        let mut builder = Builder::<M> {
            handler: Handler::new(&next, self.log.clone(), Arc::new(Progress::default()), None)?,
            stores: self,
            messages: 0,
        };
        builder.begin(&first_offsets)?;
        // Until it is a few batches behind the tables in use, the group goes on: it is not the log's end that has to be reached, which
        // moves on under load.
        loop {
            let missing = builder.pump()?;
            let live = self.pool(group).read("reading where the group stands", |r| place::load(r, group))?;
            if missing == 0 || builder.behind(&live) <= 4 * SHARE as u64 {
                break;
            }
        }
        let ran = self.is_running(group);
        let stopped = Instant::now();
        self.stop_only(&[group]);
        let swapped = (|| {
            let live = self.pool(group).read("reading where the group stands", |r| place::load(r, group))?;
            while builder.behind(&live) > 0 {
                builder.pump()?;
            }
            let messages = builder.finish()?;
            self.pool(group).swap(|| sql::swap(&tables, &next))?;
            Ok(messages)
        })();
        drop(claim);
        if ran {
            self.start_only(&[group])?;
        }
        let stopped_for = stopped.elapsed();
        let messages = swapped?;
        self.reload(group)?;
        Ok(Rebuilt { group, messages, took: begun.elapsed(), stopped_for, first_offsets })
    }
}

/// Fills the new tables.
struct Builder<'a, M: Model> {
    handler: Handler<M>,
    stores: &'a Stores,
    messages: u64,
}

impl<M: Model> Builder<'_, M> {
    fn begin(&mut self, partitions: &[(String, u32, u64)]) -> Result<(), StoreError> {
        let place = |(topic, partition, _): &(String, u32, u64)| TopicPartition {
            topic: Arc::from(topic.as_str()),
            partition: *partition,
        };
        let places: Vec<TopicPartition> = partitions.iter().map(place).collect();
        self.handler.assigned(&places).map(|_| ()).map_err(unwrapped::<M>)
    }

    /// Reads and writes a share of each partition; how much is missing still.
    fn pump(&mut self) -> Result<u64, StoreError> {
        let of = |source: LogError| StoreError::Log { group: M::GROUP, source };
        let mut offers = Vec::new();
        for place in self.handler.places() {
            let mut messages = Vec::new();
            let log = &self.stores.log;
            let next = log
                .read(place.topic, place.partition, place.next_offset, SHARE, &mut messages)
                .map_err(of)?;
            if next > place.next_offset {
                self.messages += messages.len() as u64;
                let place = TopicPartition { topic: Arc::from(place.topic), partition: place.partition };
                offers.push(Offer { run: Run { place, messages, next }, taken: 0 });
            }
        }
        self.handler.handle(&mut offers).map_err(unwrapped::<M>)?;
        let left = |offer: &Offer| (offer.run.messages.len() - offer.taken) as u64;
        self.messages -= offers.iter().map(left).sum::<u64>();
        let places = self.handler.places();
        let ends = self.stores.ends(M::GROUP).map_err(of)?;
        let missing = |end: &crate::progress::End| {
            end.offset.saturating_sub(end.place(&places).map_or(0, |place| place.next_offset))
        };
        Ok(ends.iter().map(missing).sum())
    }

    /// How many offsets these tables are behind those in use.
    fn behind(&self, live: &[Place]) -> u64 {
        let here = self.handler.places();
        let missing = |live: &Place| {
            let same = |place: &&Place| place.topic == live.topic && place.partition == live.partition;
            let reached = here.iter().find(same).map_or(0, |place| place.next_offset);
            live.next_offset.saturating_sub(reached)
        };
        live.iter().map(missing).sum()
    }

    /// Makes everything safe and closes the new tables.
    fn finish(mut self) -> Result<u64, StoreError> {
        self.handler.safe(true).map_err(unwrapped::<M>)?;
        Ok(self.messages)
    }
}

fn unwrapped<M: Model>(error: HandlerError) -> StoreError {
    let (HandlerError::Later(source) | HandlerError::Stop(source)) = error;
    match source.downcast::<StoreError>() {
        Ok(error) => *error,
        Err(source) => {
            StoreError::Database { database: M::GROUP.as_str().into(), doing: "rebuilding", source }
        }
    }
}
