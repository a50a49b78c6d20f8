//! The ring and the cursor under loom, which goes through all interleavings and all values that the memory model allows.
//!
//! The files of the ring are compiled a second time here, over loom's primitives in the place of the standard ones.

#![allow(clippy::duplicate_mod)] // They are compiled twice on purpose.

#[path = "../ring.rs"]
#[allow(dead_code)]
mod ring;
#[path = "../wait.rs"]
mod wait;

mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex};

    /// Looking again before sleeping adds interleavings and nothing new.
    pub(crate) const SPINS: std::ops::RangeInclusive<u32> = 0..=0;
}

use std::time::Duration;

use loom::thread;

/// Loom's clock stands still, so a wait that is not ended by a wake is found as a deadlock.
const LONG: Duration = Duration::from_secs(1_000_000);

fn check(threads: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    // More than three forced switches find nothing more in practice, and take hours.
    model.preemption_bound = Some(3);
    model.max_threads = threads;
    model.check(f);
}

#[test]
fn model_two_producers_and_a_receiver_that_sleeps() {
    check(3, || {
        let (sender, mut receiver) = ring::channel::<u32>(2, 0);
        let other = sender.clone();
        let one = thread::spawn(move || sender.try_send(1).unwrap());
        let two = thread::spawn(move || other.try_send(2).unwrap());
        let mut sum = 0;
        let mut count = 0;
        while count < 2 {
            if receiver.wait(LONG) {
                count += receiver.drain(2, |message| sum += message);
            } else {
                thread::yield_now();
            }
        }
        assert_eq!(sum, 3);
        one.join().unwrap();
        two.join().unwrap();
    });
}

#[test]
fn model_slots_are_used_again_only_when_they_are_free() {
    check(2, || {
        let (sender, mut receiver) = ring::channel::<Box<u32>>(1, 0);
        let producer = thread::spawn(move || {
            let mut sent = 0;
            for number in 0..2 {
                sent += u32::from(sender.try_send(Box::new(number)).is_ok());
            }
            sent
        });
        let mut got = 0;
        for _ in 0..2 {
            got += receiver.drain(1, |message| assert!(*message < 2)) as u32;
        }
        let sent = producer.join().unwrap();
        // What is left is dropped with the ring; loom reports it when it is not.
        assert!(got <= sent);
    });
}

#[test]
fn model_orders_never_take_the_reserve() {
    check(3, || {
        let (sender, receiver) = ring::channel::<u32>(2, 1);
        let other = sender.clone();
        let one = thread::spawn(move || sender.try_send(1).is_ok());
        let two = thread::spawn(move || (other.try_send(2).is_ok(), other.try_send_reserved(3).is_ok()));
        let (first, (second, cancel)) = (one.join().unwrap(), two.join().unwrap());
        assert!(first != second, "one of the two orders finds the one slot");
        assert!(cancel, "the cancel finds the reserve");
        assert_eq!(receiver.len(), 2);
    });
}

#[test]
fn model_a_cursor_wakes_those_who_wait() {
    check(3, || {
        let cursor = ring::Cursor::new(0);
        let (writer, poisoner) = (cursor.clone(), cursor.clone());
        let cell = loom::sync::Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let written = cell.clone();
        let advance = thread::spawn(move || {
            written.store(7, loom::sync::atomic::Ordering::Relaxed);
            writer.advance(1);
        });
        let poison = thread::spawn(move || poisoner.poison());
        let at = cursor.wait_beyond(0, LONG);
        if at > 0 {
            assert_eq!(cell.load(loom::sync::atomic::Ordering::Relaxed), 7);
        } else {
            assert!(cursor.is_poisoned());
        }
        advance.join().unwrap();
        poison.join().unwrap();
    });
}
