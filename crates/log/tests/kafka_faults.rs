//! The event log on Kafka while brokers die, hang and come back. Starts its own brokers with `scripts/services/kafka.sh`.
#![cfg(feature = "kafka")]

use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hoga_core::ids::Timestamp;
use hoga_log::LogError;
use hoga_log::consumer::{
    BatchHandler, BatchOptions, HandlerError, Offer, Signal, Start, TopicPartition, run_batches,
};
use hoga_log::event_log::{EventLog, Message, TopicSpec, partition_for};
use hoga_log::kafka::{KafkaConfig, KafkaLog, KafkaSource, Membership};

const LONG: Duration = Duration::from_secs(60);
const PARTITIONS: u32 = 3;

/// One cluster at a time: two at once would only be slower.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Brokers of this test alone; removed at the end.
struct Cluster {
    folder: PathBuf,
    port: u16,
    nodes: u16,
}

/// The first port of a cluster: the scripts use two for each node, ten apart.
fn free_ports(nodes: u16) -> u16 {
    let start = 20_000 + (std::process::id() % 400) as u16 * 100;
    let free = |port: &u16| {
        (0..nodes)
            .all(|node| (0..2).all(|more| TcpListener::bind(("127.0.0.1", port + 10 * node + more)).is_ok()))
    };
    (start..start + 90).chain(20_000..60_000).find(free).expect("some ports are free")
}

