//! One connection: a task that reads, writes, pings and ends it.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::close::{Close, CloseCode};
use super::decode::{Decoder, Message, Role};
use super::frame::Opcode;
use super::outbound::{Counters, Limits, Next, Outbound, Pending};

/// The bounds of a connection. [`Config::default`] is for market streams, [`Config::api`] for the WebSocket API.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest incoming message, in bytes; a larger one is closed with 1009.
    pub max_message: usize,
    /// What may wait for the client; see [`Outbound`].
    pub limits: Limits,
    /// How often the server pings. (Binance: every 20 s.)
    pub ping_every: Duration,
    /// With nothing from the client for this long, not even a pong, it is cut. (Binance: a minute.)
    pub idle_cut: Duration,
    /// The age at which a connection is closed. (Binance: 24 hours.)
    pub max_life: Duration,
    /// Incoming messages a second, pings and pongs counted; more is closed with 1008. (Binance market streams: 5.) `None`: no limit here.
    pub inbound_per_second: Option<u32>,
    /// While more than this waits for the client, nothing is read from it: who does not read answers cannot ask on.
    pub read_pause_bytes: usize,
    /// How long a closed connection may take to hand out its last bytes.
    pub close_within: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_message: 64 * 1024,
            limits: Limits::default(),
            ping_every: Duration::from_secs(20),
            idle_cut: Duration::from_secs(60),
            max_life: Duration::from_secs(24 * 3600),
            inbound_per_second: Some(5),
            read_pause_bytes: 256 * 1024,
            close_within: Duration::from_secs(2),
        }
    }
}

impl Config {
    /// For request and answer: no limit of messages a second, since requests have weights.
    pub fn api() -> Config {
        Config { inbound_per_second: None, ..Config::default() }
    }
}

/// A message from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

/// What a connection is for. Called on the connection's task, so it must not block; it answers through the [`Outbound`] it was made with.
/// Dropped when the connection ends: that is the place to unsubscribe.
pub trait Handler: Send {
    /// A whole message came. `Err` closes the connection.
    fn message(&mut self, message: Incoming<'_>) -> Result<(), Close>;

    /// Whether it takes more: nothing is read from the client while it is pending, and the task is woken as for any future. Messages that came
    /// in one read are handed over all the same.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// All messages of one read were handed over: the place to submit what they asked for in one go.
    fn batch_end(&mut self) {}
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer sent a close frame.
    ByPeer,
    /// This side closed: [`Outbound::close`], or the handler.
    ByServer,
    /// The socket ended without a close frame.
    Gone,
    /// The peer broke the protocol or a size limit.
    Protocol,
    /// More waited for the peer than it may have.
    TooSlow,
    /// The peer sent more messages a second than it may.
    TooMany,
    /// Nothing came from the peer, no pong either.
    Idle,
    /// The connection reached its age limit.
    TooOld,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Why.
    pub ending: Ending,
    /// The close code, when a close frame was sent by the side that began.
    pub code: Option<CloseCode>,
}

/// Waits for hyper's upgrade and runs the connection until it ends. `make` makes the handler, with the handle to send through. Where the
/// connection is a plain TCP stream it is taken out of hyper, so that reads and writes go straight to the socket.
pub async fn serve<H: Handler>(
    upgrade: OnUpgrade,
    config: Config,
    counters: Arc<Counters>,
    make: impl FnOnce(Outbound) -> H,
) -> Closed {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            tracing::debug!(%error, "the client left during the WebSocket handshake");
            return Closed { ending: Ending::Gone, code: None };
        }
    };
    match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) => {
            let stream = parts.io.into_inner();
            // Messages leave when they are written, not when the peer acknowledges the one before.
            let _ = stream.set_nodelay(true);
            run(stream, parts.read_buf, config, counters, make).await
        }
        Err(upgraded) => run(TokioIo::new(upgraded), Bytes::new(), config, counters, make).await,
    }
}

