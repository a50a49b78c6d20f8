//! Dead letters: messages that a group could not handle, kept in the topic `<topic>.dlt` with the reason, the place, the count of attempts and
//! the bytes, so that nothing is swallowed and an operator can look, hand them to the group again, or drop them.
//!
//! A log is only appended to: that a letter was replayed or dropped is a further record, its *mark*. A crash between putting a letter and
//! committing the offset behind it puts the letter again; group and place tell that the two are one.
//!
//! **Replay** appends the message to the topic `<group>.retry`, which the group's keyed handlers read like their other topics. It comes after
//! what the group has handled meanwhile: order by key holds among replays and among the rest, not between them. A fold that needs every message
//! in order takes no replays: its remedy is `hoga rebuild`.

use std::collections::BTreeMap;

use hoga_core::ids::Timestamp;

use super::TopicPartition;
use crate::error::LogError;
use crate::event_log::{Cleanup, EventLog, MAX_MESSAGE, Message, StoredMessage, TopicSpec};

/// The first byte of a record: version of the format.
const VERSION: u8 = 1;
const LETTER: u8 = 0;
const REPLAYED: u8 = 1;
const DROPPED: u8 = 2;
/// Bytes of dead letters that a topic keeps.
const KEPT_BYTES: u64 = 256 << 20;
/// The longest reason, in bytes: longer ones are cut.
const MAX_REASON: usize = 4096;

/// A message that a group could not handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The group.
    pub group: String,
    /// Where the message is.
    pub place: TopicPartition,
    /// Its offset there.
    pub offset: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it failed the last time.
    pub reason: String,
    /// The message's time.
    pub time: Timestamp,
    /// When it was given up.
    pub died: Timestamp,
    /// Its key.
    pub key: Vec<u8>,
    /// Its bytes; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// Whether key and value are here: a message that fills a record alone leaves only its place.
    pub kept: bool,
}

/// What was done with a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing yet.
    Open,
    /// It was handed to its group again.
    Replayed,
    /// An operator dropped it.
    Dropped,
}

/// A letter in its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filed {
    /// Its number: its offset in the dead letter topic.
    pub number: u64,
    /// The letter.
    pub letter: Letter,
    /// What was done with it.
    pub fate: Fate,
}

/// The topic of a topic's dead letters.
pub fn dead_letter_topic(topic: &str) -> String {
    format!("{topic}.dlt")
}

/// The topic through which a group gets messages again.
pub fn retry_topic(group: &str) -> String {
    format!("{group}.retry")
}

fn ensure(log: &dyn EventLog, name: &str) -> Result<(), LogError> {
    log.create_topic(&TopicSpec {
        name: name.into(),
        partitions: 1,
        cleanup: Cleanup::Delete { retention_bytes: KEPT_BYTES },
    })
}

/// Makes the topic through which a group gets messages again; a group that takes replays does so before it starts.
///
/// # Errors
/// As [`EventLog::create_topic`].
pub fn make_retry_topic(log: &dyn EventLog, group: &str) -> Result<String, LogError> {
    let topic = retry_topic(group);
    ensure(log, &topic)?;
    Ok(topic)
}

/// Puts a letter; durable when it returns.
///
/// # Errors
/// As [`EventLog::append`] and [`EventLog::sync`].
pub fn put(log: &dyn EventLog, letter: &Letter) -> Result<(), LogError> {
    let topic = dead_letter_topic(&letter.place.topic);
    ensure(log, &topic)?;
    let mut bytes = encode(letter);
    if bytes.len() + letter.group.len() > MAX_MESSAGE {
        // The message alone fills a record: its place still tells where its bytes are.
        let mut short = letter.clone();
        short.reason.push_str(" (its bytes are too long to be kept here as well; they are at its place)");
        (short.key, short.value, short.kept) = (Vec::new(), None, false);
        bytes = encode(&short);
    }
    log.append(&topic, &[Message { key: letter.group.as_bytes(), value: Some(&bytes), time: letter.died }])?;
    log.sync()
}

/// The letters of a topic, oldest first, each once. With `all` also those that are dealt with.
///
/// # Errors
/// What reading can meet; [`LogError::Config`] for a record that a newer version wrote. No letters when there is no such topic.
pub fn list(log: &dyn EventLog, topic: &str, all: bool) -> Result<Vec<Filed>, LogError> {
    let name = dead_letter_topic(topic);
    if !log.topics().iter().any(|spec| spec.name == name) {
        return Ok(Vec::new());
    }
    let (mut letters, mut fates, mut known) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let mut offset = log.start_offset(&name, 0)?;
    let end = log.end_offset(&name, 0)?;
    let mut messages: Vec<StoredMessage> = Vec::new();
    while offset < end {
        messages.clear();
        let next = log.read(&name, 0, offset, 256, &mut messages)?;
        if next <= offset {
            // Over a network what is there may take a moment to arrive.
            log.wait_for(&name, 0, offset, std::time::Duration::from_millis(100))?;
            continue;
        }
        offset = next;
        for message in messages.drain(..) {
            match decode(message.value.as_deref().unwrap_or_default(), topic, message.offset)? {
                Record::Letter(letter) => {
                    let place = (letter.group.clone(), letter.place.clone(), letter.offset);
                    if known.insert(place, ()).is_none() {
                        letters.push((message.offset, *letter));
                    }
                }
                Record::Mark(number, fate) => {
                    fates.insert(number, fate);
                }
            }
        }
    }
    let filed = letters.into_iter().map(|(number, letter)| {
        let fate = fates.get(&number).copied().unwrap_or(Fate::Open);
        Filed { number, letter, fate }
    });
    Ok(filed.filter(|filed| all || filed.fate == Fate::Open).collect())
}

