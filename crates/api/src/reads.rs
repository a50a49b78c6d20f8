//! Questions to the read models: off the network threads, bounded, and not before they know what the engine has acknowledged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_engine::Space;
use hoga_store::{Group, StoreError, Stores};

use crate::app::App;
use crate::error::ApiError;
use crate::reply::ask;

/// How long an answer may take once the read model has what is asked for; mostly it is a millisecond. A database that has gone away is
/// noticed by its connections within this time or soon after.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Asks a read model once it has what was acknowledged at this call, or after the configured time: a read model that is further behind
/// answers from what it has. The engine's replica is asked first, since it publishes what the read models take in.
///
/// # Errors
/// -1001 (503) when the database does not answer, -1008 (503) when too many questions are under way.
pub(crate) async fn read<R: Send + 'static>(
    app: &Arc<App>,
    group: Group,
    question: impl FnOnce(&Stores) -> Result<R, StoreError> + Send + 'static,
) -> Result<R, ApiError> {
    let permit = app.reading.try_begin()?;
    ask(app.engine(), |_| ()).await?;
    let wait = app.config().read_wait();
    let stores = Arc::clone(app.stores());
    let asked = tokio::task::spawn_blocking(move || {
        // Given back when the thread is free again, not when the client was answered: that is what bounds the threads' queue.
        let _permit = permit;
        stores.wait_current(group, wait);
        question(&stores)
    });
    match tokio::time::timeout(wait + ANSWER_WITHIN, asked).await {
        Ok(Ok(answer)) => answer.map_err(|error| ApiError::of_store(&error)),
        Ok(Err(error)) => Err(ApiError::internal(&error)),
        Err(_) => Err(ApiError::unavailable(&"no answer within the time allowed")),
    }
}

/// How long market data waits for the hub, which is mostly less than a millisecond behind.
const HUB_WAIT: Duration = Duration::from_millis(250);

/// Waits (briefly, if at all) until the hub has taken in what was acknowledged at this call: who has placed an order finds it in the book.
pub(crate) async fn hub_current(app: &App) {
    let wanted = app.engine().positions().acked.seq();
    let begun = Instant::now();
    while app.hub().taken() < wanted && begun.elapsed() < HUB_WAIT {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
