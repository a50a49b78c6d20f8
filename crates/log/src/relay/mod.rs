//! The relay: copies the event log of this process to a log over the network, message for message.
//!
//! The engine publishes to the log on its own disk and never waits for a network. The relay carries each local partition to the
//! same partition of the same topic behind it, in order. What the other side has is never guessed from what was sent: after
//! a start, a lost connection or a fault the relay reads the last message there, finds the local message of the same number,
//! compares their bytes, and goes on behind it. So a crash of either side, at any step, neither loses nor doubles a message.
//!
//! **Numbers.** Message n of a partition (counted from 1, written by one writer without holes) has the local offset n − 1. What
//! a message's number is, the caller says ([`RelayOptions::number_of`]): nothing here knows what a message holds.
//!
//! **Retention.** The relay is a registered group of the local log ([`RELAY_GROUP`]). It commits what the other side has
//! acknowledged, so neither retention nor compaction takes a message that has not arrived.
//!
//! **Faults.** Servers that do not answer are waited for, and a log that failed is opened again, with pauses that grow. Only a
//! history that is not ours ends the relay ([`LogError::Foreign`]; messages of a predecessor that were still on their way explain
//! it once, so it is tried once more), or a fault of the local log. The rest of the process goes on in any case.

mod status;
mod worker;

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::LogError;
use crate::event_log::EventLog;

use status::Shared;
pub use status::{RelayCounters, RelayPlace, RelayState, RelayStatus};
use worker::{Lane, Worker};

/// The name under which the relay is registered in the local log.
pub const RELAY_GROUP: &str = "relay";

/// The log on the other side, as [`Connect`] gives it.
pub struct Remote {
    /// The log.
    pub log: Arc<dyn EventLog>,
    /// Ends it: calls that wait in it return soon, and this does within the given time, whatever the servers do.
    pub close: Box<dyn FnOnce(Duration) + Send>,
}

impl Remote {
    /// A log that needs no closing.
    pub fn open_ended(log: Arc<dyn EventLog>) -> Remote {
        Remote { log, close: Box::new(|_| {}) }
    }

    /// A log on Apache Kafka.
    #[cfg(feature = "kafka")]
    pub fn kafka(log: crate::kafka::KafkaLog) -> Remote {
        let log = Arc::new(log);
        let closed = log.clone();
        Remote {
            log,
            close: Box::new(move |timeout| {
                // What it had no time for goes on in the background.
                closed.close(timeout);
            }),
        }
    }
}

/// Opens the log on the other side; called again after a fault of the one before.
pub type Connect = Box<dyn FnMut() -> Result<Remote, LogError> + Send>;

/// How a relay works.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The number of a message, from its value; `None` when it has none.
    pub number_of: fn(&[u8]) -> Option<u64>,
    /// The most messages of one partition in one append (1024). Partitions take turns.
    pub batch: usize,
    /// After so many messages the relay waits until they are acknowledged (65 536).
    pub confirm_messages: u64,
    /// And after so much time while messages come without a pause (100 ms). In a pause they are confirmed at once.
    pub confirm_every: Duration,
    /// The first and the longest pause before something is tried again (100 ms, 5 s).
    pub backoff: (Duration, Duration),
    /// A foreign history that is met twice within this time ends the relay (60 s).
    pub foreign_within: Duration,
    /// The longest time until a message is noticed after a pause (10 ms).
    pub look_every: Duration,
}

impl RelayOptions {
    /// The defaults.
    pub fn new(number_of: fn(&[u8]) -> Option<u64>) -> RelayOptions {
        RelayOptions {
            number_of,
            batch: 1024,
            confirm_messages: 65_536,
            confirm_every: Duration::from_millis(100),
            backoff: (Duration::from_millis(100), Duration::from_secs(5)),
            foreign_within: Duration::from_secs(60),
            look_every: Duration::from_millis(10),
        }
    }
}

/// A relay at work: one thread for all topics.
pub struct Relay {
    local: Arc<dyn EventLog>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Registers the relay in the local log and starts it. The topics must be there in the local log; on the other side they are
    /// made with the same specification where they are missing.
    ///
    /// # Errors
    /// [`LogError::NoTopic`] and what registering can meet; [`LogError::Io`] when no thread can be started. That the other side
    /// cannot be reached is none: see [`RelayStatus::state`].
    pub fn start(
        local: Arc<dyn EventLog>,
        connect: Connect,
        topics: &[&str],
        options: RelayOptions,
    ) -> Result<Relay, LogError> {
        let all = local.topics();
        let mut specs = Vec::with_capacity(topics.len());
        let mut lanes = Vec::new();
        for topic in topics {
            let spec = all.iter().find(|spec| spec.name == *topic).cloned();
            let spec = spec.ok_or_else(|| LogError::NoTopic { topic: (*topic).into() })?;
            for partition in 0..spec.partitions {
                local.commit(RELAY_GROUP, topic, partition, 0)?;
                let confirmed = local.committed(RELAY_GROUP, topic, partition)?.unwrap_or(0);
                lanes.push(Lane::new(&spec, partition, confirmed));
            }
            specs.push(spec);
        }
        let shared = Arc::new(Shared::new(lanes.iter().map(Lane::place).collect()));
        let worker = Worker::new(local.clone(), connect, specs, lanes, options, shared.clone());
        let thread = Builder::new()
            .name("relay".into())
            .spawn(move || worker.run())
            .map_err(LogError::io("starting the thread of the relay in", std::path::Path::new("/")))?;
        Ok(Relay { local, shared, thread: Some(thread) })
    }

    /// How it goes. Reads one message of each partition that is behind, at most once a second.
    pub fn status(&self) -> RelayStatus {
        self.shared.status(&*self.local)
    }

    /// A handle for those who only want to know how it goes.
    pub fn watch(&self) -> RelayWatch {
        RelayWatch { local: self.local.clone(), shared: self.shared.clone() }
    }

    /// Carries over what is there, where the other side takes it in time, and ends. Returns within `timeout` in any case; true when
    /// everything that was in the local log at the call is acknowledged.
    pub fn stop(mut self, timeout: Duration) -> bool {
        self.end(timeout)
    }

    fn end(&mut self, timeout: Duration) -> bool {
        let Some(thread) = self.thread.take() else { return false };
        let now = Instant::now();
        let deadline = now + timeout;
        // The last quarter is for a log that hangs: closing it frees the thread.
        self.shared.stop(now + timeout * 3 / 4);
        if !self.shared.wait_ended(now + timeout * 3 / 4) {
            if let Some(close) = self.shared.take_close() {
                let left = deadline.saturating_duration_since(Instant::now());
                // On a thread of its own: not even a closer that does not keep its word holds up the end of the process.
                let closer = Builder::new().name("relay-close".into()).spawn(move || close(left / 2));
                drop(closer);
            }
            self.shared.wait_ended(deadline);
        }
        if thread.is_finished() || self.shared.has_ended() {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
        self.shared.drained()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// Tells how a [`Relay`] goes, without holding it.
#[derive(Clone)]
pub struct RelayWatch {
    local: Arc<dyn EventLog>,
    shared: Arc<Shared>,
}

impl RelayWatch {
    /// As [`Relay::status`].
    pub fn status(&self) -> RelayStatus {
        self.shared.status(&*self.local)
    }
}

#[cfg(test)]
mod tests;
