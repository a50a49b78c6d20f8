//! Notifications and alerts: both groups on a log in memory, and an engine that is a list of orders.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hoga_core::alert::Condition;
use hoga_core::codec::encode_event;
use hoga_core::event::{Balance, Event, EventRecord, Reject, Trade, Transfer, TransferKind};
use hoga_core::ids::{
    AccountId, AssetId, ClientId, MarketId, OrderId, Seq, Timestamp, TradeId, WithdrawalId,
};
use hoga_core::money::{Amount, Price, Qty};
use hoga_core::order::{NewOrder, OrderType, Side, StpMode, TimeInForce};
use hoga_log::consumer::{BatchHandler, Offer, Run, TopicPartition};
use hoga_log::event_log::{EventLog, MemoryLog, Message, StoredMessage, TopicSpec, partition_for};

use super::db;
use crate::handler::Handler;
use crate::model::{Model, Outside};
use crate::notifications::NotificationModel;
use crate::progress::Progress;
use crate::tests::support::{Db, dump, stores, topics};
use crate::triggers::TriggerModel;
use crate::*;

const PARTITIONS: u32 = 3;
const ALL: [u32; PARTITIONS as usize] = [0, 1, 2];
const MARKET: MarketId = MarketId(4);

/// An engine that remembers orders by client id. `silent`: it takes an order and its answer gets lost.
#[derive(Default)]
struct Orders {
    taken: Mutex<Vec<NewOrder>>,
    silent: Mutex<u32>,
    refuse: Mutex<Option<Reject>>,
}

impl CommandPort for Orders {
    fn place(&self, order: &NewOrder) -> Result<Answer, Unanswered> {
        if let Some(reason) = *self.refuse.lock().unwrap() {
            return Ok(Answer::Refused(reason));
        }
        let mut taken = self.taken.lock().unwrap();
        taken.push(*order);
        let mut silent = self.silent.lock().unwrap();
        if *silent > 0 {
            *silent -= 1;
            return Err(Unanswered("the connection broke".into()));
        }
        Ok(Answer::Placed(OrderId(taken.len() as u64)))
    }

    fn find(
        &self,
        account: AccountId,
        market: MarketId,
        client_id: &ClientId,
    ) -> Result<Option<OrderId>, Unanswered> {
        let taken = self.taken.lock().unwrap();
        let at = taken
            .iter()
            .position(|o| o.account == account && o.market == market && o.client_id == *client_id);
        Ok(at.map(|at| OrderId(at as u64 + 1)))
    }
}

struct World {
    db: Db,
    log: Arc<dyn EventLog>,
    port: Arc<Orders>,
    /// The last number of each partition.
    numbers: Mutex<BTreeMap<(&'static str, u32), u64>>,
    seq: AtomicU64,
}

impl World {
    fn new() -> Option<World> {
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        topics(&*log, PARTITIONS);
        Some(World {
            db: db()?,
            log,
            port: Arc::default(),
            numbers: Mutex::default(),
            seq: AtomicU64::new(0),
        })
    }

    fn stores(&self) -> Stores {
        stores(&self.db, self.log.clone())
    }

    fn started(&self) -> Stores {
        let stores = self.stores();
        stores.connect(self.port.clone());
        stores.start_only(&[Group::Notifications, Group::Triggers]).unwrap();
        stores
    }

    /// Appends an event, numbered as the engine's publisher does.
    fn append(&self, topic: &'static str, key: &[u8], time: i64, event: Event) {
        let mut numbers = self.numbers.lock().unwrap();
        let number = numbers.entry((topic, partition_for(key, PARTITIONS))).or_default();
        *number += 1;
        let seq = self.seq.fetch_add(1, Ordering::SeqCst) + 1;
        let record = EventRecord { seq: Seq(seq), index: 0, time: Timestamp(time), event };
        let mut value = Vec::new();
        encode_event(&record, *number, &mut value);
        self.log.append(topic, &[Message { key, value: Some(&value), time: record.time }]).unwrap();
    }

    fn trade(&self, price: i64, time: i64) {
        self.trade_in(MARKET, price, time);
    }

