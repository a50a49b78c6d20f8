//! Durable before acknowledged, and what leaves the engine afterwards.

use std::sync::{Arc, Mutex};

use hoga_core::event::{Event, EventRecord, Reject};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, Seq, Timestamp};
use hoga_core::order::Side;
use hoga_engine::{Engine, ReplyTo, Space, Subscriber};
use hoga_log::event_log::{EventLog, MemoryLog};
use hoga_log::storage::SimStorage;

use crate::support::{
    Got, HandClock, HeldDisk, LONG, MARKET, Random, Replies, config, digest, flow, limit, settle, setup,
    start, submit_all, topics, wait_until,
};

fn memory() -> Arc<dyn EventLog> {
    Arc::new(MemoryLog::new())
}

#[derive(Clone, Default)]
struct Watcher {
    started_at: Arc<Mutex<Option<Seq>>>,
    seen: Arc<Mutex<Vec<EventRecord>>>,
}

impl Subscriber for Watcher {
    fn on_start(&mut self, exchange: &Exchange) {
        *self.started_at.lock().unwrap() = Some(exchange.position());
    }

    fn on_events(&mut self, events: &[EventRecord]) {
        self.seen.lock().unwrap().extend_from_slice(events);
    }
}

#[test]
fn nothing_leaves_before_the_sync() {
    let (disk, log, watcher) = (HeldDisk::new(), memory(), Watcher::default());
    let engine =
        Engine::start_on(disk.clone(), config(), log.clone(), vec![Box::new(watcher.clone())]).unwrap();
    let (handle, replies) = (engine.handle(), Replies::new());
    let bodies = setup();
    submit_all(&handle, &replies, 0, &bodies);
    replies.wait(bodies.len());
    let before = Seq(bodies.len() as u64);
    settle(&handle, before);
    let (events, messages) = (watcher.seen.lock().unwrap().len(), topics(&*log));

    disk.hold();
    submit_all(
        &handle,
        &replies,
        100,
        &[limit(1, Side::Sell, 10_000, 5, "s"), limit(2, Side::Buy, 10_000, 5, "b")],
    );
    let last = Seq(before.0 + 2);
    // Matching runs beside the journal's write …
    wait_until("matched", || handle.positions().matched.covers(last));
    disk.wait_standing();
    // … but everything that leaves stands still: the sync is held, so these can only be wrong in one direction.
    let positions = handle.positions();
    assert_eq!(positions.acked.seq(), before);
    assert_eq!(positions.durable.seq(), before);
    assert_eq!(positions.applied.seq(), before);
    assert_eq!(replies.now().len(), bodies.len());
    assert_eq!(watcher.seen.lock().unwrap().len(), events);
    assert_eq!(topics(&*log), messages);
    let open = handle.query(|exchange| exchange.open_order_count()).unwrap().wait(LONG).unwrap();
    assert_eq!(open, 0, "a query does not see what is not durable");

    disk.release();
    let got = replies.wait(bodies.len() + 2);
    let Got::Reply { seq, outcome: Ok(()), events, .. } = &got[bodies.len() + 1].1 else { panic!("{got:?}") };
    assert_eq!(*seq, last);
    assert!(events.iter().any(|event| matches!(event.event, Event::Trade(_))), "{events:?}");
    settle(&handle, last);
    assert_eq!(
        topics(&*log).values().map(Vec::len).sum::<usize>(),
        messages.values().map(Vec::len).sum::<usize>() + 9
    );
    assert_eq!(*watcher.started_at.lock().unwrap(), Some(Seq(0)));
    engine.shutdown().unwrap();
}

#[test]
fn replies_come_once_in_order_and_carry_what_the_topics_carry() {
    let (disk, log, watcher) = (SimStorage::new(), memory(), Watcher::default());
    let engine = Engine::start_on(disk, config(), log.clone(), vec![Box::new(watcher.clone())]).unwrap();
    let (handle, replies) = (engine.handle(), Replies::new());
    let mut bodies = setup();
    bodies.extend(flow(7, 5_000));
    assert_eq!(submit_all(&handle, &replies, 0, &bodies), bodies.len());
    let got = replies.wait(bodies.len());
    engine.shutdown().unwrap();
    let mut all = Vec::new();
    for (index, (tag, got)) in got.iter().enumerate() {
        let Got::Reply { seq, outcome, events, .. } = got else { panic!("{got:?}") };
        assert_eq!((*tag, seq.0), (index as u64, index as u64 + 1));
        let refused = matches!(events[..], [EventRecord { event: Event::Rejected(_), .. }]);
        assert_eq!(outcome.is_err(), refused, "{got:?}");
        all.extend_from_slice(events);
    }
    assert_eq!(all, *watcher.seen.lock().unwrap(), "replies and subscribers get the same events");
    let published: usize = topics(&*log).values().map(Vec::len).sum();
    let expected: usize = all
        .iter()
        .map(|event| match event.event {
            Event::Level(_) => 0,
            Event::Order(_) => 2,
            _ => 1,
        })
        .sum();
    assert_eq!(published, expected);
}

