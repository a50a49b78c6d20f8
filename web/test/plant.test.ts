import assert from 'node:assert/strict';
import test from 'node:test';
import { concernOf, faultsOf, figuresOf, latestSwitches, micros, Rate, toneOf } from '../src/plant/figures.ts';
import { Operator } from '../src/plant/operator.ts';
import { differencesOf, plantOf, type Group, type Groups, type Plant } from '../src/plant/plant.ts';
import { pause } from '../src/plant/watch.ts';
import { Refused } from '../src/rest.ts';

/** As the server says it, with more fields than are read. */
const STATUS = {
  node: 'n1', epoch: 7, ticks: 90, behind: 0, behind_ms: 0, stale: 0, written_p50_us: 40, written_p99_us: 192,
  violations: 1, duplicates: 2, gaps: 3, lost: 4, steps_back: 0, bad: 0, loops_wanted: 1, rebuilding: false,
};
const GROUP = {
  group: 'a', active: true, connected: true, leader: 'n1', epoch: 7, behind: 0, behind_ms: 0, stale: 0, rebuilding: false,
  status: STATUS, refused: 0, members: [{ leads: true, status: STATUS }], fault: null,
};
const LOOP = { hot: false, ticks: 5, load: 0.25, queue: 1, delay_us: 900, away: 2, moved: 2, returned: 0 };
const ANSWER = {
  feed: { ticks: 100, repeated: 1, full: 0, ended: false, fault: null, published: { ticks: 90, waiting: 10, connected: true }, source: {} },
  members: [{ group: 'a', node: 'n1', leads: true, epoch: 7, refused: 0, rebuilt: 0, status: STATUS, fault: null, loops: [LOOP], heavy_loops: null }],
  groups: {
    active: 'a', switches: 1, switched: [{ from: 'b', to: 'a', reason: 'it has no leader', automatic: true }],
    a: GROUP, b: { ...GROUP, group: 'b', active: false }, compared: 80, only_one: 1, differs: 0, gaps: 0,
  },
  sockets: [],
};

const plant = (): Plant => plantOf(ANSWER);
const group = (changes: Partial<Group> = {}): Group => ({ ...groups().a, ...changes });
/** Nobody is heard: so the server says it. */
const LEADERLESS: Partial<Group> = { leader: null, status: null, behind: 0, behind_ms: 0, stale: 0 };

function groups(changes: Partial<Groups> = {}): Groups {
  const found = plant().groups;
  assert.ok(found);
  return { ...found, ...changes };
}

test('an answer is read field by field', () => {
  const { feed, members, groups } = plant();
  assert.deepEqual(feed, { ticks: 100, repeated: 1, full: 0, ended: false, fault: null, published: { waiting: 10, connected: true } });
  assert.deepEqual(members[0]?.loops, [{ hot: false, ticks: 5, load: 0.25, queue: 1, delay_us: 900, away: 2 }]);
  assert.deepEqual(members[0]?.heavy_loops, []);
  assert.deepEqual([groups?.active, groups?.a.leader, groups?.b.active], ['a', 'n1', false]);
  assert.deepEqual(groups?.a.members, [{ node: 'n1', leads: true }]);
  assert.deepEqual(groups?.switched, [{ from: 'b', to: 'a', reason: 'it has no leader', automatic: true }]);
});

test('a process may have only some of the parts, and a group no leader and no cache', () => {
  assert.deepEqual(plantOf({ feed: null, members: [], groups: null, sockets: [] }), { feed: null, members: [], groups: null });
  const b = { ...GROUP, active: false, connected: false, leader: null, epoch: null, status: null, refused: null, members: null, fault: 'away' };
  const found = plantOf({ ...ANSWER, groups: { ...ANSWER.groups, b } }).groups?.b;
  assert.deepEqual([found?.leader, found?.status, found?.refused, found?.members, found?.fault], [null, null, null, null, 'away']);
});

