// Asks for the plant again and again: often while somebody looks, seldom where there is none.

import { Signal } from '../signal.ts';
import { Rate } from './figures.ts';
import type { Plant } from './plant.ts';

/** `none`: the process has no plant. `away`: it did not answer; what is known is what it said last. */
export type Found = 'unasked' | 'there' | 'none' | 'away';

const LOOK_MS = 1_000;
const GLANCE_MS = 10_000;
const ABSENT_MS = 30_000;

/** How long until the next question: an open panel wants each second, the status bar only now and then. */
export function pause(found: Found, open: boolean): number {
  if (found === 'none') return ABSENT_MS;
  return open ? LOOK_MS : GLANCE_MS;
}

export class PlantWatch {
  found: Found = 'unasked';
  plant: Plant | null = null;
  /** Ticks a second from the feed, once it has been asked twice. */
  rate: number | null = null;
  readonly changed = new Signal();
  private readonly ask: () => Promise<Plant | null>;
  private readonly ticks = new Rate();
  private open = false;
  private asking = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `ask` gives null where the process has no plant. */
  constructor(ask: () => Promise<Plant | null>) {
    this.ask = ask;
  }

  /** Whether the panel is open. */
  setOpen(open: boolean): void {
    this.open = open;
    if (open) void this.look();
  }

  /** Asks now, and then at its pace. A hidden page asks nothing. */
  async look(): Promise<void> {
    if (this.asking) return;
    this.asking = true;
    clearTimeout(this.timer);
    try {
      if (!document.hidden) {
        await this.refresh();
        this.changed.emit();
      }
    } finally {
      this.asking = false;
      this.timer = setTimeout(() => void this.look(), pause(this.found, this.open));
    }
  }

  private async refresh(): Promise<void> {
    try {
      this.take(await this.ask());
    } catch {
      this.found = 'away';
    }
  }

  private take(plant: Plant | null): void {
    this.plant = plant;
    this.found = plant ? 'there' : 'none';
    if (plant?.feed) {
      this.rate = this.ticks.take(plant.feed.ticks, performance.now());
    } else {
      this.ticks.clear();
      this.rate = null;
    }
  }
}
