//! Starting an engine of a replicated shard: it follows, and leads when it must.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hoga_core::exchange::Exchange;
use hoga_log::event_log::{EventLog, TopicSpec};
use hoga_log::journal::Durability;
use hoga_log::storage::{Disk, Storage};

use super::message::MAX_NODE;
use super::reader::Reader;
use super::seat::{ReplicaStatus, Role};
use super::writer::Writer;
use super::{Replication, place};
use crate::Subscriber;
use crate::config::EngineConfig;
use crate::engine::{Assembled, Engine, Matching, Started, check, recover};
use crate::error::{EngineError, SubmitError};
use crate::fault::Fault;
use crate::handle::EngineHandle;
use crate::position::Space;

/// How long a new leader waits for its own replica to have applied everything before it looks whether it still leads.
const STATE: Duration = Duration::from_secs(1);

/// An engine that follows a replicated journal. It becomes an [`Engine`] when it leads. Dropping it ends it in order.
///
/// While it follows, its handle answers queries, its subscribers and its event log get everything as on the leader, and commands are refused
/// as busy.
pub struct Standby {
    /// There until it has become an engine.
    parts: Option<(Engine, Matching)>,
    handle: EngineHandle,
    started: Started,
}

impl Standby {
    /// Starts on the disk: rebuilds what the local journal holds, finds its place in the topic and follows it. Makes the topic when it is
    /// missing.
    ///
    /// Errors: as of [`Engine::start`], and [`EngineError::Replica`]; also [`EngineError::Log`] while the log is away (it may be tried
    /// again). Nothing is running then.
    pub fn start(
        config: EngineConfig,
        replication: Replication,
        log: Arc<dyn EventLog>,
        subscribers: Vec<Box<dyn Subscriber>>,
    ) -> Result<Standby, EngineError> {
        Standby::start_on(Disk, config, replication, log, subscribers)
    }

    /// As [`Standby::start`], on any storage.
    pub fn start_on<S: Storage>(
        storage: S,
        config: EngineConfig,
        replication: Replication,
        log: Arc<dyn EventLog>,
        subscribers: Vec<Box<dyn Subscriber>>,
    ) -> Result<Standby, EngineError> {
        check(&config)?;
        check_replication(&config, &replication)?;
        replication.log.create_topic(&TopicSpec::delete(&replication.topic, 1, u64::MAX))?;
        let recovered = recover(&storage, &config, log.clone())?;
        let place = place::find(&storage, &config.dir, &replication, recovered.journal.last())?;
        let assembled = Engine::assemble(storage.clone(), config.clone(), log, subscribers, recovered)?;
        let Assembled { mut engine, matching, journal, batches, .. } = assembled;
        let shared = engine.handle.shared.clone();
        let seat = &shared.seat;
        seat.follow();
        seat.epoch.store(place.fence.epoch, Ordering::SeqCst);
        seat.offset.store(place.offset, Ordering::SeqCst);
        seat.reachable.store(true, Ordering::SeqCst);
        // Random for each run: the seeds of the standard library's hash tables.
        let instance = RandomState::new().hash_one(std::process::id()).max(1);
        let clock = config.clock.clone();
        let writer =
            Writer { shared: shared.clone(), replication: replication.clone(), instance, batches, clock };
        let now = Instant::now();
        let kept = (now, place.offset);
        let reader = Reader {
            shared,
            storage,
            config,
            replication,
            instance,
            journal,
            place,
            quiet: now,
            claimed: None,
            kept,
            leads: false,
        };
        engine.spawn("replica-reader", matching.end.clone(), move || reader.run())?;
        engine.spawn("replica-writer", matching.end.clone(), move || writer.run())?;
        let (handle, started) = (engine.handle(), engine.started());
        Ok(Standby { parts: Some((engine, matching)), handle, started })
    }

    /// A handle for queries and positions now, and for commands once this engine leads: it stays good.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// How it came up. What was followed since is not in it.
    pub fn started(&self) -> Started {
        self.started
    }

    /// How its replication stands.
    pub fn status(&self) -> ReplicaStatus {
        self.handle.replica()
    }

    /// What stopped it, if something has.
    pub fn fault(&self) -> Option<Fault> {
        self.handle.fault()
    }

    /// Waits until this engine leads, at most `timeout`, and then gives it, once. `None`: it still follows. After a `Some` the standby is
    /// spent; dropping it does nothing.
    ///
    /// Errors: the fault that has stopped it.
    pub fn wait_leadership(&mut self, timeout: Duration) -> Result<Option<Engine>, EngineError> {
        let shared = self.handle.shared.clone();
        shared.seat.wait_change(timeout);
        if let Some(fault) = self.fault() {
            return Err(EngineError::Fault(fault));
        }
        if shared.seat.role() != Role::Leader || self.parts.is_none() {
            return Ok(None);
        }
        // Everything before the claim is in the journal; the replica may have to catch up with it. Heartbeats go on meanwhile.
        let exchange: Exchange = loop {
            let asked = self.handle.query(Exchange::clone).and_then(|ticket| ticket.wait(STATE));
            match asked {
                Ok(exchange) => break exchange,
                Err(SubmitError::Busy) => {}
                Err(SubmitError::Stopped) => {
                    return match self.handle.shared.faults.wait(STATE) {
                        Some(fault) => Err(EngineError::Fault(fault)),
                        None => Ok(None),
                    };
                }
            }
        };
        debug_assert_eq!(exchange.position(), shared.durable.get().seq());
        let Some((mut engine, matching)) = self.parts.take() else { return Ok(None) };
        engine.lead(matching, exchange)?;
        Ok(Some(engine))
    }

    /// Ends in order: syncs what was followed, writes a last snapshot where the configuration says so, and joins the threads.
    ///
    /// Errors: as of [`Engine::shutdown`].
    pub fn shutdown(mut self) -> Result<(), EngineError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), EngineError> {
        let Some((engine, matching)) = self.parts.take() else { return Ok(()) };
        drop(matching);
        self.handle.shared.ring_all();
        engine.shutdown()
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("standby dropped: {error}");
        }
    }
}

fn check_replication(config: &EngineConfig, replication: &Replication) -> Result<(), EngineError> {
    let refuse = |setting, reason: &str| Err(EngineError::Config { setting, reason: reason.to_owned() });
    if config.durability == Durability::None {
        return refuse(
            "durability",
            "a replicated journal answers only what it confirmed: choose sync or write",
        );
    }
    if replication.node.is_empty() || replication.node.len() > MAX_NODE {
        return refuse("node", "must be a name of 1 to 100 bytes");
    }
    if replication.heartbeat.is_zero() || replication.heartbeat * 2 >= replication.lease {
        return refuse("heartbeat", "must be more than zero and less than half of the lease");
    }
    Ok(())
}
