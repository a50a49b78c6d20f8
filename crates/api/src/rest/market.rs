//! Public market data.

use hoga_core::folds::candle::{Candle, Interval};
use hoga_core::folds::ticker::TickerValues;
use hoga_core::ids::{MarketId, Timestamp, TradeId};
use hoga_core::instrument::{Instrument, TradingState};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::Side;
use hoga_store::{CandleQuery, Group, TradeQuery};

use crate::catalog::Catalog;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::json::string_array;
use crate::limits::Limits;
use crate::orders;
use crate::params::Params;
use crate::reads::{hub_current, read};
use crate::render::{self, boolean, int, plain, put, units};

/// The most symbols that one request may name.
const MAX_SYMBOLS: usize = 1000;
/// The most levels that a depth answer has (Binance).
const MAX_LEVELS: usize = 5000;
/// Microseconds in a minute.
const MINUTE: i64 = 60_000_000;

/// Which markets a request is about.
pub(crate) enum Selection {
    /// One, by `symbol`: the answer is an object.
    One(Box<Instrument>),
    /// Some by `symbols`, or all: the answer is an array.
    Many(Vec<Instrument>),
}

impl Selection {
    /// Reads `symbol`, `symbols` and `symbolStatus`.
    pub fn read(params: &Params<'_>, catalog: &Catalog) -> Result<(Selection, bool), ApiError> {
        let symbol = params.optional_symbol()?;
        let symbols = params.optional("symbols")?;
        let status = status_filter(params)?;
        let find = |symbol: &str| catalog.find(symbol).copied().ok_or_else(ApiError::bad_symbol);
        match (symbol, symbols) {
            (Some(_), Some(_)) => Err(ApiError::bad_combination()),
            (Some(symbol), None) => {
                let instrument = find(symbol)?;
                if status.is_some_and(|status| status != instrument.state) {
                    return Err(status_mismatch());
                }
                Ok((Selection::One(Box::new(instrument)), true))
            }
            (None, Some(list)) => {
                let illegal = |_| {
                    ApiError::illegal("symbols", "^\\[(\"[A-Z0-9-_.]{1,20}\"(,\"[A-Z0-9-_.]{1,20}\")*)?\\]$")
                };
                let names = string_array(list, MAX_SYMBOLS).map_err(illegal)?;
                let mut found: Vec<Instrument> = Vec::with_capacity(names.len());
                for name in &names {
                    let instrument = find(name)?;
                    if found.iter().any(|other| other.id == instrument.id) {
                        return Err(ApiError::new(-1151, "Symbol is present multiple times in the list."));
                    }
                    found.push(instrument);
                }
                Ok((Selection::Many(matching(found, status)), true))
            }
            (None, None) => Ok((Selection::Many(matching(catalog.instruments().to_vec(), status)), false)),
        }
    }

    fn instruments(&self) -> &[Instrument] {
        match self {
            Selection::One(one) => std::slice::from_ref(one),
            Selection::Many(many) => many,
        }
    }

    /// Writes one entry a market: alone, or as an array.
    fn write(&self, out: &mut Vec<u8>, mut entry: impl FnMut(&mut Vec<u8>, &Instrument)) {
        match self {
            Selection::One(one) => entry(out, one),
            Selection::Many(many) => {
                out.push(b'[');
                for (i, instrument) in many.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    entry(out, instrument);
                }
                out.push(b']');
            }
        }
    }
}

fn matching(mut instruments: Vec<Instrument>, status: Option<TradingState>) -> Vec<Instrument> {
    instruments.retain(|i| status.is_none_or(|status| i.state == status));
    instruments
}

fn status_mismatch() -> ApiError {
    ApiError::new(-1220, "The symbol's status does not match the requested symbolStatus.")
}

fn status_filter(params: &Params<'_>) -> Result<Option<TradingState>, ApiError> {
    match params.optional("symbolStatus")? {
        None => Ok(None),
        Some(text) => {
            TradingState::parse(text).map(Some).ok_or_else(|| ApiError::new(-1122, "Invalid symbolStatus."))
        }
    }
}

/// `GET /api/v3/exchangeInfo`.
pub(super) fn exchange_info(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let catalog = app.catalog();
    let out =
        write_exchange_info(&call.params, &catalog, app.limits(), app.default_stp().as_str(), call.now)?;
    call.params.all_read()?;
    Ok(Reply::json(out))
}

