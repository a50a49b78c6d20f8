//! Clients that are slow, broken or hostile: each is answered or cut, and the rest goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::World;

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("")
}

#[test]
fn malformed_and_oversized_requests() {
    let world = World::with(|config| config.max_body_bytes = 1000);
    let host = format!("Host: {}\r\nConnection: close\r\n", world.address);
    let long_path = "a".repeat(9000);
    let many: String = (0..100).map(|i| format!("X-{i}: 1\r\n")).collect();
    // An empty status: cut without an answer, which is all that hyper has for bytes that are no HTTP, and what a client may see (a reset)
    // that still sends when the server has read enough.
    for (what, request, statuses) in [
        ("no HTTP", "hello\r\n\r\n".to_owned(), &["400", ""][..]),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}".to_owned() + "\r\n\r\n", &["400", ""]),
        ("bad version", format!("GET / HTTP/9.9\r\n{host}\r\n"), &["400", "505", ""]),
        ("long path", format!("GET /{long_path} HTTP/1.1\r\n{host}\r\n"), &["414"]),
        ("long header", format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "a".repeat(40_000)), &["431", ""]),
        ("many headers", format!("GET / HTTP/1.1\r\n{host}{many}\r\n"), &["431"]),
        (
            "large body",
            format!("POST /api/v3/order HTTP/1.1\r\n{host}Content-Length: 1001\r\n\r\n{}", "a".repeat(1001)),
            &["413"],
        ),
        (
            "announced body",
            format!("POST /api/v3/order HTTP/1.1\r\n{host}Content-Length: 99999999999\r\n\r\n"),
            &["413"],
        ),
        (
            "negative length",
            format!("POST /api/v3/order HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n"),
            &["400", ""],
        ),
        (
            "chunks over the limit",
            format!(
                "POST /api/v3/order HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
                format!("200\r\n{}\r\n", "a".repeat(512)).repeat(3)
            ),
            &["413"],
        ),
        (
            "bad chunk",
            format!("POST /api/v3/order HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            &["400"],
        ),
        (
            "body that is no text",
            format!("POST /api/v3/order HTTP/1.1\r\n{host}Content-Length: 2\r\n\r\n\u{80}"),
            &["401", "400"],
        ),
        (
            "form garbage",
            format!("POST /api/v3/order HTTP/1.1\r\n{host}Content-Length: 9\r\n\r\n&&==%%&=&"),
            &["400"],
        ),
        (
            "JSON garbage",
            format!("POST /api/v1/users HTTP/1.1\r\n{host}Content-Length: 9\r\n\r\n{{\"a\":[[[["),
            &["400"],
        ),
    ] {
        let answer = world.raw(request.as_bytes());
        assert!(statuses.contains(&status_of(&answer)), "{what}: {answer}");
    }
    assert_eq!(world.get("/api/v3/ping").status, 200);
}

#[test]
fn silent_and_slow_connections_are_cut() {
    let world = World::with(|config| {
        config.header_timeout_ms = 300;
        config.body_timeout_ms = 300;
    });
    let cut = |mut stream: TcpStream| {
        let begun = Instant::now();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        (begun.elapsed(), String::from_utf8_lossy(&answer).into_owned())
    };
    // Says nothing at all.
    let (time, _) = cut(world.connect());
    assert!(time < Duration::from_secs(5), "{time:?}");
    // Half a head, then nothing.
    let mut half = world.connect();
    half.write_all(b"GET /api/v3/ping HTTP/1.1\r\nHost: a\r\n").unwrap();
    assert!(cut(half).0 < Duration::from_secs(5));
    // A head byte by byte: the time is for the whole head, not from byte to byte.
    let mut drip = world.connect();
    let begun = Instant::now();
    let dripped =
        b"GET /api/v3/ping HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'a')).take(2_000).all(|byte| {
            std::thread::sleep(Duration::from_millis(5));
            drip.write_all(&[*byte]).is_ok()
        });
    assert!(!dripped && begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // A body that does not come.
    let mut body = world.connect();
    body.write_all(b"POST /api/v3/order HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").unwrap();
    let (time, answer) = cut(body);
    assert!(time < Duration::from_secs(5) && status_of(&answer) == "408", "{time:?} {answer}");
    // A kept-alive connection that falls silent after its answer.
    let mut idle = world.connect();
    idle.write_all(b"GET /api/v3/ping HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (time, answer) = cut(idle);
    assert!(time < Duration::from_secs(5) && status_of(&answer) == "200", "{time:?} {answer}");
    world.until("all are forgotten", || world.server().open_connections() == 0);
}

#[test]
fn a_crowd_that_says_nothing_is_bounded_and_cut() {
    let world = World::with(|config| {
        config.max_connections = 200;
        config.max_connections_per_ip = 150;
        config.header_timeout_ms = 2_000;
    });
    let mut crowd: Vec<TcpStream> = (0..600).map(|_| world.connect()).collect();
    // Whoever has something to say gets through at once, while the crowd still stands there.
    for _ in 0..10 {
        assert_eq!(world.get("/api/v3/ping").status, 200);
    }
    assert!(
        (100..=160).contains(&world.server().open_connections()),
        "{}",
        world.server().open_connections()
    );
    let begun = Instant::now();
    for stream in &mut crowd {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    world.until("all are forgotten", || world.server().open_connections() == 0);
    let metrics = world.get("/metrics").text;
    let cut = metrics.lines().find_map(|l| l.strip_prefix("hoga_connections_refused_total{why=\"silent\"} "));
    // The others ran into the header timeout first: how many, is a matter of how fast the machine is.
    assert!(cut.and_then(|n| n.parse::<u64>().ok()) >= Some(100), "{metrics}");
}

#[test]
fn those_who_speak_keep_their_places() {
    let world = World::with(|config| config.max_connections_per_ip = 20);
    let ping = format!("GET /api/v3/ping HTTP/1.1\r\nHost: {}\r\n\r\n", world.address);
    let mut buffer = [0; 1024];
    let mut speakers: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = world.connect();
            stream.write_all(ping.as_bytes()).unwrap();
            assert!(stream.read(&mut buffer).unwrap() > 0);
            stream
        })
        .collect();
    let mut late = world.connect();
    assert_eq!(late.read(&mut buffer).unwrap_or(0), 0, "the twenty-first is closed at once");
    for stream in &mut speakers {
        stream.write_all(ping.as_bytes()).unwrap();
        assert!(stream.read(&mut buffer).unwrap() > 0);
    }
}

#[test]
fn requests_may_be_pipelined_on_one_connection() {
    let world = World::start();
    let mut stream = world.connect();
    let one = format!("GET /api/v3/ping HTTP/1.1\r\nHost: {}\r\n\r\n", world.address);
    let last = format!("GET /api/v3/time HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", world.address);
    stream.write_all((one.repeat(5) + &last).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 6);
    assert!(answer.ends_with('}') && answer.contains("serverTime"));
}
