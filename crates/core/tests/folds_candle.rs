//! Candles: the cases of other systems as rows, and the laws against a naive model.

use hoga_core::folds::candle::{Candle, CandleFold, Interval, Tick, Update, filled, rollup};
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty, notional};
use hoga_core::order::Side;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MINUTE: i64 = 60_000_000;

fn tick(seconds: f64, id: u64, price: &str, qty: &str) -> Tick {
    let (price, qty) = (Price::parse(price).unwrap(), Qty::parse(qty).unwrap());
    Tick {
        time: Timestamp((seconds * 1e6) as i64),
        id: TradeId(id),
        price,
        qty,
        quote: notional(price, qty).unwrap(),
        taker_side: Side::Buy,
    }
}

fn folded(interval: Interval, ticks: &[Tick]) -> Vec<Candle> {
    let mut fold = CandleFold::new(interval, usize::MAX);
    for tick in ticks {
        fold.apply(tick);
    }
    fold.kept().copied().collect()
}

fn prices(candle: &Candle) -> [String; 4] {
    [candle.open, candle.high, candle.low, candle.close]
        .map(|p| p.to_string().trim_end_matches('0').to_owned())
}

/// Rows: case, ticks as (seconds, id, price, quantity) in order of arrival, the 1m candles as (minute, open, high, low, close, volume).
#[test]
fn cases_of_other_systems() {
    type Row = (&'static str, Vec<Tick>, Vec<(i64, [&'static str; 4], &'static str)>);
    let rows: Vec<Row> = vec![
        (
            "B2 open and close by trade id, not by arrival, when the times are equal",
            vec![tick(5.0, 2, "0.9481", "1"), tick(5.0, 1, "0.9519999", "1")],
            vec![(0, ["0.9519999", "0.9519999", "0.9481", "0.9481"], "2")],
        ),
        (
            "B3 close is the last by sequence at one timestamp",
            vec![tick(1.0, 7, "0.4832", "1"), tick(1.0, 8, "0.4835", "1")],
            vec![(0, ["0.4832", "0.4835", "0.4832", "0.4835"], "2")],
        ),
        (
            "B5 a trade of 00:00:59.9 belongs to 00:00 even when it arrives after one of 00:01:00.1",
            vec![tick(60.1, 2, "11.1", "1"), tick(59.9, 1, "10.1", "1")],
            vec![(0, ["10.1", "10.1", "10.1", "10.1"], "1"), (1, ["11.1", "11.1", "11.1", "11.1"], "1")],
        ),
        (
            "B6 a period without trades is flat at the close before it, volume 0",
            vec![tick(1.0, 1, "5.5", "3"), tick(121.0, 2, "6.5", "4")],
            vec![
                (0, ["5.5", "5.5", "5.5", "5.5"], "3"),
                (1, ["5.5", "5.5", "5.5", "5.5"], "0"),
                (2, ["6.5", "6.5", "6.5", "6.5"], "4"),
            ],
        ),
        (
            "B9 every field keeps the precision of its source: low ≤ open, close ≤ high",
            vec![tick(1.0, 1, "1.004", "1"), tick(2.0, 2, "1.0049", "1")],
            vec![(0, ["1.004", "1.0049", "1.004", "1.0049"], "2")],
        ),
    ];
    for (case, ticks, expected) in rows {
        let candles = folded(Interval::M1, &ticks);
        let until = Timestamp(candles.last().unwrap().open_time.0 + MINUTE);
        let all: Vec<Candle> = filled(candles, Interval::M1, Timestamp(0), until, None).collect();
        assert_eq!(all.len(), expected.len(), "{case}");
        for (candle, (minute, four, volume)) in all.iter().zip(expected) {
            assert_eq!(candle.open_time.0, minute * MINUTE, "{case}");
            assert_eq!(prices(candle), four.map(str::to_owned), "{case}");
            assert_eq!(candle.volume, Qty::parse(volume).unwrap(), "{case}");
        }
    }
}

/// B7: after hours there is a flat candle with volume 0, never the old volume again.
#[test]
fn b7_nothing_trades_nothing_is_repeated() {
    let mut fold = CandleFold::new(Interval::M1, 10);
    assert_eq!(fold.at(Timestamp(0)), None);
    fold.apply(&tick(1.0, 1, "9.5", "100"));
    for minute in 1..5 {
        let candle = fold.at(Timestamp(minute * MINUTE + 1)).unwrap();
        assert_eq!(candle, Candle::flat(Timestamp(minute * MINUTE), Price::parse("9.5").unwrap()));
    }
}

