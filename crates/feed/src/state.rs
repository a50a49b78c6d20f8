//! What a processor knows of one symbol, and what it puts out.

use hoga_core::folds::candle::{Candle, CandleFold, Interval, Tick, Update};
use hoga_core::folds::ticker::{Ticker24h, TickerValues};
use hoga_core::ids::{Timestamp, TradeId};
use hoga_core::money::{Price, Qty};

use crate::groups::Mark;
use crate::monitor::{SymbolOrder, Verdict};
use crate::symbol::Symbol;
use crate::tick::FeedTick;

/// How a symbol is folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Intervals of the candles.
    pub intervals: Vec<Interval>,
    /// Candles with trades of each interval that late ticks can still revise (at least one).
    pub keep: usize,
}

impl Default for StateConfig {
    fn default() -> StateConfig {
        StateConfig { intervals: vec![Interval::M1, Interval::M5, Interval::H1, Interval::D1], keep: 10 }
    }
}

/// A candle that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandleChange {
    /// Of which interval.
    pub interval: Interval,
    /// As it is now. Its `revision` is above 0 when it changed after it was closed.
    pub candle: Candle,
    /// Whether its period is over.
    pub closed: bool,
}

/// What is put out after one or more ticks of a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Of which symbol.
    pub symbol: Symbol,
    /// Place and hashes.
    pub mark: Mark,
    /// The lowest number that is in it and was not in the output before: between two outputs of which the later begins at most one above the
    /// earlier's `mark.seq`, nothing is missing. 1 where it stands for everything.
    pub first: u64,
    /// The latest trade by (time, id); never one before that of an earlier output.
    pub time: Timestamp,
    /// Its price.
    pub last: Price,
    /// Its quantity.
    pub last_qty: Qty,
    /// Whether numbers are missing below `mark.seq`.
    pub stale: bool,
    /// Candles that changed since the output before, each once, in the order of intervals and times.
    pub candles: Vec<CandleChange>,
}

/// The state of one symbol: a pure function of its ticks.
///
/// **Law:** after the same ticks the state is the same, however they were cut into calls; so outputs of two processors with equal marks are
/// equal in everything but which changes they gather. A tick whose number was seen before changes nothing but a counter. The latest price
/// never goes back in (time, id).
#[derive(Clone, Debug)]
pub struct SymbolState {
    symbol: Symbol,
    order: SymbolOrder,
    latest: Option<Tick>,
    candles: Vec<CandleFold>,
    ticker: Ticker24h,
    too_old: u64,
    changed: Vec<CandleChange>,
    /// Place of the last output.
    put_out: (u32, u64),
}

impl SymbolState {
    /// A symbol that was not seen before.
    pub fn new(symbol: Symbol, config: &StateConfig) -> SymbolState {
        let candles =
            config.intervals.iter().map(|interval| CandleFold::new(*interval, config.keep)).collect();
        SymbolState {
            symbol,
            order: SymbolOrder::new(),
            latest: None,
            candles,
            ticker: Ticker24h::new(),
            too_old: 0,
            changed: Vec::new(),
            put_out: (0, 0),
        }
    }

    /// Begins at this tick instead of at number 1: what was before it is not there to be read any more. Only for one that has seen nothing.
    pub fn begin_at(&mut self, tick: &FeedTick) {
        self.order.begin_at(tick.epoch, tick.seq);
    }

    /// Takes a tick that is handled at `now`; says what it was. Only new and late ones change anything.
    pub fn take(&mut self, tick: &FeedTick, now: Timestamp) -> Verdict {
        let verdict = self.order.take(tick, now);
        if matches!(verdict, Verdict::Duplicate | Verdict::StepBack) {
            return verdict;
        }
        let tick = &tick.tick;
        if self.latest.is_none_or(|latest| (latest.time, latest.id) <= (tick.time, tick.id)) {
            self.latest = Some(*tick);
        }
        self.ticker.apply(tick);
        for fold in &mut self.candles {
            let interval = fold.interval();
            match fold.apply(tick) {
                Update::Updated(candle) => note(&mut self.changed, interval, candle, false),
                Update::Opened { candle, closed } => {
                    if let Some(closed) = closed {
                        note(&mut self.changed, interval, closed, true);
                    }
                    note(&mut self.changed, interval, candle, false);
                }
                Update::Revised(candle) => note(&mut self.changed, interval, candle, true),
                Update::TooOld { .. } => self.too_old += 1,
            }
        }
        verdict
    }

    /// What is put out now: once for all ticks since the last call. `None` when nothing has changed.
    pub fn output(&mut self) -> Option<Output> {
        let latest = self.latest?;
        if self.changed.is_empty() {
            return None;
        }
        let mut candles = std::mem::take(&mut self.changed);
        candles.sort_by_key(|change| (change.interval, change.candle.open_time));
        let mark = self.mark();
        let first = if self.put_out.0 == mark.epoch { (self.put_out.1 + 1).min(mark.seq) } else { 1 };
        self.put_out = (mark.epoch, mark.seq);
        Some(self.put(mark, first, latest, candles))
    }

