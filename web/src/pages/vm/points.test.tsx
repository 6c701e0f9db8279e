import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { makeQueryClient } from "../../api/queries";
import type { Backup, Session, Task, Thaw } from "../../api/schema";
import { SessionGate } from "../../api/session";
import { backup, session } from "../../test/fixtures";
import { held, Refusal, serve, type Asked } from "../../test/server";
import { RestorePoints } from "./RestorePoints";

const LOCKED = backup(1, { locked_until: "2026-12-24T00:00:00.000Z" });
const HELD = backup(2, { hold: { reason: "case 17", by: "alice", since: "2026-11-01T00:00:00.000Z" } });
const POINTS = [backup(0), LOCKED, HELD, backup(3, { damaged_bytes: 3_145_728 })];

function open(points: readonly Backup[], answers: Record<string, unknown> = {}, who: Partial<Session> = {}): Asked[] {
  const log = serve({ "GET /session": session(who), ...answers });
  render(
    <QueryClientProvider client={makeQueryClient()}>
      <SessionGate login={null} Waiting={() => null}>
        <RestorePoints points={points} />
      </SessionGate>
    </QueryClientProvider>,
  );
  return log;
}

const freed = (freed_bytes: number | null, points: readonly Backup[]) => ({
  freed_bytes,
  points: points.map(({ id, namespace, vm, job, started, locked_until, hold }) => ({ id, namespace, vm, job, started, locked_until, hold })),
});

