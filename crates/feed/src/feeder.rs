//! The feeder: asks a source for trades and gives them to the gateway, on a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoga_log::LogError;

use crate::gateway::{Gateway, GatewayStats, Taken};
use crate::sources::{Flow, Source, SourceStatus};

/// Most trades that are taken at once.
const MOST: usize = 1024;
/// The pause of a source that has nothing.
const NOTHING: Duration = Duration::from_micros(500);
/// The pause before a full spool, or one that is away, is tried again.
const FULL: Duration = Duration::from_millis(20);

/// How a feed is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedStatus {
    /// What became of trades.
    pub gateway: GatewayStats,
    /// What the source says of itself.
    pub source: SourceStatus,
    /// Trades that wait for room in the spool.
    pub waiting: u64,
    /// Whether the source has no more.
    pub ended: bool,
    /// Why the feed has stopped, if it has by itself.
    pub fault: Option<String>,
}

/// A running feed. Stops when it is dropped; its numbers are saved then.
pub struct Feeder {
    stop: Arc<AtomicBool>,
    status: Arc<Mutex<FeedStatus>>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    /// Begins; `came` is called after ticks came into the spool.
    ///
    /// # Errors
    /// [`LogError::Io`] when the thread cannot be started.
    pub fn start(
        mut gateway: Gateway,
        mut source: Box<dyn Source>,
        came: impl Fn() + Send + 'static,
    ) -> Result<Feeder, LogError> {
        let (stop, status) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(FeedStatus::default())));
        let (stopped, told) = (stop.clone(), status.clone());
        let work = move || {
            let begun = Instant::now();
            let (mut trades, mut flow) = (Vec::with_capacity(MOST), Flow::Open);
            let mut fault = None;
            while !stopped.load(Ordering::Acquire) && fault.is_none() {
                if trades.is_empty() && flow == Flow::Open {
                    flow = source.poll(begun.elapsed(), MOST, &mut trades);
                }
                let taken = if trades.is_empty() { Ok(Taken::All) } else { gateway.take(&trades) };
                let pause = match taken {
                    Ok(Taken::All) if trades.is_empty() => Some(NOTHING),
                    Ok(Taken::All) => {
                        trades.clear();
                        came();
                        None
                    }
                    Ok(Taken::Full { .. }) => Some(FULL),
                    Err(error) if error.is_transient() => Some(FULL),
                    Err(error) => {
                        tracing::error!(%error, "the feed stops");
                        fault = Some(format!("[{}] {error}", error.code()));
                        None
                    }
                };
                {
                    let mut status = told.lock().unwrap_or_else(PoisonError::into_inner);
                    status.gateway = gateway.stats();
                    status.source = source.status();
                    status.waiting = trades.len() as u64;
                    status.ended = flow == Flow::Ended && trades.is_empty();
                    status.fault.clone_from(&fault);
                }
                if let Some(pause) = pause {
                    std::thread::park_timeout(pause);
                }
            }
            if let Err(error) = gateway.save() {
                tracing::warn!(%error, "the numbers of ticks could not be saved: the next start reads the spool for them");
            }
        };
        let thread = std::thread::Builder::new().name("feeder".into()).spawn(work);
        let thread = thread.map_err(LogError::io("starting a thread", "feeder".as_ref()))?;
        Ok(Feeder { stop, status, thread: Some(thread) })
    }

    /// How it is doing.
    pub fn status(&self) -> FeedStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // One that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
