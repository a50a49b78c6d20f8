//! The gateway: trades of outside sources get their numbers and go into the spool.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoga_core::folds::candle::Tick;
use hoga_core::ids::{Timestamp, TradeId};
use hoga_log::LogError;
use hoga_log::event_log::{EventLog, Message, TopicSpec, partition_for};
use rustc_hash::FxHashMap;

use crate::symbol::Symbol;
use crate::tick::FeedTick;

/// How a gateway works.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The topic of ticks (`market.ticks`).
    pub topic: String,
    /// Its lanes. Fixed once the topic exists.
    pub lanes: u32,
    /// What the spool keeps in bytes, as far as every registered group has read it.
    pub retention: u64,
    /// Ticks that may wait for the slowest registered group of the spool. With as many nothing more is taken.
    pub most_waiting: u64,
    /// Where the numbers are kept between two starts.
    pub numbers: PathBuf,
    /// Whether trade ids of a symbol rise at the source: then a trade that is not above the last was sent again, and is dropped.
    pub rising_ids: bool,
    /// How often the numbers are saved (10 s).
    pub save_every: Duration,
}

impl GatewayConfig {
    /// Defaults, with the numbers in this file.
    pub fn new(lanes: u32, numbers: &Path) -> GatewayConfig {
        GatewayConfig {
            topic: "market.ticks".into(),
            lanes,
            retention: 1 << 30,
            most_waiting: 50_000_000,
            numbers: numbers.into(),
            rising_ids: true,
            save_every: Duration::from_secs(10),
        }
    }
}

/// A trade as a source gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceTrade {
    /// Of which symbol.
    pub symbol: Symbol,
    /// When it was received.
    pub received: Timestamp,
    /// The trade.
    pub tick: Tick,
}

/// What became of trades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayStats {
    /// Ticks in the spool since the start.
    pub ticks: u64,
    /// Trades that the source had sent before.
    pub repeated: u64,
    /// Calls that took nothing because the spool was full.
    pub full: u64,
}

/// Whether trades were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// All of them.
    All,
    /// None: so many ticks wait for the slowest reader of the spool. No number was given, so nothing is missing: a source that can wait tries
    /// again, one that cannot counts them.
    Full {
        /// Ticks that wait.
        waiting: u64,
    },
}

/// The last of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    seq: u64,
    id: TradeId,
}

/// Numbers ticks and appends them to the spool.
///
/// **Law:** the ticks of a symbol and epoch in the spool have the numbers 1, 2, 3, … in the order in which their trades were given, across any
/// number of starts; and with rising ids each trade is there once. After a crash the spool itself says what the last numbers are. When
/// it cannot (its beginning is gone, and what was saved does not reach to what is left), the epoch grows.
pub struct Gateway {
    log: Arc<dyn EventLog>,
    config: GatewayConfig,
    epoch: u32,
    symbols: FxHashMap<Symbol, Last>,
    /// Messages of each lane.
    places: Vec<u64>,
    stats: GatewayStats,
    saved: Instant,
    looked: Option<Instant>,
    bytes: Vec<u8>,
}

/// How often it is looked how many ticks wait.
const LOOK: Duration = Duration::from_millis(100);

/// What was saved.
#[derive(Debug, Default, PartialEq, Eq)]
struct Numbers {
    epoch: u32,
    places: Vec<u64>,
    symbols: Vec<(Symbol, Last)>,
}

impl Gateway {
    /// Makes the topic if need be and finds the last numbers.
    ///
    /// # Errors
    /// [`LogError`]: of the log, [`LogError::Io`] when the numbers cannot be saved, [`LogError::Config`] when the topic holds something else.
    pub fn open(log: Arc<dyn EventLog>, config: GatewayConfig) -> Result<Gateway, LogError> {
        log.create_topic(&TopicSpec::delete(&config.topic, config.lanes, config.retention))?;
        let mut gateway = Gateway {
            log,
            epoch: 1,
            symbols: FxHashMap::default(),
            places: vec![0; config.lanes as usize],
            stats: GatewayStats::default(),
            saved: Instant::now(),
            looked: None,
            bytes: Vec::new(),
            config,
        };
        gateway.recover()?;
        gateway.save()?;
        Ok(gateway)
    }

