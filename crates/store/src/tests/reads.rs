//! Questions with bounds, over hand-made rows that lie in several parts of the id space, against a naive filter.

use std::sync::Arc;

use hoga_core::event::{Event, EventRecord, Execution, OrderEvent, Trade};
use hoga_core::folds::candle::{Candle, Interval};
use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId, Seq, Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{NewOrder, Order, OrderRef, OrderStatus, OrderType, Side, StpMode, TimeInForce};
use hoga_log::event_log::MemoryLog;

use crate::orders::{ORDER_PART_BITS, TRADE_PART_BITS};
use crate::tests::support::{Db, Publisher, caught_up, dump};
use crate::{AccountFill, CandleQuery, FillQuery, Group, OrderQuery, Stores, TradeQuery};

const MARKET: MarketId = MarketId(1);
const MINUTE: i64 = 60_000_000;
const START: i64 = 1_606_716_000_000_000; // 2020-11-30 06:00 UTC

fn order(id: u64, account: u32, client: &str, created: i64) -> Order {
    let request = NewOrder {
        account: AccountId(account),
        market: MARKET,
        side: Side::Buy,
        order_type: OrderType::Limit,
        tif: TimeInForce::Gtc,
        price: Price(100 * SCALE),
        stop_price: Price::ZERO,
        qty: Qty(SCALE),
        quote_qty: Amount::ZERO,
        iceberg_qty: Qty::ZERO,
        trailing_delta: 0,
        stp: StpMode::None,
        client_id: ClientId::new(client).unwrap(),
    };
    Order {
        id: OrderId(id),
        request,
        status: OrderStatus::New,
        working: true,
        filled: Qty::ZERO,
        filled_quote: Amount::ZERO,
        prevented: Qty::ZERO,
        list_id: 0,
        created: Timestamp(created),
        updated: Timestamp(created),
        working_since: Timestamp(created),
    }
}

/// Numbers events one after the other, one command each.
#[derive(Default)]
struct Tape(Vec<EventRecord>);

impl Tape {
    fn push(&mut self, time: i64, event: Event) {
        let seq = Seq(self.0.len() as u64 + 1);
        self.0.push(EventRecord { seq, index: 0, time: Timestamp(time), event });
    }

    fn order(&mut self, order: &Order) {
        let event = OrderEvent {
            execution: Execution::New,
            order: *order,
            fill: None,
            cancel_id: ClientId::NONE,
            prevented: Qty::ZERO,
            base: Default::default(),
            quote: Default::default(),
        };
        self.push(order.updated.0, Event::Order(event));
    }

    fn trade(&mut self, id: u64, time: i64, price: i64, taker: u64) {
        let price = Price(price * SCALE);
        let (maker, taker) = (OrderId(1_000_000 + id), OrderId(taker));
        let trade = Trade {
            market: MARKET,
            id: TradeId(id),
            price,
            qty: Qty(SCALE),
            quote: Amount(price.0),
            buy_order: taker,
            sell_order: maker,
            buyer: AccountId(1),
            seller: AccountId(2),
            taker_side: Side::Buy,
            buyer_fee: Amount::ZERO,
            seller_fee: Amount::ZERO,
        };
        self.push(time, Event::Trade(trade));
    }

    fn stores(&self, dir: &Db) -> Stores {
        let mut publisher = Publisher::new(Arc::new(MemoryLog::new()), 1);
        // The accounts are not asked here, and would want the market's definition first.
        publisher.publish(&self.0);
        let stores = crate::tests::support::stores(dir, publisher.log.clone());
        stores.start().unwrap();
        for group in [Group::Orders, Group::Market] {
            assert!(stores.wait_current(group, crate::tests::support::WAIT), "{:?}", stores.position(group));
        }
        stores
    }
}

/// Every first id with every start and every end.
fn combinations(
    froms: &[Option<u64>],
    times: &[Option<i64>],
) -> Vec<(Option<u64>, Option<i64>, Option<i64>)> {
    let mut all = Vec::new();
    for from in froms {
        for start in times {
            all.extend(times.iter().map(|end| (*from, *start, *end)));
        }
    }
    all
}

