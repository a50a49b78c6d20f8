// What `/api/v1/pipeline` says, and how it is put into few characters. Nothing here touches the page.

export type VerdictName = 'keeping_up' | 'catching_up' | 'surge' | 'consumer_slow' | 'stalled';
export type TrendName = 'growing' | 'shrinking' | 'steady';

/** Times in seconds, rates in messages per second; a time that never comes is null. */
export interface Lag {
  lag_records: number;
  age_s: number | null;
  behind_s: number;
  production_per_s: number;
  consumption_per_s: number;
  trend: TrendName;
  drain_s: number | null;
  drain_if_stopped_s: number | null;
  verdict: VerdictName;
  verdict_text: string;
  verdict_drain_s: number | null;
  verdict_after_surge: boolean;
  lost: number;
}

export interface Latency {
  count: number;
  p50_s: number;
  p99_s: number;
  max_s: number;
}

export interface GroupLag extends Lag {
  group: string;
  topic: string;
  skewed_partition: number | null;
  /** Lag of the last two minutes, one value a second, the oldest first. */
  history: number[];
  latency: Latency | null;
  partitions: (Lag & { partition: number; end: number; consumed: number })[];
}

export interface Relay {
  state: string;
  fault: string | null;
  lag_records: number;
  age_s: number;
}

export interface Pipeline {
  groups: GroupLag[];
  relay: Relay | null;
}

const SEVERITY: Record<VerdictName, number> = { keeping_up: 0, catching_up: 1, surge: 2, consumer_slow: 3, stalled: 4 };

/** How the colour of the whole is chosen: the worst of the groups, and a relay that is not on its way. */
export function worst(pipeline: Pipeline): VerdictName {
  const relay: VerdictName[] =
    pipeline.relay === null
      ? []
      : pipeline.relay.state === 'stopped'
        ? ['stalled']
        : ['connecting', 'waiting', 'ahead'].includes(pipeline.relay.state)
          ? ['consumer_slow']
          : [];
  const all = [...pipeline.groups.map(({ verdict }) => verdict), ...relay];
  return all.reduce<VerdictName>((a, b) => (SEVERITY[b] > SEVERITY[a] ? b : a), 'keeping_up');
}

/** Green, yellow or red, as the dots of the status bar have it. */
export function tone(verdict: VerdictName): 'live' | 'connecting' | 'down' {
  if (verdict === 'keeping_up') return 'live';
  return verdict === 'catching_up' || verdict === 'surge' ? 'connecting' : 'down';
}

/** `850 ms`, `12.3 s`, `4 m 10 s`, `3 h 5 m`; nothing is `0 s`. */
export function duration(seconds: number): string {
  if (seconds <= 0) return '0 s';
  if (seconds < 0.9995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} m`;
}

/** `1,234` and, for small rates, `0.25`. */
export function rate(perSecond: number): string {
  if (perSecond > 0 && perSecond < 10) return perSecond.toFixed(2);
  return Math.round(perSecond).toLocaleString('en-US');
}

export interface VerdictWords {
  keepingUp: string;
  catchingUp: string;
  surge: string;
  consumerSlow: string;
  stalled: string;
  /** With `{}` where the time goes. */
  willDrain: string;
  willDrainAfter: string;
}

/** The verdict as a sentence: `surge, will drain in 12 s`. */
export function verdictText(lag: Lag, words: VerdictWords): string {
  const drain = Math.ceil(lag.verdict_drain_s ?? 0);
  const sentence = lag.verdict_after_surge ? words.willDrainAfter : words.willDrain;
  const time = sentence.replace('{}', drain < 60 ? `${drain} s` : duration(drain));
  switch (lag.verdict) {
    case 'keeping_up':
      return words.keepingUp;
    case 'catching_up':
      return `${words.catchingUp}, ${time}`;
    case 'surge':
      return `${words.surge}, ${time}`;
    case 'consumer_slow':
      return words.consumerSlow;
    case 'stalled':
      return words.stalled;
  }
}

/** The path of a line through the values, in a box of this size, from zero at the bottom; the newest value is at the right edge. */
export function sparkline(values: readonly number[], width: number, height: number): string {
  if (values.length < 2) return '';
  const top = Math.max(...values, 1);
  const step = width / (values.length - 1);
  const point = (value: number, place: number): string =>
    `${(place * step).toFixed(1)} ${(height - (value / top) * height).toFixed(1)}`;
  return `M${values.map(point).join('L')}`;
}
