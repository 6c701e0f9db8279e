import { render, screen, within } from "@testing-library/react";
import { beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient } from "../../api/queries";
import type { BucketState } from "../../api/schema";
import { App } from "../../app";
import { dollars } from "../../format/numbers";
import { session } from "../../test/fixtures";
import { serve } from "../../test/server";

class SilentEvents {
  onopen = null;
  onerror = null;
  addEventListener() {}
  close() {}
}

const SERVER = { grpc_address: "0.0.0.0:7440", fingerprint: "ab:cd", encryption: null };
const EMPTY = { items: [], total: 0, offset: 0 };
const NONE = { blobs: 0, bytes: 0 };
const made = (put: number) => ({ since: "2026-11-03T08:00:00.000Z", put, get: 2, head: 3, list: 4, delete: 5, restore: 6, failed: 1, sent_bytes: 33_554_432, received_bytes: 0 });

const BUCKET: BucketState = {
  location: "s3://backups/site",
  configured: true,
  mode: "copy",
  move_after_days: null,
  move_until_free: null,
  class: "STANDARD",
  copies: { waiting_blobs: 0, waiting_bytes: 0, copied_up_to: "2026-11-20T22:00:00.000Z", lag_seconds: 4, comparing: false, removals: 0, unreadable: [], copied_blobs: 9, copied_bytes: 1_048_576 },
  places: [{ kind: "containers", local: { blobs: 1, bytes: 1_048_576 }, both: { blobs: 7, bytes: 33_554_432 }, bucket: NONE }],
  places_found: "2026-11-20T22:00:00.000Z",
  kept_back: { containers: 3, bytes: 100_663_296, class: "DEEP_ARCHIVE", minimum_days: 180, found: "2026-11-20T10:00:00.000Z" },
  classes: [
    { class: "STANDARD", blobs: 5, bytes: 1_048_576, archive: false, thawed: 0, cost: 23, keeping_month: 20 },
    { class: "DEEP_ARCHIVE", blobs: 3, bytes: 33_554_432, archive: true, thawed: 2, cost: 0.5, keeping_month: 3.5 },
  ],
  writer: { own: { name: "hv1:/srv", since: "2026-11-01T00:00:00.000Z", number: 1 }, other: null, take_over: null },
  retention: { mode: null, objects: 0, first: null, last: null, behind: 0, points: 0, kept_points: 0, held: 0, failure: null },
  failure: null,
  audit: { last: { begun: "2026-11-15T10:00:00.000Z", verdict: "27 objects, all as they should be" }, flaws_count: 0, flaws: [] },
  requests: made(12),
  month: { month: "2026-11", requests: made(4321), cost: { storage: 23, requests: 0.0042, reading: 0, thawing: 1.5, sum: 24.5042 }, forecast: null, thaws: [], class_changes: [] },
  last_month: null,
  prices: { region: "us-east-1", as_of: "2025-06", applies: true, gb_month: 0.023, put_1000: 0.005, get_1000: 0.0004, read_gb: 0, keeping_month: 23.5 },
};

const open = (bucket: BucketState | null, path = "/bucket", answers: Record<string, unknown> = {}) => {
  const log = serve({ "GET /tasks": { items: [], next_page_token: null }, "GET /session": session(), ...answers, "GET /namespaces": EMPTY, "GET /server": { ...SERVER, bucket: bucket !== null }, "GET /tiers": { bucket } });
  window.history.replaceState(null, "", path);
  render(<App client={makeQueryClient()} />);
  return log;
};

const table = async (name: string) => within(await screen.findByRole("table", { name }));