    fn recover(&mut self) -> Result<(), LogError> {
        let saved = read_numbers(&self.config.numbers).unwrap_or_default();
        let lanes = self.places.len();
        let known = saved.places.len() == lanes;
        if known {
            (self.epoch, self.places) = (saved.epoch.max(1), saved.places);
            self.symbols = saved.symbols.into_iter().collect();
        }
        let mut lost = false;
        let mut highest = self.epoch;
        for lane in 0..self.config.lanes {
            let start = self.log.start_offset(&self.config.topic, lane)?;
            let end = self.log.end_offset(&self.config.topic, lane)?;
            let place = &mut self.places[lane as usize];
            // What lies between is gone, or the spool is another one.
            lost |= *place < start || *place > end;
            let mut next = if lost { start } else { *place };
            *place = end;
            let mut found = Vec::new();
            while next < end {
                found.clear();
                next = self.log.read(&self.config.topic, lane, next, 10_000, &mut found)?;
                for message in &found {
                    let bytes = message.value.as_deref().unwrap_or_default();
                    let tick = FeedTick::decode(bytes).map_err(|error| {
                        LogError::Config(format!(
                            "{}/{lane} offset {}: {error}. The topic holds something else than ticks: name another folder or topic",
                            self.config.topic, message.offset
                        ))
                    })?;
                    if tick.epoch > highest {
                        highest = tick.epoch;
                        self.symbols.clear();
                    }
                    if tick.epoch == highest {
                        self.symbols.insert(tick.symbol, Last { seq: tick.seq, id: tick.tick.id });
                    }
                }
            }
        }
        self.epoch = highest;
        if lost {
            self.epoch += 1;
            // What is known of trade ids still drops what is sent again.
            self.symbols.values_mut().for_each(|last| last.seq = 0);
            tracing::warn!(
                epoch = self.epoch,
                "the last numbers are not known any more: a new numbering begins"
            );
        }
        Ok(())
    }

    /// Numbers trades and appends them, all or none.
    ///
    /// # Errors
    /// [`LogError`] of the append. When it may pass, the same trades may be given again. Otherwise the gateway has to be opened anew.
    pub fn take(&mut self, trades: &[SourceTrade]) -> Result<Taken, LogError> {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let waiting = self.waiting();
            if waiting >= self.config.most_waiting {
                self.stats.full += 1;
                return Ok(Taken::Full { waiting });
            }
            self.looked = Some(Instant::now());
        }
        self.bytes.clear();
        let (mut ticks, mut ends, mut repeated) =
            (Vec::with_capacity(trades.len()), Vec::with_capacity(trades.len()), 0);
        let mut places = self.places.clone();
        let mut latest: FxHashMap<Symbol, Last> = FxHashMap::default();
        for trade in trades {
            let last = latest.get(&trade.symbol).or_else(|| self.symbols.get(&trade.symbol)).copied();
            if self.config.rising_ids && last.is_some_and(|last| trade.tick.id <= last.id) {
                repeated += 1;
                continue;
            }
            let seq = last.map_or(0, |last| last.seq) + 1;
            latest.insert(trade.symbol, Last { seq, id: trade.tick.id });
            let place = &mut places[partition_for(trade.symbol.as_bytes(), self.config.lanes) as usize];
            *place += 1;
            let tick = FeedTick {
                symbol: trade.symbol,
                epoch: self.epoch,
                seq,
                received: trade.received,
                tick: trade.tick,
            };
            tick.encode(*place, &mut self.bytes);
            ends.push(self.bytes.len());
            ticks.push(trade);
        }
        let mut from = 0;
        let messages: Vec<Message<'_>> = ticks
            .iter()
            .zip(&ends)
            .map(|(trade, end)| {
                let value = &self.bytes[from..*end];
                from = *end;
                Message { key: trade.symbol.as_bytes(), value: Some(value), time: trade.tick.time }
            })
            .collect();
        self.log.append(&self.config.topic, &messages)?;
        self.stats.ticks += messages.len() as u64;
        self.stats.repeated += repeated;
        self.places = places;
        self.symbols.extend(latest);
        if self.saved.elapsed() >= self.config.save_every {
            self.save()?;
        }
        Ok(Taken::All)
    }

    /// Ticks that wait for the slowest group of the spool; 0 when nobody is registered.
    fn waiting(&self) -> u64 {
        let mut of_group: FxHashMap<String, u64> = FxHashMap::default();
        for at in self.log.groups().into_iter().filter(|at| at.topic == self.config.topic) {
            *of_group.entry(at.group).or_default() += at.end.saturating_sub(at.offset);
        }
        of_group.into_values().max().unwrap_or(0)
    }

    /// What became of trades.
    pub fn stats(&self) -> GatewayStats {
        self.stats
    }

    /// Epoch and last number of a symbol; `None` when it had no tick.
    pub fn last(&self, symbol: Symbol) -> Option<(u32, u64)> {
        self.symbols.get(&symbol).filter(|last| last.seq > 0).map(|last| (self.epoch, last.seq))
    }

    /// Makes the spool durable and saves the numbers, so that the next start need not read what is there.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn save(&mut self) -> Result<(), LogError> {
        self.log.sync()?;
        let mut text = format!("hoga-numbers 1 {}\n", self.epoch);
        for place in &self.places {
            text.push_str(&format!("lane {place}\n"));
        }
        for (symbol, last) in &self.symbols {
            text.push_str(&format!("symbol {symbol} {} {}\n", last.seq, last.id));
        }
        text.push_str(&format!("end {}\n", self.places.len() + self.symbols.len()));
        let path = &self.config.numbers;
        let new = path.with_extension("new");
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(LogError::io("saving the numbers of ticks", path))?;
        self.saved = Instant::now();
        Ok(())
    }
}

