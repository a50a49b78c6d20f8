//! Crashes at every point between reading a batch and telling the log: what is left, continued, equals a run without a crash.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hoga_core::event::{Event, EventRecord};
use hoga_core::ids::{AccountId, Seq, Timestamp};
use hoga_log::event_log::{EmbeddedLog, EventLog, MemoryLog};

use super::support::{Publisher, Random, TempDir, World, caught_up, dump};
use crate::accounts::AccountModel;
use crate::consumer::{Consumer, Model, Pace};
use crate::database::{COMMON_SCHEMA, Safety, open_writer};
use crate::market::MarketModel;
use crate::orders::OrderModel;
use crate::progress::Progress;
use crate::{Group, Stores, StoresConfig};

fn load<M: Model>(dir: &Path, log: &Arc<dyn EventLog>, batch: usize) -> Consumer<M> {
    let path = dir.join(M::GROUP.file_name());
    let conn =
        open_writer(&path, M::SCHEMA_VERSION, &[COMMON_SCHEMA, M::SCHEMA], Safety::Rebuildable).unwrap();
    let pace = Pace { batch, linger: Duration::ZERO, sync_every: Duration::ZERO };
    Consumer::load(conn, path, log.clone(), Arc::new(Progress::default()), pace).unwrap()
}

/// Where a consumer dies.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// With a batch in memory.
    Gathered,
    /// In the middle of the transaction: its connection closes without a commit.
    Flushed,
    /// After the commit, before the log was told.
    Committed,
}

fn crash_and_go_on<M: Model>(dir: &Path, log: &Arc<dyn EventLog>, seed: u64) {
    let mut random = Random(seed);
    loop {
        let batch = 1 + random.below(200) as usize;
        let mut consumer = load::<M>(dir, log, batch);
        for _ in 0..random.below(4) {
            let gathered = consumer.gather().unwrap();
            if gathered > 0 {
                consumer.store(gathered).unwrap();
            }
        }
        let gathered = consumer.gather().unwrap();
        if gathered == 0 {
            return;
        }
        match [Crash::Gathered, Crash::Flushed, Crash::Committed][random.below(3) as usize] {
            Crash::Gathered => {}
            Crash::Flushed => consumer.crash(false),
            Crash::Committed => consumer.crash(true),
        }
    }
}

#[test]
fn a_crash_at_any_point_repeats_nothing_and_loses_nothing() {
    for (seed, partitions) in [(11, 1), (12, 3)] {
        let mut world = World::new(seed, partitions);
        world.run(1500);
        let (crashed, straight) = (TempDir::new(), TempDir::new());
        let log = world.log();
        crash_and_go_on::<AccountModel>(crashed.path(), &log, seed);
        crash_and_go_on::<OrderModel>(crashed.path(), &log, seed + 100);
        crash_and_go_on::<MarketModel>(crashed.path(), &log, seed + 200);
        caught_up(straight.path(), log).shutdown();
        for group in crate::Group::ALL {
            let (crashed, straight) = (dump(crashed.path(), group), dump(straight.path(), group));
            // With several partitions the batches, and so the numbers of ledger entries, come in another order.
            if partitions == 1 || group != crate::Group::Accounts {
                assert_eq!(crashed, straight, "{group:?}");
            } else {
                assert_eq!(balances(&crashed), balances(&straight));
            }
        }
    }
}

fn balances(dump: &str) -> Vec<&str> {
    dump.lines().filter(|line| line.starts_with("balances")).collect()
}

#[test]
fn what_was_lost_with_the_power_comes_back_from_the_log() {
    // A power cut takes the last transactions of a database with `synchronous = NORMAL`: the file is as it was some batches ago. The log
    // was told only of what was synced, so it still has everything since.
    let mut world = World::new(13, 1);
    world.run(400);
    let (dir, older) = (TempDir::new(), TempDir::new());
    caught_up(dir.path(), world.log()).shutdown();
    for group in crate::Group::ALL {
        std::fs::copy(dir.path().join(group.file_name()), older.path().join(group.file_name())).unwrap();
    }
    world.run(400);
    caught_up(dir.path(), world.log()).shutdown();
    caught_up(older.path(), world.log()).shutdown();
    for group in crate::Group::ALL {
        assert_eq!(dump(dir.path(), group), dump(older.path(), group), "{group:?}");
    }
}

#[test]
fn the_log_is_told_only_what_is_synced() {
    let mut world = World::new(14, 1);
    world.run(200);
    let dir = TempDir::new();
    let log = world.log();
    let path = dir.path().join(OrderModel::GROUP.file_name());
    let schemas = [COMMON_SCHEMA, OrderModel::SCHEMA];
    let conn = open_writer(&path, OrderModel::SCHEMA_VERSION, &schemas, Safety::Rebuildable).unwrap();
    let pace = Pace { batch: 10, linger: Duration::ZERO, sync_every: Duration::from_secs(3600) };
    let mut consumer: Consumer<OrderModel> =
        Consumer::load(conn, path, log.clone(), Arc::new(Progress::default()), pace).unwrap();
    let told = || log.committed(OrderModel::GROUP.as_str(), OrderModel::GROUP.topic(), 0).unwrap();
    assert_eq!(told(), Some(0), "registered, so that retention waits");
    consumer.step().unwrap();
    assert_eq!(told(), Some(0), "committed, but not synced");
    consumer.hurry_syncs();
    consumer.step().unwrap();
    assert_eq!(told(), Some(20));
}

