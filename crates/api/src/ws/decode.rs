//! Reads frames from a stream of bytes, for either role (RFC 6455 §5, §6.2).

use super::close::{Close, CloseCode};
use super::frame::{MAX_HEADER, Opcode, apply_mask};

/// Which end reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Frames come from a client: they must be masked (§5.1).
    Server,
    /// Frames come from a server: they must not be masked (§5.1).
    Client,
}

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A whole text message.
    Text(&'a str),
    /// A whole binary message.
    Binary(&'a [u8]),
    /// A ping; wants a pong with these bytes.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// The peer closes: code and reason, if it gave them. The last message.
    Close(Option<(CloseCode, &'a str)>),
}

/// An incremental reader. It keeps a message only while it is incomplete: a whole unfragmented frame is handed out from the input itself.
///
/// **Bound:** it holds at most `max_message` bytes of one message and one control frame. Any input gives messages or a [`Close`], never a panic.
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    max_message: usize,
    header: [u8; MAX_HEADER],
    header_len: usize,
    frame: Option<FrameState>,
    /// The message so far, unmasked.
    message: Vec<u8>,
    /// The opcode of the message, while one is incomplete.
    kind: Option<Opcode>,
    /// How much of `message` is known to be UTF-8.
    valid: usize,
    control: [u8; 125],
    control_len: usize,
}

#[derive(Clone, Copy, Debug)]
struct FrameState {
    fin: bool,
    opcode: Opcode,
    mask: [u8; 4],
    len: usize,
    received: usize,
}

/// A buffer larger than this is given back once its message is handed out.
const KEEP: usize = 4096;

impl Decoder {
    /// A reader for one connection; messages are at most `max_message` bytes.
    pub fn new(role: Role, max_message: usize) -> Decoder {
        Decoder {
            role,
            max_message,
            header: [0; MAX_HEADER],
            header_len: 0,
            frame: None,
            message: Vec::new(),
            kind: None,
            valid: 0,
            control: [0; 125],
            control_len: 0,
        }
    }

    /// Reads on with the next bytes (unmasked in place) and calls `sink` for each message. `Err` is the close that the peer earned, or the one
    /// that `sink` asks for; the decoder must not be used after it, nor after a close message.
    pub fn feed(
        &mut self,
        mut input: &mut [u8],
        mut sink: impl FnMut(Message<'_>) -> Result<(), Close>,
    ) -> Result<(), Close> {
        while !input.is_empty() || self.frame.is_some_and(|frame| frame.received == frame.len) {
            let Some(mut frame) = self.frame else {
                let used = self.read_header(input)?;
                input = &mut input[used..];
                continue;
            };
            let take = input.len().min(frame.len - frame.received);
            let (part, rest) = input.split_at_mut(take);
            input = rest;
            if self.role == Role::Server {
                apply_mask(part, frame.mask, frame.received);
            }
            let whole = frame.received == 0 && take == frame.len;
            frame.received += take;
            let done = frame.received == frame.len;
            self.frame = if done { None } else { Some(frame) };
            if frame.opcode.is_control() {
                self.control(frame.opcode, part, done, &mut sink)?;
            } else if whole && frame.fin && self.message.is_empty() && self.kind == Some(frame.opcode) {
                self.kind = None;
                match frame.opcode {
                    Opcode::Text => sink(Message::Text(std::str::from_utf8(part).map_err(|_| not_utf8())?))?,
                    _ => sink(Message::Binary(part))?,
                }
            } else {
                self.data(part, done && frame.fin, &mut sink)?;
            }
        }
        Ok(())
    }

    /// Whether a frame or a message is incomplete.
    pub fn is_mid_message(&self) -> bool {
        self.header_len > 0 || self.frame.is_some() || self.kind.is_some()
    }

    /// Memory held for an incomplete message, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.message.capacity()
    }

    /// Takes header bytes (§5.2); gives how many. Sets `frame` when the header is whole.
    fn read_header(&mut self, input: &[u8]) -> Result<usize, Close> {
        let mut used = 0;
        while used < input.len() {
            self.header[self.header_len] = input[used];
            self.header_len += 1;
            used += 1;
            if self.header_len == 2 {
                self.check_start()?;
            }
            if self.header_len >= 2 && self.header_len == self.header_size() {
                self.frame = Some(self.parse_header()?);
                self.header_len = 0;
                break;
            }
        }
        Ok(used)
    }

    fn header_size(&self) -> usize {
        let length = match self.header[1] & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if self.header[1] & 0x80 != 0 { 4 } else { 0 }
    }

    /// What the first two bytes alone can be refused for.
    fn check_start(&self) -> Result<(), Close> {
        let [first, second] = [self.header[0], self.header[1]];
        if first & 0x70 != 0 {
            return Err(protocol(
                "reserved bits are set, but no extension was agreed (RFC 6455 section 5.2)",
            ));
        }
        let opcode = Opcode::from_bits(first & 0x0F)
            .ok_or_else(|| protocol("reserved opcode (RFC 6455 section 5.2)"))?;
        match (self.role, second & 0x80 != 0) {
            (Role::Server, false) => return Err(protocol("a client's frame must be masked (section 5.1)")),
            (Role::Client, true) => {
                return Err(protocol("a server's frame must not be masked (section 5.1)"));
            }
            _ => {}
        }
        let fin = first & 0x80 != 0;
        if opcode.is_control() {
            if !fin {
                return Err(protocol("a control frame must not be fragmented (section 5.5)"));
            }
            if second & 0x7F > 125 {
                return Err(protocol("a control frame holds at most 125 bytes (section 5.5)"));
            }
        } else if (opcode == Opcode::Continuation) != self.kind.is_some() {
            return Err(protocol("wrong place in a fragmented message (section 5.4)"));
        }
        Ok(())
    }

    fn parse_header(&mut self) -> Result<FrameState, Close> {
        let h = &self.header;
        let (len, mask_at) = match h[1] & 0x7F {
            126 => (u64::from(u16::from_be_bytes([h[2], h[3]])), 4),
            127 => (u64::from_be_bytes([h[2], h[3], h[4], h[5], h[6], h[7], h[8], h[9]]), 10),
            short => (u64::from(short), 2),
        };
        let shortest = match mask_at {
            4 => len > 125,
            10 => len > 0xFFFF && len >> 63 == 0,
            _ => true,
        };
        if !shortest {
            return Err(protocol("the length must use the fewest bytes (section 5.2)"));
        }
        let fin = h[0] & 0x80 != 0;
        let opcode = Opcode::from_bits(h[0] & 0x0F).ok_or_else(|| protocol("reserved opcode"))?;
        let mask = match self.role {
            Role::Server => [h[mask_at], h[mask_at + 1], h[mask_at + 2], h[mask_at + 3]],
            Role::Client => [0; 4],
        };
        if !opcode.is_control() && len > (self.max_message - self.message.len()) as u64 {
            let reason = format!("a message holds at most {} bytes here", self.max_message);
            return Err(Close::new(CloseCode::TOO_BIG, reason));
        }
        if opcode.is_control() {
            self.control_len = 0;
        } else if opcode != Opcode::Continuation {
            self.kind = Some(opcode);
            self.valid = 0;
        }
        Ok(FrameState { fin, opcode, mask, len: len as usize, received: 0 })
    }

    fn control(
        &mut self,
        opcode: Opcode,
        part: &[u8],
        done: bool,
        sink: &mut impl FnMut(Message<'_>) -> Result<(), Close>,
    ) -> Result<(), Close> {
        self.control[self.control_len..self.control_len + part.len()].copy_from_slice(part);
        self.control_len += part.len();
        if !done {
            return Ok(());
        }
        let payload = &self.control[..self.control_len];
        match opcode {
            Opcode::Ping => sink(Message::Ping(payload)),
            Opcode::Pong => sink(Message::Pong(payload)),
            _ => sink(Message::Close(parse_close(payload)?)),
        }
    }

    fn data(
        &mut self,
        part: &[u8],
        done: bool,
        sink: &mut impl FnMut(Message<'_>) -> Result<(), Close>,
    ) -> Result<(), Close> {
        self.message.extend_from_slice(part);
        let text = self.kind == Some(Opcode::Text);
        if text {
            // Wrong text is refused as soon as it is seen, not at the end of the message (§8.1).
            match std::str::from_utf8(&self.message[self.valid..]) {
                Ok(_) => self.valid = self.message.len(),
                Err(error) if error.error_len().is_none() && !done => self.valid += error.valid_up_to(),
                Err(_) => return Err(not_utf8()),
            }
        }
        if !done {
            return Ok(());
        }
        self.kind = None;
        let mut message = std::mem::take(&mut self.message);
        if text {
            sink(Message::Text(std::str::from_utf8(&message).map_err(|_| not_utf8())?))?;
        } else {
            sink(Message::Binary(&message))?;
        }
        if message.capacity() <= KEEP {
            message.clear();
            self.message = message;
        }
        Ok(())
    }
}

/// §5.5.1: nothing, or a code that may be sent and a reason in UTF-8.
fn parse_close(payload: &[u8]) -> Result<Option<(CloseCode, &str)>, Close> {
    match payload {
        [] => Ok(None),
        [_] => Err(protocol("a close code has two bytes (section 5.5.1)")),
        [high, low, reason @ ..] => {
            let code = CloseCode(u16::from_be_bytes([*high, *low]));
            if !code.may_be_sent() {
                return Err(protocol("this close code must not be sent (section 7.4)"));
            }
            Ok(Some((code, std::str::from_utf8(reason).map_err(|_| not_utf8())?)))
        }
    }
}

fn protocol(reason: &'static str) -> Close {
    Close::new(CloseCode::PROTOCOL, reason)
}

fn not_utf8() -> Close {
    Close::new(CloseCode::INVALID_DATA, "text must be UTF-8 (section 8.1)")
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
