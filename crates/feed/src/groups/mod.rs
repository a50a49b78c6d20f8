//! Groups A and B: the same ticks worked on twice, and which of the two is shown.
//!
//! Both groups read the same log and number their outputs alike, so an output is known by (symbol, epoch, seq) and must be the same bytes in
//! both. From this follow three things: readers may take whichever comes first ([`Shows::First`]), traffic moves from one to the other
//! without a gap, a repetition or a step back ([`Switch`]), and a new version is compared with the old one before anybody sees
//! it ([`Differ`]).
//!
//! A group is one [`Member`] that leads and others that follow, and a cache that only the leader can write ([`crate::cache`]). Members and the [`Desk`]
//! meet in the two caches alone, so they are threads of one process or processes on several machines, as one likes.

mod board;
mod desk;
mod differ;
mod member;
mod processor;
mod switch;
mod view;

use std::fmt;

pub use desk::{Desk, DeskConfig, GroupInfo};
pub use differ::{Differ, Difference, DifferenceKind, Mark};
pub use member::{Member, MemberConfig, MemberStatus};
pub use processor::Tamper;
pub use switch::{Health, Rule, Switch, Switched};
pub use view::{Shows, Update, View, ViewStats};

/// One of the two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupName {
    /// The first.
    A,
    /// The second.
    B,
}

impl GroupName {
    /// Both.
    pub const BOTH: [GroupName; 2] = [GroupName::A, GroupName::B];

    /// The other one.
    pub fn other(self) -> GroupName {
        match self {
            GroupName::A => GroupName::B,
            GroupName::B => GroupName::A,
        }
    }

    /// From `a` or `b`, in either case.
    pub fn parse(text: &str) -> Option<GroupName> {
        GroupName::BOTH.into_iter().find(|name| text.eq_ignore_ascii_case(name.as_str()))
    }

    /// `a` or `b`: as in keys and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            GroupName::A => "a",
            GroupName::B => "b",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupName::A => "A",
            GroupName::B => "B",
        })
    }
}

#[cfg(test)]
mod tests;
