//! Leases within one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Held, Lease, LeaseError};

#[derive(Default)]
struct Seat {
    epoch: u64,
    /// Which candidate has it, and until when.
    holder: Option<(u64, Instant)>,
}

#[derive(Default)]
struct Registry {
    seats: BTreeMap<String, Seat>,
    candidates: u64,
}

/// Microseconds since 1970, as on Redis: what an epoch is compared with, such as a cache on a server, outlives the process, so the next process has to begin above.
fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// The leases of a process. Clones are the same. Epochs rise over restarts too, as long as the system's clock is not set back.
#[derive(Clone, Default)]
pub struct LocalLeases(Arc<Mutex<Registry>>);

impl LocalLeases {
    /// None is held.
    pub fn new() -> LocalLeases {
        LocalLeases::default()
    }

    /// A candidate for the lease of this name.
    pub fn candidate(&self, name: &str, ttl: Duration) -> LocalLease {
        let mut registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registry.candidates += 1;
        LocalLease { leases: self.clone(), name: name.into(), number: registry.candidates, ttl }
    }
}

/// A candidate in this process. It resigns when it is dropped.
pub struct LocalLease {
    leases: LocalLeases,
    name: String,
    number: u64,
    ttl: Duration,
}

impl Lease for LocalLease {
    fn poll(&mut self) -> Result<Option<Held>, LeaseError> {
        let mut registry = self.leases.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = registry.seats.entry(self.name.clone()).or_default();
        let now = Instant::now();
        match seat.holder {
            Some((number, until)) if number != self.number && now < until => return Ok(None),
            // Its own, still: the epoch stays.
            Some((number, until)) if number == self.number && now < until => {}
            _ => seat.epoch = (seat.epoch + 1).max(clock()),
        }
        let until = now + self.ttl;
        seat.holder = Some((self.number, until));
        Ok(Some(Held { epoch: seat.epoch, until }))
    }

    fn resign(&mut self) {
        let mut registry = self.leases.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = registry.seats.get_mut(&self.name)
            && seat.holder.is_some_and(|(number, _)| number == self.number)
        {
            seat.holder = None;
        }
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl Drop for LocalLease {
    fn drop(&mut self) {
        self.resign();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::conformance;

    #[test]
    fn leases_within_a_process_keep_the_law() {
        let leases = LocalLeases::new();
        conformance::run(|ttl| Box::new(leases.candidate("a", ttl)), Duration::from_millis(100));
        conformance::contend(|ttl| Box::new(leases.candidate("b", ttl)), Duration::from_millis(100));
    }

    #[test]
    fn epochs_rise_over_a_restart_of_the_process() {
        let mut last = 0;
        for _ in 0..3 {
            // The registry is all that a process knows; what its writes are compared with may outlive it.
            let mut lease = LocalLeases::new().candidate("a", Duration::from_secs(1));
            let held = lease.poll().unwrap().unwrap();
            assert!(held.epoch > last, "{} after {last}", held.epoch);
            last = held.epoch;
            std::thread::sleep(Duration::from_micros(10));
        }
    }
}
