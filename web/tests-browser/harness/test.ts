/** Playwright's test with what every test here needs. */

import { test as base, expect, type Page } from "@playwright/test";

import { adminToken, type Reach } from "./server";

/** The server that all tests share; the global setup filled it. */
export const shared = (): Reach => {
  const text = process.env["HOLDFAST_TEST_SERVER"];
  if (text === undefined) throw new Error("the global setup has not run");
  return JSON.parse(text) as Reach;
};

/** Logs in by the form. */
export async function login(page: Page, reach: Reach, token: string, path = "/"): Promise<void> {
  await page.goto(reach.url + path);
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await expect(page.getByRole("navigation", { name: "Pages" })).toBeVisible();
}

/** Logs in as the administrator. */
export const loginAdmin = async (page: Page, reach: Reach, path = "/"): Promise<void> =>
  login(page, reach, await adminToken(reach), path);

/** What the tooltips of a column of the windowed table say, from its top. */
export const columnTexts = (page: Page, column: string): Promise<string[]> =>
  page
    .locator(`.grid tbody [data-column="${column}"]`)
    .evaluateAll((cells) => cells.map((cell) => cell.getAttribute("data-exact") ?? ""));

/** The numbers behind a column: a tooltip has every digit. */
export const exactNumbers = async (page: Page, column: string): Promise<number[]> =>
  (await columnTexts(page, column)).map((text) => Number(text.replace(/[^\d.-]/g, "")));

/** Fails a test on errors the page itself reports, its security policy's included. */
export const test = base.extend<{ quiet: undefined }>({
  quiet: [
    async ({ page }, use) => {
      const errors: string[] = [];
      page.on("pageerror", (error) => errors.push(String(error)));
      page.on("console", (message) => {
        const text = message.text();
        // Refused logins and a stopped server are part of tests; Chromium reports them as errors.
        if (message.type() === "error" && !/Failed to load resource|net::ERR_|EventSource/.test(text)) errors.push(text);
      });
      await use(undefined);
      expect(errors).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };
