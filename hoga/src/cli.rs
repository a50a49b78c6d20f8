//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A finite number above zero.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 && n <= 1e9 => Ok(n),
        _ => Err("expected a number above 0 and up to 1e9".into()),
    }
}

/// A count of at least one, and few enough to be made.
fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=1_000_000).contains(&n) => Ok(n),
        _ => Err("expected a whole number from 1 to 1000000".into()),
    }
}

/// Exchange and market-data platform in one binary.
#[derive(Debug, Parser)]
#[command(
    name = "hoga",
    version,
    after_help = "Exit codes: 0 done; 1 done, and the answer is bad (damage found, audit not clean, a check failed); 2 wrong command \
                  line or configuration; 3 no running system there; 4 it could not start; 5 a fault stopped it.\n\n\
                  Example: hoga up --data data --port 8080"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the whole system in this process.
    #[command(after_help = "Example: hoga up --data /var/lib/hoga --port 0 --no-market\n\
                            Prints `ready http://ADDRESS` on standard output when it serves; ends in order on SIGTERM within 5 s.")]
    Up(Up),
    /// Start some of the roles in this process; the others run elsewhere and meet on Kafka.
    #[command(
        after_help = "Example: hoga run --role order-projection --config hoga.toml --data /var/lib/hoga-orders --port 0\n\
                            Prints `ready http://ADDRESS` (health, metrics and positions there) and ends in order on SIGTERM."
    )]
    Run(Run),
    /// Start the system and feed it a recorded order flow instead of the simulated market.
    #[command(after_help = "Example: hoga replay orders.csv.gz --speed 10\n\
                            Formats: Bitstamp order events (.csv or .csv.gz as in the PyPI package ob-analytics 0.1.0), me-consensus (.csv, .csv.gz, .csv.xz).")]
    Replay(Replay),
    /// API keys of paper accounts on the running system.
    #[command(subcommand, after_help = "Example: hoga key new --deposit BTC=10 --deposit USDT=1000000")]
    Key(Key),
    /// Prove that ledger = engine state = deposits − withdrawals, per asset, on the running system.
    #[command(after_help = "Example: hoga audit --data data --json")]
    Audit(Audit),
    /// How far each consumer group is behind, why, and when it will have caught up, on the running system.
    #[command(after_help = "Example: hoga lag --data data --watch")]
    Lag(Lag),
    /// Consumer groups in the event log of a stopped system.
    #[command(subcommand, after_help = "Example: hoga group forget relay --data data")]
    Group(Group),
    /// The journal of a stopped system: verify, dump, stats.
    #[command(subcommand, after_help = "Example: hoga journal verify --data data")]
    Journal(Journal),
    /// Topics on Kafka: measure how many partitions are needed, make what is missing, check what is there.
    #[command(subcommand, after_help = "Example: hoga topics plan --rate 200000 --config hoga.toml")]
    Topics(Topics),
    /// Messages that a consumer group could not handle.
    #[command(subcommand, after_help = "Example: hoga dlt list --config hoga.toml")]
    Dlt(Dlt),
    /// Build a consumer group's tables anew from the event log, then swap them in.
    #[command(after_help = "Example: hoga rebuild order-projection --data data\n\
                            On a running system it asks that; otherwise it works on the data folder and the database.")]
    Rebuild(Rebuild),
    /// The two groups of processors: how they are doing, which one is shown, in what they differ.
    #[command(subcommand, after_help = "Example: hoga groups status --data data")]
    Groups(Groups),
    /// The order monitor: per symbol what came out of order, again, or not at all, and how late.
    #[command(after_help = "Example: hoga monitor --data data --watch; hoga monitor explain SIM0003")]
    Monitor(Monitor),
    /// The configuration: check a file, show every key.
    #[command(subcommand, after_help = "Example: hoga config show > hoga.toml")]
    Config(ConfigCommand),
    /// Measure. Prints one JSON object a condition with --json.
    #[command(subcommand, after_help = "Example: hoga bench orders --rate 20000 --json")]
    Bench(Bench),
    /// Experiments that prove the claims.
    #[command(subcommand, after_help = "Example: hoga lab crash --rounds 200 --seed 1")]
    Lab(Lab),
}

/// Flags of `up`.
#[derive(Args, Debug)]
pub struct Up {
    /// TOML file; without it, defaults and HOGA__… variables.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data folder.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Port; 0 takes a free one.
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Empty books and no simulated flow.
    #[arg(long)]
    pub no_market: bool,
    /// With a tick plant: a feed, both groups of processors, and what shows them.
    #[arg(long)]
    pub feed: bool,
}

