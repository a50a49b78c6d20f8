//! Signed requests and the frames they travel in: what every client of the lab needs.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::admin::Account;
use crate::load::{LoadError, Symbol, io};

/// Builds signed requests.
pub(crate) struct Signer {
    keys: Vec<(String, Hmac<Sha256>)>,
    /// What was signed last.
    pub(crate) query: String,
}

impl Signer {
    pub(crate) fn new(accounts: &[Account]) -> Signer {
        let keys = accounts
            .iter()
            .map(|a| {
                let mac = Hmac::<Sha256>::new_from_slice(a.secret.as_bytes())
                    .expect("HMAC takes keys of any length");
                (a.key.clone(), mac)
            })
            .collect();
        Signer { keys, query: String::with_capacity(512) }
    }

    /// Signs `key=value` pairs, which must be sorted for the WebSocket API; gives the signature in hex.
    pub(crate) fn sign(&mut self, account: usize, pairs: &[(&str, &str)]) -> String {
        self.query.clear();
        for (i, (key, value)) in pairs.iter().enumerate() {
            if i > 0 {
                self.query.push('&');
            }
            self.query.push_str(key);
            self.query.push('=');
            self.query.push_str(value);
        }
        let mut mac = self.keys[account].1.clone();
        mac.update(self.query.as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }
}

pub(crate) fn decimal(units: i64) -> String {
    hoga_core::money::Amount(units).to_string()
}

pub(crate) fn now_ms() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis()).to_string()
}

/// A masked text frame (RFC 6455, 5.2 and 5.3). The mask is zero: it must be there, and need not hide anything on a loopback.
pub(crate) fn frame(payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x81);
    match payload.len() {
        n @ 0..=125 => out.push(0x80 | n as u8),
        n @ 126..=65_535 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        n => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(n as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

pub(crate) fn handshake(stream: &mut TcpStream, address: &str, path: &str) -> Result<(), LoadError> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: \
         13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(io("opening a WebSocket"))?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).map_err(io("opening a WebSocket"))?;
        head.push(byte[0]);
        if head.len() > 16_384 {
            break;
        }
    }
    if head.starts_with(b"HTTP/1.1 101") {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    Err(LoadError::Protocol { what: "opening a WebSocket", answer })
}

/// The first whole server frame in `buffer`: opcode, where its payload is, and its length in all.
pub(crate) fn server_frame(buffer: &[u8]) -> Option<(u8, std::ops::Range<usize>)> {
    let (&first, &second) = (buffer.first()?, buffer.get(1)?);
    let (at, len) = match second & 0x7F {
        126 => (4, usize::from(u16::from_be_bytes(buffer.get(2..4)?.try_into().ok()?))),
        127 => (10, u64::from_be_bytes(buffer.get(2..10)?.try_into().ok()?) as usize),
        n => (2, usize::from(n)),
    };
    (buffer.len() >= at + len).then_some((first & 0x0F, at..at + len))
}

pub(crate) fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|w| w == what)
}

pub(crate) fn number_after(text: &[u8], what: &[u8]) -> Option<u64> {
    let at = text.windows(what.len()).position(|w| w == what)? + what.len();
    let digits = text[at..].iter().take_while(|b| b.is_ascii_digit());
    digits.fold(None, |n, b| Some(n.unwrap_or(0) * 10 + u64::from(b - b'0')))
}

/// Builds single requests for a client that waits for its answers: the crash loop.
pub struct Sender {
    signer: Signer,
    accounts: Vec<Account>,
}

impl Sender {
    /// For these accounts.
    pub fn new(accounts: &[Account]) -> Sender {
        Sender { signer: Signer::new(accounts), accounts: accounts.to_vec() }
    }

    /// A connection to the WebSocket API, of a server that answers within `patience`.
    pub fn connect(&self, address: &str, patience: Duration) -> Result<TcpStream, LoadError> {
        let mut stream = TcpStream::connect(address).map_err(io("connecting"))?;
        stream.set_nodelay(true).map_err(io("setting TCP_NODELAY"))?;
        stream.set_read_timeout(Some(patience)).map_err(io("setting a timeout"))?;
        handshake(&mut stream, address, "/ws-api/v3")?;
        Ok(stream)
    }

    /// A frame with a limit order: one that rests near the middle, or one that crosses it.
    pub fn place(
        &mut self,
        id: u64,
        account: usize,
        symbol: &Symbol,
        name: &str,
        sell: bool,
        crosses: bool,
    ) -> Vec<u8> {
        let side = if sell != crosses { 1 } else { -1 };
        let price = decimal(symbol.middle + side * (1 + id as i64 % 7) * symbol.tick);
        let (qty, time) = (decimal(symbol.qty), now_ms());
        let key = self.accounts[account].key.clone();
        self.frame(
            id,
            "order.place",
            account,
            &[
                ("apiKey", &key),
                ("newClientOrderId", name),
                ("newOrderRespType", "ACK"),
                ("price", &price),
                ("quantity", &qty),
                ("side", if sell { "SELL" } else { "BUY" }),
                ("symbol", &symbol.name),
                ("timeInForce", if crosses { "IOC" } else { "GTC" }),
                ("timestamp", &time),
                ("type", "LIMIT"),
            ],
        )
    }

