//! Prices, quantities and amounts: whole numbers of 10⁻⁸, never a float.
//!
//! One scale for everything keeps products simple: `price × qty` is computed in `i128` and divided by [`SCALE`] once. An
//! instrument's steps are chosen so that the division leaves no rest (see [`crate::instrument::Instrument`]).

use std::fmt;

/// Units in one whole: every price, quantity and amount is a multiple of 10⁻⁸.
pub const SCALE: i64 = 100_000_000;

/// Decimal places of [`SCALE`].
pub const DECIMALS: u32 = 8;

/// Why a text is not a number that Hoga takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseMoneyError {
    /// Not a plain decimal: empty, a sign without digits, an exponent, other characters.
    #[error("not a plain decimal number")]
    Malformed,
    /// More than eight decimal places that are not zero.
    #[error("more than {DECIMALS} decimal places")]
    OverPrecise,
    /// Beyond ±92,233,720,368.54775807.
    #[error("number out of range")]
    OutOfRange,
}

/// Reads a plain decimal such as `-12`, `0.001`, `50000.0` as units of 10⁻⁸. Refuses exponents (`1e-05`), more than eight
/// significant decimal places, and what does not fit; never rounds. Zeros beyond the eighth place are taken.
pub fn parse_units(text: &str) -> Result<i64, ParseMoneyError> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut value: i64 = 0;
    let mut places: Option<u32> = None;
    let mut seen = false;
    for &b in digits {
        match b {
            b'0'..=b'9' => {
                seen = true;
                let digit = i64::from(b - b'0');
                match &mut places {
                    Some(n) if *n == DECIMALS => {
                        if digit != 0 {
                            return Err(ParseMoneyError::OverPrecise);
                        }
                        continue;
                    }
                    Some(n) => *n += 1,
                    None => {}
                }
                // Built up negative, so that the lowest value can be read too.
                value = value
                    .checked_mul(10)
                    .and_then(|v| v.checked_sub(digit))
                    .ok_or(ParseMoneyError::OutOfRange)?;
            }
            b'.' if places.is_none() => places = Some(0),
            _ => return Err(ParseMoneyError::Malformed),
        }
    }
    if !seen {
        return Err(ParseMoneyError::Malformed);
    }
    let missing = DECIMALS - places.unwrap_or(0);
    let value = value.checked_mul(10_i64.pow(missing)).ok_or(ParseMoneyError::OutOfRange)?;
    if negative { Ok(value) } else { value.checked_neg().ok_or(ParseMoneyError::OutOfRange) }
}

/// Writes units with all eight decimal places (`1.50000000`), as Binance does, without allocating beyond `out`.
pub fn write_units(out: &mut Vec<u8>, units: i64) {
    write_decimals(out, units, DECIMALS);
}

/// Writes units with `decimals` places (0 to 8); further places are cut, so ask only for as many as the value has.
pub fn write_decimals(out: &mut Vec<u8>, units: i64, decimals: u32) {
    let mut buffer = [0_u8; 24];
    let mut at = buffer.len();
    let mut rest = units.unsigned_abs() / 10_u64.pow(DECIMALS - decimals);
    for place in 0.. {
        if place == decimals && decimals > 0 {
            at -= 1;
            buffer[at] = b'.';
        }
        if place > decimals && rest == 0 {
            break;
        }
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if place >= decimals && rest == 0 {
            break;
        }
    }
    if units < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    out.extend_from_slice(&buffer[at..]);
}

macro_rules! money {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl $name {
            /// Nothing.
            pub const ZERO: $name = $name(0);

            /// Reads a plain decimal; see [`parse_units`].
            pub fn parse(text: &str) -> Result<$name, ParseMoneyError> {
                parse_units(text).map($name)
            }

            /// `self + other`, or `None` when it does not fit.
            pub fn checked_add(self, other: $name) -> Option<$name> {
                self.0.checked_add(other.0).map($name)
            }

            /// `self − other`, or `None` when it does not fit.
            pub fn checked_sub(self, other: $name) -> Option<$name> {
                self.0.checked_sub(other.0).map($name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = Vec::with_capacity(24);
                write_units(&mut text, self.0);
                f.write_str(std::str::from_utf8(&text).unwrap_or_default())
            }
        }
    };
}

money!(
    /// Units of the quote asset for one whole unit of the base asset, in 10⁻⁸.
    Price
);
money!(
    /// A quantity of a market's base asset, in 10⁻⁸.
    Qty
);
money!(
    /// An amount of any asset, in 10⁻⁸: balances, holds, fees, and of the quote asset what a trade costs.
    Amount
);

impl From<Qty> for Amount {
    fn from(qty: Qty) -> Amount {
        Amount(qty.0)
    }
}