/// What a process can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// API, matching, journal, publishing.
    Exchange,
    /// Balances and ledger.
    AccountService,
    /// Trades and candles.
    MarketDataService,
    /// What users are told.
    NotificationService,
    /// Orders and fills.
    OrderProjection,
    /// Alerts and conditional orders.
    StopTrigger,
    /// Takes trades from outside and puts them on the bus.
    Feed,
    /// A member of a group of processors (see --group).
    Processor,
    /// Shows what the groups make: quotes, candles, events.
    Quotes,
}

impl Role {
    /// The consumer group; none for the exchange.
    pub fn group(self) -> Option<hoga_store::Group> {
        let name = self.to_possible_value()?;
        hoga_store::Group::from_name(name.get_name())
    }
}

/// Flags of `run`.
#[derive(Args, Debug)]
pub struct Run {
    /// A role of this process; may be repeated.
    #[arg(long, value_enum, required = true)]
    pub role: Vec<Role>,
    /// With the role processor: the group, a or b; both when it is given twice.
    #[arg(long, value_enum)]
    pub group: Vec<GroupLetter>,
    /// As for `up`.
    #[command(flatten)]
    pub up: Up,
}

/// A group of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupLetter {
    /// The first.
    A,
    /// The second.
    B,
}

/// `hoga groups …`
#[derive(Debug, Subcommand)]
pub enum Groups {
    /// Leaders, members, lag, and which group is shown.
    #[command(after_help = "Example: hoga groups status --data data")]
    Status {
        /// Data folder of the running process with the role quotes (or of `hoga up`).
        #[arg(long, default_value = "data", value_name = "DIR")]
        data: PathBuf,
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Show the other group from now on. Refused when it is unhealthy or differs, unless forced.
    #[command(after_help = "Example: hoga groups switch b --data data")]
    Switch {
        /// The group to show: a or b.
        #[arg(value_parser = ["a", "b"])]
        to: String,
        /// Although it is unhealthy or differs.
        #[arg(long)]
        force: bool,
        /// As for `status`.
        #[arg(long, default_value = "data", value_name = "DIR")]
        data: PathBuf,
    },
    /// The first difference of each symbol in which the groups differ; exit code 1 when there is one.
    #[command(after_help = "Example: hoga groups diff --data data --json")]
    Diff {
        /// As for `status`.
        #[arg(long, default_value = "data", value_name = "DIR")]
        data: PathBuf,
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Let a group build itself anew from the bus; its traffic moves to the other one meanwhile.
    #[command(after_help = "Example: hoga groups rebuild b --data data")]
    Rebuild {
        /// The group: a or b.
        #[arg(value_parser = ["a", "b"])]
        group: String,
        /// As for `status`.
        #[arg(long, default_value = "data", value_name = "DIR")]
        data: PathBuf,
    },
}

/// Flags of `monitor`.
#[derive(Args, Debug)]
pub struct Monitor {
    /// What to do; without it, a table.
    #[command(subcommand)]
    pub command: Option<MonitorCommand>,
    /// Data folder of the running process with the role processor (or of `hoga up`).
    #[arg(long, default_value = "data", value_name = "DIR", global = true)]
    pub data: PathBuf,
    /// JSON for programs.
    #[arg(long, global = true)]
    pub json: bool,
    /// Symbols without anything to tell, too.
    #[arg(long)]
    pub all: bool,
    /// Again every second, until Ctrl-C.
    #[arg(long)]
    pub watch: bool,
}

/// `hoga monitor …`
#[derive(Debug, Subcommand)]
pub enum MonitorCommand {
    /// Read the log itself: was the order of a symbol wrong there already, or after it? Exit code 1 unless all is well.
    #[command(after_help = "Example: hoga monitor explain SIM0003 --data data")]
    Explain {
        /// The symbol.
        symbol: String,
    },
}

/// `hoga topics …`
#[derive(Debug, Subcommand)]
pub enum Topics {
    /// Measure what one partition carries on this cluster, and say how many are needed.
    #[command(after_help = "Example: hoga topics plan --rate 200000 --bytes 200 --config hoga.toml")]
    Plan {
        /// Messages a second that the topic must carry.
        #[arg(long, default_value_t = 60_000.0, value_parser = positive)]
        rate: f64,
        /// Size of a message in bytes.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(16..=900_000))]
        bytes: u32,
        /// The report as JSON.
        #[arg(long)]
        json: bool,
        /// TOML file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Make the topics that are missing; those that are there are never changed.
    #[command(after_help = "Example: hoga topics apply --config hoga.toml")]
    Apply {
        /// TOML file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Compare the topics with the configuration; exit code 1 when one is missing or differs.
    #[command(after_help = "Example: hoga topics check --config hoga.toml")]
    Check {
        /// TOML file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// `hoga dlt …`
#[derive(Debug, Subcommand)]
pub enum Dlt {
    /// Open dead letters, oldest first.
    #[command(after_help = "Example: hoga dlt list --config hoga.toml --json")]
    List(DltFlags),
    /// One letter with its bytes.
    #[command(after_help = "Example: hoga dlt show order.lifecycle.dlt:17")]
    Show {
        /// Its id, as `list` shows it.
        id: String,
        /// Where.
        #[command(flatten)]
        flags: DltFlags,
    },
    /// Give letters to their group again.
    #[command(after_help = "Example: hoga dlt replay order.lifecycle.dlt:17")]
    Replay {
        /// Their ids, as `list` shows them.
        #[arg(required = true)]
        ids: Vec<String>,
        /// Where.
        #[command(flatten)]
        flags: DltFlags,
    },
    /// Mark letters as done with.
    #[command(after_help = "Example: hoga dlt drop order.lifecycle.dlt:17")]
    Drop {
        /// Their ids, as `list` shows them.
        #[arg(required = true)]
        ids: Vec<String>,
        /// Where.
        #[command(flatten)]
        flags: DltFlags,
    },
}

/// Flags of the dead letters' commands.
#[derive(Args, Debug)]
pub struct DltFlags {
    /// TOML file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data folder, when the event log is embedded.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `rebuild`.
#[derive(Args, Debug)]
pub struct Rebuild {
    /// The group.
    #[arg(value_enum)]
    pub group: Role,
    /// TOML file, when nothing runs on the data folder.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data folder.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// Flags of `replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// The recording.
    pub file: PathBuf,
    /// Times the recorded speed, or `max`.
    #[arg(long, default_value = "1", value_name = "N|max")]
    pub speed: String,
    /// End when the recording ends, with a summary; otherwise go on serving.
    #[arg(long)]
    pub exit: bool,
    /// As for `up`.
    #[command(flatten)]
    pub up: Up,
}

/// `hoga key …`
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make a paper account with a key; prints account, key and secret as one JSON line.
    #[command(after_help = "Example: hoga key new --deposit BTC=10 --deposit USDT=1000000")]
    New {
        /// ASSET=AMOUNT to start with; may be repeated.
        #[arg(long, value_name = "ASSET=AMOUNT")]
        deposit: Vec<String>,
        /// Data folder of the running system.
        #[arg(long, default_value = "data", value_name = "DIR")]
        data: PathBuf,
    },
}

/// Flags of `audit`.
#[derive(Args, Debug)]
pub struct Audit {
    /// Data folder of the running system.
    #[arg(long, default_value = "data", value_name = "DIR")]
    pub data: PathBuf,
    /// Compare the read models with each other too; nothing must be trading then.
    #[arg(long)]
    pub tables: bool,
    /// The report as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `lag`.
#[derive(Args, Debug)]
pub struct Lag {
    /// Data folder of the running system.
    #[arg(long, default_value = "data", value_name = "DIR")]
    pub data: PathBuf,
    /// Everything as JSON: one object, or one a line with --watch.
    #[arg(long)]
    pub json: bool,
    /// Again every second, until Ctrl-C.
    #[arg(long)]
    pub watch: bool,
}

/// `hoga group …`
#[derive(Debug, Subcommand)]
pub enum Group {
    /// Forget where a group is: retention no longer waits for it, and it begins again where it finds itself. Of the relay: topics on Kafka
    /// that are empty are filled from the local log.
    #[command(after_help = "Example: hoga group forget relay --data data")]
    Forget {
        /// Its name, as `hoga lag` shows it.
        group: String,
        /// Data folder of the stopped system.
        #[arg(long, default_value = "data", value_name = "DIR")]
        data: PathBuf,
    },
}

/// `hoga journal …`
#[derive(Debug, Subcommand)]
pub enum Journal {
    /// Check every record; exit code 1 and the place when something is damaged.
    #[command(after_help = "Example: hoga journal verify --data data --json")]
    Verify(JournalFlags),
    /// Print commands, one a line.
    #[command(after_help = "Example: hoga journal dump --data data --from 1 --to 100 --json")]
    Dump {
        /// First command.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Last command.
        #[arg(long, default_value_t = u64::MAX)]
        to: u64,
        /// Where, and how.
        #[command(flatten)]
        flags: JournalFlags,
    },
    /// Segments, commands, bytes.
    #[command(after_help = "Example: hoga journal stats --data data")]
    Stats(JournalFlags),
}

/// Flags of the journal's commands.
#[derive(Args, Debug)]
pub struct JournalFlags {
    /// Data folder.
    #[arg(long, default_value = "data", value_name = "DIR")]
    pub data: PathBuf,
    /// JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// `hoga config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Read a file and the environment, and say what is wrong; exit code 2 then.
    #[command(after_help = "Example: hoga config check --config hoga.toml")]
    Check {
        /// The file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print every key with the value in force, as TOML.
    #[command(after_help = "Example: hoga config show > hoga.toml")]
    Show {
        /// The file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// How orders travel.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Transport {
    /// The WebSocket API.
    Ws,
    /// REST.
    Http,
}

/// When an answer may leave.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Durability {
    /// After fdatasync.
    Sync,
    /// After write.
    Write,
    /// At once.
    None,
}

/// What carries ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TickBus {
    /// The feed's spool, read in the same process
    Inproc,
    /// Apache Kafka
    Kafka,
    /// Redis Pub/Sub.
    Redis,
}

/// Where `bench ticks` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TickCache {
    /// In this process.
    Memory,
    /// Redis.
    Redis,
}

/// Where the benched event log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogBackend {
    /// Segment files.
    Embedded,
    /// Apache Kafka.
    Kafka,
}

/// What an outage takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Away {
    /// Apache Kafka.
    Kafka,
    /// PostgreSQL.
    Postgres,
}

/// Where the benched read model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreBackend {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// `hoga bench …`
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// One thread, no I/O: the whole core on a mixed flow, or the bare book on recorded messages.
    #[command(
        after_help = "Example: hoga bench match --workload me-consensus:normal --data ../shared/data --json"
    )]
    Match {
        /// `core`, `me-consensus` (every scenario there is) or `me-consensus:SCENARIO`.
        #[arg(long, default_value = "core")]
        workload: String,
        /// Folder with `me-consensus/`.
        #[arg(long, value_name = "DIR", env = "HOGA_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// Commands of the mixed flow.
        #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        count: u64,
        /// One JSON object a condition.
        #[arg(long)]
        json: bool,
    },
    /// Open loop through the public API, durable, read models on.
    #[command(after_help = "Example: hoga bench orders --transport ws --rate 20000 --seconds 30 --json")]
    Orders {
        /// How orders travel.
        #[arg(long, value_enum, default_value = "ws")]
        transport: Transport,
        /// Requests a second.
        #[arg(long, default_value_t = 20_000.0, value_parser = positive)]
        rate: f64,
        /// Counted seconds.
        #[arg(long, default_value_t = 30.0, value_parser = positive)]
        seconds: f64,
        /// When an answer may leave.
        #[arg(long, value_enum, default_value = "sync")]
        durability: Durability,
        /// Accounts.
        #[arg(long, default_value_t = 1_000, value_parser = count)]
        accounts: usize,
        /// Markets.
        #[arg(long, default_value_t = 10, value_parser = count)]
        symbols: usize,
        /// Connections.
        #[arg(long, default_value_t = 16, value_parser = count)]
        connections: usize,
        /// Consumers read from `embedded` or `kafka` (a broker is started for it).
        #[arg(long, value_enum, default_value = "embedded")]
        event_log: LogBackend,
        /// Read models on `sqlite` or `postgres` (a server is started for it).
        #[arg(long, value_enum, default_value = "sqlite")]
        store: StoreBackend,
        /// Search the highest rate up to this one that holds p99 < 10 ms; one object a try.
        #[arg(long, value_name = "RATE", value_parser = positive)]
        highest: Option<f64>,
        /// One JSON object a condition.
        #[arg(long)]
        json: bool,
    },
    /// Replay of the journal, then a restart from a snapshot.
    #[command(after_help = "Example: hoga bench recover --commands 5000000 --open-orders 1000000 --json")]
    Recover {
        /// Commands to replay.
        #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        commands: u64,
        /// Orders open in the snapshot.
        #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        open_orders: u64,
        /// One JSON object a condition.
        #[arg(long)]
        json: bool,
    },
    /// Append to an event log and consume from it at once.
    #[command(after_help = "Example: hoga bench log --backend kafka --partitions 4 --rate max --json")]
    Log {
        /// `embedded` or `kafka` (a broker is started for it, with Kafka's own perf tools beside).
        #[arg(long, value_enum, default_value = "embedded")]
        backend: LogBackend,
        /// Bytes of a message.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(32..=900_000))]
        size: u32,
        /// Partitions of the topic.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
        partitions: u32,
        /// Messages a second, or `max`.
        #[arg(long, default_value = "max", value_name = "max|R")]
        rate: String,
        /// Counted seconds.
        #[arg(long, default_value_t = 10.0, value_parser = positive)]
        seconds: f64,
        /// One JSON object a condition.
        #[arg(long)]
        json: bool,
    },
    /// Ticks of many symbols from a feed over a bus through the plant's loops into the cache.
    #[command(after_help = "Example: hoga bench ticks --bus inproc --rate 22000 --symbols 2000 --json")]
    Ticks {
        /// `inproc` (the feed's spool, read in this process), `kafka` or `redis` (a server is started for it).
        #[arg(long, value_enum, default_value = "inproc")]
        bus: TickBus,
        /// Where the latest of each symbol is written: `memory` or `redis` (a server is started for it).
        #[arg(long, value_enum, default_value = "memory")]
        cache: TickCache,
        /// Ticks a second over all symbols, or `max`.
        #[arg(long, default_value = "22000", value_name = "max|R")]
        rate: String,
        /// Symbols.
        #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=99_999))]
        symbols: u32,
        /// Partitions of the bus.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
        lanes: u32,
        /// Loops that the partitions are divided among.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
        loops: u32,
        /// Counted seconds.
        #[arg(long, default_value_t = 30.0, value_parser = positive)]
        seconds: f64,
        /// One JSON object a condition.
        #[arg(long)]
        json: bool,
    },
    /// `order-projection` from a full log into its store, saturated.
    #[command(after_help = "Example: hoga bench project --store postgres --events 1000000 --json")]
    Project {
        /// `sqlite` or `postgres` (a server is started for it).
        #[arg(long, value_enum, default_value = "sqlite")]
        store: StoreBackend,
        /// Events in the log.
        #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        events: u64,
        /// One JSON object a condition.
        #[arg(long)]
        json: bool,
    },
    /// Order latency while Kafka or PostgreSQL is away, beside the same load with it there, in alternating pairs.
    #[command(after_help = "Example: hoga bench outage --what kafka --rate 5000 --json")]
    Outage {
        /// What is taken away.
        #[arg(long, value_enum, default_value = "kafka")]
        what: Away,
        /// Requests a second.
        #[arg(long, default_value_t = 5_000.0, value_parser = positive)]
        rate: f64,
        /// Counted seconds of each half of a pair.
        #[arg(long, default_value_t = 15.0, value_parser = positive)]
        seconds: f64,
        /// Pairs.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
        pairs: u32,
        /// One JSON object a condition.
        #[arg(long)]
        json: bool,
    },
    /// The whole system with no load.
    #[command(after_help = "Example: hoga bench idle --seconds 20 --json")]
    Idle {
        /// Seconds.
        #[arg(long, default_value_t = 20.0, value_parser = positive)]
        seconds: f64,
        /// One JSON object a condition.
        #[arg(long)]
        json: bool,
    },
}

/// `hoga lab …`
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Take Kafka, PostgreSQL, consumers and the exchange away under load, and look through every table afterwards.
    #[command(after_help = "Example: hoga lab faults kafka-stop postgres-stop --outage 30\n\
                            Without names: all of them. The servers are started for it; run it in a checkout.")]
    Faults {
        /// Which faults.
        names: Vec<String>,
        /// Seconds that a server is away.
        #[arg(long, default_value_t = 30.0, value_parser = positive)]
        outage: f64,
    },
    /// Kill, pause and take away what the tick plant consists of, and check that readers see every number once, in order. Needs the repository's scripts.
    #[command(after_help = "Example: hoga lab plant members --outage 30\n\
                            Scenes: members zookeeper kafka caches stops hot grid; all without a name.")]
    Plant {
        /// Which scenes.
        names: Vec<String>,
        /// Seconds that a server is away.
        #[arg(long, default_value_t = 30.0, value_parser = positive)]
        outage: f64,
        /// How often the feed is stopped by SIGTERM in the scene `stops`.
        #[arg(long, default_value_t = 76, value_parser = clap::value_parser!(u32).range(4..=10_000))]
        stops: u32,
        /// All of the grid (partitions 1, 3, 6, 12 by loops 1, 3, 6), and limits of time as they are promised; otherwise four times as much is let pass.
        #[arg(long)]
        full: bool,
    },
    /// Kill the real binary under load, start it again, and check that nothing acknowledged is missing.
    #[command(after_help = "Example: hoga lab crash --rounds 200 --seed 1")]
    Crash {
        /// Rounds.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Seed of the kill times.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Keep the data here for a look.
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
}
