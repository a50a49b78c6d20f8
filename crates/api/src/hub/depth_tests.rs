use std::collections::BTreeMap;

use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::{Event, EventRecord, Level};
use hoga_core::exchange::{Depth, Exchange};
use hoga_core::ids::{AssetId, ClientId, OrderId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};
use hoga_engine::Subscriber;
use proptest::prelude::*;
use serde_json::Value;

use super::tests::{BTC, Rig, instrument, read, units};
use super::*;
use crate::ws::testing::Listener;

/// A client that keeps a book by the documented rules, and nothing else.
#[derive(Default)]
struct NaiveClient {
    buffered: Vec<Value>,
    book: Option<Book>,
    last: u64,
}

/// Bids and asks by price.
type Book = [BTreeMap<i64, i64>; 2];

fn book_of(depth: &Depth) -> Book {
    [&depth.bids, &depth.asks].map(|levels| levels.iter().map(|(price, qty)| (price.0, qty.0)).collect())
}

impl NaiveClient {
    fn snapshot(&mut self, depth: &Depth) {
        self.book = Some(book_of(depth));
        self.last = depth.update_id;
        for (i, event) in std::mem::take(&mut self.buffered).into_iter().enumerate() {
            if event["u"].as_u64().unwrap() > self.last {
                let first = event["U"].as_u64().unwrap();
                assert!(
                    first <= self.last + 1,
                    "event {i} begins at {first}, the snapshot ends at {}",
                    self.last
                );
                self.apply(&event);
            }
        }
    }

    fn event(&mut self, event: Value) {
        if self.book.is_none() {
            self.buffered.push(event);
        } else if event["u"].as_u64().unwrap() > self.last {
            self.apply(&event);
        }
    }

