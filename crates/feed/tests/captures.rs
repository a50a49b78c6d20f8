//! Recordings of real exchanges: their trades, and candles folded from them against the candles that the exchange published in the same
//! recording. They are in the folder that `HOGA_DATA` names.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hoga_core::folds::candle::{CandleFold, Interval};
use hoga_core::ids::Timestamp;
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;
use hoga_feed::gateway::SourceTrade;
use hoga_feed::sources::{Capture, Flow, Format, Source, Speed};
use serde_json::Value;

/// The file of a recording, or `None` after saying that it is not there.
fn recording(test: &str, name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("HOGA_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let file = root.join("exchange-captures").join(name);
    let there = file.exists();
    if !there {
        eprintln!("SKIP {test}: {} is not there", file.display());
    }
    there.then_some(file)
}

fn play(path: &Path) -> (Capture, Vec<SourceTrade>) {
    let mut source = Capture::open(path, None, Speed::Max).unwrap();
    let mut out = Vec::new();
    assert_eq!(source.poll(Duration::ZERO, usize::MAX, &mut out), Flow::Ended);
    assert_eq!((source.status().broken, &source.status().fault), (0, &None), "{}", path.display());
    (source, out)
}

#[test]
fn all_trades_of_a_recording_are_found() {
    for (name, format, trades) in [
        ("BINANCE.ws.1.0", Format::Binance, 2),
        ("BINANCE_FUTURES.ws.1.0", Format::Binance, 91),
        ("UPBIT.ws.62.0", Format::Upbit, 304),
        ("KRAKEN.ws.48.0", Format::Kraken, 10),
    ] {
        let Some(path) = recording("all_trades_of_a_recording_are_found", name) else { continue };
        let (source, found) = play(&path);
        assert_eq!((source.format(), found.len()), (&format, trades), "{name}");
        assert!(found.is_sorted_by_key(|trade| trade.received), "{name}");
        let ids: HashSet<_> = found.iter().map(|trade| (trade.symbol, trade.tick.id)).collect();
        assert_eq!(ids.len(), trades, "{name}: ids are unique in a symbol");
        let mut last = BTreeMap::new();
        let falls = found
            .iter()
            .filter(|trade| last.insert(trade.symbol, trade.tick.id).is_some_and(|last| last > trade.tick.id))
            .count();
        // Upbit's overlap where a second ends; so its ids must not be taken as rising.
        assert_eq!(falls, if format == Format::Upbit { 6 } else { 0 }, "{name}");
        assert!(falls == 0 || !format.rising_ids());
    }
}

#[test]
fn a_trade_of_each_recording_is_as_it_was_written() {
    let test = "a_trade_of_each_recording_is_as_it_was_written";
    for (name, symbol, price, qty, received, time, side) in [
        (
            "BINANCE.ws.1.0",
            "NKNUSDT",
            "0.3528",
            "58",
            1_633_998_523_957_215,
            1_633_998_523_963_000,
            Side::Buy,
        ),
        (
            "UPBIT.ws.62.0",
            "KRW-LAMB",
            "127",
            "46.48838371",
            1_618_678_263_010_785,
            1_618_678_262_000_000,
            Side::Buy,
        ),
        (
            "KRAKEN.ws.48.0",
            "XMR/USD",
            "354.11",
            "0.89594024",
            1_618_678_142_592_855,
            1_618_678_142_557_535,
            Side::Sell,
        ),
    ] {
        let Some(path) = recording(test, name) else { continue };
        let first = play(&path).1[0];
        let (tick, price, qty) = (first.tick, Price::parse(price).unwrap(), Qty::parse(qty).unwrap());
        let when = (first.received, tick.time);
        assert_eq!((first.symbol.as_str(), when), (symbol, (Timestamp(received), Timestamp(time))));
        assert_eq!((tick.price, tick.qty, tick.taker_side), (price, qty, side));
    }
}

/// Minute candles of futures as published while they run: those whose trades are all in the recording equal the fold of these.
#[test]
fn folded_candles_equal_those_that_binance_published() {
    let name = "BINANCE_FUTURES.ws.1.0";
    let Some(path) = recording("folded_candles_equal_those_that_binance_published", name) else { return };
    // First and last single trade of each aggregate, which a tick does not carry.
    let (mut spans, mut candles) = (BTreeMap::new(), Vec::new());
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let Some((_, message)) = line.split_once(": ") else { continue };
        let Ok(message) = serde_json::from_str::<Value>(message) else { continue };
        let data = &message["data"];
        let number = |field: &str| data[field].as_u64().unwrap();
        match data["e"].as_str() {
            Some("aggTrade") => {
                let symbol = data["s"].as_str().unwrap().to_owned();
                spans.insert((symbol, number("a")), (number("f"), number("l")));
            }
            Some("kline") => candles.push(data["k"].clone()),
            _ => {}
        }
    }
    let trades = play(&path).1;
    let mut compared = 0;
    for candle in &candles {
        let text = |field: &str| candle[field].as_str().unwrap();
        let (Some(first), Some(last)) = (candle["f"].as_u64(), candle["L"].as_u64()) else { continue };
        let mut fold = CandleFold::new(Interval::M1, 2);
        let mut singles = 0;
        for trade in trades.iter().filter(|trade| trade.symbol.as_str() == text("s")) {
            let (from, to) = spans[&(text("s").to_owned(), trade.tick.id.0)];
            if first <= from && to <= last {
                fold.apply(&trade.tick);
                singles += to - from + 1;
            }
        }
        if singles != candle["n"].as_u64().unwrap() || singles == 0 {
            continue;
        }
        compared += 1;
        let found = fold.latest().unwrap();
        assert_eq!(found.open_time.0, candle["t"].as_i64().unwrap() * 1000);
        for (field, price) in [("o", found.open), ("h", found.high), ("l", found.low), ("c", found.close)] {
            assert_eq!(Price::parse(text(field)), Ok(price), "{field} of {candle}");
        }
        for (field, qty) in [("v", found.volume), ("V", found.taker_base)] {
            assert_eq!(Qty::parse(text(field)), Ok(qty), "{field} of {candle}");
        }
        for (field, amount) in [("q", found.quote_volume), ("Q", found.taker_quote)] {
            assert_eq!(Amount::parse(text(field)), Ok(amount), "{field} of {candle}");
        }
    }
    assert_eq!(compared, 15, "of {} candles", candles.len());
}
