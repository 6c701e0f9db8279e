/**
 * The live connection: server-sent events that survive a restart of the server.
 *
 * EventSource reconnects by itself after a dropped connection but gives up for good after an HTTP error
 * (a proxy's 502 while the server restarts, for example). So each failure closes it and a new one is made
 * after a growing delay. After every reconnection `onReconnect` tells the listener that it missed events.
 */

import { BASE } from "./client";
import type { ActivityList, Changed, ChangedSubject } from "./schema";

export type LiveState = "connecting" | "live" | "reconnecting";

export interface LiveHandlers {
  onState(state: LiveState): void;
  onActivity(activity: ActivityList): void;
  onChanged(what: readonly ChangedSubject[]): void;
  onReconnect(): void;
}

/** What is used of EventSource. */
export interface Source {
  onopen: ((event: Event) => void) | null;
  onerror: ((event: Event) => void) | null;
  addEventListener(kind: string, listener: (event: MessageEvent<string>) => void): void;
  close(): void;
}

export interface LiveOptions {
  open?: (address: string) => Source;
  /** First delay; it doubles with each failure in a row. */
  firstDelayMs?: number;
  maxDelayMs?: number;
  random?: () => number;
}

/** Opens the stream and keeps it open until {@link close}. */
export class LiveConnection {
  private source: Source | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private wasLive = false;
  private readonly handlers: LiveHandlers;
  private readonly options: Required<LiveOptions>;

  constructor(handlers: LiveHandlers, options: LiveOptions = {}) {
    this.handlers = handlers;
    this.options = {
      open: options.open ?? ((address) => new EventSource(address)),
      firstDelayMs: options.firstDelayMs ?? 500,
      maxDelayMs: options.maxDelayMs ?? 10_000,
      random: options.random ?? Math.random,
    };
    this.handlers.onState("connecting");
    this.connect();
  }

  /** Ends the connection; nothing is reported any more. */
  close(): void {
    clearTimeout(this.timer);
    this.drop();
  }

  private connect(): void {
    const source = this.options.open(`${BASE}/activity/events`);
    this.source = source;
    source.onopen = () => this.opened();
    source.onerror = () => this.failed();
    source.addEventListener("activity", (event) => {
      const activity = parse(event.data) as ActivityList | null;
      if (activity !== null) this.handlers.onActivity(activity);
    });
    source.addEventListener("changed", (event) => {
      const changed = parse(event.data) as Changed | null;
      if (changed !== null) this.handlers.onChanged(changed.what);
    });
  }

  private opened(): void {
    this.failures = 0;
    this.handlers.onState("live");
    if (this.wasLive) this.handlers.onReconnect();
    this.wasLive = true;
  }

  private failed(): void {
    this.drop();
    this.handlers.onState("reconnecting");
    const { firstDelayMs, maxDelayMs, random } = this.options;
    const delayMs = Math.min(maxDelayMs, firstDelayMs * 2 ** this.failures);
    this.failures += 1;
    // Between 75 % and 125 %, so that many open pages do not come back in the same instant.
    this.timer = setTimeout(() => this.connect(), delayMs * (0.75 + random() / 2));
  }

  private drop(): void {
    if (this.source === null) return;
    this.source.onopen = null;
    this.source.onerror = null;
    this.source.close();
    this.source = null;
  }
}

/** How long a page waits before it asks again. */
const AGAIN_AFTER_MS = 5_000;

/** How long one slow answer holds up what changes meanwhile. */
const ANSWER_MAX_MS = 30_000;

/**
 * Passes on what has changed: the first change at once, those that come after it together, once the answers to the first
 * are there, or slow, and some seconds have passed. On a busy night hundreds of runs end a minute, and each answer adds up all of them.
 */
export class Paced<What> {
  private readonly waiting = new Set<What>();
  private readonly timers = new Set<ReturnType<typeof setTimeout>>();
  private isBusy = false;
  private readonly ask: (what: What[]) => Promise<unknown>;

  constructor(ask: (what: What[]) => Promise<unknown>) {
    this.ask = ask;
  }

  add(what: readonly What[]): void {
    what.forEach((one) => this.waiting.add(one));
    if (!this.isBusy) void this.go();
  }

  /** Nothing more is passed on. */
  close(): void {
    this.timers.forEach(clearTimeout);
    this.waiting.clear();
    this.isBusy = true;
  }

  private async go(): Promise<void> {
    this.isBusy = true;
    const what = [...this.waiting];
    this.waiting.clear();
    const after = (ms: number) => new Promise((resolve) => this.timers.add(setTimeout(resolve, ms)));
    const answered = Promise.race([this.ask(what), after(ANSWER_MAX_MS)]);
    // Failures are shown where the answers would be.
    await Promise.allSettled([answered, after(AGAIN_AFTER_MS)]);
    this.timers.forEach(clearTimeout);
    this.timers.clear();
    this.isBusy = false;
    if (this.waiting.size > 0) void this.go();
  }
}

/** What an event carries; `null` when it is not JSON. */
function parse(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}
