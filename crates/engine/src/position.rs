//! Positions: how far each stage has come. Each stage counts in the same numbers, a command's place in the journal, but a position of one
//! stage means nothing to another: "matched" is not "durable". So each is its own type, and nothing turns one into another by accident.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use hoga_core::ids::Seq;

/// A stage's way of counting.
pub trait Space: Copy + Ord + fmt::Debug {
    /// The position after this command.
    fn at(seq: Seq) -> Self;
    /// The last command that has passed the stage; `Seq(0)` for none.
    fn seq(self) -> Seq;
    /// Whether a command has passed the stage.
    fn covers(self, seq: Seq) -> bool {
        self.seq() >= seq
    }
}

macro_rules! space {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Seq);

        impl Space for $name {
            fn at(seq: Seq) -> $name {
                $name(seq)
            }

            fn seq(self) -> Seq {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

space!(
    /// Commands that have their place and time and were handed to the journal's thread.
    Received
);
space!(
    /// Commands that the matcher has applied.
    Matched
);
space!(
    /// Commands that are on stable storage, as far as the durability mode promises.
    Durable
);
space!(
    /// Commands that are matched and durable, and whose replies have been given or are being given. (With `Durability::None` a reply does not wait for the
    /// journal: there this may be ahead of [`Durable`].)
    Acked
);
space!(
    /// Commands that the shadow has applied, published and shown to the subscribers.
    Applied
);

/// All positions at one moment. Read one after the other from the last stage to the first, so that the order
/// `applied ≤ acked ≤ durable, matched ≤ received` always shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// In order and on the way to the journal.
    pub received: Received,
    /// Applied by the matcher.
    pub matched: Matched,
    /// On stable storage.
    pub durable: Durable,
    /// Answered.
    pub acked: Acked,
    /// Applied by the shadow and published.
    pub applied: Applied,
}

/// A position that one thread moves forward and others read.
#[derive(Debug)]
pub(crate) struct Cursor<P> {
    seq: AtomicU64,
    space: PhantomData<P>,
}

impl<P: Space> Cursor<P> {
    /// A cursor at `seq`.
    pub fn new(seq: Seq) -> Cursor<P> {
        Cursor { seq: AtomicU64::new(seq.0), space: PhantomData }
    }

    /// Where it stands. Everything written before the matching [`Cursor::advance`] is visible.
    pub fn get(&self) -> P {
        // Sequentially consistent: the gate's wake-up depends on "the matcher sees the durable cursor or the journal's bell comes after".
        P::at(Seq(self.seq.load(Ordering::SeqCst)))
    }

    /// Moves forward; called by the owning thread only. Going back is a broken invariant.
    pub fn advance(&self, to: P) {
        let before = self.seq.swap(to.seq().0, Ordering::SeqCst);
        assert!(before <= to.seq().0, "a cursor would go back from {before} to {to:?}");
    }
}
