//! A whole gateway in this process: engine, event log in memory, read models in a temporary folder, server on a free port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use hoga_api::hub::{Hub, HubConfig};
use hoga_api::{
    ApiConfig, EnginePort, Pipeline, Server, Services, SharedCatalog, latency_of_stores, observe_stores,
};
use hoga_core::command::Body;
use hoga_core::ids::{AssetId, MarketId, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty};
use hoga_engine::{Engine, EngineConfig, ReplyTo};
use hoga_log::event_log::{EventLog, MemoryLog, TopicSpec};
use hoga_log::journal::Durability;
use hoga_log::lag::{LagMonitor, LagOptions};
use hoga_store::{Database, FIRED, Identity, IdentityOptions, NOTIFICATION, Stores, StoresConfig};
use serde_json::Value;
use sha2::Sha256;

/// The operator's token of every test.
pub const OPERATOR: &str = "operator-token-of-the-tests";

/// A running system; everything ends and its folder goes when it is dropped.
pub struct World {
    server: Option<Server>,
    engine: Option<Engine>,
    stores: Arc<Stores>,
    hub: Hub,
    lag: LagMonitor,
    dir: PathBuf,
    pub address: SocketAddr,
}

/// An account with a key.
#[derive(Clone, Debug)]
pub struct Account {
    pub id: u64,
    pub key: String,
    pub secret: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub text: String,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|l| l.split_once(':'))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.trim())
    }

    /// Status, code and text of an error.
    pub fn error(&self) -> (u16, i64, String) {
        let json = self.json();
        (self.status, json["code"].as_i64().unwrap_or(0), json["msg"].as_str().unwrap_or("").to_owned())
    }
}

