//! Detected events: a price that jumps, a volume that surges, beside a moving average.

use hoga_core::ids::Timestamp;
use hoga_core::money::write_units;

use crate::symbol::Symbol;
use crate::tick::FeedTick;

/// When something is an event. Ratios are thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectConfig {
    /// Weight α of the newest value in the exponential moving averages (100: 0.1).
    pub alpha: u32,
    /// A price this far from its average is a spike (20: 2 %).
    pub spike: u32,
    /// A quantity this many times its average is a surge (10,000: ten times).
    pub surge: u32,
    /// Ticks of a symbol before anything of it is an event (30).
    pub warm_up: u32,
}

impl Default for DetectConfig {
    fn default() -> DetectConfig {
        DetectConfig { alpha: 100, spike: 20, surge: 10_000, warm_up: 30 }
    }
}

/// What was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The price is far from its average.
    PriceSpike,
    /// The quantity is a multiple of its average.
    VolumeSurge,
}

impl EventKind {
    /// `price_spike` or `volume_surge`.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::PriceSpike => "price_spike",
            EventKind::VolumeSurge => "volume_surge",
        }
    }

    /// From what [`EventKind::as_str`] gives.
    pub fn parse(text: &str) -> Option<EventKind> {
        [EventKind::PriceSpike, EventKind::VolumeSurge].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A message of the topic `market.events`. It is known by symbol, epoch, seq and kind, so that a repetition can be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectedEvent {
    /// Of which symbol.
    pub symbol: Symbol,
    /// Epoch of the tick that showed it.
    pub epoch: u32,
    /// Its number.
    pub seq: u64,
    /// Its time at the source.
    pub time: Timestamp,
    /// What it is.
    pub kind: EventKind,
    /// The price or the quantity, in 10⁻⁸.
    pub value: i64,
    /// The average before this tick, in 10⁻⁸, cut.
    pub mean: i64,
}

impl DetectedEvent {
    /// Adds it as JSON to `out`: `event` (`price_spike`, `volume_surge`), `symbol`, `epoch`, `seq`, `time` (microseconds since the epoch, UTC), `value`
    /// and `mean` (decimals in text).
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            format!(
                r#"{{"event":"{}","symbol":"{}","epoch":{},"seq":{},"time":{},"value":""#,
                self.kind.as_str(),
                self.symbol,
                self.epoch,
                self.seq,
                self.time.0
            )
            .as_bytes(),
        );
        write_units(out, self.value);
        out.extend_from_slice(br#"","mean":""#);
        write_units(out, self.mean);
        out.extend_from_slice(br#""}"#);
    }
}

/// Fractions of the averages: 16 bits below the unit, so that a small weight of a small value is not lost.
const FRACTION: u32 = 16;

/// An exponential moving average, fixed point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Average(i128);

impl Average {
    /// The first value is the average of itself.
    fn start(value: i64) -> Average {
        Average(i128::from(value) << FRACTION)
    }

    fn take(&mut self, value: i64, alpha: u32) {
        self.0 += ((i128::from(value) << FRACTION) - self.0) * i128::from(alpha) / 1000;
    }

    /// Cut.
    fn value(self) -> i64 {
        i64::try_from(self.0 >> FRACTION).unwrap_or(i64::MAX)
    }
}

/// Watches one symbol.
///
/// **Law:** its events are a pure function of the ticks that it is given, which are those that were new in the order of their numbers. While a price
/// stays far from its average that is one event, not one for each tick; the next comes after it was near again. Surges are single ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detector {
    ticks: u32,
    price: Average,
    volume: Average,
    spiked: bool,
}

impl Detector {
    /// One that has seen nothing.
    pub fn new() -> Detector {
        Detector::default()
    }

