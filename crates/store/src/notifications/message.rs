//! What is told: a notification, its cause, and their bytes in the topics `user.notification` and `alert.fired`.
//!
//! Little-endian, the first byte is the version; the events inside have the core's encoding. Decoding is total.

use hoga_core::alert::Condition;
use hoga_core::codec::{decode_event, encode_event};
use hoga_core::event::{Event, EventRecord, Execution, Reject};
use hoga_core::ids::{AccountId, EXCHANGE_ACCOUNT, MarketId, Timestamp, TradeId};
use hoga_core::money::Price;
use hoga_core::order::OrderStatus;

/// Alerts that fired, keyed by account (u32, little-endian).
pub const FIRED: &str = "alert.fired";
/// Notifications as they were stored, keyed by account (u32, little-endian).
pub const NOTIFICATION: &str = "user.notification";

const VERSION: u8 = 1;

/// What kind of notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// An order traded.
    Fill = 0,
    /// An order was cancelled.
    Canceled = 1,
    /// An order ended by the rules of its type, or by self-trade prevention.
    Expired = 2,
    /// A request of the account was refused.
    Rejected = 3,
    /// Money came in.
    Deposit = 4,
    /// A step of a withdrawal: the cause says which.
    Withdrawal = 5,
    /// An alert fired.
    Alert = 6,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::Fill,
        Kind::Canceled,
        Kind::Expired,
        Kind::Rejected,
        Kind::Deposit,
        Kind::Withdrawal,
        Kind::Alert,
    ];

    /// The name as the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Fill => "FILL",
            Kind::Canceled => "CANCELED",
            Kind::Expired => "EXPIRED",
            Kind::Rejected => "REJECTED",
            Kind::Deposit => "DEPOSIT",
            Kind::Withdrawal => "WITHDRAWAL",
            Kind::Alert => "ALERT",
        }
    }

    /// From the API's spelling.
    pub fn parse(text: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    pub(crate) fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// An alert that fired, and the trade that fired it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The alert.
    pub alert: u64,
    /// Whose.
    pub account: AccountId,
    /// The market that it watched.
    pub market: MarketId,
    /// Its condition.
    pub condition: Condition,
    /// Its level.
    pub level: Price,
    /// The trade's price.
    pub price: Price,
    /// The trade.
    pub trade: TradeId,
    /// When it was.
    pub time: Timestamp,
    /// The partition of `trade.completed` in which it is.
    pub partition: u32,
    /// Its offset there.
    pub offset: u64,
    /// Whether a conditional order follows.
    pub has_order: bool,
}

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // short-lived, one at a time
pub enum Cause {
    /// An event of the account.
    Event(EventRecord),
    /// An alert.
    Alert(Fired),
}

/// A notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its number: grows within an account, unique among all, below 2⁵³.
    pub id: u64,
    /// Whose.
    pub account: AccountId,
    /// What kind.
    pub kind: Kind,
    /// When it happened.
    pub time: Timestamp,
    /// What happened.
    pub cause: Cause,
}

/// Whom an event concerns and how it is called; `None` for what nobody is told of (new orders, replaced ones, a repeated deposit, the
/// operator's commands).
pub(crate) fn derive(record: &EventRecord) -> Option<(AccountId, Kind)> {
    let (account, kind) = match &record.event {
        Event::Order(event) => {
            let kind = match event.execution {
                Execution::Trade => Kind::Fill,
                Execution::Canceled => Kind::Canceled,
                Execution::Rejected => Kind::Rejected,
                Execution::Expired => Kind::Expired,
                Execution::TradePrevention if event.order.status == OrderStatus::ExpiredInMatch => {
                    Kind::Expired
                }
                Execution::TradePrevention | Execution::New | Execution::Replaced | Execution::Triggered => {
                    return None;
                }
            };
            (event.order.request.account, kind)
        }
        Event::Transfer(transfer) if !transfer.repeated => {
            let deposit = transfer.kind == hoga_core::event::TransferKind::Deposit;
            (transfer.account, if deposit { Kind::Deposit } else { Kind::Withdrawal })
        }
        Event::Rejected(r) if r.reason != Reject::UnknownAccount => (r.account, Kind::Rejected),
        _ => return None,
    };
    (account != EXCHANGE_ACCOUNT).then_some((account, kind))
}

