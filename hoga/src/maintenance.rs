//! The event log's housekeeping, on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hoga_log::event_log::EventLog;
use hoga_log::storage::{IoPriority, set_io_priority};

/// How often the event log's old segments are looked at.
const MAINTENANCE: Duration = Duration::from_secs(10);

/// Old segments of the event log go, and compacted topics are compacted, on a thread of their own.
pub struct Maintenance {
    stop: Arc<(std::sync::Mutex<bool>, std::sync::Condvar)>,
    thread: JoinHandle<()>,
}

impl Maintenance {
    /// Begins.
    pub fn start(log: Arc<dyn EventLog>) -> std::io::Result<Maintenance> {
        let stop = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("log-maintenance".into()).spawn(move || {
            if let Err(error) = set_io_priority(IoPriority::Last) {
                tracing::debug!(%error, "the event log's maintenance competes with the journal for the disk");
            }
            let (stopped, bell) = &*seen;
            let mut held = false;
            loop {
                let guard = stopped.lock().unwrap_or_else(|e| e.into_inner());
                let (guard, _) =
                    bell.wait_timeout_while(guard, MAINTENANCE, |s| !*s).unwrap_or_else(|e| e.into_inner());
                if *guard {
                    return;
                }
                drop(guard);
                match log.maintain() {
                    // Told when it begins and when it is over, not every ten seconds.
                    Ok(done) if (done.held > 0) != held => {
                        held = done.held > 0;
                        if held {
                            tracing::warn!(
                                partitions = done.held,
                                "the event log keeps more than its retention: a group has not consumed it yet"
                            );
                        } else {
                            tracing::info!("the event log is within its retention again");
                        }
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::error!(%error, "the event log's maintenance failed; old segments stay until it works again");
                    }
                }
            }
        })?;
        Ok(Maintenance { stop, thread })
    }

    /// Ends and waits for it.
    pub fn stop(self) {
        *self.stop.0.lock().unwrap_or_else(|e| e.into_inner()) = true;
        self.stop.1.notify_all();
        if self.thread.join().is_err() {
            tracing::error!("the event log's maintenance panicked");
        }
    }
}
