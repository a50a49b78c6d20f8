//! Recorded order flow through the whole system: `hoga replay FILE --speed max --exit` on a fresh folder.

mod support;

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use hoga_core::codec::decode_event;
use hoga_core::event::{Event, EventRecord, Execution, Trade};
use hoga_core::ids::OrderId;
use hoga_core::money::SCALE;
use hoga_lab::process::TempDir;
use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, EventLog};
use hoga_sim::bitstamp::{PublishedTrade, read_trades};
use support::{Ended, Up, hoga, recording, text};

fn replay(file: &Path, data: &Path) -> Ended {
    hoga(&["replay", text(file), "--speed", "max", "--exit", "--port", "0", "--data", text(data)])
}

/// All messages of a topic of a stopped system.
fn messages(data: &Path, topic: &str) -> Vec<EventRecord> {
    let log = EmbeddedLog::open(data.join("log"), EmbeddedConfig::default()).unwrap();
    let (mut events, mut page, mut next) = (Vec::new(), Vec::new(), 0);
    loop {
        page.clear();
        let after = log.read(topic, 0, next, 10_000, &mut page).unwrap();
        for message in &page {
            let (number, event) = decode_event(message.value.as_deref().unwrap()).unwrap();
            assert_eq!(number, message.offset + 1);
            events.push(event);
        }
        if after == next {
            return events;
        }
        next = after;
    }
}

/// The trades, and the recording's own number of each order.
fn trades(data: &Path) -> (Vec<Trade>, HashMap<OrderId, u64>) {
    let names = messages(data, "order.lifecycle").into_iter().filter_map(|record| match record.event {
        Event::Order(e) if e.execution == Execution::New => {
            Some((e.order.id, e.order.request.client_id.as_str().parse().unwrap()))
        }
        _ => None,
    });
    let names = names.collect();
    let trades = messages(data, "trade.completed").into_iter().filter_map(|record| match record.event {
        Event::Trade(trade) => Some(trade),
        _ => None,
    });
    (trades.collect(), names)
}

/// Read models, ledger and journal of what a replay left.
fn is_sound(data: &Path) -> Up {
    let report = hoga(&["journal", "verify", "--data", text(data), "--json"]).expect(0).json();
    assert_eq!(report["verdict"], "clean", "{report}");
    let up = Up::start(data);
    let audit = up.admin().audit().unwrap();
    assert_eq!(audit["clean"], true, "{audit}");
    up
}

#[test]
fn the_bitstamp_capture_gives_the_published_trades() {
    let test = "the_bitstamp_capture_gives_the_published_trades";
    let Some(orders) = recording(test, "bitstamp-l3/orders.csv.gz") else { return };
    let Some(published) = recording(test, "bitstamp-l3/trades.csv") else { return };
    let published = read_trades(hoga_sim::recording::open(&published).unwrap()).unwrap();
    assert_eq!(published.len(), 284);
    let data = TempDir::new("replay").unwrap();
    replay(&orders, data.path()).expect(0).says("284 trades");

    let (made, names) = trades(data.path());
    assert_eq!(made.len(), 284);
    for (place, (ours, theirs)) in made.iter().zip(&published).enumerate() {
        let ours = PublishedTrade {
            id: theirs.id, // Bitstamp counts from elsewhere; ours count from 1
            price: ours.price,
            qty: ours.qty,
            buy_order: names[&ours.buy_order],
            sell_order: names[&ours.sell_order],
            taker_side: ours.taker_side,
        };
        assert_eq!(ours, *theirs, "trade {place}");
        assert_eq!(made[place].id.0, place as u64 + 1);
    }

    // The same, as a client of the system that is started on that folder sees it.
    let up = is_sound(data.path());
    let shown = up.admin().get("/api/v3/trades?symbol=BTCUSD&limit=1000").unwrap();
    let shown: Vec<_> = shown
        .as_array()
        .unwrap()
        .iter()
        .map(|t| (t["price"].as_str().unwrap().to_owned(), t["qty"].as_str().unwrap().to_owned()))
        .collect();
    let expected: Vec<_> = published.iter().map(|t| (t.price.to_string(), t.qty.to_string())).collect();
    assert_eq!(shown, expected);
    let best = up.admin().get("/api/v3/ticker/bookTicker?symbol=BTCUSD").unwrap();
    assert_eq!((&best["bidPrice"], &best["askPrice"]), (&"78350.00000000".into(), &"78351.00000000".into()));
    up.stop();
}