/// The answer of `exchangeInfo`.
pub(crate) fn write_exchange_info(
    params: &Params<'_>,
    catalog: &Catalog,
    limits: &Limits,
    default_stp: &str,
    now: Timestamp,
) -> Result<Vec<u8>, ApiError> {
    let permissions = params.optional("permissions")?;
    let with_sets = params.boolean("showPermissionSets")?.unwrap_or(true);
    let (selection, named) = Selection::read(params, catalog)?;
    if named && permissions.is_some() {
        return Err(ApiError::bad_combination());
    }
    // Every market here is a spot market.
    let shown: &[Instrument] = match permissions {
        Some(text) if !text.contains("SPOT") => &[],
        _ => selection.instruments(),
    };
    let mut out = Vec::with_capacity(1024 + shown.len() * 1800);
    int(&mut out, "{\"timezone\":\"UTC\",\"serverTime\":", now.millis());
    put(&mut out, ",\"rateLimits\":[");
    limits.write_weight(&mut out, None);
    out.push(b',');
    limits.write_orders(&mut out, None);
    put(&mut out, "],\"exchangeFilters\":[],\"symbols\":[");
    for (i, instrument) in shown.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        render::instrument(&mut out, catalog, instrument, default_stp, with_sets);
    }
    put(&mut out, "]}");
    Ok(out)
}

/// `GET /api/v3/depth`.
pub(super) async fn depth(call: &Call<'_>) -> Result<Reply, ApiError> {
    let (market, limit, extra) = depth_params(&call.params, &call.peer.app.catalog())?;
    call.params.all_read()?;
    call.charge(extra)?;
    hub_current(&call.peer.app).await;
    Ok(Reply::json(write_depth(call.peer.app.hub(), market, limit)))
}

/// Market, levels, and the weight above the route's base.
pub(crate) fn depth_params(
    params: &Params<'_>,
    catalog: &Catalog,
) -> Result<(MarketId, usize, u32), ApiError> {
    let instrument = orders::market(params, catalog)?;
    if status_filter(params)?.is_some_and(|status| status != instrument.state) {
        return Err(status_mismatch());
    }
    let limit = params.limit(100, MAX_LEVELS)?;
    let extra = match limit {
        0..=100 => 0,
        101..=500 => 20,
        501..=1000 => 45,
        _ => 245,
    };
    Ok((instrument.id, limit, extra))
}

/// The answer of `depth`.
pub(crate) fn write_depth(hub: &crate::hub::Hub, market: MarketId, limit: usize) -> Vec<u8> {
    let depth = hub.depth(market, limit).unwrap_or_default();
    let mut out = Vec::with_capacity(64 + (depth.bids.len() + depth.asks.len()) * 36);
    int(&mut out, "{\"lastUpdateId\":", depth.update_id);
    put(&mut out, ",\"bids\":");
    render::levels(&mut out, &depth.bids);
    put(&mut out, ",\"asks\":");
    render::levels(&mut out, &depth.asks);
    out.push(b'}');
    out
}

/// `GET /api/v3/trades`, `GET /api/v3/historicalTrades`.
pub(super) async fn trades(call: &Call<'_>) -> Result<Reply, ApiError> {
    let market = orders::market(&call.params, &call.peer.app.catalog())?.id;
    let limit = call.params.limit(500, 1000)?;
    let from = match call.route {
        crate::routes::Route::HistoricalTrades => call.params.integer("fromId")?,
        _ => None,
    };
    call.params.all_read()?;
    let trades = read(&call.peer.app, Group::Market, move |stores| match from {
        Some(from) => stores.market().trades_from(market, TradeId(from), limit),
        None => stores.market().recent_trades(market, limit),
    })
    .await?;
    let mut out = Vec::with_capacity(2 + trades.len() * 160);
    out.push(b'[');
    for (i, trade) in trades.iter().enumerate() {
        int(&mut out, if i == 0 { "{\"id\":" } else { ",{\"id\":" }, trade.id.0);
        units(&mut out, ",\"price\":", trade.price.0);
        units(&mut out, ",\"qty\":", trade.qty.0);
        units(&mut out, ",\"quoteQty\":", trade.quote.0);
        int(&mut out, ",\"time\":", trade.time.millis());
        boolean(&mut out, ",\"isBuyerMaker\":", trade.taker_side == Side::Sell);
        put(&mut out, ",\"isBestMatch\":true}");
    }
    out.push(b']');
    Ok(Reply::json(out))
}