#[test]
fn all_orders_keeps_to_every_bound() {
    let Some(dir) = super::db() else { return };
    let mut tape = Tape::default();
    // Around the ends of parts, and one far away; two accounts in turn; times stand still now and then.
    let part = 1_u64 << ORDER_PART_BITS >> 1;
    let ids =
        [1, 2, 3, part - 2, part - 1, part, part + 1, 2 * part - 1, 2 * part, 9 * part + 5, 9 * part + 6];
    let mut orders = Vec::new();
    for (at, id) in ids.into_iter().enumerate() {
        for (account, id) in [(1, 2 * id), (2, 2 * id + 1)] {
            let client = format!("c{}", at % 4);
            orders.push(order(id, account, &client, START + (at as i64 / 2) * MINUTE));
        }
    }
    orders.iter().for_each(|order| tape.order(order));
    let stores = tape.stores(&dir);
    let times = [
        None,
        Some(START - 1),
        Some(START),
        Some(START + MINUTE + 1),
        Some(START + 2 * MINUTE),
        Some(START + 9 * MINUTE),
    ];
    let froms =
        [None, Some(1), Some(2 * part), Some(4 * part - 1), Some(18 * part + 12), Some(u64::MAX >> 1)];
    for limit in [0, 1, 3, 500, 5000] {
        for (from, start, end) in combinations(&froms, &times) {
            let query = OrderQuery {
                from_id: from.map(OrderId),
                start: start.map(Timestamp),
                end: end.map(Timestamp),
                limit,
            };
            let fits = |order: &&Order| {
                order.request.account == AccountId(1)
                    && from.is_none_or(|from| order.id.0 >= from)
                    && start.is_none_or(|start| order.created.0 >= start)
                    && end.is_none_or(|end| order.created.0 <= end)
            };
            let all: Vec<Order> = orders.iter().filter(fits).copied().collect();
            let expected = if from.is_some() || start.is_some() {
                &all[..limit.min(all.len())]
            } else {
                &all[all.len().saturating_sub(limit)..]
            };
            let found = stores.orders().all_orders(AccountId(1), MARKET, &query).unwrap();
            assert_eq!(found, expected, "{query:?}");
        }
    }
    let none =
        stores.orders().all_orders(AccountId(1), MarketId(0), &OrderQuery { limit: 9, ..Default::default() });
    assert!(none.unwrap().is_empty());
    // The latest of the orders that had the name, over all parts.
    for name in 0..4 {
        let client = ClientId::new(&format!("c{name}")).unwrap();
        let expected =
            orders.iter().rev().find(|o| o.request.client_id == client && o.request.account == AccountId(2));
        let found = stores.orders().order(AccountId(2), MARKET, &OrderRef::Client(client)).unwrap();
        assert_eq!(found.as_ref(), expected);
    }
    let unknown = OrderRef::Client(ClientId::new("never").unwrap());
    assert_eq!(stores.orders().order(AccountId(2), MARKET, &unknown).unwrap(), None);
}

