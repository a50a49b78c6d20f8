//! The command line of the real binary: exit codes, messages, signals, files.

mod support;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hoga_core::codec::encode_command;
use hoga_core::command::{Body, Command, RULES_VERSION};
use hoga_core::ids::{AssetId, Seq, Timestamp};
use hoga_core::instrument::Name;
use hoga_lab::admin::{Account, Admin};
use hoga_lab::process::TempDir;
use hoga_lab::request::{Sender, Watcher, parse_answer};
use hoga_log::journal::{Batch, Durability, Journal, JournalConfig};
use hoga_log::storage::Disk;
use hoga_sim::market::{MARKETS, default_market};
use rustix::process::Signal;
use support::{Running, Up, hoga, hoga_with, text, wait_for};

fn folder() -> TempDir {
    TempDir::new("cli").expect("a temporary folder")
}

/// Every command below `path`, from the list in its `--help`.
fn subcommands(path: &[String]) -> Vec<Vec<String>> {
    let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = hoga(&arguments).expect(0).out;
    assert!(help.contains("Example: hoga "), "hoga {}: no example in its help:\n{help}", path.join(" "));
    let mut found = Vec::new();
    for line in help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty()) {
        let Some(name) = line.strip_prefix("  ").filter(|l| !l.starts_with(' ')) else { continue };
        let name = name.split_whitespace().next().expect("a name");
        if name != "help" {
            let mut below = path.to_vec();
            below.push(name.to_owned());
            found.push(below);
        }
    }
    found
}

#[test]
fn every_command_has_help_with_an_example() {
    let mut waiting = vec![Vec::new()];
    let mut seen = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        waiting.extend(subcommands(&path));
        seen.insert(path.join(" "));
    }
    let expected = [
        "",
        "audit",
        "bench",
        "bench idle",
        "bench log",
        "bench match",
        "bench orders",
        "bench outage",
        "bench project",
        "bench recover",
        "bench ticks",
        "config",
        "config check",
        "config show",
        "dlt",
        "dlt drop",
        "dlt list",
        "dlt replay",
        "dlt show",
        "group",
        "group forget",
        "groups",
        "groups diff",
        "groups rebuild",
        "groups status",
        "groups switch",
        "journal",
        "journal dump",
        "journal stats",
        "journal verify",
        "key",
        "key new",
        "lab",
        "lab crash",
        "lab faults",
        "lab plant",
        "lag",
        "monitor",
        "monitor explain",
        "rebuild",
        "replay",
        "run",
        "topics",
        "topics apply",
        "topics check",
        "topics plan",
        "up",
    ];
    assert_eq!(seen, expected.map(str::to_owned).into());
    assert!(hoga(&["--version"]).expect(0).out.starts_with("hoga "));
}

#[test]
fn a_wrong_command_line_ends_with_2_and_names_what_is_wrong() {
    let data = folder();
    let data = text(data.path());
    for (arguments, named) in [
        (&["up", "--prot", "1"][..], "--prot"),
        (&["up", "--port", "70000"], "--port"),
        (&["nothing"], "nothing"),
        (&[], "Usage"),
        (&["key", "new", "--deposit", "BTC", "--data", data], "--deposit BTC:"),
        (&["key", "new", "--deposit", "BTC=-1", "--data", data], "--deposit BTC=-1:"),
        (&["key", "new", "--deposit", "BTC=0", "--data", data], "--deposit BTC=0:"),
        (&["key", "new", "--deposit", "BTC=1.123456789", "--data", data], "--deposit BTC=1.123456789:"),
        (&["key", "new", "--deposit", "=1", "--data", data], "--deposit =1:"),
        (&["replay", "x.csv", "--speed", "0"], "--speed 0"),
        (&["replay", "x.csv", "--speed", "fast"], "--speed fast"),
        (&["replay", "there-is-no-such-file.csv"], "there-is-no-such-file.csv"),
        (&["journal", "verify", "--data", data], "journal-missing"),
        (&["journal", "dump", "--from", "x"], "--from"),
        (&["bench", "orders", "--rate", "0"], "--rate"),
        (&["bench", "orders", "--seconds=-1"], "--seconds"),
        (&["bench", "orders", "--accounts", "0"], "--accounts"),
        (&["bench", "orders", "--symbols", "0"], "--symbols"),
        (&["bench", "orders", "--connections", "0"], "--connections"),
        (&["bench", "orders", "--transport", "smoke"], "--transport"),
        (&["bench", "orders", "--durability", "maybe"], "--durability"),
        (&["bench", "idle", "--seconds", "inf"], "--seconds"),
        (&["bench", "recover", "--commands", "0"], "--commands"),
        (&["lab", "crash", "--rounds", "0"], "--rounds"),
    ] {
        hoga(arguments).expect(2).says(named);
    }
}

