use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hoga_core::money::{Price, SCALE};

use super::*;
use crate::detect::EventKind;
use crate::state::Output;
use crate::symbol::Symbol;
use crate::testing::{TOPIC, append, new_log, tick, wait_until};
use crate::tick::FeedTick;

const LANES: u32 = 3;

fn config() -> PairConfig {
    PairConfig { look_every: Duration::from_millis(5), ..PairConfig::new(TOPIC, 2) }
}

/// Both groups show the end of the log.
fn wait_current(pair: &Pair, symbols: &[String], seq: u64) {
    wait_until("readers see the last tick of each symbol", || {
        let all: BTreeMap<String, u64> =
            pair.view().all().iter().map(|output| (output.symbol.to_string(), output.mark.seq)).collect();
        symbols.iter().all(|symbol| all.get(symbol) == Some(&seq))
    });
    wait_until("both groups have handled everything", || {
        GroupName::BOTH.iter().all(|group| {
            let health = pair.health(*group);
            health.behind == 0 && !health.rebuilding
        })
    });
}

/// What a reader has seen: of each symbol the places only rise, and at the end all candles are those of a single group.
fn check_seen(seen: &[Arc<Output>], symbols: &[String], last: u64) {
    let mut places: BTreeMap<String, (u32, u64)> = BTreeMap::new();
    let mut candles = BTreeMap::new();
    for output in seen {
        let place = (output.mark.epoch, output.mark.seq);
        let before = places.insert(output.symbol.to_string(), place);
        assert!(before.is_none_or(|before| before < place), "{}: {before:?}, then {place:?}", output.symbol);
        for change in &output.candles {
            candles
                .insert((output.symbol.to_string(), change.interval, change.candle.open_time), change.candle);
        }
    }
    for symbol in symbols {
        assert_eq!(places[symbol], (1, last), "{symbol}");
        let trades: u64 = candles
            .iter()
            .filter(|((name, interval, _), _)| {
                name == symbol && *interval == hoga_core::folds::candle::Interval::M1
            })
            .map(|(_, candle)| candle.trades)
            .sum();
        assert_eq!(trades, last, "{symbol}: the candles that were shown hold every tick once");
    }
}

#[test]
fn traffic_moves_under_load_and_readers_notice_nothing() {
    let log = new_log(LANES);
    let symbols: Vec<String> = (0..20).map(|n| format!("S{n}")).collect();
    let pair = Pair::start(&log, config()).unwrap();
    let reader = pair.view().subscribe();
    let done = AtomicBool::new(false);
    let mut last = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut seq = 0;
            while !done.load(Ordering::Relaxed) {
                seq += 1;
                append(&log, &symbols.iter().map(|symbol| tick(symbol, seq)).collect::<Vec<_>>());
                std::thread::sleep(Duration::from_micros(300));
            }
            seq
        });
        for n in 0..20 {
            let shown = pair.view().stats().shown;
            wait_until("readers see more", || pair.view().stats().shown > shown + 100);
            let to = if n % 2 == 0 { GroupName::B } else { GroupName::A };
            let mut switched = pair.command(to, false);
            wait_until("it may be shown", || {
                if switched.is_err() {
                    switched = pair.command(to, false);
                }
                switched.is_ok()
            });
            assert_eq!(switched.unwrap().unwrap().to, to);
        }
        done.store(true, Ordering::Relaxed);
        last = writer.join().unwrap();
    });
    wait_current(&pair, &symbols, last);
    let seen: Vec<Arc<Output>> = reader.try_iter().collect();
    check_seen(&seen, &symbols, last);
    let stats = pair.view().stats();
    assert_eq!((stats.skipped, stats.cut_off, stats.shown), (0, 0, seen.len() as u64));
    assert_eq!(pair.switched().len(), 20);
    assert_eq!(pair.diff(), []);
    pair.stop().unwrap();
}