/// A letter by its number.
///
/// # Errors
/// As [`list`]; [`LogError::Config`] when there is none of this number.
pub fn show(log: &dyn EventLog, topic: &str, number: u64) -> Result<Filed, LogError> {
    let found = list(log, topic, true)?.into_iter().find(|filed| filed.number == number);
    found.ok_or_else(|| LogError::Config(format!("topic {topic} has no dead letter {number}")))
}

/// Hands a letter's message to its group again, and marks it as replayed. A crash between the two leaves it open: replayed twice, it is handled
/// twice, as every message may be.
///
/// # Errors
/// As [`show`]; [`LogError::Config`] when the group takes no replays, when it was dealt with before, or when its bytes were too long to keep.
pub fn replay(log: &dyn EventLog, topic: &str, number: u64) -> Result<Filed, LogError> {
    let filed = open_letter(log, topic, number)?;
    let letter = &filed.letter;
    if !letter.kept {
        let (place, offset) = (&letter.place, letter.offset);
        return Err(LogError::Config(format!(
            "dead letter {number} holds no bytes: its message is at {place}, offset {offset}"
        )));
    }
    let retry = retry_topic(&letter.group);
    if !log.topics().iter().any(|spec| spec.name == retry) {
        return Err(LogError::Config(format!(
            "group {} takes no replays: it folds all messages in order. Put right what made it refuse the message, then run `hoga rebuild {}`",
            letter.group, letter.group
        )));
    }
    log.append(&retry, &[Message { key: &letter.key, value: letter.value.as_deref(), time: letter.time }])?;
    log.sync()?;
    mark(log, topic, &filed, REPLAYED)?;
    Ok(Filed { fate: Fate::Replayed, ..filed })
}

/// Marks a letter as dropped. It stays in the topic until retention takes it.
///
/// # Errors
/// As [`show`]; [`LogError::Config`] when it was dealt with before.
pub fn drop_letter(log: &dyn EventLog, topic: &str, number: u64) -> Result<Filed, LogError> {
    let filed = open_letter(log, topic, number)?;
    mark(log, topic, &filed, DROPPED)?;
    Ok(Filed { fate: Fate::Dropped, ..filed })
}

fn open_letter(log: &dyn EventLog, topic: &str, number: u64) -> Result<Filed, LogError> {
    let filed = show(log, topic, number)?;
    match filed.fate {
        Fate::Open => Ok(filed),
        Fate::Replayed | Fate::Dropped => {
            let done = if filed.fate == Fate::Replayed { "replayed" } else { "dropped" };
            Err(LogError::Config(format!("dead letter {number} of topic {topic} was {done} already")))
        }
    }
}

fn mark(log: &dyn EventLog, topic: &str, filed: &Filed, kind: u8) -> Result<(), LogError> {
    let mut bytes = vec![VERSION, kind];
    bytes.extend(filed.number.to_le_bytes());
    let key = filed.letter.group.as_bytes();
    log.append(&dead_letter_topic(topic), &[Message { key, value: Some(&bytes), time: filed.letter.died }])?;
    log.sync()
}

