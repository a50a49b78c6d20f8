// ccxt of npm, class `binance`, against Hoga: everything a bot does, REST and WebSocket, and the class of each error.
//   HOGA_URL, HOGA_KEY, HOGA_SECRET, HOGA_KEY2, HOGA_SECRET2: a running server and two funded accounts. HOGA_NPM: where ccxt is installed.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { check, finish, refused } from './checks.mjs';

const ccxt = createRequire(`${process.env.HOGA_NPM}/package.json`)('ccxt');
const B = process.env.HOGA_URL;
const W = B.replace('http', 'ws');
const S = process.env.HOGA_MARKET ?? 'BTC/USDT';
const BASE = S.split('/')[0];
const QUOTE = S.split('/')[1];

// A refused watch call leaves a second rejection behind, which would end the process.
process.on('unhandledRejection', error => console.log(`note  unhandled rejection: ${error?.message ?? error}`));

async function client(apiKey, secret) {
  const ex = new ccxt.pro.binance({
    apiKey,
    secret,
    options: {
      defaultType: 'spot',
      fetchMarkets: { types: ['spot'] },
      fetchCurrencies: false,
      fetchMargins: false,
      fetchOpenOrders: { warnWithoutSymbol: false },
    },
  });
  for (const kind of ['public', 'private']) ex.urls.api[kind] = `${B}/api/v3`;
  ex.urls.api.v1 = `${B}/api/v1`;
  ex.urls.api.sapi = `${B}/sapi/v1`;
  ex.urls.api.ws.spot = `${W}/stream`;
  ex.urls.api.ws['ws-api'].spot = `${W}/ws-api/v3`;
  await ex.loadHttpProxyAgent();
  return ex;
}

const ex = await client(process.env.HOGA_KEY, process.env.HOGA_SECRET);
const other = await client(process.env.HOGA_KEY2, process.env.HOGA_SECRET2);
const number = value => assert.equal(typeof value, 'number', `${value} is no number`);
let market;

await check('loadMarkets', async () => {
  await ex.loadMarkets();
  await other.loadMarkets();
  market = ex.market(S);
  assert.equal(market.active, true);
  assert.ok(market.precision.price > 0 && market.precision.amount > 0);
  number(market.limits.amount.min);
  number(market.limits.cost.min);
  return `${ex.symbols.length} markets, steps ${market.precision.price} and ${market.precision.amount}`;
});
if (!market) finish();
const id = market.id;

// A live market moves: prices are taken from the book at the moment of use.
async function top() {
  const { bids, asks } = await ex.fetchOrderBook(S, 5);
  return { bid: bids[0][0], ask: asks[0][0] };
}
const round = price => Number(ex.priceToPrecision(S, price));
/** A price that rests: well below the market. */
const restingPrice = async () => round((await top()).bid * 0.98);
const AMOUNT = Number(ex.amountToPrecision(S, Math.max(market.limits.amount.min ?? 0, 0.001)));
const place = async ({ price, params = {} } = {}) =>
  ex.createOrder(S, 'limit', 'buy', AMOUNT, price ?? (await restingPrice()), params);

await check('fetchTime', async () => {
  const off = Math.abs((await ex.fetchTime()) - Date.now());
  assert.ok(off < 2_000, `${off} ms off`);
});
await check('fetchOrderBook', async () => {
  const book = await ex.fetchOrderBook(S, 5);
  assert.ok(book.bids.length > 0 && book.bids.length <= 5 && book.asks.length > 0 && book.asks.length <= 5);
  assert.ok(book.bids[0][0] < book.asks[0][0], 'crossed');
  number(book.nonce);
  const all = await ex.fetchOrderBook(S);
  assert.ok(all.bids.every(([price], i) => i === 0 || price < all.bids[i - 1][0]), 'bids are not in order');
  assert.ok(all.asks.every(([price], i) => i === 0 || price > all.asks[i - 1][0]), 'asks are not in order');
});
await check('a market order makes a first trade of our own', async () => {
  const order = await ex.createOrder(S, 'market', 'buy', AMOUNT);
  assert.equal(order.status, 'closed');
  assert.equal(order.filled, AMOUNT);
  assert.ok(order.average > 0 && order.trades.length > 0);
});
await check('fetchTicker', async () => {
  const ticker = await ex.fetchTicker(S);
  for (const field of ['last', 'bid', 'ask', 'open', 'high', 'low', 'baseVolume', 'quoteVolume']) number(ticker[field]);
  assert.ok(ticker.low <= ticker.last && ticker.last <= ticker.high);
});
await check('fetchTickers', async () => {
  assert.ok(S in (await ex.fetchTickers()));
  assert.deepEqual(Object.keys(await ex.fetchTickers([S])), [S]);
});
await check('fetchBidsAsks, fetchLastPrices', async () => {
  const { bid, ask } = (await ex.fetchBidsAsks([S]))[S];
  assert.ok(bid < ask);
  number((await ex.fetchLastPrices())[S].price);
});
await check('fetchTrades', async () => {
  const trades = await ex.fetchTrades(S);
  assert.ok(trades.length > 0);
  assert.ok(trades.every((trade, i) => i === 0 || trade.timestamp >= trades[i - 1].timestamp), 'not in order');
  assert.ok(['buy', 'sell'].includes(trades[0].side));
});
await check('fetchOHLCV', async () => {
  const candles = await ex.fetchOHLCV(S, '1m', undefined, 10);
  assert.ok(candles.length > 0 && candles.length <= 10);
  assert.ok(candles.every(([time], i) => i === 0 || time === candles[i - 1][0] + 60_000), 'not ascending by a minute');
  const [, open, high, low, close] = candles.at(-1);
  assert.ok(low <= Math.min(open, close) && high >= Math.max(open, close));
  const since = candles.at(-1)[0];
  assert.equal((await ex.fetchOHLCV(S, '1m', since, 5))[0][0], since, 'since is not respected');
});
await check('fetchBalance', async () => {
  const balance = await ex.fetchBalance();
  assert.ok(balance[BASE].free > 9 && balance[QUOTE].free > 500_000);
});

