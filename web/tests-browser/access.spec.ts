import { agent, makeToken } from "./harness/server";
import { expect, login, loginAdmin, shared, test } from "./harness/test";

test("a token is made, shown once, works, and ends when it is revoked", async ({ page }) => {
  const reach = shared();
  await loginAdmin(page, reach, "/access");
  await page.getByRole("button", { name: "Create a token" }).click();
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("hv-test");
  await page.getByRole("radio", { name: /^restore/ }).check();
  await page.getByLabel("Expires").selectOption("30d");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  const shown = page.getByTestId("new-token");
  await expect(shown).toHaveText(/^hf_/);
  const token = (await shown.textContent()) ?? "";
  await page.keyboard.press("Escape");
  await expect(shown).toBeVisible();
  await page.getByRole("button", { name: "I have copied it" }).click();
  await expect(page.getByText(token)).toHaveCount(0);
  const row = page.getByRole("row", { name: /hv-test/ });
  await expect(row.first()).toContainText("restore");

  const list = () => agent(reach, ["list", "--json"], { HOLDFAST_TOKEN: token, HOLDFAST_TOKEN_FILE: "" });
  expect((await list()).code).toBe(0);

  await page.getByRole("button", { name: "Revoke hv-test" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke", exact: true }).click();
  await expect(page.getByRole("button", { name: "Revoke hv-test" })).toHaveCount(0);
  expect((await list()).code).toBe(4);
  await expect(page.getByRole("region", { name: "Audit log" })).toContainText("token.revoke");
});

test("the role restore sees no Access and no Storage page", async ({ page }) => {
  const reach = shared();
  await login(page, reach, await makeToken(reach, "alice", "restore"));
  const links = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
  await expect(links).toHaveCount(5);
  await page.goto(`${reach.url}/access`);
  await expect(page.getByText("Your role has no access to this page")).toBeVisible();
  await page.goto(`${reach.url}/storage`);
  await expect(page.getByText("Your role has no access to this page")).toBeVisible();
  await page.goto(`${reach.url}/details`);
  await expect(page.locator(".grid tbody tr").first()).toBeVisible();
});
