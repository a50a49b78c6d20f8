// One WebSocket that comes back by itself. Both of the server's WebSocket interfaces speak the same frame: a request is
// {id, method, params}, its answer carries the id, everything else is an event.

import { Refused } from './rest.ts';
import { Signal } from './signal.ts';

export type ConnectionState = 'connecting' | 'live' | 'down';

interface Waiting {
  resolve(result: unknown): void;
  reject(reason: Error): void;
  timer: number;
}

const ANSWER_MS = 10_000;
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;
const BEAT_MS = 10_000;
/** The server cuts off who sends more than five messages in a second; one less leaves room for the browser's own frames. */
const SENDS = 4;
const WINDOW_MS = 1_100;

export class Connection {
  readonly opened = new Signal();
  readonly changed = new Signal();
  readonly message = new Signal<Record<string, unknown>>();
  state: ConnectionState = 'down';
  /** Of the last beat, in ms. */
  roundTrip: number | null = null;
  private socket: WebSocket | null = null;
  private waiting = new Map<number, Waiting>();
  private nextId = 1;
  private outbox: string[] = [];
  /** When the last few messages were sent. */
  private sent: number[] = [];
  private sendTimer = 0;
  private retryMs = FIRST_RETRY_MS;
  private retryTimer = 0;
  private beatTimer = 0;
  private wanted = false;
  private readonly path: string;
  private readonly beatMethod: string;

  /** `beatMethod`: a cheap request by which a connection that is silent can be told from one that is dead. */
  constructor(path: string, beatMethod: string) {
    this.path = path;
    this.beatMethod = beatMethod;
    // After sleep or a lost network the browser knows sooner than the timer.
    addEventListener('online', () => this.retryNow());
  }

  open(): void {
    this.wanted = true;
    if (this.socket) return;
    clearTimeout(this.retryTimer);
    this.enter('connecting');
    const socket = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${this.path}`);
    this.socket = socket;
    socket.onopen = () => {
      if (socket !== this.socket) return;
      this.retryMs = FIRST_RETRY_MS;
      this.enter('live');
      this.beatTimer = window.setInterval(() => void this.beat(), BEAT_MS);
      this.opened.emit();
      void this.beat();
    };
    socket.onmessage = ({ data }) => {
      if (socket === this.socket && typeof data === 'string') this.receive(data);
    };
    socket.onclose = () => this.lost(socket);
  }

  close(): void {
    this.wanted = false;
    clearTimeout(this.retryTimer);
    const socket = this.socket;
    if (socket) {
      this.lost(socket);
      socket.close();
    }
  }

  /** Sends a request; rejects with what the server refused, or when the connection is lost or silent. */
  call(method: string, params?: unknown): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const socket = this.socket;
      if (!socket || socket.readyState !== WebSocket.OPEN) {
        reject(new Error('not connected'));
        return;
      }
      const id = this.nextId++;
      const timer = window.setTimeout(() => {
        this.waiting.delete(id);
        reject(new Error('no answer'));
        this.lost(socket);
        socket.close();
      }, ANSWER_MS);
      this.waiting.set(id, { resolve, reject, timer });
      this.outbox.push(JSON.stringify(params === undefined ? { id, method } : { id, method, params }));
      this.flush();
    });
  }

  /** Sends what waits, as fast as the server allows. */
  private flush(): void {
    clearTimeout(this.sendTimer);
    while (this.outbox.length > 0) {
      const now = performance.now();
      this.sent = this.sent.filter(time => time > now - WINDOW_MS);
      if (this.sent.length >= SENDS) {
        this.sendTimer = window.setTimeout(() => this.flush(), (this.sent[0] ?? now) + WINDOW_MS - now);
        return;
      }
      this.sent.push(now);
      this.socket?.send(this.outbox.shift() ?? '');
    }
  }

  private async beat(): Promise<void> {
    const sent = performance.now();
    try {
      await this.call(this.beatMethod);
      this.roundTrip = Math.round(performance.now() - sent);
      this.changed.emit();
    } catch (reason) {
      // A lost connection is handled where it is lost; a refusal means that the server lives.
      if (reason instanceof Refused) this.roundTrip = Math.round(performance.now() - sent);
    }
  }

  private receive(text: string): void {
    const message = JSON.parse(text) as Record<string, unknown>;
    const id = message['id'];
    if (typeof id !== 'number') {
      this.message.emit(message);
      return;
    }
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    this.waiting.delete(id);
    clearTimeout(waiting.timer);
    const error = message['error'] as { code?: number; msg?: string } | undefined;
    if (error) {
      waiting.reject(new Refused(Number(message['status'] ?? 400), error.code ?? 0, error.msg ?? 'refused'));
    } else waiting.resolve(message['result']);
  }

  private lost(socket: WebSocket): void {
    if (socket !== this.socket) return;
    this.socket = null;
    clearInterval(this.beatTimer);
    for (const { reject, timer } of this.waiting.values()) {
      clearTimeout(timer);
      reject(new Error('connection lost'));
    }
    this.waiting.clear();
    this.outbox = [];
    this.sent = [];
    clearTimeout(this.sendTimer);
    this.roundTrip = null;
    this.enter('down');
    if (!this.wanted) return;
    // Half of the wait is random, so that a thousand pages do not come back in the same moment.
    const wait = this.retryMs / 2 + Math.random() * (this.retryMs / 2);
    this.retryMs = Math.min(this.retryMs * 2, LAST_RETRY_MS);
    this.retryTimer = window.setTimeout(() => this.open(), wait);
  }

  private retryNow(): void {
    if (this.wanted && !this.socket) this.open();
  }

  private enter(state: ConnectionState): void {
    this.state = state;
    this.changed.emit();
  }
}
