//! The exchange's own trades, from its topic of them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hoga_core::codec::{DecodeError, decode_event};
use hoga_core::event::{Event, EventRecord};
use hoga_core::folds::candle::Tick;
use hoga_core::ids::{MarketId, Timestamp};
use hoga_log::LogError;
use hoga_log::event_log::{EventLog, StoredMessage};

use super::{Flow, Source, SourceStatus};
use crate::gateway::SourceTrade;
use crate::symbol::Symbol;

/// The topic of the exchange's trades: events `Trade`, keyed by market, so that a market is in one partition.
pub const TRADE_COMPLETED: &str = "trade.completed";

/// Where reading begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest trade that is still there.
    Oldest,
    /// At the first trade that comes after now.
    End,
    /// At these offsets, one for each partition.
    Offsets(Vec<u64>),
}

/// What became of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletedStatus {
    /// Trades given.
    pub trades: u64,
    /// Trades of markets without a symbol: passed over.
    pub unknown: u64,
    /// Messages that are no trades, or cannot be read: passed over.
    pub broken: u64,
    /// Messages that retention removed before they were read.
    pub removed: u64,
    /// Reads that failed; they are tried again with the next call.
    pub failed: u64,
    /// The last thing that went wrong, with topic, partition and offset.
    pub fault: Option<String>,
}

/// Finds the symbol of a market; `None` for a market that is not wanted.
pub type SymbolOf = Box<dyn FnMut(MarketId) -> Option<Symbol> + Send>;

/// Reads the exchange's trades from the log, every partition in turn. Their ids rise without holes in each market. It never ends, and holds
/// back no retention: whoever must not miss any takes care that a group is registered.
pub struct Completed {
    log: Arc<dyn EventLog>,
    topic: String,
    /// The next offset of each partition.
    next: Vec<u64>,
    /// Which partition is asked first with the next call.
    turn: usize,
    symbol_of: SymbolOf,
    messages: Vec<StoredMessage>,
    status: CompletedStatus,
}

impl Completed {
    /// Begins to read a topic such as [`TRADE_COMPLETED`].
    ///
    /// # Errors
    /// [`LogError::NoTopic`] when it is not there, [`LogError::Config`] for offsets of another number of partitions, and what the log says.
    pub fn open(
        log: Arc<dyn EventLog>,
        topic: &str,
        start: Start,
        symbol_of: SymbolOf,
    ) -> Result<Completed, LogError> {
        let spec = log
            .topics()
            .into_iter()
            .find(|spec| spec.name == topic)
            .ok_or_else(|| LogError::NoTopic { topic: topic.into() })?;
        let of_each = |offset: &dyn Fn(u32) -> Result<u64, LogError>| -> Result<Vec<u64>, LogError> {
            (0..spec.partitions).map(offset).collect()
        };
        let next = match start {
            Start::Oldest => of_each(&|partition| log.start_offset(topic, partition))?,
            Start::End => of_each(&|partition| log.end_offset(topic, partition))?,
            Start::Offsets(offsets) if offsets.len() == spec.partitions as usize => offsets,
            Start::Offsets(offsets) => {
                let (given, has) = (offsets.len(), spec.partitions);
                let text =
                    format!("{given} offsets were given for topic {topic}, which has {has} partitions");
                return Err(LogError::Config(text));
            }
        };
        Ok(Completed {
            log,
            topic: topic.into(),
            next,
            turn: 0,
            symbol_of,
            messages: Vec::new(),
            status: CompletedStatus::default(),
        })
    }

    /// The next offset of each partition: with these as [`Start::Offsets`] another goes on where this one is.
    pub fn offsets(&self) -> &[u64] {
        &self.next
    }

    /// What became of messages so far.
    pub fn status(&self) -> &CompletedStatus {
        &self.status
    }

    fn read(&mut self, partition: usize, most: usize, out: &mut Vec<SourceTrade>) -> Result<(), LogError> {
        let number = u32::try_from(partition).expect("a topic has at most 1024 partitions");
        self.messages.clear();
        let from = self.next[partition];
        let next = self.log.read(&self.topic, number, from, most, &mut self.messages)?;
        self.next[partition] = next;
        self.status.removed += self.messages.first().map_or(next, |first| first.offset).saturating_sub(from);
        let received = now();
        for message in self.messages.drain(..) {
            match trade(&message) {
                Ok((market, tick)) => match (self.symbol_of)(market) {
                    Some(symbol) => {
                        out.push(SourceTrade { symbol, received, tick });
                        self.status.trades += 1;
                    }
                    None => self.status.unknown += 1,
                },
                Err(error) => {
                    self.status.broken += 1;
                    self.status.fault =
                        Some(format!("{}/{number} offset {}: {error}", self.topic, message.offset));
                }
            }
        }
        Ok(())
    }
}

impl Source for Completed {
    fn status(&self) -> SourceStatus {
        let status = Completed::status(self);
        SourceStatus {
            broken: status.broken,
            trades: status.trades,
            fault: status.fault.clone(),
            ..SourceStatus::default()
        }
    }

    fn poll(&mut self, _: Duration, most: usize, out: &mut Vec<SourceTrade>) -> Flow {
        let (partitions, end) = (self.next.len(), out.len().saturating_add(most));
        for step in 0..partitions {
            if out.len() >= end {
                break;
            }
            let partition = (self.turn + step) % partitions;
            if let Err(error) = self.read(partition, end - out.len(), out) {
                self.status.failed += 1;
                self.status.fault = Some(format!("{}/{partition}: {error}", self.topic));
            }
        }
        self.turn = (self.turn + 1) % partitions.max(1);
        Flow::Open
    }
}

