/** The line of totals of the rows that match the filters. */

import { useGroups } from "../../api/queries";
import type { TotalsRow } from "../../api/schema";
import { TermLabel, Value, type Kind } from "../../components/Value";
import type { Term } from "../../format/definitions";
import { filterOf, type View } from "./view";

const SUMS: readonly [term: Term & Exclude<keyof TotalsRow, "trend" | "used">, kind: Kind][] = [
  ["rows", "count"],
  ["bytes", "bytes"],
  ["new_bytes", "bytes"],
  ["post_lc", "bytes"],
  ["meta_bytes", "bytes"],
  ["global_factor", "factor"],
  ["local_factor", "factor"],
  ["bytes/post_lc", "factor"],
  ["reduction_pct", "percent"],
  ["failed", "count"],
];

export function Sums({ view }: { view: View }) {
  const query = useGroups({ ...filterOf(view), by: "repository" });
  const row = query.data?.items[0];
  return (
    <dl className={`sums ${query.isPlaceholderData ? "is-stale" : ""}`} aria-label="Totals of the matching rows">
      {SUMS.map(([term, kind]) => (
        <div key={term}>
          <dt>
            <TermLabel term={term} />
          </dt>
          <dd>{row === undefined ? <span className="value">–</span> : <Value term={term} kind={kind} value={row[term]} />}</dd>
        </div>
      ))}
    </dl>
  );
}
