//! `bench ticks`: a feed writes numbered ticks to a bus; a member of a group folds them and writes what came of them to its cache; every tick is followed.
//!
//! The member is the product's own, with everything that it does: order monitor, candles of four intervals, 24 h tickers, detected events on a loop of their
//! own, status and lease.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;
use hoga_feed::bus::{Bus as TickBus, LogBus};
use hoga_feed::cache::{
    Active, Batch, CacheError, Contents, GroupCache, MemberNote, MemoryCache, Subscription, Written,
};
use hoga_feed::groups::{GroupName, Member, MemberConfig};
use hoga_feed::plant::{PlantConfig, PlantFault};
use hoga_feed::{FeedTick, Symbol};
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog, Message, TopicSpec, partition_for};
use hoga_log::lease::LocalLeases;
use rustc_hash::FxHashMap;
use serde_json::json;

use crate::orders::BenchError;
use crate::process::{TempDir, cpu_seconds};
use crate::report::{Latency, Report, histogram, round1};
#[cfg(any(feature = "kafka", feature = "redis"))]
use crate::services::Service;

/// What carries ticks from the feed to the loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// The embedded log that is the feed's spool, read in the same process.
    Inproc,
    /// Apache Kafka, a broker of its own; acks=all.
    Kafka,
    /// Redis Pub/Sub, a server of its own, with the spool behind it.
    Redis,
}

impl Bus {
    fn as_str(self) -> &'static str {
        match self {
            Bus::Inproc => "inproc",
            Bus::Kafka => "kafka",
            Bus::Redis => "redis",
        }
    }
}

/// Where the latest of each symbol is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// In this process.
    Memory,
    /// A Redis server of its own.
    Redis,
}

/// The flags of `bench ticks`.
#[derive(Clone, Debug)]
pub struct Options {
    /// What carries the ticks.
    pub bus: Bus,
    /// Where what came of them is written.
    pub cache: Cache,
    /// Ticks a second over all symbols; none: flat out.
    pub rate: Option<f64>,
    /// Symbols, each as often as the others.
    pub symbols: u32,
    /// Partitions of the bus.
    pub lanes: u32,
    /// Loops.
    pub loops: u32,
    /// Counted seconds.
    pub seconds: f64,
}

const TOPIC: &str = "market.ticks";
/// Time that is not counted.
const WARMUP: Duration = Duration::from_secs(3);
/// Most ticks of one append.
const APPEND: usize = 512;
/// Once so many lie between the feed and the loops, the feed waits: the disk is not what is measured.
const MOST_BEHIND: u64 = 500_000;
/// How long the loops may take for what is left at the end.
const DRAIN: Duration = Duration::from_secs(60);
/// What is told as a spike of the tail.
const SPIKE: Duration = Duration::from_millis(50);
/// Event times begin here.
const EPOCH: i64 = 1_700_000_000_000_000;

impl From<PlantFault> for BenchError {
    fn from(fault: PlantFault) -> BenchError {
        BenchError::Unfit(format!("the plant: {fault}"))
    }
}

impl From<CacheError> for BenchError {
    fn from(fault: CacheError) -> BenchError {
        BenchError::Unfit(fault.to_string())
    }
}

/// Runs it.
pub fn run(options: &Options) -> Result<Vec<Report>, BenchError> {
    let rate = options.rate.map_or("max".to_owned(), |rate| rate.to_string());
    eprintln!(
        "bench ticks: bus {}, cache {:?}, {} symbols, {} lanes, {} loops, rate {rate}, {} s after {} s of warm-up",
        options.bus.as_str(),
        options.cache,
        options.symbols,
        options.lanes,
        options.loops,
        options.seconds,
        WARMUP.as_secs()
    );
    let ran = match options.cache {
        Cache::Memory => on_bus(options, Arc::new(MemoryCache::new()))?,
        #[cfg(feature = "redis")]
        Cache::Redis => {
            let service = Service::redis()?;
            let config = hoga_feed::cache::RedisCacheConfig::new(service.address(), "bench:a");
            on_bus(options, Arc::new(hoga_feed::cache::RedisCache::open(config)?))?
        }
        #[cfg(not(feature = "redis"))]
        Cache::Redis => {
            return Err(BenchError::Unfit(
                "this build is without Redis: build it with default features".into(),
            ));
        }
    };
    Ok(vec![report(options, &ran)])
}

