//! Where trades come from.

mod capture;
mod completed;
pub mod exchange;
mod mapping;
mod simulator;
mod websocket;

use std::time::Duration;

use crate::gateway::SourceTrade;

pub use capture::{Capture, CaptureError, CaptureStatus, Speed};
pub use completed::{Completed, CompletedStatus, Start, SymbolOf, TRADE_COMPLETED};
pub use exchange::{Format, ParseError, Parser, TimeUnit};
pub use mapping::{Mapping, Path, PathError, SideMapping};
pub use simulator::{Burst, HotSymbol, Simulator, SimulatorConfig, SimulatorError};
pub use websocket::{WebSocketConfig, WebSocketError, WebSocketSource, WebSocketStatus};

/// Whether more will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// More will come.
    Open,
    /// That was all.
    Ended,
}

/// Gives trades as time goes on.
///
/// **Law:** the trades of a symbol come in the order in which they happened. What is due when it is asked is given, however late it is asked:
/// nothing is left out because nobody asked in time.
pub trait Source: Send {
    /// Adds what is due at this time since the start to `out`, up to `most`; what is over comes with the next call.
    fn poll(&mut self, at: Duration, most: usize, out: &mut Vec<SourceTrade>) -> Flow;

    /// How it is doing.
    fn status(&self) -> SourceStatus {
        SourceStatus::default()
    }
}

/// What a source says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStatus {
    /// Whether it is connected, where it has to be.
    pub connected: Option<bool>,
    /// Connections that were made after the first.
    pub reconnects: u64,
    /// Messages that could not be read.
    pub broken: u64,
    /// Trades that were given.
    pub trades: u64,
    /// The first or last thing that went wrong.
    pub fault: Option<String>,
}