#[test]
fn my_trades_keeps_to_every_bound() {
    let Some(dir) = super::db() else { return };
    let mut tape = Tape::default();
    let part = 1_u64 << TRADE_PART_BITS;
    let mut expected: Vec<(u32, AccountFill)> = Vec::new();
    let trades = [1, 2, part - 1, part, part + 1, 2 * part, 7 * part + 3, 7 * part + 4, 9 * part];
    for (at, trade) in trades.into_iter().enumerate() {
        // Two orders of account 1 buy in turn from one of account 2; and account 1 meets itself in trade 2.
        let time = START + (at as i64 / 2) * MINUTE;
        let buy = (1, 10 + (at as u64 % 2));
        let sell = if trade == 2 { (1, 12) } else { (2, 20) };
        let event = Trade {
            market: MARKET,
            id: TradeId(trade),
            price: Price(100 + trade as i64),
            qty: Qty(5),
            quote: Amount(500),
            buy_order: OrderId(buy.1),
            sell_order: OrderId(sell.1),
            buyer: AccountId(buy.0),
            seller: AccountId(sell.0),
            taker_side: if trade.is_multiple_of(2) { Side::Buy } else { Side::Sell },
            buyer_fee: Amount(1),
            seller_fee: Amount(2),
        };
        tape.push(time, Event::Trade(event));
        for (side, (account, id), fee) in [(Side::Buy, buy, 1), (Side::Sell, sell, 2)] {
            let mut order = order(id, account, "c", START);
            order.updated = Timestamp(time);
            order.filled = Qty(5);
            tape.order(&order);
            expected.push((
                account,
                AccountFill {
                    trade: event.id,
                    order: order.id,
                    time: Timestamp(time),
                    side,
                    maker: side != event.taker_side,
                    price: event.price,
                    qty: event.qty,
                    quote: event.quote,
                    fee: Amount(fee),
                },
            ));
        }
    }
    expected.sort_by_key(|(account, fill)| (*account, fill.trade, fill.order));
    let stores = tape.stores(&dir);
    let times = [
        None,
        Some(START - 1),
        Some(START),
        Some(START + MINUTE),
        Some(START + 2 * MINUTE + 5),
        Some(START + 9 * MINUTE),
    ];
    let froms = [None, Some(0), Some(2), Some(part), Some(7 * part), Some(u64::MAX >> 1)];
    for limit in [0, 1, 4, 1000] {
        for order in [None, Some(10), Some(11), Some(12), Some(20), Some(99)] {
            for (from, start, end) in combinations(&froms, &times) {
                let query = FillQuery {
                    order: order.map(OrderId),
                    from_id: from.map(TradeId),
                    start: start.map(Timestamp),
                    end: end.map(Timestamp),
                    limit,
                };
                let all: Vec<AccountFill> = expected
                    .iter()
                    .filter(|(account, fill)| {
                        *account == 1
                            && order.is_none_or(|order| fill.order.0 == order)
                            && from.is_none_or(|from| fill.trade.0 >= from)
                            && start.is_none_or(|start| fill.time.0 >= start)
                            && end.is_none_or(|end| fill.time.0 <= end)
                    })
                    .map(|(_, fill)| *fill)
                    .collect();
                let expected = if from.is_some() || start.is_some() || order.is_some() {
                    &all[..limit.min(all.len())]
                } else {
                    &all[all.len().saturating_sub(limit)..]
                };
                assert_eq!(
                    stores.orders().my_trades(AccountId(1), MARKET, &query).unwrap(),
                    expected,
                    "{query:?}"
                );
            }
        }
    }
}

#[test]
fn aggregates_keep_to_every_bound() {
    let Some(dir) = super::db() else { return };
    let mut tape = Tape::default();
    // Taker, price and time of each trade; the aggregate that each belongs to.
    let rows = [
        (5, 100, 0, 1),
        (5, 100, 0, 1),
        (5, 101, 0, 2), // same taker, next price
        (6, 101, 0, 3), // next taker, same price
        (6, 101, 0, 3),
        (6, 101, 1, 4), // same taker and price, later
        (7, 101, 1, 5),
        (7, 100, 2, 6),
    ];
    for (at, (taker, price, minute, _)) in rows.into_iter().enumerate() {
        tape.trade(at as u64 + 1, START + minute * MINUTE, price, taker);
    }
    let stores = tape.stores(&dir);
    let times = [
        None,
        Some(START - 1),
        Some(START),
        Some(START + MINUTE),
        Some(START + 2 * MINUTE),
        Some(START + 5 * MINUTE),
    ];
    for limit in [0, 1, 2, 1000] {
        for (from, start, end) in
            combinations(&[None, Some(0), Some(1), Some(3), Some(6), Some(7), Some(u64::MAX)], &times)
        {
            let query =
                TradeQuery { from_id: from, start: start.map(Timestamp), end: end.map(Timestamp), limit };
            let mut all: Vec<u64> = rows
                .iter()
                .filter(|row| {
                    let time = START + row.2 * MINUTE;
                    from.is_none_or(|from| row.3 >= from)
                        && start.is_none_or(|start| time >= start)
                        && end.is_none_or(|end| time <= end)
                })
                .map(|row| row.3)
                .collect();
            all.dedup();
            let expected = if from.is_some() || start.is_some() {
                &all[..limit.min(all.len())]
            } else {
                &all[all.len().saturating_sub(limit)..]
            };
            let found = stores.market().aggregate_trades(MARKET, &query).unwrap();
            assert_eq!(found.iter().map(|a| a.id).collect::<Vec<_>>(), expected, "{query:?}");
            for aggregate in found {
                let members = rows.iter().filter(|row| row.3 == aggregate.id).count() as u64;
                assert_eq!(aggregate.last.0 - aggregate.first.0 + 1, members);
                assert_eq!(aggregate.qty, Qty(members as i64 * SCALE));
            }
        }
    }
    let ids = |trades: Vec<crate::MarketTrade>| trades.iter().map(|t| t.id.0).collect::<Vec<_>>();
    assert_eq!(ids(stores.market().recent_trades(MARKET, 3).unwrap()), [6, 7, 8]);
    assert_eq!(ids(stores.market().recent_trades(MARKET, 0).unwrap()), [] as [u64; 0]);
    assert_eq!(ids(stores.market().trades_from(MARKET, TradeId(7), 3).unwrap()), [7, 8]);
    assert_eq!(ids(stores.market().trades_from(MARKET, TradeId(u64::MAX), 3).unwrap()), [] as [u64; 0]);
    assert!(stores.market().recent_trades(MarketId(0), 5).unwrap().is_empty());
}

