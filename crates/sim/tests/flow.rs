//! The built-in market, driven by the real exchange: does it look like a market, and is it the same for the same seed?

use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::{Event, EventRecord, Reject};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, AssetId, MarketId, Timestamp};
use hoga_core::order::Side;
use hoga_sim::flow::{ACCOUNTS, Flow, FlowConfig, MarketView, OwnOrder, Watcher};
use hoga_sim::market::{ASSETS, MARKETS, default_market};
use std::collections::HashMap;

const START: i64 = 1_800_000_000_000_000;

/// An exchange with the built-in market, and what it told.
struct Market {
    exchange: Exchange,
    events: Vec<EventRecord>,
    accounts: Vec<AccountId>,
    rejects: HashMap<&'static str, u32>,
    commands: u32,
}

impl Market {
    fn new() -> Market {
        let mut market = Market {
            exchange: Exchange::new(),
            events: Vec::new(),
            accounts: (1..=ACCOUNTS as u32).map(AccountId).collect(),
            rejects: HashMap::new(),
            commands: 0,
        };
        for body in default_market() {
            market.apply(0, body);
        }
        for _ in 0..ACCOUNTS {
            market.apply(0, Body::CreateAccount);
        }
        assert!(market.rejects.is_empty(), "{:?}", market.rejects);
        market
    }

    fn apply(&mut self, micros: i64, body: Body) {
        self.events.clear();
        let seq = self.exchange.position().next();
        let time = Timestamp(START + micros);
        let command = Command { seq, time, rules: RULES_VERSION, deadline: Timestamp(0), body };
        self.commands += 1;
        if let Err(reject) = self.exchange.apply(&command, &mut self.events) {
            *self.rejects.entry(Reject::as_str(reject)).or_insert(0) += 1;
        }
    }

    fn open(&mut self, flow: &mut Flow) {
        for body in flow.deposits() {
            self.apply(0, body);
        }
        for body in flow.opening(&self.exchange) {
            self.apply(0, body);
        }
    }
}

fn run(config: FlowConfig, seconds: u64, mut each: impl FnMut(&Market, u64)) -> Market {
    let mut market = Market::new();
    let mut flow = Flow::new(config, &market.accounts);
    market.open(&mut flow);
    loop {
        let planned = flow.next(&market.exchange);
        if planned.at.as_secs() >= seconds {
            return market;
        }
        market.apply(planned.at.as_micros() as i64, planned.body);
        each(&market, planned.at.as_micros() as u64);
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (ma, mb) = (mean(a), mean(b));
    let cov: f64 = a.iter().zip(b).map(|(x, y)| (x - ma) * (y - mb)).sum();
    let var = |v: &[f64], m: f64| v.iter().map(|x| (x - m).powi(2)).sum::<f64>();
    cov / (var(a, ma) * var(b, mb)).sqrt()
}

#[test]
fn looks_like_a_market() {
    let config = FlowConfig { seed: 7, rate: 300.0, session: 0 };
    let seconds = 400;
    let mut trades: Vec<Vec<u64>> = vec![Vec::new(); MARKETS.len()];
    let mut spreads: Vec<Vec<f64>> = vec![Vec::new(); MARKETS.len()];
    let mut mids: Vec<Vec<f64>> = vec![Vec::new(); MARKETS.len()];
    let mut levels: Vec<Vec<f64>> = vec![Vec::new(); MARKETS.len()];
    let (mut thinnest, mut next_look, mut bought) = (usize::MAX, 0, 0_u32);
    let market = run(config, seconds, |market, micros| {
        for record in &market.events {
            if let Event::Trade(trade) = &record.event {
                trades[usize::from(trade.market.0)].push(micros);
                bought += u32::from(trade.taker_side == Side::Buy);
            }
        }
        if micros < next_look {
            return;
        }
        next_look = micros + 1_000_000;
        for (id, spec) in MARKETS.iter().enumerate() {
            let depth = market.exchange.depth(MarketId(id as u16), 20);
            let (bid, ask) = (depth.bids[0].0.0, depth.asks[0].0.0);
            thinnest = thinnest.min(depth.bids.len()).min(depth.asks.len());
            levels[id].push((depth.bids.len() + depth.asks.len()) as f64 / 2.0);
            spreads[id].push(((ask - bid) / spec.tick.0) as f64);
            mids[id].push((bid + ask) as f64 / 2.0);
        }
    });
    let sums: Vec<usize> = trades.iter().map(Vec::len).collect();
    let median = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let spread: Vec<f64> = spreads.iter().map(|s| median(s)).collect();
    let range =
        |m: &[f64]| m.iter().copied().fold(0.0, f64::max) / m.iter().copied().fold(f64::MAX, f64::min) - 1.0;
    let ranges: Vec<f64> = mids.iter().map(|m| range(m) * 100.0).collect();
    let returns: Vec<Vec<f64>> = mids
        .iter()
        .map(|m| m.chunks(5).map(|c| c[0].ln()).collect::<Vec<_>>().windows(2).map(|w| w[1] - w[0]).collect())
        .collect();
    let pairs = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 3), (3, 4)];
    let together = mean(&pairs.map(|(a, b)| correlation(&returns[a], &returns[b])));
    // Clustering: the variance of the number of trades in a second over its mean is 1 without it.
    let mut in_second = vec![0.0; seconds as usize];
    trades[0].iter().for_each(|micros| in_second[(micros / 1_000_000) as usize] += 1.0);
    let middle = mean(&in_second);
    let burst = in_second.iter().map(|n| (n - middle).powi(2)).sum::<f64>() / in_second.len() as f64 / middle;
    let refused: u32 = market.rejects.values().sum();
    let open = market.exchange.open_order_count();
    eprintln!(
        "commands {} refused {:?} trades {sums:?} bought {bought} spread {spread:.1?} ranges {ranges:.2?} correlation {together:.2} burst {burst:.1} thinnest {thinnest} levels {:.1?} open {open}",
        market.commands,
        market.rejects,
        levels.iter().map(|l| mean(l)).collect::<Vec<_>>()
    );
    let rate = f64::from(market.commands) / seconds as f64;
    assert!((200.0..450.0).contains(&rate), "rate {rate}");
    assert!(f64::from(refused) < 0.03 * f64::from(market.commands), "{:?}", market.rejects);
    assert!(sums.iter().all(|n| *n > 400), "trades in every market: {sums:?}");
    assert!(thinnest >= 4, "levels on each side at any second: {thinnest}");
    assert!(levels.iter().all(|l| mean(l) > 15.0), "a book of some depth");
    assert!(spread.iter().all(|s| (1.0..40.0).contains(s)), "median spread in ticks: {spread:?}");
    assert!(ranges.iter().all(|r| (0.02..5.0).contains(r)), "range in percent: {ranges:?}");
    assert!(together > 0.3, "markets move together: {together}");
    assert!(burst > 1.5, "trades come in bursts: {burst}");
    assert!(open < 4_000, "the book stays bounded: {open}");
    let all: usize = sums.iter().sum();
    assert!((0.35..0.65).contains(&(f64::from(bought) / all as f64)), "both sides take");
}

