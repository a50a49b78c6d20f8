//! The cache of a group on Redis.
//!
//! Keys, each behind the group's prefix: `epoch` and `refused` (counters), `quotes` (hash by symbol), `candles` (hash by `SYMBOL/INTERVAL`), `events` (list),
//! `status` (text that expires), `nodes` (set) and `node:NAME` (texts that expire), `active`, `rebuilds`; channel `writes`. Values are JSON, one entry each; a message of the channel is entries one a line.
//!
//! A write is one script: what compares the epoch also writes and publishes, and Redis runs nothing in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::wire;
use super::{
    Active, Batch, CacheError, Contents, EVENTS, Entry, GroupCache, MemberNote, NOTE_LASTS, STATUS_LASTS,
    Subscription, SymbolCandle, Written,
};

/// Compares the epoch, writes, publishes. KEYS: epoch, refused, quotes, candles, events, status, rebuilds, channel. ARGV: epoch; the status and how long it lasts
/// (or empty and 0); then three lists, each with its length in front: quotes (symbol, text), running candles (field, text), texts that are only published;
/// and events (texts) with the most that are kept.
const WRITE: &str = r"
local highest = tonumber(redis.call('GET', KEYS[1]) or '0')
local mine = tonumber(ARGV[1])
if mine < highest then
  redis.call('INCR', KEYS[2])
  return {0, string.format('%.0f', highest)}
