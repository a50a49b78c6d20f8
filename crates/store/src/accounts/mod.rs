//! `account-service`: balances as the events give them, and beside them a double-entry ledger made from what was traded and transferred.
//! The two come from different fields of the events, so that each proves the other.
//!
//! A ledger entry is one row with up to two assets; in each asset three postings that sum to zero (the database checks it): the account's,
//! the fee that went to account 0, and the counter side, which is the market's clearing account for a fill and the outside world for a
//! deposit or a withdrawal. The view `postings` shows them one by one. The clearing account of a market is back at zero once both sides of
//! a trade are in. Holds move nothing between owners, so they are in the balances only.
//!
//! Entries are only appended, and each names the entry before it of the same account: reading an account's entries backwards needs no
//! index, which would be written all over.

mod reads;

use std::path::Path;

use hoga_core::event::{Balance, Event, EventRecord, Fill, OrderEvent, Transfer, TransferKind};
use hoga_core::ids::{AccountId, AssetId, EXCHANGE_ACCOUNT, MarketId, Seq, Timestamp};
use hoga_core::instrument::{Instrument, Name};
use hoga_core::money::Amount;
use hoga_core::order::Side;
use rusqlite::{Connection, Transaction, params};
use rustc_hash::FxHashMap;

use crate::Group;
use crate::cells::collect;
use crate::consumer::{Applied, Model};
use crate::error::{InFile, StoreError};

pub use reads::{Accounts, LedgerEntry, Legs};

const SCHEMA: &str = "
CREATE TABLE assets (asset INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE markets (market INTEGER PRIMARY KEY, symbol TEXT NOT NULL, base INTEGER NOT NULL, quote INTEGER NOT NULL);
CREATE TABLE accounts (account INTEGER PRIMARY KEY, created INTEGER, last_entry INTEGER NOT NULL);
CREATE TABLE balances (
    account INTEGER NOT NULL, asset INTEGER NOT NULL, free INTEGER NOT NULL, locked INTEGER NOT NULL,
    PRIMARY KEY (account, asset)
) WITHOUT ROWID;
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, idx INTEGER NOT NULL, time INTEGER NOT NULL,
    account INTEGER NOT NULL, kind INTEGER NOT NULL, market INTEGER, reference INTEGER NOT NULL, previous INTEGER NOT NULL,
    asset_a INTEGER NOT NULL, account_a INTEGER NOT NULL, fees_a INTEGER NOT NULL, counter_a INTEGER NOT NULL,
    asset_b INTEGER, account_b INTEGER NOT NULL, fees_b INTEGER NOT NULL, counter_b INTEGER NOT NULL,
    CHECK (account_a + fees_a + counter_a = 0 AND account_b + fees_b + counter_b = 0)
);
CREATE VIEW postings (entry, seq, book, owner, asset, amount) AS
    SELECT id, seq, 'account', account, asset_a, account_a FROM ledger
    UNION ALL SELECT id, seq, 'fees', 0, asset_a, fees_a FROM ledger WHERE fees_a <> 0
    UNION ALL SELECT id, seq, CASE WHEN kind >= 2 THEN 'clearing' ELSE 'external' END, market, asset_a, counter_a FROM ledger
    UNION ALL SELECT id, seq, 'account', account, asset_b, account_b FROM ledger WHERE asset_b IS NOT NULL
    UNION ALL SELECT id, seq, 'fees', 0, asset_b, fees_b FROM ledger WHERE asset_b IS NOT NULL AND fees_b <> 0
    UNION ALL SELECT id, seq, 'clearing', market, asset_b, counter_b FROM ledger WHERE asset_b IS NOT NULL;";

const INSERT_ENTRY: &str =
    "INSERT INTO ledger (id, seq, idx, time, account, kind, market, reference, previous,
    asset_a, account_a, fees_a, counter_a, asset_b, account_b, fees_b, counter_b)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

const UPSERT_BALANCE: &str = "INSERT INTO balances (account, asset, free, locked) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (account, asset) DO UPDATE SET free = excluded.free, locked = excluded.locked";