fn on_bus(options: &Options, cache: Arc<dyn GroupCache>) -> Result<Ran, BenchError> {
    let data = TempDir::new("bench-ticks")?;
    let spool = || -> Result<Arc<dyn EventLog>, BenchError> {
        let config = EmbeddedConfig { segment_bytes: 64 << 20, ..EmbeddedConfig::default() };
        Ok(Arc::new(EmbeddedLog::open(data.path().join("log"), config)?))
    };
    let create =
        |log: &Arc<dyn EventLog>| log.create_topic(&TopicSpec::delete(TOPIC, options.lanes, u64::MAX));
    match options.bus {
        Bus::Inproc => {
            let log = spool()?;
            create(&log)?;
            let bus = Arc::new(LogBus::new(log.clone(), TOPIC)?);
            measure(options, &log, bus, cache, &|| ())
        }
        #[cfg(feature = "kafka")]
        Bus::Kafka => {
            use hoga_log::kafka::{KafkaConfig, KafkaLog};
            let service = Service::kafka(1)?;
            let config =
                KafkaConfig { linger: Duration::from_millis(1), ..KafkaConfig::new(service.address()) };
            let log: Arc<dyn EventLog> = Arc::new(KafkaLog::open(config.clone())?);
            create(&log)?;
            // As two processes have it: a client for writing, one for reading.
            let reading = Arc::new(KafkaLog::open(config)?);
            reading.create_topic(&TopicSpec::delete(TOPIC, options.lanes, u64::MAX))?;
            let bus = Arc::new(LogBus::new(reading, TOPIC)?);
            measure(options, &log, bus, cache, &|| ())
        }
        #[cfg(feature = "redis")]
        Bus::Redis => {
            use hoga_feed::bus::{Publisher, RedisBus, RedisBusConfig};
            let (service, log) = (Service::redis()?, spool()?);
            create(&log)?;
            let url = service.address().to_owned();
            let publisher = Publisher::start(log.clone(), TOPIC, &url, "bench")?;
            let config = RedisBusConfig { url, prefix: "bench".into(), connections: options.loops };
            let behind = Arc::new(LogBus::new(log.clone(), TOPIC)?);
            let bus = Arc::new(RedisBus::start(&config, behind)?);
            let mut ran = measure(options, &log, bus.clone(), cache, &|| publisher.nudge())?;
            ran.filled = bus.stats().filled;
            Ok(ran)
        }
        #[cfg(not(all(feature = "kafka", feature = "redis")))]
        _ => Err(BenchError::Unfit("this build is without that bus: build it with default features".into())),
    }
}

/// What was found.
struct Found {
    end_to_end: Histogram<u64>,
    process: Histogram<u64>,
    /// When a tick took longer than [`SPIKE`] from end to end: second of the run, and the longest of it in milliseconds.
    spikes: FxHashMap<u64, u64>,
    written: u64,
}

/// A cache that notes when each tick was written.
struct Measured {
    inner: Arc<dyn GroupCache>,
    plan: Plan,
    found: Mutex<Found>,
}

/// When each tick is due.
#[derive(Clone)]
struct Plan {
    start: Instant,
    rate: Option<f64>,
    symbols: u64,
    /// Of each symbol its number.
    numbers: Arc<FxHashMap<Symbol, u64>>,
    /// Ticks sent so far.
    sent: Arc<AtomicU64>,
}

impl Plan {
    /// Nanoseconds after the start.
    fn due(&self, number: u64) -> Option<u64> {
        self.rate.map(|rate| (number as f64 / rate * 1e9) as u64)
    }
}

