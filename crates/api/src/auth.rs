//! Who asks: API keys and their signatures, the time window, and sessions.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::DecodePublicKey;
use ed25519_dalek::{Signature, Verifier, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use hoga_core::ids::{AccountId, Timestamp};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::error::ApiError;
use crate::params::Params;

/// `recvWindow` when none is sent, in microseconds (Binance: 5,000 ms).
pub const DEFAULT_WINDOW: i64 = 5_000_000;
/// The largest `recvWindow`, in microseconds (Binance: 60,000 ms).
pub const MAX_WINDOW: i64 = 60_000_000;
/// How far ahead of the server a timestamp may be, in microseconds (Binance: 1 s).
const MAX_AHEAD: i64 = 1_000_000;

/// How a key signs.
#[derive(Clone)]
pub enum Signer {
    /// With a shared secret; the state is prepared with it, so that a check hashes only the message.
    Hmac(Box<Hmac<Sha256>>),
    /// With a private key that the exchange never sees.
    Ed25519(Box<VerifyingKey>),
}

/// An API key, ready to check signatures.
#[derive(Clone)]
pub struct ApiKey {
    /// Its public name (`X-MBX-APIKEY`).
    pub key: String,
    /// Whose it is.
    pub account: AccountId,
    /// How it signs.
    pub signer: Signer,
}

impl Signer {
    /// From a shared secret.
    pub fn hmac(secret: &[u8]) -> Signer {
        // HMAC takes keys of any length, so this cannot fail; an empty one would be refused when the key is made.
        match Hmac::<Sha256>::new_from_slice(secret) {
            Ok(state) => Signer::Hmac(Box::new(state)),
            Err(never) => unreachable!("HMAC takes every key length: {never}"),
        }
    }

    /// From a public key: 32 bytes.
    pub fn ed25519(public: &[u8]) -> Option<Signer> {
        let bytes: &[u8; 32] = public.try_into().ok()?;
        let key = VerifyingKey::from_bytes(bytes).ok()?;
        // A weak key verifies anything.
        (!key.is_weak()).then(|| Signer::Ed25519(Box::new(key)))
    }

    /// Whether `signature` (hexadecimal in any case for HMAC, base64 for Ed25519) is of these pieces, joined. In constant time for HMAC.
    pub fn verify(&self, pieces: &[&[u8]], signature: &str) -> bool {
        match self {
            Signer::Hmac(state) => {
                let mut given = [0_u8; 32];
                if hex::decode_to_slice(signature, &mut given).is_err() {
                    return false;
                }
                let mut mac = Hmac::clone(state);
                for piece in pieces {
                    mac.update(piece);
                }
                mac.finalize().into_bytes().ct_eq(&given[..]).into()
            }
            Signer::Ed25519(key) => {
                let Ok(bytes) = STANDARD.decode(signature) else { return false };
                let Ok(signature) = Signature::from_slice(&bytes) else { return false };
                match pieces {
                    [one] => key.verify(one, &signature).is_ok(),
                    many => key.verify(&many.concat(), &signature).is_ok(),
                }
            }
        }
    }
}

/// Reads an Ed25519 public key: PEM (`-----BEGIN PUBLIC KEY-----`), or its 32 bytes in base64 or hexadecimal.
pub fn parse_public_key(text: &str) -> Option<[u8; 32]> {
    let text = text.trim();
    let key = if text.starts_with("-----BEGIN") {
        VerifyingKey::from_public_key_pem(text).ok()?
    } else {
        let bytes = hex::decode(text).ok().or_else(|| STANDARD.decode(text).ok())?;
        match bytes.len() {
            32 => VerifyingKey::from_bytes(bytes.as_slice().try_into().ok()?).ok()?,
            _ => VerifyingKey::from_public_key_der(&bytes).ok()?,
        }
    };
    (!key.is_weak()).then(|| key.to_bytes())
}

/// A query or body without its signature, in the two pieces around it, and the signature as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsigned<'a> {
    /// Before it.
    pub before: &'a str,
    /// After it.
    pub after: &'a str,
    /// Still percent-encoded.
    pub signature: Option<&'a str>,
}

