import { act, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient } from "./api/queries";
import { App } from "./app";
import { session } from "./test/fixtures";
import { Refusal, serve, type Asked } from "./test/server";

class SilentEvents {
  onopen = null;
  onerror = null;
  addEventListener() {}
  close() {}
}

const EMPTY = { items: [], total: 0, offset: 0 };
const UNAUTHENTICATED = new Refusal(401, { title: "Unauthorized", code: "unauthenticated", detail: "no valid token" });

const ANSWERS = {
  "GET /session": session(),
  "GET /namespaces": EMPTY,
  "GET /vms": EMPTY,
  "GET /jobs": EMPTY,
  "GET /details": EMPTY,
  "GET /details/totals": EMPTY,
  "GET /tokens": EMPTY,
  "GET /agents": EMPTY,
  "GET /audit": { items: [], next_page_token: null },
  "GET /server": { grpc_address: "0.0.0.0:7440", fingerprint: "ab:cd" },
};

const app = () => render(<App client={makeQueryClient()} />);

describe("the login", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  it("says why a token is refused, then leads to the page that was wanted", async () => {
    window.history.replaceState(null, "", "/details?vm=web");
    let good = false;
    const log = serve({
      ...ANSWERS,
      "GET /session": () => (good ? session() : UNAUTHENTICATED),
      "POST /login": () => (good ? session() : UNAUTHENTICATED),
    });
    app();
    const user = userEvent.setup();
    await user.type(await screen.findByLabelText("Token"), "hf_wrong");
    await user.click(screen.getByRole("button", { name: "Log in" }));
    expect((await screen.findByRole("alert")).textContent).toContain("unknown, expired or revoked");

    good = true;
    await user.click(screen.getByRole("button", { name: "Log in" }));
    await screen.findByRole("heading", { name: "Compression details" });
    expect(window.location.search).toBe("?vm=web");
    expect(JSON.parse(log.find((asked) => asked.path === "/login")?.body ?? "")).toEqual({ token: "hf_wrong" });
  });

  it("comes back when the session ends", async () => {
    let ended = false;
    serve({ ...ANSWERS, "GET /details/totals": () => (ended ? UNAUTHENTICATED : EMPTY) });
    window.history.replaceState(null, "", "/details");
    app();
    await screen.findByText("No backups yet");
    ended = true;
    window.history.pushState(null, "", "/details?q=x");
    expect(await screen.findByLabelText("Token")).toBeTruthy();
  });

  it("logs out with the CSRF token", async () => {
    const log = serve({ ...ANSWERS, "POST /logout": null });
    window.history.replaceState(null, "", "/details");
    app();
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "first" }));
    await user.click(screen.getByRole("button", { name: "Log out" }));
    await screen.findByLabelText("Token");
    expect(log.find((asked) => asked.path === "/logout")?.headers.get("x-csrf-token")).toBe("csrf-token");
  });
});

