import assert from 'node:assert/strict';
import test from 'node:test';
import { plain } from '../src/decimal.ts';
import { DepthBook, grouped, type DepthEvent, type DepthSnapshot, type Level } from '../src/market/depth-book.ts';

type Pairs = [string, string][];

const event = (U: number, u: number, b: Pairs = [], a: Pairs = []): DepthEvent => ({ U, u, b, a });
const snapshot = (lastUpdateId: number, bids: Pairs = [['99', '1']], asks: Pairs = [['101', '1']]): DepthSnapshot => ({
  lastUpdateId,
  bids,
  asks,
});
const text = (side: readonly Level[]): string => side.map(({ price, quantity }) => `${plain(quantity)}@${plain(price)}`).join(' ');

function buffering(): DepthBook {
  const book = new DepthBook();
  book.restart(false);
  return book;
}

test('events before the snapshot are buffered, those that it holds are dropped, the rest is applied', () => {
  const book = buffering();
  assert.equal(book.onEvent(event(90, 100, [['98', '7']])), 'buffered');
  assert.equal(book.onEvent(event(101, 102, [['99', '2']])), 'buffered');
  assert.equal(book.onEvent(event(103, 103, [], [['101', '0'], ['102', '5']])), 'buffered');
  assert.equal(book.onSnapshot(snapshot(100)), 'applied');
  assert.equal(book.state, 'live');
  assert.equal(book.lastUpdateId, 103);
  assert.equal(text(book.bids), '2@99');
  assert.equal(text(book.asks), '5@102');
});

test('the first event may begin before the snapshot as long as it covers the next update', () => {
  for (const snapshotFirst of [false, true]) {
    const book = buffering();
    const first = event(95, 105, [['99', '3']]);
    if (snapshotFirst) assert.equal(book.onSnapshot(snapshot(100)), 'applied');
    assert.equal(book.onEvent(first), snapshotFirst ? 'applied' : 'buffered');
    if (!snapshotFirst) assert.equal(book.onSnapshot(snapshot(100)), 'applied');
    assert.equal(book.lastUpdateId, 105);
    assert.equal(book.gaps, 0);
    assert.equal(book.onEvent(event(104, 107)), 'resync', 'only the first one may');
  }
});

test('a snapshot taken before the stream began is a gap', () => {
  const book = buffering();
  book.onEvent(event(103, 105));
  assert.equal(book.onSnapshot(snapshot(100)), 'resync');
  assert.equal(book.gaps, 1);
});

test('a gap between buffered events is a gap', () => {
  const book = buffering();
  book.onEvent(event(101, 102));
  book.onEvent(event(104, 105));
  assert.equal(book.onSnapshot(snapshot(100)), 'resync');
});

test('live: the next event begins where the last one ended, a repeated one is dropped, a hole asks for a new snapshot', () => {
  const book = buffering();
  book.onSnapshot(snapshot(100));
  assert.equal(book.onEvent(event(101, 103, [['98.5', '4']])), 'applied');
  assert.equal(book.onEvent(event(101, 103, [['98.5', '9']])), 'duplicate');
  assert.equal(text(book.bids), '1@99 4@98.5');
  assert.equal(book.onEvent(event(105, 106)), 'resync');
  assert.equal(book.gaps, 1);
  book.restart(true);
  assert.equal(book.resyncs, 1);
  assert.equal(book.state, 'buffering');
  assert.equal(text(book.bids), '');
  assert.equal(book.onEvent(event(105, 106)), 'buffered');
  assert.equal(book.onSnapshot(snapshot(106)), 'applied');
});

test('a crossed copy has lost a removal', () => {
  const book = buffering();
  book.onSnapshot(snapshot(100));
  assert.equal(book.onEvent(event(101, 101, [['101', '1']])), 'resync');
});

test('quantities are absolute, zero removes, zero of an unknown price is nothing', () => {
  const book = buffering();
  book.onSnapshot(snapshot(1, [['99', '1'], ['98', '1']], [['101', '1'], ['103', '1']]));
  book.onEvent(event(2, 2, [['99', '5'], ['97', '0'], ['98', '0'], ['98.01', '2']], [['102', '3'], ['104', '0']]));
  assert.equal(text(book.bids), '5@99 2@98.01');
  assert.equal(text(book.asks), '1@101 3@102 1@103');
});

test('the same as a naive copy over many random events', () => {
  // A small linear congruential generator: the same events in every run.
  let seed = 12_345;
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed % below;
  };
  const book = buffering();
  book.onSnapshot(snapshot(0, [], []));
  const naive = { b: new Map<number, number>(), a: new Map<number, number>() };
  for (let id = 1; id <= 5_000; id += 1) {
    const onBid = random(2) === 0;
    const price = onBid ? 1 + random(60) : 61 + random(60);
    const quantity = random(4);
    const side = onBid ? naive.b : naive.a;
    if (quantity === 0) side.delete(price);
    else side.set(price, quantity);
    const level: Pairs = [[String(price), String(quantity)]];
    assert.equal(book.onEvent(event(id, id, onBid ? level : [], onBid ? [] : level)), 'applied');
  }
  const sorted = (side: Map<number, number>, sign: number): string =>
    [...side].sort(([x], [y]) => sign * (x - y)).map(([price, quantity]) => `${quantity}@${price}`).join(' ');
  assert.equal(text(book.bids), sorted(naive.b, -1));
  assert.equal(text(book.asks), sorted(naive.a, 1));
});

test('levels join away from the middle', () => {
  const book = buffering();
  book.onSnapshot(snapshot(1, [['99.9', '1'], ['99.1', '2'], ['98.5', '4']], [['100.1', '1'], ['100.9', '2'], ['101', '4'], ['101.5', '8']]));
  const one = 100_000_000n;
  assert.equal(text(grouped(book.bids, one, 5, true)), '3@99 4@98');
  assert.equal(text(grouped(book.asks, one, 5, false)), '7@101 8@102');
  assert.equal(text(grouped(book.asks, one, 1, false)), '7@101');
});
