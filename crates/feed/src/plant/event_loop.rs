//! One loop: a thread, its queue, and the symbols that it owns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hoga_log::ring::{Full, Receiver, Sender};
use rustc_hash::FxHashMap;

use super::hot::{CALM, Hot, Moving};
use super::stats::{LoopCells, Shared};
use super::{Batch, Delivery, Handler, Input, PlantConfig, Word};
use crate::symbol::Symbol;
use crate::tick::FeedTick;

/// The pause of a loop that cannot pass a tick on.
const FULL: Duration = Duration::from_micros(100);

/// Where a symbol's state is.
enum Seat<S> {
    Here(S),
    /// On the loop with this number, which gets its ticks from here.
    Away(usize),
    /// On its way back from the loop with this number: its ticks wait here.
    Returning(usize),
}

/// A symbol, on the loop of its lane or on one of its own.
struct Slot<S> {
    symbol: Symbol,
    /// The loop of its lane.
    home: usize,
    seat: Seat<S>,
    /// Ticks that were taken from the queue and not handled.
    pending: Vec<FeedTick>,
    /// Nanoseconds in this window.
    cost_ns: u64,
    /// Windows in a row in which it took little.
    calm: u32,
    /// Whether it is to be worked on.
    touched: bool,
}

/// Which loop this is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) number: usize,
    /// Loops of lanes; those from this number on are for hot symbols.
    pub(super) homes: usize,
}

/// The ends of a loop's queues.
pub(super) struct Queues<S: Send> {
    pub(super) input: Receiver<Input<S>>,
    pub(super) words: Receiver<Word<S>>,
    /// Of all loops.
    pub(super) inputs: Vec<Sender<Input<S>>>,
    pub(super) word_to: Vec<Sender<Word<S>>>,
}

pub(super) struct EventLoop<H: Handler> {
    handler: H,
    place: Place,
    hot: Option<Hot>,
    batch: usize,
    idle: Duration,
    most_waiting: usize,
    queues: Queues<H::State>,
    stats: Arc<Shared>,
    index: FxHashMap<Symbol, usize>,
    slots: Vec<Option<Slot<H::State>>>,
    free: Vec<usize>,
    /// Slots with pending ticks, in the order in which these came.
    touched: Vec<usize>,
    /// Next hot loop to be given a symbol.
    turn: usize,
    window_began: Instant,
    /// When the second began that is being measured, and how long this loop had been busy then.
    second: (Instant, u64),
    flushed: Instant,
    away: u64,
    returning: u64,
}

/// Says that a loop of lanes is gone, however it went.
struct Gone<'a>(&'a Shared, bool);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.home_is_gone();
        }
    }
}

impl<H: Handler> EventLoop<H> {
    pub(super) fn new(
        handler: H,
        config: &PlantConfig,
        place: Place,
        queues: Queues<H::State>,
        stats: Arc<Shared>,
    ) -> EventLoop<H> {
        EventLoop {
            handler,
            place,
            hot: config.hot,
            batch: config.batch,
            idle: config.idle,
            most_waiting: config.queue,
            queues,
            stats,
            index: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            touched: Vec::new(),
            turn: place.number,
            window_began: Instant::now(),
            second: (Instant::now(), 0),
            flushed: Instant::now(),
            away: 0,
            returning: 0,
        }
    }

    fn is_home(&self) -> bool {
        self.place.number < self.place.homes
    }

    fn cells(&self) -> &LoopCells {
        &self.stats.loops[self.place.number]
    }

