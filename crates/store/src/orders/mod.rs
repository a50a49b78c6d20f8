//! `order-projection`: the last state of every order, and the fills of every account.
//!
//! Orders come from `order.projection`, which keeps the last message of each order for ever; fills come from `trade.completed`, since
//! compaction takes the messages in which an order was filled earlier. A row of an order remembers the number of its message: an older
//! one that comes late (a dead letter played again) changes nothing.
//!
//! An index over all orders by account, or by client id, would be written all over for each new order: at some millions of orders each
//! row of a batch dirties a page of its own. So both indexes begin with the part of the id space that the order is in (2¹⁴ orders):
//! what is written stays in a megabyte at the end, and a question goes through the parts, newest or oldest first, at a few
//! microseconds each (ten million orders are 610 parts). Times need no index, since ids are given in the order of time: they are found by bisection.

mod reads;

use hoga_core::event::{Event, EventRecord, Trade};
use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId, Timestamp};
use hoga_core::order::{Order, Side};
use rustc_hash::FxHashMap;

use crate::error::StoreError;
use crate::model::{Applied, Delivery, Model, Owned};
use crate::sql::{Kind, Reader, Rows, Table, Tx};
use crate::{Group, PROJECTION, TRADES};

pub use reads::{AccountFill, FillQuery, OrderQuery, Orders};

/// Orders per part: 2¹⁴. The schema has the number too.
pub(crate) const ORDER_PART_BITS: u32 = 14;

/// Trades of a market per part: 2¹³.
pub(crate) const TRADE_PART_BITS: u32 = 13;

static ORDERS: Table = Table {
    name: "orders",
    columns: &[
        ("id", Kind::Int),
        ("account", Kind::Int),
        ("market", Kind::Int),
        ("side", Kind::Int),
        ("type", Kind::Int),
        ("tif", Kind::Int),
        ("price", Kind::Int),
        ("stop_price", Kind::Int),
        ("qty", Kind::Int),
        ("quote_qty", Kind::Int),
        ("iceberg_qty", Kind::Int),
        ("trailing_delta", Kind::Int),
        ("stp", Kind::Int),
        ("client_id", Kind::Text),
        ("status", Kind::Int),
        ("working", Kind::Int),
        ("filled", Kind::Int),
        ("filled_quote", Kind::Int),
        ("prevented", Kind::Int),
        ("list_id", Kind::Int),
        ("created", Kind::Int),
        ("updated", Kind::Int),
        ("working_since", Kind::Int),
        ("client_key", Kind::Int),
        ("number", Kind::Int),
    ],
    conflict: "ON CONFLICT (id) DO UPDATE SET price = excluded.price, qty = excluded.qty, status = excluded.status,
        working = excluded.working, filled = excluded.filled, filled_quote = excluded.filled_quote, prevented = excluded.prevented,
        updated = excluded.updated, working_since = excluded.working_since, number = excluded.number
        WHERE excluded.number > orders.number",
};

static FILLS: Table = Table {
    name: "fills",
    columns: &[
        ("market", Kind::Int),
        ("part", Kind::Int),
        ("account", Kind::Int),
        ("trade", Kind::Int),
        ("order_id", Kind::Int),
        ("time", Kind::Int),
        ("buyer", Kind::Int),
        ("maker", Kind::Int),
        ("price", Kind::Int),
        ("qty", Kind::Int),
        ("quote", Kind::Int),
        ("fee", Kind::Int),
    ],
    conflict: "ON CONFLICT (market, part, account, trade, order_id) DO NOTHING",
};

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

/// One side of a trade.
struct Fill {
    account: AccountId,
    order: OrderId,
    side: Side,
    time: Timestamp,
    trade: Trade,
}

