//! What waits in the receive queues of this process's sockets (Recv-Q, as `ss` shows it): bytes that the kernel has and the process has not read.
//!
//! Libraries own the sockets of Kafka and Redis, so this asks the kernel (proc(5), `/proc/self/net/tcp` and `/proc/self/fd`) and not them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One connected TCP socket of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketQueue {
    /// The other end.
    pub peer: SocketAddr,
    /// Bytes received and not read.
    pub receive: u64,
    /// Bytes sent and not acknowledged.
    pub send: u64,
}

/// All of this process's connected TCP sockets to one of these ports; none where the system does not tell.
pub fn queues(ports: &[u16]) -> Vec<SocketQueue> {
    let own: BTreeSet<u64> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.ok()?.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect();
    let mut found = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        let lines = text.lines().skip(1).filter_map(parse);
        found.extend(
            lines
                .filter(|(queue, inode)| own.contains(inode) && ports.contains(&queue.peer.port()))
                .map(|(queue, _)| queue),
        );
    }
    found
}

/// A line of the table: the socket, where it is connected, and its inode.
fn parse(line: &str) -> Option<(SocketQueue, u64)> {
    const ESTABLISHED: &str = "01";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (peer, state, queues, inode) = (fields.get(2)?, fields.get(3)?, fields.get(4)?, fields.get(9)?);
    if *state != ESTABLISHED {
        return None;
    }
    let (address, port) = peer.split_once(':')?;
    let (send, receive) = queues.split_once(':')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    // Words of four bytes in the machine's order (little-endian here).
    let words = (0..address.len() / 8).map(|n| u32::from_str_radix(&address[n * 8..n * 8 + 8], 16).ok());
    let bytes: Vec<u8> =
        words.collect::<Option<Vec<u32>>>()?.iter().flat_map(|word| word.to_le_bytes()).collect();
    let address: IpAddr = match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        16 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
        _ => return None,
    };
    let peer = SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?);
    Some((SocketQueue { peer, receive: hex(receive)?, send: hex(send)? }, inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait_until;
    use std::io::Write as _;

    #[test]
    fn what_was_not_read_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let lazy = std::net::TcpStream::connect(here).unwrap();
        let (mut sender, _) = listener.accept().unwrap();
        let of = || queues(&[here.port()]).into_iter().find(|queue| queue.peer == here);
        assert_eq!(of().map(|queue| queue.receive), Some(0));
        sender.write_all(&[7; 1000]).unwrap();
        wait_until("the bytes are there", || of().is_some_and(|queue| queue.receive == 1000));
        drop(lazy);
        wait_until("it is gone", || of().is_none());
    }
}