/// B10: a caller that asks for 6 candles from 05:57 across an outage gets 6 candles, not a jump to 07:00.
#[test]
fn b10_an_outage_leaves_no_hole() {
    let day = 18_596 * 86_400; // 2020-11-30
    let at = |hour: i64, minute: i64| Timestamp((day + hour * 3600 + minute * 60) * 1_000_000);
    let seconds = |time: Timestamp| time.0 as f64 / 1e6;
    let candles = folded(
        Interval::M1,
        &[tick(seconds(at(5, 59)), 1, "182.5", "1"), tick(seconds(at(7, 0)), 2, "183.5", "1")],
    );
    let previous = Price::parse("182.1").unwrap();
    let six: Vec<Candle> =
        filled(candles.clone(), Interval::M1, at(5, 57), at(6, 3), Some(previous)).collect();
    let times: Vec<Timestamp> = six.iter().map(|c| c.open_time).collect();
    assert_eq!(times, (0..6).map(|i| Timestamp(at(5, 57).0 + i * MINUTE)).collect::<Vec<_>>());
    assert_eq!(six.iter().map(|c| c.trades).collect::<Vec<_>>(), [0, 0, 1, 0, 0, 0]);
    assert_eq!(six[1].close, previous);
    assert_eq!(prices(&six[5])[3], "182.5");
    // Without a known close before it the sequence begins with the first trade; candles before `from` give the close they end with.
    assert_eq!(
        filled(candles.clone(), Interval::M1, at(5, 57), at(6, 3), None).next().unwrap().open_time,
        at(5, 59)
    );
    let later: Vec<Candle> = filled(candles, Interval::M1, at(6, 58), at(7, 2), None).collect();
    assert_eq!(
        later.iter().map(|c| (c.trades, prices(c)[3].clone())).collect::<Vec<_>>(),
        [(0, "182.5".to_owned()), (0, "182.5".to_owned()), (1, "183.5".to_owned()), (0, "183.5".to_owned())]
    );
}

/// B16: what a live chart is fed with never goes back in time; a late trade is a revision, and says so.
#[test]
fn b16_late_trades_revise_and_the_stream_never_goes_back() {
    let mut fold = CandleFold::new(Interval::M1, 10);
    let arrivals = [
        (0.5, 1, "10.5"),
        (61.0, 3, "12.5"),
        (59.0, 2, "11.5"), // late: minute 0 was closed when minute 1 opened
        (62.0, 4, "12.6"),
        (181.0, 6, "13.5"), // minute 2 stays empty
        (121.0, 5, "9.5"),  // late into the empty minute
    ];
    let mut live = Vec::new();
    let mut revised = Vec::new();
    for (seconds, id, price) in arrivals {
        match fold.apply(&tick(seconds, id, price, "1")) {
            Update::Updated(candle) => live.push(candle.open_time.0 / MINUTE),
            Update::Opened { candle, closed } => {
                live.extend(closed.map(|c| c.open_time.0 / MINUTE));
                live.push(candle.open_time.0 / MINUTE);
            }
            Update::Revised(candle) => {
                revised.push((candle.open_time.0 / MINUTE, candle.revision, prices(&candle)[3].clone()));
            }
            Update::TooOld { .. } => unreachable!(),
        }
    }
    assert!(live.is_sorted(), "{live:?}");
    assert_eq!(live, [0, 0, 1, 1, 1, 3]);
    assert_eq!(revised, [(0, 1, "11.5".to_owned()), (2, 1, "9.5".to_owned())]);
    // The flat candles behind a revised one follow it.
    let all: Vec<Candle> =
        filled(fold.kept().copied(), Interval::M1, Timestamp(0), Timestamp(5 * MINUTE), None).collect();
    let closes: Vec<String> = all.iter().map(|c| prices(c)[3].clone()).collect();
    assert_eq!(closes, ["11.5", "12.6", "9.5", "13.5", "13.5"]);
}

#[test]
fn sealing_closes_by_the_clock() {
    let mut fold = CandleFold::new(Interval::M1, 10);
    fold.apply(&tick(10.0, 1, "10.5", "1"));
    assert_eq!(fold.seal(Timestamp(59_999_999)), None);
    let closed = fold.seal(Timestamp(60_000_000)).unwrap();
    assert_eq!((closed.open_time.0, closed.trades), (0, 1));
    assert_eq!(fold.seal(Timestamp(61_000_000)), None, "told once");
    // It was told as closed, so a trade that still comes for it is a revision.
    assert!(
        matches!(fold.apply(&tick(59.0, 2, "11.5", "1")), Update::Revised(c) if c.revision == 1 && c.trades == 2)
    );
    assert!(matches!(fold.apply(&tick(61.0, 3, "12.5", "1")), Update::Opened { closed: None, .. }));
    assert!(matches!(fold.apply(&tick(62.0, 4, "12.5", "1")), Update::Updated(c) if c.revision == 0));
}

