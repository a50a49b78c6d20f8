//! Sign-up, login, keys, paper money, the operator.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use serde_json::json;

use crate::support::{Account, World, now_ms};

/// Characters that a base64 signature must not show in a query.
fn percent(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

#[test]
fn a_user_signs_up_logs_in_and_trades_with_a_token() {
    let world = World::start();
    let who = r#"{"name":"ann@example.org","password":"correct horse"}"#;
    let made = world.request("POST", "/api/v1/users", "Content-Type: application/json\r\n", who);
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(world.request("POST", "/api/v1/users", "", who).status, 409);
    let login = world.request("POST", "/api/v1/sessions", "", who).json();
    let token = login["token"].as_str().unwrap();
    assert!(login["expires"].as_u64().unwrap() > now_ms());
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let deposit = r#"{"asset":"USDT","amount":"100000","reference":"first"}"#;
    for repeated in [false, true] {
        let answer = world.request("POST", "/api/v1/deposits", &bearer, deposit).json();
        assert_eq!(
            (&answer["free"], &answer["repeated"]),
            (&json!("100000.00000000"), &json!(repeated)),
            "{answer}"
        );
    }
    let order = "symbol=BTCUSDT&side=BUY&type=LIMIT&timeInForce=GTC&quantity=1&price=45000";
    let placed = world.request("POST", "/api/v3/order", &bearer, order);
    assert_eq!(placed.status, 200, "{placed:?}");
    let id = placed.json()["orderId"].as_u64().unwrap();
    let by_id = world.request("GET", &format!("/api/v1/orders/{id}"), &bearer, "").json();
    assert_eq!((&by_id["symbol"], &by_id["status"]), (&json!("BTCUSDT"), &json!("NEW")));
    let balances = world.request("GET", "/api/v1/balances", &bearer, "").json();
    let usdt = balances.as_array().unwrap().iter().find(|b| b["asset"] == "USDT").unwrap();
    assert_eq!((&usdt["free"], &usdt["locked"]), (&json!("55000.00000000"), &json!("45000.00000000")));
    let out =
        world.request("POST", "/api/v1/withdrawals", &bearer, r#"{"asset":"USDT","amount":"5000"}"#).json();
    assert_eq!(
        (&out["kind"], &out["free"]),
        (&json!("WITHDRAWAL_SETTLED"), &json!("50000.00000000")),
        "{out}"
    );
    let locked = world
        .request("POST", "/api/v1/withdrawals", &bearer, r#"{"asset":"USDT","amount":"5000","settle":false}"#)
        .json();
    assert_eq!(
        (&locked["kind"], &locked["locked"]),
        (&json!("WITHDRAWAL_REQUESTED"), &json!("50000.00000000"))
    );
    let back = world.operator(
        "POST",
        "/api/v1/admin/withdrawals/release",
        &format!("{{\"id\":{}}}", locked["withdrawal"]),
    );
    assert_eq!(back.json()["kind"], "WITHDRAWAL_RELEASED", "{back:?}");
    for (path, body, status, code) in [
        ("/api/v1/deposits", r#"{"asset":"USDT","amount":"-1"}"#, 400, -1100),
        ("/api/v1/deposits", r#"{"asset":"USDT","amount":"0"}"#, 400, -1130),
        ("/api/v1/deposits", r#"{"asset":"XYZ","amount":"1"}"#, 400, -1130),
        ("/api/v1/deposits", r#"{"asset":"USDT"}"#, 400, -1102),
        ("/api/v1/deposits", r#"{"asset":"USDT","amount":"1""#, 400, -1135),
        ("/api/v1/deposits", r#"{"asset":"USDT","amount":"1","asset":"BTC"}"#, 400, -1101),
        ("/api/v1/deposits", r#"[1]"#, 400, -1135),
        ("/api/v1/withdrawals", r#"{"asset":"USDT","amount":"99999999"}"#, 400, -2010),
    ] {
        let answer = world.request("POST", path, &bearer, body);
        let (got, got_code, _) = answer.error();
        assert_eq!((got, got_code), (status, code), "{body}: {answer:?}");
    }
    let audit = world.operator("GET", "/api/v1/admin/audit", "").json();
    assert_eq!(audit["clean"], true, "{audit}");
    assert_eq!(audit["assets"]["USDT"]["withdrawn"], "5000.00000000");
}

#[test]
fn logins_that_fail() {
    let world = World::start();
    let post = |path: &str, body: &str| world.request("POST", path, "", body).error();
    assert_eq!(world.request("POST", "/api/v1/users", "", "name=bob&password=long%20enough").status, 201);
    let wrong = (401, -1002, "Wrong name or password.".to_owned());
    assert_eq!(post("/api/v1/sessions", "name=bob&password=long%20enougH"), wrong);
    assert_eq!(post("/api/v1/sessions", "name=nobody&password=long%20enough"), wrong);
    for (body, code) in [
        ("name=bob", -1102),
        ("name=&password=long%20enough", -1102),
        ("name=a%20b&password=long%20enough", -1100),
        ("name=carl&password=short", -1130),
        ("name=carl&password=long%20enough&admin=true", -1104),
    ] {
        assert_eq!(post("/api/v1/users", body).1, code, "{body}");
    }
    let closed = World::with(|config| config.open_signup = false);
    assert_eq!(
        closed.request("POST", "/api/v1/users", "", "name=dora&password=long%20enough").error().1,
        -1002
    );
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let world = World::start();
    let trader = world.trader();
    let made = world.signed(&trader, "POST", "/api/v1/keys", "label=bot");
    assert_eq!(made.status, 201, "{made:?}");
    let json = made.json();
    let text = |name: &str| json[name].as_str().unwrap().to_owned();
    let second = Account { id: trader.id, key: text("key"), secret: text("secret") };
    assert_eq!(world.signed(&second, "GET", "/api/v3/account", "").status, 200);
    let list = world.signed(&trader, "GET", "/api/v1/keys", "");
    assert_eq!(list.json().as_array().unwrap().len(), 2);
    assert!(!list.text.contains(&second.secret), "a secret is shown once");
    let stranger = world.trader();
    assert_eq!(world.signed(&stranger, "DELETE", &format!("/api/v1/keys/{}", second.key), "").status, 404);
    assert_eq!(world.signed(&trader, "DELETE", &format!("/api/v1/keys/{}", second.key), "").status, 200);
    let answer = world.signed(&second, "GET", "/api/v3/account", "");
    assert_eq!(answer.error(), (401, -2015, "Invalid API-key, IP, or permissions for action.".into()));

    // Ed25519: the exchange learns only the public key.
    let private = SigningKey::from_bytes(&[5; 32]);
    let public = percent(&STANDARD.encode(private.verifying_key().as_bytes()));
    let made = world.signed(&trader, "POST", "/api/v1/keys", &format!("publicKey={public}"));
    let key = made.json()["key"].as_str().unwrap().to_owned();
    assert!(made.json()["secret"].is_null());
    let query = format!("timestamp={}", now_ms());
    let signature = STANDARD.encode(private.sign(query.as_bytes()).to_bytes());
    let header = format!("X-MBX-APIKEY: {key}\r\n");
    for (signature, status) in [(percent(&signature), 200), (percent(&signature.to_lowercase()), 400)] {
        let target = format!("/api/v3/account?{query}&signature={signature}");
        assert_eq!(world.request("GET", &target, &header, "").status, status, "{signature}");
    }
    for bad in ["abc", "AAAA", &"00".repeat(32)] {
        let answer = world.signed(&trader, "POST", "/api/v1/keys", &format!("publicKey={bad}"));
        assert_eq!(answer.error().1, -1130, "{bad}");
    }
}

#[test]
fn the_operator_alone_sees_the_inside() {
    let world = World::start();
    let trader = world.trader();
    for path in ["/api/v1/admin/audit", "/api/v1/admin/digest", "/api/v1/admin/status", "/api/v1/admin/lag"] {
        assert_eq!(world.get(path).error().0, 401, "{path}");
        assert_eq!(world.signed(&trader, "GET", path, "").error().0, 401, "{path}");
        let wrong = format!("Authorization: Bearer {}x\r\n", crate::support::OPERATOR);
        assert_eq!(world.request("GET", path, &wrong, "").error().0, 401, "{path}");
        assert_eq!(world.operator("GET", path, "").status, 200, "{path}");
    }
    let status = world.operator("GET", "/api/v1/admin/status", "").json();
    assert!(status["groups"]["order-projection"]["lag_records"].is_u64(), "{status}");
    assert!(status["engine"]["acked"].as_u64() > Some(0), "{status}");
    for bad in [
        r#"{"deposits":{"XYZ":"1"}}"#,
        r#"{"deposits":{"BTC":"-1"}}"#,
        r#"{"deposits":[1]}"#,
        r#"{"deposits":5}"#,
    ] {
        assert_eq!(world.operator("POST", "/api/v1/admin/accounts", bad).error().1, -1130, "{bad}");
    }
    assert_eq!(world.get("/api/v1/health").json()["status"], "ok");
    assert_eq!(world.get("/api/v1/ready").json()["ready"], true);
    world.look_at_lag();
    let metrics = world.get("/metrics").text;
    for name in [
        "hoga_engine_position{stage=\"acked\"}",
        "hoga_consumer_running{group=\"market-data-service\"} 1",
        "hoga_consumer_lag_records{group=\"market-data-service\",topic=\"trade.completed\",partition=\"0\"} ",
        "hoga_consumer_drain_seconds{group=\"account-service\",topic=\"order.lifecycle\",partition=\"0\"} ",
        "hoga_consumer_latency_seconds{group=\"account-service\",quantile=\"0.99\"} ",
        "hoga_consumer_lag_verdict{group=\"market-data-service\",topic=\"trade.completed\",verdict=\"keeping_up\"} 1",
        "hoga_http_requests_total{method=\"GET\",path=\"/api/v1/health\",status=\"2xx\"} 1",
        "hoga_engine_delay_seconds{stage=\"ack\",quantile=\"0.99\"}",
        "hoga_connections_open",
    ] {
        assert!(metrics.contains(name), "{name} in\n{metrics}");
    }
    let lag = world.get("/api/v1/pipeline").json();
    let groups = lag["groups"].as_array().unwrap();
    // Five groups, two of which read two topics.
    assert_eq!(groups.len(), 7, "{lag}");
    assert!(groups.iter().all(|group| group["verdict_text"] == "keeping up"), "{lag}");
    let table = world.operator("GET", "/api/v1/admin/lag?format=table", "");
    assert!(table.text.starts_with("GROUP") && table.text.contains("account-service"), "{}", table.text);
    assert_eq!(world.operator("GET", "/api/v1/admin/lag?format=xml", "").error().1, -1130);
    let families: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let distinct: std::collections::BTreeSet<_> = families.iter().collect();
    assert_eq!(families.len(), distinct.len(), "a family is written once");
    assert_eq!(world.get("/openapi.json").json()["openapi"], "3.1.0");
    let page = world.get("/");
    assert!(page.header("content-security-policy").is_some() && page.text.contains("<html"), "{page:?}");
}
