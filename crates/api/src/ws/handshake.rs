//! The opening handshake, server side (RFC 6455 §4.2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{
    ALLOW, CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, Request, Response, StatusCode, Version};
use sha1::{Digest, Sha1};

/// Appended to the client's key (§1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why a request is no WebSocket handshake that we take. The text is for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// §4.1: the method must be GET.
    #[error("a WebSocket handshake is a GET request")]
    Method,
    /// §4.1: HTTP/1.1 or higher. (HTTP/2 has another way, RFC 8441, which we do not offer.)
    #[error("a WebSocket handshake needs HTTP/1.1")]
    Version,
    /// §4.2.1 (3): `Upgrade: websocket`.
    #[error("header Upgrade: websocket is missing")]
    Upgrade,
    /// §4.2.1 (4): `Connection` names `Upgrade`.
    #[error("header Connection: Upgrade is missing")]
    Connection,
    /// §4.2.1 (5): a key of 16 bytes in base64.
    #[error("header Sec-WebSocket-Key must be 16 bytes in base64")]
    Key,
    /// §4.2.1 (6): version 13.
    #[error("only Sec-WebSocket-Version 13 is spoken here")]
    WebSocketVersion,
}

impl HandshakeError {
    /// The status of the answer (§4.2.2 (4): 426 with the versions we speak).
    pub fn status(self) -> StatusCode {
        match self {
            HandshakeError::Method => StatusCode::METHOD_NOT_ALLOWED,
            HandshakeError::Upgrade | HandshakeError::WebSocketVersion => StatusCode::UPGRADE_REQUIRED,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// The header that belongs to that status, if any.
    pub fn header(self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            HandshakeError::Method => Some((ALLOW, HeaderValue::from_static("GET"))),
            // RFC 9110 §15.5.22: 426 must say which protocol.
            HandshakeError::Upgrade => Some((UPGRADE, HeaderValue::from_static("websocket"))),
            HandshakeError::WebSocketVersion => Some((SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))),
            _ => None,
        }
    }
}

/// Whether the request asks for a WebSocket.
pub fn is_upgrade<B>(request: &Request<B>) -> bool {
    has_token(request.headers(), UPGRADE, "websocket")
}

/// Checks the handshake (§4.2.1) and builds the answer 101 (§4.2.2 (5)). No sub-protocol and no extension is chosen, which declines all
/// that the client offers (§4.2.2, §9.1).
pub fn accept<B>(request: &Request<B>) -> Result<Response<()>, HandshakeError> {
    if request.method() != Method::GET {
        return Err(HandshakeError::Method);
    }
    if request.version() != Version::HTTP_11 {
        return Err(HandshakeError::Version);
    }
    let headers = request.headers();
    if !has_token(headers, UPGRADE, "websocket") {
        return Err(HandshakeError::Upgrade);
    }
    if !has_token(headers, CONNECTION, "upgrade") {
        return Err(HandshakeError::Connection);
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version.as_bytes().trim_ascii() != b"13") {
        return Err(HandshakeError::WebSocketVersion);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or(HandshakeError::Key)?.as_bytes().trim_ascii();
    if STANDARD.decode(key).map(|bytes| bytes.len()) != Ok(16) {
        return Err(HandshakeError::Key);
    }
    let accept = HeaderValue::try_from(accept_key(key)).map_err(|_| HandshakeError::Key)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// `Sec-WebSocket-Accept` for a key (§4.2.2 (5.4)): base64 of SHA-1 of key and GUID.
pub fn accept_key(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID.as_bytes());
    STANDARD.encode(hash.finalize())
}

/// Whether a comma-separated header has a token, in any case of letters (§4.2.1).
fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(changes: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::builder().method("GET").uri("/ws");
        let mut headers = vec![
            ("upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        for change in changes {
            headers.retain(|header| header.0 != change.0);
            headers.push(*change);
        }
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        builder.body(()).unwrap()
    }

    #[test]
    fn answers_the_example_of_the_rfc() {
        // §1.3.
        let response = accept(&request(&[])).unwrap();
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!response.headers().contains_key("sec-websocket-extensions"));
    }

    #[test]
    fn refuses_what_is_no_handshake() {
        for (changes, error, status) in [
            (&[("upgrade", "h2c")], HandshakeError::Upgrade, 426),
            (&[("connection", "close")], HandshakeError::Connection, 400),
            (&[("sec-websocket-version", "8")], HandshakeError::WebSocketVersion, 426),
            (&[("sec-websocket-key", "c2hvcnQ=")], HandshakeError::Key, 400),
            (&[("sec-websocket-key", "not base64 at all!!!!!!")], HandshakeError::Key, 400),
        ] {
            assert_eq!(accept(&request(changes)).unwrap_err(), error);
            assert_eq!(error.status(), status);
        }
        let mut post = request(&[]);
        *post.method_mut() = Method::POST;
        assert_eq!(accept(&post).unwrap_err(), HandshakeError::Method);
        let mut old = request(&[]);
        *old.version_mut() = Version::HTTP_10;
        assert_eq!(accept(&old).unwrap_err(), HandshakeError::Version);
        assert!(is_upgrade(&request(&[])) && !is_upgrade(&request(&[("upgrade", "h2c")])));
    }
}
