//! A connection to a server that can be cut: what goes through it is lost with it, and nobody gets through until it is let in again.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// Stands between a client and a server of a test.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    /// Listens on a free port in front of a server.
    pub(crate) fn start(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = state.clone();
        // Ends with the process of the test.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut open = shared.open.lock().unwrap();
                if shared.cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || pump(from, to));
                }
                open.extend([client, server]);
            }
        });
        Proxy { address, state }
    }

    /// In front of the server of an address as in the configuration (`postgres://user@host:port/database`), and the address to use.
    pub(crate) fn before(url: &str) -> (Proxy, String) {
        let (front, rest) = url.split_once('@').expect("user@host");
        let (server, database) = rest.split_once('/').expect("host:port/database");
        let proxy = Proxy::start(server.parse().expect("the test server's address is a number"));
        let url = format!("{front}@{}/{database}", proxy.address);
        (proxy, url)
    }

    /// Closes all connections, and new ones as they come.
    pub(crate) fn cut(&self) {
        let mut open = self.state.open.lock().unwrap();
        self.state.cut.store(true, Ordering::SeqCst);
        for stream in open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets everybody through again.
    pub(crate) fn restore(&self) {
        self.state.cut.store(false, Ordering::SeqCst);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
