import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient } from "../../api/queries";
import { App } from "../../app";
import { detailRow, finding, session } from "../../test/fixtures";
import { serve, type Asked } from "../../test/server";

class SilentEvents {
  onopen = null;
  onerror = null;
  addEventListener() {}
  close() {}
}

const list = (...items: unknown[]) => ({ items, total: items.length, offset: 0 });

const ANSWERS = {
  "GET /session": session(),
  "GET /namespaces": list({ name: "default" }),
  "GET /jobs": list({ job: "nightly" }, { job: "hourly" }),
  "GET /vms": list({ vm: "web" }, { vm: "db" }),
  "GET /details": list(detailRow(1)),
  "GET /findings": { ...list(finding()), total: 3 },
  "GET /details/totals": ({ params }: Asked) =>
    params.get("by") === "repository"
      ? list({ rows: 1, bytes: 1536, failed: 0 })
      : list({ namespace: "default", vm: "web", job: "", disk: "", run: "", rows: 7, failed: 0, trend: [], used: { used_bytes: 1536, at: "2026-11-20T22:00:00.000Z", is_complete: false } }),
};

/** Opens the page at an address; resolves when its rows are there. */
async function open(address: string) {
  vi.stubGlobal("EventSource", SilentEvents);
  vi.spyOn(Element.prototype, "clientHeight", "get").mockReturnValue(600);
  const log = serve(ANSWERS);
  window.history.replaceState(null, "", address);
  render(<App client={makeQueryClient()} />);
  await screen.findByRole("heading", { name: "Compression details" });
  const latest = (path: string) => log.filter((asked) => asked.path === path).at(-1)?.params;
  return { user: userEvent.setup(), log, latest };
}

const address = () => Object.fromEntries(new URLSearchParams(window.location.search));

describe("filters and the address", () => {
  beforeEach(() => vi.unstubAllGlobals());

  it("follow each other, and the server is asked for what they say", async () => {
    const { user, latest } = await open("/details");
    await screen.findByRole("option", { name: "db" });
    await user.selectOptions(screen.getByRole("combobox", { name: "VM" }), "db");
    expect(address()).toEqual({ vm: "db" });
    await user.type(screen.getByRole("searchbox"), "data");
    await waitFor(() => expect(address()).toEqual({ vm: "db", q: "data" }));
    await waitFor(() => expect(latest("/details")?.get("q")).toBe("data"));
    expect(latest("/details")?.get("vm")).toBe("db");
    expect(latest("/details")?.get("sort")).toBe("-started");

    await user.click(screen.getByRole("button", { name: "Reset filters" }));
    expect(address()).toEqual({});
    expect(screen.getByRole<HTMLInputElement>("searchbox").value).toBe("");
  });

  it("leave rows whose restore point is there", async () => {
    const { user, latest } = await open("/details");
    await user.click(await screen.findByRole("button", { name: "Still there" }));
    expect(address()).toEqual({ existing: "true" });
    await waitFor(() => expect(latest("/details")?.get("existing")).toBe("true"));
    await user.click(screen.getByRole("button", { name: "Reset filters" }));
    expect(address()).toEqual({});
  });

  it("an address fills the filters", async () => {
    await open("/details?q=disk&job=hourly&status=failed,expired&since=7d&disk=root");
    expect(screen.getByRole<HTMLInputElement>("searchbox").value).toBe("disk");
    expect(screen.getByRole("button", { name: /failed, expired/ })).toBeTruthy();
    expect(screen.getByRole<HTMLSelectElement>("combobox", { name: "Time" }).value).toBe("7d");
    expect(screen.getByRole<HTMLSelectElement>("combobox", { name: "Job" }).value).toBe("hourly");
    expect(screen.getByRole("button", { name: "Remove the filter: Disk root" })).toBeTruthy();
  });

  it("times of one's own are two days that both count", async () => {
    const { user, latest } = await open("/details");
    await user.selectOptions(screen.getByRole("combobox", { name: "Time" }), "custom");
    expect(Object.keys(address()).toSorted()).toEqual(["since", "until"]);
    await waitFor(() => expect(latest("/details")?.get("finished_until")).toMatch(/^\d{4}-\d{2}-\d{2}T00:00:00\.000Z$/));
    expect(screen.getByLabelText<HTMLInputElement>("from").value).toBe(address()["since"]);
  });
});

describe("grouping", () => {
  it("asks for totals, and a group leads to its rows", async () => {
    const { user, latest } = await open("/details?job=nightly");
    await user.click(screen.getByRole("button", { name: "By VM" }));
    expect(address()).toEqual({ job: "nightly", by: "vm" });
    const row = (await screen.findByText("web", { selector: ".grid-name" })).closest("tr");
    expect(latest("/details/totals")?.get("sort")).toBe("-post_lc");
    if (row === null) throw new Error("no row");
    expect(within(row).getByText("≥ 1.50 KiB")).toBeTruthy();
    await user.click(row);
    expect(address()).toEqual({ job: "nightly", vm: "web", namespace: "default" });
  });
});

describe("columns", () => {
  it("are kept in this browser, and reset", async () => {
    const { user } = await open("/details");
    await screen.findByText("vm1");
    await user.click(screen.getByRole("button", { name: "Columns" }));
    const panel = screen.getByRole("group", { name: "Columns to show" });
    await user.click(within(panel).getByRole("checkbox", { name: /^Sent/ }));
    expect(JSON.parse(localStorage.getItem("holdfast.details.columns") ?? "")).toEqual({ wire_bytes: true });
    expect(screen.getByRole("columnheader", { name: "Sent" })).toBeTruthy();
    await user.click(within(panel).getByRole("button", { name: "Reset" }));
    expect(localStorage.getItem("holdfast.details.columns")).toBeNull();
    expect(screen.queryByRole("columnheader", { name: "Sent" })).toBeNull();
  });
});

describe("findings", () => {
  beforeEach(() => vi.unstubAllGlobals());

  it("are told before the table, of the last week or of the window", async () => {
    const { user, latest } = await open("/details?job=nightly");
    const found = await screen.findByRole("region", { name: "Out of line" });
    expect(found.textContent).toContain("12.0× → 2.1×, 84.0 GiB more than usual, since Tuesday");
    expect(found.textContent).toContain("and 2 more");
    expect(Object.fromEntries(latest("/findings") ?? [])).toEqual({ job: "nightly", finished_since: "7d", limit: "5" });
    await user.click(within(found).getByRole("link"));
    expect(address()).toEqual({ namespace: "default", vm: "db" });
    await waitFor(() => expect(latest("/details")?.get("vm")).toBe("db"));
  });

  it("go by the window that is asked for", async () => {
    const { latest } = await open("/details?since=30d");
    await screen.findByRole("region", { name: "Out of line" });
    expect(latest("/findings")?.get("finished_since")).toBe("30d");
  });
});
