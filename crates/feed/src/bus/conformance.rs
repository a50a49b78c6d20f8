//! The law of [`Bus`], on every implementation.

use std::sync::Arc;
use std::time::Duration;

use hoga_log::event_log::EventLog;

use super::*;
use crate::testing::{TOPIC, append, new_log, tick, wait_until};
use crate::tick::FeedTick;

/// Reads a lane up to an offset; each message once, in order.
fn read_to(bus: &dyn Bus, lane: u32, mut from: u64, to: u64, most: usize) -> Vec<StoredMessage> {
    let mut all: Vec<StoredMessage> = Vec::new();
    wait_until("the lane is read", || {
        let next = bus.read(lane, from, most, &mut all).unwrap();
        if next == from {
            bus.wait(&[(lane, from)], Duration::from_millis(20)).unwrap();
        }
        from = next;
        from >= to
    });
    all
}

/// What each lane of a bus gives is what is in the log; `lose` is called between writes and may break what carries.
fn run(bus: &dyn Bus, log: &Arc<dyn EventLog>, mut lose: impl FnMut(usize)) {
    let lanes = bus.lanes();
    let mut places: Vec<u64> = (0..lanes).map(|lane| bus.start(lane).unwrap()).collect();
    let mut seqs: Vec<u64> = Vec::new();
    for round in 0..12 {
        lose(round);
        for seq in round as u64 * 50 + 1..=round as u64 * 50 + 50 {
            append(log, &(0..20).map(|n| tick(&format!("S{n}"), seq)).collect::<Vec<FeedTick>>());
        }
        for lane in 0..lanes {
            let end = log.end_offset(TOPIC, lane).unwrap();
            let got = read_to(bus, lane, places[lane as usize], end, 1 + round * 37);
            assert!(
                got.iter().map(|message| message.offset).eq(places[lane as usize]..end),
                "round {round}, lane {lane}"
            );
            for message in &got {
                let tick = FeedTick::decode(message.value.as_ref().unwrap()).unwrap();
                assert_eq!(hoga_log::event_log::partition_for(tick.symbol.as_bytes(), lanes), lane);
                if tick.symbol.as_str() == "S0" {
                    seqs.push(tick.seq);
                }
            }
            assert_eq!(bus.end(lane).unwrap(), end);
            places[lane as usize] = end;
        }
    }
    assert!(seqs.iter().copied().eq(1..=600), "a symbol's ticks are in order, across lanes' reads");
    // From the middle, and nothing beyond the end.
    let end = places[0];
    let middle = read_to(bus, 0, end / 2, end, 1000);
    assert!(middle.iter().map(|message| message.offset).eq(end / 2..end));
    let mut none = Vec::new();
    assert_eq!((bus.read(0, end, 10, &mut none).unwrap(), none.len()), (end, 0));
}

#[test]
fn the_log_in_process_keeps_the_law() {
    let log = new_log(3);
    run(&LogBus::new(log.clone(), TOPIC).unwrap(), &log, |_| ());
    assert!(matches!(LogBus::new(log, "none"), Err(LogError::NoTopic { .. })));
}

#[cfg(feature = "redis")]
mod with_redis {
    use super::*;
    use crate::testing::{fresh, redis};

    fn start(name: &str, connections: u32) -> Option<(Arc<dyn EventLog>, RedisBus, RedisBusConfig)> {
        let url = redis(name)?;
        let log = new_log(3);
        let behind = Arc::new(LogBus::new(log.clone(), TOPIC).unwrap());
        let config = RedisBusConfig { url, prefix: fresh("bus"), connections };
        let bus = RedisBus::start(&config, behind).unwrap();
        Some((log, bus, config))
    }

    fn publisher(log: &Arc<dyn EventLog>, config: &RedisBusConfig) -> Publisher {
        let publisher = Publisher::start(log.clone(), TOPIC, &config.url, &config.prefix).unwrap();
        wait_until("the publisher is connected", || publisher.stats().connected);
        publisher
    }

    #[test]
    fn pub_sub_keeps_the_law() {
        for connections in [1, 3] {
            let Some((log, bus, config)) = start("the bus's suite on Redis", connections) else { return };
            let publisher = publisher(&log, &config);
            wait_until("it is heard", || {
                append(&log, &[tick("S99", 1)]);
                bus.stats().messages > 0
            });
            let before = bus.stats().filled;
            // Another one reads the same bus at its own place.
            run(&bus, &log, |_| {
                publisher.nudge();
                let mut others = Vec::new();
                let end = bus.end(0).unwrap();
                bus.read(0, end / 2, 1000, &mut others).unwrap();
            });
            let stats = bus.stats();
            assert!(stats.filled - before < 2_000, "Pub/Sub carries it, not the log behind: {stats:?}");
            assert!(publisher.stats().ticks >= 12_000, "{:?}", publisher.stats());
        }
    }

    #[test]
    fn what_pub_sub_loses_is_read_from_the_log() {
        let Some((log, bus, config)) = start("a lossy bus on Redis", 2) else { return };
        let mut current = None;
        let mut filled = 0;
        run(&bus, &log, |round| {
            // Without a publisher nothing is carried at all.
            current = (round % 3 != 1).then(|| publisher(&log, &config));
            filled = bus.stats().filled;
        });
        assert!(filled >= 1000, "{:?}", bus.stats());
    }

    #[test]
    fn a_server_that_is_away_is_read_around_and_the_end_is_bounded() {
        let log = new_log(3);
        let behind = Arc::new(LogBus::new(log.clone(), TOPIC).unwrap());
        // It listens, and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let config = RedisBusConfig { url, prefix: "x".into(), connections: 1 };
        let bus = RedisBus::start(&config, behind).unwrap();
        let publisher = Publisher::start(log.clone(), TOPIC, &config.url, &config.prefix).unwrap();
        run(&bus, &log, |_| ());
        wait_until("it is said what waits", || publisher.stats().waiting == 12_000);
        let begun = std::time::Instant::now();
        drop((bus, publisher));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}
