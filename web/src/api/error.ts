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
  // Whatever it is: a proxy may have answered instead of the server.
  let problem: Partial<Record<keyof Problem, unknown>> = {};
  if (type.includes("json")) {
    const body: unknown = await response.json().catch(() => null);
    if (typeof body === "object" && body !== null) problem = body;
  }
  const title = text(problem.title) || response.statusText || `The server answered ${response.status}`;
  return new ApiError(response.status, text(problem.code) || `http_${response.status}`, title, text(problem.detail));
}

/** The error when there was no response at all. */
export function unreachable(cause: unknown): ApiError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new ApiError(0, "unreachable", "The server does not answer", why);
}

/** What to tell a person, in two parts: what happened, and what to do next. */
export function explain(error: unknown): { title: string; detail: string; next: string; code: string } {
  const failure = error instanceof ApiError ? error : new ApiError(0, "client", "This page failed", String(error));
  return {
    title: TITLES[failure.code] ?? failure.title,
    detail: failure.code === "unreachable" ? "" : failure.detail,
    next: NEXT[failure.code] ?? "Try again. If it stays, the server's log says why.",
    code: failure.code,
  };
}

type Texts = Partial<Record<string, string>>;

const TITLES: Texts = {
  forbidden: "Your token may not see this",
  "not-found": "Not found",
  invalid: "The server did not understand the request",
  unauthenticated: "You are not logged in",
} satisfies Partial<Record<ErrorCode, string>>;

const NEXT: Texts = {
  unreachable: "Check that holdfast-server runs and that this machine reaches it. This page tries again by itself.",
  unauthenticated: "Log in again with a valid token.",
  forbidden: "Log in with a token whose role and namespaces cover it, or ask an administrator for one.",
  "not-found": "It may have been removed, or your token does not cover its namespace.",
  invalid: "Reset the filter; if you came by a link, the link may be from another version.",
  busy: "Wait for what is running to end, then try again.",
  limit: "Wait a moment, then try again.",
  unavailable: "The server is starting, stopping or overloaded. This page tries again by itself.",
  "read-only": "The repository is read-only after an I/O error. See the server's log, then restart it.",
  full: "Free space on the repository's file system.",
} satisfies Partial<Record<ErrorCode | "unreachable", string>>;
