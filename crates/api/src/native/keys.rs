//! API keys.

use hoga_core::ids::AccountId;
use hoga_store::{ApiKey, KeyKind};
use serde_json::{Value, json};

use super::blocking;
use crate::app::App;
use crate::auth::parse_public_key;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::names;

/// Keys of one account that are good at a time.
const MAX_KEYS: usize = 50;

/// `POST /api/v1/keys`: with `publicKey` an Ed25519 key, without one an HMAC key whose secret is shown once.
pub(super) async fn create(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    let public = call.params.optional("publicKey")?;
    let label = call.params.raw("label").unwrap_or("").to_owned();
    call.params.all_read()?;
    // PostgreSQL's text has no zero bytes.
    if label.len() > 64 || label.contains('\0') {
        return Err(ApiError::not_valid("label"));
    }
    let public = match public {
        None => None,
        Some(text) => Some(parse_public_key(text).ok_or_else(|| ApiError::not_valid("publicKey"))?),
    };
    let app = &call.peer.app;
    let account = principal.account;
    if keys_of(app, account).await?.iter().filter(|key| key.revoked.is_none()).count() >= MAX_KEYS {
        return Err(ApiError::new(-1130, "Too many API keys; revoke one first."));
    }
    let (key, secret) = add(app, account, public, label, call.now).await?;
    let value = match secret {
        Some(secret) => json!({ "key": key, "secret": secret, "kind": "HMAC" }),
        None => json!({ "key": key, "kind": "ED25519" }),
    };
    Ok(super::json(&value).with_status(201))
}

/// Makes a key and stores it; gives its text, and the secret of an HMAC key.
pub(super) async fn add(
    app: &App,
    account: AccountId,
    public: Option<[u8; 32]>,
    label: String,
    created: hoga_core::ids::Timestamp,
) -> Result<(String, Option<String>), ApiError> {
    let random = || names::secret().map_err(|error| ApiError::internal(&error));
    let key = random()?;
    let secret = if public.is_none() { Some(random()?) } else { None };
    let (kind, bytes) = match (public, &secret) {
        (Some(public), _) => (KeyKind::Ed25519, public.to_vec()),
        (None, secret) => (KeyKind::Hmac, secret.clone().unwrap_or_default().into_bytes()),
    };
    let stored = ApiKey { key: key.clone(), kind, secret: bytes, account, label, created, revoked: None };
    let identity = app.identity().clone();
    let added = blocking(move || identity.add_key(&stored)).await?;
    added.map_err(|error| ApiError::of_store(&error))?;
    Ok((key, secret))
}

async fn keys_of(app: &App, account: AccountId) -> Result<Vec<ApiKey>, ApiError> {
    let identity = app.identity().clone();
    blocking(move || identity.keys_of(account)).await?.map_err(|error| ApiError::of_store(&error))
}

/// `GET /api/v1/keys`: never the secrets.
pub(super) async fn list(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    call.params.all_read()?;
    let keys = keys_of(&call.peer.app, principal.account).await?;
    let list: Vec<Value> = keys
        .iter()
        .map(|key| {
            let kind = match key.kind {
                KeyKind::Hmac => "HMAC",
                KeyKind::Ed25519 => "ED25519",
            };
            json!({
                "key": key.key,
                "kind": kind,
                "label": key.label,
                "created": key.created.millis(),
                "revoked": key.revoked.map(|time| time.millis()),
            })
        })
        .collect();
    Ok(super::json(&Value::Array(list)))
}

/// `DELETE /api/v1/keys/{id}`.
pub(super) async fn revoke(call: &Call<'_>) -> Result<Reply, ApiError> {
    let principal = call.principal()?;
    call.params.all_read()?;
    let (identity, key) = (call.peer.app.identity().clone(), call.id.to_owned());
    let (account, now) = (principal.account, call.now);
    let revoked = blocking(move || identity.revoke_key(account, &key, now)).await?;
    if revoked.map_err(|error| ApiError::of_store(&error))? {
        return Ok(super::json(&json!({ "key": call.id, "revoked": now.millis() })));
    }
    Err(ApiError::new(-1099, "Not found, authenticated, or authorized.").with_status(404))
}
