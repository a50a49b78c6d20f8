//! Measures the engine with many open orders: memory, how a snapshot disturbs the market, and a restart.
//!
//! `cargo run --release -p hoga-engine --example million -- ORDERS ACCOUNTS [RATE]`
//!
//! Opens the accounts, places orders that rest, then sends RATE commands a second (default 5,000) for some seconds without and with a
//! snapshot being taken, ends without a final snapshot, and starts again. One JSON line comes back.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hoga_core::command::Body;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, OrderType, Side, StpMode, TimeInForce};
use hoga_engine::{Engine, EngineConfig, EngineHandle, Lost, Reply, ReplySink, ReplyTo, Space, SubmitError};
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog};

struct Sink {
    start: Instant,
    replies: AtomicU64,
    rejected: AtomicU64,
    delays: Mutex<Histogram<u64>>,
}

impl ReplySink for Sink {
    fn reply(&self, tag: u64, reply: &Reply<'_>) {
        if tag > 0
            && let Ok(mut delays) = self.delays.lock()
        {
            delays.saturating_record(self.start.elapsed().as_nanos() as u64 - tag);
        }
        self.rejected.fetch_add(u64::from(reply.outcome.is_err()), Ordering::Relaxed);
        self.replies.fetch_add(1, Ordering::Release);
    }

    fn lost(&self, tag: u64, why: Lost) {
        panic!("reply {tag} is lost: {why:?}");
    }
}

struct Bench {
    handle: EngineHandle,
    sink: Arc<Sink>,
    sent: u64,
    orders: u64,
    accounts: u32,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [orders, accounts, rest @ ..] = &arguments[..] else {
        return Err("usage: million ORDERS ACCOUNTS [RATE]".into());
    };
    let rate = rest.first().map_or(Ok(5_000), |rate| rate.parse())?;
    let dir = std::env::temp_dir().join(format!("hoga-million-{}", std::process::id()));
    let result = measure(&dir, orders.parse()?, accounts.parse()?, rate);
    let _ = std::fs::remove_dir_all(&dir);
    result
}

fn open(dir: &Path) -> Result<Engine, Box<dyn std::error::Error>> {
    let log: Arc<dyn EventLog> = Arc::new(EmbeddedLog::open(dir.join("topics"), EmbeddedConfig::default())?);
    let mut config = EngineConfig::new(dir.join("engine"));
    config.snapshot_every = 0;
    config.final_snapshot = false;
    Ok(Engine::start(config, log, Vec::new())?)
}

fn measure(dir: &Path, orders: u64, accounts: u32, rate: u64) -> Result<(), Box<dyn std::error::Error>> {
    let engine = open(dir)?;
    let start = Instant::now();
    let delays = Mutex::new(Histogram::new_with_bounds(1_000, 100_000_000_000, 3)?);
    let sink = Arc::new(Sink { start, replies: AtomicU64::new(0), rejected: AtomicU64::new(0), delays });
    let mut bench = Bench { handle: engine.handle(), sink, sent: 0, orders: 0, accounts };
    bench.build(orders);
    let built = start.elapsed();
    let memory = memory_mib();
    let without = bench.phase(rate, Duration::from_secs(4), || false);
    let handle = engine.handle();
    handle.request_snapshot();
    let with = bench.phase(rate, Duration::from_secs(4), || handle.metrics().snapshots == 0);
    let metrics = handle.metrics();
    let open_orders = handle.query(|exchange| exchange.open_order_count())?.wait(Duration::from_secs(60))?;
    let peak = memory_mib();
    let rejected = bench.sink.rejected.load(Ordering::Relaxed);
    engine.shutdown()?;
    drop(bench);
    drop(handle);
    let begin = Instant::now();
    let engine = open(dir)?;
    let restart = begin.elapsed();
    let started = engine.started();
    engine.shutdown()?;
    let millis = |nanos: u64| nanos as f64 / 1e6;
    writeln!(
        std::io::stdout(),
        "{{\"bench\":\"million\",\"open_orders\":{open_orders},\"accounts\":{accounts},\"rejected\":{rejected},\"build_s\":{:.1},\
         \"memory_mib\":{memory},\"memory_peak_mib\":{peak},\"rate\":{rate},\"p50_ms\":{:.2},\"p99_ms\":{:.2},\
         \"snapshot_p50_ms\":{:.2},\"snapshot_p99_ms\":{:.2},\"snapshot_mib\":{},\"shadow_pause_ms\":{:.0},\"restart_s\":{:.2},\
         \"recover_s\":{:.2},\"replayed\":{}}}",
        built.as_secs_f64(),
        millis(without.value_at_quantile(0.5)),
        millis(without.value_at_quantile(0.99)),
        millis(with.value_at_quantile(0.5)),
        millis(with.value_at_quantile(0.99)),
        metrics.snapshot_bytes >> 20,
        millis(metrics.snapshot_pause),
        restart.as_secs_f64(),
        started.took.as_secs_f64(),
        started.replayed,
    )?;
    Ok(())
}

