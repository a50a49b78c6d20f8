//! `/ws-api/v3`: Binance's WebSocket API.
//!
//! Orders and cancels are pipelined: a request becomes a command at once, on the connection's task, and its answer is written on the
//! engine's gate straight into the connection's queue. No task, channel or lock of the runtime is between them. All other methods are
//! answered by the handlers of REST.

mod keys;
mod pending;
mod request;
mod user;

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use hoga_core::command::Body;
use hoga_core::ids::Timestamp;
use hoga_engine::ReplyTo;
use hyper::header::HeaderMap;

use crate::auth::{self, ApiKey, Timing};
use crate::catalog::Catalog;
use crate::config::ApiConfig;
use crate::dispatch::{Call, Principal};
use crate::error::ApiError;
use crate::limits::OrderUse;
use crate::orders::{self, CancelNames};
use crate::params::Params;
use crate::render::{self, boolean, int, put};
use crate::reply::submit_error;
use crate::rest;
use crate::routes::Route;
use crate::server::Peer;
use crate::ws::{self, Close, CloseCode, Handler, Incoming, Outbound};
use keys::Lookups;
use pending::{Entry, Kind, Shared};
use request::Request;
use user::Subscriptions;

pub(crate) use pending::Id;

/// The bounds of a connection.
pub(crate) fn connection_config(config: &ApiConfig) -> ws::Config {
    let limits = ws::Limits { frames: config.ws_api_in_flight * 4, bytes: config.ws_api_queue_bytes };
    ws::Config { limits, ..ws::Config::api() }
}

/// Who the connection belongs to, when it has said so once for all.
enum Login {
    /// `session.logon` with an Ed25519 key.
    Key { key: Arc<ApiKey>, since: Timestamp },
    /// `session.token` with a login of the console.
    Token { session: crate::session::Session, since: Timestamp },
}

/// One connection.
pub(crate) struct WsApi {
    shared: Arc<Shared>,
    login: Option<Login>,
    users: Subscriptions,
    lookups: Lookups,
    connected: Timestamp,
    /// The account that ordered last, and its counter: mostly the same one again.
    counter: Option<(hoga_core::ids::AccountId, Arc<OrderUse>)>,
    catalog: Arc<Catalog>,
}

thread_local! {
    /// Room for signature payloads and answers, kept between requests.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Handler for WsApi {
    fn message(&mut self, message: Incoming<'_>) -> Result<(), Close> {
        let Incoming::Text(text) = message else {
            return Err(Close::new(CloseCode::UNSUPPORTED, "requests are JSON in text frames"));
        };
        self.shared.peer.app.metrics.ws_requests.fetch_add(1, Ordering::Relaxed);
        if !self.lookups.hold(text) {
            self.take(text);
        }
        Ok(())
    }

    /// Pending while a key is looked up in the database.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Some(text) = std::task::ready!(self.lookups.poll_next(context)) {
            self.take(&text);
        }
        Poll::Ready(())
    }
}

impl WsApi {
    pub fn new(peer: Arc<Peer>, out: Outbound, return_limits: bool) -> WsApi {
        let connected = peer.app.now();
        let catalog = peer.app.catalog();
        let shared = Arc::new(Shared::new(peer, out, return_limits));
        let (users, lookups) = (Subscriptions::default(), Lookups::default());
        WsApi { shared, login: None, users, lookups, connected, counter: None, catalog }
    }

    fn peer(&self) -> &Arc<Peer> {
        &self.shared.peer
    }

    /// Reads and serves a request. One with a key that is not known here is held until the key was looked up, and then served again from the
    /// beginning (its weight is charged twice: a look-up is work too); nothing but its weight has happened by then.
    fn take(&mut self, text: &str) {
        match Request::read(text) {
            Ok(request) => self.serve(text, request),
            Err((id, error)) => self.shared.refuse(&id, &error, self.shared.return_limits, None),
        }
        self.lookups.served();
    }

    fn serve(&mut self, text: &str, request: Request<'_>) {
        let Request { id, method, params } = request;
        let with_limits = match params.boolean("returnRateLimits") {
            Ok(wish) => wish.unwrap_or(self.shared.return_limits),
            Err(error) => return self.shared.refuse(&id, &error, self.shared.return_limits, None),
        };
        if let Err(error) = self.method(&id, &method, params, with_limits) {
            if self.lookups.begin(&self.shared.peer.app, text) {
                return;
            }
            let counter = self.counter.as_ref().filter(|_| method.starts_with("order")).map(|(_, used)| used);
            self.shared.refuse(&id, &error, with_limits, counter);
        }
    }

