import { formatUnits, short } from '../decimal.ts';
import type { MarketFeed } from '../market/market-feed.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { words } from '../shell/words.ts';
import { oncePerFrame } from '../signal.ts';
import { changeOf } from './market-list.ts';

/** The chosen market in one line: its price, large, and its last 24 hours. */
export function marketHeader(feed: MarketFeed): HTMLElement {
  const name = h('h1', {});
  const last = h('strong', { class: 'number last-price', 'data-test': 'last-price' }, '–');
  const halted = h('span', { class: 'badge', hidden: true }, words.halted);
  const figure = (label: string): { box: HTMLElement; value: HTMLElement } => {
    const value = h('dd', { class: 'number' }, '–');
    return { box: h('div', {}, h('dt', {}, label), value), value };
  };
  const change = figure(words.change24h);
  const high = figure(words.high24h);
  const low = figure(words.low24h);
  const volume = figure(words.volume24h);
  let before: bigint | null = null;

  const draw = oncePerFrame(() => {
    const { market } = feed;
    const places = market.pricePlaces;
    setText(name, `${market.base}/${market.quote}`);
    halted.hidden = market.status === 'TRADING';
    const price = feed.lastPrice();
    setText(last, price === null ? '–' : formatUnits(price, places, true));
    if (price !== null && before !== null && price !== before) {
      setClass(last, `number last-price ${price > before ? 'up' : 'down'}`);
    }
    before = price;
    document.title = `${price === null ? '' : `${formatUnits(price, places, true)} · `}${market.base}/${market.quote} · Hoga`;
    const ticker = feed.tickers.get(market.symbol);
    const { tone, text } = ticker ? changeOf(ticker) : { tone: '', text: '–' };
    setText(change.value, text);
    setClass(change.value, `number ${tone}`);
    setText(high.value, ticker ? formatUnits(ticker.high, places, true) : '–');
    setText(low.value, ticker ? formatUnits(ticker.low, places, true) : '–');
    setText(volume.value, ticker ? `${short(ticker.quoteVolume)} ${market.quote}` : '–');
  });
  feed.tradesChanged.on(draw);
  feed.tickersChanged.on(draw);
  feed.marketChanged.on(() => {
    before = null;
    setClass(last, 'number last-price');
    draw();
  });
  draw();
  return h(
    'div',
    { class: 'market-header' },
    h('div', { class: 'market-name' }, name, halted),
    last,
    h('dl', {}, change.box, high.box, low.box, volume.box),
  );
}
