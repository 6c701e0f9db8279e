/**
 * Requests to the server: fetch with the session's cookie, the CSRF header on everything that changes
 * something, problem documents as {@link ApiError}. Paths, parameters, bodies and answers are typed by the
 * OpenAPI document; what the server really answers is not checked again here.
 */

import { ApiError, fromResponse, unreachable } from "./error";
import type { Operations } from "./schema";

export const BASE = "/api/v1";

/** What a parameter of a query can be. */
type Value = string | number | boolean | readonly string[] | null | undefined;

type Method = "GET" | "POST" | "PUT" | "DELETE";

/** The paths that take a method. */
export type PathOf<M extends Method> = keyof Operations extends infer Key ? (Key extends `${M} ${infer Path}` ? Path : never) : never;

type Operation<M extends Method, P extends PathOf<M>> = Operations[Extract<keyof Operations, `${M} ${P}`>];

/** What a GET of a path answers. */
export type Answer<P extends PathOf<"GET">> = Operation<"GET", P>["answer"];

/** Lists are joined by commas; what is `null` or empty is left out. */
type Loose<V> = V | "" | null | (string extends V ? readonly string[] : never);

/** The query of a GET of a path. */
export type QueryOf<P extends PathOf<"GET">> = {
  readonly [Name in keyof Operation<"GET", P>["query"]]?: Loose<Operation<"GET", P>["query"][Name]>;
};

let csrf: string | null = null;
let onRefused: (status: 401 | 403) => void = () => {};

/** The token that proves that a request comes from this page; from `GET /session`. */
export function setCsrf(token: string | null): void {
  csrf = token;
}

/** Called whenever the server says that no one is logged in (401), or that who is may not do this (403). */
export function setOnRefused(handler: (status: 401 | 403) => void): void {
  onRefused = handler;
}

/** Path and query of an endpoint. Absent and empty parameters are left out; lists are joined by commas. */
export function url(path: string, query: object = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query) as [string, Value][]) {
    if (value === null || value === undefined || value === "") continue;
    if (Array.isArray(value)) {
      if (value.length > 0) params.set(name, value.join(","));
    } else {
      params.set(name, String(value));
    }
  }
  const text = params.toString();
  return `${BASE}${path}${text === "" ? "" : `?${text}`}`;
}

/** A documented path with its parameters filled in. */
export function fill(path: string, params: Readonly<Record<string, string>> = {}): string {
  return path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = params[name];
    if (value === undefined) throw new Error(`${path} needs ${name}`);
    return encodeURIComponent(value);
  });
}

interface Options {
  method?: Method;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

/** One request. Resolves to the body, or to `undefined` when there is none. */
export async function request<T>(address: string, { method = "GET", body, signal }: Options = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && csrf !== null) headers["X-CSRF-Token"] = csrf;
  let response: Response;
  try {
    response = await fetch(address, {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (cause) {
    if (signal?.aborted === true) throw cause;
    throw unreachable(cause);
  }
  if (!response.ok) {
    const error = await fromResponse(response);
    if (error.status === 401 || error.status === 403) onRefused(error.status);
    throw error;
  }
  if (response.status === 204) return undefined as T;
  return parse<T>(response);
}

async function parse<T>(response: Response): Promise<T> {
  try {
    return (await response.json()) as T;
  } catch {
    throw new ApiError(response.status, "client", "The server's response is not readable", "The body is not JSON.");
  }
}

interface GetOptions<P extends PathOf<"GET">> {
  /** Parameters of the path. */
  params?: Operation<"GET", P>["path"];
  query?: QueryOf<P>;
  signal?: AbortSignal;
}

export const get = <P extends PathOf<"GET">>(path: P, { params, query, signal }: GetOptions<P> = {}): Promise<Answer<P>> =>
  request(url(fill(path, params), query), { signal });

/** The body, where the operation takes one. */
type BodyOf<P extends PathOf<"POST">> = Operation<"POST", P>["body"] extends undefined ? [] : [body: Operation<"POST", P>["body"]];

export const post = <P extends PathOf<"POST">>(path: P, ...[body]: BodyOf<P>): Promise<Operation<"POST", P>["answer"]> =>
  request(url(path), { method: "POST", body: body ?? {} });

export const put = <P extends PathOf<"PUT">>(path: P, params: Operation<"PUT", P>["path"], body: Operation<"PUT", P>["body"]): Promise<Operation<"PUT", P>["answer"]> =>
  request(url(fill(path, params)), { method: "PUT", body });

/** A POST to a path with parameters. */
export const postTo = <P extends PathOf<"POST">>(
  path: P,
  params: Operation<"POST", P>["path"],
  body: Operation<"POST", P>["body"],
): Promise<Operation<"POST", P>["answer"]> => request(url(fill(path, params)), { method: "POST", body: body ?? {} });

export const remove = <P extends PathOf<"DELETE">>(path: P, params: Operation<"DELETE", P>["path"]): Promise<void> =>
  request(url(fill(path, params)), { method: "DELETE" });
