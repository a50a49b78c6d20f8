//! The follower: applies the journal's commands to a replica and publishes their events. The start replays with it, the shadow runs on it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use hoga_core::codec;
use hoga_core::event::EventRecord;
use hoga_core::exchange::Exchange;
use hoga_core::ids::Seq;
use hoga_log::LogError;
use hoga_log::event_log::EventLog;
use hoga_log::journal::JournalReader;
use hoga_log::storage::Storage;

use crate::error::EngineError;
use crate::fault::FaultKind;
use crate::matcher::ChainMark;
use crate::publisher::Publisher;

/// Commands that are applied before their events are published together, and before queries are looked at again.
pub(crate) const CHUNK: usize = 256;

/// Events that the buffer may keep room for; one sweep of a deep book makes more.
const MAX_KEPT_EVENTS: usize = 16_384;

/// Why following stopped.
#[derive(Debug)]
pub(crate) enum FollowError {
    /// The journal cannot be read.
    Journal(LogError),
    /// A record is not a command.
    Record { seq: Seq, reason: String },
    /// The events cannot be published.
    Publish(EngineError),
    /// The replica came to other events than the matcher.
    Diverged { mark: ChainMark, ours: u64 },
}

impl FollowError {
    /// As a fault of a running engine.
    pub fn fault(self) -> (FaultKind, String) {
        match self {
            FollowError::Journal(error) => (FaultKind::Journal, error.to_string()),
            FollowError::Record { .. } => (FaultKind::Journal, EngineError::from(self).to_string()),
            FollowError::Publish(error) => (FaultKind::EventLog, error.to_string()),
            FollowError::Diverged { mark, ours } => {
                let (seq, theirs) = (mark.seq, mark.chain);
                let text = format!(
                    "after command {seq} the matcher's event chain is {theirs:016x} and the replay's is {ours:016x}: the same commands \
                     gave different events"
                );
                (FaultKind::Diverged, text)
            }
        }
    }
}

impl From<FollowError> for EngineError {
    fn from(error: FollowError) -> EngineError {
        match error {
            FollowError::Journal(error) => EngineError::Log(error),
            FollowError::Record { seq, reason } => EngineError::Record { seq, reason },
            FollowError::Publish(error) => error,
            FollowError::Diverged { mark, .. } => {
                EngineError::Record { seq: mark.seq, reason: "replay gave other events".to_owned() }
            }
        }
    }
}

/// The matcher's chain marks, in order.
pub(crate) struct Marks {
    queue: Receiver<ChainMark>,
    next: Option<ChainMark>,
    /// How many have been compared.
    pub compared: u64,
}

impl Marks {
    pub fn new(queue: Receiver<ChainMark>) -> Marks {
        Marks { queue, next: None, compared: 0 }
    }

    /// Compares, when the matcher left a mark for this command. A mark is in the queue before its command is acknowledged, and only
    /// acknowledged commands are followed, so none is missed.
    fn check(&mut self, exchange: &Exchange) -> Result<(), FollowError> {
        let seq = exchange.position();
        while let Some(mark) = self.next.take().or_else(|| self.queue.try_recv().ok()) {
            if mark.seq > seq {
                self.next = Some(mark);
                break;
            }
            if mark.seq == seq {
                let ours = exchange.chain();
                if ours != mark.chain {
                    return Err(FollowError::Diverged { mark, ours });
                }
                self.compared += 1;
            }
        }
        Ok(())
    }
}

/// A replica that follows the journal.
pub(crate) struct Follower<S: Storage> {
    pub exchange: Exchange,
    pub publisher: Publisher,
    pub log: Arc<dyn EventLog>,
    reader: JournalReader<S>,
    events: Vec<EventRecord>,
}

impl<S: Storage> Follower<S> {
    /// From a state; the reader must stand at the command after it.
    pub fn new(
        exchange: Exchange,
        publisher: Publisher,
        log: Arc<dyn EventLog>,
        reader: JournalReader<S>,
    ) -> Follower<S> {
        Follower { exchange, publisher, log, reader, events: Vec::new() }
    }

    /// Applies and publishes the next commands up to `upto`, at most [`CHUNK`]; returns how many messages went to the event log. Their
    /// events are in [`Follower::events`].
    pub fn advance(&mut self, upto: Seq, mut marks: Option<&mut Marks>) -> Result<u64, FollowError> {
        self.events.clear();
        self.events.shrink_to(MAX_KEPT_EVENTS);
        let Follower { exchange, publisher, reader, events, .. } = self;
        let mut failure = None;
        reader
            .read(upto, CHUNK, |seq, bytes| {
                match apply(exchange, publisher, events, marks.as_deref_mut(), seq, bytes) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Some(error);
                        ControlFlow::Break(())
                    }
                }
            })
            .map_err(FollowError::Journal)?;
        if let Some(error) = failure {
            return Err(error);
        }
        self.publisher.flush(&*self.log).map_err(|error| FollowError::Publish(EngineError::Log(error)))
    }

    /// The events of the last [`Follower::advance`].
    pub fn events(&self) -> &[EventRecord] {
        &self.events
    }
}

fn apply(
    exchange: &mut Exchange,
    publisher: &mut Publisher,
    events: &mut Vec<EventRecord>,
    marks: Option<&mut Marks>,
    seq: Seq,
    bytes: &[u8],
) -> Result<(), FollowError> {
    let command = codec::decode_command(bytes)
        .map_err(|error| FollowError::Record { seq, reason: error.to_string() })?;
    if command.seq != seq || seq != exchange.position().next() {
        let reason = format!(
            "it says it is command {}, and command {} was expected",
            command.seq,
            exchange.position().next()
        );
        return Err(FollowError::Record { seq, reason });
    }
    let first = events.len();
    // A refused command is an answer; its event goes the way of all events.
    let _ = exchange.apply(&command, events);
    for event in &events[first..] {
        publisher.add(event).map_err(FollowError::Publish)?;
    }
    match marks {
        Some(marks) => marks.check(exchange),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_mark_that_differs_is_found_and_others_wait_or_pass() {
        let exchange = Exchange::new();
        let chain = exchange.chain();
        for (marks, found, compared, left) in [
            (vec![(0, chain)], false, 1, None),
            (vec![(0, chain ^ 1)], true, 0, None),
            (vec![(5, chain ^ 1)], false, 0, Some(5)),
            (vec![(0, chain), (5, 1), (6, 1)], false, 1, Some(5)),
            (vec![], false, 0, None),
        ] {
            let (send, queue) = mpsc::sync_channel(8);
            marks
                .iter()
                .for_each(|(seq, chain)| send.send(ChainMark { seq: Seq(*seq), chain: *chain }).unwrap());
            let mut waiting = Marks::new(queue);
            let result = waiting.check(&exchange);
            assert_eq!(result.is_err(), found, "{marks:?}");
            assert_eq!(waiting.compared, compared, "{marks:?}");
            assert_eq!(waiting.next.map(|mark| mark.seq.0), left, "{marks:?}");
            if let Err(error) = result {
                let (kind, text) = error.fault();
                assert_eq!(kind, FaultKind::Diverged);
                assert!(text.contains("after command 0"), "{text}");
            }
        }
    }
}
