use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use hoga_core::folds::candle::Interval;
use hoga_core::ids::Timestamp;
use hoga_core::money::{Price, SCALE};
use hoga_log::event_log::EventLog;
use hoga_log::lease::LocalLeases;

use super::*;
use crate::cache::{GroupCache, MemoryCache};
use crate::detect::EventKind;
use crate::symbol::Symbol;
use crate::testing::{LONG, TOPIC, append, bus, new_log, tick, wait_until};
use crate::tick::FeedTick;

const LANES: u32 = 3;
/// Of leases: a member that has ended gives its own up, so it plays no part but where one is paused.
const TTL: Duration = Duration::from_secs(5);

/// A machine that is busy with other tests is no reason to move traffic.
fn desk_config() -> DeskConfig {
    DeskConfig { silent: Duration::from_secs(2), grace: LONG, ..DeskConfig::default() }
}

/// Both groups with so many members each, and the desk that shows them.
struct Pair {
    log: Arc<dyn EventLog>,
    caches: [MemoryCache; 2],
    leases: LocalLeases,
    members: [Vec<Member>; 2],
    desk: Desk,
}

impl Pair {
    fn start(log: &Arc<dyn EventLog>, members: usize, tampers: [Option<Tamper>; 2]) -> Pair {
        Pair::start_with(log, members, tampers, desk_config())
    }

    fn start_with(
        log: &Arc<dyn EventLog>,
        members: usize,
        tampers: [Option<Tamper>; 2],
        config: DeskConfig,
    ) -> Pair {
        let (caches, leases) = ([MemoryCache::new(), MemoryCache::new()], LocalLeases::new());
        let desk = Desk::start(caches.clone().map(|cache| Arc::new(cache) as _), config).unwrap();
        let mut pair = Pair { log: log.clone(), caches, leases, members: Default::default(), desk };
        for _ in 0..members {
            for (group, tamper) in GroupName::BOTH.into_iter().zip(tampers) {
                pair.add(group, tamper);
            }
        }
        pair
    }

    fn add(&mut self, group: GroupName, tamper: Option<Tamper>) {
        let node = format!("{}{}", group, self.members[group.index()].len());
        let config = MemberConfig {
            candles_every: Duration::from_millis(20),
            tamper,
            ..MemberConfig::new(group, &node, 2)
        };
        let lease = Box::new(self.leases.candidate(group.as_str(), TTL));
        let cache: Arc<dyn GroupCache> = Arc::new(self.caches[group.index()].clone());
        let member = Member::start(&bus(&self.log), cache, lease, config).unwrap();
        self.members[group.index()].push(member);
    }

    fn health(&self, group: GroupName) -> Health {
        self.desk.group(group).health
    }

    /// Readers see the last tick of each symbol, and both groups have handled and written everything.
    fn wait_current(&self, symbols: &[String], seq: u64) {
        let ends: Vec<u64> = (0..LANES).map(|lane| self.log.end_offset(TOPIC, lane).unwrap()).collect();
        for member in self.members.iter().flatten() {
            assert!(member.wait_handled(&ends, LONG));
        }
        let last = |contents: &crate::cache::Contents| {
            let quotes = contents.entries.iter().filter_map(|entry| match entry {
                crate::cache::Entry::Quote(quote) => {
                    Some((quote.output.symbol.to_string(), quote.output.mark.seq))
                }
                _ => None,
            });
            quotes.collect::<BTreeMap<String, u64>>()
        };
        wait_until("both caches hold the last tick of each symbol", || {
            let full = |group| {
                let there = last(&self.desk.contents(group).unwrap());
                symbols.iter().all(|symbol| there.get(symbol) == Some(&seq))
            };
            GroupName::BOTH.into_iter().filter(|group| !self.members[group.index()].is_empty()).all(full)
        });
        wait_until("readers see the last tick of each symbol", || {
            symbols.iter().all(|symbol| {
                let latest = self.desk.view().latest(Symbol::parse(symbol).unwrap());
                latest.is_some_and(|quote| quote.output.mark.seq == seq)
            })
        });
        let ones = |symbol: &str| {
            let candles = self.desk.view().candles(Symbol::parse(symbol).unwrap(), Interval::H1);
            candles.iter().map(|candle| candle.change.candle.trades).sum::<u64>()
        };
        wait_until("and candles that hold every tick once", || {
            symbols.iter().all(|symbol| ones(symbol) == seq)
        });
    }
}