    /// Answers, or sees to it that an answer will come; an error is answered by the caller.
    fn method(
        &mut self,
        id: &Id,
        method: &str,
        params: Params<'_>,
        with_limits: bool,
    ) -> Result<(), ApiError> {
        let now = self.peer().app.now();
        let method = method.strip_prefix("v3/").unwrap_or(method);
        let weight = match method {
            "order.place" | "order.cancel" | "ping" | "time" => 1,
            _ => route_of(method).map_or(2, |(route, _)| route.spec().weight),
        };
        let (_, admitted) = self.peer().app.limits().charge(&self.peer().used, weight, now);
        if !matches!(method, "order.cancel" | "openOrders.cancelAll") {
            admitted?;
        }
        match method {
            "order.place" => self.place(id, &params, with_limits, now),
            "order.cancel" => self.cancel(id, params, with_limits, now),
            "ping" => {
                params.all_read()?;
                self.shared.answer(id, with_limits, None, |out| put(out, "{}"));
                Ok(())
            }
            "time" => {
                params.all_read()?;
                self.shared.answer(id, with_limits, None, |out| {
                    int(out, "{\"serverTime\":", now.millis());
                    out.push(b'}');
                });
                Ok(())
            }
            _ if method.starts_with("session.") => self.session_method(id, method, &params, with_limits, now),
            _ if method.starts_with("userDataStream.") => {
                self.user_method(id, method, &params, with_limits, now)
            }
            _ => self.hand_over(id, method, params, with_limits, now),
        }
    }

    /// Who the connection belongs to.
    fn session_method(
        &mut self,
        id: &Id,
        method: &str,
        params: &Params<'_>,
        with_limits: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        match method {
            "session.logon" => return self.logon(id, params, with_limits, now),
            "session.token" => return self.token(id, params, with_limits, now),
            _ => params.all_read()?,
        }
        match method {
            "session.status" => self.status(id, with_limits, now),
            "session.logout" => {
                self.login = None;
                let ended = self.users.end_session();
                self.status(id, with_limits, now);
                ended.iter().for_each(|id| user::terminated(&self.shared.out, *id, now));
            }
            "session.subscriptions" => {
                self.shared.answer(id, with_limits, None, |out| self.users.write_list(out));
            }
            _ => return Err(unknown_method()),
        }
        Ok(())
    }

    /// Private events.
    fn user_method(
        &mut self,
        id: &Id,
        method: &str,
        params: &Params<'_>,
        with_limits: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        match method {
            "userDataStream.subscribe.signature" => {
                let key = params.mandatory("apiKey")?.to_owned();
                let principal = self.principal(params, now)?;
                params.all_read()?;
                self.subscribe(id, principal.account, Some(key), None, false, with_limits)
            }
            "userDataStream.subscribe" => {
                params.all_read()?;
                let (account, key, expires) = match &self.login {
                    Some(Login::Key { key, .. }) => (key.account, Some(key.key.clone()), None),
                    Some(Login::Token { session, .. }) => (session.account, None, Some(session.expires)),
                    None => return Err(ApiError::bad_key()),
                };
                self.subscribe(id, account, key, expires, true, with_limits)
            }
            "userDataStream.unsubscribe" => {
                let wanted = params.integer("subscriptionId")?;
                params.all_read()?;
                let ended = self.users.end(wanted)?;
                self.shared.answer(id, with_limits, None, |out| put(out, "{}"));
                ended.iter().for_each(|id| user::terminated(&self.shared.out, *id, now));
                Ok(())
            }
            _ => Err(unknown_method()),
        }
    }

    fn subscribe(
        &mut self,
        id: &Id,
        account: hoga_core::ids::AccountId,
        key: Option<String>,
        expires: Option<u64>,
        by_session: bool,
        with_limits: bool,
    ) -> Result<(), ApiError> {
        // The answer goes out before the subscription begins, so that no event can overtake it.
        let number = self.users.next(account)?;
        self.shared.answer(id, with_limits, None, |out| {
            int(out, "{\"subscriptionId\":", number);
            out.push(b'}');
        });
        self.users.begin(&self.shared, number, account, key, expires, by_session);
        Ok(())
    }

    /// Who asks: by a key and signature in the request, else by the connection's login.
    fn principal(&mut self, params: &Params<'_>, now: Timestamp) -> Result<Principal, ApiError> {
        let app = &self.shared.peer.app;
        let Some(key) = params.optional("apiKey")? else {
            return match &self.login {
                None => Err(ApiError::mandatory("apiKey")),
                Some(Login::Key { key, .. }) => {
                    let account = self.lookups.key(app, &key.key)?.account;
                    Ok(Principal { account, deadline: Timing::read(params)?.check(now)? })
                }
                Some(Login::Token { session, .. }) => {
                    if u64::try_from(now.millis() / 1000).unwrap_or(0) >= session.expires {
                        return Err(ApiError::bad_key());
                    }
                    let deadline = match Timing::read_optional(params)? {
                        Some(timing) => timing.check(now)?,
                        None => Timestamp(0),
                    };
                    Ok(Principal { account: session.account, deadline })
                }
            };
        };
        let timing = Timing::read(params)?;
        let key = self.signed(params, key)?;
        Ok(Principal { account: key.account, deadline: timing.check(now)? })
    }

