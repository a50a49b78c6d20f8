//! In steady state no command allocates: the slabs, tables and buffers have grown to the size of the market before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hoga_core::book::Book;
use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::EventRecord;
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counter is thread-local, so tests in other threads do not disturb it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted(run: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    run();
    COUNT.with(Cell::get) - before
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as i64 % sides
    }
}

#[test]
fn the_bare_book_does_not_allocate() {
    let mut book = Book::new();
    let mut dice = Dice(5);
    let mut next = 0_u64;
    // A drifting price, so that levels and chunks come and go; the spread of the warm-up is wider than that of the run.
    let mut run = |messages: u64, spread: i64, kept: u64| {
        for _ in 0..messages {
            next += 1;
            let middle = 1_000_000 + (next / 50) as i64;
            let side = if dice.roll(2) == 0 { Side::Buy } else { Side::Sell };
            let offset = dice.roll(spread) - 3;
            let price = if side == Side::Buy { middle - offset } else { middle + offset };
            book.add(next, side, price, 1 + dice.roll(50), dice.roll(8) == 0, |_| {}).unwrap();
            let _ = book.modify(next.saturating_sub(dice.roll(99) as u64), price, 1 + dice.roll(50), |_| {});
            let _ = book.cancel(next.saturating_sub(kept));
        }
    };
    run(60_000, 900, 8000);
    run(20_000, 400, 3000);
    assert_eq!(counted(|| run(100_000, 400, 3000)), 0);
}

const ACCOUNTS: i64 = 50;

fn instrument(market: u16) -> Instrument {
    Instrument {
        id: MarketId(market),
        symbol: Name::new(["AB", "CB"][usize::from(market)]).unwrap(),
        base: AssetId([0, 2][usize::from(market)]),
        quote: AssetId(1),
        state: TradingState::Open,
        price_tick: Price(SCALE / 100),
        price_min: Price(SCALE / 100),
        price_max: Price(100_000 * SCALE),
        lot_step: Qty(SCALE / 1000),
        lot_min: Qty(SCALE / 1000),
        lot_max: Qty(10_000 * SCALE),
        market_lot_max: Qty(10_000 * SCALE),
        notional_min: Amount(1),
        notional_max: Amount(i64::MAX),
        percent_up: 500,
        percent_down: 20,
        market_band_bps: 1000,
        max_orders: 100_000,
        max_algo_orders: 100_000,
        max_position: Qty(90_000_000 * SCALE),
        maker_fee_ppm: 1000,
        taker_fee_ppm: 1000,
    }
}

struct Flow {
    exchange: Exchange,
    events: Vec<EventRecord>,
    dice: Dice,
    orders: u64,
    trades: u64,
}

impl Flow {
    fn new() -> Flow {
        let mut flow =
            Flow { exchange: Exchange::new(), events: Vec::new(), dice: Dice(9), orders: 0, trades: 0 };
        for (id, name) in ["A", "B", "C"].iter().enumerate() {
            flow.apply(Body::AddAsset { id: AssetId(id as u16), name: Name::new(name).unwrap() });
        }
        flow.apply(Body::SetInstrument(instrument(0)));
        flow.apply(Body::SetInstrument(instrument(1)));
        for account in 1..=ACCOUNTS as u32 {
            flow.apply(Body::CreateAccount);
            for asset in 0..3 {
                flow.apply(Body::Deposit {
                    account: AccountId(account),
                    asset: AssetId(asset),
                    amount: Amount(1_000_000 * SCALE),
                    reference: ClientId::NONE,
                });
            }
        }
        flow
    }

    fn apply(&mut self, body: Body) {
        let seq = self.exchange.position().next();
        let time = Timestamp(seq.0 as i64);
        let command = Command { seq, time, rules: RULES_VERSION, deadline: Timestamp(0), body };
        self.events.clear();
        if self.exchange.apply(&command, &mut self.events).is_ok() && matches!(body, Body::Place(_)) {
            self.orders += 1;
        }
        self.trades += self.events.len() as u64 / 4;
    }

