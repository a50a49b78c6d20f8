// What only an operator may do. The token is asked for once and kept in memory: it is gone with the page, and never in the browser's storage.

import { Refused } from '../rest.ts';

/** Asks for the token, with what was wrong with the one before; null when the dialog was closed. */
export type AskToken = (fault: string) => Promise<string | null>;

const NOT_AUTHORIZED = 401;
const FORBIDDEN = 403;

export class Operator {
  private readonly ask: AskToken;
  private token: string | null = null;

  constructor(ask: AskToken) {
    this.ask = ask;
  }

  /** Does `work` with the token; a token that is not taken is forgotten and asked for again. Null when none was given. */
  async run<T>(work: (token: string) => Promise<T>): Promise<T | null> {
    let fault = '';
    for (;;) {
      this.token ??= await this.ask(fault);
      if (this.token === null) return null;
      try {
        return await work(this.token);
      } catch (reason) {
        if (!(reason instanceof Refused) || ![NOT_AUTHORIZED, FORBIDDEN].includes(reason.status)) throw reason;
        this.token = null;
        fault = reason.message;
      }
    }
  }
}
