//! Orders over REST, from the request to the books.

use serde_json::json;

use crate::support::{World, hmac_hex, now_ms};

const LIMIT: &str = "symbol=BTCUSDT&type=LIMIT&timeInForce=GTC";

#[test]
fn an_order_lives_and_dies() {
    let world = World::start();
    let maker = world.trader();
    let taker = world.trader();
    let rest =
        world.place(&maker, &format!("{LIMIT}&side=SELL&quantity=0.5&price=50000&newClientOrderId=my-ask"));
    assert_eq!(rest["status"], "NEW");
    assert_eq!(rest["clientOrderId"], "my-ask");
    assert_eq!(rest["fills"], json!([]));
    assert_eq!(rest["orderListId"], -1);
    let id = rest["orderId"].as_u64().unwrap();

    let depth = world.get("/api/v3/depth?symbol=BTCUSDT&limit=5").json();
    assert_eq!(depth["asks"], json!([["50000.00000000", "0.50000000"]]));

    let part =
        world.place(&taker, &format!("{LIMIT}&side=BUY&quantity=0.2&price=50010&newOrderRespType=FULL"));
    assert_eq!((&part["status"], &part["executedQty"]), (&json!("FILLED"), &json!("0.20000000")));
    assert_eq!(part["cummulativeQuoteQty"], "10000.00000000");
    assert_eq!(part["fills"][0]["price"], "50000.00000000");
    assert_eq!(part["fills"][0]["commission"], "0.00020000");
    assert_eq!(part["fills"][0]["commissionAsset"], "BTC");
    assert_eq!(part["fills"][0]["tradeId"], 1);

    let seen = world.signed(&maker, "GET", "/api/v3/order", &format!("symbol=BTCUSDT&orderId={id}")).json();
    assert_eq!((&seen["status"], &seen["executedQty"]), (&json!("PARTIALLY_FILLED"), &json!("0.20000000")));
    let open = world.signed(&maker, "GET", "/api/v3/openOrders", "symbol=BTCUSDT").json();
    assert_eq!(open.as_array().unwrap().len(), 1);

    let cancel =
        world.signed(&maker, "DELETE", "/api/v3/order", "symbol=BTCUSDT&origClientOrderId=my-ask").json();
    assert_eq!((&cancel["status"], &cancel["origClientOrderId"]), (&json!("CANCELED"), &json!("my-ask")));
    assert_ne!(cancel["clientOrderId"], "my-ask");
    let again = world.signed(&maker, "DELETE", "/api/v3/order", &format!("symbol=BTCUSDT&orderId={id}"));
    assert_eq!(again.error(), (400, -2011, "Unknown order sent.".into()));

    let gone = world.signed(&maker, "GET", "/api/v3/order", &format!("symbol=BTCUSDT&orderId={id}")).json();
    assert_eq!((&gone["status"], &gone["executedQty"]), (&json!("CANCELED"), &json!("0.20000000")));
    let all = world.signed(&maker, "GET", "/api/v3/allOrders", "symbol=BTCUSDT").json();
    assert_eq!(all[0]["orderId"], id);
    let fills = world.signed(&taker, "GET", "/api/v3/myTrades", "symbol=BTCUSDT").json();
    assert_eq!((&fills[0]["isBuyer"], &fills[0]["isMaker"]), (&json!(true), &json!(false)));
    assert_eq!(fills[0]["quoteQty"], "10000.00000000");
    let account = world.signed(&taker, "GET", "/api/v3/account", "").json();
    let btc = account["balances"].as_array().unwrap().iter().find(|b| b["asset"] == "BTC").unwrap();
    assert_eq!((&btc["free"], &btc["locked"]), (&json!("1000.19980000"), &json!("0.00000000")));

    let ticker = world.get("/api/v3/ticker/24hr?symbol=BTCUSDT").json();
    assert_eq!((&ticker["lastPrice"], &ticker["count"]), (&json!("50000.00000000"), &json!(1)));
    let klines = world.get("/api/v3/klines?symbol=BTCUSDT&interval=1m").json();
    assert_eq!(
        (&klines[0][4], &klines[0][5], &klines[0][11]),
        (&json!("50000.00000000"), &json!("0.20000000"), &json!("0"))
    );
    let trades = world.get("/api/v3/trades?symbol=BTCUSDT").json();
    assert_eq!((&trades[0]["id"], &trades[0]["isBuyerMaker"]), (&json!(1), &json!(false)));
    let audit = world.operator("GET", "/api/v1/admin/audit", "").json();
    assert_eq!(audit["clean"], true, "{audit}");
}

