//! `notification-service`: what happened to an account, each thing stored once and then told to whoever listens.
//!
//! A notification is one row. Its number grows along those of an account: the rows of a partition are numbered by the database, under the
//! lock of the partition's head, so that two members may store in one partition (`order.lifecycle` and `alert.fired` are assigned apart).
//! The owner of `order.lifecycle` appends what is stored to the same partition of `user.notification`; after a crash it goes on behind the
//! last number that is there. A message may come there twice: readers drop numbers that they have seen.

mod message;
mod reads;
pub(crate) mod tail;

use hoga_core::event::EventRecord;
use hoga_core::ids::{AccountId, Timestamp};
use hoga_log::LogError;
use hoga_log::event_log::{EventLog, Message};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::StoreError;
use crate::model::{Applied, Delivery, Model, Outside, Owned};
use crate::sql::{self, Reader, Rows, Table, Tx, Writer, values};
use crate::{Group, LIFECYCLE};

pub use message::{Cause, FIRED, Fired, Kind, NOTIFICATION, Notification, decode_notification};
pub(crate) use message::{decode_fired, encode_fired};
pub use reads::{NotificationQuery, Notifications};
pub use tail::Listener;

use message::{derive, encode, encode_cause};

/// Notifications of an account that are kept; older ones go.
pub const NOTIFICATIONS_KEPT: u64 = 10_000;
/// The older ones go when so many are too many: a deletion for each new one would double the writes.
const SLACK: u64 = 500;
/// Messages of the outbox in one append.
const OUTBOX: usize = 1024;
/// The low bits of a notification's number are its partition (a topic has at most 1024).
const PARTITION_BITS: u32 = 10;

static NOTIFICATIONS: Table = Table {
    name: "notifications",
    columns: &[
        ("part", sql::Kind::Int),
        ("id", sql::Kind::Int),
        ("account", sql::Kind::Int),
        ("kind", sql::Kind::Int),
        ("time", sql::Kind::Int),
        ("alert", sql::Kind::MaybeInt),
        ("cause", sql::Kind::MaybeBytes),
    ],
    conflict: "",
};

/// What is known of a partition of which this member tells.
#[derive(Clone, Copy, Default)]
struct Part {
    /// The last number that was given (without the partition's bits).
    head: u64,
    /// The last number that is in `user.notification`; unknown at the start and after a failed append.
    told: Option<u64>,
}

/// A notification that has no number yet.
struct Gathered {
    part: u32,
    account: AccountId,
    kind: Kind,
    time: Timestamp,
    alert: Option<u64>,
    cause: Vec<u8>,
}

/// What has to be known between batches, and the batch being gathered.
pub(crate) struct NotificationModel {
    /// Of the owned partitions of `order.lifecycle`.
    parts: FxHashMap<u32, Part>,
    gathered: Vec<Gathered>,
    rows: Rows,
    /// Notifications of an account since it was last looked whether it has too many. An account that is not here was not seen since the
    /// start. Bounded by the accounts, 12 bytes each.
    since_pruned: FxHashMap<AccountId, u64>,
    outside: Option<Outside>,
}

impl Default for NotificationModel {
    fn default() -> NotificationModel {
        NotificationModel {
            parts: FxHashMap::default(),
            gathered: Vec::new(),
            rows: Rows::new(&NOTIFICATIONS),
            since_pruned: FxHashMap::default(),
            outside: None,
        }
    }
}

impl NotificationModel {
    fn gather(
        &mut self,
        from: Delivery,
        account: AccountId,
        kind: Kind,
        time: Timestamp,
        alert: Option<u64>,
        cause: &Cause,
    ) {
        let mut bytes = Vec::with_capacity(320);
        encode_cause(cause, &mut bytes);
        let part = from.of.partition;
        self.gathered.push(Gathered { part, account, kind, time, alert, cause: bytes });
    }

    /// Removes an account's oldest notifications when it may have too many, but none that the outbox still needs.
    fn prune(&mut self, tx: &mut Tx<'_>, account: AccountId, part: u32) -> Result<(), StoreError> {
        let count = self.since_pruned.entry(account).or_insert(SLACK);
        *count += 1;
        if *count < SLACK {
            return Ok(());
        }
        *count = 0;
        let before = match self.outside {
            Some(_) => (self.parts.get(&part).and_then(|part| part.told).unwrap_or(0) + 1) << PARTITION_BITS,
            // Tables that are built anew: all was told.
            None => i64::MAX as u64,
        };
        let sql = "DELETE FROM notifications WHERE account = ?1
                   AND id <= (SELECT id FROM notifications WHERE account = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)
                   AND id < ?3";
        tx.execute(sql, values![account.0, NOTIFICATIONS_KEPT, before]).map(|_| ())
    }
}

impl Model for NotificationModel {
    const GROUP: Group = Group::Notifications;
    /// What was told is not told again under another number.
    const DURABLE: bool = true;

    fn connect(&mut self, outside: &Outside) {
        self.outside = Some(outside.clone());
    }

    fn load(&mut self, reader: &Reader<'_>, owned: &[Owned]) -> Result<(), StoreError> {
        for of in owned.iter().filter(|of| of.topic == LIFECYCLE) {
            self.parts.insert(of.partition, Part { head: head(reader, of.partition)?, told: None });
        }
        Ok(())
    }

    fn forget(&mut self, lost: &[Owned]) {
        for of in lost.iter().filter(|of| of.topic == LIFECYCLE) {
            self.parts.remove(&of.partition);
        }
    }

