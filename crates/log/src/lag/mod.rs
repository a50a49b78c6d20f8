//! Lag that can be read: not only how far a group is behind, but why, and when that will be over.
//!
//! A [`LagMeter`] is fed with what is known of one partition now and then (where it ends, where the group is) and gives a
//! [`LagReport`]: rates, what they usually are, whether the lag grows, when it will be gone, and a [`Verdict`] in words.
//! [`LagBoard`] keeps a meter for every partition of every group; [`LagMonitor`] feeds it once a second.
//!
//! **How far behind in time** is told from the ends seen: the group is behind by the time since the partition's end passed the
//! group's place. Unlike the age of a message this is right when nothing comes for hours, when old messages are played again, and
//! between two commits.
//!
//! **When it will be gone**: lag ÷ (consumption − production), and never where that is not above zero. Lag ÷ consumption, which
//! many tools show, is given beside it: it holds if production stopped now.

mod board;
mod latency;
mod monitor;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

pub use board::{GroupLag, LagBoard, PartitionLag, Place, render};
pub use latency::{Delays, Latency, LatencyReport};
pub use monitor::{LagMonitor, LagWatch, Observe, Observed};

/// A lag that is not seen to shrink and would take longer than this to drain is not called draining.
const LONG: Duration = Duration::from_secs(3600);

/// What is known of a group's partition at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When, from any origin; never earlier than in the sample before.
    pub at: Duration,
    /// The first offset that is still there.
    pub start: u64,
    /// The offset that the next message gets.
    pub end: u64,
    /// The next offset that the group reads.
    pub consumed: u64,
    /// The age of the oldest message that it has not read, where it is known.
    pub age: Option<Duration>,
}

/// What counts as usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LagOptions {
    /// Rates and trend are taken over this time (10 s).
    pub window: Duration,
    /// Being behind by no more than this is keeping up (3 s): more than the interval of commits.
    pub grace: Duration,
    /// A group that has not moved for this time, with messages waiting, is stalled (5 s).
    pub stall: Duration,
    /// Over this time the usual rates are averaged (5 min).
    pub usual: Duration,
    /// Production above so many times the usual is a surge (1.25).
    pub surge: f64,
}

impl Default for LagOptions {
    fn default() -> LagOptions {
        LagOptions {
            window: Duration::from_secs(10),
            grace: Duration::from_secs(3),
            stall: Duration::from_secs(5),
            usual: Duration::from_secs(300),
            surge: 1.25,
        }
    }
}

/// Where the lag is going.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trend {
    /// More waits than before.
    Growing,
    /// Less waits than before.
    Shrinking,
    /// About as much.
    #[default]
    Steady,
}

impl Trend {
    /// A word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Trend::Growing => "growing",
            Trend::Shrinking => "shrinking",
            Trend::Steady => "steady",
        }
    }
}

/// What to think of a lag.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Verdict {
    /// What comes is read at once.
    #[default]
    KeepingUp,
    /// What waited is being read, faster than more comes: after a start, a pause or a replay.
    CatchingUp {
        /// When it will be gone.
        drain: Duration,
    },
    /// More came than usual, and the group is as fast as ever.
    Surge {
        /// When it will be gone.
        drain: Duration,
        /// Counted from the end of the surge, because the lag does not shrink before.
        after: bool,
    },
    /// No more comes than usual, or the group is slower than usual, and the lag does not shrink.
    ConsumerSlow,
    /// Messages wait and the group does not move.
    Stalled,
}

impl Verdict {
    /// A word for the kind, as in `/metrics`.
    pub fn as_str(self) -> &'static str {
        Verdict::ALL[usize::from(self.severity())]
    }

    /// All words of [`Verdict::as_str`], the best first.
    pub const ALL: [&'static str; 5] = ["keeping_up", "catching_up", "surge", "consumer_slow", "stalled"];

    /// 0 is best.
    pub fn severity(self) -> u8 {
        match self {
            Verdict::KeepingUp => 0,
            Verdict::CatchingUp { .. } => 1,
            Verdict::Surge { .. } => 2,
            Verdict::ConsumerSlow => 3,
            Verdict::Stalled => 4,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::KeepingUp => f.write_str("keeping up"),
            Verdict::CatchingUp { drain } => write!(f, "catching up, will drain in {} s", whole(*drain)),
            Verdict::Surge { drain, after: false } => write!(f, "surge, will drain in {} s", whole(*drain)),
            Verdict::Surge { drain, after: true } => {
                write!(f, "surge, will drain in {} s once it is over", whole(*drain))
            }
            Verdict::ConsumerSlow => f.write_str("consumer slow"),
            Verdict::Stalled => f.write_str("stalled"),
        }
    }
}

