/** What is shown in place of data: skeletons, errors, and what to do first. */

import type { UseQueryResult } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";

import { ApiError, explain } from "../api/error";
import { minute } from "../format/time";
import { Icon } from "./icons";
import { LOOK_MS, useNow } from "./today";

/** An answer that is older is not taken for how things are: several later ones should have come. */
const LATE_MS = 150_000;

/** Grey bars of the height the content will have. */
export function Skeleton({ lines = 3, height }: { lines?: number; height?: number }) {
  return (
    <div className="skeleton" role="status" aria-label="Loading" style={height === undefined ? undefined : { minHeight: height }}>
      {Array.from({ length: lines }, (_, line) => (
        <span key={line} className="skeleton-line" />
      ))}
    </div>
  );
}

/** An error: what happened, the server's words, what to do next, and the code to search for. */
export function ErrorNote({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { title, detail, next, code } = explain(error);
  return (
    <div className="note note-bad" role="alert">
      <Icon name="fail" />
      <div>
        <p className="note-title">{title}</p>
        {detail !== "" && <p>{detail}</p>}
        <p className="muted">
          {next} <code>{code}</code>
        </p>
        {onRetry !== undefined && (
          <button type="button" className="button" onClick={onRetry}>
            Try again
          </button>
        )}
      </div>
    </div>
  );
}

/** No data yet: what that means and the commands that change it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** Whether an answer has been awaited for a while on a page that is in view: a hidden one does not ask. */
function useOverdue(waiting: boolean): boolean {
  const [overdue, setOverdue] = useState(false);
  useEffect(() => {
    if (!waiting) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const begin = () => {
      clearTimeout(timer);
      setOverdue(false);
      if (document.visibilityState !== "hidden") timer = setTimeout(() => setOverdue(true), LOOK_MS);
    };
    begin();
    window.addEventListener("visibilitychange", begin);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("visibilitychange", begin);
    };
  }, [waiting]);
  return waiting && overdue;
}

/** Says of when data is, once newer data should have come and has not. */
export function AsOf({ at, waiting }: { at: number; waiting: boolean }) {
  const now = useNow();
  const overdue = useOverdue(waiting);
  if (at === 0 || !overdue || now - at <= LATE_MS) return null;
  return (
    <p className="note note-warn" role="status">
      <Icon name="clock" />
      As of {minute(new Date(at).toISOString())}: the server has not answered since.
    </p>
  );
}

interface AsyncProps<T> {
  query: Pick<UseQueryResult<T>, "data" | "error" | "dataUpdatedAt" | "isFetching" | "refetch">;
  /** Height of the skeleton, so that nothing jumps when the data comes. */
  height?: number;
  lines?: number;
  children: (data: T) => ReactNode;
}

/** Skeleton, then data; an error only replaces data that never came. Times that data tells as spans go on. */
export function Async<T>({ query, height, lines, children }: AsyncProps<T>) {
  useNow();
  const retry = () => void query.refetch();
  if (query.data !== undefined) {
    const passing = query.error instanceof ApiError && query.error.passing;
    return (
      <>
        {query.error !== null && !passing && <ErrorNote error={query.error} onRetry={retry} />}
        <AsOf at={query.dataUpdatedAt} waiting={query.isFetching || query.error !== null} />
        {children(query.data)}
      </>
    );
  }
  if (query.error !== null) return <ErrorNote error={query.error} onRetry={retry} />;
  return (
    <Skeleton
      {...(height === undefined ? {} : { height })}
      {...(lines === undefined ? {} : { lines })}
    />
  );
}
