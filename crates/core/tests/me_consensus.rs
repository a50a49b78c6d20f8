//! The bare book against the `me-consensus` oracle: five slices, 34 edge cases and the published SHA-256 of scenario `normal`.

use std::fmt::Write as _;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use hoga_core::book::Book;
use hoga_core::order::Side;
use sha2::{Digest, Sha256};

fn data(file: &str) -> Option<PathBuf> {
    let root = std::env::var_os("HOGA_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join("me-consensus").join(file);
    path.exists().then_some(path)
}

/// Runs messages through the book and writes the reports of the oracle's format.
struct Oracle {
    book: Book,
    number: u64,
    out: String,
}

impl Oracle {
    fn new() -> Oracle {
        Oracle { book: Book::new(), number: 0, out: String::new() }
    }

    fn message(&mut self, line: &str) {
        let n = self.number;
        self.number += 1;
        let mut fields = line.split(',');
        let kind = fields.next().unwrap();
        let out = &mut self.out;
        let trade = |taker: u64| {
            move |out: &mut String, m: hoga_core::book::Match| {
                writeln!(out, "1,{n},{},{},{},{taker}", m.price, m.qty, m.maker).unwrap();
            }
        };
        match kind {
            "N" => {
                let side = if fields.next() == Some("B") { Side::Buy } else { Side::Sell };
                let immediate = fields.next() == Some("1");
                let [id, price, qty] = [(); 3].map(|()| fields.next().unwrap().parse::<u64>().unwrap());
                let s = side as u8;
                writeln!(out, "0,{n},{s},{id},{price},{qty}").unwrap();
                let report = trade(id);
                let left =
                    self.book.add(id, side, price as i64, qty as i64, immediate, |m| report(out, m)).unwrap();
                if immediate && left > 0 {
                    writeln!(self.out, "2,{n},{s},{id},{price}").unwrap();
                }
            }
            "C" => {
                let id: u64 = fields.next().unwrap().parse().unwrap();
                match self.book.cancel(id) {
                    Ok(order) => writeln!(out, "2,{n},{},{id},{}", order.side as u8, order.price).unwrap(),
                    Err(_) => writeln!(out, "4,{n},{id}").unwrap(),
                }
            }
            _ => {
                let s = u8::from(fields.next() != Some("B"));
                let [id, price, qty] = [(); 3].map(|()| fields.next().unwrap().parse::<u64>().unwrap());
                let report = trade(id);
                match self.book.modify(id, price as i64, qty as i64, |m| report(out, m)) {
                    Ok(_) => writeln!(self.out, "3,{n},{s},{id},{price},{qty}").unwrap(),
                    Err(_) => writeln!(self.out, "5,{n},{id}").unwrap(),
                }
            }
        }
    }
}

fn gunzip(path: PathBuf) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn slices_are_equal() {
    for scenario in ["normal", "static", "swing-25", "swing-40", "flash-crash"] {
        let Some(messages) = data(&format!("{scenario}-20k-seed7.csv.gz")) else {
            eprintln!("SKIP me-consensus slices: data folder not found");
            return;
        };
        let reports = data(&format!("{scenario}-20k-seed7.reports.gz")).expect("reports beside the messages");
        let mut oracle = Oracle::new();
        gunzip(messages).lines().for_each(|line| oracle.message(line));
        assert!(oracle.out.lines().eq(gunzip(reports).lines()), "{scenario} differs");
    }
}

#[test]
fn edge_cases_are_equal() {
    let Some(path) = data("edge-cases.json") else {
        eprintln!("SKIP me-consensus edge cases: data folder not found");
        return;
    };
    let cases: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = cases.as_object().unwrap();
    assert_eq!(cases.len(), 34);
    for (name, case) in cases {
        let mut oracle = Oracle::new();
        if let Some(n) = case.get("n").and_then(|n| n.as_u64()) {
            // The one long case is shortened in the file: n − 1 sells of 1, and a buy that takes them all.
            (1..n).for_each(|id| oracle.message(&format!("N,S,0,{id},100,1")));
            oracle.message(&format!("N,B,1,{n},100,{}", n - 1));
            let got: Vec<&str> = oracle.out.lines().collect();
            let strings = |key: &str| {
                case[key].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect::<Vec<_>>()
            };
            let (head, tail) = (strings("reports_head"), strings("reports_tail"));
            assert_eq!(got.len() as u64, case["reports_n"].as_u64().unwrap(), "{name}");
            assert_eq!(got[..head.len()], head, "{name}");
            assert_eq!(got[got.len() - tail.len()..], tail, "{name}");
            continue;
        }
        for message in case["messages"].as_array().unwrap() {
            let fields = message.as_array().unwrap().iter();
            let line: Vec<String> =
                fields.map(|f| f.as_str().map_or_else(|| f.to_string(), str::to_owned)).collect();
            oracle.message(&line.join(","));
        }
        let want: Vec<&str> =
            case["reports"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect();
        assert_eq!(oracle.out.lines().collect::<Vec<_>>(), want, "{name}");
    }
}

#[test]
fn the_published_hash_of_normal_is_reproduced() {
    let (Some(first), Some(second), Some(hashes)) =
        (data("normal-1m.part1.csv.xz"), data("normal-1m.part2.csv.xz"), data("correctness_hash.txt"))
    else {
        eprintln!("SKIP me-consensus normal: data folder not found");
        return;
    };
    let mut oracle = Oracle::new();
    let mut hash = Sha256::new();
    let mut fed = 0_u64;
    let mut messages = Vec::new();
    for part in [first, second] {
        let mut file = BufReader::new(std::fs::File::open(part).unwrap());
        messages.clear();
        lzma_rs::xz_decompress(&mut file, &mut messages).unwrap();
        for line in std::str::from_utf8(&messages).unwrap().lines() {
            oracle.message(line);
            if oracle.out.len() > 1 << 20 {
                hash.update(oracle.out.as_bytes());
                fed += oracle.out.len() as u64;
                oracle.out.clear();
            }
        }
    }
    assert_eq!(oracle.number, 1_996_097);
    // The published stream has no newline at its end.
    hash.update(oracle.out.trim_end().as_bytes());
    assert!(fed > 0);
    let got: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let hashes = std::fs::read_to_string(hashes).unwrap();
    let want = hashes.lines().find(|line| line.contains("normal_")).and_then(|line| line.split(' ').next());
    assert_eq!(Some(got.as_str()), want);
}
