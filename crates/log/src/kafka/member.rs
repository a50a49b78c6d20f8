//! A member of a consumer group on Kafka: the group's coordinator says which partitions are its own.
//!
//! Changes of the assignment are not handled inside the client's callback but right after the poll that brought them: the group's coordinator
//! waits for the answer (`incremental_assign`, `incremental_unassign`) either way, and no lock or borrowed closure has to reach into the
//! callback. Offsets of what is revoked are committed before that answer, while the member's generation is still valid.

use std::collections::VecDeque;
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use hoga_core::ids::Timestamp;
use rdkafka::bindings as sys;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};
use rdkafka::util::get_rdkafka_version;

use super::config::KafkaConfig;
use super::context::log_line;
use super::fault;
use super::native::millis;
use super::reach::Reach;
use crate::consumer::{Change, Control, Run, Source, TopicPartition};
use crate::error::LogError;
use crate::event_log::StoredMessage;

/// How members of a group agree on who reads what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Sessions of the member's choosing, partitions moved one by one (`cooperative-sticky`).
    Classic,
    /// KIP-848: the broker assigns. Refused where the client library is too old for it to be trusted.
    Consumer,
}

/// The first librdkafka whose `consumer` protocol can be trusted, as it numbers its versions. Before, members fall silent for minutes and
/// commits are refused with stale epochs (confluentinc/confluent-kafka-javascript and Blizzard/node-rdkafka#1146).
const CONSUMER_PROTOCOL_SINCE: i32 = 0x020f_0000;

/// How a member takes part in its group.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The group.
    pub group: String,
    /// What it reads. All its members read the same.
    pub topics: Vec<String>,
    /// How its members agree ([`Protocol::Classic`]).
    pub protocol: Protocol,
    /// After this silence the member is given up and its partitions go to others (the configuration's, 10 s).
    pub session: Duration,
    /// How often it says that it is alive (the configuration's, 3 s).
    pub heartbeat: Duration,
    /// A name that stays over restarts: a member that is back within its session gets its partitions again and nobody else notices. No
    /// two processes may have the same.
    pub instance_id: Option<String>,
    /// The longest time between two polls (5 min); a member that takes longer is given up.
    pub max_poll_interval: Duration,
}

impl Membership {
    /// A member of a group that reads these topics, with the configuration's times.
    pub fn new(config: &KafkaConfig, group: &str, topics: &[&str]) -> Membership {
        Membership {
            group: group.into(),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            protocol: Protocol::Classic,
            session: config.session_timeout,
            heartbeat: config.heartbeat,
            instance_id: None,
            max_poll_interval: Duration::from_secs(300),
        }
    }

    fn check(&self, config: &KafkaConfig, version: (i32, &str)) -> Result<(), LogError> {
        config.check()?;
        crate::event_log::check_group(&self.group)?;
        if self.topics.is_empty() {
            return Err(LogError::Config(format!("group {} reads no topic", self.group)));
        }
        if self.protocol == Protocol::Consumer && version.0 < CONSUMER_PROTOCOL_SINCE {
            return Err(LogError::Config(format!(
                "group {}: the protocol `consumer` (KIP-848) needs librdkafka 2.15, this is {}: before, its members fall silent for \
                 minutes and their commits are refused. Use the protocol `classic`",
                self.group, version.1
            )));
        }
        if self.heartbeat.is_zero()
            || self.heartbeat * 2 > self.session
            || self.session > self.max_poll_interval
        {
            return Err(LogError::Config(format!(
                "group {}: a heartbeat of {:?}, a session of {:?} and {:?} between polls do not fit: the heartbeat at most half of the \
                 session, and the session not longer than the time between polls",
                self.group, self.heartbeat, self.session, self.max_poll_interval
            )));
        }
        Ok(())
    }
}

/// A change of the assignment that the client has reported.
struct Pending {
    assign: bool,
    lost: bool,
    places: Vec<(String, i32)>,
}

struct Context {
    pending: Mutex<VecDeque<Pending>>,
    /// The member leaves: nobody polls any more, so changes are answered at once.
    closing: AtomicBool,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        log_line(level as i32, fac, log_message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", %error, "{reason}");
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let assign = code == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Acquire) {
            let answered =
                if assign { consumer.incremental_assign(list) } else { consumer.incremental_unassign(list) };
            if let Err(error) = answered {
                tracing::debug!(target: "kafka", %error, "while leaving a group");
            }
            return;
        }
        let places =
            list.elements().iter().map(|place| (place.topic().to_owned(), place.partition())).collect();
        let lost = !assign && consumer.assignment_lost();
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.push_back(Pending { assign, lost, places });
    }
}

