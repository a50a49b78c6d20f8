//! House rules that a machine can check on every tracked file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Longer source files have two subjects: find the wall between them.
const MOST_LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The tracked text files, or `None` outside a checkout (a source archive).
fn tracked() -> Option<Vec<(PathBuf, String)>> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let read = |name: &str| Some((PathBuf::from(name), std::fs::read_to_string(root().join(name)).ok()?));
    Some(names.lines().filter_map(read).collect())
}

#[test]
fn source_files_stay_readable() {
    let Some(files) = tracked() else { return };
    let source =
        |path: &Path| path.extension().is_some_and(|e| e == "rs" || e == "ts" || e == "sh" || e == "py");
    for (path, text) in files.iter().filter(|(path, _)| source(path)) {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines, more than {MOST_LINES}", path.display());
        assert!(
            !text.contains('\t') || path.extension().is_some_and(|e| e == "sh"),
            "{} has tabs",
            path.display()
        );
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let Some(files) = tracked() else { return };
    for (path, text) in files.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "md")) {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let at = root().join(path.parent().unwrap_or(Path::new(""))).join(target);
            assert!(at.exists(), "{}: the link to {link} leads nowhere", path.display());
        }
    }
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let Some(files) = tracked() else { return };
    let home = ["/ro", "ot/"].concat();
    let work = ["/wo", "rk/"].concat();
    for (path, text) in &files {
        for word in [&home, &work] {
            assert!(!text.contains(word.as_str()), "{} contains {word}", path.display());
        }
    }
}