#[test]
fn a_wrong_configuration_ends_with_2_and_names_the_key() {
    let folder = folder();
    let file = folder.path().join("hoga.toml");
    for (content, named) in [
        ("[engine]\nrng = 1", "rng"),
        ("[engine]\nring = 1000", "engine.ring"),
        ("[engine]\nring = \"large\"", "engine.ring"),
        ("[engine]\ndurability = \"maybe\"", "engine.durability"),
        ("[api]\nthreads = 0", "api"),
        ("[api]\ndefault_stp = \"SOMETIMES\"", "api.default_stp"),
        ("[api.limits]\norders = 1", "orders"),
        ("[market]\nrate = -1", "market.rate"),
        ("[markets]\nrate = 1", "markets"),
        ("[engine\n", "line 1"),
    ] {
        std::fs::write(&file, content).unwrap();
        for command in [&["config", "check"][..], &["config", "show"], &["up", "--port", "0"]] {
            let mut arguments = command.to_vec();
            arguments.extend(["--config", text(&file)]);
            let ended = hoga(&arguments).expect(2).says("[config-invalid]").says(named);
            assert!(ended.out.is_empty(), "{ended:?}");
        }
    }
    hoga(&["up", "--config", "there-is-none.toml"]).expect(2).says("there-is-none.toml");
    for (name, value, named) in [
        ("HOGA__ENGINE__RNG", "1", "rng"),
        ("HOGA__ENGINE__RING", "lots", "engine.ring"),
        ("HOGA__ENGINE__RING", "1000", "engine.ring"),
        ("HOGA__ENGINE", "1", "engine"),
        ("HOGA__ENGINE__RING__X", "1", "engine.ring"),
        ("HOGA__MARKET__ENABLED", "maybe", "market.enabled"),
        ("HOGA__API__LIMITS__ORDERS_1D", "-1", "api.limits.orders_1d"),
        ("HOGA__TELEMETRY__LOG", "==", "telemetry.log"),
    ] {
        let ended = hoga_with(&["up", "--port", "0", "--data", text(folder.path())], &[(name, value)]);
        ended.expect(2).says(named);
    }
}

#[test]
fn the_configuration_shown_is_taken_and_shown_again() {
    let folder = folder();
    let file = folder.path().join("hoga.toml");
    let shown =
        hoga_with(&["config", "show"], &[("HOGA__ENGINE__RING", "2048"), ("HOGA__MARKET__SEED", "9")]);
    let shown = shown.expect(0).out;
    assert!(shown.contains("ring = 2048") && shown.contains("seed = 9"), "{shown}");
    std::fs::write(&file, &shown).unwrap();
    let checked = hoga(&["config", "check", "--config", text(&file)]).expect(0);
    assert_eq!(checked.out, "the configuration is valid\n");
    assert_eq!(hoga(&["config", "show", "--config", text(&file)]).expect(0).out, shown);
}