/// A cause's bytes.
pub(crate) fn encode_cause(cause: &Cause, out: &mut Vec<u8>) {
    match cause {
        Cause::Event(record) => {
            out.push(0);
            encode_event(record, 0, out);
        }
        Cause::Alert(fired) => {
            out.push(1);
            encode_fired(fired, out);
        }
    }
}

/// A cause from its bytes.
pub(crate) fn decode_cause(bytes: &[u8]) -> Option<Cause> {
    match bytes.split_first()? {
        (0, event) => decode_event(event).ok().map(|(_, record)| Cause::Event(record)),
        (1, fired) => decode_fired(fired).map(Cause::Alert),
        _ => None,
    }
}

/// The value of a message of `user.notification`.
pub(crate) fn encode(notification: &Notification, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&notification.id.to_le_bytes());
    out.extend_from_slice(&notification.account.0.to_le_bytes());
    out.push(notification.kind as u8);
    out.extend_from_slice(&notification.time.0.to_le_bytes());
    encode_cause(&notification.cause, out);
}

/// A notification from a message of `user.notification`; `None` for bytes that are none of this version.
pub fn decode_notification(bytes: &[u8]) -> Option<Notification> {
    let mut reader = Reader(bytes);
    if reader.u8()? != VERSION {
        return None;
    }
    Some(Notification {
        id: reader.u64()?,
        account: AccountId(reader.u32()?),
        kind: Kind::from_code(reader.u8()?)?,
        time: Timestamp(reader.u64()? as i64),
        cause: decode_cause(reader.0)?,
    })
}

/// The value of a message of `alert.fired`.
pub(crate) fn encode_fired(fired: &Fired, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&fired.alert.to_le_bytes());
    out.extend_from_slice(&fired.account.0.to_le_bytes());
    out.extend_from_slice(&fired.market.0.to_le_bytes());
    out.push(fired.condition as u8);
    out.extend_from_slice(&fired.level.0.to_le_bytes());
    out.extend_from_slice(&fired.price.0.to_le_bytes());
    out.extend_from_slice(&fired.trade.0.to_le_bytes());
    out.extend_from_slice(&fired.time.0.to_le_bytes());
    out.extend_from_slice(&fired.partition.to_le_bytes());
    out.extend_from_slice(&fired.offset.to_le_bytes());
    out.push(u8::from(fired.has_order));
}

/// A fired alert from a message of `alert.fired`.
pub(crate) fn decode_fired(bytes: &[u8]) -> Option<Fired> {
    let mut reader = Reader(bytes);
    if reader.u8()? != VERSION {
        return None;
    }
    let fired = Fired {
        alert: reader.u64()?,
        account: AccountId(reader.u32()?),
        market: MarketId(u16::from_le_bytes(reader.take()?)),
        condition: Condition::from_code(reader.u8()?)?,
        level: Price(reader.u64()? as i64),
        price: Price(reader.u64()? as i64),
        trade: TradeId(reader.u64()?),
        time: Timestamp(reader.u64()? as i64),
        partition: reader.u32()?,
        offset: reader.u64()?,
        has_order: match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        },
    };
    reader.0.is_empty().then_some(fired)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_no_cut_or_longer_ones_pass() {
        let fired = Fired {
            alert: 7,
            account: AccountId(3),
            market: MarketId(1),
            condition: Condition::Below,
            level: Price(5),
            price: Price(4),
            trade: TradeId(9),
            time: Timestamp(11),
            partition: 2,
            offset: 1 << 40,
            has_order: true,
        };
        let notification = Notification {
            id: (5 << 10) | 2,
            account: fired.account,
            kind: Kind::Alert,
            time: fired.time,
            cause: Cause::Alert(fired),
        };
        let mut bytes = Vec::new();
        encode(&notification, &mut bytes);
        assert_eq!(decode_notification(&bytes), Some(notification));
        for cut in 0..bytes.len() {
            assert_eq!(decode_notification(&bytes[..cut]), None, "{cut}");
        }
        bytes.push(0);
        assert_eq!(decode_notification(&bytes), None);
    }
}