/// Whole seconds, rounded up: something that is not over takes at least one.
fn whole(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// What a lag is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LagReport {
    /// Messages that are not read.
    pub records: u64,
    /// The age of the oldest of them, where it is known; zero without lag.
    pub age: Option<Duration>,
    /// How long ago the partition's end passed the group's place; at least this, where that was before the window.
    pub behind: Duration,
    /// Messages that come in a second, over the window.
    pub production: f64,
    /// Messages that are read in a second, over the window.
    pub consumption: f64,
    /// What production usually is; `None` before it is known.
    pub usual_production: Option<f64>,
    /// What consumption usually is; `None` before it is known.
    pub usual_consumption: Option<f64>,
    /// Where the lag is going.
    pub trend: Trend,
    /// Lag ÷ (consumption − production): zero without lag, `None` where it does not drain.
    pub drain: Option<Duration>,
    /// Lag ÷ consumption, as if production stopped: zero without lag, `None` without consumption.
    pub drain_alone: Option<Duration>,
    /// What to think of it.
    pub verdict: Verdict,
    /// Messages that were gone before the group read them, as of now.
    pub lost: u64,
}

/// `lag` ÷ `rate`: zero without lag, `None` without a rate.
pub fn drain_time(lag: u64, rate: f64) -> Option<Duration> {
    if lag == 0 {
        return Some(Duration::ZERO);
    }
    (rate > 0.0).then(|| Duration::try_from_secs_f64(lag as f64 / rate).ok()).flatten()
}

#[derive(Clone, Copy)]
struct Point {
    at: Duration,
    /// Totals since the first sample; only differences count.
    produced: u64,
    consumed: u64,
    end: u64,
    lag: u64,
}

/// An average over a long time: the plain mean until then, so that it is right from the first value on.
#[derive(Clone, Copy, Default)]
struct Usual {
    value: f64,
    seen: f64,
}

impl Usual {
    fn add(&mut self, value: f64, seconds: f64, over: f64) {
        self.seen = (self.seen + seconds).min(over);
        if self.seen > 0.0 {
            self.value += (value - self.value) * (seconds / self.seen).min(1.0);
        }
    }
}

/// The meter of one partition of one group.
pub struct LagMeter {
    options: LagOptions,
    points: VecDeque<Point>,
    last: Option<Sample>,
    /// When the group last moved, or had nothing to do.
    moved: Duration,
    production: Usual,
    consumption: Usual,
    /// The lag that there is came from a surge.
    surged: bool,
    lost: u64,
}

impl LagMeter {
    /// A meter that knows nothing yet.
    pub fn new(options: LagOptions) -> LagMeter {
        LagMeter {
            options,
            points: VecDeque::new(),
            last: None,
            moved: Duration::ZERO,
            production: Usual::default(),
            consumption: Usual::default(),
            surged: false,
            lost: 0,
        }
    }

    /// Takes a sample and says what the lag is. A place before the log's start counts as the start (the messages between are gone);
    /// a place beyond the end, which two questions at different moments can give, as the end. A group that went back starts a
    /// new window; a partition whose end went back is another one.
    pub fn feed(&mut self, sample: Sample) -> LagReport {
        let mut sample = sample;
        self.lost = sample.start.saturating_sub(sample.consumed);
        sample.consumed = sample.consumed.max(sample.start);
        sample.end = sample.end.max(sample.consumed);
        let (mut produced, mut consumed) = (0, 0);
        if let Some(last) = self.last {
            if sample.end < last.end {
                *self = LagMeter::new(self.options);
            } else if sample.consumed < last.consumed {
                self.points.clear();
                self.surged = false;
            }
        }
        if let (Some(last), Some(point)) = (self.last, self.points.back()) {
            // What retention took was not read.
            let from = last.consumed.max(if self.lost > 0 { sample.start } else { 0 });
            consumed = point.consumed + sample.consumed.saturating_sub(from);
            produced = point.produced + (sample.end - last.end);
        }
        let lag = sample.end - sample.consumed;
        let idle = self.last.is_none_or(|last| last.consumed == last.end);
        let moved = self.points.back().is_none_or(|point| consumed > point.consumed);
        if idle || moved || lag == 0 {
            self.moved = sample.at;
        }
        let elapsed = self.last.map_or(0.0, |last| sample.at.saturating_sub(last.at).as_secs_f64());
        self.points.push_back(Point { at: sample.at, produced, consumed, end: sample.end, lag });
        while self.points.len() > 2 && sample.at.saturating_sub(self.points[1].at) >= self.options.window {
            self.points.pop_front();
        }
        self.last = Some(sample);
        self.report(&sample, lag, elapsed)
    }

