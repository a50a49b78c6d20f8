// What `/api/v1/plant` and `/api/v1/plant/diff` say of the tick plant. Nothing here touches the page.

import { choice, count, flag, inner, list, maybe, object, text, type Json } from './answer.ts';

export const GROUPS = ['a', 'b'] as const;
export type GroupName = (typeof GROUPS)[number];

/** What a member says of itself. */
export interface Status {
  node: string;
  ticks: number;
  /** From reading a tick to its acknowledged write. */
  written_p99_us: number;
  /** Numbers that came after a higher one, that came again, that were left out at first, and that have not come. */
  violations: number;
  duplicates: number;
  gaps: number;
  lost: number;
}

export interface Loop {
  /** It takes symbols that are too much for the loop of their lane. */
  hot: boolean;
  ticks: number;
  /** The part of the last second in which it did not wait. */
  load: number;
  queue: number;
  delay_us: number;
  /** Symbols of this loop that are with a hot one. */
  away: number;
}

export interface Member {
  group: GroupName;
  node: string;
  leads: boolean;
  fault: string | null;
  /** Empty while it does not run. */
  loops: Loop[];
  heavy_loops: Loop[];
}

export interface Group {
  active: boolean;
  connected: boolean;
  /** Null while none is heard; then all that follows from it says nothing. */
  leader: string | null;
  status: Status | null;
  behind: number;
  behind_ms: number;
  stale: number;
  rebuilding: boolean;
  /** Null where the group's cache is away. */
  refused: number | null;
  members: { node: string; leads: boolean }[] | null;
  fault: string | null;
}

export interface Switched {
  from: GroupName;
  to: GroupName;
  reason: string;
  automatic: boolean;
}

export interface Groups {
  active: GroupName;
  switches: number;
  /** The oldest first. */
  switched: Switched[];
  a: Group;
  b: Group;
  compared: number;
  /** Symbols in which the groups differ. */
  differs: number;
}

export interface Feed {
  ticks: number;
  repeated: number;
  full: number;
  ended: boolean;
  fault: string | null;
  /** Ticks that a bus of another process has not taken; null where processors read the spool itself. */
  published: { waiting: number; connected: boolean } | null;
}

/** The parts that are in this process. */
export interface Plant {
  feed: Feed | null;
  members: Member[];
  groups: Groups | null;
}

export interface Difference {
  symbol: string;
  seq: number;
  kind: DifferenceKind;
}

const KINDS = ['last', 'candles', 'output'] as const;
export type DifferenceKind = (typeof KINDS)[number];

export const otherGroup = (group: GroupName): GroupName => (group === 'a' ? 'b' : 'a');

export function plantOf(answer: unknown): Plant {
  const from = object(answer, 'the plant');
  return { feed: maybe(from, 'feed', inner(feed)), members: list(from, 'members', member), groups: maybe(from, 'groups', inner(groups)) };
}

export function differencesOf(answer: unknown): Difference[] {
  // A process that shows no groups has nothing to compare.
  if (answer === null) return [];
  return list(object(answer, 'the differences'), 'differences', (one, what) => {
    const from = object(one, what);
    return { symbol: text(from, 'symbol'), seq: count(from, 'seq'), kind: choice(from, 'kind', KINDS) };
  });
}

function feed(value: unknown, what: string): Feed {
  const from = object(value, what);
  return {
    ticks: count(from, 'ticks'),
    repeated: count(from, 'repeated'),
    full: count(from, 'full'),
    ended: flag(from, 'ended'),
    fault: maybe(from, 'fault', text),
    published: maybe(from, 'published', inner(published)),
  };
}

function published(value: unknown, what: string): { waiting: number; connected: boolean } {
  const from = object(value, what);
  return { waiting: count(from, 'waiting'), connected: flag(from, 'connected') };
}

function member(value: unknown, what: string): Member {
  const from = object(value, what);
  const loops = (name: string): Loop[] => maybe(from, name, () => list(from, name, loop)) ?? [];
  return {
    group: choice(from, 'group', GROUPS),
    node: text(from, 'node'),
    leads: flag(from, 'leads'),
    fault: maybe(from, 'fault', text),
    loops: loops('loops'),
    heavy_loops: loops('heavy_loops'),
  };
}

function loop(value: unknown, what: string): Loop {
  const from = object(value, what);
  return {
    hot: flag(from, 'hot'),
    ticks: count(from, 'ticks'),
    load: count(from, 'load'),
    queue: count(from, 'queue'),
    delay_us: count(from, 'delay_us'),
    away: count(from, 'away'),
  };
}

function status(value: unknown, what: string): Status {
  const from = object(value, what);
  return {
    node: text(from, 'node'),
    ticks: count(from, 'ticks'),
    written_p99_us: count(from, 'written_p99_us'),
    violations: count(from, 'violations'),
    duplicates: count(from, 'duplicates'),
    gaps: count(from, 'gaps'),
    lost: count(from, 'lost'),
  };
}

function groups(value: unknown, what: string): Groups {
  const from = object(value, what);
  return {
    active: choice(from, 'active', GROUPS),
    switches: count(from, 'switches'),
    switched: list(from, 'switched', switched),
    a: group(from['a'], 'a'),
    b: group(from['b'], 'b'),
    compared: count(from, 'compared'),
    differs: count(from, 'differs'),
  };
}

function group(value: unknown, what: string): Group {
  const from = object(value, what);
  return {
    active: flag(from, 'active'),
    connected: flag(from, 'connected'),
    leader: maybe(from, 'leader', text),
    status: maybe(from, 'status', inner(status)),
    behind: count(from, 'behind'),
    behind_ms: count(from, 'behind_ms'),
    stale: count(from, 'stale'),
    rebuilding: flag(from, 'rebuilding'),
    refused: maybe(from, 'refused', count),
    members: maybe(from, 'members', () => list(from, 'members', groupMember)),
    fault: maybe(from, 'fault', text),
  };
}

function groupMember(value: unknown, what: string): { node: string; leads: boolean } {
  const from: Json = object(value, what);
  return { node: status(from['status'], `${what}.status`).node, leads: flag(from, 'leads') };
}

function switched(value: unknown, what: string): Switched {
  const from = object(value, what);
  return {
    from: choice(from, 'from', GROUPS),
    to: choice(from, 'to', GROUPS),
    reason: text(from, 'reason'),
    automatic: flag(from, 'automatic'),
  };
}
