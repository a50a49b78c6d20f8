import { formatUnits, ONE, short, type Units } from '../decimal.ts';
import type { Market } from '../market/market.ts';
import type { MarketFeed, Ticker } from '../market/market-feed.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { words } from '../shell/words.ts';
import { oncePerFrame } from '../signal.ts';

/** Change since the window’s open: its direction, and its text in percent. */
export function changeOf({ last, open }: Pick<Ticker, 'last' | 'open'>): { tone: 'up' | 'down' | 'flat'; text: string } {
  if (open === 0n) return { tone: 'flat', text: '0.00%' };
  const scaled: Units = ((last - open) * 100n * ONE) / open;
  const text = formatUnits(scaled, 2);
  const tone = last > open ? 'up' : last < open ? 'down' : 'flat';
  return { tone, text: `${last > open ? '+' : ''}${text}%` };
}

export function marketList(feed: MarketFeed, markets: readonly Market[], select: (market: Market) => void): HTMLElement {
  const rows = markets.map(market => {
    const last = h('span', { class: 'number' }, '–');
    const change = h('span', { class: 'number change' }, '');
    const volume = h('span', { class: 'number dim volume' }, '');
    const button = h(
      'button',
      { class: 'market-row', type: 'button', 'data-symbol': market.symbol, onclick: () => select(market) },
      h('span', { class: 'pair' }, h('b', {}, market.base), h('span', { class: 'dim' }, `/${market.quote}`)),
      last,
      change,
      volume,
    );
    return { market, button, last, change, volume };
  });
  const draw = oncePerFrame(() => {
    for (const { market, button, last, change, volume } of rows) {
      button.setAttribute('aria-pressed', String(market === feed.market));
      const ticker = feed.tickers.get(market.symbol);
      if (!ticker) continue;
      const { tone, text } = changeOf(ticker);
      setText(last, formatUnits(ticker.last, market.pricePlaces, true));
      setText(change, text);
      setClass(change, `number change ${tone}`);
      setText(volume, short(ticker.quoteVolume));
    }
  });
  feed.tickersChanged.on(draw);
  feed.marketChanged.on(draw);
  draw();
  return h(
    'section',
    { class: 'panel markets', 'aria-label': words.markets },
    h('h2', {}, words.markets),
    h('div', { class: 'market-rows' }, ...rows.map(({ button }) => button)),
  );
}
