//! The model behind the built-in market: what makers, takers and passers-by would do next, given what the real book looks like.
//!
//! Fair values (see `fair.rs`) wander, trend and jump with news; nobody sees them but the model's traders:
//! - **Makers** keep a ladder of post-only orders on both sides of the fair value, tight at the top and wide below. As the value moves they
//!   take stale quotes back and fill the gaps, so the book follows it with a spread of a few ticks.
//! - **Takers** arrive in clusters: each arrival makes the next one likelier (a Hawkes process), more so after news. They buy rather when
//!   the book is below the fair value, and tend to go on in one direction.
//! - **Passers-by** join or improve the best price, or leave orders at round prices further away, and take them back again.
//!
//! [`Flow::next`] gives one command at a time, with the moment for which it is planned. The same seed and the same answers of the
//! [`MarketView`] give the same commands.

mod fair;
mod traders;
mod view;

pub use view::{MarketView, OwnOrder, Top, Watcher};

use crate::market::{ASSETS, MARKETS};
use crate::rng::Rng;
use fair::Fair;
use hoga_core::command::Body;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId};
use hoga_core::money::{Amount, Price, SCALE};
use hoga_core::order::Side;
use std::collections::VecDeque;
use std::time::Duration;

/// How many of the accounts are makers.
pub const MAKERS: usize = 4;
/// How many are takers and passers-by.
pub const TAKERS: usize = 12;
/// How many accounts the model needs.
pub const ACCOUNTS: usize = MAKERS + TAKERS;

/// Share of the commands that each market gets on average.
const WEIGHTS: [f64; MARKETS.len()] = [0.24, 0.20, 0.12, 0.10, 0.08, 0.06, 0.05, 0.05, 0.05, 0.05];
/// Shares of makers, passers-by and takers. To its share a maker adds its answer to takers: see [`ANSWERS`].
const MAKER_SHARE: f64 = 0.58;
const PASSER_SHARE: f64 = 0.14;
const TAKER_SHARE: f64 = 0.12;
/// How many further takers one taker brings on average, and how fast (in one second).
const BRANCHING: f64 = 0.65;
const DECAY: f64 = 1.5;
/// How many commands of makers one taker in a cluster brings about.
const ANSWERS: f64 = 2.0;
/// Commands that were given out this long ago are taken as seen by the view, in seconds.
const IN_FLIGHT: f64 = 0.25;
/// The most commands remembered as on their way.
const MOST_IN_FLIGHT: usize = 256;

/// What the model is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowConfig {
    /// The seed.
    pub seed: u64,
    /// Commands a second over all markets, on average.
    pub rate: f64,
    /// Makes client ids different from those of another run on the same data: for example the second at which the run began.
    pub session: u64,
}

impl Default for FlowConfig {
    fn default() -> FlowConfig {
        FlowConfig { seed: 1, rate: 200.0, session: 0 }
    }
}

/// A command and when it is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Since the start of the flow; never before the one before it.
    pub at: Duration,
    /// The command.
    pub body: Body,
}

/// A command that the view may not show yet.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    at: f64,
    account: AccountId,
    market: MarketId,
    client_id: ClientId,
    /// Of a new order its side and price; none for a cancel.
    placed: Option<(Side, Price)>,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Flow {
    rng: Rng,
    config: FlowConfig,
    accounts: Vec<AccountId>,
    fair: Fair,
    /// Seconds since the start.
    clock: f64,
    /// What earlier takers add to the taker intensity of each market.
    excitement: [f64; MARKETS.len()],
    /// The side that the last taker of each market took.
    mood: [Side; MARKETS.len()],
    in_flight: VecDeque<InFlight>,
    own: Vec<OwnOrder>,
    number: u64,
}

/// Who acts next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Maker,
    Passer,
    Taker,
}

impl Flow {
    /// The model, trading with `accounts`: at least [`ACCOUNTS`] of them, or it panics. More are not used.
    pub fn new(config: FlowConfig, accounts: &[AccountId]) -> Flow {
        assert!(accounts.len() >= ACCOUNTS, "the flow needs {ACCOUNTS} accounts, not {}", accounts.len());
        Flow {
            rng: Rng::new(config.seed),
            config: FlowConfig { rate: config.rate.clamp(0.1, 1e6), ..config },
            accounts: accounts[..ACCOUNTS].to_vec(),
            fair: Fair::new(),
            clock: 0.0,
            excitement: [0.0; MARKETS.len()],
            mood: [Side::Buy; MARKETS.len()],
            in_flight: VecDeque::new(),
            own: Vec::new(),
            number: 0,
        }
    }

    /// Goes on from the last prices of a market that was running before.
    pub fn anchor(&mut self, view: &dyn MarketView) {
        for id in 0..MARKETS.len() as u16 {
            if let Some(last) = view.top(MarketId(id)).last {
                self.fair.anchor(MarketId(id), last);
            }
        }
    }

