//! Walks one order through the real binary and shows what was observed of it at each step that ARCHITECTURE.md names.
//!
//! `cargo test -p hoga --test walk -- --nocapture` prints the walk.
#![expect(clippy::print_stdout, reason = "the walk is what this test has to show")]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use hoga_core::codec::decode_event;
use hoga_core::event::{Event, EventRecord};
use hoga_core::ids::OrderId;
use hoga_lab::admin::{Account, Admin};
use hoga_lab::process::TempDir;
use hoga_lab::request::{Sender, Watcher};
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog};
use serde_json::{Value, json};
use support::{Up, hoga, text, wait_for};

/// The client id of the order that is followed.
const NAME: &str = "the-walked-order";

/// A step's name and what was observed there.
struct Step {
    name: &'static str,
    seen: Vec<String>,
}

/// The bold names of the numbered steps in ARCHITECTURE.md.
fn names_in_the_document() -> Vec<String> {
    let document = include_str!("../../ARCHITECTURE.md");
    let walk = document.split("## The walk of one order").nth(1).expect("the walk");
    let walk = walk.split("\n## ").next().expect("its text");
    let steps = walk.lines().filter_map(|line| {
        let (number, rest) = line.split_once(". **")?;
        number.parse::<u32>().ok()?;
        rest.split_once("**").map(|(name, _)| name.to_owned())
    });
    steps.collect()
}

/// Everybody who takes part, by account.
struct Traders {
    accounts: Vec<Account>,
    sender: Sender,
    admin: Admin,
}

impl Traders {
    fn new(up: &Up) -> Traders {
        let accounts = vec![up.account(), up.account()];
        Traders { sender: Sender::new(&accounts), accounts, admin: up.admin() }
    }

    /// A limit order over REST.
    fn place(&mut self, account: usize, side: &str, price: &str, qty: &str, name: &str) -> Value {
        let pairs = [
            ("symbol", "BTCUSDT"),
            ("side", side),
            ("type", "LIMIT"),
            ("timeInForce", "GTC"),
            ("quantity", qty),
            ("price", price),
            ("newClientOrderId", name),
            ("newOrderRespType", "FULL"),
        ];
        let form = self.sender.form(account, &pairs);
        self.admin.post_signed("/api/v3/order", &form, &self.accounts[account].key).expect("it is taken")
    }

    fn all_orders(&mut self, account: usize) -> Value {
        let form = self.sender.form(account, &[("symbol", "BTCUSDT")]);
        self.admin
            .get_signed(&format!("/api/v3/allOrders?{form}"), &self.accounts[account].key)
            .expect("orders")
    }

    fn status(&self) -> Value {
        self.admin.get("/api/v1/admin/status").expect("a status")
    }
}

/// What the messages of a stopped system's topics say about an order: topic, offset, number, event.
fn messages(data: &Path, order: OrderId, topic: &str) -> Vec<(u64, u64, EventRecord)> {
    let log = EmbeddedLog::open(data.join("log"), EmbeddedConfig::default()).unwrap();
    let mut page = Vec::new();
    log.read(topic, 0, 0, 10_000, &mut page).unwrap();
    let all = page.iter().map(|message| {
        let (number, event) = decode_event(message.value.as_deref().unwrap()).unwrap();
        (message.offset, number, event)
    });
    let about = |event: &Event| match event {
        Event::Order(e) => e.order.id == order,
        Event::Trade(t) => t.buy_order == order || t.sell_order == order,
        _ => false,
    };
    all.filter(|(_, _, record)| about(&record.event)).collect()
}

fn described(topic: &str, (offset, number, record): &(u64, u64, EventRecord)) -> String {
    let what = match &record.event {
        Event::Order(e) => format!(
            "order {} {} {}, filled {} of {}",
            e.order.id,
            e.execution.as_str(),
            e.order.status.as_str(),
            e.order.filled,
            e.order.request.qty
        ),
        Event::Trade(t) => format!(
            "trade {} at {} of {}, buyer {} seller {}",
            t.id, t.price, t.qty, t.buy_order, t.sell_order
        ),
        other => format!("{other:?}"),
    };
    format!(
        "{topic} offset {offset}: message {number}, command {} event {}: {what}",
        record.seq, record.index
    )
}

