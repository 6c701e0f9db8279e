import { readFile } from "node:fs/promises";

import type { Download, Page } from "@playwright/test";

import { agentOk } from "./harness/server";
import { columnTexts, exactNumbers, expect, loginAdmin, shared, test } from "./harness/test";

const grid = (page: Page) => page.getByRole("grid");
const rows = (page: Page) => page.locator(".grid tbody tr.grid-row:not(.grid-skeleton)");
const falling = (numbers: number[]) => numbers.toSorted((a, b) => b - a);

/** Waits until a column has at least this many numbers, largest first; returns them. A table that loads has fewer, or others. */
async function largestFirst(page: Page, column: string, least: number): Promise<number[]> {
  let numbers: number[] = [];
  await expect(async () => {
    numbers = await exactNumbers(page, column);
    expect(numbers.length).toBeGreaterThanOrEqual(least);
    expect(numbers).toEqual(falling(numbers));
  }).toPass();
  return numbers;
}

async function download(page: Page, name: RegExp): Promise<Buffer> {
  await page.getByRole("button", { name: "Download" }).click();
  const coming = page.waitForEvent("download");
  await page.getByRole("link", { name }).click();
  const file: Download = await coming;
  return readFile(await file.path());
}

test.beforeEach(async ({ page }) => {
  await loginAdmin(page, shared(), "/details");
  await expect(rows(page).first()).toBeVisible();
});

test("sorts at the server by mouse and by keyboard", async ({ page }) => {
  await grid(page).getByRole("button", { name: "Post-comp" }).click();
  await expect(page).toHaveURL(/sort=-post_lc/);
  await expect(grid(page).getByRole("columnheader", { name: "Post-comp" })).toHaveAttribute("aria-sort", "descending");
  const worst = await largestFirst(page, "post_lc", 7);

  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/sort=post_lc/);
  await expect.poll(() => exactNumbers(page, "post_lc")).toEqual(worst.toReversed());
});

test("worst first is one button", async ({ page }) => {
  await page.getByRole("button", { name: "Worst first" }).click();
  await expect(page).toHaveURL(/sort=-post_lc/);
  await expect(page.getByRole("button", { name: "Worst first" })).toHaveAttribute("aria-pressed", "true");
});

test("filters, and the address holds the filter", async ({ page }) => {
  await page.getByRole("combobox", { name: "VM" }).selectOption("db");
  await expect.poll(async () => new Set(await columnTexts(page, "vm"))).toEqual(new Set(["db"]));
  await page.getByRole("searchbox").fill("data");
  await expect.poll(async () => new Set(await columnTexts(page, "disk"))).toEqual(new Set(["data"]));
  await expect(page).toHaveURL(/vm=db/);
  await expect(page).toHaveURL(/q=data/);
  await page.reload();
  await expect.poll(async () => new Set(await columnTexts(page, "disk"))).toEqual(new Set(["data"]));
  await expect(page.getByRole("searchbox")).toHaveValue("data");

  await page.getByRole("button", { name: "Reset filters" }).click();
  await page.getByRole("button", { name: /Any status/ }).click();
  await page.getByRole("checkbox", { name: "done" }).uncheck();
  for (const status of ["failed", "aborted", "expired"]) await page.getByRole("checkbox", { name: status }).check();
  await expect.poll(async () => (await columnTexts(page, "status")).map((status) => status === "done")).toEqual([false]);

  await page.getByRole("searchbox").fill("no such thing");
  await expect(page.getByText("No runs match these filters")).toBeVisible();
});

test("groups, and a group leads to its rows", async ({ page }) => {
  await page.getByRole("button", { name: "By VM" }).click();
  await expect.poll(() => columnTexts(page, "vm")).toEqual(["web", "db"]);
  await largestFirst(page, "post_lc", 2);
  await page.locator(".grid tbody tr", { hasText: "web" }).click();
  await expect(page.getByRole("button", { name: "Rows" })).toHaveAttribute("aria-pressed", "true");
  await expect.poll(async () => new Set(await columnTexts(page, "vm"))).toEqual(new Set(["web"]));
  await page.goBack();
  await expect(page.getByRole("button", { name: "By VM" })).toHaveAttribute("aria-pressed", "true");
});

test("a run is explained in words", async ({ page }) => {
  await page.locator(".grid tbody tr.grid-row:not(.grid-skeleton)").first().click();
  const drawer = page.getByRole("dialog");
  await expect(drawer.locator(".explanation p").first()).toBeVisible();
  await expect(page).toHaveURL(/row=/);
  await page.keyboard.press("Escape");
  await expect(drawer).toHaveCount(0);
});

test("columns are chosen, kept in this browser, and reset", async ({ page }) => {
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("checkbox", { name: /^Sent/ }).check();
  await page.getByRole("checkbox", { name: /^Trend/ }).uncheck();
  await page.reload();
  await expect(grid(page).getByRole("columnheader", { name: "Sent" })).toBeAttached();
  await expect(grid(page).getByRole("columnheader", { name: "Trend" })).toHaveCount(0);
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("group", { name: "Columns to show" }).getByRole("button", { name: "Reset" }).click();
  await expect(grid(page).getByRole("columnheader", { name: "Trend" })).toBeAttached();
  await expect(grid(page).getByRole("columnheader", { name: "Sent" })).toHaveCount(0);
});

test("the full report is to the byte what the command line prints", async ({ page }) => {
  await page.getByRole("combobox", { name: "VM" }).selectOption("web");
  await page.getByRole("button", { name: "Worst first" }).click();
  await expect(page).toHaveURL(/vm=web.*sort=-post_lc/);
  const file = await download(page, /Full report, TSV/);
  const { stdout } = await agentOk(shared(), ["report", "--vm", "web", "--format", "tsv"]);
  expect(stdout.length).toBeGreaterThan(500);
  expect(file.equals(stdout)).toBe(true);
});

test("what is shown is what is downloaded: filter, order and columns", async ({ page }) => {
  await page.getByRole("combobox", { name: "Job" }).selectOption("hourly");
  await page.getByRole("button", { name: "Worst first" }).click();
  await expect.poll(async () => new Set(await columnTexts(page, "vm"))).toEqual(new Set(["db"]));
  const shown = await largestFirst(page, "post_lc", 2);
  const text = (await download(page, /Rows as shown, CSV/)).toString();
  const [header = "", ...lines] = text.trimEnd().split("\n");
  const names = header.split(",");
  // A file keeps the report's order of columns.
  expect(names).toEqual(["job", "vm", "disk", "status", "started", "seconds", "bytes", "new_bytes", "post_lc", "global_factor", "local_factor", "bytes/post_lc", "reduction_pct", "point"]);
  expect(lines.map((line) => Number(line.split(",")[names.indexOf("post_lc")]))).toEqual(shown);

  // Every column, oldest first, is the command line's report again.
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("button", { name: "All", exact: true }).click();
  await page.keyboard.press("Escape");
  await grid(page).getByRole("button", { name: "Started" }).click();
  await expect(page).toHaveURL(/sort=-started|\/details\?job=hourly$/);
  await grid(page).getByRole("button", { name: "Started" }).click();
  await expect(page).toHaveURL(/sort=started/);
  const all = await download(page, /Rows as shown, TSV/);
  const { stdout } = await agentOk(shared(), ["report", "--job", "hourly", "--format", "tsv"]);
  expect(all.equals(stdout)).toBe(true);
});