    /// The first deposits of the accounts.
    pub fn deposits(&mut self) -> Vec<Body> {
        let mut deposits = Vec::new();
        for account in self.accounts.clone() {
            for id in 0..ASSETS.len() as u16 {
                deposits.push(self.deposit(account, AssetId(id)));
            }
        }
        deposits
    }

    /// The makers' whole ladders at once, for a market that is to have a book from its first second. Rungs that stand already, after a
    /// restart, are left out.
    pub fn opening(&mut self, view: &dyn MarketView) -> Vec<Body> {
        let mut orders = Vec::new();
        for market in 0..MARKETS.len() {
            for maker in 0..MAKERS {
                orders.extend(self.ladder(maker, market, view));
            }
        }
        orders
    }

    /// The next command. The view is asked about the book as it is now.
    pub fn next(&mut self, view: &dyn MarketView) -> Planned {
        loop {
            // Thinning (Ogata): intensities only fall until the next arrival, so the total now bounds it.
            let bound = self.total_intensity();
            let dt = self.rng.exponential(1.0 / bound);
            self.pass(dt);
            let total = self.total_intensity();
            if !self.rng.chance(total / bound) {
                continue;
            }
            let (market, role) = self.pick(total);
            let body = match role {
                Role::Maker => self.maker(market, view),
                Role::Passer => self.passer_by(market, view),
                Role::Taker => self.taker(market, view),
            };
            if let Some(body) = body {
                return Planned { at: Duration::from_secs_f64(self.clock), body };
            }
        }
    }

    fn pass(&mut self, dt: f64) {
        self.clock += dt;
        self.fair.advance(dt, &mut self.rng);
        for excitement in &mut self.excitement {
            *excitement *= (-DECAY * dt).exp();
        }
        while self.in_flight.front().is_some_and(|one| one.at < self.clock - IN_FLIGHT) {
            self.in_flight.pop_front();
        }
    }

    fn intensity(&self, market: usize, role: Role) -> f64 {
        let mean = self.config.rate * WEIGHTS[market];
        let heat = self.fair.heat(market);
        match role {
            Role::Maker => mean * MAKER_SHARE * (0.7 + 0.3 * heat) + ANSWERS * self.excitement[market],
            Role::Passer => mean * PASSER_SHARE,
            Role::Taker => mean * TAKER_SHARE * (1.0 - BRANCHING) * heat + self.excitement[market],
        }
    }

    fn total_intensity(&self) -> f64 {
        let of = |market| {
            [Role::Maker, Role::Passer, Role::Taker].into_iter().map(move |role| self.intensity(market, role))
        };
        (0..MARKETS.len()).flat_map(of).sum()
    }

    fn pick(&mut self, total: f64) -> (usize, Role) {
        let mut dice = self.rng.unit() * total;
        for market in 0..MARKETS.len() {
            for role in [Role::Maker, Role::Passer, Role::Taker] {
                let share = self.intensity(market, role);
                if dice < share {
                    return (market, role);
                }
                dice -= share;
            }
        }
        (0, Role::Maker)
    }

    fn client_id(&mut self, letter: char) -> ClientId {
        self.number += 1;
        let text = format!("{letter}{:x}-{:x}", self.config.session, self.number);
        ClientId::new(&text).unwrap_or(ClientId::NONE)
    }

    fn deposit(&mut self, account: AccountId, asset: AssetId) -> Body {
        let reference = self.client_id('d');
        let stake = ASSETS.get(usize::from(asset.0)).map_or(0, |asset| asset.stake);
        Body::Deposit { account, asset, amount: Amount(stake * SCALE), reference }
    }

    /// A deposit when an account has used up nearly all that it had: the model trades for ever.
    fn top_up(&mut self, account: AccountId, asset: AssetId, view: &dyn MarketView) -> Option<Body> {
        let stake = ASSETS.get(usize::from(asset.0))?.stake * SCALE;
        (view.free(account, asset).0 < stake / 50).then(|| self.deposit(account, asset))
    }

    /// Own open orders as they will be when what is on its way has arrived.
    fn look(&mut self, account: AccountId, market: MarketId, view: &dyn MarketView) {
        self.own.clear();
        view.own_orders(account, market, &mut self.own);
        for one in self.in_flight.iter().filter(|one| one.account == account && one.market == market) {
            match one.placed {
                None => self.own.retain(|order| order.client_id != one.client_id),
                Some((side, price)) if self.own.iter().all(|order| order.client_id != one.client_id) => {
                    let (client_id, qty) = (one.client_id, hoga_core::money::Qty::ZERO);
                    self.own.push(OwnOrder { client_id, side, price, qty });
                }
                Some(_) => {}
            }
        }
    }

    fn remember(
        &mut self,
        account: AccountId,
        market: MarketId,
        client_id: ClientId,
        placed: Option<(Side, Price)>,
    ) {
        if self.in_flight.len() == MOST_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back(InFlight { at: self.clock, account, market, client_id, placed });
    }
}
