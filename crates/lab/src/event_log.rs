//! `bench log`: appends to an event log and consumes from it at once; for Kafka with the broker's own perf tools beside, in turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hoga_core::ids::Timestamp;
use hoga_log::LogError;
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog, Message, TopicSpec};
use serde_json::json;

use crate::orders::BenchError;
use crate::process::{TempDir, cpu_seconds};
use crate::report::{Latency, Report, histogram, round1};
#[cfg(feature = "kafka")]
use crate::services::Service;

/// Which event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Segment files.
    Embedded,
    /// Apache Kafka, a broker of its own.
    Kafka,
}

/// The flags of `bench log`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which event log.
    pub backend: Backend,
    /// Bytes of a message.
    pub size: u32,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Messages a second; none: flat out.
    pub rate: Option<f64>,
    /// Counted seconds.
    pub seconds: f64,
}

/// The topic.
const TOPIC: &str = "bench.log";
/// Messages of one append.
const APPEND: usize = 512;
/// Messages of one read.
const READ: usize = 4_096;
/// Repetitions of Kafka's own tools and ours in turn.
#[cfg(feature = "kafka")]
const TURNS: usize = 3;
/// Records of one run of Kafka's own tools.
#[cfg(feature = "kafka")]
const PEER_RECORDS: u64 = 2_000_000;
/// Once that much lies between producer and consumer, the producer waits: the disk is not what is measured.
const MOST_BEHIND: u64 = 2_000_000;

/// Runs it; with Kafka the condition's figures are those of the run with the median append rate.
pub fn run(options: &Options) -> Result<Vec<Report>, BenchError> {
    let rate = options.rate.map_or("max".to_owned(), |rate| rate.to_string());
    eprintln!(
        "bench log: {:?}, {} bytes, {} partitions, rate {rate}, {} s",
        options.backend, options.size, options.partitions, options.seconds
    );
    match options.backend {
        Backend::Embedded => {
            let data = TempDir::new("bench-log")?;
            let config = EmbeddedConfig { segment_bytes: 64 << 20, ..EmbeddedConfig::default() };
            let log = EmbeddedLog::open(data.path().join("log"), config)?;
            let ran = measure(Arc::new(log), TOPIC, options)?;
            let mut report = report(options, &ran);
            report.left_out =
                "processes: producer and consumer are threads beside the log; syncs: the log is synced \
                               once, at the end, as the journal behind it makes it good again"
                    .to_owned();
            Ok(vec![report])
        }
        Backend::Kafka => kafka(options),
    }
}

#[cfg(not(feature = "kafka"))]
fn kafka(_: &Options) -> Result<Vec<Report>, BenchError> {
    Err(BenchError::Unfit("this build is without Kafka: build it with default features".into()))
}

#[cfg(feature = "kafka")]
fn kafka(options: &Options) -> Result<Vec<Report>, BenchError> {
    use hoga_log::kafka::{KafkaConfig, KafkaLog};
    let service = Service::kafka(1)?;
    let mut ours: Vec<Ran> = Vec::new();
    let mut peers: Vec<(f64, f64)> = Vec::new();
    for turn in 0..TURNS {
        let topic = format!("{TOPIC}.{turn}");
        let log: Arc<dyn EventLog> = Arc::new(KafkaLog::open(KafkaConfig::new(service.address()))?);
        ours.push(measure(log, &topic, options)?);
        if options.rate.is_none() {
            peers.push(peer(&service, turn, options)?);
        }
        eprintln!("bench log: turn {} of {TURNS}", turn + 1);
    }
    let ratios: Vec<(f64, f64)> = ours
        .iter()
        .zip(&peers)
        .map(|(ran, peer)| (ran.append_alone_per_s / peer.0, ran.consume_alone_per_s / peer.1))
        .collect();
    ours.sort_by(|a, b| a.append_per_s.total_cmp(&b.append_per_s));
    let mut report = report(options, &ours[ours.len() / 2]);
    report.left_out =
        "a network: broker, producer and consumer share this machine over loopback; replication: one broker"
            .to_owned();
    if !peers.is_empty() {
        let middle = |of: &dyn Fn(usize) -> f64, n: usize| median((0..n).map(of).collect());
        report.set("peer_append_per_s", round1(middle(&|i| peers[i].0, peers.len())));
        report.set("peer_consume_per_s", round1(middle(&|i| peers[i].1, peers.len())));
        report.set("append_ratio", (middle(&|i| ratios[i].0, ratios.len()) * 100.0).round() / 100.0);
        report.set("consume_ratio", (middle(&|i| ratios[i].1, ratios.len()) * 100.0).round() / 100.0);
        report.set(
            "peer",
            "producer-perf (acks=all, idempotent, batch.size=131072) and consumer-perf, in turn with ours, medians of 3",
        );
    }
    Ok(vec![report])
}

