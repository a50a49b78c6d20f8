//! Questions to the notifications.

use hoga_core::ids::AccountId;

use super::message::{Kind, Notification, decode_cause};
use crate::MAX_ROWS;
use crate::cells::Cells;
use crate::error::StoreError;
use crate::sql::{ReadPool, Reader, values};

/// What is read of the notifications.
#[derive(Clone, Copy, Debug)]
pub struct NotificationQuery {
    /// Whose.
    pub account: AccountId,
    /// Only this kind.
    pub kind: Option<Kind>,
    /// Only those with a higher number, the lowest ones first; without it the latest ones.
    pub after: Option<u64>,
    /// At most so many, and at most [`MAX_ROWS`].
    pub limit: usize,
}

/// Notifications, as far as `notification-service` has come. Cheap to clone; each call blocks on the disk.
#[derive(Clone)]
pub struct Notifications {
    pub(crate) pool: ReadPool,
}

impl Notifications {
    /// Stored notifications; latest first, or ascending behind [`NotificationQuery::after`].
    pub fn list(&self, query: &NotificationQuery) -> Result<Vec<Notification>, StoreError> {
        let order = if query.after.is_some() { "ASC" } else { "DESC" };
        let kind = query.kind.map_or(String::new(), |kind| format!("AND kind = {}", kind as u8));
        let sql = format!(
            "SELECT id, account, kind, time, cause FROM notifications WHERE account = ?1 AND id > ?2 {kind} ORDER BY id {order} LIMIT ?3"
        );
        let values = values![query.account.0, query.after.unwrap_or(0), query.limit.min(MAX_ROWS)];
        self.pool.read("reading notifications", |reader| reader.all(&sql, values, of_row))
    }
}

/// Notifications of a partition from a number on, ascending.
pub(super) fn from(
    reader: &Reader<'_>,
    part: u32,
    id: u64,
    limit: usize,
) -> Result<Vec<Notification>, StoreError> {
    let sql = "SELECT id, account, kind, time, cause FROM notifications WHERE part = ?1 AND id >= ?2 ORDER BY id LIMIT ?3";
    reader.all(sql, values![part, id, limit], of_row)
}

fn of_row(cells: &mut Cells<'_>) -> Result<Notification, StoreError> {
    let (id, account) = (cells.unsigned()?, AccountId(cells.small("account")?));
    let (kind, time) = (cells.code("kind", Kind::from_code)?, cells.time()?);
    let cause = cells.bytes()?.as_deref().and_then(decode_cause);
    let cause = cause.ok_or_else(|| cells.damaged("the cause of a notification", id as i64))?;
    Ok(Notification { id, account, kind, time, cause })
}
