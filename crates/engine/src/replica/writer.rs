//! The leader's writer: sends the matcher's batches to the topic, many under way at once, and says that the leader lives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use hoga_core::ids::{Seq, Timestamp};
use hoga_log::LogError;
use hoga_log::event_log::Message;
use hoga_log::journal::Batch;

use super::Replication;
use super::message::{Content, Envelope};
use crate::batch::Demand;
use crate::config::Clock;
use crate::fault::FaultKind;
use crate::position::Space;
use crate::shared::Shared;

const THREAD: &str = "replica-writer";

/// Batches that may be sent and not read back.
const IN_FLIGHT: usize = 64;

/// How long it waits before it sends again what the log could not take.
const AGAIN: Duration = Duration::from_millis(50);

/// The key of all messages; the topic has one partition.
pub(crate) const KEY: &[u8] = b"commands";

pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    pub replication: Replication,
    pub instance: u64,
    pub batches: Demand<Batch>,
    pub clock: Arc<dyn Clock>,
}

impl Writer {
    /// Runs until the matcher has ended and all is sent, or the engine stops.
    pub fn run(self) {
        let shared = self.shared.clone();
        shared.journal_bell.attach();
        let resigned = self.serve();
        shared.seat.resigned.store(resigned == Some(true), Ordering::SeqCst);
        shared.seat.written.store(true, Ordering::SeqCst);
    }

    /// `Some`: ended in order, and whether with a resignation.
    fn serve(&self) -> Option<bool> {
        let (shared, heartbeat) = (&*self.shared, self.replication.heartbeat);
        let mut bytes = Vec::new();
        let mut under_way: VecDeque<Seq> = VecDeque::with_capacity(IN_FLIGHT);
        let mut next = Seq(1);
        let mut sent = Instant::now().checked_sub(heartbeat).unwrap_or_else(Instant::now);
        loop {
            if shared.faults.stopped() {
                return None;
            }
            let durable = shared.durable.get();
            while under_way.front().is_some_and(|last| durable.covers(*last)) {
                under_way.pop_front();
            }
            shared.seat.in_flight.store(under_way.len() as u64, Ordering::Relaxed);
            // While something is under way the matcher lets commands come together, as it does during a sync.
            shared.syncing.store(!under_way.is_empty(), Ordering::Relaxed);
            if under_way.len() < IN_FLIGHT {
                match self.batches.full.try_recv() {
                    Ok(mut batch) => {
                        let (first, count, records) = (batch.first(), batch.count(), batch.records());
                        let body = Content::Batch { first, count, sent: shared.nanos(), records };
                        if !self.send(body, &mut bytes) {
                            return None;
                        }
                        under_way.push_back(batch.last());
                        next = batch.last().next();
                        sent = Instant::now();
                        batch.clear();
                        self.batches.give_back(batch);
                        continue;
                    }
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => break,
                }
            }
            let leads = shared.seat.leads();
            if leads && sent.elapsed() >= heartbeat {
                if !self.send(Content::Heartbeat { next: next.max(durable.seq().next()) }, &mut bytes) {
                    return None;
                }
                sent = Instant::now();
            }
            // Rung by the matcher for a batch, by the reader when more is durable or when the lead begins.
            shared.journal_bell.wait(if leads {
                heartbeat.saturating_sub(sent.elapsed()).max(Duration::from_millis(1))
            } else {
                Duration::from_secs(60)
            });
        }
        if !shared.seat.leads() {
            return Some(false);
        }
        self.send(Content::Resign { next }, &mut bytes).then_some(true)
    }

    /// Sends, again and again while the log is away. `false`: the engine has stopped.
    fn send(&self, body: Content<'_>, bytes: &mut Vec<u8>) -> bool {
        let shared = &*self.shared;
        let epoch = shared.seat.epoch.load(Ordering::SeqCst);
        Envelope { epoch, instance: self.instance, body }.encode(bytes);
        while !shared.faults.stopped() {
            match append(&self.replication, self.clock.now(), bytes) {
                Ok(()) => return true,
                // A repeat of what arrived after all is passed over by every reader.
                Err(error) if error.is_transient() => {
                    shared.seat.reachable.store(false, Ordering::Relaxed);
                    std::thread::sleep(AGAIN);
                }
                Err(error) => {
                    shared.stop(FaultKind::Replica, THREAD, error.to_string());
                    return false;
                }
            }
        }
        false
    }
}

/// Appends one message to the topic.
pub(crate) fn append(replication: &Replication, time: Timestamp, bytes: &[u8]) -> Result<(), LogError> {
    replication.log.append(&replication.topic, &[Message { key: KEY, value: Some(bytes), time }])
}
