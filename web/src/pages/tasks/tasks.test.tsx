import { act, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient } from "../../api/queries";
import type { Task } from "../../api/schema";
import { App } from "../../app";
import { session } from "../../test/fixtures";
import { Refusal, serve } from "../../test/server";
import { figuresOf, progressOf } from "./words";

type Listener = (event: { data: string }) => void;

/** An event stream on which the test speaks. */
class Events {
  static listeners = new Map<string, Listener>();
  onopen = null;
  onerror = null;
  addEventListener(kind: string, listener: Listener) {
    Events.listeners.set(kind, listener);
  }
  close() {}
}

const TASK: Task = {
  id: "01JTASK",
  kind: "reclaim",
  status: "running",
  who: "first",
  scheduled: false,
  options: {},
  created: "2026-11-20T22:00:00.000Z",
  started: "2026-11-20T22:00:00.000Z",
  finished: null,
  attempts: 1,
  progress: { done: 25, total: 100, unit: "containers" },
  figures: { cleanable_bytes: 1_048_576, freed_bytes: 0 },
  error: "",
  log: [{ number: 1, at: "2026-11-20T22:00:01.000Z", text: "marks" }],
};
const DONE: Task = { ...TASK, id: "01JDONE", status: "done", finished: "2026-11-20T22:04:05.000Z", figures: { freed_bytes: 2_097_152, containers_deleted: 3 } };
const SCHEDULE = { kind: "reclaim", expression: "0 6 * * *", time_zone: "UTC", enabled: true, options: { squeeze: true }, who: null, updated: null, next: "2026-11-21T06:00:00.000Z" };

const open = (answers: Record<string, unknown>) => {
  const log = serve({
    "GET /session": session(),
    "GET /namespaces": { items: [], total: 0, offset: 0 },
    "GET /schedules": { items: [SCHEDULE], total: 1, offset: 0 },
    "GET /tasks": { items: [TASK, DONE], next_page_token: null },
    ...answers,
  });
  window.history.replaceState(null, "", "/tasks");
  render(<App client={makeQueryClient()} />);
  return log;
};

const region = (name: string) => within(screen.getByRole("region", { name }));

describe("tasks", () => {
  beforeEach(() => vi.stubGlobal("EventSource", Events));

  it("show how far they are, and follow the events", async () => {
    let task = TASK;
    open({ "GET /tasks": () => ({ items: [task, DONE], next_page_token: null }) });
    const bar = await screen.findByRole("progressbar", { name: "Progress of reclaim" });
    expect([bar.getAttribute("aria-valuenow"), bar.getAttribute("aria-valuetext")]).toEqual(["25", "25 of 100 containers"]);
    region("Under way").getByText("1.00 MiB");
    task = { ...TASK, progress: { done: 60, total: 100, unit: "containers" } };
    act(() => Events.listeners.get("changed")?.({ data: '{"what":["tasks"]}' }));
    await waitFor(() => expect(bar.getAttribute("aria-valuenow")).toBe("60"));
    const row = region("History").getByRole("row", { name: /freed 2.00 MiB, containers deleted 3/ });
    within(row).getByText("4 min 05 s");
  });

  it("are not awaited for ever once they are refused", async () => {
    open({ "GET /tasks": new Refusal(403, { title: "Forbidden", code: "forbidden", detail: "this concerns every VM" }) });
    await screen.findByText("this concerns every VM");
    expect(screen.queryByRole("status", { name: "Loading" })).toBeNull();
  });

  it("are started, paused and cancelled", async () => {
    const log = open({ "POST /tasks": TASK, "POST /tasks/01JTASK/pause": TASK, "POST /tasks/01JTASK/cancel": TASK });
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Start a task" }));
    await user.click(screen.getByRole("button", { name: /Reclaim, dry run/ }));
    await user.click(screen.getByRole("button", { name: "Pause reclaim" }));
    await waitFor(() => expect(screen.getByRole("button", { name: "Cancel reclaim" }).hasAttribute("disabled")).toBe(false));
    await user.click(screen.getByRole("button", { name: "Cancel reclaim" }));
    await waitFor(() => expect(log.filter((each) => each.method === "POST")).toHaveLength(3));
    const said = log.filter((each) => each.method === "POST").map(({ path, body }) => `${path} ${body}`);
    expect(said).toEqual(['/tasks {"kind":"reclaim","options":{"dry_run":true}}', "/tasks/01JTASK/pause {}", "/tasks/01JTASK/cancel {}"]);
  });

  it("of a kind whose schedule is off are started by hand", async () => {
    const off = { ...SCHEDULE, kind: "scrub", enabled: false, options: {}, next: null };
    const log = open({ "GET /schedules": { items: [off], total: 1, offset: 0 }, "POST /tasks": { ...TASK, kind: "scrub" } });
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Start a task" }));
    await user.click(screen.getByRole("button", { name: /Read and check everything/ }));
    await waitFor(() => expect(log.filter((each) => each.method === "POST").map(({ body }) => body)).toEqual(['{"kind":"scrub","options":{}}']));
  });

  it("that are paused can be resumed", async () => {
    open({ "GET /tasks": { items: [{ ...TASK, status: "paused" }], next_page_token: null } });
    await screen.findByRole("button", { name: "Resume reclaim" });
    expect(screen.queryByRole("button", { name: "Pause reclaim" })).toBeNull();
  });

  it("have a log", async () => {
    open({ "GET /tasks/01JTASK": { ...TASK, log: [{ number: 1, at: TASK.created, text: "the whole log" }] } });
    await userEvent.setup().click(await screen.findByRole("button", { name: "Log of reclaim" }));
    expect(await within(screen.getByRole("dialog")).findByText("the whole log")).toBeTruthy();
  });

  it("have schedules, of which switching one off keeps the rest", async () => {
    const log = open({ "PUT /schedules/reclaim": SCHEDULE });
    await userEvent.setup().click(await screen.findByRole("button", { name: "Switch reclaim off" }));
    await waitFor(() => expect(log.some((each) => each.method === "PUT")).toBe(true));
    const body = JSON.parse(log.find((each) => each.method === "PUT")?.body ?? "") as object;
    expect(body).toEqual({ expression: "0 6 * * *", time_zone: "UTC", options: { squeeze: true }, enabled: false });
  });
});

describe("words of tasks", () => {
  it("show figures by their names' endings", () => {
    const found = figuresOf({ bytes: 1024, marked_ms: 1500, vms: 1234, complete: true, note: "", nested: {} });
    expect(found.map(({ label, text }) => `${label} ${text}`)).toEqual(["Bytes 1.00 KiB", "Time of marking 1.5 s", "Vms 1,234", "Complete yes"]);
  });
  it("say what is counted", () => {
    const of = (done: number, total: number, unit: string) => progressOf({ ...TASK, progress: { done, total, unit } });
    expect([of(0, 0, ""), of(7, 0, "containers"), of(1024, 2048, "bytes")]).toEqual(["", "7 containers", "1.00 KiB of 2.00 KiB"]);
  });
});
