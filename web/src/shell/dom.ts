// Building elements without a framework. Text always goes in as text, never as markup.

type Child = Node | string;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void)>;

/** `h('button', { class: 'buy', onclick: … }, 'Buy')`: a true attribute is set empty, a false one is left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

/** Writes only what differs: the browser lays out again on every write, changed or not. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element: HTMLElement, name: string): void {
  if (element.className !== name) element.className = name;
}

const SVG = 'http://www.w3.org/2000/svg';

/** A 24 × 24 line icon from its path. */
export function icon(path: string): SVGSVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('d', path);
  svg.append(line);
  return svg;
}

export const ICONS = {
  sun: 'M12 4V2m0 20v-2m8-8h2M2 12h2m13.7-5.7 1.4-1.4M4.9 19.1l1.4-1.4m0-11.4L4.9 4.9m14.2 14.2-1.4-1.4M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8z',
  moon: 'M20 14.5A8 8 0 1 1 9.5 4a6.5 6.5 0 0 0 10.5 10.5z',
  close: 'M6 6l12 12M18 6 6 18',
  list: 'M4 6h16M4 12h16M4 18h10',
  chart: 'M7 4v4m0 8v4M5 8h4v8H5zm12-5v5m0 6v6M15 8h4v6h-4z',
  book: 'M4 5h10M4 9h14M4 15h16M4 19h8',
  trade: 'M7 7h13m0 0-4-4m4 4-4 4M17 17H4m0 0 4-4m-4 4 4 4',
  person: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zm-8 8c0-3.5 3.6-5.5 8-5.5s8 2 8 5.5',
} as const;
