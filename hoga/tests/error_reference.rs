//! Every fault code has its entry in docs/reference/errors.md, and every entry is a code.

use std::collections::BTreeSet;
use std::path::Path;

use hoga_api::ServerError;
use hoga_engine::{EngineError, FaultKind, ReplicaError};
use hoga_log::LogError;
use hoga_log::consumer::GroupFault;
use hoga_log::lease::LeaseError;
use hoga_store::StoreError;

/// The codes in brackets in the messages of the binary and of the operator's client.
fn codes_in_sources(found: &mut BTreeSet<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("../crates/lab/src/admin.rs")];
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        for part in text.split("\"[").skip(1) {
            let Some((code, _)) = part.split_once(']') else { continue };
            if code.contains('-') && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') {
                found.insert(code.to_owned());
            }
        }
    }
}

#[test]
fn every_fault_code_is_documented_and_every_entry_is_a_code() {
    let mut codes: BTreeSet<String> = BTreeSet::new();
    codes_in_sources(&mut codes);
    for list in [
        LogError::CODES,
        GroupFault::CODES,
        LeaseError::CODES,
        StoreError::CODES,
        EngineError::CODES,
        ReplicaError::CODES,
        ServerError::CODES,
    ] {
        codes.extend(list.iter().map(|c| (*c).to_owned()));
    }
    for kind in [
        FaultKind::Journal,
        FaultKind::EventLog,
        FaultKind::Snapshot,
        FaultKind::Diverged,
        FaultKind::Panic,
        FaultKind::Fenced,
        FaultKind::Replica,
    ] {
        codes.insert(kind.code().to_owned());
    }
    codes.extend(["audit-differs", "signals", "threads"].map(str::to_owned));
    let page = include_str!("../../docs/reference/errors.md");
    let documented: BTreeSet<String> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = codes.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&codes).collect();
    assert!(missing.is_empty(), "not in docs/reference/errors.md: {missing:?}");
    assert!(stale.is_empty(), "in docs/reference/errors.md, but no code: {stale:?}");
}
