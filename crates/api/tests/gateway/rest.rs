//! Orders over REST, from the request to the books.

use serde_json::json;

use crate::support::World;

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
