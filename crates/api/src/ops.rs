//! The operator's door of a process that has no exchange in it: health, metrics and positions of consumer groups.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::server::{ServerError, stopped};

/// Open connections at most; further ones wait to be taken.
const CONNECTIONS: usize = 64;
/// A head must have come by then.
const HEAD: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// HTTP status.
    pub status: u16,
    /// MIME type.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Whether something is to be done (POST) and not only shown (GET).
    pub post: bool,
    /// The path.
    pub path: String,
    /// Parameters, behind the question mark of the address.
    pub query: String,
    /// The bearer token.
    pub token: Option<String>,
}

/// Gives the page that is asked for, `None` when there is none. Called on a thread that may wait.
pub type Pages = Arc<dyn Fn(&Asked) -> Option<Page> + Send + Sync>;

/// A running operator's door. It serves until it is dropped.
pub struct OpsServer {
    runtime: Option<tokio::runtime::Runtime>,
    address: SocketAddr,
    shutdown: watch::Sender<bool>,
}

impl OpsServer {
    /// Listens and serves on one thread. Must not be called from within an async runtime.
    ///
    /// # Errors
    /// [`ServerError::Listen`], [`ServerError::Runtime`].
    pub fn start(listen: &str, pages: Pages) -> Result<OpsServer, ServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(4)
            .thread_name("ops")
            .enable_all()
            .build()
            .map_err(ServerError::Runtime)?;
        let error = |source| ServerError::Listen { address: listen.to_owned(), source };
        let listener = runtime.block_on(TcpListener::bind(listen)).map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        let (shutdown, watcher) = watch::channel(false);
        runtime.spawn(accept(listener, pages, watcher));
        Ok(OpsServer { runtime: Some(runtime), address, shutdown })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for OpsServer {
    fn drop(&mut self) {
        let _ = self.shutdown.send(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(500));
        }
    }
}

async fn accept(listener: TcpListener, pages: Pages, mut shutdown: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut shutdown) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let pages = Arc::clone(&pages);
                tokio::spawn(async move {
                    serve(stream, pages).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection");
                tokio::time::sleep(Duration::from_millis(50)).await; // no file descriptors left, mostly
            }
        }
    }
}

async fn serve(stream: TcpStream, pages: Pages) {
    let service = service_fn(move |request| answer(request, Arc::clone(&pages)));
    // One request a connection: whoever asks here asks seldom, and no silent connection holds a place.
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "operator's connection ended early");
    }
}

async fn answer(request: Request<Incoming>, pages: Pages) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |status, body: &str| Page { status, content_type: "text/plain", body: body.into() };
    let page = if matches!(*request.method(), Method::GET | Method::POST) {
        let token = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .map(str::to_owned);
        let asked = Asked {
            post: request.method() == Method::POST,
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or("").to_owned(),
            token,
        };
        match tokio::task::spawn_blocking(move || pages(&asked)).await {
            Ok(Some(page)) => page,
            Ok(None) => plain(404, "no such page here: /api/v1/health, /metrics\n"),
            Err(error) => {
                tracing::error!(%error, "a page panicked");
                plain(500, "a defect: see the log\n")
            }
        }
    } else {
        plain(405, "only GET and POST\n")
    };
    let mut response = Response::new(Full::new(Bytes::from(page.body)));
    *response.status_mut() = StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = page.content_type.parse() {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn get(address: SocketAddr, head: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn pages_are_served_and_others_are_not() {
        let page = |status, body: &str| Some(Page { status, content_type: "text/plain", body: body.into() });
        let pages: Pages = Arc::new(move |asked| match (asked.path.as_str(), asked.token.as_deref()) {
            ("/a", _) if asked.post => page(200, &asked.query),
            ("/a", _) => page(200, "here"),
            ("/b", Some("t")) => page(200, "secret"),
            ("/b", _) => page(401, ""),
            ("/c", _) => panic!("a page that fails"),
            _ => None,
        });
        let server = OpsServer::start("127.0.0.1:0", pages).unwrap();
        let at = server.local_addr();
        let first = |answer: String| answer.lines().next().unwrap_or_default().to_owned();
        let found = get(at, "GET /a HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(found.starts_with("HTTP/1.1 200") && found.ends_with("here"), "{found}");
        assert!(first(get(at, "GET /b HTTP/1.1\r\nhost: x\r\n\r\n")).contains(" 401 "));
        assert!(get(at, "GET /b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer t\r\n\r\n").ends_with("secret"));
        assert!(first(get(at, "GET /c HTTP/1.1\r\nhost: x\r\n\r\n")).contains(" 500 "));
        assert!(first(get(at, "GET /d HTTP/1.1\r\nhost: x\r\n\r\n")).contains(" 404 "));
        assert!(first(get(at, "PUT /a HTTP/1.1\r\nhost: x\r\n\r\n")).contains(" 405 "));
        assert!(get(at, "POST /a?to=b HTTP/1.1\r\nhost: x\r\n\r\n").ends_with("to=b"));
        drop(server);
        assert!(std::net::TcpStream::connect(at).is_err(), "nobody listens any more");
    }
}
