//! What tests need to stand in for a client.

use std::sync::Arc;
use std::task::{Context, Waker};

use super::client::write_frame;
use super::decode::{Decoder, Message, Role};
use super::outbound::{Next, Pending};
use super::{CloseCode, Counters, Limits, Opcode, Outbound};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) const MASK: [u8; 4] = [1, 2, 3, 4];

/// A message from the server, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Text(String),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<CloseCode>),
}

fn decode(decoder: &mut Decoder, bytes: &mut [u8], into: &mut impl Extend<Seen>) {
    let fed = decoder.feed(bytes, |message| {
        into.extend([match message {
            Message::Text(text) => Seen::Text(text.to_owned()),
            Message::Binary(bytes) => panic!("a binary message of {} bytes", bytes.len()),
            Message::Ping(bytes) => Seen::Ping(bytes.to_vec()),
            Message::Pong(bytes) => Seen::Pong(bytes.to_vec()),
            Message::Close(close) => Seen::Close(close.map(|(code, _)| code)),
        }]);
        Ok(())
    });
    assert_eq!(fed, Ok(()), "the server sent a wrong frame");
}

/// The queue of a client without a connection: reads what would be written to it.
pub(crate) struct Listener {
    pub(crate) out: Outbound,
    pending: Pending,
    decoder: Decoder,
}

impl Listener {
    pub(crate) fn new() -> Listener {
        Listener::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Listener {
        let (out, pending) = Outbound::new(limits, Arc::new(Counters::default()));
        Listener { out, pending, decoder: Decoder::new(Role::Client, 16 << 20) }
    }

    /// Everything that waits.
    pub(crate) fn read(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        while self.pending.next(&Context::from_waker(Waker::noop())) == Next::Write {
            let mut slices = [std::io::IoSlice::new(&[]); 64];
            let filled = self.pending.slices(&mut slices);
            let mut joined: Vec<u8> =
                slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
            self.pending.advance(joined.len());
            decode(&mut self.decoder, &mut joined, &mut seen);
        }
        seen
    }

    /// The text messages that wait; there must be nothing else.
    pub(crate) fn texts(&mut self) -> Vec<String> {
        let text = |seen| match seen {
            Seen::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        };
        self.read().into_iter().map(text).collect()
    }
}

/// The far end of a connection.
pub(crate) struct Peer<S> {
    pub(crate) io: S,
    decoder: Decoder,
    seen: std::collections::VecDeque<Seen>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) fn new(io: S) -> Peer<S> {
        Peer { io, decoder: Decoder::new(Role::Client, 16 << 20), seen: Default::default() }
    }

    pub(crate) async fn send(&mut self, opcode: Opcode, payload: &[u8]) {
        let mut frame = Vec::new();
        write_frame(&mut frame, opcode, payload, MASK);
        self.io.write_all(&frame).await.unwrap();
    }

    pub(crate) async fn text(&mut self, text: &str) {
        self.send(Opcode::Text, text.as_bytes()).await;
    }

    /// The next message; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Seen> {
        let mut buffer = [0; 4096];
        while self.seen.is_empty() {
            let n = self.io.read(&mut buffer).await.unwrap_or(0);
            if n == 0 {
                return None;
            }
            decode(&mut self.decoder, &mut buffer[..n], &mut self.seen);
        }
        self.seen.pop_front()
    }
}
