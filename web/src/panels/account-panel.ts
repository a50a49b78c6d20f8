// Open orders, order history, fills and balances, one tab each.

import type { AccountFeed } from '../account/account-feed.ts';
import type { Order } from '../account/order-list.ts';
import type { Session } from '../account/session.ts';
import { formatUnits, plain, product, quotient, type Units } from '../decimal.ts';
import type { Market } from '../market/market.ts';
import type { MarketFeed } from '../market/market-feed.ts';
import { Refused } from '../rest.ts';
import { h, setText } from '../shell/dom.ts';
import { toast } from '../shell/toasts.ts';
import { words } from '../shell/words.ts';
import { oncePerFrame } from '../signal.ts';

type Tab = 'open' | 'history' | 'fills' | 'balances';
const SHOWN = 100;

/** A cell: its text or element, and the label that it carries on a narrow screen, where a row becomes a card. */
interface Column {
  label: string;
  end?: boolean;
}

export interface AccountActions {
  logIn(): void;
  deposit(): void;
  createKey(): void;
}

export function accountPanel(
  feed: MarketFeed,
  account: AccountFeed,
  session: Session,
  markets: readonly Market[],
  actions: AccountActions,
): HTMLElement {
  const bySymbol = new Map(markets.map(market => [market.symbol, market]));
  let tab: Tab = 'open';
  const body = h('div', { class: 'table-scroll', role: 'tabpanel', id: 'account-table', tabindex: 0 });
  const openCount = h('span', { class: 'count number' });
  const tabs = (
    [
      ['open', words.openOrders],
      ['history', words.orderHistory],
      ['fills', words.fills],
      ['balances', words.balances],
    ] as const
  ).map(([name, label]) => {
    const button = h('button', {
      type: 'button',
      role: 'tab',
      class: 'tab',
      'data-tab': name,
      'aria-controls': 'account-table',
    }, label, ...(name === 'open' ? [openCount] : []));
    button.addEventListener('click', () => {
      tab = name;
      draw();
    });
    return { name, button };
  });
  const cancelAll = h('button', { type: 'button', class: 'quiet' }, words.cancelAll);
  cancelAll.addEventListener('click', () => void cancelEvery());
  const deposit = h('button', { type: 'button', class: 'quiet', onclick: actions.deposit }, words.deposit);
  const key = h('button', { type: 'button', class: 'quiet', onclick: actions.createKey }, words.apiKey);

  const cancel = async (order: Order, button: HTMLButtonElement): Promise<void> => {
    button.disabled = true;
    try {
      await account.cancel(order.symbol, order.id);
    } catch (reason) {
      button.disabled = false;
      toast(words.failed, reason instanceof Refused ? reason.message : words.offline, 'bad');
      // An order that the server does not know as open is not open: ask it what is.
      if (reason instanceof Refused) await account.load().catch(() => undefined);
    }
  };
  const cancelEvery = async (): Promise<void> => {
    cancelAll.disabled = true;
    const buttons = [...body.querySelectorAll<HTMLButtonElement>('button.cancel')];
    const open = account.orders.open();
    await Promise.all(open.map((order, place) => cancel(order, buttons[place] ?? h('button'))));
    cancelAll.disabled = false;
  };

  const price = (symbol: string, value: Units): string =>
    value === 0n ? '–' : formatUnits(value, bySymbol.get(symbol)?.pricePlaces ?? 2, true);
  const pair = (symbol: string): HTMLElement => {
    const market = bySymbol.get(symbol);
    return h('b', {}, market ? `${market.base}/${market.quote}` : symbol);
  };
  const side = (value: 'BUY' | 'SELL'): HTMLElement =>
    h('span', { class: value === 'BUY' ? 'up' : 'down' }, value === 'BUY' ? words.buy : words.sell);
  const kind = (order: Order): string => TYPE_WORDS[order.type] ?? order.type;
  const orderPrice = (order: Order): string => {
    const limit = order.price === 0n ? words.marketOrder : price(order.symbol, order.price);
    if (order.stopPrice === 0n) return limit;
    // A stop that buys waits for the price to rise, one that sells for it to fall; taking a profit is the other way round.
    const rising = (order.side === 'BUY') === order.type.startsWith('STOP_LOSS');
    return `${rising ? '≥' : '≤'} ${price(order.symbol, order.stopPrice)} → ${limit}`;
  };

  const openTable = (): HTMLElement => {
    const columns: Column[] = [
      { label: words.time },
      { label: words.market },
      { label: words.side },
      { label: words.type },
      { label: words.price, end: true },
      { label: words.amount, end: true },
      { label: words.filled, end: true },
      { label: words.total, end: true },
      { label: '' , end: true },
    ];
    const rows = account.orders.open().map(order => {
      const button = h('button', { type: 'button', class: 'quiet cancel', 'aria-label': `${words.cancel} ${order.id}` }, words.cancel);
      button.addEventListener('click', () => void cancel(order, button));
      return [
        moment(order.time),
        pair(order.symbol),
        side(order.side),
        `${kind(order)} ${order.timeInForce}`,
        orderPrice(order),
        plain(order.quantity),
        plain(order.executed),
        plain(product(order.price, order.quantity)),
        button,
      ];
    });
    return table(columns, rows, words.noOpenOrders, 'open-orders');
  };
  const historyTable = (): HTMLElement => {
    const columns: Column[] = [
      { label: words.time },
      { label: words.market },
      { label: words.side },
      { label: words.type },
      { label: words.price, end: true },
      { label: words.average, end: true },
      { label: words.filled, end: true },
      { label: words.status, end: true },
    ];
    const rows = account.orders.finished().slice(0, SHOWN).map(order => [
      moment(order.time || order.updated),
      pair(order.symbol),
      side(order.side),
      kind(order),
      orderPrice(order),
      order.executed === 0n ? '–' : price(order.symbol, quotient(order.quote, order.executed)),
      `${plain(order.executed)} / ${plain(order.quantity)}`,
      h('span', { class: order.status === 'FILLED' ? '' : 'dim' }, order.status),
    ]);
    return table(columns, rows, words.noOrders, 'order-history');
  };
  const fillsTable = (): HTMLElement => {
    const columns: Column[] = [
      { label: words.time },
      { label: words.market },
      { label: words.side },
      { label: words.price, end: true },
      { label: words.amount, end: true },
      { label: words.total, end: true },
      { label: words.fee, end: true },
      { label: words.role, end: true },
    ];
    const rows = account.orders.recentFills().slice(0, SHOWN).map(fill => [
      moment(fill.time),
      pair(fill.symbol),
      side(fill.side),
      price(fill.symbol, fill.price),
      plain(fill.quantity),
      plain(fill.quote),
      `${plain(fill.fee)} ${fill.feeAsset}`,
      fill.maker ? words.maker : words.taker,
    ]);
    return table(columns, rows, words.noFills, 'fills');
  };
  const balancesTable = (): HTMLElement => {
    const columns: Column[] = [
      { label: words.asset },
      { label: words.free, end: true },
      { label: words.locked, end: true },
      { label: words.total, end: true },
    ];
    const rows = [...account.balances].filter(([, { free, locked }]) => free !== 0n || locked !== 0n).map(([asset, { free, locked }]) => [
      h('b', {}, asset),
      grouped(free),
      grouped(locked),
      grouped(free + locked),
    ]);
    if (rows.length > 0) return table(columns, rows, '', 'balances');
    const button = h('button', { type: 'button', class: 'primary', onclick: actions.deposit }, words.depositPaper);
    return h('div', { class: 'empty', 'data-test': 'balances' }, h('p', {}, words.noBalances), button);
  };

  const draw = oncePerFrame(() => {
    const open = account.orders.open();
    setText(openCount, open.length > 0 ? String(open.length) : '');
    for (const { name, button } of tabs) button.setAttribute('aria-selected', String(name === tab));
    const loggedIn = session.name !== null;
    cancelAll.hidden = !loggedIn || tab !== 'open' || open.length === 0;
    deposit.hidden = key.hidden = !loggedIn || tab !== 'balances';
    if (!loggedIn) {
      const button = h('button', { type: 'button', class: 'primary', onclick: actions.logIn }, words.signIn);
      body.replaceChildren(h('div', { class: 'empty' }, h('p', {}, words.logInToSee), button));
      return;
    }
    const made = { open: openTable, history: historyTable, fills: fillsTable, balances: balancesTable }[tab]();
    keepFocus(body, () => body.replaceChildren(made));
  });
  account.ordersChanged.on(draw);
  account.balancesChanged.on(draw);
  session.changed.on(draw);
  feed.marketChanged.on(() => session.name !== null && void account.loadHistory(feed.market.symbol).catch(() => undefined));
  draw();
  return h(
    'section',
    { class: 'panel account', 'aria-label': words.account },
    h(
      'div',
      { class: 'panel-bar' },
      h('div', { class: 'tabs', role: 'tablist', 'aria-label': words.account }, ...tabs.map(({ button }) => button)),
      h('div', { class: 'bar-actions' }, cancelAll, deposit, key),
    ),
    body,
  );
}

