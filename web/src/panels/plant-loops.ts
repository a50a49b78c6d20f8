// The loops of each member of this process: how much of the last second each of them worked, as a bar.

import { grouped, letter, micros } from '../plant/figures.ts';
import type { Loop, Member } from '../plant/plant.ts';
import { h, setClass, setText } from '../shell/dom.ts';
import { words } from '../shell/words.ts';

/** From this on a bar is yellow, and red. */
const HIGH = 0.6;
const FULL = 0.9;

interface Bar {
  element: HTMLElement;
  draw: (loop: Loop) => void;
}

export function loopBars(): { element: HTMLElement; draw: (members: readonly Member[]) => void } {
  const element = h('div', { class: 'plant-members' });
  let made = '';
  let bars: Bar[] = [];
  const draw = (members: readonly Member[]): void => {
    const running = members.filter(member => member.loops.length > 0);
    // Made anew only when there are other members or loops than before.
    const shape = running.map(({ group, node, loops, heavy_loops }) => `${group} ${node} ${loops.length} ${heavy_loops.length}`).join('\n');
    if (shape !== made) {
      made = shape;
      bars = [];
      element.replaceChildren(
        ...running.map(({ group, node, loops, heavy_loops }) => {
          const own = [
            ...loops.map((loop, place) => bar(loop.hot ? `${words.hotLoop} ${place + 1}` : `${words.loop} ${place + 1}`)),
            ...heavy_loops.map((_, place) => bar(`${words.heavyLoop} ${place + 1}`)),
          ];
          bars.push(...own);
          return h(
            'section',
            { class: 'plant-member' },
            h('h3', {}, `${letter(group)} `, h('span', { class: 'dim' }, node)),
            h('ul', { class: 'plant-bars' }, ...own.map(one => one.element)),
          );
        }),
      );
    }
    running.flatMap(({ loops, heavy_loops }) => [...loops, ...heavy_loops]).forEach((loop, place) => bars[place]?.draw(loop));
  };
  return { element, draw };
}

function bar(label: string): Bar {
  const meter = h('meter', { min: 0, max: 1, low: HIGH, high: FULL, optimum: 0, 'aria-label': label });
  const percent = h('span', { class: 'number' });
  const element = h('li', {}, h('span', { class: 'dim' }, label), meter, percent);
  const draw = (loop: Loop): void => {
    meter.value = loop.load;
    setText(percent, `${Math.round(loop.load * 100)} %`);
    setClass(percent, loop.load >= FULL ? 'number plant-wrong' : 'number');
    const notes = [`${words.queue} ${grouped(loop.queue)}`, `${words.wait} ${micros(loop.delay_us)}`, `${words.ticks} ${grouped(loop.ticks)}`];
    if (loop.away > 0) notes.push(`${words.symbolsAway} ${grouped(loop.away)}`);
    element.title = notes.join(' · ');
  };
  return { element, draw };
}
