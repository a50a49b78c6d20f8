// The account of who is logged in, kept current: balances, orders, fills. The private stream is subscribed first, then the REST
// answers are taken, so nothing falls between the two.

import { Connection } from '../connection.ts';
import { units, type Units } from '../decimal.ts';
import { Refused, type Rest } from '../rest.ts';
import { Signal } from '../signal.ts';
import type { ExecutionReport, OrderRow, PrivateEvent } from './account-types.ts';
import { fillOfRow, OrderList, orderOfRow } from './order-list.ts';

export interface Balance {
  free: Units;
  locked: Units;
}

/** Something happened to an order: a fill with its price, or its end. */
export interface Notice {
  kind: 'filled' | 'canceled' | 'expired';
  symbol: string;
  side: string;
  quantity: Units;
  price: Units;
}

const HISTORY = 200;
const RETRY_MS = 2_000;
const NONE: Balance = { free: 0n, locked: 0n };

export class AccountFeed {
  readonly connection = new Connection('/ws-api/v3', 'ping');
  readonly balances = new Map<string, Balance>();
  readonly orders = new OrderList();
  readonly balancesChanged = new Signal();
  readonly ordersChanged = new Signal();
  readonly stateChanged = new Signal();
  readonly noticed = new Signal<Notice>();
  /** Subscribed and loaded. */
  ready = false;
  private balanceEvents = 0;
  private historySymbol = '';
  private readonly rest: Rest;

  constructor(rest: Rest) {
    this.rest = rest;
    this.connection.changed.on(() => {
      if (this.connection.state !== 'live') this.ready = false;
      this.stateChanged.emit();
    });
    this.connection.opened.on(() => void this.subscribe());
    this.connection.message.on(message => {
      const event = message['event'] as PrivateEvent | undefined;
      if (event) this.receive(event);
    });
  }

  start(symbol: string): void {
    this.historySymbol = symbol;
    this.connection.open();
  }

  stop(): void {
    this.connection.close();
    this.ready = false;
    this.balances.clear();
    this.orders.clear();
    this.balancesChanged.emit();
    this.ordersChanged.emit();
  }

  balance(asset: string): Balance {
    return this.balances.get(asset) ?? NONE;
  }

  /** Places an order and takes its answer at once; the stream tells what happens to it later. */
  async place(order: Record<string, string>): Promise<OrderRow> {
    const row = await this.rest.placeOrder({ ...order, newClientOrderId: clientOrderId(), newOrderRespType: 'RESULT' });
    this.orders.put(orderOfRow(row));
    this.ordersChanged.emit();
    if (!this.ready) await this.load();
    return row;
  }

  async cancel(symbol: string, orderId: number): Promise<void> {
    const row = await this.rest.cancelOrder(symbol, orderId);
    this.orders.put(orderOfRow(row));
    this.ordersChanged.emit();
    if (!this.ready) await this.load();
  }

  /** Balances and open orders from the server, as after a connection was lost. */
  async load(): Promise<void> {
    await Promise.all([this.loadBalances(), this.loadOpenOrders(), this.loadHistory(this.historySymbol)]);
  }

  async loadHistory(symbol: string): Promise<void> {
    this.historySymbol = symbol;
    const [orders, fills] = await Promise.all([this.rest.allOrders(symbol, HISTORY), this.rest.myTrades(symbol, HISTORY)]);
    for (const row of orders) this.orders.put(orderOfRow(row));
    for (const row of fills) this.orders.putFill(fillOfRow(row));
    this.ordersChanged.emit();
  }

  async loadBalances(): Promise<void> {
    // An event that comes in while the answer is on its way may be older or newer than it: then ask once more.
    for (let turn = 0; turn < 5; turn += 1) {
      const before = this.balanceEvents;
      const { balances } = await this.rest.account();
      if (before !== this.balanceEvents && turn < 4) continue;
      this.balances.clear();
      for (const { asset, free, locked } of balances) this.balances.set(asset, { free: units(free), locked: units(locked) });
      break;
    }
    this.balancesChanged.emit();
  }

  private async loadOpenOrders(): Promise<void> {
    const openBefore = this.orders.openKeys();
    this.orders.reconcileOpen(await this.rest.openOrders(), openBefore);
    this.ordersChanged.emit();
  }

  private async subscribe(): Promise<void> {
    const token = this.rest.token;
    if (!token) return;
    try {
      await this.connection.call('session.token', { token });
      await this.connection.call('userDataStream.subscribe');
      await this.load();
      this.ready = true;
      this.stateChanged.emit();
    } catch (reason) {
      if (token !== this.rest.token) return;
      if (reason instanceof Refused && reason.status === 401) this.rest.onExpired();
      else setTimeout(() => this.connection.state === 'live' && !this.ready && void this.subscribe(), RETRY_MS);
    }
  }

  private receive(event: PrivateEvent): void {
    if (event.e === 'outboundAccountPosition') {
      this.balanceEvents += 1;
      for (const { a, f, l } of event.B) this.balances.set(a, { free: units(f), locked: units(l) });
      this.balancesChanged.emit();
    } else if (event.e === 'executionReport') {
      this.orders.onReport(event);
      this.ordersChanged.emit();
      const notice = noticeOf(event);
      if (notice) this.noticed.emit(notice);
    }
  }
}

function noticeOf(event: ExecutionReport): Notice | null {
  const base = { symbol: event.s, side: event.S };
  switch (event.x) {
    case 'TRADE':
      return { ...base, kind: 'filled', quantity: units(event.l), price: units(event.L) };
    case 'CANCELED':
      return { ...base, kind: 'canceled', quantity: units(event.q), price: units(event.p) };
    case 'EXPIRED':
      return { ...base, kind: 'expired', quantity: units(event.q), price: units(event.p) };
    default:
      return null;
  }
}

function clientOrderId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `web-${[...bytes].map(byte => byte.toString(16).padStart(2, '0')).join('')}`;
}