let resting;
await check('createOrder limit rests', async () => {
  const before = (await ex.fetchBalance())[QUOTE].used;
  resting = await place();
  assert.equal(resting.status, 'open');
  assert.equal(resting.filled, 0);
  const used = (await ex.fetchBalance())[QUOTE].used;
  assert.ok(Math.abs(used - before - resting.price * resting.amount) < 0.01, `held ${used - before}`);
});
await check('fetchOrder', async () => {
  const order = await ex.fetchOrder(resting.id, S);
  assert.equal(order.status, 'open');
  assert.equal(order.price, resting.price);
  assert.equal(order.amount, AMOUNT);
  assert.equal(order.clientOrderId, resting.clientOrderId);
});
await check('fetchOpenOrders', async () => {
  assert.ok((await ex.fetchOpenOrders(S)).some(order => order.id === resting.id));
  assert.ok((await ex.fetchOpenOrders()).some(order => order.id === resting.id));
});
await check('cancelOrder', async () => {
  assert.equal((await ex.cancelOrder(resting.id, S)).status, 'canceled');
  assert.equal((await ex.fetchOrder(resting.id, S)).status, 'canceled');
  assert.ok(!(await ex.fetchOpenOrders(S)).some(order => order.id === resting.id));
});
await check('fetchOrders, fetchClosedOrders, fetchCanceledOrders', async () => {
  assert.ok((await ex.fetchOrders(S)).some(order => order.id === resting.id));
  assert.ok((await ex.fetchClosedOrders(S)).length > 0);
  assert.ok((await ex.fetchCanceledOrders(S)).some(order => order.id === resting.id));
});
await check('clientOrderId: place, fetch, cancel', async () => {
  const clientOrderId = `own-${Date.now()}`;
  const order = await place({ params: { clientOrderId } });
  assert.equal(order.clientOrderId, clientOrderId);
  assert.equal((await ex.fetchOrder(undefined, S, { clientOrderId })).id, order.id);
  assert.equal((await ex.cancelOrder(undefined, S, { clientOrderId })).status, 'canceled');
});
await check('postOnly rests as LIMIT_MAKER', async () => {
  const order = await place({ params: { postOnly: true } });
  assert.equal(order.status, 'open');
  assert.equal(order.postOnly, true);
  await ex.cancelOrder(order.id, S);
});
await check('IOC below the market expires', async () => {
  const order = await place({ params: { timeInForce: 'IOC' } });
  assert.equal(order.status, 'expired');
  assert.equal(order.filled, 0);
});
await check('FOK above the market fills', async () => {
  const { ask } = await top();
  const order = await place({ price: round(ask * 1.01), params: { timeInForce: 'FOK' } });
  assert.equal(order.status, 'closed');
  assert.equal(order.filled, AMOUNT);
});
await check('stop-limit rests until it triggers', async () => {
  const { bid } = await top();
  const order = await ex.createOrder(S, 'STOP_LOSS_LIMIT', 'sell', AMOUNT, round(bid * 0.95), { stopPrice: round(bid * 0.955) });
  assert.equal(order.status, 'open');
  assert.equal(order.stopPrice ?? order.triggerPrice, round(bid * 0.955));
  await ex.cancelOrder(order.id, S);
});
await check('takeProfit on a limit order', async () => {
  const { bid } = await top();
  const order = await ex.createOrder(S, 'limit', 'sell', AMOUNT, round(bid * 1.04), { takeProfitPrice: round(bid * 1.035) });
  assert.equal(order.status, 'open');
  await ex.cancelOrder(order.id, S);
});
await check('market order by cost', async () => {
  const order = await ex.createMarketBuyOrderWithCost(S, 100);
  assert.equal(order.status, 'closed');
  assert.ok(order.cost > 0 && order.cost <= 100, `cost ${order.cost}`);
});
await check('market sell, its trades, its fee, the balance', async () => {
  const before = await ex.fetchBalance();
  const order = await ex.createOrder(S, 'market', 'sell', AMOUNT);
  assert.equal(order.status, 'closed');
  const mine = await ex.fetchMyTrades(S);
  assert.ok(mine.some(trade => trade.order === order.id));
  const trades = await ex.fetchOrderTrades(order.id, S);
  assert.ok(trades.length > 0 && trades.every(trade => trade.order === order.id));
  assert.equal(trades[0].fee.currency, QUOTE);
  const after = await ex.fetchBalance();
  assert.ok(Math.abs(before[BASE].total - after[BASE].total - AMOUNT) < 1e-9);
  const fee = trades.reduce((sum, trade) => sum + trade.fee.cost, 0);
  assert.ok(Math.abs(after[QUOTE].total - before[QUOTE].total - (order.cost - fee)) < 1e-4, 'the proceeds are not cost less fee');
});
await check('createOrder test', async () => {
  await place({ params: { test: true } });
});
await check('cancelAllOrders', async () => {
  for (let i = 0; i < 3; i += 1) await place();
  await ex.cancelAllOrders(S);
  assert.equal((await ex.fetchOpenOrders(S)).length, 0);
});

