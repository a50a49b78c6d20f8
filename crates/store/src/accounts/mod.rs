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
//!
//! All messages of an account are in one partition, so entries are numbered per partition, and members of the group that own different
//! partitions never meet in a row. Only account 0 gets something from all of them, the fees: what it got is kept per partition and summed
//! when it is read.

mod reads;

use hoga_core::event::{Balance, Event, EventRecord, Fill, OrderEvent, Transfer, TransferKind};
use hoga_core::ids::{AccountId, AssetId, EXCHANGE_ACCOUNT, MarketId, Seq, Timestamp};
use hoga_core::instrument::{Instrument, Name};
use hoga_core::money::Amount;
use hoga_core::order::Side;
use rustc_hash::FxHashMap;

use crate::Group;
use crate::error::StoreError;
use crate::model::{Applied, Delivery, Model, Owned};
use crate::sql::{Kind, Reader, Rows, Table, Tx, values};

pub use reads::{Accounts, LedgerEntry, Legs};

static ASSETS: Table = Table {
    name: "assets",
    columns: &[("asset", Kind::Int), ("name", Kind::Text)],
    conflict: "ON CONFLICT (asset) DO UPDATE SET name = excluded.name",
};

static MARKETS: Table = Table {
    name: "markets",
    columns: &[("market", Kind::Int), ("symbol", Kind::Text), ("base", Kind::Int), ("quote", Kind::Int)],
    conflict: "ON CONFLICT (market) DO UPDATE SET symbol = excluded.symbol, base = excluded.base, quote = excluded.quote",
};

static ACCOUNTS: Table = Table {
    name: "accounts",
    columns: &[
        ("account", Kind::Int),
        ("partition", Kind::Int),
        ("created", Kind::MaybeInt),
        ("last_entry", Kind::Int),
    ],
    conflict: "ON CONFLICT (account) DO UPDATE SET created = coalesce(accounts.created, excluded.created),
        last_entry = CASE WHEN excluded.last_entry > accounts.last_entry THEN excluded.last_entry ELSE accounts.last_entry END",
};

static BALANCES: Table = Table {
    name: "balances",
    columns: &[("account", Kind::Int), ("asset", Kind::Int), ("free", Kind::Int), ("locked", Kind::Int)],
    conflict: "ON CONFLICT (account, asset) DO UPDATE SET free = excluded.free, locked = excluded.locked",
};

static EXCHANGE_BALANCES: Table = Table {
    name: "exchange_balances",
    columns: &[("partition", Kind::Int), ("asset", Kind::Int), ("free", Kind::Int), ("locked", Kind::Int)],
    conflict: "ON CONFLICT (partition, asset) DO UPDATE SET free = excluded.free, locked = excluded.locked",
};

static LEDGER: Table = Table {
    name: "ledger",
    columns: &[
        ("partition", Kind::Int),
        ("id", Kind::Int),
        ("seq", Kind::Int),
        ("idx", Kind::Int),
        ("time", Kind::Int),
        ("account", Kind::Int),
        ("kind", Kind::Int),
        ("market", Kind::MaybeInt),
        ("reference", Kind::Int),
        ("previous", Kind::Int),
        ("asset_a", Kind::Int),
        ("account_a", Kind::Int),
        ("fees_a", Kind::Int),
        ("counter_a", Kind::Int),
        ("asset_b", Kind::MaybeInt),
        ("account_b", Kind::Int),
        ("fees_b", Kind::Int),
        ("counter_b", Kind::Int),
    ],
    conflict: "",
};

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

struct AccountTouched {
    partition: u32,
    created: Option<Timestamp>,
    last_entry: u64,
}

/// One partition between batches.
#[derive(Default)]
struct Part {
    /// Of each account with entries, its latest one.
    last_entry: FxHashMap<AccountId, u64>,
    /// What account 0 got from this partition: no event gives its balances whole, so they are carried on.
    exchange: FxHashMap<AssetId, Balance>,
    /// The number of the last entry.
    entries: u64,
}

/// What has to be known between batches, and the batch being gathered.
pub(crate) struct AccountModel {
    /// Of all partitions: they are defined in that of account 0.
    markets: FxHashMap<MarketId, Assets>,
    parts: FxHashMap<u32, Part>,
    new_assets: FxHashMap<AssetId, Name>,
    new_markets: FxHashMap<MarketId, Instrument>,
    accounts: FxHashMap<AccountId, AccountTouched>,
    balances: FxHashMap<(AccountId, AssetId), Balance>,
    exchange: FxHashMap<(u32, AssetId), Balance>,
    ledger: Rows,
}

