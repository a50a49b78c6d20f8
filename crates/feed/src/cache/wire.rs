//! Entries as JSON, one a line: as they are in Redis, for other programs to read.

use hoga_core::folds::candle::{Candle, Interval};
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty, write_units};
use serde::Deserialize;

use super::{Active, Entry, Quote, Status, SymbolCandle};
use crate::detect::{DetectedEvent, EventKind};
use crate::groups::{GroupName, Mark};
use crate::state::{CandleChange, Output};
use crate::symbol::Symbol;

/// Why a text is no entry.
#[derive(Debug, thiserror::Error)]
#[error("no entry of a cache: {0}")]
pub struct WireError(String);

fn number(out: &mut Vec<u8>, name: &str, value: i128) {
    out.extend_from_slice(format!(r#","{name}":{value}"#).as_bytes());
}

fn decimal(out: &mut Vec<u8>, name: &str, units: i64) {
    out.extend_from_slice(format!(r#","{name}":""#).as_bytes());
    write_units(out, units);
    out.push(b'"');
}

/// Adds `{"quote":SYMBOL,"epoch":…,"seq":…,"first":…,"time":µs,"price":"…","quantity":"…","stale":…,"candles":HASH,"hash":HASH,"passed":[…]}`.
pub(super) fn write_quote(quote: &Quote, out: &mut Vec<u8>) {
    let (output, mark) = (&quote.output, &quote.output.mark);
    out.extend_from_slice(format!(r#"{{"quote":"{}""#, output.symbol).as_bytes());
    number(out, "epoch", mark.epoch.into());
    number(out, "seq", mark.seq.into());
    number(out, "first", output.first.into());
    number(out, "time", output.time.0.into());
    decimal(out, "price", output.last.0);
    decimal(out, "quantity", output.last_qty.0);
    out.extend_from_slice(
        format!(
            r#","stale":{},"last":{},"candles":"{:016x}","hash":"{:016x}","passed":["#,
            output.stale, mark.last, mark.candles, mark.hash
        )
        .as_bytes(),
    );
    for (at, mark) in quote.passed.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        out.extend_from_slice(
            format!(
                r#"{comma}[{},{},{},"{:016x}","{:016x}"]"#,
                mark.epoch, mark.seq, mark.last, mark.candles, mark.hash
            )
            .as_bytes(),
        );
    }
    out.extend_from_slice(b"]}");
}

/// Adds `{"candle":SYMBOL,"interval":"1m","open_time":µs,"open":"…",…}`.
pub(super) fn write_candle(candle: &SymbolCandle, out: &mut Vec<u8>) {
    let (interval, c) = (candle.change.interval, &candle.change.candle);
    let head = format!(
        r#"{{"candle":"{}","interval":"{}","closed":{}"#,
        candle.symbol,
        interval.as_str(),
        candle.change.closed
    );
    out.extend_from_slice(head.as_bytes());
    number(out, "open_time", c.open_time.0.into());
    for (name, units) in [
        ("open", c.open.0),
        ("high", c.high.0),
        ("low", c.low.0),
        ("close", c.close.0),
        ("volume", c.volume.0),
        ("quote_volume", c.quote_volume.0),
        ("taker_base", c.taker_base.0),
        ("taker_quote", c.taker_quote.0),
    ] {
        decimal(out, name, units);
    }
    for (name, value) in [
        ("trades", i128::from(c.trades)),
        ("first_trade", c.first_trade.0.into()),
        ("last_trade", c.last_trade.0.into()),
        ("first_time", c.first_time.0.into()),
        ("last_time", c.last_time.0.into()),
        ("revision", c.revision.into()),
    ] {
        number(out, name, value);
    }
    out.push(b'}');
}

/// Adds `{"status":{…}}`.
pub(super) fn write_status(status: &Status, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"status":"#);
    out.extend_from_slice(&serde_json::to_vec(status).expect("numbers and texts always become JSON"));
    out.push(b'}');
}

/// Adds `{"active":"a","version":…}`.
pub(super) fn write_active(active: Active, out: &mut Vec<u8>) {
    out.extend_from_slice(
        format!(r#"{{"active":"{}","version":{}}}"#, active.group.as_str(), active.version).as_bytes(),
    );
}

#[derive(Deserialize)]
struct WireStatus {
    status: Status,
}

#[derive(Deserialize)]
struct WireActive<'a> {
    active: &'a str,
    version: u64,
}

#[derive(Deserialize)]
struct WireQuote<'a> {
    quote: &'a str,
    epoch: u32,
    seq: u64,
    first: u64,
    time: i64,
    price: &'a str,
    quantity: &'a str,
    stale: bool,
    last: i64,
    candles: &'a str,
    hash: &'a str,
    #[serde(borrow)]
    passed: Vec<(u32, u64, i64, &'a str, &'a str)>,
}

#[derive(Deserialize)]
struct WireCandle<'a> {
    candle: &'a str,
    interval: &'a str,
    closed: bool,
    open_time: i64,
    open: &'a str,
    high: &'a str,
    low: &'a str,
    close: &'a str,
    volume: &'a str,
    quote_volume: &'a str,
    taker_base: &'a str,
    taker_quote: &'a str,
    trades: u64,
    first_trade: u64,
    last_trade: u64,
    first_time: i64,
    last_time: i64,
    revision: u32,
}

#[derive(Deserialize)]
struct WireEvent<'a> {
    event: &'a str,
    symbol: &'a str,
    epoch: u32,
    seq: u64,
    time: i64,
    value: &'a str,
    mean: &'a str,
}

pub(super) fn fault(what: &str, text: &str) -> WireError {
    WireError(format!("{text:?} is no {what}"))
}

fn symbol(text: &str) -> Result<Symbol, WireError> {
    Symbol::parse(text).map_err(|error| WireError(error.to_string()))
}

fn units(text: &str) -> Result<i64, WireError> {
    hoga_core::money::parse_units(text).map_err(|_| fault("decimal", text))
}

fn hex(text: &str) -> Result<u64, WireError> {
    u64::from_str_radix(text, 16).map_err(|_| fault("hash", text))
}

/// Reads one line. What it is, its first name says.
pub(super) fn read(line: &[u8]) -> Result<Entry, WireError> {
    fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, WireError> {
        serde_json::from_slice(line).map_err(|error| WireError(error.to_string()))
    }
    let name = line.strip_prefix(b"{\"").and_then(|rest| rest.split(|byte| *byte == b'"').next());
    match name {
        Some(b"quote") => quote(&parse(line)?).map(Entry::Quote),
        Some(b"candle") => candle(&parse(line)?).map(Entry::Candle),
        Some(b"event") => event(&parse(line)?).map(Entry::Event),
        Some(b"status") => parse::<WireStatus>(line).map(|wire| Entry::Status(wire.status)),
        Some(b"active") => {
            let wire: WireActive<'_> = parse(line)?;
            let group = GroupName::parse(wire.active).ok_or_else(|| fault("group", wire.active))?;
            Ok(Entry::Active(Active { version: wire.version, group }))
        }
        _ => Err(fault("entry", &String::from_utf8_lossy(&line[..line.len().min(80)]))),
    }
}

fn event(wire: &WireEvent<'_>) -> Result<DetectedEvent, WireError> {
    Ok(DetectedEvent {
        symbol: symbol(wire.symbol)?,
        epoch: wire.epoch,
        seq: wire.seq,
        time: Timestamp(wire.time),
        kind: EventKind::parse(wire.event).ok_or_else(|| fault("event", wire.event))?,
        value: units(wire.value)?,
        mean: units(wire.mean)?,
    })
}

fn quote(wire: &WireQuote<'_>) -> Result<Quote, WireError> {
    let mark = |epoch, seq, last, candles: &str, hash: &str| {
        Ok(Mark { epoch, seq, last, candles: hex(candles)?, hash: hex(hash)? })
    };
    let passed =
        wire.passed.iter().map(|(epoch, seq, last, candles, hash)| mark(*epoch, *seq, *last, candles, hash));
    Ok(Quote {
        output: Output {
            symbol: symbol(wire.quote)?,
            mark: mark(wire.epoch, wire.seq, wire.last, wire.candles, wire.hash)?,
            first: wire.first,
            time: Timestamp(wire.time),
            last: Price(units(wire.price)?),
            last_qty: Qty(units(wire.quantity)?),
            stale: wire.stale,
            candles: Vec::new(),
        },
        passed: passed.collect::<Result<_, WireError>>()?,
        read: None,
    })
}

fn candle(wire: &WireCandle<'_>) -> Result<SymbolCandle, WireError> {
    let candle = Candle {
        open_time: Timestamp(wire.open_time),
        open: Price(units(wire.open)?),
        high: Price(units(wire.high)?),
        low: Price(units(wire.low)?),
        close: Price(units(wire.close)?),
        volume: Qty(units(wire.volume)?),
        quote_volume: Amount(units(wire.quote_volume)?),
        trades: wire.trades,
        taker_base: Qty(units(wire.taker_base)?),
        taker_quote: Amount(units(wire.taker_quote)?),
        first_trade: TradeId(wire.first_trade),
        last_trade: TradeId(wire.last_trade),
        first_time: Timestamp(wire.first_time),
        last_time: Timestamp(wire.last_time),
        revision: wire.revision,
    };
    let interval = Interval::parse(wire.interval).ok_or_else(|| fault("interval", wire.interval))?;
    Ok(SymbolCandle {
        symbol: symbol(wire.candle)?,
        change: CandleChange { interval, candle, closed: wire.closed },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{StateConfig, SymbolState};
    use crate::testing::tick;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_is_read() {
        let mut state = SymbolState::new(Symbol::parse("KRW-BTC").unwrap(), &StateConfig::default());
        let mut passed = Vec::new();
        for seq in [1, 2, 3, 5] {
            let tick = tick("KRW-BTC", seq);
            state.take(&tick, tick.received);
            passed.push(state.mark());
        }
        let mut output = state.output().unwrap();
        let candles = std::mem::take(&mut output.candles);
        let quote = Quote { output, passed, read: None };
        let mut line = Vec::new();
        write_quote(&quote, &mut line);
        assert_eq!(read(&line).unwrap(), Entry::Quote(quote));
        assert!(!candles.is_empty());
        for change in candles {
            let candle = SymbolCandle { symbol: Symbol::parse("KRW-BTC").unwrap(), change };
            let mut line = Vec::new();
            write_candle(&candle, &mut line);
            assert_eq!(read(&line).unwrap(), Entry::Candle(candle));
        }
        let status = Status { node: "n\"1".into(), epoch: u64::MAX >> 12, behind: 7, ..Status::default() };
        let mut line = Vec::new();
        write_status(&status, &mut line);
        assert_eq!(read(&line).unwrap(), Entry::Status(status));
        let active = Active { version: 3, group: GroupName::B };
        let mut line = Vec::new();
        write_active(active, &mut line);
        assert_eq!(read(&line).unwrap(), Entry::Active(active));
        let event = DetectedEvent {
            symbol: Symbol::parse("A").unwrap(),
            epoch: 1,
            seq: 2,
            time: Timestamp(3),
            kind: EventKind::VolumeSurge,
            value: 4,
            mean: -5,
        };
        let mut line = Vec::new();
        event.write_json(&mut line);
        assert_eq!(read(&line).unwrap(), Entry::Event(event));
    }

    proptest! {
        #[test]
        fn damaged_lines_are_read_without_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut line = br#"{"quote":"A","epoch":1,"seq":2,"first":1,"time":3,"price":"1","quantity":"2","stale":false,"last":1,"candles":"0","hash":"0","passed":[]}"#.to_vec();
            let at = at.index(line.len());
            line[at] = byte;
            let _ = read(&line);
            let _ = read(&line[..cut.index(line.len())]);
        }
    }
}
