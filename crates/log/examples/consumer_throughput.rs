//! How many messages a second the consumer runtime carries, over a log in memory and with handlers that do next to nothing:
//! `cargo run --release -p hoga-log --example consumer_throughput`.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hoga_core::ids::Timestamp;
use hoga_log::LogError;
use hoga_log::consumer::{
    BatchHandler, BatchOptions, HandlerError, KeyedError, KeyedHandler, KeyedOptions, LogSource, Observer,
    Offer, Signal, Start, TopicPartition, run_batches, run_keyed,
};
use hoga_log::event_log::{EventLog, MemoryLog, Message, StoredMessage, TopicSpec};

const MESSAGES: u64 = 2_000_000;

struct Count<'a> {
    signal: &'a Signal,
    handled: u64,
    positions: Vec<(TopicPartition, u64)>,
}

impl BatchHandler for Count<'_> {
    fn assigned(&mut self, places: &[TopicPartition]) -> Result<Vec<Start>, HandlerError> {
        self.positions = places.iter().map(|place| (place.clone(), 0)).collect();
        Ok(vec![Start::Committed; places.len()])
    }

    fn revoked(&mut self, _: &[TopicPartition]) {}

    fn handle(&mut self, offers: &mut [Offer]) -> Result<(), HandlerError> {
        for offer in offers {
            offer.taken = offer.run.messages.len();
            self.handled += offer.taken as u64;
            let position = self.positions.iter_mut().find(|(place, _)| *place == offer.run.place);
            position.expect("it is assigned").1 = offer.run.next;
        }
        if self.handled == MESSAGES {
            self.signal.stop();
        }
        Ok(())
    }

    fn safe(&mut self, _: bool) -> Result<Vec<(TopicPartition, u64)>, HandlerError> {
        Ok(self.positions.clone())
    }
}

struct CountEach {
    signal: Arc<Signal>,
    handled: AtomicU64,
}

impl KeyedHandler for CountEach {
    fn handle(&self, _: &TopicPartition, _: &StoredMessage) -> Result<(), KeyedError> {
        if self.handled.fetch_add(1, Ordering::Relaxed) + 1 == MESSAGES {
            self.signal.stop();
        }
        Ok(())
    }
}

fn say(what: &str, took: Duration) {
    let rate = MESSAGES as f64 / took.as_secs_f64();
    let text = format!("{what}: {rate:.0} messages/s ({MESSAGES} in {took:.2?})\n");
    std::io::stdout().write_all(text.as_bytes()).expect("the terminal takes text");
}

fn main() -> Result<(), LogError> {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    log.create_topic(&TopicSpec::delete("t", 6, u64::MAX))?;
    for first in (0..MESSAGES).step_by(1000) {
        let keys: Vec<[u8; 8]> = (first..first + 1000).map(|n| (n % 10_000).to_le_bytes()).collect();
        let time = Timestamp(0);
        let messages: Vec<Message<'_>> =
            keys.iter().map(|key| Message { key, value: Some(&[7; 200]), time }).collect();
        log.append("t", &messages)?;
    }
    let signal = Signal::new();
    let mut handler = Count { signal: &signal, handled: 0, positions: Vec::new() };
    let source = Box::new(LogSource::new(log.clone(), "batches", &["t"])?);
    let begun = Instant::now();
    run_batches(source, &mut handler, &BatchOptions::default(), &signal, &()).expect("it ends in order");
    say("batches", begun.elapsed());
    for workers in [1, 4] {
        let signal = Arc::new(Signal::new());
        let handler: Arc<dyn KeyedHandler> =
            Arc::new(CountEach { signal: signal.clone(), handled: AtomicU64::new(0) });
        let observer: Arc<dyn Observer> = Arc::new(());
        let options = KeyedOptions { workers, ..KeyedOptions::default() };
        let source = Box::new(LogSource::new(log.clone(), &format!("keyed-{workers}"), &["t"])?);
        let begun = Instant::now();
        run_keyed(source, &handler, &options, &signal, &observer).expect("it ends in order");
        say(&format!("keyed, {workers} workers"), begun.elapsed());
    }
    Ok(())
}
