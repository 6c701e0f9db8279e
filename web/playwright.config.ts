/**
 * Browser tests against a real server with real backups. `HOLDFAST_BIN_DIR` (default `../target/debug`) holds
 * the programs, `HOLDFAST_CHROMIUM` is the browser; nothing is downloaded.
 */

import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests-browser",
  testMatch: "*.spec.ts",
  globalSetup: "./tests-browser/global-setup.ts",
  outputDir: "test-results",
  // Backups and page together keep two cores busy.
  workers: 1,
  fullyParallel: false,
  forbidOnly: process.env["CI"] !== undefined,
  // Only a test that fails waits so long.
  timeout: 600_000,
  expect: { timeout: 120_000 },
  reporter: [["list"]],
  use: {
    ignoreHTTPSErrors: true,
    viewport: { width: 1440, height: 900 },
    trace: "retain-on-failure",
    launchOptions: {
      executablePath: process.env["HOLDFAST_CHROMIUM"] ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
      ],
    },
  },
});
