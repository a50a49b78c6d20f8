//! Alerts: the table that users write and `stop-trigger` fires. **Source data**: they are nowhere else.

use std::sync::Arc;

use hoga_core::alert::{Condition, Rule};
use hoga_core::codec::{decode_command, encode_command};
use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId, Seq, Timestamp, TradeId};
use hoga_core::money::Price;
use hoga_core::order::NewOrder;
use hoga_log::LogError;
use hoga_log::event_log::{EventLog, partition_for};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::sql::{ReadPool, Reader, Tx, Value, WritePool, values};
use crate::{Fired, Group, MAX_ROWS, TRADES};

/// Alerts of an account that may be armed at a time.
pub const MAX_ARMED: u64 = 200;
/// Alerts of an account that are kept when they are over; older ones go.
const KEPT: u64 = 1_000;

const COLUMNS: &str = "id, version, part, account, client_id, market, condition, level, order_bytes, state, created, changed, \
    fired_price, fired_trade, fired_time, fired_place, order_client_id, order_id, refusal";

/// What has become of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AlertState {
    /// It waits for its price.
    Armed = 0,
    /// It has fired. With an order: that is to be sent.
    Fired = 1,
    /// Its order is on the way to the engine.
    Sent = 2,
    /// Its order was placed.
    Done = 3,
    /// Its order was refused.
    Failed = 4,
    /// Its owner took it back before it fired.
    Canceled = 5,
}

impl AlertState {
    const ALL: [AlertState; 6] = [
        AlertState::Armed,
        AlertState::Fired,
        AlertState::Sent,
        AlertState::Done,
        AlertState::Failed,
        AlertState::Canceled,
    ];

    /// The name as the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            AlertState::Armed => "ARMED",
            AlertState::Fired => "FIRED",
            AlertState::Sent => "SENT",
            AlertState::Done => "DONE",
            AlertState::Failed => "FAILED",
            AlertState::Canceled => "CANCELED",
        }
    }

    /// From the API's spelling.
    pub fn parse(text: &str) -> Option<AlertState> {
        AlertState::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// An alert that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewAlert {
    /// Whose.
    pub account: AccountId,
    /// The owner's name for it, unique in the account; none for none. The same one again gives the alert that is there.
    pub client_id: ClientId,
    /// The market whose trades it watches.
    pub market: MarketId,
    /// Which side of the level fires it.
    pub condition: Condition,
    /// The level.
    pub level: Price,
    /// The order that is placed when it fires. Its client id is replaced by one that derives from the alert and the trade.
    pub order: Option<NewOrder>,
}

/// An alert as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its number.
    pub id: u64,
    /// As it was asked for.
    pub request: NewAlert,
    /// What has become of it.
    pub state: AlertState,
    /// When it was made: trades before do not fire it.
    pub created: Timestamp,
    /// When it last changed.
    pub changed: Timestamp,
    /// The trade that fired it.
    pub fired: Option<Fired>,
    /// The client id of its order, once that is on the way.
    pub order_client_id: Option<ClientId>,
    /// The order that was placed.
    pub order_id: Option<OrderId>,
    /// Why the order was refused.
    pub refusal: Option<String>,
    pub(crate) version: u64,
}

/// What became of a request for an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is armed.
    New(Alert),
    /// The account has one with this client id; this is it.
    Known(Alert),
    /// The account has [`MAX_ARMED`] armed ones.
    TooMany,
}

/// The alerts' table, for those who make and read alerts. Cheap to clone; each call blocks on the disk.
#[derive(Clone)]
pub struct Alerts {
    pub(crate) pool: ReadPool,
    pub(crate) writes: WritePool,
    pub(crate) log: Arc<dyn EventLog>,
}

