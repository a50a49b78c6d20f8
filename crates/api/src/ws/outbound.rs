//! The queue of one client: what any thread puts in, and the connection's task writes out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::close::{Close, CloseCode};
use super::frame::{Frame, Opcode};

/// Merging begins when this many frames wait: a client that keeps up never pays for it.
const MERGE_FROM: usize = 128;

/// Pongs that wait at most. Beyond it the newest replaces the last one: an endpoint may answer only the most recent ping
/// (RFC 6455 §5.5.3).
const MAX_URGENT: usize = 64;

/// What may wait for one client.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Frames.
    pub frames: usize,
    /// Bytes, headers included. Frames are shared among clients, so this counts what must be sent, not memory of this client alone.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { frames: 8192, bytes: 1024 * 1024 }
    }
}

/// What happens to a frame when the client is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Every frame arrives, in order, or the client is cut: trades, depth differences, private messages, answers.
    Strict,
    /// Only the newest of this key matters: when an older one still waits far behind, it is replaced where it stands. Tickers, open
    /// candles, partial books. The key is the topic's number.
    Latest(u32),
}

/// What happened to all connections of a server, for metrics. Every number only grows.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections begun.
    pub opened: AtomicU64,
    /// Connections ended.
    pub closed: AtomicU64,
    /// Cut since more waited for them than [`Limits`] allows.
    pub cut_slow: AtomicU64,
    /// Cut since nothing came from them, not even a pong.
    pub cut_idle: AtomicU64,
    /// Cut for too many messages a second.
    pub cut_rate: AtomicU64,
    /// Closed for breaking the protocol.
    pub protocol_errors: AtomicU64,
    /// Messages received.
    pub messages_in: AtomicU64,
    /// Frames handed to the socket.
    pub frames_out: AtomicU64,
    /// Bytes handed to the socket.
    pub bytes_out: AtomicU64,
    /// Writes that carried them: frames a write is how well joining works.
    pub writes: AtomicU64,
    /// Frames replaced by a newer one of the same topic.
    pub merged: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Takes frames.
    Open,
    /// Takes no more; what waits and then the close frame are still to be written.
    Closing,
    /// Over the limit: what waits is thrown away, the close frame is next.
    Cut,
    /// The connection is gone.
    Closed,
}