/// Why a message is no trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum TradeError {
    #[error("the message is empty. Is the topic another one?")]
    Empty,
    #[error("{0}")]
    Decode(#[from] DecodeError),
    #[error("the event is no trade. Is the topic another one?")]
    Other,
}

fn trade(message: &StoredMessage) -> Result<(MarketId, Tick), TradeError> {
    let bytes = message.value.as_deref().ok_or(TradeError::Empty)?;
    match decode_event(bytes)?.1 {
        EventRecord { time, event: Event::Trade(trade), .. } => Ok((trade.market, Tick::of(&trade, time))),
        _ => Err(TradeError::Other),
    }
}

/// The time now.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoga_core::codec::encode_event;
    use hoga_core::event::Trade;
    use hoga_core::ids::{AccountId, OrderId, Seq, TradeId};
    use hoga_core::money::{Amount, Price, Qty};
    use hoga_core::order::Side;
    use hoga_log::event_log::{MemoryLog, Message, TopicSpec};

    fn record(market: u16, id: u64) -> EventRecord {
        let event = Event::Trade(Trade {
            market: MarketId(market),
            id: TradeId(id),
            price: Price(100 + id as i64),
            qty: Qty(7),
            quote: Amount(9),
            buy_order: OrderId(1),
            sell_order: OrderId(2),
            buyer: AccountId(1),
            seller: AccountId(2),
            taker_side: Side::Sell,
            buyer_fee: Amount(0),
            seller_fee: Amount(0),
        });
        EventRecord { seq: Seq(id), index: 0, time: Timestamp(1_700_000_000_000_000 + id as i64), event }
    }

    fn append(log: &dyn EventLog, market: u16, event: &EventRecord) {
        let mut bytes = Vec::new();
        encode_event(event, event.seq.0, &mut bytes);
        let key = market.to_le_bytes();
        log.append(TRADE_COMPLETED, &[Message { key: &key, value: Some(&bytes), time: event.time }]).unwrap();
    }

    fn new_log() -> Arc<dyn EventLog> {
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        log.create_topic(&TopicSpec::delete(TRADE_COMPLETED, 3, u64::MAX)).unwrap();
        log
    }

    fn open(log: &Arc<dyn EventLog>, start: Start) -> Completed {
        let symbol_of =
            |market: MarketId| (market.0 < 5).then(|| Symbol::parse(&format!("M{market}")).unwrap());
        Completed::open(log.clone(), TRADE_COMPLETED, start, Box::new(symbol_of)).unwrap()
    }

    fn poll(source: &mut Completed, most: usize) -> Vec<SourceTrade> {
        let mut out = Vec::new();
        assert_eq!(source.poll(Duration::ZERO, most, &mut out), Flow::Open);
        assert!(out.len() <= most);
        out
    }

    #[test]
    fn every_trade_comes_once_and_a_market_in_order() {
        let log = new_log();
        for id in 1..=20 {
            for market in 0..6 {
                append(&*log, market, &record(market, id));
            }
        }
        let mut source = open(&log, Start::Oldest);
        let (mut found, mut empty) = (Vec::new(), 0);
        while empty < 3 {
            let more = poll(&mut source, 7);
            empty = if more.is_empty() { empty + 1 } else { 0 };
            found.extend(more);
        }
        for market in 0..5 {
            let symbol = Symbol::parse(&format!("M{market}")).unwrap();
            let of_it: Vec<_> = found.iter().filter(|trade| trade.symbol == symbol).collect();
            assert!(of_it.iter().map(|trade| trade.tick.id.0).eq(1..=20), "{of_it:?}");
            let record = record(market, 20);
            let Event::Trade(trade) = record.event else { unreachable!() };
            assert_eq!(of_it[19].tick, Tick::of(&trade, record.time));
            assert!(of_it[19].received.0 > record.time.0);
        }
        let status = source.status();
        assert_eq!((status.trades, status.unknown, status.broken, status.removed), (100, 20, 0, 0));
        // Another one goes on where this one is.
        append(&*log, 2, &record(2, 21));
        let mut next = open(&log, Start::Offsets(source.offsets().to_vec()));
        let ids = |source: &mut Completed| -> Vec<u64> {
            poll(source, 10).iter().map(|trade| trade.tick.id.0).collect()
        };
        assert_eq!((ids(&mut next), ids(&mut source)), (vec![21], vec![21]));
    }

    #[test]
    fn from_the_end_only_what_comes_is_read_and_what_is_no_trade_is_told() {
        let log = new_log();
        append(&*log, 1, &record(1, 1));
        let mut source = open(&log, Start::End);
        assert_eq!(poll(&mut source, 10), []);
        let other = EventRecord { event: Event::AccountCreated { account: AccountId(1) }, ..record(1, 1) };
        append(&*log, 1, &other);
        let key = 1_u16.to_le_bytes();
        for value in [None, Some(&b"damaged"[..])] {
            log.append(TRADE_COMPLETED, &[Message { key: &key, value, time: Timestamp(1) }]).unwrap();
        }
        append(&*log, 1, &record(1, 2));
        let ids: Vec<u64> = poll(&mut source, 10).iter().map(|trade| trade.tick.id.0).collect();
        assert_eq!((ids, source.status().broken), (vec![2], 3));
        let fault = source.status().fault.clone().unwrap();
        assert!(fault.starts_with("trade.completed/") && fault.contains("offset 3"), "{fault}");
    }

    #[test]
    fn a_topic_that_is_not_there_and_other_offsets_are_refused() {
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        let fault = |log: &Arc<dyn EventLog>, start| {
            Completed::open(log.clone(), TRADE_COMPLETED, start, Box::new(|_| None)).err().unwrap()
        };
        assert_eq!(fault(&log, Start::End).code(), "log-no-topic");
        assert_eq!(fault(&new_log(), Start::Offsets(vec![0, 0])).code(), "log-config");
    }
}