end
if mine > highest then redis.call('SET', KEYS[1], ARGV[1]) end
local out, at = {}, 4
local function hash(key)
  local count = tonumber(ARGV[at])
  at = at + 1
  if count > 0 then
    local pairs = {}
    for n = 0, count * 2 - 1 do
      pairs[n + 1] = ARGV[at + n]
      if n % 2 == 1 then out[#out + 1] = ARGV[at + n] end
    end
    redis.call('HSET', key, unpack(pairs))
    at = at + count * 2
  end
end
hash(KEYS[3])
hash(KEYS[4])
local told = tonumber(ARGV[at])
for n = 1, told do out[#out + 1] = ARGV[at + n] end
at = at + told + 1
local events, kept = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
for n = 1, events do
  local event = ARGV[at + 1 + n]
  out[#out + 1] = event
  redis.call('RPUSH', KEYS[5], event)
end
if events > 0 then redis.call('LTRIM', KEYS[5], -kept, -1) end
if ARGV[2] ~= '' then
  redis.call('SET', KEYS[6], ARGV[2], 'PX', ARGV[3])
  out[#out + 1] = ARGV[2]
end
if #out > 0 then redis.call('PUBLISH', KEYS[8], table.concat(out, '\n')) end
return {1, redis.call('GET', KEYS[7]) or '0'}
";

/// Sets which group is shown unless a version as high is there, and returns what is there. KEYS: active, channel. ARGV: version, text.
const ACTIVATE: &str = r"
local there = redis.call('GET', KEYS[1])
if there and tonumber(string.match(there, '(%d+)}$')) >= tonumber(ARGV[1]) then return there end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('PUBLISH', KEYS[2], ARGV[2])
return ARGV[2]
";

/// Where a group's cache is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisCacheConfig {
    /// `redis://host:port`.
    pub url: String,
    /// In front of all keys and the channel, with a colon behind it.
    pub prefix: String,
    /// How long a connection and an answer may take (500 ms).
    pub timeout: Duration,
}

impl RedisCacheConfig {
    /// The default timeout.
    pub fn new(url: &str, prefix: &str) -> RedisCacheConfig {
        RedisCacheConfig { url: url.into(), prefix: prefix.into(), timeout: Duration::from_millis(500) }
    }
}

/// A connection, and the names under which it knows the scripts.
struct Connected {
    connection: redis::Connection,
    write: String,
    activate: String,
}

/// A cache on Redis. It connects when it is used, and again after a fault.
pub struct RedisCache {
    config: RedisCacheConfig,
    client: redis::Client,
    connected: Mutex<Option<Connected>>,
}

impl RedisCache {
    /// Redis may be away.
    ///
    /// # Errors
    /// [`CacheError::Config`].
    pub fn open(config: RedisCacheConfig) -> Result<RedisCache, CacheError> {
        let client = redis::Client::open(config.url.as_str()).map_err(|error| CacheError::Config {
            place: config.url.clone(),
            reason: format!("no address of a Redis server ({error}): use redis://host:port"),
        })?;
        Ok(RedisCache { config, client, connected: Mutex::default() })
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.config.prefix)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connected>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn away(&self, error: &redis::RedisError) -> CacheError {
        CacheError::Away { place: self.config.url.clone(), reason: error.to_string() }
    }

    fn foreign(&self, error: &wire::WireError) -> CacheError {
        let place = format!("{} {}", self.config.url, self.config.prefix);
        CacheError::Foreign { place, reason: error.to_string() }
    }

    fn connect(&self) -> redis::RedisResult<Connected> {
        let mut connection = self.client.get_connection_with_timeout(self.config.timeout)?;
        connection.set_read_timeout(Some(self.config.timeout))?;
        connection.set_write_timeout(Some(self.config.timeout))?;
        let mut load = |script: &str| redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut connection);
        let (write, activate) = (load(WRITE)?, load(ACTIVATE)?);
        Ok(Connected { connection, write, activate })
    }

    /// Does something on the connection, which is made when there is none and given up after a fault.
    fn with<T>(&self, work: impl FnOnce(&mut Connected) -> redis::RedisResult<T>) -> Result<T, CacheError> {
        let mut held = self.lock();
        let mut connected = match held.take() {
            Some(connected) => connected,
            None => self.connect().map_err(|error| self.away(&error))?,
        };
        let done = work(&mut connected).map_err(|error| self.away(&error))?;
        *held = Some(connected);
        Ok(done)
    }

    fn members(&self) -> Result<Vec<MemberNote>, CacheError> {
        let texts: Vec<Option<Vec<u8>>> = self.with(|connected| {
            let nodes: Vec<String> =
                redis::cmd("SMEMBERS").arg(self.key("nodes")).query(&mut connected.connection)?;
            if nodes.is_empty() {
                return Ok(Vec::new());
            }
            let keys: Vec<String> = nodes.iter().map(|node| self.key(&format!("node:{node}"))).collect();
            redis::cmd("MGET").arg(keys).query(&mut connected.connection)
        })?;
        let read = |text: &Vec<u8>| serde_json::from_slice::<MemberNote>(text);
        let mut members = texts
            .iter()
            .flatten()
            .map(read)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| self.foreign(&wire::fault("member", &error.to_string())))?;
        members.sort_by(|a, b| a.status.node.cmp(&b.status.node));
        Ok(members)
    }

    fn parse(&self, text: &[u8], out: &mut Vec<Entry>) -> Result<(), CacheError> {
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            out.push(wire::read(line).map_err(|error| self.foreign(&error))?);
        }
        Ok(())
    }
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(320);
    write(&mut out);
    out
}

