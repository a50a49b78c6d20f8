//! Whole runs: what the read models say equals what the exchange and a naive fold say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hoga_core::event::{Balance, Event, Trade};
use hoga_core::folds::candle::{Candle, CandleFold, Interval, Tick};
use hoga_core::folds::ticker::Ticker24h;
use hoga_core::ids::{AccountId, AssetId, MarketId, OrderId, Seq, Timestamp, TradeId};
use hoga_core::order::{OrderRef, Side};
use proptest::prelude::*;

use crate::tests::support::{ACCOUNTS, MARKETS, TempDir, WAIT, World, caught_up, dump, stores};
use crate::{
    AggregateTrade, CandleQuery, Difference, EngineView, FillQuery, Group, LedgerAudit, OrderQuery, Stores,
    TradeQuery,
};

fn check_balances(world: &World, stores: &Stores) {
    for account in (0..=ACCOUNTS).map(AccountId) {
        let expected: Vec<(AssetId, Balance)> = (0..3)
            .map(AssetId)
            .filter_map(|asset| world.exchange.balance(account, asset).map(|balance| (asset, balance)))
            .collect();
        let mut found = stores.accounts().balances(account).unwrap();
        // The exchange knows a zero for every account and asset, the table only those that were touched.
        for (asset, _) in &expected {
            if !found.iter().any(|(known, _)| known == asset) {
                found.push((*asset, Balance::default()));
            }
        }
        found.sort_unstable_by_key(|(asset, _)| *asset);
        assert_eq!(found, expected, "account {account}");
    }
}

fn check_orders(world: &World, stores: &Stores) {
    let orders = world.orders();
    let mut latest_by_client = BTreeMap::new();
    for order in &orders {
        let request = &order.request;
        latest_by_client.insert((request.account, request.market, request.client_id), *order);
        let by_id = OrderRef::Id(order.id);
        assert_eq!(stores.orders().order(request.account, request.market, &by_id).unwrap(), Some(*order));
        assert_eq!(stores.orders().order_by_id(request.account, order.id).unwrap(), Some(*order));
        let other = AccountId(request.account.0 + 1);
        assert_eq!(stores.orders().order(other, request.market, &by_id).unwrap(), None);
    }
    for ((account, market, client), order) in latest_by_client {
        let found = stores.orders().order(account, market, &OrderRef::Client(client)).unwrap();
        assert_eq!(found, Some(order));
    }
    for account in (1..=ACCOUNTS).map(AccountId) {
        for market in (0..MARKETS).map(MarketId) {
            let mine: Vec<_> = orders
                .iter()
                .filter(|order| (order.request.account, order.request.market) == (account, market))
                .copied()
                .collect();
            let query = OrderQuery { limit: 25, ..OrderQuery::default() };
            let found = stores.orders().all_orders(account, market, &query).unwrap();
            assert_eq!(found, mine[mine.len().saturating_sub(25)..]);
            let query = OrderQuery { from_id: Some(OrderId(1)), limit: 1000, ..query };
            assert_eq!(stores.orders().all_orders(account, market, &query).unwrap(), mine);
        }
    }
}

fn check_fills(world: &World, stores: &Stores) {
    let fills = world.fills();
    assert!(fills.len() > 100, "the run has to trade");
    for account in (1..=ACCOUNTS).map(AccountId) {
        for market in (0..MARKETS).map(MarketId) {
            let mut expected: Vec<_> = fills
                .iter()
                .filter(|(_, order, _)| (order.request.account, order.request.market) == (account, market))
                .map(|(time, order, fill)| (fill.trade, order.id, *time, fill.qty, fill.fee, fill.maker))
                .collect();
            expected.sort_unstable_by_key(|fill| (fill.0, fill.1));
            let query = FillQuery { from_id: Some(TradeId(0)), limit: 1000, ..FillQuery::default() };
            let found = stores.orders().my_trades(account, market, &query).unwrap();
            let found: Vec<_> =
                found.iter().map(|f| (f.trade, f.order, f.time, f.qty, f.fee, f.maker)).collect();
            assert_eq!(found, expected[..expected.len().min(1000)]);
        }
    }
}

fn trades_of(world: &World, market: MarketId) -> Vec<(Timestamp, Trade)> {
    let trade = |record: &hoga_core::event::EventRecord| match &record.event {
        Event::Trade(trade) if trade.market == market => Some((record.time, *trade)),
        _ => None,
    };
    world.events.iter().filter_map(trade).collect()
}

