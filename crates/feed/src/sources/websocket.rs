//! Trades from an exchange's WebSocket, as they happen.
//!
//! A thread keeps the connection and puts trades into a bounded queue; [`WebSocketSource`] gives what is in it. When the queue is full the thread
//! reads no more, so that the server's messages wait in the network: nothing that arrived is dropped. What an exchange sends while there is
//! no connection is not asked for afterwards; the holes show in the ids of its trades.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::{ClientConfig, RootCertStore};
use tungstenite::client::uri_mode;
use tungstenite::http::Uri;
use tungstenite::stream::{MaybeTlsStream, Mode};
use tungstenite::{Bytes, Connector, HandshakeError, Message, WebSocket, client_tls_with_config};

use super::completed::now;
use super::exchange::{BITSTAMP_CHANNEL, Format, Parser};
use super::{Flow, Source, SourceStatus};
use crate::gateway::SourceTrade;

/// A connection to an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketConfig {
    /// Where to: `ws://` or `wss://`. The roots of trust for `wss://` are those of the system.
    pub url: String,
    /// Text messages that are sent after each connection, in this order.
    pub subscribe: Vec<String>,
    /// How its messages are read.
    pub format: Format,
    /// Trades that may wait to be asked for (65,536); at least 1.
    pub queue: usize,
    /// How long looking up the name, connecting and both handshakes may take together (10 s).
    pub connect_timeout: Duration,
    /// After so long without a message the server is pinged (20 s): some close connections on which nothing happens.
    pub ping_after: Duration,
    /// After so long without a message or an answer to a ping the connection counts as lost (60 s).
    pub lost_after: Duration,
    /// The wait before the first new connection (100 ms). It doubles with each that brings no message.
    pub backoff: Duration,
    /// The longest wait (30 s).
    pub backoff_limit: Duration,
}

impl WebSocketConfig {
    /// Any exchange, with defaults.
    pub fn new(url: &str, subscribe: Vec<String>, format: Format) -> WebSocketConfig {
        WebSocketConfig {
            url: url.into(),
            subscribe,
            format,
            queue: 65_536,
            connect_timeout: Duration::from_secs(10),
            ping_after: Duration::from_secs(20),
            lost_after: Duration::from_secs(60),
            backoff: Duration::from_millis(100),
            backoff_limit: Duration::from_secs(30),
        }
    }

    /// Bitstamp's live trades of pairs such as `btcusd` (<https://www.bitstamp.net/websocket/v2/>).
    pub fn bitstamp<S: AsRef<str>>(pairs: &[S]) -> WebSocketConfig {
        let subscribe = pairs.iter().map(|pair| {
            let channel = format!("{BITSTAMP_CHANNEL}{}", pair.as_ref());
            serde_json::json!({ "event": "bts:subscribe", "data": { "channel": channel } }).to_string()
        });
        WebSocketConfig::new("wss://ws.bitstamp.net", subscribe.collect(), Format::Bitstamp)
    }

    /// Binance's single spot trades of symbols such as `BTCUSDT`, up to 1024
    /// (<https://developers.binance.com/docs/binance-spot-api-docs/web-socket-streams>).
    pub fn binance<S: AsRef<str>>(symbols: &[S]) -> WebSocketConfig {
        let streams: Vec<String> =
            symbols.iter().map(|symbol| format!("{}@trade", symbol.as_ref().to_lowercase())).collect();
        let url = format!("wss://stream.binance.com:9443/stream?streams={}", streams.join("/"));
        WebSocketConfig::new(&url, Vec::new(), Format::Binance)
    }

    /// Upbit's trades of markets such as `KRW-BTC` (<https://docs.upbit.com/kr/reference/websocket-trade>).
    pub fn upbit<S: AsRef<str>>(codes: &[S]) -> WebSocketConfig {
        let codes: Vec<&str> = codes.iter().map(AsRef::as_ref).collect();
        let subscribe = serde_json::json!([
            { "ticket": "hoga" },
            { "type": "trade", "codes": codes, "is_only_realtime": true },
            { "format": "SIMPLE" }
        ]);
        WebSocketConfig::new("wss://api.upbit.com/websocket/v1", vec![subscribe.to_string()], Format::Upbit)
    }

    /// Kraken's trades of pairs such as `XBT/USD`, by its API v1 (<https://docs.kraken.com/api/docs/websocket-v1/trade>).
    pub fn kraken<S: AsRef<str>>(pairs: &[S]) -> WebSocketConfig {
        let pairs: Vec<&str> = pairs.iter().map(AsRef::as_ref).collect();
        let subscribe =
            serde_json::json!({ "event": "subscribe", "pair": pairs, "subscription": { "name": "trade" } });
        WebSocketConfig::new("wss://ws.kraken.com", vec![subscribe.to_string()], Format::Kraken)
    }
}

