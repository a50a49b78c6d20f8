//! Messages that are missing, repeated, out of place or no messages at all.

use std::sync::Arc;

use hoga_core::codec::encode_event;
use hoga_core::event::{Event, EventRecord};
use hoga_core::ids::{AccountId, Seq, Timestamp};
use hoga_log::event_log::{EventLog, MemoryLog, Message, TopicSpec};

use crate::tests::support::{Publisher, WAIT, World, caught_up, stores, topics};
use crate::{FIRED, Group, NOTIFICATION, StoreError, Stores, StoresConfig};

fn created(seq: u64, index: u32, account: u32) -> EventRecord {
    let event = Event::AccountCreated { account: AccountId(account) };
    EventRecord { seq: Seq(seq), index, time: Timestamp(seq as i64), event }
}

/// Appends an event with a number of choice.
fn put(log: &dyn EventLog, number: u64, record: &EventRecord) {
    let mut value = Vec::new();
    encode_event(record, number, &mut value);
    put_bytes(log, Some(&value));
}

fn put_bytes(log: &dyn EventLog, value: Option<&[u8]>) {
    let message = Message { key: b"key", value, time: Timestamp(7) };
    log.append(Group::Accounts.topic(), &[message]).unwrap();
}

fn log_of_one() -> Arc<dyn EventLog> {
    let log = MemoryLog::new();
    topics(&log, 1);
    Arc::new(log)
}

fn fault_of(stores: &Stores) -> Arc<StoreError> {
    // Never satisfied: returns when the group stops.
    assert!(!stores.wait_applied(Group::Accounts, Seq(u64::MAX), WAIT));
    let position = stores.position(Group::Accounts);
    assert!(!position.running);
    position.fault.unwrap()
}

#[test]
fn a_gap_stops_the_group_and_names_the_place() {
    let Some(dir) = super::db() else { return };
    let log = log_of_one();
    put(&*log, 1, &created(1, 0, 1));
    put(&*log, 2, &created(2, 0, 2));
    put(&*log, 4, &created(4, 0, 4));
    let stores = stores(&dir, log.clone());
    stores.start().unwrap();
    let fault = fault_of(&stores);
    assert!(
        matches!(*fault, StoreError::Gap { expected: 3, got: 4, partition: 0, offset: 2, .. }),
        "{fault}"
    );
    assert!(fault.to_string().contains("order.lifecycle/0 offset 2: message number 4 where 3 was due"));
    // The others do not notice.
    assert!(stores.wait_current(Group::Orders, WAIT) && stores.wait_current(Group::Market, WAIT));
    assert!(stores.position(Group::Orders).running);
    // It refuses again after a restart, and has kept nothing of the batch with the gap.
    stores.start().unwrap();
    assert!(matches!(*fault_of(&stores), StoreError::Gap { expected: 1 | 3, .. }));
}

#[test]
fn a_repeated_number_is_dropped_and_counted() {
    let Some(dir) = super::db() else { return };
    let log = log_of_one();
    for (number, seq) in [(1, 1), (2, 2), (2, 2), (1, 1), (2, 2), (3, 3)] {
        put(&*log, number, &created(seq, 0, seq as u32));
    }
    let stores = caught_up(&dir, log);
    let position = stores.position(Group::Accounts);
    assert_eq!((position.places[0].repeated, position.places[0].number), (3, 3));
    assert_eq!((position.applied, position.dead_letters, position.lag), (Seq(3), 0, 0));
    assert!(position.fault.is_none());
}

#[test]
fn a_step_back_is_refused() {
    let ways: [&[(u64, u64)]; 3] = [
        // The next number, but of a command before the last.
        &[(1, 5), (2, 4)],
        // The last number again, but of another command.
        &[(1, 1), (2, 2), (2, 3)],
        // An earlier number, but of a later command.
        &[(1, 1), (2, 2), (1, 3)],
    ];
    for way in ways {
        let Some(dir) = super::db() else { return };
        let log = log_of_one();
        for (number, seq) in way {
            put(&*log, *number, &created(*seq, 0, 1));
        }
        let stores = stores(&dir, log);
        stores.start().unwrap();
        let fault = fault_of(&stores);
        assert!(matches!(*fault, StoreError::StepBack { .. }), "{way:?}: {fault}");
    }
}

