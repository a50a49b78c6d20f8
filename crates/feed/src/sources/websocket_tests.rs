use super::*;
use crate::testing::{LONG, wait_until};
use std::net::TcpListener;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{Data, OpCode};

/// A server at a port of its own.
struct Server {
    listener: TcpListener,
}

impl Server {
    fn new() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Server { listener }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    fn config(&self) -> WebSocketConfig {
        let url = format!("ws://127.0.0.1:{}/feed?x=1", self.port());
        WebSocketConfig::new(&url, vec!["subscribe".into()], Format::Kraken)
    }

    fn start(&self) -> WebSocketSource {
        WebSocketSource::start(self.config()).unwrap()
    }

    /// The next connection, before any handshake.
    fn accept_tcp(&self) -> TcpStream {
        let mut found = None;
        wait_until("a connection", || {
            found = self.listener.accept().ok();
            found.is_some()
        });
        let socket = found.unwrap().0;
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.set_write_timeout(Some(LONG)).unwrap();
        socket
    }

    /// The next connection, subscribed.
    fn accept(&self) -> WebSocket<TcpStream> {
        let mut socket = tungstenite::accept(self.accept_tcp()).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("subscribe"));
        socket
    }
}

/// A trade of Kraken's, with this quantity to tell it by.
fn trade(number: u64) -> String {
    format!(r#"[1,[["5","{number}","1618678142.5","s","l",""]],"trade","XMR/USD"]"#)
}

/// Number and quantity of that many trades.
fn receive(source: &mut WebSocketSource, count: usize) -> Vec<(u64, i64)> {
    let mut out = Vec::new();
    wait_until("trades", || {
        assert_eq!(source.poll(Duration::ZERO, count - out.len(), &mut out), Flow::Open);
        out.len() == count
    });
    out.iter().map(|trade| (trade.tick.id.0, trade.tick.qty.0 / hoga_core::money::SCALE)).collect()
}

fn stops_in_time(what: &str, source: WebSocketSource) {
    let begun = Instant::now();
    drop(source);
    assert!(begun.elapsed() < Duration::from_secs(1), "{what}: {:?}", begun.elapsed());
}

#[test]
fn trades_arrive_in_whatever_form_the_messages_come() {
    let server = Server::new();
    let mut source = server.start();
    let mut socket = server.accept();
    socket.send(Message::text(trade(1))).unwrap();
    socket.send(Message::binary(trade(2))).unwrap();
    // In three frames, with a ping in between.
    let text = trade(3);
    let parts = [&text[..10], &text[10..11], &text[11..]];
    for (at, part) in parts.into_iter().enumerate() {
        let code = if at == 0 { Data::Text } else { Data::Continue };
        let frame = Frame::message(part.to_owned(), OpCode::Data(code), at == 2);
        socket.send(Message::Frame(frame)).unwrap();
        socket.send(Message::Ping(Bytes::from_static(b"are you there"))).unwrap();
    }
    assert_eq!(receive(&mut source, 3), [(1, 1), (2, 2), (3, 3)]);
    for _ in 0..3 {
        assert_eq!(socket.read().unwrap(), Message::Pong(Bytes::from_static(b"are you there")));
    }
    // Byte by byte.
    let text = trade(4);
    let raw = socket.get_mut();
    raw.set_nodelay(true).unwrap();
    for byte in [&[0x81, text.len() as u8][..], text.as_bytes()].concat() {
        raw.write_all(&[byte]).unwrap();
    }
    assert_eq!(receive(&mut source, 1), [(4, 4)]);
    let status = source.status();
    assert_eq!((status.connected, status.messages, status.trades, status.broken), (true, 4, 4, 0));
    assert_eq!((status.reconnects, status.waits, status.last_error), (0, 0, None));
    stops_in_time("connected", source);
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_goes_on() {
    let server = Server::new();
    let mut source = server.start();
    let mut socket = server.accept();
    for text in [r#"{"event":"heartbeat"}"#, "no json", r#"{"errorMessage":"Currency pair not supported"}"#] {
        socket.send(Message::text(text)).unwrap();
    }
    socket.send(Message::text(trade(1))).unwrap();
    assert_eq!(receive(&mut source, 1), [(1, 1)]);
    let status = source.status();
    assert_eq!((status.messages, status.trades, status.broken), (4, 1, 2));
    let error = status.last_error.unwrap();
    assert!(error.contains("Currency pair not supported") && error.contains("127.0.0.1"), "{error}");
}

#[test]
fn it_connects_again_when_the_server_goes() {
    let server = Server::new();
    let mut source = server.start();
    let mut socket = server.accept();
    socket.send(Message::text(trade(1))).unwrap();
    assert_eq!(receive(&mut source, 1), [(1, 1)]);
    // Without a word, with a word, and in the middle of a handshake.
    drop(socket);
    let mut socket = server.accept();
    socket.send(Message::text(trade(2))).unwrap();
    assert_eq!(receive(&mut source, 1), [(2, 2)]);
    socket.close(None).unwrap();
    drop(socket);
    drop(server.accept_tcp());
    let mut socket = server.accept();
    socket.send(Message::text(trade(3))).unwrap();
    assert_eq!(receive(&mut source, 1), [(3, 3)]);
    let status = source.status();
    assert_eq!((status.connected, status.reconnects, status.trades), (true, 2, 3));
    assert!(status.last_error.is_some());
}

#[test]
fn waits_grow_to_their_limit_as_long_as_nothing_comes() {
    let server = Server::new();
    let limit = Duration::from_millis(20);
    let backoff = Duration::from_millis(1);
    let source =
        WebSocketSource::start(WebSocketConfig { backoff, backoff_limit: limit, ..server.config() }).unwrap();
    let begun = Instant::now();
    for _ in 0..10 {
        drop(server.accept_tcp());
    }
    // 1 + 2 + 4 + 8 + 16 + 20 + 20 + 20 + 20.
    assert!(begun.elapsed() >= Duration::from_millis(111), "{:?}", begun.elapsed());
    wait_until("the error", || source.status().last_error.is_some());
    assert!(!source.status().connected);
}

#[test]
fn a_full_queue_lets_the_server_wait_and_loses_nothing() {
    let server = Server::new();
    let mut source = WebSocketSource::start(WebSocketConfig { queue: 10, ..server.config() }).unwrap();
    let mut socket = server.accept();
    for number in 1..=1000 {
        socket.send(Message::text(trade(number))).unwrap();
    }
    wait_until("the queue is full", || source.status().waits == 1);
    assert_eq!(source.shared.lock().queue.len(), 10);
    assert_eq!(source.status().trades, 10);
    let expected: Vec<_> = (1..=1000).map(|number| (number, number as i64)).collect();
    assert_eq!(receive(&mut source, 1000), expected);
    for number in 1..=100 {
        socket.send(Message::text(trade(number))).unwrap();
    }
    wait_until("the queue is full again", || source.shared.lock().queue.len() == 10);
    stops_in_time("with a full queue", source);
}

#[test]
fn a_server_that_says_nothing_blocks_nobody() {
    let server = Server::new();
    stops_in_time("before it was accepted", server.start());
    let server = Server::new();
    let source = server.start();
    let _silent = server.accept_tcp();
    stops_in_time("in the handshake", source);
    let server = Server::new();
    let tls = WebSocketConfig { url: format!("wss://127.0.0.1:{}", server.port()), ..server.config() };
    let source = WebSocketSource::start_with(tls, Some(RootCertStore::empty())).unwrap();
    let _silent = server.accept_tcp();
    stops_in_time("in the TLS handshake", source);
    let server = Server::new();
    let source = server.start();
    let _silent = server.accept();
    wait_until("connected", || source.status().connected);
    stops_in_time("subscribed", source);
    // An address that leads nowhere (RFC 5737).
    let config = WebSocketConfig { url: "ws://192.0.2.1:9/".into(), ..server.config() };
    stops_in_time("connecting", WebSocketSource::start(config).unwrap());
    // Nobody listens there, and it waits for long before it tries again.
    let url = server.config().url;
    drop(server);
    let config =
        WebSocketConfig { backoff: LONG, ..WebSocketConfig::new(&url, Vec::new(), Format::Bitstamp) };
    let source = WebSocketSource::start(config).unwrap();
    wait_until("refused", || source.status().last_error.is_some());
    stops_in_time("between two connections", source);
}

#[test]
fn handshakes_have_a_time_limit() {
    let server = Server::new();
    let connect_timeout = Duration::from_millis(200);
    let config = WebSocketConfig { connect_timeout, ..server.config() };
    let source = WebSocketSource::start(config).unwrap();
    let mut socket = server.accept_tcp();
    // It talks, but comes to no end.
    wait_until("given up", || {
        drop(socket.write_all(b"H"));
        source.status().last_error.is_some()
    });
    let _second = server.accept_tcp();
}

#[test]
fn a_connection_on_which_nothing_is_heard_counts_as_lost() {
    let server = Server::new();
    let (ping_after, lost_after) = (Duration::from_millis(50), Duration::from_secs(1));
    let source =
        WebSocketSource::start(WebSocketConfig { ping_after, lost_after, ..server.config() }).unwrap();
    let mut socket = server.accept();
    // One that answers pings is not lost, though it has nothing to say.
    let begun = Instant::now();
    while begun.elapsed() < lost_after * 2 {
        assert_eq!(socket.read().unwrap(), Message::Ping(Bytes::new()));
        socket.flush().unwrap();
    }
    assert_eq!(source.status(), WebSocketStatus { connected: true, ..WebSocketStatus::default() });
    let _socket = server.accept();
    wait_until("connected again", || source.status().reconnects == 1);
    let error = source.status().last_error.unwrap();
    assert!(error.contains("nothing was heard for 1s"), "{error}");
}

#[test]
fn tls_is_checked_against_the_roots() {
    let server = Server::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.clone()],
            rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        )
        .unwrap();
    let config = Arc::new(config);
    let stream = |socket: TcpStream| {
        rustls::StreamOwned::new(rustls::ServerConnection::new(config.clone()).unwrap(), socket)
    };
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let secure = || WebSocketConfig {
        url: format!("wss://localhost:{}/feed", server.port()),
        backoff: LONG,
        backoff_limit: LONG,
        ..server.config()
    };
    let mut source = WebSocketSource::start_with(secure(), Some(roots)).unwrap();
    let mut socket = tungstenite::accept(stream(server.accept_tcp())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("subscribe"));
    for number in 1..=100 {
        socket.send(Message::text(trade(number))).unwrap();
    }
    assert_eq!(receive(&mut source, 100).last(), Some(&(100, 100)));
    stops_in_time("over TLS", source);
    // Nobody vouches for the server.
    let source = WebSocketSource::start_with(secure(), Some(RootCertStore::empty())).unwrap();
    assert!(tungstenite::accept(stream(server.accept_tcp())).is_err());
    wait_until("refused", || source.status().last_error.is_some());
    let error = source.status().last_error.unwrap();
    assert!(error.contains("certificate"), "{error}");
    assert!(!source.status().connected);
}