    fn trade_in(&self, market: MarketId, price: i64, time: i64) {
        let trade = Trade {
            market,
            id: TradeId(self.seq.load(Ordering::SeqCst) + 1),
            price: Price(price),
            qty: Qty(1),
            quote: Amount(price),
            buy_order: OrderId(1),
            sell_order: OrderId(2),
            buyer: AccountId(8),
            seller: AccountId(9),
            taker_side: Side::Buy,
            buyer_fee: Amount(0),
            seller_fee: Amount(0),
        };
        self.append(TRADES, &market.0.to_le_bytes(), time, Event::Trade(trade));
    }

    fn deposit(&self, account: u32, time: i64) {
        let account = AccountId(account);
        let transfer = Transfer {
            kind: TransferKind::Deposit,
            account,
            asset: AssetId(0),
            amount: Amount(5),
            reference: ClientId::new("ref").unwrap(),
            withdrawal: WithdrawalId(0),
            balance: Balance::default(),
            repeated: false,
        };
        self.append(LIFECYCLE, &account.0.to_le_bytes(), time, Event::Transfer(transfer));
    }

    fn messages(&self, topic: &str) -> Vec<StoredMessage> {
        let mut all = Vec::new();
        for partition in 0..PARTITIONS {
            self.log.read(topic, partition, 0, 100_000, &mut all).unwrap();
        }
        all
    }

    /// What some whole partitions offer.
    fn offers(&self, topic: &str, partitions: &[u32]) -> Vec<Offer> {
        let of = |partition: &u32| {
            let mut messages = Vec::new();
            let next = self.log.read(topic, *partition, 0, 100_000, &mut messages).unwrap();
            let place = TopicPartition { topic: topic.into(), partition: *partition };
            Offer { run: Run { place, messages, next }, taken: 0 }
        };
        partitions.iter().map(of).collect()
    }