/// Why a source cannot be started. What goes wrong later is in [`WebSocketStatus::last_error`], and tried again.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketError {
    /// Not an address.
    #[error("{url:?} is no address of a WebSocket: {reason}. ws://host:port/path or wss://… is expected")]
    Url {
        /// As configured.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting that cannot work.
    #[error("the source {url}: {reason}. Change the configuration")]
    Config {
        /// Of which source.
        url: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Nothing to check servers by.
    #[error(
        "{url}: this system has no root certificates ({reason}). Install its package of them (ca-certificates), or name a file \
         in SSL_CERT_FILE"
    )]
    Roots {
        /// Of which source.
        url: String,
        /// What was tried.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("{url}: TLS cannot be set up: {source}. This is a bug in this build")]
    Tls {
        /// Of which source.
        url: String,
        /// What the library says.
        source: rustls::Error,
    },
    /// No thread.
    #[error("{url}: no thread for the connection: {source}. Check the limits of the process")]
    Thread {
        /// Of which source.
        url: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// How a connection is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSocketStatus {
    /// Whether it is connected and subscribed now.
    pub connected: bool,
    /// Connections that were made after the first.
    pub reconnects: u64,
    /// Messages received, of any kind but pings.
    pub messages: u64,
    /// Trades received.
    pub trades: u64,
    /// Messages that could not be read, or in which the exchange refuses something.
    pub broken: u64,
    /// Times that reading stopped because the queue was full.
    pub waits: u64,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
}

/// A live connection. Dropping it ends its thread, within a second.
pub struct WebSocketSource {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl WebSocketSource {
    /// Starts to connect; returns before there is a connection.
    ///
    /// # Errors
    /// [`WebSocketError`]: for what will not work later either.
    pub fn start(config: WebSocketConfig) -> Result<WebSocketSource, WebSocketError> {
        WebSocketSource::start_with(config, None)
    }

    /// With these roots of trust instead of the system's.
    fn start_with(
        config: WebSocketConfig,
        roots: Option<RootCertStore>,
    ) -> Result<WebSocketSource, WebSocketError> {
        let url = config.url.clone();
        if config.queue == 0 || config.backoff.is_zero() || config.connect_timeout.is_zero() {
            let reason =
                "the queue, the wait before a new connection and the time to connect must be above 0";
            return Err(WebSocketError::Config { url, reason });
        }
        let address = Address::parse(&url)?;
        let connector = match address.mode {
            Mode::Plain => Connector::Plain,
            Mode::Tls => Connector::Rustls(tls(&url, roots)?),
        };
        let shared = Arc::new(Shared {
            limit: config.queue,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            stop: Arc::new(AtomicBool::new(false)),
        });
        let parser = Parser::new(config.format.clone());
        let mut reader =
            Reader { config, address, connector, shared: shared.clone(), parser, found: Vec::new() };
        let thread = thread::Builder::new()
            .name("feed-socket".into())
            .spawn(move || reader.run())
            .map_err(|source| WebSocketError::Thread { url, source })?;
        Ok(WebSocketSource { shared, thread: Some(thread) })
    }

    /// How it is doing.
    pub fn status(&self) -> WebSocketStatus {
        self.shared.lock().status.clone()
    }
}

impl Source for WebSocketSource {
    fn status(&self) -> SourceStatus {
        let status = WebSocketSource::status(self);
        SourceStatus {
            connected: Some(status.connected),
            reconnects: status.reconnects,
            broken: status.broken,
            trades: status.trades,
            fault: status.last_error,
        }
    }

    fn poll(&mut self, _: Duration, most: usize, out: &mut Vec<SourceTrade>) -> Flow {
        let mut state = self.shared.lock();
        let count = state.queue.len().min(most);
        out.extend(state.queue.drain(..count));
        drop(state);
        if count > 0 {
            self.shared.changed.notify_all();
        }
        Flow::Open
    }
}

impl Drop for WebSocketSource {
    fn drop(&mut self) {
        let state = self.shared.lock();
        self.shared.stop.store(true, Ordering::Release);
        drop(state);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn tls(url: &str, roots: Option<RootCertStore>) -> Result<Arc<ClientConfig>, WebSocketError> {
    let roots = match roots {
        Some(roots) => roots,
        None => {
            let found = rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            let (taken, _) = roots.add_parsable_certificates(found.certs);
            if taken == 0 {
                let reason = found.errors.first().map_or("none found".into(), ToString::to_string);
                return Err(WebSocketError::Roots { url: url.into(), reason });
            }
            roots
        }
    };
    // Named, so that what other parts of the process prefer does not matter.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| WebSocketError::Tls { url: url.into(), source })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[derive(Clone, Debug)]
struct Address {
    uri: Uri,
    host: String,
    port: u16,
    mode: Mode,
}

impl Address {
    fn parse(url: &str) -> Result<Address, WebSocketError> {
        let wrong = |reason: String| WebSocketError::Url { url: url.into(), reason };
        let uri: Uri = url.parse().map_err(|error| wrong(format!("{error}")))?;
        let mode = uri_mode(&uri).map_err(|error| wrong(error.to_string()))?;
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it has no host".into()))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(match mode {
            Mode::Plain => 80,
            Mode::Tls => 443,
        });
        Ok(Address { uri, host, port, mode })
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<SourceTrade>,
    status: WebSocketStatus,
}

/// What the thread and the source have in common.
struct Shared {
    limit: usize,
    state: Mutex<State>,
    /// There is room in the queue, or it is to stop.
    changed: Condvar,
    stop: Arc<AtomicBool>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits, but not when it is to stop.
    fn pause(&self, time: Duration) {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, time, |_| !self.stopped());
        drop(waited.expect("nobody panics while holding it"));
    }

    /// Puts trades into the queue, each when there is room.
    fn put(&self, trades: &mut Vec<SourceTrade>) {
        let mut state = self.lock();
        for trade in trades.drain(..) {
            if state.queue.len() >= self.limit {
                state.status.waits += 1;
                let full = |state: &mut State| state.queue.len() >= self.limit && !self.stopped();
                state = self.changed.wait_while(state, full).expect("nobody panics while holding it");
                if self.stopped() {
                    return;
                }
            }
            state.queue.push_back(trade);
            state.status.trades += 1;
        }
    }
}

/// Why a connection ended, or was not made.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("looking up {0}: {1}. Check the name and the network")]
    Lookup(String, io::Error),
    #[error("connecting to {0}: {1}. Check the address and the network")]
    Connect(String, io::Error),
    #[error("{0}: no connection within {1:?}. Check the address and the network")]
    Timeout(String, Duration),
    #[error("{0}: {1}")]
    Socket(String, Box<tungstenite::Error>),
    #[error("{0} closed the connection{1}")]
    Closed(String, String),
    #[error("{0}: nothing was heard for {1:?}, not even an answer to a ping")]
    Silent(String, Duration),
    #[error("stopped")]
    Stopped,
}

/// How often the thread looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// The largest message that is taken, in bytes: far above a list of trades.
const LARGEST: usize = 16 << 20;

/// A socket whose calls return at the latest after [`LOOK`], and fail once it is to stop.
struct Stoppable {
    socket: TcpStream,
    stop: Arc<AtomicBool>,
    /// Until when both handshakes must be done; `None` afterwards.
    deadline: Option<Instant>,
}

impl Stoppable {
    fn check(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Acquire) {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "stopped"));
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "the handshake takes too long"));
        }
        Ok(())
    }
}

