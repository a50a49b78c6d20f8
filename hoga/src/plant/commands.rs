//! `hoga groups …` and `hoga monitor …`: asked of the running process.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use hoga_lab::admin::Admin;
use serde_json::{Value, json};

use crate::cli::{Groups, Monitor, MonitorCommand};
use crate::{End, print};

/// `hoga groups …`
pub fn groups(command: &Groups) -> Result<(), End> {
    match command {
        Groups::Status { data, json } => {
            let plant = Admin::of(data)?.get("/api/v1/plant")?;
            if *json {
                return print(format_args!("{plant}"));
            }
            print(format_args!("{}", status_text(&plant)))
        }
        Groups::Switch { to, force, data } => {
            let body = json!({ "to": to, "force": if *force { "true" } else { "false" } });
            let query = format!("?to={to}&force={force}");
            let done = post(&Admin::of(data)?, "/api/v1/admin/plant/switch", &query, &body)?;
            print(format_args!("{done}"))
        }
        Groups::Diff { data, json } => {
            let diff = Admin::of(data)?.get("/api/v1/plant/diff")?;
            if *json {
                print(format_args!("{diff}"))?;
            } else {
                print(format_args!("{}", diff_text(&diff)))?;
            }
            match diff["differences"].as_array() {
                Some(found) if found.is_empty() => Ok(()),
                Some(found) => Err(End::Bad(format!("the groups differ in {} symbols", found.len()))),
                None => Err(End::Bad(
                    "this process shows no groups: name the data folder of the one with the role quotes"
                        .into(),
                )),
            }
        }
        Groups::Rebuild { group, data } => {
            let body = json!({ "group": group });
            let query = format!("?group={group}");
            print(format_args!("{}", post(&Admin::of(data)?, "/api/v1/admin/plant/rebuild", &query, &body)?))
        }
    }
}

/// The whole system reads a body, a process with some roles what is behind the question mark: both are sent.
fn post(admin: &Admin, path: &str, query: &str, body: &Value) -> Result<Value, End> {
    match admin.post(path, body) {
        Err(hoga_lab::admin::AdminError::Refused { status: 400 | 404 | 422, .. }) => {
            Ok(admin.post(&format!("{path}{query}"), &Value::Null)?)
        }
        other => Ok(other?),
    }
}

