//! Users, API keys and secrets. Only here, not in the event log: each change is on stable storage when the call returns.
//!
//! They are in a SQLite file of one process, or in a PostgreSQL schema (`identity`) that several nodes share. Good keys are also in memory:
//! who is known trades on while the database is away, and no signed request waits for it.
//!
//! **Several nodes.** Every change of a key has a number from one counter, in the order in which the changes committed. Each node asks
//! every few seconds ([`IdentityOptions::refresh`]) for the changes above the last one it has seen. So a key that is made or revoked on one
//! node is known on the others within that time (a new one at once, when it is asked for: what is not in memory is looked up). While a node
//! cannot reach the database it knows nothing of what others change; a revocation needs the database too.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use hoga_core::ids::{AccountId, Timestamp};
use rustc_hash::FxHashMap;

use crate::cells::Cells;
use crate::database::lock;
use crate::error::{StoreError, Taken};
use crate::sql::{Database, Place, Reader, WritePool, Writer, make_dir, values};

/// Somebody who signs in with a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, unique as it is written.
    pub name: String,
    /// The password's hash as a PHC string (`$argon2id$…`).
    pub password: String,
    /// The account that belongs to the user alone.
    pub account: AccountId,
    /// When the user signed up.
    pub created: Timestamp,
}

/// How requests with a key are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyKind {
    /// HMAC-SHA256; `secret` is the shared secret.
    Hmac = 0,
    /// Ed25519; `secret` is the public key.
    Ed25519 = 1,
}

impl KeyKind {
    fn from_code(code: u8) -> Option<KeyKind> {
        [KeyKind::Hmac, KeyKind::Ed25519].get(usize::from(code)).copied()
    }
}

/// An API key.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The text in the request's header.
    pub key: String,
    /// How requests are signed.
    pub kind: KeyKind,
    /// The shared secret as the client has it (its bytes), or the 32 bytes of the public key.
    pub secret: Vec<u8>,
    /// Whose orders and balances it opens.
    pub account: AccountId,
    /// The owner's name for it.
    pub label: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it was revoked; `None` while it is good.
    pub revoked: Option<Timestamp>,
}

impl std::fmt::Debug for ApiKey {
    /// Leaves the secret out, so that it cannot end in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey")
            .field("key", &self.key)
            .field("kind", &self.kind)
            .field("account", &self.account)
            .field("label", &self.label)
            .field("revoked", &self.revoked)
            .finish_non_exhaustive()
    }
}

/// How [`Identity`] works. The defaults suit a small machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityOptions {
    /// Connections to PostgreSQL (4). SQLite has one: it has one writer anyway.
    pub connections: usize,
    /// How long a call may wait for one of them (5 s); after that it fails with [`StoreError::Unavailable`].
    pub wait: Duration,
    /// How often a node asks what others have changed, where the database is shared (5 s): so long a key that was revoked on another node
    /// may still be taken here.
    pub refresh: Duration,
    /// Good keys that are kept in memory (1,000,000, about 400 bytes each). When there are more, the newest are kept, and the others are
    /// looked up when they are asked for.
    pub keys: usize,
}

impl Default for IdentityOptions {
    fn default() -> IdentityOptions {
        IdentityOptions {
            connections: 4,
            wait: Duration::from_secs(5),
            refresh: Duration::from_secs(5),
            keys: 1_000_000,
        }
    }
}

/// What is known of the keys.
struct Keys {
    /// Good ones: every signed request asks for one, and must not wait for the database.
    good: FxHashMap<String, Arc<ApiKey>>,
    /// The most of them.
    max: usize,
    /// Whether they are all: then a key that is not among them is none.
    complete: bool,
    /// The number of the last change that is in here.
    seen: i64,
}

impl Keys {
    fn keep(&mut self, key: ApiKey) -> Arc<ApiKey> {
        if self.good.len() >= self.max && !self.good.contains_key(&key.key) {
            self.complete = false;
            let some = self.good.keys().next().cloned();
            some.and_then(|text| self.good.remove(&text));
        }
        let key = Arc::new(key);
        self.good.insert(key.key.clone(), key.clone());
        key
    }
}

