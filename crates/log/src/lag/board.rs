//! All groups: a meter for each partition, sums for each topic, and a table for people.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::{LagMeter, LagOptions, LagReport, Sample, Trend, Verdict, drain_time};

/// The sums that are remembered of each group and topic: two minutes, one a second.
const HISTORY: usize = 120;
/// A partition that is not seen for this time is forgotten with its group.
const FORGET: Duration = Duration::from_secs(60);
/// A partition with this share of the lag is why its group is behind.
const SKEW: f64 = 0.6;

/// A group's partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The group.
    pub group: Arc<str>,
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: u32,
}

/// One partition of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartitionLag {
    /// The partition.
    pub partition: u32,
    /// The offset that the next message gets.
    pub end: u64,
    /// The next offset that the group reads.
    pub consumed: u64,
    /// What its lag is.
    pub report: LagReport,
}

/// A group on one topic.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupLag {
    /// The group.
    pub group: Arc<str>,
    /// The topic.
    pub topic: Arc<str>,
    /// All partitions together: sums of messages and rates, the longest times, the worst verdict.
    pub total: LagReport,
    /// The one partition that has most of the lag while others have little, if there is such a one.
    pub skewed: Option<u32>,
    /// By number.
    pub partitions: Vec<PartitionLag>,
    /// The lag of the last two minutes in messages, about one value a second, the oldest first.
    pub history: Vec<u64>,
}

struct Entry {
    meter: LagMeter,
    seen: Duration,
    sample: Sample,
    report: LagReport,
}

/// Meters for every partition of every group.
pub struct LagBoard {
    options: LagOptions,
    entries: BTreeMap<Place, Entry>,
    history: BTreeMap<(Arc<str>, Arc<str>), VecDeque<u64>>,
}

impl LagBoard {
    /// An empty board.
    pub fn new(options: LagOptions) -> LagBoard {
        LagBoard { options, entries: BTreeMap::new(), history: BTreeMap::new() }
    }

    /// Takes a sample of one partition.
    pub fn feed(&mut self, place: &Place, sample: Sample) {
        let entry = self.entries.entry(place.clone()).or_insert_with(|| Entry {
            meter: LagMeter::new(self.options),
            seen: sample.at,
            sample,
            report: LagReport::default(),
        });
        entry.report = entry.meter.feed(sample);
        (entry.seen, entry.sample) = (sample.at, sample);
    }

    /// Ends a round of samples: what has not been seen for a minute is forgotten, and the sums are remembered.
    pub fn turn(&mut self, now: Duration) -> Vec<GroupLag> {
        self.entries.retain(|_, entry| now.saturating_sub(entry.seen) < FORGET);
        let mut all = self.groups();
        for group in &mut all {
            let history = self.history.entry((group.group.clone(), group.topic.clone())).or_default();
            history.push_back(group.total.records);
            if history.len() > HISTORY {
                history.pop_front();
            }
            group.history = history.iter().copied().collect();
        }
        let known = |group: &Arc<str>, topic: &Arc<str>| {
            all.iter().any(|known| known.group == *group && known.topic == *topic)
        };
        self.history.retain(|(group, topic), _| known(group, topic));
        all
    }

    fn groups(&self) -> Vec<GroupLag> {
        let mut all: Vec<GroupLag> = Vec::new();
        for (place, entry) in &self.entries {
            if all.last().is_none_or(|last| last.group != place.group || last.topic != place.topic) {
                all.push(GroupLag {
                    group: place.group.clone(),
                    topic: place.topic.clone(),
                    total: LagReport::default(),
                    skewed: None,
                    partitions: Vec::new(),
                    history: Vec::new(),
                });
            }
            let group = all.last_mut().expect("one was pushed where there was none");
            group.partitions.push(PartitionLag {
                partition: place.partition,
                end: entry.sample.end,
                consumed: entry.sample.consumed,
                report: entry.report,
            });
        }
        for group in &mut all {
            group.total = total(&group.partitions);
            group.skewed = skewed(&group.partitions, group.total.records);
        }
        all
    }
}

