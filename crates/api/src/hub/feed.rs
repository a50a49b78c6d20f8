//! What the engine hands over to the hub: a bounded queue that the shadow fills and the hub's thread empties at once.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use hoga_core::event::{Event, EventRecord, Level};
use hoga_core::exchange::{Depth, Exchange};
use hoga_core::ids::{AccountId, MarketId, Seq};
use hoga_core::instrument::{Instrument, TradingState};
use hoga_engine::Subscriber;

use super::accounts::Accounts;
use super::view::{MarketHistory, MarketTrade};

/// Something that the hub has to take in, in order.
#[derive(Debug)]
pub(super) enum Input {
    /// A market as it stands when the engine starts, or a new one.
    Market(Box<(Instrument, Depth)>),
    /// A market's state changed.
    State(MarketId, TradingState),
    /// A total changed.
    Level(Level),
    /// A trade.
    Trade(MarketId, MarketTrade),
    /// An event of an account that somebody watches.
    Private(AccountId, Box<EventRecord>),
    /// What the read models know.
    History(Box<MarketHistory>),
    /// Everything before this was taken in.
    Done(SyncSender<()>),
}

#[derive(Debug, Default)]
struct Queue {
    inputs: Vec<Input>,
    seq: Seq,
    /// The hub's thread waits for inputs.
    waiting: bool,
    /// No more inputs are taken.
    closed: bool,
}

/// The queue. **Rule when full:** the shadow waits; the hub does nothing slow, so this only smooths bursts.
#[derive(Debug)]
pub(super) struct Intake {
    queue: Mutex<Queue>,
    filled: Condvar,
    emptied: Condvar,
    capacity: usize,
}

impl Intake {
    pub(super) fn new(capacity: usize) -> Intake {
        let queue = Mutex::new(Queue::default());
        Intake { queue, filled: Condvar::new(), emptied: Condvar::new(), capacity }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts inputs in; waits while too many are there. They count as of journal position `seq`, if one is given.
    fn put(&self, inputs: impl Iterator<Item = Input>, seq: Option<Seq>) {
        let mut queue = self.lock();
        while queue.inputs.len() >= self.capacity && !queue.closed {
            queue = self.emptied.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if queue.closed {
            return;
        }
        queue.inputs.extend(inputs);
        queue.seq = seq.unwrap_or(queue.seq);
        // Whoever waits goes on waiting when there is nothing to take, so it must be woken by the next one that brings something.
        if !queue.inputs.is_empty() && std::mem::take(&mut queue.waiting) {
            drop(queue);
            self.filled.notify_one();
        }
    }

    pub(super) fn put_one(&self, input: Input) {
        self.put(std::iter::once(input), None);
    }

    /// Swaps everything that waits into `into` (which must be empty), waiting up to `timeout` for something. Gives the position that
    /// it reaches, and whether the queue is closed.
    pub(super) fn take(&self, into: &mut Vec<Input>, timeout: Duration) -> (Seq, bool) {
        let mut queue = self.lock();
        if queue.inputs.is_empty() && !queue.closed && !timeout.is_zero() {
            queue.waiting = true;
            queue = match self.filled.wait_timeout_while(queue, timeout, |q| q.inputs.is_empty() && !q.closed)
            {
                Ok((queue, _)) => queue,
                Err(poisoned) => poisoned.into_inner().0,
            };
            queue.waiting = false;
        }
        std::mem::swap(&mut queue.inputs, into);
        if into.len() >= self.capacity {
            self.emptied.notify_all();
        }
        (queue.seq, queue.closed)
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }
}

/// The hub's ear in the engine.
#[derive(Debug)]
pub struct HubFeed {
    pub(super) intake: Arc<Intake>,
    pub(super) accounts: Arc<Accounts>,
    /// Reused. Inputs are gathered here first, so that the look at the accounts is not held while the queue is full.
    pub(super) gathered: Vec<Input>,
}

impl Subscriber for HubFeed {
    fn on_start(&mut self, exchange: &Exchange) {
        let markets = exchange.instruments().iter().map(|instrument| {
            let depth = exchange.depth(instrument.id, usize::MAX);
            Input::Market(Box::new((*instrument, depth)))
        });
        self.intake.put(markets, Some(exchange.position()));
    }

    fn on_events(&mut self, events: &[EventRecord]) {
        let Some(last) = events.last() else { return };
        let watched = self.accounts.watched();
        self.gathered.extend(events.iter().filter_map(|record| match &record.event {
            Event::Level(level) => Some(Input::Level(*level)),
            Event::Trade(trade) => Some(Input::Trade(trade.market, MarketTrade::of(trade, record.time))),
            Event::InstrumentSet(instrument) => {
                Some(Input::Market(Box::new((*instrument, Depth::default()))))
            }
            Event::StateSet { market, state } => Some(Input::State(*market, *state)),
            Event::AssetAdded { .. } => None,
            Event::Order(_) | Event::Transfer(_) | Event::AccountCreated { .. } | Event::Rejected(_) => {
                let account = account_of(&record.event)?;
                watched.contains(account).then(|| Input::Private(account, Box::new(*record)))
            }
        }));
        drop(watched);
        self.intake.put(self.gathered.drain(..), Some(last.seq));
    }
}

/// Whom an event concerns; `None` for events of no single account.
fn account_of(event: &Event) -> Option<AccountId> {
    match event {
        Event::Order(order) => Some(order.order.request.account),
        Event::Transfer(transfer) => Some(transfer.account),
        Event::AccountCreated { account } => Some(*account),
        Event::Rejected(rejection) => Some(rejection.account),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_nobody_wants_do_not_use_up_the_wake_up() {
        let intake = Arc::new(Intake::new(16));
        let taker = {
            let intake = Arc::clone(&intake);
            std::thread::spawn(move || {
                let mut inputs = Vec::new();
                intake.take(&mut inputs, Duration::from_secs(60));
                inputs.len()
            })
        };
        while !intake.lock().waiting {
            std::thread::yield_now();
        }
        intake.put(std::iter::empty(), Some(Seq(1)));
        assert!(intake.lock().waiting, "the thread still waits, and is still to be woken");
        intake.put_one(Input::State(MarketId(0), TradingState::Open));
        assert_eq!(taker.join().unwrap(), 1);
    }
}