    /// All of it as an output, with every candle that is kept; none before the first tick. It changes nothing.
    pub fn snapshot(&self) -> Option<Output> {
        let latest = self.latest?;
        let of_fold = |fold: &CandleFold| {
            let interval = fold.interval();
            let newest = fold.latest().map(|candle| candle.open_time);
            let change = move |candle: &Candle| CandleChange {
                interval,
                candle: *candle,
                closed: Some(candle.open_time) != newest,
            };
            fold.kept().map(change).collect::<Vec<_>>()
        };
        Some(self.put(self.mark(), 1, latest, self.candles.iter().flat_map(of_fold).collect()))
    }

    fn put(&self, mark: Mark, first: u64, latest: Tick, candles: Vec<CandleChange>) -> Output {
        Output {
            symbol: self.symbol,
            mark,
            first,
            time: latest.time,
            last: latest.price,
            last_qty: latest.qty,
            stale: self.order.is_stale(),
            candles,
        }
    }

    /// Place and hashes of the state.
    pub fn mark(&self) -> Mark {
        let (epoch, seq) = self.order.place();
        let (time, id, price) =
            self.latest.map_or((0, 0, 0), |latest| (latest.time.0, latest.id.0, latest.price.0));
        let mut candles = Hash::new();
        for fold in &self.candles {
            if let Some(candle) = fold.latest() {
                candles.candle(candle);
            }
        }
        let mut hash = Hash::new();
        for word in [time as u64, id, price as u64, u64::from(self.order.is_stale()), candles.0] {
            hash.word(word);
        }
        Mark { epoch, seq, last: price, candles: candles.0, hash: hash.0 }
    }

    /// The 24 h ticker at this time; not before that of the latest trade.
    pub fn ticker(&mut self, now: Timestamp) -> TickerValues {
        self.ticker.at(now)
    }

    /// What happened to the numbers of the symbol.
    pub fn order(&self) -> &SymbolOrder {
        &self.order
    }

    /// The candles kept of an interval, oldest first; none when the interval is not folded.
    pub fn candles(&self, interval: Interval) -> impl Iterator<Item = &Candle> {
        self.candles.iter().filter(move |fold| fold.interval() == interval).flat_map(CandleFold::kept)
    }

    /// The latest trade: its number in its market and its price.
    pub fn latest(&self) -> Option<(TradeId, Price)> {
        self.latest.map(|latest| (latest.id, latest.price))
    }

    /// How often a tick was older than all candles kept of an interval, and changed none of it here.
    pub fn too_old(&self) -> u64 {
        self.too_old
    }
}

/// Keeps the newest of each candle.
fn note(changed: &mut Vec<CandleChange>, interval: Interval, candle: Candle, closed: bool) {
    let same = |change: &&mut CandleChange| {
        change.interval == interval && change.candle.open_time == candle.open_time
    };
    match changed.iter_mut().rev().find(same) {
        Some(change) => (change.candle, change.closed) = (candle, change.closed || closed),
        None => changed.push(CandleChange { interval, candle, closed }),
    }
}

