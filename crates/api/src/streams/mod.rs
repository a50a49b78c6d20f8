//! Market streams as Binance serves them: `/ws`, `/ws/<name>` with bare messages, `/stream?streams=<name>/<name>` with messages wrapped as
//! `{"stream":<name>,"data":<body>}`. ccxt puts a number behind its base address: `/ws/<n>`, and `/stream/<n>` or `/stream/ws/<n>` when the base
//! is chosen so that spot is told from futures by the text `/stream`. It expects bare messages there (wrapped arrays it does not read), so below
//! `/stream/` messages are bare.
//!
//! Own to Hoga: `@depth@0ms` and `@depth<levels>@0ms` in real time; a new subscriber to a ticker, candle, book ticker or partial depth gets the
//! current value soon even when nothing changes; an unknown market is an error, where Binance acknowledges and stays silent.

mod name;
mod request;

#[cfg(test)]
mod tests;

use std::fmt;

use hoga_core::instrument::Name;

pub use name::parse as parse_name;

use crate::hub::{Form, Hub, Stream};
use crate::json::write_string;
use crate::ws::{Close, CloseCode, Handler, Incoming, Outbound};
use request::{Method, Refusal, Request, answer};

/// Streams that one connection may subscribe to (Binance: 1024).
pub const MAX_STREAMS: usize = 1024;

/// What the address of a connection asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether messages are wrapped with their stream's name.
    pub combined: bool,
    /// Streams to subscribe to at once, in order, with their names as the client spelled them.
    streams: Vec<(String, Stream)>,
}

/// Why an address is refused: answered with HTTP 400 before the upgrade.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not a stream's name.
    #[error("'{0}' is not the name of a stream")]
    Name(String),
    /// A stream of a market that does not exist.
    #[error("there is no market for stream '{0}'")]
    UnknownMarket(String),
    /// More streams than one connection may have.
    #[error("a connection takes at most {MAX_STREAMS} streams")]
    TooMany,
}

impl TargetError {
    /// The code and text for the client, as the REST API words them.
    pub fn code_and_message(&self) -> (i32, String) {
        match self {
            TargetError::UnknownMarket(_) => (-1121, "Invalid symbol.".to_owned()),
            other => (-1100, format!("Illegal characters found in parameter 'streams'; {other}.")),
        }
    }
}