#[test]
fn without_a_running_system_operators_are_told_so_with_3() {
    let folder = folder();
    let data = text(folder.path());
    hoga(&["key", "new", "--data", data]).expect(3).says("[system-not-running]").says(data);
    hoga(&["audit", "--data", data]).expect(3).says("[system-not-running]");
    // What a crash leaves: a file that names an address at which nobody listens any more.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run = format!(r#"{{"url":"http://{free}","admin_token":"x","pid":1}}"#);
    std::fs::write(folder.path().join("run.json"), run).unwrap();
    hoga(&["key", "new", "--data", data]).expect(3).says("[system-unreachable]");
}

#[test]
fn up_serves_keys_and_audits_with_empty_books() {
    let folder = folder();
    let up = Up::start(folder.path());
    let data = text(folder.path());
    let run = folder.path().join("run.json");
    assert_eq!(std::fs::metadata(&run).unwrap().permissions().mode() & 0o777, 0o600);

    let admin = up.admin();
    let info = admin.get("/api/v3/exchangeInfo").unwrap();
    let symbols = info["symbols"].as_array().unwrap();
    assert_eq!(symbols.len(), MARKETS.len());
    for symbol in symbols {
        let depth =
            admin.get(&format!("/api/v3/depth?symbol={}", symbol["symbol"].as_str().unwrap())).unwrap();
        assert_eq!(
            (depth["bids"].as_array().unwrap().len(), depth["asks"].as_array().unwrap().len()),
            (0, 0)
        );
    }

    let made = hoga(&["key", "new", "--deposit", "BTC=10", "--deposit", "USDT=0.00000001", "--data", data]);
    let made = made.expect(0);
    assert_eq!(made.out.lines().count(), 1, "{made:?}");
    let account: Account = serde_json::from_value(made.json()).unwrap();
    let form = Sender::new(std::slice::from_ref(&account)).form(0, &[]);
    let balances = admin.get_signed(&format!("/api/v3/account?{form}"), &account.key).unwrap();
    let balances: Vec<_> = balances["balances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| (b["asset"].as_str().unwrap(), b["free"].as_str().unwrap()))
        .filter(|(_, free)| free.bytes().any(|b| (b'1'..=b'9').contains(&b)))
        .collect();
    assert_eq!(balances, [("BTC", "10.00000000"), ("USDT", "0.00000001")]);
    hoga(&["key", "new", "--deposit", "GOLD=1", "--data", data]).expect(1).says("[request-refused]");

    let audit = hoga(&["audit", "--data", data, "--json"]).expect(0).json();
    assert_eq!(audit["clean"], true);
    assert_eq!(audit["assets"]["BTC"]["deposited"], "10.00000000");
    let words = hoga(&["audit", "--data", data]).expect(0).out;
    assert!(words.contains("audit at command ") && words.contains("clean: ledger"), "{words}");
    assert!(!words.contains("null"), "{words}");

    wait_for("the groups are looked at", Duration::from_secs(20), || {
        hoga(&["lag", "--data", data, "--json"]).expect(0).json()["groups"]
            .as_array()
            // A group that reads two topics is there with each.
            .is_some_and(|g| g.len() == 7)
    });
    let table = hoga(&["lag", "--data", data]).expect(0).out;
    assert!(table.starts_with("GROUP") && table.contains("account-service"), "{table}");
    let table = hoga(&["group", "forget", "account-service", "--data", data]).expect(4);
    table.says("[data-folder]");

    up.stop();
    assert!(!run.exists(), "run.json is removed at the end");
    let forgotten = hoga(&["group", "forget", "account-service", "--data", data]).expect(0).out;
    assert_eq!(forgotten, "group account-service is forgotten on order.lifecycle\n");
    hoga(&["group", "forget", "account-service", "--data", data]).expect(1).says("not registered");
}

/// A folder with these commands in its journal, and nothing else.
fn folder_with(bodies: impl IntoIterator<Item = Body>) -> TempDir {
    let folder = folder();
    let dir = folder.path().join("engine/journal");
    std::fs::create_dir_all(&dir).unwrap();
    let config =
        JournalConfig { segment_bytes: 2 << 20, durability: Durability::Write, ..JournalConfig::new(dir) };
    let (mut journal, _) = Journal::open(Disk, config).unwrap();
    append(&mut journal, 1, bodies);
    journal.sync().unwrap();
    folder
}

fn append(journal: &mut Journal<Disk>, first: u64, bodies: impl IntoIterator<Item = Body>) {
    let (mut batch, mut encoded) = (Batch::new(), Vec::new());
    for (seq, body) in (first..).map(Seq).zip(bodies) {
        let (time, deadline) = (Timestamp(1_796_000_000_000_000), Timestamp(0));
        encoded.clear();
        encode_command(&Command { seq, time, rules: RULES_VERSION, deadline, body }, &mut encoded);
        batch.push(seq, &encoded);
    }
    journal.append(batch.first(), batch.count(), batch.records()).unwrap();
}

/// Built-in assets and markets, some of each, as an older release had them.
fn older_market() -> Vec<Body> {
    let all = default_market();
    let assets = all.iter().filter(|b| matches!(b, Body::AddAsset { .. })).take(6);
    let markets = all.iter().filter(|b| matches!(b, Body::SetInstrument(_))).take(5);
    assets.chain(markets).copied().collect()
}

#[test]
fn a_folder_of_an_older_release_gets_the_newer_markets() {
    let folder = folder_with(older_market());
    let up = Up::start_with(&["up"], folder.path());
    let admin = up.admin();
    for market in MARKETS {
        let path = format!("/api/v3/depth?symbol={}", market.symbol);
        wait_for(&format!("orders in {}", market.symbol), Duration::from_secs(30), || {
            let depth = admin.get(&path).unwrap();
            !depth["bids"].as_array().unwrap().is_empty() && !depth["asks"].as_array().unwrap().is_empty()
        });
    }
    up.stop();
    // Again, with everything there.
    let up = Up::start_with(&["up"], folder.path());
    assert_eq!(up.admin().audit().unwrap()["clean"], true);
    up.stop();
}

#[test]
fn no_market_is_simulated_where_other_markets_are() {
    let mut bodies = older_market();
    bodies.push(Body::AddAsset { id: AssetId(6), name: Name::new("GOLD").unwrap() });
    let folder = folder_with(bodies);
    let data = text(folder.path());
    let ended =
        hoga(&["up", "--port", "0", "--data", data]).expect(4).says("[market-start]").says("--no-market");
    assert!(ended.out.is_empty(), "ready was not promised: {ended:?}");
    assert!(!folder.path().join("run.json").exists());
    let up = Up::start(folder.path());
    assert_eq!(up.admin().get("/api/v3/exchangeInfo").unwrap()["symbols"].as_array().unwrap().len(), 5);
    up.stop();
}

#[test]
fn one_system_for_a_folder_and_a_port() {
    let folder = folder();
    let data = text(folder.path());
    let up = Up::start(folder.path());
    hoga(&["up", "--no-market", "--port", "0", "--data", data])
        .expect(4)
        .says("[data-folder]")
        .says("another hoga runs on it");
    // The second one took nothing from the first.
    assert_eq!(up.admin().audit().unwrap()["clean"], true);

    let other = self::folder();
    let port = up.address().rsplit_once(':').unwrap().1;
    let ended = hoga(&["up", "--no-market", "--port", port, "--data", text(other.path())]);
    ended.expect(4).says(up.address());
    assert!(!other.path().join("run.json").exists());
    // What could not start has let go of its folder.
    Up::start(other.path()).stop();
    up.stop();

    // A data folder that cannot be one.
    let file = other.path().join("file");
    std::fs::write(&file, "x").unwrap();
    hoga(&["up", "--no-market", "--port", "0", "--data", text(&file)]).expect(4).says("[data-folder]");
}

/// Places orders on one connection as fast as answers come; counts answers. Ends when the server does.
fn load(address: &str, account: &Account, answers: &AtomicU64, over: &AtomicBool) {
    let mut sender = Sender::new(std::slice::from_ref(account));
    let symbol = hoga_lab::load::Symbol {
        name: "BTCUSDT".into(),
        tick: 1_000_000,
        middle: 9_500_000_000_000,
        qty: 100_000,
    };
    let mut stream = sender.connect(address, Duration::from_secs(10)).expect("a connection");
    let (mut buffer, mut chunk, mut number) = (Vec::new(), vec![0; 1 << 16], 0);
    let mut under_way = 0_u64;
    while !over.load(Ordering::Acquire) {
        while under_way < 64 {
            number += 1;
            let crosses = number % 3 == 0;
            let name = format!("load-{number}");
            let request = sender.place(number, 0, &symbol, &name, number % 2 == 0, crosses);
            if stream.write_all(&request).is_err() {
                return;
            }
            under_way += 1;
        }
        match stream.read(&mut chunk) {
            Ok(n) if n > 0 => buffer.extend_from_slice(&chunk[..n]),
            _ => return,
        }
        while parse_answer(&mut buffer).is_some() {
            under_way = under_way.saturating_sub(1);
            answers.fetch_add(1, Ordering::Release);
        }
    }
}

#[test]
fn sigterm_under_load_with_open_connections_ends_in_order() {
    let folder = folder();
    let up = Up::start(folder.path());
    let account = up.account();
    let address = up.address().to_owned();
    let (answers, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| load(&address, &account, &answers, &over));
        // Streams that nobody reads, an API connection that says nothing, and half a request.
        let streams: Vec<_> = ["btcusdt@depth@0ms", "btcusdt@trade", "btcusdt@kline_1s"]
            .map(|s| Watcher::open(&address, &format!("/ws/{s}")).unwrap())
            .into();
        let quiet = Sender::new(&[]).connect(&address, Duration::from_secs(10)).unwrap();
        let mut half = TcpStream::connect(&address).unwrap();
        half.write_all(b"POST /api/v3/order HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsym").unwrap();
        wait_for("some answers", Duration::from_secs(30), || answers.load(Ordering::Acquire) > 500);
        let (took, code, err) = up.terminate();
        over.store(true, Ordering::Release);
        assert_eq!(code, Some(0), "{err}");
        assert!(took < Duration::from_secs(5), "{took:?}: {err}");
        drop((streams, quiet, half));
    });
    let data = text(folder.path());
    let report = hoga(&["journal", "verify", "--data", data, "--json"]).expect(0).json();
    assert_eq!(report["verdict"], "clean", "{report}");
    let up = Up::start(folder.path());
    assert_eq!(up.admin().audit().unwrap()["clean"], true);
    up.stop();
}