describe("the bucket", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  it("shows what lies where, what was asked and what it costs", async () => {
    open(BUCKET);
    const places = (await table("What lies where")).getByRole("row", { name: /^containers/ });
    expect(within(places).getAllByRole("cell").map((cell) => cell.textContent)).toEqual(["1.00 MiB", "1", "32.0 MiB", "7", "0 B", "0", "33.0 MiB"]);
    (await table("Requests")).getByText("4,321");
    const costs = await table("Costs");
    const row = costs.getByRole("row", { name: /^2026-11 so far/ });
    expect(within(row).getAllByRole("cell").map((cell) => cell.textContent)).toEqual(["$23.00", "$0.0042", "$0.00", "$1.50", "$24.51"]);
    expect(costs.queryByText(/by its end/)).toBeNull();
    screen.getByText(/once a day was counted/);
    screen.getByText(/list prices of Amazon S3 in us-east-1 as of 2025-06/);
    expect(screen.queryByText(/this is what the same would cost/)).toBeNull();
    expect(screen.queryByRole("alert")).toBeNull();
  });

  it("shows what lies in which storage class, and what was asked of the archive", async () => {
    const thaws = [{ class: "DEEP_ARCHIVE", speed: "bulk", objects: 1250, bytes: 33_554_432, cost: 0.34 }];
    open({ ...BUCKET, month: { ...BUCKET.month, thaws, class_changes: [{ class: "DEEP_ARCHIVE", objects: 3, cost: 0.000_15 }] } });
    const classes = await table("Storage classes");
    const cells = (name: RegExp) => within(classes.getByRole("row", { name })).getAllByRole("cell").map((cell) => cell.textContent);
    expect(cells(/^STANDARD/)).toEqual(["at any time", "1.00 MiB", "5", "–", "$23.00", "$20.00"]);
    expect(cells(/^DEEP_ARCHIVE/)).toEqual(["after thawing, which takes hours", "32.0 MiB", "3", "2", "$0.50", "$3.50"]);
    screen.getByText(/3 containers of 96\.0 MiB stay out of the archive/);
    const asked = await table("Asked of the archive");
    asked.getByRole("row", { name: /^Thawed from DEEP_ARCHIVE \(bulk\)\s*1,250\s*32\.0 MiB\s*\$0\.34/ });
    asked.getByRole("row", { name: /^Moved to DEEP_ARCHIVE\s*3\s*–\s*\$0\.0002/ });
  });

  it("tells what the last audit said, and what is wrong", async () => {
    const flaw = { name: "containers/0000000/0000000007.data", what: "it is gone from the bucket", lost: true, found: "2026-11-15T10:00:00.000Z" };
    open({ ...BUCKET, audit: { ...BUCKET.audit, flaws_count: 3, flaws: [flaw] } });
    await screen.findByText(/27 objects, all as they should be/);
    screen.getByText("3 objects in the bucket are not as they should be");
    screen.getByText(/it is gone from the bucket/);
    expect(screen.getByText("And 2 more objects.")).toBeTruthy();
  });

  it("says how to audit before the first one", async () => {
    open({ ...BUCKET, audit: { last: null, flaws_count: 0, flaws: [] } });
    await screen.findByText("holdfast-server tier audit");
    expect(screen.queryByText(/not as they should be/)).toBeNull();
  });

  it("shows what is being thawed where there is an archive", async () => {
    const task = {
      id: "01JTHAW", kind: "thaw", status: "running", who: "first", scheduled: false, options: {}, created: "2026-11-20T22:00:00.000Z", started: "2026-11-20T22:00:00.000Z",
      finished: null, attempts: 1, progress: { done: 12, total: 40, unit: "objects thawed" }, figures: {}, error: "", log: [],
    };
    open(BUCKET, "/bucket", { "GET /tasks": { items: [task, { ...task, id: "01JOLD", status: "done" }], next_page_token: null } });
    await screen.findByText("12 of 40 objects thawed");
    expect(screen.getAllByRole("progressbar").length).toBe(1);
  });

  it("asks for no thaws with a token for some VMs", async () => {
    const log = open(BUCKET, "/bucket", { "GET /session": session({ every_vm: false }) });
    await table("Storage classes");
    expect(screen.queryByText("Being thawed")).toBeNull();
    expect(log.some((asked) => asked.path === "/tasks")).toBe(false);
  });

  it("says what is wrong, and what to do", async () => {
    const other = { name: "hv2:/srv", since: "2026-11-19T00:00:00.000Z", number: 2 };
    open({ ...BUCKET, failure: "access was refused: the credentials need s3:PutObject", writer: { own: BUCKET.writer.own, other, take_over: "holdfast-server tier take-over --from='hv2; reboot'" } });
    await screen.findByText(/the credentials need s3:PutObject/);
    screen.getByText("holdfast-server tier take-over --from='hv2; reboot'");
    expect(screen.queryByText(/This server writes to the bucket/)).toBeNull();
  });

  it("makes no costs up", async () => {
    const month = { ...BUCKET.month, cost: null };
    const classes = [{ class: "COLDEST", blobs: 5, bytes: 1, archive: false, thawed: 0, cost: null, keeping_month: null }];
    open({ ...BUCKET, class: "COLDEST", classes, month, prices: { ...BUCKET.prices, applies: false, keeping_month: null } });
    expect(await screen.findByText("The prices of a storage class are not known here: COLDEST.")).toBeTruthy();
    expect(screen.getByText(/this is what the same would cost at Amazon/)).toBeTruthy();
  });

  it("says what moving does", async () => {
    open({ ...BUCKET, mode: "move", move_after_days: 90, move_until_free: 20 });
    expect(await screen.findByText(/older than 90 days need lies in the bucket alone, while less than 20 % of the volume is free/)).toBeTruthy();
  });

  it("is linked where there is one", async () => {
    open(BUCKET);
    const nav = await screen.findByRole("navigation", { name: "Pages" });
    expect(await within(nav).findByRole("link", { name: "Bucket" })).toBeTruthy();
  });

  it("is explained where there is none", async () => {
    open(null);
    await screen.findByText("No bucket is configured");
    expect(screen.getByLabelText("Settings").textContent).toContain("s3 = ");
    expect(within(screen.getByRole("navigation", { name: "Pages" })).queryByRole("link", { name: "Bucket" })).toBeNull();
  });
});

describe("dollars", () => {
  it("never show as nothing what costs something", () => {
    expect([0, 0.000_000_4, 0.0042, 0.01, 0.010_1, 23, 1234.5, null].map((value) => dollars(value))).toEqual([
      "$0.00", "$0.0001", "$0.0042", "$0.01", "$0.02", "$23.00", "$1,234.50", "–",
    ]);
  });
});
