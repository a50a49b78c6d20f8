//! The scenes.

use std::time::{Duration, Instant};

use hoga_feed::groups::GroupName;
use rustix::process::Signal;

use super::stage::{LONG, Set, Stage};
use super::{Options, Told, check, wait};
use crate::admin::Admin;
use crate::orders::BenchError;
use crate::process::{Server, TempDir};
use crate::services::Service;

/// With two groups a client sees no gap above this.
const GAP: Duration = Duration::from_millis(250);
/// The length of our own lease: with it a standby takes over in under a second.
const LEASE_MS: u64 = 600;

fn ms(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

/// Lets the flow go on for a moment, and says what a reader saw in it.
fn calm(stage: &Stage) -> Duration {
    stage.reader.look();
    std::thread::sleep(Duration::from_secs(1)); // the measured second itself
    stage.reader.look().silence
}

/// Kills the leader of the group that is shown, and measures what readers see of it.
fn kill_shown(stage: &mut Stage, limit: Duration, checks: &mut u64) -> Result<Duration, BenchError> {
    let shown = stage.desk.active();
    let at = stage.leader(shown)?;
    stage.reader.look();
    stage.processors.remove(at).server.kill()?;
    wait("the other group is shown, or the standby leads", LONG, || {
        let leads = stage.desk.group(stage.desk.active()).health.leader.is_some();
        (leads && stage.desk.active() != shown).then_some(())
    })?;
    std::thread::sleep(Duration::from_millis(300)); // what follows the switch is in the measured time too
    let silence = stage.reader.look().silence;
    check(checks, silence < limit, || {
        format!("readers saw nothing for {silence:?} when a leader of two groups was killed")
    })?;
    Ok(silence)
}

/// Kills the leader of a group and measures how long it takes until its standby leads.
fn take_over(
    stage: &mut Stage,
    group: GroupName,
    limit: Duration,
    checks: &mut u64,
) -> Result<Duration, BenchError> {
    let at = stage.leader(group)?;
    let epoch = stage.desk.group(group).health.leader;
    stage.processors.remove(at).server.kill()?;
    let (_, took) = wait("the standby leads", LONG, || {
        stage.desk.group(group).health.leader.filter(|new| Some(*new) > epoch)
    })?;
    check(checks, took < limit, || format!("the standby took over after {took:?}, the limit is {limit:?}"))?;
    Ok(took)
}

/// Pauses the leader of a group past its lease and lets it go on: it must be refused and follow.
fn pause(stage: &mut Stage, group: GroupName, checks: &mut u64) -> Result<u64, BenchError> {
    let at = stage.leader(group)?;
    let epoch = stage.desk.group(group).health.leader;
    stage.processors[at].server.signal(Signal::STOP)?;
    wait("the standby leads", LONG, || {
        stage.desk.group(group).health.leader.filter(|new| Some(*new) > epoch)
    })?;
    stage.processors[at].server.signal(Signal::CONT)?;
    let (refused, _) = wait("the paused leader is refused and follows", LONG, || {
        let member = stage.processors[at].status().ok()?;
        let refused = member["refused"].as_u64()?;
        (refused > 0 && member["leads"] == false).then_some(refused)
    })?;
    let counted = stage.desk.contents(group).map_err(|error| BenchError::Unfit(error.to_string()))?.refused;
    check(checks, counted >= refused, || {
        format!("the cache counted {counted} refused writes, the member {refused}")
    })?;
    Ok(refused)
}

/// Redis as bus, caches and lease: leaders killed and paused, traffic moved under load.
pub(super) fn members(options: &Options) -> Result<Told, BenchError> {
    let mut checks = 0;
    let set = Set { bus: "redis", lease: "redis", lease_ms: LEASE_MS, members: [2, 2] };
    let mut stage = Stage::start(set)?;
    stage.members(GroupName::A, 2)?;
    stage.members(GroupName::B, 2)?;
    let usual = calm(&stage);
    let mut gaps = Vec::new();
    let mut takeovers = Vec::new();
    for _ in 0..3 {
        let shown = stage.desk.active();
        gaps.push(kill_shown(&mut stage, options.limit(GAP), &mut checks)?);
        stage.add(shown)?;
        stage.members(shown, 2)?;
    }
    for _ in 0..3 {
        takeovers.push(take_over(
            &mut stage,
            GroupName::A,
            options.limit(Duration::from_secs(1)),
            &mut checks,
        )?);
        stage.add(GroupName::A)?;
        stage.members(GroupName::A, 2)?;
    }
    let refused = pause(&mut stage, GroupName::B, &mut checks)?;
    stage.reader.look();
    let mut switches = 0;
    for _ in 0..20 {
        let to = stage.desk.active().other();
        wait("the other group may be shown", LONG, || stage.desk.command(to, false).ok())?;
        switches += 1;
        std::thread::sleep(Duration::from_millis(20)); // under load: some quotes come between two switches
    }
    let switching = stage.reader.look().silence;
    let seen = stage.finish(&mut checks)?;
    Ok(Told {
        checks,
        text: format!(
            "{} quotes in order; leaders killed: readers saw nothing for {} at most (usually {}); a standby led after {} at most (lease {LEASE_MS} ms); \
             a paused leader was refused {refused} times; {switches} switches under load: at most {} without a quote",
            seen.quotes,
            ms(gaps.into_iter().max().unwrap_or_default()),
            ms(usual),
            ms(takeovers.into_iter().max().unwrap_or_default()),
            ms(switching),
        ),
    })
}

/// ZooKeeper decides who leads: leaders killed and paused; ZooKeeper away.
pub(super) fn zookeeper(options: &Options) -> Result<Told, BenchError> {
    let mut checks = 0;
    // The shortest session that the server grants here.
    const SESSION_MS: u64 = 1000;
    let set = Set { bus: "redis", lease: "zookeeper", lease_ms: SESSION_MS, members: [2, 1] };
    let mut stage = Stage::start(set)?;
    stage.members(GroupName::A, 2)?;
    let limit = options.limit(Duration::from_millis(SESSION_MS + 500));
    let mut takeovers = Vec::new();
    for _ in 0..3 {
        takeovers.push(take_over(&mut stage, GroupName::A, limit, &mut checks)?);
        stage.add(GroupName::A)?;
        stage.members(GroupName::A, 2)?;
    }
    let refused = pause(&mut stage, GroupName::A, &mut checks)?;
    let away = options.outage.min(Duration::from_secs(10));
    stage.reader.look();
    if let Some(zookeeper) = &stage.zookeeper {
        zookeeper.kill()?;
        std::thread::sleep(away);
        zookeeper.up()?;
    }
    let silence = stage.reader.look().silence;
    check(&mut checks, silence < options.limit(GAP), || {
        format!("prices stood for {silence:?} while ZooKeeper was away")
    })?;
    stage.members(GroupName::A, 2)?;
    let seen = stage.finish(&mut checks)?;
    Ok(Told {
        checks,
        text: format!(
            "{} quotes in order; a standby led after {} at most (session {SESSION_MS} ms); a paused leader was refused {refused} times; \
             ZooKeeper away for {away:?}: prices went on, at most {} without a quote",
            seen.quotes,
            ms(takeovers.into_iter().max().unwrap_or_default()),
            ms(silence),
        ),
    })
}

/// Kafka carries ticks: a leader killed, and Kafka away.
pub(super) fn kafka(options: &Options) -> Result<Told, BenchError> {
    let mut checks = 0;
    let set = Set { bus: "kafka", lease: "redis", lease_ms: LEASE_MS, members: [1, 1] };
    let mut stage = Stage::start(set)?;
    calm(&stage);
    let usual = stage.reader.look();
    std::thread::sleep(Duration::from_secs(2)); // the measured seconds themselves
    let after = stage.reader.look();
    let (usual, rate) = (after.oldest, (after.quotes - usual.quotes) / 2);
    let gap = kill_shown(&mut stage, options.limit(GAP), &mut checks)?;
    let Some(kafka) = &stage.kafka else { return Err(BenchError::Unfit("no Kafka on the stage".into())) };
    kafka.kill()?;
    std::thread::sleep(options.outage);
    let begun = Instant::now();
    kafka.up()?;
    let up = begun.elapsed();
    // Fresh: what is shown is no older than usual.
    let (_, fresh) = wait("fresh prices", Duration::from_secs(120), || {
        stage.reader.look();
        std::thread::sleep(Duration::from_millis(100)); // the span that is looked at
        let seen = stage.reader.look();
        (seen.silence < Duration::from_millis(100) && seen.oldest < Duration::from_secs(1)).then_some(())
    })?;
    let seen = stage.finish(&mut checks)?;
    Ok(Told {
        checks,
        text: format!(
            "{} quotes in order, {rate} a second, at most {} old; a leader killed: readers saw nothing for {}; Kafka away for {:?}: nothing lost, prices fresh {} after it answered \
             (it took {} to start)",
            seen.quotes,
            ms(usual),
            ms(gap),
            options.outage,
            ms(fresh),
            ms(up),
        ),
    })
}

/// The cache of the shown group dies, and the bus hangs.
pub(super) fn caches(options: &Options) -> Result<Told, BenchError> {
    let mut checks = 0;
    let set = Set { bus: "redis", lease: "redis", lease_ms: LEASE_MS, members: [1, 1] };
    let stage = Stage::start(set)?;
    if stage.desk.active() == GroupName::B {
        stage.desk.command(GroupName::A, true).map_err(BenchError::Unfit)?;
    }
    stage.reader.look();
    stage.redis[0].kill()?;
    wait("B is shown", LONG, || (stage.desk.active() == GroupName::B).then_some(()))?;
    std::thread::sleep(options.outage.min(Duration::from_secs(5)));
    let silence = stage.reader.look().silence;
    check(&mut checks, silence < options.limit(GAP), || {
        format!("prices stood for {silence:?} when A's cache was killed")
    })?;
    stage.redis[0].up()?;
    wait("A has a leader again", LONG, || stage.desk.group(GroupName::A).health.leader)?;
    wait("A may be shown", LONG, || stage.desk.command(GroupName::A, false).ok())?;
    // B's server is the bus as well: without it ticks are read from the spool.
    stage.reader.look();
    stage.redis[1].run(&["stop"])?;
    std::thread::sleep(options.outage.min(Duration::from_secs(5)));
    stage.redis[1].run(&["cont"])?;
    let bus_silence = stage.reader.look().silence;
    check(&mut checks, bus_silence < options.limit(Duration::from_secs(2)), || {
        format!("prices stood for {bus_silence:?} while the bus hung")
    })?;
    wait("B has a leader again", LONG, || stage.desk.group(GroupName::B).health.leader)?;
    let seen = stage.finish(&mut checks)?;
    Ok(Told {
        checks,
        text: format!(
            "{} quotes in order; A's cache killed: B was shown, at most {} without a quote, and A came back by itself; \
             the bus hung: at most {} without a quote",
            seen.quotes,
            ms(silence),
            ms(bus_silence),
        ),
    })
}

/// SIGTERM again and again, while ticks are published and while the bus is away.
pub(super) fn stops(options: &Options) -> Result<Told, BenchError> {
    const LIMIT: Duration = Duration::from_secs(5);
    let mut checks = 0;
    let (kafka, redis) = (Service::kafka(1)?, Service::redis()?);
    let dead = "127.0.0.1:1";
    let buses = [
        ("redis", redis.address().to_owned(), dead.to_owned()),
        ("kafka", String::new(), kafka.address().to_owned()),
        ("redis", format!("redis://{dead}"), dead.to_owned()),
        ("kafka", String::new(), dead.to_owned()),
    ];
    let folder = TempDir::new("stops")?;
    let mut longest = Duration::ZERO;
    let mut ticks = 0;
    for (number, (bus, redis, kafka)) in buses.iter().enumerate() {
        let (data, config) =
            (folder.path().join(format!("{number}")), folder.path().join(format!("{number}.toml")));
        let redis = if redis.is_empty() { "redis://127.0.0.1:1" } else { redis };
        // 20,000 ticks a second.
        let text = format!(
            "[feed]\nbus = \"{bus}\"\nredis = \"{redis}\"\nsymbols = 200\ninterval_ms = 10\nlanes = 3\n[kafka]\nbootstrap = \"{kafka}\"\n[telemetry]\nlog = \"error\"\n"
        );
        std::fs::write(&config, text)?;
        let arguments = ["--config", &config.display().to_string()];
        for round in 0..options.stops.div_ceil(4) {
            let feed = Server::start_roles(&["feed"], &data, &arguments)?;
            // Anywhere within the first moments: at the start, while it connects, in full flow.
            std::thread::sleep(Duration::from_millis(u64::from(round * 37 % 200)));
            let (took, code) = feed.terminate(LONG)?;
            longest = longest.max(took);
            check(&mut checks, code == Some(0) && took < LIMIT, || {
                format!("{bus} {redis} {kafka}: the feed ended with {code:?} after {took:?}")
            })?;
        }
        // What is in the spool after all that: each symbol's numbers from 1 without a hole, as the monitor reads the log.
        let feed = Server::start_roles(&["feed"], &data, &arguments)?;
        let admin = Admin::of(&data)?;
        let plant = admin.get("/api/v1/plant")?;
        check(&mut checks, plant["feed"]["fault"].is_null(), || format!("the feed says {}", plant["feed"]))?;
        for symbol in ["SIM0000", "SIM0077", "SIM0199"] {
            let found = admin.get(&format!("/api/v1/plant/explain/{symbol}"))?;
            check(&mut checks, found["blame"] == "nobody", || format!("{bus}: {found}"))?;
            ticks += found["log"]["ticks"].as_u64().unwrap_or(0);
        }
        feed.terminate(LONG)?;
    }
    check(&mut checks, ticks > 0, || "no ticks were fed".into())?;
    Ok(Told {
        checks,
        text: format!(
            "{} SIGTERMs under 20,000 ticks/s, half of them with the bus away: none took longer than {}, no number is missing",
            options.stops.div_ceil(4) * 4,
            ms(longest)
        ),
    })
}
