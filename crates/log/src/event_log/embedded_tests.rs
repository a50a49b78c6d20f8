use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::event_log::{MemoryLog, conformance};
use crate::storage::SimStorage;

fn small() -> EmbeddedConfig {
    EmbeddedConfig { segment_bytes: 16 << 10, ..EmbeddedConfig::default() }
}

/// A folder of its own for each call, removed at the end of the process by the caller.
fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("hoga-log-{name}-{}-{number}", std::process::id()));
    drop(std::fs::remove_dir_all(&dir));
    dir
}

#[test]
fn memory_conforms() {
    conformance::run(MemoryLog::new);
}

#[test]
fn embedded_conforms_on_the_simulated_disk() {
    conformance::run(|| EmbeddedLog::open_on(SimStorage::new(), "/log", small()).unwrap());
}

#[test]
fn embedded_conforms_on_the_disk() {
    let root = scratch("conformance");
    let next = AtomicU64::new(0);
    conformance::run(|| {
        let dir = root.join(next.fetch_add(1, Ordering::Relaxed).to_string());
        EmbeddedLog::open(dir, small()).unwrap()
    });
    std::fs::remove_dir_all(&root).unwrap();
}