fn instrument(id: u16, symbol: &str, base: u16, tick: &str, step: &str) -> Instrument {
    let price = |text| Price::parse(text).unwrap();
    let qty = |text| Qty::parse(text).unwrap();
    Instrument {
        id: MarketId(id),
        symbol: Name::new(symbol).unwrap(),
        base: AssetId(base),
        quote: AssetId(2),
        state: TradingState::Open,
        price_tick: price(tick),
        price_min: price(tick),
        price_max: price("1000000"),
        lot_step: qty(step),
        lot_min: qty(step),
        lot_max: qty("9000"),
        market_lot_max: qty("100"),
        notional_min: Amount::parse("5").unwrap(),
        notional_max: Amount::parse("9000000").unwrap(),
        percent_up: 500,
        percent_down: 20,
        market_band_bps: 0,
        max_orders: 200,
        max_algo_orders: 5,
        max_position: Qty::ZERO,
        maker_fee_ppm: 1000,
        taker_fee_ppm: 1000,
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

pub fn hmac_hex(secret: &str, payload: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(payload.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

impl World {
    /// With the default settings.
    pub fn start() -> World {
        World::with(|_| {})
    }

    /// With changed settings.
    pub fn with(change: impl FnOnce(&mut ApiConfig)) -> World {
        World::on(None, IdentityOptions::default(), change)
    }

    /// With read models, users and keys on a database, or in files of its own.
    pub fn on(
        database: Option<Database>,
        options: IdentityOptions,
        change: impl FnOnce(&mut ApiConfig),
    ) -> World {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("hoga-gateway-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let database = database.unwrap_or_else(|| Database::Sqlite { dir: dir.join("stores") });
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        let (hub, feed) = Hub::start(HubConfig::default()).unwrap();
        let catalog = SharedCatalog::default();
        let mut config = EngineConfig::new(dir.join("engine"));
        config.durability = Durability::None;
        config.segment_bytes = 1 << 20;
        config.final_snapshot = false;
        let engine = Engine::start(config, log.clone(), vec![catalog.subscriber(), Box::new(feed)]).unwrap();
        let stores = Arc::new(Stores::open_with(StoresConfig::on(database.clone()), log.clone()).unwrap());
        for topic in [FIRED, NOTIFICATION] {
            let partitions =
                log.topics().iter().find(|spec| spec.name == "order.lifecycle").unwrap().partitions;
            log.create_topic(&TopicSpec::delete(topic, partitions, 64 << 20)).unwrap();
        }
        stores.connect(Arc::new(EnginePort::new(engine.handle(), &stores)));
        stores.start().unwrap();
        let listener = hub.clone();
        stores.listen(Box::new(move |notification| listener.notice(notification))).unwrap();
        let observe = observe_stores(&stores);
        let lag =
            LagMonitor::start(vec![log], observe, LagOptions::default(), Duration::from_millis(20)).unwrap();
        let identity = Identity::open_with(&database, &options).unwrap();
        let handle = engine.handle();
        for (id, name) in ["BTC", "ETH", "USDT"].into_iter().enumerate() {
            let body = Body::AddAsset { id: AssetId(id as u16), name: Name::new(name).unwrap() };
            handle.submit(body, Timestamp(0), ReplyTo::none()).unwrap();
        }
        for instrument in
            [instrument(0, "BTCUSDT", 0, "0.01", "0.00001"), instrument(1, "ETHUSDT", 1, "0.01", "0.0001")]
        {
            handle.submit(Body::SetInstrument(instrument), Timestamp(0), ReplyTo::none()).unwrap();
        }
        let mut config =
            ApiConfig { listen: "127.0.0.1:0".into(), admin_token: OPERATOR.into(), ..ApiConfig::default() };
        change(&mut config);
        let services = Services {
            engine: handle,
            stores: stores.clone(),
            identity,
            hub: hub.clone(),
            catalog: catalog.clone(),
            pipeline: Pipeline { latency: latency_of_stores(&stores), ..Pipeline::new(lag.watch()) },
            plant: None,
        };
        let server = Server::start(config, services).unwrap();
        let address = server.local_addr();
        let world = World { server: Some(server), engine: Some(engine), stores, hub, lag, dir, address };
        world.until("the markets are known", || {
            catalog.current().instruments().len() == 2 && world.hub.instruments().len() == 2
        });
        world
    }

    /// Waits for a condition, at most 10 s.
    pub fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let begun = std::time::Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(10), "waited 10 s until {what}");
            std::thread::yield_now();
        }
    }

    /// Waits until the lag of all groups was looked at after this call.
    pub fn look_at_lag(&self) {
        assert!(self.lag.watch().wait_round(Duration::from_secs(10)));
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn stop_engine(&mut self) {
        self.engine.take().unwrap().shutdown().unwrap();
    }

    pub fn stop_server(&mut self) {
        self.server.take().unwrap().shutdown();
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends raw bytes and reads until the server closes.
    pub fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer); // a reset after the answer is fine
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// One request on a connection of its own. `headers`: whole lines.
    pub fn request(&self, method: &str, target: &str, headers: &str, body: &str) -> Answer {
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            self.address,
            body.len()
        );
        let answer = self.raw(request.as_bytes());
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_owned(), text: text.to_owned() }
    }

    pub fn get(&self, target: &str) -> Answer {
        self.request("GET", target, "", "")
    }

    pub fn operator(&self, method: &str, target: &str, body: &str) -> Answer {
        self.request(method, target, &format!("Authorization: Bearer {OPERATOR}\r\n"), body)
    }

    /// A paper account.
    pub fn account(&self, deposits: &[(&str, &str)]) -> Account {
        let deposits: serde_json::Map<String, Value> =
            deposits.iter().map(|(asset, amount)| ((*asset).to_owned(), Value::from(*amount))).collect();
        let body = serde_json::json!({ "deposits": deposits }).to_string();
        let answer = self.operator("POST", "/api/v1/admin/accounts", &body);
        assert_eq!(answer.status, 201, "{answer:?}");
        let json = answer.json();
        let text = |name: &str| json[name].as_str().unwrap().to_owned();
        Account { id: json["account"].as_u64().unwrap(), key: text("key"), secret: text("secret") }
    }

    /// A rich account.
    pub fn trader(&self) -> Account {
        self.account(&[("BTC", "1000"), ("ETH", "10000"), ("USDT", "100000000")])
    }

    /// A signed request, with the parameters where clients send them: in the query for GET and DELETE, in a form for POST.
    pub fn signed(&self, account: &Account, method: &str, path: &str, params: &str) -> Answer {
        let joint = if params.is_empty() { "" } else { "&" };
        self.presigned(
            account,
            method,
            path,
            &format!("{params}{joint}timestamp={}&recvWindow=10000", now_ms()),
        )
    }

    /// As [`World::signed`], with the time among the parameters.
    pub fn presigned(&self, account: &Account, method: &str, path: &str, params: &str) -> Answer {
        let signature = hmac_hex(&account.secret, params);
        let all = format!("{params}&signature={signature}");
        let header = format!("X-MBX-APIKEY: {}\r\n", account.key);
        match method {
            "POST" | "PUT" => {
                let form = format!("{header}Content-Type: application/x-www-form-urlencoded\r\n");
                self.request(method, path, &form, &all)
            }
            _ => self.request(method, &format!("{path}?{all}"), &header, ""),
        }
    }

    /// Places an order; it must be taken.
    pub fn place(&self, account: &Account, params: &str) -> Value {
        let answer = self.signed(account, "POST", "/api/v3/order", params);
        assert_eq!(answer.status, 200, "{params}: {answer:?}");
        answer.json()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.server.take());
        if let Some(engine) = self.engine.take() {
            let _ = engine.shutdown();
        }
        self.hub.shutdown();
        self.stores.shutdown();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