impl Alerts {
    /// Arms an alert. Durable when it returns: every trade after that counts.
    ///
    /// # Errors
    /// What the database says; [`StoreError::Log`] while the topic of trades is not there, which says who watches the market.
    pub fn create(&self, new: &NewAlert, now: Timestamp) -> Result<Created, StoreError> {
        let part = self.part(new.market)?;
        self.writes.write("arming an alert", |tx| {
            // First of all: whoever makes the same alert at this time waits here, and then finds it.
            let (version, id) = next(tx, 1, 1)?;
            if !new.client_id.is_none() {
                let sql = format!("SELECT {COLUMNS} FROM alerts WHERE account = ?1 AND client_id = ?2");
                let name = new.client_id.as_str();
                if let Some(known) = select(&tx.reader(), &sql, values![new.account.0, name])?.pop() {
                    return Ok(Created::Known(known));
                }
            }
            let sql = "SELECT count(*) FROM alerts WHERE account = ?1 AND state = 0";
            let armed = tx.reader().first(sql, values![new.account.0], |cells| cells.unsigned())?;
            if armed.unwrap_or(0) >= MAX_ARMED {
                return Ok(Created::TooMany);
            }
            let order = new.order.as_ref().map(order_bytes);
            let sql = "INSERT INTO alerts (id, version, part, account, client_id, market, condition, level, order_bytes, state, created,
                       changed, told, order_client_id, refusal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, ?10, 0, '', '')";
            let values = values![
                id,
                version,
                part,
                new.account.0,
                new.client_id.as_str(),
                new.market.0,
                new.condition as u8,
                new.level.0,
                order.as_deref(),
                now.0,
            ];
            tx.execute(sql, values)?;
            // What is over and told goes when there is too much of it.
            let sql = "DELETE FROM alerts WHERE account = ?1
                AND (state IN (3, 4) AND told = 1 OR state = 5 OR state = 1 AND told = 1 AND order_bytes IS NULL)
                AND id <= (SELECT id FROM alerts WHERE account = ?1 AND state <> 0 ORDER BY id DESC LIMIT 1 OFFSET ?2)";
            tx.execute(sql, values![new.account.0, KEPT])?;
            Ok(Created::New(Alert {
                id,
                request: *new,
                state: AlertState::Armed,
                created: now,
                changed: now,
                fired: None,
                order_client_id: None,
                order_id: None,
                refusal: None,
                version,
            }))
        })
    }

    /// Takes an armed alert back: from then on it never fires. `None` when the account has no such alert; an alert in another state
    /// stays as it is and comes back so.
    pub fn cancel(&self, account: AccountId, id: u64, now: Timestamp) -> Result<Option<Alert>, StoreError> {
        self.writes.write("taking an alert back", |tx| {
            let (version, _) = next(tx, 1, 0)?;
            let sql = "UPDATE alerts SET state = 5, changed = ?4, version = ?3 WHERE id = ?1 AND account = ?2 AND state = 0";
            tx.execute(sql, values![id, account.0, version, now.0])?;
            let sql = format!("SELECT {COLUMNS} FROM alerts WHERE id = ?1 AND account = ?2");
            Ok(select(&tx.reader(), &sql, values![id, account.0])?.pop())
        })
    }

    /// Alerts of an account, latest first, at most [`MAX_ROWS`].
    pub fn list(
        &self,
        account: AccountId,
        state: Option<AlertState>,
        limit: usize,
    ) -> Result<Vec<Alert>, StoreError> {
        let state = state.map_or(String::new(), |state| format!("AND state = {}", state as u8));
        let sql =
            format!("SELECT {COLUMNS} FROM alerts WHERE account = ?1 {state} ORDER BY id DESC LIMIT ?2");
        let values = values![account.0, limit.min(MAX_ROWS)];
        self.pool.read("reading alerts", |reader| select(reader, &sql, values))
    }

    /// Fired alerts of a partition whose orders are to be sent, in the order of the alerts.
    pub(super) fn unsent(&self, part: u32, limit: usize) -> Result<Vec<Alert>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM alerts WHERE part = ?1 AND state IN (1, 2) AND order_bytes IS NOT NULL ORDER BY id LIMIT ?2"
        );
        self.pool.read("reading orders to be sent", |reader| select(reader, &sql, values![part, limit]))
    }

    /// Notes what became of an alert's order, unless that is noted already.
    pub(super) fn mark_order(
        &self,
        alert: &Alert,
        state: AlertState,
        client_id: &ClientId,
        order: Option<OrderId>,
        refusal: &str,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE alerts SET state = ?2, order_client_id = ?3, order_id = ?4, refusal = ?5
                   WHERE id = ?1 AND state IN (1, 2)";
        let values = values![alert.id, state as u8, client_id.as_str(), order.map(|order| order.0), refusal];
        self.writes.write("noting an alert's order", |tx| tx.execute(sql, values)).map(|_| ())
    }

    /// The partition of a market's trades.
    fn part(&self, market: MarketId) -> Result<u32, StoreError> {
        let specs = self.log.topics();
        let partitions = specs.iter().find(|spec| spec.name == TRADES).map(|spec| spec.partitions);
        let source = LogError::NoTopic { topic: TRADES.to_owned() };
        let partitions = partitions.ok_or(StoreError::Log { group: Group::Triggers, source })?;
        Ok(partition_for(&market.0.to_le_bytes(), partitions))
    }
}

/// Alerts that changed after a version, at most `limit`, by version; with the partition of each.
pub(super) fn changed_after(
    reader: &Reader<'_>,
    version: u64,
    limit: usize,
) -> Result<Vec<(u32, Alert)>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM alerts WHERE version > ?1 ORDER BY version LIMIT ?2");
    reader.all(&sql, values![version, limit], of_row)
}

/// Armed alerts of a partition above an id, by id.
pub(super) fn armed(reader: &Reader<'_>, part: u32, id: u64, limit: usize) -> Result<Vec<Alert>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM alerts WHERE part = ?1 AND state = 0 AND id > ?2 ORDER BY id LIMIT ?3"
    );
    select(reader, &sql, values![part, id, limit])
}

/// The last version that was given.
pub(super) fn last_version(reader: &Reader<'_>) -> Result<u64, StoreError> {
    Ok(reader.first("SELECT version FROM counters", &[], |cells| cells.unsigned())?.unwrap_or(0))
}

