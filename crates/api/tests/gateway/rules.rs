//! Public questions, proofs of who asks, and limits.

use serde_json::json;

use crate::support::{World, hmac_hex, now_ms};

const LIMIT: &str = "symbol=BTCUSDT&type=LIMIT&timeInForce=GTC";

#[test]
fn public_questions_and_their_refusals() {
    let world = World::start();
    assert_eq!(world.get("/api/v3/ping").text, "{}");
    assert!(world.get("/api/v3/time").json()["serverTime"].as_u64().unwrap() > 1_600_000_000_000);
    let info = world.get("/api/v3/exchangeInfo").json();
    assert_eq!(info["symbols"].as_array().unwrap().len(), 2);
    let market = &info["symbols"][0];
    assert_eq!(market["permissionSets"], json!([["SPOT"]]));
    let filters: Vec<&str> =
        market["filters"].as_array().unwrap().iter().map(|f| f["filterType"].as_str().unwrap()).collect();
    for filter in [
        "PRICE_FILTER",
        "LOT_SIZE",
        "NOTIONAL",
        "MARKET_LOT_SIZE",
        "PERCENT_PRICE_BY_SIDE",
        "MAX_NUM_ORDERS",
        "MAX_NUM_ALGO_ORDERS",
    ] {
        assert!(filters.contains(&filter), "{filters:?}");
    }
    assert_eq!(market["filters"][4]["bidMultiplierUp"], "5.00000000");
    for (target, length) in [
        ("/api/v3/exchangeInfo?symbols=%5B%22ETHUSDT%22,%22BTCUSDT%22%5D", 2),
        ("/api/v3/exchangeInfo?symbol=ETHUSDT", 1),
        ("/api/v3/exchangeInfo?permissions=SPOT", 2),
        ("/api/v3/exchangeInfo?permissions=MARGIN", 0),
        ("/api/v3/exchangeInfo?symbolStatus=HALT", 0),
    ] {
        assert_eq!(world.get(target).json()["symbols"].as_array().unwrap().len(), length, "{target}");
    }
    let list = "symbols=%5B%22ETHUSDT%22,%22BTCUSDT%22%5D";
    for (target, length) in [
        ("/api/v3/ticker/24hr".to_owned(), 2),
        (format!("/api/v3/ticker/24hr?{list}&type=MINI"), 2),
        ("/api/v3/ticker/price".to_owned(), 2),
        (format!("/api/v3/ticker/bookTicker?{list}"), 2),
        (format!("/api/v3/ticker?{list}&windowSize=7d"), 2),
        ("/api/v3/trades?symbol=BTCUSDT".to_owned(), 0),
        ("/api/v3/historicalTrades?symbol=BTCUSDT&fromId=1".to_owned(), 0),
        ("/api/v3/aggTrades?symbol=BTCUSDT&startTime=0&endTime=1".to_owned(), 0),
        ("/api/v3/klines?symbol=BTCUSDT&interval=1w&limit=5&startTime=0".to_owned(), 0),
        ("/api/v3/uiKlines?symbol=BTCUSDT&interval=1s".to_owned(), 0),
    ] {
        let answer = world.get(&target);
        assert_eq!(answer.json().as_array().map(Vec::len), Some(length), "{target}: {answer:?}");
    }
    assert_eq!(world.get("/api/v3/avgPrice?symbol=BTCUSDT").json()["mins"], 5);
    for (target, status, code, text) in [
        (
            "/api/v3/depth",
            400,
            -1102,
            "Mandatory parameter 'symbol' was not sent, was empty/null, or malformed.",
        ),
        ("/api/v3/depth?symbol=NOPE", 400, -1121, "Invalid symbol."),
        ("/api/v3/depth?symbol=BTCUSDT&limit=0", 400, -1130, "Data sent for parameter 'limit' is not valid."),
        (
            "/api/v3/depth?symbol=BTCUSDT&limit=x",
            400,
            -1100,
            "Illegal characters found in parameter 'limit'; legal range is '^[0-9]{1,20}$'.",
        ),
        (
            "/api/v3/depth?symbol=BTCUSDT&symbol=BTCUSDT",
            400,
            -1101,
            "Duplicate values for a parameter detected.",
        ),
        (
            "/api/v3/depth?symbol=BTCUSDT&symbolStatus=HALT",
            400,
            -1220,
            "The symbol's status does not match the requested symbolStatus.",
        ),
        ("/api/v3/depth?symbol=BTCUSDT&symbolStatus=X", 400, -1122, "Invalid symbolStatus."),
        ("/api/v3/depth?symbol=%ff", 400, -1100, "Illegal characters found in a parameter."),
        ("/api/v3/klines?symbol=BTCUSDT&interval=7m", 400, -1120, "Invalid interval."),
        (
            "/api/v3/klines?symbol=BTCUSDT",
            400,
            -1102,
            "Mandatory parameter 'interval' was not sent, was empty/null, or malformed.",
        ),
        ("/api/v3/ticker/24hr?symbol=BTCUSDT&type=MAXI", 400, -1139, "Invalid ticker type."),
        (
            "/api/v3/ticker/24hr?symbol=BTCUSDT&symbols=%5B%5D",
            400,
            -1128,
            "Combination of optional parameters invalid.",
        ),
        (
            "/api/v3/ticker/price?symbols=%5B%22BTCUSDT%22,%22BTCUSDT%22%5D",
            400,
            -1151,
            "Symbol is present multiple times in the list.",
        ),
        (
            "/api/v3/ticker?symbol=BTCUSDT&windowSize=8d",
            400,
            -1130,
            "Data sent for parameter 'windowSize' is not valid.",
        ),
        ("/api/v3/ticker", 400, -1102, "Param 'symbol' or 'symbols' must be sent, but both were empty/null!"),
        (
            "/api/v3/ping?a=1",
            400,
            -1104,
            "Not all sent parameters were read; read '0' parameter(s) but was sent '1'.",
        ),
        ("/api/v3/nothing", 404, -1000, "There is nothing at this path."),
        ("/nothing", 404, -1000, "There is nothing at this path."),
    ] {
        assert_eq!(world.get(target).error(), (status, code, text.to_owned()), "{target}");
    }
    let answer = world.request("POST", "/api/v3/ping", "", "");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, POST, PUT, DELETE")));
}

