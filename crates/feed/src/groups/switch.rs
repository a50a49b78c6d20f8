//! Which group is shown, and when that changes by itself.

use std::time::{Duration, Instant};

use super::GroupName;

/// How a group is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The epoch of its leader; `None` when it has none.
    pub leader: Option<u64>,
    /// Ticks of the log that its leader has not handled.
    pub behind: u64,
    /// How old the oldest of them is.
    pub behind_for: Duration,
    /// Symbols with an open gap.
    pub stale: u64,
    /// Symbols in which it differs from the other group.
    pub differs: u64,
    /// It builds itself anew from the log and must not be shown.
    pub rebuilding: bool,
}

/// When a group is unhealthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// It has been behind for longer than this (1 s).
    pub behind_for: Duration,
    /// It has more stale symbols than the other by more than this (0): a gap of the feed is in both and no reason to move.
    pub stale: u64,
    /// After a switch of its own it stays so long where it is (5 s), so that traffic does not go to and fro. A command is not bound by it.
    pub hold: Duration,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { behind_for: Duration::from_secs(1), stale: 0, hold: Duration::from_secs(5) }
    }
}

impl Rule {
    /// Why a group must not be shown, beside the other one; `None` when it may.
    pub fn fault(&self, group: &Health, other: &Health) -> Option<String> {
        if group.rebuilding {
            return Some("it is being rebuilt".into());
        }
        if group.leader.is_none() {
            return Some("it has no leader".into());
        }
        if group.behind_for > self.behind_for {
            return Some(format!(
                "it is {} ticks behind, for {} ms",
                group.behind,
                group.behind_for.as_millis()
            ));
        }
        if group.stale > other.stale.saturating_add(self.stale) && !other.rebuilding {
            return Some(format!("{} symbols are stale, {} in the other group", group.stale, other.stale));
        }
        None
    }
}

/// A change of the group that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switched {
    /// The group that was shown.
    pub from: GroupName,
    /// The group that is shown now.
    pub to: GroupName,
    /// Why: a command, or what was wrong with the other.
    pub reason: String,
    /// By itself, or by command.
    pub automatic: bool,
}

/// Decides which group is shown. Time is told to it.
#[derive(Debug)]
pub struct Switch {
    rule: Rule,
    active: GroupName,
    last_automatic: Option<Instant>,
    count: u64,
}

impl Switch {
    /// Shows this group.
    pub fn new(rule: Rule, active: GroupName) -> Switch {
        Switch { rule, active, last_automatic: None, count: 0 }
    }

    /// The group that is shown.
    pub fn active(&self) -> GroupName {
        self.active
    }

    /// Switches since the start.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Looks at both groups and moves traffic when the one that is shown is unhealthy and the other is not. Two that differ from each other tell
    /// nothing about which is wrong: the one that is shown stays.
    pub fn look(&mut self, now: Instant, a: &Health, b: &Health) -> Option<Switched> {
        let (active, other) = if self.active == GroupName::A { (a, b) } else { (b, a) };
        let reason = self.rule.fault(active, other)?;
        if self.rule.fault(other, active).is_some() {
            return None;
        }
        // A group without a leader shows nothing new at all: then holding on helps nobody.
        let holds = self.last_automatic.is_some_and(|at| now.saturating_duration_since(at) < self.rule.hold);
        if holds && active.leader.is_some() {
            return None;
        }
        self.last_automatic = Some(now);
        Some(self.go(reason, true))
    }

    /// Moves traffic by command. Refused when the other group may not be shown, unless `force`; `None` when it is shown already.
    ///
    /// # Errors
    /// Why the group may not be shown.
    pub fn command(
        &mut self,
        to: GroupName,
        group: &Health,
        other: &Health,
        force: bool,
    ) -> Result<Option<Switched>, String> {
        if to == self.active {
            return Ok(None);
        }
        if !force {
            if let Some(reason) = self.rule.fault(group, other) {
                return Err(format!("group {to} may not be shown: {reason}. Force it if it must be"));
            }
            if group.differs > 0 {
                return Err(format!(
                    "group {to} differs from {} in {} symbols: see the differences, and force it if {to} is the one that is right",
                    to.other(),
                    group.differs
                ));
            }
        }
        Ok(Some(self.go("by command".into(), false)))
    }

