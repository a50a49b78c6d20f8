//! The pure heart of Hoga: money, instruments, orders, the book, matching, accounts and stops, and the folds that
//! turn trades into candles, tickers and depth.
//!
//! **Architecture invariant:** there is no I/O, clock, randomness, floating point, hash-order iteration or async
//! runtime in this crate. Time arrives inside a [`command::Command`]. The same commands give the same
//! [`event::Event`]s, byte for byte, and [`exchange::Exchange::digest`] proves it.

pub mod alert;
pub mod book;
pub mod codec;
pub mod command;
pub mod event;
pub mod exchange;
pub mod folds;
pub mod ids;
pub mod instrument;
pub mod money;
pub mod order;
