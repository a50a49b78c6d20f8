//! Read models: what the exchange's events say, kept in SQL for questions.
//!
//! Each read model is one consumer group of the event log with its own tables, its own thread and its own pool of read connections. What a
//! batch of messages brings about and the offsets behind it commit in **one** transaction, so a crash repeats nothing and skips nothing: at
//! start the offsets are read from the database, never from the log.
//!
//! The tables are in SQLite, a file per group, or in PostgreSQL, a schema per group; the model does not know which ([`Database`], ADR 10).
//!
//! | group | file | topics | what is in it |
//! |---|---|---|---|
//! | `account-service` | `accounts.db` | `order.lifecycle` | balances, double-entry ledger: [`Accounts`] |
//! | `order-projection` | `orders.db` | `order.projection`, `trade.completed` | orders, fills per account: [`Orders`] |
//! | `market-data-service` | `market.db` | `trade.completed` | trades, candles, seconds for tickers: [`MarketData`] |
//! | `notification-service` | `notifications.db` | `order.lifecycle`, `alert.fired` | what users are told: [`Notifications`] |
//! | `stop-trigger` | `triggers.db` | `trade.completed` | alerts, which of them have fired, the orders of those: [`Alerts`] |
//!
//! The last two also **write**: `notification-service` to `user.notification`, `stop-trigger` to `alert.fired` and orders to the engine.
//! What follows from a commit in this way is an outbox: it is done after the commit, and found in the tables again after a crash. Alerts
//! are **source data**: users make them in `stop-trigger`'s tables and they are nowhere else; these tables cannot be rebuilt.
//!
//! [`Identity`] (the file `identity.db` or the schema `identity`) is no read model: users, API keys and secrets are only there, and each
//! change is durable when the call returns.
//!
//! **Durability.** On PostgreSQL a commit is durable. On SQLite the read models run in WAL mode with `synchronous = NORMAL`: a power cut
//! may take the last transactions, but never leaves half of one, and the log brings them back. What the log may drop is told to it
//! ([`hoga_log::event_log::EventLog::commit`]) only for offsets whose transaction was synced to disk, so even then nothing is missing.
//!
//! **Architecture invariant:** nothing here is on the way of an order. A group that is slow or has stopped delays only its own answers.

// The suite is one set of files, built once for each database.
#![cfg_attr(test, allow(clippy::duplicate_mod))]

mod accounts;
mod audit;
mod cells;
mod database;
mod dead_letters;
mod error;
mod handler;
mod identity;
mod market;
mod model;
mod notifications;
mod orders;
mod place;
mod progress;
mod rebuild;
mod sql;
mod stores;
#[cfg(test)]
mod tests;
mod triggers;
mod verify;

pub use accounts::{Accounts, EntryKind, LedgerEntry, Legs};
pub use audit::{AuditReport, Difference, EngineTotals, EngineView, LedgerAudit};
pub use dead_letters::DeadLetter;
pub use error::{StoreError, Taken};
pub use identity::{ApiKey, Identity, IdentityOptions, KeyKind, User};
pub use market::{
    AggregateTrade, Aggregator, CandleQuery, MarketData, MarketResume, MarketTrade, TradeQuery,
};
pub use notifications::{
    Cause, FIRED, Fired, Kind, Listener, NOTIFICATION, NOTIFICATIONS_KEPT, Notification, NotificationQuery,
    Notifications, decode_notification,
};
pub use orders::{AccountFill, FillQuery, OrderQuery, Orders};
pub use place::Place;
pub use progress::GroupPosition;
pub use rebuild::Rebuilt;
pub use sql::{Database, PostgresConfig};
pub use stores::{SourceFactory, Stores, StoresConfig};
pub use triggers::{
    Alert, AlertState, Alerts, Answer, CommandPort, Created, MAX_ARMED, NewAlert, Unanswered, order_client_id,
};
pub use verify::TablesReport;

/// The most rows that one read returns, whatever it is asked for: Binance's largest `limit`.
pub const MAX_ROWS: usize = 1000;

/// The engine's topics.
const TRADES: &str = "trade.completed";
const LIFECYCLE: &str = "order.lifecycle";
const PROJECTION: &str = "order.projection";

/// The consumer groups of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `account-service`: balances and ledger.
    Accounts,
    /// `order-projection`: orders and fills.
    Orders,
    /// `market-data-service`: trades and candles.
    Market,
    /// `notification-service`: what users are told.
    Notifications,
    /// `stop-trigger`: alerts, and the orders that follow when they fire.
    Triggers,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 5] =
        [Group::Accounts, Group::Orders, Group::Market, Group::Notifications, Group::Triggers];

    /// The name under which the group commits offsets to the event log.
    pub fn as_str(self) -> &'static str {
        match self {
            Group::Accounts => "account-service",
            Group::Orders => "order-projection",
            Group::Market => "market-data-service",
            Group::Notifications => "notification-service",
            Group::Triggers => "stop-trigger",
        }
    }

    /// The group of a name.
    pub fn from_name(name: &str) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.as_str() == name)
    }

    /// The topics that it reads, all partitions of each; the first one is its own.
    pub fn topics(self) -> &'static [&'static str] {
        match self {
            Group::Accounts => &[LIFECYCLE],
            Group::Orders => &[PROJECTION, TRADES],
            Group::Market | Group::Triggers => &[TRADES],
            Group::Notifications => &[LIFECYCLE, FIRED],
        }
    }

    /// The first of its topics.
    pub fn topic(self) -> &'static str {
        self.topics()[0]
    }

    /// Its name among the migrations, and its SQLite file's without the ending.
    fn model(self) -> &'static str {
        match self {
            Group::Accounts => "accounts",
            Group::Orders => "orders",
            Group::Market => "market",
            Group::Notifications => "notifications",
            Group::Triggers => "triggers",
        }
    }

    /// Its SQLite file, in the stores' folder.
    pub fn file_name(self) -> String {
        format!("{}.db", self.model())
    }

    /// Its PostgreSQL schema, without the configured prefix.
    pub fn schema(self) -> String {
        self.as_str().replace('-', "_")
    }

    /// Where it is in lists by group.
    fn index(self) -> usize {
        Group::ALL.into_iter().position(|group| group == self).expect("all groups are in the list of all")
    }
}
