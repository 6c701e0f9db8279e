/** One error type for everything that can go wrong between this page and the server. */

import type { ErrorCode, Problem } from "./schema";

/** A failed request: the server's problem document, or what the network said. */
export class ApiError extends Error {
  readonly status: number;
  /** Stable code of the server (`invalid`, `forbidden`, …), or `unreachable`. */
  readonly code: string;
  readonly title: string;
  readonly detail: string;

  constructor(status: number, code: string, title: string, detail: string) {
    super(detail === "" ? title : `${title}: ${detail}`);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.title = title;
    this.detail = detail;
  }

  /** Whether the same request may succeed in a moment. */
  get passing(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** The error in a response, whether or not its body is a problem document. */
export async function fromResponse(response: Response): Promise<ApiError> {
  const type = response.headers.get("content-type") ?? "";
  // Checked field by field: a proxy may have answered instead of the server.
  let problem: Partial<Record<keyof Problem, unknown>> = {};
  if (type.includes("json")) {
    const body: unknown = await response.json().catch(() => null);
    if (typeof body === "object" && body !== null) problem = body;
  }
  const title = text(problem.title) || response.statusText || `The server responded with status ${response.status}`;
  return new ApiError(response.status, text(problem.code) || `http_${response.status}`, title, text(problem.detail));
}

/** The error when there was no response at all. */
export function unreachable(cause: unknown): ApiError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new ApiError(0, "unreachable", "The server is not responding", why);
}

/** What to tell the user: what happened, and what to do next. */
export function explain(error: unknown): { title: string; detail: string; next: string; code: string } {
  const failure = error instanceof ApiError ? error : new ApiError(0, "client", "Something went wrong on this page", String(error));
  return {
    title: TITLES[failure.code] ?? failure.title,
    detail: failure.code === "unreachable" ? "" : failure.detail,
    next: NEXT[failure.code] ?? "Try again. If the error persists, see the server's log.",
    code: failure.code,
  };
}

type Texts = Partial<Record<string, string>>;

const TITLES: Texts = {
  forbidden: "Your token does not allow this",
  "not-found": "Not found",
  invalid: "The server rejected the request",
  unauthenticated: "You are not logged in",
  changed: "What was shown has changed",
} satisfies Partial<Record<ErrorCode, string>>;

const NEXT: Texts = {
  unreachable: "Check that holdfast-server is running and reachable from this machine. This page retries automatically.",
  unauthenticated: "Log in again with a valid token.",
  forbidden: "Log in with a token whose role and namespaces allow it, or ask an administrator for one.",
  "not-found": "It may have been removed, or your token does not cover its namespace.",
  invalid: "Reset the filters. If you followed a link, it may come from another version.",
  changed: "Look at what is shown now, and decide anew.",
  busy: "Wait until the running operation has finished, then try again.",
  limit: "Wait a moment, then try again.",
  unavailable: "The server is starting, stopping or overloaded. This page retries automatically.",
  "read-only": "The repository is read-only after an I/O error. Fix the cause, then restart the server; its log says more.",
  full: "Free space on the repository's file system.",
} satisfies Partial<Record<ErrorCode | "unreachable", string>>;
