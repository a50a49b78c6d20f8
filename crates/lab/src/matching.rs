//! `bench match`: one thread, no I/O. The bare book on recorded messages, the whole core on the mixed flow, and beside each, in the same run
//! and in turn, a plain `BTreeMap` of queues on the same input: the yardstick that a noisy machine needs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hoga_core::book::Book;
use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{Seq, Timestamp};
use hoga_core::order::{OrderRef, OrderType, Side, TimeInForce};
use hoga_sim::consensus::{Message, Messages};
use hoga_sim::mixed::{Mix, Mixed};
use hoga_sim::recording;
use serde_json::json;

use crate::allocations;
use crate::orders::BenchError;
use crate::report::{Latency, Report, histogram, round1};

/// Runs of each side, in turn; the median counts.
const RUNS: usize = 5;

/// A slice of a scenario is short: it is run this many times over in a measurement, on a fresh book each.
const SLICE_REPEATS: usize = 25;

/// `core`, `me-consensus` or `me-consensus:SCENARIO`.
pub fn run(workload: &str, data: &Path, count: u64) -> Result<Vec<Report>, BenchError> {
    if workload == "core" {
        return Ok(vec![core(count)?]);
    }
    let wanted = match workload.strip_prefix("me-consensus") {
        Some("") => None,
        Some(rest) if rest.starts_with(':') => Some(&rest[1..]),
        _ => {
            return Err(BenchError::Unfit(format!(
                "workload '{workload}': expected core, me-consensus or me-consensus:SCENARIO"
            )));
        }
    };
    let folder = data.join("me-consensus");
    let mut reports = Vec::new();
    for scenario in ["normal", "static", "swing-25", "swing-40", "flash-crash"] {
        if wanted.is_some_and(|w| w != scenario) {
            continue;
        }
        let (messages, repeats, source) = recorded(&folder, scenario)?;
        reports.push(book(scenario, &messages, repeats, &source));
    }
    if reports.is_empty() {
        let known = "normal, static, swing-25, swing-40, flash-crash";
        return Err(BenchError::Unfit(format!("workload '{workload}': no such scenario; there are {known}")));
    }
    Ok(reports)
}

/// The whole scenario where it is there (two parts), else its slice.
fn recorded(folder: &Path, scenario: &str) -> Result<(Vec<Message>, usize, String), BenchError> {
    let whole: Vec<PathBuf> =
        (1..=2).map(|part| folder.join(format!("{scenario}-1m.part{part}.csv.xz"))).collect();
    let (files, repeats) = if whole.iter().all(|p| p.exists()) {
        (whole, 1)
    } else {
        (vec![folder.join(format!("{scenario}-20k-seed7.csv.gz"))], SLICE_REPEATS)
    };
    let mut messages = Vec::new();
    for file in &files {
        let reader = recording::open(file).map_err(|e| BenchError::Unfit(e.to_string()))?;
        for message in Messages::new(reader) {
            messages.push(message.map_err(|e| BenchError::Unfit(format!("{}: {e}", file.display())))?);
        }
    }
    let source =
        if repeats == 1 { "whole".to_owned() } else { format!("slice of 20,000 orders, {repeats} times") };
    Ok((messages, repeats, source))
}

/// What both sides answer, so that neither can leave work out: how often and how much traded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traded {
    trades: u64,
    qty: i64,
}

fn book(scenario: &str, messages: &[Message], repeats: usize, source: &str) -> Report {
    eprintln!(
        "bench match: me-consensus {scenario}, {} messages, {RUNS} runs in turn with the yardstick",
        messages.len()
    );
    let count = (messages.len() * repeats) as f64;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let cpu = crate::process::cpu_seconds("self");
    let begun = Instant::now();
    for _ in 0..RUNS {
        let (traded, seconds) =
            timed(|| repeat(repeats, || through_book(&mut Book::new(), messages, |_| {})));
        ours.push(count / seconds);
        let (expected, seconds) =
            timed(|| repeat(repeats, || through_yardstick(&mut Yardstick::default(), messages)));
        theirs.push(count / seconds);
        assert_eq!(traded, expected, "book and yardstick must do the same work");
    }
    let mut latency = histogram();
    through_book(&mut Book::new(), messages, |ns| latency.saturating_record(ns.max(1)));
    // A second pass over a book that has grown to its size: the steady state.
    let mut grown = Book::new();
    through_book(&mut grown, messages, |_| {});
    empty(&mut grown, messages);
    let (_, allocated) = allocations::during(|| through_book(&mut grown, messages, |_| {}));
    let mut report = Report::new(
        "match",
        json!({ "workload": format!("me-consensus:{scenario}"), "source": source, "messages": messages.len() }),
    );
    fill(&mut report, &mut ours, &mut theirs, &latency, allocated as f64 / messages.len() as f64);
    report.seconds = round1(begun.elapsed().as_secs_f64());
    report.cpu_server_s = round1(crate::process::cpu_seconds("self") - cpu);
    report.left_out =
        "reports are counted, not written; percentiles contain the clock's own 20 to 40 ns".to_owned();
    report
}