#[test]
fn what_is_no_longer_kept_is_told_as_too_old() {
    let mut fold = CandleFold::new(Interval::M1, 2);
    for minute in 0..4 {
        fold.apply(&tick(minute as f64 * 60.0, minute + 1, "10.5", "1"));
    }
    assert_eq!(fold.kept().count(), 2);
    assert_eq!(fold.apply(&tick(61.0, 9, "10.5", "1")), Update::TooOld { open_time: Timestamp(MINUTE) });
    assert!(matches!(fold.apply(&tick(121.0, 9, "10.5", "1")), Update::Revised(_)));
    // The same after a restart from stored candles.
    let stored: Vec<Candle> = fold.kept().copied().collect();
    let mut again = CandleFold::resume(Interval::M1, 2, stored);
    assert_eq!(again.apply(&tick(61.0, 9, "10.5", "1")), Update::TooOld { open_time: Timestamp(MINUTE) });
    assert!(matches!(again.apply(&tick(182.0, 10, "10.5", "1")), Update::Updated(c) if c.trades == 2));
}

#[test]
fn periods_begin_where_they_should() {
    // 2026-11-30 was a Monday; 22:17:20.5 UTC.
    let now = Timestamp(1_796_077_040_500_000);
    for (interval, floor) in [
        (Interval::S1, 1_796_077_040),
        (Interval::M1, 1_796_077_020),
        (Interval::M3, 1_796_076_900),
        (Interval::M5, 1_796_076_900),
        (Interval::M15, 1_796_076_900),
        (Interval::M30, 1_796_076_000),
        (Interval::H1, 1_796_076_000),
        (Interval::H4, 1_796_068_800),
        (Interval::D1, 1_795_996_800),
        (Interval::W1, 1_795_996_800),
    ] {
        assert_eq!(interval.floor(now), Timestamp(floor * 1_000_000), "{}", interval.as_str());
        assert_eq!(interval.next(now), Timestamp(floor * 1_000_000 + interval.micros()));
        assert_eq!(interval.floor(interval.next(now)), interval.next(now));
        assert_eq!(Interval::parse(interval.as_str()), Some(interval));
    }
    // The Sunday before belongs to the week of Monday 2026-11-23; times before the epoch too.
    assert_eq!(Interval::W1.floor(Timestamp(1_795_996_799_999_999)), Timestamp(1_795_392_000_000_000));
    assert_eq!(Interval::W1.floor(Timestamp(0)), Timestamp(-3 * 86_400_000_000));
    assert_eq!(Interval::M1.floor(Timestamp(-1)), Timestamp(-MINUTE));
    assert_eq!(Interval::parse("2m"), None);
    for interval in Interval::ALL {
        for extreme in [i64::MIN, i64::MAX] {
            let _ = (interval.floor(Timestamp(extreme)), interval.next(Timestamp(extreme)));
        }
    }
}

#[test]
fn vwap_is_cut_to_the_step() {
    let candles = folded(Interval::M1, &[tick(0.0, 1, "10.1", "1"), tick(1.0, 2, "10.3", "2")]);
    // (10.1 + 20.6) / 3 = 10.2333…
    for (step, vwap) in [("0.1", "10.2"), ("0.01", "10.23"), ("0.00000001", "10.23333333"), ("0.25", "10")] {
        assert_eq!(candles[0].vwap(Price::parse(step).unwrap()), Price::parse(vwap).unwrap());
    }
    assert_eq!(Candle::flat(Timestamp(0), Price(5)).vwap(Price(1)), Price::ZERO);
    assert_eq!(candles[0].vwap(Price::ZERO), Price::ZERO);
}

#[test]
fn sums_stop_at_the_highest_value() {
    let big = Tick { qty: Qty(i64::MAX - 1), quote: Amount(i64::MAX), ..tick(0.0, 1, "1", "1") };
    let candles = folded(Interval::M1, &[big, Tick { id: TradeId(2), ..big }]);
    assert_eq!((candles[0].volume, candles[0].quote_volume), (Qty(i64::MAX), Amount(i64::MAX)));
}

/// Trades over some hours, with times that collide, and an order of arrival.
fn ticks() -> impl Strategy<Value = (Vec<Tick>, Vec<Tick>)> {
    let one = (0_i64..4 * 3600 * 4, 1_i64..2000, 1_i64..1_000_000, any::<bool>());
    proptest::collection::vec(one, 1..120).prop_flat_map(|rows| {
        let mut times: Vec<i64> = rows.iter().map(|row| row.0 * 250_000).collect();
        times.sort_unstable();
        let ticks: Vec<Tick> = rows
            .iter()
            .zip(times)
            .enumerate()
            .map(|(i, (row, time))| Tick {
                time: Timestamp(time),
                id: TradeId(i as u64 + 1),
                price: Price(row.1 * 1_000_000),
                qty: Qty(row.2 * 100),
                quote: notional(Price(row.1 * 1_000_000), Qty(row.2 * 100)).unwrap(),
                taker_side: if row.3 { Side::Buy } else { Side::Sell },
            })
            .collect();
        (Just(ticks.clone()), Just(ticks).prop_shuffle())
    })
}

