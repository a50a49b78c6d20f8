//! Do the read models agree with each other? Each comes from the log on its own way, so each proves the others: a lost, doubled or misplaced
//! message in one of them shows as a difference.

use std::collections::BTreeMap;
use std::fmt;

use hoga_core::ids::MarketId;

use crate::Group;
use crate::error::StoreError;
use crate::sql::values;
use crate::stores::Stores;

/// What was compared, and what does not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablesReport {
    /// Comparisons that were made.
    pub checks: u64,
    /// Those that failed, in words.
    pub differences: Vec<String>,
}

impl TablesReport {
    /// Whether everything fits.
    pub fn clean(&self) -> bool {
        self.differences.is_empty()
    }

    fn equal<T: PartialEq + fmt::Display>(&mut self, what: fmt::Arguments<'_>, one: T, other: T) {
        self.checks += 1;
        if one != other {
            self.differences.push(format!("{what}: {one} and {other}"));
        }
    }
}

/// Trades of a market: how many, the first and the last number, and how many the candles of each width count.
#[derive(Default)]
struct Market {
    trades: u64,
    first: u64,
    last: u64,
    candles: BTreeMap<i64, u64>,
    fills: u64,
}

impl Stores {
    /// Compares the tables of the groups with each other. They must be quiet and current: what is on its way between two groups would be
    /// told as a difference. Reads whole tables; for tests, and after an incident.
    ///
    /// - The trades of a market are numbered from 1 without holes, so none is missing, doubled or from elsewhere.
    /// - The candles of each width count as many trades as there are.
    /// - Each trade is a fill of two orders, and an order's filled quantity is the sum of its fills.
    /// - The ledger has an entry for each fill.
    /// - Of each fill of a user a notification was stored; old ones go, so this is a count that is kept beside them.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn verify(&self) -> Result<TablesReport, StoreError> {
        let mut report = TablesReport::default();
        let mut markets: BTreeMap<MarketId, Market> = BTreeMap::new();
        self.pool(Group::Market).read("counting trades", |reader| {
            let sql = "SELECT market, count(*), min(id), max(id) FROM trades GROUP BY market";
            for (market, trades, first, last) in reader.all(sql, &[], |cells| {
                let market = MarketId(cells.small("market")?);
                Ok((market, cells.unsigned()?, cells.unsigned()?, cells.unsigned()?))
            })? {
                markets.insert(market, Market { trades, first, last, ..Market::default() });
            }
            let sql =
                "SELECT market, seconds, CAST(sum(trades) AS BIGINT) FROM candles GROUP BY market, seconds";
            for (market, seconds, trades) in reader.all(sql, &[], |cells| {
                Ok((MarketId(cells.small("market")?), cells.int()?, cells.unsigned()?))
            })? {
                markets.entry(market).or_default().candles.insert(seconds, trades);
            }
            Ok(())
        })?;
        let (fills, users) = self.pool(Group::Orders).read("counting fills", |reader| {
            let sql = "SELECT market, count(*) FROM fills GROUP BY market";
            for (market, fills) in
                reader.all(sql, &[], |cells| Ok((MarketId(cells.small("market")?), cells.unsigned()?)))?
            {
                markets.entry(market).or_default().fills = fills;
            }
            let sql = "SELECT o.id, o.filled, CAST(coalesce(f.qty, 0) AS BIGINT) FROM orders o
                       LEFT JOIN (SELECT order_id, sum(qty) AS qty FROM fills GROUP BY order_id) f ON f.order_id = o.id
                       WHERE o.filled <> coalesce(f.qty, 0) ORDER BY o.id LIMIT ?1";
            let off = reader.all(sql, values![TOLD], |cells| Ok((cells.unsigned()?, cells.int()?, cells.int()?)))?;
            for (order, filled, qty) in off {
                report.equal(format_args!("order {order}: filled quantity, and the sum of its fills"), filled, qty);
            }
            let sql = "SELECT count(*) FROM orders";
            report.checks += reader.first(sql, &[], |cells| cells.unsigned())?.unwrap_or(0);
            let sql = "SELECT f.order_id FROM fills f LEFT JOIN orders o ON o.id = f.order_id WHERE o.id IS NULL LIMIT ?1";
            for order in reader.all(sql, values![TOLD], |cells| cells.unsigned())? {
                report.differences.push(format!("order {order} has fills and is not there"));
            }
            let fills = reader.first("SELECT count(*) FROM fills", &[], |cells| cells.unsigned())?;
            let sql = "SELECT count(*) FROM fills WHERE account <> 0";
            Ok((fills, reader.first(sql, &[], |cells| cells.unsigned())?))
        })?;
        let entries = self.pool(Group::Accounts).read("counting ledger entries", |reader| {
            reader.first("SELECT count(*) FROM ledger WHERE kind >= 2", &[], |cells| cells.unsigned())
        })?;
        let told = self.pool(Group::Notifications).read("counting notifications", |reader| {
            let sql = "SELECT CAST(coalesce(sum(fills), 0) AS BIGINT) FROM heads";
            reader.first(sql, &[], |cells| cells.unsigned())
        })?;
        report.equal(
            format_args!("fills, and notifications of fills"),
            users.unwrap_or(0),
            told.unwrap_or(0),
        );
        let (fills, entries) = (fills.unwrap_or(0), entries.unwrap_or(0));
        report.equal(format_args!("fills, and ledger entries of fills"), fills, entries);
        for (market, counted) in &markets {
            let market = market.0;
            report.equal(format_args!("market {market}: first trade, and 1"), counted.first, 1);
            report.equal(
                format_args!("market {market}: trades, and number of the last"),
                counted.trades,
                counted.last,
            );
            report.equal(
                format_args!("market {market}: fills, and twice the trades"),
                counted.fills,
                counted.trades * 2,
            );
            for (seconds, trades) in &counted.candles {
                report.equal(
                    format_args!("market {market}: trades in candles of {seconds} s, and trades"),
                    *trades,
                    counted.trades,
                );
            }
        }
        Ok(report)
    }
}

/// Differences of one kind that are told.
const TOLD: i64 = 20;
