//! `hoga journal verify|dump|stats`.

use std::ops::ControlFlow;

use hoga_core::codec;
use hoga_core::command::{Body, Command};
use hoga_core::ids::Seq;
use hoga_core::order::OrderRef;
use hoga_log::journal::{self, Report, Verdict};
use hoga_log::storage::Disk;
use serde_json::{Value, json};

use crate::cli::{Journal, JournalFlags};
use crate::{End, print};

/// Runs one of the three.
pub fn run(command: &Journal) -> Result<(), End> {
    match command {
        Journal::Verify(flags) => verify(flags),
        Journal::Dump { from, to, flags } => dump(*from, *to, flags),
        Journal::Stats(flags) => stats(flags),
    }
}

fn folder(flags: &JournalFlags) -> Result<std::path::PathBuf, End> {
    let dir = flags.data.join("engine").join("journal");
    if !dir.is_dir() {
        return Err(End::Usage(format!(
            "[journal-missing] no journal in {}: name the data folder with --data",
            dir.display()
        )));
    }
    Ok(dir)
}

fn bad(error: &dyn std::fmt::Display) -> End {
    End::Bad(error.to_string())
}

fn verify(flags: &JournalFlags) -> Result<(), End> {
    let report = journal::verify(&Disk, &folder(flags)?).map_err(|e| bad(&e))?;
    let segments: Vec<Value> = report
        .segments
        .iter()
        .map(|s| {
            json!({ "path": s.path, "first": s.first, "last": s.last, "batches": s.batches, "records": s.records,
                    "used_bytes": s.used_bytes, "file_bytes": s.file_bytes })
        })
        .collect();
    let problem = report
        .problem
        .as_ref()
        .map(|p| json!({ "path": p.path, "offset": p.offset, "expected": p.expected, "text": p.text }));
    if flags.json {
        print(format_args!(
            "{}",
            json!({ "verdict": report.verdict.as_str(), "first": report.first, "last": report.last,
                    "synced_through": report.synced_through, "chain": format!("{:016x}", report.chain),
                    "torn_bytes": report.torn_bytes, "segments": segments, "problem": problem })
        ))?;
    } else {
        print(format_args!(
            "{}: commands {} to {} in {} segments, {} torn bytes",
            report.verdict.as_str(),
            report.first,
            report.last,
            report.segments.len(),
            report.torn_bytes
        ))?;
    }
    damage(&report)
}

/// What is damaged, if something is. A torn tail is none: nobody was told of it, and the next start cuts it.
fn damage(report: &Report) -> Result<(), End> {
    match (report.verdict, &report.problem) {
        (Verdict::Clean | Verdict::Torn, _) => Ok(()),
        (Verdict::Damaged, Some(problem)) => Err(End::Bad(format!(
            "[journal-damaged] {} at byte {}: {} (command {} expected). Restore the folder from a copy; the system refuses to start on it",
            problem.path.display(),
            problem.offset,
            problem.text,
            problem.expected
        ))),
        (Verdict::Damaged, None) => Err(End::Bad(format!("[journal-damaged] {}", report.verdict.as_str()))),
    }
}

fn stats(flags: &JournalFlags) -> Result<(), End> {
    let s = journal::stats(&Disk, &folder(flags)?).map_err(|e| bad(&e))?;
    let value = json!({
        "first": s.first, "last": s.last, "segments": s.segments, "file_bytes": s.file_bytes, "records": s.records,
        "batches": s.batches, "payload_bytes": s.payload_bytes, "header_bytes": s.header_bytes,
        "padding_bytes": s.padding_bytes, "longest_record": s.longest_record, "largest_batch": s.largest_batch,
        "batches_by_size": s.batches_by_size,
    });
    if flags.json {
        print(format_args!("{value}"))?;
    } else {
        for (name, value) in value.as_object().into_iter().flatten() {
            print(format_args!("{name:<16} {value}"))?;
        }
    }
    whole(flags)
}

