//! From HTTP to WebSockets: which path leads where, and who may come.

use std::sync::{Arc, OnceLock};

use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderMap, ORIGIN};

use crate::error::ApiError;
use crate::http::{Answer, Reply, plain_error};
use crate::server::{Peer, stopped};
use crate::streams::{self, Target};
use crate::ws::{self, CloseCode, Handler, Outbound};
use crate::wsapi::{self, WsApi};

/// What a new WebSocket costs (Binance: 2).
const CONNECT_WEIGHT: u32 = 2;

enum Purpose {
    Api { return_limits: bool },
    Streams(Target),
}

/// Answers the handshake and starts the connection's task.
pub(crate) fn upgrade(peer: Arc<Peer>, mut request: Request<Incoming>) -> Answer {
    let app = &peer.app;
    if !origin_allowed(request.headers(), &app.config().allowed_origins) {
        return plain_error(403, "This origin may not open WebSockets here.").into_answer();
    }
    if let (_, Err(error)) = app.limits().charge(&peer.used, CONNECT_WEIGHT, app.now()) {
        return Reply::from(error).into_answer();
    }
    let purpose = match purpose(&peer, &request) {
        Ok(purpose) => purpose,
        Err(reply) => return reply.into_answer(),
    };
    let response = match ws::accept(&request) {
        Ok(response) => response.map(|()| Full::default()),
        Err(error) => {
            let reply = Reply::text("text/plain; charset=utf-8", error.to_string())
                .with_status(error.status().as_u16());
            let reply = match error.header() {
                Some((name, value)) => reply.header(name, value),
                None => reply,
            };
            return reply.into_answer();
        }
    };
    let on_upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match purpose {
            Purpose::Api { return_limits } => {
                let config = wsapi::connection_config(peer.app.config());
                let handler = Arc::clone(&peer);
                run(peer, on_upgrade, config, move |out| WsApi::new(handler, out, return_limits)).await;
            }
            Purpose::Streams(target) => {
                let hub = peer.app.hub().clone();
                run(peer, on_upgrade, ws::Config::default(), move |out| {
                    streams::Session::open(hub, target, out)
                })
                .await;
            }
        }
    });
    response
}

/// Runs a connection; at shutdown it is told to go.
async fn run<H: Handler>(
    peer: Arc<Peer>,
    on_upgrade: hyper::upgrade::OnUpgrade,
    config: ws::Config,
    make: impl FnOnce(Outbound) -> H,
) {
    let handle: Arc<OnceLock<Outbound>> = Arc::default();
    let keep = Arc::clone(&handle);
    let counters = Arc::clone(&peer.app.ws_counters);
    let serve = ws::serve(on_upgrade, config, counters, move |out| {
        let _ = keep.set(out.clone());
        make(out)
    });
    tokio::pin!(serve);
    let mut shutdown = peer.shutdown.clone();
    tokio::select! {
        closed = serve.as_mut() => {
            tracing::debug!(?closed, "WebSocket ended");
            return;
        }
        () = stopped(&mut shutdown) => {}
    }
    if let Some(out) = handle.get() {
        out.close(CloseCode::GOING_AWAY, "the server goes down");
    }
    serve.await;
}

fn purpose(peer: &Peer, request: &Request<Incoming>) -> Result<Purpose, Reply> {
    let (path, query) = (request.uri().path(), request.uri().query());
    if matches!(path, "/ws-api/v3" | "/ws-api/v3/") {
        let return_limits = !query.unwrap_or("").split('&').any(|pair| pair == "returnRateLimits=false");
        return Ok(Purpose::Api { return_limits });
    }
    match streams::target(path, query, peer.app.hub()) {
        Some(Ok(target)) => Ok(Purpose::Streams(target)),
        Some(Err(error)) => {
            let (code, msg) = error.code_and_message();
            Err(ApiError::new(code, msg).into())
        }
        None => Err(ApiError::new(-1000, "There is nothing at this path.").with_status(404).into()),
    }
}

/// A browser sends the page's origin: it must be this very server, or one that the operator named. Programs send none and prove
/// themselves by keys; a page of another site could use neither, but could make its visitors' browsers hold connections open.
fn origin_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let Ok(origin) = origin.to_str() else { return false };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let own = origin
        .split_once("://")
        .is_some_and(|(_, rest)| host.is_some_and(|host| rest.eq_ignore_ascii_case(host)));
    own || allowed.iter().any(|other| other.eq_ignore_ascii_case(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        let allowed = ["https://desk.example".to_owned()];
        for (origin, host, result) in [
            (None, "localhost:8080", true),
            (Some("http://localhost:8080"), "localhost:8080", true),
            (Some("https://Desk.example"), "localhost:8080", true),
            (Some("http://localhost:8081"), "localhost:8080", false),
            (Some("http://evil.example"), "localhost:8080", false),
            (Some("http://localhost:8080.evil.example"), "localhost:8080", false),
            (Some("null"), "localhost:8080", false),
            (Some(""), "localhost:8080", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(origin_allowed(&headers, &allowed), result, "{origin:?}");
        }
    }
}
