//! Writing events, and the running hash over them.

use crate::book::table::mix;
use crate::event::{Balance, Event, EventRecord, Execution, OrderEvent};
use crate::ids::{ClientId, Seq, Timestamp};
use crate::order::Order;

/// Writes the events of one command.
pub(super) struct Emitter<'a> {
    out: &'a mut Vec<EventRecord>,
    seq: Seq,
    pub(super) time: Timestamp,
    index: u32,
    chain: u64,
}

/// Distinct words for the places of a fold, so that equal fields in different places give different hashes.
const PLACES: [u64; 64] = {
    let mut places = [0; 64];
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut at = 0;
    while at < places.len() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        places[at] = word ^ (word >> 31);
        at += 1;
    }
    places
};

/// Hashes words pairwise; the pairs are independent, so the processor overlaps them.
#[inline]
pub(super) fn fold<const N: usize>(words: [u64; N]) -> u64 {
    let mut hash = N as u64;
    let mut at = 0;
    while at < N {
        let second = if at + 1 < N { words[at + 1] } else { 0 };
        hash ^= mix(words[at] ^ PLACES[at], second ^ PLACES[at + 1]);
        at += 2;
    }
    hash
}

/// Hashes a text.
pub(super) fn fold_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64 ^ PLACES[0];
    for part in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        hash = mix(hash ^ u64::from_le_bytes(word), PLACES[1]);
    }
    hash
}

fn fold_client(client: &ClientId) -> u64 {
    if client.is_none() { 0 } else { fold(client.words()) }
}

fn fold_balance(balance: &Balance) -> [u64; 2] {
    [balance.free.0 as u64, balance.locked.0 as u64]
}

/// What changes in an order during its life, and at its birth also what does not.
fn fold_order(event: &OrderEvent) -> u64 {
    let Order { id, request, status, working, filled, filled_quote, prevented, .. } = event.order;
    let [base_free, base_locked] = fold_balance(&event.base);
    let [quote_free, quote_locked] = fold_balance(&event.quote);
    let codes = u64::from(event.execution as u8) | u64::from(status as u8) << 8 | u64::from(working) << 16;
    let live = fold([
        id.0,
        codes,
        request.price.0 as u64,
        request.qty.0 as u64,
        filled.0 as u64,
        filled_quote.0 as u64,
        prevented.0 as u64,
        event.prevented.0 as u64,
        base_free,
        base_locked,
        quote_free,
        quote_locked,
    ]);
    let fill = match &event.fill {
        Some(fill) => fold([
            fill.trade.0,
            fill.price.0 as u64,
            fill.qty.0 as u64,
            fill.quote.0 as u64,
            fill.fee.0 as u64,
            u64::from(fill.fee_asset.0) | u64::from(fill.maker) << 16,
            fill.counter_order.0,
            u64::from(fill.counter_account.0),
        ]),
        None => 0,
    };
    let birth = match event.execution {
        Execution::New => fold([
            u64::from(request.account.0) | u64::from(request.market.0) << 32,
            u64::from(request.side as u8)
                | u64::from(request.order_type as u8) << 8
                | u64::from(request.tif as u8) << 16
                | u64::from(request.stp as u8) << 24
                | u64::from(request.trailing_delta) << 32,
            request.stop_price.0 as u64,
            request.quote_qty.0 as u64,
            request.iceberg_qty.0 as u64,
            event.order.list_id,
            fold_client(&request.client_id),
        ]),
        Execution::Canceled => fold_client(&event.cancel_id),
        _ => 0,
    };
    fold([live, fill, birth])
}

fn fold_event(event: &Event) -> u64 {
    match event {
        Event::Order(event) => fold_order(event),
        Event::Trade(t) => fold([
            u64::from(t.market.0) | u64::from(t.taker_side as u8) << 16,
            t.id.0,
            t.price.0 as u64,
            t.qty.0 as u64,
            t.quote.0 as u64,
            t.buy_order.0,
            t.sell_order.0,
            u64::from(t.buyer.0) | u64::from(t.seller.0) << 32,
            t.buyer_fee.0 as u64,
            t.seller_fee.0 as u64,
        ]),
        Event::Level(l) => fold([
            u64::from(l.market.0) | u64::from(l.side as u8) << 16,
            l.price.0 as u64,
            l.qty.0 as u64,
            l.update_id,
        ]),
        Event::Rejected(r) => fold([
            u64::from(r.account.0) | u64::from(r.reason as u8) << 32,
            r.market.map_or(u64::MAX, |market| u64::from(market.0)),
            fold_client(&r.client_id),
        ]),
        Event::Transfer(t) => {
            let [free, locked] = fold_balance(&t.balance);
            fold([
                u64::from(t.account.0)
                    | u64::from(t.asset.0) << 32
                    | u64::from(t.kind as u8) << 48
                    | u64::from(t.repeated) << 56,
                t.amount.0 as u64,
                t.withdrawal.0,
                free,
                locked,
                fold_client(&t.reference),
            ])
        }
        Event::AccountCreated { account } => fold([u64::from(account.0)]),
        Event::AssetAdded { id, name } => fold([u64::from(id.0), fold_bytes(name.as_str().as_bytes())]),
        Event::StateSet { market, state } => fold([u64::from(market.0), u64::from(*state as u8)]),
        Event::InstrumentSet(_) => fold_rare(event),
    }
}

/// For events so rare that their encoded bytes can be hashed.
fn fold_rare(event: &Event) -> u64 {
    let mut bytes = Vec::new();
    if let Event::InstrumentSet(instrument) = event {
        crate::codec::Writer::new(&mut bytes).instrument(instrument);
    }
    fold_bytes(&bytes)
}

fn kind(event: &Event) -> u64 {
    match event {
        Event::AssetAdded { .. } => 1,
        Event::InstrumentSet(_) => 2,
        Event::StateSet { .. } => 3,
        Event::AccountCreated { .. } => 4,
        Event::Transfer(_) => 5,
        Event::Order(_) => 6,
        Event::Trade(_) => 7,
        Event::Level(_) => 8,
        Event::Rejected(_) => 9,
    }
}

impl<'a> Emitter<'a> {
    pub(super) fn new(out: &'a mut Vec<EventRecord>, seq: Seq, time: Timestamp, chain: u64) -> Emitter<'a> {
        Emitter { out, seq, time, index: 0, chain }
    }

    /// Writes an event. Inlined and handed over as a closure, so that the event is built in the buffer instead of being copied there; it is
    /// hashed where it lies.
    #[inline(always)]
    pub(super) fn emit(&mut self, event: Event) {
        let (seq, index, time) = (self.seq, self.index, self.time);
        self.out.extend(std::iter::once_with(|| EventRecord { seq, index, time, event }));
        self.chain_last();
    }

    fn chain_last(&mut self) {
        if let Some(record) = self.out.last() {
            let hash = fold_event(&record.event);
            let place = self.seq.0 ^ (u64::from(self.index) << 40) ^ (kind(&record.event) << 56);
            let time = self.time.0 as u64;
            self.chain = mix(self.chain ^ hash, PLACES[2]) ^ mix(place ^ PLACES[3], time ^ PLACES[4]);
            self.index += 1;
        }
    }

    /// The running hash after the events written so far.
    pub(super) fn chain(&self) -> u64 {
        self.chain
    }
}