#[test]
fn the_consensus_slices_give_the_trades_that_their_reports_have() {
    for scenario in ["normal", "flash-crash"] {
        let test = "the_consensus_slices_give_the_trades_that_their_reports_have";
        let Some(file) = recording(test, &format!("me-consensus/{scenario}-20k-seed7.csv.gz")) else {
            return;
        };
        let Some(reports) = recording(test, &format!("me-consensus/{scenario}-20k-seed7.reports.gz")) else {
            return;
        };
        // `1,message,price,quantity,maker,taker`, prices in cents.
        let reports = hoga_sim::recording::open(&reports).unwrap().lines().map(Result::unwrap);
        let expected: Vec<[u64; 4]> = reports
            .filter_map(|line| line.strip_prefix("1,").map(str::to_owned))
            .map(|line| {
                let fields: Vec<u64> = line.split(',').map(|f| f.parse().unwrap()).collect();
                [fields[1], fields[2], fields[3], fields[4]]
            })
            .collect();
        let data = TempDir::new("replay").unwrap();
        replay(&file, data.path()).expect(0).says(&format!("{} trades", expected.len()));
        let (made, names) = trades(data.path());
        let made: Vec<[u64; 4]> = made
            .iter()
            .map(|t| {
                let (buy, sell) = (names[&t.buy_order], names[&t.sell_order]);
                let buyer_takes = t.taker_side == hoga_core::order::Side::Buy;
                let (maker, taker) = if buyer_takes { (sell, buy) } else { (buy, sell) };
                [(t.price.0 / (SCALE / 100)) as u64, (t.qty.0 / SCALE) as u64, maker, taker]
            })
            .collect();
        assert_eq!(made.len(), expected.len(), "{scenario}");
        for (place, (ours, theirs)) in made.iter().zip(&expected).enumerate() {
            assert_eq!(ours, theirs, "{scenario}, trade {place}");
        }
        is_sound(data.path()).stop();
    }
}

#[test]
fn what_is_no_recording_is_refused_with_line_and_field() {
    let folder = TempDir::new("replay").unwrap();
    let file = folder.path().join("recording.csv");
    let data = folder.path().join("data");
    let heading = "id,timestamp,exchange_timestamp,price,volume,action,direction\n";
    for (content, named) in [
        ("hello\n".to_owned(), "line 1, field kind: 'hello'"),
        ("N,B,0,1,100,3\nN,B,0,2,x,3\n".to_owned(), "line 2, field price: 'x'"),
        ("N,B,0,1,100\n".to_owned(), "line 1 has 5 fields instead of 6"),
        ("id,something\n1,2\n".to_owned(), "line 1 is not the heading"),
        (format!("{heading}1,2,3,abc,1,created,bid\n"), "line 2, field price: 'abc'"),
        (format!("{heading}1,2,3,1.0,1,created,up\n"), "line 2, field direction: 'up'"),
        ("x".repeat(5_000), "line 1 is longer than 4096 bytes"),
        (String::new(), "it is empty"),
    ] {
        std::fs::write(&file, content).unwrap();
        let ended = replay(&file, &data).expect(2).says("[recording-unreadable]").says(named);
        assert!(ended.err.contains("recording.csv") && ended.out.is_empty(), "{ended:?}");
    }
    // A damaged archive.
    std::fs::write(&file, [0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
    replay(&file, &data).expect(2).says("[recording-unreadable]");
    assert!(!data.exists(), "nothing is made for a recording that cannot be read");
}
