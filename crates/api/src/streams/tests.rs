use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hoga_core::event::{Event, EventRecord, Level};
use hoga_core::ids::{AssetId, MarketId, Seq, Timestamp};
use hoga_core::instrument::{Instrument, TradingState};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::Side;
use hoga_engine::Subscriber;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::duplex;

use super::*;
use crate::hub::{HubConfig, HubFeed};
use crate::ws::testing::{Listener, Peer, Seen};
use crate::ws::{self, Config, Counters, Opcode};

struct Rig {
    hub: Hub,
    feed: HubFeed,
    update_id: u64,
}

impl Rig {
    fn new() -> Rig {
        let (hub, feed) = Hub::start(HubConfig::default()).unwrap();
        let mut rig = Rig { hub, feed, update_id: 0 };
        for (id, symbol) in [(0, "BTCUSDT"), (1, "ETHUSDT")] {
            rig.give(Event::InstrumentSet(Instrument {
                id: MarketId(id),
                symbol: Name::new(symbol).unwrap(),
                base: AssetId(1),
                quote: AssetId(0),
                state: TradingState::Open,
                price_tick: Price(1),
                price_min: Price(1),
                price_max: Price(i64::MAX),
                lot_step: Qty(100_000_000),
                lot_min: Qty(100_000_000),
                lot_max: Qty(i64::MAX),
                market_lot_max: Qty(i64::MAX),
                notional_min: Amount(1),
                notional_max: Amount(i64::MAX),
                percent_up: 0,
                percent_down: 0,
                market_band_bps: 0,
                max_orders: 0,
                max_algo_orders: 0,
                max_position: Qty(0),
                maker_fee_ppm: 0,
                taker_fee_ppm: 0,
            }));
        }
        rig.hub.prime(vec![]);
        rig
    }

    fn give(&mut self, event: Event) {
        self.feed.on_events(&[EventRecord { seq: Seq(1), index: 0, time: Timestamp(1), event }]);
    }

    fn level(&mut self) {
        self.update_id += 1;
        let (price, qty) = (Price(1), Qty(self.update_id as i64));
        let level = Level { market: MarketId(0), side: Side::Buy, price, qty, update_id: self.update_id };
        self.give(Event::Level(level));
        self.hub.prime(vec![]);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.hub.shutdown();
    }
}

#[test]
fn addresses_say_what_to_send_and_how() {
    let rig = Rig::new();
    let names = |target: Target| target.streams.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    for (address, combined, streams) in [
        ("/ws", false, &[][..]),
        ("/ws/", false, &[]),
        ("/ws/0", false, &[]),
        ("/ws/17", false, &[]),
        ("/stream", true, &[]),
        ("/stream/0", false, &[]),
        ("/stream/ws", false, &[]),
        ("/stream/ws/3", false, &[]),
        ("/ws/btcusdt@trade", false, &["btcusdt@trade"]),
        ("/ws/btcusdt@depth@100ms", false, &["btcusdt@depth@100ms"]),
        ("/ws/!miniTicker@arr@1000ms", false, &["!miniTicker@arr@1000ms"]),
        ("/ws/btcusdt@trade/ethusdt@ticker", false, &["btcusdt@trade", "ethusdt@ticker"]),
        ("/ws/btcusdt%40trade", false, &["btcusdt@trade"]),
        (
            "/stream?streams=btcusdt@trade/btcusdt@depth@100ms",
            true,
            &["btcusdt@trade", "btcusdt@depth@100ms"],
        ),
        ("/stream?streams=btcusdt%40trade%2F!ticker%40arr", true, &["btcusdt@trade", "!ticker@arr"]),
        ("/stream?a=b&streams=btcusdt@trade/btcusdt@trade/", true, &["btcusdt@trade"]),
    ] {
        let (path, query) =
            address.split_once('?').map_or((address, None), |(path, query)| (path, Some(query)));
        let target = target(path, query, &rig.hub).unwrap().unwrap();
        assert_eq!(
            (target.combined, &names(target)[..]),
            (combined, &streams.iter().map(|s| s.to_string()).collect::<Vec<_>>()[..]),
            "{address}"
        );
    }
    for address in [
        "/",
        "/wsx",
        "/ws-api/v3",
        "/streams",
        "/api/v3/ping",
        "/ws/some-long-word-that-is-no-number",
        "/ws/%00",
    ] {
        assert_eq!(target(address, None, &rig.hub), None, "{address}");
    }
    for (address, code) in [
        ("/ws/btcusdt@nothing", -1100),
        ("/ws/BTCUSDT@trade", -1100),
        ("/ws/xrpusdt@trade", -1121),
        ("/ws/!nothing", -1100),
    ] {
        let error = target(address, None, &rig.hub).unwrap().unwrap_err();
        assert_eq!(error.code_and_message().0, code, "{address}");
    }
    let many = "btcusdt@trade/".repeat(MAX_STREAMS + 1);
    assert_eq!(
        target("/stream", Some(&format!("streams={many}")), &rig.hub),
        Some(Err(TargetError::TooMany))
    );
}

