// The account's orders and fills: REST answers and stream events folded into one list. They come in any order and more than once
// (an event may overtake the answer to the request that caused it), so the fold only ever moves an order forward.

import { units, type Units } from '../decimal.ts';
import type { ExecutionReport, FillRow, OrderRow } from './account-types.ts';

export interface Order {
  symbol: string;
  id: number;
  side: 'BUY' | 'SELL';
  type: string;
  timeInForce: string;
  price: Units;
  stopPrice: Units;
  quantity: Units;
  executed: Units;
  /** Quote amount of what was executed. */
  quote: Units;
  status: string;
  /** When it was placed, and when it last changed, in ms. */
  time: number;
  updated: number;
}

export interface Fill {
  symbol: string;
  id: number;
  orderId: number;
  side: 'BUY' | 'SELL';
  price: Units;
  quantity: Units;
  quote: Units;
  fee: Units;
  feeAsset: string;
  maker: boolean;
  time: number;
}

const OPEN = new Set(['NEW', 'PARTIALLY_FILLED', 'PENDING_NEW', 'PENDING_CANCEL']);

export const isOpen = (order: Order): boolean => OPEN.has(order.status);

/** How many finished orders and fills are kept for the page; the server has them all. */
const KEPT = 500;

export class OrderList {
  private orders = new Map<string, Order>();
  private fills = new Map<string, Fill>();

  clear(): void {
    this.orders.clear();
    this.fills.clear();
  }

  /** Takes an order's newer state. A finished order stays finished, and what was executed never shrinks. */
  put(next: Order): void {
    const key = `${next.symbol}/${next.id}`;
    const known = this.orders.get(key);
    if (known && !isOpen(known) && isOpen(next)) return;
    if (known && next.executed < known.executed) return;
    if (known && isOpen(next) && next.updated < known.updated) return;
    // An answer to a placed order may lack the time of acceptance that the stream knew.
    if (known && next.time === 0) next = { ...next, time: known.time };
    this.orders.set(key, next);
  }

  putFill(fill: Fill): void {
    this.fills.set(`${fill.symbol}/${fill.id}/${fill.side}`, fill);
  }

  onReport(report: ExecutionReport): void {
    this.put(orderOfReport(report));
    const fill = fillOfReport(report);
    if (fill) this.putFill(fill);
    this.trim();
  }

  /** What is open now, to be handed to `reconcileOpen` with the answer to a request that starts now. */
  openKeys(): Set<string> {
    return new Set([...this.orders].filter(([, order]) => isOpen(order)).map(([key]) => key));
  }

  /** Takes the server's list of open orders: one that was open before the request and is not named is no longer open. */
  reconcileOpen(rows: readonly OrderRow[], openBefore: ReadonlySet<string>): void {
    const named = new Set(rows.map(row => `${row.symbol}/${row.orderId}`));
    for (const key of openBefore) {
      const order = this.orders.get(key);
      if (order && isOpen(order) && !named.has(key)) this.orders.delete(key);
    }
    for (const row of rows) this.put(orderOfRow(row));
  }

  /** Newest first. */
  open(): Order[] {
    return [...this.orders.values()].filter(isOpen).sort(newest);
  }

  finished(): Order[] {
    return [...this.orders.values()].filter(order => !isOpen(order)).sort((x, y) => y.updated - x.updated || y.id - x.id);
  }

  recentFills(): Fill[] {
    return [...this.fills.values()].sort((x, y) => y.time - x.time || y.id - x.id);
  }

  private trim(): void {
    for (const order of this.finished().slice(KEPT)) this.orders.delete(`${order.symbol}/${order.id}`);
    for (const fill of this.recentFills().slice(KEPT)) this.fills.delete(`${fill.symbol}/${fill.id}/${fill.side}`);
  }
}

const newest = (x: Order, y: Order): number => y.time - x.time || y.id - x.id;

const sideOf = (text: string): 'BUY' | 'SELL' => (text === 'BUY' ? 'BUY' : 'SELL');

export function orderOfRow(row: OrderRow): Order {
  const time = row.time ?? row.transactTime ?? 0;
  return {
    symbol: row.symbol,
    id: row.orderId,
    side: sideOf(row.side),
    type: row.type,
    timeInForce: row.timeInForce,
    price: units(row.price),
    stopPrice: units(row.stopPrice ?? '0'),
    quantity: units(row.origQty),
    executed: units(row.executedQty),
    quote: units(row.cummulativeQuoteQty),
    status: row.status,
    time,
    updated: row.updateTime ?? row.transactTime ?? time,
  };
}

function orderOfReport(report: ExecutionReport): Order {
  return {
    symbol: report.s,
    id: report.i,
    side: sideOf(report.S),
    type: report.o,
    timeInForce: report.f,
    price: units(report.p),
    stopPrice: units(report.P),
    quantity: units(report.q),
    executed: units(report.z),
    quote: units(report.Z),
    status: report.X,
    time: report.O,
    updated: report.T,
  };
}

export function fillOfRow(row: FillRow): Fill {
  return {
    symbol: row.symbol,
    id: row.id,
    orderId: row.orderId,
    side: row.isBuyer ? 'BUY' : 'SELL',
    price: units(row.price),
    quantity: units(row.qty),
    quote: units(row.quoteQty),
    fee: units(row.commission),
    feeAsset: row.commissionAsset,
    maker: row.isMaker,
    time: row.time,
  };
}

function fillOfReport(report: ExecutionReport): Fill | null {
  if (report.x !== 'TRADE') return null;
  return {
    symbol: report.s,
    id: report.t,
    orderId: report.i,
    side: sideOf(report.S),
    price: units(report.L),
    quantity: units(report.l),
    quote: units(report.Y),
    fee: units(report.n),
    feeAsset: report.N ?? '',
    maker: report.m,
    time: report.T,
  };
}