#[test]
fn sigint_ends_as_sigterm_does() {
    let folder = folder();
    let data = text(folder.path()).to_owned();
    let up = Running::start(&["up", "--no-market", "--port", "0", "--data", &data], &[]);
    wait_for("run.json", Duration::from_secs(30), || folder.path().join("run.json").exists());
    up.signal(Signal::INT);
    let ended = up.end().expect(0);
    assert!(ended.out.starts_with("ready http://127.0.0.1:"), "{ended:?}");
}

/// A system that has taken some orders and has ended; the client ids of the orders.
fn stopped_with_orders(folder: &Path, count: u64) -> Vec<String> {
    let up = Up::start(folder);
    let account = up.account();
    let admin = up.admin();
    let ids: Vec<String> = (0..count).map(|n| format!("resting-order-{n:04}")).collect();
    for id in &ids {
        place(&admin, &account, id);
    }
    up.stop();
    ids
}

fn place(admin: &Admin, account: &Account, id: &str) {
    let form = Sender::new(std::slice::from_ref(account)).form(
        0,
        &[
            ("symbol", "BTCUSDT"),
            ("side", "BUY"),
            ("type", "LIMIT"),
            ("timeInForce", "GTC"),
            ("quantity", "0.001"),
            ("price", "90000.00"),
            ("newClientOrderId", id),
        ],
    );
    let answer = admin.post_signed("/api/v3/order", &form, &account.key).expect("the order is taken");
    assert_eq!(answer["status"], "NEW", "{answer}");
}