/// `startTime` and `endTime`; the end's last millisecond is contained.
fn bounds(params: &Params<'_>) -> Result<(Option<Timestamp>, Option<Timestamp>), ApiError> {
    let start = params.time("startTime")?.map(Timestamp);
    let end = params.time("endTime")?.map(|end| Timestamp(if end % 1000 == 0 { end + 999 } else { end }));
    Ok((start, end))
}

/// `GET /api/v3/aggTrades`.
pub(super) async fn agg_trades(call: &Call<'_>) -> Result<Reply, ApiError> {
    let market = orders::market(&call.params, &call.peer.app.catalog())?.id;
    let from_id = call.params.integer("fromId")?;
    let (start, end) = bounds(&call.params)?;
    let limit = call.params.limit(500, 1000)?;
    call.params.all_read()?;
    if from_id.is_some() && (start.is_some() || end.is_some()) {
        return Err(ApiError::bad_combination());
    }
    let query = TradeQuery { from_id, start, end, limit };
    let trades =
        read(&call.peer.app, Group::Market, move |s| s.market().aggregate_trades(market, &query)).await?;
    let mut out = Vec::with_capacity(2 + trades.len() * 140);
    out.push(b'[');
    for (i, trade) in trades.iter().enumerate() {
        int(&mut out, if i == 0 { "{\"a\":" } else { ",{\"a\":" }, trade.id);
        units(&mut out, ",\"p\":", trade.price.0);
        units(&mut out, ",\"q\":", trade.qty.0);
        int(&mut out, ",\"f\":", trade.first.0);
        int(&mut out, ",\"l\":", trade.last.0);
        int(&mut out, ",\"T\":", trade.time.millis());
        boolean(&mut out, ",\"m\":", trade.taker_side == Side::Sell);
        put(&mut out, ",\"M\":true}");
    }
    out.push(b']');
    Ok(Reply::json(out))
}

/// `GET /api/v3/klines`, `GET /api/v3/uiKlines`.
pub(super) async fn klines(call: &Call<'_>) -> Result<Reply, ApiError> {
    let market = orders::market(&call.params, &call.peer.app.catalog())?.id;
    let interval = Interval::parse(call.params.mandatory("interval")?)
        .ok_or_else(|| ApiError::new(-1120, "Invalid interval."))?;
    let (start, end) = bounds(&call.params)?;
    let limit = call.params.limit(500, 1000)?;
    if call
        .params
        .optional("timeZone")?
        .is_some_and(|zone| !matches!(zone, "0" | "00:00" | "+00:00" | "-00:00" | "0:00"))
    {
        return Err(ApiError::not_valid("timeZone"));
    }
    call.params.all_read()?;
    let query = CandleQuery { start, end, limit };
    let now = call.now;
    let candles =
        read(&call.peer.app, Group::Market, move |s| s.market().candles(market, interval, &query, now))
            .await?;
    let mut out = Vec::with_capacity(2 + candles.len() * 200);
    out.push(b'[');
    for (i, candle) in candles.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        kline(&mut out, candle, interval);
    }
    out.push(b']');
    Ok(Reply::json(out))
}

fn kline(out: &mut Vec<u8>, candle: &Candle, interval: Interval) {
    int(out, "[", candle.open_time.millis());
    units(out, ",", candle.open.0);
    units(out, ",", candle.high.0);
    units(out, ",", candle.low.0);
    units(out, ",", candle.close.0);
    units(out, ",", candle.volume.0);
    int(out, ",", interval.next(candle.open_time).millis() - 1);
    units(out, ",", candle.quote_volume.0);
    int(out, ",", candle.trades);
    units(out, ",", candle.taker_base.0);
    units(out, ",", candle.taker_quote.0);
    put(out, ",\"0\"]");
}

/// Quote over base in eight places, cut; zero when nothing traded.
fn average(quote: Amount, base: Qty) -> Price {
    if base.0 <= 0 {
        return Price::ZERO;
    }
    let average = i128::from(quote.0) * i128::from(SCALE) / i128::from(base.0);
    Price(i64::try_from(average).unwrap_or(i64::MAX))
}