impl GroupCache for RedisCache {
    fn write(&self, epoch: u64, batch: &Batch) -> Result<Written, CacheError> {
        let keys = ["epoch", "refused", "quotes", "candles", "events", "status", "rebuilds", "writes"];
        let (running, closed): (Vec<&SymbolCandle>, Vec<_>) =
            batch.candles.iter().partition(|candle| !candle.change.closed);
        let (allowed, answer) = self.with(|connected| {
            let mut command = redis::cmd("EVALSHA");
            command.arg(&connected.write).arg(keys.len());
            for key in keys {
                command.arg(self.key(key));
            }
            command.arg(epoch);
            match &batch.status {
                Some(status) => {
                    command.arg(text(|out| wire::write_status(status, out)));
                    command.arg(STATUS_LASTS.as_millis() as u64);
                }
                None => _ = command.arg("").arg(0),
            }
            command.arg(batch.quotes.len());
            for quote in &batch.quotes {
                command.arg(quote.output.symbol.as_bytes()).arg(text(|out| wire::write_quote(quote, out)));
            }
            command.arg(running.len());
            for candle in &running {
                command.arg(format!("{}/{}", candle.symbol, candle.change.interval.as_str()));
                command.arg(text(|out| wire::write_candle(candle, out)));
            }
            command.arg(closed.len());
            for candle in &closed {
                command.arg(text(|out| wire::write_candle(candle, out)));
            }
            command.arg(batch.events.len()).arg(EVENTS);
            for event in &batch.events {
                command.arg(text(|out| event.write_json(out)));
            }
            command.query::<(u8, String)>(&mut connected.connection)
        })?;
        let answer = answer.parse().unwrap_or(0);
        match allowed {
            0 => Err(CacheError::Fenced { mine: epoch, highest: answer }),
            _ => Ok(Written { rebuilds: answer }),
        }
    }

    fn read(&self) -> Result<Contents, CacheError> {
        type All = (
            Option<u64>,
            Option<u64>,
            Vec<Vec<u8>>,
            Vec<Vec<u8>>,
            Vec<Vec<u8>>,
            Option<Vec<u8>>,
            Option<Vec<u8>>,
        );
        let (epoch, refused, quotes, candles, events, status, active): All = self.with(|connected| {
            redis::pipe()
                .cmd("GET")
                .arg(self.key("epoch"))
                .cmd("GET")
                .arg(self.key("refused"))
                .cmd("HVALS")
                .arg(self.key("quotes"))
                .cmd("HVALS")
                .arg(self.key("candles"))
                .cmd("LRANGE")
                .arg(self.key("events"))
                .arg(0)
                .arg(-1)
                .cmd("GET")
                .arg(self.key("status"))
                .cmd("GET")
                .arg(self.key("active"))
                .query(&mut connected.connection)
        })?;
        let mut contents = Contents {
            entries: Vec::new(),
            members: self.members()?,
            epoch: epoch.unwrap_or(0),
            refused: refused.unwrap_or(0),
        };
        for line in quotes.iter().chain(&candles).chain(&events).chain(&status).chain(&active) {
            self.parse(line, &mut contents.entries)?;
        }
        Ok(contents)
    }

    fn subscribe(&self) -> Result<Box<dyn Subscription>, CacheError> {
        let (client, timeout, channel) = (self.client.clone(), self.config.timeout, self.key("writes"));
        let stop = Arc::new(AtomicBool::new(false));
        let (ready_to, ready) = sync_channel(1);
        let (to, entries) = sync_channel(WAITING);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("cache-reader".into());
        let thread = thread.spawn(move || {
            let fault = listen(&client, timeout, &channel, &stopped, &ready_to, &to).err();
            // Where it waits for one of the two, that is what it gets; where nobody waits any more, nobody needs it.
            if let Some(fault) = fault {
                let _ = ready_to.try_send(Err(fault.clone()));
                let _ = to.send(Err(fault));
            }
        });
        let away = |reason: String| CacheError::Away { place: self.config.url.clone(), reason };
        let thread = thread.map_err(|error| away(error.to_string()))?;
        let reader = Reader { entries, stop, thread: Some(thread), url: self.config.url.clone() };
        match ready.recv() {
            Ok(Ok(())) => Ok(Box::new(reader)),
            Ok(Err(fault)) => Err(away(fault)),
            Err(_) => Err(away("its reader ended".into())),
        }
    }

