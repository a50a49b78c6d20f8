//! The route table: one line a route, from which the `match`, the weights and the OpenAPI document are made, so that they cannot differ.

use hyper::Method;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody.
    Public,
    /// An API key that may trade (signed), or a session.
    Trade,
    /// Any API key (signed), or a session.
    UserData,
    /// A session (`Authorization: Bearer <token>`), or any signed API key.
    Session,
    /// The operator (`Authorization: Bearer <admin token>`).
    Admin,
}

/// What is documented about a route.
#[derive(Clone, Copy, Debug)]
pub struct RouteSpec {
    /// The route.
    pub route: Route,
    /// GET, POST, PUT or DELETE.
    pub method: &'static str,
    /// The path; `{id}` stands for one segment at its end.
    pub path: &'static str,
    /// Request weight; where it depends on parameters, the smallest.
    pub weight: u32,
    /// Who may call it.
    pub access: Access,
    /// What it does.
    pub summary: &'static str,
    /// Names of its parameters, separated by blanks; `!` marks mandatory ones.
    pub params: &'static str,
}

macro_rules! routes {
    ($($route:ident $method:ident $path:literal $weight:literal $access:ident $summary:literal [$params:literal];)+) => {
        /// Every route of the HTTP interface. (WebSocket paths and the console's files are no routes of this table.)
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        #[allow(missing_docs)] // each is described by its summary in the table
        pub enum Route { $($route,)+ }

        /// The table.
        pub const ROUTES: &[RouteSpec] = &[$(RouteSpec {
            route: Route::$route,
            method: stringify!($method),
            path: $path,
            weight: $weight,
            access: Access::$access,
            summary: $summary,
            params: $params,
        },)+];

        fn exact(method: &Method, path: &str) -> Option<Route> {
            match (method, path) {
                $((&Method::$method, $path) => Some(Route::$route),)+
                _ => None,
            }
        }
    };
}

