//! Runs the scenario files in `tests/scenarios`. See the head of `cases.txt` for the format.
//!
//! `UPDATE_SCENARIOS=1 cargo test --test scenarios` writes what came out into the files; read the difference before committing it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::event::{Event, EventRecord, Execution, OrderEvent};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, AssetId, ClientId, MarketId, OrderId, Seq, Timestamp, WithdrawalId};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_core::money::{Amount, Price, Qty, parse_units};
use hoga_core::order::{NewOrder, Order, OrderRef, OrderType, Side, StpMode, TimeInForce};

fn units(text: &str) -> i64 {
    parse_units(text).unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

fn show(units: i64) -> String {
    let text = Amount(units).to_string();
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn instrument() -> Instrument {
    Instrument {
        id: MarketId(0),
        symbol: Name::new("AAABBB").unwrap(),
        base: AssetId(0),
        quote: AssetId(1),
        state: TradingState::Open,
        price_tick: Price(units("0.01")),
        price_min: Price(units("0.01")),
        price_max: Price(units("1000000")),
        lot_step: Qty(units("0.000001")),
        lot_min: Qty(units("0.000001")),
        lot_max: Qty(units("100000")),
        market_lot_max: Qty(units("100000")),
        notional_min: Amount(0),
        notional_max: Amount(units("90000000000")),
        percent_up: 0,
        percent_down: 0,
        market_band_bps: 0,
        max_orders: 200,
        max_algo_orders: 200,
        max_position: Qty(0),
        maker_fee_ppm: 0,
        taker_fee_ppm: 0,
    }
}

/// One scenario: an exchange with one market and six accounts, a to f.
struct Scenario {
    exchange: Exchange,
    instrument: Instrument,
    seq: u64,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn account(name: &str) -> AccountId {
    match NAMES.iter().position(|n| *n == name) {
        Some(at) => AccountId(at as u32 + 1),
        // `exchange` is account 0; a number is that account.
        None if name == "exchange" => AccountId(0),
        None => AccountId(name.parse().unwrap_or_else(|_| panic!("no account {name:?}"))),
    }
}

fn asset(name: &str) -> AssetId {
    match name {
        "AAA" => AssetId(0),
        "BBB" => AssetId(1),
        _ => AssetId(9),
    }
}

/// `key=value` words.
fn options<'a>(words: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    words.iter().filter_map(|word| word.split_once('=')).collect()
}

impl Scenario {
    fn new() -> Scenario {
        let mut scenario = Scenario { exchange: Exchange::new(), instrument: instrument(), seq: 0 };
        for (id, name) in ["AAA", "BBB"].iter().enumerate() {
            let body = Body::AddAsset { id: AssetId(id as u16), name: Name::new(name).unwrap() };
            scenario.apply(body, false);
        }
        scenario.apply(Body::SetInstrument(scenario.instrument), false);
        NAMES.iter().for_each(|_| {
            scenario.apply(Body::CreateAccount, false);
        });
        scenario
    }

    fn apply(&mut self, body: Body, late: bool) -> Vec<EventRecord> {
        self.seq += 1;
        let deadline = Timestamp(if late { 1 } else { 0 });
        let time = Timestamp(1000 + self.seq as i64);
        let command = Command { seq: Seq(self.seq), time, rules: RULES_VERSION, deadline, body };
        let mut events = Vec::new();
        let result = self.exchange.apply(&command, &mut events);
        let rejected = matches!(events.last(), Some(EventRecord { event: Event::Rejected(_), .. }));
        assert_eq!(result.is_err(), rejected);
        for asset in [AssetId(0), AssetId(1)] {
            let totals = self.exchange.totals(asset);
            assert_eq!(totals.free + totals.locked, totals.deposited - totals.withdrawn);
        }
        events
    }

    /// Runs one line and tells what came of it.
    fn line(&mut self, text: &str) -> String {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (late, words) = match words.split_first() {
            Some((&"late", rest)) => (true, rest.to_vec()),
            _ => (false, words),
        };
        match words[..] {
            ["book"] => self.book(),
            ["last"] => self
                .exchange
                .last_trade(MarketId(0))
                .map_or("none".into(), |(id, price)| format!("trade {id} @ {}", show(price.0))),
            [name, "funds"] => self.funds(account(name)),
            [name, "orders"] => self.orders(account(name)),
            ["totals", name] => {
                let t = self.exchange.totals(asset(name));
                format!("in {} out {}", show(t.deposited as i64), show(t.withdrawn as i64))
            }
            _ => {
                let body = self.body(&words);
                let events = self.apply(body, late);
                let shown: Vec<String> = events.iter().map(|record| describe(&record.event)).collect();
                if shown.is_empty() { "nothing".to_owned() } else { shown.join("; ") }
            }
        }
    }

    fn book(&self) -> String {
        let depth = self.exchange.depth(MarketId(0), usize::MAX);
        let side = |levels: &[(Price, Qty)]| {
            let levels: Vec<String> =
                levels.iter().map(|(p, q)| format!("{}@{}", show(q.0), show(p.0))).collect();
            if levels.is_empty() { "none".to_owned() } else { levels.join(" ") }
        };
        format!("bids {}, asks {}", side(&depth.bids), side(&depth.asks))
    }

    fn funds(&self, account: AccountId) -> String {
        let of = |asset: u16| {
            let balance = self.exchange.balance(account, AssetId(asset)).unwrap();
            format!("{} + {} locked", show(balance.free.0), show(balance.locked.0))
        };
        format!("AAA {}, BBB {}", of(0), of(1))
    }

    fn orders(&self, account: AccountId) -> String {
        let orders: Vec<String> = self.exchange.open_orders(account, None).iter().map(order_text).collect();
        if orders.is_empty() { "none".to_owned() } else { orders.join("; ") }
    }

    fn body(&mut self, words: &[&str]) -> Body {
        let options = options(words);
        let reference = options.get("ref").map_or(ClientId::NONE, |r| ClientId::new(r).unwrap());
        let market = MarketId(options.get("market").map_or(0, |m| m.parse().unwrap()));
        match *words {
            ["market", ..] => {
                options.iter().for_each(|(key, value)| set(&mut self.instrument, key, value));
                Body::SetInstrument(self.instrument)
            }
            ["state", state] => Body::SetState { market, state: TradingState::parse(state).unwrap() },
            ["asset", name] => Body::AddAsset {
                id: AssetId(self.exchange.assets().len() as u16),
                name: Name::new(name).unwrap(),
            },
            ["settle", id] => Body::SettleWithdrawal { id: WithdrawalId(id.parse().unwrap()) },
            ["release", id] => Body::ReleaseWithdrawal { id: WithdrawalId(id.parse().unwrap()) },
            [who, "deposit", name, amount, ..] => {
                let amount = Amount(units(amount));
                Body::Deposit { account: account(who), asset: asset(name), amount, reference }
            }
            [who, "withdraw", name, amount, ..] => {
                let amount = Amount(units(amount));
                Body::Withdraw { account: account(who), asset: asset(name), amount, reference }
            }
            [who, "cancel", "all", ..] => Body::CancelAll {
                account: account(who),
                market: options.contains_key("market").then_some(market),
            },
            [who, "cancel", order, ..] => {
                Body::Cancel { account: account(who), market, order: order_ref(order), cancel_id: reference }
            }
            [who, "modify", order, qty, "@", price, ..] => Body::Modify {
                account: account(who),
                market,
                order: order_ref(order),
                price: Price(units(price)),
                qty: Qty(units(qty)),
            },
            [who, side @ ("buy" | "sell"), ref rest @ ..] => {
                place(account(who), side, rest, market, &options)
            }
            _ => panic!("not a command: {words:?}"),
        }
    }
}

fn order_ref(text: &str) -> OrderRef {
    match text.strip_prefix('#') {
        Some(id) => OrderRef::Id(OrderId(id.parse().unwrap())),
        None => OrderRef::Client(ClientId::new(text).unwrap()),
    }
}

fn place(
    who: AccountId,
    side: &str,
    rest: &[&str],
    market: MarketId,
    options: &BTreeMap<&str, &str>,
) -> Body {
    let after = |word: &str| {
        rest.iter().position(|w| *w == word).map(|at| rest.get(at + 1).map_or(0, |text| units(text)))
    };
    let has = |word: &str| rest.contains(&word);
    let priced = has("@");
    let order_type = match () {
        _ if has("stop") && priced => OrderType::StopLossLimit,
        _ if has("stop") => OrderType::StopLoss,
        _ if has("take") && priced => OrderType::TakeProfitLimit,
        _ if has("take") => OrderType::TakeProfit,
        _ if has("maker") => OrderType::LimitMaker,
        _ if has("market") => OrderType::Market,
        _ => OrderType::Limit,
    };
    let tif = match () {
        _ if has("ioc") => TimeInForce::Ioc,
        _ if has("fok") => TimeInForce::Fok,
        _ => TimeInForce::Gtc,
    };
    Body::Place(NewOrder {
        account: who,
        market,
        side: if side == "buy" { Side::Buy } else { Side::Sell },
        order_type,
        tif,
        price: Price(after("@").unwrap_or(0)),
        stop_price: Price(after("stop").or(after("take")).unwrap_or(0)),
        qty: Qty(rest.first().and_then(|text| parse_units(text).ok()).unwrap_or(0)),
        quote_qty: Amount(after("quote").unwrap_or(0)),
        iceberg_qty: Qty(after("iceberg").unwrap_or(0)),
        trailing_delta: after("trailing").unwrap_or(0) as u32,
        stp: options.get("stp").map_or(StpMode::None, |stp| StpMode::parse(stp).unwrap()),
        client_id: options.get("id").map_or(ClientId::NONE, |id| ClientId::new(id).unwrap()),
    })
}

fn set(instrument: &mut Instrument, key: &str, value: &str) {
    let number = || value.parse::<u32>().unwrap();
    match key {
        "tick" => instrument.price_tick = Price(units(value)),
        "price_min" => instrument.price_min = Price(units(value)),
        "price_max" => instrument.price_max = Price(units(value)),
        "lot" => instrument.lot_step = Qty(units(value)),
        "lot_min" => instrument.lot_min = Qty(units(value)),
        "lot_max" => instrument.lot_max = Qty(units(value)),
        "market_lot_max" => instrument.market_lot_max = Qty(units(value)),
        "notional_min" => instrument.notional_min = Amount(units(value)),
        "notional_max" => instrument.notional_max = Amount(units(value)),
        "percent_up" => instrument.percent_up = number(),
        "percent_down" => instrument.percent_down = number(),
        "band" => instrument.market_band_bps = number(),
        "max_orders" => instrument.max_orders = number(),
        "max_algo" => instrument.max_algo_orders = number(),
        "max_position" => instrument.max_position = Qty(units(value)),
        "maker_fee" => instrument.maker_fee_ppm = number(),
        "taker_fee" => instrument.taker_fee_ppm = number(),
        "symbol" => instrument.symbol = Name::new(value).unwrap(),
        "base" => instrument.base = asset(value),
        "number" => instrument.id = MarketId(value.parse().unwrap()),
        _ => panic!("no market option {key:?}"),
    }
}

fn order_text(order: &Order) -> String {
    let r = &order.request;
    let mut text = format!("#{} {} {} {}", order.id, r.order_type.as_str(), r.side.as_str(), show(r.qty.0));
    if r.price.0 != 0 {
        write!(text, " @ {}", show(r.price.0)).unwrap();
    }
    if r.stop_price.0 != 0 {
        write!(text, " stop {}", show(r.stop_price.0)).unwrap();
    }
    write!(text, " {} filled {}", order.status.as_str(), show(order.filled.0)).unwrap();
    text
}

fn describe(event: &Event) -> String {
    match event {
        Event::Trade(t) => {
            let (maker, taker) = match t.taker_side {
                Side::Buy => (t.sell_order, t.buy_order),
                Side::Sell => (t.buy_order, t.sell_order),
            };
            let mut text = format!("trade {} @ {} #{maker} by #{taker}", show(t.qty.0), show(t.price.0));
            if t.buyer_fee.0 != 0 || t.seller_fee.0 != 0 {
                let fees = [t.buyer_fee, t.seller_fee].map(|fee| show(fee.0));
                write!(text, " fees {} AAA {} BBB", fees[0], fees[1]).unwrap();
            }
            text
        }
        Event::Order(event) => describe_order(event),
        Event::Level(l) => {
            format!("{} {} = {}", l.side.as_str().to_lowercase(), show(l.price.0), show(l.qty.0))
        }
        Event::Rejected(r) => format!("REJECT {}", r.reason.as_str()),
        Event::Transfer(t) => {
            let again = if t.repeated { " again" } else { "" };
            let balance = [t.balance.free, t.balance.locked].map(|b| show(b.0));
            let number = if t.withdrawal.0 == 0 { String::new() } else { format!(" {}", t.withdrawal) };
            let kind = t.kind.as_str();
            format!("{kind}{number} {}{again}: {} + {} locked", show(t.amount.0), balance[0], balance[1])
        }
        Event::InstrumentSet(_) => "set".to_owned(),
        Event::StateSet { state, .. } => state.as_str().to_owned(),
        Event::AssetAdded { name, .. } => format!("asset {}", name.as_str()),
        Event::AccountCreated { account } => format!("account {account}"),
    }
}

fn describe_order(event: &OrderEvent) -> String {
    let order = &event.order;
    let done = || format!("{}/{}", show(order.filled.0), show(order.request.qty.0));
    let id = order.id;
    match event.execution {
        Execution::New => format!("new #{id}"),
        Execution::Trade => {
            assert!(event.fill.is_some());
            format!("#{id} {} {}", order.status.as_str(), done())
        }
        Execution::TradePrevention => {
            format!("#{id} prevented {} {}", show(event.prevented.0), order.status.as_str())
        }
        Execution::Replaced => format!("#{id} replaced {} @ {}", done(), show(order.request.price.0)),
        Execution::Triggered => format!("triggered #{id}"),
        other => {
            assert_eq!(other.as_str(), order.status.as_str());
            format!("#{id} {} {}", order.status.as_str(), done())
        }
    }
}

/// Runs the scenarios of one file and compares each line with what came of it.
fn check(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut scenario: Option<Scenario> = None;
    let mut funded = false;
    let mut title = String::new();
    let mut rewritten = String::new();
    let mut errors = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let bare = line.trim();
        let mut result = line.to_owned();
        if let Some(name) = bare.strip_prefix("== ") {
            title = name.to_owned();
            scenario = Some(Scenario::new());
            funded = false;
        } else if !bare.is_empty() && !bare.starts_with('#') {
            let current = scenario.as_mut().expect("a line before the first scenario");
            let (command, expected) = match line.split_once('|') {
                Some((command, expected)) => (command.trim(), Some(expected.trim())),
                None => (bare, None),
            };
            if let Some(rest) = command.strip_prefix("account ") {
                // Only the accounts named like this have funds in this scenario.
                funded = true;
                let words: Vec<&str> = rest.split_whitespace().collect();
                for (name, amount) in options(&words) {
                    current.line(&format!("{} deposit {name} {amount}", words[0]));
                }
                writeln!(rewritten, "{line}").unwrap();
                continue;
            }
            if !std::mem::replace(&mut funded, true) {
                for name in NAMES {
                    for asset in ["AAA", "BBB"] {
                        current.line(&format!("{name} deposit {asset} 1000000"));
                    }
                }
            }
            let got = current.line(command);
            match expected {
                Some(expected) if expected != got => errors.push(format!(
                    "{}:{} ({title})\n  {command}\n  expected: {expected}\n  got:      {got}",
                    file.display(),
                    number + 1
                )),
                None if got.starts_with("REJECT") => {
                    errors.push(format!("{}:{} ({title})\n  {command}\n  {got}", file.display(), number + 1));
                }
                _ => {}
            }
            if expected.is_some() {
                result = format!("{command:<38} | {got}");
            }
        }
        writeln!(rewritten, "{result}").unwrap();
    }
    if std::env::var_os("UPDATE_SCENARIOS").is_some() {
        std::fs::write(file, rewritten).unwrap();
    } else {
        assert!(errors.is_empty(), "\n{}", errors.join("\n"));
    }
}

#[test]
fn scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5);
    files.iter().for_each(|file| check(file));
}
