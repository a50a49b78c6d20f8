//! The disk runs full under load: the exchange stops with the file's name, and nothing that it acknowledged is lost once there is room.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::admin::Admin;
use crate::orders::{self, BenchError};
use crate::process::{Server, TempDir};
use crate::trader::Trader;

/// Room for some seconds of load.
const SIZE: &str = "size=64m";
/// It must be full by then.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs it; the number of checks, or none where this process may not mount a small file system.
pub fn run() -> Result<Option<u64>, BenchError> {
    let folder = TempDir::new("disk-full")?;
    let small = folder.path().join("small");
    std::fs::create_dir(&small)?;
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(&small).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let mounted = Mounted(&small);
    let config = folder.path().join("hoga.toml");
    std::fs::write(&config, "[engine]\nsegment_mib = 2\n[event_log]\nsegment_mib = 2\n")?;
    let config = config.to_string_lossy().into_owned();
    let arguments = ["--no-market", "--config", &config];
    let data = small.join("data");
    let server = Server::start(&data, &arguments)?;
    let admin = Admin::of(&data)?;
    let mut trader = Trader::new(orders::accounts(&admin, 4)?, orders::symbols(&admin, 2)?);
    let mut session = trader.session(server.address())?;
    let begun = Instant::now();
    while session.step(usize::MAX).is_ok() {
        if begun.elapsed() > LIMIT {
            return Err(BenchError::Unfit("the disk did not run full".into()));
        }
    }
    let answered = session.drain().answered;
    let code = server.ended(Duration::from_secs(30))?;
    if code != Some(5) {
        return Err(BenchError::Unfit(format!(
            "on a full disk the exchange ended with {code:?}, not with a fault (5)"
        )));
    }
    // The operator makes room.
    let larger = folder.path().join("larger");
    let copied = Command::new("cp").arg("-a").arg(&data).arg(&larger).status()?;
    if !copied.success() {
        return Err(BenchError::Unfit("the data folder could not be copied".into()));
    }
    drop(mounted);
    let server = Server::start(&larger, &arguments)?;
    let admin = Admin::of(&larger)?;
    let mut checks = trader.check(&admin)?;
    let audit = admin.audit()?;
    if audit["clean"] != true {
        return Err(BenchError::Unfit(format!("the audit after a full disk is not clean: {audit}")));
    }
    checks += 1;
    server.terminate(Duration::from_secs(15))?;
    eprintln!("faults: disk-full: {answered} answers until the disk was full, {checks} checks");
    Ok(Some(checks))
}

/// Unmounts when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Lazily: a process that is about to end may still have a file open.
        let done = Command::new("umount").arg("-l").arg(self.0).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("faults: {} could not be unmounted", self.0.display());
        }
    }
}
