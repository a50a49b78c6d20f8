//! The server under test: the built binary as a child process, its processor time and memory.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::interrupt::in_use;

/// Why the server could not be driven.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The binary.
        program: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It ended instead of getting ready.
    #[error("the server ended with {status} before it was ready; its last words are above")]
    Ended {
        /// How it ended.
        status: String,
    },
    /// It does not stop.
    #[error("the server did not end within {0:?}")]
    DoesNotEnd(Duration),
}

/// A child process that is killed when dropped.
struct Child(std::process::Child);

impl Child {
    fn try_wait(&mut self) -> std::io::Result<Option<ExitStatus>> {
        let mut in_use = in_use();
        let status = self.0.try_wait()?;
        if status.is_some() {
            in_use.process_ended(self.0.id());
        }
        Ok(status)
    }

    fn wait(&mut self) -> std::io::Result<ExitStatus> {
        loop {
            match self.try_wait()? {
                Some(status) => return Ok(status),
                None => std::thread::sleep(Duration::from_millis(2)), // waitpid has no timeout, and the list must not be held long
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill(); // ended already in the normal case
        let _ = self.wait();
    }
}

/// A running server.
pub struct Server {
    child: Child,
    /// Where it serves, as `http://127.0.0.1:N`.
    pub url: String,
    /// Start to ready.
    pub start: Duration,
}

/// A folder that is removed when dropped, also when the program ends by a panic, and when it is interrupted (see [`crate::interrupt`]).
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes a fresh folder in the temporary one.
    pub fn new(what: &str) -> std::io::Result<TempDir> {
        let unique =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let path = std::env::temp_dir().join(format!("hoga-{what}-{}-{unique}", std::process::id()));
        in_use().folder(&path);
        let folder = TempDir(path);
        std::fs::create_dir_all(folder.path())?;
        Ok(folder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // nothing can be done about it, and it is a temporary folder
        in_use().folder_gone(&self.0);
    }
}

impl Server {
    /// Starts `hoga up` of this very binary on a free port with a data folder and further arguments, and waits for `ready`.
    pub fn start(data: &Path, arguments: &[&str]) -> Result<Server, ProcessError> {
        let program = std::env::current_exe()
            .map_err(|source| ProcessError::Start { program: "hoga".into(), source })?;
        Server::start_program(&program, data, arguments)
    }

    /// The same with a given binary.
    pub fn start_program(program: &Path, data: &Path, arguments: &[&str]) -> Result<Server, ProcessError> {
        Server::spawn(program, &["up"], data, arguments, "ready ")
    }

    /// Starts some roles of this very binary, as [`Server::start`] does all of them.
    pub fn start_roles(roles: &[&str], data: &Path, arguments: &[&str]) -> Result<Server, ProcessError> {
        Server::roles(roles, data, arguments, "ready ")
    }

    /// Starts an exchange that follows another one. Its address is in its run file once it leads.
    pub fn start_standby(data: &Path, arguments: &[&str]) -> Result<Server, ProcessError> {
        Server::roles(&["exchange"], data, arguments, "standby ")
    }

    fn roles(roles: &[&str], data: &Path, arguments: &[&str], line: &str) -> Result<Server, ProcessError> {
        let program = std::env::current_exe()
            .map_err(|source| ProcessError::Start { program: "hoga".into(), source })?;
        let mut command = vec!["run"];
        roles.iter().for_each(|role| command.extend(["--role", role]));
        Server::spawn(&program, &command, data, arguments, line)
    }

    fn spawn(
        program: &Path,
        command: &[&str],
        data: &Path,
        arguments: &[&str],
        until: &str,
    ) -> Result<Server, ProcessError> {
        let start_error = |source| ProcessError::Start { program: program.to_owned(), source };
        let begun = Instant::now();
        let mut process = Command::new(program);
        process.args(command).arg("--data").arg(data).args(arguments);
        if !arguments.contains(&"--port") {
            process.args(["--port", "0"]);
        }
        process.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = {
            // Held over the start, so that an interruption meets the child or comes before it.
            let mut in_use = in_use();
            let child = process.spawn().map_err(start_error)?;
            in_use.process(child.id());
            Child(child)
        };
        let mut lines = BufReader::new(child.0.stdout.take().expect("stdout is piped")).lines();
        while let Some(line) = lines.next().transpose().map_err(start_error)? {
            if let Some(url) = line.strip_prefix(until) {
                let url = url.to_owned();
                // Whatever it prints later is read, so that a full pipe cannot stop it.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(Server { child, url, start: begun.elapsed() });
            }
        }
        let status = child.wait().map_err(start_error)?;
        Err(ProcessError::Ended { status: status.to_string() })
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// The process number.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Processor seconds so far, user and system.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(&self.pid().to_string())
    }

    /// Resident memory at its highest, in MiB.
    pub fn peak_rss_mib(&self) -> f64 {
        status_kib(self.pid(), "VmHWM:") / 1024.0
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) -> std::io::Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32);
        let pid = pid.ok_or_else(|| std::io::Error::other("no process number"))?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Waits at most `limit` for it to end by itself; its exit code.
    pub fn ended(mut self, limit: Duration) -> Result<Option<i32>, ProcessError> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(5)); // waitpid has no timeout
        }
        Err(ProcessError::DoesNotEnd(limit))
    }

    /// SIGKILL: the crash.
    pub fn kill(mut self) -> std::io::Result<()> {
        self.child.0.kill()?;
        self.child.wait().map(drop)
    }

    /// SIGTERM, then waits at most `limit`; how long it took and its exit code.
    pub fn terminate(mut self, limit: Duration) -> Result<(Duration, Option<i32>), ProcessError> {
        let begun = Instant::now();
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM); // gone already: seen below
        }
        while begun.elapsed() < limit {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok((begun.elapsed(), status.code())),
                _ => std::thread::sleep(Duration::from_millis(2)), // waitpid has no timeout
            }
        }
        Err(ProcessError::DoesNotEnd(limit))
    }
}

/// Processor seconds of a process (`self` for this one).
pub fn cpu_seconds(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field is a name in brackets and may hold anything; user and system ticks are the 12th and 13th after it.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 = rest.split(' ').skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn status_kib(pid: u32, field: &str) -> f64 {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|v| v.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0.0)
}
