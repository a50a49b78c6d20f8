//! From the engine's gate back to a waiting request.

use std::sync::{Arc, Mutex, PoisonError};

use hoga_core::command::Body;
use hoga_core::event::{Event, EventRecord, Reject};
use hoga_core::exchange::Exchange;
use hoga_core::ids::Timestamp;
use hoga_engine::{EngineHandle, Lost, Reply, ReplySink, ReplyTo, SubmitError};
use tokio::sync::oneshot;

use crate::error::ApiError;

/// An outcome that a request owns. Depth changes are left out: no answer shows them.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub result: Result<(), Reject>,
    pub events: Vec<EventRecord>,
}

impl Outcome {
    fn of(reply: &Reply<'_>) -> Outcome {
        let keep = |e: &&EventRecord| !matches!(e.event, Event::Level(_));
        Outcome { result: reply.outcome, events: reply.events.iter().filter(keep).copied().collect() }
    }
}

struct One(Mutex<Option<oneshot::Sender<Result<Outcome, Lost>>>>);

impl One {
    fn send(&self, result: impl FnOnce() -> Result<Outcome, Lost>) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Nobody waits any more when the client has left: its order stands all the same.
            let _ = sender.send(result());
        }
    }
}

impl ReplySink for One {
    fn reply(&self, _tag: u64, reply: &Reply<'_>) {
        self.send(|| Ok(Outcome::of(reply)));
    }

    fn lost(&self, _tag: u64, why: Lost) {
        self.send(|| Err(why));
    }
}

/// What the client reads when the engine does not take a command.
pub(crate) fn submit_error(error: SubmitError) -> ApiError {
    match error {
        SubmitError::Busy => ApiError::busy(),
        SubmitError::Stopped => ApiError::new(-1016, "This service is no longer available."),
    }
}

/// What the client reads when there is no reply.
pub(crate) fn lost_error(why: Lost) -> ApiError {
    match why {
        Lost::NotTaken => ApiError::new(-1016, "This service is no longer available."),
        Lost::Unknown => ApiError::timeout(),
    }
}

/// Submits a command and waits for its durable outcome.
pub(crate) async fn execute(
    engine: &EngineHandle,
    body: Body,
    deadline: Timestamp,
) -> Result<Outcome, ApiError> {
    let (sender, receiver) = oneshot::channel();
    let sink = Arc::new(One(Mutex::new(Some(sender))));
    engine.submit(body, deadline, ReplyTo::new(sink, 0)).map_err(submit_error)?;
    match receiver.await {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(why)) => Err(lost_error(why)),
        Err(_) => Err(ApiError::timeout()),
    }
}

/// Asks the engine's replica, which has everything that was acknowledged before this call.
pub(crate) async fn ask<R: Send + 'static>(
    engine: &EngineHandle,
    question: impl FnOnce(&Exchange) -> R + Send + 'static,
) -> Result<R, ApiError> {
    let (sender, receiver) = oneshot::channel();
    engine
        .query_with(Box::new(move |exchange| {
            let _ = sender.send(question(exchange));
        }))
        .map_err(submit_error)?;
    receiver.await.map_err(|_| ApiError::new(-1016, "This service is no longer available."))
}