/// All partitions together. The group is done when its last partition is, so times are the longest ones.
fn total(partitions: &[PartitionLag]) -> LagReport {
    let mut total =
        LagReport { age: Some(Duration::ZERO), drain: Some(Duration::ZERO), ..LagReport::default() };
    let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
    (total.usual_production, total.usual_consumption) = (Some(0.0), Some(0.0));
    let (mut growing, mut shrinking) = (0u64, 0u64);
    for PartitionLag { report, .. } in partitions {
        total.records += report.records;
        total.lost += report.lost;
        total.age = match (total.age, report.age) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.filter(|age| !age.is_zero()).or(b),
        };
        total.behind = total.behind.max(report.behind);
        total.production += report.production;
        total.consumption += report.consumption;
        total.usual_production = sum(total.usual_production, report.usual_production);
        total.usual_consumption = sum(total.usual_consumption, report.usual_consumption);
        total.drain = total.drain.zip(report.drain).map(|(a, b)| a.max(b));
        match report.trend {
            Trend::Growing => growing += report.records,
            Trend::Shrinking => shrinking += report.records,
            Trend::Steady => {}
        }
        total.verdict = worse(total.verdict, report.verdict);
    }
    total.drain_alone = drain_time(total.records, total.consumption);
    total.trend = match growing.cmp(&shrinking) {
        std::cmp::Ordering::Greater => Trend::Growing,
        std::cmp::Ordering::Less => Trend::Shrinking,
        std::cmp::Ordering::Equal => Trend::Steady,
    };
    total
}

fn worse(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::CatchingUp { drain: a }, Verdict::CatchingUp { drain: b }) => {
            Verdict::CatchingUp { drain: a.max(b) }
        }
        (Verdict::Surge { drain: a, after: x }, Verdict::Surge { drain: b, after: y }) => {
            Verdict::Surge { drain: a.max(b), after: x | y }
        }
        _ if a.severity() >= b.severity() => a,
        _ => b,
    }
}

fn skewed(partitions: &[PartitionLag], records: u64) -> Option<u32> {
    if partitions.len() < 2 {
        return None;
    }
    let most = partitions.iter().max_by_key(|partition| partition.report.records)?;
    let behind = most.report.verdict != Verdict::KeepingUp;
    (behind && most.report.records as f64 > records as f64 * SKEW).then_some(most.partition)
}

/// A duration as people read it: `850 ms`, `12.3 s`, `4 m 10 s`, `3 h 5 m`.
fn text(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.is_zero() => "0 s".into(),
        0 => format!("{} ms", time.as_millis().max(1)),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A rate as people read it: two digits behind the point for small ones, none for large ones.
fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.2}") } else { format!("{rate:.0}") }
}

/// The table of `hoga lag`: a line for each group and topic, and one for each partition that does not keep up. `latency` says for a
/// group how long it takes from the command to the group's result.
pub fn render(groups: &[GroupLag], latency: &dyn Fn(&str) -> Option<super::LatencyReport>) -> String {
    let head = [
        "GROUP",
        "TOPIC",
        "LAG",
        "AGE",
        "IN/S",
        "OUT/S",
        "TREND",
        "DRAINS IN",
        "IF INPUT STOPPED",
        "P50",
        "P99",
        "VERDICT",
    ];
    let mut rows: Vec<[String; 12]> = vec![head.map(str::to_owned)];
    // What is kept up with is gone with the next commit; two rates that are about the same say nothing then.
    let never = |report: &LagReport, time: Option<Duration>| match report.verdict {
        Verdict::KeepingUp if report.records > 0 => "-".into(),
        _ => time.map_or_else(|| "never".into(), text),
    };
    for group in groups {
        let cells = |name: String, topic: String, report: &LagReport, ends: Option<super::LatencyReport>| {
            let mut verdict = report.verdict.to_string();
            if report.lost > 0 {
                let _ = write!(verdict, "; {} messages were gone before they were read", report.lost);
            }
            let quantile = |time: fn(&super::LatencyReport) -> Duration| {
                ends.as_ref()
                    .filter(|ends| ends.count > 0)
                    .map_or_else(|| "-".into(), |ends| text(time(ends)))
            };
            [
                name,
                topic,
                report.records.to_string(),
                report.age.map_or_else(|| "-".into(), text),
                rate(report.production),
                rate(report.consumption),
                report.trend.as_str().into(),
                never(report, report.drain),
                never(report, report.drain_alone),
                quantile(|ends| ends.p50),
                quantile(|ends| ends.p99),
                verdict,
            ]
        };
        let mut row =
            cells(group.group.to_string(), group.topic.to_string(), &group.total, latency(&group.group));
        if let Some(partition) = group.skewed {
            let _ = write!(row[11], " (most of it in partition {partition})");
        }
        rows.push(row);
        let bad = group.partitions.iter().filter(|partition| partition.report.verdict != Verdict::KeepingUp);
        for partition in bad.filter(|_| group.partitions.len() > 1) {
            rows.push(cells(
                String::new(),
                format!("  partition {}", partition.partition),
                &partition.report,
                None,
            ));
        }
    }
    let mut widths = [0; 12];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            let number = matches!(at, 2..=5 | 7..=10);
            let _ = if number { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