fn naive_aggregates(trades: &[(Timestamp, Trade)]) -> Vec<AggregateTrade> {
    let mut all: Vec<(hoga_core::ids::OrderId, AggregateTrade)> = Vec::new();
    for (time, trade) in trades {
        let taker = if trade.taker_side == Side::Buy { trade.buy_order } else { trade.sell_order };
        let id = all.len() as u64;
        match all.last_mut() {
            Some((order, last)) if (*order, last.price, last.time) == (taker, trade.price, *time) => {
                last.qty.0 += trade.qty.0;
                last.quote.0 += trade.quote.0;
                last.last = trade.id;
            }
            _ => all.push((
                taker,
                AggregateTrade {
                    id: id + 1,
                    price: trade.price,
                    qty: trade.qty,
                    quote: trade.quote,
                    first: trade.id,
                    last: trade.id,
                    time: *time,
                    taker_side: trade.taker_side,
                },
            )),
        }
    }
    all.into_iter().map(|(_, aggregate)| aggregate).collect()
}

fn check_market(world: &World, stores: &Stores) {
    for market in (0..MARKETS).map(MarketId) {
        let trades = trades_of(world, market);
        let found = stores.market().trades_from(market, TradeId(1), 1000).unwrap();
        let found: Vec<_> = found.iter().map(|t| (t.time, t.id, t.price, t.qty, t.quote)).collect();
        let expected: Vec<_> =
            trades.iter().take(1000).map(|(time, t)| (*time, t.id, t.price, t.qty, t.quote)).collect();
        assert_eq!(found, expected);
        let aggregates = naive_aggregates(&trades);
        let query = TradeQuery { limit: 1000, ..TradeQuery::default() };
        let found = stores.market().aggregate_trades(market, &query).unwrap();
        assert_eq!(found, aggregates[aggregates.len().saturating_sub(1000)..]);
        for interval in Interval::ALL {
            let mut fold = CandleFold::new(interval, usize::MAX);
            for (time, trade) in &trades {
                fold.apply(&Tick::of(trade, *time));
            }
            let expected: Vec<Candle> = fold.kept().copied().collect();
            let query = CandleQuery { start: Some(Timestamp(0)), limit: 1000, ..CandleQuery::default() };
            let found = stores.market().candles(market, interval, &query, world.now()).unwrap();
            assert!(found.windows(2).all(|w| interval.next(w[0].open_time) == w[1].open_time));
            assert!(found.iter().filter(|c| c.trades == 0).all(|c| c.volume.0 == 0 && c.high == c.low));
            let traded: Vec<Candle> = found.into_iter().filter(|candle| candle.trades > 0).collect();
            assert!(!traded.is_empty());
            assert_eq!(traded, expected[..traded.len()]);
        }
    }
}

fn check_resume(world: &World, stores: &Stores) {
    let (applied, resumed) = stores.market().resume().unwrap();
    assert_eq!(resumed.len(), usize::from(MARKETS));
    let last_trade =
        world.events.iter().rev().find(|r| matches!(r.event, Event::Trade(_))).map_or(Seq(0), |r| r.seq);
    assert_eq!(applied, last_trade);
    for resume in resumed {
        let trades = trades_of(world, resume.market);
        let aggregates = naive_aggregates(&trades);
        assert_eq!(Some(&resume.aggregate), aggregates.last());
        assert_eq!(resume.last.id, trades.last().unwrap().1.id);
        let mut ticker = Ticker24h::new();
        for (time, trade) in &trades {
            ticker.apply(&Tick::of(trade, *time));
        }
        let mut resumed = resume.ticker;
        assert_eq!(resumed.at(world.now()), ticker.at(world.now()));
        assert_eq!(resume.candles.len(), Interval::ALL.len());
    }
}

fn check_audit(world: &World, stores: &Stores) -> LedgerAudit {
    let report = stores.audit(&EngineView::capture(&world.exchange), WAIT).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.at, world.exchange.position());
    stores.accounts().audit(None).unwrap()
}

#[test]
fn a_run_reads_as_it_happened() {
    for (seed, partitions) in [(1, 1), (2, 3)] {
        let Some(dir) = super::db() else { return };
        let mut world = World::new(seed, partitions);
        world.run(2500);
        let stores = caught_up(&dir, world.log());
        check_balances(&world, &stores);
        check_orders(&world, &stores);
        check_fills(&world, &stores);
        check_market(&world, &stores);
        check_resume(&world, &stores);
        check_audit(&world, &stores);
    }
}

#[test]
fn consuming_while_it_happens_gives_the_same_as_rebuilding() {
    let (Some(live), Some(rebuilt)) = (super::db(), super::db()) else { return };
    let mut world = World::new(3, 1);
    let running = stores(&live, world.log());
    running.start().unwrap();
    for _ in 0..20 {
        world.run(50);
        let (at, _) = (world.exchange.position(), ());
        let last = world.events.iter().rev().find(|r| matches!(r.event, Event::Order(_))).unwrap().seq;
        assert!(running.wait_applied(Group::Orders, last, WAIT));
        assert!(running.applied(Group::Orders) >= last && last <= at);
    }
    for group in Group::ALL {
        assert!(running.wait_current(group, WAIT));
    }
    check_balances(&world, &running);
    running.shutdown();
    caught_up(&rebuilt, world.log()).shutdown();
    for group in Group::ALL {
        assert_eq!(dump(&live, group), dump(&rebuilt, group), "{group:?}");
    }
}