/// `hoga monitor …`
pub fn monitor(flags: &Monitor) -> Result<(), End> {
    let admin = Admin::of(&flags.data)?;
    if let Some(MonitorCommand::Explain { symbol }) = &flags.command {
        let found = admin.get(&format!("/api/v1/plant/explain/{symbol}"))?;
        if flags.json {
            print(format_args!("{found}"))?;
        } else {
            print(format_args!("{}", found["text"].as_str().unwrap_or_default()))?;
            for place in found["findings"].as_array().into_iter().flatten() {
                print(format_args!(
                    "  lane {} offset {}: epoch {} number {} {}",
                    place["lane"],
                    place["offset"],
                    place["epoch"],
                    place["seq"],
                    place["verdict"].as_str().unwrap_or_default()
                ))?;
            }
        }
        return match found["blame"].as_str() {
            Some("nobody") => Ok(()),
            _ => Err(End::Bad("the order is not right, or nothing is known of it: see above".into())),
        };
    }
    loop {
        let found = admin.get("/api/v1/plant/monitor")?;
        let clear = if flags.watch && std::io::stdout().is_terminal() { "\x1b[H\x1b[J" } else { "" };
        let text = if flags.json { found.to_string() } else { monitor_text(&found, flags.all) };
        match writeln!(std::io::stdout().lock(), "{clear}{text}") {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
        if !flags.watch {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn status_text(plant: &Value) -> String {
    let mut out = String::new();
    let groups = &plant["groups"];
    if groups.is_null() {
        out.push_str("this process shows no groups; its members:\n");
        for member in plant["members"].as_array().into_iter().flatten() {
            let leads = if member["leads"] == true { "leads" } else { "follows" };
            out.push_str(&format!(
                "  {} {} {leads}, {} behind, {} refused\n",
                member["group"].as_str().unwrap_or("?"),
                member["node"].as_str().unwrap_or("?"),
                member["status"]["behind"],
                member["refused"]
            ));
        }
        return out.trim_end().to_owned();
    }
    out.push_str(&format!(
        "{:<7}{:<8}{:<28}{:>16}{:>10}{:>9}{:>8}{:>9}{:>9}  members\n",
        "group", "shown", "leader", "epoch", "behind", "ms", "stale", "p99 µs", "refused"
    ));
    for group in ["a", "b"] {
        let of = &groups[group];
        let members = of["members"].as_array().map_or(0, Vec::len);
        out.push_str(&format!(
            "{:<7}{:<8}{:<28}{:>16}{:>10}{:>9}{:>8}{:>9}{:>9}  {members}{}\n",
            group.to_uppercase(),
            if of["active"] == true { "yes" } else { "" },
            of["leader"].as_str().unwrap_or("none"),
            of["epoch"].to_string(),
            number(&of["behind"]),
            number(&of["behind_ms"]),
            number(&of["stale"]),
            number(&of["status"]["written_p99_us"]),
            number(&of["refused"]),
            if of["connected"] == true { "" } else { "  (its cache is away)" },
        ));
    }
    out.push_str(&format!(
        "compared {} outputs, {} symbols differ; {} switches; readers saw {} gaps",
        number(&groups["compared"]),
        number(&groups["differs"]),
        number(&groups["switches"]),
        number(&groups["gaps"])
    ));
    for switched in groups["switched"].as_array().into_iter().flatten().rev().take(3) {
        out.push_str(&format!(
            "\n  {} → {}: {}",
            switched["from"].as_str().unwrap_or("?").to_uppercase(),
            switched["to"].as_str().unwrap_or("?").to_uppercase(),
            switched["reason"].as_str().unwrap_or("?")
        ));
    }
    out
}

fn diff_text(diff: &Value) -> String {
    let mut out = format!(
        "{} outputs compared, {} that only one group had",
        number(&diff["compared"]),
        number(&diff["only_one"])
    );
    for found in diff["differences"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "\n  {} number {} (epoch {}): {} differs; A {} {}, B {} {}",
            found["symbol"].as_str().unwrap_or("?"),
            found["seq"],
            found["epoch"],
            found["kind"].as_str().unwrap_or("?"),
            found["a"]["last"].as_str().unwrap_or("?"),
            found["a"]["candles"].as_str().unwrap_or("?"),
            found["b"]["last"].as_str().unwrap_or("?"),
            found["b"]["candles"].as_str().unwrap_or("?"),
        ));
    }
    out
}

fn monitor_text(found: &Value, all: bool) -> String {
    let mut out = String::new();
    let row = |name: &str, row: &Value| {
        format!(
            "  {name:<24}{:>12}{:>8}{:>8}{:>8}{:>8}{:>8}{:>12}{:>12}\n",
            number(&row["ticks"]),
            number(&row["violations"]),
            number(&row["duplicates"]),
            number(&row["gaps"]),
            number(&row["lost"]),
            number(&row["steps_back"]),
            number(&row["delay_p50_us"]),
            number(&row["delay_p99_us"]),
        )
    };
    for member in found["members"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "group {} · {}\n  {:<24}{:>12}{:>8}{:>8}{:>8}{:>8}{:>8}{:>12}{:>12}\n",
            member["group"].as_str().unwrap_or("?").to_uppercase(),
            member["node"].as_str().unwrap_or("?"),
            "symbol",
            "ticks",
            "order",
            "again",
            "gaps",
            "lost",
            "back",
            "p50 µs",
            "p99 µs"
        ));
        out.push_str(&row("all", &member["total"]));
        let empty = Vec::new();
        let symbols = member["symbols"].as_array().unwrap_or(&empty);
        let wrong = |row: &Value| {
            ["violations", "duplicates", "gaps", "steps_back"].iter().any(|name| number(&row[*name]) > 0)
        };
        let shown: Vec<&Value> = symbols.iter().filter(|row| all || wrong(row)).collect();
        for symbol in &shown {
            out.push_str(&row(symbol["symbol"].as_str().unwrap_or("?"), symbol));
        }
        if !all {
            out.push_str(&format!(
                "  {} of {} symbols have something to tell (--all shows the others)\n",
                shown.len(),
                symbols.len()
            ));
        }
    }
    if out.is_empty() {
        out.push_str(
            "no member of a group is in this process: name the data folder of one with the role processor",
        );
    }
    out.trim_end().to_owned()
}
