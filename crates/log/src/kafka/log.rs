//! [`KafkaLog`]: the event log on a Kafka cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rdkafka::producer::{BaseProducer, Producer as _, PurgeConfig};
use rdkafka::types::RDKafkaErrorCode;

use super::admin::{Admin, Found};
use super::config::KafkaConfig;
use super::context::{Deliveries, Producing, SentTopic, tag};
use super::groups::Groups;
use super::native::{self, Outlet, Reports};
use super::reach::Reach;
use super::readers::{Place, Readers};
use super::{fault, stats::KafkaStats};
use crate::error::LogError;
use crate::event_log::{
    EventLog, GroupOffset, Maintenance, Message, StoredMessage, TopicSpec, check_group, check_messages,
    partition_for,
};

/// How long a call sleeps before it looks again, should a wake have been missed.
const LOOK: Duration = Duration::from_millis(50);

/// An [`EventLog`] on Apache Kafka.
///
/// Making one needs no broker: clients connect by themselves, and calls that need an answer fail with [`LogError::Unavailable`] until
/// there is one. `append` puts messages into a bounded queue and waits while that is full; `sync` waits until all of it is acknowledged,
/// through outages of any length. [`KafkaLog::close`] ends all that.
///
/// A topic has one writer unless its name ends in `.dlt` or [`KafkaLog::share_topic`] says otherwise: messages of others between ours
/// are found by their offsets, and then nothing more is written ([`LogError::Foreign`]).
pub struct KafkaLog {
    config: KafkaConfig,
    deliveries: Arc<Deliveries>,
    /// Taken out when the log is closed.
    live: RwLock<Option<Arc<Live>>>,
}

/// What needs the clients.
struct Live {
    config: KafkaConfig,
    deliveries: Arc<Deliveries>,
    topics: RwLock<BTreeMap<String, Arc<Topic>>>,
    shared: Mutex<BTreeSet<String>>,
    /// The highest known committed offset by group, topic and partition.
    committed: Mutex<BTreeMap<(String, String, u32), u64>>,
    groups: Groups,
    readers: Readers,
    producer: Arc<BaseProducer<Producing>>,
}

struct Topic {
    spec: TopicSpec,
    /// Its name on the cluster.
    full: Arc<str>,
    sent: Arc<SentTopic>,
    /// Made at the first append: its number among the topics that are written, and where messages go in.
    outlet: OnceLock<(usize, Outlet)>,
}

impl Topic {
    fn check(&self, partition: u32) -> Result<(), LogError> {
        if partition < self.spec.partitions {
            return Ok(());
        }
        Err(LogError::NoPartition {
            topic: self.spec.name.clone(),
            partition,
            partitions: self.spec.partitions,
        })
    }