/// FNV-1a over words, finished with a mixer: to tell outputs apart, not against an adversary.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0xCBF2_9CE4_8422_2325)
    }

    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        self.0 = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }

    fn candle(&mut self, candle: &Candle) {
        for word in [
            candle.open_time.0,
            candle.open.0,
            candle.high.0,
            candle.low.0,
            candle.close.0,
            candle.volume.0,
            candle.quote_volume.0,
            candle.taker_base.0,
            candle.taker_quote.0,
        ] {
            self.word(word as u64);
        }
        for word in [candle.trades, candle.first_trade.0, candle.last_trade.0, u64::from(candle.revision)] {
            self.word(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoga_core::money::Amount;
    use hoga_core::order::Side;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const START: i64 = 1_700_000_000_000_000;

    fn tick(seq: u64, time: i64, price: i64, qty: i64) -> FeedTick {
        FeedTick {
            symbol: Symbol::parse("A").unwrap(),
            epoch: 1,
            seq,
            received: Timestamp(time),
            tick: Tick {
                time: Timestamp(START + time),
                id: TradeId(seq),
                price: Price(price),
                qty: Qty(qty),
                quote: Amount(price * qty),
                taker_side: if seq.is_multiple_of(3) { Side::Sell } else { Side::Buy },
            },
        }
    }

    fn state() -> SymbolState {
        let config = StateConfig { intervals: vec![Interval::M1, Interval::M3], keep: 10_000 };
        SymbolState::new(Symbol::parse("A").unwrap(), &config)
    }

    /// Ticks over some minutes, in the order of their numbers; times rise mostly.
    fn ticks() -> impl Strategy<Value = Vec<FeedTick>> {
        let one = (0..20_000_000i64, 1..1000i64, 1..50i64);
        proptest::collection::vec(one, 1..120).prop_map(|steps| {
            let mut time = 0;
            let all = (1..).zip(steps).map(|(seq, (step, price, qty))| {
                time += step - 2_000_000;
                tick(seq, time.max(0), price, qty)
            });
            all.collect()
        })
    }

    /// The same ticks, some moved back, some twice.
    fn shuffled(ticks: &[FeedTick], moves: &[(usize, usize, bool)]) -> Vec<FeedTick> {
        let mut out = ticks.to_vec();
        for (from, to, twice) in moves {
            let moved = out[from % out.len()];
            let to = to % out.len();
            if *twice {
                out.insert(to, moved);
            } else {
                out.swap(from % ticks.len(), to);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn candles_and_latest_price_do_not_depend_on_order_repeats_or_cuts(
            ticks in ticks(),
            moves in proptest::collection::vec((any::<usize>(), any::<usize>(), any::<bool>()), 0..20),
            cut in 1..9usize,
        ) {
            let mut straight = state();
            let mut last = None;
            for tick in &ticks {
                prop_assert_eq!(straight.take(tick, tick.received), Verdict::New { skipped: 0 });
                let output = straight.output().unwrap();
                let place = (output.time, output.mark.seq);
                prop_assert!(last.is_none_or(|(time, seq)| time <= place.0 && seq < place.1));
                prop_assert_eq!(output.first, output.mark.seq);
                last = Some(place);
            }
            let mut other = state();
            let all = shuffled(&ticks, &moves);
            for part in all.chunks(cut) {
                for tick in part {
                    other.take(tick, tick.received);
                }
                other.output();
            }
            prop_assert_eq!(other.latest(), straight.latest());
            let bare = |state: &SymbolState, interval| {
                state.candles(interval).map(|candle| Candle { revision: 0, ..*candle }).collect::<Vec<_>>()
            };
            for interval in [Interval::M1, Interval::M3] {
                prop_assert_eq!(bare(&other, interval), bare(&straight, interval));
            }
            let now = Timestamp(START + 7_200_000_000);
            prop_assert_eq!(other.ticker(now), straight.ticker(now));
            // Three of a minute are one of three.
            let mut threes: BTreeMap<Timestamp, Candle> = BTreeMap::new();
            for candle in bare(&straight, Interval::M1) {
                let open_time = Interval::M3.floor(candle.open_time);
                let all = threes.entry(open_time).or_insert(Candle { open_time, ..Candle::flat(open_time, candle.open) });
                *all = all.merge(&candle);
            }
            prop_assert_eq!(threes.into_values().collect::<Vec<_>>(), bare(&straight, Interval::M3));
        }

        #[test]
        fn equal_places_have_equal_marks_however_ticks_are_cut_into_calls(ticks in ticks(), cut in 2..9usize) {
            let (mut each, mut merged) = (state(), state());
            let mut marks = BTreeMap::new();
            for tick in &ticks {
                each.take(tick, tick.received);
                let mark = each.output().unwrap().mark;
                marks.insert(mark.seq, mark);
            }
            let mut compared = 0;
            for part in ticks.chunks(cut) {
                part.iter().for_each(|tick| { merged.take(tick, tick.received); });
                let output = merged.output().unwrap();
                prop_assert_eq!(output.first, part[0].seq);
                prop_assert_eq!(Some(&output.mark), marks.get(&output.mark.seq));
                compared += 1;
            }
            prop_assert_eq!(compared, ticks.len().div_ceil(cut));
        }
    }

    #[test]
    fn an_old_price_never_replaces_a_newer_one_and_revises_its_candle() {
        let mut state = state();
        let minute = 60_000_000;
        state.take(&tick(1, 0, 100, 1), Timestamp(0));
        state.take(&tick(3, minute, 300, 1), Timestamp(0));
        let output = state.output().unwrap();
        assert!(output.stale);
        assert_eq!(state.take(&tick(2, 1, 200, 1), Timestamp(0)), Verdict::Late);
        let output = state.output().unwrap();
        assert_eq!((output.last, output.stale, output.mark.seq), (Price(300), false, 3));
        let minute = output.candles.iter().find(|change| change.interval == Interval::M1).unwrap();
        assert!(minute.closed);
        assert_eq!((minute.candle.close, minute.candle.trades, minute.candle.revision), (Price(200), 2, 1));
        // Again: nothing.
        assert_eq!(state.take(&tick(2, 1, 200, 1), Timestamp(0)), Verdict::Duplicate);
        assert_eq!(state.output(), None);
    }

    #[test]
    fn a_wrong_candle_shows_in_the_mark() {
        let (mut right, mut wrong) = (state(), state());
        for seq in 1..=10 {
            right.take(&tick(seq, seq as i64, 100, 5), Timestamp(0));
            let mut spoiled = tick(seq, seq as i64, 100, 5);
            if seq == 7 {
                spoiled.tick.qty = Qty(6);
            }
            wrong.take(&spoiled, Timestamp(0));
            assert_eq!(right.mark().last, wrong.mark().last);
            assert_eq!(right.mark().candles == wrong.mark().candles, seq < 7, "{seq}");
        }
    }
}
