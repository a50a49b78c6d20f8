//! Trades in the messages of exchanges: the same rules for recordings and for live connections.
//!
//! A message either has trades, or has none (an acknowledgement, a heartbeat, a book), or cannot be read. Prices, quantities and times are
//! taken from the digits of the message, whether it has them as JSON texts or as JSON numbers, and never go through a float.

use std::borrow::Cow;

use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{ParseMoneyError, Price, Qty, notional, parse_units};
use hoga_core::order::Side;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::mapping::Mapping;
use crate::gateway::SourceTrade;
use crate::symbol::{Symbol, SymbolError};

/// How an exchange writes its trades. In a configuration: `"binance"`, `"upbit"`, `"kraken"`, `"bitstamp"`, or `{ mapping = { … } }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Binance's `trade` and `aggTrade` events, spot and futures, with or without the wrapper of combined streams
    /// (<https://developers.binance.com/docs/binance-spot-api-docs/web-socket-streams>). The two have numbers of their own: subscribe to
    /// one of them per symbol, or every trade counts twice.
    Binance,
    /// Upbit's `trade` in the SIMPLE format (<https://docs.upbit.com/kr/reference/websocket-trade>). Its `sid` names a trade, but does not
    /// rise with every one: trades of two seconds overlap.
    Upbit,
    /// Kraken's WebSocket API v1, channel `trade` (<https://docs.kraken.com/api/docs/websocket-v1/trade>). Its trades have no ids.
    Kraken,
    /// Bitstamp's channel `live_trades_…` (<https://www.bitstamp.net/websocket/v2/>). A symbol is spelled as in the channel: `btcusd`.
    Bitstamp,
    /// Any other exchange: where in its messages things are.
    Mapping(Box<Mapping>),
}

impl Format {
    /// The formats of named exchanges.
    pub const NAMED: [Format; 4] = [Format::Binance, Format::Upbit, Format::Kraken, Format::Bitstamp];

    /// Whether ids of a symbol's trades rise from trade to trade and go on after a restart: what [`GatewayConfig::rising_ids`] must say.
    /// With a mapping that has ids this is taken to be so.
    ///
    /// [`GatewayConfig::rising_ids`]: crate::gateway::GatewayConfig::rising_ids
    pub fn rising_ids(&self) -> bool {
        match self {
            Format::Binance | Format::Bitstamp => true,
            Format::Upbit | Format::Kraken => false,
            Format::Mapping(mapping) => mapping.id.is_some(),
        }
    }

    /// The named format in which this message has a trade; `None` when it has none in any of them.
    pub fn detect(message: &[u8]) -> Option<Format> {
        let mut found = Vec::new();
        Format::NAMED
            .into_iter()
            .find(|format| trades(format, message, Timestamp(0), &mut found).is_ok_and(|count| count > 0))
    }
}

/// Why a message could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not JSON, or cut off.
    #[error("the message is not JSON: {0}. Is it another exchange's, or another format's?")]
    Json(String),
    /// The exchange says no.
    #[error("the exchange refuses: {0}. Check the subscription")]
    Refused(String),
    /// A field that a trade must have is not there.
    #[error(
        "the trade has no {field}. Compare the message with the exchange's documentation, or the mapping with the message"
    )]
    Missing {
        /// Which.
        field: String,
    },
    /// A field whose value cannot be taken.
    #[error("{field} of the trade is {text:?}: {reason}")]
    Field {
        /// Which.
        field: String,
        /// Its value, cut.
        text: String,
        /// What is wrong with it, and what is expected.
        reason: String,
    },
}

impl ParseError {
    pub(super) fn field(field: &str, text: &str, reason: impl ToString) -> ParseError {
        ParseError::Field { field: field.into(), text: cut(text), reason: reason.to_string() }
    }

    pub(super) fn missing(field: &str) -> ParseError {
        ParseError::Missing { field: field.into() }
    }
}

impl From<serde_json::Error> for ParseError {
    fn from(error: serde_json::Error) -> ParseError {
        ParseError::Json(error.to_string())
    }
}

/// Its first characters.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Adds the trades of one message to `out` and says how many there were; 0 for a message of something else. A trade that has no id at its
/// source gets id 0: [`Parser`] numbers those.
///
/// A price must be above 0, a quantity not below, and both must be multiples of 10⁻⁸ below 92 thousand million: **what is finer is refused**,
/// not rounded, because nothing traded at the rounded price. The quote amount is their product, cut to 10⁻⁸.
///
/// # Errors
/// [`ParseError`]; then nothing of the message was added.
pub fn trades(
    format: &Format,
    message: &[u8],
    received: Timestamp,
    out: &mut Vec<SourceTrade>,
) -> Result<usize, ParseError> {
    let message = std::str::from_utf8(message).map_err(|error| ParseError::Json(error.to_string()))?;
    let before = out.len();
    let added = match format {
        Format::Binance => binance(message, received, out),
        Format::Upbit => upbit(message, received, out),
        Format::Kraken => kraken(message, received, out),
        Format::Bitstamp => bitstamp(message, received, out),
        Format::Mapping(mapping) => mapping.trades(message, received, out),
    };
    if let Err(error) = added {
        out.truncate(before);
        return Err(error);
    }
    Ok(out.len() - before)
}

