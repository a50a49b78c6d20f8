//! Pacing: under load a stage begins its next piece of work no sooner than a short interval after the last, so that each piece has more in
//! it. A sync, a wake-up or an append costs the same for one command as for twenty, and on two cores that cost is taken from the clients.
//! A single client, who sends the next command after the last answer, never waits for it.

use std::time::Duration;

/// How many commands a piece of work must have had for the stage to count as under load.
const LOADED: u64 = 4;

/// The pace of one stage.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: u64,
    begun: u64,
    carried: u64,
}

impl Pace {
    /// At most one piece of work in this interval, under load. Zero: no pacing.
    pub fn new(interval: Duration) -> Pace {
        Pace { interval: interval.as_nanos() as u64, begun: 0, carried: 0 }
    }

    /// How long the stage should let work gather, at `now` in the engine's nanoseconds; zero when it should begin at once.
    pub fn rest(&self, now: u64) -> Duration {
        if self.carried < LOADED {
            return Duration::ZERO;
        }
        Duration::from_nanos((self.begun + self.interval).saturating_sub(now))
    }

    /// A piece of work with so many commands begins.
    pub fn begin(&mut self, now: u64, commands: u64) {
        self.begun = now;
        self.carried = commands;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loaded_stage_rests_and_only_until_the_interval_is_over() {
        let micros = |count: u64| count * 1_000;
        for (interval, carried, at, rest) in [
            (500, 1, 10, 0),
            (500, 3, 10, 0),
            (500, 4, 10, 490),
            (500, 4, 500, 0),
            (500, 40, 9_000, 0),
            (0, 40, 1, 0),
        ] {
            let mut pace = Pace::new(Duration::from_micros(interval));
            assert_eq!(pace.rest(0), Duration::ZERO, "before the first");
            pace.begin(micros(1_000), carried);
            assert_eq!(
                pace.rest(micros(1_000 + at)),
                Duration::from_micros(rest),
                "{interval} {carried} {at}"
            );
        }
    }
}