#[test]
fn what_never_works_is_refused_at_once() {
    let fault = |url: &str| {
        let config = WebSocketConfig::new(url, Vec::new(), Format::Kraken);
        WebSocketSource::start(config).err().unwrap().to_string()
    };
    for url in ["", "example.org", "http://example.org", "ws://", "ws://a b/"] {
        assert!(fault(url).contains("is no address of a WebSocket"), "{url}: {}", fault(url));
    }
    let config = WebSocketConfig { queue: 0, ..WebSocketConfig::kraken(&["XBT/USD"]) };
    assert!(matches!(WebSocketSource::start(config), Err(WebSocketError::Config { .. })));
}

#[test]
fn presets_ask_for_trades_as_the_exchanges_document_it() {
    let bitstamp = WebSocketConfig::bitstamp(&["btcusd", "ethusd"]);
    assert_eq!(
        bitstamp.subscribe,
        [
            r#"{"data":{"channel":"live_trades_btcusd"},"event":"bts:subscribe"}"#,
            r#"{"data":{"channel":"live_trades_ethusd"},"event":"bts:subscribe"}"#,
        ]
    );
    let binance = WebSocketConfig::binance(&["BTCUSDT", "ETHUSDT"]);
    assert_eq!(
        (binance.url.as_str(), binance.subscribe.len()),
        ("wss://stream.binance.com:9443/stream?streams=btcusdt@trade/ethusdt@trade", 0)
    );
    assert_eq!(
        WebSocketConfig::upbit(&["KRW-BTC"]).subscribe,
        [
            r#"[{"ticket":"hoga"},{"codes":["KRW-BTC"],"is_only_realtime":true,"type":"trade"},{"format":"SIMPLE"}]"#
        ]
    );
    let kraken = WebSocketConfig::kraken(&["XBT/USD"]);
    assert_eq!(
        kraken.subscribe,
        [r#"{"event":"subscribe","pair":["XBT/USD"],"subscription":{"name":"trade"}}"#]
    );
    for config in [bitstamp, binance, WebSocketConfig::upbit(&["KRW-BTC"]), kraken] {
        let address = Address::parse(&config.url).unwrap();
        assert!(matches!(address.mode, Mode::Tls), "{}", config.url);
    }
}