impl Measured {
    fn note(&self, batch: &Batch) {
        let now = self.plan.start.elapsed();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let found = &mut *found;
        for quote in &batch.quotes {
            let output = &quote.output;
            let Some(symbol) = self.plan.numbers.get(&output.symbol) else { continue };
            let ticks = output.first..=output.mark.seq;
            found.written += output.mark.seq + 1 - output.first;
            if now < WARMUP {
                continue;
            }
            if let Some(read) = quote.read {
                // Of the oldest, for all: those read later took less.
                let process = (read.elapsed().as_nanos() as u64).max(1);
                found.process.saturating_record_n(process, output.mark.seq + 1 - output.first);
            }
            for seq in ticks {
                let number = (seq - 1) * self.plan.symbols + symbol;
                let Some(due) = self.plan.due(number) else { continue };
                let took = (now.as_nanos() as u64).saturating_sub(due).max(1);
                found.end_to_end.saturating_record(took);
                if took > SPIKE.as_nanos() as u64 {
                    let longest = found.spikes.entry(due / 1_000_000_000).or_default();
                    *longest = (*longest).max(took / 1_000_000);
                }
            }
        }
    }
}

impl GroupCache for Measured {
    fn write(&self, epoch: u64, batch: &Batch) -> Result<Written, CacheError> {
        let written = self.inner.write(epoch, batch)?;
        self.note(batch);
        Ok(written)
    }

    fn read(&self) -> Result<Contents, CacheError> {
        self.inner.read()
    }

    fn subscribe(&self) -> Result<Box<dyn Subscription>, CacheError> {
        self.inner.subscribe()
    }

    fn announce(&self, note: &MemberNote) -> Result<(), CacheError> {
        self.inner.announce(note)
    }

    fn set_active(&self, active: Active) -> Result<Active, CacheError> {
        self.inner.set_active(active)
    }

    fn ask_rebuild(&self) -> Result<(), CacheError> {
        self.inner.ask_rebuild()
    }
}

struct Ran {
    sent: u64,
    counted: u64,
    seconds: f64,
    drained: bool,
    found: Found,
    status: hoga_feed::cache::Status,
    load: f64,
    waited: u64,
    cpu_s: f64,
    cached: u64,
    filled: u64,
}

fn measure(
    options: &Options,
    log: &Arc<dyn EventLog>,
    bus: Arc<dyn TickBus>,
    cache: Arc<dyn GroupCache>,
    came: &dyn Fn(),
) -> Result<Ran, BenchError> {
    let mut feed = Feed::new(options)?;
    let numbers = (0..).zip(&feed.symbols).map(|(number, symbol)| (*symbol, number)).collect();
    let plan = Plan {
        start: Instant::now(),
        rate: options.rate,
        symbols: u64::from(options.symbols),
        numbers: Arc::new(numbers),
        sent: Arc::default(),
    };
    let found =
        Found { end_to_end: histogram(), process: histogram(), spikes: FxHashMap::default(), written: 0 };
    let measured = Arc::new(Measured { inner: cache, plan: plan.clone(), found: Mutex::new(found) });
    let lease = Box::new(LocalLeases::new().candidate("bench", Duration::from_secs(5)));
    let config = MemberConfig {
        plant: PlantConfig { hot: None, ..PlantConfig::new(options.loops) },
        ..MemberConfig::new(GroupName::A, "bench", options.loops)
    };
    let member = Member::start(&bus, measured.clone(), lease, config)?;
    let (cpu, counted, seconds) = feed.send(&**log, options, &plan, &member, came)?;
    let cpu_s = cpu_seconds("self") - cpu;
    let stats = member.plant().unwrap_or_default();
    let homes = stats.loops.iter().filter(|one| !one.hot);
    let load =
        homes.clone().map(|one| f64::from(one.load)).sum::<f64>() / 1000.0 / homes.count().max(1) as f64;
    log.sync()?;
    let ends: Result<Vec<u64>, _> = (0..options.lanes).map(|lane| log.end_offset(TOPIC, lane)).collect();
    let drained = member.wait_handled(&ends?, DRAIN);
    // What is handled is written a moment later.
    let all_written = || {
        let status = member.status();
        let written = measured.found.lock().unwrap_or_else(PoisonError::into_inner).written;
        written >= feed.sent || !status.cache_is_there
    };
    let begun = Instant::now();
    while !all_written() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let status = member.status().status;
    let contents = measured.read()?;
    drop(member);
    let last: FxHashMap<Symbol, u64> = contents
        .entries
        .iter()
        .filter_map(|entry| match entry {
            hoga_feed::cache::Entry::Quote(quote) => Some((quote.output.symbol, quote.output.mark.seq)),
            _ => None,
        })
        .collect();
    // What is in the cache is the last of each symbol.
    let cached = feed.last_numbers().filter(|(symbol, seq)| last.get(symbol) == Some(seq)).count() as u64;
    let mut found = measured.found.lock().unwrap_or_else(PoisonError::into_inner);
    let empty =
        Found { end_to_end: histogram(), process: histogram(), spikes: FxHashMap::default(), written: 0 };
    let found = std::mem::replace(&mut *found, empty);
    Ok(Ran {
        sent: feed.sent,
        counted,
        seconds,
        drained,
        found,
        status,
        load,
        waited: stats.waited,
        cpu_s,
        cached,
        filled: 0,
    })
}