/// What was seen of the order while the system ran.
struct Walk {
    /// The number of the command.
    seq: u64,
    order: OrderId,
    took: Duration,
    /// The order that it met, the answer, its row among all orders, and the depth update that it caused.
    maker: Value,
    answer: Value,
    row: Value,
    update: Value,
    first_update: u64,
    /// The positions before it, at its answer, and when everything had followed.
    before: Value,
    answered: Value,
    followed: Value,
    digest: Value,
    page: String,
    snapshot: Value,
}

fn stage(status: &Value, stage: &str) -> u64 {
    status["engine"][stage].as_u64().expect("a position")
}

/// Places the order and looks at it from outside, while it is on its way and after.
fn walked(up: &Up) -> Walk {
    let mut traders = Traders::new(up);
    // Somebody sells half of what the walked order wants, so that it both trades and rests.
    let maker = traders.place(1, "SELL", "94999.00", "0.001", "the-other-side");
    let mut stream = Watcher::open(up.address(), "/ws/btcusdt@depth@0ms").unwrap();
    let before = traders.status();

    let begun = Instant::now();
    let answer = traders.place(0, "BUY", "95000.00", "0.002", NAME);
    let took = begun.elapsed();
    // The answer is here, so the command is durable and acknowledged: no waiting for these positions.
    let answered = traders.status();
    let seq = stage(&before, "received") + 1;
    for name in ["received", "matched", "durable", "acked"] {
        assert_eq!(
            stage(&answered, name),
            seq,
            "{name}: one command came, and its answer has left: {answered}"
        );
    }
    let (first_update, update) = depth_update(&mut stream);
    let row = traders.all_orders(0)[0].clone();
    let mut followed = Value::Null;
    wait_for("the shadow and the groups", Duration::from_secs(10), || {
        followed = traders.status();
        let groups = followed["groups"].as_object().unwrap();
        stage(&followed, "applied") >= seq && groups.values().all(|g| g["lag_records"] == 0)
    });
    Walk {
        seq,
        order: OrderId(answer["orderId"].as_u64().unwrap()),
        took,
        maker,
        answer,
        row,
        update,
        first_update,
        before,
        answered,
        followed,
        digest: traders.admin.get("/api/v1/admin/digest").unwrap(),
        page: traders.admin.page("/").unwrap(),
        snapshot: traders.admin.get("/api/v3/depth?symbol=BTCUSDT").unwrap(),
    }
}

/// What must hold of it.
fn check(walk: &Walk) {
    let answer = &walk.answer;
    assert_eq!(
        (&answer["status"], &answer["executedQty"]),
        (&"PARTIALLY_FILLED".into(), &"0.00100000".into())
    );
    assert_eq!(answer["fills"][0]["price"], "94999.00000000", "the resting order's price");
    assert_eq!((&walk.row["clientOrderId"], &walk.row["status"]), (&NAME.into(), &"PARTIALLY_FILLED".into()));
    assert_eq!(walk.digest["seq"].as_u64(), Some(walk.seq));
    assert!(walk.page.contains("<html"), "{}", walk.page);
    // A browser's book: the snapshot holds what the update said.
    assert_eq!(walk.snapshot["bids"], json!([["95000.00000000", "0.00100000"]]));
    assert_eq!(walk.snapshot["asks"], json!([]));
    assert_eq!(walk.update["u"], walk.snapshot["lastUpdateId"]);
}

/// From HTTP to the gate.
fn answered(walk: &Walk, data: &Path) -> [Step; 6] {
    let Walk { seq, before, answered, answer, .. } = walk;
    let command = journaled(data, *seq);
    let stats = hoga(&["journal", "stats", "--data", text(data), "--json"]).expect(0).json();
    let moved = |name| format!("{name} {} -> {}", stage(before, name), stage(answered, name));
    [
        Step {
            name: "HTTP",
            seen: vec![
                format!("POST /api/v3/order, answered in {} µs", walk.took.as_micros()),
                answer.to_string(),
            ],
        },
        Step { name: "Ring", seen: vec![moved("received")] },
        Step {
            name: "Sequencer and matcher",
            seen: vec![format!("command {seq}, time {} µs; {}", command["time_us"], moved("matched"))],
        },
        Step {
            name: "Matching",
            seen: vec![
                format!("met order {}, which rested: fills {}", walk.maker["orderId"], answer["fills"]),
                format!("{} executed, the rest stays at {}", answer["executedQty"], answer["price"]),
            ],
        },
        Step {
            name: "Journal",
            seen: vec![
                moved("durable"),
                command.to_string(),
                format!("{} records in {} batches", stats["records"], stats["batches"]),
            ],
        },
        Step { name: "Gate", seen: vec![moved("acked")] },
    ]
}

