//! What several tests of this crate need.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::Side;
use hoga_log::event_log::{EventLog, MemoryLog, Message, TopicSpec};

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

pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
