//! One request from its head to its answer: limits, route, body, handler, headers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hoga_core::ids::{AccountId, Timestamp};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};
use hyper::{Method, Request};
use subtle::ConstantTimeEq;

use crate::auth::{self, Timing, cut_signature};
use crate::console;
use crate::error::ApiError;
use crate::http::{Answer, Reply, method_not_allowed, plain_error, read_body};
use crate::json::{Reader, Value};
use crate::limits::OrderCounts;
use crate::params::Params;
use crate::routes::{self, Access, Found, Route};
use crate::server::Peer;
use crate::{native, rest, upgrade, ws};

static API_KEY: HeaderName = HeaderName::from_static("x-mbx-apikey");
static USED_WEIGHT: HeaderName = HeaderName::from_static("x-mbx-used-weight");
static USED_WEIGHT_1M: HeaderName = HeaderName::from_static("x-mbx-used-weight-1m");
static ORDER_COUNT_10S: HeaderName = HeaderName::from_static("x-mbx-order-count-10s");
static ORDER_COUNT_1D: HeaderName = HeaderName::from_static("x-mbx-order-count-1d");

/// Time for a request of the operator.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(120);

/// Answers one request.
pub(crate) async fn handle(peer: Arc<Peer>, request: Request<Incoming>) -> Answer {
    peer.place.spoke();
    let app = &peer.app;
    let uri_bytes = request.uri().path_and_query().map_or(0, |p| p.as_str().len());
    if uri_bytes > app.config().max_uri_bytes {
        return plain_error(414, "The request path and query are too long.").into_answer();
    }
    if ws::is_upgrade(&request) {
        return upgrade::upgrade(peer, request);
    }
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let (route, id) = match routes::find(&parts.method, path) {
        Found::Route(route, id) => (route, id),
        Found::OtherMethod => return method_not_allowed().into_answer(),
        Found::Nothing => return not_found(&parts.method, path, &parts.headers).into_answer(),
    };
    let (max, limit) = (app.config().max_body_bytes, app.config().body_timeout());
    let body = match read_body(body, &parts.headers, max, limit).await {
        Ok(body) => body,
        Err(reply) => return reply.into_answer(),
    };
    let query = parts.uri.query().unwrap_or("");
    // The operator's tools may take their time; everybody else gets an answer within the bound.
    let within = match route.spec().access {
        Access::Admin => OPERATOR_TIMEOUT,
        _ => app.config().request_timeout(),
    };
    let answered = tokio::time::timeout(within, answer(&peer, route, id, &parts.headers, query, &body));
    let reply = answered.await.unwrap_or_else(|_| ApiError::timeout().into());
    app.metrics.count_http(route, reply.status);
    reply.into_answer()
}

fn not_found(method: &Method, path: &str, headers: &HeaderMap) -> Reply {
    if (*method == Method::GET || *method == Method::HEAD)
        && let Some(reply) = console::file(path, headers)
    {
        return reply;
    }
    ApiError::new(-1000, "There is nothing at this path.").with_status(404).into()
}

async fn answer(
    peer: &Peer,
    route: Route,
    id: &str,
    headers: &HeaderMap,
    query: &str,
    body: &Bytes,
) -> Reply {
    let app = &peer.app;
    let spec = route.spec();
    let now = app.now();
    let (mut weight, admitted) = app.limits().charge(&peer.used, spec.weight, now);
    // Who is throttled may still take orders back: a limit must never hold anybody in the market.
    let cancel = matches!(route, Route::CancelOrder | Route::CancelAll);
    let result = match admitted {
        Err(error) if !cancel => Err(error),
        _ => match Call::new(peer, route, id, headers, query, body, now) {
            Ok(call) => {
                let result = run(&call).await;
                weight += u64::from(call.extra.load(Ordering::Relaxed));
                result.map(|reply| call.finish(reply))
            }
            Err(error) => Err(error),
        },
    };
    let reply = result.unwrap_or_else(Reply::from);
    reply.number(USED_WEIGHT.clone(), weight).number(USED_WEIGHT_1M.clone(), weight)
}

async fn run(call: &Call<'_>) -> Result<Reply, ApiError> {
    call.find_key().await;
    if call.route.is_native() { native::run(call).await } else { rest::run(call).await }
}

/// Who asks, once it is proved.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    pub account: AccountId,
    /// When the command is too late; 0 for never.
    pub deadline: Timestamp,
}

/// One request on its way through a handler.
pub(crate) struct Call<'a> {
    pub peer: &'a Peer,
    pub route: Route,
    /// The segment for `{id}`.
    pub id: &'a str,
    pub headers: &'a HeaderMap,
    pub now: Timestamp,
    pub params: Params<'a>,
    query: &'a str,
    body: &'a str,
    /// Proved already, by a message of the WebSocket API.
    known: Option<Principal>,
    /// What became of looking for the key in the header.
    key: OnceLock<Result<Option<Arc<auth::ApiKey>>, ApiError>>,
    extra: AtomicU32,
    counts: OnceLock<OrderCounts>,
}

