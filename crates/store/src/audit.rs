//! The audit: ledger = balances = engine = deposits − withdrawals, per asset, to the last unit.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use hoga_core::event::Balance;
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, AssetId, EXCHANGE_ACCOUNT, MarketId, Seq};
use hoga_core::money::{Amount, SCALE};

use crate::accounts::EntryKind;
use crate::cells::Cells;
use crate::error::StoreError;
use crate::place;
use crate::sql::Reader;

/// The whole ledger added up, and the balances beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerAudit {
    /// The command up to which entries were added up.
    pub at: Seq,
    /// The last command that the ledger has applied; `balances` are of this one.
    pub applied: Seq,
    /// Entries up to `at`.
    pub entries: u64,
    /// Entries whose postings do not sum to zero in one of their assets; the database does not take such.
    pub unbalanced: Vec<u64>,
    /// Sum of the postings up to `at`, by owner and asset; account 0 has the fees.
    pub sums: BTreeMap<(AccountId, AssetId), i128>,
    /// The same up to `applied`.
    pub latest: BTreeMap<(AccountId, AssetId), i128>,
    /// The balances table.
    pub balances: BTreeMap<(AccountId, AssetId), Balance>,
    /// What is left on the markets' clearing accounts at `at`: nothing once both sides of each trade are in.
    pub clearing: BTreeMap<(MarketId, AssetId), i128>,
    /// Deposits less withdrawals up to `at`.
    pub external: BTreeMap<AssetId, i128>,
}

impl LedgerAudit {
    /// `current` says that everything up to `at` is known to be applied, although the last commands up to it may have put nothing into
    /// the topic.
    pub(crate) fn take(
        reader: &Reader<'_>,
        at: Option<Seq>,
        current: bool,
    ) -> Result<LedgerAudit, StoreError> {
        let applied = place::applied(reader)?;
        let at = at.unwrap_or(applied);
        if at > applied && !current {
            return Err(StoreError::NotReached { asked: at, applied });
        }
        let mut audit = LedgerAudit { at, applied, ..LedgerAudit::default() };
        let sql = "SELECT id, seq, account, kind, market, asset_a, account_a, fees_a, counter_a, asset_b, account_b, fees_b, counter_b
                   FROM ledger";
        reader.each(sql, &[], &mut |cells| audit.add(cells).map(ControlFlow::Continue))?;
        let sql = "SELECT account, asset, free, locked FROM balances
                   UNION ALL SELECT 0, asset, CAST(sum(free) AS BIGINT), CAST(sum(locked) AS BIGINT)
                   FROM exchange_balances GROUP BY asset";
        let balances = reader.all(sql, &[], |cells| {
            let key = (AccountId(cells.small("account")?), AssetId(cells.small("asset")?));
            Ok((key, Balance { free: Amount(cells.int()?), locked: Amount(cells.int()?) }))
        })?;
        audit.balances = balances.into_iter().collect();
        Ok(audit)
    }

