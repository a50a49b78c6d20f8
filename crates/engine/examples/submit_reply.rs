//! Measures submit → reply in one process: how many commands a second the engine answers, and how long an answer takes at a given rate.
//!
//! `cargo run --release -p hoga-engine --example submit_reply -- DURABILITY COUNT RATE [LOG]`
//!
//! DURABILITY: sync, write or none. COUNT: commands. RATE: commands a second, sent at planned times; 0 for as many as the ring takes.
//! The environment's GATHER_US sets `EngineConfig::gather`. LOG: `memory` or `embedded` (default): where the events go. JSON lines come back.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hoga_core::command::Body;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};
use hoga_engine::{Engine, EngineConfig, EngineHandle, Lost, Reply, ReplySink, ReplyTo, Space, SubmitError};
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog, MemoryLog};
use hoga_log::journal::Durability;

const ACCOUNTS: u32 = 64;

/// Counts replies; the tag is the planned sending time in nanoseconds since `start`, 0 for commands that are not measured.
struct Sink {
    start: Instant,
    replies: AtomicU64,
    delays: Mutex<Histogram<u64>>,
}

impl ReplySink for Sink {
    fn reply(&self, tag: u64, _: &Reply<'_>) {
        if tag > 0 {
            let delay = self.start.elapsed().as_nanos() as u64 - tag;
            // Only the gate's thread comes here, so the lock is never contended.
            if let Ok(mut delays) = self.delays.lock() {
                delays.saturating_record(delay);
            }
        }
        self.replies.fetch_add(1, Ordering::Release);
    }