#[cfg(feature = "kafka")]
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Kafka's own tools: records a second of producer and consumer.
#[cfg(feature = "kafka")]
fn peer(service: &Service, turn: usize, options: &Options) -> Result<(f64, f64), BenchError> {
    let topic = format!("{TOPIC}.peer.{turn}");
    let (partitions, records) = (options.partitions.to_string(), PEER_RECORDS.to_string());
    service.output(&["tool", "topics", "--create", "--topic", &topic, "--partitions", &partitions])?;
    let server = format!("bootstrap.servers={}", service.address());
    let size = options.size.to_string();
    let out = service.output(&[
        "tool",
        "producer-perf",
        "--topic",
        &topic,
        "--num-records",
        &records,
        "--record-size",
        &size,
        "--throughput",
        "-1",
        "--producer-props",
        &server,
        "acks=all",
        "enable.idempotence=true",
        "batch.size=131072",
    ])?;
    let unfit = |what: &str| BenchError::Unfit(format!("no figure in the output of {what}: {out}"));
    // "2000000 records sent, 871080.1 records/sec (166.14 MB/sec), …" is the last line of its kind.
    let produced = out
        .lines()
        .rev()
        .find_map(|line| line.split(" records sent, ").nth(1)?.split(' ').next()?.parse::<f64>().ok())
        .ok_or_else(|| unfit("producer-perf"))?;
    let out = service.output(&["tool", "consumer-perf", "--topic", &topic, "--num-records", &records])?;
    // A table: start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s.
    let consumed = out
        .lines()
        .rev()
        .find_map(|line| {
            let cells: Vec<&str> = line.split(", ").collect();
            (cells.len() == 10).then(|| cells[9].trim().parse::<f64>().ok()).flatten()
        })
        .ok_or_else(|| BenchError::Unfit(format!("no figure in the output of consumer-perf: {out}")))?;
    Ok((produced, consumed))
}

/// What one run gave.
struct Ran {
    append_per_s: f64,
    consume_per_s: f64,
    /// The same producer for the same time, with nobody reading.
    append_alone_per_s: f64,
    /// A consumer of that, from the first offset, with the topic full.
    consume_alone_per_s: f64,
    seconds: f64,
    latency: Histogram<u64>,
    cpu_s: f64,
}

fn report(options: &Options, ran: &Ran) -> Report {
    let rate = options.rate.map_or(json!("max"), |rate| json!(rate));
    let backend = if options.backend == Backend::Kafka { "kafka" } else { "embedded" };
    let mut report = Report::new(
        "log",
        json!({
            "backend": backend, "size": options.size, "partitions": options.partitions, "rate": rate,
            "seconds": options.seconds,
        }),
    );
    report.seconds = round1(ran.seconds);
    report.target_per_s = options.rate;
    report.achieved_per_s = round1(ran.append_per_s);
    report.latency = Latency::of_ns(&ran.latency);
    report.cpu_client_s = round1(ran.cpu_s);
    report.set("append_per_s", round1(ran.append_per_s));
    report.set("consume_per_s", round1(ran.consume_per_s));
    report.set("append_alone_per_s", round1(ran.append_alone_per_s));
    report.set("consume_alone_per_s", round1(ran.consume_alone_per_s));
    report
}

