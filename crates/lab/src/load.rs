//! The load generator: signed orders through the public API at planned times (open loop), from one sending and one receiving thread.
//!
//! Every latency is measured from the *planned* send time, so a stalled server does not slow the plan down and hide its own stall
//! (coordinated omission).

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::admin::Account;
use crate::report::histogram;
use crate::request::{
    Signer, contains, decimal, frame, handshake, now_ms, number_after, request_json, server_frame,
};

/// How orders travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The WebSocket API, many requests under way on each connection.
    Ws,
    /// REST, one request at a time on each kept-alive connection.
    Http,
}

/// A market to trade in.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Price step in units of 10⁻⁸.
    pub tick: i64,
    /// The middle of the generated prices, in units.
    pub middle: i64,
    /// Quantity of every order, in units.
    pub qty: i64,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `host:port`.
    pub address: String,
    /// How orders travel.
    pub transport: Transport,
    /// Requests a second.
    pub rate: f64,
    /// Time that is not counted.
    pub warmup: Duration,
    /// Time that is counted.
    pub counted: Duration,
    /// Who trades.
    pub accounts: Vec<Account>,
    /// Where.
    pub symbols: Vec<Symbol>,
    /// Connections.
    pub connections: usize,
    /// What client order ids begin with: another for each run against the same exchange, which refuses the id of an open order.
    pub prefix: String,
}

/// What came of it.
pub struct Outcome {
    /// From planned time to answer, in nanoseconds.
    pub latency: Histogram<u64>,
    /// From planned time to the depth update at a subscriber, in nanoseconds.
    pub depth: Histogram<u64>,
    /// Answers in the counted time.
    pub answered: u64,
    /// Answers by which the exchange refused an order by its rules (a cancel of an order that had traded meanwhile).
    pub rejected: u64,
    /// Answers that were errors, and answers that never came.
    pub errors: u64,
    /// The first such answer, to look at.
    pub first_error: Option<String>,
    /// How late the generator itself was: the 99th percentile of sending after the planned time, in nanoseconds.
    pub send_lag_p99: u64,
}

/// Why the load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server cannot be reached or breaks the connection.
    #[error("load: {what}: {source}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The server's answer is no answer to what was asked.
    #[error("load: {what}: {answer}")]
    Protocol {
        /// While doing what.
        what: &'static str,
        /// What came.
        answer: String,
    },
}

pub(crate) fn io(what: &'static str) -> impl Fn(std::io::Error) -> LoadError {
    move |source| LoadError::Io { what, source }
}

/// Requests under way on one WebSocket connection at most: a bound on what the generator remembers.
const WINDOW: usize = 16_384;
/// One order in this many is a probe: its depth update is waited for.
const PROBE_EVERY: u64 = 100;
/// Probes use this many prices in turn, far from the middle.
const PROBE_PRICES: u64 = 2_000;

struct Connection {
    stream: TcpStream,
    /// Planned times of the requests under way: WebSocket by id modulo `WINDOW`, HTTP at 0. Nanoseconds since the start.
    planned: Vec<AtomicU64>,
    in_flight: AtomicUsize,
}

struct Shared {
    start: Instant,
    stop: AtomicBool,
    connections: Vec<Connection>,
    probes: Mutex<HashMap<i64, u64>>,
}

struct Tally {
    latency: Histogram<u64>,
    answered: u64,
    rejected: u64,
    errors: u64,
    first_error: Option<String>,
}