/// `GET /api/v3/avgPrice`: of the last five minutes, or the last price when nothing traded in them.
pub(super) async fn avg_price(call: &Call<'_>) -> Result<Reply, ApiError> {
    let market = orders::market(&call.params, &call.peer.app.catalog())?.id;
    call.params.all_read()?;
    let now = call.now;
    let query = CandleQuery { start: Some(Timestamp(now.0 - 5 * MINUTE)), end: None, limit: 10 };
    let candles =
        read(&call.peer.app, Group::Market, move |s| s.market().candles(market, Interval::M1, &query, now))
            .await?;
    let (mut base, mut quote) = (0_i64, 0_i64);
    for candle in &candles {
        base = base.saturating_add(candle.volume.0);
        quote = quote.saturating_add(candle.quote_volume.0);
    }
    let last = candles.last().map_or(Price::ZERO, |candle| candle.close);
    let price = if base > 0 { average(Amount(quote), Qty(base)) } else { last };
    let close = candles.iter().rev().find(|c| c.trades > 0).map_or(now, |c| c.last_time);
    let mut out = Vec::new();
    units(&mut out, "{\"mins\":5,\"price\":", price.0);
    int(&mut out, ",\"closeTime\":", close.millis());
    out.push(b'}');
    Ok(Reply::json(out))
}

/// `FULL` or `MINI`.
fn is_mini(params: &Params<'_>) -> Result<bool, ApiError> {
    match params.optional("type")? {
        None | Some("FULL") => Ok(false),
        Some("MINI") => Ok(true),
        Some(_) => Err(ApiError::new(-1139, "Invalid ticker type.")),
    }
}

/// A number of thousandths of a percent as text with three places.
fn percent(out: &mut Vec<u8>, key: &str, thousandths: i64) {
    put(out, key);
    let sign = if thousandths < 0 { "-" } else { "" };
    let value = thousandths.unsigned_abs();
    put(out, &format!("\"{sign}{}.{:03}\"", value / 1000, value % 1000));
}

/// `GET /api/v3/ticker/24hr`.
pub(super) async fn ticker_24h(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let (selection, named) = Selection::read(&call.params, &app.catalog())?;
    let mini = is_mini(&call.params)?;
    call.params.all_read()?;
    call.charge(match (named, selection.instruments().len()) {
        (true, 0..=20) => 0,
        (true, 21..=100) => 38,
        _ => 78,
    })?;
    hub_current(app).await;
    let mut out = Vec::with_capacity(selection.instruments().len() * 600);
    selection.write(&mut out, |out, instrument| {
        let values = app.hub().ticker(instrument.id, call.now).unwrap_or_default();
        if mini {
            write_mini(out, instrument, &values);
        } else {
            write_ticker(out, instrument, &values, &app.hub().book_ticker(instrument.id).unwrap_or_default());
        }
    });
    Ok(Reply::json(out))
}

fn write_ticker(out: &mut Vec<u8>, i: &Instrument, v: &TickerValues, book: &crate::hub::BookTicker) {
    let (bid, ask) = (book.bid.unwrap_or_default(), book.ask.unwrap_or_default());
    plain(out, "{\"symbol\":", i.symbol.as_str());
    units(out, ",\"priceChange\":", v.change.0);
    percent(out, ",\"priceChangePercent\":", v.percent);
    units(out, ",\"weightedAvgPrice\":", v.weighted_avg.0);
    units(out, ",\"prevClosePrice\":", v.previous_close.0);
    units(out, ",\"lastPrice\":", v.last.0);
    units(out, ",\"lastQty\":", v.last_qty.0);
    units(out, ",\"bidPrice\":", bid.0.0);
    units(out, ",\"bidQty\":", bid.1.0);
    units(out, ",\"askPrice\":", ask.0.0);
    units(out, ",\"askQty\":", ask.1.0);
    units(out, ",\"openPrice\":", v.open.0);
    units(out, ",\"highPrice\":", v.high.0);
    units(out, ",\"lowPrice\":", v.low.0);
    ticker_tail(out, v);
}

