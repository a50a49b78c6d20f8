import assert from 'node:assert/strict';
import test from 'node:test';
import { candleOfRow, CandleTimeline, type Candle } from '../src/market/candles.ts';

const candle = (time: number, close: string, trades = 1): Candle => ({
  time,
  open: '1',
  high: '2',
  low: '1',
  close,
  volume: '1',
  trades,
});
const text = (timeline: CandleTimeline): string => timeline.candles.map(({ time, close }) => `${time}:${close}`).join(' ');

test('history that comes newest first, twice or overlapping ends up ascending', () => {
  const timeline = new CandleTimeline();
  timeline.merge([candle(3, 'c'), candle(2, 'b'), candle(1, 'a'), candle(2, 'b')]);
  timeline.merge([candle(0, 'z'), candle(1, 'a')]);
  assert.equal(text(timeline), '0:z 1:a 2:b 3:c');
});

test('the stream never goes back in time: an update at 1602514740 after 1602514800', () => {
  const timeline = new CandleTimeline();
  assert.equal(timeline.apply(candle(1_602_514_800_000, 'new')), 'append');
  assert.equal(timeline.apply(candle(1_602_514_740_000, 'old')), 'stale');
  assert.equal(timeline.stale, 1);
  assert.equal(text(timeline), '1602514800000:new');
});

test('equal time replaces, a known older candle is revised in its place', () => {
  const timeline = new CandleTimeline();
  timeline.merge([candle(1, 'a'), candle(2, 'b'), candle(3, 'c')]);
  assert.equal(timeline.apply(candle(3, 'C', 2)), 'replace');
  assert.equal(timeline.apply(candle(2, 'B', 2)), 'revise');
  assert.equal(timeline.apply(candle(4, 'd')), 'append');
  assert.equal(text(timeline), '1:a 2:B 3:C 4:d');
});

test('of two versions of a candle the one with more trades stays, whichever came first', () => {
  const streamFirst = new CandleTimeline();
  streamFirst.apply(candle(5, 'later', 9));
  streamFirst.merge([candle(4, 'd', 3), candle(5, 'sooner', 8)]);
  assert.equal(text(streamFirst), '4:d 5:later');
  const streamOld = new CandleTimeline();
  streamOld.apply(candle(5, 'sooner', 8));
  streamOld.merge([candle(5, 'later', 9)]);
  assert.equal(text(streamOld), '5:later');
});

test('a row of the REST answer', () => {
  const row = candleOfRow([60_000, '1', '4', '0.5', '2', '10', 119_999, '20', 7, '5', '10', '0']);
  assert.deepEqual(row, { time: 60_000, open: '1', high: '4', low: '0.5', close: '2', volume: '10', trades: 7 });
});
