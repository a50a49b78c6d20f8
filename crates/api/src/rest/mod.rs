//! `/api/v3`: Binance's Spot endpoints, and the few beside them that clients ask for while they start.

mod account;
mod market;
mod place;
pub(crate) mod query;

use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::routes::Route;

/// Answers one request.
pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, ApiError> {
    match call.route {
        Route::Ping => {
            call.params.all_read()?;
            Ok(Reply::json(b"{}".to_vec()))
        }
        Route::Time => {
            call.params.all_read()?;
            Ok(Reply::json(format!("{{\"serverTime\":{}}}", call.now.millis()).into_bytes()))
        }
        Route::ExchangeInfo => market::exchange_info(call),
        Route::Depth => market::depth(call).await,
        Route::Trades | Route::HistoricalTrades => market::trades(call).await,
        Route::AggTrades => market::agg_trades(call).await,
        Route::Klines | Route::UiKlines => market::klines(call).await,
        Route::AvgPrice => market::avg_price(call).await,
        Route::Ticker => market::ticker_window(call).await,
        Route::Ticker24h => market::ticker_24h(call).await,
        Route::TickerPrice => market::ticker_price(call).await,
        Route::BookTicker => market::book_ticker(call).await,
        Route::NewOrder => place::new_order(call).await,
        Route::TestOrder => place::test_order(call),
        Route::CancelReplace => place::cancel_replace(call).await,
        Route::CancelOrder => place::cancel_order(call).await,
        Route::CancelAll => place::cancel_all(call).await,
        Route::QueryOrder => account::query_order(call).await,
        Route::OpenOrders => account::open_orders(call).await,
        Route::AllOrders => account::all_orders(call).await,
        Route::Account => account::account(call).await,
        Route::MyTrades => account::my_trades(call).await,
        Route::OrderLimits => account::order_limits(call),
        Route::TradeFees => account::trade_fees(call),
        Route::SystemStatus => Ok(Reply::json(br#"{"status":0,"msg":"normal"}"#.to_vec())),
        // ccxt asks for these while it loads markets, unless it is told not to; an empty answer lets it go on.
        Route::CoinInfo | Route::MarginPairs | Route::IsolatedPairs => Ok(Reply::json(b"[]".to_vec())),
        Route::LinearInfo | Route::InverseInfo => Ok(Reply::json(br#"{"symbols":[]}"#.to_vec())),
        _ => Err(ApiError::new(-1020, "This operation is not supported.")),
    }
}
