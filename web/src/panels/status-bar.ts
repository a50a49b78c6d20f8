import type { AccountFeed } from '../account/account-feed.ts';
import type { Session } from '../account/session.ts';
import type { ConnectionState } from '../connection.ts';
import type { MarketFeed } from '../market/market-feed.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { words } from '../shell/words.ts';
import { oncePerFrame } from '../signal.ts';

const STATE_WORDS: Record<ConnectionState, string> = { connecting: words.connecting, live: words.live, down: words.down };

/** Whether what is shown can be trusted: the connections, and the health of the sequence. */
export function statusBar(feed: MarketFeed, account: AccountFeed, session: Session, more: readonly HTMLElement[]): HTMLElement {
  const connection = (label: string, test: string) => {
    const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
    const state = h('span', { 'data-test': test });
    return { box: h('span', { class: 'status-item' }, dot, `${label}: `, state), dot, state };
  };
  const figure = (label: string, test: string, extra = '') => {
    const value = h('b', { class: 'number', 'data-test': test }, '–');
    return { box: h('span', { class: `status-item ${extra}` }, `${label} `, value), value };
  };
  const market = connection(words.marketData, 'market-state');
  const own = connection(words.privateStream, 'account-state');
  const trip = figure(words.roundTrip, 'round-trip', 'wide-only');
  const update = figure(words.update, 'update-id', 'wide-only');
  const gaps = figure(words.gaps, 'gaps');
  const resyncs = figure(words.resyncs, 'resyncs');
  const stale = figure(words.refusedCandles, 'stale-candles', 'wide-only');
  const draw = oncePerFrame(() => {
    // Connected is not yet trustworthy: the copy of the book has to be whole, too.
    const whole = feed.connection.state === 'live' && feed.book.state !== 'live' ? 'connecting' : feed.connection.state;
    setText(market.state, STATE_WORDS[whole]);
    setClass(market.dot, `dot ${whole}`);
    // What may be out of date is shown faded, rather than as if it were true.
    document.body.toggleAttribute('data-stale', whole !== 'live');
    own.box.hidden = session.name === null;
    const ownState = account.connection.state === 'live' && !account.ready ? 'connecting' : account.connection.state;
    setText(own.state, STATE_WORDS[ownState]);
    setClass(own.dot, `dot ${ownState}`);
    setText(trip.value, feed.connection.roundTrip === null ? '–' : `${feed.connection.roundTrip} ms`);
    setText(update.value, feed.book.state === 'live' ? String(feed.book.lastUpdateId) : '–');
    setText(gaps.value, String(feed.book.gaps));
    setText(resyncs.value, String(feed.book.resyncs));
    setText(stale.value, String(feed.timeline.stale));
  });
  feed.healthChanged.on(draw);
  feed.bookChanged.on(draw);
  account.stateChanged.on(draw);
  session.changed.on(draw);
  draw();
  const credit = h('a', { href: 'https://www.tradingview.com/', rel: 'noopener', target: '_blank' }, words.chartsBy);
  return h(
    'footer',
    { class: 'status-bar', 'aria-label': 'status' },
    market.box,
    own.box,
    trip.box,
    update.box,
    gaps.box,
    resyncs.box,
    stale.box,
    ...more,
    h('span', { class: 'status-item credit' }, credit),
  );
}
