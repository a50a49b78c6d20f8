//! Redis Pub/Sub as a bus: a channel for each lane. Nothing is decoded to route, and what Pub/Sub loses is read from the bus behind it.
//!
//! A message of a channel is the offset of its first tick (8 bytes, little-endian) and then the ticks, each with its length in front (2 bytes). All that
//! waits goes out in one message of a lane, up to [`MOST`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoga_core::ids::Timestamp;
use hoga_log::LogError;
use hoga_log::event_log::{EventLog, StoredMessage};

use super::Bus;

/// Bytes of one message of a channel.
const MOST: usize = 32 << 10;
/// Most ticks of a lane that one round of the publisher takes.
const ROUND: usize = 1024;
/// Bytes of one lane's last messages that are kept for its readers. Who is further behind than that reads from the bus behind.
const KEPT: usize = 8 << 20;
/// After so much silence of a lane it is looked whether something was lost at its end.
const QUIET: Duration = Duration::from_millis(200);
/// How long a connection may take, and an answer.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(100);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn client(url: &str) -> Result<redis::Client, LogError> {
    redis::Client::open(url).map_err(|error| {
        LogError::Config(format!("{url:?} is no address of a Redis server: {error}. Use redis://host:port"))
    })
}

fn connect(client: &redis::Client) -> redis::RedisResult<redis::Connection> {
    let connection = client.get_connection_with_timeout(TIMEOUT)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    Ok(connection)
}

/// The channel of a lane.
fn channel(prefix: &str, lane: u32) -> String {
    format!("{prefix}:ticks:{lane}")
}

/// What a publisher has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherStats {
    /// Ticks that Redis has taken.
    pub ticks: u64,
    /// Messages that carried them.
    pub messages: u64,
    /// Connections that were made after the first.
    pub reconnects: u64,
    /// Ticks of the spool that wait to be published.
    pub waiting: u64,
    /// Whether Redis took the last message.
    pub connected: bool,
}

#[derive(Default)]
struct PublisherCells {
    ticks: AtomicU64,
    messages: AtomicU64,
    connects: AtomicU64,
    waiting: AtomicU64,
    connected: AtomicBool,
    stop: AtomicBool,
}

/// Publishes what comes into the spool. While Redis is away it waits, and then goes on where it was. Stops when it is dropped.
pub struct Publisher {
    cells: Arc<PublisherCells>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Begins at the end of the spool: what is older is read from the bus behind Pub/Sub.
    ///
    /// # Errors
    /// [`LogError`]: an impossible address, a topic that is not there.
    pub fn start(
        log: Arc<dyn EventLog>,
        topic: &str,
        url: &str,
        prefix: &str,
    ) -> Result<Publisher, LogError> {
        let spec = log.topics().into_iter().find(|spec| spec.name == topic);
        let lanes = spec.ok_or_else(|| LogError::NoTopic { topic: topic.into() })?.partitions;
        let next = (0..lanes).map(|lane| log.end_offset(topic, lane)).collect::<Result<Vec<_>, _>>()?;
        let cells = Arc::new(PublisherCells::default());
        let work = Publishing {
            log,
            topic: topic.into(),
            client: client(url)?,
            channels: (0..lanes).map(|lane| channel(prefix, lane)).collect(),
            next,
            cells: cells.clone(),
        };
        let thread = std::thread::Builder::new().name("redis-publisher".into());
        let thread = thread
            .spawn(move || work.run())
            .map_err(LogError::io("starting a thread", "redis-publisher".as_ref()))?;
        Ok(Publisher { cells, thread: Some(thread) })
    }

    /// Says that the spool has something new, so that the publisher need not look for it.
    pub fn nudge(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Figures since the start.
    pub fn stats(&self) -> PublisherStats {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let cells = &self.cells;
        PublisherStats {
            ticks: get(&cells.ticks),
            messages: get(&cells.messages),
            reconnects: get(&cells.connects).saturating_sub(1),
            waiting: get(&cells.waiting),
            connected: cells.connected.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.cells.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing to tell but what the counters say.
            let _ = thread.join();
        }
    }
}

struct Publishing {
    log: Arc<dyn EventLog>,
    topic: String,
    client: redis::Client,
    channels: Vec<String>,
    next: Vec<u64>,
    cells: Arc<PublisherCells>,
}

impl Publishing {
    fn run(mut self) {
        let mut told = false;
        while !self.cells.stop.load(Ordering::Acquire) {
            match connect(&self.client) {
                Ok(mut connection) => {
                    self.cells.connects.fetch_add(1, Ordering::Relaxed);
                    told = false;
                    if let Err(error) = self.publish(&mut connection) {
                        tracing::warn!(%error, "Redis takes no ticks: they wait in the spool");
                    }
                    self.cells.connected.store(false, Ordering::Relaxed);
                }
                Err(error) if !told => {
                    tracing::warn!(%error, "Redis cannot be reached: ticks wait in the spool");
                    told = true;
                }
                Err(_) => {}
            }
            self.count_waiting();
            std::thread::park_timeout(PAUSE);
        }
    }

