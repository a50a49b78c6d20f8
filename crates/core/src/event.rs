//! Events: what the commands brought about. A pure function of the journal, in a fixed order.
//!
//! Order of the events of one command: what happened to each order in the order in which it happened (for each fill the [`Trade`] first,
//! then the maker's [`OrderEvent`], then the taker's), each [`Level`] after the last change to it in that step, then triggered stops in
//! the same manner.

use crate::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Seq, Timestamp, TradeId, WithdrawalId};
use crate::instrument::{Instrument, Name, TradingState};
use crate::money::{Amount, Price, Qty};
use crate::order::{Order, Side, coded};

/// One event with its place: the command that caused it and its number among that command's events, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The command.
    pub seq: Seq,
    /// Number among the command's events.
    pub index: u32,
    /// The command's time.
    pub time: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // events live in reused buffers; boxing would allocate per event
pub enum Event {
    /// An asset was added.
    AssetAdded {
        /// Its number.
        id: AssetId,
        /// Its name.
        name: Name,
    },
    /// A market was added or redefined.
    InstrumentSet(Instrument),
    /// A market was opened, halted or restricted.
    StateSet {
        /// Which.
        market: MarketId,
        /// The new state.
        state: TradingState,
    },
    /// An account was opened.
    AccountCreated {
        /// Its number.
        account: AccountId,
    },
    /// Something other than an order changed a balance.
    Transfer(Transfer),
    /// Something happened to an order.
    Order(OrderEvent),
    /// Two orders met.
    Trade(Trade),
    /// The total at a price changed. Market data only: not published to the event log, since it follows from the rest.
    Level(Level),
    /// The command was refused; it changed nothing. Always the only event of its command.
    Rejected(Rejection),
}

coded!(
    /// Why a balance changed without an order.
    TransferKind {
        /// Came from outside.
        Deposit = 0, "DEPOSIT";
        /// Was locked for a withdrawal.
        WithdrawalRequested = 1, "WITHDRAWAL_REQUESTED";
        /// Left.
        WithdrawalSettled = 2, "WITHDRAWAL_SETTLED";
        /// Was released again.
        WithdrawalReleased = 3, "WITHDRAWAL_RELEASED";
    }
);

/// A deposit, or a step of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which step.
    pub kind: TransferKind,
    /// Whose.
    pub account: AccountId,
    /// What.
    pub asset: AssetId,
    /// How much.
    pub amount: Amount,
    /// The client's name for it.
    pub reference: ClientId,
    /// The withdrawal; 0 for a deposit.
    pub withdrawal: WithdrawalId,
    /// The balance afterwards.
    pub balance: Balance,
    /// True when the reference was seen before: nothing changed, this repeats the first answer.
    pub repeated: bool,
}

/// What an account has of one asset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Free to use.
    pub free: Amount,
    /// Held for open orders and withdrawals.
    pub locked: Amount,
}

coded!(
    /// What happened to an order (`x` of Binance's executionReport).
    Execution {
        /// It was accepted.
        New = 0, "NEW";
        /// It was taken back.
        Canceled = 1, "CANCELED";
        /// Its price or quantity was changed.
        Replaced = 2, "REPLACED";
        /// It was refused.
        Rejected = 3, "REJECTED";
        /// It traded.
        Trade = 4, "TRADE";
        /// It ended by the rules of its type.
        Expired = 5, "EXPIRED";
        /// Self-trade prevention reduced or ended it.
        TradePrevention = 6, "TRADE_PREVENTION";
        /// Its trigger was reached and it went to the book. (Binance reports a second NEW; the gateway says so too.)
        Triggered = 7, "TRIGGERED";
    }
);

/// Something happened to an order: complete in itself, so that a reader needs no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderEvent {
    /// What happened.
    pub execution: Execution,
    /// The order afterwards.
    pub order: Order,
    /// The fill, when `execution` is `Trade`.
    pub fill: Option<Fill>,
    /// For `Canceled`: the client's name for the cancel; else none.
    pub cancel_id: ClientId,
    /// Quantity taken away in this step by self-trade prevention.
    pub prevented: Qty,
    /// The owner's balance of the base asset afterwards.
    pub base: Balance,
    /// The owner's balance of the quote asset afterwards.
    pub quote: Balance,
}