#[test]
fn every_form_of_order_is_taken() {
    let world = World::start();
    let (maker, taker) = (world.trader(), world.trader());
    for (price, side) in [("49000", "BUY"), ("51000", "SELL")] {
        world.place(&maker, &format!("{LIMIT}&side={side}&quantity=5&price={price}"));
    }
    for (params, status, executed, resp) in [
        ("side=BUY&type=LIMIT&timeInForce=GTC&quantity=0.001&price=48000.5", "NEW", "0.00000000", "FULL"),
        ("side=BUY&type=LIMIT&timeInForce=IOC&quantity=0.001&price=50000", "EXPIRED", "0.00000000", "FULL"),
        ("side=BUY&type=LIMIT&timeInForce=FOK&quantity=0.1&price=51000", "FILLED", "0.10000000", "FULL"),
        ("side=BUY&type=MARKET&quantity=0.1", "FILLED", "0.10000000", "FULL"),
        ("side=BUY&type=MARKET&quoteOrderQty=51", "FILLED", "0.00100000", "FULL"),
        ("side=SELL&type=MARKET&quoteOrderQty=49", "FILLED", "0.00100000", "FULL"),
        (
            "side=BUY&type=LIMIT_MAKER&quantity=0.001&price=48000&newOrderRespType=RESULT",
            "NEW",
            "0.00000000",
            "RESULT",
        ),
        (
            "side=SELL&type=STOP_LOSS&quantity=0.001&stopPrice=40000&newOrderRespType=RESULT",
            "NEW",
            "0.00000000",
            "RESULT",
        ),
        (
            "side=SELL&type=STOP_LOSS_LIMIT&timeInForce=GTC&quantity=0.001&price=39000&stopPrice=40000&newOrderRespType=FULL",
            "NEW",
            "0.00000000",
            "FULL",
        ),
        (
            "side=SELL&type=TAKE_PROFIT&quantity=0.001&stopPrice=60000&newOrderRespType=RESULT",
            "NEW",
            "0.00000000",
            "RESULT",
        ),
        (
            "side=BUY&type=TAKE_PROFIT_LIMIT&timeInForce=GTC&quantity=0.001&price=45000&stopPrice=44000&newOrderRespType=RESULT",
            "NEW",
            "0.00000000",
            "RESULT",
        ),
    ] {
        let json = world.place(&taker, &format!("symbol=BTCUSDT&{params}"));
        assert_eq!(
            (&json["status"], &json["executedQty"]),
            (&json!(status), &json!(executed)),
            "{params}: {json}"
        );
        assert_eq!(json["fills"].is_array(), resp == "FULL", "{params}: {json}");
        assert_eq!(json["stopPrice"].is_string(), params.contains("stopPrice"), "{params}: {json}");
    }
    // Without a wish, MARKET and LIMIT are answered in full, the others with an acknowledgement.
    let ack = world.place(&taker, "symbol=BTCUSDT&side=BUY&type=LIMIT_MAKER&quantity=0.001&price=48000");
    let mut keys: Vec<&String> = ack.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["clientOrderId", "orderId", "orderListId", "symbol", "transactTime"]);
    let open = world.signed(&taker, "GET", "/api/v3/openOrders", "").json();
    assert_eq!(open.as_array().unwrap().len(), 7, "{open}");
    let cancelled = world.signed(&taker, "DELETE", "/api/v3/openOrders", "symbol=BTCUSDT").json();
    assert_eq!(cancelled.as_array().unwrap().len(), 7, "{cancelled}");
    assert!(cancelled.as_array().unwrap().iter().all(|o| o["status"] == "CANCELED"));
    let none = world.signed(&taker, "DELETE", "/api/v3/openOrders", "symbol=BTCUSDT");
    assert_eq!(none.error(), (400, -2011, "Unknown order sent.".into()));
}

