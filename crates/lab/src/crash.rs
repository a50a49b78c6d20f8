//! The crash loop: the real binary under load, killed at random points, started again, and asked what it still knows.
//!
//! Each round checks that every acknowledged order and cancel is there, that no event number is missing or used twice in any topic, that
//! a replay of the journal from its first command gives the digest that the running system has, and that the audit is clean.
//! SIGKILL leaves the page cache alone, so this proves nothing about fdatasync: the simulated storage in the engine's tests does that.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::admin::{Account, Admin};
use crate::load::Symbol;
use crate::orders::{self, BenchError};
use crate::process::{Server, TempDir};
use crate::request::{Sender, parse_answer};

/// The flags of `lab crash`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds of start, load, kill, start, check.
    pub rounds: u32,
    /// Seed of the kill times.
    pub seed: u64,
    /// Where the data stays for a look when a round fails; a temporary folder otherwise.
    pub keep: Option<PathBuf>,
}

/// What the client knows: the last thing that the exchange acknowledged about each of its orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Accepted.
    Placed,
    /// Taken back.
    Canceled,
}

/// Offline proof of a stopped system's data folder.
pub trait Offline {
    /// Checks the topics' numbers; the number of messages, or what is wrong.
    fn check_topics(&self, data: &Path) -> Result<u64, String>;
    /// Replays the journal from its first command up to `seq`; the digest in hex.
    fn replay_digest(&self, data: &Path, seq: u64) -> Result<String, String>;
}

/// Runs the rounds; the number of checks passed. The first failure ends it.
pub fn run(options: &Options, offline: &dyn Offline) -> Result<u64, BenchError> {
    let temporary = TempDir::new("crash")?;
    let data = options.keep.clone().unwrap_or_else(|| temporary.path().join("data"));
    // The whole journal is replayed in each round, so all of it has to stay.
    let config = temporary.path().join("crash.toml");
    std::fs::write(&config, "[engine]\nkeep_journal = true\n")?;
    let config = config.to_string_lossy().into_owned();
    let flags = ["--no-market", "--config", &config];
    let mut random = options.seed | 1;
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut setup: Option<(Vec<Account>, Vec<Symbol>)> = None;
    let mut next = 0;
    let mut checks = 0;
    for round in 1..=options.rounds {
        let server = Server::start(&data, &flags)?;
        let admin = Admin::of(&data)?;
        if setup.is_none() {
            setup = Some((orders::accounts(&admin, 4)?, orders::symbols(&admin, 2)?));
        }
        let (accounts, symbols) = setup.as_ref().expect("set above");
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let life = Duration::from_millis(200 + (random >> 33) % 1_200);
        let acknowledged = load_and_kill(server, accounts, symbols, &mut next, life, &mut known)?;

        let server = Server::start(&data, &flags)?;
        let admin = Admin::of(&data)?;
        let begun = Instant::now();
        checks += check_orders(&admin, accounts, symbols, &known)?;
        let audit = admin.audit()?;
        if audit["clean"] != true {
            return Err(BenchError::Unfit(format!("round {round}: the audit is not clean: {audit}")));
        }
        let digest = admin.get("/api/v1/admin/digest")?;
        server.terminate(Duration::from_secs(10))?;
        let wrong = |what: String| BenchError::Unfit(format!("round {round}: {what}"));
        let messages = offline.check_topics(&data).map_err(wrong)?;
        let seq = digest["seq"].as_u64().unwrap_or(0);
        let replayed = offline.replay_digest(&data, seq).map_err(wrong)?;
        if digest["digest"] != replayed {
            return Err(wrong(format!(
                "digest {} at {seq}, but the journal replays to {replayed}",
                digest["digest"]
            )));
        }
        checks += 3;
        eprintln!(
            "crash round {round}: killed after {} ms with {acknowledged} acknowledgements, {} orders known, {messages} \
             messages in the topics, {seq} commands replayed: all there ({} ms)",
            life.as_millis(),
            known.len(),
            begun.elapsed().as_millis()
        );
    }
    Ok(checks)
}

