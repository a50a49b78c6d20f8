//! Processors: readers that only read, and loops that own symbols.
//!
//! A *reader* moves messages of its lanes from the bus to the loop of the lane and decodes nothing. A *loop* is one thread with one bounded
//! queue: it decodes, finds the symbol's state and hands the ticks to the [`Handler`]. While a loop is busy its queue fills; it then takes
//! all that waits at once and gives each symbol's ticks to the handler together, so that a handler can merge them. When the queue is full
//! the reader waits: what is not read stays in the bus's log.
//!
//! **Hot symbols.** A loop measures the time that each symbol takes. A symbol whose share of the loop is above [`Hot::move_above`] goes to a
//! loop of its own, with its state, and comes back below [`Hot::back_below`]. Its ticks pass through the loop of its lane in both cases, which
//! forwards them: so their order is that of the lane, whoever works on them.

mod event_loop;
mod hot;
mod reader;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoga_core::ids::Timestamp;
use hoga_log::LogError;
use hoga_log::event_log::StoredMessage;
use hoga_log::ring;

use crate::bus::Bus;
use crate::symbol::Symbol;
use crate::tick::{FeedTick, MAX_ENCODED};

pub use hot::Hot;
pub use stats::{LoopStats, PlantStats, recommended_loops};

/// What is done with ticks. One value for each loop; it is called by that loop's thread alone.
pub trait Handler: Send + 'static {
    /// All that belongs to one symbol. It moves with the symbol from loop to loop.
    type State: Send + 'static;

    /// The state of a symbol that was not seen before.
    fn open(&mut self, symbol: Symbol) -> Self::State;

    /// Ticks of one symbol, one or more, in the order in which they came. They are several when they had to wait, and a handler may then do
    /// for all of them what it would do for each.
    fn ticks(&mut self, state: &mut Self::State, ticks: &[FeedTick]);

    /// A message that is no tick, with its lane and offset; its key and time may be left out. Never called for a message that was handled.
    fn bad(&mut self, lane: u32, message: &StoredMessage, reason: &str);

    /// After all that waited was handled, before a symbol leaves this loop, and at least every [`PlantConfig::idle`]: the place for what is done once for many ticks. `batch` says
    /// what was handled since the last call, when there was anything.
    fn flush(&mut self, batch: Option<Batch>);

    /// Each symbol of this loop once, when the plant stops in order.
    fn close(&mut self, symbol: Symbol, state: Self::State);
}

/// What a loop handled at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// When the oldest of it was read from the bus; for ticks that another loop passed on, when they were taken from it.
    pub read: Instant,
    /// Messages, passed on or handled.
    pub messages: u64,
}

/// How a plant is built.
#[derive(Clone, Debug)]
pub struct PlantConfig {
    /// Loops that lanes are divided among (lane modulo loops); at most as many as lanes are of use.
    pub loops: u32,
    /// Threads that read, among which lanes are divided (lane modulo readers). One that has several lanes looks at each in turn.
    pub readers: u32,
    /// Ticks that may wait for one loop. A power of two is used, the next one above.
    pub queue: usize,
    /// Most messages of one read of a lane.
    pub read: usize,
    /// Most ticks that a loop takes at once.
    pub batch: usize,
    /// The longest time between two calls of [`Handler::flush`].
    pub idle: Duration,
    /// When symbols are moved; none: never.
    pub hot: Option<Hot>,
}

impl PlantConfig {
    /// As many loops and readers as said.
    pub fn new(loops: u32) -> PlantConfig {
        PlantConfig {
            loops,
            readers: loops,
            queue: 65_536,
            read: 4_096,
            batch: 8_192,
            idle: Duration::from_millis(100),
            hot: Some(Hot::default()),
        }
    }

