//! A bounded number of connections for questions.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Connection, Database, Place, Reader, label, sqlite};
use crate::error::StoreError;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left nothing half done: connections go in and out whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Slots {
    idle: Vec<Connection>,
    /// Connections that may still be made.
    free: usize,
    /// Whether somebody waits for all connections to come back: nobody gets one.
    closed: bool,
    /// Raised when the tables are another's: older connections are not used again.
    generation: u64,
}

struct Pool {
    place: Place,
    label: Arc<str>,
    count: usize,
    wait: Duration,
    slots: Mutex<Slots>,
    returned: Condvar,
}

/// At most so many connections, made when they are first needed. A question waits for a free one, but not for ever; the number bounds how
/// much of the machine questions can take. They see what is committed and never block the one who writes.
#[derive(Clone)]
pub(crate) struct ReadPool(Arc<Pool>);

impl ReadPool {
    /// At most `count` (at least 1) connections, for which a question waits at most `wait`.
    pub(crate) fn new(place: Place, count: usize, wait: Duration) -> ReadPool {
        let slots = Slots { idle: Vec::new(), free: count.max(1), closed: false, generation: 0 };
        ReadPool(Arc::new(Pool {
            label: label(&place),
            place,
            count: count.max(1),
            wait,
            slots: Mutex::new(slots),
            returned: Condvar::new(),
        }))
    }

    /// Lets all questions end, runs `swap` with no connection open, and lets new ones begin on what is there then. Questions that come
    /// meanwhile wait.
    pub(crate) fn swap<T>(&self, swap: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut slots = lock(&self.0.slots);
        slots.free += slots.idle.len();
        slots.idle.clear();
        slots.generation += 1;
        // Each question ends by its statement timeout at the latest; those that come now find no slot while the lock is held.
        while slots.free < self.0.count {
            slots.closed = true;
            slots = self.0.returned.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
        slots.closed = false;
        let result = swap();
        drop(slots);
        self.0.returned.notify_all();
        result
    }

    /// Runs a read in one transaction: all its queries see the same state.
    pub(crate) fn read<T>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut lease = self.take(doing)?;
        lease.connection.as_mut().expect("a lease holds its connection until it is dropped").begin(false)?;
        let result = read(&lease.reader());
        // Nothing was written: ending the transaction only lets the snapshot go. A connection on which that fails is not used again.
        let ended = lease.connection.as_mut().is_some_and(|connection| connection.end(false).is_ok());
        lease.sound = ended;
        result
    }

    fn take(&self, doing: &'static str) -> Result<Lease<'_>, StoreError> {
        let deadline = Instant::now() + self.0.wait;
        let mut slots = lock(&self.0.slots);
        let generation = loop {
            if let Some(connection) = slots.idle.pop() {
                let generation = slots.generation;
                let connection = Some(connection);
                return Ok(Lease { pool: &self.0, connection, generation, sound: false });
            }
            if slots.free > 0 && !slots.closed {
                slots.free -= 1;
                break slots.generation;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StoreError::Unavailable {
                    database: self.0.label.to_string(),
                    doing,
                    reason: format!("no read connection was free within {:?}", self.0.wait),
                });
            }
            slots = self.0.returned.wait_timeout(slots, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(slots);
        // From here on the lease gives the slot back, whatever happens.
        let mut lease = Lease { pool: &self.0, connection: None, generation, sound: false };
        lease.connection = Some(match &self.0.place.database {
            Database::Sqlite { .. } => Connection::Sqlite(sqlite::Session::reader(&self.0.place)?),
            #[cfg(feature = "postgres")]
            Database::Postgres(config) => {
                Connection::Postgres(Box::new(super::postgres::Session::open(config, &self.0.place, true)?))
            }
            #[cfg(not(feature = "postgres"))]
            Database::Postgres(_) => return Err(StoreError::NotBuilt),
        });
        Ok(lease)
    }
}

/// A borrowed connection; its slot goes back to the pool even when the read panics.
struct Lease<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    generation: u64,
    /// Whether the connection may be used again.
    sound: bool,
}

impl Deref for Lease<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a lease holds its connection until it is dropped")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let connection = self.connection.take();
        let mut slots = lock(&self.pool.slots);
        match connection.filter(|_| self.sound && slots.generation == self.generation) {
            Some(connection) => slots.idle.push(connection),
            None => slots.free += 1,
        }
        drop(slots);
        // Also whoever waits for all of them is among those that wait.
        self.pool.returned.notify_all();
    }
}
