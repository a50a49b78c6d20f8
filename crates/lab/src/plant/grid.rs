//! Partitions by loops, with the symbol as the key and every replica's word for it: nothing may be out of order. And the monitor can fail: settings
//! that break order or lose are seen to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;
use hoga_feed::bus::{Bus, LogBus};
use hoga_feed::monitor::explain::{Blame, explain};
use hoga_feed::monitor::{Counts, SymbolOrder};
use hoga_feed::plant::{Batch, Handler, Plant, PlantConfig};
use hoga_feed::{FeedTick, Symbol};
use hoga_log::event_log::{EventLog, Message, StoredMessage, TopicSpec};
use hoga_log::kafka::{Acks, KafkaConfig, KafkaLog, LooseProducer};

use super::{Options, Told, check};
use crate::orders::BenchError;
use crate::services::Service;

const TOPIC: &str = "market.ticks";
const SYMBOLS: usize = 60;
const LONG: Duration = Duration::from_secs(120);

fn tick(symbol: Symbol, seq: u64, place: u64) -> Vec<u8> {
    let trade = Tick {
        time: Timestamp(1_700_000_000_000_000 + seq as i64),
        id: TradeId(seq),
        price: Price(100),
        qty: Qty(1),
        quote: Amount(1),
        taker_side: Side::Buy,
    };
    let mut bytes = Vec::new();
    FeedTick { symbol, epoch: 1, seq, received: trade.time, tick: trade }.encode(place, &mut bytes);
    bytes
}

fn symbols() -> Result<Vec<Symbol>, BenchError> {
    let names = (0..SYMBOLS).map(|n| Symbol::parse(&format!("G{n:02}")));
    names.collect::<Result<_, _>>().map_err(|error| BenchError::Unfit(error.to_string()))
}

/// Follows the numbers of each symbol over all loops: for a symbol whose ticks are in several lanes, too.
#[derive(Clone, Default)]
struct Watching(Arc<Mutex<Counts>>);

impl Handler for Watching {
    type State = SymbolOrder;

    fn open(&mut self, _: Symbol) -> SymbolOrder {
        SymbolOrder::new()
    }

    fn ticks(&mut self, order: &mut SymbolOrder, ticks: &[FeedTick]) {
        for tick in ticks {
            order.number(tick.epoch, tick.seq);
        }
    }

    fn bad(&mut self, _: u32, _: &StoredMessage, _: &str) {}

    fn flush(&mut self, _: Option<Batch>) {}

    fn close(&mut self, _: Symbol, order: SymbolOrder) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(order.counts());
    }
}

/// Reads everything with so many loops; what happened to the numbers.
fn read(log: &Arc<dyn EventLog>, loops: u32, at_most: usize) -> Result<(Counts, Arc<dyn Bus>), BenchError> {
    let bus: Arc<dyn Bus> = Arc::new(LogBus::new(log.clone(), TOPIC)?);
    let ends = (0..bus.lanes()).map(|lane| bus.end(lane)).collect::<Result<Vec<_>, _>>()?;
    let watching = Watching::default();
    let config = PlantConfig { read: at_most, ..PlantConfig::new(loops) };
    let plant = Plant::start(&bus, &config, &[], |_| watching.clone())?;
    if !plant.wait_handled(&ends, LONG) {
        return Err(BenchError::Unfit(format!("{:?} of {ends:?} were read within {LONG:?}", plant.lanes())));
    }
    plant.stop()?;
    let counts = *watching.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((counts, bus))
}

fn fresh(kafka: &Service, name: &str, partitions: u32) -> Result<(KafkaConfig, Arc<KafkaLog>), BenchError> {
    let config = KafkaConfig { topic_prefix: format!("{name}."), ..KafkaConfig::new(kafka.address()) };
    let log = Arc::new(KafkaLog::open(config.clone())?);
    log.create_topic(&TopicSpec::delete(TOPIC, partitions, 1 << 30))?;
    Ok((config, log))
}

/// The grid, and three ways to break it.
pub(super) fn run(options: &Options) -> Result<Told, BenchError> {
    let kafka = Service::kafka(1)?;
    let mut checks = 0;
    let all: Vec<(u32, u32)> = [1, 3, 6, 12].iter().flat_map(|p| [1, 3, 6].map(|l| (*p, l))).collect();
    let short = vec![(1, 1), (3, 3), (6, 1), (12, 6)];
    let (grid, rounds) = if options.full { (all, 1000) } else { (short, 200) };
    let symbols = symbols()?;
    for (partitions, loops) in &grid {
        let (_, kafka_log) = fresh(&kafka, &format!("grid-{partitions}-{loops}"), *partitions)?;
        let log: Arc<dyn EventLog> = kafka_log.clone();
        let mut places = vec![0; *partitions as usize];
        for seq in 1..=rounds {
            let mut values = Vec::new();
            for symbol in &symbols {
                let place = &mut places[log.partition_of(TOPIC, symbol.as_bytes())? as usize];
                *place += 1;
                values.push(tick(*symbol, seq, *place));
            }
            let messages: Vec<Message<'_>> = symbols
                .iter()
                .zip(&values)
                .map(|(symbol, value)| Message {
                    key: symbol.as_bytes(),
                    value: Some(value),
                    time: Timestamp(1),
                })
                .collect();
            log.append(TOPIC, &messages)?;
        }
        log.sync()?;
        let (counts, _) = read(&log, *loops, 512)?;
        let expected = Counts { ticks: rounds * SYMBOLS as u64, ..Counts::default() };
        check(&mut checks, counts == expected, || {
            format!("{partitions} partitions, {loops} loops, key = symbol, acks = all: {counts:?}")
        })?;
        kafka_log.close(Duration::from_secs(2));
    }
    let reordered = two_connections(&kafka, symbols[0], &mut checks)?;
    let keyless = keyless(&kafka, symbols[0], &mut checks)?;
    let lost = broker_killed(&kafka, symbols[0], &mut checks)?;
    Ok(Told {
        checks,
        text: format!(
            "{} settings of partitions and loops, {} ticks each: 0 out of order, 0 lost; acks=0 over two connections: {reordered} out of order; \
             without a key over 3 partitions: {keyless} out of order, and the producer is named; acks=0 and the broker killed: {lost} lost without an error",
            grid.len(),
            rounds * SYMBOLS as u64
        ),
    })
}

