use std::sync::Mutex;

use hoga_core::event::{
    Balance, Event, EventRecord, Execution, Level, OrderEvent, Trade, Transfer, TransferKind,
};
use hoga_core::ids::{AssetId, ClientId, OrderId, WithdrawalId};
use hoga_core::instrument::TradingState;
use hoga_core::money::{Amount, Qty, notional};
use hoga_core::order::{NewOrder, Order, OrderStatus, OrderType, Side, StpMode, TimeInForce};
use hoga_engine::Subscriber;
use serde_json::{Value, json};

use super::run::Runner;
use super::*;
use crate::ws::testing::{Listener, Seen};

/// 2026-11-30 12:00:00 UTC.
const NOON: i64 = 1_796_040_000_000_000;

pub(super) fn units(text: &str) -> i64 {
    hoga_core::money::parse_units(text).unwrap()
}

/// A hub driven by hand, with a clock of its own and the events of an engine that is not there.
pub(super) struct Rig {
    pub(super) hub: Hub,
    feed: HubFeed,
    pub(super) runner: Runner,
    now: Timestamp,
    seq: u64,
    pub(super) update_ids: [u64; 2],
    trade_ids: [u64; 2],
}

pub(super) const BTC: MarketId = MarketId(0);
const ETH: MarketId = MarketId(1);

pub(super) fn instrument(id: MarketId, symbol: &str) -> Instrument {
    Instrument {
        id,
        symbol: Name::new(symbol).unwrap(),
        base: AssetId(id.0 + 1),
        quote: AssetId(0),
        state: TradingState::Open,
        price_tick: Price(units("0.01")),
        price_min: Price(units("0.01")),
        price_max: Price(units("1000000")),
        lot_step: Qty(units("0.00001")),
        lot_min: Qty(units("0.00001")),
        lot_max: Qty(units("9000")),
        market_lot_max: Qty(units("100")),
        notional_min: Amount(units("5")),
        notional_max: Amount(units("9000000")),
        percent_up: 0,
        percent_down: 0,
        market_band_bps: 0,
        max_orders: 200,
        max_algo_orders: 5,
        max_position: Qty::ZERO,
        maker_fee_ppm: 1000,
        taker_fee_ppm: 1000,
    }
}

impl Rig {
    pub(super) fn new() -> Rig {
        let (hub, feed) = Hub::new(HubConfig::default());
        let runner = Runner::new(Arc::clone(&hub.0));
        let now = Timestamp(NOON);
        let mut rig = Rig { hub, feed, runner, now, seq: 0, update_ids: [0; 2], trade_ids: [0; 2] };
        rig.give(vec![
            Event::InstrumentSet(instrument(BTC, "BTCUSDT")),
            Event::InstrumentSet(instrument(ETH, "ETHUSDT")),
        ]);
        rig.runner.tick(now);
        rig
    }

    /// One command's events reach the hub and are told.
    pub(super) fn give(&mut self, events: Vec<Event>) {
        self.hand_over(events);
        self.runner.take(Duration::ZERO);
        self.runner.flush(self.now);
    }

    pub(super) fn hand_over(&mut self, events: Vec<Event>) {
        self.seq += 1;
        let records: Vec<EventRecord> = events
            .into_iter()
            .zip(0..)
            .map(|(event, index)| EventRecord { seq: Seq(self.seq), index, time: self.now, event })
            .collect();
        self.feed.on_events(&records);
    }

    fn level(&mut self, market: MarketId, side: Side, price: &str, qty: &str) -> Event {
        let update_id = &mut self.update_ids[usize::from(market.0)];
        *update_id += 1;
        let (price, qty) = (Price(units(price)), Qty(units(qty)));
        Event::Level(Level { market, side, price, qty, update_id: *update_id })
    }