    fn apply(&mut self, event: &Value) {
        assert!(event["U"].as_u64().unwrap() <= self.last + 1, "gap");
        self.last = event["u"].as_u64().unwrap();
        let Some(book) = &mut self.book else { return };
        for (side, name) in book.iter_mut().zip(["b", "a"]) {
            for level in event[name].as_array().unwrap() {
                let (price, qty) = (units(level[0].as_str().unwrap()), units(level[1].as_str().unwrap()));
                if qty == 0 {
                    side.remove(&price)
                } else {
                    side.insert(price, qty)
                };
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Levels change: (buy side, price, quantity).
    Levels(Vec<(bool, u8, u8)>),
    /// Inputs are handed over but the thread has not run yet.
    Unfolded(Vec<(bool, u8, u8)>),
    Pass(u16),
    Subscribe(u8),
    /// A client takes its snapshot.
    Snapshot(u8),
    Leave(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let levels = || prop::collection::vec((any::<bool>(), 1..12_u8, 0..4_u8), 0..6);
    let step = prop_oneof![
        4 => levels().prop_map(Step::Levels),
        1 => levels().prop_map(Step::Unfolded),
        3 => (1..400_u16).prop_map(Step::Pass),
        1 => (0..4_u8).prop_map(Step::Subscribe),
        1 => (0..4_u8).prop_map(Step::Snapshot),
        1 => (0..4_u8).prop_map(Step::Leave),
    ];
    prop::collection::vec(step, 1..60)
}

struct Watcher {
    listener: Listener,
    client: NaiveClient,
    expected: Option<u64>,
}

impl Watcher {
    fn follow(&mut self) {
        for (_, event) in read(&mut self.listener) {
            let (first, last) = (event["U"].as_u64().unwrap(), event["u"].as_u64().unwrap());
            assert!(first <= last && self.expected.is_none_or(|expected| expected == first), "{event}");
            self.expected = Some(last + 1);
            self.client.event(event);
        }
    }
}

const DEPTH_STREAMS: [&str; 4] =
    ["btcusdt@depth@0ms", "btcusdt@depth@100ms", "btcusdt@depth", "btcusdt@depth@1000ms"];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whenever clients subscribe, take snapshots and leave: messages have no gap, and every copy becomes the book.
    #[test]
    fn copies_by_the_documented_rules_equal_the_book(steps in steps()) {
        let mut rig = Rig::new();
        let mut model = Book::default();
        let mut watchers: [Option<Watcher>; 4] = [const { None }; 4];
        let mut change = |rig: &mut Rig, levels: Vec<(bool, u8, u8)>| -> Vec<Event> {
            levels
                .into_iter()
                .map(|(buy, price, qty)| {
                    let (side, price) = if buy { (Side::Buy, i64::from(price)) } else { (Side::Sell, 100 + i64::from(price)) };
                    let levels = &mut model[side as usize];
                    if qty == 0 { levels.remove(&price) } else { levels.insert(price, i64::from(qty)) };
                    rig.update_ids[0] += 1;
                    let (price, qty) = (Price(price), Qty(i64::from(qty)));
                    Event::Level(Level { market: BTC, side, price, qty, update_id: rig.update_ids[0] })
                })
                .collect()
        };
        for step in steps {
            match step {
                Step::Levels(levels) => {
                    let events = change(&mut rig, levels);
                    rig.give(events);
                }
                Step::Unfolded(levels) => {
                    let events = change(&mut rig, levels);
                    rig.hand_over(events);
                }
                Step::Pass(millis) => rig.pass(i64::from(millis)),
                Step::Subscribe(at) => {
                    let name = DEPTH_STREAMS[usize::from(at)];
                    watchers[usize::from(at)].get_or_insert_with(|| Watcher {
                        listener: rig.listen(&[name]),
                        client: NaiveClient::default(),
                        expected: None,
                    });
                }
                Step::Snapshot(at) => {
                    if let Some(watcher) = &mut watchers[usize::from(at)] {
                        watcher.follow();
                        watcher.client.snapshot(&rig.hub.depth(BTC, 5000).unwrap());
                    }
                }
                Step::Leave(at) => {
                    if let Some(watcher) = watchers[usize::from(at)].take() {
                        let name = DEPTH_STREAMS[usize::from(at)];
                        let stream = crate::streams::parse_name(name).unwrap();
                        rig.hub.unsubscribe(&stream, &Form::Combined(name.into()), &watcher.listener.out);
                    }
                }
            }
            watchers.iter_mut().flatten().for_each(Watcher::follow);
        }
        rig.give(vec![]);
        rig.runner.take(Duration::ZERO);
        rig.pass(2000);
        let shown = rig.hub.depth(BTC, 5000).unwrap();
        prop_assert_eq!(book_of(&shown), model.clone());
        for watcher in watchers.iter_mut().flatten() {
            watcher.follow();
            if let Some(book) = &watcher.client.book {
                prop_assert_eq!(book, &model);
                prop_assert_eq!(watcher.client.last, shown.update_id);
            }
        }
    }
}

/// Against the real exchange: the hub starts in the middle of its life and then has the same book, the same last trade and its own trades.
#[test]
fn the_hub_shows_what_the_exchange_holds() {
    let mut exchange = Exchange::new();
    let mut events = Vec::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut apply = |exchange: &mut Exchange, body: Body| -> Vec<EventRecord> {
        let seq = exchange.position().next();
        let time = Timestamp(1_796_040_000_000_000 + seq.0 as i64 * 10_000);
        events.clear();
        let _ = exchange
            .apply(&Command { seq, time, rules: RULES_VERSION, deadline: Timestamp(0), body }, &mut events);
        events.clone()
    };
    let name = |text| Name::new(text).unwrap();
    for (id, text) in [(0, "USDT"), (1, "BTC")] {
        apply(&mut exchange, Body::AddAsset { id: AssetId(id), name: name(text) });
    }
    apply(&mut exchange, Body::SetInstrument(instrument(BTC, "BTCUSDT")));
    for account in 1..=3 {
        apply(&mut exchange, Body::CreateAccount);
        for asset in [AssetId(0), AssetId(1)] {
            let amount = Amount(units("1000000"));
            let reference = ClientId::new(&format!("funds-{asset}")).unwrap();
            apply(&mut exchange, Body::Deposit { account: AccountId(account), asset, amount, reference });
        }
    }
    let (hub, mut feed) = Hub::start(HubConfig { queue: 256 }).unwrap();
    let mut trades_told = 0;
    for step in 0..4000 {
        if step == 1000 {
            feed.on_start(&exchange);
        }
        let account = AccountId(1 + random(3) as u32);
        let body = if random(4) == 0 {
            let order = OrderRef::Id(OrderId(random(step + 1)));
            Body::Cancel { account, market: BTC, order, cancel_id: ClientId::NONE }
        } else {
            Body::Place(NewOrder {
                account,
                market: BTC,
                side: if random(2) == 0 { Side::Buy } else { Side::Sell },
                order_type: OrderType::Limit,
                tif: TimeInForce::Gtc,
                price: Price(units("100") + random(40) as i64 * units("0.01")),
                stop_price: Price::ZERO,
                qty: Qty(units("0.1") * (1 + random(20) as i64)),
                quote_qty: Amount::ZERO,
                iceberg_qty: Qty::ZERO,
                trailing_delta: 0,
                stp: StpMode::None,
                client_id: ClientId::new(&format!("o{step}")).unwrap(),
            })
        };
        let events = apply(&mut exchange, body);
        if step >= 1000 {
            trades_told += events.iter().filter(|record| matches!(record.event, Event::Trade(_))).count();
            feed.on_events(&events);
        }
    }
    hub.prime(vec![]);
    assert!(trades_told > 500, "{trades_told}");
    for limit in [1, 7, 5000] {
        assert_eq!(hub.depth(BTC, limit), Some(exchange.depth(BTC, limit)));
    }
    assert_eq!(hub.taken(), exchange.position());
    assert_eq!(hub.last_price(BTC), exchange.last_trade(BTC));
    assert_eq!(hub.trades(BTC, 5000).len(), trades_told.min(TRADES_KEPT));
    let now = exchange.time();
    assert_eq!(hub.ticker(BTC, now).unwrap().trades as usize, trades_told);
    assert_eq!(hub.open_candle(BTC, Interval::W1, now).unwrap().trades as usize, trades_told);
    hub.shutdown();
}