impl Read for Stoppable {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.socket.read(buffer)
    }
}

impl Write for Stoppable {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

type Socket = WebSocket<MaybeTlsStream<Stoppable>>;

/// The thread of a connection.
struct Reader {
    config: WebSocketConfig,
    address: Address,
    connector: Connector,
    shared: Arc<Shared>,
    parser: Parser,
    found: Vec<SourceTrade>,
}

impl Reader {
    fn run(&mut self) {
        let (mut wait, mut before) = (self.config.backoff, false);
        while !self.shared.stopped() {
            let messages = self.shared.lock().status.messages;
            let result = self.connect().and_then(|socket| self.follow(socket, &mut before));
            let mut state = self.shared.lock();
            state.status.connected = false;
            if state.status.messages > messages {
                wait = self.config.backoff;
            }
            if let Err(error) = result
                && !self.shared.stopped()
            {
                tracing::warn!(url = self.config.url, ?wait, "{error}; connecting again");
                state.status.last_error = Some(error.to_string());
            }
            drop(state);
            self.shared.pause(wait);
            wait = (wait * 2).min(self.config.backoff_limit.max(self.config.backoff));
        }
    }

    fn url(&self) -> String {
        self.config.url.clone()
    }

    fn failed(&self, error: tungstenite::Error) -> Ended {
        match error {
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                Ended::Closed(self.url(), String::new())
            }
            error => Ended::Socket(self.url(), Box::new(error)),
        }
    }