/// Reading stops where the damage begins; whoever reads must not take that for the end.
fn whole(flags: &JournalFlags) -> Result<(), End> {
    damage(&journal::verify(&Disk, &folder(flags)?).map_err(|e| bad(&e))?)
}

fn dump(from: u64, to: u64, flags: &JournalFlags) -> Result<(), End> {
    let mut end = None;
    journal::dump(&Disk, &folder(flags)?, Seq(from), |record| {
        if record.seq.0 > to {
            end = Some(Ok(()));
            return ControlFlow::Break(());
        }
        let line = codec::decode_command(record.payload).map_err(|e| bad(&e)).and_then(|command| {
            if flags.json {
                print(format_args!("{}", command_json(&command)))
            } else {
                print(format_args!("{} {} {:?}", command.seq, command.time, command.body))
            }
        });
        match line {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                end = Some(Err(error));
                ControlFlow::Break(())
            }
        }
    })
    .map_err(|e| bad(&e))?;
    end.unwrap_or_else(|| whole(flags))
}

fn command_json(command: &Command) -> Value {
    let (name, body) = body_json(&command.body);
    json!({
        "seq": command.seq.0, "time_us": command.time.0, "rules": command.rules, "deadline_us": command.deadline.0,
        "command": name, "body": body,
    })
}

fn reference(order: &OrderRef) -> Value {
    match order {
        OrderRef::Id(id) => json!({ "id": id.0 }),
        OrderRef::Client(id) => json!({ "client_id": id.as_str() }),
    }
}

fn body_json(body: &Body) -> (&'static str, Value) {
    match body {
        Body::AddAsset { id, name } => ("add_asset", json!({ "id": id.0, "name": name.as_str() })),
        Body::SetInstrument(i) => (
            "set_instrument",
            json!({ "id": i.id.0, "symbol": i.symbol.as_str(), "base": i.base.0, "quote": i.quote.0,
                    "state": i.state.as_str(), "price_tick": i.price_tick.to_string(),
                    "lot_step": i.lot_step.to_string(), "maker_fee_ppm": i.maker_fee_ppm,
                    "taker_fee_ppm": i.taker_fee_ppm }),
        ),
        Body::SetState { market, state } => {
            ("set_state", json!({ "market": market.0, "state": state.as_str() }))
        }
        Body::CreateAccount => ("create_account", json!({})),
        Body::Deposit { account, asset, amount, reference }
        | Body::Withdraw { account, asset, amount, reference } => (
            if matches!(body, Body::Deposit { .. }) { "deposit" } else { "withdraw" },
            json!({ "account": account.0, "asset": asset.0, "amount": amount.to_string(),
                    "reference": reference.as_str() }),
        ),
        Body::SettleWithdrawal { id } => ("settle_withdrawal", json!({ "id": id.0 })),
        Body::ReleaseWithdrawal { id } => ("release_withdrawal", json!({ "id": id.0 })),
        Body::Place(o) => (
            "place",
            json!({ "account": o.account.0, "market": o.market.0, "side": o.side.as_str(),
                    "type": o.order_type.as_str(), "time_in_force": o.tif.as_str(), "price": o.price.to_string(),
                    "stop_price": o.stop_price.to_string(), "qty": o.qty.to_string(),
                    "quote_qty": o.quote_qty.to_string(), "stp": o.stp.as_str(),
                    "client_id": o.client_id.as_str() }),
        ),
        Body::Cancel { account, market, order, cancel_id } => (
            "cancel",
            json!({ "account": account.0, "market": market.0, "order": reference(order),
                    "cancel_id": cancel_id.as_str() }),
        ),
        Body::CancelAll { account, market } => {
            ("cancel_all", json!({ "account": account.0, "market": market.map(|m| m.0) }))
        }
        Body::Modify { account, market, order, price, qty } => (
            "modify",
            json!({ "account": account.0, "market": market.0, "order": reference(order),
                    "price": price.to_string(), "qty": qty.to_string() }),
        ),
    }
}
