//! The cache of a group in the same process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hoga_core::folds::candle::Interval;
use rustc_hash::FxHashMap;

use super::{
    Active, Batch, CacheError, Contents, EVENTS, Entry, GroupCache, MemberNote, NOTE_LASTS, Quote,
    STATUS_LASTS, Status, Subscription, SymbolCandle, Written,
};
use crate::detect::DetectedEvent;
use crate::symbol::Symbol;

/// Writes that may wait for one subscriber; with more its subscription ends.
const WAITING: usize = 4096;

#[derive(Default)]
struct Inner {
    epoch: u64,
    refused: u64,
    rebuilds: u64,
    quotes: FxHashMap<Symbol, Quote>,
    candles: FxHashMap<(Symbol, Interval), SymbolCandle>,
    events: VecDeque<DetectedEvent>,
    status: Option<(Instant, Status)>,
    members: BTreeMap<String, (Instant, MemberNote)>,
    active: Option<Active>,
    subscribers: Vec<SyncSender<Vec<Entry>>>,
}

/// A cache in memory. Clones are the same cache.
#[derive(Clone, Default)]
pub struct MemoryCache {
    inner: Arc<Mutex<Inner>>,
}

impl MemoryCache {
    /// An empty one.
    pub fn new() -> MemoryCache {
        MemoryCache::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn tell(&mut self, entries: &[Entry]) {
        // One that has gone, or does not read, is told by its channel.
        self.subscribers.retain(|to| match to.try_send(entries.to_vec()) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        });
    }
}

impl GroupCache for MemoryCache {
    fn write(&self, epoch: u64, batch: &Batch) -> Result<Written, CacheError> {
        let mut inner = self.lock();
        if epoch < inner.epoch {
            inner.refused += 1;
            return Err(CacheError::Fenced { mine: epoch, highest: inner.epoch });
        }
        inner.epoch = epoch;
        let mut entries = Vec::with_capacity(batch.quotes.len() + batch.candles.len() + 1);
        for quote in &batch.quotes {
            inner.quotes.insert(quote.output.symbol, quote.clone());
            entries.push(Entry::Quote(quote.clone()));
        }
        for candle in &batch.candles {
            if !candle.change.closed {
                inner.candles.insert(candle.key(), *candle);
            }
            entries.push(Entry::Candle(*candle));
        }
        for event in &batch.events {
            if inner.events.len() == EVENTS {
                inner.events.pop_front();
            }
            inner.events.push_back(*event);
            entries.push(Entry::Event(*event));
        }
        if let Some(status) = &batch.status {
            inner.status = Some((Instant::now(), status.clone()));
            entries.push(Entry::Status(status.clone()));
        }
        inner.tell(&entries);
        Ok(Written { rebuilds: inner.rebuilds })
    }

    fn read(&self) -> Result<Contents, CacheError> {
        let inner = self.lock();
        let mut entries: Vec<Entry> = inner.quotes.values().cloned().map(Entry::Quote).collect();
        entries.extend(inner.candles.values().copied().map(Entry::Candle));
        entries.extend(inner.events.iter().copied().map(Entry::Event));
        let living = inner.status.as_ref().filter(|(at, _)| at.elapsed() < STATUS_LASTS);
        entries.extend(living.map(|(_, status)| Entry::Status(status.clone())));
        entries.extend(inner.active.map(Entry::Active));
        let members = inner.members.values().filter(|(at, _)| at.elapsed() < NOTE_LASTS);
        let members = members.map(|(_, note)| note.clone()).collect();
        Ok(Contents { entries, members, epoch: inner.epoch, refused: inner.refused })
    }

    fn subscribe(&self) -> Result<Box<dyn Subscription>, CacheError> {
        let (sender, receiver) = sync_channel(WAITING);
        self.lock().subscribers.push(sender);
        Ok(Box::new(Reader(receiver)))
    }

    fn announce(&self, note: &MemberNote) -> Result<(), CacheError> {
        self.lock().members.insert(note.status.node.clone(), (Instant::now(), note.clone()));
        Ok(())
    }

    fn set_active(&self, active: Active) -> Result<Active, CacheError> {
        let mut inner = self.lock();
        match inner.active {
            Some(there) if there.version >= active.version => Ok(there),
            _ => {
                inner.active = Some(active);
                inner.tell(&[Entry::Active(active)]);
                Ok(active)
            }
        }
    }

    fn ask_rebuild(&self) -> Result<(), CacheError> {
        self.lock().rebuilds += 1;
        Ok(())
    }
}

struct Reader(Receiver<Vec<Entry>>);

impl Subscription for Reader {
    fn next(&mut self, timeout: Duration, out: &mut Vec<Entry>) -> Result<(), CacheError> {
        match self.0.recv_timeout(timeout) {
            Ok(mut entries) => {
                out.append(&mut entries);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(CacheError::Away {
                place: "in memory".into(),
                reason: format!("the subscriber was cut off: {WAITING} writes waited for it"),
            }),
        }
    }
}