/// Marks armed alerts as fired. One that is not armed any more stays as it is.
pub(super) fn mark_fired(tx: &mut Tx<'_>, fired: &[Fired]) -> Result<(), StoreError> {
    let (last, _) = next(tx, fired.len() as u64, 0)?;
    let sql = "UPDATE alerts SET state = 1, version = ?2, changed = ?5, fired_price = ?3, fired_trade = ?4, fired_time = ?5,
               fired_place = ?6 WHERE id = ?1 AND state = 0";
    for (at, one) in fired.iter().enumerate() {
        let version = last - fired.len() as u64 + 1 + at as u64;
        tx.execute(sql, values![one.alert, version, one.price.0, one.trade.0, one.time.0, one.offset])?;
    }
    Ok(())
}

/// Fired alerts of a partition that are not in `alert.fired` yet, in the order of the trades that fired them.
pub(super) fn untold(reader: &Reader<'_>, part: u32, limit: usize) -> Result<Vec<Alert>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM alerts WHERE part = ?1 AND state BETWEEN 1 AND 4 AND told = 0 ORDER BY fired_place, id LIMIT ?2"
    );
    select(reader, &sql, values![part, limit])
}

/// Notes that alerts are in `alert.fired`.
pub(super) fn mark_told(tx: &mut Tx<'_>, alerts: &[Alert]) -> Result<(), StoreError> {
    alerts.iter().try_for_each(|alert| {
        tx.execute("UPDATE alerts SET told = 1 WHERE id = ?1", values![alert.id]).map(|_| ())
    })
}

impl Alert {
    /// The rule of an armed alert.
    pub(super) fn rule(&self) -> Rule {
        let NewAlert { market, condition, level, .. } = self.request;
        Rule { id: self.id, market, condition, level, since: self.created }
    }
}

/// Takes the next versions and alert numbers; the last ones taken. The counters' row is locked until the transaction ends.
fn next(tx: &mut Tx<'_>, versions: u64, ids: u64) -> Result<(u64, u64), StoreError> {
    tx.execute("UPDATE counters SET version = version + ?1, id = id + ?2", values![versions, ids])?;
    let last = tx
        .reader()
        .first("SELECT version, id FROM counters", &[], |cells| Ok((cells.unsigned()?, cells.unsigned()?)))?;
    Ok(last.unwrap_or_default())
}

fn order_bytes(order: &NewOrder) -> Vec<u8> {
    // As the journal would hold it: the core's encoding of the command that is to be submitted.
    let command = Command {
        seq: Seq(0),
        time: Timestamp(0),
        rules: RULES_VERSION,
        deadline: Timestamp(0),
        body: Body::Place(*order),
    };
    let mut bytes = Vec::new();
    encode_command(&command, &mut bytes);
    bytes
}

fn select(reader: &Reader<'_>, sql: &str, values: &[Value<'_>]) -> Result<Vec<Alert>, StoreError> {
    reader.all(sql, values, |cells| of_row(cells).map(|(_, alert)| alert))
}

fn of_row(cells: &mut Cells<'_>) -> Result<(u32, Alert), StoreError> {
    let name = |text: String| ClientId::new(&text).filter(|name| !name.is_none());
    let (id, version, partition) = (cells.unsigned()?, cells.unsigned()?, cells.small("part")?);
    let (account, client_id) = (AccountId(cells.small("account")?), name(cells.text()?));
    let (market, condition) =
        (MarketId(cells.small("market")?), cells.code("condition", Condition::from_code)?);
    let level = Price(cells.int()?);
    let order = match cells.bytes()?.map(|bytes| decode_command(&bytes)) {
        None => None,
        Some(Ok(Command { body: Body::Place(order), .. })) => Some(order),
        Some(_) => return Err(cells.damaged("the order of an alert", id as i64)),
    };
    let state = cells.code("state", |code| AlertState::ALL.into_iter().find(|state| *state as u8 == code))?;
    let (created, changed) = (cells.time()?, cells.time()?);
    let [price, trade, time, place] =
        [cells.maybe_int()?, cells.maybe_int()?, cells.maybe_int()?, cells.maybe_int()?];
    let fired = match (price, trade, time, place) {
        (Some(price), Some(trade), Some(time), Some(place)) => Some(Fired {
            alert: id,
            account,
            market,
            condition,
            level,
            price: Price(price),
            trade: TradeId(trade as u64),
            time: Timestamp(time),
            partition,
            offset: place as u64,
            has_order: order.is_some(),
        }),
        _ => None,
    };
    let order_client_id = name(cells.text()?);
    let order_id = cells.maybe_int()?.map(|id| OrderId(id as u64));
    let refusal = Some(cells.text()?).filter(|text| !text.is_empty());
    let client_id = client_id.unwrap_or(ClientId::NONE);
    let request = NewAlert { account, client_id, market, condition, level, order };
    let alert =
        Alert { id, version, request, state, created, changed, fired, order_client_id, order_id, refusal };
    Ok((partition, alert))
}
