import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Bucket } from "./harness/bucket";
import { makeDisk } from "./harness/disks";
import { agentOk, Server } from "./harness/server";
import { expect, loginAdmin, shared, test } from "./harness/test";

let bucket: Bucket;
let server: Server;
let disks: string;

test.beforeAll(async () => {
  disks = await mkdtemp(join(tmpdir(), "holdfast-disks-"));
  bucket = await Bucket.create();
  server = await Server.create(undefined, bucket.args);
});

test.afterAll(async () => {
  await server.remove();
  await bucket.remove();
  await rm(disks, { recursive: true, force: true });
});

test("what lies in the bucket is shown as it gets there, with what it costs; then that it is gone", async ({ page }) => {
  const disk = join(disks, "root.raw");
  await makeDisk(disk, 0, 16);
  await agentOk(server.reach, ["backup", "--vm", "web", "--job", "nightly", "--quiet", `root=${disk}`]);
  await loginAdmin(page, server.reach);
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Bucket" }).click();
  await expect(page.getByText("s3://holdfast/site at http://127.0.0.1")).toBeVisible();
  const places = page.getByRole("table", { name: "What lies where" });
  // A data container and a recipe container at least; nothing waits any more.
  const points = places.getByRole("row", { name: /^points/ });
  await expect(points.getByRole("cell").nth(3)).toHaveText("1");
  await expect(places.getByRole("row", { name: /^containers/ }).getByRole("cell").nth(0)).toHaveText("0 B");
  const requests = page.getByRole("table", { name: "Requests" });
  await expect(requests.getByRole("row", { name: /^Since the server started/ })).toBeVisible();
  await expect(page.getByRole("table", { name: "Costs" }).getByRole("row", { name: /so far/ })).toContainText("$0.0");
  await expect(page.getByRole("table", { name: "Storage classes" }).getByRole("row", { name: /^STANDARD/ })).toContainText("at any time");
  await expect(page.getByText("The bucket was not audited yet.")).toBeVisible();
  await expect(page.getByText("The bucket is elsewhere: this is what the same would cost at Amazon.")).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);

  await bucket.stop();
  await makeDisk(disk, 40, 16);
  await agentOk(server.reach, ["backup", "--vm", "web", "--job", "nightly", "--quiet", `root=${disk}`]);
  await expect(page.getByRole("alert")).toContainText("no answer came");
});

test("without one it is explained, and not linked", async ({ page }) => {
  await loginAdmin(page, shared(), "/storage");
  await expect(page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Bucket" })).toHaveCount(0);
  await page.getByRole("link", { name: "How to set one up" }).click();
  await expect(page.getByText("No bucket is configured")).toBeVisible();
});
