//! What of a partition is done, where work is done out of order: the completion window.

use std::collections::VecDeque;

/// The window of one partition between the first unfinished message and the last one read.
///
/// **Law**: [`Tracker::position`] is the offset behind which nothing is unfinished and before which everything is done: it never goes down, and
/// it is what may be committed. The window is bounded by whoever adds: see [`Tracker::open`].
#[derive(Clone, Debug)]
pub struct Tracker {
    /// Offset and whether done, from the first unfinished one on, ascending.
    window: VecDeque<(u64, bool)>,
    /// Everything before it is done when the window is empty.
    next: u64,
}

impl Tracker {
    /// Nothing is read, and everything before `start` is done.
    pub fn new(start: u64) -> Tracker {
        Tracker { window: VecDeque::new(), next: start }
    }

    /// A message was read.
    ///
    /// # Panics
    /// When it does not come behind the ones read before.
    pub fn read(&mut self, offset: u64) {
        assert!(offset >= self.next, "offset {offset} was read again, or after {}", self.next);
        self.window.push_back((offset, false));
        self.next = offset + 1;
    }

    /// Everything before `next` was read: what lies between the last message and it is a hole.
    pub fn pass(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// A message that was read is done. One that was not read, or was done before, changes nothing.
    pub fn done(&mut self, offset: u64) {
        if let Ok(at) = self.window.binary_search_by_key(&offset, |(offset, _)| *offset) {
            self.window[at].1 = true;
        }
        while self.window.front().is_some_and(|(_, done)| *done) {
            self.window.pop_front();
        }
    }

    /// What may be committed.
    pub fn position(&self) -> u64 {
        self.window.front().map_or(self.next, |(offset, _)| *offset)
    }

    /// Messages in the window: unfinished ones, and finished ones behind one that is not.
    pub fn open(&self) -> usize {
        self.window.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn f1_one_to_seven_but_four_are_done_and_four_is_committed() {
        let mut tracker = Tracker::new(1);
        (1..=7).for_each(|offset| tracker.read(offset));
        [5, 1, 7, 3, 2, 6].into_iter().for_each(|offset| tracker.done(offset));
        assert_eq!((tracker.position(), tracker.open()), (4, 4));
        tracker.done(4);
        assert_eq!((tracker.position(), tracker.open()), (8, 0));
    }

    proptest! {
        #[test]
        fn a_tracker_is_the_lowest_of_a_plain_set(
            start in 0u64..5,
            steps in prop::collection::vec((0u8..4, 0u64..40), 0..200),
        ) {
            let (mut tracker, mut unfinished, mut next) = (Tracker::new(start), BTreeSet::new(), start);
            let mut last = start;
            for (step, number) in steps {
                match step {
                    0 | 1 => {
                        let offset = next + number % 3;
                        tracker.read(offset);
                        unfinished.insert(offset);
                        next = offset + 1;
                    }
                    2 => {
                        tracker.done(number);
                        unfinished.remove(&number);
                    }
                    _ => {
                        next += number % 4;
                        tracker.pass(next);
                    }
                }
                let position = unfinished.first().copied().unwrap_or(next);
                prop_assert_eq!(tracker.position(), position);
                prop_assert!(position >= last, "it went down");
                last = position;
            }
        }
    }
}