/// One side of a trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The trade.
    pub trade: TradeId,
    /// At what price: the resting order's.
    pub price: Price,
    /// How much of the base asset.
    pub qty: Qty,
    /// How much of the quote asset, before the fee.
    pub quote: Amount,
    /// The fee: of the base asset for the buyer, of the quote asset for the seller.
    pub fee: Amount,
    /// What the fee is taken of.
    pub fee_asset: AssetId,
    /// Whether this order rested.
    pub maker: bool,
    /// The order on the other side.
    pub counter_order: OrderId,
    /// The account on the other side.
    pub counter_account: AccountId,
}

/// Two orders met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trade {
    /// Where.
    pub market: MarketId,
    /// Its number in that market, without holes.
    pub id: TradeId,
    /// The resting order's price.
    pub price: Price,
    /// Base quantity.
    pub qty: Qty,
    /// Quote amount.
    pub quote: Amount,
    /// The buying order.
    pub buy_order: OrderId,
    /// The selling order.
    pub sell_order: OrderId,
    /// Who bought.
    pub buyer: AccountId,
    /// Who sold.
    pub seller: AccountId,
    /// Which side took.
    pub taker_side: Side,
    /// The buyer's fee, of the base asset.
    pub buyer_fee: Amount,
    /// The seller's fee, of the quote asset.
    pub seller_fee: Amount,
}

/// The total at a price changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Where.
    pub market: MarketId,
    /// Which side.
    pub side: Side,
    /// Which price.
    pub price: Price,
    /// The new total; zero when the level is gone.
    pub qty: Qty,
    /// The market's depth update number, from 1 without holes; stable across restarts.
    pub update_id: u64,
}

/// A refused command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Whose command; [`crate::ids::EXCHANGE_ACCOUNT`] for operator commands.
    pub account: AccountId,
    /// Where, when the command named a market.
    pub market: Option<MarketId>,
    /// The client's name for the order, when it had one.
    pub client_id: ClientId,
    /// Why.
    pub reason: Reject,
}

coded!(
    /// Why a command was refused. A reject is an answer, not a fault. The text names it in events and dumps; what a client reads is the gateway's.
    Reject {
        /// The deadline had passed when the sequencer took it.
        DeadlinePassed = 1, "DEADLINE_PASSED";
        /// No such market.
        UnknownMarket = 2, "UNKNOWN_MARKET";
        /// No such asset.
        UnknownAsset = 3, "UNKNOWN_ASSET";
        /// No such account.
        UnknownAccount = 4, "UNKNOWN_ACCOUNT";
        /// No such open order of this account in this market.
        UnknownOrder = 5, "UNKNOWN_ORDER";
        /// No such open withdrawal.
        UnknownWithdrawal = 6, "UNKNOWN_WITHDRAWAL";
        /// The account has an open order with this client id.
        DuplicateClientId = 7, "DUPLICATE_CLIENT_ID";
        /// The free balance does not cover it.
        InsufficientBalance = 8, "INSUFFICIENT_BALANCE";
        /// A post-only order would trade at once.
        WouldMatch = 9, "WOULD_MATCH";
        /// A conditional order's trigger is already reached.
        StopWouldTrigger = 10, "STOP_WOULD_TRIGGER";
        /// The market's state does not allow it.
        MarketClosed = 11, "MARKET_CLOSED";
        /// A market order without anything to trade with.
        NoLiquidity = 12, "NO_LIQUIDITY";
        /// PRICE_FILTER: not positive, out of range, or off the tick.
        PriceFilter = 13, "PRICE_FILTER";
        /// LOT_SIZE: not positive, out of range, or off the step.
        LotSize = 14, "LOT_SIZE";
        /// MARKET_LOT_SIZE.
        MarketLotSize = 15, "MARKET_LOT_SIZE";
        /// NOTIONAL.
        Notional = 16, "NOTIONAL";
        /// PERCENT_PRICE_BY_SIDE.
        PercentPrice = 17, "PERCENT_PRICE_BY_SIDE";
        /// MAX_NUM_ORDERS.
        MaxOrders = 18, "MAX_NUM_ORDERS";
        /// MAX_NUM_ALGO_ORDERS.
        MaxAlgoOrders = 19, "MAX_NUM_ALGO_ORDERS";
        /// MAX_POSITION.
        MaxPosition = 20, "MAX_POSITION";
        /// An amount that is zero, negative or would overflow a balance.
        InvalidAmount = 21, "INVALID_AMOUNT";
        /// A combination of fields that the order type does not take.
        InvalidOrder = 22, "INVALID_ORDER";
        /// An asset or instrument definition that contradicts itself or what exists.
        InvalidDefinition = 23, "INVALID_DEFINITION";
        /// The order cannot be modified that way (not resting, or no more than what has traded).
        InvalidModify = 24, "INVALID_MODIFY";
    }
);
