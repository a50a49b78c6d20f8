//! The binary form: what goes in comes out, and no bytes make the reader panic.

use hoga_core::codec::{DecodeError, VERSION, decode_command, decode_event, encode_command, encode_event};
use hoga_core::command::{Body, Command};
use hoga_core::event::{
    Balance, Event, EventRecord, Execution, Fill, Level, OrderEvent, Reject, Rejection, Trade, Transfer,
    TransferKind,
};
use hoga_core::ids::{
    AccountId, AssetId, ClientId, MarketId, OrderId, Seq, Timestamp, TradeId, WithdrawalId,
};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, Order, OrderRef, OrderStatus, OrderType, Side, StpMode, TimeInForce};
use proptest::prelude::*;

fn code<T: std::fmt::Debug>(highest: u8, from_code: fn(u8) -> Option<T>) -> impl Strategy<Value = T> {
    (0..=highest).prop_filter_map("a code of the type", from_code)
}

fn client_id() -> impl Strategy<Value = ClientId> {
    proptest::collection::vec(0_usize..67, 0..=36).prop_map(|letters| {
        const ALLOWED: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:/_-";
        let text: String = letters.into_iter().map(|i| char::from(ALLOWED[i])).collect();
        ClientId::new(&text).unwrap_or(ClientId::NONE)
    })
}

fn name() -> impl Strategy<Value = Name> {
    proptest::collection::vec(0_u8..36, 1..=20).prop_map(|letters| {
        let text: String =
            letters.into_iter().map(|i| char::from(if i < 26 { b'A' + i } else { b'0' + i - 26 })).collect();
        Name::new(&text).unwrap()
    })
}

fn balance() -> impl Strategy<Value = Balance> {
    any::<(i64, i64)>().prop_map(|(free, locked)| Balance { free: Amount(free), locked: Amount(locked) })
}

fn new_order() -> impl Strategy<Value = NewOrder> {
    let codes = (
        code(1, Side::from_code),
        code(6, OrderType::from_code),
        code(2, TimeInForce::from_code),
        code(4, StpMode::from_code),
    );
    (any::<(u32, u16, u32)>(), codes, any::<[i64; 5]>(), client_id()).prop_map(
        |(ids, codes, numbers, client_id)| NewOrder {
            account: AccountId(ids.0),
            market: MarketId(ids.1),
            side: codes.0,
            order_type: codes.1,
            tif: codes.2,
            price: Price(numbers[0]),
            stop_price: Price(numbers[1]),
            qty: Qty(numbers[2]),
            quote_qty: Amount(numbers[3]),
            iceberg_qty: Qty(numbers[4]),
            trailing_delta: ids.2,
            stp: codes.3,
            client_id,
        },
    )
}

fn order() -> impl Strategy<Value = Order> {
    let numbers = any::<(u64, bool, u64, [i64; 6])>();
    (new_order(), code(6, OrderStatus::from_code), numbers).prop_map(
        |(request, status, (id, working, list_id, n))| Order {
            id: OrderId(id),
            request,
            status,
            working,
            filled: Qty(n[0]),
            filled_quote: Amount(n[1]),
            prevented: Qty(n[2]),
            list_id,
            created: Timestamp(n[3]),
            updated: Timestamp(n[4]),
            working_since: Timestamp(n[5]),
        },
    )
}

fn instrument() -> impl Strategy<Value = Instrument> {
    (name(), code(3, TradingState::from_code), any::<[u16; 3]>(), any::<[i64; 10]>(), any::<[u32; 7]>())
        .prop_map(|(symbol, state, ids, n, m)| Instrument {
            id: MarketId(ids[0]),
            symbol,
            base: AssetId(ids[1]),
            quote: AssetId(ids[2]),
            state,
            price_tick: Price(n[0]),
            price_min: Price(n[1]),
            price_max: Price(n[2]),
            lot_step: Qty(n[3]),
            lot_min: Qty(n[4]),
            lot_max: Qty(n[5]),
            market_lot_max: Qty(n[6]),
            notional_min: Amount(n[7]),
            notional_max: Amount(n[8]),
            percent_up: m[0],
            percent_down: m[1],
            market_band_bps: m[2],
            max_orders: m[3],
            max_algo_orders: m[4],
            max_position: Qty(n[9]),
            maker_fee_ppm: m[5],
            taker_fee_ppm: m[6],
        })
}

