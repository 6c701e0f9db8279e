import { adminToken } from "./harness/server";
import { expect, loginAdmin, shared, test } from "./harness/test";

test("a wrong token is refused with words that help", async ({ page }) => {
  await page.goto(shared().url);
  await expect(page.getByText("admin.token", { exact: true })).toBeVisible();
  await page.getByLabel("Token", { exact: true }).fill("hf_01JQQQQQQQQQQQQQQQQQQQQQQQ_wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await expect(page.getByRole("alert")).toContainText("unknown, expired or revoked");
  await expect(page.getByRole("navigation", { name: "Pages" })).toHaveCount(0);
});

test("a good token leads to the page that was wanted, and logging out ends the session", async ({ page, context }) => {
  const reach = shared();
  await page.goto(`${reach.url}/details?vm=web`);
  await page.getByLabel("Token", { exact: true }).fill(await adminToken(reach));
  await page.getByLabel("Token", { exact: true }).press("Enter");
  await expect(page.getByRole("heading", { name: "Compression details" })).toBeVisible();
  expect(page.url()).toBe(`${reach.url}/details?vm=web`);

  const [cookie] = await context.cookies(reach.url);
  expect(cookie).toMatchObject({ name: "__Host-holdfast", httpOnly: true, secure: true, sameSite: "Strict" });

  await page.getByRole("button", { name: "admin", exact: true }).click();
  await page.getByRole("button", { name: "Log out" }).click();
  await expect(page.getByLabel("Token", { exact: true })).toBeVisible();
  // The cookie that was is worth nothing any more.
  if (cookie !== undefined) await context.addCookies([cookie]);
  await page.goto(`${reach.url}/vms`);
  await expect(page.getByLabel("Token", { exact: true })).toBeVisible();
});

test("nothing is asked of any other host", async ({ page }) => {
  const reach = shared();
  const foreign: string[] = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(reach.url) && !request.url().startsWith("data:")) foreign.push(request.url());
  });
  await loginAdmin(page, reach);
  for (const name of ["Compression details", "VMs", "Storage", "Access"]) {
    await page.getByRole("link", { name, exact: true }).click();
    await expect(page.getByRole("heading", { level: 1, name })).toBeVisible();
  }
  expect(foreign).toEqual([]);
});
