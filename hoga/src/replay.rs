//! `hoga replay`: a recorded order flow instead of the simulated market.
//!
//! One account places every recorded order under the recording's own order number as client id, so that the recording and the journal can be
//! held beside each other. Its deposits are as large as a balance can be; self-trade prevention is off, since a recording does not say who is who.

use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use hoga_core::command::Body;
use hoga_core::event::Event;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, Timestamp};
use hoga_core::instrument::{Instrument, Name};
use hoga_core::money::{Amount, Price, Qty, SCALE};
use hoga_core::order::{NewOrder, OrderRef, OrderType, Side, StpMode, TimeInForce};
use hoga_engine::EngineHandle;
use hoga_sim::bitstamp::{self, Capture};
use hoga_sim::consensus::{Message, Messages};
use hoga_sim::recording;

use crate::cli::Replay;
use crate::market::{Feeder, Pacer, Submitter};
use crate::{End, up};

/// Messages a second of a recording without times, at speed 1.
const UNTIMED_RATE: f64 = 1_000.0;

/// A recording that is ready to be fed.
pub struct Recording {
    steps: Vec<(Duration, Action)>,
    symbol: &'static str,
    assets: (&'static str, &'static str),
    instrument: fn(MarketId, Name, AssetId, AssetId) -> Instrument,
    /// Times the recorded speed; `None` for as fast as it goes.
    speed: Option<f64>,
    /// Whether the system ends with it.
    pub exit: bool,
}

enum Action {
    Bitstamp(bitstamp::Step),
    Consensus(Message),
}

/// Reads the recording, then runs the system with it.
pub fn run(flags: &Replay) -> Result<(), End> {
    let speed = match flags.speed.as_str() {
        "max" => None,
        text => match text.parse::<f64>() {
            Ok(n) if n.is_finite() && n > 0.0 => Some(n),
            _ => return Err(End::Usage(format!("--speed {text}: expected a positive number or `max`"))),
        },
    };
    let recording = read(&flags.file, speed, flags.exit)?;
    eprintln!(
        "replay: {} steps for {} from {}",
        recording.steps.len(),
        recording.symbol,
        flags.file.display()
    );
    up::run(&flags.up, &hoga_store::Group::ALL, Some(recording))
}

/// The format is told by the first line.
fn read(path: &Path, speed: Option<f64>, exit: bool) -> Result<Recording, End> {
    let unread = |error: &dyn std::fmt::Display| {
        End::Usage(format!("[recording-unreadable] {}: {error}", path.display()))
    };
    let mut reader = recording::open(path).map_err(|e| unread(&e))?;
    let first = reader.fill_buf().map_err(|e| unread(&e))?;
    if first.starts_with(b"id,") {
        let capture = Capture::read(reader).map_err(|e| unread(&e))?;
        let begin = capture.steps.first().map_or(Timestamp(0), |s| s.time);
        let since = |time: Timestamp| Duration::from_micros(time.0.saturating_sub(begin.0).max(0) as u64);
        let steps = capture.steps.into_iter().map(|s| (since(s.time), Action::Bitstamp(s))).collect();
        return Ok(Recording {
            steps,
            symbol: "BTCUSD",
            assets: ("BTC", "USD"),
            instrument: bitstamp::instrument,
            speed,
            exit,
        });
    }
    let messages = Messages::new(reader).collect::<Result<Vec<_>, _>>().map_err(|e| unread(&e))?;
    if messages.is_empty() {
        return Err(unread(&"it is empty"));
    }
    let planned = |n: usize| Duration::from_secs_f64(n as f64 / UNTIMED_RATE);
    let steps = messages.into_iter().enumerate().map(|(n, m)| (planned(n), Action::Consensus(m))).collect();
    Ok(Recording { steps, symbol: "NVDAUSD", assets: ("NVDA", "USD"), instrument: shares, speed, exit })
}

/// A market for `me-consensus`: prices in cents, whole shares, no limits, no fees.
fn shares(id: MarketId, symbol: Name, base: AssetId, quote: AssetId) -> Instrument {
    Instrument {
        price_tick: Price(CENT),
        price_min: Price(CENT),
        lot_step: Qty(SCALE),
        lot_min: Qty(SCALE),
        ..bitstamp::instrument(id, symbol, base, quote)
    }
}

const CENT: i64 = SCALE / 100;