/// Reads messages of one source, and numbers trades that have no id there from 1 for each symbol, as long as it lives.
#[derive(Clone, Debug)]
pub struct Parser {
    format: Format,
    numbers: FxHashMap<Symbol, u64>,
}

impl Parser {
    /// Of a format.
    pub fn new(format: Format) -> Parser {
        Parser { format, numbers: FxHashMap::default() }
    }

    /// Its format.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// As [`trades`], with every trade numbered.
    ///
    /// # Errors
    /// [`ParseError`]; then nothing of the message was added.
    pub fn read(
        &mut self,
        message: &[u8],
        received: Timestamp,
        out: &mut Vec<SourceTrade>,
    ) -> Result<usize, ParseError> {
        let added = trades(&self.format, message, received, out)?;
        let without = match &self.format {
            Format::Kraken => true,
            Format::Mapping(mapping) => mapping.id.is_none(),
            Format::Binance | Format::Upbit | Format::Bitstamp => false,
        };
        if without {
            let first = out.len() - added;
            for trade in &mut out[first..] {
                let number = self.numbers.entry(trade.symbol).or_default();
                *number += 1;
                trade.tick.id = TradeId(*number);
            }
        }
        Ok(added)
    }
}

/// What a time of the source counts. A fraction is taken too (`1618678142.557535` seconds) and cut to microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Seconds since the Unix epoch.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

/// The texts of one trade, as found.
pub(super) struct Found<'a> {
    pub(super) symbol: Cow<'a, str>,
    pub(super) price: Cow<'a, str>,
    pub(super) qty: Cow<'a, str>,
    pub(super) time: Cow<'a, str>,
    pub(super) unit: TimeUnit,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) sell: bool,
}

impl Found<'_> {
    pub(super) fn trade(&self, received: Timestamp) -> Result<SourceTrade, ParseError> {
        let symbol = Symbol::parse(&self.symbol)
            .map_err(|error: SymbolError| ParseError::field("the symbol", &self.symbol, error))?;
        let price = Price(decimal("the price", &self.price)?);
        if price <= Price::ZERO {
            return Err(ParseError::field("the price", &self.price, "a price is above 0"));
        }
        let qty = Qty(decimal("the quantity", &self.qty)?);
        if qty < Qty::ZERO {
            return Err(ParseError::field("the quantity", &self.qty, "a quantity is not below 0"));
        }
        let quote = notional(price, qty).ok_or_else(|| {
            ParseError::field("the quantity", &self.qty, "price × quantity is beyond 92,233,720,368")
        })?;
        let time = micros(&self.time, self.unit).ok_or_else(|| {
            ParseError::field("the time", &self.time, "a plain number above 0 is expected, in the given unit")
        })?;
        let id = match &self.id {
            Some(id) => id.parse().map_err(|_| {
                ParseError::field("the id", id, "a whole number up to 18,446,744,073,709,551,615 is expected")
            })?,
            None => 0,
        };
        let taker_side = if self.sell { Side::Sell } else { Side::Buy };
        Ok(SourceTrade {
            symbol,
            received,
            tick: Tick { time, id: TradeId(id), price, qty, quote, taker_side },
        })
    }
}

/// Units of 10⁻⁸ in a decimal as JSON may write it: also with an exponent (Upbit writes 6E-8 for 0.00000006).
fn decimal(field: &str, text: &str) -> Result<i64, ParseError> {
    let units = match text.split_once(['e', 'E']) {
        None => parse_units(text),
        Some((mantissa, exponent)) => plain(mantissa, exponent).and_then(|plain| parse_units(&plain)),
    };
    units.map_err(|error| ParseError::field(field, text, error))
}

/// A decimal with an exponent, written out.
fn plain(mantissa: &str, exponent: &str) -> Result<String, ParseMoneyError> {
    // Beyond this no number but 0 is in range, and texts would grow.
    const MOST: i32 = 64;
    let exponent: i32 = exponent.parse().map_err(|_| ParseMoneyError::Malformed)?;
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if whole.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseMoneyError::Malformed);
    }
    if digits.bytes().all(|byte| byte == b'0') {
        return Ok("0".into());
    }
    if exponent < -MOST {
        return Err(ParseMoneyError::OverPrecise);
    }
    if exponent > MOST {
        return Err(ParseMoneyError::OutOfRange);
    }
    // Where the point is, counted from the first digit.
    let point = whole.len() as i64 + i64::from(exponent);
    Ok(match usize::try_from(point) {
        Ok(point) if point >= digits.len() => format!("{sign}{digits}{}", "0".repeat(point - digits.len())),
        Ok(point) if point > 0 => format!("{sign}{}.{}", &digits[..point], &digits[point..]),
        _ => format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)),
    })
}

