//! The bare book against a list that is searched from end to end, and at its limits.

use hoga_core::book::{Book, BookError, Match};
use hoga_core::order::Side;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    id: u64,
    side: Side,
    price: i64,
    qty: i64,
}

/// Orders in the order of their arrival at their price.
#[derive(Default)]
struct Naive(Vec<Order>);

impl Naive {
    fn best(&self, side: Side) -> Option<usize> {
        let worse = |price: i64| if side == Side::Buy { -price } else { price };
        (0..self.0.len()).filter(|i| self.0[*i].side == side).min_by_key(|i| (worse(self.0[*i].price), *i))
    }

    fn add(&mut self, mut order: Order, immediate: bool) -> (Vec<Match>, i64) {
        let mut matches = Vec::new();
        while order.qty > 0
            && let Some(at) = self.best(order.side.opposite())
        {
            let maker = self.0[at];
            let reaches = match order.side {
                Side::Buy => maker.price <= order.price,
                Side::Sell => maker.price >= order.price,
            };
            if !reaches {
                break;
            }
            let qty = order.qty.min(maker.qty);
            matches.push(Match { maker: maker.id, price: maker.price, qty });
            order.qty -= qty;
            self.0[at].qty -= qty;
            if self.0[at].qty == 0 {
                self.0.remove(at);
            }
        }
        if order.qty > 0 && !immediate {
            self.0.push(order);
        }
        (matches, order.qty)
    }

    fn take(&mut self, id: u64) -> Option<Order> {
        let at = self.0.iter().position(|o| o.id == id)?;
        Some(self.0.remove(at))
    }

    /// As they would trade.
    fn sorted(&self, side: Side) -> Vec<(u64, i64, i64)> {
        let mut orders: Vec<Order> = self.0.iter().filter(|o| o.side == side).copied().collect();
        orders.sort_by_key(|o| if side == Side::Buy { -o.price } else { o.price });
        orders.iter().map(|o| (o.id, o.price, o.qty)).collect()
    }
}

fn compare(book: &Book, naive: &Naive) {
    assert_eq!(book.len(), naive.0.len());
    for side in [Side::Buy, Side::Sell] {
        let walked: Vec<_> = book.walk(side).map(|o| (o.id, o.price, o.qty)).collect();
        let expected = naive.sorted(side);
        assert_eq!(walked, expected);
        assert_eq!(book.best(side), expected.first().map(|o| o.1));
        assert_eq!(book.worst(side), expected.last().map(|o| o.1));
        assert_eq!(book.front(side).map(|o| o.id), expected.first().map(|o| o.0));
        assert_eq!(book.levels(side).count(), book.level_count(side));
        for level in book.levels(side) {
            let of: Vec<_> = expected.iter().filter(|o| o.1 == level.price).collect();
            assert_eq!(level.total, of.iter().map(|o| o.2).sum::<i64>());
            assert_eq!(level.orders as usize, of.len());
            assert_eq!(book.total_at(side, level.price), level.total);
        }
    }
}

#[test]
fn agrees_with_a_list() {
    // Narrow and wide price ranges: few levels with many orders, and many levels with few.
    for (seed, spread) in [(1_u64, 6_i64), (2, 40), (3, 2000), (4, 200_000)] {
        let mut book = Book::new();
        let mut naive = Naive::default();
        let mut state = seed;
        let mut roll = |sides: i64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64 % sides
        };
        for round in 0..12_000_i64 {
            let id = 1 + roll(400) as u64;
            let side = if roll(2) == 0 { Side::Buy } else { Side::Sell };
            let lean = if side == Side::Buy { 0 } else { spread / 2 };
            let price = roll(spread) + lean + round / 100;
            let qty = 1 + roll(30);
            let mut matches = Vec::new();
            match roll(10) {
                0..5 => {
                    let immediate = roll(6) == 0;
                    let result = book.add(id, side, price, qty, immediate, |m| matches.push(m));
                    if naive.0.iter().any(|o| o.id == id) {
                        assert_eq!(result, Err(BookError::DuplicateId(id)));
                    } else {
                        let (expected, left) = naive.add(Order { id, side, price, qty }, immediate);
                        assert_eq!((result, matches), (Ok(left), expected));
                    }
                }
                5..8 => {
                    let got = book.cancel(id).ok().map(|o| (o.id, o.side, o.price, o.qty));
                    assert_eq!(got, naive.take(id).map(|o| (o.id, o.side, o.price, o.qty)));
                }
                _ => {
                    let result = book.modify(id, price, qty, |m| matches.push(m));
                    match naive.take(id) {
                        Some(old) => {
                            let (expected, left) = naive.add(Order { id, side: old.side, price, qty }, false);
                            assert_eq!((result, matches), (Ok(left), expected));
                        }
                        None => assert_eq!(result, Err(BookError::UnknownId(id))),
                    }
                }
            }
            if round % 20 == 0 {
                compare(&book, &naive);
            }
        }
        compare(&book, &naive);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut book = Book::new();
    let none = |m: Match| panic!("{m:?}");
    assert_eq!(book.add(1, Side::Buy, -1, 1, false, none), Err(BookError::OutOfRange { price: -1, qty: 1 }));
    assert_eq!(book.add(1, Side::Buy, 1, 0, false, none), Err(BookError::OutOfRange { price: 1, qty: 0 }));
    assert_eq!(book.add(1, Side::Buy, 5, i64::MAX, false, none), Ok(i64::MAX));
    assert_eq!(book.add(2, Side::Buy, 5, 1, false, none), Err(BookError::LevelFull(5)));
    assert_eq!(book.add(2, Side::Buy, 4, i64::MAX, false, none), Ok(i64::MAX));
    assert_eq!(book.modify(2, 5, 1, none), Err(BookError::LevelFull(5)));
    assert_eq!(book.modify(2, 4, -1, none), Err(BookError::OutOfRange { price: 4, qty: -1 }));
    assert_eq!(book.modify(1, 5, 7, none), Ok(7));
    assert_eq!(book.add(3, Side::Buy, 5, 1, false, none), Ok(1));
    assert_eq!((book.total_at(Side::Buy, 5), book.total_at(Side::Buy, 4), book.len()), (8, i64::MAX, 3));
    assert_eq!(book.add(4, Side::Sell, i64::MAX, i64::MAX, false, none), Ok(i64::MAX));
    assert_eq!(book.best(Side::Sell), Some(i64::MAX));
    assert_eq!(book.add(5, Side::Sell, 0, 1, true, |_| {}), Ok(0));
}
