//! Order requests: parameters in, commands out. Shared by REST and the WebSocket API, which take the same parameters.

use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId};
use hoga_core::instrument::Instrument;
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, OrderRef, OrderStatus, OrderType, Side, StpMode, TimeInForce};

use crate::catalog::Catalog;
use crate::error::ApiError;
use crate::names;
use crate::params::Params;

/// How much of an order the answer tells (`newOrderRespType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RespType {
    /// That it was accepted.
    Ack,
    /// Its state after matching.
    Result,
    /// Its state and its fills.
    Full,
}

/// A new order and how to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The order.
    pub order: NewOrder,
    /// The form of the answer.
    pub resp: RespType,
}

/// A cancel, and what must hold for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// Where.
    pub market: MarketId,
    /// Which order.
    pub order: OrderRef,
    /// The client's name for the cancel; made up where none was given.
    pub cancel_id: ClientId,
    /// When both ids were sent: the client id that the order must have.
    pub must_be: Option<ClientId>,
    /// `cancelRestrictions`: the status that the order must have.
    pub only: Option<OrderStatus>,
}

/// Which parameters name the order of a cancel: two endpoints spell them differently.
#[derive(Clone, Copy, Debug)]
pub struct CancelNames {
    id: &'static str,
    client: &'static str,
    new: &'static str,
}

impl CancelNames {
    /// `DELETE /api/v3/order`, `order.cancel`.
    pub const CANCEL: CancelNames =
        CancelNames { id: "orderId", client: "origClientOrderId", new: "newClientOrderId" };
    /// `POST /api/v3/order/cancelReplace`.
    pub const CANCEL_REPLACE: CancelNames =
        CancelNames { id: "cancelOrderId", client: "cancelOrigClientOrderId", new: "cancelNewClientOrderId" };
}

/// The market that `symbol` names; -1121 when there is none.
pub fn market<'c>(params: &Params<'_>, catalog: &'c Catalog) -> Result<&'c Instrument, ApiError> {
    catalog.find(params.symbol()?).ok_or_else(ApiError::bad_symbol)
}

/// Reads a new order (Binance, "New order": mandatory parameters by type).
pub fn place(
    params: &Params<'_>,
    catalog: &Catalog,
    account: AccountId,
    default_stp: StpMode,
) -> Result<Place, ApiError> {
    let symbol = params.symbol()?;
    let side = Side::parse(params.mandatory("side")?).ok_or_else(|| ApiError::new(-1117, "Invalid side."))?;
    let order_type = OrderType::parse(params.mandatory("type")?)
        .ok_or_else(|| ApiError::new(-1116, "Invalid orderType."))?;
    refuse_unsupported(params)?;
    let amounts = amounts(params, order_type)?;
    let client_id = params.client_id("newClientOrderId")?;
    let stp = match params.optional("selfTradePreventionMode")? {
        None => default_stp,
        Some(text) => StpMode::parse(text).ok_or_else(|| ApiError::not_valid("selfTradePreventionMode"))?,
    };
    let resp = resp_type(params, order_type)?;
    let instrument = catalog.find(symbol).ok_or_else(ApiError::bad_symbol)?;
    let order = NewOrder {
        account,
        market: instrument.id,
        side,
        order_type,
        tif: amounts.tif,
        price: amounts.price,
        stop_price: amounts.stop_price,
        qty: amounts.qty,
        quote_qty: amounts.quote_qty,
        iceberg_qty: Qty::ZERO,
        trailing_delta: 0,
        stp,
        client_id: client_id.unwrap_or_else(names::client_id),
    };
    Ok(Place { order, resp })
}

fn resp_type(params: &Params<'_>, order_type: OrderType) -> Result<RespType, ApiError> {
    match params.optional("newOrderRespType")? {
        None if matches!(order_type, OrderType::Market | OrderType::Limit) => Ok(RespType::Full),
        None | Some("ACK") => Ok(RespType::Ack),
        Some("RESULT") => Ok(RespType::Result),
        Some("FULL") => Ok(RespType::Full),
        Some(_) => Err(ApiError::not_valid("newOrderRespType")),
    }
}

/// What this version does not do is refused in Binance's words, never ignored.
fn refuse_unsupported(params: &Params<'_>) -> Result<(), ApiError> {
    for name in ["pegPriceType", "pegOffsetType", "pegOffsetValue"] {
        if params.optional(name)?.is_some() {
            return Err(ApiError::order_rejected("Pegged orders are not supported for this symbol."));
        }
    }
    if params.integer("trailingDelta")?.is_some() {
        return Err(ApiError::order_rejected("Trailing stop orders are not supported for this symbol."));
    }
    if params.decimal("icebergQty")?.is_some_and(|qty| qty != 0) {
        return Err(ApiError::order_rejected("Iceberg orders are not supported for this symbol."));
    }
    // Labels of the client's own; they have no effect and are not stored.
    params.integer("strategyId")?;
    if params.integer("strategyType")?.is_some_and(|kind| kind < 1_000_000) {
        return Err(ApiError::new(-1134, "`strategyType` was less than 1000000."));
    }
    Ok(())
}

