//! Recordings of exchanges' messages, played again.
//!
//! One line is `<receive time in seconds>: <message>`, as the recorder of cryptofeed writes it
//! (<https://github.com/bmoscon/cryptofeed>). Lines with `<-`, `->` or `<->` before the message are what the client sent, REST answers and
//! connections: no messages. A message may be written as a Python bytes literal (`b'…'`).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hoga_core::ids::Timestamp;

use super::exchange::{Format, ParseError, Parser, TimeUnit, cut, micros};
use super::{Flow, Source, SourceStatus};
use crate::gateway::SourceTrade;

/// How fast a recording is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// So many times as fast as it was recorded, from 1; the first message is due at once.
    Times(u32),
    /// As fast as it is asked for.
    Max,
}

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be read.
    #[error("reading the recording {path}: {source}. Check that it is there and may be read")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No format was given, and no line has a trade in a format that is known.
    #[error("{path} has no trade of Binance, Upbit, Kraken or Bitstamp. Name its format, or give a mapping")]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// A speed that stands still.
    #[error("a recording cannot be played 0 times as fast: 1 or more is expected")]
    Speed,
}

/// What became of the lines of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureStatus {
    /// Lines read.
    pub lines: u64,
    /// Trades given.
    pub trades: u64,
    /// Lines without a trade: other messages, and what is no message.
    pub skipped: u64,
    /// Lines that could not be read.
    pub broken: u64,
    /// The first of those with its line number and what is wrong with it; or why the file could not be read to its end.
    pub fault: Option<String>,
}

/// Plays a recording once. Trades are received when their line was received, and dated by the exchange.
pub struct Capture {
    path: PathBuf,
    lines: BufReader<File>,
    parser: Parser,
    speed: Speed,
    /// When the first message was received.
    first: Option<Timestamp>,
    /// Trades of the last line that was read.
    waiting: VecDeque<SourceTrade>,
    /// Reused.
    line: Vec<u8>,
    found: Vec<SourceTrade>,
    ended: bool,
    status: CaptureStatus,
}

impl Capture {
    /// Opens a recording. Without a format it is looked for the first line that has a trade in a named one.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn open(path: &Path, format: Option<Format>, speed: Speed) -> Result<Capture, CaptureError> {
        if speed == Speed::Times(0) {
            return Err(CaptureError::Speed);
        }
        let io = |source| CaptureError::Io { path: path.into(), source };
        let open = || File::open(path).map(BufReader::new).map_err(io);
        let format = match format {
            Some(format) => format,
            None => {
                detect(open()?).map_err(io)?.ok_or_else(|| CaptureError::Unknown { path: path.into() })?
            }
        };
        Ok(Capture {
            path: path.into(),
            lines: open()?,
            parser: Parser::new(format),
            speed,
            first: None,
            waiting: VecDeque::new(),
            line: Vec::new(),
            found: Vec::new(),
            ended: false,
            status: CaptureStatus::default(),
        })
    }

    /// Its format.
    pub fn format(&self) -> &Format {
        self.parser.format()
    }

    /// What became of its lines so far.
    pub fn status(&self) -> &CaptureStatus {
        &self.status
    }

    /// Reads one line.
    fn read(&mut self) {
        self.line.clear();
        match self.lines.read_until(b'\n', &mut self.line) {
            Ok(0) => self.ended = true,
            Ok(_) => {
                self.status.lines += 1;
                match self.take() {
                    Ok(0) => self.status.skipped += 1,
                    Ok(_) => self.waiting.extend(self.found.drain(..)),
                    Err(reason) => {
                        self.status.broken += 1;
                        let line = self.status.lines;
                        let path = self.path.display();
                        self.status.fault.get_or_insert_with(|| format!("{path} line {line}: {reason}"));
                    }
                }
            }
            Err(error) => {
                self.ended = true;
                let (path, line) = (self.path.display(), self.status.lines);
                self.status.fault = Some(format!("{path} after line {line}: {error}. Check the disk"));
            }
        }
    }

    fn take(&mut self) -> Result<usize, LineError> {
        let Some((received, message)) = split(&self.line)? else { return Ok(0) };
        self.first.get_or_insert(received);
        Ok(self.parser.read(&message, received, &mut self.found)?)
    }

    /// When a message is due since the start, in microseconds.
    fn due(&self, received: Timestamp) -> i64 {
        match self.speed {
            Speed::Times(times) => {
                received.0.saturating_sub(self.first.map_or(received.0, |first| first.0)) / i64::from(times)
            }
            Speed::Max => 0,
        }
    }
}

