//! What the tests share: a disk whose syncs can be held, a sink that can be waited for, a market, a seeded flow of commands, and the check
//! that topics have no holes and no repeats.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hoga_core::codec;
use hoga_core::command::Body;
use hoga_core::event::{EventRecord, Reject};
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Seq, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};
use hoga_engine::{
    Clock, Engine, EngineConfig, EngineHandle, LIFECYCLE, Lost, PROJECTION, Reply, ReplySink, ReplyTo, Space,
    SubmitError, TRADES,
};
use hoga_log::event_log::EventLog;
use hoga_log::storage::{SimFile, SimStorage, Storage, StorageFile};

/// Long enough for a machine under load; a test that waits this long has failed.
pub const LONG: Duration = Duration::from_secs(20);

// ---- a disk whose syncs can be held --------------------------------------------------------------------------------------------------

#[derive(Default)]
struct Hold {
    held: bool,
    /// Threads that stand in a sync now.
    standing: usize,
}

/// A simulated disk whose syncs wait while it is held.
#[derive(Clone)]
pub struct HeldDisk {
    pub sim: SimStorage,
    hold: Arc<(Mutex<Hold>, Condvar)>,
}

pub struct HeldFile {
    file: SimFile,
    hold: Arc<(Mutex<Hold>, Condvar)>,
}

impl HeldDisk {
    pub fn new() -> HeldDisk {
        HeldDisk { sim: SimStorage::new(), hold: Arc::default() }
    }

    pub fn hold(&self) {
        self.hold.0.lock().unwrap().held = true;
    }

    pub fn release(&self) {
        self.hold.0.lock().unwrap().held = false;
        self.hold.1.notify_all();
    }

    /// Waits until a thread stands in a sync.
    pub fn wait_standing(&self) {
        let hold = self.hold.0.lock().unwrap();
        let (hold, _) = self.hold.1.wait_timeout_while(hold, LONG, |hold| hold.standing == 0).unwrap();
        assert!(hold.standing > 0, "nobody came to sync");
    }
}

impl Storage for HeldDisk {
    type File = HeldFile;
    type Lock = <SimStorage as Storage>::Lock;
    const BACKGROUND: bool = false;

    fn open(&self, path: &Path) -> io::Result<HeldFile> {
        Ok(HeldFile { file: self.sim.open(path)?, hold: self.hold.clone() })
    }
    fn create(&self, path: &Path) -> io::Result<HeldFile> {
        Ok(HeldFile { file: self.sim.create(path)?, hold: self.hold.clone() })
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.sim.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.sim.list(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.sim.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.sim.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.sim.sync_dir(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.sim.exists(path)
    }
    fn lock(&self, dir: &Path) -> io::Result<Option<Self::Lock>> {
        self.sim.lock(dir)
    }
}

impl StorageFile for HeldFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, into)
    }
    fn sync(&self) -> io::Result<()> {
        let mut hold = self.hold.0.lock().unwrap();
        hold.standing += 1;
        self.hold.1.notify_all();
        let mut hold = self.hold.1.wait_while(hold, |hold| hold.held).unwrap();
        hold.standing -= 1;
        drop(hold);
        self.file.sync()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
}

// ---- replies ------------------------------------------------------------------------------------------------------------------------

/// What came back for a tag.
#[derive(Clone, Debug, PartialEq)]
pub enum Got {
    Reply { seq: Seq, time: Timestamp, outcome: Result<(), Reject>, events: Vec<EventRecord> },
    Lost(Lost),
}

/// Keeps replies in the order in which they came.
#[derive(Default)]
pub struct Replies {
    got: Mutex<Vec<(u64, Got)>>,
    changed: Condvar,
}

impl ReplySink for Replies {
    fn reply(&self, tag: u64, reply: &Reply<'_>) {
        let got = Got::Reply {
            seq: reply.seq,
            time: reply.time,
            outcome: reply.outcome,
            events: reply.events.to_vec(),
        };
        self.got.lock().unwrap().push((tag, got));
        self.changed.notify_all();
    }

    fn lost(&self, tag: u64, why: Lost) {
        self.got.lock().unwrap().push((tag, Got::Lost(why)));
        self.changed.notify_all();
    }
}