#[test]
fn signatures_keys_and_times() {
    let world = World::start();
    let trader = world.trader();
    let now = now_ms();
    let order = format!("{LIMIT}&side=BUY&quantity=0.1&price=45000");
    let header = format!("X-MBX-APIKEY: {}\r\n", trader.key);
    // Query and body are signed together, without a separator, in any order, with the signature anywhere.
    let (query, body) = (
        "symbol=BTCUSDT&type=LIMIT&timeInForce=GTC",
        format!("side=BUY&quantity=0.1&price=45000&timestamp={now}"),
    );
    let signature = hmac_hex(&trader.secret, &format!("{query}{body}"));
    for (query, body) in [
        (query.to_owned(), format!("{body}&signature={signature}")),
        (format!("{query}&signature={}", signature.to_uppercase()), body.clone()),
        (format!("signature={signature}&{query}"), body.clone()),
    ] {
        let answer = world.request("POST", &format!("/api/v3/order?{query}"), &header, &body);
        assert_eq!(answer.status, 200, "{query} {body}: {answer:?}");
        assert_eq!(answer.header("x-mbx-order-count-1d").map(|n| n.parse::<u32>().is_ok()), Some(true));
    }
    // A DELETE with a form body, as python-binance sends it.
    let form = format!("symbol=BTCUSDT&timestamp={now}");
    let form = format!("{form}&signature={}", hmac_hex(&trader.secret, &form));
    assert_eq!(world.request("DELETE", "/api/v3/openOrders", &header, &form).status, 200);
    // Microseconds.
    let query = format!("timestamp={}&recvWindow=5000.5", now * 1000);
    assert_eq!(world.presigned(&trader, "GET", "/api/v3/account", &query).status, 200);

    let outside = "Timestamp for this request is outside of the recvWindow.";
    for (params, status, code, text) in [
        (
            String::new(),
            400,
            -1102,
            "Mandatory parameter 'timestamp' was not sent, was empty/null, or malformed.",
        ),
        (format!("timestamp={}", now / 1000), 400, -1021, outside),
        (format!("timestamp={}&recvWindow=10000", now - 11_000), 400, -1021, outside),
        (
            format!("timestamp={}", now + 60_000),
            400,
            -1021,
            "Timestamp for this request was 1000ms ahead of the server's time.",
        ),
        (
            format!("timestamp={now}&recvWindow=60001"),
            400,
            -1102,
            "'recvWindow' contains unexpected value. Cannot be greater than 60000.",
        ),
        (
            format!("timestamp={now}&recvWindow=-1"),
            400,
            -1100,
            "Illegal characters found in parameter 'recvWindow'; legal range is '^[0-9]{1,5}(\\.[0-9]{1,3})?$'.",
        ),
    ] {
        let answer = world.presigned(&trader, "GET", "/api/v3/account", &params);
        assert_eq!(answer.error(), (status, code, text.to_owned()), "{params}");
    }
    let signed = format!("timestamp={now}");
    let good = hmac_hex(&trader.secret, &signed);
    let bad_key = (401, -2015, "Invalid API-key, IP, or permissions for action.".to_owned());
    let bad_format = (401, -2014, "API-key format invalid.".to_owned());
    let bad_signature = (400, -1022, "Signature for this request is not valid.".to_owned());
    let key = |key: &str| format!("X-MBX-APIKEY: {key}\r\n");
    for (headers, query, error) in [
        (header.clone(), format!("{signed}&signature={}", good.replace(&good[..1], "x")), &bad_signature),
        (header.clone(), format!("{signed}1&signature={good}"), &bad_signature),
        (header.clone(), format!("{signed}&signature=zz"), &bad_signature),
        (header.clone(), format!("{signed}&omitZeroBalances=true&signature={good}"), &bad_signature),
        (
            header.clone(),
            signed.clone(),
            &(
                400,
                -1102,
                "Mandatory parameter 'signature' was not sent, was empty/null, or malformed.".to_owned(),
            ),
        ),
        (String::new(), format!("{signed}&signature={good}"), &bad_format),
        (key("short"), format!("{signed}&signature={good}"), &bad_format),
        (key("with spaces and such 123"), format!("{signed}&signature={good}"), &bad_format),
        (key(&"A".repeat(64)), format!("{signed}&signature={good}"), &bad_key),
        ("Authorization: Bearer nonsense\r\n".to_owned(), String::new(), &bad_key),
        (format!("Authorization: Bearer {}\r\n", crate::support::OPERATOR), String::new(), &bad_key),
    ] {
        let answer = world.request("GET", &format!("/api/v3/account?{query}"), &headers, "");
        assert_eq!(answer.error(), *error, "{headers}{query}");
    }
    // The same bytes again inside the window are taken: Binance has no nonce. A client order id stops the order from being doubled.
    let replayed = format!("{order}&newClientOrderId=once&timestamp={now}");
    assert_eq!(world.presigned(&trader, "POST", "/api/v3/order", &replayed).status, 200);
    let answer = world.presigned(&trader, "POST", "/api/v3/order", &replayed);
    assert_eq!(answer.error(), (400, -2010, "Duplicate order sent.".into()));
}