impl Source for Capture {
    fn status(&self) -> SourceStatus {
        let status = Capture::status(self);
        SourceStatus {
            broken: status.broken,
            trades: status.trades,
            fault: status.fault.clone(),
            ..SourceStatus::default()
        }
    }

    fn poll(&mut self, at: Duration, most: usize, out: &mut Vec<SourceTrade>) -> Flow {
        let at = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
        let end = out.len().saturating_add(most);
        while out.len() < end {
            match self.waiting.front() {
                Some(trade) if self.due(trade.received) > at => break,
                Some(trade) => {
                    out.push(*trade);
                    self.waiting.pop_front();
                    self.status.trades += 1;
                }
                None if self.ended => break,
                None => self.read(),
            }
        }
        if self.ended && self.waiting.is_empty() { Flow::Ended } else { Flow::Open }
    }
}

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum LineError {
    #[error("{0:?} is no line of a recording: <receive time in seconds>: <message> is expected")]
    Line(String),
    #[error("the bytes literal ends inside an escape, or has one that is not known")]
    Escape,
    #[error(transparent)]
    Message(#[from] ParseError),
}

fn detect(mut lines: BufReader<File>) -> io::Result<Option<Format>> {
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        if let Ok(Some((_, message))) = split(&line)
            && let Some(format) = Format::detect(&message)
        {
            return Ok(Some(format));
        }
        line.clear();
    }
    Ok(None)
}

/// Receive time and message.
type Received<'a> = (Timestamp, Cow<'a, [u8]>);

/// What a line holds; `None` when it is no message.
fn split(line: &[u8]) -> Result<Option<Received<'_>>, LineError> {
    let line = line.trim_ascii();
    let colon = line.windows(2).position(|pair| pair == b": ");
    let head = &line[..colon.unwrap_or(line.len())];
    let holds = |arrow: &[u8]| head.windows(2).any(|pair| pair == arrow);
    if line.is_empty() || holds(b"<-") || holds(b"->") {
        return Ok(None);
    }
    let wrong = || LineError::Line(cut(&String::from_utf8_lossy(line)));
    let time = std::str::from_utf8(head).ok().and_then(|head| micros(head, TimeUnit::S));
    let (Some(time), Some(colon)) = (time, colon) else { return Err(wrong()) };
    let message = &line[colon + 2..];
    let message = match message {
        [b'b', quote @ (b'\'' | b'"'), inner @ .., last] if quote == last => literal(inner)?,
        message => Cow::Borrowed(message),
    };
    Ok(Some((time, message)))
}

