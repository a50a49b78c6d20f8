//! A database that other nodes write too, and that goes away: keys that are not in memory, questions about the past, and trading meanwhile.

use std::time::{Duration, Instant};

use hoga_core::ids::{AccountId, Timestamp};
use hoga_store::{ApiKey, Database, Identity, IdentityOptions, KeyKind, PostgresConfig};
use serde_json::json;

use crate::proxy::Proxy;
use crate::support::{Account, World};
use crate::ws_api::{Client, signed};

const LIMIT: &str = "symbol=BTCUSDT&side=BUY&type=LIMIT&timeInForce=GTC&quantity=0.01&price=45000";

/// A key as another node makes it.
fn elsewhere(identity: &Identity, account: u64, name: &str) -> Account {
    let (key, secret) = (name.repeat(32), name.repeat(16));
    let stored = ApiKey {
        key: key.clone(),
        kind: KeyKind::Hmac,
        secret: secret.clone().into_bytes(),
        account: AccountId(account as u32),
        label: "made elsewhere".into(),
        created: Timestamp(5),
        revoked: None,
    };
    identity.add_key(&stored).unwrap();
    Account { id: account, key, secret }
}

#[test]
fn keys_that_are_not_in_memory_are_looked_up_and_requests_keep_their_order() {
    let world = World::on(None, IdentityOptions { keys: 1, ..IdentityOptions::default() }, |_| {});
    // Each of them pushes the other one out of the memory.
    let traders = [world.trader(), world.trader()];
    for trader in traders.iter().cycle().take(6) {
        assert_eq!(world.signed(trader, "GET", "/api/v3/openOrders", "").status, 200);
    }
    let unknown = Account { key: "k".repeat(64), ..traders[0].clone() };
    assert_eq!(world.signed(&unknown, "GET", "/api/v3/openOrders", "").error().1, -2015);
    let mut client = Client::open(&world, "/ws-api/v3");
    for id in 0..12 {
        let who = [&traders[0], &traders[1], &unknown][id % 3];
        client.send(&signed(who, json!(id), "account.rateLimits.orders", &[]).to_string());
        client.send(&json!({ "id": format!("after {id}"), "method": "ping" }).to_string());
    }
    let mut known = 0;
    let mut pings = Vec::new();
    for _ in 0..24 {
        let answer = client.next().unwrap();
        match answer["id"].as_u64() {
            None => pings.push(answer["id"].clone()),
            Some(id) if id % 3 == 2 => assert_eq!(answer["error"]["code"], -2015, "{answer}"),
            Some(_) => {
                assert_eq!(answer["status"], 200, "{answer}");
                known += 1;
            }
        }
    }
    assert_eq!(known, 8);
    let expected: Vec<_> = (0..12).map(|id| json!(format!("after {id}"))).collect();
    assert_eq!(pings, expected, "nothing overtakes what waits for its key");
}

/// Drops the schemas of a test.
struct Schemas(PostgresConfig);

impl Drop for Schemas {
    fn drop(&mut self) {
        let mut client = postgres::Client::connect(&self.0.url, postgres::NoTls).unwrap();
        let sql = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)";
        for row in client.query(sql, &[&self.0.schema_prefix]).unwrap() {
            let _ = client.batch_execute(&format!("DROP SCHEMA {} CASCADE", row.get::<_, String>(0)));
        }
    }
}