#[test]
fn orders_that_are_refused() {
    let world = World::start();
    let (maker, trader, poor) = (world.trader(), world.trader(), world.account(&[("USDT", "100")]));
    world.place(&maker, &format!("{LIMIT}&side=BUY&quantity=1&price=49000"));
    world.place(&maker, &format!("{LIMIT}&side=SELL&quantity=1&price=51000"));
    world.place(&trader, &format!("{LIMIT}&side=BUY&quantity=0.001&price=51000"));
    world.place(&trader, &format!("{LIMIT}&side=BUY&quantity=0.001&price=45000&newClientOrderId=taken"));
    let good = [
        ("symbol", "BTCUSDT"),
        ("side", "BUY"),
        ("type", "LIMIT"),
        ("timeInForce", "GTC"),
        ("quantity", "0.1"),
        ("price", "45000"),
    ];
    const PRICE: &str =
        "Illegal characters found in parameter 'price'; legal range is '^([0-9]{1,20})(\\.[0-9]{1,20})?$'.";
    const QUANTITY: &str = "Illegal characters found in parameter 'quantity'; legal range is '^([0-9]{1,20})(\\.[0-9]{1,20})?$'.";
    let mandatory =
        |name: &str| format!("Mandatory parameter '{name}' was not sent, was empty/null, or malformed.");
    let unwanted = |name: &str| format!("Parameter '{name}' sent when not required.");
    for (changes, code, text) in [
        ("symbol", -1102, mandatory("symbol").as_str()),
        ("side", -1102, &mandatory("side")),
        ("type", -1102, &mandatory("type")),
        ("timeInForce", -1102, &mandatory("timeInForce")),
        ("quantity", -1102, &mandatory("quantity")),
        ("price", -1102, &mandatory("price")),
        ("symbol=", -1102, &mandatory("symbol")),
        ("symbol=NOPE", -1121, "Invalid symbol."),
        (
            "symbol=btcusdt",
            -1100,
            "Illegal characters found in parameter 'symbol'; legal range is '^[A-Z0-9-_.]{1,20}$'.",
        ),
        ("side=LONG", -1117, "Invalid side."),
        ("type=ICEBERG", -1116, "Invalid orderType."),
        ("timeInForce=GTX", -1115, "Invalid timeInForce."),
        ("newOrderRespType=SOME", -1130, "Data sent for parameter 'newOrderRespType' is not valid."),
        (
            "selfTradePreventionMode=X",
            -1130,
            "Data sent for parameter 'selfTradePreventionMode' is not valid.",
        ),
        ("price=1e-05", -1100, PRICE),
        ("price=-1", -1100, PRICE),
        ("price=abc", -1100, PRICE),
        ("price=", -1102, &mandatory("price")),
        ("quantity=1e-05", -1100, QUANTITY),
        ("quantity=-0.1", -1100, QUANTITY),
        ("quantity=0.1%00", -1100, QUANTITY),
        ("price=45000.000000001", -1111, "Parameter 'price' has too much precision."),
        ("quantity=0.000000001", -1111, "Parameter 'quantity' has too much precision."),
        ("price=99999999999999", -1108, "Parameter 'price' overflowed."),
        ("quantity=99999999999999999999", -1108, "Parameter 'quantity' overflowed."),
        ("quantity=92233720368.54775807", -1013, "Filter failure: LOT_SIZE"),
        ("price=0", -1013, "Filter failure: PRICE_FILTER"),
        ("price=45000.001", -1013, "Filter failure: PRICE_FILTER"),
        ("quantity=0", -1013, "Filter failure: LOT_SIZE"),
        ("quantity=0.0000001", -1013, "Filter failure: LOT_SIZE"),
        ("quantity=0.04749053", -1013, "Filter failure: LOT_SIZE"),
        ("quantity=0.0001", -1013, "Filter failure: NOTIONAL"),
        ("price=500000", -1013, "Filter failure: PERCENT_PRICE_BY_SIDE"),
        ("newClientOrderId=taken", -2010, "Duplicate order sent."),
        (
            "newClientOrderId=a%20b",
            -1100,
            "Illegal characters found in parameter 'newClientOrderId'; legal range is '^[.A-Z:/a-z0-9_-]{1,36}$'.",
        ),
        ("newClientOrderId=", -1105, "Parameter 'newClientOrderId' was empty."),
        ("type=LIMIT_MAKER", -1106, &unwanted("timeInForce")),
        ("type=LIMIT_MAKER&timeInForce&price=51000", -2010, "Order would immediately match and take."),
        ("stopPrice=46000", -1106, &unwanted("stopPrice")),
        ("quoteOrderQty=10", -1106, &unwanted("quoteOrderQty")),
        ("type=MARKET", -1106, &unwanted("timeInForce")),
        ("type=MARKET&timeInForce", -1106, &unwanted("price")),
        (
            "type=MARKET&timeInForce&price&quantity",
            -1102,
            "Param 'quantity' or 'quoteOrderQty' must be sent, but both were empty/null!",
        ),
        (
            "type=MARKET&timeInForce&price&quoteOrderQty=10",
            -1128,
            "Combination of optional parameters invalid.",
        ),
        ("type=MARKET&timeInForce&price&quantity=101", -1013, "Filter failure: MARKET_LOT_SIZE"),
        (
            "type=STOP_LOSS_LIMIT",
            -1102,
            "Param 'stopPrice' or 'trailingDelta' must be sent, but both were empty/null!",
        ),
        ("type=STOP_LOSS_LIMIT&stopPrice=40000", -2010, "Stop price would trigger immediately."),
        ("type=STOP_LOSS&timeInForce&price&stopPrice=0", -1013, "Filter failure: PRICE_FILTER"),
        ("trailingDelta=100", -2010, "Trailing stop orders are not supported for this symbol."),
        ("icebergQty=0.01", -2010, "Iceberg orders are not supported for this symbol."),
        ("pegPriceType=PRIMARY_PEG", -2010, "Pegged orders are not supported for this symbol."),
        ("strategyType=5", -1134, "`strategyType` was less than 1000000."),
        ("side=SELL&quantity=2000&price=52000", -1013, "Filter failure: NOTIONAL"),
        ("side=SELL&quantity=1500&price=5200&symbol=ETHUSDT", -2010, ""),
        ("colour=blue", -1104, "Not all sent parameters were read; read '9' parameter(s) but was sent '10'."),
    ] {
        let mut params: Vec<(&str, &str)> = good.to_vec();
        for change in changes.split('&') {
            let (name, value) = change.split_once('=').unwrap_or((change, ""));
            params.retain(|(n, _)| *n != name);
            if change.contains('=') {
                params.push((name, value));
            }
        }
        let query: Vec<String> = params.iter().map(|(n, v)| format!("{n}={v}")).collect();
        if text.is_empty() {
            continue;
        }
        for path in ["/api/v3/order", "/api/v3/order/test"] {
            let answer = world.signed(&trader, "POST", path, &query.join("&"));
            if path.ends_with("test") && answer.status == 200 {
                // Only the engine can refuse these.
                assert!(matches!(code, -1013 | -2010), "{changes}: {answer:?}");
                assert_eq!(answer.text, "{}");
                continue;
            }
            assert_eq!(answer.error(), (400, code, text.to_owned()), "{changes} at {path}");
        }
    }
    for (params, text) in [
        (
            "side=BUY&type=LIMIT&timeInForce=GTC&quantity=0.1&price=45000",
            "Account has insufficient balance for requested action.",
        ),
        ("side=SELL&type=MARKET&quantity=0.1", "Account has insufficient balance for requested action."),
    ] {
        let answer = world.signed(&poor, "POST", "/api/v3/order", &format!("symbol=BTCUSDT&{params}"));
        assert_eq!(answer.error(), (400, -2010, text.to_owned()), "{params}");
    }
    // Case D6: the first order is untouched by the refused duplicate.
    let first =
        world.signed(&trader, "GET", "/api/v3/order", "symbol=BTCUSDT&origClientOrderId=taken").json();
    assert_eq!(first["status"], "NEW");
    // Cases D3 and D4: on the step it passes.
    world.place(&trader, &format!("{LIMIT}&side=BUY&quantity=0.04749&price=45000"));
}

