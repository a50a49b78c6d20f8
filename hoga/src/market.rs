//! Who feeds orders from inside the process: the built-in market's definition, the simulated flow, and what recordings need too.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hoga_core::command::Body;
use hoga_core::event::{Event, EventRecord};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AccountId, Timestamp};
use hoga_engine::{EngineHandle, Lost, Reply, ReplySink, ReplyTo, SubmitError, Subscriber};
use hoga_sim::flow::{ACCOUNTS, Flow, FlowConfig, Watcher};

use crate::{End, config};

/// Commands of one feeder under way at most.
const UNDER_WAY: u64 = 1_024;

/// How long a feeder waits for an answer before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A thread that feeds orders.
pub struct Feeder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

impl Feeder {
    /// Starts one. The work looks at the flag and ends soon after it is set.
    pub fn start(
        name: &str,
        work: impl FnOnce(&AtomicBool) -> Result<(), String> + Send + 'static,
    ) -> std::io::Result<Feeder> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&seen))?;
        Ok(Feeder { stop, thread })
    }

    /// Whether it has come to its end.
    pub fn finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it; what went wrong, if something did.
    pub fn stop(self) -> Result<(), String> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| "the feeder panicked; its message is in the log".to_owned())?
    }
}

/// Keeps to planned times, from the moment it is made.
pub struct Pacer {
    begun: Instant,
    speed: Option<f64>,
}

impl Pacer {
    /// At a multiple of the planned speed, or without waiting.
    pub fn new(speed: Option<f64>) -> Pacer {
        Pacer { begun: Instant::now(), speed }
    }

    /// Waits until the planned time; false when it was told to stop.
    pub fn wait(&mut self, planned: Duration, stop: &AtomicBool) -> bool {
        if let Some(speed) = self.speed {
            let due = self.begun + planned.div_f64(speed);
            while !stop.load(Ordering::Acquire) {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                // In slices, so that a stop is seen soon.
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
        }
        !stop.load(Ordering::Acquire)
    }
}

/// Counts commands under way, and hands single answers over.
#[derive(Default)]
struct Window {
    under_way: AtomicU64,
    refused: AtomicU64,
    trades: AtomicU64,
    lock: Mutex<()>,
    bell: Condvar,
}

impl ReplySink for Window {
    fn reply(&self, _: u64, reply: &Reply<'_>) {
        let trades = reply.events.iter().filter(|e| matches!(e.event, Event::Trade(_))).count();
        self.trades.fetch_add(trades as u64, Ordering::Relaxed);
        self.refused.fetch_add(u64::from(reply.outcome.is_err()), Ordering::Relaxed);
        self.done();
    }

    fn lost(&self, _: u64, _: Lost) {
        self.done();
    }
}

impl Window {
    fn done(&self) {
        let before = self.under_way.fetch_sub(1, Ordering::AcqRel);
        // Only the edges wake anybody: a wake for each answer would cost the gate a system call each.
        if before == 1 || before == UNDER_WAY / 2 {
            drop(self.lock.lock());
            self.bell.notify_all();
        }
    }

    fn wait_below(&self, limit: u64, stop: &AtomicBool) -> bool {
        let mut guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        while self.under_way.load(Ordering::Acquire) >= limit {
            if stop.load(Ordering::Acquire) {
                return false;
            }
            guard =
                self.bell.wait_timeout(guard, Duration::from_millis(20)).unwrap_or_else(|e| e.into_inner()).0;
        }
        true
    }
}

struct Single(mpsc::SyncSender<Result<Vec<EventRecord>, String>>);

impl ReplySink for Single {
    fn reply(&self, _: u64, reply: &Reply<'_>) {
        let answer = match reply.outcome {
            Ok(()) => Ok(reply.events.to_vec()),
            Err(reject) => Err(reject.as_str().to_owned()),
        };
        let _ = self.0.try_send(answer); // whoever asked no longer waits
    }

