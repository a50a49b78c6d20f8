//! The order-by-order capture of Bitstamp's BTC/USD market (Python package `ob-analytics`, `orders.csv.gz` and `trades.csv`): every order
//! that was created, changed and deleted, and the trades published beside it.
//!
//! What of it is input and what is result was read off the data:
//! - `created` rows are new orders. `changed` rows, and `deleted` rows without volume (filled), are results: left out.
//! - Other `deleted` rows are cancels, unless of a market order, which cannot rest; their price column is not to be trusted and not needed.
//! - An order that is deleted in its own millisecond with its whole volume was post-only: when it would cross, it was refused.
//! - Price 999999999 is a market order for 5 USD, its quantity rounded down to eight places.
//! - The last rows, deleted at the moment of their own arrival, are not events but the book at the end: what a replay must come to.
//! - Prices are rounded to whole dollars. Old bids of less than half a dollar stand there with price 0, which no exchange takes: they are
//!   put at one dollar, where they are as far from every trade.
//! - Two orders of the start book ([`GHOSTS`]) had gone before the stream began.

use crate::recording::{Lines, ReadError, decimal, fields, unsigned};
use hoga_core::command::Body;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};
use std::collections::{HashMap, HashSet};
use std::io::BufRead;

/// Orders of the start book that had gone before the stream began.
pub const GHOSTS: [u64; 2] = [2_002_347_646_152_704, 2_002_347_642_003_458];

/// The price that stands for "market order".
const MARKET_PRICE: Price = Price(999_999_999 * SCALE);

/// What the market orders of the capture spend.
const MARKET_SPENDS: Amount = Amount(5 * SCALE);

const HEADING: &str = "id,timestamp,exchange_timestamp,price,volume,action,direction";
const TRADES_HEADING: &str =
    "trade_id,timestamp,exchange_timestamp,price,amount,buy_order_id,sell_order_id,side";

/// What a row says happened to the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It came.
    Created,
    /// It traded in part.
    Changed,
    /// It went: filled or cancelled.
    Deleted,
}

/// One row of the capture as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Bitstamp's order id.
    pub order: u64,
    /// When the row was received.
    pub received: Timestamp,
    /// The exchange's own time, in whole milliseconds.
    pub exchange: Timestamp,
    /// The price column.
    pub price: Price,
    /// What is left of the order.
    pub volume: Qty,
    /// What happened.
    pub action: Action,
    /// The order's side.
    pub side: Side,
}

/// Reads the rows one by one; after an error it ends.
pub struct Rows<R> {
    lines: Lines<R>,
    begun: bool,
    failed: bool,
}

impl<R: BufRead> Rows<R> {
    /// From a reader, for example that of [`crate::recording::open`].
    pub fn new(reader: R) -> Rows<R> {
        Rows { lines: Lines::new(reader), begun: false, failed: false }
    }

    fn read(&mut self) -> Result<Option<Row>, ReadError> {
        if !self.begun {
            self.begun = true;
            heading(&mut self.lines, HEADING)?;
        }
        match self.lines.next()? {
            Some((line, bytes)) => parse_row(line, bytes).map(Some),
            None => Ok(None),
        }
    }
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = Result<Row, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = self.read().transpose();
        self.failed = matches!(result, Some(Err(_)));
        result
    }
}

fn heading<R: BufRead>(lines: &mut Lines<R>, expected: &'static str) -> Result<(), ReadError> {
    match lines.next()? {
        Some((_, bytes)) if bytes == expected.as_bytes() => Ok(()),
        _ => Err(ReadError::Heading { expected }),
    }
}

fn millis(line: u64, field: &'static str, text: &[u8]) -> Result<Timestamp, ReadError> {
    let ms = unsigned(line, field, text)?;
    let micros = i64::try_from(ms).ok().and_then(|ms| ms.checked_mul(1000));
    micros.map(Timestamp).ok_or_else(|| ReadError::field(line, field, text, "out of range"))
}

