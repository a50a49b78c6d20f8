//! The assets and instruments of the built-in market. Steps and limits are like those of Binance Spot.
//!
//! One differs: Binance trades ETHBTC in steps of 0.0001 ETH at ticks of 0.00001 BTC, whose product is finer than 10⁻⁸. Hoga's products
//! are always exact (see [`Instrument::check`]), so the step here is 0.001.

use hoga_core::command::Body;
use hoga_core::ids::{AssetId, MarketId};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty, SCALE};

/// An asset: its name, and how many whole units a simulated trader gets as a start.
#[derive(Clone, Copy, Debug)]
pub struct AssetSpec {
    /// Its name.
    pub name: &'static str,
    /// Whole units of a trader's first deposit.
    pub stake: i64,
}

/// The assets, in the order of their numbers.
pub const ASSETS: [AssetSpec; 10] = [
    AssetSpec { name: "BTC", stake: 5_000 },
    AssetSpec { name: "ETH", stake: 100_000 },
    AssetSpec { name: "SOL", stake: 2_000_000 },
    AssetSpec { name: "XRP", stake: 100_000_000 },
    AssetSpec { name: "DOGE", stake: 200_000_000 },
    AssetSpec { name: "USDT", stake: 500_000_000 },
    AssetSpec { name: "ADA", stake: 100_000_000 },
    AssetSpec { name: "LTC", stake: 1_000_000 },
    AssetSpec { name: "LINK", stake: 5_000_000 },
    AssetSpec { name: "AVAX", stake: 3_000_000 },
];

/// Place of the dollar-like asset in [`ASSETS`].
pub const USDT: u16 = 5;

/// A market of the built-in ten: its steps, and where the model begins.
#[derive(Clone, Copy, Debug)]
pub struct MarketSpec {
    /// The symbol.
    pub symbol: &'static str,
    /// Place of the base asset in [`ASSETS`].
    pub base: u16,
    /// Place of the quote asset in [`ASSETS`].
    pub quote: u16,
    /// Price step.
    pub tick: Price,
    /// Quantity step, and the lowest quantity.
    pub lot: Qty,
    /// The highest quantity of an order, in whole units.
    pub lot_max: i64,
    /// The lowest notional, in units of the quote asset.
    pub notional_min: Amount,
    /// The price at which the model begins.
    pub start: Price,
}

/// The markets, in the order of their numbers.
pub const MARKETS: [MarketSpec; 10] = [
    market("BTCUSDT", [0, 5], [1_000_000, 1_000], 9_000, 5 * SCALE, 95_000 * SCALE),
    market("ETHUSDT", [1, 5], [1_000_000, 10_000], 9_000, 5 * SCALE, 3_400 * SCALE),
    market("SOLUSDT", [2, 5], [1_000_000, 100_000], 90_000, 5 * SCALE, 190 * SCALE),
    market("XRPUSDT", [3, 5], [10_000, 10_000_000], 9_222_449, 5 * SCALE, 220_000_000),
    market("DOGEUSDT", [4, 5], [1_000, 100_000_000], 9_000_000, SCALE, 32_000_000),
    market("ETHBTC", [1, 0], [1_000, 100_000], 100_000, 10_000, 3_579_000),
    market("ADAUSDT", [6, 5], [10_000, 10_000_000], 900_000, 5 * SCALE, 90_000_000),
    market("LTCUSDT", [7, 5], [1_000_000, 100_000], 90_000, 5 * SCALE, 105 * SCALE),
    market("LINKUSDT", [8, 5], [1_000_000, 1_000_000], 90_000, 5 * SCALE, 22 * SCALE),
    market("AVAXUSDT", [9, 5], [1_000_000, 1_000_000], 90_000, 5 * SCALE, 37 * SCALE),
];

const fn market(
    symbol: &'static str,
    [base, quote]: [u16; 2],
    [tick, lot]: [i64; 2],
    lot_max: i64,
    notional_min: i64,
    start: i64,
) -> MarketSpec {
    MarketSpec {
        symbol,
        base,
        quote,
        tick: Price(tick),
        lot: Qty(lot),
        lot_max,
        notional_min: Amount(notional_min),
        start: Price(start),
    }
}

/// The instrument of a market.
pub fn instrument(id: MarketId, spec: &MarketSpec) -> Instrument {
    Instrument {
        id,
        symbol: Name::new(spec.symbol).unwrap_or_default(),
        base: AssetId(spec.base),
        quote: AssetId(spec.quote),
        state: TradingState::Open,
        price_tick: spec.tick,
        price_min: spec.tick,
        price_max: Price(spec.tick.0 * 100_000_000),
        lot_step: spec.lot,
        lot_min: spec.lot,
        lot_max: Qty(spec.lot_max * SCALE),
        market_lot_max: Qty(spec.lot_max * SCALE / 10),
        notional_min: spec.notional_min,
        notional_max: Amount(9_000_000 * SCALE),
        percent_up: 500,
        percent_down: 20,
        market_band_bps: 500,
        max_orders: 1_000,
        max_algo_orders: 50,
        max_position: Qty::ZERO,
        maker_fee_ppm: 1_000,
        taker_fee_ppm: 1_000,
    }
}

/// The commands that define the built-in market on an empty exchange: the assets, then the instruments.
pub fn default_market() -> Vec<Body> {
    let assets = ASSETS.iter().zip(0..).map(|(asset, id)| Body::AddAsset {
        id: AssetId(id),
        name: Name::new(asset.name).unwrap_or_default(),
    });
    let markets =
        MARKETS.iter().zip(0..).map(|(spec, id)| Body::SetInstrument(instrument(MarketId(id), spec)));
    assets.chain(markets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instrument_is_exact_and_begins_on_its_tick() {
        for (spec, id) in MARKETS.iter().zip(0..) {
            let instrument = instrument(MarketId(id), spec);
            assert!(instrument.check(), "{}", spec.symbol);
            assert_eq!(spec.start.0 % spec.tick.0, 0, "{}", spec.symbol);
            let (base, quote) = (ASSETS[usize::from(spec.base)].name, ASSETS[usize::from(spec.quote)].name);
            assert_eq!(spec.symbol, format!("{base}{quote}"));
        }
        assert_eq!(default_market().len(), ASSETS.len() + MARKETS.len());
    }
}
