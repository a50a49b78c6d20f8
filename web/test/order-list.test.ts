import assert from 'node:assert/strict';
import test from 'node:test';
import type { ExecutionReport, OrderRow } from '../src/account/account-types.ts';
import { fillOfRow, isOpen, OrderList, orderOfRow } from '../src/account/order-list.ts';

function row(id: number, status: string, executed = '0', updateTime = 10): OrderRow {
  return {
    symbol: 'BTCUSDT',
    orderId: id,
    clientOrderId: `c${id}`,
    price: '100',
    origQty: '5',
    executedQty: executed,
    cummulativeQuoteQty: '0',
    status,
    timeInForce: 'GTC',
    type: 'LIMIT',
    side: 'BUY',
    time: 10,
    updateTime,
  };
}

function report(id: number, x: string, X: string, z: string, T: number, trade = -1): ExecutionReport {
  const fill = trade < 0 ? '0' : '1';
  return {
    e: 'executionReport',
    E: T,
    s: 'BTCUSDT',
    c: `c${id}`,
    S: 'BUY',
    o: 'LIMIT',
    f: 'GTC',
    q: '5',
    p: '100',
    P: '0',
    x,
    X,
    r: 'NONE',
    i: id,
    l: fill,
    L: '100',
    Y: '100',
    n: '0.001',
    N: 'BTC',
    t: trade,
    z,
    Z: '0',
    T,
    O: 10,
    m: true,
  };
}

const states = (list: OrderList): string =>
  [...list.open(), ...list.finished()].map(({ id, status }) => `${id}:${status}`).join(' ');

test('a finished order stays finished, whatever comes late', () => {
  const list = new OrderList();
  list.onReport(report(1, 'TRADE', 'FILLED', '5', 20, 7));
  list.put(orderOfRow(row(1, 'NEW')));
  list.onReport(report(1, 'NEW', 'NEW', '0', 10));
  assert.equal(states(list), '1:FILLED');
});

test('what was executed never shrinks', () => {
  const list = new OrderList();
  list.onReport(report(1, 'TRADE', 'PARTIALLY_FILLED', '2', 20, 7));
  list.onReport(report(1, 'TRADE', 'PARTIALLY_FILLED', '1', 15, 6));
  assert.equal(list.open()[0]?.executed, 200_000_000n);
  assert.equal(list.recentFills().length, 2, 'both fills are kept');
});

test('a fill known from both REST and the stream stands once', () => {
  const list = new OrderList();
  list.onReport(report(1, 'TRADE', 'PARTIALLY_FILLED', '1', 20, 7));
  list.putFill(
    fillOfRow({
      symbol: 'BTCUSDT',
      id: 7,
      orderId: 1,
      price: '100',
      qty: '1',
      quoteQty: '100',
      commission: '0.001',
      commissionAsset: 'BTC',
      time: 20,
      isBuyer: true,
      isMaker: true,
    }),
  );
  assert.equal(list.recentFills().length, 1);
});

test('after a lost connection an order that the server does not name is no longer open', () => {
  const list = new OrderList();
  for (const id of [1, 2]) list.put(orderOfRow(row(id, 'NEW')));
  const before = list.openKeys();
  list.onReport(report(3, 'NEW', 'NEW', '0', 30));
  list.reconcileOpen([row(2, 'NEW')], before);
  assert.deepEqual(list.open().map(({ id }) => id).sort(), [2, 3], 'one placed meanwhile is kept');
});

test('newest first', () => {
  const list = new OrderList();
  list.put({ ...orderOfRow(row(1, 'NEW')), time: 1 });
  list.put({ ...orderOfRow(row(2, 'NEW')), time: 2 });
  assert.equal(states(list), '2:NEW 1:NEW');
  assert.ok(list.open().every(isOpen));
});
