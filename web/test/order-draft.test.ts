import assert from 'node:assert/strict';
import test from 'node:test';
import { check, follow, takeShare, type Draft } from '../src/account/order-draft.ts';
import { paperMoney } from '../src/account/session.ts';
import { units } from '../src/decimal.ts';
import { marketsOf, type Market } from '../src/market/market.ts';

const btc: Market = marketsOf({
  symbols: [
    {
      symbol: 'BTCUSDT',
      status: 'TRADING',
      baseAsset: 'BTC',
      quoteAsset: 'USDT',
      filters: [
        { filterType: 'PRICE_FILTER', minPrice: '0.01000000', maxPrice: '1000000.00000000', tickSize: '0.01000000' },
        { filterType: 'LOT_SIZE', minQty: '0.00001000', maxQty: '9000.00000000', stepSize: '0.00001000' },
        { filterType: 'NOTIONAL', minNotional: '5.00000000', maxNotional: '9000000.00000000' },
      ],
    },
  ],
})[0]!;

const last = units('60000');
const draft = (part: Partial<Draft>): Draft => ({
  side: 'BUY',
  kind: 'limit',
  timeInForce: 'GTC',
  price: '60000',
  stop: '',
  amount: '0.01',
  total: '',
  by: 'amount',
  ...part,
});

test('a market is read from exchangeInfo', () => {
  assert.equal(btc.pricePlaces, 2);
  assert.equal(btc.quantityPlaces, 5);
  assert.equal(btc.minNotional, units('5'));
});

test('each kind of order becomes its request', () => {
  const common = { symbol: 'BTCUSDT', side: 'BUY' };
  const rows: [Partial<Draft>, Record<string, string>][] = [
    [{}, { price: '60000', type: 'LIMIT', timeInForce: 'GTC', quantity: '0.01' }],
    [{ timeInForce: 'FOK' }, { price: '60000', type: 'LIMIT', timeInForce: 'FOK', quantity: '0.01' }],
    [{ kind: 'post' }, { price: '60000', type: 'LIMIT_MAKER', quantity: '0.01' }],
    [{ kind: 'market' }, { type: 'MARKET', quantity: '0.01' }],
    [{ kind: 'market', by: 'total', total: '250' }, { type: 'MARKET', quoteOrderQty: '250' }],
    [
      { kind: 'stop', stop: '61000' },
      { price: '60000', stopPrice: '61000', type: 'STOP_LOSS_LIMIT', timeInForce: 'GTC', quantity: '0.01' },
    ],
    [
      { kind: 'stop', stop: '59000' },
      { price: '60000', stopPrice: '59000', type: 'TAKE_PROFIT_LIMIT', timeInForce: 'GTC', quantity: '0.01' },
    ],
  ];
  for (const [part, want] of rows) {
    assert.deepEqual(check(draft(part), btc, last, null), { order: { ...common, ...want } });
  }
  const stops = (stop: string) => check(draft({ side: 'SELL', kind: 'stop', stop }), btc, last, null);
  assert.equal((stops('59000') as { order: Record<string, string> }).order['type'], 'STOP_LOSS_LIMIT');
  assert.equal((stops('61000') as { order: Record<string, string> }).order['type'], 'TAKE_PROFIT_LIMIT');
});

test('what is wrong is said of the first wrong field', () => {
  const rows: [Partial<Draft>, string | null, object][] = [
    [{ price: '' }, null, { field: 'price', reason: 'missing' }],
    [{ price: 'abc' }, null, { field: 'price', reason: 'number' }],
    [{ price: '-1' }, null, { field: 'price', reason: 'number' }],
    [{ price: '60000.001' }, null, { field: 'price', reason: 'step', bound: '0.01' }],
    [{ amount: '0' }, null, { field: 'amount', reason: 'missing' }],
    [{ amount: '0.000001' }, null, { field: 'amount', reason: 'minimum', bound: '0.00001' }],
    [{ amount: '0.010001' }, null, { field: 'amount', reason: 'step', bound: '0.00001' }],
    [{ amount: '1e-05' }, null, { field: 'amount', reason: 'number' }],
    [{ amount: '0.00005' }, null, { field: 'total', reason: 'minimum', bound: '5 USDT' }],
    [{ kind: 'stop' }, null, { field: 'stop', reason: 'missing' }],
    [{}, '599.99', { field: 'amount', reason: 'funds' }],
    [{ side: 'SELL' }, '0.00999', { field: 'amount', reason: 'funds' }],
    [{ kind: 'market', by: 'total', total: '1000' }, '999', { field: 'total', reason: 'funds' }],
  ];
  for (const [part, free, want] of rows) {
    assert.deepEqual(check(draft(part), btc, last, free === null ? null : units(free)), { fault: want });
  }
});

test('amount and total follow each other', () => {
  assert.equal(follow(draft({ amount: '0.5' }), btc, last).total, '30000');
  assert.equal(follow(draft({ by: 'total', total: '100' }), btc, last).amount, '0.00166');
  assert.equal(follow(draft({ price: '' }), btc, last).total, '');
  assert.equal(follow(draft({ kind: 'market', price: '', amount: '2' }), btc, last).total, '120000');
});

test('shares of what is available can be paid for', () => {
  const free = units('1000');
  for (const percent of [25, 50, 75, 100]) {
    for (const part of [{}, { kind: 'market' } as const, { price: '59999.99' }]) {
      const taken = takeShare(draft(part), percent, free, btc, last);
      assert.ok('order' in check(taken, btc, last, free), `${percent} % ${JSON.stringify(part)}`);
    }
  }
  assert.equal(takeShare(draft({ side: 'SELL' }), 50, units('0.000151'), btc, last).amount, '0.00007');
});

test('play money fits the market', () => {
  const eth = { ...btc, symbol: 'ETHBTC', base: 'ETH', quote: 'BTC' };
  const doge = { ...btc, symbol: 'DOGEUSDT', base: 'DOGE' };
  const prices = new Map([['BTCUSDT', '64000'], ['ETHBTC', '0.05'], ['DOGEUSDT', '0.12']]);
  const money = paperMoney([btc, eth, doge], market => units(prices.get(market.symbol)!));
  assert.equal(money.get('BTC'), '1.00000000');
  assert.equal(money.get('USDT'), '100000.00000000');
  assert.equal(money.get('DOGE'), '100000.00000000');
  assert.equal(money.size, 4);
});
