// The local copy of an order book, kept by the documented rules: buffer the stream's events, take a snapshot, drop what the
// snapshot already holds, and from then on apply an event only when it starts where the one before it ended. On a gap the copy
// is worthless: it says so and starts over.

import { units, type Units } from '../decimal.ts';

export interface DepthEvent {
  /** First and last update id in the event. */
  U: number;
  u: number;
  b: [price: string, quantity: string][];
  a: [price: string, quantity: string][];
}

export interface DepthSnapshot {
  lastUpdateId: number;
  bids: [price: string, quantity: string][];
  asks: [price: string, quantity: string][];
}

export interface Level {
  price: Units;
  quantity: Units;
}

export type BookState = 'empty' | 'buffering' | 'live';

/** What an event or a snapshot led to. `resync`: the caller fetches a new snapshot. */
export type FoldResult = 'buffered' | 'applied' | 'duplicate' | 'resync';

/** While a snapshot is on its way, at most this many events are kept; beyond it the oldest fall out and a gap shows. */
const BUFFER_LIMIT = 5_000;

export class DepthBook {
  /** Best first: bids downwards, asks upwards. */
  readonly bids: Level[] = [];
  readonly asks: Level[] = [];
  state: BookState = 'empty';
  lastUpdateId = 0;
  /** Events that did not start where the last one ended. */
  gaps = 0;
  /** Snapshots taken again because the copy could not be trusted any more. */
  resyncs = 0;
  private buffer: DepthEvent[] = [];
  /** No event was applied to the snapshot yet. */
  private bare = false;

  /** Forgets the levels and starts to buffer: called before each snapshot is asked for. `resync`: of the same market again. */
  restart(resync: boolean): void {
    this.bids.length = 0;
    this.asks.length = 0;
    this.buffer = [];
    this.state = 'buffering';
    this.lastUpdateId = 0;
    if (resync) this.resyncs += 1;
  }

  onEvent(event: DepthEvent): FoldResult {
    if (this.state !== 'live') {
      this.buffer.push(event);
      if (this.buffer.length > BUFFER_LIMIT) this.buffer.shift();
      return 'buffered';
    }
    if (event.u <= this.lastUpdateId) return 'duplicate';
    // The first event after a snapshot has to cover the next update; it may begin earlier, as quantities are absolute.
    const next = this.lastUpdateId + 1;
    if (this.bare ? event.U > next : event.U !== next) {
      this.gaps += 1;
      return 'resync';
    }
    return this.apply(event);
  }

  onSnapshot(snapshot: DepthSnapshot): FoldResult {
    fill(this.bids, snapshot.bids, true);
    fill(this.asks, snapshot.asks, false);
    this.lastUpdateId = snapshot.lastUpdateId;
    const waiting = this.buffer;
    this.buffer = [];
    this.state = 'live';
    this.bare = true;
    for (const event of waiting) {
      if (this.onEvent(event) === 'resync') return 'resync';
    }
    return 'applied';
  }

  private apply(event: DepthEvent): FoldResult {
    for (const [price, quantity] of event.b) put(this.bids, units(price), units(quantity), true);
    for (const [price, quantity] of event.a) put(this.asks, units(price), units(quantity), false);
    this.lastUpdateId = event.u;
    this.bare = false;
    const bid = this.bids[0];
    const ask = this.asks[0];
    // A crossed copy means that a removal was lost, whatever the ids say.
    if (bid && ask && bid.price >= ask.price) {
      this.gaps += 1;
      return 'resync';
    }
    return 'applied';
  }
}

function fill(side: Level[], levels: [string, string][], descending: boolean): void {
  side.length = 0;
  for (const [price, quantity] of levels) put(side, units(price), units(quantity), descending);
}

/** Sets the absolute quantity at a price; zero removes the level. */
function put(side: Level[], price: Units, quantity: Units, descending: boolean): void {
  let low = 0;
  let high = side.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const at = side[middle]!.price;
    if (descending ? at > price : at < price) low = middle + 1;
    else high = middle;
  }
  const found = side[low]?.price === price;
  if (quantity === 0n) {
    if (found) side.splice(low, 1);
  } else if (found) side[low]!.quantity = quantity;
  else side.splice(low, 0, { price, quantity });
}

/** Joins levels into steps of `step` (bids downwards, asks upwards) and returns the best `count` of them. */
export function grouped(side: readonly Level[], step: Units, count: number, isBid: boolean): Level[] {
  const out: Level[] = [];
  for (const { price, quantity } of side) {
    const rest = price % step;
    const at = rest === 0n ? price : isBid ? price - rest : price - rest + step;
    const last = out[out.length - 1];
    if (last && last.price === at) last.quantity += quantity;
    else if (out.length === count) break;
    else out.push({ price: at, quantity });
  }
  return out;
}
