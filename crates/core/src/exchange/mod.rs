//! The exchange as a state machine: [`Exchange::apply`] takes the next command and writes the events it brings about.
//!
//! **Invariants**
//! - The same commands give the same events and the same [`Exchange::digest`]. Nothing but the command and the state decides: no clock,
//!   randomness, float or hash order.
//! - A rejected command changes nothing but [`Exchange::position`], [`Exchange::time`] and [`Exchange::chain`]; its only event is the
//!   rejection.
//! - Per asset, the sum over all accounts (with the exchange's own, which collects the fees) is deposits less settled withdrawals.
//! - What an account has locked is exactly what its open orders and withdrawals hold.
//! - No book is crossed after a command. Within a price, the older order trades first.
//! - Once slabs and buffers have grown to the size of the market, orders, cancels and modifications allocate nothing.
//!
//! **A step** is one order meeting the book. Its events: what happened to each order in turn, then one [`crate::event::Level`] for each
//! (side, price) that changed, with the final total, in the order of the first change. A trade may trigger conditional orders; each of
//! them is a step of its own, after the step that triggered it (see `stops`).
//!
//! **Holds.** A limit buy locks price × quantity of the quote asset, a sell its quantity of the base asset; a fill at a better price
//! releases the difference at once. A market buy by quantity locks what the book asks for it, a market order by quote amount locks that
//! amount (buy) or the base quantity that the book takes for it (sell). A conditional order locks from its acceptance: with a limit price as
//! a limit order, without one stop price × quantity (buy) or its quantity (sell); if a triggered market buy costs more than that, it takes
//! the difference from what is free, and what still cannot be paid expires.
//!
//! **Answers worth knowing.** A market order with nothing to trade with is accepted and expires, as does a FOK order that cannot trade whole.
//! A market order by quote amount is filled when the rest of the amount does not cover one lot step at the last price. CANCEL ALL without
//! open orders does nothing and is no reject. An order whose level's total would not fit an `i64` is refused (`INVALID_AMOUNT`); where that shows
//! only later, or the sum of what an order traded would not fit, its rest expires.
//!
//! **Room for what comes later.** An iceberg is a record whose hidden rest refills its node at the back of the level. A trailing stop moves
//! between levels of the book of stops. An order list is `list_id` and what its members do to each other in `close_step`. A call auction
//! collects orders with `rest_taker` and matches them at one price; the book may be crossed meanwhile, only `match_taker` uncrosses it.

mod accounts;
mod digest;
mod emit;
mod filters;
mod matching;
mod orders;
mod place;
mod queries;
mod setup;
mod snapshot;
mod stops;
mod transfers;

use std::collections::VecDeque;

use crate::book::Book;
use crate::command::{Body, Command, RULES_VERSION};
use crate::event::{Event, EventRecord, Reject, Rejection};
use crate::ids::{AccountId, ClientId, EXCHANGE_ACCOUNT, MarketId, Seq, Timestamp, TradeId};
use crate::instrument::{Instrument, Name};
use crate::money::Price;
use crate::order::{OrderRef, Side};
use accounts::Accounts;
use emit::Emitter;
use orders::Orders;
use transfers::Withdrawals;

pub use accounts::RECENT_REFERENCES;
pub use queries::{Depth, Totals};

/// What flowed in and out of the exchange, per asset.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    deposited: i128,
    withdrawn: i128,
}

/// What a market has beside its definition.
#[derive(Clone, Debug)]
struct Market {
    book: Book,
    /// Conditional orders by trigger price: falls on the buying side, rises on the selling side.
    stops: Book,
    last_trade: TradeId,
    /// The price of the last trade; meaningless while `last_trade` is 0.
    last_price: Price,
    update_id: u64,
}

impl Market {
    fn new() -> Market {
        Market {
            book: Book::new(),
            stops: Book::new(),
            last_trade: TradeId(0),
            last_price: Price::ZERO,
            update_id: 0,
        }
    }

    fn last_price(&self) -> Option<Price> {
        (self.last_trade.0 > 0).then_some(self.last_price)
    }
}

/// A level that changed in the step, with its total so far.
#[derive(Clone, Copy, Debug)]
struct Touch {
    market: MarketId,
    side: Side,
    price: i64,
    total: i64,
}

/// Buffers that live across commands so that no command allocates. Empty between commands, and no part of the state.
#[derive(Clone, Debug, Default)]
struct Scratch {
    touched: Vec<Touch>,
    /// Conditional orders whose trigger was reached, in the order in which they go to the book.
    triggered: VecDeque<u32>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Exchange {
    position: Seq,
    time: Timestamp,
    chain: u64,
    assets: Vec<Name>,
    flows: Vec<Flow>,
    instruments: Vec<Instrument>,
    markets: Vec<Market>,
    accounts: Accounts,
    orders: Orders,
    withdrawals: Withdrawals,
    last_order: u64,
    scratch: Scratch,
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange::new()
    }
}

