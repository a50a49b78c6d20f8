//! Questions to the orders database.

use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId, Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, Order, OrderRef, OrderStatus, OrderType, Side, StpMode, TimeInForce};

use super::{ORDER_PART_BITS, TRADE_PART_BITS, client_key};
use crate::cells::{Cells, lowest_where};
use crate::error::StoreError;
use crate::sql::{ReadPool, Reader, values};
use crate::{DeadLetter, MAX_ROWS};

/// Which orders of an account in a market are asked for (Binance's `allOrders`). All given bounds hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderQuery {
    /// From this order on.
    pub from_id: Option<OrderId>,
    /// Accepted at this time or later.
    pub start: Option<Timestamp>,
    /// Accepted at this time or earlier.
    pub end: Option<Timestamp>,
    /// At most so many; no more than [`MAX_ROWS`] in any case.
    pub limit: usize,
}

/// Which fills of an account in a market are asked for (Binance's `myTrades`). All given bounds hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillQuery {
    /// Of this order only.
    pub order: Option<OrderId>,
    /// From this trade on.
    pub from_id: Option<TradeId>,
    /// At this time or later.
    pub start: Option<Timestamp>,
    /// At this time or earlier.
    pub end: Option<Timestamp>,
    /// At most so many; no more than [`MAX_ROWS`] in any case.
    pub limit: usize,
}

/// One side of a trade, as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountFill {
    /// The trade.
    pub trade: TradeId,
    /// The account's order.
    pub order: OrderId,
    /// When.
    pub time: Timestamp,
    /// Whether the account bought or sold.
    pub side: Side,
    /// Whether the account's order rested.
    pub maker: bool,
    /// The price.
    pub price: Price,
    /// Base quantity.
    pub qty: Qty,
    /// Quote amount, before the fee.
    pub quote: Amount,
    /// The fee: of a buyer in the market's base asset, of a seller in its quote asset.
    pub fee: Amount,
}

/// The orders and fills of all accounts, as far as `order-projection` has come. Cheap to clone; each call blocks on the disk, so call it
/// from a thread that may wait.
#[derive(Clone)]
pub struct Orders {
    pub(crate) pool: ReadPool,
}

const ORDER_COLUMNS: &str = "id, account, market, side, type, tif, price, stop_price, qty, quote_qty, iceberg_qty, \
    trailing_delta, stp, client_id, status, working, filled, filled_quote, prevented, list_id, created, updated, working_since";

const FILL_COLUMNS: &str = "trade, order_id, time, buyer, maker, price, qty, quote, fee";

impl Orders {
    /// The last known state of an order of an account in a market. By client id: the latest order that has it.
    pub fn order(
        &self,
        account: AccountId,
        market: MarketId,
        order: &OrderRef,
    ) -> Result<Option<Order>, StoreError> {
        self.pool.read("reading an order", |reader| match order {
            OrderRef::Id(id) => {
                let found = self.by_id(reader, *id)?;
                Ok(found.filter(|o| o.request.account == account && o.request.market == market))
            }
            OrderRef::Client(client_id) => self.by_client(reader, account, market, client_id),
        })
    }

    /// The last known state of an account's order, whatever its market.
    pub fn order_by_id(&self, account: AccountId, id: OrderId) -> Result<Option<Order>, StoreError> {
        self.pool.read("reading an order", |reader| {
            Ok(self.by_id(reader, id)?.filter(|order| order.request.account == account))
        })
    }

    /// Orders of an account in a market, ascending by id. With `from_id` or `start`: the first ones from there; else the latest ones.
    pub fn all_orders(
        &self,
        account: AccountId,
        market: MarketId,
        query: &OrderQuery,
    ) -> Result<Vec<Order>, StoreError> {
        let limit = query.limit.min(MAX_ROWS);
        self.pool.read("reading orders", |reader| {
            let mut low = query.from_id.map_or(1, |id| id.0);
            let mut high = self.last_id(reader)?;
            if let Some(start) = query.start {
                low = low.max(self.first_id_at(reader, high, |created| created >= start)?);
            }
            if let Some(end) = query.end {
                high = self.first_id_at(reader, high, |created| created > end)?.saturating_sub(1);
            }
            let forward = query.from_id.is_some() || query.start.is_some();
            let order = if forward { "ASC" } else { "DESC" };
            let sql = format!(
                "SELECT {ORDER_COLUMNS} FROM orders INDEXED BY orders_by_owner \
                 WHERE id >> {ORDER_PART_BITS} = ?1 AND account = ?2 AND market = ?3 AND id BETWEEN ?4 AND ?5 \
                 ORDER BY id {order} LIMIT ?6"
            );
            let mut found: Vec<Order> = Vec::new();
            for part in parts(low, high, ORDER_PART_BITS, forward) {
                let missing = limit - found.len();
                if missing == 0 {
                    break;
                }
                let values = values![part, account.0, market.0, number(low), number(high), missing];
                found.extend(reader.all(&sql, values, read_order)?);
            }
            if !forward {
                found.reverse();
            }
            Ok(found)
        })
    }

