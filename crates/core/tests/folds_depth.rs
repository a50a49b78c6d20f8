//! Depth copies: the cases of other systems, and copies that follow a book through diffs.

use hoga_core::event::Level;
use hoga_core::folds::depth::{
    Applied, DepthBook, DepthDiff, DepthError, DepthSync, DiffBuilder, MOST_BUFFERED,
};
use hoga_core::ids::MarketId;
use hoga_core::money::{Price, Qty};
use hoga_core::order::Side;
use proptest::prelude::*;

fn level(update_id: u64, side: Side, price: i64, qty: i64) -> Level {
    Level { market: MarketId(0), side, price: Price(price), qty: Qty(qty), update_id }
}

fn diff(first: u64, last: u64, bids: &[(i64, i64)], asks: &[(i64, i64)]) -> DepthDiff {
    let levels = |rows: &[(i64, i64)]| rows.iter().map(|(price, qty)| (Price(*price), Qty(*qty))).collect();
    DepthDiff { first, last, previous: first - 1, bids: levels(bids), asks: levels(asks) }
}

fn snapshot(update_id: u64, bids: &[(i64, i64)], asks: &[(i64, i64)]) -> DepthBook {
    let of = diff(1, 1, bids, asks);
    DepthBook::from_snapshot(update_id, of.bids, of.asks)
}

/// Price and quantity of each level, best first.
type Rows = Vec<(i64, i64)>;

fn shown(book: &DepthBook) -> (Rows, Rows) {
    let side = |side| book.levels(side).map(|(price, qty)| (price.0, qty.0)).collect();
    (side(Side::Buy), side(Side::Sell))
}

/// C1: only diffs come; they wait for a snapshot, those that it has are dropped, the first of the rest spans `lastUpdateId + 1`.
#[test]
fn c1_diffs_wait_for_the_snapshot() {
    let mut sync = DepthSync::new();
    for message in [
        diff(95, 98, &[(90, 1)], &[]),
        diff(99, 100, &[(91, 1)], &[]),
        diff(101, 103, &[(91, 0)], &[(95, 4)]),
        diff(104, 104, &[(92, 7)], &[]),
    ] {
        sync.on_diff(message).unwrap();
        assert!(sync.needs_snapshot());
    }
    sync.on_snapshot(snapshot(101, &[(91, 5), (90, 2)], &[(96, 3)])).unwrap();
    assert_eq!(shown(sync.book().unwrap()), (vec![(92, 7), (90, 2)], vec![(95, 4), (96, 3)]));
    assert_eq!(sync.book().unwrap().update_id(), 104);
    sync.on_diff(diff(105, 106, &[(92, 0)], &[])).unwrap();
    sync.on_diff(diff(105, 106, &[(92, 9)], &[])).unwrap(); // a repeated message changes nothing
    assert_eq!(shown(sync.book().unwrap()).0, [(90, 2)]);
}

/// C2: snapshot 100, first event 103 to 105: a gap is seen, the copy is not used, and a newer snapshot heals it.
#[test]
fn c2_a_snapshot_that_is_too_old_is_refused() {
    let mut sync = DepthSync::new();
    sync.on_diff(diff(103, 105, &[(90, 1)], &[])).unwrap();
    assert_eq!(sync.on_snapshot(snapshot(100, &[], &[])), Err(DepthError::Gap { expected: 101, got: 103 }));
    assert!(sync.book().is_none());
    sync.on_snapshot(snapshot(104, &[(90, 9)], &[])).unwrap();
    assert_eq!(shown(sync.book().unwrap()).0, [(90, 1)]);
    // The same in mid-stream: the copy goes at the gap, and the message that showed it is not lost.
    assert_eq!(
        sync.on_diff(diff(107, 108, &[(89, 2)], &[])),
        Err(DepthError::Gap { expected: 106, got: 107 })
    );
    assert!(sync.book().is_none());
    sync.on_snapshot(snapshot(106, &[(90, 1)], &[])).unwrap();
    assert_eq!(shown(sync.book().unwrap()).0, [(90, 1), (89, 2)]);
}

/// C5 and C6: a diff names its first and last update, and the last of the one before.
#[test]
fn c5_c6_diffs_carry_first_last_and_previous() {
    let mut builder = DiffBuilder::after(10);
    assert_eq!(builder.take(), None);
    builder.add(&level(11, Side::Buy, 90, 5)).unwrap();
    builder.add(&level(12, Side::Sell, 95, 3)).unwrap();
    builder.add(&level(13, Side::Buy, 90, 4)).unwrap();
    builder.add(&level(14, Side::Buy, 91, 0)).unwrap();
    let first = builder.take().unwrap();
    assert_eq!((first.first, first.last, first.previous), (11, 14, 10));
    assert_eq!(first.bids, [(Price(91), Qty(0)), (Price(90), Qty(4))]);
    assert_eq!(first.asks, [(Price(95), Qty(3))]);
    assert_eq!(builder.add(&level(14, Side::Buy, 91, 0)), Ok(Applied::Duplicate));
    assert_eq!(builder.take(), None);
    builder.add(&level(15, Side::Sell, 95, 0)).unwrap();
    let second = builder.take().unwrap();
    assert_eq!((second.first, second.last, second.previous), (15, 15, 14));
    assert_eq!(builder.add(&level(17, Side::Sell, 95, 0)), Err(DepthError::Gap { expected: 16, got: 17 }));
}

