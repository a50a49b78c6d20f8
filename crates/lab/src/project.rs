//! `bench project`: the group `order-projection` reads a full event log into its tables, as fast as it can.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_core::codec::encode_event;
use hoga_core::command::{Command, RULES_VERSION};
use hoga_core::event::{Event, EventRecord};
use hoga_core::exchange::Exchange;
use hoga_core::ids::Timestamp;
use hoga_engine::{PROJECTION, TRADES};
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog, Message, TopicSpec};
use hoga_sim::mixed::{Mix, Mixed};
use hoga_store::{Database, Group, PostgresConfig, StoreError, Stores, StoresConfig};
use serde_json::json;

use crate::orders::BenchError;
use crate::process::{TempDir, cpu_seconds};
use crate::report::{Report, round1};
use crate::services::Service;

/// Where the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A SQLite file.
    Sqlite,
    /// PostgreSQL, a server of its own.
    Postgres,
}

/// Runs in turn; the one with the median rate is reported.
const TURNS: usize = 3;
/// Time of the first event, in microseconds.
const START: i64 = 1_700_000_000_000_000;
/// Longest time of one run.
const LONG: Duration = Duration::from_secs(1_800);

impl From<StoreError> for BenchError {
    fn from(error: StoreError) -> BenchError {
        BenchError::Unfit(format!("[{}] {error}", error.code()))
    }
}

/// Fills a log with `events` order events and the trades among them, then projects it, each time into empty tables.
pub fn run(store: Store, events: u64) -> Result<Report, BenchError> {
    let name = if store == Store::Sqlite { "sqlite" } else { "postgres" };
    eprintln!("bench project: {events} order events into {name}, {TURNS} times");
    let folder = TempDir::new("bench-project")?;
    let config = EmbeddedConfig { segment_bytes: 64 << 20, ..EmbeddedConfig::default() };
    let log: Arc<dyn EventLog> = Arc::new(EmbeddedLog::open(folder.path().join("log"), config)?);
    let trades = fill(&*log, events)?;
    let service = (store == Store::Postgres).then(Service::postgres).transpose()?;
    let mut runs = Vec::new();
    for turn in 0..TURNS {
        let database = match &service {
            None => Database::Sqlite { dir: folder.path().join(format!("store-{turn}")) },
            Some(service) => Database::Postgres(PostgresConfig {
                schema_prefix: format!("turn{turn}_"),
                ..PostgresConfig::new(service.address())
            }),
        };
        let ran = project(database, &log)?;
        eprintln!("bench project: turn {}: {:.0} rows/s", turn + 1, ran.rows as f64 / ran.seconds);
        runs.push(ran);
    }
    runs.sort_by(|a, b| (a.rows as f64 / a.seconds).total_cmp(&(b.rows as f64 / b.seconds)));
    let ran = &runs[TURNS / 2];
    let mut report = Report::new("project", json!({ "store": name, "events": events, "turns": TURNS }));
    report.seconds = round1(ran.seconds);
    report.achieved_per_s = round1(ran.messages as f64 / ran.seconds);
    report.cpu_client_s = round1(ran.cpu_s);
    report.left_out =
        "the network and the database's own processor time (the server, if any, shares this machine)"
            .to_owned();
    report.set("rows_per_s", round1(ran.rows as f64 / ran.seconds));
    report.set("messages_per_s", round1(ran.messages as f64 / ran.seconds));
    report.set("rows", ran.rows);
    report.set("trades", trades);
    Ok(report)
}

struct Ran {
    messages: u64,
    rows: u64,
    seconds: f64,
    cpu_s: f64,
}

fn project(database: Database, log: &Arc<dyn EventLog>) -> Result<Ran, BenchError> {
    let stores = Stores::open_with(StoresConfig::on(database), Arc::clone(log))?;
    let (cpu, begun) = (cpu_seconds("self"), Instant::now());
    stores.start_only(&[Group::Orders])?;
    if !stores.wait_current(Group::Orders, LONG) {
        return Err(BenchError::Unfit(format!(
            "order-projection stands still: {:?}",
            stores.position(Group::Orders)
        )));
    }
    let (seconds, position) = (begun.elapsed().as_secs_f64(), stores.position(Group::Orders));
    let cpu_s = cpu_seconds("self") - cpu;
    stores.shutdown();
    // The next run reads the same log from its beginning.
    for topic in Group::Orders.topics() {
        log.forget_group(Group::Orders.as_str(), topic)?;
    }
    Ok(Ran { messages: position.messages, rows: position.rows, seconds, cpu_s })
}

/// A message: topic, key with its length, value, time.
type Publication = (&'static str, [u8; 8], usize, Vec<u8>, Timestamp);

/// Runs the mixed flow through the exchange and publishes orders and trades as the engine does; the number of trades.
fn fill(log: &dyn EventLog, events: u64) -> Result<u64, BenchError> {
    log.create_topic(&TopicSpec::delete(TRADES, 1, u64::MAX))?;
    log.create_topic(&TopicSpec::compact(PROJECTION, 1))?;
    let mut flow = Mixed::new(Mix::default());
    let setup = flow.setup();
    let mut exchange = Exchange::new();
    let (mut orders, mut trades, mut time) = (0_u64, 0_u64, START);
    let mut made: Vec<EventRecord> = Vec::new();
    for body in setup.into_iter().chain(&mut flow) {
        time += 50; // 20,000 commands a second
        let seq = exchange.position().next();
        let command =
            Command { seq, time: Timestamp(time), rules: RULES_VERSION, deadline: Timestamp(0), body };
        let _ = exchange.apply(&command, &mut made); // a reject is an event like any other
        if made.len() < 2_000 && orders < events {
            continue;
        }
        let mut values: Vec<Publication> = Vec::with_capacity(made.len());
        for record in made.drain(..) {
            let (topic, key, len, number) = match &record.event {
                Event::Order(order) if orders < events => {
                    orders += 1;
                    (PROJECTION, order.order.id.0.to_le_bytes(), 8, orders)
                }
                Event::Trade(trade) => {
                    trades += 1;
                    let mut key = [0; 8];
                    key[..2].copy_from_slice(&trade.market.0.to_le_bytes());
                    (TRADES, key, 2, trades)
                }
                _ => continue,
            };
            let mut value = Vec::with_capacity(320);
            encode_event(&record, number, &mut value);
            values.push((topic, key, len, value, record.time));
        }
        for topic in [TRADES, PROJECTION] {
            let messages: Vec<Message<'_>> = values
                .iter()
                .filter(|(to, ..)| *to == topic)
                .map(|(_, key, len, value, time)| Message {
                    key: &key[..*len],
                    value: Some(value),
                    time: *time,
                })
                .collect();
            log.append(topic, &messages)?;
        }
        if orders >= events {
            break;
        }
    }
    log.sync()?;
    Ok(trades)
}
