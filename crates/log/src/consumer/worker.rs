//! A worker of a group that handles one message at a time: its keys, and those of them that wait for another try.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::ids::Timestamp;

use super::Observer;
use super::dead_letters::{self, Letter};
use super::keyed::{KeyedError, KeyedHandler, KeyedOptions, Ticket};
use crate::event_log::StoredMessage;
use crate::wait::WaitPoint;

/// Messages of one partition for one worker, in order.
pub(super) struct Work {
    pub(super) ticket: Arc<Ticket>,
    pub(super) messages: Vec<StoredMessage>,
}

/// What the workers and the thread that polls have in common.
pub(super) struct Shared {
    pub(super) group: String,
    handler: Arc<dyn KeyedHandler>,
    options: KeyedOptions,
    observer: Arc<dyn Observer>,
    /// Woken when a message was ended.
    pub(super) progress: WaitPoint,
    stopped: AtomicBool,
    fault: Mutex<Option<Box<dyn Error + Send + Sync>>>,
    /// Keys that wait because something is away, and why.
    away: AtomicUsize,
    reason: Mutex<String>,
}

impl Shared {
    pub(super) fn new(
        group: &str,
        handler: Arc<dyn KeyedHandler>,
        options: KeyedOptions,
        observer: Arc<dyn Observer>,
    ) -> Shared {
        Shared {
            group: group.into(),
            handler,
            options,
            observer,
            progress: WaitPoint::new(),
            stopped: AtomicBool::new(false),
            fault: Mutex::default(),
            away: AtomicUsize::new(0),
            reason: Mutex::default(),
        }
    }

