//! The rolling 24-hour ticker against a naive oracle that keeps every trade.

use hoga_core::folds::candle::{Candle, Interval, Tick, rollup};
use hoga_core::folds::ticker::{Ticker24h, TickerValues};
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Amount, Price, Qty, SCALE, notional};
use hoga_core::order::Side;
use proptest::prelude::*;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600 * SECOND;

fn tick(time: i64, id: u64, price: &str, qty: &str) -> Tick {
    let (price, qty) = (Price::parse(price).unwrap(), Qty::parse(qty).unwrap());
    let quote = notional(price, qty).unwrap();
    Tick { time: Timestamp(time), id: TradeId(id), price, qty, quote, taker_side: Side::Buy }
}

/// B14, and Binance's own example: change and percent are against the first trade of the window. Rows: prices 30 h, 23 h and 1 h ago and
/// now, change, thousandths of a percent.
#[test]
fn change_is_against_the_windows_open() {
    for (case, ticks, change, percent) in [
        ("B14: 40 a day ago, another in between, 7 now", [(-23, "40"), (-1, "8"), (0, "7")], "-33", -82_500),
        ("a trade before the window does not count", [(-25, "40"), (-1, "8"), (0, "10")], "2", 25_000),
        ("Binance's example", [(-2, "99"), (-1, "50"), (0, "4.000002")], "-94.999998", -95_960),
        ("rounded half away from zero", [(-2, "32"), (-1, "50"), (0, "32.00016")], "0.00016", 1),
        ("… on both sides", [(-2, "32"), (-1, "50"), (0, "31.99984")], "-0.00016", -1),
        ("nothing changed", [(-2, "32"), (-1, "50"), (0, "32")], "0", 0),
    ] {
        let now = 1_000 * HOUR;
        let mut ticker = Ticker24h::new();
        for (i, (hours, price)) in ticks.into_iter().enumerate() {
            ticker.apply(&tick(now + hours * HOUR, i as u64 + 1, price, "1"));
        }
        let values = ticker.at(Timestamp(now));
        assert_eq!(values.change, Price::parse(change).unwrap(), "{case}");
        assert_eq!(values.percent, percent, "{case}");
    }
}

/// The exact second in which a trade leaves, and what is left when all are gone.
#[test]
fn the_window_rolls_by_the_second() {
    let mut ticker = Ticker24h::new();
    assert_eq!(ticker.at(Timestamp(5 * SECOND)).trades, 0);
    ticker.apply(&tick(100 * SECOND + 999_999, 1, "10", "2"));
    ticker.apply(&tick(101 * SECOND, 2, "12", "1"));
    let day = 24 * HOUR;
    let inside = ticker.at(Timestamp(100 * SECOND + day - 1));
    assert_eq!(
        (inside.trades, inside.open, inside.low),
        (2, Price::parse("10").unwrap(), Price::parse("10").unwrap())
    );
    assert_eq!(inside.open_time, Timestamp(100 * SECOND));
    let rolled = ticker.at(Timestamp(100 * SECOND + day));
    assert_eq!((rolled.trades, rolled.first_id, rolled.low), (1, TradeId(2), Price::parse("12").unwrap()));
    assert_eq!(rolled.previous_close, Price::parse("10").unwrap());
    let empty = ticker.at(Timestamp(101 * SECOND + day));
    let twelve = Price::parse("12").unwrap();
    assert_eq!((empty.trades, empty.volume, empty.change, empty.percent), (0, Qty::ZERO, Price::ZERO, 0));
    assert_eq!((empty.last, empty.open, empty.high, empty.low), (twelve, twelve, twelve, twelve));
    assert_eq!((empty.weighted_avg, empty.last_qty), (Price::ZERO, Qty::parse("1").unwrap()));
}