const TYPE_WORDS: Record<string, string> = {
  LIMIT: words.limit,
  MARKET: words.marketOrder,
  LIMIT_MAKER: words.postOnly,
  STOP_LOSS_LIMIT: words.stopLimit,
  TAKE_PROFIT_LIMIT: words.stopLimit,
};

function table(columns: Column[], rows: (string | Node)[][], empty: string, name: string): HTMLElement {
  if (rows.length === 0) return h('div', { class: 'empty', 'data-test': name }, h('p', {}, empty));
  const cellClass = (column: Column | undefined): { class?: string } => (column?.end ? { class: 'end' } : {});
  return h(
    'table',
    { 'data-test': name },
    h('thead', {}, h('tr', {}, ...columns.map(column => h('th', { scope: 'col', ...cellClass(column) }, column.label)))),
    h(
      'tbody',
      {},
      ...rows.map(row =>
        h('tr', {}, ...row.map((cell, place) =>
          h('td', { ...cellClass(columns[place]), 'data-label': columns[place]?.label ?? '' }, cell))),
      ),
    ),
  );
}

/** Rebuilding a table takes the keyboard's place with it: put it back on the same button. */
function keepFocus(body: HTMLElement, rebuild: () => void): void {
  const label = body.contains(document.activeElement) ? document.activeElement?.getAttribute('aria-label') : null;
  rebuild();
  if (label) body.querySelector<HTMLElement>(`[aria-label="${CSS.escape(label)}"]`)?.focus();
}

/** All places that carry something, at least two, with commas. */
function grouped(value: Units): string {
  const places = Math.max(2, (plain(value).split('.')[1] ?? '').length);
  return formatUnits(value, places, true);
}

function moment(ms: number): string {
  if (ms === 0) return '–';
  const date = new Date(ms);
  const two = (part: number): string => String(part).padStart(2, '0');
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
