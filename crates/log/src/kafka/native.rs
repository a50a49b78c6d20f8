//! The part of librdkafka that its Rust face lacks, behind safe types: reading one partition from an offset without a group, in batches,
//! with the end of the partition told; sending with a header without looking the topic up again; and the offsets of groups
//! without being a member.
//!
//! **Safety.** All pointers come from librdkafka and are not null (checked where they are made). Each object holds the client that it
//! belongs to, so it is destroyed before the client is. The library may be called from all threads; what may not be used by two at once
//! (a queue that is read) is owned by one value here.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hoga_core::ids::Timestamp;
use rdkafka::bindings as sys;
use rdkafka::client::ClientContext as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::types::RDKafkaErrorCode;

use super::config::KafkaConfig;
use super::context::{Producing, Quiet, log_line};
use super::reach::Reach;
use crate::event_log::{Message, StoredMessage};

/// The header that carries a message's time in microseconds. Kafka's own time of the message is when it was sent, and must be: brokers
/// forget a producer whose newest message is a day old by that time, when they start and every ten minutes, and would then take a batch
/// twice that is sent again. Recorded and simulated markets have old times.
const TIME: &CStr = c"t";
/// Messages taken from the client at a time.
const BATCH: usize = 128;

pub(super) fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// A client without a group: it reads partitions and asks.
pub(super) struct Handle {
    pub(super) consumer: BaseConsumer<Quiet>,
    /// Partitions that are being read through it: each can be read once.
    reading: Mutex<BTreeSet<(Arc<str>, u32)>>,
    reach: Mutex<Reach>,
}

impl Handle {
    pub(super) fn new(consumer: BaseConsumer<Quiet>, config: &KafkaConfig) -> Handle {
        Handle { consumer, reading: Mutex::default(), reach: Mutex::new(Reach::new(config)) }
    }

    /// Takes what the client has to say, so that it does not pile up, and sees that it keeps its brokers.
    pub(super) fn serve(&self) {
        while self.consumer.poll(Duration::ZERO).is_some() {}
        self.reach.lock().unwrap_or_else(PoisonError::into_inner).keep(self.native());
    }

    pub(super) fn native(&self) -> *mut sys::rd_kafka_t {
        self.consumer.client().native_ptr()
    }

    fn reserve(&self, topic: &Arc<str>, partition: u32) -> bool {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).insert((topic.clone(), partition))
    }

    fn release(&self, topic: &Arc<str>, partition: u32) {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).remove(&(topic.clone(), partition));
    }
}

/// A topic as a client of it knows it.
struct RawTopic(*mut sys::rd_kafka_topic_t);

impl RawTopic {
    fn new(client: *mut sys::rd_kafka_t, name: &str) -> Option<RawTopic> {
        let name = CString::new(name).ok()?;
        // SAFETY: the client lives (the caller holds it), the name is terminated, and a null configuration means the client's own.
        let raw = unsafe { sys::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) };
        (!raw.is_null()).then_some(RawTopic(raw))
    }
}

impl Drop for RawTopic {
    fn drop(&mut self) {
        // SAFETY: made by rd_kafka_topic_new and destroyed once.
        unsafe { sys::rd_kafka_topic_destroy(self.0) };
    }
}

// SAFETY: the library is thread-safe; a topic handle is reference-counted inside.
unsafe impl Send for RawTopic {}
unsafe impl Sync for RawTopic {}

struct RawQueue(*mut sys::rd_kafka_queue_t);

impl RawQueue {
    fn new(client: *mut sys::rd_kafka_t) -> RawQueue {
        // SAFETY: the client lives; the library aborts when it has no memory.
        RawQueue(unsafe { sys::rd_kafka_queue_new(client) })
    }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        // SAFETY: made by rd_kafka_queue_new and destroyed once.
        unsafe { sys::rd_kafka_queue_destroy(self.0) };
    }
}