    fn lost(&self, tag: u64, why: Lost) {
        panic!("reply {tag} is lost: {why:?}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [durability, count, rate, rest @ ..] = &arguments[..] else {
        return Err("usage: submit_reply DURABILITY COUNT RATE [memory|embedded]".into());
    };
    let durability = Durability::parse(durability).ok_or("durability is sync, write or none")?;
    let (count, rate): (u64, u64) = (count.parse()?, rate.parse()?);
    let embedded = rest.first().is_none_or(|log| log == "embedded");
    let dir = std::env::temp_dir().join(format!("hoga-submit-reply-{}", std::process::id()));
    let result = measure(&dir, durability, count, rate, embedded);
    let _ = std::fs::remove_dir_all(&dir);
    result
}

fn measure(
    dir: &Path,
    durability: Durability,
    count: u64,
    rate: u64,
    embedded: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let log: Arc<dyn EventLog> = if embedded {
        Arc::new(EmbeddedLog::open(dir.join("topics"), EmbeddedConfig::default())?)
    } else {
        Arc::new(MemoryLog::new())
    };
    let mut config = EngineConfig::new(dir.join("engine"));
    config.durability = durability;
    if let Ok(gather) = std::env::var("GATHER_US") {
        config.gather = Duration::from_micros(gather.parse()?);
    }
    config.snapshot_every = 0;
    config.final_snapshot = false;
    let engine = Engine::start(config.clone(), log, Vec::new())?;
    let handle = engine.handle();
    let start = Instant::now();
    let sink = Arc::new(Sink {
        start,
        replies: AtomicU64::new(0),
        delays: Mutex::new(Histogram::new_with_bounds(1_000, 100_000_000_000, 3)?),
    });
    let mut sent = 0;
    for body in setup() {
        submit(&handle, &sink, body, 0);
        sent += 1;
    }
    while sink.replies.load(Ordering::Acquire) < sent {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (begin, cpu) = (start.elapsed(), cpu_nanos());
    let mut flow = Flow::new();
    for index in 0..count {
        let planned = if let Some(offset) = (index * 1_000_000_000).checked_div(rate) {
            let due = begin + Duration::from_nanos(offset);
            while start.elapsed() < due {
                // Short sleeps, as a server's event loop would wake: spinning would take a core from the engine.
                std::thread::sleep(Duration::from_micros(50));
            }
            due
        } else {
            start.elapsed()
        };
        submit(&handle, &sink, flow.next(), planned.as_nanos() as u64);
        sent += 1;
    }
    while sink.replies.load(Ordering::Acquire) < sent {
        std::thread::sleep(Duration::from_micros(200));
    }
    let elapsed = start.elapsed() - begin;
    let positions = handle.positions();
    let drain = Instant::now();
    while handle.positions().applied.seq() < positions.acked.seq() {
        std::thread::sleep(Duration::from_micros(200));
    }
    let drain = drain.elapsed();
    let mut per_thread = String::new();
    let mut total = 0;
    for ((name, after), (_, before)) in cpu_nanos().into_iter().zip(cpu) {
        let used = after.saturating_sub(before); // a listing of threads may miss one
        total += used;
        per_thread += &format!("\"{name}_us\":{:.2},", used as f64 / 1e3 / count as f64);
    }
    let per_command = total as f64 / 1e3 / count as f64;
    let metrics = handle.metrics();
    let delays = sink.delays.lock().map_err(|_| "the sink panicked")?.clone();
    let millis = |nanos: u64| nanos as f64 / 1e6;
    writeln!(
        std::io::stdout(),
        "{{\"bench\":\"submit_reply\",\"durability\":\"{}\",\"log\":\"{}\",\"count\":{count},\"planned_rate\":{rate},\
         \"rate\":{:.0},\"p50_ms\":{:.3},\"p99_ms\":{:.3},\"p999_ms\":{:.3},\"max_ms\":{:.3},\"shadow_drain_ms\":{:.1},\
         \"engine_cpu_us_per_command\":{per_command:.2},{per_thread}\"syncs\":{},\"batches\":{},\"commands_per_sync\":{:.1},\"sync_p50_ms\":{:.3},\
         \"sync_p99_ms\":{:.3},\"rejected\":{}}}",
        durability.as_str(),
        if embedded { "embedded" } else { "memory" },
        count as f64 / elapsed.as_secs_f64(),
        millis(delays.value_at_quantile(0.5)),
        millis(delays.value_at_quantile(0.99)),
        millis(delays.value_at_quantile(0.999)),
        millis(delays.max()),
        drain.as_secs_f64() * 1e3,
        metrics.syncs,
        metrics.batches,
        metrics.commands as f64 / metrics.syncs.max(1) as f64,
        metrics.stages.iter().find(|stage| stage.stage == "sync").map_or(0.0, |stage| millis(stage.p50)),
        metrics.stages.iter().find(|stage| stage.stage == "sync").map_or(0.0, |stage| millis(stage.p99)),
        metrics.rejected,
    )?;
    engine.shutdown()?;
    drop(handle);
    if embedded {
        // The same journal once more, with topics that lack nothing: how quickly a start without a snapshot goes.
        let log = Arc::new(EmbeddedLog::open(dir.join("topics"), EmbeddedConfig::default())?);
        let engine = Engine::start(config, log, Vec::new())?;
        let started = engine.started();
        let rate = started.replayed as f64 / started.took.as_secs_f64();
        writeln!(
            std::io::stdout(),
            "{{\"bench\":\"replay\",\"commands\":{},\"seconds\":{:.3},\"rate\":{rate:.0},\"republished\":{}}}",
            started.replayed,
            started.took.as_secs_f64(),
            started.republished
        )?;
        engine.shutdown()?;
    }
    Ok(())
}

fn submit(handle: &EngineHandle, sink: &Arc<Sink>, body: Body, tag: u64) {
    loop {
        match handle.submit(body, Timestamp(0), ReplyTo::new(sink.clone(), tag)) {
            Ok(()) => return,
            Err(SubmitError::Busy) => std::thread::sleep(Duration::from_micros(50)),
            Err(SubmitError::Stopped) => panic!("the engine stopped: {:?}", handle.fault()),
        }
    }
}

/// Processor time of each of the engine's threads so far, in nanoseconds, from the scheduler's own account.
fn cpu_nanos() -> [(&'static str, u64); 4] {
    let mut threads = ["matcher", "journal", "gate", "shadow"].map(|name| (name, 0));
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let name = read("comm");
        if let Some(thread) = threads.iter_mut().find(|thread| thread.0 == name.trim_end()) {
            thread.1 = read("schedstat").split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        }
    }
    threads
}

fn setup() -> Vec<Body> {
    let name = |text| Name::new(text).unwrap_or_default();
    let mut bodies = vec![
        Body::AddAsset { id: AssetId(0), name: name("BTC") },
        Body::AddAsset { id: AssetId(1), name: name("USDT") },
    ];
    bodies.push(Body::SetInstrument(Instrument {
        id: MarketId(0),
        symbol: name("BTCUSDT"),
        base: AssetId(0),
        quote: AssetId(1),
        state: TradingState::Open,
        price_tick: Price(1_000_000),
        price_min: Price(1_000_000),
        price_max: Price(100_000_000_000_000),
        lot_step: Qty(10_000),
        lot_min: Qty(10_000),
        lot_max: Qty(900_000_000_000),
        market_lot_max: Qty(10_000_000_000),
        notional_min: Amount(1_000_000),
        notional_max: Amount(900_000_000_000_000),
        percent_up: 0,
        percent_down: 0,
        market_band_bps: 0,
        max_orders: 1_000_000,
        max_algo_orders: 100,
        max_position: Qty(0),
        maker_fee_ppm: 1_000,
        taker_fee_ppm: 1_000,
    }));
    for account in 1..=ACCOUNTS {
        bodies.push(Body::CreateAccount);
        for asset in [AssetId(0), AssetId(1)] {
            let amount = Amount(1_000_000_000_000_000);
            bodies.push(Body::Deposit {
                account: AccountId(account),
                asset,
                amount,
                reference: ClientId::NONE,
            });
        }
    }
    bodies
}

/// Half orders around one price, of which some trade, half cancels of recent orders.
struct Flow {
    state: u64,
    orders: u64,
}

impl Flow {
    fn new() -> Flow {
        Flow { state: 1, orders: 0 }
    }

    fn random(&mut self, bound: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }

    fn next(&mut self) -> Body {
        if self.orders > 100 && self.random(2) == 0 {
            // The owner of an order follows from its number, so most cancels find theirs.
            let id = self.orders - self.random(100);
            let account = AccountId(1 + (id % u64::from(ACCOUNTS)) as u32);
            return Body::Cancel {
                account,
                market: MarketId(0),
                order: OrderRef::Id(OrderId(id)),
                cancel_id: ClientId::NONE,
            };
        }
        self.orders += 1;
        let side = if self.random(2) == 0 { Side::Buy } else { Side::Sell };
        let away = self.random(200) as i64 - 20;
        let ticks = if side == Side::Buy { 5_000_000 - away } else { 5_000_000 + away };
        Body::Place(NewOrder {
            account: AccountId(1 + (self.orders % u64::from(ACCOUNTS)) as u32),
            market: MarketId(0),
            side,
            order_type: OrderType::Limit,
            tif: TimeInForce::Gtc,
            price: Price(ticks * 1_000_000),
            stop_price: Price(0),
            qty: Qty(10_000 * (1 + self.random(20) as i64)),
            quote_qty: Amount(0),
            iceberg_qty: Qty(0),
            trailing_delta: 0,
            stp: StpMode::None,
            client_id: ClientId::new(&format!("bench-{}", self.orders)).unwrap_or_default(),
        })
    }
}
