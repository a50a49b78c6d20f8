//! The readers: what they make of good lines, what they say of bad ones, and that no bytes make them panic.

use hoga_core::command::Body;
use hoga_core::ids::{AccountId, MarketId, Timestamp};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{OrderType, Side};
use hoga_sim::bitstamp::{Capture, GHOSTS, PublishedTrade, Resting, Rows, Step, StepKind, read_trades};
use hoga_sim::consensus::{Message, Messages};
use hoga_sim::recording;
use proptest::prelude::*;
use std::path::PathBuf;

const HEADING: &str = "id,timestamp,exchange_timestamp,price,volume,action,direction\n";

fn capture(rows: &str) -> Capture {
    Capture::read(format!("{HEADING}{rows}").as_bytes()).unwrap()
}

#[test]
fn rows_become_steps_by_the_rules_of_the_data() {
    let ghost = GHOSTS[0];
    let capture = capture(&format!(
        "1,1000,900,78318.0,1.5,created,bid\n\
         {ghost},1000,900,78318.0,1.5,created,bid\n\
         2,1010,1000,78319.0,0.075,created,bid\n\
         2,1010,1000,78319.0,0.075,deleted,bid\n\
         3,1020,1010,78320.0,6.377e-05,created,ask\n\
         3,1020,1015,78320.0,6.377e-05,deleted,ask\n\
         4,1030,1020,999999999.0,0.0,created,bid\n\
         4,1030,1020,78406.0,0.0,changed,bid\n\
         4,1030,1020,78406.0,0.0,deleted,bid\n\
         5,1040,1019,1.0,1e-08,created,ask\n\
         1,1050,1050,78318.0,0.5,deleted,bid\n\
         {ghost},1050,1050,78318.0,1.5,deleted,bid\n"
    ));
    let limit = |side, price: i64, qty, post_only| StepKind::Limit {
        side,
        price: Price(price * SCALE),
        qty: Qty(qty),
        post_only,
    };
    let step = |ms: i64, order, kind| Step { time: Timestamp(ms * 1000), order, kind };
    assert_eq!(
        capture.steps,
        [
            step(900, 1, limit(Side::Buy, 78_318, 150_000_000, false)),
            step(1000, 2, limit(Side::Buy, 78_319, 7_500_000, true)),
            step(1000, 2, StepKind::Cancel),
            step(1010, 3, limit(Side::Sell, 78_320, 6_377, false)),
            step(1015, 3, StepKind::Cancel),
            step(1020, 4, StepKind::Market { side: Side::Buy, quote: Amount(5 * SCALE) }),
            step(1020, 5, limit(Side::Sell, 1, 1, false)), // time does not go back
        ]
    );
    assert_eq!(capture.end_book, [Resting { order: 1, qty: Qty(50_000_000) }]);
    let Body::Place(order) = capture.steps[1].body(AccountId(7), MarketId(3)) else { panic!("an order") };
    assert_eq!(
        (order.order_type, order.account, order.client_id.as_str()),
        (OrderType::LimitMaker, AccountId(7), "2")
    );
    assert!(capture.steps[2].body(AccountId(7), MarketId(3)).is_cancel());
}

