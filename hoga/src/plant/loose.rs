//! The feed's experiments on Kafka: ticks without a key, or with less confirmation than the log's law wants. For seeing what the order monitor shows then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hoga_feed::bus::Published;
use hoga_log::LogError;
use hoga_log::event_log::{EventLog, TopicSpec};
use hoga_log::kafka::{Acks, KafkaLog, LooseProducer};

use super::{TICKS, config, kafka_config};
use crate::config::Config;
use crate::{End, coded};

/// Ticks of a lane that are sent at once.
const MOST: usize = 1024;
/// The pause of one that has nothing to send, or whose client takes nothing.
const PAUSE: Duration = Duration::from_millis(1);

/// Sends what comes into the spool from now on. Stops when it is dropped.
pub struct Loose {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Loose {
    /// Begins at the end of the spool. The topic is made when there is a broker.
    pub fn start(config: &Config, log: Arc<dyn EventLog>) -> Result<Loose, End> {
        let settings = kafka_config(config);
        let acks = match config.feed.acks {
            config::Acks::All => Acks::All,
            config::Acks::Leader => Acks::Leader,
            config::Acks::None => Acks::None,
        };
        tracing::warn!(
            acks = acks.as_str(),
            keyless = config.feed.keyless,
            "an experiment: order and completeness of ticks are not kept"
        );
        let producer = LooseProducer::open(&settings, acks).map_err(coded(LogError::code))?;
        let (lanes, keyless) = (config.feed.lanes, config.feed.keyless);
        let topic = TopicSpec::delete(TICKS, lanes, config.feed.spool_mib << 20);
        let ends = (0..lanes).map(|lane| log.end_offset(TICKS, lane)).collect::<Result<Vec<_>, _>>();
        let mut next = ends.map_err(coded(LogError::code))?;
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), sent.clone());
        let work = move || {
            let admin = KafkaLog::open(settings);
            let mut made = false;
            let mut read = Vec::new();
            while !stopped.load(Ordering::Acquire) {
                made = made || admin.as_ref().is_ok_and(|admin| admin.create_topic(&topic).is_ok());
                let mut some = false;
                for (lane, next) in next.iter_mut().enumerate().filter(|_| made) {
                    read.clear();
                    let Ok(to) = log.read(TICKS, lane as u32, *next, MOST, &mut read) else { continue };
                    for message in read.iter().filter_map(|m| Some((&m.key, m.value.as_deref()?))) {
                        let (key, value) = message;
                        let (partition, key) =
                            if keyless { (None, None) } else { (Some(lane as u32), Some(key.as_slice())) };
                        while producer.send(TICKS, partition, key, value).is_err()
                            && !stopped.load(Ordering::Acquire)
                        {
                            std::thread::sleep(PAUSE); // its queue is full: it is tried again
                        }
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    some |= to > *next;
                    *next = to;
                }
                if !some {
                    std::thread::sleep(PAUSE); // the spool has nothing new
                }
            }
        };
        let thread = std::thread::Builder::new().name("loose".into()).spawn(work);
        let thread =
            thread.map_err(|error| End::Start(format!("[threads] a thread cannot be started: {error}")))?;
        Ok(Loose { stop, sent, thread: Some(thread) })
    }

    /// What was sent; whether it arrived nobody knows.
    pub fn told(&self) -> impl Fn() -> Published + Send + Sync + use<> {
        let sent = self.sent.clone();
        move || Published { ticks: sent.load(Ordering::Relaxed), waiting: 0, connected: true }
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