    /// Name, connection, TLS and WebSocket handshake.
    fn connect(&self) -> Result<Socket, Ended> {
        let deadline = Instant::now() + self.config.connect_timeout;
        let socket = self.dial(deadline)?;
        let prepare = || {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(LOOK))?;
            socket.set_write_timeout(Some(LOOK))
        };
        prepare().map_err(|error| Ended::Connect(self.url(), error))?;
        let stream = Stoppable { socket, stop: self.shared.stop.clone(), deadline: Some(deadline) };
        let limits = tungstenite::protocol::WebSocketConfig::default()
            .max_message_size(Some(LARGEST))
            .max_frame_size(Some(LARGEST));
        let connector = match &self.connector {
            Connector::Rustls(config) => Connector::Rustls(config.clone()),
            _ => Connector::Plain,
        };
        let mut shaken =
            client_tls_with_config(self.address.uri.clone(), stream, Some(limits), Some(connector));
        let mut socket = loop {
            match shaken {
                Ok((socket, _)) => break socket,
                Err(HandshakeError::Failure(error)) => return Err(self.failed(error)),
                Err(HandshakeError::Interrupted(half)) => shaken = half.handshake(),
            }
        };
        match socket.get_mut() {
            MaybeTlsStream::Plain(stream) => stream.deadline = None,
            MaybeTlsStream::Rustls(stream) => stream.sock.deadline = None,
            _ => {}
        }
        Ok(socket)
    }

    /// Neither the lookup of a name nor a connection can be interrupted. So a helper does both; when it is too slow it is left behind, and
    /// ends with its own timeout.
    fn dial(&self, deadline: Instant) -> Result<TcpStream, Ended> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (host, port, timeout) =
            (self.address.host.clone(), self.address.port, self.config.connect_timeout);
        let helper = thread::Builder::new().name("feed-dial".into()).spawn(move || {
            // Nobody may listen any more.
            drop(sender.send(dial(&host, port, timeout)));
        });
        helper.map_err(|error| Ended::Connect(self.url(), error))?;
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(found) => return found,
                Err(_) if self.shared.stopped() => return Err(Ended::Stopped),
                Err(_) if Instant::now() >= deadline => {
                    return Err(Ended::Timeout(self.url(), self.config.connect_timeout));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let error = io::Error::other("the helper ended without an answer");
                    return Err(Ended::Connect(self.url(), error));
                }
            }
        }
    }

    /// Subscribes and reads until the connection ends.
    fn follow(&mut self, mut socket: Socket, before: &mut bool) -> Result<(), Ended> {
        for text in &self.config.subscribe {
            self.write(&mut socket, Message::text(text.as_str()))?;
        }
        let mut state = self.shared.lock();
        state.status.connected = true;
        state.status.reconnects += u64::from(*before);
        drop(state);
        *before = true;
        let (mut heard, mut pinged) = (Instant::now(), false);
        while !self.shared.stopped() {
            match socket.read() {
                Ok(Message::Text(text)) => self.take(text.as_bytes()),
                Ok(Message::Binary(bytes)) => self.take(&bytes),
                // The library answers with the next call.
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Close(frame)) => {
                    let reason =
                        frame.map_or(String::new(), |frame| format!(": {} {}", frame.code, frame.reason));
                    return Err(Ended::Closed(self.url(), reason));
                }
                Err(tungstenite::Error::Io(error)) if would_block(&error) => {
                    if heard.elapsed() >= self.config.lost_after {
                        return Err(Ended::Silent(self.url(), self.config.lost_after));
                    }
                    if !pinged && heard.elapsed() >= self.config.ping_after {
                        pinged = true;
                        self.write(&mut socket, Message::Ping(Bytes::new()))?;
                    }
                    continue;
                }
                Err(error) => return Err(self.failed(error)),
            }
            // Now, not before the queue had room: the server is not to blame for that.
            (heard, pinged) = (Instant::now(), false);
        }
        Err(Ended::Stopped)
    }

    fn write(&self, socket: &mut Socket, message: Message) -> Result<(), Ended> {
        let begun = Instant::now();
        let mut written = socket.send(message);
        loop {
            match written {
                Err(tungstenite::Error::Io(error))
                    if would_block(&error) && begun.elapsed() < self.config.connect_timeout =>
                {
                    written = socket.flush();
                }
                written => return written.map_err(|error| self.failed(error)),
            }
        }
    }

    fn take(&mut self, message: &[u8]) {
        let read = self.parser.read(message, now(), &mut self.found);
        let mut state = self.shared.lock();
        state.status.messages += 1;
        if let Err(error) = read {
            state.status.broken += 1;
            state.status.last_error = Some(format!("{}: {error}", self.config.url));
        }
        drop(state);
        self.shared.put(&mut self.found);
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn dial(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Ended> {
    let name = format!("{host}:{port}");
    let addresses = (host, port).to_socket_addrs().map_err(|error| Ended::Lookup(name.clone(), error))?;
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(Ended::Connect(name, last))
}

#[cfg(test)]
#[path = "websocket_tests.rs"]
mod tests;
