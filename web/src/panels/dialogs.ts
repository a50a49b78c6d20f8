// The dialogs: logging in, play money, API keys.

import { randomText, type Session } from '../account/session.ts';
import type { AccountFeed } from '../account/account-feed.ts';
import { parseUnits, plain } from '../decimal.ts';
import type { Market } from '../market/market.ts';
import type { MarketFeed } from '../market/market-feed.ts';
import { Refused, type Rest } from '../rest.ts';
import { h, icon, ICONS, setText } from '../shell/dom.ts';
import { toast } from '../shell/toasts.ts';
import { words } from '../shell/words.ts';

/** A modal dialog with a title and a way out; it removes itself when it closes. */
export function openDialog(title: string, ...content: (Node | string)[]): HTMLDialogElement {
  const close = h('button', { type: 'button', class: 'icon-button', 'aria-label': words.close }, icon(ICONS.close));
  const dialog = h(
    'dialog',
    { class: 'dialog', 'aria-label': title },
    h('div', { class: 'dialog-head' }, h('h2', {}, title), close),
    ...content,
  );
  close.addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => dialog.remove());
  // A click on the backdrop is a click on the dialog itself, outside of everything in it.
  dialog.addEventListener('mousedown', event => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export const reasonOf = (reason: unknown): string => (reason instanceof Refused ? reason.message : words.offline);

export function labelled(id: string, label: string, input: HTMLInputElement | HTMLSelectElement): HTMLElement {
  input.id = id;
  return h('div', { class: 'field' }, h('label', { for: id }, label), h('div', { class: 'field-input' }, input));
}

/** A label with a value under it, for a list of figures. */
export function figure(label: string): { box: HTMLElement; value: HTMLElement } {
  const value = h('dd', {});
  return { box: h('div', {}, h('dt', {}, label), value), value };
}

export function openSignIn(session: Session, feed: MarketFeed, markets: readonly Market[]): void {
  const fault = h('p', { class: 'fault', role: 'alert' });
  const name = h('input', { name: 'username', autocomplete: 'username', required: true, maxlength: 64 });
  const password = h('input', {
    name: 'password',
    type: 'password',
    autocomplete: 'current-password',
    required: true,
    minlength: 8,
    placeholder: words.passwordHint,
  });
  const paper = h('button', { type: 'button', class: 'primary wide', 'data-test': 'paper-account' }, words.paperAccount);
  const logIn = h('button', { type: 'submit', class: 'primary' }, words.logIn);
  const signUp = h('button', { type: 'button', class: 'quiet', 'data-test': 'sign-up' }, words.signUp);
  const form = h(
    'form',
    { class: 'stack' },
    labelled('sign-in-name', words.userName, name),
    labelled('sign-in-password', words.password, password),
    fault,
    h('div', { class: 'row' }, logIn, signUp),
  );
  const dialog = openDialog(
    words.signIn,
    h('p', { class: 'dim' }, words.paperHint),
    paper,
    h('div', { class: 'separator dim' }, words.orSeparator),
    form,
  );
  const buttons = [paper, logIn, signUp];
  const attempt = async (work: () => Promise<void>): Promise<void> => {
    for (const button of buttons) button.disabled = true;
    setText(fault, '');
    try {
      await work();
      dialog.close();
    } catch (reason) {
      setText(fault, reasonOf(reason));
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  };
  paper.addEventListener('click', () => {
    void attempt(async () => {
      const lastPrice = (market: Market) => feed.tickers.get(market.symbol)?.last ?? null;
      const made = await session.startPaper(markets, lastPrice);
      openPaperReady(made.name, made.password);
    });
  });
  form.addEventListener('submit', event => {
    event.preventDefault();
    void attempt(() => session.logIn(name.value.trim(), password.value));
  });
  signUp.addEventListener('click', () => {
    if (form.reportValidity()) void attempt(() => session.signUp(name.value.trim(), password.value));
  });
  paper.focus();
}

function shown(label: string, value: string): HTMLElement {
  return h('div', { class: 'secret' }, h('span', { class: 'dim' }, label), h('code', {}, value));
}

function openPaperReady(name: string, password: string): void {
  const start = h('button', { type: 'button', class: 'primary wide', 'data-test': 'start-trading' }, words.startTrading);
  const dialog = openDialog(
    words.paperReady,
    h('p', { class: 'dim' }, words.keepThese),
    shown(words.userName, name),
    shown(words.password, password),
    start,
  );
  start.addEventListener('click', () => dialog.close());
  start.focus();
}

export function openDeposit(rest: Rest, account: AccountFeed, markets: readonly Market[]): void {
  const assets = [...new Set(markets.flatMap(({ base, quote }) => [quote, base]))];
  const asset = h('select', { name: 'asset' }, ...assets.map(one => h('option', {}, one)));
  const amount = h('input', { name: 'amount', inputmode: 'decimal', value: '10000', class: 'number', autocomplete: 'off' });
  const fault = h('p', { class: 'fault', role: 'alert' });
  const submit = h('button', { type: 'submit', class: 'primary wide' }, words.deposit);
  // One reference for one intent: a second try after a lost answer is not a second deposit.
  let reference = `console-${randomText(16)}`;
  const form = h(
    'form',
    { class: 'stack' },
    labelled('deposit-asset', words.asset, asset),
    labelled('deposit-amount', words.amount, amount),
    fault,
    submit,
  );
  form.addEventListener('input', () => (reference = `console-${randomText(16)}`));
  const dialog = openDialog(words.depositPaper, form);
  form.addEventListener('submit', async event => {
    event.preventDefault();
    const value = parseUnits(amount.value);
    if (value === null || value <= 0n) {
      setText(fault, words.notANumber);
      return;
    }
    submit.disabled = true;
    try {
      await rest.deposit(asset.value, plain(value), reference);
      toast(words.deposited, `${plain(value)} ${asset.value}`);
      dialog.close();
      await account.loadBalances().catch(() => undefined);
    } catch (reason) {
      setText(fault, reasonOf(reason));
    } finally {
      submit.disabled = false;
    }
  });
}

export function openKeys(rest: Rest): void {
  const result = h('div', { class: 'stack' });
  const fault = h('p', { class: 'fault', role: 'alert' });
  const create = h('button', { type: 'button', class: 'primary wide' }, words.createKey);
  create.addEventListener('click', async () => {
    create.disabled = true;
    try {
      const { key, secret } = await rest.createKey();
      result.replaceChildren(shown(words.keyName, key), shown(words.keySecret, secret));
      setText(fault, '');
      create.remove();
    } catch (reason) {
      setText(fault, reasonOf(reason));
      create.disabled = false;
    }
  });
  openDialog(words.apiKey, h('p', { class: 'dim' }, words.keyHint), create, result, fault);
}
