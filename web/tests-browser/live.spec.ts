import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { makeRandomDisk } from "./harness/disks";
import { ended, start } from "./harness/programs";
import { agentEnv, agentOk, Server } from "./harness/server";
import { expect, loginAdmin, test } from "./harness/test";
import { Wire } from "./harness/wire";

const MIB = 1024 * 1024;

let server: Server;
let disks: string;
let disk: string;

test.beforeAll(async () => {
  disks = await mkdtemp(join(tmpdir(), "holdfast-disks-"));
  disk = join(disks, "root.raw");
  // Several containers of 32 MiB: progress counts what is durable.
  await makeRandomDisk(disk, 128);
  server = await Server.create();
});

test.afterAll(async () => {
  await server.remove();
  await rm(disks, { recursive: true, force: true });
});

test("an empty repository says what to do first", async ({ page }) => {
  await loginAdmin(page, server.reach);
  await expect(page.getByText("No backups yet")).toBeVisible();
  await expect(page.getByText("holdfast-server token create --join --name hv1 --namespace default")).toBeVisible();
});

test("a running backup shows its progress, and its rows when it is done, without a reload", async ({ page }) => {
  await loginAdmin(page, server.reach);
  await expect(page.getByRole("status").filter({ hasText: "Live" })).toBeVisible();
  // Held on its way until the page has shown what there is to see.
  const wire = await Wire.to(server.reach.grpc, 48 * MIB);
  const reach = { ...server.reach, grpc: wire.address };
  const child = start("holdfast", ["backup", "--vm", "slow", "--job", "nightly", "--quiet", `root=${disk}`], agentEnv(reach));
  const bar = page.getByRole("progressbar", { name: "Backup of slow" });
  await expect(bar).toBeVisible();
  const done = async () => Number(await bar.getAttribute("aria-valuenow"));
  await expect.poll(done).toBeGreaterThan(0);
  const first = await done();
  wire.allow(112 * MIB);
  await expect.poll(done).toBeGreaterThan(first);
  await expect(page.locator(".session", { hasText: "slow" })).toContainText("/s");

  wire.allow(Infinity);
  expect(await ended(child)).toBe(0);
  wire.close();
  await expect(bar).toHaveCount(0);
  await expect(page.getByRole("region", { name: "Jobs" })).toContainText("nightly");

  // Another open page shows a new run without a reload.
  await page.getByRole("link", { name: "Compression details" }).click();
  const rows = page.locator(".grid tbody tr.grid-row:not(.grid-skeleton)");
  await expect(rows).toHaveCount(1);
  await agentOk(server.reach, ["backup", "--vm", "slow", "--job", "nightly", "--quiet", `root=${disk}`]);
  await expect(rows).toHaveCount(2);
});

test("the live connection recovers after a restart of the server", async ({ page }) => {
  await agentOk(server.reach, ["backup", "--vm", "before", "--job", "nightly", "--quiet", `root=${disk}`]);
  await loginAdmin(page, server.reach, "/details");
  const live = page.locator(".live");
  await expect(live).toHaveText("Live");
  await server.stop();
  await expect(live).toHaveText("Reconnecting");
  await expect(page.locator(".grid tbody tr.grid-row").first()).toBeVisible();
  await server.start();
  await expect(live).toHaveText("Live");
  // And it reports what happens next. Rows are told apart by VM: the grid
  // loads again after the restart, so a count of them has no fixed moment.
  const rows = page.locator(".grid tbody tr.grid-row:not(.grid-skeleton)");
  await expect(rows.filter({ hasText: "before" })).toHaveCount(1);
  await expect(rows.filter({ hasText: "after" })).toHaveCount(0);
  await agentOk(server.reach, ["backup", "--vm", "after", "--job", "nightly", "--quiet", `root=${disk}`]);
  await expect(rows.filter({ hasText: "after" })).toHaveCount(1);
});
