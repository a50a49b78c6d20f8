// What is typed into the order form, checked against the market's filters and turned into a request. The server checks it all
// again; this only spares the user a round trip.

import { floorTo, parseUnits, plain, product, quotient, type Units } from '../decimal.ts';
import type { Market } from '../market/market.ts';

export type Side = 'BUY' | 'SELL';
export type Kind = 'limit' | 'market' | 'stop' | 'post';
export type TimeInForce = 'GTC' | 'IOC' | 'FOK';
export type Field = 'price' | 'stop' | 'amount' | 'total';

export interface Draft {
  side: Side;
  kind: Kind;
  timeInForce: TimeInForce;
  price: string;
  stop: string;
  amount: string;
  total: string;
  /** Which of amount and total the user typed last: the other one follows, and a market order is sent by this one. */
  by: 'amount' | 'total';
}

/** What is wrong with a field: a reason, and the bound that it missed where there is one. */
export interface Fault {
  field: Field;
  reason: 'number' | 'step' | 'minimum' | 'missing' | 'funds';
  bound?: string;
}

export type Checked = { order: Record<string, string> } | { fault: Fault };

const hasPrice = (kind: Kind): boolean => kind !== 'market';

/** The price that amount and total are converted by; null while it is not known. */
export function workingPrice(draft: Draft, last: Units | null): Units | null {
  if (!hasPrice(draft.kind)) return last;
  const price = parseUnits(draft.price);
  return price !== null && price > 0n ? price : null;
}

/** Fills in the field that follows from the one typed last. */
export function follow(draft: Draft, market: Market, last: Units | null): Draft {
  const price = workingPrice(draft, last);
  const typed = parseUnits(draft.by === 'amount' ? draft.amount : draft.total);
  const blank = typed === null || price === null || typed < 0n;
  if (draft.by === 'amount') return { ...draft, total: blank ? '' : plain(product(price, typed)) };
  return { ...draft, amount: blank ? '' : plain(floorTo(quotient(typed, price), market.step)) };
}

/** Sets amount or total to a share (in percent) of what is available: of the quote asset to buy, of the base asset to sell. */
export function takeShare(draft: Draft, percent: number, free: Units, market: Market, last: Units | null): Draft {
  const part = (free * BigInt(percent)) / 100n;
  if (draft.side === 'SELL') {
    return follow({ ...draft, by: 'amount', amount: plain(floorTo(part, market.step)) }, market, last);
  }
  if (draft.kind === 'market') {
    return follow({ ...draft, by: 'total', total: plain(floorTo(part, market.tick)) }, market, last);
  }
  const price = workingPrice(draft, last);
  if (price === null) return draft;
  const amount = floorTo(quotient(part, price), market.step);
  return follow({ ...draft, by: 'amount', amount: plain(amount) }, market, last);
}

/** The request for a draft, or the first thing that is wrong with it. `free`: what is available of the asset to be paid with. */
export function check(draft: Draft, market: Market, last: Units | null, free: Units | null): Checked {
  const order: Record<string, string> = { symbol: market.symbol, side: draft.side };
  let price: Units | null = last;
  if (hasPrice(draft.kind)) {
    const read = readField('price', draft.price, market.tick, market.minPrice);
    if ('fault' in read) return read;
    price = read.value;
    order['price'] = plain(read.value);
  }
  if (draft.kind === 'stop') {
    const read = readField('stop', draft.stop, market.tick, market.minPrice);
    if ('fault' in read) return read;
    order['stopPrice'] = plain(read.value);
    order['type'] = conditionalType(draft.side, read.value, last);
    order['timeInForce'] = draft.timeInForce;
  } else if (draft.kind === 'limit') {
    order['type'] = 'LIMIT';
    order['timeInForce'] = draft.timeInForce;
  } else order['type'] = draft.kind === 'post' ? 'LIMIT_MAKER' : 'MARKET';

  if (draft.kind === 'market' && draft.by === 'total') {
    const read = readField('total', draft.total, 1n, market.minNotional);
    if ('fault' in read) return read;
    order['quoteOrderQty'] = plain(read.value);
    const pays = draft.side === 'BUY' ? read.value : price === null ? 0n : quotient(read.value, price);
    return afford(order, 'total', pays, free);
  }
  const read = readField('amount', draft.amount, market.step, market.minQuantity);
  if ('fault' in read) return read;
  order['quantity'] = plain(read.value);
  const notional = price === null ? null : product(price, read.value);
  if (notional !== null && notional < market.minNotional) {
    return { fault: { field: 'total', reason: 'minimum', bound: `${plain(market.minNotional)} ${market.quote}` } };
  }
  return afford(order, 'amount', draft.side === 'SELL' ? read.value : (notional ?? 0n), free);
}

function afford(order: Record<string, string>, field: Field, pays: Units, free: Units | null): Checked {
  return free !== null && pays > free ? { fault: { field, reason: 'funds' } } : { order };
}

function readField(field: Field, text: string, step: Units, minimum: Units): { value: Units } | { fault: Fault } {
  if (text.trim() === '') return { fault: { field, reason: 'missing' } };
  const value = parseUnits(text.replaceAll(',', ''));
  if (value === null || value < 0n) return { fault: { field, reason: 'number' } };
  if (value === 0n) return { fault: { field, reason: 'missing' } };
  if (value < minimum) return { fault: { field, reason: 'minimum', bound: plain(minimum) } };
  if (step > 0n && value % step !== 0n) return { fault: { field, reason: 'step', bound: plain(step) } };
  return { value };
}

/** A stop above the market that buys, or below it that sells, follows the move; the other way round it takes a profit. */
function conditionalType(side: Side, stop: Units, last: Units | null): string {
  const above = last === null || stop >= last;
  return (side === 'BUY') === above ? 'STOP_LOSS_LIMIT' : 'TAKE_PROFIT_LIMIT';
}