/// What a reader has seen of each symbol: numbers rise, and each quote begins at most one above the one before.
fn check_seen(reader: &Receiver<Update>, symbols: &[String], last: u64) {
    let mut places: BTreeMap<String, u64> = BTreeMap::new();
    let mut candles: BTreeMap<(String, Interval, Timestamp), u64> = BTreeMap::new();
    for update in reader.try_iter() {
        match update {
            Update::Quote(quote) => {
                let (name, seq) = (quote.output.symbol.to_string(), quote.output.mark.seq);
                let before = places.insert(name.clone(), seq).unwrap_or(0);
                assert!(before < seq, "{name}: {before}, then {seq}");
                assert!(
                    quote.output.first <= before + 1,
                    "{name}: {before}, then {} to {seq}",
                    quote.output.first
                );
            }
            Update::Candle(candle) => {
                let key = (candle.symbol.to_string(), candle.change.interval, candle.change.candle.open_time);
                let trades = candle.change.candle.trades;
                let before = candles.insert(key.clone(), trades).unwrap_or(0);
                assert!(before <= trades, "{key:?}: {before} trades, then {trades}");
            }
        }
    }
    for symbol in symbols {
        assert_eq!(places[symbol], last, "{symbol}");
        let minutes =
            candles.iter().filter(|((name, interval, _), _)| name == symbol && *interval == Interval::M1);
        assert_eq!(
            minutes.map(|(_, trades)| trades).sum::<u64>(),
            last,
            "{symbol}: candles that were shown hold every tick once"
        );
    }
}

fn write(log: &Arc<dyn EventLog>, symbols: &[String], seqs: impl IntoIterator<Item = u64>) {
    for seq in seqs {
        append(log, &symbols.iter().map(|symbol| tick(symbol, seq)).collect::<Vec<_>>());
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("S{n}")).collect()
}

#[test]
fn traffic_moves_under_load_and_readers_notice_nothing() {
    let (log, symbols) = (new_log(LANES), names(10));
    let pair = Pair::start(&log, 1, [None, None]);
    let reader = pair.desk.view().subscribe();
    wait_until("both lead", || GroupName::BOTH.iter().all(|group| pair.health(*group).leader.is_some()));
    let done = AtomicBool::new(false);
    let mut last = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut seq = 0;
            while !done.load(Ordering::Relaxed) {
                seq += 1;
                write(&log, &symbols, [seq]);
                std::thread::sleep(Duration::from_micros(300));
            }
            seq
        });
        for round in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            let to = if round % 2 == 0 { GroupName::B } else { GroupName::A };
            let mut switched = Err(String::new());
            let begun = std::time::Instant::now();
            while switched.is_err() && begun.elapsed() < LONG {
                switched = pair.desk.command(to, false);
                std::thread::sleep(Duration::from_millis(1));
            }
            // The writer must end, whatever this finds. On a busy machine traffic may have moved by itself before.
            done.store(switched.is_err(), Ordering::Relaxed);
            assert!(switched.is_ok(), "{switched:?} {:?}", pair.desk.diff());
        }
        done.store(true, Ordering::Relaxed);
        last = writer.join().unwrap();
    });
    pair.wait_current(&symbols, last);
    check_seen(&reader, &symbols, last);
    let stats = pair.desk.view().stats();
    assert_eq!((stats.gaps, stats.cut_off), (0, 0));
    assert!(pair.desk.switched().len() >= 10, "{:?}", pair.desk.switched());
    assert_eq!(pair.desk.diff(), []);
    assert!(pair.desk.group(GroupName::A).compared.0 > 1000, "{:?}", pair.desk.group(GroupName::A).compared);
}

