//! What a read model's group does with its messages: checks that each is the one that is due, lets the model gather what they bring
//! about, and commits that together with the offsets in one transaction.

use std::sync::Arc;

use hoga_core::codec::decode_event;
use hoga_core::ids::{MarketId, Seq};
use hoga_log::consumer::dead_letters::{Letter, put};
use hoga_log::consumer::{BatchHandler, HandlerError, Offer, Start, TopicPartition};
use hoga_log::event_log::{Cleanup, EventLog, StoredMessage};
use hoga_log::lag::Delays;

use crate::TRADES;
use crate::dead_letters::{self, DeadLetter};
use crate::error::StoreError;
use crate::model::{Applied, Delivery, Model, Outside, Owned};
use crate::notifications::{FIRED, decode_fired};
use crate::place::{self, Due, Place};
use crate::progress::{Progress, Report, now};
use crate::sql::{self, Safety, Writer};

/// A partition that this member owns.
struct Lane {
    place: Place,
    /// The offset of the place in the database.
    stored: u64,
    compact: bool,
    /// Whether the log was seen to be the one that the place is of.
    same_history: bool,
}

impl Lane {
    fn owned(&self) -> Owned {
        Owned { topic: self.place.topic, partition: self.place.partition }
    }

    fn is(&self, at: &TopicPartition) -> bool {
        self.place.partition == at.partition && self.place.topic == &*at.topic
    }
}

/// One member of a read model's group.
pub(crate) struct Handler<M: Model> {
    writer: Writer,
    log: Arc<dyn EventLog>,
    model: M,
    lanes: Vec<Lane>,
    progress: Arc<Progress>,
    letters: Vec<DeadLetter>,
    delays: Delays,
    /// What may be committed to the log: what a power cut cannot take.
    safe: Vec<(TopicPartition, u64)>,
    /// Whether something was committed since it was last made safe.
    unsafe_commits: bool,
    /// Whether a batch failed: then the state in memory is not that of the database.
    broken: bool,
    /// Partitions of the group's topics in all.
    partitions: usize,
    /// Where the model's follow-ups go; none while tables are built anew.
    outside: Option<Outside>,
}

impl<M: Model> Handler<M> {
    /// A member with no partitions yet.
    pub(crate) fn new(
        tables: &sql::Place,
        log: Arc<dyn EventLog>,
        progress: Arc<Progress>,
        outside: Option<Outside>,
    ) -> Result<Handler<M>, StoreError> {
        let writer = Writer::open(tables, M::GROUP.model())?;
        if M::DURABLE {
            writer.set_safety(Safety::Durable)?;
        }
        Ok(Handler {
            writer,
            log,
            model: new_model(outside.as_ref()),
            lanes: Vec::new(),
            progress,
            letters: Vec::new(),
            delays: Delays::default(),
            safe: Vec::new(),
            unsafe_commits: false,
            broken: false,
            partitions: 0,
            outside,
        })
    }

    fn fault(&self, source: hoga_log::LogError) -> StoreError {
        StoreError::Log { group: M::GROUP, source }
    }