describe("restore points", () => {
  it("say that they have less than the one before", async () => {
    open([backup(0, { accepted_change: true }), backup(1)]);
    expect((await screen.findAllByText("less than before")).length).toBe(1);
  });

  it("tell what only they have with its date, or nothing where it is out of date", async () => {
    const at = { attributed_bytes: 40, attributed_at: "2026-11-20T10:00:00.000Z" };
    open([backup(0, { ...at, exclusive_bytes: 40 }), backup(1, { ...at, exclusive_bytes: null })]);
    await screen.findByText("40 B");
    const cells = [...document.querySelectorAll("td[data-term=exclusive_bytes]")];
    expect(cells.map((cell) => [cell.textContent, cell.getAttribute("data-exact")])).toEqual([
      ["40 B", "40 bytes, as of 2026-11-20 10:00"],
      ["", "Not counted since a restore point came"],
    ]);
  });

  it("are deleted only after what that frees was shown and confirmed", async () => {
    const log = open([backup(0), backup(3)], {
      "POST /restore-points/freed": freed(1_234_567, [backup(0)]),
      "POST /restore-points/delete": { deleted: 1 },
    });
    const user = userEvent.setup();
    const [all, first] = await screen.findAllByRole("checkbox");
    expect(screen.queryByRole("button", { name: "Delete…" })).toBeNull();
    await user.click(first as HTMLElement);
    expect((all as HTMLInputElement).checked).toBe(false);
    await user.click(screen.getByRole("button", { name: "Delete…" }));
    const dialog = screen.getByRole("dialog");
    await within(dialog).findByText("1.18 MiB");
    const erase = within(dialog).getByRole("button", { name: "Delete" });
    expect(erase.hasAttribute("disabled")).toBe(true);
    await user.type(within(dialog).getByLabelText("Reason"), "moved");
    await user.click(within(dialog).getByRole("checkbox"));
    await user.click(erase);
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const asked = log.find((each) => each.path === "/restore-points/delete");
    expect(JSON.parse(asked?.body ?? "")).toEqual({ ids: ["01JBACKUP0"], reason: "moved" });
  });

  it("cannot be left while they are deleted, and are told when that fails", async () => {
    const late = held();
    open([backup(0)], { "POST /restore-points/freed": freed(0, [backup(0)]), "POST /restore-points/delete": () => late.promise });
    const user = userEvent.setup();
    await user.click((await screen.findAllByRole("checkbox"))[1] as HTMLElement);
    await user.click(screen.getByRole("button", { name: "Delete…" }));
    const dialog = screen.getByRole("dialog");
    await within(dialog).findByText("0 B");
    await user.click(within(dialog).getByRole("checkbox"));
    await user.click(within(dialog).getByRole("button", { name: "Delete" }));
    await within(dialog).findByText("Deleting…");
    expect(within(dialog).getByRole("button", { name: "Cancel" }).hasAttribute("disabled")).toBe(true);
    expect(within(dialog).queryByRole("button", { name: "Close" })).toBeNull();
    fireEvent(dialog, new Event("cancel", { cancelable: true }));
    fireEvent.click(dialog);
    screen.getByRole("dialog");
    late.resolve(new Refusal(409, { title: "Conflict", code: "locked", detail: "it is locked" }));
    await within(dialog).findByText("it is locked");
    await user.click(within(dialog).getByRole("button", { name: "Cancel" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  });

  it("that vanish from the list while they are deleted leave no question behind", async () => {
    const late = held();
    serve({ "GET /session": session(), "POST /restore-points/freed": freed(0, [backup(0)]), "POST /restore-points/delete": () => late.promise });
    const client = makeQueryClient();
    const list = (points: readonly Backup[]) => (
      <QueryClientProvider client={client}>
        <SessionGate login={null} Waiting={() => null}>
          <RestorePoints points={points} />
        </SessionGate>
      </QueryClientProvider>
    );
    const { rerender } = render(list([backup(0)]));
    const user = userEvent.setup();
    await user.click((await screen.findAllByRole("checkbox"))[1] as HTMLElement);
    await user.click(screen.getByRole("button", { name: "Delete…" }));
    await within(screen.getByRole("dialog")).findByText("0 B");
    await user.click(within(screen.getByRole("dialog")).getByRole("checkbox"));
    await user.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Delete" }));
    // The event that they are gone comes before the answer.
    rerender(list([]));
    screen.getByRole("dialog", { name: "Delete 1 restore point?" });
    late.resolve({ deleted: 1 });
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    rerender(list([backup(5)]));
    expect(screen.queryByRole("dialog")).toBeNull();
  });

  it("that are end-to-end encrypted are proved by agents, whatever the server read", async () => {
    const verify = { at: "2026-11-20T00:00:00.000Z", by: "the schedule", by_agent: false, ok: true, detail: "" };
    const sealed = { end_to_end: true, last_proven: "2026-11-20T00:00:00.000Z", verify };
    open([backup(0, sealed), backup(1, { ...sealed, agent_verified: "2026-11-19T00:00:00.000Z", verify: { ...verify, by_agent: true } })]);
    expect((await screen.findAllByText("complete, not proved")).length).toBe(1);
    expect(screen.getAllByText("verified").length).toBe(1);
    expect(screen.getAllByText(/by agents/).length).toBe(2);
    expect(screen.getAllByText("not yet").length).toBe(1);
  });

  it("that are locked or held are marked and cannot be chosen", async () => {
    open(POINTS);
    const user = userEvent.setup();
    const [all, ...each] = (await screen.findAllByRole("checkbox")) as HTMLInputElement[];
    expect(each.map((box) => box.disabled)).toEqual([false, true, true, false]);
    await user.click(all as HTMLElement);
    expect(each.map((box) => box.checked)).toEqual([true, false, false, true]);
    screen.getByText("2 restore points selected");
    expect(screen.getByText("locked until 2026-12-24").getAttribute("data-term")).toBe("locked");
    expect(screen.getByText("held").getAttribute("data-exact")).toContain("case 17");
    screen.getByText("3.00 MiB lost");
  });

  it("say where their data lies once not all of it lies here", async () => {
    const places = (here_bytes: number, bucket_bytes: number, archive_bytes: number) => ({ as_of: "2026-11-20T10:00:00.000Z", here_bytes, bucket_bytes, archive_bytes });
    const MIB = 1_048_576;
    open([backup(0), backup(1, { places: places(MIB, 0, 0) }), backup(2, { places: places(MIB, 0, 3 * MIB) }), backup(3, { places: places(0, 0, MIB) })]);
    await screen.findByRole("columnheader", { name: "Lies" });
    const cells = [...document.querySelectorAll("td[data-term=point_tier]")];
    expect(cells.map((cell) => cell.textContent)).toEqual(["not yet known", "here", "archive 3.00 MiB, here 1.00 MiB", "archive"]);
    expect(cells[2]?.getAttribute("data-exact")).toContain("in the archive 3,145,728");
  });

  it("say nothing of places where all data lies here", async () => {
    open([backup(0)]);
    await screen.findAllByRole("checkbox");
    expect(screen.queryByRole("columnheader", { name: "Lies" })).toBeNull();
  });

  it("that were locked meanwhile cannot be deleted", async () => {
    const log = open([backup(1)], { "POST /restore-points/freed": freed(0, [LOCKED]) });
    const user = userEvent.setup();
    await user.click((await screen.findAllByRole("checkbox"))[1] as HTMLElement);
    await user.click(screen.getByRole("button", { name: "Delete…" }));
    await screen.findByText(/1 restore point is locked or held/);
    await user.click(within(screen.getByRole("dialog")).getByRole("checkbox"));
    expect(screen.getByRole("button", { name: "Delete" }).hasAttribute("disabled")).toBe(true);
    expect(log.some((each) => each.path === "/restore-points/delete")).toBe(false);
  });

  it("tell an operator what deleting would free, and offer no way to delete", async () => {
    const log = open([backup(0), backup(3)], { "POST /restore-points/freed": freed(1_234_567, [backup(0)]) }, { role: "operator", actions: ["catalog", "report", "operate"] });
    const user = userEvent.setup();
    await user.click((await screen.findAllByRole("checkbox"))[1] as HTMLElement);
    await user.click(screen.getByRole("button", { name: "What it frees…" }));
    const dialog = within(screen.getByRole("dialog"));
    await dialog.findByText("1.18 MiB");
    expect(dialog.queryAllByRole("checkbox")).toEqual([]);
    expect(dialog.queryByRole("button", { name: /Delete/ })).toBeNull();
    await user.click(screen.getAllByRole("button", { name: "Close" }).at(-1) as HTMLElement);
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    await user.click(screen.getAllByRole("button", { name: "Commands" })[0] as HTMLElement);
    expect(screen.queryByRole("button", { name: /Lock|Hold/ })).toBeNull();
    expect(log.filter((each) => each.method !== "GET").map((each) => each.path)).toEqual(["/restore-points/freed"]);
  });

  it("show no way to delete, lock or hold to a role that may not", async () => {
    open(POINTS, {}, { role: "restore", actions: ["catalog", "report"] });
    const user = userEvent.setup();
    await user.click((await screen.findAllByRole("button", { name: "Commands" }))[0] as HTMLElement);
    expect(screen.queryAllByRole("checkbox")).toEqual([]);
    expect(screen.queryByRole("button", { name: /Lock|Hold/ })).toBeNull();
    screen.getByText("held");
  });

  it("are held and released with a reason", async () => {
    const log = open([backup(0), HELD], {
      "POST /restore-points/hold": { changed: ["01JBACKUP0"] },
      "POST /restore-points/release": { changed: ["01JBACKUP2"] },
    });
    const user = userEvent.setup();
    const [first, second] = await screen.findAllByRole("button", { name: "Commands" });
    await user.click(first as HTMLElement);
    await user.click(screen.getByRole("button", { name: "Hold…" }));
    const place = within(screen.getByRole("dialog")).getByRole("button", { name: "Hold" });
    expect(place.hasAttribute("disabled")).toBe(true);
    await user.type(screen.getByLabelText(/Reason/), "audit");
    await user.click(place);
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    await user.click(first as HTMLElement);
    await user.click(second as HTMLElement);
    await user.click(screen.getByRole("button", { name: "Release the hold…" }));
    await user.type(screen.getByLabelText(/Reason/), "closed");
    await user.click(screen.getByRole("button", { name: "Release" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const said = log.filter(({ method }) => method === "POST").map(({ path, body }) => [path, JSON.parse(body)]);
    expect(said).toEqual([
      ["/restore-points/hold", { ids: ["01JBACKUP0"], reason: "audit" }],
      ["/restore-points/release", { ids: ["01JBACKUP2"], reason: "closed" }],
    ]);
  });
});

const LINE = { what: "1250 requests to thaw", cost: 0.04, extra: false };
const QUOTE: Thaw = {
  objects: 1250,
  bytes: 41_943_040_000,
  objects_under_way: 0,
  bytes_under_way: 0,
  objects_readable: 0,
  bytes_readable: 0,
  classes: ["DEEP_ARCHIVE"],
  days: 7,
  offers: [
    { speed: "bulk", hours: 48, cost: 0.34, lines: [LINE] },
    { speed: "standard", hours: 12, cost: 1.12, lines: [{ ...LINE, cost: 0.13 }, { what: "39.1 GiB of traffic", cost: 3.52, extra: true }] },
  ],
  region: "us-east-1",
  as_of: "2025-06",
  task: null,
};
const THAWING: Task = {
  id: "01JTHAW",
  kind: "thaw",
  status: "running",
  who: "first",
  scheduled: false,
  options: {},
  created: "2026-11-20T22:00:00.000Z",
  started: "2026-11-20T22:00:00.000Z",
  finished: null,
  attempts: 1,
  progress: { done: 12, total: 1250, unit: "objects thawed" },
  figures: {},
  error: "",
  log: [],
};
const SERVER = { grpc_address: "0.0.0.0:7440", fingerprint: "ab:cd", encryption: null, bucket: true };
const MAY = { actions: ["catalog", "report", "read_back", "restore"] } satisfies Partial<Session>;

/** Another price for days that were asked for. */
const BY_DAYS = {
  "GET /server": SERVER,
  "GET /backups/01JBACKUP0/thaw": ({ params }: Asked) => ({ ...QUOTE, days: Number(params.get("days") ?? 7), offers: [{ ...QUOTE.offers[0], cost: params.has("days") ? 0.9 : 0.34 }] }),
  "POST /backups/01JBACKUP0/thaw": THAWING,
};
const daysAsked = (log: readonly Asked[]) => log.flatMap(({ method, params }) => (method === "GET" && params.has("days") ? [params.get("days")] : []));

const openFirst = async (answers: Record<string, unknown>, who: Partial<Session> = MAY) => {
  const log = open([backup(0)], answers, who);
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Commands" }));
  return { log, user };
};

describe("a restore point in the archive", () => {
  it("is thawed after what that costs was shown", async () => {
    let thaw: Thaw = QUOTE;
    const { log, user } = await openFirst({
      "GET /server": SERVER,
      "GET /backups/01JBACKUP0/thaw": () => thaw,
      "POST /backups/01JBACKUP0/thaw": () => {
        thaw = { ...QUOTE, objects: 0, bytes: 0, objects_under_way: 1250, bytes_under_way: QUOTE.bytes, offers: [], task: THAWING };
        return THAWING;
      },
    });
    await screen.findByText("39.1 GiB of it lie in the archive");
    await user.click(screen.getByRole("button", { name: "Thaw…" }));
    const dialog = within(screen.getByRole("dialog"));
    await dialog.findByRole("button", { name: "Thaw for about $0.34" });
    await user.click(dialog.getByRole("radio", { name: /Within 12 hours/ }));
    dialog.getByRole("row", { name: /39\.1 GiB of traffic\s*\$3\.52\s*not in the sum/ });
    await user.click(dialog.getByRole("button", { name: "Thaw for about $1.12" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    await screen.findByText("39.1 GiB of it are being thawed");
    screen.getByText(/12 of 1,250 objects can be read/);
    expect(screen.queryByRole("button", { name: "Thaw…" })).toBeNull();
    const asked = log.find((each) => each.method === "POST");
    expect(JSON.parse(asked?.body ?? "")).toEqual({ speed: "standard" });
  });

  it.each([true, false])("links the task that thaws it for who may see tasks (every VM: %s)", async (every_vm) => {
    const thaw = { ...QUOTE, objects: 0, bytes: 0, objects_under_way: 1250, bytes_under_way: QUOTE.bytes, offers: [], task: THAWING };
    await openFirst({ "GET /server": SERVER, "GET /backups/01JBACKUP0/thaw": thaw }, { actions: [...MAY.actions, "operate"], every_vm });
    await screen.findByText(/12 of 1,250 objects can be read/);
    expect(screen.queryByRole("link", { name: "All tasks" }) !== null).toBe(every_vm);
  });

  it("can be read for other days, at another price", async () => {
    const { log, user } = await openFirst(BY_DAYS);
    await user.click(await screen.findByRole("button", { name: "Thaw…" }));
    await screen.findByRole("button", { name: "Thaw for about $0.34" });
    await user.type(screen.getByLabelText(/Days for which/), "30");
    await user.click(screen.getByRole("button", { name: "Show the price" }));
    const thaw = await screen.findByRole("button", { name: "Thaw for about $0.90" });
    expect(daysAsked(log)).toEqual(["30"]);
    await user.click(thaw);
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    expect(JSON.parse(log.find((each) => each.method === "POST")?.body ?? "")).toEqual({ speed: "bulk", days: 30 });
  });

  it("is not thawed by the key that asks for the price of other days", async () => {
    const { log, user } = await openFirst(BY_DAYS);
    await user.click(await screen.findByRole("button", { name: "Thaw…" }));
    await screen.findByRole("button", { name: "Thaw for about $0.34" });
    await user.type(screen.getByLabelText(/Days for which/), "30{Enter}");
    await screen.findByRole("button", { name: "Thaw for about $0.90" });
    expect(daysAsked(log)).toEqual(["30"]);
    expect(log.some((each) => each.method === "POST")).toBe(false);
  });

  it("is not spoken of where nothing is archived, nor to those who may not restore", async () => {
    const nothing = { ...QUOTE, objects: 0, bytes: 0, offers: [] };
    const { log } = await openFirst({ "GET /server": SERVER, "GET /backups/01JBACKUP0/thaw": nothing });
    await waitFor(() => expect(log.some((each) => each.path.endsWith("/thaw"))).toBe(true));
    await waitFor(() => expect(screen.queryByText(/Looking up/)).toBeNull());
    expect(screen.queryByText(/archive/)).toBeNull();
  });

  it("is looked up for no one who may not restore it", async () => {
    const { log } = await openFirst({ "GET /server": SERVER }, { role: "restore", actions: ["catalog", "report"] });
    await waitFor(() => expect(log.some((each) => each.path === "/server")).toBe(true));
    expect(log.some((each) => each.path.endsWith("/thaw"))).toBe(false);
  });
});