#[test]
fn markets_that_are_closed() {
    let world = World::start();
    let trader = world.trader();
    let id = world.place(&trader, &format!("{LIMIT}&side=BUY&quantity=0.1&price=45000"))["orderId"]
        .as_u64()
        .unwrap();
    for (state, status, place, cancel) in [("HALT", "HALT", -2010, -2011), ("BREAK", "BREAK", -2010, 0)] {
        let body = format!("{{\"symbol\":\"BTCUSDT\",\"state\":\"{state}\"}}");
        assert_eq!(world.operator("POST", "/api/v1/admin/markets/state", &body).status, 200);
        world.until("the state is shown", || {
            world.get("/api/v3/exchangeInfo?symbol=BTCUSDT").json()["symbols"][0]["status"] == status
        });
        let answer = world.signed(
            &trader,
            "POST",
            "/api/v3/order",
            &format!("{LIMIT}&side=BUY&quantity=0.1&price=45000"),
        );
        assert_eq!(answer.error(), (400, place, "Market is closed.".into()));
        let answer =
            world.signed(&trader, "DELETE", "/api/v3/order", &format!("symbol=BTCUSDT&orderId={id}"));
        if cancel == 0 {
            assert_eq!(answer.json()["status"], "CANCELED");
        } else {
            assert_eq!(answer.error(), (400, cancel, "Market is closed.".into()));
        }
    }
}

