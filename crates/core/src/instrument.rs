//! Assets, instruments and their filters.

use crate::ids::{AssetId, MarketId};
use crate::money::{Amount, Price, Qty, SCALE};
use crate::order::coded;

/// A short name of an asset or a symbol, stored inline: 1 to 20 characters of `[A-Z0-9]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    len: u8,
    bytes: [u8; Name::MAX],
}

impl Name {
    /// The longest name, in bytes.
    pub const MAX: usize = 20;

    /// Checks and stores a name.
    pub fn new(text: &str) -> Option<Name> {
        let allowed = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit();
        if text.is_empty() || text.len() > Self::MAX || !text.as_bytes().iter().all(allowed) {
            return None;
        }
        let mut bytes = [0; Self::MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Name { len: text.len() as u8, bytes })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len as usize]).unwrap_or_default()
    }
}

coded!(
    /// Whether a market takes orders.
    TradingState {
        /// Orders are taken and matched.
        Open = 0, "TRADING";
        /// Nothing is taken, cancels neither.
        Halted = 1, "HALT";
        /// Only cancels are taken.
        CancelOnly = 2, "BREAK";
        /// Orders are taken and collected, and matched at one price when the auction ends. Comes later.
        Auction = 3, "AUCTION_MATCH";
    }
);

/// A market's definition: its assets, steps, limits and fees.
///
/// **Invariant** (checked by [`Instrument::check`]): `price_tick × lot_step` is a whole number of units of the quote asset, so price
/// times quantity is always exact and never rounded. Only fees round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instrument {
    /// Its number; must be the next free one when it is added.
    pub id: MarketId,
    /// Its symbol, for example `BTCUSDT`.
    pub symbol: Name,
    /// What is traded.
    pub base: AssetId,
    /// What it is paid with.
    pub quote: AssetId,
    /// State at the start.
    pub state: TradingState,
    /// PRICE_FILTER: step, lowest and highest price.
    pub price_tick: Price,
    /// PRICE_FILTER `minPrice`.
    pub price_min: Price,
    /// PRICE_FILTER `maxPrice`.
    pub price_max: Price,
    /// LOT_SIZE `stepSize`.
    pub lot_step: Qty,
    /// LOT_SIZE `minQty`.
    pub lot_min: Qty,
    /// LOT_SIZE `maxQty`.
    pub lot_max: Qty,
    /// MARKET_LOT_SIZE `maxQty`; its step and minimum are those of LOT_SIZE.
    pub market_lot_max: Qty,
    /// NOTIONAL `minNotional`, applied to market orders too.
    pub notional_min: Amount,
    /// NOTIONAL `maxNotional`.
    pub notional_max: Amount,
    /// PERCENT_PRICE_BY_SIDE: an order's price may not be above `reference × up / 100`, in percent. 0 switches the filter off.
    pub percent_up: u32,
    /// PERCENT_PRICE_BY_SIDE: … nor below `reference × down / 100`, in percent. 0 switches it off.
    pub percent_down: u32,
    /// Price band of market orders: they trade no further than this many basis points from the best price at their arrival. 0: no band.
    pub market_band_bps: u32,
    /// MAX_NUM_ORDERS: open orders of one account.
    pub max_orders: u32,
    /// MAX_NUM_ALGO_ORDERS: conditional orders of one account that wait for their trigger.
    pub max_algo_orders: u32,
    /// MAX_POSITION: the most of the base asset that an account may hold or have on order. 0: no limit.
    pub max_position: Qty,
    /// Fee of the side that rested, in parts per million.
    pub maker_fee_ppm: u32,
    /// Fee of the side that took, in parts per million.
    pub taker_fee_ppm: u32,
}

impl Instrument {
    /// Whether the definition is usable: steps and limits positive and in order, price times quantity always exact, fees at most 100 %.
    /// `price_tick × lot_step` must be a multiple of 10⁻⁸ of the quote asset, or products would have to be rounded.
    pub fn check(&self) -> bool {
        let exact = i128::from(self.price_tick.0) * i128::from(self.lot_step.0) % i128::from(SCALE) == 0;
        self.base != self.quote
            && self.symbol != Name::default()
            && self.price_tick.0 > 0
            && self.price_min.0 >= 0
            && self.price_max.0 >= self.price_min.0.max(self.price_tick.0)
            && self.lot_step.0 > 0
            && self.lot_min.0 >= 0
            && self.lot_max.0 >= self.lot_min.0.max(self.lot_step.0)
            && self.market_lot_max.0 >= self.lot_min.0.max(self.lot_step.0)
            && self.notional_min.0 >= 0
            && self.notional_max >= self.notional_min
            && self.notional_max.0 > 0
            && self.max_orders > 0
            && self.max_position.0 >= 0
            && self.maker_fee_ppm <= 1_000_000
            && self.taker_fee_ppm <= 1_000_000
            && exact
    }
}