    /// Where the member stands in each of its partitions.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.lanes.iter().map(|lane| lane.place).collect()
    }

    /// Loads the places and the model's state of new partitions.
    fn assign(&mut self, places: &[TopicPartition]) -> Result<Vec<u64>, StoreError> {
        self.recover()?;
        // Asked again for the same ones, when the log could not be told where to begin.
        self.lanes.retain(|lane| !places.iter().any(|place| lane.is(place)));
        let specs = self.log.topics();
        let mut new = Vec::new();
        for at in places {
            let topic = M::GROUP.topics().iter().find(|topic| ***topic == *at.topic);
            let spec = specs.iter().find(|spec| spec.name == *at.topic);
            let (Some(topic), Some(spec)) = (topic, spec) else {
                return Err(self.fault(hoga_log::LogError::NoTopic { topic: at.topic.to_string() }));
            };
            let place = Place { topic, partition: at.partition, ..Place::default() };
            let compact = matches!(spec.cleanup, Cleanup::Compact);
            new.push(Lane { place, stored: 0, compact, same_history: false });
        }
        self.partitions = specs
            .iter()
            .filter(|spec| M::GROUP.topics().contains(&&*spec.name))
            .map(|s| s.partitions as usize)
            .sum();
        let mut tx = self.writer.begin()?;
        for lane in &new {
            place::begin(&mut tx, &lane.place)?;
        }
        tx.commit()?;
        let stored = place::load(&self.writer.reader(), M::GROUP)?;
        for lane in &mut new {
            let found = stored
                .iter()
                .find(|place| lane.owned() == Owned { topic: place.topic, partition: place.partition });
            lane.place = found.copied().unwrap_or(lane.place);
            lane.stored = lane.place.next_offset;
        }
        for lane in &new {
            self.check_start(lane)?;
        }
        let owned: Vec<Owned> = new.iter().map(Lane::owned).collect();
        self.model.load(&self.writer.reader(), &owned)?;
        // In the order of the question.
        let starts = new.iter().map(|lane| lane.place.next_offset).collect();
        self.lanes.append(&mut new);
        // In the order in which the topics are listed, so that places and end offsets go together.
        let rank = |lane: &Lane| M::GROUP.topics().iter().position(|topic| *topic == lane.place.topic);
        self.lanes.sort_by_key(|lane| (rank(lane), lane.place.partition));
        let letters = dead_letters::count(&self.writer.reader())?;
        self.progress.begin(&self.places(), self.applied()?, letters);
        Ok(starts)
    }

    /// A log that begins later than needed is of no use. A compacted partition has holes anywhere; the numbers tell whether more than
    /// those is missing.
    fn check_start(&self, lane: &Lane) -> Result<(), StoreError> {
        if lane.compact {
            return Ok(());
        }
        let place = &lane.place;
        let first =
            self.log.start_offset(place.topic, place.partition).map_err(|source| self.fault(source))?;
        if first > place.next_offset {
            return Err(StoreError::Trimmed {
                group: M::GROUP,
                topic: place.topic.to_owned(),
                partition: place.partition,
                needed: place.next_offset,
                first,
            });
        }
        Ok(())
    }

    /// After a failed batch: goes back to what the database has.
    fn recover(&mut self) -> Result<(), StoreError> {
        if !self.broken {
            return Ok(());
        }
        let stored = place::load(&self.writer.reader(), M::GROUP)?;
        let mut model: M = new_model(self.outside.as_ref());
        let owned: Vec<Owned> = self.lanes.iter().map(Lane::owned).collect();
        if !owned.is_empty() {
            model.load(&self.writer.reader(), &owned)?;
        }
        for lane in &mut self.lanes {
            let owned = lane.owned();
            if let Some(place) =
                stored.iter().find(|p| owned == Owned { topic: p.topic, partition: p.partition })
            {
                lane.place = *place;
                lane.stored = place.next_offset;
            }
        }
        (self.model, self.broken) = (model, false);
        self.delays.failed();
        self.letters.clear();
        Ok(())
    }

    /// Takes what can be taken of the offers, and commits it.
    fn take_all(&mut self, offers: &mut [Offer]) -> Result<(), StoreError> {
        self.recover()?;
        if !self.lanes.is_empty() {
            self.model.prepare(&self.writer.reader())?;
            self.model.follow_up(&mut self.writer)?;
        }
        let mut passed = 0;
        // A message may wait for the definition of a market that another partition has: then once more after all others.
        let stuck = loop {
            let before = passed;
            let mut stuck = None;
            for offer in offers.iter_mut() {
                passed += self.take_run(offer, &mut stuck)?;
            }
            if stuck.is_none() || passed == before {
                break stuck;
            }
        };
        if passed == 0
            && let Some((market, seq)) = stuck
        {
            self.model.refresh(&self.writer.reader())?;
            if self.lanes.len() == self.partitions && self.is_at_end_elsewhere() {
                return Err(StoreError::UnknownMarket { group: M::GROUP, market, seq });
            }
        }
        if passed == 0 && !self.is_complete_stale() {
            self.progress.idle(self.produced());
            return Ok(());
        }
        self.store(passed)
    }

    /// Takes messages of one run; how many offsets were passed.
    fn take_run(
        &mut self,
        offer: &mut Offer,
        stuck: &mut Option<(MarketId, Seq)>,
    ) -> Result<u64, StoreError> {
        let Some(at) = self.lanes.iter().position(|lane| lane.is(&offer.run.place)) else { return Ok(0) };
        if offer.taken < offer.run.messages.len() {
            self.check_history(at)?;
        }
        let mut passed = 0;
        while let Some(message) = offer.run.messages.get(offer.taken) {
            // After a commit whose answer was lost, messages come again that the database has.
            if message.offset >= self.lanes[at].place.next_offset {
                if !self.take(at, message, stuck)? {
                    return Ok(passed);
                }
                passed += 1;
            }
            offer.taken += 1;
        }
        let lane = &mut self.lanes[at];
        if offer.run.next > lane.place.next_offset {
            // Compaction removed what was read over.
            lane.place.reach(M::GROUP, lane.compact, offer.run.next)?;
            lane.place.next_offset = offer.run.next;
            passed += 1;
        }
        Ok(passed)
    }

    /// Reads the message before the place once more, and checks that it is the one that was taken: a database kept beside a new log must
    /// not go on in it.
    fn check_history(&mut self, at: usize) -> Result<(), StoreError> {
        let place = self.lanes[at].place;
        // The numbers of fired alerts are the alerts' own and say nothing of the place.
        if self.lanes[at].same_history || place.next_offset == 0 || place.topic == FIRED {
            return Ok(());
        }
        let mut messages = Vec::new();
        let read = self.log.read(place.topic, place.partition, place.next_offset - 1, 1, &mut messages);
        read.map_err(|source| self.fault(source))?;
        let last = messages.first().filter(|message| message.offset + 1 == place.next_offset);
        if let Some(Ok((number, record))) = last.and_then(|last| last.value.as_deref()).map(decode_event) {
            // What is there can only be the last number again, or an older one that was dropped as repeated.
            let mut again = place;
            match again.take(M::GROUP, place.next_offset - 1, number, &record)? {
                Due::Repeated => {}
                Due::Next => return Err(place.foreign(M::GROUP, number, &record)),
            }
        }
        self.lanes[at].same_history = true;
        Ok(())
    }

    /// Takes one message; false when it has to wait for one of another partition.
    fn take(
        &mut self,
        at: usize,
        message: &StoredMessage,
        stuck: &mut Option<(MarketId, Seq)>,
    ) -> Result<bool, StoreError> {
        let lane = &self.lanes[at];
        let (of, mut place) = (lane.owned(), lane.place);
        place.reach(M::GROUP, lane.compact, message.offset)?;
        let from = |number| Delivery { of, number, offset: message.offset };
        let reason = match message.value.as_deref().map(decode_event) {
            None => Some("a message without a value".to_owned()),
            Some(_) if of.topic == FIRED => match message.value.as_deref().and_then(decode_fired) {
                None => Some("not a fired alert of this version".to_owned()),
                Some(fired) => {
                    (place.number, place.time) = (place.number + 1, fired.time);
                    match self.model.alert(from(place.number), &fired)? {
                        Applied::Unusable(reason) => Some(reason.to_owned()),
                        Applied::Done | Applied::NeedsMarket(_) => None,
                    }
                }
            },
            Some(Err(error)) => Some(error.to_string()),
            Some(Ok((number, record))) => match place.take(M::GROUP, message.offset, number, &record)? {
                Due::Repeated => None,
                Due::Next => match self.model.apply(from(number), &record)? {
                    Applied::Done => None,
                    Applied::Unusable(reason) => Some(reason.to_owned()),
                    Applied::NeedsMarket(market) => {
                        *stuck = Some((market, record.seq));
                        return Ok(false);
                    }
                },
            },
        };
        if let Some(reason) = reason {
            // Only a message that could not be decoded has a number that nobody knows.
            if place.number == self.lanes[at].place.number {
                place.unknown += 1;
            }
            self.letters.push(DeadLetter {
                topic: of.topic.to_owned(),
                partition: of.partition,
                offset: message.offset,
                time: message.time,
                reason,
                key: message.key.clone(),
                value: message.value.clone(),
            });
        }
        place.next_offset = message.offset + 1;
        self.lanes[at].place = place;
        self.delays.note(message.time);
        Ok(true)
    }

    /// Commits the gathered batch and the places behind it.
    fn store(&mut self, passed: u64) -> Result<(), StoreError> {
        self.complete();
        self.file_letters()?;
        let before = self.writer.rows();
        self.commit()?;
        let rows = self.writer.rows() - before;
        self.delays.committed(self.progress.latency());
        let letters = self.letters.len() as u64;
        for letter in self.letters.drain(..) {
            tracing::warn!(
                group = M::GROUP.as_str(),
                topic = letter.topic,
                partition = letter.partition,
                offset = letter.offset,
                reason = letter.reason,
                "message put with the dead letters"
            );
        }
        self.progress.report(&Report {
            places: &self.places(),
            applied: self.applied()?,
            messages: passed,
            rows,
            dead_letters: letters,
            produced: self.produced(),
        });
        match self.model.follow_up(&mut self.writer) {
            // What is stored is stored: only what follows waits, and is tried again with the next call.
            Err(error) if error.is_transient() => {
                tracing::warn!(group = M::GROUP.as_str(), %error, "stored; what follows from it waits");
                Ok(())
            }
            done => done,
        }
    }

    /// Commits what is gathered and the places.
    fn commit(&mut self) -> Result<(), StoreError> {
        self.write()?.commit()?;
        self.unsafe_commits = true;
        for lane in &mut self.lanes {
            lane.stored = lane.place.next_offset;
        }
        Ok(())
    }

    /// Puts the letters of the batch into the topics of dead letters, before the offsets behind them are committed: a crash between the two
    /// puts a letter again, and its place tells that the two are one. What the tables keep of them is only counted.
    fn file_letters(&self) -> Result<(), StoreError> {
        for letter in &self.letters {
            let filed = Letter {
                group: M::GROUP.as_str().to_owned(),
                place: TopicPartition { topic: letter.topic.as_str().into(), partition: letter.partition },
                offset: letter.offset,
                // It was understood at once that it cannot be used: trying again would not help.
                attempts: 1,
                reason: letter.reason.clone(),
                time: letter.time,
                died: now(),
                key: letter.key.clone(),
                value: letter.value.clone(),
                kept: true,
            };
            put(&*self.log, &filed).map_err(|source| StoreError::Log { group: M::GROUP, source })?;
        }
        Ok(())
    }

    /// Writes the gathered batch and the places behind it into one transaction, which is returned to be committed.
    fn write(&mut self) -> Result<sql::Tx<'_>, StoreError> {
        let mut tx = self.writer.begin()?;
        // The places first: where another member has written meanwhile, that is found before any of its rows is met.
        for lane in &self.lanes {
            place::store(&mut tx, M::GROUP, &lane.place, lane.stored)?;
        }
        self.model.flush(&mut tx)?;
        if !self.letters.is_empty() {
            dead_letters::store(&mut tx, &self.letters)?;
        }
        Ok(tx)
    }

    /// Notes of each partition up to which command everything of it is taken. The publisher appends in the order of commands, and all
    /// messages of a command to one partition at once; so a partition that is read to its end has everything of the highest command seen
    /// before its end was looked up.
    fn complete(&mut self) {
        for at in 0..self.lanes.len() {
            let place = self.lanes[at].place;
            let highest = self.highest(place.topic);
            let complete = if self.is_at_end(&place) { highest } else { Seq(place.seq.0.saturating_sub(1)) };
            self.lanes[at].place.complete = place.complete.max(complete);
        }
    }

    /// The highest command seen of which everything was appended to the topic before it was seen: the publisher appends a command's trades
    /// first and its orders last.
    fn highest(&self, topic: &str) -> Seq {
        let seen = |lane: &&Lane| lane.place.topic == topic || topic == TRADES;
        self.lanes.iter().filter(seen).map(|lane| lane.place.seq).max().unwrap_or_default()
    }

    /// Whether the places would say more than they do with nothing new read: an end was reached that was not known to be one.
    fn is_complete_stale(&self) -> bool {
        let stale = |lane: &Lane| lane.place.complete < self.highest(lane.place.topic);
        self.lanes.iter().any(|lane| stale(lane) && self.is_at_end(&lane.place))
    }

    /// The last command of which everything is applied, as far as this member's partitions say where they are all, else as the database
    /// says.
    fn applied(&self) -> Result<Seq, StoreError> {
        if self.lanes.len() == self.partitions {
            let places = self.lanes.iter().map(|lane| lane.place).filter(|place| place.topic != FIRED);
            return Ok(places.map(|place| place.complete).min().unwrap_or_default());
        }
        place::applied(&self.writer.reader())
    }

    /// Whether a partition is read to its end. Where that cannot be known, it is not.
    fn is_at_end(&self, place: &Place) -> bool {
        self.log.end_offset(place.topic, place.partition).is_ok_and(|end| place.next_offset >= end)
    }

    fn produced(&self) -> u64 {
        let end = |lane: &Lane| {
            let known = self.log.end_offset(lane.place.topic, lane.place.partition);
            known.unwrap_or(lane.place.next_offset)
        };
        self.lanes.iter().map(end).sum()
    }

    /// Whether all partitions but one are read to their end: then nothing will free the one that waits.
    fn is_at_end_elsewhere(&self) -> bool {
        self.lanes.iter().filter(|lane| !self.is_at_end(&lane.place)).count() <= 1
    }

    /// Brings what was committed to disk.
    fn make_safe(&mut self) -> Result<(), StoreError> {
        // Places that waited. After a failed batch they stand for what is lost again.
        if !self.broken && self.lanes.iter().any(|lane| lane.stored != lane.place.next_offset) {
            self.commit()?;
        }
        if self.unsafe_commits && !M::DURABLE && !self.writer.is_always_durable() {
            self.writer.set_safety(Safety::Durable)?;
            let synced = self.sync();
            self.writer.set_safety(Safety::Rebuildable)?;
            synced?;
        }
        self.unsafe_commits = false;
        let place = |lane: &Lane| {
            let topic = Arc::from(lane.place.topic);
            (TopicPartition { topic, partition: lane.place.partition }, lane.stored)
        };
        self.safe = self.lanes.iter().map(place).collect();
        Ok(())
    }

    /// A synced transaction that rewrites the places syncs everything before it.
    fn sync(&mut self) -> Result<(), StoreError> {
        let mut tx = self.writer.begin()?;
        tx.execute("UPDATE places SET next_offset = next_offset", &[])?;
        tx.commit()
    }

    fn failed(&mut self, error: StoreError) -> HandlerError {
        self.broken = true;
        if error.is_transient() {
            HandlerError::Later(error.into())
        } else {
            HandlerError::Stop(error.into())
        }
    }
}