describe("a login in another tab", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  const other = () => session({ name: "second", csrf: "csrf-of-second" });
  const named = (name: string) => ({ items: [{ namespace: "default", vm: `of-${name}`, latest: null, last_error: null }], total: 1, offset: 0 });

  it("is noticed when the window is looked at again, and nothing of the first is left", async () => {
    let who = session();
    serve({ ...ANSWERS, "GET /session": () => who, "GET /vms": () => named(who.name) });
    window.history.replaceState(null, "", "/");
    app();
    await screen.findByText("of-first");
    who = other();
    act(() => void window.dispatchEvent(new Event("focus")));
    await screen.findByRole("button", { name: "second" });
    await screen.findByText("of-second");
    expect(screen.queryByText("of-first")).toBeNull();
    screen.getByText(/Another tab logged in as second/);
  });

  it("is noticed when a change is refused", async () => {
    let who = session();
    const refused = new Refusal(403, { title: "Forbidden", code: "permission-denied", detail: "X-CSRF-Token does not fit" });
    const log = serve({ ...ANSWERS, "GET /session": () => who, "POST /tokens": ({ headers }: Asked) => (headers.get("x-csrf-token") === "csrf-of-second" ? { token: "hf_x", join_code: null, record: { id: "01J", name: "hv1", role: "backup", namespaces: [] } } : refused) });
    window.history.replaceState(null, "", "/access");
    app();
    const user = userEvent.setup();
    const create = async () => {
      await user.click(await screen.findByRole("button", { name: "Create a token" }));
      await user.type(screen.getByLabelText("Name"), "hv1");
      await user.click(screen.getByRole("button", { name: "Create" }));
    };
    await screen.findByRole("button", { name: "Create a token" });
    who = other();
    await create();
    await screen.findByText(/Another tab logged in as second/);
    await create();
    await screen.findByText("hf_x");
    expect(log.filter((asked) => asked.method === "POST").map((asked) => asked.headers.get("x-csrf-token"))).toEqual(["csrf-token", "csrf-of-second"]);
  });

  it("keeps what is shown when it is the same session still", async () => {
    const log = serve({ ...ANSWERS, "GET /session": () => session({ expires: new Date().toISOString() }) });
    window.history.replaceState(null, "", "/access");
    app();
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Create a token" }));
    await user.type(screen.getByLabelText("Name"), "hv1");
    const before = log.filter((asked) => asked.path === "/session").length;
    act(() => void window.dispatchEvent(new Event("focus")));
    await waitFor(() => expect(log.filter((asked) => asked.path === "/session").length).toBeGreaterThan(before));
    expect(screen.getByLabelText<HTMLInputElement>("Name").value).toBe("hv1");
  });
});

describe("roles", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  it("see links to what they may see, and a clear word elsewhere", async () => {
    serve({ ...ANSWERS, "GET /session": session({ name: "alice", role: "restore", actions: ["catalog", "report"] }) });
    window.history.replaceState(null, "", "/access");
    app();
    const nav = await screen.findByRole("navigation", { name: "Pages" });
    expect(within(nav).getAllByRole("link").map((each) => each.getAttribute("href"))).toEqual(["/", "/details", "/vms", "/namespaces", "/retention"]);
    await screen.findByText("Your role has no access to this page");
  });
});

describe("a token for some VMs", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  it("is told that tasks are for tokens of every VM, and does not ask for them", async () => {
    const log = serve({ ...ANSWERS, "GET /session": session({ name: "some", role: "operator", actions: ["catalog", "report", "operate"], every_vm: false }) });
    window.history.replaceState(null, "", "/tasks");
    app();
    await screen.findByText("This page covers every VM");
    const places = within(screen.getByRole("navigation", { name: "Pages" })).getAllByRole("link").map((each) => each.getAttribute("href"));
    expect(places).toContain("/storage");
    expect(places).not.toContain("/tasks");
    expect(log.some((asked) => /^\/(tasks|schedules)/.test(asked.path))).toBe(false);
  });
});

