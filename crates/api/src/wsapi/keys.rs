//! Keys of requests on a connection: from memory, and looked up while the connection's next requests wait.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::app::App;
use crate::auth::ApiKey;
use crate::error::ApiError;

type Found = Result<Option<Arc<ApiKey>>, ApiError>;
type Lookup = Pin<Box<dyn Future<Output = Found> + Send>>;

/// What a connection waits for. Requests stay in their order: behind one that waits for its key all wait.
#[derive(Default)]
pub(super) struct Lookups {
    /// The key that the request under way lacks.
    missing: Option<String>,
    /// Looked up now, for the first of `held`.
    under_way: Option<(String, Lookup)>,
    /// What was found, for the first of `held`, which is served with it.
    found: Option<(String, Found)>,
    /// Requests that wait. No more than came in one read, since nothing is read meanwhile.
    held: VecDeque<String>,
}

impl Lookups {
    /// The key of the request under way. One that has to be looked up makes an error, upon which [`Lookups::begin`] is due.
    pub fn key(&mut self, app: &App, key: &str) -> Result<Arc<ApiKey>, ApiError> {
        if let Some(known) = app.key(key) {
            return Ok(known);
        }
        match self.found.take() {
            Some((name, found)) if name == key => found?.ok_or_else(ApiError::bad_key),
            _ => {
                self.missing = (!app.identity().settles(key)).then(|| key.to_owned());
                Err(ApiError::bad_key())
            }
        }
    }

    /// Looks up the key that the request lacks, if that is why it failed; true when it is to be served again.
    pub fn begin(&mut self, app: &Arc<App>, request: &str) -> bool {
        let Some(key) = self.missing.take() else { return false };
        let (app, name) = (Arc::clone(app), key.clone());
        self.under_way = Some((key, Box::pin(async move { app.find_key(&name).await })));
        self.held.push_front(request.to_owned());
        true
    }

    /// Keeps a request that comes while another one waits; false when none does.
    pub fn hold(&mut self, request: &str) -> bool {
        let waiting = self.under_way.is_some();
        if waiting {
            self.held.push_back(request.to_owned());
        }
        waiting
    }

    /// The next request that has waited long enough; `None` when none is left.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<String>> {
        if let Some((_, lookup)) = &mut self.under_way {
            let found = ready!(lookup.as_mut().poll(context));
            self.found = self.under_way.take().map(|(key, _)| (key, found));
        }
        Poll::Ready(self.held.pop_front())
    }

    /// A request was served or put back: what was found was for it alone.
    pub fn served(&mut self) {
        self.found = None;
    }
}
