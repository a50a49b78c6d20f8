//! The faults.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Stage;
use crate::fleet::GROUPS;
use crate::orders::BenchError;

/// A fault.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What was shown when it has passed.
    pub told: &'static str,
    /// Kafka's nodes.
    pub nodes: u16,
    /// Whether clients must not notice it.
    pub answers_go_on: bool,
    /// Brings it about, and takes it away.
    pub play: fn(&mut Stage) -> Result<(), BenchError>,
}

/// All of them.
pub const ALL: &[Scenario] = &[
    Scenario {
        name: "kafka-stop",
        told: "Kafka was stopped and came back: answers went on, the relay caught up in order",
        nodes: 1,
        answers_go_on: true,
        play: kafka_stop,
    },
    Scenario {
        name: "kafka-kill",
        told: "Kafka was killed and came back: nothing lost or doubled in the topics",
        nodes: 1,
        answers_go_on: true,
        play: kafka_kill,
    },
    Scenario {
        name: "kafka-hang",
        told: "Kafka hung and went on",
        nodes: 1,
        answers_go_on: true,
        play: kafka_hang,
    },
    Scenario {
        name: "postgres-stop",
        told: "PostgreSQL was stopped and came back: the groups waited and went on",
        nodes: 1,
        answers_go_on: true,
        play: postgres_stop,
    },
    Scenario {
        name: "postgres-kill",
        told: "PostgreSQL was killed and came back",
        nodes: 1,
        answers_go_on: true,
        play: postgres_kill,
    },
    Scenario {
        name: "consumer-kill",
        told: "each consumer was killed and started again: its tables are as if nothing had been",
        nodes: 1,
        answers_go_on: true,
        play: consumer_kill,
    },
    Scenario {
        name: "exchange-kill",
        told: "the exchange was killed between journal and publishing, and published the rest once",
        nodes: 1,
        answers_go_on: false,
        play: exchange_kill,
    },
    Scenario {
        name: "two-exchanges",
        told: "a second exchange was refused, on the same folder and on another one with the same topics",
        nodes: 1,
        answers_go_on: true,
        play: two_exchanges,
    },
    Scenario {
        name: "leader-kill",
        told: "the node that led the partitions was killed: the others went on",
        nodes: 3,
        answers_go_on: true,
        play: leader_kill,
    },
    Scenario {
        name: "below-minimum",
        told: "with one replica of three left publishing waited; nothing that was acknowledged is lost",
        nodes: 3,
        answers_go_on: true,
        play: below_minimum,
    },
];

/// A pause in which only the load goes on.
fn let_pass(time: Duration) {
    std::thread::sleep(time);
}

fn kafka_stop(stage: &mut Stage) -> Result<(), BenchError> {
    stage.fleet.kafka.down()?;
    let_pass(stage.outage);
    stage.fleet.kafka.up()
}

fn kafka_kill(stage: &mut Stage) -> Result<(), BenchError> {
    stage.fleet.kafka.kill()?;
    stage.fleet.kafka.up()
}

fn kafka_hang(stage: &mut Stage) -> Result<(), BenchError> {
    stage.fleet.kafka.run(&["stop"])?;
    let_pass(stage.outage / 3);
    stage.fleet.kafka.run(&["cont"])
}

fn postgres_stop(stage: &mut Stage) -> Result<(), BenchError> {
    stage.fleet.postgres.down()?;
    let_pass(stage.outage);
    stage.fleet.postgres.up()
}

fn postgres_kill(stage: &mut Stage) -> Result<(), BenchError> {
    stage.fleet.postgres.kill()?;
    stage.fleet.postgres.up()
}

fn consumer_kill(stage: &mut Stage) -> Result<(), BenchError> {
    for group in GROUPS {
        stage.fleet.kill_group(group)?;
        let_pass(Duration::from_millis(500));
        stage.fleet.start_group(group)?;
    }
    Ok(())
}

/// Kafka hangs, so that what the exchange accepts is in its journal and not in the topics; then the exchange dies.
fn exchange_kill(stage: &mut Stage) -> Result<(), BenchError> {
    stage.fleet.kafka.run(&["stop"])?;
    let_pass(Duration::from_secs(2));
    stage.fleet.kill_exchange()?;
    stage.fleet.kafka.run(&["cont"])?;
    stage.fleet.start_exchange()
}

fn two_exchanges(stage: &mut Stage) -> Result<(), BenchError> {
    // The topics must hold something that another history cannot have.
    let other = stage.fleet.folder().join("second");
    for (data, wanted) in [(stage.fleet.data(), "data-folder"), (other, "log-foreign-writer")] {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.args(["run", "--role", "exchange", "--no-market", "--port", "0"]);
        command.args(["--config", stage.fleet.config(), "--data"]).arg(&data);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let output = ended(child, Duration::from_secs(60))?;
        let words = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !words.contains(wanted) {
            return Err(BenchError::Unfit(format!(
                "a second exchange on {} ended with {}, without [{wanted}]: {words}",
                data.display(),
                output.status
            )));
        }
    }
    Ok(())
}

/// Waits for a process that must end by itself; kills it after the limit, which is a failure.
fn ended(mut child: std::process::Child, limit: Duration) -> Result<std::process::Output, BenchError> {
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > limit {
            child.kill()?;
            let output = child.wait_with_output()?;
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(BenchError::Unfit(format!("a second exchange still ran after {limit:?}: {words}")));
        }
        std::thread::sleep(Duration::from_millis(20)); // waitpid has no timeout
    }
    Ok(child.wait_with_output()?)
}

fn leader_kill(stage: &mut Stage) -> Result<(), BenchError> {
    let leader = stage.fleet.kafka.output(&["leader", "order.lifecycle"])?;
    let leader = leader.trim();
    stage.fleet.kafka.run(&["kill", leader])?;
    let_pass(Duration::from_secs(5));
    stage.fleet.kafka.run(&["up", leader])
}

fn below_minimum(stage: &mut Stage) -> Result<(), BenchError> {
    let leader = stage.fleet.kafka.output(&["leader", "order.lifecycle"])?;
    let others: Vec<String> = (1..=3).map(|n| n.to_string()).filter(|n| n != leader.trim()).collect();
    for node in &others {
        stage.fleet.kafka.run(&["kill", node])?;
    }
    let_pass(stage.outage / 3);
    stage.fleet.kafka.up()
}