impl Default for AccountModel {
    fn default() -> AccountModel {
        AccountModel {
            markets: FxHashMap::default(),
            parts: FxHashMap::default(),
            new_assets: FxHashMap::default(),
            new_markets: FxHashMap::default(),
            accounts: FxHashMap::default(),
            balances: FxHashMap::default(),
            exchange: FxHashMap::default(),
            ledger: Rows::new(&LEDGER),
        }
    }
}

impl AccountModel {
    fn apply_order(
        &mut self,
        partition: u32,
        record: &EventRecord,
        event: &OrderEvent,
    ) -> Result<Applied, StoreError> {
        let request = &event.order.request;
        let Some(&assets) = self.markets.get(&request.market) else {
            return Ok(Applied::NeedsMarket(request.market));
        };
        if let Some(fill) = &event.fill {
            let entry =
                fill_entry(record, event, fill, assets).ok_or_else(|| overflow(record, "a posting"))?;
            for legs in [Some(entry.a), entry.b].into_iter().flatten() {
                self.add_to_exchange(partition, record, legs.asset, legs.fees, Amount::ZERO)?;
            }
            self.enter(partition, &entry);
        }
        if request.account != EXCHANGE_ACCOUNT {
            self.balances.insert((request.account, assets.base), event.base);
            self.balances.insert((request.account, assets.quote), event.quote);
        }
        Ok(Applied::Done)
    }

    fn apply_transfer(
        &mut self,
        partition: u32,
        record: &EventRecord,
        transfer: &Transfer,
    ) -> Result<(), StoreError> {
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
            let entry = Entry {
                seq: record.seq,
                index: record.index,
                time: record.time,
                account: transfer.account,
                kind,
                market: None,
                reference: transfer.withdrawal.0,
                a,
                b: None,
            };
            self.enter(partition, &entry);
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
        self.add_to_exchange(partition, record, transfer.asset, free, locked)
    }

    fn add_to_exchange(
        &mut self,
        partition: u32,
        record: &EventRecord,
        asset: AssetId,
        free: Amount,
        locked: Amount,
    ) -> Result<(), StoreError> {
        if free == Amount::ZERO && locked == Amount::ZERO {
            return Ok(());
        }
        let balance = self.parts.entry(partition).or_default().exchange.entry(asset).or_default();
        let sum = balance.free.checked_add(free).zip(balance.locked.checked_add(locked));
        let (free, locked) = sum.ok_or_else(|| overflow(record, "the exchange's balance"))?;
        *balance = Balance { free, locked };
        self.exchange.insert((partition, asset), *balance);
        Ok(())
    }

    fn touch(&mut self, partition: u32, account: AccountId) -> &mut AccountTouched {
        let new = AccountTouched { partition, created: None, last_entry: 0 };
        self.accounts.entry(account).or_insert(new)
    }

    /// Numbers an entry and gathers it.
    fn enter(&mut self, partition: u32, entry: &Entry) {
        let part = self.parts.entry(partition).or_default();
        part.entries += 1;
        let id = part.entries;
        let previous = part.last_entry.insert(entry.account, id).unwrap_or(0);
        self.touch(partition, entry.account).last_entry = id;
        let (a, b) = (&entry.a, entry.b.as_ref());
        self.ledger
            .ints([i64::from(partition), id as i64, entry.seq.0 as i64, i64::from(entry.index), entry.time.0])
            .ints([i64::from(entry.account.0), entry.kind as i64])
            .maybe_int(entry.market.map(|market| i64::from(market.0)))
            .ints([entry.reference as i64, previous as i64])
            .ints([i64::from(a.asset.0), a.account.0, a.fees.0, a.counter.0])
            .maybe_int(b.map(|legs| i64::from(legs.asset.0)))
            .ints(b.map_or([0; 3], |legs| [legs.account.0, legs.fees.0, legs.counter.0]));
    }
}

impl Model for AccountModel {
    const GROUP: Group = Group::Accounts;

