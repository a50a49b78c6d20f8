//! The thread of a consumer group: reads messages, lets its model gather what they bring about, and commits that together with the
//! offsets in one transaction.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_core::codec::decode_event;
use hoga_core::event::EventRecord;
use hoga_core::ids::{MarketId, Seq};
use hoga_log::event_log::{Cleanup, EventLog, StoredMessage};
use hoga_log::lag::Delays;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::Group;
use crate::database::{Safety, set_safety};
use crate::dead_letters::{self, DeadLetter};
use crate::error::{InFile, StoreError};
use crate::place::{self, Due, Place};
use crate::progress::{Progress, Report};

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

/// A read model: gathers in memory what a batch of messages brings about, then writes it at once.
///
/// Law: after [`Model::load`] from what [`Model::flush`] wrote, a model behaves as the one that wrote it; so a batch that was gathered and
/// never committed can be gathered again by a newly loaded model with the same result.
pub(crate) trait Model: Sized + Send + 'static {
    /// The group.
    const GROUP: Group;
    /// Its tables.
    const SCHEMA: &'static str;
    /// Raised with each change of the tables.
    const SCHEMA_VERSION: i64;

    /// The state after the last committed batch.
    fn load(conn: &Connection, path: &std::path::Path) -> Result<Self, StoreError>;

    /// Takes the next message. Touches memory only.
    fn apply(&mut self, record: &EventRecord) -> Result<Applied, StoreError>;

    /// Writes what was gathered since the last call.
    fn flush(&mut self, tx: &Transaction<'_>, path: &std::path::Path) -> Result<(), StoreError>;
}

/// How a consumer works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The most messages in one transaction.
    pub(crate) batch: usize,
    /// How long messages may gather before a small batch is written.
    pub(crate) linger: Duration,
    /// How often what is stored is synced to disk and told to the log.
    pub(crate) sync_every: Duration,
}

/// How long one wait for messages takes; then the group looks whether it is to stop.
const IDLE_WAIT: Duration = Duration::from_millis(200);

pub(crate) struct Consumer<M: Model> {
    conn: Connection,
    path: PathBuf,
    log: Arc<dyn EventLog>,
    model: M,
    progress: Arc<Progress>,
    pace: Pace,
    compact: bool,
    places: Vec<Place>,
    applied: Seq,
    letters: Vec<DeadLetter>,
    messages: Vec<StoredMessage>,
    delays: Delays,
    /// Offsets that the log was told.
    told: Vec<u64>,
    /// Whether the log was seen to be the one that the place is of.
    same_history: Vec<bool>,
    synced: Instant,
    waits: usize,
    stuck: Option<(MarketId, Seq)>,
}

impl<M: Model> Consumer<M> {
    /// Loads where the group stands. The topic must exist.
    pub(crate) fn load(
        conn: Connection,
        path: PathBuf,
        log: Arc<dyn EventLog>,
        progress: Arc<Progress>,
        pace: Pace,
    ) -> Result<Consumer<M>, StoreError> {
        let topic = M::GROUP.topic();
        let spec = log.topics().into_iter().find(|spec| spec.name == topic);
        let Some(spec) = spec else {
            let source = hoga_log::LogError::NoTopic { topic: topic.to_owned() };
            return Err(StoreError::Log { group: M::GROUP, source });
        };
        let stored = place::load(&conn, &path, topic)?;
        let places = (0..spec.partitions).map(|partition| {
            let known = stored.iter().find(|place| place.partition == partition).copied();
            known.unwrap_or(Place { partition, ..Place::default() })
        });
        let places: Vec<Place> = places.collect();
        let compact = matches!(spec.cleanup, Cleanup::Compact);
        let consumer = Consumer {
            model: M::load(&conn, &path)?,
            applied: place::applied(&conn, &path)?,
            told: vec![0; places.len()],
            same_history: vec![false; places.len()],
            conn,
            path,
            log,
            progress,
            pace,
            compact,
            places,
            letters: Vec::new(),
            messages: Vec::new(),
            delays: Delays::default(),
            synced: Instant::now(),
            waits: 0,
            stuck: None,
        };
        consumer.check_start()?;
        for place in &consumer.places {
            // Registers the group, so that retention waits for it.
            consumer.log.commit(M::GROUP.as_str(), topic, place.partition, 0).map_err(log_error::<M>)?;
        }
        let letters = dead_letters::count(&consumer.conn, &consumer.path)?;
        consumer.progress.begin(&consumer.places, consumer.applied, letters);
        Ok(consumer)
    }

