//! Leases on real servers keep the law.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use hoga_log::lease::{Lease, LeaseError, RedisLease, ZooKeeperLease, conformance};

fn server(variable: &str, what: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    if found.is_none() {
        println!("SKIP {what}: {variable} names no server");
    }
    found
}

/// A name that no other test has.
fn fresh(name: &str) -> String {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("{name}-{nanos}")
}

fn node() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("node-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn leases_on_redis_keep_the_law() {
    let Some(url) = server("HOGA_TEST_REDIS", "leases on Redis") else { return };
    let name = fresh("lease");
    let new = |ttl| Box::new(RedisLease::new(&url, &name, &node(), ttl).unwrap()) as Box<dyn Lease>;
    conformance::run(new, Duration::from_millis(300));
    conformance::contend(new, Duration::from_millis(300));
}

#[test]
fn leases_on_zookeeper_keep_the_law() {
    let Some(servers) = server("HOGA_TEST_ZOOKEEPER", "leases on ZooKeeper") else { return };
    let path = fresh("/hoga-test/lease");
    let new = |ttl| Box::new(ZooKeeperLease::new(&servers, &path, &node(), ttl).unwrap()) as Box<dyn Lease>;
    conformance::run(new, Duration::from_secs(1));
    conformance::contend(new, Duration::from_secs(1));
}

/// ZooKeeper grants no session shorter than two of its ticks.
#[test]
fn a_lease_that_is_shorter_than_its_session_keeps_the_law() {
    let Some(servers) = server("HOGA_TEST_ZOOKEEPER", "short leases on ZooKeeper") else { return };
    let path = fresh("/hoga-test/lease-short");
    let new = |ttl| Box::new(ZooKeeperLease::new(&servers, &path, &node(), ttl).unwrap()) as Box<dyn Lease>;
    conformance::run(new, Duration::from_millis(300));
    conformance::contend(new, Duration::from_millis(300));
}

#[test]
fn a_redis_that_lost_its_memory_gives_higher_epochs_still() {
    let Some(url) = server("HOGA_TEST_REDIS", "leases over a loss of memory") else { return };
    let name = fresh("lease-lost");
    let new = || RedisLease::new(&url, &name, &node(), Duration::from_secs(10)).unwrap();
    let (mut a, mut b) = (new(), new());
    let first = a.poll().unwrap().unwrap().epoch;
    let mut connection = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    redis::cmd("DEL").arg(&name).arg(format!("{name}:epoch")).query::<()>(&mut connection).unwrap();
    let second = b.poll().unwrap().unwrap().epoch;
    assert!(second > first, "{second} after {first}");
    assert_eq!(a.poll().unwrap(), None);
}

/// Connections are taken, and nothing is ever answered.
#[test]
fn a_service_that_hangs_is_away_in_bounded_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let ttl = Duration::from_millis(300);
    let begun = Instant::now();
    let mut leases: Vec<Box<dyn Lease>> = vec![
        Box::new(RedisLease::new(&format!("redis://{address}"), "a", "n", ttl).unwrap()),
        Box::new(ZooKeeperLease::new(&address, "/a", "n", ttl).unwrap()),
    ];
    assert!(begun.elapsed() < Duration::from_secs(1), "making one waits for nothing");
    for lease in &mut leases {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let asked = Instant::now();
            let answer = lease.poll();
            assert!(asked.elapsed() < ttl, "a poll took {:?}", asked.elapsed());
            match answer {
                Err(LeaseError::Away { .. }) => break,
                Ok(None) => assert!(Instant::now() < until, "it is not noticed that the service is away"),
                other => panic!("{other:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let begun = Instant::now();
    drop(leases);
    assert!(begun.elapsed() < Duration::from_secs(2), "the end took {:?}", begun.elapsed());
}

#[test]
fn impossible_settings_are_named() {
    for (fault, word) in [
        (RedisLease::new("nowhere", "a", "n", Duration::from_secs(1)).err(), "redis://host:port"),
        (RedisLease::new("redis://127.0.0.1", "a", "a b", Duration::from_secs(1)).err(), "without spaces"),
        (ZooKeeperLease::new("127.0.0.1:1", "a", "n", Duration::from_secs(1)).err(), "begins with /"),
        (ZooKeeperLease::new("", "/a", "n", Duration::from_secs(1)).err(), "host:port"),
    ] {
        let text = fault.unwrap().to_string();
        assert!(text.contains(word), "{text}");
    }
}
