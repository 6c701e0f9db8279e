/** A real server on ports of its own, with a data folder of its own. */

import type { ChildProcess } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { ended, run, start, type Output } from "./programs";

const ANY_PORT = "127.0.0.1:0";

/** What a test needs to reach a server; plain data, so that it survives between processes. */
export interface Reach {
  url: string;
  grpc: string;
  fingerprint: string;
  dataDir: string;
}

export class Server {
  private child: ChildProcess | null = null;
  private constructor(
    private state: Reach,
    private readonly args: string[],
  ) {}

  /** Starts a server in a new data folder, which `prepare` may fill before, with further arguments. */
  static async create(prepare?: (dataDir: string) => Promise<void>, args: string[] = []): Promise<Server> {
    const dataDir = await mkdtemp(join(tmpdir(), "holdfast-web-"));
    await prepare?.(dataDir);
    const server = new Server({ url: "", grpc: ANY_PORT, fingerprint: "", dataDir }, args);
    await server.start();
    return server;
  }

  get reach(): Reach {
    return this.state;
  }

  get pid(): number {
    return this.child?.pid ?? 0;
  }

  /** Starts, on the addresses it had before if there were any, and waits until it says that it is ready. */
  async start(): Promise<void> {
    const http = this.state.url === "" ? ANY_PORT : this.state.url.replace("https://", "");
    const args = ["serve", "--data-dir", this.state.dataDir, "--grpc", this.state.grpc, "--http", http, ...this.args];
    const child = start("holdfast-server", args);
    this.child = child;
    const said = await untilReady(child);
    const find = (pattern: RegExp, what: string) => {
      const found = pattern.exec(said)?.[1];
      if (found === undefined) throw new Error(`the server did not say its ${what}:\n${said}`);
      return found;
    };
    this.state = {
      dataDir: this.state.dataDir,
      url: `https://${find(/HTTPS listening on (\S+)/, "web address")}`,
      grpc: find(/gRPC listening on (\S+)/, "address for agents"),
      fingerprint: find(/fingerprint ([0-9a-f]{64})/, "fingerprint"),
    };
  }

  /** Ends it as a service manager does, and waits until it is gone. */
  async stop(): Promise<void> {
    const child = this.child;
    this.child = null;
    if (child === null) return;
    child.kill("SIGTERM");
    await ended(child);
  }

  /** Ends it and takes its data away. */
  async remove(): Promise<void> {
    await this.stop();
    await rm(this.state.dataDir, { recursive: true, force: true });
  }
}

function untilReady(child: ChildProcess): Promise<string> {
  return new Promise((done, failed) => {
    let said = "";
    const hear = (data: Buffer) => {
      said += data.toString();
      if (/^ready$/m.test(said)) done(said);
    };
    child.stdout?.on("data", hear);
    child.stderr?.on("data", hear);
    child.once("exit", (code) => failed(new Error(`the server ended with ${code}:\n${said}`)));
  });
}

/** The environment that lets the agent in. */
export const agentEnv = (reach: Reach): Record<string, string> => ({
  HOLDFAST_SERVER: reach.grpc,
  HOLDFAST_FINGERPRINT: reach.fingerprint,
  HOLDFAST_TOKEN_FILE: join(reach.dataDir, "admin.token"),
});

/** Runs the agent against a server. */
export const agent = (reach: Reach, args: string[], env: Record<string, string> = {}): Promise<Output> =>
  run("holdfast", args, { ...agentEnv(reach), ...env });

/** The same, and it must succeed. */
export async function agentOk(reach: Reach, args: string[]): Promise<Output> {
  const output = await agent(reach, args);
  if (output.code !== 0) throw new Error(`holdfast ${args.join(" ")} ended with ${output.code}:\n${output.stderr}`);
  return output;
}

/** The admin token of the first start. */
export const adminToken = async (reach: Reach): Promise<string> =>
  (await readFile(join(reach.dataDir, "admin.token"), "utf8")).trim();

/** Makes a token of a role at the server; resolves to its text. */
export async function makeToken(reach: Reach, name: string, role: string): Promise<string> {
  const args = ["token", "create", "--name", name, "--role", role, "--data-dir", reach.dataDir];
  const output = await run("holdfast-server", args);
  const token = /hf_\w+/.exec(output.stdout.toString() + output.stderr)?.[0];
  if (token === undefined) throw new Error(`no token from holdfast-server ${args.join(" ")}:\n${output.stderr}`);
  return token;
}
