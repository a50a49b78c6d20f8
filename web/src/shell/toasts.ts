import { h } from './dom.ts';

const SHOWN_MS = 4_000;
const MOST = 3;

const region = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite', popover: 'manual' });

export function mountToasts(): void {
  document.body.append(region);
}

/** A short message that goes away by itself; the newest few stay. */
export function toast(title: string, detail = '', tone: 'plain' | 'up' | 'down' | 'bad' = 'plain'): void {
  const box = h('div', { class: `toast ${tone}` }, h('strong', {}, title), ...(detail ? [h('span', {}, detail)] : []));
  region.append(box);
  while (region.childElementCount > MOST) region.firstElementChild?.remove();
  // Shown anew, so that it is above a dialog that was opened meanwhile.
  region.hidePopover();
  region.showPopover();
  setTimeout(() => {
    box.remove();
    if (region.childElementCount === 0) region.hidePopover();
  }, SHOWN_MS);
}