/// Reads path and query of an upgrade request. `None`: not an address of market streams.
pub fn target(path: &str, query: Option<&str>, hub: &Hub) -> Option<Result<Target, TargetError>> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (combined, segment) = match path {
        "/stream" => (true, ""),
        "/ws" | "/stream/ws" => (false, ""),
        // The longest prefix first; a name may itself hold no slash.
        _ => {
            let prefixes = ["/stream/ws/", "/stream/", "/ws/"];
            (false, prefixes.iter().find_map(|prefix| path.strip_prefix(prefix))?)
        }
    };
    let mut names = Vec::new();
    for segment in segment.split('/') {
        let name = unescape(segment);
        // A segment without these is no stream name: ccxt numbers its connections.
        if name.contains('@') || name.starts_with('!') {
            names.push(name);
        } else if segment.contains('%') || name.len() > 20 {
            return None;
        }
    }
    for pair in query.unwrap_or_default().split('&') {
        if let Some(list) = pair.strip_prefix("streams=") {
            names.extend(unescape(list).split('/').filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    Some(resolve(names, hub).map(|streams| Target { combined, streams }))
}

fn resolve(names: Vec<String>, hub: &Hub) -> Result<Vec<(String, Stream)>, TargetError> {
    if names.len() > MAX_STREAMS {
        return Err(TargetError::TooMany);
    }
    let mut streams: Vec<(String, Stream)> = Vec::with_capacity(names.len());
    for name in names {
        if streams.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let Some(stream) = parse_name(&name) else { return Err(TargetError::Name(cut(&name))) };
        if let Stream::Market(symbol, _) = &stream
            && hub.market(symbol.as_str()).is_none()
        {
            return Err(TargetError::UnknownMarket(cut(&name)));
        }
        streams.push((name, stream));
    }
    Ok(streams)
}

/// At most 60 characters of a client's text, for a message.
fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Resolves `%xx`; what is no such escape stays as it is, and no stream name has it.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| (*b as char).to_digit(16));
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) = (hex(at + 1), hex(at + 2))
        {
            out.push((high * 16 + low) as u8);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// One connection's subscriptions.
pub struct Session {
    hub: Hub,
    out: Outbound,
    /// The number under which the hub knows the client; `None` when the server is going down.
    member: Option<u64>,
    combined: bool,
    /// In the order of subscription.
    streams: Vec<(String, Stream)>,
}

impl Session {
    /// Subscribes a connection to what its address asks for.
    pub fn open(hub: Hub, target: Target, out: Outbound) -> Session {
        let member = hub.join(&out, target.combined);
        let mut session = Session { hub, out, member, combined: target.combined, streams: Vec::new() };
        for (name, stream) in target.streams {
            session.add(name, stream);
        }
        session
    }

    fn form(combined: bool, name: &str) -> Form {
        if combined { Form::Combined(name.into()) } else { Form::Raw }
    }

    fn add(&mut self, name: String, stream: Stream) -> bool {
        let added = self.hub.subscribe(&stream, &Session::form(self.combined, &name), &self.out);
        if added {
            self.streams.push((name, stream));
        }
        added
    }

    fn remove(&mut self, name: &str) {
        if let Some(at) = self.streams.iter().position(|(known, _)| known == name) {
            let (name, stream) = self.streams.remove(at);
            self.hub.unsubscribe(&stream, &Session::form(self.combined, &name), &self.out);
        }
    }

    /// All or nothing: a request with one bad name changes nothing.
    fn subscribe(&mut self, names: &[&str]) -> Result<(), Refusal> {
        let invalid = || Refusal::new(2, "Invalid request: invalid stream");
        let mut new: Vec<(String, Stream)> = Vec::new();
        for name in names {
            if self.streams.iter().chain(&new).any(|(known, _)| known == name) {
                continue;
            }
            let stream = parse_name(name).ok_or_else(invalid)?;
            if let Stream::Market(symbol, _) = &stream
                && !self.has_market(symbol)
            {
                return Err(invalid());
            }
            new.push(((*name).to_owned(), stream));
            if self.streams.len() + new.len() > MAX_STREAMS {
                let message = format!("Invalid request: a connection takes at most {MAX_STREAMS} streams");
                return Err(Refusal::new(2, message));
            }
        }
        for (name, stream) in new {
            self.add(name, stream);
        }
        Ok(())
    }

    fn has_market(&self, symbol: &Name) -> bool {
        self.hub.market(symbol.as_str()).is_some()
    }

    fn set_combined(&mut self, combined: bool) {
        if combined == self.combined {
            return;
        }
        self.combined = combined;
        for (name, stream) in &self.streams {
            let (from, to) = (Session::form(!combined, name), Session::form(combined, name));
            self.hub.reform(stream, &from, &to, &self.out);
        }
        if let Some(member) = self.member {
            self.hub.set_combined(member, combined);
        }
    }

    /// Does what a request asks for; gives the result as JSON.
    fn handle(&mut self, request: &Request) -> Result<Vec<u8>, Refusal> {
        match request.method {
            Method::Subscribe => self.subscribe(&request.names()?)?,
            Method::Unsubscribe => {
                for name in request.names()? {
                    self.remove(name);
                }
            }
            Method::ListSubscriptions => {
                let mut list = vec![b'['];
                for (i, (name, _)) in self.streams.iter().enumerate() {
                    if i > 0 {
                        list.push(b',');
                    }
                    write_string(&mut list, name);
                }
                list.push(b']');
                return Ok(list);
            }
            Method::SetProperty => {
                if let Some(combined) = request.property()? {
                    self.set_combined(combined);
                }
            }
            Method::GetProperty => {
                request.property()?;
                return Ok(if self.combined { b"true".to_vec() } else { b"false".to_vec() });
            }
        }
        Ok(b"null".to_vec())
    }
}

impl Handler for Session {
    fn message(&mut self, message: Incoming<'_>) -> Result<(), Close> {
        let Incoming::Text(text) = message else {
            return Err(Close::new(CloseCode::UNSUPPORTED, "market streams take text messages only"));
        };
        let outcome = Request::parse(text).and_then(|request| match self.handle(&request) {
            Ok(result) => Ok(answer(&result, &request.id)),
            Err(refusal) => Err(Refusal { id: Some(request.id), ..refusal }),
        });
        let reply = outcome.unwrap_or_else(|refusal| refusal.encode());
        self.out.send_text(&reply);
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for (name, stream) in std::mem::take(&mut self.streams) {
            self.hub.unsubscribe(&stream, &Session::form(self.combined, &name), &self.out);
        }
        if let Some(member) = self.member {
            self.hub.leave(member);
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("combined", &self.combined)
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}
