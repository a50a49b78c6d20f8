//! The mixed flow of `hoga bench match --workload core`: accounts, several markets, and a stated mix of commands, without feedback from
//! the exchange.
//!
//! Of 100 commands, in [`Mix::default`]: 44 limit orders that rest (one in three of them post-only), 10 limit orders that cross (half of
//! them IOC, the others GTC; one in ten of these FOK instead), 4 market orders by quantity, 1 by quote amount, 1 stop-loss-limit, 2
//! modifications, 38 cancels. Cancels name an order that was sent before and may have traded since; then they are refused, as in life.
//! The reference price of each market walks by single ticks, so orders left behind become crossing ones.

use crate::market::{ASSETS, MARKETS, default_market};
use crate::rng::Rng;
use hoga_core::command::Body;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId};
use hoga_core::money::{Amount, Price, Qty, SCALE, notional};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};

/// The mix: shares of 100 and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// The seed.
    pub seed: u64,
    /// How many accounts trade (at least one); they are numbered from 1.
    pub accounts: u32,
    /// How many of the built-in markets are used, 1 to 6.
    pub markets: u16,
    /// Limit orders that rest.
    pub resting: u64,
    /// Limit orders that cross.
    pub crossing: u64,
    /// Market orders by quantity.
    pub market: u64,
    /// Market orders by quote amount.
    pub market_quote: u64,
    /// Stop-loss-limit orders.
    pub stop: u64,
    /// Modifications. What is left of 100 are cancels.
    pub modify: u64,
    /// Remembered orders: when there are more, the oldest is cancelled instead of adding one, so that the book stays bounded.
    pub most_open: usize,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            seed: 1,
            accounts: 1_000,
            markets: 6,
            resting: 44,
            crossing: 10,
            market: 4,
            market_quote: 1,
            stop: 1,
            modify: 2,
            most_open: 50_000,
        }
    }
}

impl Mix {
    /// The mix in words, for the bench result.
    pub fn describe(&self) -> String {
        let named = self.resting + self.crossing + self.market + self.market_quote + self.stop + self.modify;
        format!(
            "{} accounts, {} markets; of 100: {} resting limit, {} crossing limit, {} market by quantity, \
             {} market by quote, {} stop-loss-limit, {} modify, {} cancel",
            self.accounts,
            self.markets,
            self.resting,
            self.crossing,
            self.market,
            self.market_quote,
            self.stop,
            self.modify,
            100_u64.saturating_sub(named)
        )
    }
}

/// An order that was sent and is not known to be gone.
#[derive(Clone, Copy, Debug)]
struct Sent {
    account: AccountId,
    market: MarketId,
    client_id: ClientId,
    qty: Qty,
}

/// The flow: an endless iterator of commands.
#[derive(Clone, Debug)]
pub struct Mixed {
    mix: Mix,
    rng: Rng,
    /// Reference price of each market, in ticks.
    reference: Vec<i64>,
    sent: Vec<Sent>,
    number: u64,
}

impl Mixed {
    /// The flow of a mix.
    pub fn new(mix: Mix) -> Mixed {
        let mix =
            Mix { accounts: mix.accounts.max(1), markets: mix.markets.clamp(1, MARKETS.len() as u16), ..mix };
        let reference = MARKETS.iter().map(|spec| spec.start.0 / spec.tick.0).collect();
        Mixed {
            rng: Rng::new(mix.seed),
            mix,
            reference,
            sent: Vec::with_capacity(mix.most_open + 1),
            number: 0,
        }
    }

    /// What comes first: assets, markets, accounts and their deposits (of every asset, enough for a long run).
    pub fn setup(&self) -> Vec<Body> {
        let mut commands = default_market();
        commands.extend((0..self.mix.accounts).map(|_| Body::CreateAccount));
        // All deposits of an asset together have to fit the highest amount (92 thousand million whole units).
        let most = 80_000_000_000 / i64::from(self.mix.accounts);
        for account in 1..=self.mix.accounts {
            for (asset, id) in ASSETS.iter().zip(0..) {
                let reference = ClientId::new(&format!("stake-{account}-{id}")).unwrap_or(ClientId::NONE);
                let amount = Amount(asset.stake.min(most) * SCALE);
                commands.push(Body::Deposit {
                    account: AccountId(account),
                    asset: AssetId(id),
                    amount,
                    reference,
                });
            }
        }
        commands
    }