    fn trade(&mut self, market: MarketId, price: &str, qty: &str, taker_side: Side, taker: u64) -> Event {
        let id = &mut self.trade_ids[usize::from(market.0)];
        *id += 1;
        let (price, qty) = (Price(units(price)), Qty(units(qty)));
        let (buy_order, sell_order) = match taker_side {
            Side::Buy => (OrderId(taker), OrderId(1)),
            Side::Sell => (OrderId(1), OrderId(taker)),
        };
        Event::Trade(Trade {
            market,
            id: TradeId(*id),
            price,
            qty,
            quote: notional(price, qty).unwrap(),
            buy_order,
            sell_order,
            buyer: AccountId(1),
            seller: AccountId(2),
            taker_side,
            buyer_fee: Amount(1),
            seller_fee: Amount(1),
        })
    }

    /// Time goes on in steps of the hub's clock.
    pub(super) fn pass(&mut self, millis: i64) {
        let until = self.now.0 + millis * 1000;
        while self.now.0 < until {
            self.now.0 = (self.now.0 + 50_000).min(until);
            self.runner.tick(self.now);
        }
    }

    pub(super) fn listen(&self, names: &[&str]) -> Listener {
        let listener = Listener::new();
        self.subscribe(&listener, names);
        listener
    }

    fn subscribe(&self, listener: &Listener, names: &[&str]) {
        for name in names {
            let stream = crate::streams::parse_name(name).unwrap();
            assert!(self.hub.subscribe(&stream, &Form::Combined((*name).into()), &listener.out), "{name}");
        }
    }
}

/// What waits, as (stream, data).
pub(super) fn read(listener: &mut Listener) -> Vec<(String, Value)> {
    let unwrap = |text: String| {
        let mut value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (value["stream"].as_str().unwrap().to_owned(), value["data"].take())
    };
    listener.texts().into_iter().map(unwrap).collect()
}

/// What waits of one stream, as written.
fn bodies(listener: &mut Listener, stream: &str) -> Vec<String> {
    let prefix = format!("{{\"stream\":\"{stream}\",\"data\":");
    let body = |text: String| Some(text.strip_prefix(&prefix)?.strip_suffix('}')?.to_owned());
    listener.texts().into_iter().filter_map(body).collect()
}

