//! The server: listens, counts and cuts connections, and hands requests over.
//!
//! The accept loop is our own, for two reasons: hyper's header timeout works only with a timer, which the usual loops do not set, and the
//! number of connections must be bounded before anything is read from them.

use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustc_hash::FxHashMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::app::{App, Services};
use crate::config::{ApiConfig, ConfigError};
use crate::dispatch;
use crate::limits::AddressUse;
use crate::session::SessionError;

/// Pause after a failed accept (no file descriptors left, mostly), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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

/// What happened to connections, for metrics. Every number only grows, except `open`.
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    /// Open now.
    pub open: AtomicUsize,
    /// Taken.
    pub accepted: AtomicU64,
    /// Closed at once: too many altogether.
    pub refused_total: AtomicU64,
    /// Closed at once: too many of one address.
    pub refused_address: AtomicU64,
}

/// Connections per address.
#[derive(Debug, Default)]
struct Addresses(Mutex<FxHashMap<IpAddr, usize>>);

impl Addresses {
    fn enter(&self, ip: IpAddr, max: usize) -> bool {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = table.entry(ip).or_insert(0);
        if *count >= max {
            return false;
        }
        *count += 1;
        true
    }

    fn leave(&self, ip: IpAddr) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = table.entry(ip) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

/// One connection's place in the counts; given back when dropped.
struct Place {
    ip: IpAddr,
    counters: Arc<ConnectionCounters>,
    addresses: Arc<Addresses>,
}

impl Place {
    fn take(
        ip: IpAddr,
        config: &ApiConfig,
        counters: &Arc<ConnectionCounters>,
        addresses: &Arc<Addresses>,
    ) -> Option<Place> {
        if counters.open.load(Ordering::Relaxed) >= config.max_connections {
            counters.refused_total.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if !addresses.enter(ip, config.max_connections_per_ip) {
            counters.refused_address.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        counters.accepted.fetch_add(1, Ordering::Relaxed);
        counters.open.fetch_add(1, Ordering::Relaxed);
        Some(Place { ip, counters: Arc::clone(counters), addresses: Arc::clone(addresses) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
        self.addresses.leave(self.ip);
    }
}

/// What all requests of one connection share.
pub(crate) struct Peer {
    pub app: Arc<App>,
    pub used: Arc<AddressUse>,
    pub shutdown: watch::Receiver<bool>,
    /// Held as long as anything of the connection lives, its WebSocket too.
    _place: Place,
}

/// A running server. It serves until [`Server::shutdown`] or until it is dropped.
pub struct Server {
    runtime: Option<tokio::runtime::Runtime>,
    address: SocketAddr,
    shutdown: watch::Sender<bool>,
    counters: Arc<ConnectionCounters>,
    grace: Duration,
}

impl Server {
    /// Listens and serves. Must not be called from within an async runtime: the server brings its own.
    pub fn start(config: ApiConfig, services: Services) -> Result<Server, ServerError> {
        config.check()?;
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
        runtime.spawn(accept(listener, app, watcher));
        Ok(Server { runtime: Some(runtime), address, shutdown, counters, grace })
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
    let addresses = Arc::new(Addresses::default());
    let counters = Arc::clone(app.connections());
    loop {
        let accepted = tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => return,
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
        let Some(place) = Place::take(peer.ip(), app.config(), &counters, &addresses) else {
            drop(stream);
            continue;
        };
        let used = app.limits().address(peer.ip(), app.now());
        let peer = Arc::new(Peer { app: Arc::clone(&app), used, shutdown: shutdown.clone(), _place: place });
        tokio::spawn(serve(stream, peer));
    }
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
        .max_headers(config.max_headers)
        .pipeline_flush(true);
    let mut shutdown = peer.shutdown.clone();
    let service = service_fn(move |request| {
        let peer = Arc::clone(&peer);
        async move { Ok::<_, Infallible>(dispatch::handle(peer, request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::pin!(connection);
    let stopping = tokio::select! {
        result = connection.as_mut() => {
            if let Err(error) = result {
                tracing::debug!(%error, "connection ended");
            }
            return;
        }
        _ = shutdown.wait_for(|stop| *stop) => true,
    };
    if stopping {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let config = ApiConfig { max_connections: 3, max_connections_per_ip: 2, ..ApiConfig::default() };
        let (counters, addresses) = (Arc::default(), Arc::default());
        let take = |last: u8| Place::take(IpAddr::from([127, 0, 0, last]), &config, &counters, &addresses);
        let one = take(1);
        let two = take(1);
        assert!(one.is_some() && two.is_some());
        assert!(take(1).is_none(), "a third of one address");
        let other = take(2);
        assert!(other.is_some());
        assert!(take(3).is_none(), "a fourth altogether");
        drop((one, two, other));
        assert!(take(3).is_some());
        assert_eq!(counters.open.load(Ordering::Relaxed), 0);
        assert!(addresses.0.lock().unwrap().is_empty());
        assert_eq!(counters.refused_total.load(Ordering::Relaxed), 1);
        assert_eq!(counters.refused_address.load(Ordering::Relaxed), 1);
    }
}