    fn add(&mut self, cells: &mut Cells<'_>) -> Result<(), StoreError> {
        let id = cells.unsigned()?;
        let within = Seq(cells.unsigned()?) <= self.at;
        let account = AccountId(cells.small("account")?);
        let kind = cells.code("kind", EntryKind::from_code)?;
        let market = cells.maybe_small("market")?.map(MarketId);
        self.entries += u64::from(within);
        for _ in 0..2 {
            let asset = cells.maybe_small("asset")?;
            let (own, fees, counter) = (cells.int()?, cells.int()?, cells.int()?);
            let Some(asset) = asset.map(AssetId) else { break };
            let (own, fees, counter) = (i128::from(own), i128::from(fees), i128::from(counter));
            if own + fees + counter != 0 {
                self.unbalanced.push(id);
            }
            for (sums, counts) in [(&mut self.sums, within), (&mut self.latest, true)] {
                if counts {
                    *sums.entry((account, asset)).or_default() += own;
                    if fees != 0 {
                        *sums.entry((EXCHANGE_ACCOUNT, asset)).or_default() += fees;
                    }
                }
            }
            match market.filter(|_| kind.is_fill()) {
                Some(market) if within => *self.clearing.entry((market, asset)).or_default() += counter,
                None if within => *self.external.entry(asset).or_default() -= counter,
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares the ledger and its balances with each other and with the engine. The engine's view has to be of command `at`. Where the
    /// ledger has gone on beyond it, accounts are compared by their sums at `at`; where both are at the same command, free and locked
    /// are compared too.
    pub fn compare(&self, engine: &EngineView) -> AuditReport {
        let mut report = AuditReport {
            at: self.at,
            entries: self.entries,
            accounts: engine.balances.len() as u64,
            differences: self.own_differences(),
        };
        if engine.at != self.at {
            report.differences.push(Difference::Position { ledger: self.at, engine: engine.at });
            return report;
        }
        let mut totals: BTreeMap<AssetId, i128> = BTreeMap::new();
        for (&(account, asset), balance) in &engine.balances {
            let sum = total(balance);
            *totals.entry(asset).or_default() += sum;
            let ledger = self.sums.get(&(account, asset)).copied().unwrap_or(0);
            report.check(ledger != sum, || Difference::Account { account, asset, ledger, engine: sum });
            if self.applied <= self.at {
                let stored = self.balances.get(&(account, asset)).copied().unwrap_or_default();
                report.check(stored != *balance, || Difference::Holds {
                    account,
                    asset,
                    stored,
                    engine: *balance,
                });
            }
        }
        for (&(account, asset), &ledger) in &self.sums {
            let known = engine.balances.contains_key(&(account, asset));
            report.check(!known && ledger != 0, || Difference::Account { account, asset, ledger, engine: 0 });
        }
        for (&asset, expected) in &engine.totals {
            let external = self.external.get(&asset).copied().unwrap_or(0);
            let flow = expected.deposited - expected.withdrawn;
            report.check(external != flow, || Difference::External { asset, ledger: external, engine: flow });
            let held = expected.free + expected.locked;
            report.check(held != flow, || Difference::Conservation { asset, held, flow });
            let summed = totals.get(&asset).copied().unwrap_or(0);
            report.check(summed != held, || Difference::Totals { asset, summed, total: held });
        }
        report
    }

    /// What is wrong within the ledger itself, whatever the engine says.
    fn own_differences(&self) -> Vec<Difference> {
        let mut found: Vec<Difference> =
            self.unbalanced.iter().map(|&entry| Difference::Unbalanced { entry }).collect();
        let open = self.clearing.iter().filter(|(_, rest)| **rest != 0);
        found.extend(open.map(|(&(market, asset), &rest)| Difference::Clearing { market, asset, rest }));
        for (&(account, asset), balance) in &self.balances {
            let ledger = self.latest.get(&(account, asset)).copied().unwrap_or(0);
            if ledger != total(balance) {
                found.push(Difference::Balance { account, asset, ledger, stored: total(balance) });
            }
        }
        for (&(account, asset), &ledger) in &self.latest {
            if ledger != 0 && !self.balances.contains_key(&(account, asset)) {
                found.push(Difference::Balance { account, asset, ledger, stored: 0 });
            }
        }
        found
    }
}

fn total(balance: &Balance) -> i128 {
    i128::from(balance.free.0) + i128::from(balance.locked.0)
}

/// The engine's sums of one asset over all accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineTotals {
    /// Free to use.
    pub free: i128,
    /// Held for orders and withdrawals.
    pub locked: i128,
    /// All deposits.
    pub deposited: i128,
    /// All settled withdrawals.
    pub withdrawn: i128,
}

/// What the engine says at one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineView {
    /// The command.
    pub at: Seq,
    /// Per asset.
    pub totals: BTreeMap<AssetId, EngineTotals>,
    /// All balances that are not zero.
    pub balances: BTreeMap<(AccountId, AssetId), Balance>,
}

impl EngineView {
    /// Reads all accounts of an exchange: a few milliseconds for 100,000 of them and few assets.
    pub fn capture(exchange: &Exchange) -> EngineView {
        let mut view = EngineView { at: exchange.position(), ..EngineView::default() };
        for asset in (0..exchange.assets().len()).filter_map(|at| u16::try_from(at).ok()).map(AssetId) {
            let totals = exchange.totals(asset);
            view.totals.insert(
                asset,
                EngineTotals {
                    free: totals.free,
                    locked: totals.locked,
                    deposited: totals.deposited,
                    withdrawn: totals.withdrawn,
                },
            );
            for account in (0..=exchange.account_count()).map(AccountId) {
                if let Some(balance) = exchange.balance(account, asset).filter(|b| *b != Balance::default()) {
                    view.balances.insert((account, asset), balance);
                }
            }
        }
        view
    }
}

/// One thing that does not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The two were asked at different commands.
    Position {
        /// The ledger's.
        ledger: Seq,
        /// The engine's.
        engine: Seq,
    },
    /// A ledger entry does not sum to zero.
    Unbalanced {
        /// Its number.
        entry: u64,
    },
    /// A market's clearing account is not empty: one side of a trade is missing.
    Clearing {
        /// The market.
        market: MarketId,
        /// The asset.
        asset: AssetId,
        /// What is left.
        rest: i128,
    },
    /// The ledger and the stored balance of an account do not agree.
    Balance {
        /// The account.
        account: AccountId,
        /// The asset.
        asset: AssetId,
        /// Sum of its postings.
        ledger: i128,
        /// Free and locked of the balances table.
        stored: i128,
    },
    /// The ledger and the engine's balance of an account do not agree.
    Account {
        /// The account.
        account: AccountId,
        /// The asset.
        asset: AssetId,
        /// Sum of its postings.
        ledger: i128,
        /// Free and locked in the engine.
        engine: i128,
    },
    /// Free and locked of the balances table are not the engine's.
    Holds {
        /// The account.
        account: AccountId,
        /// The asset.
        asset: AssetId,
        /// The table's.
        stored: Balance,
        /// The engine's.
        engine: Balance,
    },
    /// Deposits less withdrawals do not agree.
    External {
        /// The asset.
        asset: AssetId,
        /// By the ledger.
        ledger: i128,
        /// By the engine.
        engine: i128,
    },
    /// The engine's accounts do not hold what came in less what left.
    Conservation {
        /// The asset.
        asset: AssetId,
        /// What they hold.
        held: i128,
        /// Deposits less withdrawals.
        flow: i128,
    },
    /// The engine's total is not the sum of its accounts.
    Totals {
        /// The asset.
        asset: AssetId,
        /// Sum over the accounts.
        summed: i128,
        /// The total.
        total: i128,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Difference::Position { ledger, engine } => {
                write!(f, "the ledger was asked at command {ledger}, the engine at {engine}")
            }
            Difference::Unbalanced { entry } => write!(f, "ledger entry {entry} does not sum to zero"),
            Difference::Clearing { market, asset, rest } => {
                write!(f, "market {market}, asset {asset}: {} is left on the clearing account", Units(rest))
            }
            Difference::Balance { account, asset, ledger, stored } => {
                write!(
                    f,
                    "account {account}, asset {asset}: ledger {}, stored balance {}",
                    Units(ledger),
                    Units(stored)
                )
            }
            Difference::Account { account, asset, ledger, engine } => {
                write!(
                    f,
                    "account {account}, asset {asset}: ledger {}, engine {}",
                    Units(ledger),
                    Units(engine)
                )
            }
            Difference::Holds { account, asset, stored, engine } => write!(
                f,
                "account {account}, asset {asset}: stored {} free and {} locked, engine {} free and {} locked",
                stored.free, stored.locked, engine.free, engine.locked
            ),
            Difference::External { asset, ledger, engine } => write!(
                f,
                "asset {asset}: deposits less withdrawals are {} in the ledger, {} in the engine",
                Units(ledger),
                Units(engine)
            ),
            Difference::Conservation { asset, held, flow } => write!(
                f,
                "asset {asset}: accounts hold {}, deposits less withdrawals are {}",
                Units(held),
                Units(flow)
            ),
            Difference::Totals { asset, summed, total } => write!(
                f,
                "asset {asset}: the accounts sum to {}, the engine's total is {}",
                Units(summed),
                Units(total)
            ),
        }
    }
}

/// A sum of amounts with its eight decimal places; it may be beyond 64 bits.
struct Units(i128);

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, units, scale) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs(), SCALE as u128);
        write!(f, "{sign}{}.{:08}", units / scale, units % scale)
    }
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditReport {
    /// The command that was audited.
    pub at: Seq,
    /// Ledger entries added up.
    pub entries: u64,
    /// Balances compared with the engine.
    pub accounts: u64,
    /// Everything that does not agree, to the last unit.
    pub differences: Vec<Difference>,
}

impl AuditReport {
    /// Whether everything agrees.
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty()
    }

    fn check(&mut self, wrong: bool, difference: impl FnOnce() -> Difference) {
        if wrong {
            self.differences.push(difference());
        }
    }
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_clean() { "clean" } else { "NOT clean" };
        write!(
            f,
            "audit at command {}: {verdict}, {} ledger entries, {} balances, {} differences",
            self.at,
            self.entries,
            self.accounts,
            self.differences.len()
        )?;
        self.differences.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}