impl Cluster {
    /// `None` when this machine cannot have one: no Java or kcat, and no way to install them.
    fn start(nodes: u16) -> Option<Cluster> {
        let port = free_ports(nodes);
        let folder = std::env::temp_dir().join(format!("hoga-kafka-{}-{port}", std::process::id()));
        let cluster = Cluster { folder, port, nodes };
        let output = cluster.script(&["up"]);
        if output.status.success() {
            return Some(cluster);
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let have = |name: &str| Command::new(name).arg("-version").output().is_ok();
        assert!(!(have("java") && have("kcat")), "the brokers do not start: {text}");
        let reason = text.lines().last().unwrap_or("no reason").to_owned();
        std::io::stderr().write_all(format!("SKIP kafka faults: {reason}\n").as_bytes()).unwrap();
        None
    }

    fn script(&self, arguments: &[&str]) -> Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/kafka.sh");
        Command::new(script)
            .args(arguments)
            .env("HOGA_WORK", &self.folder)
            .env("KAFKA_NODES", self.nodes.to_string())
            .env("KAFKA_PORT", self.port.to_string())
            .env("KAFKA_HEAP", "256m")
            .env("KAFKA_JVM", "-XX:TieredStopAtLevel=1")
            .env_remove("KAFKA_CONTROLLER_PORT")
            // Compaction soon, for the test of what it leaves.
            .env("KAFKA_EXTRA", "log.cleaner.backoff.ms=100")
            .output()
            .expect("bash is there")
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.script(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    fn config(&self, prefix: &str) -> KafkaConfig {
        let brokers: Vec<String> =
            (0..self.nodes).map(|node| format!("127.0.0.1:{}", self.port + 10 * node)).collect();
        KafkaConfig { topic_prefix: format!("{prefix}."), ..KafkaConfig::new(&brokers.join(",")) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script(&["wipe"]);
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn spec() -> TopicSpec {
    TopicSpec::delete("t", PARTITIONS, 1 << 30)
}

/// A writer that counts its messages by partition and writes them as fast as it may until it is told to stop.
struct Load<'a> {
    log: &'a KafkaLog,
    stop: AtomicBool,
}

impl<'a> Load<'a> {
    fn new(log: &'a KafkaLog) -> Load<'a> {
        Load { log, stop: AtomicBool::new(false) }
    }

    /// Writes; gives the messages of each partition, all acknowledged. Their time is long ago, as in a replay: a broker that took it for
    /// the producer's age would forget the producer when it starts, and take a batch twice.
    fn run(&self) -> [u64; PARTITIONS as usize] {
        let mut counts = [0u64; PARTITIONS as usize];
        let mut key = 0u64;
        while !self.stop.load(Ordering::Relaxed) {
            key += 1;
            let bytes = key.to_le_bytes();
            let count = &mut counts[partition_for(&bytes, PARTITIONS) as usize];
            let value = [count.to_le_bytes(), [7; 8], [8; 8]].concat();
            self.log
                .append("t", &[Message { key: &bytes, value: Some(&value), time: Timestamp(1) }])
                .unwrap();
            *count += 1;
            if key.is_multiple_of(50) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.log.sync().unwrap();
        counts
    }

    fn acknowledged(&self, partition: u32) -> u64 {
        self.log.progress("t", partition).unwrap().1
    }

    fn wait_for_more(&self, what: &str) {
        for partition in 0..PARTITIONS {
            let before = self.acknowledged(partition);
            wait_until(what, || self.acknowledged(partition) > before + 200);
        }
    }
}

/// Every partition has exactly the messages that were written, each once, in order.
fn check_all(log: &KafkaLog, counts: [u64; PARTITIONS as usize]) {
    for (partition, count) in counts.into_iter().enumerate() {
        let (mut next, mut found) = (0, Vec::new());
        loop {
            let before = found.len();
            next = log.read("t", partition as u32, next, 1000, &mut found).unwrap();
            if found.len() == before {
                break;
            }
        }
        let numbers = found.iter().map(|found| found.value.as_ref().unwrap()[..8].try_into().unwrap());
        let numbers: Vec<u64> = numbers.map(u64::from_le_bytes).collect();
        let wrong = numbers.iter().zip(0..).find(|(found, number)| *found != number);
        assert_eq!((wrong, numbers.len() as u64), (None, count), "partition {partition}");
    }
}

/// Closes a log with messages in its queue and a caller that waits for them.
fn close_in_time(cluster: &Cluster, name: &str, make_trouble: impl FnOnce()) {
    let log = KafkaLog::open(cluster.config(name)).unwrap();
    log.create_topic(&spec()).unwrap();
    let message = |key: &'static [u8]| Message { key, value: Some(b"v"), time: Timestamp(1) };
    log.append("t", &[message(b"a")]).unwrap();
    log.sync().unwrap();
    make_trouble();
    for _ in 0..1000 {
        log.append("t", &[message(b"a"), message(b"b"), message(b"c")]).unwrap();
    }
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.sync());
        let reader = scope.spawn(|| log.wait_for("t", 0, 10_000, LONG));
        // So that they are inside.
        wait_until("messages wait", || log.stats().queued >= 3000);
        let begun = Instant::now();
        log.close(Duration::from_secs(2));
        let closed = begun.elapsed();
        assert!(closed <= Duration::from_millis(2200), "{name}: closing took {closed:?}");
        assert!(matches!(waiter.join().unwrap(), Err(LogError::Closed { .. })));
        assert!(!matches!(reader.join().unwrap(), Ok(true)));
        let ended = begun.elapsed();
        assert!(ended <= Duration::from_millis(3000), "{name}: its callers came out after {ended:?}");
    });
    let begun = Instant::now();
    drop(log);
    assert!(begun.elapsed() < Duration::from_millis(100), "dropping never waits");
}

/// Compaction by the broker: what it leaves is found, in order, and the end is known.
fn compaction_leaves_holes(cluster: &Cluster) {
    let log = KafkaLog::open(cluster.config("compact")).unwrap();
    log.create_topic(&TopicSpec::compact("t", 1)).unwrap();
    let soon =
        "segment.ms=200,min.cleanable.dirty.ratio=0.01,max.compaction.lag.ms=200,delete.retention.ms=0";
    cluster.run(&[
        "tool",
        "configs",
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        "compact.t",
        "--add-config",
        soon,
    ]);
    let mut number = 0u64;
    let mut found = Vec::new();
    let begun = Instant::now();
    loop {
        for _ in 0..100 {
            let key = [(number % 7) as u8];
            let value = (number % 7 != 3).then_some(&[9u8; 50][..]);
            log.append("t", &[Message { key: &key, value, time: Timestamp(number as i64) }]).unwrap();
            number += 1;
        }
        log.sync().unwrap();
        found.clear();
        let mut next = 0;
        while next < number {
            let before = next;
            next = log.read("t", 0, next, 30, &mut found).unwrap();
            assert!(next > before, "a read before the end moves on");
        }
        assert_eq!(next, number);
        assert!(found.is_sorted_by(|a, b| a.offset < b.offset));
        for key in (0..7u8).filter(|key| *key != 3) {
            let last = found.iter().rfind(|found| found.key == [key]).unwrap();
            assert!(last.offset + 7 >= number, "the last of a key is there");
        }
        assert_eq!(log.tail("t", 0).unwrap().unwrap().offset, number - 1);
        if (found.len() as u64) < number / 2 {
            break;
        }
        assert!(begun.elapsed() < LONG, "the broker does not compact");
        std::thread::sleep(Duration::from_millis(250));
    }
    // From every place in a hole, the next message that is there.
    for from in (0..number).step_by(17) {
        let mut one = Vec::new();
        log.read("t", 0, from, 1, &mut one).unwrap();
        let expected = found.iter().find(|found| found.offset >= from).unwrap();
        // It may have compacted on meanwhile.
        assert!(one[0].offset >= expected.offset);
        assert!(log.wait_for("t", 0, from, Duration::from_millis(1)).unwrap());
    }
}

#[test]
fn one_broker_dies_hangs_and_comes_back() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(cluster) = Cluster::start(1) else { return };

    // Killed and started again while somebody writes.
    let log = KafkaLog::open(cluster.config("killed")).unwrap();
    log.create_topic(&spec()).unwrap();
    let load = Load::new(&log);
    let counts = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load.run());
        load.wait_for_more("writing");
        cluster.run(&["kill"]);
        let stuck = log.stats().acknowledged;
        wait_until("messages wait", || log.stats().queued > 500);
        assert!(log.stats().acknowledged < stuck + 5000, "nobody acknowledges without a broker");
        cluster.run(&["up"]);
        load.wait_for_more("writing after the broker is back");
        load.stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    check_all(&log, counts);

    // Away: questions fail with a fault that may pass, and waiting ends in time.
    let impatient = KafkaConfig { request_timeout: Duration::from_secs(1), ..cluster.config("killed") };
    let other = KafkaLog::open(impatient).unwrap();
    assert_eq!(other.end_offset("t", 0).unwrap(), counts[0]);
    cluster.run(&["kill"]);
    let begun = Instant::now();
    let mut none = Vec::new();
    for error in [
        other.end_offset("t", 0).unwrap_err(),
        other.read("t", 0, 0, 10, &mut none).unwrap_err(),
        other.commit("g", "t", 0, 1).unwrap_err(),
        other.create_topic(&TopicSpec::compact("u", 1)).unwrap_err(),
    ] {
        assert!(error.is_transient(), "{error}");
    }
    assert!(!other.wait_for("t", 0, counts[0], Duration::from_millis(300)).unwrap());
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());