/// Runs a connection over any stream whose handshake is done. `ahead` is what was read from it already.
pub async fn run<S, H>(
    io: S,
    ahead: Bytes,
    config: Config,
    counters: Arc<Counters>,
    make: impl FnOnce(Outbound) -> H,
) -> Closed
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Handler,
{
    Counters::add(&counters.opened, 1);
    let (out, pending) = Outbound::new(config.limits, Arc::clone(&counters));
    let handler = make(out);
    let now = Instant::now();
    let mut connection = Connection {
        io,
        decoder: Decoder::new(Role::Server, config.max_message),
        inbound: Inbound { handler, heard: now, window: now, in_window: 0, peer_close: None },
        pending,
        timer: Box::pin(tokio::time::sleep_until(now + config.ping_every.min(config.idle_cut))),
        born: now,
        phase: Phase::Open,
        ending: None,
        config,
    };
    if !ahead.is_empty() {
        connection.received(&mut ahead.to_vec());
    }
    let closed = poll_fn(|context| connection.poll(context)).await;
    let counter = match closed.ending {
        Ending::TooMany => Some(&counters.cut_rate),
        Ending::Idle => Some(&counters.cut_idle),
        Ending::Protocol => Some(&counters.protocol_errors),
        _ => None,
    };
    if let Some(counter) = counter {
        Counters::add(counter, 1);
    }
    Counters::add(&counters.closed, 1);
    closed
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Frames go both ways.
    Open,
    /// This side closes: what waits and the close frame go out; when they are, `Shut` follows, at the latest at the deadline.
    Closing,
    /// Everything is written; the socket's write side is being shut.
    Shut,
    /// Waiting for the peer's end, so that our last bytes are not lost by a reset (§7.1.1); what comes in is thrown away.
    Linger,
}

struct Connection<S, H> {
    io: S,
    decoder: Decoder,
    inbound: Inbound<H>,
    pending: Pending,
    /// The next thing to do by the clock: a ping, a cut, or the end of a phase.
    timer: Pin<Box<Sleep>>,
    born: Instant,
    phase: Phase,
    ending: Option<Closed>,
    config: Config,
}

/// What reading changes.
struct Inbound<H> {
    handler: H,
    /// When something last came.
    heard: Instant,
    /// Start of the second in which messages are being counted.
    window: Instant,
    in_window: u32,
    peer_close: Option<Option<CloseCode>>,
}

/// Bytes read at once. The buffer belongs to the thread, so that an idle connection has none.
const READ: usize = 64 * 1024;