    fn place(&self, partition: u32) -> Result<Place<'_>, LogError> {
        self.check(partition)?;
        Ok(Place { topic: &self.full, partition })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KafkaLog {
    /// Makes the clients. Does not wait for a broker.
    ///
    /// # Errors
    /// [`LogError::Config`] for settings that cannot work; [`LogError::Io`] when no thread can be started.
    pub fn open(config: KafkaConfig) -> Result<KafkaLog, LogError> {
        config.check()?;
        let deliveries = Arc::new(Deliveries::new());
        let mut client = config.client();
        client
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // A message that cannot be written must not be followed by others.
            .set("enable.gapless.guarantee", "true")
            // For ever: an outage ends, and what waits is bounded.
            .set("message.timeout.ms", "0")
            .set("linger.ms", (config.linger.as_micros() as f64 / 1000.0).to_string())
            .set("batch.size", config.batch_bytes.to_string())
            .set("batch.num.messages", "100000")
            .set("message.max.bytes", (crate::event_log::MAX_MESSAGE + (64 << 10)).to_string())
            .set("queue.buffering.max.messages", config.queue_messages.to_string())
            .set("queue.buffering.max.kbytes", (config.queue_bytes / 1024).max(1).to_string())
            .set("statistics.interval.ms", "2000");
        config.finish(&mut client);
        let producer: BaseProducer<Producing> = client
            .create_with_context(Producing(deliveries.clone()))
            .map_err(|error| fault::from_client(&config.bootstrap, "making a client", &error))?;
        let readers = Readers::new(&config, &deliveries)?;
        let live = Arc::new(Live {
            config: config.clone(),
            deliveries: deliveries.clone(),
            topics: RwLock::default(),
            shared: Mutex::default(),
            committed: Mutex::default(),
            groups: Groups::new(&config, &deliveries, readers.handle()),
            readers,
            producer: Arc::new(producer),
        });
        let thread = |name: &str, run: fn(&Live)| {
            let live = live.clone();
            let builder = std::thread::Builder::new().name(name.into());
            builder.spawn(move || run(&live)).map_err(LogError::io("starting a thread", "kafka".as_ref()))
        };
        let log = KafkaLog { config: config.clone(), deliveries, live: RwLock::new(Some(live.clone())) };
        thread("kafka-reports", Live::serve_reports)?;
        thread("kafka-clients", Live::serve_clients)?;
        Ok(log)
    }

    /// The configuration that it was made with.
    pub fn config(&self) -> &KafkaConfig {
        &self.config
    }

    fn live(&self, doing: &'static str) -> Result<Arc<Live>, LogError> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.clone().ok_or(LogError::Closed { doing })
    }

    /// A client for questions.
    pub(super) fn question_handle(&self) -> Result<Arc<native::Handle>, LogError> {
        Ok(self.live("asking")?.readers.handle())
    }

    /// Opens a topic that is there, as it is.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::Unavailable`], [`LogError::Closed`].
    pub fn open_topic(&self, topic: &str) -> Result<TopicSpec, LogError> {
        Ok(self.live("opening a topic")?.topic(topic)?.spec.clone())
    }

    /// Says that others may write this topic too. Topics whose names end in `.dlt` are like that by themselves.
    ///
    /// # Errors
    /// [`LogError::Closed`].
    pub fn share_topic(&self, topic: &str) -> Result<(), LogError> {
        let live = self.live("opening a topic")?;
        lock(&live.shared).insert(topic.into());
        if let Some(known) = live.topics.read().unwrap_or_else(PoisonError::into_inner).get(topic) {
            known.sent.sole.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Deletes a topic with all its messages; true when it was there. Nothing here does so by itself.
    ///
    /// # Errors
    /// [`LogError::Unavailable`], [`LogError::Closed`].
    pub fn delete_topic(&self, topic: &str) -> Result<bool, LogError> {
        let live = self.live("deleting a topic")?;
        let stop = || live.deliveries.is_closed();
        let admin = Admin::new(&live.config, &stop)?;
        let there = admin.delete(&live.config.topic_name(topic))?;
        live.topics.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
        Ok(there)
    }

    /// The offset of the last message appended through this log that the brokers have acknowledged; `None` while there is none. All
    /// before it are acknowledged too.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`], [`LogError::Closed`].
    pub fn acknowledged(&self, topic: &str, partition: u32) -> Result<Option<u64>, LogError> {
        let topic = self.live("asking how far it is acknowledged")?.topic(topic)?;
        topic.check(partition)?;
        let end = topic.sent.partitions[partition as usize].end.load(Ordering::Acquire);
        Ok(u64::try_from(end - 1).ok())
    }

    /// Messages that were appended to a partition through this log, and how many of them the brokers have acknowledged. They are
    /// acknowledged in order.
    ///
    /// # Errors
    /// [`LogError::NoTopic`], [`LogError::NoPartition`], [`LogError::Closed`].
    pub fn progress(&self, topic: &str, partition: u32) -> Result<(u64, u64), LogError> {
        let topic = self.live("asking how far it is acknowledged")?.topic(topic)?;
        topic.check(partition)?;
        let sent = &topic.sent.partitions[partition as usize];
        let acknowledged = sent.acknowledged.load(Ordering::Acquire);
        Ok((sent.appended.load(Ordering::Acquire).max(acknowledged), acknowledged))
    }

    /// What went wrong for good, if something did: the log takes nothing more then, and its owner makes a new one.
    ///
    /// # Errors
    /// [`LogError::Poisoned`], [`LogError::Foreign`].
    pub fn check(&self) -> Result<(), LogError> {
        match self.deliveries.broken.get() {
            Some(broken) => Err(broken.error(&self.config.bootstrap)),
            None => Ok(()),
        }
    }

    /// Figures for operators.
    pub fn stats(&self) -> KafkaStats {
        let mut stats = *lock(&self.deliveries.stats);
        for topic in self.deliveries.topics() {
            for sent in &topic.partitions {
                stats.acknowledged += sent.acknowledged.load(Ordering::Relaxed);
                stats.appended += sent.appended.load(Ordering::Relaxed);
            }
        }
        stats.appended = stats.appended.max(stats.acknowledged);
        stats.queued = stats.appended - stats.acknowledged;
        stats
    }

    /// Ends all calls that wait, throws away what is not acknowledged, and lets the clients go. Returns when that is done or the time
    /// is over, whatever the brokers do; then it goes on in the background. True when it was done.
    pub fn close(&self, timeout: Duration) -> bool {
        let live = self.live.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(live) = live else { return true };
        self.deliveries.closed.store(true, Ordering::Release);
        self.deliveries.progress.wake();
        self.deliveries.closing.wake();
        let (tell, told) = std::sync::mpsc::channel();
        let end = move || {
            // Those that are still in a call come out of it within moments. Only then is thrown away what waits: a message that somebody
            // adds after that would be sent without those before it, and leave a hole.
            while Arc::strong_count(&live) > 1 {
                std::thread::sleep(Duration::from_millis(2));
            }
            live.producer.purge(PurgeConfig::default().queue().inflight());
            drop(live);
            // Nobody listens when the time was over.
            let _ = tell.send(());
        };
        if std::thread::Builder::new().name("kafka-close".into()).spawn(end).is_err() {
            return false;
        }
        told.recv_timeout(timeout).is_ok()
    }
}

impl Drop for KafkaLog {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

impl Live {
    /// The thread that takes delivery reports; one only, so that they stay in order.
    fn serve_reports(&self) {
        let reports = Reports::new(&self.producer);
        while !self.deliveries.is_closed() {
            let some =
                reports.serve(LOOK, |tag, error, offset| self.deliveries.delivered(tag, error, offset));
            if some {
                // Once for all that came together: who waits for room or an acknowledgement needs no wake for each message.
                self.deliveries.progress.wake();
            }
        }
    }

    fn serve_clients(&self) {
        let mut reach = Reach::new(&self.config);
        while !self.deliveries.is_closed() {
            native::keep(&self.producer, &mut reach);
            self.readers.serve();
            self.groups.serve();
            self.deliveries.closing.wait(Duration::from_millis(200), || self.deliveries.is_closed());
        }
    }

    fn known(&self, topic: &str) -> Option<Arc<Topic>> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }

    /// A topic that is known here or on the cluster.
    fn topic(&self, topic: &str) -> Result<Arc<Topic>, LogError> {
        if let Some(known) = self.known(topic) {
            return Ok(known);
        }
        let no_topic = || LogError::NoTopic { topic: topic.into() };
        // A name that cannot be one is not worth a question.
        TopicSpec::compact(topic, 1).check().map_err(|_| no_topic())?;
        let stop = || self.deliveries.is_closed();
        let admin = Admin::new(&self.config, &stop)?;
        let found = admin.find(&self.readers.handle(), &self.config.topic_name(topic))?;
        Ok(self.keep(found.ok_or_else(no_topic)?.spec(topic)))
    }

    fn keep(&self, spec: TopicSpec) -> Arc<Topic> {
        let sole = !spec.name.ends_with(".dlt")
            && !spec.name.ends_with(".retry")
            && !lock(&self.shared).contains(&spec.name);
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let full = self.config.topic_name(&spec.name).into();
        let sent = Arc::new(SentTopic::new(&spec.name, spec.partitions, sole));
        let new = || Arc::new(Topic { spec: spec.clone(), full, sent, outlet: OnceLock::new() });
        topics.entry(spec.name.clone()).or_insert_with(new).clone()
    }

    fn outlet<'a>(&self, topic: &'a Topic) -> Result<&'a (usize, Outlet), LogError> {
        if let Some(outlet) = topic.outlet.get() {
            return Ok(outlet);
        }
        // Under the lock of all topics, so that one is not added twice.
        let _guard = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(outlet) = topic.outlet.get() {
            return Ok(outlet);
        }
        let outlet = Outlet::new(&self.producer, &topic.full)
            .ok_or_else(|| LogError::Config(format!("Kafka refuses the topic name {}", topic.full)))?;
        let number = self.deliveries.add(&topic.sent).ok_or_else(|| {
            LogError::Config(format!("more than {} topics are written", super::context::MAX_TOPICS))
        })?;
        Ok(topic.outlet.get_or_init(|| (number, outlet)))
    }

    fn check(&self, doing: &'static str) -> Result<(), LogError> {
        if self.deliveries.is_closed() {
            return Err(LogError::Closed { doing });
        }
        match self.deliveries.broken.get() {
            Some(broken) => Err(broken.error(&self.config.bootstrap)),
            None => Ok(()),
        }
    }

    fn append(&self, topic: &Topic, messages: &[Message<'_>]) -> Result<(), LogError> {
        const DOING: &str = "appending";
        self.check(DOING)?;
        check_messages(messages)?;
        let (number, outlet) = self.outlet(topic)?;
        for message in messages {
            if self.deliveries.is_closed() {
                return Err(LogError::Closed { doing: DOING });
            }
            let partition = partition_for(message.key, topic.spec.partitions);
            let sent = &topic.sent.partitions[partition as usize];
            // Counted first, so that it is never acknowledged before it is counted.
            sent.appended.fetch_add(1, Ordering::AcqRel);
            while let Err(code) = outlet.send(partition, message, tag(*number, partition)) {
                let room = match code {
                    RDKafkaErrorCode::QueueFull => self.wait_for_room(DOING),
                    code => Err(LogError::Poisoned {
                        path: format!("kafka://{}", self.config.bootstrap).into(),
                        reason: format!("a message to {}/{partition} was not taken: {code}", topic.spec.name),
                    }),
                };
                if let Err(error) = room {
                    sent.appended.fetch_sub(1, Ordering::AcqRel);
                    // A broken client says so itself.
                    self.check(DOING)?;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, doing: &'static str) -> Result<(), LogError> {
        let before = self.deliveries.acknowledged.load(Ordering::Acquire);
        self.deliveries.progress.wait(LOOK, || {
            self.deliveries.acknowledged.load(Ordering::Acquire) != before
                || self.deliveries.is_closed()
                || self.deliveries.broken.get().is_some()
        });
        self.check(doing)
    }

    fn sync(&self) -> Result<(), LogError> {
        const DOING: &str = "waiting for acknowledgements";
        let mut waiting = Vec::new();
        for topic in self.deliveries.topics() {
            for (number, sent) in topic.partitions.iter().enumerate() {
                let appended = sent.appended.load(Ordering::Acquire);
                if sent.acknowledged.load(Ordering::Acquire) < appended {
                    waiting.push((topic, number, appended));
                }
            }
        }
        let done = |waiting: &mut Vec<(&Arc<SentTopic>, usize, u64)>| {
            waiting.retain(|(topic, number, appended)| {
                topic.partitions[*number].acknowledged.load(Ordering::Acquire) < *appended
            });
            waiting.is_empty()
        };
        if !done(&mut waiting) {
            // What is held back to share a batch goes now.
            native::flush(&self.producer, Duration::from_millis(1));
        }
        loop {
            let all = self.deliveries.progress.wait(LOOK, || {
                done(&mut waiting) || self.deliveries.is_closed() || self.deliveries.broken.get().is_some()
            });
            if waiting.is_empty() {
                // What somebody else wrote in between is told at once.
                return self.check(DOING);
            }
            if all {
                self.check(DOING)?;
            }
        }
    }

    fn committed(&self, group: &str, topic: &Topic, partition: u32) -> Result<Option<u64>, LogError> {
        let places = [(&*topic.full, partition)];
        Ok(self.groups.committed(&self.config.group_name(group), &places)?.into_iter().next().flatten())
    }

    fn commit(&self, group: &str, topic: &Topic, partition: u32, offset: u64) -> Result<(), LogError> {
        let key = (group.to_owned(), topic.spec.name.clone(), partition);
        // Held over the question, so that two callers cannot overtake each other and lower the offset.
        let mut known = lock(&self.committed);
        if known.get(&key).is_some_and(|known| *known >= offset) {
            return Ok(());
        }
        let stored = self.committed(group, topic, partition)?;
        if let Some(stored) = stored.filter(|stored| *stored >= offset) {
            known.insert(key, stored);
            return Ok(());
        }
        self.groups.commit(&self.config.group_name(group), &topic.full, partition, offset)?;
        known.insert(key, offset);
        Ok(())
    }

    fn forget(&self, group: &str, topic: &Topic) -> Result<bool, LogError> {
        let mut known = lock(&self.committed);
        known.retain(|key, _| !(key.0 == group && key.1 == topic.spec.name));
        let group = self.config.group_name(group);
        let mut places: Vec<(&str, u32)> =
            (0..topic.spec.partitions).map(|partition| (&*topic.full, partition)).collect();
        let mut committed = self.groups.committed(&group, &places)?.into_iter();
        places.retain(|_| committed.next().flatten().is_some());
        if places.is_empty() {
            return Ok(false);
        }
        self.groups.forget(&group, &places)?;
        Ok(true)
    }

    fn group_offsets(&self) -> Result<Vec<GroupOffset>, LogError> {
        let topics: Vec<Arc<Topic>> =
            self.topics.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let of_topic = |topic: &Arc<Topic>| {
            let topic = topic.clone();
            (0..topic.spec.partitions).map(move |partition| (topic.clone(), partition))
        };
        let all: Vec<(Arc<Topic>, u32)> = topics.iter().flat_map(of_topic).collect();
        let places: Vec<(&str, u32)> =
            all.iter().map(|(topic, partition)| (&*topic.full, *partition)).collect();
        let mut found = Vec::new();
        if places.is_empty() {
            return Ok(found);
        }
        for full in self.groups.names()? {
            let Some(group) = full.strip_prefix(self.config.topic_prefix.as_str()) else { continue };
            for ((topic, partition), offset) in all.iter().zip(self.groups.committed(&full, &places)?) {
                let Some(offset) = offset else { continue };
                let ends = self.readers.ends(topic.place(*partition)?, "asking for the end of a partition");
                let end = ends.map_or(offset, |ends| ends.1);
                let (topic, partition) = (topic.spec.name.clone(), *partition);
                found.push(GroupOffset { group: group.into(), topic, partition, offset, end });
            }
        }
        found.sort();
        Ok(found)
    }
}

impl EventLog for KafkaLog {
    fn create_topic(&self, spec: &TopicSpec) -> Result<(), LogError> {
        spec.check()?;
        let live = self.live("making a topic")?;
        let (wanted, full) = (Found::wanted(&live.config, spec), live.config.topic_name(&spec.name));
        let stop = || live.deliveries.is_closed();
        let admin = Admin::new(&live.config, &stop)?;
        let handle = live.readers.handle();
        let found = match admin.find(&handle, &full)? {
            Some(found) => found,
            None => {
                admin.create(&full, &wanted)?;
                // Made just now, but not every broker may know it yet.
                let deadline = Instant::now() + live.config.request_timeout;
                loop {
                    match admin.find(&handle, &full) {
                        Ok(Some(found)) => break found,
                        Ok(None) if Instant::now() < deadline => {
                            std::thread::sleep(Duration::from_millis(10))
                        }
                        Ok(None) => {
                            let (servers, doing) = (&live.config.bootstrap, "making a topic");
                            return Err(fault::unavailable(
                                servers,
                                doing,
                                "the topic was made but is not seen",
                            ));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        };
        match found.differs(&wanted) {
            Some((existing, wanted)) => {
                Err(LogError::SpecDiffers { topic: spec.name.clone(), existing, wanted })
            }
            None => {
                live.keep(spec.clone());
                Ok(())
            }
        }
    }

    fn append(&self, topic: &str, messages: &[Message<'_>]) -> Result<(), LogError> {
        let live = self.live("appending")?;
        let topic = live.topic(topic)?;
        live.append(&topic, messages)
    }

    fn partition_of(&self, topic: &str, key: &[u8]) -> Result<u32, LogError> {
        let topic = self.live("looking for a partition")?.topic(topic)?;
        Ok(partition_for(key, topic.spec.partitions))
    }

    /// As the law says; and what is acknowledged first after it must follow what it saw, where the topic has one writer.
    fn tail(&self, topic: &str, partition: u32) -> Result<Option<StoredMessage>, LogError> {
        let live = self.live("looking for the last message")?;
        let topic = live.topic(topic)?;
        let (last, end) = live.readers.tail(topic.place(partition)?)?;
        let sent = &topic.sent.partitions[partition as usize];
        if sent.appended.load(Ordering::Acquire) == 0 {
            sent.next.store(i64::try_from(end).unwrap_or(-1), Ordering::Relaxed);
        }
        Ok(last)
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        max_messages: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        let live = self.live("reading a partition")?;
        let topic = live.topic(topic)?;
        live.readers.read(topic.place(partition)?, offset, max_messages, out)
    }

    fn start_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        let live = self.live("asking for the start of a partition")?;
        let topic = live.topic(topic)?;
        Ok(live.readers.ends(topic.place(partition)?, "asking for the start of a partition")?.0)
    }

    fn end_offset(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        let live = self.live("asking for the end of a partition")?;
        let topic = live.topic(topic)?;
        Ok(live.readers.ends(topic.place(partition)?, "asking for the end of a partition")?.1)
    }

    fn wait_for(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        timeout: Duration,
    ) -> Result<bool, LogError> {
        let live = self.live("waiting for messages")?;
        let topic = live.topic(topic)?;
        live.readers.wait_for(topic.place(partition)?, offset, timeout)
    }

    fn follow(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        max_messages: usize,
        timeout: Duration,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        let live = self.live("following a partition")?;
        let topic = live.topic(topic)?;
        live.readers.follow(topic.place(partition)?, offset, max_messages, timeout, out)
    }

    fn commit(&self, group: &str, topic: &str, partition: u32, offset: u64) -> Result<(), LogError> {
        check_group(group)?;
        let live = self.live("committing an offset")?;
        let topic = live.topic(topic)?;
        topic.check(partition)?;
        live.commit(group, &topic, partition, offset)
    }

    fn committed(&self, group: &str, topic: &str, partition: u32) -> Result<Option<u64>, LogError> {
        let live = self.live("asking for a group's offsets")?;
        let topic = live.topic(topic)?;
        topic.check(partition)?;
        live.committed(group, &topic, partition)
    }

    fn sync(&self) -> Result<(), LogError> {
        self.live("waiting for acknowledgements")?.sync()
    }

    fn topics(&self) -> Vec<TopicSpec> {
        let Ok(live) = self.live("listing topics") else { return Vec::new() };
        let topics = live.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.values().map(|topic| topic.spec.clone()).collect()
    }

    /// Asks the cluster for all groups with commits on topics that this log knows; none when it cannot be asked.
    fn groups(&self) -> Vec<GroupOffset> {
        let groups = self.live("asking for the groups").and_then(|live| live.group_offsets());
        groups.unwrap_or_else(|error| {
            tracing::warn!(target: "kafka", %error, "the groups are not known");
            Vec::new()
        })
    }

    fn forget_group(&self, group: &str, topic: &str) -> Result<bool, LogError> {
        let live = self.live("forgetting a group")?;
        let topic = live.topic(topic)?;
        live.forget(group, &topic)
    }

    /// Does nothing: the brokers clean up by themselves, when they see fit, and do not wait for groups.
    fn maintain(&self) -> Result<Maintenance, LogError> {
        self.live("maintaining")?;
        Ok(Maintenance::default())
    }
}
