//! A reader of what is shown, which remembers everything that should not be.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_feed::Symbol;
use hoga_feed::groups::{Update, View};

/// What it has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Epoch and last number of each symbol.
    pub places: BTreeMap<Symbol, (u32, u64)>,
    /// Quotes.
    pub quotes: u64,
    /// Numbers that no quote stood for.
    pub gaps: u64,
    /// Quotes with a number below the last.
    pub back: u64,
    /// Quotes with the number of the last one. A late tick may cause one; ticks of a gateway are never late.
    pub again: u64,
    /// The longest time without any quote since the last look.
    pub silence: Duration,
    /// The oldest quote when it was seen (now − the trade's time) since the last look.
    pub oldest: Duration,
}

pub(crate) struct Reader {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub(crate) fn start(view: &View) -> Reader {
        let (seen, stop) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let updates = view.subscribe();
        let (told, stopped) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || read(&updates, &told, &stopped));
        Reader { seen, stop, thread: Some(thread) }
    }

    /// What it has seen so far; silence and age begin anew.
    pub(crate) fn look(&self) -> Seen {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = seen.clone();
        (seen.silence, seen.oldest) = (Duration::ZERO, Duration::ZERO);
        copy
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only counts.
            let _ = thread.join();
        }
    }
}

fn read(updates: &Receiver<Update>, seen: &Mutex<Seen>, stop: &AtomicBool) {
    let mut last: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        let update = updates.recv_timeout(Duration::from_millis(10));
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(last) = last {
            seen.silence = seen.silence.max(now - last);
        }
        let Ok(Update::Quote(quote)) = update else { continue };
        last = Some(now);
        seen.quotes += 1;
        let output = &quote.output;
        let place = (output.mark.epoch, output.mark.seq);
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
        let age = Duration::from_micros(clock.saturating_sub(output.time.0).max(0) as u64);
        seen.oldest = seen.oldest.max(age);
        if let Some(before) = seen.places.insert(output.symbol, place) {
            seen.back += u64::from(place < before);
            seen.again += u64::from(place == before);
            if before.0 == place.0 {
                seen.gaps += output.first.saturating_sub(before.1 + 1);
            }
        } else {
            seen.gaps += output.first - 1;
        }
    }
}
