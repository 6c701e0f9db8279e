import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen, within } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient } from "../api/queries";
import { App } from "../app";
import { Audit } from "../pages/access/Audit";
import { Lost } from "../pages/storage/Lost";
import Tasks from "../pages/tasks/Tasks";
import { Thaws } from "../pages/tiers/Thaws";
import { backup, session } from "../test/fixtures";
import { Refusal, serve } from "../test/server";
import { Card } from "./Card";

class SilentEvents {
  onopen = null;
  onerror = null;
  addEventListener() {}
  close() {}
}

const NONE = { items: [], next_page_token: null };
const EMPTY = { items: [], total: 0, offset: 0 };
const VM = { namespace: "default", vm: "web", owner: "o", latest: null, first: null, last_status: "done", last_error: null, verify: null, disk_list: [] };
const ANSWERS = {
  "GET /session": session(),
  "GET /namespaces": EMPTY,
  "GET /schedules": EMPTY,
  "GET /audit": NONE,
  "GET /tasks": NONE,
  "GET /damage": { ...NONE, restore_points: 1, disks: 1, bytes: 4096 },
  "GET /backups": { items: [backup(0)], next_page_token: null },
  "GET /series": { days: [], groups: [] },
  "GET /vms/default/web": VM,
};

const client = makeQueryClient();
const alone = (page: ReactNode) => render(<QueryClientProvider client={client}>{page}</QueryClientProvider>);
const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));

const LISTS: [region: string, draw: () => void][] = [
  ["Audit log", () => alone(<Audit />)],
  ["What cannot be restored", () => alone(<Lost />)],
  ["Under way", () => alone(<Tasks />)],
  ["Being thawed", () => alone(<Card title="Being thawed"><Thaws /></Card>)],
  [
    "Restore points",
    () => {
      window.history.replaceState(null, "", "/vms/default/web");
      render(<App client={client} />);
    },
  ],
];

describe("lists that are read page by page", () => {
  beforeEach(() => {
    vi.stubGlobal("EventSource", SilentEvents);
    vi.useFakeTimers({ now: Date.parse("2026-11-20T00:01:00Z"), shouldAdvanceTime: true });
  });
  afterEach(() => {
    client.clear();
    vi.useRealTimers();
  });

  it.each(LISTS)("%s: says as of when it is, once no answer comes", async (region, draw) => {
    serve(ANSWERS);
    draw();
    const list = within(await screen.findByRole("region", { name: region }));
    await pass(1000);
    expect(list.queryByText(/^As of/)).toBeNull();
    vi.stubGlobal("fetch", () => new Promise(() => {}));
    act(() => void client.invalidateQueries());
    await pass(300_000);
    expect(await list.findByText(/^As of 2026-11-20 00:01/)).toBeTruthy();
  });

  it("what cannot be restored is not taken for nothing when the server refuses to tell", async () => {
    serve({ ...ANSWERS, "GET /damage": new Refusal(500, { title: "Broken", code: "internal", detail: "cannot tell" }) });
    alone(<Lost />);
    await pass(60_000);
    expect(await screen.findByText("cannot tell")).toBeTruthy();
  });

  it("the audit log is not read again by itself, for each reading is an entry of it", async () => {
    const log = serve(ANSWERS);
    alone(<Audit />);
    await screen.findByText("Nothing yet");
    await pass(600_000);
    act(() => void window.dispatchEvent(new Event("focus")));
    await pass(1000);
    expect(log.map((asked) => asked.path)).toEqual(["/audit"]);
  });
});
