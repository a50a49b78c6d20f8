//! Who watches which account.

use std::fmt;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use hoga_core::event::EventRecord;
use hoga_core::ids::AccountId;
use hoga_store::Notification;
use rustc_hash::FxHashMap;

/// Takes the events of one account. Called on the hub's thread: must not block; push into an [`crate::ws::Outbound`].
pub trait AccountSink: Send + Sync {
    /// The account's next event: an order, a transfer, its creation, or a rejection.
    fn event(&self, record: &EventRecord);

    /// The account's next notification. Called on another thread than the hub's; must not block either.
    fn notice(&self, _notification: &Notification) {}
}

type Watchers = FxHashMap<AccountId, Vec<(u64, Arc<dyn AccountSink>)>>;

/// The watched accounts.
#[derive(Default)]
pub(super) struct Accounts {
    state: RwLock<(u64, Watchers)>,
}

/// A look at who is watched.
pub(super) struct Watched<'a>(RwLockReadGuard<'a, (u64, Watchers)>);

impl Watched<'_> {
    pub(super) fn contains(&self, account: AccountId) -> bool {
        self.0.1.contains_key(&account)
    }
}

impl Accounts {
    pub(super) fn watched(&self) -> Watched<'_> {
        Watched(self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    pub(super) fn deliver(&self, account: AccountId, record: &EventRecord) {
        for sink in self.sinks(account) {
            sink.event(record);
        }
    }

    pub(super) fn notice(&self, notification: &Notification) {
        for sink in self.sinks(notification.account) {
            sink.notice(notification);
        }
    }

    /// The sinks are called without the lock: one of them may end its own subscription.
    fn sinks(&self, account: AccountId) -> Vec<Arc<dyn AccountSink>> {
        match self.watched().0.1.get(&account) {
            Some(watchers) => watchers.iter().map(|(_, sink)| Arc::clone(sink)).collect(),
            None => Vec::new(),
        }
    }

    pub(super) fn watch(
        this: &Arc<Accounts>,
        account: AccountId,
        sink: Arc<dyn AccountSink>,
    ) -> AccountSubscription {
        let mut state = this.state.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.0 += 1;
        let id = state.0;
        state.1.entry(account).or_default().push((id, sink));
        AccountSubscription { accounts: Arc::clone(this), account, id }
    }

    pub(super) fn count(&self) -> usize {
        self.watched().0.1.values().map(Vec::len).sum()
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").field("watched", &self.count()).finish()
    }
}

/// Keeps a sink subscribed; dropping it ends the subscription.
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct AccountSubscription {
    accounts: Arc<Accounts>,
    account: AccountId,
    id: u64,
}

impl AccountSubscription {
    /// Whose events.
    pub fn account(&self) -> AccountId {
        self.account
    }
}

impl Drop for AccountSubscription {
    fn drop(&mut self) {
        let mut state = self.accounts.state.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(watchers) = state.1.get_mut(&self.account) {
            watchers.retain(|(id, _)| *id != self.id);
            if watchers.is_empty() {
                state.1.remove(&self.account);
            }
        }
    }
}
