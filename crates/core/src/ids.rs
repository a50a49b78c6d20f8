//! Identifiers. Each is its own type, so that an order's number cannot be passed where a trade's is meant.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// An asset, numbered from 0 in the order in which assets were added.
    AssetId(u16)
);
id!(
    /// A market, numbered from 0 in the order in which instruments were added.
    MarketId(u16)
);
id!(
    /// An account, numbered from 1. Account 0 is the exchange itself: it collects the fees.
    AccountId(u32)
);
id!(
    /// An order, numbered from 1 over all markets in the order of acceptance. 0 means "no order".
    OrderId(u64)
);
id!(
    /// A trade, numbered from 1 without holes within its market.
    TradeId(u64)
);
id!(
    /// A withdrawal, numbered from 1 in the order of requests. 0 means "none".
    WithdrawalId(u64)
);
id!(
    /// The place of a command in the journal, from 1 without holes. 0 is "before the first".
    Seq(u64)
);
id!(
    /// Microseconds since the Unix epoch, UTC. 0 means "not set".
    Timestamp(i64)
);

/// The account that collects fees.
pub const EXCHANGE_ACCOUNT: AccountId = AccountId(0);

impl Seq {
    /// The place after this one.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl Timestamp {
    /// Whole milliseconds since the epoch, cut.
    pub fn millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// From milliseconds since the epoch.
    pub fn from_millis(ms: i64) -> Timestamp {
        Timestamp(ms.saturating_mul(1000))
    }
}

/// A client's own name for an order, a deposit or a withdrawal: up to 36 characters of `[.A-Z:/a-z0-9_-]` (Binance Spot REST
/// documentation, `newClientOrderId`). Stored inline, so that an order needs no allocation. Empty means "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    len: u8,
    bytes: [u8; ClientId::MAX],
}

impl ClientId {
    /// The longest client id, in bytes.
    pub const MAX: usize = 36;

    /// No client id.
    pub const NONE: ClientId = ClientId { len: 0, bytes: [0; ClientId::MAX] };

    /// Checks and stores a client id; `None` when it is empty, too long or has a character that is not allowed.
    pub fn new(text: &str) -> Option<ClientId> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b':' | b'/' | b'_' | b'-');
        if text.is_empty() || text.len() > Self::MAX || !text.as_bytes().iter().all(allowed) {
            return None;
        }
        let mut bytes = [0; Self::MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(ClientId { len: text.len() as u8, bytes })
    }

    /// The text; empty for [`ClientId::NONE`].
    pub fn as_str(&self) -> &str {
        // Only `new` fills the bytes, and only with ASCII.
        std::str::from_utf8(&self.bytes[..self.len as usize]).unwrap_or_default()
    }

    /// The text's bytes; empty for [`ClientId::NONE`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// The text in words, padded with zeros, which no text contains: equal words mean equal texts.
    pub(crate) fn words(&self) -> [u64; 5] {
        let word = |at: usize| {
            let mut word = [0; 8];
            let end = Self::MAX.min(at + 8);
            word[..end - at].copy_from_slice(&self.bytes[at..end]);
            u64::from_le_bytes(word)
        };
        [word(0), word(8), word(16), word(24), word(32)]
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.len == 0
    }
}

impl Default for ClientId {
    fn default() -> ClientId {
        ClientId::NONE
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_are_checked() {
        assert_eq!(ClientId::new("x-TKT5PX2F-1:a/b.c_d").unwrap().as_str(), "x-TKT5PX2F-1:a/b.c_d");
        assert!(ClientId::new(&"a".repeat(36)).is_some());
        for bad in ["", "a b", "ü", "a\"b", &"a".repeat(37)] {
            assert!(ClientId::new(bad).is_none(), "{bad:?}");
        }
    }
}
