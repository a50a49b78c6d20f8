//! Messages of the market streams, written by hand. Fields, their order and formats are those of Binance ("WebSocket Streams", and the
//! recorded messages of `BINANCE.ws.1.0`): numbers of money as text with eight places, times in milliseconds.

use hoga_core::folds::candle::{Candle, Interval};
use hoga_core::folds::depth::{DepthBook, DepthDiff};
use hoga_core::folds::ticker::TickerValues;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Price, Qty};
use hoga_core::order::Side;

use super::view::{BookTicker, MarketTrade};
use crate::json::{write_int, write_units};

/// `"name":`, after a comma unless the object has just begun.
fn key(out: &mut Vec<u8>, name: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn int(out: &mut Vec<u8>, name: &str, value: impl itoa::Integer) {
    key(out, name);
    write_int(out, value);
}

fn units(out: &mut Vec<u8>, name: &str, value: i64) {
    key(out, name);
    write_units(out, value);
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    key(out, name);
    out.push(b'"');
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

fn boolean(out: &mut Vec<u8>, name: &str, value: bool) {
    key(out, name);
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// `{"e":…,"E":…,"s":…`
fn head(out: &mut Vec<u8>, event: &str, now: Timestamp, symbol: &str) {
    out.push(b'{');
    text(out, "e", event);
    int(out, "E", now.millis());
    text(out, "s", symbol);
}

/// `"name":[["price","qty"],…]`
fn levels(out: &mut Vec<u8>, name: &str, levels: impl Iterator<Item = (Price, Qty)>) {
    key(out, name);
    out.push(b'[');
    for (i, (price, qty)) in levels.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.push(b'[');
        write_units(out, price.0);
        out.push(b',');
        write_units(out, qty.0);
        out.push(b']');
    }
    out.push(b']');
}

/// `<symbol>@trade`.
pub(super) fn trade(out: &mut Vec<u8>, now: Timestamp, symbol: &str, trade: &MarketTrade) {
    head(out, "trade", now, symbol);
    int(out, "t", trade.id.0);
    units(out, "p", trade.price.0);
    units(out, "q", trade.qty.0);
    int(out, "T", trade.time.millis());
    boolean(out, "m", trade.taker_side == Side::Sell);
    out.extend_from_slice(b",\"M\":true}");
}

/// `<symbol>@aggTrade`: `trades` are of one taker order at one price, in order.
pub(super) fn agg_trade(out: &mut Vec<u8>, now: Timestamp, symbol: &str, trades: &[MarketTrade]) {
    let [first, ..] = trades else { return };
    let qty = trades.iter().fold(0_i64, |sum, trade| sum.saturating_add(trade.qty.0));
    head(out, "aggTrade", now, symbol);
    int(out, "a", first.id.0);
    units(out, "p", first.price.0);
    units(out, "q", qty);
    int(out, "f", first.id.0);
    int(out, "l", first.id.0 + trades.len() as u64 - 1);
    int(out, "T", first.time.millis());
    boolean(out, "m", first.taker_side == Side::Sell);
    out.extend_from_slice(b",\"M\":true}");
}

/// `<symbol>@bookTicker`. A side without orders shows zeros.
pub(super) fn book_ticker(out: &mut Vec<u8>, symbol: &str, book: &BookTicker) {
    let side = |best: Option<(Price, Qty)>| best.unwrap_or((Price::ZERO, Qty::ZERO));
    out.push(b'{');
    int(out, "u", book.update_id);
    text(out, "s", symbol);
    for ([price, qty], best) in [(["b", "B"], side(book.bid)), (["a", "A"], side(book.ask))] {
        units(out, price, best.0.0);
        units(out, qty, best.1.0);
    }
    out.push(b'}');
}

/// `<symbol>@depth…`.
pub(super) fn depth(out: &mut Vec<u8>, now: Timestamp, symbol: &str, diff: &DepthDiff) {
    head(out, "depthUpdate", now, symbol);
    int(out, "U", diff.first);
    int(out, "u", diff.last);
    levels(out, "b", diff.bids.iter().copied());
    levels(out, "a", diff.asks.iter().copied());
    out.push(b'}');
}

/// `<symbol>@depth5…` and so on.
pub(super) fn partial_depth(out: &mut Vec<u8>, book: &DepthBook, count: usize) {
    out.push(b'{');
    int(out, "lastUpdateId", book.update_id());
    levels(out, "bids", book.levels(Side::Buy).take(count));
    levels(out, "asks", book.levels(Side::Sell).take(count));
    out.push(b'}');
}

/// `<symbol>@kline_<interval>`.
pub(super) fn kline(
    out: &mut Vec<u8>,
    now: Timestamp,
    symbol: &str,
    interval: Interval,
    candle: &Candle,
    closed: bool,
) {
    // A candle without trades has no trade numbers; Binance says -1.
    let number = |id: TradeId| if candle.trades == 0 { -1 } else { id.0 as i64 };
    head(out, "kline", now, symbol);
    key(out, "k");
    out.push(b'{');
    int(out, "t", candle.open_time.millis());
    int(out, "T", interval.next(candle.open_time).millis() - 1);
    text(out, "s", symbol);
    text(out, "i", interval.as_str());
    int(out, "f", number(candle.first_trade));
    int(out, "L", number(candle.last_trade));
    units(out, "o", candle.open.0);
    units(out, "c", candle.close.0);
    units(out, "h", candle.high.0);
    units(out, "l", candle.low.0);
    units(out, "v", candle.volume.0);
    int(out, "n", candle.trades);
    boolean(out, "x", closed);
    units(out, "q", candle.quote_volume.0);
    units(out, "V", candle.taker_base.0);
    units(out, "Q", candle.taker_quote.0);
    text(out, "B", "0");
    out.extend_from_slice(b"}}");
}

/// `<symbol>@ticker`.
pub(super) fn ticker(
    out: &mut Vec<u8>,
    now: Timestamp,
    symbol: &str,
    values: &TickerValues,
    book: &BookTicker,
) {
    let side = |best: Option<(Price, Qty)>| best.unwrap_or((Price::ZERO, Qty::ZERO));
    let (bid, ask) = (side(book.bid), side(book.ask));
    head(out, "24hrTicker", now, symbol);
    units(out, "p", values.change.0);
    key(out, "P");
    out.push(b'"');
    write_percent(out, values.percent);
    out.push(b'"');
    for (name, value) in [
        ("w", values.weighted_avg.0),
        ("x", values.previous_close.0),
        ("c", values.last.0),
        ("Q", values.last_qty.0),
        ("b", bid.0.0),
        ("B", bid.1.0),
        ("a", ask.0.0),
        ("A", ask.1.0),
        ("o", values.open.0),
        ("h", values.high.0),
        ("l", values.low.0),
        ("v", values.volume.0),
        ("q", values.quote_volume.0),
    ] {
        units(out, name, value);
    }
    let number = |id: TradeId| if values.trades == 0 { -1 } else { id.0 as i64 };
    int(out, "O", values.open_time.millis());
    int(out, "C", values.close_time.millis());
    int(out, "F", number(values.first_id));
    int(out, "L", number(values.last_id));
    int(out, "n", values.trades);
    out.push(b'}');
}

/// `<symbol>@miniTicker`.
pub(super) fn mini_ticker(out: &mut Vec<u8>, now: Timestamp, symbol: &str, values: &TickerValues) {
    head(out, "24hrMiniTicker", now, symbol);
    for (name, value) in [
        ("c", values.last.0),
        ("o", values.open.0),
        ("h", values.high.0),
        ("l", values.low.0),
        ("v", values.volume.0),
        ("q", values.quote_volume.0),
    ] {
        units(out, name, value);
    }
    out.push(b'}');
}

/// Sent once to every stream client before the server ends.
pub(super) fn server_shutdown(out: &mut Vec<u8>, now: Timestamp) {
    out.push(b'{');
    text(out, "e", "serverShutdown");
    int(out, "E", now.millis());
    out.push(b'}');
}

/// Thousandths of a percent as `-1.234`.
pub(crate) fn write_percent(out: &mut Vec<u8>, thousandths: i64) {
    if thousandths < 0 {
        out.push(b'-');
    }
    let magnitude = thousandths.unsigned_abs();
    write_int(out, magnitude / 1000);
    out.push(b'.');
    for digit in [magnitude / 100 % 10, magnitude / 10 % 10, magnitude % 10] {
        out.push(b'0' + digit as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_have_three_places() {
        for (thousandths, text) in [
            (0, "0.000"),
            (5, "0.005"),
            (-5, "-0.005"),
            (250_000, "250.000"),
            (-1234, "-1.234"),
            (99_999, "99.999"),
        ] {
            let mut out = Vec::new();
            write_percent(&mut out, thousandths);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
