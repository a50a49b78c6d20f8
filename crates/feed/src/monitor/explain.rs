//! Where the order of a symbol's ticks turned wrong: in the log already, or after it.

use std::time::{Duration, Instant};

use hoga_log::LogError;
use hoga_log::event_log::StoredMessage;

use super::{Counts, SymbolOrder, Verdict};
use crate::bus::Bus;
use crate::symbol::Symbol;
use crate::tick::FeedTick;

/// Findings that are told with their places; more are counted.
pub const MOST: usize = 20;

/// How long messages that the log has are waited for, in all, and at a time.
const PATIENCE: Duration = Duration::from_secs(5);
const WAIT: Duration = Duration::from_millis(50);

/// A tick in the log that does not follow the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its lane.
    pub lane: u32,
    /// Its offset there.
    pub offset: u64,
    /// Its epoch.
    pub epoch: u32,
    /// Its number.
    pub seq: u64,
    /// What it is.
    pub verdict: Verdict,
}

/// Who is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The order is right, in the log and after it.
    Nobody,
    /// It is wrong in the log: whoever wrote it.
    Producer,
    /// It is right in the log, and a reader saw it wrong.
    Consumer,
    /// The log has nothing of the symbol.
    Unknown,
}

impl Blame {
    /// `nobody`, `producer`, `consumer` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Blame::Nobody => "nobody",
            Blame::Producer => "producer",
            Blame::Consumer => "consumer",
            Blame::Unknown => "unknown",
        }
    }
}

/// What the log says of a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Who is to be looked at.
    pub blame: Blame,
    /// Its ticks in the log, from the front that is left.
    pub counts: Counts,
    /// Lane, first and last offset of its ticks. In more than one lane nothing keeps their order.
    pub places: Vec<(u32, u64, u64)>,
    /// The first ticks that do not follow the one before.
    pub findings: Vec<Finding>,
    /// In words, for people.
    pub text: String,
}

/// Reads the log behind a bus from its front to its present end, and compares what it finds with what a reader saw.
///
/// # Errors
/// [`LogError`] of reading.
pub fn explain(bus: &dyn Bus, symbol: Symbol, seen: Option<&Counts>) -> Result<Explained, LogError> {
    let (mut counts, mut places, mut findings) = (Counts::default(), Vec::new(), Vec::new());
    let mut read: Vec<StoredMessage> = Vec::new();
    let mut trimmed = false;
    for lane in 0..bus.lanes() {
        let (mut next, end) = (bus.start(lane)?, bus.end(lane)?);
        trimmed |= next > 0;
        let mut order = SymbolOrder::new();
        let mut place: Option<(u64, u64)> = None;
        let mut waited = Duration::ZERO;
        while next < end {
            read.clear();
            let to = bus.read(lane, next, 4096, &mut read)?;
            for message in &read {
                let Some(tick) = message.value.as_deref().and_then(|value| FeedTick::decode(value).ok())
                else {
                    continue;
                };
                if tick.symbol != symbol {
                    continue;
                }
                if place.is_none() && trimmed {
                    order.begin_at(tick.epoch, tick.seq);
                }
                place = Some((place.map_or(message.offset, |(first, _)| first), message.offset));
                let verdict = order.number(tick.epoch, tick.seq);
                if verdict != (Verdict::New { skipped: 0 }) && findings.len() < MOST {
                    let (epoch, seq) = (tick.epoch, tick.seq);
                    findings.push(Finding { lane, offset: message.offset, epoch, seq, verdict });
                }
            }
            if to == next {
                // Over a network it may still be on its way; what never comes is somebody else's fault.
                if waited >= PATIENCE {
                    break;
                }
                let begun = Instant::now();
                bus.wait(&[(lane, next)], WAIT)?;
                waited += begun.elapsed();
            }
            next = to;
        }
        counts.add(order.counts());
        places.extend(place.map(|(first, last)| (lane, first, last)));
    }
    let wrong = |counts: &Counts| counts.violations + counts.duplicates + counts.steps_back + counts.lost();
    let blame = match seen {
        _ if places.is_empty() => Blame::Unknown,
        _ if places.len() > 1 || wrong(&counts) > 0 => Blame::Producer,
        Some(seen) if wrong(seen) > 0 => Blame::Consumer,
        _ => Blame::Nobody,
    };
    let text = words(symbol, blame, &counts, &places, findings.first(), seen);
    Ok(Explained { blame, counts, places, findings, text })
}