/// The one segment of a short journal.
fn segment(data: &Path) -> PathBuf {
    data.join("engine/journal/00000001.seg")
}

fn find(bytes: &[u8], what: &str) -> usize {
    bytes.windows(what.len()).position(|w| w == what.as_bytes()).expect("it is in the file")
}

#[test]
fn the_journal_of_a_stopped_system_is_verified_dumped_and_counted() {
    let folder = folder();
    let ids = stopped_with_orders(folder.path(), 5);
    let data = text(folder.path());
    let report = hoga(&["journal", "verify", "--data", data, "--json"]).expect(0).json();
    assert_eq!(
        (&report["verdict"], &report["first"], &report["torn_bytes"]),
        (&"clean".into(), &1.into(), &0.into())
    );
    let last = report["last"].as_u64().unwrap();
    assert!(hoga(&["journal", "verify", "--data", data]).expect(0).out.starts_with("clean: commands 1 to "));

    let dump = hoga(&["journal", "dump", "--data", data, "--json"]).expect(0).out;
    let lines: Vec<serde_json::Value> = dump.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len() as u64, last);
    assert!(lines.iter().zip(1..).all(|(line, seq)| line["seq"] == seq));
    let placed: Vec<&str> = lines
        .iter()
        .filter(|l| l["command"] == "place")
        .map(|l| l["body"]["client_id"].as_str().unwrap())
        .collect();
    assert_eq!(placed, ids);
    let part = hoga(&["journal", "dump", "--data", data, "--from", "3", "--to", "4"]).expect(0).out;
    assert_eq!(part.lines().map(|l| &l[..2]).collect::<Vec<_>>(), ["3 ", "4 "]);

    let stats = hoga(&["journal", "stats", "--data", data, "--json"]).expect(0).json();
    assert_eq!((stats["records"].as_u64(), stats["segments"].as_u64()), (Some(last), Some(1)));
    assert!(hoga(&["journal", "stats", "--data", data]).expect(0).out.contains("records "));
}

