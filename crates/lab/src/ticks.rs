//! `bench ticks`: a feed writes numbered ticks to a bus, the plant's loops fold them and write what came of it, and every tick is followed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hoga_core::folds::candle::{Candle, Interval, Tick};
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;
use hoga_feed::bus::LogBus;
use hoga_feed::monitor::{Counts, SymbolOrder, Verdict};
use hoga_feed::plant::{Batch, Handler, Plant, PlantConfig, PlantFault};
use hoga_feed::{FeedTick, Symbol};
use hoga_log::event_log::{
    EmbeddedConfig, EmbeddedLog, EventLog, Message, StoredMessage, TopicSpec, partition_for,
};
use rustc_hash::FxHashMap;
use serde_json::json;

use crate::orders::BenchError;
use crate::process::{TempDir, cpu_seconds};
use crate::report::{Latency, Report, histogram, round1};
#[cfg(feature = "kafka")]
use crate::services::Service;

/// What carries ticks from the feed to the loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// The embedded log that is the feed's spool, read in the same process.
    Inproc,
    /// Apache Kafka, a broker of its own; acks=all.
    Kafka,
}

/// The flags of `bench ticks`.
#[derive(Clone, Debug)]
pub struct Options {
    /// What carries the ticks.
    pub bus: Bus,
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
const WARMUP: Duration = Duration::from_secs(2);
/// Most ticks of one append.
const APPEND: usize = 512;
/// Once so many lie between the feed and the loops, the feed waits: the disk is not what is measured.
const MOST_BEHIND: u64 = 500_000;
/// How long the loops may take for what is left at the end.
const DRAIN: Duration = Duration::from_secs(60);

impl From<PlantFault> for BenchError {
    fn from(fault: PlantFault) -> BenchError {
        BenchError::Unfit(format!("the plant: {fault}"))
    }
}

/// Runs it.
pub fn run(options: &Options) -> Result<Vec<Report>, BenchError> {
    let rate = options.rate.map_or("max".to_owned(), |rate| rate.to_string());
    eprintln!(
        "bench ticks: {:?}, {} symbols, {} lanes, {} loops, rate {rate}, {} s after {} s of warm-up",
        options.bus,
        options.symbols,
        options.lanes,
        options.loops,
        options.seconds,
        WARMUP.as_secs()
    );
    let ran = match options.bus {
        Bus::Inproc => {
            let data = TempDir::new("bench-ticks")?;
            let config = EmbeddedConfig { segment_bytes: 64 << 20, ..EmbeddedConfig::default() };
            let log: Arc<dyn EventLog> = Arc::new(EmbeddedLog::open(data.path().join("log"), config)?);
            measure(&log, options)?
        }
        Bus::Kafka => kafka(options)?,
    };
    Ok(vec![report(options, &ran)])
}

#[cfg(not(feature = "kafka"))]
fn kafka(_: &Options) -> Result<Ran, BenchError> {
    Err(BenchError::Unfit("this build is without Kafka: build it with default features".into()))
}

#[cfg(feature = "kafka")]
fn kafka(options: &Options) -> Result<Ran, BenchError> {
    use hoga_log::kafka::{KafkaConfig, KafkaLog};
    let service = Service::kafka(1)?;
    // Ticks are wanted soon: a batch gathers for no longer than a broker's round trip.
    let config = KafkaConfig { linger: Duration::from_millis(1), ..KafkaConfig::new(service.address()) };
    let log: Arc<dyn EventLog> = Arc::new(KafkaLog::open(config)?);
    measure(&log, options)
}

/// What is written of a symbol: its candle of this minute and its latest price, with their place.
#[derive(Clone, Copy)]
struct Output {
    seq: u64,
    last: (Timestamp, TradeId, Price),
    candle: Candle,
}

/// The latest output of each symbol, for readers; a loop takes its lock once a batch.
type Cache = Mutex<FxHashMap<Symbol, Output>>;

/// What one loop found.
struct Found {
    end_to_end: Histogram<u64>,
    process: Histogram<u64>,
    counts: Counts,
    bad: u64,
}

struct State {
    symbol: Symbol,
    order: SymbolOrder,
    output: Option<Output>,
}

struct Worker {
    start: Instant,
    counted: Arc<AtomicBool>,
    cache: Arc<Cache>,
    done: Arc<Mutex<Vec<Found>>>,
    found: Found,
    planned: Vec<i64>,
    written: Vec<(Symbol, Output)>,
}

impl Handler for Worker {
    type State = State;

    fn open(&mut self, symbol: Symbol) -> State {
        State { symbol, order: SymbolOrder::new(), output: None }
    }