/// A time in microseconds, cut; `None` for anything but a plain number above 0.
pub(super) fn micros(text: &str, unit: TimeUnit) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 19 || !number(whole) || !number(fraction) {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(6)];
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    let power = match unit {
        TimeUnit::S => 6,
        TimeUnit::Ms => 3,
        TimeUnit::Us => 0,
        TimeUnit::Ns => -3,
    } - fraction.len() as i32;
    let scale = 10_i128.pow(power.unsigned_abs());
    let value = if power < 0 { value / scale } else { value * scale };
    i64::try_from(value).ok().filter(|value| *value > 0).map(Timestamp)
}

/// The characters of a text, the digits of a number, `true` or `false`; an error for anything else.
pub(super) fn scalar<'a>(field: &str, json: &'a str) -> Result<Cow<'a, str>, ParseError> {
    match json.as_bytes().first() {
        Some(b'"') if json.contains('\\') => Ok(Cow::Owned(serde_json::from_str(json)?)),
        Some(b'"') => Ok(Cow::Borrowed(json.trim_matches('"'))),
        Some(b'-' | b'0'..=b'9' | b't' | b'f') => Ok(Cow::Borrowed(json)),
        _ => Err(ParseError::field(field, json, "a text or a number is expected")),
    }
}

fn need<'a>(field: &str, raw: Option<&'a RawValue>) -> Result<Cow<'a, str>, ParseError> {
    scalar(field, raw.ok_or_else(|| ParseError::missing(field))?.get())
}

fn is(raw: Option<&RawValue>, text: &str) -> bool {
    raw.is_some_and(|raw| scalar("", raw.get()).is_ok_and(|found| found == text))
}

/// Whether it is an object; a list or a text may be a message too, but not one of trades.
fn is_object(json: &str) -> bool {
    json.trim_start().starts_with('{')
}

type Raw<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct BinanceMessage<'a> {
    #[serde(borrow)]
    data: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
#[allow(non_snake_case)] // as Binance spells them: `t` and `T` differ
struct BinanceTrade<'a> {
    #[serde(borrow)]
    e: Raw<'a>,
    #[serde(borrow)]
    s: Raw<'a>,
    #[serde(borrow)]
    p: Raw<'a>,
    #[serde(borrow)]
    q: Raw<'a>,
    #[serde(borrow)]
    T: Raw<'a>,
    #[serde(borrow)]
    m: Raw<'a>,
    #[serde(borrow)]
    a: Raw<'a>,
    #[serde(borrow)]
    t: Raw<'a>,
}

fn binance(message: &str, received: Timestamp, out: &mut Vec<SourceTrade>) -> Result<(), ParseError> {
    if !is_object(message) {
        serde_json::from_str::<&RawValue>(message)?;
        return Ok(());
    }
    let outer: BinanceMessage<'_> = serde_json::from_str(message)?;
    if let Some(error) = outer.error {
        return Err(ParseError::Refused(cut(error.get())));
    }
    let inner = outer.data.map_or(message, RawValue::get);
    if !is_object(inner) {
        return Ok(());
    }
    let trade: BinanceTrade<'_> = serde_json::from_str(inner)?;
    let id = match trade.e {
        event if is(event, "aggTrade") => need("a", trade.a)?,
        event if is(event, "trade") => need("t", trade.t)?,
        _ => return Ok(()),
    };
    let found = Found {
        symbol: need("s", trade.s)?,
        price: need("p", trade.p)?,
        qty: need("q", trade.q)?,
        time: need("T", trade.T)?,
        unit: TimeUnit::Ms,
        id: Some(id),
        // m: the buyer is the maker, so the seller took.
        sell: need("m", trade.m)? == "true",
    };
    out.push(found.trade(received)?);
    Ok(())
}

#[derive(Deserialize)]
struct UpbitMessage<'a> {
    #[serde(borrow)]
    ty: Raw<'a>,
    #[serde(borrow)]
    cd: Raw<'a>,
    #[serde(borrow)]
    tp: Raw<'a>,
    #[serde(borrow)]
    tv: Raw<'a>,
    #[serde(borrow)]
    ab: Raw<'a>,
    #[serde(borrow)]
    ttms: Raw<'a>,
    #[serde(borrow)]
    sid: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

