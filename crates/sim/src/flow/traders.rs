//! What each kind of trader does when it is its turn.

use super::{ACCOUNTS, Flow, MAKERS, MarketView, OwnOrder, Top};
use crate::market::{MARKETS, MarketSpec, USDT};
use hoga_core::command::Body;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId};
use hoga_core::money::{Amount, Price, Qty, SCALE, notional};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};

/// Rungs of a maker's ladder on each side.
const RUNGS: usize = 14;
/// The lowest rung's distance from the fair value, in parts of the price.
const FAR: f64 = 0.004;
/// What the top rung is worth, in dollars.
const TOP_WORTH: f64 = 2_500.0;
/// What a taker trades, in dollars (median).
const TAKER_WORTH: f64 = 900.0;
/// The most that one taker trades, in dollars: a fraction of what rests, so that no single order empties a book.
const MOST_TAKEN: f64 = 60_000.0;
/// What a passer-by leaves in the book, in dollars (median).
const PASSER_WORTH: f64 = 700.0;
/// The most orders that a passer-by has in one market.
const MOST_PASSING: usize = 12;

/// A limit order's side, price and size.
struct Quote {
    side: Side,
    price: Price,
    qty: Qty,
}

impl Flow {
    fn spec(market: usize) -> &'static MarketSpec {
        &MARKETS[market.min(MARKETS.len() - 1)]
    }

    fn id(market: usize) -> MarketId {
        MarketId(market as u16)
    }

    /// The fair value in ticks.
    fn fair_ticks(&self, market: usize) -> f64 {
        self.fair.value(market) / Flow::spec(market).tick.0 as f64
    }

    /// A quantity worth so many dollars, on the step, within the limits.
    fn quantity(&self, market: usize, dollars: f64) -> Qty {
        let spec = Flow::spec(market);
        // One unit of the quote asset in dollars: of USDT one, of BTC its price.
        let quote = if spec.quote == USDT { 1.0 } else { self.fair.value(0) / SCALE as f64 };
        let price = self.fair.value(market) / SCALE as f64 * quote;
        let lots = (dollars / price * SCALE as f64 / spec.lot.0 as f64).round();
        let least = (spec.notional_min.0 as f64 * 1.1 / self.fair.value(market) * SCALE as f64
            / spec.lot.0 as f64)
            .ceil()
            .max(1.0);
        let most = (spec.lot_max * SCALE / 10 / spec.lot.0) as f64;
        Qty(lots.clamp(least, most) as i64 * spec.lot.0)
    }

    /// Distance of rung `k` from the fair value in ticks, for a maker: 0 is the tightest maker. Geometric from a few ticks to [`FAR`].
    fn rung(&self, maker: usize, market: usize, k: usize) -> f64 {
        let near = 1.5 + maker as f64;
        let far = (self.fair_ticks(market) * FAR * (1.0 + maker as f64 * 0.3)).max(near * 16.0);
        near * (far / near).powf(k as f64 / (RUNGS - 1) as f64)
    }

    /// The rung that an order at this distance stands on.
    fn rung_of(&self, maker: usize, market: usize, distance: f64) -> usize {
        let (near, next) = (self.rung(maker, market, 0), self.rung(maker, market, 1));
        let place = (distance.max(near) / near).ln() / (next / near).ln();
        (place.round() as usize).min(RUNGS - 1)
    }

    /// How far an order is from the fair value, in ticks; negative when it is on the wrong side of it.
    fn distance(&self, market: usize, side: Side, price: Price) -> f64 {
        let ticks = price.0 as f64 / Flow::spec(market).tick.0 as f64;
        match side {
            Side::Buy => self.fair_ticks(market) - ticks,
            Side::Sell => ticks - self.fair_ticks(market),
        }
    }

    fn rung_quote(&mut self, maker: usize, market: usize, side: Side, k: usize, top: &Top) -> Option<Quote> {
        let jitter = 0.85 + 0.3 * self.rng.unit();
        let away = self.rung(maker, market, k) * jitter;
        let fair = self.fair_ticks(market);
        let mut ticks = match side {
            Side::Buy => (fair - away).floor() as i64,
            Side::Sell => (fair + away).ceil() as i64,
        };
        // Never through the other side: the quote would be refused.
        let tick = Flow::spec(market).tick.0;
        match (side, top.best(side.opposite())) {
            (Side::Buy, Some(ask)) => ticks = ticks.min(ask.0 / tick - 1),
            (Side::Sell, Some(bid)) => ticks = ticks.max(bid.0 / tick + 1),
            _ => {}
        }
        let worth = TOP_WORTH * (1.0 + 0.8 * k as f64) * self.rng.lognormal(0.6) / (1.0 + 0.3 * maker as f64);
        let qty = self.quantity(market, worth);
        (ticks > 0).then_some(Quote { side, price: Price(ticks * tick), qty })
    }

    /// How many own orders of a side stand on each rung, after [`Flow::look`].
    fn standing(&self, maker: usize, market: usize, side: Side) -> [u8; RUNGS] {
        let mut counts = [0_u8; RUNGS];
        for order in self.own.iter().filter(|order| order.side == side) {
            let rung = self.rung_of(maker, market, self.distance(market, side, order.price));
            counts[rung] = counts[rung].saturating_add(1);
        }
        counts
    }

    /// All rungs of a maker in a market that are still missing.
    pub(super) fn ladder(&mut self, maker: usize, market: usize, view: &dyn MarketView) -> Vec<Body> {
        let top = view.top(Flow::id(market));
        self.look(self.accounts[maker], Flow::id(market), view);
        let [bids, asks] = [Side::Buy, Side::Sell].map(|side| self.standing(maker, market, side));
        let mut orders = Vec::with_capacity(2 * RUNGS);
        for (k, (bids, asks)) in bids.into_iter().zip(asks).enumerate() {
            for (side, standing) in [(Side::Buy, bids), (Side::Sell, asks)] {
                if standing > 0 {
                    continue;
                }
                if let Some(quote) = self.rung_quote(maker, market, side, k, &top) {
                    orders.push(self.rest(self.accounts[maker], market, quote, true));
                }
            }
        }
        orders
    }

    /// A maker's turn: takes back what is wrong, else fills what is missing, else replaces something.
    pub(super) fn maker(&mut self, market: usize, view: &dyn MarketView) -> Option<Body> {
        // The tighter a maker quotes, the more often it has to act.
        let maker = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3][self.rng.below(10) as usize];
        let (account, id) = (self.accounts[maker], Flow::id(market));
        let side = if self.rng.chance(0.5) { Side::Buy } else { Side::Sell };
        let spec = Flow::spec(market);
        let pays = AssetId(if side == Side::Buy { spec.quote } else { spec.base });
        if let Some(deposit) = self.top_up(account, pays, view) {
            return Some(deposit);
        }
        self.look(account, id, view);
        if let Some(order) = self.wrong_quote(maker, market) {
            return Some(self.take_back(account, id, order.client_id));
        }
        let counts = self.standing(maker, market, side);
        let missing = counts.iter().filter(|count| **count == 0).count() as u64;
        if missing > 0 {
            // Mostly the best one that is missing.
            let nth = if self.rng.chance(0.6) { 0 } else { self.rng.below(missing) as usize };
            let k = (0..RUNGS).filter(|k| counts[*k] == 0).nth(nth)?;
            let quote = self.rung_quote(maker, market, side, k, &view.top(id))?;
            return Some(self.rest(account, market, quote, true));
        }
        // Everything is in place: replace one.
        let count = self.own.len() as u64;
        let client_id = self.own.get(self.rng.below(count) as usize)?.client_id;
        Some(self.take_back(account, id, client_id))
    }

    /// The own order that most needs to go: on the wrong side of the fair value, too far away, or one of three on a rung.
    fn wrong_quote(&self, maker: usize, market: usize) -> Option<OwnOrder> {
        let distance = |order: &OwnOrder| self.distance(market, order.side, order.price);
        let stale = self.own.iter().filter(|order| distance(order) < 0.5);
        if let Some(order) = stale.min_by(|a, b| distance(a).total_cmp(&distance(b))) {
            return Some(*order);
        }
        let far = self.rung(maker, market, RUNGS - 1) * 1.5;
        let mut counts = [[0_u8; RUNGS]; 2];
        for order in &self.own {
            let count = &mut counts[order.side as usize][self.rung_of(maker, market, distance(order))];
            *count += 1;
            if *count >= 3 || distance(order) > far {
                return Some(*order);
            }
        }
        None
    }

    /// A taker's turn: buys rather when the book is below the fair value, and rather what was bought before.
    pub(super) fn taker(&mut self, market: usize, view: &dyn MarketView) -> Option<Body> {
        self.excitement[market] += super::BRANCHING * super::DECAY;
        let (spec, id) = (Flow::spec(market), Flow::id(market));
        let top = view.top(id);
        let mid = (top.bid?.0 as f64 + top.ask?.0 as f64) / 2.0;
        let basis_points = (self.fair.value(market) / mid - 1.0) * 1e4;
        let habit = if self.mood[market] == Side::Buy { 0.25 } else { -0.25 };
        let buys = 0.5 + 0.5 * (0.4 * basis_points + habit).tanh();
        let side = if self.rng.chance(buys) { Side::Buy } else { Side::Sell };
        self.mood[market] = side;
        let account = self.passer_account();
        let pays = AssetId(if side == Side::Buy { spec.quote } else { spec.base });
        if let Some(deposit) = self.top_up(account, pays, view) {
            return Some(deposit);
        }
        let whale = if self.rng.chance(0.02) { 20.0 } else { 1.0 };
        let worth = TAKER_WORTH * self.rng.lognormal(1.1) * whale * self.fair.heat(market).sqrt();
        let qty = self.quantity(market, worth.min(MOST_TAKEN));
        let mut order = self.order(account, market, 't', side, qty);
        match self.rng.below(20) {
            0..=12 => {}
            13..=17 => {
                // Through the best price by up to two basis points, and the rest is taken back at once.
                let best = top.best(side.opposite())?.0 / spec.tick.0;
                let through = (best as f64 * 2e-4 * self.rng.unit()) as i64;
                let ticks = if side == Side::Buy { best + through } else { best - through };
                order.order_type = OrderType::Limit;
                order.tif = TimeInForce::Ioc;
                order.price = Price(ticks.max(1) * spec.tick.0);
            }
            _ => {
                order.quote_qty =
                    notional(Price(mid as i64), qty).unwrap_or(Amount::ZERO).max(spec.notional_min);
                order.qty = Qty::ZERO;
            }
        }
        Some(Body::Place(order))
    }

    /// A passer-by's turn: leaves an order, or takes one back.
    pub(super) fn passer_by(&mut self, market: usize, view: &dyn MarketView) -> Option<Body> {
        let (account, id, spec) = (self.passer_account(), Flow::id(market), Flow::spec(market));
        self.look(account, id, view);
        let count = self.own.len();
        if count >= MOST_PASSING || (count > 0 && self.rng.chance(0.4)) {
            let client_id = self.own[self.rng.below(count as u64) as usize].client_id;
            return Some(self.take_back(account, id, client_id));
        }
        let top = view.top(id);
        let (bid, ask) = (top.bid?.0 / spec.tick.0, top.ask?.0 / spec.tick.0);
        let side = if self.rng.chance(0.5) { Side::Buy } else { Side::Sell };
        let pays = AssetId(if side == Side::Buy { spec.quote } else { spec.base });
        if let Some(deposit) = self.top_up(account, pays, view) {
            return Some(deposit);
        }
        let (best, inward) = if side == Side::Buy { (bid, 1) } else { (ask, -1) };
        let ticks = match self.rng.below(20) {
            // Improves the best price where there is room, else joins it.
            0..=2 if ask - bid > 1 => best + inward,
            3..=5 if ask - bid > 1 => best + inward * self.rng.between(1, ask - bid - 1),
            0..=5 => best,
            6..=13 => best - inward * self.rng.exponential(8.0) as i64,
            _ => {
                let away = best as f64 * (0.0005 + self.rng.exponential(0.003));
                round_number(best - inward * away as i64)
            }
        };
        let ticks = if side == Side::Buy { ticks.min(ask - 1) } else { ticks.max(bid + 1) };
        let worth = PASSER_WORTH * self.rng.lognormal(1.0);
        let qty = self.quantity(market, worth);
        let quote = Quote { side, price: Price(ticks.max(1) * spec.tick.0), qty };
        Some(self.rest(account, market, quote, false))
    }

    fn passer_account(&mut self) -> AccountId {
        self.accounts[MAKERS + self.rng.below((ACCOUNTS - MAKERS) as u64) as usize]
    }

    fn rest(&mut self, account: AccountId, market: usize, quote: Quote, post_only: bool) -> Body {
        let letter = if post_only { 'm' } else { 'p' };
        let mut order = self.order(account, market, letter, quote.side, quote.qty);
        order.order_type = if post_only { OrderType::LimitMaker } else { OrderType::Limit };
        order.price = quote.price;
        self.remember(account, order.market, order.client_id, Some((quote.side, quote.price)));
        Body::Place(order)
    }

    fn take_back(&mut self, account: AccountId, market: MarketId, client_id: ClientId) -> Body {
        self.remember(account, market, client_id, None);
        Body::Cancel { account, market, order: OrderRef::Client(client_id), cancel_id: ClientId::NONE }
    }

    /// A market order; callers change what differs.
    fn order(&mut self, account: AccountId, market: usize, letter: char, side: Side, qty: Qty) -> NewOrder {
        NewOrder {
            account,
            market: Flow::id(market),
            side,
            order_type: OrderType::Market,
            tif: TimeInForce::Gtc,
            price: Price::ZERO,
            stop_price: Price::ZERO,
            qty,
            quote_qty: Amount::ZERO,
            iceberg_qty: Qty::ZERO,
            trailing_delta: 0,
            stp: StpMode::ExpireMaker,
            client_id: self.client_id(letter),
        }
    }
}

/// The nearest multiple of 10, 100, 1,000 … ticks: people like round prices.
fn round_number(ticks: i64) -> i64 {
    let mut grain = 1;
    while grain * 2_000 < ticks {
        grain *= 10;
    }
    (ticks + grain / 2) / grain * grain
}
