import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { makeQueryClient } from "../api/queries";
import { SessionGate } from "../api/session";
import { session } from "../test/fixtures";
import { serve } from "../test/server";
import { DamageBanner } from "./DamageBanner";

const DISK = {
  backup: "01JBACKUP",
  namespace: "default",
  vm: "web",
  disk: "root",
  started: "2026-11-20T22:00:00.000Z",
  found: "2026-11-21T22:00:00.000Z",
  bytes: 70_000,
  ranges: 4,
  listed: [
    { start: 4096, bytes: 65_536 },
    { start: 1_048_576, bytes: 1 },
    { start: 2_097_152, bytes: 1 },
  ],
};

const open = (damage: object, actions?: ("catalog" | "report")[]) => {
  const log = serve({ "GET /session": session(actions === undefined ? {} : { actions }), "GET /damage": { restore_points: 0, disks: 0, bytes: 0, items: [], next_page_token: null, ...damage } });
  render(
    <QueryClientProvider client={makeQueryClient()}>
      <SessionGate login={null} Waiting={() => null}>
        <DamageBanner />
      </SessionGate>
    </QueryClientProvider>,
  );
  return log;
};

describe("the banner of damage", () => {
  it("names VM, disk, restore point and ranges", async () => {
    open({ restore_points: 1, disks: 2, bytes: 70_000, items: [DISK] });
    const banner = within(await screen.findByRole("region", { name: "Damage" }));
    expect(banner.getByRole("link", { name: "web" }).getAttribute("href")).toBe("/vms/default/web");
    banner.getByText(/disk root, restore point of 2026-11-20 22:00: bytes 4,096–69,631, 1,048,576–1,048,576 and 2 more ranges/);
    banner.getByText(/And 1 more disk/);
    banner.getByRole("link", { name: "Everything that is damaged" });
  });

  it("leads only those to the storage page who may see it", async () => {
    open({ restore_points: 1, disks: 1, bytes: 70_000, items: [DISK] }, ["catalog", "report"]);
    await screen.findByRole("region", { name: "Damage" });
    expect(screen.queryByRole("link", { name: "Everything that is damaged" })).toBeNull();
  });

  it("is not there when nothing is lost", async () => {
    const log = open({});
    await waitFor(() => expect(log.some((each) => each.path === "/damage")).toBe(true));
    expect(screen.queryByRole("region", { name: "Damage" })).toBeNull();
  });
});