    fn load(&mut self, reader: &Reader<'_>, owned: &[Owned]) -> Result<(), StoreError> {
        self.refresh(reader)?;
        for partition in owned.iter().map(|owned| owned.partition) {
            let sql = "SELECT account, last_entry FROM accounts WHERE partition = ?1 AND last_entry > 0";
            let last_entry = reader.all(sql, values![partition], |cells| {
                Ok((AccountId(cells.small("account")?), cells.unsigned()?))
            })?;
            let sql = "SELECT asset, free, locked FROM exchange_balances WHERE partition = ?1";
            let exchange = reader.all(sql, values![partition], |cells| {
                let asset = AssetId(cells.small("asset")?);
                Ok((asset, Balance { free: Amount(cells.int()?), locked: Amount(cells.int()?) }))
            })?;
            let sql = "SELECT coalesce(max(id), 0) FROM ledger WHERE partition = ?1";
            let entries = reader.first(sql, values![partition], |cells| cells.unsigned())?.unwrap_or(0);
            let part = Part {
                last_entry: last_entry.into_iter().collect(),
                exchange: exchange.into_iter().collect(),
                entries,
            };
            self.parts.insert(partition, part);
        }
        Ok(())
    }

    fn forget(&mut self, lost: &[Owned]) {
        for owned in lost {
            self.parts.remove(&owned.partition);
        }
    }

    fn refresh(&mut self, reader: &Reader<'_>) -> Result<(), StoreError> {
        let markets = reader.all("SELECT market, base, quote FROM markets", &[], |cells| {
            let market = MarketId(cells.small("market")?);
            let assets =
                Assets { base: AssetId(cells.small("base")?), quote: AssetId(cells.small("quote")?) };
            Ok((market, assets))
        })?;
        self.markets.extend(markets);
        Ok(())
    }

    fn apply(&mut self, from: Delivery, record: &EventRecord) -> Result<Applied, StoreError> {
        let partition = from.of.partition;
        match &record.event {
            Event::Order(event) => return self.apply_order(partition, record, event),
            Event::Transfer(transfer) => self.apply_transfer(partition, record, transfer)?,
            Event::AccountCreated { account } => {
                self.touch(partition, *account).created = Some(record.time);
            }
            Event::AssetAdded { id, name } => {
                self.new_assets.insert(*id, *name);
            }
            Event::InstrumentSet(instrument) => {
                let assets = Assets { base: instrument.base, quote: instrument.quote };
                self.markets.insert(instrument.id, assets);
                self.new_markets.insert(instrument.id, *instrument);
            }
            Event::StateSet { .. } | Event::Rejected(_) => {}
            Event::Trade(_) | Event::Level(_) => return Ok(Applied::Unusable("not an event of accounts")),
        }
        Ok(Applied::Done)
    }

    fn flush(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        // In the order of the keys: neighbours share pages, and two members lock rows in one order.
        let mut assets = Rows::new(&ASSETS);
        for (asset, name) in sorted_by_key(self.new_assets.drain()) {
            assets.int(i64::from(asset.0)).text(name.as_str());
        }
        let mut markets = Rows::new(&MARKETS);
        for (market, set) in sorted_by_key(self.new_markets.drain()) {
            markets.int(i64::from(market.0)).text(set.symbol.as_str());
            markets.ints([i64::from(set.base.0), i64::from(set.quote.0)]);
        }
        let mut accounts = Rows::new(&ACCOUNTS);
        for (account, touched) in sorted_by_key(self.accounts.drain()) {
            accounts.ints([i64::from(account.0), i64::from(touched.partition)]);
            accounts.maybe_int(touched.created.map(|time| time.0)).int(touched.last_entry as i64);
        }
        let mut balances = Rows::new(&BALANCES);
        for ((account, asset), balance) in sorted_by_key(self.balances.drain()) {
            let key = [i64::from(account.0), i64::from(asset.0)];
            balances.ints(key).ints([balance.free.0, balance.locked.0]);
        }
        let mut exchange = Rows::new(&EXCHANGE_BALANCES);
        for ((partition, asset), balance) in sorted_by_key(self.exchange.drain()) {
            let key = [i64::from(partition), i64::from(asset.0)];
            exchange.ints(key).ints([balance.free.0, balance.locked.0]);
        }
        for rows in [&assets, &markets, &accounts, &balances, &exchange, &self.ledger] {
            tx.write(rows)?;
        }
        self.ledger.clear();
        Ok(())
    }
}

fn sorted_by_key<K: Ord + Copy, V>(entries: impl Iterator<Item = (K, V)>) -> Vec<(K, V)> {
    let mut all: Vec<(K, V)> = entries.collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    all
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
