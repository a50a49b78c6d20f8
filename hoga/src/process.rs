//! What every long-running process of Hoga has: a lock on its data folder, a run file, signals, logging.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hoga_lab::admin::{RUN_FILE, RunFile};

use crate::End;
use crate::config::Config;

/// One running system per data folder.
pub fn lock(dir: &Path) -> Result<File, End> {
    let fail = |what: String| End::Start(format!("[data-folder] data folder {}: {what}", dir.display()));
    std::fs::create_dir_all(dir)
        .map_err(|e| fail(format!("cannot be made: {e}. Choose another with --data")))?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("lock"))
        .map_err(|e| fail(format!("cannot be written: {e}. Check its permissions")))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        fail("another hoga runs on it. Stop that one, or choose another folder with --data".into())
    })?;
    Ok(file)
}

/// `run.json` with the address and the operator's token, there while the system runs.
pub struct RunGuard(PathBuf);

impl RunGuard {
    /// Writes it.
    pub fn write(dir: &Path, url: &str, token: &str) -> Result<RunGuard, End> {
        let path = dir.join(RUN_FILE);
        let run = RunFile { url: url.to_owned(), admin_token: token.to_owned(), pid: std::process::id() };
        let fail = |e: &dyn std::fmt::Display| {
            End::Start(format!("[run-file] cannot write {}: {e}", path.display()))
        };
        let text = serde_json::to_string(&run).map_err(|e| fail(&e))?;
        // Readable by its owner only, from the first moment on: it holds the operator's token.
        let temporary = dir.join("run.json.new");
        let _ = std::fs::remove_file(&temporary); // left by a crash, or not there
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|e| fail(&e))?;
        std::io::Write::write_all(&mut file, text.as_bytes()).map_err(|e| fail(&e))?;
        std::fs::rename(&temporary, &path).map_err(|e| fail(&e))?;
        Ok(RunGuard(path))
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the run file could not be removed");
        }
    }
}

/// SIGTERM and SIGINT.
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Listens from now on.
    pub fn listen() -> Result<Signals, End> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            // A second signal ends the process at once: an operator who insists is obeyed.
            signal_hook::flag::register_conditional_shutdown(signal, 5, Arc::clone(&flag))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
                .map_err(|e| End::Start(format!("[signals] cannot listen for signals: {e}")))?;
        }
        Ok(Signals(flag))
    }

    /// Whether one has come.
    pub fn raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Logs to standard error, as the configuration says.
pub fn start_logging(config: &Config) -> Result<(), End> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.telemetry.log)
        .map_err(|e| End::Usage(format!("telemetry.log = \"{}\": {e}", config.telemetry.log)))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Set twice only by tests in one process; the first one stays.
    let _ = if config.telemetry.json { builder.json().try_init() } else { builder.try_init() };
    Ok(())
}
