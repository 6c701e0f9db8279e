import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { LiveConnection, type LiveHandlers, type Source } from "./live";

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
