import { h } from './dom.ts';

const SHOWN_MS = 4_000;
const MOST = 3;

const region = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' });

export function mountToasts(): void {
  document.body.append(region);
}

/** A short message that goes away by itself; the newest few stay. */
export function toast(title: string, detail = '', tone: 'plain' | 'up' | 'down' | 'bad' = 'plain'): void {
  const box = h('div', { class: `toast ${tone}` }, h('strong', {}, title), ...(detail ? [h('span', {}, detail)] : []));
  region.append(box);
  while (region.childElementCount > MOST) region.firstElementChild?.remove();
  setTimeout(() => box.remove(), SHOWN_MS);
}
