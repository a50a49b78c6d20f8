//! The law of [`GroupCache`], on every implementation.

use std::sync::Arc;
use std::time::Duration;

use hoga_core::folds::candle::{Candle, Interval};
use hoga_core::ids::Timestamp;
use hoga_core::money::Price;

use super::*;
use crate::detect::EventKind;
use crate::state::{StateConfig, SymbolState};
use crate::testing::{tick, wait_until};

fn quote(symbol: &str, seq: u64) -> Quote {
    let tick = tick(symbol, seq);
    let mut state = SymbolState::new(tick.symbol, &StateConfig::default());
    state.take(&tick, tick.received);
    let mut output = state.output().unwrap();
    output.candles.clear();
    Quote { passed: vec![output.mark; 2], output, read: None }
}

fn candle(symbol: &str, minute: i64, price: i64, closed: bool) -> SymbolCandle {
    let candle = Candle::flat(Timestamp(minute * 60_000_000), Price(price));
    let change = CandleChange { interval: Interval::M1, candle, closed };
    SymbolCandle { symbol: Symbol::parse(symbol).unwrap(), change }
}

fn event(seq: u64) -> DetectedEvent {
    let symbol = Symbol::parse("A").unwrap();
    let kind = EventKind::PriceSpike;
    DetectedEvent { symbol, epoch: 1, seq, time: Timestamp(seq as i64), kind, value: 5, mean: 4 }
}

fn status(node: &str, epoch: u64) -> Status {
    Status { node: node.into(), epoch, behind: 3, written_p99_us: 9, ..Status::default() }
}

fn sorted(mut entries: Vec<Entry>) -> Vec<String> {
    entries.retain(|entry| !matches!(entry, Entry::Status(_)));
    let mut all: Vec<String> = entries.iter().map(|entry| format!("{entry:?}")).collect();
    all.sort();
    all
}

