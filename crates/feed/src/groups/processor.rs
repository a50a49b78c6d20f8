//! What the loops of a group's member do with ticks: the fast ones fold them, the heavy ones look for events.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;
use hoga_log::event_log::StoredMessage;

use super::GroupName;
use super::board::{Board, Shared, lock};
use crate::detect::{DetectConfig, Detector};
use crate::monitor::{SymbolOrder, Verdict};
use crate::plant::{Batch, Handler};
use crate::state::{Output, StateConfig, SymbolState};
use crate::symbol::Symbol;
use crate::tick::FeedTick;

/// A change of ticks that one version of a processor has and another has not: for the tests of what finds it.
pub type Tamper = fn(&mut FeedTick);

/// Time at this machine in microseconds since the epoch, UTC.
pub(super) fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// Folds ticks, and puts what came of them on the board once a batch.
pub(super) struct Folding {
    pub(super) group: GroupName,
    pub(super) state: StateConfig,
    pub(super) board: Arc<Board>,
    /// Whether the front of the bus is gone: a symbol begins at the number that is met first then.
    pub(super) trimmed: bool,
    pub(super) tamper: Option<Tamper>,
    pub(super) outputs: Vec<Output>,
    /// Read once a batch, for delays alone: nothing that is put out depends on it.
    pub(super) now: Timestamp,
}

impl Handler for Folding {
    type State = Shared;

    fn open(&mut self, symbol: Symbol) -> Shared {
        self.board.open(symbol, SymbolState::new(symbol, &self.state))
    }

    fn ticks(&mut self, state: &mut Shared, ticks: &[FeedTick]) {
        let mut state = lock(state);
        let (before, stale) = (*state.order().counts(), state.order().is_stale());
        if self.trimmed && before.ticks == 0 {
            state.begin_at(&ticks[0]);
        }
        for tick in ticks {
            match self.tamper {
                None => state.take(tick, self.now),
                Some(tamper) => {
                    let mut tick = *tick;
                    tamper(&mut tick);
                    state.take(&tick, self.now)
                }
            };
        }
        self.board.count(&before, state.order().counts());
        match (stale, state.order().is_stale()) {
            (false, true) => self.board.stale(1),
            (true, false) => self.board.stale(-1),
            _ => {}
        }
        self.outputs.extend(state.output());
    }

    fn bad(&mut self, lane: u32, message: &StoredMessage, reason: &str) {
        // The first only: a log full of such messages must not fill another one. The counter has them all.
        if self.board.bad() == 1 {
            tracing::warn!(group = %self.group, lane, offset = message.offset, reason, "a message of the topic is no tick");
        }
    }

    fn flush(&mut self, batch: Option<Batch>) {
        if !self.outputs.is_empty() {
            let read: Option<Instant> = batch.map(|batch| batch.read);
            self.board.offer(&mut self.outputs, read);
        }
        self.now = now();
    }

    fn close(&mut self, _: Symbol, _: Shared) {}
}

/// Detects events. It reads the bus by itself, on loops of its own: however slow it is, prices do not wait for it.
pub(super) struct Detecting {
    pub(super) detect: DetectConfig,
    pub(super) board: Arc<Board>,
}

impl Handler for Detecting {
    type State = (SymbolOrder, Detector);

    fn open(&mut self, _: Symbol) -> Self::State {
        (SymbolOrder::new(), Detector::new())
    }

    fn ticks(&mut self, (order, detector): &mut Self::State, ticks: &[FeedTick]) {
        for tick in ticks {
            if let Verdict::New { .. } = order.number(tick.epoch, tick.seq) {
                detector.take(tick, &self.detect, |event| self.board.event(event));
            }
        }
    }

    /// The folding loops tell it.
    fn bad(&mut self, _: u32, _: &StoredMessage, _: &str) {}

    fn flush(&mut self, _: Option<Batch>) {}

    fn close(&mut self, _: Symbol, _: Self::State) {}
}
