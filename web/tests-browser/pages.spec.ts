import { AxeBuilder } from "@axe-core/playwright";

import { expect, loginAdmin, shared, test } from "./harness/test";

const PAGES = [
  { path: "/", ready: "At a glance" },
  { path: "/details", ready: "Disk runs" },
  { path: "/details?by=vm", ready: "Totals by VM" },
  { path: "/vms", ready: "VMs" },
  { path: "/vms/default/web", ready: "At a glance" },
  { path: "/namespaces", ready: "Quotas" },
  { path: "/retention", ready: "Policies" },
  { path: "/tasks", ready: "Schedules" },
  { path: "/storage", ready: "Containers" },
  { path: "/bucket", ready: "Settings" },
  { path: "/access", ready: "Tokens" },
] as const;

/** In the dark, only colours differ. */
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];

for (const scheme of ["light", "dark"] as const) {
  test.describe(scheme, () => {
    test.use({ colorScheme: scheme });

    test(`no page has a serious or critical finding of axe (${scheme})`, async ({ page }) => {
      // Thirteen pages, each of which takes axe several seconds on a busy machine.
      test.slow();
      const reach = shared();
      const findings: string[] = [];
      const check = async (where: string) => {
        const axe = new AxeBuilder({ page });
        const { violations } = await (scheme === "light" ? axe.withTags(RULES) : axe.withRules("color-contrast")).analyze();
        for (const { impact, id, nodes } of violations) {
          if (impact === "serious" || impact === "critical") {
            findings.push(`${where}: ${id} ${nodes.map((node) => `${node.target.join(" ")} ${node.failureSummary ?? ""}`).join("; ")}`);
          }
        }
      };
      await page.goto(reach.url);
      await expect(page.getByLabel("Token", { exact: true })).toBeVisible();
      await check("login");
      await loginAdmin(page, reach);
      for (const { path, ready } of PAGES) {
        await page.goto(reach.url + path);
        await expect(page.getByLabel(ready, { exact: true }).first()).toBeVisible();
        await expect(page.locator("main .skeleton")).toHaveCount(0);
        await check(path);
      }
      await page.goto(`${reach.url}/details?sort=-post_lc`);
      await page.locator(".grid tbody tr").first().click();
      await expect(page.getByRole("heading", { name: "All columns" })).toBeVisible();
      await check("drawer");
      await page.goto(`${reach.url}/access`);
      await page.getByRole("button", { name: "Create a token" }).click();
      await check("create a token");
      expect(findings).toEqual([]);
    });
  });
}

for (const width of [360, 768, 1280, 1920]) {
  test(`nothing is wider than a window of ${width} px`, async ({ page }) => {
    const reach = shared();
    await page.setViewportSize({ width, height: 800 });
    await loginAdmin(page, reach);
    for (const { path, ready } of PAGES) {
      await page.goto(reach.url + path);
      await expect(page.getByLabel(ready, { exact: true }).first()).toBeVisible();
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(over, path).toBeLessThanOrEqual(0);
    }
  });
}

test("a VM's page has its restore points, the command to restore, and what was verified", async ({ page }) => {
  await loginAdmin(page, shared(), "/vms");
  await page.locator(".grid tbody tr", { hasText: "web" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "web" })).toBeVisible();
  await expect(page.locator(".points tbody")).toHaveCount(5);
  await expect(page.locator(".points tbody").first()).toContainText("verified");
  await expect(page.getByRole("region", { name: "Restore the latest" })).toContainText(/holdfast restore \S+/);
  const today = page.locator('.calendar-cell[tabindex="0"]');
  await expect(today).toHaveAttribute("aria-label", /restore point/);
  await expect(page.locator(".uplot canvas").first()).toBeVisible();
});

test("the theme is chosen, kept, and applied before the first paint", async ({ page }) => {
  await loginAdmin(page, shared());
  const root = page.locator("html");
  await page.getByRole("button", { name: /^Colours/ }).click();
  await expect(root).toHaveAttribute("data-theme", "light");
  await page.getByRole("button", { name: /^Colours/ }).click();
  await expect(root).toHaveAttribute("data-theme", "dark");
  await page.reload({ waitUntil: "commit" });
  await expect(root).toHaveAttribute("data-theme", "dark");
});

test("a number's tooltip comes by the keyboard and has the definition", async ({ page }) => {
  await loginAdmin(page, shared(), "/details");
  await page.locator('.grid tbody tr.grid-row:not(.grid-skeleton) [data-column="vm"]').first().focus();
  await page.keyboard.press("ArrowRight");
  for (let step = 0; step < 4; step += 1) await page.keyboard.press("ArrowRight");
  const cell = page.locator(":focus");
  await expect(cell).toHaveAttribute("data-column", "new_bytes");
  const tooltip = page.getByRole("tooltip");
  await expect(tooltip).toContainText("bytes");
  await expect(tooltip).toContainText("deduplication");
  await page.keyboard.press("Escape");
  await expect(tooltip).toHaveCount(0);
});