impl<M: Model> BatchHandler for Handler<M> {
    fn assigned(&mut self, places: &[TopicPartition]) -> Result<Vec<Start>, HandlerError> {
        match self.assign(places) {
            Ok(starts) => Ok(starts.into_iter().map(Start::At).collect()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn revoked(&mut self, places: &[TopicPartition]) {
        let gone = |lane: &Lane| places.iter().any(|place| lane.is(place));
        let lost: Vec<Owned> = self.lanes.iter().filter(|lane| gone(lane)).map(Lane::owned).collect();
        self.lanes.retain(|lane| !gone(lane));
        self.safe.retain(|(place, _)| !places.contains(place));
        self.model.forget(&lost);
        self.progress.owned(&self.places());
    }

    fn handle(&mut self, offers: &mut [Offer]) -> Result<(), HandlerError> {
        self.take_all(offers).map_err(|error| self.failed(error))
    }

    fn safe(&mut self, now: bool) -> Result<Vec<(TopicPartition, u64)>, HandlerError> {
        if now && let Err(error) = self.make_safe() {
            return Err(self.failed(error));
        }
        Ok(self.safe.clone())
    }
}

fn new_model<M: Model>(outside: Option<&Outside>) -> M {
    let mut model = M::default();
    if let Some(outside) = outside {
        model.connect(outside);
    }
    model
}

/// Ends that a real process comes to by itself.
#[cfg(test)]
impl<M: Model> Handler<M> {
    /// Takes what it can, and writes it without a commit.
    pub(crate) fn crash_before_commit(mut self, offers: &mut [Offer]) {
        let mut stuck = None;
        for offer in offers {
            self.take_run(offer, &mut stuck).expect("the messages are sound");
        }
        let tx = self.write().expect("the database is there");
        // Neither commit nor rollback: the connection closes with the transaction open.
        std::mem::forget(tx);
    }
}