enum Record {
    Letter(Box<Letter>),
    Mark(u64, Fate),
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// Version, kind, partition, offset, attempts, time, time of death, flags (1: there is a value, 2: the bytes are here); then group, topic, reason, key and value, each behind
/// its length in 4 bytes. All numbers little-endian.
fn encode(letter: &Letter) -> Vec<u8> {
    let mut reason = letter.reason.as_str();
    if reason.len() > MAX_REASON {
        let cut = (0..=MAX_REASON).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
        reason = &reason[..cut];
    }
    let mut out = vec![VERSION, LETTER];
    out.extend(letter.place.partition.to_le_bytes());
    out.extend(letter.offset.to_le_bytes());
    out.extend(letter.attempts.to_le_bytes());
    out.extend(letter.time.0.to_le_bytes());
    out.extend(letter.died.0.to_le_bytes());
    out.push(u8::from(letter.value.is_some()) | u8::from(letter.kept) << 1);
    let value = letter.value.as_deref().unwrap_or_default();
    for part in
        [letter.group.as_bytes(), letter.place.topic.as_bytes(), reason.as_bytes(), &letter.key, value]
    {
        put_bytes(&mut out, part);
    }
    out
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

fn decode(bytes: &[u8], topic: &str, offset: u64) -> Result<Record, LogError> {
    decode_record(bytes).ok_or_else(|| {
        LogError::Config(format!(
            "record {offset} of {} is no dead letter of this version: use the build that wrote it, or a newer one",
            dead_letter_topic(topic)
        ))
    })
}

fn decode_record(bytes: &[u8]) -> Option<Record> {
    let mut reader = Reader(bytes);
    let [version, kind] = reader.array()?;
    if version != VERSION {
        return None;
    }
    let fate = match kind {
        LETTER => None,
        REPLAYED => Some(Fate::Replayed),
        DROPPED => Some(Fate::Dropped),
        _ => return None,
    };
    let record = match fate {
        Some(fate) => Record::Mark(u64::from_le_bytes(reader.array()?), fate),
        None => {
            let partition = u32::from_le_bytes(reader.array()?);
            let offset = u64::from_le_bytes(reader.array()?);
            let attempts = u32::from_le_bytes(reader.array()?);
            let time = Timestamp(i64::from_le_bytes(reader.array()?));
            let died = Timestamp(i64::from_le_bytes(reader.array()?));
            let [flags] = reader.array()?;
            let group = reader.text()?;
            let place = TopicPartition { topic: reader.text()?.into(), partition };
            let reason = reader.text()?;
            let key = reader.bytes()?.to_vec();
            let value = reader.bytes()?;
            let (value, kept) = ((flags & 1 != 0).then(|| value.to_vec()), flags & 2 != 0);
            Record::Letter(Box::new(Letter {
                group,
                place,
                offset,
                attempts,
                reason,
                time,
                died,
                key,
                value,
                kept,
            }))
        }
    };
    reader.0.is_empty().then_some(record)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event_log::MemoryLog;

    fn letter(offset: u64) -> Letter {
        Letter {
            group: "g".into(),
            place: TopicPartition { topic: "t".into(), partition: 3 },
            offset,
            attempts: 5,
            reason: "no such market".into(),
            time: Timestamp(7),
            died: Timestamp(9),
            key: b"k".to_vec(),
            value: Some(b"v".to_vec()),
            kept: true,
        }
    }

    #[test]
    fn letters_are_listed_once_and_dealt_with_once() {
        let log = MemoryLog::new();
        assert_eq!(list(&log, "t", true).unwrap(), []);
        for offset in [10, 11, 10, 12] {
            put(&log, &letter(offset)).unwrap();
        }
        let open = |log: &MemoryLog| -> Vec<u64> {
            list(log, "t", false).unwrap().iter().map(|filed| filed.letter.offset).collect()
        };
        assert_eq!(open(&log), [10, 11, 12]);
        assert_eq!(show(&log, "t", 1).unwrap().letter, letter(11));
        assert!(
            replay(&log, "t", 1).unwrap_err().to_string().contains("hoga rebuild"),
            "it takes no replays"
        );
        let retry = make_retry_topic(&log, "g").unwrap();
        assert_eq!(replay(&log, "t", 1).unwrap().fate, Fate::Replayed);
        assert_eq!(drop_letter(&log, "t", 3).unwrap().fate, Fate::Dropped);
        assert_eq!(open(&log), [10]);
        assert_eq!(list(&log, "t", true).unwrap().len(), 3);
        assert!(
            replay(&log, "t", 1).is_err()
                && drop_letter(&log, "t", 1).is_err()
                && show(&log, "t", 77).is_err()
        );
        let mut again = Vec::new();
        log.read(&retry, 0, 0, 10, &mut again).unwrap();
        assert_eq!(
            (again.len(), &again[0].key[..], again[0].value.as_deref(), again[0].time.0),
            (1, &b"k"[..], Some(&b"v"[..]), 7)
        );
    }

    #[test]
    fn a_message_as_long_as_a_record_leaves_its_place() {
        let log = MemoryLog::new();
        put(&log, &Letter { value: Some(vec![0; MAX_MESSAGE]), ..letter(1) }).unwrap();
        let filed = list(&log, "t", false).unwrap().remove(0).letter;
        assert_eq!((filed.offset, filed.value, filed.kept), (1, None, false));
        make_retry_topic(&log, "g").unwrap();
        assert!(replay(&log, "t", 0).is_err(), "there is nothing to replay");
    }

    proptest! {
        #[test]
        fn a_letter_comes_back_as_it_was_and_no_bytes_break_the_reader(
            (group, topic, reason) in ("[a-z]{1,9}", "[a-z]{1,9}", ".{0,40}"),
            numbers in any::<(u32, u64, u32, i64, i64)>(),
            key in prop::collection::vec(any::<u8>(), 0..20),
            value in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
            cut in 0usize..200,
        ) {
            let (partition, offset, attempts, time, died) = numbers;
            let place = TopicPartition { topic: topic.into(), partition };
            let (time, died) = (Timestamp(time), Timestamp(died));
            let letter = Letter { group, place, offset, attempts, reason, time, died, key, value, kept: true };
            let bytes = encode(&letter);
            match decode_record(&bytes) {
                Some(Record::Letter(back)) => prop_assert_eq!(*back, letter),
                _ => prop_assert!(false, "not a letter"),
            }
            if cut < bytes.len() {
                prop_assert!(decode_record(&bytes[..cut]).is_none());
            }
        }
    }
}