    fn check(&self, lanes: u32) -> Result<(), LogError> {
        let config = |text: String| Err(LogError::Config(text));
        if lanes == 0 {
            return config("the bus of ticks has no lanes to read".into());
        }
        if self.loops == 0 || self.readers == 0 || self.queue < 2 || self.read == 0 || self.batch == 0 {
            return config(format!(
                "a plant needs 1 loop, 1 reader, room for 2 ticks and reads and batches of 1 or more, not {self:?}"
            ));
        }
        match &self.hot {
            Some(hot) => hot.check(),
            None => Ok(()),
        }
    }
}

/// A message on its way to a loop.
struct Delivery {
    lane: u32,
    /// Its length, and its bytes at the front: a tick is short enough. So nothing that one thread has allocated is freed by another, which costs more than the copy.
    len: u8,
    bytes: [u8; MAX_ENCODED],
    offset: u64,
    /// When it was read.
    read: Instant,
    /// The message itself, where it is none that could be a tick.
    odd: Option<Box<StoredMessage>>,
}

impl Delivery {
    fn new(lane: u32, read: Instant, message: StoredMessage) -> Delivery {
        let mut delivery =
            Delivery { lane, len: 0, bytes: [0; MAX_ENCODED], offset: message.offset, read, odd: None };
        match message.value.as_deref() {
            Some(value) if value.len() <= MAX_ENCODED => {
                delivery.len = value.len() as u8;
                delivery.bytes[..value.len()].copy_from_slice(value);
            }
            _ => delivery.odd = Some(Box::new(message)),
        }
        delivery
    }

    /// The message, for who has to tell of it.
    fn message(&self) -> StoredMessage {
        match &self.odd {
            Some(message) => (**message).clone(),
            None => StoredMessage {
                offset: self.offset,
                key: Vec::new(),
                value: Some(self.bytes[..usize::from(self.len)].to_vec()),
                time: Timestamp(0),
            },
        }
    }
}

/// What a loop can be sent.
enum Input<S> {
    /// From the bus.
    Tick(Delivery),
    /// From the loop of the lane to a symbol's own loop.
    Forward(FeedTick),
    /// From the loop of the lane: a symbol moves to this loop, which is for hot ones.
    Adopt(Box<hot::Moving<S>>),
    /// From the loop of the lane: the symbol is to go back there, after the ticks before this.
    Return {
        /// Which.
        symbol: Symbol,
    },
    /// There is a word to be read.
    Wake,
}

/// What hot loops tell the loops of lanes, on a queue of its own, which is read even while the other is full.
enum Word<S> {
    /// The symbol takes little time now.
    Calm(Symbol),
    /// The symbol comes back.
    Back(Box<hot::Moving<S>>),
}

/// Why a plant ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum PlantFault {
    /// The bus cannot be read any more.
    #[error("the ticks cannot be read: {0}")]
    Log(#[from] LogError),
    /// A thread ended by a panic: a broken invariant.
    #[error("a thread of the plant ended by a panic: {0}")]
    Panic(String),
}

/// Running readers and loops. Stops when it is dropped.
pub struct Plant {
    stop: Arc<AtomicBool>,
    readers: Vec<JoinHandle<Result<(), LogError>>>,
    loops: Vec<JoinHandle<()>>,
    stats: Arc<stats::Shared>,
}

