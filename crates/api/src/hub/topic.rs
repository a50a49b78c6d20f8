//! Topics: what can be subscribed to, who has subscribed, and how a message goes to all of them.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use hoga_core::folds::candle::Interval;
use hoga_core::instrument::Name;

use crate::ws::{Delivery, Frame, Outbound, Wakers};

/// How often a depth topic speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Speed {
    /// `@0ms`, an extension of Hoga: with every batch of the engine.
    Realtime,
    /// `@100ms`.
    Fast,
    /// `@1000ms`, and without a suffix.
    Slow,
}

impl Speed {
    pub(crate) const ALL: [Speed; 3] = [Speed::Realtime, Speed::Fast, Speed::Slow];
}

/// How many levels a partial depth topic shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Levels {
    /// `@depth5`.
    L5,
    /// `@depth10`.
    L10,
    /// `@depth20`.
    L20,
}

impl Levels {
    pub(crate) const ALL: [Levels; 3] = [Levels::L5, Levels::L10, Levels::L20];

    /// The number.
    pub fn count(self) -> usize {
        match self {
            Levels::L5 => 5,
            Levels::L10 => 10,
            Levels::L20 => 20,
        }
    }
}

/// The kinds of topics of one market. Names, fields and speeds follow the Binance documentation of market streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Every trade.
    Trade,
    /// Trades of one taker order at one price, together.
    AggTrade,
    /// The best bid and ask, when they change.
    BookTicker,
    /// The 24 h ticker.
    Ticker,
    /// The short 24 h ticker.
    MiniTicker,
    /// The open candle, and each candle when it closes.
    Kline(Interval),
    /// Differences of the book.
    Depth(Speed),
    /// The best levels.
    Partial(Levels, Speed),
}

impl Kind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 5 + Interval::ALL.len() + Speed::ALL.len() * (1 + Levels::ALL.len());

    /// Its place among all kinds.
    pub(crate) fn index(self) -> usize {
        let klines = 5 + Interval::ALL.len();
        match self {
            Kind::Trade => 0,
            Kind::AggTrade => 1,
            Kind::BookTicker => 2,
            Kind::Ticker => 3,
            Kind::MiniTicker => 4,
            Kind::Kline(interval) => 5 + interval as usize,
            Kind::Depth(speed) => klines + speed as usize,
            Kind::Partial(levels, speed) => {
                klines + Speed::ALL.len() * (1 + levels as usize) + speed as usize
            }
        }
    }
}

/// Topics over all markets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllKind {
    /// `!ticker@arr`: the 24 h tickers that changed, once a second.
    Ticker,
    /// `!miniTicker@arr`.
    MiniTicker,
    /// `!bookTicker`: every market's best bid and ask, when they change.
    BookTicker,
}

impl AllKind {
    pub(crate) const COUNT: usize = 3;

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// One topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Of one market.
    Market(Name, Kind),
    /// Of all.
    All(AllKind),
}

/// How a subscriber wants a message written around the topic's shared body. Every form of a topic is encoded once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// The body alone.
    Raw,
    /// `{"stream":"<name>","data":<body>}`, with the name that the client asked for.
    Combined(Box<str>),
}

impl Form {
    fn prefix(&self) -> Vec<u8> {
        match self {
            Form::Raw => Vec::new(),
            // Stream names hold no character that JSON escapes: the parser of names takes no other.
            Form::Combined(name) => format!("{{\"stream\":\"{name}\",\"data\":").into_bytes(),
        }
    }
}

/// What happens to a message for a client that is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It arrives or the client is cut.
    Strict,
    /// Only the newest matters.
    Latest,
    /// It arrives, and so does what comes after: for a candle that closed.
    Final,
}

struct Audience {
    form: Form,
    prefix: Vec<u8>,
    clients: Vec<Outbound>,
}

/// The subscribers of one topic.
pub(crate) struct Topic {
    /// A number of its own, for [`Delivery::Latest`].
    number: u32,
    /// How many subscribe. Written under the lock of `audiences`, and for a market's topics also under the lock of its state.
    count: AtomicUsize,
    /// Somebody subscribed who should get the current value soon, although it does not change.
    fresh: AtomicBool,
    /// By form. Forms are few (raw, and combined under each spelling of the name), so they stay.
    audiences: Mutex<Vec<Audience>>,
}

