//! Frames (RFC 6455 §5.2).

use bytes::Bytes;

/// The kind of a frame (§5.2, §11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// More of the message that a text or binary frame began.
    Continuation = 0x0,
    /// UTF-8 text.
    Text = 0x1,
    /// Bytes.
    Binary = 0x2,
    /// The peer closes.
    Close = 0x8,
    /// The peer wants a pong with the same payload.
    Ping = 0x9,
    /// The answer to a ping.
    Pong = 0xA,
}

impl Opcode {
    /// From the four bits of the header; `None` for the reserved ones.
    pub fn from_bits(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0x0 => Opcode::Continuation,
            0x1 => Opcode::Text,
            0x2 => Opcode::Binary,
            0x8 => Opcode::Close,
            0x9 => Opcode::Ping,
            0xA => Opcode::Pong,
            _ => return None,
        })
    }

    /// Whether it is a control frame (§5.5): at most 125 bytes, never fragmented, allowed between the fragments of a message.
    pub fn is_control(self) -> bool {
        self as u8 & 0x8 != 0
    }
}

/// The longest header: two bytes, an eight-byte length, a four-byte mask.
pub(crate) const MAX_HEADER: usize = 14;

/// Appends the header of a final, unfragmented frame (§5.2). With a mask the payload must be sent masked with it (§5.3).
pub(crate) fn write_header(out: &mut Vec<u8>, fin: bool, opcode: Opcode, len: usize, mask: Option<[u8; 4]>) {
    out.push(u8::from(fin) << 7 | opcode as u8);
    let masked = u8::from(mask.is_some()) << 7;
    // The minimal number of bytes must be used for the length (§5.2).
    match len {
        0..=125 => out.push(masked | len as u8),
        126..=0xFFFF => {
            out.push(masked | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(masked | 127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    if let Some(mask) = mask {
        out.extend_from_slice(&mask);
    }
}

/// Masks or unmasks in place (§5.3); `offset` is the place of `data` in the frame's payload.
pub(crate) fn apply_mask(data: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut key = mask;
    key.rotate_left(offset % 4);
    let wide = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let mut chunks = data.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let word = u64::from_ne_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]);
        chunk.copy_from_slice(&(word ^ wide).to_ne_bytes());
    }
    for (i, byte) in chunks.into_remainder().iter_mut().enumerate() {
        *byte ^= key[i % 4];
    }
}

/// A whole frame from server to client, header included. Cloning shares the bytes: one encoding serves every client of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(Bytes);

impl Frame {
    /// A text message. The payload must be UTF-8; everything Hoga sends as text is JSON that it wrote itself.
    pub fn text(payload: &[u8]) -> Frame {
        Frame::encode(Opcode::Text, &[payload])
    }

    /// A text message of several pieces: wraps a shared body without joining it first.
    pub fn text_of(pieces: &[&[u8]]) -> Frame {
        Frame::encode(Opcode::Text, pieces)
    }

    /// A binary message.
    pub fn binary(payload: &[u8]) -> Frame {
        Frame::encode(Opcode::Binary, &[payload])
    }

    pub(crate) fn encode(opcode: Opcode, pieces: &[&[u8]]) -> Frame {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let mut out = Vec::with_capacity(10 + len);
        write_header(&mut out, true, opcode, len, None);
        for piece in pieces {
            out.extend_from_slice(piece);
        }
        Frame(Bytes::from(out))
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Length on the wire, in bytes.
    #[allow(clippy::len_without_is_empty)] // a frame has a header: it is never empty
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_at_any_offset_and_length() {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        for len in 0..40 {
            for offset in 0..9 {
                let plain: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
                let mut masked = plain.clone();
                apply_mask(&mut masked, mask, offset);
                for (i, byte) in masked.iter().enumerate() {
                    assert_eq!(*byte, plain[i] ^ mask[(i + offset) % 4]);
                }
            }
        }
    }

    #[test]
    fn headers_use_the_shortest_length() {
        for (len, header) in [
            (0, vec![0x81, 0]),
            (125, vec![0x81, 125]),
            (126, vec![0x81, 126, 0, 126]),
            (65_535, vec![0x81, 126, 0xFF, 0xFF]),
            (65_536, vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let frame = Frame::text(&vec![b'a'; len]);
            assert_eq!(frame.bytes()[..header.len()], header);
            assert_eq!(frame.len(), header.len() + len);
        }
    }
}
