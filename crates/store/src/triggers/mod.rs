//! `stop-trigger`: evaluates the armed alerts against the trades of the markets in its partitions. What fires is marked in the same
//! transaction as the places behind it, by an update that only an armed alert passes: a message that comes again fires nothing.
//!
//! Trades that are evaluated again after a crash meet the same alerts, and one that was made since then does not count them, since they are
//! older than it.

mod alerts;
mod sender;

use std::collections::BTreeSet;
use std::time::Duration;

use hoga_core::alert::{AlertIndex, Rule};
use hoga_core::event::{Event, EventRecord};
use hoga_core::ids::{EXCHANGE_ACCOUNT, Timestamp};
use hoga_log::event_log::Message;

use crate::Group;
use crate::error::StoreError;
use crate::model::{Applied, Delivery, Model, Outside, Owned};
use crate::notifications::{FIRED, Fired, encode_fired};
use crate::sql::{Reader, Tx, Writer};

pub use alerts::{Alert, AlertState, Alerts, Created, MAX_ARMED, NewAlert};
pub use sender::{Answer, CommandPort, Unanswered, order_client_id};
pub(crate) use sender::{Sender, Sending};

/// Rows of one read.
const PAGE: usize = 500;

/// What has to be known between batches, and the batch being gathered.
#[derive(Default)]
pub(crate) struct TriggerModel {
    /// The armed alerts of the owned partitions.
    index: AlertIndex,
    /// Alerts up to this version are in the index.
    version: u64,
    /// The owned partitions.
    parts: BTreeSet<u32>,
    fired: Vec<Fired>,
    rules: Vec<Rule>,
    /// Whether the outbox may have something that is not told.
    untold: bool,
    outside: Option<Outside>,
}

impl Model for TriggerModel {
    const GROUP: Group = Group::Triggers;
    /// An order that was sent cannot be taken back.
    const DURABLE: bool = true;
    /// Alerts are wanted at once, and mostly nothing is written.
    const LINGER: Option<Duration> = Some(Duration::from_millis(10));

    fn connect(&mut self, outside: &Outside) {
        self.outside = Some(outside.clone());
    }

    fn load(&mut self, reader: &Reader<'_>, owned: &[Owned]) -> Result<(), StoreError> {
        if self.parts.is_empty() {
            // Before the alerts: what changes meanwhile is learned once more.
            self.version = alerts::last_version(reader)?;
        }
        for of in owned {
            let mut last = 0;
            loop {
                let page = alerts::armed(reader, of.partition, last, PAGE)?;
                let Some(end) = page.last() else { break };
                last = end.id;
                page.iter().for_each(|alert| self.index.insert(alert.rule()));
            }
            self.parts.insert(of.partition);
        }
        self.untold = true;
        if let Some(outside) = &self.outside {
            outside.sending.own(&self.parts);
        }
        Ok(())
    }

    /// The rules of a partition that is lost stay in the index until all are: they fire nothing, since no trade of their markets comes.
    fn forget(&mut self, lost: &[Owned]) {
        for of in lost {
            self.parts.remove(&of.partition);
        }
        if self.parts.is_empty() {
            self.index = AlertIndex::default();
        }
        if let Some(outside) = &self.outside {
            outside.sending.own(&self.parts);
        }
    }

    /// Learns what changed since the last time. The messages were read before: an alert whose answer came before a trade was made is in
    /// the table by now.
    fn prepare(&mut self, reader: &Reader<'_>) -> Result<(), StoreError> {
        loop {
            let newest = alerts::last_version(reader)?;
            if newest == self.version {
                return Ok(());
            }
            let page = alerts::changed_after(reader, self.version, PAGE)?;
            // A version without a row: nothing came of it, or the row changed again.
            self.version = page.last().map_or(newest, |(_, last)| last.version);
            for (part, alert) in &page {
                if alert.state == AlertState::Armed && self.parts.contains(part) {
                    self.index.insert(alert.rule());
                } else {
                    self.index.remove(alert.id);
                }
            }
        }
    }

    fn apply(&mut self, from: Delivery, record: &EventRecord) -> Result<Applied, StoreError> {
        let Event::Trade(trade) = &record.event else {
            return Ok(Applied::Unusable("only trades fire alerts"));
        };
        self.rules.clear();
        self.index.fire(trade.market, trade.price, record.time, &mut self.rules);
        self.fired.extend(self.rules.iter().map(|rule| Fired {
            alert: rule.id,
            account: EXCHANGE_ACCOUNT, // the table knows whose it is
            market: rule.market,
            condition: rule.condition,
            level: rule.level,
            price: trade.price,
            trade: trade.id,
            time: record.time,
            partition: from.of.partition,
            offset: from.offset,
            has_order: false,
        }));
        Ok(Applied::Done)
    }

    fn flush(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        if !self.fired.is_empty() {
            alerts::mark_fired(tx, &self.fired)?;
            self.fired.clear();
            self.untold = true;
        }
        Ok(())
    }

    /// Appends what fired to `alert.fired`. After a crash in between it may be there twice: its reader knows alerts by their number.
    fn follow_up(&mut self, writer: &mut Writer) -> Result<(), StoreError> {
        let Some(outside) = self.outside.as_ref().filter(|_| self.untold) else { return Ok(()) };
        for part in &self.parts {
            loop {
                let page = alerts::untold(&writer.reader(), *part, PAGE)?;
                if page.is_empty() {
                    break;
                }
                if page.iter().any(|alert| alert.request.order.is_some()) {
                    outside.sending.ring();
                }
                let encoded: Vec<([u8; 4], Vec<u8>, Timestamp)> = page
                    .iter()
                    .filter_map(|alert| {
                        let fired = alert.fired.as_ref()?;
                        let mut bytes = Vec::new();
                        encode_fired(fired, &mut bytes);
                        Some((fired.account.0.to_le_bytes(), bytes, fired.time))
                    })
                    .collect();
                let messages: Vec<Message<'_>> = encoded
                    .iter()
                    .map(|(key, value, time)| Message { key, value: Some(value), time: *time })
                    .collect();
                let log = |source| StoreError::Log { group: Group::Triggers, source };
                outside.log.append(FIRED, &messages).map_err(log)?;
                // Seen by readers and safe before it is noted as told.
                outside.log.sync().map_err(log)?;
                let mut tx = writer.begin()?;
                alerts::mark_told(&mut tx, &page)?;
                tx.commit()?;
            }
        }
        self.untold = false;
        Ok(())
    }
}
