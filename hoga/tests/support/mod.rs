//! Drives the real binary, with data in temporary folders and free ports.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hoga_lab::admin::{Account, Admin};
use hoga_lab::process::TempDir;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The binary under test.
pub const HOGA: &str = env!("CARGO_BIN_EXE_hoga");

/// How long a command may take that should end by itself: many times what it needs.
const LIMIT: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Ended {
    /// Fails unless it ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Fails unless its standard error says this.
    #[track_caller]
    pub fn says(self, what: &str) -> Ended {
        assert!(self.err.contains(what), "expected {what:?} in {self:?}");
        self
    }

    /// Its standard output, one JSON value.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }
}

/// A command that is running.
pub struct Running {
    child: Child,
    output: TempDir,
}

fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(HOGA);
    command.args(arguments).stdin(Stdio::null());
    // Small segments: many folders are made, and each allocates its segments at once.
    command.env("HOGA__TELEMETRY__LOG", "info").env("HOGA__ENGINE__SEGMENT_MIB", "2");
    command.env("HOGA__EVENT_LOG__SEGMENT_MIB", "2").envs(variables.iter().copied());
    command
}

impl Running {
    /// Starts a command.
    pub fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Running {
        let output = TempDir::new("output").expect("a temporary folder");
        let file = |name| File::create(output.path().join(name)).expect("a file");
        let child =
            command(arguments, variables).stdout(file("out")).stderr(file("err")).spawn().expect("it starts");
        Running { child, output }
    }

    /// Its process number.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).expect("a process number"), signal).expect("it still runs");
    }

    /// What it has written to standard error so far.
    pub fn err(&self) -> String {
        std::fs::read_to_string(self.output.path().join("err")).unwrap_or_default()
    }

    /// Waits until it has ended.
    pub fn end(mut self) -> Ended {
        let mut code = None;
        wait_for("the command to end", LIMIT, || {
            let status = self.child.try_wait().expect("a status");
            code = status.map(|s| s.code());
            status.is_some()
        });
        let text = |name| {
            String::from_utf8_lossy(&std::fs::read(self.output.path().join(name)).unwrap()).into_owned()
        };
        Ended { code: code.flatten(), out: text("out"), err: text("err") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill(); // ended already in the normal case
        let _ = self.child.wait();
    }
}

/// Runs a command to its end.
pub fn hoga(arguments: &[&str]) -> Ended {
    Running::start(arguments, &[]).end()
}

/// The same with variables in its environment.
pub fn hoga_with(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    Running::start(arguments, variables).end()
}

/// A running system.
pub struct Up {
    child: Child,
    output: TempDir,
    data: PathBuf,
    /// `http://127.0.0.1:N`.
    pub url: String,
}

impl Up {
    /// `hoga up --no-market` on a data folder and a free port; waits for `ready`.
    pub fn start(data: &Path) -> Up {
        Up::start_with(&["up", "--no-market"], data)
    }

    /// A command that serves, on a data folder and a free port; waits for `ready`.
    pub fn start_with(arguments: &[&str], data: &Path) -> Up {
        let output = TempDir::new("output").expect("a temporary folder");
        let mut child = command(arguments, &[])
            .args(["--port", "0", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(File::create(output.path().join("err")).expect("a file"))
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let mut up = Up { child, output, data: data.to_owned(), url: String::new() };
        let Some(url) = line.trim_end().strip_prefix("ready ") else {
            panic!("instead of ready: {line:?}, {}", up.err())
        };
        up.url = url.to_owned();
        up
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Its operator's interface.
    pub fn admin(&self) -> Admin {
        Admin::of(&self.data).expect("run.json is there")
    }

    /// A paper account with plenty of bitcoin and dollars.
    pub fn account(&self) -> Account {
        let deposits = [("BTC", "1000"), ("USDT", "100000000")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        self.admin().account(&deposits).expect("an account")
    }

    /// What it has written to standard error so far.
    pub fn err(&self) -> String {
        std::fs::read_to_string(self.output.path().join("err")).unwrap_or_default()
    }

    /// SIGTERM; how long it took to end, its exit code and its standard error.
    pub fn terminate(mut self) -> (Duration, Option<i32>, String) {
        let begun = Instant::now();
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process number");
        kill_process(pid, Signal::TERM).expect("it still runs");
        self.wait(begun)
    }

    /// Waits for its own end, as [`Up::terminate`] does.
    pub fn end(mut self) -> (Duration, Option<i32>, String) {
        self.wait(Instant::now())
    }

    fn wait(&mut self, begun: Instant) -> (Duration, Option<i32>, String) {
        let mut code = None;
        wait_for("the system to end", LIMIT, || {
            let status = self.child.try_wait().expect("a status");
            code = status.map(|s| s.code());
            status.is_some()
        });
        (begun.elapsed(), code.flatten(), self.err())
    }

    /// SIGTERM, and it must end well.
    #[track_caller]
    pub fn stop(self) {
        let (took, code, err) = self.terminate();
        assert_eq!(code, Some(0), "{err}");
        assert!(took < Duration::from_secs(5), "it took {took:?} to end: {err}");
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("it still runs");
        self.child.wait().expect("a status");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill(); // ended already in the normal case
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds that nothing announces.
#[track_caller]
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(5)); // the pace of the look, not the condition
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// A file of the recordings, or a line that says what is skipped.
pub fn recording(test: &str, path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("HOGA_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let file = root.join(path);
    if file.exists() {
        return Some(file);
    }
    eprintln!("SKIP {test}: {} is not there", file.display());
    None
}
