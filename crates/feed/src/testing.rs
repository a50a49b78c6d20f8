//! What several tests of this crate need.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::Side;
use hoga_log::event_log::{EventLog, MemoryLog, Message, TopicSpec};

use crate::bus::{Bus, LogBus};
use crate::symbol::Symbol;
use crate::tick::FeedTick;

pub(crate) const TOPIC: &str = "market.ticks";
/// Longer than anything should take.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A tick with this number; twenty of them are a second.
pub(crate) fn tick(symbol: &str, seq: u64) -> FeedTick {
    let price = 100 * SCALE + (seq as i64 * 7_919) % 1000;
    FeedTick {
        symbol: Symbol::parse(symbol).unwrap(),
        epoch: 1,
        seq,
        received: Timestamp(seq as i64),
        tick: Tick {
            time: Timestamp(1_700_000_000_000_000 + seq as i64 * 50_000),
            id: TradeId(seq),
            price: Price(price),
            qty: Qty(SCALE),
            quote: Amount(price),
            taker_side: Side::Buy,
        },
    }
}

pub(crate) fn append(log: &Arc<dyn EventLog>, ticks: &[FeedTick]) {
    for (place, tick) in (1..).zip(ticks) {
        let mut bytes = Vec::new();
        tick.encode(place, &mut bytes);
        let message = Message { key: tick.symbol.as_bytes(), value: Some(&bytes), time: tick.received };
        log.append(TOPIC, &[message]).unwrap();
    }
}

pub(crate) fn new_log(lanes: u32) -> Arc<dyn EventLog> {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    log.create_topic(&TopicSpec::delete(TOPIC, lanes, u64::MAX)).unwrap();
    log
}

pub(crate) fn bus(log: &Arc<dyn EventLog>) -> Arc<dyn Bus> {
    Arc::new(LogBus::new(log.clone(), TOPIC).unwrap())
}

pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The Redis server for tests; none, and a word about it, where none was named.
#[cfg(feature = "redis")]
#[expect(clippy::print_stdout, reason = "what a test leaves out must not go unnoticed")]
pub(crate) fn redis(what: &str) -> Option<String> {
    let url = std::env::var("HOGA_TEST_REDIS").ok();
    if url.is_none() {
        println!("SKIP {what}: HOGA_TEST_REDIS names no server");
    }
    url
}

/// A name that no other test has.
#[cfg(feature = "redis")]
pub(crate) fn fresh(name: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("test-{name}-{nanos}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
