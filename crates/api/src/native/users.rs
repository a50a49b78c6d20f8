//! Sign-up and login.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use hoga_core::command::Body;
use hoga_core::event::Event;
use hoga_core::ids::{AccountId, Timestamp};
use hoga_store::{StoreError, Taken, User};
use serde_json::json;

use super::blocking;
use crate::app::App;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::reply::execute;

/// Shortest and longest password, in bytes: long enough to resist guessing, short enough that hashing its bytes costs nothing.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 8..=256;
/// Longest user name, in bytes.
const NAME_BYTES: std::ops::RangeInclusive<usize> = 1..=64;

fn name_and_password(call: &Call<'_>) -> Result<(String, String), ApiError> {
    let name = call.params.mandatory("name")?.to_owned();
    let password = call.params.mandatory("password")?.to_owned();
    call.params.all_read()?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+');
    if !NAME_BYTES.contains(&name.len()) || !name.chars().all(legal) {
        return Err(ApiError::illegal("name", "^[A-Za-z0-9._@+-]{1,64}$"));
    }
    Ok((name, password))
}

/// Hashes or checks one password at a time per permit: a crowd at the login waits in a bounded line.
async fn hashing<R: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, ApiError> {
    let _waiting = app.hashing_queue.try_begin()?;
    let _permit = app.hashing.acquire().await.map_err(|error| ApiError::internal(&error))?;
    blocking(work).await
}

/// `POST /api/v1/users`.
pub(super) async fn sign_up(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    if !app.config().open_signup {
        return Err(ApiError::new(-1002, "You are not authorized to execute this request."));
    }
    let (name, password) = name_and_password(call)?;
    if !PASSWORD_BYTES.contains(&password.len()) {
        return Err(ApiError::new(
            -1130,
            "Data sent for parameter 'password' is not valid: use 8 to 256 bytes.",
        ));
    }
    let taken =
        || ApiError::new(-1130, "Data sent for parameter 'name' is not valid: it is taken.").with_status(409);
    let identity = app.identity().clone();
    let lookup = name.clone();
    let exists = blocking(move || identity.user(&lookup)).await?.map_err(|e| ApiError::of_store(&e))?;
    if exists.is_some() {
        return Err(taken());
    }
    let hash =
        hashing(app, move || Argon2::default().hash_password(password.as_bytes()).map(|h| h.to_string()))
            .await?
            .map_err(|error| ApiError::internal(&error))?;
    // The account first: a user without one could do nothing, an account without a user harms nobody.
    let account = new_account(app).await?;
    let user = User { name: name.clone(), password: hash, account, created: call.now };
    let identity = app.identity().clone();
    match blocking(move || identity.add_user(&user)).await? {
        Ok(()) => {}
        Err(StoreError::Taken(Taken::UserName(_))) => return Err(taken()),
        Err(error) => return Err(ApiError::of_store(&error)),
    }
    Ok(super::json(&json!({ "name": name, "account": account.0 })).with_status(201))
}

/// Opens an account in the engine.
pub(super) async fn new_account(app: &App) -> Result<AccountId, ApiError> {
    let outcome = execute(app.engine(), Body::CreateAccount, Timestamp(0)).await?;
    outcome.result.map_err(|reason| ApiError::from_reject(reason, false))?;
    let account = outcome.events.iter().find_map(|e| match e.event {
        Event::AccountCreated { account } => Some(account),
        _ => None,
    });
    account.ok_or_else(|| ApiError::internal(&"the engine opened an account without saying which"))
}

/// `POST /api/v1/sessions`. An unknown name takes as long as a wrong password and gets the same answer.
pub(super) async fn log_in(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let (name, password) = name_and_password(call)?;
    let identity = app.identity().clone();
    let checked = hashing(app, move || -> Result<Option<User>, StoreError> {
        let user = identity.user(&name)?;
        let stored = user.as_ref().map_or(NOBODY, |user| user.password.as_str());
        let good = PasswordHash::new(stored)
            .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
        Ok(user.filter(|_| good))
    })
    .await?
    .map_err(|error| ApiError::of_store(&error))?;
    let wrong = || ApiError::new(-1002, "Wrong name or password.");
    let user = checked.ok_or_else(wrong)?;
    let (token, session) = app
        .sessions()
        .issue(&user.name, user.account, call.now)
        .map_err(|error| ApiError::internal(&error))?;
    Ok(super::json(
        &json!({ "token": token, "expires": session.expires * 1000, "account": session.account.0 }),
    ))
}

/// A hash of a password that nobody has, with the parameters of ours.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm9ibw$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_nobody_costs_as_much_as_any() {
        let nobody = PasswordHash::new(NOBODY).unwrap();
        let ours = Argon2::default().hash_password(b"correct horse").unwrap().to_string();
        assert!(ours.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{ours}");
        assert!(Argon2::default().verify_password(b"correct horse", &nobody).is_err());
    }
}