struct Lane {
    place: TopicPartition,
    topic: String,
    /// Where to begin, or the next offset: what comes below it is not given out.
    next: u64,
    committed: Option<Option<u64>>,
    ends: Option<(u64, u64)>,
    paused: bool,
    /// Whether the client fetches it already.
    fetching: bool,
}

/// A member of a group on Kafka.
pub struct KafkaSource {
    consumer: Option<Arc<BaseConsumer<Context>>>,
    config: KafkaConfig,
    group: String,
    topics: Vec<(String, Arc<str>)>,
    lanes: Vec<Lane>,
    /// Why the brokers are thought to be away, and when that was looked at.
    away: Option<(String, Instant)>,
    reach: Reach,
}

/// How long a question to the cluster may take that a group's thread waits for.
const ANSWER: Duration = Duration::from_secs(4);
/// How often it is looked whether brokers that were away are back, and how long one look may take.
const LOOK: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(400));

impl KafkaSource {
    /// Joins a group. That the brokers cannot be reached is none of its errors: polls tell.
    ///
    /// # Errors
    /// [`LogError::Config`].
    pub fn new(config: &KafkaConfig, membership: &Membership) -> Result<KafkaSource, LogError> {
        let (number, name) = get_rdkafka_version();
        membership.check(config, (number, &name))?;
        let topics: Vec<(String, Arc<str>)> = membership
            .topics
            .iter()
            .map(|topic| (config.topic_name(topic), Arc::from(topic.as_str())))
            .collect();
        Ok(KafkaSource {
            consumer: Some(Arc::new(join(config, membership, &topics)?)),
            config: config.clone(),
            group: membership.group.clone(),
            topics,
            lanes: Vec::new(),
            away: None,
            reach: Reach::new(config),
        })
    }

    fn consumer(&self) -> Arc<BaseConsumer<Context>> {
        self.consumer.clone().expect("it is taken by leaving, and nothing is asked of a member that has left")
    }

    fn lane(&mut self, place: &TopicPartition) -> Result<&mut Lane, LogError> {
        let group = &self.group;
        let lane = self.lanes.iter_mut().find(|lane| lane.place == *place);
        lane.ok_or_else(|| LogError::Config(format!("group {group}: {place} is not owned by this member")))
    }

    fn fault(&self, doing: &'static str, error: &KafkaError) -> LogError {
        fault::from_client(&self.config.bootstrap, doing, error)
    }

    fn local(&self, topic: &str) -> Option<&Arc<str>> {
        self.topics.iter().find(|(name, _)| name == topic).map(|(_, topic)| topic)
    }

    fn take(&mut self, message: &BorrowedMessage<'_>, out: &mut Vec<Run>, before: usize) -> bool {
        let (topic, partition, offset) =
            (message.topic(), message.partition() as u32, message.offset() as u64);
        let found =
            self.lanes.iter_mut().find(|lane| lane.place.partition == partition && lane.topic == topic);
        let Some(lane) = found.filter(|lane| offset >= lane.next) else { return false };
        lane.next = offset + 1;
        let stored = StoredMessage {
            offset,
            key: message.key().unwrap_or_default().to_vec(),
            value: message.payload().map(<[u8]>::to_vec),
            time: time(message),
        };
        match out[before..].iter_mut().find(|run| run.place == lane.place) {
            Some(run) => {
                run.messages.push(stored);
                run.next = offset + 1;
            }
            None => out.push(Run { place: lane.place.clone(), messages: vec![stored], next: offset + 1 }),
        }
        true
    }

    /// Tells the runtime about changes of the assignment, and the client that they were dealt with.
    fn changes(
        &mut self,
        out: &mut Vec<Run>,
        before: usize,
        change: &mut dyn FnMut(&mut dyn Control, Change),
    ) -> Result<bool, LogError> {
        let consumer = self.consumer();
        let mut any = false;
        loop {
            let next = consumer.context().pending.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(pending) = next else { return Ok(any) };
            any = true;
            self.away = None;
            let places: Vec<TopicPartition> = pending
                .places
                .iter()
                .filter_map(|(topic, partition)| {
                    Some(TopicPartition { topic: self.local(topic)?.clone(), partition: *partition as u32 })
                })
                .collect();
            let result = if pending.assign {
                self.assign(&consumer, places, change)
            } else {
                if pending.lost {
                    self.lanes.retain(|lane| !places.contains(&lane.place));
                    change(self, Change::Lost(places.clone()));
                } else if !places.is_empty() {
                    change(self, Change::Revoked(places.clone()));
                    self.lanes.retain(|lane| !places.contains(&lane.place));
                }
                let kept: Vec<Run> = out.drain(before..).filter(|run| !places.contains(&run.place)).collect();
                out.extend(kept);
                let mut list = TopicPartitionList::with_capacity(pending.places.len());
                for (topic, partition) in &pending.places {
                    list.add_partition(topic, *partition);
                }
                consumer.incremental_unassign(&list)
            };
            result.map_err(|error| self.fault("answering a change of partitions", &error))?;
        }
    }

    fn assign(
        &mut self,
        consumer: &BaseConsumer<Context>,
        places: Vec<TopicPartition>,
        change: &mut dyn FnMut(&mut dyn Control, Change),
    ) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::with_capacity(places.len());
        for place in &places {
            let topic = self.config.topic_name(&place.topic);
            list.add_partition(&topic, place.partition as i32);
            self.lanes.push(Lane {
                place: place.clone(),
                topic,
                next: 0,
                committed: None,
                ends: None,
                paused: false,
                fetching: false,
            });
        }
        // One question for all of them. Where it gets no answer, each is asked for again.
        if let Ok(committed) = consumer.committed_offsets(list, ANSWER) {
            for element in committed.elements() {
                let lane = self.lanes.iter_mut().find(|lane| {
                    lane.topic == element.topic() && lane.place.partition as i32 == element.partition()
                });
                if let (Some(lane), Ok(())) = (lane, element.error()) {
                    lane.committed = Some(offset_of(element.offset()));
                }
            }
        }
        if !places.is_empty() {
            change(self, Change::Assigned(places));
        }
        let mut list = TopicPartitionList::new();
        let mut paused = TopicPartitionList::new();
        for lane in self.lanes.iter_mut().filter(|lane| !lane.fetching) {
            let (topic, partition) = (&lane.topic, lane.place.partition as i32);
            list.add_partition_offset(topic, partition, Offset::Offset(lane.next as i64))?;
            if lane.paused {
                paused.add_partition(topic, partition);
            }
            lane.fetching = true;
        }
        consumer.incremental_assign(&list)?;
        if paused.count() > 0 {
            consumer.pause(&paused)?;
        }
        Ok(())
    }

    /// What the client reports as an error between messages.
    fn reported(&mut self, error: &KafkaError) -> Result<(), LogError> {
        let code = error.rdkafka_error_code();
        if matches!(error, KafkaError::MessageConsumptionFatal(_))
            || code == Some(RDKafkaErrorCode::FencedInstanceId)
        {
            return Err(LogError::Config(format!(
                "group {}: this member was shut out: {error}. Another process has the same instance id: give each its own",
                self.group
            )));
        }
        match code {
            Some(RDKafkaErrorCode::AllBrokersDown) => {
                self.away.get_or_insert((error.to_string(), Instant::now()));
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::GroupAuthorizationFailed) => {
                return Err(self.fault("reading", error));
            }
            // One of several brokers, a topic that is being made, a session that was lost: what follows of it is told by changes and polls.
            _ => tracing::debug!(target: "kafka", group = self.group, %error, "reported while reading"),
        }
        Ok(())
    }

    /// Whether brokers that were away still are.
    fn look(&mut self) -> Result<(), LogError> {
        let Some((reason, at)) = self.away.clone() else { return Ok(()) };
        if at.elapsed() >= LOOK.0 {
            let topic = self.topics.first().map(|(name, _)| name.as_str());
            if self.consumer().fetch_metadata(topic, LOOK.1).is_ok() {
                self.away = None;
                return Ok(());
            }
            self.away = Some((reason.clone(), Instant::now()));
        }
        Err(fault::unavailable(&self.config.bootstrap, "reading", reason))
    }
}

/// A client that is a member of the group.
fn join(
    config: &KafkaConfig,
    membership: &Membership,
    topics: &[(String, Arc<str>)],
) -> Result<BaseConsumer<Context>, LogError> {
    let mut client = config.client();
    client
        .set("group.id", config.group_name(&membership.group))
        .set("max.poll.interval.ms", millis(membership.max_poll_interval).to_string())
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // From the first message there is; what lies below the wanted offset is not given out, see `take`.
        .set("auto.offset.reset", "earliest")
        // What the client keeps ahead, over all partitions; the default is 64 MiB and 100 000 messages of each.
        .set("queued.max.messages.kbytes", (config.fetch_bytes / 1024).max(1024).to_string())
        .set("queued.min.messages", "10000")
        .set("fetch.message.max.bytes", config.fetch_bytes.to_string())
        // When that is full, fetching goes on this soon after there is room again: the default is a second.
        .set("fetch.queue.backoff.ms", "5")
        .set("fetch.wait.max.ms", "100");
    match membership.protocol {
        Protocol::Classic => client
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", millis(membership.session).to_string())
            .set("heartbeat.interval.ms", millis(membership.heartbeat).to_string()),
        Protocol::Consumer => client.set("group.protocol", "consumer"),
    };
    if let Some(id) = &membership.instance_id {
        client.set("group.instance.id", id);
    }
    config.finish(&mut client);
    let context = Context { pending: Mutex::default(), closing: AtomicBool::new(false) };
    let made = |error: &KafkaError| fault::from_client(&config.bootstrap, "joining a group", error);
    let consumer: BaseConsumer<Context> =
        client.create_with_context(context).map_err(|error| made(&error))?;
    let names: Vec<&str> = topics.iter().map(|(name, _)| name.as_str()).collect();
    consumer.subscribe(&names).map_err(|error| made(&error))?;
    Ok(consumer)
}

fn offset_of(offset: Offset) -> Option<u64> {
    match offset {
        Offset::Offset(offset) => u64::try_from(offset).ok(),
        _ => None,
    }
}

/// The time in microseconds from the header `t`; of a message that another program wrote, its time in milliseconds.
fn time(message: &BorrowedMessage<'_>) -> Timestamp {
    let headers = message.headers();
    let header = headers.and_then(|headers| headers.iter().find(|header| header.key == "t")?.value);
    match header.and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => Timestamp(i64::from_le_bytes(bytes)),
        None => Timestamp(message.timestamp().to_millis().unwrap_or(0).saturating_mul(1000)),
    }
}

/// Commits with a queue of its own, so that waiting for the answer ends in time whatever the brokers do; the client's own synchronous commit
/// does not.
fn commit(
    consumer: &BaseConsumer<Context>,
    list: &TopicPartitionList,
    time: Duration,
) -> Result<(), RDKafkaErrorCode> {
    let native = consumer.client().native_ptr();
    let no_error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
    // SAFETY: client and list live over the call; the queue is made here, read by this thread alone and destroyed below. An answer that comes
    // later finds it disabled and is thrown away by the library.
    let code = unsafe {
        let queue = sys::rd_kafka_queue_new(native);
        let mut code = sys::rd_kafka_commit_queue(native, list.ptr(), queue, None, ptr::null_mut());
        if code == no_error {
            let event = sys::rd_kafka_queue_poll(queue, millis(time));
            if event.is_null() {
                code = RDKafkaRespErr::RD_KAFKA_RESP_ERR__TIMED_OUT;
            } else {
                code = sys::rd_kafka_event_error(event);
                let answers = sys::rd_kafka_event_topic_partition_list(event);
                if code == no_error && !answers.is_null() {
                    let count = usize::try_from((*answers).cnt).unwrap_or(0);
                    let refused =
                        (0..count).map(|at| (*(*answers).elems.add(at)).err).find(|code| *code != no_error);
                    code = refused.unwrap_or(no_error);
                }
                sys::rd_kafka_event_destroy(event);
            }
        }
        sys::rd_kafka_queue_destroy(queue);
        code
    };
    if code == no_error { Ok(()) } else { Err(RDKafkaErrorCode::from(code)) }
}

impl Source for KafkaSource {
    fn group(&self) -> &str {
        &self.group
    }

    fn poll(
        &mut self,
        timeout: Duration,
        max_messages: usize,
        out: &mut Vec<Run>,
        change: &mut dyn FnMut(&mut dyn Control, Change),
    ) -> Result<(), LogError> {
        let consumer = self.consumer();
        let (before, deadline) = (out.len(), Instant::now() + timeout);
        let mut count = 0;
        while count < max_messages {
            let wait =
                if count > 0 { Duration::ZERO } else { deadline.saturating_duration_since(Instant::now()) };
            let polled = consumer.poll(wait);
            let over = polled.is_none() && (count > 0 || Instant::now() >= deadline);
            match polled {
                Some(Ok(message)) => {
                    self.away = None;
                    count += usize::from(self.take(&message, out, before));
                }
                Some(Err(error)) => self.reported(&error)?,
                None => {}
            }
            if self.changes(out, before, change)? || over {
                break;
            }
        }
        if count > 0 {
            self.reach.heard();
        }
        self.reach.keep(consumer.client().native_ptr());
        self.look()
    }

    fn control(&mut self) -> &mut dyn Control {
        self
    }

    fn leave(&mut self, timeout: Duration) -> Result<(), LogError> {
        let Some(consumer) = self.consumer.take() else { return Ok(()) };
        self.lanes.clear();
        let (tell, told) = mpsc::channel();
        close(consumer, move || {
            // Nobody listens any more when the time is over.
            let _ = tell.send(());
        });
        told.recv_timeout(timeout).map_err(|_| {
            fault::unavailable(
                &self.config.bootstrap,
                "leaving a group",
                format!("no answer within {timeout:?}"),
            )
        })
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            close(consumer, || {});
        }
    }
}

/// Destroying a client whose brokers are away takes as long as its session: that happens on a thread that nobody waits for.
fn close(consumer: Arc<BaseConsumer<Context>>, then: impl FnOnce() + Send + 'static) {
    consumer.context().closing.store(true, Ordering::Release);
    let spawned = std::thread::Builder::new().name("group-leave".into()).spawn(move || {
        drop(consumer);
        then();
    });
    if let Err(error) = spawned {
        tracing::warn!(target: "kafka", %error, "no thread to leave a group on; it was left on this one");
    }
}

impl Control for KafkaSource {
    fn start_at(&mut self, place: &TopicPartition, offset: u64) -> Result<(), LogError> {
        let lane = self.lane(place)?;
        lane.next = offset;
        if !lane.fetching {
            return Ok(());
        }
        let (topic, partition) = (lane.topic.clone(), place.partition as i32);
        let sought = self.consumer().seek(&topic, partition, Offset::Offset(offset as i64), ANSWER);
        // A partition whose fetching is just being set up refuses; it does not in a moment.
        sought.map_err(|error| {
            fault::unavailable(&self.config.bootstrap, "going to an offset", error.to_string())
        })
    }

    fn pause(&mut self, place: &TopicPartition) -> Result<(), LogError> {
        self.switch(place, true)
    }

    fn resume(&mut self, place: &TopicPartition) -> Result<(), LogError> {
        self.switch(place, false)
    }

    fn commit(&mut self, offsets: &[(TopicPartition, u64)]) -> Result<(), LogError> {
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for (place, offset) in offsets {
            let lane = self.lane(place)?;
            if lane.committed.flatten().is_some_and(|committed| *offset < committed) {
                let text = format!("group {}: {place} is committed beyond {offset} already", self.group);
                return Err(LogError::Config(text));
            }
            let topic = lane.topic.clone();
            list.add_partition_offset(&topic, place.partition as i32, Offset::Offset(*offset as i64))
                .map_err(|error| self.fault("committing", &error))?;
        }
        commit(&self.consumer(), &list, ANSWER).map_err(|code| match code {
            RDKafkaErrorCode::FencedInstanceId => LogError::Config(format!(
                "group {}: another process has the same instance id: give each its own",
                self.group
            )),
            code => fault::from_code(&self.config.bootstrap, "committing", code),
        })?;
        for (place, offset) in offsets {
            self.lane(place)?.committed = Some(Some(*offset));
        }
        Ok(())
    }