    fn place(&mut self, account: AccountId, market: MarketId) -> Body {
        const TYPES: [OrderType; 4] = [
            OrderType::StopLoss,
            OrderType::StopLossLimit,
            OrderType::TakeProfit,
            OrderType::TakeProfitLimit,
        ];
        let dice = &mut self.dice;
        let side = if dice.roll(2) == 0 { Side::Buy } else { Side::Sell };
        let away = dice.roll(60) - 5;
        let ticks = 10_000 + if side == Side::Buy { -away } else { away };
        let order_type = match dice.roll(20) {
            0..12 => OrderType::Limit,
            12..14 => OrderType::Market,
            14 | 15 => OrderType::LimitMaker,
            n => TYPES[(n - 16) as usize],
        };
        let by_quote = order_type == OrderType::Market && dice.roll(2) == 0;
        let price = if order_type.has_price() { ticks * SCALE / 100 } else { 0 };
        let stop = (10_000 + dice.roll(101) - 50) * SCALE / 100;
        Body::Place(NewOrder {
            account,
            market,
            side,
            order_type,
            tif: [TimeInForce::Gtc, TimeInForce::Gtc, TimeInForce::Ioc, TimeInForce::Fok]
                [dice.roll(4) as usize],
            price: Price(price),
            stop_price: Price(if order_type.is_conditional() { stop } else { 0 }),
            qty: Qty(if by_quote { 0 } else { (1 + dice.roll(3000)) * SCALE / 1000 }),
            quote_qty: Amount(if by_quote { (1 + dice.roll(300)) * SCALE } else { 0 }),
            iceberg_qty: Qty(0),
            trailing_delta: 0,
            stp: [
                StpMode::None,
                StpMode::ExpireTaker,
                StpMode::ExpireMaker,
                StpMode::ExpireBoth,
                StpMode::Decrement,
            ][dice.roll(5) as usize],
            client_id: ClientId::NONE,
        })
    }

    /// Random commands; every `sweep` commands an account takes all its orders back, which bounds how many are open.
    fn run(&mut self, commands: i64, sweep: i64) {
        for n in 0..commands {
            let account = AccountId(1 + self.dice.roll(ACCOUNTS) as u32);
            let market = MarketId(self.dice.roll(2) as u16);
            let recent = OrderId(self.orders.saturating_sub(self.dice.roll(400) as u64));
            let price = Price((9_960 + self.dice.roll(80)) * SCALE / 100);
            let qty = Qty((1 + self.dice.roll(3000)) * SCALE / 1000);
            let body = match self.dice.roll(20) {
                _ if n % sweep == 0 => {
                    Body::CancelAll { account: AccountId(1 + (n / sweep % ACCOUNTS) as u32), market: None }
                }
                0..12 => self.place(account, market),
                12..16 => Body::Modify { account, market, order: OrderRef::Id(recent), price, qty },
                18 => {
                    Body::Deposit { account, asset: AssetId(1), amount: Amount(1), reference: ClientId::NONE }
                }
                _ => Body::Cancel { account, market, order: OrderRef::Id(recent), cancel_id: ClientId::NONE },
            };
            self.apply(body);
        }
    }
}

#[test]
fn the_exchange_does_not_allocate() {
    let mut flow = Flow::new();
    // The warm-up lets more orders pile up than the run will have.
    flow.run(60_000, 120);
    let most = flow.exchange.open_order_count();
    flow.run(10_000, 12);
    let (orders, trades) = (flow.orders, flow.trades);
    assert_eq!(counted(|| flow.run(60_000, 12)), 0);
    assert!(flow.exchange.open_order_count() < most);
    assert!(flow.orders - orders > 10_000 && flow.trades - trades > 10_000, "the flow stands still");
}
