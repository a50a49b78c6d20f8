// The console: fetches the markets, then puts the panels together. Each panel draws itself from the feeds.

import './styles/base.css';
import './styles/layout.css';
import './styles/panels.css';
import { AccountFeed } from './account/account-feed.ts';
import { Session } from './account/session.ts';
import type { Units } from './decimal.ts';
import { INTERVALS, type Interval } from './market/candles.ts';
import { MarketFeed } from './market/market-feed.ts';
import { marketsOf, type Market } from './market/market.ts';
import { accountPanel, type AccountActions } from './panels/account-panel.ts';
import { chartPanel } from './panels/chart.ts';
import { openDeposit, openKeys, openSignIn } from './panels/dialogs.ts';
import { ladderPanel } from './panels/ladder.ts';
import { marketHeader } from './panels/market-header.ts';
import { marketList } from './panels/market-list.ts';
import { orderForm, orderText } from './panels/order-form.ts';
import { pipelineStatus } from './panels/pipeline-panel.ts';
import { plantStatus } from './panels/plant-panel.ts';
import { statusBar } from './panels/status-bar.ts';
import { tapePanel } from './panels/tape.ts';
import { Rest } from './rest.ts';
import { h, icon, ICONS, setText } from './shell/dom.ts';
import { currentTheme, startTheme, themeChanged, toggleTheme } from './shell/theme.ts';
import { mountToasts, toast } from './shell/toasts.ts';
import { language, switchLanguage, words } from './shell/words.ts';

/** On a narrow screen one of these is shown at a time. */
type View = 'markets' | 'chart' | 'trade' | 'account';

const RETRY_MS = 2_000;
const YOUNG_MINUTES = 15;
const STORED_MARKET = 'hoga.market';
const STORED_INTERVAL = 'hoga.interval';

const rest = new Rest();

async function loadMarkets(): Promise<Market[]> {
  const waiting = h('p', { class: 'boot dim', role: 'status' });
  for (;;) {
    try {
      const markets = marketsOf(await rest.exchangeInfo());
      if (markets.length > 0) {
        waiting.remove();
        return markets;
      }
    } catch {
      // Not reached: said below, and tried again.
    }
    setText(waiting, words.noMarkets);
    if (!waiting.isConnected) document.body.append(waiting);
    await new Promise(resolve => setTimeout(resolve, RETRY_MS));
  }
}

/** The interval of the last visit; on a first visit minutes, or seconds where the market is too young to show minutes. */
async function firstInterval(market: Market): Promise<Interval> {
  const stored = INTERVALS.find(one => one === localStorage.getItem(STORED_INTERVAL));
  if (stored) return stored;
  try {
    const minutes = await rest.klines({ symbol: market.symbol, interval: '1m', limit: YOUNG_MINUTES });
    return minutes.length < YOUNG_MINUTES ? '1s' : '1m';
  } catch {
    return '1m';
  }
}

function showView(view: View): void {
  document.body.dataset['view'] = view;
  for (const button of document.querySelectorAll<HTMLElement>('.view-tab')) {
    button.setAttribute('aria-current', button.dataset['view'] === view ? 'page' : 'false');
  }
}

function themeButton(): HTMLElement {
  const button = h('button', { type: 'button', class: 'icon-button', 'aria-label': words.theme, title: words.theme, 'data-test': 'theme' });
  const draw = (): void => button.replaceChildren(icon(currentTheme() === 'dark' ? ICONS.sun : ICONS.moon));
  button.addEventListener('click', toggleTheme);
  themeChanged.on(draw);
  draw();
  return button;
}

function accountButtons(session: Session, logIn: () => void): HTMLElement {
  const name = h('span', { class: 'user dim', 'data-test': 'user' });
  const enter = h('button', { type: 'button', class: 'primary', 'data-test': 'sign-in', onclick: logIn }, words.signIn);
  const leave = h('button', { type: 'button', class: 'quiet', 'data-test': 'log-out', onclick: () => session.logOut() }, words.logOut);
  const draw = (): void => {
    setText(name, session.name ?? '');
    enter.hidden = session.name !== null;
    leave.hidden = session.name === null;
  };
  session.changed.on(draw);
  draw();
  return h('div', { class: 'account-buttons' }, name, enter, leave);
}

