//! Leases of candidates that are cut off from a real server, and those of a server that never answers.
#![allow(clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hoga_log::lease::{Held, Lease, LeaseError, RedisLease, ZooKeeperLease};

type New<'a> = &'a dyn Fn(&str, Duration) -> Box<dyn Lease>;

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
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("node-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A way to a server that can go silent: connections are taken and stay open, and nothing passes either way until it is healed.
struct Way {
    address: SocketAddr,
    cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(server: &str) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (server, cut_off, all) = (server.to_owned(), cut.clone(), open.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                let Ok(far) = TcpStream::connect(&server) else { continue };
                all.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    let cut = cut_off.clone();
                    std::thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            // What comes while it is cut is lost, as is the connection for all that comes later.
                            if cut.load(Ordering::SeqCst) {
                                continue;
                            }
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Way { address, cut, open }
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Old connections end, as they have lost bytes; new ones pass.
    fn heal(&self) {
        self.cut.store(false, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.heal();
    }
}

/// Polls until `lease` leads.
fn lead(lease: &mut dyn Lease, within: Duration) -> Held {
    let begun = Instant::now();
    loop {
        if let Ok(Some(held)) = lease.poll() {
            return held;
        }
        assert!(begun.elapsed() < within, "it does not lead within {within:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A leader that is cut off leads until its end and no longer, polls come back in time, another takes over after that end, and the old epoch never comes back.
fn a_leader_that_is_cut_off(service: &str, server: &str, new: New<'_>, ttl: Duration) {
    let long = ttl * 6 + Duration::from_secs(5);
    let way = Way::to(server);
    let mut near = new(&way.address.to_string(), ttl);
    let mut far = new(server, ttl);
    let first = lead(&mut *near, long);
    let mut until = first.until;
    assert_eq!(far.poll(), Ok(None), "two lead at once");

    way.cut();
    let cut = Instant::now();
    let taken = std::thread::scope(|scope| {
        let taken = Arc::new(AtomicBool::new(false));
        let told = taken.clone();
        let (near, until) = (&mut near, &mut until);
        let asks = scope.spawn(move || {
            let mut away = false;
            while !told.load(Ordering::SeqCst) {
                let asked = Instant::now();
                let answer = near.poll();
                let took = asked.elapsed();
                assert!(took <= ttl / 3 + Duration::from_millis(50), "a poll took {took:?} of {ttl:?}");
                match answer {
                    Ok(Some(held)) => {
                        assert_eq!(held.epoch, first.epoch);
                        *until = held.until.max(*until);
                    }
                    Ok(None) => {}
                    Err(LeaseError::Away { .. }) => away = true,
                    Err(other) => panic!("{other}"),
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            assert!(away, "it was not told that the service is away");
        });
        let second = lead(&mut *far, long);
        let at = Instant::now();
        taken.store(true, Ordering::SeqCst);
        asks.join().unwrap();
        (second, at)
    });
    let (second, at) = taken;
    assert!(at >= until, "taken over {:?} before the end of what was promised", until - at);
    assert!(second.epoch > first.epoch, "{} after {}", second.epoch, first.epoch);
    println!(
        "lease: takeover on {service} from a leader that is cut off: {:?} with a length of {ttl:?}",
        at - cut
    );

    // The one that was cut off is back: it follows, and leads in a new epoch only.
    way.heal();
    let settled = Instant::now() + ttl * 2;
    while Instant::now() < settled {
        assert!(matches!(far.poll(), Ok(Some(held)) if held.epoch == second.epoch), "the new leader lost it");
        assert!(!matches!(near.poll(), Ok(Some(_))), "the old leader leads beside the new one");
        std::thread::sleep(ttl / 50);
    }
    far.resign();
    let third = lead(&mut *near, long);
    assert!(third.epoch > second.epoch, "{} after {}", third.epoch, second.epoch);
}

#[test]
fn a_leader_that_is_cut_off_from_redis_ends_in_time() {
    let Some(url) = server("HOGA_TEST_REDIS", "leases cut off from Redis") else { return };
    let name = fresh("lease-cut");
    let new = |server: &str, ttl| {
        Box::new(RedisLease::new(&format!("redis://{server}"), &name, &node(), ttl).unwrap())
            as Box<dyn Lease>
    };
    let server = url.trim_start_matches("redis://").trim_end_matches('/');
    a_leader_that_is_cut_off("Redis", server, &new, Duration::from_millis(600));
}

#[test]
fn a_leader_that_is_cut_off_from_zookeeper_ends_in_time() {
    let Some(servers) = server("HOGA_TEST_ZOOKEEPER", "leases cut off from ZooKeeper") else { return };
    let path = fresh("/hoga-test/lease-cut");
    let new = |server: &str, ttl| {
        Box::new(ZooKeeperLease::new(server, &path, &node(), ttl).unwrap()) as Box<dyn Lease>
    };
    a_leader_that_is_cut_off("ZooKeeper", &servers, &new, Duration::from_secs(1));
}

/// The end of a process does not wait for a service that is away, however long its leases are.
#[test]
fn the_end_does_not_wait_for_a_service_that_hangs() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let ttl = Duration::from_secs(30);
    let mut redis = RedisLease::new(&format!("redis://{address}"), "a", "n", ttl).unwrap();
    let mut zookeeper = ZooKeeperLease::new(&address, "/a", "n", ttl).unwrap();
    for (service, poll) in [("Redis", redis.poll()), ("ZooKeeper", zookeeper.poll())] {
        assert!(!matches!(poll, Ok(Some(_))), "{service}: {poll:?}");
    }
    // The thread is on its way to the server once that has something to take.
    let taken = (silent.accept().unwrap(), silent.accept().unwrap());
    for (service, lease) in
        [("Redis", Box::new(redis) as Box<dyn Lease>), ("ZooKeeper", Box::new(zookeeper) as Box<dyn Lease>)]
    {
        let begun = Instant::now();
        drop(lease);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "{service}: the end took {took:?}");
    }
    drop(taken);
}

/// Nor does that of a leader. ZooKeeper grants 20 ticks at most.
#[test]
fn a_leader_that_is_cut_off_ends_without_waiting() {
    let mut cases: Vec<(&str, Way, Box<dyn Lease>)> = Vec::new();
    if let Some(url) = server("HOGA_TEST_REDIS", "the end of a leader cut off from Redis") {
        let way = Way::to(url.trim_start_matches("redis://").trim_end_matches('/'));
        let lease = RedisLease::new(
            &format!("redis://{}", way.address),
            &fresh("lease-end"),
            &node(),
            Duration::from_secs(60),
        );
        cases.push(("Redis", way, Box::new(lease.unwrap())));
    }
    if let Some(servers) = server("HOGA_TEST_ZOOKEEPER", "the end of a leader cut off from ZooKeeper") {
        let way = Way::to(&servers);
        let lease = ZooKeeperLease::new(
            &way.address.to_string(),
            &fresh("/hoga-test/lease-end"),
            &node(),
            Duration::from_secs(4),
        );
        cases.push(("ZooKeeper", way, Box::new(lease.unwrap())));
    }
    for (service, way, mut lease) in cases {
        lead(&mut *lease, Duration::from_secs(20));
        way.cut();
        let begun = Instant::now();
        drop(lease);
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(1100), "{service}: the end took {took:?}");
    }
}

/// Giving up while the service is away must not leave anything behind that this candidate itself would wait for.
fn resigning_unheard(service: &str, server: &str, new: New<'_>, ttl: Duration) {
    let way = Way::to(server);
    let mut lease = new(&way.address.to_string(), ttl);
    let first = lead(&mut *lease, Duration::from_secs(20));
    way.cut();
    lease.resign();
    // Longer than it tries to be heard, and shorter than what is on the server lasts.
    std::thread::sleep(ttl * 3 / 5);
    way.heal();
    let begun = Instant::now();
    let second = lead(&mut *lease, ttl * 3 + Duration::from_secs(5));
    assert!(second.epoch > first.epoch, "{service}: {} after {}", second.epoch, first.epoch);
    println!("lease: leads again on {service} after resigning unheard: {:?}", begun.elapsed());
}

#[test]
fn who_resigned_unheard_can_lead_again_on_redis() {
    let Some(url) = server("HOGA_TEST_REDIS", "resigning unheard on Redis") else { return };
    let name = fresh("lease-unheard");
    let new = |server: &str, ttl| {
        Box::new(RedisLease::new(&format!("redis://{server}"), &name, &node(), ttl).unwrap())
            as Box<dyn Lease>
    };
    let server = url.trim_start_matches("redis://").trim_end_matches('/');
    resigning_unheard("Redis", server, &new, Duration::from_secs(1));
}

#[test]
fn who_resigned_unheard_can_lead_again_on_zookeeper() {
    let Some(servers) = server("HOGA_TEST_ZOOKEEPER", "resigning unheard on ZooKeeper") else { return };
    let path = fresh("/hoga-test/lease-unheard");
    let new = |server: &str, ttl| {
        Box::new(ZooKeeperLease::new(server, &path, &node(), ttl).unwrap()) as Box<dyn Lease>
    };
    resigning_unheard("ZooKeeper", &servers, &new, Duration::from_secs(2));
}
