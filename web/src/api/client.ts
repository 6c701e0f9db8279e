/**
 * The thin way to the server: fetch with the session's cookie, the CSRF header on everything that changes
 * something, problem documents as {@link ApiError}. Knows nothing of what it carries.
 */

import { ApiError, fromResponse, unreachable } from "./error";

export const BASE = "/api/v1";

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

let csrf: string | null = null;
let onUnauthenticated: () => void = () => {};

/** The token that proves that a request comes from this page; from `GET /session`. */
export function setCsrf(token: string | null): void {
  csrf = token;
}

/** Called whenever the server says that the session has ended. */
export function setOnUnauthenticated(handler: () => void): void {
  onUnauthenticated = handler;
}

/** Path and query of an endpoint. Absent and empty parameters are left out; lists are joined by commas. */
export function url(path: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
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

interface Options {
  method?: "GET" | "POST" | "DELETE";
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
    if (error.status === 401) onUnauthenticated();
    throw error;
  }
  if (response.status === 204) return undefined as T;
  return parse<T>(response);
}

async function parse<T>(response: Response): Promise<T> {
  try {
    return (await response.json()) as T;
  } catch {
    throw new ApiError(response.status, "client", "The server's answer is not readable", "The body is not JSON.");
  }
}

export const get = <T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> =>
  request<T>(url(path, query), { signal });

export const post = <T>(path: string, body?: unknown): Promise<T> =>
  request<T>(url(path), { method: "POST", body: body ?? {} });

export const remove = (path: string): Promise<void> => request<void>(url(path), { method: "DELETE" });
