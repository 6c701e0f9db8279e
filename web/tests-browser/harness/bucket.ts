/** A bucket of the tests' own, in a program beside the server. */

import type { ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { ended, start } from "./programs";

interface Told {
  endpoint: string;
  bucket: string;
  access_key: string;
  secret_key: string;
}

export class Bucket {
  private constructor(
    private readonly child: ChildProcess,
    private readonly folder: string,
    /** What a server is told, so that it keeps copies there. */
    readonly args: string[],
  ) {}

  static async create(): Promise<Bucket> {
    const folder = await mkdtemp(join(tmpdir(), "holdfast-bucket-"));
    const child = start("examples/bucket_server", []);
    const { endpoint, bucket, access_key: id, secret_key: secret } = await untilReady(child);
    const credentials = join(folder, "credentials");
    await writeFile(credentials, `[default]\naws_access_key_id = ${id}\naws_secret_access_key = ${secret}\n`);
    const where = ["--s3", `s3://${bucket}/site`, "--s3-endpoint", endpoint, "--s3-path-style", "--s3-credentials", credentials];
    return new Bucket(child, folder, ["--encrypt=on", ...where]);
  }

  /** Ends it; what is in it is gone. */
  async stop(): Promise<void> {
    this.child.kill("SIGTERM");
    await ended(this.child);
  }

  async remove(): Promise<void> {
    await this.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}

function untilReady(child: ChildProcess): Promise<Told> {
  return new Promise((done, failed) => {
    let said = "";
    child.stdout?.on("data", (data: Buffer) => {
      said += data.toString();
      if (/^ready$/m.test(said)) done(JSON.parse(said.split("\n")[0] ?? "") as Told);
    });
    child.once("exit", (code) => failed(new Error(`the bucket ended with ${code}:\n${said}`)));
  });
}
