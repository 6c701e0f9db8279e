import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient } from "../../api/queries";
import type { Policy, SimulatedDay } from "../../api/schema";
import { App } from "../../app";
import { session } from "../../test/fixtures";
import { held, Refusal, serve, type Asked } from "../../test/server";
import { keeperOf, lifelines, pathOf } from "./lifelines";
import { inWords, NO_RULES, rulesOf, textsOf } from "./rules";

class SilentEvents {
  onopen = null;
  onerror = null;
  addEventListener() {}
  close() {}
}

const ZERO = { keep_last: 0, keep_hourly: 0, keep_daily: 0, keep_weekly: 0, keep_monthly: 0, keep_yearly: 0, keep_within_days: 0 };
const POLICY: Policy = {
  id: "01JPOLICY",
  namespace: "default",
  name: "daily",
  vm: null,
  job: "nightly",
  rules: { ...ZERO, keep_daily: 7, keep_within_days: 14 },
  schedule: "@daily",
  time_zone: "Europe/Berlin",
  lock_days: 30,
  archive_after_days: null,
  enabled: true,
  resting_since: null,
  updated: "2026-11-01T00:00:00.000Z",
  updated_by: "first",
  next_run: null,
};
const NAMESPACE = { name: "default", created: "2026-01-01T00:00:00Z", vms: 1, backups: 7, stored_bytes: 0, quota: {}, usage: {}, near: [] };
const list = (...items: object[]) => ({ items, total: items.length, offset: 0 });
const day = (date: string, ...points: [at: string, ...reasons: string[]][]): SimulatedDay => ({
  date,
  points: points.map(([at, ...reasons]) => ({ at, reasons })),
});
const DAYS = [
  day("2026-12-30", ["2026-12-30T01:00:00Z", "daily"]),
  day("2026-12-31", ["2026-12-31T01:00:00Z", "daily", "monthly"], ["2026-12-30T01:00:00Z", "oldest daily"]),
  day("2027-01-01", ["2027-01-01T01:00:00Z", "daily"], ["2026-12-31T01:00:00Z", "monthly"]),
];
const ANSWERS = {
  "GET /session": session(),
  "GET /namespaces": list(NAMESPACE),
  "GET /policies": list(POLICY),
  "POST /policies/simulate": { days: DAYS },
};

const open = (answers: Record<string, unknown> = {}) => {
  const log = serve({ ...ANSWERS, ...answers });
  window.history.replaceState(null, "", "/retention");
  render(<App client={makeQueryClient()} />);
  return log;
};