/// From the shadow to the browser.
fn followed(walk: &Walk, data: &Path) -> [Step; 4] {
    let topics = ["trade.completed", "order.lifecycle", "order.projection"];
    let published = topics.map(|topic| messages(data, walk.order, topic));
    assert_eq!(
        published.each_ref().map(Vec::len),
        [1, 2, 2],
        "accepted, then one trade, which fills it in part"
    );
    assert!(published.iter().flatten().all(|(_, _, record)| record.seq.0 == walk.seq));
    let applied = stage(&walk.followed, "applied");
    let mut shadow =
        vec![format!("applied {applied}, digest {} at {}", walk.digest["digest"], walk.digest["seq"])];
    for (topic, list) in topics.iter().zip(&published) {
        shadow.extend(list.iter().map(|message| described(topic, message)));
    }
    let groups = walk.followed["groups"].as_object().unwrap().iter();
    let groups =
        groups.map(|(group, g)| format!("{group} applied {} lag {}", g["applied"], g["lag_records"]));
    [
        Step { name: "Shadow", seen: shadow },
        Step {
            name: "Read models",
            seen: std::iter::once(format!("allOrders: {}", walk.row)).chain(groups).collect(),
        },
        Step { name: "Hub", seen: vec![format!("btcusdt@depth@0ms: {}", walk.update)] },
        Step {
            name: "Browser",
            seen: vec![
                format!("the page: {} bytes, title {}", walk.page.len(), title(&walk.page)),
                format!(
                    "its book: snapshot {}, updates seen from {} to {} without a gap",
                    walk.snapshot["lastUpdateId"], walk.first_update, walk.update["u"]
                ),
            ],
        },
    ]
}

#[test]
fn one_order_from_http_to_the_browser() {
    let folder = TempDir::new("walk").unwrap();
    let up = Up::start(folder.path());
    let walk = walked(&up);
    check(&walk);
    up.stop();
    let steps = answered(&walk, folder.path()).into_iter().chain(followed(&walk, folder.path()));
    let mut names = Vec::new();
    for (number, step) in (1..).zip(steps) {
        println!("{number}. {}", step.name);
        step.seen.iter().for_each(|line| println!("   {line}"));
        names.push(step.name);
    }
    assert_eq!(names, names_in_the_document());
}

/// The update that shows the walked order's rest, and the number of the first update seen; no number may be missing between them.
fn depth_update(stream: &mut Watcher) -> (u64, Value) {
    let (mut first, mut last) = (None, None);
    loop {
        let message = stream.next(Duration::from_secs(10)).unwrap().expect("a depth update");
        let update: Value = serde_json::from_str(&message).unwrap();
        let (from, to) = (update["U"].as_u64().unwrap(), update["u"].as_u64().unwrap());
        assert!(last.is_none_or(|last| from == last + 1), "{from} after {last:?}");
        first.get_or_insert(from);
        last = Some(to);
        if update["b"].as_array().unwrap().contains(&json!(["95000.00000000", "0.00100000"])) {
            return (first.unwrap_or(from), update);
        }
    }
}

/// The command in the journal of the stopped system.
fn journaled(data: &Path, seq: u64) -> Value {
    let seq = seq.to_string();
    let dump =
        hoga(&["journal", "dump", "--data", text(data), "--from", &seq, "--to", &seq, "--json"]).expect(0);
    let command = dump.json();
    assert_eq!(
        (&command["command"], &command["body"]["client_id"]),
        (&"place".into(), &NAME.into()),
        "{command}"
    );
    assert_eq!(
        (&command["body"]["price"], &command["body"]["qty"]),
        (&"95000.00000000".into(), &"0.00200000".into())
    );
    command
}

fn title(page: &str) -> &str {
    page.split_once("<title>")
        .and_then(|(_, rest)| rest.split_once("</title>"))
        .map_or("none", |(title, _)| title)
}