const UPSERT_ACCOUNT: &str = "INSERT INTO accounts (account, created, last_entry) VALUES (?1, ?2, ?3)
    ON CONFLICT (account) DO UPDATE SET created = coalesce(created, excluded.created), last_entry = max(last_entry, excluded.last_entry)";

/// What moved the money of a ledger entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// Came from outside.
    Deposit = 0,
    /// Left.
    Withdrawal = 1,
    /// The account bought.
    Buy = 2,
    /// The account sold.
    Sell = 3,
}

impl EntryKind {
    /// The name as the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            EntryKind::Deposit => "DEPOSIT",
            EntryKind::Withdrawal => "WITHDRAWAL",
            EntryKind::Buy => "BUY",
            EntryKind::Sell => "SELL",
        }
    }

    /// From the code in the database.
    pub fn from_code(code: u8) -> Option<EntryKind> {
        [EntryKind::Deposit, EntryKind::Withdrawal, EntryKind::Buy, EntryKind::Sell]
            .get(usize::from(code))
            .copied()
    }

    /// Whether the counter side is the market's clearing account (else it is the outside world).
    pub fn is_fill(self) -> bool {
        matches!(self, EntryKind::Buy | EntryKind::Sell)
    }
}

struct Entry {
    seq: Seq,
    index: u32,
    time: Timestamp,
    account: AccountId,
    kind: EntryKind,
    market: Option<MarketId>,
    reference: u64,
    a: Legs,
    b: Option<Legs>,
}

#[derive(Clone, Copy)]
struct Assets {
    base: AssetId,
    quote: AssetId,
}

#[derive(Default)]
struct AccountTouched {
    created: Option<Timestamp>,
    last_entry: u64,
}

/// What has to be known between batches, and the batch being gathered.
#[derive(Default)]
pub(crate) struct AccountModel {
    markets: FxHashMap<MarketId, Assets>,
    /// Of each account with entries, its latest one.
    last_entry: FxHashMap<AccountId, u64>,
    /// Account 0's balances: no event gives them whole, so they are carried on.
    exchange: FxHashMap<AssetId, Balance>,
    next_entry: u64,
    new_assets: Vec<(AssetId, Name)>,
    new_markets: Vec<Instrument>,
    accounts: FxHashMap<AccountId, AccountTouched>,
    balances: FxHashMap<(AccountId, AssetId), Balance>,
    entries: Vec<Entry>,
}

impl AccountModel {
    fn apply_order(&mut self, record: &EventRecord, event: &OrderEvent) -> Result<Applied, StoreError> {
        let request = &event.order.request;
        let Some(&assets) = self.markets.get(&request.market) else {
            return Ok(Applied::NeedsMarket(request.market));
        };
        if let Some(fill) = &event.fill {
            let entry =
                fill_entry(record, event, fill, assets).ok_or_else(|| overflow(record, "a posting"))?;
            for legs in [Some(entry.a), entry.b].into_iter().flatten() {
                self.add_to_exchange(record, legs.asset, legs.fees, Amount::ZERO)?;
            }
            self.entries.push(entry);
        }
        if request.account != EXCHANGE_ACCOUNT {
            self.balances.insert((request.account, assets.base), event.base);
            self.balances.insert((request.account, assets.quote), event.quote);
        }
        Ok(Applied::Done)
    }

    fn apply_transfer(&mut self, record: &EventRecord, transfer: &Transfer) -> Result<(), StoreError> {
        if transfer.repeated {
            return Ok(());
        }
        let amount = transfer.amount;
        let minus = Amount(-amount.0);
        let kind = match transfer.kind {
            TransferKind::Deposit => Some((EntryKind::Deposit, amount)),
            TransferKind::WithdrawalSettled => Some((EntryKind::Withdrawal, minus)),
            TransferKind::WithdrawalRequested | TransferKind::WithdrawalReleased => None,
        };
        if let Some((kind, moved)) = kind {
            let a =
                Legs { asset: transfer.asset, account: moved, fees: Amount::ZERO, counter: Amount(-moved.0) };
            self.entries.push(Entry {
                seq: record.seq,
                index: record.index,
                time: record.time,
                account: transfer.account,
                kind,
                market: None,
                reference: transfer.withdrawal.0,
                a,
                b: None,
            });
        }
        if transfer.account != EXCHANGE_ACCOUNT {
            self.balances.insert((transfer.account, transfer.asset), transfer.balance);
            return Ok(());
        }
        let (free, locked) = match transfer.kind {
            TransferKind::Deposit => (amount, Amount::ZERO),
            TransferKind::WithdrawalRequested => (minus, amount),
            TransferKind::WithdrawalSettled => (Amount::ZERO, minus),
            TransferKind::WithdrawalReleased => (amount, minus),
        };
        self.add_to_exchange(record, transfer.asset, free, locked)
    }

