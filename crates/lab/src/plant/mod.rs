//! `lab plant`: the tick plant as processes on real Kafka, Redis and ZooKeeper, whose members and servers are killed, paused and taken away under load.
//!
//! A reader follows what is shown, as a client would. After each scene it must have seen every symbol's numbers rise, without one that no quote
//! stood for, up to the last number that the feed gave, in candles that hold each tick once.

mod grid;
mod hot;
mod reader;
mod scenes;
mod stage;

use std::time::{Duration, Instant};

use crate::orders::BenchError;

/// The flags of `lab plant`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which scenes; empty for all.
    pub names: Vec<String>,
    /// How long a server is away, in the scenes that take one away.
    pub outage: Duration,
    /// How often the feed is stopped in the scene of that name.
    pub stops: u32,
    /// The whole grid instead of a short one, and limits of time as they are promised. Otherwise four times as much is let pass: a test must not fail because the
    /// machine was busy.
    pub full: bool,
}

impl Options {
    /// A limit of time.
    fn limit(&self, promised: Duration) -> Duration {
        if self.full { promised } else { promised * 4 }
    }
}

/// A scene: what it is called, and what it does; it tells what it found.
type Scene = (&'static str, fn(&Options) -> Result<Told, BenchError>);

/// What a scene found.
pub(crate) struct Told {
    /// Checks that were made and passed.
    pub checks: u64,
    /// In words, with figures.
    pub text: String,
}

/// All scenes, in the order in which they run.
const SCENES: [Scene; 7] = [
    ("members", scenes::members),
    ("zookeeper", scenes::zookeeper),
    ("kafka", scenes::kafka),
    ("caches", scenes::caches),
    ("stops", scenes::stops),
    ("hot", hot::run),
    ("grid", grid::run),
];

/// Runs the scenes one after the other; the number of checks passed. The first failure ends it.
pub fn run(options: &Options) -> Result<u64, BenchError> {
    for name in &options.names {
        if !SCENES.iter().any(|(scene, _)| scene == name) {
            let all: Vec<&str> = SCENES.iter().map(|(scene, _)| *scene).collect();
            return Err(BenchError::Unfit(format!("no scene named {name:?}: {}", all.join(", "))));
        }
    }
    let mut checks = 0;
    for (name, scene) in SCENES {
        if !options.names.is_empty() && !options.names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let begun = Instant::now();
        let told = scene(options).map_err(|error| BenchError::Unfit(format!("plant: {name}: {error}")))?;
        checks += told.checks;
        eprintln!("plant: {name}: {} ({:.1} s)", told.text, begun.elapsed().as_secs_f64());
    }
    Ok(checks)
}

/// Fails with a sentence unless something holds; counts it otherwise.
pub(crate) fn check(
    checks: &mut u64,
    holds: bool,
    otherwise: impl FnOnce() -> String,
) -> Result<(), BenchError> {
    if !holds {
        return Err(BenchError::Unfit(otherwise()));
    }
    *checks += 1;
    Ok(())
}

/// Waits until something is there.
pub(crate) fn wait<T>(
    what: &str,
    limit: Duration,
    mut there: impl FnMut() -> Option<T>,
) -> Result<(T, Duration), BenchError> {
    let begun = Instant::now();
    loop {
        if let Some(found) = there() {
            return Ok((found, begun.elapsed()));
        }
        if begun.elapsed() > limit {
            return Err(BenchError::Unfit(format!("{what}: not within {limit:?}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
