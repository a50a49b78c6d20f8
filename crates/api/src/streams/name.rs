//! Names of streams, as clients write them.

use hoga_core::folds::candle::Interval;
use hoga_core::instrument::Name;

use crate::hub::{AllKind, Kind, Levels, Speed, Stream};

/// Reads a stream name: `<symbol>@trade`, `@aggTrade`, `@kline_<interval>`, `@ticker`, `@miniTicker`, `@bookTicker`, `@depth[@<speed>]`,
/// `@depth<levels>[@<speed>]` with speed `100ms`, `1000ms`, or `0ms` (an extension of Hoga: real time), and `!ticker@arr`,
/// `!miniTicker@arr`, both also with `@1000ms` as python-binance writes it, and `!bookTicker`. Symbols are lower case, as documented.
/// `None` for anything else.
pub fn parse(name: &str) -> Option<Stream> {
    if let Some(all) = name.strip_prefix('!') {
        return Some(Stream::All(match all {
            "ticker@arr" | "ticker@arr@1000ms" => AllKind::Ticker,
            "miniTicker@arr" | "miniTicker@arr@1000ms" => AllKind::MiniTicker,
            "bookTicker" => AllKind::BookTicker,
            _ => return None,
        }));
    }
    let (symbol, kind) = name.split_once('@')?;
    let kind = kind_of(kind)?;
    if symbol.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    Some(Stream::Market(Name::new(&symbol.to_ascii_uppercase())?, kind))
}

fn kind_of(kind: &str) -> Option<Kind> {
    match kind {
        "trade" => return Some(Kind::Trade),
        "aggTrade" => return Some(Kind::AggTrade),
        "ticker" => return Some(Kind::Ticker),
        "miniTicker" => return Some(Kind::MiniTicker),
        "bookTicker" => return Some(Kind::BookTicker),
        _ => {}
    }
    if let Some(interval) = kind.strip_prefix("kline_") {
        return Interval::parse(interval).map(Kind::Kline);
    }
    let rest = kind.strip_prefix("depth")?;
    let (levels, speed) = match rest.split_once('@') {
        Some((levels, "0ms")) => (levels, Speed::Realtime),
        Some((levels, "100ms")) => (levels, Speed::Fast),
        Some((levels, "1000ms")) => (levels, Speed::Slow),
        Some(_) => return None,
        None => (rest, Speed::Slow),
    };
    let levels = match levels {
        "" => return Some(Kind::Depth(speed)),
        "5" => Levels::L5,
        "10" => Levels::L10,
        "20" => Levels::L20,
        _ => return None,
    };
    Some(Kind::Partial(levels, speed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_names_that_clients_send() {
        let of = |kind| Some(Stream::Market(Name::new("BTCUSDT").unwrap(), kind));
        for (name, stream) in [
            ("btcusdt@trade", of(Kind::Trade)),
            ("btcusdt@aggTrade", of(Kind::AggTrade)),
            ("btcusdt@kline_1m", of(Kind::Kline(Interval::M1))),
            ("btcusdt@kline_1w", of(Kind::Kline(Interval::W1))),
            ("btcusdt@ticker", of(Kind::Ticker)),
            ("btcusdt@miniTicker", of(Kind::MiniTicker)),
            ("btcusdt@bookTicker", of(Kind::BookTicker)),
            ("btcusdt@depth", of(Kind::Depth(Speed::Slow))),
            ("btcusdt@depth@1000ms", of(Kind::Depth(Speed::Slow))),
            ("btcusdt@depth@100ms", of(Kind::Depth(Speed::Fast))),
            ("btcusdt@depth@0ms", of(Kind::Depth(Speed::Realtime))),
            ("btcusdt@depth5", of(Kind::Partial(Levels::L5, Speed::Slow))),
            ("btcusdt@depth10@100ms", of(Kind::Partial(Levels::L10, Speed::Fast))),
            ("btcusdt@depth20@1000ms", of(Kind::Partial(Levels::L20, Speed::Slow))),
            ("!ticker@arr", Some(Stream::All(AllKind::Ticker))),
            ("!miniTicker@arr", Some(Stream::All(AllKind::MiniTicker))),
            ("!miniTicker@arr@1000ms", Some(Stream::All(AllKind::MiniTicker))),
            ("!bookTicker", Some(Stream::All(AllKind::BookTicker))),
        ] {
            assert_eq!(parse(name), stream, "{name}");
        }
    }

    #[test]
    fn refuses_other_names() {
        for name in [
            "",
            "@",
            "!",
            "btcusdt",
            "0",
            "BTCUSDT@trade",
            "btcusdt@",
            "btcusdt@Trade",
            "btcusdt@depth7",
            "btcusdt@depth@",
            "btcusdt@depth@10ms",
            "btcusdt@depth5@100ms@100ms",
            "btcusdt@kline_",
            "btcusdt@kline_1M",
            "btcusdt@kline_1m@+08:00",
            "btc usdt@trade",
            "btc\"usdt@trade",
            "é@trade",
            "@trade",
            "!trade@arr",
            "!ticker",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaa@trade",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
