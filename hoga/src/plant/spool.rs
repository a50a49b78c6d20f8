//! The feed's spool over HTTP: what processors on another machine read when Redis Pub/Sub has lost something.

use std::time::Duration;

use hoga_api::Page;
use hoga_core::ids::Timestamp;
use hoga_feed::bus::Bus;
use hoga_lab::admin::Admin;
use hoga_log::LogError;
use hoga_log::event_log::StoredMessage;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most ticks of one answer.
const MOST: usize = 8192;
/// Between two looks for something new.
const LOOK: Duration = Duration::from_millis(10);

/// The path below which the spool is: `…/LANE/places` and `…/LANE/FROM/MOST`.
pub const PATH: &str = "/api/v1/feed/spool/";

/// The page for a path below [`PATH`]: first and end offset of a lane and the number of lanes, three numbers; or ticks, each with its length in front (4 bytes,
/// little-endian), behind the offset to read next and that of the first (8 bytes each).
pub fn page(spool: &dyn Bus, path: &str) -> Option<Page> {
    let parts: Vec<&str> = path.strip_prefix(PATH)?.split('/').collect();
    let text = |status, body: String| Page { status, content_type: "text/plain", body: body.into_bytes() };
    let lane: u32 = parts.first()?.parse().ok().filter(|lane| *lane < spool.lanes())?;
    let answer = match parts[1..] {
        ["places"] => places(spool, lane).map(|body| text(200, body)),
        [from, most] => {
            let (from, most) = (from.parse().ok()?, most.parse::<usize>().ok()?.min(MOST));
            ticks(spool, lane, from, most).map(|body| Page {
                status: 200,
                content_type: "application/octet-stream",
                body,
            })
        }
        _ => return None,
    };
    Some(answer.unwrap_or_else(|error| text(503, error.to_string())))
}

fn places(spool: &dyn Bus, lane: u32) -> Result<String, LogError> {
    Ok(format!("{} {} {}", spool.start(lane)?, spool.end(lane)?, spool.lanes()))
}

fn ticks(spool: &dyn Bus, lane: u32, from: u64, most: usize) -> Result<Vec<u8>, LogError> {
    let mut messages = Vec::new();
    let next = spool.read(lane, from, most, &mut messages)?;
    let first = messages.first().map_or(next, |message| message.offset);
    let mut body = Vec::with_capacity(16 + messages.len() * 100);
    body.extend_from_slice(&next.to_le_bytes());
    body.extend_from_slice(&first.to_le_bytes());
    for message in &messages {
        let value = message.value.as_deref().unwrap_or_default();
        body.extend_from_slice(&(value.len() as u32).to_le_bytes());
        body.extend_from_slice(value);
    }
    Ok(body)
}

/// The spool of a feed in another process.
pub struct SpoolClient {
    admin: Admin,
    lanes: u32,
}

impl SpoolClient {
    /// Asks how many lanes there are.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub fn connect(url: &str) -> Result<SpoolClient, LogError> {
        let mut client = SpoolClient { admin: Admin::at(url, "", TIMEOUT), lanes: 0 };
        client.lanes = u32::try_from(client.places(0)?[2]).unwrap_or(u32::MAX);
        Ok(client)
    }

    fn away(&self, reason: String) -> LogError {
        LogError::Unavailable {
            servers: self.admin.url().to_owned(),
            doing: "reading the spool of the feed",
            reason,
        }
    }

    fn places(&self, lane: u32) -> Result<[u64; 3], LogError> {
        let text =
            self.admin.text(&format!("{PATH}{lane}/places")).map_err(|error| self.away(error.to_string()))?;
        let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
        numbers.try_into().map_err(|_| self.away(format!("{text:?} is no answer of a feed")))
    }
}

impl Bus for SpoolClient {
    fn lanes(&self) -> u32 {
        self.lanes
    }

    fn start(&self, lane: u32) -> Result<u64, LogError> {
        Ok(self.places(lane)?[0])
    }

    fn end(&self, lane: u32) -> Result<u64, LogError> {
        Ok(self.places(lane)?[1])
    }

    fn read(&self, lane: u32, from: u64, most: usize, out: &mut Vec<StoredMessage>) -> Result<u64, LogError> {
        let body = self.admin.bytes(&format!("{PATH}{lane}/{from}/{most}"));
        let body = body.map_err(|error| self.away(error.to_string()))?;
        parse(&body, out).ok_or_else(|| self.away(format!("{} bytes are no answer of a feed", body.len())))
    }

    fn wait(&self, _: &[(u32, u64)], timeout: Duration) -> Result<(), LogError> {
        std::thread::sleep(timeout.min(LOOK)); // nobody tells us: it is asked again
        Ok(())
    }
}

/// Reads an answer; the offset to read next.
fn parse(body: &[u8], out: &mut Vec<StoredMessage>) -> Option<u64> {
    let (next, rest) = body.split_first_chunk::<8>()?;
    let (first, mut rest) = rest.split_first_chunk::<8>()?;
    let mut offset = u64::from_le_bytes(*first);
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let (value, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let value = (!value.is_empty()).then(|| value.to_vec());
        out.push(StoredMessage { offset, key: Vec::new(), value, time: Timestamp(0) });
        offset += 1;
        rest = more;
    }
    rest.is_empty().then_some(u64::from_le_bytes(*next))
}