#[test]
fn a_flipped_byte_is_found_and_nothing_starts_on_it() {
    let folder = folder();
    let ids = stopped_with_orders(folder.path(), 9);
    let data = text(folder.path());
    let path = segment(folder.path());
    let bytes = std::fs::read(&path).unwrap();
    let at = find(&bytes, &ids[4]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();

    // The offset is that of the batch with the damage.
    let ended = hoga(&["journal", "verify", "--data", data, "--json"]).expect(1).says("[journal-damaged]");
    let report = ended.json();
    let offset = report["problem"]["offset"].as_u64().unwrap();
    assert_eq!(report["verdict"], "damaged");
    assert!(report["problem"]["path"].as_str().unwrap().ends_with("00000001.seg"), "{report}");
    assert!(offset <= at as u64 && at as u64 - offset < 512, "{offset} for {at}");
    hoga(&["journal", "verify", "--data", data])
        .expect(1)
        .says("00000001.seg")
        .says(&format!("byte {offset}"));
    // What reads on the way says so too, and does not take the damage for the end.
    let dump = hoga(&["journal", "dump", "--data", data, "--json"]).expect(1).says("00000001.seg").out;
    assert!(dump.contains(&ids[3]) && !dump.contains(&ids[5]), "{dump}");
    hoga(&["journal", "dump", "--data", data, "--to", "3"]).expect(0);
    hoga(&["journal", "stats", "--data", data]).expect(1).says("00000001.seg");
    for _ in 0..2 {
        let ended = hoga(&["up", "--no-market", "--port", "0", "--data", data]);
        let ended = ended.expect(4).says("[log-damaged]").says("00000001.seg");
        assert!(ended.out.is_empty(), "{ended:?}");
    }
    // Nothing was repaired behind the operator's back: with the byte back in its place everything is there.
    file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let up = Up::start(folder.path());
    assert_eq!(up.admin().audit().unwrap()["clean"], true);
    up.stop();
}

/// Puts the beginning of the next batch behind the journal's last one, as a machine leaves it that stopped in the middle of the write.
fn half_a_batch(data: &Path, next: u64, used: u64) {
    let dir = data.join("engine/journal");
    let config =
        JournalConfig { segment_bytes: 2 << 20, durability: Durability::Write, ..JournalConfig::new(dir) };
    let (mut journal, _) = Journal::open(Disk, config).unwrap();
    append(&mut journal, next, std::iter::repeat_n(Body::CreateAccount, 40));
    journal.flush().unwrap();
    drop(journal);
    let path = segment(data);
    let bytes = std::fs::read(&path).unwrap();
    let second = used as usize + 512;
    assert!(
        bytes[used as usize..second].iter().any(|b| *b != 0)
            && bytes[second..second + 512].iter().any(|b| *b != 0)
    );
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; bytes.len() - second], second as u64).unwrap();
}

