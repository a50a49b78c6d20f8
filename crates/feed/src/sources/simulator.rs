//! A market that is made up: seeded, so that the same configuration gives the same trades.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Price, Qty, SCALE, notional};
use hoga_core::order::Side;

use super::{Flow, Source};
use crate::gateway::SourceTrade;
use crate::symbol::{Symbol, SymbolError};

/// A symbol that trades more often than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotSymbol {
    /// Which, from 0.
    pub number: u32,
    /// Time between two of its trades.
    pub interval: Duration,
}

/// A time of many trades, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// From the beginning of one to that of the next.
    pub every: Duration,
    /// How long it lasts; less than `every`.
    pub lasts: Duration,
    /// How many times as often symbols trade in it.
    pub factor: u32,
}

/// The made-up market.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatorConfig {
    /// Of everything that is random.
    pub seed: u64,
    /// How many symbols, named `SIM0000` and so on (202).
    pub symbols: u32,
    /// Time between two trades of a symbol (100 ms). Symbols begin at different moments of it.
    pub interval: Duration,
    /// Symbols with an interval of their own.
    pub hot: Vec<HotSymbol>,
    /// Bursts, if any.
    pub burst: Option<Burst>,
    /// The time of the first moment; trades are dated by it.
    pub start: Timestamp,
    /// Trades of each symbol are numbered from the one above this (0): higher at each start, where those of an earlier one are remembered.
    pub first_id: u64,
    /// Trades after which it ends; none: never.
    pub most: Option<u64>,
}

impl Default for SimulatorConfig {
    fn default() -> SimulatorConfig {
        SimulatorConfig {
            seed: 1,
            symbols: 202,
            interval: Duration::from_millis(100),
            hot: Vec::new(),
            burst: None,
            start: Timestamp(1_700_000_000_000_000),
            first_id: 0,
            most: None,
        }
    }
}

/// Why a market cannot be made up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulatorError {
    /// An impossible number.
    #[error("the simulated feed: {0}")]
    Config(String),
    /// A name that is none.
    #[error("the simulated feed: {0}")]
    Symbol(#[from] SymbolError),
}

struct Market {
    symbol: Symbol,
    interval: u64,
    price: i64,
    trades: u64,
    random: u64,
}

/// Trades of made-up markets. Each price is a walk of its own in steps of a hundredth of a percent; all numbers are integers.
pub struct Simulator {
    config: SimulatorConfig,
    markets: Vec<Market>,
    /// When each market trades next, in nanoseconds since the start, the soonest first; markets of one moment in the order of their numbers.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    given: u64,
}

/// The first price.
const PRICE: i64 = 100 * SCALE;