routes! {
    Ping GET "/api/v3/ping" 1 Public "Test connectivity" [""];
    Time GET "/api/v3/time" 1 Public "Server time" [""];
    ExchangeInfo GET "/api/v3/exchangeInfo" 20 Public "Markets, filters and limits" ["symbol symbols permissions showPermissionSets symbolStatus"];
    Depth GET "/api/v3/depth" 5 Public "Order book" ["symbol! limit symbolStatus"];
    Trades GET "/api/v3/trades" 25 Public "Recent trades" ["symbol! limit"];
    HistoricalTrades GET "/api/v3/historicalTrades" 25 Public "Older trades" ["symbol! limit fromId"];
    AggTrades GET "/api/v3/aggTrades" 4 Public "Trades of one taker order at one price, joined" ["symbol! fromId startTime endTime limit"];
    Klines GET "/api/v3/klines" 2 Public "Candles" ["symbol! interval! startTime endTime timeZone limit"];
    UiKlines GET "/api/v3/uiKlines" 2 Public "Candles, for charts" ["symbol! interval! startTime endTime timeZone limit"];
    AvgPrice GET "/api/v3/avgPrice" 2 Public "Average price of the last five minutes" ["symbol!"];
    Ticker GET "/api/v3/ticker" 4 Public "Price change statistics of a window" ["symbol symbols windowSize type symbolStatus"];
    Ticker24h GET "/api/v3/ticker/24hr" 2 Public "Price change statistics of 24 hours, rolling" ["symbol symbols type symbolStatus"];
    TickerPrice GET "/api/v3/ticker/price" 2 Public "Last price" ["symbol symbols symbolStatus"];
    BookTicker GET "/api/v3/ticker/bookTicker" 2 Public "Best bid and ask" ["symbol symbols symbolStatus"];
    NewOrder POST "/api/v3/order" 1 Trade "New order" ["symbol! side! type! timeInForce quantity quoteOrderQty price newClientOrderId strategyId strategyType stopPrice trailingDelta icebergQty newOrderRespType selfTradePreventionMode recvWindow timestamp! signature!"];
    TestOrder POST "/api/v3/order/test" 1 Trade "Check a new order without placing it" ["symbol! side! type! timeInForce quantity quoteOrderQty price newClientOrderId stopPrice newOrderRespType selfTradePreventionMode computeCommissionRates recvWindow timestamp! signature!"];
    CancelReplace POST "/api/v3/order/cancelReplace" 1 Trade "Cancel an order and place another" ["symbol! side! type! cancelReplaceMode! cancelOrderId cancelOrigClientOrderId cancelNewClientOrderId timeInForce quantity quoteOrderQty price newClientOrderId stopPrice newOrderRespType selfTradePreventionMode cancelRestrictions recvWindow timestamp! signature!"];
    QueryOrder GET "/api/v3/order" 4 UserData "One order" ["symbol! orderId origClientOrderId recvWindow timestamp! signature!"];
    CancelOrder DELETE "/api/v3/order" 1 Trade "Cancel an order" ["symbol! orderId origClientOrderId newClientOrderId cancelRestrictions recvWindow timestamp! signature!"];
    OpenOrders GET "/api/v3/openOrders" 6 UserData "Open orders" ["symbol recvWindow timestamp! signature!"];
    CancelAll DELETE "/api/v3/openOrders" 1 Trade "Cancel all open orders of a market" ["symbol! recvWindow timestamp! signature!"];
    AllOrders GET "/api/v3/allOrders" 20 UserData "Orders of a market, open or not" ["symbol! orderId startTime endTime limit recvWindow timestamp! signature!"];
    Account GET "/api/v3/account" 20 UserData "Balances" ["omitZeroBalances recvWindow timestamp! signature!"];
    MyTrades GET "/api/v3/myTrades" 20 UserData "Own trades" ["symbol! orderId startTime endTime fromId limit recvWindow timestamp! signature!"];
    OrderLimits GET "/api/v3/rateLimit/order" 40 UserData "Order counts" ["recvWindow timestamp! signature!"];
    TradeFees GET "/sapi/v1/asset/tradeFee" 1 UserData "Fee rates by market" ["symbol recvWindow timestamp! signature!"];
    SystemStatus GET "/sapi/v1/system/status" 1 Public "Whether the system works" [""];
    CoinInfo GET "/sapi/v1/capital/config/getall" 10 Public "Always empty: networks of coins, which paper money has none of" ["recvWindow timestamp signature"];
    MarginPairs GET "/sapi/v1/margin/allPairs" 1 Public "Always empty: there is no margin trading" ["recvWindow timestamp signature"];
    IsolatedPairs GET "/sapi/v1/margin/isolated/allPairs" 1 Public "Always empty: there is no margin trading" ["recvWindow timestamp signature"];
    LinearInfo GET "/fapi/v1/exchangeInfo" 1 Public "Always empty: there are no futures" [""];
    InverseInfo GET "/dapi/v1/exchangeInfo" 1 Public "Always empty: there are no futures" [""];
    SignUp POST "/api/v1/users" 20 Public "Sign up: makes a user and a paper account" ["name! password!"];
    LogIn POST "/api/v1/sessions" 20 Public "Log in: gives a token for Authorization: Bearer" ["name! password!"];
    CreateKey POST "/api/v1/keys" 5 Session "Make an HMAC key, or register an Ed25519 public key" ["publicKey label"];
    ListKeys GET "/api/v1/keys" 5 Session "API keys of the account" [""];
    RevokeKey DELETE "/api/v1/keys/{id}" 5 Session "Revoke an API key" [""];
    Deposit POST "/api/v1/deposits" 1 Session "Deposit paper money" ["asset! amount! reference"];
    Withdraw POST "/api/v1/withdrawals" 1 Session "Withdraw paper money; settled at once unless settle is false" ["asset! amount! reference settle"];
    Balances GET "/api/v1/balances" 5 Session "Balances" [""];
    OrderById GET "/api/v1/orders/{id}" 4 Session "One order by its number, in any market" [""];
    Notifications GET "/api/v1/notifications" 5 Session "Fills, cancels, rejects, deposits, withdrawals and alerts of the account; latest first, or ascending behind a number" ["kind after limit"];
    CreateAlert POST "/api/v1/alerts" 1 Session "Arm an alert on a symbol's price (condition ABOVE or BELOW), with an order to be placed when it fires if one is given" ["symbol! condition! price! clientId order"];
    ListAlerts GET "/api/v1/alerts" 5 Session "Alerts of the account, latest first" ["status limit"];
    CancelAlert DELETE "/api/v1/alerts/{id}" 1 Session "Take an armed alert back" [""];
    Health GET "/api/v1/health" 1 Public "Whether the process works; 503 after a fault" [""];
    Ready GET "/api/v1/ready" 1 Public "Whether requests are served; 503 otherwise" [""];
    AdminAccount POST "/api/v1/admin/accounts" 1 Admin "Make a paper account with deposits and an HMAC key" ["deposits"];
    AdminSettle POST "/api/v1/admin/withdrawals/settle" 1 Admin "A locked withdrawal has left" ["id!"];
    AdminRelease POST "/api/v1/admin/withdrawals/release" 1 Admin "A locked withdrawal did not happen" ["id!"];
    AdminAudit GET "/api/v1/admin/audit" 1 Admin "Prove that ledger, engine and transfers agree" [""];
    AdminTables GET "/api/v1/admin/tables" 1 Admin "Compare the read models with each other; on a quiet system only" [""];
    AdminRebuild POST "/api/v1/admin/rebuild" 1 Admin "Build a consumer group's tables anew from the event log and swap them in" ["group!"];
    AdminDigest GET "/api/v1/admin/digest" 1 Admin "Digest of the engine's state" [""];
    AdminStatus GET "/api/v1/admin/status" 1 Admin "Positions of the engine and lag of the read models" [""];
    AdminLag GET "/api/v1/admin/lag" 1 Admin "Lag of all consumer groups: rates, trend, drain time, verdict; format=table for people" ["format"];
    AdminOrder POST "/api/v1/admin/orders" 1 Admin "Place an order of an account, once per newClientOrderId however often it is asked for" ["command account symbol side type timeInForce quantity quoteOrderQty price newClientOrderId stopPrice trailingDelta icebergQty selfTradePreventionMode"];
    AdminMarketState POST "/api/v1/admin/markets/state" 1 Admin "Open, halt or restrict a market (TRADING, HALT, BREAK)" ["symbol! state!"];
    Pipeline GET "/api/v1/pipeline" 2 Public "Lag of all consumer groups with a verdict, and the relay to Kafka" [""];
    PlantStatus GET "/api/v1/plant" 5 Public "The tick plant: feed, members, groups, sockets" [""];
    PlantMonitor GET "/api/v1/plant/monitor" 20 Public "What happened to the numbers of each symbol's ticks" [""];
    PlantDiff GET "/api/v1/plant/diff" 20 Public "The first difference of each symbol in which the groups differ" [""];
    PlantQuotes GET "/api/v1/plant/quotes" 20 Public "The latest of each symbol, as it is shown" [""];
    PlantQuote GET "/api/v1/plant/quotes/{id}" 2 Public "The latest of one symbol, with candles and the 24 h ticker" [""];
    PlantExplain GET "/api/v1/plant/explain/{id}" 200 Public "Whether the order of a symbol's ticks is wrong in the log or after it; reads the log" [""];
    PlantSwitch POST "/api/v1/admin/plant/switch" 1 Admin "Show the other group of processors (to: a or b); force it although it differs or is unhealthy" ["to! force"];
    PlantRebuild POST "/api/v1/admin/plant/rebuild" 1 Admin "Let a group of processors build itself anew from the bus" ["group!"];
    Metrics GET "/metrics" 1 Public "Metrics in Prometheus' text format" [""];
    OpenApi GET "/openapi.json" 1 Public "This document" [""];
}