    /// Fills of an account in a market, ascending by trade. With `order`, `from_id` or `start`: the first ones from there; else the
    /// latest ones.
    pub fn my_trades(
        &self,
        account: AccountId,
        market: MarketId,
        query: &FillQuery,
    ) -> Result<Vec<AccountFill>, StoreError> {
        let limit = query.limit.min(MAX_ROWS);
        self.pool.read("reading fills", |reader| {
            let Some((low, high)) = self.trade_range(reader, account, market, query)? else {
                return Ok(Vec::new());
            };
            let forward = query.from_id.is_some() || query.start.is_some() || query.order.is_some();
            let order = if forward { "ASC" } else { "DESC" };
            let sql = format!(
                "SELECT {FILL_COLUMNS} FROM fills WHERE market = ?1 AND part = ?2 AND account = ?3 AND trade BETWEEN ?4 AND ?5 \
                 AND time BETWEEN ?6 AND ?7 AND (CAST(?8 AS BIGINT) IS NULL OR order_id = ?8) ORDER BY trade {order}, order_id {order} LIMIT ?9"
            );
            let start = query.start.map_or(i64::MIN, |time| time.0);
            let end = query.end.map_or(i64::MAX, |time| time.0);
            let one = query.order.map(|id| id.0);
            let mut found: Vec<AccountFill> = Vec::new();
            for part in parts(low, high, TRADE_PART_BITS, forward) {
                let missing = limit - found.len();
                if missing == 0 {
                    break;
                }
                let (low, high) = (number(low), number(high));
                let values = values![market.0, part, account.0, low, high, start, end, one, missing];
                found.extend(reader.all(&sql, values, read_fill)?);
            }
            if !forward {
                found.reverse();
            }
            Ok(found)
        })
    }

