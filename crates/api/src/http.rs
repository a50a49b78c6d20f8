//! Answers, and bodies of requests.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

use crate::error::ApiError;

/// What the server sends.
pub(crate) type Answer = Response<Full<Bytes>>;

/// An answer in parts, so that a handler can add headers on the way.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Bytes,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The content type of nearly everything here; Binance's.
pub(crate) const JSON: &str = "application/json;charset=UTF-8";

impl Reply {
    pub fn json(body: Vec<u8>) -> Reply {
        Reply { status: 200, content_type: JSON, body: body.into(), headers: Vec::new() }
    }

    pub fn text(content_type: &'static str, body: impl Into<Bytes>) -> Reply {
        Reply { status: 200, content_type, body: body.into(), headers: Vec::new() }
    }

    pub fn with_status(mut self, status: u16) -> Reply {
        self.status = status;
        self
    }

    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Reply {
        self.headers.push((name, value));
        self
    }

    pub fn number(self, name: HeaderName, value: u64) -> Reply {
        self.header(name, HeaderValue::from(value))
    }

    pub fn into_answer(self) -> Answer {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

impl From<ApiError> for Reply {
    fn from(error: ApiError) -> Reply {
        let mut body = Vec::with_capacity(128);
        error.write_json(&mut body);
        let reply = Reply::json(body).with_status(error.status);
        match error.retry_after {
            Some(seconds) => reply.number(RETRY_AFTER, seconds),
            None => reply,
        }
    }
}

/// An HTTP error without a Binance code of its own.
pub(crate) fn plain_error(status: u16, msg: &'static str) -> Reply {
    ApiError::new(-1000, msg).with_status(status).into()
}

/// 405 with the methods that would do.
pub(crate) fn method_not_allowed() -> Reply {
    plain_error(405, "This method is not allowed for this path.")
        .header(ALLOW, HeaderValue::from_static("GET, POST, PUT, DELETE"))
}

/// How much of a body that is too large is read and thrown away, and for how long, before the refusal: a client that still sends when the
/// server closes would get a reset in place of the answer.
const DRAIN_BYTES: usize = 256 * 1024;
/// See [`DRAIN_BYTES`].
const DRAIN_TIME: Duration = Duration::from_secs(1);

async fn drain(body: &mut Incoming) {
    let mut drained = 0;
    while let Some(Ok(frame)) = body.frame().await {
        drained += frame.data_ref().map_or(0, Bytes::len);
        if drained > DRAIN_BYTES {
            return;
        }
    }
}

/// Reads a body that is at most `max` bytes and comes within `limit`.
pub(crate) async fn read_body(
    body: Incoming,
    headers: &HeaderMap,
    max: usize,
    limit: Duration,
) -> Result<Bytes, Reply> {
    let too_large = || plain_error(413, "The request body is too large.");
    let announced =
        headers.get(hyper::header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    match announced {
        Some(n) if n > max => {
            let mut body = body;
            let _ = tokio::time::timeout(DRAIN_TIME, drain(&mut body)).await;
            return Err(too_large());
        }
        Some(0) => return Ok(Bytes::new()),
        None if hyper::body::Body::is_end_stream(&body) => return Ok(Bytes::new()),
        _ => {}
    }
    let collect = async {
        let mut body = body;
        let mut whole = BytesMut::new();
        let mut first = Bytes::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| plain_error(400, "The request body could not be read."))?;
            let Ok(data) = frame.into_data() else { continue };
            if first.len() + whole.len() + data.len() > max {
                let _ = tokio::time::timeout(DRAIN_TIME, drain(&mut body)).await;
                return Err(too_large());
            }
            // Nearly every body comes in one piece, which then needs no copy.
            if first.is_empty() && whole.is_empty() {
                first = data;
                continue;
            }
            if whole.is_empty() {
                whole.extend_from_slice(&std::mem::take(&mut first));
            }
            whole.extend_from_slice(&data);
        }
        Ok(if whole.is_empty() { first } else { whole.freeze() })
    };
    match tokio::time::timeout(limit, collect).await {
        Ok(result) => result,
        Err(_) => Err(plain_error(408, "The request body did not come in time.")),
    }
}