    /// Stops the group; the first fault counts.
    pub(super) fn stop(&self, fault: Box<dyn Error + Send + Sync>) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
        self.stopped.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(super) fn fault(&self) -> Option<Box<dyn Error + Send + Sync>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why keys wait for something that is away.
    pub(super) fn trouble(&self) -> Option<String> {
        let away = self.away.load(Ordering::Acquire) > 0;
        away.then(|| self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

struct Job {
    ticket: Arc<Ticket>,
    message: StoredMessage,
}

/// A key whose first message is to be tried again, with the later ones behind it.
struct Parked {
    at: Instant,
    pause: Duration,
    attempts: u32,
    away: bool,
    jobs: VecDeque<Job>,
}

/// What became of a try.
enum Outcome {
    /// It needs no more, or its partition has gone.
    Over,
    /// Again later; with the attempts that count, and whether something was away.
    Again { attempts: u32, away: bool, reason: String },
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    work: Receiver<Work>,
    parked: HashMap<Vec<u8>, Parked>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, work: Receiver<Work>) -> Worker {
        Worker { shared, work, parked: HashMap::new() }
    }

    /// Works until the queue is closed.
    pub(super) fn run(mut self) {
        loop {
            let due = self.parked.values().map(|parked| parked.at).min();
            let received = match due {
                Some(at) => self.work.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => self.work.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(work) => {
                    for message in work.messages {
                        self.take(Job { ticket: work.ticket.clone(), message });
                        self.retry();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.retry(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Handles a message, or puts it behind one of its key that waits.
    fn take(&mut self, job: Job) {
        if !self.parked.is_empty()
            && let Some(parked) = self.parked.get_mut(&job.message.key)
        {
            parked.jobs.push_back(job);
            return;
        }
        if let Outcome::Again { attempts, away, reason } = self.attempt(&job, 0) {
            let pause = self.shared.options.backoff.0;
            self.note(&reason, pause, false, away);
            let key = job.message.key.clone();
            let parked =
                Parked { at: Instant::now() + pause, pause, attempts, away, jobs: VecDeque::from([job]) };
            self.parked.insert(key, parked);
        }
    }

    fn note(&self, reason: &str, pause: Duration, was_away: bool, is_away: bool) {
        self.shared.observer.retried(reason, pause);
        if is_away {
            reason.clone_into(&mut self.shared.reason.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.count_away(was_away, is_away);
    }

    fn count_away(&self, was_away: bool, is_away: bool) {
        match (was_away, is_away) {
            (false, true) => drop(self.shared.away.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(self.shared.away.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }

    /// Tries the keys again whose time has come.
    fn retry(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let now = Instant::now();
        let gone = |parked: &Parked| parked.jobs.front().is_none_or(|job| job.ticket.is_ending());
        let due: Vec<Vec<u8>> = self
            .parked
            .iter()
            .filter(|(_, parked)| parked.at <= now || gone(parked))
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            let Some(mut parked) = self.parked.remove(&key) else { continue };
            while let Some(job) = parked.jobs.pop_front() {
                let Outcome::Again { attempts, away, reason } = self.attempt(&job, parked.attempts) else {
                    // The next one of the key begins anew.
                    self.count_away(parked.away, false);
                    (parked.attempts, parked.pause, parked.away) = (0, Duration::ZERO, false);
                    continue;
                };
                let (first, longest) = self.shared.options.backoff;
                parked.pause = if parked.pause.is_zero() { first } else { (parked.pause * 2).min(longest) };
                self.note(&reason, parked.pause, parked.away, away);
                (parked.attempts, parked.away, parked.at) = (attempts, away, Instant::now() + parked.pause);
                parked.jobs.push_front(job);
                self.parked.insert(key, parked);
                break;
            }
        }
    }

    fn attempt(&self, job: &Job, attempts: u32) -> Outcome {
        if !job.ticket.begin() {
            return Outcome::Over;
        }
        let begun = Instant::now();
        let outcome = match self.shared.handler.handle(&job.ticket.place, &job.message) {
            Ok(()) => {
                self.shared.observer.handled(1, begun.elapsed());
                Outcome::Over
            }
            Err(KeyedError::Away(reason)) => {
                Outcome::Again { attempts, away: true, reason: reason.to_string() }
            }
            Err(KeyedError::Failed(reason)) if attempts + 1 < self.shared.options.attempts => {
                Outcome::Again { attempts: attempts + 1, away: false, reason: reason.to_string() }
            }
            Err(KeyedError::Failed(reason) | KeyedError::Unusable(reason)) => {
                self.bury(job, attempts + 1, reason)
            }
            Err(KeyedError::Stop(fault)) => {
                self.shared.stop(fault);
                job.ticket.end(None);
                self.shared.progress.wake();
                return Outcome::Over;
            }
        };
        let finished = matches!(outcome, Outcome::Over) && !self.shared.is_stopped();
        job.ticket.end(finished.then_some(job.message.offset));
        self.shared.progress.wake();
        outcome
    }

    /// Puts a message with the dead letters. Where that fails for now, the message is tried once more first.
    fn bury(&self, job: &Job, attempts: u32, reason: Box<dyn Error + Send + Sync>) -> Outcome {
        let place = &job.ticket.place;
        let Some(log) = &self.shared.options.dead_letters else {
            let offset = job.message.offset;
            let text = format!(
                "{place} offset {offset}: {reason}. The group keeps no dead letters, so it cannot go on behind it"
            );
            self.shared.stop(text.into());
            return Outcome::Over;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let letter = Letter {
            group: self.shared.group.clone(),
            place: place.clone(),
            offset: job.message.offset,
            attempts,
            reason: reason.to_string(),
            time: job.message.time,
            died: Timestamp(i64::try_from(now.as_micros()).unwrap_or(i64::MAX)),
            key: job.message.key.clone(),
            value: job.message.value.clone(),
            kept: true,
        };
        match dead_letters::put(log.as_ref(), &letter) {
            Ok(()) => {
                let offset = job.message.offset;
                tracing::warn!(group = letter.group, %place, offset, reason = letter.reason, "message put with the dead letters");
                self.shared.observer.died(place, offset, &letter.reason);
                Outcome::Over
            }
            Err(fault) if fault.is_transient() => {
                Outcome::Again { attempts: attempts - 1, away: true, reason: fault.to_string() }
            }
            Err(fault) => {
                self.shared.stop(Box::new(fault));
                Outcome::Over
            }
        }
    }
}