#[derive(Debug)]
struct Queue {
    state: State,
    /// Pings and pongs: they go before all data, between frames.
    urgent: VecDeque<Bytes>,
    data: VecDeque<Bytes>,
    /// The close frame, once there is one.
    close: Option<Bytes>,
    /// Bytes of `data` and of what the writer has taken but not yet written.
    bytes: usize,
    /// Number of the first frame in `data`, counted from the connection's start.
    head: u64,
    /// Where the newest frame of a topic waits; see [`MERGE_FROM`].
    latest: Option<Box<FxHashMap<u32, u64>>>,
    /// The connection's task.
    waker: Option<Waker>,
    /// Whether it waits for something to write; while it waits for the socket, only the end is worth waking it for.
    asleep: bool,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    limits: Limits,
    counters: Arc<Counters>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing can panic while the lock is held except an allocation failure, which aborts.
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Tasks to wake after a flush: each client is woken once, however many frames it got.
#[derive(Debug, Default)]
pub struct Wakers(Vec<Waker>);

impl Wakers {
    /// Wakes and forgets them all.
    pub fn wake_all(&mut self) {
        for waker in self.0.drain(..) {
            waker.wake();
        }
    }
}

/// The sending end of one connection. Cheap to clone; usable from any thread; never blocks longer than a push takes.
///
/// **Rule when full:** a client for which more waits than [`Limits`] is cut: what waits is dropped, it gets a close frame 1008 if it can
/// still take one, and is counted in [`Counters::cut_slow`]. Nobody else notices.
#[derive(Clone, Debug)]
pub struct Outbound(Arc<Shared>);

impl Outbound {
    pub(crate) fn new(limits: Limits, counters: Arc<Counters>) -> (Outbound, Pending) {
        let queue = Queue {
            state: State::Open,
            urgent: VecDeque::new(),
            data: VecDeque::new(),
            close: None,
            bytes: 0,
            head: 0,
            latest: None,
            waker: None,
            asleep: false,
        };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), limits, counters });
        (Outbound(Arc::clone(&shared)), Pending { shared, taken: VecDeque::new(), offset: 0, closing: false })
    }

    /// Sends a text message to this client alone. False when the connection is closed or was cut.
    pub fn send_text(&self, payload: &[u8]) -> bool {
        self.send(Frame::text(payload))
    }

    /// Sends a frame, every time ([`Delivery::Strict`]), and wakes the writer. False when the connection is closed or was cut.
    pub fn send(&self, frame: Frame) -> bool {
        let mut wakers = Wakers::default();
        let sent = self.push(frame, Delivery::Strict, &mut wakers);
        wakers.wake_all();
        sent
    }

    /// Queues a frame without waking the writer yet: for a fan-out, which wakes everyone after the last frame of a flush. False when the
    /// connection is closed or was cut.
    pub fn push(&self, frame: Frame, delivery: Delivery, wakers: &mut Wakers) -> bool {
        let shared = &*self.0;
        let mut queue = shared.lock();
        if queue.state != State::Open {
            return false;
        }
        let len = frame.len();
        if let Delivery::Latest(key) = delivery
            && queue.data.len() >= MERGE_FROM
        {
            let queue = &mut *queue;
            let latest = queue.latest.get_or_insert_default();
            let next = queue.head + queue.data.len() as u64;
            let at = latest.insert(key, next);
            if let Some(at) = at
                && at >= queue.head
                && let Some(waiting) = queue.data.get_mut((at - queue.head) as usize)
            {
                queue.bytes = queue.bytes - waiting.len() + len;
                *waiting = frame.bytes().clone();
                latest.insert(key, at);
                Counters::add(&shared.counters.merged, 1);
                return true;
            }
        }
        if queue.data.len() >= shared.limits.frames || queue.bytes + len > shared.limits.bytes {
            queue.cut();
            Counters::add(&shared.counters.cut_slow, 1);
            wakers.0.extend(queue.waker.take());
            return false;
        }
        queue.bytes += len;
        queue.data.push_back(frame.bytes().clone());
        if std::mem::take(&mut queue.asleep) {
            wakers.0.extend(queue.waker.take());
        }
        true
    }

    /// Ends a run of mergeable frames of a topic: the next one is appended, so that what was sent for the key so far arrives. For a candle
    /// that closed.
    pub fn seal(&self, key: u32) {
        if let Some(latest) = &mut self.0.lock().latest {
            latest.remove(&key);
        }
    }

    /// Sends what waits, then a close frame. Later frames are refused.
    pub fn close(&self, code: CloseCode, reason: &str) {
        let frame = Frame::encode(Opcode::Close, &[&Close::new(code, reason.to_owned()).payload()]);
        let mut queue = self.0.lock();
        if queue.state == State::Open {
            queue.state = State::Closing;
            queue.close = Some(frame.bytes().clone());
            if let Some(waker) = queue.waker.take() {
                drop(queue);
                waker.wake();
            }
        }
    }

    /// Whether frames are still taken.
    pub fn is_open(&self) -> bool {
        self.0.lock().state == State::Open
    }

    /// Bytes that wait, those handed to the socket in part included.
    pub fn queued_bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Whether both are handles of one connection.
    pub fn same(&self, other: &Outbound) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Queue {
    fn cut(&mut self) {
        let close =
            Close::new(CloseCode::POLICY, "too slow: more messages wait than this connection may have");
        self.state = State::Cut;
        self.data = VecDeque::new();
        self.latest = None;
        self.urgent.clear();
        self.close = Some(Frame::encode(Opcode::Close, &[&close.payload()]).bytes().clone());
    }
}

/// The receiving end: owned by the connection's task.
#[derive(Debug)]
pub(crate) struct Pending {
    shared: Arc<Shared>,
    /// Taken out of the queue, to be written; with whether it counts towards the limit, as data does.
    taken: VecDeque<(Bytes, bool)>,
    /// Bytes of the first of `taken` that are written.
    offset: usize,
    /// Whether the close frame was taken: it is the last.
    closing: bool,
}

/// What there is to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Something: see [`Pending::slices`].
    Write,
    /// Nothing; the task is woken when there is.
    Wait,
    /// The close frame is written.
    Done,
}

impl Pending {
    /// At most this many frames or bytes are taken at once, so that a ping or a cut is never behind more than that.
    const TAKE_FRAMES: usize = 256;
    const TAKE_BYTES: usize = 256 * 1024;

    /// Takes what is to be written next; registers the task when there is nothing.
    pub(crate) fn next(&mut self, context: &Context<'_>) -> Next {
        let mut queue = self.shared.lock();
        let partial = usize::from(self.offset > 0);
        if queue.state == State::Cut && !self.closing {
            // The frame on the wire has to be completed; everything else is void.
            self.taken.truncate(partial);
            queue.bytes = match self.taken.front() {
                Some((frame, true)) => frame.len() - self.offset,
                _ => 0,
            };
        }
        for frame in queue.urgent.drain(..).rev() {
            self.taken.insert(partial, (frame, false));
        }
        if self.taken.len() <= partial {
            let mut bytes = 0;
            while self.taken.len() < Self::TAKE_FRAMES && bytes < Self::TAKE_BYTES {
                let Some(frame) = queue.data.pop_front() else { break };
                queue.head += 1;
                bytes += frame.len();
                self.taken.push_back((frame, true));
            }
            if queue.data.is_empty() {
                queue.latest = None;
                if let Some(close) = queue.close.take() {
                    self.taken.push_back((close, false));
                    self.closing = true;
                }
                // An idle client keeps no memory of its busy times.
                if queue.data.capacity() > MERGE_FROM {
                    queue.data = VecDeque::new();
                }
            }
        }
        match &mut queue.waker {
            Some(waker) => waker.clone_from(context.waker()),
            empty => *empty = Some(context.waker().clone()),
        }
        queue.asleep = self.taken.is_empty();
        if !self.taken.is_empty() {
            Next::Write
        } else if self.closing {
            Next::Done
        } else {
            Next::Wait
        }
    }

