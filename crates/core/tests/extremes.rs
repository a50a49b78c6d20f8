//! Numbers at the ends of their range: whatever is sent, the exchange answers, and its sums stay right. An overflow would stop it.

use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};
use proptest::prelude::*;

const CLIENTS: u32 = 3;

/// Everything that may be is allowed: a tick of one unit, a lot of one whole, no upper limits.
fn instrument(percent: u32, band: u32) -> Instrument {
    Instrument {
        id: MarketId(0),
        symbol: Name::new("AB").unwrap(),
        base: AssetId(0),
        quote: AssetId(1),
        state: TradingState::Open,
        price_tick: Price(1),
        price_min: Price(0),
        price_max: Price(i64::MAX),
        lot_step: Qty(SCALE),
        lot_min: Qty(0),
        lot_max: Qty(i64::MAX),
        market_lot_max: Qty(i64::MAX),
        notional_min: Amount(0),
        notional_max: Amount(i64::MAX),
        percent_up: percent,
        percent_down: percent / 2,
        market_band_bps: band,
        max_orders: u32::MAX,
        max_algo_orders: u32::MAX,
        max_position: Qty(0),
        maker_fee_ppm: 1_000_000,
        taker_fee_ppm: 999_999,
    }
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => (1..12_i64).prop_map(|n| n * SCALE),
        2 => 1..20_i64,
        1 => Just(i64::MAX - i64::MAX % SCALE),
        1 => Just(i64::MAX),
        1 => Just(i64::MIN),
        1 => Just(0_i64),
        1 => Just(-1_i64),
        2 => (0..63_u32).prop_map(|bits| 1_i64 << bits),
        2 => (0..36_u32).prop_map(|bits| SCALE << bits),
    ]
}

fn bodies() -> impl Strategy<Value = Body> {
    let place =
        (1..=CLIENTS, any::<bool>(), 0..7_u8, 0..3_u8, 0..5_u8, number(), number(), number(), number())
            .prop_map(|(account, buy, kind, tif, stp, price, stop_price, qty, quote_qty)| {
                let order_type = OrderType::from_code(kind).unwrap();
                let by_quote = order_type == OrderType::Market && quote_qty % 2 == 0;
                let zero_unless = |is: bool, value: i64| if is { value } else { 0 };
                Body::Place(NewOrder {
                    account: AccountId(account),
                    market: MarketId(0),
                    side: if buy { Side::Buy } else { Side::Sell },
                    order_type,
                    tif: TimeInForce::from_code(tif).unwrap(),
                    price: Price(zero_unless(order_type.has_price(), price)),
                    stop_price: Price(zero_unless(order_type.is_conditional(), stop_price)),
                    qty: Qty(zero_unless(!by_quote, qty)),
                    quote_qty: Amount(zero_unless(by_quote, quote_qty)),
                    iceberg_qty: Qty(0),
                    trailing_delta: 0,
                    stp: StpMode::from_code(stp).unwrap(),
                    client_id: ClientId::NONE,
                })
            });
    let modify =
        (1..=CLIENTS, 1..60_u64, number(), number()).prop_map(|(account, id, price, qty)| Body::Modify {
            account: AccountId(account),
            market: MarketId(0),
            order: OrderRef::Id(OrderId(id)),
            price: Price(price),
            qty: Qty(qty),
        });
    let deposit = (1..=CLIENTS, 0..2_u16, number()).prop_map(|(account, asset, amount)| Body::Deposit {
        account: AccountId(account),
        asset: AssetId(asset),
        amount: Amount(amount),
        reference: ClientId::NONE,
    });
    let withdraw = (1..=CLIENTS, 0..2_u16, number()).prop_map(|(account, asset, amount)| Body::Withdraw {
        account: AccountId(account),
        asset: AssetId(asset),
        amount: Amount(amount),
        reference: ClientId::NONE,
    });
    let rules = (0..3_u32, 0..3_u32).prop_map(|(p, b)| {
        Body::SetInstrument(instrument([0, 300, u32::MAX][p as usize], [0, 20_000, u32::MAX][b as usize]))
    });
    let cancel =
        (1..=CLIENTS).prop_map(|account| Body::CancelAll { account: AccountId(account), market: None });
    prop_oneof![30 => place, 8 => modify, 5 => deposit, 1 => withdraw, 1 => rules, 1 => cancel]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn extreme_numbers_are_answered(stream in prop::collection::vec(bodies(), 1..150)) {
        let mut exchange = Exchange::new();
        let mut setup = vec![
            Body::AddAsset { id: AssetId(0), name: Name::new("A").unwrap() },
            Body::AddAsset { id: AssetId(1), name: Name::new("B").unwrap() },
            Body::SetInstrument(instrument(0, 0)),
        ];
        for account in 1..=CLIENTS {
            setup.push(Body::CreateAccount);
            for asset in 0..2 {
                let amount = Amount(i64::MAX / i64::from(CLIENTS) / 2);
                let account = AccountId(account);
                setup.push(Body::Deposit { account, asset: AssetId(asset), amount, reference: ClientId::NONE });
            }
        }
        let mut events = Vec::new();
        for body in setup.into_iter().chain(stream) {
            let seq = exchange.position().next();
            let time = Timestamp(seq.0 as i64);
            let command = Command { seq, time, rules: RULES_VERSION, deadline: Timestamp(0), body };
            let _ = exchange.apply(&command, &mut events);
            for asset in [AssetId(0), AssetId(1)].into_iter().take(exchange.assets().len()) {
                let totals = exchange.totals(asset);
                prop_assert_eq!(totals.free + totals.locked, totals.deposited - totals.withdrawn);
            }
        }
        let mut snapshot = Vec::new();
        exchange.encode_snapshot(&mut snapshot);
        let copy = Exchange::decode_snapshot(&snapshot).unwrap();
        prop_assert_eq!(copy.digest(), exchange.digest());
    }
}