#[test]
fn a_client_reads_its_own_writes() {
    let (disk, log) = (SimStorage::new(), memory());
    let engine = start(&disk, &config(), &log);
    let (handle, replies) = (engine.handle(), Replies::new());
    let bodies = setup();
    submit_all(&handle, &replies, 0, &bodies);
    replies.wait(bodies.len());
    for round in 1..=300 {
        submit_all(
            &handle,
            &replies,
            1_000,
            &[limit(1, Side::Buy, 9_000 + round % 50, 5, &format!("r-{round}"))],
        );
        replies.wait(bodies.len() + round as usize);
        let open = handle.query(|exchange| exchange.open_orders(AccountId(1), Some(MARKET)).len()).unwrap();
        assert_eq!(open.wait(LONG).unwrap(), round as usize);
    }
    engine.shutdown().unwrap();
}

#[test]
fn time_never_goes_back_even_when_the_clock_does() {
    let (disk, log, clock) = (SimStorage::new(), memory(), HandClock::at(1_000_000));
    let mut config = config();
    config.clock = clock.clone();
    let mut engine = start(&disk, &config, &log);
    let replies = Replies::new();
    let mut random = Random(1);
    let mut count = 0;
    for step in [2_000_000, 1_500_000, 3_000_000, 10, 3_000_001] {
        clock.set(step);
        submit_all(&engine.handle(), &replies, 0, &[limit(1 + random.below(3) as u32, Side::Buy, 1, 1, "t")]);
        count += 1;
        replies.wait(count);
        // The time of the journal's last command is held over a restart too.
        engine.shutdown().unwrap();
        engine = start(&disk, &config, &log);
    }
    let times: Vec<i64> = replies
        .now()
        .iter()
        .map(|(_, got)| if let Got::Reply { time, .. } = got { time.0 } else { panic!("{got:?}") })
        .collect();
    assert_eq!(times, [2_000_000, 2_000_000, 3_000_000, 3_000_000, 3_000_001]);
    engine.shutdown().unwrap();
}

#[test]
fn a_deadline_is_checked_against_the_sequencers_time() {
    let (disk, log, clock) = (SimStorage::new(), memory(), HandClock::at(5_000));
    let mut config = config();
    config.clock = clock;
    let engine = start(&disk, &config, &log);
    let replies = Replies::new();
    for (tag, deadline) in [(0, 4_999), (1, 5_000), (2, 0)] {
        let reply = ReplyTo::new(replies.clone(), tag);
        engine.handle().submit(hoga_core::command::Body::CreateAccount, Timestamp(deadline), reply).unwrap();
    }
    let outcomes: Vec<_> = replies
        .wait(3)
        .into_iter()
        .map(|(_, got)| if let Got::Reply { outcome, .. } = got { outcome } else { panic!("{got:?}") })
        .collect();
    assert_eq!(outcomes, [Err(Reject::DeadlinePassed), Ok(()), Ok(())]);
    engine.shutdown().unwrap();
}

#[test]
fn the_replica_is_compared_with_the_matcher_while_it_runs() {
    let (disk, log) = (SimStorage::new(), memory());
    let engine = start(&disk, &config(), &log);
    let (handle, replies) = (engine.handle(), Replies::new());
    let mut bodies = setup();
    bodies.extend(flow(11, 3_000));
    submit_all(&handle, &replies, 0, &bodies);
    replies.wait(bodies.len());
    settle(&handle, Seq(bodies.len() as u64));
    let metrics = handle.metrics();
    assert!(metrics.chain_checks > 0 && metrics.chain_checks <= metrics.batches, "{metrics:?}");
    assert_eq!(metrics.commands, bodies.len() as u64);
    assert!(metrics.rejected > 0 && metrics.messages > 0 && metrics.syncs > 0, "{metrics:?}");
    let first = digest(&handle);
    assert_eq!(first, digest(&handle));
    engine.shutdown().unwrap();
}