function viewTabs(): HTMLElement {
  const tab = (view: View, label: string, path: string): HTMLElement => {
    const button = h('button', { type: 'button', class: 'view-tab', 'data-view': view }, icon(path), h('span', {}, label));
    button.addEventListener('click', () => showView(view));
    return button;
  };
  return h(
    'nav',
    { class: 'view-tabs', 'aria-label': 'views' },
    tab('markets', words.markets, ICONS.list),
    tab('chart', words.chart, ICONS.chart),
    tab('trade', words.trade, ICONS.trade),
    tab('account', words.account, ICONS.person),
  );
}

async function start(): Promise<void> {
  document.documentElement.lang = language;
  startTheme();
  mountToasts();
  const markets = await loadMarkets();
  const first = markets.find(({ symbol }) => symbol === localStorage.getItem(STORED_MARKET)) ?? markets[0]!;
  const feed = new MarketFeed(rest, first, await firstInterval(first));
  const session = new Session(rest);
  const account = new AccountFeed(rest);

  const logIn = (): void => openSignIn(session, feed, markets);
  const form = orderForm(feed, account, session, logIn);
  const select = (market: Market): void => {
    feed.select(market);
    if (document.body.dataset['view'] === 'markets') showView('chart');
  };
  const takePrice = (price: Units): void => {
    form.setPrice(price);
    showView('trade');
  };
  const actions: AccountActions = {
    logIn,
    deposit: () => openDeposit(rest, account, markets),
    createKey: () => openKeys(rest),
  };
  const header = h(
    'header',
    { class: 'top' },
    h('a', { class: 'skip', href: '#order-form' }, words.skip),
    h('div', { class: 'brand', 'aria-label': 'Hoga' }, h('span', { class: 'brand-mark', 'aria-hidden': 'true' }), 'Hoga'),
    marketHeader(feed),
    h(
      'div',
      { class: 'top-actions' },
      h('button', { type: 'button', class: 'quiet language', title: words.languageTitle, onclick: switchLanguage }, words.language),
      themeButton(),
      accountButtons(session, logIn),
    ),
  );
  const main = h(
    'main',
    { class: 'desk' },
    h('div', { class: 'column left' }, marketList(feed, markets, select), ladderPanel(feed, account, takePrice)),
    h('div', { class: 'column center' }, chartPanel(feed, account), accountPanel(feed, account, session, markets, actions)),
    h('div', { class: 'column right' }, form.element, tapePanel(feed)),
  );
  document.body.prepend(header, main, statusBar(feed, account, session, [pipelineStatus(rest), plantStatus(rest)]), viewTabs());
  showView('chart');

  feed.marketChanged.on(() => localStorage.setItem(STORED_MARKET, feed.market.symbol));
  feed.intervalChanged.on(() => localStorage.setItem(STORED_INTERVAL, feed.interval));
  const followSession = (): void => {
    if (session.name === null) account.stop();
    else account.start(feed.market.symbol);
  };
  session.changed.on(followSession);
  session.expired.on(() => toast(words.sessionEnded, '', 'bad'));
  const bySymbol = new Map(markets.map(market => [market.symbol, market]));
  account.noticed.on(({ kind, symbol, side, quantity, price }) => {
    const title = { filled: words.orderFilled, canceled: words.orderCanceled, expired: words.orderExpired }[kind];
    const market = bySymbol.get(symbol);
    const tone = kind !== 'filled' ? 'plain' : side === 'BUY' ? 'up' : 'down';
    if (market) toast(title, orderText(market, side, quantity, price), tone);
  });
  feed.start();
  followSession();
}

void start();