fn write_mini(out: &mut Vec<u8>, i: &Instrument, v: &TickerValues) {
    plain(out, "{\"symbol\":", i.symbol.as_str());
    units(out, ",\"openPrice\":", v.open.0);
    units(out, ",\"highPrice\":", v.high.0);
    units(out, ",\"lowPrice\":", v.low.0);
    units(out, ",\"lastPrice\":", v.last.0);
    ticker_tail(out, v);
}

fn ticker_tail(out: &mut Vec<u8>, v: &TickerValues) {
    units(out, ",\"volume\":", v.volume.0);
    units(out, ",\"quoteVolume\":", v.quote_volume.0);
    int(out, ",\"openTime\":", v.open_time.millis());
    int(out, ",\"closeTime\":", v.close_time.millis());
    let id = |id: TradeId| i64::try_from(id.0).ok().filter(|id| *id > 0).unwrap_or(-1);
    int(out, ",\"firstId\":", id(v.first_id));
    int(out, ",\"lastId\":", id(v.last_id));
    int(out, ",\"count\":", v.trades);
    out.push(b'}');
}

/// `GET /api/v3/ticker/price`.
pub(super) async fn ticker_price(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let (selection, _) = Selection::read(&call.params, &app.catalog())?;
    call.params.all_read()?;
    if matches!(selection, Selection::Many(_)) {
        call.charge(2)?;
    }
    hub_current(app).await;
    let mut out = Vec::with_capacity(selection.instruments().len() * 60);
    selection.write(&mut out, |out, instrument| {
        let last = app.hub().ticker(instrument.id, call.now).map_or(Price::ZERO, |v| v.last);
        plain(out, "{\"symbol\":", instrument.symbol.as_str());
        units(out, ",\"price\":", last.0);
        out.push(b'}');
    });
    Ok(Reply::json(out))
}

/// `GET /api/v3/ticker/bookTicker`.
pub(super) async fn book_ticker(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let (selection, _) = Selection::read(&call.params, &app.catalog())?;
    call.params.all_read()?;
    if matches!(selection, Selection::Many(_)) {
        call.charge(2)?;
    }
    hub_current(app).await;
    let mut out = Vec::with_capacity(selection.instruments().len() * 150);
    selection.write(&mut out, |out, instrument| {
        let book = app.hub().book_ticker(instrument.id).unwrap_or_default();
        let (bid, ask) = (book.bid.unwrap_or_default(), book.ask.unwrap_or_default());
        plain(out, "{\"symbol\":", instrument.symbol.as_str());
        units(out, ",\"bidPrice\":", bid.0.0);
        units(out, ",\"bidQty\":", bid.1.0);
        units(out, ",\"askPrice\":", ask.0.0);
        units(out, ",\"askQty\":", ask.1.0);
        out.push(b'}');
    });
    Ok(Reply::json(out))
}

/// `windowSize`: `1m`…`59m`, `1h`…`23h`, `1d`…`7d`, in minutes.
fn window_minutes(text: &str) -> Option<i64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i64 = number.parse().ok().filter(|_| number.bytes().all(|b| b.is_ascii_digit()))?;
    match unit {
        "m" if (1..=59).contains(&number) => Some(number),
        "h" if (1..=23).contains(&number) => Some(number * 60),
        "d" if (1..=7).contains(&number) => Some(number * 1440),
        _ => None,
    }
}

/// `GET /api/v3/ticker`: begins on a whole minute, so it is up to 59,999 ms wider than asked for (Binance, the same).
pub(super) async fn ticker_window(call: &Call<'_>) -> Result<Reply, ApiError> {
    let app = &call.peer.app;
    let (selection, named) = Selection::read(&call.params, &app.catalog())?;
    if !named {
        return Err(ApiError::either("symbol", "symbols"));
    }
    let mini = is_mini(&call.params)?;
    let window = call.params.optional("windowSize")?.unwrap_or("1d");
    let minutes = window_minutes(window).ok_or_else(|| ApiError::not_valid("windowSize"))?;
    call.params.all_read()?;
    let count = selection.instruments().len();
    if count > 100 {
        return Err(ApiError::not_valid("symbols"));
    }
    call.charge(u32::try_from(count * 4).unwrap_or(200).min(200).saturating_sub(4))?;
    let (now, mut values) = (call.now, Vec::with_capacity(count));
    for instrument in selection.instruments() {
        values.push(window_values(call, instrument.id, minutes, now).await?);
    }
    let mut values = values.iter();
    let mut out = Vec::with_capacity(count * 400);
    selection.write(&mut out, |out, instrument| {
        let Some(v) = values.next() else { return };
        if mini {
            write_mini(out, instrument, v);
            return;
        }
        plain(out, "{\"symbol\":", instrument.symbol.as_str());
        units(out, ",\"priceChange\":", v.change.0);
        percent(out, ",\"priceChangePercent\":", v.percent);
        units(out, ",\"weightedAvgPrice\":", v.weighted_avg.0);
        units(out, ",\"openPrice\":", v.open.0);
        units(out, ",\"highPrice\":", v.high.0);
        units(out, ",\"lowPrice\":", v.low.0);
        units(out, ",\"lastPrice\":", v.last.0);
        ticker_tail(out, v);
    });
    Ok(Reply::json(out))
}

