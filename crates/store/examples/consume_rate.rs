//! How fast each read model consumes: a random order flow is run through the exchange and published to an embedded event log, then each
//! group consumes it alone, then all together. `cargo run --release -p hoga-store --example consume_rate -- [commands] [accounts] [batch]`
//!
//! With `HOGA_TEST_POSTGRES` (and `--features postgres`) into PostgreSQL at that address, else into SQLite; the processor time is of this
//! process alone, so that of the server comes on top.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_core::codec::encode_event;
use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::{Event, EventRecord};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Timestamp};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};
use hoga_log::event_log::{EmbeddedLog, EventLog, Message, TopicSpec};
use hoga_store::{Database, Group, OrderQuery, PostgresConfig, Stores, StoresConfig};

/// Processor time of this process so far, in seconds: what counts on a machine that others use too.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // After the name in brackets; user and system time are fields 14 and 15 of the line, in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(11) + ticks(12)) / 100.0)
}

/// Bytes that this process handed to files so far.
fn written_bytes() -> Result<f64, Box<dyn Error>> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap_or("0");
    Ok(line.parse()?)
}

const MARKETS: u16 = 4;
const LONG: Duration = Duration::from_secs(600);

struct Flow {
    exchange: Exchange,
    random: u64,
    time: i64,
    events: Vec<EventRecord>,
    numbers: [u64; 3],
    accounts: u32,
    placed: u64,
}

impl Flow {
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn apply(&mut self, body: Body) {
        self.time += 50; // 20,000 commands a second
        let seq = self.exchange.position().next();
        let command =
            Command { seq, time: Timestamp(self.time), rules: RULES_VERSION, deadline: Timestamp(0), body };
        // A reject is an event like any other.
        let _ = self.exchange.apply(&command, &mut self.events);
    }

    /// Mostly orders near the middle, of which about every second one trades; every fourth command is a cancel.
    fn step(&mut self) {
        let account = AccountId(1 + self.below(u64::from(self.accounts)) as u32);
        let market = MarketId(self.below(u64::from(MARKETS)) as u16);
        if self.below(4) == 0 {
            let id = OrderId(self.placed.saturating_sub(self.below(2000)));
            let order = OrderRef::Id(id);
            return self.apply(Body::Cancel { account, market, order, cancel_id: ClientId::NONE });
        }
        self.placed += 1;
        let side = if self.below(2) == 0 { Side::Buy } else { Side::Sell };
        let away = self.below(60) as i64 - 10;
        let ticks = if side == Side::Buy { 10_000 - away } else { 10_000 + away };
        let body = Body::Place(NewOrder {
            account,
            market,
            side,
            order_type: OrderType::Limit,
            tif: TimeInForce::Gtc,
            price: Price(ticks * SCALE / 100),
            stop_price: Price::ZERO,
            qty: Qty((1 + self.below(100) as i64) * SCALE / 1000),
            quote_qty: Amount::ZERO,
            iceberg_qty: Qty::ZERO,
            trailing_delta: 0,
            stp: StpMode::None,
            client_id: ClientId::new(&format!(
                "x-TKT5PX2F{:x}",
                self.placed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ))
            .unwrap_or_default(),
        });
        self.apply(body);
    }

    fn publish(&mut self, log: &dyn EventLog) -> Result<(), Box<dyn Error>> {
        // Trades first, as the engine does.
        for group in [Group::Market, Group::Accounts, Group::Orders] {
            let at = Group::ALL.into_iter().position(|known| known == group).ok_or("a group")?;
            let mut values = Vec::new();
            for record in &self.events {
                let key = match (&record.event, group) {
                    (Event::Level(_), _) => continue,
                    (Event::Trade(trade), Group::Market) => u64::from(trade.market.0),
                    (Event::Order(event), Group::Orders) => event.order.id.0,
                    (Event::Order(event), Group::Accounts) => u64::from(event.order.request.account.0),
                    (Event::Trade(_), _) | (_, Group::Market | Group::Orders) => continue,
                    _ => 0,
                };
                self.numbers[at] += 1;
                let mut value = Vec::with_capacity(320);
                encode_event(record, self.numbers[at], &mut value);
                values.push((key.to_le_bytes(), value, record.time));
            }
            let messages: Vec<Message<'_>> = values
                .iter()
                .map(|(key, value, time)| Message { key, value: Some(value), time: *time })
                .collect();
            log.append(group.topic(), &messages)?;
        }
        self.events.clear();
        Ok(())
    }
}

fn instrument(id: u16) -> Option<Instrument> {
    Some(Instrument {
        id: MarketId(id),
        symbol: Name::new(&format!("COIN{id}USDT"))?,
        base: AssetId(id + 1),
        quote: AssetId(0),
        state: TradingState::Open,
        price_tick: Price(SCALE / 100),
        price_min: Price(SCALE / 100),
        price_max: Price(1_000_000 * SCALE),
        lot_step: Qty(SCALE / 100_000),
        lot_min: Qty(SCALE / 100_000),
        lot_max: Qty(9_000 * SCALE),
        market_lot_max: Qty(9_000 * SCALE),
        notional_min: Amount(1),
        notional_max: Amount(9_000_000 * SCALE),
        percent_up: 0,
        percent_down: 0,
        market_band_bps: 0,
        max_orders: u32::MAX,
        max_algo_orders: u32::MAX,
        max_position: Qty(0),
        maker_fee_ppm: 1000,
        taker_fee_ppm: 1000,
    })
}

