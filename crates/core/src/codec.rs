//! The binary form of commands and events: what the journal, the event log and snapshots hold.
//!
//! Little-endian, fixed field widths, texts with a length byte in front; the first byte is [`VERSION`]. Every value has exactly one
//! encoding, so equal bytes mean equal values. Decoding is total: any bytes give a value or a [`DecodeError`], never a panic, and bytes
//! left over are an error, so a record cannot hide anything. Encoding allocates nothing beyond the output buffer.
//!
//! A field is added by raising [`VERSION`] and keeping the old branch: a newer build must read old journals.

mod read;
mod write;

pub(crate) use read::Reader;
pub(crate) use write::Writer;

use crate::command::{Body, Command};
use crate::event::{Event, EventRecord, Level, Reject, Rejection};
use crate::ids::{AccountId, AssetId, MarketId, Seq, Timestamp, WithdrawalId};
use crate::instrument::TradingState;
use crate::money::{Price, Qty};
use crate::order::Side;

/// The version of the format that this build writes.
pub const VERSION: u8 = 1;

/// Why bytes are not a value of the format. `at` counts bytes from the start of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written by another version of the format.
    #[error(
        "format version {found} is not known to this build (it reads {VERSION}): use the build that wrote it"
    )]
    Version {
        /// The version byte.
        found: u8,
    },
    /// The bytes end inside a field.
    #[error("record ends inside {field} at byte {at}")]
    Truncated {
        /// Which field.
        field: &'static str,
        /// Where the field begins.
        at: usize,
    },
    /// A code that the field does not have.
    #[error("{field} has no code {code} (byte {at})")]
    UnknownCode {
        /// Which field.
        field: &'static str,
        /// The code.
        code: u8,
        /// Where.
        at: usize,
    },
    /// A text that is too long or has a character that is not allowed.
    #[error("{field} at byte {at} is not a valid text")]
    BadText {
        /// Which field.
        field: &'static str,
        /// Where.
        at: usize,
    },
    /// The value ended before the bytes did.
    #[error("{extra} bytes left over at byte {at}")]
    Trailing {
        /// How many.
        extra: usize,
        /// Where they begin.
        at: usize,
    },
    /// The fields are well formed, but contradict each other. Used by snapshots.
    #[error("contradiction in {what} (before byte {at})")]
    Inconsistent {
        /// What contradicts.
        what: &'static str,
        /// How far reading had come.
        at: usize,
    },
}

/// Appends a command.
pub fn encode_command(command: &Command, out: &mut Vec<u8>) {
    out.reserve(160);
    let mut w = Writer::new(out);
    w.u8(VERSION);
    w.u64(command.seq.0);
    w.i64(command.time.0);
    w.u16(command.rules);
    w.i64(command.deadline.0);
    write_body(&mut w, &command.body);
}

/// Reads a command; the bytes must hold exactly one.
pub fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
    let mut r = Reader::new(bytes);
    r.version()?;
    let command = Command {
        seq: Seq(r.u64("seq")?),
        time: Timestamp(r.i64("time")?),
        rules: r.u16("rules")?,
        deadline: Timestamp(r.i64("deadline")?),
        body: read_body(&mut r)?,
    };
    r.finish()?;
    Ok(command)
}

/// Appends an event with its number in its topic and partition.
pub fn encode_event(record: &EventRecord, number: u64, out: &mut Vec<u8>) {
    out.reserve(384);
    let mut w = Writer::new(out);
    w.u8(VERSION);
    w.u64(number);
    w.u64(record.seq.0);
    w.u32(record.index);
    w.i64(record.time.0);
    write_event(&mut w, &record.event);
}

/// Reads an event and its number; the bytes must hold exactly one.
pub fn decode_event(bytes: &[u8]) -> Result<(u64, EventRecord), DecodeError> {
    let mut r = Reader::new(bytes);
    r.version()?;
    let number = r.u64("number")?;
    let record = EventRecord {
        seq: Seq(r.u64("seq")?),
        index: r.u32("index")?,
        time: Timestamp(r.i64("time")?),
        event: read_event(&mut r)?,
    };
    r.finish()?;
    Ok((number, record))
}

fn write_body(w: &mut Writer<'_>, body: &Body) {
    match body {
        Body::AddAsset { id, name } => {
            w.u8(1);
            w.u16(id.0);
            w.text(name.as_str());
        }
        Body::SetInstrument(instrument) => {
            w.u8(2);
            w.instrument(instrument);
        }
        Body::SetState { market, state } => {
            w.u8(3);
            w.u16(market.0);
            w.u8(*state as u8);
        }
        Body::CreateAccount => w.u8(4),
        Body::Deposit { account, asset, amount, reference } => {
            w.u8(5);
            w.transfer_request(*account, *asset, *amount, reference);
        }
        Body::Withdraw { account, asset, amount, reference } => {
            w.u8(6);
            w.transfer_request(*account, *asset, *amount, reference);
        }
        Body::SettleWithdrawal { id } => {
            w.u8(7);
            w.u64(id.0);
        }
        Body::ReleaseWithdrawal { id } => {
            w.u8(8);
            w.u64(id.0);
        }
        Body::Place(order) => {
            w.u8(9);
            w.new_order(order);
        }
        Body::Cancel { account, market, order, cancel_id } => {
            w.u8(10);
            w.u32(account.0);
            w.u16(market.0);
            w.order_ref(order);
            w.text(cancel_id.as_str());
        }
        Body::CancelAll { account, market } => {
            w.u8(11);
            w.u32(account.0);
            w.optional_market(*market);
        }
        Body::Modify { account, market, order, price, qty } => {
            w.u8(12);
            w.u32(account.0);
            w.u16(market.0);
            w.order_ref(order);
            w.i64(price.0);
            w.i64(qty.0);
        }
    }
}

