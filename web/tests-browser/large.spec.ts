import type { Page } from "@playwright/test";

import { run } from "./harness/programs";
import { Server } from "./harness/server";
import { expect, loginAdmin, test } from "./harness/test";

/** Every length takes the same paths; the longest takes minutes. */
const ROWS = process.env["HOLDFAST_SLOW_TESTS"] === undefined ? 10_000 : 100_000;
/** On a screen of 900 px there are about 20 rows; with those kept beyond the edges never more than this. */
const DRAWN_MAX = 80;

let server: Server;

test.beforeAll(async () => {
  server = await Server.create(async (dataDir) => {
    const output = await run("examples/fill_details", [dataDir, String(ROWS)]);
    expect(output.code, output.stderr).toBe(0);
  });
});

test.afterAll(() => server.remove());

const drawn = (page: Page) => page.locator(".grid tbody tr.grid-row").count();

/** Scrolls to a share of the whole height and waits until what is in view has come. */
async function scrollTo(page: Page, share: number): Promise<number> {
  const row = await page.locator(".grid-scroll").evaluate((scroller, to) => {
    scroller.scrollTop = to * (scroller.scrollHeight - scroller.clientHeight);
    return Math.floor(scroller.scrollTop / 36);
  }, share);
  const middle = page.locator(`.grid tbody tr[data-row="${Math.min(row + 5, ROWS - 1)}"]:not(.grid-skeleton)`);
  await expect(middle).toBeVisible();
  return row;
}

/** The row that the server has at this place. */
async function expected(page: Page, index: number): Promise<{ vm: string; post_lc: number }> {
  return page.evaluate(async (offset) => {
    const response = await fetch(`/api/v1/details?sort=-post_lc&offset=${offset}&limit=1`);
    return ((await response.json()) as { items: [{ vm: string; post_lc: number }] }).items[0];
  }, index);
}

test("many thousands of rows scroll from end to end with a bounded number of DOM rows, each the right one", async ({ page }) => {
  await loginAdmin(page, server.reach, "/details?sort=-post_lc");
  const grid = page.getByRole("grid");
  await expect(grid).toHaveAttribute("aria-rowcount", String(ROWS + 1));
  const height = await page.locator(".grid-scroll").evaluate((scroller) => scroller.scrollHeight);
  expect(height).toBeGreaterThanOrEqual(ROWS * 36);

  let most = 0;
  for (const share of [0, 0.07, 0.25, 0.5, 0.501, 0.77, 0.93, 1, 0.33, 0]) {
    const row = await scrollTo(page, share);
    most = Math.max(most, await drawn(page));
    const index = Math.min(row + 5, ROWS - 1);
    const at = page.locator(`.grid tbody tr[data-row="${index}"]`);
    await expect(at).toHaveAttribute("aria-rowindex", String(index + 2));
    const { vm, post_lc } = await expected(page, index);
    await expect(at.locator('[data-column="vm"]')).toHaveAttribute("data-exact", vm);
    await expect(at.locator('[data-column="post_lc"]')).toHaveAttribute("data-exact", `${post_lc.toLocaleString("en-US")} bytes`);
  }
  expect(most).toBeLessThanOrEqual(DRAWN_MAX);
});

test("scrolling without a pause never leaves the page without an answer", async ({ page }) => {
  await loginAdmin(page, server.reach, "/details");
  await expect(page.locator(".grid tbody tr.grid-row:not(.grid-skeleton)").first()).toBeVisible();
  // A frame after each of many jumps: were one drawing to hold up the page, frames would not come.
  const most = await page.locator(".grid-scroll").evaluate(async (scroller) => {
    let rows = 0;
    for (let jump = 0; jump <= 120; jump += 1) {
      scroller.scrollTop = (jump / 120) * scroller.scrollHeight;
      await new Promise((frame) => requestAnimationFrame(frame));
      rows = Math.max(rows, scroller.querySelectorAll("tbody tr.grid-row").length);
    }
    return rows;
  });
  expect(most).toBeLessThanOrEqual(DRAWN_MAX);
  await expect(page.locator(`.grid tbody tr[data-row="${ROWS - 1}"]:not(.grid-skeleton)`)).toBeVisible();
});

test("End goes to the last row by the keyboard, and Home back", async ({ page }) => {
  await loginAdmin(page, server.reach, "/details");
  await page.locator('.grid tbody tr.grid-row:not(.grid-skeleton) [data-spot="0.0"]').focus();
  await page.keyboard.press("Control+End");
  await expect(page.locator(":focus")).toHaveAttribute("data-spot", new RegExp(`^${ROWS - 1}\\.`));
  await expect(page.locator(`.grid tbody tr[data-row="${ROWS - 1}"]:not(.grid-skeleton)`)).toBeVisible();
  await page.keyboard.press("Control+Home");
  await expect(page.locator(":focus")).toHaveAttribute("data-spot", "0.0");
});