    fn count_waiting(&self) {
        let behind = self.next.iter().zip(0..).filter_map(|(next, lane)| {
            Some(self.log.end_offset(&self.topic, lane).ok()?.saturating_sub(*next))
        });
        self.cells.waiting.store(behind.sum(), Ordering::Relaxed);
    }

    /// Until a fault of the connection, or the end.
    fn publish(&mut self, connection: &mut redis::Connection) -> redis::RedisResult<()> {
        let mut read = Vec::new();
        while !self.cells.stop.load(Ordering::Acquire) {
            let mut pipe = redis::pipe();
            let mut next = self.next.clone();
            let (mut ticks, mut messages) = (0, 0);
            for (lane, next) in next.iter_mut().enumerate() {
                read.clear();
                // A spool that cannot be read ends the gateway, which says so.
                let Ok(to) = self.log.read(&self.topic, lane as u32, *next, ROUND, &mut read) else {
                    continue;
                };
                *next = to;
                ticks += read.len() as u64;
                for payload in payloads(&read) {
                    messages += 1;
                    pipe.cmd("PUBLISH").arg(&self.channels[lane]).arg(payload).ignore();
                }
            }
            self.cells.connected.store(true, Ordering::Relaxed);
            if messages == 0 {
                self.cells.waiting.store(0, Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(5));
                continue;
            }
            pipe.query::<()>(connection)?;
            self.next = next;
            self.cells.ticks.fetch_add(ticks, Ordering::Relaxed);
            self.cells.messages.fetch_add(messages, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Messages of a channel for ticks of one lane, in order. A message without contents has length 0.
fn payloads(ticks: &[StoredMessage]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut next = None;
    for tick in ticks {
        let value = tick.value.as_deref().unwrap_or_default();
        let fits = all.last().is_some_and(|payload| payload.len() + 2 + value.len() <= MOST);
        if !fits || next != Some(tick.offset) {
            all.push(tick.offset.to_le_bytes().to_vec());
        }
        let payload = all.last_mut().expect("one was just made where there was none");
        // A tick has at most 94 bytes; what is longer is none, and is cut to something that is no tick either.
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        payload.extend_from_slice(&(value.len() as u16).to_le_bytes());
        payload.extend_from_slice(value);
        next = Some(tick.offset + 1);
    }
    all
}

/// The offset of a message's first tick and how many it has; `None` when it is none of ours.
fn range(payload: &[u8]) -> Option<(u64, u64)> {
    let (first, mut rest) = payload.split_first_chunk::<8>()?;
    let mut count = 0;
    while let Some((length, more)) = rest.split_first_chunk::<2>() {
        rest = more.get(usize::from(u16::from_le_bytes(*length))..)?;
        count += 1;
    }
    (rest.is_empty() && count > 0).then(|| (u64::from_le_bytes(*first), count))
}

/// How a bus on Redis is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisBusConfig {
    /// `redis://host:port`.
    pub url: String,
    /// In front of the names of channels.
    pub prefix: String,
    /// Connections, among which channels are divided (lane modulo connections).
    pub connections: u32,
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedisBusStats {
    /// Messages of channels that were received.
    pub messages: u64,
    /// Ticks that were read from the bus behind, because Pub/Sub had lost them or was away.
    pub filled: u64,
    /// Connections that were made after the first of each.
    pub reconnects: u64,
    /// Messages of channels that were none of ours.
    pub bad: u64,
}

struct Payload {
    first: u64,
    end: u64,
    bytes: Vec<u8>,
}

/// The last messages of a lane. Readers take none of them away: several may read one bus, each at its own place.
#[derive(Default)]
struct LaneQueue {
    /// With rising ends.
    kept: VecDeque<Payload>,
    bytes: usize,
    /// When something came, or it was last looked whether something was lost.
    heard: Option<Instant>,
}

/// What a lane has at an offset.
enum Here {
    /// The message with this place in the queue.
    Message(usize),
    /// Nothing before this offset: it was lost.
    Hole(u64),
    /// Nothing yet.
    Nothing,
}

impl LaneQueue {
    fn put(&mut self, payload: Payload) {
        // One that was sent again after a fault.
        if self.kept.back().is_some_and(|last| payload.end <= last.end) {
            return;
        }
        self.bytes += payload.bytes.len();
        self.kept.push_back(payload);
        while self.bytes > KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.bytes.len();
        }
    }

    fn at(&self, offset: u64) -> Here {
        let at = self.kept.partition_point(|payload| payload.end <= offset);
        match self.kept.get(at) {
            None => Here::Nothing,
            Some(payload) if payload.first > offset => Here::Hole(payload.first),
            Some(_) => Here::Message(at),
        }
    }
}

#[derive(Default)]
struct Cells {
    messages: AtomicU64,
    filled: AtomicU64,
    connects: AtomicU64,
    bad: AtomicU64,
    stop: AtomicBool,
}

struct Shared {
    lanes: Vec<Mutex<LaneQueue>>,
    /// Counts what came; waited on by readers.
    came: Mutex<u64>,
    bell: Condvar,
    cells: Cells,
    /// Whether each connection is subscribed.
    subscribed: Vec<AtomicBool>,
}

/// A bus on Redis Pub/Sub. Stops when it is dropped.
pub struct RedisBus {
    shared: Arc<Shared>,
    behind: Arc<dyn Bus>,
    connections: usize,
    threads: Vec<JoinHandle<()>>,
}

impl RedisBus {
    /// Subscribes; Redis may be away, and then the bus behind is what is read.
    ///
    /// # Errors
    /// [`LogError::Config`] for an impossible address, [`LogError::Io`] when a thread cannot be started.
    pub fn start(config: &RedisBusConfig, behind: Arc<dyn Bus>) -> Result<RedisBus, LogError> {
        let client = client(&config.url)?;
        let lanes = behind.lanes();
        let connections = config.connections.clamp(1, lanes.max(1));
        let shared = Arc::new(Shared {
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
            came: Mutex::default(),
            bell: Condvar::new(),
            cells: Cells::default(),
            subscribed: (0..connections).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut bus = RedisBus {
            shared: shared.clone(),
            behind,
            connections: connections as usize,
            threads: Vec::new(),
        };
        for number in 0..connections {
            let mine: Vec<(u32, String)> = (0..lanes)
                .filter(|lane| lane % connections == number)
                .map(|lane| (lane, channel(&config.prefix, lane)))
                .collect();
            let (client, shared) = (client.clone(), shared.clone());
            let thread = std::thread::Builder::new().name(format!("redis-bus-{number}"));
            let started = thread.spawn(move || shared.subscribe(&client, number as usize, &mine));
            bus.threads.push(started.map_err(LogError::io("starting a thread", "redis-bus".as_ref()))?);
        }
        Ok(bus)
    }

    /// Figures since the start.
    pub fn stats(&self) -> RedisBusStats {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let cells = &self.shared.cells;
        RedisBusStats {
            messages: get(&cells.messages),
            filled: get(&cells.filled),
            reconnects: get(&cells.connects).saturating_sub(self.connections as u64),
            bad: get(&cells.bad),
        }
    }

    fn is_subscribed(&self, lane: u32) -> bool {
        self.shared.subscribed[lane as usize % self.connections].load(Ordering::Acquire)
    }

    /// Reads from the bus behind, up to `before` if that is known.
    fn fill(
        &self,
        lane: u32,
        from: u64,
        before: Option<u64>,
        most: usize,
        out: &mut Vec<StoredMessage>,
    ) -> Result<u64, LogError> {
        let most = before.map_or(most, |before| most.min((before - from) as usize));
        let had = out.len();
        let mut next = self.behind.read(lane, from, most, out)?;
        if let Some(before) = before {
            let extra = out[had..].iter().rev().take_while(|message| message.offset >= before).count();
            out.truncate(out.len() - extra);
            next = next.min(before);
        }
        self.shared.cells.filled.fetch_add((out.len() - had) as u64, Ordering::Relaxed);
        Ok(next)
    }
}

impl Shared {
    /// Keeps one connection and its channels, until the end.
    fn subscribe(&self, client: &redis::Client, number: usize, lanes: &[(u32, String)]) {
        let mut told = false;
        while !self.cells.stop.load(Ordering::Acquire) {
            let ended = self.listen(client, number, lanes);
            if self.subscribed[number].swap(false, Ordering::AcqRel) {
                told = false;
            }
            match ended {
                Ok(()) => return,
                Err(error) if !told => {
                    tracing::warn!(%error, "Redis Pub/Sub is away: ticks are read from the log behind it");
                    told = true;
                }
                Err(_) => {}
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn listen(
        &self,
        client: &redis::Client,
        number: usize,
        lanes: &[(u32, String)],
    ) -> redis::RedisResult<()> {
        let mut connection = connect(client)?;
        let mut listening = connection.as_pubsub();
        for (_, channel) in lanes {
            listening.subscribe(channel)?;
        }
        self.cells.connects.fetch_add(1, Ordering::Relaxed);
        // What was published before is found missing at once.
        for (lane, _) in lanes {
            lock(&self.lanes[*lane as usize]).heard = None;
        }
        self.subscribed[number].store(true, Ordering::Release);
        self.ring();
        listening.set_read_timeout(Some(Duration::from_millis(100)))?;
        let mut silent = Instant::now();
        while !self.cells.stop.load(Ordering::Acquire) {
            match listening.get_message() {
                Ok(message) => {
                    silent = Instant::now();
                    let channel = message.get_channel_name();
                    let Some((lane, _)) = lanes.iter().find(|(_, name)| name == channel) else { continue };
                    self.take(*lane, message.get_payload()?);
                }
                Err(error) if error.is_timeout() => {
                    // A silent server may be a dead one: a ping brings an answer, or an error after a while.
                    if silent.elapsed() > Duration::from_secs(1) {
                        silent = Instant::now();
                        listening.ping_message::<redis::Value>("")?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&self, lane: u32, bytes: Vec<u8>) {
        self.cells.messages.fetch_add(1, Ordering::Relaxed);
        let Some((first, count)) = range(&bytes) else {
            self.cells.bad.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut queue = lock(&self.lanes[lane as usize]);
        queue.heard = Some(Instant::now());
        queue.put(Payload { first, end: first + count, bytes });
        drop(queue);
        self.ring();
    }

    fn ring(&self) {
        *lock(&self.came) += 1;
        self.bell.notify_all();
    }
}

impl Bus for RedisBus {
    fn lanes(&self) -> u32 {
        self.behind.lanes()
    }

    fn start(&self, lane: u32) -> Result<u64, LogError> {
        self.behind.start(lane)
    }

    fn end(&self, lane: u32) -> Result<u64, LogError> {
        self.behind.end(lane)
    }

    fn read(&self, lane: u32, from: u64, most: usize, out: &mut Vec<StoredMessage>) -> Result<u64, LogError> {
        let queue = lock(&self.shared.lanes[lane as usize]);
        let mut at = match queue.at(from) {
            Here::Message(at) => at,
            Here::Hole(before) => {
                drop(queue);
                return self.fill(lane, from, Some(before), most, out);
            }
            Here::Nothing => {
                let heard = queue.heard;
                drop(queue);
                if self.is_subscribed(lane) && heard.is_some_and(|heard| heard.elapsed() < QUIET) {
                    return Ok(from);
                }
                let next = self.fill(lane, from, None, most, out)?;
                if next == from {
                    // That was all: what comes now is heard, or found missing when it has been quiet again.
                    lock(&self.shared.lanes[lane as usize]).heard = Some(Instant::now());
                }
                return Ok(next);
            }
        };
        let (mut next, had) = (from, out.len());
        while let Some(payload) = queue.kept.get(at)
            && payload.first <= next
            && out.len() - had < most
        {
            for (offset, value) in (payload.first..).zip(values(&payload.bytes)) {
                if offset >= next && out.len() - had < most {
                    let value = (!value.is_empty()).then(|| value.to_vec());
                    out.push(StoredMessage { offset, key: Vec::new(), value, time: Timestamp(0) });
                    next = offset + 1;
                }
            }
            at += 1;
        }
        Ok(next)
    }

    fn wait(&self, places: &[(u32, u64)], timeout: Duration) -> Result<(), LogError> {
        if places.iter().any(|(lane, _)| !self.is_subscribed(*lane)) {
            return self.behind.wait(places, timeout);
        }
        let came = *lock(&self.shared.came);
        for (lane, next) in places {
            let queue = lock(&self.shared.lanes[*lane as usize]);
            match queue.at(*next) {
                Here::Message(_) => return Ok(()),
                // It was not there yet in the bus behind.
                Here::Hole(_) => {
                    drop(queue);
                    return self.behind.wait(&[(*lane, *next)], timeout.min(Duration::from_millis(5)));
                }
                Here::Nothing if queue.heard.is_none_or(|heard| heard.elapsed() >= QUIET) => return Ok(()),
                Here::Nothing => {}
            }
        }
        let timeout = timeout.min(QUIET);
        let now = lock(&self.shared.came);
        // A poisoned lock would be a panic while counting: there is none.
        drop(self.shared.bell.wait_timeout_while(now, timeout, |now| *now == came));
        Ok(())
    }
}

impl Drop for RedisBus {
    fn drop(&mut self) {
        self.shared.cells.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // It has nothing to tell but what the counters say.
            let _ = thread.join();
        }
    }
}

/// The ticks of a message.
fn values(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = payload.get(8..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, more) = rest.split_first_chunk::<2>()?;
        let (value, more) = more.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        rest = more;
        Some(value)
    })
}