#[test]
fn is_the_same_for_the_same_seed_and_continues_where_it_was() {
    let config = FlowConfig { seed: 3, rate: 500.0, session: 9 };
    let digest = |seed| run(FlowConfig { seed, ..config }, 20, |_, _| {}).exchange.digest();
    assert_eq!(digest(3), digest(3));
    assert_ne!(digest(3), digest(4));
    // A second run on the same data: other client ids, and prices go on from the last ones.
    let mut market = run(config, 20, |_, _| {});
    let before = market.exchange.top(MarketId(0)).last.unwrap();
    let mut flow = Flow::new(FlowConfig { seed: 3, session: 10, ..config }, &market.accounts);
    flow.anchor(&market.exchange);
    let again = flow.opening(&market.exchange).len();
    assert!(again < 300, "most of the ladders still stand: {again} orders");
    market.rejects.clear();
    for _ in 0..5_000 {
        let planned = flow.next(&market.exchange);
        market.apply(20_000_000 + planned.at.as_micros() as i64, planned.body);
    }
    assert!(!market.rejects.contains_key("DUPLICATE_CLIENT_ID"), "{:?}", market.rejects);
    let after = market.exchange.top(MarketId(0)).last.unwrap();
    assert!((after.0 as f64 / before.0 as f64 - 1.0).abs() < 0.01, "{before} {after}");
}

/// The view that follows events answers as the exchange itself does, at any time.
#[test]
fn a_watcher_sees_what_the_exchange_has() {
    let mut market = Market::new();
    let mut flow = Flow::new(FlowConfig { seed: 5, rate: 500.0, session: 0 }, &market.accounts);
    market.open(&mut flow);
    let mut watcher = Watcher::new(&market.exchange, &market.accounts);
    let (mut ours, mut theirs): (Vec<OwnOrder>, Vec<OwnOrder>) = (Vec::new(), Vec::new());
    for step in 0..6_000 {
        // The flow is driven by the watcher, as it is in the running product.
        let planned = flow.next(&watcher);
        market.apply(planned.at.as_micros() as i64, planned.body);
        watcher.on_events(&market.events);
        if step % 200 != 0 {
            continue;
        }
        for id in (0..MARKETS.len() as u16).map(MarketId) {
            assert_eq!(watcher.top(id), market.exchange.top(id));
            for account in &market.accounts {
                ours.clear();
                theirs.clear();
                watcher.own_orders(*account, id, &mut ours);
                market.exchange.own_orders(*account, id, &mut theirs);
                assert_eq!(ours, theirs);
            }
        }
        for account in &market.accounts {
            for asset in (0..ASSETS.len() as u16).map(AssetId) {
                assert_eq!(
                    watcher.free(*account, asset),
                    market.exchange.free(*account, asset),
                    "{account} {asset}"
                );
            }
        }
    }
}
