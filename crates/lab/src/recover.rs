//! `bench recover`: replay of a journal, then a restart from a snapshot with many open orders.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use hoga_core::codec;
use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, Seq, Timestamp};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{NewOrder, OrderType, Side, StpMode, TimeInForce};
use hoga_log::LogError;
use hoga_log::journal::{Batch, Durability, Journal, JournalConfig, JournalReader};
use hoga_log::storage::Disk;
use hoga_sim::market::{ASSETS, MARKETS, default_market};
use hoga_sim::mixed::{Mix, Mixed};
use serde_json::json;

use crate::orders::BenchError;
use crate::process::{Server, TempDir, cpu_seconds};
use crate::report::{Report, round1};

const START: i64 = 1_700_000_000_000_000;

impl From<LogError> for BenchError {
    fn from(error: LogError) -> BenchError {
        BenchError::Unfit(error.to_string())
    }
}

/// Runs both halves.
pub fn run(commands: u64, open_orders: u64) -> Result<Report, BenchError> {
    let folder = TempDir::new("bench-recover")?;
    eprintln!("bench recover: writing a journal of {commands} commands");
    let mut flow = Mixed::new(Mix::default());
    let setup = flow.setup();
    let mixed = folder.path().join("mixed");
    let written = write(&mixed, setup.into_iter().chain(&mut flow).take(commands as usize))?;
    eprintln!("bench recover: replaying it");
    let cpu = cpu_seconds("self");
    let begun = Instant::now();
    let exchange = replay(&mixed, written)?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = cpu_seconds("self") - cpu;
    let digest = exchange.digest();
    drop(exchange);

    eprintln!(
        "bench recover: a system with {open_orders} open orders; the first start reads them into the read models"
    );
    let data = folder.path().join("data");
    write(&data.join("engine").join("journal"), resting(open_orders))?;
    let first = Server::start(&data, &["--no-market"])?;
    let first_ms = first.start.as_millis() as u64;
    first.terminate(Duration::from_secs(60))?;
    let snapshot = newest(&data.join("engine").join("snapshots"))?;
    let mut starts = Vec::new();
    let mut rss = 0.0;
    for _ in 0..3 {
        let server = Server::start(&data, &["--no-market"])?;
        starts.push(server.start.as_millis() as u64);
        rss = server.peak_rss_mib();
        server.terminate(Duration::from_secs(60))?;
    }
    starts.sort_unstable();

    let mut report = Report::new("recover", json!({ "commands": commands, "open_orders": open_orders }));
    report.seconds = round1(seconds);
    report.achieved_per_s = (written as f64 / seconds).round();
    report.cpu_server_s = round1(cpu);
    report.rss_mib = round1(rss);
    report.left_out =
        "the replay half has no topics, read models or streams; the journal is in the page cache".to_owned();
    report.set("replay_per_s", (written as f64 / seconds).round());
    report.set("restart_ms", starts[starts.len() / 2]);
    report.set("first_start_ms", first_ms);
    report.set("snapshot_mib", round1(snapshot as f64 / f64::from(1 << 20)));
    report.set("digest", format!("{digest:032x}"));
    Ok(report)
}

/// Writes commands as a journal; how many.
fn write(dir: &Path, bodies: impl Iterator<Item = Body>) -> Result<u64, BenchError> {
    std::fs::create_dir_all(dir)?;
    let config = JournalConfig { durability: Durability::Write, ..JournalConfig::new(dir) };
    let (mut journal, _) = Journal::open(Disk, config)?;
    let mut batch = Batch::new();
    let mut encoded = Vec::new();
    let mut seq = 0;
    for body in bodies {
        seq += 1;
        let time = Timestamp(START + seq as i64);
        let command = Command { seq: Seq(seq), time, rules: RULES_VERSION, deadline: Timestamp(0), body };
        encoded.clear();
        codec::encode_command(&command, &mut encoded);
        batch.push(Seq(seq), &encoded);
        if batch.count() == 1_000 {
            append(&mut journal, &mut batch)?;
        }
    }
    if batch.count() > 0 {
        append(&mut journal, &mut batch)?;
    }
    journal.sync()?;
    Ok(seq)
}

fn append(journal: &mut Journal<Disk>, batch: &mut Batch) -> Result<(), BenchError> {
    journal.append(batch.first(), batch.count(), batch.records())?;
    batch.clear();
    Ok(())
}

fn replay(dir: &Path, upto: u64) -> Result<Exchange, BenchError> {
    let mut reader = JournalReader::open(Disk, dir, Seq(1))?;
    let mut exchange = Exchange::new();
    let mut events = Vec::new();
    let mut damaged = None;
    reader.read(Seq(upto), usize::MAX, |_, payload| match codec::decode_command(payload) {
        Ok(command) => {
            events.clear();
            let _ = exchange.apply(&command, &mut events); // a reject is an outcome like any other
            ControlFlow::Continue(())
        }
        Err(error) => {
            damaged = Some(error.to_string());
            ControlFlow::Break(())
        }
    })?;
    damaged.map_or(Ok(exchange), |text| Err(BenchError::Unfit(text)))
}

/// Accounts and orders that all rest: buys below sells, over all markets and a thousand prices a side.
fn resting(orders: u64) -> impl Iterator<Item = Body> {
    const ACCOUNTS: u32 = 100_000;
    let accounts = ACCOUNTS.min(orders.max(1) as u32);
    let create = (0..accounts).map(|_| Body::CreateAccount);
    let deposits = (1..=accounts).flat_map(|account| {
        (0..ASSETS.len() as u16).map(move |asset| Body::Deposit {
            account: AccountId(account),
            asset: AssetId(asset),
            amount: Amount(500_000 * SCALE),
            reference: ClientId::new(&format!("d{account}-{asset}")).unwrap_or(ClientId::NONE),
        })
    });
    let places = (0..orders).map(move |n| {
        let market = (n % MARKETS.len() as u64) as u16;
        let spec = &MARKETS[usize::from(market)];
        let side = if (n / MARKETS.len() as u64).is_multiple_of(2) { Side::Buy } else { Side::Sell };
        let away = 1 + (n / (2 * MARKETS.len() as u64) % 1_000) as i64;
        let ticks = if side == Side::Buy { -away } else { away };
        let needed = i128::from(spec.notional_min.0) * i128::from(SCALE) * 2 / i128::from(spec.start.0);
        Body::Place(NewOrder {
            account: AccountId(1 + (n % u64::from(accounts)) as u32),
            market: MarketId(market),
            side,
            order_type: OrderType::Limit,
            tif: TimeInForce::Gtc,
            price: Price(spec.start.0 / spec.tick.0 * spec.tick.0 + ticks * spec.tick.0),
            stop_price: Price::ZERO,
            qty: Qty((needed as i64 / spec.lot.0 + 1) * spec.lot.0),
            quote_qty: Amount::ZERO,
            iceberg_qty: Qty::ZERO,
            trailing_delta: 0,
            stp: StpMode::None,
            client_id: ClientId::new(&format!("r{n}")).unwrap_or(ClientId::NONE),
        })
    });
    default_market().into_iter().chain(create).chain(deposits).chain(places)
}

fn newest(dir: &Path) -> Result<u64, BenchError> {
    let mut newest = None;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        newest = newest.max(Some((entry.file_name(), entry.metadata()?.len())));
    }
    newest.map(|(_, len)| len).ok_or_else(|| BenchError::Unfit(format!("no snapshot in {}", dir.display())))
}