    /// Checks the signature over the parameters, sorted by name, less the signature.
    fn signed(&mut self, params: &Params<'_>, key: &str) -> Result<Arc<ApiKey>, ApiError> {
        let signature = params.mandatory("signature")?;
        if !auth::is_key_format(key) {
            return Err(ApiError::bad_key_format());
        }
        let key = self.lookups.key(&self.shared.peer.app, key)?;
        let good = SCRATCH.with_borrow_mut(|payload| {
            let mut sorted: [(&str, &str); crate::params::MAX_PARAMETERS] =
                [("", ""); crate::params::MAX_PARAMETERS];
            let mut count = 0;
            for pair in params.iter().filter(|(name, _)| *name != "signature") {
                sorted[count] = pair;
                count += 1;
            }
            let sorted = &mut sorted[..count];
            sorted.sort_unstable();
            payload.clear();
            for (i, (name, value)) in sorted.iter().enumerate() {
                if i > 0 {
                    payload.push(b'&');
                }
                payload.extend_from_slice(name.as_bytes());
                payload.push(b'=');
                payload.extend_from_slice(value.as_bytes());
            }
            key.signer.verify(&[payload], signature)
        });
        if good { Ok(key) } else { Err(ApiError::bad_signature()) }
    }

    /// The counter of an account's orders.
    fn counter(&mut self, account: hoga_core::ids::AccountId, now: Timestamp) -> Arc<OrderUse> {
        match &self.counter {
            Some((known, used)) if *known == account => Arc::clone(used),
            _ => {
                let used = self.peer().app.limits().account(account, now);
                self.counter = Some((account, Arc::clone(&used)));
                used
            }
        }
    }

    fn place(
        &mut self,
        id: &Id,
        params: &Params<'_>,
        with_limits: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let principal = self.principal(params, now)?;
        self.catalog = self.peer().app.catalog();
        let place = orders::place(params, &self.catalog, principal.account, self.peer().app.default_stp())?;
        params.all_read()?;
        let used = self.counter(principal.account, now);
        self.peer().app.limits().count_order(&used, now)?;
        let entry = Entry { id: id.clone(), kind: Kind::Place(place.resp), with_limits, used };
        self.submit(entry, Body::Place(place.order), principal.deadline)
    }

    fn cancel(
        &mut self,
        id: &Id,
        params: Params<'_>,
        with_limits: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let principal = self.principal(&params, now)?;
        self.catalog = self.peer().app.catalog();
        let cancel = orders::cancel(&params, &self.catalog, CancelNames::CANCEL)?;
        params.all_read()?;
        if cancel.must_be.is_some() || cancel.only.is_some() {
            self.spawn(id, Route::CancelOrder, params, Some(principal), with_limits, now)?;
            return Ok(());
        }
        let used = self.counter(principal.account, now);
        let entry = Entry { id: id.clone(), kind: Kind::Cancel, with_limits, used };
        let body = Body::Cancel {
            account: principal.account,
            market: cancel.market,
            order: cancel.order,
            cancel_id: cancel.cancel_id,
        };
        self.submit(entry, body, principal.deadline)
    }

    fn submit(&self, entry: Entry, body: Body, deadline: Timestamp) -> Result<(), ApiError> {
        let tag = self.shared.enter(entry)?;
        let reply = ReplyTo::new(self.shared.clone(), tag);
        self.peer().app.engine().submit(body, deadline, reply).map_err(|error| {
            // The sink was not told, so the entry is taken back here and the caller answers.
            self.shared.leave(tag);
            submit_error(error)
        })
    }

    fn logon(
        &mut self,
        id: &Id,
        params: &Params<'_>,
        with_limits: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let key = params.mandatory("apiKey")?;
        Timing::read(params)?.check(now)?;
        let key = self.signed(params, key)?;
        params.all_read()?;
        if !matches!(key.signer, auth::Signer::Ed25519(_)) {
            // Binance: only Ed25519 keys are supported for sessions.
            return Err(ApiError::new(-4056, "HMAC_SHA256 API key is not supported."));
        }
        self.login = Some(Login::Key { key, since: now });
        self.status(id, with_limits, now);
        Ok(())
    }

