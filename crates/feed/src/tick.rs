//! A tick on its way through the plant, and its bytes.

use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;

use crate::symbol::Symbol;

/// A trade of an outside market with its place in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedTick {
    /// Of which symbol.
    pub symbol: Symbol,
    /// Which numbering `seq` belongs to. It grows when a gateway begins to number anew because it lost its place; a tick of a lower epoch
    /// than one already seen is a step back.
    pub epoch: u32,
    /// Its number among the ticks of its symbol and epoch, from 1 without holes.
    pub seq: u64,
    /// When the gateway received it.
    pub received: Timestamp,
    /// The trade; `time` is the source's time of it.
    pub tick: Tick,
}

/// The longest encoded tick, in bytes.
pub const MAX_ENCODED: usize = FIXED + Symbol::MAX;

/// Version of the encoding.
const VERSION: u8 = 1;
/// Version, side and length of the symbol; epoch; place, seq, received, time, id, price, qty, quote.
const FIXED: usize = 3 + 4 + 8 * 8;
/// Where the place in the lane is.
const PLACE: usize = 3 + 4;

/// Why bytes are no tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer or more bytes than the tick has.
    #[error("a tick of {0} bytes is cut off, or has more behind it")]
    Length(usize),
    /// Written by a newer build.
    #[error("version {0} of the tick encoding is not known to this build (1 is)")]
    Version(u8),
    /// A field with an impossible value.
    #[error("the tick's {0} is impossible")]
    Field(&'static str),
}

impl FeedTick {
    /// Adds its bytes to `out`: version, side (0 buy, 1 sell), length of the symbol, epoch, place, seq, received, time, id, price, quantity, quote
    /// amount (little-endian), and the symbol. `place` is its number among all messages of its lane, from 1 without holes: by it whoever
    /// copies the lane knows where to go on.
    pub fn encode(&self, place: u64, out: &mut Vec<u8>) {
        let symbol = self.symbol.as_bytes();
        let tick = &self.tick;
        out.extend_from_slice(&[VERSION, u8::from(tick.taker_side == Side::Sell), symbol.len() as u8]);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&place.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        for field in [self.received.0, tick.time.0] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&tick.id.0.to_le_bytes());
        for field in [tick.price.0, tick.qty.0, tick.quote.0] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(symbol);
    }

    /// The place in its lane of an encoded tick; `None` for other bytes. As [`hoga_log::relay::RelayOptions`] wants it.
    pub fn place_of(bytes: &[u8]) -> Option<u64> {
        let place = bytes.get(PLACE..PLACE + 8)?;
        (bytes[0] == VERSION).then(|| u64::from_le_bytes(place.try_into().expect("eight bytes")))
    }

    /// Reads what [`FeedTick::encode`] wrote.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<FeedTick, DecodeError> {
        let Some((fixed, symbol)) = bytes.split_at_checked(FIXED) else {
            return Err(DecodeError::Length(bytes.len()));
        };
        if fixed[0] != VERSION {
            return Err(DecodeError::Version(fixed[0]));
        }
        let taker_side = match fixed[1] {
            0 => Side::Buy,
            1 => Side::Sell,
            _ => return Err(DecodeError::Field("side")),
        };
        if usize::from(fixed[2]) != symbol.len() {
            return Err(DecodeError::Length(bytes.len()));
        }
        let symbol = Symbol::from_bytes(symbol).ok_or(DecodeError::Field("symbol"))?;
        let epoch = u32::from_le_bytes(fixed[3..7].try_into().expect("four bytes"));
        let word =
            |at: usize| u64::from_le_bytes(fixed[7 + 8 * at..15 + 8 * at].try_into().expect("eight bytes"));
        let signed = |at: usize| word(at) as i64;
        let tick = FeedTick {
            symbol,
            epoch,
            seq: word(1),
            received: Timestamp(signed(2)),
            tick: Tick {
                time: Timestamp(signed(3)),
                id: TradeId(word(4)),
                price: Price(signed(5)),
                qty: Qty(signed(6)),
                quote: Amount(signed(7)),
                taker_side,
            },
        };
        match tick.tick {
            _ if tick.seq == 0 || word(0) == 0 => Err(DecodeError::Field("number")),
            Tick { price: Price(..=0), .. } => Err(DecodeError::Field("price")),
            Tick { qty: Qty(..0), .. } | Tick { quote: Amount(..0), .. } => {
                Err(DecodeError::Field("quantity"))
            }
            _ => Ok(tick),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_tick() -> impl Strategy<Value = FeedTick> {
        let place = ("[A-Z0-9]{1,23}", any::<u32>(), 1..u64::MAX, any::<i64>());
        let trade = (any::<i64>(), any::<u64>(), 1..i64::MAX, 0..i64::MAX, 0..i64::MAX, any::<bool>());
        (place, trade).prop_map(|((symbol, epoch, seq, received), (time, id, price, qty, quote, sell))| {
            FeedTick {
                symbol: Symbol::parse(&symbol).unwrap(),
                epoch,
                seq,
                received: Timestamp(received),
                tick: Tick {
                    time: Timestamp(time),
                    id: TradeId(id),
                    price: Price(price),
                    qty: Qty(qty),
                    quote: Amount(quote),
                    taker_side: if sell { Side::Sell } else { Side::Buy },
                },
            }
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(tick in any_tick(), place in 1..u64::MAX) {
            let mut bytes = Vec::new();
            tick.encode(place, &mut bytes);
            prop_assert_eq!(FeedTick::place_of(&bytes), Some(place));
            prop_assert!(bytes.len() <= MAX_ENCODED);
            prop_assert_eq!(FeedTick::decode(&bytes), Ok(tick));
            for cut in 0..bytes.len() {
                prop_assert!(FeedTick::decode(&bytes[..cut]).is_err());
            }
            bytes.push(b'X');
            prop_assert!(FeedTick::decode(&bytes).is_err());
        }

        #[test]
        fn damaged_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = FeedTick::decode(&bytes);
        }
    }
}