    /// Takes a new tick and gives what it shows.
    pub fn take(&mut self, tick: &FeedTick, config: &DetectConfig, mut give: impl FnMut(DetectedEvent)) {
        let (price, qty) = (tick.tick.price.0, tick.tick.qty.0);
        if self.ticks == 0 {
            (self.price, self.volume) = (Average::start(price), Average::start(qty));
        } else {
            let event = |kind, value, mean| DetectedEvent {
                symbol: tick.symbol,
                epoch: tick.epoch,
                seq: tick.seq,
                time: tick.tick.time,
                kind,
                value,
                mean,
            };
            let warm = self.ticks >= config.warm_up;
            let (mean_price, mean_volume) = (self.price.value(), self.volume.value());
            let away = (i128::from(price) - i128::from(mean_price)).abs() * 1000;
            let far = away >= i128::from(mean_price) * i128::from(config.spike);
            if warm && far && !self.spiked {
                give(event(EventKind::PriceSpike, price, mean_price));
            }
            self.spiked = far && (warm || self.spiked);
            let surges = i128::from(qty) * 1000 >= i128::from(mean_volume) * i128::from(config.surge);
            if warm && surges && mean_volume > 0 {
                give(event(EventKind::VolumeSurge, qty, mean_volume));
            }
            self.price.take(price, config.alpha);
            self.volume.take(qty, config.alpha);
        }
        self.ticks = self.ticks.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoga_core::folds::candle::Tick;
    use hoga_core::ids::TradeId;
    use hoga_core::money::{Amount, Price, Qty, SCALE};
    use hoga_core::order::Side;

    fn tick(seq: u64, price: i64, qty: i64) -> FeedTick {
        FeedTick {
            symbol: Symbol::parse("KRW-BTC").unwrap(),
            epoch: 2,
            seq,
            received: Timestamp(0),
            tick: Tick {
                time: Timestamp(seq as i64),
                id: TradeId(seq),
                price: Price(price),
                qty: Qty(qty),
                quote: Amount(0),
                taker_side: Side::Buy,
            },
        }
    }

    fn run(ticks: &[(i64, i64)], config: &DetectConfig) -> Vec<DetectedEvent> {
        let (mut detector, mut events) = (Detector::new(), Vec::new());
        for (seq, (price, qty)) in (1..).zip(ticks) {
            detector.take(&tick(seq, *price, *qty), config, |event| events.push(event));
        }
        events
    }

    #[test]
    fn a_spike_is_told_once_until_the_price_is_near_again() {
        let mut ticks = vec![(100 * SCALE, SCALE); 40];
        ticks.extend([(102 * SCALE, SCALE), (103 * SCALE, SCALE)]);
        ticks.extend(vec![(100 * SCALE, SCALE); 20]);
        ticks.push((97 * SCALE, SCALE));
        let events = run(&ticks, &DetectConfig::default());
        let found: Vec<_> =
            events.iter().map(|event| (event.kind, event.seq, event.value, event.mean / SCALE)).collect();
        assert_eq!(
            found,
            [(EventKind::PriceSpike, 41, 102 * SCALE, 100), (EventKind::PriceSpike, 63, 97 * SCALE, 100)]
        );
    }

    #[test]
    fn a_surge_is_a_multiple_of_the_average() {
        let mut ticks = vec![(SCALE, 3 * SCALE); 40];
        ticks.extend([(SCALE, 30 * SCALE - 1), (SCALE, SCALE), (SCALE, 100 * SCALE)]);
        let events = run(&ticks, &DetectConfig::default());
        assert_eq!(
            events.iter().map(|event| (event.kind, event.seq)).collect::<Vec<_>>(),
            [(EventKind::VolumeSurge, 43)]
        );
        // 0.9 × (0.9 × 3 + 0.1 × 30) + 0.1 × 1
        assert!((events[0].mean - 523 * SCALE / 100).abs() < 10, "{}", events[0].mean);
    }

    #[test]
    fn nothing_is_an_event_before_it_is_warm_and_small_values_count() {
        let config = DetectConfig { warm_up: 5, ..DetectConfig::default() };
        assert_eq!(run(&[(100, 1), (500, 9), (100, 1), (700, 9)], &config), []);
        // An average of one unit of 10⁻⁸ moves too.
        let mut ticks = vec![(1, 1); 10];
        ticks.extend(vec![(2, 1); 30]);
        let events = run(&ticks, &config);
        assert_eq!((events.len(), events[0].seq), (1, 11), "{events:?}");
    }

    #[test]
    fn an_event_is_json() {
        let event = run(
            &[vec![(100 * SCALE, SCALE); 31], vec![(110 * SCALE, SCALE)]].concat(),
            &DetectConfig::default(),
        );
        let mut out = Vec::new();
        event[0].write_json(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"event":"price_spike","symbol":"KRW-BTC","epoch":2,"seq":32,"time":32,"value":"110.00000000","mean":"100.00000000"}"#
        );
    }
}