struct Amounts {
    tif: TimeInForce,
    price: Price,
    stop_price: Price,
    qty: Qty,
    quote_qty: Amount,
}

/// The amounts that the type needs; others are refused (-1106).
fn amounts(params: &Params<'_>, order_type: OrderType) -> Result<Amounts, ApiError> {
    let has_tif =
        matches!(order_type, OrderType::Limit | OrderType::StopLossLimit | OrderType::TakeProfitLimit);
    let tif = if has_tif {
        TimeInForce::parse(params.mandatory("timeInForce")?)
            .ok_or_else(|| ApiError::new(-1115, "Invalid timeInForce."))?
    } else {
        params.refuse("timeInForce")?;
        TimeInForce::Gtc
    };
    let qty = params.decimal("quantity")?;
    let quote_qty = if order_type == OrderType::Market {
        let quote_qty = params.decimal("quoteOrderQty")?;
        match (qty, quote_qty) {
            (None, None) => return Err(ApiError::either("quantity", "quoteOrderQty")),
            (Some(_), Some(_)) => return Err(ApiError::bad_combination()),
            _ => quote_qty,
        }
    } else {
        params.refuse("quoteOrderQty")?;
        params.mandatory("quantity")?;
        None
    };
    let price = if order_type.has_price() {
        params.mandatory_decimal("price")?
    } else {
        params.refuse("price")?;
        0
    };
    let stop_price = if order_type.is_conditional() {
        params.decimal("stopPrice")?.ok_or_else(|| ApiError::either("stopPrice", "trailingDelta"))?
    } else {
        params.refuse("stopPrice")?;
        0
    };
    // Zero means "not given" in a command, so a zero that was given has to be refused here, by the filter that it fails.
    let zero =
        |failed: bool, text: &'static str| if failed { Err(ApiError::new(-1013, text)) } else { Ok(()) };
    zero(qty == Some(0), "Filter failure: LOT_SIZE")?;
    zero(quote_qty == Some(0), "Filter failure: NOTIONAL")?;
    zero(order_type.has_price() && price == 0, "Filter failure: PRICE_FILTER")?;
    zero(order_type.is_conditional() && stop_price == 0, "Filter failure: PRICE_FILTER")?;
    Ok(Amounts {
        tif,
        price: Price(price),
        stop_price: Price(stop_price),
        qty: Qty(qty.unwrap_or(0)),
        quote_qty: Amount(quote_qty.unwrap_or(0)),
    })
}

/// Reads which order is meant, by either id: for queries. `must_be` as in [`Cancel`].
pub fn order_ref(
    params: &Params<'_>,
    id_name: &'static str,
    client_name: &'static str,
) -> Result<(OrderRef, Option<ClientId>), ApiError> {
    let id = params.integer(id_name)?.map(OrderId);
    let client = params.client_id(client_name)?;
    match (id, client) {
        (None, None) => Err(ApiError::either(client_name, id_name)),
        (Some(id), must_be) => Ok((OrderRef::Id(id), must_be)),
        (None, Some(client)) => Ok((OrderRef::Client(client), None)),
    }
}