#[test]
fn a_version_with_one_wrong_candle_rule_is_named_before_traffic_goes_to_it() {
    let (log, symbols) = (new_log(LANES), ["BTC", "ETH", "XRP"].map(str::to_owned));
    let wrong: Tamper = |tick| {
        // As a fold would that takes a trade of a full minute into the one before.
        if tick.symbol.as_str() == "ETH" && tick.tick.time.0 % 60_000_000 == 0 {
            tick.tick.time.0 -= 1;
        }
    };
    let pair = Pair::start(&log, 1, [None, Some(wrong)]);
    wait_until("both lead", || GroupName::BOTH.iter().all(|group| pair.health(*group).leader.is_some()));
    let first = (1..).find(|seq| tick("ETH", *seq).tick.time.0 % 60_000_000 == 0).unwrap();
    write(&log, &symbols, 1..=first + 50);
    wait_until("the difference is found", || !pair.desk.diff().is_empty());
    let found = pair.desk.diff();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].symbol.as_str(), found[0].kind), ("ETH", DifferenceKind::Candles));
    // A loop that merges ticks puts out once for several: the first place that both have put out.
    assert!(found[0].a.seq >= first, "{found:?}");
    let refused = pair.desk.command(GroupName::B, false).unwrap_err();
    assert!(refused.contains("1 symbols"), "{refused}");
    assert_eq!(pair.desk.active(), GroupName::A);
    pair.desk.command(GroupName::B, true).unwrap().unwrap();
    assert_eq!(pair.desk.active(), GroupName::B);
}

#[test]
fn the_wrong_place_is_named_to_the_number_when_ticks_come_one_by_one() {
    let log = new_log(LANES);
    let wrong: Tamper = |tick| {
        if tick.seq == 57 {
            tick.tick.qty.0 += 1;
        }
    };
    let pair = Pair::start(&log, 1, [None, Some(wrong)]);
    wait_until("both lead", || GroupName::BOTH.iter().all(|group| pair.health(*group).leader.is_some()));
    for seq in 1..=80 {
        append(&log, &[tick("ETH", seq)]);
        let ends: Vec<u64> = (0..LANES).map(|lane| log.end_offset(TOPIC, lane).unwrap()).collect();
        pair.members.iter().flatten().for_each(|member| assert!(member.wait_handled(&ends, LONG)));
    }
    wait_until("the difference is found", || !pair.desk.diff().is_empty());
    let found = pair.desk.diff()[0];
    assert_eq!((found.a.seq, found.b.seq, found.kind), (57, 57, DifferenceKind::Candles));
}

#[test]
fn when_the_shown_group_breaks_the_other_is_shown_and_it_rebuilds_itself() {
    let (log, symbols) = (new_log(LANES), ["BTC", "ETH"].map(str::to_owned));
    // Again and again, so that it is away for longer than it may be.
    static BROKEN: AtomicU32 = AtomicU32::new(0);
    let breaks: Tamper =
        |tick| assert!(tick.seq != 500 || BROKEN.fetch_add(1, Ordering::Relaxed) >= 4, "broken on purpose");
    let pair = Pair::start_with(&log, 1, [Some(breaks), None], DeskConfig::default());
    let reader = pair.desk.view().subscribe();
    wait_until("both lead", || GroupName::BOTH.iter().all(|group| pair.health(*group).leader.is_some()));
    write(&log, &symbols, 1..500);
    pair.wait_current(&symbols, 499);
    let epoch = pair.health(GroupName::A).leader;
    write(&log, &symbols, [500]);
    wait_until("B is shown", || {
        let all = pair.desk.view().all();
        pair.desk.active() == GroupName::B && all.iter().all(|quote| quote.output.mark.seq == 500)
    });
    let switched = pair.desk.switched();
    // Whichever is seen first.
    let told = ["no leader", "rebuilt"].iter().any(|word| switched[0].reason.contains(word));
    assert!(switched[0].automatic && told, "{switched:?}");
    wait_until("it has rebuilt itself and leads again", || {
        pair.members[0][0].status().rebuilt > 1 && pair.health(GroupName::A).leader > epoch
    });
    assert!(pair.members[0][0].fault().unwrap().contains("broken on purpose"));
    write(&log, &symbols, 501..=1000);
    pair.wait_current(&symbols, 1000);
    wait_until("A may be shown", || {
        pair.desk.active() == GroupName::A || pair.desk.command(GroupName::A, false).is_ok()
    });
    check_seen(&reader, &symbols, 1000);
    assert_eq!(pair.desk.diff(), []);
}