impl Exchange {
    /// An exchange without assets, markets and clients; only the exchange's own account exists.
    pub fn new() -> Exchange {
        Exchange {
            position: Seq(0),
            time: Timestamp(0),
            chain: 0,
            assets: Vec::new(),
            flows: Vec::new(),
            instruments: Vec::new(),
            markets: Vec::new(),
            accounts: Accounts::new(),
            orders: Orders::new(),
            withdrawals: Withdrawals::new(),
            last_order: 0,
            scratch: Scratch::default(),
        }
    }

    /// Applies the next command and appends its events to `out` (which is not cleared). An error is the reject that is also in the
    /// command's one event.
    ///
    /// # Panics
    /// On a broken invariant: a command out of its place, one that is earlier than the last or of rules that this build does not know, or a
    /// ledger that does not add up.
    pub fn apply(&mut self, command: &Command, out: &mut Vec<EventRecord>) -> Result<(), Reject> {
        assert!(command.seq == self.position.next(), "command {} after {}", command.seq, self.position);
        assert!(command.time >= self.time, "command {} is earlier than the one before it", command.seq);
        assert!(command.rules <= RULES_VERSION, "command {} has rules of a newer build", command.seq);
        self.position = command.seq;
        self.time = command.time;
        let mut emit = Emitter::new(out, command.seq, command.time, self.chain);
        let result = if command.deadline.0 != 0 && command.time > command.deadline {
            Err(Reject::DeadlinePassed)
        } else {
            self.dispatch(&command.body, &mut emit)
        };
        if let Err(reason) = result {
            emit.emit(Event::Rejected(rejection(&command.body, reason)));
        }
        debug_assert!(self.scratch.touched.is_empty() && self.scratch.triggered.is_empty());
        self.chain = emit.chain();
        result
    }

    fn dispatch(&mut self, body: &Body, emit: &mut Emitter<'_>) -> Result<(), Reject> {
        match body {
            Body::Place(request) => self.place(request, emit),
            Body::Cancel { account, market, order, cancel_id } => {
                self.cancel(*account, *market, order, cancel_id, emit)
            }
            Body::Modify { account, market, order, price, qty } => {
                self.modify(*account, *market, order, *price, *qty, emit)
            }
            Body::CancelAll { account, market } => self.cancel_all(*account, *market, emit),
            Body::Deposit { account, asset, amount, reference } => {
                self.deposit(*account, *asset, *amount, reference, emit)
            }
            Body::Withdraw { account, asset, amount, reference } => {
                self.withdraw(*account, *asset, *amount, reference, emit)
            }
            Body::SettleWithdrawal { id } => self.settle_withdrawal(*id, emit),
            Body::ReleaseWithdrawal { id } => self.release_withdrawal(*id, emit),
            Body::CreateAccount => self.create_account(emit),
            Body::AddAsset { id, name } => self.add_asset(*id, *name, emit),
            Body::SetInstrument(instrument) => self.set_instrument(instrument, emit),
            Body::SetState { market, state } => self.set_state(*market, *state, emit),
        }
    }

    /// The place of a market in the arrays.
    fn market(&self, market: MarketId) -> Result<usize, Reject> {
        let at = usize::from(market.0);
        if at < self.markets.len() { Ok(at) } else { Err(Reject::UnknownMarket) }
    }

    /// Writes down that a level's total changed.
    #[inline]
    fn touch(&mut self, market: MarketId, side: Side, price: i64, total: i64) {
        let touched = &mut self.scratch.touched;
        if let Some(last) = touched.last_mut()
            && (last.market, last.side, last.price) == (market, side, price)
        {
            last.total = total;
        } else {
            touched.push(Touch { market, side, price, total });
        }
    }
}

fn rejection(body: &Body, reason: Reject) -> Rejection {
    let (account, market, client_id) = match body {
        Body::Place(request) => (request.account, Some(request.market), request.client_id),
        Body::Cancel { account, market, order, .. } | Body::Modify { account, market, order, .. } => {
            let client_id = match order {
                OrderRef::Client(id) => *id,
                OrderRef::Id(_) => ClientId::NONE,
            };
            (*account, Some(*market), client_id)
        }
        Body::CancelAll { account, market } => (*account, *market, ClientId::NONE),
        Body::Deposit { account, .. } | Body::Withdraw { account, .. } => (*account, None, ClientId::NONE),
        Body::SetState { market, .. } => (EXCHANGE_ACCOUNT, Some(*market), ClientId::NONE),
        Body::SetInstrument(instrument) => (EXCHANGE_ACCOUNT, Some(instrument.id), ClientId::NONE),
        _ => (EXCHANGE_ACCOUNT, None, ClientId::NONE),
    };
    Rejection { account, market, client_id, reason }
}

/// The exchange's own account may not trade or be paid into.
fn is_client(accounts: &Accounts, account: AccountId) -> Result<(), Reject> {
    accounts.client(account).map(|_| ()).ok_or(Reject::UnknownAccount)
}
