// The candles of one chart, in time order whatever arrives: history may come newest first or overlap the stream, the stream may
// repeat a candle or send one that is over. The chart below it refuses to go back in time, so nothing may reach it out of order.

export interface Candle {
  /** Open time in ms since the epoch. */
  time: number;
  /** Prices and volume as the server writes them. */
  open: string;
  high: string;
  low: string;
  close: string;
  volume: string;
  /** Number of trades: of two versions of a candle, the one with more trades is the later one. */
  trades: number;
}

export type CandleChange =
  | 'append'
  | 'replace'
  /** Older than the newest candle and not in the list: refused. */
  | 'stale'
  /** A candle that is over was changed by a late trade: it is replaced where it stands. */
  | 'revise';

export const INTERVALS = ['1s', '1m', '5m', '15m', '1h', '4h', '1d'] as const;
export type Interval = (typeof INTERVALS)[number];

export const INTERVAL_MS: Record<Interval, number> = {
  '1s': 1_000,
  '1m': 60_000,
  '5m': 300_000,
  '15m': 900_000,
  '1h': 3_600_000,
  '4h': 14_400_000,
  '1d': 86_400_000,
};

export class CandleTimeline {
  /** Ascending by time, each time once. */
  candles: Candle[] = [];
  /** Messages refused because they went back in time. */
  stale = 0;

  clear(): void {
    this.candles = [];
  }

  /** Merges a page of history, in any order. Of two versions of a candle the one with more trades is kept. */
  merge(page: readonly Candle[]): void {
    const byTime = new Map(this.candles.map(candle => [candle.time, candle]));
    for (const candle of page) {
      const known = byTime.get(candle.time);
      if (!known || known.trades < candle.trades) byTime.set(candle.time, candle);
    }
    this.candles = [...byTime.values()].sort((x, y) => x.time - y.time);
  }

  apply(candle: Candle): CandleChange {
    const last = this.candles[this.candles.length - 1];
    if (!last || candle.time > last.time) {
      this.candles.push(candle);
      return 'append';
    }
    if (candle.time === last.time) {
      this.candles[this.candles.length - 1] = candle;
      return 'replace';
    }
    const place = this.find(candle.time);
    if (place < 0) {
      this.stale += 1;
      return 'stale';
    }
    this.candles[place] = candle;
    return 'revise';
  }

  private find(time: number): number {
    let low = 0;
    let high = this.candles.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const at = this.candles[middle]!.time;
      if (at === time) return middle;
      if (at < time) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }
}

/** A row of `GET /api/v3/klines`. */
export type KlineRow = [
  openTime: number,
  open: string,
  high: string,
  low: string,
  close: string,
  volume: string,
  closeTime: number,
  quoteVolume: string,
  trades: number,
  ...rest: unknown[],
];

export function candleOfRow(row: KlineRow): Candle {
  return { time: row[0], open: row[1], high: row[2], low: row[3], close: row[4], volume: row[5], trades: row[8] };
}
