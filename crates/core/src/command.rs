//! Commands: the inputs of the exchange, and the only thing the journal holds.

use crate::ids::{AccountId, AssetId, ClientId, MarketId, Seq, Timestamp, WithdrawalId};
use crate::instrument::{Instrument, Name, TradingState};
use crate::money::{Amount, Price, Qty};
use crate::order::{NewOrder, OrderRef};

/// The version of the matching rules that this build applies to new commands. A command carries the version under which it was
/// accepted, and replay applies that one: a build that changes an outcome raises this number and keeps the old branch.
pub const RULES_VERSION: u16 = 1;

/// One input, in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Place in the journal.
    pub seq: Seq,
    /// When the sequencer took it; never earlier than the command before it.
    pub time: Timestamp,
    /// Rules version; see [`RULES_VERSION`].
    pub rules: u16,
    /// The client's deadline (`timestamp + recvWindow`): when `time` is later the command is rejected. 0: none.
    pub deadline: Timestamp,
    /// What is asked for.
    pub body: Body,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // commands live in preallocated ring slots; boxing would allocate per command
pub enum Body {
    /// Adds an asset; its number must be the next free one.
    AddAsset {
        /// Its number.
        id: AssetId,
        /// Its name.
        name: Name,
    },
    /// Adds a market, or replaces the limits, fees and state of the one with the same number, symbol and assets.
    SetInstrument(Instrument),
    /// Opens, halts or restricts a market.
    SetState {
        /// Which market.
        market: MarketId,
        /// The new state.
        state: TradingState,
    },
    /// Opens an account; its number is the next free one and comes back in the event.
    CreateAccount,
    /// Puts an amount into an account from outside.
    Deposit {
        /// Whose.
        account: AccountId,
        /// What.
        asset: AssetId,
        /// How much; positive.
        amount: Amount,
        /// The client's name for it. A reference seen before (in the account's recent ones) changes nothing and gives the first answer.
        reference: ClientId,
    },
    /// Locks an amount that is to leave the exchange.
    Withdraw {
        /// Whose.
        account: AccountId,
        /// What.
        asset: AssetId,
        /// How much; positive.
        amount: Amount,
        /// As for deposits.
        reference: ClientId,
    },
    /// The locked amount has left.
    SettleWithdrawal {
        /// Which.
        id: WithdrawalId,
    },
    /// The withdrawal did not happen: the amount is available again.
    ReleaseWithdrawal {
        /// Which.
        id: WithdrawalId,
    },
    /// A new order.
    Place(NewOrder),
    /// Takes an open order back.
    Cancel {
        /// Whose.
        account: AccountId,
        /// Where.
        market: MarketId,
        /// Which.
        order: OrderRef,
        /// The client's name for the cancel itself; may be none.
        cancel_id: ClientId,
    },
    /// Takes all open orders of an account back, in one market or in all, oldest first.
    CancelAll {
        /// Whose.
        account: AccountId,
        /// Where; `None` for everywhere.
        market: Option<MarketId>,
    },
    /// Changes price and total quantity of an open order that rests in the book. With the same price and a smaller quantity it keeps its
    /// place, otherwise it goes to the back of its new level, and trades at once when it crosses.
    Modify {
        /// Whose.
        account: AccountId,
        /// Where.
        market: MarketId,
        /// Which.
        order: OrderRef,
        /// The new limit price.
        price: Price,
        /// The new total quantity, including what has traded; more than that.
        qty: Qty,
    },
}

impl Body {
    /// Whether it takes orders back: these are let in first when the ring is nearly full.
    pub fn is_cancel(&self) -> bool {
        matches!(self, Body::Cancel { .. } | Body::CancelAll { .. })
    }
}