/// Appends for the time that is asked for, while a consumer reads; then each of the two alone, as Kafka's own tools run.
fn measure(log: Arc<dyn EventLog>, topic: &str, options: &Options) -> Result<Ran, BenchError> {
    log.create_topic(&TopicSpec::delete(topic, options.partitions, u64::MAX))?;
    let (start, gate) = (Instant::now(), Arc::new(Barrier::new(2)));
    let consumed = Arc::new(AtomicU64::new(0));
    let total = Arc::new(AtomicU64::new(u64::MAX));
    let consumer = {
        let (log, gate, topic) = (Arc::clone(&log), Arc::clone(&gate), topic.to_owned());
        let (consumed, total, partitions) = (Arc::clone(&consumed), Arc::clone(&total), options.partitions);
        std::thread::Builder::new().name("consumer".into()).spawn(move || {
            gate.wait();
            consume(&*log, &topic, partitions, &total, |count, messages| {
                let now = start.elapsed().as_nanos() as u64;
                consumed.store(count, Ordering::Relaxed);
                messages.map(|planned| now.saturating_sub(planned)).collect()
            })
        })?
    };
    gate.wait();
    let cpu = cpu_seconds("self");
    let begun = Instant::now();
    let appended = append(&*log, topic, options, start, &consumed)?;
    log.sync()?;
    let append_s = begun.elapsed().as_secs_f64();
    total.store(appended, Ordering::SeqCst);
    let latency = consumer.join().map_err(|_| BenchError::Unfit("the consumer panicked".into()))??;
    let consume_s = begun.elapsed().as_secs_f64();
    let cpu_s = cpu_seconds("self") - cpu;
    let alone = format!("{topic}.alone");
    log.create_topic(&TopicSpec::delete(&alone, options.partitions, u64::MAX))?;
    let begun = Instant::now();
    let more = append(&*log, &alone, options, start, &AtomicU64::new(u64::MAX))?;
    log.sync()?;
    let append_alone_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    consume(&*log, &alone, options.partitions, &AtomicU64::new(more), |_, _| Vec::new())?;
    Ok(Ran {
        append_alone_per_s: more as f64 / append_alone_s,
        append_per_s: appended as f64 / append_s,
        consume_per_s: appended as f64 / consume_s,
        consume_alone_per_s: more as f64 / begun.elapsed().as_secs_f64(),
        seconds: append_s,
        latency,
        cpu_s,
    })
}

/// The producer: each message begins with its planned time; keys go round, so that partitions share evenly.
fn append(
    log: &dyn EventLog,
    topic: &str,
    options: &Options,
    start: Instant,
    consumed: &AtomicU64,
) -> Result<u64, BenchError> {
    let begun = Instant::now();
    let mut values = vec![0x5A_u8; options.size as usize * APPEND];
    let mut keys = vec![[0_u8; 8]; APPEND];
    let mut appended = 0_u64;
    while begun.elapsed().as_secs_f64() < options.seconds {
        let count = match options.rate {
            None => APPEND as u64,
            Some(rate) => ((begun.elapsed().as_secs_f64() * rate) as u64).saturating_sub(appended),
        };
        if count == 0 || appended.saturating_sub(consumed.load(Ordering::Relaxed)) > MOST_BEHIND {
            std::thread::sleep(Duration::from_micros(200)); // the plan has nothing due yet, or the consumer is far behind
            continue;
        }
        let count = (count as usize).min(APPEND);
        for (i, (value, key)) in
            values.chunks_exact_mut(options.size as usize).zip(&mut keys).take(count).enumerate()
        {
            let number = appended + i as u64;
            let planned = match options.rate {
                None => start.elapsed(),
                Some(rate) => begun.duration_since(start) + Duration::from_secs_f64(number as f64 / rate),
            };
            value[..8].copy_from_slice(&(planned.as_nanos() as u64).to_le_bytes());
            *key = number.to_le_bytes();
        }
        let messages: Vec<Message<'_>> = values
            .chunks_exact(options.size as usize)
            .zip(&keys)
            .take(count)
            .map(|(value, key)| Message { key, value: Some(value), time: Timestamp(appended as i64) })
            .collect();
        log.append(topic, &messages)?;
        appended += count as u64;
    }
    Ok(appended)
}

/// Reads all partitions in turn until `total` messages have come; the delays that `seen` gives are recorded.
fn consume(
    log: &dyn EventLog,
    topic: &str,
    partitions: u32,
    total: &AtomicU64,
    seen: impl Fn(u64, &mut dyn Iterator<Item = u64>) -> Vec<u64>,
) -> Result<Histogram<u64>, LogError> {
    let mut delays = histogram();
    let mut offsets = vec![0_u64; partitions as usize];
    let mut messages = Vec::new();
    let mut count = 0;
    while count < total.load(Ordering::SeqCst) {
        let before = count;
        for (partition, offset) in offsets.iter_mut().enumerate() {
            messages.clear();
            *offset = log.read(topic, partition as u32, *offset, READ, &mut messages)?;
            count += messages.len() as u64;
            let mut planned = messages.iter().filter_map(|message| {
                let value = message.value.as_deref()?.first_chunk::<8>()?;
                Some(u64::from_le_bytes(*value))
            });
            for delay in seen(count, &mut planned) {
                delays.saturating_record(delay.max(1));
            }
        }
        if count == before {
            // Several partitions are waited for in short turns.
            let time = if partitions == 1 { Duration::from_millis(50) } else { Duration::from_millis(1) };
            let partition = (count % u64::from(partitions)) as u32;
            log.wait_for(topic, partition, offsets[partition as usize], time)?;
        }
    }
    Ok(delays)
}