fn read_body(r: &mut Reader<'_>) -> Result<Body, DecodeError> {
    let at = r.at();
    Ok(match r.u8("command")? {
        1 => Body::AddAsset { id: AssetId(r.u16("asset")?), name: r.name("asset name")? },
        2 => Body::SetInstrument(r.instrument()?),
        3 => Body::SetState {
            market: MarketId(r.u16("market")?),
            state: r.coded("trading state", TradingState::from_code)?,
        },
        4 => Body::CreateAccount,
        5 => {
            let (account, asset, amount, reference) = r.transfer_request()?;
            Body::Deposit { account, asset, amount, reference }
        }
        6 => {
            let (account, asset, amount, reference) = r.transfer_request()?;
            Body::Withdraw { account, asset, amount, reference }
        }
        7 => Body::SettleWithdrawal { id: WithdrawalId(r.u64("withdrawal")?) },
        8 => Body::ReleaseWithdrawal { id: WithdrawalId(r.u64("withdrawal")?) },
        9 => Body::Place(r.new_order()?),
        10 => Body::Cancel {
            account: AccountId(r.u32("account")?),
            market: MarketId(r.u16("market")?),
            order: r.order_ref()?,
            cancel_id: r.client_id("cancel id")?,
        },
        11 => Body::CancelAll { account: AccountId(r.u32("account")?), market: r.optional_market()? },
        12 => Body::Modify {
            account: AccountId(r.u32("account")?),
            market: MarketId(r.u16("market")?),
            order: r.order_ref()?,
            price: Price(r.i64("price")?),
            qty: Qty(r.i64("quantity")?),
        },
        code => return Err(DecodeError::UnknownCode { field: "command", code, at }),
    })
}

fn write_event(w: &mut Writer<'_>, event: &Event) {
    match event {
        Event::AssetAdded { id, name } => {
            w.u8(1);
            w.u16(id.0);
            w.text(name.as_str());
        }
        Event::InstrumentSet(instrument) => {
            w.u8(2);
            w.instrument(instrument);
        }
        Event::StateSet { market, state } => {
            w.u8(3);
            w.u16(market.0);
            w.u8(*state as u8);
        }
        Event::AccountCreated { account } => {
            w.u8(4);
            w.u32(account.0);
        }
        Event::Transfer(transfer) => {
            w.u8(5);
            w.transfer(transfer);
        }
        Event::Order(event) => {
            w.u8(6);
            w.order_event(event);
        }
        Event::Trade(trade) => {
            w.u8(7);
            w.trade(trade);
        }
        Event::Level(level) => {
            w.u8(8);
            w.u16(level.market.0);
            w.u8(level.side as u8);
            w.i64(level.price.0);
            w.i64(level.qty.0);
            w.u64(level.update_id);
        }
        Event::Rejected(rejection) => {
            w.u8(9);
            w.u32(rejection.account.0);
            w.optional_market(rejection.market);
            w.text(rejection.client_id.as_str());
            w.u8(rejection.reason as u8);
        }
    }
}

fn read_event(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let at = r.at();
    Ok(match r.u8("event")? {
        1 => Event::AssetAdded { id: AssetId(r.u16("asset")?), name: r.name("asset name")? },
        2 => Event::InstrumentSet(r.instrument()?),
        3 => Event::StateSet {
            market: MarketId(r.u16("market")?),
            state: r.coded("trading state", TradingState::from_code)?,
        },
        4 => Event::AccountCreated { account: AccountId(r.u32("account")?) },
        5 => Event::Transfer(r.transfer()?),
        6 => Event::Order(r.order_event()?),
        7 => Event::Trade(r.trade()?),
        8 => Event::Level(Level {
            market: MarketId(r.u16("market")?),
            side: r.coded("side", Side::from_code)?,
            price: Price(r.i64("price")?),
            qty: Qty(r.i64("quantity")?),
            update_id: r.u64("update id")?,
        }),
        9 => Event::Rejected(Rejection {
            account: AccountId(r.u32("account")?),
            market: r.optional_market()?,
            client_id: r.client_id("client id")?,
            reason: r.coded("reject", Reject::from_code)?,
        }),
        code => return Err(DecodeError::UnknownCode { field: "event", code, at }),
    })
}
