//! A random exchange run, published as the engine publishes it, and what the read models should make of it, told naively.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hoga_core::codec::encode_event;
use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::{Event, EventRecord, Fill};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Seq, Timestamp, WithdrawalId};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{NewOrder, Order, OrderRef, OrderType, Side, StpMode, TimeInForce};
use hoga_log::event_log::{EventLog, MemoryLog, Message, TopicSpec, partition_for};

#[cfg(feature = "postgres")]
use crate::PostgresConfig;
use crate::{ApiKey, Database, FIRED, Group, KeyKind, NOTIFICATION, Stores, StoresConfig, User};

pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// A folder that goes when the test ends.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hoga-store-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Tables of one test.
pub(crate) struct Db {
    pub(crate) database: Database,
    _dir: Option<TempDir>,
}

impl Db {
    pub(crate) fn sqlite() -> Db {
        let dir = TempDir::new();
        Db { database: Database::Sqlite { dir: dir.path().to_path_buf() }, _dir: Some(dir) }
    }

    /// Schemas with a prefix of their own on the test server; none when it is not there.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres() -> Option<Db> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Ok(url) = std::env::var("HOGA_TEST_POSTGRES") else {
            eprintln!("SKIP postgres: HOGA_TEST_POSTGRES is not set (scripts/services/postgres.sh up)");
            return None;
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut config = PostgresConfig::new(url);
        config.schema_prefix = format!("t{}_{number}_", std::process::id());
        let db = Db { database: Database::Postgres(config), _dir: None };
        // What an earlier process of the same number left.
        db.drop_schemas();
        Some(db)
    }

    pub(crate) fn config(&self) -> StoresConfig {
        StoresConfig::on(self.database.clone())
    }

    #[cfg(feature = "postgres")]
    fn drop_schemas(&self) {
        let Database::Postgres(config) = &self.database else { return };
        self.execute(
            Group::Accounts,
            &format!("DROP SCHEMA IF EXISTS {}identity CASCADE", config.schema_prefix),
        );
        for group in Group::ALL {
            for ending in ["", "_next", "_old"] {
                let schema = format!("{}{}{ending}", config.schema_prefix, group.schema());
                self.execute(group, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
            }
        }
    }

    /// Runs something on a group's tables behind its back; false when the database refuses it.
    pub(crate) fn execute(&self, group: Group, sql: &str) -> bool {
        match &self.database {
            Database::Sqlite { dir } => {
                rusqlite::Connection::open(dir.join(group.file_name())).unwrap().execute_batch(sql).is_ok()
            }
            #[cfg(feature = "postgres")]
            Database::Postgres(config) => client(config, group).batch_execute(sql).is_ok(),
            #[cfg(not(feature = "postgres"))]
            Database::Postgres(_) => unreachable!("tests of PostgreSQL are built with it"),
        }
    }

    /// All rows of a question, as text.
    pub(crate) fn ask(&self, group: Group, sql: &str) -> Vec<Vec<String>> {
        match &self.database {
            Database::Sqlite { dir } => {
                let conn = rusqlite::Connection::open(dir.join(group.file_name())).unwrap();
                let mut statement = conn.prepare(sql).unwrap();
                let columns = statement.column_count();
                let text = |row: &rusqlite::Row<'_>, at| match row.get_ref(at).unwrap() {
                    rusqlite::types::ValueRef::Null => "NULL".to_owned(),
                    rusqlite::types::ValueRef::Integer(value) => value.to_string(),
                    rusqlite::types::ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                    other => format!("{other:?}"),
                };
                let mut rows = statement.query([]).unwrap();
                let mut all = Vec::new();
                while let Some(row) = rows.next().unwrap() {
                    all.push((0..columns).map(|at| text(row, at)).collect());
                }
                all
            }
            #[cfg(feature = "postgres")]
            Database::Postgres(config) => {
                let messages = client(config, group).simple_query(sql).unwrap();
                let rows = messages.iter().filter_map(|message| match message {
                    postgres::SimpleQueryMessage::Row(row) => Some(row),
                    _ => None,
                });
                rows.map(|row| (0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned()).collect())
                    .collect()
            }
            #[cfg(not(feature = "postgres"))]
            Database::Postgres(_) => unreachable!("tests of PostgreSQL are built with it"),
        }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        #[cfg(feature = "postgres")]
        self.drop_schemas();
    }
}

#[cfg(feature = "postgres")]
pub(crate) fn client(config: &PostgresConfig, group: Group) -> postgres::Client {
    let mut client = postgres::Client::connect(&config.url, postgres::NoTls).unwrap();
    let path = format!("SET search_path = {}{}", config.schema_prefix, group.schema());
    client.batch_execute(&path).unwrap();
    client
}

