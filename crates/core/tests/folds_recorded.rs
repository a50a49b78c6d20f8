//! The folds against what real exchanges published: Kraken's candles of its own trades, Kraken's checksums of its books, and Binance's
//! best bid and ask of the same update. The recordings are in the folder that `HOGA_DATA` names.

use hoga_core::folds::candle::{Candle, CandleFold, Interval, Tick, filled};
use hoga_core::folds::depth::{DepthBook, DepthDiff};
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Price, Qty, notional, parse_units, write_decimals};
use hoga_core::order::Side;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// The text of a recording, or `None` after saying that it is not there.
fn recording(test: &str, path: &str) -> Option<String> {
    let root = std::env::var_os("HOGA_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let file = root.join(path);
    match std::fs::read_to_string(&file) {
        Ok(text) => Some(text),
        Err(error) => {
            eprintln!("SKIP {test}: {}: {error}", file.display());
            None
        }
    }
}

/// Whole digits of a plain decimal without its point: exact, and with as many places as the text has.
fn digits(text: &str) -> i64 {
    text.replace('.', "").parse().unwrap()
}

/// Kraken's tick (0.1) times its lot (10⁻⁸) is finer than 10⁻⁸, which no instrument of Hoga may be; so the quote asset is counted in
/// tenths here, and the sums are exact.
fn tenths(price: &str) -> Price {
    let price = Price::parse(price).unwrap();
    Price(price.0 * 10)
}

fn kraken_ticks(trades: &Value) -> Vec<Tick> {
    let rows = trades["result"]["XBTUSDT"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            let (price, qty) =
                (tenths(row[0].as_str().unwrap()), Qty::parse(row[1].as_str().unwrap()).unwrap());
            Tick {
                time: Timestamp((row[2].as_f64().unwrap() * 1e6) as i64),
                id: TradeId(row[6].as_u64().unwrap()),
                price,
                qty,
                quote: notional(price, qty).unwrap(),
                taker_side: if row[3] == "b" { Side::Buy } else { Side::Sell },
            }
        })
        .collect()
}

/// 273 of 273 minutes with trades and 215 of 215 empty ones (case B11: the average price is cut, an empty minute has 0.0).
#[test]
fn kraken_candles_equal_the_published_ones() {
    let test = "kraken_candles_equal_the_published_ones";
    let Some(trades) = recording(test, "kraken-ohlc/http_trades.json") else { return };
    let Some(candles) = recording(test, "kraken-ohlc/http_ohlc.json") else { return };
    let ticks = kraken_ticks(&serde_json::from_str(&trades).unwrap());
    let published: Value = serde_json::from_str(&candles).unwrap();
    let published = published["result"]["XBTUSDT"].as_array().unwrap();
    let minute = |row: &Value| Timestamp(row[0].as_i64().unwrap() * 1_000_000);
    let price = |row: &Value, column: usize| tenths(row[column].as_str().unwrap());

    let mut fold = CandleFold::new(Interval::M1, usize::MAX);
    ticks.iter().for_each(|tick| {
        fold.apply(tick);
    });
    // The recording begins within a minute: that one is partial, and so is what Kraken shows after the last trade's minute.
    let partial = Interval::M1.floor(ticks[0].time);
    let (mut traded, mut empty) = (0, 0);
    for row in published {
        let Ok(at) = fold.kept().map(|c| c.open_time).collect::<Vec<_>>().binary_search(&minute(row)) else {
            continue;
        };
        let candle = *fold.kept().nth(at).unwrap();
        if candle.open_time == partial {
            continue;
        }
        let four = [candle.open, candle.high, candle.low, candle.close];
        assert_eq!(four, [1, 2, 3, 4].map(|column| price(row, column)), "{row}");
        assert_eq!(candle.vwap(tenths("0.1")), price(row, 5), "{row}");
        assert_eq!(candle.volume, Qty::parse(row[6].as_str().unwrap()).unwrap(), "{row}");
        assert_eq!(candle.trades, row[7].as_u64().unwrap(), "{row}");
        traded += 1;
    }
    // Empty minutes: filled from the published candles around them, since the trades cover only a part of the hours.
    let real: Vec<Candle> = published
        .iter()
        .filter(|row| row[7] != 0)
        .map(|row| Candle { trades: 1, ..Candle::flat(minute(row), price(row, 4)) })
        .collect();
    let (first, last) = (&published[0], &published[published.len() - 1]);
    let end = Interval::M1.next(minute(last));
    let all = filled(real, Interval::M1, minute(first), end, Some(price(first, 1)));
    for (candle, row) in all.zip(published) {
        assert_eq!(candle.open_time, minute(row), "no hole");
        if candle.trades == 0 && row != first {
            let four = [candle.open, candle.high, candle.low, candle.close];
            assert_eq!(four, [1, 2, 3, 4].map(|column| price(row, column)), "{row}");
            assert_eq!((candle.vwap(tenths("0.1")), candle.volume), (price(row, 5), Qty::ZERO), "{row}");
            assert_eq!(Qty::parse(row[6].as_str().unwrap()).unwrap(), Qty::ZERO, "{row}");
            empty += 1;
        }
    }
    assert_eq!((traded, empty), (273, 215));
}