/// Places and cancels as fast as answers come, until the time is up and the server is killed in mid-flight.
fn load_and_kill(
    server: Server,
    accounts: &[Account],
    symbols: &[Symbol],
    next: &mut u64,
    life: Duration,
    known: &mut BTreeMap<String, Known>,
) -> Result<u64, BenchError> {
    let mut sender = Sender::new(accounts);
    let mut stream = sender.connect(server.address())?;
    stream.set_read_timeout(Some(Duration::from_millis(10)))?;
    let until = Instant::now() + life;
    let mut waiting: BTreeMap<u64, (String, Known)> = BTreeMap::new();
    let mut buffer = Vec::new();
    let mut acknowledged = 0;
    let mut resting: Vec<(String, usize, usize)> = Vec::new();
    while Instant::now() < until {
        // Up to 64 under way, so that the kill meets some that are journaled and not answered, and some that are neither.
        while waiting.len() < 64 {
            let number = *next;
            *next += 1;
            let (account, symbol) = (number as usize % accounts.len(), number as usize % symbols.len());
            let id = format!("crash-{number}");
            let request = match number % 4 {
                3 if !resting.is_empty() => {
                    let (id, account, symbol) = resting.remove(0);
                    let request = sender.cancel(number, account, &symbols[symbol], &id);
                    waiting.insert(number, (id, Known::Canceled));
                    request
                }
                kind => {
                    let crosses = kind == 2;
                    let request =
                        sender.place(number, account, &symbols[symbol], &id, number % 8 < 4, crosses);
                    waiting.insert(number, (id.clone(), Known::Placed));
                    if !crosses {
                        resting.push((id, account, symbol));
                    }
                    request
                }
            };
            stream.write_all(&request)?;
        }
        receive(&mut stream, &mut buffer)?;
        while let Some((number, status)) = parse_answer(&mut buffer) {
            acknowledged += 1;
            if let (Some((id, what)), 200) = (waiting.remove(&number), status) {
                known.insert(id, what);
            }
        }
    }
    server.kill()?;
    // Answers that had left before the kill are acknowledgements too.
    while receive(&mut stream, &mut buffer).unwrap_or(0) > 0 {}
    while let Some((number, status)) = parse_answer(&mut buffer) {
        if let (Some((id, what)), 200) = (waiting.remove(&number), status) {
            known.insert(id, what);
        }
    }
    Ok(acknowledged)
}

fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
    let mut chunk = [0; 1 << 16];
    match stream.read(&mut chunk) {
        Ok(n) => {
            buffer.extend_from_slice(&chunk[..n]);
            Ok(n)
        }
        Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => Ok(0),
        Err(e) => Err(e),
    }
}

/// Every acknowledged order is in the history of its owner, and every acknowledged cancel has its effect.
fn check_orders(
    admin: &Admin,
    accounts: &[Account],
    symbols: &[Symbol],
    known: &BTreeMap<String, Known>,
) -> Result<u64, BenchError> {
    let mut sender = Sender::new(accounts);
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (account, owner) in accounts.iter().enumerate() {
        for symbol in symbols {
            let mut from = 0;
            loop {
                let path = sender.all_orders(account, symbol, from);
                let page = admin.get_signed(&path, &owner.key)?;
                let page = page.as_array().cloned().unwrap_or_default();
                for order in &page {
                    let text = |field: &str| order[field].as_str().unwrap_or_default().to_owned();
                    if seen.insert(text("clientOrderId"), text("status")).is_some() {
                        return Err(BenchError::Unfit(format!("two orders have the client id of {order}")));
                    }
                }
                match page.last().and_then(|o| o["orderId"].as_u64()) {
                    Some(last) if page.len() == 1000 => from = last + 1,
                    _ => break,
                }
            }
        }
    }
    for (id, what) in known {
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
    Ok(known.len() as u64)
}