    // Away at the start: works as soon as it is there.
    let early = KafkaLog::open(cluster.config("early")).unwrap();
    cluster.run(&["up"]);
    wait_until("the broker is back", || match early.create_topic(&spec()) {
        Ok(()) => true,
        Err(error) if error.is_transient() => false,
        Err(error) => panic!("{error}"),
    });
    other.commit("g", "t", 0, 1).unwrap();
    assert_eq!(other.committed("g", "t", 0).unwrap(), Some(1));

    compaction_leaves_holes(&cluster);

    close_in_time(&cluster, "hangs", || drop(cluster.run(&["stop"])));
    cluster.run(&["cont"]);
    close_in_time(&cluster, "dead", || drop(cluster.run(&["kill"])));
}

/// Processes that start together make the same topics, and ask brokers that have not heard of them yet.
fn made_by_several_at_once(config: &KafkaConfig) {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let log = KafkaLog::open(config.clone()).unwrap();
                for number in 0..15 {
                    log.create_topic(&TopicSpec::delete(&format!("made.{number}"), 2, 1 << 30)).unwrap();
                }
            });
        }
    });
}

#[test]
fn three_brokers_lose_nothing_when_one_dies() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(cluster) = Cluster::start(3) else { return };
    let config = KafkaConfig { replication: 3, min_insync: 2, ..cluster.config("two") };
    made_by_several_at_once(&config);

    // A leader dies: the others take over, and writing goes on without it.
    let log = KafkaLog::open(config).unwrap();
    log.create_topic(&spec()).unwrap();
    let load = Load::new(&log);
    let (counts, leader) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load.run());
        load.wait_for_more("writing");
        let leader = cluster.run(&["leader", "two.t", "0"]);
        cluster.run(&["kill", &leader]);
        load.wait_for_more("writing with two of three");
        load.wait_for_more("writing with two of three");
        load.stop.store(true, Ordering::Relaxed);
        (writer.join().unwrap(), leader)
    });
    check_all(&log, counts);
    cluster.run(&["up", &leader]);

    // All three copies are asked for and one dies: nothing is acknowledged until it is back, and then everything.
    let config = KafkaConfig { replication: 3, min_insync: 3, ..cluster.config("all") };
    let log = KafkaLog::open(config).unwrap();
    log.create_topic(&spec()).unwrap();
    let load = Load::new(&log);
    let counts = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load.run());
        load.wait_for_more("writing with three");
        cluster.run(&["kill", &leader]);
        // What was on its way when it died has come by now.
        std::thread::sleep(Duration::from_millis(500));
        let acknowledged: Vec<u64> = (0..PARTITIONS).map(|partition| load.acknowledged(partition)).collect();
        wait_until("messages wait", || log.stats().queued > 20_000);
        for (partition, acknowledged) in (0..).zip(acknowledged) {
            assert_eq!(load.acknowledged(partition), acknowledged, "two copies are not three");
        }
        cluster.run(&["up", &leader]);
        load.wait_for_more("writing with three again");
        load.stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    check_all(&log, counts);
}