/// Cases B6, B7 and B10: a period without trades is flat at the close before it with volume zero, never missing, never the old volume.
#[test]
fn candles_have_no_holes() {
    let Some(dir) = super::db() else { return };
    let mut tape = Tape::default();
    // Two trades in minute 0, none in 1 and 2, one in 3; then an outage of an hour.
    for (id, (second, price)) in [(0, 100), (59, 102), (185, 101), (3700, 90)].into_iter().enumerate() {
        tape.trade(id as u64 + 1, START + second * 1_000_000, price, 50 + id as u64);
    }
    let stores = tape.stores(&dir);
    let now = Timestamp(START + 64 * MINUTE + 5);
    let ask = |start: Option<i64>, end: Option<i64>, limit: usize| {
        let query = CandleQuery {
            start: start.map(|minute| Timestamp(START + minute * MINUTE)),
            end: end.map(|minute| Timestamp(START + minute * MINUTE)),
            limit,
        };
        stores.market().candles(MARKET, Interval::M1, &query, now).unwrap()
    };
    let minutes = |candles: &[Candle]| -> Vec<i64> {
        candles.iter().map(|candle| (candle.open_time.0 - START) / MINUTE).collect()
    };
    let first = ask(Some(0), None, 5);
    assert_eq!(minutes(&first), [0, 1, 2, 3, 4]);
    let prices = |c: &Candle| [c.open, c.high, c.low, c.close].map(|price| price.0 / SCALE);
    assert_eq!(
        first.iter().map(prices).collect::<Vec<_>>(),
        [[100, 102, 100, 102], [102; 4], [102; 4], [101; 4], [101; 4]]
    );
    assert_eq!(first.iter().map(|c| c.volume.0 / SCALE).collect::<Vec<_>>(), [2, 0, 0, 1, 0]);
    assert!(first.iter().filter(|c| c.trades == 0).all(|c| c.quote_volume.0 == 0 && c.first_trade.0 == 0));
    // The whole hour of the outage, up to the running minute.
    let all = ask(Some(0), None, 1000);
    assert_eq!(minutes(&all), (0..=64).collect::<Vec<_>>());
    assert_eq!(minutes(&ask(None, None, 3)), [62, 63, 64], "the latest ones");
    assert!(ask(None, None, 3).iter().all(|c| c.close.0 == 90 * SCALE));
    assert_eq!(minutes(&ask(None, Some(10), 3)), [8, 9, 10], "the latest ones before the end");
    assert_eq!(minutes(&ask(Some(5), Some(7), 1000)), [5, 6, 7]);
    assert_eq!(minutes(&ask(Some(-100), Some(1), 1000)), [0, 1], "nothing before the first trade");
    assert_eq!(minutes(&ask(Some(60), None, 2)), [60, 61]);
    assert!(ask(Some(7), Some(5), 10).is_empty());
    assert!(ask(Some(65), None, 10).is_empty() && ask(None, None, 0).is_empty());
    // A start inside a period begins with the next one.
    let query = CandleQuery { start: Some(Timestamp(START + 1)), end: None, limit: 1 };
    assert_eq!(minutes(&stores.market().candles(MARKET, Interval::M1, &query, now).unwrap()), [1]);
    // A reader whose clock is behind still gets what is stored.
    let query = CandleQuery { limit: 1, ..CandleQuery::default() };
    assert_eq!(
        minutes(&stores.market().candles(MARKET, Interval::M1, &query, Timestamp(START)).unwrap()),
        [61]
    );
    let weeks = stores.market().candles(MARKET, Interval::W1, &query, now).unwrap();
    assert_eq!((weeks[0].trades, weeks[0].open.0, weeks[0].close.0), (4, 100 * SCALE, 90 * SCALE));
}

