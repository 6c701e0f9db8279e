/** What a page does when the line, the clock or another tab does something while it is open. */

import type { Page } from "@playwright/test";

import { agentOk, makeToken } from "./harness/server";
import { expect, loginAdmin, shared, test } from "./harness/test";

/** Opens the question whether the newest restore point of the VM web is to be deleted, ready to be answered. */
async function askToDelete(page: Page) {
  await page.getByRole("checkbox", { name: /^Select the restore point/ }).first().check();
  await page.getByRole("button", { name: "Delete…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.locator(".chosen-points li")).toHaveCount(1);
  await dialog.getByRole("checkbox").check();
  return dialog;
}

test("a deletion that was cancelled while the line was down is not sent when it is back", async ({ page, context }) => {
  const sent: string[] = [];
  await page.route("**/restore-points/delete", (route) => {
    sent.push(route.request().method());
    return route.abort();
  });
  await loginAdmin(page, shared(), "/vms/default/web");
  const dialog = await askToDelete(page);
  await context.setOffline(true);
  await dialog.getByRole("button", { name: "Delete", exact: true }).click();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await expect(dialog).toBeHidden();
  const before = sent.length;
  await context.setOffline(false);
  // What the page would send on its own comes before this.
  await expect.poll(() => page.evaluate(() => fetch("/api/v1/session").then((answer) => answer.status))).toBe(200);
  expect(sent.length).toBe(before);
});

test("a deletion that fails says so, also without a line", async ({ page, context }) => {
  await loginAdmin(page, shared(), "/vms/default/web");
  const dialog = await askToDelete(page);
  await context.setOffline(true);
  await dialog.getByRole("button", { name: "Delete", exact: true }).click();
  await expect(dialog.getByRole("alert")).toContainText("The server is not responding");
  await context.setOffline(false);
});

test("what is under way cannot be closed, by Escape pressed twice neither", async ({ page }) => {
  let answer = () => {};
  const late = new Promise<void>((done) => (answer = done));
  await page.route("**/api/v1/tokens", async (route) => {
    if (route.request().method() === "POST") await late;
    return route.continue();
  });
  await loginAdmin(page, shared(), "/access");
  await page.getByRole("button", { name: "Create a token" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill("escaped");
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await expect(dialog.getByRole("button", { name: "Creating…" })).toBeVisible();
  for (let pressed = 0; pressed < 3; pressed += 1) await page.keyboard.press("Escape");
  await expect(dialog.getByRole("button", { name: "Creating…" })).toBeVisible();
  answer();
  await expect(page.getByTestId("new-token")).toBeVisible();
  for (let pressed = 0; pressed < 3; pressed += 1) await page.keyboard.press("Escape");
  await expect(page.getByTestId("new-token")).toBeVisible();
  await page.getByRole("button", { name: "I have copied it" }).click();
  await expect(dialog).toBeHidden();
});

test("an overview that is left open for 30 hours says that backups have stopped", async ({ page }) => {
  await page.clock.install();
  await loginAdmin(page, shared());
  await expect(page.getByText("Every VM has a recent restore point.")).toBeVisible();
  // This machine's clock stays; the server answers as it would then.
  await page.route(/\/api\/v1\/vms\?.*stale=true/, async (route) => {
    const url = route.request().url().replace("stale=true&", "").replace("&stale=true", "");
    return route.fulfill({ response: await route.fetch({ url }) });
  });
  await page.clock.fastForward("30:00:00");
  await expect(page.getByText("Every VM has a recent restore point.")).toBeHidden();
  await expect(page.locator(".events").getByText("stale").first()).toBeVisible();
  await expect(page.getByText("30 h ago").first()).toBeVisible();
  await expect(page.getByText(/^As of/)).toHaveCount(0);
});

test("an overview without a line says as of when it is", async ({ page, context }) => {
  await page.clock.install();
  await loginAdmin(page, shared());
  await expect(page.getByText("Every VM has a recent restore point.")).toBeVisible();
  await context.setOffline(true);
  await page.clock.fastForward("30:00:00");
  await expect(page.getByText(/^As of/).first()).toBeVisible();
  await context.setOffline(false);
  await page.clock.fastForward("00:02:00");
  await expect(page.getByText(/^As of/)).toHaveCount(0);
});

test("a login in a second tab takes the first one along", async ({ page, context }) => {
  const token = await makeToken(shared(), "second-tab", "operator");
  const second = await context.newPage();
  await second.goto(shared().url);
  await expect(second.getByLabel("Token", { exact: true })).toBeVisible();
  await loginAdmin(page, shared(), "/access");
  await expect(page.getByRole("button", { name: "Create a token" })).toBeVisible();
  await second.getByLabel("Token", { exact: true }).fill(token);
  await second.getByRole("button", { name: "Log in" }).click();
  await expect(second.getByRole("button", { name: "second-tab" })).toBeVisible();
  await page.bringToFront();
  await page.evaluate(() => window.dispatchEvent(new Event("focus")));
  await expect(page.getByRole("button", { name: "second-tab" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Create a token" })).toHaveCount(0);
  await expect(page.getByText("Another tab logged in as second-tab")).toBeVisible();
});

test("a VM whose name looks like an encoded path is itself, and its points are its own", async ({ page }) => {
  const disk = `${process.env["HOLDFAST_TEST_DISKS"]}/db-root.raw`;
  for (const vm of ["odd%2fname", "odd/name"]) await agentOk(shared(), ["backup", "--vm", vm, "--job", vm.replace("/", "-"), "--quiet", `root=${disk}`]);
  await loginAdmin(page, shared(), "/vms");
  await page.getByRole("row", { name: /odd%2fname/ }).click();
  await expect(page.getByRole("heading", { name: "odd%2fname", level: 1 })).toBeVisible();
  await expect(page.getByRole("cell", { name: "odd%2fname", exact: true })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("heading", { name: "odd%2fname", level: 1 })).toBeVisible();
  await expect(page).toHaveTitle("odd%2fname · Holdfast");
});