// SAFETY: as for topics.
unsafe impl Send for RawQueue {}

/// Where messages of one topic are sent from.
pub(super) struct Outlet {
    topic: RawTopic,
    // After the topic, which is to go first.
    producer: Arc<BaseProducer<Producing>>,
}

impl Outlet {
    pub(super) fn new(producer: &Arc<BaseProducer<Producing>>, topic: &str) -> Option<Outlet> {
        let topic = RawTopic::new(producer.client().native_ptr(), topic)?;
        Some(Outlet { topic, producer: producer.clone() })
    }

    /// Puts a message into the queue. It is copied.
    pub(super) fn send(
        &self,
        partition: u32,
        message: &Message<'_>,
        tag: usize,
    ) -> Result<(), RDKafkaErrorCode> {
        let time = message.time.0.to_le_bytes();
        let value = message.value.map_or(ptr::null(), <[u8]>::as_ptr);
        // SAFETY: client and topic live as long as self; pointers and lengths are of slices that live over the call, which copies them
        // (MSG_F_COPY; headers are copied always). Types and order of the arguments are what each VTYPE asks for.
        let code = unsafe {
            sys::rd_kafka_producev(
                self.producer.client().native_ptr(),
                sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_RKT,
                self.topic.0,
                sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION,
                partition as i32,
                sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS,
                sys::RD_KAFKA_MSG_F_COPY,
                sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE,
                value.cast::<c_void>(),
                message.value.map_or(0, <[u8]>::len),
                sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY,
                message.key.as_ptr().cast::<c_void>(),
                message.key.len(),
                sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_OPAQUE,
                tag as *mut c_void,
                sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADER,
                TIME.as_ptr(),
                time.as_ptr().cast::<c_void>(),
                time.len() as isize,
                sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
            )
        };
        match code {
            sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            code => Err(code.into()),
        }
    }
}

/// Sees that the producer keeps its brokers.
pub(super) fn keep(producer: &BaseProducer<Producing>, reach: &mut Reach) {
    reach.keep(producer.client().native_ptr());
}

/// Sends what waits for others to share its batch, for as long as `time`.
pub(super) fn flush(producer: &BaseProducer<Producing>, time: Duration) {
    // SAFETY: the client lives. Reports go to the event queue, which the caller's other thread serves.
    unsafe { sys::rd_kafka_flush(producer.client().native_ptr(), millis(time)) };
}

/// Where the producer's reports come out.
pub(super) struct Reports<'a> {
    queue: RawQueue,
    producer: &'a BaseProducer<Producing>,
}

