use std::collections::BTreeMap;

use hoga_core::event::{Event, Level};
use hoga_core::exchange::Depth;
use hoga_core::money::{Price, Qty};
use hoga_core::order::Side;
use proptest::prelude::*;
use serde_json::Value;

use super::tests::{BTC, Rig, read, units};
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