    /// Works until it is told to stop or something fails; tells which.
    pub(crate) fn run(mut self) {
        let mut result = Ok(());
        while result.is_ok() && !self.progress.stopping() {
            result = self.step();
        }
        // What a failed batch left in the model is not to be written; what was committed before is synced in any case.
        let synced = if self.told_all() { Ok(()) } else { self.sync() };
        let fault = result.and(synced).err().map(Arc::new);
        if let Some(fault) = &fault {
            tracing::error!(group = M::GROUP.as_str(), %fault, "consumer group stopped");
        }
        self.progress.end(fault);
    }

    /// One batch, or one wait.
    pub(crate) fn step(&mut self) -> Result<(), StoreError> {
        let gathered = self.gather()?;
        if gathered > 0 {
            self.store(gathered)?;
            if gathered < self.pace.batch / 2 {
                self.progress.linger(self.pace.linger);
            }
            return Ok(());
        }
        if let Some((market, seq)) = self.stuck.filter(|_| self.at_end_elsewhere()) {
            return Err(StoreError::UnknownMarket { group: M::GROUP, market, seq });
        }
        self.progress.idle(self.produced()?);
        if !self.told_all() && self.synced.elapsed() >= self.pace.sync_every {
            return self.sync();
        }
        self.wait()
    }

    /// Reads up to a batch of messages and lets the model gather them. Returns how many offsets were passed.
    pub(crate) fn gather(&mut self) -> Result<usize, StoreError> {
        let share = (self.pace.batch / self.places.len().max(1)).max(1);
        let mut messages = std::mem::take(&mut self.messages);
        let mut gathered = 0;
        self.stuck = None;
        for at in 0..self.places.len() {
            messages.clear();
            if !self.is_same_history(at, &mut messages)? {
                continue;
            }
            let place = self.places[at];
            let next = self
                .log
                .read(M::GROUP.topic(), place.partition, place.next_offset, share, &mut messages)
                .map_err(log_error::<M>)?;
            if messages.is_empty() && next > place.next_offset {
                // Compaction removed everything that was read over.
                self.places[at].reach(M::GROUP, self.compact, next)?;
                self.places[at].next_offset = next;
                gathered += 1;
            }
            for message in &messages {
                if !self.take(at, message)? {
                    break;
                }
                gathered += 1;
            }
        }
        messages.clear();
        self.messages = messages;
        self.applied = self.applied.max(self.complete()?);
        Ok(gathered)
    }

    /// Reads the message before the place once more, as soon as the log has come so far (after a power cut it may lack its end, until that
    /// is published again), and checks that it is the one that was taken: a database kept beside a new log must not go on in it.
    fn is_same_history(&mut self, at: usize, messages: &mut Vec<StoredMessage>) -> Result<bool, StoreError> {
        let place = self.places[at];
        if self.same_history[at] || place.next_offset == 0 {
            return Ok(true);
        }
        if self.end_offset(place.partition)? < place.next_offset {
            return Ok(false);
        }
        self.log
            .read(M::GROUP.topic(), place.partition, place.next_offset - 1, 1, messages)
            .map_err(log_error::<M>)?;
        let last = messages.first().filter(|message| message.offset + 1 == place.next_offset);
        if let Some(Ok((number, record))) = last.and_then(|last| last.value.as_deref()).map(decode_event) {
            // What is there can only be the last number again, or an older one that was dropped as repeated.
            let mut again = place;
            match again.take(M::GROUP, place.next_offset - 1, number, &record)? {
                Due::Repeated => {}
                Due::Next => return Err(place.foreign(M::GROUP, number, &record)),
            }
        }
        messages.clear();
        self.same_history[at] = true;
        Ok(true)
    }