impl Topic {
    /// `number` must be unique among topics.
    pub(crate) fn new(number: u32) -> Topic {
        Topic {
            number,
            count: AtomicUsize::new(0),
            fresh: AtomicBool::new(false),
            audiences: Mutex::new(Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Audience>> {
        self.audiences.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether anyone subscribes: what nobody wants is not encoded.
    pub(crate) fn is_active(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether a new subscriber waits for the current value; asking clears it.
    pub(crate) fn take_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed) && self.fresh.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn add(&self, form: &Form, client: &Outbound) {
        let mut audiences = self.lock();
        match audiences.iter_mut().find(|audience| audience.form == *form) {
            Some(audience) => audience.clients.push(client.clone()),
            None => audiences.push(Audience {
                form: form.clone(),
                prefix: form.prefix(),
                clients: vec![client.clone()],
            }),
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        self.fresh.store(true, Ordering::Release);
    }

    /// Takes one subscription back. False when there is none, for example since the client was cut.
    pub(crate) fn remove(&self, form: &Form, client: &Outbound) -> bool {
        let mut audiences = self.lock();
        let Some(audience) = audiences.iter_mut().find(|audience| audience.form == *form) else {
            return false;
        };
        let Some(at) = audience.clients.iter().position(|c| c.same(client)) else { return false };
        audience.clients.swap_remove(at);
        self.count.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Changes the form of a subscription without losing or doubling a message.
    pub(crate) fn reform(&self, from: &Form, to: &Form, client: &Outbound) {
        let mut audiences = self.lock();
        let Some(audience) = audiences.iter_mut().find(|audience| audience.form == *from) else { return };
        let Some(at) = audience.clients.iter().position(|c| c.same(client)) else { return };
        audience.clients.swap_remove(at);
        match audiences.iter_mut().find(|audience| audience.form == *to) {
            Some(audience) => audience.clients.push(client.clone()),
            None => audiences.push(Audience {
                form: to.clone(),
                prefix: to.prefix(),
                clients: vec![client.clone()],
            }),
        }
    }

    /// Queues a message for every subscriber: one frame a form, shared by all its clients. Clients that are gone are forgotten. Gives the
    /// number of deliveries.
    pub(crate) fn publish(&self, body: &[u8], urgency: Urgency, wakers: &mut Wakers) -> u64 {
        let mut delivered = 0;
        for (at, audience) in self.lock().iter_mut().enumerate() {
            if audience.clients.is_empty() {
                continue;
            }
            let suffix: &[u8] = if audience.prefix.is_empty() { b"" } else { b"}" };
            let frame = Frame::text_of(&[&audience.prefix, body, suffix]);
            let key = self.number * 16 + at as u32;
            let before = audience.clients.len();
            audience.clients.retain(|client| {
                let delivery =
                    if urgency == Urgency::Latest { Delivery::Latest(key) } else { Delivery::Strict };
                let taken = client.push(frame.clone(), delivery, wakers);
                if taken && urgency == Urgency::Final {
                    client.seal(key);
                }
                taken
            });
            delivered += audience.clients.len() as u64;
            self.count.fetch_sub(before - audience.clients.len(), Ordering::AcqRel);
        }
        delivered
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic")
            .field("number", &self.number)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_place_of_its_own() {
        let mut seen = [false; Kind::COUNT];
        let mut kinds = vec![Kind::Trade, Kind::AggTrade, Kind::BookTicker, Kind::Ticker, Kind::MiniTicker];
        kinds.extend(Interval::ALL.map(Kind::Kline));
        kinds.extend(Speed::ALL.map(Kind::Depth));
        for levels in Levels::ALL {
            kinds.extend(Speed::ALL.map(|speed| Kind::Partial(levels, speed)));
        }
        for kind in kinds {
            assert!(!std::mem::replace(&mut seen[kind.index()], true), "{kind:?}");
        }
        assert_eq!(seen, [true; Kind::COUNT]);
    }
}