#[test]
fn a_torn_last_batch_is_cut() {
    let folder = folder();
    let up = Up::start(folder.path());
    let account = up.account();
    place(&up.admin(), &account, "resting-order");
    up.kill();
    let data = text(folder.path());
    let before = hoga(&["journal", "verify", "--data", data, "--json"]).expect(0).json();
    let used = before["segments"][0]["used_bytes"].as_u64().unwrap();
    half_a_batch(folder.path(), before["last"].as_u64().unwrap() + 1, used);
    let torn = hoga(&["journal", "verify", "--data", data, "--json"]).expect(0).json();
    assert_eq!((&torn["verdict"], &torn["last"]), (&"torn".into(), &before["last"]), "{torn}");
    assert!(torn["torn_bytes"].as_u64().unwrap() > 0);

    let up = Up::start(folder.path());
    assert!(up.err().contains("cut_bytes"), "{}", up.err());
    assert_eq!(up.admin().audit().unwrap()["clean"], true);
    let form = Sender::new(std::slice::from_ref(&account)).form(0, &[("symbol", "BTCUSDT")]);
    let open = up.admin().get_signed(&format!("/api/v3/openOrders?{form}"), &account.key).unwrap();
    assert_eq!(open[0]["clientOrderId"], "resting-order");
    place(&up.admin(), &account, "the-next-order");
    up.stop();
    let after = hoga(&["journal", "verify", "--data", data, "--json"]).expect(0).json();
    assert_eq!((&after["verdict"], &after["torn_bytes"]), (&"clean".into(), &0.into()), "{after}");
    assert_eq!(after["last"].as_u64(), before["last"].as_u64().map(|n| n + 1));
}

#[test]
fn an_interrupted_bench_leaves_nothing_behind() {
    for (arguments, signal) in [
        (&["bench", "idle", "--seconds", "600"][..], Signal::INT),
        (&["bench", "orders", "--rate", "200", "--seconds", "600", "--accounts", "2"], Signal::INT),
        (&["lab", "crash", "--rounds", "1000"], Signal::TERM),
    ] {
        let temporary = folder();
        let bench = Running::start(arguments, &[("TMPDIR", text(temporary.path()))]);
        let mut server = 0;
        wait_for("the bench's server", Duration::from_secs(30), || {
            let folders = std::fs::read_dir(temporary.path()).unwrap();
            let run =
                folders.flatten().find_map(|f| std::fs::read_to_string(f.path().join("data/run.json")).ok());
            let run = run.and_then(|text| serde_json::from_str::<hoga_lab::admin::RunFile>(&text).ok());
            server = run.as_ref().map_or(0, |run| run.pid);
            server > 0
        });
        bench.signal(signal);
        bench.end().expect(1).says("was interrupted");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "{arguments:?}");
        wait_for("the server's end", Duration::from_secs(10), || {
            let command = std::fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default();
            !String::from_utf8_lossy(&command).contains(text(temporary.path()))
        });
    }
}