fn parse_row(line: u64, bytes: &[u8]) -> Result<Row, ReadError> {
    let [order, received, exchange, price, volume, action, direction] = fields::<7>(line, bytes)?;
    Ok(Row {
        order: unsigned(line, "id", order)?,
        received: millis(line, "timestamp", received)?,
        exchange: millis(line, "exchange_timestamp", exchange)?,
        price: Price(decimal(line, "price", price)?),
        volume: Qty(decimal(line, "volume", volume)?),
        action: match action {
            b"created" => Action::Created,
            b"changed" => Action::Changed,
            b"deleted" => Action::Deleted,
            _ => {
                return Err(ReadError::field(line, "action", action, "neither created, changed nor deleted"));
            }
        },
        side: match direction {
            b"bid" => Side::Buy,
            b"ask" => Side::Sell,
            _ => return Err(ReadError::field(line, "direction", direction, "neither bid nor ask")),
        },
    })
}

/// One thing that somebody asked of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When: the exchange's time, never before the step before it.
    pub time: Timestamp,
    /// Bitstamp's order id.
    pub order: u64,
    /// What.
    pub kind: StepKind,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A new limit order.
    Limit {
        /// Its side.
        side: Side,
        /// Its price.
        price: Price,
        /// Its quantity.
        qty: Qty,
        /// Whether it is refused when it would trade at once.
        post_only: bool,
    },
    /// A market order by quote amount.
    Market {
        /// Its side.
        side: Side,
        /// What to spend or to receive.
        quote: Amount,
    },
    /// Takes an order back. Of a post-only order that was refused this is refused too (unknown order), and so are the 13 that name orders
    /// never seen.
    Cancel,
}

impl Step {
    /// The client id that the order goes by: Bitstamp's number in digits.
    pub fn client_id(&self) -> ClientId {
        ClientId::new(&self.order.to_string()).unwrap_or(ClientId::NONE)
    }

    /// The step as a command of `account` in `market`. Self-trade prevention is off: the capture does not say whose an order is.
    pub fn body(&self, account: AccountId, market: MarketId) -> Body {
        let client_id = self.client_id();
        let order = |side, order_type, price, qty, quote_qty| {
            Body::Place(NewOrder {
                account,
                market,
                side,
                order_type,
                tif: TimeInForce::Gtc,
                price,
                stop_price: Price::ZERO,
                qty,
                quote_qty,
                iceberg_qty: Qty::ZERO,
                trailing_delta: 0,
                stp: StpMode::None,
                client_id,
            })
        };
        match self.kind {
            StepKind::Limit { side, price, qty, post_only } => {
                let order_type = if post_only { OrderType::LimitMaker } else { OrderType::Limit };
                order(side, order_type, price, qty, Amount::ZERO)
            }
            StepKind::Market { side, quote } => order(side, OrderType::Market, Price::ZERO, Qty::ZERO, quote),
            StepKind::Cancel => Body::Cancel {
                account,
                market,
                order: OrderRef::Client(client_id),
                cancel_id: ClientId::NONE,
            },
        }
    }
}

/// An order of the book at the end of the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resting {
    /// Bitstamp's order id.
    pub order: u64,
    /// What is left of it.
    pub qty: Qty,
}

/// A whole capture: what to replay, and what it must come to.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// The inputs in their order. The first of them, at one moment, are the start book.
    pub steps: Vec<Step>,
    /// The book at the end, ascending by order id.
    pub end_book: Vec<Resting>,
}

impl Capture {
    /// Reads a capture. All of it is needed before the first step is known: whether an order was post-only shows when it goes.
    pub fn read(reader: impl BufRead) -> Result<Capture, ReadError> {
        let rows: Vec<Row> = Rows::new(reader).collect::<Result<_, _>>()?;
        Ok(Capture::of(&rows))
    }

