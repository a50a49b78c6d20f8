//! A client that trades and remembers what it was told: the witness of crash and fault tests.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::admin::{Account, Admin};
use crate::load::Symbol;
use crate::orders::BenchError;
use crate::request::{Sender, parse_answer};

/// Requests under way at most: a kill then meets some that are journaled and not answered, and some that are neither.
const WINDOW: usize = 64;
/// How long a client waits for an answer, unless it is told otherwise, before it gives the connection up.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Own orders that rest until they are canceled.
const RESTING: usize = 4_096;

/// The last thing that the exchange acknowledged about an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Accepted.
    Placed,
    /// Taken back.
    Canceled,
}

/// What it did in one stretch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    /// Answers of any kind.
    pub answered: u64,
    /// The longest time between two answers while requests were under way.
    pub longest_silence: Duration,
    /// Connections that broke.
    pub broken: u64,
}

/// The client: its accounts, its markets, and what it knows.
pub struct Trader {
    sender: Sender,
    accounts: Vec<Account>,
    symbols: Vec<Symbol>,
    known: BTreeMap<String, Known>,
    next: u64,
    /// Answers that said yes.
    yes: u64,
    resting: VecDeque<(String, usize, usize)>,
}

impl Trader {
    /// A client that has done nothing yet.
    pub fn new(accounts: Vec<Account>, symbols: Vec<Symbol>) -> Trader {
        let sender = Sender::new(&accounts);
        Trader {
            sender,
            accounts,
            symbols,
            known: BTreeMap::new(),
            next: 0,
            yes: 0,
            resting: VecDeque::new(),
        }
    }

    /// Orders whose acknowledgement it has.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// Opens a session with the system at an address.
    pub fn session(&mut self, address: &str) -> Result<Session<'_>, BenchError> {
        self.session_within(address, PATIENCE)
    }

    fn session_within(&mut self, address: &str, patience: Duration) -> Result<Session<'_>, BenchError> {
        let stream = self.sender.connect(address, patience)?;
        stream.set_read_timeout(Some(Duration::from_millis(10)))?;
        let session = Session {
            stream,
            waiting: BTreeMap::new(),
            buffer: Vec::new(),
            ran: Ran::default(),
            last: Instant::now(),
            trader: self,
        };
        Ok(session)
    }

    /// Every acknowledged order is in the history of its owner once, and every acknowledged cancel has its effect. How many were checked.
    pub fn check(&mut self, admin: &Admin) -> Result<u64, BenchError> {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for (account, owner) in self.accounts.iter().enumerate() {
            for symbol in &self.symbols {
                let mut from = 0;
                loop {
                    let path = self.sender.all_orders(account, symbol, from);
                    let page = admin.get_signed(&path, &owner.key)?;
                    let page = page.as_array().cloned().unwrap_or_default();
                    for order in &page {
                        let text = |field: &str| order[field].as_str().unwrap_or_default().to_owned();
                        if seen.insert(text("clientOrderId"), text("status")).is_some() {
                            return Err(BenchError::Unfit(format!(
                                "two orders have the client id of {order}"
                            )));
                        }
                    }
                    match page.last().and_then(|o| o["orderId"].as_u64()) {
                        Some(last) if page.len() == 1000 => from = last + 1,
                        _ => break,
                    }
                }
            }
        }
        for (id, what) in &self.known {
            match (what, seen.get(id).map(String::as_str)) {
                (_, None) => return Err(BenchError::Unfit(format!("the acknowledged order {id} is gone"))),
                (Known::Canceled, Some("CANCELED")) | (Known::Placed, Some(_)) => {}
                (Known::Canceled, Some(status)) => {
                    return Err(BenchError::Unfit(format!(
                        "the acknowledged cancel of {id} is gone: it is {status}"
                    )));
                }
            }
        }
        Ok(self.known.len() as u64)
    }

    fn note(&mut self, (id, what): (String, Known), status: u64) {
        if status == 200 {
            self.yes += 1;
            self.known.insert(id, what);
        }
    }
}

/// A connection on which the client trades.
pub struct Session<'a> {
    stream: TcpStream,
    waiting: BTreeMap<u64, (String, Known)>,
    buffer: Vec<u8>,
    ran: Ran,
    last: Instant,
    trader: &'a mut Trader,
}

