/**
 * Rows of a long list at the server, fetched page by page as they scroll into view. Holds a few pages, never
 * the list. While a changed filter loads, what was on screen stays, marked as stale.
 */

import { useQueries, type UseQueryResult } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";

import { ApiError } from "../../api/error";
import { namespaceOf, type Page, type Source } from "../../api/queries";

/** Rows in a request: a few screens, about 200 KB of JSON. */
export const PAGE_ROWS = 200;
/** A page that left the screen is kept this long, so that scrolling through 100,000 rows holds a few of them. */
const KEEP_MS = 20_000;
/** The range must be unchanged for this long before it is requested: dragging the scroll bar requests the end only. */
const REST_MS = 80;

export interface Window<Row> {
  /** Rows in the whole list, once known. */
  total: number | undefined;
  rows: ReadonlyMap<number, Row>;
  /** The rows are those of the previous filter. */
  stale: boolean;
  fetching: boolean;
  error: unknown;
  /** When the oldest of what is shown was answered; 0: nothing was yet. */
  answeredMs: number;
  /** Whether a newer answer should have come or is on its way. */
  waiting: boolean;
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
  const found = useQueries({
    queries: pages.map((page) => ({
      queryKey: [...source.key, page],
      queryFn: ({ signal }: { signal: AbortSignal }) => source.page(page * PAGE_ROWS, PAGE_ROWS, signal),
      gcTime: KEEP_MS,
    })),
    combine: combined<Row>,
  });

  // The list that answered last: its length and age stay known between its pages, and its rows stay while another list loads.
  const [known, setKnown] = useState<Known<Row> | null>(null);
  const { rows, total, answeredMs } = found;
  if (total !== undefined && (known?.key !== key || known.rows !== rows)) setKnown({ key, of: source.key, rows, total, answeredMs });
  const own = known?.key === key ? known : null;
  const ownTotal = total ?? own?.total;
  const stays = ownTotal === undefined && found.error === null && known !== null && namespaceOf(known.of) === namespaceOf(source.key);
  const before = stays ? known : null;
  return {
    total: before?.total ?? ownTotal,
    rows: before?.rows ?? rows,
    stale: before !== null,
    fetching: found.fetching,
    error: found.error,
    answeredMs: total === undefined ? ((before ?? own)?.answeredMs ?? 0) : answeredMs,
    waiting: found.waiting,
    retry: found.retry,
  };
}

/** A list that answered. */
interface Known<Row> {
  key: string;
  of: Source<Row>["key"];
  rows: ReadonlyMap<number, Row>;
  total: number;
  answeredMs: number;
}

const isPassing = (error: unknown): boolean => error instanceof ApiError && error.passing;

/** The pages as one list. It is made again only when one of them changes. */
function combined<Row>(results: UseQueryResult<Page<Row>>[]) {
  const rows = new Map<number, Row>();
  for (const { data } of results) data?.items.forEach((row, index) => rows.set(data.offset + index, row));
  return {
    rows,
    total: results.find(({ data }) => data !== undefined)?.data?.total,
    fetching: results.some((result) => result.isFetching),
    answeredMs: Math.min(...results.filter(({ data }) => data !== undefined).map((result) => result.dataUpdatedAt)),
    waiting: results.some((result) => result.isFetching || result.error !== null),
    // Where there are rows, one that passes leaves them as they were, which their age tells.
    error: results.find(({ data, error }) => error !== null && (data === undefined || !isPassing(error)))?.error ?? null,
    retry: () => results.forEach((result) => void result.refetch()),
  };
}

/** The pages to hold: those of a range that has come to rest, or at once the first ones of another list. */
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