fn naive(interval: Interval, ticks: &[Tick]) -> Vec<Candle> {
    let mut sorted = ticks.to_vec();
    sorted.sort_by_key(|tick| (tick.time, tick.id));
    let mut periods: BTreeMap<Timestamp, Vec<Tick>> = BTreeMap::new();
    for tick in sorted {
        periods.entry(interval.floor(tick.time)).or_default().push(tick);
    }
    let candle = |(open_time, ticks): (Timestamp, Vec<Tick>)| {
        let bought = || ticks.iter().filter(|t| t.taker_side == Side::Buy);
        let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
        Candle {
            open_time,
            open: first.price,
            high: ticks.iter().map(|t| t.price).max().unwrap(),
            low: ticks.iter().map(|t| t.price).min().unwrap(),
            close: last.price,
            volume: Qty(ticks.iter().map(|t| t.qty.0).sum()),
            quote_volume: Amount(ticks.iter().map(|t| t.quote.0).sum()),
            trades: ticks.len() as u64,
            taker_base: Qty(bought().map(|t| t.qty.0).sum()),
            taker_quote: Amount(bought().map(|t| t.quote.0).sum()),
            first_trade: first.id,
            last_trade: last.id,
            first_time: first.time,
            last_time: last.time,
            revision: 0,
        }
    };
    periods.into_iter().map(candle).collect()
}

fn unrevised(candles: impl IntoIterator<Item = Candle>) -> Vec<Candle> {
    candles.into_iter().map(|candle| Candle { revision: 0, ..candle }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn folds_equal_the_naive_model((ordered, shuffled) in ticks()) {
        for interval in Interval::ALL {
            let expected = naive(interval, &ordered);
            prop_assert_eq!(&folded(interval, &ordered), &expected);
            prop_assert_eq!(unrevised(folded(interval, &shuffled)), expected);
        }
    }

    /// The merge law: candles of any interval, rolled up, are exactly the candles of every longer one, with or without the flat ones.
    #[test]
    fn short_candles_roll_up_to_long_ones((ordered, _) in ticks()) {
        for (i, short) in Interval::ALL.into_iter().enumerate() {
            let parts = folded(short, &ordered);
            // Filling hours with 1s candles would only be slow: seconds are filled in their own minute.
            let until = short.next(parts[parts.len() - 1].open_time);
            let whole: Vec<Candle> = if short == Interval::S1 {
                parts.clone()
            } else {
                filled(parts.clone(), short, Timestamp(0), until, None).collect()
            };
            for long in Interval::ALL.into_iter().skip(i).filter(|long| long.micros() % short.micros() == 0) {
                let expected = folded(long, &ordered);
                prop_assert_eq!(&rollup(parts.clone(), long).collect::<Vec<_>>(), &expected);
                let rolled: Vec<Candle> = rollup(whole.clone(), long).filter(|c| c.trades > 0).collect();
                prop_assert_eq!(&rolled, &expected);
            }
        }
    }

    #[test]
    fn prices_stay_in_their_range_and_filling_leaves_no_hole((ordered, shuffled) in ticks()) {
        let candles = folded(Interval::M5, &shuffled);
        let until = Interval::M5.next(ordered[ordered.len() - 1].time);
        let all: Vec<Candle> = filled(candles, Interval::M5, Timestamp(0), until, Some(Price(1))).collect();
        prop_assert_eq!(all.len() as i64, until.0 / Interval::M5.micros());
        for (i, c) in all.iter().enumerate() {
            prop_assert_eq!(c.open_time.0, i as i64 * Interval::M5.micros());
            prop_assert!(c.low <= c.open && c.open <= c.high && c.low <= c.close && c.close <= c.high);
            if c.trades == 0 {
                let before = if i == 0 { Price(1) } else { all[i - 1].close };
                prop_assert_eq!(*c, Candle::flat(c.open_time, before));
            }
        }
    }

    /// Restarting from the stored candles between any two ticks changes nothing.
    #[test]
    fn resuming_changes_nothing((ordered, _) in ticks(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(ordered.len());
        let mut fold = CandleFold::resume(Interval::M3, usize::MAX, folded(Interval::M3, &ordered[..cut]));
        for tick in &ordered[cut..] {
            fold.apply(tick);
        }
        prop_assert_eq!(fold.kept().copied().collect::<Vec<_>>(), naive(Interval::M3, &ordered));
    }
}