/// One symbol over two connections in turn, each of which lets messages gather for another time.
fn two_connections(kafka: &Service, symbol: Symbol, checks: &mut u64) -> Result<u64, BenchError> {
    let (config, kafka_log) = fresh(kafka, "two", 1)?;
    let log: Arc<dyn EventLog> = kafka_log.clone();
    let slow = KafkaConfig { linger: Duration::from_millis(20), ..config.clone() };
    let fast = KafkaConfig { linger: Duration::ZERO, ..config };
    let producers = [LooseProducer::open(&slow, Acks::None)?, LooseProducer::open(&fast, Acks::None)?];
    for seq in 1..=2000u64 {
        let value = tick(symbol, seq, seq);
        producers[(seq % 2) as usize].send(TOPIC, Some(0), Some(symbol.as_bytes()), &value)?;
    }
    producers.iter().try_for_each(|producer| producer.flush(LONG))?;
    wait_for(&log, 2000)?;
    let (counts, bus) = read(&log, 1, 512)?;
    check(checks, counts.violations > 0 && counts.lost() == 0, || {
        format!("acks = 0 over two connections in turn: the monitor sees nothing: {counts:?}")
    })?;
    let found = explain(&*bus, symbol, Some(&counts))?;
    check(checks, found.blame == Blame::Producer, || {
        format!("the producer is to blame, not {:?}", found.blame)
    })?;
    kafka_log.close(Duration::from_secs(2));
    Ok(counts.violations)
}

/// A hot symbol over three partitions in turn, as it goes without a key.
fn keyless(kafka: &Service, symbol: Symbol, checks: &mut u64) -> Result<u64, BenchError> {
    let (config, kafka_log) = fresh(kafka, "keyless", 3)?;
    let log: Arc<dyn EventLog> = kafka_log.clone();
    let producer = LooseProducer::open(&config, Acks::All)?;
    for seq in 1..=3000u64 {
        producer.send(TOPIC, Some((seq % 3) as u32), None, &tick(symbol, seq, seq.div_ceil(3)))?;
    }
    producer.flush(LONG)?;
    wait_for(&log, 3000)?;
    // One loop reads all three; each read takes a stretch of one of them.
    let (counts, bus) = read(&log, 1, 64)?;
    check(checks, counts.violations > 0, || format!("without a key: the monitor sees nothing: {counts:?}"))?;
    let found = explain(&*bus, symbol, Some(&counts))?;
    check(checks, found.blame == Blame::Producer && found.places.len() == 3, || {
        format!("without a key: {}", found.text)
    })?;
    kafka_log.close(Duration::from_secs(2));
    Ok(counts.violations)
}

/// A producer that asks for no confirmation while the broker is killed.
fn broker_killed(kafka: &Service, symbol: Symbol, checks: &mut u64) -> Result<u64, BenchError> {
    let (config, kafka_log) = fresh(kafka, "killed", 1)?;
    let log: Arc<dyn EventLog> = kafka_log.clone();
    let producer = LooseProducer::open(&KafkaConfig { linger: Duration::ZERO, ..config }, Acks::None)?;
    let mut seq = 0;
    let mut send = |count: u64| -> Result<(), BenchError> {
        for _ in 0..count {
            seq += 1;
            producer.send(TOPIC, Some(0), Some(symbol.as_bytes()), &tick(symbol, seq, seq))?;
            std::thread::sleep(Duration::from_micros(200)); // the rate of the flow
        }
        Ok(())
    };
    send(500)?;
    producer.flush(LONG)?;
    wait_for(&log, 500)?;
    // It hangs first, so that something is in the sockets when it dies.
    kafka.run(&["stop"])?;
    send(500)?;
    kafka.kill()?;
    kafka.up()?;
    send(500)?;
    producer.flush(LONG)?;
    let sent = 1500;
    // The last one has arrived.
    super::wait("the last tick", LONG, || {
        let tail = log.tail(TOPIC, 0).ok()??;
        FeedTick::decode(tail.value.as_deref()?).ok().filter(|tick| tick.seq == sent)
    })?;
    let (counts, _) = read(&log, 1, 512)?;
    check(checks, counts.lost() > 0, || {
        format!("acks = 0 and the broker killed: the monitor sees nothing: {counts:?}")
    })?;
    kafka_log.close(Duration::from_secs(2));
    Ok(counts.lost())
}

fn wait_for(log: &Arc<dyn EventLog>, count: u64) -> Result<(), BenchError> {
    let lanes = log.topics().iter().find(|topic| topic.name == TOPIC).map_or(0, |topic| topic.partitions);
    super::wait("all ticks in the log", LONG, || {
        let ends: u64 = (0..lanes).map(|lane| log.end_offset(TOPIC, lane).unwrap_or(0)).sum();
        (ends >= count).then_some(())
    })?;
    Ok(())
}