const raw = { symbol: id, side: 'BUY', type: 'LIMIT', timeInForce: 'GTC', quantity: ex.amountToPrecision(S, AMOUNT) };
const rawOrder = async part => ex.privatePostOrder({ ...raw, price: ex.priceToPrecision(S, await restingPrice()), ...part });
await check('InsufficientFunds', () =>
  refused(() => ex.createOrder(S, 'market', 'sell', 50), ccxt.InsufficientFunds, 'insufficient balance'));
await check('OrderImmediatelyFillable: post-only that would take', async () => {
  const { ask } = await top();
  await refused(() => place({ price: round(ask * 1.02), params: { postOnly: true } }), ccxt.OrderImmediatelyFillable, 'immediately match');
});
await check('OrderImmediatelyFillable: stop that would trigger at once', async () => {
  const { ask } = await top();
  const at = { stopPrice: round(ask * 1.03) };
  await refused(() => ex.createOrder(S, 'STOP_LOSS_LIMIT', 'sell', AMOUNT, round(ask * 1.02), at), ccxt.OrderImmediatelyFillable, 'trigger immediately');
});
await check('InvalidOrder: duplicate client order id, the first one untouched', async () => {
  const clientOrderId = `twice-${Date.now()}`;
  const first = await place({ params: { clientOrderId } });
  const price = round(first.price * 0.99);
  await refused(() => place({ price, params: { clientOrderId } }), ccxt.InvalidOrder, 'Duplicate order sent');
  assert.equal((await ex.fetchOrder(first.id, S)).status, 'open');
  await ex.cancelOrder(first.id, S);
});
await check('InvalidOrder: LOT_SIZE', () => refused(() => rawOrder({ quantity: '0.04749053' }), ccxt.InvalidOrder, 'LOT_SIZE'));
await check('InvalidOrder: PRICE_FILTER', async () => {
  const price = `${Math.floor(await restingPrice())}.00000100`;
  await refused(() => rawOrder({ price }), ccxt.InvalidOrder, 'PRICE_FILTER');
});
await check('BadRequest: NOTIONAL', () => refused(() => rawOrder({ quantity: String(market.precision.amount) }), ccxt.BadRequest, 'NOTIONAL'));
await check('OrderNotFound: cancel and fetch', async () => {
  await refused(() => ex.cancelOrder('999999999', S), ccxt.OrderNotFound);
  await refused(() => ex.fetchOrder('999999999', S), ccxt.OrderNotFound);
});
await check('OrderNotFound: somebody else’s order', async () => {
  const order = await place();
  await refused(() => other.cancelOrder(order.id, S), ccxt.OrderNotFound);
  await refused(() => other.fetchOrder(order.id, S), ccxt.OrderNotFound);
  await ex.cancelOrder(order.id, S);
});
await check('BadSymbol', () => refused(() => ex.publicGetDepth({ symbol: 'NOSUCHCOIN' }), ccxt.BadSymbol));
await check('BadRequest: missing and malformed parameters', async () => {
  await refused(() => ex.privatePostOrder({ ...raw, price: undefined, quantity: undefined }), ccxt.BadRequest);
  await refused(() => rawOrder({ quantity: 'abc' }), ccxt.BadRequest);
  await refused(() => rawOrder({ quantity: '1e-05' }), ccxt.BadRequest);
});
await check('InvalidNonce: a timestamp that is too old', async () => {
  ex.options.timeDifference = 60_000;
  await refused(() => ex.fetchBalance(), ccxt.InvalidNonce);
  ex.options.timeDifference = 0;
});
await check('AuthenticationError: wrong secret, unknown key', async () => {
  const wrongSecret = await client(process.env.HOGA_KEY, 'x'.repeat(64));
  wrongSecret.setMarkets(ex.markets);
  await refused(() => wrongSecret.fetchBalance(), ccxt.AuthenticationError);
  const unknown = await client('y'.repeat(64), 'x'.repeat(64));
  unknown.setMarkets(ex.markets);
  await refused(() => unknown.fetchBalance(), ccxt.AuthenticationError);
});