/// One pair of the Kraken feed: its levels in whole digits, and how many places its prices and volumes have.
struct KrakenBook {
    book: DepthBook,
    places: (usize, usize),
}

impl KrakenBook {
    fn set(&mut self, side: Side, levels: &Value) {
        for level in levels.as_array().unwrap() {
            let (price, volume) = (level[0].as_str().unwrap(), level[1].as_str().unwrap());
            let places = |text: &str| text.len() - text.find('.').unwrap() - 1;
            assert_eq!((places(price), places(volume)), self.places, "the places of a pair do not change");
            self.book.set(side, Price(digits(price)), Qty(digits(volume)));
        }
    }

    /// CRC-32 over price and volume, without point and leading zeros, of the ten best asks and then the ten best bids.
    fn checksum(&self) -> u32 {
        let mut crc = flate2::Crc::new();
        for side in [Side::Sell, Side::Buy] {
            for (price, qty) in self.book.levels(side).take(10) {
                crc.update(price.0.to_string().as_bytes());
                crc.update(qty.0.to_string().as_bytes());
            }
        }
        crc.sum()
    }
}

/// C9: 4,269 of 4,269 checksums.
#[test]
fn kraken_books_equal_their_checksums() {
    let Some(text) = recording("kraken_books_equal_their_checksums", "exchange-captures/KRAKEN.ws.50.0")
    else {
        return;
    };
    let mut books: HashMap<String, KrakenBook> = HashMap::new();
    let mut equal = 0;
    for line in text.lines() {
        let Some((_, message)) = line.split_once(": ") else { continue };
        let Ok(Value::Array(message)) = serde_json::from_str(message) else { continue };
        let pair = message[message.len() - 1].as_str().unwrap().to_owned();
        if message[1].get("as").is_some() {
            let places = |column: usize| {
                let text = message[1]["as"][0][column].as_str().unwrap();
                text.len() - text.find('.').unwrap() - 1
            };
            let mut book = KrakenBook { book: DepthBook::new(), places: (places(0), places(1)) };
            book.set(Side::Sell, &message[1]["as"]);
            book.set(Side::Buy, &message[1]["bs"]);
            books.insert(pair, book);
            continue;
        }
        let book = books.get_mut(&pair).unwrap();
        let mut published = None;
        for part in &message[1..message.len() - 2] {
            for (key, side) in [("a", Side::Sell), ("b", Side::Buy)] {
                if let Some(levels) = part.get(key) {
                    book.set(side, levels);
                }
            }
            published = part.get("c").and_then(Value::as_str).or(published);
        }
        book.book.truncate(1000);
        assert_eq!(book.checksum().to_string(), published.unwrap(), "{line}");
        equal += 1;
    }
    assert_eq!(equal, 4269);
}

