use super::*;
use proptest::prelude::*;

const MESSAGES: [(Format, &str); 5] = [
    (
        Format::Binance,
        r#"{"stream":"ctkusdt@aggTrade","data":{"e":"aggTrade","E":1626992741575,"a":16599292,"s":"CTKUSDT","p":"1.01100","q":"10","f":23961322,"l":23961322,"T":1626992741421,"m":true}}"#,
    ),
    (
        Format::Binance,
        r#"{"e":"trade","E":1672515782136,"s":"CTKUSDT","t":16599292,"p":"1.011","q":"10","T":1626992741421,"m":true,"M":true}"#,
    ),
    (
        Format::Upbit,
        r#"{"ty":"trade","cd":"CTKUSDT","tms":1618678272375,"ttms":1626992741421,"tp":1011E-3,"tv":10.0,"ab":"ASK","cp":6E-8,"sid":16599292,"st":"REALTIME"}"#,
    ),
    (Format::Kraken, r#"[993,[["1.01100000","10","1626992741.421000","s","l",""]],"trade","CTKUSDT"]"#),
    (
        Format::Bitstamp,
        r#"{"data":{"id":16599292,"timestamp":"1626992741","amount":10.0,"amount_str":"10.00000000","price":1.011,"price_str":"1.011","type":1,"microtimestamp":"1626992741421000","buy_order_id":1,"sell_order_id":2},"channel":"live_trades_CTKUSDT","event":"trade"}"#,
    ),
];

fn read(format: &Format, message: &str) -> Result<Vec<SourceTrade>, ParseError> {
    let mut out = Vec::new();
    let added = trades(format, message.as_bytes(), Timestamp(9), &mut out)?;
    assert_eq!(added, out.len());
    Ok(out)
}

#[test]
fn the_same_trade_as_each_exchange_writes_it() {
    for (format, message) in MESSAGES {
        let id = if format == Format::Kraken { 0 } else { 16_599_292 };
        let expected = SourceTrade {
            symbol: Symbol::parse("CTKUSDT").unwrap(),
            received: Timestamp(9),
            tick: Tick {
                time: Timestamp(1_626_992_741_421_000),
                id: TradeId(id),
                price: Price(101_100_000),
                qty: Qty(1_000_000_000),
                quote: hoga_core::money::Amount(1_011_000_000),
                taker_side: Side::Sell,
            },
        };
        assert_eq!(read(&format, message), Ok(vec![expected]), "{message}");
        assert_eq!(Format::detect(message.as_bytes()), Some(format));
    }
}

#[test]
fn messages_of_something_else_have_no_trades_and_refusals_are_told() {
    for (format, message) in [
        (Format::Binance, r#"{"result":null,"id":1}"#),
        (Format::Binance, r#"{"stream":"a@depth","data":{"e":"depthUpdate","a":[["1","2"]],"b":[]}}"#),
        (Format::Binance, r#"{"stream":"!miniTicker@arr","data":[{"e":"24hrMiniTicker"}]}"#),
        (Format::Upbit, r#"{"status":"UP"}"#),
        (Format::Upbit, r#"{"ty":"orderbook","cd":"KRW-LAMB"}"#),
        (Format::Kraken, r#"{"event":"heartbeat"}"#),
        (Format::Kraken, r#"[1,{"a":["1"]},{"b":["2"]},"book-10","XBT/USD"]"#),
        (Format::Kraken, r#"[1,{"a":["1"]},"ticker","XBT/USD"]"#),
        (
            Format::Bitstamp,
            r#"{"event":"bts:subscription_succeeded","channel":"live_trades_btcusd","data":{}}"#,
        ),
        (Format::Bitstamp, r#"{"event":"bts:request_reconnect","channel":"","data":""}"#),
        (Format::Binance, "[]"),
        (Format::Upbit, "7"),
        (Format::Bitstamp, "null"),
    ] {
        assert_eq!(read(&format, message), Ok(vec![]), "{message}");
    }
    for (format, message) in [
        (Format::Binance, r#"{"error":{"code":2,"msg":"Invalid request"}}"#),
        (Format::Upbit, r#"{"error":{"name":"NO_CODES","message":"codes"}}"#),
        (Format::Kraken, r#"{"errorMessage":"Currency pair not supported","event":"subscriptionStatus"}"#),
        (
            Format::Bitstamp,
            r#"{"event":"bts:error","channel":"","data":{"code":null,"message":"Bad channel"}}"#,
        ),
    ] {
        assert!(matches!(read(&format, message), Err(ParseError::Refused(_))), "{message}");
    }
}

#[test]
fn trades_that_cannot_be_taken_say_why_and_leave_nothing() {
    let kraken = |trade: &str| {
        let good = r#"["1","1","1618678150.8","b","l",""]"#;
        read(&Format::Kraken, &format!(r#"[1,[{good},{trade}],"trade","A"]"#)).unwrap_err().to_string()
    };
    for (trade, text) in [
        (r#"["0.000000001","1","1618678150.8","b"]"#, "more than 8 decimal places"),
        (r#"["1e-9","1","1618678150.8","b"]"#, "more than 8 decimal places"),
        (r#"["0","1","1618678150.8","b"]"#, "a price is above 0"),
        (r#"["1","-1","1618678150.8","b"]"#, "not below 0"),
        (r#"["90000000000","2","1618678150.8","b"]"#, "price × quantity"),
        (r#"["1","99999999999","1618678150.8","b"]"#, "out of range"),
        (r#"["1","1","-5","b"]"#, "the time"),
        (r#"["1","1","1618678150.8","x"]"#, "b or s is expected"),
        (r#"["1","1"]"#, "has no time"),
        (r#"["1",null,"1","b"]"#, "a text or a number is expected"),
    ] {
        let found = kraken(trade);
        assert!(found.contains(text), "{trade}: {found}");
    }
    let mut out = Vec::new();
    let message = br#"[1,[["1","1","1618678150.8","b"],["0","1","1618678150.8","b"]],"trade","A"]"#;
    assert!(trades(&Format::Kraken, message, Timestamp(1), &mut out).is_err() && out.is_empty());
    let long = MESSAGES[0].1.replace("CTKUSDT\",\"p", "WITH SPACE\",\"p");
    assert!(read(&Format::Binance, &long).unwrap_err().to_string().contains("is no symbol"));
    assert!(matches!(read(&Format::Binance, "{\"a\":"), Err(ParseError::Json(_))));
    let cut = MESSAGES[0].1.replace("\"p\":\"1.01100\",", "");
    assert_eq!(read(&Format::Binance, &cut), Err(ParseError::missing("p")));
}

#[test]
fn decimals_with_exponents_are_exact() {
    for (text, units) in [
        ("6E-8", 6),
        ("1.13E-6", 113),
        ("113e-8", 113),
        ("1.5e+3", 150_000_000_000),
        ("1e0", 100_000_000),
        ("-12.5e-1", -125_000_000),
        ("0e999", 0),
        ("0.0E-99", 0),
        ("1.10e-7", 11),
        ("127.0", 12_700_000_000),
        ("9.223372036854775807e10", i64::MAX),
    ] {
        assert_eq!(decimal("x", text), Ok(units), "{text}");
    }
    for wrong in
        ["1e", "e5", "1e5.0", "1e-9", "1e11", "1e2147483648", "1e-2000000000", "--1e1", "1.2.3e1", "."]
    {
        assert!(decimal("x", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn times_are_cut_to_microseconds() {
    for (text, unit, expected) in [
        ("1618678150.8278169", TimeUnit::S, 1_618_678_150_827_816),
        ("1618678150", TimeUnit::S, 1_618_678_150_000_000),
        ("1618678150827.5", TimeUnit::Ms, 1_618_678_150_827_500),
        ("1618678150827816", TimeUnit::Us, 1_618_678_150_827_816),
        ("1618678150827816999", TimeUnit::Ns, 1_618_678_150_827_816),
    ] {
        assert_eq!(micros(text, unit), Some(Timestamp(expected)), "{text}");
    }
    for wrong in ["", "0", "-1", "1e9", "1.2.3", ".5", "9999999999999999999", "99999999999999999999999"] {
        assert_eq!(micros(wrong, TimeUnit::S), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in Format::NAMED {
            let _ = trades(&format, &bytes, Timestamp(1), &mut Vec::new());
        }
    }

    #[test]
    fn damaged_messages_are_read_without_a_panic(
        which in 0..MESSAGES.len(), at in 0..260_usize, byte in any::<u8>(), cut in 1..300_usize
    ) {
        let mut damaged = MESSAGES[which].1.as_bytes().to_vec();
        damaged.truncate(cut);
        if let Some(place) = damaged.get_mut(at) {
            *place = byte;
        }
        for format in Format::NAMED {
            let mut out = Vec::new();
            if trades(&format, &damaged, Timestamp(1), &mut out).is_err() {
                prop_assert!(out.is_empty());
            }
        }
    }

    #[test]
    fn an_exponent_changes_nothing(units in any::<i64>(), exponent in -30..30_i32) {
        // The same number, written with this exponent.
        let mut text = Vec::new();
        hoga_core::money::write_units(&mut text, units);
        let text = String::from_utf8(text).unwrap();
        let digits = text.replace('.', "");
        prop_assert_eq!(decimal("x", &format!("{digits}e-8")), Ok(units));
        let (sign, digits) = digits.strip_prefix('-').map_or(("", &*digits), |rest| ("-", rest));
        let moved = plain(&format!("{sign}{digits}"), &exponent.to_string()).unwrap();
        let back = plain(&moved, &(-exponent - 8).to_string()).unwrap();
        prop_assert_eq!(decimal("x", &back), Ok(units));
    }
}