#[test]
fn cancels_and_queries_that_are_refused() {
    let world = World::start();
    let (owner, other) = (world.trader(), world.trader());
    let id = world.place(&owner, &format!("{LIMIT}&side=BUY&quantity=0.1&price=45000&newClientOrderId=one"))
        ["orderId"]
        .as_u64()
        .unwrap();
    let unknown = (400, -2011, "Unknown order sent.".to_owned());
    let absent = (400, -2013, "Order does not exist.".to_owned());
    let either = (
        400,
        -1102,
        "Param 'origClientOrderId' or 'orderId' must be sent, but both were empty/null!".to_owned(),
    );
    for (account, method, params, error) in [
        (&owner, "DELETE", "symbol=BTCUSDT", &either),
        (&owner, "GET", "symbol=BTCUSDT", &either),
        (&owner, "DELETE", "symbol=BTCUSDT&orderId=999", &unknown),
        (&owner, "DELETE", "symbol=BTCUSDT&origClientOrderId=none", &unknown),
        (&owner, "DELETE", &format!("symbol=ETHUSDT&orderId={id}"), &unknown),
        (&other, "DELETE", &format!("symbol=BTCUSDT&orderId={id}"), &unknown),
        (&other, "DELETE", "symbol=BTCUSDT&origClientOrderId=one", &unknown),
        (&owner, "DELETE", &format!("symbol=BTCUSDT&orderId={id}&origClientOrderId=two"), &unknown),
        (&owner, "GET", "symbol=BTCUSDT&orderId=999", &absent),
        (&other, "GET", &format!("symbol=BTCUSDT&orderId={id}"), &absent),
        (&owner, "GET", &format!("symbol=BTCUSDT&orderId={id}&origClientOrderId=two"), &absent),
        (
            &owner,
            "DELETE",
            &format!("symbol=BTCUSDT&orderId={id}&cancelRestrictions=ONLY_PARTIALLY_FILLED"),
            &(400, -2011, "Order was not canceled due to cancel restrictions.".to_owned()),
        ),
        (
            &owner,
            "DELETE",
            &format!("symbol=BTCUSDT&orderId={id}&cancelRestrictions=ONLY_OLD"),
            &(400, -1145, "Invalid cancelRestrictions".to_owned()),
        ),
        (
            &owner,
            "DELETE",
            "symbol=BTCUSDT&orderId=-5",
            &(
                400,
                -1100,
                "Illegal characters found in parameter 'orderId'; legal range is '^[0-9]{1,20}$'.".to_owned(),
            ),
        ),
    ] {
        let answer = world.signed(account, method, "/api/v3/order", params);
        assert_eq!(answer.error(), *error, "{method} {params}");
    }
    // Both ids of one order, the restriction that holds, and the client's own name for the cancel.
    let params = format!(
        "symbol=BTCUSDT&orderId={id}&origClientOrderId=one&cancelRestrictions=ONLY_NEW&newClientOrderId=bye"
    );
    let done = world.signed(&owner, "DELETE", "/api/v3/order", &params).json();
    assert_eq!((&done["status"], &done["clientOrderId"]), (&json!("CANCELED"), &json!("bye")), "{done}");
}