impl<'a> Reports<'a> {
    pub(super) fn new(producer: &'a BaseProducer<Producing>) -> Reports<'a> {
        // SAFETY: the client lives. The returned reference to its queue is given up by RawQueue.
        let queue = RawQueue(unsafe { sys::rd_kafka_queue_get_main(producer.client().native_ptr()) });
        Reports { queue, producer }
    }

    /// Waits up to `timeout` for an event and handles it: calls `report` with tag, error and offset of each delivered message. True when
    /// there were such.
    pub(super) fn serve(
        &self,
        timeout: Duration,
        mut report: impl FnMut(usize, Option<RDKafkaErrorCode>, i64),
    ) -> bool {
        // SAFETY: the queue lives. The event is destroyed at the end, and what belongs to it is not used after.
        unsafe {
            let event = sys::rd_kafka_queue_poll(self.queue.0, millis(timeout));
            if event.is_null() {
                return false;
            }
            let kind = sys::rd_kafka_event_type(event);
            match kind {
                sys::RD_KAFKA_EVENT_DR => loop {
                    let message = sys::rd_kafka_event_message_next(event);
                    if message.is_null() {
                        break;
                    }
                    let message = &*message;
                    let error = match message.err {
                        sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => None,
                        code => Some(code.into()),
                    };
                    report(message._private as usize, error, message.offset);
                },
                sys::RD_KAFKA_EVENT_LOG => self.log(event),
                sys::RD_KAFKA_EVENT_STATS => {
                    let json = sys::rd_kafka_event_stats(event);
                    if !json.is_null() {
                        self.producer.context().stats_raw(CStr::from_ptr(json).to_bytes());
                    }
                }
                sys::RD_KAFKA_EVENT_ERROR => {
                    let code = RDKafkaErrorCode::from(sys::rd_kafka_event_error(event));
                    tracing::debug!(target: "kafka", %code, "the producer reports");
                }
                _ => {}
            }
            sys::rd_kafka_event_destroy(event);
            kind == sys::RD_KAFKA_EVENT_DR
        }
    }

    /// # Safety
    /// `event` must be one of a log line.
    unsafe fn log(&self, event: *mut sys::rd_kafka_event_t) {
        let (mut facility, mut text, mut level) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the event is a log line (the caller's promise); the texts belong to it and are used before it goes.
        unsafe {
            if sys::rd_kafka_event_log(event, &raw mut facility, &raw mut text, &raw mut level) == 0 {
                let text = CStr::from_ptr(text).to_string_lossy();
                let facility = CStr::from_ptr(facility).to_string_lossy();
                log_line(level, &facility, &text);
            }
        }
    }
}

/// What a look into a partition gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// Nothing until the time was over.
    Nothing,
    /// Messages, now in [`Reader::ready`].
    Messages,
    /// The end, at this offset, was reached after what was given before.
    End(u64),
    /// The offset is not in the partition, or no longer.
    OutOfRange,
    /// The brokers cannot serve it now.
    Trouble(RDKafkaErrorCode),
}

/// Reads one partition on from an offset. The client fetches ahead.
pub(super) struct Reader {
    raw: RawTopic,
    queue: RawQueue,
    pub(super) topic: Arc<str>,
    pub(super) partition: u32,
    /// Messages that were fetched and not yet given.
    pub(super) ready: std::collections::VecDeque<StoredMessage>,
    /// The offset behind the last one that was fetched.
    position: u64,
    /// Whether the end was told at `position`, and nothing came since.
    pub(super) at_end: bool,
    // Last: what is above belongs to it.
    handle: Arc<Handle>,
}

impl Reader {
    /// Starts reading; `None` when the handle reads this partition already.
    pub(super) fn start(
        handle: &Arc<Handle>,
        topic: &Arc<str>,
        partition: u32,
        offset: u64,
    ) -> Option<Reader> {
        if !handle.reserve(topic, partition) {
            return None;
        }
        let Some(raw) = RawTopic::new(handle.native(), topic) else {
            handle.release(topic, partition);
            return None;
        };
        let reader = Reader {
            raw,
            queue: RawQueue::new(handle.native()),
            topic: topic.clone(),
            partition,
            ready: std::collections::VecDeque::new(),
            position: offset,
            at_end: false,
            handle: handle.clone(),
        };
        reader.begin();
        Some(reader)
    }

    fn begin(&self) {
        // An offset is an i64 at the broker; one beyond is beyond every end.
        let offset = i64::try_from(self.position).unwrap_or(i64::MAX);
        // SAFETY: topic and queue live as long as self, and the reading is stopped before they go. The only errors are of arguments.
        let result = unsafe {
            sys::rd_kafka_consume_start_queue(self.raw.0, self.partition as i32, offset, self.queue.0)
        };
        debug_assert_eq!(result, 0, "a partition from 0, an offset from 0, and no group");
    }

    fn end(&self) {
        // SAFETY: begun before; it waits for the client's own thread, not for a broker.
        unsafe { sys::rd_kafka_consume_stop(self.raw.0, self.partition as i32) };
    }

    /// The next offset that it will give.
    pub(super) fn next(&self) -> u64 {
        self.ready.front().map_or(self.position, |message| message.offset)
    }