#[test]
fn a_group_rebuilds_itself_when_it_is_asked_to() {
    let (log, symbols) = (new_log(LANES), names(5));
    let pair = Pair::start(&log, 1, [None, None]);
    write(&log, &symbols, 1..=300);
    pair.wait_current(&symbols, 300);
    let before = pair.health(GroupName::B).leader.unwrap();
    pair.desk.rebuild(GroupName::B).unwrap();
    wait_until("B leads anew", || pair.health(GroupName::B).leader.is_some_and(|epoch| epoch > before));
    assert_eq!(pair.members[1][0].status().rebuilt, 1);
    write(&log, &symbols, 301..=400);
    pair.wait_current(&symbols, 400);
    pair.desk.command(GroupName::B, false).unwrap().unwrap();
    assert_eq!((pair.desk.diff(), pair.desk.view().stats().gaps), (vec![], 0));
}

#[test]
fn when_a_leader_ends_its_standby_goes_on_where_it_was() {
    let (log, symbols) = (new_log(LANES), names(10));
    let mut pair = Pair::start(&log, 2, [None, None]);
    let reader = pair.desk.view().subscribe();
    let mut seq = 0;
    for _ in 0..5 {
        write(&log, &symbols, seq + 1..=seq + 100);
        seq += 100;
        wait_until("both members of A are there, and one leads", || {
            pair.members[0].iter().filter(|member| member.status().leads.is_some()).count() == 1
                && pair.members[0].iter().all(|member| !member.status().status.rebuilding)
        });
        let leader = pair.members[0].iter().position(|member| member.status().leads.is_some()).unwrap();
        let epoch = pair.members[0][leader].status().leads.unwrap();
        drop(pair.members[0].remove(leader));
        write(&log, &symbols, seq + 1..=seq + 100);
        seq += 100;
        wait_until("the other leads", || pair.members[0][0].status().leads.is_some_and(|new| new > epoch));
        pair.add(GroupName::A, None);
    }
    pair.wait_current(&symbols, seq);
    check_seen(&reader, &symbols, seq);
    let counts: Vec<_> = pair.members.iter().flatten().map(|member| member.status().status).collect();
    assert!(
        counts.iter().all(|status| (status.violations, status.duplicates, status.lost) == (0, 0, 0)),
        "{counts:?}"
    );
}

/// A leader that does not know that it is none any more.
#[test]
fn a_leader_that_was_paused_is_refused_and_follows() {
    let (log, symbols) = (new_log(LANES), names(3));
    let pair = Pair::start(&log, 1, [None, None]);
    write(&log, &symbols, 1..=10);
    pair.wait_current(&symbols, 10);
    let old = pair.members[0][0].status().leads.unwrap();
    // Another has led meanwhile.
    let cache = pair.caches[0].clone();
    let status = crate::cache::Status { node: "other".into(), epoch: old + 5, ..Default::default() };
    let batch = crate::cache::Batch { status: Some(status), ..Default::default() };
    cache.write(old + 5, &batch).unwrap();
    write(&log, &symbols, 11..=20);
    wait_until("its write is refused", || pair.members[0][0].status().refused >= 1);
    wait_until("it does not lead in the old epoch", || pair.members[0][0].status().leads != Some(old));
    assert!(cache.read().unwrap().refused >= 1);
    wait_until("readers see the last ticks", || {
        pair.desk.view().all().iter().all(|quote| quote.output.mark.seq == 20)
    });
    // Its lease is of our own process and knows nothing of the other: it comes to lead again once its epoch is above.
    wait_until("it leads again, above the other", || {
        pair.members[0][0].status().leads.is_some_and(|epoch| epoch > old + 5)
    });
}

#[test]
fn a_detected_event_is_told_once_though_both_groups_see_it() {
    let log = new_log(LANES);
    let pair = Pair::start(&log, 1, [None, None]);
    let events = pair.desk.view().subscribe_events();
    let mut ticks: Vec<FeedTick> = (1..=100).map(|seq| tick("BTC", seq)).collect();
    ticks[60].tick.price = Price(150 * SCALE);
    append(&log, &ticks);
    pair.wait_current(&["BTC".to_owned()], 100);
    let in_cache = |group| {
        let contents = pair.desk.contents(group).unwrap();
        contents.entries.iter().any(|entry| matches!(entry, crate::cache::Entry::Event(_)))
    };
    wait_until("both groups have told it", || GroupName::BOTH.into_iter().all(in_cache));
    let found: Vec<_> = events.recv_timeout(LONG).into_iter().chain(events.try_iter()).collect();
    assert_eq!(
        found.iter().map(|event| (event.kind, event.seq)).collect::<Vec<_>>(),
        [(EventKind::PriceSpike, 61)]
    );
    assert_eq!(pair.desk.view().stats().events, 1);
}