impl Replies {
    pub fn new() -> Arc<Replies> {
        Arc::default()
    }

    /// Waits for `count` replies in all and returns them.
    pub fn wait(&self, count: usize) -> Vec<(u64, Got)> {
        let got = self.got.lock().unwrap();
        let (got, _) = self.changed.wait_timeout_while(got, LONG, |got| got.len() < count).unwrap();
        assert!(got.len() >= count, "{} of {count} replies came", got.len());
        got.clone()
    }

    pub fn now(&self) -> Vec<(u64, Got)> {
        self.got.lock().unwrap().clone()
    }

    /// The last command that was answered with an outcome.
    pub fn last_acked(&self) -> Seq {
        let seqs = self.now().into_iter().filter_map(|(_, got)| match got {
            Got::Reply { seq, .. } => Some(seq),
            Got::Lost(_) => None,
        });
        seqs.max().unwrap_or_default()
    }
}

/// Waits until a condition holds, giving the processor away meanwhile.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "never came about: {what}");
        std::thread::yield_now();
    }
}

// ---- time ---------------------------------------------------------------------------------------------------------------------------

/// A clock that a test sets.
pub struct HandClock(AtomicI64);

impl HandClock {
    pub fn at(micros: i64) -> Arc<HandClock> {
        Arc::new(HandClock(AtomicI64::new(micros)))
    }