struct Inner {
    pool: WritePool,
    /// Whether other processes change the tables as well.
    shared: bool,
    keys: RwLock<Keys>,
    /// Held by the one who brings something from the database into `keys`, so that it comes in the order in which it was read.
    turn: Mutex<()>,
    /// Its end tells the thread that asks what others have changed.
    _alive: Sender<()>,
}

/// Users, API keys and secrets. Cheap to clone. Looking up a good key touches memory only; everything else blocks on the database.
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

const KEY_COLUMNS: &str = "key, kind, secret, account, label, created, revoked";

/// Changes that are read at a time.
const PAGE: usize = 1000;

const NEXT_CHANGE: &str = "UPDATE changes SET number = number + 1";

impl Identity {
    /// Opens or makes a SQLite file (`identity.db`, readable by its owner only).
    ///
    /// # Errors
    /// Any [`StoreError`] of opening a database; [`StoreError::File`] when the name does not end in `.db`.
    pub fn open(path: &Path) -> Result<Identity, StoreError> {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".db"));
        let Some(name) = name else {
            let source = std::io::Error::other("its name has to end in .db");
            return Err(StoreError::File {
                path: path.to_path_buf(),
                doing: "making the identity database",
                source,
            });
        };
        let dir = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Identity::open_place(&Database::Sqlite { dir }, name, &IdentityOptions::default())
    }

    /// Opens or makes the tables on a database, with the default options: `identity.db` in the folder of a SQLite database, or the schema
    /// `identity` (behind the configured prefix) on PostgreSQL.
    ///
    /// # Errors
    /// As [`Identity::open_with`].
    pub fn open_on(database: &Database) -> Result<Identity, StoreError> {
        Identity::open_with(database, &IdentityOptions::default())
    }

    /// As [`Identity::open_on`], with options.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the database does not answer: who starts while it is away knows no keys, and tries again.
    pub fn open_with(database: &Database, options: &IdentityOptions) -> Result<Identity, StoreError> {
        Identity::open_place(database, "identity", options)
    }

    fn open_place(
        database: &Database,
        file: &str,
        options: &IdentityOptions,
    ) -> Result<Identity, StoreError> {
        let place = Place { database: database.clone(), file: file.into(), schema: "identity".into() };
        if let Database::Sqlite { dir } = database {
            make_dir(dir)?;
        }
        if let Some(path) = place.path() {
            // SQLite gives its log and shared memory the mode of the database.
            let made = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
            made.map_err(|source| StoreError::File { path, doing: "making the identity database", source })?;
        }
        drop(Writer::open(&place, "identity")?);
        let shared = matches!(database, Database::Postgres(_));
        let connections = if shared { options.connections } else { 1 };
        let pool = WritePool::new(place, connections, options.wait);
        let keys = pool.read("reading the API keys", |reader| load(reader, options.keys.max(1)))?;
        let (alive, ended) = channel();
        let keys = RwLock::new(keys);
        let identity = Identity(Arc::new(Inner { pool, shared, keys, turn: Mutex::new(()), _alive: alive }));
        if shared {
            let (inner, every) = (Arc::downgrade(&identity.0), options.refresh);
            let work = move || follow(&inner, &ended, every);
            std::thread::Builder::new().name("identity".to_owned()).spawn(work).map_err(|source| {
                StoreError::File { path: "identity".into(), doing: "starting the thread of the keys", source }
            })?;
        }
        Ok(identity)
    }

    /// Adds a user. Fails with [`StoreError::Taken`] when the name exists or the account has a user.
    pub fn add_user(&self, user: &User) -> Result<(), StoreError> {
        let sql = "INSERT INTO users (name, password, account, created) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
        let added = self.0.pool.write("storing a user", |tx| {
            tx.execute(sql, values![&*user.name, &*user.password, user.account.0, user.created.0])
        })?;
        if added == 1 {
            return Ok(());
        }
        Err(StoreError::Taken(match self.user(&user.name)? {
            Some(_) => Taken::UserName(user.name.clone()),
            None => Taken::Account(user.account),
        }))
    }

    /// The user of that name.
    pub fn user(&self, name: &str) -> Result<Option<User>, StoreError> {
        let sql = "SELECT name, password, account, created FROM users WHERE name = ?1";
        self.0.pool.read("reading a user", |reader| reader.first(sql, values![name], read_user))
    }

    /// The user whose account it is.
    pub fn user_of(&self, account: AccountId) -> Result<Option<User>, StoreError> {
        let sql = "SELECT name, password, account, created FROM users WHERE account = ?1";
        self.0.pool.read("reading a user", |reader| reader.first(sql, values![account.0], read_user))
    }

    /// Replaces a user's password hash; false when there is no such user.
    pub fn set_password(&self, name: &str, password: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE users SET password = ?2 WHERE name = ?1";
        let changed =
            self.0.pool.write("storing a password", |tx| tx.execute(sql, values![name, password]))?;
        Ok(changed == 1)
    }

    /// Adds an API key. Fails with [`StoreError::Taken`] when its text exists.
    pub fn add_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        let sql = "INSERT INTO api_keys (key, kind, secret, account, label, created, revoked, change)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, (SELECT number FROM changes)) ON CONFLICT DO NOTHING";
        let values = values![
            &*key.key,
            key.kind as u8,
            &*key.secret,
            key.account.0,
            &*key.label,
            key.created.0,
            key.revoked.map(|time| time.0),
        ];
        let added = self.0.pool.write("storing an API key", |tx| {
            tx.execute(NEXT_CHANGE, values![])?;
            tx.execute(sql, values)
        })?;
        if added == 0 {
            return Err(StoreError::Taken(Taken::ApiKey(key.key.clone())));
        }
        if let Err(error) = self.refresh() {
            // It is stored: whoever asks for it looks it up.
            tracing::warn!(%error, "a new API key is not in memory yet");
            self.keys_mut().complete = false;
        }
        Ok(())
    }

    /// A key that is good; from memory. Where others make keys too ([`Database::Postgres`]), or when there are more keys than are kept,
    /// `None` says only that it is not known yet: see [`Identity::find_key`].
    pub fn key(&self, key: &str) -> Option<Arc<ApiKey>> {
        self.keys().good.get(key).cloned()
    }

    /// A key that is good; from memory, or from the database when it is not there. `None`: there is no such key.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it is not in memory and the database does not answer.
    pub fn find_key(&self, key: &str) -> Result<Option<Arc<ApiKey>>, StoreError> {
        if self.settles(key) {
            return Ok(self.key(key));
        }
        let _turn = lock(&self.0.turn);
        if let Some(known) = self.key(key) {
            return Ok(Some(known));
        }
        let sql = format!("SELECT {KEY_COLUMNS} FROM api_keys WHERE key = ?1 AND revoked IS NULL");
        let found =
            self.0.pool.read("looking up an API key", |reader| reader.first(&sql, values![key], read_key))?;
        Ok(found.map(|key| self.keys_mut().keep(key)))
    }

    /// Whether memory says everything about a key, so that [`Identity::find_key`] does not block.
    pub fn settles(&self, key: &str) -> bool {
        let keys = self.keys();
        keys.good.contains_key(key) || (keys.complete && !self.0.shared)
    }

    /// All keys of an account, revoked ones too, oldest first.
    pub fn keys_of(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError> {
        let sql = format!("SELECT {KEY_COLUMNS} FROM api_keys WHERE account = ?1 ORDER BY created, key");
        self.0.pool.read("reading API keys", |reader| reader.all(&sql, values![account.0], read_key))
    }

    /// Revokes a good key of an account, for good; false when there is none. Here it is out when the call returns, on other nodes within
    /// [`IdentityOptions::refresh`].
    pub fn revoke_key(&self, account: AccountId, key: &str, time: Timestamp) -> Result<bool, StoreError> {
        let sql = "UPDATE api_keys SET revoked = ?3, change = (SELECT number FROM changes)
                   WHERE key = ?1 AND account = ?2 AND revoked IS NULL";
        let changed = self.0.pool.write("revoking an API key", |tx| {
            tx.execute(NEXT_CHANGE, values![])?;
            tx.execute(sql, values![key, account.0, time.0])
        })?;
        if changed == 1 {
            // Whoever has read it as good before has put it in by now, or does so before this turn.
            let _turn = lock(&self.0.turn);
            self.keys_mut().good.remove(key);
        }
        Ok(changed == 1)
    }

    /// A secret of the server (the administrator's token, the key of its tokens); made by `make` and stored when it is asked for the first
    /// time. Of several nodes that ask at once, all get the one that was stored first.
    pub fn secret(&self, name: &str, make: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let stored = || {
            self.0.pool.read("reading a secret", |reader| {
                reader.first("SELECT value FROM secrets WHERE name = ?1", values![name], |cells| {
                    Ok(cells.bytes()?.unwrap_or_default())
                })
            })
        };
        if let Some(value) = stored()? {
            return Ok(value);
        }
        let value = make();
        let sql = "INSERT INTO secrets (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        self.0.pool.write("storing a secret", |tx| tx.execute(sql, values![name, &*value]))?;
        Ok(stored()?.unwrap_or(value))
    }

    /// Replaces a secret of the server.
    pub fn set_secret(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let sql = "INSERT INTO secrets (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.0.pool.write("storing a secret", |tx| tx.execute(sql, values![name, value])).map(|_| ())
    }

    /// Takes in what was changed since the last time, here or by others. Done by itself every [`IdentityOptions::refresh`] where the
    /// database is shared.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] while the database is away; what is known stays.
    pub fn refresh(&self) -> Result<(), StoreError> {
        let _turn = lock(&self.0.turn);
        loop {
            let seen = self.keys().seen;
            let sql = format!(
                "SELECT change, {KEY_COLUMNS} FROM api_keys WHERE change > ?1 ORDER BY change LIMIT ?2"
            );
            let changes = self.0.pool.read("reading changes of API keys", |reader| {
                reader.all(&sql, values![seen, PAGE], |cells| Ok((cells.int()?, read_key(cells)?)))
            })?;
            let all = changes.len() < PAGE;
            let mut keys = self.keys_mut();
            for (number, key) in changes {
                keys.seen = number;
                if key.revoked.is_some() {
                    keys.good.remove(&key.key);
                } else {
                    keys.keep(key);
                }
            }
            if all {
                return Ok(());
            }
        }
    }

    // Whoever panicked under one of these locks left whole entries: each is put in or taken out at once.
    fn keys(&self) -> RwLockReadGuard<'_, Keys> {
        self.0.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys_mut(&self) -> RwLockWriteGuard<'_, Keys> {
        self.0.keys.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The good keys, the newest `max` of them, and the number of the last change.
fn load(reader: &Reader<'_>, max: usize) -> Result<Keys, StoreError> {
    let seen = reader.first("SELECT number FROM changes", &[], |cells| cells.int())?.unwrap_or(0);
    let sql = format!(
        "SELECT {KEY_COLUMNS} FROM api_keys WHERE revoked IS NULL ORDER BY created DESC, key LIMIT ?1"
    );
    let mut keys = Keys { good: FxHashMap::default(), max, complete: true, seen };
    let mut found = 0;
    reader.each(&sql, values![max.saturating_add(1)], &mut |cells| {
        found += 1;
        if found > max {
            keys.complete = false;
            return Ok(std::ops::ControlFlow::Break(()));
        }
        keys.keep(read_key(cells)?);
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    if !keys.complete {
        tracing::warn!(
            kept = max,
            "more API keys than are kept in memory; the others are looked up when they come"
        );
    }
    Ok(keys)
}

/// Asks again and again what others have changed, until nobody has the identities any more.
fn follow(inner: &Weak<Inner>, ended: &Receiver<()>, every: Duration) {
    let mut away = false;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
        let Some(identity) = inner.upgrade().map(Identity) else { return };
        match identity.refresh() {
            Ok(()) if away => {
                tracing::info!("the database of users and keys is back");
                away = false;
            }
            Ok(()) => {}
            Err(error) if !away => {
                tracing::warn!(%error, "what other nodes change of API keys is not known until the database is back");
                away = true;
            }
            Err(error) => tracing::debug!(%error, "the database of users and keys is still away"),
        }
    }
}

fn read_user(cells: &mut Cells<'_>) -> Result<User, StoreError> {
    Ok(User {
        name: cells.text()?,
        password: cells.text()?,
        account: AccountId(cells.small("account")?),
        created: cells.time()?,
    })
}

fn read_key(cells: &mut Cells<'_>) -> Result<ApiKey, StoreError> {
    Ok(ApiKey {
        key: cells.text()?,
        kind: cells.code("kind", KeyKind::from_code)?,
        secret: cells.bytes()?.unwrap_or_default(),
        account: AccountId(cells.small("account")?),
        label: cells.text()?,
        created: cells.time()?,
        revoked: cells.maybe_int()?.map(Timestamp),
    })
}
