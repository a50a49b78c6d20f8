//! An echo server over Hoga's WebSocket codec, for conformance runs with the Autobahn cases:
//!
//! ```text
//! cargo run --release -p hoga-api --example ws_echo -- 9001
//! kosoku -m fuzzingclient -o report 127.0.0.1:9001
//! ```
//!
//! Prints `listening 127.0.0.1:<port>`; port 0 takes a free one.

use std::io::Write;
use std::sync::Arc;

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use hoga_api::ws;

use ws::{Close, Config, Counters, Frame, Handler, Limits, Outbound};

struct Echo(Outbound);

impl Handler for Echo {
    fn message(&mut self, message: ws::Incoming<'_>) -> Result<(), Close> {
        self.0.send(match message {
            ws::Incoming::Text(text) => Frame::text(text.as_bytes()),
            ws::Incoming::Binary(bytes) => Frame::binary(bytes),
        });
        Ok(())
    }
}

fn config() -> Config {
    Config {
        // Autobahn's largest messages have 16 MiB.
        max_message: 64 << 20,
        limits: Limits { frames: 100_000, bytes: 256 << 20 },
        inbound_per_second: None,
        ..Config::default()
    }
}

async fn upgrade(
    mut request: Request<Incoming>,
    counters: Arc<Counters>,
) -> Result<Response<Empty<Bytes>>, hyper::Error> {
    let answer = match ws::accept(&request) {
        Ok(answer) => answer,
        Err(error) => {
            let mut refusal = Response::new(Empty::new());
            *refusal.status_mut() = error.status();
            return Ok(refusal);
        }
    };
    let on_upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(ws::serve(on_upgrade, config(), counters, Echo));
    Ok(answer.map(|()| Empty::new()))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(std::io::stdout(), "listening {}", listener.local_addr()?)?;
    let counters = Arc::new(Counters::default());
    loop {
        let (stream, _) = listener.accept().await?;
        let counters = Arc::clone(&counters);
        tokio::spawn(async move {
            let service = service_fn(move |request| upgrade(request, Arc::clone(&counters)));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            // An error here is the client's: a conformance run makes many.
            let _ = connection.await;
        });
    }
}
