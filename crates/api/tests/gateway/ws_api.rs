//! The WebSocket API: pipelined orders, sessions, private events.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use hoga_api::ws::decode::{Decoder, Message, Role};
use hoga_api::ws::{Opcode, client};
use serde_json::{Map, Value, json};

use crate::support::{Account, World, hmac_hex, now_ms};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A client.
pub struct Client {
    stream: TcpStream,
    decoder: Decoder,
    inbox: VecDeque<Value>,
    /// Notifications come when they are stored, between any other messages: they are kept apart.
    notifications: VecDeque<Value>,
    closed: Option<u16>,
}

impl Client {
    pub fn open(world: &World, target: &str) -> Client {
        Client::try_open(world, target, "").unwrap()
    }

    pub fn try_open(world: &World, target: &str, headers: &str) -> Result<Client, String> {
        let mut stream = world.connect();
        stream.write_all(&client::handshake(&world.address.to_string(), target, KEY, headers)).unwrap();
        let mut received = Vec::new();
        let mut byte = [0];
        loop {
            if let Some(answer) = client::handshake_answer(&received, KEY) {
                answer?;
                break;
            }
            if stream.read(&mut byte).unwrap() == 0 {
                return Err(String::from_utf8_lossy(&received).into_owned());
            }
            received.push(byte[0]);
        }
        let decoder = Decoder::new(Role::Client, 1 << 22);
        Ok(Client { stream, decoder, inbox: VecDeque::new(), notifications: VecDeque::new(), closed: None })
    }

    pub fn send(&mut self, text: &str) {
        let mut frame = Vec::new();
        client::write_frame(&mut frame, Opcode::Text, text.as_bytes(), [1, 2, 3, 4]);
        self.stream.write_all(&frame).unwrap();
    }

    /// The next message that is no notification; `None` once the server has closed.
    pub fn next(&mut self) -> Option<Value> {
        self.take(|client| client.inbox.pop_front())
    }

    /// The next notification.
    pub fn notification(&mut self) -> Option<Value> {
        self.take(|client| client.notifications.pop_front())
    }

    fn take(&mut self, from: impl Fn(&mut Client) -> Option<Value>) -> Option<Value> {
        let mut buffer = [0; 65_536];
        loop {
            if let Some(value) = from(self) {
                return Some(value);
            }
            if self.closed.is_some() {
                return None;
            }
            let n = self.stream.read(&mut buffer).expect("an answer in time");
            if n == 0 {
                self.closed = Some(0);
                continue;
            }
            let (inbox, notifications, closed) = (&mut self.inbox, &mut self.notifications, &mut self.closed);
            self.decoder
                .feed(&mut buffer[..n], |message| {
                    match message {
                        Message::Text(text) => {
                            let value: Value = serde_json::from_str(text).expect("JSON");
                            let told = value["event"]["e"] == "notification";
                            if told { &mut *notifications } else { &mut *inbox }.push_back(value);
                        }
                        Message::Close(reason) => *closed = Some(reason.map_or(0, |(code, _)| code.0)),
                        _ => {}
                    }
                    Ok(())
                })
                .unwrap();
        }
    }

    pub fn ask(&mut self, request: &Value) -> Value {
        self.send(&request.to_string());
        self.next().expect("an answer")
    }

    /// The next message that is an event of this type.
    fn event(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next().expect("an event");
            if message["event"]["e"] == kind {
                return message;
            }
        }
    }
}

/// A signed request, as clients make it: parameters sorted by name.
pub fn signed(account: &Account, id: Value, method: &str, params: &[(&str, &str)]) -> Value {
    let time = now_ms().to_string();
    let mut all: Vec<(&str, &str)> = params.to_vec();
    all.extend([("apiKey", account.key.as_str()), ("timestamp", time.as_str())]);
    all.sort_unstable();
    let payload: Vec<String> = all.iter().map(|(n, v)| format!("{n}={v}")).collect();
    let mut params: Map<String, Value> =
        all.iter().map(|(n, v)| ((*n).to_owned(), Value::from(*v))).collect();
    params.insert("timestamp".into(), json!(time.parse::<u64>().unwrap()));
    params.insert("signature".into(), json!(hmac_hex(&account.secret, &payload.join("&"))));
    json!({ "id": id, "method": method, "params": params })
}

const BUY: [(&str, &str); 6] = [
    ("symbol", "BTCUSDT"),
    ("side", "BUY"),
    ("type", "LIMIT"),
    ("timeInForce", "GTC"),
    ("quantity", "0.01"),
    ("price", "45000"),
];

