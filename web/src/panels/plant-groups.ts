// Both groups of the tick plant side by side, a figure a row.

import { FIGURES, figuresOf, letter, type FigureName } from '../plant/figures.ts';
import { GROUPS, type Group, type GroupName, type Groups } from '../plant/plant.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { words } from '../shell/words.ts';

const LABELS: Record<FigureName, string> = {
  behind: words.ticksBehind,
  stale: words.staleSymbols,
  written: words.writtenP99,
  refused: words.refusedWrites,
  members: words.members,
  outOfOrder: words.outOfOrder,
  again: words.cameAgain,
  gaps: words.gaps,
  lost: words.lost,
};

/** The rows before this one say how a group is; it and those after it what became of the order of ticks. */
const FIRST_OF_ORDER: FigureName = 'outOfOrder';

interface Column {
  head: HTMLElement;
  leader: HTMLElement;
  cells: Record<FigureName, HTMLElement>;
  draw: (group: Group) => void;
}

export interface GroupTable {
  element: HTMLElement;
  draw: (groups: Groups) => void;
  /** While a switch is asked for, no other one is. */
  setBusy: (busy: boolean) => void;
}

export function groupTable(show: (group: GroupName) => void): GroupTable {
  const buttons: HTMLButtonElement[] = [];
  const columns = GROUPS.map(name => column(name, show, buttons));
  const row = (label: string, extra: string, cell: (column: Column) => HTMLElement): HTMLElement =>
    h('tr', { class: extra }, h('th', { scope: 'row' }, label), ...columns.map(cell));
  const element = h(
    'table',
    { class: 'plant-groups', 'data-test': 'plant-groups' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, h('span', { class: 'dim' }, words.group)), ...columns.map(({ head }) => head))),
    h(
      'tbody',
      { class: 'number' },
      row(words.leader, '', ({ leader }) => leader),
      ...FIGURES.map(name => row(LABELS[name], name === FIRST_OF_ORDER ? 'plant-order' : '', ({ cells }) => cells[name])),
    ),
  );
  const draw = (groups: Groups): void => {
    GROUPS.forEach((name, place) => columns[place]?.draw(groups[name]));
  };
  const setBusy = (busy: boolean): void => {
    for (const button of buttons) button.disabled = busy;
  };
  return { element, draw, setBusy };
}

function column(name: GroupName, show: (group: GroupName) => void, buttons: HTMLButtonElement[]): Column {
  const shown = h('span', { class: 'badge plant-shown', 'data-test': `plant-shown-${name}` }, words.shown);
  const button = h('button', { type: 'button', class: 'quiet', 'data-test': `plant-show-${name}`, onclick: () => show(name) });
  setText(button, words.showGroup.replace('{}', letter(name)));
  buttons.push(button);
  const head = h('th', { scope: 'col', 'data-test': `plant-group-${name}` }, h('div', { class: 'plant-group' }, h('b', {}, letter(name)), shown, button));
  const leader = h('td', { 'data-test': `plant-leader-${name}` });
  const cells = {} as Record<FigureName, HTMLElement>;
  for (const figure of FIGURES) cells[figure] = h('td', {});
  const draw = (group: Group): void => {
    shown.hidden = !group.active;
    button.hidden = group.active;
    const state = group.leader ?? (group.connected ? words.noLeader : words.notReached);
    setText(leader, group.rebuilding ? `${state} (${words.rebuilding})` : state);
    setClass(leader, group.leader === null ? 'plant-wrong' : '');
    const figures = figuresOf(group);
    for (const figure of FIGURES) {
      setText(cells[figure], figures[figure].text);
      setClass(cells[figure], figures[figure].wrong ? 'plant-wrong' : '');
    }
    cells.members.title = group.members?.map(({ node }) => node).join(', ') ?? '';
  };
  return { head, leader, cells, draw };
}