    /// What another member has stored of alerts is told here.
    fn prepare(&mut self, reader: &Reader<'_>) -> Result<(), StoreError> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let heads = reader.all("SELECT part, id FROM heads", &[], |cells| {
            Ok((cells.small::<u32>("part")?, cells.unsigned()?))
        })?;
        for (part, head) in heads {
            if let Some(part) = self.parts.get_mut(&part) {
                part.head = head;
            }
        }
        Ok(())
    }

    fn apply(&mut self, from: Delivery, record: &EventRecord) -> Result<Applied, StoreError> {
        if let Some((account, kind)) = derive(record) {
            self.gather(from, account, kind, record.time, None, &Cause::Event(*record));
        }
        Ok(Applied::Done)
    }

    fn alert(&mut self, from: Delivery, fired: &Fired) -> Result<Applied, StoreError> {
        let cause = Cause::Alert(*fired);
        self.gather(from, fired.account, Kind::Alert, fired.time, Some(fired.alert), &cause);
        Ok(Applied::Done)
    }

    fn flush(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let mut gathered = std::mem::take(&mut self.gathered);
        // An alert's message may come twice.
        let mut alerts = FxHashSet::default();
        let mut there = Ok(());
        gathered.retain(|one| match one.alert {
            None => true,
            Some(alert) => {
                let known = is_known(&tx.reader(), alert);
                let new = matches!(known, Ok(false)) && alerts.insert(alert);
                if let Err(error) = known {
                    there = Err(error);
                }
                new
            }
        });
        there?;
        // By partition, so that two members take the locks of the heads in one order.
        gathered.sort_by_key(|one| one.part);
        for of_part in gathered.chunk_by(|one, next| one.part == next.part) {
            let (part, count) = (of_part[0].part, of_part.len() as u64);
            let fills = of_part.iter().filter(|one| one.kind == Kind::Fill).count();
            raise(tx, part, count, fills as u64)?;
            let head = head(&tx.reader(), part)?;
            for (at, one) in of_part.iter().enumerate() {
                let number = head - count + 1 + at as u64;
                let id = (number << PARTITION_BITS) | u64::from(part);
                self.rows.ints([
                    i64::from(part),
                    id as i64,
                    i64::from(one.account.0),
                    one.kind as i64,
                    one.time.0,
                ]);
                self.rows.maybe_int(one.alert.map(|id| id as i64)).bytes(Some(&one.cause));
            }
            if let Some(part) = self.parts.get_mut(&part) {
                part.head = head;
            }
        }
        tx.write(&self.rows)?;
        self.rows.clear();
        for one in &gathered {
            self.prune(tx, one.account, one.part)?;
        }
        Ok(())
    }

    /// Appends what is stored and not yet in `user.notification`.
    fn follow_up(&mut self, writer: &mut Writer) -> Result<(), StoreError> {
        let Some(outside) = &self.outside else { return Ok(()) };
        for (number, part) in &mut self.parts {
            let mut told = match part.told {
                Some(told) => told,
                // More than there is in tables that are built anew: the same things get the same numbers, and are not told again.
                None => last_told(&*outside.log, *number)?,
            };
            while told < part.head {
                // Not known again before the append has succeeded.
                part.told = None;
                let from = (told + 1) << PARTITION_BITS;
                let next = reads::from(&writer.reader(), *number, from, OUTBOX)?;
                let Some(last) = next.last() else {
                    // Pruned, or never given out: nothing above `told` is in the table.
                    told = part.head;
                    break;
                };
                let last = last.id >> PARTITION_BITS;
                append(&*outside.log, &next)?;
                told = last;
            }
            part.told = Some(told);
        }
        Ok(())
    }
}

/// Gives out numbers of a partition: the head's row is locked until the transaction ends.
fn raise(tx: &mut Tx<'_>, part: u32, count: u64, fills: u64) -> Result<(), StoreError> {
    let sql = "INSERT INTO heads (part, id, fills) VALUES (?1, 0, 0) ON CONFLICT (part) DO NOTHING";
    tx.execute(sql, values![part])?;
    let sql = "UPDATE heads SET id = id + ?2, fills = fills + ?3 WHERE part = ?1";
    tx.execute(sql, values![part, count, fills]).map(|_| ())
}

fn head(reader: &Reader<'_>, part: u32) -> Result<u64, StoreError> {
    let head =
        reader.first("SELECT id FROM heads WHERE part = ?1", values![part], |cells| cells.unsigned())?;
    Ok(head.unwrap_or(0))
}

fn is_known(reader: &Reader<'_>, alert: u64) -> Result<bool, StoreError> {
    let sql = "SELECT id FROM notifications WHERE alert = ?1";
    Ok(reader.first(sql, values![alert], |cells| cells.unsigned())?.is_some())
}

fn log_fault(source: LogError) -> StoreError {
    StoreError::Log { group: Group::Notifications, source }
}

/// The last number of a partition of `user.notification`.
fn last_told(log: &dyn EventLog, part: u32) -> Result<u64, StoreError> {
    let tail = log.tail(NOTIFICATION, part).map_err(log_fault)?;
    let last = tail.and_then(|message| message.value).and_then(|value| decode_notification(&value));
    Ok(last.map_or(0, |notification| notification.id >> PARTITION_BITS))
}

fn append(log: &dyn EventLog, notifications: &[Notification]) -> Result<(), StoreError> {
    let mut bytes = Vec::with_capacity(notifications.len() * 340);
    let mut marks = Vec::with_capacity(notifications.len());
    for notification in notifications {
        let from = bytes.len();
        encode(notification, &mut bytes);
        marks.push((notification.account.0.to_le_bytes(), from..bytes.len(), notification.time));
    }
    let messages: Vec<Message<'_>> = marks
        .iter()
        .map(|(key, range, time)| Message { key, value: Some(&bytes[range.clone()]), time: *time })
        .collect();
    log.append(NOTIFICATION, &messages).map_err(log_fault)
}