impl Route {
    /// Whether it is one of ours (`/api/v1` and the documents beside it), not one of Binance's.
    pub fn is_native(self) -> bool {
        !["/api/v3/", "/sapi/", "/fapi/", "/dapi/"].iter().any(|prefix| self.spec().path.starts_with(prefix))
    }

    /// Its line of the table.
    pub fn spec(self) -> &'static RouteSpec {
        &ROUTES[self as usize]
    }
}

/// What a method and a path name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'p> {
    /// A route, and the segment that stands for `{id}`.
    Route(Route, &'p str),
    /// The path exists, with other methods.
    OtherMethod,
    /// Nothing.
    Nothing,
}

/// Finds the route.
pub fn find<'p>(method: &Method, path: &'p str) -> Found<'p> {
    if let Some(route) = exact(method, path) {
        return Found::Route(route, "");
    }
    let methods = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
    if methods.iter().any(|other| exact(other, path).is_some()) {
        return Found::OtherMethod;
    }
    let Some((prefix, id)) = path.rsplit_once('/').filter(|(_, id)| !id.is_empty()) else {
        return Found::Nothing;
    };
    let template = format!("{prefix}/{{id}}");
    if let Some(route) = exact(method, &template) {
        return Found::Route(route, id);
    }
    if methods.iter().any(|other| exact(other, &template).is_some()) {
        return Found::OtherMethod;
    }
    Found::Nothing
}

