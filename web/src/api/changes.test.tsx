import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { describe, expect, it, vi } from "vitest";

import { held, serve } from "../test/server";
import { LiveProvider } from "./useLive";
import { makeQueryClient, useCreateToken, useNamespaces, useRevokeToken, useSetQuota, useTokens, useTotals } from "./queries";
import { useDeletePoints, usePolicies, useRemovePolicy } from "./retention";
import { useSchedules, useSetSchedule, useStartTask, useSteer } from "./tasks";
import { useStartThaw } from "./thaw";

const EMPTY = { items: [], total: 0, offset: 0 };
const LISTS = ["/tokens", "/namespaces", "/policies", "/schedules"];
const SCHEDULE = { expression: "@daily", time_zone: null, options: {}, enabled: true };

/** Every change, with the request that makes it. */
const CHANGES: [request: string, use: () => { run: () => void; isSuccess: boolean }][] = [
  ["POST /tokens", () => made(useCreateToken(), { name: "hv1", role: "backup", namespaces: [] })],
  ["DELETE /tokens/01J", () => made(useRevokeToken(), "01J")],
  ["PUT /namespaces/a/quota", () => made(useSetQuota(), { name: "a", quota: {} as never })],
  ["POST /restore-points/delete", () => made(useDeletePoints(), { ids: ["01J"], reason: "r" })],
  ["DELETE /policies/01J", () => made(useRemovePolicy(), "01J")],
  ["POST /tasks", () => made(useStartTask(), { kind: "scrub", options: {} })],
  ["POST /tasks/01J/pause", () => made(useSteer("01J"), "pause")],
  ["PUT /schedules/scrub", () => made(useSetSchedule("scrub"), SCHEDULE)],
  ["POST /backups/01J/thaw", () => made(useStartThaw("01J"), { speed: "bulk" })],
];

const made = <Wanted,>(change: { mutate: (wanted: Wanted) => void; isSuccess: boolean }, wanted: Wanted) => ({
  run: () => change.mutate(wanted),
  isSuccess: change.isSuccess,
});

describe("a change", () => {
  it.each(CHANGES)("%s is done when it is answered, while the lists are still asked for", async (request, use) => {
    let later = false;
    const list = () => (later ? held().promise : EMPTY);
    const log = serve({ ...Object.fromEntries(LISTS.map((path) => [`GET ${path}`, list])), [request]: {} });
    const client = makeQueryClient();
    const wrapper = ({ children }: { children: ReactNode }) => <QueryClientProvider client={client}>{children}</QueryClientProvider>;
    const { result } = renderHook(() => ({ lists: [useTokens(), useNamespaces(), usePolicies(""), useSchedules()], change: use() }), { wrapper });
    await waitFor(() => expect(result.current.lists.every(({ isSuccess }) => isSuccess)).toBe(true));
    later = true;
    act(() => result.current.change.run());
    await waitFor(() => expect(log.length).toBeGreaterThan(LISTS.length + 1));
    await waitFor(() => expect(result.current.change.isSuccess).toBe(true), { timeout: 2000 });
    expect(result.current.lists.some(({ isFetching }) => isFetching)).toBe(true);
  });
});

describe("an open page", () => {
  it("asks once in five seconds, however many runs end", async () => {
    const listeners = new Map<string, (event: { data: string }) => void>();
    class Events {
      addEventListener = (kind: string, listener: (event: { data: string }) => void) => void listeners.set(kind, listener);
      close() {}
    }
    vi.stubGlobal("EventSource", Events);
    vi.useFakeTimers();
    try {
      const log = serve({ "GET /totals": {} });
      const client = makeQueryClient();
      const wrapper = ({ children }: { children: ReactNode }) => (
        <QueryClientProvider client={client}>
          <LiveProvider>{children}</LiveProvider>
        </QueryClientProvider>
      );
      const { unmount } = renderHook(() => useTotals(""), { wrapper });
      await act(() => vi.advanceTimersByTimeAsync(1000));
      expect(log).toHaveLength(1);
      for (let seconds = 0; seconds < 50; seconds += 1) {
        listeners.get("changed")?.({ data: JSON.stringify({ what: ["details", "backups"] }) });
        await act(() => vi.advanceTimersByTimeAsync(1000));
      }
      expect(log.length).toBeGreaterThan(8);
      // When it was opened, at the first change, and then every five seconds.
      expect(log.length).toBeLessThanOrEqual(2 + 50 / 5);
      unmount();
    } finally {
      vi.useRealTimers();
    }
  });
});