describe("the page of policies", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  it("runs a policy only after a dry run", async () => {
    const decision = (id: string, keep: boolean, ...reasons: string[]) => ({ id, vm: "web", job: "nightly", started: "2026-11-20T22:00:00Z", keep, reasons });
    const dry = { dry_run: true, plan: "p", kept: 1, deleted: 1, refused: 0, refused_points: [], skipped_vms: [], freed_bytes: 1_048_576, decisions: [decision("a", true, "daily", "latest"), decision("b", false)] };
    const log = open({
      "POST /policies/01JPOLICY/run": ({ body }: { body: string }) => ((JSON.parse(body) as { dry_run: boolean }).dry_run ? dry : { ...dry, dry_run: false, refused: 1, refused_points: ["01JHELD"] }),
    });
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Run daily" }));
    const dialog = screen.getByRole("dialog");
    await within(dialog).findByText("daily, latest");
    within(dialog).getByText("1.00 MiB");
    const runs = () => log.filter((each) => each.path.endsWith("/run")).map((each) => each.body);
    expect(runs()).toEqual(['{"dry_run":true}']);
    await user.click(within(dialog).getByRole("button", { name: "Delete 1 restore point" }));
    await within(dialog).findByText(/1 restore point deleted/);
    within(dialog).getByText(/held meanwhile: 01JHELD/);
    expect(runs()).toEqual(['{"dry_run":true}', '{"dry_run":false,"plan":"p"}']);
  });

  it("carries out only what was shown, and shows anew what has changed", async () => {
    let shown = 0;
    const dry = (plan: string, deleted: number) => ({ dry_run: true, plan, kept: 1, deleted, refused: 0, refused_points: [], skipped_vms: [], freed_bytes: 0, decisions: [] });
    const log = open({
      "POST /policies/01JPOLICY/run": ({ body }: { body: string }) => {
        const asked = JSON.parse(body) as { dry_run: boolean; plan?: string };
        if (asked.dry_run) {
          shown += 1;
          return shown === 1 ? dry("one", 1) : dry("all", 300);
        }
        return asked.plan === "all" ? { ...dry("", 300), dry_run: false, plan: null } : new Refusal(409, { title: "Conflict", code: "changed", detail: "restore points have changed" });
      },
    });
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Run daily" }));
    const dialog = within(screen.getByRole("dialog"));
    await user.click(await dialog.findByRole("button", { name: "Delete 1 restore point" }));
    await dialog.findByText("restore points have changed");
    await user.click(await dialog.findByRole("button", { name: "Delete 300 restore points" }));
    await dialog.findByText(/300 restore points deleted/);
    expect(log.filter((each) => each.path.endsWith("/run")).map((each) => each.body)).toEqual(['{"dry_run":true}', '{"dry_run":false,"plan":"one"}', '{"dry_run":true}', '{"dry_run":false,"plan":"all"}']);
  });

  it("offers nothing of another namespace while the chosen one's answer is on its way", async () => {
    const tenant = (name: string) => ({ ...POLICY, id: `01J${name}`, namespace: name, name: `daily-${name}` });
    const late = held<object>();
    open({
      "GET /namespaces": list({ ...NAMESPACE, name: "a" }, { ...NAMESPACE, name: "b" }),
      "GET /policies": ({ params }: Asked) => (params.get("namespace") === "b" ? late.promise : list(tenant("a"))),
    });
    const user = userEvent.setup();
    await screen.findByRole("button", { name: "Run daily-a" });
    await user.selectOptions(await screen.findByRole("combobox", { name: "Namespace" }), "b");
    await waitFor(() => expect(screen.queryByRole("button", { name: "Run daily-a" })).toBeNull());
    late.resolve(list(tenant("b")));
    await screen.findByRole("button", { name: "Run daily-b" });
  });

  it("names namespace and scope where it runs a policy", async () => {
    open({ "POST /policies/01JPOLICY/run": { dry_run: true, kept: 1, deleted: 0, refused: 0, refused_points: [], skipped_vms: [], freed_bytes: 0, decisions: [] } });
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Run daily" }));
    const dialog = within(screen.getByRole("dialog"));
    expect(dialog.getByText("job nightly in the namespace default")).toBeTruthy();
  });

  it("saves what was typed, and nothing that makes no sense", async () => {
    const log = open({ "PUT /policies/01JPOLICY": POLICY });
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Edit daily" }));
    const dialog = within(screen.getByRole("dialog"));
    const weekly = dialog.getByLabelText("Weekly");
    await user.type(weekly, "many");
    expect(dialog.getByRole("button", { name: "Save" }).hasAttribute("disabled")).toBe(true);
    await user.clear(weekly);
    await user.type(weekly, "4");
    const archive = dialog.getByLabelText(/go to the archive/);
    await user.type(archive, "40000");
    expect(dialog.getByRole("button", { name: "Save" }).hasAttribute("disabled")).toBe(true);
    await user.clear(archive);
    await user.type(archive, "180");
    await user.click(dialog.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    expect(JSON.parse(log.find((each) => each.method === "PUT")?.body ?? "")).toEqual({
      name: "daily",
      namespace: "default",
      vm: null,
      job: "nightly",
      rules: { ...ZERO, keep_daily: 7, keep_weekly: 4, keep_within_days: 14 },
      schedule: "@daily",
      time_zone: "Europe/Berlin",
      lock_days: 30,
      archive_after_days: 180,
      enabled: true,
    });
  });

  it("lets an operator run policies, and others only look", async () => {
    open({ "GET /session": session({ role: "operator", actions: ["catalog", "report", "operate"] }) });
    await screen.findByRole("button", { name: "Run daily" });
    expect(screen.queryByRole("button", { name: /Edit|Remove|Create/ })).toBeNull();
  });

  it("shows no buttons to a role that deletes nothing", async () => {
    const log = open({ "GET /session": session({ role: "restore", actions: ["catalog", "report"] }) });
    await screen.findByRole("rowheader", { name: "daily" });
    expect(screen.queryByRole("button", { name: /Run|Simulate|Edit|Remove|Create/ })).toBeNull();
    expect(log.some((each) => each.path === "/policies/simulate")).toBe(false);
  });

  it("draws what a policy keeps, and says it of each day to the keyboard", async () => {
    const log = open();
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Simulate daily" }));
    const asked = () => JSON.parse(log.findLast((each) => each.path === "/policies/simulate")?.body ?? "{}") as { rules?: object; time_zone?: string };
    await waitFor(() => expect(asked().rules).toEqual(POLICY.rules));
    expect(asked().time_zone).toBe("Europe/Berlin");
    await screen.findByRole("img", { name: "Restore points kept over 3 days, at most 2 at once" });
    const slider = screen.getByRole("slider", { name: "Day" });
    expect(slider.getAttribute("aria-valuetext")).toBe("Fri, 1 Jan 2027: 2 restore points");
    expect(within(screen.getByRole("region", { name: /Restore points on/ })).getAllByRole("listitem")).toHaveLength(2);
  });
});

describe("rules", () => {
  it("are written as they are read", () => {
    for (const rules of [ZERO, POLICY.rules, { ...ZERO, keep_yearly: 100_000 }]) expect(rulesOf(textsOf(rules))).toEqual(rules);
    for (const wrong of ["-1", "1.5", "x", "100001", "1e3"]) expect(rulesOf({ ...NO_RULES, keep_last: wrong })).toBeUndefined();
    expect(rulesOf({ ...NO_RULES, keep_within_days: "36526" })).toBeUndefined();
    expect([inWords(ZERO), inWords(POLICY.rules)]).toEqual(["everything", "7 daily, all within 14 d"]);
  });
});

describe("lifelines", () => {
  it("last from the first day to the last, and change with what keeps the restore point", () => {
    expect(lifelines(DAYS)).toEqual([
      { keeper: "daily", made: 1 / 24, from: 0, to: 1 },
      { keeper: "monthly", made: 1 + 1 / 24, from: 1, to: 2 },
      { keeper: "daily", made: 2 + 1 / 24, from: 2, to: 2 },
    ]);
    expect(keeperOf(["last", "within 14d"])).toBe("other");
    expect(keeperOf(["oldest yearly", "hourly"])).toBe("yearly");
  });

  it("that would lie on each other are drawn once", () => {
    const line = { keeper: "hourly", made: 1.01, from: 1, to: 1 } as const;
    const scale = { x: (index: number) => 10 * index, y: (made: number) => made };
    expect(pathOf([line, { ...line, made: 1.05 }, { ...line, keeper: "daily" }], "hourly", scale)).toBe("M10.0 1H20.0");
  });
});
