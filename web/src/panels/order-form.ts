import type { AccountFeed } from '../account/account-feed.ts';
import {
  check,
  follow,
  takeShare,
  workingPrice,
  type Draft,
  type Fault,
  type Field,
  type Kind,
  type TimeInForce,
} from '../account/order-draft.ts';
import type { Session } from '../account/session.ts';
import { formatUnits, plain, units, type Units } from '../decimal.ts';
import type { Market } from '../market/market.ts';
import type { MarketFeed } from '../market/market-feed.ts';
import { Refused } from '../rest.ts';
import { h, setText } from '../shell/dom.ts';
import { toast } from '../shell/toasts.ts';
import { words } from '../shell/words.ts';

const KINDS: [Kind, string][] = [
  ['limit', words.limit],
  ['market', words.marketOrder],
  ['stop', words.stopLimit],
  ['post', words.postOnly],
];
const TIMES: [TimeInForce, string][] = [
  ['GTC', words.gtc],
  ['IOC', words.ioc],
  ['FOK', words.fok],
];
const SHARES = [25, 50, 75, 100] as const;

export interface OrderForm {
  element: HTMLElement;
  /** Takes a price from the ladder. */
  setPrice(price: Units): void;
}

interface Input {
  box: HTMLElement;
  input: HTMLInputElement;
  unit: HTMLElement;
  fault: HTMLElement;
}

