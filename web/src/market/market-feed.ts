// Everything public about the chosen market, kept current: the book, the candles, the newest trades; and the tickers of all
// markets. Panels read the fields and redraw when a signal says so.

import { Connection } from '../connection.ts';
import { units, type Units } from '../decimal.ts';
import type { Rest, TickerRow } from '../rest.ts';
import { Signal } from '../signal.ts';
import { candleOfRow, CandleTimeline, type Candle, type CandleChange, type Interval } from './candles.ts';
import { DepthBook, type DepthEvent } from './depth-book.ts';
import type { Market } from './market.ts';

export interface Ticker {
  last: Units;
  open: Units;
  high: Units;
  low: Units;
  volume: Units;
  quoteVolume: Units;
}

export interface Trade {
  id: number;
  price: Units;
  quantity: Units;
  time: number;
  /** The buyer's order was resting, so the seller was the one who crossed. */
  buyerIsMaker: boolean;
}

/** What changed in the candles: one of them, or all of them (new market, new interval, older history). */
export type CandlesChange = { kind: 'all' } | { kind: CandleChange; candle: Candle };

/** What a change of subscriptions is followed by; `all again`: because the connection was lost. */
type Load = 'candles' | 'all' | 'all again';

const TRADES_KEPT = 60;
const SNAPSHOT_LEVELS = 1_000;
const CANDLES_PER_PAGE = 1_000;
const RETRY_MS = 1_000;
/** Clicks that follow each other faster are joined into one change of the subscriptions. */
const BETWEEN_CHANGES_MS = 500;

export class MarketFeed {
  readonly connection = new Connection('/stream', 'LIST_SUBSCRIPTIONS');
  readonly book = new DepthBook();
  readonly timeline = new CandleTimeline();
  readonly tickers = new Map<string, Ticker>();
  trades: Trade[] = [];
  market: Market;
  interval: Interval;

  readonly bookChanged = new Signal();
  readonly candlesChanged = new Signal<CandlesChange>();
  readonly tradesChanged = new Signal();
  readonly tickersChanged = new Signal();
  readonly marketChanged = new Signal();
  readonly intervalChanged = new Signal();
  readonly healthChanged = new Signal();

  private subscribed = new Set<string>();
  private lastChange = -Infinity;
  private changeTimer = 0;
  private toLoad: Load | null = null;
  private snapshotTurn = 0;
  private candleTurn = 0;
  private everOpened = false;
  private loadingOlder = false;
  private oldestReached = false;
  private readonly rest: Rest;

  constructor(rest: Rest, market: Market, interval: Interval) {
    this.rest = rest;
    this.market = market;
    this.interval = interval;
    this.connection.opened.on(() => {
      this.subscribed.clear();
      this.lastChange = -Infinity;
      this.change(this.everOpened ? 'all again' : 'all');
      this.everOpened = true;
    });
    this.connection.changed.on(() => this.healthChanged.emit());
    this.connection.message.on(message => this.receive(message));
  }

  start(): void {
    this.connection.open();
  }

  select(market: Market): void {
    if (market === this.market) return;
    this.market = market;
    this.trades = [];
    this.timeline.clear();
    this.book.restart(false);
    this.marketChanged.emit();
    this.tradesChanged.emit();
    this.bookChanged.emit();
    this.candlesChanged.emit({ kind: 'all' });
    this.change('all');
  }

  selectInterval(interval: Interval): void {
    if (interval === this.interval) return;
    this.interval = interval;
    this.intervalChanged.emit();
    this.timeline.clear();
    this.candlesChanged.emit({ kind: 'all' });
    this.change('candles');
  }

  /** The price of the newest trade, or the ticker's before there was one. */
  lastPrice(): Units | null {
    return this.trades[0]?.price ?? this.tickers.get(this.market.symbol)?.last ?? null;
  }

