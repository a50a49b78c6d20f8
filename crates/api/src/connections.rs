//! Who is connected: bounds on connections, altogether and of one address.
//!
//! **Rule when full:** a new connection takes the place of the oldest that has never sent a whole request. So a crowd that connects and says
//! nothing cannot lock anybody out, not even from its own address. Where all have spoken, the new one is closed at once.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashMap;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;

/// What happened to connections, for metrics. Every number only grows, except `open`.
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    /// Open now.
    pub open: AtomicUsize,
    /// Taken.
    pub accepted: AtomicU64,
    /// Closed at once: too many altogether.
    pub refused_total: AtomicU64,
    /// Closed at once: too many of one address.
    pub refused_address: AtomicU64,
    /// Cut, never having said anything, for the sake of a new one.
    pub cut_silent: AtomicU64,
}

/// Whether a connection has said anything yet, and how it is told to go.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    broken: AtomicBool,
    cut: Notify,
}

impl Silence {
    /// Returns when the connection has to give up its place.
    pub async fn cut(&self) {
        self.cut.notified().await;
    }
}

#[derive(Debug, Default)]
struct Table {
    /// Connections by address.
    by_ip: FxHashMap<IpAddr, usize>,
    open: usize,
    /// Those that had said nothing when they were last looked at, oldest first.
    silent: VecDeque<(IpAddr, Weak<Silence>)>,
}

/// The places.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    table: Arc<Mutex<Table>>,
    counters: Arc<ConnectionCounters>,
    max: usize,
    max_of_ip: usize,
}

impl Connections {
    pub fn new(counters: Arc<ConnectionCounters>, max: usize, max_of_ip: usize) -> Connections {
        Connections { table: Arc::default(), counters, max, max_of_ip }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, if need be that of a silent one; `None` when it has to be closed.
    pub fn enter(&self, ip: IpAddr) -> Option<Place> {
        let mut table = self.table();
        let of_ip = table.by_ip.get(&ip).copied().unwrap_or(0);
        let refused = if of_ip >= self.max_of_ip {
            (!table.make_room(|other| other == ip)).then_some(&self.counters.refused_address)
        } else if table.open >= self.max {
            (!table.make_room(|_| true)).then_some(&self.counters.refused_total)
        } else {
            None
        };
        if let Some(counter) = refused {
            counter.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if of_ip >= self.max_of_ip || table.open >= self.max {
            self.counters.cut_silent.fetch_add(1, Ordering::Relaxed);
        }
        let silence: Arc<Silence> = Arc::default();
        table.open += 1;
        *table.by_ip.entry(ip).or_insert(0) += 1;
        table.silent.push_back((ip, Arc::downgrade(&silence)));
        if table.silent.len() > self.max * 2 {
            table.silent.retain(|(_, silence)| is_silent(silence));
        }
        drop(table);
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        self.counters.open.fetch_add(1, Ordering::Relaxed);
        Some(Place { ip, silence, connections: self.clone() })
    }
}

fn is_silent(silence: &Weak<Silence>) -> bool {
    silence.upgrade().is_some_and(|silence| !silence.broken.load(Ordering::Relaxed))
}

impl Table {
    /// Tells the oldest silent connection of those addresses to go; false when there is none. Its place is given back a moment later.
    fn make_room(&mut self, which: impl Fn(IpAddr) -> bool) -> bool {
        while let Some(at) = self.silent.iter().position(|(ip, _)| which(*ip)) {
            let Some((_, silence)) = self.silent.remove(at) else { return false };
            let Some(silence) = silence.upgrade() else { continue };
            if !silence.broken.load(Ordering::Relaxed) {
                silence.cut.notify_one();
                return true;
            }
        }
        false
    }
}

/// One connection's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    ip: IpAddr,
    silence: Arc<Silence>,
    connections: Connections,
}

impl Place {
    /// The connection has sent a whole request: it keeps its place.
    pub fn spoke(&self) {
        if !self.silence.broken.load(Ordering::Relaxed) {
            self.silence.broken.store(true, Ordering::Relaxed);
        }
    }

    /// To wait on.
    pub fn silence(&self) -> Arc<Silence> {
        Arc::clone(&self.silence)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.connections.table();
        table.open -= 1;
        if let Entry::Occupied(mut entry) = table.by_ip.entry(self.ip) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        drop(table);
        self.connections.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Raises the limit of open files as far as the system lets a process do, and gives it. (The usual soft limit of 1,024 is from the days of
/// `select`.)
pub(crate) fn raise_file_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(1 << 20, |maximum| maximum.min(1 << 20));
    if current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })
    {
        tracing::warn!(%error, wanted, "the limit of open files could not be raised");
    }
    getrlimit(Resource::Nofile).current.map_or(1 << 20, |files| usize::try_from(files).unwrap_or(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let counters: Arc<ConnectionCounters> = Arc::default();
        let connections = Connections::new(Arc::clone(&counters), 3, 2);
        let enter = |last: u8| {
            let place = connections.enter(IpAddr::from([127, 0, 0, last]));
            if let Some(place) = &place {
                place.spoke();
            }
            place
        };
        let (one, two) = (enter(1), enter(1));
        assert!(one.is_some() && two.is_some());
        assert!(enter(1).is_none(), "a third of one address");
        let other = enter(2);
        assert!(other.is_some());
        assert!(enter(3).is_none(), "a fourth altogether");
        drop((one, two, other));
        assert!(enter(3).is_some());
        let table = connections.table();
        assert!(table.by_ip.is_empty() && table.open == 0);
        assert_eq!(counters.open.load(Ordering::Relaxed), 0);
        assert_eq!(counters.refused_total.load(Ordering::Relaxed), 1);
        assert_eq!(counters.refused_address.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_oldest_that_said_nothing_makes_room() {
        let counters: Arc<ConnectionCounters> = Arc::default();
        let connections = Connections::new(Arc::clone(&counters), 3, 3);
        let enter = |last: u8| connections.enter(IpAddr::from([127, 0, 0, last]));
        let places: Vec<Place> = (1..=3).filter_map(enter).collect();
        places[0].spoke();
        // Two silent ones are left: the second and the third, in this order.
        let fourth = enter(4).unwrap();
        fourth.spoke();
        assert_eq!(counters.cut_silent.load(Ordering::Relaxed), 1);
        let told = |place: &Place| {
            let waker = std::task::Waker::noop();
            let cut = place.silence.cut();
            std::pin::pin!(cut).poll(&mut std::task::Context::from_waker(waker)).is_ready()
        };
        assert!(!told(&places[0]) && told(&places[1]) && !told(&places[2]));
        drop(places);
        assert_eq!(connections.table().open, 1);
    }

    #[test]
    fn the_list_of_the_silent_stays_bounded() {
        let connections = Connections::new(Arc::default(), 10, 10);
        for _ in 0..10_000 {
            connections.enter(IpAddr::from([127, 0, 0, 1]));
        }
        assert!(connections.table().silent.len() <= 21);
    }
}