#[test]
fn what_cannot_be_decoded_is_kept_and_the_group_goes_on() {
    let Some(dir) = super::db() else { return };
    let log = log_of_one();
    put(&*log, 1, &created(1, 0, 1));
    put_bytes(&*log, Some(b"no event")); // somebody else's: has no number
    put_bytes(&*log, None);
    put(&*log, 2, &created(2, 0, 2));
    put_bytes(&*log, Some(&[1, 99, 3])); // number 3, damaged
    put(&*log, 4, &created(4, 0, 4));
    let stores = caught_up(&dir, log.clone());
    let position = stores.position(Group::Accounts);
    assert_eq!((position.dead_letters, position.places[0].number), (3, 4));
    let letters = stores.accounts().dead_letters(10).unwrap();
    let places: Vec<_> = letters.iter().map(|letter| (letter.offset, letter.value.clone())).collect();
    assert_eq!(places, [(4, Some(vec![1, 99, 3])), (2, None), (1, Some(b"no event".to_vec()))]);
    let letter = &letters[2];
    assert_eq!(
        (letter.topic.as_str(), letter.partition, &letter.key[..]),
        ("order.lifecycle", 0, &b"key"[..])
    );
    assert!(!letter.reason.is_empty());
    // The operator finds the same ones in the topic of dead letters; a fold in order takes no replays, and says what to do.
    use hoga_log::consumer::dead_letters::{list, replay};
    let mut filed = list(&*log, "order.lifecycle", false).unwrap();
    filed.retain(|filed| filed.letter.group == "account-service"); // notification-service reads the same topic
    let places: Vec<_> =
        filed.iter().map(|filed| (filed.letter.offset, filed.letter.value.clone())).collect();
    assert_eq!(places, [(1, Some(b"no event".to_vec())), (2, None), (4, Some(vec![1, 99, 3]))]);
    assert_eq!((filed[0].letter.group.as_str(), filed[0].letter.attempts), ("account-service", 1));
    let refused = replay(&*log, "order.lifecycle", filed[0].number).unwrap_err().to_string();
    assert!(refused.contains("hoga rebuild account-service"), "{refused}");
    assert_eq!(letter.time, Timestamp(7));
    // One undecodable message explains one missing number, not two.
    put_bytes(&*log, Some(b"?"));
    put(&*log, 7, &created(7, 0, 7));
    let fault = fault_of(&stores);
    assert!(matches!(*fault, StoreError::Gap { expected: 5, got: 7, .. }), "{fault}");
}

#[test]
fn an_event_of_another_topic_is_a_dead_letter() {
    let Some(dir) = super::db() else { return };
    let log = log_of_one();
    let mut value = Vec::new();
    encode_event(&created(1, 0, 1), 1, &mut value);
    for group in [Group::Orders, Group::Market] {
        let message = Message { key: b"k", value: Some(&value), time: Timestamp(1) };
        log.append(group.topic(), &[message]).unwrap();
    }
    let stores = caught_up(&dir, log);
    let letters = stores.orders().dead_letters(9).unwrap();
    let mut reasons: Vec<_> = letters.iter().map(|l| (l.topic.as_str(), l.reason.as_str())).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, [("order.projection", "not an order event"), ("trade.completed", "not a trade")]);
    assert_eq!(stores.market().dead_letters(9).unwrap()[0].reason, "not a trade");
}

#[test]
fn a_log_that_begins_later_than_needed_is_refused_with_its_first_offset() {
    let Some(dir) = super::db() else { return };
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    for group in Group::ALL {
        log.create_topic(&TopicSpec::delete(group.topic(), 1, 1)).unwrap();
    }
    for topic in [FIRED, NOTIFICATION] {
        log.create_topic(&TopicSpec::delete(topic, 1, 1)).unwrap();
    }
    for number in 1..=10 {
        put(&*log, number, &created(number, 0, number as u32));
    }
    log.maintain().unwrap();
    let first = log.start_offset(Group::Accounts.topic(), 0).unwrap();
    assert!(first > 0);
    let stores = stores(&dir, log);
    let error = stores.start().unwrap_err();
    assert!(
        matches!(error, StoreError::Trimmed { needed: 0, first: f, partition: 0, .. } if f == first),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("the log's first is {first}")));
}

#[test]
fn retention_waits_for_a_registered_group() {
    let Some(dir) = super::db() else { return };
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    for group in Group::ALL {
        log.create_topic(&TopicSpec::delete(group.topic(), 1, 1)).unwrap();
    }
    for topic in [FIRED, NOTIFICATION] {
        log.create_topic(&TopicSpec::delete(topic, 1, 1)).unwrap();
    }
    let stores = caught_up(&dir, log.clone());
    stores.shutdown();
    for number in 1..=10 {
        put(&*log, number, &created(number, 0, number as u32));
    }
    log.maintain().unwrap();
    assert_eq!(log.start_offset(Group::Accounts.topic(), 0).unwrap(), 0);
    stores.start().unwrap();
    assert!(stores.wait_applied(Group::Accounts, Seq(10), WAIT));
    stores.shutdown();
    log.maintain().unwrap();
    assert_eq!(log.start_offset(Group::Accounts.topic(), 0).unwrap(), 10);
    stores.start().unwrap();
    put(&*log, 11, &created(11, 0, 11));
    assert!(stores.wait_applied(Group::Accounts, Seq(11), WAIT));
}