    pub(super) fn run(mut self) {
        let stats = self.stats.clone();
        let _gone = Gone(&stats, self.is_home());
        let mut inputs = Vec::with_capacity(self.batch);
        let mut places = vec![None; self.stats.lane_count()];
        loop {
            // Looked at before the queue: what was sent before the end is in it.
            let last = self.stats.no_more_for(self.place.number);
            let there = self.queues.input.wait(if last { Duration::ZERO } else { self.idle });
            let begun = Instant::now();
            self.take_words();
            self.queues.input.drain(self.batch, |input| inputs.push(input));
            self.cells().queue.store(self.queues.input.len() as u64, Ordering::Relaxed);
            let messages = inputs.len() as u64;
            let busy = messages > 0;
            let mut oldest: Option<Instant> = None;
            for input in inputs.drain(..) {
                match input {
                    Input::Tick(delivery) => {
                        oldest.get_or_insert(delivery.read);
                        places[delivery.lane as usize] = Some(delivery.offset + 1);
                        self.tick(&delivery);
                    }
                    Input::Forward(tick) => self.pend(tick),
                    Input::Adopt(moving) => self.adopt(*moving),
                    Input::Return { symbol } => self.give_back(symbol),
                    Input::Wake => {}
                }
            }
            if let Some(oldest) = oldest {
                let delay = begun.saturating_duration_since(oldest).as_nanos() as u64;
                self.cells().delay_max_ns.fetch_max(delay, Ordering::Relaxed);
            }
            self.work();
            for (lane, next) in (0..).zip(&mut places) {
                if let Some(next) = next.take() {
                    self.stats.lane_at(lane, next);
                }
            }
            if busy || self.flushed.elapsed() >= self.idle {
                let batch = Batch { read: oldest.unwrap_or(begun), messages };
                self.handler.flush(busy.then_some(batch));
                self.flushed = Instant::now();
            }
            self.end_window();
            if busy {
                // One thread writes it: no read-modify-write is needed.
                let before = self.cells().busy_ns.load(Ordering::Relaxed);
                self.cells().busy_ns.store(before + begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
            }
            self.end_second();
            if last && !there && !busy && (self.returning == 0 || !self.awaits_a_living_loop()) {
                break;
            }
        }
        for slot in self.slots.drain(..).flatten() {
            if let Seat::Here(state) = slot.seat {
                self.handler.close(slot.symbol, state);
            }
        }
        self.handler.flush(None);
    }

    /// Says how busy it was, once a second.
    fn end_second(&mut self) {
        let (began, busy_then) = self.second;
        let passed = began.elapsed();
        if passed < Duration::from_secs(1) {
            return;
        }
        let cells = self.cells();
        let busy = cells.busy_ns.load(Ordering::Relaxed);
        cells.load.store(u64::from(Hot::share(busy - busy_then, passed)), Ordering::Relaxed);
        let longest = cells.delay_max_ns.swap(0, Ordering::Relaxed);
        cells.delay_last_ns.store(longest, Ordering::Relaxed);
        self.second = (Instant::now(), busy);
    }

    /// A message from the bus.
    fn tick(&mut self, delivery: &Delivery) {
        let tick = match &delivery.odd {
            None => FeedTick::decode(&delivery.bytes[..usize::from(delivery.len)]).map_err(|e| e.to_string()),
            Some(message) => match &message.value {
                Some(value) => Err(format!("{} bytes are more than a tick has", value.len())),
                None => Err("a message without contents".to_owned()),
            },
        };
        match tick {
            Ok(tick) => self.pend(tick),
            Err(reason) => {
                self.stats.bad.fetch_add(1, Ordering::Relaxed);
                self.handler.bad(delivery.lane, &delivery.message(), &reason);
            }
        }
    }

    /// Puts a tick behind those of its symbol.
    fn pend(&mut self, tick: FeedTick) {
        let at = match self.index.get(&tick.symbol) {
            Some(at) => *at,
            None => {
                let state = self.handler.open(tick.symbol);
                self.sit(tick.symbol, self.place.number, state)
            }
        };
        let slot = self.slots[at].as_mut().expect("the index names slots that are taken");
        slot.pending.push(tick);
        if !slot.touched {
            slot.touched = true;
            self.touched.push(at);
        }
    }

    fn sit(&mut self, symbol: Symbol, home: usize, state: H::State) -> usize {
        let slot = Slot {
            symbol,
            home,
            seat: Seat::Here(state),
            pending: Vec::new(),
            cost_ns: 0,
            calm: 0,
            touched: false,
        };
        let at = self.free.pop().unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(Some(slot));
        } else {
            self.slots[at] = Some(slot);
        }
        self.index.insert(symbol, at);
        at
    }

