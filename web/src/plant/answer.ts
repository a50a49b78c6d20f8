// Reading an answer field by field: what is not there, or is of another kind, is an error that names the field, not an `undefined` on the page.

export type Json = Readonly<Record<string, unknown>>;

export class Unreadable extends Error {
  constructor(what: string, wanted: string) {
    super(`${what} is no ${wanted}`);
    this.name = 'Unreadable';
  }
}

export function object(value: unknown, what: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Unreadable(what, 'object');
  return value as Json;
}

export function list<T>(from: Json, name: string, read: (one: unknown, what: string) => T): T[] {
  const value = from[name];
  if (!Array.isArray(value)) throw new Unreadable(name, 'list');
  return value.map((one: unknown, place) => read(one, `${name}[${place}]`));
}

export function count(from: Json, name: string): number {
  const value = from[name];
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new Unreadable(name, 'number');
  return value;
}

export function text(from: Json, name: string): string {
  const value = from[name];
  if (typeof value !== 'string') throw new Unreadable(name, 'text');
  return value;
}

export function flag(from: Json, name: string): boolean {
  const value = from[name];
  if (typeof value !== 'boolean') throw new Unreadable(name, 'yes or no');
  return value;
}

/** One of a few words. */
export function choice<T extends string>(from: Json, name: string, choices: readonly T[]): T {
  const found = choices.find(one => one === from[name]);
  if (found === undefined) throw new Unreadable(name, choices.join(' or '));
  return found;
}

/** What may be null: then nothing of it is read. */
export function maybe<T>(from: Json, name: string, read: (from: Json, name: string) => T): T | null {
  return from[name] === null || from[name] === undefined ? null : read(from, name);
}

/** A field that is an object itself. */
export function inner<T>(read: (value: unknown, what: string) => T): (from: Json, name: string) => T {
  return (from, name) => read(from[name], name);
}