    /// Another desk has moved traffic to this group; none when it is shown already.
    pub fn adopt(&mut self, to: GroupName) -> Option<Switched> {
        (to != self.active).then(|| self.go("another desk has switched".into(), false))
    }

    fn go(&mut self, reason: String, automatic: bool) -> Switched {
        let from = self.active;
        self.active = from.other();
        self.count += 1;
        Switched { from, to: self.active, reason, automatic }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> Health {
        Health { leader: Some(1), ..Health::default() }
    }

    #[test]
    fn traffic_leaves_a_group_that_is_unhealthy_for_one_that_is_not() {
        for (spoiled, word) in [
            (Health { leader: None, ..well() }, "no leader"),
            (Health { behind: 9, behind_for: Duration::from_millis(1001), ..well() }, "9 ticks behind"),
            (Health { stale: 2, ..well() }, "2 symbols are stale"),
            (Health { rebuilding: true, ..well() }, "rebuilt"),
        ] {
            let mut switch = Switch::new(Rule::default(), GroupName::A);
            let now = Instant::now();
            assert_eq!(switch.look(now, &well(), &spoiled), None, "what is not shown may be unhealthy");
            assert_eq!(switch.look(now, &spoiled, &spoiled), None, "the other is no better");
            let switched = switch.look(now, &spoiled, &well()).unwrap();
            assert_eq!((switched.from, switched.to, switched.automatic), (GroupName::A, GroupName::B, true));
            assert!(switched.reason.contains(word), "{}", switched.reason);
            assert_eq!((switch.active(), switch.count()), (GroupName::B, 1));
        }
    }

    #[test]
    fn a_gap_of_the_feed_that_both_have_moves_nothing() {
        let mut switch = Switch::new(Rule::default(), GroupName::A);
        let stale = Health { stale: 40, ..well() };
        assert_eq!(switch.look(Instant::now(), &stale, &stale), None);
    }

    #[test]
    fn traffic_does_not_go_to_and_fro_but_leaves_a_dead_group_at_once() {
        let mut switch = Switch::new(Rule::default(), GroupName::A);
        let (begin, late) =
            (Instant::now(), Health { behind: 1, behind_for: Duration::from_secs(2), ..well() });
        assert!(switch.look(begin, &late, &well()).is_some());
        assert_eq!(switch.look(begin + Duration::from_secs(1), &well(), &late), None);
        assert!(
            switch
                .look(begin + Duration::from_secs(2), &well(), &Health { leader: None, ..late.clone() })
                .is_some()
        );
        assert!(switch.look(begin + Duration::from_secs(8), &late, &well()).is_some());
    }

    #[test]
    fn a_command_is_refused_where_it_would_hurt_and_can_be_forced() {
        let mut switch = Switch::new(Rule::default(), GroupName::A);
        assert_eq!(switch.command(GroupName::A, &well(), &well(), false), Ok(None));
        let wrong = Health { differs: 3, ..well() };
        let refused = switch.command(GroupName::B, &wrong, &well(), false).unwrap_err();
        assert!(refused.contains("3 symbols"), "{refused}");
        let dead = Health { leader: None, ..well() };
        assert!(switch.command(GroupName::B, &dead, &well(), false).unwrap_err().contains("no leader"));
        assert_eq!(switch.active(), GroupName::A);
        assert_eq!(switch.command(GroupName::B, &wrong, &well(), true).unwrap().unwrap().to, GroupName::B);
        // And back at once: a command waits for nothing.
        assert!(switch.command(GroupName::A, &well(), &wrong, false).unwrap().is_some());
    }
}