/// Joins whole hours and the minutes at both ends: at most 288 candles for seven days.
async fn window_values(
    call: &Call<'_>,
    market: MarketId,
    minutes: i64,
    now: Timestamp,
) -> Result<TickerValues, ApiError> {
    let open = Timestamp(Interval::M1.floor(now).0 - minutes * MINUTE);
    let first_hour = if Interval::H1.floor(open) == open { open } else { Interval::H1.next(open) };
    let last_hour = Interval::H1.floor(now);
    let before = |time: Timestamp| Some(Timestamp(time.0 - 1));
    let part = |start: Timestamp, end| CandleQuery { start: Some(start), end, limit: 1000 };
    let parts = if first_hour >= last_hour {
        vec![(Interval::M1, part(open, Some(now)))]
    } else {
        vec![
            (Interval::M1, part(open, before(first_hour))),
            (Interval::H1, part(first_hour, before(last_hour))),
            (Interval::M1, part(last_hour, Some(now))),
        ]
    };
    let candles = read(&call.peer.app, Group::Market, move |stores| {
        let mut all = Vec::new();
        for (interval, query) in &parts {
            if query.end.is_none_or(|end| query.start.is_none_or(|start| start <= end)) {
                all.extend(stores.market().candles(market, *interval, query, now)?);
            }
        }
        Ok(all)
    })
    .await?;
    let traded = candles.iter().filter(|c| c.trades > 0).copied().reduce(|a, b| a.merge(&b));
    let last = candles.last().map_or(Price::ZERO, |c| c.close);
    let mut v = TickerValues {
        open: last,
        high: last,
        low: last,
        last,
        open_time: open,
        close_time: now,
        ..TickerValues::default()
    };
    if let Some(c) = traded {
        v.open = c.open;
        v.high = c.high;
        v.low = c.low;
        v.last = c.close;
        v.volume = c.volume;
        v.quote_volume = c.quote_volume;
        v.trades = c.trades;
        v.first_id = c.first_trade;
        v.last_id = c.last_trade;
        v.weighted_avg = average(c.quote_volume, c.volume);
        v.change = Price(c.close.0 - c.open.0);
        v.percent = thousandths(v.change.0, c.open.0);
    }
    Ok(v)
}

/// `change ÷ open` in thousandths of a percent, rounded half away from zero.
fn thousandths(change: i64, open: i64) -> i64 {
    if open <= 0 {
        return 0;
    }
    let (change, open) = (i128::from(change) * 100_000, i128::from(open));
    let rounded = (change.abs() * 2 + open) / (open * 2);
    i64::try_from(rounded * change.signum()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_percentages() {
        for (text, minutes) in [
            ("1m", Some(1)),
            ("59m", Some(59)),
            ("60m", None),
            ("23h", Some(1380)),
            ("7d", Some(10_080)),
            ("8d", None),
            ("0m", None),
            ("+1m", None),
            ("1d2h", None),
            ("", None),
            ("m", None),
            ("é", None),
        ] {
            assert_eq!(window_minutes(text), minutes, "{text}");
        }
        // Case B14: from 40 to 7.
        for (change, open, result, text) in [
            (-33, 40, -82_500, "\"-82.500\""),
            (1, 3, 33_333, "\"33.333\""),
            (0, 5, 0, "\"0.000\""),
            (1, 0, 0, "\"0.000\""),
        ] {
            assert_eq!(thousandths(change, open), result);
            let mut out = Vec::new();
            percent(&mut out, "", result);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
