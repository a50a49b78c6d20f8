//! A lease on Apache ZooKeeper: leader election by the recipe of its documentation ("ZooKeeper Recipes and Solutions", Leader Election).
//!
//! Each candidate has an ephemeral, sequential node; the lowest leads, each other watches the one before it alone. The epoch is the transaction number (czxid) that
//! made the leader's node: a later node has a higher one, and the leader is always a later node than the one before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::{Held, Lease, LeaseError};

/// The pause before a service that is away is asked again.
const PAUSE: Duration = Duration::from_millis(50);
/// How long leaving may take. What could not be said by then, the end of the session says.
const LEAVE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct State {
    /// The epoch it leads in, and when it was last known to; from before it was asked.
    held: Option<(u64, Instant)>,
    /// How long the session lasts without a sign of life, as the service has granted it.
    session: Duration,
    /// Why the service is away, if it is.
    fault: Option<String>,
    /// When somebody last asked. A candidate that nobody asks about gives its node up: who hangs must not lead.
    polled: Option<Instant>,
    /// It was given up, and its node is still there. Until that is gone whoever asks again does not bring it back.
    resigned: bool,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Notify,
    /// That it is to stop, for whatever is waited for.
    stopped: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A candidate whose lease is on ZooKeeper; it has a thread. It resigns when it is dropped.
pub struct ZooKeeperLease {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    servers: String,
    ttl: Duration,
}

impl ZooKeeperLease {
    /// A candidate for the lease at this path, such as `/hoga/group-a`. The service may be away. `ttl` is the session's length, of which the
    /// service grants between 2 and 20 of its ticks. Where it grants a longer one, a candidate that nobody polls still gives its lease up after `ttl`, but one that
    /// died or is cut off is taken over from after the session's length only.
    ///
    /// # Errors
    /// [`LeaseError::Config`].
    pub fn new(servers: &str, path: &str, node: &str, ttl: Duration) -> Result<ZooKeeperLease, LeaseError> {
        let config = |text: String| Err(LeaseError::Config(text));
        if !path.starts_with('/') || path.len() < 2 || path.ends_with('/') || path.contains("//") {
            return config(format!(
                "{path:?} is no path of a node on ZooKeeper: it begins with / and does not end with one"
            ));
        }
        if servers.is_empty() || ttl < Duration::from_millis(100) {
            return config(format!(
                "ZooKeeper's servers (host:port,…) and a length of 100 ms or more are needed, not {servers:?} and {ttl:?}"
            ));
        }
        let shared =
            Arc::new(Shared { state: Mutex::default(), wake: Notify::new(), stopped: Notify::new() });
        let candidate = Candidate {
            shared: shared.clone(),
            servers: servers.into(),
            path: path.into(),
            node: node.into(),
            ttl,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| LeaseError::Config(format!("no runtime for ZooKeeper: {error}")))?;
        let thread = std::thread::Builder::new().name("zookeeper".into());
        let thread = thread.spawn(move || {
            runtime.block_on(candidate.run());
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        });
        let thread =
            thread.map_err(|error| LeaseError::Config(format!("no thread for ZooKeeper: {error}")))?;
        Ok(ZooKeeperLease { shared, thread: Some(thread), servers: servers.into(), ttl })
    }
}

impl Lease for ZooKeeperLease {
    fn poll(&mut self) -> Result<Option<Held>, LeaseError> {
        let mut state = self.shared.lock();
        let idle = state.polled.replace(Instant::now()).is_none();
        if idle {
            self.shared.wake.notify_one();
        }
        // No longer than its node stays when nobody polls, where the session is the longer one. A tenth is for clocks that run at different speeds.
        let lasts = state.session.min(self.ttl) * 9 / 10;
        let held = state.held.map(|(epoch, contact)| Held { epoch, until: contact + lasts });
        match (held.filter(|held| Instant::now() < held.until), &state.fault) {
            (Some(held), _) => Ok(Some(held)),
            (None, Some(fault)) => Err(LeaseError::Away {
                service: format!("ZooKeeper at {}", self.servers),
                reason: fault.clone(),
            }),
            (None, None) => Ok(None),
        }
    }

    fn resign(&mut self) {
        let mut state = self.shared.lock();
        (state.held, state.polled, state.resigned) = (None, None, true);
        self.shared.wake.notify_one();
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl Drop for ZooKeeperLease {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.stopped.notify_one();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

struct Candidate {
    shared: Arc<Shared>,
    servers: String,
    path: String,
    node: String,
    ttl: Duration,
}

/// A candidate's node.
struct Own {
    name: String,
    epoch: u64,
}

impl Candidate {
    async fn run(self) {
        let mut client: Option<Client> = None;
        while !self.shared.lock().stop {
            // There is no node now.
            self.shared.lock().resigned = false;
            if !self.wanted() {
                // Nothing is lost by a late wake: whoever polls says so.
                _ = self.unless_stopped(timeout(self.ttl, self.shared.wake.notified())).await;
                continue;
            }
            let connected = match client.take() {
                Some(client) => Ok(client),
                None => match self.unless_stopped(self.connect()).await {
                    Some(connected) => connected,
                    None => return,
                },
            };
            match connected {
                Ok(connected) => match self.stand(&connected).await {
                    Ok(()) => client = Some(connected),
                    Err(fault) => self.away(&fault),
                },
                Err(fault) => self.away(&fault),
            }
            if self.shared.lock().fault.is_some() {
                _ = self.unless_stopped(tokio::time::sleep(PAUSE)).await;
            }
        }
    }

    /// Waits for `work`; `None` when it is to stop first.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        if self.shared.lock().stop {
            return None;
        }
        tokio::select! {
            biased;
            () = self.shared.stopped.notified() => None,
            done = work => Some(done),
        }
    }

    /// Whether somebody asks for the lease.
    fn wanted(&self) -> bool {
        let state = self.shared.lock();
        !state.stop && !state.resigned && state.polled.is_some_and(|at| at.elapsed() < self.ttl)
    }

    fn away(&self, fault: &Error) {
        self.shared.lock().fault = Some(fault.to_string());
    }

    async fn connect(&self) -> Result<Client, Error> {
        let connector = Client::connector()
            .with_session_timeout(self.ttl)
            .with_connection_timeout(self.ttl / 3)
            .with_fail_eagerly();
        timeout(self.ttl, connector.connect(&self.servers)).await.map_err(|_| Error::Timeout)?
    }

    /// Stands for election for as long as somebody asks. An error is the end of the session: its node may still be there, and goes with it.
    async fn stand(&self, client: &Client) -> Result<(), Error> {
        let Some(own) = self.unless_stopped(self.enter(client)).await else { return Ok(()) };
        let own = own?;
        self.shared.lock().session = client.session_timeout();
        let ended = self.unless_stopped(self.follow(client, &own)).await.unwrap_or(Ok(()));
        self.shared.lock().held = None;
        let own = format!("{}/{}", self.path, own.name);
        let left = match timeout(LEAVE.min(self.ttl / 3), client.delete(&own, None)).await {
            Ok(Ok(()) | Err(Error::NoNode)) => Ok(()),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Error::Timeout),
        };
        // With a node of its own left behind in a session that goes on, it would wait for itself for ever.
        ended.and(left)
    }

    /// Makes the candidate's node.
    async fn enter(&self, client: &Client) -> Result<Own, Error> {
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        match timeout(self.ttl, client.mkdir(&self.path, &persistent)).await.map_err(|_| Error::Timeout)? {
            Ok(()) | Err(Error::NodeExists) => {}
            Err(error) => return Err(error),
        }
        let prefix = format!("{}/candidate-", self.path);
        let made = timeout(self.ttl, client.create(&prefix, self.node.as_bytes(), &ephemeral)).await;
        let (stat, sequence) = made.map_err(|_| Error::Timeout)??;
        Ok(Own { name: format!("candidate-{sequence}"), epoch: u64::try_from(stat.czxid).unwrap_or(0) })
    }

    /// Follows the election until nobody asks any more, or the session is over.
    async fn follow(&self, client: &Client, own: &Own) -> Result<(), Error> {
        let every = self.ttl / 6;
        while self.wanted() {
            let asked = Instant::now();
            let (before, there) = match timeout(self.ttl / 3, client.list_children(&self.path)).await {
                Ok(Ok(children)) => {
                    let there = children.contains(&own.name);
                    // Sequences have ten digits: names are in their order.
                    (children.into_iter().filter(|name| *name < own.name).max(), there)
                }
                // The client is connecting again: the session may still be there.
                Ok(Err(Error::ConnectionLoss | Error::Timeout)) | Err(_) => {
                    if asked.elapsed() > self.ttl || self.lapsed() {
                        return Err(Error::Timeout);
                    }
                    self.away(&Error::ConnectionLoss);
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Ok(Err(error)) => return Err(error),
            };
            if !there {
                return Err(Error::SessionExpired);
            }
            {
                let mut state = self.shared.lock();
                state.fault = None;
                // Not when somebody has just resigned, whether or not it was asked for again since.
                state.held = (before.is_none() && !state.resigned).then_some((own.epoch, asked));
            }
            let woken = self.shared.wake.notified();
            match before {
                None => _ = timeout(every, woken).await,
                Some(before) => {
                    let before = format!("{}/{before}", self.path);
                    let watched = timeout(self.ttl / 3, client.check_and_watch_stat(&before)).await;
                    if let Ok(Ok((Some(_), watcher))) = watched {
                        tokio::select! {
                            _ = watcher.changed() => {}
                            () = woken => {}
                            () = tokio::time::sleep(every) => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the session must be over by now: nothing was heard for its length.
    fn lapsed(&self) -> bool {
        let state = self.shared.lock();
        state.held.is_some_and(|(_, contact)| contact.elapsed() > state.session.max(self.ttl))
    }
}