    fn lost(&self, _: u64, _: Lost) {
        let _ = self.0.try_send(Err(STOPPED.to_owned())); // as above
    }
}

const STOPPED: &str = "the engine stopped";

/// Sends commands to the engine from inside the process.
pub struct Submitter {
    engine: EngineHandle,
    window: Arc<Window>,
}

impl Submitter {
    /// For an engine.
    pub fn new(engine: EngineHandle) -> Submitter {
        Submitter { engine, window: Arc::default() }
    }

    /// Sends without waiting for the answer, as long as not too many are under way. A full ring is waited for: a feeder is the least of
    /// the engine's clients.
    pub fn send(&self, body: Body, stop: &AtomicBool) -> Result<(), String> {
        if !self.window.wait_below(UNDER_WAY, stop) {
            return Ok(());
        }
        loop {
            self.window.under_way.fetch_add(1, Ordering::AcqRel);
            let sink: Arc<dyn ReplySink> = self.window.clone();
            match self.engine.submit(body, Timestamp(0), ReplyTo::new(sink, 0)) {
                Ok(()) => return Ok(()),
                Err(SubmitError::Stopped) => {
                    self.window.done();
                    return if stop.load(Ordering::Acquire) { Ok(()) } else { Err(STOPPED.to_owned()) };
                }
                Err(SubmitError::Busy) => {
                    self.window.done();
                    if stop.load(Ordering::Acquire) {
                        return Ok(());
                    }
                    std::thread::sleep(Duration::from_millis(1)); // the ring has no bell for producers
                }
            }
        }
    }

    /// Waits until everything sent is answered.
    pub fn settle(&self, stop: &AtomicBool) -> Result<(), String> {
        self.window.wait_below(1, stop);
        Ok(())
    }

    /// Of what was sent without waiting and is answered: how many trades it made, and how many commands were refused by the rules.
    pub fn tally(&self) -> (u64, u64) {
        (self.window.trades.load(Ordering::Relaxed), self.window.refused.load(Ordering::Relaxed))
    }

    /// Sends a command and waits for its events; a reject is an error.
    pub fn ask(&self, body: Body) -> Result<Vec<EventRecord>, String> {
        let (answer, answered) = mpsc::sync_channel(1);
        let sink: Arc<dyn ReplySink> = Arc::new(Single(answer));
        self.engine.submit(body, Timestamp(0), ReplyTo::new(sink, 0)).map_err(|e| e.to_string())?;
        answered.recv_timeout(PATIENCE).map_err(|_| "no answer came".to_owned())?
    }