    /// Handles or passes on all that is pending.
    fn work(&mut self) {
        let mut clock = Instant::now();
        for at in 0..self.touched.len() {
            clock = self.work_on(self.touched[at], clock);
        }
        self.touched.clear();
    }

    /// The same for one symbol; `clock` is the time now, and so is what it returns.
    fn work_on(&mut self, at: usize, clock: Instant) -> Instant {
        let Some(slot) = &mut self.slots[at] else { return clock };
        slot.touched = false;
        let count = slot.pending.len() as u64;
        if count == 0 {
            return clock;
        }
        match &mut slot.seat {
            Seat::Here(state) => {
                self.handler.ticks(state, &slot.pending);
                slot.pending.clear();
                let now = Instant::now();
                slot.cost_ns += now.saturating_duration_since(clock).as_nanos() as u64;
                let cells = &self.stats.loops[self.place.number];
                let add = |cell: &std::sync::atomic::AtomicU64, more: u64| {
                    cell.store(cell.load(Ordering::Relaxed) + more, Ordering::Relaxed);
                };
                add(&cells.ticks, count);
                add(&cells.calls, 1);
                if self.place.number >= self.place.homes {
                    self.stats.fewer_in_flight(count);
                }
                now
            }
            Seat::Away(to) => {
                let to = &self.queues.inputs[*to];
                self.stats.more_in_flight(count);
                // Where they do not arrive a thread has failed: the plant ends, and says why.
                for tick in slot.pending.drain(..) {
                    pass_on(to, Input::Forward(tick));
                }
                Instant::now()
            }
            Seat::Returning(from) => {
                let from = *from;
                // They stay pending until it is back. Too many: the loop has to wait for it, or the order would be lost.
                if slot.pending.len() < self.most_waiting {
                    return clock;
                }
                loop {
                    // Looked at before the words: what was sent before the end is in them.
                    let failed = self.queues.inputs[from].is_closed();
                    self.take_words();
                    let Some(slot) = &mut self.slots[at] else { return clock };
                    if !matches!(slot.seat, Seat::Returning(_)) {
                        return self.work_on(at, Instant::now());
                    }
                    if failed {
                        // Its state went down with that loop. The plant ends, and says why; the others go on until then.
                        slot.pending.clear();
                        return Instant::now();
                    }
                    self.queues.words.wait(self.idle);
                }
            }
        }
    }

    /// A hot symbol comes to this loop, which is for such.
    fn adopt(&mut self, moving: Moving<H::State>) {
        self.sit(moving.symbol, moving.home, moving.state);
    }

    /// A symbol goes back to the loop of its lane, after its ticks that are here.
    fn give_back(&mut self, symbol: Symbol) {
        let Some(at) = self.index.remove(&symbol) else { return };
        self.work_on(at, Instant::now());
        self.touched.retain(|touched| *touched != at);
        self.free.push(at);
        // What came of its ticks here has to be out before what comes of the next ones there.
        self.handler.flush(None);
        if let Some(Slot { home, seat: Seat::Here(state), .. }) = self.slots[at].take() {
            pass_on(&self.queues.word_to[home], Word::Back(Box::new(Moving { symbol, home, state })));
            // It may sleep at its other queue. If that is full it does not.
            let _ = self.queues.inputs[home].try_send_reserved(Input::Wake);
        }
    }

    /// Whether a symbol that is on its way back can still arrive.
    fn awaits_a_living_loop(&self) -> bool {
        self.slots.iter().flatten().any(|slot| match slot.seat {
            Seat::Returning(from) => !self.queues.inputs[from].is_closed(),
            _ => false,
        })
    }

