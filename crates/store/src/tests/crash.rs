//! Crashes at every point between reading a batch and telling the log: what is left, continued, equals a run without a crash.

use std::sync::Arc;

use hoga_core::event::{Event, EventRecord};
use hoga_core::ids::{AccountId, Seq, Timestamp};
use hoga_log::consumer::{BatchHandler, HandlerError, Offer, Run, TopicPartition};
use hoga_log::event_log::{EventLog, MemoryLog};

use crate::Group;
use crate::accounts::AccountModel;
use crate::handler::Handler;
use crate::market::MarketModel;
use crate::model::Model;
use crate::notifications::NotificationModel;
use crate::orders::OrderModel;
use crate::progress::Progress;
use crate::tests::support::{Db, Publisher, Random, World, caught_up, dump};
use crate::triggers::TriggerModel;

fn member<M: Model>(db: &Db, log: &Arc<dyn EventLog>, progress: Arc<Progress>) -> Handler<M> {
    let tables = db.config().tables(M::GROUP);
    let mut member = Handler::<M>::new(&tables, log.clone(), progress, None).unwrap();
    let specs = log.topics();
    let mut places = Vec::new();
    for topic in M::GROUP.topics() {
        let spec = specs.iter().find(|spec| spec.name == *topic).unwrap();
        let place = |partition| TopicPartition { topic: Arc::from(*topic), partition };
        places.extend((0..spec.partitions).map(place));
    }
    member.assigned(&places).unwrap();
    member
}

