use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::ring::*;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn cancels_get_in_when_orders_are_refused() {
    let (sender, mut receiver) = channel(8, 3);
    for order in 0..5 {
        sender.try_send(order).unwrap();
    }
    assert_eq!(sender.try_send(5), Err(Full(5)));
    for cancel in 100..103 {
        assert_eq!(sender.try_send(6), Err(Full(6)));
        sender.try_send_reserved(cancel).unwrap();
    }
    assert_eq!(sender.try_send_reserved(103), Err(Full(103)));
    assert_eq!((sender.len(), receiver.len(), receiver.capacity()), (8, 8, 8));
    let mut got = Vec::new();
    assert_eq!(receiver.drain(4, |message| got.push(message)), 4);
    sender.try_send(7).unwrap();
    assert_eq!(sender.try_send(8), Err(Full(8)));
    receiver.drain(100, |message| got.push(message));
    assert_eq!(got, [0, 1, 2, 3, 4, 100, 101, 102, 7]);
}

proptest! {
    /// Against a queue: the same answers to any sequence of calls, also when positions wrap around the ring many times.
    #[test]
    fn behaves_like_a_bounded_queue(
        exponent in 0u32..5,
        reserve in 0usize..16,
        calls in prop::collection::vec((0u8..4, 0usize..7), 0..200),
    ) {
        let capacity = 1 << exponent;
        let reserve = reserve.min(capacity - 1);
        let (sender, mut receiver) = channel(capacity, reserve);
        let mut model = VecDeque::new();
        for (number, (call, amount)) in calls.into_iter().enumerate() {
            match call {
                0 | 1 => {
                    let room = model.len() < capacity - if call == 0 { reserve } else { 0 };
                    let sent = if call == 0 { sender.try_send(number) } else { sender.try_send_reserved(number) };
                    prop_assert_eq!(sent, if room { Ok(()) } else { Err(Full(number)) });
                    if room {
                        model.push_back(number);
                    }
                }
                _ => {
                    let mut got = Vec::new();
                    receiver.drain(amount, |message| got.push(message));
                    let expected: Vec<usize> = model.drain(..amount.min(model.len())).collect();
                    prop_assert_eq!(got, expected);
                }
            }
            prop_assert_eq!(receiver.len(), model.len());
            prop_assert_eq!(receiver.wait(Duration::ZERO), !model.is_empty());
        }
    }
}

/// Several producers, one of them with cancels: nothing is lost, doubled or reordered, and orders never take the reserve.
#[test]
fn producers_run_together() {
    const PRODUCERS: u64 = 3;
    const EACH: u64 = 30_000;
    let (sender, mut receiver) = channel::<(u64, u64)>(64, 16);
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let sender = sender.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    let mut message = (producer, number);
                    loop {
                        let result = if producer == 0 {
                            sender.try_send_reserved(message)
                        } else {
                            sender.try_send(message)
                        };
                        let Err(Full(back)) = result else { break };
                        message = back;
                        std::thread::yield_now();
                    }
                }
            });
        }
        drop(sender);
        let mut next = [0; PRODUCERS as usize];
        loop {
            if !receiver.wait(LONG) {
                assert!(receiver.is_closed(), "a message or the end comes in time");
                if !receiver.wait(Duration::ZERO) {
                    break;
                }
            }
            assert!(receiver.len() <= 64);
            receiver.drain(10, |(producer, number)| {
                assert_eq!(number, next[producer as usize]);
                next[producer as usize] += 1;
            });
        }
        assert_eq!(next, [EACH; PRODUCERS as usize]);
    });
}

#[test]
fn a_parked_receiver_is_woken() {
    let (sender, mut receiver) = channel::<u32>(2, 0);
    let (answer, mut answers) = channel::<u32>(2, 0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..500 {
                assert!(receiver.wait(LONG));
                receiver.drain(1, |message| answer.try_send(message + 1).unwrap());
            }
        });
        for number in 0..500 {
            sender.try_send(number).unwrap();
            assert!(answers.wait(LONG));
            answers.drain(1, |message| assert_eq!(message, number + 1));
        }
    });
}

#[test]
fn what_is_left_is_dropped_once() {
    let token = Arc::new(());
    let (sender, mut receiver) = channel(8, 0);
    for _ in 0..8 {
        sender.try_send(token.clone()).unwrap();
    }
    let mut kept = Vec::new();
    receiver.drain(3, |message| kept.push(message));
    assert_eq!(Arc::strong_count(&token), 9);
    // A consumer that panics has consumed the message it panicked on, and no other.
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| receiver.drain(2, |_| panic!("x"))));
    assert!(panicked.is_err());
    assert_eq!((receiver.len(), Arc::strong_count(&token)), (4, 8));
    drop(receiver);
    assert!(sender.is_closed());
    assert!(sender.try_send(token.clone()).is_err());
    drop((sender, kept));
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn a_receiver_without_senders_does_not_wait() {
    let (sender, mut receiver) = channel::<u32>(2, 0);
    sender.try_send(1).unwrap();
    drop(sender);
    assert!(receiver.wait(LONG), "what was sent is still there");
    receiver.drain(1, |_| {});
    assert!(!receiver.wait(LONG) && receiver.is_closed() && receiver.is_empty());
}

#[test]
fn a_cursor_only_grows_and_wakes_those_who_wait() {
    let cursor = Cursor::new(5);
    cursor.advance(3);
    assert_eq!((cursor.get(), cursor.wait_beyond(4, LONG), cursor.wait_beyond(5, Duration::ZERO)), (5, 5, 5));
    std::thread::scope(|scope| {
        for after in [5, 6, 900] {
            let cursor = cursor.clone();
            scope.spawn(move || assert!(cursor.wait_beyond(after, LONG) > after));
        }
        for value in 6..=1000 {
            cursor.advance(value);
        }
    });
    cursor.close();
    assert_eq!(cursor.wait_beyond(1000, LONG), 1000, "a closed cursor lets nobody wait");
    assert!(cursor.is_closed() && !cursor.is_poisoned());
    cursor.poison();
    cursor.close();
    cursor.advance(2000);
    assert_eq!((cursor.get(), cursor.is_poisoned()), (1000, true), "a poisoned cursor is frozen");
}
