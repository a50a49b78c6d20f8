// What the plant's numbers come to: rates, what is wrong, and each group in few characters. Nothing here touches the page.

import { duration } from '../pipeline/pipeline.ts';
import { GROUPS, otherGroup, type Group, type GroupName, type Groups, type Plant, type Switched } from './plant.ts';

/** Shorter than this, two looks say too little of a rate. */
const SHORTEST_MS = 500;
/** A group that is behind for longer than this is worth a word. */
const BEHIND_MS = 1_000;
/** Switches that are shown. */
const SWITCHES = 5;
const UNKNOWN = '–';

/** The rate of a total that only grows, from two looks at it. */
export class Rate {
  private last: { total: number; at: number } | null = null;
  private known: number | null = null;

  /** Takes the total at a time in milliseconds; null until there are two looks, and after a restart, which begins from zero. */
  take(total: number, at: number): number | null {
    const { last } = this;
    if (last && total >= last.total && at - last.at < SHORTEST_MS) return this.known;
    this.known = last && total >= last.total ? ((total - last.total) * 1000) / (at - last.at) : null;
    this.last = { total, at };
    return this.known;
  }

  clear(): void {
    this.last = null;
    this.known = null;
  }
}

/** What an operator should know first. */
export type Concern =
  | { kind: 'fine' }
  | { kind: 'fault'; text: string }
  | { kind: 'no_leader' | 'rebuilding' | 'behind' | 'stale'; group: GroupName }
  | { kind: 'differs'; symbols: number };

/** The worst that is the case: what is shown goes before what stands by. */
export function concernOf(plant: Plant): Concern {
  const { groups } = plant;
  const of = (name: GroupName, group: Group): Concern | null => {
    if (group.leader === null) return { kind: 'no_leader', group: name };
    if (group.rebuilding) return { kind: 'rebuilding', group: name };
    if (group.behind > 0 && group.behind_ms >= BEHIND_MS) return { kind: 'behind', group: name };
    return group.stale > 0 ? { kind: 'stale', group: name } : null;
  };
  const shown = groups && of(groups.active, groups[groups.active]);
  if (shown && shown.kind !== 'stale') return shown;
  const fault = plant.feed?.fault ?? plant.members.find(member => member.fault !== null)?.fault ?? null;
  if (fault !== null) return { kind: 'fault', text: fault };
  if (groups && groups.differs > 0) return { kind: 'differs', symbols: groups.differs };
  if (shown) return shown;
  const other = groups && otherGroup(groups.active);
  return (groups && other && of(other, groups[other])) ?? { kind: 'fine' };
}

/** All faults that are told, each with whose it is; `feed` is the feed's name. */
export function faultsOf({ feed, members, groups }: Plant, feedName: string): string[] {
  const told: [string, string | null][] = [
    [feedName, feed?.fault ?? null],
    ...members.map(({ node, fault }): [string, string | null] => [node, fault]),
    ...(groups ? GROUPS.map((name): [string, string | null] => [letter(name), groups[name].fault]) : []),
  ];
  return told.flatMap(([whose, fault]) => (fault === null ? [] : [`${whose}: ${fault}`]));
}

/** Green, yellow or red: red is what reaches those who watch. */
export function toneOf(concern: Concern, shown: GroupName | null): 'live' | 'connecting' | 'down' {
  switch (concern.kind) {
    case 'fine':
      return 'live';
    case 'fault':
    case 'differs':
      return 'down';
    case 'no_leader':
      return concern.group === shown ? 'down' : 'connecting';
    default:
      return 'connecting';
  }
}

/** A figure as text, and whether it is one that should be zero and is not. */
export interface Figure {
  text: string;
  wrong: boolean;
}

export const FIGURES = ['behind', 'stale', 'written', 'refused', 'members', 'outOfOrder', 'again', 'gaps', 'lost'] as const;
export type FigureName = (typeof FIGURES)[number];

/** A group's figures. Without a leader nobody says them: they are unknown then, not zero. */
export function figuresOf(group: Group): Record<FigureName, Figure> {
  const { status } = group;
  const heard = group.leader !== null;
  const plain = (text: string): Figure => ({ text, wrong: false });
  const unknown = plain(UNKNOWN);
  const total = (value: number | undefined, wrong = false): Figure =>
    value === undefined ? unknown : { text: grouped(value), wrong: wrong && value > 0 };
  return {
    behind: heard ? { text: `${grouped(group.behind)} · ${grouped(group.behind_ms)} ms`, wrong: group.behind_ms >= BEHIND_MS } : unknown,
    stale: heard ? total(group.stale, true) : unknown,
    written: status ? plain(micros(status.written_p99_us)) : unknown,
    refused: total(group.refused ?? undefined),
    members: group.members ? { text: String(group.members.length), wrong: group.members.length === 0 } : unknown,
    outOfOrder: total(status?.violations, true),
    again: total(status?.duplicates),
    gaps: total(status?.gaps),
    lost: total(status?.lost, true),
  };
}

/** The latest switches, the newest first. */
export const latestSwitches = (groups: Groups): Switched[] => groups.switched.slice(-SWITCHES).reverse();

/** `12,345`. */
export const grouped = (value: number): string => value.toLocaleString('en-US');

/** `192 µs`, `1.9 ms`, and from ten milliseconds on as durations are. */
export function micros(value: number): string {
  if (value < 1_000) return `${value} µs`;
  return value < 9_950 ? `${(value / 1_000).toFixed(1)} ms` : duration(value / 1e6);
}

/** `A`, `B`. */
export const letter = (group: GroupName): string => group.toUpperCase();