    fn ticks(&mut self, state: &mut State, ticks: &[FeedTick]) {
        for FeedTick { epoch, seq, received, tick, .. } in ticks {
            if !matches!(state.order.number(*epoch, *seq), Verdict::New { .. } | Verdict::Late) {
                continue;
            }
            let open_time = Interval::M1.floor(tick.time);
            let last = (tick.time, tick.id, tick.price);
            match &mut state.output {
                Some(output) if output.candle.open_time == open_time => {
                    output.candle.add(tick);
                    output.last = output.last.max(last);
                    output.seq = *seq;
                }
                output => *output = Some(Output { seq: *seq, last, candle: Candle::of(open_time, tick) }),
            }
            self.planned.push(received.0);
        }
        if let Some(output) = state.output {
            self.written.push((state.symbol, output));
        }
    }

    fn bad(&mut self, _: u32, _: &StoredMessage, _: &str) {
        self.found.bad += 1;
    }

    fn flush(&mut self, batch: Option<Batch>) {
        if !self.written.is_empty() {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            for (symbol, output) in self.written.drain(..) {
                cache.insert(symbol, output);
            }
        }
        let counted = self.counted.load(Ordering::Relaxed);
        let now = self.start.elapsed().as_nanos() as u64;
        let mut planned = std::mem::take(&mut self.planned);
        if let (Some(batch), true) = (batch, counted) {
            // Of the oldest, for all: those read later took less.
            let process = batch.read.elapsed().as_nanos() as u64;
            self.found.process.saturating_record_n(process.max(1), planned.len() as u64);
            for planned in &planned {
                self.found.end_to_end.saturating_record(now.saturating_sub(*planned as u64).max(1));
            }
        }
        planned.clear();
        self.planned = planned;
    }