    /// A member of a group, with some partitions of a topic, that tells a log what follows.
    fn member<M: Model>(&self, topic: &str, partitions: &[u32], told: &Arc<dyn EventLog>) -> Handler<M> {
        let outside = Outside { log: told.clone(), sending: Arc::default() };
        let tables = self.db.config().tables(M::GROUP);
        let mut handler =
            Handler::new(&tables, self.log.clone(), Arc::new(Progress::default()), Some(outside)).unwrap();
        let place = |partition: &u32| TopicPartition { topic: topic.into(), partition: *partition };
        let places: Vec<TopicPartition> = partitions.iter().map(place).collect();
        handler.assigned(&places).unwrap();
        handler
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "waited 30 s until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn alert(account: u32, condition: Condition, level: i64, with_order: bool) -> NewAlert {
    let order = NewOrder {
        account: AccountId(account),
        market: MarketId(1),
        side: Side::Buy,
        order_type: OrderType::Market,
        tif: TimeInForce::Gtc,
        price: Price(0),
        stop_price: Price(0),
        qty: Qty(3),
        quote_qty: Amount(0),
        iceberg_qty: Qty(0),
        trailing_delta: 0,
        stp: StpMode::None,
        client_id: ClientId::new("any").unwrap(),
    };
    NewAlert {
        account: AccountId(account),
        client_id: ClientId::NONE,
        market: MARKET,
        condition,
        level: Price(level),
        order: with_order.then_some(order),
    }
}

fn arm(notify: &Stores, new: &NewAlert, now: i64) -> Alert {
    match notify.alerts().create(new, Timestamp(now)).unwrap() {
        Created::New(alert) => alert,
        other => panic!("{other:?}"),
    }
}

fn state(notify: &Stores, account: u32, id: u64) -> AlertState {
    let list = notify.alerts().list(AccountId(account), None, 1000).unwrap();
    list.iter().find(|alert| alert.id == id).unwrap().state
}

fn notifications(notify: &Stores, account: u32) -> Vec<Notification> {
    let query = NotificationQuery { account: AccountId(account), kind: None, after: Some(0), limit: 1000 };
    notify.notifications().list(&query).unwrap()
}

#[test]
fn an_alert_fires_once_and_is_told_once_with_two_rapid_crossings() {
    let Some(world) = World::new() else { return };
    let notify = world.started();
    let (tx, rx) = std::sync::mpsc::channel();
    notify.listen(Box::new(move |n| tx.send(*n).unwrap())).unwrap();
    let mine = arm(&notify, &alert(7, Condition::Above, 100, false), 10);
    let early = arm(&notify, &alert(7, Condition::Above, 100, false), 1_000);
    world.trade(99, 20);
    world.trade(100, 21);
    world.trade(99, 22);
    world.trade(101, 23);
    until("it has fired", || state(&notify, 7, mine.id) == AlertState::Fired);
    until("it is stored", || !notifications(&notify, 7).is_empty());
    // A deposit behind it shows that nothing more comes before.
    world.deposit(7, 30);
    assert!(notify.wait_current(Group::Notifications, Duration::from_secs(30)));
    let all = notifications(&notify, 7);
    assert_eq!(all.iter().map(|n| n.kind).collect::<Vec<_>>(), [Kind::Alert, Kind::Deposit]);
    let Cause::Alert(fired) = all[0].cause else { panic!("{all:?}") };
    assert_eq!(
        (fired.alert, fired.account, fired.price, fired.time),
        (mine.id, AccountId(7), Price(100), Timestamp(21))
    );
    assert_eq!(state(&notify, 7, early.id), AlertState::Armed, "trades from before it was made do not count");
    until("both groups are current", || {
        [Group::Notifications, Group::Triggers].iter().all(|group| notify.position(*group).lag == 0)
    });
    let pushed: Vec<Notification> =
        (0..2).map(|_| rx.recv_timeout(Duration::from_secs(30)).unwrap()).collect();
    assert_eq!(pushed, all);
    assert_eq!(world.messages(FIRED).len(), 1);
}

#[test]
fn a_deleted_alert_never_fires_and_is_only_its_owners() {
    let Some(world) = World::new() else { return };
    let notify = world.started();
    let kept = arm(&notify, &alert(7, Condition::Below, 50, false), 10);
    let gone = arm(&notify, &alert(7, Condition::Below, 50, false), 10);
    assert_eq!(notify.alerts().cancel(AccountId(8), gone.id, Timestamp(11)).unwrap(), None);
    let taken = notify.alerts().cancel(AccountId(7), gone.id, Timestamp(11)).unwrap().unwrap();
    assert_eq!(taken.state, AlertState::Canceled);
    world.trade(50, 20);
    until("the other has fired", || state(&notify, 7, kept.id) == AlertState::Fired);
    assert_eq!(state(&notify, 7, gone.id), AlertState::Canceled);
    let late = notify.alerts().cancel(AccountId(7), kept.id, Timestamp(30)).unwrap().unwrap();
    assert_eq!(late.state, AlertState::Fired);
}

#[test]
fn a_redelivery_fires_nothing_and_places_nothing_again() {
    let Some(world) = World::new() else { return };
    let notify = world.stores();
    let mine = arm(&notify, &alert(7, Condition::Above, 100, true), 10);
    world.trade(100, 20);
    // The same messages to three members after each other, each as after a crash; the last one has lost its places too.
    for round in 0..3 {
        if round == 2 {
            assert!(world.db.execute(Group::Triggers, "DELETE FROM places"));
        }
        let mut handler = world.member::<TriggerModel>(TRADES, &ALL, &world.log);
        for _ in 0..2 {
            handler.handle(&mut world.offers(TRADES, &ALL)).unwrap();
        }
    }
    assert_eq!(state(&notify, 7, mine.id), AlertState::Fired);
    assert_eq!(world.messages(FIRED).len(), 1);
    notify.connect(world.port.clone());
    notify.start_only(&[Group::Triggers]).unwrap();
    until("the order is placed", || state(&notify, 7, mine.id) == AlertState::Done);
    assert_eq!(world.port.taken.lock().unwrap().len(), 1);
}

#[test]
fn a_crash_between_commit_and_append_loses_and_doubles_nothing() {
    let Some(world) = World::new() else { return };
    for account in 1..=6 {
        world.deposit(account, i64::from(account));
    }
    // Another log: the batch is stored, and what is told gets lost.
    let deaf: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    deaf.create_topic(&TopicSpec::delete(NOTIFICATION, PARTITIONS, 1 << 30)).unwrap();
    let mut first = world.member::<NotificationModel>(LIFECYCLE, &ALL, &deaf);
    first.handle(&mut world.offers(LIFECYCLE, &ALL)).unwrap();
    drop(first);
    assert!(world.messages(NOTIFICATION).is_empty(), "nothing is told in the real log");
    let notify = world.started();
    until("all is told", || world.messages(NOTIFICATION).len() == 6);
    drop(notify);
    // Started again, with everything offered again: nothing is stored or told twice.
    let mut again = world.member::<NotificationModel>(LIFECYCLE, &ALL, &world.log);
    again.handle(&mut world.offers(LIFECYCLE, &ALL)).unwrap();
    drop(again);
    assert_eq!(world.messages(NOTIFICATION).len(), 6);
    let notify = world.stores();
    for account in 1..=6 {
        let stored = notifications(&notify, account);
        assert_eq!(stored.len(), 1, "account {account}");
        let told = world.messages(NOTIFICATION);
        let told: Vec<_> = told
            .iter()
            .filter_map(|m| decode_notification(m.value.as_deref()?))
            .filter(|n| n.account.0 == account)
            .collect();
        assert_eq!(told, stored);
    }
}

#[test]
fn an_alert_that_is_announced_twice_is_stored_once() {
    let Some(world) = World::new() else { return };
    let notify = world.started();
    let mine = arm(&notify, &alert(7, Condition::Above, 100, false), 10);
    world.trade(100, 20);
    until("it is stored", || !notifications(&notify, 7).is_empty());
    // As after a crash between the append and the note of it.
    notify.shutdown();
    assert!(world.db.execute(Group::Triggers, &format!("UPDATE alerts SET told = 0 WHERE id = {}", mine.id)));
    drop(notify);
    let notify = world.started();
    until("it is announced again", || world.messages(FIRED).len() == 2);
    assert!(notify.wait_current(Group::Notifications, Duration::from_secs(30)));
    assert_eq!(notifications(&notify, 7).len(), 1);
}

#[test]
fn an_order_whose_answer_was_lost_is_looked_for_and_not_sent_again() {
    let Some(world) = World::new() else { return };
    *world.port.silent.lock().unwrap() = 1;
    let notify = world.started();
    let mine = arm(&notify, &alert(7, Condition::Above, 100, true), 10);
    world.trade(100, 20);
    until("the order is known", || state(&notify, 7, mine.id) == AlertState::Done);
    let taken = world.port.taken.lock().unwrap();
    assert_eq!(taken.len(), 1);
    let stored = notify.alerts().list(AccountId(7), None, 10).unwrap().remove(0);
    assert_eq!(stored.order_client_id, Some(taken[0].client_id));
    assert!(taken[0].client_id.as_str().starts_with(&format!("trig-{}-", mine.id)));
    assert_eq!(stored.order_id, Some(OrderId(1)));
}

#[test]
fn a_refused_order_is_told_as_failed() {
    let Some(world) = World::new() else { return };
    *world.port.refuse.lock().unwrap() = Some(Reject::LotSize);
    let notify = world.started();
    let mine = arm(&notify, &alert(7, Condition::Above, 100, true), 10);
    world.trade(100, 20);
    until("it has failed", || state(&notify, 7, mine.id) == AlertState::Failed);
    let stored = notify.alerts().list(AccountId(7), Some(AlertState::Failed), 10).unwrap().remove(0);
    assert_eq!(stored.refusal.as_deref(), Some(Reject::LotSize.as_str()));
}

#[test]
fn armed_alerts_are_limited_and_a_name_is_used_once() {
    let Some(world) = World::new() else { return };
    let notify = world.stores();
    let named =
        NewAlert { client_id: ClientId::new("mine").unwrap(), ..alert(7, Condition::Above, 5, false) };
    let first = arm(&notify, &named, 1);
    assert_eq!(notify.alerts().create(&named, Timestamp(2)).unwrap(), Created::Known(first.clone()));
    for _ in 1..MAX_ARMED {
        arm(&notify, &alert(7, Condition::Above, 5, false), 1);
    }
    let more = alert(7, Condition::Above, 5, false);
    assert_eq!(notify.alerts().create(&more, Timestamp(2)).unwrap(), Created::TooMany);
    arm(&notify, &alert(8, Condition::Above, 5, false), 1);
    notify.alerts().cancel(AccountId(7), first.id, Timestamp(3)).unwrap();
    arm(&notify, &more, 4);
}

#[test]
fn the_longest_order_name_fits() {
    let fired = Fired {
        alert: i64::MAX as u64,
        account: AccountId(1),
        market: MARKET,
        condition: Condition::Above,
        level: Price(1),
        price: Price(1),
        trade: TradeId(u64::MAX),
        time: Timestamp(0),
        partition: u32::MAX,
        offset: u64::MAX,
        has_order: true,
    };
    assert!(order_client_id(&fired).as_str().len() <= ClientId::MAX);
    assert_ne!(order_client_id(&fired), order_client_id(&Fired { offset: 1, ..fired }));
}

#[test]
fn two_members_tell_what_each_stores_and_nothing_twice() {
    let Some(world) = World::new() else { return };
    if matches!(world.db.config().database, Database::Sqlite { .. }) {
        return; // a file has one member
    }
    let notify = world.stores();
    for account in 1..=9 {
        world.deposit(account, 5);
        arm(&notify, &alert(account, Condition::Above, 100, false), 10);
    }
    // One fires and announces the alerts of one partition of trades, another one those of the others.
    let part = partition_for(&MARKET.0.to_le_bytes(), PARTITIONS);
    let others: Vec<u32> = ALL.into_iter().filter(|other| *other != part).collect();
    let mut fires = world.member::<TriggerModel>(TRADES, &[part], &world.log);
    let mut idles = world.member::<TriggerModel>(TRADES, &others, &world.log);
    world.trade(101, 20);
    fires.handle(&mut world.offers(TRADES, &[part])).unwrap();
    idles.handle(&mut world.offers(TRADES, &others)).unwrap();
    assert_eq!(world.messages(FIRED).len(), 9);
    // One stores what happened, another one the alerts: in the same partitions.
    let mut happened = world.member::<NotificationModel>(LIFECYCLE, &ALL, &world.log);
    let mut alerts = world.member::<NotificationModel>(FIRED, &ALL, &world.log);
    alerts.handle(&mut world.offers(FIRED, &ALL)).unwrap();
    happened.handle(&mut world.offers(LIFECYCLE, &ALL)).unwrap();
    alerts.handle(&mut []).unwrap();
    happened.handle(&mut []).unwrap();
    let mut told: Vec<u64> = world
        .messages(NOTIFICATION)
        .iter()
        .filter_map(|message| decode_notification(message.value.as_deref()?))
        .map(|notification| notification.id)
        .collect();
    assert_eq!(told.len(), 18);
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 18, "no number is given twice");
    // The partitions of one go to the other, which knows nothing of them yet.
    let places: Vec<TopicPartition> =
        [part].map(|partition| TopicPartition { topic: TRADES.into(), partition }).to_vec();
    let late = arm(&notify, &alert(3, Condition::Below, 50, false), 30);
    fires.revoked(&places);
    idles.assigned(&places).unwrap();
    world.trade(40, 40);
    idles.handle(&mut world.offers(TRADES, &[part])).unwrap();
    assert_eq!(state(&notify, 3, late.id), AlertState::Fired);
    assert_eq!(world.messages(FIRED).len(), 10);
}

#[test]
fn a_rebuild_gives_the_same_notifications_and_tells_nothing_again_and_alerts_stay() {
    let Some(world) = World::new() else { return };
    let notify = world.started();
    for account in 1..=6 {
        world.deposit(account, 5);
    }
    let mine = arm(&notify, &alert(7, Condition::Above, 100, false), 10);
    world.trade(100, 20);
    until("it is told", || world.messages(NOTIFICATION).len() == 7);
    let before: Vec<_> = (1..=7).map(|account| notifications(&notify, account)).collect();
    assert!(world.db.execute(Group::Notifications, "DELETE FROM notifications"));
    notify.rebuild(Group::Notifications).unwrap();
    let after: Vec<_> = (1..=7).map(|account| notifications(&notify, account)).collect();
    let plain = |all: &[Vec<Notification>]| -> Vec<Vec<(Kind, Timestamp, Cause)>> {
        all.iter().map(|of| of.iter().map(|n| (n.kind, n.time, n.cause)).collect()).collect()
    };
    assert_eq!(plain(&after), plain(&before));
    // A deposit behind it shows that nothing was told once more.
    world.deposit(1, 30);
    until("the next one is told", || world.messages(NOTIFICATION).len() >= 8);
    assert_eq!(world.messages(NOTIFICATION).len(), 8);

    let alerts = dump(&world.db, Group::Triggers);
    let refused = notify.rebuild(Group::Triggers).unwrap_err();
    assert_eq!(refused.code(), "store-not-rebuildable");
    assert_eq!(dump(&world.db, Group::Triggers), alerts);
    assert_eq!(state(&notify, 7, mine.id), AlertState::Fired);
    assert!(notify.position(Group::Triggers).running);
}
