//! What the model sees of the real market: through [`MarketView`], so that it can be driven by an exchange in the same thread (tests) or by
//! one that only tells events ([`Watcher`]).

use hoga_core::event::{Event, EventRecord, OrderEvent};
use hoga_core::exchange::Exchange;
use hoga_core::folds::depth::DepthBook;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId};
use hoga_core::instrument::Instrument;
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{Order, Side};
use std::collections::BTreeMap;

/// The top of a book.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// Best bid.
    pub bid: Option<Price>,
    /// Best ask.
    pub ask: Option<Price>,
    /// Last traded price.
    pub last: Option<Price>,
}

impl Top {
    /// The best price of a side.
    pub fn best(&self, side: Side) -> Option<Price> {
        match side {
            Side::Buy => self.bid,
            Side::Sell => self.ask,
        }
    }
}

/// An open order of one of the model's own accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnOrder {
    /// Its client id.
    pub client_id: ClientId,
    /// Its side.
    pub side: Side,
    /// Its limit price.
    pub price: Price,
    /// What is left of it.
    pub qty: Qty,
}

impl OwnOrder {
    fn of(order: &Order) -> OwnOrder {
        let left = order.request.qty.0 - order.filled.0 - order.prevented.0;
        let request = &order.request;
        OwnOrder { client_id: request.client_id, side: request.side, price: request.price, qty: Qty(left) }
    }
}

/// What the model asks about the market. Answers may be a little old: the model allows for commands on their way.
pub trait MarketView {
    /// The top of a market's book.
    fn top(&self, market: MarketId) -> Top;
    /// Appends the open orders of an account in a market, oldest first.
    fn own_orders(&self, account: AccountId, market: MarketId, out: &mut Vec<OwnOrder>);
    /// What an account has free of an asset.
    fn free(&self, account: AccountId, asset: AssetId) -> Amount;
}

impl MarketView for Exchange {
    fn top(&self, market: MarketId) -> Top {
        let depth = self.depth(market, 1);
        Top {
            bid: depth.bids.first().map(|(price, _)| *price),
            ask: depth.asks.first().map(|(price, _)| *price),
            last: self.last_trade(market).map(|(_, price)| price),
        }
    }

    fn own_orders(&self, account: AccountId, market: MarketId, out: &mut Vec<OwnOrder>) {
        out.extend(self.open_orders(account, Some(market)).iter().map(OwnOrder::of));
    }

    fn free(&self, account: AccountId, asset: AssetId) -> Amount {
        self.balance(account, asset).map_or(Amount::ZERO, |balance| balance.free)
    }
}

/// One market as events show it.
#[derive(Clone, Debug, Default)]
struct Watched {
    instrument: Option<Instrument>,
    book: DepthBook,
    last: Option<Price>,
    own: BTreeMap<AccountId, BTreeMap<OrderId, OwnOrder>>,
}

/// A view that follows events: feed it with everything the exchange tells, in order.
#[derive(Clone, Debug)]
pub struct Watcher {
    accounts: Vec<AccountId>,
    markets: BTreeMap<MarketId, Watched>,
    balances: BTreeMap<(AccountId, AssetId), Amount>,
}

impl Watcher {
    /// Watches the orders and balances of `accounts`, from an exchange as it is now.
    pub fn new(exchange: &Exchange, accounts: &[AccountId]) -> Watcher {
        let mut watcher =
            Watcher { accounts: accounts.to_vec(), markets: BTreeMap::new(), balances: BTreeMap::new() };
        watcher.accounts.sort_unstable();
        for instrument in exchange.instruments() {
            let depth = exchange.depth(instrument.id, usize::MAX);
            let mut own = BTreeMap::new();
            for account in accounts {
                let orders = exchange.open_orders(*account, Some(instrument.id));
                own.insert(*account, orders.iter().map(|order| (order.id, OwnOrder::of(order))).collect());
            }
            let watched = Watched {
                instrument: Some(*instrument),
                book: DepthBook::from_snapshot(depth.update_id, depth.bids, depth.asks),
                last: exchange.last_trade(instrument.id).map(|(_, price)| price),
                own,
            };
            watcher.markets.insert(instrument.id, watched);
        }
        for account in accounts {
            for asset in (0..exchange.assets().len() as u16).map(AssetId) {
                watcher.balances.insert((*account, asset), exchange.free(*account, asset));
            }
        }
        watcher
    }

    /// Takes the next events. Those that the exchange at the start had already are known by their place: do not feed them again.
    pub fn on_events(&mut self, events: &[EventRecord]) {
        for record in events {
            match &record.event {
                Event::InstrumentSet(instrument) => {
                    self.markets.entry(instrument.id).or_default().instrument = Some(*instrument);
                }
                Event::Level(level) => {
                    self.markets.entry(level.market).or_default().book.set(
                        level.side,
                        level.price,
                        level.qty,
                    );
                }
                Event::Trade(trade) => self.markets.entry(trade.market).or_default().last = Some(trade.price),
                Event::Order(event) if self.is_watched(event.order.request.account) => self.on_order(event),
                Event::Transfer(transfer) if self.is_watched(transfer.account) => {
                    self.balances.insert((transfer.account, transfer.asset), transfer.balance.free);
                }
                _ => {}
            }
        }
    }

    fn is_watched(&self, account: AccountId) -> bool {
        self.accounts.binary_search(&account).is_ok()
    }

    fn on_order(&mut self, event: &OrderEvent) {
        let request = &event.order.request;
        let watched = self.markets.entry(request.market).or_default();
        if let Some(instrument) = &watched.instrument {
            self.balances.insert((request.account, instrument.base), event.base.free);
            self.balances.insert((request.account, instrument.quote), event.quote.free);
        }
        let own = watched.own.entry(request.account).or_default();
        if event.order.status.is_open() {
            own.insert(event.order.id, OwnOrder::of(&event.order));
        } else {
            own.remove(&event.order.id);
        }
    }
}

impl MarketView for Watcher {
    fn top(&self, market: MarketId) -> Top {
        let Some(watched) = self.markets.get(&market) else { return Top::default() };
        let best = |side| watched.book.best(side).map(|(price, _)| price);
        Top { bid: best(Side::Buy), ask: best(Side::Sell), last: watched.last }
    }

    fn own_orders(&self, account: AccountId, market: MarketId, out: &mut Vec<OwnOrder>) {
        let own = self.markets.get(&market).and_then(|watched| watched.own.get(&account));
        out.extend(own.into_iter().flat_map(|orders| orders.values().copied()));
    }

    fn free(&self, account: AccountId, asset: AssetId) -> Amount {
        self.balances.get(&(account, asset)).copied().unwrap_or(Amount::ZERO)
    }
}
