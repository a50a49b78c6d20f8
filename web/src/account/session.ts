// Who is logged in: the token lives in the browser's storage until it expires or the user logs out.

import { DECIMALS, formatUnits, ONE, type Units } from '../decimal.ts';
import type { Market } from '../market/market.ts';
import type { Rest } from '../rest.ts';
import { Signal } from '../signal.ts';

interface Stored {
  name: string;
  token: string;
}

const STORED = 'hoga.session';

export class Session {
  name: string | null = null;
  readonly changed = new Signal();
  readonly expired = new Signal();
  private readonly rest: Rest;

  constructor(rest: Rest) {
    this.rest = rest;
    rest.onExpired = () => {
      this.end();
      this.expired.emit();
    };
    const stored = read();
    if (stored) {
      this.name = stored.name;
      rest.token = stored.token;
    }
    // Logged in or out in another tab.
    addEventListener('storage', event => {
      if (event.key === STORED) location.reload();
    });
  }

  async signUp(name: string, password: string): Promise<void> {
    await this.rest.signUp(name, password);
    await this.logIn(name, password);
  }

  async logIn(name: string, password: string): Promise<void> {
    const { token } = await this.rest.logIn(name, password);
    this.rest.token = token;
    this.name = name;
    localStorage.setItem(STORED, JSON.stringify({ name, token } satisfies Stored));
    this.changed.emit();
  }

  logOut(): void {
    this.end();
  }

  /** A new account under a made-up name, with play money in it. */
  async startPaper(markets: readonly Market[], lastPrice: (market: Market) => Units | null): Promise<{ name: string; password: string }> {
    const name = `paper-${randomText(6)}`;
    const password = randomText(16);
    await this.rest.signUp(name, password);
    const { token } = await this.rest.logIn(name, password);
    this.rest.token = token;
    for (const [asset, amount] of paperMoney(markets, lastPrice)) {
      await this.rest.deposit(asset, amount, `paper-${asset}-${randomText(8)}`);
    }
    this.name = name;
    localStorage.setItem(STORED, JSON.stringify({ name, token } satisfies Stored));
    this.changed.emit();
    return { name, password };
  }

  private end(): void {
    localStorage.removeItem(STORED);
    this.rest.token = null;
    this.name = null;
    this.changed.emit();
  }
}

function read(): Stored | null {
  try {
    const stored = JSON.parse(localStorage.getItem(STORED) ?? 'null') as Partial<Stored> | null;
    return stored && typeof stored.name === 'string' && typeof stored.token === 'string' ? (stored as Stored) : null;
  } catch {
    return null;
  }
}

/** Of each base asset a power of ten that is worth between 10,000 and 100,000; of each other quote asset 100,000. */
export function paperMoney(
  markets: readonly Market[],
  lastPrice: (market: Market) => Units | null,
): Map<string, string> {
  const money = new Map<string, string>();
  for (const market of markets) {
    const price = lastPrice(market) ?? 100n * ONE;
    let amount = 100_000n * ONE;
    while (amount > 1n && (amount * price) / ONE >= 100_000n * ONE) amount /= 10n;
    if (!money.has(market.base)) money.set(market.base, formatUnits(amount, DECIMALS));
  }
  // What is a base asset elsewhere (BTC in ETHBTC) has its amount already.
  for (const { quote } of markets) if (!money.has(quote)) money.set(quote, formatUnits(100_000n * ONE, DECIMALS));
  return money;
}

const LETTERS = 'abcdefghjkmnpqrstuvwxyz23456789';

export function randomText(length: number): string {
  // 31 letters: a byte is not spread evenly over them, by too little to matter here.
  return [...crypto.getRandomValues(new Uint8Array(length))].map(byte => LETTERS[byte % LETTERS.length]).join('');
}
