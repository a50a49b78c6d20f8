// The tick plant: what comes in, both groups that work on it, which of them is shown, and moving to the other.

import { concernOf, faultsOf, grouped, latestSwitches, letter, toneOf, type Concern } from '../plant/figures.ts';
import { Operator } from '../plant/operator.ts';
import type { Difference, DifferenceKind, GroupName, Groups, Plant } from '../plant/plant.ts';
import { PlantWatch } from '../plant/watch.ts';
import { rate } from '../pipeline/pipeline.ts';
import { Refused, type Rest } from '../rest.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { toast } from '../shell/toasts.ts';
import { words } from '../shell/words.ts';
import { figure, openDialog, reasonOf } from './dialogs.ts';
import { askToken } from './operator-dialog.ts';
import { groupTable } from './plant-groups.ts';
import { loopBars } from './plant-loops.ts';

const CONFLICT = 409;

const KINDS: Record<DifferenceKind, string> = { last: words.differLast, candles: words.differCandles, output: words.differOutput };

/** The status bar's item, which is there while there is a plant; a click opens the panel. */
export function plantStatus(rest: Rest): HTMLElement {
  const watch = new PlantWatch(rest.plant);
  const operator = new Operator(askToken);
  const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
  const state = h('span', { 'data-test': 'plant-state' }, '–');
  const button = h('button', { type: 'button', class: 'status-item pipeline-open', 'data-test': 'plant' }, dot, `${words.plant}: `, state);
  button.hidden = true;
  watch.changed.on(() => {
    const { found, plant } = watch;
    button.hidden = plant === null;
    if (plant === null) return;
    const concern = concernOf(plant);
    setClass(dot, `dot ${found === 'away' ? 'connecting' : toneOf(concern, plant.groups?.active ?? null)}`);
    setText(state, found === 'away' ? '–' : stateText(plant, concern));
  });
  button.addEventListener('click', () => openPlant(rest, watch, operator));
  void watch.look();
  return button;
}

/** `A shown`, and what is wrong. */
function stateText({ groups }: Plant, concern: Concern): string {
  const parts = groups ? [words.isShown.replace('{}', letter(groups.active))] : [];
  const wrong = concernText(concern);
  if (wrong) parts.push(wrong);
  return parts.join(', ') || words.keepingUp;
}

function concernText(concern: Concern): string {
  switch (concern.kind) {
    case 'fine':
      return '';
    case 'fault':
      return words.plantFault;
    case 'differs':
      return words.groupsDiffer;
    case 'no_leader':
      return `${letter(concern.group)}: ${words.noLeader}`;
    case 'rebuilding':
      return `${letter(concern.group)}: ${words.rebuilding}`;
    case 'behind':
      return `${letter(concern.group)}: ${words.behind}`;
    case 'stale':
      return `${letter(concern.group)}: ${words.staleSymbols}`;
  }
}

function openPlant(rest: Rest, watch: PlantWatch, operator: Operator): void {
  const feed = feedFigures();
  const table = groupTable(group => void moveTo(group, false));
  const refusal = refusalBox(group => void moveTo(group, true));
  const outputs = outputsLine(() => void showDifferences(rest));
  const switches = h('ol', { class: 'plant-switches', 'data-test': 'plant-switches' });
  const noSwitch = h('p', { class: 'dim' }, words.noSwitch);
  const loops = loopBars();
  const fault = h('p', { class: 'fault', role: 'alert' });
  const ofGroups = h(
    'div',
    { class: 'stack' },
    refusal.element,
    table.element,
    outputs.element,
    h('section', {}, h('h3', {}, words.lastSwitches), switches, noSwitch),
  );
  const ofLoops = h('section', {}, h('h3', {}, words.loopLoads), loops.element);
  const dialog = openDialog(words.plant, h('p', { class: 'dim' }, words.plantHint), fault, feed.element, ofGroups, ofLoops);
  dialog.classList.add('pipeline-dialog', 'plant-dialog');
  dialog.dataset['test'] = 'plant-panel';

  /** Moves traffic. What the server will not do is said, and may be forced in a step of its own. */
  async function moveTo(group: GroupName, force: boolean): Promise<void> {
    table.setBusy(true);
    refusal.hide();
    try {
      const done = await operator.run(token => rest.switchPlant(group, force, token));
      if (done !== null) await watch.look();
    } catch (reason) {
      toast(words.switchRefused, reasonOf(reason), 'bad');
      if (reason instanceof Refused && reason.status === CONFLICT && !force) refusal.show(group, reason.message);
    } finally {
      table.setBusy(false);
    }
  }

  const drawSwitches = (groups: Groups): void => {
    const rows = latestSwitches(groups).map(({ from, to, reason, automatic }) => {
      const how = automatic ? ` (${words.automatic})` : '';
      return `${letter(from)} → ${letter(to)}: ${reason}${how}`;
    });
    noSwitch.hidden = rows.length > 0;
    if (rows.join('\n') === [...switches.children].map(row => row.textContent).join('\n')) return;
    switches.replaceChildren(...rows.map(row => h('li', {}, row)));
  };
  const draw = (): void => {
    if (!dialog.open) return;
    const { found, plant } = watch;
    setText(fault, found === 'away' ? words.offline : found === 'none' ? words.noPlant : plant ? faultsOf(plant, words.feed).join(' · ') : '');
    if (!plant) return;
    feed.draw(plant, watch.rate);
    ofGroups.hidden = plant.groups === null;
    if (plant.groups) {
      table.draw(plant.groups);
      outputs.draw(plant.groups);
      drawSwitches(plant.groups);
    }
    ofLoops.hidden = plant.members.length === 0;
    loops.draw(plant.members);
  };
  const stop = watch.changed.on(draw);
  dialog.addEventListener('close', () => {
    stop();
    watch.setOpen(false);
  });
  draw();
  watch.setOpen(true);
}