  /** One more page of history, when the chart is scrolled to its left end. */
  async loadOlder(): Promise<void> {
    const first = this.timeline.candles[0];
    if (this.loadingOlder || this.oldestReached || !first) return;
    this.loadingOlder = true;
    const turn = this.candleTurn;
    try {
      const page = await this.candlePage(first.time - 1);
      if (turn !== this.candleTurn) return;
      this.oldestReached = page.length === 0;
      if (page.length === 0) return;
      this.timeline.merge(page);
      this.candlesChanged.emit({ kind: 'all' });
    } catch {
      // The next scroll asks again.
    } finally {
      this.loadingOlder = false;
    }
  }

  private streams(): Set<string> {
    const symbol = this.market.symbol.toLowerCase();
    return new Set([
      `${symbol}@depth@100ms`,
      `${symbol}@trade`,
      `${symbol}@kline_${this.interval}`,
      '!miniTicker@arr',
    ]);
  }

  /** Brings the connection's subscriptions to what is wanted, then loads. Changes within the pause are joined into one. */
  private change(load: Load): void {
    if (this.toLoad !== 'all again' && !(this.toLoad === 'all' && load === 'candles')) this.toLoad = load;
    clearTimeout(this.changeTimer);
    const wait = Math.max(0, this.lastChange + BETWEEN_CHANGES_MS - performance.now());
    this.changeTimer = window.setTimeout(() => void this.changeNow(), wait);
  }

  private async changeNow(): Promise<void> {
    this.lastChange = performance.now();
    const wanted = this.streams();
    const added = [...wanted].filter(name => !this.subscribed.has(name));
    const dropped = [...this.subscribed].filter(name => !wanted.has(name));
    this.subscribed = wanted;
    try {
      const answers = [];
      if (dropped.length > 0) answers.push(this.connection.call('UNSUBSCRIBE', dropped));
      if (added.length > 0) answers.push(this.connection.call('SUBSCRIBE', added));
      await Promise.all(answers);
    } catch {
      // The connection is lost: when it is back, everything is subscribed and loaded again.
      return;
    }
    // A newer change took over: it loads what this one should have.
    if (this.subscribed !== wanted) return;
    const load = this.toLoad;
    this.toLoad = null;
    // The snapshot comes after the subscription's answer, or updates between the two would be lost.
    if (load === 'candles') void this.loadCandles();
    else if (load !== null) this.loadAll(load === 'all again');
  }

  private loadAll(afterLoss: boolean): void {
    this.timeline.clear();
    this.restartBook(afterLoss);
    void this.loadCandles();
    void this.loadTrades();
    void this.loadTickers();
  }

  private restartBook(resync: boolean, withEvent?: DepthEvent): void {
    this.book.restart(resync);
    if (withEvent) this.book.onEvent(withEvent);
    this.bookChanged.emit();
    this.healthChanged.emit();
    void this.loadSnapshot();
  }

  private async loadSnapshot(): Promise<void> {
    const turn = ++this.snapshotTurn;
    const { symbol } = this.market;
    for (;;) {
      try {
        const snapshot = await this.rest.depth(symbol, SNAPSHOT_LEVELS);
        if (turn !== this.snapshotTurn || symbol !== this.market.symbol) return;
        if (this.book.onSnapshot(snapshot) !== 'resync') break;
        this.book.restart(true);
      } catch {
        if (turn !== this.snapshotTurn) return;
      }
      await new Promise(resolve => setTimeout(resolve, RETRY_MS));
      if (turn !== this.snapshotTurn) return;
    }
    this.bookChanged.emit();
    this.healthChanged.emit();
  }

  private async loadCandles(): Promise<void> {
    const turn = ++this.candleTurn;
    this.oldestReached = false;
    for (;;) {
      try {
        const page = await this.candlePage();
        if (turn !== this.candleTurn) return;
        this.timeline.merge(page);
        this.candlesChanged.emit({ kind: 'all' });
        return;
      } catch {
        await new Promise(resolve => setTimeout(resolve, RETRY_MS));
        if (turn !== this.candleTurn) return;
      }
    }
  }