/// The exact text of every Kraken price and volume comes back from units of 10⁻⁸ and the pair's number of places.
#[test]
fn kraken_texts_survive_the_units() {
    let Some(text) = recording("kraken_texts_survive_the_units", "exchange-captures/KRAKEN.ws.50.0") else {
        return;
    };
    let mut seen = 0;
    for line in text.lines().filter(|line| line.contains("book-1000")) {
        for number in line
            .split('"')
            .filter(|part| part.contains('.') && part.bytes().all(|b| b == b'.' || b.is_ascii_digit()))
        {
            let places = number.len() - number.find('.').unwrap() - 1;
            // Prices of some pairs have nine places and times six; those of nine end in a zero here.
            let mut out = Vec::new();
            write_decimals(&mut out, parse_units(number).unwrap(), places.min(8) as u32);
            out.resize(out.len() + places.saturating_sub(8), b'0');
            assert_eq!(String::from_utf8(out).unwrap(), number);
            seen += 1;
        }
    }
    assert!(seen > 10_000, "{seen}");
}

fn binance_levels(levels: &Value) -> Vec<(Price, Qty)> {
    let number = |text: &Value| parse_units(text.as_str().unwrap()).unwrap();
    levels
        .as_array()
        .unwrap()
        .iter()
        .map(|level| (Price(number(&level[0])), Qty(number(&level[1]))))
        .collect()
}

fn symbol_of(url: &str) -> String {
    url.split("symbol=").nth(1).unwrap().split('&').next().unwrap().to_owned()
}

/// Replays one Binance capture: how often the copy's best bid and ask could be compared with the published ones of the same update, and
/// how many diffs were applied.
fn compare_binance(http: &str, ws: &str, futures: bool) -> (usize, usize) {
    let mut books: BTreeMap<String, DepthBook> = BTreeMap::new();
    for line in http.lines().filter(|line| line.contains("/depth?")) {
        let (url, rest) = line.split_once(" -> ").unwrap();
        let (_, body) = rest.split_once(": ").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        let last = body["lastUpdateId"].as_u64().unwrap();
        let book =
            DepthBook::from_snapshot(last, binance_levels(&body["bids"]), binance_levels(&body["asks"]));
        books.insert(symbol_of(url), book);
    }
    let messages: Vec<Value> = ws
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.split_once(": ")?.1).ok())
        .map(|message| message["data"].clone())
        .collect();
    let mut best: HashMap<(&str, u64), &Value> = HashMap::new();
    for data in messages.iter().filter(|data| data.get("B").is_some()) {
        best.insert((data["s"].as_str().unwrap(), data["u"].as_u64().unwrap()), data);
    }
    let (mut compared, mut applied) = (0, 0);
    for data in messages.iter().filter(|data| data["e"] == "depthUpdate") {
        let symbol = data["s"].as_str().unwrap();
        let Some(book) = books.get_mut(symbol) else { continue };
        let id = |name: &str| data[name].as_u64().unwrap();
        let diff = DepthDiff {
            // Futures count updates over all symbols: there a message begins behind the one before it.
            first: if futures { id("pu") + 1 } else { id("U") },
            last: id("u"),
            previous: 0,
            bids: binance_levels(&data["b"]),
            asks: binance_levels(&data["a"]),
        };
        book.apply_diff(&diff).unwrap_or_else(|error| panic!("{symbol}: {error}"));
        applied += 1;
        let Some(published) = best.get(&(symbol, book.update_id())) else { continue };
        let of = |side| book.best(side).unwrap();
        let number = |name: &str| parse_units(published[name].as_str().unwrap()).unwrap();
        assert_eq!(of(Side::Buy), (Price(number("b")), Qty(number("B"))), "{published}");
        assert_eq!(of(Side::Sell), (Price(number("a")), Qty(number("A"))), "{published}");
        compared += 1;
    }
    (compared, applied)
}

/// 26 of 26 (spot) and 50 of 50 (futures), without a gap in the update ids.
#[test]
fn binance_books_equal_the_published_best() {
    for (capture, futures, expected) in [("BINANCE", false, (26, 177)), ("BINANCE_FUTURES", true, (50, 764))]
    {
        let test = "binance_books_equal_the_published_best";
        let Some(http) = recording(test, &format!("exchange-captures/{capture}.http.0.0")) else { return };
        let Some(ws) = recording(test, &format!("exchange-captures/{capture}.ws.1.0")) else { return };
        assert_eq!(compare_binance(&http, &ws, futures), expected, "{capture}");
    }
}