    fn command(&mut self) -> Body {
        let market = self.rng.below(u64::from(self.mix.markets)) as u16;
        if self.rng.percent(5) {
            let step = self.rng.between(-1, 1);
            let reference = &mut self.reference[usize::from(market)];
            *reference = (*reference + step).max(1_000);
        }
        if self.sent.len() > self.mix.most_open {
            return self.cancel();
        }
        let mut dice = self.rng.below(100);
        for (share, kind) in [
            (self.mix.resting, Kind::Resting),
            (self.mix.crossing, Kind::Crossing),
            (self.mix.market, Kind::Market),
            (self.mix.market_quote, Kind::MarketQuote),
            (self.mix.stop, Kind::Stop),
        ] {
            if dice < share {
                return self.place(MarketId(market), kind);
            }
            dice -= share;
        }
        if dice < self.mix.modify { self.modify() } else { self.cancel() }
    }

    fn place(&mut self, market: MarketId, kind: Kind) -> Body {
        let spec = &MARKETS[usize::from(market.0)];
        let side = if self.rng.percent(50) { Side::Buy } else { Side::Sell };
        let (reference, away) = (self.reference[usize::from(market.0)], self.distance());
        let toward = if side == Side::Buy { 1 } else { -1 };
        let price = |ticks: i64| Price(ticks.max(1) * spec.tick.0);
        let (mut order_type, mut tif) = (OrderType::Limit, TimeInForce::Gtc);
        let (mut limit, mut stop_price) = (price(reference - toward * away), Price::ZERO);
        match kind {
            Kind::Resting if self.rng.percent(33) => order_type = OrderType::LimitMaker,
            Kind::Resting => {}
            Kind::Crossing => {
                limit = price(reference + toward * self.rng.between(1, 5));
                tif = match self.rng.below(20) {
                    0 => TimeInForce::Fok,
                    1..=10 => TimeInForce::Ioc,
                    _ => TimeInForce::Gtc,
                };
            }
            Kind::Market | Kind::MarketQuote => (order_type, limit) = (OrderType::Market, Price::ZERO),
            Kind::Stop => {
                order_type = OrderType::StopLossLimit;
                stop_price = price(reference + toward * away * 3);
                limit = price(reference + toward * (away * 3 + 5));
            }
        }
        // What takes is smaller than what rests, so that most orders are taken back and not filled.
        let most_worth = if matches!(kind, Kind::Resting | Kind::Stop) { 2_000 } else { 300 };
        let qty = self.quantity(spec.lot, spec.start, most_worth);
        let by_quote = matches!(kind, Kind::MarketQuote);
        let quote_qty =
            if by_quote { notional(spec.start, qty).unwrap_or(spec.notional_min) } else { Amount::ZERO };
        self.number += 1;
        let account = AccountId(1 + self.rng.below(u64::from(self.mix.accounts)) as u32);
        let client_id = client_id(self.mix.seed, self.number);
        if matches!(kind, Kind::Resting | Kind::Stop) {
            self.sent.push(Sent { account, market, client_id, qty });
        }
        Body::Place(NewOrder {
            account,
            market,
            side,
            order_type,
            tif,
            price: limit,
            stop_price,
            qty: if by_quote { Qty::ZERO } else { qty },
            quote_qty,
            iceberg_qty: Qty::ZERO,
            trailing_delta: 0,
            stp: [StpMode::ExpireMaker, StpMode::ExpireTaker, StpMode::None][self.rng.below(3) as usize],
            client_id,
        })
    }

    /// Ticks from the reference price: most orders are near, some far away.
    fn distance(&mut self) -> i64 {
        let width = [3, 10, 40, 200][self.rng.below(4) as usize];
        1 + self.rng.below(width) as i64
    }

