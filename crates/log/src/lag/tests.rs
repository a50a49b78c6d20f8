use std::sync::Arc;

use hoga_core::ids::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::event_log::{EventLog, MemoryLog, Message, TopicSpec};

/// A queue with a producer and a consumer of given rates, sampled once a second.
struct Queue {
    meter: LagMeter,
    seconds: u64,
    end: f64,
    consumed: f64,
    start: u64,
    report: LagReport,
}

impl Queue {
    fn new() -> Queue {
        Queue {
            meter: LagMeter::new(LagOptions::default()),
            seconds: 0,
            end: 0.0,
            consumed: 0.0,
            start: 0,
            report: LagReport::default(),
        }
    }

    fn sample(&mut self) -> LagReport {
        self.report = self.meter.feed(Sample {
            at: Duration::from_secs(self.seconds),
            start: self.start,
            end: self.end as u64,
            consumed: self.consumed as u64,
            age: None,
        });
        self.report
    }

    /// So many seconds at these rates; the consumer never reads more than there is.
    fn run(&mut self, seconds: u64, production: f64, consumption: f64) -> LagReport {
        for _ in 0..seconds {
            self.seconds += 1;
            self.end += production;
            self.consumed = (self.consumed + consumption).min(self.end);
            self.sample();
        }
        self.report
    }
}

#[test]
fn keeping_up() {
    let mut queue = Queue::new();
    let report = queue.run(60, 1000.0, 5000.0);
    assert_eq!(report.verdict, Verdict::KeepingUp);
    assert_eq!((report.records, report.drain, report.age), (0, Some(Duration::ZERO), Some(Duration::ZERO)));
    assert!(
        (report.production - 1000.0).abs() < 1.0 && (report.consumption - 1000.0).abs() < 1.0,
        "{report:?}"
    );
    assert_eq!(report.verdict.to_string(), "keeping up");
}

#[test]
fn a_surge_says_when_it_will_be_over() {
    let mut queue = Queue::new();
    queue.run(120, 1000.0, 2000.0);
    // Ten times as much comes; the consumer does what it can.
    let report = queue.run(12, 10_000.0, 2000.0);
    assert!(matches!(report.verdict, Verdict::Surge { after: true, .. }), "{report:?}");
    assert_eq!((report.trend, report.drain), (Trend::Growing, None));
    // Alone, it takes what waits ÷ 2000 a second.
    assert_eq!(report.drain_alone.unwrap().as_secs(), (12 * 8000) / 2000);
    // It is over: 96 000 wait, and 1000 a second more are read than come.
    let report = queue.run(10, 1000.0, 2000.0);
    let Verdict::Surge { drain, after: false } = report.verdict else { panic!("{report:?}") };
    assert_eq!((report.trend, drain.as_secs()), (Trend::Shrinking, 86));
    assert_eq!(report.verdict.to_string(), "surge, will drain in 86 s");
    let report = queue.run(86, 1000.0, 2000.0);
    assert_eq!((report.records, report.verdict), (0, Verdict::KeepingUp));
}

#[test]
fn a_surge_that_stays_is_not_a_surge_for_ever() {
    let mut queue = Queue::new();
    queue.run(120, 1000.0, 2000.0);
    assert_eq!(queue.run(20, 4000.0, 2000.0).verdict.as_str(), "surge");
    assert_eq!(queue.run(1800, 4000.0, 2000.0).verdict, Verdict::ConsumerSlow);
}

#[test]
fn a_slow_consumer_is_not_called_a_surge() {
    let mut queue = Queue::new();
    queue.run(120, 1000.0, 2000.0);
    let report = queue.run(30, 1000.0, 400.0);
    assert_eq!(report.verdict, Verdict::ConsumerSlow);
    assert_eq!((report.trend, report.drain), (Trend::Growing, None));
    assert_eq!(report.verdict.to_string(), "consumer slow");
    // As fast as production again: the lag stays, so it is still too slow.
    let report = queue.run(30, 1000.0, 1000.0);
    assert_eq!((report.verdict, report.trend, report.drain), (Verdict::ConsumerSlow, Trend::Steady, None));
    // Faster: it drains, and there was no surge.
    let report = queue.run(12, 1000.0, 2000.0);
    assert!(matches!(report.verdict, Verdict::CatchingUp { .. }), "{report:?}");
}

