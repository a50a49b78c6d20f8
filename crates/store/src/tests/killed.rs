//! A process that is killed again and again: what its files say in the end is what they say without.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hoga_log::event_log::EmbeddedLog;

use crate::tests::support::{Db, Random, TempDir, WAIT, World, caught_up, dump};
use crate::{Database, Group, Stores, StoresConfig};

const KILLED: &str = "HOGA_STORE_TEST_KILLED";
const LOG: &str = "HOGA_STORE_TEST_LOG";

/// The process that `a_killed_process_goes_on` kills; without its variable it has nothing to do.
#[test]
fn the_process_to_be_killed() {
    let Ok(dir) = std::env::var(KILLED) else { return };
    let dir = Path::new(&dir);
    let log = Arc::new(EmbeddedLog::open(std::env::var(LOG).unwrap(), Default::default()).unwrap());
    let config = StoresConfig { batch: 8, linger: Duration::ZERO, ..StoresConfig::new(dir) };
    let stores = Stores::open_with(config, log).unwrap();
    stores.start().unwrap();
    for group in Group::ALL {
        assert!(stores.wait_current(group, WAIT), "{:?}", stores.position(group));
    }
}

#[test]
fn a_killed_process_goes_on() {
    let (killed, straight, logs) = (Db::sqlite(), Db::sqlite(), TempDir::new());
    let Database::Sqlite { dir } = &killed.database else { unreachable!("it is SQLite") };
    let log = EmbeddedLog::open(logs.path(), Default::default()).unwrap();
    let mut world = World::with_log(18, 1, Arc::new(log));
    world.run(1500);
    caught_up(&straight, world.log()).shutdown();
    // Only one process may have the log open.
    drop(world);
    let mut random = Random(18);
    let mut kills = 0;
    loop {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::sqlite::killed::the_process_to_be_killed"])
            .env(KILLED, dir)
            .env(LOG, logs.path())
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
        assert_eq!(dump(&killed, group), dump(&straight, group), "{group:?}");
    }
}