    /// As [`Submitter::ask`], with `None` for a reject.
    pub fn try_ask(&self, body: Body) -> Result<Option<Vec<EventRecord>>, String> {
        match self.ask(body) {
            Ok(events) => Ok(Some(events)),
            Err(error) if error == STOPPED => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Asks the engine's state.
    pub fn look<R: Send + 'static>(
        &self,
        ask: impl FnOnce(&Exchange) -> R + Send + 'static,
    ) -> Result<R, String> {
        self.engine.query(ask).and_then(|ticket| ticket.wait(PATIENCE)).map_err(|e| e.to_string())
    }
}

/// Defines the built-in assets and markets, as far as they are not there yet: a folder that an older release made gets the newer ones. One
/// that has others in their places keeps them, and no market is simulated there.
pub fn define(engine: &EngineHandle) -> Result<(), End> {
    let submitter = Submitter::new(engine.clone());
    let fail =
        |error: String| End::Start(format!("[market-definition] the markets cannot be defined: {error}"));
    for body in missing(&submitter).map_err(fail)?.unwrap_or_default() {
        submitter.ask(body).map_err(fail)?;
    }
    Ok(())
}

/// The built-in definitions that are not there yet; `None` when others have their numbers.
fn missing(submitter: &Submitter) -> Result<Option<Vec<Body>>, String> {
    submitter.look(|exchange| {
        let (assets, markets) = (exchange.assets(), exchange.instruments());
        let mut missing = Vec::new();
        for body in hoga_sim::market::default_market() {
            let there = match &body {
                Body::AddAsset { id, name } => assets.get(usize::from(id.0)).map(|a| a == name),
                Body::SetInstrument(new) => {
                    markets.get(usize::from(new.id.0)).map(|m| m.symbol == new.symbol)
                }
                _ => None,
            };
            match there {
                Some(true) => {}
                Some(false) => return None,
                None => missing.push(body),
            }
        }
        Some(missing)
    })
}

/// Shows the simulated traders what the exchange shows everybody, and their own orders. A subscriber of the engine that is idle until the
/// simulation starts.
#[derive(Clone, Default)]
pub struct Tap(Arc<Mutex<Option<Watcher>>>);

impl Subscriber for Tap {
    fn on_events(&mut self, events: &[EventRecord]) {
        if let Some(watcher) = self.0.lock().unwrap_or_else(|e| e.into_inner()).as_mut() {
            watcher.on_events(events);
        }
    }
}

/// The accounts of the simulated traders, kept beside the data so that a restart goes on with them.
fn traders(submitter: &Submitter, dir: &Path) -> Result<(Vec<AccountId>, bool), String> {
    let path = dir.join("traders.json");
    if let Ok(text) = std::fs::read_to_string(&path) {
        let ids: Vec<u32> = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        if ids.len() >= ACCOUNTS {
            return Ok((ids.into_iter().map(AccountId).collect(), false));
        }
    }
    let mut accounts = Vec::new();
    for _ in 0..ACCOUNTS {
        let events = submitter.ask(Body::CreateAccount)?;
        accounts.extend(events.iter().filter_map(|e| match e.event {
            Event::AccountCreated { account } => Some(account),
            _ => None,
        }));
    }
    let ids: Vec<u32> = accounts.iter().map(|a| a.0).collect();
    std::fs::write(&path, format!("{ids:?}")).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok((accounts, true))
}

/// Starts the simulated market: makers, takers and news on the built-in markets.
pub fn simulate(
    engine: EngineHandle,
    tap: &Tap,
    settings: &config::Market,
    dir: &Path,
) -> Result<Feeder, End> {
    let fail =
        |error: String| End::Start(format!("[market-start] the simulated market cannot start: {error}"));
    let submitter = Submitter::new(engine);
    if missing(&submitter).map_err(fail)?.is_none_or(|missing| !missing.is_empty()) {
        return Err(fail(
            "this folder has other assets or markets in the places of the built-in ones. Choose another with --data, or use --no-market"
                .into(),
        ));
    }
    let (accounts, fresh) = traders(&submitter, dir).map_err(fail)?;
    let session = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let flow_config = FlowConfig { seed: settings.seed ^ session, rate: f64::from(settings.rate), session };
    let mut flow = Flow::new(flow_config, &accounts);
    if fresh {
        for body in flow.deposits() {
            submitter.ask(body).map_err(fail)?;
        }
    }
    let slot = tap.0.clone();
    submitter
        .look(move |exchange| {
            *slot.lock().unwrap_or_else(|e| e.into_inner()) = Some(Watcher::new(exchange, &accounts));
        })
        .map_err(fail)?;
    let slot = tap.0.clone();
    Feeder::start("market", move |stop| {
        let view = || slot.lock().unwrap_or_else(|e| e.into_inner());
        let missing = || "the view of the market is gone".to_owned();
        let opening = {
            let guard = view();
            let watcher = guard.as_ref().ok_or_else(missing)?;
            flow.anchor(watcher);
            flow.opening(watcher)
        };
        for body in opening {
            submitter.send(body, stop)?;
        }
        submitter.settle(stop)?;
        let mut pacer = Pacer::new(Some(1.0));
        loop {
            let planned = flow.next(view().as_ref().ok_or_else(missing)?);
            if !pacer.wait(planned.at, stop) {
                return Ok(());
            }
            submitter.send(planned.body, stop)?;
        }
    })
    .map_err(|e| fail(e.to_string()))
}