#[test]
fn questions_use_their_indexes() {
    let Some(dir) = super::db() else { return };
    // The plan is the one of SQLite; users and keys are kept in SQLite whatever the read models are on.
    let crate::Database::Sqlite { dir: path } = &dir.database else { return };
    let stores = caught_up(&dir, Publisher::new(Arc::new(MemoryLog::new()), 1).log);
    stores.shutdown();
    let conn = rusqlite::Connection::open(path.join("orders.db")).unwrap();
    let plan = |sql: &str| -> String {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    let owner = plan(
        "SELECT * FROM orders INDEXED BY orders_by_owner WHERE id >> 14 = 1 AND account = 2 AND market = 3 AND id BETWEEN 4 AND 5 ORDER BY id LIMIT 6",
    );
    assert_eq!(
        owner,
        "SEARCH orders USING INDEX orders_by_owner (<expr>=? AND account=? AND market=? AND rowid>? AND rowid<?)"
    );
    let client = plan(
        "SELECT * FROM orders INDEXED BY orders_by_client WHERE id >> 14 = 1 AND client_key = 2 AND client_id = 'x' ORDER BY id DESC LIMIT 1",
    );
    assert_eq!(client, "SEARCH orders USING INDEX orders_by_client (<expr>=? AND client_key=?)");
    let fills = plan(
        "SELECT * FROM fills WHERE market = 1 AND part = 2 AND account = 3 AND trade BETWEEN 4 AND 5 ORDER BY trade, order_id LIMIT 6",
    );
    assert_eq!(
        fills,
        "SEARCH fills USING PRIMARY KEY (market=? AND part=? AND account=? AND trade>? AND trade<?)"
    );
    assert!(!dump(&dir, Group::Orders).contains("fills|"));
}

#[test]
fn the_ledger_reads_backwards_in_pages() {
    let Some(dir) = super::db() else { return };
    let mut world = crate::tests::support::World::new(31, 1);
    world.run(700);
    let stores = caught_up(&dir, world.log());
    let account = AccountId(3);
    let whole = stores.accounts().ledger(account, None, 1000).unwrap();
    assert!(whole.len() > 20 && whole.iter().all(|entry| entry.account == account));
    assert!(whole.windows(2).all(|w| w[0].id > w[1].id && w[0].seq >= w[1].seq));
    assert_eq!(whole.last().unwrap().kind.as_str(), "DEPOSIT");
    let mut paged = stores.accounts().ledger(account, None, 7).unwrap();
    loop {
        let page = stores.accounts().ledger(account, paged.last().map(|entry| entry.id), 7).unwrap();
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, whole);
    for entry in &whole {
        for legs in [Some(entry.first), entry.second].into_iter().flatten() {
            assert_eq!(legs.account.0 + legs.fees.0 + legs.counter.0, 0);
        }
    }
    assert!(stores.accounts().ledger(AccountId(77), None, 5).unwrap().is_empty());
}