fn run(cache: &dyn GroupCache) {
    assert_eq!(cache.read().unwrap(), Contents::default());
    let mut reader = cache.subscribe().unwrap();
    let first = Batch {
        quotes: vec![quote("A", 1), quote("B", 7)],
        candles: vec![candle("A", 1, 5, true), candle("A", 2, 6, false), candle("B", 2, 7, false)],
        events: vec![event(1), event(2)],
        status: Some(status("one", 5)),
    };
    assert_eq!(cache.write(5, &first).unwrap(), Written { rebuilds: 0 });
    let second =
        Batch { quotes: vec![quote("A", 2)], candles: vec![candle("A", 2, 9, false)], ..Batch::default() };
    cache.ask_rebuild().unwrap();
    assert_eq!(cache.write(5, &second).unwrap(), Written { rebuilds: 1 });

    // The last of each is there; closed candles were only told.
    let contents = cache.read().unwrap();
    assert_eq!((contents.epoch, contents.refused), (5, 0));
    assert!(contents.entries.contains(&Entry::Status(status("one", 5))));
    let expected = vec![
        Entry::Quote(quote("A", 2)),
        Entry::Quote(quote("B", 7)),
        Entry::Candle(candle("A", 2, 9, false)),
        Entry::Candle(candle("B", 2, 7, false)),
        Entry::Event(event(1)),
        Entry::Event(event(2)),
    ];
    assert_eq!(sorted(contents.entries), sorted(expected));

    // A subscriber has all of it, in the order of writes.
    let mut heard = Vec::new();
    wait_until("the subscriber has both writes", || {
        reader.next(Duration::from_millis(20), &mut heard).unwrap();
        heard.contains(&Entry::Quote(quote("A", 2)))
            && heard.contains(&Entry::Candle(candle("A", 2, 9, false)))
    });
    let at = |wanted: Entry| heard.iter().position(|entry| *entry == wanted).unwrap();
    assert!(at(Entry::Quote(quote("A", 1))) < at(Entry::Quote(quote("A", 2))));
    assert!(heard.contains(&Entry::Candle(candle("A", 1, 5, true))));
    assert!(heard.contains(&Entry::Event(event(2))) && heard.contains(&Entry::Status(status("one", 5))));

    // A newer leader writes; the old one is refused, changes nothing, and is counted.
    cache.write(9, &Batch { status: Some(status("two", 9)), ..Batch::default() }).unwrap();
    let third = Batch { quotes: vec![quote("A", 3)], status: Some(status("one", 5)), ..Batch::default() };
    for _ in 0..2 {
        assert_eq!(cache.write(5, &third), Err(CacheError::Fenced { mine: 5, highest: 9 }));
    }
    let contents = cache.read().unwrap();
    assert_eq!((contents.epoch, contents.refused), (9, 2));
    assert!(contents.entries.contains(&Entry::Quote(quote("A", 2))));
    assert!(contents.entries.contains(&Entry::Status(status("two", 9))));
    reader.next(Duration::from_millis(50), &mut heard).unwrap();
    assert!(!heard.contains(&Entry::Quote(quote("A", 3))), "what was refused is told to nobody");

    // The highest version of what is shown counts.
    let (b, a) = (Active { version: 2, group: GroupName::B }, Active { version: 1, group: GroupName::A });
    assert_eq!(cache.set_active(b).unwrap(), b);
    assert_eq!(cache.set_active(a).unwrap(), b);
    assert!(cache.read().unwrap().entries.contains(&Entry::Active(b)));
    wait_until("the subscriber is told which group is shown", || {
        reader.next(Duration::from_millis(20), &mut heard).unwrap();
        heard.contains(&Entry::Active(b))
    });

    // Members are there whether they lead or not.
    for (node, leads) in [("two", true), ("three", false)] {
        cache.announce(&MemberNote { leads, status: status(node, 9) }).unwrap();
    }
    let members = cache.read().unwrap().members;
    assert_eq!(
        members.iter().map(|note| (&*note.status.node, note.leads)).collect::<Vec<_>>(),
        [("three", false), ("two", true)]
    );

    // No more events are kept than are said to be, and a status that is not renewed goes.
    let many = Batch { events: (1..=EVENTS as u64 + 10).map(event).collect(), ..Batch::default() };
    cache.write(9, &many).unwrap();
    let events = |contents: &Contents| {
        contents.entries.iter().filter(|entry| matches!(entry, Entry::Event(_))).count()
    };
    assert_eq!(events(&cache.read().unwrap()), EVENTS);
    wait_until("the status is gone", || {
        !cache.read().unwrap().entries.iter().any(|entry| matches!(entry, Entry::Status(_)))
    });
}

#[test]
fn a_cache_in_memory_keeps_the_law() {
    run(&MemoryCache::new());
}

#[cfg(feature = "redis")]
#[test]
fn a_cache_on_redis_keeps_the_law() {
    let Some(url) = crate::testing::redis("the cache's suite on Redis") else { return };
    let config = RedisCacheConfig::new(&url, &crate::testing::fresh("cache"));
    run(&RedisCache::open(config.clone()).unwrap());
    // Another connection sees the same.
    let other = RedisCache::open(config).unwrap();
    assert_eq!(other.read().unwrap().epoch, 9);
}

#[cfg(feature = "redis")]
#[test]
fn a_cache_that_is_away_says_so_in_bounded_time_and_is_there_again() {
    // It listens, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let cache = RedisCache::open(RedisCacheConfig {
        timeout: Duration::from_millis(100),
        ..RedisCacheConfig::new(&url, "x")
    });
    let cache: Arc<dyn GroupCache> = Arc::new(cache.unwrap());
    let begun = Instant::now();
    assert!(matches!(cache.write(1, &Batch::default()), Err(CacheError::Away { .. })));
    assert!(matches!(cache.read(), Err(CacheError::Away { .. })));
    assert!(matches!(cache.subscribe().err(), Some(CacheError::Away { .. })));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let wrong = RedisCache::open(RedisCacheConfig::new("nowhere", "x")).err().unwrap().to_string();
    assert!(wrong.contains("redis://host:port"), "{wrong}");
}