/// Slices of one vectored write.
const SLICES: usize = 128;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<S: AsyncRead + AsyncWrite + Unpin, H: Handler> Connection<S, H> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Closed> {
        loop {
            while self.timer.as_mut().poll(context).is_ready() {
                if self.timer_fired() {
                    return Poll::Ready(self.closed(Ending::Gone));
                }
            }
            // Writes first: answers of the last round, and room to read on.
            if let Poll::Ready(Err(_)) = self.poll_write(context) {
                return Poll::Ready(self.closed(Ending::Gone));
            }
            match self.poll_read(context) {
                Poll::Ready(Read::Some) => {}
                Poll::Ready(Read::End) => return Poll::Ready(self.closed(Ending::Gone)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn closed(&mut self, otherwise: Ending) -> Closed {
        self.ending.take().unwrap_or(Closed { ending: otherwise, code: None })
    }

    /// Writes until nothing waits or the socket takes no more.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            match self.phase {
                Phase::Open | Phase::Closing => {}
                Phase::Shut => {
                    let _ = ready!(Pin::new(&mut self.io).poll_shutdown(context));
                    self.phase = Phase::Linger;
                    continue;
                }
                Phase::Linger => return Poll::Pending,
            }
            if self.phase == Phase::Open {
                match self.pending.closing() {
                    Some(true) => self.begin_closing(Ending::TooSlow, Some(CloseCode::POLICY)),
                    Some(false) => self.begin_closing(Ending::ByServer, None),
                    None => {}
                }
            }
            match self.pending.next(context) {
                Next::Write => {
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let filled = self.pending.slices(&mut slices);
                    let n = ready!(Pin::new(&mut self.io).poll_write_vectored(context, &slices[..filled]))?;
                    if n == 0 {
                        return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
                    }
                    self.pending.advance(n);
                }
                Next::Wait => return Poll::Pending,
                Next::Done => self.phase = Phase::Shut,
            }
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Read> {
        if self.phase == Phase::Open && self.pending.bytes() > self.config.read_pause_bytes {
            // The write that is under way wakes the task.
            return Poll::Pending;
        }
        if self.phase == Phase::Open {
            ready!(self.inbound.handler.poll_ready(context));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(READ, 0);
            let mut buffer = ReadBuf::new(scratch);
            match ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    if self.phase == Phase::Open {
                        self.received(buffer.filled_mut());
                    }
                    Poll::Ready(Read::Some)
                }
                _ => Poll::Ready(Read::End),
            }
        })
    }

    /// Handles bytes from the client.
    fn received(&mut self, bytes: &mut [u8]) {
        self.inbound.heard = Instant::now();
        let (inbound, pending) = (&mut self.inbound, &mut self.pending);
        let per_second = self.config.inbound_per_second;
        let mut ending = Ending::Protocol;
        let outcome = self.decoder.feed(bytes, |message| {
            inbound.message(message, pending, per_second).map_err(|(why, close)| {
                ending = why;
                close
            })
        });
        if let Err(close) = outcome {
            match inbound.peer_close {
                Some(None) => self.pending.end_without_code(),
                // Answers to what came before a wrong frame are still sent.
                _ => self.pending.end(&close, ending != Ending::Protocol && ending != Ending::ByServer),
            }
            self.begin_closing(ending, Some(close.code));
        } else {
            self.inbound.handler.batch_end();
        }
    }

    /// From now on only what is queued goes out, within a time.
    fn begin_closing(&mut self, ending: Ending, code: Option<CloseCode>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
            self.ending.get_or_insert(Closed { ending, code });
            self.timer.as_mut().reset(Instant::now() + self.config.close_within);
        }
    }

    /// Pings, cuts or ends by the clock. True: the connection is over.
    fn timer_fired(&mut self) -> bool {
        if self.phase != Phase::Open {
            return true;
        }
        let now = Instant::now();
        let idle_at = self.inbound.heard + self.config.idle_cut;
        let old_at = self.born + self.config.max_life;
        if now >= idle_at {
            self.pending.end(&Close::new(CloseCode::POLICY, "no pong within the time allowed"), true);
            self.begin_closing(Ending::Idle, Some(CloseCode::POLICY));
        } else if now >= old_at {
            let close = Close::new(CloseCode::GOING_AWAY, "the connection reached its age limit");
            self.pending.end(&close, false);
            self.begin_closing(Ending::TooOld, Some(CloseCode::GOING_AWAY));
        } else {
            self.pending.urgent(Opcode::Ping, b"");
            let next = now + self.config.ping_every;
            self.timer.as_mut().reset(next.min(idle_at).min(old_at));
        }
        false
    }
}

enum Read {
    Some,
    End,
}

impl<H: Handler> Inbound<H> {
    fn message(
        &mut self,
        message: Message<'_>,
        pending: &mut Pending,
        per_second: Option<u32>,
    ) -> Result<(), (Ending, Close)> {
        if let Message::Close(close) = message {
            // §5.5.1: answered with a close frame of the same code. §7.1.1: the server ends the TCP connection first.
            let code = close.map(|(code, _)| code);
            self.peer_close = Some(code);
            return Err((Ending::ByPeer, Close::new(code.unwrap_or(CloseCode::NORMAL), "")));
        }
        if let Some(limit) = per_second {
            if self.heard.duration_since(self.window) >= Duration::from_secs(1) {
                self.window = self.heard;
                self.in_window = 0;
            }
            self.in_window += 1;
            if self.in_window > limit {
                let reason = format!("more than {limit} messages in a second");
                return Err((Ending::TooMany, Close::new(CloseCode::POLICY, reason)));
            }
        }
        let by_handler = |close| (Ending::ByServer, close);
        match message {
            Message::Text(text) => {
                Counters::add(&pending.counters().messages_in, 1);
                self.handler.message(Incoming::Text(text)).map_err(by_handler)
            }
            Message::Binary(bytes) => {
                Counters::add(&pending.counters().messages_in, 1);
                self.handler.message(Incoming::Binary(bytes)).map_err(by_handler)
            }
            Message::Ping(payload) => {
                // §5.5.3: at once, with the same bytes.
                pending.urgent(Opcode::Pong, payload);
                Ok(())
            }
            Message::Pong(_) | Message::Close(_) => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