  private async candlePage(endTime?: number): Promise<Candle[]> {
    const parameters = { symbol: this.market.symbol, interval: this.interval, limit: CANDLES_PER_PAGE };
    const rows = await this.rest.klines(endTime === undefined ? parameters : { ...parameters, endTime });
    return rows.map(candleOfRow);
  }

  private async loadTrades(): Promise<void> {
    const { symbol } = this.market;
    try {
      const rows = await this.rest.trades(symbol, TRADES_KEPT);
      if (symbol !== this.market.symbol) return;
      for (const row of rows) {
        this.addTrade({
          id: row.id,
          price: units(row.price),
          quantity: units(row.qty),
          time: row.time,
          buyerIsMaker: row.isBuyerMaker,
        });
      }
      this.tradesChanged.emit();
    } catch {
      // The stream fills the tape anyway.
    }
  }

  private async loadTickers(): Promise<void> {
    try {
      for (const row of await this.rest.tickers()) this.tickers.set(row.symbol, tickerOfRow(row));
      this.tickersChanged.emit();
    } catch {
      // The stream brings each ticker as it changes.
    }
  }

  /** Newest first, each trade once. */
  private addTrade(trade: Trade): void {
    const place = this.trades.findIndex(known => known.id <= trade.id);
    if (place < 0) this.trades.push(trade);
    else if (this.trades[place]!.id !== trade.id) this.trades.splice(place, 0, trade);
    if (this.trades.length > TRADES_KEPT) this.trades.length = TRADES_KEPT;
  }

  private receive(message: Record<string, unknown>): void {
    const stream = message['stream'];
    if (typeof stream !== 'string') return;
    if (stream === '!miniTicker@arr') {
      for (const row of message['data'] as MiniTicker[]) this.tickers.set(row.s, tickerOfEvent(row));
      this.tickersChanged.emit();
      return;
    }
    // What was sent before an UNSUBSCRIBE took effect may still come in.
    if (!this.streams().has(stream)) return;
    const kind = stream.split('@')[1] ?? '';
    if (kind === 'depth') this.onDepth(message['data'] as DepthEvent);
    else if (kind === 'trade') this.onTrade(message['data'] as TradeEvent);
    else if (kind.startsWith('kline_')) this.onCandle((message['data'] as { k: KlineEvent }).k);
  }

  private onDepth(event: DepthEvent): void {
    if (this.book.state === 'empty') return;
    if (this.book.onEvent(event) === 'resync') this.restartBook(true, event);
    else this.bookChanged.emit();
  }

  private onTrade(event: TradeEvent): void {
    this.addTrade({
      id: event.t,
      price: units(event.p),
      quantity: units(event.q),
      time: event.T,
      buyerIsMaker: event.m,
    });
    this.tradesChanged.emit();
  }

  private onCandle(k: KlineEvent): void {
    const candle: Candle = { time: k.t, open: k.o, high: k.h, low: k.l, close: k.c, volume: k.v, trades: k.n };
    const kind = this.timeline.apply(candle);
    if (kind === 'stale') this.healthChanged.emit();
    this.candlesChanged.emit({ kind, candle });
  }
}

interface TradeEvent {
  t: number;
  p: string;
  q: string;
  T: number;
  m: boolean;
}

interface KlineEvent {
  t: number;
  o: string;
  h: string;
  l: string;
  c: string;
  v: string;
  n: number;
}

interface MiniTicker {
  s: string;
  c: string;
  o: string;
  h: string;
  l: string;
  v: string;
  q: string;
}

const tickerOfEvent = (row: MiniTicker): Ticker => ({
  last: units(row.c),
  open: units(row.o),
  high: units(row.h),
  low: units(row.l),
  volume: units(row.v),
  quoteVolume: units(row.q),
});

const tickerOfRow = (row: TickerRow): Ticker => ({
  last: units(row.lastPrice),
  open: units(row.openPrice),
  high: units(row.highPrice),
  low: units(row.lowPrice),
  volume: units(row.volume),
  quoteVolume: units(row.quoteVolume),
});
