//! Read models: what the exchange's events say, kept in SQL for questions.
//!
//! Each read model is one consumer group of the event log with its own database file, its own thread and its own pool of read-only
//! connections. What a batch of messages brings about and the offsets behind it commit in **one** transaction, so a crash repeats nothing
//! and skips nothing: at start the offsets are read from the database, never from the log.
//!
//! | group | file | topic | what is in it |
//! |---|---|---|---|
//! | `account-service` | `accounts.db` | `order.lifecycle` | balances, double-entry ledger: [`Accounts`] |
//! | `order-projection` | `orders.db` | `order.projection` | orders, fills per account: [`Orders`] |
//! | `market-data-service` | `market.db` | `trade.completed` | trades, candles, seconds for tickers: [`MarketData`] |
//!
//! `identity.db` ([`Identity`]) is no read model: users, API keys and secrets are only there, and each change is durable when the call
//! returns.
//!
//! **Durability.** The read models run SQLite in WAL mode with `synchronous = NORMAL`: a power cut may take the last transactions, but
//! never leaves half of one, and the log brings them back. What the log may drop is told to it ([`hoga_log::event_log::EventLog::commit`])
//! only for offsets whose transaction was synced to disk, so even then nothing is missing.
//!
//! **Architecture invariant:** nothing here is on the way of an order. A group that is slow or has stopped delays only its own answers.

mod accounts;
mod audit;
mod cells;
mod consumer;
mod database;
mod dead_letters;
mod error;
mod identity;
mod market;
mod orders;
mod place;
mod progress;
mod stores;
#[cfg(test)]
mod tests;

pub use accounts::{Accounts, EntryKind, LedgerEntry, Legs};
pub use audit::{AuditReport, Difference, EngineTotals, EngineView, LedgerAudit};
pub use dead_letters::DeadLetter;
pub use error::{StoreError, Taken};
pub use identity::{ApiKey, Identity, KeyKind, User};
pub use market::{
    AggregateTrade, Aggregator, CandleQuery, MarketData, MarketResume, MarketTrade, TradeQuery,
};
pub use orders::{AccountFill, FillQuery, OrderQuery, Orders};
pub use place::Place;
pub use progress::GroupPosition;
pub use stores::{Stores, StoresConfig};

/// The most rows that one read returns, whatever it is asked for: Binance's largest `limit`.
pub const MAX_ROWS: usize = 1000;

/// The consumer groups of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `account-service`: balances and ledger.
    Accounts,
    /// `order-projection`: orders and fills.
    Orders,
    /// `market-data-service`: trades and candles.
    Market,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 3] = [Group::Accounts, Group::Orders, Group::Market];

    /// The name under which the group commits offsets to the event log.
    pub fn as_str(self) -> &'static str {
        match self {
            Group::Accounts => "account-service",
            Group::Orders => "order-projection",
            Group::Market => "market-data-service",
        }
    }

    /// The topic that it reads, all partitions of it.
    pub fn topic(self) -> &'static str {
        match self {
            Group::Accounts => "order.lifecycle",
            Group::Orders => "order.projection",
            Group::Market => "trade.completed",
        }
    }

    /// Its database, in the stores' folder.
    pub fn file_name(self) -> &'static str {
        match self {
            Group::Accounts => "accounts.db",
            Group::Orders => "orders.db",
            Group::Market => "market.db",
        }
    }
}
