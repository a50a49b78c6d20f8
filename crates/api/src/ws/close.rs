//! Close codes (RFC 6455 §7.4).

use std::borrow::Cow;

/// Why a connection is closed, as sent in a close frame (RFC 6455 §7.4.1 and the IANA registry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// The purpose is fulfilled.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// The server goes down, or the connection has reached its age limit.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// The peer broke the framing rules.
    pub const PROTOCOL: CloseCode = CloseCode(1002);
    /// A kind of message that this endpoint does not take.
    pub const UNSUPPORTED: CloseCode = CloseCode(1003);
    /// Text that is not UTF-8.
    pub const INVALID_DATA: CloseCode = CloseCode(1007);
    /// The peer broke a rule of ours: too many messages, no pong, too slow a reader.
    pub const POLICY: CloseCode = CloseCode(1008);
    /// A message over the size limit.
    pub const TOO_BIG: CloseCode = CloseCode(1009);
    /// Something broke here.
    pub const INTERNAL: CloseCode = CloseCode(1011);

    /// Whether a peer may send this code: defined, and not one of those reserved for local use (§7.4.1, §7.4.2).
    pub fn may_be_sent(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

/// A close that one side asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The code.
    pub code: CloseCode,
    /// The reason in words, at most 123 bytes (§5.5: a control frame holds 125); cut at a character when longer.
    pub reason: Cow<'static, str>,
}

impl Close {
    /// A close with a code and a reason.
    pub fn new(code: CloseCode, reason: impl Into<Cow<'static, str>>) -> Close {
        Close { code, reason: reason.into() }
    }

    /// The payload of the close frame (§5.5.1).
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut end = self.reason.len().min(123);
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        let mut payload = Vec::with_capacity(2 + end);
        payload.extend_from_slice(&self.code.0.to_be_bytes());
        payload.extend_from_slice(&self.reason.as_bytes()[..end]);
        payload
    }
}
