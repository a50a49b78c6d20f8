//! Follows `user.notification` from its end and hands each new notification on, for those who push.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hoga_log::event_log::EventLog;

use super::message::{NOTIFICATION, Notification, decode_notification};

/// Messages of one read.
const PAGE: usize = 256;
/// A pause when the log cannot be read, or has no such topic yet.
const PAUSE: Duration = Duration::from_millis(200);
/// A round over all partitions without messages.
const ROUND: Duration = Duration::from_millis(100);

/// Takes notifications as they come. Called on the tail's thread: must not block.
pub type Listener = Box<dyn Fn(&Notification) + Send>;

/// Reads until it is told to stop. A notification that was appended twice is handed on once: numbers of a partition only grow.
pub(crate) fn run(log: &Arc<dyn EventLog>, listener: &Listener, stop: &AtomicBool) {
    let mut next: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut told = false;
    while !stop.load(Ordering::Relaxed) {
        let specs = log.topics();
        let partitions =
            specs.iter().find(|spec| spec.name == NOTIFICATION).map_or(0, |spec| spec.partitions);
        if partitions == 0 {
            std::thread::sleep(PAUSE); // asked again: nobody tells us when the topic is made
        }
        // In turns: a log has no wait for many partitions. A message waits at most for one round.
        let turn = (ROUND / partitions.max(1)).max(Duration::from_millis(1));
        for partition in 0..partitions {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let read = || {
                let (offset, seen) = match next.get(&partition) {
                    Some(at) => *at,
                    None => (log.end_offset(NOTIFICATION, partition)?, 0),
                };
                log.wait_for(NOTIFICATION, partition, offset, turn)?;
                let mut page = Vec::new();
                let then = log.read(NOTIFICATION, partition, offset, PAGE, &mut page)?;
                Ok::<_, hoga_log::LogError>((then, seen, page))
            };
            match read() {
                Ok((then, mut seen, page)) => {
                    for message in &page {
                        let decoded = message.value.as_deref().and_then(decode_notification);
                        if let Some(notification) = decoded.filter(|n| n.id > seen) {
                            seen = notification.id;
                            listener(&notification);
                        }
                    }
                    next.insert(partition, (then, seen));
                    told = false;
                }
                Err(error) => {
                    if !told {
                        tracing::warn!(%error, "notifications cannot be pushed now");
                        told = true;
                    }
                    if !error.is_transient() {
                        // Most likely the place was dropped by retention: from the end again.
                        next.remove(&partition);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}
