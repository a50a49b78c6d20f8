//! Sessions of the console and of the native endpoints: JSON Web Tokens (RFC 7519), HS256 and nothing else.
//!
//! The library's own back ends bring RSA, which has no place here, so its HMAC is plugged in from the crates that also sign API requests.
//! RFC 8725 is followed: one algorithm is allowed, whatever the token's header says; `exp`, `iss` and `sub` must be there.

use hmac::{Hmac, KeyInit, Mac};
use hoga_core::ids::{AccountId, Timestamp};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{Error as SignatureError, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Who issued a token.
const ISSUER: &str = "hoga";

static HS256: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(Hs256::new(key.as_bytes())?)),
        _ => Err(Error::from(ErrorKind::InvalidAlgorithm)),
    },
    verifier_factory: |algorithm, key| match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(Hs256::new(key.try_get_as_bytes()?)?)),
        _ => Err(Error::from(ErrorKind::InvalidAlgorithm)),
    },
    key_utils: KeyUtils::new_unimplemented(),
};

struct Hs256(Hmac<Sha256>);

impl Hs256 {
    fn new(secret: &[u8]) -> Result<Hs256, Error> {
        Hmac::new_from_slice(secret).map(Hs256).map_err(|_| Error::from(ErrorKind::InvalidKeyFormat))
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, SignatureError> {
        let mut mac = self.0.clone();
        mac.update(message);
        Ok(mac.finalize().into_bytes().to_vec())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let mut mac = self.0.clone();
        mac.update(message);
        // In constant time.
        mac.verify_slice(signature).map_err(SignatureError::from_source)
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claims {
    iss: String,
    /// The user's name.
    sub: String,
    /// The account.
    acc: u32,
    iat: u64,
    exp: u64,
}

/// A session that a token proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The user's name.
    pub user: String,
    /// The account that belongs to the user.
    pub account: AccountId,
    /// When it ends, in seconds since the epoch.
    pub expires: u64,
}

/// Makes and checks tokens.
pub struct Sessions {
    encoding: EncodingKey,
    decoding: DecodingKey,
    validation: Validation,
    seconds: u64,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[error("session token: {0}")]
pub struct SessionError(#[from] Error);

impl Sessions {
    /// With a secret that lasts as long as the tokens should; tokens live `seconds`.
    pub fn new(secret: &[u8], seconds: u64) -> Result<Sessions, SessionError> {
        // Once per process; the same provider every time, so a second call changes nothing.
        let _ = HS256.install_default();
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_required_spec_claims(&["exp", "iss", "sub"]);
        validation.set_issuer(&[ISSUER]);
        validation.validate_nbf = true;
        validation.leeway = 0;
        Ok(Sessions {
            encoding: EncodingKey::from_secret(secret)?,
            decoding: DecodingKey::from_secret(secret)?,
            validation,
            seconds,
        })
    }

    /// A token for a user who proved who they are.
    pub fn issue(
        &self,
        user: &str,
        account: AccountId,
        now: Timestamp,
    ) -> Result<(String, Session), SessionError> {
        let iat = u64::try_from(now.millis() / 1000).unwrap_or(0);
        let exp = iat.saturating_add(self.seconds);
        let claims = Claims { iss: ISSUER.into(), sub: user.to_owned(), acc: account.0, iat, exp };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.encoding)?;
        Ok((token, Session { user: user.to_owned(), account, expires: exp }))
    }

    /// The session behind a token; `None` for anything else than an unexpired token of ours.
    pub fn check(&self, token: &str) -> Option<Session> {
        if token.len() > 1024 {
            return None;
        }
        let claims = jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation).ok()?.claims;
        Some(Session { user: claims.sub, account: AccountId(claims.acc), expires: claims.exp })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    const SECRET: [u8; 32] = [9; 32];

    fn now() -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Timestamp(since.as_micros() as i64)
    }

    /// A token made by hand, as an attacker would.
    fn forge(header: &str, claims: &str, secret: &[u8]) -> String {
        let body = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
        mac.update(body.as_bytes());
        format!("{body}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    #[test]
    fn a_token_proves_its_session_until_it_ends() {
        let sessions = Sessions::new(&SECRET, 60).unwrap();
        let (token, session) = sessions.issue("ann", AccountId(3), now()).unwrap();
        assert_eq!(sessions.check(&token).as_ref(), Some(&session));
        assert_eq!((session.user.as_str(), session.account), ("ann", AccountId(3)));
        let (old, _) = sessions.issue("ann", AccountId(3), Timestamp(now().0 - 61_000_000)).unwrap();
        assert_eq!(sessions.check(&old), None);
        let other = Sessions::new(&[8; 32], 60).unwrap();
        assert_eq!(other.check(&token), None);
    }

    #[test]
    fn forged_tokens_are_refused() {
        let sessions = Sessions::new(&SECRET, 60).unwrap();
        let seconds = (now().0 / 1_000_000) as u64;
        let good = format!(r#"{{"iss":"hoga","sub":"ann","acc":3,"iat":{seconds},"exp":{}}}"#, seconds + 60);
        let hs256 = r#"{"typ":"JWT","alg":"HS256"}"#;
        assert!(sessions.check(&forge(hs256, &good, &SECRET)).is_some(), "the forge itself works");
        let unsigned = forge(r#"{"typ":"JWT","alg":"none"}"#, &good, &SECRET);
        let stripped = format!("{}.", unsigned.rsplit_once('.').unwrap().0);
        let own = forge(hs256, &good, &SECRET);
        let (head, signature) = own.rsplit_once('.').unwrap();
        let (header, _) = head.split_once('.').unwrap();
        let swapped = format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(good.replace(":3,", ":4,")));
        for (what, token) in [
            ("none", unsigned),
            ("none without signature", stripped),
            ("RS256 with the secret as key", forge(r#"{"alg":"RS256"}"#, &good, &SECRET)),
            ("HS512 in the header", forge(r#"{"alg":"HS512"}"#, &good, &SECRET)),
            ("no algorithm", forge(r#"{"typ":"JWT"}"#, &good, &SECRET)),
            ("another secret", forge(hs256, &good, &[1; 32])),
            ("empty secret", forge(hs256, &good, b"")),
            ("changed account", swapped),
            (
                "expired",
                forge(
                    hs256,
                    &good.replace(&format!("{}}}", seconds + 60), &format!("{}}}", seconds - 1)),
                    &SECRET,
                ),
            ),
            ("no exp", forge(hs256, r#"{"iss":"hoga","sub":"ann","acc":3,"iat":1}"#, &SECRET)),
            (
                "exp as text",
                forge(hs256, r#"{"iss":"hoga","sub":"ann","acc":3,"iat":1,"exp":"99999999999"}"#, &SECRET),
            ),
            (
                "not before",
                forge(hs256, &good.replace('{', &format!(r#"{{"nbf":{},"#, seconds + 1000)), &SECRET),
            ),
            ("malformed nbf", forge(hs256, &good.replace('{', r#"{"nbf":"x","#), &SECRET)),
            ("another issuer", forge(hs256, &good.replace("hoga", "toga"), &SECRET)),
            ("no user", forge(hs256, &good.replace(r#""sub":"ann","#, ""), &SECRET)),
            ("empty", String::new()),
            ("dots", "..".into()),
            ("long", "a".repeat(100_000)),
        ] {
            assert_eq!(sessions.check(&token), None, "{what}");
        }
    }
}