    /// A frame with a cancel.
    pub fn cancel(&mut self, id: u64, account: usize, symbol: &Symbol, name: &str) -> Vec<u8> {
        let (key, time) = (self.accounts[account].key.clone(), now_ms());
        self.frame(
            id,
            "order.cancel",
            account,
            &[("apiKey", &key), ("origClientOrderId", name), ("symbol", &symbol.name), ("timestamp", &time)],
        )
    }

    /// Path and query of a page of an account's orders.
    pub fn all_orders(&mut self, account: usize, symbol: &Symbol, from: u64) -> String {
        let (from, time) = (from.to_string(), now_ms());
        let pairs =
            [("symbol", symbol.name.as_str()), ("orderId", &from), ("limit", "1000"), ("timestamp", &time)];
        let signature = self.signer.sign(account, &pairs);
        format!("/api/v3/allOrders?{}&signature={signature}", self.signer.query)
    }

    /// A form with a signature, for REST: the pairs as given, and the time.
    pub fn form(&mut self, account: usize, pairs: &[(&str, &str)]) -> String {
        let time = now_ms();
        let mut pairs = pairs.to_vec();
        pairs.push(("timestamp", &time));
        let signature = self.signer.sign(account, &pairs);
        format!("{}&signature={signature}", self.signer.query)
    }

    fn frame(&mut self, id: u64, method: &str, account: usize, pairs: &[(&str, &str)]) -> Vec<u8> {
        let signature = self.signer.sign(account, pairs);
        let mut out = Vec::new();
        frame(request_json(id, method, pairs, &signature).as_bytes(), &mut out);
        out
    }
}

/// A subscriber of a market stream.
pub struct Watcher {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Watcher {
    /// Connects to a path such as `/ws/btcusdt@depth@0ms`.
    pub fn open(address: &str, path: &str) -> Result<Watcher, LoadError> {
        let mut stream = TcpStream::connect(address).map_err(io("connecting"))?;
        handshake(&mut stream, address, path)?;
        Ok(Watcher { stream, buffer: Vec::new() })
    }

    /// The next text message, if one comes within the limit; `None` also once the server has closed.
    pub fn next(&mut self, limit: Duration) -> Result<Option<String>, LoadError> {
        let until = Instant::now() + limit;
        let mut chunk = [0; 1 << 14];
        loop {
            while let Some((opcode, payload)) = server_frame(&self.buffer) {
                let text = String::from_utf8_lossy(&self.buffer[payload.clone()]).into_owned();
                self.buffer.drain(..payload.end);
                match opcode {
                    0x1 => return Ok(Some(text)),
                    0x8 => return Ok(None),
                    _ => {}
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left)).map_err(io("watching"))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(source) => return Err(io("watching")(source)),
            }
        }
    }
}

/// The next whole answer in `buffer`, which it leaves: request id and status.
pub fn parse_answer(buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
    loop {
        let (opcode, payload) = server_frame(buffer)?;
        let end = payload.end;
        let answer = (opcode == 0x1)
            .then(|| &buffer[payload])
            .and_then(|text| Some((number_after(text, b"\"id\":")?, number_after(text, b"\"status\":")?)));
        buffer.drain(..end);
        if answer.is_some() {
            return answer;
        }
    }
}

pub(crate) fn request_json(id: u64, method: &str, pairs: &[(&str, &str)], signature: &str) -> String {
    let mut json = format!("{{\"id\":{id},\"method\":\"{method}\",\"params\":{{");
    for (key, value) in pairs {
        let quote = if *key == "timestamp" { "" } else { "\"" };
        json.push_str(&format!("\"{key}\":{quote}{value}{quote},"));
    }
    json.push_str(&format!("\"signature\":\"{signature}\"}}}}"));
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_whole_or_not_at_all() {
        let mut wire = vec![0x81, 126, 0, 200];
        wire.extend_from_slice(&[b'x'; 200]);
        for cut in 0..wire.len() {
            assert!(server_frame(&wire[..cut]).is_none(), "{cut}");
        }
        assert_eq!(server_frame(&wire), Some((1, 4..204)));
    }

    #[test]
    fn answers_are_scanned() {
        let text = br#"{"id":1234,"status":200,"result":{"orderId":5}}"#;
        assert_eq!(number_after(text, b"\"id\":"), Some(1234));
        assert_eq!(number_after(text, b"\"status\":"), Some(200));
        assert_eq!(number_after(text, b"\"none\":"), None);
        assert!(!contains(text, b"-2011"));
    }
}