export function orderForm(feed: MarketFeed, account: AccountFeed, session: Session, logIn: () => void): OrderForm {
  let draft: Draft = { side: 'BUY', kind: 'limit', timeInForce: 'GTC', price: '', stop: '', amount: '', total: '', by: 'amount' };
  let busy = false;
  /** The market whose price was filled in already, so that a field that the user empties stays empty. */
  let suggested = '';
  /** Faults are shown from the first try on, not while the form is being filled in. */
  let tried = false;

  const field = (name: Field, label: string): Input => {
    const input = h('input', {
      id: `order-${name}`,
      name,
      inputmode: 'decimal',
      autocomplete: 'off',
      spellcheck: 'false',
      class: 'number',
      'aria-describedby': `order-${name}-fault`,
    });
    const unit = h('span', { class: 'unit' });
    const fault = h('p', { class: 'fault', id: `order-${name}-fault` });
    input.addEventListener('input', () => typed(name, input.value));
    const box = h(
      'div',
      { class: 'field' },
      h('label', { for: `order-${name}` }, label),
      h('div', { class: 'field-input' }, input, unit),
      fault,
    );
    return { box, input, unit, fault };
  };
  const inputs: Record<Field, Input> = {
    price: field('price', words.price),
    stop: field('stop', words.stopPrice),
    amount: field('amount', words.amount),
    total: field('total', words.total),
  };
  const sides = (['BUY', 'SELL'] as const).map(side => {
    const button = h('button', { type: 'button', class: `side ${side.toLowerCase()}` }, side === 'BUY' ? words.buy : words.sell);
    button.addEventListener('click', () => update({ side }));
    return { side, button };
  });
  const kinds = KINDS.map(([kind, label]) => {
    const button = h('button', { type: 'button', class: 'chip' }, label);
    button.addEventListener('click', () => update({ kind }));
    return { kind, button };
  });
  const times = h(
    'select',
    { id: 'order-tif' },
    ...TIMES.map(([value, label]) => h('option', { value }, `${value} · ${label}`)),
  );
  times.addEventListener('change', () => update({ timeInForce: times.value as TimeInForce }));
  const timesBox = h('div', { class: 'field' }, h('label', { for: 'order-tif' }, words.timeInForce), times);
  const available = h('button', { type: 'button', class: 'link number', 'data-test': 'available' });
  available.addEventListener('click', () => share(100));
  const shares = SHARES.map(percent => {
    const button = h('button', { type: 'button', class: 'chip number' }, `${percent}%`);
    button.addEventListener('click', () => share(percent));
    return button;
  });
  const marketNote = h('p', { class: 'dim note' }, words.atMarketPrice);
  const submit = h('button', { type: 'submit', class: 'submit', 'data-test': 'submit-order' });

  /** The asset that the order is paid with, and how much of it is available; null where that is not known. */
  const payment = (): { asset: string; free: Units | null } => {
    const asset = draft.side === 'BUY' ? feed.market.quote : feed.market.base;
    return { asset, free: account.ready ? account.balance(asset).free : null };
  };
  const typed = (name: Field, text: string): void => {
    const by = name === 'amount' || name === 'total' ? name : draft.by;
    update({ [name]: text.replaceAll(',', ''), by });
  };
  const share = (percent: number): void => {
    const { free } = payment();
    if (free === null) return;
    draft = takeShare(draft, percent, free, feed.market, feed.lastPrice());
    draw();
  };
  const update = (part: Partial<Draft>): void => {
    const before = draft;
    draft = { ...draft, ...part };
    if (draft.kind !== before.kind || draft.side !== before.side) tried = false;
    draft = follow(draft, feed.market, feed.lastPrice());
    draw();
  };

  const draw = (): void => {
    const { market } = feed;
    for (const name of ['price', 'stop', 'amount', 'total'] as const) {
      const { input } = inputs[name];
      // The field that is being typed into holds what was typed, commas and all; the others follow.
      if (input.value.replaceAll(',', '') !== draft[name]) input.value = draft[name];
    }
    setText(inputs.price.unit, market.quote);
    setText(inputs.stop.unit, market.quote);
    setText(inputs.amount.unit, market.base);
    setText(inputs.total.unit, market.quote);
    inputs.price.box.hidden = draft.kind === 'market';
    inputs.stop.box.hidden = draft.kind !== 'stop';
    marketNote.hidden = draft.kind !== 'market';
    timesBox.hidden = draft.kind === 'market' || draft.kind === 'post';
    for (const { side, button } of sides) button.setAttribute('aria-pressed', String(side === draft.side));
    for (const { kind, button } of kinds) button.setAttribute('aria-pressed', String(kind === draft.kind));
    form.dataset['side'] = draft.side;
    drawFunds();
    if (tried) showFault();
    else clearFaults();
  };
  const drawFunds = (): void => {
    const { market } = feed;
    const { asset, free } = payment();
    const places = asset === market.quote ? Math.max(market.pricePlaces, 2) : market.quantityPlaces;
    setText(available, free === null ? '–' : `${formatUnits(free, places, true)} ${asset}`);
    const loggedIn = session.name !== null;
    setText(submit, loggedIn ? `${draft.side === 'BUY' ? words.buy : words.sell} ${market.base}` : words.signIn);
    submit.disabled = busy;
  };
  const clearFaults = (): void => {
    for (const { input, fault } of Object.values(inputs)) {
      setText(fault, '');
      input.removeAttribute('aria-invalid');
    }
  };
  const showFault = (): Fault | null => {
    clearFaults();
    const checked = check(draft, feed.market, feed.lastPrice(), payment().free);
    if (!('fault' in checked)) return null;
    const { input, fault } = inputs[checked.fault.field];
    setText(fault, faultText(checked.fault));
    input.setAttribute('aria-invalid', 'true');
    return checked.fault;
  };

  const place = async (): Promise<void> => {
    if (session.name === null) {
      logIn();
      return;
    }
    tried = true;
    const fault = showFault();
    if (fault) {
      inputs[fault.field].input.focus();
      return;
    }
    const checked = check(draft, feed.market, feed.lastPrice(), payment().free);
    if (busy || 'fault' in checked) return;
    busy = true;
    drawFunds();
    const { market } = feed;
    try {
      const row = await account.place(checked.order);
      const tone = row.side === 'BUY' ? 'up' : 'down';
      // What became of it at once is told by the account's stream.
      if (row.status === 'NEW' || !account.ready) {
        toast(words.orderPlaced, orderText(market, row.side, units(row.origQty), units(row.price)), tone);
      }
      tried = false;
      update({ amount: '', total: '' });
    } catch (reason) {
      toast(words.orderRefused, reason instanceof Refused ? reason.message : words.offline, 'bad');
    } finally {
      busy = false;
      drawFunds();
    }
  };

  const form = h(
    'form',
    { novalidate: true, autocomplete: 'off', id: 'order-form' },
    h('div', { class: 'sides', role: 'group', 'aria-label': words.side }, ...sides.map(({ button }) => button)),
    h('div', { class: 'chips kinds', role: 'group', 'aria-label': words.type }, ...kinds.map(({ button }) => button)),
    h('div', { class: 'available' }, h('span', { class: 'dim' }, words.available), available),
    marketNote,
    inputs.stop.box,
    inputs.price.box,
    inputs.amount.box,
    h('div', { class: 'chips shares', role: 'group', 'aria-label': words.share }, ...shares),
    inputs.total.box,
    timesBox,
    submit,
  );
  form.addEventListener('submit', event => {
    event.preventDefault();
    void place();
  });
  feed.marketChanged.on(() => {
    tried = false;
    suggested = '';
    draft = { ...draft, price: '', stop: '', amount: '', total: '' };
    draw();
    suggestPrice();
  });
  /** A new market starts with its last price, so that a first order is two fields away. */
  const suggestPrice = (): void => {
    const last = feed.lastPrice();
    if (draft.price === '' && last !== null && document.activeElement !== inputs.price.input) update({ price: plain(last) });
  };
  feed.tradesChanged.on(() => {
    if (suggested === feed.market.symbol || workingPrice({ ...draft, kind: 'limit' }, null) !== null) return;
    if (feed.trades.length === 0) return;
    suggested = feed.market.symbol;
    suggestPrice();
  });
  account.balancesChanged.on(drawFunds);
  account.stateChanged.on(drawFunds);
  session.changed.on(draw);
  draw();
  return {
    element: h('section', { class: 'panel form', 'aria-label': words.trade }, form),
    setPrice: price => update({ price: plain(price), ...(draft.kind === 'market' ? { kind: 'limit' as Kind } : {}) }),
  };
}

/** An order in a line: `Buy 0.01 BTC @ 95,000.00`; without a price where it has none. */
export function orderText(market: Market, side: string, quantity: Units, price: Units): string {
  const what = `${side === 'BUY' ? words.buy : words.sell} ${plain(quantity)} ${market.base}`;
  return price > 0n ? `${what} @ ${formatUnits(price, market.pricePlaces, true)} ${market.quote}` : what;
}

function faultText({ field, reason, bound }: Fault): string {
  switch (reason) {
    case 'number':
      return words.notANumber;
    case 'step':
      return `${words.stepOf} ${bound ?? ''}`;
    case 'minimum':
      return `${words.minimum} ${bound ?? ''}`;
    case 'funds':
      return words.notEnough;
    case 'missing':
      return field === 'price' ? words.priceRequired : field === 'stop' ? words.stopRequired : words.required;
  }
}