    /// Goes to another offset.
    pub(super) fn go_to(&mut self, offset: u64) {
        self.end();
        self.ready.clear();
        self.queue = RawQueue::new(self.handle.native());
        self.position = offset;
        self.at_end = false;
        self.begin();
    }

    /// Waits up to `timeout` for messages and takes up to `wanted` of them.
    pub(super) fn fill(&mut self, timeout: Duration, wanted: usize) -> Got {
        let mut batch = [ptr::null_mut::<sys::rd_kafka_message_t>(); BATCH];
        let wanted = wanted.clamp(1, BATCH);
        // The call waits until it has as many as asked for: so one is waited for, and the others taken if they are there.
        let first = self.take(&mut batch[..1], millis(timeout));
        let count = if first == 0 { 0 } else { first + self.take(&mut batch[1..wanted], 0) };
        let mut got = Got::Nothing;
        for raw in &batch[..count] {
            // SAFETY: given by the library just now, not null, destroyed once, not used after.
            let message = unsafe { &**raw };
            got = match message.err {
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => {
                    let offset = message.offset.max(0) as u64;
                    if offset >= self.position {
                        self.ready.push_back(decode(message));
                        self.position = offset + 1;
                    }
                    self.at_end = false;
                    Got::Messages
                }
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF => {
                    self.position = self.position.max(message.offset.max(0) as u64);
                    self.at_end = true;
                    if got == Got::Messages { Got::Messages } else { Got::End(self.position) }
                }
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET
                | sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE => Got::OutOfRange,
                code => Got::Trouble(code.into()),
            };
            // SAFETY: see above.
            unsafe { sys::rd_kafka_message_destroy(*raw) };
        }
        if self.ready.is_empty() { got } else { Got::Messages }
    }

    fn take(&self, into: &mut [*mut sys::rd_kafka_message_t], timeout_ms: i32) -> usize {
        if into.is_empty() {
            return 0;
        }
        // SAFETY: the queue lives, only this value reads it (&mut in fill), and the array has as much room as is said.
        let count = unsafe {
            sys::rd_kafka_consume_batch_queue(self.queue.0, timeout_ms, into.as_mut_ptr(), into.len())
        };
        usize::try_from(count).unwrap_or(0)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end();
        self.handle.release(&self.topic, self.partition);
    }
}

/// # Safety
/// `start` and `len` must be of bytes that live for `'a`, or `start` null.
unsafe fn bytes<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) })
}

fn decode(message: &sys::rd_kafka_message_t) -> StoredMessage {
    // SAFETY: the message lives over this call, and key and payload with it.
    let (key, value) = unsafe { (bytes(message.key, message.key_len), bytes(message.payload, message.len)) };
    StoredMessage {
        offset: message.offset.max(0) as u64,
        key: key.unwrap_or_default().to_vec(),
        value: value.map(<[u8]>::to_vec),
        time: time_of(message),
    }
}

/// The time in the header, or Kafka's own for messages that others wrote.
fn time_of(message: &sys::rd_kafka_message_t) -> Timestamp {
    let mut headers = ptr::null_mut();
    let (mut value, mut size) = (ptr::null::<c_void>(), 0usize);
    // SAFETY: the message lives; headers belong to it and live as long; the outputs are valid places.
    let found = unsafe {
        sys::rd_kafka_message_headers(message, &raw mut headers)
            == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
            && sys::rd_kafka_header_get_last(headers, TIME.as_ptr(), &raw mut value, &raw mut size)
                == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
    };
    if found {
        // SAFETY: the header's value lives with the message.
        if let Some(time) = unsafe { bytes(value, size) }.and_then(|bytes| bytes.try_into().ok()) {
            return Timestamp(i64::from_le_bytes(time));
        }
    }
    let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    // SAFETY: the message lives.
    let millis = unsafe { sys::rd_kafka_message_timestamp(message, &raw mut kind) };
    Timestamp(millis.max(0).saturating_mul(1000))
}