/// The OpenAPI document, made from the table.
pub fn open_api(version: &str) -> String {
    use serde_json::{Map, Value, json};
    let mut paths: Map<String, Value> = Map::new();
    for spec in ROUTES {
        let place = if matches!(spec.method, "GET" | "DELETE") { "query" } else { "form" };
        let json_body = spec.path.starts_with("/api/v1/") && place == "form";
        let names = || spec.params.split_whitespace().map(|p| (p.trim_end_matches('!'), p.ends_with('!')));
        let mut operation = json!({
            "operationId": format!("{:?}", spec.route),
            "summary": spec.summary,
            "x-weight": spec.weight,
            "responses": { "200": { "description": "OK" }, "4XX": { "$ref": "#/components/responses/Error" } },
        });
        let mut parameters = Vec::new();
        if spec.path.ends_with("{id}") {
            parameters.push(
                json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }),
            );
        }
        if place == "query" {
            parameters.extend(names().map(|(name, required)| {
                json!({ "name": name, "in": "query", "required": required, "schema": { "type": "string" } })
            }));
        } else if !spec.params.is_empty() {
            let kind = if json_body { "application/json" } else { "application/x-www-form-urlencoded" };
            let properties: Map<String, Value> =
                names().map(|(name, _)| (name.to_owned(), json!({}))).collect();
            let required: Vec<&str> =
                names().filter(|(_, required)| *required).map(|(name, _)| name).collect();
            operation["requestBody"] = json!({ "content": { kind: { "schema":
                { "type": "object", "properties": properties, "required": required } } } });
        }
        operation["parameters"] = Value::Array(parameters);
        operation["security"] = match spec.access {
            Access::Public => json!([]),
            Access::Trade | Access::UserData | Access::Session => json!([{ "apiKey": [] }, { "bearer": [] }]),
            Access::Admin => json!([{ "bearer": [] }]),
        };
        let methods = paths.entry(spec.path).or_insert_with(|| json!({}));
        methods[spec.method.to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hoga",
            "version": version,
            "description": "Binance-compatible Spot endpoints under /api/v3, native ones under /api/v1. WebSockets: /ws, /stream, /ws-api/v3.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "apiKey": { "type": "apiKey", "in": "header", "name": "X-MBX-APIKEY",
                    "description": "With timestamp and signature (HMAC-SHA256 in hexadecimal or Ed25519 in base64) among the parameters." },
                "bearer": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT" },
            },
            "responses": { "Error": { "description": "Refused", "content": { "application/json": { "schema": {
                "type": "object", "required": ["code", "msg"],
                "properties": { "code": { "type": "integer" }, "msg": { "type": "string" } } } } } } },
        },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_and_documented() {
        let document: serde_json::Value = serde_json::from_str(&open_api("1")).unwrap();
        for (i, spec) in ROUTES.iter().enumerate() {
            assert_eq!(spec.route as usize, i);
            let path = spec.path.replace("{id}", "42");
            let id = if spec.path.ends_with("{id}") { "42" } else { "" };
            let method = Method::from_bytes(spec.method.as_bytes()).unwrap();
            assert_eq!(find(&method, &path), Found::Route(spec.route, id));
            let operation = &document["paths"][spec.path][spec.method.to_lowercase()];
            assert_eq!(operation["operationId"], format!("{:?}", spec.route));
            assert_eq!(find(&Method::PATCH, &path), Found::OtherMethod);
        }
        let documented: usize =
            document["paths"].as_object().unwrap().values().map(|m| m.as_object().unwrap().len()).sum();
        assert_eq!(documented, ROUTES.len());
        for path in ["/", "", "/api/v3", "/api/v3/order/", "/api/v3/nothing", "/api/v1/keys/a/b"] {
            assert_eq!(find(&Method::GET, path), Found::Nothing, "{path}");
        }
    }
}