/// Reads a cancel.
pub fn cancel(params: &Params<'_>, catalog: &Catalog, names: CancelNames) -> Result<Cancel, ApiError> {
    let symbol = params.symbol()?;
    let (order, must_be) = order_ref(params, names.id, names.client)?;
    let cancel_id = params.client_id(names.new)?.unwrap_or_else(names::client_id);
    let only = match params.optional("cancelRestrictions")? {
        None => None,
        Some("ONLY_NEW") => Some(OrderStatus::New),
        Some("ONLY_PARTIALLY_FILLED") => Some(OrderStatus::PartiallyFilled),
        Some(_) => return Err(ApiError::new(-1145, "Invalid cancelRestrictions")),
    };
    let market = catalog.find(symbol).ok_or_else(ApiError::bad_symbol)?.id;
    Ok(Cancel { market, order, cancel_id, must_be, only })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hoga_core::event::{Event, EventRecord};
    use hoga_core::ids::{AssetId, Seq, Timestamp};
    use hoga_core::instrument::{Name, TradingState};

    use super::*;
    use crate::catalog::SharedCatalog;

    fn catalog() -> SharedCatalog {
        let instrument = Instrument {
            id: MarketId(0),
            symbol: Name::new("BTCUSDT").unwrap(),
            base: AssetId(0),
            quote: AssetId(1),
            state: TradingState::Open,
            price_tick: Price(1_000_000),
            price_min: Price(1_000_000),
            price_max: Price(i64::MAX),
            lot_step: Qty(1_000),
            lot_min: Qty(1_000),
            lot_max: Qty(i64::MAX),
            market_lot_max: Qty(i64::MAX),
            notional_min: Amount(0),
            notional_max: Amount(i64::MAX),
            percent_up: 0,
            percent_down: 0,
            market_band_bps: 0,
            max_orders: 10,
            max_algo_orders: 5,
            max_position: Qty::ZERO,
            maker_fee_ppm: 0,
            taker_fee_ppm: 0,
        };
        let catalog = SharedCatalog::default();
        let event = Event::InstrumentSet(instrument);
        catalog.apply(&[EventRecord { seq: Seq(1), index: 0, time: Timestamp(0), event }]);
        catalog
    }

    /// Texts that have broken parsers elsewhere, beside good ones.
    const VALUES: [&str; 28] = [
        "BTCUSDT",
        "BUY",
        "SELL",
        "LIMIT",
        "MARKET",
        "LIMIT_MAKER",
        "STOP_LOSS",
        "STOP_LOSS_LIMIT",
        "TAKE_PROFIT_LIMIT",
        "GTC",
        "IOC",
        "0.1",
        "45000",
        "0",
        "1e-05",
        "-1",
        "92233720368.54775807",
        "99999999999999999999",
        "0.000000001",
        "",
        " ",
        "%",
        "%00",
        "\u{feff}1",
        "NaN",
        "1.2.3",
        "null",
        "DECREMENT",
    ];
    const NAMES: [&str; 13] = [
        "symbol",
        "side",
        "type",
        "timeInForce",
        "quantity",
        "quoteOrderQty",
        "price",
        "stopPrice",
        "newClientOrderId",
        "newOrderRespType",
        "selfTradePreventionMode",
        "icebergQty",
        "trailingDelta",
    ];

    #[test]
    fn whatever_is_taken_is_a_whole_order() {
        let catalog = catalog();
        let catalog = catalog.current();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = move |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        };
        let mut taken: BTreeMap<&str, u32> = BTreeMap::new();
        for _ in 0..60_000 {
            // A good order of some type, with a few parameters dropped, added or changed.
            let order_type = VALUES[3 + next(6)];
            let mut list = vec![
                ("symbol", "BTCUSDT"),
                ("side", VALUES[1 + next(2)]),
                ("type", order_type),
                ("quantity", "0.1"),
            ];
            if order_type.contains("LIMIT") {
                list.push(("price", "45000"));
                if order_type != "LIMIT_MAKER" {
                    list.push(("timeInForce", VALUES[9 + next(2)]));
                }
            }
            if order_type.contains('_') && order_type != "LIMIT_MAKER" {
                list.push(("stopPrice", "45000"));
            }
            for _ in 0..next(4) {
                let name = NAMES[next(NAMES.len())];
                list.retain(|(other, _)| *other != name);
                if next(4) > 0 {
                    list.push((name, VALUES[next(VALUES.len())]));
                }
            }
            let mut params = Params::new();
            for (name, value) in &list {
                params.add((*name).into(), (*value).into()).unwrap();
            }
            let Ok(Place { order, .. }) = place(&params, &catalog, AccountId(1), StpMode::ExpireMaker) else {
                continue;
            };
            *taken.entry(order.order_type.as_str()).or_default() += 1;
            let kind = order.order_type;
            assert!(order.qty.0 >= 0 && order.quote_qty.0 >= 0, "{list:?}");
            assert_ne!(order.qty.0 > 0, order.quote_qty.0 > 0, "{list:?}: one of both");
            assert!(order.quote_qty.0 == 0 || kind == OrderType::Market, "{list:?}");
            assert_eq!(order.price.0 > 0, kind.has_price(), "{list:?}");
            assert_eq!(order.stop_price.0 > 0, kind.is_conditional(), "{list:?}");
            assert!(
                order.tif == TimeInForce::Gtc || kind.has_price() && kind != OrderType::LimitMaker,
                "{list:?}"
            );
            assert!(!order.client_id.is_none() && order.market == MarketId(0), "{list:?}");
            assert_eq!((order.iceberg_qty, order.trailing_delta), (Qty::ZERO, 0));
        }
        assert_eq!(taken.len(), 6, "every type was taken now and then: {taken:?}");
    }
}
