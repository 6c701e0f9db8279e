/** Which rows of a very long list can be scrolled through now, and the way to the others. */

import { count } from "../../format/numbers";

/** Rows that can be scrolled through at once, whole pages: Firefox lays out no more than 17,895,697 px, Chromium 33,554,432. */
export const ROWS_MAX = 400_000;

interface BlocksProps {
  base: number;
  shown: number;
  all: number;
  onBase: (base: number) => void;
}

export function Blocks({ base, shown, all, onBase }: BlocksProps) {
  if (all <= ROWS_MAX && base === 0) return null;
  return (
    <p className="grid-blocks">
      <span className="muted">{`Rows ${count(base + 1)} to ${count(base + shown)} of ${count(all)}`}</span>
      {base > 0 && (
        <button type="button" className="button button-small" onClick={() => onBase(base - ROWS_MAX)}>
          Previous rows
        </button>
      )}
      {base + shown < all && (
        <button type="button" className="button button-small" onClick={() => onBase(base + ROWS_MAX)}>
          Next rows
        </button>
      )}
    </p>
  );
}