    /// Messages that this group could not use, latest first.
    pub fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        crate::dead_letters::list(&self.pool, limit)
    }

    fn by_id(&self, reader: &Reader<'_>, id: OrderId) -> Result<Option<Order>, StoreError> {
        let sql = format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = ?1");
        reader.first(&sql, values![id.0], read_order)
    }

    fn by_client(
        &self,
        reader: &Reader<'_>,
        account: AccountId,
        market: MarketId,
        client_id: &ClientId,
    ) -> Result<Option<Order>, StoreError> {
        let sql = format!(
            "SELECT {ORDER_COLUMNS} FROM orders INDEXED BY orders_by_client WHERE id >> {ORDER_PART_BITS} = ?1 \
             AND client_key = ?2 AND account = ?3 AND market = ?4 AND client_id = ?5 ORDER BY id DESC LIMIT 1"
        );
        let key = client_key(account, market, client_id);
        for part in parts(1, self.last_id(reader)?, ORDER_PART_BITS, false) {
            let values = values![part, key, account.0, market.0, client_id.as_str()];
            if let Some(order) = reader.first(&sql, values, read_order)? {
                return Ok(Some(order));
            }
        }
        Ok(None)
    }

    fn last_id(&self, reader: &Reader<'_>) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(max(id), 0) FROM orders";
        Ok(reader.first(sql, &[], |cells| cells.unsigned())?.unwrap_or(0))
    }

    /// The first order id whose acceptance time is `late`; orders are numbered in the order of acceptance.
    fn first_id_at(
        &self,
        reader: &Reader<'_>,
        last: u64,
        late: impl Fn(Timestamp) -> bool,
    ) -> Result<u64, StoreError> {
        let sql = "SELECT created FROM orders WHERE id >= ?1 ORDER BY id LIMIT 1";
        lowest_where(1, last, |id| {
            let created = reader.first(sql, values![id], |cells| cells.time())?;
            Ok(created.is_none_or(&late))
        })
    }

    /// The trades among which the answer lies; `None` when there can be none.
    fn trade_range(
        &self,
        reader: &Reader<'_>,
        account: AccountId,
        market: MarketId,
        query: &FillQuery,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let sql = "SELECT part FROM fills WHERE market = ?1 ORDER BY part DESC LIMIT 1";
        let Some(last_part) = reader.first(sql, values![market.0], |cells| cells.unsigned())? else {
            return Ok(None);
        };
        let (mut start, mut end) = (query.start, query.end);
        if let Some(id) = query.order {
            // An order trades between its acceptance and its last change.
            let order = self.by_id(reader, id)?;
            let order = order.filter(|o| o.request.account == account && o.request.market == market);
            let Some(order) = order.filter(|order| order.filled > Qty::ZERO) else { return Ok(None) };
            start = Some(start.map_or(order.created, |time| time.max(order.created)));
            end = Some(end.map_or(order.updated, |time| time.min(order.updated)));
        }
        // Any one time of a part bounds all times of the parts before and after it.
        let sql = "SELECT time FROM fills WHERE market = ?1 AND part >= ?2 ORDER BY part LIMIT 1";
        let first_part_at = |late: &dyn Fn(Timestamp) -> bool| {
            lowest_where(0, last_part, |part| {
                let time = reader.first(sql, values![market.0, part], |cells| cells.time())?;
                Ok(time.is_none_or(late))
            })
        };
        let mut low_part = 0;
        let mut high_part = last_part;
        if let Some(start) = start {
            low_part = first_part_at(&|time| time >= start)?.saturating_sub(1);
        }
        if let Some(end) = end {
            high_part = first_part_at(&|time| time > end)?.min(last_part);
        }
        let low = (low_part << TRADE_PART_BITS).max(query.from_id.map_or(0, |id| id.0));
        let high = ((high_part + 1) << TRADE_PART_BITS) - 1;
        Ok((low <= high).then_some((low, high)))
    }
}

/// A number of the API as the databases have it: numbers above the highest one are beyond everything that is stored.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The parts of the number range `low..=high`, in the order of reading.
fn parts(low: u64, high: u64, bits: u32, forward: bool) -> impl Iterator<Item = u64> {
    let (from, to) = if low <= high { (low >> bits, high >> bits) } else { (1, 0) };
    (from..=to).map(move |part| if forward { part } else { from + to - part })
}

fn read_order(cells: &mut Cells<'_>) -> Result<Order, StoreError> {
    let id = OrderId(cells.unsigned()?);
    let account = AccountId(cells.small("account")?);
    let market = MarketId(cells.small("market")?);
    let side = cells.code("side", Side::from_code)?;
    let order_type = cells.code("type", OrderType::from_code)?;
    let tif = cells.code("tif", TimeInForce::from_code)?;
    let request = NewOrder {
        account,
        market,
        side,
        order_type,
        tif,
        price: Price(cells.int()?),
        stop_price: Price(cells.int()?),
        qty: Qty(cells.int()?),
        quote_qty: Amount(cells.int()?),
        iceberg_qty: Qty(cells.int()?),
        trailing_delta: cells.small("trailing_delta")?,
        stp: cells.code("stp", StpMode::from_code)?,
        client_id: ClientId::new(&cells.text()?).unwrap_or_default(),
    };
    Ok(Order {
        id,
        request,
        status: cells.code("status", OrderStatus::from_code)?,
        working: cells.flag()?,
        filled: Qty(cells.int()?),
        filled_quote: Amount(cells.int()?),
        prevented: Qty(cells.int()?),
        list_id: cells.unsigned()?,
        created: cells.time()?,
        updated: cells.time()?,
        working_since: cells.time()?,
    })
}

fn read_fill(cells: &mut Cells<'_>) -> Result<AccountFill, StoreError> {
    Ok(AccountFill {
        trade: TradeId(cells.unsigned()?),
        order: OrderId(cells.unsigned()?),
        time: cells.time()?,
        side: if cells.flag()? { Side::Buy } else { Side::Sell },
        maker: cells.flag()?,
        price: Price(cells.int()?),
        qty: Qty(cells.int()?),
        quote: Amount(cells.int()?),
        fee: Amount(cells.int()?),
    })
}
