use std::sync::Mutex;

use hoga_core::ids::Timestamp;
use hoga_log::event_log::{EventLog, Message};

use super::*;
use crate::testing::{LONG, TOPIC, append, bus, new_log, tick, wait_until};

fn ends(log: &Arc<dyn EventLog>, lanes: u32) -> Vec<u64> {
    (0..lanes).map(|lane| log.end_offset(TOPIC, lane).unwrap()).collect()
}

/// What happened to one symbol.
#[derive(Default, Clone, Debug, PartialEq)]
struct Seen {
    seqs: Vec<u64>,
    loops: Vec<u32>,
}

#[derive(Default)]
struct Record {
    closed: Mutex<Vec<(String, Seen)>>,
    /// Symbols and numbers in the order in which loops have let go of them.
    flushed: Mutex<Vec<(Symbol, u64)>>,
    bad: Mutex<Vec<(u32, u64, String)>>,
}

struct Recorder {
    number: u32,
    record: Arc<Record>,
    held: Vec<(Symbol, u64)>,
    /// What a call for the symbol of this name takes.
    slow: Option<(&'static str, Arc<Mutex<Duration>>)>,
}

impl Handler for Recorder {
    type State = (Symbol, Seen);

    fn open(&mut self, symbol: Symbol) -> Self::State {
        (symbol, Seen::default())
    }

    fn ticks(&mut self, (symbol, seen): &mut Self::State, ticks: &[FeedTick]) {
        if let Some((name, cost)) = &self.slow
            && symbol.as_str() == *name
        {
            std::thread::sleep(*cost.lock().unwrap());
        }
        assert!(!ticks.is_empty() && ticks.iter().all(|tick| tick.symbol == *symbol));
        seen.seqs.extend(ticks.iter().map(|tick| tick.seq));
        self.held.extend(ticks.iter().map(|tick| (*symbol, tick.seq)));
        if seen.loops.last() != Some(&self.number) {
            seen.loops.push(self.number);
        }
    }

    fn bad(&mut self, lane: u32, message: &StoredMessage, reason: &str) {
        self.record.bad.lock().unwrap().push((lane, message.offset, reason.into()));
    }

    fn flush(&mut self, _: Option<Batch>) {
        self.record.flushed.lock().unwrap().append(&mut self.held);
    }

