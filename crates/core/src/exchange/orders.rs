//! The open orders' full data, apart from the book's small nodes: a slab, a list per account in the order of acceptance, and an index of
//! client ids.

use super::accounts::Accounts;
use crate::book::table::{Table, mix};
use crate::book::{NO_SLOT, Slot};
use crate::ids::{AccountId, ClientId, Timestamp};
use crate::money::Amount;
use crate::order::Order;

/// An open order.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) order: Order,
    /// What its owner has locked for it: of the quote asset for a buyer, of the base asset for a seller.
    pub(super) held: Amount,
    /// Its place in the book, or among the stops when it waits for its trigger.
    pub(super) slot: Slot,
    /// Hash of account and client id; meaningless without a client id.
    hash: u32,
}

/// Neighbours in the account's list. Apart from the records, so that linking does not touch the neighbours' records.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The next open order of the account; in a free record the next free one.
    next: u32,
    previous: u32,
}

/// All open orders.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    records: Vec<Record>,
    links: Vec<Link>,
    free: u32,
    clients: Table,
    len: usize,
}

fn client_hash(account: AccountId, client: &ClientId) -> u32 {
    const A: u64 = 0x9E37_79B9_7F4A_7C15;
    const B: u64 = 0xD6E8_FEB8_6659_FD93;
    const C: u64 = 0xA076_1D64_78BD_642F;
    let [a, b, c, d, e] = client.words();
    let hash = mix(a ^ A, b ^ B) ^ mix(c ^ B, d ^ C) ^ mix(e ^ C, u64::from(account.0) ^ A);
    (hash ^ hash >> 32) as u32
}

impl Orders {
    pub(super) fn new() -> Orders {
        Orders { records: Vec::new(), links: Vec::new(), free: NO_SLOT, clients: Table::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, handle: u32) -> &Record {
        &self.records[handle as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, handle: u32) -> &mut Record {
        &mut self.records[handle as usize]
    }

    /// The account's open order with this client id.
    pub(super) fn by_client(&self, account: AccountId, client: &ClientId) -> Option<u32> {
        if client.is_none() {
            return None;
        }
        self.clients.find(client_hash(account, client), |handle| {
            let request = &self.get(handle).order.request;
            request.account == account && request.client_id == *client
        })
    }

    /// Adds an open order at the end of its account's list.
    pub(super) fn add(&mut self, order: &Order, held: Amount, slot: Slot, accounts: &mut Accounts) -> u32 {
        let handle = self.insert(order, held, slot, accounts);
        self.link(handle, accounts);
        handle
    }

    /// The first half of [`Orders::add`]: everything but the account's list.
    pub(super) fn insert(&mut self, order: &Order, held: Amount, slot: Slot, accounts: &mut Accounts) -> u32 {
        let request = &order.request;
        let hash = client_hash(request.account, &request.client_id);
        let record = Record { order: *order, held, slot, hash };
        let handle = if self.free == NO_SLOT {
            self.records.push(record);
            self.links.push(Link { next: NO_SLOT, previous: NO_SLOT });
            (self.records.len() - 1) as u32
        } else {
            let handle = self.free;
            self.free = self.links[handle as usize].next;
            self.records[handle as usize] = record;
            handle
        };
        let count = accounts.of_mut(request.account).count_mut(request.market);
        count.open += 1;
        count.waiting += u32::from(!order.working);
        if !request.client_id.is_none() {
            self.clients.insert(hash, handle);
        }
        self.len += 1;
        handle
    }

    /// The second half: the end of the account's list. Orders are linked in the order of their ids.
    pub(super) fn link(&mut self, handle: u32, accounts: &mut Accounts) {
        let account = accounts.of_mut(self.get(handle).order.request.account);
        let previous = std::mem::replace(&mut account.last, handle);
        self.links[handle as usize] = Link { next: NO_SLOT, previous };
        match previous {
            NO_SLOT => account.first = handle,
            _ => self.links[previous as usize].next = handle,
        }
    }

    /// Takes an order out that is no longer open.
    pub(super) fn remove(&mut self, handle: u32, accounts: &mut Accounts) {
        let record = &self.records[handle as usize];
        let request = &record.order.request;
        let account = accounts.of_mut(request.account);
        let count = account.count_mut(request.market);
        count.open -= 1;
        count.waiting -= u32::from(!record.order.working);
        if !request.client_id.is_none() {
            self.clients.remove(record.hash, handle);
        }
        let Link { next, previous } = self.links[handle as usize];
        match previous {
            NO_SLOT => account.first = next,
            _ => self.links[previous as usize].next = next,
        }
        match next {
            NO_SLOT => account.last = previous,
            _ => self.links[next as usize].previous = previous,
        }
        self.links[handle as usize].next = self.free;
        self.free = handle;
        self.len -= 1;
    }

    /// A conditional order's trigger was reached: it does not wait any more.
    pub(super) fn wake(&mut self, handle: u32, time: Timestamp, accounts: &mut Accounts) {
        let order = &mut self.get_mut(handle).order;
        order.working = true;
        order.working_since = time;
        order.updated = time;
        accounts.of_mut(order.request.account).count_mut(order.request.market).waiting -= 1;
    }

    /// The open orders of an account, oldest first, by handle.
    pub(super) fn of<'a>(
        &'a self,
        accounts: &Accounts,
        account: AccountId,
    ) -> impl Iterator<Item = u32> + 'a {
        let mut at = accounts.get(account).map_or(NO_SLOT, |account| account.first);
        std::iter::from_fn(move || {
            (at != NO_SLOT).then(|| {
                let handle = at;
                at = self.links[handle as usize].next;
                handle
            })
        })
    }

    /// The order after this one in its account's list.
    pub(super) fn next(&self, handle: u32) -> Option<u32> {
        let next = self.links[handle as usize].next;
        (next != NO_SLOT).then_some(next)
    }
}