fn fill_log(log: &dyn EventLog, commands: u64, accounts: u32) -> Result<(), Box<dyn Error>> {
    for group in Group::ALL {
        log.create_topic(&TopicSpec::delete(group.topic(), 1, u64::MAX))?;
    }
    let mut flow = Flow {
        exchange: Exchange::new(),
        random: 0x1234_5678_9ABC_DEF1,
        time: 1_700_000_000_000_000,
        events: Vec::new(),
        numbers: [0; 3],
        accounts,
        placed: 0,
    };
    for id in 0..=MARKETS {
        let name = Name::new(&format!("ASSET{id}")).ok_or("a name")?;
        flow.apply(Body::AddAsset { id: AssetId(id), name });
    }
    for id in 0..MARKETS {
        flow.apply(Body::SetInstrument(instrument(id).ok_or("an instrument")?));
    }
    for account in (1..=accounts).map(AccountId) {
        flow.apply(Body::CreateAccount);
        for asset in (0..=MARKETS).map(AssetId) {
            let amount = Amount(100_000 * SCALE);
            flow.apply(Body::Deposit { account, asset, amount, reference: ClientId::NONE });
        }
    }
    for step in 0..commands {
        flow.step();
        if step % 500 == 0 {
            flow.publish(log)?;
        }
    }
    flow.publish(log)
}

fn consume(
    batch: usize,
    dir: &Path,
    log: &Arc<dyn EventLog>,
    groups: &[Group],
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let database = match std::env::var("HOGA_TEST_POSTGRES") {
        Ok(url) => {
            let mut config = PostgresConfig::new(url);
            let name = dir.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
            config.schema_prefix = format!("rate{}_{name}_", std::process::id());
            Database::Postgres(config)
        }
        Err(_) => Database::Sqlite { dir: dir.to_path_buf() },
    };
    let stores = Stores::open_with(StoresConfig { batch, ..StoresConfig::on(database) }, log.clone())?;
    let (since, used, written) = (Instant::now(), processor_seconds()?, written_bytes()?);
    stores.start_only(groups)?;
    for group in groups {
        if !stores.wait_current(*group, LONG) {
            return Err(format!("{:?}", stores.position(*group)).into());
        }
        let seconds = since.elapsed().as_secs_f64();
        let position = stores.position(*group);
        writeln!(
            out,
            "  {:20} {:>9} messages in {seconds:6.2} s: {:>8.0} messages/s, {:>8.0} rows/s, {:.0} messages/transaction",
            group.as_str(),
            position.messages,
            position.messages as f64 / seconds,
            position.rows as f64 / seconds,
            position.messages as f64 / position.batches.max(1) as f64,
        )?;
    }
    stores.shutdown();
    let (used, written) = (processor_seconds()? - used, written_bytes()? - written);
    let messages: u64 = stores.positions().iter().map(|position| position.messages).sum();
    writeln!(
        out,
        "  {used:.2} s of processor time: {:.0} messages/s of one core; {:.0} bytes written per message",
        messages as f64 / used.max(0.01),
        written / messages.max(1) as f64
    )?;
    let bytes: u64 = std::fs::read_dir(dir)?.filter_map(|e| e.ok()?.metadata().ok()).map(|m| m.len()).sum();
    writeln!(out, "  {:.0} MB on disk", bytes as f64 / 1e6)?;
    if groups.len() > 1 {
        let since = Instant::now();
        let audit = stores.accounts().audit(None)?;
        writeln!(out, "  audit of {} entries in {:.2} s", audit.entries, since.elapsed().as_secs_f64())?;
        let since = Instant::now();
        let query = OrderQuery { limit: 500, ..OrderQuery::default() };
        for account in 1..=100 {
            stores.orders().all_orders(AccountId(account), MarketId(0), &query)?;
        }
        writeln!(out, "  allOrders: {:.2} ms each", since.elapsed().as_secs_f64() * 10.0)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let commands = arguments.next().map_or(Ok(300_000), |text| text.parse())?;
    let accounts = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let batch = arguments.next().map_or(Ok(4096), |text| text.parse())?;
    let dir: PathBuf = std::env::temp_dir().join(format!("hoga-consume-rate-{}", std::process::id()));
    let out = &mut std::io::stdout();
    let log: Arc<dyn EventLog> = Arc::new(EmbeddedLog::open(dir.join("log"), Default::default())?);
    let since = Instant::now();
    fill_log(&*log, commands, accounts)?;
    writeln!(
        out,
        "{commands} commands of {accounts} accounts, applied and published in {:.2} s",
        since.elapsed().as_secs_f64()
    )?;
    for group in Group::ALL {
        writeln!(out, "{} alone", group.as_str())?;
        consume(batch, &dir.join(group.as_str()), &log, &[group], out)?;
    }
    writeln!(out, "all together")?;
    consume(batch, &dir.join("all"), &log, &Group::ALL, out)?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
