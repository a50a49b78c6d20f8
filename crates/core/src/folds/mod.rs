//! Folds: pure functions that turn a sequence of trades or level changes into candles, tickers and depth. One implementation, used
//! for streams and for history.

pub mod candle;
pub mod depth;
pub mod ticker;
