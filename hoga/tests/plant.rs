//! The tick plant in one process, by its commands and its pages.

mod support;

use std::time::Duration;

use hoga_lab::admin::Admin;
use hoga_lab::process::TempDir;
use support::{Up, hoga, text, wait_for};

const LONG: Duration = Duration::from_secs(60);

/// Runs until it ends with this code: the plant may just be moving traffic by itself on a busy machine.
fn until(arguments: &[&str], code: i32) -> support::Ended {
    let mut ended = None;
    wait_for("the command to say so", LONG, || {
        let tried = hoga(arguments);
        let done = tried.code == Some(code);
        ended = Some(tried);
        done
    });
    ended.expect("it was run at least once")
}

#[test]
fn groups_and_monitor_tell_of_a_running_plant_and_traffic_moves_by_command() {
    let data = TempDir::new("plant").unwrap();
    let folder = text(data.path());
    let up = Up::start_with(&["up", "--no-market", "--feed"], data.path());
    let admin = Admin::of(data.path()).unwrap();
    let plant = || admin.get("/api/v1/plant").unwrap();
    wait_for("both groups to lead and quotes to be compared", LONG, || {
        let groups = &plant()["groups"];
        groups["compared"].as_u64() > Some(1000)
            && groups["a"]["epoch"].is_u64()
            && groups["b"]["epoch"].is_u64()
    });
    let quotes = admin.get("/api/v1/plant/quotes").unwrap();
    assert_eq!(quotes.as_array().map(Vec::len), Some(202));
    let quote = admin.get("/api/v1/plant/quotes/SIM0007").unwrap();
    assert!(quote["price"].is_string() && quote["ticker_24h"]["trades"].is_u64(), "{quote}");
    assert!(admin.get("/api/v1/plant/quotes/NONE").is_err());

    let status = hoga(&["groups", "status", "--data", folder]).expect(0).out;
    assert!(
        status.contains("A ") && status.contains("B ") && status.contains("0 symbols differ"),
        "{status}"
    );
    until(&["groups", "switch", "b", "--data", folder], 0);
    until(&["groups", "switch", "a", "--data", folder], 0);
    assert_eq!(
        hoga(&["groups", "diff", "--data", folder, "--json"]).expect(0).json()["differences"],
        serde_json::json!([])
    );
    hoga(&["groups", "switch", "c", "--data", folder]).expect(2);

    let monitor = hoga(&["monitor", "--data", folder, "--json"]).expect(0).json();
    for member in monitor["members"].as_array().unwrap() {
        for wrong in ["violations", "duplicates", "gaps", "lost", "steps_back"] {
            assert_eq!(member["total"][wrong], 0, "{member}");
        }
        assert_eq!(member["symbols"].as_array().map(Vec::len), Some(202));
    }
    let explained = hoga(&["monitor", "explain", "SIM0007", "--data", folder]).expect(0).out;
    assert!(explained.contains("in order"), "{explained}");
    hoga(&["monitor", "explain", "NONE", "--data", folder]).expect(1);

    let metrics = admin.page("/metrics").unwrap();
    for name in [
        "hoga_feed_ticks_total",
        "hoga_ticks_violations_total{group=\"a\"} 0",
        "hoga_loops_wanted",
        "hoga_groups_active",
    ] {
        assert!(metrics.contains(name), "no {name} in the metrics");
    }

    // A rebuilt group leads again, in a higher epoch.
    let before = plant()["groups"]["b"]["epoch"].as_u64();
    until(&["groups", "rebuild", "b", "--data", folder], 0);
    wait_for("B to have rebuilt itself", LONG, || plant()["groups"]["b"]["epoch"].as_u64() > before);
    drop(up);
}

#[test]
fn parts_that_cannot_work_are_refused_with_a_sentence() {
    let data = TempDir::new("plant-wrong").unwrap();
    let folder = text(data.path());
    hoga(&["run", "--role", "processor", "--data", folder]).expect(2).says("--group a");
    hoga(&["run", "--role", "quotes", "--data", folder]).expect(2).says("groups.cache");
    hoga(&["run", "--role", "exchange", "--role", "feed", "--data", folder]).expect(2).says("hoga up --feed");
    let redis = [("HOGA__GROUPS__CACHE", "redis")];
    let processor = ["run", "--role", "processor", "--group", "a", "--data", folder];
    support::hoga_with(&processor, &redis).expect(2).says("feed.bus");
    let trades = [("HOGA__FEED__SOURCE", "trades")];
    support::hoga_with(&["run", "--role", "feed", "--data", folder], &trades).expect(2).says("same process");
}

#[test]
fn the_exchanges_own_trades_go_through_the_plant() {
    let data = TempDir::new("plant-trades").unwrap();
    let config = data.path().join("hoga.toml");
    std::fs::write(&config, "[feed]\nenabled = true\nsource = \"trades\"\n[market]\nrate = 2000\n").unwrap();
    let config = text(&config).to_owned();
    let up = Up::start_with(&["up", "--config", &config], data.path());
    let admin = Admin::of(data.path()).unwrap();
    wait_for("quotes of the exchange's markets", LONG, || {
        let quotes = admin.get("/api/v1/plant/quotes").unwrap();
        quotes.as_array().is_some_and(|quotes| quotes.iter().any(|quote| quote["symbol"] == "BTCUSDT"))
    });
    // The latest price of the plant is one that the exchange has traded at.
    let quote = admin.get("/api/v1/plant/quotes/BTCUSDT").unwrap();
    let trades = admin.get("/api/v3/trades?symbol=BTCUSDT&limit=1000").unwrap();
    let known = trades.as_array().unwrap().iter().any(|trade| trade["price"] == quote["price"]);
    assert!(known, "{quote}");
    drop(up);
}
