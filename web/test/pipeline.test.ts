import assert from 'node:assert/strict';
import test from 'node:test';
import { duration, rate, sparkline, tone, verdictText, worst, type GroupLag, type VerdictWords } from '../src/pipeline/pipeline.ts';

const words: VerdictWords = {
  keepingUp: 'keeping up',
  catchingUp: 'catching up',
  surge: 'surge',
  consumerSlow: 'consumer slow',
  stalled: 'stalled',
  willDrain: 'will drain in {}',
  willDrainAfter: 'will drain in {} once it is over',
};

function group(verdict: GroupLag['verdict'], drain: number | null = null, after = false): GroupLag {
  return {
    group: 'g',
    topic: 't',
    skewed_partition: null,
    history: [],
    latency: null,
    partitions: [],
    lag_records: 1,
    age_s: null,
    behind_s: 0,
    production_per_s: 0,
    consumption_per_s: 0,
    trend: 'steady',
    drain_s: null,
    drain_if_stopped_s: null,
    verdict,
    verdict_text: '',
    verdict_drain_s: drain,
    verdict_after_surge: after,
    lost: 0,
  };
}

test('a verdict is a sentence with the time that it takes, rounded up', () => {
  assert.equal(verdictText(group('keeping_up'), words), 'keeping up');
  assert.equal(verdictText(group('surge', 11.2), words), 'surge, will drain in 12 s');
  assert.equal(verdictText(group('surge', 250, true), words), 'surge, will drain in 4 m 10 s once it is over');
  assert.equal(verdictText(group('catching_up', 0.2), words), 'catching up, will drain in 1 s');
  assert.equal(verdictText(group('consumer_slow'), words), 'consumer slow');
  assert.equal(verdictText(group('stalled'), words), 'stalled');
});

test('the whole is as bad as its worst part, the relay included', () => {
  assert.equal(worst({ groups: [], relay: null }), 'keeping_up');
  assert.equal(worst({ groups: [group('keeping_up'), group('stalled'), group('surge', 1)], relay: null }), 'stalled');
  const relay = (state: string) => ({ state, fault: null, lag_records: 0, age_s: 0 });
  assert.equal(worst({ groups: [group('keeping_up')], relay: relay('current') }), 'keeping_up');
  assert.equal(worst({ groups: [group('surge', 1)], relay: relay('waiting') }), 'consumer_slow');
  assert.equal(worst({ groups: [group('surge', 1)], relay: relay('stopped') }), 'stalled');
  assert.deepEqual(
    (['keeping_up', 'catching_up', 'surge', 'consumer_slow', 'stalled'] as const).map(tone),
    ['live', 'connecting', 'connecting', 'down', 'down'],
  );
});

test('times and rates are short', () => {
  const cases: [number, string][] = [
    [0, '0 s'],
    [0.0001, '1 ms'],
    [0.85, '850 ms'],
    [0.9999, '1.0 s'],
    [12.34, '12.3 s'],
    [59.99, '1 m 0 s'],
    [250, '4 m 10 s'],
    [3599.9, '1 h 0 m'],
    [11_100, '3 h 5 m'],
  ];
  for (const [seconds, text] of cases) assert.equal(duration(seconds), text);
  assert.deepEqual([0, 0.25, 9.99, 10, 1234.5].map(rate), ['0', '0.25', '9.99', '10', '1,235']);
});

test('a sparkline goes from the oldest at the left to the newest at the right, with zero at the bottom', () => {
  assert.equal(sparkline([], 100, 20), '');
  assert.equal(sparkline([5], 100, 20), '');
  assert.equal(sparkline([0, 10, 5], 100, 20), 'M0.0 20.0L50.0 0.0L100.0 10.0');
  assert.equal(sparkline([0, 0], 100, 20), 'M0.0 20.0L100.0 20.0');
});