test('what is no such answer is refused, and the field is named', () => {
  assert.throws(() => plantOf(null), /the plant is no object/);
  assert.throws(() => plantOf({ ...ANSWER, members: 3 }), /members is no list/);
  assert.throws(() => plantOf({ ...ANSWER, feed: { ...ANSWER.feed, ticks: '100' } }), /ticks is no number/);
  assert.throws(() => plantOf({ ...ANSWER, groups: { ...ANSWER.groups, active: 'c' } }), /active is no a or b/);
});

test('differences are read; a process that shows no groups has none', () => {
  const mark = { epoch: 7, seq: 12, last: '1.5', candles: '0', hash: '0' };
  const one = { symbol: 'BTCUSDT', seq: 12, epoch: 7, kind: 'candles', a: mark, b: mark };
  assert.deepEqual(differencesOf({ compared: 1, only_one: 0, differences: [one] }), [{ symbol: 'BTCUSDT', seq: 12, kind: 'candles' }]);
  assert.deepEqual(differencesOf(null), []);
  assert.throws(() => differencesOf({ differences: [{ ...one, kind: 'colour' }] }), /kind is no last or candles or output/);
});

test('a rate takes two looks, and begins anew when the total does', () => {
  const ticks = new Rate();
  assert.equal(ticks.take(1000, 0), null);
  assert.equal(ticks.take(3000, 1000), 2000);
  assert.equal(ticks.take(3010, 1004), 2000, 'two looks at about the same time say nothing');
  assert.equal(ticks.take(4000, 2000), 1000);
  assert.equal(ticks.take(50, 3000), null, 'restarted');
  assert.equal(ticks.take(60, 5000), 5);
  assert.equal(ticks.take(60, 6000), 0);
  ticks.clear();
  assert.equal(ticks.take(60, 7000), null);
});

test('a group that works has figures, and those that should be zero stand out', () => {
  const figures = figuresOf(group({ behind: 1234, behind_ms: 20, stale: 2, refused: 5 }));
  assert.deepEqual(figures.behind, { text: '1,234 · 20 ms', wrong: false });
  assert.deepEqual(figures.stale, { text: '2', wrong: true });
  assert.deepEqual(figures.written, { text: '192 µs', wrong: false });
  assert.deepEqual(figures.refused, { text: '5', wrong: false });
  assert.deepEqual(figures.members, { text: '1', wrong: false });
  assert.deepEqual([figures.outOfOrder, figures.again, figures.gaps, figures.lost].map(({ text }) => text), ['1', '2', '3', '4']);
  assert.deepEqual([figures.outOfOrder, figures.again, figures.gaps, figures.lost].map(({ wrong }) => wrong), [true, false, false, true]);
  assert.equal(figuresOf(group({ behind: 9, behind_ms: 1000 })).behind.wrong, true);
});

test('a group without a leader has unknown figures, not zeros', () => {
  const { refused, members, ...others } = figuresOf(group(LEADERLESS));
  for (const [name, { text, wrong }] of Object.entries(others)) assert.deepEqual([text, wrong], ['–', false], name);
  assert.deepEqual([refused.text, members.text], ['0', '1'], 'the cache still says these');
  const away = figuresOf(group({ ...LEADERLESS, refused: null, members: null }));
  assert.deepEqual([away.refused.text, away.members.text], ['–', '–']);
  assert.equal(figuresOf(group({ members: [] })).members.wrong, true);
});

test('what is wrong with the shown group goes first, then faults, differences, the other group', () => {
  const of = (changes: Partial<Groups>, fault: string | null = null) => {
    const { feed } = plant();
    assert.ok(feed);
    return concernOf({ ...plant(), feed: { ...feed, fault }, groups: groups(changes) });
  };
  const lost = group(LEADERLESS);
  assert.deepEqual(of({}), { kind: 'fine' });
  assert.deepEqual(of({ b: lost }), { kind: 'no_leader', group: 'b' });
  assert.deepEqual(of({ b: lost, differs: 3 }), { kind: 'differs', symbols: 3 });
  assert.deepEqual(of({ differs: 3 }, 'disk'), { kind: 'fault', text: 'disk' });
  assert.deepEqual(of({ a: lost, differs: 3 }, 'disk'), { kind: 'no_leader', group: 'a' });
  assert.deepEqual(of({ a: lost, active: 'b' }), { kind: 'no_leader', group: 'a' });
  assert.deepEqual(of({ a: group({ rebuilding: true }) }), { kind: 'rebuilding', group: 'a' });
  assert.deepEqual(of({ a: group({ behind: 5, behind_ms: 999 }) }), { kind: 'fine' });
  assert.deepEqual(of({ a: group({ behind: 5, behind_ms: 1000 }) }), { kind: 'behind', group: 'a' });
  assert.deepEqual(of({ a: group({ stale: 1 }) }), { kind: 'stale', group: 'a' });
  assert.deepEqual(of({ a: group({ stale: 1 }), differs: 1 }), { kind: 'differs', symbols: 1 });
  assert.deepEqual(concernOf({ feed: null, members: [], groups: null }), { kind: 'fine' });
});

