//! Questions to the accounts database.

use hoga_core::event::Balance;
use hoga_core::ids::{AccountId, AssetId, EXCHANGE_ACCOUNT, MarketId, Seq, Timestamp};
use hoga_core::money::Amount;

use super::EntryKind;
use crate::audit::LedgerAudit;
use crate::cells::Cells;
use crate::error::StoreError;
use crate::sql::{ReadPool, values};
use crate::{DeadLetter, MAX_ROWS};

/// The postings of a ledger entry in one asset; they sum to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Legs {
    /// The asset.
    pub asset: AssetId,
    /// What the account got (negative: gave), after the fee.
    pub account: Amount,
    /// What account 0 got as the fee.
    pub fees: Amount,
    /// The counter side: the market's clearing account, or the outside world.
    pub counter: Amount,
}

/// One entry of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Number of the entry among those of its partition, from 1: it grows along the entries of an account.
    pub id: u64,
    /// The command behind it.
    pub seq: Seq,
    /// When.
    pub time: Timestamp,
    /// Whose.
    pub account: AccountId,
    /// What moved the money.
    pub kind: EntryKind,
    /// Where, for fills.
    pub market: Option<MarketId>,
    /// The trade's number in its market for fills, the withdrawal's for withdrawals, 0 for deposits.
    pub reference: u64,
    /// The asset moved; for fills the base asset.
    pub first: Legs,
    /// For fills: the quote asset.
    pub second: Option<Legs>,
}

/// Balances and ledger, as far as `account-service` has come. Cheap to clone; each call blocks on the disk, so call it from a thread that
/// may wait.
#[derive(Clone)]
pub struct Accounts {
    pub(crate) pool: ReadPool,
}

impl Accounts {
    /// All balances of an account that were ever touched, ascending by asset. Account 0 holds the fees.
    pub fn balances(&self, account: AccountId) -> Result<Vec<(AssetId, Balance)>, StoreError> {
        self.pool.read("reading balances", |reader| {
            let sql = if account == EXCHANGE_ACCOUNT {
                "SELECT asset, CAST(sum(free) AS BIGINT), CAST(sum(locked) AS BIGINT) FROM exchange_balances
                 WHERE ?1 = 0 GROUP BY asset ORDER BY asset"
            } else {
                "SELECT asset, free, locked FROM balances WHERE account = ?1 ORDER BY asset"
            };
            reader.all(sql, values![account.0], |cells| {
                let asset = AssetId(cells.small("asset")?);
                Ok((asset, Balance { free: Amount(cells.int()?), locked: Amount(cells.int()?) }))
            })
        })
    }

    /// Ledger entries of an account, latest first: those before entry `before`, or the latest ones. At most `limit`, no more than
    /// [`MAX_ROWS`].
    pub fn ledger(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        self.pool.read("reading ledger entries", |reader| {
            let sql = "SELECT partition, last_entry FROM accounts WHERE account = ?1";
            let known = reader.first(sql, values![account.0], |cells| Ok((cells.int()?, cells.int()?)))?;
            let Some((partition, last)) = known else { return Ok(Vec::new()) };
            let mut at = match before {
                None => last,
                Some(id) => {
                    let sql = "SELECT previous FROM ledger WHERE partition = ?1 AND id = ?2 AND account = ?3";
                    let values = values![partition, id, account.0];
                    reader.first(sql, values, |cells| cells.int())?.unwrap_or(0)
                }
            };
            let sql = "SELECT previous, id, seq, time, account, kind, market, reference, asset_a, account_a, fees_a, counter_a,
                asset_b, account_b, fees_b, counter_b FROM ledger WHERE partition = ?1 AND id = ?2";
            let mut entries = Vec::new();
            while at != 0 && entries.len() < limit.min(MAX_ROWS) {
                let found = reader.first(sql, values![partition, at], read_entry)?;
                let Some((previous, found)) = found else { break };
                entries.push(found);
                at = previous;
            }
            Ok(entries)
        })
    }

    /// Adds up the whole ledger, as of command `at` (`None`: as far as the ledger has come). Reads every entry: some seconds for tens of
    /// millions of them. Fails with [`StoreError::NotReached`] when the ledger has not come so far.
    pub fn audit(&self, at: Option<Seq>) -> Result<LedgerAudit, StoreError> {
        self.pool.read("auditing the ledger", |reader| LedgerAudit::take(reader, at, false))
    }

    /// As [`Accounts::audit`], of a command that is known to be reached.
    pub(crate) fn audit_reached(&self, at: Seq) -> Result<LedgerAudit, StoreError> {
        self.pool.read("auditing the ledger", |reader| LedgerAudit::take(reader, Some(at), true))
    }

    /// Messages that this group could not use, latest first.
    pub fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        crate::dead_letters::list(&self.pool, limit)
    }
}

fn read_entry(cells: &mut Cells<'_>) -> Result<(i64, LedgerEntry), StoreError> {
    let previous = cells.int()?;
    let mut entry = LedgerEntry {
        id: cells.unsigned()?,
        seq: Seq(cells.unsigned()?),
        time: cells.time()?,
        account: AccountId(cells.small("account")?),
        kind: cells.code("kind", EntryKind::from_code)?,
        market: cells.maybe_small("market")?.map(MarketId),
        reference: cells.unsigned()?,
        first: Legs {
            asset: AssetId(cells.small("asset_a")?),
            account: Amount(cells.int()?),
            fees: Amount(cells.int()?),
            counter: Amount(cells.int()?),
        },
        second: None,
    };
    if let Some(asset) = cells.maybe_small("asset_b")? {
        entry.second = Some(Legs {
            asset: AssetId(asset),
            account: Amount(cells.int()?),
            fees: Amount(cells.int()?),
            counter: Amount(cells.int()?),
        });
    }
    Ok((previous, entry))
}
