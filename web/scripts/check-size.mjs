// What a first visit loads: index.html, what it names, and every script and style it may need later. All
// of it together must stay below the limit, so that no page is slow to load.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { gzipSync } from "node:zlib";

const LIMIT_BYTES = 300_000;
const root = new URL("../dist", import.meta.url).pathname;

function files(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}

const html = readFileSync(join(root, "index.html"), "utf8");
if (/<script(?![^>]*\bsrc=)/.test(html) || /<style|\sstyle=/.test(html)) {
  console.error("index.html has inline script or style, which the content security policy forbids");
  process.exit(1);
}
let initial = 0;
let total = 0;
for (const path of files(root)) {
  const name = relative(root, path);
  const bytes = gzipSync(readFileSync(path)).length;
  const first = name === "index.html" || html.includes(name);
  total += bytes;
  if (first) initial += bytes;
  console.log(`${String(bytes).padStart(8)}  ${first ? "initial" : "       "}  ${name}`);
}
console.log(`${String(initial).padStart(8)}  initial, gzipped; ${total} with every page (limit ${LIMIT_BYTES})`);
if (total >= LIMIT_BYTES) {
  console.error(`the page is too large: ${total} bytes gzipped, limit ${LIMIT_BYTES}`);
  process.exit(1);
}