#[test]
fn trading_goes_on_while_the_database_is_away() {
    let Ok(url) = std::env::var("HOGA_TEST_POSTGRES") else {
        eprintln!("SKIP postgres: HOGA_TEST_POSTGRES is not set (scripts/services/postgres.sh up)");
        return;
    };
    let schema_prefix = format!("gateway{}_", std::process::id());
    let direct = PostgresConfig { schema_prefix, ..PostgresConfig::new(url) };
    let schemas = Schemas(direct.clone());
    let (proxy, url) = Proxy::before(&direct.url);
    let through = Database::Postgres(PostgresConfig { url, ..direct.clone() });
    // Long enough that nothing is known by itself.
    let options = IdentityOptions { refresh: Duration::from_secs(3600), ..IdentityOptions::default() };
    let world = World::on(Some(through), options.clone(), |config| config.read_wait_ms = 100);
    let other = Identity::open_with(&Database::Postgres(direct), &options).unwrap();
    let trader = world.trader();
    world.place(&trader, LIMIT);
    let who = r#"{"name":"ann@example.org","password":"correct horse"}"#;
    assert_eq!(world.request("POST", "/api/v1/users", "", who).status, 201);
    let login = world.request("POST", "/api/v1/sessions", "", who).json();
    let bearer = format!("Authorization: Bearer {}\r\n", login["token"].as_str().unwrap());
    world.until("the order is stored", || {
        let all = world.signed(&trader, "GET", "/api/v3/allOrders", "symbol=BTCUSDT");
        assert_eq!(all.status, 200, "{all:?}");
        all.json().as_array().is_some_and(|all| all.len() == 1)
    });

    // A key of another node is good at once.
    let moved = elsewhere(&other, trader.id, "ab");
    assert_eq!(world.signed(&moved, "GET", "/api/v3/openOrders", "").json().as_array().unwrap().len(), 1);
    let mut client = Client::open(&world, "/ws-api/v3");
    let third = elsewhere(&other, trader.id, "cd");
    let order = [("symbol", "BTCUSDT"), ("side", "BUY"), ("type", "LIMIT"), ("timeInForce", "GTC")];
    let order = [&order[..], &[("quantity", "0.01"), ("price", "45000")]].concat();
    let placed = client.ask(&signed(&third, json!(1), "order.place", &order));
    assert_eq!(placed["status"], 200, "{placed}");

    proxy.cut();
    let late = elsewhere(&other, trader.id, "ef");
    let begun = Instant::now();
    let mut orders = 0;
    for round in 0..10 {
        // Who is known trades, by REST, by the WebSocket API and by a login; so do those whose key came from elsewhere.
        let asked = Instant::now();
        for known in [&trader, &moved, &third] {
            world.place(known, LIMIT);
            orders += 1;
        }
        assert_eq!(
            world.request("POST", "/api/v3/order", &bearer, LIMIT).error().1,
            -2010,
            "ann has no money"
        );
        let placed = client.ask(&signed(&third, json!(2), "order.place", &order));
        assert_eq!(placed["status"], 200, "{placed}");
        orders += 1;
        let open = world.signed(&trader, "GET", "/api/v3/openOrders", "");
        assert_eq!(open.json().as_array().unwrap().len(), orders + 2);
        assert!(asked.elapsed() < Duration::from_secs(2), "round {round}: {:?}", asked.elapsed());
        // What needs the database says so.
        for answer in [
            world.signed(&trader, "GET", "/api/v3/allOrders", "symbol=BTCUSDT"),
            world.signed(&trader, "GET", "/api/v3/myTrades", "symbol=BTCUSDT"),
            world.get("/api/v3/klines?symbol=BTCUSDT&interval=1m"),
            world.request("POST", "/api/v1/users", "", &who.replace("ann", "bob")),
            world.request("POST", "/api/v1/sessions", "", who),
            world.request("POST", "/api/v1/keys", &bearer, "{}"),
            world.request("GET", "/api/v1/keys", &bearer, ""),
            world.signed(&late, "GET", "/api/v3/openOrders", ""),
        ] {
            let (status, code, text) = answer.error();
            assert_eq!((status, code), (503, -1001), "{answer:?}");
            assert!(text.contains("database is not reachable"), "{text}");
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        client.send(&signed(&late, json!("late"), "order.place", &order).to_string());
        client.send(&signed(&trader, json!("past"), "allOrders", &[("symbol", "BTCUSDT")]).to_string());
        for id in ["late", "past"] {
            let answer = client.next().unwrap();
            assert_eq!((&answer["id"], &answer["status"]), (&json!(id), &json!(503)), "{answer}");
            assert_eq!(answer["error"]["code"], -1001, "{answer}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "answers are bounded: {:?}", begun.elapsed());

    proxy.restore();
    world.until("the late key is known", || {
        world.signed(&late, "GET", "/api/v3/openOrders", "").status == 200
    });
    world.until("all orders are stored", || {
        let all = world.signed(&trader, "GET", "/api/v3/allOrders", "symbol=BTCUSDT");
        all.status == 200 && all.json().as_array().is_some_and(|all| all.len() == orders + 2)
    });
    let nobody = Account { key: "k".repeat(64), ..trader.clone() };
    assert_eq!(world.signed(&nobody, "GET", "/api/v3/openOrders", "").error().1, -2015);
    assert_eq!(world.request("POST", "/api/v1/users", "", &who.replace("ann", "bob")).status, 201);
    drop((world, other));
    drop(schemas);
}