fn words(
    symbol: Symbol,
    blame: Blame,
    counts: &Counts,
    places: &[(u32, u64, u64)],
    first: Option<&Finding>,
    seen: Option<&Counts>,
) -> String {
    let of = |counts: &Counts| {
        format!(
            "{} ticks, {} out of order, {} repeated, {} missing, {} of an older epoch",
            counts.ticks,
            counts.violations,
            counts.duplicates,
            counts.lost(),
            counts.steps_back
        )
    };
    let log = of(counts);
    match blame {
        Blame::Unknown => format!("{symbol}: the log has no tick of it"),
        Blame::Nobody => format!("{symbol}: in order. The log has {log}"),
        Blame::Consumer => {
            let seen = seen.map(of).unwrap_or_default();
            format!(
                "{symbol}: right in the log ({log}), wrong after it: a reader saw {seen}. Look at the consumer"
            )
        }
        Blame::Producer if places.len() > 1 => {
            let lanes: Vec<String> = places.iter().map(|(lane, ..)| lane.to_string()).collect();
            format!(
                "{symbol}: its ticks are in lanes {}, and nothing keeps their order across lanes: the producer writes them without the symbol as the key. Each lane by itself: {log}",
                lanes.join(", ")
            )
        }
        Blame::Producer => {
            let place = first.map_or(String::new(), |finding| {
                format!(
                    ", first at lane {} offset {} (epoch {}, number {})",
                    finding.lane, finding.offset, finding.epoch, finding.seq
                )
            });
            format!("{symbol}: wrong in the log already: {log}{place}. Look at the producer")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{append, bus, new_log, tick};

    fn of(seqs: &[u64], seen: Option<Counts>) -> Explained {
        let log = new_log(3);
        for seq in seqs {
            append(&log, &[tick("A", *seq), tick("B", *seq)]);
        }
        explain(&*bus(&log), Symbol::parse("A").unwrap(), seen.as_ref()).unwrap()
    }

    #[test]
    fn who_is_to_be_looked_at_is_named_with_the_place() {
        let right = of(&[1, 2, 3, 4], None);
        assert_eq!((right.blame, right.counts.ticks, right.findings.len()), (Blame::Nobody, 4, 0));
        let seen = Counts { ticks: 4, violations: 1, gaps: 1, ..Counts::default() };
        let consumer = of(&[1, 2, 3, 4], Some(seen));
        assert_eq!(consumer.blame, Blame::Consumer);
        assert!(
            consumer.text.contains("right in the log") && consumer.text.contains("1 out of order"),
            "{}",
            consumer.text
        );
        let producer = of(&[1, 3, 2, 4], Some(seen));
        assert_eq!(producer.blame, Blame::Producer);
        let late = producer.findings[1];
        assert_eq!((late.seq, late.verdict), (2, Verdict::Late));
        let (lane, first, _) = producer.places[0];
        assert_eq!(late.lane, lane);
        // A and B may share a lane.
        assert!(late.offset > first && producer.text.contains("offset"), "{}", producer.text);
        assert_eq!(of(&[1, 2, 2], None).findings[0].verdict, Verdict::Duplicate);
        assert_eq!(of(&[1, 4], None).counts.lost(), 2);
    }

    #[test]
    fn a_symbol_in_several_lanes_is_the_producers_and_one_that_is_not_there_nobodys() {
        let log = new_log(3);
        // Another key than the symbol.
        for (seq, key) in (1..).zip(["x", "y", "z", "v", "w", "u"]) {
            let mut bytes = Vec::new();
            tick("A", seq).encode(seq, &mut bytes);
            let message = hoga_log::event_log::Message {
                key: key.as_bytes(),
                value: Some(&bytes),
                time: hoga_core::ids::Timestamp(0),
            };
            log.append(crate::testing::TOPIC, &[message]).unwrap();
        }
        let found = explain(&*bus(&log), Symbol::parse("A").unwrap(), None).unwrap();
        assert!(found.places.len() > 1);
        assert!(
            found.blame == Blame::Producer && found.text.contains("without the symbol as the key"),
            "{}",
            found.text
        );
        assert_eq!(explain(&*bus(&log), Symbol::parse("C").unwrap(), None).unwrap().blame, Blame::Unknown);
    }
}
