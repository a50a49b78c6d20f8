//! What stands in the topic of a replicated journal.
//!
//! ```text
//! magic u32 │ crc u32 of all that follows │ version u8 │ kind u8 │ 0 u16 │ count u32
//! epoch u64 │ instance u64 │ seq u64 │ mark u64
//! payload
//! ```
//! Little-endian, CRC-32C. *Seq*: a batch's first command, otherwise the next command as its sender counts. *Mark*: in a batch the sender's
//! clock (nanoseconds since its start, for its own measurement), in a claim the offset up to which its sender had read. *Payload*: a batch's
//! records exactly as the journal keeps them, a claim's node name. *Instance* tells two runs of engines apart, whatever their names.

use hoga_core::ids::Seq;
use hoga_log::segment::crc32c;

const MAGIC: u32 = u32::from_le_bytes(*b"HgR1");
const VERSION: u8 = 1;
pub(crate) const HEADER: usize = 48;

/// Longest name of a node, in bytes.
pub(crate) const MAX_NODE: usize = 100;

/// A message of the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    /// The epoch in which its sender leads, or wants to lead.
    pub epoch: u64,
    /// Which run of an engine sent it.
    pub instance: u64,
    pub body: Content<'a>,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Commands.
    Batch { first: Seq, count: u32, sent: u64, records: &'a [u8] },
    /// Its sender wants to lead; it had read everything before `read_to`, after which `next` is the next command.
    Claim { read_to: u64, next: Seq, node: &'a str },
    /// The leader lives.
    Heartbeat { next: Seq },
    /// The leader leaves in order: nothing of this epoch counts behind it, and nobody need wait to claim.
    Resign { next: Seq },
}

impl Envelope<'_> {
    /// Writes it over what is in `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, count, seq, mark, payload): (u8, u32, Seq, u64, &[u8]) = match self.body {
            Content::Batch { first, count, sent, records } => (1, count, first, sent, records),
            Content::Claim { read_to, next, node } => (2, 0, next, read_to, node.as_bytes()),
            Content::Heartbeat { next } => (3, 0, next, 0, &[]),
            Content::Resign { next } => (4, 0, next, 0, &[]),
        };
        out.clear();
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[VERSION, kind, 0, 0]);
        out.extend_from_slice(&count.to_le_bytes());
        for number in [self.epoch, self.instance, seq.0, mark] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(payload);
        let crc = crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Reads a message. The error says what is wrong with it.
pub(crate) fn decode(bytes: &[u8]) -> Result<Envelope<'_>, String> {
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(format!("it has {} bytes, fewer than a header", bytes.len()));
    };
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    if u32_at(0) != MAGIC {
        return Err("it is not a message of a replicated journal".to_owned());
    }
    if u32_at(4) != crc32c(&bytes[8..]) {
        return Err("its checksum does not match".to_owned());
    }
    if header[8] != VERSION {
        return Err(format!("its version {} is not known to this build (it reads {VERSION})", header[8]));
    }
    let (count, seq, mark) = (u32_at(12), Seq(u64_at(32)), u64_at(40));
    let body = match header[9] {
        1 if count > 0 && seq.0 > 0 && seq.0.checked_add(u64::from(count)).is_some() => {
            Content::Batch { first: seq, count, sent: mark, records: payload }
        }
        2 => {
            let node = std::str::from_utf8(payload).ok().filter(|node| node.len() <= MAX_NODE);
            Content::Claim { read_to: mark, next: seq, node: node.ok_or("its node has no proper name")? }
        }
        3 => Content::Heartbeat { next: seq },
        4 => Content::Resign { next: seq },
        1 => return Err("its commands have impossible numbers".to_owned()),
        kind => return Err(format!("its kind {kind} is not known to this build")),
    };
    Ok(Envelope { epoch: u64_at(16), instance: u64_at(24), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_any_changed_bit_is_found() {
        let bodies = [
            Content::Batch { first: Seq(7), count: 2, sent: 9, records: b"records" },
            Content::Claim { read_to: 12, next: Seq(8), node: "a" },
            Content::Heartbeat { next: Seq(8) },
            Content::Resign { next: Seq(9) },
        ];
        let mut bytes = vec![1, 2, 3];
        for body in bodies {
            let message = Envelope { epoch: 3, instance: u64::MAX, body };
            message.encode(&mut bytes);
            assert_eq!(decode(&bytes), Ok(message));
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            for len in 0..bytes.len() {
                assert!(decode(&bytes[..len]).is_err(), "length {len}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_even_with_a_right_checksum() {
        let batch = |first, count| Content::Batch { first: Seq(first), count, sent: 0, records: b"" };
        let long = "n".repeat(MAX_NODE + 1);
        let claim = Content::Claim { read_to: 0, next: Seq(1), node: &long };
        for body in [batch(0, 1), batch(1, 0), batch(u64::MAX, 2), claim] {
            let mut bytes = Vec::new();
            Envelope { epoch: 1, instance: 1, body }.encode(&mut bytes);
            assert!(decode(&bytes).is_err(), "{body:?}");
        }
    }
}