/// Makes ticks, each symbol in turn, by a plan of times.
struct Feed {
    symbols: Vec<Symbol>,
    /// The lane of each symbol, and the messages of each lane.
    lanes: Vec<usize>,
    places: Vec<u64>,
    sent: u64,
    /// Values of one append, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Feed {
    fn new(options: &Options) -> Result<Feed, BenchError> {
        let symbols = (0..options.symbols).map(|n| Symbol::parse(&format!("S{n:05}USDT")));
        let symbols: Vec<Symbol> =
            symbols.collect::<Result<_, _>>().map_err(|e| BenchError::Unfit(e.to_string()))?;
        let lane = |symbol: &Symbol| partition_for(symbol.as_bytes(), options.lanes) as usize;
        let lanes = symbols.iter().map(lane).collect();
        Ok(Feed {
            symbols,
            lanes,
            places: vec![0; options.lanes as usize],
            sent: 0,
            bytes: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// Each symbol with the number of its last tick.
    fn last_numbers(&self) -> impl Iterator<Item = (Symbol, u64)> {
        let (sent, count) = (self.sent, self.symbols.len() as u64);
        (0..).zip(&self.symbols).map(move |(n, symbol)| (*symbol, sent / count + u64::from(n < sent % count)))
    }

    /// Sends by the plan. Processor seconds when the warm-up was over, ticks sent since then, and how long that took.
    fn send(
        &mut self,
        log: &dyn EventLog,
        options: &Options,
        plan: &Plan,
        member: &Member,
        came: &dyn Fn(),
    ) -> Result<(f64, u64, f64), BenchError> {
        let (count, end) = (self.symbols.len() as u64, WARMUP + Duration::from_secs_f64(options.seconds));
        let mut warm = None;
        while plan.start.elapsed() < end {
            if warm.is_none() && plan.start.elapsed() >= WARMUP {
                warm = Some((cpu_seconds("self"), self.sent, Instant::now()));
            }
            let due = match options.rate {
                None => APPEND as u64,
                Some(rate) => ((plan.start.elapsed().as_secs_f64() * rate) as u64).saturating_sub(self.sent),
            };
            let behind = || {
                let lanes = member.plant().map(|stats| stats.lanes).unwrap_or_default();
                self.sent.saturating_sub(lanes.iter().sum())
            };
            if due == 0 || options.rate.is_none() && behind() > MOST_BEHIND {
                std::thread::sleep(Duration::from_micros(100)); // the plan has nothing due yet, or the loops are far behind
                continue;
            }
            let many = due.min(APPEND as u64);
            self.bytes.clear();
            self.ends.clear();
            for number in self.sent..self.sent + many {
                let micros = plan.due(number).unwrap_or(number * 1000) / 1000;
                let tick = self.tick(number, EPOCH + micros as i64);
                let place = &mut self.places[self.lanes[(number % count) as usize]];
                *place += 1;
                tick.encode(*place, &mut self.bytes);
                self.ends.push(self.bytes.len());
            }
            let mut from = 0;
            let messages: Vec<Message<'_>> = (self.sent..)
                .zip(&self.ends)
                .map(|(number, end)| {
                    let value = &self.bytes[from..*end];
                    from = *end;
                    let key = self.symbols[(number % count) as usize].as_bytes();
                    Message { key, value: Some(value), time: Timestamp(EPOCH) }
                })
                .collect();
            log.append(TOPIC, &messages)?;
            came();
            self.sent += many;
            plan.sent.store(self.sent, Ordering::Relaxed);
        }
        let (cpu, before, begun) = warm.unwrap_or((0.0, 0, plan.start));
        Ok((cpu, self.sent - before, begun.elapsed().as_secs_f64()))
    }

    /// The tick with this number over all symbols.
    fn tick(&self, number: u64, time: i64) -> FeedTick {
        let count = self.symbols.len() as u64;
        let (symbol, seq) = ((number % count) as usize, number / count + 1);
        let price = 100_000_000 + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44) as i64;
        FeedTick {
            symbol: self.symbols[symbol],
            epoch: 1,
            seq,
            received: Timestamp(time),
            tick: Tick {
                time: Timestamp(time),
                id: TradeId(seq),
                price: Price(price),
                qty: Qty(10_000_000),
                quote: Amount(price / 10),
                taker_side: if number.is_multiple_of(2) { Side::Buy } else { Side::Sell },
            },
        }
    }
}

fn report(options: &Options, ran: &Ran) -> Report {
    let rate = options.rate.map_or_else(|| json!("max"), |rate| json!(rate));
    let cache = if options.cache == Cache::Memory { "memory" } else { "redis" };
    let mut report = Report::new(
        "ticks",
        json!({
            "bus": options.bus.as_str(), "cache": cache, "rate": rate, "symbols": options.symbols, "lanes": options.lanes,
            "loops": options.loops, "seconds": options.seconds,
        }),
    );
    report.warmup_s = WARMUP.as_secs_f64();
    report.seconds = round1(ran.seconds);
    report.target_per_s = options.rate;
    report.achieved_per_s = round1(ran.counted as f64 / ran.seconds);
    report.latency = Latency::of_ns(&ran.found.end_to_end);
    report.cpu_client_s = round1(ran.cpu_s);
    report.left_out = "processes: feed and member are threads of one process (servers are not)".to_owned();
    let status = &ran.status;
    report.errors = status.bad + u64::from(!ran.drained);
    let process = Latency::of_ns(&ran.found.process);
    report.set("process_p50_us", process.p50_us);
    report.set("process_p99_us", process.p99_us);
    report.set("process_p999_us", process.p999_us);
    report.set("violations", status.violations);
    report.set("duplicates", status.duplicates);
    // What is missing in the middle, and what never came at the end.
    report.set("lost", status.lost + ran.sent.saturating_sub(status.ticks + status.lost));
    report.set("utilisation", (ran.load * 1000.0).round() / 1000.0);
    report.set("reader_waited", ran.waited);
    report.set("sent", ran.sent);
    report.set("written", ran.found.written);
    report.set("cached", ran.cached);
    report.set("filled", ran.filled);
    report.set("loops_wanted", status.loops_wanted);
    let mut spikes: Vec<(u64, u64)> = ran.found.spikes.iter().map(|(at, ms)| (*at, *ms)).collect();
    spikes.sort_unstable();
    report.set("seconds_with_spikes", spikes.len());
    report.set(
        "spikes",
        spikes.iter().map(|(at, ms)| format!("{at} s: {ms} ms")).collect::<Vec<_>>().join(", "),
    );
    report
}
