//! Tables that are built anew, beside the ones in use and in their place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hoga_log::event_log::{EventLog, MemoryLog, TopicSpec};

use crate::tests::support::{WAIT, World, caught_up, dump, stores};
use crate::{FIRED, Group, NOTIFICATION, StoreError};

/// The groups whose tables come from the log alone.
const BUILT: [Group; 4] = [Group::Accounts, Group::Orders, Group::Market, Group::Notifications];

#[test]
fn a_rebuild_gives_the_same_tables() {
    let Some(db) = super::db() else { return };
    let mut world = World::new(31, 3);
    world.run(1000);
    let stores = caught_up(&db, world.log());
    for group in BUILT {
        let before = dump(&db, group);
        let rebuilt = stores.rebuild(group).unwrap();
        let ends: u64 = stores.ends(group).unwrap().iter().map(|end| end.offset).sum();
        assert_eq!((rebuilt.group, rebuilt.messages), (group, ends));
        assert!(rebuilt.first_offsets.iter().all(|(_, _, first)| *first == 0));
        assert!(stores.position(group).running, "the group goes on");
        assert!(stores.wait_current(group, WAIT));
        assert_eq!(dump(&db, group), before, "{group:?}");
        // The rebuild left nothing for which the log would wait.
        assert!(world.log().groups().iter().all(|offset| !offset.group.ends_with(".rebuild")));
    }
    // It works where nothing runs too, and whatever an interrupted one left.
    stores.shutdown();
    let before = dump(&db, Group::Orders);
    stores.rebuild(Group::Orders).unwrap();
    assert!(!stores.position(Group::Orders).running);
    assert_eq!(dump(&db, Group::Orders), before);
    stores.rebuild(Group::Orders).unwrap();
    let order = world.orders()[0];
    assert_eq!(stores.orders().order_by_id(order.request.account, order.id).unwrap(), Some(order));
}

#[test]
fn a_rebuild_mends_tables_that_were_changed_by_hand() {
    let Some(db) = super::db() else { return };
    let mut world = World::new(32, 1);
    world.run(300);
    let stores = caught_up(&db, world.log());
    let before = dump(&db, Group::Accounts);
    assert!(db.execute(Group::Accounts, "UPDATE balances SET free = free + 1"));
    assert_ne!(dump(&db, Group::Accounts), before);
    stores.rebuild(Group::Accounts).unwrap();
    assert_eq!(dump(&db, Group::Accounts), before);
}

#[test]
fn a_rebuild_goes_on_while_load_comes_and_nobody_sees_half_of_it() {
    let Some(db) = super::db() else { return };
    let mut world = World::new(33, 2);
    world.run(400);
    let stores = caught_up(&db, world.log());
    let done = AtomicBool::new(false);
    let first = world.orders()[0];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for group in BUILT {
                stores.rebuild(group).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let reads = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Acquire) {
                // An order that was there before is there all the time.
                let found = stores.orders().order_by_id(first.request.account, first.id).unwrap();
                assert_eq!(found.map(|order| order.id), Some(first.id));
                reads += 1;
            }
            reads
        });
        // So much load that there is some at every step, and no more than a machine can hold.
        for _ in 0..2000 {
            if done.load(Ordering::Acquire) {
                break;
            }
            world.run(2);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(reads.join().unwrap() > 0);
    });
    for group in Group::ALL {
        assert!(stores.wait_current(group, WAIT), "{:?}", stores.position(group));
    }
    let Some(straight) = super::db() else { return };
    caught_up(&straight, world.log()).shutdown();
    stores.shutdown();
    for group in Group::ALL {
        assert_eq!(dump(&db, group), dump(&straight, group), "{group:?}");
    }
}

#[test]
fn a_rebuild_after_compaction_has_every_order_and_every_fill() {
    let Some(db) = super::db() else { return };
    let mut world = World::new(34, 1);
    world.run(800);
    let stores = caught_up(&db, world.log());
    stores.shutdown();
    let facts = |text: String| {
        // Which messages an order's row is from is known; how many were compacted away is not the same.
        text.lines().filter(|line| !line.starts_with("places")).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = facts(dump(&db, Group::Orders));
    assert!(world.log().maintain().unwrap().compacted > 0);
    let rebuilt = stores.rebuild(Group::Orders).unwrap();
    assert!(rebuilt.messages < stores.ends(Group::Orders).unwrap().iter().map(|end| end.offset).sum());
    assert_eq!(facts(dump(&db, Group::Orders)), before);
}

#[test]
fn a_rebuild_of_what_the_log_has_lost_is_refused_and_changes_nothing() {
    let Some(db) = super::db() else { return };
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    for group in Group::ALL {
        log.create_topic(&TopicSpec::delete(group.topic(), 1, 1)).unwrap();
    }
    for topic in [FIRED, NOTIFICATION] {
        log.create_topic(&TopicSpec::delete(topic, 1, 1)).unwrap();
    }
    let mut world = World::with_topics(35, 1, log.clone());
    world.run(200);
    let stores = caught_up(&db, log.clone());
    stores.shutdown();
    log.maintain().unwrap();
    let first = log.start_offset(Group::Accounts.topic(), 0).unwrap();
    assert!(first > 0);
    let before = dump(&db, Group::Accounts);
    let error = stores.rebuild(Group::Accounts).unwrap_err();
    assert!(
        matches!(&error, StoreError::RebuildTrimmed { topic, partition: 0, first: f, .. } if topic == "order.lifecycle" && *f == first),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("the first offset that it can have is {first}")));
    assert_eq!(dump(&db, Group::Accounts), before);
    // Whoever starts the group again goes on.
    world.run(50);
    let again = stores_again(&stores);
    assert!(again.wait_current(Group::Accounts, WAIT));
}

fn stores_again(stores: &crate::Stores) -> &crate::Stores {
    stores.start().unwrap();
    stores
}

#[test]
fn another_process_follows_through_the_database() {
    let Some(db) = super::db() else { return };
    let mut world = World::new(36, 2);
    world.run(200);
    let worker = caught_up(&db, world.log());
    // The process with the API: no group of its own.
    let config = crate::StoresConfig { shared: true, ..db.config() };
    let reader = crate::Stores::open_with(config, world.log()).unwrap();
    for _ in 0..5 {
        world.run(50);
        for group in Group::ALL {
            assert!(reader.wait_current(group, WAIT), "{:?}", reader.position(group));
            assert_eq!(reader.position(group).lag, 0);
        }
    }
    let last = world.events.last().unwrap().seq;
    assert!(reader.wait_applied(Group::Accounts, reader.applied(Group::Accounts), WAIT));
    assert!(reader.applied(Group::Accounts) <= last);
    drop(worker);
    assert!(!reader.wait_applied(
        Group::Accounts,
        hoga_core::ids::Seq(u64::MAX),
        std::time::Duration::from_millis(50)
    ));
    let _ = stores;
}