/// Cuts `signature=…` out of a query or form, wherever it stands.
pub fn cut_signature(text: &str) -> Unsigned<'_> {
    const NAME: &str = "signature=";
    let start = if text.starts_with(NAME) { Some(0) } else { text.find("&signature=").map(|at| at + 1) };
    let Some(start) = start else { return Unsigned { before: text, after: "", signature: None } };
    let value = &text[start + NAME.len()..];
    let end = value.find('&').unwrap_or(value.len());
    let (signature, rest) = value.split_at(end);
    // One ampersand goes with it: the one before, or at the very beginning the one after.
    let (before, after) =
        if start > 0 { (&text[..start - 1], rest) } else { ("", rest.strip_prefix('&').unwrap_or(rest)) };
    Unsigned { before, after, signature: Some(signature) }
}

/// What a request says about its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    timestamp: i64,
    window: i64,
}

impl Timing {
    /// Reads `timestamp` and `recvWindow`; the timestamp is mandatory.
    pub fn read(params: &Params<'_>) -> Result<Timing, ApiError> {
        params.mandatory("timestamp")?;
        let timestamp = params.time("timestamp")?.ok_or_else(|| ApiError::mandatory("timestamp"))?;
        let window = match params.optional("recvWindow")? {
            None => DEFAULT_WINDOW,
            Some(text) => parse_window(text)?,
        };
        Ok(Timing { timestamp, window })
    }

    /// Reads them where they may be missing (sessions).
    pub fn read_optional(params: &Params<'_>) -> Result<Option<Timing>, ApiError> {
        if params.raw("timestamp").is_none() {
            params.raw("recvWindow");
            return Ok(None);
        }
        Timing::read(params).map(Some)
    }

    /// Binance's rule: `timestamp < now + 1 s` and `now − timestamp ≤ recvWindow`. Gives the deadline, at which the core looks again.
    pub fn check(self, now: Timestamp) -> Result<Timestamp, ApiError> {
        if self.timestamp >= now.0.saturating_add(MAX_AHEAD) {
            return Err(ApiError::ahead_of_server());
        }
        let deadline = self.timestamp.saturating_add(self.window);
        if now.0 > deadline { Err(ApiError::outside_window()) } else { Ok(Timestamp(deadline)) }
    }
}

/// `recvWindow` in milliseconds with up to three places, as microseconds.
fn parse_window(text: &str) -> Result<i64, ApiError> {
    const RANGE: &str = "^[0-9]{1,5}(\\.[0-9]{1,3})?$";
    let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |t: &str, max| (1..=max).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole, 20) || !digits(places, 20) {
        return Err(ApiError::illegal("recvWindow", RANGE));
    }
    if places.len() > 3 {
        return Err(ApiError::too_precise("recvWindow"));
    }
    let too_large =
        || ApiError::new(-1102, "'recvWindow' contains unexpected value. Cannot be greater than 60000.");
    let whole = i64::from_str(whole).ok().filter(|ms| *ms <= 60_000).ok_or_else(too_large)?;
    let places = i64::from_str(places).unwrap_or(0) * 10_i64.pow(3 - places.len() as u32);
    let window = whole * 1000 + places;
    if window > MAX_WINDOW { Err(too_large()) } else { Ok(window) }
}

/// Whether a text can be an API key at all (-2014 otherwise).
pub fn is_key_format(text: &str) -> bool {
    (16..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"NhqPtmdSJYdKjVHjA7PZj4Mge3R5YNiP1e3UZjInClVN65XAbvqqM6A7H5fATj0j";

    #[test]
    fn hmac_vectors_of_the_documentation() {
        let signer = Signer::hmac(SECRET);
        let ascii = "symbol=LTCBTC&side=BUY&type=LIMIT&timeInForce=GTC&quantity=1&price=0.1&recvWindow=5000&timestamp=1499827319559";
        let encoded = "symbol=%EF%BC%91%EF%BC%92%EF%BC%93%EF%BC%94%EF%BC%95%EF%BC%96&side=BUY&type=LIMIT&timeInForce=GTC&quantity=1&price=0.1&recvWindow=5000&timestamp=1499827319559";
        for (payload, signature) in [
            (ascii, "c8db56825ae71d6d79447849e617115f4a920fa2acdcab2b053c4b2838bd6b71"),
            (encoded, "e1353ec6b14d888f1164ae9af8228a3dbd508bc82eb867db8ab6046442f33ef3"),
        ] {
            assert!(signer.verify(&[payload.as_bytes()], signature));
            assert!(signer.verify(&[payload.as_bytes()], &signature.to_uppercase()));
            // The same bytes in two pieces: query and body are joined without a separator.
            let (query, body) = payload.as_bytes().split_at(40);
            assert!(signer.verify(&[query, body], signature));
            assert!(!signer.verify(&[body, query], signature));
            for bad in ["", "00", &signature[1..], &signature.replace('c', "d"), "zz"] {
                assert!(!signer.verify(&[payload.as_bytes()], bad), "{bad}");
            }
        }
    }

    #[test]
    fn ed25519_signatures_and_key_forms() {
        use ed25519_dalek::Signer as _;
        use ed25519_dalek::pkcs8::EncodePublicKey;
        use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
        let private = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
        let public = private.verifying_key();
        let payload = b"symbol=BTCUSDT&side=SELL&timestamp=1668481559918";
        let signature = STANDARD.encode(private.sign(payload).to_bytes());
        let signer = Signer::ed25519(public.as_bytes()).unwrap();
        assert!(signer.verify(&[payload], &signature));
        assert!(signer.verify(&[&payload[..9], &payload[9..]], &signature));
        assert!(!signer.verify(&[&payload[1..]], &signature));
        assert!(!signer.verify(&[payload], &signature.to_lowercase()));
        let pem = public.to_public_key_pem(LineEnding::LF).unwrap();
        for text in [pem, hex::encode(public.as_bytes()), STANDARD.encode(public.as_bytes())] {
            assert_eq!(parse_public_key(&text), Some(public.to_bytes()), "{text}");
        }
        for bad in ["", "abc", "-----BEGIN PUBLIC KEY-----", &hex::encode([0; 32]), &"00".repeat(31)] {
            assert_eq!(parse_public_key(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_signature_is_cut_out_wherever_it_stands() {
        for (text, before, after, signature) in [
            ("a=1&b=2&signature=xy", "a=1&b=2", "", Some("xy")),
            ("a=1&signature=xy&b=2", "a=1", "&b=2", Some("xy")),
            ("signature=xy&a=1", "", "a=1", Some("xy")),
            ("signature=", "", "", Some("")),
            ("a=1", "a=1", "", None),
            ("asignature=1", "asignature=1", "", None),
            ("", "", "", None),
        ] {
            assert_eq!(cut_signature(text), Unsigned { before, after, signature }, "{text}");
        }
    }

    #[test]
    fn the_time_window() {
        let now = Timestamp(1_700_000_000_000_000);
        for (query, result) in [
            ("timestamp=1700000000000", Ok(5_000_000)),
            ("timestamp=1700000000000000", Ok(5_000_000)),
            ("timestamp=1700000000999&recvWindow=1", Ok(1_000_000)),
            (
                "timestamp=1700000001000",
                Err("Timestamp for this request was 1000ms ahead of the server's time."),
            ),
            ("timestamp=1699999995000", Ok(0)),
            ("timestamp=1699999994999", Err("Timestamp for this request is outside of the recvWindow.")),
            // Case D1: 11 s old with a window of 10 s; a timestamp in seconds.
            (
                "timestamp=1699999989000&recvWindow=10000",
                Err("Timestamp for this request is outside of the recvWindow."),
            ),
            ("timestamp=1700000000", Err("Timestamp for this request is outside of the recvWindow.")),
            ("timestamp=1699999994000&recvWindow=6000.346", Ok(346)),
            ("timestamp=1700000000000&recvWindow=60000", Ok(60_000_000)),
            (
                "timestamp=1700000000000&recvWindow=60001",
                Err("'recvWindow' contains unexpected value. Cannot be greater than 60000."),
            ),
            (
                "timestamp=1700000000000&recvWindow=60000.001",
                Err("'recvWindow' contains unexpected value. Cannot be greater than 60000."),
            ),
            (
                "timestamp=1700000000000&recvWindow=1.0001",
                Err("Parameter 'recvWindow' has too much precision."),
            ),
            ("", Err("Mandatory parameter 'timestamp' was not sent, was empty/null, or malformed.")),
            (
                "timestamp=",
                Err("Mandatory parameter 'timestamp' was not sent, was empty/null, or malformed."),
            ),
            (
                "timestamp=-1",
                Err("Illegal characters found in parameter 'timestamp'; legal range is '^[0-9]{1,20}$'."),
            ),
        ] {
            let params = Params::from_request(query, "").unwrap();
            let got = Timing::read(&params).and_then(|timing| timing.check(now));
            let got = got.map(|deadline| deadline.0 - now.0).map_err(|error| error.msg.into_owned());
            assert_eq!(got, result.map_err(str::to_owned), "{query}");
        }
    }
}