    /// Takes one message; false when it has to wait for one of another partition.
    fn take(&mut self, at: usize, message: &StoredMessage) -> Result<bool, StoreError> {
        let mut place = self.places[at];
        place.reach(M::GROUP, self.compact, message.offset)?;
        let reason = match message.value.as_deref().map(decode_event) {
            None => Some("a message without a value".to_owned()),
            Some(Err(error)) => Some(error.to_string()),
            Some(Ok((number, record))) => match place.take(M::GROUP, message.offset, number, &record)? {
                Due::Repeated => None,
                Due::Next => match self.model.apply(&record)? {
                    Applied::Done => None,
                    Applied::Unusable(reason) => Some(reason.to_owned()),
                    Applied::NeedsMarket(market) => {
                        self.stuck = Some((market, record.seq));
                        return Ok(false);
                    }
                },
            },
        };
        if let Some(reason) = reason {
            // Only a message that could not be decoded has a number that nobody knows.
            if place.number == self.places[at].number {
                place.unknown += 1;
            }
            self.letters.push(dead_letter::<M>(at as u32, message, reason));
        }
        place.next_offset = message.offset + 1;
        self.places[at] = place;
        self.delays.note(message.time);
        Ok(true)
    }

    /// Commits the gathered batch and the places behind it, then tells the log what is safe on disk.
    pub(crate) fn store(&mut self, gathered: usize) -> Result<(), StoreError> {
        let due = self.synced.elapsed() >= self.pace.sync_every;
        if due {
            set_safety(&self.conn, &self.path, Safety::Durable)?;
        }
        let committed = self.write()?.commit();
        committed.doing(&self.path, "committing a batch")?;
        self.delays.committed(self.progress.latency());
        let letters = self.letters.len() as u64;
        for letter in self.letters.drain(..) {
            tracing::warn!(
                group = M::GROUP.as_str(),
                partition = letter.partition,
                offset = letter.offset,
                reason = letter.reason,
                "message put with the dead letters"
            );
        }
        self.progress.report(&Report {
            places: &self.places,
            applied: self.applied,
            messages: gathered as u64,
            dead_letters: letters,
            produced: self.produced()?,
        });
        if due {
            set_safety(&self.conn, &self.path, Safety::Rebuildable)?;
            self.tell_log()?;
        }
        Ok(())
    }