    /// The capture that the rows make.
    pub fn of(rows: &[Row]) -> Capture {
        let mut gone: HashMap<u64, &Row> = HashMap::new();
        for row in rows.iter().filter(|row| row.action == Action::Deleted) {
            gone.insert(row.order, row);
        }
        let is_end = |row: &Row| row.action == Action::Deleted && row.received == row.exchange;
        let end = rows.last().filter(|row| is_end(row)).map(|row| row.exchange);
        let mut capture = Capture::default();
        let mut market_orders: HashSet<u64> = HashSet::new();
        let mut time = Timestamp(0);
        for row in rows.iter().filter(|row| !GHOSTS.contains(&row.order)) {
            if is_end(row) && Some(row.exchange) == end {
                capture.end_book.push(Resting { order: row.order, qty: row.volume });
                continue;
            }
            let kind = match row.action {
                Action::Created if row.price >= MARKET_PRICE => {
                    market_orders.insert(row.order);
                    StepKind::Market { side: row.side, quote: MARKET_SPENDS }
                }
                Action::Created => {
                    let post_only = gone
                        .get(&row.order)
                        .is_some_and(|g| g.exchange == row.exchange && g.volume == row.volume);
                    let price = row.price.max(Price(SCALE));
                    StepKind::Limit { side: row.side, price, qty: row.volume, post_only }
                }
                Action::Deleted if row.volume.0 > 0 && !market_orders.contains(&row.order) => {
                    StepKind::Cancel
                }
                _ => continue,
            };
            time = time.max(row.exchange);
            capture.steps.push(Step { time, order: row.order, kind });
        }
        capture.end_book.sort_unstable();
        capture
    }
}

/// A trade as Bitstamp published it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedTrade {
    /// Bitstamp's number.
    pub id: u64,
    /// At what price.
    pub price: Price,
    /// How much.
    pub qty: Qty,
    /// The buying order.
    pub buy_order: u64,
    /// The selling order.
    pub sell_order: u64,
    /// Which side took.
    pub taker_side: Side,
}

/// Reads the published trades, ascending by their number.
pub fn read_trades(reader: impl BufRead) -> Result<Vec<PublishedTrade>, ReadError> {
    let mut lines = Lines::new(reader);
    heading(&mut lines, TRADES_HEADING)?;
    let mut trades = Vec::new();
    while let Some((line, bytes)) = lines.next()? {
        let [id, _, _, price, amount, buy, sell, side] = fields::<8>(line, bytes)?;
        trades.push(PublishedTrade {
            id: unsigned(line, "trade_id", id)?,
            price: Price(decimal(line, "price", price)?),
            qty: Qty(decimal(line, "amount", amount)?),
            buy_order: unsigned(line, "buy_order_id", buy)?,
            sell_order: unsigned(line, "sell_order_id", sell)?,
            taker_side: match side {
                b"buy" => Side::Buy,
                b"sell" => Side::Sell,
                _ => return Err(ReadError::field(line, "side", side, "neither buy nor sell")),
            },
        });
    }
    trades.sort_by_key(|trade| trade.id);
    Ok(trades)
}

/// A market that takes the capture as it is: whole dollars, eight places of a bitcoin, no limits, no fees.
pub fn instrument(id: MarketId, symbol: Name, base: AssetId, quote: AssetId) -> Instrument {
    let most = 9_000_000_000 * SCALE;
    Instrument {
        id,
        symbol,
        base,
        quote,
        state: TradingState::Open,
        price_tick: Price(SCALE),
        price_min: Price(SCALE),
        price_max: Price(most),
        lot_step: Qty(1),
        lot_min: Qty(1),
        lot_max: Qty(most),
        market_lot_max: Qty(most),
        notional_min: Amount::ZERO,
        notional_max: Amount(i64::MAX),
        percent_up: 0,
        percent_down: 0,
        market_band_bps: 0,
        max_orders: 1_000_000,
        max_algo_orders: 0,
        max_position: Qty::ZERO,
        maker_fee_ppm: 0,
        taker_fee_ppm: 0,
    }
}

/// What makes an empty exchange ready for the capture: assets 0 (BTC) and 1 (USD), market 0 (BTCUSD), account 1 with enough of both.
pub fn setup() -> Vec<Body> {
    let name = |text| Name::new(text).unwrap_or_default();
    let account = AccountId(1);
    let deposit = |asset, reference| Body::Deposit {
        account,
        asset,
        amount: Amount(50_000_000_000 * SCALE),
        reference: ClientId::new(reference).unwrap_or(ClientId::NONE),
    };
    vec![
        Body::AddAsset { id: AssetId(0), name: name("BTC") },
        Body::AddAsset { id: AssetId(1), name: name("USD") },
        Body::SetInstrument(instrument(MarketId(0), name("BTCUSD"), AssetId(0), AssetId(1))),
        Body::CreateAccount,
        deposit(AssetId(0), "capture-btc"),
        deposit(AssetId(1), "capture-usd"),
    ]
}