    /// An extension of Hoga: the console's login takes the place of a key.
    fn token(
        &mut self,
        id: &Id,
        params: &Params<'_>,
        with_limits: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let session =
            self.peer().app.sessions().check(params.mandatory("token")?).ok_or_else(ApiError::bad_key)?;
        params.all_read()?;
        self.login = Some(Login::Token { session, since: now });
        self.status(id, with_limits, now);
        Ok(())
    }

    fn status(&self, id: &Id, with_limits: bool, now: Timestamp) {
        self.shared.answer(id, with_limits, None, |out| {
            put(out, "{\"apiKey\":");
            match &self.login {
                Some(Login::Key { key, .. }) => crate::json::write_string(out, &key.key),
                _ => put(out, "null"),
            }
            match &self.login {
                Some(Login::Key { since, .. } | Login::Token { since, .. }) => {
                    int(out, ",\"authorizedSince\":", since.millis());
                }
                None => put(out, ",\"authorizedSince\":null"),
            }
            if let Some(Login::Token { session, .. }) = &self.login {
                render::text(out, ",\"user\":", &session.user);
                int(out, ",\"expires\":", session.expires * 1000);
            }
            int(out, ",\"connectedSince\":", self.connected.millis());
            boolean(out, ",\"returnRateLimits\":", self.shared.return_limits);
            int(out, ",\"serverTime\":", now.millis());
            boolean(out, ",\"userDataStream\":", !self.users.is_empty());
            out.push(b'}');
        });
    }

    /// Everything else is answered by the handler of the same name in REST, on a task of its own.
    fn hand_over(
        &mut self,
        id: &Id,
        method: &str,
        params: Params<'_>,
        with_limits: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let (route, signed) = route_of(method).ok_or_else(unknown_method)?;
        let principal = if signed { Some(self.principal(&params, now)?) } else { None };
        self.spawn(id, route, params, principal, with_limits, now)
    }

    fn spawn(
        &self,
        id: &Id,
        route: Route,
        params: Params<'_>,
        principal: Option<Principal>,
        with_limits: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let under_way = self.shared.tasks.try_begin()?;
        let proof = |name: &str| {
            matches!(name, "apiKey" | "signature" | "timestamp" | "recvWindow" | "returnRateLimits")
        };
        let params = params.into_owned(|name| !proof(name));
        let (shared, id) = (Arc::clone(&self.shared), id.clone());
        tokio::spawn(async move {
            let _under_way = under_way;
            let call = Call::of_message(&shared.peer, route, params, principal, no_headers(), now);
            let limit = shared.peer.app.config().request_timeout();
            let result = tokio::time::timeout(limit, rest::run(&call)).await;
            match result.unwrap_or_else(|_| Err(ApiError::timeout())) {
                Ok(reply) => shared.answer(&id, with_limits, None, |out| out.extend_from_slice(&reply.body)),
                Err(error) => shared.refuse(&id, &error, with_limits, None),
            }
        });
        Ok(())
    }
}

fn unknown_method() -> ApiError {
    ApiError::new(-1020, "This operation is not supported.")
}

fn no_headers() -> &'static HeaderMap {
    static NONE: OnceLock<HeaderMap> = OnceLock::new();
    NONE.get_or_init(HeaderMap::new)
}

/// The REST route that answers a method, and whether it needs to know who asks.
fn route_of(method: &str) -> Option<(Route, bool)> {
    Some(match method {
        "exchangeInfo" => (Route::ExchangeInfo, false),
        "depth" => (Route::Depth, false),
        "trades.recent" => (Route::Trades, false),
        "trades.historical" => (Route::HistoricalTrades, false),
        "trades.aggregate" => (Route::AggTrades, false),
        "klines" => (Route::Klines, false),
        "uiKlines" => (Route::UiKlines, false),
        "avgPrice" => (Route::AvgPrice, false),
        "ticker" => (Route::Ticker, false),
        "ticker.24hr" => (Route::Ticker24h, false),
        "ticker.price" => (Route::TickerPrice, false),
        "ticker.book" => (Route::BookTicker, false),
        "order.test" => (Route::TestOrder, true),
        "order.status" => (Route::QueryOrder, true),
        "order.cancelReplace" => (Route::CancelReplace, true),
        "openOrders.status" => (Route::OpenOrders, true),
        "openOrders.cancelAll" => (Route::CancelAll, true),
        "allOrders" => (Route::AllOrders, true),
        "myTrades" => (Route::MyTrades, true),
        "account.status" => (Route::Account, true),
        "account.rateLimits.orders" => (Route::OrderLimits, true),
        _ => return None,
    })
}