    fn close(&mut self, symbol: Symbol, (_, seen): Self::State) {
        self.record.closed.lock().unwrap().push((symbol.to_string(), seen));
    }
}

fn start(
    log: &Arc<dyn EventLog>,
    config: &PlantConfig,
    slow: Option<(&'static str, Arc<Mutex<Duration>>)>,
) -> (Plant, Arc<Record>) {
    let record = Arc::new(Record::default());
    let plant = Plant::start(&bus(log), config, &[], |number| Recorder {
        number,
        record: record.clone(),
        held: Vec::new(),
        slow: slow.clone(),
    });
    (plant.unwrap(), record)
}

/// Every symbol was closed once with all its ticks in order.
fn check(record: &Record, expected: &[(String, u64)]) -> Vec<(String, Seen)> {
    let mut closed = std::mem::take(&mut *record.closed.lock().unwrap());
    closed.sort_by(|a, b| a.0.cmp(&b.0));
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(
        closed.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        expected.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    for ((name, seen), (_, count)) in closed.iter().zip(&expected) {
        assert_eq!(seen.seqs, (1..=*count).collect::<Vec<_>>(), "{name}: all, once, in order");
        let flushed = record.flushed.lock().unwrap();
        let flushed = flushed.iter().filter(|(symbol, _)| symbol.as_str() == name).map(|(_, seq)| *seq);
        assert!(flushed.eq(1..=*count), "{name}: what came of them came out in order too");
    }
    closed
}

#[test]
fn each_symbol_gets_its_ticks_in_order_however_loops_readers_and_queues_are_cut() {
    for (lanes, loops, readers, queue) in
        [(1, 1, 1, 4), (3, 2, 1, 16), (6, 3, 2, 1024), (12, 6, 12, 65_536), (2, 8, 8, 64)]
    {
        let log = new_log(lanes);
        let names: Vec<String> = (0..40).map(|n| format!("S{n}")).collect();
        let config = PlantConfig { readers, queue, read: 7, batch: 5, ..PlantConfig::new(loops) };
        let (plant, record) = start(&log, &config, None);
        for seq in 1..=250 {
            append(&log, &names.iter().map(|name| tick(name, seq)).collect::<Vec<_>>());
        }
        assert!(plant.wait_handled(&ends(&log, lanes), LONG));
        let stats = plant.stats();
        assert_eq!(stats.loops.iter().map(|l| l.ticks).sum::<u64>(), 10_000);
        assert_eq!(stats.lanes, ends(&log, lanes));
        plant.stop().unwrap();
        check(&record, &names.iter().map(|name| (name.clone(), 250)).collect::<Vec<_>>());
    }
}

#[test]
fn what_was_read_is_handled_before_the_end() {
    let log = new_log(2);
    let (plant, record) = start(&log, &PlantConfig::new(2), None);
    append(&log, &(1..=5000).map(|seq| tick("A", seq)).collect::<Vec<_>>());
    wait_until("some are handled", || plant.stats().loops.iter().any(|l| l.ticks > 0));
    plant.stop().unwrap();
    let closed = record.closed.lock().unwrap();
    let seqs = &closed[0].1.seqs;
    assert_eq!(*seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

#[test]
fn reading_begins_where_it_is_told() {
    let log = new_log(1);
    append(&log, &(1..=10).map(|seq| tick("A", seq)).collect::<Vec<_>>());
    let record = Arc::new(Record::default());
    let new = |number| Recorder { number, record: record.clone(), held: Vec::new(), slow: None };
    let plant = Plant::start(&bus(&log), &PlantConfig::new(1), &[7], new).unwrap();
    assert!(plant.wait_handled(&[10], LONG));
    plant.stop().unwrap();
    assert_eq!(record.closed.lock().unwrap()[0].1.seqs, [8, 9, 10]);
}

#[test]
fn what_is_no_tick_is_told_with_its_place_and_the_rest_goes_on() {
    let log = new_log(1);
    append(&log, &[tick("A", 1)]);
    log.append(TOPIC, &[Message { key: b"A", value: Some(b"what"), time: Timestamp(1) }]).unwrap();
    log.append(TOPIC, &[Message { key: b"A", value: None, time: Timestamp(1) }]).unwrap();
    append(&log, &[tick("A", 2)]);
    let (plant, record) = start(&log, &PlantConfig::new(1), None);
    assert!(plant.wait_handled(&[4], LONG));
    assert_eq!(plant.stats().bad, 2);
    plant.stop().unwrap();
    check(&record, &[("A".into(), 2)]);
    let bad = record.bad.lock().unwrap();
    assert_eq!(bad.iter().map(|(lane, offset, _)| (*lane, *offset)).collect::<Vec<_>>(), [(0, 1), (0, 2)]);
    assert!(bad[0].2.contains("cut off") && bad[1].2.contains("without contents"), "{bad:?}");
}

#[test]
fn a_hot_symbol_moves_to_a_loop_of_its_own_and_back_and_keeps_its_order() {
    let log = new_log(1);
    let hot = Hot { window: Duration::from_millis(20), ..Hot::default() };
    let config = PlantConfig { hot: Some(hot), queue: 256, ..PlantConfig::new(1) };
    let cost = Arc::new(Mutex::new(Duration::from_millis(5)));
    let (plant, record) = start(&log, &config, Some(("HOT", cost.clone())));
    let mut seq = 0;
    let mut go_on = |until: &dyn Fn(&PlantStats) -> bool| {
        let begun = Instant::now();
        while !until(&plant.stats()) {
            assert!(begun.elapsed() < LONG, "{:?}", plant.stats());
            for _ in 0..3 {
                seq += 1;
                append(&log, &[tick("HOT", seq), tick("A", seq), tick("B", seq)]);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for round in 1..=3 {
        *cost.lock().unwrap() = Duration::from_millis(5);
        go_on(&|stats| stats.loops[0].moved == round);
        // Its ticks are handled on the other loop while those of the others go on here.
        let before = plant.stats();
        go_on(&|stats| {
            stats.loops[1..].iter().map(|l| l.ticks).sum::<u64>()
                > before.loops[1..].iter().map(|l| l.ticks).sum::<u64>() + 20
                && stats.loops[0].ticks > before.loops[0].ticks + 20
        });
        *cost.lock().unwrap() = Duration::ZERO;
        go_on(&|stats| stats.loops[0].returned == round && stats.loops[0].away == 0);
        let before = plant.stats();
        go_on(&|stats| stats.loops[0].ticks > before.loops[0].ticks + 20);
    }
    assert!(plant.wait_handled(&ends(&log, 1), LONG));
    plant.stop().unwrap();
    let closed = check(&record, &["HOT", "A", "B"].map(|name| (name.into(), seq)));
    let loops = |name: &str| closed.iter().find(|(found, _)| found == name).unwrap().1.loops.len();
    assert!(loops("HOT") >= 7, "here, away and back three times: {:?}", closed[2].1.loops);
    assert_eq!((loops("A"), loops("B")), (1, 1));
}

#[test]
fn a_hot_symbol_that_takes_longer_than_there_is_time_does_not_keep_its_neighbours() {
    let log = new_log(1);
    let hot = Hot { window: Duration::from_millis(20), ..Hot::default() };
    let config = PlantConfig { hot: Some(hot), ..PlantConfig::new(1) };
    let cost = Arc::new(Mutex::new(Duration::from_millis(20)));
    let (plant, record) = start(&log, &config, Some(("HOT", cost)));
    let mut seq = 0;
    wait_until("it is away", || {
        seq += 1;
        append(&log, &[tick("HOT", seq), tick("A", seq)]);
        plant.stats().loops[0].away == 1
    });
    let before = plant.stats();
    for _ in 0..200 {
        seq += 1;
        append(&log, &[tick("HOT", seq), tick("A", seq)]);
        std::thread::sleep(Duration::from_micros(500));
    }
    assert!(plant.wait_handled(&ends(&log, 1), LONG));
    let after = plant.stats();
    // Ticks that had to wait were handled together: 200 of them at 20 ms each would be 4 s.
    let calls = after.loops[1..].iter().map(|l| l.calls).sum::<u64>()
        - before.loops[1..].iter().map(|l| l.calls).sum::<u64>();
    assert!(calls < 100, "{calls} calls");
    plant.stop().unwrap();
    check(&record, &["HOT", "A"].map(|name| (name.into(), seq)));
}

#[test]
fn a_panic_of_a_handler_is_told() {
    struct Breaks;
    impl Handler for Breaks {
        type State = ();
        fn open(&mut self, _: Symbol) {}
        fn ticks(&mut self, (): &mut (), _: &[FeedTick]) {
            panic!("broken on purpose");
        }
        fn bad(&mut self, _: u32, _: &StoredMessage, _: &str) {}
        fn flush(&mut self, _: Option<Batch>) {}
        fn close(&mut self, _: Symbol, (): ()) {}
    }
    let log = new_log(2);
    append(&log, &[tick("A", 1), tick("B", 1)]);
    let plant = Plant::start(&bus(&log), &PlantConfig::new(2), &[], |_| Breaks).unwrap();
    assert!(!plant.wait_handled(&ends(&log, 2), Duration::from_secs(5)));
    let fault = plant.stop().unwrap_err().to_string();
    assert!(fault.contains("broken on purpose"), "{fault}");
}

#[test]
fn a_plant_that_cannot_work_is_refused_by_name() {
    let log = new_log(1);
    let record = Arc::new(Record::default());
    let good = PlantConfig::new(1);
    for spoil in [
        PlantConfig { loops: 0, ..good.clone() },
        PlantConfig { queue: 1, ..good.clone() },
        PlantConfig { hot: Some(Hot { back_below: 250, ..Hot::default() }), ..good.clone() },
    ] {
        let new = |number| Recorder { number, record: record.clone(), held: Vec::new(), slow: None };
        assert!(Plant::start(&bus(&log), &spoil, &[], new).is_err(), "{spoil:?}");
    }
}

/// The number of a tick at which [`Fails`] fails.
const POISON: u64 = 1_000_000;

/// Takes 5 ms for each call for a symbol that begins with HOT.
struct Fails;

impl Handler for Fails {
    type State = Symbol;
    fn open(&mut self, symbol: Symbol) -> Symbol {
        symbol
    }
    fn ticks(&mut self, symbol: &mut Symbol, ticks: &[FeedTick]) {
        assert!(ticks.iter().all(|tick| tick.seq != POISON), "broken on purpose");
        if symbol.as_str().starts_with("HOT") {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    fn bad(&mut self, _: u32, _: &StoredMessage, _: &str) {}
    fn flush(&mut self, _: Option<Batch>) {}
    fn close(&mut self, _: Symbol, _: Symbol) {}
}

/// A plant whose loops take one message at a time, with HOT and HOT2 on the one loop for hot symbols; and the number of their next ticks.
fn with_two_away(log: &Arc<dyn EventLog>) -> (Plant, u64) {
    let hot = Hot { window: Duration::from_millis(20), loops: 1, ..Hot::default() };
    let config = PlantConfig { hot: Some(hot), queue: 1024, batch: 1, ..PlantConfig::new(1) };
    let plant = Plant::start(&bus(log), &config, &[], |_| Fails).unwrap();
    let mut seq = 0;
    wait_until("both are away", || {
        seq += 1;
        append(log, &[tick("HOT", seq), tick("HOT2", seq), tick("A", seq)]);
        plant.stats().loops[0].away == 2
    });
    (plant, seq + 1)
}

#[test]
fn when_a_hot_loop_fails_the_plant_says_so_and_ends() {
    let log = new_log(1);
    let (plant, next) = with_two_away(&log);
    append(&log, &[tick("HOT", POISON)]);
    wait_until("it has failed", || !plant.is_running());
    // More than its queue holds: nobody waits for it.
    append(&log, &(next..next + 2000).flat_map(|seq| [tick("HOT", seq), tick("A", seq)]).collect::<Vec<_>>());
    wait_until("the others go on", || plant.lanes() == ends(&log, 1));
    let fault = plant.stop().unwrap_err().to_string();
    assert!(fault.contains("broken on purpose"), "{fault}");
}

#[test]
fn a_loop_does_not_wait_for_a_symbol_that_a_failed_loop_had() {
    let log = new_log(1);
    let (plant, next) = with_two_away(&log);
    // While the loop works on these, HOT is calm for so long that it is called back; the mark of that waits behind the tick that fails.
    let mut backlog: Vec<FeedTick> = (next..next + 150).map(|seq| tick("HOT2", seq)).collect();
    backlog.push(tick("HOT2", POISON));
    append(&log, &backlog);
    wait_until("it has failed", || !plant.is_running());
    // More than may wait for one that is on its way back.
    append(&log, &(next..next + 2000).flat_map(|seq| [tick("HOT", seq), tick("A", seq)]).collect::<Vec<_>>());
    wait_until("the others go on", || plant.lanes() == ends(&log, 1));
    let fault = plant.stop().unwrap_err().to_string();
    assert!(fault.contains("broken on purpose"), "{fault}");
}
