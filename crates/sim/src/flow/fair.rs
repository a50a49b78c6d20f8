//! The fair values that the market wanders around: correlated random walks with trends, news and changing volatility.

use crate::market::MARKETS;
use crate::rng::Rng;
use hoga_core::ids::MarketId;
use hoga_core::money::Price;

/// Place of ETHBTC, which follows from ETHUSDT and BTCUSDT; every other one is driven by a walk of its own.
const RATIO: usize = 5;
/// Volatility of each, in parts of the price for the square root of a second (0.4e-4 is about 1.2 % a day). ETHBTC has none of its own.
const SIGMA: [f64; MARKETS.len()] =
    [0.4e-4, 0.5e-4, 0.75e-4, 0.7e-4, 0.85e-4, 0.0, 0.75e-4, 0.6e-4, 0.7e-4, 0.8e-4];
/// How much of a market's noise is everybody's.
const COMMON: f64 = 0.85;
/// Seconds in which things fade to a third: volatility after news, the news itself as it is priced in, the pull to the start price.
const CALM_SECONDS: f64 = 40.0;
const NEWS_SECONDS: f64 = 5.0;
const PULL_SECONDS: f64 = 43_200.0;
/// Mean seconds between news on one market, news on all, and changes of the trend.
const NEWS_EVERY: f64 = 1_200.0;
const WIDE_NEWS_EVERY: f64 = 400.0;
const TREND_LASTS: f64 = 300.0;
/// Median size of news, in parts of the price, and of the trend in one second.
const NEWS_SIZE: f64 = 15e-4;
const TREND_SIZE: f64 = 1.5e-6;

#[derive(Clone, Copy, Debug)]
struct Walk {
    /// Price at which it began.
    start: f64,
    /// Logarithm of price over start.
    log: f64,
    /// News that is not priced in yet.
    pending: f64,
    /// Volatility as a multiple of the ordinary one; 1 when calm.
    heat: f64,
}

/// The fair values.
#[derive(Clone, Debug)]
pub(crate) struct Fair {
    /// One a market; the one at [`RATIO`] stands still.
    walks: [Walk; MARKETS.len()],
    /// What ETHBTC is off the ratio of the other two, as a logarithm.
    basis: f64,
    trend: f64,
    trend_left: f64,
}

impl Fair {
    pub(crate) fn new() -> Fair {
        let walk = |i: usize| Walk { start: MARKETS[i].start.0 as f64, log: 0.0, pending: 0.0, heat: 1.0 };
        Fair { walks: std::array::from_fn(walk), basis: 0.0, trend: 0.0, trend_left: 0.0 }
    }

    /// Goes on from a price that the market had.
    pub(crate) fn anchor(&mut self, market: MarketId, price: Price) {
        if let Some(walk) = self.walks.get_mut(usize::from(market.0))
            && price.0 > 0
        {
            walk.log = (price.0 as f64 / walk.start).ln();
        }
    }

    /// Lets `dt` seconds pass.
    pub(crate) fn advance(&mut self, dt: f64, rng: &mut Rng) {
        self.trend_left -= dt;
        if self.trend_left <= 0.0 {
            self.trend_left = rng.exponential(TREND_LASTS);
            self.trend = TREND_SIZE * rng.normal();
        }
        let wide_news = rng.chance(dt / WIDE_NEWS_EVERY).then(|| news(rng));
        let (common, root) = (rng.normal(), dt.sqrt());
        let own_share = (1.0 - COMMON * COMMON).sqrt();
        for (market, (walk, sigma)) in self.walks.iter_mut().zip(SIGMA).enumerate() {
            if market == RATIO {
                continue;
            }
            let own_news = rng.chance(dt / NEWS_EVERY).then(|| news(rng));
            for size in [wide_news, own_news].into_iter().flatten() {
                walk.pending += size;
                walk.heat = (walk.heat + size.abs() / NEWS_SIZE).min(5.0);
            }
            let priced = walk.pending * (1.0 - (-dt / NEWS_SECONDS).exp());
            walk.pending -= priced;
            walk.heat = 1.0 + (walk.heat - 1.0) * (-dt / CALM_SECONDS).exp();
            let noise = sigma * root * walk.heat * (COMMON * common + own_share * rng.normal());
            walk.log += noise + priced + self.trend * dt - walk.log * (dt / PULL_SECONDS).min(1.0);
        }
        self.basis += 0.1e-4 * root * rng.normal() - self.basis * (dt / 30.0).min(1.0);
    }

    /// The fair value of a market, in units of 10⁻⁸ (not on a tick).
    pub(crate) fn value(&self, market: usize) -> f64 {
        let of = |i: usize| self.walks[i].start * self.walks[i].log.exp();
        if market == RATIO { of(1) / of(0) * 1e8 * self.basis.exp() } else { of(market) }
    }

    /// How hot a market is: 1 when calm, up to 5 after news.
    pub(crate) fn heat(&self, market: usize) -> f64 {
        let of = |i: usize| self.walks[i].heat;
        if market == RATIO { of(0).max(of(1)) } else { of(market) }
    }
}

fn news(rng: &mut Rng) -> f64 {
    let size = NEWS_SIZE * rng.lognormal(0.5);
    if rng.chance(0.5) { size } else { -size }
}
