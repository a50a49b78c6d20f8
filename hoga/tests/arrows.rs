//! Arrows between crates point one way. A new arrow is a decision: write an ADR, then add it here.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What each crate may depend on within the workspace, in builds and in tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("hoga-core", &[]),
    ("hoga-log", &["hoga-core"]),
    ("hoga-engine", &["hoga-core", "hoga-log"]),
    ("hoga-store", &["hoga-core", "hoga-log"]),
    ("hoga-feed", &["hoga-core", "hoga-log"]),
    ("hoga-sim", &["hoga-core"]),
    ("hoga-api", &["hoga-core", "hoga-log", "hoga-engine", "hoga-store", "hoga-feed"]),
    (
        "hoga-lab",
        &["hoga-core", "hoga-log", "hoga-engine", "hoga-store", "hoga-feed", "hoga-sim", "hoga-api"],
    ),
    (
        "hoga",
        &[
            "hoga-core",
            "hoga-log",
            "hoga-engine",
            "hoga-store",
            "hoga-feed",
            "hoga-sim",
            "hoga-api",
            "hoga-lab",
        ],
    ),
];

#[test]
fn no_new_arrow_between_crates() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, to)| (*name, to.iter().copied().collect())).collect();
    let mut seen = BTreeSet::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let allowed =
            allowed.get(name).unwrap_or_else(|| panic!("crate {name} is not in the table of arrows"));
        seen.insert(name.to_owned());
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = dependency["name"].as_str().expect("a name");
            if to.starts_with("hoga") && to != name {
                assert!(
                    allowed.contains(to),
                    "new arrow {name} -> {to}: is it meant? Then write an ADR and add it"
                );
            }
        }
    }
    assert_eq!(seen.len(), ALLOWED.len(), "a crate in the table of arrows is gone");
}