    fn take_words(&mut self) {
        let mut words = Vec::new();
        self.queues.words.drain(usize::MAX, |word| words.push(word));
        for word in words {
            match word {
                Word::Calm(symbol) => self.call_back(symbol),
                Word::Back(moving) => self.seat_again(*moving),
            }
        }
    }

    /// A symbol of this loop has become calm on the loop it is on.
    fn call_back(&mut self, symbol: Symbol) {
        let Some(at) = self.index.get(&symbol) else { return };
        let slot = self.slots[*at].as_mut().expect("the index names slots that are taken");
        if let Seat::Away(to) = slot.seat {
            slot.seat = Seat::Returning(to);
            self.returning += 1;
            // Stands for the ticks that wait for it here.
            self.stats.more_in_flight(1);
            pass_on(&self.queues.inputs[to], Input::Return { symbol });
        }
    }

    /// A symbol of this loop is back.
    fn seat_again(&mut self, moving: Moving<H::State>) {
        let Some(at) = self.index.get(&moving.symbol).copied() else { return };
        let slot = self.slots[at].as_mut().expect("the index names slots that are taken");
        slot.seat = Seat::Here(moving.state);
        (slot.cost_ns, slot.calm) = (0, 0);
        let waits = !slot.pending.is_empty();
        (self.away, self.returning) = (self.away - 1, self.returning - 1);
        let cells = self.cells();
        cells.away.store(self.away, Ordering::Relaxed);
        cells.returned.fetch_add(1, Ordering::Relaxed);
        if waits {
            self.work_on(at, Instant::now());
        }
        self.stats.fewer_in_flight(1);
    }

    /// Looks at what each symbol has cost in the window that is over.
    fn end_window(&mut self) {
        let Some(hot) = self.hot else { return };
        let window = self.window_began.elapsed();
        if window < hot.window {
            return;
        }
        self.window_began = Instant::now();
        for at in 0..self.slots.len() {
            let Some(slot) = &mut self.slots[at] else { continue };
            let share = Hot::share(std::mem::take(&mut slot.cost_ns), window);
            if self.place.number >= self.place.homes {
                slot.calm = if share < hot.back_below { slot.calm + 1 } else { 0 };
                if slot.calm >= CALM
                    && self.queues.word_to[slot.home].try_send(Word::Calm(slot.symbol)).is_ok()
                {
                    slot.calm = 0;
                    // It may sleep at its other queue. If that is full it does not.
                    let _ = self.queues.inputs[slot.home].try_send_reserved(Input::Wake);
                }
            } else if share >= hot.move_above && self.away < u64::from(hot.most) {
                self.move_out(at, &hot);
            }
        }
    }

    /// A symbol goes to a loop for hot ones.
    fn move_out(&mut self, at: usize, hot: &Hot) {
        let to = self.place.homes + self.turn % hot.loops as usize;
        let Some(slot) = &mut self.slots[at] else { return };
        if !matches!(slot.seat, Seat::Here(_)) {
            return;
        }
        let Seat::Here(state) = std::mem::replace(&mut slot.seat, Seat::Away(to)) else { return };
        let moving = Moving { symbol: slot.symbol, home: self.place.number, state };
        pass_on(&self.queues.inputs[to], Input::Adopt(Box::new(moving)));
        self.turn += 1;
        self.away += 1;
        let cells = self.cells();
        cells.away.store(self.away, Ordering::Relaxed);
        cells.moved.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for room: what loops send each other is never thrown away. No two wait for each other: loops of lanes wait for room in the inputs of
/// hot loops, and hot loops only for room in the words of loops of lanes, which have more of it than there can be symbols on their way back.
fn pass_on<T: Send>(to: &Sender<T>, mut what: T) {
    while let Err(Full(back)) = to.try_send_reserved(what) {
        if to.is_closed() {
            return;
        }
        what = back;
        std::thread::sleep(FULL);
    }
}
