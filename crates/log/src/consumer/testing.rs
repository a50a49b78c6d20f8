//! A group with several members over a log in memory, whose partitions move when a test says so. It checks what the runtime promises:
//! commits only of owned partitions, and only upwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hoga_core::ids::Timestamp;

use super::{Change, Control, Run, Source, TopicPartition};
use crate::error::LogError;
use crate::event_log::{EventLog, MemoryLog, Message, TopicSpec};

struct Place {
    owner: Option<usize>,
    /// The member that is still to be told that it owns it no more, and whether it is too late to commit.
    leaving: Option<(usize, bool)>,
    next_owner: Option<usize>,
    /// Whether the owner was told that it owns it.
    told: bool,
    committed: Option<u64>,
    history: Vec<(usize, u64)>,
}

struct State {
    places: BTreeMap<TopicPartition, Place>,
    violations: Vec<String>,
    away: bool,
    /// So many calls to begin somewhere are refused still.
    refused_starts: usize,
}

/// The group's coordinator.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) log: Arc<MemoryLog>,
    state: Arc<Mutex<State>>,
}

impl Group {
    /// A topic `t` with so many partitions, all owned by member 0.
    pub(super) fn new(partitions: u32) -> Group {
        let log = Arc::new(MemoryLog::new());
        log.create_topic(&TopicSpec::delete("t", partitions, u64::MAX)).unwrap();
        let place = || Place {
            owner: Some(0),
            leaving: None,
            next_owner: None,
            told: false,
            committed: None,
            history: Vec::new(),
        };
        let places = (0..partitions).map(|partition| (at(partition), place())).collect();
        let state = State { places, violations: Vec::new(), away: false, refused_starts: 0 };
        Group { log, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn member(&self, id: usize) -> Box<Member> {
        Box::new(Member { group: self.clone(), id, lanes: BTreeMap::new() })
    }

    pub(super) fn append(&self, key: &[u8], value: &[u8]) {
        self.log.append("t", &[Message { key, value: Some(value), time: Timestamp(1) }]).unwrap();
    }

    /// Gives a partition to another member, in order. Nothing while it is moving.
    pub(super) fn give(&self, partition: u32, to: usize) {
        let mut state = self.state();
        let place = state.places.get_mut(&at(partition)).unwrap();
        match place.owner {
            Some(owner) if place.leaving.is_none() && owner != to => {
                place.leaving = Some((owner, false));
                place.next_owner = Some(to);
            }
            _ => {}
        }
    }

    /// Takes a partition away at once, as from a member that was silent for too long.
    pub(super) fn take(&self, partition: u32, to: usize) {
        let mut state = self.state();
        let place = state.places.get_mut(&at(partition)).unwrap();
        if let (Some(owner), None) = (place.owner, place.leaving) {
            place.leaving = place.told.then_some((owner, true));
            place.owner = Some(to);
            place.told = false;
        }
    }

    /// Whether the coordinator does not answer.
    pub(super) fn set_away(&self, away: bool) {
        self.state().away = away;
    }

    /// Refuses the next calls to begin at an offset, as a client does whose fetching is being set up.
    pub(super) fn refuse_starts(&self, count: usize) {
        self.state().refused_starts = count;
    }

    pub(super) fn committed(&self, partition: u32) -> Option<u64> {
        self.state().places[&at(partition)].committed
    }

    pub(super) fn history(&self, partition: u32) -> Vec<(usize, u64)> {
        self.state().places[&at(partition)].history.clone()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Whether every member that lost a partition was told.
    pub(super) fn knows_losses(&self) -> bool {
        self.state().places.values().all(|place| place.leaving.is_none())
    }

    pub(super) fn is_settled(&self) -> bool {
        self.state().places.values().all(|place| place.leaving.is_none() && place.told)
    }

    /// Whether everything that was appended is committed.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state();
        state.places.iter().all(|(place, at)| {
            at.committed.unwrap_or(0) == self.log.end_offset("t", place.partition).unwrap()
        })
    }
}

/// A partition of the topic.
pub(super) fn at(partition: u32) -> TopicPartition {
    TopicPartition { topic: "t".into(), partition }
}

struct Lane {
    next: Option<u64>,
    paused: bool,
}

/// A member.
pub(super) struct Member {
    group: Group,
    id: usize,
    lanes: BTreeMap<TopicPartition, Lane>,
}

impl Member {
    fn owned(&mut self, place: &TopicPartition) -> Result<&mut Lane, LogError> {
        self.lanes.get_mut(place).ok_or_else(|| LogError::Config(format!("{place} is not owned")))
    }

    fn unavailable(&self) -> Result<(), LogError> {
        if self.group.state().away {
            let (servers, reason) = ("the test's coordinator".into(), "away".into());
            return Err(LogError::Unavailable { servers, doing: "asking", reason });
        }
        Ok(())
    }

    fn moves(&mut self, change: &mut dyn FnMut(&mut dyn Control, Change)) -> bool {
        let (mut lost, mut revoked, mut assigned) = (vec![], vec![], vec![]);
        for (place, at) in &self.group.state().places {
            match at.leaving {
                Some((owner, true)) if owner == self.id => lost.push(place.clone()),
                Some((owner, false)) if owner == self.id => revoked.push(place.clone()),
                None if at.owner == Some(self.id) && !at.told => assigned.push(place.clone()),
                _ => {}
            }
        }
        let any = !(lost.is_empty() && revoked.is_empty() && assigned.is_empty());
        if !lost.is_empty() {
            self.lanes.retain(|place, _| !lost.contains(place));
            change(self, Change::Lost(lost.clone()));
        }
        if !revoked.is_empty() {
            change(self, Change::Revoked(revoked.clone()));
            self.lanes.retain(|place, _| !revoked.contains(place));
        }
        {
            let mut state = self.group.state();
            for place in lost.iter().chain(&revoked) {
                let at = state.places.get_mut(place).unwrap();
                at.leaving = None;
                if let Some(next) = at.next_owner.take() {
                    (at.owner, at.told) = (Some(next), false);
                }
            }
            for place in &assigned {
                state.places.get_mut(place).unwrap().told = true;
            }
        }
        if !assigned.is_empty() {
            for place in &assigned {
                self.lanes.insert(place.clone(), Lane { next: None, paused: false });
            }
            change(self, Change::Assigned(assigned));
        }
        any
    }
}

impl Source for Member {
    fn group(&self) -> &str {
        "g"
    }

    fn poll(
        &mut self,
        timeout: Duration,
        max_messages: usize,
        out: &mut Vec<Run>,
        change: &mut dyn FnMut(&mut dyn Control, Change),
    ) -> Result<(), LogError> {
        self.unavailable()?;
        if self.moves(change) {
            return Ok(());
        }
        let mut left = max_messages;
        for (place, lane) in &mut self.lanes {
            let Some(from) = lane.next.filter(|_| !lane.paused && left > 0) else { continue };
            let mut messages = Vec::new();
            let next = self.group.log.read("t", place.partition, from, left, &mut messages)?;
            if next > from {
                left -= messages.len();
                lane.next = Some(next);
                out.push(Run { place: place.clone(), messages, next });
            }
        }
        if left == max_messages {
            std::thread::sleep(timeout.min(Duration::from_millis(1)));
        }
        Ok(())
    }

    fn control(&mut self) -> &mut dyn Control {
        self
    }

    fn leave(&mut self, _: Duration) -> Result<(), LogError> {
        let mut state = self.group.state();
        for place in state.places.values_mut() {
            if place.leaving.is_some_and(|(owner, _)| owner == self.id) {
                place.leaving = None;
                if let Some(next) = place.next_owner.take() {
                    (place.owner, place.told) = (Some(next), false);
                }
            } else if place.owner == Some(self.id) {
                (place.owner, place.told) = (None, true);
            }
        }
        Ok(())
    }
}

impl Control for Member {
    fn start_at(&mut self, place: &TopicPartition, offset: u64) -> Result<(), LogError> {
        let mut state = self.group.state();
        if state.refused_starts > 0 {
            state.refused_starts -= 1;
            let (servers, reason) = ("the test's coordinator".into(), "not yet".into());
            return Err(LogError::Unavailable { servers, doing: "going to an offset", reason });
        }
        drop(state);
        self.owned(place)?.next = Some(offset);
        Ok(())
    }

    fn pause(&mut self, place: &TopicPartition) -> Result<(), LogError> {
        self.owned(place)?.paused = true;
        Ok(())
    }

    fn resume(&mut self, place: &TopicPartition) -> Result<(), LogError> {
        self.owned(place)?.paused = false;
        Ok(())
    }

    fn commit(&mut self, offsets: &[(TopicPartition, u64)]) -> Result<(), LogError> {
        self.unavailable()?;
        let mut state = self.group.state();
        for (place, offset) in offsets {
            let owned = self.lanes.contains_key(place);
            let at = state.places.get_mut(place).unwrap();
            let lower = at.committed.is_some_and(|committed| *offset < committed);
            if owned && at.owner != Some(self.id) {
                // Taken away, and this member cannot know yet: a broker refuses it too.
                let (servers, reason) = ("the test's coordinator".into(), "another generation".into());
                return Err(LogError::Unavailable { servers, doing: "committing", reason });
            }
            if !owned || lower {
                let text =
                    format!("member {} commits {place} {offset}, committed {:?}", self.id, at.committed);
                state.violations.push(text.clone());
                return Err(LogError::Config(text));
            }
            at.committed = Some(*offset);
            at.history.push((self.id, *offset));
        }
        Ok(())
    }

    fn committed(&mut self, place: &TopicPartition) -> Result<Option<u64>, LogError> {
        self.unavailable()?;
        Ok(self.group.committed(place.partition))
    }

    fn ends(&mut self, place: &TopicPartition) -> Result<(u64, u64), LogError> {
        let log = &self.group.log;
        Ok((log.start_offset("t", place.partition)?, log.end_offset("t", place.partition)?))
    }
}

/// Waits until something is so; fails the test after 20 s.
pub(super) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