pub(crate) fn user(name: &str, account: u32) -> User {
    User {
        name: name.to_owned(),
        password: "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA".to_owned(),
        account: AccountId(account),
        created: Timestamp(5),
    }
}

pub(crate) fn key(text: &str, account: u32) -> ApiKey {
    ApiKey {
        key: text.to_owned(),
        kind: KeyKind::Ed25519,
        secret: vec![7; 32],
        account: AccountId(account),
        label: "bot".to_owned(),
        created: Timestamp(6),
        revoked: None,
    }
}

/// SplitMix64: enough for choosing orders.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % bound
    }
}

pub(crate) const ACCOUNTS: u32 = 6;
pub(crate) const MARKETS: u16 = 3;

pub(crate) fn topics(log: &dyn EventLog, partitions: u32) {
    for group in Group::ALL {
        let spec = match group {
            Group::Orders => TopicSpec::compact(group.topic(), partitions),
            _ => TopicSpec::delete(group.topic(), partitions, u64::MAX),
        };
        log.create_topic(&spec).unwrap();
    }
    for topic in [FIRED, NOTIFICATION] {
        log.create_topic(&TopicSpec::delete(topic, partitions, u64::MAX)).unwrap();
    }
}

/// Routes and numbers events as the engine's publisher does.
pub(crate) struct Publisher {
    pub(crate) log: Arc<dyn EventLog>,
    partitions: u32,
    pub(crate) numbers: [Vec<u64>; 3],
}

impl Publisher {
    pub(crate) fn new(log: Arc<dyn EventLog>, partitions: u32) -> Publisher {
        topics(&*log, partitions);
        Publisher { log, partitions, numbers: std::array::from_fn(|_| vec![0; partitions as usize]) }
    }

    pub(crate) fn publish(&mut self, events: &[EventRecord]) {
        // Trades first and orders last, as the engine does.
        for group in [Group::Market, Group::Accounts, Group::Orders] {
            let at = group.index();
            let mut encoded = Vec::new();
            for record in events {
                let Some(key) = key_of(group, record) else { continue };
                let number = &mut self.numbers[at][partition_for(&key, self.partitions) as usize];
                *number += 1;
                let mut value = Vec::new();
                encode_event(record, *number, &mut value);
                encoded.push((key, value, record.time));
            }
            let messages: Vec<Message<'_>> = encoded
                .iter()
                .map(|(key, value, time)| Message { key, value: Some(value), time: *time })
                .collect();
            self.log.append(group.topic(), &messages).unwrap();
        }
    }
}

pub(crate) fn key_of(group: Group, record: &EventRecord) -> Option<Vec<u8>> {
    let account = |account: AccountId| Some(account.0.to_le_bytes().to_vec());
    match (group, &record.event) {
        (Group::Market, Event::Trade(trade)) => Some(trade.market.0.to_le_bytes().to_vec()),
        (Group::Orders, Event::Order(event)) => Some(event.order.id.0.to_le_bytes().to_vec()),
        (Group::Accounts, event) => match event {
            Event::Order(event) => account(event.order.request.account),
            Event::Transfer(transfer) => account(transfer.account),
            Event::AccountCreated { account: created } => account(*created),
            Event::Rejected(rejection) => account(rejection.account),
            Event::AssetAdded { .. } | Event::InstrumentSet(_) | Event::StateSet { .. } => {
                account(AccountId(0))
            }
            Event::Trade(_) | Event::Level(_) => None,
        },
        _ => None,
    }
}

/// An exchange under random orders, and everything that happened.
pub(crate) struct World {
    pub(crate) exchange: Exchange,
    pub(crate) publisher: Publisher,
    pub(crate) events: Vec<EventRecord>,
    pub(crate) random: Random,
    time: i64,
    client_ids: u64,
}

impl World {
    pub(crate) fn new(seed: u64, partitions: u32) -> World {
        World::with_log(seed, partitions, Arc::new(MemoryLog::new()))
    }

    pub(crate) fn with_log(seed: u64, partitions: u32, log: Arc<dyn EventLog>) -> World {
        topics(&*log, partitions);
        World::with_topics(seed, partitions, log)
    }

