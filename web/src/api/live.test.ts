import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { LiveConnection, Paced, type LiveHandlers, type Source } from "./live";
import { held } from "../test/server";

class FakeSource implements Source {
  onopen: ((event: Event) => void) | null = null;
  onerror: ((event: Event) => void) | null = null;
  closed = false;
  readonly listeners = new Map<string, (event: MessageEvent<string>) => void>();
  addEventListener(kind: string, listener: (event: MessageEvent<string>) => void) {
    this.listeners.set(kind, listener);
  }
  close() {
    this.closed = true;
  }
  send(kind: string, data: string) {
    this.listeners.get(kind)?.(new MessageEvent(kind, { data }));
  }
}

function open() {
  const sources: FakeSource[] = [];
  const handlers = {
    onState: vi.fn<LiveHandlers["onState"]>(),
    onActivity: vi.fn<LiveHandlers["onActivity"]>(),
    onChanged: vi.fn<LiveHandlers["onChanged"]>(),
    onReconnect: vi.fn<LiveHandlers["onReconnect"]>(),
  };
  const connection = new LiveConnection(handlers, {
    open: () => {
      const source = new FakeSource();
      sources.push(source);
      return source;
    },
    firstDelayMs: 1000,
    maxDelayMs: 4000,
    random: () => 0.5,
  });
  const latest = () => sources.at(-1) as FakeSource;
  return { sources, handlers, connection, latest };
}

describe("the live connection", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("survives a restart of the server and says that it missed events", () => {
    const { sources, handlers, latest } = open();
    latest().onopen?.(new Event("open"));
    expect(handlers.onState.mock.calls.flat()).toEqual(["connecting", "live"]);
    expect(handlers.onReconnect).not.toHaveBeenCalled();

    latest().onerror?.(new Event("error"));
    expect(handlers.onState).toHaveBeenLastCalledWith("reconnecting");
    expect(sources[0]?.closed).toBe(true);
    vi.advanceTimersByTime(999);
    expect(sources).toHaveLength(1);
    vi.advanceTimersByTime(1);
    expect(sources).toHaveLength(2);

    latest().onopen?.(new Event("open"));
    expect(handlers.onState).toHaveBeenLastCalledWith("live");
    expect(handlers.onReconnect).toHaveBeenCalledOnce();
  });

  it("waits longer after each failure in a row, up to a limit", () => {
    const { sources, latest } = open();
    for (const delayMs of [1000, 2000, 4000, 4000]) {
      const before = sources.length;
      latest().onerror?.(new Event("error"));
      vi.advanceTimersByTime(delayMs - 1);
      expect(sources).toHaveLength(before);
      vi.advanceTimersByTime(1);
      expect(sources).toHaveLength(before + 1);
    }
  });

  it("hands on activity and changes, and ignores what it cannot read", () => {
    const { handlers, latest } = open();
    latest().send("activity", '{"now":"2026-11-21T06:00:00.000Z","sessions":[]}');
    latest().send("activity", "{half");
    latest().send("changed", '{"what":["details","backups"]}');
    expect(handlers.onActivity).toHaveBeenCalledOnce();
    expect(handlers.onChanged).toHaveBeenCalledWith(["details", "backups"]);
  });

  it("does nothing more once closed", () => {
    const { sources, connection, latest } = open();
    latest().onerror?.(new Event("error"));
    connection.close();
    vi.advanceTimersByTime(60_000);
    expect(sources).toHaveLength(1);
  });
});

describe("a page on a busy night", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("asks at once, and then once in five seconds for all that changed", async () => {
    const asked: string[][] = [];
    const paced = new Paced<string>(async (what) => void asked.push(what.toSorted()));
    paced.add(["details"]);
    expect(asked).toEqual([["details"]]);
    for (let ms = 0; ms < 60_000; ms += 100) {
      paced.add(ms % 200 === 0 ? ["details", "backups"] : ["details"]);
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(asked).toHaveLength(13);
    expect(asked.at(-1)).toEqual(["backups", "details"]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked.length).toBeLessThanOrEqual(14);
    paced.add(["tasks"]);
    expect(asked.at(-1)).toEqual(["tasks"]);
  });

  it("does not ask again before it was answered", async () => {
    const slow = held();
    const ask = vi.fn<() => Promise<unknown>>(() => slow.promise);
    const paced = new Paced<string>(ask);
    paced.add(["details"]);
    paced.add(["details"]);
    await vi.advanceTimersByTimeAsync(29_000);
    expect(ask).toHaveBeenCalledTimes(1);
    slow.resolve(null);
    await vi.advanceTimersByTimeAsync(0);
    expect(ask).toHaveBeenCalledTimes(2);
  });

  it("does not wait for a slow answer for longer than half a minute", async () => {
    const ask = vi.fn<(what: string[]) => Promise<unknown>>(() => held().promise);
    const paced = new Paced<string>(ask);
    paced.add(["details"]);
    paced.add(["backups"]);
    await vi.advanceTimersByTimeAsync(29_999);
    expect(ask).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(ask).toHaveBeenLastCalledWith(["backups"]);
  });

  it("asks no more once it is left", async () => {
    const ask = vi.fn<() => Promise<void>>(async () => {});
    const paced = new Paced<string>(ask);
    paced.add(["details"]);
    paced.add(["backups"]);
    paced.close();
    await vi.advanceTimersByTimeAsync(60_000);
    paced.add(["details"]);
    expect(ask).toHaveBeenCalledTimes(1);
  });
});