/// The next messages of each partition.
fn offers<M: Model>(member: &Handler<M>, log: &Arc<dyn EventLog>, batch: usize) -> Vec<Offer> {
    let mut offers = Vec::new();
    for place in member.places() {
        let mut messages = Vec::new();
        let next = log.read(place.topic, place.partition, place.next_offset, batch, &mut messages).unwrap();
        let place = TopicPartition { topic: Arc::from(place.topic), partition: place.partition };
        if !messages.is_empty() {
            offers.push(Offer { run: Run { place, messages, next }, taken: 0 });
        }
    }
    offers
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

fn crash_and_go_on<M: Model>(db: &Db, log: &Arc<dyn EventLog>, seed: u64) {
    let mut random = Random(seed);
    loop {
        let batch = 1 + random.below(200) as usize;
        let mut member = member::<M>(db, log, Arc::new(Progress::default()));
        for _ in 0..random.below(4) {
            member.handle(&mut offers(&member, log, batch)).unwrap();
        }
        let mut offers = offers(&member, log, batch);
        if offers.is_empty() {
            return;
        }
        match [Crash::Gathered, Crash::Flushed, Crash::Committed][random.below(3) as usize] {
            Crash::Gathered => {}
            Crash::Flushed => member.crash_before_commit(&mut offers),
            Crash::Committed => member.handle(&mut offers).unwrap(),
        }
    }
}

#[test]
fn a_crash_at_any_point_repeats_nothing_and_loses_nothing() {
    for (seed, partitions) in [(11, 1), (12, 3)] {
        let mut world = World::new(seed, partitions);
        world.run(1500);
        let (Some(crashed), Some(straight)) = (super::db(), super::db()) else { return };
        let log = world.log();
        crash_and_go_on::<AccountModel>(&crashed, &log, seed);
        crash_and_go_on::<OrderModel>(&crashed, &log, seed + 100);
        crash_and_go_on::<MarketModel>(&crashed, &log, seed + 200);
        crash_and_go_on::<NotificationModel>(&crashed, &log, seed + 300);
        // Only tables: without alerts it writes none.
        drop(member::<TriggerModel>(&crashed, &log, Arc::new(Progress::default())));
        caught_up(&straight, log).shutdown();
        for group in Group::ALL {
            assert_eq!(dump(&crashed, group), dump(&straight, group), "{group:?}");
        }
    }
}

#[test]
fn what_was_lost_with_the_power_comes_back_from_the_log() {
    // A power cut takes the last transactions of a database with `synchronous = NORMAL`: the file is as it was some batches ago. The log
    // was told only of what was synced, so it still has everything since.
    let (Some(db), Some(older)) = (super::db(), super::db()) else { return };
    let (crate::Database::Sqlite { dir }, crate::Database::Sqlite { dir: copy }) =
        (&db.database, &older.database)
    else {
        // PostgreSQL loses nothing that it committed.
        return;
    };
    let mut world = World::new(13, 1);
    world.run(400);
    caught_up(&db, world.log()).shutdown();
    for group in Group::ALL {
        std::fs::copy(dir.join(group.file_name()), copy.join(group.file_name())).unwrap();
    }
    world.run(400);
    caught_up(&db, world.log()).shutdown();
    caught_up(&older, world.log()).shutdown();
    for group in Group::ALL {
        assert_eq!(dump(&db, group), dump(&older, group), "{group:?}");
    }
}

#[test]
fn the_log_is_told_only_what_is_durable() {
    let Some(db) = super::db() else { return };
    let mut world = World::new(14, 1);
    world.run(200);
    let log = world.log();
    let mut member = member::<MarketModel>(&db, &log, Arc::new(Progress::default()));
    member.handle(&mut offers(&member, &log, 10)).unwrap();
    assert_eq!(member.safe(false).unwrap(), [], "committed, but nobody asked to make it safe");
    let safe = member.safe(true).unwrap();
    assert_eq!(safe.iter().map(|(_, offset)| *offset).collect::<Vec<_>>(), [10]);
    member.handle(&mut offers(&member, &log, 10)).unwrap();
    assert_eq!(member.safe(false).unwrap(), safe);
}

#[test]
fn messages_that_come_again_after_an_unknown_commit_are_not_doubled() {
    let (Some(db), Some(straight)) = (super::db(), super::db()) else { return };
    let mut world = World::new(19, 1);
    world.run(300);
    let log = world.log();
    let mut one = member::<AccountModel>(&db, &log, Arc::new(Progress::default()));
    loop {
        let mut again = offers(&one, &log, 50);
        if again.is_empty() {
            break;
        }
        one.handle(&mut again).unwrap();
        // The answer to the commit was lost: everything is offered once more.
        again.iter_mut().for_each(|offer| offer.taken = 0);
        one.handle(&mut again).unwrap();
    }
    drop(one);
    caught_up(&straight, log).shutdown();
    assert_eq!(dump(&db, Group::Accounts), dump(&straight, Group::Accounts));
}

#[test]
fn a_member_that_lost_its_partition_writes_nothing() {
    let Some(db) = super::db() else { return };
    let mut world = World::new(20, 1);
    world.run(300);
    let log = world.log();
    let mut old = member::<AccountModel>(&db, &log, Arc::new(Progress::default()));
    old.handle(&mut offers(&old, &log, 50)).unwrap();
    let mut new = member::<AccountModel>(&db, &log, Arc::new(Progress::default()));
    new.handle(&mut offers(&new, &log, 70)).unwrap();
    let error = old.handle(&mut offers(&old, &log, 50)).unwrap_err();
    assert!(
        matches!(error, HandlerError::Later(_)) && error.to_string().contains("another member"),
        "{error}"
    );
    // It goes back to what is stored.
    old.handle(&mut []).unwrap();
    assert_eq!(old.places()[0].next_offset, 120);
}

#[test]
fn partitions_that_move_between_members_lose_and_double_nothing() {
    let (Some(db), Some(straight)) = (super::db(), super::db()) else { return };
    let mut world = World::new(23, 4);
    world.run(1200);
    let log = world.log();
    let mut random = Random(23);
    let place = |partition| TopicPartition { topic: Arc::from(Group::Accounts.topic()), partition };
    let new = || {
        let tables = db.config().tables(Group::Accounts);
        Handler::<AccountModel>::new(&tables, log.clone(), Arc::new(Progress::default()), None).unwrap()
    };
    let mut members = [new(), new()];
    let mut owner = [0_usize, 1, 0, 1];
    for partition in 0..4 {
        members[owner[partition as usize]].assigned(&[place(partition)]).unwrap();
    }
    let mut rounds = 0;
    loop {
        let mut left = 0;
        for member in &mut members {
            let mut offers = offers(member, &log, 20);
            member.handle(&mut offers).unwrap();
            left += offers.len();
        }
        rounds += 1;
        assert!(rounds < 10_000, "it comes to an end");
        if left == 0 {
            break;
        }
        let partition = random.below(4) as usize;
        members[owner[partition]].revoked(&[place(partition as u32)]);
        owner[partition] = 1 - owner[partition];
        members[owner[partition]].assigned(&[place(partition as u32)]).unwrap();
    }
    drop(members);
    caught_up(&straight, world.log()).shutdown();
    let facts = |db: &Db| {
        let dump = dump(db, Group::Accounts);
        dump.lines().filter(|line| !line.starts_with("places")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(facts(&db), facts(&straight));
}

#[test]
fn a_database_ahead_of_the_log_waits_for_it() {
    // The log lost its end in a power cut, the database did not; the publisher brings the same messages again.
    let mut world = World::new(15, 1);
    world.run(300);
    let cut = world.events.len();
    world.run(300);
    let (Some(dir), Some(straight)) = (super::db(), super::db()) else { return };
    caught_up(&dir, world.log()).shutdown();
    let mut again = Publisher::new(Arc::new(MemoryLog::new()), 1);
    again.publish(&world.events[..cut]);
    let stores = crate::tests::support::stores(&dir, again.log.clone());
    stores.start().unwrap();
    assert_eq!(stores.position(Group::Orders).lag, 0);
    again.publish(&world.events[cut..]);
    let old = world.events.len();
    world.run(300);
    again.publish(&world.events[old..]);
    for group in Group::ALL {
        assert!(stores.wait_current(group, crate::tests::support::WAIT), "{:?}", stores.position(group));
    }
    stores.shutdown();
    caught_up(&straight, again.log.clone()).shutdown();
    for group in Group::ALL {
        assert_eq!(dump(&dir, group), dump(&straight, group), "{group:?}");
    }
}

#[test]
fn a_database_beside_another_log_is_refused() {
    let Some(dir) = super::db() else { return };
    let mut world = World::new(16, 1);
    world.run(300);
    caught_up(&dir, world.log()).shutdown();
    let mut other = World::new(17, 1);
    other.run(600);
    let stores = crate::tests::support::stores(&dir, other.log());
    stores.start().unwrap();
    for group in Group::ALL {
        assert!(!stores.wait_applied(group, Seq(u64::MAX), crate::tests::support::WAIT));
        let fault = stores.position(group).fault.unwrap();
        assert!(matches!(*fault, crate::StoreError::StepBack { .. }), "{fault}");
    }
}

#[test]
fn a_command_is_applied_only_with_its_last_message() {
    let Some(dir) = super::db() else { return };
    let mut publisher = Publisher::new(Arc::new(MemoryLog::new()), 1);
    let event = |seq, index| EventRecord {
        seq: Seq(seq),
        index,
        time: Timestamp(1),
        event: Event::AccountCreated { account: AccountId(1) },
    };
    publisher.publish(&[event(3, 0), event(5, 0), event(5, 1), event(5, 4), event(9, 0)]);
    let progress = Arc::new(Progress::default());
    let mut member = member::<AccountModel>(&dir, &publisher.log, progress.clone());
    // Everything before a message is complete, the message's own command not before the next one or the end of the log.
    for applied in [2, 4, 4, 4, 9] {
        member.handle(&mut offers(&member, &publisher.log, 1)).unwrap();
        assert_eq!(progress.applied(), Seq(applied));
    }
}