/// What is between the quotes of a Python bytes literal
/// (<https://docs.python.org/3/reference/lexical_analysis.html#string-and-bytes-literals>), as far as Python itself writes escapes.
fn literal(inner: &[u8]) -> Result<Cow<'_, [u8]>, LineError> {
    if !inner.contains(&b'\\') {
        return Ok(Cow::Borrowed(inner));
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next().ok_or(LineError::Escape)? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            same @ (b'\\' | b'\'' | b'"') => same,
            b'x' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit().ok_or(LineError::Escape)?, digit().ok_or(LineError::Escape)?);
                u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte")
            }
            _ => return Err(LineError::Escape),
        });
    }
    Ok(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A file that is removed at the end.
    struct Recording(PathBuf);

    impl Recording {
        fn new(text: &[u8]) -> Recording {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("hoga-capture-{}-{number}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Recording(path)
        }

        fn play(&self, speed: Speed) -> Capture {
            Capture::open(&self.0, None, speed).unwrap()
        }
    }

    impl Drop for Recording {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    const KRAKEN: &str = r#"wss://ws.kraken.com <-> 1618678132.368463
wss://ws.kraken.com <- 1618678132.83097: {"event":"subscribe"}
https://api.kraken.com/0 -> 1618678132.84: {"error":[]}
1618678140.5: {"event":"heartbeat"}
1618678142.5: [993,[["354.1","0.9","1618678142.4","s","l",""]],"trade","XMR/USD"]
what is this
1618678142.9: [993,[["354.1","0.9","1618678142.4"
1618678150.5000009: [993,[["1","1","1618678150.1","s","m",""],["2","1","1618678150.2","b","m",""]],"trade","XMR/USD"]

1618678152.5: [1,[["1","1","1618678152.1","s","m",""]],"trade","A/B"]"#;

    fn poll(source: &mut Capture, at: Duration, most: usize) -> (Vec<u64>, Flow) {
        let mut out = Vec::new();
        let flow = source.poll(at, most, &mut out);
        (out.iter().map(|trade| trade.tick.id.0).collect(), flow)
    }

    #[test]
    fn it_plays_at_its_speed_and_counts_lines_without_trades() {
        let recording = Recording::new(KRAKEN.as_bytes());
        let mut source = recording.play(Speed::Times(2));
        assert_eq!(source.format(), &Format::Kraken);
        let millis = Duration::from_millis;
        assert_eq!(poll(&mut source, millis(999), 10), (vec![], Flow::Open));
        assert_eq!(poll(&mut source, millis(1000), 10), (vec![1], Flow::Open));
        assert_eq!(poll(&mut source, millis(4999), 10), (vec![], Flow::Open));
        // However late it is asked, and in parts.
        assert_eq!(poll(&mut source, millis(9000), 0), (vec![], Flow::Open));
        assert_eq!(poll(&mut source, millis(9000), 1), (vec![2], Flow::Open));
        assert_eq!(poll(&mut source, millis(9000), 10), (vec![3, 1], Flow::Ended));
        assert_eq!(poll(&mut source, millis(9000), 10), (vec![], Flow::Ended));
        let status = source.status();
        assert_eq!((status.lines, status.trades, status.skipped, status.broken), (10, 4, 5, 2));
        let fault = status.fault.clone().unwrap();
        assert!(fault.contains("line 6: \"what is this\" is no line of a recording"), "{fault}");
    }

    #[test]
    fn received_is_the_time_of_the_line() {
        let recording = Recording::new(KRAKEN.as_bytes());
        let mut source = recording.play(Speed::Max);
        let mut out = Vec::new();
        assert_eq!(source.poll(Duration::ZERO, usize::MAX, &mut out), Flow::Ended);
        let times: Vec<_> = out.iter().map(|trade| (trade.received.0, trade.tick.time.0)).collect();
        assert_eq!(
            times,
            [
                (1_618_678_142_500_000, 1_618_678_142_400_000),
                (1_618_678_150_500_000, 1_618_678_150_100_000),
                (1_618_678_150_500_000, 1_618_678_150_200_000),
                (1_618_678_152_500_000, 1_618_678_152_100_000),
            ]
        );
    }

    #[test]
    fn what_cannot_be_played_is_refused() {
        let empty = Recording::new(b"1618678140.5: {\"event\":\"heartbeat\"}\n");
        let fault = |path: &Path, speed| Capture::open(path, None, speed).err().unwrap().to_string();
        assert!(fault(&empty.0, Speed::Max).contains("Name its format"));
        assert!(fault(&empty.0, Speed::Times(0)).contains("0 times"));
        assert!(fault(Path::new("/no/such/file"), Speed::Max).contains("/no/such/file"));
        // A format that was given is believed.
        let mut given = Capture::open(&empty.0, Some(Format::Kraken), Speed::Max).unwrap();
        assert_eq!(poll(&mut given, Duration::ZERO, 10), (vec![], Flow::Ended));
    }

    #[test]
    fn bytes_literals_are_read_as_python_writes_them() {
        let read = |line: &[u8]| split(line).map(|found| found.map(|(_, message)| message.into_owned()));
        for (line, message) in [
            (&br#"1.5: b'{"a":1}'"#[..], &br#"{"a":1}"#[..]),
            (br#"1.5: b"it's""#, b"it's"),
            (br"1.5: b'\\ \' \x7f\n\r\t \xeb'", b"\\ ' \x7f\n\r\t \xeb"),
            (b"1.5: b'", b"b'"),
            (b"1.5: {}", b"{}"),
        ] {
            assert_eq!(read(line), Ok(Some(message.to_vec())));
        }
        for wrong in [&br"1.5: b'\'"[..], br"1.5: b'\x1'", br"1.5: b'\q'"] {
            assert_eq!(read(wrong), Err(LineError::Escape));
        }
        for wrong in [&b"abc"[..], b"1.5", b"1.5:{}", b": {}", b"1e3: {}"] {
            assert!(matches!(read(wrong), Err(LineError::Line(_))));
        }
    }

    proptest! {
        #[test]
        fn damaged_recordings_are_read_without_a_panic(
            changes in proptest::collection::vec((0..KRAKEN.len(), any::<u8>()), 1..20)
        ) {
            let mut damaged = KRAKEN.as_bytes().to_vec();
            changes.into_iter().for_each(|(at, byte)| damaged[at] = byte);
            let recording = Recording::new(&damaged);
            let mut source = Capture::open(&recording.0, Some(Format::Kraken), Speed::Max).unwrap();
            let mut out = Vec::new();
            prop_assert_eq!(source.poll(Duration::ZERO, usize::MAX, &mut out), Flow::Ended);
            prop_assert_eq!(source.status().trades, out.len() as u64);
        }
    }
}