    pub fn set(&self, micros: i64) {
        self.0.store(micros, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

// ---- a market and its commands ------------------------------------------------------------------------------------------------------

pub const MARKET: MarketId = MarketId(0);
pub const BASE: AssetId = AssetId(0);
pub const QUOTE: AssetId = AssetId(1);
/// Accounts that [`setup`] makes.
pub const ACCOUNTS: u32 = 4;

pub fn instrument() -> Instrument {
    Instrument {
        id: MARKET,
        symbol: Name::new("BTCUSDT").unwrap(),
        base: BASE,
        quote: QUOTE,
        state: TradingState::Open,
        price_tick: Price::parse("0.01").unwrap(),
        price_min: Price::parse("0.01").unwrap(),
        price_max: Price::parse("1000000").unwrap(),
        lot_step: Qty::parse("0.0001").unwrap(),
        lot_min: Qty::parse("0.0001").unwrap(),
        lot_max: Qty::parse("9000").unwrap(),
        market_lot_max: Qty::parse("100").unwrap(),
        notional_min: Amount::parse("0.01").unwrap(),
        notional_max: Amount::parse("9000000").unwrap(),
        percent_up: 0,
        percent_down: 0,
        market_band_bps: 0,
        max_orders: 100_000,
        max_algo_orders: 100,
        max_position: Qty(0),
        maker_fee_ppm: 1_000,
        taker_fee_ppm: 1_000,
    }
}

/// Commands that open a market with funded accounts.
pub fn setup() -> Vec<Body> {
    let mut bodies = vec![
        Body::AddAsset { id: BASE, name: Name::new("BTC").unwrap() },
        Body::AddAsset { id: QUOTE, name: Name::new("USDT").unwrap() },
        Body::SetInstrument(instrument()),
    ];
    for account in 1..=ACCOUNTS {
        bodies.push(Body::CreateAccount);
        for (asset, amount) in [(BASE, "1000"), (QUOTE, "10000000")] {
            bodies.push(Body::Deposit {
                account: AccountId(account),
                asset,
                amount: Amount::parse(amount).unwrap(),
                reference: ClientId::new(&format!("start-{}", asset.0)).unwrap(),
            });
        }
    }
    bodies
}

/// A seeded sequence of numbers.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

pub fn limit(account: u32, side: Side, cents: i64, lots: i64, name: &str) -> Body {
    Body::Place(NewOrder {
        account: AccountId(account),
        market: MARKET,
        side,
        order_type: OrderType::Limit,
        tif: TimeInForce::Gtc,
        price: Price(cents * 1_000_000),
        stop_price: Price(0),
        qty: Qty(lots * 10_000),
        quote_qty: Amount(0),
        iceberg_qty: Qty(0),
        trailing_delta: 0,
        stp: StpMode::None,
        client_id: ClientId::new(name).unwrap(),
    })
}

pub fn cancel(account: u32, order: u64) -> Body {
    Body::Cancel {
        account: AccountId(account),
        market: MARKET,
        order: OrderRef::Id(OrderId(order)),
        cancel_id: ClientId::NONE,
    }
}

/// `count` orders and cancels around one price: some rest, some trade, some are refused.
pub fn flow(seed: u64, count: usize) -> Vec<Body> {
    let mut random = Random(seed);
    let bodies = (0..count).map(|index| {
        let account = 1 + random.below(u64::from(ACCOUNTS)) as u32;
        match random.below(10) {
            0..=6 => {
                let side = if random.below(2) == 0 { Side::Buy } else { Side::Sell };
                let cents = 10_000 + random.below(60) as i64 - 30;
                limit(account, side, cents, 1 + random.below(50) as i64, &format!("o-{seed}-{index}"))
            }
            7 | 8 => cancel(account, 1 + random.below(1 + index as u64)),
            _ => Body::CancelAll { account: AccountId(account), market: Some(MARKET) },
        }
    });
    bodies.collect()
}

/// Submits, waiting while the engine is busy; stops at the first refusal. Returns how many were taken.
pub fn submit_all(handle: &EngineHandle, replies: &Arc<Replies>, first_tag: u64, bodies: &[Body]) -> usize {
    for (index, body) in bodies.iter().enumerate() {
        loop {
            let reply = ReplyTo::new(replies.clone(), first_tag + index as u64);
            match handle.submit(*body, Timestamp(0), reply) {
                Ok(()) => break,
                Err(SubmitError::Busy) => std::thread::yield_now(),
                Err(SubmitError::Stopped) => return index,
            }
        }
    }
    bodies.len()
}

/// An engine's settings for tests: small segments and queues.
pub fn config() -> EngineConfig {
    let mut config = EngineConfig::new("/engine");
    config.segment_bytes = 64 << 10;
    config.ring_capacity = 1_024;
    config.ring_reserve = 64;
    config.snapshot_every = 0;
    config.snapshot_rate = 0;
    config.final_snapshot = false;
    config
}

pub fn start<S: Storage>(storage: &S, config: &EngineConfig, log: &Arc<dyn EventLog>) -> Engine {
    Engine::start_on(storage.clone(), config.clone(), log.clone(), Vec::new()).expect("the engine starts")
}

/// The digest of the replica, once it has everything that was acknowledged.
pub fn digest(handle: &EngineHandle) -> u128 {
    handle.query(|exchange| exchange.digest()).unwrap().wait(LONG).unwrap()
}

/// Waits until everything that was submitted is applied and published.
pub fn settle(handle: &EngineHandle, seq: Seq) {
    wait_until("applied", || handle.positions().applied.covers(seq) || handle.fault().is_some());
}

// ---- topics -------------------------------------------------------------------------------------------------------------------------

/// All messages of all topics, by topic and partition: number → event. Fails on a hole, a repeat or a step back.
pub fn topics(log: &dyn EventLog) -> BTreeMap<(String, u32), Vec<EventRecord>> {
    let mut all = BTreeMap::new();
    for spec in log.topics() {
        if ![TRADES, LIFECYCLE, PROJECTION].contains(&spec.name.as_str()) {
            continue;
        }
        for partition in 0..spec.partitions {
            let mut events = Vec::new();
            let mut offset = log.start_offset(&spec.name, partition).unwrap();
            let end = log.end_offset(&spec.name, partition).unwrap();
            let mut messages = Vec::new();
            while offset < end {
                messages.clear();
                offset = log.read(&spec.name, partition, offset, 1_000, &mut messages).unwrap();
                for message in &messages {
                    let (number, event) = codec::decode_event(message.value.as_ref().unwrap()).unwrap();
                    events.push(event);
                    assert_eq!(
                        number,
                        events.len() as u64,
                        "{} partition {partition}: a hole or a repeat",
                        spec.name
                    );
                }
            }
            all.insert((spec.name.clone(), partition), events);
        }
    }
    all
}
