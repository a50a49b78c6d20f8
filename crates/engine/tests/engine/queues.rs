//! Full queues and shutdown.

use std::sync::mpsc;
use std::sync::{Arc, Barrier};

use hoga_core::command::Body;
use hoga_core::ids::{Seq, Timestamp};
use hoga_core::order::Side;
use hoga_engine::{Lost, ReplyTo, Space, SubmitError};
use hoga_log::event_log::{EventLog, MemoryLog};
use hoga_log::journal::Durability;
use hoga_log::storage::SimStorage;

use crate::support::{Got, HeldDisk, LONG, Replies, cancel, config, limit, setup, start, submit_all};

fn memory() -> Arc<dyn EventLog> {
    Arc::new(MemoryLog::new())
}

#[test]
fn a_full_ring_refuses_orders_first_and_lets_cancels_in() {
    let (disk, log) = (HeldDisk::new(), memory());
    let mut config = config();
    (config.ring_capacity, config.ring_reserve) = (64, 16);
    let engine = start(&disk, &config, &log);
    let (handle, replies) = (engine.handle(), Replies::new());
    disk.hold();
    // The matcher goes on until all its buffers wait for the sync; then the ring fills.
    let mut accepted = 0_u64;
    let mut submit = |body: Body| {
        let result = handle.submit(body, Timestamp(0), ReplyTo::new(replies.clone(), accepted));
        accepted += u64::from(result.is_ok());
        result
    };
    let mut refusals = 0;
    // The matcher may still take some out after the first refusal; when it stands still, every further order is refused.
    while refusals < 1_000 {
        match submit(limit(1, Side::Buy, 100, 1, "a")) {
            Ok(()) => refusals = 0,
            Err(error) => {
                assert_eq!(error, SubmitError::Busy);
                refusals += 1;
                std::thread::yield_now();
            }
        }
    }
    let mut cancels = 0;
    while submit(cancel(1, 1)).is_ok() {
        cancels += 1;
        assert_eq!(submit(limit(1, Side::Buy, 100, 1, "a")), Err(SubmitError::Busy), "orders stay out");
    }
    assert_eq!(cancels, 16, "the reserve is for cancels");
    assert_eq!(submit(cancel(1, 1)), Err(SubmitError::Busy));
    assert!(handle.metrics().busy >= 1_000);
    disk.release();
    let got = replies.wait(accepted as usize);
    let tags: Vec<u64> = got.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(
        tags,
        (0..accepted).collect::<Vec<_>>(),
        "every accepted command is answered once, refused ones never"
    );
    engine.shutdown().unwrap();
    assert_eq!(replies.now().len(), accepted as usize);
}

#[test]
fn queries_are_bounded() {
    let (disk, log) = (SimStorage::new(), memory());
    let mut config = config();
    config.query_capacity = 4;
    let engine = start(&disk, &config, &log);
    let handle = engine.handle();
    let barrier = Arc::new(Barrier::new(2));
    let there = barrier.clone();
    let (entered, wait_entered) = mpsc::channel();
    let slow = handle
        .query(move |_| {
            entered.send(()).unwrap();
            there.wait();
        })
        .unwrap();
    wait_entered.recv_timeout(LONG).unwrap();
    let waiting: Vec<_> = (0..4).map(|_| handle.query(|exchange| exchange.position()).unwrap()).collect();
    assert_eq!(handle.query(|_| ()).err(), Some(SubmitError::Busy));
    barrier.wait();
    slow.wait(LONG).unwrap();
    for ticket in waiting {
        assert_eq!(ticket.wait(LONG).unwrap(), Seq(0));
    }
    engine.shutdown().unwrap();
    assert_eq!(handle.query(|_| ()).err(), Some(SubmitError::Stopped));
}

#[test]
fn shutdown_answers_everything_and_closes() {
    for durability in [Durability::Sync, Durability::Write, Durability::None] {
        let (disk, log) = (SimStorage::new(), memory());
        let mut config = config();
        config.durability = durability;
        let engine = start(&disk, &config, &log);
        let (handle, replies) = (engine.handle(), Replies::new());
        let mut bodies = setup();
        bodies.extend((0..900).map(|index| limit(1, Side::Buy, 100 + index % 7, 1, &format!("q-{index}"))));
        assert_eq!(submit_all(&handle, &replies, 0, &bodies), bodies.len());
        engine.shutdown().unwrap();
        let got = replies.now();
        assert_eq!(got.len(), bodies.len(), "{durability:?}");
        assert!(got.iter().all(|(_, got)| matches!(got, Got::Reply { .. })));
        let positions = handle.positions();
        assert_eq!(positions.applied.seq(), Seq(bodies.len() as u64));
        assert_eq!(
            handle.submit(Body::CreateAccount, Timestamp(0), ReplyTo::new(replies.clone(), 9)),
            Err(SubmitError::Stopped)
        );
        assert_eq!(replies.now().len(), bodies.len(), "a refused command has no reply");
        let again = start(&disk, &config, &log);
        assert_eq!(again.started().replayed, bodies.len() as u64);
        again.shutdown().unwrap();
    }
}

#[test]
fn a_command_that_meets_the_shutdown_is_answered_or_refused() {
    for round in 0..20 {
        let (disk, log) = (SimStorage::new(), memory());
        let engine = start(&disk, &config(), &log);
        let replies = Replies::new();
        let barrier = Arc::new(Barrier::new(3));
        let threads: Vec<_> = (0..2_u64)
            .map(|thread| {
                let (handle, replies, barrier) = (engine.handle(), replies.clone(), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    let mut accepted = 0_u64;
                    for index in 0..2_000 {
                        let reply = ReplyTo::new(replies.clone(), thread * 10_000 + index);
                        match handle.submit(Body::CreateAccount, Timestamp(0), reply) {
                            Ok(()) => accepted += 1,
                            Err(SubmitError::Busy) => {}
                            Err(SubmitError::Stopped) => break,
                        }
                    }
                    accepted
                })
            })
            .collect();
        barrier.wait();
        (0..round * 50).for_each(|_| std::thread::yield_now());
        engine.shutdown().unwrap();
        let accepted: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        let got = replies.wait(accepted as usize);
        assert_eq!(got.len() as u64, accepted);
        assert!(
            got.iter().all(|(_, got)| matches!(got, Got::Reply { .. } | Got::Lost(Lost::NotTaken))),
            "an orderly end leaves no unknown outcome"
        );
    }
}