    fn committed(&mut self, place: &TopicPartition) -> Result<Option<u64>, LogError> {
        let lane = self.lane(place)?;
        if let Some(committed) = lane.committed {
            return Ok(committed);
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&lane.topic, place.partition as i32);
        let doing = "asking for committed offsets";
        let answer =
            self.consumer().committed_offsets(list, ANSWER).map_err(|error| self.fault(doing, &error))?;
        let committed = match answer.elements().first().map(|element| (element.error(), element.offset())) {
            Some((Ok(()), offset)) => offset_of(offset),
            Some((Err(error), _)) => return Err(self.fault(doing, &error)),
            None => None,
        };
        self.lane(place)?.committed = Some(committed);
        Ok(committed)
    }

    fn ends(&mut self, place: &TopicPartition) -> Result<(u64, u64), LogError> {
        let lane = self.lane(place)?;
        let (topic, partition, known, next) =
            (lane.topic.clone(), place.partition as i32, lane.ends, lane.next);
        let consumer = self.consumer();
        let ends = match known {
            None => {
                let ends = consumer.fetch_watermarks(&topic, partition, ANSWER);
                ends.map_err(|error| self.fault("asking for the ends of a partition", &error))?
            }
            Some(known) => {
                cached_ends(&consumer, &topic, partition).unwrap_or((known.0 as i64, known.1 as i64))
            }
        };
        let ends = (u64::try_from(ends.0).unwrap_or(0), u64::try_from(ends.1).unwrap_or(0).max(next));
        // Before the start is known, `next` says nothing.
        let ends = if known.is_none() { (ends.0, ends.1) } else { ends };
        self.lane(place)?.ends = Some(ends);
        Ok(ends)
    }
}

/// What fetching has shown of a partition's ends: no question to the brokers.
fn cached_ends(consumer: &BaseConsumer<Context>, topic: &str, partition: i32) -> Option<(i64, i64)> {
    let topic = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    // SAFETY: client and name live over the call, which writes the two numbers.
    let code = unsafe {
        let native = consumer.client().native_ptr();
        sys::rd_kafka_get_watermark_offsets(native, topic.as_ptr(), partition, &raw mut low, &raw mut high)
    };
    (code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0).then_some((low.max(0), high))
}

impl KafkaSource {
    fn switch(&mut self, place: &TopicPartition, pause: bool) -> Result<(), LogError> {
        let lane = self.lane(place)?;
        lane.paused = pause;
        if !lane.fetching {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&lane.topic, place.partition as i32);
        let consumer = self.consumer();
        let switched = if pause { consumer.pause(&list) } else { consumer.resume(&list) };
        switched.map_err(|error| self.fault("pausing a partition", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_that_cannot_work_is_refused_by_name() {
        let config = KafkaConfig::new("127.0.0.1:1");
        let membership = Membership::new(&config, "g", &["t"]);
        let old = (0x020c_01ff, "2.12.1");
        membership.check(&config, old).unwrap();
        let consumer = Membership { protocol: Protocol::Consumer, ..membership.clone() };
        let text = consumer.check(&config, old).unwrap_err().to_string();
        assert!(text.contains("KIP-848") && text.contains("2.12.1") && text.contains("classic"), "{text}");
        consumer.check(&config, (0x020f_00ff, "2.15.0")).unwrap();
        let second = Duration::from_secs(1);
        for spoil in [
            Membership { topics: Vec::new(), ..membership.clone() },
            Membership { group: "a b".into(), ..membership.clone() },
            Membership { heartbeat: second * 6, ..membership.clone() },
            Membership { max_poll_interval: second, ..membership.clone() },
        ] {
            assert!(matches!(spoil.check(&config, old), Err(LogError::Config(_))), "{spoil:?}");
        }
    }

    #[test]
    fn a_member_whose_brokers_are_away_says_so_and_leaves_in_time() {
        // A port that nobody listens on.
        let config = KafkaConfig::new("127.0.0.1:1");
        let mut source = KafkaSource::new(&config, &Membership::new(&config, "g", &["t"])).unwrap();
        let begun = Instant::now();
        loop {
            match source.poll(Duration::from_millis(20), 10, &mut Vec::new(), &mut |_, _| {}) {
                Err(fault) if fault.is_transient() => break,
                polled => assert!(polled.is_ok() && begun.elapsed() < Duration::from_secs(20), "{polled:?}"),
            }
        }
        let begun = Instant::now();
        let _ = source.leave(Duration::from_millis(300));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}