/** Makes a trade happen while a stream is watched. */
const nudge = () => other.createOrder(S, 'market', 'buy', AMOUNT);
await check('watchOrderBook: snapshot, then updates without a hole', async () => {
  let before = 0;
  let updates = 0;
  while (updates < 20) {
    const book = await ex.watchOrderBook(S);
    assert.ok(book.bids[0][0] < book.asks[0][0], 'crossed');
    assert.ok(book.nonce >= before, 'the update id went back');
    if (book.nonce > before) updates += 1;
    before = book.nonce;
    if (updates === 5) await place().then(order => ex.cancelOrder(order.id, S));
  }
  return `update ${before}`;
}, 60_000);
await check('watchTrades', async () => {
  const watching = ex.watchTrades(S);
  setTimeout(() => nudge().catch(() => {}), 500);
  const [trade] = await watching;
  number(trade.price);
  assert.ok(['buy', 'sell'].includes(trade.side));
});
await check('watchTicker, watchBidsAsks, watchOHLCV', async () => {
  const watching = Promise.all([ex.watchTicker(S), ex.watchBidsAsks([S]), ex.watchOHLCV(S, '1m')]);
  const again = setInterval(() => nudge().catch(() => {}), 1_000);
  try {
    const [ticker, quotes, candles] = await watching;
    number(ticker.last);
    assert.ok(quotes[S].bid < quotes[S].ask);
    assert.equal(candles.at(-1)[0] % 60_000, 0);
  } finally {
    clearInterval(again);
  }
});
await check('unWatchTrades', () => ex.unWatchTrades(S));

/** The first of an account's order updates that `wanted` takes. */
async function update(wanted) {
  for (;;) {
    const found = (await ex.watchOrders(S)).find(wanted);
    if (found) return found;
  }
}
await check('watchOrders: placed, canceled', async () => {
  let watching = update(order => order.status === 'open');
  await new Promise(resolve => setTimeout(resolve, 500));
  const order = await place();
  assert.equal((await watching).id, order.id);
  watching = update(({ id, status }) => id === order.id && status === 'canceled');
  await ex.cancelOrder(order.id, S);
  await watching;
});
await check('watchMyTrades, watchBalance, watchOrders: filled', async () => {
  const watching = Promise.all([ex.watchMyTrades(S), ex.watchBalance(), update(order => order.status === 'closed')]);
  await new Promise(resolve => setTimeout(resolve, 300));
  const order = await ex.createOrder(S, 'market', 'buy', AMOUNT);
  const [trades, balance, closed] = await watching;
  assert.equal(trades.at(-1).order, order.id);
  assert.equal(closed.id, order.id);
  number(balance[BASE].free);
});
await check('createOrderWs, fetchOrderWs, fetchOpenOrdersWs, cancelOrderWs', async () => {
  const order = await ex.createOrderWs(S, 'limit', 'buy', AMOUNT, await restingPrice());
  assert.equal(order.status, 'open');
  assert.equal((await ex.fetchOrderWs(order.id, S)).status, 'open');
  assert.ok((await ex.fetchOpenOrdersWs(S)).some(({ id }) => id === order.id));
  assert.equal((await ex.cancelOrderWs(order.id, S)).status, 'canceled');
});
await check('over the WebSocket API: InsufficientFunds, OrderNotFound', async () => {
  const { ask } = await top();
  await refused(() => ex.createOrderWs(S, 'limit', 'sell', 50, round(ask * 1.01)), ccxt.InsufficientFunds);
  await refused(() => ex.cancelOrderWs('999999999', S), ccxt.OrderNotFound);
});

await Promise.all([ex.close(), other.close()]);
finish();
