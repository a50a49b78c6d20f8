//! The whole capture through the real exchange: the trades, the refused post-only orders and the book at the end must be those that
//! Bitstamp published. The recording is in the folder that `HOGA_DATA` names.

use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::{Event, EventRecord, Execution, Reject};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, MarketId, OrderId, Timestamp};
use hoga_sim::bitstamp::{Capture, PublishedTrade, Resting, StepKind, read_trades, setup};
use hoga_sim::recording;
use std::collections::HashMap;
use std::path::PathBuf;

fn data(test: &str, path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("HOGA_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let file = root.join(path);
    if file.exists() {
        return Some(file);
    }
    eprintln!("SKIP {test}: {} is not there", file.display());
    None
}

/// Numbers commands and applies them.
struct Run {
    exchange: Exchange,
    events: Vec<EventRecord>,
}

impl Run {
    fn apply(&mut self, time: Timestamp, body: Body) -> Result<(), Reject> {
        self.events.clear();
        let seq = self.exchange.position().next();
        let command = Command { seq, time, rules: RULES_VERSION, deadline: Timestamp(0), body };
        self.exchange.apply(&command, &mut self.events)
    }
}

#[test]
fn the_capture_gives_the_published_trades_rejections_and_end_book() {
    let test = "the_capture_gives_the_published_trades_rejections_and_end_book";
    let Some(orders) = data(test, "bitstamp-l3/orders.csv.gz") else { return };
    let Some(trades) = data(test, "bitstamp-l3/trades.csv") else { return };
    let capture = Capture::read(recording::open(&orders).unwrap()).unwrap();
    let published = read_trades(recording::open(&trades).unwrap()).unwrap();

    let (account, market) = (AccountId(1), MarketId(0));
    let mut run = Run { exchange: Exchange::new(), events: Vec::new() };
    for body in setup() {
        assert_eq!(run.apply(capture.steps[0].time, body), Ok(()));
    }
    // The exchange numbers orders itself: which number is whose.
    let mut names: HashMap<OrderId, u64> = HashMap::new();
    let (mut made, mut would_match, mut refused) = (Vec::new(), 0, HashMap::new());
    for step in &capture.steps {
        match run.apply(step.time, step.body(account, market)) {
            Ok(()) => {}
            Err(Reject::WouldMatch) => would_match += 1,
            Err(Reject::UnknownOrder) if step.kind == StepKind::Cancel => {
                *refused.entry("cancel").or_insert(0) += 1;
            }
            Err(reject) => panic!("{step:?}: {reject:?}"),
        }
        for record in &run.events {
            match &record.event {
                Event::Order(event) if event.execution == Execution::New => {
                    names.insert(event.order.id, step.order);
                }
                Event::Trade(trade) => made.push(PublishedTrade {
                    id: trade.id.0,
                    price: trade.price,
                    qty: trade.qty,
                    buy_order: names[&trade.buy_order],
                    sell_order: names[&trade.sell_order],
                    taker_side: trade.taker_side,
                }),
                _ => {}
            }
        }
    }
    // Bitstamp counts its trades from elsewhere: compare the sequence and all else.
    assert_eq!(made.len(), 284);
    assert_eq!(published.len(), 284);
    for (place, (ours, theirs)) in made.iter().zip(&published).enumerate() {
        assert_eq!(*ours, PublishedTrade { id: ours.id, ..*theirs }, "trade {place}");
        assert_eq!(ours.id, place as u64 + 1);
    }
    assert_eq!(would_match, 100_518);
    // Cancels of refused post-only orders, and the 13 that name orders never seen.
    assert_eq!(refused["cancel"], 100_518 + 13);

    let mut book: Vec<Resting> = run
        .exchange
        .open_orders(account, Some(market))
        .iter()
        .map(|order| Resting {
            order: names[&order.id],
            qty: hoga_core::money::Qty(order.request.qty.0 - order.filled.0),
        })
        .collect();
    book.sort_unstable();
    assert_eq!(book.len(), 6_516);
    assert_eq!(book, capture.end_book);
    let depth = run.exchange.depth(market, 1);
    assert_eq!(
        (depth.bids[0].0.to_string(), depth.asks[0].0.to_string()),
        ("78350.00000000".into(), "78351.00000000".into())
    );
}
