//! `hoga bench` and `hoga lab`: from the command line to the lab.

use std::time::Duration;

use hoga_lab::load::Transport;
use hoga_lab::report::Report;

use crate::cli::{self, Bench, Lab, LogBackend, StoreBackend};
use crate::{End, offline, print};

/// `hoga bench …`
pub fn bench(bench: Bench) -> Result<(), End> {
    hoga_lab::interrupt::clean_up_on_signals("the bench")?;
    let emit = |reports: Vec<Report>, json: bool| -> Result<(), End> {
        for report in reports {
            report.print(json)?;
        }
        Ok(())
    };
    match bench {
        Bench::Match { workload, data, count, json } => {
            emit(hoga_lab::matching::run(&workload, &data, count)?, json)
        }
        Bench::Orders {
            transport,
            rate,
            seconds,
            durability,
            accounts,
            symbols,
            connections,
            event_log,
            store,
            highest,
            json,
        } => {
            let options = hoga_lab::orders::Options {
                transport: match transport {
                    cli::Transport::Ws => Transport::Ws,
                    cli::Transport::Http => Transport::Http,
                },
                rate,
                seconds,
                durability: match durability {
                    cli::Durability::Sync => "sync",
                    cli::Durability::Write => "write",
                    cli::Durability::None => "none",
                }
                .to_owned(),
                accounts,
                symbols,
                connections,
                kafka: event_log == LogBackend::Kafka,
                postgres: store == StoreBackend::Postgres,
            };
            let reports = match highest {
                Some(to) => hoga_lab::orders::highest(&options, rate, to, 10_000.0)?,
                None => vec![hoga_lab::orders::run(&options)?],
            };
            emit(reports, json)
        }
        Bench::Recover { commands, open_orders, json } => {
            emit(vec![hoga_lab::recover::run(commands, open_orders)?], json)
        }
        Bench::Log { backend, size, partitions, rate, seconds, json } => {
            let rate = rate_of(&rate)?;
            let backend = match backend {
                LogBackend::Embedded => hoga_lab::event_log::Backend::Embedded,
                LogBackend::Kafka => hoga_lab::event_log::Backend::Kafka,
            };
            let options = hoga_lab::event_log::Options { backend, size, partitions, rate, seconds };
            emit(hoga_lab::event_log::run(&options)?, json)
        }
        Bench::Ticks { bus, cache, rate, symbols, lanes, loops, seconds, json } => {
            let bus = match bus {
                cli::TickBus::Inproc => hoga_lab::ticks::Bus::Inproc,
                cli::TickBus::Kafka => hoga_lab::ticks::Bus::Kafka,
                cli::TickBus::Redis => hoga_lab::ticks::Bus::Redis,
            };
            let cache = match cache {
                cli::TickCache::Memory => hoga_lab::ticks::Cache::Memory,
                cli::TickCache::Redis => hoga_lab::ticks::Cache::Redis,
            };
            let options = hoga_lab::ticks::Options {
                bus,
                cache,
                rate: rate_of(&rate)?,
                symbols,
                lanes,
                loops,
                seconds,
            };
            emit(hoga_lab::ticks::run(&options)?, json)
        }
        Bench::Project { store, events, json } => {
            let store = match store {
                StoreBackend::Sqlite => hoga_lab::project::Store::Sqlite,
                StoreBackend::Postgres => hoga_lab::project::Store::Postgres,
            };
            emit(vec![hoga_lab::project::run(store, events)?], json)
        }
        Bench::Outage { what, rate, seconds, pairs, json } => {
            let what = match what {
                cli::Away::Kafka => hoga_lab::outage::Away::Kafka,
                cli::Away::Postgres => hoga_lab::outage::Away::Postgres,
            };
            let options = hoga_lab::outage::Options { what, rate, seconds, pairs };
            emit(hoga_lab::outage::run(&options)?, json)
        }
        Bench::Idle { seconds, json } => emit(vec![hoga_lab::idle::run(seconds)?], json),
    }
}

/// A rate, or `max` for none.
fn rate_of(text: &str) -> Result<Option<f64>, End> {
    match text {
        "max" => Ok(None),
        text => cli::positive(text).map(Some).map_err(|e| End::Usage(format!("--rate {text}: {e}, or max"))),
    }
}

/// `hoga lab …`
pub fn lab(lab: Lab) -> Result<(), End> {
    match lab {
        Lab::Crash { rounds, seed, keep } => {
            hoga_lab::interrupt::clean_up_on_signals("the crash loop")?;
            let options = hoga_lab::crash::Options { rounds, seed, keep };
            let checks = hoga_lab::crash::run(&options, &offline::Stopped)?;
            print(format_args!("crash: {checks} passed, 0 failed"))
        }
        Lab::Faults { names, outage } => {
            hoga_lab::interrupt::clean_up_on_signals("the fault tests")?;
            let options = hoga_lab::faults::Options { names, outage: Duration::from_secs_f64(outage) };
            let checks = hoga_lab::faults::run(&options)?;
            print(format_args!("faults: {checks} passed, 0 failed"))
        }
        #[cfg(all(feature = "kafka", feature = "redis"))]
        Lab::Plant { names, outage, stops, full } => {
            hoga_lab::interrupt::clean_up_on_signals("the plant's tests")?;
            let outage = Duration::from_secs_f64(outage);
            let checks = hoga_lab::plant::run(&hoga_lab::plant::Options { names, outage, stops, full })?;
            print(format_args!("plant: {checks} passed, 0 failed"))
        }
        #[cfg(not(all(feature = "kafka", feature = "redis")))]
        Lab::Plant { .. } => {
            Err(End::Usage("this build is without Kafka or Redis: build it with default features".into()))
        }
    }
}