fn order_ref() -> impl Strategy<Value = OrderRef> {
    prop_oneof![any::<u64>().prop_map(|id| OrderRef::Id(OrderId(id))), client_id().prop_map(OrderRef::Client)]
}

fn body() -> impl Strategy<Value = Body> {
    let place = (any::<(u32, u16, i64)>(), client_id()).prop_map(|((account, asset, amount), reference)| {
        (AccountId(account), AssetId(asset), Amount(amount), reference)
    });
    prop_oneof![
        (any::<u16>(), name()).prop_map(|(id, name)| Body::AddAsset { id: AssetId(id), name }),
        instrument().prop_map(Body::SetInstrument),
        (any::<u16>(), code(3, TradingState::from_code))
            .prop_map(|(market, state)| Body::SetState { market: MarketId(market), state }),
        Just(Body::CreateAccount),
        (any::<bool>(), place).prop_map(|(deposit, (account, asset, amount, reference))| {
            if deposit {
                Body::Deposit { account, asset, amount, reference }
            } else {
                Body::Withdraw { account, asset, amount, reference }
            }
        }),
        any::<(bool, u64)>().prop_map(|(settle, id)| {
            let id = WithdrawalId(id);
            if settle { Body::SettleWithdrawal { id } } else { Body::ReleaseWithdrawal { id } }
        }),
        new_order().prop_map(Body::Place),
        (any::<(u32, u16)>(), order_ref(), client_id()).prop_map(|((account, market), order, cancel_id)| {
            Body::Cancel { account: AccountId(account), market: MarketId(market), order, cancel_id }
        }),
        any::<(u32, Option<u16>)>().prop_map(|(account, market)| Body::CancelAll {
            account: AccountId(account),
            market: market.map(MarketId)
        }),
        (any::<(u32, u16, i64, i64)>(), order_ref()).prop_map(|((account, market, price, qty), order)| {
            Body::Modify {
                account: AccountId(account),
                market: MarketId(market),
                order,
                price: Price(price),
                qty: Qty(qty),
            }
        }),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    (any::<(u64, i64, u16, i64)>(), body()).prop_map(|((seq, time, rules, deadline), body)| Command {
        seq: Seq(seq),
        time: Timestamp(time),
        rules,
        deadline: Timestamp(deadline),
        body,
    })
}

fn fill() -> impl Strategy<Value = Fill> {
    any::<(u64, [i64; 4], u16, bool, u64, u32)>().prop_map(|(trade, n, asset, maker, order, account)| Fill {
        trade: TradeId(trade),
        price: Price(n[0]),
        qty: Qty(n[1]),
        quote: Amount(n[2]),
        fee: Amount(n[3]),
        fee_asset: AssetId(asset),
        maker,
        counter_order: OrderId(order),
        counter_account: AccountId(account),
    })
}

fn order_event() -> impl Strategy<Value = OrderEvent> {
    let balances = (balance(), balance());
    (
        code(7, Execution::from_code),
        order(),
        proptest::option::of(fill()),
        client_id(),
        any::<i64>(),
        balances,
    )
        .prop_map(|(execution, order, fill, cancel_id, prevented, (base, quote))| OrderEvent {
            execution,
            order,
            fill,
            cancel_id,
            prevented: Qty(prevented),
            base,
            quote,
        })
}

fn trade() -> impl Strategy<Value = Trade> {
    (any::<(u16, u64, [i64; 5], [u64; 2], [u32; 2])>(), code(1, Side::from_code)).prop_map(
        |((market, id, n, orders, accounts), taker_side)| Trade {
            market: MarketId(market),
            id: TradeId(id),
            price: Price(n[0]),
            qty: Qty(n[1]),
            quote: Amount(n[2]),
            buy_order: OrderId(orders[0]),
            sell_order: OrderId(orders[1]),
            buyer: AccountId(accounts[0]),
            seller: AccountId(accounts[1]),
            taker_side,
            buyer_fee: Amount(n[3]),
            seller_fee: Amount(n[4]),
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let transfer =
        (code(3, TransferKind::from_code), any::<(u32, u16, i64, u64, bool)>(), client_id(), balance());
    prop_oneof![
        (any::<u16>(), name()).prop_map(|(id, name)| Event::AssetAdded { id: AssetId(id), name }),
        instrument().prop_map(Event::InstrumentSet),
        (any::<u16>(), code(3, TradingState::from_code))
            .prop_map(|(market, state)| Event::StateSet { market: MarketId(market), state }),
        any::<u32>().prop_map(|account| Event::AccountCreated { account: AccountId(account) }),
        transfer.prop_map(|(kind, (account, asset, amount, withdrawal, repeated), reference, balance)| {
            Event::Transfer(Transfer {
                kind,
                account: AccountId(account),
                asset: AssetId(asset),
                amount: Amount(amount),
                reference,
                withdrawal: WithdrawalId(withdrawal),
                balance,
                repeated,
            })
        }),
        order_event().prop_map(Event::Order),
        trade().prop_map(Event::Trade),
        (any::<(u16, i64, i64, u64)>(), code(1, Side::from_code)).prop_map(
            |((market, price, qty, update_id), side)| {
                Event::Level(Level {
                    market: MarketId(market),
                    side,
                    price: Price(price),
                    qty: Qty(qty),
                    update_id,
                })
            }
        ),
        (any::<(u32, Option<u16>)>(), client_id(), code(24, Reject::from_code)).prop_map(
            |((account, market), client_id, reason)| Event::Rejected(Rejection {
                account: AccountId(account),
                market: market.map(MarketId),
                client_id,
                reason,
            })
        ),
    ]
}

fn record() -> impl Strategy<Value = (u64, EventRecord)> {
    (any::<(u64, u64, u32, i64)>(), event()).prop_map(|((number, seq, index, time), event)| {
        (number, EventRecord { seq: Seq(seq), index, time: Timestamp(time), event })
    })
}

fn encoded_command(command: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(command, &mut bytes);
    bytes
}

fn encoded_event(number: u64, record: &EventRecord) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_event(record, number, &mut bytes);
    bytes
}

/// One way in which bytes get damaged.
#[derive(Clone, Debug)]
enum Damage {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Append(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        (any::<prop::sample::Index>(), 1_u8..).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        any::<prop::sample::Index>().prop_map(Damage::Remove),
        proptest::collection::vec(any::<u8>(), 1..40).prop_map(Damage::Append),
    ];
    proptest::collection::vec(one, 1..4)
}

fn damaged(mut bytes: Vec<u8>, damage: &[Damage]) -> Vec<u8> {
    for one in damage {
        if bytes.is_empty() {
            break;
        }
        match one {
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Flip(at, mask) => {
                let at = at.index(bytes.len());
                bytes[at] ^= mask;
            }
            Damage::Insert(at, byte) => bytes.insert(at.index(bytes.len()), *byte),
            Damage::Remove(at) => {
                bytes.remove(at.index(bytes.len()));
            }
            Damage::Append(more) => bytes.extend_from_slice(more),
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn commands_round_trip(command in command()) {
        prop_assert_eq!(decode_command(&encoded_command(&command)), Ok(command));
    }

    #[test]
    fn events_round_trip((number, record) in record()) {
        prop_assert_eq!(decode_event(&encoded_event(number, &record)), Ok((number, record)));
    }

    /// Damaged bytes give an error or another value, whose only encoding is those same bytes.
    #[test]
    fn damaged_commands_never_panic(command in command(), damage in damage()) {
        let bytes = damaged(encoded_command(&command), &damage);
        if let Ok(other) = decode_command(&bytes) {
            prop_assert_eq!(encoded_command(&other), bytes);
        }
    }

    #[test]
    fn damaged_events_never_panic((number, record) in record(), damage in damage()) {
        let bytes = damaged(encoded_event(number, &record), &damage);
        if let Ok((number, other)) = decode_event(&bytes) {
            prop_assert_eq!(encoded_event(number, &other), bytes);
        }
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), tag in 0_u8..14) {
        let _ = (decode_command(&bytes), decode_event(&bytes));
        // The same bytes behind a head that gets past the version and to a body.
        for (place, value) in [(0, VERSION), (27, tag), (29, tag)] {
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        let _ = (decode_command(&bytes), decode_event(&bytes));
    }

    /// Every cut of a good record is an error.
    #[test]
    fn no_prefix_is_a_record(command in command(), (number, record) in record()) {
        let bytes = encoded_command(&command);
        for cut in 0..bytes.len() {
            prop_assert!(decode_command(&bytes[..cut]).is_err());
        }
        let bytes = encoded_event(number, &record);
        for cut in 0..bytes.len() {
            prop_assert!(decode_event(&bytes[..cut]).is_err());
        }
    }
}

fn sample_place() -> Command {
    Command {
        seq: Seq(7),
        time: Timestamp(1_700_000_000_000_000),
        rules: 1,
        deadline: Timestamp(0),
        body: Body::Place(NewOrder {
            account: AccountId(3),
            market: MarketId(1),
            side: Side::Sell,
            order_type: OrderType::Limit,
            tif: TimeInForce::Gtc,
            price: Price(5_000_000_000_000),
            stop_price: Price(0),
            qty: Qty(10_000_000),
            quote_qty: Amount(0),
            iceberg_qty: Qty(0),
            trailing_delta: 0,
            stp: StpMode::ExpireMaker,
            client_id: ClientId::new("x-TKT5PX2F-abcdef0123456789").unwrap(),
        }),
    }
}

/// The format is on disk: these bytes may only change together with the version.
#[test]
fn the_bytes_of_a_place_command_are_fixed() {
    let bytes = encoded_command(&sample_place());
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(
        hex,
        "01\
         0700000000000000\
         00401e18240a0600\
         0100\
         0000000000000000\
         09\
         03000000\
         0100\
         01000002\
         005039278c040000\
         0000000000000000\
         8096980000000000\
         0000000000000000\
         0000000000000000\
         00000000\
         1b782d544b5435505832462d61626364656630313233343536373839"
    );
    assert_eq!(bytes.len(), 110);
}

#[test]
fn errors_name_the_field_and_the_place() {
    let good = encoded_command(&sample_place());
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        decode_command(&bytes)
    };
    assert_eq!(with(0, 9), Err(DecodeError::Version { found: 9 }));
    assert_eq!(with(27, 0), Err(DecodeError::UnknownCode { field: "command", code: 0, at: 27 }));
    assert_eq!(with(34, 2), Err(DecodeError::UnknownCode { field: "side", code: 2, at: 34 }));
    assert_eq!(with(82, 40), Err(DecodeError::Truncated { field: "client id", at: 82 }));
    assert_eq!(with(90, b' '), Err(DecodeError::BadText { field: "client id", at: 82 }));
    assert_eq!(with(90, 0xff), Err(DecodeError::BadText { field: "client id", at: 82 }));
    assert_eq!(with(82, 26), Err(DecodeError::Trailing { extra: 1, at: 109 }));
    assert_eq!(decode_command(&[]), Err(DecodeError::Truncated { field: "version", at: 0 }));
    assert_eq!(decode_command(&good[..40]), Err(DecodeError::Truncated { field: "price", at: 38 }));
}
