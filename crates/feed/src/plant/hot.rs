//! When a symbol is moved to a loop of its own, and what moves.

use std::time::Duration;

use hoga_log::LogError;

use crate::symbol::Symbol;

/// When symbols are moved. Shares are thousandths of the time of one loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Loops for hot symbols. Two of them may be hot at once without hurting each other.
    pub loops: u32,
    /// A symbol that takes this share or more of a window is moved to one of them (250).
    pub move_above: u32,
    /// One that takes less than this share of a window comes back (100).
    pub back_below: u32,
    /// The window (500 ms). A symbol comes back only after ten of them in a row, so that it does not go to and fro.
    pub window: Duration,
    /// Most symbols that are away from one loop at once (64): more than a few mean that the loop is too small, and moving does not help.
    pub most: u32,
}

impl Default for Hot {
    fn default() -> Hot {
        Hot { loops: 2, move_above: 250, back_below: 100, window: Duration::from_millis(500), most: 64 }
    }
}

/// Windows in a row below [`Hot::back_below`] after which a symbol comes back.
pub(super) const CALM: u32 = 10;

impl Hot {
    pub(super) fn check(&self) -> Result<(), LogError> {
        if self.loops == 0 || self.back_below >= self.move_above || self.window.is_zero() || self.most == 0 {
            return Err(LogError::Config(format!(
                "hot symbols: 1 loop or more, back_below under move_above and a window above 0 are needed, not {self:?}"
            )));
        }
        Ok(())
    }

    /// The share of a window of this length that `cost` is.
    pub(super) fn share(cost_ns: u64, window: Duration) -> u32 {
        let window = window.as_nanos().max(1);
        u32::try_from(u128::from(cost_ns) * 1000 / window).unwrap_or(u32::MAX)
    }
}

/// A symbol between two loops.
pub(super) struct Moving<S> {
    pub(super) symbol: Symbol,
    /// The loop of its lane.
    pub(super) home: usize,
    pub(super) state: S,
}