    /// On a log that has its topics.
    pub(crate) fn with_topics(seed: u64, partitions: u32, log: Arc<dyn EventLog>) -> World {
        let numbers = std::array::from_fn(|_| vec![0; partitions as usize]);
        let mut world = World {
            exchange: Exchange::new(),
            publisher: Publisher { log, partitions, numbers },
            events: Vec::new(),
            random: Random(seed),
            time: 1_700_000_000_000_000,
            client_ids: 0,
        };
        for (id, name) in ["BTC", "ETH", "USDT"].into_iter().enumerate() {
            world.apply(Body::AddAsset { id: AssetId(id as u16), name: Name::new(name).unwrap() });
        }
        for (id, (symbol, base, quote)) in
            [("BTCUSDT", 0, 2), ("ETHUSDT", 1, 2), ("ETHBTC", 1, 0)].into_iter().enumerate()
        {
            world.apply(Body::SetInstrument(instrument(id as u16, symbol, base, quote)));
        }
        for account in 1..=ACCOUNTS {
            world.apply(Body::CreateAccount);
            for asset in 0..3 {
                let (account, asset) = (AccountId(account), AssetId(asset));
                let reference = ClientId::NONE;
                world.apply(Body::Deposit { account, asset, amount: Amount(1_000_000 * SCALE), reference });
            }
        }
        world
    }

    pub(crate) fn log(&self) -> Arc<dyn EventLog> {
        self.publisher.log.clone()
    }

    /// Applies and publishes one command; a reject is fine.
    pub(crate) fn apply(&mut self, body: Body) -> Seq {
        // Mostly many commands in a millisecond, sometimes minutes without any.
        self.time += match self.random.below(40) {
            0 => 200_000_000,
            1 => 3_000_000,
            other => other as i64 % 7,
        };
        let seq = self.exchange.position().next();
        let time = Timestamp(self.time);
        let command = Command { seq, time, rules: RULES_VERSION, deadline: Timestamp(0), body };
        let before = self.events.len();
        let _ = self.exchange.apply(&command, &mut self.events);
        self.publisher.publish(&self.events[before..]);
        seq
    }

    pub(crate) fn run(&mut self, commands: usize) {
        for _ in 0..commands {
            let body = self.choose();
            self.apply(body);
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.time)
    }

    fn choose(&mut self) -> Body {
        let account = AccountId(1 + self.random.below(u64::from(ACCOUNTS)) as u32);
        let market = MarketId(self.random.below(u64::from(MARKETS)) as u16);
        let asset = AssetId(self.random.below(3) as u16);
        let amount = Amount(1 + self.random.below(5 * SCALE as u64) as i64);
        let reference = ClientId::new(&format!("r{}", self.random.below(50))).unwrap();
        let id = WithdrawalId(1 + self.random.below(20));
        let open = self.exchange.open_orders(account, Some(market));
        let order = open.get(self.random.below(open.len().max(1) as u64) as usize).map(|order| order.id);
        let order = OrderRef::Id(order.unwrap_or(OrderId(1)));
        match self.random.below(40) {
            0 => Body::Deposit { account, asset, amount, reference },
            1 | 2 => Body::Withdraw { account, asset, amount, reference },
            3 => Body::SettleWithdrawal { id },
            4 => Body::ReleaseWithdrawal { id },
            5..=9 => Body::Cancel { account, market, order, cancel_id: reference },
            10 => Body::CancelAll { account, market: Some(market) },
            11 | 12 => {
                let (price, qty) = self.price_and_qty();
                Body::Modify { account, market, order, price, qty }
            }
            _ => Body::Place(self.order(account, market)),
        }
    }

    fn price_and_qty(&mut self) -> (Price, Qty) {
        let price = Price((90 + self.random.below(21) as i64) * SCALE);
        (price, Qty((1 + self.random.below(400) as i64) * SCALE / 100))
    }

    fn order(&mut self, account: AccountId, market: MarketId) -> NewOrder {
        let (price, qty) = self.price_and_qty();
        let (stop_price, _) = self.price_and_qty();
        let pick = self.random.below(20);
        let order_type = match pick {
            0 => OrderType::StopLoss,
            1 => OrderType::StopLossLimit,
            2 => OrderType::TakeProfit,
            3 => OrderType::TakeProfitLimit,
            4 | 5 => OrderType::Market,
            6 => OrderType::LimitMaker,
            _ => OrderType::Limit,
        };
        let by_quote = pick == 4;
        // A client id is used again now and then, once the order that had it is gone.
        self.client_ids += 1;
        let client = if pick == 7 { self.random.below(10) } else { 1000 + self.client_ids };
        NewOrder {
            account,
            market,
            side: if self.random.below(2) == 0 { Side::Buy } else { Side::Sell },
            order_type,
            tif: match self.random.below(8) {
                0 if order_type == OrderType::Limit => TimeInForce::Ioc,
                1 if order_type == OrderType::Limit => TimeInForce::Fok,
                _ => TimeInForce::Gtc,
            },
            price: if order_type.has_price() { price } else { Price::ZERO },
            stop_price: if order_type.is_conditional() { stop_price } else { Price::ZERO },
            qty: if by_quote { Qty::ZERO } else { qty },
            quote_qty: if by_quote { Amount(300 * SCALE) } else { Amount::ZERO },
            iceberg_qty: Qty::ZERO,
            trailing_delta: 0,
            stp: [
                StpMode::None,
                StpMode::ExpireTaker,
                StpMode::ExpireMaker,
                StpMode::ExpireBoth,
                StpMode::Decrement,
            ][self.random.below(5) as usize],
            client_id: ClientId::new(&format!("c-{client}")).unwrap(),
        }
    }

