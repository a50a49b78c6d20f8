//! The messages of the `me-consensus` benchmark (repository flash1-dev/matching-engine-benchmark) in text form: one message a line,
//! `N,side,ioc,id,price,qty`, `C,id` or `M,side,id,price,qty`; side is `B` or `S`, the message's number counts from 0.

use crate::recording::{Lines, ReadError, fields, unsigned};
use hoga_core::order::Side;
use std::io::BufRead;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A new limit order.
    New {
        /// Its side.
        side: Side,
        /// Whether what does not trade at once is cancelled.
        ioc: bool,
        /// Its number, chosen by the sender.
        id: u64,
        /// Limit price in ticks.
        price: i64,
        /// Quantity in lots.
        qty: i64,
    },
    /// Takes an order back.
    Cancel {
        /// Which.
        id: u64,
    },
    /// Cancels an order and enters it again with a new price and quantity.
    Modify {
        /// The side it has.
        side: Side,
        /// Which.
        id: u64,
        /// New price in ticks.
        price: i64,
        /// New quantity in lots.
        qty: i64,
    },
}

/// Reads messages one by one; after an error it ends.
pub struct Messages<R> {
    lines: Lines<R>,
    failed: bool,
}

impl<R: BufRead> Messages<R> {
    /// From a reader, for example that of [`crate::recording::open`].
    pub fn new(reader: R) -> Messages<R> {
        Messages { lines: Lines::new(reader), failed: false }
    }

    fn read(&mut self) -> Result<Option<Message>, ReadError> {
        match self.lines.next()? {
            Some((line, bytes)) => parse(line, bytes).map(Some),
            None => Ok(None),
        }
    }
}

impl<R: BufRead> Iterator for Messages<R> {
    type Item = Result<Message, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = self.read().transpose();
        self.failed = matches!(result, Some(Err(_)));
        result
    }
}

fn parse(line: u64, bytes: &[u8]) -> Result<Message, ReadError> {
    match bytes.first() {
        Some(b'N') => {
            let [kind, side, ioc, id, price, qty] = fields::<6>(line, bytes)?;
            check_kind(line, kind)?;
            let ioc = match ioc {
                b"0" => false,
                b"1" => true,
                _ => return Err(ReadError::field(line, "ioc", ioc, "neither 0 nor 1")),
            };
            let (side, id) = (parse_side(line, side)?, unsigned(line, "id", id)?);
            Ok(Message::New {
                side,
                ioc,
                id,
                price: positive(line, "price", price)?,
                qty: positive(line, "qty", qty)?,
            })
        }
        Some(b'C') => {
            let [kind, id] = fields::<2>(line, bytes)?;
            check_kind(line, kind)?;
            Ok(Message::Cancel { id: unsigned(line, "id", id)? })
        }
        Some(b'M') => {
            let [kind, side, id, price, qty] = fields::<5>(line, bytes)?;
            check_kind(line, kind)?;
            let (side, id) = (parse_side(line, side)?, unsigned(line, "id", id)?);
            Ok(Message::Modify {
                side,
                id,
                price: positive(line, "price", price)?,
                qty: positive(line, "qty", qty)?,
            })
        }
        _ => Err(ReadError::field(line, "kind", bytes, "not a message (N, C or M)")),
    }
}

fn check_kind(line: u64, kind: &[u8]) -> Result<(), ReadError> {
    if kind.len() == 1 {
        Ok(())
    } else {
        Err(ReadError::field(line, "kind", kind, "not a message (N, C or M)"))
    }
}

fn parse_side(line: u64, text: &[u8]) -> Result<Side, ReadError> {
    match text {
        b"B" => Ok(Side::Buy),
        b"S" => Ok(Side::Sell),
        _ => Err(ReadError::field(line, "side", text, "neither B nor S")),
    }
}

fn positive(line: u64, field: &'static str, text: &[u8]) -> Result<i64, ReadError> {
    match i64::try_from(unsigned(line, field, text)?) {
        Ok(0) => Err(ReadError::field(line, field, text, "zero")),
        Ok(value) => Ok(value),
        Err(_) => Err(ReadError::field(line, field, text, "out of range")),
    }
}
