import { agentOk, makeToken, Server } from "./harness/server";
import { makeDisk } from "./harness/disks";
import { expect, login, loginAdmin, test } from "./harness/test";

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const POINTS = 5;

let server: Server;
let disks: string;

test.beforeAll(async () => {
  disks = await mkdtemp(join(tmpdir(), "holdfast-retention-"));
  server = await Server.create();
  const disk = join(disks, "app.raw");
  for (let night = 0; night < POINTS; night += 1) {
    // Each has data that no other has.
    await makeDisk(disk, 9 * night, 4);
    await agentOk(server.reach, ["backup", "--vm", "app", "--job", "nightly", "--quiet", `root=${disk}`]);
  }
});

test.afterAll(async () => {
  await server.remove();
  await rm(disks, { recursive: true, force: true });
});

test("restore points are locked, held, chosen and deleted, and what that frees is said first", async ({ page }) => {
  await loginAdmin(page, server.reach, "/vms/default/app");
  const points = page.locator(".points tbody");
  await expect(points).toHaveCount(POINTS);

  await points.nth(0).getByRole("button", { name: "Commands" }).click();
  await page.getByRole("button", { name: "Lock…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Lock", exact: true }).click();
  await expect(points.nth(0)).toContainText("locked until");
  await expect(points.nth(0).getByRole("checkbox")).toBeDisabled();

  await points.nth(1).getByRole("button", { name: "Commands" }).click();
  await points.nth(1).getByRole("button", { name: "Hold…" }).click();
  await page.getByLabel(/Reason/).fill("case 17");
  await page.getByRole("dialog").getByRole("button", { name: "Hold", exact: true }).click();
  await expect(points.nth(1)).toContainText("held");
  await expect(points.nth(1).getByRole("checkbox")).toBeDisabled();

  await points.nth(POINTS - 1).getByRole("checkbox").check();
  await page.getByRole("button", { name: "Delete…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByText(/\d (KiB|MiB)/).first()).toBeVisible();
  await expect(dialog.getByRole("button", { name: "Delete", exact: true })).toBeDisabled();
  await dialog.getByLabel("Reason").fill("too old");
  await dialog.getByRole("checkbox").check();
  await dialog.getByRole("button", { name: "Delete", exact: true }).click();
  await expect(points).toHaveCount(POINTS - 1);

  await page.goto(`${server.reach.url}/access`);
  await expect(page.getByRole("region", { name: "Audit log" })).toContainText("too old");
});

test("an operator sees what deleting frees, and deletes nothing", async ({ page }) => {
  await login(page, server.reach, await makeToken(server.reach, "op", "operator"), "/vms/default/app");
  const points = page.locator(".points tbody");
  await expect(points).toHaveCount(POINTS - 1);
  await points.nth(POINTS - 2).getByRole("checkbox").check();
  await page.getByRole("button", { name: "What it frees…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByText(/\d (KiB|MiB)/).first()).toBeVisible();
  await expect(dialog.getByRole("button", { name: /Delete/ })).toHaveCount(0);
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await expect(points).toHaveCount(POINTS - 1);
});

test("a policy that is changed elsewhere changes on the page", async ({ page }) => {
  await loginAdmin(page, server.reach, "/retention");
  await expect(page.getByText("No policies yet")).toBeVisible();
  // What is on screen is asked for again only when the server tells of a change.
  await agentOk(server.reach, ["policy", "set", "elsewhere", "--keep-last", "3"]);
  await expect(page.getByRole("rowheader", { name: "elsewhere" })).toBeVisible();
  await agentOk(server.reach, ["policy", "remove", "elsewhere"]);
  await expect(page.getByText("No policies yet")).toBeVisible();
});

test("a policy is made, simulated, tried and run", async ({ page }) => {
  await loginAdmin(page, server.reach, "/retention");
  await expect(page.getByText("No policies yet")).toBeVisible();
  await page.getByRole("button", { name: "Create a policy" }).click();
  const form = page.getByRole("dialog");
  await form.getByRole("textbox", { name: "Name", exact: true }).fill("few");
  await form.getByRole("textbox", { name: "Last", exact: true }).fill("1");
  await form.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("rowheader", { name: "few" })).toBeVisible();

  await page.getByRole("button", { name: "Simulate few" }).click();
  await expect(page.getByRole("img", { name: "Restore points kept over 731 days, at most 1 at once" })).toBeVisible();
  const slider = page.getByRole("slider", { name: "Day" });
  await slider.focus();
  const before = await slider.getAttribute("aria-valuetext");
  await page.keyboard.press("ArrowLeft");
  await expect(slider).not.toHaveAttribute("aria-valuetext", before ?? "");

  await page.getByRole("button", { name: "Run few" }).click();
  const drawer = page.getByRole("dialog");
  // One of the four that are left is the newest and locked, one is held.
  await expect(drawer.getByRole("row", { name: /legal hold/ })).toBeVisible();
  await drawer.getByRole("button", { name: "Delete 2 restore points" }).click();
  await expect(drawer.getByText(/2 restore points deleted/)).toBeVisible();
  await page.goto(`${server.reach.url}/vms/default/app`);
  await expect(page.locator(".points tbody")).toHaveCount(2);
});

test("who may only read sees policies and no buttons", async ({ page }) => {
  await login(page, server.reach, await makeToken(server.reach, "reader", "restore"), "/retention");
  await expect(page.getByRole("rowheader", { name: "few" })).toBeVisible();
  await expect(page.locator("main").getByRole("button", { name: /Run|Edit|Remove|Create|Simulate/ })).toHaveCount(0);
  await page.goto(`${server.reach.url}/vms/default/app`);
  await expect(page.locator(".points tbody")).toHaveCount(2);
  await expect(page.getByRole("checkbox")).toHaveCount(0);
});
