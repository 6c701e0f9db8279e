/** A column of a windowed table. */

import type { ReactNode } from "react";

import type { Term } from "../../format/definitions";
import type { Kind } from "../Value";

export interface GridColumn<Row> {
  id: string;
  term: Term;
  width: number;
  kind: Kind;
  /** The server's name for sorting by it; `null` when it cannot. */
  sort: string | null;
  value: (row: Row) => number | string | null | undefined;
  /** Shown in the cell instead of the formatted value. */
  render?: (row: Row) => ReactNode;
  /** The tooltip's exact value where it is not the value itself. */
  exact?: (row: Row) => string;
}

const NUMBERS: readonly Kind[] = ["bytes", "count", "factor", "percent", "seconds", "rate", "byte_rate"];

/** Whether the values are aligned to the right and sort largest first. */
export const isNumber = (kind: Kind): boolean => NUMBERS.includes(kind);

/** `-post_lc` as the column and the direction. */
export function parseSort(sort: string): { column: string; descending: boolean } {
  return sort.startsWith("-") ? { column: sort.slice(1), descending: true } : { column: sort, descending: false };
}
