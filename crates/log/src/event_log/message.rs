//! A message as the payload of a record: time i64, flags u8, length of the key u32, key, value.

use hoga_core::ids::Timestamp;

use super::{Message, StoredMessage};

const HEAD: usize = 13;
const HAS_VALUE: u8 = 1;

/// Appends the payload of a message.
pub(super) fn encode(message: &Message<'_>, into: &mut Vec<u8>) {
    into.extend_from_slice(&message.time.0.to_le_bytes());
    into.push(if message.value.is_some() { HAS_VALUE } else { 0 });
    into.extend_from_slice(&(message.key.len() as u32).to_le_bytes());
    into.extend_from_slice(message.key);
    into.extend_from_slice(message.value.unwrap_or_default());
}

/// The length of the payload of a message.
pub(super) fn encoded_len(message: &Message<'_>) -> usize {
    HEAD + message.key.len() + message.value.map_or(0, <[u8]>::len)
}

/// Reads a payload; `None` when it is none.
pub(super) fn decode(payload: &[u8]) -> Option<Message<'_>> {
    let (head, rest) = payload.split_at_checked(HEAD)?;
    let time = i64::from_le_bytes(head[..8].try_into().ok()?);
    let key = u32::from_le_bytes(head[9..].try_into().ok()?) as usize;
    let (key, value) = rest.split_at_checked(key)?;
    match head[8] {
        HAS_VALUE => Some(Message { key, value: Some(value), time: Timestamp(time) }),
        0 if value.is_empty() => Some(Message { key, value: None, time: Timestamp(time) }),
        _ => None,
    }
}

impl StoredMessage {
    /// A copy of a message at its place.
    pub(super) fn new(offset: u64, message: &Message<'_>) -> StoredMessage {
        StoredMessage {
            offset,
            key: message.key.to_vec(),
            value: message.value.map(<[u8]>::to_vec),
            time: message.time,
        }
    }
}
