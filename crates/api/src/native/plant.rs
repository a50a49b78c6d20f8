//! `/api/v1/plant`: the tick plant, where this process has parts of it.

use serde_json::Value;

use super::blocking;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::http::Reply;
use crate::routes::Route;

/// Answers one of its routes.
pub(super) async fn run(call: &Call<'_>) -> Result<Reply, ApiError> {
    let Some(plant) = call.peer.app.plant() else {
        let text = "There is no tick plant in this process: start it with --feed, or ask a process with the role quotes.";
        return Err(ApiError::new(-1000, text).with_status(404));
    };
    let refused = |text: String| ApiError::new(-2010, text).with_status(409);
    // Caches may be on another machine, and symbols many.
    let done: Result<Value, ApiError> = match call.route {
        Route::PlantSwitch => {
            let to = call.params.mandatory("to")?.to_owned();
            let force = call.params.optional("force")?.is_some_and(|force| force == "true");
            call.params.all_read()?;
            blocking(move || plant.switch(&to, force)).await?.map_err(refused)
        }
        Route::PlantRebuild => {
            let group = call.params.mandatory("group")?.to_owned();
            call.params.all_read()?;
            blocking(move || plant.rebuild(&group)).await?.map_err(refused)
        }
        Route::PlantExplain => {
            let symbol = call.id.to_owned();
            call.params.all_read()?;
            blocking(move || plant.explain(&symbol)).await?.map_err(refused)
        }
        Route::PlantQuote => {
            let symbol = call.id.to_owned();
            call.params.all_read()?;
            let found = blocking(move || plant.quote(&symbol)).await?;
            found.ok_or_else(|| ApiError::new(-1121, "Invalid symbol.").with_status(404))
        }
        route => {
            call.params.all_read()?;
            Ok(blocking(move || match route {
                Route::PlantMonitor => plant.monitor(),
                Route::PlantDiff => plant.diff(),
                Route::PlantQuotes => plant.quotes(),
                _ => plant.json(),
            })
            .await?)
        }
    };
    Ok(super::json(&done?))
}