fn naive(ticks: &[Tick], now: Timestamp) -> TickerValues {
    let newest = ticks.iter().map(|t| t.time.0).max().unwrap_or(now.0).max(now.0);
    let start = newest.div_euclid(SECOND) - 86_399;
    let mut sorted = ticks.to_vec();
    sorted.sort_by_key(|t| (t.time, t.id));
    let (before, inside): (Vec<Tick>, Vec<Tick>) =
        sorted.iter().copied().partition(|t| t.time.0.div_euclid(SECOND) < start);
    let mut values = TickerValues {
        open_time: Timestamp(start * SECOND),
        close_time: Timestamp(now.0.max((start + 86_399) * SECOND)),
        previous_close: before.last().map_or(Price::ZERO, |t| t.price),
        ..TickerValues::default()
    };
    let Some(last) = sorted.last() else { return values };
    (values.last, values.last_qty) = (last.price, last.qty);
    (values.open, values.high, values.low) = (last.price, last.price, last.price);
    if let (Some(first), Some(newest)) = (inside.first(), inside.last()) {
        values.open = first.price;
        values.high = inside.iter().map(|t| t.price).max().unwrap();
        values.low = inside.iter().map(|t| t.price).min().unwrap();
        (values.first_id, values.last_id) = (first.id, newest.id);
    }
    let volume: i128 = inside.iter().map(|t| i128::from(t.qty.0)).sum();
    let quote: i128 = inside.iter().map(|t| i128::from(t.quote.0)).sum();
    values.volume = Qty(volume as i64);
    values.quote_volume = Amount(quote as i64);
    values.trades = inside.len() as u64;
    if volume > 0 {
        values.weighted_avg = Price((quote * i128::from(SCALE) / volume) as i64);
    }
    values.change = Price(values.last.0 - values.open.0);
    // Half away from zero, the long way: by magnitude.
    let (top, open) =
        (i128::from(values.change.0.abs()) * 200_000 + i128::from(values.open.0), i128::from(values.open.0));
    values.percent = (top / (2 * open)) as i64 * i64::from(values.change.0.signum() as i32);
    values
}

/// What happens: a trade some time after (or a little before) the one before it, or a look.
#[derive(Clone, Debug)]
enum Step {
    Trade { after: i64, price: i64, qty: i64 },
    Look { after: i64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let after = prop_oneof![
        4 => -3 * SECOND..10 * SECOND,
        3 => 0..2 * HOUR,
        1 => -20 * HOUR..30 * HOUR,
        1 => Just(24 * HOUR),
    ];
    let trade = (after.clone(), 1_i64..60, 1_i64..500).prop_map(|(after, price, qty)| Step::Trade {
        after,
        price: price * SCALE / 10,
        qty: qty * 1000,
    });
    let look = (0..HOUR).prop_map(|after| Step::Look { after });
    proptest::collection::vec(prop_oneof![5 => trade, 1 => look], 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn equals_the_naive_oracle(steps in steps()) {
        let (mut ticker, mut ticks, mut clock, mut asked) = (Ticker24h::new(), Vec::new(), 50 * HOUR, i64::MIN);
        for step in steps {
            match step {
                Step::Trade { after, price, qty } => {
                    clock += after;
                    let (price, qty) = (Price(price), Qty(qty));
                    let id = TradeId(ticks.len() as u64 + 1);
                    let quote = notional(price, qty).unwrap();
                    let tick = Tick { time: Timestamp(clock), id, price, qty, quote, taker_side: Side::Sell };
                    ticks.push(tick);
                    ticker.apply(&tick);
                }
                Step::Look { after } => clock += after,
            }
            asked = asked.max(clock);
            prop_assert_eq!(ticker.at(Timestamp(asked)), naive(&ticks, Timestamp(asked)));
        }
    }

    /// A ticker rebuilt from the stored 1s candles is the same as one that saw the trades.
    #[test]
    fn rebuilds_from_second_candles(rows in proptest::collection::vec((0_i64..2 * HOUR, 1_i64..60, 1_i64..500), 1..80)) {
        let (mut ticker, mut ticks, mut clock) = (Ticker24h::new(), Vec::new(), 0);
        for (i, (after, price, qty)) in rows.into_iter().enumerate() {
            clock += after / 4;
            let (price, qty) = (Price(price * SCALE / 10), Qty(qty * 1000));
            let quote = notional(price, qty).unwrap();
            let id = TradeId(i as u64 + 1);
            let tick = Tick { time: Timestamp(clock), id, price, qty, quote, taker_side: Side::Buy };
            ticker.apply(&tick);
            ticks.push(tick);
        }
        let singles = ticks.iter().map(|tick| Candle::of(Interval::S1.floor(tick.time), tick));
        let last_qty = ticks[ticks.len() - 1].qty;
        let mut rebuilt = Ticker24h::new();
        for candle in rollup(singles, Interval::S1) {
            rebuilt.add_second(&candle, last_qty);
        }
        prop_assert_eq!(rebuilt.at(Timestamp(clock + HOUR)), ticker.at(Timestamp(clock + HOUR)));
    }
}