fn repeat(times: usize, mut work: impl FnMut() -> Traded) -> Traded {
    (0..times).fold(Traded::default(), |sum, _| {
        let one = work();
        Traded { trades: sum.trades + one.trades, qty: sum.qty.wrapping_add(one.qty) }
    })
}

fn timed<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let begun = Instant::now();
    let result = black_box(work());
    (result, begun.elapsed().as_secs_f64())
}

fn fill(
    report: &mut Report,
    ours: &mut [f64],
    theirs: &mut [f64],
    latency: &hdrhistogram::Histogram<u64>,
    allocs_per_op: f64,
) {
    let (ours, theirs) = (median(ours), median(theirs));
    report.achieved_per_s = ours.round();
    report.latency = Latency::of_ns(latency);
    report.set("throughput_per_s", ours.round());
    report.set("yardstick_per_s", theirs.round());
    report.set("ratio", (ours / theirs * 100.0).round() / 100.0);
    for (name, q) in [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)] {
        report.set(name, latency.value_at_quantile(q));
    }
    report.set("allocs_per_op", allocs_per_op);
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// All messages through the book. `each` gets the nanoseconds of each message; the closure that ignores them costs no clock.
fn through_book(book: &mut Book, messages: &[Message], mut each: impl FnMut(u64)) -> Traded {
    let mut traded = Traded::default();
    let clocked = std::mem::size_of_val(&each) > 0;
    for message in messages {
        let begun = clocked.then(Instant::now);
        let mut on_match = |m: hoga_core::book::Match| {
            traded.trades += 1;
            traded.qty = traded.qty.wrapping_add(m.qty);
        };
        // What is refused (a cancel of an order that is gone) is part of the work.
        match *message {
            Message::New { side, ioc, id, price, qty } => {
                let _ = black_box(book.add(id, side, price, qty, ioc, &mut on_match));
            }
            Message::Cancel { id } => {
                let _ = black_box(book.cancel(id));
            }
            Message::Modify { id, price, qty, .. } => {
                let _ = black_box(book.modify(id, price, qty, &mut on_match));
            }
        }
        if let Some(begun) = begun {
            each(begun.elapsed().as_nanos() as u64);
        }
    }
    traded
}

fn empty(book: &mut Book, messages: &[Message]) {
    for message in messages {
        if let Message::New { id, .. } = message {
            let _ = book.cancel(*id); // most are gone already
        }
    }
}

/// A plain book: a `BTreeMap` of queues a side, and a table of live orders. A cancelled order stays in its queue until it comes to the
/// front, which is what keeps cancelling cheap in such a book.
#[derive(Default)]
struct Yardstick {
    bids: BTreeMap<i64, VecDeque<u64>>,
    asks: BTreeMap<i64, VecDeque<u64>>,
    live: HashMap<u64, (Side, i64, i64), std::hash::BuildHasherDefault<IdHasher>>,
}

/// Ids are numbers: the standard hasher's resistance to attacks would only make the yardstick slow.
#[derive(Default)]
struct IdHasher(u64);

impl std::hash::Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

impl Yardstick {
    fn add(&mut self, side: Side, ioc: bool, id: u64, price: i64, mut qty: i64, traded: &mut Traded) {
        while qty > 0 {
            let level = match side {
                Side::Buy => self.asks.first_entry().filter(|e| *e.key() <= price),
                Side::Sell => self.bids.last_entry().filter(|e| *e.key() >= price),
            };
            let Some(mut level) = level else { break };
            let at = *level.key();
            while qty > 0 {
                let Some(&maker) = level.get().front() else { break };
                // An order that was modified has left an entry behind at its old price.
                let Some(order) = self.live.get_mut(&maker).filter(|o| o.0 != side && o.1 == at) else {
                    level.get_mut().pop_front();
                    continue;
                };
                let x = qty.min(order.2);
                qty -= x;
                order.2 -= x;
                traded.trades += 1;
                traded.qty = traded.qty.wrapping_add(x);
                if order.2 == 0 {
                    self.live.remove(&maker);
                    level.get_mut().pop_front();
                }
            }
            if level.get().is_empty() {
                level.remove();
            }
        }
        if qty > 0 && !ioc {
            let levels = if side == Side::Buy { &mut self.bids } else { &mut self.asks };
            levels.entry(price).or_default().push_back(id);
            self.live.insert(id, (side, price, qty));
        }
    }
}

