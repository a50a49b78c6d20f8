//! The journal's thread: makes commands durable, many with one sync. It knows nothing of orders.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;

use hoga_log::LogError;
use hoga_log::journal::{Batch, Durability, Journal};
use hoga_log::storage::Storage;
use hoga_log::storage::{IoPriority, set_io_priority};

use crate::batch::{BUFFERS, Demand};
use crate::fault::FaultKind;
use crate::metrics::{Pulse, Recorder};
use crate::pace::Pace;
use crate::position::{Durable, Space};
use crate::shared::Shared;

/// The name of its thread, as faults tell it.
const THREAD: &str = "journal";

/// The journal's writer and what it works with.
pub(crate) struct Journaler<S: Storage> {
    pub shared: Arc<Shared>,
    pub journal: Journal<S>,
    pub batches: Demand<Batch>,
    pub pace: Pace,
}

impl<S: Storage> Journaler<S> {
    /// Runs until the matcher has ended and everything is synced, or the engine stops.
    pub fn run(mut self) {
        if let Err(error) = set_io_priority(IoPriority::First) {
            tracing::debug!(%error, "the journal's writes have no precedence");
        }
        self.shared.journal_bell.attach();
        let (mut sync, mut pulse) = (Recorder::new(), Pulse::default());
        while !self.shared.faults.stopped() {
            match self.append_waiting() {
                Ok(Waiting::Appended) => {
                    if let Err(error) = self.gather().and_then(|()| self.sync(&mut sync, &mut pulse)) {
                        return self.fail(&error);
                    }
                }
                Ok(Waiting::Nothing) => {
                    if !self.shared.journal_bell.wait(pulse.sleep()) {
                        pulse.flush(self.shared.nanos(), &mut [(&mut sync, &self.shared.metrics.sync)]);
                        // With time to spare: damage to the last batch can then be told from a torn write.
                        if let Err(error) = self.journal.seal() {
                            return self.fail(&error);
                        }
                    }
                }
                Ok(Waiting::Closed) => break,
                Err(error) => return self.fail(&error),
            }
        }
        let Journaler { shared, journal, .. } = self;
        if !shared.faults.stopped()
            && let Err(error) = journal.close()
        {
            shared.stop(FaultKind::Journal, THREAD, error.to_string());
        }
    }

    /// Appends everything that waits: it goes into one sync. What comes during the sync goes into the next.
    fn append_waiting(&mut self) -> Result<Waiting, LogError> {
        let mut result = Waiting::Nothing;
        // A bound, so that a matcher that is as quick as this loop cannot keep it from syncing.
        for _ in 0..BUFFERS {
            match self.batches.full.try_recv() {
                Ok(mut batch) => {
                    self.journal.append(batch.first(), batch.count(), batch.records())?;
                    self.shared.metrics.journal_bytes.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    batch.clear();
                    self.batches.give_back(batch);
                    result = Waiting::Appended;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) if matches!(result, Waiting::Appended) => break,
                Err(TryRecvError::Disconnected) => return Ok(Waiting::Closed),
            }
        }
        Ok(result)
    }

    /// Under load, lets more come into the sync.
    fn gather(&mut self) -> Result<(), LogError> {
        let rest = self.pace.rest(self.shared.nanos());
        if !rest.is_zero() {
            std::thread::sleep(rest);
            self.append_waiting()?;
        }
        let commands = self.journal.last().0 - self.shared.durable.get().seq().0;
        self.pace.begin(self.shared.nanos(), commands);
        Ok(())
    }

    /// Write → sync → publish the cursor → wake the gate.
    fn sync(&mut self, sync: &mut Recorder, pulse: &mut Pulse) -> Result<(), LogError> {
        let shared = &*self.shared;
        let start = shared.nanos();
        shared.syncing.store(true, Ordering::Relaxed);
        let through = self.journal.sync()?;
        shared.syncing.store(false, Ordering::Relaxed);
        let end = shared.nanos();
        shared.synced_at.store(end, Ordering::Relaxed);
        shared.durable.advance(Durable::at(through));
        shared.gate_bell.ring();
        if self.journal.config().durability == Durability::None {
            // The gate does not wait for this, but the shadow does: it reads what is written.
            shared.shadow_bell.ring();
        }
        shared.metrics.syncs.fetch_add(1, Ordering::Relaxed);
        sync.record(end - start);
        pulse.touch(end, &mut [(sync, &shared.metrics.sync)]);
        Ok(())
    }

    /// A failed write or sync is never tried again: what is on the disk is unknown.
    fn fail(&self, error: &LogError) {
        self.shared.stop(FaultKind::Journal, THREAD, error.to_string());
    }
}

/// What was there to append.
enum Waiting {
    /// Something, and it needs a sync.
    Appended,
    /// Nothing yet.
    Nothing,
    /// Nothing, and nothing will come.
    Closed,
}