/// C8: a lost delete leaves a dead quote; the copy sees that it is crossed and asks for a snapshot.
#[test]
fn c8_a_crossed_copy_is_refused() {
    let mut sync = DepthSync::new();
    sync.on_snapshot(snapshot(1, &[(90, 1), (92, 1)], &[(95, 1)])).unwrap();
    // The delete of bid 92 got lost, then an ask comes below it.
    assert_eq!(sync.on_diff(diff(2, 2, &[], &[(91, 1)])), Err(DepthError::Crossed { update_id: 2 }));
    assert!(sync.needs_snapshot());
    // The snapshot that is asked for now has both changes.
    sync.on_snapshot(snapshot(2, &[(90, 1)], &[(91, 1), (95, 1)])).unwrap();
    assert_eq!(shown(sync.book().unwrap()), (vec![(90, 1)], vec![(91, 1), (95, 1)]));
    // A snapshot that contradicts the stream is no better.
    let mut sync = DepthSync::new();
    sync.on_diff(diff(2, 2, &[], &[(91, 1)])).unwrap();
    assert_eq!(sync.on_snapshot(snapshot(1, &[(92, 1)], &[])), Err(DepthError::Crossed { update_id: 2 }));
}

#[test]
fn levels_are_absolute_and_in_sequence() {
    let mut book = DepthBook::new();
    assert!(book.is_empty());
    assert_eq!(book.apply(&level(1, Side::Buy, 90, 5)), Ok(Applied::Yes));
    assert_eq!(book.apply(&level(2, Side::Buy, 90, 3)), Ok(Applied::Yes));
    assert_eq!(book.apply(&level(2, Side::Buy, 90, 3)), Ok(Applied::Duplicate));
    assert_eq!(book.apply(&level(4, Side::Sell, 95, 3)), Err(DepthError::Gap { expected: 3, got: 4 }));
    assert_eq!((book.qty(Side::Buy, Price(90)), book.update_id()), (Qty(3), 2));
    assert_eq!(book.apply(&level(3, Side::Buy, 90, 0)), Ok(Applied::Yes));
    assert_eq!(book.apply(&level(4, Side::Buy, 77, 0)), Ok(Applied::Yes), "removing what is not there");
    assert!(book.is_empty() && book.best(Side::Buy).is_none() && !book.is_crossed());
    for price in 1..=5 {
        book.set(Side::Buy, Price(price), Qty(1));
        book.set(Side::Sell, Price(price + 10), Qty(1));
    }
    book.truncate(2);
    assert_eq!(shown(&book), (vec![(5, 1), (4, 1)], vec![(11, 1), (12, 1)]));
    assert_eq!((book.len(Side::Buy), book.len(Side::Sell)), (2, 2));
}

#[test]
fn waiting_diffs_are_bounded() {
    let mut sync = DepthSync::new();
    let most = MOST_BUFFERED as u64;
    for id in 1..=most + 5 {
        sync.on_diff(diff(id, id, &[(90, 1)], &[])).unwrap();
    }
    assert_eq!(sync.on_snapshot(snapshot(4, &[], &[])), Err(DepthError::Gap { expected: 5, got: 6 }));
    sync.on_snapshot(snapshot(5, &[], &[])).unwrap();
    assert_eq!(sync.book().unwrap().update_id(), most + 5);
}

proptest! {
    /// A copy fed with diffs of any size, from any snapshot, equals the book at every message.
    #[test]
    fn copies_follow_the_book(
        changes in proptest::collection::vec((any::<bool>(), 1_i64..40, 0_i64..4, any::<bool>()), 1..200),
        at in any::<prop::sample::Index>(),
    ) {
        let (mut book, mut builder, mut sync) = (DepthBook::new(), DiffBuilder::after(0), DepthSync::new());
        let at = at.index(changes.len());
        for (i, (buy, price, qty, send)) in changes.into_iter().enumerate() {
            // Bids below 50, asks above: never crossed.
            let (side, price) = if buy { (Side::Buy, price) } else { (Side::Sell, 50 + price) };
            let change = level(i as u64 + 1, side, price, qty);
            prop_assert_eq!(book.apply(&change), Ok(Applied::Yes));
            prop_assert_eq!(builder.add(&change), Ok(Applied::Yes));
            if i == at {
                sync.on_snapshot(book.clone()).unwrap();
            }
            if send {
                let diff = builder.take().unwrap();
                prop_assert!(diff.bids.is_sorted_by(|a, b| a.0 > b.0) && diff.asks.is_sorted_by(|a, b| a.0 < b.0));
                sync.on_diff(diff).unwrap();
                if let Some(copy) = sync.book() {
                    prop_assert_eq!(copy, &book);
                }
            }
        }
        prop_assert!(sync.book().is_some());
    }
}
