//! What an order is. Names and meanings follow the Binance Spot documentation.

use crate::ids::{AccountId, ClientId, MarketId, OrderId, Timestamp};
use crate::money::{Amount, Price, Qty};

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)+ }

        impl $name {
            /// The name as the API spells it.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }

            /// From the API's spelling.
            pub fn parse(text: &str) -> Option<$name> {
                match text { $($text => Some($name::$variant),)+ _ => None }
            }

            /// From the code of the wire and journal formats.
            pub fn from_code(code: u8) -> Option<$name> {
                match code { $($code => Some($name::$variant),)+ _ => None }
            }
        }
    };
}
pub(crate) use coded;

coded!(
    /// Which side of the book an order is on.
    Side {
        /// Wants the base asset, pays the quote asset.
        Buy = 0, "BUY";
        /// Gives the base asset, gets the quote asset.
        Sell = 1, "SELL";
    }
);

impl Side {
    /// The other side.
    pub fn opposite(self) -> Side {
        match self {
            Side::Buy => Side::Sell,
            Side::Sell => Side::Buy,
        }
    }
}

coded!(
    /// The order types.
    OrderType {
        /// Trades at its price or better, the rest goes by its time in force.
        Limit = 0, "LIMIT";
        /// Trades at once at any price within the band; the rest expires. By base quantity or by quote amount.
        Market = 1, "MARKET";
        /// A limit order that is rejected when it would trade at once (post-only).
        LimitMaker = 2, "LIMIT_MAKER";
        /// Becomes a market order when the last price reaches the stop price from the safe side.
        StopLoss = 3, "STOP_LOSS";
        /// Becomes a limit order when the last price reaches the stop price from the safe side.
        StopLossLimit = 4, "STOP_LOSS_LIMIT";
        /// Becomes a market order when the last price reaches the target.
        TakeProfit = 5, "TAKE_PROFIT";
        /// Becomes a limit order when the last price reaches the target.
        TakeProfitLimit = 6, "TAKE_PROFIT_LIMIT";
    }
);

impl OrderType {
    /// Whether the order waits for a trigger price first.
    pub fn is_conditional(self) -> bool {
        matches!(
            self,
            OrderType::StopLoss
                | OrderType::StopLossLimit
                | OrderType::TakeProfit
                | OrderType::TakeProfitLimit
        )
    }

    /// Whether the order carries a limit price.
    pub fn has_price(self) -> bool {
        !matches!(self, OrderType::Market | OrderType::StopLoss | OrderType::TakeProfit)
    }
}

coded!(
    /// What happens to the part that does not trade at once.
    TimeInForce {
        /// Good till cancelled: rests in the book.
        Gtc = 0, "GTC";
        /// Immediate or cancel: expires.
        Ioc = 1, "IOC";
        /// Fill or kill: the order trades whole or not at all.
        Fok = 2, "FOK";
    }
);

coded!(
    /// Self-trade prevention: what happens when both orders of a match belong to one account. The taker's mode decides.
    StpMode {
        /// They trade.
        None = 0, "NONE";
        /// The rest of the taker expires, the maker stays.
        ExpireTaker = 1, "EXPIRE_TAKER";
        /// The maker expires, the taker goes on.
        ExpireMaker = 2, "EXPIRE_MAKER";
        /// Both expire.
        ExpireBoth = 3, "EXPIRE_BOTH";
        /// Both are reduced by the smaller rest; what becomes empty expires.
        Decrement = 4, "DECREMENT";
    }
);

coded!(
    /// The state of an order.
    OrderStatus {
        /// Accepted: in the book, or waiting for its trigger.
        New = 0, "NEW";
        /// Traded in part.
        PartiallyFilled = 1, "PARTIALLY_FILLED";
        /// Traded whole.
        Filled = 2, "FILLED";
        /// Cancelled by its owner or an operator.
        Canceled = 3, "CANCELED";
        /// Refused.
        Rejected = 4, "REJECTED";
        /// Ended by the rules of its type (IOC or market rest, FOK not filled).
        Expired = 5, "EXPIRED";
        /// Ended by self-trade prevention.
        ExpiredInMatch = 6, "EXPIRED_IN_MATCH";
    }
);

impl OrderStatus {
    /// Whether the order can still trade.
    pub fn is_open(self) -> bool {
        matches!(self, OrderStatus::New | OrderStatus::PartiallyFilled)
    }
}

/// A new order as its owner asks for it. Fields that the type does not use are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// The owner.
    pub account: AccountId,
    /// The market.
    pub market: MarketId,
    /// Buy or sell.
    pub side: Side,
    /// The type.
    pub order_type: OrderType,
    /// Time in force; ignored by types that have none.
    pub tif: TimeInForce,
    /// Limit price; zero for market types.
    pub price: Price,
    /// Trigger price of conditional types, else zero.
    pub stop_price: Price,
    /// Quantity of the base asset; zero when `quote_qty` is given.
    pub qty: Qty,
    /// For MARKET: the amount of the quote asset to spend or to receive, else zero.
    pub quote_qty: Amount,
    /// Visible part of an iceberg; zero for an ordinary order. Refused by this version when not zero.
    pub iceberg_qty: Qty,
    /// Trailing distance in basis points; zero for none. Refused by this version when not zero.
    pub trailing_delta: u32,
    /// Self-trade prevention.
    pub stp: StpMode,
    /// The client's name for the order: always set, the gateway makes one where the client gave none.
    pub client_id: ClientId,
}

/// How a command names an existing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRef {
    /// By the exchange's number.
    Id(OrderId),
    /// By the client's name, among the account's open orders.
    Client(ClientId),
}

/// An order with its state, as events and queries show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The exchange's number.
    pub id: OrderId,
    /// As asked for. After a modification, `price` and `qty` are the new ones.
    pub request: NewOrder,
    /// State.
    pub status: OrderStatus,
    /// Whether a conditional order's trigger was reached; true for all other types.
    pub working: bool,
    /// Base quantity traded so far.
    pub filled: Qty,
    /// Quote amount traded so far.
    pub filled_quote: Amount,
    /// Base quantity taken away by self-trade prevention.
    pub prevented: Qty,
    /// The order list it belongs to; 0 for none (lists come later).
    pub list_id: u64,
    /// When it was accepted.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
    /// When it entered the book or matched; 0 while it waits for its trigger.
    pub working_since: Timestamp,
}
