//! One symbol that eats its loop, and what its neighbours notice: with its cost as waiting and as computing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;
use hoga_feed::bus::{Bus, LogBus};
use hoga_feed::plant::{Batch, Handler, Hot, Plant, PlantConfig};
use hoga_feed::{FeedTick, Symbol};
use hoga_log::event_log::{EventLog, MemoryLog, Message, StoredMessage, TopicSpec};

use super::{Options, Told, check};
use crate::orders::BenchError;
use crate::report::histogram;

const TOPIC: &str = "market.ticks";
/// Ticks a second of the hot symbol.
const RATE: u64 = 90;
/// Its neighbours on the same loop, and ticks a second of each.
const NEIGHBOURS: usize = 50;
const EACH: u64 = 20;
/// Time until the symbol has moved is not what is measured.
const WARMUP: Duration = Duration::from_secs(3);

/// How a tick of the hot symbol costs time.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    Nothing,
    Waiting(Duration),
    Computing(Duration),
}

struct Working {
    cost: Cost,
    begun: Instant,
    found: Arc<Mutex<Histogram<u64>>>,
    handled: Arc<AtomicU64>,
}

impl Handler for Working {
    type State = Symbol;

    fn open(&mut self, symbol: Symbol) -> Symbol {
        symbol
    }

    fn ticks(&mut self, symbol: &mut Symbol, ticks: &[FeedTick]) {
        if symbol.as_str() == "HOT" {
            for _ in ticks {
                match self.cost {
                    Cost::Nothing => {}
                    Cost::Waiting(time) => std::thread::sleep(time), // the cost itself
                    Cost::Computing(time) => {
                        let begun = Instant::now();
                        while begun.elapsed() < time {
                            std::hint::spin_loop();
                        }
                    }
                }
            }
            return;
        }
        let now = self.begun.elapsed();
        self.handled.fetch_add(ticks.len() as u64, Ordering::Relaxed);
        if now < WARMUP {
            return;
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for tick in ticks {
            let sent = Duration::from_micros(tick.received.0.max(0) as u64);
            found.saturating_record((now.saturating_sub(sent).as_nanos() as u64).max(1));
        }
    }

    fn bad(&mut self, _: u32, _: &StoredMessage, _: &str) {}

    fn flush(&mut self, _: Option<Batch>) {}

    fn close(&mut self, _: Symbol, _: Symbol) {}
}

fn tick(symbol: Symbol, seq: u64, at: Duration) -> Vec<u8> {
    let trade = Tick {
        time: Timestamp(seq as i64),
        id: TradeId(seq),
        price: Price(100),
        qty: Qty(1),
        quote: Amount(1),
        taker_side: Side::Buy,
    };
    let mut bytes = Vec::new();
    FeedTick { symbol, epoch: 1, seq, received: Timestamp(at.as_micros() as i64), tick: trade }
        .encode(seq, &mut bytes);
    bytes
}

/// The neighbours' percentiles with this cost of the hot symbol; with or without moving it.
fn measure(cost: Cost, moves: bool, seconds: u64) -> Result<(Duration, Duration), BenchError> {
    let parse = |name: &str| Symbol::parse(name).map_err(|error| BenchError::Unfit(error.to_string()));
    let hot_symbol = parse("HOT")?;
    let neighbours = (0..NEIGHBOURS).map(|n| parse(&format!("N{n:02}"))).collect::<Result<Vec<_>, _>>()?;
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    log.create_topic(&TopicSpec::delete(TOPIC, 1, u64::MAX))?;
    let bus: Arc<dyn Bus> = Arc::new(LogBus::new(log.clone(), TOPIC)?);
    let begun = Instant::now();
    let (found, handled) = (Arc::new(Mutex::new(histogram())), Arc::new(AtomicU64::new(0)));
    let config = PlantConfig { hot: moves.then(Hot::default), ..PlantConfig::new(1) };
    let working = |_| Working { cost, begun, found: found.clone(), handled: handled.clone() };
    let plant = Plant::start(&bus, &config, &[], working)?;
    let (mut hot, mut others) = (0, 0);
    let end = WARMUP + Duration::from_secs(seconds);
    while begun.elapsed() < end {
        let due = |rate: u64| (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        let append = |symbol: Symbol, seq: u64| {
            let value = tick(symbol, seq, begun.elapsed());
            log.append(TOPIC, &[Message { key: symbol.as_bytes(), value: Some(&value), time: Timestamp(0) }])
        };
        while hot < due(RATE) {
            hot += 1;
            append(hot_symbol, hot)?;
        }
        while others < due(EACH * NEIGHBOURS as u64) {
            let symbol = neighbours[others as usize % NEIGHBOURS];
            others += 1;
            append(symbol, others.div_ceil(NEIGHBOURS as u64))?;
        }
        std::thread::sleep(Duration::from_micros(500)); // until the next is due
    }
    // Without moving, the loop may be seconds behind: what has not been handled by now counts as waiting until now.
    let missing = others.saturating_sub(handled.load(Ordering::Relaxed));
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let rate = (EACH * NEIGHBOURS as u64) as f64;
    for n in 0..missing {
        found.saturating_record(((n as f64 / rate * 1e9) as u64).max(1));
    }
    // It may have much left to do, and is not waited for.
    std::thread::spawn(move || drop(plant));
    let at = |quantile: f64| Duration::from_nanos(found.value_at_quantile(quantile));
    Ok((at(0.5), at(0.99)))
}

/// With 90 % and 180 % of a loop: the neighbours' 99th percentile stays within twice the control's, or 5 ms above it.
pub(super) fn run(options: &Options) -> Result<Told, BenchError> {
    let seconds = if options.full { 20 } else { 5 };
    let mut checks = 0;
    let (_, control) = measure(Cost::Nothing, true, seconds)?;
    let limit = options.limit((control * 2).max(control + Duration::from_millis(5)));
    let mut told = Vec::new();
    for (name, cost) in [
        ("90 % waiting", Cost::Waiting(Duration::from_millis(10))),
        ("180 % waiting", Cost::Waiting(Duration::from_millis(20))),
        ("90 % computing", Cost::Computing(Duration::from_millis(10))),
        ("180 % computing", Cost::Computing(Duration::from_millis(20))),
    ] {
        let (_, with) = measure(cost, true, seconds)?;
        check(&mut checks, with <= limit, || {
            format!("{name}: the neighbours' p99 is {with:?}, with a control of {control:?}")
        })?;
        told.push(format!("{name} {:.2} ms", with.as_secs_f64() * 1000.0));
    }
    let (_, held) = measure(Cost::Waiting(Duration::from_millis(20)), false, seconds)?;
    check(&mut checks, held > limit, || {
        format!("without moving the hot symbol nothing is held up ({held:?}): this measures nothing")
    })?;
    Ok(Told {
        checks,
        text: format!(
            "neighbours' p99: control {:.2} ms; {}; 180 % waiting without moving the symbol {:.0} ms",
            control.as_secs_f64() * 1000.0,
            told.join(", "),
            held.as_secs_f64() * 1000.0
        ),
    })
}