fn upbit(message: &str, received: Timestamp, out: &mut Vec<SourceTrade>) -> Result<(), ParseError> {
    if !is_object(message) {
        serde_json::from_str::<&RawValue>(message)?;
        return Ok(());
    }
    let trade: UpbitMessage<'_> = serde_json::from_str(message)?;
    if let Some(error) = trade.error {
        return Err(ParseError::Refused(cut(error.get())));
    }
    if !is(trade.ty, "trade") {
        return Ok(());
    }
    let found = Found {
        symbol: need("cd", trade.cd)?,
        price: need("tp", trade.tp)?,
        qty: need("tv", trade.tv)?,
        time: need("ttms", trade.ttms)?,
        unit: TimeUnit::Ms,
        id: Some(need("sid", trade.sid)?),
        sell: side("ab", &need("ab", trade.ab)?, "BID", "ASK")?,
    };
    out.push(found.trade(received)?);
    Ok(())
}

/// Whether the taker sold, from the two words that the exchange has for it.
fn side(field: &str, text: &str, buy: &str, sell: &str) -> Result<bool, ParseError> {
    match text {
        _ if text == buy => Ok(false),
        _ if text == sell => Ok(true),
        _ => Err(ParseError::field(field, text, format!("{buy} or {sell} is expected"))),
    }
}

#[derive(Deserialize)]
struct KrakenEvent<'a> {
    #[serde(borrow, rename = "errorMessage")]
    error: Raw<'a>,
}

fn kraken(message: &str, received: Timestamp, out: &mut Vec<SourceTrade>) -> Result<(), ParseError> {
    if is_object(message) {
        let event: KrakenEvent<'_> = serde_json::from_str(message)?;
        return event.error.map_or(Ok(()), |error| Err(ParseError::Refused(cut(error.get()))));
    }
    if !message.trim_start().starts_with('[') {
        serde_json::from_str::<&RawValue>(message)?;
        return Ok(());
    }
    let parts: Vec<&RawValue> = serde_json::from_str(message)?;
    let [_, list, name, pair] = parts[..] else { return Ok(()) };
    if !is(Some(name), "trade") {
        return Ok(());
    }
    let symbol = need("pair", Some(pair))?;
    let list: Vec<Vec<&RawValue>> = serde_json::from_str(list.get())?;
    for trade in list {
        let at = |place: usize| trade.get(place).copied();
        let found = Found {
            symbol: Cow::Borrowed(&symbol),
            price: need("price", at(0))?,
            qty: need("volume", at(1))?,
            time: need("time", at(2))?,
            unit: TimeUnit::S,
            id: None,
            sell: side("side", &need("side", at(3))?, "b", "s")?,
        };
        out.push(found.trade(received)?);
    }
    Ok(())
}

#[derive(Deserialize)]
struct BitstampMessage<'a> {
    #[serde(borrow)]
    event: Raw<'a>,
    #[serde(borrow)]
    channel: Raw<'a>,
    #[serde(borrow)]
    data: Raw<'a>,
}

#[derive(Deserialize)]
struct BitstampTrade<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    price_str: Raw<'a>,
    #[serde(borrow)]
    amount_str: Raw<'a>,
    #[serde(borrow, rename = "type")]
    side: Raw<'a>,
    #[serde(borrow)]
    microtimestamp: Raw<'a>,
}

/// What the channels of Bitstamp's trades begin with.
pub(super) const BITSTAMP_CHANNEL: &str = "live_trades_";

fn bitstamp(message: &str, received: Timestamp, out: &mut Vec<SourceTrade>) -> Result<(), ParseError> {
    if !is_object(message) {
        serde_json::from_str::<&RawValue>(message)?;
        return Ok(());
    }
    let outer: BitstampMessage<'_> = serde_json::from_str(message)?;
    let data = outer.data.map_or("", RawValue::get);
    if is(outer.event, "bts:error") {
        return Err(ParseError::Refused(cut(data)));
    }
    if !is(outer.event, "trade") {
        return Ok(());
    }
    let channel = need("channel", outer.channel)?;
    let Some(symbol) = channel.strip_prefix(BITSTAMP_CHANNEL) else { return Ok(()) };
    if !is_object(data) {
        return Err(ParseError::missing("data"));
    }
    let trade: BitstampTrade<'_> = serde_json::from_str(data)?;
    let found = Found {
        symbol: Cow::Borrowed(symbol),
        price: need("price_str", trade.price_str)?,
        qty: need("amount_str", trade.amount_str)?,
        time: need("microtimestamp", trade.microtimestamp)?,
        unit: TimeUnit::Us,
        id: Some(need("id", trade.id)?),
        sell: side("type", &need("type", trade.side)?, "0", "1")?,
    };
    out.push(found.trade(received)?);
    Ok(())
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