    /// The bytes to write, for a vectored write; gives the number of filled slices.
    pub(crate) fn slices<'a>(&'a self, out: &mut [std::io::IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, (frame, _)) in out.iter_mut().zip(&self.taken) {
            let skip = if filled == 0 { self.offset } else { 0 };
            *slot = std::io::IoSlice::new(&frame[skip..]);
            filled += 1;
        }
        filled
    }

    /// The socket took `n` bytes.
    pub(crate) fn advance(&mut self, n: usize) {
        let (mut rest, mut frames, mut counted) = (n, 0, 0);
        while rest > 0 {
            let Some((first, counts)) = self.taken.front() else { break };
            let part = rest.min(first.len() - self.offset);
            counted += if *counts { part } else { 0 };
            rest -= part;
            self.offset += part;
            if self.offset == first.len() {
                self.offset = 0;
                self.taken.pop_front();
                frames += 1;
            }
        }
        if self.taken.is_empty() && self.taken.capacity() > 16 {
            self.taken = VecDeque::new();
        }
        let mut queue = self.shared.lock();
        queue.bytes -= counted;
        drop(queue);
        let counters = &self.shared.counters;
        Counters::add(&counters.frames_out, frames);
        Counters::add(&counters.bytes_out, n as u64);
        Counters::add(&counters.writes, 1);
    }

    /// Queues a ping or a pong: before all data, after the frame that is being written.
    pub(crate) fn urgent(&self, opcode: Opcode, payload: &[u8]) {
        let frame = Frame::encode(opcode, &[payload]);
        let mut queue = self.shared.lock();
        if queue.state == State::Open || queue.state == State::Closing {
            if queue.urgent.len() >= MAX_URGENT {
                queue.urgent.pop_back();
            }
            queue.urgent.push_back(frame.bytes().clone());
        }
    }

    /// The connection is to end: `close` is the last frame. What waits is sent first, or dropped if `at_once`. No effect when a close frame is
    /// on its way.
    pub(crate) fn end(&mut self, close: &Close, at_once: bool) {
        if self.closing {
            return;
        }
        let mut queue = self.shared.lock();
        if queue.state != State::Cut {
            if at_once {
                queue.cut();
            } else {
                queue.state = State::Closing;
            }
            queue.close = Some(Frame::encode(Opcode::Close, &[&close.payload()]).bytes().clone());
        }
    }

    /// As [`Pending::end`] at once, with a close frame without a code: the answer to one without a code.
    pub(crate) fn end_without_code(&mut self) {
        if self.closing {
            return;
        }
        let mut queue = self.shared.lock();
        queue.cut();
        queue.close = Some(Frame::encode(Opcode::Close, &[]).bytes().clone());
    }

    /// Whether the client was cut for reading too slowly (`Some(true)`), or the other handles closed the connection (`Some(false)`).
    pub(crate) fn closing(&self) -> Option<bool> {
        match self.shared.lock().state {
            State::Open | State::Closed => None,
            State::Closing => Some(false),
            State::Cut => Some(true),
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    pub(crate) fn bytes(&self) -> usize {
        self.shared.lock().bytes
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.state = State::Closed;
        queue.data = VecDeque::new();
        queue.urgent = VecDeque::new();
        queue.latest = None;
        queue.close = None;
        queue.bytes = 0;
        queue.waker = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(frames: usize, bytes: usize) -> (Outbound, Pending, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        let (out, pending) = Outbound::new(Limits { frames, bytes }, Arc::clone(&counters));
        (out, pending, counters)
    }

    /// Takes everything as a writer whose socket takes `step` bytes at a time.
    fn drain(pending: &mut Pending, step: usize) -> Vec<u8> {
        let context = Context::from_waker(Waker::noop());
        let mut wire = Vec::new();
        while pending.next(&context) == Next::Write {
            let mut slices = [std::io::IoSlice::new(&[]); 8];
            let filled = pending.slices(&mut slices);
            let joined: Vec<u8> = slices[..filled].iter().flat_map(|s| s.iter().copied()).collect();
            let n = joined.len().min(step);
            wire.extend_from_slice(&joined[..n]);
            pending.advance(n);
        }
        wire
    }

    #[test]
    fn frames_leave_in_order_whatever_the_socket_takes() {
        for step in [1, 2, 3, 7, 100, 10_000] {
            let (out, mut pending, _) = pair(1000, 1 << 20);
            let mut expected = Vec::new();
            for i in 0..300 {
                let frame = Frame::text(format!("message {i}").as_bytes());
                expected.extend_from_slice(frame.bytes());
                assert!(out.send(frame));
            }
            assert_eq!(drain(&mut pending, step), expected);
            assert_eq!(out.queued_bytes(), 0);
        }
    }

    #[test]
    fn control_frames_go_before_data_but_never_inside_a_frame() {
        let (out, mut pending, _) = pair(1000, 1 << 20);
        let context = Context::from_waker(Waker::noop());
        for text in ["first", "second"] {
            out.send_text(text.as_bytes());
        }
        assert_eq!(pending.next(&context), Next::Write);
        pending.advance(3);
        pending.urgent(Opcode::Pong, b"p");
        pending.urgent(Opcode::Pong, b"q");
        let mut expected = Frame::text(b"first").bytes()[3..].to_vec();
        expected.extend_from_slice(Frame::encode(Opcode::Pong, &[b"p"]).bytes());
        expected.extend_from_slice(Frame::encode(Opcode::Pong, &[b"q"]).bytes());
        expected.extend_from_slice(Frame::text(b"second").bytes());
        assert_eq!(drain(&mut pending, 2), expected);
    }

    #[test]
    fn a_client_over_its_limit_is_cut_and_keeps_no_memory() {
        for (frames, bytes) in [(10, 1 << 20), (1000, 300)] {
            let (out, mut pending, counters) = pair(frames, bytes);
            let mut sent = 0;
            while out.send_text(b"twenty bytes of text") {
                sent += 1;
            }
            assert!((10..=13).contains(&sent), "{sent}");
            assert!(!out.is_open() && pending.closing() == Some(true));
            assert_eq!(counters.cut_slow.load(Ordering::Relaxed), 1);
            let wire = drain(&mut pending, 1000);
            assert_eq!((wire[0], &wire[2..4]), (0x88, &1008_u16.to_be_bytes()[..]));
            assert_eq!(pending.next(&Context::from_waker(Waker::noop())), Next::Done);
            assert!(!out.send_text(b"more"));
        }
    }

    #[test]
    fn the_newest_of_a_topic_replaces_the_one_that_waits() {
        let (out, mut pending, counters) = pair(1000, 1 << 20);
        let mut wakers = Wakers::default();
        for i in 0..MERGE_FROM {
            out.send_text(format!("trade {i}").as_bytes());
        }
        for i in 0..5 {
            assert!(out.push(
                Frame::text(format!("ticker {i}").as_bytes()),
                Delivery::Latest(7),
                &mut wakers
            ));
            out.send_text(format!("depth {i}").as_bytes());
        }
        out.seal(7);
        out.push(Frame::text(b"ticker after the seal"), Delivery::Latest(7), &mut wakers);
        assert_eq!(counters.merged.load(Ordering::Relaxed), 4);
        let wire = String::from_utf8_lossy(&drain(&mut pending, 1 << 20)).into_owned();
        let tail = &wire[wire.find("ticker").unwrap()..];
        let texts: Vec<&str> = tail.split(|c: char| c.is_control() || c == '\u{fffd}').collect();
        let texts: Vec<&str> = texts.into_iter().filter(|t| !t.is_empty()).collect();
        assert_eq!(
            texts,
            ["ticker 4", "depth 0", "depth 1", "depth 2", "depth 3", "depth 4", "ticker after the seal"]
        );
        assert_eq!(out.queued_bytes(), 0);
    }

    #[test]
    fn closing_sends_what_waits_first() {
        let (out, mut pending, _) = pair(1000, 1 << 20);
        out.send_text(b"last words");
        out.close(CloseCode::GOING_AWAY, "bye");
        assert!(!out.send_text(b"too late"));
        let mut expected = Frame::text(b"last words").bytes().to_vec();
        expected.extend_from_slice(&[0x88, 5, 0x03, 0xE9, b'b', b'y', b'e']);
        assert_eq!(drain(&mut pending, 4), expected);
    }

    #[test]
    fn a_flood_of_pings_keeps_a_bounded_number_of_pongs() {
        let (_out, mut pending, _) = pair(1000, 1 << 20);
        for i in 0..10_000_u32 {
            pending.urgent(Opcode::Pong, &i.to_be_bytes());
        }
        let wire = drain(&mut pending, 1 << 20);
        assert_eq!(wire.len(), MAX_URGENT * 6);
        assert_eq!(wire[wire.len() - 4..], 9_999_u32.to_be_bytes());
    }
}