test('red is what reaches those who watch', () => {
  assert.equal(toneOf({ kind: 'fine' }, 'a'), 'live');
  assert.equal(toneOf({ kind: 'no_leader', group: 'a' }, 'a'), 'down');
  assert.equal(toneOf({ kind: 'no_leader', group: 'b' }, 'a'), 'connecting');
  assert.equal(toneOf({ kind: 'differs', symbols: 1 }, 'a'), 'down');
  assert.equal(toneOf({ kind: 'stale', group: 'a' }, 'a'), 'connecting');
  assert.equal(toneOf({ kind: 'fault', text: '' }, null), 'down');
});

test('the latest switches come first, five of them', () => {
  const switched = ['1', '2', '3', '4', '5', '6'].map(reason => ({ from: 'a' as const, to: 'b' as const, reason, automatic: false }));
  assert.deepEqual(latestSwitches(groups({ switched })).map(({ reason }) => reason), ['6', '5', '4', '3', '2']);
  assert.deepEqual(latestSwitches(groups({ switched: [] })), []);
});

test('faults are told with whose they are', () => {
  assert.deepEqual(faultsOf(plant(), 'Feed'), []);
  const { feed, members } = plant();
  assert.ok(feed && members[0]);
  const found = { feed: { ...feed, fault: 'closed' }, members: [{ ...members[0], fault: 'disk full' }], groups: groups({ b: group({ fault: 'away' }) }) };
  assert.deepEqual(faultsOf(found, 'Feed'), ['Feed: closed', 'n1: disk full', 'B: away']);
  assert.deepEqual(faultsOf({ feed: null, members: [], groups: null }, 'Feed'), []);
});

test('short times are in microseconds and tenths of milliseconds', () => {
  assert.deepEqual([0, 192, 999, 1928, 9_949, 9_950, 2_500_000].map(micros), ['0 µs', '192 µs', '999 µs', '1.9 ms', '9.9 ms', '10 ms', '2.5 s']);
});

test('where there is no plant it is asked seldom; an open panel asks each second', () => {
  assert.equal(pause('none', true), 30_000);
  assert.equal(pause('none', false), 30_000);
  assert.equal(pause('there', true), 1_000);
  assert.equal(pause('away', true), 1_000);
  assert.equal(pause('there', false), 10_000);
});

test('the operator’s token is asked for once; one that is not taken is asked for again', async () => {
  const asked: string[] = [];
  const answers: (string | null)[] = ['wrong', 'right', null];
  const operator = new Operator(fault => {
    asked.push(fault);
    return Promise.resolve(answers.shift() ?? null);
  });
  const work = (token: string): Promise<string> =>
    token === 'right' ? Promise.resolve('done') : Promise.reject(new Refused(401, -1002, 'not authorized'));
  assert.equal(await operator.run(work), 'done');
  assert.equal(await operator.run(work), 'done');
  assert.deepEqual(asked, ['', 'not authorized']);
  const conflict = (): Promise<string> => Promise.reject(new Refused(409, -2010, 'the groups differ'));
  await assert.rejects(operator.run(conflict), /the groups differ/);
  assert.equal(await operator.run(work), 'done', 'a refusal for another reason keeps the token');
  assert.deepEqual(asked.length, 2);
  assert.equal(await operator.run(() => Promise.reject(new Refused(401, -1002, 'changed'))), null, 'closed without a token');
});