#[test]
fn restarts_go_on_where_they_were_and_tell_the_log() {
    let Some(dir) = super::db() else { return };
    let mut world = World::new(4, 1);
    for _ in 0..4 {
        world.run(300);
        let stores = caught_up(&dir, world.log());
        check_balances(&world, &stores);
        check_audit(&world, &stores);
        stores.shutdown();
        for group in Group::ALL {
            let end = world.log().end_offset(group.topic(), 0).unwrap();
            let told = world.log().committed(group.as_str(), group.topic(), 0).unwrap();
            assert_eq!(told, Some(end), "{group:?}");
            let position = stores.position(group);
            assert_eq!((position.lag, position.drain), (0, Some(Duration::ZERO)));
        }
    }
    let stores = caught_up(&dir, world.log());
    check_orders(&world, &stores);
    check_market(&world, &stores);
    assert_eq!(stores.position(Group::Orders).messages, 0, "nothing is read twice");
}

#[test]
fn an_audit_can_look_back_and_names_what_differs() {
    let Some(dir) = super::db() else { return };
    let mut world = World::new(5, 1);
    world.run(600);
    let then = EngineView::capture(&world.exchange);
    world.run(600);
    let stores = caught_up(&dir, world.log());
    let audit = stores.accounts().audit(Some(then.at)).unwrap();
    assert!(audit.at < audit.applied);
    let report = audit.compare(&then);
    assert!(report.is_clean(), "{report}");
    assert!(report.to_string().contains("clean, "));
    let ahead = Seq(audit.applied.0 + 1);
    assert!(matches!(
        stores.accounts().audit(Some(ahead)),
        Err(crate::StoreError::NotReached { asked, .. }) if asked == ahead
    ));
    stores.shutdown();
    // One unit moved by hand: in the balances, then in an entry's clearing side.
    assert!(
        dir.execute(Group::Accounts, "UPDATE balances SET free = free + 1 WHERE account = 2 AND asset = 2")
    );
    let refused = dir.execute(Group::Accounts, "UPDATE ledger SET account_a = account_a + 1 WHERE id = 40");
    assert!(!refused, "the database itself refuses an entry that does not sum to zero");
    assert!(dir.execute(
        Group::Accounts,
        "UPDATE ledger SET account_b = account_b + 1, counter_b = counter_b - 1 WHERE id = (SELECT max(id) FROM ledger WHERE kind = 2)",
    ));
    let mut view = EngineView::capture(&world.exchange);
    let audit = stores.accounts().audit(None).unwrap();
    view.at = audit.at;
    let differences = audit.compare(&view).differences;
    assert!(
        differences.iter().any(|d| matches!(d, Difference::Clearing { rest: -1, .. })),
        "{differences:?}"
    );
    let (account, asset) = (AccountId(2), AssetId(2));
    assert!(differences.iter().any(
        |d| matches!(d, Difference::Holds { account: a, asset: b, .. } if (*a, *b) == (account, asset))
    ));
    assert!(differences.iter().any(|d| matches!(d, Difference::Account { .. })));
}

#[test]
fn the_embedded_log_feeds_them_too() {
    let Some(dir) = super::db() else { return };
    let logs = TempDir::new();
    let log = hoga_log::event_log::EmbeddedLog::open(logs.path(), Default::default()).unwrap();
    let mut world = World::with_log(6, 1, Arc::new(log));
    world.run(400);
    let stores = caught_up(&dir, world.log());
    check_balances(&world, &stores);
    check_orders(&world, &stores);
    check_market(&world, &stores);
    check_audit(&world, &stores);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn every_ledger_entry_sums_to_zero_and_the_ledger_is_the_engine(seed in any::<u64>(), partitions in 1_u32..4) {
        let Some(dir) = super::db() else { return Ok(()) };
        let mut world = World::new(seed, partitions);
        world.run(400);
        let stores = caught_up(&dir, world.log());
        let audit = check_audit(&world, &stores);
        stores.shutdown();
        prop_assert!(audit.clearing.values().all(|rest| *rest == 0));
        for sql in [
            "SELECT partition, entry, asset FROM postings GROUP BY partition, entry, asset HAVING sum(amount) <> 0",
            "SELECT asset FROM postings GROUP BY asset HAVING sum(amount) <> 0",
        ] {
            prop_assert_eq!(dir.ask(Group::Accounts, sql), Vec::<Vec<String>>::new());
        }
    }
}