/// The batch being gathered. Nothing has to be remembered between batches: each message carries the whole order, or the whole trade.
pub(crate) struct OrderModel {
    /// The last state of each order of the batch, and the number of its message.
    touched: FxHashMap<OrderId, (Order, u64)>,
    fills: Vec<Fill>,
    sorted: Vec<(Order, u64)>,
    order_rows: Rows,
    fill_rows: Rows,
}

impl Default for OrderModel {
    fn default() -> OrderModel {
        OrderModel {
            touched: FxHashMap::default(),
            fills: Vec::new(),
            sorted: Vec::new(),
            order_rows: Rows::new(&ORDERS),
            fill_rows: Rows::new(&FILLS),
        }
    }
}

impl OrderModel {
    fn gather_orders(&mut self) {
        // In the order of the keys, neighbours share pages.
        self.sorted.extend(self.touched.drain().map(|(_, touched)| touched));
        self.sorted.sort_unstable_by_key(|(order, _)| order.id);
        for (order, number) in self.sorted.drain(..) {
            let request = &order.request;
            self.order_rows
                .ints([order.id.0 as i64, i64::from(request.account.0), i64::from(request.market.0)])
                .ints([request.side as i64, request.order_type as i64, request.tif as i64])
                .ints([request.price.0, request.stop_price.0, request.qty.0, request.quote_qty.0])
                .ints([request.iceberg_qty.0, i64::from(request.trailing_delta), request.stp as i64])
                .text(request.client_id.as_str())
                .ints([order.status as i64, i64::from(order.working), order.filled.0, order.filled_quote.0])
                .ints([order.prevented.0, order.list_id as i64])
                .ints([order.created.0, order.updated.0, order.working_since.0])
                .ints([client_key(request.account, request.market, &request.client_id), number as i64]);
        }
    }

    fn gather_fills(&mut self) {
        let part = |trade: &Trade| trade.id.0 >> TRADE_PART_BITS;
        self.fills.sort_unstable_by_key(|fill| {
            (fill.trade.market, part(&fill.trade), fill.account, fill.trade.id, fill.order)
        });
        for Fill { account, order, side, time, trade } in self.fills.drain(..) {
            let fee = match side {
                Side::Buy => trade.buyer_fee,
                Side::Sell => trade.seller_fee,
            };
            self.fill_rows
                .ints([i64::from(trade.market.0), part(&trade) as i64, i64::from(account.0)])
                .ints([trade.id.0 as i64, order.0 as i64, time.0])
                .ints([i64::from(side == Side::Buy), i64::from(side != trade.taker_side)])
                .ints([trade.price.0, trade.qty.0, trade.quote.0, fee.0]);
        }
    }
}

impl Model for OrderModel {
    const GROUP: Group = Group::Orders;

    fn load(&mut self, _reader: &Reader<'_>, _owned: &[Owned]) -> Result<(), StoreError> {
        Ok(())
    }

    fn forget(&mut self, _lost: &[Owned]) {}

    fn apply(&mut self, from: Delivery, record: &EventRecord) -> Result<Applied, StoreError> {
        match (&record.event, from.of.topic) {
            (Event::Order(event), PROJECTION) => {
                self.touched.insert(event.order.id, (event.order, from.number));
            }
            (Event::Trade(trade), TRADES) => {
                let sides =
                    [(Side::Buy, trade.buyer, trade.buy_order), (Side::Sell, trade.seller, trade.sell_order)];
                self.fills.extend(sides.map(|(side, account, order)| Fill {
                    account,
                    order,
                    side,
                    time: record.time,
                    trade: *trade,
                }));
            }
            (_, TRADES) => return Ok(Applied::Unusable("not a trade")),
            _ => return Ok(Applied::Unusable("not an order event")),
        }
        Ok(Applied::Done)
    }

    fn flush(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        self.gather_orders();
        self.gather_fills();
        tx.write(&self.order_rows)?;
        tx.write(&self.fill_rows)?;
        self.order_rows.clear();
        self.fill_rows.clear();
        Ok(())
    }
}