    /// Orders by id, as their last event has them.
    pub(crate) fn orders(&self) -> Vec<Order> {
        let mut orders = std::collections::BTreeMap::new();
        for record in &self.events {
            if let Event::Order(event) = &record.event {
                orders.insert(event.order.id, event.order);
            }
        }
        orders.into_values().collect()
    }

    /// All fills, in the order in which they happened.
    pub(crate) fn fills(&self) -> Vec<(Timestamp, Order, Fill)> {
        let fill = |record: &EventRecord| match &record.event {
            Event::Order(event) => event.fill.map(|fill| (record.time, event.order, fill)),
            _ => None,
        };
        self.events.iter().filter_map(fill).collect()
    }
}

pub(crate) fn instrument(id: u16, symbol: &str, base: u16, quote: u16) -> Instrument {
    Instrument {
        id: MarketId(id),
        symbol: Name::new(symbol).unwrap(),
        base: AssetId(base),
        quote: AssetId(quote),
        state: TradingState::Open,
        price_tick: Price(SCALE / 100),
        price_min: Price(SCALE / 100),
        price_max: Price(1_000_000 * SCALE),
        lot_step: Qty(SCALE / 1_000_000),
        lot_min: Qty(SCALE / 1_000_000),
        lot_max: Qty(9_000 * SCALE),
        market_lot_max: Qty(9_000 * SCALE),
        notional_min: Amount(1),
        notional_max: Amount(9_000_000 * SCALE),
        percent_up: 0,
        percent_down: 0,
        market_band_bps: 0,
        max_orders: 10_000,
        max_algo_orders: 10_000,
        max_position: Qty(0),
        maker_fee_ppm: 777,
        taker_fee_ppm: 1234,
    }
}

/// Stores with small batches that do not linger, so that a test sees many transactions and waits for none.
pub(crate) fn stores(db: &Db, log: Arc<dyn EventLog>) -> Stores {
    let config = StoresConfig {
        batch: 64,
        linger: Duration::ZERO,
        sync_every: Duration::from_millis(20),
        nice: 0,
        ..db.config()
    };
    Stores::open_with(config, log).unwrap()
}

/// Stores that have consumed everything.
pub(crate) fn caught_up(db: &Db, log: Arc<dyn EventLog>) -> Stores {
    let stores = stores(db, log);
    stores.start().unwrap();
    for group in Group::ALL {
        assert!(stores.wait_current(group, WAIT), "{:?}", stores.position(group));
    }
    stores
}

/// Everything in a group's tables, as text: equal texts are equal read models.
pub(crate) fn dump(db: &Db, group: Group) -> String {
    let tables: &[&str] = match group {
        Group::Accounts => &["assets", "markets", "accounts", "balances", "exchange_balances", "ledger"],
        Group::Orders => &["orders", "fills"],
        Group::Market => &["markets", "trades", "candles"],
        Group::Notifications => &["notifications", "heads"],
        Group::Triggers => &["alerts"],
    };
    let mut text = String::new();
    // The groups write their places with each batch.
    let common = if group == Group::Triggers { &["dead_letters"][..] } else { &["places", "dead_letters"] };
    for table in common.iter().chain(tables) {
        // The first five columns are a key in every table that has as many.
        let columns = db.ask(group, &format!("SELECT * FROM {table} LIMIT 1")).first().map_or(0, Vec::len);
        let key: Vec<String> = (1..=columns.min(5)).map(|at| at.to_string()).collect();
        if key.is_empty() {
            continue;
        }
        for row in db.ask(group, &format!("SELECT * FROM {table} ORDER BY {}", key.join(", "))) {
            text.push_str(&format!("{table}|{}\n", row.join("|")));
        }
    }
    text
}
