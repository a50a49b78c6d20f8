//! What a bench leaves behind when somebody interrupts it: nothing. Ctrl-C and SIGTERM end its servers and remove its temporary folders.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// What is to be cleaned up: the processes and folders that are in use now.
#[derive(Default)]
pub(crate) struct InUse {
    processes: BTreeSet<i32>,
    folders: BTreeSet<PathBuf>,
}

static IN_USE: Mutex<InUse> = Mutex::new(InUse { processes: BTreeSet::new(), folders: BTreeSet::new() });

/// How long removing the folders may take: a killed server needs a moment to be gone, and may write a last file in it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The list. Whoever waits for a child holds it meanwhile, so that a number on the list is never that of a stranger.
pub(crate) fn in_use() -> MutexGuard<'static, InUse> {
    IN_USE.lock().unwrap_or_else(|e| e.into_inner())
}

impl InUse {
    pub(crate) fn process(&mut self, pid: u32) {
        self.processes.insert(pid as i32);
    }

    pub(crate) fn process_ended(&mut self, pid: u32) {
        self.processes.remove(&(pid as i32));
    }

    pub(crate) fn folder(&mut self, path: &Path) {
        self.folders.insert(path.to_owned());
    }

    pub(crate) fn folder_gone(&mut self, path: &Path) {
        self.folders.remove(path);
    }

    /// Kills the processes and removes the folders; those that could not be removed.
    fn clean_up(&mut self) -> Vec<PathBuf> {
        for pid in std::mem::take(&mut self.processes) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL); // gone already: all the better
            }
        }
        let begun = Instant::now();
        let mut left: Vec<PathBuf> = std::mem::take(&mut self.folders).into_iter().collect();
        loop {
            left.retain(|folder| std::fs::remove_dir_all(folder).is_err() && folder.exists());
            if left.is_empty() || begun.elapsed() > PATIENCE {
                return left;
            }
            std::thread::sleep(Duration::from_millis(10)); // until the killed processes are gone: they are not ours to wait for here
        }
    }
}

/// From now on SIGINT and SIGTERM clean up, say so in a sentence, and end the process with exit code 1.
pub fn clean_up_on_signals(what: &'static str) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        if signals.forever().next().is_none() {
            return;
        }
        // Held until the end: nothing new can be started any more.
        let mut in_use = in_use();
        let left = in_use.clean_up();
        if left.is_empty() {
            eprintln!("hoga: {what} was interrupted: no result; its servers were ended and its temporary folders removed");
        } else {
            eprintln!("hoga: {what} was interrupted: no result; these folders could not be removed: {left:?}");
        }
        std::process::exit(1);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempDir;
    use std::process::{Command, Stdio};

    #[test]
    fn processes_are_killed_and_folders_removed() {
        let root = TempDir::new("interrupt").unwrap();
        let folder = root.path().join("a");
        std::fs::create_dir_all(folder.join("b")).unwrap();
        std::fs::write(folder.join("b/c"), "x").unwrap();
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let mut list = InUse::default();
        list.process(child.id());
        list.folder(&folder);
        list.folder(&root.path().join("never-made"));
        assert!(list.clean_up().is_empty());
        assert!(!folder.exists());
        assert!(!child.wait().unwrap().success());
        assert!(list.processes.is_empty() && list.folders.is_empty());
    }

    #[test]
    fn what_has_ended_is_left_alone() {
        let mut list = InUse::default();
        list.process(1);
        list.process_ended(1);
        let root = TempDir::new("interrupt").unwrap();
        list.folder(root.path());
        list.folder_gone(root.path());
        assert!(list.clean_up().is_empty());
        assert!(root.path().exists());
    }
}