impl Bench {
    fn submit(&mut self, body: Body, tag: u64) {
        loop {
            match self.handle.submit(body, Timestamp(0), ReplyTo::new(self.sink.clone(), tag)) {
                Ok(()) => break,
                Err(SubmitError::Busy) => std::thread::sleep(Duration::from_micros(100)),
                Err(SubmitError::Stopped) => panic!("the engine stopped: {:?}", self.handle.fault()),
            }
        }
        self.sent += 1;
    }

    fn build(&mut self, orders: u64) {
        for body in market() {
            self.submit(body, 0);
        }
        for account in 1..=self.accounts {
            self.submit(Body::CreateAccount, 0);
            for asset in [AssetId(0), AssetId(1)] {
                let amount = Amount(100_000_000_000_000);
                self.submit(
                    Body::Deposit { account: AccountId(account), asset, amount, reference: ClientId::NONE },
                    0,
                );
            }
        }
        for _ in 0..orders {
            let body = self.resting();
            self.submit(body, 0);
        }
        while self.sink.replies.load(Ordering::Acquire) < self.sent
            || self.handle.positions().applied.seq().0 < self.sent
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// An order that does not trade: bids below 50,000, asks above, over 10,000 prices each.
    fn resting(&mut self) -> Body {
        self.orders += 1;
        let mixed = self.orders.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let away = (mixed % 10_000) as i64 + 1;
        let side = if self.orders.is_multiple_of(2) { Side::Buy } else { Side::Sell };
        let ticks = if side == Side::Buy { 5_000_000 - away } else { 5_000_000 + away };
        Body::Place(NewOrder {
            account: AccountId(1 + (self.orders % u64::from(self.accounts)) as u32),
            market: MarketId(0),
            side,
            order_type: OrderType::Limit,
            tif: TimeInForce::Gtc,
            price: Price(ticks * 1_000_000),
            stop_price: Price(0),
            qty: Qty(10_000),
            quote_qty: Amount(0),
            iceberg_qty: Qty(0),
            trailing_delta: 0,
            stp: StpMode::None,
            client_id: ClientId::new(&format!("x-{:016x}", self.orders)).unwrap_or_default(),
        })
    }

    /// Sends at planned times, at least for `least` and as long as `more` says; returns the delays.
    fn phase(&mut self, rate: u64, least: Duration, more: impl Fn() -> bool) -> Histogram<u64> {
        if let Ok(mut delays) = self.sink.delays.lock() {
            delays.reset();
        }
        let begin = self.sink.start.elapsed();
        let mut index = 0;
        loop {
            let offset = Duration::from_nanos(index * 1_000_000_000 / rate.max(1));
            if offset >= least && (offset.as_secs() >= 60 || !more()) {
                break;
            }
            let due = begin + offset;
            while self.sink.start.elapsed() < due {
                std::thread::sleep(Duration::from_micros(100));
            }
            let body = self.resting();
            self.submit(body, due.as_nanos() as u64);
            index += 1;
        }
        while self.sink.replies.load(Ordering::Acquire) < self.sent {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.sink.delays.lock().map(|delays| delays.clone()).unwrap_or_else(|_| panic!("the sink panicked"))
    }
}

/// Resident memory of this process in MiB.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn market() -> Vec<Body> {
    let name = |text| Name::new(text).unwrap_or_default();
    let instrument = Instrument {
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
    };
    vec![
        Body::AddAsset { id: AssetId(0), name: name("BTC") },
        Body::AddAsset { id: AssetId(1), name: name("USDT") },
        Body::SetInstrument(instrument),
    ]
}