/// `price × qty` in units of the quote asset, cut towards zero; `None` when it does not fit. Exact for every price and quantity on an
/// instrument's steps.
pub fn notional(price: Price, qty: Qty) -> Option<Amount> {
    // Both factors are mostly small: most products fit 64 bits, where a division is several times cheaper.
    if let Some(product) = price.0.checked_mul(qty.0) {
        return Some(Amount(product / SCALE));
    }
    i64::try_from(i128::from(price.0) * i128::from(qty.0) / i128::from(SCALE)).ok().map(Amount)
}

/// The largest quantity, a multiple of `step`, that costs at most `amount` at `price` (rounded down: the buyer never pays more than
/// asked). `None` when price or step are not positive or the result does not fit.
pub fn affordable(amount: Amount, price: Price, step: Qty) -> Option<Qty> {
    if price.0 <= 0 || step.0 <= 0 {
        return None;
    }
    let qty = i128::from(amount.0) * i128::from(SCALE) / i128::from(price.0);
    let qty = i64::try_from(qty).ok()?;
    Some(Qty(qty - qty.rem_euclid(step.0)))
}

/// The fee on `amount` at `ppm` parts per million, rounded **up** to the next unit: once per fill, in the exchange's favour. Never more
/// than the amount for rates up to 100 %.
pub fn fee(amount: Amount, ppm: u32) -> Amount {
    // As in `notional`: most products fit 64 bits, where the division is a multiplication.
    if let Some(product) = amount.0.checked_mul(i64::from(ppm)).and_then(|p| p.checked_add(999_999)) {
        return Amount(product / 1_000_000);
    }
    let product = i128::from(amount.0) * i128::from(ppm);
    Amount(((product + 999_999) / 1_000_000) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_decimals() {
        for (text, units, shown) in [
            ("0", 0, "0.00000000"),
            ("1", 100_000_000, "1.00000000"),
            ("50000.0", 5_000_000_000_000, "50000.00000000"),
            ("0.00000001", 1, "0.00000001"),
            ("-0.5", -50_000_000, "-0.50000000"),
            (".5", 50_000_000, "0.50000000"),
            ("1.", 100_000_000, "1.00000000"),
            ("1.1000000000", 110_000_000, "1.10000000"),
            ("92233720368.54775807", i64::MAX, "92233720368.54775807"),
            ("-92233720368.54775808", i64::MIN, "-92233720368.54775808"),
        ] {
            assert_eq!(parse_units(text), Ok(units), "{text}");
            assert_eq!(Amount(units).to_string(), shown);
        }
        for (text, error) in [
            ("", ParseMoneyError::Malformed),
            ("-", ParseMoneyError::Malformed),
            (".", ParseMoneyError::Malformed),
            ("1e-05", ParseMoneyError::Malformed),
            ("1.2.3", ParseMoneyError::Malformed),
            (" 1", ParseMoneyError::Malformed),
            ("+1", ParseMoneyError::Malformed),
            ("NaN", ParseMoneyError::Malformed),
            ("0.000000001", ParseMoneyError::OverPrecise),
            ("92233720368.54775808", ParseMoneyError::OutOfRange),
            ("99999999999999999999999", ParseMoneyError::OutOfRange),
        ] {
            assert_eq!(parse_units(text), Err(error), "{text}");
        }
    }

    #[test]
    fn writes_fewer_places() {
        for (units, decimals, text) in [
            (7_834_900_000_000, 2, "78349.00"),
            (7_834_900_000_000, 0, "78349"),
            (5, 8, "0.00000005"),
            (-150_000_000, 1, "-1.5"),
        ] {
            let mut out = Vec::new();
            write_decimals(&mut out, units, decimals);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn fees_round_up_and_never_exceed_the_amount() {
        assert_eq!(fee(Amount(1), 1000), Amount(1));
        assert_eq!(fee(Amount(1_000_000), 1000), Amount(1000));
        assert_eq!(fee(Amount(1_000_001), 1000), Amount(1001));
        assert_eq!(fee(Amount(5), 0), Amount(0));
        assert_eq!(fee(Amount(i64::MAX), 1_000_000), Amount(i64::MAX));
        // On both sides of what fits 64 bits.
        for amount in [i64::MAX / 1000 - 1000, i64::MAX / 1000, i64::MAX / 1000 + 1, i64::MAX / 999] {
            let wide = (i128::from(amount) * 1000 + 999_999) / 1_000_000;
            assert_eq!(i128::from(fee(Amount(amount), 1000).0), wide);
        }
    }

    #[test]
    fn quote_amounts_buy_no_more_than_they_cover() {
        // Case A35: 5 USD at 78406.00 and at 78360.00 (Bitstamp capture).
        let five = Amount::parse("5").unwrap();
        for (price, qty) in [("78406", "0.00006377"), ("78360", "0.00006380")] {
            let (price, qty) = (Price::parse(price).unwrap(), Qty::parse(qty).unwrap());
            assert_eq!(affordable(five, price, Qty(1)), Some(qty));
            assert!(notional(price, qty).unwrap() <= five);
        }
    }
}
