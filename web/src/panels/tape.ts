import { formatUnits } from '../decimal.ts';
import type { MarketFeed } from '../market/market-feed.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { words } from '../shell/words.ts';
import { oncePerFrame } from '../signal.ts';

const ROWS = 50;

/** The newest trades, coloured by who crossed the spread. */
export function tapePanel(feed: MarketFeed): HTMLElement {
  const quoteLabel = h('span', {});
  const baseLabel = h('span', {});
  const rows = Array.from({ length: ROWS }, () => {
    const price = h('span', { class: 'price' });
    const quantity = h('span', {});
    const time = h('span', { class: 'dim' });
    return { line: h('div', { class: 'tape-row number blank' }, price, quantity, time), price, quantity, time };
  });
  const draw = oncePerFrame(() => {
    const { market, trades } = feed;
    setText(quoteLabel, `${words.price} (${market.quote})`);
    setText(baseLabel, `${words.amount} (${market.base})`);
    rows.forEach(({ line, price, quantity, time }, place) => {
      const trade = trades[place];
      setClass(line, `tape-row number ${trade ? (trade.buyerIsMaker ? 'ask' : 'bid') : 'blank'}`);
      setText(price, trade ? formatUnits(trade.price, market.pricePlaces, true) : '');
      setText(quantity, trade ? formatUnits(trade.quantity, Math.min(market.quantityPlaces, 5), true) : '');
      setText(time, trade ? clock(trade.time) : '');
    });
  });
  feed.tradesChanged.on(draw);
  feed.marketChanged.on(draw);
  draw();
  return h(
    'section',
    { class: 'panel tape', 'aria-label': words.trades },
    h('div', { class: 'panel-bar' }, h('h2', {}, words.trades)),
    h('div', { class: 'tape-row tape-head', 'aria-hidden': 'true' }, quoteLabel, baseLabel, h('span', {}, words.time)),
    h('div', { class: 'tape-rows', 'data-test': 'tape' }, ...rows.map(({ line }) => line)),
  );
}

/** Local time of day, `14:03:27`. */
export function clock(ms: number): string {
  const date = new Date(ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(part => String(part).padStart(2, '0')).join(':');
}