#[test]
fn orders_go_in_and_answers_come_back() {
    let world = World::start();
    let trader = world.trader();
    let mut ws = Client::open(&world, "/ws-api/v3");
    let answer = ws.ask(&signed(&trader, json!("a-1"), "order.place", &BUY));
    assert_eq!((&answer["id"], &answer["status"]), (&json!("a-1"), &json!(200)), "{answer}");
    assert_eq!((&answer["result"]["status"], &answer["result"]["fills"]), (&json!("NEW"), &json!([])));
    let kinds: Vec<&str> = answer["rateLimits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["rateLimitType"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["ORDERS", "ORDERS", "REQUEST_WEIGHT"]);
    assert_eq!(answer["rateLimits"][1]["count"], 1);
    let order = answer["result"]["orderId"].to_string();

    let by_id = [("symbol", "BTCUSDT"), ("orderId", order.as_str())];
    let status = ws.ask(&signed(&trader, json!(2), "order.status", &by_id));
    assert_eq!((&status["id"], &status["result"]["status"]), (&json!(2), &json!("NEW")), "{status}");
    let open = ws.ask(&signed(&trader, json!(3), "openOrders.status", &[("symbol", "BTCUSDT")]));
    assert_eq!(open["result"].as_array().unwrap().len(), 1);
    let mut quiet = by_id.to_vec();
    quiet.push(("returnRateLimits", "false"));
    let cancel = ws.ask(&signed(&trader, Value::Null, "v3/order.cancel", &quiet));
    assert_eq!((&cancel["id"], &cancel["result"]["status"]), (&Value::Null, &json!("CANCELED")), "{cancel}");
    assert!(cancel.get("rateLimits").is_none());
    let account = ws.ask(&signed(&trader, json!(5), "account.status", &[]));
    assert_eq!(account["result"]["balances"][0]["free"], "1000.00000000", "{account}");
    let test = ws.ask(&signed(&trader, json!(6), "order.test", &BUY));
    assert_eq!(test["result"], json!({}), "{test}");
    ws.ask(&signed(&trader, json!(7), "order.place", &BUY));
    let all = ws.ask(&signed(&trader, json!(8), "openOrders.cancelAll", &[("symbol", "BTCUSDT")]));
    assert_eq!(all["result"].as_array().unwrap().len(), 1, "{all}");
    for (method, params, check) in [
        ("ping", json!({}), "/result"),
        ("time", json!({}), "/result/serverTime"),
        ("depth", json!({ "symbol": "BTCUSDT", "limit": 5 }), "/result/lastUpdateId"),
        ("exchangeInfo", json!({ "symbols": ["BTCUSDT"] }), "/result/symbols/0/filters"),
        ("klines", json!({ "symbol": "BTCUSDT", "interval": "1m" }), "/result"),
        ("ticker.price", json!({ "symbol": "BTCUSDT" }), "/result/price"),
        ("trades.historical", json!({ "symbol": "BTCUSDT" }), "/result"),
        ("session.status", json!({}), "/result/connectedSince"),
    ] {
        let answer = ws.ask(&json!({ "id": method, "method": method, "params": params }));
        assert!(answer["status"] == 200 && answer.pointer(check).is_some_and(|v| !v.is_null()), "{answer}");
    }
    assert!(ws.ask(&json!({ "id": 9, "method": "ping" }))["rateLimits"].is_array());
    let mut silent = Client::open(&world, "/ws-api/v3?returnRateLimits=false");
    assert_eq!(
        silent.ask(&json!({ "id": 1, "method": "ping" })),
        json!({ "id": 1, "status": 200, "result": {} })
    );
}

#[test]
fn many_orders_may_be_under_way() {
    let world = World::start();
    let trader = world.trader();
    let mut ws = Client::open(&world, "/ws-api/v3");
    const COUNT: usize = 150;
    for i in 0..COUNT {
        let id = format!("o{i}");
        let mut params = BUY.to_vec();
        params.push(("newClientOrderId", &id));
        ws.send(&signed(&trader, json!(i), "order.place", &params).to_string());
        ws.send(
            &signed(
                &trader,
                json!(COUNT + i),
                "order.cancel",
                &[("symbol", "BTCUSDT"), ("origClientOrderId", &id)],
            )
            .to_string(),
        );
    }
    // The engine answers in the order of the commands.
    for i in 0..COUNT {
        for (id, status) in [(i, "NEW"), (COUNT + i, "CANCELED")] {
            let answer = ws.next().unwrap();
            assert_eq!(
                (&answer["id"], &answer["result"]["status"]),
                (&json!(id), &json!(status)),
                "{answer}"
            );
        }
    }
}

#[test]
fn bad_messages_are_answered_or_cut() {
    let world = World::start();
    let trader = world.trader();
    // Something to compare prices with.
    world.place(
        &world.trader(),
        "symbol=BTCUSDT&side=SELL&type=LIMIT&timeInForce=GTC&quantity=0.1&price=50000",
    );
    let mut ws = Client::open(&world, "/ws-api/v3");
    let mut forged = signed(&trader, json!(1), "order.place", &BUY);
    forged["params"]["quantity"] = json!("0.02");
    let mut number = signed(&trader, json!(1), "order.place", &BUY);
    number["params"]["price"] = json!(45000);
    let mut stale = signed(&trader, json!(1), "order.place", &BUY);
    stale["params"]["timestamp"] = json!(now_ms() - 20_000);
    let unknown = Account { key: "A".repeat(64), ..trader.clone() };
    for (text, id, status, code) in [
        ("nonsense".to_owned(), Value::Null, 400, -1135),
        ("[]".to_owned(), Value::Null, 400, -1135),
        (r#"{"id":7}"#.to_owned(), json!(7), 400, -1102),
        (r#"{"id":7,"method":"order.fly"}"#.to_owned(), json!(7), 400, -1020),
        (r#"{"id":7,"method":"ping","params":{"x":1}}"#.to_owned(), json!(7), 400, -1104),
        (r#"{"id":7,"method":"order.place","params":{}}"#.to_owned(), json!(7), 400, -1102),
        (forged.to_string(), json!(1), 400, -1022),
        (stale.to_string(), json!(1), 400, -1022),
        (signed(&unknown, json!(1), "order.place", &BUY).to_string(), json!(1), 401, -2015),
        (signed(&trader, json!(1), "order.place", &[BUY[0], BUY[1]]).to_string(), json!(1), 400, -1102),
        (
            signed(&trader, json!(1), "order.place", &[&BUY[..5], &[("price", "1e-05")]].concat())
                .to_string(),
            json!(1),
            400,
            -1100,
        ),
        (
            signed(&trader, json!(1), "order.place", &[&BUY[..5], &[("price", "450000")]].concat())
                .to_string(),
            json!(1),
            400,
            -1013,
        ),
        (
            signed(&trader, json!(1), "order.cancel", &[("symbol", "BTCUSDT"), ("orderId", "77")])
                .to_string(),
            json!(1),
            400,
            -2011,
        ),
        (
            signed(&trader, json!(1), "order.status", &[("symbol", "BTCUSDT"), ("orderId", "77")])
                .to_string(),
            json!(1),
            400,
            -2013,
        ),
        (signed(&trader, json!(1), "session.logon", &[]).to_string(), json!(1), 400, -4056),
        (r#"{"id":7,"method":"userDataStream.subscribe"}"#.to_owned(), json!(7), 401, -2015),
        (
            r#"{"id":7,"method":"userDataStream.unsubscribe","params":{"subscriptionId":3}}"#.to_owned(),
            json!(7),
            400,
            -2036,
        ),
        (r#"{"id":7,"method":"session.token","params":{"token":"a.b.c"}}"#.to_owned(), json!(7), 401, -2015),
    ] {
        ws.send(&text);
        let answer = ws.next().unwrap();
        assert_eq!(
            (&answer["id"], &answer["status"], &answer["error"]["code"]),
            (&id, &json!(status), &json!(code)),
            "{text}: {answer}"
        );
    }
    // A number is signed as JSON prints it.
    assert_eq!(ws.ask(&number)["status"], 200);
    // Binary messages and giants are closed with a code that says so.
    let mut frame = Vec::new();
    client::write_frame(&mut frame, Opcode::Binary, b"{}", [9; 4]);
    ws.stream.write_all(&frame).unwrap();
    assert_eq!((ws.next(), ws.closed), (None, Some(1003)));
    let mut giant = Client::open(&world, "/ws-api/v3");
    let mut frame = Vec::new();
    client::write_frame(&mut frame, Opcode::Text, &vec![b' '; 70_000], [9; 4]);
    giant.stream.write_all(&frame[..1000]).unwrap();
    assert_eq!((giant.next(), giant.closed), (None, Some(1009)));
    for (target, headers, status) in [
        ("/ws-api/v4", "", "404"),
        ("/ws-api/v3", "Origin: http://evil.example\r\n", "403"),
        ("/ws/nope@trade", "", "400"),
    ] {
        let refused = Client::try_open(&world, target, headers).err().unwrap();
        assert!(refused.starts_with(&format!("HTTP/1.1 {status}")), "{target}: {refused}");
    }
    let own = format!("Origin: http://{}\r\n", world.address);
    assert!(Client::try_open(&world, "/ws-api/v3", &own).is_ok());
}

#[test]
fn a_session_needs_no_signatures() {
    let world = World::start();
    let trader = world.trader();
    let private = SigningKey::from_bytes(&[5; 32]);
    let public = hex::encode(private.verifying_key().as_bytes());
    let key = world.signed(&trader, "POST", "/api/v1/keys", &format!("publicKey={public}")).json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut ws = Client::open(&world, "/ws-api/v3");
    let now = now_ms();
    let signature =
        STANDARD.encode(private.sign(format!("apiKey={key}&timestamp={now}").as_bytes()).to_bytes());
    let logon = ws.ask(&json!({ "id": 1, "method": "session.logon", "params": { "apiKey": key, "timestamp": now, "signature": signature } }));
    assert_eq!(
        (&logon["result"]["apiKey"], &logon["result"]["userDataStream"]),
        (&json!(key), &json!(false)),
        "{logon}"
    );
    let sub = ws.ask(&json!({ "id": 2, "method": "userDataStream.subscribe" }));
    assert_eq!(sub["result"]["subscriptionId"], 0, "{sub}");
    let mut params: Map<String, Value> = BUY.iter().map(|(n, v)| ((*n).to_owned(), json!(v))).collect();
    params.insert("timestamp".into(), json!(now_ms()));
    let order = json!({ "id": 3, "method": "order.place", "params": params });
    ws.send(&order.to_string());
    let report = ws.event("executionReport");
    assert_eq!((&report["event"]["x"], &report["subscriptionId"]), (&json!("NEW"), &json!(0)));
    let out = ws.ask(&json!({ "id": 4, "method": "session.logout" }));
    assert!(out["result"]["apiKey"].is_null() || out["event"]["e"] == "outboundAccountPosition", "{out}");
    ws.event("eventStreamTerminated");
    loop {
        let answer = ws.ask(&order);
        if answer["id"] == 3 {
            assert_eq!(answer["error"]["code"], -1102, "{answer}");
            break;
        }
    }
}

#[test]
fn private_events_reach_their_owner_and_nobody_else() {
    let world = World::start();
    let (maker, taker, other) = (world.trader(), world.trader(), world.trader());
    let mut clients: Vec<Client> = [&maker, &taker, &other]
        .iter()
        .map(|account| {
            let mut ws = Client::open(&world, "/ws-api/v3");
            let answer = ws.ask(&signed(account, json!("s"), "userDataStream.subscribe.signature", &[]));
            assert_eq!(answer["result"], json!({ "subscriptionId": 0 }), "{answer}");
            let twice = ws.ask(&signed(account, json!("t"), "userDataStream.subscribe.signature", &[]));
            assert_eq!(twice["error"]["code"], -2035, "{twice}");
            ws
        })
        .collect();
    world.place(
        &maker,
        "symbol=BTCUSDT&side=SELL&type=LIMIT&timeInForce=GTC&quantity=0.5&price=50000&newClientOrderId=ask-1",
    );
    world.place(&taker, "symbol=BTCUSDT&side=BUY&type=MARKET&quantity=0.2");
    world.signed(
        &maker,
        "DELETE",
        "/api/v3/order",
        "symbol=BTCUSDT&origClientOrderId=ask-1&newClientOrderId=bye",
    );
    let body = r#"{"asset":"USDT","amount":"7"}"#;
    let deposit = |account: &Account| {
        // A native endpoint takes a signed form as well.
        world.signed(account, "POST", "/api/v1/deposits", "asset=USDT&amount=7")
    };
    assert_eq!(deposit(&other).status, 200, "{body}");

    let new = clients[0].event("executionReport")["event"].clone();
    assert_eq!(
        (&new["x"], &new["X"], &new["c"], &new["w"]),
        (&json!("NEW"), &json!("NEW"), &json!("ask-1"), &json!(true))
    );
    assert_eq!((&new["N"], &new["t"], &new["n"]), (&Value::Null, &json!(-1), &json!("0")));
    let position = clients[0].event("outboundAccountPosition")["event"].clone();
    assert_eq!((&position["B"][0]["a"], &position["B"][0]["l"]), (&json!("BTC"), &json!("0.50000000")));
    let trade = clients[0].event("executionReport")["event"].clone();
    assert_eq!(
        (&trade["x"], &trade["X"], &trade["m"]),
        (&json!("TRADE"), &json!("PARTIALLY_FILLED"), &json!(true))
    );
    assert_eq!(
        (&trade["l"], &trade["L"], &trade["N"], &trade["Y"]),
        (&json!("0.20000000"), &json!("50000.00000000"), &json!("USDT"), &json!("10000.00000000"))
    );
    let cancel = clients[0].event("executionReport")["event"].clone();
    assert_eq!(
        (&cancel["x"], &cancel["c"], &cancel["C"]),
        (&json!("CANCELED"), &json!("bye"), &json!("ask-1"))
    );

    let own = clients[1].event("executionReport")["event"].clone();
    assert_eq!((&own["x"], &own["S"]), (&json!("NEW"), &json!("BUY")));
    let own = clients[1].event("executionReport")["event"].clone();
    assert_eq!((&own["x"], &own["X"], &own["N"]), (&json!("TRADE"), &json!("FILLED"), &json!("BTC")));

    // The third account saw nothing but its own deposit.
    let first = clients[2].next().unwrap();
    assert_eq!(
        (&first["event"]["e"], &first["event"]["d"]),
        (&json!("balanceUpdate"), &json!("7.00000000")),
        "{first}"
    );
    // An ended subscription is silent; a revoked key ends its connection.
    let ended = clients[1].ask(
        &json!({ "id": "u", "method": "userDataStream.unsubscribe", "params": { "subscriptionId": 0 } }),
    );
    let ended = if ended["id"] == "u" { ended } else { clients[1].event("eventStreamTerminated") };
    assert!(ended["status"] == 200 || ended["event"]["e"] == "eventStreamTerminated");
    assert_eq!(world.signed(&other, "DELETE", &format!("/api/v1/keys/{}", other.key), "").status, 200);
    world.operator("POST", "/api/v1/admin/accounts", "{}");
    clients[2].event("outboundAccountPosition");
}

#[test]
fn the_console_logs_in_with_its_token() {
    let world = World::start();
    let who = r#"{"name":"eve","password":"correct horse"}"#;
    world.request("POST", "/api/v1/users", "", who);
    let token =
        world.request("POST", "/api/v1/sessions", "", who).json()["token"].as_str().unwrap().to_owned();
    let mut ws = Client::open(&world, "/ws-api/v3");
    let answer = ws.ask(&json!({ "id": 1, "method": "session.token", "params": { "token": token } }));
    assert_eq!(answer["result"]["user"], "eve", "{answer}");
    assert_eq!(
        ws.ask(&json!({ "id": 2, "method": "userDataStream.subscribe" }))["result"]["subscriptionId"],
        0
    );
    let orders = ws.ask(&json!({ "id": 3, "method": "openOrders.status" }));
    assert_eq!(orders["result"], json!([]), "{orders}");
    let bearer = format!("Authorization: Bearer {token}\r\n");
    world.request("POST", "/api/v1/deposits", &bearer, r#"{"asset":"BTC","amount":"1"}"#);
    assert_eq!(ws.event("balanceUpdate")["event"]["a"], "BTC");
}

#[test]
fn market_streams_are_served_on_their_paths() {
    let world = World::start();
    let (maker, taker) = (world.trader(), world.trader());
    let mut raw = Client::open(&world, "/ws/btcusdt@trade");
    let mut combined = Client::open(&world, "/stream?streams=btcusdt@trade/btcusdt@bookTicker");
    let mut ccxt = Client::open(&world, "/stream/0");
    assert_eq!(
        ccxt.ask(&json!({ "method": "SUBSCRIBE", "params": ["btcusdt@trade"], "id": 1 })),
        json!({ "result": null, "id": 1 })
    );
    world.place(&maker, "symbol=BTCUSDT&side=SELL&type=LIMIT&timeInForce=GTC&quantity=0.5&price=50000");
    world.place(&taker, "symbol=BTCUSDT&side=BUY&type=MARKET&quantity=0.2");
    assert_eq!(raw.next().unwrap()["p"], "50000.00000000");
    let mut streams =
        [combined.next().unwrap()["stream"].to_string(), combined.next().unwrap()["stream"].to_string()];
    streams.sort();
    assert!(streams.contains(&"\"btcusdt@bookTicker\"".to_owned()), "{streams:?}");
    let message = ccxt.next().unwrap();
    assert!(message["p"] == "50000.00000000" || message["data"]["p"] == "50000.00000000", "{message}");
}

#[test]
fn a_shutdown_says_goodbye() {
    let mut world = World::start();
    let mut ws = Client::open(&world, "/ws-api/v3");
    ws.ask(&json!({ "id": 1, "method": "ping" }));
    let idle = world.connect();
    let begun = std::time::Instant::now();
    world.stop_server();
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!((ws.next(), ws.closed), (None, Some(1001)));
    drop(idle);
}
