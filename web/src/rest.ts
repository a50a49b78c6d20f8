// Requests to the server. Public ones need nothing; private ones carry the session's token instead of a key and a signature.

import type { DepthSnapshot } from './market/depth-book.ts';
import type { KlineRow } from './market/candles.ts';
import type { ExchangeInfo } from './market/market.ts';
import type { Pipeline } from './pipeline/pipeline.ts';
import { differencesOf, plantOf, type Difference, type GroupName, type Plant } from './plant/plant.ts';
import type { AccountAnswer, FillRow, OrderRow } from './account/account-types.ts';

/** The server said no: its code and text, or the HTTP status where it sent neither. */
export class Refused extends Error {
  readonly status: number;
  readonly code: number;

  constructor(status: number, code: number, message: string) {
    super(message);
    this.name = 'Refused';
    this.status = status;
    this.code = code;
  }
}

export interface TradeRow {
  id: number;
  price: string;
  qty: string;
  time: number;
  isBuyerMaker: boolean;
}

export interface TickerRow {
  symbol: string;
  lastPrice: string;
  openPrice: string;
  highPrice: string;
  lowPrice: string;
  volume: string;
  quoteVolume: string;
}

type Parameters = Record<string, string | number>;

/** How long a request may take. The server answers in milliseconds; beyond this something is wrong and the user should know. */
const PATIENCE_MS = 15_000;

export class Rest {
  /** Null while nobody is logged in. */
  token: string | null = null;
  /** Called when the server no longer takes the token. */
  onExpired: () => void = () => {};

  exchangeInfo = () => this.get<ExchangeInfo>('/api/v3/exchangeInfo');
  depth = (symbol: string, limit: number) => this.get<DepthSnapshot>('/api/v3/depth', { symbol, limit });
  trades = (symbol: string, limit: number) => this.get<TradeRow[]>('/api/v3/trades', { symbol, limit });
  tickers = () => this.get<TickerRow[]>('/api/v3/ticker/24hr');
  klines = (parameters: { symbol: string; interval: string; limit: number; endTime?: number }) =>
    this.get<KlineRow[]>('/api/v3/klines', parameters as Parameters);

  pipeline = () => this.get<Pipeline>('/api/v1/pipeline');

  /** Null where the process has no tick plant. */
  plant = async (): Promise<Plant | null> => {
    try {
      return plantOf(await this.get<unknown>('/api/v1/plant'));
    } catch (reason) {
      if (reason instanceof Refused && reason.status === 404) return null;
      throw reason;
    }
  };
  plantDifferences = async (): Promise<Difference[]> => differencesOf(await this.get<unknown>('/api/v1/plant/diff'));
  /** By an operator, with the operator's own token. */
  switchPlant = (to: GroupName, force: boolean, token: string) =>
    this.send<unknown>('POST', '/api/v1/admin/plant/switch', JSON.stringify(force ? { to, force } : { to }), JSON_TYPE, token);

  account = () => this.get<AccountAnswer>('/api/v3/account');
  openOrders = () => this.get<OrderRow[]>('/api/v3/openOrders');
  allOrders = (symbol: string, limit: number) => this.get<OrderRow[]>('/api/v3/allOrders', { symbol, limit });
  myTrades = (symbol: string, limit: number) => this.get<FillRow[]>('/api/v3/myTrades', { symbol, limit });
  placeOrder = (order: Parameters) => this.send<OrderRow>('POST', '/api/v3/order', form(order), FORM);
  cancelOrder = (symbol: string, orderId: number) =>
    this.send<OrderRow>('DELETE', `/api/v3/order?${form({ symbol, orderId })}`);
  cancelAll = (symbol: string) => this.send<OrderRow[]>('DELETE', `/api/v3/openOrders?${form({ symbol })}`);

  signUp = (name: string, password: string) => this.post<{ account: number }>('/api/v1/users', { name, password });
  logIn = (name: string, password: string) =>
    this.post<{ token: string; expires: number | string }>('/api/v1/sessions', { name, password });
  deposit = (asset: string, amount: string, reference: string) =>
    this.post<unknown>('/api/v1/deposits', { asset, amount, reference });
  createKey = () => this.post<{ key: string; secret: string }>('/api/v1/keys', {});

  private get<T>(path: string, parameters: Parameters = {}): Promise<T> {
    const query = form(parameters);
    return this.send<T>('GET', query ? `${path}?${query}` : path);
  }

  private post<T>(path: string, body: unknown): Promise<T> {
    return this.send<T>('POST', path, JSON.stringify(body), JSON_TYPE);
  }

  private async send<T>(method: string, path: string, body?: string, type?: string, token = this.token): Promise<T> {
    const headers: Record<string, string> = {};
    if (type) headers['Content-Type'] = type;
    if (token) headers['Authorization'] = `Bearer ${token}`;
    const init: RequestInit = { method, headers, signal: AbortSignal.timeout(PATIENCE_MS) };
    if (body !== undefined) init.body = body;
    const answer = await fetch(path, init);
    const text = await answer.text();
    if (answer.ok) return (text ? JSON.parse(text) : null) as T;
    const { code, msg } = reasonOf(text);
    if (answer.status === 401 && token && token === this.token) this.onExpired();
    throw new Refused(answer.status, code, msg || `HTTP ${answer.status}`);
  }
}

const FORM = 'application/x-www-form-urlencoded';
const JSON_TYPE = 'application/json';

function form(parameters: Parameters): string {
  return new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)])).toString();
}

function reasonOf(text: string): { code: number; msg: string } {
  try {
    const { code, msg } = JSON.parse(text) as { code?: unknown; msg?: unknown };
    return { code: typeof code === 'number' ? code : 0, msg: typeof msg === 'string' ? msg : '' };
  } catch {
    return { code: 0, msg: '' };
  }
}
