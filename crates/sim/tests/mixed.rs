//! The mixed flow through the real exchange: most commands are taken, and nothing is created or lost.

use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::{Event, Reject};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AssetId, Timestamp};
use hoga_sim::market::ASSETS;
use hoga_sim::mixed::{Mix, Mixed};
use std::collections::BTreeMap;

#[test]
fn the_mix_trades_and_conserves() {
    let mut mixed = Mixed::new(Mix { accounts: 200, most_open: 5_000, ..Mix::default() });
    let mut exchange = Exchange::new();
    let mut events = Vec::new();
    let mut rejects: BTreeMap<&'static str, u32> = BTreeMap::new();
    let mut apply = |exchange: &mut Exchange, body: Body, events: &mut Vec<_>| {
        let seq = exchange.position().next();
        let command = Command {
            seq,
            time: Timestamp(seq.0 as i64),
            rules: RULES_VERSION,
            deadline: Timestamp(0),
            body,
        };
        events.clear();
        if let Err(reject) = exchange.apply(&command, events) {
            *rejects.entry(Reject::as_str(reject)).or_insert(0) += 1;
        }
    };
    for body in mixed.setup() {
        apply(&mut exchange, body, &mut events);
    }
    let (commands, mut trades) = (100_000, 0);
    for _ in 0..commands {
        let body = mixed.next().unwrap();
        apply(&mut exchange, body, &mut events);
        trades += events.iter().filter(|record| matches!(record.event, Event::Trade(_))).count();
    }
    eprintln!("{} trades, {} open, refused {rejects:?}", trades, exchange.open_order_count());
    for id in 0..ASSETS.len() as u16 {
        let totals = exchange.totals(AssetId(id));
        assert_eq!(
            totals.free + totals.locked,
            totals.deposited - totals.withdrawn,
            "{}",
            ASSETS[usize::from(id)].name
        );
    }
    let refused: u32 = rejects.values().sum();
    assert!(refused < commands / 5, "{rejects:?}");
    assert!(
        !rejects.contains_key("INSUFFICIENT_BALANCE") && !rejects.contains_key("DUPLICATE_CLIENT_ID"),
        "{rejects:?}"
    );
    assert!(trades > 10_000, "{trades}");
    assert!((1_000..8_000).contains(&exchange.open_order_count()));
}