#[test]
fn stalled() {
    let mut queue = Queue::new();
    queue.run(60, 100.0, 200.0);
    assert_eq!(queue.run(3, 100.0, 0.0).verdict, Verdict::KeepingUp, "a commit may take a while");
    let report = queue.run(12, 100.0, 0.0);
    assert_eq!(report.verdict, Verdict::Stalled);
    assert_eq!((report.drain, report.drain_alone, report.consumption), (None, None, 0.0));
}

#[test]
fn a_quiet_topic_is_neither_behind_nor_stalled() {
    let mut queue = Queue::new();
    queue.run(20, 100.0, 100.0);
    assert_eq!(queue.run(3600, 0.0, 0.0).verdict, Verdict::KeepingUp);
    // One message after an hour, read with the next sample.
    queue.end += 1.0;
    let report = queue.run(1, 0.0, 0.0);
    assert_eq!(
        (report.records, report.verdict, report.behind),
        (1, Verdict::KeepingUp, Duration::from_secs(1))
    );
    assert_eq!(queue.run(1, 0.0, 10.0).records, 0);
    // And one that nobody reads.
    queue.end += 1.0;
    assert_eq!(queue.run(10, 0.0, 0.0).verdict, Verdict::Stalled);
}

#[test]
fn a_group_that_never_ran_is_stalled_and_a_restarted_one_catches_up() {
    let mut queue = Queue::new();
    queue.end = 50_000.0;
    assert_eq!(queue.run(20, 0.0, 0.0).verdict, Verdict::Stalled);
    let report = queue.run(5, 0.0, 1000.0);
    assert!(matches!(report.verdict, Verdict::CatchingUp { .. }), "{report:?}");
    // It begins again from nothing: rates do not become negative and nothing is counted twice.
    queue.consumed = 0.0;
    let report = queue.sample();
    assert_eq!((report.records, report.consumption), (50_000, 0.0));
    let report = queue.run(5, 0.0, 1000.0);
    assert_eq!((report.records, report.consumption as u64), (45_000, 1000));
    assert_eq!(report.drain, Some(Duration::from_secs(45)));
}

#[test]
fn a_topic_made_anew_starts_a_new_meter() {
    let mut queue = Queue::new();
    queue.run(30, 1000.0, 2000.0);
    (queue.end, queue.consumed) = (10.0, 0.0);
    let report = queue.run(1, 0.0, 0.0);
    assert_eq!((report.records, report.usual_production), (10, None));
}

#[test]
fn a_commit_below_the_start_of_the_log_is_not_lag_but_loss() {
    let mut queue = Queue::new();
    (queue.end, queue.start) = (1000.0, 900);
    let report = queue.sample();
    assert_eq!((report.records, report.lost), (100, 900));
    // It reads on from the start: what was gone is not consumption.
    (queue.seconds, queue.consumed) = (10, 950.0);
    let report = queue.sample();
    assert_eq!((report.records, report.lost, report.consumption), (50, 0, 5.0));
}

#[test]
fn a_place_beyond_the_end_is_no_lag() {
    let mut queue = Queue::new();
    (queue.end, queue.consumed) = (100.0, 120.0);
    assert_eq!(queue.sample().records, 0);
    (queue.seconds, queue.end) = (1, 130.0);
    assert_eq!(queue.sample().records, 10);
}

#[test]
fn commits_in_steps_do_not_look_like_movement() {
    let mut queue = Queue::new();
    queue.run(30, 1000.0, 2000.0);
    // Five seconds of messages wait, and each third second the group commits what came.
    queue.end += 5000.0;
    for second in 0..60u64 {
        let report = queue.run(1, 1000.0, if second % 3 == 2 { 3000.0 } else { 0.0 });
        if second > 15 {
            assert_eq!(report.trend, Trend::Steady, "{second} {report:?}");
            assert_eq!(report.verdict, Verdict::ConsumerSlow, "{second} {report:?}");
        }
    }
}

fn place(partition: u32) -> Place {
    Place { group: "g".into(), topic: "t".into(), partition }
}

#[test]
fn one_partition_that_is_behind_is_named() {
    let mut board = LagBoard::new(LagOptions::default());
    let mut groups = Vec::new();
    for second in 0..30u64 {
        for partition in 0..4 {
            let end = second * 100;
            let consumed = if partition == 2 { second * 20 } else { end };
            let at = Duration::from_secs(second);
            board.feed(&place(partition), Sample { at, start: 0, end, consumed, age: None });
        }
        groups = board.turn(Duration::from_secs(second));
    }
    let group = &groups[0];
    assert_eq!((group.skewed, group.partitions.len(), group.history.len()), (Some(2), 4, 30));
    assert_eq!((group.total.records, group.total.verdict), (29 * 80, Verdict::ConsumerSlow));
    assert_eq!((group.total.production.round(), group.total.drain), (400.0, None));
    assert_eq!(group.history.last(), Some(&(29 * 80)));
    let table = render(&groups, &|_| None);
    assert!(table.contains("consumer slow (most of it in partition 2)"), "{table}");
    assert!(table.lines().nth(2).is_some_and(|line| line.contains("partition 2")), "{table}");
    assert_eq!(board.turn(Duration::from_secs(120)), [], "what is not seen any more is forgotten");
}

