//! The other end: what a load generator or a test needs to talk to a server.

use super::accept_key;
use super::frame::{Opcode, apply_mask, write_header};

/// Appends a final, masked frame (RFC 6455 §5.3), as a client sends it.
pub fn write_frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    write_fragment(out, true, opcode, payload, mask);
}

/// Appends one masked frame of a message in fragments (§5.4): the first has the message's opcode, the others [`Opcode::Continuation`].
pub fn write_fragment(out: &mut Vec<u8>, fin: bool, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    write_header(out, fin, opcode, payload.len(), Some(mask));
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(&mut out[start..], mask, 0);
}

/// The bytes of an opening handshake (§4.1). `key` is 16 random bytes in base64; `headers` are further lines, each ended by CR LF.
pub fn handshake(host: &str, target: &str, key: &str, headers: &str) -> Vec<u8> {
    format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{headers}\r\n"
    )
    .into_bytes()
}

/// Looks for the end of the server's answer to a handshake. `None`: not there yet. `Some(Ok(n))`: accepted, frames begin after `n` bytes.
/// `Some(Err(head))`: refused; the head as text.
pub fn handshake_answer(received: &[u8], key: &str) -> Option<Result<usize, String>> {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&received[..end]).into_owned();
    let accept = accept_key(key.as_bytes());
    let confirmed = head.lines().any(|line| {
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == accept
        })
    });
    if head.starts_with("HTTP/1.1 101") && confirmed { Some(Ok(end)) } else { Some(Err(head)) }
}