impl Session<'_> {
    /// Sends what is free to be sent, at most `most` requests, and takes the answers that are there.
    pub fn step(&mut self, most: usize) -> Result<(), BenchError> {
        let room = WINDOW.saturating_sub(self.waiting.len()).min(most);
        if self.waiting.is_empty() {
            self.last = Instant::now();
        }
        for _ in 0..room {
            let request = self.request();
            self.stream.write_all(&request)?;
        }
        self.receive()?;
        Ok(())
    }

    /// After the other side has ended: answers that had left before are acknowledgements too.
    pub fn drain(mut self) -> Ran {
        while self.receive().unwrap_or(0) > 0 {}
        self.ran
    }

    /// Waits for what is under way, for a while.
    fn finish(mut self, patience: Duration) -> Ran {
        let until = Instant::now() + patience;
        while !self.waiting.is_empty() && Instant::now() < until && self.receive().is_ok() {}
        self.ran
    }

    fn request(&mut self) -> Vec<u8> {
        let trader = &mut *self.trader;
        let number = trader.next;
        trader.next += 1;
        let (account, symbol) =
            (number as usize % trader.accounts.len(), number as usize % trader.symbols.len());
        let id = format!("crash-{number}");
        if number % 4 == 3
            && let Some((id, account, symbol)) = trader.resting.pop_front()
        {
            let request = trader.sender.cancel(number, account, &trader.symbols[symbol], &id);
            self.waiting.insert(number, (id, Known::Canceled));
            return request;
        }
        let (crosses, sell) = (number % 4 == 2, number % 8 < 4);
        let request = trader.sender.place(number, account, &trader.symbols[symbol], &id, sell, crosses);
        self.waiting.insert(number, (id.clone(), Known::Placed));
        if !crosses && trader.resting.len() < RESTING {
            trader.resting.push_back((id, account, symbol));
        }
        request
    }

    fn receive(&mut self) -> std::io::Result<usize> {
        let mut chunk = [0; 1 << 16];
        let got = match self.stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(e) => return Err(e),
        };
        self.buffer.extend_from_slice(&chunk[..got]);
        while let Some((number, status)) = parse_answer(&mut self.buffer) {
            self.ran.answered += 1;
            self.ran.longest_silence = self.ran.longest_silence.max(self.last.elapsed());
            self.last = Instant::now();
            if let Some(what) = self.waiting.remove(&number) {
                self.trader.note(what, status);
            }
        }
        Ok(got)
    }
}

/// A client that trades on a thread of its own until it is told to stop; connects again when the connection breaks.
pub struct Background {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: JoinHandle<(Trader, Ran)>,
}

impl Background {
    /// Begins at a number of requests a second. `address` is asked at each connection, so that it may change; after `patience` without an
    /// answer it is asked again.
    pub fn start(
        mut trader: Trader,
        rate: f64,
        patience: Duration,
        mut address: impl FnMut() -> String + Send + 'static,
    ) -> std::io::Result<Background> {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (seen, count) = (Arc::clone(&stop), Arc::clone(&answered));
        let thread = std::thread::Builder::new().name("trader".into()).spawn(move || {
            let mut all = Ran::default();
            while !seen.load(Ordering::Relaxed) {
                let ran = trade(&mut trader, &address(), (rate, patience), &seen, &count);
                all.answered += ran.answered;
                all.broken += ran.broken;
                all.longest_silence = all.longest_silence.max(ran.longest_silence);
            }
            (trader, all)
        })?;
        Ok(Background { stop, answered, thread })
    }

    /// Answers that said yes, so far.
    pub fn acknowledged(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Ends after the answers to what is under way; gives the client back.
    pub fn stop(self) -> Result<(Trader, Ran), BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| BenchError::Unfit("the trading client panicked".into()))
    }
}

/// Trades on one connection until it breaks or is to stop.
fn trade(
    trader: &mut Trader,
    address: &str,
    (rate, patience): (f64, Duration),
    stop: &AtomicBool,
    acknowledged: &AtomicU64,
) -> Ran {
    let begun = Instant::now();
    let Ok(mut session) = trader.session_within(address, patience) else {
        std::thread::sleep(Duration::from_millis(20)); // nobody is there yet: asked again
        return Ran::default();
    };
    let mut sent = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_secs_f64() * rate - sent;
        let most = due.clamp(0.0, WINDOW as f64) as usize;
        let before = session.trader.next;
        let stepped = session.step(most);
        acknowledged.store(session.trader.yes, Ordering::Relaxed);
        // Nobody on the other side for so long: a client would connect again, and so does this one.
        let silent = !session.waiting.is_empty() && session.last.elapsed() > patience;
        if stepped.is_err() || silent {
            let ran = session.drain();
            return Ran { broken: ran.broken + 1, ..ran };
        }
        // What the window held back is not made up for: a burst after an outage would be another test.
        sent = if due > WINDOW as f64 * 2.0 {
            begun.elapsed().as_secs_f64() * rate
        } else {
            sent + (session.trader.next - before) as f64
        };
    }
    session.finish(Duration::from_secs(10))
}
