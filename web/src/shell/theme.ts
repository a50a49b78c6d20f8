// Dark or light: the system's wish until the user says otherwise.

import { Signal } from '../signal.ts';

export type Theme = 'dark' | 'light';

const STORED = 'hoga.theme';
const system = matchMedia('(prefers-color-scheme: light)');

export const themeChanged = new Signal();

export function currentTheme(): Theme {
  const stored = localStorage.getItem(STORED);
  if (stored === 'dark' || stored === 'light') return stored;
  return system.matches ? 'light' : 'dark';
}

export function startTheme(): void {
  const apply = (): void => {
    document.documentElement.dataset['theme'] = currentTheme();
    themeChanged.emit();
  };
  system.addEventListener('change', apply);
  apply();
}

export function toggleTheme(): void {
  const next = currentTheme() === 'dark' ? 'light' : 'dark';
  // The same as the system's wish is no wish of its own: then the page follows the system again.
  if (next === (system.matches ? 'light' : 'dark')) localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, next);
  document.documentElement.dataset['theme'] = next;
  themeChanged.emit();
}

/** The value of a colour of the style sheet, for the chart, which paints on a canvas. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