    /// Writes the gathered batch and the places behind it into one transaction, which is returned to be committed.
    fn write(&mut self) -> Result<Transaction<'_>, StoreError> {
        let tx = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate)
            .doing(&self.path, "beginning a batch")?;
        self.model.flush(&tx, &self.path)?;
        for letter in &self.letters {
            dead_letters::store(&tx, &self.path, letter)?;
        }
        place::store(&tx, &self.path, M::GROUP.topic(), &self.places, self.applied)?;
        Ok(tx)
    }

    /// Brings what was committed to disk by a synced transaction that rewrites the places, and tells the log.
    fn sync(&mut self) -> Result<(), StoreError> {
        set_safety(&self.conn, &self.path, Safety::Durable)?;
        // Not from `self.places`: a failed batch has moved those on.
        let sql = "UPDATE places SET next_offset = next_offset";
        self.conn.execute(sql, []).doing(&self.path, "syncing the offsets")?;
        set_safety(&self.conn, &self.path, Safety::Rebuildable)?;
        self.places = place::load(&self.conn, &self.path, M::GROUP.topic())?;
        self.tell_log()
    }

    fn tell_log(&mut self) -> Result<(), StoreError> {
        for (place, told) in self.places.iter().zip(&mut self.told) {
            if place.next_offset > *told {
                self.log
                    .commit(M::GROUP.as_str(), M::GROUP.topic(), place.partition, place.next_offset)
                    .map_err(log_error::<M>)?;
                *told = place.next_offset;
            }
        }
        self.synced = Instant::now();
        Ok(())
    }

    fn told_all(&self) -> bool {
        self.places.iter().zip(&self.told).all(|(place, told)| place.next_offset <= *told)
    }

    /// The last command of which all messages of the topic are taken. The publisher appends in the order of commands, and all messages of a
    /// command to one partition at once; so a partition that is read to its end has everything of the highest command seen before its
    /// end was looked up.
    fn complete(&self) -> Result<Seq, StoreError> {
        let highest = self.places.iter().map(|place| place.seq).max().unwrap_or_default();
        let mut complete = highest;
        for place in &self.places {
            if place.next_offset < self.end_offset(place.partition)? {
                complete = complete.min(Seq(place.seq.0.saturating_sub(1)));
            }
        }
        Ok(complete)
    }

    fn check_start(&self) -> Result<(), StoreError> {
        // A compacted partition has holes anywhere; the numbers tell whether more than those is missing.
        for place in self.places.iter().filter(|_| !self.compact) {
            let first = self.log.start_offset(M::GROUP.topic(), place.partition).map_err(log_error::<M>)?;
            if first > place.next_offset {
                return Err(StoreError::Trimmed {
                    group: M::GROUP,
                    topic: M::GROUP.topic().to_owned(),
                    partition: place.partition,
                    needed: place.next_offset,
                    first,
                });
            }
        }
        Ok(())
    }

    fn end_offset(&self, partition: u32) -> Result<u64, StoreError> {
        self.log.end_offset(M::GROUP.topic(), partition).map_err(log_error::<M>)
    }

    fn produced(&self) -> Result<u64, StoreError> {
        self.places.iter().map(|place| self.end_offset(place.partition)).sum()
    }

    /// Whether all partitions but one are read to their end: then nothing will free the one that waits.
    fn at_end_elsewhere(&self) -> bool {
        let behind = self
            .places
            .iter()
            .filter(|place| self.end_offset(place.partition).is_ok_and(|end| place.next_offset < end));
        behind.count() <= 1
    }

    /// Waits for a message; with several partitions for one after the other, in short turns.
    fn wait(&mut self) -> Result<(), StoreError> {
        let turns = self.places.len().max(1);
        let place = self.places[self.waits % turns];
        self.waits += 1;
        let time = if turns == 1 { IDLE_WAIT } else { Duration::from_millis(5) };
        self.log
            .wait_for(M::GROUP.topic(), place.partition, place.next_offset, time)
            .map_err(log_error::<M>)?;
        Ok(())
    }
}

fn log_error<M: Model>(source: hoga_log::LogError) -> StoreError {
    StoreError::Log { group: M::GROUP, source }
}

fn dead_letter<M: Model>(partition: u32, message: &StoredMessage, reason: String) -> DeadLetter {
    DeadLetter {
        id: 0,
        topic: M::GROUP.topic().to_owned(),
        partition,
        offset: message.offset,
        time: message.time,
        reason,
        key: message.key.clone(),
        value: message.value.clone(),
    }
}

/// Ends that a real process comes to by itself.
#[cfg(test)]
impl<M: Model> Consumer<M> {
    /// Ends with the gathered batch written, before or after its commit, and the log not told.
    pub(crate) fn crash(mut self, committed: bool) {
        let tx = self.write().unwrap();
        if committed {
            tx.commit().unwrap();
        } else {
            // Neither commit nor rollback: the connection closes with the transaction open.
            std::mem::forget(tx);
        }
    }

    /// Every commit from now on is synced.
    pub(crate) fn hurry_syncs(&mut self) {
        self.pace.sync_every = Duration::ZERO;
    }
}