impl Recording {
    /// Makes market and account where they are missing, and starts feeding.
    pub fn feed(self, engine: EngineHandle) -> Result<Feeder, End> {
        let submitter = Submitter::new(engine);
        let start =
            |error: String| End::Start(format!("[recording-not-fed] the recording cannot be fed: {error}"));
        let market = self.market(&submitter).map_err(start)?;
        let account = self.account(&submitter).map_err(start)?;
        Feeder::start("replay", move |stop| {
            let mut pacer = Pacer::new(self.speed);
            let count = self.steps.len();
            for (at, action) in self.steps {
                if !pacer.wait(at, stop) {
                    return Ok(());
                }
                match action {
                    Action::Bitstamp(step) => submitter.send(step.body(account, market), stop)?,
                    Action::Consensus(message) => consensus(&submitter, message, account, market, stop)?,
                }
            }
            submitter.settle(stop)?;
            let (trades, refused) = submitter.tally();
            eprintln!(
                "replay: all {count} steps are done: {trades} trades; {refused} commands refused by the rules"
            );
            Ok(())
        })
        .map_err(|e| start(e.to_string()))
    }

    /// The recording's market: the one with its symbol, or a new one.
    fn market(&self, submitter: &Submitter) -> Result<MarketId, String> {
        let symbol = Name::new(self.symbol).ok_or("a symbol that cannot be")?;
        let (base, quote) = (self.assets.0, self.assets.1);
        let (found, assets, markets) = submitter.look(move |exchange| {
            let found = exchange.instruments().iter().find(|i| i.symbol == symbol).map(|i| i.id);
            (found, exchange.assets().to_vec(), exchange.instruments().len())
        })?;
        if let Some(id) = found {
            return Ok(id);
        }
        let mut ids = Vec::new();
        let mut next = assets.len() as u16;
        for name in [base, quote] {
            let name = Name::new(name).ok_or("an asset that cannot be")?;
            match assets.iter().position(|a| *a == name) {
                Some(at) => ids.push(AssetId(at as u16)),
                None => {
                    submitter.ask(Body::AddAsset { id: AssetId(next), name })?;
                    ids.push(AssetId(next));
                    next += 1;
                }
            }
        }
        let id = MarketId(markets as u16);
        submitter.ask(Body::SetInstrument((self.instrument)(id, symbol, ids[0], ids[1])))?;
        Ok(id)
    }

    fn account(&self, submitter: &Submitter) -> Result<AccountId, String> {
        let events = submitter.ask(Body::CreateAccount)?;
        let account = events
            .iter()
            .find_map(|e| match e.event {
                Event::AccountCreated { account } => Some(account),
                _ => None,
            })
            .ok_or("no account came back")?;
        let names = self.assets;
        let assets = submitter.look(move |exchange| {
            let of = |text| exchange.assets().iter().position(|a| a.as_str() == text);
            [of(names.0), of(names.1)]
        })?;
        for asset in assets.into_iter().flatten() {
            let reference = ClientId::new(&format!("replay-{account}-{asset}")).unwrap_or(ClientId::NONE);
            let amount = Amount(50_000_000_000 * SCALE);
            submitter.ask(Body::Deposit { account, asset: AssetId(asset as u16), amount, reference })?;
        }
        Ok(account)
    }
}

/// A message of `me-consensus`. Its modify is a cancel and a new order with the same number, if there was something to cancel.
fn consensus(
    submitter: &Submitter,
    message: Message,
    account: AccountId,
    market: MarketId,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<(), String> {
    let name = |id: u64| ClientId::new(&id.to_string()).unwrap_or(ClientId::NONE);
    let place = |side: Side, ioc: bool, id: u64, price: i64, qty: i64| -> Result<Body, String> {
        let price =
            price.checked_mul(CENT).ok_or_else(|| format!("price {price} of order {id} is out of range"))?;
        let qty =
            qty.checked_mul(SCALE).ok_or_else(|| format!("quantity {qty} of order {id} is out of range"))?;
        Ok(Body::Place(NewOrder {
            account,
            market,
            side,
            order_type: OrderType::Limit,
            tif: if ioc { TimeInForce::Ioc } else { TimeInForce::Gtc },
            price: Price(price),
            stop_price: Price::ZERO,
            qty: Qty(qty),
            quote_qty: Amount::ZERO,
            iceberg_qty: Qty::ZERO,
            trailing_delta: 0,
            stp: StpMode::None,
            client_id: name(id),
        }))
    };
    let cancel =
        |id| Body::Cancel { account, market, order: OrderRef::Client(name(id)), cancel_id: ClientId::NONE };
    match message {
        Message::New { side, ioc, id, price, qty } => submitter.send(place(side, ioc, id, price, qty)?, stop),
        Message::Cancel { id } => submitter.send(cancel(id), stop),
        Message::Modify { side, id, price, qty } => {
            let body = place(side, false, id, price, qty)?;
            if submitter.try_ask(cancel(id))?.is_some() {
                submitter.send(body, stop)?;
            }
            Ok(())
        }
    }
}