impl<'a> Call<'a> {
    /// A call that came over the WebSocket API: the parameters are decoded and whoever asks is proved.
    pub fn of_message(
        peer: &'a Peer,
        route: Route,
        params: Params<'a>,
        known: Option<Principal>,
        headers: &'a HeaderMap,
        now: Timestamp,
    ) -> Call<'a> {
        let (extra, counts, key) = (AtomicU32::new(0), OnceLock::new(), OnceLock::new());
        Call { peer, route, id: "", headers, now, params, query: "", body: "", known, key, extra, counts }
    }

    fn new(
        peer: &'a Peer,
        route: Route,
        id: &'a str,
        headers: &'a HeaderMap,
        query: &'a str,
        body: &'a Bytes,
        now: Timestamp,
    ) -> Result<Call<'a>, ApiError> {
        let body = std::str::from_utf8(body)
            .map_err(|_| ApiError::new(-1100, "Illegal characters found in a parameter."))?;
        let params = if route.is_native() && body.trim_start().starts_with(['{', '[', '"']) {
            json_params(query, body)?
        } else {
            Params::from_request(query, body)?
        };
        let (extra, counts, key) = (AtomicU32::new(0), OnceLock::new(), OnceLock::new());
        Ok(Call { peer, route, id, headers, now, params, query, body, known: None, key, extra, counts })
    }

    /// Charges more weight than the route's base: for parameters that make it dearer.
    pub fn charge(&self, weight: u32) -> Result<(), ApiError> {
        if weight == 0 {
            return Ok(());
        }
        self.extra.fetch_add(weight, Ordering::Relaxed);
        self.peer.app.limits().charge(&self.peer.used, weight, self.now).1
    }

    /// Counts a new order of an account; -1015 when there are too many.
    pub fn count_order(&self, account: AccountId) -> Result<(), ApiError> {
        let limits = self.peer.app.limits();
        let used = limits.account(account, self.now);
        let _ = self.counts.set(limits.count_order(&used, self.now)?);
        Ok(())
    }

    fn finish(&self, reply: Reply) -> Reply {
        match self.counts.get() {
            None => reply,
            Some(counts) => reply
                .number(ORDER_COUNT_10S.clone(), counts.ten_seconds)
                .number(ORDER_COUNT_1D.clone(), counts.day),
        }
    }

    fn bearer(&self) -> Option<&str> {
        self.headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
    }

    /// Finds the key in the header, where one is needed: mostly in memory, else in the database.
    async fn find_key(&self) {
        if matches!(self.route.spec().access, Access::Public | Access::Admin) {
            return;
        }
        let Some(key) = self.headers.get(&API_KEY) else { return };
        if let Some(key) = key.to_str().ok().filter(|key| auth::is_key_format(key)) {
            let _ = self.key.set(self.peer.app.find_key(key).await);
        }
    }

    /// Who asks: an API key with its signature, or a session's token. To be called before anything is looked up for them.
    pub fn principal(&self) -> Result<Principal, ApiError> {
        let app = &self.peer.app;
        if let Some(known) = &self.known {
            return Ok(known.clone());
        }
        let Some(key) = self.headers.get(&API_KEY) else {
            return match self.bearer() {
                Some(token) => {
                    let session = app.sessions().check(token).ok_or_else(ApiError::bad_key)?;
                    let deadline = match Timing::read_optional(&self.params)? {
                        Some(timing) => timing.check(self.now)?,
                        None => Timestamp(0),
                    };
                    self.params.raw("signature");
                    Ok(Principal { account: session.account, deadline })
                }
                None => Err(ApiError::bad_key_format()),
            };
        };
        let key =
            key.to_str().ok().filter(|key| auth::is_key_format(key)).ok_or_else(ApiError::bad_key_format)?;
        let timing = Timing::read(&self.params)?;
        let signature = self.params.mandatory("signature")?;
        let key = match self.key.get() {
            Some(found) => found.clone()?,
            None => app.key(key),
        };
        let key = key.ok_or_else(ApiError::bad_key)?;
        let (query, body) = (cut_signature(self.query), cut_signature(self.body));
        let pieces = [query.before, query.after, body.before, body.after].map(str::as_bytes);
        if !key.signer.verify(&pieces, signature) {
            return Err(ApiError::bad_signature());
        }
        Ok(Principal { account: key.account, deadline: timing.check(self.now)? })
    }

    /// The operator, by the admin token.
    pub fn operator(&self) -> Result<(), ApiError> {
        let expected = self.peer.app.config().admin_token.as_bytes();
        let given = self.bearer().unwrap_or("").as_bytes();
        if !expected.is_empty() && bool::from(expected.ct_eq(given)) {
            return Ok(());
        }
        Err(ApiError::new(-1002, "You are not authorized to execute this request."))
    }
}

/// Parameters of a native endpoint from a JSON object; null counts as not sent.
fn json_params<'a>(query: &'a str, body: &'a str) -> Result<Params<'a>, ApiError> {
    let bad = |_| ApiError::new(-1135, "Invalid JSON Request");
    let mut params = Params::from_request(query, "")?;
    let mut failed = None;
    let mut reader = Reader::new(body);
    reader
        .object(|name, reader| {
            let value = match reader.value()? {
                Value::Text(text) => text,
                Value::Number(text) | Value::Raw(text) => text.into(),
                Value::Bool(true) => "true".into(),
                Value::Bool(false) => "false".into(),
                Value::Null => return Ok(()),
            };
            if let Err(error) = params.add(name, value) {
                failed.get_or_insert(error);
            }
            Ok(())
        })
        .map_err(bad)?;
    reader.end().map_err(bad)?;
    match failed {
        Some(error) => Err(error),
        None => Ok(params),
    }
}
