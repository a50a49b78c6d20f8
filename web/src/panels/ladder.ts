// The depth ladder: asks above, bids below, the spread between, a bar behind each row for what waits up to there.

import type { AccountFeed } from '../account/account-feed.ts';
import { basisPoints, ceilTo, floorTo, formatUnits, ONE, plain, type Units } from '../decimal.ts';
import { grouped, type Level } from '../market/depth-book.ts';
import type { MarketFeed } from '../market/market-feed.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { words } from '../shell/words.ts';
import { oncePerFrame } from '../signal.ts';

const ROW_HEIGHT = 20;
const MOST_ROWS = 40;
const FEWEST_ROWS = 5;
const STEPS = [1n, 10n, 100n, 1_000n] as const;

interface Row {
  button: HTMLButtonElement;
  bar: HTMLElement;
  price: HTMLElement;
  quantity: HTMLElement;
  sum: HTMLElement;
  at: Units | null;
}

export function ladderPanel(feed: MarketFeed, account: AccountFeed, pick: (price: Units) => void): HTMLElement {
  let factor: bigint = 1n;
  const row = (): Row => {
    const bar = h('span', { class: 'bar' });
    const price = h('span', { class: 'price' });
    const quantity = h('span', {});
    const sum = h('span', { class: 'sum' });
    const button = h('button', { type: 'button', class: 'ladder-row number', tabindex: -1 }, bar, price, quantity, sum);
    const made: Row = { button, bar, price, quantity, sum, at: null };
    button.addEventListener('click', () => made.at !== null && pick(made.at));
    return made;
  };
  const asks = h('div', { class: 'ladder-side asks', 'data-test': 'asks' });
  const bids = h('div', { class: 'ladder-side bids', 'data-test': 'bids' });
  const askRows: Row[] = [];
  const bidRows: Row[] = [];
  const last = h('strong', { class: 'number' }, '–');
  const spread = h('span', { class: 'number dim' });
  const unit = () => h('span', { class: 'head-unit' });
  const baseUnit = unit();
  const quoteUnit = unit();
  const quoteLabel = h('span', {}, words.price, quoteUnit);
  const baseLabel = h('span', {}, words.amount, baseUnit);
  const sumLabel = h('span', { class: 'sum' });
  const grouping = h('select', { 'aria-label': words.grouping, class: 'small-select' });
  grouping.addEventListener('change', () => {
    factor = STEPS[grouping.selectedIndex] ?? 1n;
    draw();
  });
  const labels = (): void => {
    const { market } = feed;
    factor = 1n;
    grouping.replaceChildren(...STEPS.map(step => h('option', {}, plain(market.tick * step))));
    setText(quoteUnit, ` (${market.quote})`);
    setText(baseUnit, ` (${market.base})`);
    setText(sumLabel, words.total);
  };

  const room = (rows: Row[], side: HTMLElement): number => {
    const wanted = Math.max(FEWEST_ROWS, Math.min(MOST_ROWS, Math.floor(side.clientHeight / ROW_HEIGHT)));
    while (rows.length < wanted) {
      const made = row();
      rows.push(made);
      // The best price is next to the spread on both sides, so asks grow upwards.
      if (side === asks) side.prepend(made.button);
      else side.append(made.button);
    }
    while (rows.length > wanted) rows.pop()?.button.remove();
    return wanted;
  };

  const fillRows = (rows: Row[], levels: Level[], most: Units, tone: string, own: ReadonlySet<Units>): void => {
    const { pricePlaces, quantityPlaces } = feed.market;
    const places = Math.min(quantityPlaces, 5);
    let sum = 0n;
    rows.forEach((shown, place) => {
      const level = levels[place];
      shown.at = level?.price ?? null;
      setText(shown.price, level ? formatUnits(level.price, pricePlaces, true) : '');
      setText(shown.quantity, level ? formatUnits(level.quantity, places, true) : '');
      sum += level?.quantity ?? 0n;
      setText(shown.sum, level ? formatUnits(sum, Math.min(places, 3), true) : '');
      setClass(shown.button, `ladder-row number ${level ? tone : 'blank'}${level && own.has(level.price) ? ' own' : ''}`);
      shown.bar.style.transform = `scaleX(${level ? basisPoints(sum, most) / 10_000 : 0})`;
    });
  };

  /** The rows in which orders of the user's own rest. */
  const ownPrices = (step: Units): { asks: Set<Units>; bids: Set<Units> } => {
    const asks = new Set<Units>();
    const bids = new Set<Units>();
    for (const order of account.orders.open()) {
      if (order.symbol !== feed.market.symbol || order.price === 0n) continue;
      if (order.side === 'BUY') bids.add(floorTo(order.price, step));
      else asks.add(ceilTo(order.price, step));
    }
    return { asks, bids };
  };

  let before: Units | null = null;
  const draw = oncePerFrame(() => {
    const { market, book } = feed;
    const step = market.tick * factor;
    const askLevels = grouped(book.asks, step, room(askRows, asks), false);
    const bidLevels = grouped(book.bids, step, room(bidRows, bids), true);
    const total = (levels: Level[]): Units => levels.reduce((sum, { quantity }) => sum + quantity, 0n);
    const most = [total(askLevels), total(bidLevels)].reduce((x, y) => (x > y ? x : y));
    const own = ownPrices(step);
    fillRows(askRows, askLevels, most, 'ask', own.asks);
    fillRows(bidRows, bidLevels, most, 'bid', own.bids);
    const price = feed.lastPrice();
    setText(last, price === null ? '–' : formatUnits(price, market.pricePlaces, true));
    if (price !== null && before !== null && price !== before) setClass(last, `number ${price > before ? 'up' : 'down'}`);
    before = price;
    const bid = book.bids[0]?.price;
    const ask = book.asks[0]?.price;
    if (book.state !== 'live') setText(spread, words.bookWaiting);
    else if (bid === undefined || ask === undefined) setText(spread, '');
    else {
      const relative = ((ask - bid) * 10_000n * ONE) / ask;
      setText(spread, `${words.spread} ${formatUnits(ask - bid, market.pricePlaces, true)} · ${formatUnits(relative, 2)} bp`);
    }
  });
  feed.bookChanged.on(draw);
  feed.tradesChanged.on(draw);
  account.ordersChanged.on(draw);
  feed.marketChanged.on(() => {
    before = null;
    setClass(last, 'number');
    labels();
    draw();
  });
  labels();
  const panel = h(
    'section',
    { class: 'panel ladder', 'aria-label': words.orderBook },
    h('div', { class: 'panel-bar' }, h('h2', {}, words.orderBook), grouping),
    h('div', { class: 'ladder-row ladder-head', 'aria-hidden': 'true' }, quoteLabel, baseLabel, sumLabel),
    asks,
    h('div', { class: 'ladder-middle' }, last, spread),
    bids,
  );
  new ResizeObserver(draw).observe(panel);
  return panel;
}

