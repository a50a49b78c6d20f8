use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{advance, timeout};

use super::*;
use crate::ws::testing::{MASK, Peer, Seen};
use crate::ws::{Frame, client};

/// Echoes; closes when told to; says when it is dropped.
struct Echo {
    out: Outbound,
    batches: Arc<AtomicU64>,
    gone: Option<oneshot::Sender<()>>,
}

impl Handler for Echo {
    fn message(&mut self, message: Incoming<'_>) -> Result<(), Close> {
        match message {
            Incoming::Text("leave") => return Err(Close::new(CloseCode::UNSUPPORTED, "as you wish")),
            Incoming::Text(text) => self.out.send_text(text.as_bytes()),
            Incoming::Binary(bytes) => self.out.send(Frame::binary(bytes)),
        };
        Ok(())
    }

    fn batch_end(&mut self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        if let Some(gone) = self.gone.take() {
            let _ = gone.send(());
        }
    }
}

struct Rig {
    peer: Peer<DuplexStream>,
    out: Outbound,
    counters: Arc<Counters>,
    task: JoinHandle<Closed>,
    gone: oneshot::Receiver<()>,
}

/// A connection over a pipe that takes `pipe` bytes.
async fn rig(config: Config, pipe: usize) -> Rig {
    let (near, far) = duplex(pipe);
    let counters = Arc::new(Counters::default());
    let (send_out, out) = oneshot::channel();
    let (send_gone, gone) = oneshot::channel();
    let make = move |out: Outbound| {
        let _ = send_out.send(out.clone());
        Echo { out, batches: Arc::default(), gone: Some(send_gone) }
    };
    let task = tokio::spawn(run(near, Bytes::new(), config, Arc::clone(&counters), make));
    Rig { peer: Peer::new(far), out: out.await.unwrap(), counters, task, gone }
}