/// Runs the plan to its end.
pub fn run(plan: &Plan) -> Result<Outcome, LoadError> {
    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        let mut stream = TcpStream::connect(&plan.address).map_err(io("connecting"))?;
        stream.set_nodelay(true).map_err(io("setting TCP_NODELAY"))?;
        if plan.transport == Transport::Ws {
            handshake(&mut stream, &plan.address, "/ws-api/v3")?;
        }
        stream.set_nonblocking(true).map_err(io("setting O_NONBLOCK"))?;
        let slots = if plan.transport == Transport::Ws { WINDOW } else { 1 };
        let planned = (0..slots).map(|_| AtomicU64::new(0)).collect();
        connections.push(Connection { stream, planned, in_flight: AtomicUsize::new(0) });
    }
    let shared = Arc::new(Shared {
        start: Instant::now(),
        stop: AtomicBool::new(false),
        connections,
        probes: Mutex::new(HashMap::new()),
    });
    let watcher = watch_depth(plan, &shared)?;
    let receiver = {
        let (shared, plan) = (Arc::clone(&shared), plan.clone());
        std::thread::spawn(move || receive(&plan, &shared))
    };
    let send_lag = send(plan, &shared);
    // What is still under way may take a while; then it counts as lost.
    let patience = Instant::now() + Duration::from_secs(10);
    let under_way = || shared.connections.iter().map(|c| c.in_flight.load(Ordering::Acquire)).sum::<usize>();
    while under_way() > 0 && Instant::now() < patience && !receiver.is_finished() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let lost = under_way() as u64;
    shared.stop.store(true, Ordering::Release);
    let tally = receiver
        .join()
        .map_err(|_| LoadError::Protocol { what: "receiving", answer: "panicked".into() })??;
    let depth = watcher
        .join()
        .map_err(|_| LoadError::Protocol { what: "watching the depth", answer: "panicked".into() })??;
    Ok(Outcome {
        latency: tally.latency,
        depth,
        answered: tally.answered,
        rejected: tally.rejected,
        errors: tally.errors + lost,
        first_error: tally.first_error.or_else(|| (lost > 0).then(|| format!("{lost} answers never came"))),
        send_lag_p99: send_lag?.value_at_quantile(0.99),
    })
}

/// Decides what each request is: of ten, five new resting orders, four cancels of older ones, and one order that crosses.
struct Mix {
    resting: VecDeque<(u64, usize, usize)>,
    state: u64,
}

enum Action {
    Place { symbol: usize, account: usize, sell: bool, price: i64, ioc: bool },
    Cancel { symbol: usize, account: usize, number: u64 },
}