function feedFigures(): { element: HTMLElement; draw: (plant: Plant, perSecond: number | null) => void } {
  const figures = {
    rate: figure(words.ticksPerSecond),
    ticks: figure(words.ticks),
    waiting: figure(words.waiting),
    repeated: figure(words.repeated),
    full: figure(words.spoolFull),
  };
  figures.rate.value.dataset['test'] = 'plant-rate';
  const element = h('dl', { class: 'number plant-feed', 'aria-label': words.feed }, ...Object.values(figures).map(({ box }) => box));
  const draw = ({ feed }: Plant, perSecond: number | null): void => {
    element.hidden = feed === null;
    if (!feed) return;
    const waiting = feed.published ? grouped(feed.published.waiting) : '–';
    setText(figures.rate.value, perSecond === null ? '–' : rate(perSecond));
    setText(figures.ticks.value, feed.ended ? `${grouped(feed.ticks)} (${words.ended})` : grouped(feed.ticks));
    setText(figures.waiting.value, feed.published?.connected === false ? `${waiting} (${words.busAway})` : waiting);
    setText(figures.repeated.value, grouped(feed.repeated));
    setText(figures.full.value, grouped(feed.full));
  };
  return { element, draw };
}

function outputsLine(list: () => void): { element: HTMLElement; draw: (groups: Groups) => void } {
  const compared = h('b', { class: 'number' });
  const differs = h('b', { class: 'number', 'data-test': 'plant-differs' });
  const button = h('button', { type: 'button', class: 'link', 'data-test': 'plant-differences', onclick: list }, words.differences);
  const element = h(
    'p',
    { class: 'plant-outputs' },
    h('span', {}, `${words.outputsCompared} `, compared),
    h('span', {}, `${words.symbolsDiffer} `, differs),
    button,
  );
  const draw = (groups: Groups): void => {
    setText(compared, grouped(groups.compared));
    setText(differs, grouped(groups.differs));
    setClass(differs, groups.differs > 0 ? 'number plant-wrong' : 'number');
  };
  return { element, draw };
}

/** Why traffic was not moved, and the way to move it all the same. */
function refusalBox(force: (group: GroupName) => void): {
  element: HTMLElement;
  show: (group: GroupName, reason: string) => void;
  hide: () => void;
} {
  const text = h('p', {});
  const actions = h('div', { class: 'row' });
  const element = h('div', { class: 'plant-refusal', role: 'alert', 'data-test': 'plant-refusal' }, text, actions);
  const hide = (): void => {
    element.hidden = true;
  };
  hide();
  const show = (group: GroupName, reason: string): void => {
    setText(text, reason);
    actions.replaceChildren(
      h('button', { type: 'button', class: 'quiet plant-force', 'data-test': 'plant-force', onclick: () => force(group) }, words.forceShow.replace('{}', letter(group))),
      h('button', { type: 'button', class: 'quiet', onclick: hide }, words.leaveIt),
    );
    element.hidden = false;
    element.scrollIntoView({ block: 'nearest' });
  };
  return { element, show, hide };
}

async function showDifferences(rest: Rest): Promise<void> {
  let differences: Difference[];
  try {
    differences = await rest.plantDifferences();
  } catch (reason) {
    toast(words.failed, reasonOf(reason), 'bad');
    return;
  }
  const table = h(
    'table',
    { class: 'plant-diff' },
    h('thead', {}, h('tr', {}, ...[words.market, words.tickNumber, words.differIn].map(label => h('th', { scope: 'col' }, label)))),
    h(
      'tbody',
      { class: 'number' },
      ...differences.map(({ symbol, seq, kind }) => h('tr', {}, h('td', {}, symbol), h('td', {}, grouped(seq)), h('td', {}, KINDS[kind]))),
    ),
  );
  const dialog = openDialog(
    words.differences,
    h('p', { class: 'dim' }, differences.length > 0 ? words.differencesHint : words.noDifference),
    ...(differences.length > 0 ? [h('div', { class: 'plant-diff-scroll', tabindex: 0 }, table)] : []),
  );
  dialog.dataset['test'] = 'plant-diff';
}
