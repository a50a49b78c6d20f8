//! The law of [`Lease`], checked on any implementation. Panics where it is broken.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Held, Lease};

/// Asks; a service that is away for a moment, on a busy machine, is asked again.
fn poll(lease: &mut Box<dyn Lease>) -> Option<Held> {
    let begun = Instant::now();
    loop {
        match lease.poll() {
            Ok(held) => return held,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "the service is there: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Polls until this candidate leads; in which epoch, and how long it took.
fn lead(lease: &mut Box<dyn Lease>, within: Duration) -> (Held, Duration) {
    let begun = Instant::now();
    loop {
        if let Some(held) = poll(lease) {
            return (held, begun.elapsed());
        }
        assert!(begun.elapsed() < within, "it does not lead within {within:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs the suite; prints how long takeovers took.
#[expect(clippy::print_stdout, reason = "figures of a test")]
pub fn run(new: impl Fn(Duration) -> Box<dyn Lease>, ttl: Duration) {
    let long = ttl * 4 + Duration::from_secs(5);
    let (mut a, mut b) = (new(ttl), new(ttl));

    // One leads, and keeps its epoch while it renews; the other does not lead meanwhile.
    let (mut first, _) = lead(&mut a, long);
    let until = Instant::now() + ttl * 2;
    let mut asked = Instant::now();
    while Instant::now() < until {
        let (of_a, of_b) = (poll(&mut a), poll(&mut b));
        if asked.elapsed() > ttl / 2 {
            // This machine stood still: it was not renewed in time, and says nothing.
            b.resign();
            (first, _) = lead(&mut a, long);
        } else {
            assert_eq!(of_a.map(|held| held.epoch), Some(first.epoch), "who renews keeps its epoch");
            assert_eq!(of_b, None, "two lead at once");
        }
        asked = Instant::now();
        std::thread::sleep(ttl / 20);
    }

    // Who resigns hands over at once.
    a.resign();
    let (second, took) = lead(&mut b, ttl);
    println!("lease: takeover after resigning: {took:?}");
    assert!(second.epoch > first.epoch, "epochs rise: {} after {}", second.epoch, first.epoch);
    assert_eq!(poll(&mut a), None, "who resigned leads no longer");

    // Who is silent loses it, but not before its end.
    let held = poll(&mut b).expect("it leads");
    let mut early = 0;
    let begun = Instant::now();
    let third = loop {
        if let Some(held) = poll(&mut a) {
            break held;
        }
        early += u32::from(Instant::now() < held.until);
        assert!(begun.elapsed() < long, "nobody takes over from one that is silent");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(Instant::now() >= held.until, "it was taken over before its end");
    assert!(early > 0, "the other was asked for while it lasted");
    println!("lease: takeover from a silent leader: {:?} with a length of {ttl:?}", begun.elapsed());
    assert!(third.epoch > second.epoch, "epochs rise: {} after {}", third.epoch, second.epoch);

    // Who was silent does not get its old epoch back.
    assert_eq!(poll(&mut b), None, "the old leader leads beside the new one");
    a.resign();
    let (fourth, _) = lead(&mut b, long);
    assert!(fourth.epoch > third.epoch, "epochs rise: {} after {}", fourth.epoch, third.epoch);

    // Who resigns and asks again at once is a candidate like the others: whoever leads next does so in a new epoch.
    b.resign();
    let begun = Instant::now();
    let fifth = loop {
        if let Some(held) = poll(&mut b).or_else(|| poll(&mut a)) {
            break held;
        }
        assert!(begun.elapsed() < long, "nobody leads after one has resigned");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(
        fifth.epoch > fourth.epoch,
        "who resigned leads on in epoch {} after {}",
        fifth.epoch,
        fourth.epoch
    );

    // New candidates go on where the old ones were.
    drop((a, b));
    let (sixth, _) = lead(&mut new(ttl), long);
    assert!(sixth.epoch > fifth.epoch, "epochs rise over restarts: {} after {}", sixth.epoch, fifth.epoch);
}

/// One time of leading, as the one who led knows it.
struct Term {
    epoch: u64,
    /// When it had been told so first.
    begun: Instant,
    /// Until when it was told that it leads, or when it gave that up.
    end: Instant,
}

/// Several candidates that ask, resign, and fall silent, in threads of their own: their terms must not overlap, and later ones have higher epochs.
pub fn contend(new: impl Fn(Duration) -> Box<dyn Lease>, ttl: Duration) {
    let terms: Mutex<Vec<Term>> = Mutex::default();
    let candidates: Vec<_> = (0..3).map(|_| new(ttl)).collect();
    let over = Instant::now() + ttl * 12;
    std::thread::scope(|scope| {
        for (number, mut lease) in candidates.into_iter().enumerate() {
            let terms = &terms;
            scope.spawn(move || {
                let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number as u64 + 1);
                let mut term: Option<Term> = None;
                while Instant::now() < over {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    match lease.poll().unwrap_or_else(|error| panic!("the service is there: {error}")) {
                        Some(held) => match &mut term {
                            Some(term) if term.epoch == held.epoch => term.end = term.end.max(held.until),
                            _ => {
                                let begun = Instant::now();
                                let now = Term { epoch: held.epoch, begun, end: held.until };
                                terms.lock().expect("no thread panics with it").extend(term.replace(now));
                            }
                        },
                        None => terms.lock().expect("no thread panics with it").extend(term.take()),
                    }
                    match (random >> 33) % 40 {
                        0 if term.is_some() => std::thread::sleep(ttl * 3 / 2),
                        1..4 if term.is_some() => {
                            let now = Instant::now();
                            lease.resign();
                            if let Some(mut term) = term.take() {
                                term.end = term.end.min(now);
                                terms.lock().expect("no thread panics with it").push(term);
                            }
                        }
                        _ => std::thread::sleep(ttl / 40),
                    }
                }
                terms.lock().expect("no thread panics with it").extend(term);
            });
        }
    });
    let mut terms = terms.into_inner().expect("no thread panics with it");
    terms.sort_by_key(|term| term.begun);
    assert!(terms.len() > 3, "it changed hands {} times only", terms.len());
    for pair in terms.windows(2) {
        let (old, new) = (&pair[0], &pair[1]);
        assert!(new.epoch > old.epoch, "epoch {} after {}", new.epoch, old.epoch);
        assert!(
            new.begun >= old.end,
            "{} leads {:?} before the end of {}",
            new.epoch,
            old.end - new.begun,
            old.epoch
        );
    }
}