impl Plant {
    /// Starts reading each lane at its offset in `from` (lane by lane; the end of the list reads from the start).
    ///
    /// # Errors
    /// [`LogError::Config`], [`LogError::Io`] when a thread cannot be started.
    pub fn start<H: Handler>(
        bus: &Arc<dyn Bus>,
        config: &PlantConfig,
        from: &[u64],
        mut handler: impl FnMut(u32) -> H,
    ) -> Result<Plant, LogError> {
        let lanes = bus.lanes();
        config.check(lanes)?;
        let stop = Arc::new(AtomicBool::new(false));
        // The loops of lanes, and those for hot symbols.
        let homes = config.loops.min(lanes) as usize;
        let count = homes + config.hot.map_or(0, |hot| hot.loops as usize);
        let stats = Arc::new(stats::Shared::new(lanes, homes, count));
        // A quarter is kept for what loops send each other: a full queue must not keep a symbol from moving.
        let capacity = config.queue.next_power_of_two();
        // Each symbol that is away can send two words at once.
        let words = (config.hot.map_or(1, |hot| hot.most as usize) * 4).next_power_of_two();
        let (inputs, inputs_of): (Vec<_>, Vec<_>) =
            (0..count).map(|_| ring::channel(capacity, capacity / 4)).unzip();
        let (word_to, words_of): (Vec<_>, Vec<_>) = (0..count).map(|_| ring::channel(words, 0)).unzip();
        let mut plant =
            Plant { stop: stop.clone(), readers: Vec::new(), loops: Vec::new(), stats: stats.clone() };
        for (number, (input, words)) in inputs_of.into_iter().zip(words_of).enumerate() {
            let queues =
                event_loop::Queues { input, words, inputs: inputs.clone(), word_to: word_to.clone() };
            let place = event_loop::Place { number, homes };
            let work =
                event_loop::EventLoop::new(handler(number as u32), config, place, queues, stats.clone());
            let thread = std::thread::Builder::new().name(format!("tick-loop-{number}"));
            let started = thread.spawn(move || work.run());
            plant.loops.push(started.map_err(LogError::io("starting a thread", "tick-loop".as_ref()))?);
        }
        for number in 0..config.readers.min(lanes) {
            let mine = (0..lanes).filter(|lane| lane % config.readers.min(lanes) == number);
            let mine = mine
                .map(|lane| reader::Lane::new(lane, from.get(lane as usize).copied().unwrap_or(0)))
                .collect();
            let reader = reader::Reader {
                bus: bus.clone(),
                max: config.read,
                lanes: mine,
                loops: inputs[..homes].to_vec(),
                stop: stop.clone(),
                stats: stats.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("tick-reader-{number}"));
            let started = thread.spawn(move || reader.run());
            plant.readers.push(started.map_err(LogError::io("starting a thread", "tick-reader".as_ref()))?);
        }
        Ok(plant)
    }

    /// Figures since the start; moving ones are those of now.
    pub fn stats(&self) -> PlantStats {
        self.stats.read()
    }

    /// For each lane the offset behind the last tick that its loop has taken.
    pub fn lanes(&self) -> Vec<u64> {
        self.stats.lanes()
    }

    /// Whether all its threads run. One that ended did so by a fault, which [`Plant::stop`] tells.
    pub fn is_running(&self) -> bool {
        !self.loops.iter().any(JoinHandle::is_finished) && !self.readers.iter().any(JoinHandle::is_finished)
    }

    /// Waits until every lane has been handled up to these offsets, or the time is over; says whether it has.
    pub fn wait_handled(&self, offsets: &[u64], timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            if self.stats.handled(offsets) {
                return true;
            }
            if Instant::now() >= deadline || self.loops.iter().any(JoinHandle::is_finished) {
                return self.stats.handled(offsets);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Stops reading, handles what was read, and gives each symbol's state to its handler.
    ///
    /// # Errors
    /// [`PlantFault`]: what ended a thread before.
    pub fn stop(mut self) -> Result<(), PlantFault> {
        self.end()
    }

    fn end(&mut self) -> Result<(), PlantFault> {
        self.stop.store(true, Ordering::Release);
        let mut result = Ok(());
        for reader in self.readers.drain(..) {
            match reader.join() {
                Ok(Ok(())) => {}
                Ok(Err(fault)) => result = result.and(Err(PlantFault::Log(fault))),
                Err(panic) => result = result.and(Err(PlantFault::Panic(text(&*panic)))),
            }
        }
        self.stats.readers_are_gone();
        for work in self.loops.drain(..) {
            if let Err(panic) = work.join() {
                result = result.and(Err(PlantFault::Panic(text(&*panic))));
            }
        }
        result
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        if let Err(fault) = self.end() {
            tracing::error!(%fault, "the tick plant");
        }
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests;
