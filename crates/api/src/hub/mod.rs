//! The market-data hub: keeps what streams and REST show of every market in memory, and fans it out.
//!
//! The engine's shadow hands events over ([`HubFeed`], an engine subscriber); one thread folds them with the folds of `hoga-core` and tells the
//! subscribers. Readers look at the same state, so a book snapshot and the depth stream have one sequence.
//!
//! **Rules:** a message is encoded once per topic and form, and only when somebody subscribes; a flush queues it for every client and wakes each
//! client once. Nothing here waits for a client. A subscription takes effect under the market's lock before it is answered: a snapshot taken
//! after the answer plus the stream is complete.

mod accounts;
mod encode;
mod feed;
mod market;
mod run;
mod topic;
mod view;

#[cfg(test)]
mod depth_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hoga_core::exchange::Depth;
use hoga_core::folds::candle::{Candle, Interval};
use hoga_core::folds::ticker::TickerValues;
use hoga_core::ids::{AccountId, MarketId, Seq, Timestamp, TradeId};
use hoga_core::instrument::{Instrument, Name};
use hoga_core::money::Price;
use rustc_hash::FxHashMap;

pub use accounts::{AccountSink, AccountSubscription};
pub use feed::HubFeed;
pub use topic::{AllKind, Form, Kind, Levels, Speed, Stream};
pub use view::{BookTicker, MarketHistory, MarketTrade};

use crate::ws::{CloseCode, Frame, Outbound};
use accounts::Accounts;
use feed::{Input, Intake};
use market::Market;
use topic::Topic;

/// Trades that each market keeps for readers.
pub const TRADES_KEPT: usize = 1000;

/// Settings of the hub.
#[derive(Clone, Copy, Debug)]
pub struct HubConfig {
    /// Events that may wait for the hub's thread; when there are more the engine's shadow waits.
    pub queue: usize,
}

impl Default for HubConfig {
    fn default() -> HubConfig {
        HubConfig { queue: 65_536 }
    }
}

/// What the hub did, for metrics. Every number only grows.
#[derive(Debug, Default)]
pub struct Counters {
    /// Events taken in.
    pub events: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Messages encoded.
    pub encoded: AtomicU64,
    /// Messages put into clients' queues.
    pub deliveries: AtomicU64,
    /// Time spent telling, in microseconds.
    pub fanout_micros: AtomicU64,
}

/// A stream client, for the farewell.
struct Client {
    out: Outbound,
    combined: bool,
}

struct Shared {
    markets: RwLock<Markets>,
    all: [Topic; AllKind::COUNT],
    accounts: Arc<Accounts>,
    intake: Arc<Intake>,
    clients: Mutex<(u64, FxHashMap<u64, Client>)>,
    counters: Counters,
    taken: AtomicU64,
    ended: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Markets {
    by_id: Vec<Arc<Market>>,
    by_symbol: FxHashMap<Name, MarketId>,
}

impl Shared {
    fn new(config: HubConfig) -> Shared {
        Shared {
            markets: RwLock::default(),
            all: std::array::from_fn(|kind| Topic::new((u32::MAX >> 4) - kind as u32)),
            accounts: Arc::default(),
            intake: Arc::new(Intake::new(config.queue)),
            clients: Mutex::default(),
            counters: Counters::default(),
            taken: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            thread: Mutex::new(None),
        }
    }

    fn market(&self, id: MarketId) -> Option<Arc<Market>> {
        let markets = self.markets.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        markets.by_id.get(usize::from(id.0)).cloned()
    }

    fn by_symbol(&self, symbol: &Name) -> Option<Arc<Market>> {
        let markets = self.markets.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let id = markets.by_symbol.get(symbol)?;
        markets.by_id.get(usize::from(id.0)).cloned()
    }