fn text(text: &str) -> Option<Seen> {
    Some(Seen::Text(text.to_owned()))
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn echoes_and_answers_pings_and_close() {
    let mut rig = rig(Config::api(), 4096).await;
    rig.peer.text("hello").await;
    assert_eq!(rig.peer.next().await, text("hello"));
    // Case of python-binance: four random bytes; and ccxt: none.
    for payload in [&b"\x00\xff\x10\x80"[..], b""] {
        rig.peer.send(Opcode::Ping, payload).await;
        assert_eq!(rig.peer.next().await, Some(Seen::Pong(payload.to_vec())));
    }
    rig.peer.send(Opcode::Close, b"\x03\xe8done").await;
    assert_eq!(rig.peer.next().await, Some(Seen::Close(Some(CloseCode::NORMAL))));
    assert_eq!(rig.peer.next().await, None);
    drop(rig.peer);
    let closed = rig.task.await.unwrap();
    assert_eq!(closed, Closed { ending: Ending::ByPeer, code: Some(CloseCode::NORMAL) });
    assert!(rig.gone.await.is_ok() && !rig.out.is_open());
    assert_eq!((get(&rig.counters.opened), get(&rig.counters.closed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_close_without_a_code_is_answered_without_one() {
    let mut rig = rig(Config::api(), 4096).await;
    rig.peer.send(Opcode::Close, b"").await;
    assert_eq!(rig.peer.next().await, Some(Seen::Close(None)));
    assert_eq!(rig.peer.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_handler_and_the_outside_can_close() {
    let mut rig1 = rig(Config::api(), 4096).await;
    rig1.peer.text("before").await;
    rig1.peer.text("leave").await;
    assert_eq!(rig1.peer.next().await, text("before"));
    assert_eq!(rig1.peer.next().await, Some(Seen::Close(Some(CloseCode::UNSUPPORTED))));
    let mut rig2 = rig(Config::api(), 4096).await;
    rig2.out.send_text(b"last");
    rig2.out.close(CloseCode::GOING_AWAY, "bye");
    assert_eq!(rig2.peer.next().await, text("last"));
    assert_eq!(rig2.peer.next().await, Some(Seen::Close(Some(CloseCode::GOING_AWAY))));
    drop(rig2.peer);
    assert_eq!(rig2.task.await.unwrap().ending, Ending::ByServer);
}

#[tokio::test(start_paused = true)]
async fn the_server_pings_and_cuts_who_does_not_answer() {
    let mut rig = rig(Config::default(), 4096).await;
    for _ in 0..3 {
        advance(Duration::from_secs(20)).await;
        assert_eq!(rig.peer.next().await, Some(Seen::Ping(vec![])));
        // A pong keeps it alive.
        rig.peer.send(Opcode::Pong, b"").await;
    }
    for _ in 0..2 {
        assert_eq!(rig.peer.next().await, Some(Seen::Ping(vec![])));
    }
    assert_eq!(rig.peer.next().await, Some(Seen::Close(Some(CloseCode::POLICY))));
    assert_eq!(rig.task.await.unwrap().ending, Ending::Idle);
    assert_eq!(get(&rig.counters.cut_idle), 1);
}

#[tokio::test(start_paused = true)]
async fn a_half_open_socket_is_given_up() {
    // The pipe takes nothing more: not even the close frame leaves, and the peer is silent.
    let rig = rig(Config::default(), 1).await;
    rig.out.send_text(b"does not fit the pipe");
    let closed = timeout(Duration::from_secs(63), rig.task).await.unwrap().unwrap();
    assert_eq!(closed.ending, Ending::Idle);
}

#[tokio::test(start_paused = true)]
async fn messages_a_second_are_limited() {
    let mut rig = rig(Config::default(), 4096).await;
    for second in 0..3 {
        for i in 0..5 {
            rig.peer.send(if i % 2 == 0 { Opcode::Ping } else { Opcode::Pong }, &[second]).await;
        }
        for _ in 0..3 {
            assert_eq!(rig.peer.next().await, Some(Seen::Pong(vec![second])));
        }
        advance(Duration::from_secs(1)).await;
    }
    for _ in 0..6 {
        rig.peer.text("x").await;
    }
    loop {
        match rig.peer.next().await {
            Some(Seen::Text(_)) => {}
            other => {
                assert_eq!(other, Some(Seen::Close(Some(CloseCode::POLICY))));
                break;
            }
        }
    }
    drop(rig.peer);
    assert_eq!(rig.task.await.unwrap().ending, Ending::TooMany);
    assert_eq!(get(&rig.counters.cut_rate), 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_is_closed() {
    let config = Config { max_life: Duration::from_secs(90), ..Config::default() };
    let mut rig = rig(config, 4096).await;
    loop {
        match rig.peer.next().await {
            Some(Seen::Ping(_)) => rig.peer.send(Opcode::Pong, b"").await,
            other => {
                assert_eq!(other, Some(Seen::Close(Some(CloseCode::GOING_AWAY))));
                break;
            }
        }
    }
    assert_eq!(rig.task.await.unwrap().ending, Ending::TooOld);
}

#[tokio::test(start_paused = true)]
async fn too_large_and_wrong_messages_close() {
    for (opcode, payload, code) in [
        (Opcode::Text, vec![b'a'; 65 * 1024], CloseCode::TOO_BIG),
        (Opcode::Text, vec![0xff], CloseCode::INVALID_DATA),
        (Opcode::Continuation, vec![], CloseCode::PROTOCOL),
    ] {
        let mut rig = rig(Config::default(), 1 << 20).await;
        rig.peer.send(opcode, &payload).await;
        assert_eq!(rig.peer.next().await, Some(Seen::Close(Some(code))));
        drop(rig.peer);
        assert_eq!(rig.task.await.unwrap().ending, Ending::Protocol);
        assert_eq!(get(&rig.counters.protocol_errors), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanishes_ends_its_connection() {
    let rig = rig(Config::default(), 4096).await;
    drop(rig.peer);
    assert_eq!(rig.task.await.unwrap(), Closed { ending: Ending::Gone, code: None });
    assert!(rig.gone.await.is_ok() && !rig.out.send_text(b"x"));
}

/// Case G16, and the rule of the fan-out: one client reads nothing, another one byte a second, and neither costs the third anything.
#[tokio::test(start_paused = true)]
async fn slow_readers_are_cut_and_others_do_not_notice() {
    let limits = Limits { frames: 500, bytes: 50_000 };
    let config = Config { limits, ..Config::default() };
    let stuck = rig(config.clone(), 1000).await;
    let mut drip = rig(config.clone(), 1000).await;
    let mut good = rig(config, 1000).await;
    let reader = tokio::spawn(async move {
        let mut count = 0;
        while let Some(seen) = good.peer.next().await {
            match seen {
                Seen::Text(text) => {
                    assert_eq!(text, format!("message {count}"));
                    count += 1;
                }
                Seen::Ping(_) => good.peer.send(Opcode::Pong, b"").await,
                other => {
                    assert_eq!(other, Seen::Close(Some(CloseCode::NORMAL)));
                    break;
                }
            }
        }
        count
    });
    let dripper = tokio::spawn(async move {
        let mut byte = [0];
        while drip.peer.io.read(&mut byte).await.is_ok_and(|n| n == 1) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    for i in 0..20_000 {
        let frame = Frame::text(format!("message {i}").as_bytes());
        for out in [&stuck.out, &drip.out, &good.out] {
            out.send(frame.clone());
            assert!(out.queued_bytes() <= 50_000);
        }
        if i % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    good.out.close(CloseCode::NORMAL, "");
    assert_eq!(reader.await.unwrap(), 20_000);
    for slow in [stuck.task, drip.task] {
        assert_eq!(slow.await.unwrap().ending, Ending::TooSlow);
    }
    assert_eq!(get(&stuck.counters.cut_slow) + get(&drip.counters.cut_slow), 2);
    assert_eq!(stuck.out.queued_bytes(), 0);
    drop(stuck.peer);
    dripper.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_answers_is_not_read() {
    let config = Config { read_pause_bytes: 10_000, ..Config::api() };
    let mut rig = rig(config, 64 * 1024).await;
    let mut asked = Vec::new();
    for _ in 0..100 {
        client::write_frame(&mut asked, Opcode::Text, &[b'x'; 2000], MASK);
    }
    // 200 kB of questions do not fit the pipe while nobody takes the answers, yet nobody is cut.
    let half = timeout(Duration::from_secs(1), rig.peer.io.write_all(&asked)).await;
    assert!(half.is_err() && rig.out.is_open());
    for _ in 0..30 {
        assert_eq!(rig.peer.next().await, Some(Seen::Text("x".repeat(2000))));
    }
}

#[tokio::test]
async fn works_through_hyper_on_a_real_socket() {
    use http_body_util::Empty;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counters = Arc::new(Counters::default());
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (send, receive) = oneshot::channel();
        let send = std::sync::Mutex::new(Some(send));
        let service =
            hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
                let answer = crate::ws::accept(&request).unwrap().map(|()| Empty::<Bytes>::new());
                let upgrade = hyper::upgrade::on(&mut request);
                let make = |out| Echo { out, batches: Arc::default(), gone: None };
                let task = tokio::spawn(serve(upgrade, Config::api(), Arc::clone(&counters), make));
                let _ = send.lock().unwrap().take().unwrap().send(task);
                std::future::ready(Ok::<_, std::convert::Infallible>(answer))
            });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        connection.await.unwrap();
        receive.await.unwrap().await.unwrap()
    });
    let mut stream = TcpStream::connect(address).await.unwrap();
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    let mut request =
        client::handshake("localhost", "/ws", key, "Sec-WebSocket-Extensions: permessage-deflate\r\n");
    // The first message comes with the handshake, before the answer: hyper has read it already.
    client::write_frame(&mut request, Opcode::Text, b"early", MASK);
    stream.write_all(&request).await.unwrap();
    let mut received = Vec::new();
    let frames_at = loop {
        assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
        if let Some(answer) = client::handshake_answer(&received, key) {
            break answer.unwrap();
        }
    };
    received.drain(..frames_at);
    while received.len() < 7 {
        assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
    }
    assert_eq!(received, b"\x81\x05early");
    let mut peer = Peer::new(stream);
    peer.text("more").await;
    assert_eq!(peer.next().await, text("more"));
    peer.send(Opcode::Close, b"\x03\xe8").await;
    assert_eq!(peer.next().await, Some(Seen::Close(Some(CloseCode::NORMAL))));
    assert_eq!(peer.next().await, None);
    drop(peer);
    assert_eq!(server.await.unwrap().ending, Ending::ByPeer);
}
