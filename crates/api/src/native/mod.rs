//! `/api/v1`: what Binance has no endpoint for, or another one in production: sign-up, login, keys, paper money, the operator's tools.
//!
//! Bodies are JSON objects or forms; answers are JSON; refusals have the same form as under `/api/v3`.

mod admin;
pub(crate) mod alerts;
mod funds;
mod keys;
mod placing;
mod plant;
mod status;
mod users;

use serde_json::Value;

use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::routes::{Access, Route};

/// Answers one request.
pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, ApiError> {
    if call.route.spec().access == Access::Admin {
        call.operator()?;
    }
    match call.route {
        Route::SignUp => users::sign_up(call).await,
        Route::LogIn => users::log_in(call).await,
        Route::CreateKey => keys::create(call).await,
        Route::ListKeys => keys::list(call).await,
        Route::RevokeKey => keys::revoke(call).await,
        Route::Deposit => funds::deposit(call).await,
        Route::Withdraw => funds::withdraw(call).await,
        Route::Balances => funds::balances(call).await,
        Route::Notifications => alerts::notifications(call).await,
        Route::CreateAlert => alerts::create(call).await,
        Route::ListAlerts => alerts::list(call).await,
        Route::CancelAlert => alerts::cancel(call).await,
        Route::OrderById => funds::order_by_id(call).await,
        Route::Health => Ok(status::health(call)),
        Route::Ready => status::ready(call).await,
        Route::Metrics => status::metrics(call).await,
        Route::OpenApi => Ok(status::open_api()),
        Route::AdminAccount => admin::account(call).await,
        Route::AdminSettle | Route::AdminRelease => admin::end_withdrawal(call).await,
        Route::AdminAudit => admin::audit(call).await,
        Route::AdminTables => admin::tables(call).await,
        Route::AdminRebuild => admin::rebuild(call).await,
        Route::AdminDigest => admin::digest(call).await,
        Route::AdminStatus => status::status(call).await,
        Route::AdminLag => status::lag(call),
        Route::Pipeline => Ok(status::pipeline(call)),
        Route::PlantStatus
        | Route::PlantMonitor
        | Route::PlantDiff
        | Route::PlantQuotes
        | Route::PlantQuote
        | Route::PlantExplain
        | Route::PlantSwitch
        | Route::PlantRebuild => plant::run(call).await,
        Route::AdminOrder => placing::order(call).await,
        Route::AdminMarketState => admin::market_state(call).await,
        _ => Err(ApiError::new(-1020, "This operation is not supported.")),
    }
}

/// A JSON answer of a cold path.
fn json(value: &Value) -> Reply {
    Reply::json(value.to_string().into_bytes())
}

/// Runs something that may block (the disk, a hash) off the network threads.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::internal(&error))
}