    fn clients(&self) -> MutexGuard<'_, (u64, FxHashMap<u64, Client>)> {
        self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The current time by the system's clock.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// A handle of the hub. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Hub(Arc<Shared>);

impl Hub {
    /// Starts the hub's thread. The feed goes to the engine as a subscriber.
    pub fn start(config: HubConfig) -> io::Result<(Hub, HubFeed)> {
        let (hub, feed) = Hub::new(config);
        let runner = run::Runner::new(Arc::clone(&hub.0));
        let thread = std::thread::Builder::new().name("hub".to_owned()).spawn(move || runner.run())?;
        *hub.0.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(thread);
        Ok((hub, feed))
    }

    /// A hub without its thread, for tests that drive it by hand.
    fn new(config: HubConfig) -> (Hub, HubFeed) {
        let shared = Arc::new(Shared::new(config));
        let (intake, accounts) = (Arc::clone(&shared.intake), Arc::clone(&shared.accounts));
        (Hub(shared), HubFeed { intake, accounts, gathered: Vec::new() })
    }

    /// Hands over what the read models know of each market, and waits until it is folded. To be called once, after the engine has started and
    /// before clients are let in: until then candles and tickers begin with the first trade of this run.
    pub fn prime(&self, histories: Vec<MarketHistory>) {
        for history in histories {
            self.0.intake.put_one(Input::History(Box::new(history)));
        }
        let (done, finished) = std::sync::mpsc::sync_channel(1);
        self.0.intake.put_one(Input::Done(done));
        // An error means that the hub ended meanwhile.
        let _ = finished.recv_timeout(Duration::from_secs(30));
    }

    /// The number of a market.
    pub fn market(&self, symbol: &str) -> Option<MarketId> {
        let market = self.0.by_symbol(&Name::new(symbol)?)?;
        let id = market.lock().id();
        Some(id)
    }

    /// All markets, with their current state, by number.
    pub fn instruments(&self) -> Vec<Instrument> {
        let markets = self.0.markets.read().unwrap_or_else(|poisoned| poisoned.into_inner()).by_id.clone();
        markets.iter().map(|market| market.lock().instrument).collect()
    }

    /// A market with its current state.
    pub fn instrument(&self, market: MarketId) -> Option<Instrument> {
        Some(self.0.market(market)?.lock().instrument)
    }

    /// The best `limit` levels of each side, with the number of the last update contained, in the sequence of the depth streams. `None` for
    /// an unknown market, or one whose book is not to be trusted (then the server has to be restarted; it is logged).
    pub fn depth(&self, market: MarketId, limit: usize) -> Option<Depth> {
        self.0.market(market)?.lock().depth(limit)
    }

    /// The best bid and ask.
    pub fn book_ticker(&self, market: MarketId) -> Option<BookTicker> {
        Some(self.0.market(market)?.lock().book_ticker())
    }

    /// The 24 h ticker at `now`.
    pub fn ticker(&self, market: MarketId, now: Timestamp) -> Option<TickerValues> {
        Some(self.0.market(market)?.lock().ticker(now))
    }

    /// Number and price of the last trade, as far as this hub has seen one or was primed with it.
    pub fn last_price(&self, market: MarketId) -> Option<(TradeId, Price)> {
        self.0.market(market)?.lock().last_trade()
    }

    /// The latest trades, ascending; at most `limit` and [`TRADES_KEPT`].
    pub fn trades(&self, market: MarketId, limit: usize) -> Vec<MarketTrade> {
        self.0.market(market).map(|market| market.lock().trades(limit)).unwrap_or_default()
    }

    /// The candle of the period that holds `now`; flat when nothing has traded in it yet, `None` before the market's first trade.
    pub fn open_candle(&self, market: MarketId, interval: Interval, now: Timestamp) -> Option<Candle> {
        self.0.market(market)?.lock().open_candle(interval, now)
    }

    /// Every event of the account that the engine applies after this returns goes to `sink`, until the subscription is dropped.
    pub fn subscribe_account(&self, account: AccountId, sink: Arc<dyn AccountSink>) -> AccountSubscription {
        Accounts::watch(&self.0.accounts, account, sink)
    }

