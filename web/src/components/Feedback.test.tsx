import { QueryClientProvider, useQuery } from "@tanstack/react-query";
import { act, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient, useTotals } from "../api/queries";
import { relative } from "../format/time";
import { serve } from "../test/server";
import { Async } from "./Feedback";

const HOURS_30 = 30 * 3600 * 1000;

function Page() {
  return <Async query={useTotals("")}>{(sums) => <p>{`${sums.vms} VMs, ${relative("2026-11-20T00:00:00Z")}`}</p>}</Async>;
}

function Once() {
  const query = useQuery({ queryKey: ["once"], queryFn: () => Promise.resolve("answer"), staleTime: Infinity, refetchInterval: false });
  return <Async query={query}>{(text) => <p>{text}</p>}</Async>;
}

const draw = (page: React.ReactNode) => render(<QueryClientProvider client={makeQueryClient()}>{page}</QueryClientProvider>);
const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));

describe("a page that is left open", () => {
  beforeEach(() => vi.useFakeTimers({ now: Date.parse("2026-11-20T00:01:00Z"), shouldAdvanceTime: true }));
  afterEach(() => vi.useRealTimers());

  it("asks again each minute, and its clock goes on", async () => {
    let vms = 1;
    const log = serve({ "GET /totals": () => ({ vms }) });
    draw(<Page />);
    await screen.findByText("1 VMs, 60 s ago");
    vms = 2;
    await pass(60_000);
    await screen.findByText("2 VMs, 2 min ago");
    expect(log.length).toBe(2);
    expect(screen.queryByText(/As of/)).toBeNull();
  });

  it("says as of when, once no answer comes", async () => {
    serve({ "GET /totals": { vms: 1 } });
    draw(<Page />);
    await screen.findByText("1 VMs, 60 s ago");
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
    vi.setSystemTime(Date.now() + HOURS_30);
    await pass(120_000);
    await waitFor(() => expect(screen.getByRole("status").textContent).toContain("As of 2026-11-20 00:01"));
    screen.getByText("1 VMs, 30 h ago");
  });

  it("says so too while an answer is awaited for ever", async () => {
    serve({ "GET /totals": { vms: 1 } });
    draw(<Page />);
    await screen.findByText("1 VMs, 60 s ago");
    vi.stubGlobal("fetch", () => new Promise(() => {}));
    await pass(300_000);
    await waitFor(() => expect(screen.getByRole("status").textContent).toContain("As of"));
  });

  it("says it of a page that was hidden only once an answer has been awaited since", async () => {
    serve({ "GET /totals": { vms: 1 } });
    draw(<Page />);
    await screen.findByText("1 VMs, 60 s ago");
    const look = (state: "hidden" | "visible") => {
      vi.spyOn(document, "visibilityState", "get").mockReturnValue(state);
      act(() => void document.dispatchEvent(new Event("visibilitychange", { bubbles: true })));
    };
    look("hidden");
    await pass(600_000);
    vi.stubGlobal("fetch", vi.fn(() => new Promise(() => {})));
    look("visible");
    await pass(1000);
    expect(fetch).toHaveBeenCalled();
    expect(screen.queryByRole("status")).toBeNull();
    await pass(60_000);
    await waitFor(() => expect(screen.getByRole("status").textContent).toContain("As of"));
    look("hidden");
    await pass(600_000);
    look("visible");
    await pass(1000);
    expect(screen.queryByRole("status")).toBeNull();
  });

  it("says nothing of what is asked for only once", async () => {
    draw(<Once />);
    await screen.findByText("answer");
    await pass(600_000);
    expect(screen.queryByRole("status")).toBeNull();
  });
});
