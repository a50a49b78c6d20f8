//! Accounts: what each has of each asset, and how many orders it has in each market.
//!
//! **Invariants:** no balance is negative; the sum of all balances of an asset is what was deposited less what was withdrawn, and fits an
//! `i64`, so no single balance can overflow. Both follow from the callers, which check before they move anything; a violation stops the
//! process.

use crate::book::NO_SLOT;
use crate::event::{Balance, TransferKind};
use crate::ids::{AccountId, AssetId, ClientId, MarketId, WithdrawalId};
use crate::money::Amount;

/// How many references of deposits and withdrawals an account remembers. A retry later than that is a new transfer.
pub const RECENT_REFERENCES: usize = 16;

/// A transfer that a repeated reference answers with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    pub(super) reference: ClientId,
    pub(super) kind: TransferKind,
    pub(super) asset: AssetId,
    pub(super) amount: Amount,
    pub(super) withdrawal: WithdrawalId,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    pub(super) asset: AssetId,
    pub(super) balance: Balance,
}

/// Open orders of one account in one market.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    pub(super) market: MarketId,
    /// All, with those that wait for their trigger.
    pub(super) open: u32,
    /// Those that wait for their trigger.
    pub(super) waiting: u32,
}

/// One account.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// By asset, ascending; what was never touched is absent.
    pub(super) holdings: Vec<Holding>,
    /// By market, ascending.
    counts: Vec<Count>,
    /// The oldest open order.
    pub(super) first: u32,
    /// The youngest open order.
    pub(super) last: u32,
    /// The last references, oldest first.
    pub(super) recent: Vec<Recent>,
}

impl Account {
    fn new() -> Account {
        Account {
            holdings: Vec::new(),
            counts: Vec::new(),
            first: NO_SLOT,
            last: NO_SLOT,
            recent: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn balance(&self, asset: AssetId) -> Balance {
        self.find(asset).map_or(Balance::default(), |at| self.holdings[at].balance)
    }

    /// The place of an asset's holding. Accounts that have every asset up to this one have it at its number: that is tried first.
    #[inline]
    fn find(&self, asset: AssetId) -> Option<usize> {
        let guess = usize::from(asset.0);
        if self.holdings.get(guess).is_some_and(|holding| holding.asset == asset) {
            return Some(guess);
        }
        self.holdings.iter().position(|holding| holding.asset == asset)
    }

    #[inline]
    fn balance_mut(&mut self, asset: AssetId) -> &mut Balance {
        let at = self.find(asset).unwrap_or_else(|| {
            let at = self.holdings.partition_point(|holding| holding.asset < asset);
            self.holdings.insert(at, Holding { asset, balance: Balance::default() });
            at
        });
        &mut self.holdings[at].balance
    }

    pub(super) fn count(&self, market: MarketId) -> Count {
        let none = Count { market, open: 0, waiting: 0 };
        self.counts.iter().find(|count| count.market == market).copied().unwrap_or(none)
    }

    /// The counter of a market.
    pub(super) fn count_mut(&mut self, market: MarketId) -> &mut Count {
        let at = match self.counts.iter().position(|count| count.market >= market) {
            Some(at) if self.counts[at].market == market => at,
            found => {
                let at = found.unwrap_or(self.counts.len());
                self.counts.insert(at, Count { market, open: 0, waiting: 0 });
                at
            }
        };
        &mut self.counts[at]
    }

    pub(super) fn remember(&mut self, recent: Recent) {
        if self.recent.len() == RECENT_REFERENCES {
            self.recent.remove(0);
        }
        self.recent.push(recent);
    }
}

/// All accounts; number 0 is the exchange's own.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    all: Vec<Account>,
}

/// The result of a sum that the invariants keep in range.
#[inline]
pub(super) fn sound(amount: Option<Amount>) -> Amount {
    match amount {
        Some(amount) if amount.0 >= 0 => amount,
        _ => panic!("a balance or hold left its range: the ledger is broken"),
    }
}

impl Accounts {
    pub(super) fn new() -> Accounts {
        Accounts { all: vec![Account::new()] }
    }

    /// Opens the next account.
    pub(super) fn open(&mut self) -> Option<AccountId> {
        let id = u32::try_from(self.all.len()).ok()?;
        self.all.push(Account::new());
        Some(AccountId(id))
    }

    /// How many there are, without the exchange's own.
    pub(super) fn clients(&self) -> u32 {
        (self.all.len() - 1) as u32
    }

    /// A client's account; not the exchange's own.
    pub(super) fn client(&self, id: AccountId) -> Option<&Account> {
        if id.0 == 0 { None } else { self.all.get(id.0 as usize) }
    }

    pub(super) fn get(&self, id: AccountId) -> Option<&Account> {
        self.all.get(id.0 as usize)
    }

    /// An account that is known to exist.
    #[inline]
    pub(super) fn of(&self, id: AccountId) -> &Account {
        &self.all[id.0 as usize]
    }

    #[inline]
    pub(super) fn of_mut(&mut self, id: AccountId) -> &mut Account {
        &mut self.all[id.0 as usize]
    }

    /// Sets a balance that a snapshot holds.
    pub(super) fn restore(&mut self, id: AccountId, asset: AssetId, balance: Balance) {
        *self.of_mut(id).balance_mut(asset) = balance;
    }

    /// All, by number.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Account> {
        self.all.iter()
    }

    #[inline]
    pub(super) fn balance(&self, id: AccountId, asset: AssetId) -> Balance {
        self.of(id).balance(asset)
    }

    /// Adds to the free part.
    #[inline]
    pub(super) fn credit(&mut self, id: AccountId, asset: AssetId, amount: Amount) {
        let balance = self.of_mut(id).balance_mut(asset);
        balance.free = sound(balance.free.checked_add(amount));
    }

    /// Moves from free to locked; the caller has checked that it is there.
    #[inline]
    pub(super) fn hold(&mut self, id: AccountId, asset: AssetId, amount: Amount) {
        let balance = self.of_mut(id).balance_mut(asset);
        balance.free = sound(balance.free.checked_sub(amount));
        balance.locked = sound(balance.locked.checked_add(amount));
    }

    /// Moves from locked to free.
    #[inline]
    pub(super) fn release(&mut self, id: AccountId, asset: AssetId, amount: Amount) {
        if amount.0 != 0 {
            let balance = self.of_mut(id).balance_mut(asset);
            balance.locked = sound(balance.locked.checked_sub(amount));
            balance.free = sound(balance.free.checked_add(amount));
        }
    }

    /// Takes from locked.
    #[inline]
    pub(super) fn spend(&mut self, id: AccountId, asset: AssetId, amount: Amount) {
        let balance = self.of_mut(id).balance_mut(asset);
        balance.locked = sound(balance.locked.checked_sub(amount));
    }
}