describe("a token made on the Access page", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  it("is shown once, and only a button closes it", async () => {
    const log = serve({
      ...ANSWERS,
      "POST /tokens": { token: "hf_secret", join_code: null, record: { id: "01J", name: "hv1", role: "backup", namespaces: [] } },
    });
    window.history.replaceState(null, "", "/access");
    app();
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Create a token" }));
    await user.type(screen.getByLabelText("Name"), "hv1");
    await user.type(screen.getByRole("textbox", { name: /^Owner of the VMs/ }), "cluster-a");
    await user.type(screen.getByRole("textbox", { name: /^VM names/ }), "web-*, db-?,");
    await user.selectOptions(screen.getByLabelText("Expires"), "30d");
    await user.click(screen.getByRole("button", { name: "Create" }));
    await screen.findByText("hf_secret");
    await screen.findByText(/holdfast login --server localhost:7440 --fingerprint ab:cd/);
    expect(screen.queryByRole("button", { name: "Close" })).toBeNull();
    await user.click(screen.getByRole("button", { name: "I have copied it" }));
    await waitFor(() => expect(screen.queryByText("hf_secret")).toBeNull());
    const asked = log.find((each) => each.method === "POST");
    expect(JSON.parse(asked?.body ?? "")).toEqual({
      name: "hv1",
      role: "backup",
      join: false,
      namespaces: [],
      owner: "cluster-a",
      vm_patterns: ["web-*", "db-?"],
      expires_in: "30d",
    });
    expect(asked?.headers.get("x-csrf-token")).toBe("csrf-token");
  });

  it("shows agents, and which of them are late", async () => {
    const report = { host: "hv1", version: "0.1.0", next_run: "2026-11-28T01:30:00.000Z", vms: 3, problem: "" };
    const agents = [
      { token: "hv1", seen: "2026-11-27T01:30:00.000Z", late: true, report },
      { token: "hv2", seen: "2026-11-28T01:30:00.000Z", late: false, report: { ...report, host: "hv2", next_run: null, problem: "broken" } },
    ];
    serve({ ...ANSWERS, "GET /agents": { items: agents, total: 2, offset: 0 } });
    window.history.replaceState(null, "", "/access");
    app();
    const table = within(await screen.findByRole("table", { name: "Agents" }));
    const rows = table.getAllByRole("row").map((row) => row.textContent);
    expect(rows[1]).toMatch(/hv1.*late/);
    expect(rows[2]).toMatch(/hv2.*problem.*none.*broken/);
  });

  it("or a line to run on the hypervisor", async () => {
    const log = serve({
      ...ANSWERS,
      "POST /tokens": { token: null, join_code: "hfj_abc", record: { id: "01J", name: "hv1", role: "backup", namespaces: [] } },
    });
    window.history.replaceState(null, "", "/access");
    app();
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Add hypervisor" }));
    await user.type(screen.getByLabelText("Name"), "hv1");
    expect(screen.queryByRole("radio", { name: /^admin/ })).toBeNull();
    await user.click(screen.getByRole("button", { name: "Create" }));
    await screen.findByText("holdfast agent join hfj_abc");
    expect(JSON.parse(log.find((each) => each.method === "POST")?.body ?? "")).toMatchObject({ name: "hv1", role: "backup", join: true });
  });
});

describe("a VM's owner", () => {
  beforeEach(() => vi.stubGlobal("EventSource", SilentEvents));

  const vm = {
    namespace: "default",
    vm: "web 1",
    owner: "old",
    backups: 0,
    disks: 0,
    first: null,
    latest: null,
    virtual_bytes: 0,
    protected_bytes: 0,
    stored_bytes: 0,
    new_bytes_30d: 0,
    total_factor: null,
    last_status: "done",
    last_error: null,
    stale: false,
    verify: null,
    end_to_end: false,
    agent_verified: null,
    disk_list: [],
  };
  const answers = {
    ...ANSWERS,
    "GET /vms/default/web%201": vm,
    "GET /backups": { items: [], next_page_token: null },
    "GET /series": { days: [], groups: [] },
    "POST /vms/default/web%201/owner": { namespace: "default", vm: "web 1", owner: "new", previous_owner: "old" },
  };

  it("is changed by an operator", async () => {
    const log = serve(answers);
    window.history.replaceState(null, "", "/vms/default/web%201");
    app();
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Change owner" }));
    const dialog = within(await screen.findByRole("dialog"));
    const submit = dialog.getByRole("button", { name: "Change owner" });
    expect(submit.hasAttribute("disabled")).toBe(true);
    await user.clear(dialog.getByRole("textbox"));
    await user.type(dialog.getByRole("textbox"), "new");
    await user.click(submit);
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const asked = log.find((each) => each.method === "POST");
    expect(asked?.path).toBe("/vms/default/web%201/owner");
    expect(JSON.parse(asked?.body ?? "")).toEqual({ owner: "new" });
  });

  it("is only shown to others", async () => {
    serve({ ...answers, "GET /session": session({ role: "backup", actions: ["catalog", "report"] }) });
    window.history.replaceState(null, "", "/vms/default/web%201");
    app();
    await screen.findByText("old");
    expect(screen.queryByRole("button", { name: "Change owner" })).toBeNull();
  });
});