#[test]
fn cancel_replace_tells_of_both_halves() {
    let world = World::start();
    let trader = world.trader();
    let id = world.place(&trader, &format!("{LIMIT}&side=BUY&quantity=0.1&price=45000"))["orderId"]
        .as_u64()
        .unwrap();
    let replace = |params: &str, price: &str| {
        let params = format!("{LIMIT}&side=BUY&quantity=0.1&price={price}&{params}");
        world.signed(&trader, "POST", "/api/v3/order/cancelReplace", &params)
    };
    let done = replace(&format!("cancelReplaceMode=STOP_ON_FAILURE&cancelOrderId={id}"), "46000");
    let json = done.json();
    assert_eq!(
        (done.status, &json["cancelResult"], &json["newOrderResult"]),
        (200, &json!("SUCCESS"), &json!("SUCCESS"))
    );
    assert_eq!(json["newOrderResponse"]["price"], "46000.00000000");
    let next = json["newOrderResponse"]["orderId"].as_u64().unwrap();
    for (params, price, status, code, cancel, new) in [
        (
            format!("cancelReplaceMode=STOP_ON_FAILURE&cancelOrderId={id}"),
            "46000",
            400,
            -2022,
            "FAILURE",
            "NOT_ATTEMPTED",
        ),
        (
            format!("cancelReplaceMode=ALLOW_FAILURE&cancelOrderId={id}"),
            "46000",
            409,
            -2021,
            "FAILURE",
            "SUCCESS",
        ),
        (
            format!("cancelReplaceMode=ALLOW_FAILURE&cancelOrderId={id}"),
            "46000.001",
            400,
            -2022,
            "FAILURE",
            "FAILURE",
        ),
        (
            format!("cancelReplaceMode=STOP_ON_FAILURE&cancelOrderId={next}"),
            "46000.001",
            409,
            -2021,
            "SUCCESS",
            "FAILURE",
        ),
    ] {
        let answer = replace(&params, price);
        let json = answer.json();
        assert_eq!((answer.status, json["code"].as_i64()), (status, Some(code)), "{params}: {json}");
        assert_eq!(
            (&json["data"]["cancelResult"], &json["data"]["newOrderResult"]),
            (&json!(cancel), &json!(new))
        );
        if cancel == "FAILURE" {
            assert_eq!(json["data"]["cancelResponse"]["msg"], "Unknown order sent.");
        }
    }
}

#[test]
fn self_trade_prevention_has_a_default() {
    let world = World::start();
    let trader = world.trader();
    world.place(&trader, &format!("{LIMIT}&side=SELL&quantity=0.1&price=50000&newClientOrderId=own"));
    let taker = world.place(&trader, &format!("{LIMIT}&side=BUY&quantity=0.1&price=50000"));
    assert_eq!(
        (&taker["status"], &taker["selfTradePreventionMode"]),
        (&json!("NEW"), &json!("EXPIRE_MAKER"))
    );
    let maker = world.signed(&trader, "GET", "/api/v3/order", "symbol=BTCUSDT&origClientOrderId=own").json();
    assert_eq!(
        (&maker["status"], &maker["preventedQuantity"]),
        (&json!("EXPIRED_IN_MATCH"), &json!("0.10000000")),
        "{maker}"
    );
    let taker = world
        .place(&trader, &format!("{LIMIT}&side=SELL&quantity=0.1&price=50000&selfTradePreventionMode=NONE"));
    assert_eq!(taker["status"], "FILLED");
}

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
