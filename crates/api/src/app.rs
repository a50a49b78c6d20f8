//! What all requests share.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;
use hoga_core::order::StpMode;
use hoga_engine::EngineHandle;
use hoga_store::{Identity, KeyKind, Stores};
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;

use crate::auth::{ApiKey, Signer};
use crate::catalog::{Catalog, SharedCatalog};
use crate::config::ApiConfig;
use crate::connections::ConnectionCounters;
use crate::error::ApiError;
use crate::hub::Hub;
use crate::limits::Limits;
use crate::metrics::{Bound, Metrics};
use crate::names;
use crate::pipeline::Pipeline;
use crate::plant::TickPlant;
use crate::server::ServerError;
use crate::session::Sessions;
use crate::ws;

/// Prepared keys that are kept; above it the table starts again (a signature state is about 300 bytes).
const KEYS_KEPT: usize = 100_000;

/// Passwords that are hashed at a time: each takes 19 MiB and a good part of a core (argon2id, RFC 9106).
const HASHES_AT_A_TIME: usize = 2;

/// Logins that may wait for that; more are refused as busy.
const HASHES_WAITING: usize = 64;

/// Unknown keys that are looked up at a time, on so many threads.
const LOOKUPS_AT_A_TIME: usize = 2;

/// Requests with an unknown key that may wait for that; more are refused as busy.
const LOOKUPS_WAITING: usize = 256;

/// Questions to the read models that may be under way or wait for a thread; more are refused as busy.
const READS_AT_A_TIME: usize = 512;

/// What the gateway stands on.
#[derive(Clone)]
pub struct Services {
    /// Takes commands and answers questions about the present.
    pub engine: EngineHandle,
    /// Answers questions about the past.
    pub stores: Arc<Stores>,
    /// Users and keys.
    pub identity: Identity,
    /// Market data and private events as they happen.
    pub hub: Hub,
    /// Assets and markets; its subscriber must be among the engine's.
    pub catalog: SharedCatalog,
    /// The way of events to their readers.
    pub pipeline: Pipeline,
    /// The tick plant, where there is one.
    pub plant: Option<TickPlant>,
}

/// What all requests share.
pub(crate) struct App {
    config: ApiConfig,
    services: Services,
    limits: Limits,
    sessions: Sessions,
    keys: RwLock<FxHashMap<String, Prepared>>,
    connections: Arc<ConnectionCounters>,
    pub metrics: Metrics,
    /// What happened to WebSockets.
    pub ws_counters: Arc<ws::Counters>,
    /// Passwords being hashed.
    pub hashing: Semaphore,
    /// Those that wait for it.
    pub hashing_queue: Bound,
    /// Questions to the read models that are under way.
    pub reading: Bound,
    lookups: Semaphore,
    lookups_queue: Bound,
    /// Held while the operator's door looks for an order and places it: one that comes twice at once is placed once.
    pub placing: Arc<Mutex<()>>,
    default_stp: StpMode,
}

#[derive(Clone)]
struct Prepared {
    stored: Arc<hoga_store::ApiKey>,
    ready: Arc<ApiKey>,
}

impl App {
    pub fn new(
        config: ApiConfig,
        services: Services,
        connections: Arc<ConnectionCounters>,
    ) -> Result<App, ServerError> {
        let default_stp = config.stp().unwrap_or(StpMode::None);
        // Logins outlive a restart: the secret lives beside the users.
        let secret = services
            .identity
            .secret("session", || names::secret().unwrap_or_default().into_bytes())
            .map_err(|e| ServerError::Secret(e.to_string()))?;
        if secret.len() < 32 {
            return Err(ServerError::Secret("the system gave no random bytes".into()));
        }
        let sessions = Sessions::new(&secret, config.session_seconds)?;
        Ok(App {
            limits: Limits::new(config.limits),
            sessions,
            keys: RwLock::default(),
            connections,
            metrics: Metrics::default(),
            ws_counters: Arc::default(),
            hashing: Semaphore::new(HASHES_AT_A_TIME),
            hashing_queue: Bound::new(HASHES_WAITING),
            reading: Bound::new(READS_AT_A_TIME),
            lookups: Semaphore::new(LOOKUPS_AT_A_TIME),
            lookups_queue: Bound::new(LOOKUPS_WAITING),
            placing: Arc::default(),
            default_stp,
            config,
            services,
        })
    }

    pub fn config(&self) -> &ApiConfig {
        &self.config
    }

    pub fn engine(&self) -> &EngineHandle {
        &self.services.engine
    }

    pub fn stores(&self) -> &Arc<Stores> {
        &self.services.stores
    }

    pub fn identity(&self) -> &Identity {
        &self.services.identity
    }

    pub fn hub(&self) -> &Hub {
        &self.services.hub
    }

    pub fn plant(&self) -> Option<TickPlant> {
        self.services.plant.clone()
    }

    /// The way of events to their readers.
    pub fn pipeline(&self) -> &Pipeline {
        &self.services.pipeline
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub fn connections(&self) -> &Arc<ConnectionCounters> {
        &self.connections
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.services.catalog.current()
    }

    pub fn default_stp(&self) -> StpMode {
        self.default_stp
    }

    pub fn now(&self) -> Timestamp {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        Timestamp(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    /// A good key that is known here, ready to check signatures. The identity store's memory is asked every time, so a revoked key is out as
    /// soon as that knows.
    pub fn key(&self, key: &str) -> Option<Arc<ApiKey>> {
        self.prepare(self.services.identity.key(key)?)
    }

    /// As [`App::key`]; one that is not known here is looked up in the database, where another node may have put it. `None`: there is no
    /// such key.
    ///
    /// # Errors
    /// -1001 (503) when it is not known here and the database does not answer, -1008 (503) when too many wait for that.
    pub async fn find_key(&self, key: &str) -> Result<Option<Arc<ApiKey>>, ApiError> {
        if self.services.identity.settles(key) {
            return Ok(self.key(key));
        }
        let _waiting = self.lookups_queue.try_begin()?;
        let _permit = self.lookups.acquire().await.map_err(|error| ApiError::internal(&error))?;
        let (identity, text) = (self.services.identity.clone(), key.to_owned());
        let found = tokio::task::spawn_blocking(move || identity.find_key(&text)).await;
        let found = found.map_err(|error| ApiError::internal(&error))?;
        Ok(found.map_err(|error| ApiError::of_store(&error))?.and_then(|stored| self.prepare(stored)))
    }

    fn prepare(&self, stored: Arc<hoga_store::ApiKey>) -> Option<Arc<ApiKey>> {
        let key = stored.key.as_str();
        let known = self.keys.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if let Some(known) = known
            && Arc::ptr_eq(&known.stored, &stored)
        {
            return Some(known.ready);
        }
        let signer = match stored.kind {
            KeyKind::Hmac => Signer::hmac(&stored.secret),
            KeyKind::Ed25519 => Signer::ed25519(&stored.secret)?,
        };
        let ready = Arc::new(ApiKey { key: stored.key.clone(), account: stored.account, signer });
        let mut table = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= KEYS_KEPT {
            table.clear();
        }
        let name = key.to_owned();
        table.insert(name, Prepared { stored, ready: Arc::clone(&ready) });
        Some(ready)
    }
}
