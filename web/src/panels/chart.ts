// The candle chart with volume below it. The library paints pixels from floats; that is the one place where a price becomes one.

import {
  CandlestickSeries,
  ColorType,
  createChart,
  CrosshairMode,
  HistogramSeries,
  type CandlestickData,
  type HistogramData,
  type IPriceLine,
  LineStyle,
  type UTCTimestamp,
} from 'lightweight-charts';
import type { AccountFeed } from '../account/account-feed.ts';
import { formatUnits, plain, short, units, type Units } from '../decimal.ts';
import { INTERVALS, type Candle } from '../market/candles.ts';
import type { MarketFeed } from '../market/market-feed.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { colour, themeChanged } from '../shell/theme.ts';
import { language, words } from '../shell/words.ts';

/** Candles between the left edge and the end of the history at which more is asked for. */
const NEAR_THE_END = 30;
const SHOWN_AT_FIRST = 110;

export function chartPanel(feed: MarketFeed, account: AccountFeed): HTMLElement {
  const canvas = h('div', { class: 'chart-canvas' });
  const legend = h('div', { class: 'chart-legend number', 'aria-hidden': 'true' });
  const buttons = INTERVALS.map(interval =>
    h('button', { type: 'button', class: 'chip', onclick: () => feed.selectInterval(interval) }, interval),
  );
  const chart = createChart(canvas, {
    autoSize: true,
    // The logo's style element would need a weaker content security policy; the credit stands in the status bar instead.
    layout: { attributionLogo: false, fontSize: 11, fontFamily: getComputedStyle(document.body).fontFamily },
    crosshair: { mode: CrosshairMode.Normal },
    timeScale: { timeVisible: true, rightOffset: 6, borderVisible: false, minBarSpacing: 1 },
    rightPriceScale: { borderVisible: false, scaleMargins: { top: 0.08, bottom: 0.24 } },
    localization: { locale: language === 'ko' ? 'ko-KR' : 'en-GB' },
  });
  const candles = chart.addSeries(CandlestickSeries, { priceLineStyle: 2, borderVisible: false });
  const volumes = chart.addSeries(HistogramSeries, {
    priceScaleId: 'volume',
    priceFormat: { type: 'volume' },
    lastValueVisible: false,
    priceLineVisible: false,
  });
  chart.priceScale('volume').applyOptions({ scaleMargins: { top: 0.82, bottom: 0 } });

  let volumeTones = { up: '', down: '' };
  const paint = (): void => {
    const up = colour('up');
    const down = colour('down');
    volumeTones = { up: colour('up-faint'), down: colour('down-faint') };
    const grid = { color: colour('grid') };
    chart.applyOptions({
      layout: { background: { type: ColorType.Solid, color: colour('panel') }, textColor: colour('dim') },
      grid: { vertLines: grid, horzLines: grid },
      crosshair: {
        vertLine: { color: colour('dim'), labelBackgroundColor: colour('raised-strong') },
        horzLine: { color: colour('dim'), labelBackgroundColor: colour('raised-strong') },
      },
    });
    candles.applyOptions({ upColor: up, downColor: down, wickUpColor: up, wickDownColor: down });
  };
  const volumeBar = (candle: Candle): HistogramData<UTCTimestamp> => ({
    time: seconds(candle),
    value: Number(candle.volume),
    color: volumeTones[toneOf(candle)],
  });

  /** True until the first page of a market or an interval was shown: then the newest candles are brought into view. */
  let fresh = true;
  const drawAll = (): void => {
    const all = feed.timeline.candles;
    const { pricePlaces } = feed.market;
    candles.applyOptions({
      priceFormat: { type: 'price', precision: pricePlaces, minMove: Number(formatUnits(feed.market.tick, 8)) },
    });
    chart.applyOptions({ timeScale: { secondsVisible: feed.interval === '1s' } });
    candles.setData(all.map(bar));
    volumes.setData(all.map(volumeBar));
    if (all.length === 0) fresh = true;
    else if (fresh && all.length > 1) {
      fresh = false;
      const to = all.length + 5;
      chart.timeScale().setVisibleLogicalRange({ from: Math.max(to - SHOWN_AT_FIRST, -20), to });
    }
    showLegend(null);
  };

  const showLegend = (time: number | null): void => {
    const all = feed.timeline.candles;
    const candle = time === null ? all[all.length - 1] : all.find(one => one.time === time);
    if (!candle) {
      setText(legend, '');
      return;
    }
    const places = feed.market.pricePlaces;
    const text = (value: string): string => formatUnits(units(value), places, true);
    setClass(legend, `chart-legend number ${toneOf(candle)}`);
    const volume: Units = units(candle.volume);
    setText(
      legend,
      `O ${text(candle.open)}  H ${text(candle.high)}  L ${text(candle.low)}  C ${text(candle.close)}  V ${short(volume)}`,
    );
  };

  feed.candlesChanged.on(change => {
    if (change.kind === 'all') drawAll();
    else if (change.kind !== 'stale') {
      // `revise` changes a candle that is not the newest one; the library has to be told so, or it refuses.
      const historical = change.kind === 'revise';
      candles.update(bar(change.candle), historical);
      volumes.update(volumeBar(change.candle), historical);
      if (!hovering) showLegend(null);
    }
    canvas.dataset['candles'] = String(feed.timeline.candles.length);
  });
  let hovering = false;
  chart.subscribeCrosshairMove(({ time }) => {
    hovering = typeof time === 'number';
    showLegend(typeof time === 'number' ? time * 1_000 : null);
  });
  chart.timeScale().subscribeVisibleLogicalRangeChange(range => {
    if (range && range.from < NEAR_THE_END && !fresh) void feed.loadOlder();
  });
  /** A line for each open order of the user's own, by its number. */
  const lines = new Map<number, IPriceLine>();
  const drawOrders = (): void => {
    const open = account.orders.open().filter(order => order.symbol === feed.market.symbol && order.price > 0n);
    const numbers = new Set(open.map(order => order.id));
    for (const [id, line] of lines) {
      if (numbers.has(id)) continue;
      candles.removePriceLine(line);
      lines.delete(id);
    }
    for (const order of open) {
      const options = {
        price: Number(formatUnits(order.price, 8)),
        color: colour(order.side === 'BUY' ? 'up' : 'down'),
        title: `${order.side === 'BUY' ? words.buy : words.sell} ${plain(order.quantity - order.executed)}`,
      };
      const line = lines.get(order.id);
      if (line) line.applyOptions(options);
      else {
        const style = { lineStyle: LineStyle.Dashed, lineWidth: 1, axisLabelVisible: true } as const;
        lines.set(order.id, candles.createPriceLine({ ...options, ...style }));
      }
    }
  };
  account.ordersChanged.on(drawOrders);
  feed.marketChanged.on(drawOrders);
  const markInterval = (): void => {
    buttons.forEach((button, place) => button.setAttribute('aria-pressed', String(INTERVALS[place] === feed.interval)));
  };
  feed.candlesChanged.on(change => change.kind === 'all' && markInterval());
  themeChanged.on(() => {
    paint();
    drawAll();
    drawOrders();
  });
  paint();
  markInterval();
  return h(
    'section',
    { class: 'panel chart', 'aria-label': words.chart },
    h('div', { class: 'panel-bar' }, h('div', { class: 'chips', role: 'group', 'aria-label': words.interval }, ...buttons), legend),
    canvas,
  );
}

const toneOf = (candle: Candle): 'up' | 'down' => (units(candle.close) >= units(candle.open) ? 'up' : 'down');

const seconds = (candle: Candle): UTCTimestamp => (candle.time / 1_000) as UTCTimestamp;

const bar = (candle: Candle): CandlestickData<UTCTimestamp> => ({
  time: seconds(candle),
  open: Number(candle.open),
  high: Number(candle.high),
  low: Number(candle.low),
  close: Number(candle.close),
});
