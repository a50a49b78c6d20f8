//! Alerts and notifications, from the request to the user's stream.

use serde_json::{Value, json};

use crate::support::World;
use crate::ws_api::{Client, signed};

/// A request in a form, with an order as JSON.
fn form(condition: &str, price: &str, order: Option<&str>) -> String {
    let order = order.map_or(String::new(), |order| {
        let encoded: String = order.bytes().map(|byte| format!("%{byte:02X}")).collect();
        format!("&order={encoded}")
    });
    format!("symbol=BTCUSDT&condition={condition}&price={price}{order}")
}

#[test]
fn an_alert_fires_is_told_and_its_order_is_placed_once() {
    let world = World::start();
    let (watcher, maker, taker) = (world.account(&[("USDT", "100000")]), world.trader(), world.trader());
    let mut ws = Client::open(&world, "/ws-api/v3");
    let sub = ws.ask(&signed(&watcher, json!("s"), "userDataStream.subscribe.signature", &[]));
    assert_eq!(sub["result"]["subscriptionId"], 0, "{sub}");

    let order =
        r#"{"symbol":"ETHUSDT","side":"BUY","type":"LIMIT","timeInForce":"GTC","quantity":"1","price":2000}"#;
    let body = format!("{}&clientId=a-1", form("ABOVE", "50000", Some(order)));
    let made = world.signed(&watcher, "POST", "/api/v1/alerts", &body);
    assert_eq!((made.status, &made.json()["status"]), (201, &json!("ARMED")), "{made:?}");
    let id = made.json()["id"].as_u64().unwrap();
    let again = world.signed(&watcher, "POST", "/api/v1/alerts", &body);
    assert_eq!((again.status, again.json()["id"].as_u64()), (200, Some(id)), "{again:?}");

    world.place(&maker, "symbol=BTCUSDT&side=SELL&type=LIMIT&timeInForce=GTC&quantity=0.5&price=50000");
    world.place(&taker, "symbol=BTCUSDT&side=BUY&type=MARKET&quantity=0.2");
    world.place(&taker, "symbol=BTCUSDT&side=BUY&type=MARKET&quantity=0.1");

    let pushed = loop {
        // The deposit of the account may be told first.
        let event = ws.notification().unwrap()["event"].clone();
        assert!(event.get("id").is_none(), "an id of its own would make it the answer to a request: {event}");
        let pushed = event["notification"].clone();
        if pushed["kind"] != "DEPOSIT" {
            break pushed;
        }
    };
    assert_eq!(
        (&pushed["kind"], &pushed["alertId"], &pushed["symbol"], &pushed["price"]),
        (&json!("ALERT"), &json!(id), &json!("BTCUSDT"), &json!("50000.00000000")),
        "{pushed}"
    );
    let alerts = || world.signed(&watcher, "GET", "/api/v1/alerts", "").json();
    world.until("its order is placed", || alerts()[0]["status"] == "DONE");
    let open = world.signed(&watcher, "GET", "/api/v3/openOrders", "symbol=ETHUSDT").json();
    assert_eq!(open.as_array().map(Vec::len), Some(1), "{open}");
    assert_eq!(open[0]["orderId"], alerts()[0]["order"]["orderId"]);
    assert_eq!(open[0]["clientOrderId"], alerts()[0]["order"]["clientOrderId"]);

    let list = world.signed(&watcher, "GET", "/api/v1/notifications", "").json();
    let kinds: Vec<&Value> = list.as_array().unwrap().iter().map(|n| &n["kind"]).collect();
    assert_eq!(kinds, [&json!("ALERT"), &json!("DEPOSIT")], "{list}");
    let first = list[1]["id"].as_u64().unwrap();
    let behind = world.signed(&watcher, "GET", "/api/v1/notifications", &format!("after={first}")).json();
    assert_eq!(behind, json!([list[0]]));
    let fills = world.signed(&taker, "GET", "/api/v1/notifications", "kind=FILL").json();
    assert_eq!(fills.as_array().map(Vec::len), Some(2), "{fills}");
    assert_eq!((&fills[0]["qty"], &fills[1]["qty"]), (&json!("0.10000000"), &json!("0.20000000")));

    let late = world.signed(&watcher, "DELETE", &format!("/api/v1/alerts/{id}"), "");
    assert_eq!(late.error().0, 409, "{late:?}");
}

#[test]
fn an_alert_that_was_taken_back_is_gone_and_bad_ones_are_refused() {
    let world = World::start();
    let (owner, other) = (world.trader(), world.trader());
    let made = world.signed(&owner, "POST", "/api/v1/alerts", &form("BELOW", "40000", None));
    let id = made.json()["id"].as_u64().unwrap();
    let path = format!("/api/v1/alerts/{id}");
    assert_eq!(world.signed(&other, "DELETE", &path, "").status, 404);
    assert_eq!(world.signed(&other, "GET", "/api/v1/alerts", "").json(), json!([]));
    let gone = world.signed(&owner, "DELETE", &path, "").json();
    assert_eq!(gone["status"], "CANCELED", "{gone}");
    let armed = world.signed(&owner, "GET", "/api/v1/alerts", "status=ARMED").json();
    assert_eq!(armed, json!([]));
    for (body, code) in [
        (form("SIDEWAYS", "1", None), -1130),
        (form("ABOVE", "0", None), -1130),
        (form("ABOVE", "x", None), -1100),
        (form("ABOVE", "1", Some("[]")), -1130),
        (form("ABOVE", "1", Some(r#"{"symbol":"NOPE","side":"BUY","type":"MARKET","quantity":"1"}"#)), -1121),
        (
            form("ABOVE", "1", Some(r#"{"symbol":"BTCUSDT","side":"BUY","type":"LIMIT","quantity":"1"}"#)),
            -1102,
        ),
        (
            form(
                "ABOVE",
                "1",
                Some(
                    r#"{"symbol":"BTCUSDT","side":"BUY","type":"MARKET","quantity":"1","newClientOrderId":"x"}"#,
                ),
            ),
            -1106,
        ),
        (format!("{}&more=1", form("ABOVE", "1", None)), -1104),
    ] {
        let answer = world.signed(&owner, "POST", "/api/v1/alerts", &body);
        assert_eq!((answer.status, answer.error().1), (400, code), "{body}: {answer:?}");
    }
    assert_eq!(world.get("/api/v1/notifications").status, 401);
}
