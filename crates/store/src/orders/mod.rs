//! `order-projection`: the last state of every order, and the fills of every account.
//!
//! An index over all orders by account, or by client id, would be written all over for each new order: at some millions of orders each
//! row of a batch dirties a page of its own. So both indexes begin with the part of the id space that the order is in (2¹⁴ orders):
//! what is written stays in a megabyte at the end, and a question goes through the parts, newest or oldest first, at a few
//! microseconds each (ten million orders are 610 parts). Times need no index, since ids are given in the order of time: they are found by bisection.

mod reads;

use hoga_core::event::{Event, EventRecord, Execution, Fill};
use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId, Timestamp, TradeId};
use hoga_core::order::{Order, Side};
use rusqlite::{Connection, Transaction, params};
use rustc_hash::FxHashMap;

use crate::Group;
use crate::consumer::{Applied, Model};
use crate::error::{InFile, StoreError};

pub use reads::{AccountFill, FillQuery, OrderQuery, Orders};

/// Orders per part: 2¹⁴. The schema has the number too.
pub(crate) const ORDER_PART_BITS: u32 = 14;

/// Trades of a market per part: 2¹³.
pub(crate) const TRADE_PART_BITS: u32 = 13;

const SCHEMA: &str = "
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, account INTEGER NOT NULL, market INTEGER NOT NULL,
    side INTEGER NOT NULL, type INTEGER NOT NULL, tif INTEGER NOT NULL,
    price INTEGER NOT NULL, stop_price INTEGER NOT NULL, qty INTEGER NOT NULL, quote_qty INTEGER NOT NULL,
    iceberg_qty INTEGER NOT NULL, trailing_delta INTEGER NOT NULL, stp INTEGER NOT NULL, client_id TEXT NOT NULL,
    status INTEGER NOT NULL, working INTEGER NOT NULL, filled INTEGER NOT NULL, filled_quote INTEGER NOT NULL,
    prevented INTEGER NOT NULL, list_id INTEGER NOT NULL,
    created INTEGER NOT NULL, updated INTEGER NOT NULL, working_since INTEGER NOT NULL,
    client_key INTEGER NOT NULL, first_trade INTEGER, last_trade INTEGER
);
CREATE INDEX orders_by_owner ON orders (id >> 14, account, market);
CREATE INDEX orders_by_client ON orders (id >> 14, client_key);
CREATE TABLE fills (
    market INTEGER NOT NULL, part INTEGER NOT NULL, account INTEGER NOT NULL, trade INTEGER NOT NULL, order_id INTEGER NOT NULL,
    time INTEGER NOT NULL, buyer INTEGER NOT NULL, maker INTEGER NOT NULL, price INTEGER NOT NULL, qty INTEGER NOT NULL,
    quote INTEGER NOT NULL, fee INTEGER NOT NULL, fee_asset INTEGER NOT NULL,
    PRIMARY KEY (market, part, account, trade, order_id)
) WITHOUT ROWID;";

const UPSERT_ORDER: &str = "INSERT INTO orders (id, account, market, side, type, tif, price, stop_price, qty, quote_qty, iceberg_qty,
    trailing_delta, stp, client_id, status, working, filled, filled_quote, prevented, list_id, created, updated, working_since,
    client_key, first_trade, last_trade)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)
    ON CONFLICT (id) DO UPDATE SET price = excluded.price, qty = excluded.qty, status = excluded.status, working = excluded.working,
    filled = excluded.filled, filled_quote = excluded.filled_quote, prevented = excluded.prevented, updated = excluded.updated,
    working_since = excluded.working_since, first_trade = coalesce(first_trade, excluded.first_trade),
    last_trade = coalesce(excluded.last_trade, last_trade)";

const INSERT_FILL: &str =
    "INSERT INTO fills (market, part, account, trade, order_id, time, buyer, maker, price, qty, quote, fee,
    fee_asset) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

/// What stands for a client id in the index: 64 bits of FNV-1a over account, market and text. The row itself is compared too, so two
/// ids with one key cost a look, not a wrong answer.
fn client_key(account: AccountId, market: MarketId, client_id: &ClientId) -> i64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let bytes = account.0.to_le_bytes();
    for byte in bytes.iter().chain(&market.0.to_le_bytes()).chain(client_id.as_str().as_bytes()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash as i64
}