#[test]
fn bad_lines_are_named() {
    for (row, message) in [
        ("1,2,3", "line 2 has 3 fields instead of 7"),
        ("x,1,1,1,1,created,bid", "line 2, field id: 'x' is not a whole number"),
        ("1,-1,1,1,1,created,bid", "line 2, field timestamp: '-1' is not a whole number"),
        (
            "1,1,18446744073709551616,1,1,created,bid",
            "line 2, field exchange_timestamp: '18446744073709551616' is out of range",
        ),
        (
            "1,1,18446744073709551615,1,1,created,bid",
            "line 2, field exchange_timestamp: '18446744073709551615' is out of range",
        ),
        ("1,1,1,1e400,1,created,bid", "line 2, field price: '1e400' is out of range"),
        ("1,1,1,1,1e-9,created,bid", "line 2, field volume: '1e-9' is finer than 8 decimal places"),
        ("1,1,1,1,1,moved,bid", "line 2, field action: 'moved' is neither created, changed nor deleted"),
        ("1,1,1,1,1,created,up", "line 2, field direction: 'up' is neither bid nor ask"),
    ] {
        let error = Capture::read(format!("{HEADING}{row}\n").as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let error = Capture::read("id,price\n1,2\n".as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("line 1 is not the heading 'id,timestamp"), "{error}");
    assert!(Capture::read([].as_slice()).is_err());
    // An iterator ends after its error.
    let mut rows = Rows::new("nonsense\n1,1,1,1,1,created,bid\n".as_bytes());
    assert!(rows.next().unwrap().is_err() && rows.next().is_none());
}

#[test]
fn trades_are_read_in_their_order() {
    let text = "trade_id,timestamp,exchange_timestamp,price,amount,buy_order_id,sell_order_id,side\n\
                8,1,1,78319.0,0.06384146,5,7,buy\n7,1,1,78319.0,0.121,5,6,sell\n";
    let trade = |id, qty, sell_order, taker_side| PublishedTrade {
        id,
        price: Price(78_319 * SCALE),
        qty: Qty(qty),
        buy_order: 5,
        sell_order,
        taker_side,
    };
    assert_eq!(
        read_trades(text.as_bytes()).unwrap(),
        [trade(7, 12_100_000, 6, Side::Sell), trade(8, 6_384_146, 7, Side::Buy)]
    );
}

#[test]
fn consensus_messages_are_read() {
    let text = "N,S,0,814347,33721,88\nC,814347\nM,B,2,105,10\nN,B,1,4,102,30\n";
    let messages: Result<Vec<Message>, _> = Messages::new(text.as_bytes()).collect();
    assert_eq!(
        messages.unwrap(),
        [
            Message::New { side: Side::Sell, ioc: false, id: 814_347, price: 33_721, qty: 88 },
            Message::Cancel { id: 814_347 },
            Message::Modify { side: Side::Buy, id: 2, price: 105, qty: 10 },
            Message::New { side: Side::Buy, ioc: true, id: 4, price: 102, qty: 30 },
        ]
    );
    for (line, message) in [
        ("X,1", "line 1, field kind: 'X,1' is not a message (N, C or M)"),
        ("Cancel,1", "line 1, field kind: 'Cancel' is not a message (N, C or M)"),
        ("C", "line 1 has 1 fields instead of 2"),
        ("N,B,2,1,1,1", "line 1, field ioc: '2' is neither 0 nor 1"),
        ("N,b,0,1,1,1", "line 1, field side: 'b' is neither B nor S"),
        ("N,B,0,1,0,1", "line 1, field price: '0' is zero"),
        ("N,B,0,1,1,9223372036854775808", "line 1, field qty: '9223372036854775808' is out of range"),
    ] {
        assert_eq!(Messages::new(line.as_bytes()).next().unwrap().unwrap_err().to_string(), message);
    }
}

/// The recorded messages, whole: the count that the benchmark states for scenario `normal`, and its five slices.
#[test]
fn the_recorded_messages_are_read_whole() {
    let root = std::env::var_os("HOGA_DATA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from)
        .join("me-consensus");
    if !root.exists() {
        eprintln!("SKIP the_recorded_messages_are_read_whole: {} is not there", root.display());
        return;
    }
    let count = |name: &str| {
        let reader = recording::open(&root.join(name)).unwrap();
        Messages::new(reader).inspect(|message| assert!(message.is_ok())).count()
    };
    for slice in ["normal", "static", "swing-25", "swing-40", "flash-crash"] {
        assert!(count(&format!("{slice}-20k-seed7.csv.gz")) > 39_000, "{slice}");
    }
    assert_eq!(count("normal-1m.part1.csv.xz") + count("normal-1m.part2.csv.xz"), 1_996_097);
}

/// Bytes that look like lines of a recording more often than not.
fn nearly_lines() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            ",", "\n", "1", "78319.0", "6.377e-05", "created", "changed", "deleted", "bid", "ask", "N", "C", "M", "B", "S", "0",
            "999999999.0", "1,2,3,4.0,5.0,created,bid\n", "N,B,0,1,2,3\n", "e", ".", "-", "\r\n", "18446744073709551615", "1e308",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in nearly_lines()) {
        let _ = Messages::new(bytes.as_slice()).collect::<Result<Vec<_>, _>>();
        let _ = Capture::read(bytes.as_slice());
        let mut with_heading = HEADING.as_bytes().to_vec();
        with_heading.extend_from_slice(&bytes);
        if let Ok(capture) = Capture::read(with_heading.as_slice()) {
            prop_assert!(capture.steps.is_sorted_by_key(|step| step.time));
            for step in capture.steps {
                let _ = step.body(AccountId(1), MarketId(0));
            }
        }
        let heading = "trade_id,timestamp,exchange_timestamp,price,amount,buy_order_id,sell_order_id,side\n";
        let _ = read_trades([heading.as_bytes(), &bytes].concat().as_slice());
    }
}