#[test]
fn a_gap_is_seen_as_stale_until_it_is_filled() {
    let log = new_log(LANES);
    let pair = Pair::start(&log, 1, [None, None]);
    let name = Symbol::parse("BTC").unwrap();
    let stale = || pair.desk.view().latest(name).map(|quote| quote.output.stale);
    append(&log, &[tick("BTC", 1), tick("BTC", 3)]);
    wait_until("it is stale", || stale() == Some(true));
    wait_until("in both", || GroupName::BOTH.iter().all(|group| pair.health(*group).stale == 1));
    append(&log, &[tick("BTC", 2)]);
    wait_until("it is not", || stale() == Some(false));
    wait_until("in neither", || GroupName::BOTH.iter().all(|group| pair.health(*group).stale == 0));
    let latest = pair.desk.view().latest(name).unwrap();
    assert_eq!((latest.output.mark.seq, latest.output.last), (3, tick("BTC", 3).tick.price));
}

#[test]
fn two_desks_show_the_same_group_and_a_new_one_what_they_showed() {
    let log = new_log(LANES);
    let pair = Pair::start(&log, 1, [None, None]);
    let other = || Desk::start(pair.caches.clone().map(|cache| Arc::new(cache) as _), desk_config()).unwrap();
    let second = other();
    wait_until("both lead", || GroupName::BOTH.iter().all(|group| pair.health(*group).leader.is_some()));
    pair.desk.command(GroupName::B, false).unwrap().unwrap();
    wait_until("the other desk follows", || second.active() == GroupName::B);
    assert_eq!(other().active(), GroupName::B);
}

/// A cache that can be away, and comes back empty.
#[derive(Default)]
struct Forgetful {
    inner: std::sync::Mutex<MemoryCache>,
    away: AtomicBool,
}

impl Forgetful {
    fn now(&self) -> Result<MemoryCache, crate::cache::CacheError> {
        if self.away.load(Ordering::Relaxed) {
            return Err(crate::cache::CacheError::Away { place: "here".into(), reason: "on purpose".into() });
        }
        Ok(self.inner.lock().unwrap().clone())
    }
}

impl GroupCache for Forgetful {
    fn write(
        &self,
        epoch: u64,
        batch: &crate::cache::Batch,
    ) -> Result<crate::cache::Written, crate::cache::CacheError> {
        self.now()?.write(epoch, batch)
    }
    fn read(&self) -> Result<crate::cache::Contents, crate::cache::CacheError> {
        self.now()?.read()
    }
    fn subscribe(&self) -> Result<Box<dyn crate::cache::Subscription>, crate::cache::CacheError> {
        self.now()?.subscribe()
    }
    fn announce(&self, note: &crate::cache::MemberNote) -> Result<(), crate::cache::CacheError> {
        self.now()?.announce(note)
    }
    fn set_active(
        &self,
        active: crate::cache::Active,
    ) -> Result<crate::cache::Active, crate::cache::CacheError> {
        self.now()?.set_active(active)
    }
    fn ask_rebuild(&self) -> Result<(), crate::cache::CacheError> {
        self.now()?.ask_rebuild()
    }
}

#[test]
fn a_cache_that_lost_its_memory_gets_the_quiet_symbols_too() {
    let log = new_log(LANES);
    let cache = Arc::new(Forgetful::default());
    let lease = Box::new(LocalLeases::new().candidate("a", TTL));
    let config = MemberConfig::new(GroupName::A, "a", 1);
    let member = Member::start(&bus(&log), cache.clone(), lease, config).unwrap();
    let there = || {
        let entries = cache.read().map(|contents| contents.entries).unwrap_or_default();
        entries.iter().filter(|entry| matches!(entry, crate::cache::Entry::Quote(_))).count()
    };
    append(&log, &[tick("QUIET", 1), tick("BUSY", 1)]);
    wait_until("both are written", || there() == 2);
    cache.away.store(true, Ordering::Relaxed);
    // Seen to be away: only one of the two ticks again.
    append(&log, &[tick("BUSY", 2)]);
    wait_until("the member has noticed", || !member.status().cache_is_there);
    *cache.inner.lock().unwrap() = MemoryCache::new();
    cache.away.store(false, Ordering::Relaxed);
    wait_until("both are there again", || there() == 2);
}
