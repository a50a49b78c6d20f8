//! The Hoga binary: configuration and composition, nothing else.

mod cli;
mod config;
mod exchange;
mod journal;
mod letters;
mod logs;
mod maintenance;
mod market;
mod measure;
mod offline;
mod plant;
mod process;
mod read_models;
mod rebuild;
mod replay;
mod replicated;
mod run;
#[cfg(feature = "kafka")]
mod topics;
mod up;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use hoga_lab::admin::{Admin, AdminError};
use hoga_lab::orders::BenchError;
use hoga_store::Group;

use cli::{Audit, Cli, Command, ConfigCommand, Key};
use config::{Config, ConfigError};

#[global_allocator]
static ALLOCATOR: hoga_lab::allocations::Counting = hoga_lab::allocations::Counting;

/// How a command ends, beside success. The numbers are documented in `--help`.
enum End {
    /// Done, and the answer is bad.
    Bad(String),
    /// The command line or the configuration is wrong.
    Usage(String),
    /// No running system there.
    NotRunning(String),
    /// It could not start.
    Start(String),
    /// A fault stopped it.
    Fault(String),
}

impl End {
    fn code(&self) -> u8 {
        match self {
            End::Bad(_) => 1,
            End::Usage(_) => 2,
            End::NotRunning(_) => 3,
            End::Start(_) => 4,
            End::Fault(_) => 5,
        }
    }

    fn text(&self) -> &str {
        match self {
            End::Bad(t) | End::Usage(t) | End::NotRunning(t) | End::Start(t) | End::Fault(t) => t,
        }
    }
}

/// A fault at the start, with its code in front.
fn coded<E: std::fmt::Display>(code: impl Fn(&E) -> &'static str) -> impl Fn(E) -> End {
    move |error| End::Start(format!("[{}] {error}", code(&error)))
}

impl From<ConfigError> for End {
    fn from(error: ConfigError) -> End {
        End::Usage(error.to_string())
    }
}

impl From<AdminError> for End {
    fn from(error: AdminError) -> End {
        match error {
            AdminError::NotRunning { .. } | AdminError::Unreachable { .. } => {
                End::NotRunning(error.to_string())
            }
            AdminError::Refused { .. } => End::Bad(error.to_string()),
        }
    }
}

impl From<BenchError> for End {
    fn from(error: BenchError) -> End {
        End::Bad(error.to_string())
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> End {
        End::Bad(error.to_string())
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(end) => {
            eprintln!("hoga: {}", end.text());
            ExitCode::from(end.code())
        }
    }
}

fn run(cli: Cli) -> Result<(), End> {
    match cli.command {
        Command::Up(flags) => up::run(&flags, &Group::ALL, None),
        Command::Run(flags) => run::run(&flags),
        Command::Replay(flags) => replay::run(&flags),
        Command::Key(Key::New { deposit, data }) => new_key(&deposit, &data),
        Command::Audit(flags) => audit(&flags),
        Command::Lag(flags) => lag(&flags),
        Command::Group(cli::Group::Forget { group, data }) => offline::forget_group(&group, &data),
        Command::Journal(command) => journal::run(&command),
        #[cfg(feature = "kafka")]
        Command::Topics(command) => topics::run(&command),
        #[cfg(not(feature = "kafka"))]
        Command::Topics(_) => {
            Err(End::Usage("this build is without Kafka: build it with default features".into()))
        }
        Command::Dlt(command) => letters::run(&command),
        Command::Rebuild(flags) => rebuild::run(&flags),
        Command::Groups(command) => plant::commands::groups(&command),
        Command::Monitor(flags) => plant::commands::monitor(&flags),
        Command::Config(command) => configuration(&command),
        Command::Bench(bench) => measure::bench(bench),
        Command::Lab(lab) => measure::lab(lab),
    }
}

/// One line on standard output; a reader that has gone is no fault of ours, any other failure is reported.
fn print(line: std::fmt::Arguments<'_>) -> Result<(), End> {
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn new_key(deposits: &[String], data: &std::path::Path) -> Result<(), End> {
    let mut parsed = Vec::new();
    for deposit in deposits {
        let (asset, amount) = deposit
            .split_once('=')
            .filter(|(asset, amount)| {
                !asset.is_empty() && hoga_core::money::Amount::parse(amount).is_ok_and(|a| a.0 > 0)
            })
            .ok_or_else(|| {
                End::Usage(format!("--deposit {deposit}: expected ASSET=AMOUNT, for example BTC=10"))
            })?;
        parsed.push((asset.to_owned(), amount.to_owned()));
    }
    let account = Admin::of(data)?.account(&parsed)?;
    let line = serde_json::to_string(&account).map_err(|e| End::Bad(e.to_string()))?;
    print(format_args!("{line}"))
}

fn audit(flags: &Audit) -> Result<(), End> {
    let report = Admin::of(&flags.data)?.audit()?;
    if flags.json {
        print(format_args!("{report}"))?;
    } else {
        print(format_args!("audit at command {}", report["at"]))?;
        for (asset, row) in report["assets"].as_object().into_iter().flatten() {
            print(format_args!("  {asset:<8} {row}"))?;
        }
        for difference in report["differences"].as_array().into_iter().flatten() {
            print(format_args!("  DIFFERENCE {difference}"))?;
        }
    }
    if flags.tables {
        let tables = Admin::of(&flags.data)?.get("/api/v1/admin/tables")?;
        if flags.json {
            print(format_args!("{tables}"))?;
        }
        if tables["clean"] != true {
            for difference in tables["differences"].as_array().into_iter().flatten() {
                print(format_args!("  DIFFERENCE {difference}"))?;
            }
            return Err(End::Bad(
                "the read models do not agree with each other. If nothing was trading, rebuild the one that is wrong: `hoga rebuild`"
                    .into(),
            ));
        }
        if !flags.json {
            print(format_args!("tables agree: {} comparisons", tables["checks"]))?;
        }
    }
    if report["clean"] == true {
        if !flags.json {
            print(format_args!("clean: ledger = engine state = deposits - withdrawals, to the last unit"))?;
        }
        return Ok(());
    }
    Err(End::Bad(
        "the audit is not clean: see the differences above and docs/reference/errors.md, audit-differs"
            .into(),
    ))
}

fn lag(flags: &cli::Lag) -> Result<(), End> {
    let admin = Admin::of(&flags.data)?;
    loop {
        let text = if flags.json {
            admin.get("/api/v1/admin/lag")?.to_string()
        } else {
            let table = admin.text("/api/v1/admin/lag?format=table")?;
            // With --watch each table takes the place of the one before (ECMA-48: cursor home, erase below).
            let clear = if flags.watch && std::io::stdout().is_terminal() { "\x1b[H\x1b[J" } else { "" };
            format!("{clear}{}", table.trim_end())
        };
        match writeln!(std::io::stdout().lock(), "{text}") {
            // Nobody reads any more.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
        if !flags.watch {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn configuration(command: &ConfigCommand) -> Result<(), End> {
    let (path, show) = match command {
        ConfigCommand::Check { config } => (config, false),
        ConfigCommand::Show { config } => (config, true),
    };
    let config = Config::load(path.as_deref(), std::env::vars())?;
    if show {
        let text = toml::to_string(&config).map_err(|e| End::Bad(e.to_string()))?;
        return print(format_args!("{}", text.trim_end()));
    }
    print(format_args!("the configuration is valid"))
}