fn ask(session: &mut Session, listener: &mut Listener, request: &str) -> String {
    session.message(Incoming::Text(request)).unwrap();
    let texts = listener.texts();
    assert_eq!(texts.len(), 1, "{request}: {texts:?}");
    texts.into_iter().next().unwrap()
}

fn open(rig: &Rig, listener: &Listener, path: &str) -> Session {
    Session::open(rig.hub.clone(), target(path, None, &rig.hub).unwrap().unwrap(), listener.out.clone())
}

#[test]
fn requests_are_answered_to_the_letter() {
    let rig = Rig::new();
    let mut listener = Listener::new();
    let mut session = open(&rig, &listener, "/ws/0");
    let methods = "`SUBSCRIBE`, `UNSUBSCRIBE`, `LIST_SUBSCRIPTIONS`, `SET_PROPERTY`, `GET_PROPERTY`";
    let unknown = format!(
        "{{\"error\":{{\"code\":2,\"msg\":\"Invalid request: unknown variant `SUSCRIBE`, expected one of {methods} at line 1 column 20\"}}}}"
    );
    let invalid = r#"{"error":{"code":2,"msg":"Invalid request: invalid stream"},"id":4}"#;
    let no_id = r#"{"error":{"code":2,"msg":"Invalid request: request ID must be an unsigned integer"}}"#;
    for (request, answer) in [
        (
            r#"{"method":"SUBSCRIBE","params":["btcusdt@trade","btcusdt@depth@100ms"],"id":1}"#,
            r#"{"result":null,"id":1}"#,
        ),
        (
            r#"{"method":"LIST_SUBSCRIPTIONS","id":3}"#,
            r#"{"result":["btcusdt@trade","btcusdt@depth@100ms"],"id":3}"#,
        ),
        // Again: nothing changes.
        (
            r#"{"method":"SUBSCRIBE","params":["btcusdt@trade"],"id":-9223372036854775808}"#,
            r#"{"result":null,"id":-9223372036854775808}"#,
        ),
        (
            r#"{"method":"UNSUBSCRIBE","params":["btcusdt@depth@100ms","ethusdt@trade"],"id":"2"}"#,
            r#"{"result":null,"id":"2"}"#,
        ),
        (
            r#"{"method":"LIST_SUBSCRIPTIONS","id":"1f0c9d0e-5b7e-4a55-9d52-2a4f6f3a1b2c"}"#,
            r#"{"result":["btcusdt@trade"],"id":"1f0c9d0e-5b7e-4a55-9d52-2a4f6f3a1b2c"}"#,
        ),
        (
            r#"{"method":"LIST_SUBSCRIPTIONS","params":[],"id":null}"#,
            r#"{"result":["btcusdt@trade"],"id":null}"#,
        ),
        (r#"{"method":"GET_PROPERTY","params":["combined"],"id":2}"#, r#"{"result":false,"id":2}"#),
        (r#"{"method":"SET_PROPERTY","params":["combined",true],"id":5}"#, r#"{"result":null,"id":5}"#),
        (r#"{"method":"GET_PROPERTY","params":["combined"],"id":2}"#, r#"{"result":true,"id":2}"#),
        (r#"{"method":"SUBSCRIBE","params":["btcusdt@nope"],"id":4}"#, invalid),
        (r#"{"method":"SUBSCRIBE","params":["ethusdt@trade","xrpusdt@trade"],"id":4}"#, invalid),
        (r#"{"method":"SUBSCRIBE","params":["ethusdt@trade",7],"id":4}"#, invalid),
        // A request with a bad name changed nothing.
        (r#"{"method":"LIST_SUBSCRIPTIONS","id":3}"#, r#"{"result":["btcusdt@trade"],"id":3}"#),
        (r#"{"method":"SUSCRIBE","id":1}"#, &unknown),
        (
            r#"{"params":[],"id":1}"#,
            r#"{"error":{"code":2,"msg":"Invalid request: missing field `method` at line 1 column 20"}}"#,
        ),
        (r#"{"method":"SUBSCRIBE","params":[]}"#, no_id),
        (r#"{"method":"SUBSCRIBE","params":[],"id":1.5}"#, no_id),
        (r#"{"method":"SUBSCRIBE","params":[],"id":{}}"#, no_id),
        (r#"{"method":"SUBSCRIBE","params":[],"id":"1234567890123456789012345678901234567"}"#, no_id),
        (
            r#"{"method":"SET_PROPERTY","params":["combine",true],"id":6}"#,
            r#"{"error":{"code":0,"msg":"Unknown property"},"id":6}"#,
        ),
        (
            r#"{"method":"SET_PROPERTY","params":["combined","yes"],"id":6}"#,
            r#"{"error":{"code":1,"msg":"Invalid value type: expected Boolean"},"id":6}"#,
        ),
        (
            r#"{"method":"SET_PROPERTY","params":["combined"],"id":6}"#,
            r#"{"error":{"code":1,"msg":"Invalid value type: expected Boolean"},"id":6}"#,
        ),
        (
            r#"{"method":"SET_PROPERTY","params":[1],"id":6}"#,
            r#"{"error":{"code":2,"msg":"Invalid request: property name must be a string"},"id":6}"#,
        ),
        (
            r#"{"method":"GET_PROPERTY","id":6}"#,
            r#"{"error":{"code":2,"msg":"Invalid request: property name must be a string"},"id":6}"#,
        ),
        (
            r#"{"method":"GET_PROPERTY","params":["combined",true],"id":6}"#,
            r#"{"error":{"code":2,"msg":"Invalid request: too many parameters"},"id":6}"#,
        ),
        ("hello", r#"{"error":{"code":3,"msg":"Invalid JSON: expected value at line 1 column 1"}}"#),
        (
            r#"{"method":"#,
            r#"{"error":{"code":3,"msg":"Invalid JSON: EOF while parsing a value at line 1 column 10"}}"#,
        ),
        ("", r#"{"error":{"code":3,"msg":"Invalid JSON: EOF while parsing a value at line 1 column 0"}}"#),
    ] {
        assert_eq!(ask(&mut session, &mut listener, request), answer, "{request}");
    }
    let deep = format!("{{\"method\":\"SUBSCRIBE\",\"params\":{}", "[".repeat(60_000));
    assert!(ask(&mut session, &mut listener, &deep).starts_with(r#"{"error":{"code":3,"#));
    let binary = session.message(Incoming::Binary(b"{}")).unwrap_err();
    assert_eq!(binary.code, CloseCode::UNSUPPORTED);
}

#[test]
fn a_connection_takes_so_many_streams() {
    let rig = Rig::new();
    let mut listener = Listener::new();
    let mut session = open(&rig, &listener, "/stream");
    // There are not that many distinct streams of two markets; the session counts what it holds.
    let stream = parse_name("btcusdt@trade").unwrap();
    session.streams = (0..MAX_STREAMS).map(|i| (format!("filler{i}"), stream)).collect();
    let answer =
        ask(&mut session, &mut listener, r#"{"method":"SUBSCRIBE","params":["btcusdt@trade"],"id":1}"#);
    assert_eq!(
        answer,
        r#"{"error":{"code":2,"msg":"Invalid request: a connection takes at most 1024 streams"},"id":1}"#
    );
}

#[test]
fn a_session_that_ends_leaves_nothing_behind() {
    let mut rig = Rig::new();
    let mut listener = Listener::new();
    let session = open(&rig, &listener, "/ws/btcusdt@depth@0ms");
    assert_eq!(rig.hub.client_count(), 1);
    drop(session);
    assert_eq!(rig.hub.client_count(), 0);
    rig.level();
    let session = open(&rig, &listener, "/ws/btcusdt@depth@0ms");
    drop(session);
    rig.hub.shutdown();
    assert_eq!(listener.read(), []);
}

async fn text<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(peer: &mut Peer<S>) -> Value {
    loop {
        match tokio::time::timeout(Duration::from_secs(10), peer.next()).await.expect("a message in time") {
            Some(Seen::Text(text)) => return serde_json::from_str(&text).unwrap(),
            Some(Seen::Ping(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The whole way: frames in, a subscription, depth in real time and every 100 ms, the farewell and the close.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_subscribes_reads_and_is_told_of_the_end() {
    let mut rig = Rig::new();
    let (near, far) = duplex(64 * 1024);
    let hub = rig.hub.clone();
    let streams = target("/stream", Some("streams=btcusdt@depth@0ms"), &hub).unwrap().unwrap();
    let make = move |out| Session::open(hub, streams, out);
    let task =
        tokio::spawn(ws::run(near, Bytes::new(), Config::default(), Arc::new(Counters::default()), make));
    let mut peer = Peer::new(far);
    peer.text(r#"{"method":"SUBSCRIBE","params":["btcusdt@depth@100ms"],"id":1}"#).await;
    assert_eq!(text(&mut peer).await, json!({"result":null,"id":1}));
    rig.level();
    let first = text(&mut peer).await;
    assert_eq!(first["stream"], "btcusdt@depth@0ms");
    assert_eq!(
        (&first["data"]["U"], &first["data"]["u"], &first["data"]["s"]),
        (&json!(1), &json!(1), &json!("BTCUSDT"))
    );
    let second = text(&mut peer).await;
    assert_eq!((&second["stream"], &second["data"]["U"]), (&json!("btcusdt@depth@100ms"), &json!(1)));
    peer.text(r#"{"method":"UNSUBSCRIBE","params":["btcusdt@depth@0ms","btcusdt@depth@100ms"],"id":"x"}"#)
        .await;
    assert_eq!(text(&mut peer).await, json!({"result":null,"id":"x"}));
    rig.level();
    rig.hub.shutdown();
    let farewell = text(&mut peer).await;
    assert_eq!(
        (&farewell["stream"], &farewell["data"]["e"]),
        (&json!("!serverShutdown"), &json!("serverShutdown"))
    );
    assert_eq!(peer.next().await, Some(Seen::Close(Some(CloseCode::GOING_AWAY))));
    peer.send(Opcode::Close, &1001_u16.to_be_bytes()).await;
    drop(peer);
    assert_eq!(task.await.unwrap().ending, ws::Ending::ByServer);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Whatever a client writes, it gets one answer in JSON, and the session stays usable.
    #[test]
    fn any_text_gets_one_answer(
        texts in prop::collection::vec(
            prop_oneof!["\\PC{0,80}", "[\\[\\]{}\",:a-zA-Z0-9@!_ ]{0,120}", request_like()], 1..20
        ),
    ) {
        let rig = Rig::new();
        let mut listener = Listener::new();
        let mut session = open(&rig, &listener, "/ws");
        for text in texts {
            let answer: Value = serde_json::from_str(&ask(&mut session, &mut listener, &text)).unwrap();
            prop_assert!(answer.get("result").is_some() != answer.get("error").is_some(), "{} -> {}", text, answer);
        }
        let list = ask(&mut session, &mut listener, r#"{"method":"LIST_SUBSCRIPTIONS","id":0}"#);
        let streams = serde_json::from_str::<Value>(&list).unwrap()["result"].as_array().unwrap().len();
        prop_assert_eq!(streams, session.streams.len());
    }

    #[test]
    fn any_name_and_address_is_read_without_a_panic(name in "\\PC{0,60}", path in "/(ws|stream)[/@!%a-zA-Z0-9]{0,40}", query in "\\PC{0,60}") {
        let rig = Rig::new();
        let _ = parse_name(&name);
        if let Some(Ok(target)) = target(&path, Some(&query), &rig.hub) {
            // What was understood can be subscribed to.
            let listener = Listener::new();
            let count = target.streams.len();
            prop_assert_eq!(Session::open(rig.hub.clone(), target, listener.out.clone()).streams.len(), count);
        }
    }
}

/// Requests of the right form with values of any kind.
fn request_like() -> impl Strategy<Value = String> {
    let method = prop::sample::select(vec![
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "LIST_SUBSCRIPTIONS",
        "SET_PROPERTY",
        "GET_PROPERTY",
        "X",
    ]);
    let value = prop::sample::select(vec![
        "\"btcusdt@trade\"",
        "\"btcusdt@depth\"",
        "\"!ticker@arr\"",
        "\"combined\"",
        "true",
        "false",
        "1",
        "null",
        "{}",
        "[[]]",
        "\"\\u0000\"",
    ]);
    let id = prop::sample::select(vec!["1", "\"a\"", "null", "-1", "1e3", "[]", "18446744073709551615"]);
    (method, prop::collection::vec(value, 0..4), id).prop_map(|(method, values, id)| {
        format!("{{\"method\":\"{method}\",\"params\":[{}],\"id\":{id}}}", values.join(","))
    })
}