    fn close(&mut self, _: Symbol, state: State) {
        self.found.counts.add(state.order.counts());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let found = std::mem::replace(&mut self.found, Found::new());
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(found);
    }
}

impl Found {
    fn new() -> Found {
        Found { end_to_end: histogram(), process: histogram(), counts: Counts::default(), bad: 0 }
    }
}

struct Ran {
    sent: u64,
    sent_counted: u64,
    seconds: f64,
    drained: bool,
    found: Vec<Found>,
    utilisation: f64,
    waited: u64,
    cpu_s: f64,
    cached: u64,
}

fn measure(log: &Arc<dyn EventLog>, options: &Options) -> Result<Ran, BenchError> {
    log.create_topic(&TopicSpec::delete(TOPIC, options.lanes, u64::MAX))?;
    let start = Instant::now();
    let (counted, cache, done) =
        (Arc::new(AtomicBool::new(false)), Arc::new(Cache::default()), Arc::new(Mutex::new(Vec::new())));
    let config = PlantConfig { hot: None, ..PlantConfig::new(options.loops) };
    let bus: Arc<dyn hoga_feed::bus::Bus> = Arc::new(LogBus::new(log.clone(), TOPIC)?);
    let plant = Plant::start(&bus, &config, &[], |_| Worker {
        start,
        counted: counted.clone(),
        cache: cache.clone(),
        done: done.clone(),
        found: Found::new(),
        planned: Vec::new(),
        written: Vec::new(),
    })?;
    let mut feed = Feed::new(options)?;
    feed.send(&**log, options, start, WARMUP, &plant)?;
    counted.store(true, Ordering::Relaxed);
    let (cpu, busy, begun, before) = (cpu_seconds("self"), busy(&plant), Instant::now(), feed.sent);
    feed.send(&**log, options, start, Duration::from_secs_f64(options.seconds), &plant)?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_s = cpu_seconds("self") - cpu;
    let loops = config.loops.min(options.lanes);
    let utilisation = (self::busy(&plant) - busy) as f64 / 1e9 / seconds / f64::from(loops);
    let sent_counted = feed.sent - before;
    log.sync()?;
    let ends: Result<Vec<u64>, _> = (0..options.lanes).map(|lane| log.end_offset(TOPIC, lane)).collect();
    let drained = plant.wait_handled(&ends?, DRAIN);
    let waited = plant.stats().waited;
    plant.stop()?;
    let found = std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
    let cached = cache.lock().unwrap_or_else(PoisonError::into_inner);
    // What is in the cache is the last of each symbol.
    let cached =
        feed.last_numbers().filter(|(symbol, seq)| cached.get(symbol).is_some_and(|o| o.seq == *seq)).count();
    let cached = cached as u64;
    Ok(Ran { sent: feed.sent, sent_counted, seconds, drained, found, utilisation, waited, cpu_s, cached })
}

fn busy(plant: &Plant) -> u64 {
    plant.stats().loops.iter().map(|l| l.busy_ns).sum()
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

    fn send(
        &mut self,
        log: &dyn EventLog,
        options: &Options,
        start: Instant,
        time: Duration,
        plant: &Plant,
    ) -> Result<(), BenchError> {
        let (begun, before) = (Instant::now(), self.sent);
        let offset = begun.duration_since(start).as_nanos() as u64;
        while begun.elapsed() < time {
            let sent = self.sent - before;
            let due = match options.rate {
                None => APPEND as u64,
                Some(rate) => ((begun.elapsed().as_secs_f64() * rate) as u64).saturating_sub(sent),
            };
            let behind = |stats: Vec<u64>| self.sent.saturating_sub(stats.iter().sum());
            if due == 0 || options.rate.is_none() && behind(plant.stats().lanes) > MOST_BEHIND {
                std::thread::sleep(Duration::from_micros(100)); // the plan has nothing due yet, or the loops are far behind
                continue;
            }
            let count = due.min(APPEND as u64);
            self.bytes.clear();
            self.ends.clear();
            let now = offset + begun.elapsed().as_nanos() as u64;
            for number in sent..sent + count {
                let planned = options.rate.map_or(now, |rate| offset + (number as f64 / rate * 1e9) as u64);
                let tick = self.tick(before + number, planned);
                let place =
                    &mut self.places[self.lanes[((before + number) % self.symbols.len() as u64) as usize]];
                *place += 1;
                tick.encode(*place, &mut self.bytes);
                self.ends.push(self.bytes.len());
            }
            let symbols = self.symbols.len() as u64;
            let mut from = 0;
            let messages: Vec<Message<'_>> = (before + sent..)
                .zip(&self.ends)
                .map(|(number, end)| {
                    let value = &self.bytes[from..*end];
                    from = *end;
                    let key = self.symbols[(number % symbols) as usize].as_bytes();
                    Message { key, value: Some(value), time: Timestamp(1_700_000_000_000_000) }
                })
                .collect();
            log.append(TOPIC, &messages)?;
            self.sent += count;
        }
        Ok(())
    }

    /// The tick with this number over all symbols; `received` is the planned time in nanoseconds since the start.
    fn tick(&self, number: u64, planned: u64) -> FeedTick {
        let count = self.symbols.len() as u64;
        let (symbol, seq) = ((number % count) as usize, number / count + 1);
        let price = 100_000_000 + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44) as i64;
        FeedTick {
            symbol: self.symbols[symbol],
            epoch: 1,
            seq,
            received: Timestamp(planned as i64),
            tick: Tick {
                time: Timestamp(1_700_000_000_000_000 + planned as i64 / 1000),
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
    let bus = if options.bus == Bus::Inproc { "inproc" } else { "kafka" };
    let mut report = Report::new(
        "ticks",
        json!({
            "bus": bus, "cache": "memory", "rate": rate, "symbols": options.symbols, "lanes": options.lanes,
            "loops": options.loops, "seconds": options.seconds,
        }),
    );
    let (mut end_to_end, mut process) = (histogram(), histogram());
    for found in &ran.found {
        end_to_end.add(&found.end_to_end).expect("the same bounds");
        process.add(&found.process).expect("the same bounds");
    }
    let mut counts = Counts::default();
    ran.found.iter().for_each(|found| counts.add(&found.counts));
    report.warmup_s = WARMUP.as_secs_f64();
    report.seconds = round1(ran.seconds);
    report.target_per_s = options.rate;
    report.achieved_per_s = round1(ran.sent_counted as f64 / ran.seconds);
    report.latency = Latency::of_ns(&end_to_end);
    report.cpu_client_s = round1(ran.cpu_s);
    report.left_out = "processes: feed and loops are threads of one process; of what a processor makes: 24 h tickers, detected events".to_owned();
    report.errors = ran.found.iter().map(|found| found.bad).sum::<u64>() + u64::from(!ran.drained);
    let process = Latency::of_ns(&process);
    report.set("process_p50_us", process.p50_us);
    report.set("process_p99_us", process.p99_us);
    report.set("process_p999_us", process.p999_us);
    report.set("violations", counts.violations);
    report.set("duplicates", counts.duplicates);
    // What is missing in the middle, and what never came at the end.
    report.set("lost", counts.lost() + ran.sent.saturating_sub(counts.ticks + counts.lost()));
    report.set("utilisation", (ran.utilisation * 1000.0).round() / 1000.0);
    report.set("reader_waited", ran.waited);
    report.set("sent", ran.sent);
    report.set("cached", ran.cached);
    report
}
