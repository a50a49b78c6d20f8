//! The crash loop: the real binary under load, killed at random points, started again, and asked what it still knows.
//!
//! Each round checks that every acknowledged order and cancel is there, that no event number is missing or used twice in any topic, that
//! a replay of the journal from its first command gives the digest that the running system has, and that the audit is clean.
//! SIGKILL leaves the page cache alone, so this proves nothing about fdatasync: the simulated storage in the engine's tests does that.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::admin::Admin;
use crate::orders::{self, BenchError};
use crate::process::{Server, TempDir};
use crate::trader::Trader;

/// The flags of `lab crash`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds of start, load, kill, start, check.
    pub rounds: u32,
    /// Seed of the kill times.
    pub seed: u64,
    /// Where the data stays for a look when a round fails; a temporary folder otherwise.
    pub keep: Option<PathBuf>,
}

/// Offline proof of a stopped system's data folder.
pub trait Offline {
    /// Checks the topics' numbers; the number of messages, or what is wrong.
    fn check_topics(&self, data: &Path) -> Result<u64, String>;
    /// Replays the journal from its first command up to `seq`; the digest in hex.
    fn replay_digest(&self, data: &Path, seq: u64) -> Result<String, String>;
}

/// Runs the rounds; the number of checks passed. The first failure ends it.
pub fn run(options: &Options, offline: &dyn Offline) -> Result<u64, BenchError> {
    let temporary = TempDir::new("crash")?;
    let data = options.keep.clone().unwrap_or_else(|| temporary.path().join("data"));
    // The whole journal is replayed in each round, so all of it has to stay.
    let config = temporary.path().join("crash.toml");
    std::fs::write(&config, "[engine]\nkeep_journal = true\n")?;
    let config = config.to_string_lossy().into_owned();
    let flags = ["--no-market", "--config", &config];
    let mut random = options.seed | 1;
    let mut trader: Option<Trader> = None;
    let mut checks = 0;
    for round in 1..=options.rounds {
        let server = Server::start(&data, &flags)?;
        let admin = Admin::of(&data)?;
        let trader = match &mut trader {
            Some(trader) => trader,
            None => trader.insert(Trader::new(orders::accounts(&admin, 4)?, orders::symbols(&admin, 2)?)),
        };
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let life = Duration::from_millis(200 + (random >> 33) % 1_200);
        let until = Instant::now() + life;
        let mut session = trader.session(server.address())?;
        while Instant::now() < until {
            session.step(usize::MAX)?;
        }
        server.kill()?;
        let acknowledged = session.drain().answered;

        let server = Server::start(&data, &flags)?;
        let admin = Admin::of(&data)?;
        let begun = Instant::now();
        checks += trader.check(&admin)?;
        let audit = admin.audit()?;
        if audit["clean"] != true {
            return Err(BenchError::Unfit(format!("round {round}: the audit is not clean: {audit}")));
        }
        let digest = admin.get("/api/v1/admin/digest")?;
        server.terminate(Duration::from_secs(10))?;
        let wrong = |what: String| BenchError::Unfit(format!("round {round}: {what}"));
        let messages = offline.check_topics(&data).map_err(wrong)?;
        let seq = digest["seq"].as_u64().unwrap_or(0);
        let replayed = offline.replay_digest(&data, seq).map_err(wrong)?;
        if digest["digest"] != replayed {
            return Err(wrong(format!(
                "digest {} at {seq}, but the journal replays to {replayed}",
                digest["digest"]
            )));
        }
        checks += 3;
        eprintln!(
            "crash round {round}: killed after {} ms with {acknowledged} acknowledgements, {} orders known, {messages} \
             messages in the topics, {seq} commands replayed: all there ({} ms)",
            life.as_millis(),
            trader.known(),
            begun.elapsed().as_millis()
        );
    }
    Ok(checks)
}
