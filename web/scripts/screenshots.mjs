// Pictures of every page of a running server, light and dark, narrow to wide, for people to look at.
//   npm run screenshots -- https://127.0.0.1:7441 /var/lib/holdfast/admin.token FOLDER [PAGE,PAGE…]
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { chromium } from "@playwright/test";

const WIDTHS = [360, 1280, 1920];
const [url, tokenFile, folder, only] = process.argv.slice(2);
if (folder === undefined) {
  console.error("usage: npm run screenshots -- URL TOKEN-FILE FOLDER [PAGE,PAGE…]");
  process.exit(2);
}
mkdirSync(folder, { recursive: true });

const browser = await chromium.launch({
  executablePath: process.env.HOLDFAST_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});

/** The page's name and address; what depends on the data is asked for. */
async function places(page) {
  const ask = (path) => page.evaluate(async (address) => (await fetch(address)).json(), `/api/v1${path}`);
  const { items: vms } = await ask("/vms?sort=-backups&limit=1");
  const { items: rows } = await ask("/details?sort=-started&limit=2000");
  const row = rows.find((each) => each.flag !== null && each.flag.kind !== "failed") ?? rows[0];
  return {
    overview: "/",
    details: "/details",
    worst: "/details?sort=-post_lc",
    groups: "/details?by=vm",
    ...(row === undefined ? {} : { drawer: `/details?sort=-post_lc&row=${encodeURIComponent(row.id)}` }),
    vms: "/vms",
    ...(vms[0] === undefined ? {} : { vm: `/vms/${vms[0].namespace}/${vms[0].vm}` }),
    retention: "/retention",
    tasks: "/tasks",
    storage: "/storage",
    access: "/access",
  };
}

/** Pages that are as high as the window; the others are shown whole. */
const FIXED = ["details", "worst", "groups", "drawer", "login"];

for (const scheme of ["light", "dark"]) {
  for (const width of WIDTHS) {
    const context = await browser.newContext({
      viewport: { width, height: width < 500 ? 780 : width < 1500 ? 860 : 1080 },
      colorScheme: scheme,
      ignoreHTTPSErrors: true,
      reducedMotion: "reduce",
    });
    const page = await context.newPage();
    page.on("pageerror", (error) => console.log(scheme, width, String(error)));
    page.on("console", (message) => {
      if (message.type() === "error" && !message.text().includes("401")) console.log(scheme, width, message.text());
    });
    const shoot = async (name) => {
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (over > 0) console.log(`${name} is ${over} px too wide at ${width}`);
      await page.screenshot({ path: join(folder, `${name}-${scheme}-${width}.png`), fullPage: !FIXED.includes(name) });
    };
    await page.goto(url);
    await page.getByLabel("Token", { exact: true }).waitFor();
    if (only === undefined || only.includes("login")) await shoot("login");
    await page.getByLabel("Token", { exact: true }).fill(readFileSync(tokenFile, "utf8").trim());
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("navigation", { name: "Pages" }).waitFor();
    for (const [name, path] of Object.entries(await places(page))) {
      if (only !== undefined && !only.split(",").includes(name)) continue;
      await page.goto(url + path);
      await page.locator("main h1").waitFor();
      await page.waitForFunction(() => document.querySelector("main .skeleton, main .grid-skeleton") === null);
      // Charts are drawn a frame after their library has come.
      await page.waitForTimeout(400);
      await shoot(name);
    }
    await context.close();
  }
}
await browser.close();
