//! The matcher, the journal's thread and the gate allocate nothing per command in steady state. A test binary of its own, since it replaces
//! the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hoga_core::command::Body;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};
use hoga_engine::{Engine, EngineConfig, EngineHandle, Lost, Reply, ReplySink, ReplyTo, SubmitError};
use hoga_log::event_log::MemoryLog;

/// Counts the allocations of threads by their names, while told to.
struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static NAMES: [&[u8]; 3] = [b"matcher", b"journal", b"gate"];
static COUNTS: [AtomicU64; 3] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];

fn count() {
    if !COUNTING.load(Ordering::Relaxed) {
        return;
    }
    let mut name = [0_u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, with a zero at the end, into the buffer that it is given.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    if let Some(at) = NAMES.iter().position(|known| *known == &name[..len]) {
        COUNTS[at].fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is handed on to the system's allocator; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Sink {
    replies: AtomicU64,
    trades: AtomicU64,
}

impl ReplySink for Sink {
    fn reply(&self, _: u64, reply: &Reply<'_>) {
        assert!(reply.outcome.is_ok(), "{reply:?}");
        self.trades.fetch_add(u64::from(reply.events.len() > 4), Ordering::Relaxed);
        self.replies.fetch_add(1, Ordering::Release);
    }

    fn lost(&self, tag: u64, why: Lost) {
        panic!("{tag}: {why:?}");
    }
}

struct Client {
    handle: EngineHandle,
    sink: Arc<Sink>,
    sent: u64,
    orders: u64,
}

impl Client {
    fn submit(&mut self, body: Body) {
        while let Err(error) = self.handle.submit(body, Timestamp(0), ReplyTo::new(self.sink.clone(), 0)) {
            assert_eq!(error, SubmitError::Busy);
            std::thread::yield_now();
        }
        self.sent += 1;
    }

    fn wait(&self) {
        let start = Instant::now();
        while self.sink.replies.load(Ordering::Acquire) < self.sent {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{} of {}",
                self.sink.replies.load(Ordering::Acquire),
                self.sent
            );
            std::thread::yield_now();
        }
    }

    fn order(&mut self, side: Side, ticks: i64) {
        self.orders += 1;
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let client_id = ClientId::new(names[(self.orders % 8) as usize]).unwrap();
        self.submit(Body::Place(NewOrder {
            account: AccountId(1 + (self.orders % 2) as u32),
            market: MarketId(0),
            side,
            order_type: OrderType::Limit,
            tif: TimeInForce::Gtc,
            price: Price(ticks * 1_000_000),
            stop_price: Price(0),
            qty: Qty(1_000_000),
            quote_qty: Amount(0),
            iceberg_qty: Qty(0),
            trailing_delta: 0,
            stp: StpMode::None,
            client_id,
        }));
    }

    /// Rests an order and cancels it; rests one and trades it away.
    fn round(&mut self, index: i64) {
        self.order(Side::Buy, 4_000 + index % 50);
        let order = OrderRef::Id(OrderId(self.orders));
        let account = AccountId(1 + (self.orders % 2) as u32);
        self.submit(Body::Cancel { account, market: MarketId(0), order, cancel_id: ClientId::NONE });
        self.order(Side::Sell, 5_000 + index % 50);
        self.order(Side::Buy, 5_000 + index % 50);
    }
}

fn setup(client: &mut Client) {
    let name = |text| Name::new(text).unwrap();
    client.submit(Body::AddAsset { id: AssetId(0), name: name("BTC") });
    client.submit(Body::AddAsset { id: AssetId(1), name: name("USDT") });
    client.submit(Body::SetInstrument(Instrument {
        id: MarketId(0),
        symbol: name("BTCUSDT"),
        base: AssetId(0),
        quote: AssetId(1),
        state: TradingState::Open,
        price_tick: Price(1_000_000),
        price_min: Price(1_000_000),
        price_max: Price(1_000_000_000_000),
        lot_step: Qty(10_000),
        lot_min: Qty(10_000),
        lot_max: Qty(900_000_000),
        market_lot_max: Qty(900_000_000),
        notional_min: Amount(1),
        notional_max: Amount(900_000_000_000_000),
        percent_up: 0,
        percent_down: 0,
        market_band_bps: 0,
        max_orders: 1_000,
        max_algo_orders: 10,
        max_position: Qty(0),
        maker_fee_ppm: 1_000,
        taker_fee_ppm: 1_000,
    }));
    for account in 1..=2 {
        client.submit(Body::CreateAccount);
        for asset in [AssetId(0), AssetId(1)] {
            let (account, amount) = (AccountId(account), Amount(1_000_000_000_000_000));
            client.submit(Body::Deposit { account, asset, amount, reference: ClientId::NONE });
        }
    }
    client.wait();
}

#[test]
fn matcher_journal_and_gate_allocate_nothing_per_command() {
    let dir = std::env::temp_dir().join(format!("hoga-engine-allocations-{}", std::process::id()));
    let mut config = EngineConfig::new(&dir);
    config.final_snapshot = false;
    let engine = Engine::start(config, Arc::new(MemoryLog::new()), Vec::new()).unwrap();
    let mut client = Client { handle: engine.handle(), sink: Arc::default(), sent: 0, orders: 0 };
    setup(&mut client);
    // The buffers that go round must have reached their working size.
    for index in 0..30_000 {
        client.round(index);
    }
    client.wait();
    let (sent, trades) = (client.sent, client.sink.trades.load(Ordering::Relaxed));
    COUNTING.store(true, Ordering::SeqCst);
    for index in 0..5_000 {
        client.round(index);
    }
    client.wait();
    COUNTING.store(false, Ordering::SeqCst);
    let commands = client.sent - sent;
    assert!(client.sink.trades.load(Ordering::Relaxed) > trades, "orders trade");
    for (name, count) in NAMES.iter().zip(&COUNTS) {
        let count = count.load(Ordering::SeqCst);
        // Not always zero: a buffer grows when a batch has more events than any before it.
        let text = String::from_utf8_lossy(name);
        assert!(count < commands / 1_000, "{text}: {count} allocations in {commands} commands");
    }
    engine.shutdown().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}