    /// Hands a notification to the subscriptions of its account. Does not block.
    pub fn notice(&self, notification: &hoga_store::Notification) {
        self.0.accounts.notice(notification);
    }

    /// Account subscriptions at present.
    pub fn account_subscriptions(&self) -> usize {
        self.0.accounts.count()
    }

    /// Subscribes a client to a topic. False when there is no such market.
    pub fn subscribe(&self, stream: &Stream, form: &Form, client: &Outbound) -> bool {
        match stream {
            Stream::Market(symbol, kind) => {
                let Some(market) = self.0.by_symbol(symbol) else { return false };
                market.subscribe(*kind, form, client);
            }
            Stream::All(kind) => self.0.all[kind.index()].add(form, client),
        }
        true
    }

    /// Takes a subscription back.
    pub fn unsubscribe(&self, stream: &Stream, form: &Form, client: &Outbound) {
        match stream {
            Stream::Market(symbol, kind) => {
                if let Some(market) = self.0.by_symbol(symbol) {
                    market.unsubscribe(*kind, form, client);
                }
            }
            Stream::All(kind) => {
                self.0.all[kind.index()].remove(form, client);
            }
        }
    }

    /// Changes the form of a subscription, without losing or doubling a message.
    pub fn reform(&self, stream: &Stream, from: &Form, to: &Form, client: &Outbound) {
        match stream {
            Stream::Market(symbol, kind) => {
                if let Some(market) = self.0.by_symbol(symbol) {
                    market.topic(*kind).reform(from, to, client);
                }
            }
            Stream::All(kind) => self.0.all[kind.index()].reform(from, to, client),
        }
    }

    /// Registers a stream client for the farewell at shutdown. Gives its number; `None` when the hub has ended: the client is closed then.
    pub fn join(&self, out: &Outbound, combined: bool) -> Option<u64> {
        let mut clients = self.0.clients();
        if self.0.ended.load(Ordering::Acquire) {
            out.close(CloseCode::GOING_AWAY, "the server goes down");
            return None;
        }
        clients.0 += 1;
        let number = clients.0;
        clients.1.insert(number, Client { out: out.clone(), combined });
        Some(number)
    }

    /// Sets the form in which a client gets the farewell.
    pub fn set_combined(&self, number: u64, combined: bool) {
        if let Some(client) = self.0.clients().1.get_mut(&number) {
            client.combined = combined;
        }
    }

    /// Forgets a stream client.
    pub fn leave(&self, number: u64) {
        self.0.clients().1.remove(&number);
    }

    /// Stream clients at present.
    pub fn client_count(&self) -> usize {
        self.0.clients().1.len()
    }

    /// What the hub did so far.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The journal position up to which everything is folded: readers see it.
    pub fn taken(&self) -> Seq {
        Seq(self.0.taken.load(Ordering::Acquire))
    }

    /// Tells every stream client that the server goes down (`serverShutdown`), closes their connections with 1001 after what waits for them,
    /// and ends the hub's thread after it has folded what the engine gave it.
    pub fn shutdown(&self) {
        self.0.intake.close();
        let thread = self.0.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(thread) = thread {
            // The thread ends by itself; a panic in it has been reported by the panic hook.
            let _ = thread.join();
        }
        self.farewell(wall_clock());
    }

    fn farewell(&self, now: Timestamp) {
        let mut clients = self.0.clients();
        self.0.ended.store(true, Ordering::Release);
        let mut body = Vec::new();
        encode::server_shutdown(&mut body, now);
        let raw = Frame::text(&body);
        let combined = Frame::text_of(&[b"{\"stream\":\"!serverShutdown\",\"data\":", &body, b"}"]);
        for (_, client) in clients.1.drain() {
            client.out.send(if client.combined { combined.clone() } else { raw.clone() });
            client.out.close(CloseCode::GOING_AWAY, "the server goes down");
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("taken", &self.taken()).finish_non_exhaustive()
    }
}
