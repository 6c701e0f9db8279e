/** A fetch that answers from a table of paths and records the requests. */

import { vi } from "vitest";

/** An answer that a test gives when it wants to. */
export function held<T = unknown>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((done) => (resolve = done));
  return { promise, resolve };
}

export interface Asked {
  method: string;
  path: string;
  params: URLSearchParams;
  headers: Headers;
  body: string;
}

/** An answer that is not 200. */
export class Refusal {
  readonly status: number;
  readonly problem: Record<string, unknown>;
  constructor(status: number, problem: Record<string, unknown>) {
    this.status = status;
    this.problem = problem;
  }
}

/** Stands in for the server: `METHOD path` (without the base) to answers, or to functions that give them. */
export function serve(answers: Record<string, unknown>): Asked[] {
  const log: Asked[] = [];
  const answer = async (input: string, init?: Omit<RequestInit, "body"> & { body?: string }): Promise<Response> => {
    const address = new URL(input, "https://holdfast.test");
    const asked: Asked = {
      method: init?.method ?? "GET",
      path: address.pathname.replace("/api/v1", ""),
      params: address.searchParams,
      headers: new Headers(init?.headers),
      body: init?.body ?? "",
    };
    log.push(asked);
    const found = answers[`${asked.method} ${asked.path}`];
    const value: unknown = typeof found === "function" ? await (found as (asked: Asked) => unknown)(asked) : found;
    if (value === undefined) return problem(404, { title: "Not Found", code: "not-found", detail: asked.path });
    if (value instanceof Refusal) return problem(value.status, value.problem);
    if (value === null) return new Response(null, { status: 204 });
    return new Response(JSON.stringify(value), { headers: { "content-type": "application/json" } });
  };
  vi.stubGlobal("fetch", vi.fn(answer));
  return log;
}

const problem = (status: number, body: Record<string, unknown>) =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/problem+json" } });
