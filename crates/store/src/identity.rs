//! Users, API keys and secrets. Only here, not in the event log: each change is on disk when the call returns.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use hoga_core::ids::{AccountId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use rustc_hash::FxHashMap;

use crate::cells::{Cells, collect, first};
use crate::database::{lock, open_writer};
use crate::error::{InFile, StoreError, Taken};
use crate::sql::Safety;

const SCHEMA: &str = "
CREATE TABLE users (name TEXT PRIMARY KEY, password TEXT NOT NULL, account INTEGER NOT NULL UNIQUE, created INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE api_keys (
    key TEXT PRIMARY KEY, kind INTEGER NOT NULL, secret BLOB NOT NULL, account INTEGER NOT NULL, label TEXT NOT NULL,
    created INTEGER NOT NULL, revoked INTEGER
) WITHOUT ROWID;
CREATE INDEX api_keys_by_account ON api_keys (account);
CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

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

struct Inner {
    path: PathBuf,
    conn: Mutex<Connection>,
    /// All keys that are good: every signed request asks for one, and must not wait for the disk.
    keys: RwLock<FxHashMap<String, Arc<ApiKey>>>,
}

/// The identity database. Cheap to clone. Looking up a good key touches memory only; everything else blocks on the disk.
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

const KEY_COLUMNS: &str = "key, kind, secret, account, label, created, revoked";

impl Identity {
    /// Opens or makes `identity.db`, readable by its owner only.
    pub fn open(path: &Path) -> Result<Identity, StoreError> {
        let file_error = |source| StoreError::File {
            path: path.to_path_buf(),
            doing: "making the identity database",
            source,
        };
        // SQLite gives its log and shared memory the mode of the database.
        OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(file_error)?;
        let conn = open_writer(path, 1, &[SCHEMA], Safety::Durable)?;
        let keys = {
            let sql = format!("SELECT {KEY_COLUMNS} FROM api_keys WHERE revoked IS NULL");
            let mut statement = conn.prepare(&sql).doing(path, "reading the API keys")?;
            collect(&mut statement, [], path, read_key)?
        };
        let keys = keys.into_iter().map(|key| (key.key.clone(), Arc::new(key))).collect();
        Ok(Identity(Arc::new(Inner {
            path: path.to_path_buf(),
            conn: Mutex::new(conn),
            keys: RwLock::new(keys),
        })))
    }

    /// Adds a user. Fails with [`StoreError::Taken`] when the name exists or the account has a user.
    pub fn add_user(&self, user: &User) -> Result<(), StoreError> {
        let sql = "INSERT INTO users (name, password, account, created) VALUES (?1, ?2, ?3, ?4)";
        let conn = lock(&self.0.conn);
        let added = conn.execute(sql, params![user.name, user.password, user.account.0, user.created.0]);
        match added {
            Err(error) if is_unique(&error) => {
                let name_taken = self.user_in(&conn, &user.name)?.is_some();
                let taken = if name_taken {
                    Taken::UserName(user.name.clone())
                } else {
                    Taken::Account(user.account)
                };
                Err(StoreError::Taken(taken))
            }
            other => other.map(|_| ()).doing(&self.0.path, "storing a user"),
        }
    }

    /// The user of that name.
    pub fn user(&self, name: &str) -> Result<Option<User>, StoreError> {
        self.user_in(&lock(&self.0.conn), name)
    }

    /// The user whose account it is.
    pub fn user_of(&self, account: AccountId) -> Result<Option<User>, StoreError> {
        let conn = lock(&self.0.conn);
        let sql = "SELECT name, password, account, created FROM users WHERE account = ?1";
        let mut statement = conn.prepare_cached(sql).doing(&self.0.path, "reading a user")?;
        first(&mut statement, [account.0], &self.0.path, read_user)
    }

    /// Replaces a user's password hash; false when there is no such user.
    pub fn set_password(&self, name: &str, password: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE users SET password = ?2 WHERE name = ?1";
        let changed =
            lock(&self.0.conn).execute(sql, [name, password]).doing(&self.0.path, "storing a password")?;
        Ok(changed == 1)
    }

    /// Adds an API key. Fails with [`StoreError::Taken`] when its text exists.
    pub fn add_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        let sql = "INSERT INTO api_keys (key, kind, secret, account, label, created, revoked) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let conn = lock(&self.0.conn);
        let revoked = key.revoked.map(|time| time.0);
        let values =
            params![key.key, key.kind as u8, key.secret, key.account.0, key.label, key.created.0, revoked];
        match conn.execute(sql, values) {
            Err(error) if is_unique(&error) => Err(StoreError::Taken(Taken::ApiKey(key.key.clone()))),
            other => other.map(|_| ()).doing(&self.0.path, "storing an API key"),
        }?;
        if key.revoked.is_none() {
            // Still under the connection's lock, so that a revocation cannot slip in between.
            self.0
                .keys
                .write()
                .unwrap_or_else(|e| e.into_inner())
                .insert(key.key.clone(), Arc::new(key.clone()));
        }
        Ok(())
    }

    /// A key that is good; from memory.
    pub fn key(&self, key: &str) -> Option<Arc<ApiKey>> {
        self.good_keys().get(key).cloned()
    }

    /// All keys of an account, revoked ones too, oldest first.
    pub fn keys_of(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError> {
        let conn = lock(&self.0.conn);
        let sql = format!("SELECT {KEY_COLUMNS} FROM api_keys WHERE account = ?1 ORDER BY created, key");
        let mut statement = conn.prepare_cached(&sql).doing(&self.0.path, "reading API keys")?;
        collect(&mut statement, [account.0], &self.0.path, read_key)
    }

    /// Revokes a good key of an account, for good; false when there is none.
    pub fn revoke_key(&self, account: AccountId, key: &str, time: Timestamp) -> Result<bool, StoreError> {
        let sql = "UPDATE api_keys SET revoked = ?3 WHERE key = ?1 AND account = ?2 AND revoked IS NULL";
        let conn = lock(&self.0.conn);
        let changed =
            conn.execute(sql, params![key, account.0, time.0]).doing(&self.0.path, "revoking an API key")?;
        if changed == 1 {
            self.0.keys.write().unwrap_or_else(|e| e.into_inner()).remove(key);
        }
        Ok(changed == 1)
    }

    /// A secret of the server (the administrator's token, the key of its tokens); made by `make` and stored when it is asked for the first
    /// time.
    pub fn secret(&self, name: &str, make: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let conn = lock(&self.0.conn);
        let stored = conn
            .query_row("SELECT value FROM secrets WHERE name = ?1", [name], |row| row.get(0))
            .optional()
            .doing(&self.0.path, "reading a secret")?;
        if let Some(value) = stored {
            return Ok(value);
        }
        let value = make();
        conn.execute("INSERT INTO secrets (name, value) VALUES (?1, ?2)", params![name, value])
            .doing(&self.0.path, "storing a secret")?;
        Ok(value)
    }

    /// Replaces a secret of the server.
    pub fn set_secret(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        lock(&self.0.conn)
            .execute("INSERT OR REPLACE INTO secrets (name, value) VALUES (?1, ?2)", params![name, value])
            .doing(&self.0.path, "storing a secret")?;
        Ok(())
    }

    fn good_keys(&self) -> RwLockReadGuard<'_, FxHashMap<String, Arc<ApiKey>>> {
        self.0.keys.read().unwrap_or_else(|e| e.into_inner())
    }

    fn user_in(&self, conn: &Connection, name: &str) -> Result<Option<User>, StoreError> {
        let sql = "SELECT name, password, account, created FROM users WHERE name = ?1";
        let mut statement = conn.prepare_cached(sql).doing(&self.0.path, "reading a user")?;
        first(&mut statement, [name], &self.0.path, read_user)
    }
}

fn is_unique(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
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
