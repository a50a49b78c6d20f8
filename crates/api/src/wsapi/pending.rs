//! What a connection waits for, and how answers are written.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hoga_core::ids::Timestamp;
use hoga_engine::{Lost, Reply, ReplySink};

use crate::error::ApiError;
use crate::limits::OrderUse;
use crate::metrics::Bound;
use crate::orders::RespType;
use crate::render::{self, int, put};
use crate::reply::lost_error;
use crate::server::Peer;
use crate::ws::Outbound;

/// Methods that are answered on tasks of their own, at a time.
const MAX_TASKS: usize = 64;

/// A request's id as written; short ones (nearly all) need no allocation.
#[derive(Clone, Debug)]
pub(crate) enum Id {
    Short { len: u8, bytes: [u8; Id::INLINE] },
    Long(Box<str>),
}

impl Id {
    /// A UUID in quotes has 38 bytes.
    const INLINE: usize = 46;

    pub fn new(text: &str) -> Id {
        if text.len() > Id::INLINE {
            return Id::Long(text.into());
        }
        let mut bytes = [0; Id::INLINE];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Id::Short { len: text.len() as u8, bytes }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Id::Short { len, bytes } => &bytes[..usize::from(*len)],
            Id::Long(text) => text.as_bytes(),
        }
    }

    #[cfg(test)]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap()
    }
}

/// How the answer is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Place(RespType),
    Cancel,
}

/// A command whose reply is awaited.
pub(super) struct Entry {
    pub id: Id,
    pub kind: Kind,
    pub with_limits: bool,
    pub used: Arc<OrderUse>,
}

/// Entries by tag; places are used again, so a steady connection allocates nothing.
#[derive(Default)]
struct Slots {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

/// What the connection's task, the engine's gate and the tasks of slow methods share.
pub(super) struct Shared {
    pub peer: Arc<Peer>,
    pub out: Outbound,
    /// Whether answers carry `rateLimits` unless a request says otherwise.
    pub return_limits: bool,
    pub tasks: Bound,
    slots: Mutex<Slots>,
    max: usize,
}

thread_local! {
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Shared {
    pub fn new(peer: Arc<Peer>, out: Outbound, return_limits: bool) -> Shared {
        let max = peer.app.config().ws_api_in_flight;
        Shared { peer, out, return_limits, tasks: Bound::new(MAX_TASKS), slots: Mutex::default(), max }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an entry and gives its tag; -1008 when too many wait. The last sixteenth is for cancels.
    pub fn enter(&self, entry: Entry) -> Result<u64, ApiError> {
        let mut slots = self.slots();
        let most = match entry.kind {
            Kind::Place(_) => self.max - self.max / 16,
            Kind::Cancel => self.max,
        };
        if slots.entries.len() - slots.free.len() >= most {
            return Err(ApiError::busy());
        }
        if let Some(at) = slots.free.pop() {
            slots.entries[at as usize] = Some(entry);
            return Ok(u64::from(at));
        }
        slots.entries.push(Some(entry));
        Ok(slots.entries.len() as u64 - 1)
    }

    /// Takes an entry back.
    pub fn leave(&self, tag: u64) -> Option<Entry> {
        let mut slots = self.slots();
        let at = usize::try_from(tag).ok()?;
        let entry = slots.entries.get_mut(at)?.take()?;
        slots.free.push(at as u32);
        Some(entry)
    }

    /// Answers with a result.
    pub fn answer(
        &self,
        id: &Id,
        with_limits: bool,
        used: Option<&OrderUse>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let now = if with_limits { self.peer.app.now() } else { Timestamp(0) };
        self.send(|out| {
            put(out, "{\"id\":");
            out.extend_from_slice(id.as_bytes());
            put(out, ",\"status\":200,\"result\":");
            write(out);
            self.end(out, with_limits, used, now);
        });
    }

    /// Answers with an error.
    pub fn refuse(&self, id: &Id, error: &ApiError, with_limits: bool, used: Option<&Arc<OrderUse>>) {
        self.peer.app.metrics.ws_errors.fetch_add(1, Ordering::Relaxed);
        let now = self.peer.app.now();
        self.send(|out| {
            put(out, "{\"id\":");
            out.extend_from_slice(id.as_bytes());
            int(out, ",\"status\":", error.status);
            put(out, ",\"error\":");
            match error.retry_after {
                None => error.write_json(out),
                Some(seconds) => {
                    // Here the moment is told, not the wait (Binance, WebSocket API, IP limits).
                    let mut data = Vec::new();
                    int(&mut data, "{\"serverTime\":", now.millis());
                    let after = i64::try_from(seconds).unwrap_or(i64::MAX / 2000);
                    int(&mut data, ",\"retryAfter\":", (now.millis() / 1000 + after) * 1000);
                    data.push(b'}');
                    let mut error = error.clone();
                    error.data = Some(String::from_utf8_lossy(&data).into_owned());
                    error.write_json(out);
                }
            }
            self.end(out, with_limits, used.map(AsRef::as_ref), now);
        });
    }

    fn end(&self, out: &mut Vec<u8>, with_limits: bool, used: Option<&OrderUse>, now: Timestamp) {
        if with_limits {
            let limits = self.peer.app.limits();
            put(out, ",\"rateLimits\":[");
            if let Some(used) = used {
                limits.write_orders(out, Some(limits.orders(used, now)));
                out.push(b',');
            }
            limits.write_weight(out, Some(limits.weight(&self.peer.used, now)));
            out.push(b']');
        }
        out.push(b'}');
    }

    fn send(&self, write: impl FnOnce(&mut Vec<u8>)) {
        ANSWER.with_borrow_mut(|out| {
            out.clear();
            write(out);
            // False when the client is gone or was cut: its orders stand, and it will ask for them.
            self.out.send_text(out);
        });
    }
}

impl ReplySink for Shared {
    fn reply(&self, tag: u64, reply: &Reply<'_>) {
        let Some(entry) = self.leave(tag) else { return };
        let cancel = matches!(entry.kind, Kind::Cancel);
        if let Err(reason) = reply.outcome {
            let error = ApiError::from_reject(reason, cancel);
            return self.refuse(&entry.id, &error, entry.with_limits, Some(&entry.used));
        }
        let catalog = self.peer.app.catalog();
        self.answer(&entry.id, entry.with_limits, Some(&entry.used), |out| match entry.kind {
            Kind::Place(resp) => render::placed(out, &catalog, reply.events, resp),
            Kind::Cancel => {
                render::all_canceled(out, &catalog, reply.events);
            }
        });
    }

    fn lost(&self, tag: u64, why: Lost) {
        if let Some(entry) = self.leave(tag) {
            self.refuse(&entry.id, &lost_error(why), entry.with_limits, Some(&entry.used));
        }
    }
}