    fn add_to_exchange(
        &mut self,
        record: &EventRecord,
        asset: AssetId,
        free: Amount,
        locked: Amount,
    ) -> Result<(), StoreError> {
        if free == Amount::ZERO && locked == Amount::ZERO {
            return Ok(());
        }
        let balance = self.exchange.entry(asset).or_default();
        let sum = balance.free.checked_add(free).zip(balance.locked.checked_add(locked));
        let (free, locked) = sum.ok_or_else(|| overflow(record, "the exchange's balance"))?;
        *balance = Balance { free, locked };
        self.balances.insert((EXCHANGE_ACCOUNT, asset), *balance);
        Ok(())
    }

    fn flush_definitions(&mut self, tx: &Transaction<'_>, path: &Path) -> Result<(), StoreError> {
        for (asset, name) in self.new_assets.drain(..) {
            tx.execute(
                "INSERT OR REPLACE INTO assets (asset, name) VALUES (?1, ?2)",
                params![asset.0, name.as_str()],
            )
            .doing(path, "storing an asset")?;
        }
        for instrument in self.new_markets.drain(..) {
            tx.execute(
                "INSERT OR REPLACE INTO markets (market, symbol, base, quote) VALUES (?1, ?2, ?3, ?4)",
                params![instrument.id.0, instrument.symbol.as_str(), instrument.base.0, instrument.quote.0],
            )
            .doing(path, "storing a market")?;
        }
        Ok(())
    }

    fn flush_entries(&mut self, tx: &Transaction<'_>, path: &Path) -> Result<(), StoreError> {
        let mut insert = tx.prepare_cached(INSERT_ENTRY).doing(path, "preparing to store ledger entries")?;
        for entry in self.entries.drain(..) {
            let id = self.next_entry;
            self.next_entry += 1;
            let previous = self.last_entry.insert(entry.account, id).unwrap_or(0);
            self.accounts.entry(entry.account).or_default().last_entry = id;
            let a = &entry.a;
            let b = entry.b.as_ref();
            insert
                .execute(params![
                    id as i64,
                    entry.seq.0 as i64,
                    entry.index,
                    entry.time.0,
                    entry.account.0,
                    entry.kind as u8,
                    entry.market.map(|market| market.0),
                    entry.reference as i64,
                    previous as i64,
                    a.asset.0,
                    a.account.0,
                    a.fees.0,
                    a.counter.0,
                    b.map(|legs| legs.asset.0),
                    b.map_or(0, |legs| legs.account.0),
                    b.map_or(0, |legs| legs.fees.0),
                    b.map_or(0, |legs| legs.counter.0),
                ])
                .doing(path, "storing a ledger entry")?;
        }
        Ok(())
    }
}

impl Model for AccountModel {
    const GROUP: Group = Group::Accounts;
    const SCHEMA: &'static str = SCHEMA;
    const SCHEMA_VERSION: i64 = 1;

