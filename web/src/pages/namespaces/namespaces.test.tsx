import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient } from "../../api/queries";
import { App } from "../../app";
import { session } from "../../test/fixtures";
import { serve } from "../../test/server";
import { parseLimit, writeLimit } from "./limit";

class SilentEvents {
  onopen = null;
  onerror = null;
  addEventListener() {}
  close() {}
}

const NONE = { stored_bytes: null, protected_bytes: null, restore_points: null, sessions_per_day: null };
const usage = { stored_bytes: 1_900_000_000_000, protected_bytes: 5_000_000, restore_points: 7, sessions_today: 3 };
const space = (name: string, quota: object, near: string[]) => ({ name, created: "2026-01-01T00:00:00Z", vms: 1, backups: 7, stored_bytes: usage.stored_bytes, quota, usage, near });
const BERLIN = space("berlin", { ...NONE, stored_bytes: 2_000_000_000_000 }, ["stored bytes"]);
const list = (...items: object[]) => ({ items, total: items.length, offset: 0 });

const open = () => {
  window.history.replaceState(null, "", "/namespaces");
  render(<App client={makeQueryClient()} />);
};

describe("namespaces", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  it("shows used and limit, and warns near a limit", async () => {
    serve({ "GET /session": session(), "GET /namespaces": list(BERLIN, space("lab", NONE, [])) });
    open();
    const row = (await screen.findByRole("rowheader", { name: "berlin" })).closest("tr") as HTMLElement;
    expect(row.textContent).toContain("95");
    within(row).getByText("near its limit of stored bytes");
    const lab = screen.getByRole("rowheader", { name: "lab" }).closest("tr") as HTMLElement;
    expect(within(lab).queryByText(/near its limit/)).toBeNull();
    expect(lab.textContent).not.toContain(" of ");
  });

  it("says which namespaces only agents can prove", async () => {
    serve({ "GET /session": session(), "GET /namespaces": list({ ...space("vault", NONE, []), key_id: "nk-00010203fcfdfeff" }, space("lab", NONE, [])) });
    open();
    const row = (await screen.findByRole("rowheader", { name: "vault" })).closest("tr") as HTMLElement;
    const badge = within(row).getByText("end-to-end encrypted");
    expect(badge.closest("[data-exact]")?.getAttribute("data-exact")).toContain("nk-00010203fcfdfeff");
    const lab = screen.getByRole("rowheader", { name: "lab" }).closest("tr") as HTMLElement;
    expect(within(lab).queryByText(/end-to-end/)).toBeNull();
  });

  it("says when agents last proved it, and reminds of it", async () => {
    const agents = { vms: 3, never_verified: 1, oldest: "2026-01-01T00:00:00Z", reminder: "it is late", command: "holdfast verify --all --namespace='the vault'" };
    const vault = { ...space("vault", NONE, []), key_id: "nk-00010203fcfdfeff", agents };
    serve({ "GET /session": session(), "GET /namespaces": list(vault, space("lab", NONE, [])) });
    open();
    const row = (await screen.findByRole("rowheader", { name: "vault" })).closest("tr") as HTMLElement;
    expect(within(row).getByText(/content proved only by agents: .*1 of 3 VMs never/)).toBeTruthy();
    expect(screen.getByRole("region", { name: "Verification" }).textContent).toContain("holdfast verify --all --namespace='the vault'");
  });

  it("does not remind of what was verified", async () => {
    const agents = { vms: 1, never_verified: 0, oldest: "2026-01-01T00:00:00Z", reminder: null, command: "" };
    serve({ "GET /session": session(), "GET /namespaces": list({ ...space("vault", NONE, []), key_id: "nk-00010203fcfdfeff", agents }) });
    open();
    await screen.findByText(/content proved only by agents/);
    expect(screen.queryByRole("region", { name: "Verification" })).toBeNull();
  });

  it("sets all limits of a namespace at once", async () => {
    const log = serve({ "GET /session": session(), "GET /namespaces": list(BERLIN), "PUT /namespaces/berlin/quota": BERLIN });
    open();
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Set the quota of berlin" }));
    const stored = screen.getByLabelText("Stored") as HTMLInputElement;
    expect(stored.value).toBe("2TB");
    await user.clear(stored);
    await user.type(stored, "much");
    expect(screen.getByRole("button", { name: "Save" }).hasAttribute("disabled")).toBe(true);
    await user.clear(stored);
    await user.type(stored, "500 GB");
    await user.type(screen.getByLabelText("Restore points"), "30");
    await user.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const asked = log.find((each) => each.method === "PUT");
    expect(JSON.parse(asked?.body ?? "")).toEqual({ ...NONE, stored_bytes: 500_000_000_000, restore_points: 30 });
  });
});

describe("limits", () => {
  it("are written as they are read", () => {
    for (const limit of [0, 1, 999, 1_000, 1_500_000, 2_000_000_000_000, 3 * 2 ** 30]) {
      expect(parseLimit(writeLimit(limit, "bytes"), "bytes")).toBe(limit);
      expect(parseLimit(writeLimit(limit, "count"), "count")).toBe(limit);
    }
    expect(parseLimit("", "bytes")).toBeNull();
    expect(parseLimit("2 TiB", "bytes")).toBe(2 ** 41);
    for (const wrong of ["-1", "1.5TB", "many", "5 XB", "99999999TB"]) expect(parseLimit(wrong, "bytes")).toBeUndefined();
    expect(parseLimit("5GB", "count")).toBeUndefined();
  });
});