impl Simulator {
    /// Makes it up.
    ///
    /// # Errors
    /// [`SimulatorError`].
    pub fn new(config: SimulatorConfig) -> Result<Simulator, SimulatorError> {
        let fault = |text: &str| Err(SimulatorError::Config(text.into()));
        if config.symbols == 0 || config.symbols > 1_000_000 {
            return fault("symbols are from 1 to 1,000,000");
        }
        if config.interval.is_zero() || config.hot.iter().any(|hot| hot.interval.is_zero()) {
            return fault("the time between two trades of a symbol must be above 0");
        }
        if config.hot.iter().any(|hot| hot.number >= config.symbols) {
            return fault("a hot symbol has a number that no symbol has");
        }
        if config
            .burst
            .is_some_and(|burst| burst.factor == 0 || burst.lasts.is_zero() || burst.lasts >= burst.every)
        {
            return fault("a burst lasts for a part of the time between two, and its factor is 1 or more");
        }
        let (mut markets, mut due) = (Vec::new(), BinaryHeap::new());
        for number in 0..config.symbols {
            let hot = config.hot.iter().find(|hot| hot.number == number);
            let interval = nanos(hot.map_or(config.interval, |hot| hot.interval));
            // Distinct and not 0, as the generator wants it.
            let mut random = (config.seed ^ u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1;
            let first = next(&mut random) % interval;
            due.push(Reverse((first, number)));
            let symbol = Symbol::parse(&format!("SIM{number:04}"))?;
            markets.push(Market { symbol, interval, price: PRICE, trades: 0, random });
        }
        Ok(Simulator { config, markets, due, given: 0 })
    }

    /// Its symbols.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol> + '_ {
        self.markets.iter().map(|market| market.symbol)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// xorshift64* (Vigna, 2016): a seed and speed are what is needed.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

impl Market {
    fn trade(&mut self, time: Timestamp, first_id: u64) -> SourceTrade {
        let random = next(&mut self.random);
        let step = (random >> 60) as i64 - 8 + (random >> 59 & 1) as i64;
        // Between a hundredth and a hundred times the first price.
        self.price = (self.price + self.price / 10_000 * step).clamp(PRICE / 100, PRICE * 100);
        self.trades += 1;
        let (price, qty) = (Price(self.price), Qty((1 + (random >> 20 & 0xFFF) as i64) * (SCALE / 1000)));
        let tick = Tick {
            time,
            id: TradeId(first_id + self.trades),
            price,
            qty,
            quote: notional(price, qty).expect("a price up to 10,000 times a quantity up to 5 fits"),
            taker_side: if random & 1 == 0 { Side::Buy } else { Side::Sell },
        };
        SourceTrade { symbol: self.symbol, received: time, tick }
    }
}

impl Source for Simulator {
    fn poll(&mut self, at: Duration, most: usize, out: &mut Vec<SourceTrade>) -> Flow {
        let at = nanos(at);
        for _ in 0..most {
            if self.config.most == Some(self.given) {
                return Flow::Ended;
            }
            let Some(Reverse((time, number))) =
                self.due.peek().copied().filter(|Reverse((time, _))| *time <= at)
            else {
                break;
            };
            self.due.pop();
            let market = &mut self.markets[number as usize];
            let micros = i64::try_from(time / 1000).unwrap_or(i64::MAX);
            let traded = Timestamp(self.config.start.0.saturating_add(micros));
            out.push(market.trade(traded, self.config.first_id));
            let bursts = self.config.burst.filter(|burst| time % nanos(burst.every) < nanos(burst.lasts));
            let interval = (market.interval / bursts.map_or(1, |burst| u64::from(burst.factor))).max(1);
            self.due.push(Reverse((time.saturating_add(interval), number)));
            self.given += 1;
        }
        if self.config.most == Some(self.given) { Flow::Ended } else { Flow::Open }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn run(config: &SimulatorConfig, seconds: u64, step: Duration) -> Vec<SourceTrade> {
        let (mut source, mut out) = (Simulator::new(config.clone()).unwrap(), Vec::new());
        let mut at = Duration::ZERO;
        while at <= Duration::from_secs(seconds) {
            let before = out.len();
            source.poll(at, 1000, &mut out);
            if out.len() - before < 1000 {
                at += step;
            }
        }
        // What both have been asked for, whatever the steps.
        out.retain(|trade| trade.tick.time.0 < config.start.0 + seconds as i64 * 1_000_000);
        out
    }

    fn by_symbol(trades: &[SourceTrade]) -> BTreeMap<String, Vec<Tick>> {
        let mut found: BTreeMap<String, Vec<Tick>> = BTreeMap::new();
        trades.iter().for_each(|trade| found.entry(trade.symbol.to_string()).or_default().push(trade.tick));
        found
    }

    #[test]
    fn the_same_seed_gives_the_same_trades_however_often_it_is_asked() {
        let config = SimulatorConfig { symbols: 20, ..SimulatorConfig::default() };
        let often = run(&config, 5, Duration::from_millis(5));
        assert!(often == run(&config, 5, Duration::from_millis(500)));
        assert!(often != run(&SimulatorConfig { seed: 2, ..config }, 5, Duration::from_millis(5)));
        assert!(often.is_sorted_by_key(|trade| trade.tick.time));
        for (symbol, ticks) in by_symbol(&often) {
            assert_eq!(ticks.len(), 50, "{symbol}: ten a second");
            assert!(ticks.iter().map(|tick| tick.id.0).eq(1..=50));
            assert!(ticks.iter().any(|tick| tick.price != ticks[0].price), "{symbol} moves");
        }
    }

    #[test]
    fn a_hot_symbol_and_bursts_trade_more_often() {
        let hot = vec![HotSymbol { number: 3, interval: Duration::from_millis(1) }];
        let config = SimulatorConfig { symbols: 10, hot, ..SimulatorConfig::default() };
        let found = by_symbol(&run(&config, 2, Duration::from_millis(10)));
        assert_eq!((found["SIM0003"].len(), found["SIM0004"].len()), (2000, 20));
        let burst = Burst { every: Duration::from_secs(2), lasts: Duration::from_secs(1), factor: 5 };
        let config = SimulatorConfig { symbols: 1, burst: Some(burst), ..SimulatorConfig::default() };
        let trades = run(&config, 4, Duration::from_millis(10));
        let of_second =
            |n: i64| trades.iter().filter(|t| (t.tick.time.0 - config.start.0) / 1_000_000 == n).count();
        assert!(
            (45..=50).contains(&of_second(0))
                && of_second(1) <= 10
                && of_second(2) >= 45
                && of_second(3) <= 10
        );
    }

    #[test]
    fn it_ends_when_it_is_told_to_and_refuses_what_it_cannot_make_up() {
        let config = SimulatorConfig { symbols: 3, most: Some(10), ..SimulatorConfig::default() };
        let (mut source, mut out) = (Simulator::new(config.clone()).unwrap(), Vec::new());
        assert_eq!(source.poll(Duration::from_secs(100), 4, &mut out), Flow::Open);
        assert_eq!(source.poll(Duration::from_secs(100), 400, &mut out), Flow::Ended);
        assert_eq!((out.len(), source.poll(Duration::from_secs(200), 400, &mut out)), (10, Flow::Ended));
        for wrong in [
            SimulatorConfig { symbols: 0, ..config.clone() },
            SimulatorConfig { interval: Duration::ZERO, ..config.clone() },
            SimulatorConfig {
                hot: vec![HotSymbol { number: 3, interval: Duration::from_secs(1) }],
                ..config.clone()
            },
        ] {
            assert!(Simulator::new(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
