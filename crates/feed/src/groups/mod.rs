//! Groups A and B: the same ticks worked on twice, and which of the two is shown.
//!
//! Both groups read the same log and number their outputs alike, so an output is known by (symbol, epoch, seq) and must be the same bytes in
//! both. From this follow three things: readers may take whichever comes first ([`Arbiter`]), traffic moves from one to the other
//! without a gap, a repetition or a step back ([`Switch`]), and a new version is compared with the old one before anybody sees
//! it ([`Differ`]).

mod arbiter;
mod differ;
mod pair;
mod processor;
mod switch;
mod view;

use std::fmt;

pub use arbiter::Arbiter;
pub use differ::{Differ, Difference, DifferenceKind, Mark};
pub use pair::{Pair, PairConfig};
pub use switch::{Health, Rule, Switch, Switched};
pub use view::{View, ViewStats};

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