    fn load(conn: &Connection, path: &Path) -> Result<AccountModel, StoreError> {
        let mut model = AccountModel::default();
        let mut statement =
            conn.prepare("SELECT market, base, quote FROM markets").doing(path, "reading the markets")?;
        let markets = collect(&mut statement, [], path, |cells| {
            let market = MarketId(cells.small("market")?);
            Ok((
                market,
                Assets { base: AssetId(cells.small("base")?), quote: AssetId(cells.small("quote")?) },
            ))
        })?;
        model.markets.extend(markets);
        let mut statement = conn
            .prepare("SELECT account, last_entry FROM accounts WHERE last_entry > 0")
            .doing(path, "reading the accounts")?;
        let last = collect(&mut statement, [], path, |cells| {
            Ok((AccountId(cells.small("account")?), cells.unsigned()?))
        })?;
        model.last_entry.extend(last);
        let mut statement = conn
            .prepare("SELECT asset, free, locked FROM balances WHERE account = 0")
            .doing(path, "reading the exchange's balances")?;
        let exchange = collect(&mut statement, [], path, |cells| {
            let asset = AssetId(cells.small("asset")?);
            Ok((asset, Balance { free: Amount(cells.int()?), locked: Amount(cells.int()?) }))
        })?;
        model.exchange.extend(exchange);
        let last: i64 = conn
            .query_row("SELECT coalesce(max(id), 0) FROM ledger", [], |row| row.get(0))
            .doing(path, "reading the last ledger entry")?;
        model.next_entry = last as u64 + 1;
        Ok(model)
    }

    fn apply(&mut self, record: &EventRecord) -> Result<Applied, StoreError> {
        match &record.event {
            Event::Order(event) => return self.apply_order(record, event),
            Event::Transfer(transfer) => self.apply_transfer(record, transfer)?,
            Event::AccountCreated { account } => {
                self.accounts.entry(*account).or_default().created = Some(record.time);
            }
            Event::AssetAdded { id, name } => self.new_assets.push((*id, *name)),
            Event::InstrumentSet(instrument) => {
                let assets = Assets { base: instrument.base, quote: instrument.quote };
                self.markets.insert(instrument.id, assets);
                self.new_markets.push(*instrument);
            }
            Event::StateSet { .. } | Event::Rejected(_) => {}
            Event::Trade(_) | Event::Level(_) => return Ok(Applied::Unusable("not an event of accounts")),
        }
        Ok(Applied::Done)
    }

    fn flush(&mut self, tx: &Transaction<'_>, path: &Path) -> Result<(), StoreError> {
        self.flush_definitions(tx, path)?;
        self.flush_entries(tx, path)?;
        let mut accounts: Vec<_> = self.accounts.drain().collect();
        accounts.sort_unstable_by_key(|(account, _)| *account);
        let mut upsert = tx.prepare_cached(UPSERT_ACCOUNT).doing(path, "preparing to store accounts")?;
        for (account, touched) in accounts {
            let created = touched.created.map(|time| time.0);
            upsert
                .execute(params![account.0, created, touched.last_entry as i64])
                .doing(path, "storing an account")?;
        }
        let mut balances: Vec<_> = self.balances.drain().collect();
        balances.sort_unstable_by_key(|(key, _)| *key);
        let mut upsert = tx.prepare_cached(UPSERT_BALANCE).doing(path, "preparing to store balances")?;
        for ((account, asset), balance) in balances {
            upsert
                .execute(params![account.0, asset.0, balance.free.0, balance.locked.0])
                .doing(path, "storing a balance")?;
        }
        Ok(())
    }
}

fn overflow(record: &EventRecord, what: &'static str) -> StoreError {
    StoreError::Overflow { group: Group::Accounts, what, seq: record.seq }
}

/// The entry of one side of a trade: what the account gives and gets, the fee, and the market's clearing account between them.
fn fill_entry(record: &EventRecord, event: &OrderEvent, fill: &Fill, assets: Assets) -> Option<Entry> {
    let request = &event.order.request;
    let (kind, base, quote) = match request.side {
        Side::Buy => (EntryKind::Buy, fill.qty.0, fill.quote.0.checked_neg()?),
        Side::Sell => (EntryKind::Sell, fill.qty.0.checked_neg()?, fill.quote.0),
    };
    let legs = |asset: AssetId, gross: i64| {
        let fees = if fill.fee_asset == asset { fill.fee } else { Amount::ZERO };
        let account = Amount(gross).checked_sub(fees)?;
        Some(Legs { asset, account, fees, counter: Amount(gross.checked_neg()?) })
    };
    Some(Entry {
        seq: record.seq,
        index: record.index,
        time: record.time,
        account: request.account,
        kind,
        market: Some(request.market),
        reference: fill.trade.0,
        a: legs(assets.base, base)?,
        b: Some(legs(assets.quote, quote)?),
    })
}