#[test]
fn a_version_with_one_wrong_candle_rule_is_named_before_traffic_goes_to_it() {
    let log = new_log(LANES);
    let symbols = ["BTC", "ETH", "XRP"].map(str::to_owned);
    let wrong: fn(&mut FeedTick) = |tick| {
        // As a fold would that takes a trade of a full minute into the one before.
        if tick.symbol.as_str() == "ETH" && tick.tick.time.0 % 60_000_000 == 0 {
            tick.tick.time.0 -= 1;
        }
    };
    let pair = Pair::start_with(&log, config(), [None, Some(wrong)]).unwrap();
    let first = (1..).find(|seq| tick("ETH", *seq).tick.time.0 % 60_000_000 == 0).unwrap();
    for seq in 1..=first + 50 {
        append(&log, &symbols.iter().map(|symbol| tick(symbol, seq)).collect::<Vec<_>>());
        // One by one, so that each place is put out by both.
        if (first.saturating_sub(2)..first + 3).contains(&seq) {
            wait_current(&pair, &symbols, seq);
        }
    }
    wait_current(&pair, &symbols, first + 50);
    let found = pair.diff();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].symbol.as_str(), found[0].kind, found[0].a.seq),
        ("ETH", DifferenceKind::Candles, first)
    );
    let refused = pair.command(GroupName::B, false).unwrap_err();
    assert!(refused.contains("1 symbols"), "{refused}");
    assert_eq!(pair.active(), GroupName::A);
    pair.command(GroupName::B, true).unwrap().unwrap();
    assert_eq!(pair.active(), GroupName::B);
}

#[test]
fn when_the_shown_group_breaks_the_other_is_shown_and_it_can_be_rebuilt() {
    let log = new_log(LANES);
    let symbols = ["BTC", "ETH"].map(str::to_owned);
    let breaks: fn(&mut FeedTick) =
        |tick| assert!(tick.seq != 500 || BROKEN.swap(true, Ordering::Relaxed), "broken on purpose");
    static BROKEN: AtomicBool = AtomicBool::new(false);
    let pair = Pair::start_with(&log, config(), [Some(breaks), None]).unwrap();
    let reader = pair.view().subscribe();
    for seq in 1..500 {
        append(&log, &symbols.iter().map(|symbol| tick(symbol, seq)).collect::<Vec<_>>());
    }
    wait_current(&pair, &symbols, 499);
    append(&log, &symbols.iter().map(|symbol| tick(symbol, 500)).collect::<Vec<_>>());
    wait_until("B is shown", || {
        pair.active() == GroupName::B && pair.view().all().iter().all(|output| output.mark.seq == 500)
    });
    let switched = pair.switched();
    assert!(switched[0].automatic && switched[0].reason.contains("no leader"), "{switched:?}");
    assert_eq!(pair.health(GroupName::A).leader, None);
    pair.rebuild(GroupName::A).unwrap();
    for seq in 501..=1000 {
        append(&log, &symbols.iter().map(|symbol| tick(symbol, seq)).collect::<Vec<_>>());
    }
    wait_current(&pair, &symbols, 1000);
    assert_eq!(pair.health(GroupName::A).leader, Some(2));
    pair.command(GroupName::A, false).unwrap().unwrap();
    let seen: Vec<Arc<Output>> = reader.try_iter().collect();
    check_seen(&seen, &symbols, 1000);
    assert_eq!(pair.diff(), []);
    pair.stop().unwrap();
}

#[test]
fn a_detected_event_is_told_once_though_both_groups_see_it() {
    let log = new_log(LANES);
    let pair = Pair::start(&log, config()).unwrap();
    let events = pair.view().subscribe_events();
    let mut ticks: Vec<FeedTick> = (1..=100).map(|seq| tick("BTC", seq)).collect();
    ticks[60].tick.price = Price(150 * SCALE);
    append(&log, &ticks);
    wait_current(&pair, &["BTC".to_owned()], 100);
    let found: Vec<_> = events.try_iter().map(|event| (event.kind, event.seq)).collect();
    assert_eq!(found, [(EventKind::PriceSpike, 61)]);
    assert_eq!(pair.view().stats().events, 1);
}

#[test]
fn a_gap_is_seen_as_stale_until_it_is_filled() {
    let log = new_log(LANES);
    let pair = Pair::start(&log, config()).unwrap();
    let name = Symbol::parse("BTC").unwrap();
    append(&log, &[tick("BTC", 1), tick("BTC", 3)]);
    wait_until("it is stale", || pair.view().latest(name).is_some_and(|output| output.stale));
    wait_until("in both", || GroupName::BOTH.iter().all(|group| pair.health(*group).stale == 1));
    append(&log, &[tick("BTC", 2)]);
    wait_until("it is not", || pair.view().latest(name).is_some_and(|output| !output.stale));
    wait_until("in neither", || GroupName::BOTH.iter().all(|group| pair.health(*group).stale == 0));
    let latest = pair.view().latest(name).unwrap();
    assert_eq!((latest.mark.seq, latest.last), (3, tick("BTC", 3).tick.price));
}