/// What a batch did to one order.
struct Touched {
    order: Order,
    trades: Option<(TradeId, TradeId)>,
}

struct AccountsFill {
    account: AccountId,
    market: MarketId,
    order: OrderId,
    side: Side,
    time: Timestamp,
    fill: Fill,
}

/// The batch being gathered. Nothing has to be remembered between batches: each message carries the whole order.
#[derive(Default)]
pub(crate) struct OrderModel {
    touched: FxHashMap<OrderId, Touched>,
    fills: Vec<AccountsFill>,
    sorted: Vec<Touched>,
}

impl Model for OrderModel {
    const GROUP: Group = Group::Orders;
    const SCHEMA: &'static str = SCHEMA;
    const SCHEMA_VERSION: i64 = 1;

    fn load(_conn: &Connection, _path: &std::path::Path) -> Result<OrderModel, StoreError> {
        Ok(OrderModel::default())
    }

    fn apply(&mut self, record: &EventRecord) -> Result<Applied, StoreError> {
        let Event::Order(event) = &record.event else {
            return Ok(Applied::Unusable("not an order event"));
        };
        let order = event.order;
        let fill = event.fill.filter(|_| event.execution == Execution::Trade);
        let touched = self.touched.entry(order.id).or_insert(Touched { order, trades: None });
        touched.order = order;
        if let Some(fill) = fill {
            let first = touched.trades.map_or(fill.trade, |(first, _)| first);
            touched.trades = Some((first, fill.trade));
            self.fills.push(AccountsFill {
                account: order.request.account,
                market: order.request.market,
                order: order.id,
                side: order.request.side,
                time: record.time,
                fill,
            });
        }
        Ok(Applied::Done)
    }

    fn flush(&mut self, tx: &Transaction<'_>, path: &std::path::Path) -> Result<(), StoreError> {
        // In the order of the keys, neighbours share pages.
        self.sorted.extend(self.touched.drain().map(|(_, touched)| touched));
        self.sorted.sort_unstable_by_key(|touched| touched.order.id);
        let mut upsert = tx.prepare_cached(UPSERT_ORDER).doing(path, "preparing to store orders")?;
        for touched in self.sorted.drain(..) {
            let (order, request) = (&touched.order, &touched.order.request);
            upsert
                .execute(params![
                    order.id.0 as i64,
                    request.account.0,
                    request.market.0,
                    request.side as u8,
                    request.order_type as u8,
                    request.tif as u8,
                    request.price.0,
                    request.stop_price.0,
                    request.qty.0,
                    request.quote_qty.0,
                    request.iceberg_qty.0,
                    request.trailing_delta,
                    request.stp as u8,
                    request.client_id.as_str(),
                    order.status as u8,
                    order.working,
                    order.filled.0,
                    order.filled_quote.0,
                    order.prevented.0,
                    order.list_id as i64,
                    order.created.0,
                    order.updated.0,
                    order.working_since.0,
                    client_key(request.account, request.market, &request.client_id),
                    touched.trades.map(|(first, _)| first.0 as i64),
                    touched.trades.map(|(_, last)| last.0 as i64),
                ])
                .doing(path, "storing an order")?;
        }
        self.fills.sort_unstable_by_key(|f| {
            (f.market, f.fill.trade.0 >> TRADE_PART_BITS, f.account, f.fill.trade, f.order)
        });
        let mut insert = tx.prepare_cached(INSERT_FILL).doing(path, "preparing to store fills")?;
        for entry in self.fills.drain(..) {
            let fill = &entry.fill;
            insert
                .execute(params![
                    entry.market.0,
                    (fill.trade.0 >> TRADE_PART_BITS) as i64,
                    entry.account.0,
                    fill.trade.0 as i64,
                    entry.order.0 as i64,
                    entry.time.0,
                    entry.side == Side::Buy,
                    fill.maker,
                    fill.price.0,
                    fill.qty.0,
                    fill.quote.0,
                    fill.fee.0,
                    fill.fee_asset.0,
                ])
                .doing(path, "storing a fill")?;
        }
        Ok(())
    }
}