/// Reads what was saved; `None` when there is nothing, or not all of it. Then the spool is read instead.
fn read_numbers(path: &Path) -> Option<Numbers> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let epoch = lines.next()?.strip_prefix("hoga-numbers 1 ")?.parse().ok()?;
    let mut numbers = Numbers { epoch, ..Numbers::default() };
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["lane", place] => numbers.places.push(place.parse().ok()?),
            ["symbol", name, seq, id] => {
                let last = Last { seq: seq.parse().ok()?, id: TradeId(id.parse().ok()?) };
                numbers.symbols.push((Symbol::parse(name).ok()?, last));
            }
            ["end", count] => {
                let all = numbers.places.len() + numbers.symbols.len();
                return (count.parse() == Ok(all)).then_some(numbers);
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoga_core::money::{Amount, Price, Qty};
    use hoga_core::order::Side;
    use hoga_log::event_log::{EmbeddedConfig, EmbeddedLog, MemoryLog, StoredMessage};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name =
                format!("hoga-gateway-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn config(&self, lanes: u32) -> GatewayConfig {
            GatewayConfig::new(lanes, &self.0.join("numbers"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn trade(symbol: &str, id: u64) -> SourceTrade {
        SourceTrade {
            symbol: Symbol::parse(symbol).unwrap(),
            received: Timestamp(id as i64),
            tick: Tick {
                time: Timestamp(id as i64),
                id: TradeId(id),
                price: Price(100),
                qty: Qty(1),
                quote: Amount(1),
                taker_side: Side::Buy,
            },
        }
    }

    fn all(log: &dyn EventLog, lanes: u32) -> BTreeMap<String, Vec<(u32, u64, u64)>> {
        let mut found: BTreeMap<String, Vec<(u32, u64, u64)>> = BTreeMap::new();
        for lane in 0..lanes {
            let mut messages: Vec<StoredMessage> = Vec::new();
            let mut next = 0;
            while next < log.end_offset("market.ticks", lane).unwrap() {
                next = log.read("market.ticks", lane, next, 1000, &mut messages).unwrap();
            }
            for message in messages {
                let bytes = message.value.unwrap();
                assert_eq!(FeedTick::place_of(&bytes), Some(message.offset + 1), "as the relay wants it");
                let tick = FeedTick::decode(&bytes).unwrap();
                assert_eq!(message.key, tick.symbol.as_bytes());
                found.entry(tick.symbol.to_string()).or_default().push((
                    tick.epoch,
                    tick.seq,
                    tick.tick.id.0,
                ));
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
        /// A source that sends some trades again, and a gateway that ends at any point, in order or not.
        #[test]
        fn each_trade_is_there_once_with_the_numbers_in_order(
            steps in proptest::collection::vec((0..4usize, 1..6u64, 0..4u64, 0..12u8), 1..60),
            lanes in 1..4u32,
        ) {
            let (folder, log) = (Folder::new(), Arc::new(MemoryLog::new()));
            let mut gateway = Gateway::open(log.clone(), folder.config(lanes)).unwrap();
            let names = ["A", "B", "C", "D"];
            let mut sent = [0u64; 4];
            for (symbol, count, again, ending) in steps {
                let from = sent[symbol].saturating_sub(again) + 1;
                sent[symbol] += count;
                let trades: Vec<SourceTrade> = (from..=sent[symbol]).map(|id| trade(names[symbol], id * 3)).collect();
                prop_assert_eq!(gateway.take(&trades).unwrap(), Taken::All);
                match ending {
                    0 => gateway.save().unwrap(),
                    // Without a save, or with the file torn or gone: the spool tells.
                    1 => gateway = Gateway::open(log.clone(), folder.config(lanes)).unwrap(),
                    2 => {
                        let path = folder.0.join("numbers");
                        let text = fs::read_to_string(&path).unwrap();
                        fs::write(&path, &text[..text.len() / 2]).unwrap();
                        gateway = Gateway::open(log.clone(), folder.config(lanes)).unwrap();
                    }
                    3 => {
                        fs::remove_file(folder.0.join("numbers")).unwrap();
                        gateway = Gateway::open(log.clone(), folder.config(lanes)).unwrap();
                    }
                    _ => {}
                }
            }
            let found = all(&*log, lanes);
            for (name, sent) in names.iter().zip(sent) {
                let expected: Vec<_> = (1..=sent).map(|seq| (1, seq, seq * 3)).collect();
                prop_assert_eq!(found.get(*name).cloned().unwrap_or_default(), expected);
                prop_assert_eq!(gateway.last(Symbol::parse(name).unwrap()), (sent > 0).then_some((1, sent)));
            }
        }
    }

    #[test]
    fn when_the_last_numbers_are_gone_the_epoch_grows() {
        let folder = Folder::new();
        let config = || EmbeddedConfig { segment_bytes: 64 << 10, ..EmbeddedConfig::default() };
        let spool = || Arc::new(EmbeddedLog::open(folder.0.join("log"), config()).unwrap());
        let small = || GatewayConfig { retention: 128 << 10, ..folder.config(1) };
        let mut gateway = Gateway::open(spool(), small()).unwrap();
        for id in 1..=5000 {
            gateway.take(&[trade("A", id)]).unwrap();
        }
        gateway.log.maintain().unwrap();
        assert!(gateway.log.start_offset("market.ticks", 0).unwrap() > 0);
        drop(gateway);
        // What was saved at the start does not reach to what is left.
        let mut gateway = Gateway::open(spool(), small()).unwrap();
        gateway.take(&[trade("A", 5000), trade("A", 5001), trade("B", 1)]).unwrap();
        assert_eq!(gateway.stats(), GatewayStats { ticks: 2, repeated: 1, full: 0 });
        assert_eq!(gateway.last(Symbol::parse("A").unwrap()), Some((2, 1)));
        gateway.save().unwrap();
        drop(gateway);
        // Saved: it goes on.
        let mut gateway = Gateway::open(spool(), small()).unwrap();
        gateway.take(&[trade("A", 5002)]).unwrap();
        assert_eq!(gateway.last(Symbol::parse("A").unwrap()), Some((2, 2)));
    }

    #[test]
    fn a_full_spool_gives_no_numbers_and_takes_again_when_it_is_read() {
        let (folder, log) = (Folder::new(), Arc::new(MemoryLog::new()));
        let config = GatewayConfig { most_waiting: 100, ..folder.config(2) };
        let mut gateway = Gateway::open(log.clone(), config).unwrap();
        for lane in 0..2 {
            log.commit("relay", "market.ticks", lane, 0).unwrap();
        }
        let mut id = 0;
        let mut take = |gateway: &mut Gateway| {
            id += 1;
            // As if the time between two looks had passed.
            gateway.looked = None;
            let taken = gateway.take(&[trade("A", id), trade("B", id)]).unwrap();
            if taken != Taken::All {
                id -= 1;
            }
            taken
        };
        for _ in 0..50 {
            assert_eq!(take(&mut gateway), Taken::All);
        }
        assert_eq!(take(&mut gateway), Taken::Full { waiting: 100 });
        assert_eq!(take(&mut gateway), Taken::Full { waiting: 100 });
        for lane in 0..2 {
            log.commit("relay", "market.ticks", lane, log.end_offset("market.ticks", lane).unwrap()).unwrap();
        }
        assert_eq!(take(&mut gateway), Taken::All);
        assert_eq!(gateway.stats(), GatewayStats { ticks: 102, repeated: 0, full: 2 });
        let found = all(&*log, 2);
        assert_eq!(found["A"], (1..=51).map(|seq| (1, seq, seq)).collect::<Vec<_>>());
    }

    #[test]
    fn a_topic_of_something_else_is_refused() {
        let (folder, log) = (Folder::new(), Arc::new(MemoryLog::new()));
        drop(Gateway::open(log.clone(), folder.config(1)).unwrap());
        log.append("market.ticks", &[Message { key: b"k", value: Some(b"v"), time: Timestamp(1) }]).unwrap();
        let fault = Gateway::open(log, folder.config(1)).err().unwrap().to_string();
        assert!(fault.contains("market.ticks/0 offset 0") && fault.contains("something else"), "{fault}");
    }
}
