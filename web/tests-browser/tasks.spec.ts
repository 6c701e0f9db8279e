import { expect, loginAdmin, shared, test } from "./harness/test";

test("a verification is started, goes on by itself, and is in the history with its log", async ({ page }) => {
  await loginAdmin(page, shared(), "/tasks");
  await page.getByRole("button", { name: "Start a task" }).click();
  await page.getByRole("button", { name: /^Verification/ }).click();
  const row = page.getByRole("region", { name: "History" }).getByRole("row", { name: /Verification/ }).first();
  await expect(row).toContainText("done");
  await row.getByRole("button", { name: /^Log of/ }).click();
  await expect(page.getByRole("dialog").getByRole("list", { name: "Log" })).toBeVisible();
});

test("a schedule is switched off and on", async ({ page }) => {
  await loginAdmin(page, shared(), "/tasks");
  const schedules = page.getByRole("region", { name: "Schedules" });
  await schedules.getByRole("button", { name: "Switch verify off" }).click();
  await schedules.getByRole("button", { name: "Switch verify on" }).click();
  await expect(schedules.getByRole("button", { name: "Switch verify off" })).toBeVisible();
});