#[test]
fn a_monitor_sees_groups_of_the_log_and_of_this_process() {
    let log = Arc::new(MemoryLog::new());
    log.create_topic(&TopicSpec::delete("t", 2, u64::MAX)).unwrap();
    for key in 0..40u8 {
        log.append("t", &[Message { key: &[key], value: Some(b"x"), time: Timestamp(1_000_000) }]).unwrap();
    }
    let ends: Vec<u64> = (0..2).map(|partition| log.end_offset("t", partition).unwrap()).collect();
    assert!(ends.iter().all(|end| *end > 2));
    log.commit("registered", "t", 0, 1).unwrap();
    // It has committed the start, but says that it is further.
    log.commit("here", "t", 1, 0).unwrap();
    let end = ends[1];
    let observe: Observe = Box::new(move |out| {
        let place = Place { group: "here".into(), topic: "t".into(), partition: 1 };
        out.push(Observed { place, consumed: end });
    });
    let every = Duration::from_millis(1);
    let monitor = LagMonitor::start(vec![log], observe, LagOptions::default(), every).unwrap();
    let watch = monitor.watch();
    assert!(watch.wait_round(Duration::from_secs(20)));
    let groups = watch.groups();
    let [here, registered] = groups.as_slice() else { panic!("{groups:?}") };
    assert_eq!((&*here.group, here.total.records), ("here", 0));
    assert_eq!((&*registered.group, registered.total.records), ("registered", ends[0] - 1));
    let age = registered.total.age.unwrap();
    assert!(age > Duration::from_secs(3600), "the message is of 1970: {age:?}");
}

proptest! {
    /// Against a queue that really drains: the time told is the time it takes.
    #[test]
    fn the_drain_time_is_right(
        backlog in 1_000u64..1_000_000,
        production in 0u32..5_000,
        faster in 1u32..5_000,
    ) {
        let mut queue = Queue::new();
        queue.end = backlog as f64;
        let (production, consumption) = (f64::from(production), f64::from(production + faster));
        queue.sample();
        let mut told = None;
        for _ in 0..3 {
            let report = queue.run(1, production, consumption);
            if report.records > 0 {
                told = report.drain.map(|drain| (queue.seconds, drain));
            }
        }
        if let Some((at, drain)) = told {
            let lag = backlog - u64::from(faster) * at;
            let expected = lag as f64 / f64::from(faster);
            prop_assert!((drain.as_secs_f64() - expected).abs() < 1e-6 * expected + 1e-6);
            let mut seconds = 0;
            while queue.report.records > 0 && seconds < 2_000_000 / u64::from(faster) + 10 {
                queue.run(1, production, consumption);
                seconds += 1;
            }
            let left = (at + drain.as_secs_f64().ceil() as u64).saturating_sub(queue.seconds - seconds);
            prop_assert_eq!(seconds, left);
        }
    }

    /// Whatever is fed, nothing overflows, and the numbers hang together.
    #[test]
    fn any_samples_give_a_report_that_hangs_together(
        samples in proptest::collection::vec((0u64..3_000, 0u64..500, 0u64..1_000, 0u64..1_200), 1..60),
    ) {
        let mut meter = LagMeter::new(LagOptions::default());
        let mut at = Duration::ZERO;
        for (millis, start, end, consumed) in samples {
            at += Duration::from_millis(millis);
            let report = meter.feed(Sample { at, start, end, consumed, age: None });
            prop_assert!(report.production >= 0.0 && report.consumption >= 0.0);
            prop_assert_eq!(report.records == 0, report.drain == Some(Duration::ZERO));
            if report.records == 0 {
                prop_assert_eq!(report.verdict, Verdict::KeepingUp);
            }
            if report.drain.is_none() {
                let draining = matches!(report.verdict, Verdict::CatchingUp { .. } | Verdict::Surge { after: false, .. });
                prop_assert!(!draining);
            }
        }
    }
}