/// Ends a test's threads, also when the test has failed: its scope waits for them.
struct End<'a>(&'a Load<'a>, &'a Signal);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.1.stop();
    }
}

/// Keeps offsets of its own, as a database does, and refuses what is not the next message.
struct Follower {
    next: [u64; PARTITIONS as usize],
    taken: Arc<AtomicU64>,
}

impl BatchHandler for Follower {
    fn assigned(&mut self, places: &[TopicPartition]) -> Result<Vec<Start>, HandlerError> {
        Ok(places.iter().map(|place| Start::At(self.next[place.partition as usize])).collect())
    }

    fn revoked(&mut self, _: &[TopicPartition]) {}

    fn handle(&mut self, offers: &mut [Offer]) -> Result<(), HandlerError> {
        for offer in offers {
            let next = &mut self.next[offer.run.place.partition as usize];
            for message in &offer.run.messages {
                assert_eq!(message.offset, *next, "{}: each once, in order", offer.run.place);
                *next += 1;
            }
            offer.taken = offer.run.messages.len();
        }
        self.taken.store(self.next.iter().sum(), Ordering::Relaxed);
        Ok(())
    }

    fn safe(&mut self, _: bool) -> Result<Vec<(TopicPartition, u64)>, HandlerError> {
        let place = |partition| TopicPartition { topic: "t".into(), partition };
        Ok((0..).zip(self.next).map(|(partition, next)| (place(partition), next)).collect())
    }
}

#[test]
fn members_go_on_when_a_broker_hung_for_longer_than_their_session() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(cluster) = Cluster::start(1) else { return };
    let config = cluster.config("hangs");
    let log = KafkaLog::open(config.clone()).unwrap();
    log.create_topic(&spec()).unwrap();
    let load = Load::new(&log);
    let (signal, groups) = (Signal::new(), ["a", "b", "c", "d"]);
    let taken: Vec<Arc<AtomicU64>> = groups.iter().map(|_| Arc::default()).collect();
    std::thread::scope(|scope| {
        let _end = End(&load, &signal);
        let writer = scope.spawn(|| load.run());
        let followers: Vec<_> = groups
            .iter()
            .zip(&taken)
            .map(|(group, taken)| {
                let membership = Membership {
                    session: Duration::from_secs(6),
                    heartbeat: Duration::from_secs(1),
                    ..Membership::new(&config, group, &["t"])
                };
                let source = Box::new(KafkaSource::new(&config, &membership).unwrap());
                let (taken, signal) = (taken.clone(), &signal);
                scope.spawn(move || {
                    let mut follower = Follower { next: [0; PARTITIONS as usize], taken };
                    run_batches(source, &mut follower, &BatchOptions::default(), signal, &())
                })
            })
            .collect();
        let all_go_on = |what: &str| {
            let written: u64 = (0..PARTITIONS).map(|partition| load.acknowledged(partition)).sum();
            for (group, taken) in groups.iter().zip(&taken) {
                wait_until(&format!("group {group} goes on {what}"), || {
                    taken.load(Ordering::Relaxed) > written
                });
            }
        };
        all_go_on("from the start");
        // The broker gives members up when it goes on, and they give up it: at a heartbeat, in the middle of joining, or not at all.
        for hung in [3400, 8000, 8000, 6500] {
            cluster.run(&["stop"]);
            std::thread::sleep(Duration::from_millis(hung));
            cluster.run(&["cont"]);
            all_go_on(&format!("after {hung} ms"));
        }
        load.stop.store(true, Ordering::Relaxed);
        let written: u64 = writer.join().unwrap().iter().sum();
        wait_until("all is taken", || taken.iter().all(|taken| taken.load(Ordering::Relaxed) == written));
        signal.stop();
        for follower in followers {
            follower.join().unwrap().unwrap();
        }
    });
}
