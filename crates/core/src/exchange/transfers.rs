//! Deposits and withdrawals.
//!
//! A transfer with a reference that the account used before for the same kind of transfer, among its last [`super::RECENT_REFERENCES`],
//! changes nothing and repeats the first answer, with the balance of now. A transfer without a reference is always new. Open withdrawals
//! are bounded by the funds that they lock.

use super::accounts::Recent;
use super::emit::Emitter;
use super::{Exchange, is_client};
use crate::book::NO_SLOT;
use crate::book::table::{Table, sequence_hash};
use crate::event::{Event, Reject, Transfer, TransferKind};
use crate::ids::{AccountId, AssetId, ClientId, WithdrawalId};
use crate::money::Amount;

/// A withdrawal that was neither settled nor released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withdrawal {
    pub(super) id: WithdrawalId,
    pub(super) account: AccountId,
    pub(super) asset: AssetId,
    pub(super) amount: Amount,
    pub(super) reference: ClientId,
}

/// The open withdrawals.
#[derive(Clone, Debug)]
pub(super) struct Withdrawals {
    slab: Vec<Option<Withdrawal>>,
    free: Vec<u32>,
    index: Table,
    pub(super) last: u64,
}

impl Withdrawals {
    pub(super) fn new() -> Withdrawals {
        Withdrawals { slab: Vec::new(), free: Vec::new(), index: Table::new(), last: 0 }
    }

    pub(super) fn add(&mut self, withdrawal: Withdrawal) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slab[slot as usize] = Some(withdrawal);
                slot
            }
            None => {
                self.slab.push(Some(withdrawal));
                (self.slab.len() - 1) as u32
            }
        };
        debug_assert_ne!(slot, NO_SLOT);
        self.index.insert(sequence_hash(withdrawal.id.0), slot);
    }

    fn take(&mut self, id: WithdrawalId) -> Option<Withdrawal> {
        let is = |slot: u32| self.slab[slot as usize].is_some_and(|withdrawal| withdrawal.id == id);
        let slot = self.index.find(sequence_hash(id.0), is)?;
        self.index.remove(sequence_hash(id.0), slot);
        self.free.push(slot);
        self.slab[slot as usize].take()
    }

    /// The open ones, by number.
    pub(super) fn sorted(&self) -> Vec<Withdrawal> {
        let mut open: Vec<Withdrawal> = self.slab.iter().copied().flatten().collect();
        open.sort_unstable_by_key(|withdrawal| withdrawal.id);
        open
    }
}

impl Exchange {
    fn check_transfer(&self, account: AccountId, asset: AssetId, amount: Amount) -> Result<(), Reject> {
        is_client(&self.accounts, account)?;
        if usize::from(asset.0) >= self.assets.len() {
            return Err(Reject::UnknownAsset);
        }
        if amount.0 <= 0 { Err(Reject::InvalidAmount) } else { Ok(()) }
    }

    /// Repeats the answer to a reference that was seen before.
    fn repeat(
        &self,
        account: AccountId,
        kind: TransferKind,
        reference: &ClientId,
        emit: &mut Emitter<'_>,
    ) -> bool {
        if reference.is_none() {
            return false;
        }
        let recent = &self.accounts.of(account).recent;
        let Some(first) = recent.iter().find(|r| r.kind == kind && r.reference == *reference) else {
            return false;
        };
        emit.emit(Event::Transfer(Transfer {
            kind,
            account,
            asset: first.asset,
            amount: first.amount,
            reference: *reference,
            withdrawal: first.withdrawal,
            balance: self.accounts.balance(account, first.asset),
            repeated: true,
        }));
        true
    }

    fn emit_transfer(&self, kind: TransferKind, transfer: &Withdrawal, emit: &mut Emitter<'_>) {
        let Withdrawal { id, account, asset, amount, reference } = *transfer;
        let balance = self.accounts.balance(account, asset);
        emit.emit(Event::Transfer(Transfer {
            kind,
            account,
            asset,
            amount,
            reference,
            withdrawal: id,
            balance,
            repeated: false,
        }));
    }

    fn remember(&mut self, kind: TransferKind, transfer: &Withdrawal) {
        let Withdrawal { id, account, asset, amount, reference } = *transfer;
        if !reference.is_none() {
            let recent = Recent { reference, kind, asset, amount, withdrawal: id };
            self.accounts.of_mut(account).remember(recent);
        }
    }

    pub(super) fn deposit(
        &mut self,
        account: AccountId,
        asset: AssetId,
        amount: Amount,
        reference: &ClientId,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        self.check_transfer(account, asset, amount)?;
        if self.repeat(account, TransferKind::Deposit, reference, emit) {
            return Ok(());
        }
        let flow = &mut self.flows[usize::from(asset.0)];
        // While the whole supply fits an i64, no balance can overflow, whatever is traded.
        if flow.deposited - flow.withdrawn + i128::from(amount.0) > i128::from(i64::MAX) {
            return Err(Reject::InvalidAmount);
        }
        flow.deposited += i128::from(amount.0);
        self.accounts.credit(account, asset, amount);
        let deposit = Withdrawal { id: WithdrawalId(0), account, asset, amount, reference: *reference };
        self.remember(TransferKind::Deposit, &deposit);
        self.emit_transfer(TransferKind::Deposit, &deposit, emit);
        Ok(())
    }

    pub(super) fn withdraw(
        &mut self,
        account: AccountId,
        asset: AssetId,
        amount: Amount,
        reference: &ClientId,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        self.check_transfer(account, asset, amount)?;
        if self.repeat(account, TransferKind::WithdrawalRequested, reference, emit) {
            return Ok(());
        }
        if self.accounts.balance(account, asset).free < amount {
            return Err(Reject::InsufficientBalance);
        }
        self.accounts.hold(account, asset, amount);
        self.withdrawals.last += 1;
        let id = WithdrawalId(self.withdrawals.last);
        let withdrawal = Withdrawal { id, account, asset, amount, reference: *reference };
        self.withdrawals.add(withdrawal);
        self.remember(TransferKind::WithdrawalRequested, &withdrawal);
        self.emit_transfer(TransferKind::WithdrawalRequested, &withdrawal, emit);
        Ok(())
    }

    pub(super) fn settle_withdrawal(
        &mut self,
        id: WithdrawalId,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        let withdrawal = self.withdrawals.take(id).ok_or(Reject::UnknownWithdrawal)?;
        self.accounts.spend(withdrawal.account, withdrawal.asset, withdrawal.amount);
        self.flows[usize::from(withdrawal.asset.0)].withdrawn += i128::from(withdrawal.amount.0);
        self.emit_transfer(TransferKind::WithdrawalSettled, &withdrawal, emit);
        Ok(())
    }

    pub(super) fn release_withdrawal(
        &mut self,
        id: WithdrawalId,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        let withdrawal = self.withdrawals.take(id).ok_or(Reject::UnknownWithdrawal)?;
        self.accounts.release(withdrawal.account, withdrawal.asset, withdrawal.amount);
        self.emit_transfer(TransferKind::WithdrawalReleased, &withdrawal, emit);
        Ok(())
    }
}