    fn announce(&self, note: &MemberNote) -> Result<(), CacheError> {
        let node = &note.status.node;
        let text = serde_json::to_vec(note).expect("numbers and texts always become JSON");
        self.with(|connected| {
            redis::pipe()
                .cmd("SADD")
                .arg(self.key("nodes"))
                .arg(node)
                .cmd("SET")
                .arg(self.key(&format!("node:{node}")))
                .arg(text)
                .arg("PX")
                .arg(NOTE_LASTS.as_millis() as u64)
                .query::<()>(&mut connected.connection)
        })
    }

    fn set_active(&self, active: Active) -> Result<Active, CacheError> {
        let there: Vec<u8> = self.with(|connected| {
            redis::cmd("EVALSHA")
                .arg(&connected.activate)
                .arg(2)
                .arg(self.key("active"))
                .arg(self.key("writes"))
                .arg(active.version)
                .arg(text(|out| wire::write_active(active, out)))
                .query(&mut connected.connection)
        })?;
        match wire::read(&there) {
            Ok(Entry::Active(active)) => Ok(active),
            Ok(_) => Err(self.foreign(&wire::fault("name of a group", "the key `active`"))),
            Err(error) => Err(self.foreign(&error)),
        }
    }

    fn ask_rebuild(&self) -> Result<(), CacheError> {
        let key = self.key("rebuilds");
        self.with(|connected| redis::cmd("INCR").arg(key).query::<()>(&mut connected.connection))
    }
}

/// Writes that may wait for one subscriber; while there are as many, Redis has to wait, and it cuts off who makes it wait for long.
const WAITING: usize = 4096;
/// After so much silence the server is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(1);
/// How long it listens before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

type Heard = Result<Vec<Entry>, String>;

/// Reads the channel until a fault or the end.
fn listen(
    client: &redis::Client,
    timeout: Duration,
    channel: &str,
    stop: &AtomicBool,
    ready: &SyncSender<Result<(), String>>,
    to: &SyncSender<Heard>,
) -> Result<(), String> {
    let text = |error: redis::RedisError| error.to_string();
    let mut connection = client.get_connection_with_timeout(timeout).map_err(text)?;
    connection.set_read_timeout(Some(timeout)).map_err(text)?;
    connection.set_write_timeout(Some(timeout)).map_err(text)?;
    let mut listening = connection.as_pubsub();
    listening.subscribe(channel).map_err(text)?;
    // One has been waiting for this since the thread began.
    let _ = ready.try_send(Ok(()));
    listening.set_read_timeout(Some(LOOK)).map_err(text)?;
    let mut heard = Instant::now();
    while !stop.load(Ordering::Acquire) {
        match listening.get_message() {
            Ok(message) => {
                heard = Instant::now();
                let lines = message.get_payload_bytes().split(|byte| *byte == b'\n');
                let entries = lines.filter(|line| !line.is_empty()).map(wire::read);
                let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
                if to.send(Ok(entries)).is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.is_timeout() => {
                if heard.elapsed() > SILENCE {
                    listening.set_read_timeout(Some(timeout)).map_err(text)?;
                    listening.ping::<redis::Value>().map_err(text)?;
                    listening.set_read_timeout(Some(LOOK)).map_err(text)?;
                    heard = Instant::now();
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

struct Reader {
    entries: Receiver<Heard>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    url: String,
}

impl Subscription for Reader {
    fn next(&mut self, timeout: Duration, out: &mut Vec<Entry>) -> Result<(), CacheError> {
        let away = |reason: String| CacheError::Away { place: self.url.clone(), reason };
        match self.entries.recv_timeout(timeout) {
            Ok(Ok(mut entries)) => {
                out.append(&mut entries);
                Ok(())
            }
            Ok(Err(reason)) => Err(away(reason)),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(away("its reader ended".into())),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // It may be waiting for room: then it is told that nobody reads.
        let (_, none) = sync_channel(1);
        drop(std::mem::replace(&mut self.entries, none));
        if let Some(thread) = self.thread.take() {
            // Its fault was told, or nobody is interested any more.
            let _ = thread.join();
        }
    }
}
