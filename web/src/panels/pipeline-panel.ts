// How events get from the engine to those who read them: for each group its lag, its rates, where that is going, and a verdict.

import {
  duration,
  rate,
  sparkline,
  tone,
  verdictText,
  worst,
  type GroupLag,
  type Pipeline,
  type VerdictWords,
} from '../pipeline/pipeline.ts';
import type { Rest } from '../rest.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { words } from '../shell/words.ts';
import { figure, openDialog } from './dialogs.ts';

/** The status bar looks now and then, an open panel as often as the server measures. */
const GLANCE_MS = 10_000;
const LOOK_MS = 1_000;
const WIDTH = 120;
const HEIGHT = 28;
const SVG = 'http://www.w3.org/2000/svg';

const VERDICTS: VerdictWords = {
  keepingUp: words.keepingUp,
  catchingUp: words.catchingUp,
  surge: words.surge,
  consumerSlow: words.consumerSlow,
  stalled: words.stalled,
  willDrain: words.willDrain,
  willDrainAfter: words.willDrainAfter,
};

const TRENDS = { growing: words.growing, shrinking: words.shrinking, steady: words.steady };

/** The status bar's item: a dot with the worst verdict; a click opens the panel. */
export function pipelineStatus(rest: Rest): HTMLElement {
  const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
  const state = h('span', { 'data-test': 'pipeline-state' }, '–');
  const show = (pipeline: Pipeline): void => {
    const verdict = worst(pipeline);
    setClass(dot, `dot ${tone(verdict)}`);
    const group = pipeline.groups.find(one => one.verdict === verdict);
    setText(state, group ? verdictText(group, VERDICTS) : verdict === 'keeping_up' ? words.keepingUp : words.relayHeld);
  };
  const glance = async (): Promise<void> => {
    try {
      if (!document.hidden) show(await rest.pipeline());
    } catch {
      // The connection's own dot says that the server is not reached.
      setClass(dot, 'dot connecting');
      setText(state, '–');
    }
    setTimeout(glance, GLANCE_MS);
  };
  void glance();
  const button = h('button', { type: 'button', class: 'status-item pipeline-open', 'data-test': 'pipeline' }, dot, `${words.pipeline}: `, state);
  button.addEventListener('click', () => openPipeline(rest, show));
  return button;
}

/** One group, made once and written anew each second. */
function card(): { element: HTMLElement; draw: (group: GroupLag) => void } {
  const name = h('h3', {});
  const topic = h('span', { class: 'dim' });
  const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
  const verdict = h('b', { 'data-test': 'verdict' });
  const line = document.createElementNS(SVG, 'path');
  const chart = document.createElementNS(SVG, 'svg');
  chart.setAttribute('viewBox', `0 -1 ${WIDTH} ${HEIGHT + 2}`);
  chart.setAttribute('preserveAspectRatio', 'none');
  chart.setAttribute('class', 'sparkline');
  chart.setAttribute('role', 'img');
  chart.append(line);
  const figures = {
    lag: figure(words.lag),
    age: figure(words.oldest),
    produced: figure(words.producedRate),
    consumed: figure(words.consumedRate),
    trend: figure(words.trend),
    drain: figure(words.drainsIn),
    alone: figure(words.drainsAlone),
    latency: figure(words.endToEnd),
  };
  const note = h('p', { class: 'fault' });
  const element = h(
    'article',
    { class: 'pipeline-card' },
    h('div', { class: 'pipeline-head' }, h('div', {}, name, topic), h('span', { class: 'pipeline-verdict' }, dot, verdict)),
    h('dl', { class: 'number' }, ...Object.values(figures).map(({ box }) => box)),
    note,
  );
  element.insertBefore(chart, note);
  const draw = (group: GroupLag): void => {
    // What is kept up with is gone with the next commit; two rates that are about the same say nothing then.
    const kept = group.verdict === 'keeping_up' && group.lag_records > 0;
    const time = (seconds: number | null): string => (kept ? '–' : seconds === null ? words.never : duration(seconds));
    setText(name, group.group);
    setText(topic, group.topic);
    setClass(dot, `dot ${tone(group.verdict)}`);
    setText(verdict, verdictText(group, VERDICTS));
    setText(figures.lag.value, group.lag_records.toLocaleString('en-US'));
    setText(figures.age.value, group.age_s === null ? '–' : duration(group.age_s));
    setText(figures.produced.value, `${rate(group.production_per_s)}/s`);
    setText(figures.consumed.value, `${rate(group.consumption_per_s)}/s`);
    setText(figures.trend.value, TRENDS[group.trend]);
    setText(figures.drain.value, time(group.drain_s));
    setText(figures.alone.value, time(group.drain_if_stopped_s));
    const { latency } = group;
    setText(figures.latency.value, latency ? `${duration(latency.p50_s)} / ${duration(latency.p99_s)}` : '–');
    line.setAttribute('d', sparkline(group.history, WIDTH, HEIGHT));
    line.setAttribute('class', tone(group.verdict));
    chart.setAttribute('aria-label', `${words.lag}: ${TRENDS[group.trend]}`);
    const notes: string[] = [];
    if (group.skewed_partition !== null) notes.push(`${words.mostOfIt} ${group.skewed_partition}`);
    if (group.lost > 0) notes.push(`${words.lostBefore}: ${group.lost.toLocaleString('en-US')}`);
    setText(note, notes.join(' · '));
  };
  return { element, draw };
}

function openPipeline(rest: Rest, seen: (pipeline: Pipeline) => void): void {
  const relay = h('p', { class: 'dim', 'data-test': 'relay' });
  const fault = h('p', { class: 'fault', role: 'alert' });
  const list = h('div', { class: 'pipeline-cards', 'data-test': 'pipeline-groups' });
  const cards = new Map<string, ReturnType<typeof card>>();
  const dialog = openDialog(words.pipeline, h('p', { class: 'dim' }, words.pipelineHint), relay, list, fault);
  dialog.classList.add('pipeline-dialog');
  const draw = (pipeline: Pipeline): void => {
    const present = new Set<string>();
    for (const group of pipeline.groups) {
      const key = `${group.group} ${group.topic}`;
      present.add(key);
      let one = cards.get(key);
      if (!one) {
        one = card();
        cards.set(key, one);
        list.append(one.element);
      }
      one.draw(group);
    }
    for (const [key, one] of cards) {
      if (present.has(key)) continue;
      one.element.remove();
      cards.delete(key);
    }
    const there = pipeline.relay;
    relay.hidden = there === null;
    if (there) {
      const text = `${words.relay}: ${there.state}, ${there.lag_records.toLocaleString('en-US')} (${duration(there.age_s)})`;
      setText(relay, there.fault ? `${text}. ${there.fault}` : text);
    }
    seen(pipeline);
  };
  const look = async (): Promise<void> => {
    if (!dialog.open) return;
    try {
      draw(await rest.pipeline());
      setText(fault, '');
    } catch {
      setText(fault, words.offline);
    }
    setTimeout(look, LOOK_MS);
  };
  void look();
}