    fn report(&mut self, sample: &Sample, lag: u64, elapsed: f64) -> LagReport {
        let (Some(first), Some(last)) = (self.points.front(), self.points.back()) else {
            return LagReport::default();
        };
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        let rate = |from: u64, to: u64| if seconds > 0.0 { (to - from) as f64 / seconds } else { 0.0 };
        let production = rate(first.produced, last.produced);
        let consumption = self.whole_steps().unwrap_or_else(|| rate(first.consumed, last.consumed));
        // Judged by what was usual before this moment.
        let known = self.production.seen >= self.options.window.as_secs_f64();
        let usual_production = known.then_some(self.production.value);
        let usual_consumption = known.then_some(self.consumption.value);
        let behind = self.behind(sample, lag);
        let mut report = LagReport {
            records: lag,
            age: if lag == 0 { Some(Duration::ZERO) } else { sample.age },
            behind,
            production,
            consumption,
            usual_production,
            usual_consumption,
            trend: self.trend(),
            drain: drain_time(lag, consumption - production),
            drain_alone: drain_time(lag, consumption),
            verdict: Verdict::KeepingUp,
            lost: self.lost,
        };
        report.verdict = self.verdict(sample, &report);
        if report.verdict == Verdict::KeepingUp {
            // What waits between two commits comes and goes.
            report.trend = Trend::Steady;
        }
        if seconds > 0.0 {
            let over = self.options.usual.as_secs_f64();
            self.production.add(production, elapsed, over);
            self.consumption.add(consumption, elapsed, over);
        }
        report
    }

    /// Consumption from one step to another: a group that commits now and then is as fast as its steps are high and long, wherever the
    /// window cuts them. `None` when it took no two steps, or the next one is overdue.
    fn whole_steps(&self) -> Option<f64> {
        let steps =
            || self.points.iter().zip(self.points.range(1..)).filter(|(a, b)| b.consumed > a.consumed);
        let (first, last) = (steps().next()?.1, steps().next_back()?.1);
        let count = steps().count().checked_sub(1).filter(|count| *count > 0)?;
        let time = last.at.saturating_sub(first.at);
        let waited = self.points.back()?.at.saturating_sub(last.at);
        let usual = time / u32::try_from(count).unwrap_or(u32::MAX);
        (!time.is_zero() && waited <= usual * 3 / 2)
            .then(|| (last.consumed - first.consumed) as f64 / time.as_secs_f64())
    }

    /// How long ago the end passed the group's place.
    fn behind(&self, sample: &Sample, lag: u64) -> Duration {
        if lag == 0 {
            return Duration::ZERO;
        }
        // The last moment at which nothing was unread of what is unread now.
        let passed = self.points.iter().rev().find(|point| point.end <= sample.consumed);
        let since = passed.or(self.points.front()).map_or(sample.at, |point| point.at);
        sample.at.saturating_sub(since)
    }

    /// The later half of the window against the earlier one, so that commits in steps do not look like movement.
    fn trend(&self) -> Trend {
        let count = self.points.len();
        if count < 4 {
            return Trend::Steady;
        }
        let mean = |from: usize, to: usize| {
            let sum: f64 = self.points.range(from..to).map(|point| point.lag as f64).sum();
            sum / (to - from) as f64
        };
        let (before, now) = (mean(0, count / 2), mean(count - count / 2, count));
        let (first, last) = (self.points[0], self.points[count - 1]);
        let seconds = last.at.saturating_sub(first.at).as_secs_f64().max(1e-9);
        // Where the group moves in steps, what comes between two of them waits at times and at times does not.
        let steps = self.points.iter().zip(self.points.range(1..)).any(|(a, b)| a.consumed == b.consumed);
        let step = if steps { (last.produced - first.produced) as f64 / seconds / 2.0 } else { 0.0 };
        let noise = step.max(before.max(now) * 0.02).max(1.0);
        match now - before {
            change if change > noise => Trend::Growing,
            change if change < -noise => Trend::Shrinking,
            _ => Trend::Steady,
        }
    }

    fn verdict(&mut self, sample: &Sample, report: &LagReport) -> Verdict {
        if report.records == 0 || report.behind <= self.options.grace {
            self.surged = false;
            return Verdict::KeepingUp;
        }
        if sample.at.saturating_sub(self.moved) >= self.options.stall {
            return Verdict::Stalled;
        }
        let usual = report.usual_production.zip(report.usual_consumption);
        let more = usual.is_some_and(|(production, consumption)| {
            report.production > production * self.options.surge && report.consumption >= consumption * 0.8
        });
        self.surged |= more;
        // Two rates that are about the same give a time that means nothing.
        let real = |drain: &Duration| report.trend == Trend::Shrinking || *drain <= LONG;
        match (report.drain.filter(real), usual) {
            (Some(drain), _) if self.surged => Verdict::Surge { drain, after: false },
            (Some(drain), _) => Verdict::CatchingUp { drain },
            (None, Some((production, consumption))) if more => {
                let best = report.consumption.max(consumption);
                match drain_time(report.records, best - production) {
                    Some(drain) => Verdict::Surge { drain, after: true },
                    None => Verdict::ConsumerSlow,
                }
            }
            (None, _) => Verdict::ConsumerSlow,
        }
    }
}

#[cfg(test)]
mod tests;
