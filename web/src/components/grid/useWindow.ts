/**
 * Rows of a long list at the server, fetched page by page as they scroll into view. Holds a few pages, never
 * the list. While a changed filter loads, what was on screen stays, marked as stale.
 */

import { useQueries } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";

import type { Source } from "../../api/queries";

/** Rows asked for at once: a few screens, about 200 KB of JSON. */
export const PAGE_ROWS = 200;
/** A page that left the screen is kept this long, so that scrolling through 100,000 rows holds a few of them. */
const KEEP_MS = 20_000;
/** The range must rest this long before it is asked for: dragging the scroll bar asks for the end only. */
const REST_MS = 80;

export interface Window<Row> {
  /** Rows in the whole list, once known. */
  total: number | undefined;
  rows: ReadonlyMap<number, Row>;
  /** The rows are those of the filter before. */
  stale: boolean;
  fetching: boolean;
  error: unknown;
  retry: () => void;
}

/** Numbers of the pages that hold rows `first` to `last`. */
export function pagesOf(first: number, last: number): number[] {
  const from = Math.floor(Math.max(0, first) / PAGE_ROWS);
  const to = Math.floor(Math.max(0, last) / PAGE_ROWS);
  return Array.from({ length: to - from + 1 }, (_, page) => from + page);
}

export function useWindow<Row>(source: Source<Row>, first: number, last: number): Window<Row> {
  const key = JSON.stringify(source.key);
  const pages = usePages(key, first, last);
  const results = useQueries({
    queries: pages.map((page) => ({
      queryKey: [...source.key, page],
      queryFn: ({ signal }: { signal: AbortSignal }) => source.page(page * PAGE_ROWS, PAGE_ROWS, signal),
      gcTime: KEEP_MS,
    })),
  });

  const totals = useRef({ key: "", total: undefined as number | undefined });
  const shown = useRef<{ key: string; rows: ReadonlyMap<number, Row>; total: number } | null>(null);
  const fresh = results.map((result) => result.data);
  const answered = results.map((result, index) => `${pages[index]}@${result.dataUpdatedAt}`).join();
  const rows = useMemo(() => {
    const map = new Map<number, Row>();
    for (const page of fresh) page?.items.forEach((row, index) => map.set(page.offset + index, row));
    return map;
    // The array of answers is new each time; the answers are told apart by when they came.
  }, [key, answered]);

  const total = fresh.find((page) => page !== undefined)?.total;
  if (totals.current.key !== key) totals.current = { key, total: undefined };
  if (total !== undefined) {
    totals.current.total = total;
    shown.current = { key, rows, total };
  }
  const error = results.find((result) => result.error !== null)?.error ?? null;
  const before = shown.current;
  const waiting = total === undefined && totals.current.total === undefined && error === null;
  const stale = waiting && before !== null;
  return {
    total: stale ? before.total : totals.current.total,
    rows: stale ? before.rows : rows,
    stale,
    fetching: results.some((result) => result.isFetching),
    error,
    retry: () => results.forEach((result) => void result.refetch()),
  };
}

/** The pages to hold: of the range at rest, and of the first rows at once when the list is another one. */
function usePages(key: string, first: number, last: number): number[] {
  const wanted = pagesOf(first, last).join();
  const [rested, setRested] = useState({ key, pages: wanted });
  useEffect(() => {
    const timer = setTimeout(() => setRested({ key, pages: wanted }), REST_MS);
    return () => clearTimeout(timer);
  }, [key, wanted]);
  const pages = rested.key === key ? rested.pages : wanted;
  return useMemo(() => pages.split(",").map(Number), [pages]);
}