    /// A quantity worth about 10 to `most_worth` of a dollar-like quote asset, on the step.
    fn quantity(&mut self, lot: Qty, start: Price, most_worth: i64) -> Qty {
        let worth = self.rng.between(10, most_worth) as i128;
        // What is quoted in BTC is worth that many ten-thousandths.
        let worth =
            if start.0 < SCALE / 10 { worth * i128::from(SCALE) / 10_000 } else { worth * i128::from(SCALE) };
        let units = (worth * i128::from(SCALE) / i128::from(start.0)) as i64;
        Qty((units / lot.0).max(1) * lot.0)
    }

    fn pick(&mut self) -> Option<usize> {
        // Mostly a recent order: most orders of real flow are taken back young.
        let (all, recent) = (self.sent.len() as u64, self.sent.len().min(200) as u64);
        let back = if self.rng.percent(70) { self.rng.below(recent) } else { self.rng.below(all) };
        (all > 0).then(|| (all - 1 - back) as usize)
    }

    fn cancel(&mut self) -> Body {
        let Some(at) = self.pick() else { return self.place(MarketId(0), Kind::Resting) };
        let sent = self.sent.swap_remove(at);
        Body::Cancel {
            account: sent.account,
            market: sent.market,
            order: OrderRef::Client(sent.client_id),
            cancel_id: ClientId::NONE,
        }
    }

    fn modify(&mut self) -> Body {
        let Some(at) = self.pick() else { return self.place(MarketId(0), Kind::Resting) };
        let sent = self.sent[at];
        let spec = &MARKETS[usize::from(sent.market.0)];
        let away = self.distance() * if self.rng.percent(50) { 1 } else { -1 };
        Body::Modify {
            account: sent.account,
            market: sent.market,
            order: OrderRef::Client(sent.client_id),
            price: Price((self.reference[usize::from(sent.market.0)] + away).max(1) * spec.tick.0),
            qty: Qty(sent.qty.0 + spec.lot.0 * self.rng.between(0, 3)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Resting,
    Crossing,
    Market,
    MarketQuote,
    Stop,
}

impl Iterator for Mixed {
    type Item = Body;

    fn next(&mut self) -> Option<Body> {
        Some(self.command())
    }
}

/// A client id as real clients make them: a prefix and a number in hexadecimal, 22 characters.
fn client_id(seed: u64, number: u64) -> ClientId {
    ClientId::new(&format!("x-MIX{:05x}-{number:011x}", seed & 0xf_ffff)).unwrap_or(ClientId::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_as_stated_and_the_same_for_the_same_seed() {
        let mixed = Mixed::new(Mix::default());
        assert_eq!(mixed.setup().len(), default_market().len() + 1_000 * (1 + ASSETS.len()));
        let commands: Vec<Body> = mixed.take(100_000).collect();
        let share = |f: fn(&Body) -> bool| commands.iter().filter(|c| f(c)).count() as f64 / 1_000.0;
        let near = |share: f64, stated: f64| (share - stated).abs() < 1.0;
        assert!(near(share(Body::is_cancel), 38.0));
        assert!(near(share(|c| matches!(c, Body::Modify { .. })), 2.0));
        let placed = |wanted: fn(&NewOrder) -> bool| {
            commands.iter().filter(|c| matches!(c, Body::Place(o) if wanted(o))).count() as f64 / 1_000.0
        };
        assert!(near(placed(|o| o.order_type == OrderType::Market && o.quote_qty.0 == 0), 4.0));
        assert!(near(placed(|o| o.order_type == OrderType::StopLossLimit), 1.0));
        assert!(near(placed(|o| o.tif != TimeInForce::Gtc), 5.5));
        assert!(commands.iter().all(|c| !matches!(c, Body::Place(o) if o.client_id.is_none())));
        assert_eq!(Mixed::new(Mix::default()).take(1_000).collect::<Vec<_>>(), commands[..1_000]);
        let other = Mix { seed: 2, ..Mix::default() };
        assert_ne!(Mixed::new(other).take(10).collect::<Vec<_>>(), commands[..10]);
    }
}