#[test]
fn what_clients_ask_while_they_load_markets() {
    let world = World::start();
    let trader = world.trader();
    for (path, body) in [
        ("/sapi/v1/capital/config/getall", "[]"),
        ("/sapi/v1/margin/allPairs", "[]"),
        ("/sapi/v1/margin/isolated/allPairs", "[]"),
        ("/sapi/v1/system/status", r#"{"status":0,"msg":"normal"}"#),
        ("/fapi/v1/exchangeInfo", r#"{"symbols":[]}"#),
        ("/dapi/v1/exchangeInfo", r#"{"symbols":[]}"#),
    ] {
        assert_eq!(world.signed(&trader, "GET", path, "").text, body, "{path}");
    }
    let fees = world.signed(&trader, "GET", "/sapi/v1/asset/tradeFee", "symbol=ETHUSDT").json();
    assert_eq!(
        fees,
        json!([{ "symbol": "ETHUSDT", "makerCommission": "0.00100000", "takerCommission": "0.00100000" }])
    );
}

#[test]
fn limits_are_counted_told_and_enforced() {
    let world = World::with(|config| {
        config.limits = hoga_api::LimitsConfig { request_weight_1m: 300, orders_10s: 3, orders_1d: 1000 };
    });
    let trader = world.trader();
    let order = format!("{LIMIT}&side=BUY&quantity=0.001&price=45000");
    let mut ids = Vec::new();
    let refused = loop {
        let answer = world.signed(&trader, "POST", "/api/v3/order", &order);
        if answer.status != 200 {
            break answer;
        }
        ids.push(answer.json()["orderId"].as_u64().unwrap());
        // The tens of seconds may change in between, so more than three may pass.
        assert!(ids.len() <= 7 && answer.header("x-mbx-order-count-10s").is_some(), "{answer:?}");
    };
    assert_eq!(
        refused.error(),
        (429, -1015, "Too many new orders; current limit is 3 orders per 10 SECOND.".into())
    );
    assert!((1..=10).contains(&refused.header("retry-after").unwrap().parse::<u64>().unwrap()));
    let limits = world.signed(&trader, "GET", "/api/v3/rateLimit/order", "").json();
    assert_eq!((&limits[0]["interval"], &limits[0]["limit"]), (&json!("SECOND"), &json!(3)));

    let used = |answer: &crate::support::Answer| {
        answer.header("x-mbx-used-weight-1m").unwrap().parse::<u64>().unwrap()
    };
    let before = used(&world.get("/api/v3/ping"));
    let after = used(&world.get("/api/v3/depth?symbol=BTCUSDT&limit=500"));
    assert!(after == before + 25 || after == 25, "{before} {after}");
    let refused = loop {
        let answer = world.get("/api/v3/depth?symbol=BTCUSDT&limit=1000");
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(refused.status, 429);
    assert!(
        refused
            .error()
            .2
            .starts_with("Too much request weight used; current limit is 300 request weight per 1 MINUTE.")
    );
    assert!((1..=60).contains(&refused.header("retry-after").unwrap().parse::<u64>().unwrap()));
    // Nobody is held in the market by a limit.
    let answer =
        world.signed(&trader, "DELETE", "/api/v3/order", &format!("symbol=BTCUSDT&orderId={}", ids[0]));
    assert_eq!(answer.json()["status"], "CANCELED", "{answer:?}");
    let answer = world.signed(&trader, "DELETE", "/api/v3/openOrders", "symbol=BTCUSDT");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_stopped_engine_is_told_and_reads_go_on() {
    let mut world = World::start();
    let trader = world.trader();
    world.place(&trader, &format!("{LIMIT}&side=BUY&quantity=0.1&price=45000"));
    assert_eq!(world.get("/api/v1/ready").status, 200);
    world.stop_engine();
    let gone = (503, -1016, "This service is no longer available.".to_owned());
    let order = format!("{LIMIT}&side=BUY&quantity=0.1&price=45000");
    assert_eq!(world.signed(&trader, "POST", "/api/v3/order", &order).error(), gone);
    assert_eq!(world.signed(&trader, "DELETE", "/api/v3/openOrders", "symbol=BTCUSDT").error(), gone);
    assert_eq!(world.signed(&trader, "GET", "/api/v3/openOrders", "").error(), gone);
    let ready = world.get("/api/v1/ready");
    assert_eq!((ready.status, &ready.json()["engine"]), (503, &json!(false)));
    assert_eq!(world.get("/api/v3/depth?symbol=BTCUSDT").json()["bids"][0][0], "45000.00000000");
}