#[test]
fn a_database_ahead_of_the_log_waits_for_it() {
    // The log lost its end in a power cut, the database did not; the publisher brings the same messages again.
    let mut world = World::new(15, 1);
    world.run(300);
    let cut = world.events.len();
    world.run(300);
    let (dir, straight) = (TempDir::new(), TempDir::new());
    caught_up(dir.path(), world.log()).shutdown();
    let mut again = Publisher::new(Arc::new(MemoryLog::new()), 1);
    again.publish(&world.events[..cut]);
    let stores = super::support::stores(dir.path(), again.log.clone());
    stores.start().unwrap();
    assert_eq!(stores.position(Group::Orders).lag, 0);
    again.publish(&world.events[cut..]);
    let old = world.events.len();
    world.run(300);
    again.publish(&world.events[old..]);
    for group in Group::ALL {
        assert!(stores.wait_current(group, super::support::WAIT), "{:?}", stores.position(group));
    }
    stores.shutdown();
    caught_up(straight.path(), again.log.clone()).shutdown();
    for group in Group::ALL {
        assert_eq!(dump(dir.path(), group), dump(straight.path(), group), "{group:?}");
    }
}

#[test]
fn a_database_beside_another_log_is_refused() {
    let dir = TempDir::new();
    let mut world = World::new(16, 1);
    world.run(300);
    caught_up(dir.path(), world.log()).shutdown();
    let mut other = World::new(17, 1);
    other.run(600);
    let stores = super::support::stores(dir.path(), other.log());
    stores.start().unwrap();
    for group in Group::ALL {
        assert!(!stores.wait_applied(group, Seq(u64::MAX), super::support::WAIT));
        let fault = stores.position(group).fault.unwrap();
        assert!(matches!(*fault, crate::StoreError::StepBack { .. }), "{fault}");
    }
}

#[test]
fn a_command_is_applied_only_with_its_last_message() {
    let dir = TempDir::new();
    let mut publisher = Publisher::new(Arc::new(MemoryLog::new()), 1);
    let event = |seq, index| EventRecord {
        seq: Seq(seq),
        index,
        time: Timestamp(1),
        event: Event::AccountCreated { account: AccountId(1) },
    };
    publisher.publish(&[event(3, 0), event(5, 0), event(5, 1), event(5, 4), event(9, 0)]);
    let progress = Arc::new(Progress::default());
    let path = dir.path().join("accounts.db");
    let schemas = [COMMON_SCHEMA, AccountModel::SCHEMA];
    let conn = open_writer(&path, AccountModel::SCHEMA_VERSION, &schemas, Safety::Rebuildable).unwrap();
    let pace = Pace { batch: 1, linger: Duration::ZERO, sync_every: Duration::ZERO };
    let mut consumer: Consumer<AccountModel> =
        Consumer::load(conn, path, publisher.log.clone(), progress.clone(), pace).unwrap();
    // Everything before a message is complete, the message's own command not before the next one or the end of the log.
    for applied in [2, 4, 4, 4, 9] {
        consumer.step().unwrap();
        assert_eq!(progress.applied(), Seq(applied));
    }
}

const KILLED: &str = "HOGA_STORE_TEST_KILLED";

/// The process that `a_killed_process_goes_on` kills; without its variable it has nothing to do.
#[test]
fn the_process_to_be_killed() {
    let Ok(dir) = std::env::var(KILLED) else { return };
    let dir = Path::new(&dir);
    let log = Arc::new(EmbeddedLog::open(dir.join("log"), Default::default()).unwrap());
    let config = StoresConfig { batch: 8, linger: Duration::ZERO, ..StoresConfig::new(dir) };
    let stores = Stores::open_with(config, log).unwrap();
    stores.start().unwrap();
    for group in Group::ALL {
        assert!(stores.wait_current(group, super::support::WAIT), "{:?}", stores.position(group));
    }
}

#[test]
fn a_killed_process_goes_on() {
    let (killed, straight) = (TempDir::new(), TempDir::new());
    let log = EmbeddedLog::open(killed.path().join("log"), Default::default()).unwrap();
    let mut world = World::with_log(18, 1, Arc::new(log));
    world.run(1500);
    caught_up(straight.path(), world.log()).shutdown();
    // Only one process may have the log open.
    drop(world);
    let mut random = Random(18);
    let mut kills = 0;
    loop {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::crash::the_process_to_be_killed"])
            .env(KILLED, killed.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Later and later, so that it ends at last even on a slow machine.
        let time = Duration::from_millis(5 + random.below(60) + 10 * kills);
        let deadline = std::time::Instant::now() + time;
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if std::time::Instant::now() >= deadline => break None,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        match ended {
            Some(status) => {
                assert!(status.success());
                break;
            }
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
            }
        }
    }
    assert!(kills > 0, "it has to be killed at least once");
    for group in Group::ALL {
        assert_eq!(dump(killed.path(), group), dump(straight.path(), group), "{group:?}");
    }
}