#[test]
fn a_compacted_topic_rebuilds_the_orders_and_counts_what_was_gone() {
    let Some(dir) = super::db() else { return };
    let mut world = World::new(21, 1);
    world.run(800);
    let done = world.log().maintain().unwrap();
    assert!(done.compacted > 0);
    let stores = caught_up(&dir, world.log());
    for order in world.orders() {
        assert_eq!(stores.orders().order_by_id(order.request.account, order.id).unwrap(), Some(order));
    }
    let position = stores.position(Group::Orders);
    assert_eq!(position.places[0].compacted, done.compacted);
    assert!(position.fault.is_none());
    // A number that no hole explains is still a gap.
    world.publisher.numbers[1][0] += 1;
    world.run(50);
    assert!(!stores.wait_applied(Group::Orders, Seq(u64::MAX), WAIT));
    assert!(matches!(*stores.position(Group::Orders).fault.unwrap(), StoreError::Gap { .. }));
}

#[test]
fn an_order_whose_market_never_comes_stops_the_accounts() {
    let Some(dir) = super::db() else { return };
    let mut world = World::new(22, 1);
    world.run(50);
    let mut publisher = Publisher::new(Arc::new(MemoryLog::new()), 1);
    let without: Vec<EventRecord> =
        world.events.iter().filter(|r| !matches!(r.event, Event::InstrumentSet(_))).copied().collect();
    publisher.publish(&without);
    let stores = stores(&dir, publisher.log.clone());
    stores.start().unwrap();
    let fault = fault_of(&stores);
    assert!(matches!(*fault, StoreError::UnknownMarket { .. }), "{fault}");
}

#[test]
fn topics_have_to_be_there_and_schemas_have_to_match() {
    let Some(dir) = super::db() else { return };
    let stores = stores(&dir, Arc::new(MemoryLog::new()));
    assert!(matches!(stores.start(), Err(StoreError::Log { group: Group::Accounts, .. })));
    assert!(
        !stores.wait_applied(Group::Accounts, Seq(1), WAIT),
        "a group that does not run is not waited for"
    );
    drop(stores);
    let newer = match dir.database {
        crate::Database::Sqlite { .. } => "PRAGMA user_version = 99",
        crate::Database::Postgres(_) => "UPDATE schema_version SET version = 99",
    };
    assert!(dir.execute(Group::Orders, newer));
    let again = Stores::open_with(dir.config(), Arc::new(MemoryLog::new()));
    assert!(matches!(again.err(), Some(StoreError::Schema { found: 99, wanted: 2, .. })));
}

#[test]
fn whoever_waits_does_not_wait_for_the_linger() {
    let Some(dir) = super::db() else { return };
    let log = log_of_one();
    let config = StoresConfig { linger: WAIT, ..dir.config() };
    let stores = Stores::open_with(config, log.clone()).unwrap();
    put(&*log, 1, &created(1, 0, 1));
    stores.start().unwrap();
    let since = std::time::Instant::now();
    for number in 2..=20 {
        put(&*log, number, &created(number, 0, number as u32));
        assert!(stores.wait_applied(Group::Accounts, Seq(number), WAIT));
    }
    stores.shutdown();
    assert!(since.elapsed() < WAIT / 2, "{:?}", since.elapsed());
}

#[test]
fn the_lag_is_told_before_and_after_the_start() {
    let Some(dir) = super::db() else { return };
    let log = log_of_one();
    let stores = stores(&dir, log.clone());
    for number in 1..=30 {
        put(&*log, number, &created(number, 0, number as u32));
    }
    let position = stores.position(Group::Accounts);
    assert_eq!((position.running, position.lag, position.applied), (false, 30, Seq(0)));
    assert_eq!(position.drain, None, "nobody consumes");
    stores.start().unwrap();
    assert!(stores.wait_current(Group::Accounts, WAIT));
    let position = stores.position(Group::Accounts);
    assert_eq!((position.running, position.lag, position.applied), (true, 0, Seq(30)));
    assert_eq!((position.messages, position.lag_time), (30, std::time::Duration::ZERO));
    stores.shutdown();
    drop(stores);
    put(&*log, 31, &created(31, 0, 31));
    // As the database says, before anything runs.
    let stores = crate::tests::support::stores(&dir, log);
    let position = stores.position(Group::Accounts);
    assert_eq!((position.running, position.lag, position.applied), (false, 1, Seq(30)));
    assert!(position.lag_time > std::time::Duration::ZERO);
}