fn through_yardstick(book: &mut Yardstick, messages: &[Message]) -> Traded {
    let mut traded = Traded::default();
    for message in messages {
        match *message {
            Message::New { side, ioc, id, price, qty } => book.add(side, ioc, id, price, qty, &mut traded),
            Message::Cancel { id } => {
                black_box(book.live.remove(&id));
            }
            Message::Modify { side, id, price, qty } => {
                if let Some((_, old, _)) = book.live.remove(&id) {
                    // At its old price the entry would come alive again in its old place: it has to be taken out.
                    if old == price {
                        let levels = if side == Side::Buy { &mut book.bids } else { &mut book.asks };
                        if let Some(level) = levels.get_mut(&price) {
                            level.retain(|&o| o != id);
                        }
                    }
                    book.add(side, false, id, price, qty, &mut traded);
                }
            }
        }
    }
    traded
}

fn core(count: u64) -> Result<Report, BenchError> {
    let mix = Mix::default();
    eprintln!("bench match: the whole core, {count} commands, {RUNS} runs in turn with the yardstick");
    let mut flow = Mixed::new(mix);
    let setup = flow.setup();
    let set_up = setup.len() as u64;
    let stamp = |(n, body): (usize, Body)| Command {
        seq: Seq(n as u64 + 1),
        time: Timestamp(1_700_000_000_000_000 + n as i64),
        rules: RULES_VERSION,
        deadline: Timestamp(0),
        body,
    };
    let commands: Vec<Command> =
        setup.into_iter().chain((&mut flow).take(count as usize)).enumerate().map(stamp).collect();
    let (setup, commands) = commands.split_at(set_up as usize);
    let messages: Vec<Message> = plain(commands);
    let mut ready = Exchange::new();
    let mut events = Vec::new();
    for command in setup {
        ready
            .apply(command, &mut events)
            .map_err(|r| BenchError::Unfit(format!("setting up: {}", r.as_str())))?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut rejected, mut emitted) = (0_u64, 0_u64);
    let cpu = crate::process::cpu_seconds("self");
    let begun = Instant::now();
    for _ in 0..RUNS {
        let mut exchange = ready.clone();
        (rejected, emitted) = (0, 0);
        let ((), seconds) = timed(|| {
            for command in commands {
                events.clear();
                rejected += u64::from(exchange.apply(command, &mut events).is_err());
                emitted += events.len() as u64;
            }
        });
        ours.push(count as f64 / seconds);
        let (_, seconds) = timed(|| through_yardstick(&mut Yardstick::default(), &messages));
        theirs.push(messages.len() as f64 / seconds);
    }
    let mut latency = histogram();
    let mut exchange = ready.clone();
    let half = commands.len() / 2;
    for command in &commands[..half] {
        let begun = Instant::now();
        events.clear();
        let _ = black_box(exchange.apply(command, &mut events));
        latency.saturating_record((begun.elapsed().as_nanos() as u64).max(1));
    }
    // The second half meets slabs that have grown: the steady state.
    let ((), allocated) = allocations::during(|| {
        for command in &commands[half..] {
            events.clear();
            let _ = black_box(exchange.apply(command, &mut events));
        }
    });
    let mut report =
        Report::new("match", json!({ "workload": "core", "mix": mix.describe(), "commands": count }));
    let per_op = allocated as f64 / (commands.len() - half).max(1) as f64;
    fill(&mut report, &mut ours, &mut theirs, &latency, per_op);
    report.set("allocations", allocated);
    report.set("rejected", rejected);
    report.set("events", emitted);
    report.seconds = round1(begun.elapsed().as_secs_f64());
    report.cpu_server_s = round1(crate::process::cpu_seconds("self") - cpu);
    report.left_out = "journal, network, other threads. The yardstick has no accounts, fees, filters, stops or events: it only matches \
                       the same orders. Percentiles contain the clock's own 20 to 40 ns"
        .to_owned();
    Ok(report)
}

/// The mixed flow as far as a plain book understands it; markets are told apart by price range.
fn plain(commands: &[Command]) -> Vec<Message> {
    let mut ids: HashMap<String, u64> = HashMap::new();
    let mut messages = Vec::with_capacity(commands.len());
    for (n, command) in (1..).zip(commands) {
        match &command.body {
            Body::Place(order) => {
                ids.insert(order.client_id.as_str().to_owned(), n);
                let market = order.order_type == OrderType::Market;
                let far = if order.side == Side::Buy { i64::MAX } else { 0 };
                messages.push(Message::New {
                    side: order.side,
                    ioc: market || order.tif != TimeInForce::Gtc,
                    id: n,
                    price: if market { far } else { order.price.0 },
                    qty: order.qty.0.max(1),
                });
            }
            Body::Cancel { order: OrderRef::Client(id), .. } => {
                if let Some(&id) = ids.get(id.as_str()) {
                    messages.push(Message::Cancel { id });
                }
            }
            _ => {}
        }
    }
    messages
}
