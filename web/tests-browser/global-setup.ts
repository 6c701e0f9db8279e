/** One real server for all tests, with a small history made by the real agent. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { change, makeDisk } from "./harness/disks";
import { ended, start } from "./harness/programs";
import { agentEnv, agentOk, Server } from "./harness/server";

/** Nightly backups of the VM web before the one that stands out. */
const USUAL_NIGHTS = 4;

export default async function setup(): Promise<() => Promise<void>> {
  const disks = await mkdtemp(join(tmpdir(), "holdfast-disks-"));
  const server = await Server.create();
  const end = async () => {
    await server.remove();
    await rm(disks, { recursive: true, force: true });
  };
  try {
    await fill(server, disks);
  } catch (error) {
    await end();
    throw error;
  }
  process.env["HOLDFAST_TEST_SERVER"] = JSON.stringify(server.reach);
  process.env["HOLDFAST_TEST_DISKS"] = disks;
  return end;
}

async function fill(server: Server, disks: string): Promise<void> {
  const { reach } = server;
  const [web, root, data] = ["web", "db-root", "db-data"].map((name) => join(disks, `${name}.raw`)) as [string, string, string];
  await makeDisk(web, 0, 80);
  await makeDisk(root, 30, 12);
  await makeDisk(data, 60, 12);
  const backup = (vm: string, job: string, ...paths: string[]) => agentOk(reach, ["backup", "--vm", vm, "--job", job, "--quiet", ...paths]);
  for (let night = 0; night < USUAL_NIGHTS; night += 1) {
    await backup("web", "nightly", `root=${web}`);
    await change(web, 4 + night, 1, night + 1);
  }
  await backup("db", "hourly", `root=${root}`, `data=${data}`);
  await change(data, 2, 2, 99);
  await backup("db", "hourly", `root=${root}`, `data=${data}`);
  // Much more than usual, in places that had never changed.
  await change(web, 10, 70, 77);
  await backup("web", "nightly", `root=${web}`);
  await agentOk(reach, ["verify", "latest", "--vm", "web", "--quiet"]);
  await interrupted(server, root);
}

/** A backup that its user stops once it has begun: a row that is not done. */
async function interrupted(server: Server, disk: string): Promise<void> {
  await change(disk, 0, 12, 1234);
  const child = start("holdfast", ["backup", "--vm", "db", "--job", "hourly", "--accept-change", "--json", "--limit-upload", "1MB", `root=${disk}`], agentEnv(server.reach));
  await new Promise<void>((done) => {
    let said = "";
    child.stdout?.on("data", (text: Buffer) => {
      said += text.toString();
      if (said.includes('"progress"')) done();
    });
    child.once("exit", () => done());
  });
  child.kill("SIGINT");
  await ended(child);
}
