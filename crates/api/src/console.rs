//! The console: the files of `web/dist`, in the binary.

use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, X_FRAME_OPTIONS,
};

use crate::http::Reply;

struct File {
    path: &'static str,
    tag: &'static str,
    bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// The page may load and talk to nothing but its own server.
const POLICY: &str = "default-src 'self'; \
                      object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Hoga</title><p>The server works; its console was not \
                         built. Run <code>make web</code> and build again.</p></html>";

/// A file of the console; the page itself for `/`. `None`: no such file.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Reply> {
    let path = if path == "/" { "/index.html" } else { path };
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        let missing = path == "/index.html" && FILES.is_empty();
        return missing.then(|| secured(Reply::text("text/html; charset=utf-8", NOT_BUILT)));
    };
    let tag = HeaderValue::from_static(file.tag);
    // Vite puts a hash of the content into the names under /assets/: they never change.
    let caching =
        if path.starts_with("/assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    let unchanged =
        known.is_some_and(|list| list.split(',').any(|t| t.trim().trim_start_matches("W/") == file.tag));
    let reply = if unchanged {
        Reply::text(content_type(path), "").with_status(304)
    } else {
        Reply::text(content_type(path), Bytes::from_static(file.bytes))
    };
    Some(secured(reply.header(ETAG, tag).header(CACHE_CONTROL, HeaderValue::from_static(caching))))
}

fn secured(reply: Reply) -> Reply {
    let fixed = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));
    [
        fixed(CONTENT_SECURITY_POLICY, POLICY),
        fixed(X_FRAME_OPTIONS, "DENY"),
        fixed(REFERRER_POLICY, "no-referrer"),
        fixed(HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ]
    .into_iter()
    .fold(reply, |reply, (name, value)| reply.header(name, value))
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        "webmanifest" => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_there_with_its_headers() {
        let page = file("/", &HeaderMap::new()).unwrap();
        assert_eq!((page.status, page.content_type), (200, "text/html; charset=utf-8"));
        let has = |name: &HeaderName| page.headers.iter().any(|(n, _)| n == name);
        assert!(has(&CONTENT_SECURITY_POLICY) && has(&X_FRAME_OPTIONS));
        assert!(file("/../Cargo.toml", &HeaderMap::new()).is_none());
        for known in FILES {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static(known.tag));
            let again = file(known.path, &headers).unwrap();
            assert_eq!((again.status, again.body.len()), (304, 0));
        }
    }
}