impl Mix {
    fn random(&mut self) -> u64 {
        // xorshift64*: a load generator needs speed and a seed, not quality.
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn next(&mut self, plan: &Plan, number: u64) -> Action {
        let symbol = (self.random() % plan.symbols.len() as u64) as usize;
        let account = (self.random() % plan.accounts.len() as u64) as usize;
        let market = &plan.symbols[symbol];
        if number.is_multiple_of(PROBE_EVERY) {
            let step = 1_000 + (number / PROBE_EVERY % PROBE_PRICES) as i64;
            let price = plan.symbols[0].middle - step * plan.symbols[0].tick;
            self.resting.push_back((number, 0, account));
            return Action::Place { symbol: 0, account, sell: false, price, ioc: false };
        }
        let sell = self.random() & 1 == 1;
        let side = if sell { 1 } else { -1 };
        match number % 10 {
            1 | 3 | 5 | 7 if self.resting.len() > 2_000 => {
                let (number, symbol, account) = self.resting.pop_front().expect("it is not empty");
                Action::Cancel { symbol, account, number }
            }
            9 => {
                let price = market.middle - side * 30 * market.tick;
                Action::Place { symbol, account, sell, price, ioc: true }
            }
            _ => {
                let distance = 1 + (self.random() % 20) as i64;
                let price = market.middle + side * distance * market.tick;
                self.resting.push_back((number, symbol, account));
                Action::Place { symbol, account, sell, price, ioc: false }
            }
        }
    }
}

fn send(plan: &Plan, shared: &Shared) -> Result<Histogram<u64>, LoadError> {
    let mut signer = Signer::new(&plan.accounts);
    let mut mix = Mix { resting: VecDeque::new(), state: 0x9E37_79B9_7F4A_7C15 };
    let mut lag = histogram();
    let mut out: Vec<Vec<u8>> = vec![Vec::new(); plan.connections];
    let mut request = Vec::new();
    let total = ((plan.warmup + plan.counted).as_secs_f64() * plan.rate) as u64;
    let interval = 1e9 / plan.rate;
    let mut turn = 0;
    let mut number = 0;
    while number < total && !shared.stop.load(Ordering::Acquire) {
        let now = shared.start.elapsed().as_nanos() as u64;
        let due = ((now as f64 / interval) as u64 + 1).min(total);
        while number < due {
            let limit = if plan.transport == Transport::Ws { WINDOW / 2 } else { 1 };
            let free = (0..plan.connections)
                .map(|i| (turn + i) % plan.connections)
                .find(|&i| shared.connections[i].in_flight.load(Ordering::Acquire) < limit);
            let Some(at) = free else { break };
            turn = at + 1;
            let planned = (number as f64 * interval) as u64;
            let action = mix.next(plan, number);
            if number.is_multiple_of(PROBE_EVERY)
                && let Action::Place { price, .. } = action
            {
                shared.probes.lock().unwrap_or_else(|e| e.into_inner()).insert(price, planned);
            }
            build(plan, &mut signer, number, &action, &mut request);
            let connection = &shared.connections[at];
            let slot = (number % connection.planned.len() as u64) as usize;
            connection.planned[slot].store(planned, Ordering::Release);
            connection.in_flight.fetch_add(1, Ordering::AcqRel);
            out[at].extend_from_slice(&request);
            lag.saturating_record((shared.start.elapsed().as_nanos() as u64).saturating_sub(planned));
            number += 1;
        }
        for (buffer, connection) in out.iter_mut().zip(&shared.connections) {
            flush(buffer, &connection.stream)?;
        }
        // Short enough to keep the plan, long enough to leave the processor to the server.
        std::thread::sleep(Duration::from_micros(200));
    }
    while out.iter().any(|b| !b.is_empty()) && !shared.stop.load(Ordering::Acquire) {
        for (buffer, connection) in out.iter_mut().zip(&shared.connections) {
            flush(buffer, &connection.stream)?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(lag)
}

fn flush(buffer: &mut Vec<u8>, mut stream: &TcpStream) -> Result<(), LoadError> {
    while !buffer.is_empty() {
        match stream.write(buffer) {
            Ok(n) => drop(buffer.drain(..n)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(LoadError::Io { what: "sending", source }),
        }
    }
    Ok(())
}

fn build(plan: &Plan, signer: &mut Signer, number: u64, action: &Action, request: &mut Vec<u8>) {
    let time = now_ms();
    let ws = plan.transport == Transport::Ws;
    let id;
    let (price, qty);
    let (account, method, mut pairs): (usize, &str, Vec<(&str, &str)>) = match *action {
        Action::Cancel { symbol, account, number } => {
            id = format!("{}{number}", plan.prefix);
            (
                account,
                "order.cancel",
                vec![
                    ("origClientOrderId", &id),
                    ("symbol", &plan.symbols[symbol].name),
                    ("timestamp", &time),
                ],
            )
        }
        Action::Place { symbol, account, sell, price: units, ioc } => {
            id = format!("{}{number}", plan.prefix);
            price = decimal(units);
            qty = decimal(plan.symbols[symbol].qty);
            (
                account,
                "order.place",
                vec![
                    ("newClientOrderId", &id),
                    ("newOrderRespType", "ACK"),
                    ("price", &price),
                    ("quantity", &qty),
                    ("side", if sell { "SELL" } else { "BUY" }),
                    ("symbol", &plan.symbols[symbol].name),
                    ("timeInForce", if ioc { "IOC" } else { "GTC" }),
                    ("timestamp", &time),
                    ("type", "LIMIT"),
                ],
            )
        }
    };
    let key = plan.accounts[account].key.clone();
    if ws {
        pairs.insert(0, ("apiKey", &key));
    }
    let signature = signer.sign(account, &pairs);
    request.clear();
    if ws {
        let json = request_json(number, method, &pairs, &signature);
        frame(json.as_bytes(), request);
    } else {
        let verb = if method == "order.place" { "POST" } else { "DELETE" };
        let body = format!("{}&signature={signature}", signer.query);
        request.extend_from_slice(
            format!(
                "{verb} /api/v3/order HTTP/1.1\r\nHost: {}\r\nX-MBX-APIKEY: {key}\r\nContent-Type: \
                 application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
                plan.address,
                body.len()
            )
            .as_bytes(),
        );
    }
}

fn receive(plan: &Plan, shared: &Shared) -> Result<Tally, LoadError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("starting"))?;
    let tally = Arc::new(Mutex::new(Tally {
        latency: histogram(),
        answered: 0,
        rejected: 0,
        errors: 0,
        first_error: None,
    }));
    runtime.block_on(async {
        let work = async {
            let mut tasks = Vec::new();
            for connection in &shared.connections {
                tasks.push(receive_one(plan, shared, connection, &tally));
            }
            join_all(tasks).await
        };
        let stop = async {
            while !shared.stop.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! { result = work => result, () = stop => Ok(()) }
    })?;
    let tally = Arc::into_inner(tally).expect("the tasks have ended");
    Ok(tally.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// Polls all futures until the first error or the end of all.
async fn join_all(tasks: Vec<impl Future<Output = Result<(), LoadError>>>) -> Result<(), LoadError> {
    let mut tasks: Vec<_> = tasks.into_iter().map(Box::pin).collect();
    std::future::poll_fn(move |context| {
        let mut at = 0;
        while at < tasks.len() {
            match tasks[at].as_mut().poll(context) {
                std::task::Poll::Ready(Ok(())) => drop(tasks.swap_remove(at)),
                std::task::Poll::Ready(Err(e)) => return std::task::Poll::Ready(Err(e)),
                std::task::Poll::Pending => at += 1,
            }
        }
        if tasks.is_empty() { std::task::Poll::Ready(Ok(())) } else { std::task::Poll::Pending }
    })
    .await
}

async fn receive_one(
    plan: &Plan,
    shared: &Shared,
    connection: &Connection,
    tally: &Mutex<Tally>,
) -> Result<(), LoadError> {
    let stream = connection.stream.try_clone().map_err(io("receiving"))?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(io("receiving"))?;
    let mut buffer: Vec<u8> = Vec::with_capacity(1 << 16);
    loop {
        stream.readable().await.map_err(io("receiving"))?;
        match stream.try_read_buf(&mut buffer) {
            Ok(0) => {
                return Err(LoadError::Protocol { what: "receiving", answer: "the server closed".into() });
            }
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
            Err(source) => return Err(LoadError::Io { what: "receiving", source }),
        }
        let mut used = 0;
        let mut tally = tally.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            let taken = match plan.transport {
                Transport::Ws => ws_answer(plan, shared, connection, &buffer[used..], &mut tally),
                Transport::Http => http_answer(plan, shared, connection, &buffer[used..], &mut tally),
            };
            if taken == 0 {
                break;
            }
            used += taken;
        }
        drop(tally);
        buffer.drain(..used);
    }
}

fn ws_answer(
    plan: &Plan,
    shared: &Shared,
    connection: &Connection,
    buffer: &[u8],
    tally: &mut Tally,
) -> usize {
    let Some((opcode, payload)) = server_frame(buffer) else { return 0 };
    let end = payload.end;
    let text = &buffer[payload];
    if opcode == 0x9 {
        // A pong with the same payload (RFC 6455, 5.5.3). It is small: the socket's buffer has room for it.
        let mut pong = vec![0x8A, 0x80 | text.len() as u8, 0, 0, 0, 0];
        pong.extend_from_slice(text);
        let _ = (&connection.stream).write(&pong); // were it lost, the server would close and we would say so
    }
    if opcode != 0x1 {
        return end;
    }
    let id = number_after(text, b"\"id\":");
    let ok = number_after(text, b"\"status\":") == Some(200);
    match id {
        Some(id) => note(plan, shared, connection, id, ok, text, tally),
        None => error(tally, text),
    }
    end
}

fn http_answer(
    plan: &Plan,
    shared: &Shared,
    connection: &Connection,
    buffer: &[u8],
    tally: &mut Tally,
) -> usize {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = response.parse(buffer) else { return 0 };
    let length = response
        .headers
        .iter()
        .find(|h| h.name.eq_ignore_ascii_case("content-length"))
        .and_then(|h| std::str::from_utf8(h.value).ok()?.parse::<usize>().ok())
        .unwrap_or(0);
    if buffer.len() < head + length {
        return 0;
    }
    let ok = response.code == Some(200);
    note(plan, shared, connection, 0, ok, &buffer[head..head + length], tally);
    head + length
}

fn note(
    plan: &Plan,
    shared: &Shared,
    connection: &Connection,
    id: u64,
    ok: bool,
    text: &[u8],
    tally: &mut Tally,
) {
    let slot = (id % connection.planned.len() as u64) as usize;
    let planned = connection.planned[slot].load(Ordering::Acquire);
    connection.in_flight.fetch_sub(1, Ordering::AcqRel);
    // A cancel of an order that has traded meanwhile is refused as unknown: part of the mix, not an error.
    let refused = contains(text, b"-2011");
    if !ok && !refused {
        error(tally, text);
    }
    if planned < plan.warmup.as_nanos() as u64 {
        return;
    }
    tally.answered += 1;
    tally.rejected += u64::from(refused);
    tally.latency.saturating_record((shared.start.elapsed().as_nanos() as u64).saturating_sub(planned));
}

fn error(tally: &mut Tally, text: &[u8]) {
    tally.errors += 1;
    if tally.first_error.is_none() {
        tally.first_error = Some(String::from_utf8_lossy(&text[..text.len().min(300)]).into_owned());
    }
}

type Watcher = std::thread::JoinHandle<Result<Histogram<u64>, LoadError>>;

/// A subscriber of the first symbol's depth, which notes when each probe's price appears.
fn watch_depth(plan: &Plan, shared: &Arc<Shared>) -> Result<Watcher, LoadError> {
    let mut stream = TcpStream::connect(&plan.address).map_err(io("connecting the subscriber"))?;
    let path = format!("/ws/{}@depth@0ms", plan.symbols[0].name.to_lowercase());
    handshake(&mut stream, &plan.address, &path)?;
    stream.set_read_timeout(Some(Duration::from_millis(100))).map_err(io("watching the depth"))?;
    let (shared, warmup) = (Arc::clone(shared), plan.warmup.as_nanos() as u64);
    Ok(std::thread::spawn(move || {
        let mut seen = histogram();
        let mut buffer = Vec::new();
        let mut chunk = vec![0; 1 << 16];
        while !shared.stop.load(Ordering::Acquire) {
            match stream.read(&mut chunk) {
                Ok(0) => {
                    return Err(LoadError::Protocol {
                        what: "watching the depth",
                        answer: "the server closed".into(),
                    });
                }
                Ok(n) => buffer.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(source) => return Err(LoadError::Io { what: "watching the depth", source }),
            }
            let now = shared.start.elapsed().as_nanos() as u64;
            while let Some((opcode, payload)) = server_frame(&buffer) {
                let end = payload.end;
                if opcode == 0x9 {
                    let mut pong = vec![0x8A, 0x80 | payload.len() as u8, 0, 0, 0, 0];
                    pong.extend_from_slice(&buffer[payload.clone()]);
                    stream.write_all(&pong).map_err(io("watching the depth"))?;
                }
                if opcode == 0x1
                    && let Ok(update) = serde_json::from_slice::<DepthUpdate>(&buffer[payload])
                {
                    let mut probes = shared.probes.lock().unwrap_or_else(|e| e.into_inner());
                    for (price, _) in &update.b {
                        let planned =
                            hoga_core::money::parse_units(price).ok().and_then(|p| probes.remove(&p));
                        if let Some(planned) = planned
                            && planned >= warmup
                        {
                            seen.saturating_record(now.saturating_sub(planned));
                        }
                    }
                }
                buffer.drain(..end);
            }
        }
        Ok(seen)
    }))
}

#[derive(serde::Deserialize)]
struct DepthUpdate {
    b: Vec<(String, String)>,
}
