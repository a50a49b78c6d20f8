//! The lab: benches, load generators and the crash loop. Everything that measures the product does so through its public interface,
//! by driving the built binary; only `bench match` and the replay half of `bench recover` run the engine's parts in this process.

pub mod admin;
pub mod allocations;
pub mod crash;
pub mod event_log;
pub mod faults;
pub mod fleet;
pub mod idle;
pub mod interrupt;
pub mod load;
pub mod matching;
pub mod orders;
pub mod outage;
#[cfg(all(feature = "kafka", feature = "redis"))]
pub mod plant;
pub mod probe;
pub mod process;
pub mod project;
pub mod recover;
pub mod report;
pub mod request;
pub mod services;
pub mod ticks;
pub mod trader;
