//! What a loop of a group does with ticks.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;
use hoga_log::event_log::StoredMessage;

use super::GroupName;
use super::view::View;
use crate::detect::{DetectConfig, Detector};
use crate::monitor::Verdict;
use crate::plant::{Batch, Handler};
use crate::state::{Output, StateConfig, SymbolState};
use crate::symbol::Symbol;
use crate::tick::FeedTick;

/// A change of ticks that one version of a processor has and another has not: for the tests of what finds it.
pub(super) type Tamper = fn(&mut FeedTick);

/// Folds ticks, and gives what came of them to the view once a batch.
pub(super) struct Processor {
    pub(super) group: GroupName,
    pub(super) state: StateConfig,
    pub(super) detect: DetectConfig,
    pub(super) view: Arc<View>,
    pub(super) tamper: Option<Tamper>,
    pub(super) outputs: Vec<Output>,
    /// Read once a batch, for delays alone: nothing that is put out depends on it.
    pub(super) now: Timestamp,
}

impl Handler for Processor {
    type State = (SymbolState, Detector);

    fn open(&mut self, symbol: Symbol) -> Self::State {
        (SymbolState::new(symbol, &self.state), Detector::new())
    }

    fn ticks(&mut self, (state, detector): &mut Self::State, ticks: &[FeedTick]) {
        let stale = state.order().is_stale();
        for tick in ticks {
            let mut tick = *tick;
            if let Some(tamper) = self.tamper {
                tamper(&mut tick);
            }
            if let Verdict::New { .. } = state.take(&tick, self.now) {
                detector.take(&tick, &self.detect, |event| self.view.event(self.group, event));
            }
        }
        match (stale, state.order().is_stale()) {
            (false, true) => self.view.stale(self.group, 1),
            (true, false) => self.view.stale(self.group, -1),
            _ => {}
        }
        if let Some(output) = state.output() {
            self.outputs.push(output);
        }
    }

    fn bad(&mut self, lane: u32, message: &StoredMessage, reason: &str) {
        self.view.bad(self.group, lane, message.offset, reason);
    }

    fn flush(&mut self, _: Option<Batch>) {
        if !self.outputs.is_empty() {
            self.view.offer(self.group, &mut self.outputs);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.now = Timestamp(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
    }

    fn close(&mut self, _: Symbol, _: Self::State) {}
}