#[test]
fn trades_are_written_as_documented_and_joined_by_order_and_price() {
    let mut rig = Rig::new();
    let mut listener = rig.listen(&["btcusdt@trade", "btcusdt@aggTrade"]);
    let events = vec![
        rig.trade(BTC, "50000.1", "0.5", Side::Buy, 9),
        rig.trade(BTC, "50000.1", "0.25", Side::Buy, 9),
        rig.trade(BTC, "50001", "1", Side::Buy, 9),
    ];
    rig.give(events);
    rig.now.0 += 7_000;
    let events =
        vec![rig.trade(BTC, "50001", "2", Side::Sell, 10), rig.trade(ETH, "3000", "1", Side::Sell, 11)];
    rig.give(events);
    let texts = listener.texts();
    assert_eq!(
        texts[0],
        r#"{"stream":"btcusdt@trade","data":{"e":"trade","E":1796040000000,"s":"BTCUSDT","t":1,"p":"50000.10000000","q":"0.50000000","T":1796040000000,"m":false,"M":true}}"#
    );
    assert_eq!(
        texts[3],
        r#"{"stream":"btcusdt@aggTrade","data":{"e":"aggTrade","E":1796040000000,"s":"BTCUSDT","a":1,"p":"50000.10000000","q":"0.75000000","f":1,"l":2,"T":1796040000000,"m":false,"M":true}}"#
    );
    let summary: Vec<(String, Value)> = texts
        .iter()
        .map(|text| serde_json::from_str::<Value>(text).unwrap())
        .map(|v| {
            (
                v["stream"].as_str().unwrap()[8..].to_owned(),
                json!([v["data"]["t"], v["data"]["f"], v["data"]["l"], v["data"]["m"]]),
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            ("trade".into(), json!([1, null, null, false])),
            ("trade".into(), json!([2, null, null, false])),
            ("trade".into(), json!([3, null, null, false])),
            ("aggTrade".into(), json!([null, 1, 2, false])),
            ("aggTrade".into(), json!([null, 3, 3, false])),
            ("trade".into(), json!([4, null, null, true])),
            ("aggTrade".into(), json!([null, 4, 4, true])),
        ]
    );
}

#[test]
fn a_batch_larger_than_the_kept_trades_is_told_whole() {
    let mut rig = Rig::new();
    let mut listener = rig.listen(&["btcusdt@trade"]);
    let count = TRADES_KEPT * 2 + 5;
    let events = (0..count).map(|i| rig.trade(BTC, "1", "1", Side::Buy, i as u64 + 2)).collect();
    rig.give(events);
    let ids: Vec<Value> = read(&mut listener).into_iter().map(|(_, data)| data["t"].clone()).collect();
    assert_eq!(ids, (1..=count).map(Value::from).collect::<Vec<_>>());
    assert_eq!(rig.hub.trades(BTC, usize::MAX).len(), TRADES_KEPT);
    assert_eq!(
        rig.hub.trades(BTC, 2).iter().map(|t| t.id.0 as usize).collect::<Vec<_>>(),
        [count - 1, count]
    );
}

#[test]
fn book_messages_are_written_as_documented() {
    let mut rig = Rig::new();
    let names = [
        "btcusdt@depth@0ms",
        "btcusdt@depth@100ms",
        "btcusdt@depth",
        "btcusdt@depth5",
        "btcusdt@bookTicker",
        "!bookTicker",
    ];
    let mut listener = rig.listen(&names);
    rig.pass(100);
    // What is empty is told to the new ones, too.
    let first = read(&mut listener);
    assert_eq!(
        first[0],
        (
            "btcusdt@bookTicker".into(),
            json!({"u":0,"s":"BTCUSDT","b":"0.00000000","B":"0.00000000","a":"0.00000000","A":"0.00000000"})
        )
    );
    let events = vec![
        rig.level(BTC, Side::Buy, "99.5", "1"),
        rig.level(BTC, Side::Sell, "100.5", "2"),
        rig.level(BTC, Side::Buy, "99", "3"),
        rig.level(BTC, Side::Sell, "101", "4"),
        rig.level(BTC, Side::Buy, "99.5", "0"),
    ];
    rig.give(events);
    let depth = r#"{"e":"depthUpdate","E":1796040000100,"s":"BTCUSDT","U":1,"u":5,"b":[["99.50000000","0.00000000"],["99.00000000","3.00000000"]],"a":[["100.50000000","2.00000000"],["101.00000000","4.00000000"]]}"#;
    let best =
        r#"{"u":5,"s":"BTCUSDT","b":"99.00000000","B":"3.00000000","a":"100.50000000","A":"2.00000000"}"#;
    assert_eq!(
        listener.texts(),
        [
            format!(r#"{{"stream":"btcusdt@depth@0ms","data":{depth}}}"#),
            format!(r#"{{"stream":"btcusdt@bookTicker","data":{best}}}"#),
            format!(r#"{{"stream":"!bookTicker","data":{best}}}"#),
        ]
    );
    // Nothing at the top changes: no book ticker.
    let events = vec![rig.level(BTC, Side::Sell, "102", "1")];
    rig.give(events);
    assert_eq!(read(&mut listener).len(), 1);
    rig.pass(100);
    let fast = bodies(&mut listener, "btcusdt@depth@100ms");
    assert!(fast.len() == 1 && fast[0].contains(r#""U":1,"u":6,"#), "{fast:?}");
    rig.pass(1000);
    let slow = read(&mut listener);
    let partial = json!({
        "lastUpdateId": 6,
        "bids": [["99.00000000", "3.00000000"]],
        "asks": [["100.50000000", "2.00000000"], ["101.00000000", "4.00000000"], ["102.00000000", "1.00000000"]],
    });
    assert_eq!(
        slow.iter().map(|(stream, _)| &stream[..]).collect::<Vec<_>>(),
        ["btcusdt@depth", "btcusdt@depth5"]
    );
    assert_eq!((&slow[0].1["U"], &slow[0].1["u"], &slow[1].1), (&json!(1), &json!(6), &partial));
    rig.pass(3000);
    assert_eq!(read(&mut listener), []);
}

#[test]
fn candles_run_close_once_and_stay_flat_without_trades() {
    let mut rig = Rig::new();
    let mut listener = rig.listen(&["btcusdt@kline_1s", "btcusdt@kline_1m"]);
    rig.pass(59_000);
    assert_eq!(read(&mut listener), [], "nothing to show before the first trade");
    let events = vec![rig.trade(BTC, "100", "2", Side::Buy, 9), rig.trade(BTC, "101.5", "1", Side::Sell, 10)];
    rig.give(events);
    rig.pass(1500);
    let minute = bodies(&mut listener, "btcusdt@kline_1m");
    assert_eq!(
        minute.last().unwrap(),
        r#"{"e":"kline","E":1796040060100,"s":"BTCUSDT","k":{"t":1796040000000,"T":1796040059999,"s":"BTCUSDT","i":"1m","f":1,"L":2,"o":"100.00000000","c":"101.50000000","h":"101.50000000","l":"100.00000000","v":"3.00000000","n":2,"x":true,"q":"301.50000000","V":"2.00000000","Q":"200.00000000","B":"0"}}"#
    );
    rig.pass(60_000);
    let told = read(&mut listener);
    let of = |name: &str| -> Vec<Value> {
        told.iter().filter(|(stream, _)| stream == name).map(|(_, data)| data["k"].clone()).collect()
    };
    // The next minute has no trades: flat at the last close, and closed in its time.
    let minutes = of("btcusdt@kline_1m");
    assert_eq!(
        minutes
            .iter()
            .map(|k| (k["t"].as_i64().unwrap() % 3_600_000 / 60_000, k["x"].as_bool().unwrap()))
            .collect::<Vec<_>>(),
        [(1, false), (1, true)]
    );
    for k in &minutes {
        assert_eq!(
            [&k["o"], &k["h"], &k["l"], &k["c"]],
            ["101.50000000"; 4].each_ref().map(|text| text).map(|t| json!(t)).each_ref()
        );
        assert_eq!(
            (&k["n"], &k["f"], &k["L"], &k["v"]),
            (&json!(0), &json!(-1), &json!(-1), &json!("0.00000000"))
        );
    }
    // Every second closes exactly once, in order.
    let closed: Vec<i64> = of("btcusdt@kline_1s")
        .iter()
        .filter(|k| k["x"] == true)
        .map(|k| k["t"].as_i64().unwrap() / 1000)
        .collect();
    assert_eq!(closed.len(), 60);
    assert!(closed.windows(2).all(|pair| pair[0] + 1 == pair[1]));
}

#[test]
fn a_trade_that_comes_late_revises_the_closed_candle() {
    let mut rig = Rig::new();
    let mut listener = rig.listen(&["btcusdt@kline_1s"]);
    let events = vec![rig.trade(BTC, "100", "1", Side::Buy, 9)];
    rig.give(events);
    let happened = rig.now;
    rig.pass(1200);
    let closed = read(&mut listener);
    assert_eq!(closed.iter().filter(|(_, data)| data["k"]["x"] == true).count(), 1);
    // The pipeline stood still for longer than the grace.
    let late = rig.trade(BTC, "90", "1", Side::Buy, 10);
    let now = std::mem::replace(&mut rig.now, happened);
    rig.hand_over(vec![late]);
    rig.now = now;
    rig.runner.take(Duration::ZERO);
    rig.runner.flush(now);
    let revised = read(&mut listener);
    assert_eq!(revised.len(), 1);
    let k = &revised[0].1["k"];
    assert_eq!(
        (&k["x"], &k["l"], &k["n"], &k["t"]),
        (&json!(true), &json!("90.00000000"), &json!(2), &json!(happened.millis()))
    );
}

#[test]
fn tickers_tell_changes_each_second_and_the_state_to_the_new() {
    let mut rig = Rig::new();
    let events = vec![
        rig.level(BTC, Side::Buy, "99", "1"),
        rig.trade(BTC, "100", "1", Side::Buy, 9),
        rig.trade(BTC, "110", "2", Side::Buy, 9),
    ];
    rig.give(events);
    let names = ["btcusdt@ticker", "btcusdt@miniTicker", "!ticker@arr", "!miniTicker@arr@1000ms"];
    let mut listener = rig.listen(&names);
    rig.pass(1000);
    let texts = listener.texts();
    let ticker = r#"{"e":"24hrTicker","E":1796040001000,"s":"BTCUSDT","p":"10.00000000","P":"10.000","w":"106.66666666","x":"0.00000000","c":"110.00000000","Q":"2.00000000","b":"99.00000000","B":"1.00000000","a":"0.00000000","A":"0.00000000","o":"100.00000000","h":"110.00000000","l":"100.00000000","v":"3.00000000","q":"320.00000000","O":1795953602000,"C":1796040001000,"F":1,"L":2,"n":2}"#;
    let mini = r#"{"e":"24hrMiniTicker","E":1796040001000,"s":"BTCUSDT","c":"110.00000000","o":"100.00000000","h":"110.00000000","l":"100.00000000","v":"3.00000000","q":"320.00000000"}"#;
    assert_eq!(texts[0], format!(r#"{{"stream":"btcusdt@ticker","data":{ticker}}}"#));
    assert_eq!(texts[1], format!(r#"{{"stream":"btcusdt@miniTicker","data":{mini}}}"#));
    assert!(
        texts[2].starts_with(&format!(r#"{{"stream":"!ticker@arr","data":[{ticker},{{"e":"24hrTicker""#)),
        "{}",
        texts[2]
    );
    assert!(
        texts[3].starts_with(&format!(r#"{{"stream":"!miniTicker@arr@1000ms","data":[{mini},"#)),
        "{}",
        texts[3]
    );
    // Both markets for the new subscriber; then only what changes.
    rig.pass(2000);
    assert_eq!(read(&mut listener), []);
    let events = vec![rig.trade(ETH, "3000", "1", Side::Buy, 9)];
    rig.give(events);
    rig.pass(1000);
    let told = read(&mut listener);
    assert_eq!(
        told.iter().map(|(stream, _)| &stream[..]).collect::<Vec<_>>(),
        ["!ticker@arr", "!miniTicker@arr@1000ms"]
    );
    assert_eq!(told[0].1.as_array().unwrap().len(), 1);
    assert_eq!(told[0].1[0]["s"], "ETHUSDT");
    // A day later the trades leave the window, which is a change, although nothing happened.
    rig.now.0 += 86_399_000_000 - 4_000_000;
    rig.pass(2000);
    assert!(bodies(&mut listener, "btcusdt@ticker").iter().any(|text| text.contains(r#""n":0}"#)));
}

#[test]
fn what_nobody_wants_is_not_encoded() {
    let mut rig = Rig::new();
    let before = rig.hub.counters().encoded.load(Ordering::Relaxed);
    let events = vec![rig.level(BTC, Side::Buy, "1", "1"), rig.trade(BTC, "1", "1", Side::Buy, 9)];
    rig.give(events);
    rig.pass(5000);
    assert_eq!(rig.hub.counters().encoded.load(Ordering::Relaxed), before);
    // And for many subscribers once.
    let listeners: Vec<Listener> = (0..100).map(|_| rig.listen(&["btcusdt@trade"])).collect();
    let events = vec![rig.trade(BTC, "1", "1", Side::Buy, 9)];
    rig.give(events);
    assert_eq!(rig.hub.counters().encoded.load(Ordering::Relaxed), before + 1);
    assert_eq!(rig.hub.counters().deliveries.load(Ordering::Relaxed), 100);
    drop(listeners);
}

#[test]
fn a_subscription_ends_and_changes_its_form() {
    let mut rig = Rig::new();
    let mut listener = Listener::new();
    let stream = crate::streams::parse_name("btcusdt@trade").unwrap();
    rig.hub.subscribe(&stream, &Form::Raw, &listener.out);
    let events = vec![rig.trade(BTC, "1", "1", Side::Buy, 9)];
    rig.give(events);
    assert!(listener.texts()[0].starts_with(r#"{"e":"trade""#));
    let combined = Form::Combined("btcusdt@trade".into());
    rig.hub.reform(&stream, &Form::Raw, &combined, &listener.out);
    let events = vec![rig.trade(BTC, "1", "1", Side::Buy, 9)];
    rig.give(events);
    assert_eq!(read(&mut listener).len(), 1);
    rig.hub.unsubscribe(&stream, &Form::Raw, &listener.out);
    rig.hub.unsubscribe(&stream, &combined, &listener.out);
    let events = vec![rig.trade(BTC, "1", "1", Side::Buy, 9)];
    rig.give(events);
    assert_eq!(listener.texts(), [""; 0]);
    let unknown = Stream::Market(Name::new("NOPE").unwrap(), Kind::Trade);
    assert!(!rig.hub.subscribe(&unknown, &Form::Raw, &listener.out));
}

#[test]
fn a_client_that_does_not_read_is_dropped_and_others_get_all() {
    let mut rig = Rig::new();
    let slow = Listener::with(crate::ws::Limits { frames: 100, bytes: 1 << 20 });
    rig.subscribe(&slow, &["btcusdt@trade", "btcusdt@depth@0ms"]);
    let mut good = rig.listen(&["btcusdt@trade"]);
    let mut told = 0;
    for i in 0..300 {
        let events = vec![
            rig.trade(BTC, "1", "1", Side::Buy, 9),
            rig.level(BTC, Side::Buy, "1", &format!("{}", i + 1)),
        ];
        rig.give(events);
        told += good.texts().len();
        assert!(slow.out.queued_bytes() <= 1 << 20);
    }
    assert_eq!(told, 300);
    assert!(!slow.out.is_open());
    let market = rig.hub.0.market(BTC).unwrap();
    assert!(!market.topic(Kind::Depth(Speed::Realtime)).is_active(), "the topic has forgotten it");
}

struct Sink(Mutex<Vec<EventRecord>>);

impl AccountSink for Sink {
    fn event(&self, record: &EventRecord) {
        self.0.lock().unwrap().push(*record);
    }
}

fn order_event(account: u32) -> Event {
    let request = NewOrder {
        account: AccountId(account),
        market: BTC,
        side: Side::Buy,
        order_type: OrderType::Limit,
        tif: TimeInForce::Gtc,
        price: Price(1),
        stop_price: Price::ZERO,
        qty: Qty(1),
        quote_qty: Amount::ZERO,
        iceberg_qty: Qty::ZERO,
        trailing_delta: 0,
        stp: StpMode::None,
        client_id: ClientId::NONE,
    };
    let order = Order {
        id: OrderId(u64::from(account)),
        request,
        status: OrderStatus::New,
        working: true,
        filled: Qty::ZERO,
        filled_quote: Amount::ZERO,
        prevented: Qty::ZERO,
        list_id: 0,
        created: Timestamp(1),
        updated: Timestamp(1),
        working_since: Timestamp(1),
    };
    Event::Order(OrderEvent {
        execution: Execution::New,
        order,
        fill: None,
        cancel_id: ClientId::NONE,
        prevented: Qty::ZERO,
        base: Balance::default(),
        quote: Balance::default(),
    })
}

fn deposit(account: u32) -> Event {
    Event::Transfer(Transfer {
        kind: TransferKind::Deposit,
        account: AccountId(account),
        asset: AssetId(0),
        amount: Amount(1),
        reference: ClientId::NONE,
        withdrawal: WithdrawalId(0),
        balance: Balance::default(),
        repeated: false,
    })
}

#[test]
fn private_events_reach_only_their_owner() {
    let mut rig = Rig::new();
    let sinks: Vec<Arc<Sink>> = (0..3).map(|_| Arc::new(Sink(Mutex::default()))).collect();
    let first = rig.hub.subscribe_account(AccountId(1), Arc::clone(&sinks[0]) as _);
    let second = rig.hub.subscribe_account(AccountId(2), Arc::clone(&sinks[1]) as _);
    let again = rig.hub.subscribe_account(AccountId(2), Arc::clone(&sinks[2]) as _);
    rig.give(vec![order_event(1), order_event(2), order_event(3), deposit(2), deposit(3)]);
    let counts = || sinks.iter().map(|sink| sink.0.lock().unwrap().len()).collect::<Vec<_>>();
    assert_eq!(counts(), [1, 2, 2]);
    for (sink, owner) in sinks.iter().zip([1, 2, 2]) {
        for record in sink.0.lock().unwrap().iter() {
            let account = match &record.event {
                Event::Order(order) => order.order.request.account,
                Event::Transfer(transfer) => transfer.account,
                other => panic!("{other:?}"),
            };
            assert_eq!(account, AccountId(owner));
        }
    }
    assert_eq!(rig.hub.account_subscriptions(), 3);
    drop((first, again));
    rig.give(vec![order_event(1), order_event(2)]);
    assert_eq!(counts(), [1, 3, 2]);
    drop(second);
    assert_eq!(rig.hub.account_subscriptions(), 0);
}

#[test]
fn history_and_live_trades_join_without_a_seam() {
    let mut rig = Rig::new();
    // Trades 1 to 20, one a second, before the start; 21 to 25 after it. The history was read at trade 22.
    let all: Vec<MarketTrade> = (1..=25)
        .map(|id| MarketTrade {
            id: TradeId(id),
            time: Timestamp(NOON - 20_000_000 + id as i64 * 1_000_000),
            price: Price(units("100") + id as i64),
            qty: Qty(units("1")),
            quote: Amount(units("100")),
            taker_side: Side::Buy,
            taker_order: OrderId(id),
        })
        .collect();
    let candles = |interval: Interval, through: usize| -> Vec<Candle> {
        let mut candles: Vec<Candle> = Vec::new();
        for trade in &all[..through] {
            let open_time = interval.floor(trade.time);
            match candles.last_mut() {
                Some(last) if last.open_time == open_time => last.add(&trade.tick()),
                _ => candles.push(Candle::of(open_time, &trade.tick())),
            }
        }
        candles
    };
    rig.trade_ids[0] = 20;
    for trade in &all[20..] {
        rig.now = trade.time;
        let mut event = rig.trade(BTC, "1", "1", Side::Buy, trade.taker_order.0);
        if let Event::Trade(event) = &mut event {
            (event.price, event.quote) = (trade.price, trade.quote);
        }
        rig.give(vec![event]);
    }
    let history = MarketHistory {
        market: BTC,
        through: TradeId(22),
        trades: all[..22].to_vec(),
        seconds: candles(Interval::S1, 22),
        candles: Interval::ALL.iter().filter_map(|i| Some((*i, *candles(*i, 22).last()?))).collect(),
    };
    rig.feed.intake.put_one(Input::History(Box::new(history)));
    rig.runner.take(Duration::ZERO);
    assert_eq!(rig.hub.trades(BTC, 1000), all);
    assert_eq!(rig.hub.last_price(BTC), Some((TradeId(25), all[24].price)));
    let ticker = rig.hub.ticker(BTC, rig.now).unwrap();
    assert_eq!((ticker.trades, ticker.volume, ticker.open), (25, Qty(units("25")), all[0].price));
    for interval in Interval::ALL {
        let expected = *candles(interval, 25).last().unwrap();
        assert_eq!(rig.hub.open_candle(BTC, interval, rig.now), Some(expected), "{interval:?}");
    }
}

#[test]
fn the_last_price_of_a_quiet_market_outlives_the_window() {
    let mut rig = Rig::new();
    let trade = MarketTrade {
        id: TradeId(7),
        time: Timestamp(NOON - 3 * 86_400_000_000),
        price: Price(units("100")),
        qty: Qty(units("2")),
        quote: Amount(units("200")),
        taker_side: Side::Sell,
        taker_order: OrderId(3),
    };
    let day = Candle::of(Interval::D1.floor(trade.time), &trade.tick());
    let history = MarketHistory {
        market: BTC,
        through: trade.id,
        trades: vec![trade],
        seconds: vec![],
        candles: vec![(Interval::D1, day)],
    };
    rig.feed.intake.put_one(Input::History(Box::new(history)));
    rig.runner.take(Duration::ZERO);
    let ticker = rig.hub.ticker(BTC, rig.now).unwrap();
    assert_eq!(
        (ticker.last, ticker.last_qty, ticker.trades, ticker.volume),
        (trade.price, trade.qty, 0, Qty::ZERO)
    );
    let today = rig.hub.open_candle(BTC, Interval::D1, rig.now).unwrap();
    assert_eq!(today, Candle::flat(Interval::D1.floor(rig.now), trade.price));
}

#[test]
fn states_and_definitions_are_followed() {
    let mut rig = Rig::new();
    rig.give(vec![Event::StateSet { market: ETH, state: TradingState::Halted }]);
    assert_eq!(rig.hub.instrument(ETH).unwrap().state, TradingState::Halted);
    let changed = Instrument { maker_fee_ppm: 5, ..instrument(BTC, "BTCUSDT") };
    rig.give(vec![Event::InstrumentSet(changed)]);
    assert_eq!(rig.hub.instruments()[0], changed);
    assert_eq!((rig.hub.market("ETHUSDT"), rig.hub.market("XRPUSDT")), (Some(ETH), None));
}

#[test]
fn a_book_with_a_hole_is_not_shown() {
    let mut rig = Rig::new();
    let mut listener = rig.listen(&["btcusdt@depth@0ms"]);
    let events = vec![rig.level(BTC, Side::Buy, "1", "1")];
    rig.give(events);
    rig.update_ids[0] += 1;
    let events = vec![rig.level(BTC, Side::Buy, "2", "1")];
    rig.give(events);
    assert_eq!(read(&mut listener).len(), 1);
    assert_eq!(rig.hub.depth(BTC, 10), None);
    assert!(rig.hub.depth(ETH, 10).is_some());
}

#[test]
fn the_thread_folds_tells_and_says_farewell() {
    let (hub, mut feed) = Hub::start(HubConfig { queue: 64 }).unwrap();
    let record = |seq, event| EventRecord { seq: Seq(seq), index: 0, time: wall_clock(), event };
    feed.on_events(&[record(1, Event::InstrumentSet(instrument(BTC, "BTCUSDT")))]);
    hub.prime(vec![]);
    assert_eq!(hub.market("BTCUSDT"), Some(BTC));
    let (mut raw, mut combined) = (Listener::new(), Listener::new());
    let stream = crate::streams::parse_name("btcusdt@depth@0ms").unwrap();
    hub.subscribe(&stream, &Form::Raw, &raw.out);
    hub.join(&raw.out, false);
    hub.join(&combined.out, true);
    // Many more than the queue takes: the feed waits, nothing is lost.
    for update_id in 1..=5000 {
        let level =
            Level { market: BTC, side: Side::Buy, price: Price(1), qty: Qty(update_id as i64), update_id };
        feed.on_events(&[record(update_id + 1, Event::Level(level))]);
    }
    hub.prime(vec![]);
    assert_eq!((hub.taken(), hub.depth(BTC, 1).unwrap().update_id), (Seq(5001), 5000));
    hub.shutdown();
    let mut seen = raw.read();
    assert!(matches!(seen.pop(), Some(Seen::Close(Some(CloseCode::GOING_AWAY)))));
    assert!(
        matches!(seen.pop(), Some(Seen::Text(text)) if text.starts_with(r#"{"e":"serverShutdown","E":"#))
    );
    let mut next = 1;
    for message in seen {
        let Seen::Text(text) = message else { panic!("{message:?}") };
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["U"], next);
        next = value["u"].as_u64().unwrap() + 1;
    }
    assert_eq!(next, 5001);
    let farewell = combined.read();
    assert!(
        matches!(&farewell[0], Seen::Text(text) if text.starts_with(r#"{"stream":"!serverShutdown","data":{"e":"serverShutdown","E":"#))
    );
    // Whoever comes later is sent away, and the engine is not held up.
    let mut late = Listener::new();
    assert_eq!(hub.join(&late.out, false), None);
    assert_eq!(late.read(), [Seen::Close(Some(CloseCode::GOING_AWAY))]);
    for seq in 0..1000 {
        feed.on_events(&[record(6000 + seq, deposit(1))]);
    }
}
