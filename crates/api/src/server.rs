//! The server: listens, counts and cuts connections, and hands requests over.
//!
//! The accept loop is our own, for two reasons: hyper's header timeout works only with a timer, which the usual loops do not set, and the
//! number of connections must be bounded before anything is read from them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::app::{App, Services};
use crate::config::{ApiConfig, ConfigError};
use crate::connections::{ConnectionCounters, Connections, Place, raise_file_limit};
use crate::dispatch;
use crate::limits::AddressUse;
use crate::session::SessionError;

/// Pause after a failed accept (no file descriptors left, mostly), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Open files that connections may never take: the journal and the databases must be able to open theirs while clients crowd in.
const FILES_FOR_OTHERS: usize = 512;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address.
    #[error("cannot listen on {address}: {source}; choose another address or port (port 0 takes a free one)")]
    Listen {
        /// Which.
        address: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// The network runtime.
    #[error("cannot start the network runtime: {0}")]
    Runtime(std::io::Error),
    /// The sessions' tokens.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The secret of the sessions cannot be read or made.
    #[error("the secret of the sessions: {0}; look at identity.db")]
    Secret(String),
}

impl ServerError {
    /// Every code that [`ServerError::code`] gives of its own; each has its entry in `docs/reference/errors.md`.
    pub const CODES: &'static [&'static str] =
        &["api-config", "api-listen", "api-runtime", "api-session", "api-secret"];

    /// A stable name of the kind of fault.
    pub fn code(&self) -> &'static str {
        match self {
            ServerError::Config(_) => "api-config",
            ServerError::Listen { .. } => "api-listen",
            ServerError::Runtime(_) => "api-runtime",
            ServerError::Session(_) => "api-session",
            ServerError::Secret(_) => "api-secret",
        }
    }
}

/// What all requests of one connection share.
pub(crate) struct Peer {
    pub app: Arc<App>,
    pub used: Arc<AddressUse>,
    pub shutdown: watch::Receiver<bool>,
    /// Held as long as anything of the connection lives, its WebSocket too.
    pub place: Place,
}

/// A running server. It serves until [`Server::shutdown`] or until it is dropped.
pub struct Server {
    runtime: Option<tokio::runtime::Runtime>,
    address: SocketAddr,
    shutdown: watch::Sender<bool>,
    counters: Arc<ConnectionCounters>,
    grace: Duration,
    /// Kept until the runtime is gone: what it holds (connections to a database) must not be dropped on a network thread.
    _app: Arc<App>,
}

impl Server {
    /// Listens and serves. Must not be called from within an async runtime: the server brings its own.
    pub fn start(mut config: ApiConfig, services: Services) -> Result<Server, ServerError> {
        config.check()?;
        let files = raise_file_limit();
        let room = files.saturating_sub(FILES_FOR_OTHERS).max(1);
        if room < config.max_connections {
            tracing::warn!(files, room, "the limit of open files allows fewer connections than configured");
            config.max_connections = room;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.threads)
            .max_blocking_threads(16)
            .thread_name("api")
            .enable_all()
            .build()
            .map_err(ServerError::Runtime)?;
        let counters = Arc::new(ConnectionCounters::default());
        let (shutdown, watcher) = watch::channel(false);
        let grace = config.shutdown_grace();
        let listen_error = |source| ServerError::Listen { address: config.listen.clone(), source };
        let listener = runtime.block_on(TcpListener::bind(&config.listen)).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let app = Arc::new(App::new(config, services, Arc::clone(&counters))?);
        runtime.spawn(accept(listener, Arc::clone(&app), watcher));
        Ok(Server { runtime: Some(runtime), address, shutdown, counters, grace, _app: app })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Open connections now.
    pub fn open_connections(&self) -> usize {
        self.counters.open.load(Ordering::Relaxed)
    }

    /// Takes no more connections, lets requests that are under way end (for the configured grace), closes the rest.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let _ = self.shutdown.send(true);
        let counters = Arc::clone(&self.counters);
        let ended = async move {
            while counters.open.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // What has not ended by then is cut: acknowledged orders are in the journal, the rest was never promised.
        let _ = runtime.block_on(async { tokio::time::timeout(self.grace, ended).await });
        runtime.shutdown_timeout(Duration::from_millis(500));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept(listener: TcpListener, app: Arc<App>, mut shutdown: watch::Receiver<bool>) {
    let (max, max_of_ip) = (app.config().max_connections, app.config().max_connections_per_ip);
    let connections = Connections::new(Arc::clone(app.connections()), max, max_of_ip);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut shutdown) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = connections.enter(peer.ip()) else {
            drop(stream);
            continue;
        };
        let used = app.limits().address(peer.ip(), app.now());
        let peer = Arc::new(Peer { app: Arc::clone(&app), used, shutdown: shutdown.clone(), place });
        tokio::spawn(serve(stream, peer));
    }
}

/// Waits for the server's shutdown.
pub(crate) async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the server is gone altogether.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

async fn serve(stream: TcpStream, peer: Arc<Peer>) {
    // An answer leaves when it is written, not when the client has acknowledged the one before.
    let _ = stream.set_nodelay(true);
    let config = peer.app.config();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout())
        .max_buf_size(config.max_head_bytes)
        .max_headers(config.max_headers);
    let mut shutdown = peer.shutdown.clone();
    let silence = peer.place.silence();
    let service = service_fn(move |request| {
        let peer = Arc::clone(&peer);
        async move { Ok::<_, Infallible>(dispatch::handle(peer, request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        result = connection.as_mut() => {
            if let Err(error) = result {
                tracing::debug!(%error, "connection ended");
            }
        }
        // Somebody who may have something to say needs the place.
        () = silence.cut() => {}
        () = stopped(&mut shutdown) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
