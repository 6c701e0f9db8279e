/** Where the programs are, and running them. */

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";

const BIN_DIR = resolve(process.env["HOLDFAST_BIN_DIR"] ?? join(import.meta.dirname, "../../../target/debug"));

/** A program, or an error that says how to build it. */
export function program(name: string): string {
  const path = join(BIN_DIR, name);
  if (!existsSync(path)) {
    const how = name.startsWith("examples/")
      ? "cargo build -p holdfast-engine --example fill_details -p holdfast-bucket --example bucket_server"
      : "cargo build -p holdfast-server -p holdfast";
    throw new Error(`${path} is missing: run '${how}' after 'npm run build', or set HOLDFAST_BIN_DIR`);
  }
  return path;
}

export interface Output {
  code: number;
  stdout: Buffer;
  stderr: string;
}

/** Runs a program to its end. */
export function run(name: string, args: string[], env: Record<string, string> = {}): Promise<Output> {
  return new Promise((done) => {
    execFile(
      program(name),
      args,
      { env: { ...process.env, ...env }, encoding: "buffer", maxBuffer: 256 * 1024 * 1024 },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === "number" ? error.code : 1;
        done({ code, stdout, stderr: stderr.toString() });
      },
    );
  });
}

/** Starts a program and leaves it running. */
export function start(name: string, args: string[], env: Record<string, string> = {}): ChildProcess {
  return spawn(program(name), args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
}

/** Resolves when it has ended. */
export function ended(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve(child.exitCode);
  return new Promise((done) => child.once("exit", (code) => done(code)));
}
