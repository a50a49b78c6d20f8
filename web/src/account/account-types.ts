// What the private endpoints and the private stream say, as far as the console reads it.

export interface AccountAnswer {
  makerCommission?: number;
  takerCommission?: number;
  balances: { asset: string; free: string; locked: string }[];
}

export interface OrderRow {
  symbol: string;
  orderId: number;
  clientOrderId: string;
  price: string;
  origQty: string;
  executedQty: string;
  cummulativeQuoteQty: string;
  origQuoteOrderQty?: string;
  status: string;
  timeInForce: string;
  type: string;
  side: string;
  stopPrice?: string;
  time?: number;
  transactTime?: number;
  updateTime?: number;
}

export interface FillRow {
  symbol: string;
  id: number;
  orderId: number;
  price: string;
  qty: string;
  quoteQty: string;
  commission: string;
  commissionAsset: string;
  time: number;
  isBuyer: boolean;
  isMaker: boolean;
}

export interface ExecutionReport {
  e: 'executionReport';
  /** Event time, symbol, client order id, side, type, time in force. */
  E: number;
  s: string;
  c: string;
  S: string;
  o: string;
  f: string;
  /** Quantity, price, stop price; what happened (NEW, TRADE, CANCELED, …), status after it, reason. */
  q: string;
  p: string;
  P: string;
  x: string;
  X: string;
  r: string;
  i: number;
  /** Last fill: quantity, price, quote, fee and its asset, trade id; total executed: quantity, quote. */
  l: string;
  L: string;
  Y: string;
  n: string;
  N: string | null;
  t: number;
  z: string;
  Z: string;
  /** Transaction time, order creation time, maker side or not. */
  T: number;
  O: number;
  m: boolean;
}

export interface AccountPosition {
  e: 'outboundAccountPosition';
  u: number;
  B: { a: string; f: string; l: string }[];
}

export type PrivateEvent = ExecutionReport | AccountPosition | { e: 'other' };
