//! A bounded number of connections for questions.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Connection, Database, Place, Reader, Safety, Tx, label, sqlite};
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
    /// Set while the database does not answer: when it is tried again, and what it said.
    away: Option<(Instant, String)>,
}

/// While the database does not answer, one question in so much time tries it; the others are told at once.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The longest that one such trial is given before another one may begin.
const TRIAL: Duration = Duration::from_secs(20);

struct Pool {
    place: Place,
    label: Arc<str>,
    /// Whether the connections may write.
    writes: bool,
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
        ReadPool::make(place, count, wait, false)
    }

    fn make(place: Place, count: usize, wait: Duration, writes: bool) -> ReadPool {
        let slots = Slots { idle: Vec::new(), free: count.max(1), closed: false, generation: 0, away: None };
        ReadPool(Arc::new(Pool {
            label: label(&place),
            place,
            writes,
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
        self.0.noted(lease.connection().begin(false))?;
        let result = read(&lease.reader());
        // Nothing was written: ending the transaction only lets the snapshot go. A connection on which that fails is not used again.
        lease.sound = lease.connection().end(false).is_ok();
        result
    }

    /// As [`ReadPool::read`], for changes: they are committed when `write` succeeds, and gone when it fails. After a fault in the commit
    /// itself nobody knows which.
    fn write<T>(
        &self,
        doing: &'static str,
        write: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut lease = self.take(doing)?;
        let connection = lease.connection();
        self.0.noted(connection.begin(true))?;
        let mut tx = Tx { connection, rows: &mut 0, open: true }; // nobody counts the rows of single changes
        // A connection on which something failed is not used again: its transaction goes with it.
        let value = write(&mut tx)?;
        tx.commit()?;
        lease.sound = true;
        Ok(value)
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
                let now = Instant::now();
                if let Some((again, reason)) = &mut slots.away {
                    if now < *again {
                        let (database, reason) = (self.0.label.to_string(), reason.clone());
                        return Err(StoreError::Unavailable { database, doing, reason });
                    }
                    *again = now + TRIAL;
                }
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
        lease.connection = Some(self.0.noted(self.0.connect())?);
        Ok(lease)
    }
}

impl Pool {
    fn connect(&self) -> Result<Connection, StoreError> {
        Ok(match &self.place.database {
            Database::Sqlite { .. } if self.writes => {
                let session = sqlite::Session::writer(&self.place)?;
                session.set_safety(Safety::Durable)?;
                Connection::Sqlite(session)
            }
            Database::Sqlite { .. } => Connection::Sqlite(sqlite::Session::reader(&self.place)?),
            #[cfg(feature = "postgres")]
            Database::Postgres(config) => Connection::Postgres(Box::new(super::postgres::Session::open(
                config,
                &self.place,
                !self.writes,
            )?)),
            #[cfg(not(feature = "postgres"))]
            Database::Postgres(_) => return Err(StoreError::NotBuilt),
        })
    }

    /// Remembers whether the database answers, by the outcome of reaching it.
    fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let mut slots = lock(&self.slots);
        let Err(StoreError::Unavailable { reason, .. }) = &result else {
            slots.away = None;
            return result;
        };
        slots.away = Some((Instant::now() + TRY_AGAIN_AFTER, reason.clone()));
        // The others are most likely lost as well, and each would take its time to find out.
        let lost = std::mem::take(&mut slots.idle);
        slots.free += lost.len();
        drop(slots);
        drop(lost);
        self.returned.notify_all();
        result
    }
}

/// Connections for questions and for changes that are durable when they return.
#[derive(Clone)]
pub(crate) struct WritePool(ReadPool);

impl WritePool {
    /// At most `count` (at least 1) connections, for which a call waits at most `wait`.
    pub(crate) fn new(place: Place, count: usize, wait: Duration) -> WritePool {
        WritePool(ReadPool::make(place, count, wait, true))
    }

    /// See [`ReadPool::read`].
    pub(crate) fn read<T>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.read(doing, read)
    }

    /// Runs changes in one transaction, which is committed when `write` succeeds. After a fault in the commit itself nobody knows whether
    /// they stand.
    pub(crate) fn write<T>(
        &self,
        doing: &'static str,
        write: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.write(doing, write)
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

impl Lease<'_> {
    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a lease holds its connection until it is dropped")
    }
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
